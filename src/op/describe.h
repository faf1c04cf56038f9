/* SPDX-License-Identifier: Apache-2.0 */
/* op/describe.h - the words op descriptions are written with. Private to this room. */
#ifndef TM_OP_DESCRIBE_H
#define TM_OP_DESCRIBE_H

#include "op/op.h"

/* An output that the caller gave must have the shape `wanted`, else `reason` comes back; one not given gets it. */
const char *tm_shape_fit(tm_shape *out, tm_shape wanted, const char *reason);
/* The same for an optional output: one not given stays absent. */
const char *tm_shape_fit_optional(tm_shape *out, tm_shape wanted, const char *reason);

static inline bool tm_shape_is_matrix(tm_shape shape, int64_t rows, int64_t columns)
{
    return tm_shape_equal(shape, tm_shape_2(rows, columns));
}
static inline bool tm_shape_is_vector(tm_shape shape, int64_t n)
{
    return tm_shape_equal(shape, tm_shape_1(n));
}
static inline bool tm_shape_present(tm_shape shape)
{
    return shape.rank >= 0;
}

/* Rows of a view (all axes but the last), and where row r of a float64 view begins. */
int64_t               tm_view_rows_of(const tm_view *view);
static inline double *tm_view_row(const tm_view *view, int64_t r)
{
    return (double *)view->data + r * tm_view_ld(view);
}

/* Bytes of a tensor; 0 when it is absent. */
double tm_view_bytes(const tm_view *view);
/* `flops`, the op's vector work, and the bytes of all inputs and outputs, outputs added to counted twice (read and
 * written). */
tm_cost tm_call_cost(const tm_call *call, double flops);

/* A row's `cost`: no FLOPs, the vector work of its row, and the bytes. */
tm_cost tm_cost_moved(const tm_call *call);

/* A row's `infer`: x -> y and dy, x -> dx of one shape; gu (N, 2F) -> y (N, F) and dy (N, F), gu (N, 2F) -> dgu. */
const char *tm_infer_same(const tm_shape *in, const void *attr, tm_shape *out);
const char *tm_infer_same_grad(const tm_shape *in, const void *attr, tm_shape *out);
const char *tm_infer_gated(const tm_shape *in, const void *attr, tm_shape *out);
const char *tm_infer_gated_grad(const tm_shape *in, const void *attr, tm_shape *out);

/* A row's `gradient` of an op with one input: `op`, which has the same attributes, makes dx of dy and x. */
void tm_gradient_pair(struct tm_gradient *gradient, const struct tm_node *node, tm_op_id op);

static inline bool tm_call_adds(const tm_call *call, int k)
{
    return (call->accumulate >> k & 1U) != 0;
}
/* Roundings of an output that is formed in float64 or by one operation; of a sum of `terms` terms in float32. */
tm_rounding               tm_rounding_f64(const tm_call *call, int k);
static inline tm_rounding tm_rounding_sum(int64_t terms)
{
    return (tm_rounding){ .terms = (double)terms, .stores = 1 };
}

/* Output k as doubles, zeroed unless the call adds to it: the place for a reference kernel's sums. NULL when absent. */
double *tm_call_sums(const tm_call *call, int k);

/* A case of an op's `example`: all inputs absent, all outputs left to `infer`. */
void tm_example_begin(tm_example *example, const void *attr, size_t attr_bytes);
/* Input k: values offset + scale * normal. */
void tm_example_in(tm_example *example, int k, tm_role role, tm_shape shape, double offset, double scale);
/* Input k: integers in [0, limit). */
void tm_example_int(tm_example *example, int k, tm_shape shape, int64_t limit);
/* Input k: where the rows of each expert begin, among `rows` (tm_whole); (experts + 1). */
void tm_example_offsets(tm_example *example, int k, int64_t experts, int64_t rows);
/* Input k: a permutation of 0 .. n - 1, or its inverse. */
void tm_example_order(tm_example *example, int k, int64_t n, bool inverse);

#define TM_COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

#endif
