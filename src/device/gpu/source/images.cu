/* SPDX-License-Identifier: Apache-2.0 */
/* What a transformer of images has beside the ops of decoders: sinusoids of a time, norms and residuals with factors of
 * each sample, and square errors. X, Y, Z: formats, said at each kernel. Statistics are float32. Row n belongs to sample n / seq. */

enum { ROOM = BLOCK / WAVE };

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

/* Of X. A block for each row; shift and scale: rows of each sample, so far apart. */
KERNEL(modulate)
(X *RESTRICT y, f32 *RESTRICT mean, f32 *RESTRICT rstd, const X *RESTRICT x, const X *RESTRICT shift,
 const X *RESTRICT scale, int columns, int seq, i64 ld_shift, i64 ld_scale, float eps)
{
    SHARED float room[2][ROOM];
    i64          row = (i64)block_id(0) * columns, sample = sample_of(block_id(0), seq);
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
        float v = (get(x, row + c) - m) * r;
        put(y, row + c, multiply_add(v, 1.0f + get(scale, sample * ld_scale + c), get(shift, sample * ld_shift + c)));
    }
}

/* dx alone. It may lie where dy or the addend lies: each thread has read an element before it writes it. */
KERNEL(modulate_grad)
(X *dx, const X *dy, const X *RESTRICT x, const X *RESTRICT scale, const f32 *RESTRICT mean, const f32 *RESTRICT rstd,
 const X *addend, int columns, int seq, i64 ld_scale)
{
    SHARED float room[2][ROOM];
    i64          row = (i64)block_id(0) * columns, factor = sample_of(block_id(0), seq) * ld_scale;
    float        m = mean[block_id(0)], r = rstd[block_id(0)], sum = 0.0f, dot = 0.0f;
    for (int c = thread_id(); c < columns; c += BLOCK) {
        float h = get(dy, row + c) * (1.0f + get(scale, factor + c));
        sum += h;
        dot = multiply_add(h, (get(x, row + c) - m) * r, dot);
    }
    sum = block_sum(sum, room[0]) / (float)columns;
    dot = block_sum(dot, room[1]) / (float)columns;
    for (int c = thread_id(); c < columns; c += BLOCK) {
        float h = get(dy, row + c) * (1.0f + get(scale, factor + c));
        float d = r * (h - sum - (get(x, row + c) - m) * r * dot);
        put(dx, row + c, addend ? get(addend, row + c) + d : d);
    }
}

KERNEL(gated_add)(X *y, const X *x, const X *u, const X *RESTRICT gate, i64 rows, int columns, int seq, i64 ld_gate)
{
    EACH_OF_ROWS (row, c, rows, columns) {
        i64 at = row * columns + c;
        put(y, at, multiply_add(get(gate, sample_of(row, seq) * ld_gate + c), get(u, at), get(x, at)));
    }
}

/* du alone. */
KERNEL(gated_add_grad)(X *du, const X *dy, const X *RESTRICT gate, i64 rows, int columns, int seq, i64 ld_gate)
{
    EACH_OF_ROWS (row, c, rows, columns) {
        i64 at = row * columns + c;
        put(du, at, get(gate, sample_of(row, seq) * ld_gate + c) * get(dy, at));
    }
}

/* Of a chunk of a sample's rows (the grid's second and third dimension), for each column: the sum of dy, unless
 * `products` begins the part, and that of dy times x, with statistics times (x - mean) rstd. part (samples, chunks, 1 or
 * 2, columns). */
KERNEL(sample_parts)
(f32 *RESTRICT part, const X *RESTRICT dy, const X *RESTRICT x, const f32 *RESTRICT mean, const f32 *RESTRICT rstd,
 int columns, int seq, int chunk)
{
    int c = block_id(0) * BLOCK + thread_id(), first = block_id(1) * chunk, sums = mean ? 2 : 1;
    int end = seq - first < chunk ? seq : first + chunk;
    i64 row0 = (i64)block_id(2) * seq, to = ((i64)block_id(2) * blocks(1) + block_id(1)) * sums * columns + c;
    if (c >= columns) return;
    float sum = 0.0f, products = 0.0f;
    for (int i = first; i < end; i++) {
        float d = get(dy, (row0 + i) * columns + c), v = get(x, (row0 + i) * columns + c);
        if (mean) v = (v - mean[row0 + i]) * rstd[row0 + i];
        sum += d;
        products = multiply_add(d, v, products);
    }
    if (mean) part[to] = sum, to += columns;
    part[to] = products;
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
