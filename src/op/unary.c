/* SPDX-License-Identifier: Apache-2.0 */
/* op/unary.c - what ops of one input share: shapes and the form of their gradient rule. */
#include "graph/gradient.h"
#include "op/describe.h"

const char *tm_infer_same(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    return tm_shape_fit(&out[0], in[0], "y must have the shape of x");
}

const char *tm_infer_same_grad(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (!tm_shape_equal(in[0], in[1])) return "both inputs must have one shape";
    return tm_shape_fit(&out[0], in[1], "dx must have the shape of the inputs");
}

static const char *refuse_gated(tm_shape gu)
{
    bool paired = gu.rank == 2 && gu.n[1] % 2 == 0;
    return paired ? NULL : "gate and up must have two axes and an even number of columns";
}

const char *tm_infer_gated(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why = refuse_gated(in[0]);
    (void)attr;
    if (why) return why;
    return tm_shape_fit(&out[0], tm_shape_2(in[0].n[0], in[0].n[1] / 2), "y must have half the columns of gate and up");
}

const char *tm_infer_gated_grad(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why = refuse_gated(in[1]);
    (void)attr;
    if (why) return why;
    if (!tm_shape_is_matrix(in[0], in[1].n[0], in[1].n[1] / 2)) return "dy must have half the columns of gate and up";
    return tm_shape_fit(&out[0], in[1], "the gradient must have the shape of gate and up");
}

void tm_gradient_pair(tm_gradient *gradient, const tm_node *node, tm_op_id op)
{
    tm_tensor_id x = node->in[0], dy = tm_gradient_of(gradient, node->out[0]);
    if (dy == TM_NONE || !tm_gradient_wanted(gradient, x)) return;
    tm_tensor_id in[TM_MAX_IN] = { dy, x }, out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, op, node->attr, node->attr_bytes, in, out, 0);
    tm_gradient_add(gradient, x, out[0]);
}
