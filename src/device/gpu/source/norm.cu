/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of rows and their gradients; sums over rows. A block per row, or a thread per column. X: format of activations,
 * W: of weights, D: of their gradients. Statistics are float32. */

enum { ROOM = BLOCK / WAVE };

KERNEL(rmsnorm)(X *RESTRICT y, f32 *RESTRICT rstd, const X *RESTRICT x, const W *RESTRICT w, int columns, float eps)
{
    SHARED float room[ROOM];
    i64          row = (i64)block_id(0) * columns;
    float        sum = 0.0f;
    for (int c = thread_id(); c < columns; c += BLOCK) {
        float v = get(x, row + c);
        sum = multiply_add(v, v, sum);
    }
    float r = 1.0f / square_root(block_sum(sum, room) / (float)columns + eps);
    if (thread_id() == 0) rstd[block_id(0)] = r;
    for (int c = thread_id(); c < columns; c += BLOCK) put(y, row + c, get(x, row + c) * r * get(w, c));
}

/* dx may lie where dy or the addend lies: each thread has read an element before it writes it. */
KERNEL(rmsnorm_grad)
(X *dx, const X *dy, const X *RESTRICT x, const W *RESTRICT w, const f32 *RESTRICT rstd, const X *addend, int columns)
{
    SHARED float room[ROOM];
    i64          row = (i64)block_id(0) * columns;
    float        r = rstd[block_id(0)], sum = 0.0f;
    for (int c = thread_id(); c < columns; c += BLOCK)
        sum = multiply_add(get(dy, row + c) * get(w, c), get(x, row + c), sum);
    sum = block_sum(sum, room) * r * r / (float)columns;
    for (int c = thread_id(); c < columns; c += BLOCK) {
        float d = r * (get(dy, row + c) * get(w, c) - get(x, row + c) * sum);
        put(dx, row + c, addend ? get(addend, row + c) + d : d);
    }
}

KERNEL(layernorm)
(X *RESTRICT y, f32 *RESTRICT mean, f32 *RESTRICT rstd, const X *RESTRICT x, const W *RESTRICT w, const W *RESTRICT b,
 int columns, float eps)
{
    SHARED float room[2][ROOM];
    i64          row = (i64)block_id(0) * columns;
    float        sum = 0.0f, squares = 0.0f;
    for (int c = thread_id(); c < columns; c += BLOCK) sum += get(x, row + c);
    float m = block_sum(sum, room[0]) / (float)columns;
    for (int c = thread_id(); c < columns; c += BLOCK) {
        float v = get(x, row + c) - m;
        squares = multiply_add(v, v, squares);
    }
    float r = 1.0f / square_root(block_sum(squares, room[1]) / (float)columns + eps);
    if (thread_id() == 0) mean[block_id(0)] = m, rstd[block_id(0)] = r;
    for (int c = thread_id(); c < columns; c += BLOCK) {
        float v = (get(x, row + c) - m) * r * get(w, c);
        put(y, row + c, b ? v + get(b, c) : v);
    }
}

KERNEL(layernorm_grad)
(X *dx, const X *dy, const X *RESTRICT x, const W *RESTRICT w, const f32 *RESTRICT mean, const f32 *RESTRICT rstd,
 const X *addend, int columns)
{
    SHARED float room[2][ROOM];
    i64          row = (i64)block_id(0) * columns;
    float        m = mean[block_id(0)], r = rstd[block_id(0)], sum = 0.0f, dot = 0.0f;
    for (int c = thread_id(); c < columns; c += BLOCK) {
        float d = get(dy, row + c) * get(w, c);
        sum += d;
        dot = multiply_add(d, (get(x, row + c) - m) * r, dot);
    }
    sum = block_sum(sum, room[0]) / (float)columns;
    dot = block_sum(dot, room[1]) / (float)columns;
    for (int c = thread_id(); c < columns; c += BLOCK) {
        float d = r * (get(dy, row + c) * get(w, c) - sum - (get(x, row + c) - m) * r * dot);
        put(dx, row + c, addend ? get(addend, row + c) + d : d);
    }
}

/* Sums over `chunk` rows of dy times what stands beside it: part (chunks, columns). x NULL: of dy alone. mean NULL: of
 * dy x rstd; else of dy (x - mean) rstd. */
KERNEL(column_parts)
(f32 *RESTRICT part, const X *RESTRICT dy, const X *RESTRICT x, const f32 *RESTRICT mean, const f32 *RESTRICT rstd,
 i64 rows, int columns, int chunk)
{
    int c = block_id(0) * BLOCK + thread_id();
    i64 first = (i64)block_id(1) * chunk, end = first + chunk < rows ? first + chunk : rows;
    if (c >= columns) return;
    float sum = 0.0f;
    for (i64 row = first; row < end; row++) {
        float d = get(dy, row * columns + c);
        if (x) d = d * (mean ? get(x, row * columns + c) - mean[row] : get(x, row * columns + c)) * rstd[row];
        sum += d;
    }
    part[(i64)block_id(1) * columns + c] = sum;
}

/* And over the chunks, in ascending order. adds: to what is there. */
KERNEL(column_sums)(D *RESTRICT sums, const f32 *RESTRICT part, int columns, int chunks, int adds)
{
    int c = block_id(0) * BLOCK + thread_id();
    if (c >= columns) return;
    float sum = 0.0f;
    for (int k = 0; k < chunks; k++) sum += part[(i64)k * columns + c];
    put(sums, c, adds ? get(sums, c) + sum : sum);
}
