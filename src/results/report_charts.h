/* SPDX-License-Identifier: Apache-2.0 */
/* results/report_charts.h - private to the room: the charts of a report, and what a report is made of. */
#ifndef TM_RESULTS_REPORT_CHARTS_H
#define TM_RESULTS_REPORT_CHARTS_H

#include "base/arena.h"
#include "results/result.h"

/* What a machine can do at most, per second, as a benchmark has measured it; NAN: not known. */
typedef struct {
    double      flops, flops_bf16, bytes;
    const char *host;
} report_roofs;

typedef struct {
    const tm_result *const *runs;
    const char *const      *names; /* (n) */
    size_t                  n;
    report_roofs            roofs;
    tm_arena               *arena;
} report_runs;

/* Draws a part of a chart, from 0 on: nothing where there is no such part. Only losses of several units have more than
 * one. */
typedef struct {
    const char *name;
    void (*draw)(const report_runs *r, size_t part, tm_text *out);
} report_chart;

/* The list, ended by a NULL name. */
extern const report_chart report_charts[];

/* Runs, and benchmarks with the ceilings of a machine, of which the largest are taken. TM_INVALID: a benchmark without,
 * or no run. The caller destroys r->arena. */
TM_MUST_USE tm_status report_prepare(const tm_result *const *results, size_t n, report_runs *r, tm_error *err);
/* A page up to its heading. */
void report_page_begin(const report_runs *r, const char *title, tm_text *out);
/* All parts of a chart. */
void report_page_chart(const report_runs *r, const report_chart *c, tm_text *out);
/* The pictures that the runs drew, if any. */
void report_add_pictures(const report_runs *r, tm_text *out);
/* What follows the pointer, and the end of the page. */
void report_page_end(tm_text *out);
/* The page of tm_results_report. */
void report_page(const report_runs *r, tm_text *out);

/* What the losses of a run are: "nats per token", "mean square error". Others cannot be compared with them. */
const char *report_loss_unit(const report_runs *r, size_t run);
/* What is the least loss that the data of a run allow? */
const char *report_floor_name(const report_runs *r, size_t run);

/* The roofs of a run: measured, else of its data sheet, else the most that any line of the runs reaches. */
typedef struct {
    double flops, bytes; /* per second */
    bool   flops_known, bytes_known;
    bool   passed; /* a line is faster than a roof that was given, which therefore is not taken */
} report_roof;
report_roof report_roof_of(const report_runs *r, size_t run);
/* A line of its work by its number: false behind the last. flops may be 0; seconds and bytes, too. */
typedef struct {
    const char *name;
    double      flops, bytes, seconds;
} report_line;
bool report_line_of(const report_runs *r, size_t run, size_t i, report_line *out);

#endif
