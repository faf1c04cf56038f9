/* SPDX-License-Identifier: Apache-2.0 */
/* PTX: arithmetic, comparisons, conversions, moves, shuffles. */
#include "machine/ptx.h"

#include <math.h>
#include <string.h>

/* The block is not called b here, as sources are. */
#define HANDLER(name)                                                                                                  \
    static void name(UNUSED ptx_block *block, UNUSED ptx_warp *w, UNUSED const ptx_instruction *x, UNUSED u32 on)

/* a * b + c, rounded down: the nearest one, or the one below it where that is too large. */
static float fma_down(float a, float b, float c)
{
    float  nearest = fmaf(a, b, c);
    double p = (double)a * (double)b, d = (double)c, s = p + d, back = s - p, rest = (p - (s - back)) + (d - back);
    bool   above = (double)nearest > s || ((double)nearest == s && rest < 0);
    return above ? nextafterf(nearest, -INFINITY) : nearest;
}

static i32 to_s32(float v)
{
    return v != v ? 0 : v >= 0x1p31f ? INT32_MAX : v <= -0x1p31f ? INT32_MIN : (i32)v;
}

/* Between 0 and 1; a NaN becomes 0. */
static float saturate(float v)
{
    return v > 0.0f ? v < 1.0f ? v : 1.0f : 0.0f;
}

static float flush(float v)
{
    return fabsf(v) < 0x1p-126f ? copysignf(0.0f, v) : v;
}

static u32 bits_of(float v)
{
    u32 u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static u32 to_bf16(float v)
{
    u32 u = bits_of(v);
    return v != v ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

/* All lanes are computed, as nothing here can trap, and those that are on are written. */
#define PLAIN(name, pattern, operands, flops, TD, TA, TB, ...)                                                         \
    HANDLER(name)                                                                                                      \
    {                                                                                                                  \
        const TA *pa = ptx_place(w, x->o[1].at), *pc = ptx_place(w, x->n > 3 ? x->o[3].at : 0);                        \
        const TB *pb = ptx_place(w, x->n > 2 ? x->o[2].at : 0);                                                        \
        TD        d[LANES];                                                                                            \
        for (int i = 0; i < LANES; i++) {                                                                              \
            UNUSED TA a = pa[i], c = pc[i];                                                                            \
            UNUSED TB b = pb[i];                                                                                       \
            d[i] = (TD)(__VA_ARGS__);                                                                                  \
        }                                                                                                              \
        if (sizeof(TD) == 8)                                                                                           \
            ptx_put64(w, x->o[0].at, on, (const u64 *)d);                                                              \
        else                                                                                                           \
            ptx_put32(w, x->o[0].at, on, (const u32 *)d);                                                              \
    }
#include "machine/ptx.def"

/* Each byte of the result is one of the eight of both sources, or, with bit 3, copies of that byte's sign. */
static void permute(ptx_block *block, ptx_warp *w, const ptx_instruction *x, u32 on)
{
    (void)block;
    const u32 *a = ptx_place(w, x->o[1].at), *b = ptx_place(w, x->o[2].at), *select = ptx_place(w, x->o[3].at);
    u32        d[LANES] = { 0 };
    for (int i = 0; i < LANES; i++)
        for (int k = 0; k < 4; k++) {
            u32 pick = select[i] >> (4 * k) & 15, byte = (u32)(((u64)b[i] << 32 | a[i]) >> (8 * (pick & 7))) & 0xff;
            if (pick & 8) byte = byte & 0x80 ? 0xff : 0;
            d[i] |= byte << (8 * k);
        }
    ptx_put32(w, x->o[0].at, on, d);
}

/* The low bits of the first source, as many as the fourth says, put into the second from bit `third` on. */
HANDLER(bfi_32)
{
    const u32 *a = ptx_place(w, x->o[1].at), *b = ptx_place(w, x->o[2].at), *from = ptx_place(w, x->o[3].at);
    const u32 *count = ptx_place(w, x->o[4].at);
    u32        d[LANES];
    for (int i = 0; i < LANES; i++) {
        u32 at = from[i] & 0xff, n = count[i] & 0xff;
        u32 mask = at > 31 ? 0 : (u32)((((u64)1 << (n > 32 ? 32 : n)) - 1) << at);
        d[i] = (b[i] & ~mask) | (at > 31 ? 0 : a[i] << at & mask);
    }
    ptx_put32(w, x->o[0].at, on, d);
}

/* So many bits as the third source says, from bit `second` on; behind the last one zeros. */
HANDLER(bfe_u32)
{
    const u32 *a = ptx_place(w, x->o[1].at), *from = ptx_place(w, x->o[2].at), *count = ptx_place(w, x->o[3].at);
    u32        d[LANES];
    for (int i = 0; i < LANES; i++) {
        u32 at = from[i] & 0xff, n = count[i] & 0xff;
        d[i] = at > 31 ? 0 : a[i] >> at & (u32)(((u64)1 << (n > 32 ? 32 : n)) - 1);
    }
    ptx_put32(w, x->o[0].at, on, d);
}

#define SELECT(name, T, put)                                                                                           \
    HANDLER(name)                                                                                                      \
    {                                                                                                                  \
        const T *a = ptx_place(w, x->o[1].at), *b = ptx_place(w, x->o[2].at);                                          \
        u32      which = w->file[x->o[3].at];                                                                          \
        T        d[LANES];                                                                                             \
        for (int i = 0; i < LANES; i++) d[i] = which >> i & 1 ? a[i] : b[i];                                           \
        put(w, x->o[0].at, on, d);                                                                                     \
    }
SELECT(select_32, u32, ptx_put32)
SELECT(select_64, u64, ptx_put64)

/* --- predicates: a word, a bit for each lane */

static void put_predicate(ptx_warp *w, int at, u32 on, u32 value)
{
    w->file[at] = (w->file[at] & ~on) | (value & on);
}

/* The patterns' order of comparisons. Unordered ones are true of a NaN. */
enum { EQ, NE, LT, LE, GT, GE, EQU, NEU, LTU, LEU, GTU, GEU };

#define CASE(of, condition)                                                                                            \
    case of:                                                                                                           \
        for (int i = 0; i < LANES; i++) r |= (u32)(condition) << i;                                                    \
        break;

#define COMPARE(name, T)                                                                                               \
    HANDLER(name)                                                                                                      \
    {                                                                                                                  \
        const T *a = ptx_place(w, x->o[1].at), *b = ptx_place(w, x->o[2].at);                                          \
        u32      r = 0;                                                                                                \
        switch (x->picks[0]) {                                                                                         \
            CASE(EQ, a[i] == b[i])                                                                                     \
            CASE(NE, a[i]<b[i] || a[i]> b[i])                                                                          \
            CASE(LT, a[i] < b[i])                                                                                      \
            CASE(LE, a[i] <= b[i])                                                                                     \
            CASE(GT, a[i] > b[i])                                                                                      \
            CASE(GE, a[i] >= b[i])                                                                                     \
            CASE(EQU, !(a[i] < b[i] || a[i] > b[i]))                                                                   \
            CASE(NEU, a[i] != b[i])                                                                                    \
            CASE(LTU, !(a[i] >= b[i]))                                                                                 \
            CASE(LEU, !(a[i] > b[i]))                                                                                  \
            CASE(GTU, !(a[i] <= b[i]))                                                                                 \
            CASE(GEU, !(a[i] < b[i]))                                                                                  \
        }                                                                                                              \
        put_predicate(w, x->o[0].at, on, r);                                                                           \
    }
COMPARE(compare_f32, f32)
COMPARE(compare_f64, f64)
COMPARE(compare_s32, i32)
COMPARE(compare_u32, u32)
COMPARE(compare_s64, i64)
COMPARE(compare_u64, u64)

HANDLER(compare_s16)
{
    const u32 *a = ptx_place(w, x->o[1].at), *b = ptx_place(w, x->o[2].at);
    u32        r = 0;
    for (int i = 0; i < LANES; i++) r |= (u32)((a[i] & 0xffff) == (b[i] & 0xffff)) << i;
    put_predicate(w, x->o[0].at, on, x->picks[0] == EQ ? r : ~r);
}

HANDLER(logic)
{
    u32 a = w->file[x->o[1].at], b = w->file[x->o[x->n - 1].at];
    u32 results[] = { a & b, a | b, a ^ b };
    put_predicate(w, x->o[0].at, on, results[x->picks[0]]);
}

HANDLER(not_predicate)
{
    put_predicate(w, x->o[0].at, on, ~w->file[x->o[1].at]);
}

HANDLER(move_predicate)
{
    put_predicate(w, x->o[0].at, on, w->file[x->o[1].at]);
}

/* --- between registers and lanes */

/* {a, b} = c or c = {a, b}: halves, the low one first. */
HANDLER(unpack)
{
    const u64 *wide = ptx_place(w, x->o[1].at);
    const u32 *narrow = ptx_place(w, x->o[1].at);
    int        bits = x->picks[0] ? 32 : 16;
    for (int k = 0; k < 2; k++) {
        u32 d[LANES];
        for (int i = 0; i < LANES; i++)
            d[i] = (u32)((x->picks[0] ? wide[i] : (u64)narrow[i]) >> (k * bits) & (((u64)1 << bits) - 1));
        ptx_put32(w, block->module->list[x->o[0].first + k], on, d);
    }
}

HANDLER(pack)
{
    const int *of = block->module->list + x->o[1].first;
    const u32 *low = ptx_place(w, of[0]), *high = ptx_place(w, of[1]);
    u64        d[LANES];
    u32        e[LANES];
    for (int i = 0; i < LANES; i++) d[i] = low[i] | (u64)high[i] << 32;
    for (int i = 0; i < LANES; i++) e[i] = (low[i] & 0xffff) | high[i] << 16;
    if (x->picks[0])
        ptx_put64(w, x->o[0].at, on, d);
    else
        ptx_put32(w, x->o[0].at, on, e);
}

/* shfl.sync: the lane that each reads, within segments (the third source: clamp and segment mask). */
HANDLER(shuffle)
{
    const u32 *a = ptx_place(w, x->o[1].at), *by = ptx_place(w, x->o[2].at), *limits = ptx_place(w, x->o[3].at);
    u32        d[LANES], inside = 0;
    for (int i = 0; i < LANES; i++) {
        int  clamp = (int)(limits[i] & 31), segment = (int)(limits[i] >> 8 & 31), step = (int)(by[i] & 31);
        int  least = i & segment, most = least | (clamp & ~segment);
        int  from = x->picks[0] ? least | (step & ~segment) : i ^ step;
        bool in = from <= most;
        if (!in) from = i;
        inside |= (u32)in << i;
        d[i] = a[from];
        if ((on >> i & 1) && !(on >> from & 1)) {
            ptx_fail(block, w, x, "lane %d reads lane %d, which is not there", i, from);
            return;
        }
    }
    ptx_put32(w, x->o[0].at, on, d);
    if (x->o[0].count) put_predicate(w, x->o[0].first, on, inside);
}

/* vote.sync.any: does any lane have the predicate? */
HANDLER(vote)
{
    put_predicate(w, x->o[0].at, on, w->file[x->o[1].at] & on ? ~0u : 0);
}

#define PLAIN(name, pattern, operands, flops, ...) { pattern, operands, name, flops, 0 },
#define LANE(...) { __VA_ARGS__ },
const ptx_row ptx_alu_rows[] = {
#include "machine/ptx.def"
    { 0 }
};
