/* SPDX-License-Identifier: Apache-2.0 */
/* op/swiglu.c - gated linear unit with the SiLU (Shazeer 2020, eq. 5), from a fused row of gate and up.
 *
 *   y  = silu(g) u,  silu(g) = g s,  s = 1 / (1 + exp(-g))
 *   dg = dy u s (1 + g (1 - s)),  du = dy silu(g)
 *
 * gu (N, 2F): gate, up -> y (N, F)
 */
#include "graph/gradient.h"
#include "op/describe.h"

#include <math.h>

static void swiglu_reference(const tm_call *call)
{
    int64_t rows = call->out[0].shape.n[0], width = call->out[0].shape.n[1];
    for (int64_t n = 0; n < rows; n++) {
        const double *gate = (const double *)call->in[0].data + n * 2 * width, *up = gate + width;
        double       *y = (double *)call->out[0].data + n * width;
        for (int64_t f = 0; f < width; f++) y[f] = gate[f] / (1 + exp(-gate[f])) * up[f];
    }
}

static void swiglu_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_gradient_pair(gradient, node, TM_OP_swiglu_grad);
}

static const struct {
    int64_t rows, width;
} cases[] = { { 1, 1 }, { 3, 7 },   { 8, 9 },   { 1, 65 },  { 9, 130 },  { 65, 33 },
              { 2, 3 }, { 63, 16 }, { 64, 17 }, { 1, 768 }, { 200, 768 } };

static bool swiglu_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, 2 * cases[k].width), 0, 2);
    return true;
}

const tm_op tm_op_swiglu = {
    .name = "swiglu",
    .formula = "y = silu(gate) up, silu(g) = g / (1 + exp(-g))",
    .group = "elementwise",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = tm_infer_gated,
    .reference = swiglu_reference,
    .gradient = swiglu_gradient,
    .cost = tm_cost_moved,
    .vector = 2.5,
    .cheap = true,
    .example = swiglu_example,
    .in_name = { "gu (N, 2F)" },
    .out_name = { "y (N, F)" },
};

/* in: dy (N, F), gu (N, 2F); out: dgu (N, 2F) */
static void swiglu_grad_reference(const tm_call *call)
{
    int64_t rows = call->in[0].shape.n[0], width = call->in[0].shape.n[1];
    for (int64_t n = 0; n < rows; n++) {
        const double *dy = (const double *)call->in[0].data + n * width;
        const double *gate = (const double *)call->in[1].data + n * 2 * width, *up = gate + width;
        double       *dgate = (double *)call->out[0].data + n * 2 * width, *dup = dgate + width;
        for (int64_t f = 0; f < width; f++) {
            double g = gate[f], u = up[f], s = 1 / (1 + exp(-g));
            dgate[f] = dy[f] * u * s * (1 + g * (1 - s));
            dup[f] = dy[f] * g * s;
        }
    }
}

static bool swiglu_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].width), 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, 2 * cases[k].width), 0, 2);
    return true;
}

const tm_op tm_op_swiglu_grad = {
    .name = "swiglu_grad",
    .formula = "dgate = dy up s (1 + gate (1 - s)), dup = dy gate s, s = 1 / (1 + exp(-gate))",
    .group = "elementwise",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = tm_infer_gated_grad,
    .reference = swiglu_grad_reference,
    .cost = tm_cost_moved,
    .vector = 11,
    .inplace = 1U << 1,
    .example = swiglu_grad_example,
    .in_name = { "dy (N, F)", "gu (N, 2F)" },
    .out_name = { "dgu (N, 2F)" },
};
