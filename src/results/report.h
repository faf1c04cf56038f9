/* SPDX-License-Identifier: Apache-2.0 */
/* results/report.h - runs as one page for people: HTML with charts (nothing is loaded from elsewhere), markdown, CSV,
 * JSON, or a single chart as SVG or PNG (docs/report.md). */
#ifndef TM_RESULTS_REPORT_H
#define TM_RESULTS_REPORT_H

#include "base/text.h"
#include "results/result.h"

#include <stddef.h>

typedef enum { TM_REPORT_HTML, TM_REPORT_MARKDOWN, TM_REPORT_CSV, TM_REPORT_JSON } tm_report_format;

/* By the end of a file's name: .html, .md, .csv, .json. TM_USAGE. */
TM_MUST_USE tm_status tm_report_format_of(const char *path, tm_report_format *format, tm_error *err);

/* Appends the report of n >= 1 runs. TM_INVALID: one of them is no run. */
TM_MUST_USE tm_status tm_results_report(const tm_result *const *runs, size_t n, tm_report_format format, tm_text *out,
                                        tm_error *err);

/* The i-th chart's name ("loss"), NULL behind the last. */
const char *tm_report_chart(size_t i);
/* Appends one chart as an SVG file. TM_USAGE: there is no such chart; TM_INVALID: as above. */
TM_MUST_USE tm_status tm_results_plot(const tm_result *const *runs, size_t n, const char *chart, tm_text *out,
                                      tm_error *err);
/* Appends the PNG of an SVG file of tm_results_plot, two pixels to a unit, in the colours of the light page. Loads
 * librsvg and cairo; TM_UNSUPPORTED without them. */
TM_MUST_USE tm_status tm_results_raster(const tm_text *svg, tm_text *png, tm_error *err);

#endif
