/* SPDX-License-Identifier: Apache-2.0 */
/* op/adamw8.c - one step of Adam with decoupled weight decay whose moments are kept in 8 bits: as codes of the dynamic
 * map (op/dynamic.h) of the moment by the largest magnitude of its block of 256 elements (Dettmers et al. 2022).
 *
 *   m = map(code_m) scale_m, v = map(code_v) scale_v; m, v, p as in op/adamw.c, p by the new m and v before they are
 *   coded; scale = largest |m| of the block; code_m = the nearest value of the map to m / scale; v likewise
 *
 * TM_ADAMW8_TORCHAO: halves go up, scales are at least 1e-12. TM_ADAMW8_BITSANDBYTES: halves go down, the scale of a
 * block of zeros is 1. m's map is signed, v's is not.
 *
 * p, g (one shape), code_m, code_v (8 bits, the same shape), scale_m, scale_v (blocks), scalars (8), clip (2) -> p,
 * code_m, code_v, scale_m, scale_v: the tensors that came in, changed in place
 */
#include "graph/value.h"
#include "op/attrs.h"
#include "op/describe.h"
#include "op/dynamic.h"

#include <math.h>

static int64_t blocks_of(tm_shape shape)
{
    return (tm_shape_elements(shape) + TM_DYNAMIC_BLOCK - 1) / TM_DYNAMIC_BLOCK;
}

static const char *adamw8_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    const char *why;
    for (int k = 1; k < 4; k++)
        if (!tm_shape_equal(in[k], in[0])) return "gradient and codes must have the shape of the parameter";
    for (int k = 4; k < 6; k++)
        if (!tm_shape_is_vector(in[k], blocks_of(in[0]))) return "there must be one scale for 256 elements";
    if (!tm_shape_is_vector(in[6], TM_SCALAR_COUNT)) return "there must be eight scalars";
    if (!tm_shape_is_vector(in[7], 2)) return "the clip must have two values";
    for (int k = 0; k < 5; k++)
        if ((why = tm_shape_fit(&out[k], in[k < 1 ? 0 : k + 1], "an output must have the shape of its input")))
            return why;
    return NULL;
}

typedef struct {
    float m[TM_DYNAMIC_CODES], v[TM_DYNAMIC_CODES], least_m[TM_DYNAMIC_CODES - 1], least_v[TM_DYNAMIC_CODES - 1];
    bool  torchao;
} maps;

static double decoded(const tm_view *codes, const float *map, double scale, int64_t i)
{
    return (double)map[(int)tm_value_get(codes->data, codes->dtype, i)] * scale;
}

static double code_of(const float *least, double x)
{
    int code = 0;
    while (code < TM_DYNAMIC_CODES - 1 && (double)least[code] <= x) code++;
    return code;
}

static double scale_of(const maps *of, double largest)
{
    return of->torchao ? fmax(largest, 1e-12) : largest > 0 ? largest : 1;
}

static void adamw8_block(const tm_call *call, const maps *of, int64_t block)
{
    const tm_adamw8_attr *attr = call->attr;
    const double         *p = call->in[0].data, *g = call->in[1].data, *scalars = call->in[6].data;
    const double          coefficient = ((const double *)call->in[7].data)[1], rate = scalars[TM_SCALAR_LEARNING_RATE];
    double  scale_m = ((const double *)call->in[4].data)[block], scale_v = ((const double *)call->in[5].data)[block];
    double  step = rate / scalars[TM_SCALAR_CORRECTION1], root = sqrt(scalars[TM_SCALAR_CORRECTION2]);
    double  m[TM_DYNAMIC_BLOCK], v[TM_DYNAMIC_BLOCK], largest_m = 0, largest_v = 0;
    int64_t begin = block * TM_DYNAMIC_BLOCK, n = tm_shape_elements(call->in[0].shape) - begin;
    if (n > TM_DYNAMIC_BLOCK) n = TM_DYNAMIC_BLOCK;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = begin + k;
        double  gradient = g[i] * coefficient;
        m[k] = decoded(&call->in[2], of->m, scale_m, i);
        v[k] = decoded(&call->in[3], of->v, scale_v, i);
        m[k] += (1 - attr->beta1) * (gradient - m[k]);
        v[k] += (1 - attr->beta2) * (gradient * gradient - v[k]);
        ((double *)call->out[0].data)[i] =
            p[i] - rate * attr->weight_decay * p[i] - step * m[k] / (sqrt(v[k]) / root + attr->eps);
        largest_m = fmax(largest_m, fabs(m[k]));
        largest_v = fmax(largest_v, fabs(v[k]));
    }
    scale_m = ((double *)call->out[3].data)[block] = scale_of(of, largest_m);
    scale_v = ((double *)call->out[4].data)[block] = scale_of(of, largest_v);
    for (int64_t k = 0; k < n; k++) {
        tm_value_set(call->out[1].data, call->out[1].dtype, begin + k, code_of(of->least_m, m[k] / scale_m));
        tm_value_set(call->out[2].data, call->out[2].dtype, begin + k, code_of(of->least_v, v[k] / scale_v));
    }
}

static void adamw8_reference(const tm_call *call)
{
    maps of = { .torchao = ((const tm_adamw8_attr *)call->attr)->definition == TM_ADAMW8_TORCHAO };
    tm_dynamic_map(true, of.m);
    tm_dynamic_map(false, of.v);
    tm_dynamic_bounds(of.m, of.torchao, of.least_m);
    tm_dynamic_bounds(of.v, of.torchao, of.least_v);
    for (int64_t b = 0; b < blocks_of(call->in[0].shape); b++) adamw8_block(call, &of, b);
}

/* Second moments are not much smaller than their scale, lest p be a quotient of nothing. */
static bool adamw8_example(int k, tm_example *example)
{
    static const tm_shape       cases[] = { { 2, { 3, 7 } },   { 1, { 256 } },      { 2, { 65, 17 } }, { 1, { 1030 } },
                                            { 2, { 64, 64 } }, { 2, { 130, 129 } }, { 1, { 65536 } } };
    static const tm_adamw8_attr attrs[] = {
        { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1 },
        { .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-3, .weight_decay = 0, .definition = TM_ADAMW8_BITSANDBYTES }
    };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_shape blocks = tm_shape_1(blocks_of(cases[k]));
    tm_example_begin(example, &attrs[k % 2], sizeof attrs[0]);
    tm_example_in(example, 0, TM_ROLE_PARAMETER, cases[k], 0, 1);
    tm_example_in(example, 1, TM_ROLE_GRADIENT, cases[k], 0, 1);
    tm_example_int(example, 2, cases[k], TM_DYNAMIC_CODES);
    tm_example_int(example, 3, cases[k], TM_DYNAMIC_CODES);
    tm_example_in(example, 4, TM_ROLE_STATISTIC, blocks, 1, 0.1);
    tm_example_in(example, 5, TM_ROLE_STATISTIC, blocks, 1, 0.1);
    tm_example_in(example, 6, TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT), 0.5, 0.05);
    tm_example_in(example, 7, TM_ROLE_SCALAR, tm_shape_1(2), 0.7, 0.1);
    for (int out = 0; out < 3; out++) example->out[out] = cases[k];
    example->out[3] = example->out[4] = blocks;
    return true;
}

const tm_op tm_op_adamw8 = {
    .name = "adamw8",
    .formula =
        "m = map(code_m) scale_m, v = map(code_v) scale_v, p, m, v as adamw does; scale = the largest magnitude of "
        "256, code = the nearest of the map to m / scale",
    .group = "optimizer",
    .n_in = 8,
    .n_out = 5,
    .out_role = { TM_ROLE_PARAMETER, TM_ROLE_MOMENT, TM_ROLE_MOMENT, TM_ROLE_STATISTIC, TM_ROLE_STATISTIC },
    .infer = adamw8_infer,
    .reference = adamw8_reference,
    .cost = tm_cost_moved,
    .vector = 40,
    .inplace = 1U << 0,
    .any_dtype_in = 1U << 0 | 1U << 1 | 1U << 2 | 1U << 3 | 1U << 4 | 1U << 5,
    .byte_in = 1U << 2 | 1U << 3,
    .byte_out = 1U << 1 | 1U << 2,
    .example = adamw8_example,
    .in_name = { "p (...)", "g (...)", "code_m (...)", "code_v (...)", "scale_m (B)", "scale_v (B)", "scalars (8)",
                 "clip (2)" },
    .out_name = { "p (...)", "code_m (...)", "code_v (...)", "scale_m (B)", "scale_v (B)" },
    .attributes = "beta1, beta2, eps, weight_decay, rounding, definition",
};
