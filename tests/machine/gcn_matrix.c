/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix cores: D = A B + C by one wave, all lanes, whatever EXEC says.
 *
 * Of an M x M product over K, lane i has of A row i % M and of B column i % M, both with `each` = K M / 64 of k, from
 * (i / M) each on, in the order of its registers' bits. Of C and D it has column i % M, and in register r row
 * 4 (64 / M) (r / 4) + 4 (i / M) + r % 4 (the MI300 document's chapter 7).
 *
 * How the sum over k is rounded is not documented: here in ascending order, in float32, products exact.
 */
#include "machine/gcn.h"

#include <math.h>

typedef float eight __attribute__((vector_size(32), may_alias)); /* as registers and `floats` are aligned */

typedef struct floats {
    _Alignas(32) float k[32][32]; /* [k][row of A or column of B] */
} floats;

enum { IS_BF16, IS_FP8, IS_BF8 };
typedef struct product {
    int side, depth, format[2]; /* M, K; of A and of B */
} product;
static const product products[] = {
#define MATRIX(name, shape, side, depth, of_a, of_b, flags) { side, depth, { of_a, of_b } },
#include "machine/gcn.def"
};
enum {
#define MATRIX(name, shape, side, depth, of_a, of_b, flags) NUMBER_OF_##name,
#include "machine/gcn.def"
};

/* E4M3 (`bf8`: E5M2) as float: OCP's (exponent bias 7 or 15; E4M3 has the NaN 0x7f and 0xff, E5M2 ends as IEEE 754's
 * formats do), FNUZ's (bias 8 or 16, NaN 0x80). */
static float from_fp8(u32 byte, bool bf8, bool ocp)
{
    int   mantissa = bf8 ? 2 : 3, bias = (bf8 ? 15 : 7) + !ocp;
    u32   ones = 1u << mantissa, exponent = (byte & 127) >> mantissa, fraction = byte & (ones - 1);
    float sign = byte & 128 ? -1.0f : 1.0f;
    if (ocp ? bf8 ? (byte & 127) > 124 : (byte & 127) == 127 : byte == 128) return NAN;
    if (ocp && bf8 && exponent == 31) return sign * INFINITY;
    int   power = (exponent ? (int)exponent : 1) - bias - mantissa;
    float f = exponent ? (float)(ones + fraction) : (float)fraction;
    return sign * ldexpf(f, power);
}

static const float *fp8_table(bool bf8, bool ocp)
{
    static float tables[2][2][256];
    static bool  filled[2][2];
    for (u32 i = 0; !filled[bf8][ocp] && i < 256; i++) tables[bf8][ocp][i] = from_fp8(i, bf8, ocp);
    filled[bf8][ocp] = true;
    return tables[bf8][ocp];
}

/* Numbers e of each lane of a group, of `lanes` lanes, from their register. */
static void unpack(int format, const float *table, const u32 *from, int e, int lanes, float *to)
{
    int half = 16 * (e & 1), quarter = 8 * (e & 3);
    if (format == IS_BF16)
        for (int i = 0; i < lanes; i++) to[i] = float_of(from[i] >> half << 16);
    else
        for (int i = 0; i < lanes; i++) to[i] = table[from[i] >> quarter & 255];
}

static void unpack_operand(wave *w, const product *p, int which, const operand *o, floats *to)
{
    int          format = p->format[which];
    const float *table = fp8_table(format == IS_BF8, w->r->module->gfx950);
    int          each = p->depth * p->side / LANES;
    int          in_register = format >= IS_FP8 ? 4 : 2;
    for (int group = 0; group < LANES / p->side; group++)
        for (int e = 0; e < each; e++)
            unpack(format, table, w->v[o->at + e / in_register] + group * p->side, e, p->side, to->k[group * each + e]);
}

static inline eight multiply_add(eight a, float b, eight c)
{
    for (int i = 0; i < 8; i++) c[i] = fmaf(a[i], b, c[i]);
    return c;
}

/* Four rows of D from `top` on, 16 results each, from `column` on, which are lanes from `lane` on of four registers:
 * they get the sum over k of a[k][top] b[k][column]. */
static void add_products(u32 (*d)[LANES], int lane, const floats *a, int top, const floats *b, int column, int depth)
{
    eight *d0 = (eight *)&d[0][lane], *d1 = (eight *)&d[1][lane], *d2 = (eight *)&d[2][lane];
    eight *d3 = (eight *)&d[3][lane];
    eight  p0 = d0[0], p1 = d1[0], p2 = d2[0], p3 = d3[0], q0 = d0[1], q1 = d1[1], q2 = d2[1], q3 = d3[1];
    for (int k = 0; k < depth; k++) {
        const float *left = &a->k[k][top];
        const eight *right = (const eight *)&b->k[k][column], p = right[0], q = right[1];
        p0 = multiply_add(p, left[0], p0), q0 = multiply_add(q, left[0], q0);
        p1 = multiply_add(p, left[1], p1), q1 = multiply_add(q, left[1], q1);
        p2 = multiply_add(p, left[2], p2), q2 = multiply_add(q, left[2], q2);
        p3 = multiply_add(p, left[3], p3), q3 = multiply_add(q, left[3], q3);
    }
    d0[0] = p0, d1[0] = p1, d2[0] = p2, d3[0] = p3, d0[1] = q0, d1[1] = q1, d2[1] = q2, d3[1] = q3;
}

static bool step_matrix(wave *w, const instruction *x)
{
    const product *p = &products[x->row->kind];
    const operand *c = &x->o[3];
    floats         a, b;
    u32(*d)[LANES] = w->v + x->o[0].at;
    int groups = LANES / p->side, count = p->side * p->side / LANES;
    unpack_operand(w, p, 0, &x->o[1], &a);
    unpack_operand(w, p, 1, &x->o[2], &b);
    if (c->kind == VECTOR && c->at != x->o[0].at) memmove(d, w->v[c->at], (size_t)count * sizeof *d);
    for (int i = 0; c->kind == NUMBER && i < count * LANES; i++) d[i / LANES][i % LANES] = (u32)c->number;
    for (int r = 0; r < count; r += 4)
        for (int lane = 0; lane < LANES; lane += 16)
            add_products(d + r, lane, &a, r * groups + 4 * (lane / p->side), &b, lane % p->side, p->depth);
    if (w->r->counts) w->r->counts->matrix_flops += 2u * (u64)(p->side * p->side * p->depth);
    return true;
}

const row gcn_matrix_rows[] = {
#define MATRIX(name, shape, side, depth, of_a, of_b, flags)                                                            \
    { #name, shape, step_matrix, .takes = flags, .kind = NUMBER_OF_##name },
#include "machine/gcn.def"
    { 0 },
};
