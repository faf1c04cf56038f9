/* SPDX-License-Identifier: Apache-2.0 */
/* op/scale.c - y = value x; dx = value dy. x (any shape) -> y (same shape) */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

static void scale_reference(const tm_call *call)
{
    double        value = ((const tm_fill_attr *)call->attr)->value;
    int64_t       count = tm_shape_elements(call->in[0].shape);
    const double *x = call->in[0].data;
    double       *y = call->out[0].data;
    for (int64_t i = 0; i < count; i++) y[i] = value * x[i];
}

static void scale_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id dy = tm_gradient_of(gradient, node->out[0]);
    if (dy == TM_NONE || !tm_gradient_wanted(gradient, node->in[0])) return;
    tm_tensor_id in[TM_MAX_IN] = { dy }, dx[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_scale, node->attr, node->attr_bytes, in, dx, 0);
    tm_gradient_add(gradient, node->in[0], dx[0]);
}

static bool scale_example(int k, tm_example *example)
{
    static const tm_shape cases[] = { { 1, { 1 } },    { 2, { 3, 7 } },  { 3, { 2, 3, 9 } }, { 2, { 65, 8 } },
                                      { 1, { 1030 } }, { 2, { 2, 15 } }, { 2, { 63, 17 } },  { 2, { 200, 768 } } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &(tm_fill_attr){ .value = k % 2 ? -1.7 : 0.3 }, sizeof(tm_fill_attr));
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0, 1);
    return true;
}

const tm_op tm_op_scale = {
    .name = "scale",
    .formula = "y = value x",
    .group = "elementwise",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = tm_infer_same,
    .reference = scale_reference,
    .gradient = scale_gradient,
    .cost = tm_cost_moved,
    .vector = 1,
    .inplace = 1U << 0,
    .cheap = true,
    .example = scale_example,
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
    .attributes = "value",
};
