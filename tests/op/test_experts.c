/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of a mixture of experts, reference kernels: numbers worked out by hand, and what must hold for any routing.
 */
#include "../support/execute.h"
#include "base/random.h"
#include "op/attrs.h"

#include <math.h>
#include <string.h>

#include "support/test.h"

static void expect(const char *what, const double *have, const double *want, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(have[i] - want[i]) <= 1e-14 * (1 + fabs(want[i]))))
            fail_msg("%s: value %d is %.17g, wanted %.17g", what, i, have[i], want[i]);
}
#define EXPECT(have, ...) expect(#have, have, (const double[]){ __VA_ARGS__ }, (int)(sizeof(have) / sizeof((have)[0])))

static void expect_whole(const char *what, const int32_t *have, const int32_t *want, int n)
{
    for (int i = 0; i < n; i++)
        if (have[i] != want[i]) fail_msg("%s: value %d is %d, wanted %d", what, i, have[i], want[i]);
}
#define EXPECT_WHOLE(have, ...)                                                                                        \
    expect_whole(#have, have, (const int32_t[]){ __VA_ARGS__ }, (int)(sizeof(have) / sizeof((have)[0])))

static tm_call call_of(const tm_op *op, const void *attr)
{
    tm_call call = { .op = op, .attr = attr, .threads = 1 };
    for (int k = 0; k < TM_MAX_IN; k++) call.in[k] = tm_view_absent();
    for (int k = 0; k < TM_MAX_OUT; k++) call.out[k] = tm_view_absent();
    return call;
}

/* Routes rows of E logits; ids and weights are of size rows x k. */
static void route(const tm_route_attr *attr, int rows, int experts, const double *logits, const double *bias,
                  int32_t *ids, double *weights)
{
    double  scores[64];
    tm_call call = call_of(&tm_op_route, attr);
    call.in[0] = tm_view_f64(tm_shape_2(rows, experts), logits);
    if (bias) call.in[1] = tm_view_f64(tm_shape_1(experts), bias);
    call.out[0] = tm_view_f64(tm_shape_2(rows, attr->top_k), weights);
    call.out[1] = tm_view_i32(tm_shape_2(rows, attr->top_k), ids);
    call.out[2] = tm_view_f64(tm_shape_2(rows, experts), scores);
    call.op->reference(&call);
}

TEST(groups_limit_the_choice)
{
    /* sigmoid scores: 0.9 0.1 | 0.5 0.6 | 0.8 0.2 | 0.3 0.3 */
    const double  s[] = { 0.9, 0.1, 0.5, 0.6, 0.8, 0.2, 0.3, 0.3 };
    double        logits[8], weights[2];
    int32_t       ids[2];
    tm_route_attr attr = {
        .top_k = 2, .scale = 1, .score = TM_SCORE_SIGMOID, .groups = 4, .top_groups = 1, .group_best = 2
    };
    for (int e = 0; e < 8; e++) logits[e] = log(s[e] / (1 - s[e]));
    route(&attr, 1, 8, logits, NULL, ids, weights);
    EXPECT_WHOLE(ids, 3, 2); /* 1.1 is the largest sum of two */
    attr.group_best = 1;
    route(&attr, 1, 8, logits, NULL, ids, weights);
    EXPECT_WHOLE(ids, 0, 1); /* 0.9 the largest single one */
    attr.top_groups = 2;
    route(&attr, 1, 8, logits, NULL, ids, weights);
    EXPECT_WHOLE(ids, 0, 4);
}

TEST(uniform_goes_round)
{
    double        logits[15], weights[6];
    int32_t       ids[6];
    tm_route_attr attr = { .top_k = 2, .scale = 1, .uniform = 1 };
    for (int i = 0; i < 15; i++) logits[i] = i % 5 == 4 ? log(4) : 0; /* the last expert: 1/2 */
    route(&attr, 3, 5, logits, NULL, ids, weights);
    EXPECT_WHOLE(ids, 0, 1, 2, 3, 4, 0);
    EXPECT(weights, 0.125, 0.125, 0.125, 0.125, 0.5, 0.125); /* the true scores */
}

TEST(dispatch_is_stable)
{
    const int32_t    ids[] = { 2, 0, 2, 1, 0, 2 };
    int32_t          offsets[5], order[6], inverse[6];
    tm_dispatch_attr attr = { .experts = 4 };
    tm_call          call = call_of(&tm_op_dispatch, &attr);
    call.in[0] = tm_view_i32(tm_shape_2(3, 2), ids);
    call.out[0] = tm_view_i32(tm_shape_1(5), offsets);
    call.out[1] = tm_view_i32(tm_shape_1(6), order);
    call.out[2] = tm_view_i32(tm_shape_1(6), inverse);
    call.op->reference(&call);
    EXPECT_WHOLE(offsets, 0, 2, 3, 6, 6); /* the last has none */
    EXPECT_WHOLE(order, 1, 4, 3, 0, 2, 5);
    EXPECT_WHOLE(inverse, 3, 0, 4, 2, 1, 5);
    double  counts[4] = { 10, 10, 10, 10 };
    tm_call count = call_of(&tm_op_expert_counts, NULL);
    count.in[0] = tm_view_i32(tm_shape_1(5), offsets);
    count.out[0] = tm_view_f64(tm_shape_1(4), counts);
    count.accumulate = 1;
    count.op->reference(&count);
    EXPECT(counts, 12, 11, 13, 10);
}

TEST(attributes_are_checked)
{
    static const struct {
        tm_route_attr attr;
        const char   *why;
    } wrong[] = {
        { { .top_k = 9 }, "at most to all" },
        { { .top_k = 2, .groups = 3, .top_groups = 1, .group_best = 1 }, "multiple of the groups" },
        { { .top_k = 2, .groups = 4, .top_groups = 1, .group_best = 3 }, "of all at most" },
        { { .top_k = 2, .groups = 4, .top_groups = 5, .group_best = 1 }, "all at most" },
        { { .top_k = 3, .groups = 4, .top_groups = 1, .group_best = 1 }, "fewer experts are left" },
    };
    tm_shape in[TM_MAX_IN] = { { 2, { 4, 8 } }, { -1, { 0 } } }, out[TM_MAX_OUT];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        for (int k = 0; k < TM_MAX_OUT; k++) out[k].rank = -1;
        const char *why = tm_op_route.infer(in, &wrong[i].attr, out);
        if (!why || !strstr(why, wrong[i].why)) fail_msg("case %d: '%s'", (int)i, why ? why : "no reason");
    }
    in[0] = tm_shape_2(6, 4), in[1] = tm_shape_2(6, 2);
    const char *why = tm_op_balance_loss.infer(in, &(tm_balance_attr){ .seq = 4, .top_k = 2 }, out);
    assert_true(why && strstr(why, "multiple of the sequence"));
}

TEST(bias_follows_the_load)
{
    const double        counts[] = { 1, 2, 9, 4 }, before[] = { 1, 1, 1, 1 };
    double              bias[4];
    tm_expert_bias_attr attr = { .rate = 0.5 };
    tm_call             call = call_of(&tm_op_expert_bias, &attr);
    call.in[0] = tm_view_f64(tm_shape_1(4), counts);
    call.in[1] = tm_view_f64(tm_shape_1(4), before);
    call.out[0] = tm_view_f64(tm_shape_1(4), bias);
    call.op->reference(&call);
    EXPECT(bias, 1.375, 1.375, 0.375, 0.875); /* mean 4: + + - 0, less their mean of a quarter */
}
