/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of a factor that is nowhere in memory: what an op of single elements makes of its inputs, rounded as it would
 * have stored it. A part of both.cu; the arithmetic is that of pointwise.cu and blocks.cu, operation by operation.
 *
 * MAKER: which op (op/quantize.h), 0: none; AS_BF16: it stores bfloat16, else float32. */
#if MAKER

DEVICE float stored(float x)
{
#if AS_BF16
    bf16 one[1];
    put(one, 0, x);
    return get(one, 0);
#else
    return x;
#endif
}

/* 1 / (1 + e^-x) */
DEVICE float sigmoid(float x)
{
    return 1.0f / (1.0f + exponential(-x));
}

#define SQRT_2_OVER_PI 0.79788456f
#define CUBIC 0.044715f

DEVICE float gelu_of(float v)
{
    return v * sigmoid(2.0f * SQRT_2_OVER_PI * (v + CUBIC * v * v * v));
}
DEVICE float gelu_slope(float dy, float v)
{
    float u = 2.0f * SQRT_2_OVER_PI * (v + CUBIC * v * v * v);
    float slope = 2.0f * SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * v * v);
    return dy * (sigmoid(u) + v * sigmoid(u) * sigmoid(-u) * slope);
}

/* RUN elements, n of which there are; zeros behind them, of which all ops here make zeros. */
DEVICE void load_run(float (&v)[RUN], const X *x, i64 at, int n, int vectors)
{
    const int each = 16 / (int)sizeof(X);
    if (vectors && n >= RUN) {
        UNROLL for (int i = 0; i < RUN; i += each) unpack(v + i, x, *(const words *)(const void *)(x + at + i));
    } else {
        UNROLL for (int i = 0; i < RUN; i++) v[i] = i < n ? get(x, at + i) : 0.0f;
    }
}

/* Elements of a row from a column on, n of which there are; of the gradient of a gate those of both halves. first, second:
 * the op's inputs; width: columns of what it makes, of a gradient of a gate half of them. */
DEVICE void make(float (&v)[HALVES][RUN], const X *first, const X *second, i64 row, int column, int width, int n, int vectors)
{
    float a[RUN], b[RUN];
    i64   at = row * width + column, of_gate = row * 2 * width + column;
#if MAKER == SWIGLU || MAKER == GEGLU
    load_run(a, first, of_gate, n, vectors);
    load_run(b, first, of_gate + width, n, vectors);
    UNROLL for (int i = 0; i < RUN; i++)
        v[0][i] = stored(MAKER == GEGLU ? gelu_of(a[i]) * b[i] : a[i] * sigmoid(a[i]) * b[i]);
#elif MAKER == SWIGLU_GRAD
    float d[RUN];
    load_run(d, first, at, n, vectors);
    load_run(a, second, of_gate, n, vectors);
    load_run(b, second, of_gate + width, n, vectors);
    UNROLL for (int i = 0; i < RUN; i++) {
        float gate = a[i], s = sigmoid(gate);
        v[0][i] = stored(d[i] * b[i] * s * (1.0f + gate * (1.0f - s)));
        v[1][i] = stored(d[i] * gate * s);
    }
#elif MAKER == GELU
    load_run(a, first, at, n, vectors);
    UNROLL for (int i = 0; i < RUN; i++) v[0][i] = stored(gelu_of(a[i]));
#else
    load_run(a, first, at, n, vectors);
    load_run(b, second, at, n, vectors);
    UNROLL for (int i = 0; i < RUN; i++) v[0][i] = stored(gelu_slope(a[i], b[i]));
#endif
}

#endif
