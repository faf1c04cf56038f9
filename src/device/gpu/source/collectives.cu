/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a group have computed together is added to what is there. X, Y: formats of the sum and of the
 * result. */
#include "vectors.cu"

struct added_to {
    Y       *y;
    const X *x;
    template <int N>
    METHOD void at(i64 i) const
    {
        run<Y, N> was = load<Y, N>(y, i);
        run<X, N> more = load<X, N>(x, i);
        floats<N> sum;
        UNROLL for (int e = 0; e < N; e++) sum.of[e] = element(was, e) + element(more, e);
        store<Y, N>(y, i, sum);
    }
};
KERNEL(add_to)(Y *y, const X *x, i64 n, int wide)
{
    each_piece<RUN_OF(X, Y)>(n, wide, added_to{ y, x });
}
