/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that every compiler of dialect.h takes. */
#include "dialect.h"

/* out = x rstd w by rows, rstd = 1 / sqrt(mean(x^2) + eps). A block per row. */
KERNEL(rmsnorm)
(bf16 *RESTRICT out, float *RESTRICT rstd, const bf16 *RESTRICT x, const bf16 *RESTRICT w, int columns, float eps)
{
    SHARED float room[1024 / WAVE];
    int          thread = thread_id(), threads = block_threads();
    i64          row = (i64)block_id(0) * columns;
    float        square = 0.0f;
    for (int i = thread; i < columns; i += threads) {
        float v = from_bf16(x[row + i]);
        square = multiply_add(v, v, square);
    }
    square = block_sum(square, room, thread, threads);
    float r = 1.0f / square_root(square / (float)columns + eps);
    if (thread == 0) rstd[block_id(0)] = r;
    for (int i = thread; i < columns; i += threads) out[row + i] = to_bf16(from_bf16(x[row + i]) * r * from_bf16(w[i]));
}

/* dx, and dw added to by atomics: its bits depend on the order of blocks only, which these tests fix. */
KERNEL(rmsnorm_grad)
(bf16 *RESTRICT dx, float *dw, const bf16 *RESTRICT dy, const bf16 *RESTRICT x, const bf16 *RESTRICT w,
 const float *RESTRICT rstd, int columns)
{
    SHARED float room[1024 / WAVE];
    int          thread = thread_id(), threads = block_threads();
    i64          row = (i64)block_id(0) * columns;
    float        r = rstd[block_id(0)], dot = 0.0f;
    for (int i = thread; i < columns; i += threads)
        dot = multiply_add(from_bf16(dy[row + i]) * from_bf16(w[i]), from_bf16(x[row + i]), dot);
    dot = block_sum(dot, room, thread, threads) * r * r / (float)columns;
    for (int i = thread; i < columns; i += threads) {
        float g = from_bf16(dy[row + i]), v = from_bf16(x[row + i]);
        dx[row + i] = to_bf16(r * (g * from_bf16(w[i]) - v * dot));
        add_atomically(dw + i, g * v * r);
    }
}

/* AdamW: float32 weights and moments, a bfloat16 copy of the weights, bfloat16 gradients. */
KERNEL(adamw)
(bf16 *RESTRICT copy, float *RESTRICT w, float *RESTRICT m, float *RESTRICT v, const bf16 *RESTRICT g, i64 n, float lr,
 float b1, float b2, float eps, float decay, float c1, float c2, float g_scale)
{
    i64 step = (i64)blocks(0) * block_threads();
    for (i64 i = (i64)block_id(0) * block_threads() + thread_id(); i < n; i += step) {
        float gi = from_bf16(g[i]) * g_scale, wi = w[i];
        float mi = m[i] = multiply_add(b1, m[i], (1.0f - b1) * gi);
        float vi = v[i] = multiply_add(b2, v[i], (1.0f - b2) * gi * gi);
        wi -= lr * (mi * c1 / (square_root(vi * c2) + eps) + decay * wi);
        w[i] = wi;
        copy[i] = to_bf16(wi);
    }
}

/* The loss of each row and the gradient in place of the logits; a target below 0: none. A block per row. */
KERNEL(cross_entropy)
(bf16 *RESTRICT logits, float *RESTRICT loss, const int *RESTRICT targets, int columns, int stride, float scale)
{
    SHARED float room[1024];
    int          thread = thread_id(), threads = block_threads(), target = targets[block_id(0)];
    i64          row = (i64)block_id(0) * stride;
    float        most = -3.0e38f, sum = 0.0f;
    for (int i = thread; i < columns; i += threads) {
        float v = from_bf16(logits[row + i]);
        if (v > most) {
            sum *= exponential(most - v);
            most = v;
        }
        sum += exponential(v - most);
    }
    float all = block_largest(most, room, thread, threads);
    sum = block_sum(sum * exponential(most - all), room, thread, threads);
    if (thread == 0) loss[block_id(0)] = target >= 0 ? logarithm(sum) + all - from_bf16(logits[row + target]) : 0.0f;
    barrier(); /* thread 0 has read the target's logit */
    for (int i = thread; i < columns; i += threads) {
        float p = exponential(from_bf16(logits[row + i]) - all) / sum;
        logits[row + i] = to_bf16(target >= 0 ? (p - (i == target ? 1.0f : 0.0f)) * scale : 0.0f);
    }
}

/* out = gate / (1 + exp(-gate)) up */
KERNEL(swiglu)(bf16 *RESTRICT out, const bf16 *RESTRICT gate, const bf16 *RESTRICT up, i64 n)
{
    i64 step = (i64)blocks(0) * block_threads();
    for (i64 i = (i64)block_id(0) * block_threads() + thread_id(); i < n; i += step) {
        float g = from_bf16(gate[i]);
        out[i] = to_bf16(g / (1.0f + exponential(-g)) * from_bf16(up[i]));
    }
}

/* c[rows, columns] = a[rows, inner] b[columns, inner]^T: tiles of 64 x 64, 4 x 4 results a thread. */
#define TILE 64
#define TILE_INNER 16
KERNEL_OF(256, product_tiles)
(bf16 *RESTRICT c, const bf16 *RESTRICT a, const bf16 *RESTRICT b, int rows, int columns, int inner)
{
    SHARED float as[TILE_INNER][TILE + 1], bs[TILE_INNER][TILE + 1];
    int          thread = thread_id(), x = thread & 15, y = thread >> 4;
    int          row0 = block_id(1) * TILE, column0 = block_id(0) * TILE;
    float        sum[4][4] = {};
    for (int k0 = 0; k0 < inner; k0 += TILE_INNER) {
        for (int t = thread; t < TILE * TILE_INNER; t += 256) {
            int r = t / TILE_INNER, k = t % TILE_INNER, inside = k0 + k < inner;
            as[k][r] = row0 + r < rows && inside ? from_bf16(a[(i64)(row0 + r) * inner + k0 + k]) : 0.0f;
            bs[k][r] = column0 + r < columns && inside ? from_bf16(b[(i64)(column0 + r) * inner + k0 + k]) : 0.0f;
        }
        barrier();
        for (int k = 0; k < TILE_INNER; k++)
            UNROLL for (int i = 0; i < 4; i++) UNROLL for (int j = 0; j < 4; j++) sum[i][j] =
                multiply_add(as[k][y * 4 + i], bs[k][x * 4 + j], sum[i][j]);
        barrier();
    }
    UNROLL for (int i = 0; i < 4; i++) UNROLL for (int j = 0; j < 4; j++)
    {
        int r = row0 + y * 4 + i, n = column0 + x * 4 + j;
        if (r < rows && n < columns) c[(i64)r * columns + n] = to_bf16(sum[i][j]);
    }
}

/* Causal attention with heads of 64, and the logarithm of the sum of each row. A thread per query, 64 a block; keys
 * and values of 32 tokens at a time in shared memory. Grid: blocks of queries, heads. */
#define HEAD 64
#define KEYS 32
KERNEL_OF(64, attention_rows)
(bf16 *RESTRICT out, float *RESTRICT log_sum, const bf16 *RESTRICT queries, const bf16 *RESTRICT keys,
 const bf16 *RESTRICT values, int tokens, float scale)
{
    SHARED float ks[KEYS][HEAD], vs[KEYS][HEAD];
    int          thread = thread_id(), query = block_id(0) * 64 + thread, end = (block_id(0) + 1) * 64;
    i64          head = (i64)block_id(1) * tokens * HEAD;
    float        o[HEAD], q[HEAD], most = -3.0e38f, sum = 0.0f;
    UNROLL for (int d = 0; d < HEAD; d++)
    {
        o[d] = 0.0f;
        q[d] = query < tokens ? from_bf16(queries[head + (i64)query * HEAD + d]) * scale : 0.0f;
    }
    if (end > tokens) end = tokens;
    for (int k0 = 0; k0 < end; k0 += KEYS) {
        barrier();
        for (int t = thread; t < KEYS * HEAD; t += 64) {
            int key = k0 + t / HEAD, d = t % HEAD;
            ks[t / HEAD][d] = key < tokens ? from_bf16(keys[head + (i64)key * HEAD + d]) : 0.0f;
            vs[t / HEAD][d] = key < tokens ? from_bf16(values[head + (i64)key * HEAD + d]) : 0.0f;
        }
        barrier();
        for (int j = 0; j < KEYS; j++) {
            if (k0 + j > query || k0 + j >= tokens) continue;
            float s = 0.0f;
            UNROLL for (int d = 0; d < HEAD; d++) s = multiply_add(q[d], ks[j][d], s);
            if (s > most) {
                float f = exponential(most - s);
                sum *= f;
                UNROLL for (int d = 0; d < HEAD; d++) o[d] *= f;
                most = s;
            }
            float p = exponential(s - most);
            sum += p;
            UNROLL for (int d = 0; d < HEAD; d++) o[d] = multiply_add(p, vs[j][d], o[d]);
        }
    }
    if (query >= tokens) return;
    UNROLL for (int d = 0; d < HEAD; d++) out[head + (i64)query * HEAD + d] = to_bf16(o[d] / sum);
    log_sum[(i64)block_id(1) * tokens + query] = most + logarithm(sum);
}
