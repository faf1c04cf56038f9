/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters in the stages of a pipeline: the bits of one rank where sums have the same order, no message that nobody
 * needs, checkpoints that fit other layouts. */
#include "support/test.h"
#include "ranks_fixture.h"

#include <sys/stat.h>

enum { LORA, DROPPED, DORA, RANKS, LATE, HEAD, NF4, E4M3, GPT, EXPERTS, TURNED_HEAD, KINDS };
static const char *const kinds[] = { "LoRA", "dropout", "DoRA", "ranks",   "late",          "head",
                                     "NF4",  "E4M3",    "GPT",  "experts", "head with DoRA" };

static const tm_pattern_value ranks_given[] = { { "(wq|wo)", 1 }, { "layers\\.2\\..*", 3 } };
static const tm_pattern_value alphas_given[] = { { "w2", 1 } };
static const int64_t          last_blocks[][2] = { { 3, 3 } };

static const char *targets_of(int kind)
{
    return kind == EXPERTS                       ? "all-linear,experts.gate_up_proj,experts.down_proj"
           : kind == HEAD || kind == TURNED_HEAD ? "wq,lm_head"
                                                 : "all-linear";
}

static tm_step_options options_of(int kind)
{
    tm_step_options o = model_options(kind == GPT ? 1 : kind == EXPERTS ? 2 : 0);
    o.shape.n_layers = 4;
    o.accumulation = 4;
    o.adapters = (tm_adapters){ .rank = 2, .alpha = 4, .base = TM_DTYPE_COUNT, .place = "test", .seed = 1 };
    snprintf(o.adapters.targets, sizeof o.adapters.targets, "%s", targets_of(kind));
    o.adapters.dora = kind == DORA || kind == TURNED_HEAD;
    o.adapters.dropout = kind == DROPPED || kind == HEAD || kind == TURNED_HEAD ? 0.25 : 0;
    o.adapters.base = kind == NF4 ? TM_NF4_BLOCKS : kind == E4M3 ? TM_E4M3_BLOCKS : TM_DTYPE_COUNT;
    if (kind == RANKS || kind == DORA) o.adapters.ranks = ranks_given, o.adapters.n_ranks = 2;
    if (kind == RANKS) o.adapters.alphas = alphas_given, o.adapters.n_alphas = 1;
    if (kind == LATE) o.adapters.layers = last_blocks, o.adapters.n_layers = 1;
    if (kind == HEAD || kind == TURNED_HEAD) o.shape.tied = false;
    if (kind == TURNED_HEAD) o.loss_chunk = 5; /* in chunks whose logits are made again */
    if (kind == NF4 || kind == E4M3) o.shape.dim = 96, o.shape.ffn_dim = 272, o.shape.head_dim = 48;
    return o;
}

typedef struct {
    int               kind, stages, chunks;
    tm_pipeline_order order;
    const int        *first_blocks; /* of each stage; NULL: cut evenly */
} layout;

static job job_of(const layout *l, int steps, double max_norm)
{
    job j = { .o = options_of(l->kind), .replicate = 1, .shard = 1, .steps = steps, .rate = 2e-2 };
    j.max_norm = max_norm;
    j.o.layout.order = l->order;
    j.o.layout.chunks = l->chunks;
    j.o.layout.first_blocks = l->first_blocks;
    return j;
}

static job alone_with(const layout *l, int steps, double max_norm)
{
    job j = job_of(l, steps, max_norm);
    j.whole = 1;
    rank_body(NULL, &j);
    return j;
}

static job in_stages(const layout *l, int steps, double max_norm)
{
    job j = job_of(l, steps, max_norm);
    j.stages = l->stages;
    run_job(&j);
    return j;
}

/* The embedding alone, the blocks, the head alone. */
static const int apart_from_blocks[] = { 0, 0, 4 };

static void stages_have_the_bits_of_one_rank(void **state)
{
    static const layout forms[] = { { 0, 2, 1, TM_PIPELINE_1F1B, NULL },
                                    { 0, 4, 1, TM_PIPELINE_GPIPE, NULL },
                                    { 0, 2, 2, TM_PIPELINE_INTERLEAVED, NULL },
                                    { 0, 2, 2, TM_PIPELINE_INTERLEAVED_ZERO, NULL },
                                    { 0, 2, 2, TM_PIPELINE_ZBV, NULL },
                                    { 0, 2, 2, TM_PIPELINE_DUAL_V, NULL },
                                    { 0, 3, 1, TM_PIPELINE_1F1B, apart_from_blocks } };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
            layout l = forms[i];
            l.kind = kind;
            job one = alone_with(&l, 4, 0), staged = in_stages(&l, 4, 0);
            assert_true(one.loss[3] != one.loss[0]);
            for (int t = 0; t < 4; t++)
                if (one.loss[t] != staged.loss[t])
                    fail_msg("%s, form %d, step %d: loss %.17g alone, %.17g in stages", kinds[kind], (int)i, t + 1,
                             one.loss[t], staged.loss[t]);
            if (one.weights[0] != staged.weights[0]) fail_msg("%s, form %d: other weights", kinds[kind], (int)i);
            if (one.evaluation[0] != staged.evaluation[0]) fail_msg("%s, form %d: evaluation", kinds[kind], (int)i);
        }
}

/* With clipping, whose norm is added by stages; copies and shards of stages. */
static void stages_follow_one_rank(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        layout l = { kind, 2, 1, TM_PIPELINE_1F1B, NULL };
        job    alone = alone_with(&l, MOST_STEPS, 1), staged = in_stages(&l, MOST_STEPS, 1);
        double far = apart(&staged, &alone);
        if (!(far <= 1e-5)) fail_msg("%s: losses are %.3g apart", kinds[kind], far);
        for (int t = 0; t < MOST_STEPS; t++)
            if (!(fabs(staged.norm[t] - alone.norm[t]) <= 1e-4 * alone.norm[t]))
                fail_msg("%s: step %d: norm %.9g, wanted %.9g", kinds[kind], t + 1, staged.norm[t], alone.norm[t]);
        job both = job_of(&l, 8, 1), one = job_of(&l, 8, 1);
        both.stages = both.shard = 2;
        both.o.layout.sharing = TM_SHARE_ALL;
        both.o.accumulation = 2;
        one.whole = 1;
        run_job(&both);
        rank_body(NULL, &one);
        if (!(apart(&both, &one) <= 1e-5))
            fail_msg("%s, shards of stages: %.3g apart", kinds[kind], apart(&both, &one));
    }
}

/* Stages whose matrices ranks divide. */
static void stages_have_divided_matrices(void **state)
{
    static const int some[] = { LORA, DROPPED, RANKS, LATE, NF4 };
    (void)state;
    for (size_t k = 0; k < sizeof some / sizeof some[0]; k++)
        for (int v = 0; v < 2; v++) {
            layout l = { some[k], 2, v ? 2 : 1, v ? TM_PIPELINE_ZBV : TM_PIPELINE_1F1B, NULL };
            job    j = job_of(&l, 8, 1), one = job_of(&l, 8, 1);
            j.stages = j.tensor = 2;
            j.o.shape.n_kv_heads = j.o.shape.n_heads;
            if (l.kind == NF4) j.o.shape.dim = 128, j.o.shape.ffn_dim = 256, j.o.shape.head_dim = 64; /* whole blocks */
            one.o.shape = j.o.shape;
            one.whole = 1;
            rank_body(NULL, &one);
            run_job(&j);
            if (!(apart(&j, &one) <= 1e-5)) fail_msg("%s, %d: losses %.3g apart", kinds[some[k]], v, apart(&j, &one));
        }
}

static void gradients_are_those_of_one_rank(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        layout l = { kind, 2, 2, TM_PIPELINE_ZBV, NULL };
        job    j = job_of(&l, 1, 0);
        if (kind == NF4 || kind == E4M3) continue; /* blocks are not decoded in float64 */
        j.stages = 2;
        check_sgd_step(j, 1, kinds[kind]);
    }
}

/* Two stages save, four go on, then one rank: the bits of a run that nobody stopped. */
static void checkpoints_fit_other_layouts(void **state)
{
    static const int some[] = { DROPPED, DORA, RANKS, LATE, NF4 };
    (void)state;
    for (size_t k = 0; k < sizeof some / sizeof some[0]; k++) {
        layout l = { some[k], 2, 1, TM_PIPELINE_1F1B, NULL };
        char  *first = test_tree_make(), *second = test_tree_make();
        job    whole = alone_with(&l, 6, 0), two = job_of(&l, 2, 0), four = job_of(&l, 4, 0), one = job_of(&l, 6, 0);
        two.stages = 2, two.save = first;
        run_job(&two);
        four.stages = 4, four.begin = 2, four.load = first, four.save = second;
        run_job(&four);
        one.whole = 1, one.begin = 4, one.load = second;
        rank_body(NULL, &one);
        if (one.weights[0] != whole.weights[0] || one.loss[5] != whole.loss[5])
            fail_msg("%s: other bits than those of a run that was not stopped", kinds[some[k]]);
        test_tree_remove(first);
        test_tree_remove(second);
    }
}

typedef struct {
    uint64_t hash[MOST_RANKS];
} hashes;

static void hash_base(const job *j, tm_trainer *trainer)
{
    hashes *to = j->taken;
    int     rank = j->stages ? tm_trainer_step_of(trainer)->options.layout.rank : 0;
    CHECK_OK(tm_trainer_base_hash(trainer, &to->hash[rank], err));
}

/* What a checkpoint knows the base by is the same in all layouts: of a tied table, too, which two stages have. */
static void the_base_has_one_hash(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        layout l = { kind, 2, 1, TM_PIPELINE_1F1B, NULL };
        hashes one = { { 0 } }, two = { { 0 } };
        job    alone = job_of(&l, 1, 0), staged = job_of(&l, 1, 0);
        alone.whole = 1;
        alone.change = staged.change = hash_base;
        alone.taken = &one, staged.taken = &two;
        staged.stages = 2;
        rank_body(NULL, &alone);
        run_job(&staged);
        if (two.hash[0] != one.hash[0] || two.hash[1] != one.hash[0]) fail_msg("%s: hashes differ", kinds[kind]);
        assert_true(one.hash[0] != 0);
    }
}

static size_t count_sends(const tm_step *step, bool backward)
{
    size_t n = 0;
    for (size_t i = 0; i < step->training.n; i++) {
        const tm_program *program = step->training.work[i].program;
        for (size_t x = 0; x < program->count; x++)
            n += program->instructions[x].call.op == &tm_op_send &&
                 (program->instructions[x].node->phase == TM_PHASE_BACKWARD) == backward;
    }
    return n;
}

/* Gradients go as far back as something is trained. */
static void nothing_goes_below_the_first_adapter(void **state)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    (void)state;
    for (int kind = LORA; kind <= LATE; kind += LATE - LORA)
        for (int rank = 0; rank < 4; rank++) {
            tm_step_options o = options_of(kind);
            o.layout.mesh = tm_mesh_one();
            o.layout.mesh.degree[TM_AXIS_PP] = 4;
            o.layout.rank = rank;
            tm_step *step = test_step_plan(&o, &chooser);
            assert_int_equal(count_sends(step, false), rank < 3 ? 4 : 0);
            assert_int_equal(count_sends(step, true), kind == LORA && rank > 0 ? 4 : 0);
            tm_step_destroy(step);
        }
    tm_device_close(device);
}

/* Names are looked for in the whole model, also where a stage has none of them. */
static void names_are_those_of_the_whole_model(void **state)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++)
        for (int rank = 0; rank < 2; rank++) {
            tm_step_options o = options_of(LORA);
            tm_step        *step = NULL;
            tm_error        err = { 0 };
            o.layout.mesh = tm_mesh_one();
            o.layout.mesh.degree[TM_AXIS_PP] = 2;
            o.layout.rank = rank;
            snprintf(o.adapters.targets, sizeof o.adapters.targets, "layers.%d.attention.wq", wrong ? 4 : 3);
            assert_int_equal(tm_step_create(&o, &chooser, &step, &err), wrong ? TM_INVALID : TM_OK);
            if (wrong) assert_non_null(strstr(err.text, "no linear layer is called 'layers.4.attention.wq'"));
            tm_step_destroy(step);
        }
    tm_device_close(device);
}

static const struct CMUnitTest tests[] = {
    full_test(stages_have_the_bits_of_one_rank),
    full_test(stages_follow_one_rank),
    full_test(stages_have_divided_matrices),
    cmocka_unit_test(gradients_are_those_of_one_rank),
    cmocka_unit_test(checkpoints_fit_other_layouts),
    cmocka_unit_test(the_base_has_one_hash),
    cmocka_unit_test(nothing_goes_below_the_first_adapter),
    cmocka_unit_test(names_are_those_of_the_whole_model),
};

TM_TESTS(tests, NULL, NULL)
