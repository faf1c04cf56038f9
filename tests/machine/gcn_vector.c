/* SPDX-License-Identifier: Apache-2.0 */
/* Vector instructions on 32 and 64 bits: each lane that EXEC has for itself, and a few across lanes. */
#include "machine/gcn.h"

#include <math.h>

/* A result may replace an operand: each lane reads its own before it is written. */
#if defined(__clang__)
#define EACH_LANE _Pragma("clang loop vectorize(assume_safety)") for (int i = 0; i < LANES; i++)
#else
#define EACH_LANE _Pragma("GCC ivdep") for (int i = 0; i < LANES; i++)
#endif

/* --- functions of one lane -----------------------------------------------------------------------------------------
 */

/* Of equal numbers +0 is the larger zero; of a NaN and a number the number. */
static inline u32 larger(u32 a, u32 b)
{
    float x = float_of(a), y = float_of(b);
    return x > y ? a : x < y ? b : x == y ? a & b : x != x ? b : a;
}

static inline u32 permuted_bytes(u32 a, u32 b, u32 select)
{
    u64 both = (u64)a << 32 | b;
    u32 d = 0;
    for (int i = 0; i < 4; i++) {
        u32 s = select >> (8 * i) & 255, byte = s == 12 ? 0 : 255;
        if (s < 8) byte = (u32)(both >> (8 * s)) & 255;
        if (s >= 8 && s < 12) byte = both >> (16 * (s - 8) + 15) & 1 ? 255 : 0;
        d |= byte << (8 * i);
    }
    return d;
}

/* float32 to float16, to the nearest, ties to even. */
static u32 to_half(u32 a)
{
    u32 sign = a >> 16 & 0x8000, x = a & 0x7fffffff;
    if (x > 0x7f800000) return sign | 0x7e00 | (x >> 13 & 0x3ff);
    if (x >= 0x47800000) return sign | 0x7c00;
    if (x < 0x38800000) return sign | (bits_of(float_of(x) + 0.5f) - bits_of(0.5f));
    return sign | ((x - 0x38000000 + 0xfff + (x >> 13 & 1)) >> 13);
}

static inline u32 to_bf16(u32 a)
{
    return (a & 0x7fffffff) > 0x7f800000 ? a >> 16 | 64 : (a + 0x7fff + (a >> 16 & 1)) >> 16;
}

static inline int exponent(u32 a)
{
    return a >> 23 & 255;
}

static inline bool denormal(float x)
{
    return x != 0 && fabsf(x) < 0x1p-126f;
}

/* The last of the instructions of a division: q is the quotient, right but for special cases. */
static u32 division_fixed(u32 q, u32 divisor, u32 dividend)
{
    u32 sign = (divisor ^ dividend) & 0x80000000, d = divisor & 0x7fffffff, n = dividend & 0x7fffffff;
    u32 infinite = 0x7f800000;
    if (n > infinite) return dividend | 0x400000;
    if (d > infinite) return divisor | 0x400000;
    if ((n == 0 && d == 0) || (n == infinite && d == infinite)) return 0xffc00000;
    if (d == 0 || n == infinite) return sign | infinite;
    if (d == infinite || n == 0 || exponent(n) - exponent(d) < -150) return sign;
    return sign | (q & 0x7fffffff);
}

/* The first: a scaled so that no step overflows or loses bits; *late: division_multiplied scales back. */
static u32 division_scaled(u32 a, u32 divisor, u32 dividend, bool *late)
{
    float d = float_of(divisor), n = float_of(dividend), x = float_of(a);
    u32   up = bits_of(x * 0x1p64f), down = bits_of(x * 0x1p-64f);
    *late = false;
    if (d == 0 || n == 0) return 0x7fc00000;
    if (exponent(dividend) - exponent(divisor) >= 96) {
        *late = true;
        return a == divisor ? up : a;
    }
    if (denormal(d)) return up;
    if (denormal(1 / d) && denormal(n / d)) {
        *late = true;
        return a == divisor ? up : a;
    }
    if (denormal(1 / d)) return down;
    if (denormal(n / d)) {
        *late = true;
        return a == dividend ? up : a;
    }
    return exponent(dividend) <= 23 ? up : a;
}

/* Is the number of a class whose bit b has: NaN (signaling, quiet), -infinite, -normal, -denormal, -0, +0, ...? */
static u32 in_class(u32 a, u32 b)
{
    u32 x = a & 0x7fffffff, sign = a >> 31, kind;
    if (x > 0x7f800000)
        kind = x & 0x400000 ? 1 : 0;
    else if (x == 0x7f800000)
        kind = sign ? 2 : 9;
    else if (x >= 0x800000)
        kind = sign ? 3 : 8;
    else
        kind = x ? (sign ? 4 : 7) : (sign ? 5 : 6);
    return b >> kind & 1;
}

static inline u32 to_u32(float x)
{
    return !(x > 0) ? 0 : x >= 0x1p32f ? ~0u : (u32)x;
}

/* --- of 32 bits: name, operands, flops, modifiers, result of a, b, c (as floats fa, fb, fc) ------------------------
 */

#define SDWA (BIT(AT_DST_SEL) | BIT(AT_DST_UNUSED) | BIT(AT_SRC0_SEL) | BIT(AT_SRC1_SEL))
#define LOW24(a) ((a)&0xffffff)
#define SIGNED24(a) ((i32)((a) << 8) >> 8)
#define BELOW(i) (((u64)1 << (i)) - 1)

#define ONE_BY_ONE(X)                                                                                                  \
    X(v_mov_b32, "v x", 0, 0, a)                                                                                       \
    X(v_accvgpr_read_b32, "v v", 0, 0, a)                                                                              \
    X(v_accvgpr_write_b32, "v x", 0, 0, a)                                                                             \
    X(v_accvgpr_mov_b32, "v v", 0, 0, a)                                                                               \
    X(v_add_u32, "v x x", 0, 0, a + b)                                                                                 \
    X(v_sub_u32, "v x x", 0, 0, a - b)                                                                                 \
    X(v_subrev_u32, "v x x", 0, 0, b - a)                                                                              \
    X(v_add3_u32, "v x x x", 0, 0, a + b + c)                                                                          \
    X(v_mul_lo_u32, "v x x", 0, 0, a *b)                                                                               \
    X(v_mul_u32_u24, "v x x", 0, 0, LOW24(a) * LOW24(b))                                                               \
    X(v_mul_i32_i24, "v x x", 0, 0, (u32)(SIGNED24(a) * SIGNED24(b)))                                                  \
    X(v_mad_u32_u24, "v x x x", 0, 0, LOW24(a) * LOW24(b) + c)                                                         \
    X(v_max_i32, "v x x", 0, 0, (i32)a > (i32)b ? a : b)                                                               \
    X(v_and_b32, "v x x", 0, 0, a &b)                                                                                  \
    X(v_or_b32, "v x x", 0, 0, a | b)                                                                                  \
    X(v_or_b32_sdwa, "v x x", 0, SDWA, a | b)                                                                          \
    X(v_or3_b32, "v x x x", 0, 0, a | b | c)                                                                           \
    X(v_xor_b32, "v x x", 0, 0, a ^ b)                                                                                 \
    X(v_and_or_b32, "v x x x", 0, 0, (a & b) | c)                                                                      \
    X(v_lshlrev_b32, "v x x", 0, 0, b << (a & 31))                                                                     \
    X(v_lshrrev_b32, "v x x", 0, 0, b >> (a & 31))                                                                     \
    X(v_ashrrev_i32, "v x x", 0, 0, (u32)((i32)b >> (a & 31)))                                                         \
    X(v_lshl_add_u32, "v x x x", 0, 0, (a << (b & 31)) + c)                                                            \
    X(v_add_lshl_u32, "v x x x", 0, 0, (a + b) << (c & 31))                                                            \
    X(v_lshl_or_b32, "v x x x", 0, 0, (a << (b & 31)) | c)                                                             \
    X(v_bfe_u32, "v x x x", 0, 0, a >> (b & 31) & ~(~0u << (c & 31)))                                                  \
    X(v_perm_b32, "v x x x", 0, 0, permuted_bytes(a, b, c))                                                            \
    X(v_mbcnt_lo_u32_b32, "v x x", 0, 0, (u32)__builtin_popcount(a &(u32)BELOW(i)) + b)                                \
    X(v_mbcnt_hi_u32_b32, "v x x", 0, 0, (u32)__builtin_popcount(a &(u32)(BELOW(i) >> 32)) + b)                        \
    X(v_add_f32, "v x x", 1, FLOATS, bits_of(fa + fb))                                                                 \
    X(v_sub_f32, "v x x", 1, FLOATS, bits_of(fa - fb))                                                                 \
    X(v_mul_f32, "v x x", 1, FLOATS, bits_of(fa *fb))                                                                  \
    X(v_max_f32, "v x x", 1, FLOATS, larger(a, b))                                                                     \
    X(v_max3_f32, "v x x x", 2, FLOATS, larger(larger(a, b), c))                                                       \
    X(v_fma_f32, "v x x x", 2, FLOATS, bits_of(fmaf(fa, fb, fc)))                                                      \
    X(v_fmamk_f32, "v x n x", 2, 0, bits_of(fmaf(fa, fb, fc)))                                                         \
    X(v_fmac_f32, "v x x", 2, 0, bits_of(fmaf(fa, fb, fc)))                                                            \
    X(v_exp_f32, "v x", 1, 0, bits_of(exp2f(fa)))                                                                      \
    X(v_log_f32, "v x", 1, 0, bits_of(log2f(fa)))                                                                      \
    X(v_rcp_f32, "v x", 1, 0, bits_of(1 / fa))                                                                         \
    X(v_rcp_iflag_f32, "v x", 1, 0, bits_of(1 / fa))                                                                   \
    X(v_sqrt_f32, "v x", 1, 0, bits_of(sqrtf(fa)))                                                                     \
    X(v_div_fixup_f32, "v x x x", 1, FLOATS, division_fixed(a, b, c))                                                  \
    X(v_cvt_f32_u32, "v x", 0, 0, bits_of((float)a))                                                                   \
    X(v_cvt_f32_i32, "v x", 0, 0, bits_of((float)(i32)a))                                                              \
    X(v_cvt_u32_f32, "v x", 0, 0, to_u32(fa))                                                                          \
    X(v_cvt_f16_f32, "v x", 0, 0, to_half(a))                                                                          \
    X(v_cvt_pk_bf16_f32, "v x x", 0, GFX950, to_bf16(a) | to_bf16(b) << 16)

/* Comparisons: all bits or none. */
#define COMPARISONS(X)                                                                                                 \
    X(v_cmp_eq_u32, "s2 x x", 0, 0, (a == b) * ~0u)                                                                    \
    X(v_cmp_ne_u32, "s2 x x", 0, 0, (a != b) * ~0u)                                                                    \
    X(v_cmp_lt_u32, "s2 x x", 0, 0, (a < b) * ~0u)                                                                     \
    X(v_cmp_gt_u32, "s2 x x", 0, 0, (a > b) * ~0u)                                                                     \
    X(v_cmp_lt_i32, "s2 x x", 0, 0, ((i32)a < (i32)b) * ~0u)                                                           \
    X(v_cmp_le_i32, "s2 x x", 0, 0, ((i32)a <= (i32)b) * ~0u)                                                          \
    X(v_cmp_gt_i32, "s2 x x", 0, 0, ((i32)a > (i32)b) * ~0u)                                                           \
    X(v_cmp_lt_f32, "s2 x x", 1, FLOATS, (fa < fb) * ~0u)                                                              \
    X(v_cmp_gt_f32, "s2 x x", 1, FLOATS, (fa > fb) * ~0u)                                                              \
    X(v_cmp_ge_f32, "s2 x x", 1, FLOATS, (fa >= fb) * ~0u)                                                             \
    X(v_cmp_class_f32, "s2 x x", 1, 0, in_class(a, b) * ~0u)

#define X(name, shape, flops, takes, result)                                                                           \
    static void do_##name(const u32 *as, const u32 *bs, const u32 *cs, u32 *ds)                                        \
    {                                                                                                                  \
        EACH_LANE                                                                                                      \
        {                                                                                                              \
            u32   a = as[i], b = bs[i], c = cs[i];                                                                     \
            float fa = float_of(a), fb = float_of(b), fc = float_of(c);                                                \
            (void)b, (void)c, (void)fa, (void)fb, (void)fc;                                                            \
            ds[i] = (result);                                                                                          \
        }                                                                                                              \
    }
ONE_BY_ONE(X)
COMPARISONS(X)
#undef X

/* --- operands and results ------------------------------------------------------------------------------------------
 */

/* Operand k as 64 values, in the registers themselves or in `room`. */
static const u32 *source(wave *w, const instruction *x, int k, u32 *room)
{
    const operand *o = &x->o[k];
    if (o->kind != VECTOR) {
        u32 value = (u32)scalar_value(w, o);
        if (o->absolute) value &= 0x7fffffff;
        if (o->negate) value ^= 0x80000000;
        EACH_LANE room[i] = value;
        return room;
    }
    const u32 *from = w->v[o->at];
    int        select = x->row->takes & BIT(AT_SRC0_SEL) ? x->modifier[k == 1 ? AT_SRC0_SEL : AT_SRC1_SEL] : 6;
    if (!o->negate && !o->absolute && select == 6) return from;
    u32 keep = o->absolute ? 0x7fffffff : ~0u, flip = o->negate ? 0x80000000 : 0;
    if (select == 6)
        EACH_LANE room[i] = (from[i] & keep) ^ flip;
    else if (select < 4)
        EACH_LANE room[i] = from[i] >> (8 * select) & 255;
    else
        EACH_LANE room[i] = from[i] >> (16 * (select - 4)) & 0xffff;
    return room;
}

/* Lanes that EXEC has get their value. */
static void write_lanes(wave *w, u32 *to, const u32 *from)
{
    u64 exec = scalar_pair(w, EXEC);
    if (exec == ~(u64)0) {
        memcpy(to, from, LANES * sizeof *to);
        return;
    }
    for (int half = 0; half < LANES; half += 32) {
        u32 mask = (u32)(exec >> half);
        for (int i = 0; i < 32; i++) to[half + i] = mask >> i & 1 ? from[half + i] : to[half + i];
    }
}

static bool step_lanes(wave *w, const instruction *x)
{
    _Alignas(64) u32 room[3][LANES], out[LANES];
    const u32       *from[3];
    for (int k = 0; k < x->n - 1; k++) from[k] = source(w, x, k + 1, room[k]);
    for (int k = x->n - 1; k < 3; k++) from[k] = w->v[x->o[0].at];
    bool direct = scalar_pair(w, EXEC) == ~(u64)0;
    x->row->lanes(from[0], from[1], from[2], direct ? w->v[x->o[0].at] : out);
    if (!direct) write_lanes(w, w->v[x->o[0].at], out);
    return true;
}

static u64 mask_of(const u32 *lanes)
{
    u64 mask = 0;
    for (int i = 0; i < LANES; i++) mask |= (u64)(lanes[i] & 1) << i;
    return mask;
}

static bool step_compare(wave *w, const instruction *x)
{
    _Alignas(64) u32 room[2][LANES], out[LANES];
    const u32       *a = source(w, x, 1, room[0]), *b = source(w, x, 2, room[1]);
    x->row->lanes(a, b, b, out);
    set_scalar_pair(w, x->o[0].at, mask_of(out) & scalar_pair(w, EXEC));
    return true;
}

static bool step_select(wave *w, const instruction *x)
{
    _Alignas(64) u32 room[2][LANES], out[LANES];
    const u32       *a = source(w, x, 1, room[0]), *b = source(w, x, 2, room[1]);
    u64              mask = scalar_value(w, &x->o[3]);
    for (int half = 0; half < LANES; half += 32) {
        u32 m = (u32)(mask >> half);
        for (int i = 0; i < 32; i++) out[half + i] = m >> i & 1 ? b[half + i] : a[half + i];
    }
    write_lanes(w, w->v[x->o[0].at], out);
    return true;
}

/* Bit 4 a + 2 b + c of the table, for each bit of a, b and c. */
static bool step_bitop3(wave *w, const instruction *x)
{
    _Alignas(64) u32 room[3][LANES], out[LANES] = { 0 };
    const u32       *a = source(w, x, 1, room[0]), *b = source(w, x, 2, room[1]), *c = source(w, x, 3, room[2]);
    for (int k = 0; k < 8; k++) {
        u32 na = k & 4 ? 0 : ~0u, nb = k & 2 ? 0 : ~0u, nc = k & 1 ? 0 : ~0u;
        if (x->modifier[AT_BITOP3] >> k & 1) EACH_LANE out[i] |= (a[i] ^ na) & (b[i] ^ nb) & (c[i] ^ nc);
    }
    write_lanes(w, w->v[x->o[0].at], out);
    return true;
}

static bool step_division_scaled(wave *w, const instruction *x)
{
    _Alignas(64) u32 room[3][LANES], out[LANES];
    const u32       *a = source(w, x, 2, room[0]), *b = source(w, x, 3, room[1]), *c = source(w, x, 4, room[2]);
    u64              late = 0;
    for (int i = 0; i < LANES; i++) {
        bool one;
        out[i] = division_scaled(a[i], b[i], c[i], &one);
        late |= (u64)one << i;
    }
    set_scalar_pair(w, x->o[1].at, late & scalar_pair(w, EXEC));
    write_lanes(w, w->v[x->o[0].at], out);
    return true;
}

static bool step_division_multiplied(wave *w, const instruction *x)
{
    _Alignas(64) u32 room[3][LANES], out[LANES];
    const u32       *a = source(w, x, 1, room[0]), *b = source(w, x, 2, room[1]), *c = source(w, x, 3, room[2]);
    u64              late = scalar_pair(w, VCC);
    for (int i = 0; i < LANES; i++) {
        float q = fmaf(float_of(a[i]), float_of(b[i]), float_of(c[i]));
        if (late >> i & 1) q *= exponent(c[i]) > 127 ? 0x1p64f : 0x1p-64f;
        out[i] = bits_of(q);
    }
    write_lanes(w, w->v[x->o[0].at], out);
    return true;
}

/* --- of 64 bits, and pairs of floats --------------------------------------------------------------------------------
 */

enum { MOV, LSHL_ADD, LSHLREV, MAD_U, MAD_I, GT_I64, LE_I64 };

/* Operand k as 64 values of 64 bits. */
static void wide_source(const wave *w, const instruction *x, int k, u64 *to)
{
    const operand *o = &x->o[k];
    if (o->kind == VECTOR) {
        const u32 *low = w->v[o->at], *high = o->count == 2 ? w->v[o->at + 1] : NULL;
        for (int i = 0; i < LANES; i++) to[i] = low[i];
        for (int i = 0; high && i < LANES; i++) to[i] |= (u64)high[i] << 32;
        return;
    }
    u64 value = k < x->n ? scalar_value(w, o) : 0;
    for (int i = 0; i < LANES; i++) to[i] = value;
}

static bool step_64(wave *w, const instruction *x)
{
    u64              a[LANES], b[LANES], c[LANES];
    _Alignas(64) u32 low[LANES], high[LANES];
    int              first = x->row->kind == MAD_U || x->row->kind == MAD_I ? 2 : 1;
    wide_source(w, x, first, a);
    wide_source(w, x, first + 1, b);
    wide_source(w, x, first + 2, c);
    for (int i = 0; i < LANES; i++) {
        switch (x->row->kind) {
        case LSHL_ADD:
            a[i] = (a[i] << (b[i] & 7)) + c[i];
            break;
        case LSHLREV:
            a[i] = b[i] << (a[i] & 63);
            break;
        case MAD_U:
            a[i] = a[i] * b[i] + c[i];
            break;
        case MAD_I:
            a[i] = (u64)((i64)(i32)a[i] * (i32)b[i]) + c[i];
            break;
        default:
            break;
        }
    }
    for (int i = 0; i < LANES; i++) low[i] = (u32)a[i], high[i] = (u32)(a[i] >> 32);
    write_lanes(w, w->v[x->o[0].at], low);
    write_lanes(w, w->v[x->o[0].at + 1], high);
    if (first == 2) set_scalar_pair(w, x->o[1].at, ~(u64)0); /* the carry, which no compiler uses: not computed */
    return true;
}

static bool step_compare_64(wave *w, const instruction *x)
{
    u64 a[LANES], b[LANES], mask = 0;
    wide_source(w, x, 1, a);
    wide_source(w, x, 2, b);
    for (int i = 0; i < LANES; i++)
        mask |= (u64)(x->row->kind == GT_I64 ? (i64)a[i] > (i64)b[i] : (i64)a[i] <= (i64)b[i]) << i;
    set_scalar_pair(w, x->o[0].at, mask & scalar_pair(w, EXEC));
    return true;
}

enum { PACKED_ADD, PACKED_MUL, PACKED_FMA };

/* Half h of operand k: op_sel and op_sel_hi say which register of the pair it comes from. */
static const u32 *packed_source(wave *w, const instruction *x, int k, int h, u32 *room)
{
    const operand *o = &x->o[k];
    int            second = x->modifier[h ? AT_OP_SEL_HI : AT_OP_SEL] >> (2 * (k - 1)) & 1;
    u32            flip = x->modifier[h ? AT_NEG_HI : AT_NEG_LO] >> (2 * (k - 1)) & 1 ? 0x80000000 : 0;
    if (o->kind == VECTOR && !flip) return w->v[o->at + second];
    if (o->kind == VECTOR) {
        EACH_LANE room[i] = w->v[o->at + second][i] ^ flip;
        return room;
    }
    u32       value = (o->kind == NUMBER ? (u32)o->number : w->s[o->at + second]) ^ flip;
    EACH_LANE room[i] = value;
    return room;
}

static bool step_packed(wave *w, const instruction *x)
{
    _Alignas(64) u32      room[3][LANES], out[2][LANES];
    lanes_function *const how[] = { do_v_add_f32, do_v_mul_f32, do_v_fma_f32 };
    for (int h = 0; h < 2; h++) {
        const u32 *from[3] = { room[0], room[0], room[0] };
        for (int k = 0; k + 1 < x->n; k++) from[k] = packed_source(w, x, k + 1, h, room[k]);
        how[x->row->kind](from[0], from[1], from[2], out[h]);
    }
    for (int h = 0; h < 2; h++) write_lanes(w, w->v[x->o[0].at + h], out[h]);
    return true;
}

/* --- across lanes ---------------------------------------------------------------------------------------------------
 */

static bool step_first_lane(wave *w, const instruction *x)
{
    u64 exec = scalar_pair(w, EXEC);
    w->s[x->o[0].at] = w->v[x->o[1].at][exec ? __builtin_ctzll(exec) : 0];
    return true;
}

/* Data-parallel primitive within rows of 16 lanes. A lane whose source is off keeps what it has. */
static bool step_mov_dpp(wave *w, const instruction *x)
{
    u64        exec = scalar_pair(w, EXEC);
    u32        out[LANES], *to = w->v[x->o[0].at];
    const u32 *from = w->v[x->o[1].at];
    for (int i = 0; i < LANES; i++) {
        int lane = x->modifier[AT_QUAD_PERM] >= 0 ? (i & ~3) + (x->modifier[AT_QUAD_PERM] >> (2 * (i & 3)) & 3)
                                                  : (i & ~15) + ((i - x->modifier[AT_ROW_ROR]) & 15);
        out[i] = exec >> lane & 1 ? from[lane] : to[i];
    }
    write_lanes(w, to, out);
    return true;
}

#define PACKED (BIT(AT_OP_SEL) | BIT(AT_OP_SEL_HI) | BIT(AT_NEG_LO) | BIT(AT_NEG_HI))
#define DPP (BIT(AT_QUAD_PERM) | BIT(AT_ROW_ROR) | BIT(AT_ROW_MASK) | BIT(AT_BANK_MASK))

const row gcn_vector_rows[] = {
#define X(name, shape, flops_, takes_, result)                                                                         \
    { #name, shape, step_lanes, .takes = takes_, .flops = flops_, .lanes = do_##name },
    ONE_BY_ONE(X)
#undef X
#define X(name, shape, flops_, takes_, result)                                                                         \
    { #name, shape, step_compare, .takes = takes_, .flops = flops_, .lanes = do_##name },
        COMPARISONS(X)
#undef X
            { "v_cndmask_b32", "v x x z2", step_select, .takes = FLOATS },
    { "v_bitop3_b32", "v x x x", step_bitop3, .takes = BIT(AT_BITOP3) | GFX950 },
    { "v_div_scale_f32", "v s2 x x x", step_division_scaled, .takes = FLOATS, .flops = 1 },
    { "v_div_fmas_f32", "v x x x", step_division_multiplied, .takes = FLOATS | READS_VCC, .flops = 2 },
    { "v_mov_b64", "v2 x2", step_64, .kind = MOV },
    { "v_lshl_add_u64", "v2 x2 x x2", step_64, .kind = LSHL_ADD },
    { "v_lshlrev_b64", "v2 x x2", step_64, .kind = LSHLREV },
    { "v_mad_u64_u32", "v2 s2 x x x2", step_64, .kind = MAD_U },
    { "v_mad_i64_i32", "v2 s2 x x x2", step_64, .kind = MAD_I },
    { "v_cmp_gt_i64", "s2 x2 x2", step_compare_64, .kind = GT_I64 },
    { "v_cmp_le_i64", "s2 x2 x2", step_compare_64, .kind = LE_I64 },
    { "v_pk_add_f32", "v2 x2 x2", step_packed, .takes = PACKED, .kind = PACKED_ADD, .flops = 2 },
    { "v_pk_mul_f32", "v2 x2 x2", step_packed, .takes = PACKED, .kind = PACKED_MUL, .flops = 2 },
    { "v_pk_fma_f32", "v2 x2 x2 x2", step_packed, .takes = PACKED, .kind = PACKED_FMA, .flops = 4 },
    { "v_readfirstlane_b32", "s v", step_first_lane, .takes = 0 },
    { "v_mov_b32_dpp", "v v", step_mov_dpp, .takes = DPP },
    { 0 },
};
