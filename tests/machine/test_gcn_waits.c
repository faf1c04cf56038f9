/* SPDX-License-Identifier: Apache-2.0 */
/* Waits that the code alone proves to be needless (gcn_waits.c), and those that it does not: whatever is proved, no
 * order of waves notices without it. */
#include "support/test.h"

#include "machine/texts.h"

typedef struct row {
    const char *what, *body;
    int         wait; /* which one of the text's waits and barriers */
    bool        proved, noticed;
} row;

/* s[4:5], s[6:7]: the pointers; s8, s9: words; v9: 4 times the thread. */
#define BEGIN "s_load_dwordx8 s[4:11], s[0:1], 0x0\nv_lshlrev_b32_e32 v9, 2, v0\ns_waitcnt lgkmcnt(0)\n"
#define LOAD(v) "global_load_dword " v ", v9, s[4:5]\n"
#define ALL "s_waitcnt vmcnt(0)\n"
#define USE(v) "v_add_u32_e32 v20, " v ", v9\n"
#define END "s_endpgm\n"
#define LOOP "s_mov_b32 s12, 3\n.L:\n"
#define WRITES_8 WRITE WRITE WRITE WRITE WRITE WRITE WRITE WRITE
#define WRITE "ds_write_b32 v9, v0\n"
#define WRITES_64 WRITES_8 WRITES_8 WRITES_8 WRITES_8 WRITES_8 WRITES_8 WRITES_8 WRITES_8
#define AGAIN "s_add_i32 s12, s12, -1\ns_cmp_lg_u32 s12, 0\ns_cbranch_scc1 .L\n"

static const row rows[] = {
    { "what is used", BEGIN LOAD("v1") ALL USE("v1") END, 1, false, true },
    { "scalars that are used", BEGIN LOAD("v1") ALL USE("v1") END, 0, false, true },
    { "a second wait for the same", BEGIN LOAD("v1") ALL ALL USE("v1") END, 2, true, false },
    { "each of two is enough", BEGIN LOAD("v1") ALL ALL USE("v1") END, 1, true, false },
    { "what nobody uses", BEGIN LOAD("v1") ALL END, 1, true, false },
    { "a register that is written anew", BEGIN LOAD("v1") ALL "v_mov_b32_e32 v1, 0\n" END, 1, false, true },
    { "a register that is loaded anew", BEGIN LOAD("v1") ALL LOAD("v1") ALL USE("v1") END, 1, true, false },
    { "by its own address", BEGIN LOAD("v1") ALL "global_load_dword v1, v1, s[6:7]\n" ALL END, 1, false, true },
    { "from LDS", BEGIN LOAD("v1") ALL "ds_read_b32 v1, v9\ns_waitcnt lgkmcnt(0)\n" END, 1, false, true },
    { "the younger is under way, the older is used later",
      BEGIN LOAD("v1") LOAD("v2") "s_waitcnt vmcnt(1)\n" LOAD("v3") "s_waitcnt vmcnt(1)\n" USE("v1") USE("v2") END, 1,
      true, false },
    { "the older is used at once",
      BEGIN LOAD("v1") LOAD("v2") "s_waitcnt vmcnt(1)\n" USE("v1") LOAD("v3") "s_waitcnt vmcnt(1)\n" USE("v2") END, 1,
      false, true },
    { "a count that is too high", BEGIN LOAD("v1") LOAD("v2") "s_waitcnt vmcnt(2)\n" ALL USE("v1") END, 1, true,
      false },
    { "the other counter", BEGIN LOAD("v1") "s_waitcnt lgkmcnt(0)\n" ALL USE("v1") END, 1, true, false },
    { "of both only one", BEGIN LOAD("v1") "s_waitcnt vmcnt(0) lgkmcnt(0)\n" USE("v1") END, 1, false, true },
    { "a branch around the next wait",
      BEGIN LOAD("v1") ALL "s_cmp_lg_u32 s8, 7\ns_cbranch_scc1 .N\n" ALL ".N:\n" USE("v1") END, 1, false, true },
    { "a branch around the load", BEGIN "s_cmp_lg_u32 s8, 7\ns_cbranch_scc0 .N\n" LOAD("v1") ".N:\n" ALL USE("v1") END,
      1, false, true },
    { "and to where it was waited for",
      BEGIN "s_cmp_lg_u32 s8, 7\ns_cbranch_scc0 .N\n" LOAD("v1") ALL ".N:\n" ALL USE("v1") END, 2, true, false },
    { "the load of the round before", BEGIN "v_mov_b32_e32 v1, 0\n" LOOP ALL USE("v1") LOAD("v1") AGAIN END, 1, false,
      true },
    { "which the end of the round waits for", BEGIN "v_mov_b32_e32 v1, 0\n" LOOP ALL USE("v1") LOAD("v1") ALL AGAIN END,
      1, true, false },
    { "a load in front of the loop, one in it",
      BEGIN LOAD("v1") LOOP LOAD("v2") "s_waitcnt vmcnt(1)\n" USE("v1") ALL USE("v2") AGAIN END, 1, false, true },
    { "by a count that younger ones exceed in the second round only",
      BEGIN LOAD("v1") LOOP "s_waitcnt vmcnt(1)\n" LOAD("v2")
          LOAD("v3") "s_cmp_lg_u32 s12, 3\n"
                     "s_cbranch_scc1 .N\ns_waitcnt vmcnt(2)\n" USE("v1") ".N:\n" AGAIN ALL END,
      1, true, false },
    { "scalar loads come in any order",
      "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_load_dword s8, s[0:1], 0x10\ns_waitcnt lgkmcnt(0)\n"
      "s_waitcnt lgkmcnt(1)\ns_add_u32 s6, s4, 4\n" END,
      0, false, true },
    { "also behind reads from LDS",
      BEGIN "ds_read_b32 v1, v9\ns_load_dword s13, s[0:1], 0x10\ns_waitcnt lgkmcnt(0)\ns_waitcnt lgkmcnt(1)\n" USE("v1")
          END,
      1, false, true },
    { "reads from LDS come in order",
      BEGIN "ds_read_b32 v1, v9\nds_read_b32 v2, v9\ns_waitcnt lgkmcnt(0)\ns_waitcnt lgkmcnt(1)\n" USE("v1") END, 1,
      true, false },
    { "a permutation", BEGIN "ds_bpermute_b32 v1, v9, v0\ns_waitcnt lgkmcnt(0)\n" USE("v1") END, 1, false, true },
    { "a write before a barrier",
      BEGIN "ds_write_b32 v9, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\nv_xor_b32_e32 v10, 0x100, v9\nds_read_b32 v1, v10\n"
            "s_waitcnt lgkmcnt(0)\n" END,
      1, false, true },
    { "a read before a barrier, and a write by another wave",
      BEGIN "v_xor_b32_e32 v10, 0x100, v9\nds_read_b32 v1, v10\ns_waitcnt lgkmcnt(0)\ns_barrier\nds_write_b32 v9, v0\n"
            "s_waitcnt lgkmcnt(0)\n" END,
      1, false, true },
    { "which was waited for", BEGIN "ds_write_b32 v9, v0\ns_waitcnt lgkmcnt(0)\ns_waitcnt lgkmcnt(0)\ns_barrier\n" END,
      2, true, false },
    { "a load that passes a barrier", BEGIN LOAD("v1") ALL "s_barrier\n" ALL USE("v1") END, 1, false, false },
    { "scalars that pass one",
      BEGIN "s_load_dword s13, s[0:1], 0x10\ns_waitcnt lgkmcnt(0)\ns_barrier\ns_waitcnt lgkmcnt(0)\n"
            "s_add_u32 s14, s13, 4\n" END,
      1, true, false },
    { "accesses of the other counter", BEGIN LOAD("v1") ALL "ds_write_b32 v9, v0\ns_waitcnt vmcnt(1)\n" USE("v1") END,
      1, false, true },
    { "code that is branched over", BEGIN LOAD("v1") ALL "s_branch .N\n" USE("v1") ".N:\n" END, 1, true, false },
    { "scalars in front of many writes",
      BEGIN "s_load_dword s13, s[0:1], 0x10\ns_waitcnt lgkmcnt(0)\n" WRITES_64 "s_add_u32 s14, s13, 4\n" END, 1, false,
      false },
    { "a barrier", BEGIN "s_barrier\n" END, 1, false, false },
};

static machine_module *module_of(const row *r)
{
    char            error[MACHINE_ERROR_ROOM];
    gcn_text        t = { .body = r->body, .pointers = 2, .words = 4, .lds = 1024 };
    char           *text = gcn_text_of(&t);
    machine_module *m = machine_load_gcn(text, error);
    free(text);
    if (!m) fail_msg("%s: %s", r->what, error);
    return m;
}

/* Two waves, without instruction `skip` (-1: with all): an error in some order? */
static bool is_wrong(machine_module *m, int skip, char error[MACHINE_ERROR_ROOM])
{
    machine_memory *memory = machine_memory_new();
    uint64_t        address[2] = { machine_alloc(memory, 1024), machine_alloc(memory, 1024) };
    unsigned char   arguments[32] = { 0 };
    bool            well = true;
    memcpy(arguments, address, sizeof address);
    for (int i = 0; i < 2; i++) memset(machine_at(memory, address[i], 1024), 0, 1024);
    machine_launch launch = { "k", { 1, 1, 1 }, { 128, 1, 1 }, 0, arguments, sizeof arguments };
    for (int waves = 0; waves < 3 && well; waves++) {
        machine_order order = { .waves = waves < 2 ? waves : 7, .skip = skip };
        well = machine_run(m, memory, &launch, &order, NULL, error);
    }
    machine_memory_free(memory);
    return !well;
}

TEST(the_code_alone_proves_what_nobody_can_notice)
{
    char error[MACHINE_ERROR_ROOM];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        machine_module       *m = module_of(&rows[i]);
        const machine_kernel *k = machine_kernel_at(m, 0);
        int                   at = machine_find(m, k->first, k->end);
        for (int n = 0; n < rows[i].wait; n++) at = machine_find(m, at + 1, k->end);
        assert_true(at >= 0);
        if (is_wrong(m, -1, error)) fail_msg("%s: %s", rows[i].what, error);
        if (machine_needless(m, at) != rows[i].proved) fail_msg("%s: proved? %d", rows[i].what, !rows[i].proved);
        if (is_wrong(m, at, error) != rows[i].noticed) fail_msg("%s: noticed? %d", rows[i].what, !rows[i].noticed);
        machine_unload(m);
    }
}
