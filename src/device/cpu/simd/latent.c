/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/latent.c - latent_keys and its gradient: rows taken apart and put together. The heads' parts of dpe
 * are added in float32, ascending. */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "op/attrs.h"

static char *row_of(const tm_view *view, int64_t row)
{
    return (char *)view->data + (size_t)(row * tm_view_ld(view)) * tm_dtype_bytes(view->dtype);
}

static void latent_keys_rows(const tm_call *call, int64_t begin, int64_t end)
{
    const tm_latent_attr *attr = call->attr;
    size_t                size = tm_dtype_bytes(call->in[0].dtype), own = (size_t)attr->dim_nope * size;
    size_t                shared = (size_t)attr->dim_rope * size, value = (size_t)attr->dim_v * size;
    for (int64_t r = begin; r < end; r++) {
        const char *kv = row_of(&call->in[0], r), *pe = row_of(&call->in[1], r);
        char       *k = row_of(&call->out[0], r), *v = row_of(&call->out[1], r);
        for (int64_t h = 0; h < attr->heads; h++, kv += own + value, k += own + shared, v += value) {
            memcpy(k, kv, own);
            memcpy(k + own, pe, shared);
            memcpy(v, kv + own, value);
        }
    }
}

TM_INLINE void latent_grad(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_latent_attr *attr = call->attr;
    size_t                size = tm_dtype_bytes(format), own = (size_t)attr->dim_nope * size;
    size_t                key = own + (size_t)attr->dim_rope * size, value = (size_t)attr->dim_v * size;
    for (int64_t r = begin; r < end; r++) {
        const char *dk = row_of(&call->in[0], r), *dv = row_of(&call->in[1], r);
        char       *dkv = row_of(&call->out[0], r);
        for (int64_t h = 0; h < attr->heads; h++) {
            memcpy(dkv + (size_t)h * (own + value), dk + (size_t)h * key, own);
            memcpy(dkv + (size_t)h * (own + value) + own, dv + (size_t)h * value, value);
        }
        for (int64_t j = 0; j < attr->dim_rope; j += TM_LANES) {
            int64_t n = tm_lanes(j, attr->dim_rope), width = attr->dim_nope + attr->dim_rope;
            v16     sum = v16_zero();
            for (int64_t h = 0; h < attr->heads; h++)
                sum = v16_add(sum, v16_get(dk, format, h * width + attr->dim_nope + j, n));
            v16_put(row_of(&call->out[1], r), format, j, sum, n);
        }
    }
}
TM_PART(latent_grad, in[0])

static void latent_keys_run(const tm_call *call)
{
    tm_parallel(call, latent_keys_rows, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}
static void latent_grad_run(const tm_call *call)
{
    tm_parallel(call, latent_grad_part, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}
static TM_PLANNED const char *latent_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[1]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    return why ? why : tm_refuse_mixed(&call->in[0], &call->out[1]);
}

const tm_kernel TM_K(tm_cpu_latent)[] = {
    TM_KERNEL(latent_keys, "latent_keys/", latent_refuse, NULL, latent_keys_run),
    TM_KERNEL(latent_keys_grad, "latent_keys_grad/", latent_refuse, NULL, latent_grad_run),
    { .name = NULL },
};
