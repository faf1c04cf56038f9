/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/attention_merge.c - merge_attention: the weights of both parts by scalar exponentials, a row of a
 * head by lanes. Each element is read before it is written, so the result may lie on the first part. */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "op/attrs.h"

#include <math.h>

TM_INLINE void merge_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_attention_attr *attr = call->attr;
    const float             *la = call->in[1].data, *lb = call->in[3].data;
    float                   *lse = call->out[1].data;
    for (int64_t r = begin; r < end; r++)
        for (int64_t h = 0; h < attr->heads; h++) {
            int64_t at = (r / attr->seq_q * attr->heads + h) * attr->seq_q + r % attr->seq_q;
            int64_t first = (r * attr->heads + h) * attr->dim_v;
            float   max = fmaxf(la[at], lb[at]), none = max == -HUGE_VALF ? 0.f : 1.f;
            float   a = none > 0 ? expf(la[at] - max) : 0.f, b = none > 0 ? expf(lb[at] - max) : 0.f;
            float   sum = none > 0 ? a + b : 1.f;
            v16     wa = v16_set1(a / sum), wb = v16_set1(b / sum);
            for (int64_t d = 0; d < attr->dim_v; d += TM_LANES) {
                int64_t n = tm_lanes(d, attr->dim_v);
                v16     x = v16_mul(wa, v16_get(call->in[0].data, format, first + d, n));
                v16_put(call->out[0].data, format, first + d,
                        v16_fma(wb, v16_get(call->in[2].data, format, first + d, n), x), n);
            }
            lse[at] = none > 0 ? max + logf(sum) : max;
        }
}
TM_PART(merge_rows, in[0])

static void merge_run(const tm_call *call)
{
    tm_parallel(call, merge_rows_part, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}

static TM_PLANNED const char *merge_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[2]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    if (!why) why = tm_refuse_wide(&call->in[1]);
    if (!why) why = tm_refuse_wide(&call->in[3]);
    return why ? why : tm_refuse_wide(&call->out[1]);
}

const tm_kernel TM_K(tm_cpu_attention_merge)[] = {
    TM_KERNEL(merge_attention, "merge_attention/", merge_refuse, NULL, merge_run),
    { .name = NULL },
};
