/* SPDX-License-Identifier: Apache-2.0 */
/* op/latent_keys.c - keys and values of latent attention (DeepSeek-AI 2024, section 2.1): every head has keys of its
 * own that know no position, and all share one that was rotated.
 *
 *   k_h = [the first dim_nope columns of head h of kv, pe],  v_h = the other dim_v columns of head h of kv
 *   dkv_h = [the first columns of dk_h, dv_h],  dpe = sum over h of the last columns of dk_h
 *
 * kv (N, H (dim_nope + dim_v)), pe (N, R) -> k (N, H (dim_nope + R)), v (N, H dim_v)
 * pe may be a view: columns of the row that the keys come from.
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <string.h>

static const char *latent_check(const tm_latent_attr *attr)
{
    if (attr->heads < 1 || attr->dim_nope < 1 || attr->dim_rope < 1 || attr->dim_v < 1)
        return "heads and head sizes must be positive";
    return NULL;
}

static const char *latent_keys_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_latent_attr *attr = attr_;
    const char           *why;
    if ((why = latent_check(attr))) return why;
    if (in[0].rank != 2 || in[0].n[1] != attr->heads * (attr->dim_nope + attr->dim_v))
        return "kv must have the shape (rows, heads x (size of a key without position + size of a value))";
    if (!tm_shape_is_matrix(in[1], in[0].n[0], attr->dim_rope)) return "pe must have one rotated key per row of kv";
    tm_shape k = tm_shape_2(in[0].n[0], attr->heads * (attr->dim_nope + attr->dim_rope));
    if ((why = tm_shape_fit(&out[0], k, "k must have both parts of a key for each head"))) return why;
    return tm_shape_fit(&out[1], tm_shape_2(in[0].n[0], attr->heads * attr->dim_v), "v must have one value per head");
}

static void latent_keys_reference(const tm_call *call)
{
    const tm_latent_attr *attr = call->attr;
    int64_t               own = attr->dim_nope, shared = attr->dim_rope, value = attr->dim_v;
    for (int64_t n = 0; n < call->in[0].shape.n[0]; n++)
        for (int64_t h = 0; h < attr->heads; h++) {
            const double *kv = tm_view_row(&call->in[0], n) + h * (own + value);
            double       *k = tm_view_row(&call->out[0], n) + h * (own + shared);
            memcpy(k, kv, (size_t)own * sizeof *k);
            memcpy(k + own, tm_view_row(&call->in[1], n), (size_t)shared * sizeof *k);
            memcpy(tm_view_row(&call->out[1], n) + h * value, kv + own, (size_t)value * sizeof *k);
        }
}

static void latent_keys_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id dk = tm_gradient_of(gradient, node->out[0]), dv = tm_gradient_of(gradient, node->out[1]);
    if (dk == TM_NONE || dv == TM_NONE) return;
    if (!tm_gradient_wanted(gradient, node->in[0]) && !tm_gradient_wanted(gradient, node->in[1])) return;
    tm_tensor_id in[TM_MAX_IN] = { dk, dv };
    tm_tensor_id out[TM_MAX_OUT] = { TM_NONE, tm_gradient_out(gradient, node->in[1]) };
    tm_gradient_emit(gradient, TM_OP_latent_keys_grad, node->attr, node->attr_bytes, in, out, 0);
    tm_gradient_add(gradient, node->in[0], out[0]);
    tm_gradient_add(gradient, node->in[1], out[1]);
}

static const struct {
    int64_t        rows;
    tm_latent_attr attr;
} cases[] = { { 1, { .heads = 1, .dim_nope = 1, .dim_rope = 1, .dim_v = 1 } },
              { 5, { .heads = 2, .dim_nope = 7, .dim_rope = 4, .dim_v = 3 } },
              { 9, { .heads = 3, .dim_nope = 8, .dim_rope = 20, .dim_v = 16 } },
              { 33, { .heads = 4, .dim_nope = 17, .dim_rope = 6, .dim_v = 33 } },
              { 70, { .heads = 2, .dim_nope = 128, .dim_rope = 64, .dim_v = 128 } } };

static bool latent_keys_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    const tm_latent_attr *attr = &cases[k].attr;
    tm_example_begin(example, attr, sizeof *attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION,
                  tm_shape_2(cases[k].rows, attr->heads * (attr->dim_nope + attr->dim_v)), 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, attr->dim_rope), 0, 1);
    return true;
}

const tm_op tm_op_latent_keys = {
    .name = "latent_keys",
    .formula = "k_h = [kv_h up to dim_nope, pe], v_h = the rest of kv_h",
    .group = "elementwise",
    .n_in = 2,
    .n_out = 2,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_ACTIVATION },
    .infer = latent_keys_infer,
    .reference = latent_keys_reference,
    .gradient = latent_keys_gradient,
    .cost = tm_cost_moved,
    .cheap = true,
    .strided_in = 1U << 1,
    .example = latent_keys_example,
    .in_name = { "kv (N, H (dim_nope + dim_v))", "pe (N, R)" },
    .out_name = { "k (N, H (dim_nope + R))", "v (N, H dim_v)" },
    .attributes = "heads, dim_nope, dim_rope, dim_v",
};

/* in: dk (N, H (dim_nope + R)), dv (N, H dim_v); out: dkv (N, H (dim_nope + dim_v)), dpe (N, R) */
static const char *latent_keys_grad_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_latent_attr *attr = attr_;
    const char           *why;
    if ((why = latent_check(attr))) return why;
    if (in[0].rank != 2 || in[0].n[1] != attr->heads * (attr->dim_nope + attr->dim_rope))
        return "dk must have both parts of a key for each head";
    if (!tm_shape_is_matrix(in[1], in[0].n[0], attr->heads * attr->dim_v)) return "dv must have one value per head";
    tm_shape kv = tm_shape_2(in[0].n[0], attr->heads * (attr->dim_nope + attr->dim_v));
    if ((why = tm_shape_fit(&out[0], kv, "dkv must have a key without position and a value for each head"))) return why;
    return tm_shape_fit(&out[1], tm_shape_2(in[0].n[0], attr->dim_rope), "dpe must have one rotated key per row");
}

static void latent_keys_grad_reference(const tm_call *call)
{
    const tm_latent_attr *attr = call->attr;
    int64_t               own = attr->dim_nope, shared = attr->dim_rope, value = attr->dim_v;
    for (int64_t n = 0; n < call->in[0].shape.n[0]; n++) {
        double *dpe = tm_view_row(&call->out[1], n);
        for (int64_t r = 0; r < shared; r++) dpe[r] = 0;
        for (int64_t h = 0; h < attr->heads; h++) {
            const double *dk = tm_view_row(&call->in[0], n) + h * (own + shared);
            double       *dkv = tm_view_row(&call->out[0], n) + h * (own + value);
            memcpy(dkv, dk, (size_t)own * sizeof *dk);
            memcpy(dkv + own, tm_view_row(&call->in[1], n) + h * value, (size_t)value * sizeof *dk);
            for (int64_t r = 0; r < shared; r++) dpe[r] += dk[own + r];
        }
    }
}

static tm_rounding latent_keys_grad_rounding(const tm_call *call, int k)
{
    return tm_rounding_sum(k == 1 ? ((const tm_latent_attr *)call->attr)->heads : 1);
}

static bool latent_keys_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    const tm_latent_attr *attr = &cases[k].attr;
    tm_example_begin(example, attr, sizeof *attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION,
                  tm_shape_2(cases[k].rows, attr->heads * (attr->dim_nope + attr->dim_rope)), 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, attr->heads * attr->dim_v), 0, 1);
    return true;
}

const tm_op tm_op_latent_keys_grad = {
    .name = "latent_keys_grad",
    .formula = "dkv_h = [dk_h up to dim_nope, dv_h], dpe = sum over h of the rest of dk_h",
    .group = "elementwise",
    .n_in = 2,
    .n_out = 2,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_ACTIVATION },
    .infer = latent_keys_grad_infer,
    .reference = latent_keys_grad_reference,
    .cost = tm_cost_moved,
    .vector = 1,
    .strided_out = 1U << 1,
    .example = latent_keys_grad_example,
    .rounding = latent_keys_grad_rounding,
    .in_name = { "dk (N, H (dim_nope + R))", "dv (N, H dim_v)" },
    .out_name = { "dkv (N, H (dim_nope + dim_v))", "dpe (N, R)" },
    .attributes = "heads, dim_nope, dim_rope, dim_v",
};
