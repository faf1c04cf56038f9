/* SPDX-License-Identifier: Apache-2.0 */
#include "results/report_charts.h"

#include "results/chart.h"
#include "results/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LEAST_WORK = 1000 };

static double *take(const report_runs *r, size_t n)
{
    return tm_arena_take(r->arena, (n + 1) * sizeof(double));
}

/* The name is the caller's. */
static chart_series series_of(const report_runs *r, size_t colour, size_t n)
{
    return (chart_series){ .x = take(r, n), .y = take(r, n), .n = n, .colour = (int)(colour % 10) };
}

static void draw_loss(const report_runs *r, tm_text *out)
{
    chart_series *all = tm_arena_take(r->arena, 3 * r->n * sizeof *all);
    size_t        n = 0, count;
    for (size_t i = 0; i < r->n; i++) {
        const tm_result_step *steps = tm_result_steps(r->runs[i], &count);
        all[n] = series_of(r, i, count);
        all[n].name = r->names[i];
        for (size_t k = 0; k < count; k++) {
            ((double *)all[n].x)[k] = (double)steps[k].step;
            ((double *)all[n].y)[k] = steps[k].loss;
        }
        double floor = tm_result_number(r->runs[i], "loss/floor");
        double first = count ? all[n].x[0] : 0, last = count ? all[n].x[count - 1] : 1;
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
        if (!isfinite(floor)) continue;
        all[n] = series_of(r, i, 2);
        all[n].name = "entropy of the data";
        all[n].dashed = true;
        ((double *)all[n].x)[0] = first;
        ((double *)all[n].x)[1] = last;
        ((double *)all[n].y)[0] = ((double *)all[n].y)[1] = floor;
        n++;
    }
    chart_lines(
        out, &(chart_lines_options){
                 .id = "loss", .title = "Loss", .x_name = "step", .y_name = "nats per token", .series = all, .n = n });
}

static void draw_speed(const report_runs *r, tm_text *out)
{
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
                                             .title = "Tokens per second and device (shaded: the steps that count)",
                                             .x_name = "step",
                                             .y_name = "tokens/s",
                                             .series = all,
                                             .n = r->n,
                                             .from_zero = true,
                                             .shade_from = r->n == 1 ? from : 0,
                                             .shade_to = r->n == 1 ? to : 0 });
}

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

static void draw_ledger(const report_runs *r, tm_text *out)
{
    const char *columns[64];
    size_t      n = names_of(r, "phases/mean_seconds", columns, 64);
    double     *values = take(r, n * r->n);
    for (size_t i = 0; i < r->n; i++)
        for (size_t c = 0; c < n; c++) {
            json_t *member =
                json_object_get(results_member(results_tree(r->runs[i]), "phases/mean_seconds"), columns[c]);
            values[i * n + c] = json_is_number(member) ? 1e3 * json_number_value(member) : 0;
        }
    chart_bars(out, &(chart_bars_options){ .id = "ledger",
                                           .title = "Where a step's time goes",
                                           .unit = "ms",
                                           .rows = r->names,
                                           .columns = columns,
                                           .n_rows = r->n,
                                           .n_columns = n,
                                           .values = values });
}

/* Of the first run. */
static void draw_memory(const report_runs *r, tm_text *out)
{
    const report_runs first = { .runs = r->runs, .names = r->names, .n = 1, .arena = r->arena };
    const char       *columns[32];
    size_t            n = names_of(&first, "memory_along_step", columns, 32), points = 0, count;
    double           *values = NULL;
    for (size_t c = 0; c < n; c++) {
        char path[96];
        snprintf(path, sizeof path, "memory_along_step/%.60s", columns[c]);
        const double *bytes = tm_result_numbers(r->runs[0], path, &count);
        if (c == 0) points = count, values = take(r, n * points);
        for (size_t p = 0; p < points; p++) values[c * points + p] = p < count ? bytes[p] / 0x1p20 : 0;
    }
    if (n == 0) return;
    double planned = tm_result_number(r->runs[0], "memory/planned_bytes") / 0x1p20;
    chart_areas(out, &(chart_areas_options){ .id = "memory",
                                             .title = "Memory along a step, by class",
                                             .x_name = "from the first instruction of the step to its last",
                                             .y_name = "MiB",
                                             .columns = columns,
                                             .n_columns = n,
                                             .n_points = points,
                                             .values = values,
                                             .limit = planned,
                                             .limit_name = "planned" });
}

/* The roofs: arithmetic where the device's peak is known; memory as fast as the step's fastest line moves its operands,
 * those without products included, which is the least that the memory can do. */
static void draw_roofline(const report_runs *r, tm_text *out)
{
    const tm_result *run = r->runs[0];
    json_t          *work = results_member(results_tree(run), "work"), *one;
    json_t          *seconds = results_member(results_tree(run), "phases/mean_seconds");
    size_t           i, n = 0, lines = json_array_size(work);
    chart_series    *all = tm_arena_take(r->arena, (lines + 2) * sizeof *all);
    double peak = tm_result_number(run, "peak_flops_per_second"), least = (double)INFINITY, most = 0, memory = 0;
    json_array_foreach(work, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "line"));
        double      flops = json_number_value(json_object_get(one, "flops"));
        double      bytes = json_number_value(json_object_get(one, "bytes"));
        double      time = name ? json_number_value(json_object_get(seconds, name)) : 0;
        if (time > 0 && bytes > 0) memory = fmax(memory, bytes / time);
        if (!(time > 0) || !(bytes > 0) || !(flops > LEAST_WORK)) continue;
        all[n] = series_of(r, n, 1);
        all[n].name = name;
        all[n].dots = true;
        ((double *)all[n].x)[0] = flops / bytes;
        ((double *)all[n].y)[0] = flops / time / 1e9;
        least = fmin(least, flops / bytes);
        most = fmax(most, flops / bytes);
        n++;
    }
    if (n == 0) return;
    all[n] = series_of(r, 8, 2);
    all[n].name = tm_arena_format(r->arena, "memory, as fast as any line moves it: %.3g GB/s", memory / 1e9);
    all[n].dashed = true;
    ((double *)all[n].x)[0] = least;
    ((double *)all[n].x)[1] = most;
    ((double *)all[n].y)[0] = memory * least / 1e9;
    ((double *)all[n].y)[1] = memory * most / 1e9;
    n++;
    if (isfinite(peak)) {
        all[n] = series_of(r, 7, 2);
        all[n].name = "peak";
        all[n].dashed = true;
        ((double *)all[n].x)[0] = least;
        ((double *)all[n].x)[1] = most;
        ((double *)all[n].y)[0] = ((double *)all[n].y)[1] = peak / 1e9;
        n++;
    }
    chart_lines(out, &(chart_lines_options){ .id = "roofline",
                                             .title = "Roofline: what the step's lines reach",
                                             .x_name = "FLOP per byte of its operands",
                                             .y_name = "GFLOP/s",
                                             .series = all,
                                             .n = n,
                                             .log_x = true,
                                             .log_y = true });
}

/* The last look of the microscope: each tensor's relative error, in the order of the program. A line for every kind. */
static void draw_numbers(const report_runs *r, tm_text *out)
{
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
            s->colour = (int)((i * KINDS + (size_t)kind) % 10);
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
