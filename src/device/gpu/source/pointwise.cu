/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that take each element by itself. X, Y: formats of the inputs and of the result. A result may lie where an input
 * lies. */

KERNEL(cast)(Y *y, const X *x, i64 n)
{
    EACH(i, n) put(y, i, get(x, i));
}

/* Rows of `columns` elements, so far apart. */
KERNEL(add)(Y *y, const X *a, const X *b, i64 rows, int columns, i64 ld_y, i64 ld_a, i64 ld_b)
{
    EACH_OF_ROWS (row, c, rows, columns) put(y, row * ld_y + c, get(a, row * ld_a + c) + get(b, row * ld_b + c));
}

KERNEL(fill)(Y *y, i64 rows, int columns, i64 ld, float value)
{
    EACH_OF_ROWS (row, c, rows, columns) put(y, row * ld + c, value);
}

/* 1 / (1 + e^-x) */
DEVICE float sigmoid(float x)
{
    return 1.0f / (1.0f + exponential(-x));
}

KERNEL(swiglu)(Y *y, const X *gate_up, i64 rows, int width)
{
    EACH_OF_ROWS (row, c, rows, width) {
        i64   at = row * 2 * width + c;
        float gate = get(gate_up, at);
        put(y, row * width + c, gate * sigmoid(gate) * get(gate_up, at + width));
    }
}

KERNEL(swiglu_grad)(Y *d_gate_up, const X *dy, const X *gate_up, i64 rows, int width)
{
    EACH_OF_ROWS (row, c, rows, width) {
        i64   at = row * 2 * width + c;
        float d = get(dy, row * width + c), gate = get(gate_up, at), up = get(gate_up, at + width), s = sigmoid(gate);
        put(d_gate_up, at, d * up * s * (1.0f + gate * (1.0f - s)));
        put(d_gate_up, at + width, d * gate * s);
    }
}

#define SQRT_2_OVER_PI 0.79788456f
#define CUBIC 0.044715f

/* (1 + tanh u) / 2 is the sigmoid of 2 u: nothing cancels. */
KERNEL(gelu)(Y *y, const X *x, i64 n)
{
    EACH (i, n) {
        float v = get(x, i);
        put(y, i, v * sigmoid(2.0f * SQRT_2_OVER_PI * (v + CUBIC * v * v * v)));
    }
}

KERNEL(gelu_grad)(Y *dx, const X *dy, const X *x, i64 n)
{
    EACH (i, n) {
        float v = get(x, i), u = 2.0f * SQRT_2_OVER_PI * (v + CUBIC * v * v * v);
        float slope = 2.0f * SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * v * v);
        put(dx, i, get(dy, i) * (sigmoid(u) + v * sigmoid(u) * sigmoid(-u) * slope));
    }
}

/* Pairs (i, i + half) or (2 i, 2 i + 1) of `heads` heads from column `first` on, `stride` apart, are turned by the
 * angles of the row's position; where `copies`, the other columns are copied. direction -1: back. A thread has a pair or a
 * column. */
KERNEL(rope)
(X *y, const X *x, const f32 *RESTRICT table, const int *RESTRICT positions, i64 rows, int width, int seq, int heads,
 int half, int first, int stride, int interleaved, int copies, float direction)
{
    int pairs = heads * half;
    EACH_OF_ROWS (row, at, rows, pairs + (copies ? width : 0)) {
        if (at >= pairs) {
            int c = at - pairs, head = c < first ? heads : (c - first) / stride;
            if (c < first || head >= heads || c - first - head * stride >= 2 * half)
                put(y, row * width + c, get(x, row * width + c));
            continue;
        }
        int   head = at / half, k = at - head * half, position = positions ? positions[row] : (int)((u32)row % (u32)seq);
        i64   a = row * width + first + head * stride + (interleaved ? 2 * k : k), b = a + (interleaved ? 1 : half);
        i64   angle = (i64)position * 2 * half + k;
        float cosine = table[angle], sine = direction * table[angle + half], xa = get(x, a), xb = get(x, b);
        put(y, a, xa * cosine - xb * sine);
        put(y, b, xa * sine + xb * cosine);
    }
}
