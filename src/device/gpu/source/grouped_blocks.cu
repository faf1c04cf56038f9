/* SPDX-License-Identifier: Apache-2.0 */
/* Products of codes of experts by matrix units (fragments.cu), whose scales are those of blocks (op/codes.h): of 128 k in
 * float32, or of 32 (MX: of codes of 8 bits, 2: of 4). Rows offsets[e] .. offsets[e + 1] - 1 are those of expert e. C: format
 * of the result; A_E5M2, B_E5M2: which codes are e5m2. WEIGHTS: the gradient of the weights. */
#define CODES 1
#define A_ACROSS 0
#define B_ACROSS 0
#include "fragments.cu"

#if MX
enum { BLOCK_K = 32 };
typedef block_scales scales_of_factor;
#else
#include "runs.cu"
enum { BLOCK_K = 128, IN_BYTE = 1 };
typedef run_scales scales_of_factor;
#endif

/* Of a matrix of so many lines, of those from `first` on; matrix: how many there are before it. */
DEVICE scales_of_factor scales_from(const f32 *scales, int kind, i64 first, i64 lines, i64 depth, int matrix)
{
#if MX
    u32 blocks = ((u32)depth + BLOCK_K - 1) / BLOCK_K;
    return { (const byte *)(const void *)scales + (u32)matrix * (u32)lines * blocks, (u32)first, (u32)lines, blocks };
#else
    bool squares = kind == SCALES_OF_SQUARES;
    u32  blocks = squares ? squares_of((u32)depth) : ((u32)depth + BLOCK_K - 1) / BLOCK_K;
    u32  high = squares ? ((u32)lines + BLOCK_K - 1) / BLOCK_K : (u32)lines;
    return { scales + (u32)matrix * high * blocks, kind, (u32)first, (u32)lines, blocks };
#endif
}

/* Of k from f.from to f.depth, where blocks begin and end. All of f counts bytes. */
DEVICE void product_of_blocks(results *sum, const factors &f, byte *as, byte *bs, const scales_of_factor &a,
                              const scales_of_factor &b)
{
#if MX
    alignas(16) SHARED step_scales scales;
    product_of(sum, f, as, bs, scales, a, b);
#else
    product_of(sum, f, as, bs, of_block{ a, b });
#endif
}

DEVICE i64 bytes_of(i64 codes)
{
    return (i64)((u64)codes / IN_BYTE);
}

#if WEIGHTS

/* dw_e = a_e b_e^T: c (experts, rows, columns), a (rows, all), b (columns, all), of which an expert's begin with a block of
 * their own. The grid's third dimension: experts. */
KERNEL(grouped_blocks_weights)
(C *c, const element *RESTRICT a, const element *RESTRICT b, const f32 *RESTRICT scale_a, const f32 *RESTRICT scale_b,
 const int *RESTRICT offsets, i64 rows, i64 columns, i64 all, int kind_a, int kind_b, int adds)
{
    alignas(16) SHARED byte as[TILE], bs[TILE];
    int     expert = block_id(2), row = offsets[expert], n_rows = offsets[expert + 1] - row;
    i64     row0 = (i64)block_id(1) * SIDE, column0 = (i64)block_id(0) * SIDE;
    u32     from = ((u32)row / BLOCK_K + (u32)expert) * BLOCK_K, end = from + ((u32)n_rows + BLOCK_K - 1) / BLOCK_K * BLOCK_K;
    results sum;
    factors f = { a, b, rows, columns, bytes_of(from), bytes_of(end), bytes_of(all), bytes_of(all), row0, column0 };
    clear(&sum);
    product_of_blocks(&sum, f, as, bs, scales_from(scale_a, kind_a, row0, rows, all, 0),
                      scales_from(scale_b, kind_b, column0, columns, all, 0));
    EACH_RESULT (sum, r, column, value) {
        i64 m = row0 + r, n = column0 + column, at = (expert * rows + m) * columns + n;
        if (m >= rows || n >= columns) continue;
        put(c, at, adds ? value + get(c, at) : value);
    }
}

#else

#include "expert_tiles.cu"

/* c_r = a_r b_e^T + bias_e + residual_r, + c_r where it adds: c (rows, columns), a (rows, depth), b_e (columns, depth). Rows of
 * nobody are 0. */
KERNEL(grouped_blocks_rows)
(C *c, const element *RESTRICT a, const element *RESTRICT b, const f32 *RESTRICT scale_a, const f32 *RESTRICT scale_b,
 const int *RESTRICT offsets, const C *RESTRICT bias, const C *residual, int experts, int rows, i64 columns, i64 depth,
 int kind_a, int kind_b, int adds)
{
    alignas(16) SHARED byte as[TILE], bs[TILE];
    tile_rows t = tile_of(block_id(1), offsets, experts, rows);
    if (t.expert > experts || (t.expert == experts && adds)) return;
    i64     bytes = bytes_of(depth), own = t.end - t.first, column0 = (i64)block_id(0) * SIDE;
    results sum;
    factors f = { a + t.first * bytes, b + t.expert * columns * bytes, own, columns, 0, bytes, bytes, bytes, 0, column0 };
    clear(&sum);
    if (t.expert < experts)
        product_of_blocks(&sum, f, as, bs, scales_from(scale_a, kind_a, t.first, rows, depth, 0),
                          scales_from(scale_b, kind_b, column0, columns, depth, t.expert));
    if (t.expert == experts) bias = 0, residual = 0;
    EACH_RESULT (sum, row, column, value) {
        i64 n = column0 + column, at = ((i64)t.first + row) * columns + n;
        if (row >= own || n >= columns) continue;
        float v = value;
        if (bias) v += get(bias, t.expert * columns + n);
        if (residual) v += get(residual, at);
        put(c, at, adds ? v + get(c, at) : v);
    }
}

#endif
