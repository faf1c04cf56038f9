/* SPDX-License-Identifier: Apache-2.0 */
/* `all audit [ARCH]`: the audit (audit.h) of the kernels under kernels/, over their cases. Exit status 1 if a wait or
 * barrier can be left out and proved.txt does not say why, or has a line too many. */
#include "support/test.h"

#include "machine/audit.h"
#include "machine/audit_cases.h"
#include "machine/cases_nvidia.h"
#include "machine/compile_amd.h"
#include "machine/compile_nvidia.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool for_nvidia(const char *arch)
{
    return strncmp(arch, "sm_", 3) == 0;
}

static char *compile(const char *file, const char *arch, char error[MACHINE_ERROR_ROOM])
{
    bool missing;
    return for_nvidia(arch) ? machine_compile_nvidia(file, arch, NULL, NULL, &missing, error)
                            : machine_compile_amd(file, arch, error);
}

static machine_module *load(const char *text, const char *arch, char error[MACHINE_ERROR_ROOM])
{
    return for_nvidia(arch) ? machine_load_ptx(text, error) : machine_load_gcn(text, error);
}

/* The cases of a file's kernels; false: no code. */
static bool audit_file(machine_audit *audit, machine_module **module, const machine_case *cases, const char *file,
                       const char *arch)
{
    char  error[MACHINE_ERROR_ROOM];
    char *text = compile(file, arch, error);
    *module = text ? load(text, arch, error) : NULL;
    free(text);
    if (!*module) printf("# %s: %s\n", file, error);
    for (const machine_case *c = cases; *module && c->name; c++) {
        machine_problem p;
        if (strcmp(c->file, file) != 0) continue;
        machine_problem_make(&p, c, arch);
        if (!machine_audit_run(audit, *module, p.memory, &p.launch, error)) printf("# %s: %s\n", c->name, error);
        machine_problem_free(&p);
    }
    return *module;
}

int machine_audit_cases(const char *arch)
{
    enum { FILES = 16 };
    const machine_case *cases = for_nvidia(arch) ? machine_nvidia_cases : machine_amd_cases;
    machine_audit      *audit = machine_audit_new(arch);
    machine_module     *modules[FILES] = { NULL };
    const char         *file = "";
    int                 n = 0;
    bool                well = true;
    for (const machine_case *c = cases; c->name && well && n < FILES; c++) {
        if (strcmp(file, c->file) == 0) continue;
        file = c->file;
        if (for_nvidia(arch) && strstr(file, "wgmma") && strcmp(arch, "sm_90a") != 0) continue;
        well = audit_file(audit, &modules[n++], cases, file, arch);
    }
    machine_tally sum = machine_audit_print(audit, "tests/machine/proved.txt");
    machine_audit_free(audit);
    for (int i = 0; i < n; i++) machine_unload(modules[i]);
    printf("# %s: %d left out, %d named, %d by values, %d needless, %d proved, %d survived, %d stale\n", arch,
           sum.removed, sum.named, sum.by_values, sum.needless, sum.proved, sum.survived, sum.stale);
    return well ? sum.survived + sum.stale : -1;
}

static int run_audit(int argc, char **argv)
{
    static const char *const archs[] = { "gfx942", "gfx950", "sm_80", "sm_90a", "sm_100a" };
    int                      survived = 0;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (argc < 3 || !strcmp(argv[2], archs[i])) survived |= machine_audit_cases(archs[i]);
    return survived != 0;
}

TM_TEST_ROLE("audit", run_audit)
