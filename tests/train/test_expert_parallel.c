/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that are divided among ranks: rows are sent to them and back, whoever gets how many, in as many rounds as it
 * takes; an adapter that experts share. What else ranks with experts train: tests/differential. */
#include "support/test.h"
#include "ranks_fixture.h"

static const char *const names[MIXTURES] = { "mixtral", "deepseek", "gpt_oss", "qwen3_moe" };

static tm_step_options options_of(int kind)
{
    tm_step_options o = mixture_options(kind);
    o.layout.sharing = TM_SHARE_ALL;
    o.layout.reshard = true;
    o.layout.prefetch = 1;
    return o;
}

typedef struct {
    int        replicate, shard, experts;
    tm_sharing sharing;
    double     capacity;
} divided;

static job run_divided(tm_step_options o, divided d, int steps)
{
    job j = { .o = o,
              .replicate = d.replicate,
              .shard = d.shard,
              .experts = d.experts,
              .steps = steps,
              .rate = 2e-3,
              .max_norm = 1 };
    j.o.layout.sharing = d.sharing;
    j.o.layout.expert_capacity = d.capacity;
    run_job(&j);
    return j;
}

static void check_close(const job *have, const job *want, const char *name, divided d, double bound)
{
    double far = apart(have, want);
    for (int t = 0; t < want->steps; t++) far = fmax(far, fabs(have->norm[t] - want->norm[t]) / want->norm[t] / 10);
    print_message("# %s, %d x %d ranks, experts / %d, capacity %g: %.3g apart\n", name, d.replicate, d.shard, d.experts,
                  d.capacity, far);
    if (!(far <= bound))
        fail_msg("%s, %d x %d ranks, experts / %d, %g: losses or norms are %.3g apart", name, d.replicate, d.shard,
                 d.experts, d.capacity, far);
}

/* As many rounds as it takes, with or without recomputation, with several micro-batches. */
TEST(rounds_change_nothing_but_their_number)
{
    static const double capacities[] = { 0, 2, 1, 0.4 };
    for (int variant = 0; variant < 3; variant++) {
        tm_step_options o = options_of(variant == 2 ? DEEPSEEK : MIXTRAL);
        if (variant == 1) o.recompute = (tm_recompute){ .cheap = true };
        if (variant == 2) o.recompute = (tm_recompute){ .every_n = 1 };
        o.accumulation = variant == 0 ? 2 : 1;
        job    alone = run_alone(o, 4, 1, 4);
        size_t bytes[4];
        for (int c = 0; c < 4; c++) {
            divided d = { 1, 4, 4, TM_SHARE_ALL, capacities[c] };
            job     together = run_divided(o, d, 4);
            check_close(&together, &alone, names[variant == 2], d, 1e-5);
            bytes[c] = together.arena[0];
        }
        assert_true(bytes[2] < bytes[1] && bytes[1] <= bytes[0]); /* less room, less memory */
    }
}

/* Every row to the same experts: the bias of the router decides. */
static void all_to_the_last(const job *j, tm_trainer *trainer)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *tensor = &step->graph->tensors[i];
        float            bias[16] = { 0 };
        if (tensor->role != TM_ROLE_STATE || !strstr(tensor->name, "expert_bias")) continue;
        int64_t n = tm_shape_elements(tensor->shape);
        CHECK(n <= 16);
        bias[n - 1] = 100;
        CHECK_OK(tm_trainer_write(trainer, (tm_tensor_id)i, 0, bias, (size_t)n * sizeof *bias, err));
    }
    (void)j;
}

TEST(one_expert_may_get_all_and_others_none)
{
    for (int c = 0; c < 2; c++) {
        divided         d = { 1, 4, 4, TM_SHARE_ALL, c ? 0.7 : 2 };
        tm_step_options o = options_of(MIXTRAL);
        o.shape.moe.top_k = 1;
        o.shape.moe.bias_rate = 0;
        job alone = { .o = o, .replicate = 1, .shard = 1, .steps = 5, .whole = 4, .change = all_to_the_last };
        job together = { .o = o, .replicate = 1, .shard = 4, .experts = 4, .steps = 5, .change = all_to_the_last };
        alone.rate = together.rate = 2e-3, alone.max_norm = together.max_norm = 1;
        together.o.layout.expert_capacity = d.capacity;
        rank_body(NULL, &alone);
        run_job(&together);
        check_close(&together, &alone, "all to one expert", d, 1e-5);
    }
}

TEST(forced_balance_needs_one_round)
{
    tm_step_options o = options_of(MIXTRAL);
    o.shape.moe.uniform = true;
    divided d = { 1, 2, 2, TM_SHARE_ALL, 1 };
    job     alone = run_alone(o, 2, 1, 4), together = run_divided(o, d, 4);
    check_close(&together, &alone, "uniform", d, 1e-5);
    tm_parallel p = { .experts = { .axes = 1U << TM_AXIS_EP, .ranks = 2 }, .expert_capacity = 1 };
    assert_int_equal(tm_moe_exchange(&o.shape, &p, 16).rounds, 1);
    o.shape.moe.uniform = false;
    assert_int_equal(tm_moe_exchange(&o.shape, &p, 16).rounds, 2);
}

/* An adapter that all experts share: of one expert it is that expert's own, to the bit; of several it learns, and
 * follows one rank among ranks that share all. Ranks that divide experts have one each. */
TEST(experts_share_an_adapter)
{
    const char     *files = "experts.gate_up_proj,experts.down_proj";
    tm_step_options own = options_of(MIXTRAL), common;
    own.adapters = (tm_adapters){ .rank = 4, .alpha = 8, .base = TM_DTYPE_COUNT, .place = "test", .seed = 1 };
    common = own;
    snprintf(own.adapters.targets, sizeof own.adapters.targets, "%s", files);
    snprintf(common.adapters.targets, sizeof common.adapters.targets, "w13,w2");
    common.adapters.shared = common.adapters.by_matrix = true;
    job all = run_alone(common, 2, 1, 5);
    own.shape.moe.experts = own.shape.moe.top_k = common.shape.moe.experts = common.shape.moe.top_k = 1;
    job a = run_alone(own, 1, 1, 4), b = run_alone(common, 1, 1, 4);
    for (int t = 0; t < 4; t++) assert_memory_equal(&a.loss[t], &b.loss[t], sizeof a.loss[t]);
    common.shape.moe = own.shape.moe = options_of(MIXTRAL).shape.moe;
    job among = run_divided(common, (divided){ 1, 2, 1, TM_SHARE_ALL, 0 }, 5);
    check_close(&among, &all, "shared", (divided){ 1, 2, 1, TM_SHARE_ALL, 0 }, 1e-5);
    job apart_from = run_divided(common, (divided){ 1, 2, 2, TM_SHARE_ALL, 0.6 }, 5);
    assert_true(apart(&apart_from, &all) > 1e-7 && apart(&apart_from, &all) < 1e-2);
}
