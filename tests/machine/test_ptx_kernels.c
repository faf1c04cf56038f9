/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels as NVRTC compiles them, run by the interpreter of PTX in every order, against references in float64. */
#include "machine/cases_nvidia.h"
#include "machine/compile_nvidia.h"
#include "support/test.h"

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

static void portable_kernels_on_sm_80(void **state)
{
    (void)state;
    judge_all(machine_portable_cases, "sm_80", "portable.h", true);
}

static void portable_kernels_on_sm_90(void **state)
{
    (void)state;
    judge_all(machine_portable_cases, "sm_90", "portable.h", true);
}

static void portable_kernels_on_sm_100(void **state)
{
    (void)state;
    judge_all(machine_portable_cases, "sm_100a", "portable.h", true);
}

static void products_by_mma_sync(void **state)
{
    (void)state;
    judge_all(machine_nvidia_cases, "sm_80", "gemm_mma.cu", true);
    judge_all(machine_nvidia_cases, "sm_90", "gemm_mma.cu", true);
}

static void products_by_wgmma(void **state)
{
    (void)state;
    judge_all(machine_nvidia_cases, "sm_90a", "gemm_wgmma.cu", true);
}

static void attention_forward(void **state)
{
    (void)state;
    judge_all(machine_nvidia_cases, "sm_90a", "flash_wgmma.cu", false);
}

static void attention_backward(void **state)
{
    (void)state;
    judge_all(machine_nvidia_cases, "sm_90a", "attention_backward.cu", false);
}

static void all_shapes_on_all_architectures(void **state)
{
    (void)state;
    judge_all(machine_nvidia_cases, "sm_90a", "flash_wgmma.cu", true);
    judge_all(machine_nvidia_cases, "sm_90a", "attention_backward.cu", true);
    judge_all(machine_nvidia_cases, "sm_80", "attention_backward.cu", true);
    judge_all(machine_nvidia_cases, "sm_100a", "attention_backward.cu", true);
    judge_all(machine_nvidia_cases, "sm_100a", "gemm_mma.cu", true);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(portable_kernels_on_sm_80),  cmocka_unit_test(portable_kernels_on_sm_90),
    cmocka_unit_test(portable_kernels_on_sm_100), cmocka_unit_test(products_by_mma_sync),
    cmocka_unit_test(products_by_wgmma),          cmocka_unit_test(attention_forward),
    cmocka_unit_test(attention_backward),         full_test(all_shapes_on_all_architectures),
};
TM_TESTS(tests, NULL, NULL)
