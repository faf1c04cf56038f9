/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/audit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum verdict { SURVIVED, BY_VALUES, NAMED } verdict;
typedef enum kind_of_change { WAITS, BARRIERS, COUNTS, KINDS } kind_of_change;

/* An instruction that is left out, or a count of it one higher. */
typedef struct change {
    int            at;
    kind_of_change kind;
    int            count; /* of COUNTS */
    verdict        verdict;
} change;

/* A kernel of one module. */
typedef struct subject {
    machine_module       *module;
    const machine_kernel *kernel;
    change               *changes;
    int                   n, room;
    uint64_t             *ran; /* how often each of its instructions ran, in launches as they are */
} subject;

struct machine_audit {
    char     arch[16];
    subject *subjects;
    int      n, room;
};

static void *grown(void *array, int n, int *room, size_t size)
{
    if (n < *room) return array;
    *room = *room ? 2 * *room : 16;
    array = realloc(array, (size_t)*room * size);
    if (!array) abort();
    return array;
}

static void *need(size_t bytes)
{
    void *got = calloc(bytes + 1, 1);
    if (!got) abort();
    return got;
}

machine_audit *machine_audit_new(const char *arch)
{
    machine_audit *audit = need(sizeof *audit);
    snprintf(audit->arch, sizeof audit->arch, "%s", arch);
    return audit;
}

void machine_audit_free(machine_audit *audit)
{
    for (int i = 0; i < audit->n; i++) {
        free(audit->subjects[i].changes);
        free(audit->subjects[i].ran);
    }
    free(audit->subjects);
    free(audit);
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static void add_change(subject *s, change c)
{
    s->changes = grown(s->changes, s->n, &s->room, sizeof *s->changes);
    s->changes[s->n++] = c;
}

static subject *subject_of(machine_audit *audit, machine_module *module, const char *name)
{
    for (int i = 0; i < audit->n; i++)
        if (audit->subjects[i].module == module && !strcmp(audit->subjects[i].kernel->name, name))
            return &audit->subjects[i];
    const machine_kernel *k = NULL;
    for (int i = 0; i < machine_kernels(module); i++)
        if (!strcmp(machine_kernel_at(module, i)->name, name)) k = machine_kernel_at(module, i);
    if (!k) return NULL;
    audit->subjects = grown(audit->subjects, audit->n, &audit->room, sizeof *audit->subjects);
    subject *s = &audit->subjects[audit->n++];
    *s = (subject){ .module = module, .kernel = k, .ran = need((size_t)(k->end - k->first) * sizeof *s->ran) };
    for (int at = machine_find(module, k->first, k->end); at >= 0; at = machine_find(module, at + 1, k->end)) {
        const char *text = machine_instruction_at(module, at).text;
        bool        barrier = !strcmp(text, "s_barrier") || !strncmp(text, "bar.", 4);
        add_change(s, (change){ .at = at, .kind = barrier ? BARRIERS : WAITS });
        for (int count = 0; count < 2; count++)
            if (machine_loosen(module, at, count, 0))
                add_change(s, (change){ .at = at, .kind = COUNTS, .count = count });
    }
    return s;
}

/* The memory before a launch, and after it as it is. */
typedef struct trial {
    machine_memory       *memory;
    const machine_launch *launch;
    uint8_t              *before, *after;
} trial;

static verdict judge(const trial *t, machine_module *module, int skip)
{
    static const int waves[] = { 0, 1, 7 };
    verdict          best = SURVIVED;
    for (int i = 0; i < 3; i++) {
        char          error[MACHINE_ERROR_ROOM];
        machine_order order = { .waves = waves[i], .skip = skip };
        machine_memory_put(t->memory, t->before);
        if (!machine_run(module, t->memory, t->launch, &order, NULL, error)) return NAMED;
        if (!machine_memory_is(t->memory, t->after)) best = BY_VALUES;
    }
    return best;
}

static void try_change(const trial *t, machine_module *module, change *c)
{
    if (c->kind == COUNTS) machine_loosen(module, c->at, c->count, 1);
    c->verdict = judge(t, module, c->kind == COUNTS ? -1 : c->at);
    if (c->kind == COUNTS) machine_loosen(module, c->at, c->count, -1);
}

bool machine_audit_run(machine_audit *audit, machine_module *module, machine_memory *memory,
                       const machine_launch *launch, char error[MACHINE_ERROR_ROOM])
{
    size_t        bytes = machine_memory_bytes(memory);
    trial         t = { memory, launch, need(bytes), need(bytes) };
    machine_order order = { .skip = -1 };
    subject      *s = subject_of(audit, module, launch->kernel);
    int           first = s ? s->kernel->first : 0, n = s ? s->kernel->end - first : 0;
    uint64_t     *was = need((size_t)n * sizeof *was);
    for (int i = 0; i < n; i++) was[i] = machine_instruction_at(module, first + i).executed;
    machine_memory_keep(memory, t.before);
    bool well = machine_run(module, memory, launch, &order, NULL, error);
    machine_memory_keep(memory, t.after);
    for (int i = 0; i < n; i++) was[i] = machine_instruction_at(module, first + i).executed - was[i];
    for (int i = 0; i < n; i++) s->ran[i] += was[i];
    for (int i = 0; s && well && i < s->n; i++)
        if (s->changes[i].verdict == SURVIVED && was[s->changes[i].at - first]) try_change(&t, module, &s->changes[i]);
    machine_memory_put(memory, t.after);
    free(t.before);
    free(t.after);
    free(was);
    return well;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* A change as the modules of a kernel have it: the nth of those that look the same. One that notices is enough: whether
 * a loop has a second round, or an operand is there, depends on the module. */
typedef struct row {
    machine_instruction x;
    const change       *change;
    int                 nth;
    verdict             best;
    uint64_t            ran;
} row;

typedef struct table {
    row *rows;
    int  n, room;
} table;

static bool same_line(const machine_instruction *a, const machine_instruction *b)
{
    return a->source_line == b->source_line && strcmp(a->source_file, b->source_file) == 0;
}

static bool alike(const row *a, const row *b)
{
    return a->change->kind == b->change->kind && a->change->count == b->change->count && same_line(&a->x, &b->x) &&
           strcmp(a->x.text, b->x.text) == 0;
}

static void add_row(table *t, row r)
{
    for (int i = 0; i < t->n; i++) {
        row *other = &t->rows[i];
        if (other->nth != r.nth || !alike(other, &r)) continue;
        if (r.best > other->best) other->best = r.best;
        other->ran += r.ran;
        return;
    }
    t->rows = grown(t->rows, t->n, &t->room, sizeof *t->rows);
    t->rows[t->n++] = r;
}

static void add_subject(table *t, const subject *s)
{
    table own = { NULL, 0, 0 };
    for (int i = 0; i < s->n; i++) {
        const change *c = &s->changes[i];
        row r = { machine_instruction_at(s->module, c->at), c, 0, c->verdict, s->ran[c->at - s->kernel->first] };
        for (int k = 0; k < own.n; k++) r.nth += alike(&own.rows[k], &r);
        own.rows = grown(own.rows, own.n, &own.room, sizeof *own.rows);
        own.rows[own.n++] = r;
    }
    for (int i = 0; i < own.n; i++) add_row(t, own.rows[i]);
    free(own.rows);
}

/* Is line `at` for this architecture and kernel? What follows in it; NULL: no. */
static const char *of_kernel(const char *at, const char *arch, const char *kernel)
{
    size_t word = strcspn(at, " \n"), n = strlen(kernel);
    if (!word || at[word] != ' ' || strncmp(at, arch, word) != 0) return NULL;
    at += word + 1;
    return !strncmp(at, kernel, n) && at[n] == ' ' ? at + n + 1 : NULL;
}

/* The next line of `proved`, behind one; NULL: that was the last. */
static char *next_line(char *line)
{
    char *end = strchr(line, '\n');
    return end && end[1] ? end + 1 : NULL;
}

/* Takes the first line for this instruction, which becomes a comment. False: there is none. */
static bool take_proof(char *proved, const char *arch, const char *kernel, machine_instruction x)
{
    char key[300];
    int  n = snprintf(key, sizeof key, "%s:%d %s: ", x.source_file, x.source_line, x.text);
    for (char *line = proved; line; line = next_line(line)) {
        const char *of = of_kernel(line, arch, kernel);
        if (!of || strncmp(of, key, (size_t)n) != 0) continue;
        *line = '#';
        return true;
    }
    return false;
}

/* Lines that were not taken of kernels that were audited. Returns how many. */
static int print_stale(const machine_audit *audit, char *proved)
{
    int stale = 0;
    for (char *line = proved; line && *line; line = next_line(line)) {
        bool here = false;
        for (int i = 0; i < audit->n; i++) here = here || of_kernel(line, audit->arch, audit->subjects[i].kernel->name);
        stale += here;
        if (here) printf("# not wanted on %s: %.*s\n", audit->arch, (int)strcspn(line, "\n"), line);
    }
    return stale;
}

/* Does the code of all modules that have it prove that this row is needless? */
static bool is_needless(const machine_audit *audit, const char *kernel, const row *r)
{
    for (int i = 0; i < audit->n; i++) {
        const subject *s = &audit->subjects[i];
        int            nth = 0;
        for (int k = 0; k < s->n && !strcmp(s->kernel->name, kernel); k++) {
            row other = { .x = machine_instruction_at(s->module, s->changes[k].at), .change = &s->changes[k] };
            if (!alike(&other, r) || nth++ != r->nth) continue;
            if (!machine_needless(s->module, s->changes[k].at)) return false;
        }
    }
    return true;
}

static machine_tally tally_of(const machine_audit *audit, const table *t, kind_of_change kind, const char *kernel,
                              char *proved)
{
    machine_tally sum = { 0 };
    for (int i = 0; i < t->n; i++) {
        const row *r = &t->rows[i];
        if (r->change->kind != kind) continue;
        sum.removed++;
        sum.named += r->best == NAMED;
        sum.by_values += r->best == BY_VALUES;
        if (r->best != SURVIVED) continue;
        bool needless = kind == WAITS && is_needless(audit, kernel, r);
        bool fine = needless || (kind != COUNTS && r->ran && take_proof(proved, audit->arch, kernel, r->x));
        sum.needless += needless;
        sum.proved += fine && !needless;
        sum.survived += !fine;
        if (!fine)
            printf("# %s %s %s:%d %s%s survives: line %d, ran %llu times\n", audit->arch, kernel, r->x.source_file,
                   r->x.source_line, r->x.text,
                   kind != COUNTS     ? ""
                   : r->change->count ? ", its second count one too high,"
                                      : ", its count one too high,",
                   r->x.line, (unsigned long long)r->ran);
    }
    return sum;
}

static row *row_of_line(table *t, const machine_instruction *x)
{
    for (int i = 0; i < t->n; i++)
        if (same_line(&t->rows[i].x, x)) return &t->rows[i];
    t->rows = grown(t->rows, t->n, &t->room, sizeof *t->rows);
    t->rows[t->n] = (row){ .x = *x };
    return &t->rows[t->n++];
}

/* Of each line of a kernel: instructions (nth), those that never ran, the first of them. */
static table lines_of(const subject *s)
{
    table lines = { NULL, 0, 0 };
    for (int k = s->kernel->first; k < s->kernel->end; k++) {
        machine_instruction x = machine_instruction_at(s->module, k);
        row                *r = row_of_line(&lines, &x);
        r->nth++;
        if (s->ran[k - s->kernel->first]) continue;
        if (r->ran++ == 0) r->x = x;
    }
    return lines;
}

/* Lines of which no launch of any module ran some instruction: in each of them the module that has run most. */
static void print_uncovered(const machine_audit *audit, const char *name, char *proved)
{
    table best = { NULL, 0, 0 };
    for (int i = 0; i < audit->n; i++) {
        if (strcmp(audit->subjects[i].kernel->name, name) != 0) continue;
        table lines = lines_of(&audit->subjects[i]);
        for (int k = 0; k < lines.n; k++) {
            int  n = best.n;
            row *r = row_of_line(&best, &lines.rows[k].x);
            if (n < best.n || lines.rows[k].ran < r->ran) *r = lines.rows[k];
        }
        free(lines.rows);
    }
    for (int k = 0; k < best.n; k++) {
        const row          *r = &best.rows[k];
        machine_instruction never = r->x;
        never.text = "unreached";
        if (r->ran && !take_proof(proved, audit->arch, name, never))
            printf("# %s %s %s:%d unreached: %d of %d instructions, line %d %s\n", audit->arch, name, r->x.source_file,
                   r->x.source_line, (int)r->ran, r->nth, r->x.line, r->x.text);
    }
    free(best.rows);
}

static void add(machine_tally *to, const machine_tally *from)
{
    to->removed += from->removed;
    to->named += from->named;
    to->by_values += from->by_values;
    to->needless += from->needless;
    to->proved += from->proved;
    to->survived += from->survived;
}

static void print_kernel(const machine_audit *audit, const char *name, char *proved, machine_tally *all)
{
    static const char *const kinds[] = { "waits", "barriers", "counts" };
    table                    t = { NULL, 0, 0 };
    for (int i = 0; i < audit->n; i++)
        if (!strcmp(audit->subjects[i].kernel->name, name)) add_subject(&t, &audit->subjects[i]);
    print_uncovered(audit, name, proved);
    for (int k = 0; k < KINDS; k++) {
        machine_tally sum = tally_of(audit, &t, (kind_of_change)k, name, proved);
        if (sum.removed)
            printf("| %s | %-24s | %-8s | %7d | %5d | %9d | %8d | %6d | %8d |\n", audit->arch, name, kinds[k],
                   sum.removed, sum.named, sum.by_values, sum.needless, sum.proved, sum.survived);
        if (k != COUNTS) add(all, &sum);
    }
    free(t.rows);
}

static char *text_of(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = need(1 << 20);
    if (f) {
        text[fread(text, 1, (1 << 20) - 1, f)] = '\0';
        fclose(f);
    }
    return text;
}

machine_tally machine_audit_print(const machine_audit *audit, const char *proved)
{
    machine_tally all = { 0 };
    char         *lines = text_of(proved);
    printf("| device | kernel                   | kind     | removed | named | by values | needless | proved | "
           "survived |\n");
    printf("|--------|--------------------------|----------|---------|-------|-----------|----------|--------|---------"
           "-|\n");
    for (int i = 0; i < audit->n; i++) {
        bool seen = false;
        for (int k = 0; k < i; k++)
            seen = seen || !strcmp(audit->subjects[i].kernel->name, audit->subjects[k].kernel->name);
        if (!seen) print_kernel(audit, audit->subjects[i].kernel->name, lines, &all);
    }
    all.stale = print_stale(audit, lines);
    fflush(stdout);
    free(lines);
    return all;
}
