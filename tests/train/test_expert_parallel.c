/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that are divided among ranks: one of them may get all rows. What else ranks with experts train:
 * tests/differential. */
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
