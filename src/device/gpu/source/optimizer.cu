/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW, and the norm of the gradients. P: format of weights and gradients, M: of moments. */
#include "vectors.cu"

/* Elements that a thread has at a time: 16 bytes of the wider format. */
enum { RUN = sizeof(P) == 2 && sizeof(M) == 2 ? 8 : 4 };
template <class T> struct alignas(RUN * sizeof(T)) run_of {
    T of[RUN];
};

struct adamw_numbers {
    float clip, decay, blend1, beta2, blend2, step, root, eps;
};

/* In PyTorch's order of operations, each rounded once, as on CPUs (device/cpu/simd/optimizer.c). The copy is the weight
 * as it is stored. */
DEVICE void adamw_at(P *p, const P *g, M *m, M *v, P *rest, bool keeps, bf16 *copy, bool copies, i64 i,
                     const adamw_numbers &s)
{
    float w = get(p, i), d = get(g, i) * s.clip, mi = get(m, i), vi = get(v, i);
    if (keeps) w += get(rest, i);
    w -= s.decay * w;
    mi += s.blend1 * (d - mi);
    vi = s.beta2 * vi + s.blend2 * d * d;
    w -= s.step * mi / (square_root(vi) / s.root + s.eps);
    put(p, i, w);
    put(m, i, mi);
    put(v, i, vi);
    if (keeps) put(rest, i, w - get(p, i));
    if (copies) put(copy, i, get(p, i));
}

/* rest, copy NULL: there is none. scalars: tm_scalar. So many runs, then the elements behind them one by one. */
KERNEL(adamw)
(P *p, const P *g, M *m, M *v, P *rest, bf16 *copy, const f64 *RESTRICT scalars, const f64 *RESTRICT clip, i64 n,
 i64 runs, double beta1, double beta2, double eps, double decay)
{
    double        rate = scalars[1];
    adamw_numbers s = { (float)clip[1], (float)(rate * decay), (float)(1.0 - beta1), (float)beta2, (float)(1.0 - beta2),
                        (float)(rate / scalars[2]), (float)square_root(scalars[3]), (float)eps };
    bool          keeps = rest, copies = copy;
    EACH(r, runs)
    {
        run_of<P>    w = ((const run_of<P> *)p)[r], d = ((const run_of<P> *)g)[r], c = w;
        run_of<M>    a = ((const run_of<M> *)m)[r], b = ((const run_of<M> *)v)[r];
        run_of<bf16> to;
        if (keeps) c = ((const run_of<P> *)rest)[r];
        UNROLL for (int k = 0; k < RUN; k++) adamw_at(w.of, d.of, a.of, b.of, c.of, keeps, to.of, copies, k, s);
        ((run_of<P> *)p)[r] = w;
        ((run_of<M> *)m)[r] = a;
        ((run_of<M> *)v)[r] = b;
        if (keeps) ((run_of<P> *)rest)[r] = c;
        if (copies) ((run_of<bf16> *)copy)[r] = to;
    }
    EACH(k, n - runs * RUN) adamw_at(p, g, m, v, rest, keeps, copy, copies, runs * RUN + k, s);
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
