/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/node.h - is this node fit to train? Ten checks measure and compare; one file judges; docs/certify.md.
 *
 * A check is one row of checks.def and one file. It adds *figures* (a speed of core 3), *facts* (the hash of a step on
 * core 3) and *findings* (this memory word is wrong). What is alike is compared by apps/node/judge.h, whoever measured
 * it: facts of one name must be equal everywhere, and the majority names the odd one; a speed must not be below the
 * others'.
 */
#ifndef TM_NODE_NODE_H
#define TM_NODE_NODE_H

#include "base/status.h"
#include "comm/comm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    TM_NODE_PASS,
    TM_NODE_FAIL,       /* something is wrong, and it is named */
    TM_NODE_NO_VERDICT, /* too noisy, or too little time: neither */
    TM_NODE_SKIP,       /* not possible here; the reason says why */
    TM_NODE_VERDICTS
} tm_node_verdict;

const char *tm_node_verdict_name(tm_node_verdict verdict); /* "pass", "fail", "no verdict", "skip" */

enum { TM_NODE_NAME = 48, TM_NODE_PLACE = 64, TM_NODE_TEXT = 256 };

typedef enum {
    TM_NODE_TOLD,  /* compared with nothing */
    TM_NODE_SPEED, /* higher is better: compared with the same figure of other places, hosts and certificates */
    TM_NODE_TIME   /* lower is better */
} tm_node_sense;

/* A number that was measured at a place of this node. */
typedef struct {
    char          name[TM_NODE_NAME];   /* "float32 product"; of one name all have one unit */
    char          unit[16];             /* "GFLOP/s" */
    char          place[TM_NODE_PLACE]; /* "core 3", "cuda:1", "memory of NUMA node 0"; "": the node as a whole */
    tm_node_sense sense;
    double        value, low, high; /* with its 95 % interval; NAN: none */
    double        floor;            /* part by which this figure differs between two measurements of one place */
    int           rank;             /* of whom; set by tm_node_gather */
} tm_node_figure;

/* A text that is the same at all places where it has the same name. */
typedef struct {
    char name[TM_NODE_NAME];   /* "step in bfloat16", "driver" */
    char place[TM_NODE_PLACE]; /* as above */
    char text[TM_NODE_TEXT];   /* a hash, a version */
    bool kept;                 /* also compared with earlier certificates of this kind of node (versions; not hashes of
                                * what this certificate drew) */
    int rank;
} tm_node_fact;

/* Something wrong, and where. */
typedef struct {
    char place[TM_NODE_PLACE];
    char text[TM_NODE_TEXT]; /* what was found, what was expected */
    int  rank;               /* the culprit's, which another rank may have seen */
} tm_node_finding;

/* What a check found. Zero-initialise; free with tm_node_outcome_fini. */
typedef struct {
    tm_node_verdict  verdict;              /* FAIL as soon as there is a finding */
    char             reason[TM_NODE_TEXT]; /* of SKIP and NO_VERDICT */
    char             reach[TM_NODE_TEXT];  /* what it would have found this time, in numbers */
    double           seconds;
    tm_node_figure  *figures;
    tm_node_fact    *facts;
    tm_node_finding *findings;
    tm_node_finding *told; /* what is different, and fails nothing: a driver that is newer than last time */
    size_t           n_figures, n_facts, n_findings, n_told;
    size_t           room[4];
} tm_node_outcome;

void tm_node_outcome_fini(tm_node_outcome *outcome);
/* Copies; `rank` is filled in. */
void tm_node_figure_add(tm_node_outcome *outcome, const tm_node_figure *figure);
void tm_node_fact_add(tm_node_outcome *outcome, const char *name, const char *place, bool kept, const char *text);
/* rank: the culprit's; -1: whoever runs the check. */
void tm_node_find(tm_node_outcome *outcome, int rank, const char *place, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same for what fails nothing. */
void tm_node_tell(tm_node_outcome *outcome, int rank, const char *place, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void tm_node_skip(tm_node_outcome *outcome, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tm_node_undecided(tm_node_outcome *outcome, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tm_node_reach(tm_node_outcome *outcome, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What a certificate is made with. */
typedef struct {
    const char *only;    /* comma-separated ids; with '-' in front: all but these; NULL: all */
    double      minutes; /* about what all checks take together, at least 0.1 */
    uint64_t    seed;    /* of everything that is drawn */
    const char *devices; /* comma-separated ("cuda:0,cuda:1"), NULL: the CPU, and every GPU that is there */
    const char *folder;  /* where the disk is written */
    const char *sysroot; /* "" for the running system */
    tm_comm    *world;   /* NULL: one process */
    void (*begins)(const char *id, void *data); /* told before each check; NULL: nobody */
    void *data;
} tm_node_options;

/* What a check gets. */
typedef struct {
    const tm_node_options *options;
    double                 seconds; /* that it may take, about */
    int                    rank, ranks;
    int                    on_host; /* ranks of this host, which share its processors and memory */
    bool                   first;   /* rank of its host: it alone does what is done once a host */
} tm_node_task;

typedef struct {
    const char *id, *title;
    double      share; /* of the minutes */
    /* Every rank runs it. TM_UNSUPPORTED is a SKIP with that reason, TM_INTERRUPTED ends all, other failures of the
     * node are findings. A check that calls collectives does so on all ranks, whatever it finds. */
    tm_status (*run)(const tm_node_task *task, tm_node_outcome *out, tm_error *err);
    const char *finds, *cannot; /* what it would find, what it cannot; a phrase each */
} tm_node_check;

/* In the order in which they run. */
const tm_node_check *tm_node_checks(size_t *n);

/* The outcomes of this rank, (count of tm_node_checks); SKIP "not asked for" where `only` leaves one out. TM_USAGE: a
 * name in `only` that no check has, with the nearest. */
TM_MUST_USE tm_status tm_node_run(const tm_node_options *options, tm_node_outcome *outcomes, tm_error *err);

/* Every rank calls it: rank 0 gets those of all ranks in its own outcomes, figures, facts and findings with the rank.
 * Of verdicts the worst: fail, no verdict, pass; SKIP if all skip. Alone, it numbers them only. */
TM_MUST_USE tm_status tm_node_gather(tm_comm *world, tm_node_outcome *outcomes, tm_error *err);

/* Where a rank runs. */
typedef struct {
    char host[TM_NODE_PLACE];
    int  number;             /* of its host, from 0, in the order of the first ranks */
    char kind[TM_NODE_TEXT]; /* of the node: processor and its threads, GPUs; nodes of one kind can be compared */
} tm_node_site;

/* Every rank calls it: sites[] (one for each rank) of all ranks, on all ranks. world NULL: one. */
TM_MUST_USE tm_status tm_node_sites(tm_comm *world, const char *sysroot, tm_node_site *sites, tm_error *err);

#endif
