/* SPDX-License-Identifier: Apache-2.0 */
/* tests/results/report_rules.h - runs beside the files they were read from, and what the charts of a report have to
 * show of those files. */
#ifndef TM_TESTS_RESULTS_REPORT_RULES_H
#define TM_TESTS_RESULTS_REPORT_RULES_H

#include "results/chart_rules.h"
#include "made_runs.h"

#include <jansson.h>

static const char metrics[] = "tests/golden/whole-metrics.txt";

enum { MOST_RUNS = 2, MOST_SERIES = 24, MOST_FIGURES = 64, FARTHEST = 10 };

/* A run as the report has it, and the files again, read without it. */
typedef struct {
    const char *name, *shown; /* asked for; in the report */
    tm_result  *run;
    json_t     *tree, *lines; /* result.json; an array of the records of metrics.jsonl */
} source;

static inline source open_source(const char *name, const char *shown, tm_text json, tm_text lines)
{
    source   s = { .name = name, .shown = shown, .lines = json_array() };
    tm_error err = { 0 };
    s.tree = json_loads(json.data, 0, NULL);
    for (const char *at = lines.data, *end; at && (end = strchr(at, '\n')); at = end + 1)
        json_array_append_new(s.lines, json_loadb(at, (size_t)(end - at), 0, NULL));
    assert_non_null(s.tree);
    if (tm_result_parse(name, &json, lines.data ? &lines : NULL, NULL, &s.run, &err) != TM_OK) fail_msg("%s", err.text);
    tm_text_fini(&json);
    tm_text_fini(&lines);
    return s;
}

static inline void close_source(source *s)
{
    tm_result_destroy(s->run);
    json_decref(s->tree);
    json_decref(s->lines);
}

static inline json_t *member(json_t *tree, const char *path)
{
    size_t length = strcspn(path, "/");
    char   key[64];
    snprintf(key, sizeof key, "%.*s", (int)length, path);
    json_t *one = json_object_get(tree, key);
    return path[length] ? member(one, path + length + 1) : one;
}

static inline double number_of(json_t *tree, const char *path)
{
    json_t *one = member(tree, path);
    return json_is_number(one) ? json_number_value(one) : (double)NAN;
}

/* A cell says the member: a text as it is, a number to its last digit, nothing where there is none. */
static inline void cell_says(const char *cell, json_t *wanted)
{
    char   *end;
    tm_text plain = { 0 };
    if (json_is_string(wanted)) {
        tm_plain_add(&plain, json_string_value(wanted), 0);
        assert_string_equal(cell, plain.data);
        tm_text_fini(&plain);
    } else if (json_is_number(wanted)) {
        double value = strtod(cell, &end);
        if (*end || end == cell || value < json_number_value(wanted) || value > json_number_value(wanted))
            fail_msg("'%s' is not %.17g", cell, json_number_value(wanted));
    } else {
        assert_string_equal(cell, json_is_true(wanted) ? "true" : json_is_false(wanted) ? "false" : "");
    }
}

/* --- charts ------------------------------------------------------------------------------------------------------- */

typedef struct {
    tm_arena    *arena;
    chart_series all[MOST_SERIES];
    size_t       n;
} series;

/* A new series of at most `room` points, none yet. */
static inline chart_series *begin_series(series *s, const char *name, size_t colour, size_t room)
{
    assert_true(s->n < MOST_SERIES);
    chart_series *one = &s->all[s->n++];
    *one = (chart_series){ .name = name,
                           .colour = (int)(colour % 10),
                           .x = tm_arena_take(s->arena, (room + 1) * sizeof(double)),
                           .y = tm_arena_take(s->arena, (room + 1) * sizeof(double)) };
    return one;
}

static inline void add_to(chart_series *one, double x, double y)
{
    ((double *)one->x)[one->n] = x;
    ((double *)one->y)[one->n++] = y;
}

static inline void loss_is_drawn(const svg_page *page, const source *runs, size_t n, series *s)
{
    for (size_t i = 0; i < n; i++) {
        double        floor = number_of(runs[i].tree, "loss/floor"), first = (double)NAN, last = (double)NAN;
        size_t        k, count = json_array_size(runs[i].lines);
        json_t       *line;
        chart_series *steps = begin_series(s, runs[i].shown, i, count);
        json_array_foreach(runs[i].lines, k, line)
        {
            if (member(line, "event")) continue;
            last = number_of(line, "step");
            if (isnan(first)) first = last;
            add_to(steps, last, number_of(line, "loss"));
        }
        if (steps->n == 0) s->n--;
        chart_series *looks = begin_series(s, tm_arena_format(s->arena, "%s, validation", runs[i].shown), i, count);
        looks->dots = true;
        json_array_foreach(runs[i].lines, k, line)
        {
            const char *event = json_string_value(member(line, "event"));
            if (event && strcmp(event, "evaluation") == 0)
                add_to(looks, number_of(line, "step"), number_of(line, "loss"));
        }
        if (looks->n == 0) s->n--;
        if (isnan(floor)) continue;
        chart_series *least = begin_series(s, "entropy of the data", i, 2);
        least->dashed = true;
        add_to(least, isnan(first) ? 0 : first, floor);
        add_to(least, isnan(first) ? 1 : last, floor);
    }
    lines_are_drawn(
        page,
        &(chart_lines_options){
            .id = "loss", .title = "Loss", .x_name = "step", .y_name = "nats per token", .series = s->all, .n = s->n });
}

static inline void speed_is_drawn(const svg_page *page, const source *runs, size_t n, series *s)
{
    chart_lines_options o = { .id = "speed",
                              .title = "Tokens per second and device (shaded: the steps that count)",
                              .x_name = "step",
                              .y_name = "tokens/s",
                              .from_zero = true,
                              .n = n };
    for (size_t i = 0; i < n; i++) {
        json_t       *seconds = member(runs[i].tree, "step_seconds"), *one;
        size_t        k;
        double        first = number_of(runs[i].tree, "steps/first"), tokens = number_of(runs[i].tree, "batch_tokens");
        chart_series *steps = begin_series(s, runs[i].shown, i, json_array_size(seconds));
        json_array_foreach(seconds, k, one) add_to(steps, first + (double)k, tokens / json_number_value(one));
        if (n > 1) continue;
        o.shade_from = first + number_of(runs[i].tree, "steps/warmup");
        o.shade_to = first + (double)steps->n;
    }
    o.series = s->all;
    lines_are_drawn(page, &o);
}

static inline void ledger_is_drawn(const svg_page *page, const source *runs, size_t n)
{
    const char *rows[MOST_RUNS], *columns[16], *name;
    double      values[MOST_RUNS * 16] = { 0 };
    size_t      n_columns = 0;
    json_t     *one;
    for (size_t i = 0; i < n; i++) json_object_foreach(member(runs[i].tree, "phases/mean_seconds"), name, one)
        {
            size_t k = 0;
            while (k < n_columns && strcmp(columns[k], name) != 0) k++;
            assert_true(k < 16);
            columns[k] = name;
            n_columns += k == n_columns;
        }
    for (size_t i = 0; i < n; i++) {
        rows[i] = runs[i].shown;
        for (size_t k = 0; k < n_columns; k++)
            values[i * n_columns + k] =
                1e3 * json_number_value(json_object_get(member(runs[i].tree, "phases/mean_seconds"), columns[k]));
    }
    bars_are_drawn(page, &(chart_bars_options){ .id = "ledger",
                                                .title = "Where a step's time goes",
                                                .unit = "ms",
                                                .rows = rows,
                                                .columns = columns,
                                                .n_rows = n,
                                                .n_columns = n_columns,
                                                .values = values });
}

/* Of the first run; false: it has no such chart. */
static inline bool memory_is_drawn(const svg_page *page, const source *first)
{
    json_t     *classes = member(first->tree, "memory_along_step"), *one;
    size_t      n = 0, points = 0;
    const char *columns[16], *name;
    double      values[64];
    json_object_foreach(classes, name, one)
    {
        columns[n++] = name;
        points = json_array_size(one);
        assert_true(n < 16 && n * points <= 64);
        for (size_t p = 0; p < points; p++)
            values[(n - 1) * points + p] = json_number_value(json_array_get(one, p)) / 1048576;
    }
    if (n == 0) return false;
    areas_are_drawn(page, &(chart_areas_options){ .id = "memory",
                                                  .title = "Memory along a step, by class",
                                                  .x_name = "from the first instruction of the step to its last",
                                                  .y_name = "MiB",
                                                  .columns = columns,
                                                  .n_columns = n,
                                                  .n_points = points,
                                                  .values = values,
                                                  .limit = number_of(first->tree, "memory/planned_bytes") / 1048576,
                                                  .limit_name = "planned" });
    return true;
}

/* Lines of the step that compute, below two roofs: the fastest bytes of any line, and the peak. */
static inline bool roofline_is_drawn(const svg_page *page, const source *first, series *s)
{
    double least = (double)INFINITY, most = 0, fastest = 0,
           peak = number_of(first->tree, "peak_flops_per_second") / 1e9;
    size_t  i;
    json_t *one;
    json_array_foreach(member(first->tree, "work"), i, one)
    {
        const char *line = json_string_value(member(one, "line"));
        double      time = json_number_value(json_object_get(member(first->tree, "phases/mean_seconds"), line));
        double      flops = number_of(one, "flops"), bytes = number_of(one, "bytes");
        if (!(time > 0) || !(bytes > 0)) continue;
        fastest = fmax(fastest, bytes / time);
        if (flops <= 1000) continue;
        chart_series *dot = begin_series(s, line, s->n, 1);
        dot->dots = true;
        add_to(dot, flops / bytes, flops / time / 1e9);
        least = fmin(least, flops / bytes);
        most = fmax(most, flops / bytes);
    }
    if (s->n == 0) return false;
    const char   *name = tm_arena_format(s->arena, "memory, as fast as any line moves it: %.3g GB/s", fastest / 1e9);
    chart_series *memory = begin_series(s, name, 8, 2);
    memory->dashed = true;
    add_to(memory, least, least * fastest / 1e9);
    add_to(memory, most, most * fastest / 1e9);
    if (isfinite(peak)) {
        chart_series *roof = begin_series(s, "peak", 7, 2);
        roof->dashed = true;
        add_to(roof, least, peak);
        add_to(roof, most, peak);
    }
    lines_are_drawn(page, &(chart_lines_options){ .id = "roofline",
                                                  .title = "Roofline: what the step's lines reach",
                                                  .x_name = "FLOP per byte of its operands",
                                                  .y_name = "GFLOP/s",
                                                  .series = s->all,
                                                  .n = s->n,
                                                  .log_x = true,
                                                  .log_y = true });
    return true;
}

static inline bool numbers_are_drawn(const svg_page *page, const source *runs, size_t n, series *s)
{
    static const char *const kinds[] = { "forward", "backward", "factor", "gradient" };
    for (size_t i = 0; i < n; i++)
        for (size_t kind = 0; kind < 4; kind++) {
            json_t       *tensors = member(runs[i].tree, "microscope/last/tensors"), *one;
            const char   *name = tm_arena_format(s->arena, "%s, %s", runs[i].shown, kinds[kind]);
            chart_series *dots = begin_series(s, name, 4 * i + kind, json_array_size(tensors));
            size_t        k;
            dots->dots = true;
            json_array_foreach(tensors, k, one)
            {
                double error = number_of(one, "relative_error");
                if (strcmp(json_string_value(member(one, "kind")), kinds[kind]) == 0 && error > 0)
                    add_to(dots, (double)k + 1, error);
            }
            if (dots->n == 0) s->n--;
        }
    if (s->n == 0) return false;
    lines_are_drawn(page,
                    &(chart_lines_options){ .id = "numbers",
                                            .title = "Relative error of each tensor (the last look of the microscope)",
                                            .x_name = "tensor, in the order of the program",
                                            .y_name = "relative error",
                                            .series = s->all,
                                            .n = s->n,
                                            .log_y = true });
    return true;
}

/* Is the chart in the page as it has to be? false: these runs have none. */
static inline bool chart_is_drawn(const svg_page *page, const char *chart, const source *runs, size_t n)
{
    series s = { .arena = tm_arena_create() };
    bool   drawn = true;
    if (strcmp(chart, "loss") == 0) loss_is_drawn(page, runs, n, &s);
    if (strcmp(chart, "speed") == 0) speed_is_drawn(page, runs, n, &s);
    if (strcmp(chart, "ledger") == 0) ledger_is_drawn(page, runs, n);
    if (strcmp(chart, "memory") == 0) drawn = memory_is_drawn(page, runs);
    if (strcmp(chart, "roofline") == 0) drawn = roofline_is_drawn(page, runs, &s);
    if (strcmp(chart, "numbers") == 0) drawn = numbers_are_drawn(page, runs, n, &s);
    tm_arena_destroy(s.arena);
    return drawn;
}

#endif
