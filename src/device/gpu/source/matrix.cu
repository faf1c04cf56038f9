/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bfloat16 matrices by matrix units (fragments.cu). C: format of the result. A_ACROSS, B_ACROSS: 1 where k goes
 * from row to row of that matrix, 0 where it goes along a row. */
#define CODES 0
#include "fragments.cu"

/* As product (product.cu): c = a b^T + bias + residual, + c where it adds. */
KERNEL(product_matrix)
(C *c, const bf16 *RESTRICT a, const bf16 *RESTRICT b, const bf16 *RESTRICT bias, const C *residual, i64 rows,
 i64 columns, i64 depth, i64 ld_a, i64 ld_b, i64 ld_c, int adds)
{
    alignas(16) SHARED byte as[TILE], bs[TILE];
    i64     row0 = (i64)block_id(1) * SIDE, column0 = (i64)block_id(0) * SIDE;
    results sum;
    clear(&sum);
    product_of(&sum, { a, b, rows, columns, 0, depth, ld_a, ld_b, row0, column0 }, as, bs, as_it_is());
    EACH_RESULT (sum, row, column, value) {
        i64 m = row0 + row, n = column0 + column;
        if (m >= rows || n >= columns) continue;
        float v = value;
        if (bias) v += get(bias, n);
        if (residual) v += get(residual, m * columns + n);
        if (adds) v += get(c, m * ld_c + n);
        put(c, m * ld_c + n, v);
    }
}
