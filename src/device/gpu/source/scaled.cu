/* SPDX-License-Identifier: Apache-2.0 */
/* Products of codes by matrix units (fragments.cu), both along their rows. C: format of the result; A_E5M2, B_E5M2:
 * which codes are e5m2. BLOCKS: scales are those of blocks of 128 k (op/codes.h), MX: of 32 k, of codes of 8 bits (1) or of 4
 * (2); else of matrices or of rows. */
#define CODES 1
#define A_ACROSS 0
#define B_ACROSS 0
#include "fragments.cu"

#if BLOCKS
#include "runs.cu"
#endif

/* c[m, n] = scale_a[m] scale_b[n] sum over k of a[m, k] b[n, k], + bias[n] + residual[m, n], + c[m, n] where it adds. of_a,
 * of_b: kinds of blocks; else whether there is a scale of each row. */
KERNEL(scaled_mm)
(C *c, const element *RESTRICT a, const element *RESTRICT b, const f32 *RESTRICT scale_a, const f32 *RESTRICT scale_b,
 const C *RESTRICT bias, const C *residual, i64 rows, i64 columns, i64 depth, i64 ld_a, i64 ld_b, i64 ld_c, int of_a, int of_b,
 int adds)
{
    alignas(16) SHARED byte as[TILE], bs[TILE];
    i64     row0 = (i64)block_id(1) * SIDE, column0 = (i64)block_id(0) * SIDE;
    results sum;
    factors f = { a, b, rows, columns, 0, depth, ld_a, ld_b, row0, column0 };
    clear(&sum);
#if MX
    alignas(16) SHARED step_scales scales;
    u32 blocks = ((u32)depth + 31) / 32;
    f.depth = (i64)((u64)depth / IN_BYTE), f.ld_a = (i64)((u64)ld_a / IN_BYTE), f.ld_b = (i64)((u64)ld_b / IN_BYTE);
    product_of(&sum, f, as, bs, scales, { (const byte *)(const void *)scale_a, (u32)row0, (u32)rows, blocks },
               { (const byte *)(const void *)scale_b, (u32)column0, (u32)columns, blocks });
#elif BLOCKS
    u32 blocks = squares_of((u32)depth);
    product_of(&sum, f, as, bs,
               of_block{ { scale_a, of_a, (u32)row0, (u32)rows, blocks }, { scale_b, of_b, (u32)column0, (u32)columns, blocks } });
#else
    product_of(&sum, f, as, bs, as_it_is());
#endif
    EACH_RESULT (sum, row, column, value) {
        i64 m = row0 + row, n = column0 + column;
        if (m >= rows || n >= columns) continue;
        float v = BLOCKS || MX ? value : value * (scale_a[of_a ? m : 0] * scale_b[of_b ? n : 0]);
        if (bias) v += get(bias, n);
        if (residual) v += get(residual, m * columns + n);
        if (adds) v += get(c, m * ld_c + n);
        put(c, m * ld_c + n, v);
    }
}
