/* SPDX-License-Identifier: Apache-2.0 */
/* An output layer that the ranks of a pipeline divide: the losses, gradients, texts and checkpoints of one rank. */
#include "support/test.h"
#include "ranks_fixture.h"

#include "support/full_config.h"
#include "train/step/stages.h"

enum { LLAMA, GPT, MIXTURE, TIED_LLAMA }; /* the GPT has the table for its output layer, too */

typedef struct {
    int               model, stages, chunks;
    tm_pipeline_order order;
    int64_t           micro_batches;
} form;

static const form forms[] = {
    { GPT, 2, 1, TM_PIPELINE_1F1B, 8 },
    { LLAMA, 2, 1, TM_PIPELINE_1F1B, 4 },
    { GPT, 2, 2, TM_PIPELINE_INTERLEAVED, 8 },
    { LLAMA, 4, 2, TM_PIPELINE_INTERLEAVED, 8 },
    { GPT, 4, 2, TM_PIPELINE_INTERLEAVED_ZERO, 4 },
    { GPT, 2, 1, TM_PIPELINE_INTERLEAVED_ZERO, 4 },
    { LLAMA, 2, 2, TM_PIPELINE_ZBV, 4 },
    { GPT, 3, 2, TM_PIPELINE_DUAL_V, 6 },
    { LLAMA, 2, 1, TM_PIPELINE_GPIPE, 2 },
    { TIED_LLAMA, 3, 3, TM_PIPELINE_INTERLEAVED, 6 },
    { GPT, 2, 1, TM_PIPELINE_1F1B, 1 },
};
enum { FORMS = sizeof forms / sizeof forms[0] };

static tm_step_options options_of(const form *f)
{
    tm_step_options o = model_options(f->model == TIED_LLAMA ? LLAMA : f->model);
    if (f->model == TIED_LLAMA) o.shape.tied = true;
    o.shape.n_layers = f->chunks == 1 ? 2 : f->stages * (f->chunks - 1) + 1;
    o.accumulation = f->micro_batches;
    o.layout.order = f->order;
    o.layout.chunks = f->chunks;
    o.layout.divide_head = true;
    o.layout.head_blocks = 2.5;
    return o;
}

static job job_of(const form *f, int steps, double max_norm)
{
    job j = ranks_job(options_of(f), 1, 1, TM_SHARE_COPIES, steps);
    j.stages = f->stages;
    j.max_norm = max_norm;
    return j;
}

/* The same without ranks. */
static job alone_of(job j, int64_t whole)
{
    j.stages = 0, j.replicate = j.shard = 1;
    j.whole = whole;
    return j;
}

static void describe(char out[80], const form *f)
{
    tm_pipeline p = { .order = f->order };
    snprintf(out, 80, "model %d, %d x %d stages, %s, %d micro-batches", f->model, f->stages, f->chunks,
             tm_pipeline_title(&p), (int)f->micro_batches);
}

static void pieces_follow_one_rank(void **state)
{
    (void)state;
    for (int i = getenv("ONLY") ? atoi(getenv("ONLY")) : 0; i < FORMS; i++) {
        char what[80];
        job  j = job_of(&forms[i], i < 4 ? MOST_STEPS : 8, 1), again = j, alone = alone_of(j, 1);
        describe(what, &forms[i]);
        rank_body(NULL, &alone);
        run_job(&j);
        check_follows_one(&j, &alone, what, 1e-4);
        if (i > 1) continue;
        run_job(&again);
        assert_true(again.weights[0] == j.weights[0]);
    }
}

/* Gradients, to what sums in another order leave. */
static void gradients_are_those_of_one_rank(void **state)
{
    (void)state;
    for (int i = 0; i < FORMS; i++) {
        char what[80];
        describe(what, &forms[i]);
        check_sgd_step(job_of(&forms[i], 1, 0), 1, what);
    }
}

static void copies_and_shards_have_pieces(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        for (int kind = 0; kind < 4; kind++) {
            job j = job_of(&forms[i], 8, 1);
            if (j.stages > 2 || (kind == 3 && j.o.shape.tied)) continue;
            j.o.layout.reshard = true;
            j.o.layout.prefetch = 1;
            if (kind == 0) j.replicate = 2;
            if (kind > 0) j.shard = 2;
            if (kind > 0) j.o.layout.sharing = kind == 1 ? TM_SHARE_OPTIMIZER : TM_SHARE_ALL;
            j.o.layout.let_go = kind == 3; /* ZeRO-3 */
            job alone = alone_of(j, 2);
            rank_body(NULL, &alone);
            run_job(&j);
            check_follows_one(&j, &alone, kind == 0 ? "copies" : "shards", 1e-4);
        }
}

/* Sequences in parts, divided experts, recomputation. */
static void pieces_go_with_other_layouts(void **state)
{
    const form f[] = { { LLAMA, 2, 2, TM_PIPELINE_INTERLEAVED, 4 }, { MIXTURE, 2, 1, TM_PIPELINE_1F1B, 4 } };
    (void)state;
    for (int i = 0; i < 2; i++) {
        job j = job_of(&f[i], 8, 1);
        j.o.recompute.every_n = 1, j.o.recompute.cheap = true;
        if (i == 0) j.context = 2;
        if (i == 1) j.shard = j.experts = 2, j.o.layout.sharing = TM_SHARE_ALL, j.o.layout.expert_capacity = 2;
        if (i == 1) j.o.shape.moe.aux_loss = 0;
        job alone = alone_of(j, i == 1 ? 2 : 1);
        alone.context = alone.experts = 0;
        rank_body(NULL, &alone);
        run_job(&j);
        check_follows_one(&j, &alone, i ? "experts" : "sequences in parts", 1e-4);
    }
}

/* Products in bfloat16: what one rank's differ by from those in float32 is more than what pieces do. */
static void bfloat16_follows_float32(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        job wide = job_of(&forms[i], 8, 1), j, alone;
        wide.o.seq = 64;
        j = wide;
        j.o.precision = &tm_precision_bf16;
        alone = alone_of(j, 1);
        run_job(&wide);
        run_job(&j);
        rank_body(NULL, &alone);
        double far = apart(&j, &wide), one = apart(&alone, &wide);
        print_message("# bfloat16: %.3g from float32, one rank %.3g\n", far, one);
        assert_true(far > 0 && far <= 2e-3 && one <= 2e-3);
    }
}

/* Two ranks save, four or three go on, then one rank, then two: as if nobody had stopped. */
static void checkpoints_fit_other_layouts(void **state)
{
    (void)state;
    for (int model = 0; model <= TIED_LLAMA; model++) {
        const form four = { model, 4, 2, TM_PIPELINE_INTERLEAVED, 4 }, two = { model, 2, 2, TM_PIPELINE_ZBV, 4 };
        if (model == MIXTURE) continue;
        char *folder[3] = { test_tree_make(), test_tree_make(), test_tree_make() };
        job   whole = alone_of(job_of(&four, 8, 1), 1);
        job   part[4] = { job_of(&two, 2, 1), job_of(&four, 4, 1), whole, job_of(&four, 8, 1) };
        part[0].o.shape.n_layers = part[3].o.shape.n_layers = whole.o.shape.n_layers;
        part[3].o.layout.divide_head = false; /* the last stage has all of it */
        part[3].o.layout.first_less = part[3].o.layout.last_less = 1;
        part[3].stages = 2, part[3].o.layout.chunks = 1, part[3].o.layout.order = TM_PIPELINE_1F1B;
        rank_body(NULL, &whole);
        for (int k = 0; k < 4; k++) {
            part[k].begin = 2 * k;
            part[k].steps = 2 * k + 2;
            part[k].load = k > 0 ? folder[k - 1] : NULL;
            part[k].save = k < 3 ? folder[k] : NULL;
            run_any(&part[k]);
            for (int t = part[k].begin; t < part[k].steps; t++)
                if (!(fabs(part[k].loss[t] - whole.loss[t]) <= 1e-5 * whole.loss[t]))
                    fail_msg("model %d, part %d, step %d: loss %.9g, wanted %.9g", model, k, t + 1, part[k].loss[t],
                             whole.loss[t]);
        }
        for (int k = 0; k < 3; k++) test_tree_remove(folder[k]);
    }
}

/* What begins is the same to the bit, whoever has it: so is its hash. */
static void weights_begin_as_those_of_one_rank(void **state)
{
    (void)state;
    for (int i = 0; i < FORMS; i++) {
        job j = job_of(&forms[i], 0, 0), alone = alone_of(j, 1);
        rank_body(NULL, &alone);
        run_job(&j);
        if (j.weights[0] != alone.weights[0]) fail_msg("form %d: other weights than those of one rank", i);
    }
}

static void stages_write_what_one_rank_writes(void **state)
{
    (void)state;
    char *path = test_tree_make();
    test_file_write(path, "a.txt", "the quick brown fox jumps over the lazy dog, and the dog sleeps on in the sun");
    for (int i = 0; i < FORMS; i++) {
        job j = job_of(&forms[i], 1, 0);
        j.o.shape.vocab_size = 258, j.o.sample = true;
        check_same_writes(j, alone_of(j, 1), path);
    }
    test_tree_remove(path);
}

/* A rank has its rows of the output layer, and products with these; of a table the first one has all, too. */
static void a_rank_has_its_piece(void **state)
{
    (void)state;
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (int i = 0; i < FORMS; i++) {
        int64_t         next = 0, elements = 0, copies = 0;
        tm_step_options o = options_of(&forms[i]);
        const int       ranks = forms[i].stages;
        const bool      v = forms[i].order == TM_PIPELINE_ZBV || forms[i].order == TM_PIPELINE_DUAL_V;
        for (int r = 0; r < ranks; r++) {
            tm_error err = { 0 };
            tm_step *step;
            if (plan_stage(o, &chooser, ranks, v ? ranks - 1 - r : r, &step, &err) != TM_OK) fail_msg("%s", err.text);
            const tm_stage  *stage = tm_parallel_piece(&step->model.parallel);
            const tm_tensor *head = tm_graph_at(step->graph, step->model.head);
            assert_int_equal(stage->piece, r);
            assert_int_equal(stage->pieces, ranks);
            assert_int_equal(stage->class_first, next);
            next = stage->class_end;
            assert_true(head->shape.n[0] == next - stage->class_first && head->twin == o.shape.tied);
            assert_true((step->model.norm_w != TM_NONE) == (r == 0));
            for (size_t k = 0; k < step->graph->n_tensors; k++) {
                const tm_tensor *t = &step->graph->tensors[k];
                if (t->role != TM_ROLE_PARAMETER) continue;
                if (t->twin)
                    copies += tm_shape_elements(t->shape);
                else
                    elements += tm_shape_elements(t->shape);
            }
            assert_true((tm_plan_program(step->plan, "table") != NULL) == o.shape.tied);
            tm_step_destroy(step);
        }
        assert_int_equal(next, o.shape.vocab_size);
        assert_int_equal(elements, tm_model_parameters(&o.shape));
        assert_int_equal(copies, o.shape.tied ? o.shape.vocab_size * o.shape.dim : 0);
    }
    tm_device_close(device);
}

/* What it cannot be combined with: test_supported.c. */
static void sizes_that_do_not_fit_are_refused(void **state)
{
    static const char *const says[] = { "Interleaved1F1B", "a vocabulary of 16 cannot be divided among 2 ranks" };
    (void)state;
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (int k = 0; k < 2; k++) {
        tm_step_options o = options_of(&forms[0]);
        tm_error        err = { 0 };
        tm_step        *step;
        o.layout.mesh = tm_mesh_one();
        o.layout.mesh.degree[TM_AXIS_PP] = k == 0 ? 4 : 2;
        if (k == 1) o.shape.vocab_size = 16;
        assert_int_equal(tm_step_create(&o, &chooser, &step, &err), TM_INVALID);
        if (!strstr(err.text, says[k])) fail_msg("'%s' is not in: %s", says[k], err.text);
    }
    tm_device_close(device);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pieces_follow_one_rank),
    cmocka_unit_test(gradients_are_those_of_one_rank),
    cmocka_unit_test(copies_and_shards_have_pieces),
    cmocka_unit_test(pieces_go_with_other_layouts),
    cmocka_unit_test(bfloat16_follows_float32),
    cmocka_unit_test(checkpoints_fit_other_layouts),
    cmocka_unit_test(weights_begin_as_those_of_one_rank),
    cmocka_unit_test(stages_write_what_one_rank_writes),
    cmocka_unit_test(a_rank_has_its_piece),
    cmocka_unit_test(sizes_that_do_not_fit_are_refused),
};

TM_TESTS(tests, NULL, NULL)
