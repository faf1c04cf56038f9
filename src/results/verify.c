/* SPDX-License-Identifier: Apache-2.0 */
/* results/verify.c - a run's derived figures, worked out again. The formulas are those of record/result.c and
 * record/sink.c, the statistics the same functions (stats/sampling.h). */
#include "results/verify.h"

#include "base/hash.h"
#include "results/certificate.h"
#include "results/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool results_agree(double a, double b)
{
    const double tolerance = 1e-12;
    if (!isfinite(a) || !isfinite(b)) return !isfinite(a) && !isfinite(b); /* JSON has null for all of them */
    return fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b));
}

void results_check_seen(results_check *c, const char *path)
{
    json_object_set_new(c->seen, path, json_true());
}

static void add_row(results_check *c, const char *figure, const char *written, const char *again, const char *verdict)
{
    tm_table_row(c->table);
    tm_table_text(c->table, "figure", figure);
    tm_table_text(c->table, "written", written);
    tm_table_text(c->table, "recomputed", again);
    tm_table_text(c->table, "verdict", verdict);
}

void results_check_row(results_check *c, const char *figure, const char *written, const char *again, bool ok)
{
    add_row(c, figure, written, again, ok ? "ok" : "differs");
    results_check_seen(c, figure);
    c->wrong += !ok;
}

void results_check_leave(results_check *c, const char *figure)
{
    add_row(c, figure, NULL, NULL, "not verified");
}

void results_check_number(results_check *c, const char *path, double again)
{
    char        text[32];
    json_t     *member = results_member(results_tree(c->run), path);
    double      written = json_is_number(member) ? json_number_value(member) : (double)NAN;
    bool        known = json_is_number(member) || json_is_null(member);
    const char *shown = json_is_null(member) ? "null" : tm_result_shown(c->run, path);
    results_check_row(c, path, known ? shown : "missing", isfinite(again) ? tm_format_double(text, again) : "null",
                      known && results_agree(written, again));
}

void results_check_text(results_check *c, const char *path, const char *again)
{
    json_t     *member = results_member(results_tree(c->run), path);
    const char *written = json_string_value(member);
    bool        same = written ? again && strcmp(written, again) == 0 : json_is_null(member) && !again;
    results_check_row(c, path,
                      written                ? written
                      : json_is_null(member) ? "null"
                                             : "missing",
                      again ? again : "null", same);
}

void results_check_truth(results_check *c, const char *path, bool again)
{
    json_t *member = results_member(results_tree(c->run), path);
    results_check_row(c, path, json_is_boolean(member) ? (json_is_true(member) ? "true" : "false") : "missing",
                      again ? "true" : "false", json_is_boolean(member) && json_is_true(member) == again);
}

static void look_rates(results_check *c, const tm_sample_summary *s)
{
    results_check_number(c, "tokens_per_second_per_device/median", s->median_rate);
    results_check_number(c, "tokens_per_second_per_device/lo", s->median_rate_lo);
    results_check_number(c, "tokens_per_second_per_device/hi", s->median_rate_hi);
    results_check_number(c, "tokens_per_second_per_device/n", (double)s->n);
    results_check_number(c, "tokens_per_second_per_device_overall/value", s->rate);
    results_check_number(c, "tokens_per_second_per_device_overall/lo", s->rate_lo);
    results_check_number(c, "tokens_per_second_per_device_overall/hi", s->rate_hi);
    results_check_number(c, "tokens_per_second_per_device_overall/n", (double)s->n);
    results_check_number(c, "tokens_per_second_per_device_overall/effective_n", s->effective_n);
    results_check_number(c, "tokens_per_second_per_device_overall/half_width_percent", 100 * s->half_width);
    /* Of images: the same rates by the tokens of one, a whole number. */
    double images = tm_result_number(c->run, "images_per_second_per_device/median");
    double tokens = isfinite(images) ? round(s->median_rate / images) : (double)NAN;
    if (!isfinite(images)) return;
    results_check_number(c, "images_per_second_per_device/median", s->median_rate / tokens);
    results_check_number(c, "images_per_second_per_device/lo", s->median_rate_lo / tokens);
    results_check_number(c, "images_per_second_per_device/hi", s->median_rate_hi / tokens);
    results_check_number(c, "images_per_second_per_device/n", (double)s->n);
}

static void look_steady(results_check *c, const tm_sample_summary *s)
{
    const tm_steady *steady = &s->steady;
    double           first = tm_result_number(c->run, "steps/first");
    results_check_number(c, "steps/warmup", (double)s->warmup);
    results_check_number(c, "step_time/median", s->median);
    results_check_number(c, "step_time/p5", s->p5);
    results_check_number(c, "step_time/p95", s->p95);
    results_check_number(c, "step_time/variation_percent", 100 * s->variation);
    results_check_number(c, "step_time/outliers", (double)s->outliers);
    results_check_number(c, "steady_state/drift_percent", steady->drift);
    results_check_number(c, "steady_state/drift_lo", steady->drift_lo);
    results_check_number(c, "steady_state/drift_hi", steady->drift_hi);
    results_check_number(c, "steady_state/shift_percent", isnan(steady->drift) ? (double)NAN : steady->shift);
    results_check_number(c, "steady_state/shift_step",
                         steady->shift_at ? first + (double)steady->shift_at : (double)NAN);
    results_check_truth(c, "steady_state/reached", steady->reached);
}

static void look_flops(results_check *c, double rate)
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
            results_check_row(c, name, isfinite(was) ? tm_format_double(written, was) : "null",
                              isfinite(again) ? tm_format_double(text, again) : "null", results_agree(was, again));
        }
    }
}

/* Sums of what the file itself holds. */
static void look_sums(results_check *c, const double *seconds, size_t n)
{
    size_t                  count, used = n > 1 ? n - 1 : n;
    double                  sum = 0, phases = 0, classes = 0, mean;
    const tm_result_member *members = tm_result_members(c->run, "phases/mean_seconds", &count);
    for (size_t i = n - used; i < n; i++) sum += seconds[i];
    mean = used > 0 ? sum / (double)used : (double)NAN;
    results_check_number(c, "steps/done", (double)n);
    results_check_number(c, "phases/steps", (double)used);
    results_check_number(c, "phases/step_seconds", mean);
    for (size_t i = 0; i < count; i++) phases += members[i].value;
    char written[32], text[32];
    bool whole = n == 0 || fabs(phases - mean) <= 1e-9 * mean || phases > mean;
    results_check_row(c, "phases/mean_seconds (sum)", tm_format_double(written, phases),
                      n > 0 ? tm_format_double(text, mean) : "null", whole);
    members = tm_result_members(c->run, "memory/planned_by_class", &count);
    for (size_t i = 0; i < count; i++) classes += members[i].value;
    if (count) results_check_number(c, "memory/planned_bytes", classes);
}

/* Of the steps of this process. */
static size_t own_records(const results_check *c)
{
    size_t                n, own = 0;
    const tm_result_step *steps = tm_result_steps(c->run, &n);
    for (size_t i = 0; i < n; i++) own += (double)steps[i].step >= tm_result_number(c->run, "steps/first");
    return own;
}

/* Mean seconds of every phase over the steps after the first, from metrics.jsonl. */
static void look_phases(results_check *c)
{
    const char *name;
    json_t     *written;
    size_t      n = own_records(c);
    if (n > 1) n--;
    json_object_foreach(results_member(results_tree(c->run), "phases/mean_seconds"), name, written)
    {
        char path[160];
        if (strcmp(name, "unaccounted") == 0) continue;
        snprintf(path, sizeof path, "phases/mean_seconds/%.80s", name);
        results_check_number(c, path, json_number_value(json_object_get(c->phases, name)) / (double)n);
    }
}

/* The evaluation that this process ended with; NULL: there was none. Of one without a step its own cannot be told from
 * the last one before it. */
static const tm_result_evaluation *last_evaluation(const results_check *c)
{
    size_t                      n;
    const tm_result_evaluation *evaluations = tm_result_evaluations(c->run, &n), *last = n ? &evaluations[n - 1] : NULL;
    double                      first = tm_result_number(c->run, "steps/first");
    bool                        own = last && (double)last->step >= (c->n > 0 ? first : first - 1);
    if (c->n == 0 && !isfinite(tm_result_number(c->run, "loss/validation"))) return NULL;
    return own ? last : NULL;
}

/* Losses, and what else the records of steps and evaluations tell again. */
static void look_losses(results_check *c)
{
    size_t                      n_steps;
    const tm_result_step       *steps = tm_result_steps(c->run, &n_steps), *last = c->n ? &c->own[c->n - 1] : NULL;
    const tm_result_evaluation *evaluation = last_evaluation(c);
    results_check_number(c, "loss/last", last ? last->loss : (double)NAN);
    results_check_number(c, "loss/validation", evaluation ? evaluation->loss : (double)NAN);
    results_check_number(c, "bits_per_byte", evaluation ? evaluation->bits_per_byte : (double)NAN);
    if (n_steps > 0 && steps[0].step == 1) results_check_number(c, "loss/first", steps[0].loss);
    if (last && isfinite(last->used_bytes)) results_check_number(c, "memory/planned_bytes", last->used_bytes);
    if (last && isfinite(last->resident_bytes)) results_check_number(c, "memory/resident_bytes", last->resident_bytes);
}

/* The steps of this process, as metrics.jsonl has them. */
static void look_metrics(results_check *c, const double *seconds, size_t n)
{
    size_t                n_steps, same = 0, follow = 0;
    const tm_result_step *steps = tm_result_steps(c->run, &n_steps);
    char                  written[40], again[40];
    double                first = tm_result_number(c->run, "steps/first");
    if (n_steps < n) {
        snprintf(written, sizeof written, "%zu steps", n_steps);
        snprintf(again, sizeof again, "%zu steps", n);
        results_check_row(c, "metrics.jsonl", written, again, false);
        return;
    }
    c->own = steps + (n_steps - n);
    for (size_t i = 0; i < n; i++) same += results_agree(c->own[i].seconds, seconds[i]);
    for (size_t i = 0; i < n; i++) follow += results_agree((double)c->own[i].step, first + (double)i);
    snprintf(written, sizeof written, "%zu steps", n);
    snprintf(again, sizeof again, "%zu equal", same);
    results_check_row(c, "step_seconds (metrics.jsonl)", written, again, same == n);
    snprintf(again, sizeof again, "%zu in a row", follow);
    results_check_row(c, "step (metrics.jsonl)", written, again, follow == n);
    if (n) results_check_number(c, "steps/first", (double)c->own[0].step);
    look_losses(c);
}

/* Why no more steps were done, against how many were. */
static void look_end(results_check *c)
{
    const char *stopped = tm_result_string(c->run, "steps/stopped");
    double      planned = tm_result_number(c->run, "steps/planned");
    bool        interrupted = tm_result_true(c->run, "steps/interrupted");
    bool        all = tm_result_number(c->run, "steps/first") - 1 + (double)c->n >= planned;
    if (!stopped) return;
    if (strcmp(stopped, "all steps done") == 0)
        results_check_row(c, "steps/stopped", stopped, all ? stopped : "fewer steps than planned", all);
    if (strcmp(stopped, "all steps done") == 0) results_check_truth(c, "steps/interrupted", false);
    if (strcmp(stopped, "interrupted") == 0) results_check_truth(c, "steps/interrupted", true);
    if (interrupted) results_check_seen(c, "steps/interrupted");
    if (!c->own || c->n == 0) return;
    const tm_result_step *last = &c->own[c->n - 1];
    bool finite = isfinite(last->loss) && isfinite(last->grad_norm), said = strstr(stopped, "not finite") != NULL;
    if (said || (!finite && !all && !interrupted))
        results_check_row(c, "steps/stopped", stopped, finite ? "all losses and norms are finite" : "not finite",
                          said != finite);
}

static void add_phase(json_t *sums, const char *name, double seconds)
{
    json_object_set_new(sums, name, json_real(json_number_value(json_object_get(sums, name)) + seconds));
}

/* The last evaluation of this process, or its last step while there was none. */
static void keep_last(results_check *c, json_t *line, bool step)
{
    const char *event = json_string_value(json_object_get(line, "event"));
    bool        evaluation = event && strcmp(event, "evaluation") == 0 &&
                      json_number_value(json_object_get(line, "step")) >= tm_result_number(c->run, "steps/first");
    if (!evaluation && (!step || json_object_get(c->told, "event"))) return;
    json_decref(c->told);
    c->told = json_incref(line);
}

/* Adds up the phases of this process's steps: of all but the first, unless it is the only one, and of all together. */
static void add_phases(results_check *c, const char *metrics)
{
    double first = tm_result_number(c->run, "steps/first");
    size_t n = 0, records = own_records(c);
    for (const char *at = metrics, *end; at && (end = strchr(at, '\n')); at = end + 1) {
        json_t     *line = json_loadb(at, (size_t)(end - at), 0, NULL), *phase;
        const char *name;
        bool        step = !json_object_get(line, "event") && json_number_value(json_object_get(line, "step")) >= first;
        bool        counts = step && (n > 0 || records == 1);
        json_object_foreach(step ? json_object_get(line, "phases") : NULL, name, phase)
        {
            double seconds = json_number_value(phase);
            if (counts) add_phase(c->phases, name, seconds);
            if (strcmp(name, "unaccounted") != 0) c->accounted += seconds;
        }
        n += step;
        keep_last(c, line, step);
        json_decref(line);
    }
}

/* What is told of pairs: of the last evaluation; without any of the last step. */
static void look_preference(results_check *c)
{
    const char *name;
    json_t     *member;
    json_object_foreach(results_member(results_tree(c->run), "preference"), name, member)
    {
        char    path[120];
        json_t *again = json_object_get(c->told, name);
        snprintf(path, sizeof path, "preference/%.90s", name);
        /* by its name: there is a '/' in it */
        bool   same = json_is_number(again) == json_is_number(member);
        double is = json_is_number(again) ? json_number_value(again) : (double)NAN;
        double was = json_is_number(member) ? json_number_value(member) : (double)NAN;
        char   text[32], written[32];
        results_check_row(c, path, isfinite(was) ? tm_format_double(written, was) : "null",
                          isfinite(is) ? tm_format_double(text, is) : "null", same && results_agree(was, is));
    }
}

/* Over the text in front of the digest; nothing but the end of the object may follow it. */
static void look_digests(results_check *c)
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
    results_check_row(c, "digest", written ? written : "missing", again,
                      written && last && strcmp(written, again) == 0);
    written = tm_result_string(c->run, "metrics_digest");
    if (!metrics || !written) return;
    snprintf(again, sizeof again, "%016llx", (unsigned long long)tm_hash(metrics->data, metrics->length));
    results_check_row(c, "metrics_digest", written, again, strcmp(written, again) == 0);
}

/* Was the member looked at, or one in it? */
static bool seen(const results_check *c, const char *path)
{
    const char *key;
    json_t     *one;
    size_t      n = strlen(path);
    json_object_foreach(c->seen, key, one)
    {
        if (strncmp(key, path, n) == 0 && (!key[n] || key[n] == '/')) return true;
    }
    return false;
}

/* Every member that nothing tells again: a whole object where it holds no figure that was looked at. */
static void name_the_rest(results_check *c)
{
    static const char *const raw[] = { "loss", "grad_norm", "seconds" };
    const char              *key, *name;
    json_t                  *member, *one;
    json_object_foreach(results_tree(c->run), key, member)
    {
        bool   looked = seen(c, key), whole = !json_is_object(member) || !looked;
        char   path[200];
        size_t n = strlen(key);
        bool   own = strcmp(key, "format") == 0 || (n >= 6 && strcmp(key + n - 6, "digest") == 0);
        if (whole && !looked && !own && !json_is_null(member)) results_check_leave(c, key);
        json_object_foreach(whole ? NULL : member, name, one)
        {
            snprintf(path, sizeof path, "%.90s/%.90s", key, name);
            if (!seen(c, path) && !json_is_null(one)) results_check_leave(c, path);
        }
    }
    for (size_t i = 0; i < sizeof raw / sizeof *raw && c->own && c->n; i++) {
        char path[60];
        snprintf(path, sizeof path, "%s (metrics.jsonl)", raw[i]);
        results_check_leave(c, path);
    }
    if (!tm_result_document(c->run, TM_DOCUMENT_METRICS)) results_check_leave(c, "metrics.jsonl");
}

static void look_at_all(results_check *c, const double *seconds)
{
    const tm_text *metrics = tm_result_document(c->run, TM_DOCUMENT_METRICS);
    look_digests(c);
    look_rates(c, &c->summary);
    look_steady(c, &c->summary);
    look_flops(c, c->summary.median_rate);
    look_sums(c, seconds, c->n);
    if (metrics) {
        look_metrics(c, seconds, c->n);
        add_phases(c, metrics->data);
        if (c->n) look_phases(c);
        if (c->n) look_preference(c);
    }
    look_end(c);
    results_check_verdict(c);
    results_check_plan(c);
    name_the_rest(c);
    if (c->why) tm_table_note(c->table, "its configuration is not followed: %s", c->why);
}

tm_status tm_results_verify(const tm_result *run, const tm_config *config, tm_table **out, size_t *wrong, tm_error *err)
{
    static const tm_column columns[] = { { "figure", 0 }, { "written", 0 }, { "recomputed", 0 }, { "verdict", 0 } };
    size_t                 n;
    const double          *seconds = tm_result_numbers(run, "step_seconds", &n);
    if (tm_result_kind_of(run) == TM_RESULT_CERTIFICATE) {
        *out = tm_results_certificate_verify(run, wrong);
        return TM_OK;
    }
    if (tm_result_kind_of(run) != TM_RESULT_RUN)
        return tm_fail(err, TM_INVALID, "'%s' is a table of a benchmark, which keeps no raw samples; verify takes runs",
                       tm_result_name(run));
    results_check c = { .run = run,
                        .config = config,
                        .table = tm_table_create("verify"),
                        .seen = json_object(),
                        .phases = json_object(),
                        .n = n,
                        .summary = tm_stats_summarize(seconds, NULL, tm_result_number(run, "batch_tokens"), (int64_t)n),
                        .judged = json_is_object(results_member(results_tree(run), "judged")) };
    tm_table_columns(c.table, columns, sizeof columns / sizeof columns[0]);
    look_at_all(&c, seconds);
    json_decref(c.seen);
    json_decref(c.phases);
    json_decref(c.told);
    *wrong = c.wrong;
    *out = c.table;
    return TM_OK;
}
