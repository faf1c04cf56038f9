/* SPDX-License-Identifier: Apache-2.0 */
/* tests/results/report_rules.h - runs beside the files they were read from, and what the charts of a report have to
 * show of those files. */
#ifndef TM_TESTS_RESULTS_REPORT_RULES_H
#define TM_TESTS_RESULTS_REPORT_RULES_H

#include "results/chart_marks.h"
#include "made_runs.h"

#include <jansson.h>

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

/* Seven hues of which each has four shades, plain ones first, then dark ones. */
static inline int run_colour(size_t i)
{
    return (int)(4 * (i % 7) + (i / 7 % 2 ? 2 : 0));
}

static inline bool of_images(const source *run)
{
    return member(run->tree, "images_per_second_per_device") != NULL;
}

/* A new series of at most `room` points, none yet. */
static inline chart_series *begin_series(series *s, const char *name, size_t colour, size_t room)
{
    assert_true(s->n < MOST_SERIES);
    chart_series *one = &s->all[s->n++];
    *one = (chart_series){ .name = name,
                           .colour = run_colour(colour),
                           .x = tm_arena_take(s->arena, (room + 1) * sizeof(double)),
                           .y = tm_arena_take(s->arena, (room + 1) * sizeof(double)) };
    return one;
}

static inline void add_to(chart_series *one, double x, double y)
{
    ((double *)one->x)[one->n] = x;
    ((double *)one->y)[one->n++] = y;
}

static inline const char *loss_unit(const source *run)
{
    if (of_images(run)) return "mean square error";
    return member(run->tree, "preference") ? "nats per pair" : "nats per token";
}

/* Losses of one unit have a chart of their own. */
static inline void losses_of_unit(const svg_page *page, const char *id, const char *unit, const source *runs, size_t n,
                                  series *s)
{
    double end = 1; /* the last step of all */
    s->n = 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(loss_unit(&runs[i]), unit) != 0) continue;
        size_t  k;
        json_t *line;
        json_array_foreach(runs[i].lines, k, line) if (!member(line, "event")) end = fmax(end, number_of(line, "step"));
    }
    for (size_t i = 0; i < n; i++) {
        if (strcmp(loss_unit(&runs[i]), unit) != 0) continue;
        double        floor = number_of(runs[i].tree, "loss/floor"), first = (double)NAN;
        size_t        k, count = json_array_size(runs[i].lines);
        json_t       *line;
        chart_series *steps = begin_series(s, runs[i].shown, i, count);
        json_array_foreach(runs[i].lines, k, line)
        {
            if (member(line, "event")) continue;
            if (isnan(first)) first = number_of(line, "step");
            add_to(steps, number_of(line, "step"), number_of(line, "loss"));
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
        bool again = false; /* the same data have one line */
        for (k = 0; k < i; k++)
            again = again || (strcmp(loss_unit(&runs[k]), unit) == 0 &&
                              fabs(number_of(runs[k].tree, "loss/floor") - floor) < 1e-9);
        if (isnan(floor) || again) continue;
        const char   *what = of_images(&runs[i]) ? "least possible loss" : "entropy of the data";
        chart_series *least = begin_series(s, tm_arena_format(s->arena, "%s %.4g", what, floor), i, 2);
        least->colour = 28 + (int)(i % 4);
        least->dashed = true;
        add_to(least, isnan(first) ? 0 : first, floor);
        add_to(least, end, floor);
    }
    double lo = (double)INFINITY, hi = 0; /* a loss that has run away is on a logarithmic scale */
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->all[i].n; k++)
            if (isfinite(s->all[i].y[k])) lo = fmin(lo, s->all[i].y[k]), hi = fmax(hi, s->all[i].y[k]);
    lines_are_drawn(page, &(chart_lines_options){ .id = id,
                                                  .title = "Loss",
                                                  .x_name = "step",
                                                  .y_name = unit,
                                                  .series = s->all,
                                                  .n = s->n,
                                                  .log_y = lo > 0 && hi > 100 * lo });
}

/* Returns how many charts there are. */
static inline size_t loss_is_drawn(const svg_page *page, const source *runs, size_t n, series *s)
{
    size_t units = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (strcmp(loss_unit(&runs[k]), loss_unit(&runs[i])) != 0) k++;
        if (k < i) continue;
        const char *id = units++ ? tm_arena_format(s->arena, "loss-%zu", units) : "loss";
        losses_of_unit(page, id, loss_unit(&runs[i]), runs, n, s);
    }
    return units;
}

static inline void speed_is_drawn(const svg_page *page, const source *runs, size_t n, series *s)
{
    chart_lines_options o = { .id = "speed",
                              .title = "Speed of each step, for each device",
                              .x_name = "step",
                              .y_name = "tokens/s",
                              .from_zero = true,
                              .shade_name = "the steps that count",
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

/* What a time, or a sum of bytes, is called. */
static inline const char *time_text(tm_arena *arena, double s)
{
    if (s < 1e-3) return tm_arena_format(arena, "%.4g µs", 1e6 * s);
    if (s < 1) return tm_arena_format(arena, "%.4g ms", 1e3 * s);
    return tm_arena_format(arena, s < 120 ? "%.4g s" : "%.4g min", s < 120 ? s : s / 60);
}

static inline const char *byte_text(tm_arena *arena, double bytes)
{
    char text[32];
    return tm_arena_text(arena, tm_format_bytes(text, bytes));
}

/* The colours of a key's squares in their order. */
static inline size_t key_colours(const svg_page *page, const char *id, int *colours, size_t room)
{
    size_t n = 0, from = 0;
    for (; from < page->n; from++) {
        const char *is = svg_attribute(&page->nodes[from], "id");
        if (is && strcmp(is, id) == 0) break;
    }
    for (size_t i = from; from < page->n && i < page->nodes[from].end; i++) {
        const char *class_name = svg_attribute(&page->nodes[i], "class");
        if (strcmp(page->nodes[i].tag, "rect") != 0 || colour_of(class_name) < 0 || strchr(class_name, ' ')) continue;
        assert_true(n < room);
        colours[n++] = colour_of(class_name);
    }
    return n;
}

/* What computes the same forward and backward has one hue and two shades; nothing else has that hue and its shade. */
static inline void phases_have_hues(const char *const *names, const int *colours, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) {
            if (i != k && colours[i] == colours[k]) fail_msg("'%s' has the colour of '%s'", names[i], names[k]);
            if (strncmp(names[i], "forward ", 8) != 0 || strncmp(names[k], "backward ", 9) != 0) continue;
            if (strcmp(names[i] + 8, names[k] + 9) == 0) assert_int_equal(colours[i] / 4, colours[k] / 4);
        }
}

static inline void ledger_is_drawn(const svg_page *page, const source *runs, size_t n, tm_arena *arena)
{
    const char *rows[MOST_RUNS], *columns[16], *shown[MOST_RUNS * 16], *sums[MOST_RUNS], *name;
    double      values[MOST_RUNS * 16] = { 0 };
    size_t      n_columns = 0;
    int         colours[16];
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
        double sum = 0;
        rows[i] = runs[i].shown;
        for (size_t k = 0; k < n_columns; k++) {
            double value = json_number_value(json_object_get(member(runs[i].tree, "phases/mean_seconds"), columns[k]));
            sum += values[i * n_columns + k] = value;
            shown[i * n_columns + k] = time_text(arena, value);
        }
        sums[i] = time_text(arena, sum);
    }
    assert_int_equal(key_colours(page, "ledger", colours, 16), n_columns);
    phases_have_hues(columns, colours, n_columns);
    bars_are_drawn(page, &(chart_bars_options){ .id = "ledger",
                                                .title = "Where a step's time goes",
                                                .rows = rows,
                                                .columns = columns,
                                                .shown = shown,
                                                .sums = sums,
                                                .colours = colours,
                                                .n_rows = n,
                                                .n_columns = n_columns,
                                                .values = values });
}

enum { MOST_CLASSES = 16, MOST_PLACES = 64 };

/* Bytes by class and point of a step. */
typedef struct {
    const char *names[MOST_CLASSES];
    double      values[MOST_CLASSES][MOST_PLACES];
    size_t      n, points, fullest;
} classes_seen;

static inline classes_seen classes_of(const source *run)
{
    classes_seen c = { .n = 0 };
    json_t      *one;
    const char  *name;
    double       most = -1;
    json_object_foreach(member(run->tree, "memory_along_step"), name, one)
    {
        assert_true(c.n < MOST_CLASSES && json_array_size(one) <= MOST_PLACES);
        c.points = json_array_size(one);
        for (size_t p = 0; p < c.points; p++) c.values[c.n][p] = json_number_value(json_array_get(one, p));
        c.names[c.n++] = name;
    }
    for (size_t p = 0; p < c.points; p++) {
        double sum = 0;
        for (size_t i = 0; i < c.n; i++) sum += c.values[i][p];
        if (sum > most) most = sum, c.fullest = p;
    }
    return c;
}

static inline bool has_bytes(const classes_seen *c, size_t i)
{
    for (size_t p = 0; p < c->points; p++)
        if (c->values[i][p] > 0) return true;
    return false;
}

/* Of one run along a step. */
static inline bool areas_of_memory(const svg_page *page, const source *run, tm_arena *arena)
{
    static double values[MOST_CLASSES * MOST_PLACES];
    classes_seen  c = classes_of(run);
    const char   *names[MOST_CLASSES], *shown[MOST_CLASSES];
    int           colours[MOST_CLASSES];
    double planned = number_of(run->tree, "memory/planned_bytes"), most = planned > 0 ? planned : 0, sum = 0, unit = 1;
    size_t n = 0;
    for (size_t i = 0; i < c.n; i++) sum += c.values[i][c.fullest];
    most = fmax(most, sum);
    int power = most >= 0x1p40 ? 4 : most >= 0x1p30 ? 3 : most >= 0x1p20 ? 2 : 1;
    for (int k = 0; k < power; k++) unit *= 1024;
    for (size_t i = 0; i < c.n; i++) {
        if (!has_bytes(&c, i)) continue;
        names[n] = c.names[i];
        shown[n] = byte_text(arena, c.values[i][c.fullest]);
        for (size_t p = 0; p < c.points; p++) values[n * c.points + p] = c.values[i][p] / unit;
        n++;
    }
    if (n == 0) return false;
    assert_int_equal(key_colours(page, "memory", colours, MOST_CLASSES), n);
    areas_are_drawn(
        page, &(chart_areas_options){ .id = "memory",
                                      .title = "Memory along a step (names: at its fullest point)",
                                      .x_name = "from the first instruction of the step to its last",
                                      .y_name = power == 4   ? "TiB"
                                                : power == 3 ? "GiB"
                                                : power == 2 ? "MiB"
                                                             : "KiB",
                                      .columns = names,
                                      .shown = shown,
                                      .colours = colours,
                                      .n_columns = n,
                                      .n_points = c.points,
                                      .values = values,
                                      .limit = planned > 0 ? planned / unit : 0,
                                      .limit_name = tm_arena_format(arena, "planned %s", byte_text(arena, planned)) });
    return true;
}

/* Of several at the fullest point of each; false: they have no such chart. */
static inline bool memory_is_drawn(const svg_page *page, const source *runs, size_t n, tm_arena *arena)
{
    const char *names[MOST_CLASSES], *shown[MOST_RUNS * MOST_CLASSES], *sums[MOST_RUNS], *rows[MOST_RUNS];
    double      values[MOST_RUNS * MOST_CLASSES] = { 0 };
    int         colours[MOST_CLASSES];
    size_t      n_names = 0;
    if (n == 1) return areas_of_memory(page, runs, arena);
    for (size_t i = 0; i < n; i++) {
        classes_seen c = classes_of(&runs[i]);
        for (size_t k = 0; k < c.n; k++) {
            size_t at = 0;
            while (at < n_names && strcmp(names[at], c.names[k]) != 0) at++;
            if (!has_bytes(&c, k) || at < n_names) continue;
            names[n_names++] = c.names[k];
        }
    }
    if (n_names == 0) return false;
    for (size_t i = 0; i < n; i++) {
        classes_seen c = classes_of(&runs[i]);
        double       sum = 0;
        rows[i] = runs[i].shown;
        for (size_t at = 0; at < n_names; at++) {
            double value = 0;
            for (size_t k = 0; k < c.n; k++)
                if (strcmp(names[at], c.names[k]) == 0) value = c.values[k][c.fullest];
            sum += values[i * n_names + at] = value;
            shown[i * n_names + at] = byte_text(arena, value);
        }
        sums[i] = byte_text(arena, sum);
    }
    assert_int_equal(key_colours(page, "memory", colours, MOST_CLASSES), n_names);
    bars_are_drawn(page, &(chart_bars_options){ .id = "memory",
                                                .title = "Memory at the fullest point of a step, by class",
                                                .rows = rows,
                                                .columns = names,
                                                .shown = shown,
                                                .sums = sums,
                                                .colours = colours,
                                                .n_rows = n,
                                                .n_columns = n_names,
                                                .values = values });
    return true;
}

/* What a benchmark has measured beside the runs; 0: nothing. */
typedef struct {
    double flops, bytes;
} roofs_given;

/* The lines of all runs that compute, below two roofs: what was measured, the data sheet's peak, or the most that any
 * line reaches, which is dashed, as is a roof that a line passes. */
static inline bool roofline_is_drawn(const svg_page *page, const source *runs, size_t n, roofs_given given,
                                     tm_arena *arena)
{
    chart_work works[32];
    size_t     n_works = 0, i;
    double     peak = given.flops > 0 ? given.flops : number_of(runs->tree, "peak_flops_per_second");
    double     flops_most = 0, bytes_most = 0;
    json_t    *one;
    for (size_t r = 0; r < n; r++) json_array_foreach(member(runs[r].tree, "work"), i, one)
        {
            const char *line = json_string_value(member(one, "line"));
            double      time = json_number_value(json_object_get(member(runs[r].tree, "phases/mean_seconds"), line));
            double      flops = number_of(one, "flops"), bytes = number_of(one, "bytes");
            bool        known = false;
            if (!(time > 0)) continue;
            flops_most = fmax(flops_most, flops / time);
            bytes_most = fmax(bytes_most, bytes / time);
            if (flops <= 1000 || !(bytes > 0)) continue;
            assert_true(n_works < 32);
            for (size_t k = 0; k < n_works; k++) known = known || (works[k].label && strcmp(works[k].label, line) == 0);
            works[n_works++] =
                (chart_work){ .name = n > 1 ? tm_arena_format(arena, "%s, %s", runs[r].shown, line) : line,
                              .label = known ? NULL : line,
                              .flops = flops,
                              .bytes = bytes,
                              .seconds = time,
                              .colour = run_colour(r) };
        }
    if (n_works == 0) return false;
    if (n == 1) {
        chart_seen c = chart_of(page, "roofline", "Roofline: lines of a step, and the machine's limits");
        size_t     at = c.from;
        for (i = 0; i < n_works; i++) { /* the colours that they have in the ledger: test_report.c compares them */
            do at++;
            while (at < c.end && strcmp(chart_node(&c, at)->tag, "path") != 0);
            works[i].colour = colour_of(svg_attribute(chart_node(&c, at), "class"));
        }
    }
    bool flops_known = isfinite(peak) && flops_most <= 1.05 * peak;
    bool bytes_known = given.bytes > 0 && bytes_most <= 1.05 * given.bytes;
    roofline_reads_back(page, &(chart_roofline_options){ .id = "roofline",
                                                         .title = "Roofline: lines of a step, and the machine's limits",
                                                         .works = works,
                                                         .n = n_works,
                                                         .peak_flops = flops_known ? peak : flops_most,
                                                         .peak_bytes = bytes_known ? given.bytes : bytes_most,
                                                         .flops_known = flops_known,
                                                         .bytes_known = bytes_known });
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

/* Is the chart in the page as it has to be? Returns its parts; 0: these runs have none. */
static inline size_t chart_is_drawn(const svg_page *page, const char *chart, const source *runs, size_t n)
{
    series s = { .arena = tm_arena_create() };
    size_t drawn = 1;
    if (strcmp(chart, "loss") == 0) drawn = loss_is_drawn(page, runs, n, &s);
    if (strcmp(chart, "speed") == 0) speed_is_drawn(page, runs, n, &s);
    if (strcmp(chart, "ledger") == 0) ledger_is_drawn(page, runs, n, s.arena);
    if (strcmp(chart, "memory") == 0) drawn = memory_is_drawn(page, runs, n, s.arena);
    if (strcmp(chart, "roofline") == 0) drawn = roofline_is_drawn(page, runs, n, (roofs_given){ 0, 0 }, s.arena);
    if (strcmp(chart, "numbers") == 0) drawn = numbers_are_drawn(page, runs, n, &s);
    tm_arena_destroy(s.arena);
    return drawn;
}

#endif
