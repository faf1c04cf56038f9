/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices whose rows lie apart, columns of others: copied, filled by gelu, or read by its gradient, which sums its
 * columns on the way. X: the format of all of them. */
#include "vectors.cu"

enum { RUN = RUN_OF(X, X) };

struct copied_rows {
    X       *y;
    const X *x;
    i64      ld_y, ld_x;
    template <int N>
    METHOD void at(i64 row, int c) const
    {
        run<X, N> v = load<X, N>(x, row * ld_x + c);
        floats<N> same;
        UNROLL for (int e = 0; e < N; e++) same.of[e] = element(v, e);
        store<X, N>(y, row * ld_y + c, same);
    }
};
KERNEL(copy)(X *RESTRICT y, const X *RESTRICT x, i64 rows, int columns, i64 ld_y, i64 ld_x, int wide)
{
    each_piece_of_rows<RUN>(rows, columns, wide, copied_rows{ y, x, ld_y, ld_x });
}

/* 1 / (1 + e^-x) */
DEVICE float sigmoid(float x)
{
    return 1.0f / (1.0f + exponential(-x));
}

#define SQRT_2_OVER_PI 0.79788456f
#define CUBIC 0.044715f

/* 2 sqrt(2 / pi) (v + 0.044715 v^3), whose sigmoid is (1 + tanh(.)) / 2, and its slope. */
DEVICE float inner(float v)
{
    return 2.0f * SQRT_2_OVER_PI * (v + CUBIC * v * v * v);
}
DEVICE float inner_slope(float v)
{
    return 2.0f * SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * v * v);
}

struct activated_rows {
    X       *y;
    const X *x;
    i64      ld_y, ld_x;
    template <int N>
    METHOD void at(i64 row, int c) const
    {
        run<X, N> v = load<X, N>(x, row * ld_x + c);
        floats<N> result;
        UNROLL for (int e = 0; e < N; e++) result.of[e] = element(v, e) * sigmoid(inner(element(v, e)));
        store<X, N>(y, row * ld_y + c, result);
    }
};
KERNEL(gelu)(X *RESTRICT y, const X *RESTRICT x, i64 rows, int columns, i64 ld_y, i64 ld_x, int wide)
{
    each_piece_of_rows<RUN>(rows, columns, wide, activated_rows{ y, x, ld_y, ld_x });
}

/* A lane has N columns of a chunk of rows. */
template <int N>
DEVICE void grad_columns(X *dx, f32 *part, const X *dy, const X *x, int c, i64 first, i64 end, int columns, i64 ld_dy)
{
    floats<N> sums = {};
    if (c >= columns) return;
    ROLLED for (i64 row = first; row < end; row++) {
        run<X, N> ds = load<X, N>(dy, row * ld_dy + c), vs = load<X, N>(x, row * columns + c);
        floats<N> result;
        UNROLL for (int e = 0; e < N; e++) {
            float v = element(vs, e), s = sigmoid(inner(v));
            result.of[e] = element(ds, e) * (s + v * s * sigmoid(-inner(v)) * inner_slope(v));
            sums.of[e] += result.of[e];
        }
        store<X, N>(dx, row * columns + c, result);
    }
    store<f32, N>(part, (i64)block_id(1) * columns + c, sums);
}

/* part (chunks, columns). dx may lie where dy does. */
KERNEL(gelu_bias_grad)
(X *dx, f32 *RESTRICT part, const X *dy, const X *RESTRICT x, i64 rows, int columns, i64 ld_dy, int chunk, int wide)
{
    int lane = block_id(0) * BLOCK + thread_id();
    i64 first = (i64)block_id(1) * chunk, end = first + chunk < rows ? first + chunk : rows;
    if (wide)
        grad_columns<RUN>(dx, part, dy, x, lane * RUN, first, end, columns, ld_dy);
    else
        grad_columns<1>(dx, part, dy, x, lane, first, end, columns, ld_dy);
}
