/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that are divided among ranks: one of them may get all rows; an adapter that experts share. What else ranks
 * with experts train: tests/differential. */
#include "support/test.h"
#include "ranks_fixture.h"

static tm_step_options options_of(int kind)
{
    tm_step_options o = mixture_options(kind);
    o.layout.sharing = TM_SHARE_ALL;
    o.layout.reshard = true;
    o.layout.prefetch = 1;
    return o;
}

static job run_divided(tm_step_options o, int experts, double capacity)
{
    job j = ranks_job(o, 1, 2, TM_SHARE_ALL, 5);
    j.experts = experts;
    j.o.layout.expert_capacity = capacity;
    run_job(&j);
    return j;
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
        tm_step_options o = options_of(MIXTRAL);
        o.shape.moe.top_k = 1;
        o.shape.moe.bias_rate = 0;
        job together = ranks_job(o, 1, 4, TM_SHARE_ALL, 5), alone = together;
        together.experts = 4, alone.shard = 1, alone.whole = 4;
        together.change = alone.change = all_to_the_last;
        together.o.layout.expert_capacity = c ? 0.7 : 2;
        rank_body(NULL, &alone);
        run_job(&together);
        assert_true(apart(&together, &alone) <= 1e-5);
    }
}

/* Rows that go in turn need no second round. */
TEST(forced_balance_needs_one_round)
{
    tm_step_options o = options_of(MIXTRAL);
    tm_parallel     p = { .experts = { .axes = 1U << TM_AXIS_EP, .ranks = 2 }, .expert_capacity = 1 };
    assert_int_equal(tm_moe_exchange(&o.shape, &p, 16).rounds, 2);
    o.shape.moe.uniform = true;
    assert_int_equal(tm_moe_exchange(&o.shape, &p, 16).rounds, 1);
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
    job among = run_divided(common, 1, 0), apart_from = run_divided(common, 2, 0.6);
    assert_true(apart(&among, &all) <= 1e-5);
    assert_true(apart(&apart_from, &all) > 1e-7 && apart(&apart_from, &all) < 1e-2);
}
