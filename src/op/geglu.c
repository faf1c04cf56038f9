/* SPDX-License-Identifier: Apache-2.0 */
/* op/geglu.c - gated linear unit with the tanh form of gelu (Shazeer 2020), from a fused row of gate and up. Of frozen
 * encoders: it has no gradient.
 *
 *   y = gelu(gate) up,  gelu as in op/gelu.c
 *
 * gu (N, 2F): gate, up -> y (N, F)
 */
#include "op/describe.h"

#include <math.h>

static void geglu_reference(const tm_call *call)
{
    int64_t rows = call->out[0].shape.n[0], width = call->out[0].shape.n[1];
    for (int64_t n = 0; n < rows; n++) {
        const double *gate = (const double *)call->in[0].data + n * 2 * width, *up = gate + width;
        double       *y = (double *)call->out[0].data + n * width;
        for (int64_t f = 0; f < width; f++) {
            double x = gate[f], th = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
            y[f] = 0.5 * x * (1 + th) * up[f];
        }
    }
}

static bool geglu_example(int k, tm_example *example)
{
    static const int64_t cases[][2] = { { 1, 1 }, { 3, 7 }, { 8, 9 }, { 9, 130 }, { 65, 33 }, { 200, 96 } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k][0], 2 * cases[k][1]), 0, 2);
    return true;
}

const tm_op tm_op_geglu = {
    .name = "geglu",
    .formula = "y = gelu(gate) up",
    .group = "elementwise",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = tm_infer_gated,
    .reference = geglu_reference,
    .cost = tm_cost_moved,
    .vector = 5,
    .example = geglu_example,
    .in_name = { "gu (N, 2F)" },
    .out_name = { "y (N, F)" },
};
