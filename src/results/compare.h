/* SPDX-License-Identifier: Apache-2.0 */
/* results/compare.h - two results side by side: figures with their intervals, what changed between them, and limits.
 *
 * The interval of a change is made of those of the two figures: 1 + change = b / a, between (b / a) / f and (b / a) f,
 * f = exp(sqrt(h_a^2 + h_b^2)), h the relative half-widths of a and b. It is of these two starts; what differs from one
 * start of a program to the next it does not know: results/baseline.h and `trainmark ab` measure that.
 */
#ifndef TM_RESULTS_COMPARE_H
#define TM_RESULTS_COMPARE_H

#include "base/table.h"
#include "results/result.h"
#include "system/thresholds.h"

/* Rows under: figure, unit, a, b, relative_change_percent, change_lo, change_hi. Figures of runs; of benchmarks every
 * measured column of the cases that both have. No verdict: one start of each does not allow one (results/baseline.h).
 * Empty if nothing of the two can be compared. */
tm_table *tm_results_compare(const tm_result *a, const tm_result *b);

/* What differs of configuration, device and environment, the likeliest causes first: rank, member, a, b. */
tm_table *tm_results_differences(const tm_result *a, const tm_result *b);

/* A result as a table of apps/bench/published.h ("case", then columns by their published names). NULL: nothing of it is
 * published. */
tm_table *tm_results_measured(const tm_result *result);

/* The metrics of a run that files of limits know (system/thresholds.h), *n of them; and the names of its cell, the
 * brief and the full one. Strings and array live with the result. TM_INVALID: it is not a run. */
TM_MUST_USE tm_status tm_results_metrics(const tm_result *run, const tm_metric **metrics, size_t *n,
                                         const char *cells[2], tm_error *err);

#endif
