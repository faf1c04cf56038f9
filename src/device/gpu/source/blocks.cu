/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a block beside products, norms and attention: activations, keys and values of latent attention, matrices
 * that are joined and split. X: the format of all operands. */

#include "vectors.cu"

enum { RUN = RUN_OF(X, X) };

/* 1 / (1 + e^-x) */
DEVICE float sigmoid(float x)
{
    return 1.0f / (1.0f + exponential(-x));
}

/* Functions of an element, and of two: a gradient and what belongs to it, or a gate and the other half. */
#define FUNCTION(name, result)                                                                                         \
    struct name {                                                                                                      \
        METHOD float operator()(float v) const                                                                         \
        {                                                                                                              \
            return result;                                                                                             \
        }                                                                                                              \
    }
#define FUNCTION_OF_TWO(name, result)                                                                                  \
    struct name {                                                                                                      \
        METHOD float operator()(float d, float v) const                                                                \
        {                                                                                                              \
            return result;                                                                                             \
        }                                                                                                              \
    }
FUNCTION(relu_of, v <= 0.0f ? 0.0f : v);
FUNCTION(silu_of, v *sigmoid(v));
FUNCTION(quick_gelu_of, v *sigmoid(1.702f * v));
FUNCTION_OF_TWO(relu_slope, v <= 0.0f ? 0.0f : d);
FUNCTION_OF_TWO(silu_slope, d *sigmoid(v) * (1.0f + v * (1.0f - sigmoid(v))));

KERNEL(relu)(X *y, const X *x, i64 n, int wide)
{
    map<X, X>(y, x, n, wide, relu_of{});
}
KERNEL(relu_grad)(X *dx, const X *dy, const X *y, i64 n, int wide)
{
    map_two<X, X>(dx, dy, y, n, wide, relu_slope{});
}
KERNEL(silu)(X *y, const X *x, i64 n, int wide)
{
    map<X, X>(y, x, n, wide, silu_of{});
}
KERNEL(silu_grad)(X *dx, const X *dy, const X *x, i64 n, int wide)
{
    map_two<X, X>(dx, dy, x, n, wide, silu_slope{});
}
KERNEL(quick_gelu)(X *y, const X *x, i64 n, int wide)
{
    map<X, X>(y, x, n, wide, quick_gelu_of{});
}

/* Rows y = f(gate, up) of rows that hold both. */
template <typename F>
struct gated_rows {
    X       *y;
    const X *gate_up;
    int      width;
    F        f;
    template <int N>
    METHOD void at(i64 row, int c) const
    {
        i64       from = row * 2 * width + c;
        run<X, N> gates = load<X, N>(gate_up, from), ups = load<X, N>(gate_up, from + width);
        floats<N> result;
        UNROLL for (int e = 0; e < N; e++) result.of[e] = f(element(gates, e), element(ups, e));
        store<X, N>(y, row * width + c, result);
    }
};

/* (1 + tanh u) / 2 is the sigmoid of 2 u: nothing cancels. */
struct geglu_of {
    METHOD float operator()(float gate, float up) const
    {
        float u = 0.79788456f * (gate + 0.044715f * gate * gate * gate);
        return gate * sigmoid(2.0f * u) * up;
    }
};
KERNEL(geglu)(X *y, const X *gate_up, i64 rows, int width, int wide)
{
    each_piece_of_rows<RUN>(rows, width, wide, gated_rows<geglu_of>{ y, gate_up, width, {} });
}

/* No number stays none. */
DEVICE float clamped(float x, float least, float most)
{
    return x > most ? most : x < least ? least : x;
}

struct clamped_of {
    float limit, alpha;
    METHOD float operator()(float gate, float up) const
    {
        float g = clamped(gate, MINUS_INFINITY, limit), u = clamped(up, -limit, limit);
        return (u + 1.0f) * g * sigmoid(alpha * g);
    }
};
KERNEL(swiglu_clamped)(X *y, const X *gate_up, i64 rows, int width, int wide, float limit, float alpha)
{
    each_piece_of_rows<RUN>(rows, width, wide, gated_rows<clamped_of>{ y, gate_up, width, { limit, alpha } });
}

struct clamped_gradients {
    X       *d_gate_up;
    const X *dy, *gate_up;
    int      width;
    float    limit, alpha;
    template <int N>
    METHOD void at(i64 row, int c) const
    {
        i64       from = row * 2 * width + c;
        run<X, N> gates = load<X, N>(gate_up, from), ups = load<X, N>(gate_up, from + width);
        run<X, N> ds = load<X, N>(dy, row * width + c);
        floats<N> d_gate, d_up;
        UNROLL for (int e = 0; e < N; e++) {
            float d = element(ds, e), gate = element(gates, e), up = element(ups, e);
            float g = clamped(gate, MINUS_INFINITY, limit), s = sigmoid(alpha * g);
            float of_gate = d * (clamped(up, -limit, limit) + 1.0f) * s * (1.0f + alpha * g * (1.0f - s));
            d_gate.of[e] = gate > limit ? 0.0f : of_gate;
            d_up.of[e] = up > limit || up < -limit ? 0.0f : d * g * s;
        }
        store<X, N>(d_gate_up, from, d_gate);
        store<X, N>(d_gate_up, from + width, d_up);
    }
};
KERNEL(swiglu_clamped_grad)
(X *d_gate_up, const X *dy, const X *gate_up, i64 rows, int width, int wide, float limit, float alpha)
{
    each_piece_of_rows<RUN>(rows, width, wide, clamped_gradients{ d_gate_up, dy, gate_up, width, limit, alpha });
}

/* Of each row the keys of all heads, `own` elements of its own and `shared` ones, and then their values. */
KERNEL(latent_keys)
(X *RESTRICT k, X *RESTRICT v, const X *RESTRICT kv, const X *RESTRICT pe, i64 rows, int heads, int own, int shared,
 int value, i64 ld_pe)
{
    int key = own + shared, keys = heads * key;
    EACH_OF_ROWS(row, c, rows, keys + heads * value)
    {
        i64 from = row * heads * (own + value);
        if (c < keys) {
            int head = c / key, at = c - head * key;
            k[row * keys + c] = at < own ? kv[from + head * (own + value) + at] : pe[row * ld_pe + at - own];
        } else {
            int head = (c - keys) / value, at = c - keys - head * value;
            v[row * heads * value + c - keys] = kv[from + head * (own + value) + own + at];
        }
    }
}

/* And back: what heads shared is summed over them in ascending order. */
KERNEL(latent_keys_grad)
(X *RESTRICT dkv, X *RESTRICT dpe, const X *RESTRICT dk, const X *RESTRICT dv, i64 rows, int heads, int own, int shared,
 int value, i64 ld_pe)
{
    int both = own + value, key = own + shared;
    EACH_OF_ROWS(row, c, rows, heads * both + shared)
    {
        i64 from = row * heads * key;
        if (c < heads * both) {
            int head = c / both, at = c - head * both;
            dkv[row * heads * both + c] =
                at < own ? dk[from + head * key + at] : dv[row * heads * value + head * value + at - own];
        } else {
            float sum = 0.0f;
            for (int head = 0; head < heads; head++) sum += get(dk, from + head * key + own + c - heads * both);
            put(dpe, row * ld_pe + c - heads * both, sum);
        }
    }
}

/* 16 bytes of elements of any format. */
struct __attribute__((aligned(16))) wide {
    u32 of[4];
};

/* Where element (row, c) of the whole lies in the part that it comes from. samples: rows are divided, else columns. */
struct place {
    int second;
    i64 at;
};
DEVICE place part_of(i64 row, int c, int columns, int first, int second, int samples)
{
    if (!samples) return c < first ? place{ 0, row * first + c } : place{ 1, row * second + c - first };
    int sample = (int)((u32)row / (u32)(first + second)), r = (int)row - sample * (first + second);
    return r < first ? place{ 0, ((i64)sample * first + r) * columns + c }
                     : place{ 1, ((i64)sample * second + r - first) * columns + c };
}

/* A part that is absent is zeros. */
template <typename E>
DEVICE void join_parts(E *y, const E *a, const E *b, i64 rows, int columns, int first, int second, int samples)
{
    EACH_OF_ROWS(row, c, rows, columns)
    {
        place    p = part_of(row, c, columns, first, second, samples);
        const E *from = p.second ? b : a;
        if (from)
            y[row * columns + c] = from[p.at];
        else
            y[row * columns + c] = E{};
    }
}

template <typename E>
DEVICE void split_parts(E *a, E *b, const E *y, i64 rows, int columns, int first, int second, int samples)
{
    EACH_OF_ROWS(row, c, rows, columns)
    {
        place p = part_of(row, c, columns, first, second, samples);
        (p.second ? b : a)[p.at] = y[row * columns + c];
    }
}

#define SIZES i64 rows, int columns, int first, int second, int samples

KERNEL(join)(X *RESTRICT y, const X *RESTRICT a, const X *RESTRICT b, SIZES)
{
    join_parts(y, a, b, rows, columns, first, second, samples);
}
KERNEL(join_wide)(wide *RESTRICT y, const wide *RESTRICT a, const wide *RESTRICT b, SIZES)
{
    join_parts(y, a, b, rows, columns, first, second, samples);
}
KERNEL(split)(X *RESTRICT a, X *RESTRICT b, const X *RESTRICT y, SIZES)
{
    split_parts(a, b, y, rows, columns, first, second, samples);
}
KERNEL(split_wide)(wide *RESTRICT a, wide *RESTRICT b, const wide *RESTRICT y, SIZES)
{
    split_parts(a, b, y, rows, columns, first, second, samples);
}
