/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/check.h - is this machine fit to be measured? One check is one row of checks.def and one function;
 * docs/check.md.
 *
 * A check reads a few files below a sysroot and says PASS, WARN, FAIL, INFO (nothing is wrong or right about it) or
 * SKIP (with the reason), what it saw, what it expected, where it looked and what would put it right.
 */
#ifndef TM_SYSTEM_CHECK_H
#define TM_SYSTEM_CHECK_H

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"
#include "base/text.h"
#include "system/thresholds.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    TM_CHECK_PASS,
    TM_CHECK_WARN,
    TM_CHECK_FAIL,
    TM_CHECK_INFO,
    TM_CHECK_SKIP,
    TM_CHECK_STATUSES
} tm_check_status;

/* "PASS", ... */
const char *tm_check_status_name(tm_check_status status);
/* The status of that name; TM_CHECK_STATUSES if there is none. */
tm_check_status tm_check_status_find(const char *name);

/* Groups in the order of the report. `quick` (tm_check_options) leaves out those that can hang. */
#define TM_CHECK_GROUP_LIST(X)                                                                                         \
    X(KERNEL, "settings")                                                                                              \
    X(CPU, "cpu")                                                                                                      \
    X(MEMORY, "mem")                                                                                                   \
    X(OS, "system")                                                                                                    \
    X(PCI, "pci") X(LOG, "log") X(LEFT, "left") X(GPU, "gpu") X(NET, "net") X(JOB, "job") X(PERF, "perf")
typedef enum {
#define X(id, name) TM_CHECK_GROUP_##id,
    TM_CHECK_GROUP_LIST(X)
#undef X
        TM_CHECK_GROUPS
} tm_check_group;

typedef struct check check; /* private to the room: a check at work */

typedef struct {
    const char    *id;
    tm_check_group group;
    unsigned       outcomes; /* a bit (1 << status) for each status that the check can have */
    void (*run)(check *c);
    const char *source, *expected, *remedy; /* remedy "" where there is nothing to mend */
} tm_check_row;

/* All rows, in the order of checks.def. */
const tm_check_row *tm_check_rows(size_t *n);
const char         *tm_check_group_name(tm_check_group group);
/* Space for the names of a row's outcomes ("PASS WARN SKIP"). Returns out. */
enum { TM_CHECK_OUTCOMES_BYTES = 32 };
char *tm_check_outcomes(unsigned outcomes, char out[TM_CHECK_OUTCOMES_BYTES]);

/* What a short measurement found: figures whose names begin with that of a part ("gemm.gflops_per_sec"). */
typedef enum { TM_PERF_TRAINING, TM_PERF_GEMM, TM_PERF_STREAM, TM_PERF_PARTS } tm_perf_part;
const char *tm_perf_part_name(tm_perf_part part); /* "training", ... */
typedef struct {
    const char      *problem[TM_PERF_PARTS]; /* why figures of a part are missing; NULL if all are there */
    const tm_metric *metrics;
    size_t           n;
    const tm_gate   *gates; /* judged already */
    size_t           n_gates;
} tm_check_perf;

/* What is not below a sysroot. */
typedef struct {
    int64_t              shm_bytes;      /* size of /dev/shm; -1 = unknown */
    const char          *klog;           /* records as /dev/kmsg or klogctl give them; NULL = not read */
    const char          *klog_problem;   /* why not */
    double               uptime_seconds; /* of the clock that stamps the log; NaN = unknown */
    int                  clock_synced;   /* 1 yes, 0 no, -1 unknown: does a time service keep the clock? */
    double               clock_error_ms; /* its own estimate; NaN = unknown */
    int64_t              wall_ms;        /* since 1970 */
    char               **environment;    /* NAME=value, NULL-terminated */
    const tm_check_perf *perf;           /* NULL: nothing was measured, and the rows of group perf are left out */
    /* Whom the permissions of device files are held against: user, group and further groups. user -1: on the running
     * system the kernel is asked about this process; below a sysroot only whether a file is there. */
    int64_t        user, group;
    const int64_t *groups;
    size_t         n_groups;
    int            numa_calls; /* 1: mbind and its like are allowed, 0: refused (seccomp), -1: unknown */
} tm_check_host;

typedef struct {
    const char *sysroot; /* "" for the running system */
    /* Comma-separated ids or group names; NULL = all. A name with '-' in front is left out. */
    const char          *only;
    bool                 quick;   /* only what ends in some milliseconds and cannot hang: no pci, log, left, gpu, net */
    bool                 isolate; /* each check in a process of its own, killed after `timeout_seconds` */
    double               timeout_seconds;
    bool                 skip_klog;
    double               klog_minutes;
    double               memlock_min_gib, shm_min_gib;
    int                  expected_gpus, expected_nics; /* -1 = not said */
    double               gpu_activity_warn_pct, hbm_busy_threshold_gib;
    bool                 allow_foreign;
    const char          *allowed_procs; /* comma-separated names of programs that may use the GPUs; NULL = none */
    const tm_check_host *host;          /* NULL = read from the running system */
} tm_check_options;

/* The running system, everything, limits of the published tool. */
tm_check_options tm_check_options_default(void);

typedef struct {
    const char     *id, *group;
    tm_check_status status;
    const char     *observed, *expected, *source, *remedy; /* never NULL */
} tm_check_result;

/* Zero-initialise; free with tm_checks_fini. */
typedef struct {
    tm_arena        *arena;
    tm_check_result *results;
    size_t           n, capacity;
    size_t           counts[TM_CHECK_STATUSES];
    char             host[256]; /* short name of the machine */
    int64_t          wall_ms;   /* when it was checked */
    double           seconds;   /* how long that took */
} tm_checks;

/* Runs the rows that the options select and adds a result for each. A name in `only` that no row or group has is
 * TM_USAGE, with the nearest. Problems of the machine are results, never errors. With `isolate` it forks; call it
 * before threads are made. At most timeout_seconds and a little; some milliseconds when `quick`. */
TM_MUST_USE tm_status tm_checks_run(const tm_check_options *options, tm_checks *checks, tm_error *err);
/* Adds a result made elsewhere; strings are copied, NULL is "". */
void tm_checks_add(tm_checks *checks, const tm_check_result *result);
/* PASS unless a check failed. */
bool tm_checks_failed(const tm_checks *checks);
void tm_checks_fini(tm_checks *checks);

/* {"pass": n, "warn": n, ..., "not_passed": [{"id", "status", "observed"}]}: what a run keeps. */
void tm_checks_print_summary(const tm_checks *checks, tm_json *json, const char *key);

/* Reads what a sysroot does not show, for the running system; with a sysroot only what its files tell (the kernel log
 * from a plain file /dev/kmsg, the uptime from /proc/uptime). Strings from the arena. The kernel log is read only if
 * `klog`. */
tm_check_host tm_check_host_read(const char *sysroot, bool klog, tm_arena *arena);

#endif
