/* SPDX-License-Identifier: Apache-2.0 */
/* Adafactor, the formula of op/adafactor.c. P: format of weights and gradients; all else is float32, sums over rows and
 * blocks are in double. A wave takes a row: its lanes read neighbors. Matrices of a stack lie one below the other. */
#include "chance.cu"

enum { WAVES = BLOCK / WAVE, ROWS = 64 };

/* Rows r, r + all waves, ... of a wave; its lanes have columns lane, lane + WAVE, ... */
#define EACH_ROW_OF_WAVE(row, rows)                                                                                    \
    for (i64 row = (i64)block_id(0) * WAVES + thread_id() / WAVE; row < (rows); row += (i64)blocks(0) * WAVES)
#define EACH_OF_LANE(c, columns) for (int c = thread_id() % WAVE; c < (columns); c += WAVE)

/* Means of g^2 over rows; part: of each block, the sum of its p^2. */
KERNEL(adafactor_rows)
(f32 *r_new, const f32 *r, f64 *RESTRICT part, const P *RESTRICT p, const P *RESTRICT g, const f64 *RESTRICT scalars,
 const f64 *RESTRICT clip, i64 rows, int columns)
{
    SHARED double room[BLOCK];
    float         share = (float)scalars[2], coefficient = (float)clip[1];
    double        weights = 0.0;
    EACH_ROW_OF_WAVE(row, rows)
    {
        float sum = 0.0f, squares = 0.0f;
        EACH_OF_LANE(c, columns)
        {
            float d = get(g, row * columns + c) * coefficient, w = get(p, row * columns + c);
            sum += d * d;
            squares += w * w;
        }
        weights += (double)squares;
        sum = wave_sum(sum);
        if (thread_id() % WAVE == 0) r_new[row] = r[row] + share * (sum / (float)columns - r[row]);
    }
    weights = block_sum(weights, room);
    if (thread_id() == 0) part[block_id(0)] = weights;
}

/* sums (matrices x chunks, columns): of g^2 over ROWS rows of a matrix. */
KERNEL(adafactor_columns)
(f32 *RESTRICT sums, const P *RESTRICT g, const f64 *RESTRICT clip, i64 matrices, int chunks, int rows, int columns)
{
    float coefficient = (float)clip[1];
    EACH_OF_ROWS(y, c, matrices * chunks, columns)
    {
        int   matrix = (int)y / chunks;
        int   from = ((int)y - matrix * chunks) * ROWS, end = from + ROWS < rows ? from + ROWS : rows;
        float sum = 0.0f;
        for (int row = from; row < end; row++) {
            float d = get(g, ((i64)matrix * rows + row) * columns + c) * coefficient;
            sum += d * d;
        }
        sums[y * columns + c] = sum;
    }
}

KERNEL(adafactor_means)
(f32 *q_new, const f32 *q, const f32 *RESTRICT sums, const f64 *RESTRICT scalars, i64 matrices, int chunks, int rows,
 int columns)
{
    float share = (float)scalars[2];
    EACH_OF_ROWS(matrix, c, matrices, columns)
    {
        float sum = 0.0f;
        for (int k = 0; k < chunks; k++) sum += sums[(matrix * chunks + k) * columns + c];
        i64 i = matrix * columns + c;
        q_new[i] = q[i] + share * (sum / (float)rows - q[i]);
    }
}

/* Of each row r / the mean of r over its matrix: times q, the variances of its elements. */
KERNEL(adafactor_factors)(f32 *RESTRICT factor, const f32 *RESTRICT r, i64 matrices, int rows, double n, double eps1)
{
    SHARED double room[BLOCK];
    for (i64 matrix = block_id(0); matrix < matrices; matrix += blocks(0)) {
        double sum = 0.0;
        for (int row = thread_id(); row < rows; row += BLOCK) sum += (double)r[matrix * rows + row];
        sum = block_sum(sum, room);
        double mean = sum / n;
        if (mean < eps1) mean = eps1;
        for (int row = thread_id(); row < rows; row += BLOCK)
            factor[matrix * rows + row] = (float)((double)r[matrix * rows + row] / mean);
        barrier();
    }
}

/* part: of each block, the sum of its u^2. */
KERNEL(adafactor_squares)
(f64 *RESTRICT part, const P *RESTRICT g, const f32 *RESTRICT factor, const f32 *RESTRICT q,
 const f64 *RESTRICT clip, i64 all_rows, int rows, int columns, float least)
{
    SHARED double room[BLOCK];
    float         coefficient = (float)clip[1];
    double        total = 0.0;
    EACH_ROW_OF_WAVE(row, all_rows)
    {
        const f32 *of_matrix = q + (i64)((int)row / rows) * columns;
        float      of_row = factor[row], sum = 0.0f;
        EACH_OF_LANE(c, columns)
        {
            float d = get(g, row * columns + c) * coefficient;
            sum += d * d / larger(least, of_row * of_matrix[c]);
        }
        total += (double)sum;
    }
    total = block_sum(total, room);
    if (thread_id() == 0) part[block_id(0)] = total;
}

/* A tensor without rows and columns: all variances are there. */
KERNEL(adafactor_flat)
(f32 *v_new, const f32 *v, f64 *RESTRICT part_p, f64 *RESTRICT part_u, const P *RESTRICT p, const P *RESTRICT g,
 const f64 *RESTRICT scalars, const f64 *RESTRICT clip, i64 n, float least)
{
    SHARED double room[BLOCK];
    float         share = (float)scalars[2], coefficient = (float)clip[1];
    double        weights = 0.0, total = 0.0;
    EACH(i, n)
    {
        float d = get(g, i) * coefficient, w = get(p, i), square = d * d, vi = v[i];
        vi += share * (square - vi);
        v_new[i] = vi;
        weights += (double)(w * w);
        total += (double)(square / larger(least, vi));
    }
    weights = block_sum(weights, room);
    barrier();
    total = block_sum(total, room);
    if (thread_id() == 0) {
        part_p[block_id(0)] = weights;
        part_u[block_id(0)] = total;
    }
}

/* How far weights move. A norm that is no number stays one: a broken step must show. */
KERNEL(adafactor_step)
(f64 *RESTRICT step, const f64 *RESTRICT part_p, const f64 *RESTRICT part_u, int parts,
 const f64 *RESTRICT scalars, double n, double eps2, double threshold)
{
    SHARED double room[BLOCK];
    double        weights = 0.0, total = 0.0;
    for (int k = thread_id(); k < parts; k += BLOCK) {
        weights += part_p[k];
        total += part_u[k];
    }
    weights = square_root(block_sum(weights, room) / n);
    barrier();
    double limit = square_root(block_sum(total, room) / n) / threshold;
    if (thread_id() > 0) return;
    if (eps2 > weights) weights = eps2;
    *step = weights * scalars[3] / (limit < 1.0 ? 1.0 : limit);
}

/* v NULL: variances are factor times q. */
KERNEL(adafactor_move)
(P *p_new, const P *p, const P *RESTRICT g, const f32 *RESTRICT v, const f32 *RESTRICT factor,
 const f32 *RESTRICT q, const f64 *RESTRICT step, const f64 *RESTRICT scalars, const f64 *RESTRICT clip, i64 all_rows,
 int rows, int columns, double decay, float least, i64 stream)
{
    float   coefficient = (float)clip[1], moved = (float)*step, decayed = (float)(scalars[1] * decay);
    chances of = chances_of(stream, scalars);
    EACH_OF_ROWS(row, c, all_rows, columns)
    {
        i64   i = row * columns + c;
        float variance = v ? v[i] : factor[row] * q[(i64)((int)row / rows) * columns + c], w = get(p, i);
        float u = get(g, i) * coefficient / square_root(larger(least, variance));
        w = w - decayed * w - moved * u;
        put_rounded(of, p_new, i, w, 0);
    }
}
