/* SPDX-License-Identifier: Apache-2.0 */
/* Shards of stages: weights that are gathered for each micro-batch and gradients that are reduced behind each have the
 * bits that they have without stages; updates of whole tensors those of copies. */
#include "support/test.h"
#include "ranks_fixture.h"

enum { LLAMA, MIXTURE = 2, IMAGES = 3 };

typedef struct {
    int               model, stages, chunks;
    tm_pipeline_order order;
} form;

static const form forms[] = {
    { LLAMA, 2, 1, TM_PIPELINE_1F1B },
    { LLAMA, 2, 2, TM_PIPELINE_ZBV },
    { MIXTURE, 2, 1, TM_PIPELINE_GPIPE },
    { MIXTURE, 2, 2, TM_PIPELINE_INTERLEAVED_ZERO },
    { IMAGES, 2, 2, TM_PIPELINE_DUAL_V },
    { LLAMA, 4, 1, TM_PIPELINE_1F1B },
    { LLAMA, 2, 1, TM_PIPELINE_INTERLEAVED_ZERO },
};
enum { FORMS = sizeof forms / sizeof forms[0] };

static job job_of(const form *f, int shard, tm_sharing sharing, int steps, double max_norm)
{
    job j = ranks_job(model_options(f->model), 1, shard, sharing, steps);
    if (f->model == IMAGES)
        j.o.shape.flux.n_single = 2, j.o.shape.n_layers = 2;
    else
        j.o.shape.n_layers = 4, j.o.shape.tied = false;
    j.o.accumulation = 4;
    j.o.layout.reshard = true;
    j.o.layout.prefetch = 1;
    j.max_norm = max_norm;
    return j;
}

static job in_stages(const form *f, job j)
{
    j.stages = f->stages;
    j.o.layout.order = f->order;
    j.o.layout.chunks = f->chunks;
    j.o.layout.let_go = true;
    return j;
}

static void same(const job *a, const job *b, const char *what)
{
    for (int t = 0; t < a->steps; t++)
        if (!(a->loss[t] == b->loss[t]))
            fail_msg("%s: step %d: loss %.17g, wanted %.17g", what, t + 1, a->loss[t], b->loss[t]);
    if (a->weights[0] != b->weights[0]) fail_msg("%s: other weights", what);
    if (!(a->evaluation[0] == b->evaluation[0])) fail_msg("%s: another evaluation", what);
}

/* Without clipping, whose norm is added by stages. */
static void shards_have_the_bits_that_they_have_without_stages(void **state)
{
    (void)state;
    for (int f = 0; f < FORMS; f++)
        for (int sharing = TM_SHARE_GRADIENTS; sharing <= TM_SHARE_ALL; sharing++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                char what[80];
                job  whole = job_of(&forms[f], 2, (tm_sharing)sharing, 4, 0), staged;
                if (bf16) whole.o.precision = &tm_precision_bf16, whole.o.recompute.every_n = 1;
                if (bf16 && forms[f].model != LLAMA) continue;
                staged = in_stages(&forms[f], whole);
                run_job(&whole);
                run_job(&staged);
                snprintf(what, sizeof what, "form %d, sharing %d%s", f, sharing, bf16 ? ", bfloat16" : "");
                assert_true(whole.loss[3] != whole.loss[0]);
                same(&staged, &whole, what);
            }
}

/* Casts that the programs of inputs and of weights share: of a norm that is made again for the gradients of weights. */
static void casts_may_be_shared(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        const form of = { LLAMA, 2, f ? 2 : 1, f ? TM_PIPELINE_ZBV : TM_PIPELINE_INTERLEAVED_ZERO };
        job        whole = job_of(&of, 2, TM_SHARE_ALL, 3, 0), staged;
        whole.o.precision = &tm_precision_bf16;
        whole.o.recompute.cheap = true;
        staged = in_stages(&of, whole);
        run_job(&whole);
        run_job(&staged);
        same(&staged, &whole, "norms");
    }
}

static void stages_follow_one_rank(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        job staged = in_stages(&forms[f], job_of(&forms[f], 2, TM_SHARE_ALL, f ? 8 : MOST_STEPS, 1));
        job alone = job_of(&forms[f], 1, TM_SHARE_COPIES, staged.steps, 1);
        alone.whole = f ? 4 : 2;
        if (f) staged.replicate = 2; /* hybrid */
        rank_body(NULL, &alone);
        run_job(&staged);
        check_follows_one(&staged, &alone, "shards of stages", 1e-4);
    }
}

/* What outlives a step is a share of it; with weights that stay gathered only the optimizer's state is. */
static void a_rank_holds_its_share_of_its_stage(void **state)
{
    (void)state;
    form f = { LLAMA, 2, 1, TM_PIPELINE_1F1B };
    job  parts = in_stages(&f, job_of(&f, 4, TM_SHARE_ALL, 1, 1));
    job  gathered = parts, copies = in_stages(&f, job_of(&f, 1, TM_SHARE_COPIES, 1, 1));
    gathered.o.layout.let_go = false;
    run_job(&parts);
    run_job(&gathered);
    run_job(&copies);
    for (int r = 0; r < 8; r++) {
        size_t all = copies.states[r / 4]; /* weights, gradients, two moments */
        assert_true(parts.states[r] + all / 200 >= all / 4 && parts.states[r] < all / 4 + all / 20);
        assert_true(gathered.states[r] + all / 200 >= all * 10 / 16 && gathered.states[r] < all * 11 / 16);
    }
}

static void checkpoints_fit_other_layouts(void **state)
{
    (void)state;
    for (int f = 0; f < 4; f++) {
        char *first = test_tree_make(), *second = test_tree_make();
        job   whole = job_of(&forms[f], 2, TM_SHARE_ALL, 4, 0), two = in_stages(&forms[f], whole), shards = whole;
        job   again = two;
        two.steps = 1, two.save = first;
        shards.begin = 1, shards.steps = 2, shards.load = first, shards.save = second;
        again.begin = 2, again.load = second;
        run_job(&whole);
        run_job(&two);
        run_job(&shards);
        run_job(&again);
        assert_true(again.loss[3] == whole.loss[3] && again.weights[0] == whole.weights[0]);
        test_tree_remove(first);
        test_tree_remove(second);
    }
}

/* --- updates of whole tensors ------------------------------------------------------------------------------------- */

static const struct {
    const tm_optimizer *optimizer;
    const char         *name;
} updates[] = { { &tm_optimizer_muon, "Muon" },
                { &tm_optimizer_adafactor, "Adafactor" },
                { &tm_optimizer_adamw8bit, "AdamW8bit" } };

static job with_update(int k, const form *f, bool tied)
{
    job j = job_of(f, 1, TM_SHARE_COPIES, 3, 1e9);
    j.o.shape.dim = 64, j.o.shape.ffn_dim = 96, j.o.shape.head_dim = 32; /* moments of 8 bits begin at 4096 elements */
    j.o.shape.tied = tied;
    j.o.optimizer = updates[k].optimizer;
    j.o.hyper = (tm_hyper){ .weight_decay = 0.1,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .eps = 1e-8,
                            .momentum = 0.95,
                            .nesterov = true,
                            .beta2_decay = -0.8,
                            .eps1 = (double)NAN,
                            .eps2 = 1e-3,
                            .clip_threshold = 1,
                            .decay_matrices_only = true };
    return j;
}

static void whole_tensors_have_the_bits_of_copies(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++)
        for (int tied = 0; tied < 2; tied++)
            for (int f = 0; f < 2; f++) {
                job copies = with_update(k, &forms[f], tied);
                copies.replicate = 2;
                copies.o.accumulation = 1; /* several are added up in another order where gradients are parts */
                run_job(&copies);
                for (int sharing = TM_SHARE_OPTIMIZER; sharing <= (tied ? TM_SHARE_OPTIMIZER : TM_SHARE_ALL);
                     sharing++) {
                    char what[80];
                    job  staged = in_stages(&forms[f], with_update(k, &forms[f], tied));
                    staged.shard = 2;
                    staged.o.accumulation = 1;
                    staged.o.layout.sharing = (tm_sharing)sharing;
                    run_job(&staged);
                    snprintf(what, sizeof what, "%s, form %d, sharing %d, tied %d", updates[k].name, f, sharing, tied);
                    same(&staged, &copies, what);
                }
            }
}

/* Moments are saved once each, also those of a table that two stages have. */
static void moments_fit_other_layouts(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        char *folder = test_tree_make();
        job   whole = with_update(k, &forms[0], true), staged = in_stages(&forms[0], whole), one = whole;
        whole.replicate = staged.shard = 2;
        whole.o.accumulation = staged.o.accumulation = 1;
        staged.o.layout.sharing = TM_SHARE_OPTIMIZER;
        staged.steps = 2, staged.save = folder;
        one = whole;
        one.begin = 2, one.load = folder;
        run_job(&whole);
        run_job(&staged);
        run_job(&one);
        if (one.loss[2] != whole.loss[2] || one.weights[0] != whole.weights[0])
            fail_msg("%s: other bits than those of a run that was not stopped", updates[k].name);
        test_tree_remove(folder);
    }
}

/* Of a table that two stages have neither has all gradients. */
static void tied_tables_are_refused(void **state)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    (void)state;
    for (int sharing = TM_SHARE_OPTIMIZER; sharing <= TM_SHARE_ALL; sharing++) {
        tm_step_options o = in_stages(&forms[0], job_of(&forms[0], 2, (tm_sharing)sharing, 1, 1)).o;
        tm_step        *step = NULL;
        tm_error        err = { 0 };
        o.shape.tied = true;
        o.layout.mesh = tm_mesh_one();
        o.layout.mesh.degree[TM_AXIS_PP] = o.layout.mesh.degree[TM_AXIS_SHARD] = 2;
        o.layout.mesh.degree[TM_AXIS_EFSDP] = 2;
        assert_int_equal(tm_step_create(&o, &chooser, &step, &err),
                         sharing == TM_SHARE_OPTIMIZER ? TM_OK : TM_UNSUPPORTED);
        if (sharing > TM_SHARE_OPTIMIZER) assert_non_null(strstr(err.text, "a tied table in two stages (model.tied)"));
        tm_step_destroy(step);
    }
    tm_device_close(device);
}

static const struct CMUnitTest tests[] = {
    full_test(shards_have_the_bits_that_they_have_without_stages),
    cmocka_unit_test(casts_may_be_shared),
    cmocka_unit_test(stages_follow_one_rank),
    cmocka_unit_test(a_rank_holds_its_share_of_its_stage),
    cmocka_unit_test(checkpoints_fit_other_layouts),
    cmocka_unit_test(whole_tensors_have_the_bits_of_copies),
    cmocka_unit_test(moments_fit_other_layouts),
    cmocka_unit_test(tied_tables_are_refused),
};

TM_TESTS(tests, NULL, NULL)
