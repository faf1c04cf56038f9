/* SPDX-License-Identifier: Apache-2.0 */
/* op/pass_on.c - y = x of the rank before this one in the group, the last one's on rank 0: one step round a ring.
 *
 * What one rank gets depends on another, so a reference exists for a group of one only. Not differentiated: who passes
 * keys on passes their gradients on, too (graph/passes/ring.c).
 */
#include "base/status.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <string.h>

static const char *pass_on_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    if (((const tm_group_attr *)attr)->ranks < 1) return "a group has at least one rank";
    return tm_shape_fit(&out[0], in[0], "y must have the shape of x");
}

/* Of a group of one. */
static void pass_on_reference(const tm_call *call)
{
    int64_t       count = tm_shape_elements(call->in[0].shape);
    const double *x = call->in[0].data;
    double       *y = call->out[0].data;
    TM_ASSERT(((const tm_group_attr *)call->attr)->ranks == 1);
    for (int64_t i = 0; i < count; i++) y[i] = x[i];
}

static tm_cost pass_on_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 0);
    if (((const tm_group_attr *)call->attr)->ranks > 1) cost.wire = tm_view_bytes(&call->in[0]);
    return cost;
}

static bool pass_on_example(int k, tm_example *example)
{
    static const tm_shape cases[] = { { 2, { 1, 1 } }, { 2, { 3, 7 } }, { 2, { 1, 1000 } }, { 2, { 10, 13 } } };
    tm_group_attr         attr;
    memset(&attr, 0, sizeof attr);
    attr.ranks = 1;
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0, 1);
    return true;
}

const tm_op tm_op_pass_on = {
    .name = "pass_on",
    .formula = "y = x of the rank before",
    .group = "communication",
    .stream = TM_ON_COMMUNICATION,
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = pass_on_infer,
    .reference = pass_on_reference,
    .cost = pass_on_cost,
    .example = pass_on_example,
    .rounding = tm_rounding_f64,
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
    .attributes = "axes, ranks, what",
};
