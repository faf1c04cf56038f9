/* SPDX-License-Identifier: Apache-2.0 */
/* op/join.c - two matrices become one, and back: rows sample by sample, or columns.
 *
 *   samples B > 0:  a (B R, C), b (B S, C) -> y (B (R + S), C)    of each sample the rows of a, then those of b
 *   samples 0:      a (N, C), b (N, D) -> y (N, C + D)            of each row the columns of a, then those of b
 *   split: y -> a, b;  the gradient of one is the other
 *
 * The text of a sample stands before its image this way, and a feed-forward layer beside attention. An operand of join
 * that is absent stands for zeros: the gradient of a part that nothing reads.
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

/* Shape of part k of y; of y itself (k = 2). `other`: the axis that they share. */
static tm_shape shape_of(const tm_join_attr *attr, int k, int64_t other)
{
    int64_t n = k == 0 ? attr->first : k == 1 ? attr->second : attr->first + attr->second;
    return attr->samples ? tm_shape_2(attr->samples * n, other) : tm_shape_2(other, n);
}
static int64_t other_of(tm_shape shape, const tm_join_attr *attr)
{
    return shape.n[attr->samples ? 1 : 0];
}
static bool attributes_fit(const tm_join_attr *attr)
{
    return attr->samples >= 0 && attr->first >= 1 && attr->second >= 1;
}

static const char *join_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_join_attr *attr = attr_;
    int                 there = tm_shape_present(in[0]) ? 0 : 1;
    if (!attributes_fit(attr)) return "samples must not be negative, and neither part empty";
    if (!tm_shape_present(in[there])) return "one of the parts must be there";
    if (in[there].rank != 2) return "the parts must have two axes (rows, columns)";
    int64_t other = other_of(in[there], attr);
    for (int k = 0; k < 2; k++)
        if (tm_shape_present(in[k]) && !tm_shape_equal(in[k], shape_of(attr, k, other)))
            return "a part does not have its rows or columns";
    return tm_shape_fit(&out[0], shape_of(attr, 2, other), "y must have the rows or columns of both parts");
}

/* Elements of a run of part k, which follow one another in y. */
static int64_t run_of(const tm_view *y, const tm_join_attr *attr, int k)
{
    return (k == 0 ? attr->first : attr->second) * (attr->samples ? y->shape.n[1] : 1);
}
static int64_t runs_in(const tm_view *y, const tm_join_attr *attr)
{
    return attr->samples ? attr->samples : y->shape.n[0];
}

static void join_reference(const tm_call *call)
{
    double *y = call->out[0].data;
    for (int64_t r = 0, n = runs_in(&call->out[0], call->attr); r < n; r++)
        for (int k = 0; k < 2; k++) {
            const double *part = call->in[k].data;
            int64_t       run = run_of(&call->out[0], call->attr, k);
            for (int64_t i = 0; i < run; i++) *y++ = part ? part[r * run + i] : 0;
        }
}

static void join_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id dy = tm_gradient_of(gradient, node->out[0]);
    if (dy == TM_NONE) return;
    tm_tensor_id in[TM_MAX_IN] = { dy }, out[TM_MAX_OUT] = { TM_NONE, TM_NONE };
    tm_gradient_emit(gradient, TM_OP_split, node->attr, node->attr_bytes, in, out, 0);
    for (int k = 0; k < 2; k++)
        if (tm_gradient_wanted(gradient, node->in[k])) tm_gradient_add(gradient, node->in[k], out[k]);
}

static const struct {
    tm_join_attr attr;
    int64_t      other;  /* of the axis that the parts share */
    int          absent; /* join: this part, counted from 1 */
} cases[] = { { { 1, 1, 1 }, 1, 0 },    { { 0, 1, 1 }, 1, 0 },   { { 3, 2, 5 }, 7, 0 },     { { 0, 3, 8 }, 9, 0 },
              { { 2, 5, 3 }, 4, 2 },    { { 2, 64, 9 }, 65, 1 }, { { 0, 130, 17 }, 65, 0 }, { { 4, 33, 31 }, 48, 0 },
              { { 0, 16, 24 }, 40, 0 }, { { 0, 3, 8 }, 9, 1 },   { { 0, 16, 8 }, 20, 2 } };

static bool join_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &cases[k].attr, sizeof cases[k].attr);
    for (int part = 0; part < 2; part++)
        if (cases[k].absent != part + 1)
            tm_example_in(example, part, TM_ROLE_ACTIVATION, shape_of(&cases[k].attr, part, cases[k].other), 0, 1);
    return true;
}

const tm_op tm_op_join = {
    .name = "join",
    .formula = "y = a, then b, of each sample's rows (samples > 0) or of each row's columns",
    .group = "copies",
    .n_in = 2,
    .n_out = 1,
    .optional_in = 1U << 0 | 1U << 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = join_infer,
    .reference = join_reference,
    .gradient = join_gradient,
    .cost = tm_cost_moved,
    .cheap = true,
    .example = join_example,
    .rounding = tm_rounding_f64,
    .in_name = { "[a (...)]", "[b (...)]" },
    .out_name = { "y (...)" },
    .attributes = "samples, first, second",
};

static const char *split_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_join_attr *attr = attr_;
    const char         *why;
    if (!attributes_fit(attr)) return "samples must not be negative, and neither part empty";
    if (in[0].rank != 2) return "the whole must have two axes (rows, columns)";
    int64_t other = other_of(in[0], attr);
    if (!tm_shape_equal(in[0], shape_of(attr, 2, other)))
        return "the whole must have the rows or columns of both parts";
    if ((why = tm_shape_fit(&out[0], shape_of(attr, 0, other), "a must have the first rows or columns"))) return why;
    return tm_shape_fit(&out[1], shape_of(attr, 1, other), "b must have the other rows or columns");
}

static void split_reference(const tm_call *call)
{
    const double *y = call->in[0].data;
    for (int64_t r = 0, n = runs_in(&call->in[0], call->attr); r < n; r++)
        for (int k = 0; k < 2; k++) {
            int64_t run = run_of(&call->in[0], call->attr, k);
            for (int64_t i = 0; i < run; i++) ((double *)call->out[k].data)[r * run + i] = *y++;
        }
}

static void split_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id in[TM_MAX_IN] = { tm_gradient_of(gradient, node->out[0]), tm_gradient_of(gradient, node->out[1]) };
    if (!tm_gradient_wanted(gradient, node->in[0]) || (in[0] == TM_NONE && in[1] == TM_NONE)) return;
    tm_tensor_id out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_join, node->attr, node->attr_bytes, in, out, 0);
    tm_gradient_add(gradient, node->in[0], out[0]);
}

static bool split_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &cases[k].attr, sizeof cases[k].attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, shape_of(&cases[k].attr, 2, cases[k].other), 0, 1);
    return true;
}

const tm_op tm_op_split = {
    .name = "split",
    .formula = "a, b = the parts that join puts together",
    .group = "copies",
    .n_in = 1,
    .n_out = 2,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_ACTIVATION },
    .infer = split_infer,
    .reference = split_reference,
    .gradient = split_gradient,
    .cost = tm_cost_moved,
    .example = split_example,
    .rounding = tm_rounding_f64,
    .in_name = { "y (...)" },
    .out_name = { "a (...)", "b (...)" },
    .attributes = "samples, first, second",
};
