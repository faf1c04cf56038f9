/* SPDX-License-Identifier: Apache-2.0 */
/* `all audit`: leaves out every wait and barrier of every kernel, one at a time, and says who notices.
 *
 *   all audit [ARCH [KERNEL]]
 *
 * With counts that are one too lax as well, which need no proof.
 *
 * Named: the interpreter's rules say what is wrong. By values: results are wrong, or other bits. A survivor must be in
 * proved.txt, with why nothing can notice. Exit status 1 if one is not. */
#include "support/test.h"

#include "machine/audit.h"
#include "machine/cases_nvidia.h"
#include "machine/compile_amd.h"
#include "machine/compile_nvidia.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 16 };

/* A kernel's cases, each with the bits of its right results. */
typedef struct trials {
    machine_problem problems[CASES];
    uint64_t        bits[CASES];
    int             n;
} trials;

typedef struct tally {
    int removed, named, by_values, proved, survived;
} tally;

typedef enum verdict { SURVIVED, BY_VALUES, NAMED } verdict;

static verdict judge(machine_module *module, trials *t, int skip)
{
    static const int waves[] = { 0, 1, 7 };
    verdict          best = SURVIVED;
    for (int c = 0; c < t->n; c++) {
        for (int i = 0; i < 3; i++) {
            char          error[MACHINE_ERROR_ROOM];
            machine_order order = { .waves = waves[i], .skip = skip };
            machine_problem_reset(&t->problems[c]);
            if (!machine_run(module, t->problems[c].memory, &t->problems[c].launch, &order, NULL, error)) return NAMED;
            if (!(machine_problem_error(&t->problems[c]) < 1) || machine_problem_bits(&t->problems[c]) != t->bits[c])
                best = BY_VALUES;
        }
    }
    return best;
}

/* Each line "ARCH KERNEL SOURCE_LINE INSTRUCTION: reason" is for one instruction: is there one for the nth like x? */
static bool is_proved(const char *proved, const char *arch, const char *kernel, machine_instruction x, int nth)
{
    char line[300];
    snprintf(line, sizeof line, "\n%s %s %d %s: ", arch, kernel, x.source_line, x.text);
    while (proved && (proved = strstr(proved, line)) && nth--) proved++;
    return proved;
}

/* How many of the survivors so far are like the last: line of the source and text. */
static int alike(const machine_module *module, const int *at, int last)
{
    machine_instruction x = machine_instruction_at(module, at[last]);
    int                 n = 0;
    for (int i = 0; i < last; i++) {
        machine_instruction y = machine_instruction_at(module, at[i]);
        n += x.source_line == y.source_line && strcmp(x.text, y.text) == 0;
    }
    return n;
}

static void audit_kind(machine_module *module, const machine_kernel *k, trials *t, const char *arch, bool barriers,
                       tally *all)
{
    char *proved = machine_read_file("tests/machine/proved.txt");
    tally sum = { 0, 0, 0, 0, 0 };
    int   survivors[256], n = 0;
    for (int at = machine_find(module, k->first, k->end); at >= 0; at = machine_find(module, at + 1, k->end)) {
        machine_instruction x = machine_instruction_at(module, at);
        if ((!strcmp(x.text, "s_barrier") || !strncmp(x.text, "bar.", 4)) != barriers) continue;
        verdict v = judge(module, t, at);
        sum.removed++;
        sum.named += v == NAMED;
        sum.by_values += v == BY_VALUES;
        if (v != SURVIVED || n == 256) continue;
        survivors[n++] = at;
        bool listed = x.executed && is_proved(proved, arch, k->name, x, alike(module, survivors, n - 1));
        sum.proved += listed;
        sum.survived += !listed;
        if (!listed)
            printf("# %s %s %d %s (line %d, executed %llu times) survives\n", arch, k->name, x.source_line, x.text,
                   x.line, (unsigned long long)x.executed);
    }
    free(proved);
    if (sum.removed)
        printf("| %s | %-20s | %-8s | %7d | %5d | %9d | %6d | %8d |\n", arch, k->name, barriers ? "barriers" : "waits",
               sum.removed, sum.named, sum.by_values, sum.proved, sum.survived);
    int *const to[] = { &all->removed, &all->named, &all->by_values, &all->proved, &all->survived };
    const int  from[] = { sum.removed, sum.named, sum.by_values, sum.proved, sum.survived };
    for (int i = 0; i < 5; i++) *to[i] += from[i];
}

/* Instructions that no case reaches, with their lines of the source. Compilers write code for numbers of rounds that a
 * loop never has. */
static void print_uncovered(const machine_module *module, const machine_kernel *k, const char *arch)
{
    enum { LINES = 2000 };
    bool named[LINES] = { true };
    int  missing = 0;
    for (int at = k->first; at < k->end; at++) missing += machine_instruction_at(module, at).executed == 0;
    if (!missing) return;
    printf("# %s %s: %d of %d instructions never run, of lines", arch, k->name, missing, k->end - k->first);
    for (int at = k->first; at < k->end; at++) {
        machine_instruction x = machine_instruction_at(module, at);
        if (x.executed || x.source_line >= LINES || named[x.source_line]) continue;
        named[x.source_line] = true;
        printf(" %d", x.source_line);
    }
    printf("\n");
}

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

static void make_trials(trials *t, machine_module *module, const machine_case *cases, const char *kernel,
                        const char *arch)
{
    t->n = 0;
    for (const machine_case *c = cases; c->name; c++) {
        char             error[MACHINE_ERROR_ROOM];
        machine_order    order = { .skip = -1 };
        machine_problem *p = &t->problems[t->n];
        if (strcmp(c->kernel, kernel) || t->n == CASES) continue;
        machine_problem_make(p, c, arch);
        if (!machine_run(module, p->memory, &p->launch, &order, NULL, error)) printf("# %s: %s\n", c->name, error);
        t->bits[t->n++] = machine_problem_bits(p);
    }
}

/* The text with the count of `counter` in a line one higher; NULL: the line does not wait for it. */
static char *one_more(const char *text, int line, const char *counter)
{
    while (--line && (text = strchr(text, '\n'))) text++;
    const char *at = text ? strstr(text, counter) : NULL, *end = text ? strchr(text, '\n') : NULL;
    return at && at < end ? (char *)at + strlen(counter) : NULL;
}

/* Counts one too lax: vmcnt(2) becomes vmcnt(3). Each takes a module of its own. */
static void audit_counts(machine_module *module, const char *text, const machine_kernel *k, trials *t, const char *arch)
{
    static const char *const counters[] = { "vmcnt(", "lgkmcnt(", "wait_group ", "wait_group.sync.aligned " };
    int                      verdicts[3] = { 0, 0, 0 };
    for (int at = machine_find(module, k->first, k->end); at >= 0; at = machine_find(module, at + 1, k->end)) {
        machine_instruction x = machine_instruction_at(module, at);
        for (int c = 0; c < 4; c++) {
            char error[MACHINE_ERROR_ROOM], *place = one_more(text, x.line, counters[c]), *changed;
            if (!place || asprintf(&changed, "%.*s%d%s", (int)(place - text), text, atoi(place) + 1,
                                   place + strspn(place, "0123456789")) < 0)
                continue;
            machine_module *lax = load(changed, arch, error);
            verdict         v = lax ? judge(lax, t, -1) : NAMED;
            verdicts[v]++;
            if (v == SURVIVED)
                printf("# %s %s %d %s (line %d): %s one too lax survives\n", arch, k->name, x.source_line, x.text,
                       x.line, counters[c]);
            machine_unload(lax);
            free(changed);
        }
    }
    if (verdicts[0] + verdicts[1] + verdicts[2] == 0) return;
    printf("| %s | %-20s | %-8s | %7d | %5d | %9d | %6s | %8d |\n", arch, k->name, "counts",
           verdicts[0] + verdicts[1] + verdicts[2], verdicts[NAMED], verdicts[BY_VALUES], "", verdicts[SURVIVED]);
}

static void audit_module(machine_module *module, const char *text, const machine_case *cases, const char *arch,
                         const char *only, tally *all)
{
    trials t;
    for (int k = 0; k < machine_kernels(module); k++) {
        const machine_kernel *kernel = machine_kernel_at(module, k);
        if (!strstr(kernel->name, only)) continue;
        make_trials(&t, module, cases, kernel->name, arch);
        print_uncovered(module, kernel, arch);
        audit_kind(module, kernel, &t, arch, false, all);
        audit_kind(module, kernel, &t, arch, true, all);
        if (text) audit_counts(module, text, kernel, &t, arch);
        for (int i = 0; i < t.n; i++) machine_problem_free(&t.problems[i]);
        fflush(stdout);
    }
}

int machine_audit(const char *arch, const char *only, bool counts)
{
    const machine_case *const tables[] = { machine_portable_cases,
                                           for_nvidia(arch) ? machine_nvidia_cases : machine_amd_cases };
    tally                     all = { 0, 0, 0, 0, 0 };
    printf("| device | kernel               | kind     | removed | named | by values | proved | survived |\n");
    printf("|--------|----------------------|----------|---------|-------|-----------|--------|----------|\n");
    for (int t = 0; t < 2; t++) {
        const char *file = "";
        for (const machine_case *c = tables[t]; c->name; c++) {
            char error[MACHINE_ERROR_ROOM];
            if (strcmp(file, c->file) == 0) continue;
            file = c->file;
            if (for_nvidia(arch) && strstr(file, "wgmma") && strcmp(arch, "sm_90a") != 0) continue;
            char           *text = compile(file, arch, error);
            machine_module *module = text ? load(text, arch, error) : NULL;
            if (module)
                audit_module(module, counts ? text : NULL, tables[t], arch, only, &all);
            else
                printf("# %s: %s\n", c->file, error);
            free(text);
            if (!module) return -1;
            machine_unload(module);
        }
    }
    printf("# %s: %d left out, %d named, %d by values, %d proved, %d survived\n", arch, all.removed, all.named,
           all.by_values, all.proved, all.survived);
    return all.survived;
}

static int run_audit(int argc, char **argv)
{
    static const char *const archs[] = { "gfx942", "gfx950", "sm_80", "sm_90a", "sm_100a" };
    int                      survived = 0;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (argc < 3 || !strcmp(argv[2], archs[i])) survived |= machine_audit(archs[i], argc > 3 ? argv[3] : "", true);
    return survived != 0;
}

TM_TEST_ROLE("audit", run_audit)
