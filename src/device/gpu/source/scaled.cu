/* SPDX-License-Identifier: Apache-2.0 */
/* Products of codes of 8 bits by matrix units (fragments.cu), both along their rows. C: format of the result; A_E5M2, B_E5M2:
 * which codes are e5m2. */
#define CODES 1
#define A_ACROSS 0
#define B_ACROSS 0
#include "fragments.cu"

/* c[m, n] = scale_a[m] scale_b[n] sum over k of a[m, k] b[n, k], + bias[n] + residual[m, n], + c[m, n] where it adds. lines_a,
 * lines_b: there is a scale of each row; else one of the matrix. */
KERNEL(scaled_mm)
(C *c, const element *RESTRICT a, const element *RESTRICT b, const f32 *RESTRICT scale_a, const f32 *RESTRICT scale_b,
 const C *RESTRICT bias, const C *residual, i64 rows, i64 columns, i64 depth, i64 ld_a, i64 ld_b, i64 ld_c, int lines_a,
 int lines_b, int adds)
{
    alignas(16) SHARED byte as[TILE], bs[TILE];
    i64     row0 = (i64)block_id(1) * SIDE, column0 = (i64)block_id(0) * SIDE;
    results sum;
    clear(&sum);
    product_of(&sum, { a, b, rows, columns, 0, depth, ld_a, ld_b, row0, column0 }, as, bs, as_it_is());
    EACH_RESULT (sum, row, column, value) {
        i64 m = row0 + row, n = column0 + column;
        if (m >= rows || n >= columns) continue;
        float v = value * (scale_a[lines_a ? m : 0] * scale_b[lines_b ? n : 0]);
        if (bias) v += get(bias, n);
        if (residual) v += get(residual, m * columns + n);
        if (adds) v += get(c, m * ld_c + n);
        put(c, m * ld_c + n, v);
    }
}
