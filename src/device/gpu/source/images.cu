/* SPDX-License-Identifier: Apache-2.0 */
/* What a transformer of images has beside the ops of decoders: sinusoids of a time, norms and residuals with factors of
 * each sample, and square errors. X, Y, Z: formats, said at each kernel. Statistics are float32. Row n belongs to sample n / seq. */

#include "vectors.cu"

enum { ROOM = BLOCK / WAVE, RUN = RUN_OF(X, X) };

/* N elements of a row, as float32. */
template <int N>
DEVICE floats<N> floats_at(const X *x, i64 i)
{
    run<X, N> r = load<X, N>(x, i);
    floats<N> v;
    UNROLL for (int e = 0; e < N; e++) v.of[e] = element(r, e);
    return v;
}
/* A block's runs of a row. */
#define EACH_RUN(N, c, columns) for (int c = thread_id() * N; c < columns; c += BLOCK * N)

DEVICE i64 sample_of(i64 row, int seq)
{
    return (i64)((u32)row / (u32)seq);
}

/* 2^x in double, x <= 0: the power of the nearest whole number, and the series of the rest. */
DEVICE double power_of_two(double x)
{
    int    n = (int)(float)(x - 0.5);
    double g = (x - (double)n) * 0.69314718055994530942, sum = 1.0;
    ROLLED for (int k = 13; k > 0; k--) sum = 1.0 + sum * g / (double)(float)k;
    ROLLED for (; n < 0; n++) sum *= 0.5;
    return sum;
}

/* cos(1000 t w), then sin of the same, w = 2^(k step): in double, without the nearest multiple of pi / 2, which is taken
 * away in two parts. X: of y, Y: of t. */
KERNEL(time_embedding)(X *RESTRICT y, const Y *RESTRICT t, i64 samples, int half, double step)
{
    EACH_OF_ROWS (row, k, samples, half) {
        double angle = 1000.0 * (double)get(t, row) * power_of_two((double)k * step);
        float  turns = (float)(angle * 0.63661977236758134308);
        int    n = (int)(turns + (turns < 0.0f ? -0.5f : 0.5f));
        double r = angle - (double)n * 1.57079632673412561417 - (double)n * 6.07710050650619224932e-11;
        double cosine = 1.0, sine = 1.0, square = r * r;
        ROLLED for (int i = 16; i > 0; i -= 2) {
            cosine = 1.0 - square * cosine / (double)(float)(i * (i - 1));
            sine = 1.0 - square * sine / (double)(float)(i * (i + 1));
        }
        sine *= r;
        float  first = (float)(n & 1 ? sine : cosine), second = (float)(n & 1 ? cosine : sine);
        i64    at = row * 2 * half + k;
        put(y, at, (n + 1) & 2 ? -first : first);
        put(y, at + half, n & 2 ? -second : second);
    }
}

/* Of X. A block for each row; shift and scale: those of its sample. */
template <int N>
DEVICE void modulate_row(X *y, f32 *mean, f32 *rstd, const X *x, const X *shift, const X *scale, int columns, float eps,
                         float *room)
{
    float sum = 0.0f, squares = 0.0f;
    EACH_RUN (N, c, columns) {
        floats<N> v = floats_at<N>(x, c);
        UNROLL for (int e = 0; e < N; e++) sum += v.of[e];
    }
    float m = block_sum(sum, room) / (float)columns;
    EACH_RUN (N, c, columns) {
        floats<N> v = floats_at<N>(x, c);
        UNROLL for (int e = 0; e < N; e++) squares = multiply_add(v.of[e] - m, v.of[e] - m, squares);
    }
    float r = 1.0f / square_root(block_sum(squares, room + ROOM) / (float)columns + eps);
    if (thread_id() == 0) *mean = m, *rstd = r;
    EACH_RUN (N, c, columns) {
        floats<N> v = floats_at<N>(x, c), factor = floats_at<N>(scale, c), added = floats_at<N>(shift, c);
        UNROLL for (int e = 0; e < N; e++)
            v.of[e] = multiply_add((v.of[e] - m) * r, 1.0f + factor.of[e], added.of[e]);
        store<X, N>(y, c, v);
    }
}
/* shift, scale: rows of each sample, so far apart. */
KERNEL(modulate)
(X *RESTRICT y, f32 *RESTRICT mean, f32 *RESTRICT rstd, const X *RESTRICT x, const X *RESTRICT shift,
 const X *RESTRICT scale, int columns, int seq, i64 ld_shift, i64 ld_scale, float eps, int wide)
{
    SHARED float room[2 * ROOM];
    i64          row = (i64)block_id(0) * columns, sample = sample_of(block_id(0), seq);
    shift += sample * ld_shift;
    scale += sample * ld_scale;
    if (wide)
        modulate_row<RUN>(y + row, mean + block_id(0), rstd + block_id(0), x + row, shift, scale, columns, eps, room);
    else
        modulate_row<1>(y + row, mean + block_id(0), rstd + block_id(0), x + row, shift, scale, columns, eps, room);
}

/* dx alone. It may lie where dy or the addend lies: each thread has read a run before it writes it. */
template <int N>
DEVICE void modulate_grad_row(X *dx, const X *dy, const X *x, const X *scale, float m, float r, const X *addend,
                              int columns, float *room)
{
    float sum = 0.0f, dot = 0.0f;
    EACH_RUN (N, c, columns) {
        floats<N> d = floats_at<N>(dy, c), v = floats_at<N>(x, c), factor = floats_at<N>(scale, c);
        UNROLL for (int e = 0; e < N; e++) {
            float h = d.of[e] * (1.0f + factor.of[e]);
            sum += h;
            dot = multiply_add(h, (v.of[e] - m) * r, dot);
        }
    }
    sum = block_sum(sum, room) / (float)columns;
    dot = block_sum(dot, room + ROOM) / (float)columns;
    EACH_RUN (N, c, columns) {
        floats<N> d = floats_at<N>(dy, c), v = floats_at<N>(x, c), factor = floats_at<N>(scale, c), more = {};
        if (addend) more = floats_at<N>(addend, c);
        UNROLL for (int e = 0; e < N; e++) {
            float own = r * (d.of[e] * (1.0f + factor.of[e]) - sum - (v.of[e] - m) * r * dot);
            d.of[e] = addend ? more.of[e] + own : own;
        }
        store<X, N>(dx, c, d);
    }
}
KERNEL(modulate_grad)
(X *dx, const X *dy, const X *RESTRICT x, const X *RESTRICT scale, const f32 *RESTRICT mean, const f32 *RESTRICT rstd,
 const X *addend, int columns, int seq, i64 ld_scale, int wide)
{
    SHARED float room[2 * ROOM];
    i64          row = (i64)block_id(0) * columns;
    float        m = mean[block_id(0)], r = rstd[block_id(0)];
    scale += sample_of(block_id(0), seq) * ld_scale;
    if (addend) addend += row;
    if (wide)
        modulate_grad_row<RUN>(dx + row, dy + row, x + row, scale, m, r, addend, columns, room);
    else
        modulate_grad_row<1>(dx + row, dy + row, x + row, scale, m, r, addend, columns, room);
}

/* y = x + gate u; x NULL: the product alone. */
struct gated_rows {
    X       *y;
    const X *x, *u, *gate;
    int      columns, seq;
    i64      ld_gate;
    template <int N>
    METHOD void at(i64 row, int c) const
    {
        i64       from = row * columns + c;
        floats<N> v = floats_at<N>(u, from), g = floats_at<N>(gate, sample_of(row, seq) * ld_gate + c), sum = {};
        if (x) sum = floats_at<N>(x, from);
        UNROLL for (int e = 0; e < N; e++)
            v.of[e] = x ? multiply_add(g.of[e], v.of[e], sum.of[e]) : g.of[e] * v.of[e];
        store<X, N>(y, from, v);
    }
};
KERNEL(gated_add)
(X *y, const X *x, const X *u, const X *RESTRICT gate, i64 rows, int columns, int seq, i64 ld_gate, int wide)
{
    each_piece_of_rows<RUN>(rows, columns, wide, gated_rows{ y, x, u, gate, columns, seq, ld_gate });
}
/* du alone. */
KERNEL(gated_add_grad)
(X *du, const X *dy, const X *RESTRICT gate, i64 rows, int columns, int seq, i64 ld_gate, int wide)
{
    each_piece_of_rows<RUN>(rows, columns, wide, gated_rows{ du, (const X *)0, dy, gate, columns, seq, ld_gate });
}

/* Of a chunk of a sample's rows, for a lane's N columns from c on. */
template <int N>
DEVICE void sum_rows(f32 *part, const X *dy, const X *x, const f32 *mean, const f32 *rstd, int c, int columns, int n)
{
    floats<N> sum = {}, products = {};
    if (c >= columns) return;
    ROLLED for (int i = 0; i < n; i++) {
        floats<N> d = floats_at<N>(dy, (i64)i * columns + c), v = floats_at<N>(x, (i64)i * columns + c);
        UNROLL for (int e = 0; e < N; e++) {
            float w = mean ? (v.of[e] - mean[i]) * rstd[i] : v.of[e];
            sum.of[e] += d.of[e];
            products.of[e] = multiply_add(d.of[e], w, products.of[e]);
        }
    }
    if (mean) store<f32, N>(part, c, sum);
    store<f32, N>(part, mean ? columns + c : c, products);
}
/* Of a chunk of a sample's rows (the grid's second and third dimension), for each column: the sum of dy, unless
 * `products` begins the part, and that of dy times x, with statistics times (x - mean) rstd. part (samples, chunks, 1 or
 * 2, columns). */
KERNEL(sample_parts)
(f32 *RESTRICT part, const X *RESTRICT dy, const X *RESTRICT x, const f32 *RESTRICT mean, const f32 *RESTRICT rstd,
 int columns, int seq, int chunk, int wide)
{
    int lane = block_id(0) * BLOCK + thread_id(), first = block_id(1) * chunk, sums = mean ? 2 : 1;
    int n = seq - first < chunk ? seq - first : chunk;
    i64 row = (i64)block_id(2) * seq + first, to = ((i64)block_id(2) * blocks(1) + block_id(1)) * sums * columns;
    if (mean) mean += row, rstd += row;
    if (wide)
        sum_rows<RUN>(part + to, dy + row * columns, x + row * columns, mean, rstd, lane * RUN, columns, n);
    else
        sum_rows<1>(part + to, dy + row * columns, x + row * columns, mean, rstd, lane, columns, n);
}

/* And over the chunks, in ascending order, of sum `which` of so many: a row of each sample (the second dimension). */
KERNEL(sample_sums)
(X *RESTRICT out, const f32 *RESTRICT part, int columns, int chunks, int sums, int which, i64 ld)
{
    int c = block_id(0) * BLOCK + thread_id();
    i64 sample = block_id(1);
    if (c >= columns) return;
    float sum = 0.0f;
    for (int k = 0; k < chunks; k++) sum += part[((sample * chunks + k) * sums + which) * columns + c];
    put(out, sample * ld + c, sum);
}

/* X: of y and dy, Y: of the targets. Differences are exact in double; a block's share of the elements depends on
 * their number alone. */
KERNEL(square_error)(f64 *RESTRICT part, const X *RESTRICT y, const Y *RESTRICT t, i64 n, i64 share)
{
    SHARED double room[BLOCK];
    i64           first = (i64)block_id(0) * share, end = n - first < share ? n : first + share;
    double        sum = 0.0;
    for (i64 i = first + thread_id(); i < end; i += BLOCK) {
        double d = (double)get(y, i) - (double)get(t, i);
        sum += d * d;
    }
    sum = block_sum(sum, room);
    if (thread_id() == 0) part[block_id(0)] = sum;
}

KERNEL(square_error_sum)(f64 *loss, const f64 *RESTRICT part, int parts, int adds)
{
    SHARED double room[BLOCK];
    double        sum = 0.0;
    for (int i = thread_id(); i < parts; i += BLOCK) sum += part[i];
    sum = block_sum(sum, room);
    if (thread_id() == 0) *loss = adds ? *loss + sum : sum;
}

KERNEL(square_error_grad)(X *dy, const X *y, const Y *RESTRICT t, const f64 *RESTRICT scalars, i64 n)
{
    float twice = (float)(2.0 * scalars[0]);
    EACH (i, n) put(dy, i, twice * (get(y, i) - get(t, i)));
}
