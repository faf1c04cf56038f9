/* SPDX-License-Identifier: Apache-2.0 */
/* cli/bench_jobs.h - `trainmark bench JOBS.yaml`: a list of benchmarks that run as one. */
#ifndef TM_CLI_BENCH_JOBS_H
#define TM_CLI_BENCH_JOBS_H

#include "base/status.h"

#include <stdbool.h>

/* argv: options for all jobs, above those of the file. Everything is read and checked before the first one runs; a job
 * whose numbers are invalid does not stop the others. */
TM_MUST_USE tm_status tm_bench_jobs(const char *path, int argc, char **argv, bool verbose, tm_error *err);

#endif
