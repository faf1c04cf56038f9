/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreter's rules, each by a text that keeps it and one that does not: waits, races, bounds, barriers,
 * arguments, and what a text may say at all. */
#include "support/test.h"

#include "machine/texts.h"

/* s[4:5], s[6:7]: the pointers; v9: 4 times the thread. */
#define BEGIN "s_load_dwordx4 s[4:7], s[0:1], 0x0\nv_lshlrev_b32_e32 v9, 2, v0\ns_waitcnt lgkmcnt(0)\n"
#define END "global_store_dword v9, v1, s[6:7]\ns_endpgm\n"
#define STOP "s_endpgm\n"
#define LOAD(v) "global_load_dword " v ", v9, s[4:5]\n"
#define STORE "global_store_dword v9, v0, s[6:7]\n"
#define WRITE "ds_write_b32 v9, v0\n"
#define READ(v) "ds_read_b32 " v ", v9\n"
#define READ_OTHER "ds_read_b32 v1, v10\n"
#define BARRIER "s_barrier\n"
#define LOADED "s_waitcnt vmcnt(0)\n"
#define LANDED "s_waitcnt lgkmcnt(0)\n"
#define LOADED_BUT_1 "s_waitcnt vmcnt(1)\n"
#define LANDED_BUT_1 "s_waitcnt lgkmcnt(1)\n"
#define BOTH "s_waitcnt vmcnt(0) lgkmcnt(0)\n"
#define OTHER_WAVE "v_xor_b32_e32 v10, 0x100, v9\n" /* the place of the thread that many bytes away: another wave's */
#define NEXT_LANE "v_xor_b32_e32 v10, 4, v9\n"

#define HALVES "v_and_b32_e32 v1, 63, v0\nv_lshlrev_b32_e32 v10, 2, v1\n" /* v10: the place of the lane */

typedef struct rule {
    const char *what, *body, *wanted; /* part of the error; "": none */
    int         lds, threads, blocks;
    const char *arch;
} rule;

static const rule rules[] = {
    { "a load's wait", BEGIN LOAD("v1") LOADED END, .wanted = "" },
    { "a load without a wait", BEGIN LOAD("v1") END,
      .wanted = "line 8 (no source:0): global_store_dword v9, v1, s[6:7]: v1 before the wait" },
    { "the older of two loads", BEGIN LOAD("v1") LOAD("v2") LOADED_BUT_1 END, .wanted = "" },
    { "the younger of two", BEGIN LOAD("v2") LOAD("v1") LOADED_BUT_1 END, .wanted = "v1 before the wait" },
    { "an owed register is written", BEGIN LOAD("v1") "v_mov_b32_e32 v1, 0\n" LOADED END,
      .wanted = "v1 before the wait" },
    { "a register is loaded again", BEGIN NEXT_LANE "global_load_dword v1, v10, s[4:5]\n" LOAD("v1") LOADED END,
      .wanted = "" },
    { "the first of two loads of a register", BEGIN LOAD("v1") LOAD("v1") LOADED_BUT_1 END,
      .wanted = "v1 before the wait" },
    { "an address that is loaded", BEGIN LOAD("v1") "global_load_dword v1, v1, s[4:5]\n" LOADED END,
      .wanted = "v1 before the wait" },
    { "a register is read from LDS while it is loaded", BEGIN WRITE LOAD("v1") READ("v1") BOTH END,
      "v1 before the wait", .lds = 256 },
    { "and loaded while it is read from LDS", BEGIN WRITE READ("v1") LOAD("v1") BOTH END, "v1 before the wait",
      .lds = 256 },
    { "the wrong counter", BEGIN LOAD("v1") LANDED END, .wanted = "v1 before the wait" },
    { "a scalar load without a wait", "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_add_u32 s6, s5, 4\n" STOP,
      .wanted = "s5 before the wait" },
    { "scalar loads come in any order",
      "s_load_dword s4, s[0:1], 0x0\ns_load_dword s5, s[0:1], 0x4\n" LANDED_BUT_1 "s_mov_b32 s6, s4\n" STOP,
      .wanted = "s4 before the wait" },
    { "a branch on VCC that is owed", "s_load_dwordx2 vcc, s[0:1], 0x0\ns_cbranch_vccnz .L\n.L:\n" STOP,
      .wanted = "s106 before the wait" },
    { "LDS reads come in order", BEGIN WRITE READ("v1") READ("v2") LANDED_BUT_1 END, "", .lds = 256 },
    { "the younger of two LDS reads", BEGIN WRITE READ("v2") READ("v1") LANDED_BUT_1 END, "v1 before the wait",
      .lds = 256 },
    { "three words of LDS", BEGIN WRITE "v_mov_b32_e32 v10, 16\nds_read_b96 v[1:3], v10\n" LANDED END, "", .lds = 256 },
    { "three words that are not aligned", BEGIN WRITE "v_mov_b32_e32 v10, 4\nds_read_b96 v[1:3], v10\n" LANDED END,
      "misaligned LDS address 4 for 12 bytes", .lds = 256 },
    { "two words of LDS, far apart",
      BEGIN WRITE "ds_write_b32 v9, v0 offset:512\nds_read2st64_b32 v[1:2], v9 offset1:2\n" LANDED END, "",
      .lds = 768 },
    { "of which one is not there", BEGIN WRITE "ds_read2st64_b32 v[1:2], v9 offset1:2\n" LANDED END,
      "4 bytes at 512 of 512 bytes of LDS", .lds = 512 },
    { "two pairs of words, far apart",
      BEGIN                                                                                                    WRITE
      "ds_write_b32 v9, v0 offset:1024\nv_mov_b32_e32 v10, 8\nds_read2st64_b64 v[1:4], v10 offset1:2\n" LANDED END,
      "", .lds = 1280 },
    { "of which the second one is not there",
      BEGIN WRITE "v_mov_b32_e32 v10, 8\nds_read2st64_b64 v[1:4], v10 offset1:2\n" LANDED END,
      "8 bytes at 1032 of 1032 bytes of LDS", .lds = 1032 },
    { "a permutation without a wait", BEGIN "ds_bpermute_b32 v1, v9, v0\n" END, .wanted = "v1 before the wait" },
    { "a store keeps its data",
      BEGIN "v_mov_b32_e32 v1, 5\nglobal_store_dword v9, v1, s[6:7]\nv_mov_b32_e32 v1, 6\n" STOP, .wanted = "" },
    /* LDS */
    { "a barrier between waves", BEGIN OTHER_WAVE WRITE LANDED BARRIER READ_OTHER LANDED END, "", .lds = 512,
      .threads = 128 },
    { "no barrier", BEGIN OTHER_WAVE WRITE LANDED READ_OTHER LANDED END, "race on LDS byte", .lds = 512,
      .threads = 128 },
    { "no wait before the barrier", BEGIN OTHER_WAVE WRITE BARRIER READ_OTHER LANDED END,
      "s_barrier: no wait before it for what is written to the LDS (line 8: ds_write_b32 v9, v0)", .lds = 512,
      .threads = 128 },
    { "read, then overwritten by others", BEGIN OTHER_WAVE WRITE LANDED BARRIER READ_OTHER LANDED WRITE END,
      "no barrier before lane", .lds = 512, .threads = 128 },
    { "lanes of a wave are in order", BEGIN NEXT_LANE WRITE READ_OTHER LANDED END, "", .lds = 512, .threads = 128 },
    { "halves of a word are bytes of their own",
      BEGIN
      "v_lshlrev_b32_e32 v10, 1, v0\nds_write_b16 v10, v0\nds_write_b16_d16_hi v10, v0 offset:256\n" LANDED BARRIER
      "v_mov_b32_e32 v1, 0\n" END,
      "", .lds = 512, .threads = 128 },
    { "out of the LDS", BEGIN "ds_write_b32 v9, v0 offset:4\n" END, "out of bounds: 4 bytes at 256 of 256 bytes of LDS",
      .lds = 256 },
    { "before the LDS", BEGIN "v_mov_b32_e32 v10, -4\nds_write_b32 v10, v0\n" END,
      "out of bounds: 4 bytes at 4294967292 of 256 bytes of LDS", .lds = 256 },
    { "misaligned in the LDS", BEGIN "v_mov_b32_e32 v1, 0\nds_read_b64 v[2:3], v9\n" LANDED END,
      "misaligned LDS address 4 for 8 bytes", .lds = 1024 },
    /* global memory */
    { "behind the end", BEGIN "global_load_dword v1, v9, s[4:5] offset:4\n" LOADED END,
      .wanted = "out of bounds: 4 bytes at" },
    { "before the beginning", BEGIN "global_load_dword v1, v9, s[4:5] offset:-4\n" LOADED END,
      .wanted = "out of bounds: 4 bytes at" },
    { "misaligned",
      BEGIN "v_mov_b32_e32 v1, 0\nv_lshlrev_b32_e32 v10, 0, v0\nglobal_load_dword v1, v10, s[4:5]\n" LOADED END,
      .wanted = "misaligned address" },
    { "blocks write the same place", BEGIN "v_mov_b32_e32 v1, 0\n" END, "by another block", .blocks = 2 },
    { "waves exchange through memory",
      BEGIN OTHER_WAVE STORE LOADED BARRIER "global_load_dword v1, v10, s[6:7]\n" LOADED STOP, "", .threads = 128 },
    { "no wait for the store", BEGIN OTHER_WAVE STORE BARRIER "global_load_dword v1, v10, s[6:7]\n" LOADED STOP,
      "by another wave of the block", .threads = 128 },
    { "no barrier in between", BEGIN OTHER_WAVE STORE LOADED "global_load_dword v1, v10, s[6:7]\n" LOADED STOP,
      "by another wave of the block", .threads = 128 },
    { "waves write halves of their own",
      BEGIN HALVES "v_lshrrev_b32_e32 v1, 6, v0\nv_lshlrev_b32_e32 v1, 1, v1\nv_add_u32_e32 v10, v10, "
                   "v1\nglobal_store_short v10, v0, s[4:5]\n" STOP,
      "", .threads = 128 },
    { "waves write the same halves", BEGIN HALVES "global_store_short v10, v0, s[4:5]\n" STOP,
      "by another wave of the block", .threads = 128 },
    { "past the scalar cache", BEGIN STORE LOADED "s_load_dword s8, s[6:7], 0x0\n" LANDED STOP,
      .wanted = "past the scalar cache" },
    { "lanes write one place, the same", BEGIN "v_mov_b32_e32 v9, 0\nv_mov_b32_e32 v1, 3\n" END, .wanted = "" },
    { "lanes write one place, the same upper halves",
      BEGIN "v_or_b32_e32 v1, 0x70000, v0\nv_mov_b32_e32 v9, 0\nglobal_store_byte_d16_hi v9, v1, s[4:5]\n" STOP,
      .wanted = "" },
    { "lanes write one place", BEGIN "v_and_b32_e32 v9, 60, v9\nv_mov_b32_e32 v1, v0\n" END,
      .wanted = "lanes 0 and 16 write different values" },
    { "lanes write backwards", BEGIN "v_sub_u32_e32 v9, 0xfc, v9\nv_mov_b32_e32 v1, v0\n" END, .wanted = "" },
    { "every second lane writes a place, from behind",
      BEGIN "v_and_b32_e32 v1, 1, v0\nv_lshlrev_b32_e32 v9, 2, v1\nv_sub_u32_e32 v9, 64, v9\n" END, .wanted = "" },
    /* waves */
    { "divergence", BEGIN "v_cmp_gt_u32_e32 vcc, 32, v0\ns_and_saveexec_b64 s[8:9], vcc\n" BARRIER STOP,
      "divergence: of wave 0, lane 32 does not come to the barrier", .threads = 128 },
    { "an end before a barrier",
      BEGIN "v_readfirstlane_b32 s8, v0\ns_cmp_lg_u32 s8, 0\ns_cbranch_scc1 .L\n" BARRIER ".L:\n" STOP,
      "wave 1 ended while wave 0 waits at a barrier", .threads = 128 },
    { "no end", BEGIN "s_nop 0\n", .wanted = "the wave ran past its end" },
    /* what a text may say */
    { "an instruction", "v_wait_and_see v0\n", .wanted = "line 4: no such instruction: v_wait_and_see v0" },
    { "a modifier", "v_add_f32_e64 v1, v0, v0 clamp\n", .wanted = "modifier clamp is not known" },
    { "another's modifier", "v_add_f32_e64 v1, v0, v0 offset:4\n", .wanted = "modifier offset:4 is not known" },
    { "a list that is none", "v_pk_add_f32 v[2:3], v[2:3], v[2:3] neg_lo:[0,7]\n",
      .wanted = "modifier neg_lo:[0,7] is not known" },
    { "lanes of a row that are left out", "v_mov_b32_dpp v1, v0 row_ror:4 row_mask:0x3 bank_mask:0xf\n",
      .wanted = "modifier row_mask:0x3 is not known" },
    { "lanes from nowhere", "v_mov_b32_dpp v1, v0 row_mask:0xf bank_mask:0xf\n", .wanted = "which lanes?" },
    { "an operand", "v_add_u32_e32 v1, v0, ttmp3\n", .wanted = "operand 3 is not known" },
    { "a negative integer", "v_add_u32_e32 v1, v0, -v0\n", .wanted = "operand 3 is not known" },
    { "registers of another size", "v_lshl_add_u64 v[2:3], v[2:4], 0, v[2:3]\n", .wanted = "operand 2 is not known" },
    { "an operand too few", "v_add_u32_e32 v1, v0\n", .wanted = "an operand is missing" },
    { "an operand too many", "v_add_u32_e32 v1, v0, v0, v0\n", .wanted = "modifier v0 is not known" },
    { "an address without a base", "global_load_dword v1, v0, off\n", .wanted = "the address and its base do not fit" },
    { "a wait for something else", "s_waitcnt expcnt(0)\n", .wanted = "waits for what?" },
    { "a wait for nothing", "s_waitcnt\n", .wanted = "waits for what?" },
    { "a label", "s_branch .Lnowhere\n", .wanted = "no such label: s_branch .Lnowhere" },
    { "a directive", ".long 0\n", .wanted = "no such directive: .long 0" },
    { "registers that the kernel does not have", "v_mov_b32_e32 v64, v0\n",
      .wanted = "kernel k does not have these registers" },
    { "another device", STOP, "neither gfx942 nor gfx950", .arch = "gfx1100" },
    { "instructions of gfx950", "v_cvt_pk_bf16_f32 v1, v0, v0\n", .wanted = "gfx942 does not have" },
};

#define KEEP "v_mov_b32_e32 v1, v0\nscratch_store_dword off, v1, off offset:4\nv_mov_b32_e32 v1, 0\n"

/* What a compiler spills comes back; where and when it may be touched. */
TEST(spilled_registers_come_back)
{
    static const rule spills[] = {
        { .body = BEGIN KEEP "scratch_load_dword v1, off, off offset:4\ns_waitcnt vmcnt(0)\n" END, .wanted = "" },
        { .body = BEGIN KEEP "scratch_load_dword v1, off, off offset:4\n" END, .wanted = "v1 before the wait" },
        { .body = BEGIN "scratch_load_dwordx2 v[1:2], off, off offset:4\n" END,
          .wanted = "8 bytes at 4 of 8 bytes of scratch" },
        { .body = BEGIN "scratch_load_dword v1, v9, off\n" END, .wanted = "operand 2 is not known" },
        { .body = BEGIN "scratch_load_dword v1, off, s[4:5]\n" END, .wanted = "scratch at a place that is computed" },
    };
    setenv("TM_MACHINE_SPILLS", "1", 1);
    for (size_t i = 0; i < sizeof spills / sizeof spills[0]; i++) {
        gcn_text  text = { .body = spills[i].body, .pointers = 2 };
        uint32_t  in[64] = { 0 }, out[64] = { 0 };
        gcn_trial trial = { .buffers = { in, out }, .count = { 64, 64 } };
        text.more_metadata = "    .private_segment_fixed_size: 8\n    .wavefront_size: 64";
        const char *error = gcn_try(&text, &trial);
        if (*spills[i].wanted ? !strstr(error, spills[i].wanted) : *error)
            fail_msg("%d: \"%s\", wanted \"%s\"", (int)i, error, spills[i].wanted);
        for (uint32_t k = 0; k < 64 && !*spills[i].wanted; k++) assert_int_equal(out[k], k);
    }
    unsetenv("TM_MACHINE_SPILLS");
}

/* A rule that is kept is kept in all orders; one that is broken is named in the lazy one, waves in order. */
static void one_rule(const rule *r)
{
    gcn_text text = { .arch = r->arch, .body = r->body, .lds = r->lds, .pointers = 2 };
    size_t   count = r->threads ? (size_t)r->threads : 64;
    for (int order = 0; order < (*r->wanted ? 1 : 4); order++) {
        uint32_t  in[128] = { 0 }, out[128] = { 0 };
        gcn_trial trial = { .buffers = { in, out }, .count = { count, count }, .order = order };
        trial.threads = (uint32_t)r->threads;
        trial.blocks = (uint32_t)r->blocks;
        const char *error = gcn_try(&text, &trial);
        if (*r->wanted ? !strstr(error, r->wanted) : *error)
            fail_msg("%s: \"%s\", wanted \"%s\"", r->what, error, r->wanted);
    }
}

TEST(rules_are_kept_or_named)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) one_rule(&rules[i]);
}

/* --- arguments, descriptors ---------------------------------------------------------------------- */

#define STORE_FIRST(offset)                                                                                            \
    "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_load_dword s6, s[0:1], " offset "\nv_lshlrev_b32_e32 v9, 2, v0\n"           \
    "s_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v1, s6\nglobal_store_dword v9, v1, s[4:5]\ns_endpgm\n"

TEST(hidden_arguments_come_from_the_metadata)
{
    uint32_t  out[64];
    gcn_text  text = { .body = STORE_FIRST("0x10"), .pointers = 1, .words = 1, .hidden = true };
    gcn_trial trial = { .buffers = { out }, .count = { 64 }, .blocks = 1, .arguments = { 9 } };
    assert_string_equal(gcn_try(&text, &trial), "");
    assert_int_equal(out[0], 1); /* blocks */
    text.body = STORE_FIRST("0x1c");
    assert_string_equal(gcn_try(&text, &trial), "");
    assert_int_equal(out[0], 64 | 1 << 16); /* threads */
    text.body = STORE_FIRST("0x8");
    assert_string_equal(gcn_try(&text, &trial), "");
    assert_int_equal(out[0], 9);
    text.body = STORE_FIRST("0xc"); /* a gap */
    assert_non_null(
        strstr(gcn_try(&text, &trial), "bytes 12 to 15 of the arguments: the kernel's metadata has no argument there"));
    text.hidden = false;
    text.body = STORE_FIRST("0x10");
    assert_non_null(strstr(gcn_try(&text, &trial), "out of bounds"));
}

TEST(arguments_and_descriptors_must_fit)
{
    uint32_t  out[64];
    gcn_text  text = { .body = STORE_FIRST("0x8"), .pointers = 1, .words = 1 };
    gcn_trial trial = { .buffers = { out }, .count = { 64 }, .argument_bytes = 16 };
    assert_string_equal(gcn_try(&text, &trial), "k: 16 bytes of arguments, it takes 12");
    trial.argument_bytes = 0;
    trial.threads = 2048;
    assert_string_equal(gcn_try(&text, &trial), "k: 1024 threads a block at most, not 2048");
    trial.threads = 64;
    text.extra_bytes = 8;
    assert_string_equal(gcn_try(&text, &trial),
                        "kernel k: 24 bytes of arguments in its descriptor, 16 in its metadata");
    text.extra_bytes = 0;
    text.more_metadata = "    .private_segment_fixed_size: 16\n    .wavefront_size: 64";
    assert_string_equal(gcn_try(&text, &trial), "k: 16 bytes of scratch (spilled registers, arrays)");
    text.more_metadata = "    .wavefront_size: 32";
    assert_non_null(strstr(gcn_try(&text, &trial), "or waves are not of 64:     .wavefront_size: 32"));
    text.more_metadata = "";
    assert_string_equal(gcn_try(&text, &trial), "kernel k has no metadata");
    text.more_metadata = NULL;
    text.lds = 65540;
    assert_string_equal(gcn_try(&text, &trial), "k: 65540 bytes of LDS, there are 65536");
    text.arch = "gfx950";
    assert_string_equal(gcn_try(&text, &trial), "");
    text.body = "s_endpgm\n.amdhsa_kernel other\n.amdhsa_user_sgpr_dispatch_ptr 1\n.end_amdhsa_kernel\n";
    assert_non_null(
        strstr(gcn_try(&text, &trial), "kernel other: .amdhsa_user_sgpr_dispatch_ptr 1 is not known but as 0"));
}

/* --- what is not written is 0xff; what is counted ------------------------------------------------ */

/* Words 0, 4, 8 bytes and so on from the buffer's beginning, 100 bytes behind that of the first pointer: it has 80
 * bytes, and what lies beyond is 0. */
#define BUFFER_WORDS(bytes, stride, format)                                                                            \
    BEGIN "s_add_u32 s8, s4, 0x64\ns_addc_u32 s9, s5, " stride "\ns_mov_b32 s10, " bytes "\ns_mov_b32 s11, " format "\n"
#define LOAD_WORDS(more) "buffer_load_dword v1, v9, s[8:11], 0 offen" more "\ns_waitcnt vmcnt(0)\n"

TEST(buffers_end_in_zeros)
{
    uint32_t  in[64], out[64];
    gcn_text  text = { .pointers = 2 };
    gcn_trial trial = { .buffers = { in, out }, .count = { 64, 64 }, .blocks = 1, .threads = 64 };
    for (int i = 0; i < 64; i++) in[i] = 1000 + (uint32_t)i;
    for (int way = 0; way < 3; way++) {
        text.body = way == 0   ? BUFFER_WORDS("80", "0", "0x20000") LOAD_WORDS("") END
                    : way == 1 ? BUFFER_WORDS("80", "0", "0x20000") LOAD_WORDS(" offset:8") END
                               : BUFFER_WORDS("80", "0", "0x20000") "v_subrev_u32_e32 v9, 12, v9\n" LOAD_WORDS(
                                     "") "v_add_u32_e32 v9, 12, v9\n" END;
        assert_string_equal(gcn_try(&text, &trial), "");
        for (int i = 0; i < 64; i++) {
            int word = i + (way == 1 ? 2 : way == 2 ? -3 : 0);
            assert_int_equal(out[i], word < 0 || word >= 20 ? 0 : 1025 + word);
        }
    }
    text.body = BUFFER_WORDS("82", "0", "0x20000") LOAD_WORDS("") END;
    assert_non_null(strstr(gcn_try(&text, &trial), "lane 20: 4 bytes at 80, partly outside of the buffer's 82"));
    text.body = BUFFER_WORDS("0x200", "0", "0x20000") LOAD_WORDS("") END;
    assert_non_null(strstr(gcn_try(&text, &trial), "out of bounds"));
    text.body = BUFFER_WORDS("80", "0x40000", "0x20000") LOAD_WORDS("") END;
    assert_non_null(strstr(gcn_try(&text, &trial), "a buffer with a stride"));
    text.body = BUFFER_WORDS("80", "0", "0") LOAD_WORDS("") END;
    assert_non_null(strstr(gcn_try(&text, &trial), "of another format"));
    text.body = BUFFER_WORDS("80", "0", "0x20000") "global_load_dword v1, v9, s[4:5]\n" LOAD_WORDS("") END;
    assert_string_equal(gcn_try(&text, &trial), ""); /* they come in order */
    assert_int_equal(out[19], 1044);
    assert_int_equal(out[20], 0);
    text.body = BUFFER_WORDS("80", "0", "0x20000") "buffer_load_dword v1, v9, s[8:11], 0 offen\n" END;
    assert_non_null(strstr(gcn_try(&text, &trial), "v1 before the wait"));
    text.body = BUFFER_WORDS("80", "0", "0x20000") "buffer_load_dword v1, v9, s[8:11], 0\ns_waitcnt vmcnt(0)\n" END;
    assert_non_null(strstr(gcn_try(&text, &trial), "a buffer's offset is not in a register"));
}

TEST(nothing_is_zero_by_itself)
{
    static const char *const ways[] = { "", "ds_read_b32 v1, v9\ns_waitcnt lgkmcnt(0)\n", "v_mov_b32_e32 v1, s20\n",
                                        "v_accvgpr_read_b32 v1, a5\n",
                                        "global_load_dword v1, v9, s[4:5]\ns_waitcnt vmcnt(0)\n" };
    for (int i = 0; i < 5; i++) {
        char     body[400];
        uint32_t out[64] = { 0 };
        snprintf(body, sizeof body, BEGIN "%s" END, ways[i]);
        gcn_text  text = { .body = body, .pointers = 2, .lds = 256 };
        gcn_trial trial = { .buffers = { NULL, out }, .count = { 64, 64 } };
        assert_string_equal(gcn_try(&text, &trial), "");
        for (int lane = 0; lane < 64; lane++) assert_int_equal(out[lane], 0xffffffff);
    }
}

/* LDS reads of 4 bytes: one word a bank, all lanes one word, all words of one bank. */
TEST(bank_conflicts_are_counted)
{
    static const struct {
        const char *address;
        uint64_t    cycles;
    } reads[] = { { "v_lshlrev_b32_e32 v1, 2, v0\n", 2 },
                  { "v_mov_b32_e32 v1, 0\n", 2 },
                  { "v_lshlrev_b32_e32 v1, 7, v0\n", 64 },
                  { "v_lshlrev_b32_e32 v1, 3, v0\n", 4 } };
    for (int i = 0; i < 4; i++) {
        char body[200];
        snprintf(body, sizeof body, "%sds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)\ns_endpgm\n", reads[i].address);
        gcn_text  text = { .body = body, .lds = 8192 };
        gcn_trial trial = { .order = 0 };
        assert_string_equal(gcn_try(&text, &trial), "");
        assert_int_equal(trial.counts.shared_cycles, reads[i].cycles);
        assert_int_equal(trial.counts.shared_least, 2);
        assert_int_equal(trial.counts.instructions, 4);
        assert_int_equal(trial.counts.lanes, 256);
    }
}

/* --- what audits ask; memory --------------------------------------------------------------------- */

TEST(a_module_tells_what_it_has)
{
    char     error[MACHINE_ERROR_ROOM];
    gcn_text t = {
        .body =
            ".file 1 \"folder\" \"some/kernel.hip\"\n.loc 1 42 7\ns_load_dword s4, s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n"
            ".loc 1 43 1\ns_barrier\nv_mov_b32_e32 v1, v70\ns_endpgm\n",
        .words = 2,
        .lds = 64,
        .more_metadata = "    .vgpr_count: 80\n    .wavefront_size: 64"
    };
    char           *text = gcn_text_of(&t);
    machine_module *m = machine_load_gcn(text, error);
    free(text);
    assert_string_equal(error, "");
    assert_int_equal(machine_kernels(m), 1);
    const machine_kernel *k = machine_kernel_at(m, 0);
    assert_string_equal(k->name, "k");
    assert_int_equal(k->registers, 80);
    assert_int_equal(k->accumulators, 64);
    assert_int_equal(k->shared_bytes, 64);
    assert_int_equal(k->end - k->first, 5);
    int wait = machine_find(m, k->first, k->end), barrier = machine_find(m, wait + 1, k->end);
    assert_string_equal(machine_instruction_at(m, wait).text, "s_waitcnt lgkmcnt(0)");
    assert_int_equal(machine_instruction_at(m, wait).source_line, 42);
    assert_int_equal(machine_instruction_at(m, barrier).source_line, 43);
    assert_int_equal(machine_find(m, barrier + 1, k->end), -1);
    machine_memory *memory = machine_memory_new();
    machine_launch  launch = { "k", { 1, 1, 1 }, { 128, 1, 1 }, 0, "12345678", 8 };
    machine_order   order = { .skip = wait };
    assert_true(machine_run(m, memory, &launch, &order, NULL, error));
    assert_int_equal(machine_instruction_at(m, barrier).executed, 2);
    assert_int_equal(machine_instruction_at(m, wait).executed, 0);
    machine_memory_free(memory);
    machine_unload(m);
}

TEST(memory_keeps_pieces_apart)
{
    machine_memory *memory = machine_memory_new();
    uint64_t        a = machine_alloc(memory, 10000), b = machine_alloc(memory, 16);
    assert_non_null(machine_at(memory, a, 10000));
    assert_null(machine_at(memory, a, 10001));
    assert_null(machine_at(memory, a - 1, 1));
    assert_null(machine_at(memory, b + 16, 1));
    assert_true(machine_piece(memory, a + 256, 100));
    assert_true(machine_piece(memory, a + 512, 100));
    assert_non_null(machine_at(memory, a + 256, 100));
    assert_null(machine_at(memory, a + 256, 101));
    assert_null(machine_at(memory, a + 300, 300));
    assert_true(machine_piece(memory, a + 256, 1000)); /* in their place */
    assert_non_null(machine_at(memory, a + 300, 300));
    machine_trace *t = machine_traces(memory, a + 4000, 90);
    t[0].writer = 7;
    assert_ptr_equal(machine_traces(memory, a + 4001, 1), t + 1);
    assert_null(machine_traces(memory, a + 4000, 100)); /* another page */
    machine_memory_launch(memory, 0);
    assert_int_equal(machine_traces(memory, a + 4000, 1)->writer, 0);
    assert_true(machine_release(memory, a));
    assert_false(machine_release(memory, a));
    assert_null(machine_at(memory, a, 1));
    machine_memory_free(memory);
}
