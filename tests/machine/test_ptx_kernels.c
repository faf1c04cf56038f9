/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels as NVRTC compiles them, run by the interpreter of PTX in every order, against references in float64. */
#include "machine/audit_cases.h"
#include "machine/cases_nvidia.h"
#include "machine/compile_nvidia.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const machine_order orders[] = {
    { true, 0, false, -1 }, { false, 0, false, -1 }, { false, 1, false, -1 }, { false, 7, false, -1 }
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs a case in all orders: right in each, and the same bits. */
static void judge(machine_module *m, const machine_case *c, const char *arch)
{
    uint64_t bits = 0;
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
        machine_problem p;
        machine_counts  counts = { 0 };
        char            error[MACHINE_ERROR_ROOM];
        machine_problem_make(&p, c, arch);
        double begin = seconds();
        if (!machine_run(m, p.memory, &p.launch, &orders[o], o == 0 ? &counts : NULL, error))
            fail_msg("%s, %s, order %zu: %s", c->name, arch, o, error);
        double worst = machine_problem_error(&p), time = seconds() - begin;
        if (!(worst < 1)) fail_msg("%s, %s, order %zu: %g of the bound", c->name, arch, o, worst);
        if (o == 0) {
            bits = machine_problem_bits(&p);
            print_message("%s, %s: %.2f of the bound, %llu instructions, %.1f M/s, %.2f GFLOP/s\n", c->name, arch,
                          worst, (unsigned long long)counts.instructions, 1e-6 * (double)counts.instructions / time,
                          1e-9 * (double)counts.matrix_flops / time);
        }
        if (machine_problem_bits(&p) != bits) fail_msg("%s, %s: other bits in order %zu", c->name, arch, o);
        machine_problem_free(&p);
    }
}

/* The cases of a file, or the first of each kernel; those whose kernel the module has. */
static void judge_all(const machine_case *cases, const char *arch, const char *file, bool all)
{
    machine_module *m = machine_nvidia_module(file, arch);
    const char     *last = "";
    for (const machine_case *c = cases; c->name; c++) {
        bool there = false;
        for (int i = 0; i < machine_kernels(m); i++) there |= !strcmp(machine_kernel_at(m, i)->name, c->kernel);
        if (!strcmp(c->file, file) && there && (all || strcmp(last, c->kernel) != 0)) judge(m, c, arch);
        last = c->kernel;
    }
    machine_unload(m);
}

TEST(products_by_mma_sync)
{
    judge_all(machine_nvidia_cases, "sm_80", "gemm_mma.cu", true);
    judge_all(machine_nvidia_cases, "sm_90", "gemm_mma.cu", true);
}

TEST(products_by_wgmma)
{
    judge_all(machine_nvidia_cases, "sm_90a", "gemm_wgmma.cu", true);
}

TEST(attention_forward)
{
    judge_all(machine_nvidia_cases, "sm_90a", "flash_wgmma.cu", false);
}

FULL_TEST(all_shapes_on_all_architectures)
{
    judge_all(machine_nvidia_cases, "sm_90a", "flash_wgmma.cu", true);
    judge_all(machine_nvidia_cases, "sm_100a", "gemm_mma.cu", true);
}

/* --- planted mistakes: each is named, or gives wrong values where nothing is out of order */

typedef struct mistake {
    const char *name, *begins, *from, *to; /* a case that begins with a name; texts of its source */
    const char *words;                     /* of the error; NULL: wrong values */
} mistake;

static const mistake mistakes[] = {
    { "halves of an operand swapped", "gemm_bf16", "2 * (j & 1)", "2 * (~j & 1)", NULL },
    { "rows of an operand swapped", "gemm_bf16", "(lane & 7) + (lane >> 4) * 8", "(lane & 7) + (lane >> 3 & 1) * 8",
      NULL },
    { "lanes of the result swapped", "gemm_bf16", "(lane & 3) * 2;", "(~lane & 3) * 2;", NULL },
    { "no barrier behind the wait", "gemm_bf16", "wait_copies<1>();\n        barrier();", "wait_copies<1>();",
      "another thread|owes it" },
    { "a stage is loaded while it is read", "gemm_bf16", "there = SIDE * PITCH - here", "there = here",
      "shared memory" },
    { "one group too few is waited for", "gemm_bf16", "wait_copies<1>", "wait_copies<2>", "owes it" },
    { "a row too far", "gemm_bf16", "thread_id(); c < SIDE * 4", "thread_id() + 32; c < SIDE * 4 + 32",
      "multiple|inside|owes|has" },
    { "no fence behind the mbarriers' init", "gemm_wgmma", "fence_proxy();", "",
      "no fence is between the mbarrier's init" },
    { "no barrier behind the mbarriers' init", "gemm_wgmma", "    barrier();\n    if (leads) load",
      "    if (leads) load", "mbarrier" },
    { "the stride of a descriptor", "gemm_wgmma", "(1024 >> 4)", "(512 >> 4)", NULL },
    { "the swizzle of a descriptor", "gemm_wgmma", "(u64)1 << 62", "(u64)2 << 62", NULL },
    { "no swizzle in a descriptor", "gemm_wgmma", " | (u64)1 << 62", "", "without swizzle" },
    { "no wgmma.commit_group", "gemm_wgmma", "        commit_products();", "", "not waited for|still reads it" },
    { "one wgmma group too few", "gemm_wgmma", "wait_group.sync.aligned 0", "wait_group.sync.aligned 1",
      "not waited for|still reads it" },
    { "no wgmma.fence", "gemm_wgmma", "        fence_products();", "", "wgmma.fence" },
    { "half of the bytes expected", "gemm_wgmma", "expect(bar, 2 * TILE)", "expect(bar, TILE)", "owes it" },
    { "too many bytes expected", "gemm_wgmma", "expect(bar, 2 * TILE)", "expect(bar, 3 * TILE)", "nobody can go on" },
    { "nobody waits for TMA", "gemm_wgmma", "        await(bar + 8 * stage, k >> 1 & 1);", "",
      "owes it|may still read" },
    { "the other stage is waited for", "gemm_wgmma", "await(bar + 8 * stage", "await(bar + 8 * next", "" },
    { "the parity of a wait", "gemm_wgmma", "k >> 1 & 1", "~k >> 1 & 1", "" },
    { "tiles that are not aligned", "gemm_wgmma", "shared_address(tiles)", "shared_address(tiles) + 128",
      "not aligned to 1024" },
    { "K is given back too soon", "flash_wgmma 450", "        commit_products();\n        await(at.full_v",
      "        commit_products();\n        if (one) arrive(at.empty_k + 8 * stage);\n        await(at.full_v", "" },
    { "one warp too few gives back", "flash_wgmma", "init_barrier(at.empty_k + 8 * i, 8)",
      "init_barrier(at.empty_k + 8 * i, 7)", "" },
    { "the lead of a descriptor", "flash_wgmma", "x * 2048, BOX)", "x * 2048, 2 * BOX)", "" },
};

/* Is one of the words (`|` between them) in a text? */
static bool says(const char *text, const char *words)
{
    char copy[256], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", words);
    if (!*words) return true;
    for (char *word = strtok_r(copy, "|", &rest); word; word = strtok_r(NULL, "|", &rest))
        if (strstr(text, word)) return true;
    return false;
}

TEST(planted_mistakes_are_found)
{
    int missed = 0;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        const mistake      *mis = &mistakes[i];
        const machine_case *c = machine_nvidia_cases;
        while (strncmp(c->name, mis->begins, strlen(mis->begins)) != 0) c++;
        machine_module *m = machine_nvidia_changed(c->file, "sm_90a", mis->from, mis->to);
        for (size_t o = 1; o < sizeof orders / sizeof *orders; o++) {
            machine_problem p;
            char            error[MACHINE_ERROR_ROOM];
            machine_problem_make(&p, c, "sm_90a");
            bool ran = machine_run(m, p.memory, &p.launch, &orders[o], NULL, error);
            bool found = ran ? !mis->words && !(machine_problem_error(&p) < 1) : mis->words && says(error, mis->words);
            if (!found) print_error("%s, order %zu: %s\n", mis->name, o, ran ? "runs" : error);
            missed += !found;
            machine_problem_free(&p);
        }
        machine_unload(m);
    }
    assert_int_equal(missed, 0);
}

/* Mistakes of a launch: what its arguments say is not so. */
TEST(wrong_arguments_are_found)
{
    static const struct {
        const char *name, *words;
        int         argument; /* its place in the arguments, and what is added to it */
        int64_t     more;
    } rows[] = { { "an address that is not aligned", "not a multiple of 16", 8, 2 },
                 { "more columns than there are", "not inside one allocation", 28, 64 },
                 { "the result over an operand", "", 0, 0 } };
    machine_module *m = machine_nvidia_module("gemm_mma.cu", "sm_90");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        machine_problem p;
        char            error[MACHINE_ERROR_ROOM];
        machine_problem_make(&p, &machine_nvidia_cases[1], "sm_90"); /* two blocks */
        int64_t value;
        int     small;
        memcpy(&value, p.arguments + rows[i].argument, sizeof value);
        memcpy(&small, p.arguments + rows[i].argument, sizeof small);
        value += rows[i].more;
        small += (int)rows[i].more;
        if (rows[i].argument == 28)
            memcpy(p.arguments + 28, &small, sizeof small);
        else
            memcpy(p.arguments + rows[i].argument, &value, sizeof value);
        if (!rows[i].more) memcpy(p.arguments, p.arguments + 16, 8); /* C is B, which both blocks read */
        if (machine_run(m, p.memory, &p.launch, &orders[1], NULL, error) || !strstr(error, rows[i].words))
            fail_msg("%s: %s", rows[i].name, error[0] ? error : "runs");
        machine_problem_free(&p);
    }
    machine_unload(m);
}

/* Left out one at a time, all waits and barriers are missed by somebody, or in proved.txt. */
TEST(nothing_can_be_left_out)
{
    machine_unload(machine_nvidia_module("gemm_mma.cu", "sm_80"));
    assert_int_equal(machine_audit_cases("sm_80"), 0);
}

FULL_TEST(nothing_can_be_left_out_on_sm_90a_and_sm_100a)
{
    machine_unload(machine_nvidia_module("gemm_mma.cu", "sm_90a"));
    assert_int_equal(machine_audit_cases("sm_90a"), 0);
    assert_int_equal(machine_audit_cases("sm_100a"), 0);
}
