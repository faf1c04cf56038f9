/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes of the kinds that kernels for AMD GPUs have, planted on purpose (kernels/mistakes.hip, and what a launch or
 * a text may lack): each must be named, or its result be wrong, on both architectures. */
#include "support/test.h"

#include "machine/audit_cases.h"
#include "machine/cases.h"
#include "machine/compile_amd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Arrays of `count` numbers: a result first, then inputs; then the integer, if it is not 0. */
static void make_mistake(machine_problem *p, const int *shape)
{
    double *out = machine_result(p, MACHINE_F32, (size_t)shape[0], 1e-3);
    double *x = machine_input(p, MACHINE_F32, (size_t)shape[1], 1);
    for (int i = 0; i < shape[0]; i++) out[i] = x[i % shape[1]];
    if (shape[5]) machine_argument_int(p, shape[5]);
    p->launch.blocks[0] = (uint32_t)shape[3];
    p->launch.threads[0] = (uint32_t)shape[4];
}

static void make_wave32(machine_problem *p, const int *shape)
{
    double *out = machine_result(p, MACHINE_F32, 8, 1e-5), *x = machine_input(p, MACHINE_F32, 256, 1);
    (void)shape;
    for (int i = 0; i < 256; i++) out[i / 32] += x[i];
    p->launch.threads[0] = 256;
}

static void make_layout(machine_problem *p, const int *shape)
{
    double *out = machine_result(p, MACHINE_F32, 1024, 1e-5), *a = machine_input(p, MACHINE_F32, 64, 1),
           *b = machine_input(p, MACHINE_F32, 64, 1);
    (void)shape;
    machine_argument_int(p, 2);
    for (int i = 0; i < 1024; i++) out[i] = a[i / 32 * 2] * b[i % 32 * 2] + a[i / 32 * 2 + 1] * b[i % 32 * 2 + 1];
    p->launch.threads[0] = 64;
}

/* In place: the second pointer is the first. */
static void make_alias(machine_problem *p, const int *shape)
{
    make_mistake(p, shape);
    memcpy(p->arguments, p->arguments + 8, 8);
}

typedef struct mistake {
    machine_case made;
    const char  *named; /* part of the error; NULL: the result is wrong */
} mistake;

/*  result, input, -, blocks, threads, integer */
static const mistake mistakes[] = {
    { { "wave32 assumption", "mistakes.hip", "wave32", make_wave32, { 0 } }, NULL },
    { { "lane layout swapped", "mistakes.hip", "layout", make_layout, { 0 } }, NULL },
    { { "stale LDS read", "mistakes.hip", "stale", make_mistake, { 256, 256, 0, 1, 256 } }, "race on LDS byte" },
    { { "odd alignment", "mistakes.hip", "odd_alignment", make_mistake, { 256, 512, 0, 1, 256 } },
      "misaligned address" },
    { { "read behind the end", "mistakes.hip", "behind_the_end", make_mistake, { 1000, 1000, 0, 4, 256, 1000 } },
      "out of bounds: 4 bytes" },
    { { "alias in global memory", "mistakes.hip", "neighbours", make_alias, { 512, 512, 0, 2, 256, 512 } },
      "race on global memory" },
};

static machine_module *module_of(const char *file, const char *arch, const char *cut)
{
    char  error[MACHINE_ERROR_ROOM];
    char *text = machine_compile_amd(file, arch, error);
    if (!text) fail_msg("%s", error);
    for (char *at = text; cut && (at = strstr(at, cut)); at++) *at = 'x';
    machine_module *module = machine_load_gcn(text, error);
    free(text);
    if (!module) fail_msg("%s", error);
    return module;
}

static void one_mistake(machine_module *module, const mistake *m, const char *arch)
{
    char            error[MACHINE_ERROR_ROOM];
    machine_order   order = { .skip = -1 };
    machine_problem p;
    machine_problem_make(&p, &m->made, arch);
    bool ran = machine_run(module, p.memory, &p.launch, &order, NULL, error);
    if (m->named ? !strstr(error, m->named) : !ran || machine_problem_error(&p) < 1)
        fail_msg("%s on %s: \"%s\", wanted \"%s\"", m->made.name, arch, error, m->named ? m->named : "a wrong result");
    machine_problem_free(&p);
}

TEST(planted_mistakes_are_named)
{
    if (machine_amd_missing()) skip();
    for (int a = 0; a < 2; a++) {
        const char     *arch = a ? "gfx950" : "gfx942";
        machine_module *module = module_of("mistakes.hip", arch, NULL);
        for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) one_mistake(module, &mistakes[i], arch);
        machine_unload(module);
    }
}

/* What the runtime must fill, but the metadata does not ask for. */
TEST(a_hidden_argument_that_is_missing_is_named)
{
    if (machine_amd_missing()) skip();
    const mistake m = { { "no hidden argument", "mistakes.hip", "copy", make_mistake, { 1000, 1000, 0, 2, 256, 1000 } },
                        "of the arguments: the kernel's metadata has no argument there" };
    for (int a = 0; a < 2; a++) {
        const char     *arch = a ? "gfx950" : "gfx942";
        machine_module *module = module_of(m.made.file, arch, "block_count_x");
        one_mistake(module, &m, arch);
        machine_unload(module);
    }
}

/* Every wait and barrier of the real kernels: somebody notices, or proved.txt says why nobody can. */
FULL_TEST(a_wait_or_barrier_that_is_left_out_is_noticed)
{
    if (machine_amd_missing()) skip();
    assert_int_equal(machine_audit_cases("gfx942"), 0);
    assert_int_equal(machine_audit_cases("gfx950"), 0);
}
