/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/group_norm.c - the kernel of group_norm; formula in op/group_norm.c.
 *
 * x is read from memory twice. First in blocks of BLOCK_ROWS rows: of each channel the sums of d and of d^2 in float32,
 * d = x - the block's first row; from these its mean and its squares about it. As d of the first row is 0, the squares
 * lose at most log2 of BLOCK_ROWS bits to cancellation. Blocks and channels of a group are put together in float64, in
 * ascending order (Chan, Golub & LeVeque 1979): M2 = sum of M2_i + n_i (mean_i - mean)^2. Then all is normalised.
 */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "op/attrs.h"

#include <math.h>

enum { BLOCK_ROWS = 128 };

typedef struct {
    int64_t samples, rows, channels, groups; /* rows: of a sample */
    int64_t blocks;                          /* of a sample */
    float  *sums;                            /* (blocks of all samples, 2, C): means, squares about them */
    float  *factors;                         /* (B, 3, C): mean, weight / standard deviation, bias */
} work;

TM_INLINE TM_PLANNED work work_of(const tm_call *call)
{
    const tm_group_norm_attr *attr = call->attr;
    work w = { .samples = attr->samples, .channels = tm_view_columns(&call->in[0]), .groups = attr->groups };
    w.rows = tm_view_rows(&call->in[0]) / w.samples;
    w.blocks = tm_ceil_div(w.rows, BLOCK_ROWS);
    w.sums = call->workspace;
    w.factors = w.sums ? w.sums + w.samples * w.blocks * 2 * w.channels : NULL;
    return w;
}
static TM_PLANNED size_t workspace(const tm_call *call)
{
    work w = work_of(call);
    return (size_t)(w.samples * (2 * w.blocks + 3) * w.channels) * sizeof(float);
}

/* A row of x: its distances from the row `first`, into the sums. */
TM_INLINE void add_row(const void *x, tm_dtype format, int64_t first, int64_t at, float *sums, int64_t C)
{
    for (int64_t j = 0; j < C; j += TM_LANES) {
        int64_t n = tm_lanes(j, C);
        v16     d = v16_sub(v16_get(x, format, at + j, n), v16_get(x, format, first + j, n));
        v16_put(sums, TM_F32, j, v16_add(v16_get(sums, TM_F32, j, n), d), n);
        v16_put(sums, TM_F32, C + j, v16_fma(d, d, v16_get(sums, TM_F32, C + j, n)), n);
    }
}

/* Blocks begin .. end - 1 of all samples'. Row by row: what comes next in memory is what is read next. */
TM_INLINE void sum_blocks(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    work          w = work_of(call);
    const void   *x = call->in[0].data;
    const int64_t C = w.channels;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t rows = tm_min(BLOCK_ROWS, w.rows - unit % w.blocks * BLOCK_ROWS);
        int64_t first = (unit / w.blocks * w.rows + unit % w.blocks * BLOCK_ROWS) * C;
        float  *sums = w.sums + unit * 2 * C;
        memset(sums, 0, (size_t)(2 * C) * sizeof(float));
        for (int64_t i = 0; i < rows; i++) add_row(x, format, first, first + i * C, sums, C);
        for (int64_t j = 0; j < C; j += TM_LANES) {
            int64_t n = tm_lanes(j, C);
            v16     sum = v16_get(sums, TM_F32, j, n), mean = v16_mul(sum, v16_set1(1.f / (float)rows));
            v16     about = v16_sub(v16_get(sums, TM_F32, C + j, n), v16_mul(sum, mean));
            v16_put(sums, TM_F32, j, v16_add(v16_get(x, format, first + j, n), mean), n);
            v16_put(sums, TM_F32, C + j, v16_max(about, v16_zero()), n);
        }
    }
}
TM_PART(sum_blocks, in[0])

/* Groups begin .. end - 1 of all samples': the mean, and 1 / standard deviation, of their channels. */
static void put_together(const tm_call *call, int64_t begin, int64_t end)
{
    work    w = work_of(call);
    int64_t width = w.channels / w.groups, ld = 2 * w.channels;
    double  count = (double)(w.rows * width), eps = ((const tm_group_norm_attr *)call->attr)->eps;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t      b = unit / w.groups, c0 = unit % w.groups * width;
        const float *means = w.sums + b * w.blocks * ld + c0, *squares = means + w.channels;
        float       *mean_out = w.factors + b * 3 * w.channels, *factor_out = mean_out + w.channels;
        double       mean = 0, square = 0;
        for (int64_t i = 0; i < w.blocks; i++) {
            double rows = (double)tm_min(BLOCK_ROWS, w.rows - i * BLOCK_ROWS), sum = 0;
            for (int64_t c = 0; c < width; c++) sum += (double)means[i * ld + c];
            mean += rows * sum;
        }
        mean /= count;
        for (int64_t i = 0; i < w.blocks; i++) {
            double rows = (double)tm_min(BLOCK_ROWS, w.rows - i * BLOCK_ROWS), apart = 0, within = 0;
            for (int64_t c = 0; c < width; c++) {
                double d = (double)means[i * ld + c] - mean;
                apart += d * d;
                within += (double)squares[i * ld + c];
            }
            square += within + rows * apart;
        }
        for (int64_t c = c0; c < c0 + width; c++) {
            mean_out[c] = (float)mean;
            factor_out[c] = (float)(1 / sqrt(square / count + eps));
        }
    }
}

/* The weight is multiplied in, the bias put beside. */
static void weigh(const tm_call *call)
{
    work           w = work_of(call);
    const tm_view *weight = &call->in[1], *bias = &call->in[2];
    for (int64_t b = 0; b < w.samples; b++) {
        float *factors = w.factors + (b * 3 + 1) * w.channels;
        for (int64_t j = 0; j < w.channels; j += TM_LANES) {
            int64_t n = tm_lanes(j, w.channels);
            v16     factor = v16_mul(v16_get(factors, TM_F32, j, n), v16_get(weight->data, weight->dtype, j, n));
            v16_put(factors, TM_F32, j, factor, n);
            v16_put(factors, TM_F32, w.channels + j, v16_get(bias->data, bias->dtype, j, n), n);
        }
    }
}

TM_INLINE void normalise_row(const void *x, tm_dtype from, void *y, tm_dtype to, bool silu, const float *means,
                             int64_t at, int64_t C)
{
    const v16 one = v16_set1(1.f);
    for (int64_t j = 0; j < C; j += TM_LANES) {
        int64_t n = tm_lanes(j, C);
        v16     d = v16_sub(v16_get(x, from, at + j, n), v16_get(means, TM_F32, j, n));
        v16     v = v16_fma(d, v16_get(means, TM_F32, C + j, n), v16_get(means, TM_F32, 2 * C + j, n));
        if (silu) v = v16_div(v, v16_add(one, v16_exp(v16_sub(v16_zero(), v))));
        v16_put(y, to, at + j, v, n);
    }
}
TM_INLINE void normalise(const tm_call *call, tm_dtype from, tm_dtype to, int64_t begin, int64_t end)
{
    work        w = work_of(call);
    bool        silu = ((const tm_group_norm_attr *)call->attr)->silu != 0;
    const void *x = call->in[0].data;
    void       *y = call->out[0].data;
    for (int64_t r = begin; r < end; r++) {
        const float *means = w.factors + r / w.rows * 3 * w.channels;
        if (silu)
            normalise_row(x, from, y, to, true, means, r * w.channels, w.channels);
        else
            normalise_row(x, from, y, to, false, means, r * w.channels, w.channels);
    }
}
TM_PART_2(normalise, in[0], out[0])

static void run(const tm_call *call)
{
    work    w = work_of(call);
    int64_t elements = tm_view_elements(&call->in[0]);
    tm_parallel(call, sum_blocks_part, w.samples * w.blocks, 1, elements);
    tm_parallel(call, put_together, w.samples * w.groups, 1, w.samples * w.blocks * w.channels);
    weigh(call);
    tm_parallel(call, normalise_part, w.samples * w.rows, 1, elements);
}

static TM_PLANNED const char *refuse(const tm_call *call)
{
    const char *why = NULL;
    for (int k = 0; k < 3 && !why; k++) why = tm_refuse_format(&call->in[k]);
    return why ? why : tm_refuse_format(&call->out[0]);
}

const tm_kernel TM_K(tm_cpu_group_norm)[] = {
    TM_KERNEL(group_norm, "group_norm/", refuse, workspace, run),
    { .name = NULL },
};
