/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of the heads of a row, each by itself, followed by a rotation of its pairs or not, and their gradients. X: format
 * of activations, W: of weights, D: of their gradients, HEAD: elements of a head, TURNS: 0 no rotation, 1 of pairs (i,
 * i + HEAD / 2), 2 of pairs (2 i, 2 i + 1). Statistics and angles are float32.
 *
 * A group of lanes has a head: each of them runs of its first half and the runs HALF elements behind, so that the pairs
 * of either layout are a lane's own. A wave has as many heads of a row as it has groups. */
#include "vectors.cu"

enum { WAVES = BLOCK / WAVE, RUN = RUN_OF(X, W), HALF = (HEAD + 1) / 2, ROWS = 32 /* of a sum of a gradient */ };
enum { APART = 1, TOGETHER = 2, SPAN = 4 /* runs of a lane, of columns that are copied */ };

/* Lanes that share a head by runs of N, a power of two. */
template <int N, int L = 1, bool ENOUGH = (L * N >= HALF || L == WAVE)>
struct group {
    enum { LANES = group<N, 2 * L>::LANES };
};
template <int N, int L>
struct group<N, L, true> {
    enum { LANES = L };
};

/* How often a lane has runs, how many heads a wave has. */
template <int N>
struct shares {
    enum { LANES = group<N>::LANES, TIMES = (HALF + N * LANES - 1) / (N * LANES), HEADS = WAVE / LANES };
};

#if defined(__CUDACC_RTC__)
DEVICE float other_lane(float x, int mask)
{
    return __shfl_xor_sync(0xffffffffu, x, mask);
}
#endif
template <int LANES>
DEVICE float group_sum(float x)
{
    UNROLL for (int m = 1; m < LANES; m *= 2) x += other_lane(x, m);
    return x;
}

/* Which rows and columns: head h begins at column first + h stride; from `second` on, if that is not 0, heads have the
 * second HEAD weights. Columns behind `others` that no head has are copied. A sample has `part` rows here, and `all`
 * rows, of which these are those from `offset` on, in y; its rows have positions 0, ..., seq - 1, or those given. */
struct layout {
    int rows, width, heads, first, stride, second, others, spans;
    int part, all, offset, seq;
    i64 ld_x, ld_y;

    METHOD i64 place(int row) const
    {
        int sample = (int)((u32)row / (u32)part);
        return (i64)sample * all + offset + row - sample * part;
    }
    METHOD int position(const int *positions, i64 place) const
    {
        return positions ? positions[place] : (int)((u32)place % (u32)seq);
    }
};
#define LAYOUT                                                                                                         \
    int rows, int width, int heads, int first, int stride, int second, int others, int spans, int part, int all,       \
        int offset, int seq, i64 ld_x, i64 ld_y
#define THE_LAYOUT                                                                                                     \
    {                                                                                                                  \
        rows, width, heads, first, stride, second, others, spans, part, all, offset, seq, ld_x, ld_y                   \
    }

/* A lane's elements of a head: run number t begins at element i of each half. */
template <int N>
struct halves {
    floats<N> low[shares<N>::TIMES], high[shares<N>::TIMES];
};
template <int N>
DEVICE int run_at(int t)
{
    return (thread_id() % shares<N>::LANES + t * shares<N>::LANES) * N;
}
/* A single element stands by its partner. */
template <int N>
DEVICE int low_at(int i)
{
    return N == 1 && TURNS == TOGETHER ? 2 * i : i;
}
template <int N>
DEVICE int high_at(int i)
{
    return N == 1 && TURNS == TOGETHER ? 2 * i + 1 : i + HALF;
}
/* The middle of an odd head has no partner. */
DEVICE bool has_high(int i)
{
    return HEAD % 2 == 0 || i + 1 < HALF;
}
template <typename S, int N>
DEVICE floats<N> floats_at(const S *x, i64 i)
{
    run<S, N> r = load<S, N>(x, i);
    floats<N> v;
    UNROLL for (int e = 0; e < N; e++) v.of[e] = element(r, e);
    return v;
}
/* Zeros where there is nothing. */
template <typename S, int N>
DEVICE halves<N> load_halves(const S *x, i64 at, bool there)
{
    halves<N> h = {};
    UNROLL for (int t = 0; t < shares<N>::TIMES; t++) {
        int i = run_at<N>(t);
        if (!there || i >= HALF) continue;
        h.low[t] = floats_at<S, N>(x, at + low_at<N>(i));
        if (has_high(i)) h.high[t] = floats_at<S, N>(x, at + high_at<N>(i));
    }
    return h;
}
template <typename S, int N>
DEVICE void store_halves(S *y, i64 at, bool there, const halves<N> &h)
{
    UNROLL for (int t = 0; t < shares<N>::TIMES; t++) {
        int i = run_at<N>(t);
        if (!there || i >= HALF) continue;
        store<S, N>(y, at + low_at<N>(i), h.low[t]);
        if (has_high(i)) store<S, N>(y, at + high_at<N>(i), h.high[t]);
    }
}

/* Pairs are turned by their angles, back if `direction` is -1. */
DEVICE void turn(float &a, float &b, float cosine, float sine)
{
    float was = a;
    a = was * cosine - b * sine;
    b = was * sine + b * cosine;
}
template <int N>
DEVICE void turn_neighbors(floats<N> &v, const f32 *angles, int pair, float direction)
{
    floats<N / 2> cosines = floats_at<f32, N / 2>(angles, pair), sines = floats_at<f32, N / 2>(angles, pair + HALF);
    UNROLL for (int e = 0; e < N; e += 2) turn(v.of[e], v.of[e + 1], cosines.of[e / 2], direction * sines.of[e / 2]);
}
template <int N>
DEVICE void turn_halves(halves<N> &h, const f32 *angles, float direction, bool there)
{
    if constexpr (TURNS != 0) UNROLL for (int t = 0; t < shares<N>::TIMES; t++) {
            int i = run_at<N>(t);
            if (!there || i >= HALF) continue;
            if constexpr (TURNS == TOGETHER && N > 1) {
                turn_neighbors<N>(h.low[t], angles, i / 2, direction);
                turn_neighbors<N>(h.high[t], angles, (i + HALF) / 2, direction);
            } else {
                floats<N> cosines = floats_at<f32, N>(angles, i), sines = floats_at<f32, N>(angles, i + HALF);
                UNROLL for (int e = 0; e < N; e++)
                    turn(h.low[t].of[e], h.high[t].of[e], cosines.of[e], direction * sines.of[e]);
            }
        }
}

/* f(low), then f(high), of every element e of run t. */
#define EACH_ELEMENT(N, t, e) UNROLL for (int t = 0; t < shares<N>::TIMES; t++) UNROLL for (int e = 0; e < N; e++)

/* Span number `span` of a row, but for the columns of heads. */
template <int N>
DEVICE void copy_others(X *y, const X *x, int span, const layout &l)
{
    UNROLL for (int k = 0; k < SPAN; k++) {
        int c = l.others + ((span * SPAN + k) * WAVE + thread_id() % WAVE) * N;
        int head = c < l.first ? l.heads : (c - l.first) / l.stride;
        if (c >= l.width || (head < l.heads && c - l.first - head * l.stride < HEAD)) continue;
        store<X, N>(y, c, floats_at<X, N>(x, c));
    }
}

/* Every piece of every one of n, by waves. There are fewer than 2^31 pieces. */
#define EACH_PIECE(row, piece, n, pieces)                                                                              \
    ROLLED for (u32 n_ = (u32)block_id(0) * WAVES + (u32)thread_id() / WAVE; n_ < (u32)(n) * (u32)(pieces);            \
                n_ += (u32)blocks(0) * WAVES)                                                                          \
        if (int row = (int)(n_ / (u32)(pieces)), piece = (int)n_ - row * (pieces); true)

template <int N>
DEVICE void norm_rows(X *y, f32 *rstd, const X *x, const W *w, const f32 *table, const int *positions, float eps,
                      const layout &l)
{
    const int pieces = (l.heads + shares<N>::HEADS - 1) / shares<N>::HEADS;
    EACH_PIECE (row, piece, l.rows, pieces + l.spans) {
        i64 to = l.place(row);
        if (piece >= pieces) {
            copy_others<N>(y + to * l.ld_y, x + row * l.ld_x, piece - pieces, l);
            continue;
        }
        int       head = piece * shares<N>::HEADS + thread_id() % WAVE / shares<N>::LANES;
        bool      there = head < l.heads;
        i64       column = l.first + (i64)head * l.stride;
        halves<N> v = load_halves<X, N>(x, row * l.ld_x + column, there);
        halves<N> weights = load_halves<W, N>(w, l.second > 0 && head >= l.second ? HEAD : 0, there);
        float     sum = 0.0f;
        EACH_ELEMENT (N, t, e) {
            sum = multiply_add(v.low[t].of[e], v.low[t].of[e], sum);
            sum = multiply_add(v.high[t].of[e], v.high[t].of[e], sum);
        }
        float r = 1.0f / square_root(group_sum<shares<N>::LANES>(sum) / (float)HEAD + eps);
        if (there && thread_id() % shares<N>::LANES == 0) rstd[to * l.heads + head] = r;
        EACH_ELEMENT (N, t, e) {
            v.low[t].of[e] = v.low[t].of[e] * r * weights.low[t].of[e];
            v.high[t].of[e] = v.high[t].of[e] * r * weights.high[t].of[e];
        }
        turn_halves<N>(v, TURNS ? table + (i64)l.position(positions, to) * HEAD : table, 1.0f, there);
        store_halves<X, N>(y, to * l.ld_y + column, there, v);
    }
}

/* Runs as far as heads are made of them. */
#define WIDE_HEADS (HEAD % (2 * RUN) == 0)

KERNEL(heads_norm)
(X *RESTRICT y, f32 *RESTRICT rstd, const X *RESTRICT x, const W *RESTRICT w, const f32 *RESTRICT table,
 const int *RESTRICT positions, LAYOUT, float eps, int wide)
{
    layout l = THE_LAYOUT;
    if constexpr (WIDE_HEADS)
        if (wide) {
            norm_rows<RUN>(y, rstd, x, w, table, positions, eps, l);
            return;
        }
    norm_rows<1>(y, rstd, x, w, table, positions, eps, l);
}

/* dx of ROWS rows of a head, and the sums over them of dy x rstd, before the rotation, for its weights: part (chunks,
 * heads, HEAD); NULL: nobody asks. ld_y is that of dy. */
template <int N>
DEVICE void grad_of_head(X *dx, f32 *part, const X *dy, const X *x, const W *w, const f32 *rstd, const f32 *table,
                         const int *positions, i64 ld_dx, int chunk, int head, const layout &l)
{
    bool      there = head < l.heads;
    i64       column = l.first + (i64)head * l.stride;
    halves<N> weights = load_halves<W, N>(w, l.second > 0 && head >= l.second ? HEAD : 0, there), sums = {};
    int       end = l.rows - chunk * ROWS < ROWS ? l.rows : (chunk + 1) * ROWS;
    ROLLED for (int row = chunk * ROWS; row < end; row++) {
        i64       from = l.place(row);
        halves<N> d = load_halves<X, N>(dy, from * l.ld_y + column, there);
        halves<N> v = load_halves<X, N>(x, row * l.ld_x + column, there);
        float     r = there ? rstd[from * l.heads + head] : 0.0f, sum = 0.0f;
        turn_halves<N>(d, TURNS ? table + (i64)l.position(positions, from) * HEAD : table, -1.0f, there);
        EACH_ELEMENT (N, t, e) {
            sums.low[t].of[e] = multiply_add(d.low[t].of[e] * v.low[t].of[e], r, sums.low[t].of[e]);
            sums.high[t].of[e] = multiply_add(d.high[t].of[e] * v.high[t].of[e], r, sums.high[t].of[e]);
            d.low[t].of[e] *= weights.low[t].of[e];
            d.high[t].of[e] *= weights.high[t].of[e];
            sum = multiply_add(d.low[t].of[e], v.low[t].of[e], sum);
            sum = multiply_add(d.high[t].of[e], v.high[t].of[e], sum);
        }
        sum = group_sum<shares<N>::LANES>(sum) * r * r / (float)HEAD;
        EACH_ELEMENT (N, t, e) {
            d.low[t].of[e] = r * (d.low[t].of[e] - v.low[t].of[e] * sum);
            d.high[t].of[e] = r * (d.high[t].of[e] - v.high[t].of[e] * sum);
        }
        if (dx) store_halves<X, N>(dx, row * ld_dx + column, there, d);
    }
    if (part) store_halves<f32, N>(part, ((i64)chunk * l.heads + head) * HEAD, there, sums);
}

template <int N>
DEVICE void grad_rows(X *dx, f32 *part, const X *dy, const X *x, const W *w, const f32 *rstd, const f32 *table,
                      const int *positions, i64 ld_dx, const layout &l)
{
    const int pieces = (l.heads + shares<N>::HEADS - 1) / shares<N>::HEADS, chunks = (l.rows + ROWS - 1) / ROWS;
    EACH_PIECE (chunk, piece, chunks, pieces + l.spans) {
        if (piece < pieces) {
            int head = piece * shares<N>::HEADS + thread_id() % WAVE / shares<N>::LANES;
            grad_of_head<N>(dx, part, dy, x, w, rstd, table, positions, ld_dx, chunk, head, l);
            continue;
        }
        ROLLED for (int row = chunk * ROWS; row < l.rows && row < (chunk + 1) * ROWS; row++)
            copy_others<N>(dx + row * ld_dx, dy + l.place(row) * l.ld_y, piece - pieces, l);
    }
}

/* dx may lie where dy does: each thread has read a head before it writes it. */
KERNEL(heads_grad)
(X *dx, f32 *RESTRICT part_sums, const X *dy, const X *RESTRICT x, const W *RESTRICT w, const f32 *RESTRICT rstd,
 const f32 *RESTRICT table, const int *RESTRICT positions, LAYOUT, i64 ld_dx, int wide)
{
    layout l = THE_LAYOUT;
    if constexpr (WIDE_HEADS)
        if (wide) {
            grad_rows<RUN>(dx, part_sums, dy, x, w, rstd, table, positions, ld_dx, l);
            return;
        }
    grad_rows<1>(dx, part_sums, dy, x, w, rstd, table, positions, ld_dx, l);
}

/* The parts summed over the chunks and the heads that have a weight, in a fixed order: a block for ACROSS weights. adds:
 * to what is there. */
enum { ACROSS = 8, PARTS = BLOCK / ACROSS };

KERNEL(heads_sums)(D *RESTRICT dw, const f32 *RESTRICT part, int chunks, int heads, int second, int adds)
{
    SHARED float room[PARTS][ACROSS];
    int          column = thread_id() % ACROSS, mine = thread_id() / ACROSS, c = block_id(0) * ACROSS + column;
    int          half = c >= HEAD, from = half ? second : 0, n = (second > 0 && !half ? second : heads) - from;
    bool         inside = c < (second > 0 ? 2 : 1) * HEAD;
    float        sum = 0.0f;
    for (int i = mine; inside && i < chunks * n; i += PARTS) {
        int k = i / n;
        sum += part[((i64)k * heads + from + i - k * n) * HEAD + c - half * HEAD];
    }
    room[mine][column] = sum;
    barrier();
    if (mine > 0 || !inside) return;
    for (int k = 1; k < PARTS; k++) sum += room[k][column];
    put(dw, c, adds ? get(dw, c) + sum : sum);
}
