/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/gather.c - the outcomes of all ranks in those of the first one. */
#include "apps/node/node.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* Of one check and rank, before its figures, facts and findings. */
typedef struct {
    tm_node_verdict verdict;
    char            reason[TM_NODE_TEXT], reach[TM_NODE_TEXT];
    double          seconds;
    size_t          n_figures, n_facts, n_findings, n_told;
} head;

typedef struct {
    unsigned char *data;
    size_t         n, room;
} parcel;

static void put(parcel *p, const void *from, size_t bytes)
{
    if (p->n + bytes > p->room) p->data = tm_realloc(p->data, p->room = 2 * (p->n + bytes));
    if (bytes > 0) memcpy(p->data + p->n, from, bytes);
    p->n += bytes;
}

static void pack(parcel *p, const tm_node_outcome *o)
{
    head h;
    memset(&h, 0, sizeof h);
    h.verdict = o->verdict, h.seconds = o->seconds;
    memcpy(h.reason, o->reason, sizeof h.reason);
    memcpy(h.reach, o->reach, sizeof h.reach);
    h.n_figures = o->n_figures, h.n_facts = o->n_facts, h.n_findings = o->n_findings, h.n_told = o->n_told;
    put(p, &h, sizeof h);
    put(p, o->figures, o->n_figures * sizeof *o->figures);
    put(p, o->facts, o->n_facts * sizeof *o->facts);
    put(p, o->findings, o->n_findings * sizeof *o->findings);
    put(p, o->told, o->n_told * sizeof *o->told);
}

static void take(const unsigned char **from, void *to, size_t bytes)
{
    memcpy(to, *from, bytes);
    *from += bytes;
}

/* Worse ones count more: fail, no verdict, pass; SKIP counts if there is nothing else. */
static int weight(tm_node_verdict v)
{
    static const int weights[TM_NODE_VERDICTS] = { 1, 3, 2, 0 };
    return weights[v];
}

/* Adds what a rank has packed. */
static void unpack(const unsigned char **from, tm_node_outcome *o)
{
    head h;
    take(from, &h, sizeof h);
    if (weight(h.verdict) > weight(o->verdict)) {
        o->verdict = h.verdict;
        memcpy(o->reason, h.reason, sizeof o->reason);
    }
    if (!o->reach[0]) memcpy(o->reach, h.reach, sizeof o->reach);
    if (h.seconds > o->seconds) o->seconds = h.seconds;
    for (size_t i = 0; i < h.n_figures; i++) {
        tm_node_figure f;
        take(from, &f, sizeof f);
        tm_node_figure_add(o, &f);
    }
    for (size_t i = 0; i < h.n_facts; i++) {
        tm_node_fact f;
        take(from, &f, sizeof f);
        o->facts = tm_grow(o->facts, &o->room[1], o->n_facts, sizeof f);
        o->facts[o->n_facts++] = f;
    }
    for (size_t i = 0; i < h.n_findings; i++) {
        tm_node_finding f;
        take(from, &f, sizeof f);
        o->findings = tm_grow(o->findings, &o->room[2], o->n_findings, sizeof f);
        o->findings[o->n_findings++] = f;
    }
    for (size_t i = 0; i < h.n_told; i++) {
        tm_node_finding f;
        take(from, &f, sizeof f);
        o->told = tm_grow(o->told, &o->room[3], o->n_told, sizeof f);
        o->told[o->n_told++] = f;
    }
}

static void number(tm_node_outcome *o, int rank)
{
    for (size_t i = 0; i < o->n_figures; i++) o->figures[i].rank = rank;
    for (size_t i = 0; i < o->n_facts; i++) o->facts[i].rank = rank;
    for (size_t i = 0; i < o->n_findings; i++)
        if (o->findings[i].rank < 0) o->findings[i].rank = rank;
    for (size_t i = 0; i < o->n_told; i++)
        if (o->told[i].rank < 0) o->told[i].rank = rank;
}

/* The first rank adds what the others have packed to what it has. */
static tm_status exchange(tm_comm *world, parcel *own, tm_node_outcome *outcomes, size_t n, tm_error *err)
{
    const int rank = tm_comm_rank(world), ranks = tm_comm_size(world);
    int64_t   bytes = (int64_t)own->n;
    int64_t  *all = tm_alloc((size_t)ranks * sizeof *all);
    tm_status st = tm_comm_run(world,
                               &(tm_collective){ .kind = TM_COMM_ALL_GATHER,
                                                 .format = TM_COMM_INT64,
                                                 .send = &bytes,
                                                 .receive = all,
                                                 .count = 1,
                                                 .what = "sizes of outcomes",
                                                 .step = -1 },
                               err);
    for (int r = 1; r < ranks && st == TM_OK; r++) {
        const size_t   count = (size_t)all[r];
        unsigned char *data = rank == 0 ? tm_alloc(count) : NULL;
        if (rank == 0 || rank == r)
            st = tm_comm_run(world,
                             &(tm_collective){ .kind = rank == 0 ? TM_COMM_RECEIVE : TM_COMM_SEND,
                                               .format = TM_COMM_BYTES,
                                               .send = own->data,
                                               .receive = data,
                                               .count = count,
                                               .peer = rank == 0 ? r : 0,
                                               .what = "outcomes",
                                               .step = -1 },
                             err);
        const unsigned char *at = data;
        for (size_t i = 0; rank == 0 && st == TM_OK && i < n; i++) unpack(&at, &outcomes[i]);
        free(data);
    }
    free(all);
    return st;
}

tm_status tm_node_gather(tm_comm *world, tm_node_outcome *outcomes, tm_error *err)
{
    size_t n;
    parcel own = { 0 };
    tm_node_checks(&n);
    for (size_t i = 0; i < n; i++) number(&outcomes[i], world ? tm_comm_rank(world) : 0);
    if (!world || tm_comm_size(world) == 1) return TM_OK;
    for (size_t i = 0; i < n; i++) pack(&own, &outcomes[i]);
    tm_status st = exchange(world, &own, outcomes, n, err);
    free(own.data);
    return st;
}
