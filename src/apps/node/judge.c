/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/judge.c - figures: is a place, or a node, slower than the others? Facts: apps/node/judge_facts.c. */
#include "apps/node/judge.h"

#include "base/arena.h"
#include "apps/node/judge_facts.h"
#include "stats/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the rule ----------------------------------------------------------------------------------------------------- */

/* Multiples: docs/certify.md derives them. */
static const double floors_many = 2, floors_few = 3, deviations = 3, errors = 5;
enum { MANY = 3 }; /* others from which a spread can be seen */

double tm_node_limit(tm_node_sense sense, const tm_node_sample *x, const tm_node_sample *others, size_t n, double *gap)
{
    double *values = tm_alloc(3 * n * sizeof *values), *floors = values + n, *sigmas = floors + n;
    for (size_t i = 0; i < n; i++) {
        values[i] = others[i].value;
        floors[i] = others[i].floor;
        sigmas[i] = others[i].error;
    }
    const int64_t count = (int64_t)n;
    const bool    many = n >= MANY;
    double        m = tm_stats_median(values, count), of_median = tm_stats_median(sigmas, count);
    for (size_t i = 0; i < n && !many; i++) /* the worst one: of three places one at most is slow */
        m = sense == TM_NODE_SPEED ? fmin(m, values[i]) : fmax(m, values[i]);
    const double spread = many ? tm_stats_robust_deviation(values, count) / m : 0;
    const double limit = fmax(x->floor, tm_stats_median(floors, count)) * (many ? floors_many : floors_few);
    free(values);
    *gap = (sense == TM_NODE_SPEED ? m - x->value : x->value - m) / m;
    if (!(m > 0)) return (double)NAN;
    return fmax(limit, fmax(deviations * spread, errors * hypot(x->error, of_median) / m));
}

/* --- values that are compared ------------------------------------------------------------------------------------- */

/* A place, or a node as a whole. */
typedef struct {
    tm_node_sample        sample;
    const tm_node_figure *figure; /* of the place; of a node: one of its figures */
    const tm_node_site   *site;
    char                  stem[TM_NODE_PLACE]; /* its place without numbers: a core is not compared with a GPU */
} value;

typedef struct {
    const tm_node_site    *sites;
    tm_node_outcome       *outcome;
    const tm_node_earlier *earlier;
    size_t                 n_earlier;
    double                 reach; /* of the figure at hand: what is found of the worst of its places, as a part */
} judge;

static bool is_compared(const tm_node_figure *f)
{
    return f->sense != TM_NODE_TOLD && isfinite(f->value) && isfinite(f->floor) && f->floor > 0;
}

/* "core 3" and "core 17" are "core ", "rank 0 to rank 2" is "rank  to rank ". */
static void stem_of(const char *place, char stem[TM_NODE_PLACE])
{
    size_t n = 0;
    for (const char *c = place; *c && n + 1 < TM_NODE_PLACE; c++)
        if (*c < '0' || *c > '9') stem[n++] = *c;
    stem[n] = '\0';
}

static value value_of(const tm_node_figure *f, const tm_node_site *site)
{
    const double width = f->high - f->low;
    value v = { .sample = { f->value, isfinite(width) ? width / (2 * 1.96) : 0, f->floor }, .figure = f, .site = site };
    stem_of(f->place, v.stem);
    return v;
}

static int by_value(const void *a, const void *b)
{
    const double x = ((const value *)a)->sample.value, y = ((const value *)b)->sample.value;
    return (x > y) - (x < y);
}

/* The median place of a node; of two in the middle that with the larger value. Sorts. */
static value of_node(value *values, size_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return values[n / 2];
}

static const char *where(const tm_node_figure *f)
{
    return f->place[0] ? f->place : "the node";
}

/* Is x worse than the others (n >= 1)? `whom`: what it is compared with, in words. */
static void compare(judge *j, const value *x, const tm_node_sample *others, size_t n, bool whole, const char *whom)
{
    double                gap;
    const tm_node_figure *f = x->figure;
    const double          limit = tm_node_limit(f->sense, &x->sample, others, n, &gap);
    if (isnan(limit)) return;
    j->reach = fmax(j->reach, limit + f->floor); /* beyond the limit, whatever this measurement's luck */
    if (!(gap > limit)) return;
    tm_node_find(j->outcome, f->rank, whole ? "" : f->place,
                 "%s: %.5g %s, %.1f %% worse than %s; expected: at most %.1f %%. Look for other work, heat "
                 "and power limits at %s, and repeat; if it stays, replace it",
                 f->name, f->value, f->unit, 100 * gap, whom, 100 * limit, whole ? x->site->host : where(f));
}

/* Each of n values beside the others. */
static void compare_all(judge *j, const value *values, size_t n, bool whole, const char *whom)
{
    enum { LEAVE_OUT = 64 }; /* of more, the median of all is that of the others */
    char            words[TM_NODE_TEXT];
    tm_node_sample *others = tm_alloc(n * sizeof *others);
    if (n > MANY)
        snprintf(words, sizeof words, "the median of the %zu other %ss", n - 1, whom);
    else
        snprintf(words, sizeof words, n > 2 ? "the slower of the 2 other %ss" : "the other %s", whom);
    for (size_t i = 0; n > 1 && i < n; i++) {
        size_t k = 0;
        for (size_t o = 0; o < n; o++)
            if (o != i || n > LEAVE_OUT) others[k++] = values[o].sample;
        compare(j, &values[i], others, k, whole, words);
    }
    free(others);
}

/* --- this certificate --------------------------------------------------------------------------------------------- */

/* Figures of one name in nodes of one kind, ordered by node: within each, then the nodes. nodes[]: the median of each;
 * returns how many. */
static size_t compare_here(judge *j, value *values, size_t n, value *nodes)
{
    size_t n_nodes = 0;
    for (size_t begin = 0, end; begin < n; begin = end) {
        for (end = begin; end < n && values[end].site->number == values[begin].site->number;) end++;
        compare_all(j, values + begin, end - begin, false, "place");
        nodes[n_nodes++] = of_node(values + begin, end - begin);
    }
    compare_all(j, nodes, n_nodes, true, "node");
    return n_nodes;
}

/* --- the fleet ---------------------------------------------------------------------------------------------------- */

/* The median of a figure of one node in an earlier certificate; false: it has none. */
static bool find_earlier(const tm_node_earlier *e, const tm_node_site *site, const value *as, value *out)
{
    const tm_node_figure  *like = as->figure;
    const tm_node_outcome *o = e->outcome;
    value                 *values = tm_alloc((o->n_figures + 1) * sizeof *values);
    size_t                 n = 0;
    for (size_t i = 0; i < o->n_figures; i++) {
        const tm_node_figure *f = &o->figures[i];
        if (is_compared(f) && f->sense == like->sense && strcmp(f->name, like->name) == 0 &&
            strcmp(f->unit, like->unit) == 0 && e->sites[f->rank].number == site->number) {
            values[n] = value_of(f, &e->sites[f->rank]);
            n += strcmp(values[n].stem, as->stem) == 0;
        }
    }
    if (n > 0) *out = of_node(values, n);
    free(values);
    return n > 0;
}

/* The latest value of every other node of the kind; *n of them, freed by the caller. */
static tm_node_sample *fleet_of(const judge *j, const value *like, const value *nodes, size_t n_nodes, size_t *n)
{
    tm_node_sample *samples = NULL;
    judge_hosts     seen = { 0 };
    size_t          room = 0;
    value           v;
    *n = 0;
    for (size_t i = 0; i < n_nodes; i++) judge_hosts_add(&seen, nodes[i].site->host);
    for (size_t i = 0; i < j->n_earlier; i++)
        for (size_t r = 0; r < j->earlier[i].outcome->n_figures; r++) {
            const tm_node_figure *f = &j->earlier[i].outcome->figures[r];
            const tm_node_site   *site = &j->earlier[i].sites[f->rank];
            if (strcmp(f->name, like->figure->name) != 0 || strcmp(site->kind, like->site->kind) != 0 ||
                judge_hosts_has(&seen, site->host) || !find_earlier(&j->earlier[i], site, like, &v))
                continue;
            judge_hosts_add(&seen, site->host);
            samples = tm_grow(samples, &room, *n, sizeof *samples);
            samples[(*n)++] = v.sample;
        }
    judge_hosts_fini(&seen);
    return samples;
}

static void compare_fleet(judge *j, const value *nodes, size_t n_nodes)
{
    enum { FEWEST = 2 };
    size_t          n;
    char            words[TM_NODE_TEXT];
    tm_node_sample *others = fleet_of(j, &nodes[0], nodes, n_nodes, &n);
    snprintf(words, sizeof words, "%s %zu nodes of earlier certificates", n >= MANY ? "the median of" : "the slower of",
             n);
    for (size_t i = 0; n >= FEWEST && i < n_nodes; i++) compare(j, &nodes[i], others, n, true, words);
    free(others);
}

/* --- all figures -------------------------------------------------------------------------------------------------- */

static int by_group(const void *a, const void *b)
{
    const value *x = a, *y = b;
    int          order = strcmp(x->site->kind, y->site->kind);
    if (order == 0) order = strcmp(x->figure->name, y->figure->name);
    if (order == 0) order = strcmp(x->stem, y->stem);
    if (order == 0) order = (x->site->number > y->site->number) - (x->site->number < y->site->number);
    if (order == 0) order = (x->figure > y->figure) - (x->figure < y->figure); /* as they were measured */
    return order;
}

/* "; slower by 3.1 % (float32 product)", as many as there is room for. */
static void add_reach(tm_node_outcome *o, const char *name, double reach)
{
    const size_t n = strlen(o->reach);
    char         words[TM_NODE_TEXT];
    const bool   first = !strstr(o->reach, "worse by ");
    const int    length = snprintf(words, sizeof words, "%s%s%.1f %% (%s)",
                                n == 0  ? ""
                                   : first ? "; "
                                           : ", ",
                                first ? "worse by " : "", 100 * reach, name);
    if (n + (size_t)length < sizeof o->reach) memcpy(o->reach + n, words, (size_t)length + 1);
}

static bool is_alike(const value *x, const value *y)
{
    return strcmp(x->site->kind, y->site->kind) == 0 && strcmp(x->figure->name, y->figure->name) == 0 &&
           strcmp(x->stem, y->stem) == 0;
}

static void judge_figures(judge *j)
{
    const size_t n = j->outcome->n_figures;
    value       *values = tm_alloc((2 * n + 1) * sizeof *values), *nodes = values + n;
    size_t       count = 0;
    for (size_t i = 0; i < n; i++) {
        const tm_node_figure *f = &j->outcome->figures[i];
        if (is_compared(f)) values[count++] = value_of(f, &j->sites[f->rank]);
    }
    qsort(values, count, sizeof *values, by_group);
    for (size_t begin = 0, end; begin < count; begin = end) {
        const char *name = values[begin].figure->name;
        for (end = begin; end < count && is_alike(&values[begin], &values[end]);) end++;
        j->reach = 0;
        compare_fleet(j, nodes, compare_here(j, values + begin, end - begin, nodes));
        if (j->reach > 0) add_reach(j->outcome, name, j->reach);
    }
    free(values);
}

void tm_node_judge(const tm_node_site *sites, tm_node_outcome *outcome, const tm_node_earlier *earlier, size_t n)
{
    judge j = { .sites = sites, .outcome = outcome, .earlier = earlier, .n_earlier = n };
    judge_figures(&j);
    judge_facts(sites, outcome, earlier, n);
}
