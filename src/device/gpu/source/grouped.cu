/* SPDX-License-Identifier: Apache-2.0 */
/* Products of every expert's rows: rows offsets[e] .. offsets[e + 1] - 1 are those of expert e, which is read here. Sums in
 * float32 with k ascending. BY_MATRIX 1: of bfloat16 by matrix units (matrix.cu, whose own kernel comes along); 0: in tiles of
 * float32 arithmetic, of the formats A and B. C, A_ACROSS, B_ACROSS: as in product.cu. */
#if BY_MATRIX
#define A bf16
#define B bf16
#include "matrix.cu"
typedef bf16 tile_row;
enum { TILE_ROWS = SIDE * PITCH };
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

#endif

/* Of a (rows, depth) and b (columns, depth): the product of all rows of a, at most SIDE, by those of b from column0 on. */
struct factors {
    const A *a;
    const B *b;
    i64      rows, columns, depth, ld_a, ld_b, row0, column0;
};

#if BY_MATRIX

DEVICE void product_of(results *sum, const factors &f, tile_row *as, tile_row *bs)
{
    int    whole_a = ((u64)f.a % 16 == 0) & (f.ld_a % 8 == 0), whole_b = ((u64)f.b % 16 == 0) & (f.ld_b % 8 == 0);
    staged next_a = load<A_ACROSS>(f.a, f.row0, 0, f.rows, f.depth, f.ld_a, whole_a);
    staged next_b = load<B_ACROSS>(f.b, f.column0, 0, f.columns, f.depth, f.ld_b, whole_b);
    for (i64 k = 0; k < f.depth; k += DEPTH) {
        keep<A_ACROSS>(as, &next_a);
        keep<B_ACROSS>(bs, &next_b);
        barrier();
        next_a = load<A_ACROSS>(f.a, f.row0, k + DEPTH, f.rows, f.depth, f.ld_a, whole_a);
        next_b = load<B_ACROSS>(f.b, f.column0, k + DEPTH, f.columns, f.depth, f.ld_b, whole_b);
        multiply(sum, as, bs);
        barrier();
    }
}

#else

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

DEVICE void product_of(results *sum, const factors &f, tile_row *as, tile_row *bs)
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
    factors f = { a + begin * rows, b + begin * columns, rows, columns, depth, rows, columns, (i64)block_id(1) * SIDE,
                  (i64)block_id(0) * SIDE };
    clear(&sum);
    product_of(&sum, f, as, bs);
    EACH_RESULT (sum, row, column, value) {
        i64 m = f.row0 + row, n = f.column0 + column, at = (expert * rows + m) * columns + n;
        if (m >= rows || n >= columns) continue;
        put(c, at, adds ? value + get(c, at) : value);
    }
}

#else

#if defined(__HIP__)
DEVICE int exchanged(int x, int mask)
{
    return __builtin_bit_cast(int, other_lane(__builtin_bit_cast(float, x), mask));
}
DEVICE int uniform(int x)
{
    return __builtin_amdgcn_readfirstlane(x);
}
#else
DEVICE int exchanged(int x, int mask)
{
#if WAVE > 1
    x = __shfl_xor_sync(0xffffffffu, x, mask);
#endif
    return x;
}
DEVICE int uniform(int x)
{
    return x;
}
#endif

struct tile_rows {
    int expert, first, end; /* `experts`: rows of nobody; more: there is no such tile */
};

/* Tiles of SIDE rows are numbered expert after expert, then those of nobody's rows. Every wave finds its block's: a lane has
 * an expert, and sums of tiles over the lanes before it come by halves. */
DEVICE tile_rows tile_of(int tile, const int *offsets, int experts, int rows)
{
    int found = 0, from = 0, before = 0, lane = thread_id() % WAVE;
    for (int e0 = 0; e0 <= experts && before <= tile; e0 += WAVE) {
        int e = e0 + lane, begin = e <= experts ? offsets[e] : rows, end = e < experts ? offsets[e + 1] : rows;
        int tiles = (end - begin + SIDE - 1) / SIDE, upto = tiles, all = tiles;
        for (int m = 1; m < WAVE; m <<= 1) {
            int other = exchanged(all, m);
            upto += lane & m ? other : 0;
            all += other;
        }
        int first = before + upto - tiles;
        if (tile >= first && tile < first + tiles) found = e + 1, from = first;
        before += all;
    }
    for (int m = WAVE / 2; m > 0; m >>= 1) found += exchanged(found, m), from += exchanged(from, m);
    found = uniform(found), from = uniform(from);
    if (found == 0) return { experts + 1, 0, 0 };
    int expert = found - 1;
    return { expert, offsets[expert] + (tile - from) * SIDE, expert < experts ? offsets[expert + 1] : rows };
}

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
    factors   f = { a + (i64)t.first * depth, b + (i64)t.expert * columns * depth, own, columns, depth, depth,
                    B_ACROSS ? columns : depth, 0, column0 };
    if (t.expert > experts || (t.expert == experts && adds)) return;
    clear(&sum);
    if (t.expert < experts)
        product_of(&sum, f, as, bs);
    else
        bias = 0, residual = 0;
    EACH_RESULT (sum, row, column, value) {
        i64   n = column0 + column, at = first + row * columns + n;
        float v = value;
        if (row >= own || n >= columns) continue;
        if (bias) v += get(bias, t.expert * columns + n);
        if (residual) v += get(residual, at);
        put(c, at, adds ? v + get(c, at) : v);
    }
}

#endif
