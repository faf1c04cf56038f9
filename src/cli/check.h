/* SPDX-License-Identifier: Apache-2.0 */
/* cli/check.h - the parts of `trainmark check`. */
#ifndef TM_CLI_CHECK_H
#define TM_CLI_CHECK_H

#include "base/arena.h"
#include "base/status.h"
#include "cli/command.h"
#include "config/config.h"
#include "apps/check/check.h"

enum { CHECK_METRICS = 32 };
/* The experiment that is measured, as files of limits call it. */
#define CHECK_CELL "MBS=8,GBS=8,PRECISION=fp32"

/* A short measurement of this machine. */
typedef struct {
    tm_metric   metrics[CHECK_METRICS];
    size_t      n;
    const char *problem[TM_PERF_PARTS]; /* why figures of a part are missing; NULL if all are there; from the arena */
} check_measurement;

/* Matrix product, memory bandwidth and the training of a tiny model, in a process of its own that is killed after
 * `seconds`. What goes wrong there is in out->problem. Call it before threads are made. */
const char *check_measurement_problem(const check_measurement *measurement); /* the first one, or NULL */
void        check_measure(double seconds, tm_arena *arena, check_measurement *out);

/* Its matrix product, in this process, in about so many seconds. */
TM_MUST_USE tm_status check_gemm(double seconds, double *gflops, tm_error *err);

/* --all-ranks: the checks on every host of a world that --ranks, mpirun, srun or torchrun has started, and the hosts
 * beside each other. make: the checks of this host. */
typedef struct {
    const tm_config   *config;
    const tm_cli_line *line;
    tm_status (*make)(const tm_config *config, tm_arena *arena, tm_checks *checks, tm_error *err);
} check_hosts_options;
TM_MUST_USE tm_status check_hosts(const check_hosts_options *options, tm_error *err);

/* Tunes the host below `sysroot`, runs the command (NULL-terminated), puts the host back. TM_NEGATIVE if the command
 * fails, TM_INTERRUPTED if it was stopped. */
TM_MUST_USE tm_status check_run_tuned(const char *sysroot, char **command, tm_error *err);

#endif
