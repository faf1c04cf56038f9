/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of rows and their gradients; sums over rows. X: format of activations, W: of weights, D: of their gradients.
 * Statistics are float32.
 *
 * A row belongs to a team: a block or, where rows are short, a wave (`waves`). It is read once: the first KEPT runs of each
 * lane stay in registers as they are stored; what lies behind them is read again. */
#include "vectors.cu"

enum { RUN = RUN_OF(X, X), KEPT = 4, WAVES = BLOCK / WAVE };

/* Registers of NVIDIA's: at least two blocks share a multiprocessor. */
#if defined(__CUDACC_RTC__)
#define IN_PAIRS BLOCK, 2
#else
#define IN_PAIRS BLOCK
#endif

struct team {
    int number, lane, lanes; /* of all teams of the grid; of the threads of the team */
};
DEVICE team team_of(int waves)
{
    int thread = thread_id();
    if (!waves) return team{ block_id(0), thread, BLOCK };
    return team{ block_id(0) * WAVES + thread / WAVE, thread % WAVE, WAVE };
}
/* Over its lanes; each gets the sum. */
DEVICE float team_sum(float x, int waves, float *room)
{
    return waves ? wave_sum(x) : block_sum(x, room);
}

/* Runs r that a lane keeps, by number k; those of so many runs: the first one beyond them is the last that is looked at;
 * and those behind what is kept. */
#define EACH_KEPT(k, r) UNROLL for (int k = 0, r = t.lane; k < KEPT; k++, r += t.lanes)
#define EACH_KEPT_OF(k, r, runs) EACH_KEPT (k, r) if (r >= (runs)) break; else
#define EACH_FURTHER(r, runs) ROLLED for (int r = t.lane + KEPT * t.lanes; r < (runs); r += t.lanes)

template <int N>
struct row_of {
    run<X, N> kept[KEPT];
};
/* Zeros where the lane has no run. */
template <int N>
DEVICE row_of<N> read_row(const X *x, int runs, team t)
{
    row_of<N> row = {};
    EACH_KEPT_OF (k, r, runs) row.kept[k] = load<X, N>(x, r * N);
    return row;
}

/* --- rmsnorm --- */

template <int N>
DEVICE float squares_of(run<X, N> v, float sum)
{
    UNROLL for (int e = 0; e < N; e++) sum = multiply_add(element(v, e), element(v, e), sum);
    return sum;
}
template <int N>
DEVICE void put_normed(X *y, const W *w, run<X, N> v, int at, float r)
{
    run<W, N> weights = load<W, N>(w, at);
    floats<N> result;
    UNROLL for (int e = 0; e < N; e++) result.of[e] = element(v, e) * r * element(weights, e);
    store<X, N>(y, at, result);
}
/* A wave beyond the rows reads the last one, and writes nothing. */
struct layer {
    X       *y;
    f32     *mean, *rstd;
    const X *x;
    const W *w, *b;
    int      columns;
    float    eps;
    int      row, inside, waves;
};
template <int N>
DEVICE void norm_row(const layer &l, team t, float *room)
{
    i64       at = (i64)l.row * l.columns;
    int       runs = l.columns / N, mine = l.inside ? runs : 0;
    const X  *x = l.x + at;
    row_of<N> row = read_row<N>(x, runs, t);
    float     sum = 0.0f;
    EACH_KEPT (k, r) sum = squares_of<N>(row.kept[k], sum);
    EACH_FURTHER (r, runs) sum = squares_of<N>(load<X, N>(x, r * N), sum);
    float scale = 1.0f / square_root(team_sum(sum, l.waves, room) / (float)l.columns + l.eps);
    if (t.lane == 0 && l.inside) l.rstd[l.row] = scale;
    EACH_KEPT_OF (k, r, mine) put_normed<N>(l.y + at, l.w, row.kept[k], r * N, scale);
    EACH_FURTHER (r, mine) put_normed<N>(l.y + at, l.w, load<X, N>(x, r * N), r * N, scale);
}
KERNEL(rmsnorm)
(X *RESTRICT y, f32 *RESTRICT rstd, const X *RESTRICT x, const W *RESTRICT w, int rows, int columns, float eps, int waves,
 int wide)
{
    SHARED float room[WAVES];
    team         t = team_of(waves);
    layer        l = { y, rstd, rstd, x, w, w, columns, eps, t.number < rows ? t.number : rows - 1, t.number < rows, waves };
    if (wide)
        norm_row<RUN>(l, t, room);
    else
        norm_row<1>(l, t, room);
}

/* --- layernorm --- */

template <int N>
DEVICE float sum_of(run<X, N> v, float sum)
{
    UNROLL for (int e = 0; e < N; e++) sum += element(v, e);
    return sum;
}
template <int N>
DEVICE float distances_of(run<X, N> v, float mean, float sum)
{
    UNROLL for (int e = 0; e < N; e++) {
        float d = element(v, e) - mean;
        sum = multiply_add(d, d, sum);
    }
    return sum;
}
template <int N>
DEVICE void put_centered(const layer &l, run<X, N> v, i64 row, int at, float mean, float r)
{
    run<W, N> weights = load<W, N>(l.w, at);
    floats<N> result;
    UNROLL for (int e = 0; e < N; e++) result.of[e] = (element(v, e) - mean) * r * element(weights, e);
    if (l.b) {
        run<W, N> added = load<W, N>(l.b, at);
        UNROLL for (int e = 0; e < N; e++) result.of[e] += element(added, e);
    }
    store<X, N>(l.y, row + at, result);
}
template <int N>
DEVICE void centered_row(const layer &l, team t, float *room, float *second_room)
{
    i64       at = (i64)l.row * l.columns;
    int       runs = l.columns / N, mine = l.inside ? runs : 0;
    const X  *x = l.x + at;
    row_of<N> row = read_row<N>(x, runs, t);
    float     sum = 0.0f, squares = 0.0f;
    EACH_KEPT (k, r) sum = sum_of<N>(row.kept[k], sum);
    EACH_FURTHER (r, runs) sum = sum_of<N>(load<X, N>(x, r * N), sum);
    float mean = team_sum(sum, l.waves, room) / (float)l.columns;
    EACH_KEPT_OF (k, r, runs) squares = distances_of<N>(row.kept[k], mean, squares);
    EACH_FURTHER (r, runs) squares = distances_of<N>(load<X, N>(x, r * N), mean, squares);
    float scale = 1.0f / square_root(team_sum(squares, l.waves, second_room) / (float)l.columns + l.eps);
    if (t.lane == 0 && l.inside) l.mean[l.row] = mean, l.rstd[l.row] = scale;
    EACH_KEPT_OF (k, r, mine) put_centered<N>(l, row.kept[k], at, r * N, mean, scale);
    EACH_FURTHER (r, mine) put_centered<N>(l, load<X, N>(x, r * N), at, r * N, mean, scale);
}
KERNEL_OF(IN_PAIRS, layernorm)
(X *RESTRICT y, f32 *RESTRICT mean, f32 *RESTRICT rstd, const X *RESTRICT x, const W *RESTRICT w, const W *RESTRICT b,
 int rows, int columns, float eps, int waves, int wide)
{
    SHARED float room[2][WAVES];
    team         t = team_of(waves);
    layer        l = { y, mean, rstd, x, w, b, columns, eps, t.number < rows ? t.number : rows - 1, t.number < rows, waves };
    if (wide)
        centered_row<RUN>(l, t, room[0], room[1]);
    else
        centered_row<1>(l, t, room[0], room[1]);
}

/* --- gradients --- */

/* dx may lie where dy or the addend lies: each thread has read an element before it writes it. Sums over the rows of a
 * chunk, one for each column, are left in `parts` (chunks, columns), of dy and the normed x, and with means in
 * `plain`, of dy alone; NULL: they are not wanted. A team has a chunk. */
struct gradients {
    X         *dx;
    const X   *dy, *x;
    const W   *w;
    const f32 *mean, *rstd;
    const X   *addend;
    f32       *parts, *plain;
    int        rows, columns, chunk, waves;
};

/* Of a row, its mean (0: there is none) and 1 / deviation; over its columns. */
struct of_row {
    float mean, rstd, sum, dot;
};
template <bool MEANS, int N>
DEVICE of_row add_run(of_row o, run<X, N> d, run<X, N> x, const W *w, int at)
{
    run<W, N> weights = load<W, N>(w, at);
    UNROLL for (int e = 0; e < N; e++) {
        float g = element(d, e) * element(weights, e);
        if (MEANS) o.sum += g;
        o.dot = multiply_add(g, MEANS ? (element(x, e) - o.mean) * o.rstd : element(x, e), o.dot);
    }
    return o;
}
template <bool MEANS, int N>
DEVICE void put_run(const gradients &g, of_row o, run<X, N> d, run<X, N> x, i64 row, int at)
{
    run<W, N> weights = load<W, N>(g.w, at);
    floats<N> result;
    UNROLL for (int e = 0; e < N; e++) {
        float direct = element(d, e) * element(weights, e), v = element(x, e);
        result.of[e] = o.rstd * (MEANS ? direct - o.sum - (v - o.mean) * o.rstd * o.dot : direct - v * o.dot);
    }
    if (g.addend) {
        run<X, N> added = load<X, N>(g.addend, row + at);
        UNROLL for (int e = 0; e < N; e++) result.of[e] = element(added, e) + result.of[e];
    }
    store<X, N>(g.dx, row + at, result);
}
/* sums += dy (x - mean) rstd, or dy. */
template <bool MEANS, int N>
DEVICE floats<N> summed(floats<N> sums, of_row o, run<X, N> d, run<X, N> x)
{
    UNROLL for (int e = 0; e < N; e++)
        sums.of[e] += element(d, e) * (MEANS ? element(x, e) - o.mean : element(x, e)) * o.rstd;
    return sums;
}
template <int N>
DEVICE floats<N> summed(floats<N> sums, run<X, N> d)
{
    UNROLL for (int e = 0; e < N; e++) sums.of[e] += element(d, e);
    return sums;
}
template <int N>
DEVICE floats<N> floats_at(const f32 *x, i64 at)
{
    run<f32, N> v = load<f32, N>(x, at);
    floats<N>   result;
    UNROLL for (int e = 0; e < N; e++) result.of[e] = element(v, e);
    return result;
}

/* Every team of a block takes as many turns; beyond the rows a wave has no runs. The next row of x is on its way while
 * sums of one are exchanged. room: 2 for each of two rows. */
template <bool MEANS, int N>
DEVICE void gradient_rows(const gradients &g, team t, float *room)
{
    int       runs = g.columns / N, first = t.number * g.chunk, turns = g.chunk, last = g.rows - 1;
    i64       own = (i64)t.number * g.columns, row = (i64)first * g.columns;
    floats<N> sums[KEPT] = {}, plain[KEPT] = {};
    if (!g.waves && first + turns > g.rows) turns = g.rows - first;
    row_of<N> next = read_row<N>(g.x + row, first <= last ? runs : 0, t);
    ROLLED for (int i = 0; i < turns; i++) {
        int       number = first + i < last ? first + i : last, mine = first + i <= last ? runs : 0;
        of_row    o = { MEANS ? g.mean[number] : 0.0f, g.rstd[number], 0.0f, 0.0f };
        row = (i64)number * g.columns;
        row_of<N> d = read_row<N>(g.dy + row, mine, t), x = next;
        EACH_KEPT_OF (k, r, mine) o = add_run<MEANS, N>(o, d.kept[k], x.kept[k], g.w, r * N);
        EACH_FURTHER (r, mine)
            o = add_run<MEANS, N>(o, load<X, N>(g.dy, row + r * N), load<X, N>(g.x, row + r * N), g.w, r * N);
        if (i + 1 < turns) next = read_row<N>(g.x + row + g.columns, number < last ? runs : 0, t);
        float *mine_room = room + i % 2 * 2 * WAVES;
        if (MEANS) o.sum = team_sum(o.sum, g.waves, mine_room) / (float)g.columns;
        o.dot = team_sum(o.dot, g.waves, mine_room + WAVES) / (float)g.columns;
        if (!MEANS) o.dot *= o.rstd * o.rstd;
        EACH_KEPT_OF (k, r, mine) {
            put_run<MEANS, N>(g, o, d.kept[k], x.kept[k], row, r * N);
            if (g.parts) sums[k] = summed<MEANS, N>(sums[k], o, d.kept[k], x.kept[k]);
            if (MEANS && g.plain) plain[k] = summed<N>(plain[k], d.kept[k]);
        }
        EACH_FURTHER (r, mine) {
            run<X, N> dr = load<X, N>(g.dy, row + r * N), xr = load<X, N>(g.x, row + r * N);
            put_run<MEANS, N>(g, o, dr, xr, row, r * N);
            /* Where sums are made on the way, lanes keep all runs of more than an element, but in waves of one lane. */
            if (N > 1 && WAVE > 1) continue;
            if (g.parts) {
                floats<N> before = {};
                if (i) before = floats_at<N>(g.parts, own + r * N);
                store<f32, N>(g.parts, own + r * N, summed<MEANS, N>(before, o, dr, xr));
            }
            if (MEANS && g.plain) {
                floats<N> before = {};
                if (i) before = floats_at<N>(g.plain, own + r * N);
                store<f32, N>(g.plain, own + r * N, summed<N>(before, dr));
            }
        }
    }
    EACH_KEPT_OF (k, r, first <= last ? runs : 0) {
        if (g.parts) store<f32, N>(g.parts, own + r * N, sums[k]);
        if (MEANS && g.plain) store<f32, N>(g.plain, own + r * N, plain[k]);
    }
}

#define SIZES int rows, int columns, int chunk, int waves, int wide

KERNEL_OF(IN_PAIRS, rmsnorm_grad)
(X *dx, const X *dy, const X *RESTRICT x, const W *RESTRICT w, const f32 *RESTRICT rstd, const X *addend,
 f32 *RESTRICT parts, SIZES)
{
    SHARED float room[4 * WAVES];
    gradients    g = { dx, dy, x, w, rstd, rstd, addend, parts, parts, rows, columns, chunk, waves };
    if (wide)
        gradient_rows<false, RUN>(g, team_of(waves), room);
    else
        gradient_rows<false, 1>(g, team_of(waves), room);
}
KERNEL(layernorm_grad)
(X *dx, const X *dy, const X *RESTRICT x, const W *RESTRICT w, const f32 *RESTRICT mean, const f32 *RESTRICT rstd,
 const X *addend, f32 *RESTRICT parts, f32 *RESTRICT plain, SIZES)
{
    SHARED float room[4 * WAVES];
    gradients    g = { dx, dy, x, w, mean, rstd, addend, parts, plain, rows, columns, chunk, waves };
    if (wide)
        gradient_rows<true, RUN>(g, team_of(waves), room);
    else
        gradient_rows<true, 1>(g, team_of(waves), room);
}

/* --- sums over rows --- */

struct summing {
    f32       *part;
    const X   *dy, *x;
    const f32 *mean, *rstd;
    i64        first, end;
    int        columns;
};
template <int N>
DEVICE void sum_column(const summing &s, int c)
{
    floats<N> sums = {};
    if (c >= s.columns) return;
    for (i64 row = s.first; row < s.end; row++) {
        run<X, N> d = load<X, N>(s.dy, row * s.columns + c);
        of_row    o = { s.mean ? s.mean[row] : 0.0f, s.x ? s.rstd[row] : 0.0f, 0.0f, 0.0f };
        if (!s.x)
            sums = summed<N>(sums, d);
        else if (s.mean)
            sums = summed<true, N>(sums, o, d, load<X, N>(s.x, row * s.columns + c));
        else
            sums = summed<false, N>(sums, o, d, load<X, N>(s.x, row * s.columns + c));
    }
    store<f32, N>(s.part, (i64)block_id(1) * s.columns + c, sums);
}
/* Sums over `chunk` rows of dy times what stands beside it: part (chunks, columns). x NULL: of dy alone. mean NULL: of
 * dy x rstd; else of dy (x - mean) rstd. A lane has a run of columns. */
KERNEL(column_parts)
(f32 *RESTRICT part, const X *RESTRICT dy, const X *RESTRICT x, const f32 *RESTRICT mean, const f32 *RESTRICT rstd,
 i64 rows, int columns, int chunk, int wide)
{
    int     lane = block_id(0) * BLOCK + thread_id();
    i64     first = (i64)block_id(1) * chunk, end = first + chunk < rows ? first + chunk : rows;
    summing s = { part, dy, x, mean, rstd, first, end, columns };
    if (wide)
        sum_column<RUN>(s, lane * RUN);
    else
        sum_column<1>(s, lane);
}

/* And over the chunks, in a fixed order: a block has runs of columns for ACROSS lanes, and PARTS of its lanes share the
 * chunks of each. adds: to what is there. */
enum { ACROSS = 8, PARTS = BLOCK / ACROSS, MOST_COLUMNS = ACROSS * RUN_OF(f32, f32) };

template <int N>
DEVICE void sum_chunks(D *sums, const f32 *part, int columns, int chunks, int adds, float *room)
{
    int       lane = thread_id() % ACROSS, mine = thread_id() / ACROSS, c = (block_id(0) * ACROSS + lane) * N;
    floats<N> sum = {};
    for (int k = mine; c < columns && k < chunks; k += PARTS) {
        floats<N> v = floats_at<N>(part, (i64)k * columns + c);
        UNROLL for (int e = 0; e < N; e++) sum.of[e] += v.of[e];
    }
    UNROLL for (int e = 0; e < N; e++) room[mine * MOST_COLUMNS + lane * N + e] = sum.of[e];
    barrier();
    c = block_id(0) * ACROSS * N + thread_id();
    if (thread_id() >= ACROSS * N || c >= columns) return;
    float whole = 0.0f;
    for (int k = 0; k < PARTS; k++) whole += room[k * MOST_COLUMNS + thread_id()];
    put(sums, c, adds ? get(sums, c) + whole : whole);
}
KERNEL(column_sums)(D *RESTRICT sums, const f32 *RESTRICT part, int columns, int chunks, int adds, int wide)
{
    SHARED float room[PARTS * MOST_COLUMNS];
    if (wide)
        sum_chunks<RUN_OF(f32, f32)>(sums, part, columns, chunks, adds, room);
    else
        sum_chunks<1>(sums, part, columns, chunks, adds, room);
}
