/* SPDX-License-Identifier: Apache-2.0 */
/* results/certificate_fleet.c - certificates of many nodes and times beside each other. */
#include "base/arena.h"
#include "results/certificate.h"
#include "results/certificate_parts.h"
#include "stats/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A node in one certificate. */
typedef struct {
    const tm_result *certificate;
    const json_t    *node;
    const char      *host, *kind, *finished;
    size_t           given; /* in which order */
    bool             latest;
    size_t           before; /* its place in the list, of the certificate before; SIZE_MAX: none */
} entry;

typedef struct {
    entry    *entries; /* by host, the newest first; of one second as they were given */
    size_t    n;
    tm_table *nodes, *details;
} fleet;

static int by_host(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int          order = strcmp(x->host, y->host);
    if (order == 0) order = strcmp(y->finished, x->finished);
    return order ? order : (x->given > y->given) - (x->given < y->given);
}

static void collect(fleet *f, const tm_result *const *certificates, size_t n)
{
    size_t room = 0, k;
    for (size_t i = 0; i < n; i++) {
        json_t *node;
        json_array_foreach(json_object_get(results_tree(certificates[i]), "nodes"), k, node)
        {
            f->entries = tm_grow(f->entries, &room, f->n, sizeof *f->entries);
            f->entries[f->n++] = (entry){ .certificate = certificates[i],
                                          .node = node,
                                          .given = i,
                                          .host = certificate_text(node, "host"),
                                          .kind = certificate_text(node, "kind"),
                                          .finished = certificate_text(results_tree(certificates[i]), "finished") };
        }
    }
    if (f->n > 0) qsort(f->entries, f->n, sizeof *f->entries, by_host);
    for (size_t i = 0; i < f->n; i++) {
        f->entries[i].latest = i == 0 || strcmp(f->entries[i].host, f->entries[i - 1].host) != 0;
        f->entries[i].before =
            i + 1 < f->n && strcmp(f->entries[i].host, f->entries[i + 1].host) == 0 ? i + 1 : SIZE_MAX;
    }
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

static const json_t *find_check(const entry *e, const char *id)
{
    size_t  i;
    json_t *check;
    json_array_foreach(certificate_checks(e->certificate), i, check)
    {
        if (strcmp(certificate_text(check, "id"), id) == 0) return check;
    }
    return NULL;
}

/* The median of a figure over the places of a node; NAN: none. */
static double median_of(const entry *e, const char *id, const char *name)
{
    size_t        i, n = 0;
    json_t       *one;
    double        median = (double)NAN;
    const json_t *figures = json_object_get(find_check(e, id), "figures");
    double       *values = tm_alloc((json_array_size(figures) + 1) * sizeof *values);
    json_array_foreach(figures, i, one)
    {
        const double value = certificate_number(one, "value");
        if (strcmp(certificate_text(one, "name"), name) == 0 && isfinite(value) &&
            strcmp(certificate_host(e->certificate, one), e->host) == 0)
            values[n++] = value;
    }
    if (n > 0) median = tm_stats_median(values, (int64_t)n);
    free(values);
    return median;
}

/* The median of the latest of the other nodes of its kind; NAN: none. */
static double median_of_others(const fleet *f, const entry *e, const char *id, const char *name)
{
    size_t  n = 0;
    double  median = (double)NAN;
    double *values = tm_alloc((f->n + 1) * sizeof *values);
    for (size_t i = 0; i < f->n; i++) {
        const entry *other = &f->entries[i];
        if (!other->latest || other == e || strcmp(other->kind, e->kind) != 0) continue;
        const double value = median_of(other, id, name);
        if (isfinite(value)) values[n++] = value;
    }
    if (n > 0) median = tm_stats_median(values, (int64_t)n);
    free(values);
    return median;
}

static void begin_row(const fleet *f, const entry *e, const char *id, const char *item)
{
    tm_table_row(f->details);
    tm_table_text(f->details, "host", e->host);
    tm_table_text(f->details, "check", id);
    tm_table_text(f->details, "item", item);
}

static void add_figure(const fleet *f, const entry *e, const char *id, const json_t *figure)
{
    const char  *name = certificate_text(figure, "name");
    const double value = median_of(e, id, name), others = median_of_others(f, e, id, name);
    begin_row(f, e, id, name);
    if (isfinite(value)) tm_table_printf(f->details, "value", "%.6g", value);
    tm_table_text(f->details, "unit", certificate_text(figure, "unit"));
    tm_table_f64(f->details, "others", others);
    if (others > 0) tm_table_f64(f->details, "difference_percent", 100 * (value / others - 1));
    if (e->before == SIZE_MAX) return;
    const double before = median_of(&f->entries[e->before], id, name);
    if (!isfinite(before)) return;
    tm_table_printf(f->details, "before", "%.6g", before);
    tm_table_text(f->details, "before_on", f->entries[e->before].finished);
}

static void add_figures(const fleet *f, const entry *e, const json_t *check)
{
    size_t        i, k;
    json_t       *one;
    const char   *id = certificate_text(check, "id");
    const json_t *figures = json_object_get(check, "figures");
    json_array_foreach(figures, i, one)
    {
        bool seen = strcmp(certificate_text(one, "sense"), "told") == 0 ||
                    strcmp(certificate_host(e->certificate, one), e->host) != 0;
        for (k = 0; k < i && !seen; k++) {
            const json_t *earlier = json_array_get(figures, k);
            seen = strcmp(certificate_text(earlier, "name"), certificate_text(one, "name")) == 0 &&
                   strcmp(certificate_host(e->certificate, earlier), e->host) == 0;
        }
        if (!seen) add_figure(f, e, id, one);
    }
}

/* --- facts -------------------------------------------------------------------------------------------------------- */

static const char *fact_of(const entry *e, const char *id, const json_t *like)
{
    size_t  i;
    json_t *one;
    json_array_foreach(json_object_get(find_check(e, id), "facts"), i, one)
    {
        if (strcmp(certificate_text(one, "name"), certificate_text(like, "name")) == 0 &&
            strcmp(certificate_text(one, "place"), certificate_text(like, "place")) == 0 &&
            strcmp(certificate_host(e->certificate, one), e->host) == 0)
            return certificate_text(one, "text");
    }
    return NULL;
}

static void add_changes(const fleet *f, const entry *e, const json_t *check)
{
    size_t      i;
    json_t     *one;
    const char *id = certificate_text(check, "id");
    if (e->before == SIZE_MAX) return;
    json_array_foreach(json_object_get(check, "facts"), i, one)
    {
        if (!json_is_true(json_object_get(one, "kept")) || strcmp(certificate_host(e->certificate, one), e->host) != 0)
            continue;
        const char *text = certificate_text(one, "text"), *place = certificate_text(one, "place");
        const char *before = fact_of(&f->entries[e->before], id, one);
        if (!before || strcmp(before, text) == 0) continue;
        char item[160];
        snprintf(item, sizeof item, "%.60s%s%.60s", certificate_text(one, "name"), *place ? " of " : "", place);
        begin_row(f, e, id, item);
        tm_table_text(f->details, "value", text);
        tm_table_text(f->details, "before", before);
        tm_table_text(f->details, "before_on", f->entries[e->before].finished);
    }
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

/* A column for each check that any of the latest has, in their order. */
static void add_columns(const fleet *f)
{
    static const tm_column first[] = { { "node", 0 }, { "finished", 0 }, { "verdict", 0 } };
    size_t                 k;
    json_t                *check;
    tm_table_columns(f->nodes, first, sizeof first / sizeof first[0]);
    for (size_t i = 0; i < f->n; i++) {
        json_array_foreach(certificate_checks(f->entries[i].certificate), k, check)
        {
            const char *id = certificate_text(check, "id");
            if (f->entries[i].latest && tm_table_find(f->nodes, id) < 0) tm_table_column(f->nodes, id, 0);
        }
    }
}

/* Returns whether a check fails. */
static bool add_node(const fleet *f, const entry *e)
{
    static const char *const order[] = { "skip", "pass", "no verdict", "fail" };
    size_t                   k;
    int                      worst = 0;
    json_t                  *check;
    tm_table_row(f->nodes);
    tm_table_text(f->nodes, "node", e->host);
    tm_table_text(f->nodes, "finished", e->finished);
    json_array_foreach(certificate_checks(e->certificate), k, check)
    {
        const char *verdict = tm_results_certificate_of_host(e->certificate, k, e->host);
        tm_table_text(f->nodes, certificate_text(check, "id"), verdict);
        for (int i = worst + 1; i < 4; i++)
            if (strcmp(verdict, order[i]) == 0) worst = i;
        add_figures(f, e, check);
        add_changes(f, e, check);
    }
    tm_table_text(f->nodes, "verdict", order[worst]);
    return worst == 3;
}

tm_status tm_results_certificates(const tm_result *const *certificates, size_t n, tm_table **nodes, tm_table **details,
                                  size_t *failed, tm_error *err)
{
    static const tm_column columns[] = { { "host", 0 },
                                         { "check", 0 },
                                         { "item", 0 },
                                         { "value", 0 },
                                         { "unit", 0 },
                                         { "others", 6 },
                                         { "difference_percent", 2 },
                                         { "before", 0 },
                                         { "before_on", 0 } };
    fleet                  f = { 0 };
    size_t                 n_nodes = 0;
    *failed = 0;
    *nodes = *details = NULL;
    for (size_t i = 0; i < n; i++)
        if (tm_result_kind_of(certificates[i]) != TM_RESULT_CERTIFICATE)
            return tm_fail(err, TM_INVALID,
                           "'%s' is no certificate; --fleet takes certificates (`trainmark certify`) or runs, not both",
                           tm_result_name(certificates[i]));
    f.nodes = *nodes = tm_table_create("nodes");
    f.details = *details = tm_table_create("details");
    collect(&f, certificates, n);
    add_columns(&f);
    tm_table_columns(f.details, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < f.n; i++) {
        if (!f.entries[i].latest) continue;
        n_nodes++;
        *failed += add_node(&f, &f.entries[i]);
    }
    tm_table_note(f.nodes, "%zu of %zu nodes do not fail", n_nodes - *failed, n_nodes);
    free(f.entries);
    return TM_OK;
}
