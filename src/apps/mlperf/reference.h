/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/reference.h - how many samples the reference needs to reach the target, per batch size, and the fewest
 * that a submission may need: the tables and statistics of the convergence test.
 *
 * A record (the public checkers' "RCP") is a batch size and the samples to converge of some twenty reference runs. From
 * a sorted list of n values, with N the runs that a submission has:
 *
 *     mean       of the list without its smallest and largest value
 *     deviation  sqrt(sum((x - mean of all)^2) / n), of the whole list
 *     minimum    smallest submission mean that a one-sided t-test (equal variances, alpha 0.05) of n - 2 reference and
 *                N - 2 submission values accepts: mean - t(0.95, n + N - 6) deviation sqrt(1 / (n - 2) + 1 / (N - 2)),
 *                found by bisection of [0, mean] to 0.0001, as the public checker does: all digits agree with its
 */
#ifndef TM_MLPERF_REFERENCE_H
#define TM_MLPERF_REFERENCE_H

#include "base/arena.h"
#include "base/status.h"
#include "apps/mlperf/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the convergence test must know of a benchmark: a row in reference.c. */
typedef struct {
    const char *name;
    int         runs;     /* of a submission */
    const char *progress; /* metadata of an evaluation that counts: "samples_count" or "epoch_num" */
    double      relief;   /* samples that a submission may be below the minimum */
} tm_reference_kind;

/* NULL if there is no row. */
const tm_reference_kind *tm_reference_kind_find(const char *name);

typedef struct {
    int64_t     batch;   /* sequences of an optimizer step */
    const char *hyper;   /* hyperparameters as a Python dictionary prints; for reading only */
    double     *samples; /* to converge, ascending; (n) */
    size_t      n;       /* 0 for an interpolated record */
    bool        whole;   /* all samples were written as integers */
    double      mean, deviation, minimum, max_speedup;
    bool        pruned; /* used in a full pass only */
} tm_reference_record;

typedef struct {
    const tm_reference_kind *kind;
    tm_reference_record     *records; /* ascending by batch, no batch twice; (n) */
    size_t                   n;
} tm_reference;

enum {
    TM_REFERENCE_MIN_VALUES = 4, /* of a record: one is left of the t-test's degrees of freedom when N is 3 */
    TM_REFERENCE_MAX_VALUES = 10000,
    TM_REFERENCE_MAX_RECORDS = 1000,
};

/* The records built in, those of a round; NULL if there are none for this benchmark. They live in `arena`. */
const tm_reference *tm_reference_built_in(const char *benchmark, tm_ruleset ruleset, tm_arena *arena);

/* A file of the public format, the records of one benchmark: { "name": { "Benchmark": "llama31_8b", "BS": 32,
 * "Hyperparams": {}, "samples to converge" or "Epochs to converge": [ ... ] }, ... }. Other members are not looked at.
 * TM_INVALID if it cannot be read, TM_FORMAT or TM_UNSUPPORTED with what is wrong. The records live in `arena`. */
TM_MUST_USE tm_status tm_reference_read(const char *path, tm_arena *arena, const tm_reference **out, tm_error *err);
/* The same from memory; `file` is for messages. */
TM_MUST_USE tm_status tm_reference_parse(const char *file, const char *bytes, size_t length, tm_arena *arena,
                                         const tm_reference **out, tm_error *err);

/* Sorts records and samples, computes the statistics, marks what is pruned. kind->runs >= 3; each record has
 * TM_REFERENCE_MIN_VALUES to TM_REFERENCE_MAX_VALUES finite samples above 0. */
void tm_reference_finish(tm_reference *reference);

/* The record between two others, low->batch < batch < high->batch: mean and deviation linear in the batch, the minimum
 * for 2 N reference values. */
tm_reference_record tm_reference_between(const tm_reference *reference, int64_t batch, const tm_reference_record *low,
                                         const tm_reference_record *high);

/* Which record judges a batch. */
typedef enum {
    TM_REFERENCE_NONE,         /* no records at all */
    TM_REFERENCE_FOUND,        /* of this batch */
    TM_REFERENCE_INTERPOLATED, /* between the nearest smaller and the nearest larger batch */
    TM_REFERENCE_SMALLEST,     /* only larger batches are there: the smallest of them */
    TM_REFERENCE_MISSING,      /* only smaller batches are there: *record is not set */
} tm_reference_choice;

/* `full`: pruned records, too. */
tm_reference_choice tm_reference_choose(const tm_reference *reference, int64_t batch, bool full,
                                        tm_reference_record *record);

/* The 0.95 quantile of Student's t with `degrees` >= 1 degrees of freedom, correct to the last digits: from the finite
 * sums for the distribution (Abramowitz & Stegun 26.7.3 and 26.7.4), solved for the angle by bisection. */
double tm_student_quantile_95(int degrees);

/* Sum of x[0..n) in numpy's order: eight running sums, halves above 128 values. */
double tm_numpy_sum(const double *x, size_t n);

#endif
