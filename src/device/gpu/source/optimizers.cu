/* SPDX-License-Identifier: Apache-2.0 */
/* Updates of weights, element by element, with the operations of CPUs (device/cpu/simd/optimizer.c, adamw8.c), each
 * rounded once: the same bits. P: format of weights and gradients, M: of moments. scalars: tm_scalar. */
#include "chance.cu"

/* AdamW that rounds by chance; `first`: of a part of a tensor, the element that is the first one here. */
KERNEL(adamw_by_chance)
(P *p_new, M *m_new, M *v_new, const P *p, const P *g, const M *m, const M *v, const f64 *RESTRICT scalars,
 const f64 *RESTRICT clip, i64 n, double beta1, double beta2, double eps, double decay, i64 stream, i64 first)
{
    double  rate = scalars[1];
    float   c = (float)clip[1], decayed = (float)(rate * decay), blend1 = (float)(1.0 - beta1), b2 = (float)beta2;
    float   blend2 = (float)(1.0 - beta2), step = (float)(rate / scalars[2]), root = (float)square_root(scalars[3]);
    float   e = (float)eps;
    chances of = chances_of(stream, scalars);
    EACH(i, n)
    {
        float w = get(p, i), d = get(g, i) * c, mi = get(m, i), vi = get(v, i);
        w -= decayed * w;
        mi += blend1 * (d - mi);
        vi = b2 * vi + blend2 * d * d;
        w -= step * mi / (square_root(vi) / root + e);
        u32 word = of.word(first + i, 0);
        put_by_chance(p_new, i, w, word, 0);
        put_by_chance(m_new, i, mi, word, 16);
        put_by_chance(v_new, i, vi, of.word(first + i, 1), 0);
    }
}

/* b NULL: no momentum. */
KERNEL(sgd)
(P *p_new, P *b_new, const P *p, const P *g, const P *b, const f64 *RESTRICT scalars, const f64 *RESTRICT clip, i64 n,
 double decay, double momentum, int nesterov, i64 stream, i64 first)
{
    float   rate = (float)scalars[1], c = (float)clip[1], decayed = (float)decay, mu = (float)momentum;
    chances of = chances_of(stream, scalars);
    EACH(i, n)
    {
        float w = get(p, i), d = get(g, i) * c;
        u32   word = of.on ? of.word(first + i, 0) : 0;
        d += decayed * w;
        float move = d;
        if (b) {
            float bi = mu * get(b, i) + d;
            if (of.on)
                put_by_chance(b_new, i, bi, word, 16);
            else
                put(b_new, i, bi);
            move = nesterov ? d + mu * bi : bi;
        }
        w -= rate * move;
        if (of.on)
            put_by_chance(p_new, i, w, word, 0);
        else
            put(p_new, i, w);
    }
}

/* decay 0: a copy. */
KERNEL(ema)(f32 *e_new, const P *p, const f32 *e, i64 n, double decay)
{
    float blend = (float)(1.0 - decay);
    bool  copies = !(decay > 0.0);
    EACH(i, n)
    {
        float w = get(p, i), ei = copies ? w : e[i];
        e_new[i] = copies ? w : ei + blend * (w - ei);
    }
}

/* --- moments of 8 bits: op/adamw8.c --- */

enum { CODES = 256, DECADES = 7, PARTS = 16 };

/* 10^(i - 6) */
DEVICE double decade(int i)
{
    return i == 0 ? 1e-6 : i == 1 ? 1e-5 : i == 2 ? 1e-4 : i == 3 ? 1e-3 : i == 4 ? 1e-2 : i == 5 ? 1e-1 : 1.0;
}

/* The k-th positive value of the dynamic map (op/dynamic.h), k >= 1: the middle of cell `k - cells` of a decade. */
DEVICE float middle(int k, bool is_signed)
{
    int   at = is_signed ? k : k + 1, i = 0, cells = is_signed ? 1 : 2;
    float each = is_signed ? 1.0f : 0.5f; /* of a decade's cells, a power of 2 */
    while (at >= 2 * cells) i++, cells *= 2, each *= 0.5f;
    double cell = (double)(float)(at - cells), low = 0.1 + 0.9 * cell * (double)each;
    double high = 0.1 + 0.9 * (cell + 1.0) * (double)each;
    return (float)(decade(i) * (low + high) * 0.5);
}
DEVICE float value_of(int code, bool is_signed)
{
    int zero = is_signed ? CODES / 2 - 1 : 0;
    if (code == CODES - 1) return 1.0f;
    return code == zero ? 0.0f : code > zero ? middle(code - zero, is_signed) : -middle(zero - code, is_signed);
}

DEVICE float size_of(float x)
{
    return float_of(bits_of(x) & 0x7fffffffu);
}
/* The neighbor of x, which is not 0, above or below. */
DEVICE float next_to(float x, bool above)
{
    return float_of((x > 0.0f) == above ? bits_of(x) + 1 : bits_of(x) - 1);
}
/* Is x, between these two values, coded as the higher one? */
DEVICE bool goes_up(float x, float low, float high, int torchao)
{
    return torchao ? x - low >= (high - low) * 0.5f : size_of(x - high) < size_of(x - low);
}

/* maps: for m, then for v the values, and the least number above each code (infinity behind the last). */
KERNEL(adamw8_maps)(f32 *maps, int torchao)
{
    int code = thread_id();
    for (int k = 0; k < 2; k++) {
        float low = value_of(code, k == 0), least = -MINUS_INFINITY;
        if (code < CODES - 1) {
            float high = value_of(code + 1, k == 0);
            least = (float)(((double)low + (double)high) * 0.5);
            while (goes_up(least, low, high, torchao)) least = next_to(least, false);
            while (!goes_up(least, low, high, torchao)) least = next_to(least, true);
        }
        maps[(2 * k) * CODES + code] = low;
        maps[(2 * k + 1) * CODES + code] = least;
    }
}

/* How many of the bounds are not above x. */
DEVICE int code_of(const float *least, float x)
{
    int code = 0;
    UNROLL for (int step = CODES / 2; step > 0; step /= 2)
        if (least[code + step - 1] <= x) code += step;
    return code;
}

DEVICE float scale_of(const float *largest, int torchao)
{
    float most = largest[0];
    UNROLL for (int k = 1; k < PARTS; k++) most = larger(most, largest[k]);
    return torchao ? most < 1e-12f ? 1e-12f : most : most == 0.0f ? 1.0f : most;
}

/* A block of threads for each 256 elements, which have one scale. */
KERNEL(adamw8)
(P *p_new, unsigned char *m_new, unsigned char *v_new, f32 *scale_m_new, f32 *scale_v_new, const P *p, const P *g,
 const unsigned char *m_code, const unsigned char *v_code, const f32 *scale_m, const f32 *scale_v,
 const f64 *RESTRICT scalars, const f64 *RESTRICT clip, const f32 *RESTRICT maps, i64 n, double beta1, double beta2,
 double eps, double decay, int torchao, i64 stream)
{
    SHARED float map[4][CODES], size[2][BLOCK], largest[2][PARTS];
    int          thread = thread_id();
    double       rate = scalars[1];
    float        c = (float)clip[1], decayed = (float)(rate * decay), blend1 = (float)(1.0 - beta1), b1 = (float)beta1;
    float   blend2 = (float)(1.0 - beta2), b2 = (float)beta2, step = (float)(rate / scalars[2]), e = (float)eps;
    float   root = (float)square_root(scalars[3]);
    chances of = chances_of(stream, scalars);
    UNROLL for (int k = 0; k < 4; k++) map[k][thread] = maps[k * CODES + thread];
    barrier();
    for (i64 block = block_id(0); block * BLOCK < n; block += blocks(0)) {
        i64   i = block * BLOCK + thread;
        bool  inside = i < n;
        float mi = 0.0f, vi = 0.0f;
        if (inside) {
            float w = get(p, i), d = get(g, i) * c;
            mi = map[0][m_code[i]] * scale_m[block];
            vi = map[2][v_code[i]] * scale_v[block];
            w -= decayed * w;
            if (torchao) {
                mi += blend1 * (d - mi);
                vi += blend2 * (d * d - vi);
            } else {
                mi = b1 * mi + blend1 * d;
                vi = b2 * vi + blend2 * d * d;
            }
            w -= step * mi / (square_root(vi) / root + e);
            put_rounded(of, p_new, i, w, 0);
        }
        size[0][thread] = size_of(mi);
        size[1][thread] = size_of(vi);
        barrier();
        if (thread < 2 * PARTS) {
            const float *from = &size[thread / PARTS][thread % PARTS];
            float        most = from[0];
            for (int k = 1; k < BLOCK / PARTS; k++) most = larger(most, from[k * PARTS]);
            largest[thread / PARTS][thread % PARTS] = most;
        }
        barrier();
        float of_m = scale_of(largest[0], torchao), of_v = scale_of(largest[1], torchao);
        if (thread == 0) {
            scale_m_new[block] = of_m;
            scale_v_new[block] = of_v;
        }
        if (!inside) continue;
        m_new[i] = (unsigned char)code_of(map[1], mi / of_m);
        v_new[i] = (unsigned char)code_of(map[3], vi / of_v);
    }
}
