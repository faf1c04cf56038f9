/* SPDX-License-Identifier: Apache-2.0 */
/* Charts are read back by the rules of chart_rules.h: every kind of axis, of stretch, of stack and of limit. */
#include "results/chart.h"
#include "chart_marks.h"

#include <math.h>
#include <string.h>

#include "support/test.h"

enum { LONG = 2501 };

static void lines_read_back(const chart_lines_options *o)
{
    tm_text out = { 0 };
    chart_lines(&out, o);
    svg_page page = svg_read(out.data);
    lines_are_drawn(&page, o);
    svg_close(&page);
    tm_text_fini(&out);
}

static void bars_read_back(const chart_bars_options *o)
{
    tm_text out = { 0 };
    chart_bars(&out, o);
    svg_page page = svg_read(out.data);
    bars_are_drawn(&page, o);
    svg_close(&page);
    tm_text_fini(&out);
}

static void areas_read_back(const chart_areas_options *o)
{
    tm_text out = { 0 };
    chart_areas(&out, o);
    svg_page page = svg_read(out.data);
    areas_are_drawn(&page, o);
    svg_close(&page);
    tm_text_fini(&out);
}

TEST(lines)
{
    static const double x[] = { 1, 2, 3, 4, 5 }, y[] = { 3, 2.5, 7, (double)NAN, 4.25 };
    static const double far[] = { 1e3, 3e6, 7e9, 2e13, 5e16 }, small[] = { 2e-3, 0, -1, 5e-5, (double)INFINITY };
    const chart_series  two[] = {
         { .name = "one <&>", .x = x, .y = y, .n = 5, .colour = 3 },
         { .name = "two \"'\x1b", .x = x, .y = x, .n = 3, .colour = 9, .dashed = true },
         { .name = "dots", .x = x, .y = y, .n = 4, .colour = 1, .dots = true },
         { .name = "a name so long that it has to stand in a row of its own, far below the chart, whatever comes",
           .x = x,
           .y = x,
           .n = 1,
           .colour = 0 },
         { .name = "and one behind it", .x = x, .y = x, .n = 1, .colour = 2 },
    };
    const chart_series logs[] = { { .name = "logs", .x = far, .y = small, .n = 5, .colour = 4 },
                                  { .name = "log dots", .x = far, .y = small, .n = 5, .colour = 5, .dots = true } };
    const chart_series narrow[] = { { .name = "narrow", .x = x, .y = x, .n = 5, .colour = 6 } };
    const chart_series wide[] = { { .name = "wide", .x = far, .y = far, .n = 5, .colour = 7 } };
    const chart_series none[] = { { .name = "none", .x = x, .y = &y[3], .n = 1, .colour = 7 } };
    lines_read_back(&(chart_lines_options){ .id = "a",
                                            .title = "A <title>",
                                            .x_name = "x&",
                                            .y_name = "y\"",
                                            .series = two,
                                            .n = 5,
                                            .shade_from = 2,
                                            .shade_to = 4,
                                            .shade_name = "shade" });
    lines_read_back(&(chart_lines_options){ .id = "b",
                                            .title = "B",
                                            .x_name = "x",
                                            .y_name = "y",
                                            .series = two,
                                            .n = 1,
                                            .from_zero = true,
                                            .shade_from = -5,
                                            .shade_to = 3,
                                            .shade_name = "shade" });
    lines_read_back(&(chart_lines_options){ .id = "c",
                                            .title = "C",
                                            .x_name = "x",
                                            .y_name = "y",
                                            .series = two,
                                            .n = 1,
                                            .shade_from = 3,
                                            .shade_to = 99,
                                            .shade_name = "shade" });
    lines_read_back(&(chart_lines_options){ .id = "d",
                                            .title = "D",
                                            .x_name = "x",
                                            .y_name = "y",
                                            .series = logs,
                                            .n = 2,
                                            .log_y = true,
                                            .shade_from = 4,
                                            .shade_to = 4 });
    lines_read_back(&(chart_lines_options){
        .id = "e", .title = "E", .x_name = "x", .y_name = "y", .series = narrow, .n = 1, .log_y = true });
    lines_read_back(
        &(chart_lines_options){ .id = "f", .title = "F", .x_name = "x", .y_name = "y", .series = wide, .n = 1 });
    lines_read_back(
        &(chart_lines_options){ .id = "g", .title = "G", .x_name = "x", .y_name = "y", .series = none, .n = 1 });
    lines_read_back(
        &(chart_lines_options){ .id = "h", .title = "H", .x_name = "x", .y_name = "y", .series = &two[3], .n = 1 });
}

/* Steps of 1, 2, 5 and 10 between ticks, and short numbers. */
TEST(ticks)
{
    static const double tops[] = {
        8.9, 9.1, 20.9, 21.1, 44.9, 45.1, 9999, 10001, 999999, 1e6, 2.5e9, 3e12, 4e15, 7e-5
    };
    static const double x[] = { 0, 1 };
    for (size_t i = 0; i < sizeof tops / sizeof tops[0]; i++) {
        const double       y[] = { -tops[i] / 16, tops[i] };
        const chart_series s = { .name = "t", .x = x, .y = y, .n = 2 };
        lines_read_back(
            &(chart_lines_options){ .id = "t", .title = "T", .x_name = "x", .y_name = "y", .series = &s, .n = 1 });
    }
}

/* Of every stretch of a long series the smallest and the largest stay, in their order. */
TEST(stretches)
{
    static double x[LONG], y[LONG];
    const size_t  counts[] = { 1000, 1001, LONG };
    for (size_t i = 0; i < LONG; i++) x[i] = (double)i, y[i] = (double)(i * 7919 % 1009);
    for (size_t i = 0; i < 3; i++) {
        const chart_series s = { .name = "long", .x = x, .y = y, .n = counts[i] };
        lines_read_back(
            &(chart_lines_options){ .id = "l", .title = "L", .x_name = "x", .y_name = "y", .series = &s, .n = 1 });
    }
}

TEST(stacks)
{
    static const char *const rows[] = { "first", "sec&nd" };
    static const char *const columns[] = { "a", "b<", "c", "d", "e", "f", "a name that is far too long for a column",
                                           "h", "i",  "j", "k" };
    static const char *const shown[] = { "1 s", "2 s", "3 ms", "4", "5", "6",    "7", "8",  "9",  "10", "11",
                                         "20",  "0",   "-3",   "2", "3", "0 ms", "0", "0x", "0y", "0",  "12.5" };
    static const char *const sums[] = { "66 s", "62.5 s" };
    static const int         colours[] = { 0, 4, 8, 12, 16, 20, 24, 2, 6, 31, 28 };
    static const double values[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 20, 0, -3, 0.002, 30, 0, 0, 0, 0, 0, 12.5 };
    static const double nothing[] = { 0, -1 };
    static const double areas[] = { 1, 2, 3, 4, 5, 6, 70, 8, 9, 0, 11, 12 };
    chart_bars_options  bars = { .id = "bars",
                                 .title = "Bars",
                                 .rows = rows,
                                 .columns = columns,
                                 .shown = shown,
                                 .sums = sums,
                                 .colours = colours,
                                 .n_rows = 2,
                                 .n_columns = 11,
                                 .values = values };
    bars_read_back(&bars);
    bars.n_rows = 1;
    bars_read_back(&bars);
    bars.n_columns = 4;
    bars_read_back(&bars);
    bars.n_rows = 2, bars.n_columns = 1, bars.values = nothing;
    bars_read_back(&bars);
    chart_areas_options o = { .id = "areas",
                              .title = "Areas",
                              .x_name = "x",
                              .y_name = "MiB",
                              .columns = columns,
                              .shown = shown,
                              .colours = colours,
                              .n_columns = 3,
                              .n_points = 4,
                              .values = areas,
                              .limit = 100,
                              .limit_name = "planned & done" };
    areas_read_back(&o);
    o.n_columns = 11, o.n_points = 1, o.values = values, o.limit = 0, o.limit_name = "";
    areas_read_back(&o);
    o.n_columns = 2, o.n_points = 2, o.values = areas, o.limit = 3, o.limit_name = "less";
    areas_read_back(&o);
}

/* Lines that compute little and much, fast and slow, some of them at one place: below roofs of every kind. */
TEST(rooflines)
{
    static const char *const names[] = { "forward linear", "backward linear",      "forward attention",
                                         "loss",           "backward attention",   "forward experts",
                                         "optimizer",      "backward elementwise", "sec&nd <line>" };
    static const double      peaks[][2] = { { 1e12, 1e11 }, { 5e14, 3e12 }, { 1e9, 2e10 } };
    static const char *const groups[] = { "one", "a run of a rather long name, which nobody would type", "three" };
    chart_work               works[9];
    for (int i = 0; i < 3; i++)
        for (int crowd = 0; crowd < 3; crowd++) {
            double ridge = peaks[i][0] / peaks[i][1];
            for (int k = 0; k < 9; k++) {
                double at = ridge * (crowd == 0 ? pow(4, k - 4) : crowd == 1 ? 20 + k : 1);
                double part = crowd == 2 ? 1 : 0.1 * (k + 1);
                works[k] = (chart_work){ .name = names[k],
                                         .label = k < 8 ? names[k] : NULL,
                                         .flops = 1e9 * at,
                                         .bytes = 1e9,
                                         .seconds = fmax(1e9 * at / peaks[i][0], 1e9 / peaks[i][1]) / part,
                                         .colour = 4 * (k % 7),
                                         .shape = k % 5 };
            }
            const chart_roofline_options o = { .id = "roof",
                                               .title = "Roof",
                                               .works = works,
                                               .n = 9,
                                               .peak_flops = peaks[i][0],
                                               .peak_bytes = peaks[i][1],
                                               .flops_name = "arithmetic",
                                               .bytes_name = "memory",
                                               .groups = groups,
                                               .n_groups = (size_t)crowd,
                                               .flops_known = crowd != 1,
                                               .bytes_known = i != 1 };
            tm_text                      out = { 0 };
            chart_roofline(&out, &o);
            svg_page page = svg_read(out.data);
            roofline_reads_back(&page, &o);
            svg_close(&page);
            tm_text_fini(&out);
        }
}

/* Every colour that a rule uses is stated for light pages and, another one, for dark ones. */
TEST(style_has_both_forms)
{
    const char *style = chart_style(), *dark = strstr(style, "@media(prefers-color-scheme:dark)");
    assert_non_null(dark);
    for (const char *at = style; (at = strstr(at, "var(--")) != NULL; at += 6) {
        char name[32];
        snprintf(name, sizeof name, "--%.*s:#", (int)strcspn(at + 6, ")"), at + 6);
        const char *light_is = strstr(style, name), *dark_is = strstr(dark, name);
        assert_true(light_is != NULL && light_is < dark && dark_is != NULL);
        assert_true(strncmp(light_is, dark_is, strlen(name) + 3) != 0);
    }
}
