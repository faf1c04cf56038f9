/* SPDX-License-Identifier: Apache-2.0 */
/* results/fleet.h - results of many hosts that trained the same: does each of them pass? (docs/report.md)
 *
 * Gates of every run, in the manner of cluster validation suites:
 *
 *     run         its verdict is not invalid, and it was not interrupted
 *     numbers     every loss and gradient norm is finite
 *     loss trend  the least-squares slope over every 10th step and steps 100, 500, 1000 and 5000 is at most 0
 *     speed       tokens per second and device are at most `tolerance` percent below the median of all runs (three or
 *                 more)
 *     log         no line of a log in the run directory has the signature of a known failure
 *     limits      each limit of a file of thresholds (system/thresholds.h)
 *
 * What cannot be judged - too few steps, too few hosts, no log - is RECORD: told, neither pass nor fail.
 */
#ifndef TM_RESULTS_FLEET_H
#define TM_RESULTS_FLEET_H

#include "base/table.h"
#include "results/result.h"
#include "system/thresholds.h"

typedef struct {
    double         tolerance; /* percent */
    tm_thresholds *limits;    /* NULL: none */
    const char    *cell;      /* of the limits; NULL: that of each run */
} tm_fleet_options;

/* Rows under: host, gate, expected, actual, unit, status ("PASS", "FAIL", "RECORD"), detail. *failed: runs that fail
 * one. TM_INVALID: one of the n >= 1 results is no run, or the limits have no cell for one. The caller destroys the
 * table. */
TM_MUST_USE tm_status tm_results_fleet(const tm_result *const *runs, size_t n, const tm_fleet_options *options,
                                       tm_table **out, size_t *failed, tm_error *err);

/* Appends the table as a page for people: which hosts pass, every gate, the losses and speeds of all. */
TM_MUST_USE tm_status tm_results_fleet_page(const tm_result *const *runs, size_t n, const tm_table *table, tm_text *out,
                                            tm_error *err);

#endif
