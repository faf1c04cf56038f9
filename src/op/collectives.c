/* SPDX-License-Identifier: Apache-2.0 */
/* op/collectives.c - what the ranks of a group do together. `axes` names the group (comm/mesh/mesh.h), `ranks` its size
 * R.
 *
 *   all_reduce      y = the sum of x over the ranks; with `largest`: the largest of them, element by element
 *   reduce_scatter  y = rows r n .. (r + 1) n - 1 of the sum of x (R n, ...) over the ranks, on rank r
 *   all_gather      y (R n, ...): x (n, ...) of every rank, one after the other
 *   share           y = x, of which every rank computes something else: the gradient of x is their sum
 *
 * Sums are added in the order of the ranks, ((x0 + x1) + x2) + ..., in float32 for bfloat16 (comm/comm.h), and for
 * float32 with `narrow`: then x is rounded to bfloat16 on each of several ranks, and the sum once more. What one
 * rank computes depends on the others, so a reference exists for a group of one only; sums of several ranks are tested
 * against plain sums. The gradient of a sum that every rank goes on with is what each rank has of it: the loss of the
 * group is the sum of the losses of its ranks, so all_gather and reduce_scatter are each other's transpose. (Or all
 * ranks compute the same loss from the sum: what is said of all_reduce and share holds then, Megatron's g and f.)
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <string.h>

static const tm_group_attr *group_of(const void *attr)
{
    return attr;
}

static const char *all_reduce_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    if (group_of(attr)->ranks < 1) return "a group has at least one rank";
    return tm_shape_fit(&out[0], in[0], "y must have the shape of x");
}

static const char *reduce_scatter_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    tm_shape part = in[0];
    int64_t  ranks = group_of(attr)->ranks;
    if (ranks < 1) return "a group has at least one rank";
    if (part.rank < 1 || part.n[0] % ranks != 0) return "the rows of x must divide by the ranks";
    part.n[0] /= ranks;
    return tm_shape_fit(&out[0], part, "y must have one rank's rows of x");
}

static const char *all_gather_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    tm_shape whole = in[0];
    if (group_of(attr)->ranks < 1) return "a group has at least one rank";
    if (whole.rank < 1) return "x must have rows";
    whole.n[0] *= group_of(attr)->ranks;
    return tm_shape_fit(&out[0], whole, "y must have the rows of all ranks");
}

/* Of a group of one. */
static void alone_reference(const tm_call *call)
{
    int64_t       count = tm_shape_elements(call->in[0].shape);
    const double *x = call->in[0].data;
    TM_ASSERT(group_of(call->attr)->ranks == 1 || call->op == &tm_op_share);
    double *y = tm_call_adds(call, 0) ? tm_call_sums(call, 0) : call->out[0].data;
    for (int64_t i = 0; i < count; i++) y[i] = tm_call_adds(call, 0) ? y[i] + x[i] : x[i];
}

/* `op` takes what flows back to x. */
static void send_back(tm_gradient *gradient, tm_op_id op, const tm_node *node)
{
    tm_tensor_id in[TM_MAX_IN] = { tm_gradient_of(gradient, node->out[0]) };
    if (in[0] == TM_NONE || !tm_gradient_wanted(gradient, node->in[0])) return;
    tm_tensor_id out[TM_MAX_OUT] = { tm_gradient_like(gradient, node->in[0]) };
    tm_gradient_emit(gradient, op, node->attr, node->attr_bytes, in, out, 0);
    tm_gradient_add(gradient, node->in[0], out[0]);
}

static void all_reduce_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_gradient_add(gradient, node->in[0], tm_gradient_of(gradient, node->out[0]));
}

static void reduce_scatter_gradient(tm_gradient *gradient, const tm_node *node)
{
    send_back(gradient, TM_OP_all_gather, node);
}

static void all_gather_gradient(tm_gradient *gradient, const tm_node *node)
{
    send_back(gradient, TM_OP_reduce_scatter, node);
}

static void share_gradient(tm_gradient *gradient, const tm_node *node)
{
    send_back(gradient, TM_OP_all_reduce, node);
}

/* Bytes on the wire as ring algorithms have them: (R - 1) / R of the whole, and twice that for an all-reduce. */
static tm_cost collective_cost(const tm_call *call)
{
    double  ranks = (double)group_of(call->attr)->ranks, x = tm_view_bytes(&call->in[0]);
    tm_cost cost = tm_call_cost(call, 0);
    bool    gathers = call->op == &tm_op_all_gather;
    double  whole = gathers ? x * ranks : x;
    if (group_of(call->attr)->narrow) whole /= 2;
    cost.wire = whole * (ranks - 1) / ranks * (call->op == &tm_op_all_reduce ? 2 : 1);
    cost.vector = gathers ? 0 : (double)tm_shape_elements(call->in[0].shape) * (ranks - 1) / ranks;
    return cost;
}

static bool example_of(tm_role role, int k, tm_example *example)
{
    static const tm_shape cases[] = { { 1, { 1 } }, { 2, { 3, 7 } }, { 1, { 1000 } }, { 3, { 2, 5, 13 } } };
    tm_group_attr         attr;
    memset(&attr, 0, sizeof attr);
    attr.ranks = 1;
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, role, cases[k], 0, 1);
    return true;
}

static bool sum_example(int k, tm_example *example)
{
    return example_of(TM_ROLE_GRADIENT, k, example);
}

static bool gather_example(int k, tm_example *example)
{
    return example_of(TM_ROLE_WEIGHT_COPY, k, example);
}

static bool share_example(int k, tm_example *example)
{
    return example_of(TM_ROLE_ACTIVATION, k, example);
}

const tm_op tm_op_share = {
    .name = "share",
    .formula = "y = x; its gradient is summed over the ranks",
    .group = "communication",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = all_reduce_infer,
    .reference = alone_reference,
    .gradient = share_gradient,
    .cost = tm_cost_moved,
    .inplace = 1U << 0,
    .cheap = true,
    .example = share_example,
    .rounding = tm_rounding_f64,
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
    .attributes = "axes, ranks, what",
};

const tm_op tm_op_all_reduce = {
    .name = "all_reduce",
    .formula = "y = sum of x over the ranks, or the largest of them",
    .group = "communication",
    .stream = TM_ON_COMMUNICATION,
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_PARTIAL },
    .infer = all_reduce_infer,
    .reference = alone_reference,
    .gradient = all_reduce_gradient,
    .cost = collective_cost,
    .any_dtype_in = 1U << 0,
    .inplace = 1U << 0,
    .example = sum_example,
    .rounding = tm_rounding_f64,
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
    .attributes = "axes, ranks, what, narrow, largest",
};

const tm_op tm_op_reduce_scatter = {
    .name = "reduce_scatter",
    .formula = "y = this rank's rows of the sum of x over the ranks",
    .group = "communication",
    .stream = TM_ON_COMMUNICATION,
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_GRADIENT },
    .infer = reduce_scatter_infer,
    .reference = alone_reference,
    .gradient = reduce_scatter_gradient,
    .cost = collective_cost,
    .any_dtype_in = 1U << 0,
    .example = sum_example,
    .rounding = tm_rounding_f64,
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
    .attributes = "axes, ranks, what, narrow",
};

const tm_op tm_op_all_gather = {
    .name = "all_gather",
    .formula = "y = the rows of x of all ranks, in their order",
    .group = "communication",
    .stream = TM_ON_COMMUNICATION,
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_WEIGHT_COPY },
    .infer = all_gather_infer,
    .reference = alone_reference,
    .gradient = all_gather_gradient,
    .cost = collective_cost,
    .any_dtype_in = 1U << 0,
    .example = gather_example,
    .rounding = tm_rounding_f64,
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
    .attributes = "axes, ranks, what",
};
