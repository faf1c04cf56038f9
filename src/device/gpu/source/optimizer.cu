/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW, and the norm of the gradients. P: format of weights and gradients, M: of moments. */
#include "vectors.cu"

/* In PyTorch's order of operations, each rounded once, as on CPUs (device/cpu/simd/optimizer.c). scalars: tm_scalar. */
KERNEL(adamw)
(P *p, const P *g, M *m, M *v, P *rest, const f64 *RESTRICT scalars, const f64 *RESTRICT clip, i64 n, double beta1,
 double beta2, double eps, double decay)
{
    double rate = scalars[1];
    float  c = (float)clip[1], decayed = (float)(rate * decay), blend1 = (float)(1.0 - beta1), b2 = (float)beta2;
    float  blend2 = (float)(1.0 - beta2), step = (float)(rate / scalars[2]), root = (float)square_root(scalars[3]);
    float  e = (float)eps;
    EACH(i, n)
    {
        float w = get(p, i), d = get(g, i) * c, mi = get(m, i), vi = get(v, i);
        if (rest) w += get(rest, i);
        w -= decayed * w;
        mi += blend1 * (d - mi);
        vi = b2 * vi + blend2 * d * d;
        w -= step * mi / (square_root(vi) / root + e);
        put(p, i, w);
        put(m, i, mi);
        put(v, i, vi);
        if (rest) put(rest, i, w - get(p, i));
    }
}

/* Sums of squares in double: of a block's share of the elements, then of all blocks in one. */
struct squares {
    const P *x;
    double   sum;
    template <int N>
    METHOD void at(i64 i)
    {
        run<P, N> v = load<P, N>(x, i);
        UNROLL for (int e = 0; e < N; e++) sum += (double)element(v, e) * (double)element(v, e);
    }
};
KERNEL(square_parts)(f64 *RESTRICT part, const P *RESTRICT x, i64 n, int wide)
{
    SHARED double room[BLOCK];
    squares       mine = { x, 0.0 };
    each_piece<RUN_OF(P, P)>(n, wide, mine);
    double sum = block_sum(mine.sum, room);
    if (thread_id() == 0) part[block_id(0)] = sum;
}

KERNEL(square_total)(f64 *total, const f64 *RESTRICT part, int parts, int adds)
{
    SHARED double room[BLOCK];
    double        sum = 0.0;
    for (int i = thread_id(); i < parts; i += BLOCK) sum += part[i];
    sum = block_sum(sum, room);
    if (thread_id() == 0) *total = adds ? *total + sum : sum;
}

/* The norm, and what gradients are multiplied by. */
KERNEL_OF(1, clip)(f64 *RESTRICT result, const f64 *RESTRICT sum, const f64 *RESTRICT scalars)
{
    double most = scalars[4], norm = square_root(*sum), coefficient = most / (norm + 1e-6);
    if (most <= 0.0 || coefficient > 1.0) coefficient = 1.0;
    result[0] = norm;
    result[1] = coefficient;
}
