/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/judge_facts.c - facts of one name: the majority names the odd ones; what has changed since earlier
 * certificates.
 */
#include "apps/node/judge_facts.h"

#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- sets of hosts ------------------------------------------------------------------------------------------------ */

void judge_hosts_add(judge_hosts *hosts, const char *name)
{
    hosts->names = tm_grow(hosts->names, &hosts->room, hosts->n, sizeof *hosts->names);
    hosts->names[hosts->n++] = name;
}

bool judge_hosts_has(const judge_hosts *hosts, const char *name)
{
    for (size_t i = 0; i < hosts->n; i++)
        if (strcmp(hosts->names[i], name) == 0) return true;
    return false;
}

void judge_hosts_fini(judge_hosts *hosts)
{
    free(hosts->names);
    *hosts = (judge_hosts){ 0 };
}

/* --- the majority ------------------------------------------------------------------------------------------------- */

typedef struct {
    const tm_node_fact *fact;
    const tm_node_site *site;
    size_t              like; /* how many have the same text */
} entry;

static int by_group(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int          order = strcmp(x->site->kind, y->site->kind);
    if (order == 0) order = strcmp(x->fact->name, y->fact->name);
    if (order == 0) order = strcmp(x->fact->text, y->fact->text);
    if (order == 0) order = (x->fact > y->fact) - (x->fact < y->fact);
    return order;
}

static void find_odd(tm_node_outcome *o, const entry *odd, const entry *right, size_t n)
{
    tm_node_find(o, odd->fact->rank, odd->fact->place, "%s is '%.64s'; expected: '%.64s', which %zu of %zu places have",
                 odd->fact->name, odd->fact->text, right->fact->text, right->like, n);
}

static void find_tie(tm_node_outcome *o, const entry *one, const entry *other, size_t n)
{
    const char *place = other->fact->place;
    if (n == 2)
        tm_node_find(o, one->fact->rank, one->fact->place,
                     "%s is '%.40s', but '%.40s' at %s%srank %d of %.40s: one of the two; a third node decides",
                     one->fact->name, one->fact->text, other->fact->text, place, place[0] ? ", " : "",
                     other->fact->rank, other->site->host);
    else
        tm_node_find(o, one->fact->rank, one->fact->place,
                     "%s is '%.40s' at %zu of %zu places, '%.40s' at %zu: no majority; certify with more nodes",
                     one->fact->name, one->fact->text, one->like, n, other->fact->text, other->like);
}

/* The first one of the entries with the most frequent text other than that of `than`; NULL: of all. */
static const entry *most_frequent(const entry *e, size_t n, const entry *than)
{
    const entry *most = NULL;
    for (size_t i = 0; i < n; i++)
        if ((!than || strcmp(e[i].fact->text, than->fact->text) != 0) && (!most || e[i].like > most->like))
            most = &e[i];
    return most;
}

/* n facts of one name, ordered by text. */
static void judge_group(tm_node_outcome *o, entry *e, size_t n)
{
    for (size_t begin = 0, end; begin < n; begin = end) {
        for (end = begin; end < n && strcmp(e[end].fact->text, e[begin].fact->text) == 0;) end++;
        for (size_t i = begin; i < end; i++) e[i].like = end - begin;
    }
    const entry *right = most_frequent(e, n, NULL), *second = most_frequent(e, n, right);
    if (!second) return;
    for (size_t i = 0; i < n; i++)
        if (2 * right->like <= n)
            find_tie(o, &e[i], strcmp(e[i].fact->text, right->fact->text) == 0 ? second : right, n);
        else if (e[i].like != right->like)
            find_odd(o, &e[i], right, n);
}

/* --- earlier certificates ----------------------------------------------------------------------------------------- */

/* The fact like this one, of a host; NULL: there is none. */
static const tm_node_fact *find_fact(const tm_node_outcome *o, const tm_node_site *sites, const char *host,
                                     const tm_node_fact *like)
{
    for (size_t i = 0; i < o->n_facts; i++) {
        const tm_node_fact *f = &o->facts[i];
        if (f->kept && strcmp(f->name, like->name) == 0 && strcmp(f->place, like->place) == 0 &&
            strcmp(sites[f->rank].host, host) == 0)
            return f;
    }
    return NULL;
}

/* What the nodes of one kind say of a fact, each in its latest certificate, but this one. */
typedef struct {
    const char *text; /* of those that agree; NULL: none, or they do not */
    size_t      n;
    bool        agree;
} fleet;

static void add_opinion(fleet *f, const char *text)
{
    f->agree = f->n++ == 0 || (f->agree && strcmp(f->text, text) == 0);
    f->text = text;
}

static fleet ask_fleet(const entry *own, const tm_node_site *sites, const tm_node_outcome *o,
                       const tm_node_earlier *earlier, size_t n)
{
    fleet       f = { 0 };
    judge_hosts seen = { 0 };
    judge_hosts_add(&seen, own->site->host);
    for (size_t i = 0; i <= n; i++) { /* this certificate, then the earlier ones */
        const tm_node_outcome *from = i == 0 ? o : earlier[i - 1].outcome;
        const tm_node_site    *at = i == 0 ? sites : earlier[i - 1].sites;
        for (size_t k = 0; k < from->n_facts; k++) {
            const tm_node_fact *one = &from->facts[k];
            const tm_node_site *site = &at[one->rank];
            if (!one->kept || strcmp(one->name, own->fact->name) != 0 || strcmp(one->place, own->fact->place) != 0 ||
                strcmp(site->kind, own->site->kind) != 0 || judge_hosts_has(&seen, site->host))
                continue;
            judge_hosts_add(&seen, site->host);
            add_opinion(&f, one->text);
        }
    }
    judge_hosts_fini(&seen);
    return f;
}

/* Has the node changed? */
static void tell_drift(const entry *own, tm_node_outcome *o, const tm_node_earlier *earlier, size_t n)
{
    const tm_node_fact *f = own->fact, *last = NULL;
    for (size_t i = 0; i < n && !last; i++) {
        last = find_fact(earlier[i].outcome, earlier[i].sites, own->site->host, f);
        if (last && strcmp(last->text, f->text) != 0)
            tm_node_tell(o, f->rank, f->place, "%s is '%.64s'; it was '%.64s' on %.10s", f->name, f->text, last->text,
                         earlier[i].finished);
    }
}

/* Is it alone with what it has? */
static void judge_alone(const entry *own, const tm_node_site *sites, tm_node_outcome *o, const tm_node_earlier *earlier,
                        size_t n)
{
    enum { FEWEST = 2 };
    const tm_node_fact *f = own->fact;
    const fleet         others = ask_fleet(own, sites, o, earlier, n);
    if (others.n >= FEWEST && others.agree && strcmp(others.text, f->text) != 0)
        tm_node_find(o, f->rank, f->place,
                     "%s is '%.64s'; expected: '%.64s', which all %zu other nodes of the fleet have in their latest "
                     "certificates",
                     f->name, f->text, others.text, others.n);
}

/* Has the majority of this certificate found it already? Then that is enough. */
static bool is_found(const tm_node_outcome *o, size_t from, size_t to, const tm_node_fact *f)
{
    const size_t length = strlen(f->name);
    for (size_t i = from; i < to; i++)
        if (o->findings[i].rank == f->rank && strcmp(o->findings[i].place, f->place) == 0 &&
            strncmp(o->findings[i].text, f->name, length) == 0 &&
            strncmp(o->findings[i].text + length, " is '", 5) == 0)
            return true;
    return false;
}

void judge_facts(const tm_node_site *sites, tm_node_outcome *o, const tm_node_earlier *earlier, size_t n)
{
    const size_t from = o->n_findings, count = o->n_facts;
    entry       *e = tm_alloc((count + 1) * sizeof *e);
    for (size_t i = 0; i < count; i++) e[i] = (entry){ .fact = &o->facts[i], .site = &sites[o->facts[i].rank] };
    qsort(e, count, sizeof *e, by_group);
    for (size_t begin = 0, end; begin < count; begin = end) {
        for (end = begin; end < count && strcmp(e[end].fact->name, e[begin].fact->name) == 0 &&
                          strcmp(e[end].site->kind, e[begin].site->kind) == 0;)
            end++;
        judge_group(o, e + begin, end - begin);
    }
    const size_t here = o->n_findings;
    for (size_t i = 0; n > 0 && i < count; i++) {
        if (!e[i].fact->kept) continue;
        tell_drift(&e[i], o, earlier, n);
        if (!is_found(o, from, here, e[i].fact)) judge_alone(&e[i], sites, o, earlier, n);
    }
    free(e);
}
