/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan_rows.h"

#include "cli/cli.h"
#include "plan/fit.h"
#include "record/table.h"
#include "stats/summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What became of the rows of a kind. */
typedef struct {
    const char *source; /* NULL: all */
    double     *error;  /* (n) |predicted / published - 1|; INFINITY: refused */
    double      sum;    /* of logarithms */
    size_t      n, inside, refused;
} tally;

static double width(const tm_published_row *row, const tm_parameters *p)
{
    if (row->kind != TM_ROW_SPEED) return p->of[TM_PARAMETER_WIDTH_MEMORY];
    return p->of[row->job.shape.moe.experts > 0 ? TM_PARAMETER_WIDTH_EXPERTS : TM_PARAMETER_WIDTH_DENSE];
}

static double shown(const tm_published_row *row, double value)
{
    return row->kind == TM_ROW_MEMORY ? value / 0x1p30 : value;
}

static void count(tally *t, const tm_published_row *row, double log_error, const tm_parameters *p)
{
    if (t->source && strcmp(t->source, row->source) != 0) return;
    t->error[t->n++] = row->refused ? (double)INFINITY : fabs(exp(log_error) - 1);
    t->refused += row->refused != NULL;
    if (row->refused) return;
    t->inside += fabs(log_error) <= width(row, p);
    t->sum += log_error;
}

static void add_row(tm_table *table, const tm_published_row *row, double log_error, const tm_parameters *p)
{
    static const char *const units[] = { "tokens/s", "GiB", "sequences" };
    double                   predicted = row->published * exp(log_error), w = width(row, p);
    tm_table_row(table);
    tm_table_text(table, "row", row->id);
    tm_table_text(table, "source", row->source);
    tm_table_text(table, "model", row->model);
    tm_table_text(table, "hardware", row->hardware);
    tm_table_i64(table, "devices", row->job.devices);
    tm_table_text(table, "precision", row->precision);
    tm_table_text(table, "unit", units[row->kind]);
    tm_table_text(table, "note", row->refused);
    tm_table_f64(table, "published", shown(row, row->published));
    if (row->refused) return;
    tm_table_text(table, "as", row->job.trainer->name);
    tm_table_f64(table, "predicted", shown(row, predicted));
    tm_table_f64(table, "low", shown(row, predicted * exp(-w)));
    tm_table_f64(table, "high", shown(row, predicted * exp(w)));
    tm_table_f64(table, "error_percent", 100 * (exp(log_error) - 1));
}

static tm_table *create(void)
{
    static const tm_column columns[] = { { "row", 0 },           { "source", 0 },    { "model", 0 }, { "hardware", 0 },
                                         { "devices", 0 },       { "precision", 0 }, { "as", 0 },    { "unit", 0 },
                                         { "published", 5 },     { "predicted", 5 }, { "low", 5 },   { "high", 5 },
                                         { "error_percent", 3 }, { "note", 0 } };
    static const char *const brief[] = { "row",       "model", "hardware", "devices",       "precision", "published",
                                         "predicted", "low",   "high",     "error_percent", "note" };
    tm_table                *table = tm_table_create("plan");
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    tm_table_brief(table, brief, sizeof brief / sizeof brief[0]);
    return table;
}

/* A percentage, or "more" where that row was refused. */
static const char *percent(char text[24], double value)
{
    if (isinf(value)) return "not predicted";
    snprintf(text, 24, "%.1f %%", 100 * value);
    return text;
}

static void note(tm_table *table, tally *t, const char *what)
{
    char   median[24], most[24];
    size_t within = 0, told = t->n - t->refused;
    if (t->n == 0) return;
    for (size_t i = 0; i < t->n; i++) within += t->error[i] <= 0.1;
    tm_stats_sort(t->error, (int64_t)t->n);
    tm_table_note(
        table,
        "%s: %zu rows, %zu not predicted; |error|: median %s, 90 %% of rows within %s; within 10 %%: %zu; inside "
        "their intervals: %.0f %%; bias %+.1f %%",
        what, t->n, t->refused, percent(median, t->error[(t->n - 1) / 2]),
        percent(most, t->error[(size_t)ceil(0.9 * (double)t->n) - 1]), within,
        told ? 100.0 * (double)t->inside / (double)told : 0, told ? 100 * (exp(t->sum / (double)told) - 1) : 0);
}

/* All rows of a kind, then source by source. */
static void add_notes(tm_table *table, const tm_published_rows *rows, const double *errors, const tm_parameters *p,
                      tm_arena *arena)
{
    static const char *const kinds[] = { "speed", "memory", "largest batch" };
    for (int kind = 0; kind < 3; kind++) {
        tally all = { .error = tm_arena_take(arena, (rows->n + 1) * sizeof(double)) };
        for (size_t i = 0; i < rows->n; i++)
            if ((int)rows->row[i].kind == kind) count(&all, &rows->row[i], errors[i], p);
        for (size_t i = 0; i < rows->n; i++) {
            bool first = (int)rows->row[i].kind == kind;
            for (size_t k = 0; k < i; k++)
                first =
                    first && !((int)rows->row[k].kind == kind && strcmp(rows->row[k].source, rows->row[i].source) == 0);
            if (!first) continue;
            tally one = { .source = rows->row[i].source,
                          .error = tm_arena_take(arena, (rows->n + 1) * sizeof(double)) };
            char  what[80];
            for (size_t k = 0; k < rows->n; k++)
                if ((int)rows->row[k].kind == kind) count(&one, &rows->row[k], errors[k], p);
            snprintf(what, sizeof what, "%s, %.40s", kinds[kind], one.source);
            note(table, &one, what);
        }
        note(table, &all, kinds[kind]);
    }
}

/* How often the prediction says the same of what fits as the rows. */
static void add_verdicts(tm_table *table, const tm_published_rows *rows, const tm_parameters *p)
{
    int said[2] = { 0 }, right[2] = { 0 }; /* of what did not fit, and of what did */
    for (size_t i = 0; i < rows->n; i++) {
        bool good[2];
        int  n = tm_row_verdicts(&rows->row[i], p, good);
        for (int k = 0; k < n; k++) said[k == 0]++, right[k == 0] += good[k];
    }
    int all = said[0] + said[1], good = right[0] + right[1];
    if (all == 0) return;
    tm_table_note(table,
                  "fits or does not: %d of %d are said right, %.0f %%: %d of %d that ran, %d of %d that did not fit "
                  "(one sequence more than the largest batch)",
                  good, all, 100.0 * good / all, right[1], said[1], right[0], said[0]);
}

static tm_status print(tm_table *table, bool json, bool verbose, tm_error *err)
{
    tm_text text = { 0 };
    tm_cli_add_table(table, json, verbose, &text);
    tm_table_destroy(table);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

/* --- constants ------------------------------------------------------------------------------------------------------
 */

static tm_status print_constants(const tm_parameters *p, bool json, bool verbose, tm_error *err)
{
    static const tm_column columns[] = { { "constant", 0 }, { "value", 4 }, { "unit", 0 },
                                         { "prior", 4 },    { "doubt", 3 }, { "what", 0 } };
    tm_table              *table = tm_table_create("constants");
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    for (int i = 0; i < TM_PARAMETER_COUNT; i++) {
        const tm_parameter_row *row = &tm_parameter_rows()[i];
        tm_table_row(table);
        tm_table_text(table, "constant", row->name);
        tm_table_f64(table, "value", p->of[i]);
        tm_table_text(table, "unit", row->unit);
        tm_table_f64(table, "prior", row->prior);
        if (row->doubt > 0) tm_table_f64(table, "doubt", row->doubt);
        tm_table_text(table, "what", row->help);
    }
    tm_table_note(table,
                  "doubt: standard deviation of the logarithm before the fit; without one a constant is not fitted");
    return print(table, json, verbose, err);
}

tm_status tm_cli_plan_constants(bool json, bool verbose, tm_error *err)
{
    tm_parameters p = tm_parameters_fitted();
    return print_constants(&p, json, verbose, err);
}

static tm_parameters priors(void)
{
    tm_parameters p;
    for (int i = 0; i < TM_PARAMETER_COUNT; i++) p.of[i] = tm_parameter_rows()[i].prior;
    return p;
}

/* So wide that it holds 90 % of the errors of rows whose source was left out. */
static double quantile(const tm_published_rows *rows, const double *errors, bool experts, tm_arena *arena)
{
    double *of = tm_arena_take(arena, (rows->n + 1) * sizeof *of);
    size_t  n = 0;
    for (size_t i = 0; i < rows->n; i++)
        if (!isnan(errors[i]) && (rows->row[i].job.shape.moe.experts > 0) == experts) of[n++] = fabs(errors[i]);
    tm_stats_sort(of, (int64_t)n);
    return n ? of[(size_t)ceil(0.9 * (double)n) - 1] : 0;
}

static tm_status print_fit(const tm_published_rows *rows, const tm_plan_rows_options *o, double *errors,
                           tm_arena *arena, tm_error *err)
{
    tm_parameters start = priors(), p = tm_fit(rows, NULL, &start);
    tm_fit_without_each(rows, &p, errors);
    p.of[TM_PARAMETER_WIDTH_DENSE] = quantile(rows, errors, false, arena);
    p.of[TM_PARAMETER_WIDTH_EXPERTS] = quantile(rows, errors, true, arena);
    return print_constants(&p, o->json, o->verbose, err);
}

static tm_status run(const tm_plan_rows_options *o, tm_arena *arena, tm_error *err)
{
    tm_published_rows rows;
    tm_parameters     p = tm_parameters_fitted();
    TM_TRY(tm_rows_read(arena, o->file, &rows, err));
    double *errors = tm_arena_take(arena, (rows.n + 1) * sizeof *errors);
    if (o->fit) return print_fit(&rows, o, errors, arena, err);
    if (o->leave_out) tm_fit_without_each(&rows, &p, errors);
    tm_table *table = create();
    for (size_t i = 0; i < rows.n; i++) {
        const tm_published_row *row = &rows.row[i];
        if (!row->refused && (!o->leave_out || row->kind != TM_ROW_SPEED))
            errors[i] = log(fmax(tm_row_predict(row, &p), 1e-9) / row->published);
        add_row(table, row, errors[i], &p);
    }
    add_notes(table, &rows, errors, &p, arena);
    add_verdicts(table, &rows, &p);
    return print(table, o->json, o->verbose, err);
}

tm_status tm_cli_plan_rows(const tm_plan_rows_options *o, tm_error *err)
{
    tm_arena *arena = tm_arena_create();
    tm_status st = run(o, arena, err);
    tm_arena_destroy(arena);
    return st;
}
