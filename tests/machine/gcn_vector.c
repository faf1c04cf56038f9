/* SPDX-License-Identifier: Apache-2.0 */
/* Vector instructions on 32 bits: each lane that EXEC has for itself, and a few across lanes. */
#include "machine/gcn.h"

#include <math.h>

/* A result may replace an operand: each lane reads its own before it is written. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* some functions have no vector form */
#define EACH_LANE _Pragma("clang loop vectorize(assume_safety)") for (int i = 0; i < LANES; i++)
#else
#define EACH_LANE _Pragma("GCC ivdep") for (int i = 0; i < LANES; i++)
#endif

/* --- words of the rows LANES of gcn.def ---------------------------------------------------------- */

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

/* The first of the instructions of a division: a scaled so that no step overflows or loses bits. */
static u32 division_scaled(u32 a, u32 divisor, u32 dividend)
{
    float d = float_of(divisor), n = float_of(dividend);
    u32   up = bits_of(float_of(a) * 0x1p64f), down = bits_of(float_of(a) * 0x1p-64f);
    if (d == 0 || n == 0) return 0x7fc00000;
    if (exponent(dividend) - exponent(divisor) >= 96) return a == divisor ? up : a;
    if (denormal(d)) return up;
    if (denormal(1 / d)) return denormal(n / d) ? (a == divisor ? down : a) : down;
    if (denormal(n / d)) return a == dividend ? up : a;
    return exponent(dividend) <= 23 ? up : a;
}

/* Must division_multiplied scale back? */
static bool division_is_late(u32 divisor, u32 dividend)
{
    float d = float_of(divisor), n = float_of(dividend);
    if (d == 0 || n == 0) return false;
    return exponent(dividend) - exponent(divisor) >= 96 || (!denormal(d) && denormal(n / d));
}

static inline u32 division_multiplied(float q, u32 c, bool late)
{
    return bits_of(!late ? q : exponent(c) > 127 ? q * 0x1p64f : q * 0x1p-64f);
}

/* The last: q is the quotient, right but for special cases. */
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

/* Is a of a class whose bit b has: NaN (signaling, quiet), -infinite, -normal, -denormal, -0, +0, ...? */
static u32 in_class(u32 a, u32 b)
{
    u32 x = a & 0x7fffffff, infinite = 0x7f800000, from_0 = x == infinite ? 3 : x >= 0x800000 ? 2 : x != 0;
    if (x > infinite) return b >> (a >> 22 & 1) & 1;
    return b >> (a >> 31 ? 5 - from_0 : 6 + from_0) & 1;
}

static inline u32 to_u32(float x)
{
    return !(x > 0) ? 0 : x >= 0x1p32f ? ~0u : (u32)x;
}

static inline i32 to_i32(float x)
{
    return x != x ? 0 : x >= 0x1p31f ? INT32_MAX : x <= -0x1p31f ? INT32_MIN : (i32)x;
}

/* Bit 4 a + 2 b + c of the table, for each bit of a, b and c. */
static inline u32 bits_by_table(u32 a, u32 b, u32 c, int table)
{
    u32 d = 0;
    for (int k = 0; k < 8; k++)
        if (table >> k & 1) d |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return d;
}

static inline u32 median(u32 a, u32 b, u32 c)
{
    i32 x = (i32)a, y = (i32)b, z = (i32)c, low = x < y ? x : y, high = x < y ? y : x;
    return (u32)(z < low ? low : z > high ? high : z);
}

#define LOW24(a) ((a)&0xffffff)
#define SIGNED24(a) ((i32)((a) << 8) >> 8)
#define BELOW(i) (((u64)1 << (i)) - 1)

#define LANE(name, shape, flops, takes, result)                                                                        \
    static void do_##name(const u32 *as, const u32 *bs, const u32 *cs, u32 *ds, u64 mask, int table)                   \
    {                                                                                                                  \
        (void)table;                                                                                                   \
        EACH_LANE                                                                                                      \
        {                                                                                                              \
            u32   a = as[i], b = bs[i], c = cs[i], bit = mask >> i & 1;                                                \
            float fa = float_of(a), fb = float_of(b), fc = float_of(c);                                                \
            (void)b, (void)c, (void)fa, (void)fb, (void)fc, (void)bit;                                                 \
            ds[i] = (result);                                                                                          \
        }                                                                                                              \
    }
#include "machine/gcn.def"

/* --- operands and results ------------------------------------------------------------------------ */

/* Operand k as 64 values, in the registers themselves or in `room`. */
static const u32 *source(wave *w, const instruction *x, int k, u32 *room)
{
    const operand *o = &x->o[k];
    int            part = x->row->takes & BIT(AT_SRC0_SEL) ? x->modifier[k == 1 ? AT_SRC0_SEL : AT_SRC1_SEL] : 6;
    u32 flip = o->negate ? 0x80000000 : 0, keep = o->absolute ? 0x7fffffff : part < 4 ? 255 : part < 6 ? 0xffff : ~0u;
    int shift = part < 4 ? 8 * part : part < 6 ? 16 * (part - 4) : 0;
    if (o->kind == VECTOR && !flip && keep == ~0u) return w->v[o->at];
    if (o->kind == VECTOR) {
        const u32 *from = w->v[o->at];
        EACH_LANE  room[i] = (from[i] >> shift & keep) ^ flip;
    } else {
        u32       value = ((u32)scalar_value(w, o) & keep) ^ flip;
        EACH_LANE room[i] = value;
    }
    return room;
}

/* The result in a part of a register, beside zeros; the number of the part, less that of all of it. */
static void place_in_part(u32 *out, int part)
{
    u32       keep = part < -2 ? 255 : 0xffff;
    int       shift = part < -2 ? 8 * (part + 6) : 16 * (part + 2);
    EACH_LANE out[i] = (out[i] & keep) << shift;
}

/* A lane's result, if EXEC has the lane: in vector registers, or as a bit. */
static void write_lanes(wave *w, const operand *to, int which, const u32 *from)
{
    u64  exec = scalar_pair(w, EXEC), mask = 0;
    u32 *at = w->v[to->at + which];
    if (to->kind == SCALAR) {
        for (int i = 0; i < LANES; i++) mask |= (u64)(from[i] & 1) << i;
        set_scalar_pair(w, to->at, mask & exec);
        return;
    }
    for (int half = 0; half < LANES; half += 32) {
        u32 on = (u32)(exec >> half);
        for (int i = 0; i < 32; i++) at[half + i] = on >> i & 1 ? from[half + i] : at[half + i];
    }
}

static bool step_lanes(wave *w, const instruction *x)
{
    _Alignas(64) u32 room[3][LANES], out[LANES];
    u32             *own = w->v[x->o[0].at];
    const u32       *from[3] = { own, own, own };
    u64              mask = scalar_pair(w, VCC);
    bool             direct = x->o[0].kind == VECTOR && scalar_pair(w, EXEC) == ~(u64)0;
    for (int k = 1; k < x->n; k++) {
        if (x->o[k].count == 2)
            mask = scalar_value(w, &x->o[k]);
        else
            from[k - 1] = source(w, x, k, room[k - 1]);
    }
    x->row->lanes(from[0], from[1], from[2], direct ? own : out, mask, x->modifier[AT_BITOP3]);
    if (x->modifier[AT_DST_SEL]) place_in_part(direct ? own : out, x->modifier[AT_DST_SEL]);
    if (!direct) write_lanes(w, &x->o[0], 0, out);
    return true;
}

/* Are all quotients of a size for which nothing is scaled? */
static bool divisions_are_plain(const u32 *divisor, const u32 *dividend)
{
    u32 odd = 0;
    for (int i = 0; i < LANES; i++) {
        i32 d = exponent(divisor[i]), n = exponent(dividend[i]);
        odd |= (u32)(d < 1) | (u32)(d > 252) | (u32)(n < 24) | (u32)(n > 254) | (u32)(n - d < -124) | (u32)(n - d > 95);
    }
    return !odd;
}

static bool step_division_scaled(wave *w, const instruction *x)
{
    _Alignas(64) u32 room[3][LANES], out[LANES], late[LANES] = { 0 };
    const u32       *a = source(w, x, 2, room[0]), *b = source(w, x, 3, room[1]), *c = source(w, x, 4, room[2]);
    if (divisions_are_plain(b, c)) {
        memcpy(out, a, sizeof out);
    } else {
        for (int i = 0; i < LANES; i++) late[i] = division_is_late(b[i], c[i]);
        for (int i = 0; i < LANES; i++) out[i] = division_scaled(a[i], b[i], c[i]);
    }
    write_lanes(w, &x->o[0], 0, out);
    write_lanes(w, &x->o[1], 0, late);
    return true;
}

/* --- pairs of floats ----------------------------------------------------------------------------- */

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
        how[x->row->kind](from[0], from[1], from[2], out[h], 0, 0);
    }
    for (int h = 0; h < 2; h++) write_lanes(w, &x->o[0], h, out[h]);
    return true;
}

/* AMD CDNA3 ISA, V_PK_MOV_B32: half h comes from operand h, from the register that its bit of op_sel names. */
static bool step_packed_move(wave *w, const instruction *x)
{
    _Alignas(64) u32 room[2][LANES], out[2][LANES];
    for (int h = 0; h < 2; h++) memcpy(out[h], packed_source(w, x, h + 1, 0, room[h]), sizeof out[h]);
    for (int h = 0; h < 2; h++) write_lanes(w, &x->o[0], h, out[h]);
    return true;
}

/* --- across lanes -------------------------------------------------------------------------------- */

static bool step_first_lane(wave *w, const instruction *x)
{
    u64 exec = scalar_pair(w, EXEC);
    w->s[x->o[0].at] = w->v[x->o[1].at][exec ? __builtin_ctzll(exec) : 0];
    return true;
}

/* One lane of a vector register, whatever EXEC says: compilers keep scalar registers there that they run out of. */
static bool step_read_lane(wave *w, const instruction *x)
{
    w->s[x->o[0].at] = w->v[x->o[1].at][scalar_value(w, &x->o[2]) % LANES];
    return true;
}

static bool step_write_lane(wave *w, const instruction *x)
{
    w->v[x->o[0].at][scalar_value(w, &x->o[2]) % LANES] = (u32)scalar_value(w, &x->o[1]);
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
    write_lanes(w, &x->o[0], 0, out);
    return true;
}

#define SDWA (BIT(AT_DST_SEL) | BIT(AT_DST_UNUSED) | BIT(AT_SRC0_SEL) | BIT(AT_SRC1_SEL))
#define PACKED (BIT(AT_OP_SEL) | BIT(AT_OP_SEL_HI) | BIT(AT_NEG_LO) | BIT(AT_NEG_HI))
#define DPP (BIT(AT_QUAD_PERM) | BIT(AT_ROW_ROR) | BIT(AT_ROW_MASK) | BIT(AT_BANK_MASK))

const row gcn_vector_rows[] = {
#define LANE(name, shape, of, flags, result)                                                                           \
    { #name, shape, step_lanes, .takes = flags, .flops = of, .lanes = do_##name },
#define VECTOR(name, shape, step, of, n, flags) { #name, shape, step, .kind = of, .flops = n, .takes = flags },
#include "machine/gcn.def"
    { 0 },
};
