/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreter of AMD's machine code by small texts: arithmetic against C. */
#include "support/test.h"

#include "machine/texts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float as_float(uint32_t x)
{
    float f;
    memcpy(&f, &x, 4);
    return f;
}

static uint32_t as_bits(float f)
{
    uint32_t x;
    memcpy(&x, &f, 4);
    return x;
}

/* Both are NaN, or all bits are equal. */
static bool same(uint32_t a, uint32_t b)
{
    return a == b || (isnan(as_float(a)) && isnan(as_float(b)));
}

static uint32_t random_word(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

/* Special values, random bits, and floats of usual size; NaNs are quiet: what IEEE mode makes of others is not
 * modelled. */
static void fill(uint32_t *words, int n)
{
    static const uint32_t special[] = { 0,          1,          0xffffffff, 0x80000000, 0x7fffffff,
                                        0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc00000,
                                        0x00400000, 0x80000001, 0x42280000, 0x0000ffff };
    for (int i = 0; i < n; i++) {
        uint32_t r = random_word();
        words[i] = i % 3 == 0   ? special[r % (sizeof special / sizeof *special)]
                   : i % 3 == 1 ? r
                                : as_bits(ldexpf((float)(int32_t)r, -28));
        if (isnan(as_float(words[i]))) words[i] |= 0x400000;
    }
}

/* --- vector instructions: v4 (and v5) from v1, v2, v3 -------------------------------------------- */

typedef struct vector_row {
    const char *text;
    uint32_t (*wanted)(uint32_t a, uint32_t b, uint32_t c, uint32_t lane);
} vector_row;

#define WANT(name, result)                                                                                             \
    static uint32_t name(uint32_t a, uint32_t b, uint32_t c, uint32_t lane)                                            \
    {                                                                                                                  \
        float x = as_float(a), y = as_float(b), z = as_float(c);                                                       \
        (void)a, (void)b, (void)c, (void)x, (void)y, (void)z, (void)lane;                                              \
        return (uint32_t)(result);                                                                                     \
    }
WANT(want_a, a)
WANT(want_add, (uint64_t)a + b)
WANT(want_sub, (uint64_t)a - b)
WANT(want_subrev, (uint64_t)b - a)
WANT(want_add3, (uint64_t)a + b + c)
WANT(want_mul, (uint64_t)a *b)
WANT(want_mul24, (uint64_t)(a % 0x1000000) * (b % 0x1000000))
WANT(want_mul_i24, ((int64_t)(int32_t)(a * 256) / 256) * ((int64_t)(int32_t)(b * 256) / 256))
WANT(want_mad24, (uint64_t)(a % 0x1000000) * (b % 0x1000000) + c)
WANT(want_max_i, (int32_t)a > (int32_t)b ? a : b)
WANT(want_min_i, (int32_t)a < (int32_t)b ? a : b)
WANT(want_min_u, a < b ? a : b)
WANT(want_max_u, a < b ? b : a)
WANT(want_max3_i, want_max_i(want_max_i(a, b, 0, 0), c, 0, 0))
WANT(want_min3_i, want_min_i(want_min_i(a, b, 0, 0), c, 0, 0))
WANT(want_med3_i, want_max_i(want_min_i(a, b, 0, 0), want_min_i(want_max_i(a, b, 0, 0), c, 0, 0), 0, 0))
WANT(want_and, a &b)
WANT(want_or, a | b)
WANT(want_or_word1, a >> 16 | b)
WANT(want_or_in_word1, (a | b) << 16)
WANT(want_and_in_byte2, (a >> 24 & b & 255) << 16)
WANT(want_add_word1, (a >> 16) + (uint64_t)b)
WANT(want_xor_word1, a >> 16 ^ b)
WANT(want_or3, a | b | c)
WANT(want_xor, a ^ b)
WANT(want_and_or, (a & b) | c)
WANT(want_xad, (uint64_t)(a ^ b) + c)
WANT(want_ge, a >= b)
WANT(want_mul_word1, (uint64_t)((int64_t)(a >> 16) * ((int32_t)(b << 8) >> 8)))
WANT(want_mul_low_byte, (a % 256 * (b % 65536)) % 65536)
WANT(want_sub_u16, (a + 65536 - b % 65536) % 65536)
WANT(want_bfi, c ^ (a & (b ^ c)))
WANT(want_shl, b *((uint64_t)1 << a % 32))
WANT(want_shr, b / ((uint64_t)1 << a % 32))
WANT(want_sar, (int64_t)floor((double)(int32_t)b / (double)((int64_t)1 << a % 32)))
WANT(want_shl_add, a *((uint64_t)1 << b % 32) + c)
WANT(want_add_shl, (uint64_t)(uint32_t)(a + b) * ((uint64_t)1 << c % 32))
WANT(want_shl_or, (a << b % 32) | c)
WANT(want_bfe, (a >> b % 32) % ((uint64_t)1 << c % 32))
WANT(want_perm_high, b >> 16 | (a & 0xffff0000))
WANT(want_below, lane)
WANT(want_add_f, as_bits(x + y))
WANT(want_sub_f, as_bits(x - y))
WANT(want_sub_abs, as_bits(x - fabsf(y)))
WANT(want_mul_f, as_bits(x *y))
WANT(want_max_f, as_bits(fmaxf(x, y)))
WANT(want_max3_f, as_bits(fmaxf(fmaxf(x, y), z)))
WANT(want_fma, as_bits(fmaf(x, y, -z)))
WANT(want_fmamk, as_bits(fmaf(x, 0.5f, y)))
WANT(want_fmaak, as_bits(fmaf(x, y, 0.5f)))
WANT(want_fmac, as_bits(fmaf(x, y, as_float(c))))
WANT(want_exp, as_bits(exp2f(x)))
WANT(want_log, as_bits(log2f(x)))
WANT(want_rcp, as_bits(1 / x))
WANT(want_sqrt, as_bits(sqrtf(x)))
WANT(want_from_u, as_bits((float)a))
WANT(want_from_i, as_bits((float)(int32_t)a))
WANT(want_to_u, x >= 4294967296.0f ? 0xffffffffu : x > 0 ? (uint32_t)x : 0)
WANT(want_eq, a == b)
WANT(want_ne, a != b)
WANT(want_lt, a < b)
WANT(want_gt, a > b)
WANT(want_lt_i, (int32_t)a < (int32_t)b)
WANT(want_le_i, (int32_t)a <= (int32_t)b)
WANT(want_gt_i, (int32_t)a > (int32_t)b)
WANT(want_ge_i, (int32_t)a >= (int32_t)b)
WANT(want_lt_f, x < y)
WANT(want_ngt_f, !(x > y))
WANT(want_nle_f, !(x <= y))
WANT(want_eq_f, x == y)
WANT(want_less_or_greater, !isnan(x) && !isnan(y) && x != y)
WANT(want_not_apart, isnan(x) || isnan(y) || x == y)
WANT(want_number, !isnan(x))
WANT(want_gt_f, x > y)
WANT(want_ge_f, x >= y)
WANT(want_le_f, x <= y)
WANT(want_not_gt_f, isnan(x) || isnan(y) || x <= y)
WANT(want_not_le_f, isnan(x) || isnan(y) || x > y)
WANT(want_select, lane & 1 ? b : a)
WANT(want_subnormal_or_zero, fpclassify(x) == FP_SUBNORMAL || fpclassify(x) == FP_ZERO)
WANT(want_quotient, as_bits(x / y))

#define COMPARED(name) "v_cmp_" name " vcc, v1, v2\nv_cndmask_b32_e64 v4, 0, 1, vcc"
#define QUOTIENT                                                                                                       \
    "v_div_scale_f32 v10, s[10:11], v2, v2, v1\nv_div_scale_f32 v11, vcc, v1, v2, v1\nv_rcp_f32_e32 v12, v10\n"        \
    "v_fma_f32 v13, -v10, v12, 1.0\nv_fmac_f32_e32 v12, v13, v12\nv_mul_f32_e32 v13, v11, v12\n"                       \
    "v_fma_f32 v14, -v10, v13, v11\nv_fmac_f32_e32 v13, v14, v12\nv_fma_f32 v10, -v10, v13, v11\n"                     \
    "v_div_fmas_f32 v10, v10, v12, v13\nv_div_fixup_f32 v4, v10, v2, v1"

static const vector_row vector_rows[] = {
    { "v_mov_b32_e32 v4, v1", want_a },
    { "v_accvgpr_write_b32 a3, v1\nv_accvgpr_mov_b32 a4, a3\nv_accvgpr_read_b32 v4, a4", want_a },
    { "v_add_u32_e32 v4, v1, v2", want_add },
    { "v_sub_u32_e32 v4, v1, v2", want_sub },
    { "v_subrev_u32_e32 v4, v1, v2", want_subrev },
    { "v_add3_u32 v4, v1, v2, v3", want_add3 },
    { "v_mul_lo_u32 v4, v1, v2", want_mul },
    { "v_mul_u32_u24_e32 v4, v1, v2", want_mul24 },
    { "v_mul_i32_i24_e32 v4, v1, v2", want_mul_i24 },
    { "v_mad_u32_u24 v4, v1, v2, v3", want_mad24 },
    { "v_max_i32_e32 v4, v1, v2", want_max_i },
    { "v_max_u32_e32 v4, v1, v2", want_max_u },
    { "v_min_i32_e32 v4, v1, v2", want_min_i },
    { "v_min_u32_e32 v4, v1, v2", want_min_u },
    { "v_max3_i32 v4, v1, v2, v3", want_max3_i },
    { "v_min3_i32 v4, v1, v2, v3", want_min3_i },
    { "v_med3_i32 v4, v1, v2, v3", want_med3_i },
    { "v_and_b32_e32 v4, v1, v2", want_and },
    { "v_or_b32_e32 v4, v1, v2", want_or },
    { "v_or_b32_sdwa v4, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD", want_or_word1 },
    { "v_or_b32_sdwa v4, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD", want_or_in_word1 },
    { "v_and_b32_sdwa v4, v1, v2 dst_sel:BYTE_2 dst_unused:UNUSED_PAD src0_sel:BYTE_3 src1_sel:DWORD",
      want_and_in_byte2 },
    { "v_add_u32_sdwa v4, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD", want_add_word1 },
    { "v_xor_b32_sdwa v4, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD", want_xor_word1 },
    { "v_or3_b32 v4, v1, v2, v3", want_or3 },
    { "v_xor_b32_e32 v4, v1, v2", want_xor },
    { "v_and_or_b32 v4, v1, v2, v3", want_and_or },
    { "v_xad_u32 v4, v1, v2, v3", want_xad },
    { "v_cmp_ge_u32_e32 vcc, v1, v2\nv_cndmask_b32_e64 v4, 0, 1, vcc", want_ge },
    { "v_mul_i32_i24_sdwa v4, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD",
      want_mul_word1 },
    { "v_mul_lo_u16_sdwa v4, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:DWORD",
      want_mul_low_byte },
    { "v_sub_u16_e32 v4, v1, v2", want_sub_u16 },
    { "v_bfi_b32 v4, v1, v2, v3", want_bfi },
    { "v_lshlrev_b32_e32 v4, v1, v2", want_shl },
    { "v_lshrrev_b32_e32 v4, v1, v2", want_shr },
    { "v_ashrrev_i32_e32 v4, v1, v2", want_sar },
    { "v_lshl_add_u32 v4, v1, v2, v3", want_shl_add },
    { "v_add_lshl_u32 v4, v1, v2, v3", want_add_shl },
    { "v_lshl_or_b32 v4, v1, v2, v3", want_shl_or },
    { "v_bfe_u32 v4, v1, v2, v3", want_bfe },
    { "s_mov_b32 s9, 0x7060302\nv_perm_b32 v4, v1, v2, s9", want_perm_high },
    { "v_mbcnt_lo_u32_b32 v4, -1, 0\nv_mbcnt_hi_u32_b32 v4, -1, v4", want_below },
    { "v_add_f32_e32 v4, v1, v2", want_add_f },
    { "v_sub_f32_e32 v4, v1, v2", want_sub_f },
    { "v_sub_f32_e64 v4, v1, |v2|", want_sub_abs },
    { "v_add_f32_e64 v4, v1, -v2", want_sub_f },
    { "v_mul_f32_e32 v4, v1, v2", want_mul_f },
    { "v_max_f32_e32 v4, v1, v2", want_max_f },
    { "v_max3_f32 v4, v1, v2, v3", want_max3_f },
    { "v_fma_f32 v4, v1, v2, -v3", want_fma },
    { "v_fmamk_f32 v4, v1, 0x3f000000, v2", want_fmamk },
    { "v_fmaak_f32 v4, v1, v2, 0x3f000000", want_fmaak },
    { "v_mov_b32_e32 v4, v3\nv_fmac_f32_e32 v4, v1, v2", want_fmac },
    { "v_exp_f32_e32 v4, v1", want_exp },
    { "v_log_f32_e32 v4, v1", want_log },
    { "v_rcp_f32_e32 v4, v1", want_rcp },
    { "v_rcp_iflag_f32_e32 v4, v1", want_rcp },
    { "v_sqrt_f32_e32 v4, v1", want_sqrt },
    { "v_cvt_f32_u32_e32 v4, v1", want_from_u },
    { "v_cvt_f32_i32_e32 v4, v1", want_from_i },
    { "v_cvt_u32_f32_e32 v4, v1", want_to_u },
    { COMPARED("eq_u32_e32"), want_eq },
    { COMPARED("ne_u32_e32"), want_ne },
    { COMPARED("lt_u32_e32"), want_lt },
    { COMPARED("gt_u32_e32"), want_gt },
    { COMPARED("lt_i32_e32"), want_lt_i },
    { COMPARED("le_i32_e32"), want_le_i },
    { COMPARED("gt_i32_e32"), want_gt_i },
    { COMPARED("ge_i32_e32"), want_ge_i },
    { COMPARED("eq_f32_e32"), want_eq_f },
    { "v_cmp_eq_f32_e32 vcc, v1, v1\nv_cndmask_b32_e64 v4, 0, 1, vcc", want_number },
    { COMPARED("lg_f32_e32"), want_less_or_greater },
    { COMPARED("nlg_f32_e32"), want_not_apart },
    { COMPARED("lt_f32_e32"), want_lt_f },
    { COMPARED("ngt_f32_e32"), want_ngt_f },
    { COMPARED("nle_f32_e32"), want_nle_f },
    { COMPARED("gt_f32_e32"), want_gt_f },
    { COMPARED("le_f32_e32"), want_le_f },
    { COMPARED("ngt_f32_e32"), want_not_gt_f },
    { COMPARED("nle_f32_e32"), want_not_le_f },
    { COMPARED("ge_f32_e32"), want_ge_f },
    { "v_mov_b32_e32 v2, 0xf0\nv_cmp_class_f32_e32 vcc, v1, v2\nv_cndmask_b32_e64 v4, 0, 1, vcc",
      want_subnormal_or_zero },
    { "s_mov_b32 s10, 0xaaaaaaaa\ns_mov_b32 s11, 0xaaaaaaaa\nv_cndmask_b32_e64 v4, v1, v2, s[10:11]", want_select },
    { QUOTIENT, want_quotient },
};

/* v1, v2, v3 are loaded, v4 is stored; `t` has the lines between. */
#define HEAD                                                                                                           \
    "s_load_dwordx4 s[4:7], s[0:1], 0x0\nv_lshlrev_b32_e32 v9, 2, v0\ns_waitcnt lgkmcnt(0)\n"                          \
    "global_load_dword v1, v9, s[4:5]\nglobal_load_dword v2, v9, s[4:5] offset:256\n"                                  \
    "global_load_dword v3, v9, s[4:5] offset:512\ns_waitcnt vmcnt(0)\n"
#define TAIL "\nglobal_store_dword v9, v4, s[6:7]\ns_endpgm\n"

static void one_vector_row(const vector_row *row)
{
    char     body[1200];
    uint32_t in[192], out[64];
    snprintf(body, sizeof body, HEAD "%s" TAIL, row->text);
    gcn_text text = { .body = body, .pointers = 2 };
    for (int round = 0; round < 8; round++) {
        gcn_trial trial = { .buffers = { in, out }, .count = { 192, 64 } };
        fill(in, 192);
        const char *error = gcn_try(&text, &trial);
        if (*error) fail_msg("%s", error);
        for (uint32_t i = 0; i < 64; i++) {
            uint32_t wanted = row->wanted(in[i], in[64 + i], in[128 + i], i);
            if (row->wanted == want_quotient && !(wanted >> 23 & 255) && wanted - out[i] + 1 < 3)
                continue; /* scaled back */
            if (!same(out[i], wanted))
                fail_msg("%s: %08x %08x %08x gives %08x, wanted %08x", row->text, in[i], in[64 + i], in[128 + i],
                         out[i], wanted);
        }
    }
}

TEST(vector_instructions_are_right)
{
    for (size_t i = 0; i < sizeof vector_rows / sizeof *vector_rows; i++) one_vector_row(&vector_rows[i]);
}

/* --- of 64 bits, packed, converted: two results -------------------------------------------------- */

typedef struct wide_row {
    const char *text; /* v[4:5] from v[0:1] = (a, b), v[2:3] = (c, a) */
    uint64_t (*wanted)(uint64_t p, uint64_t q);
} wide_row;

#define WIDE(name, result)                                                                                             \
    static uint64_t name(uint64_t p, uint64_t q)                                                                       \
    {                                                                                                                  \
        uint32_t a = (uint32_t)p, b = (uint32_t)(p >> 32), c = (uint32_t)q;                                            \
        (void)a, (void)b, (void)c;                                                                                     \
        return result;                                                                                                 \
    }
static uint64_t two(float low, float high)
{
    return as_bits(low) | (uint64_t)as_bits(high) << 32;
}
WIDE(wide_mov, p)
WIDE(wide_one, (uint64_t)0x3ff << 52)
WIDE(wide_shl_add, p * 8 + q)
WIDE(wide_shl, q << a % 64)
WIDE(wide_mad_u, (uint64_t)a *b + q)
WIDE(wide_mad_i, (uint64_t)((int64_t)(int32_t)a *(int32_t)b) + q)
WIDE(wide_gt, (int64_t)p > (int64_t)q)
WIDE(wide_le, (int64_t)p <= (int64_t)q)
WIDE(wide_add_f, two(as_float(a) + as_float(c), as_float(b) + as_float(a)))
WIDE(wide_sub_f, two(as_float(a) - as_float(c), as_float(b) - as_float(a)))
WIDE(wide_mul_f, two(as_float(a) * as_float(c), as_float(b) * as_float(a)))
WIDE(wide_fma_f, two(fmaf(as_float(b), as_float(c), as_float(a)), fmaf(as_float(b), as_float(a), as_float(b))))
WIDE(wide_high_low, b | (uint64_t)c << 32)
WIDE(wide_low_high, a | (uint64_t)a << 32)
static uint64_t as_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}
WIDE(wide_from_i, as_double((int32_t)a))
static double of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, 8);
    return x;
}
WIDE(wide_gt_f, of_bits(p) > of_bits(q))
WIDE(wide_ngt_f, !(of_bits(p) > of_bits(q)))
WIDE(wide_nlt_f, !(of_bits(p) < of_bits(q)))
#define COMPARED_64(name) "v_cmp_" name "_e32 vcc, v[0:1], v[2:3]\nv_cndmask_b32_e64 v4, 0, 1, vcc\nv_mov_b32_e32 v5, 0"

static const wide_row wide_rows[] = {
    { "v_mov_b64_e32 v[4:5], v[0:1]", wide_mov },
    { "v_mov_b64_e32 v[4:5], 1.0", wide_one },
    { "s_mov_b64 s[10:11], 1.0\nv_mov_b64_e32 v[4:5], s[10:11]", wide_one },
    { "v_lshl_add_u64 v[4:5], v[0:1], 3, v[2:3]", wide_shl_add },
    { "v_lshlrev_b64 v[4:5], v0, v[2:3]", wide_shl },
    { "v_mad_u64_u32 v[4:5], s[10:11], v0, v1, v[2:3]", wide_mad_u },
    { "v_mad_i64_i32 v[4:5], s[10:11], v0, v1, v[2:3]", wide_mad_i },
    { "v_cvt_f64_i32_e32 v[4:5], v0", wide_from_i },
    { COMPARED_64("gt_i64"), wide_gt },
    { COMPARED_64("le_i64"), wide_le },
    { COMPARED_64("gt_f64"), wide_gt_f },
    { COMPARED_64("ngt_f64"), wide_ngt_f },
    { COMPARED_64("nlt_f64"), wide_nlt_f },
    { "v_pk_add_f32 v[4:5], v[0:1], v[2:3]", wide_add_f },
    { "v_pk_add_f32 v[4:5], v[0:1], v[2:3] neg_lo:[0,1] neg_hi:[0,1]", wide_sub_f },
    { "v_pk_mul_f32 v[4:5], v[0:1], v[2:3]", wide_mul_f },
    { "v_pk_fma_f32 v[4:5], v[0:1], v[2:3], v[0:1] op_sel:[1,0,0]", wide_fma_f },
    { "v_pk_mov_b32 v[4:5], v[0:1], v[2:3] op_sel:[1,0]", wide_high_low },
    { "v_pk_mov_b32 v[4:5], v[0:1], v[2:3] op_sel:[0,1]", wide_low_high },
};

TEST(wide_instructions_are_right)
{
    for (size_t r = 0; r < sizeof wide_rows / sizeof *wide_rows; r++) {
        char     body[1200];
        uint32_t in[192], out[128];
        snprintf(body, sizeof body,
                 HEAD
                 "v_mov_b32_e32 v10, v3\nv_lshlrev_b32_e32 v9, 3, v0\nv_mov_b32_e32 v0, v1\nv_mov_b32_e32 v1, v2\n"
                 "v_mov_b32_e32 v2, v10\nv_mov_b32_e32 v3, v0\n%s\nglobal_store_dwordx2 v9, v[4:5], s[6:7]\ns_endpgm\n",
                 wide_rows[r].text);
        gcn_text  text = { .body = body, .pointers = 2 };
        gcn_trial trial = { .buffers = { in, out }, .count = { 192, 128 } };
        fill(in, 192);
        const char *error = gcn_try(&text, &trial);
        if (*error) fail_msg("%s", error);
        for (int i = 0; i < 64; i++) {
            uint64_t wanted =
                wide_rows[r].wanted(in[i] | (uint64_t)in[64 + i] << 32, in[128 + i] | (uint64_t)in[i] << 32);
            if (!same(out[2 * i], (uint32_t)wanted) || !same(out[2 * i + 1], (uint32_t)(wanted >> 32)))
                fail_msg("%s: lane %d has %08x%08x, wanted %016llx", wide_rows[r].text, i, out[2 * i + 1], out[2 * i],
                         (unsigned long long)wanted);
        }
    }
}

/* v_cvt_f16_f32 against rounding in double: all of a grid of floats around every float16 limit. */
TEST(float16_is_rounded_to_even)
{
    gcn_text text = { .body = HEAD "v_cvt_f16_f32_e32 v4, v1" TAIL, .pointers = 2 };
    for (int round = 0; round < 40; round++) {
        uint32_t  in[192], out[64];
        gcn_trial trial = { .buffers = { in, out }, .count = { 192, 64 } };
        for (int i = 0; i < 192; i++) in[i] = as_bits(ldexpf((float)(int32_t)random_word(), -31 + (round - 26)));
        if (*gcn_try(&text, &trial)) fail();
        for (int i = 0; i < 64; i++) {
            double x = (double)as_float(in[i]), unit = ldexp(1, (fabs(x) < 0x1p-14 ? -14 : ilogb(x)) - 10),
                   y = rint(x / unit) * unit;
            double got = ldexp(out[i] & 0x3ff, -24);
            if (out[i] >> 10 & 31) got = ldexp((out[i] & 0x3ff) + 1024, (int)(out[i] >> 10 & 31) - 25);
            if ((out[i] >> 10 & 31) == 31) got = HUGE_VAL;
            if (fabs(y) >= 65520) y = HUGE_VAL;
            if (got != fabs(y) || (out[i] >> 15 & 1) != (signbit(x) ? 1 : 0)) fail_msg("%a gives %04x", x, out[i]);
        }
    }
}

/* gfx950's own: two floats to bfloat16, and any function of three bits. gfx942 refuses them. */
TEST(gfx950_has_more)
{
    uint32_t  in[192], out[64];
    gcn_text  text = { .arch = "gfx950", .body = HEAD "v_cvt_pk_bf16_f32 v4, v1, v2" TAIL, .pointers = 2 };
    gcn_trial trial = { .buffers = { in, out }, .count = { 192, 64 } };
    fill(in, 192);
    assert_string_equal(gcn_try(&text, &trial), "");
    for (int i = 0; i < 64; i++) {
        for (int h = 0; h < 2; h++) {
            float    x = as_float(in[64 * h + i]), near = as_float(out[i] >> (16 * h) << 16);
            uint32_t bits = as_bits(near);
            if (isnan(x)) {
                assert_true(isnan(near));
                continue;
            }
            double here = fabs((double)near - (double)x), up = fabs((double)as_float(bits + 0x10000) - (double)x);
            double down = fabs((double)as_float(bits - 0x10000) - (double)x);
            if (isfinite(x) && isfinite(near))
                assert_true(!(here > up) && !(here > down) && ((here != up && here != down) || !(bits >> 16 & 1)));
        }
    }
    text.body = HEAD "v_bitop3_b32 v4, v1, v2, v3 bitop3:0x1e" TAIL;
    assert_string_equal(gcn_try(&text, &trial), "");
    for (int i = 0; i < 64; i++) assert_int_equal(out[i], in[i] ^ (in[64 + i] | in[128 + i]));
    text.arch = "gfx942";
    assert_non_null(strstr(gcn_try(&text, &trial), "gfx942 does not have v_bitop3_b32"));
}

/* --- scalar instructions: s8 and SCC from s6, s7, or s[8:9] from s[6:7] and s[6:7] --------------- */

typedef struct scalar_row {
    const char *text;
    uint64_t (*wanted)(uint32_t a, uint32_t b); /* SCC in bit 32, if the instruction says it */
} scalar_row;

#define SCC(result, scc) ((uint32_t)(result) | (uint64_t) !!(scc) << 32)
#define SCALAR(name, result)                                                                                           \
    static uint64_t name(uint32_t a, uint32_t b)                                                                       \
    {                                                                                                                  \
        int64_t x = (int32_t)a, y = (int32_t)b;                                                                        \
        (void)x, (void)y;                                                                                              \
        return result;                                                                                                 \
    }
SCALAR(scalar_mov, SCC(a, 1))
SCALAR(scalar_movk, SCC(-77, 1))
SCALAR(scalar_not, SCC(~a, ~a))
SCALAR(scalar_abs, SCC(x < 0 ? -x : x, a))
SCALAR(scalar_add_i, SCC(x + y, x + y != (int32_t)(uint32_t)(x + y)))
static uint32_t turned(uint32_t a)
{
    uint32_t d = 0;
    for (int i = 0; i < 32; i++, a /= 2) d = d * 2 + a % 2;
    return d;
}
SCALAR(scalar_brev, SCC(turned(a), 1))
SCALAR(scalar_bitset, SCC((uint64_t)a - (a >> b % 32) % 2 * ((uint64_t)1 << b % 32) + ((uint64_t)1 << b % 32), 1))
SCALAR(scalar_addk, SCC(x - 5, x - 5 != (int32_t)(uint32_t)(x - 5)))
SCALAR(scalar_sub_i, SCC(x - y, x - y != (int32_t)(uint32_t)(x - y)))
SCALAR(scalar_add_u, SCC((uint64_t)a + b, (uint64_t)a + b > 0xffffffffu))
SCALAR(scalar_addc, SCC((uint64_t)a + b + 1, (uint64_t)a + b + 1 > 0xffffffffu))
SCALAR(scalar_mul, SCC((uint64_t)a *b, 1))
SCALAR(scalar_mul_hi, SCC((uint64_t)a *b / 0x100000000u, 1))
SCALAR(scalar_mul_hi_i, SCC((x * y - (int64_t)(uint32_t)(x * y)) / 0x100000000, 1))
SCALAR(scalar_and, SCC(a &b, a &b))
SCALAR(scalar_or, SCC(a | b, a | b))
SCALAR(scalar_xor, SCC(a ^ b, a ^ b))
SCALAR(scalar_shl, SCC(a << b % 32, a << b % 32))
SCALAR(scalar_shr, SCC(a >> b % 32, a >> b % 32))
SCALAR(scalar_sar, SCC(floor((double)x / (double)((int64_t)1 << b % 32)) < 0
                           ? (int64_t)floor((double)x / (double)((int64_t)1 << b % 32))
                           : x >> b % 32,
                       x >> b % 32))
SCALAR(scalar_bfe, SCC(a / 64 % 8, a / 64 % 8))
SCALAR(scalar_min, SCC(x < y ? x : y, x < y))
SCALAR(scalar_max, SCC(x > y ? x : y, x > y))
SCALAR(scalar_bfe_i, SCC((int32_t)(a << 23) >> 29, a / 64 % 8))
SCALAR(scalar_byte, SCC((int8_t)a, 1))
static uint32_t mirrored(uint32_t x)
{
    uint32_t y = 0;
    for (int i = 0; i < 32; i++) y = y << 1 | (x >> i & 1);
    return y;
}
SCALAR(scalar_mirrored, SCC(mirrored(a), 1))
SCALAR(scalar_half, SCC((int16_t)a, 1))
SCALAR(scalar_times_8, SCC((uint64_t)a * 8 + b, (uint64_t)a * 8 + b > 0xffffffffu))
SCALAR(scalar_nor, SCC(~(a | b), ~(a | b)))
SCALAR(scalar_bit, SCC(a >> b % 32 & 1, a >> b % 32 & 1))
SCALAR(scalar_gt_k, SCC(x > -5, x > -5))
SCALAR(scalar_lt_k, SCC(x < -5, x < -5))
SCALAR(scalar_gt_ku, SCC(a > 0xfffb, a > 0xfffb))
SCALAR(scalar_lt_ku, SCC(a < 0xfffb, a < 0xfffb))
SCALAR(scalar_select, SCC(a, 1))
SCALAR(scalar_eq, SCC(a == b, a == b))
SCALAR(scalar_lg, SCC(a != b, a != b))
SCALAR(scalar_lt, SCC(a < b, a < b))
SCALAR(scalar_ge, SCC(a >= b, a >= b))
SCALAR(scalar_lt_i, SCC(x < y, x < y))
SCALAR(scalar_le_i, SCC(x <= y, x <= y))
SCALAR(scalar_gt_i, SCC(x > y, x > y))
SCALAR(scalar_ge_i, SCC(x >= y, x >= y))
SCALAR(scalar_orn2, SCC(a | ~b, a | ~b))
SCALAR(scalar_andn2, SCC(a & ~b, a & ~b))
SCALAR(scalar_shl_64, SCC((a | (uint64_t)b << 32) << 9 >> 32, (a | (uint64_t)b << 32) << 9))
SCALAR(scalar_shr_64, SCC((a | (uint64_t)b << 32) >> 9, (a | (uint64_t)b << 32) >> 9))
#define SCALAR_COMPARED(name) "s_cmp_" name " s6, s7\ns_cselect_b32 s8, 1, 0"
/* SCC is 1 before, but where an instruction writes it. */
static const scalar_row scalar_rows[] = {
    { "s_mov_b32 s8, s6", scalar_mov },
    { "s_mov_b64 s[8:9], s[6:7]", scalar_mov },
    { "s_movk_i32 s8, 0xffb3", scalar_movk },
    { "s_not_b32 s8, s6", scalar_not },
    { "s_brev_b32 s8, s6", scalar_brev },
    { "s_mov_b32 s8, s6\ns_bitset1_b32 s8, s7", scalar_bitset },
    { "s_abs_i32 s8, s6", scalar_abs },
    { "s_add_i32 s8, s6, s7", scalar_add_i },
    { "s_mov_b32 s8, s6\ns_addk_i32 s8, 0xfffb", scalar_addk },
    { "s_sub_i32 s8, s6, s7", scalar_sub_i },
    { "s_add_u32 s8, s6, s7", scalar_add_u },
    { "s_addc_u32 s8, s6, s7", scalar_addc },
    { "s_mul_i32 s8, s6, s7", scalar_mul },
    { "s_mul_hi_u32 s8, s6, s7", scalar_mul_hi },
    { "s_mul_hi_i32 s8, s6, s7", scalar_mul_hi_i },
    { "s_and_b32 s8, s6, s7", scalar_and },
    { "s_or_b32 s8, s6, s7", scalar_or },
    { "s_xor_b32 s8, s6, s7", scalar_xor },
    { "s_lshl_b32 s8, s6, s7", scalar_shl },
    { "s_lshr_b32 s8, s6, s7", scalar_shr },
    { "s_ashr_i32 s8, s6, s7", scalar_sar },
    { "s_bfe_u32 s8, s6, 0x30006", scalar_bfe },
    { "s_min_i32 s8, s6, s7", scalar_min },
    { "s_max_i32 s8, s6, s7", scalar_max },
    { "s_bfe_i32 s8, s6, 0x30006", scalar_bfe_i },
    { "s_sext_i32_i8 s8, s6", scalar_byte },
    { "s_sext_i32_i16 s8, s6", scalar_half },
    { "s_brev_b32 s8, s6", scalar_mirrored },
    { "s_lshl3_add_u32 s8, s6, s7", scalar_times_8 },
    { "s_mov_b32 s10, s7\ns_mov_b32 s11, -1\ns_nor_b64 s[8:9], s[6:7], s[10:11]", scalar_nor },
    { "s_bitcmp1_b32 s6, s7\ns_cselect_b32 s8, 1, 0", scalar_bit },
    { "s_cmpk_gt_i32 s6, 0xfffb\ns_cselect_b32 s8, 1, 0", scalar_gt_k },
    { "s_cmpk_lt_i32 s6, 0xfffb\ns_cselect_b32 s8, 1, 0", scalar_lt_k },
    { "s_cmpk_gt_u32 s6, 0xfffb\ns_cselect_b32 s8, 1, 0", scalar_gt_ku },
    { "s_cmpk_lt_u32 s6, 0xfffb\ns_cselect_b32 s8, 1, 0", scalar_lt_ku },
    { "s_cselect_b32 s8, s6, s7", scalar_select },
    { "s_cselect_b64 s[8:9], s[6:7], 0", scalar_select },
    { SCALAR_COMPARED("eq_u32"), scalar_eq },
    { SCALAR_COMPARED("lg_u32"), scalar_lg },
    { SCALAR_COMPARED("lt_u32"), scalar_lt },
    { SCALAR_COMPARED("ge_u32"), scalar_ge },
    { SCALAR_COMPARED("lt_i32"), scalar_lt_i },
    { SCALAR_COMPARED("le_i32"), scalar_le_i },
    { SCALAR_COMPARED("gt_i32"), scalar_gt_i },
    { SCALAR_COMPARED("ge_i32"), scalar_ge_i },
    { "s_mov_b32 s10, s7\ns_mov_b32 s11, 0\ns_mov_b32 s7, 0\ns_cmp_lg_u64 s[6:7], s[10:11]\ns_cselect_b32 s8, 1, 0",
      scalar_lg },
    { "s_mov_b32 s10, s7\ns_mov_b32 s11, -1\ns_mov_b32 s7, 0\ns_orn2_b64 s[8:9], s[6:7], s[10:11]", scalar_orn2 },
    { "s_mov_b32 s10, s7\ns_mov_b32 s11, -1\ns_mov_b32 s7, 0\ns_andn2_b64 s[8:9], s[6:7], s[10:11]", scalar_andn2 },
    { "s_mov_b32 s10, s7\ns_mov_b32 s11, 0\ns_mov_b32 s7, 0\ns_and_b64 s[8:9], s[6:7], s[10:11]", scalar_and },
    { "s_mov_b32 s10, s7\ns_mov_b32 s11, 0\ns_mov_b32 s7, 0\ns_or_b64 s[8:9], s[6:7], s[10:11]", scalar_or },
    { "s_mov_b32 s10, s7\ns_mov_b32 s11, 0\ns_mov_b32 s7, 0\ns_xor_b64 s[8:9], s[6:7], s[10:11]", scalar_xor },
    { "s_lshr_b64 s[8:9], s[6:7], 9", scalar_shr_64 },
    { "s_lshl_b64 s[10:11], s[6:7], 9\ns_cselect_b32 s12, 1, 0\ns_mov_b32 s8, s11\ns_cmp_eq_u32 s12, 1",
      scalar_shl_64 },
    /* EXEC changes, and comes back */
    { "s_mov_b32 s10, s6\ns_mov_b32 s11, s7\ns_and_saveexec_b64 s[12:13], s[10:11]\ns_mov_b32 s8, exec_lo\ns_mov_b64 "
      "exec, s[12:13]\n"
      "s_cmp_eq_u32 s12, -1",
      scalar_mov },
    { "s_or_saveexec_b64 s[12:13], s[6:7]\ns_not_b32 s8, exec_lo\ns_or_b32 s8, s8, s6\ns_mov_b64 exec, "
      "s[12:13]\ns_cmp_eq_u32 s12, -1",
      scalar_mov },
    { "s_andn2_saveexec_b64 s[12:13], exec\ns_or_b32 s8, exec_lo, s6\ns_mov_b64 exec, s[12:13]\ns_cmp_eq_u32 s12, -1",
      scalar_mov },
};

TEST(scalar_instructions_are_right)
{
    for (size_t r = 0; r < sizeof scalar_rows / sizeof *scalar_rows; r++) {
        char body[800];
        snprintf(
            body, sizeof body,
            "s_load_dwordx4 s[4:7], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n%s\ns_cselect_b32 s9, 1, 0\nv_mov_b32_e32 v2, "
            "s8\n"
            "v_mov_b32_e32 v3, s9\nv_lshlrev_b32_e32 v9, 3, v0\nglobal_store_dwordx2 v9, v[2:3], s[4:5]\ns_endpgm\n",
            scalar_rows[r].text);
        gcn_text text = { .body = body, .pointers = 1, .words = 2 };
        for (int round = 0; round < 30; round++) {
            uint32_t  out[128];
            gcn_trial trial = { .buffers = { out }, .count = { 128 } };
            fill(trial.arguments, 2);
            if (round % 5 == 0) trial.arguments[1] = trial.arguments[0];
            uint64_t    wanted = scalar_rows[r].wanted(trial.arguments[0], trial.arguments[1]);
            const char *error = gcn_try(&text, &trial);
            if (*error) fail_msg("%s", error);
            if (out[2] != (uint32_t)wanted || out[3] != wanted >> 32)
                fail_msg("%s: %08x %08x gives %08x, SCC %u; wanted %08x, %u", scalar_rows[r].text, trial.arguments[0],
                         trial.arguments[1], out[2], out[3], (uint32_t)wanted, (uint32_t)(wanted >> 32));
        }
    }
}

/* --- across lanes, parts of a wave --------------------------------------------------------------- */

TEST(lanes_exchange_values)
{
    static const char *const texts[] = {
        "v_mov_b32_dpp v4, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
        "v_mov_b32_dpp v4, v1 row_ror:4 row_mask:0xf bank_mask:0xf",
        "v_xor_b32_e32 v5, 32, v0\nv_lshlrev_b32_e32 v5, 2, v5\nds_bpermute_b32 v4, v5, v1\ns_waitcnt lgkmcnt(0)",
        "v_readfirstlane_b32 s9, v1\nv_mov_b32_e32 v4, s9",
    };
    for (int t = 0; t < 4; t++) {
        char     body[800];
        uint32_t in[192], out[64];
        snprintf(body, sizeof body, HEAD "%s" TAIL, texts[t]);
        gcn_text  text = { .body = body, .pointers = 2 };
        gcn_trial trial = { .buffers = { in, out }, .count = { 192, 64 } };
        fill(in, 192);
        const char *error = gcn_try(&text, &trial);
        if (*error) fail_msg("%s", error);
        for (int i = 0; i < 64; i++)
            assert_int_equal(out[i], in[t == 0 ? i ^ 1 : t == 1 ? i / 16 * 16 + (i + 12) % 16 : t == 2 ? i ^ 32 : 0]);
    }
}

/* A lane of a register, also where EXEC is off; the other lanes stay. */
TEST(one_lane_is_read_and_written)
{
    static const char *const body = HEAD "v_mov_b32_e32 v4, v1\ns_mov_b64 s[12:13], exec\ns_mov_b64 exec, 1\n"
                                         "v_readlane_b32 s9, v1, 5\ns_movk_i32 s10, 0x29\n"
                                         "v_writelane_b32 v4, s9, 7\nv_writelane_b32 v4, 3, s10\n"
                                         "s_mov_b64 exec, s[12:13]" TAIL;
    uint32_t                 in[192], out[64];
    gcn_text                 text = { .body = body, .pointers = 2 };
    gcn_trial                trial = { .buffers = { in, out }, .count = { 192, 64 } };
    fill(in, 192);
    const char *error = gcn_try(&text, &trial);
    if (*error) fail_msg("%s", error);
    for (uint32_t i = 0; i < 64; i++) assert_int_equal(out[i], i == 7 ? in[5] : i == 0x29 ? 3 : in[i]);
}

/* Lanes without EXEC keep what they have; a block of 100 threads has a wave and a part. */
TEST(only_active_lanes_change)
{
    uint32_t  out[128] = { 0 };
    gcn_text  text = { .body = "s_load_dwordx2 s[4:5], s[0:1], 0x0\nv_lshlrev_b32_e32 v9, 2, v0\nv_mov_b32_e32 v4, 7\n"
                                "v_cmp_gt_u32_e32 vcc, 50, v0\ns_and_saveexec_b64 s[6:7], vcc\ns_cbranch_execz .L1\n"
                                "v_add_u32_e32 v4, v4, v0\n.L1:\ns_or_b64 exec, exec, s[6:7]\ns_waitcnt lgkmcnt(0)\n"
                                "global_store_dword v9, v4, s[4:5]\ns_endpgm\n",
                       .pointers = 1 };
    gcn_trial trial = { .buffers = { out }, .count = { 128 }, .threads = 100 };
    assert_string_equal(gcn_try(&text, &trial), "");
    for (uint32_t i = 0; i < 128; i++) assert_int_equal(out[i], i < 50 ? 7 + i : i < 100 ? 7 : 0);
    assert_int_equal(trial.counts.written_bytes, 400);
    assert_int_equal(trial.counts.written_sectors, 7);
}
