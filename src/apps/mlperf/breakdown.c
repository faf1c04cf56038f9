/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/breakdown.h"

#include "apps/mlperf/benchmark.h"
#include "stats/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- one run ------------------------------------------------------------------------------------------------------ */

typedef struct {
    double samples, loss;
} evaluation;

/* A list of numbers that grows. */
typedef struct {
    double *x;
    size_t  n, room;
} series;

static void push(series *s, double x)
{
    s->x = tm_grow(s->x, &s->room, s->n, sizeof *s->x);
    s->x[s->n++] = x;
}

static double median_of(const series *s)
{
    return s->n > 0 ? tm_stats_median(s->x, (int64_t)s->n) : (double)NAN;
}

/* What a scan of a run between run_start and run_stop remembers. Times in seconds; NAN: not open. */
typedef struct {
    double      block, gap, eval; /* since when a block, the time between blocks, an evaluation is under way */
    double      blocks_s, gaps_s, evals_s;
    size_t      n_blocks, n_evals;
    double      done;    /* samples at the last block_stop */
    double      counted; /* samples that block_stop or eval_start named last; NAN: none */
    evaluation *evaluations;
    size_t      n, room;
    series      rates, steps, throughput;
} scan;

/* A finite number, or NAN. */
static double number_in(const tm_json_value *object, const char *name)
{
    const tm_json_value *v = tm_json_member(object, name);
    return v && v->kind == TM_JSON_NUMBER && isfinite(v->number) ? v->number : (double)NAN;
}

static bool is(const tm_mllog_record *r, const char *key)
{
    return strcmp(r->key, key) == 0;
}

static void scan_block_stop(scan *s, double t, double samples)
{
    if (!isnan(s->block)) {
        double seconds = t - s->block;
        s->blocks_s += seconds;
        s->n_blocks++;
        if (samples > s->done && seconds > 0) push(&s->rates, (samples - s->done) / seconds);
    }
    if (!isnan(samples)) s->done = s->counted = samples;
    s->block = (double)NAN;
    s->gap = t;
}

static void scan_accuracy(scan *s, const tm_mllog_record *r, double samples)
{
    double at = isnan(s->counted) ? samples : s->counted; /* some logs count one step short here */
    if (isnan(at) || r->value->kind != TM_JSON_NUMBER) return;
    if (s->n > 0 && at > s->evaluations[s->n - 1].samples) push(&s->steps, at - s->evaluations[s->n - 1].samples);
    s->evaluations = tm_grow(s->evaluations, &s->room, s->n, sizeof *s->evaluations);
    s->evaluations[s->n++] = (evaluation){ at, r->value->number };
}

static void scan_record(scan *s, const tm_mllog_record *r)
{
    double t = r->time_ms / 1000, samples = number_in(r->metadata, "samples_count");
    if (is(r, "block_start")) {
        if (!isnan(s->gap)) s->gaps_s += t - s->gap;
        s->gap = (double)NAN;
        s->block = t;
    } else if (is(r, "block_stop")) {
        scan_block_stop(s, t, samples);
    } else if (is(r, "eval_start")) {
        s->eval = t;
        if (!isnan(samples)) s->counted = samples;
    } else if (is(r, "eval_stop") && !isnan(s->eval)) {
        s->evals_s += t - s->eval;
        s->n_evals++;
        s->eval = (double)NAN;
    } else if (is(r, "eval_accuracy")) {
        scan_accuracy(s, r, samples);
    } else if (is(r, "tracked_stats")) {
        double throughput = number_in(r->value, "throughput");
        if (throughput > 0) push(&s->throughput, throughput);
    }
}

/* Samples at the target, between the last evaluation above it and the one that met it. */
static double crossing_of(const scan *s, double target)
{
    if (s->n < 2) return (double)NAN;
    evaluation a = s->evaluations[s->n - 2], b = s->evaluations[s->n - 1];
    if (!(a.loss > target && b.loss <= target && a.samples < b.samples)) return (double)NAN;
    return a.samples + (a.loss - target) / (a.loss - b.loss) * (b.samples - a.samples);
}

static void measure_run(const scan *s, double target, double stop, tm_breakdown_run *out)
{
    double gaps = s->gaps_s + (isnan(s->gap) ? 0 : stop - s->gap);
    out->evaluations = s->n;
    if (s->n > 0) out->first = s->evaluations[0].samples;
    if (s->n > 0) out->samples = s->evaluations[s->n - 1].samples;
    if (s->n_evals > 0)
        out->eval_s = s->evals_s;
    else if (s->n_blocks > 0)
        out->eval_s = gaps;
    out->train_s = s->n_blocks > 0 ? s->blocks_s : out->seconds - out->eval_s;
    out->rate = out->samples / out->train_s;
    out->step = median_of(&s->steps);
    out->tracked = s->throughput.n > 0 ? tm_stats_mean(s->throughput.x, (int64_t)s->throughput.n) : (double)NAN;
    out->crossing = crossing_of(s, target);
    if (s->rates.n > 0) out->first_rate = s->rates.x[0];
    if (s->rates.n > 2) out->rate_variation = tm_stats_variation(s->rates.x + 1, (int64_t)s->rates.n - 1);
}

static double initialisation(const tm_mllog_record *records, size_t n)
{
    double begin = (double)INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (is(&records[i], "init_start") && records[i].time_ms < begin) begin = records[i].time_ms;
        if (is(&records[i], "init_stop")) return isfinite(begin) ? (records[i].time_ms - begin) / 1000 : (double)NAN;
    }
    return (double)NAN;
}

static tm_breakdown_run measure(const tm_submission_run *run, const tm_score_run *timed, double target)
{
    size_t                 n;
    const tm_mllog_record *records = tm_mllog_records(run->log, &n);
    tm_breakdown_run       out = { .name = run->name, .init_s = initialisation(records, n) };
    scan s = { .block = (double)NAN, .gap = (double)NAN, .eval = (double)NAN, .counted = (double)NAN };
    out.seconds = timed->timed ? timed->minutes * 60 : (double)NAN;
    out.eval_s = out.samples = out.first = out.first_rate = out.rate_variation = (double)NAN;
    size_t begin = 0, end = 0; /* the last run_start before the first run_stop, as in the score */
    for (; end < n && !is(&records[end], "run_stop"); end++)
        if (is(&records[end], "run_start")) begin = end;
    for (size_t i = begin; i < end; i++) scan_record(&s, &records[i]); /* what cannot be read has no key */
    measure_run(&s, target, timed->stop_ms / 1000, &out);
    out.used = !timed->problem && out.seconds > 0 && isfinite(out.seconds) && out.samples > 0 && out.rate > 0 &&
               isfinite(out.rate);
    free(s.evaluations);
    free(s.rates.x);
    free(s.steps.x);
    free(s.throughput.x);
    return out;
}

/* --- all runs ----------------------------------------------------------------------------------------------------- */

typedef double (*pick)(const tm_breakdown_run *run);

#define PICK(name, expression)                                                                                         \
    static double name(const tm_breakdown_run *r)                                                                      \
    {                                                                                                                  \
        return expression;                                                                                             \
    }
PICK(pick_seconds, r->seconds)
PICK(pick_samples, r->samples)
PICK(pick_rate, r->rate)
PICK(pick_train_share, r->train_s / r->seconds)
PICK(pick_eval_share, r->eval_s / r->seconds)
PICK(pick_init, r->init_s)
PICK(pick_evaluation, r->eval_s / (double)r->evaluations) /* runs that are used have one */
PICK(pick_crossing, r->crossing)
PICK(pick_overshoot, r->samples - r->crossing)
PICK(pick_first_rate, r->first_rate)
PICK(pick_tracked, r->tracked)
PICK(pick_variation, r->rate_variation)
PICK(pick_step, r->step)
PICK(pick_first, r->first)

static series collect(const tm_breakdown *b, pick value)
{
    series s = { 0 };
    for (size_t i = 0; i < b->n; i++)
        if (b->runs[i].used && isfinite(value(&b->runs[i]))) push(&s, value(&b->runs[i]));
    return s;
}

static tm_spread spread_of(const tm_breakdown *b, pick value)
{
    series    s = collect(b, value);
    tm_spread out = { (double)NAN, (double)NAN, (double)NAN, s.n };
    if (s.n > 0) {
        double logs = 0;
        for (size_t i = 0; i < s.n; i++) logs += log(s.x[i]);
        out.mean = tm_stats_mean(s.x, (int64_t)s.n);
        out.deviation = tm_stats_deviation(s.x, (int64_t)s.n);
        out.geometric = exp(logs / (double)s.n);
    }
    free(s.x);
    return out;
}

static double middle_of(const tm_breakdown *b, pick value)
{
    series s = collect(b, value);
    double middle = median_of(&s);
    free(s.x);
    return middle;
}

/* Evaluations lie at first, first + interval, ...: where the first is one interval in, the whole run is divided. */
static double span_of(const tm_breakdown *b)
{
    double first = middle_of(b, pick_first);
    return b->samples.mean - (first > 1.5 * b->interval ? first : 0);
}

static tm_breakdown_finer finer(const tm_breakdown *b, int parts)
{
    tm_breakdown_finer f = { .parts = parts, .scaled_s = (double)NAN };
    double             overshoot = b->overshoot.n > 0 ? b->overshoot.mean : b->interval / 2;
    double             saved = overshoot * (1 - 1.0 / parts);
    f.saved_s = saved / b->rate.mean;
    f.evaluations_s = (parts - 1) * span_of(b) / b->interval * b->evaluation_s.mean;
    f.net_s = f.evaluations_s - f.saved_s;
    const tm_rcp_verdict *v = &b->score.rcp;
    double                samples = v->samples - saved;
    if (b->score.closed && v->passed && samples >= v->record.mean / v->record.max_speedup) {
        double factor = samples < v->record.mean ? v->record.mean / samples : 1;
        f.scaled_s = (b->seconds.mean + f.net_s) * factor - b->seconds.mean * v->factor;
    }
    return f;
}

static void summarise(tm_breakdown *b)
{
    b->seconds = spread_of(b, pick_seconds);
    b->samples = spread_of(b, pick_samples);
    b->rate = spread_of(b, pick_rate);
    b->train_share = spread_of(b, pick_train_share);
    b->eval_share = spread_of(b, pick_eval_share);
    b->init_s = spread_of(b, pick_init);
    b->evaluation_s = spread_of(b, pick_evaluation);
    b->crossing = spread_of(b, pick_crossing);
    b->overshoot = spread_of(b, pick_overshoot);
    b->first_rate = spread_of(b, pick_first_rate);
    b->tracked = spread_of(b, pick_tracked);
    b->rate_variation = middle_of(b, pick_variation);
    b->interval = middle_of(b, pick_step);
    double variance = b->samples.deviation * b->samples.deviation;
    b->rounding_share = variance > 0 ? fmin(1, b->interval * b->interval / 12 / variance) : (double)NAN;
    b->best_interval = sqrt(2 * span_of(b) * b->rate.mean * b->evaluation_s.mean);
    if (isnan(b->interval)) b->rounding_share = b->best_interval = (double)NAN; /* fmin ignores NAN */
    for (int i = 0; i < TM_BREAKDOWN_FINER; i++) b->finer[i] = finer(b, 2 << i);
}

tm_status tm_breakdown_compute(const tm_submission *submission, const tm_reference *given, tm_breakdown *out,
                               tm_error *err)
{
    const tm_mlperf_benchmark *row = submission->benchmark ? tm_mlperf_benchmark_find(submission->benchmark) : NULL;
    *out = (tm_breakdown){ .n = submission->n, .target = row ? row->target : (double)NAN };
    TM_TRY(tm_score_compute(submission, given, &out->score, err));
    out->runs = tm_arena_take(submission->arena, out->n * sizeof *out->runs);
    for (size_t i = 0; i < out->n; i++) {
        out->runs[i] = measure(&submission->runs[i], &out->score.runs[i], out->target);
        out->used += out->runs[i].used;
    }
    summarise(out);
    return TM_OK;
}

bool tm_breakdown_compare(const tm_submission *of_a, const tm_breakdown *a, const tm_submission *of_b,
                          const tm_breakdown *b, tm_breakdown_ratio *out)
{
    if (a->score.problem || b->score.problem || a->used == 0 || b->used == 0) return false;
    if (!of_a->benchmark || !of_b->benchmark || strcmp(of_a->benchmark, of_b->benchmark) != 0) return false;
    out->samples = b->samples.geometric / a->samples.geometric;
    out->rate = a->rate.geometric / b->rate.geometric;
    out->overhead = a->train_share.geometric / b->train_share.geometric;
    out->trimming = b->score.minutes * 60 / b->seconds.geometric / (a->score.minutes * 60 / a->seconds.geometric);
    out->factor = b->score.factor / a->score.factor;
    out->scaled = b->score.scaled / a->score.scaled;
    return isfinite(out->scaled) && isfinite(out->samples) && isfinite(out->rate) && isfinite(out->overhead);
}
