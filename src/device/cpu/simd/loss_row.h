/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/loss_row.h - cross entropy of one row of logits, and its gradient: for the kernels that have all of a
 * row at once. Exponentials are summed in 16 lanes over runs of TM_SUM_RUN logits, the runs in double. */
#ifndef TM_DEVICE_CPU_LOSS_ROW_H
#define TM_DEVICE_CPU_LOSS_ROW_H

#include "base/status.h"
#include "device/cpu/simd/common.h"
#include "op/attrs.h"

#include <math.h>
#include <string.h>

enum { TM_SUM_RUN = 1024, TM_TASK_LOGITS = 1 << 14 }; /* logits of a task: about 10 us */

TM_INLINE float tm_row_max(const float *z, int64_t n)
{
    if (n < TM_LANES) {
        float most = z[0];
        for (int64_t i = 1; i < n; i++) most = z[i] > most ? z[i] : most;
        return most;
    }
    v16 most = v16_load(z);
    for (int64_t i = TM_LANES; i + TM_LANES <= n; i += TM_LANES) most = v16_max(most, v16_load(z + i));
    return v16_largest(v16_max(most, v16_load(z + n - TM_LANES)));
}

/* e^(z - most) of up to 16 elements, zero beyond; written back to z when `keep`. */
TM_INLINE v16 tm_exponentials(float *z, v16 most, int64_t n, bool keep)
{
    v16 e = v16_exp(v16_sub(v16_get(z, TM_F32, 0, n), most));
    if (keep) v16_put(z, TM_F32, 0, e, n);
    if (n >= TM_LANES) return e;
    float lanes[TM_LANES] = { 0 };
    v16_store_n(lanes, e, n);
    return v16_load(lanes);
}

TM_INLINE double tm_sum_exponentials(float *z, int64_t n, float most, bool keep)
{
    double sum = 0;
    v16    top = v16_set1(most);
    for (int64_t run = 0; run < n; run += TM_SUM_RUN) {
        int64_t end = run + TM_SUM_RUN < n ? run + TM_SUM_RUN : n;
        v16     lanes = v16_zero();
        for (int64_t i = run; i < end; i += TM_LANES)
            lanes = v16_add(lanes, tm_exponentials(z + i, top, end - i, keep));
        sum += (double)v16_sum(lanes);
    }
    return sum;
}

/* The loss of one row of logits; with `gradient`, the row becomes its gradient times `scale`. */
TM_INLINE double tm_loss_row(float *z, int64_t n, int32_t target, bool gradient, double scale)
{
    if (target == TM_IGNORED_TARGET) {
        if (gradient) memset(z, 0, (size_t)n * sizeof *z);
        return 0;
    }
    TM_ASSERT(target >= 0 && target < n);
    float  most = tm_row_max(z, n);
    double aim = (double)z[target] - (double)most;
    if (!gradient) return log(tm_sum_exponentials(z, n, most, false)) - aim;
    double sum = tm_sum_exponentials(z, n, most, true);
    v16    factor = v16_set1((float)(scale / sum));
    float  hit = (float)(((double)z[target] / sum - 1) * scale);
    for (int64_t i = 0; i < n; i += TM_LANES)
        v16_put(z, TM_F32, i, v16_mul(v16_get(z, TM_F32, i, n - i), factor), n - i);
    z[target] = hit;
    return log(sum) - aim;
}

#endif
