/* SPDX-License-Identifier: Apache-2.0 */
/* results/compare.c - figures of two results side by side. */
#include "results/compare.h"

#include "results/internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORSE_IF_MORE = -1, NEITHER, BETTER_IF_MORE };

typedef struct {
    double value, lo, hi;
} figure;

static const struct {
    const char *name, *unit, *value, *lo, *hi;
} run_figures[] = {
#define RATE(member, unit, value)                                                                                      \
    {                                                                                                                  \
        member, unit, member "/" value, member "/lo", member "/hi"                                                     \
    }
    RATE("images_per_second_per_device", "images/s", "median"),
    RATE("tokens_per_second_per_device", "tokens/s", "median"),
    RATE("tokens_per_second_per_device_overall", "tokens/s", "value"),
    { "step_time median", "s", "step_time/median", NULL, NULL },
    { "step_time p95", "s", "step_time/p95", NULL, NULL },
    { "step_time variation", "%", "step_time/variation_percent", NULL, NULL },
    { "first_step_seconds", "s", "first_step_seconds", NULL, NULL },
    { "loss first", "nats", "loss/first", NULL, NULL },
    { "loss last", "nats", "loss/last", NULL, NULL },
    { "loss validation", "nats", "loss/validation", NULL, NULL },
    { "memory planned", "bytes", "memory/planned_bytes", NULL, NULL },
    { "memory used", "bytes", "memory/used_bytes", NULL, NULL },
    { "memory outside of the arena", "bytes", "memory/outside_arena_bytes", NULL, NULL },
};

static figure figure_of(const tm_result *r, size_t i)
{
    return (figure){ .value = tm_result_number(r, run_figures[i].value),
                     .lo = run_figures[i].lo ? tm_result_number(r, run_figures[i].lo) : (double)NAN,
                     .hi = run_figures[i].hi ? tm_result_number(r, run_figures[i].hi) : (double)NAN };
}

/* In percent, with its interval. */
static figure change_of(figure a, figure b)
{
    double h_a = (a.hi - a.lo) / 2 / a.value, h_b = (b.hi - b.lo) / 2 / b.value;
    double ratio = b.value / a.value, factor = exp(sqrt(h_a * h_a + h_b * h_b));
    return (figure){ 100 * (ratio - 1), 100 * (ratio / factor - 1), 100 * (ratio * factor - 1) };
}

static tm_table *create_table(void)
{
    static const tm_column columns[] = {
        { "figure", 0 },    { "unit", 0 },     { "a", 6 }, { "b", 6 }, { "relative_change_percent", 4 },
        { "change_lo", 4 }, { "change_hi", 4 }
    };
    tm_table *table = tm_table_create("compare");
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    return table;
}

static void add_change(tm_table *table, const char *name, const char *unit, figure a, figure b)
{
    if (!isfinite(a.value) || !isfinite(b.value)) return;
    figure c = change_of(a, b);
    tm_table_row(table);
    tm_table_text(table, "figure", name);
    tm_table_text(table, "unit", unit);
    tm_table_f64(table, "a", a.value);
    tm_table_f64(table, "b", b.value);
    if (a.value > 0 || a.value < 0) tm_table_f64(table, "relative_change_percent", c.value);
    tm_table_f64(table, "change_lo", isfinite(c.lo) ? c.lo : (double)NAN);
    tm_table_f64(table, "change_hi", isfinite(c.hi) ? c.hi : (double)NAN);
}

/* --- benchmarks --------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), s = strlen(suffix);
    return n >= s && strcmp(text + n - s, suffix) == 0;
}

/* By the name of a column, which holds its unit. NEITHER: it is no measured figure. */
static int sense_of(const char *column)
{
    if (strcmp(column, "half_width_pct") == 0 || strcmp(column, "warmup_ms") == 0) return NEITHER;
    if (strstr(column, "tflops") || strstr(column, "per_second") || strstr(column, "_gbps") || strstr(column, "mb_s") ||
        strstr(column, "gb_s"))
        return BETTER_IF_MORE;
    if (ends_with(column, "_ms") || ends_with(column, "_seconds") || ends_with(column, "_us") ||
        ends_with(column, "_s"))
        return WORSE_IF_MORE;
    return NEITHER;
}

/* What a row is of: its column "case", else all its texts that are no verdicts. */
static const char *case_of(const tm_result *r, json_t *row, tm_text *out)
{
    const char *name = json_string_value(json_object_get(row, "case")), *key;
    json_t     *value;
    (void)r;
    out->length = 0;
    tm_text_add(out, name ? name : "");
    if (name) return out->data;
    json_object_foreach(row, key, value)
    {
        bool dimension = isupper((unsigned char)key[0]) || strcmp(key, "dtype") == 0 || strcmp(key, "kernel") == 0 ||
                         strcmp(key, "size") == 0 || strcmp(key, "op") == 0;
        if (!dimension) continue;
        if (json_is_string(value)) tm_text_printf(out, "%s%s", out->length ? " " : "", json_string_value(value));
        if (json_is_integer(value))
            tm_text_printf(out, "%s%s=%lld", out->length ? " " : "", key, (long long)json_integer_value(value));
    }
    return out->data;
}

static json_t *find_case(const tm_result *r, const char *wanted)
{
    size_t  i;
    json_t *row;
    tm_text name = { 0 };
    json_array_foreach(results_member(results_tree(r), "table/rows"), i, row)
    {
        if (strcmp(case_of(r, row, &name), wanted) == 0) {
            tm_text_fini(&name);
            return row;
        }
    }
    tm_text_fini(&name);
    return NULL;
}

/* The interval is that of the rate. */
static figure cell_figure(json_t *row, const char *column)
{
    bool    rate = sense_of(column) > 0 || strcmp(column, "avg_time_ms") == 0;
    double  value = json_number_value(json_object_get(row, column));
    json_t *width = json_object_get(row, "half_width_pct");
    double  half = rate && json_is_number(width) ? value * json_number_value(width) / 100 : (double)NAN;
    return (figure){ value, value - half, value + half };
}

static void compare_row(tm_table *table, const char *name, json_t *a, json_t *b)
{
    const char *column;
    json_t     *value;
    tm_text     text = { 0 };
    json_object_foreach(a, column, value)
    {
        if (sense_of(column) == NEITHER || !json_is_number(value) || !json_is_number(json_object_get(b, column)))
            continue;
        text.length = 0;
        tm_text_printf(&text, "%s: %s", name, column);
        add_change(table, text.data, NULL, cell_figure(a, column), cell_figure(b, column));
    }
    tm_text_fini(&text);
}

static void compare_benches(tm_table *table, const tm_result *a, const tm_result *b)
{
    size_t  i;
    json_t *row;
    tm_text name = { 0 };
    json_array_foreach(results_member(results_tree(a), "table/rows"), i, row)
    {
        json_t *other = find_case(b, case_of(a, row, &name));
        if (other) compare_row(table, name.data, row, other);
    }
    tm_text_fini(&name);
}

tm_table *tm_results_compare(const tm_result *a, const tm_result *b)
{
    tm_table *table = create_table();
    if (tm_result_kind_of(a) != tm_result_kind_of(b)) return table;
    if (tm_result_kind_of(a) == TM_RESULT_BENCH)
        compare_benches(table, a, b);
    else
        for (size_t i = 0; i < sizeof run_figures / sizeof run_figures[0]; i++)
            add_change(table, run_figures[i].name, run_figures[i].unit, figure_of(a, i), figure_of(b, i));
    return table;
}

/* --- beside published figures ------------------------------------------------------------------------------------- */

static tm_table *measured_run(const tm_result *r)
{
    json_t   *flops = results_member(results_tree(r), "flops"), *one;
    size_t    i;
    char      name[96];
    double    rate = tm_result_number(r, "tokens_per_second_per_device/median");
    tm_table *table = tm_table_create("run");
    tm_table_column(table, "case", 0);
    tm_table_column(table, "tokens_per_second", 0);
    for (int fill = 0; fill < 2; fill++) {
        if (fill) {
            tm_table_row(table);
            tm_table_text(table, "case", tm_result_string(r, "model"));
            tm_table_f64(table, "tokens_per_second", rate);
        }
        json_array_foreach(flops, i, one)
        {
            const char *convention = json_string_value(json_object_get(one, "convention"));
            snprintf(name, sizeof name, "tflops_%.60s", convention ? convention : "");
            for (char *c = name; *c; c++)
                if (!isalnum((unsigned char)*c)) *c = '_';
            if (!fill && tm_table_find(table, name) < 0) tm_table_column(table, name, 0);
            if (fill)
                tm_table_f64(table, name, json_number_value(json_object_get(one, "per_second_per_device")) / 1e12);
        }
    }
    return table;
}

static tm_table *measured_bench(const tm_result *r)
{
    const char *name = tm_result_string(r, "table/name"), *column;
    json_t     *rows = results_member(results_tree(r), "table/rows"), *row, *value;
    size_t      i;
    tm_table   *table = tm_table_create(name ? name : "bench");
    json_object_foreach(json_array_get(rows, 0), column, value) tm_table_column(table, column, 0);
    json_array_foreach(rows, i, row)
    {
        tm_table_row(table);
        json_object_foreach(row, column, value)
        {
            if (tm_table_find(table, column) < 0) continue;
            if (json_is_string(value)) tm_table_text(table, column, json_string_value(value));
            if (json_is_number(value)) tm_table_f64(table, column, json_number_value(value));
        }
    }
    return table;
}

tm_table *tm_results_measured(const tm_result *r)
{
    return tm_result_kind_of(r) == TM_RESULT_RUN ? measured_run(r) : measured_bench(r);
}
