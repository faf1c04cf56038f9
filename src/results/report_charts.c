/* SPDX-License-Identifier: Apache-2.0 */
#include "results/report_charts.h"

#include "results/chart.h"
#include "results/internal.h"
#include "results/report_figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double *take(const report_runs *r, size_t n)
{
    return tm_arena_take(r->arena, (n + 1) * sizeof(double));
}

/* Of the i-th run; the name is the caller's. */
static chart_series series_of(const report_runs *r, size_t i, size_t n)
{
    return (chart_series){
        .x = take(r, n), .y = take(r, n), .n = n, .colour = chart_colour(i), .shape = (int)(i % CHART_SHAPES)
    };
}

static bool of_images(const report_runs *r, size_t run)
{
    return results_member(results_tree(r->runs[run]), "images_per_second_per_device") != NULL;
}

const char *report_loss_unit(const report_runs *r, size_t run)
{
    if (of_images(r, run)) return "mean square error";
    return results_member(results_tree(r->runs[run]), "preference") ? "nats per pair" : "nats per token";
}

const char *report_floor_name(const report_runs *r, size_t run)
{
    return of_images(r, run) ? "least possible loss" : "entropy of the data";
}

/* --- loss and speed ----------------------------------------------------------------------------------------------- */

static bool same_unit(const report_runs *r, size_t a, size_t b)
{
    return strcmp(report_loss_unit(r, a), report_loss_unit(r, b)) == 0;
}

/* The first run of the unit with this number, in the order of the runs; r->n: there are fewer units. */
static size_t first_of_unit(const report_runs *r, size_t unit)
{
    for (size_t i = 0; i < r->n; i++) {
        size_t k = 0;
        while (!same_unit(r, k, i)) k++;
        if (k == i && unit-- == 0) return i;
    }
    return r->n;
}

/* The least loss that data allow, a dashed line; one for all runs of the same. */
static bool add_floor(const report_runs *r, size_t i, double first, double last, chart_series *out)
{
    double floor = tm_result_number(r->runs[i], "loss/floor");
    if (!isfinite(floor)) return false;
    for (size_t k = 0; k < i; k++)
        if (same_unit(r, k, i) && fabs(tm_result_number(r->runs[k], "loss/floor") - floor) <= 1e-12 * fabs(floor))
            return false;
    *out = series_of(r, i, 2);
    out->colour = CHART_GREY + (int)(i % CHART_SHADES);
    out->dashed = true;
    out->name = tm_arena_format(r->arena, "%s %.4g", report_floor_name(r, i), floor);
    ((double *)out->x)[0] = first;
    ((double *)out->x)[1] = last;
    ((double *)out->y)[0] = ((double *)out->y)[1] = floor;
    return true;
}

/* A loss that has run away would leave a flat line of all others. */
static bool ran_away(const chart_series *all, size_t n)
{
    const double most = 100;
    double       lo = (double)INFINITY, hi = -(double)INFINITY;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < all[i].n; k++)
            if (isfinite(all[i].y[k])) lo = fmin(lo, all[i].y[k]), hi = fmax(hi, all[i].y[k]);
    return lo > 0 && hi > most * lo;
}

/* The last step of all runs with the unit of `one`. */
static double last_step(const report_runs *r, size_t one)
{
    size_t count;
    double end = 1;
    for (size_t i = 0; i < r->n; i++) {
        const tm_result_step *steps = tm_result_steps(r->runs[i], &count);
        if (count && same_unit(r, one, i)) end = fmax(end, (double)steps[count - 1].step);
    }
    return end;
}

/* A part for each unit. */
static void draw_loss(const report_runs *r, size_t part, tm_text *out)
{
    chart_series *all = tm_arena_take(r->arena, 3 * r->n * sizeof *all);
    size_t        n = 0, count, one = first_of_unit(r, part);
    if (one == r->n) return;
    double end = last_step(r, one);
    for (size_t i = 0; i < r->n; i++) {
        if (!same_unit(r, one, i)) continue;
        const tm_result_step *steps = tm_result_steps(r->runs[i], &count);
        double                first = count ? (double)steps[0].step : 0;
        all[n] = series_of(r, i, count);
        all[n].name = r->names[i];
        for (size_t k = 0; k < count; k++) {
            ((double *)all[n].x)[k] = (double)steps[k].step;
            ((double *)all[n].y)[k] = steps[k].loss;
        }
        n += count > 0;
        const tm_result_evaluation *evaluations = tm_result_evaluations(r->runs[i], &count);
        if (count) {
            all[n] = series_of(r, i, count);
            all[n].name = tm_arena_format(r->arena, "%s, validation", r->names[i]);
            all[n].dots = true;
            for (size_t k = 0; k < count; k++) {
                ((double *)all[n].x)[k] = (double)evaluations[k].step;
                ((double *)all[n].y)[k] = evaluations[k].loss;
            }
            n++;
        }
        n += add_floor(r, i, first, end, &all[n]);
    }
    chart_lines(out, &(chart_lines_options){ .id = part ? tm_arena_format(r->arena, "loss-%zu", part + 1) : "loss",
                                             .title = "Loss",
                                             .x_name = "step",
                                             .y_name = report_loss_unit(r, one),
                                             .series = all,
                                             .n = n,
                                             .log_y = ran_away(all, n) });
}

static void draw_speed(const report_runs *r, size_t part, tm_text *out)
{
    if (part > 0) return;
    chart_series *all = tm_arena_take(r->arena, r->n * sizeof *all);
    double        from = 0, to = 0;
    for (size_t i = 0; i < r->n; i++) {
        size_t        count;
        const double *seconds = tm_result_numbers(r->runs[i], "step_seconds", &count);
        double        tokens = tm_result_number(r->runs[i], "batch_tokens"),
               first = tm_result_number(r->runs[i], "steps/first");
        all[i] = series_of(r, i, count);
        all[i].name = r->names[i];
        for (size_t k = 0; k < count; k++) {
            ((double *)all[i].x)[k] = first + (double)k;
            ((double *)all[i].y)[k] = tokens / seconds[k];
        }
        if (i == 0) from = first + tm_result_number(r->runs[i], "steps/warmup"), to = first + (double)count;
    }
    chart_lines(out, &(chart_lines_options){ .id = "speed",
                                             .title = "Speed of each step, for each device",
                                             .x_name = "step",
                                             .y_name = "tokens/s",
                                             .series = all,
                                             .n = r->n,
                                             .from_zero = true,
                                             .shade_from = r->n == 1 ? from : 0,
                                             .shade_to = r->n == 1 ? to : 0,
                                             .shade_name = "the steps that count" });
}

/* --- parts of a step ---------------------------------------------------------------------------------------------- */

/* The names of all members of `path`, in the order of the first run that has them. */
static size_t names_of(const report_runs *r, const char *path, const char **names, size_t room)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) {
        json_t     *object = results_member(results_tree(r->runs[i]), path), *ignored;
        const char *name;
        json_object_foreach(object, name, ignored)
        {
            size_t k = 0;
            while (k < n && strcmp(names[k], name) != 0) k++;
            if (k == n && n < room) names[n++] = name;
        }
    }
    return n;
}

/* What computes forward and backward has one hue, forward the lighter one. Hues of what most steps have are fixed, so
 * that pages look alike; others take what is left. -1: none is left. */
enum { SLOTS = 2 * (CHART_HUES - 1) };

static const char *kind_of(const char *phase, bool *forward)
{
    static const char ahead[] = "forward ", back[] = "backward ";
    *forward = strncmp(phase, ahead, sizeof ahead - 1) == 0;
    if (*forward) return phase + sizeof ahead - 1;
    return strncmp(phase, back, sizeof back - 1) == 0 ? phase + sizeof back - 1 : phase;
}

static bool is_around(const char *kind, int *grey)
{
    static const char *const around[] = { "logging", "data", "unaccounted" };
    for (*grey = 0; *grey < 3; (*grey)++)
        if (strcmp(around[*grey], kind) == 0) return true;
    return false;
}

/* Each kind at its place of the list, others where nothing is. */
static void find_kinds(const char *const *names, size_t n, const char *kinds[SLOTS])
{
    static const char *const known[] = { "linear",        "attention", "norm",   "elementwise",
                                         "optimizer",     "embedding", "loss",   "clip",
                                         "communication", "copies",    "experts" };
    bool                     forward;
    int                      grey;
    for (int k = 0; k < SLOTS; k++) kinds[k] = NULL;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            if (strcmp(kind_of(names[i], &forward), known[k]) == 0) kinds[k] = known[k];
    for (size_t i = 0; i < n; i++) {
        const char *kind = kind_of(names[i], &forward);
        int         k = 0, empty = SLOTS;
        if (is_around(kind, &grey)) continue;
        for (; k < SLOTS && !(kinds[k] && strcmp(kinds[k], kind) == 0); k++)
            if (!kinds[k] && empty == SLOTS) empty = k;
        if (k == SLOTS && empty < SLOTS) kinds[empty] = kind;
    }
}

static void phase_colours(const char *const *names, size_t n, int *colours)
{
    const char *kinds[SLOTS];
    find_kinds(names, n, kinds);
    for (size_t i = 0; i < n; i++) {
        bool        forward;
        const char *kind = kind_of(names[i], &forward);
        int         k = 0, grey;
        while (k < SLOTS && !(kinds[k] && strcmp(kinds[k], kind) == 0)) k++;
        int shade = k < SLOTS / 2 ? forward ? CHART_LIGHT : CHART_PLAIN : forward ? CHART_PALE : CHART_DARK;
        colours[i] = is_around(kind, &grey) ? CHART_GREY + grey
                     : k < SLOTS            ? CHART_SHADES * (k % (SLOTS / 2)) + shade
                                            : -1;
    }
}

/* What is written beside bars. */
typedef struct {
    const char *const *shown, *const *sums;
} bar_texts;

static void bars_of(const report_runs *r, figure_kind kind, const double *values, size_t n, bar_texts *out)
{
    const char **shown = tm_arena_take(r->arena, (n * r->n + 1) * sizeof *shown);
    const char **sums = tm_arena_take(r->arena, r->n * sizeof *sums);
    for (size_t i = 0; i < r->n; i++) {
        double sum = 0;
        for (size_t c = 0; c < n; c++) {
            sum += values[i * n + c];
            shown[i * n + c] = report_amount(r->arena, kind, values[i * n + c]);
        }
        sums[i] = report_amount(r->arena, kind, sum);
    }
    *out = (bar_texts){ shown, sums };
}

static void draw_ledger(const report_runs *r, size_t part, tm_text *out)
{
    if (part > 0) return;
    enum { MOST = 64 };
    bar_texts   texts;
    const char *names[MOST], *columns[MOST + 1];
    int         colours[MOST], own[MOST + 1];
    size_t      n = names_of(r, "phases/mean_seconds", names, MOST), n_columns = 0, places[MOST];
    phase_colours(names, n, colours);
    for (size_t c = 0; c < n; c++) {
        places[c] = colours[c] < 0 ? MOST : n_columns;
        if (colours[c] < 0) continue;
        columns[n_columns] = names[c];
        own[n_columns++] = colours[c];
    }
    bool others = n_columns < n;
    if (others) columns[n_columns] = "others", own[n_columns++] = CHART_GREY + CHART_PALE;
    double *values = take(r, n_columns * r->n);
    for (size_t i = 0; i < n_columns * r->n; i++) values[i] = 0;
    for (size_t i = 0; i < r->n; i++)
        for (size_t c = 0; c < n; c++) {
            json_t *member = json_object_get(results_member(results_tree(r->runs[i]), "phases/mean_seconds"), names[c]);
            double *to = &values[i * n_columns + (places[c] < MOST ? places[c] : n_columns - 1)];
            if (json_is_number(member)) *to += fmax(0, json_number_value(member));
        }
    bars_of(r, FIGURE_SECONDS, values, n_columns, &texts);
    chart_bars(out, &(chart_bars_options){ .id = "ledger",
                                           .title = "Where a step's time goes",
                                           .rows = r->names,
                                           .columns = columns,
                                           .shown = texts.shown,
                                           .sums = texts.sums,
                                           .colours = own,
                                           .n_rows = r->n,
                                           .n_columns = n_columns,
                                           .values = values });
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

enum { CLASSES = 2 * (CHART_HUES - 1) };

static double sum_at(const double *values, size_t n, size_t points, size_t p)
{
    double sum = 0;
    for (size_t c = 0; c < n; c++) sum += values[c * points + p];
    return sum;
}

/* Bytes of a run by class and point of a step: (n, *points). *fullest: the point with the most. */
static double *along_step(const report_runs *r, size_t run, const char *const *classes, size_t n, size_t *points,
                          size_t *fullest)
{
    char   path[96];
    size_t count;
    *points = *fullest = 0;
    for (size_t c = 0; c < n; c++) {
        snprintf(path, sizeof path, "memory_along_step/%.60s", classes[c]);
        (void)tm_result_numbers(r->runs[run], path, &count);
        if (count > *points) *points = count;
    }
    double *values = take(r, n * *points);
    for (size_t c = 0; c < n; c++) {
        snprintf(path, sizeof path, "memory_along_step/%.60s", classes[c]);
        const double *bytes = tm_result_numbers(r->runs[run], path, &count);
        for (size_t p = 0; p < *points; p++) values[c * *points + p] = p < count && isfinite(bytes[p]) ? bytes[p] : 0;
    }
    for (size_t p = 1; p < *points; p++)
        if (sum_at(values, n, *points, p) > sum_at(values, n, *points, *fullest)) *fullest = p;
    return values;
}

static const char *byte_unit(double most, double *unit)
{
    static const char *const names[] = { "KiB", "MiB", "GiB", "TiB" };
    int                      i = most >= 0x1p40 ? 3 : most >= 0x1p30 ? 2 : most >= 0x1p20 ? 1 : 0;
    *unit = pow(2, 10 * (i + 1));
    return names[i];
}

/* Each class has its colour whatever else there is, so that pages look alike; others have those that are left. */
static void class_colours(const char *const *classes, size_t n, int *colours)
{
    static const char *const known[] = { "inputs", "scalars",   "weights",   "constants", "activations",
                                         "logits", "gradients", "optimizer", "workspace" };
    const size_t             n_known = sizeof known / sizeof known[0];
    size_t                   others = n_known;
    for (size_t c = 0; c < n; c++) {
        size_t k = 0;
        while (k < n_known && strcmp(known[k], classes[c]) != 0) k++;
        if (k == n_known) k = others++;
        colours[c] = k < CLASSES ? chart_colour(k) : CHART_GREY + (int)(k % CHART_SHADES);
    }
}

/* Of one run along a step. */
static void draw_areas(const report_runs *r, const char *const *classes, const int *colours, size_t n, tm_text *out)
{
    size_t    points, best;
    double   *values = along_step(r, 0, classes, n, &points, &best), *full = take(r, n), unit;
    double    planned = tm_result_number(r->runs[0], "memory/planned_bytes");
    bar_texts texts;
    for (size_t c = 0; c < n; c++) full[c] = values[c * points + best];
    bars_of(r, FIGURE_BYTES, full, n, &texts);
    const char *name = byte_unit(fmax(sum_at(values, n, points, best), planned), &unit);
    for (size_t i = 0; i < n * points; i++) values[i] /= unit;
    chart_areas(
        out, &(chart_areas_options){ .id = "memory",
                                     .title = "Memory along a step (names: at its fullest point)",
                                     .x_name = "from the first instruction of the step to its last",
                                     .y_name = name,
                                     .columns = classes,
                                     .shown = texts.shown,
                                     .colours = colours,
                                     .n_columns = n,
                                     .n_points = points,
                                     .values = values,
                                     .limit = isfinite(planned) ? planned / unit : 0,
                                     .limit_name = tm_arena_format(r->arena, "planned %s",
                                                                   report_amount(r->arena, FIGURE_BYTES, planned)) });
}

/* Of one run along a step, of several at the fullest point of each. Classes that none has are left out. */
static void draw_memory(const report_runs *r, size_t part, tm_text *out)
{
    if (part > 0) return;
    const char *classes[CLASSES];
    int         colours[CLASSES];
    bar_texts   texts;
    size_t      n = 0, all = names_of(r, "memory_along_step", classes, CLASSES), points, best;
    for (size_t c = 0; c < all; c++) {
        bool any = false;
        for (size_t i = 0; i < r->n; i++) {
            double *along = along_step(r, i, &classes[c], 1, &points, &best);
            any = any || (points && along[best] > 0);
        }
        if (any) classes[n++] = classes[c];
    }
    class_colours(classes, n, colours);
    if (n == 0) return;
    if (r->n == 1) {
        draw_areas(r, classes, colours, n, out);
        return;
    }
    double *values = take(r, n * r->n);
    for (size_t i = 0; i < r->n; i++) {
        double *along = along_step(r, i, classes, n, &points, &best);
        for (size_t c = 0; c < n; c++) values[i * n + c] = points ? along[c * points + best] : 0;
    }
    bars_of(r, FIGURE_BYTES, values, n, &texts);
    chart_bars(out, &(chart_bars_options){ .id = "memory",
                                           .title = "Memory at the fullest point of a step, by class",
                                           .rows = r->names,
                                           .columns = classes,
                                           .shown = texts.shown,
                                           .sums = texts.sums,
                                           .colours = colours,
                                           .n_rows = r->n,
                                           .n_columns = n,
                                           .values = values });
}

/* --- roofline ----------------------------------------------------------------------------------------------------- */

enum { LEAST_WORK = 1000 };

static bool has_label(const chart_work *works, size_t n, const char *line)
{
    for (size_t i = 0; i < n; i++)
        if (works[i].label && strcmp(works[i].label, line) == 0) return true;
    return false;
}

/* A line of a single run has the colour that it has in the ledger; several runs have theirs. */
static void colour_work(const report_runs *r, size_t run, chart_work *w)
{
    bool forward;
    w->colour = chart_colour(run);
    w->shape = (int)(run % CHART_SHAPES);
    if (r->n > 1) return;
    const char *names[64];
    int         colours[64];
    size_t      n = names_of(r, "phases/mean_seconds", names, 64);
    phase_colours(names, n, colours);
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], w->name) == 0 && colours[i] >= 0) w->colour = colours[i];
    w->shape = kind_of(w->name, &forward) == w->name ? 3 : forward ? 2 : 4;
}

static size_t works_of(const report_runs *r, chart_work *works)
{
    size_t      n = 0;
    report_line line;
    for (size_t run = 0; run < r->n; run++)
        for (size_t i = 0; report_line_of(r, run, i, &line); i++) {
            if (!(line.seconds > 0) || !(line.bytes > 0) || !(line.flops > LEAST_WORK)) continue;
            chart_work *w = &works[n];
            *w = (chart_work){ .name = line.name, .flops = line.flops, .bytes = line.bytes, .seconds = line.seconds };
            colour_work(r, run, w);
            if (!has_label(works, n, line.name)) w->label = line.name;
            if (r->n > 1) w->name = tm_arena_format(r->arena, "%s, %s", r->names[run], line.name);
            n++;
        }
    return n;
}

static void draw_roofline(const report_runs *r, size_t part, tm_text *out)
{
    if (part > 0) return;
    size_t      lines = 0, n;
    report_line line;
    for (size_t run = 0; run < r->n; run++)
        for (size_t i = 0; report_line_of(r, run, i, &line); i++) lines++;
    chart_work *works = tm_arena_take(r->arena, (lines + 1) * sizeof *works);
    n = works_of(r, works);
    report_roof roof = report_roof_of(r, 0);
    if (n == 0) return;
    const char *bytes = report_rate(r->arena, roof.bytes, "B/s"), *flops = report_rate(r->arena, roof.flops, "FLOP/s");
    const char *peak = isfinite(r->roofs.flops) ? "measured" : "of the device's data sheet";
    chart_roofline(out,
                   &(chart_roofline_options){
                       .id = "roofline",
                       .title = "Roofline: lines of a step, and the machine's limits",
                       .works = works,
                       .n = n,
                       .peak_flops = roof.flops,
                       .peak_bytes = roof.bytes,
                       .flops_name = roof.flops_known ? tm_arena_format(r->arena, "arithmetic: %s, %s", flops, peak)
                                                      : tm_arena_format(r->arena, "arithmetic: at least %s", flops),
                       .bytes_name = roof.bytes_known ? tm_arena_format(r->arena, "memory: %s, measured", bytes)
                                                      : tm_arena_format(r->arena, "memory: at least %s", bytes),
                       .groups = r->names,
                       .n_groups = r->n > 1 ? r->n : 0,
                       .flops_known = roof.flops_known,
                       .bytes_known = roof.bytes_known });
}

/* The last look of the microscope: each tensor's relative error, in the order of the program. A line for every kind. */
static void draw_numbers(const report_runs *r, size_t part, tm_text *out)
{
    if (part > 0) return;
    static const char *const kinds[] = { "forward", "backward", "factor", "gradient" };
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    chart_series *all = tm_arena_take(r->arena, r->n * KINDS * sizeof *all);
    size_t        n = 0;
    for (size_t i = 0; i < r->n; i++) {
        json_t *tensors = results_member(results_tree(r->runs[i]), "microscope/last/tensors"), *one;
        size_t  count = json_array_size(tensors), k;
        for (int kind = 0; kind < KINDS; kind++) {
            chart_series *s = &all[n];
            size_t        have = 0;
            *s = series_of(r, i, count);
            s->name = tm_arena_format(r->arena, "%s, %s", r->names[i], kinds[kind]);
            s->colour = chart_colour(i * KINDS + (size_t)kind);
            s->shape = kind;
            s->dots = true;
            json_array_foreach(tensors, k, one)
            {
                const char *is = json_string_value(json_object_get(one, "kind"));
                json_t     *error = json_object_get(one, "relative_error");
                if (!is || strcmp(is, kinds[kind]) != 0 || !(json_number_value(error) > 0)) continue;
                ((double *)s->x)[have] = (double)(k + 1);
                ((double *)s->y)[have++] = json_number_value(error);
            }
            s->n = have;
            n += have > 0;
        }
    }
    if (n == 0) return;
    chart_lines(out, &(chart_lines_options){ .id = "numbers",
                                             .title = "Relative error of each tensor (the last look of the microscope)",
                                             .x_name = "tensor, in the order of the program",
                                             .y_name = "relative error",
                                             .series = all,
                                             .n = n,
                                             .log_y = true });
}

const report_chart report_charts[] = { { "loss", draw_loss },
                                       { "speed", draw_speed },
                                       { "ledger", draw_ledger },
                                       { "memory", draw_memory },
                                       { "roofline", draw_roofline },
                                       { "numbers", draw_numbers },
                                       { NULL, NULL } };
