/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of adapters: elements times a number, sums with a bias, dropout, and what DoRA needs. X: format of activations, Y: of
 * the result, W: of weights. Adapted parts of a matrix are runs of its columns (of its rows, of a weight). */

#include "vectors.cu"

struct multiplied {
    float value;
    METHOD float operator()(float x) const
    {
        return value * x;
    }
};
/* y = value x; y may be x. */
KERNEL(scaled)(Y *y, const X *x, i64 n, float value, int wide)
{
    map<Y, X>(y, x, n, wide, multiplied{ value });
}

struct biased_rows {
    X       *y;
    const X *a, *b;
    const W *bias;
    int      columns;
    template <int N>
    METHOD void at(i64 row, int c) const
    {
        i64       from = row * columns + c;
        run<X, N> v = load<X, N>(a, from), u = load<X, N>(b, from);
        run<W, N> w = load<W, N>(bias, c);
        floats<N> sum;
        UNROLL for (int e = 0; e < N; e++) sum.of[e] = element(v, e) + element(u, e) + element(w, e);
        store<X, N>(y, from, sum);
    }
};
/* y may be a or b. */
KERNEL(add_bias)(X *y, const X *a, const X *b, const W *RESTRICT bias, i64 rows, int columns, int wide)
{
    each_piece_of_rows<RUN_OF(X, X)>(rows, columns, wide, biased_rows{ y, a, b, bias, columns });
}

/* --- dropout --- */

/* Philox-4x32-10 as base/random.c has it: the first two words. */
DEVICE void philox(u64 key, u64 stream, u64 index, u32 *low, u32 *high)
{
    u32 k0 = (u32)key, k1 = (u32)(key >> 32), c0 = (u32)index, c1 = (u32)(index >> 32), c2 = (u32)stream,
        c3 = (u32)(stream >> 32);
    UNROLL for (int round = 0; round < 10; round++) {
        u64 p0 = (u64)0xd2511f53u * c0, p1 = (u64)0xcd9e8d57u * c2;
        c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
        c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c1 = (u32)p1;
        c3 = (u32)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    *low = c0;
    *high = c1;
}

/* The magnitude of a double below 2^52, as the nearest whole number. */
DEVICE u64 whole_number(u64 bits)
{
    int shift = 1075 - (int)(bits >> 52 & 2047u); /* the last bit of the fraction is worth 2^-shift */
    if (shift > 53) return 0;
    return ((1ull << (53 - shift)) + ((bits & ((1ull << 52) - 1u)) >> (shift - 1)) + 1u) >> 1;
}

/* Of op/keeps.h, whose attributes these are: element number e of all rows stays where the half of the random bits of e / 2
 * that is its own is not below `least`. A thread has the two elements of one number. Rows of x are ld elements apart;
 * first_row: a double. */
KERNEL(dropout)
(X *RESTRICT y, const X *RESTRICT x, const u64 *RESTRICT first_row, i64 ld, i64 key, i64 stream, i64 column, i64 width,
 int rows, int columns, int least, int chunk, int seq, int first, int second, int part, int parts, float up)
{
    u64 from = whole_number(*first_row);
    u32 half = (u32)(parts > 1 ? parts * rows : rows) / 2u;
    EACH_OF_ROWS (row, k, rows, columns / 2 + 1) {
        u32 number = (u32)(parts > 1 ? part * rows : 0) + (u32)row, bits[2];
        u64 place = number;
        if (chunk) {
            u32 at = number < half ? number : number - half;
            place = (u64)(at / (u32)chunk) * (u32)seq + (u32)(number < half ? first : second) + at % (u32)chunk;
        }
        u64 element = (from + place) * (u64)width + (u64)column;
        philox((u64)key, (u64)stream, element / 2 + (u32)k, &bits[0], &bits[1]);
        UNROLL for (int i = 0; i < 2; i++) {
            int c = 2 * k + i - (int)(element & 1u);
            if (c < 0 || c >= columns) continue;
            put(y, row * columns + c, bits[i] >= (u32)least ? up * get(x, row * ld + c) : 0.0f);
        }
    }
}

/* --- magnitude and direction --- */

/* Columns and their numbers, of up to six parts; absent ones have none. */
#define PARTS                                                                                                          \
    int column_0, int column_1, int column_2, int column_3, int column_4, int column_5, int n_0, int n_1, int n_2,     \
        int n_3, int n_4, int n_5
#define GIVEN column_0, column_1, column_2, column_3, column_4, column_5, n_0, n_1, n_2, n_3, n_4, n_5
#define EACH_PART(LOOK) LOOK(0) LOOK(1) LOOK(2) LOOK(3) LOOK(4) LOOK(5)

/* The number of a column among those of all parts; -1: it is in none. */
DEVICE int adapted(int column, PARTS)
{
    int before = 0, found = -1;
#define LOOK(p)                                                                                                        \
    if (column >= column_##p && column - column_##p < n_##p) found = before + column - column_##p;                    \
    before += n_##p;
    EACH_PART(LOOK)
#undef LOOK
    return found;
}

/* And back. */
DEVICE int column_of(int number, PARTS)
{
    int before = 0, found = 0;
#define LOOK(p)                                                                                                        \
    if (number >= before && number - before < n_##p) found = column_##p + number - before;                            \
    before += n_##p;
    EACH_PART(LOOK)
#undef LOOK
    return found;
}

/* The norm of a row of zeros counts as 1. */
DEVICE float norm_at(const f32 *norm, int i)
{
    float n = norm[i];
    return n == 0.0f ? 1.0f : n;
}

/* y = z m / n + bias + residual, the last two where they are given; a column of no part is not rescaled. y may be z or the
 * residual. A thread has a column of several rows. V: format of m, W: of the bias. */
KERNEL(rescale)
(X *y, const X *z, const V *RESTRICT m, const f32 *RESTRICT norm, const W *RESTRICT bias, const X *residual, i64 rows,
 int columns, PARTS)
{
    int c = block_id(0) * BLOCK + thread_id();
    if (c >= columns) return;
    int   number = adapted(c, GIVEN);
    float factor = number < 0 ? 1.0f : get(m, number) / norm_at(norm, number), added = bias ? get(bias, c) : 0.0f;
    for (i64 row = block_id(1); row < rows; row += blocks(1)) {
        i64   at = row * columns + c;
        float value = factor * get(z, at) + added;
        put(y, at, residual ? value + get(residual, at) : value);
    }
}

/* Sums of dy z over `chunk` rows, of the columns of all parts: part (chunks, all). */
KERNEL(magnitude_parts)
(f32 *RESTRICT part, const X *RESTRICT dy, const X *RESTRICT z, i64 rows, int columns, int chunk, int all, PARTS)
{
    int i = block_id(0) * BLOCK + thread_id();
    i64 first = (i64)block_id(1) * chunk, end = first + chunk < rows ? first + chunk : rows;
    if (i >= all) return;
    int   c = column_of(i, GIVEN);
    float sum = 0.0f;
    for (i64 row = first; row < end; row++)
        sum = multiply_add(get(dy, row * columns + c), get(z, row * columns + c), sum);
    part[(i64)block_id(1) * all + i] = sum;
}

/* And over the chunks, in ascending order, divided by the norms. adds: to what is there. */
KERNEL(magnitude_sums)(Y *dm, const f32 *RESTRICT part, const f32 *RESTRICT norm, int all, int chunks, int adds)
{
    int i = block_id(0) * BLOCK + thread_id();
    if (i >= all) return;
    float sum = 0.0f;
    for (int k = 0; k < chunks; k++) sum += part[(i64)k * all + i];
    sum /= norm_at(norm, i);
    put(dm, i, adds ? get(dm, i) + sum : sum);
}

enum { ROWS = 4, RUNS = 4 };

/* Lengths of w + scale b a, row by row: a block has ROWS of them, a thread RUNS columns at a time. w (rows, width), a (rank,
 * width), b (rows, rank), norm (rows); the rank is at least 1. V: format of a and b. Squares are summed in double. */
KERNEL(adapted_norm)
(f32 *RESTRICT norm, const W *RESTRICT w, const V *RESTRICT a, const V *RESTRICT b, int rows, int width, int rank,
 float scale)
{
    SHARED double room[BLOCK][ROWS];
    int           thread = thread_id(), first = block_id(0) * ROWS;
    double        squares[ROWS] = {};
    for (int k0 = thread; k0 < width; k0 += BLOCK * RUNS) {
        float value[ROWS][RUNS];
        UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int j = 0; j < RUNS; j++)
        {
            int row = first + i < rows ? first + i : rows - 1, k = k0 + j * BLOCK;
            value[i][j] = k < width ? get(w, (i64)row * width + k) : 0.0f;
        }
        ROLLED for (int r = 0; r == 0 || r < rank; r++) {
            float x[RUNS];
            UNROLL for (int j = 0; j < RUNS; j++)
                x[j] = k0 + j * BLOCK < width ? get(a, (i64)r * width + k0 + j * BLOCK) : 0.0f;
            UNROLL for (int i = 0; i < ROWS; i++) {
                int   row = first + i < rows ? first + i : rows - 1;
                float factor = scale * get(b, (i64)row * rank + r);
                UNROLL for (int j = 0; j < RUNS; j++) value[i][j] = multiply_add(factor, x[j], value[i][j]);
            }
        }
        UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int j = 0; j < RUNS; j++)
            squares[i] += (double)value[i][j] * (double)value[i][j];
    }
    UNROLL for (int i = 0; i < ROWS; i++) room[thread][i] = squares[i];
    barrier();
    ROLLED for (int m = BLOCK / 2; m > 0; m >>= 1) {
        if (thread < m) {
            UNROLL for (int i = 0; i < ROWS; i++) room[thread][i] += room[thread + m][i];
        }
        barrier();
    }
    if (thread < ROWS && first + thread < rows) norm[first + thread] = (float)square_root(room[0][thread]);
}

/* Lengths of rows from those of `parts` pieces of each: of the first ones and, where given, of further ones. */
KERNEL(joined_norm)(f32 *norm, const f32 *pieces, const f32 *further, i64 rows, i64 parts)
{
    EACH (j, rows) {
        double squares = 0.0;
        for (i64 p = 0; p < parts; p++) {
            double x = (double)pieces[p * rows + j], y = further ? (double)further[p * rows + j] : 0.0;
            squares += x * x + y * y;
        }
        norm[j] = (float)square_root(squares);
    }
}
