/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a block beside products, norms and attention: activations, keys and values of latent attention, matrices
 * that are joined and split. X: the format of all operands. */

/* 1 / (1 + e^-x) */
DEVICE float sigmoid(float x)
{
    return 1.0f / (1.0f + exponential(-x));
}

KERNEL(relu)(X *y, const X *x, i64 n)
{
    EACH(i, n)
    {
        float v = get(x, i);
        put(y, i, v <= 0.0f ? 0.0f : v);
    }
}

KERNEL(relu_grad)(X *dx, const X *dy, const X *y, i64 n)
{
    EACH(i, n) put(dx, i, get(y, i) <= 0.0f ? 0.0f : get(dy, i));
}

KERNEL(silu)(X *y, const X *x, i64 n)
{
    EACH(i, n)
    {
        float v = get(x, i);
        put(y, i, v * sigmoid(v));
    }
}

KERNEL(silu_grad)(X *dx, const X *dy, const X *x, i64 n)
{
    EACH(i, n)
    {
        float v = get(x, i), s = sigmoid(v);
        put(dx, i, get(dy, i) * s * (1.0f + v * (1.0f - s)));
    }
}

KERNEL(quick_gelu)(X *y, const X *x, i64 n)
{
    EACH(i, n)
    {
        float v = get(x, i);
        put(y, i, v * sigmoid(1.702f * v));
    }
}

/* (1 + tanh u) / 2 is the sigmoid of 2 u: nothing cancels. */
KERNEL(geglu)(X *y, const X *gate_up, i64 rows, int width)
{
    EACH_OF_ROWS(row, c, rows, width)
    {
        i64   at = row * 2 * width + c;
        float gate = get(gate_up, at);
        float u = 0.79788456f * (gate + 0.044715f * gate * gate * gate);
        put(y, row * width + c, gate * sigmoid(2.0f * u) * get(gate_up, at + width));
    }
}

/* No number stays none. */
DEVICE float clamped(float x, float least, float most)
{
    return x > most ? most : x < least ? least : x;
}

KERNEL(swiglu_clamped)(X *y, const X *gate_up, i64 rows, int width, float limit, float alpha)
{
    EACH_OF_ROWS(row, c, rows, width)
    {
        i64   at = row * 2 * width + c;
        float gate = clamped(get(gate_up, at), MINUS_INFINITY, limit);
        float up = clamped(get(gate_up, at + width), -limit, limit);
        put(y, row * width + c, (up + 1.0f) * gate * sigmoid(alpha * gate));
    }
}

KERNEL(swiglu_clamped_grad)
(X *d_gate_up, const X *dy, const X *gate_up, i64 rows, int width, float limit, float alpha)
{
    EACH_OF_ROWS(row, c, rows, width)
    {
        i64   at = row * 2 * width + c;
        float d = get(dy, row * width + c), gate = get(gate_up, at), up = get(gate_up, at + width);
        float g = clamped(gate, MINUS_INFINITY, limit), s = sigmoid(alpha * g);
        float of_gate = d * (clamped(up, -limit, limit) + 1.0f) * s * (1.0f + alpha * g * (1.0f - s));
        put(d_gate_up, at, gate > limit ? 0.0f : of_gate);
        put(d_gate_up, at + width, up > limit || up < -limit ? 0.0f : d * g * s);
    }
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
