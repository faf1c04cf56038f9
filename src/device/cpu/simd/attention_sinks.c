/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/attention_sinks.c - gradients of attention's sinks.
 *
 *   dsink_h = - sum_i exp(sink_h - lse_i) delta_i,   delta_i = sum_d dO_id O_id
 *
 * Rows in blocks of 64, ascending inside a block; block sums added in ascending order, as every gradient of a
 * parameter.
 */
#include "device/cpu/simd/attention_sinks.h"

#include "device/cpu/simd/elementwise.h"
#include "op/attrs.h"

#include <math.h>

/* The sums of rows begin .. end - 1, whole blocks, into the workspace (blocks, heads). */
TM_INLINE void sink_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_attention_attr *attr = call->attr;
    const float             *lse = call->in[5].data;
    const tm_view           *sinks = &call->in[7];
    for (int64_t r = begin; r < end; r++) {
        float *sums = (float *)call->workspace + r / TM_ROW_BLOCK * attr->heads;
        for (int64_t h = 0; h < attr->heads; h++) {
            int64_t at = (r * attr->heads + h) * attr->dim_v;
            v16     delta = v16_zero();
            float   sink[TM_LANES], *sum = &sums[h];
            v16_store(sink, v16_get(sinks->data, sinks->dtype, h, 1));
            for (int64_t d = 0; d < attr->dim_v; d += TM_LANES) {
                int64_t n = tm_lanes(d, attr->dim_v);
                delta = v16_fma(v16_get(call->in[0].data, format, at + d, n),
                                v16_get(call->in[4].data, format, at + d, n), delta);
            }
            float of = lse[(r / attr->seq_q * attr->heads + h) * attr->seq_q + r % attr->seq_q];
            *sum = (r % TM_ROW_BLOCK ? *sum : 0.f) - expf(*sink - of) * v16_sum(delta);
        }
    }
}
TM_PART(sink_rows, in[0])

TM_PLANNED size_t TM_K(attention_sinks_workspace)(const tm_call *call)
{
    if (!tm_view_present(&call->out[3])) return 0;
    size_t bytes =
        (size_t)(tm_row_blocks(tm_view_rows(&call->in[0])) * tm_view_elements(&call->out[3])) * sizeof(float);
    return (bytes + 63) / 64 * 64;
}

void TM_K(attention_sinks_run)(const tm_call *call)
{
    int64_t rows = tm_view_rows(&call->in[0]), heads = tm_view_elements(&call->out[3]);
    tm_parallel(call, sink_rows_part, rows, TM_ROW_BLOCK, tm_view_elements(&call->in[0]));
    tm_add_blocks(&call->out[3], call->accumulate >> 3 & 1u, call->workspace, tm_row_blocks(rows), heads, 0, heads);
}
