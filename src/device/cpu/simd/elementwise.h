/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/elementwise.h - what the memory-bound kernels share: splitting a call among threads, picking a body
 * by number format, sums over rows in blocks of 64, and reasons to refuse.
 *
 * A part of a call computes the same bits whatever its neighbours do, so a split never shows in a result. Sums that
 * cross parts go through the workspace in blocks of fixed size.
 */
#ifndef TM_DEVICE_CPU_ELEMENTWISE_H
#define TM_DEVICE_CPU_ELEMENTWISE_H

#include "device/cpu/simd/common.h"
#include "op/kernel.h"

#include <omp.h>

enum {
    TM_ROW_BLOCK = 64,          /* rows whose sum is formed before it is added to the accumulator */
    TM_ELEMENT_GRAIN = 1024,    /* flat ops are cut at multiples of this */
    TM_SERIAL_ELEMENTS = 16384, /* below this a parallel region costs more than it saves */
};

/* Computes rows, columns or elements begin..end-1. */
typedef void (*tm_part)(const tm_call *call, int64_t begin, int64_t end);

/* Runs `part` over 0..n-1, one range per thread, cut at multiples of `grain`; `elements` is the size of the work. */
TM_INLINE void tm_parallel(const tm_call *call, tm_part part, int64_t n, int64_t grain, int64_t elements)
{
    int64_t grains = (n + grain - 1) / grain;
    if (call->threads <= 1 || grains <= 1 || elements < TM_SERIAL_ELEMENTS) {
        part(call, 0, n);
        return;
    }
#pragma omp parallel num_threads(call->threads)
    {
        int64_t thread = omp_get_thread_num(), team = omp_get_num_threads();
        int64_t begin = grains * thread / team * grain, end = grains * (thread + 1) / team * grain;
        if (end > n) end = n;
        if (begin < end) part(call, begin, end);
    }
}

/* name_part(call, begin, end): the body `name(call, dtype, begin, end)` for the format of one operand, or of two. Each
 * format is a function of its own: register allocation under sanitizers takes minutes for all of them in one. */
#define TM_FORM(suffix, name, ...)                                                                                     \
    static __attribute__((noinline)) void name##_##suffix(const tm_call *call, int64_t begin, int64_t end)             \
    {                                                                                                                  \
        name(call, __VA_ARGS__, begin, end);                                                                           \
    }
#define TM_PART(name, operand)                                                                                         \
    TM_FORM(f32, name, TM_F32)                                                                                         \
    TM_FORM(bf16, name, TM_BF16)                                                                                       \
    static void name##_part(const tm_call *call, int64_t begin, int64_t end)                                           \
    {                                                                                                                  \
        (call->operand.dtype == TM_BF16 ? name##_bf16 : name##_f32)(call, begin, end);                                 \
    }
#define TM_PART_2(name, first, second)                                                                                 \
    TM_FORM(f32_f32, name, TM_F32, TM_F32)                                                                             \
    TM_FORM(f32_bf16, name, TM_F32, TM_BF16)                                                                           \
    TM_FORM(bf16_f32, name, TM_BF16, TM_F32)                                                                           \
    TM_FORM(bf16_bf16, name, TM_BF16, TM_BF16)                                                                         \
    static void name##_part(const tm_call *call, int64_t begin, int64_t end)                                           \
    {                                                                                                                  \
        static const tm_part parts[2][2] = { { name##_f32_f32, name##_f32_bf16 },                                      \
                                             { name##_bf16_f32, name##_bf16_bf16 } };                                  \
        parts[call->first.dtype == TM_BF16][call->second.dtype == TM_BF16](call, begin, end);                          \
    }

/* Lanes at element i of 0..end-1. A comparison with a loop invariant, which lets the compiler split the tail off the
 * loop (gcc -fsplit-loops): on a Zen 5 core bias_grad went from 17 to 36 GB/s. */
TM_INLINE int64_t tm_lanes(int64_t i, int64_t end)
{
    return i < end - (TM_LANES - 1) ? TM_LANES : end - i;
}

TM_INLINE int64_t tm_view_elements(const tm_view *view)
{
    return tm_shape_elements(view->shape);
}
TM_INLINE int64_t tm_view_columns(const tm_view *view)
{
    return view->shape.rank > 0 ? view->shape.n[view->shape.rank - 1] : 1;
}
TM_INLINE int64_t tm_view_rows(const tm_view *view)
{
    int64_t columns = tm_view_columns(view);
    return columns > 0 ? tm_view_elements(view) / columns : 0;
}
TM_INLINE int64_t tm_row_blocks(int64_t rows)
{
    return tm_ceil_div(rows, TM_ROW_BLOCK);
}

/* NULL when `other` is absent or has the format of `view`. */
TM_INLINE const char *tm_refuse_mixed(const tm_view *view, const tm_view *other)
{
    return tm_view_present(other) && other->dtype != view->dtype ? "operands differ in number format" : NULL;
}
TM_INLINE const char *tm_refuse_format(const tm_view *view)
{
    return !tm_view_present(view) || tm_is_float(view) ? NULL : "needs float32 or bfloat16";
}
TM_INLINE const char *tm_refuse_wide(const tm_view *view)
{
    return !tm_view_present(view) || view->dtype == TM_F32 ? NULL : "needs float32 statistics and tables";
}
TM_INLINE const char *tm_refuse_scalar(const tm_view *view)
{
    return view->dtype == TM_F64 ? NULL : "needs float64 scalars";
}

/* Columns begin..end-1 of out (columns): the sums of `n_blocks` rows of `blocks` (n_blocks, columns), added in
 * ascending order to the old value, or to the first of them. bfloat16 is rounded once. */
TM_INLINE void tm_add_blocks(const tm_view *out, bool accumulate, const float *blocks, int64_t n_blocks,
                             int64_t columns, int64_t begin, int64_t end)
{
    for (int64_t j = begin; j < end; j += TM_LANES) {
        int64_t n = tm_lanes(j, end), k = accumulate ? 0 : 1;
        v16     sum = accumulate ? v16_get(out->data, out->dtype, j, n) : v16_get(blocks, TM_F32, j, n);
        for (; k < n_blocks; k++) sum = v16_add(sum, v16_get(blocks, TM_F32, k * columns + j, n));
        v16_put(out->data, out->dtype, j, sum, n);
    }
}

#endif
