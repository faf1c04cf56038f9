/* SPDX-License-Identifier: Apache-2.0 */
/* results/report_figures.h - private to the room: figures as people read them, rounded, in a unit that fits. */
#ifndef TM_RESULTS_REPORT_FIGURES_H
#define TM_RESULTS_REPORT_FIGURES_H

#include "results/report_charts.h"

typedef enum {
    FIGURE_PLAIN,   /* texts as they are, numbers with six digits */
    FIGURE_COUNT,   /* "4,658", "3.181 M" */
    FIGURE_SECONDS, /* "879.4 ms", "1.5 min" */
    FIGURE_BYTES,   /* "235.91 MiB" */
    FIGURE_PERCENT, /* "5.71 %" */
    FIGURE_LOSS,    /* "2.748" */
    FIGURE_CHECK,   /* "passed", "failed: REASON", "not run: REASON": of a certificate's gradients */
} figure_kind;

/* What people read, and where it is in result.json; the list ends with a NULL name. */
typedef struct {
    const char *name, *path;
    figure_kind kind;
} report_figure;
extern const report_figure report_figures[];

/* "" of what is not finite. All live with the arena. */
const char *report_amount(tm_arena *arena, figure_kind kind, double value);
/* "103 GFLOP/s" */
const char *report_rate(tm_arena *arena, double value, const char *unit);
/* A figure of a run; "" where it has none. */
const char *report_shown(const report_runs *r, size_t run, const report_figure *figure);
/* Any member of a result: bytes by the end of its name, other numbers with six digits, integers as they are. */
const char *report_leaf(const report_runs *r, size_t run, const char *path);
/* Has no run this figure? */
bool report_is_empty(const report_runs *r, const report_figure *figure);

#endif
