/* SPDX-License-Identifier: Apache-2.0 */
/* results/report_charts.h - private to the room: the charts of a report. */
#ifndef TM_RESULTS_REPORT_CHARTS_H
#define TM_RESULTS_REPORT_CHARTS_H

#include "base/arena.h"
#include "results/result.h"

typedef struct {
    const tm_result *const *runs;
    const char *const      *names; /* (n) */
    size_t                  n;
    tm_arena               *arena;
} report_runs;

typedef struct {
    const char *name;
    void (*draw)(const report_runs *r, tm_text *out);
} report_chart;

/* The list, ended by a NULL name. */
extern const report_chart report_charts[];

#endif
