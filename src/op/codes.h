/* SPDX-License-Identifier: Apache-2.0 */
/* op/codes.h - how the scales of codes lie beside them: what `quantize` writes and `scaled_mm` reads. Each layout is
 * that of a library of products (gpu/blas_codes.c), so that nothing is moved in between.
 */
#ifndef TM_OP_CODES_H
#define TM_OP_CODES_H

#include "op/op.h"

/* L: blocks of a line, of so many elements each, the last one perhaps short; L4: the next multiple of 4. */
typedef enum {
    TM_CODES_NOT,
    TM_CODES_PLAIN,   /* float32: one of each part, or of each line */
    TM_CODES_RUNS,    /* float32, of 128 elements of a line: (L, lines) */
    TM_CODES_SQUARES, /* float32, of 128 lines by 128 elements: (squares of lines, L4) */
    TM_CODES_TILES, /* e8m0, of 32 elements of a line: tiles of 128 lines by 4 blocks, (tiles of lines, L4 / 4, 512) */
    TM_CODES_ROWS,  /* e8m0, of 32 elements of a line: (lines, L) */
    TM_CODES_KINDS
} tm_codes_kind;

enum { TM_CODES_TILE = 128 }; /* lines */

/* Of one scale: its format, and how many elements of how many lines share it. PLAIN: 0. */
typedef struct {
    uint8_t dtype; /* tm_dtype */
    uint8_t block, lines;
} tm_codes_scale;

static inline tm_codes_scale tm_codes_scale_of(int kind)
{
    static const tm_codes_scale all[TM_CODES_KINDS] = { [TM_CODES_PLAIN] = { TM_F32, 0, 0 },
                                                        [TM_CODES_RUNS] = { TM_F32, 128, 1 },
                                                        [TM_CODES_SQUARES] = { TM_F32, 128, 128 },
                                                        [TM_CODES_TILES] = { TM_E8M0, 32, 1 },
                                                        [TM_CODES_ROWS] = { TM_E8M0, 32, 1 } };
    return all[kind];
}

static inline int64_t tm_codes_cut(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Blocks of a line as they lie: with those that fill up. */
static inline int64_t tm_codes_blocks(int kind, int64_t length)
{
    int64_t blocks = tm_codes_cut(length, tm_codes_scale_of(kind).block);
    return kind == TM_CODES_SQUARES || kind == TM_CODES_TILES ? tm_codes_cut(blocks, 4) * 4 : blocks;
}

/* Scales of a matrix of so many lines, with what fills up; not of PLAIN. */
static inline int64_t tm_codes_scales(int kind, int64_t lines, int64_t length)
{
    int64_t high = kind == TM_CODES_TILES ? tm_codes_cut(lines, TM_CODES_TILE) * TM_CODES_TILE
                                          : tm_codes_cut(lines, tm_codes_scale_of(kind).lines);
    return high * tm_codes_blocks(kind, length);
}

/* Where the scale of element k of a line is among them. */
static inline int64_t tm_codes_place(int kind, int64_t lines, int64_t length, int64_t line, int64_t k)
{
    int64_t b = k / tm_codes_scale_of(kind).block, blocks = tm_codes_blocks(kind, length);
    switch (kind) {
    case TM_CODES_RUNS:
        return b * lines + line;
    case TM_CODES_SQUARES:
        return line / TM_CODES_TILE * blocks + b;
    case TM_CODES_TILES: /* 32 times the scales of lines i, i + 32, i + 64, i + 96 */
        return (line / TM_CODES_TILE * blocks + b / 4 * 4) * TM_CODES_TILE + line % 32 * 16 +
               line % TM_CODES_TILE / 32 * 4 + b % 4;
    default:
        return line * blocks + b;
    }
}

/* Lines that run along the rows of experts: those of each expert begin with a block of their own, b (r / b + e) along
 * the line for an expert e whose rows begin with r, of blocks of b, so that rows are room enough for. What fills an
 * expert's last block up, and a block that no expert has, are codes of 0. PLAIN: there is nothing to fill up. */
static inline int64_t tm_codes_begin(int kind, int64_t row, int64_t expert)
{
    int64_t block = tm_codes_scale_of(kind).block;
    return block > 0 ? block * (row / block + expert) : row;
}

/* Where they end: with the last block. */
static inline int64_t tm_codes_end(int kind, int64_t row, int64_t rows, int64_t expert)
{
    int64_t block = tm_codes_scale_of(kind).block, begin = tm_codes_begin(kind, row, expert);
    return begin + (block > 0 ? tm_codes_cut(rows, block) * block : rows);
}

/* Room of such a line. */
static inline int64_t tm_codes_room(int kind, int64_t rows, int64_t experts)
{
    return tm_codes_begin(kind, rows, experts);
}

/* Of scaled_mm; of a call without attributes both are PLAIN. */
typedef struct {
    uint8_t scales[2]; /* tm_codes_kind of a and of b */
} tm_scaled_attr;

static inline int tm_scaled_kind(const void *attr, int side)
{
    return attr ? ((const tm_scaled_attr *)attr)->scales[side] : TM_CODES_PLAIN;
}

#endif
