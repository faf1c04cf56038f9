/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of the heads of a row, each by itself, and their gradients: a wave for each head. X: format of activations, W:
 * of weights, D: of their gradients. Statistics are float32. */

enum { WAVES = BLOCK / WAVE, SPAN = 8 * WAVE /* columns that a wave copies */ };

/* Head h begins at column first + h stride; from `second` on, if that is not 0, heads have the second `dim` weights. */
#define HEADS int heads, int dim, int first, int stride, int second

/* Every piece of every row, by waves: its heads, then spans of its columns. There are fewer than 2^31 pieces. */
#define EACH_PIECE(row, piece, rows, pieces)                                                                           \
    for (u32 n_ = (u32)block_id(0) * WAVES + (u32)thread_id() / WAVE; n_ < (u32)(rows) * (u32)(pieces);                \
         n_ += (u32)blocks(0) * WAVES)                                                                                 \
        if (int row = (int)(n_ / (u32)(pieces)), piece = (int)n_ - row * (pieces); true)

/* Span number `span` of a row, but for the columns of heads. */
DEVICE void copy_others(X *y, const X *x, int span, int width, HEADS)
{
    for (int c = span * SPAN + thread_id() % WAVE; c < (span + 1) * SPAN && c < width; c += WAVE) {
        int head = c < first ? heads : (c - first) / stride;
        if (head >= heads || c - first - head * stride >= dim) y[c] = x[c];
    }
}

KERNEL(head_norm)
(X *RESTRICT y, f32 *RESTRICT rstd, const X *RESTRICT x, const W *RESTRICT w, int rows, int width, int spans, HEADS,
 float eps)
{
    int lane = thread_id() % WAVE;
    EACH_PIECE(row, piece, rows, heads + spans)
    {
        i64 at = (i64)row * width;
        if (piece >= heads) {
            copy_others(y + at, x + at, piece - heads, width, heads, dim, first, stride, second);
            continue;
        }
        const W *weights = second > 0 && piece >= second ? w + dim : w;
        float    sum = 0.0f;
        at += first + piece * stride;
        for (int d = lane; d < dim; d += WAVE) {
            float v = get(x, at + d);
            sum = multiply_add(v, v, sum);
        }
        float r = 1.0f / square_root(wave_sum(sum) / (float)dim + eps);
        if (lane == 0) rstd[(i64)row * heads + piece] = r;
        for (int d = lane; d < dim; d += WAVE) put(y, at + d, get(x, at + d) * r * get(weights, d));
    }
}

/* dx may lie where dy does: each thread has read an element before it writes it. */
KERNEL(head_norm_grad)
(X *dx, const X *dy, const X *RESTRICT x, const W *RESTRICT w, const f32 *RESTRICT rstd, int rows, int width, int spans,
 HEADS)
{
    int lane = thread_id() % WAVE;
    EACH_PIECE(row, piece, rows, heads + spans)
    {
        i64 at = (i64)row * width;
        if (piece >= heads) {
            copy_others(dx + at, dy + at, piece - heads, width, heads, dim, first, stride, second);
            continue;
        }
        const W *weights = second > 0 && piece >= second ? w + dim : w;
        float    r = rstd[(i64)row * heads + piece], sum = 0.0f;
        at += first + piece * stride;
        for (int d = lane; d < dim; d += WAVE)
            sum = multiply_add(get(dy, at + d) * get(weights, d), get(x, at + d), sum);
        sum = wave_sum(sum) * r * r / (float)dim;
        for (int d = lane; d < dim; d += WAVE)
            put(dx, at + d, r * (get(dy, at + d) * get(weights, d) - get(x, at + d) * sum));
    }
}

/* dy x rstd summed over a chunk of rows, for each element of each head: a thread each. */
KERNEL(head_norm_parts)
(f32 *RESTRICT part, const X *RESTRICT dy, const X *RESTRICT x, const f32 *RESTRICT rstd, int rows, int width,
 int chunk, HEADS)
{
    int e = block_id(0) * BLOCK + thread_id(), head = e / dim;
    int row0 = block_id(1) * chunk, end = row0 + chunk < rows ? row0 + chunk : rows;
    if (e >= heads * dim) return;
    i64   column = first + head * stride + (e - head * dim);
    float sum = 0.0f;
    for (int row = row0; row < end; row++) {
        i64 at = (i64)row * width + column;
        sum = multiply_add(get(dy, at) * get(x, at), rstd[(i64)row * heads + head], sum);
    }
    part[(i64)block_id(1) * heads * dim + e] = sum;
}

/* And over the chunks and the heads that have a weight, in a fixed order: a block for ACROSS weights. adds: to what is
 * there. */
enum { ACROSS = 8, PARTS = BLOCK / ACROSS };

KERNEL(head_norm_sums)
(D *RESTRICT dw, const f32 *RESTRICT part, int chunks, int heads, int dim, int second, int adds)
{
    SHARED float room[PARTS][ACROSS];
    int          column = thread_id() % ACROSS, mine = thread_id() / ACROSS, c = block_id(0) * ACROSS + column;
    int          half = c >= dim, from = half ? second : 0, n = (second > 0 && !half ? second : heads) - from;
    bool         inside = c < (second > 0 ? 2 : 1) * dim;
    float        sum = 0.0f;
    for (int i = mine; inside && i < chunks * n; i += PARTS) {
        int k = i / n;
        sum += part[((i64)k * heads + from + i - k * n) * dim + c - half * dim];
    }
    room[mine][column] = sum;
    barrier();
    if (mine > 0 || !inside) return;
    for (int k = 1; k < PARTS; k++) sum += room[k][column];
    put(dw, c, adds ? get(dw, c) + sum : sum);
}
