/* SPDX-License-Identifier: Apache-2.0 */
/* Products of matrices in tiles of 64 x 64, for every GPU: 4 x 4 results a thread, sums in float32 with k ascending. A,
 * B, C: formats. A_ACROSS, B_ACROSS: 1 where k goes from row to row of that matrix, 0 where it goes along a row. */

enum { TILE = 64, DEPTH = 16 };

DEVICE float element(const A *a, i64 m, i64 k, i64 ld)
{
    return get(a, A_ACROSS ? k * ld + m : m * ld + k);
}
DEVICE float element_b(const B *b, i64 n, i64 k, i64 ld)
{
    return get(b, B_ACROSS ? k * ld + n : n * ld + k);
}

/* c[m, n] = sum over k of a(m, k) b(n, k), + bias[n] + residual[m, n], + c[m, n] where it adds. */
KERNEL(product)
(C *c, const A *RESTRICT a, const B *RESTRICT b, const B *RESTRICT bias, const C *residual, i64 rows, i64 columns,
 i64 depth, i64 ld_a, i64 ld_b, i64 ld_c, int adds)
{
    SHARED float as[DEPTH][TILE + 1], bs[DEPTH][TILE + 1];
    int          thread = thread_id(), x = thread & 15, y = thread >> 4;
    i64          row0 = (i64)block_id(1) * TILE, column0 = (i64)block_id(0) * TILE;
    float        sum[4][4] = {};
    for (i64 k0 = 0; k0 < depth; k0 += DEPTH) {
        UNROLL for (int n = 0, t = thread; n < TILE * DEPTH / BLOCK; n++, t += BLOCK) {
            /* neighbours in a wave read neighbours in memory */
            int ma = A_ACROSS ? t % TILE : t / DEPTH, ka = A_ACROSS ? t / TILE : t % DEPTH;
            int nb = B_ACROSS ? t % TILE : t / DEPTH, kb = B_ACROSS ? t / TILE : t % DEPTH;
            as[ka][ma] = row0 + ma < rows && k0 + ka < depth ? element(a, row0 + ma, k0 + ka, ld_a) : 0.0f;
            bs[kb][nb] = column0 + nb < columns && k0 + kb < depth ? element_b(b, column0 + nb, k0 + kb, ld_b) : 0.0f;
        }
        barrier();
        UNROLL for (int k = 0; k < DEPTH; k++) UNROLL for (int i = 0; i < 4; i++) UNROLL for (int j = 0; j < 4; j++)
            sum[i][j] = multiply_add(as[k][y * 4 + i], bs[k][x * 4 + j], sum[i][j]);
        barrier();
    }
    UNROLL for (int i = 0; i < 4; i++) UNROLL for (int j = 0; j < 4; j++)
    {
        i64 m = row0 + y * 4 + i, n = column0 + x * 4 + j;
        if (m >= rows || n >= columns) continue;
        float value = sum[i][j];
        if (bias) value += get(bias, n);
        if (residual) value += get(residual, m * columns + n);
        if (adds) value += get(c, m * ld_c + n);
        put(c, m * ld_c + n, value);
    }
}
