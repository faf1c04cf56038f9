/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on several GPUs that are emulated, a process for each rank, over stand-ins for NCCL and RCCL. */
#ifndef TESTS_GPU_RANK_JOBS_H
#define TESTS_GPU_RANK_JOBS_H

#include "train/run/run.h"

#include <signal.h>

enum { STEPS = 3, BATCH = 4, MOST = 8, VOCAB = 64, SEQ = 16 };

/* How ranks are laid out, and of what model. */
typedef struct {
    const char *words;
    int         ranks, copies, tensor, context, stages, experts;
    int         sharing, order;  /* tm_sharing, tm_pipeline_order */
    int         chunks;          /* stages of each rank; 0: one */
    int         samples, layers; /* of a step; of the model; 0: BATCH, 2 */
    int         percent;         /* capacity of experts: rows of a round; 0: all in one */
    int         tied, divide_head, mixture;
    int         let_go;                          /* with stages: shards are gathered for each micro-batch */
    int         ring, whole_rows, narrow, keeps; /* keeps: weights stay gathered after the forward pass */
    int         codes;                           /* products of 8 bits, on CPUs emulated */
} plan_of;

/* "ranks=4 stages=2 order=zbv tied=1": members by name; sharing: optimizer, gradients, weights; order: gpipe, 1f1b,
 * interleaved, interleaved_zero, zbv, dual_v. Any other word ends the test. */
plan_of plan_from(const char *words);
/* One rank with the same model. */
plan_of alone_of(const plan_of *plan);

/* What a rank found; in memory that its process shares with the test. */
typedef struct {
    tm_status status;
    char      said[2048], device[240], sums[128];
    double    loss[STEPS + 1], norm[STEPS + 1], validation, communication, gap;
    uint64_t  weights;
    int64_t   first_step, last_step;
} found;

typedef struct {
    tm_sink               sink;
    const char           *device, *folder; /* folder: of checkpoints; NULL: none */
    const tm_precision   *precision;
    plan_of               plan;
    int64_t               stop_after; /* 0: it goes on to its end */
    double                deadline;
    bool                  one_by_one;
    int                   death; /* signal that rank 1 gets after its first step; 0: none */
    int                   rank;
    volatile sig_atomic_t stop;
    found                *out;
} job;

job new_job(const char *device, const plan_of *plan, const tm_precision *precision);
/* All ranks of a job; each one's code of its end is left in `codes`, 128 + signal. Given back with munmap. */
found *run_all(const job *j, int codes[MOST]);
void   end_all(found *all);
/* The first rank's, of a job in which all have to end so. */
found run_job(const job *j, tm_status wanted);
/* Losses and norms of steps `from` .. STEPS. */
void   compare_runs(const job *j, const found *a, const found *b, int from, double bound);
double bound_for(const plan_of *plan, const tm_precision *precision);
/* GPUs beside processors in the same layout, and beside one rank. */
void trains(const char *device, const plan_of *plan, const tm_precision *precision);
/* Skips where the stand-ins are not. */
void begin_on(const char *device);

#endif
