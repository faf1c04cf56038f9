/* SPDX-License-Identifier: Apache-2.0 */
/* results/chart.h - private to the room: charts as SVG. Colours are classes (c0 .. c9), their values the style sheet's,
 * so that a page may have a light and a dark form. Text from outside is escaped here. */
#ifndef TM_RESULTS_CHART_H
#define TM_RESULTS_CHART_H

#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

/* Appends `text` for a place between tags or in an attribute: control characters shown, <>&"' escaped. */
void chart_escape(tm_text *out, const char *text);

typedef struct {
    const char   *name;
    const double *x, *y; /* (n); what is not finite is left out */
    size_t        n;
    int           colour;       /* 0 .. 9 */
    bool          dashed, dots; /* dots: points, no line between them */
} chart_series;

typedef struct {
    const char         *id, *title, *x_name, *y_name;
    const chart_series *series;
    size_t              n;
    bool                log_x, log_y, from_zero; /* from_zero: the axis of y begins at 0 */
    double              shade_from, shade_to;    /* of x: shaded; equal: nothing */
} chart_lines_options;

/* Lines; of a series longer than 1,000 points the smallest and the largest of every stretch. */
void chart_lines(tm_text *out, const chart_lines_options *options);

/* Stacked bars, one for each row: values (rows, columns). */
typedef struct {
    const char        *id, *title, *unit;
    const char *const *rows, *const *columns;
    size_t        n_rows, n_columns;
    const double *values;
} chart_bars_options;
void chart_bars(tm_text *out, const chart_bars_options *options);

/* Areas on top of each other: values (columns, points), from the left to the right. */
typedef struct {
    const char        *id, *title, *x_name, *y_name;
    const char *const *columns;
    size_t             n_columns, n_points;
    const double      *values;
    double             limit; /* a line; 0: none */
    const char        *limit_name;
} chart_areas_options;
void chart_areas(tm_text *out, const chart_areas_options *options);

/* The style of the charts, light and dark, without <style>. */
const char *chart_style(void);

#endif
