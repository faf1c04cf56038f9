/* SPDX-License-Identifier: Apache-2.0 */
/* Rows to their experts and back, all gathered, none scattered to where others add. Place p has the pair order[p] = t k + j
 * of row t and slot j; inverse[t k + j] = p. X, Y, W: formats, said with each kernel. A thread has eight columns. */

enum { RUN = 8, WAVES = BLOCK / WAVE };

struct run {
    float of[RUN];
};
struct alignas(16) four {
    u32 of[4];
};

/* May runs be loaded and stored as 16 bytes? */
DEVICE bool whole(const void *x, i64 ld)
{
    return ((u64)x % 16 == 0) & (ld % RUN == 0);
}

/* Columns c .. c + 7 of a row that begins at element `row`; those from `columns` on are zeros. */
DEVICE run load_run(const f32 *x, i64 row, int c, int columns, bool at_once)
{
    run r;
    if (at_once && columns - c >= RUN) {
        const four *from = (const four *)(x + row + c);
        four        low = from[0], high = from[1];
        UNROLL for (int i = 0; i < 4; i++) r.of[i] = float_of(low.of[i]), r.of[4 + i] = float_of(high.of[i]);
        return r;
    }
    UNROLL for (int i = 0; i < RUN; i++) r.of[i] = c + i < columns ? x[row + c + i] : 0.0f;
    return r;
}
DEVICE run load_run(const bf16 *x, i64 row, int c, int columns, bool at_once)
{
    run r;
    if (at_once && columns - c >= RUN) {
        four words = *(const four *)(x + row + c);
        UNROLL for (int i = 0; i < 4; i++) {
            r.of[2 * i] = float_of(words.of[i] << 16);
            r.of[2 * i + 1] = float_of(words.of[i] & 0xffff0000u);
        }
        return r;
    }
    UNROLL for (int i = 0; i < RUN; i++) r.of[i] = c + i < columns ? get(x, row + c + i) : 0.0f;
    return r;
}

DEVICE void store_run(f32 *y, i64 row, int c, int columns, bool at_once, const run &r)
{
    if (at_once && columns - c >= RUN) {
        four low, high;
        UNROLL for (int i = 0; i < 4; i++) low.of[i] = bits_of(r.of[i]), high.of[i] = bits_of(r.of[4 + i]);
        four *to = (four *)(y + row + c);
        to[0] = low, to[1] = high;
        return;
    }
    UNROLL for (int i = 0; i < RUN; i++) {
        if (c + i >= columns) break;
        y[row + c + i] = r.of[i];
    }
}
DEVICE u32 rounded(float value)
{
    bf16 b;
    put(&b, 0, value);
    return b.bits;
}
DEVICE void store_run(bf16 *y, i64 row, int c, int columns, bool at_once, const run &r)
{
    if (at_once && columns - c >= RUN) {
        four words;
        UNROLL for (int i = 0; i < 4; i++) words.of[i] = rounded(r.of[2 * i]) | rounded(r.of[2 * i + 1]) << 16;
        *(four *)(y + row + c) = words;
        return;
    }
    UNROLL for (int i = 0; i < RUN; i++) {
        if (c + i >= columns) break;
        put(y, row + c + i, r.of[i]);
    }
}

/* Every run of columns of every row; there are fewer than 2^32. */
#define EACH_RUN(row, c, rows, columns)                                                                                \
    EACH (i_, (i64)(rows) * (((columns) + RUN - 1) / RUN))                                                             \
        if (u32 runs_ = ((u32)(columns) + RUN - 1) / RUN, row_ = (u32)i_ / runs_; true)                                \
            if (i64 row = row_; true)                                                                                  \
                if (int c = (int)((u32)i_ - row_ * runs_) * RUN; true)

/* X -> Y. weights NULL: all are 1. */
KERNEL(gather_rows)
(Y *RESTRICT y, const X *RESTRICT x, const int *RESTRICT order, const W *RESTRICT weights, i64 places, int columns, int top_k)
{
    bool from = whole(x, columns), to = whole(y, columns);
    EACH_RUN (p, c, places, columns) {
        int   pair = order[p];
        float w = weights ? get(weights, pair) : 1.0f;
        run   r = load_run(x, (i64)((u32)pair / (u32)top_k) * columns, c, columns, from);
        UNROLL for (int i = 0; i < RUN; i++) r.of[i] = w * r.of[i];
        store_run(y, p * columns, c, columns, to, r);
    }
}

/* X -> Y. z may lie where the addend lies. weights NULL: all are 1; addend NULL: 0. */
KERNEL(combine)
(Y *z, const X *RESTRICT y, const int *RESTRICT inverse, const W *RESTRICT weights, const Y *addend, i64 rows, int columns,
 int top_k)
{
    bool from = whole(y, columns), to = whole(z, columns), beside = whole(addend, columns);
    EACH_RUN (t, c, rows, columns) {
        run sum;
        UNROLL for (int i = 0; i < RUN; i++) sum.of[i] = 0.0f;
        if (addend) sum = load_run(addend, t * columns, c, columns, beside);
        for (int j = 0; j < top_k; j++) {
            i64   pair = t * top_k + j;
            float w = weights ? get(weights, pair) : 1.0f;
            run   r = load_run(y, (i64)inverse[pair] * columns, c, columns, from);
            UNROLL for (int i = 0; i < RUN; i++) sum.of[i] = multiply_add(w, r.of[i], sum.of[i]);
        }
        store_run(z, t * columns, c, columns, to, sum);
    }
}

/* X: of the rows, Y: of the places, W: of the result. A wave for each pair. */
KERNEL(combine_weights_grad)
(W *RESTRICT dw, const X *RESTRICT a, const Y *RESTRICT b, const int *RESTRICT inverse, i64 pairs, int columns, int top_k)
{
    bool  from_a = whole(a, columns), from_b = whole(b, columns);
    i64   pair = (i64)block_id(0) * WAVES + thread_id() / WAVE;
    int   lane = thread_id() % WAVE;
    float sum = 0.0f;
    if (pair >= pairs) return;
    i64 row_a = (i64)((u32)pair / (u32)top_k) * columns, row_b = (i64)inverse[pair] * columns;
    for (int c = lane * RUN; c < columns; c += WAVE * RUN) {
        run x = load_run(a, row_a, c, columns, from_a), y = load_run(b, row_b, c, columns, from_b);
        UNROLL for (int i = 0; i < RUN; i++) sum = multiply_add(x.of[i], y.of[i], sum);
    }
    sum = wave_sum(sum);
    if (lane == 0) put(dw, pair, sum);
}

/* X: of rows and table. */
KERNEL(put_rows)
(X *RESTRICT y, const X *RESTRICT x, const int *RESTRICT row, i64 rows, int columns, i64 ld)
{
    bool from = whole(x, ld), to = whole(y, columns);
    EACH_RUN (n, c, rows, columns)
        store_run(y, (i64)row[n] * columns, c, columns, to, load_run(x, n * ld, c, columns, from));
}

/* X: of dy, Y: of the bias. The rows of an expert (grid's second dimension) are added one after the other. */
KERNEL(grouped_bias_grad)(Y *RESTRICT db, const X *RESTRICT dy, const int *RESTRICT offsets, int columns, int adds)
{
    int   c = block_id(0) * BLOCK + thread_id(), begin = offsets[block_id(1)], end = offsets[block_id(1) + 1];
    i64   at = (i64)block_id(1) * columns + c;
    float sum = 0.0f;
    if (c >= columns) return;
    for (int r = begin; r < end; r++) sum += get(dy, (i64)r * columns + c);
    put(db, at, adds ? get(db, at) + sum : sum);
}
