/* SPDX-License-Identifier: Apache-2.0 */
/* results/verify.c - a run's derived figures, worked out again. The formulas are those of record/result.c and
 * record/sink.c, the statistics the same functions (stats/sampling.h). */
#include "results/verify.h"

#include "base/hash.h"
#include "results/internal.h"
#include "stats/sampling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const tm_result *run;
    tm_table        *table;
    size_t           wrong;
} check;

static bool agree(double a, double b)
{
    const double tolerance = 1e-12;
    if (!isfinite(a) || !isfinite(b)) return !isfinite(a) && !isfinite(b); /* JSON has null for all of them */
    return fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b));
}

static void add_row(check *c, const char *figure, const char *written, const char *again, bool ok)
{
    tm_table_row(c->table);
    tm_table_text(c->table, "figure", figure);
    tm_table_text(c->table, "written", written);
    tm_table_text(c->table, "recomputed", again);
    tm_table_text(c->table, "verdict", ok ? "ok" : "differs");
    c->wrong += !ok;
}

static void look(check *c, const char *figure, double again)
{
    char        text[32];
    json_t     *member = results_member(results_tree(c->run), figure);
    double      written = json_is_number(member) ? json_number_value(member) : (double)NAN;
    bool        known = json_is_number(member) || json_is_null(member);
    const char *shown = json_is_null(member) ? "null" : tm_result_shown(c->run, figure);
    add_row(c, figure, known ? shown : "missing", isfinite(again) ? tm_format_double(text, again) : "null",
            known && agree(written, again));
}

static void look_rates(check *c, const tm_sample_summary *s)
{
    look(c, "tokens_per_second_per_device/median", s->median_rate);
    look(c, "tokens_per_second_per_device/lo", s->median_rate_lo);
    look(c, "tokens_per_second_per_device/hi", s->median_rate_hi);
    look(c, "tokens_per_second_per_device/n", (double)s->n);
    look(c, "tokens_per_second_per_device_overall/value", s->rate);
    look(c, "tokens_per_second_per_device_overall/lo", s->rate_lo);
    look(c, "tokens_per_second_per_device_overall/hi", s->rate_hi);
    look(c, "tokens_per_second_per_device_overall/n", (double)s->n);
    look(c, "tokens_per_second_per_device_overall/effective_n", s->effective_n);
    look(c, "tokens_per_second_per_device_overall/half_width_percent", 100 * s->half_width);
    /* Of images: the same rates by the tokens of one, a whole number. */
    double images = tm_result_number(c->run, "images_per_second_per_device/median");
    double tokens = isfinite(images) ? round(s->median_rate / images) : (double)NAN;
    if (!isfinite(images)) return;
    look(c, "images_per_second_per_device/median", s->median_rate / tokens);
    look(c, "images_per_second_per_device/lo", s->median_rate_lo / tokens);
    look(c, "images_per_second_per_device/hi", s->median_rate_hi / tokens);
    look(c, "images_per_second_per_device/n", (double)s->n);
}

static void look_steady(check *c, const tm_sample_summary *s)
{
    const tm_steady *steady = &s->steady;
    double           first = tm_result_number(c->run, "steps/first");
    look(c, "steps/warmup", (double)s->warmup);
    look(c, "step_time/median", s->median);
    look(c, "step_time/p5", s->p5);
    look(c, "step_time/p95", s->p95);
    look(c, "step_time/variation_percent", 100 * s->variation);
    look(c, "step_time/outliers", (double)s->outliers);
    look(c, "steady_state/drift_percent", steady->drift);
    look(c, "steady_state/drift_lo", steady->drift_lo);
    look(c, "steady_state/drift_hi", steady->drift_hi);
    look(c, "steady_state/shift_percent", isnan(steady->drift) ? (double)NAN : steady->shift);
    look(c, "steady_state/shift_step", steady->shift_at ? first + (double)steady->shift_at : (double)NAN);
    bool written = tm_result_true(c->run, "steady_state/reached");
    add_row(c, "steady_state/reached", written ? "true" : "false", steady->reached ? "true" : "false",
            written == steady->reached);
}

static void look_flops(check *c, double rate)
{
    json_t *one;
    size_t  i;
    double  peak = tm_result_number(c->run, "peak_flops_per_second");
    json_array_foreach(results_member(results_tree(c->run), "flops"), i, one)
    {
        static const char *const members[] = { "per_second_per_device", "mfu_percent" };
        double                   per_token = json_number_value(json_object_get(one, "per_token"));
        for (int k = 0; k < 2; k++) {
            char    name[120], written[32], text[32];
            json_t *member = json_object_get(one, members[k]);
            double  was = json_is_number(member) ? json_number_value(member) : (double)NAN;
            double  again = k == 0 ? per_token * rate : 100 * (per_token * rate) / peak;
            snprintf(name, sizeof name, "flops/%.60s/%s", json_string_value(json_object_get(one, "convention")),
                     members[k]);
            add_row(c, name, isfinite(was) ? tm_format_double(written, was) : "null",
                    isfinite(again) ? tm_format_double(text, again) : "null", agree(was, again));
        }
    }
}

/* Sums of what the file itself holds. */
static void look_sums(check *c, const double *seconds, size_t n)
{
    size_t                  count, used = n > 1 ? n - 1 : n;
    double                  sum = 0, phases = 0, classes = 0, mean;
    const tm_result_member *members = tm_result_members(c->run, "phases/mean_seconds", &count);
    for (size_t i = n - used; i < n; i++) sum += seconds[i];
    mean = used > 0 ? sum / (double)used : (double)NAN;
    look(c, "steps/done", (double)n);
    look(c, "phases/steps", (double)used);
    look(c, "phases/step_seconds", mean);
    for (size_t i = 0; i < count; i++) phases += members[i].value;
    char written[32], text[32];
    bool whole = n == 0 || fabs(phases - mean) <= 1e-9 * mean || phases > mean;
    add_row(c, "phases/mean_seconds (sum)", tm_format_double(written, phases), tm_format_double(text, mean), whole);
    members = tm_result_members(c->run, "memory/planned_by_class", &count);
    for (size_t i = 0; i < count; i++) classes += members[i].value;
    if (count) look(c, "memory/planned_bytes", classes);
}

/* Mean seconds of every phase over the steps after the first, from metrics.jsonl. */
static void look_phases(check *c, const json_t *lines)
{
    const char *name;
    json_t     *written, *line;
    size_t      i, n = json_array_size(lines);
    json_object_foreach(results_member(results_tree(c->run), "phases/mean_seconds"), name, written)
    {
        double sum = 0;
        char   path[160];
        if (strcmp(name, "unaccounted") == 0) continue;
        json_array_foreach(lines, i, line)
        {
            if (i == 0 && n > 1) continue;
            sum += json_number_value(json_object_get(json_object_get(line, "phases"), name));
        }
        snprintf(path, sizeof path, "phases/mean_seconds/%.80s", name);
        look(c, path, sum / (double)(n > 1 ? n - 1 : n));
    }
}

/* The steps of this process, as metrics.jsonl has them. */
static void look_metrics(check *c, const double *seconds, size_t n)
{
    size_t                      n_steps, n_evaluations, same = 0;
    const tm_result_step       *steps = tm_result_steps(c->run, &n_steps);
    const tm_result_evaluation *evaluations = tm_result_evaluations(c->run, &n_evaluations);
    char                        written[40], again[40];
    if (n_steps < n) {
        snprintf(written, sizeof written, "%zu steps", n_steps);
        snprintf(again, sizeof again, "%zu steps", n);
        add_row(c, "metrics.jsonl", written, again, false);
        return;
    }
    const tm_result_step *own = steps + (n_steps - n);
    for (size_t i = 0; i < n; i++) same += agree(own[i].seconds, seconds[i]);
    snprintf(written, sizeof written, "%zu steps", n);
    snprintf(again, sizeof again, "%zu equal", same);
    add_row(c, "step_seconds (metrics.jsonl)", written, again, same == n);
    if (n == 0) return;
    look(c, "loss/last", own[n - 1].loss);
    if (tm_result_number(c->run, "steps/first") <= 1) look(c, "loss/first", own[0].loss);
    if (n_evaluations) look(c, "loss/validation", evaluations[n_evaluations - 1].loss);
}

static json_t *lines_of(const tm_text *metrics, double first)
{
    json_t *lines = json_array();
    for (const char *at = metrics->data, *end; at && (end = strchr(at, '\n')); at = end + 1) {
        json_t *line = json_loadb(at, (size_t)(end - at), 0, NULL);
        bool    step = !json_object_get(line, "event") && json_number_value(json_object_get(line, "step")) >= first;
        if (step)
            json_array_append_new(lines, line);
        else
            json_decref(line);
    }
    return lines;
}

/* Over the text in front of the digest; nothing but the end of the object may follow it. */
static void look_digests(check *c)
{
    static const char mark[] = ",\n  \"digest\": \"";
    const tm_text    *text = tm_result_document(c->run, TM_DOCUMENT_RESULT),
                  *metrics = tm_result_document(c->run, TM_DOCUMENT_METRICS);
    const char *at = NULL, *written = tm_result_string(c->run, "digest");
    char        again[24] = "";
    for (const char *next = text->data; (next = strstr(next, mark)); next++) at = next;
    if (at)
        snprintf(again, sizeof again, "%016llx", (unsigned long long)tm_hash(text->data, (size_t)(at - text->data)));
    bool last = at && strlen(at) == strlen(mark) + 16 + strlen("\"\n}\n");
    add_row(c, "digest", written ? written : "missing", again, written && last && strcmp(written, again) == 0);
    written = tm_result_string(c->run, "metrics_digest");
    if (!metrics || !written) return;
    snprintf(again, sizeof again, "%016llx", (unsigned long long)tm_hash(metrics->data, metrics->length));
    add_row(c, "metrics_digest", written, again, strcmp(written, again) == 0);
}

tm_status tm_results_verify(const tm_result *run, tm_table **out, size_t *wrong, tm_error *err)
{
    static const tm_column columns[] = { { "figure", 0 }, { "written", 0 }, { "recomputed", 0 }, { "verdict", 0 } };
    size_t                 n;
    const double          *seconds = tm_result_numbers(run, "step_seconds", &n);
    if (tm_result_kind_of(run) != TM_RESULT_RUN)
        return tm_fail(err, TM_INVALID, "'%s' is a table of a benchmark, which keeps no raw samples; verify takes runs",
                       tm_result_name(run));
    check             c = { .run = run, .table = tm_table_create("verify") };
    tm_sample_summary summary = tm_stats_summarize(seconds, NULL, tm_result_number(run, "batch_tokens"), (int64_t)n);
    tm_table_columns(c.table, columns, sizeof columns / sizeof columns[0]);
    look_digests(&c);
    look_rates(&c, &summary);
    look_steady(&c, &summary);
    look_flops(&c, summary.median_rate);
    look_sums(&c, seconds, n);
    const tm_text *metrics = tm_result_document(run, TM_DOCUMENT_METRICS);
    if (metrics) {
        json_t *lines = lines_of(metrics, tm_result_number(run, "steps/first"));
        look_metrics(&c, seconds, n);
        if (n) look_phases(&c, lines);
        json_decref(lines);
    }
    *wrong = c.wrong;
    *out = c.table;
    return TM_OK;
}
