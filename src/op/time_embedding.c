/* SPDX-License-Identifier: Apache-2.0 */
/* op/time_embedding.c - sinusoids of a time in [0, 1] (Vaswani et al. 2017, 3.5; scaled as in diffusion models).
 *
 *   y_i = cos(1000 t w_i),  y_(D/2 + i) = sin(1000 t w_i),  w_i = 10000^(-2 i / D),  i < D/2
 *
 * t (B, 1), read in its stored format -> y (B, D)
 */
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

static const char *time_embedding_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_time_attr *attr = attr_;
    if (attr->dim < 2 || attr->dim % 2 != 0) return "the width must be even and positive";
    if (in[0].rank != 2 || in[0].n[1] != 1) return "t must have the shape (samples, 1)";
    return tm_shape_fit(&out[0], tm_shape_2(in[0].n[0], attr->dim), "y must have the width for each sample");
}

static void time_embedding_reference(const tm_call *call)
{
    const tm_time_attr *attr = call->attr;
    int64_t             half = attr->dim / 2;
    for (int64_t b = 0; b < call->in[0].shape.n[0]; b++) {
        double *y = (double *)call->out[0].data + b * attr->dim, t = ((const double *)call->in[0].data)[b];
        for (int64_t i = 0; i < half; i++) {
            double angle = 1000 * t * pow(10000, -(double)i / (double)half);
            y[i] = cos(angle);
            y[half + i] = sin(angle);
        }
    }
}

static tm_cost time_embedding_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 0);
    cost.vector = 2 * (double)tm_shape_elements(call->out[0].shape);
    return cost;
}

static bool time_embedding_example(int k, tm_example *example)
{
    static const int64_t cases[][2] = { { 1, 2 }, { 3, 8 }, { 5, 34 }, { 9, 256 } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_time_attr attr = { .dim = cases[k][1] };
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_STATISTIC, tm_shape_2(cases[k][0], 1), 0.5, 0.2);
    return true;
}

const tm_op tm_op_time_embedding = {
    .name = "time_embedding",
    .formula = "y = cos(1000 t w_i), then sin of the same, w_i = 10000^(-2 i / D)",
    .group = "embedding",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = time_embedding_infer,
    .reference = time_embedding_reference,
    .cost = time_embedding_cost,
    .any_dtype_in = 1U << 0,
    .example = time_embedding_example,
    .rounding = tm_rounding_f64,
    .in_name = { "t (B, 1)" },
    .out_name = { "y (B, D)" },
    .attributes = "dim",
};
