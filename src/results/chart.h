/* SPDX-License-Identifier: Apache-2.0 */
/* results/chart.h - private to the room: charts as SVG. Colours are classes (c0 .. c31), their values the style
 * sheet's, so that a page may have a light and a dark form. Text from outside is escaped here. What a chart tells by
 * colour it tells by a shape, a dash or an order, too; every mark has its values as <title>.
 */
#ifndef TM_RESULTS_CHART_H
#define TM_RESULTS_CHART_H

#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

/* Eight hues of four shades: the colour of hue h and shade s is CHART_SHADES h + s. By colour vision deficiencies, too,
 * the plain shades differ (after Okabe and Ito 2008). The last hue is grey. */
enum { CHART_HUES = 8, CHART_SHADES = 4, CHART_COLOURS = CHART_HUES * CHART_SHADES, CHART_SHAPES = 5 };
enum { CHART_PLAIN, CHART_LIGHT, CHART_DARK, CHART_PALE };
enum { CHART_GREY = CHART_SHADES * (CHART_HUES - 1) };
/* The colour of the i-th of several equal things: all plain ones but grey, then all dark ones. */
int chart_colour(size_t i);

/* Appends `text` for a place between tags or in an attribute: control characters shown, <>&"' escaped. */
void chart_escape(tm_text *out, const char *text);
/* The same of a text of several lines. */
void chart_escape_lines(tm_text *out, const char *text);
/* "4658", "12.35k", "3.181M": four digits. */
void chart_number(tm_text *out, double value);

typedef struct {
    const char   *name;
    const double *x, *y; /* (n); what is not finite is left out */
    size_t        n;
    int           colour;       /* 0 .. 31 */
    int           shape;        /* of its marks: 0 .. 4 */
    bool          dashed, dots; /* dots: hollow marks, no line between them; else a line with a mark at its end */
} chart_series;

typedef struct {
    const char         *id, *title, *x_name, *y_name;
    const chart_series *series;
    size_t              n;
    bool                log_y, from_zero;     /* from_zero: the axis of y begins at 0 */
    double              shade_from, shade_to; /* of x: shaded; equal: nothing */
    const char         *shade_name;
} chart_lines_options;

/* Lines; of a series longer than 1,000 points the smallest and the largest of every stretch. The points that are drawn
 * are in data-x and data-y, too, with six digits. */
void chart_lines(tm_text *out, const chart_lines_options *options);

/* Stacked bars, one for each row: values (rows, columns), which `shown` says with their units, `sums` the rows. The
 * names of a single row's parts have their values beside them. */
typedef struct {
    const char        *id, *title;
    const char *const *rows, *const *columns, *const *shown, *const *sums;
    const int    *colours; /* (columns) */
    size_t        n_rows, n_columns;
    const double *values;
} chart_bars_options;
void chart_bars(tm_text *out, const chart_bars_options *options);

/* Areas on top of each other: values (columns, points), from the left to the right; `shown` (columns) is beside the
 * names. */
typedef struct {
    const char        *id, *title, *x_name, *y_name;
    const char *const *columns, *const *shown;
    const int    *colours; /* (columns) */
    size_t        n_columns, n_points;
    const double *values;
    double        limit; /* a line; 0: none */
    const char   *limit_name;
} chart_areas_options;
void chart_areas(tm_text *out, const chart_areas_options *options);

/* One line of a step beside the roofs. */
typedef struct {
    const char *name, *label; /* label: beside the mark; NULL: none */
    double      flops, bytes, seconds;
    int         colour, shape;
} chart_work;

/* A roofline (Williams, Waterman and Patterson 2009): both axes logarithmic, the memory's roof rises to the ridge, from
 * where the roof of arithmetic goes on. */
typedef struct {
    const char        *id, *title;
    const chart_work  *works;
    size_t             n;
    double             peak_flops, peak_bytes; /* per second */
    const char        *flops_name, *bytes_name;
    const char *const *groups; /* (n_groups) names in the key: the i-th has colour chart_colour(i) and shape i */
    size_t             n_groups;
    bool               flops_known, bytes_known; /* else the roof is dashed: it may be higher */
} chart_roofline_options;
void chart_roofline(tm_text *out, const chart_roofline_options *options);

/* The style of the charts, light and dark, without <style>. */
const char *chart_style(void);

#endif
