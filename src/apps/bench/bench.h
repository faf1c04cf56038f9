/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/bench.h - benchmarks of parts: `trainmark bench NAME`. A workload is one file and one line in
 * workloads.def.
 *
 * A workload reads its options, times calls by the rules of apps/bench/timing.h, adds one row per case to a table, and
 * checks what was computed. It prints nothing. What makes a number worthless (a wrong result, more FLOP/s than the
 * machine has) goes through tm_bench_invalid: the table is still written, and the command ends with exit code 3.
 */
#ifndef TM_BENCH_BENCH_H
#define TM_BENCH_BENCH_H

#include "base/table.h"
#include "apps/bench/timing.h"
#include "config/config.h"
#include "device/ceilings.h"
#include "device/device.h"
#include "model/shape.h"

#include <signal.h>

/* What a workload gets. */
typedef struct {
    const tm_config             *options; /* by the names of the rows: tm_config_i64(bench->options, "M") */
    tm_device                   *device;  /* open */
    int                          threads; /* of the device */
    int64_t                      end_ns;  /* when the time budget ends, by tm_now_ns */
    tm_timing                    timing;  /* from --warmup-ms, --rep-ms, --duration; a workload may change its copy */
    uint64_t                     seed;
    char                         host[72];
    tm_table                    *table;    /* empty when the workload starts */
    tm_ceilings                  ceilings; /* flops 0: not measured yet; see tm_bench_ceilings */
    tm_error                     invalid;  /* the first reason why numbers are worthless; status TM_OK: none */
    struct tm_comm              *world;    /* ranks that all run this; NULL: alone */
    const volatile sig_atomic_t *stop;
} tm_bench;

typedef struct {
    const char   *name, *summary;
    const tm_key *options; /* of this workload; besides those of all */
    size_t        n_options;
    bool          ranks; /* runs on several ranks: the options `ranks` and `mpi` say how they are started */
    bool          gpus;  /* also runs on the devices cuda and hip */
    int (*ranks_here)(const tm_config *config); /* as many where neither option nor launcher says it */

    /* Fills bench->table. TM_INTERRUPTED with the rows so far when stopped. */
    tm_status (*run)(tm_bench *bench, tm_error *err);
} tm_workload;

/* The list of *n, in the order of workloads.def. */
const tm_workload *const *tm_workloads(size_t *n);
/* NULL if there is none. */
const tm_workload *tm_workload_find(const char *name);

/* A configuration with the options of all workloads (--device, --threads, --budget ...) and this one's, at their
 * defaults; `help` is for messages and borrowed. The caller destroys it. */
tm_config *tm_bench_configure(const tm_workload *workload, const char *help);

/* Opens the device, runs the workload, closes the device. `config` is finished; `world`, `stop` may be NULL.
 * TM_NUMBERS: the table is complete, but numbers in it are worthless; TM_INTERRUPTED: it holds what was done. */
TM_MUST_USE tm_status tm_bench_run(const tm_workload *workload, const tm_config *config, struct tm_comm *world,
                                   const volatile sig_atomic_t *stop, tm_table *table, tm_error *err);

/* --- for workloads --------------------------------------------------------------------------- */

/* A line for the reader of the table: what was assumed or left out. */
void tm_bench_note(tm_bench *bench, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A number is worthless: a note, and the command's exit code becomes 3. */
void tm_bench_invalid(tm_bench *bench, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Seconds that the budget still has; 0 when it is over or the user wants to stop. */
double tm_bench_left(const tm_bench *bench);
/* The finished configuration of a model preset ("llama3.1_8B") or of a file with model keys ("x.yaml"). The caller
 * destroys it, also on failure. */
TM_MUST_USE tm_status tm_bench_model_config(const char *name, tm_config **out, tm_error *err);
/* Its shape and its sequence length. */
TM_MUST_USE tm_status tm_bench_model(const char *name, tm_model_shape *shape, int64_t *seq, tm_error *err);

/* What all workloads say of a series of samples. */
typedef struct {
    tm_sample_summary summary;      /* seconds per call; rates in `work` per second */
    int64_t           calls, loops; /* calls before the samples; calls per sample */
    tm_stop           stop;
    tm_verdict  verdict; /* was the machine undisturbed (docs/statistics.md); not-judged: for less than a second */
    const char *reason;  /* of the verdict, of the samples' */
} tm_measurement;

/* work: FLOP, bytes, samples of one call. n = 0 is fine. */
void tm_bench_summarize(const tm_samples *samples, double work, tm_measurement *out);
/* Adds the columns median_ms, p5_ms, p95_ms, cv, n, warmup, outliers, half_width_pct, calls_before, loops, stop,
 * verdict, reason. */
void tm_bench_columns(tm_table *table);
/* Sets them in the table's last row. */
void tm_bench_put(tm_table *table, const tm_measurement *measurement);

/* Seconds that the first of n >= 1 jobs may take of `left` (>= 0): the least that it needs, which comes before the
 * needs of those after it, and an equal part of what no job needs. least: (n) seconds, each >= 0. */
double tm_bench_share(double left, const double *least, int n);

/* Fills `n` values with standard normals, f(seed, stream, index). float32 or bfloat16. */
void tm_bench_normal(const tm_bench *bench, const char *stream, void *data, tm_dtype dtype, int64_t n);
/* Elements [first, first + n) of them. */
void tm_bench_normal_part(const tm_bench *bench, const char *stream, int64_t first, void *data, tm_dtype dtype,
                          int64_t n);

/* Does it measure a GPU? */
bool tm_bench_on_gpu(const tm_bench *bench);
/* The machine's ceilings, measured at the first call. Of a GPU: what its data sheet says; 0: it is not in the table. */
TM_MUST_USE tm_status tm_bench_ceilings(tm_bench *bench, const tm_ceilings **out, tm_error *err);
/* FLOP/s of products in this format: what peak_pct is a part of, and of GPUs the guard below. 0: not known. */
double tm_bench_peak(const tm_bench *bench, tm_dtype dtype);
/* Notes of the table: the measured peak, the data sheet's beside it, the memory's. Of a GPU, when all
 * was measured: which it is, whose code and which algorithms it took, the data sheet's peaks. */
TM_MUST_USE tm_status tm_bench_note_ceilings(tm_bench *bench, tm_error *err);
/* Physics: `what` did `flops` FLOP/s in `dtype` and moved `bytes` bytes/s to or from memory (0: not known). More than
 * the machine's ceilings, which are measured again before that is said, makes the number invalid. Of a GPU: 1.05 times
 * what its data sheet says. */
TM_MUST_USE tm_status tm_bench_guard(tm_bench *bench, const char *what, tm_dtype dtype, double flops, double bytes,
                                     tm_error *err);

#endif
