/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/modulate.c - modulate, gated_add and their gradients; formulas in op/modulate.c, op/gated_add.c.
 *
 * Sums over a row: 16 lanes, ascending, fixed tree. Sums over the rows of a sample: blocks of 64 rows, added in
 * ascending order. One rounding to the format of the output.
 */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "op/attrs.h"

#include <math.h>

/* ---- blocks of rows of a sample ---- */

static TM_PLANNED int64_t blocks_of(int64_t seq)
{
    return tm_row_blocks(seq);
}

/* Block `unit` of all samples' blocks: its rows, and where its sums are. */
typedef struct {
    int64_t sample, begin, end;
    float  *sums;
} row_block;

TM_INLINE row_block block_at(const tm_call *call, int64_t unit, int64_t seq, int64_t sums)
{
    int64_t each = blocks_of(seq), sample = unit / each, first = unit % each * TM_ROW_BLOCK;
    float  *at = (float *)call->workspace + unit * sums;
    memset(at, 0, (size_t)sums * sizeof(float));
    return (row_block){ sample, sample * seq + first, sample * seq + tm_min(first + TM_ROW_BLOCK, seq), at };
}

/* Columns column .. column + C - 1 of every sample's block sums become the rows of an output. */
TM_INLINE void add_samples(const tm_call *call, int k, int64_t seq, int64_t sums, int64_t column)
{
    const tm_view *out = &call->out[k];
    int64_t        each = blocks_of(seq), samples = out->shape.n[0], C = tm_view_columns(out);
    size_t         bytes = tm_dtype_bytes(out->dtype);
    for (int64_t b = 0; b < samples; b++) {
        const float *blocks = (const float *)call->workspace + b * each * sums + column;
        for (int64_t j = 0; j < C; j += TM_LANES) {
            int64_t n = tm_lanes(j, C);
            v16     sum = v16_get(blocks, TM_F32, j, n);
            for (int64_t i = 1; i < each; i++) sum = v16_add(sum, v16_get(blocks, TM_F32, i * sums + j, n));
            v16_put((char *)out->data + (size_t)(b * tm_view_ld(out)) * bytes, out->dtype, j, sum, n);
        }
    }
}

/* ---- modulate ---- */

TM_INLINE v16 keep_lanes(v16 x, int64_t n)
{
    if (n >= TM_LANES) return x;
    float f[TM_LANES] = { 0 };
    v16_store_n(f, x, n);
    return v16_load(f);
}

/* Two passes: the mean, then the squares about it. */
TM_INLINE void statistics(const void *x, tm_dtype format, int64_t at, int64_t C, double eps, float *mean, float *rstd)
{
    v16 sum = v16_zero(), square = v16_zero();
    for (int64_t j = 0; j < C; j += TM_LANES) sum = v16_add(sum, v16_get(x, format, at + j, tm_lanes(j, C)));
    *mean = v16_sum(sum) / (float)C;
    for (int64_t j = 0; j < C; j += TM_LANES) {
        int64_t n = tm_lanes(j, C);
        v16     d = keep_lanes(v16_sub(v16_get(x, format, at + j, n), v16_set1(*mean)), n);
        square = v16_fma(d, d, square);
    }
    *rstd = (float)(1. / sqrt((double)v16_sum(square) / (double)C + eps));
}

TM_INLINE void modulate_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_modulate_attr *attr = call->attr;
    const void             *x = call->in[0].data, *shift = call->in[1].data, *scale = call->in[2].data;
    int64_t                 C = tm_view_columns(&call->in[0]);
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i * C, shift_at = i / attr->seq * tm_view_ld(&call->in[1]);
        int64_t scale_at = i / attr->seq * tm_view_ld(&call->in[2]);
        float   mean, rstd;
        statistics(x, format, at, C, attr->eps, &mean, &rstd);
        v16 m = v16_set1(mean), r = v16_set1(rstd), one = v16_set1(1.f);
        for (int64_t j = 0; j < C; j += TM_LANES) {
            int64_t n = tm_lanes(j, C);
            v16     xhat = v16_mul(v16_sub(v16_get(x, format, at + j, n), m), r);
            v16     w = v16_add(one, v16_get(scale, format, scale_at + j, n));
            v16_put(call->out[0].data, format, at + j, v16_fma(xhat, w, v16_get(shift, format, shift_at + j, n)), n);
        }
        ((float *)call->out[1].data)[i] = mean;
        ((float *)call->out[2].data)[i] = rstd;
    }
}
TM_PART(modulate_rows, in[0])

static void modulate_run(const tm_call *call)
{
    tm_parallel(call, modulate_rows_part, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}
static TM_PLANNED const char *modulate_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    for (int k = 1; k < 3 && !why; k++) why = tm_refuse_mixed(&call->in[0], &call->in[k]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    for (int k = 1; k < 3 && !why; k++) why = tm_refuse_wide(&call->out[k]);
    return why;
}

/* Row i: its sums into those of its block (dshift, then dscale), and dx. */
TM_INLINE void modulate_grad_row(const tm_call *call, tm_dtype format, int64_t i, const row_block *block)
{
    const void *dys = call->in[0].data, *xs = call->in[1].data, *scale = call->in[2].data;
    const void *addend = call->in[5].data;
    int64_t     C = tm_view_columns(&call->in[1]), at = i * C, scale_at = block->sample * tm_view_ld(&call->in[2]);
    float       rstd = ((const float *)call->in[4].data)[i];
    v16         m = v16_set1(((const float *)call->in[3].data)[i]), r = v16_set1(rstd), one = v16_set1(1.f);
    v16         sum = v16_zero(), dot = v16_zero();
    for (int64_t j = 0; j < C; j += TM_LANES) {
        int64_t n = tm_lanes(j, C);
        v16     dy = v16_get(dys, format, at + j, n);
        v16     xhat = v16_mul(v16_sub(v16_get(xs, format, at + j, n), m), r);
        v16     h = v16_mul(dy, v16_add(one, v16_get(scale, format, scale_at + j, n)));
        sum = v16_add(sum, h); /* lanes beyond the row hold dy = 0 */
        dot = v16_fma(h, xhat, dot);
        v16_put(block->sums, TM_F32, j, v16_add(v16_get(block->sums, TM_F32, j, n), dy), n);
        v16_put(block->sums, TM_F32, C + j, v16_fma(dy, xhat, v16_get(block->sums, TM_F32, C + j, n)), n);
    }
    v16 mean_h = v16_set1(v16_sum(sum) / (float)C), mean_dot = v16_set1(v16_sum(dot) / (float)C);
    for (int64_t j = 0; j < C; j += TM_LANES) {
        int64_t n = tm_lanes(j, C);
        v16     xhat = v16_mul(v16_sub(v16_get(xs, format, at + j, n), m), r);
        v16     w = v16_add(one, v16_get(scale, format, scale_at + j, n));
        v16     h = v16_mul(v16_get(dys, format, at + j, n), w);
        v16     d = v16_sub(v16_sub(h, mean_h), v16_mul(xhat, mean_dot));
        v16     base = addend ? v16_get(addend, format, at + j, n) : v16_zero();
        v16_put(call->out[0].data, format, at + j, v16_fma(d, r, base), n);
    }
}
TM_INLINE void modulate_grad_blocks(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_modulate_attr *attr = call->attr;
    for (int64_t unit = begin; unit < end; unit++) {
        row_block block = block_at(call, unit, attr->seq, 2 * tm_view_columns(&call->in[1]));
        for (int64_t i = block.begin; i < block.end; i++) modulate_grad_row(call, format, i, &block);
    }
}
TM_PART(modulate_grad_blocks, in[0])

static TM_PLANNED int64_t units_of(const tm_call *call, int samples_of, int64_t seq)
{
    return call->in[samples_of].shape.n[0] * blocks_of(seq);
}
static TM_PLANNED size_t modulate_grad_workspace(const tm_call *call)
{
    const tm_modulate_attr *attr = call->attr;
    return (size_t)(units_of(call, 2, attr->seq) * 2 * tm_view_columns(&call->in[1])) * sizeof(float);
}
static void modulate_grad_run(const tm_call *call)
{
    const tm_modulate_attr *attr = call->attr;
    int64_t                 C = tm_view_columns(&call->in[1]);
    tm_parallel(call, modulate_grad_blocks_part, units_of(call, 2, attr->seq), 1, tm_view_elements(&call->in[1]));
    add_samples(call, 1, attr->seq, 2 * C, 0);
    add_samples(call, 2, attr->seq, 2 * C, C);
}
static TM_PLANNED const char *modulate_grad_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    for (int k = 1; k < 3 && !why; k++) why = tm_refuse_mixed(&call->in[0], &call->in[k]);
    for (int k = 3; k < 5 && !why; k++) why = tm_refuse_wide(&call->in[k]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[5]);
    for (int k = 0; k < 3 && !why; k++) why = tm_refuse_mixed(&call->in[0], &call->out[k]);
    return why;
}

/* ---- gated_add ---- */

TM_INLINE void gated_add_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_gated_add_attr *attr = call->attr;
    int64_t                  C = tm_view_columns(&call->in[0]);
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i * C, gate_at = i / attr->seq * tm_view_ld(&call->in[2]);
        for (int64_t j = 0; j < C; j += TM_LANES) {
            int64_t n = tm_lanes(j, C);
            v16     gate = v16_get(call->in[2].data, format, gate_at + j, n);
            v16     u = v16_get(call->in[1].data, format, at + j, n), x = v16_get(call->in[0].data, format, at + j, n);
            v16_put(call->out[0].data, format, at + j, v16_fma(gate, u, x), n);
        }
    }
}
TM_PART(gated_add_rows, in[0])

static void gated_add_run(const tm_call *call)
{
    tm_parallel(call, gated_add_rows_part, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}

TM_INLINE void gated_add_grad_blocks(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_gated_add_attr *attr = call->attr;
    int64_t                  C = tm_view_columns(&call->in[1]);
    for (int64_t unit = begin; unit < end; unit++) {
        row_block block = block_at(call, unit, attr->seq, C);
        int64_t   gate_at = block.sample * tm_view_ld(&call->in[2]);
        for (int64_t i = block.begin; i < block.end; i++)
            for (int64_t j = 0; j < C; j += TM_LANES) {
                int64_t n = tm_lanes(j, C);
                v16     dy = v16_get(call->in[0].data, format, i * C + j, n);
                v16     u = v16_get(call->in[1].data, format, i * C + j, n);
                v16     gate = v16_get(call->in[2].data, format, gate_at + j, n);
                v16_put(block.sums, TM_F32, j, v16_fma(dy, u, v16_get(block.sums, TM_F32, j, n)), n);
                v16_put(call->out[0].data, format, i * C + j, v16_mul(gate, dy), n);
            }
    }
}
TM_PART(gated_add_grad_blocks, in[0])

static TM_PLANNED size_t gated_add_grad_workspace(const tm_call *call)
{
    const tm_gated_add_attr *attr = call->attr;
    return (size_t)(units_of(call, 2, attr->seq) * tm_view_columns(&call->in[1])) * sizeof(float);
}
static void gated_add_grad_run(const tm_call *call)
{
    const tm_gated_add_attr *attr = call->attr;
    tm_parallel(call, gated_add_grad_blocks_part, units_of(call, 2, attr->seq), 1, tm_view_elements(&call->in[1]));
    add_samples(call, 1, attr->seq, tm_view_columns(&call->in[1]), 0);
}
static TM_PLANNED const char *gated_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    for (int k = 1; k < 3 && !why; k++) why = tm_refuse_mixed(&call->in[0], &call->in[k]);
    for (int k = 0; k < 2 && !why; k++) why = tm_refuse_mixed(&call->in[0], &call->out[k]);
    return why;
}

const tm_kernel TM_K(tm_cpu_modulate)[] = {
    TM_KERNEL(modulate, "modulate/", modulate_refuse, NULL, modulate_run),
    TM_KERNEL(modulate_grad, "modulate_grad/", modulate_grad_refuse, modulate_grad_workspace, modulate_grad_run),
    TM_KERNEL(gated_add, "gated_add/", gated_refuse, NULL, gated_add_run),
    TM_KERNEL(gated_add_grad, "gated_add_grad/", gated_refuse, gated_add_grad_workspace, gated_add_grad_run),
    { .name = NULL },
};
