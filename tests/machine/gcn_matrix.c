/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix cores: D = A B + C by one wave, all lanes, whatever EXEC says.
 *
 * Of an M x M product over K, lane i has of A row i % M and of B column i % M, both with `each` = K M / 64 of k, from
 * (i / M) each on, in the order of its registers' bits. Of C and D it has column i % M, and in register r row
 * 4 (64 / M) (r / 4) + 4 (i / M) + r % 4 (the MI300 document's chapter 7).
 *
 * How the sum over k is rounded is not documented: here in ascending order, in float32, products exact.
 *
 * With scales, over K = 64: k come in blocks of 32. Of codes of 8 bits a lane's first 16 are of the first block, 16 (i
 * / M) on, the others of the second one; of codes of 4 bits lane i has block i / M. Lane i has the scale (e8m0) of row
 * or column i % M and block i / M, in the byte of its register that op_sel and op_sel_hi tell, for both kinds of codes.
 * The sum over a block is multiplied by 2 to both exponents before it is added (the MI350 document's chapter 7; AMD's
 * composable_kernel, test/mx_mfma_op).
 */
#include "machine/gcn.h"

#include <math.h>

typedef float eight __attribute__((vector_size(32), may_alias)); /* as registers and `floats` are aligned */

typedef struct floats {
    _Alignas(32) float k[64][32]; /* [k][row of A or column of B] */
} floats;

enum { IS_BF16, IS_FP8, IS_BF8, IS_FP4, BY_MODIFIER };
enum { SCALED_BLOCK = 32 };
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

static const float fp4_table[16] = { 0,     0.5F,  1,     1.5F,  2,     3,     4,     6,
                                     -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F };

/* Numbers e of each lane of a group, of `lanes` lanes, from their register. */
static void unpack(int format, const float *table, const u32 *from, int e, int lanes, float *to)
{
    int half = 16 * (e & 1), quarter = 8 * (e & 3), eighth = 4 * (e & 7);
    if (format == IS_BF16)
        for (int i = 0; i < lanes; i++) to[i] = float_of(from[i] >> half << 16);
    else if (format == IS_FP4)
        for (int i = 0; i < lanes; i++) to[i] = fp4_table[from[i] >> eighth & 15];
    else
        for (int i = 0; i < lanes; i++) to[i] = table[from[i] >> quarter & 255];
}

/* Where element e of a group of lanes is along k. */
static int depth_of(int format, const product *p, int group, int e)
{
    int each = p->depth * p->side / LANES, n = format == IS_FP4 ? SCALED_BLOCK : SCALED_BLOCK / 2;
    if (p->format[0] != BY_MODIFIER) return group * each + e;
    return e / n * SCALED_BLOCK + group * n + e % n;
}

static void unpack_operand(wave *w, const product *p, int format, const operand *o, floats *to)
{
    const float *table = fp8_table(format == IS_BF8, w->r->module->gfx950);
    int          each = p->depth * p->side / LANES;
    int          in_register = format == IS_FP4 ? 8 : format >= IS_FP8 ? 4 : 2;
    for (int group = 0; group < LANES / p->side; group++)
        for (int e = 0; e < each; e++)
            unpack(format, table, w->v[o->at + e / in_register] + group * p->side, e, p->side,
                   to->k[depth_of(format, p, group, e)]);
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

/* All of D: the sum over `depth` of k is added to it. */
static void add_all(u32 (*d)[LANES], const product *p, const floats *a, const floats *b, int first, int depth)
{
    int           groups = LANES / p->side, count = p->side * p->side / LANES;
    const floats *a_first = (const floats *)a->k[first], *b_first = (const floats *)b->k[first];
    for (int r = 0; r < count; r += 4)
        for (int lane = 0; lane < LANES; lane += 16)
            add_products(d + r, lane, a_first, r * groups + 4 * (lane / p->side), b_first, lane % p->side, depth);
}

/* A format that cbsz (of A) or blgp (of B) tells; -1: of codes of 6 bits, or none. */
static int format_of(const instruction *x, int which)
{
    static const int formats[] = { IS_FP8, IS_BF8, -1, -1, IS_FP4 };
    int              number = x->modifier[which ? AT_BLGP : AT_CBSZ];
    return number >= 0 && number < (int)(sizeof formats / sizeof *formats) ? formats[number] : -1;
}

bool gcn_formats_fit(const instruction *x)
{
    for (int which = 0; which < 2; which++) {
        int format = format_of(x, which);
        if (format < 0 || x->o[1 + which].count != (format == IS_FP4 ? 4 : 8)) return false;
    }
    return true;
}

/* Exponents of the lanes' scales; 255: not a number. */
static void scales_of(const wave *w, const instruction *x, int which, int *to)
{
    const operand *o = &x->o[4 + which];
    int            low = x->modifier[AT_OP_SEL] >> (2 * which) & 1, high = x->modifier[AT_OP_SEL_HI] >> (2 * which) & 1;
    for (int i = 0; i < LANES; i++) {
        u32 all = o->kind == VECTOR ? w->v[o->at][i] : (u32)scalar_value(w, o);
        to[i] = (int)(all >> (8 * (low + 2 * high)) & 255);
    }
}

static void add_scaled(wave *w, const instruction *x, u32 (*d)[LANES], const product *p, const floats *a,
                       const floats *b)
{
    int of_a[LANES], of_b[LANES];
    scales_of(w, x, 0, of_a);
    scales_of(w, x, 1, of_b);
    for (int block = 0; block < p->depth / SCALED_BLOCK; block++) {
        _Alignas(64) u32 part[16][LANES] = { { 0 } };
        add_all(part, p, a, b, block * SCALED_BLOCK, SCALED_BLOCK);
        for (int r = 0; r < 16; r++)
            for (int lane = 0; lane < LANES; lane++) {
                int   m = of_a[32 * block + 8 * (r / 4) + 4 * (lane / 32) + r % 4], n = of_b[32 * block + lane % 32];
                float sum = m == 255 || n == 255 ? NAN : ldexpf(float_of(part[r][lane]), m + n - 254);
                d[r][lane] = bits_of(float_of(d[r][lane]) + sum);
            }
    }
}

static bool step_matrix(wave *w, const instruction *x)
{
    const product *p = &products[x->row->kind];
    const operand *c = &x->o[3];
    bool           scaled = x->row->takes & FORMATS;
    floats         a, b;
    u32(*d)[LANES] = w->v + x->o[0].at;
    int count = p->side * p->side / LANES;
    unpack_operand(w, p, scaled ? format_of(x, 0) : p->format[0], &x->o[1], &a);
    unpack_operand(w, p, scaled ? format_of(x, 1) : p->format[1], &x->o[2], &b);
    if (c->kind == VECTOR && c->at != x->o[0].at) memmove(d, w->v[c->at], (size_t)count * sizeof *d);
    for (int i = 0; c->kind == NUMBER && i < count * LANES; i++) d[i / LANES][i % LANES] = (u32)c->number;
    if (scaled)
        add_scaled(w, x, d, p, &a, &b);
    else
        add_all(d, p, &a, &b, 0, p->depth);
    if (w->r->counts) w->r->counts->matrix_flops += 2u * (u64)(p->side * p->side * p->depth);
    return true;
}

#define SCALED (BIT(AT_OP_SEL) | BIT(AT_OP_SEL_HI) | BIT(AT_CBSZ) | BIT(AT_BLGP))
const row gcn_matrix_rows[] = {
#define MATRIX(name, shape, side, depth, of_a, of_b, flags)                                                            \
    { #name, shape, step_matrix, .takes = flags, .kind = NUMBER_OF_##name },
#include "machine/gcn.def"
    { 0 },
};
