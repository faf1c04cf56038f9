/* SPDX-License-Identifier: Apache-2.0 */
/* Charts are read back by the rules of chart_rules.h: every kind of axis, of stretch, of stack and of limit. */
#include "results/chart.h"
#include "chart_rules.h"

#include "support/test.h"

/* The chart, which is taken, tells this. */
static void tells(tm_text *chart, const char *id, bool log_x, bool log_y, const char *wanted)
{
    tm_text  told = { 0 };
    svg_page page = svg_read(chart->data);
    chart_tells(&page, id, log_x, log_y, &told);
    if (strcmp(told.data, wanted) != 0) fail_msg("\n%s--- wanted\n%s", told.data, wanted);
    svg_close(&page);
    tm_text_fini(&told);
    tm_text_fini(chart);
}

static void lines_tell(chart_lines_options o, const char *wanted)
{
    tm_text out = { 0 };
    o.id = "a", o.title = "T", o.x_name = "x&", o.y_name = "y\"";
    chart_lines(&out, &o);
    tells(&out, "a", false, o.log_y, wanted);
}

static const double x[] = { 1, 2, 3, 4, 5 }, y[] = { 3, 2.5, 7, (double)NAN, 4.25 };
static const double far[] = { 1e3, 3e6, 7e9, 2e13, 5e16 }, small[] = { 2e-3, 0, -1, 5e-5, (double)INFINITY };

/* What is not finite, and on a logarithmic scale what is not positive, is left out; nothing is a frame alone. */
TEST(logarithmic_scales)
{
    static const chart_series logs[] = { { .name = "logs", .x = far, .y = small, .n = 5, .colour = 4 },
                                         { .name = "dots", .x = far, .y = small, .n = 5, .colour = 5, .dots = true } };
    static const chart_series narrow[] = { { .name = "narrow", .x = x, .y = x, .n = 5, .colour = 6 } };
    static const chart_series none[] = { { .name = "none", .x = x, .y = &y[3], .n = 1, .colour = 7 } };
    lines_tell((chart_lines_options){ .series = logs, .n = 2, .log_y = true },
               "T; y\" over x&\n"
               "logs: 1000 0.002, 2e+13 5e-05\n"
               "| logs\n"
               "* dots, x& 1000: 0.002 y\"\n* dots, x& 2e+13: 5e-05 y\"\n"
               "| dots\n");
    lines_tell((chart_lines_options){ .series = narrow, .n = 1, .log_y = true },
               "T; y\" over x&\nnarrow: 1 1, 2 2, 3 3, 4 4, 5 5\n| narrow\n");
    lines_tell((chart_lines_options){ .series = none, .n = 1 }, "T; y\" over x&\n");
    lines_tell((chart_lines_options){ .series = narrow, .n = 0 }, "T; y\" over x&\n");
}

/* Steps of 1, 2, 5 and 10 between ticks, and short numbers; an axis that begins at zero. */
TEST(ticks)
{
    static const double tops[] = {
        8.9, 9.1, 20.9, 21.1, 44.9, 45.1, 9999, 10001, 999999, 1e6, 2.5e9, 3e12, 4e15, 7e-5
    };
    for (size_t i = 0; i < sizeof tops / sizeof tops[0]; i++)
        for (int zero = 0; zero < 2; zero++) {
            const double       top[] = { zero ? tops[i] / 2 : -tops[i] / 16, tops[i] };
            const chart_series one = { .name = "t", .x = x, .y = top, .n = 2 };
            char               wanted[100];
            snprintf(wanted, sizeof wanted, "T; y\" over x&%s\nt: 1 %.6g, 2 %.6g\n| t\n", zero ? "; from zero" : "",
                     top[0], top[1]);
            lines_tell((chart_lines_options){ .series = &one, .n = 1, .from_zero = zero }, wanted);
        }
}

/* Of a long series the smallest and the largest of every stretch stay, in their order; of 1,000 points all. */
TEST(stretches)
{
    enum { LONG = 2501 };
    static double steps[LONG], values[LONG];
    const size_t  counts[] = { 1000, 1001, LONG };
    for (size_t i = 0; i < LONG; i++) steps[i] = (double)i, values[i] = (double)(i * 7919 % 1009);
    for (size_t i = 0; i < 3; i++) {
        const chart_series s = { .name = "long", .x = steps, .y = values, .n = counts[i] };
        size_t             stretch = i == 0 ? 1 : i == 1 ? 3 : 6; /* so that there are at most 1,000 */
        tm_text            wanted = { 0 };
        tm_text_add(&wanted, "T; y\" over x&; from zero\nlong:");
        for (size_t k = 0, n = 0; k < s.n; k++) {
            bool least = true, most = true;
            for (size_t m = k - k % stretch; m < s.n && m < k - k % stretch + stretch; m++)
                least = least && values[m] >= values[k], most = most && values[m] <= values[k];
            if (stretch == 1 || least || most)
                tm_text_printf(&wanted, "%s %.6g %.6g", n++ ? "," : "", steps[k], values[k]);
        }
        tm_text_add(&wanted, "\n| long\n");
        lines_tell((chart_lines_options){ .series = &s, .n = 1 }, wanted.data);
        tm_text_fini(&wanted);
    }
}

/* --- roofline ----------------------------------------------------------------------------------------------------- */

/* Lines that compute little and much, fast and slow, some of them at one place: below roofs of every kind. */
TEST(rooflines)
{
    static const char *const names[] = { "forward linear", "backward linear",    "forward attention",
                                         "loss",           "backward attention", "sec&nd <line>" };
    static const char *const groups[] = { "one", "a run of a rather long name, which nobody would type" };
    static const struct {
        double      flops, bytes;
        const char *names[2];
    } peaks[] = { { 1e12, 1e11, { "arithmetic: 1 TFLOP/s", "memory: 100 GB/s" } },
                  { 5e14, 4e12, { "arithmetic: 500 TFLOP/s", "memory: 4 TB/s" } },
                  { 1e9, 2e10, { "arithmetic: 1 GFLOP/s", "memory: 20 GB/s" } } };
    chart_work works[6];
    for (int i = 0; i < 3; i++)
        for (int crowd = 0; crowd < 3; crowd++) {
            double  ridge = peaks[i].flops / peaks[i].bytes;
            tm_text wanted = { 0 }, out = { 0 };
            tm_text_printf(&wanted, "R; GFLOP/s over FLOP per byte of the operands\n%s%s\n%s%s\n", i == 1 ? "- " : "",
                           peaks[i].names[1], crowd == 1 ? "- " : "", peaks[i].names[0]);
            for (int k = 0; k < 6; k++) {
                double at = ridge * (crowd == 0   ? pow(4, k - 3)
                                     : crowd == 1 ? 20 + k
                                                  : 1),
                       part = crowd == 2 ? 1 : 0.1 * (k + 1);
                works[k] = (chart_work){ .name = names[k],
                                         .label = k < 5 ? names[k] : NULL,
                                         .flops = 1e9 * at,
                                         .bytes = 1e9,
                                         .seconds = fmax(1e9 * at / peaks[i].flops, 1e9 / peaks[i].bytes) / part,
                                         .colour = 4 * (k % 2),
                                         .shape = k % 2 };
                if (k < 5) tm_text_printf(&wanted, "%s\n", names[k]);
            }
            for (int k = 0; k < 6; k++) {
                tm_text_printf(&wanted, "* %s: ", names[k]);
                chart_number(&wanted, works[k].flops / works[k].seconds / 1e9);
                tm_text_add(&wanted, " GFLOP/s, ");
                chart_number(&wanted, works[k].flops / works[k].bytes);
                tm_text_add(&wanted, " FLOP per byte\n");
            }
            tm_text_add(&wanted, "ridge: ");
            chart_number(&wanted, ridge);
            tm_text_printf(&wanted, " FLOP/B\n| %s\n| %s\n", peaks[i].names[1], peaks[i].names[0]);
            for (int k = 0; k < crowd; k++) tm_text_printf(&wanted, "| %s\n", groups[k]);
            chart_roofline(&out, &(chart_roofline_options){ .id = "r",
                                                            .title = "R",
                                                            .works = works,
                                                            .n = 6,
                                                            .peak_flops = peaks[i].flops,
                                                            .peak_bytes = peaks[i].bytes,
                                                            .flops_name = peaks[i].names[0],
                                                            .bytes_name = peaks[i].names[1],
                                                            .groups = groups,
                                                            .n_groups = (size_t)crowd,
                                                            .flops_known = crowd != 1,
                                                            .bytes_known = i != 1 });
            tells(&out, "r", true, true, wanted.data);
            tm_text_fini(&wanted);
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
