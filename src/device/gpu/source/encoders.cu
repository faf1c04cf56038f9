/* SPDX-License-Identifier: Apache-2.0 */
/* What the frozen encoders of images and texts have: what a convolution multiplies, norms of groups of channels, and
 * attention whose scores are stored, in pieces. X: format of activations, W: of weights and tables. */

/* --- convolution ----------------------------------------------------------------------------------------------------- */

/* Values are copied by UNIT bytes: 16 where channels are a multiple of these, else one value. */
#if UNIT == 16
struct alignas(16) unit {
    u32 of[4];
};
#elif UNIT == 4
typedef u32 unit;
#else
typedef unsigned short unit;
#endif

/* Rows first, first + 1, ... of what the kernel (side x side) meets at each position of the result; a column of x has `units`. Outside
 * of the picture are zeros. */
KERNEL(gather)
(unit *RESTRICT to, const unit *RESTRICT x, i64 first, i64 rows, int units, int lines, int columns, int height, int width,
 int side, int stride, int pad, int upsample)
{
    EACH_OF_ROWS (row, u, rows, side * side * units) {
        u32  at = (u32)(first + row), position = at / (u32)columns;
        int  place = u / units, j = (int)(at % (u32)columns), i = (int)(position % (u32)lines);
        int  line = i * stride + place / side - pad, column = j * stride + place % side - pad;
        i64  here = row * side * side * units + u;
        i64  from = ((i64)(position / (u32)lines) * height + line / upsample) * width + column / upsample;
        bool inside = line >= 0 && line < height * upsample && column >= 0 && column < width * upsample;
        if (inside)
            to[here] = x[from * units + u - place * units];
        else
            to[here] = unit{};
    }
}

/* --- norms of groups ------------------------------------------------------------------------------------------------- */

/* Of a chunk of a sample's rows (the grid's second and third dimension), for each column: the mean, and the squares about
 * it, made of distances from the first row. part (samples, chunks, 2, columns). */
KERNEL(group_parts)(f32 *RESTRICT part, const X *RESTRICT x, int columns, int rows, int chunk)
{
    int c = block_id(0) * BLOCK + thread_id(), first = block_id(1) * chunk;
    int n = rows - first < chunk ? rows - first : chunk;
    i64 row0 = (i64)block_id(2) * rows + first, to = ((i64)block_id(2) * blocks(1) + block_id(1)) * 2 * columns + c;
    if (c >= columns) return;
    float start = get(x, row0 * columns + c), sum = 0.0f, squares = 0.0f;
    for (int i = 1; i < n; i++) {
        float d = get(x, (row0 + i) * columns + c) - start;
        sum += d;
        squares = multiply_add(d, d, squares);
    }
    float mean = sum / (float)n;
    part[to] = start + mean;
    part[to + columns] = larger(squares - sum * mean, 0.0f);
}

/* Of a group and a sample (the grid's dimensions): mean and 1 / deviation of `width` columns, put together in double.
 * factors (samples, groups, 2). */
KERNEL(group_factors)
(f32 *RESTRICT factors, const f32 *RESTRICT part, int columns, int width, int rows, int chunk, int chunks, double eps)
{
    SHARED double room[BLOCK];
    double        count = (double)rows * (double)width, sum = 0.0, squares = 0.0;
    const f32    *mine = part + (i64)block_id(1) * chunks * 2 * columns + block_id(0) * width;
    for (int e = thread_id(); e < chunks * width; e += BLOCK) {
        int i = e / width, n = rows - i * chunk < chunk ? rows - i * chunk : chunk;
        sum += (double)n * (double)mine[(i64)i * 2 * columns + e % width];
    }
    double mean = block_sum(sum, room) / count;
    barrier();
    for (int e = thread_id(); e < chunks * width; e += BLOCK) {
        int    i = e / width, n = rows - i * chunk < chunk ? rows - i * chunk : chunk;
        i64    at = (i64)i * 2 * columns + e % width;
        double d = (double)mine[at] - mean;
        squares += (double)mine[at + columns] + (double)n * d * d;
    }
    squares = block_sum(squares, room);
    if (thread_id() > 0) return;
    f32 *to = factors + 2 * ((i64)block_id(1) * blocks(0) + block_id(0));
    to[0] = (float)mean;
    to[1] = 1.0f / square_root((float)(squares / count + eps));
}

/* y may be x. rows: of all samples; `own`: of one. */
KERNEL(group_norm)
(X *y, const X *x, const W *RESTRICT w, const W *RESTRICT bias, const f32 *RESTRICT factors, i64 rows, int columns, int own,
 int width, int silu)
{
    EACH_OF_ROWS (row, c, rows, columns) {
        const f32 *of = factors + 2 * ((i64)((u32)row / (u32)own) * (columns / width) + c / width);
        float      v = (get(x, row * columns + c) - of[0]) * of[1];
        v = multiply_add(v, get(w, c), get(bias, c));
        put(y, row * columns + c, silu ? v / (1.0f + exponential(-v)) : v);
    }
}

/* --- attention with stored scores ------------------------------------------------------------------------------------ */

/* First distances of the classes behind those of a single distance each; a whole number that none reaches ends them. */
enum { CLASSES = 32 };
struct classes {
    int first[CLASSES];
};

/* What is added to the scores of each head (the grid's second dimension), by distance from -(seq - 1) to seq - 1. table:
 * rows of classes, the upper half of keys behind the query. */
KERNEL(relative_bias)
(f32 *RESTRICT bias, const W *RESTRICT table, int seq, int heads, int half, classes beyond)
{
    int  at = block_id(0) * BLOCK + thread_id(), distance = at - (seq - 1), n = distance < 0 ? -distance : distance;
    int  h = block_id(1), row = n < half / 2 ? n : half / 2;
    bool behind = distance > 0;
    if (at >= 2 * seq - 1) return;
    UNROLL for (int i = 0; i < CLASSES; i++) row += n >= beyond.first[i];
    bias[(i64)h * (2 * seq - 1) + at] = get(table, (i64)(behind ? half + row : row) * heads + h);
}

/* Scores (heads, queries, keys) become probabilities; a block for each query and head (the grid's dimensions). lse lies
 * `seq` apart from head to head; bias (heads, 2 seq - 1) of the distance from query `first` + row, or NULL. */
KERNEL(attend_rows)
(X *RESTRICT p, f32 *RESTRICT lse, const f32 *RESTRICT scores, const f32 *RESTRICT bias, int keys, int first, int seq,
 float scale)
{
    SHARED float room[BLOCK], sums[BLOCK / WAVE];
    i64          row = ((i64)block_id(1) * blocks(0) + block_id(0)) * keys;
    int          query = first + block_id(0);
    const f32   *added = bias + (i64)block_id(1) * (2 * seq - 1) + seq - 1 - query;
    float        largest = MINUS_INFINITY, sum = 0.0f;
    for (int k = thread_id(); k < keys; k += BLOCK)
        largest = larger(largest, scale * scores[row + k] + (bias ? added[k] : 0.0f));
    largest = block_largest(largest, room);
    for (int k = thread_id(); k < keys; k += BLOCK)
        sum += exponential(scale * scores[row + k] + (bias ? added[k] : 0.0f) - largest);
    sum = block_sum(sum, sums);
    for (int k = thread_id(); k < keys; k += BLOCK)
        put(p, row + k, exponential(scale * scores[row + k] + (bias ? added[k] : 0.0f) - largest) / sum);
    if (thread_id() == 0) lse[(i64)block_id(1) * seq + query] = largest + logarithm(sum);
}
