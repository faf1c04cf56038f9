/* SPDX-License-Identifier: Apache-2.0 */
/* Products of every expert's rows: rows offsets[e] .. offsets[e + 1] - 1 are those of expert e, which is read here. Sums in
 * float32 with k ascending. BY_MATRIX 1: of bfloat16 by matrix units (fragments.cu); 0: in tiles of float32 arithmetic, of the
 * formats A and B. C, A_ACROSS, B_ACROSS: as in product.cu. */
#if BY_MATRIX
#define A bf16
#define B bf16
#define CODES 0
#include "fragments.cu"
typedef byte tile_row;
enum { TILE_ROWS = TILE };
#else

enum { SIDE = 64, DEPTH = 16, TILE_ROWS = DEPTH };
typedef float tile_row[SIDE + 1];
struct results {
    float of[4][4];
};

DEVICE void clear(results *c)
{
    UNROLL for (int i = 0; i < 4; i++) UNROLL for (int j = 0; j < 4; j++) c->of[i][j] = 0.0f;
}

/* Row and column of a result, within the block's. */
#define EACH_RESULT(c, row, column, value)                                                                             \
    UNROLL for (int i_ = 0; i_ < 4; i_++)                                                                              \
        UNROLL for (int j_ = 0; j_ < 4; j_++)                                                                          \
            if (float value = (c).of[i_][j_]; true)                                                                    \
                if (int row = (thread_id() >> 4) * 4 + i_, column = (thread_id() & 15) * 4 + j_; true)

/* Of a (rows, depth) and b (columns, depth): the product of all rows of a, at most SIDE, by those of b from column0 on. */
struct factors {
    const A *a;
    const B *b;
    i64      rows, columns, from, depth, ld_a, ld_b, row0, column0;
};
struct as_it_is {};

/* Neighbours in a wave read neighbours in memory. */
template <int ACROSS, typename T>
DEVICE void load_tile(tile_row *to, const T *x, i64 row0, i64 k0, i64 rows, i64 depth, i64 ld)
{
    UNROLL for (int n = 0, t = thread_id(); n < SIDE * DEPTH / BLOCK; n++, t += BLOCK) {
        int m = ACROSS ? t % SIDE : t / DEPTH, k = ACROSS ? t / SIDE : t % DEPTH;
        i64 row = row0 + m, at = k0 + k;
        to[k][m] = row < rows && at < depth ? get(x, ACROSS ? at * ld + row : row * ld + at) : 0.0f;
    }
}

DEVICE void product_of(results *sum, const factors &f, tile_row *as, tile_row *bs, as_it_is)
{
    int x = thread_id() & 15, y = thread_id() >> 4;
    for (i64 k0 = 0; k0 < f.depth; k0 += DEPTH) {
        load_tile<A_ACROSS>(as, f.a, f.row0, k0, f.rows, f.depth, f.ld_a);
        load_tile<B_ACROSS>(bs, f.b, f.column0, k0, f.columns, f.depth, f.ld_b);
        barrier();
        UNROLL for (int k = 0; k < DEPTH; k++) UNROLL for (int i = 0; i < 4; i++) UNROLL for (int j = 0; j < 4; j++)
            sum->of[i][j] = multiply_add(as[k][y * 4 + i], bs[k][x * 4 + j], sum->of[i][j]);
        barrier();
    }
}

#endif

#if A_ACROSS

/* dw_e = dy_e^T x_e: c (experts, rows, columns), a (.., rows), b (.., columns). The grid's third dimension: experts. */
KERNEL(grouped_weights)
(C *c, const A *RESTRICT a, const B *RESTRICT b, const int *RESTRICT offsets, i64 rows, i64 columns, int adds)
{
    alignas(16) SHARED tile_row as[TILE_ROWS], bs[TILE_ROWS];
    i64     expert = block_id(2), begin = offsets[expert], depth = offsets[expert + 1] - begin;
    results sum;
    factors f = { a + begin * rows, b + begin * columns, rows, columns, 0, depth, rows, columns, (i64)block_id(1) * SIDE,
                  (i64)block_id(0) * SIDE };
    clear(&sum);
    product_of(&sum, f, as, bs, as_it_is());
    EACH_RESULT (sum, row, column, value) {
        i64 m = f.row0 + row, n = f.column0 + column, at = (expert * rows + m) * columns + n;
        if (m >= rows || n >= columns) continue;
        put(c, at, adds ? value + get(c, at) : value);
    }
}

#else

#include "expert_tiles.cu"

/* c_r = a_r b_e^T + bias_e + residual_r, + c_r where it adds: c (rows, columns), a (rows, depth), b_e (columns, depth). Rows of
 * nobody are 0. */
KERNEL(grouped_rows)
(C *c, const A *RESTRICT a, const B *RESTRICT b, const int *RESTRICT offsets, const B *RESTRICT bias, const C *residual,
 int experts, int rows, i64 columns, i64 depth, int adds)
{
    alignas(16) SHARED tile_row as[TILE_ROWS], bs[TILE_ROWS];
    tile_rows t = tile_of(block_id(1), offsets, experts, rows);
    i64       own = t.end - t.first, first = (i64)t.first * columns, column0 = (i64)block_id(0) * SIDE;
    results   sum;
    factors   f = { a + (i64)t.first * depth, b + (i64)t.expert * columns * depth, own, columns, 0, depth, depth,
                    B_ACROSS ? columns : depth, 0, column0 };
    if (t.expert > experts || (t.expert == experts && adds)) return;
    clear(&sum);
    bool somebody = t.expert < experts;
    if (somebody) product_of(&sum, f, as, bs, as_it_is());
    EACH_RESULT (sum, row, column, value) {
        i64   n = column0 + column, at = first + row * columns + n;
        float v = value;
        if (row >= own || n >= columns) continue;
        if (somebody && bias) v += get(bias, t.expert * columns + n);
        if (somebody && residual) v += get(residual, at);
        put(c, at, adds ? v + get(c, at) : v);
    }
}

#endif
