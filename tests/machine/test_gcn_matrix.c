/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix instructions with scales: which element of A is which k, and which lane's scale counts, as AMD's
 * composable_kernel has it (test/mx_mfma_op); what registers and formats may be. */
#include "support/test.h"

#include "machine/texts.h"

#include <string.h>

/* v10 .. v17: A, zeros but for the byte of one lane; v20 .. v27: B, all ones; v30 .. v45: C. v50: scales of A, in the
 * byte that op_sel tells: 2^(lane / 32 + 1); v51: of B 2^0. Row `row` of D goes to memory. */
static float result_of(const char *arch, bool four, int lane, int element, int byte, int row, int column)
{
    char     body[3000];
    uint32_t out[64] = { 0 };
    unsigned one = four ? 2 : 0x38, ones = four ? 0x22222222 : 0x38383838;
    int      n = 0, in_word = four ? 8 : 4, words = four ? 4 : 8;
#define PUT(...) n += snprintf(body + n, sizeof body - (size_t)n, __VA_ARGS__)
    PUT("s_load_dwordx2 s[4:5], s[0:1], 0x0\nv_lshlrev_b32_e32 v9, 2, v0\ns_waitcnt lgkmcnt(0)\n");
    for (int i = 0; i < 8; i++) PUT("v_mov_b32_e32 v%d, 0\nv_mov_b32_e32 v%d, %#x\n", 10 + i, 20 + i, ones);
    for (int i = 0; i < 16; i++) PUT("v_mov_b32_e32 v%d, 0\n", 30 + i);
    PUT("v_mov_b32_e32 v1, %#x\nv_cmp_eq_u32_e32 vcc, %d, v0\nv_cndmask_b32_e32 v%d, 0, v1, vcc\n",
        one << (32 / in_word * (element % in_word)), lane, 10 + element / in_word);
    PUT("v_lshrrev_b32_e32 v50, 5, v0\nv_add_u32_e32 v50, 0x80, v50\nv_lshlrev_b32_e32 v50, %d, v50\n", 8 * byte);
    PUT("v_mov_b32_e32 v51, 0x7f\n");
    PUT("v_mfma_scale_f32_32x32x64_f8f6f4 v[30:45], v[10:%d], v[20:%d], v[30:45], v50, v51 op_sel:[%d,0,0] "
        "op_sel_hi:[%d,0,0]%s\n",
        9 + words, 19 + words, byte & 1, byte >> 1, four ? " cbsz:4 blgp:4" : "");
    PUT("global_store_dword v9, v%d, s[4:5]\ns_endpgm\n", 30 + row / 8 * 4 + row % 4);
#undef PUT
    gcn_text  text = { .arch = arch, .body = body, .pointers = 1 };
    gcn_trial trial = { .buffers = { out }, .count = { 64 } };
    assert_string_equal(gcn_try(&text, &trial), "");
    float d;
    memcpy(&d, &out[32 * (row / 4 % 2) + column], sizeof d);
    return d;
}

/* Of codes of 8 bits the first 16 of both halves of the lanes are the first block, of codes of 4 bits a half has a
 * block. */
TEST(scales_are_those_of_blocks)
{
    for (int half = 0; half < 2; half++)
        for (int element = 0; element < 32; element += 5)
            for (int byte = 0; byte < 4; byte++) {
                int row = 7 + element % 20, lane = 32 * half + row;
                assert_true(result_of("gfx950", false, lane, element, byte, row, 3) == (element < 16 ? 2.0F : 4.0F));
                assert_true(result_of("gfx950", true, lane, element, byte, row, 30) == (half == 0 ? 2.0F : 4.0F));
                assert_true(result_of("gfx950", false, lane, element, byte, row - 1, 3) == 0);
            }
}

TEST(formats_and_registers_fit)
{
    static const struct {
        const char *arch, *of, *wanted;
    } wrong[] = { { "gfx942", "v[10:17], v[20:27], v[30:45], v50, v51 op_sel_hi:[0,0,0]", "gfx942 does not have" },
                  { "gfx950", "v[10:13], v[20:27], v[30:45], v50, v51 op_sel_hi:[0,0,0]",
                    "registers of other formats" },
                  { "gfx950", "v[10:17], v[20:27], v[30:45], v50, v51 op_sel_hi:[0,0,0] cbsz:4", "registers of other" },
                  { "gfx950", "v[10:17], v[20:27], v[30:45], v50, v51 op_sel_hi:[0,0,0] blgp:2", "registers of other" },
                  { "gfx950", "v[10:17], v[20:27], v[30:45], v50 op_sel_hi:[0,0,0]", "operand 6 is not known" } };
    for (int i = 0; i < (int)(sizeof wrong / sizeof *wrong); i++) {
        char body[200];
        snprintf(body, sizeof body, "v_mfma_scale_f32_32x32x64_f8f6f4 v[30:45], %s\ns_endpgm\n", wrong[i].of);
        gcn_text  text = { .arch = wrong[i].arch, .body = body };
        gcn_trial trial = { .order = 0 };
        assert_non_null(strstr(gcn_try(&text, &trial), wrong[i].wanted));
    }
}
