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

/* TM_INVALID: one of them is no run. The caller destroys r->arena. */
TM_MUST_USE tm_status report_prepare(const tm_result *const *runs, size_t n, report_runs *r, tm_error *err);
/* A page up to its heading. */
void report_page_begin(const report_runs *r, const char *title, tm_text *out);

#endif
