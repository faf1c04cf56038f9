/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/package.h - checks a whole submission, in the order that counts: the package (system descriptions, logs,
 * seeds, convergence, which writes scaling.json), the summary of scores, the repository (names and sizes of files).
 *
 *     SUBMITTER/systems/SYSTEM.json
 *     SUBMITTER/results/SYSTEM/BENCHMARK/result_*.txt     and scaling.json, the only file that is ever written
 *
 * Symbolic links are followed only where they lead to something inside of the folder.
 */
#ifndef TM_MLPERF_PACKAGE_H
#define TM_MLPERF_PACKAGE_H

#include "apps/mlperf/score.h"
#include "apps/mlperf/seeds.h"
#include "apps/mlperf/system_desc.h"

typedef enum {
    TM_SCALING_NONE,   /* nothing to do: the factor is 1 and there is no scaling.json, or no record judged it */
    TM_SCALING_WRITE,  /* scaling.json is to hold the factor */
    TM_SCALING_REMOVE, /* an old one is to go */
} tm_scaling;

typedef struct {
    const char           *system, *benchmark; /* names of the folders */
    const tm_system_desc *desc;               /* NULL: there is none */
    bool                  looked_at;          /* the logs could be read: what follows is set */
    size_t                files, failing;
    tm_seeds_report       seeds;    /* closed division only, as all that follows */
    tm_score              score;    /* with the verdict of the convergence test */
    bool                  bypassed; /* a failed convergence test that package_checker_params lets pass */
    tm_scaling            scaling;
    tm_notes              errors, warnings, notices;
    tm_submission        *submission;
} tm_package_result;

typedef struct {
    const char        *path;
    tm_system_desc    *systems; /* (n_systems) */
    size_t             n_systems;
    tm_package_result *results; /* by system, then benchmark; (n) */
    size_t             n;
    tm_notes           errors, warnings; /* of the package as a whole */
    tm_notes           repository;       /* errors of the repository check */
    bool               passed;           /* the package check */
    tm_arena          *arena;
} tm_package;

/* Checks the folder of one submitter. `write`: scaling.json files are written and removed, otherwise nothing is.
 * TM_INVALID if `path` is no folder that can be read, TM_IO if a scaling.json cannot be written. All else that is wrong
 * is in the report. */
TM_MUST_USE tm_status tm_package_check(const char *path, tm_ruleset ruleset, const tm_reference *given, bool write,
                                       tm_package **out, tm_error *err);
void                  tm_package_free(tm_package *package); /* NULL is fine */

#endif
