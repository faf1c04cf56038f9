/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/nodes.c - the reports of many nodes put together: who passes, who fails, who differs. */
#include "base/file.h"
#include "base/root.h"
#include "apps/check/context.h"
#include "apps/check/report.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPORT_BYTES = 8 << 20, LIST_BYTES = 8 << 20, NODES = 65536 };

typedef struct {
    const char *name;
    bool        expected, reported;
    const char *problem; /* why its report does not count; NULL if it does */
    tm_checks   checks;
} node;

typedef struct {
    tm_arena   *arena;
    const char *folder;
    node       *nodes;
    size_t      n, capacity;
    bool        has_expected; /* a list was given */
    tm_text     warnings;
} nodes;

/* --- reading --------------------------------------------------------------------------------- */

static node *find_node(nodes *all, const char *name)
{
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->nodes[i].name, name) == 0) return &all->nodes[i];
    all->nodes = tm_grow(all->nodes, &all->capacity, all->n, sizeof *all->nodes);
    node *added = &all->nodes[all->n++];
    *added = (node){ .name = tm_arena_text(all->arena, name) };
    return added;
}

static bool is_host_name(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !(i > 0 && strchr("-_", name[i]))) return false;
    return n > 0 && n < 128;
}

/* Names one per line; blank lines and what follows a '#' do not count. Long names are cut at their first dot. */
static tm_status read_expected(nodes *all, const char *path, tm_error *err)
{
    tm_text   text = { 0 };
    tm_status st = tm_file_read(path, LIST_BYTES, &text, err);
    int       number = 0;
    for (char *line = text.data, *next; st == TM_OK && line && *line; line = next) {
        char name[256];
        next = line + strcspn(line, "\n");
        if (*next) *next++ = '\0';
        number++;
        line[strcspn(line, "#\r")] = '\0';
        line += strspn(line, " \t");
        if (!*line) continue;
        snprintf(name, sizeof name, "%.*s", (int)(strcspn(line, ". \t") & 0xFF), line);
        if (!is_host_name(name) || all->n == NODES)
            st = tm_fail(err, TM_INVALID, "'%s' line %d: '%.100s' is not a host name (one per line)", path, number,
                         line);
        else
            find_node(all, name)->expected = true;
    }
    if (st == TM_OK && all->n == 0) st = tm_fail(err, TM_INVALID, "'%s' names no host", path);
    all->has_expected = true;
    tm_text_fini(&text);
    return st;
}

static void read_report(nodes *all, const char *file, const char *name)
{
    tm_text  text = { 0 };
    tm_error problem = { 0 };
    node    *it = find_node(all, name);
    char    *path = tm_arena_format(all->arena, "%s/smoke/%s", all->folder, file);
    it->reported = true;
    tm_status st = tm_file_read(path, REPORT_BYTES, &text, &problem);
    if (st == TM_OK) st = tm_checks_parse(text.data, text.length, path, &it->checks, &problem);
    if (st == TM_OK && strcmp(it->checks.host, name) != 0)
        st = tm_fail(&problem, TM_FORMAT, "'%s' is the report of '%.100s'", path, it->checks.host);
    if (st != TM_OK) it->problem = tm_arena_text(all->arena, problem.text);
    tm_text_fini(&text);
}

static tm_status read_reports(nodes *all, tm_error *err)
{
    size_t       n;
    const char  *place = tm_arena_format(all->arena, "%s/smoke", all->folder);
    const char **files = tm_root_list("", place, NODES, all->arena, &n);
    if (!files && !all->has_expected)
        return tm_fail(err, TM_INVALID, "cannot read directory '%s': %s; `trainmark check --dump-path` makes it", place,
                       strerror(errno));
    for (size_t i = 0; files && i < n; i++) {
        size_t length = strlen(files[i]), suffix = strlen(".json");
        if (length <= suffix || strcmp(files[i] + length - suffix, ".json") != 0) continue;
        const char *name = tm_arena_text_n(all->arena, files[i], length - suffix);
        if (is_host_name(name)) read_report(all, files[i], name);
    }
    return all->n > 0 ? TM_OK
                      : tm_fail(err, TM_INVALID,
                                "there is no report in '%s'; `trainmark check --dump-path` "
                                "makes them",
                                place);
}

/* --- judging --------------------------------------------------------------------------------- */

static bool passes(const node *it)
{
    return it->reported && !it->problem && !tm_checks_failed(&it->checks);
}

/* NULL: nothing, or the report is not the node's own. */
static const char *observed(const node *it, const char *id)
{
    for (size_t i = 0; !it->problem && i < it->checks.n; i++)
        if (strcmp(it->checks.results[i].id, id) == 0) return it->checks.results[i].observed;
    return NULL;
}

/* What must be the same everywhere; the value of most nodes is taken to be the right one. */
static void compare(nodes *all, const char *id)
{
    const char *common = NULL;
    size_t      best = 0, voters = all->n < 1024 ? all->n : 1024; /* every pair is compared */
    for (size_t i = 0; i < voters; i++) {
        const char *value = observed(&all->nodes[i], id);
        size_t      same = 0;
        for (size_t k = 0; value && k < voters; k++) {
            const char *other = observed(&all->nodes[k], id);
            same += other && strcmp(value, other) == 0;
        }
        if (same <= best) continue;
        best = same;
        common = value;
    }
    for (size_t i = 0; common && i < all->n; i++) {
        const char *value = observed(&all->nodes[i], id);
        if (value && strcmp(value, common) != 0)
            tm_text_printf(&all->warnings, "- WARN %s of %s is `%s`, that of most nodes `%s`\n", id, all->nodes[i].name,
                           value, common);
    }
}

static void compare_clocks(nodes *all)
{
    static const double most = 30; /* seconds */
    double              low = (double)INFINITY, high = -(double)INFINITY;
    for (size_t i = 0; i < all->n; i++) {
        if (all->nodes[i].problem || !all->nodes[i].reported) continue;
        low = fmin(low, (double)all->nodes[i].checks.wall_ms * 1e-3);
        high = fmax(high, (double)all->nodes[i].checks.wall_ms * 1e-3);
    }
    if (high - low > most)
        tm_text_printf(&all->warnings,
                       "- WARN the nodes' times are %.0f s apart: their clocks differ by more than 30 s, or "
                       "they were not checked at the same time\n",
                       high - low);
}

/* --- writing --------------------------------------------------------------------------------- */

static tm_status write_text(const nodes *all, const char *name, const tm_text *text, tm_error *err)
{
    return tm_file_write(tm_arena_format(all->arena, "%s/%s", all->folder, name), text->data ? text->data : "",
                         text->length, err);
}

/* Nodes that pass, that fail, or that were expected. */
typedef enum { LIST_PASSING, LIST_FAILING, LIST_EXPECTED } list_kind;

static tm_status write_list(const nodes *all, list_kind kind, const char *name, size_t *count, tm_error *err)
{
    tm_text text = { 0 };
    *count = 0;
    for (size_t i = 0; i < all->n; i++) {
        const node *it = &all->nodes[i];
        bool in = kind == LIST_EXPECTED ? it->expected || !all->has_expected : passes(it) == (kind == LIST_PASSING);
        if (!in) continue;
        tm_text_printf(&text, "%s\n", it->name);
        ++*count;
    }
    tm_status st = write_text(all, name, &text, err);
    tm_text_fini(&text);
    return st;
}

/* A cell of a markdown table. */
static void add_cell(tm_text *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '|') tm_text_add(out, "\\");
        tm_text_add_n(out, *p == '\n' ? " " : p, 1);
    }
}

static void print_node(const node *it, tm_text *out)
{
    tm_text_printf(out, "| %s | %s | ", it->name, passes(it) ? "PASS" : "FAIL");
    if (!it->reported) tm_text_add(out, "no report: the node did not answer");
    if (it->problem) add_cell(out, it->problem);
    for (size_t i = 0, said = 0; it->reported && !it->problem && i < it->checks.n; i++) {
        const tm_check_result *r = &it->checks.results[i];
        if (r->status != TM_CHECK_WARN && r->status != TM_CHECK_FAIL) continue;
        tm_text_printf(out, "%s%s ", said++ ? "; " : "", tm_check_status_name(r->status));
        add_cell(out, r->id);
        tm_text_add(out, ": ");
        add_cell(out, r->observed);
    }
    tm_text_add(out, " |\n");
}

static tm_status write_report(const nodes *all, size_t passing, size_t failing, tm_error *err)
{
    tm_text out = { 0 };
    tm_text_printf(&out, "# System checks of %zu nodes\n\n%zu pass, %zu fail.\n\n", all->n, passing, failing);
    tm_text_add(&out, "| node | verdict | not passed |\n|---|---|---|\n");
    for (size_t i = 0; i < all->n; i++) print_node(&all->nodes[i], &out);
    if (all->warnings.length) tm_text_printf(&out, "\n## Differences\n\n%s", all->warnings.data);
    for (size_t i = 0, said = 0; all->has_expected && i < all->n; i++)
        if (!all->nodes[i].expected)
            tm_text_printf(&out, "%s- INFO %s reported and was not expected\n", said++ ? "" : "\n## Not expected\n\n",
                           all->nodes[i].name);
    tm_status st = write_text(all, "smoke_report.md", &out, err);
    tm_text_fini(&out);
    return st;
}

static int by_name(const void *a, const void *b)
{
    return strverscmp(((const node *)a)->name, ((const node *)b)->name);
}

static tm_status write_all(nodes *all, size_t *passing, size_t *failing, tm_error *err)
{
    static const char *const equal[] = { "os", "kernel", "cmdline", "versions" };
    size_t                   expected;
    if (all->n > 0) qsort(all->nodes, all->n, sizeof *all->nodes, by_name);
    for (size_t i = 0; i < sizeof equal / sizeof equal[0]; i++) compare(all, equal[i]);
    compare_clocks(all);
    TM_TRY(tm_folder_make(all->folder, err));
    TM_TRY(write_list(all, LIST_PASSING, "passing_nodes.txt", passing, err));
    TM_TRY(write_list(all, LIST_FAILING, "failing_nodes.txt", failing, err));
    TM_TRY(write_list(all, LIST_EXPECTED, "expected_nodes.txt", &expected, err));
    return write_report(all, *passing, *failing, err);
}

tm_status tm_checks_aggregate(const char *folder, const char *expected, size_t *passing, size_t *failing, tm_error *err)
{
    nodes all = { .arena = tm_arena_create(), .folder = folder };
    *passing = *failing = 0;
    tm_status st = expected ? read_expected(&all, expected, err) : TM_OK;
    if (st == TM_OK) st = read_reports(&all, err);
    if (st == TM_OK) st = write_all(&all, passing, failing, err);
    for (size_t i = 0; i < all.n; i++) tm_checks_fini(&all.nodes[i].checks);
    free(all.nodes);
    tm_text_fini(&all.warnings);
    tm_arena_destroy(all.arena);
    return st;
}
