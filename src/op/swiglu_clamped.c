/* SPDX-License-Identifier: Apache-2.0 */
/* op/swiglu_clamped.c - the gated linear unit of gpt-oss (OpenAI 2025), from a fused row of gate and up.
 *
 *   g = min(gate, limit),  u = clamp(up, -limit, limit),  y = (u + 1) g s,  s = 1 / (1 + exp(-alpha g))
 *   dgate = dy (u + 1) s (1 + alpha g (1 - s)) where gate <= limit, else 0
 *   dup   = dy g s where |up| <= limit, else 0
 *
 * gu (N, 2F): gate, up -> y (N, F)
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

static const char *swiglu_clamped_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_clamp_attr *attr = attr_;
    if (!(attr->limit > 0)) return "the limit must be positive";
    return tm_infer_gated(in, attr, out);
}

static void swiglu_clamped_reference(const tm_call *call)
{
    const tm_clamp_attr *attr = call->attr;
    int64_t              rows = call->out[0].shape.n[0], width = call->out[0].shape.n[1];
    for (int64_t n = 0; n < rows; n++) {
        const double *gate = (const double *)call->in[0].data + n * 2 * width, *up = gate + width;
        double       *y = (double *)call->out[0].data + n * width;
        for (int64_t f = 0; f < width; f++) {
            double g = fmin(gate[f], attr->limit), u = fmax(fmin(up[f], attr->limit), -attr->limit);
            y[f] = (u + 1) * g / (1 + exp(-attr->alpha * g));
        }
    }
}

static void swiglu_clamped_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_gradient_pair(gradient, node, TM_OP_swiglu_clamped_grad);
}

static const struct {
    int64_t       rows, width;
    tm_clamp_attr attr;
} cases[] = { { 1, 1, { .limit = 7, .alpha = 1.702 } },   { 3, 7, { .limit = 1.5, .alpha = 1.702 } },
              { 8, 9, { .limit = 7, .alpha = 1 } },       { 9, 130, { .limit = 2, .alpha = 1.702 } },
              { 65, 33, { .limit = 3, .alpha = 1.702 } }, { 200, 96, { .limit = 7, .alpha = 1.702 } } };

static bool swiglu_clamped_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &cases[k].attr, sizeof cases[k].attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, 2 * cases[k].width), 0, 2);
    return true;
}

const tm_op tm_op_swiglu_clamped = {
    .name = "swiglu_clamped",
    .formula = "y = (clamp(up) + 1) g / (1 + exp(-alpha g)), g = min(gate, limit)",
    .group = "elementwise",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = swiglu_clamped_infer,
    .reference = swiglu_clamped_reference,
    .gradient = swiglu_clamped_gradient,
    .cost = tm_cost_moved,
    .vector = 4,
    .cheap = true,
    .example = swiglu_clamped_example,
    .in_name = { "gu (N, 2F)" },
    .out_name = { "y (N, F)" },
    .attributes = "limit, alpha",
};

/* in: dy (N, F), gu (N, 2F); out: dgu (N, 2F) */
static const char *swiglu_clamped_grad_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_clamp_attr *attr = attr_;
    if (!(attr->limit > 0)) return "the limit must be positive";
    return tm_infer_gated_grad(in, attr, out);
}

static void swiglu_clamped_grad_reference(const tm_call *call)
{
    const tm_clamp_attr *attr = call->attr;
    int64_t              rows = call->in[0].shape.n[0], width = call->in[0].shape.n[1];
    for (int64_t n = 0; n < rows; n++) {
        const double *dy = (const double *)call->in[0].data + n * width;
        const double *gate = (const double *)call->in[1].data + n * 2 * width, *up = gate + width;
        double       *dgate = (double *)call->out[0].data + n * 2 * width, *dup = dgate + width;
        for (int64_t f = 0; f < width; f++) {
            bool   low = gate[f] <= attr->limit, within = fabs(up[f]) <= attr->limit;
            double g = fmin(gate[f], attr->limit), u = fmax(fmin(up[f], attr->limit), -attr->limit);
            double s = 1 / (1 + exp(-attr->alpha * g));
            dgate[f] = low ? dy[f] * (u + 1) * s * (1 + attr->alpha * g * (1 - s)) : 0;
            dup[f] = within ? dy[f] * g * s : 0;
        }
    }
}

static bool swiglu_clamped_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &cases[k].attr, sizeof cases[k].attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].width), 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, 2 * cases[k].width), 0, 2);
    return true;
}

const tm_op tm_op_swiglu_clamped_grad = {
    .name = "swiglu_clamped_grad",
    .formula = "dgate = dy (u + 1) s (1 + alpha g (1 - s)), dup = dy g s, 0 where clamped; s = 1 / (1 + exp(-alpha g))",
    .group = "elementwise",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = swiglu_clamped_grad_infer,
    .reference = swiglu_clamped_grad_reference,
    .cost = tm_cost_moved,
    .vector = 13,
    .inplace = 1U << 1,
    .example = swiglu_clamped_grad_example,
    .in_name = { "dy (N, F)", "gu (N, 2F)" },
    .out_name = { "dgu (N, 2F)" },
    .attributes = "limit, alpha",
};
