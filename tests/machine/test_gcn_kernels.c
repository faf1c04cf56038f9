/* SPDX-License-Identifier: Apache-2.0 */
/* Real kernels as clang compiles them for gfx942 and gfx950, executed: against float64, the same bits in all orders;
 * and planted mistakes, each of which must be named. */
#include "support/test.h"

#include "machine/cases.h"
#include "machine/compile_amd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static machine_module *module_of(const char *file, const char *arch)
{
    char  error[MACHINE_ERROR_ROOM];
    char *text = machine_compile_amd(file, arch, error);
    if (!text) fail_msg("%s", error);
    machine_module *module = machine_load_gcn(text, error);
    free(text);
    if (!module) fail_msg("%s for %s: %s", file, arch, error);
    return module;
}

static const machine_order orders[] = {
    { .eager = true, .skip = -1 },
    { .skip = -1 },
    { .waves = 1, .skip = -1 },
    { .waves = 7, .skip = -1 },
    { .eager = true, .waves = 11, .skip = -1 },
};

/* One case in `n` orders: right, and the same bits in all. Returns the launches that were right. */
static int run_case(machine_module *module, const machine_case *c, const char *arch, int n)
{
    uint64_t bits = 0;
    int      right = 0;
    for (int i = 0; i < n; i++) {
        char            error[MACHINE_ERROR_ROOM];
        machine_problem p;
        machine_problem_make(&p, c, arch);
        bool   ran = machine_run(module, p.memory, &p.launch, &orders[i], NULL, error);
        double e = ran ? machine_problem_error(&p) : 0;
        if (!ran) print_error("%s, %s, order %d: %s\n", c->name, arch, i, error);
        if (!(e < 1)) print_error("%s, %s, order %d: error %g of its bound\n", c->name, arch, i, e);
        if (i == 0) bits = machine_problem_bits(&p);
        if (bits != machine_problem_bits(&p)) print_error("%s, %s, order %d: other bits\n", c->name, arch, i);
        right += ran && e < 1 && bits == machine_problem_bits(&p);
        machine_problem_free(&p);
    }
    return right;
}

/* All cases, or the first of each kernel. */
static void run_cases(const machine_case *cases, const char *arch, bool all, int n)
{
    machine_module *module = NULL;
    const char     *file = "", *kernel = "";
    int             right = 0, wanted = 0;
    for (const machine_case *c = cases; c->name; c++) {
        if (!all && strcmp(kernel, c->kernel) == 0) continue;
        kernel = c->kernel;
        if (strcmp(file, c->file)) {
            machine_unload(module);
            module = module_of(file = c->file, arch);
        }
        right += run_case(module, c, arch, n);
        wanted += n;
    }
    machine_unload(module);
    printf("# %s: %d of %d launches right\n", arch, right, wanted);
    assert_int_equal(right, wanted);
}

TEST(matrix_kernels_are_right)
{
    if (machine_amd_missing()) skip();
    run_cases(machine_amd_cases, "gfx942", false, 4);
    run_cases(machine_amd_cases, "gfx950", false, 4);
}

FULL_TEST(matrix_kernels_are_right_in_all_shapes)
{
    if (machine_amd_missing()) skip();
    run_cases(machine_amd_cases, "gfx942", true, 5);
    run_cases(machine_amd_cases, "gfx950", true, 5);
}

/* Of gfx942, by another clang (TM_HIP_CLANG): a file that it cannot compile is named and counted. */
static int tell_other_clang(int argc, char **argv)
{
    char error[MACHINE_ERROR_ROOM];
    int  right = 0, wanted = 0, failed = 0;
    (void)argc, (void)argv;
    for (const machine_case *c = machine_amd_cases; c->name; c++) {
        char *text = machine_compile_amd(c->file, "gfx942", error);
        if (!text) {
            if (c == machine_amd_cases || strcmp(c[-1].file, c->file)) printf("%s\n", error), failed++;
            continue;
        }
        machine_module *module = machine_load_gcn(text, error);
        free(text);
        if (!module) fail_msg("%s: %s", c->file, error);
        right += run_case(module, c, "gfx942", 5);
        wanted += 5;
        machine_unload(module);
    }
    printf("%s for gfx942: %d of %d launches of tests/machine/kernels right, %d files not compiled\n",
           getenv("TM_HIP_CLANG"), right, wanted, failed);
    return right != wanted;
}

TM_TEST_ROLE("other-clang", tell_other_clang)
