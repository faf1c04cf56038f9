/* SPDX-License-Identifier: Apache-2.0 */
/* Muon, the formula of op/muon.c, around the products: momentum and norm, the polynomial's coefficients, the update. P:
 * format of weights and gradients, M: of the momentum, X: of what is multiplied. Elements of the matrix begin at
 * `first` of the tensor. */
#include "chance.cu"

/* x: the direction; part: of each block, the sum of its squares. */
KERNEL(muon_take)
(X *RESTRICT x, f64 *RESTRICT part, M *b_new, const M *b, const P *RESTRICT g, const f64 *RESTRICT scalars,
 const f64 *RESTRICT clip, i64 n, i64 first, double momentum, int nesterov, i64 stream)
{
    SHARED double room[BLOCK];
    float         c = (float)clip[1], mu = (float)momentum, blend = (float)(1.0 - momentum);
    double        squares = 0.0;
    chances       of = chances_of(stream, scalars);
    EACH(i, n)
    {
        float d = get(g, first + i) * c, bi = get(b, first + i);
        bi += blend * (d - bi);
        float u = nesterov ? d + mu * (bi - d) : bi;
        put(x, i, u);
        put_rounded(of, b_new, first + i, bi, 16);
        squares += (double)u * (double)u;
    }
    squares = block_sum(squares, room);
    if (thread_id() == 0) part[block_id(0)] = squares;
}

/* What x is multiplied by. A norm that is no number stays one. */
KERNEL(muon_norm)(f32 *RESTRICT scale, const f64 *RESTRICT part, int parts, double eps)
{
    SHARED double room[BLOCK];
    double        squares = 0.0;
    for (int k = thread_id(); k < parts; k += BLOCK) squares += part[k];
    double norm = square_root(block_sum(squares, room));
    if (thread_id() == 0) *scale = 1.0f / (float)(norm < eps ? eps : norm);
}

KERNEL(muon_scale)(X *x, const f32 *RESTRICT scale, i64 n)
{
    float by = *scale;
    EACH(i, n) put(x, i, by * get(x, i));
}

/* square = a I + b gram + c square, of r rows. */
KERNEL(muon_blend)(X *square, const X *RESTRICT gram, int r, float a, float b, float c)
{
    EACH_OF_ROWS(row, column, r, r)
    {
        i64   i = row * r + column;
        float value = b * get(gram, i) + c * get(square, i);
        put(square, i, row == column ? a + value : value);
    }
}

KERNEL(muon_move)
(P *p_new, const P *p, const X *RESTRICT x, const f64 *RESTRICT scalars, i64 n, i64 first, double decay, double factor,
 i64 stream)
{
    float   decayed = (float)(scalars[1] * decay), step = (float)(scalars[1] * factor);
    chances of = chances_of(stream, scalars);
    EACH(i, n)
    {
        float w = get(p, first + i);
        w = w - decayed * w - step * get(x, i);
        put_rounded(of, p_new, first + i, w, 0);
    }
}
