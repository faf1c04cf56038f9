/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/quantized.h - what kernels that quantize have in common (quantize.c, both.c): what a call passes to them.
 * Private to device/gpu/. */
#ifndef TM_DEVICE_GPU_QUANTIZED_H
#define TM_DEVICE_GPU_QUANTIZED_H

#include "device/gpu/gpu.h"
#include "op/quantize.h"

/* The same structs as in the texts. */
typedef struct {
    int32_t scaled, rule, rotation, stochastic, empty_one, finds, given, block, mantissa, least_exponent, top;
    float   least, largest;
} tm_gpu_recipe;

typedef struct {
    const void   *y, *record, *x, *ticks, *scale, *offsets, *given, *scales;
    const void   *tile_record, *tile_largest, *cell_largest, *line_largest;
    uint64_t      key, first_row;
    double        switch_step;
    int64_t       rows, ld, lines, room;
    int32_t       groups, parts, columns, whole_columns, row;
    int32_t       switches, down, cut_columns, vectors, adds, always, keeps_lines, wide, kind, whole;
    int32_t       begins;
    int32_t       end[TM_QUANTIZE_PARTS], shift[TM_QUANTIZE_PARTS];
    tm_gpu_recipe of[2];
} tm_gpu_factor;

/* Of a call of `quantize` or `quantize_largest`; without places in the workspace. */
tm_gpu_factor tm_gpu_factor_of(const tm_call *call);
/* Why a call of `quantize` is not taken, or NULL. */
const char *tm_gpu_refuse_factor(const tm_call *call);
/* Definitions of the texts: formats of x and y, and how many times 32 lines a tile has. */
tm_gpu_defines tm_gpu_factor_defines(tm_dtype x, tm_dtype y, const tm_view *ticks, int rounds);
/* Fills up the places of a call of `quantize` that nothing is written to: starts `clear_scales` and `clear_gaps`, noted
 * for `call` under that number and the next one. */
TM_MUST_USE tm_status tm_gpu_fill_up(const tm_call *call, int kernel, const tm_call *quantize, tm_error *err);

#endif
