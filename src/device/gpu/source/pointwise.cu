/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that take each element by itself. X, Y: formats of the inputs and of the result. A result may lie where an input
 * lies. */
#include "vectors.cu"

enum { RUN = RUN_OF(X, Y) };

struct itself {
    METHOD float operator()(float x) const
    {
        return x;
    }
};
KERNEL(cast)(Y *y, const X *x, i64 n, int wide)
{
    map<Y, X>(y, x, n, wide, itself{});
}

/* Rows of `columns` elements, so far apart. */
struct sum_of_rows {
    Y       *y;
    const X *a, *b;
    i64      ld_y, ld_a, ld_b;
    template <int N>
    METHOD void at(i64 row, int c) const
    {
        run<X, N> v = load<X, N>(a, row * ld_a + c), w = load<X, N>(b, row * ld_b + c);
        floats<N> sum;
        UNROLL for (int e = 0; e < N; e++) sum.of[e] = element(v, e) + element(w, e);
        store<Y, N>(y, row * ld_y + c, sum);
    }
};
KERNEL(add)(Y *y, const X *a, const X *b, i64 rows, int columns, i64 ld_y, i64 ld_a, i64 ld_b, int wide)
{
    each_piece_of_rows<RUN>(rows, columns, wide, sum_of_rows{ y, a, b, ld_y, ld_a, ld_b });
}

struct filled_rows {
    Y    *y;
    i64   ld;
    float value;
    template <int N>
    METHOD void at(i64 row, int c) const
    {
        floats<N> v;
        UNROLL for (int e = 0; e < N; e++) v.of[e] = value;
        store<Y, N>(y, row * ld + c, v);
    }
};
KERNEL(fill)(Y *y, i64 rows, int columns, i64 ld, float value, int wide)
{
    each_piece_of_rows<RUN>(rows, columns, wide, filled_rows{ y, ld, value });
}

/* 1 / (1 + e^-x) */
DEVICE float sigmoid(float x)
{
    return 1.0f / (1.0f + exponential(-x));
}

struct gated_rows {
    Y       *y;
    const X *gate_up;
    int      width;
    template <int N>
    METHOD void at(i64 row, int c) const
    {
        i64       at = row * 2 * width + c;
        run<X, N> gates = load<X, N>(gate_up, at), ups = load<X, N>(gate_up, at + width);
        floats<N> result;
        UNROLL for (int e = 0; e < N; e++) {
            float gate = element(gates, e);
            result.of[e] = gate * sigmoid(gate) * element(ups, e);
        }
        store<Y, N>(y, row * width + c, result);
    }
};
KERNEL(swiglu)(Y *y, const X *gate_up, i64 rows, int width, int wide)
{
    each_piece_of_rows<RUN>(rows, width, wide, gated_rows{ y, gate_up, width });
}

struct gated_gradients {
    Y       *d_gate_up;
    const X *dy, *gate_up;
    int      width;
    template <int N>
    METHOD void at(i64 row, int c) const
    {
        i64       at = row * 2 * width + c;
        run<X, N> gates = load<X, N>(gate_up, at), ups = load<X, N>(gate_up, at + width);
        run<X, N> ds = load<X, N>(dy, row * width + c);
        floats<N> d_gate, d_up;
        UNROLL for (int e = 0; e < N; e++) {
            float d = element(ds, e), gate = element(gates, e), s = sigmoid(gate);
            d_gate.of[e] = d * element(ups, e) * s * (1.0f + gate * (1.0f - s));
            d_up.of[e] = d * gate * s;
        }
        store<Y, N>(d_gate_up, at, d_gate);
        store<Y, N>(d_gate_up, at + width, d_up);
    }
};
KERNEL(swiglu_grad)(Y *d_gate_up, const X *dy, const X *gate_up, i64 rows, int width, int wide)
{
    each_piece_of_rows<RUN>(rows, width, wide, gated_gradients{ d_gate_up, dy, gate_up, width });
}

#define SQRT_2_OVER_PI 0.79788456f
#define CUBIC 0.044715f

/* (1 + tanh u) / 2 is the sigmoid of 2 u: nothing cancels. */
struct gelu_of {
    METHOD float operator()(float v) const
    {
        return v * sigmoid(2.0f * SQRT_2_OVER_PI * (v + CUBIC * v * v * v));
    }
};
KERNEL(gelu)(Y *y, const X *x, i64 n, int wide)
{
    map<Y, X>(y, x, n, wide, gelu_of{});
}

struct gelu_slope {
    METHOD float operator()(float dy, float v) const
    {
        float u = 2.0f * SQRT_2_OVER_PI * (v + CUBIC * v * v * v);
        float slope = 2.0f * SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * v * v);
        return dy * (sigmoid(u) + v * sigmoid(u) * sigmoid(-u) * slope);
    }
};
KERNEL(gelu_grad)(Y *dx, const X *dy, const X *x, i64 n, int wide)
{
    map_two<Y, X>(dx, dy, x, n, wide, gelu_slope{});
}

/* Pairs of elements are turned by angles: the table has cosines and, `half` behind them, sines. direction -1: back. */
struct turning {
    Y         *y;
    const X   *x;
    const f32 *table;
    int        half;
    float      direction;
    /* N pairs of elements a, a + 1, ... with those `gap` behind them. */
    template <int N>
    METHOD void apart(i64 a, int gap, i64 angle) const
    {
        run<X, N>   first = load<X, N>(x, a), second = load<X, N>(x, a + gap);
        run<f32, N> cosines = load<f32, N>(table, angle), sines = load<f32, N>(table, angle + half);
        floats<N>   ya, yb;
        UNROLL for (int e = 0; e < N; e++) {
            float xa = element(first, e), xb = element(second, e);
            float cosine = element(cosines, e), sine = direction * element(sines, e);
            ya.of[e] = xa * cosine - xb * sine;
            yb.of[e] = xa * sine + xb * cosine;
        }
        store<Y, N>(y, a, ya);
        store<Y, N>(y, a + gap, yb);
    }
    /* N elements that are pairs of neighbors. */
    template <int N>
    METHOD void together(i64 a, i64 angle) const
    {
        run<X, N>       both = load<X, N>(x, a);
        run<f32, N / 2> cosines = load<f32, N / 2>(table, angle), sines = load<f32, N / 2>(table, angle + half);
        floats<N>       turned;
        UNROLL for (int e = 0; e < N; e += 2) {
            float xa = element(both, e), xb = element(both, e + 1);
            float cosine = element(cosines, e / 2), sine = direction * element(sines, e / 2);
            turned.of[e] = xa * cosine - xb * sine;
            turned.of[e + 1] = xa * sine + xb * cosine;
        }
        store<Y, N>(y, a, turned);
    }
};

template <int N>
DEVICE void copy_run(Y *y, const X *x, i64 i)
{
    run<X, N> v = load<X, N>(x, i);
    floats<N> same;
    UNROLL for (int e = 0; e < N; e++) same.of[e] = element(v, e);
    store<Y, N>(y, i, same);
}

/* Pairs (i, i + half) or (2 i, 2 i + 1) of `heads` heads from column `first` on, `stride` apart, are turned by the
 * angles of the row's position; where `copies`, the other columns are copied. A thread has a pair or a column; wide: a
 * run of pairs, or a run, as all these numbers are multiples of one. */
KERNEL(rope)
(Y *y, const X *x, const f32 *RESTRICT table, const int *RESTRICT positions, i64 rows, int width, int seq, int heads,
 int half, int first, int stride, int interleaved, int copies, float direction, int wide)
{
    int     each = wide ? RUN : 1, pairs = wide && interleaved ? RUN / 2 : each;
    int     of_head = !wide ? half : interleaved ? half / (RUN / 2) : half / RUN, turns = heads * of_head;
    turning t = { y, x, table, half, direction };
    ROLLED EACH_OF_ROWS (row, p, rows, turns + (!copies ? 0 : wide ? width / RUN : width)) {
        if (p >= turns) {
            int c = (p - turns) * each, head = c < first ? heads : (c - first) / stride;
            if (c >= first && head < heads && c - first - head * stride < 2 * half) continue;
            if (wide)
                copy_run<RUN>(y, x, row * width + c);
            else
                copy_run<1>(y, x, row * width + c);
            continue;
        }
        int head = p / of_head, k = (p - head * of_head) * pairs;
        int position = positions ? positions[row] : (int)((u32)row % (u32)seq);
        i64 a = row * width + first + head * stride + (interleaved ? 2 * k : k), angle = (i64)position * 2 * half + k;
        if (!wide)
            t.apart<1>(a, interleaved ? 1 : half, angle);
        else if (interleaved)
            t.together<RUN>(a, angle);
        else
            t.apart<RUN>(a, half, angle);
    }
}
