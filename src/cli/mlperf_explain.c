/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf_explain.c - `trainmark mlperf explain DIR...`: where the time to train comes from, results side by side.
 */
#include "cli/cli.h"
#include "cli/mlperf.h"
#include "apps/mlperf/breakdown.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_RESULTS = 16, CELL = 32 };

typedef struct {
    tm_submission *submission;
    tm_breakdown   b;
} result;

typedef struct {
    const tm_mlperf_options *o;
    result                   results[MAX_RESULTS];
    size_t                   n;
    tm_text                  out;
} explaining;

/* --- cells -------------------------------------------------------------------------------------------------------- */

static void put(char out[CELL], double value, int decimals, const char *unit)
{
    if (isfinite(value))
        snprintf(out, CELL, "%.*f%.4s", decimals, value, unit);
    else
        strcpy(out, "-");
}

static void put_change(char out[CELL], double seconds)
{
    if (isfinite(seconds))
        snprintf(out, CELL, "%+.1f s", seconds);
    else
        strcpy(out, "-");
}

/* "98.41 +- 3.20%": a mean and its coefficient of variation. */
static void put_spread(char out[CELL], const tm_spread *s, double unit, int decimals)
{
    char mean[CELL];
    put(mean, s->mean / unit, decimals, "");
    if (s->n < 2)
        strcpy(out, mean);
    else
        snprintf(out, CELL, "%.18s +- %.2f%%", mean, 100 * s->deviation / s->mean);
}

/* Four digits of what is mostly between 0.1 and 10,000. */
static int decimals_of(double value)
{
    return value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0;
}

typedef void (*cell)(const result *r, char out[CELL]);

#define CELL_OF(name, ...)                                                                                             \
    static void name(const result *r, char out[CELL])                                                                  \
    {                                                                                                                  \
        const tm_breakdown *b = &r->b;                                                                                 \
        __VA_ARGS__;                                                                                                   \
    }
CELL_OF(cell_benchmark, (void)b;
        snprintf(out, CELL, "%.31s", r->submission->benchmark ? r->submission->benchmark : "-"))
CELL_OF(cell_batch, put(out, b->score.rcp.batch > 0 ? (double)b->score.rcp.batch : (double)NAN, 0, ""))
CELL_OF(cell_runs, snprintf(out, CELL, "%zu of %zu", b->used, b->n))
CELL_OF(cell_score, put(out, b->score.problem ? (double)NAN : b->score.scaled, 2, ""))
CELL_OF(cell_factor, put(out, b->score.problem ? (double)NAN : b->score.factor, 5, ""))
CELL_OF(cell_minutes, put_spread(out, &b->seconds, 60, 2))
CELL_OF(cell_samples, put_spread(out, &b->samples, 1, 0))
CELL_OF(cell_rate, put_spread(out, &b->rate, 1, decimals_of(b->rate.mean)))
CELL_OF(cell_training, put(out, 100 * b->train_share.mean, 2, "%"))
CELL_OF(cell_evaluation, put(out, 100 * b->eval_share.mean, 2, "%"))
CELL_OF(cell_other, double rest = 1 - b->train_share.mean - b->eval_share.mean; /* not a number where no run is */
        put(out, 100 * (rest < 0 ? 0 : rest), 2, "%"))
CELL_OF(cell_init, put_spread(out, &b->init_s, 1, 1))
CELL_OF(cell_one, put_spread(out, &b->evaluation_s, 1, 2))
CELL_OF(cell_first, put(out, b->first_rate.mean, decimals_of(b->first_rate.mean), ""))
CELL_OF(cell_within, put(out, 100 * b->rate_variation, 2, "%"))
CELL_OF(cell_tracked, put_spread(out, &b->tracked, 1, decimals_of(b->tracked.mean)))
CELL_OF(cell_interval, put(out, b->interval, 0, ""))
CELL_OF(cell_crossing, put_spread(out, &b->crossing, 1, 0))
CELL_OF(cell_overshoot, put(out, b->overshoot.mean, 0, ""))
CELL_OF(cell_overshoot_time, put(out, b->overshoot.mean / b->rate.mean / 60, 2, ""))
CELL_OF(cell_rounding, put(out, 100 * b->rounding_share, 0, "%"))
CELL_OF(cell_best, put(out, b->best_interval, 0, ""))
CELL_OF(cell_half, put_change(out, b->finer[0].net_s))
CELL_OF(cell_half_scaled, put_change(out, b->finer[0].scaled_s))
CELL_OF(cell_quarter, put_change(out, b->finer[1].net_s))
CELL_OF(cell_quarter_scaled, put_change(out, b->finer[1].scaled_s))

static const struct {
    const char *label;
    cell        put;
} rows[] = {
    { "benchmark", cell_benchmark },
    { "global batch size", cell_batch },
    { "runs that count", cell_runs },
    { "score, scaled minutes", cell_score },
    { "  factor of the convergence test", cell_factor },
    { "time to train, minutes", cell_minutes },
    { "  samples to the target", cell_samples },
    { "  samples/s of training", cell_rate },
    { "  time in training", cell_training },
    { "  time in evaluation", cell_evaluation },
    { "  time in neither", cell_other },
    { "initialization (not included), s", cell_init },
    { "one evaluation, s", cell_one },
    { "samples/s of the first block", cell_first },
    { "spread of blocks within a run", cell_within },
    { "throughput that the runs logged", cell_tracked },
    { "evaluation interval, samples", cell_interval },
    { "  samples at the target itself", cell_crossing },
    { "  samples beyond the target", cell_overshoot },
    { "  minutes beyond the target", cell_overshoot_time },
    { "  rounding in the variance of samples", cell_rounding },
    { "  interval of least expected time", cell_best },
    { "  time change with half the interval", cell_half },
    { "    the same in scaled time", cell_half_scaled },
    { "  time change with a quarter of it", cell_quarter },
    { "    the same in scaled time", cell_quarter_scaled },
};

/* The first result of the same benchmark as result i; i if that is the first. */
static size_t base_of(const explaining *e, size_t i)
{
    const char *name = e->results[i].submission->benchmark;
    for (size_t k = 0; name && k < i; k++) {
        const char *other = e->results[k].submission->benchmark;
        if (other && strcmp(name, other) == 0) return k;
    }
    return i;
}

static void print_ratio(const explaining *e, size_t i, tm_text *out)
{
    size_t             base = base_of(e, i);
    tm_breakdown_ratio r;
    const result      *a = &e->results[base], *b = &e->results[i];
    if (base == i) return;
    tm_text_printf(out, "\n%c / %c: ", (char)('A' + i), (char)('A' + base));
    if (!tm_breakdown_compare(a->submission, &a->b, b->submission, &b->b, &r)) {
        tm_text_add(out, "no ratio: one of them has no score\n");
        return;
    }
    tm_text_printf(out,
                   "scaled minutes x %.4f = samples x %.4f, time per sample x %.4f, time outside of training x %.4f,\n"
                   "       trimming x %.4f, factor x %.4f\n",
                   r.scaled, r.samples, r.rate, r.overhead, r.trimming, r.factor);
}

static void print_text(const explaining *e, tm_text *out)
{
    char text[CELL];
    for (size_t i = 0; i < e->n; i++) tm_text_printf(out, "%c  %s\n", (char)('A' + i), e->results[i].submission->path);
    tm_text_printf(out, "\n%-38s", "mean over the runs +- deviation");
    for (size_t i = 0; i < e->n; i++) tm_text_printf(out, " %22c", (char)('A' + i));
    tm_text_add(out, "\n");
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        tm_text_printf(out, "%-38s", rows[k].label);
        for (size_t i = 0; i < e->n; i++) {
            rows[k].put(&e->results[i], text);
            tm_text_printf(out, " %22s", text);
        }
        tm_text_add(out, "\n");
    }
    for (size_t i = 1; i < e->n; i++) print_ratio(e, i, out);
    for (size_t i = 0; i < e->n; i++)
        if (!e->results[i].b.score.valid) tm_text_printf(out, "%c has no valid score\n", (char)('A' + i));
    tm_text_add(out, TM_MLPERF_NOT_VERIFIED "\n");
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void spread_json(const char *key, const tm_spread *s, tm_json *json)
{
    tm_json_open(json, key, '{');
    tm_json_f64(json, "mean", s->mean);
    tm_json_f64(json, "deviation", s->deviation);
    tm_json_f64(json, "geometric_mean", s->geometric);
    tm_json_i64(json, "n", (int64_t)s->n);
    tm_json_close(json, '}');
}

static void run_json(const tm_breakdown_run *r, tm_json *json)
{
    tm_json_open(json, NULL, '{');
    tm_json_string(json, "file", r->name);
    tm_json_bool(json, "counts", r->used);
    tm_json_f64(json, "seconds", r->seconds);
    tm_json_f64(json, "initialisation_s", r->init_s);
    tm_json_f64(json, "training_s", r->train_s);
    tm_json_f64(json, "evaluation_s", r->eval_s);
    tm_json_i64(json, "evaluations", (int64_t)r->evaluations);
    tm_json_f64(json, "samples", r->samples);
    tm_json_f64(json, "samples_at_target", r->crossing);
    tm_json_f64(json, "samples_per_s", r->rate);
    tm_json_f64(json, "first_block_samples_per_s", r->first_rate);
    tm_json_f64(json, "block_rate_variation", r->rate_variation);
    tm_json_f64(json, "tracked_throughput", r->tracked);
    tm_json_close(json, '}');
}

static void result_json(const result *r, tm_json *json)
{
    const tm_breakdown *b = &r->b;
    const struct {
        const char      *name;
        const tm_spread *s;
    } spreads[] = { { "seconds", &b->seconds },
                    { "samples", &b->samples },
                    { "samples_per_s", &b->rate },
                    { "training_share", &b->train_share },
                    { "evaluation_share", &b->eval_share },
                    { "initialisation_s", &b->init_s },
                    { "one_evaluation_s", &b->evaluation_s },
                    { "samples_at_target", &b->crossing },
                    { "samples_beyond_target", &b->overshoot },
                    { "first_block_samples_per_s", &b->first_rate },
                    { "tracked_throughput", &b->tracked } };
    tm_json_open(json, NULL, '{');
    tm_json_string(json, "folder", r->submission->path);
    tm_json_string(json, "benchmark", r->submission->benchmark);
    tm_json_bool(json, "valid", b->score.valid);
    tm_json_f64(json, "scaled_minutes", b->score.problem ? (double)NAN : b->score.scaled);
    tm_json_f64(json, "rcp_scaling_factor", b->score.factor);
    tm_json_i64(json, "runs_that_count", (int64_t)b->used);
    for (size_t i = 0; i < sizeof spreads / sizeof spreads[0]; i++) spread_json(spreads[i].name, spreads[i].s, json);
    tm_json_f64(json, "block_rate_variation", b->rate_variation);
    tm_json_f64(json, "interval_samples", b->interval);
    tm_json_f64(json, "rounding_share_of_variance", b->rounding_share);
    tm_json_f64(json, "best_interval_samples", b->best_interval);
    tm_json_open(json, "finer_intervals", '[');
    for (int i = 0; i < TM_BREAKDOWN_FINER; i++) {
        tm_json_open(json, NULL, '{');
        tm_json_i64(json, "parts", b->finer[i].parts);
        tm_json_f64(json, "saved_s", b->finer[i].saved_s);
        tm_json_f64(json, "evaluations_s", b->finer[i].evaluations_s);
        tm_json_f64(json, "net_s", b->finer[i].net_s);
        tm_json_f64(json, "scaled_net_s", b->finer[i].scaled_s);
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
    tm_json_open(json, "runs", '[');
    for (size_t i = 0; i < b->n; i++) run_json(&b->runs[i], json);
    tm_json_close(json, ']');
    tm_json_close(json, '}');
}

static void ratio_json(const explaining *e, size_t i, tm_json *json)
{
    tm_breakdown_ratio r;
    size_t             base = base_of(e, i);
    const result      *a = &e->results[base], *b = &e->results[i];
    if (base == i || !tm_breakdown_compare(a->submission, &a->b, b->submission, &b->b, &r)) return;
    tm_json_open(json, NULL, '{');
    tm_json_i64(json, "of", (int64_t)i);
    tm_json_i64(json, "to", (int64_t)base);
    tm_json_f64(json, "scaled_minutes", r.scaled);
    tm_json_f64(json, "samples", r.samples);
    tm_json_f64(json, "time_per_sample", r.rate);
    tm_json_f64(json, "time_outside_of_training", r.overhead);
    tm_json_f64(json, "trimming", r.trimming);
    tm_json_f64(json, "factor", r.factor);
    tm_json_close(json, '}');
}

static void print_json(const explaining *e, tm_text *out)
{
    tm_json json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_bool(&json, "verified_by_mlcommons", false);
    tm_json_open(&json, "results", '[');
    for (size_t i = 0; i < e->n; i++) result_json(&e->results[i], &json);
    tm_json_close(&json, ']');
    tm_json_open(&json, "ratios", '[');
    for (size_t i = 1; i < e->n; i++) ratio_json(e, i, &json);
    tm_json_close(&json, ']');
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

static tm_status explain(explaining *e, tm_error *err)
{
    if (e->o->n > MAX_RESULTS)
        return tm_fail(err, TM_USAGE, "%zu directories; at most %d at a time", e->o->n, MAX_RESULTS);
    for (size_t i = 0; i < e->o->n; i++) {
        result *r = &e->results[i];
        TM_TRY(tm_submission_open(e->o->folders[i], e->o->ruleset, &r->submission, err));
        e->n++;
        TM_TRY(tm_breakdown_compute(r->submission, e->o->reference, &r->b, err));
    }
    if (e->o->json)
        print_json(e, &e->out);
    else
        print_text(e, &e->out);
    TM_TRY(tm_mlperf_print(&e->out, err));
    for (size_t i = 0; i < e->n; i++)
        if (e->results[i].b.used == 0)
            return tm_fail(err, TM_NEGATIVE, "no run of '%s' counts: there is nothing to explain", e->o->folders[i]);
    return TM_OK;
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    const tm_mlperf_options *o;
    TM_TRY(tm_mlperf_read_options(line, &o, err));
    explaining e = { .o = o };
    tm_status  st = explain(&e, err);
    for (size_t i = 0; i < e.n; i++) tm_submission_close(e.results[i].submission);
    tm_text_fini(&e.out);
    return st;
}

static const tm_option options[] = {
    TM_MLPERF_REFERENCE(tm_mlperf_options),
    TM_MLPERF_RULESET(tm_mlperf_options),
    TM_OPTION_JSON(tm_mlperf_options),
};

const tm_cli_command tm_mlperf_command_explain = {
    .name = "explain",
    .summary = "analyze the time to train: rate, samples, evaluation; results side by side",
    .words = "DIR...",
    .least = 1,
    .most = -1,
    .about =
        "Analyzes the time to train of results (result_*.txt[.gz]): samples per second and samples to the target, "
        "each with its spread over the runs, time in evaluation, initialization, what the evaluation interval costs; a "
        "column per result, and how the scores of two results of one benchmark relate (docs/mlperf-explain.md).",
    TM_CLI_OPTIONS(options, tm_mlperf_options),
    .run = run,
};
