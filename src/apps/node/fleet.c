/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/fleet.c - earlier certificates, read from the store of results, beside which this one is judged. */
#include "base/arena.h"
#include "apps/node/certificate.h"
#include "apps/node/judge.h"
#include "results/store.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of one earlier certificate. */
typedef struct {
    const char      *finished;
    tm_node_site    *sites;
    int              ranks;
    tm_node_outcome *outcomes; /* by the checks of this program */
} earlier;

enum { MOST = 500, RANKS = 1 << 20 }; /* certificates that are looked at; ranks that a document may name */

/* --- a document --------------------------------------------------------------------------------------------------- */

static void copy(char *to, size_t size, const json_t *object, const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));
    snprintf(to, size, "%s", text ? text : "");
}

static double number(const json_t *object, const char *member)
{
    const json_t *value = json_object_get(object, member);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* The rank that an entry names; false: none of this certificate. */
static bool rank_of(const earlier *e, const json_t *entry, int *rank)
{
    const json_int_t value = json_integer_value(json_object_get(entry, "rank"));
    *rank = (int)value;
    return value >= 0 && value < e->ranks;
}

static void take_sites(earlier *e, const json_t *nodes, tm_arena *arena)
{
    size_t     i, k;
    json_int_t most = -1;
    json_t    *node, *one;
    json_array_foreach(nodes, i, node)
    {
        json_array_foreach(json_object_get(node, "ranks"), k, one)
        {
            if (json_integer_value(one) > most) most = json_integer_value(one);
        }
    }
    if (most < 0 || most >= RANKS) return;
    e->ranks = (int)most + 1;
    e->sites = tm_arena_take(arena, (size_t)e->ranks * sizeof *e->sites);
    memset(e->sites, 0, (size_t)e->ranks * sizeof *e->sites);
    json_array_foreach(nodes, i, node)
    {
        json_array_foreach(json_object_get(node, "ranks"), k, one)
        {
            const json_int_t rank = json_integer_value(one);
            if (rank < 0) continue;
            e->sites[rank].number = (int)i;
            copy(e->sites[rank].host, sizeof e->sites[rank].host, node, "host");
            copy(e->sites[rank].kind, sizeof e->sites[rank].kind, node, "kind");
        }
    }
}

static tm_node_sense sense_of(const json_t *figure)
{
    const char *sense = json_string_value(json_object_get(figure, "sense"));
    return sense && strcmp(sense, "speed") == 0  ? TM_NODE_SPEED
           : sense && strcmp(sense, "time") == 0 ? TM_NODE_TIME
                                                 : TM_NODE_TOLD;
}

static void take_check(const earlier *e, const json_t *check, tm_node_outcome *o)
{
    size_t  i;
    int     rank;
    json_t *one;
    json_array_foreach(json_object_get(check, "figures"), i, one)
    {
        tm_node_figure f = { .sense = sense_of(one),
                             .value = number(one, "value"),
                             .low = number(one, "low"),
                             .high = number(one, "high"),
                             .floor = number(one, "floor") };
        copy(f.name, sizeof f.name, one, "name");
        copy(f.unit, sizeof f.unit, one, "unit");
        copy(f.place, sizeof f.place, one, "place");
        if (!rank_of(e, one, &rank)) continue;
        tm_node_figure_add(o, &f);
        o->figures[o->n_figures - 1].rank = rank;
    }
    json_array_foreach(json_object_get(check, "facts"), i, one)
    {
        tm_node_fact f;
        copy(f.name, sizeof f.name, one, "name");
        copy(f.place, sizeof f.place, one, "place");
        copy(f.text, sizeof f.text, one, "text");
        if (!rank_of(e, one, &rank)) continue;
        tm_node_fact_add(o, f.name, f.place, json_is_true(json_object_get(one, "kept")), f.text);
        o->facts[o->n_facts - 1].rank = rank;
    }
}

static void take_document(earlier *e, const json_t *tree, tm_arena *arena)
{
    size_t               i, n;
    json_t              *check;
    const tm_node_check *checks = tm_node_checks(&n);
    e->outcomes = tm_arena_take(arena, n * sizeof *e->outcomes);
    memset(e->outcomes, 0, n * sizeof *e->outcomes);
    take_sites(e, json_object_get(tree, "nodes"), arena);
    json_array_foreach(json_object_get(tree, "checks"), i, check)
    {
        const char *id = json_string_value(json_object_get(check, "id"));
        for (size_t k = 0; id && k < n; k++)
            if (strcmp(checks[k].id, id) == 0) take_check(e, check, &e->outcomes[k]);
    }
}

/* --- the store ---------------------------------------------------------------------------------------------------- */

/* The newest certificates; a document that does not parse is passed over. */
static tm_status read_store(tm_store *store, tm_arena *arena, earlier **all, size_t *n, tm_error *err)
{
    size_t     count;
    tm_stored *rows;
    TM_TRY(tm_store_list(store, &(tm_store_filter){ .kind = "certificate", .limit = MOST }, arena, &rows, &count, err));
    *all = tm_arena_take(arena, (count + 1) * sizeof **all);
    tm_status st = TM_OK;
    for (size_t i = 0; st == TM_OK && i < count; i++) {
        tm_text text = { 0 };
        bool    there = false;
        st = tm_store_document(store, rows[i].id, TM_DOCUMENT_RESULT, &text, &there, err);
        json_t *tree = st == TM_OK && there ? json_loadb(text.data, text.length, 0, NULL) : NULL;
        if (tree) {
            earlier *e = &(*all)[(*n)++];
            *e = (earlier){ .finished = rows[i].finished };
            take_document(e, tree, arena);
        }
        json_decref(tree);
        tm_text_fini(&text);
    }
    return st;
}

static void judge_each(tm_node_certificate *c, const earlier *all, size_t n)
{
    size_t           checks;
    tm_node_earlier *of_check = tm_alloc((n + 1) * sizeof *of_check);
    tm_node_checks(&checks);
    for (size_t k = 0; k < checks; k++) {
        for (size_t i = 0; i < n; i++)
            of_check[i] = (tm_node_earlier){ all[i].finished, all[i].sites, &all[i].outcomes[k] };
        tm_node_judge(c->sites, &c->outcomes[k], of_check, n);
    }
    free(of_check);
}

tm_status tm_node_judge_all(tm_node_certificate *c, const char *path, tm_error *err)
{
    size_t    n = 0, checks;
    earlier  *all = NULL;
    tm_store *store = NULL;
    tm_arena *arena = tm_arena_create();
    tm_status st = path ? tm_store_open(path, true, &store, err) : TM_OK;
    tm_node_checks(&checks);
    if (st == TM_OK && store) st = read_store(store, arena, &all, &n, err);
    if (st == TM_OK) judge_each(c, all, n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < checks; k++) tm_node_outcome_fini(&all[i].outcomes[k]);
    tm_store_close(store);
    tm_arena_destroy(arena);
    return st;
}
