/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that take each element by itself. X, Y: formats of the inputs and of the result. A result may lie where an input
 * lies. */

KERNEL(cast)(Y *y, const X *x, i64 n)
{
    EACH(i, n) put(y, i, get(x, i));
}

/* Rows of `columns` elements, so far apart. */
KERNEL(add)(Y *y, const X *a, const X *b, i64 n, i64 columns, i64 ld_y, i64 ld_a, i64 ld_b)
{
    EACH(i, n)
    {
        i64 row = i / columns, c = i - row * columns;
        put(y, row * ld_y + c, get(a, row * ld_a + c) + get(b, row * ld_b + c));
    }
}

KERNEL(fill)(Y *y, i64 n, i64 columns, i64 ld, float value)
{
    EACH(i, n)
    {
        i64 row = i / columns;
        put(y, row * ld + i - row * columns, value);
    }
}

/* 1 / (1 + e^-x) */
DEVICE float sigmoid(float x)
{
    return 1.0f / (1.0f + exponential(-x));
}

KERNEL(swiglu)(Y *y, const X *gate_up, i64 n, i64 width)
{
    EACH(i, n)
    {
        i64   row = i / width, at = row * 2 * width + i - row * width;
        float gate = get(gate_up, at);
        put(y, i, gate * sigmoid(gate) * get(gate_up, at + width));
    }
}

KERNEL(swiglu_grad)(Y *d_gate_up, const X *dy, const X *gate_up, i64 n, i64 width)
{
    EACH(i, n)
    {
        i64   row = i / width, at = row * 2 * width + i - row * width;
        float d = get(dy, i), gate = get(gate_up, at), up = get(gate_up, at + width), s = sigmoid(gate);
        put(d_gate_up, at, d * up * s * (1.0f + gate * (1.0f - s)));
        put(d_gate_up, at + width, d * gate * s);
    }
}

DEVICE float tangent(float x) /* hyperbolic */
{
    float a = x < 0.0f ? -x : x, t = 1.0f - 2.0f / (exponential(2.0f * a) + 1.0f);
    return x < 0.0f ? -t : t;
}

#define SQRT_2_OVER_PI 0.79788456f
#define CUBIC 0.044715f

KERNEL(gelu)(Y *y, const X *x, i64 n)
{
    EACH(i, n)
    {
        float v = get(x, i);
        put(y, i, 0.5f * v * (1.0f + tangent(SQRT_2_OVER_PI * (v + CUBIC * v * v * v))));
    }
}

KERNEL(gelu_grad)(Y *dx, const X *dy, const X *x, i64 n)
{
    EACH(i, n)
    {
        float v = get(x, i), t = tangent(SQRT_2_OVER_PI * (v + CUBIC * v * v * v));
        float slope = SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * v * v);
        put(dx, i, get(dy, i) * (0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * slope));
    }
}

/* Pairs (i, i + half) or (2 i, 2 i + 1) of `heads` heads from column `first` on, `stride` apart, are turned by the
 * angles of the row's position; the other columns are copied. direction -1: back. A thread has a pair or a column. */
KERNEL(rope)
(Y *y, const X *x, const f32 *RESTRICT table, const int *RESTRICT positions, i64 rows, i64 width, i64 seq, i64 heads,
 i64 half, i64 first, i64 stride, int interleaved, float direction)
{
    i64 pairs = heads * half, others = x == y ? 0 : width;
    EACH(i, rows * (pairs + others))
    {
        i64 row = i / (pairs + others), at = i - row * (pairs + others);
        if (at >= pairs) {
            i64 c = at - pairs, head = (c - first) / stride;
            if (c < first || head >= heads || c - first - head * stride >= 2 * half)
                put(y, row * width + c, get(x, row * width + c));
            continue;
        }
        i64   head = at / half, k = at - head * half, position = positions ? positions[row] : row % seq;
        i64   a = row * width + first + head * stride + (interleaved ? 2 * k : k), b = a + (interleaved ? 1 : half);
        float cosine = table[position * 2 * half + k], sine = direction * table[position * 2 * half + half + k];
        float xa = get(x, a), xb = get(x, b);
        put(y, a, xa * cosine - xb * sine);
        put(y, b, xa * sine + xb * cosine);
    }
}
