/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/gpt.c - training steps of the sizes of a published GPT table, whole or from slices (docs/bench-gpt.md). */
#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"
#include "apps/bench/bench.h"
#include "apps/bench/slices.h"
#include "system/validity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const tm_key options[] = {
    { .name = "sizes", .kind = TM_KEY_TEXT, .fallback = "small,medium,large,xl,1.5b,3b,7b,13b",
      .help = "sizes of the table, or other models by name or file, separated by commas" },
    { .name = "published", .kind = TM_KEY_BOOL, .fallback = "false",
      .help = "the table's own batch; otherwise an eighth of it, at least one sequence" },
    { .name = "batch", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 1e6,
      .help = "sequences of a step for all sizes; 0: as `published` says" },
    { .name = "dtype", .kind = TM_KEY_CHOICE, .fallback = "float32", .choices = "float32=fp32|bfloat16=bf16|bfloat16-pure",
      .help = "number format of the computation; pure: also of weights, gradients and moments" },
    { .name = "layers", .kind = TM_KEY_TEXT, .fallback = "1,2,3", .help = "slices: layers of each, ascending" },
    { .name = "validate", .kind = TM_KEY_CHOICE, .fallback = "auto", .choices = "auto|always|never",
      .help = "measure sizes that fit both ways, and print the error; auto: small, medium" },
    { .name = "max_rounds", .kind = TM_KEY_I64, .fallback = "1000", .lo = 1, .hi = 100000, .help = "rounds of slices at most" },
    { .name = "turn_ms", .kind = TM_KEY_F64, .fallback = "500", .lo = 0, .hi = 1e6,
      .help = "milliseconds of steps in a turn of slices; at least one step" },
    { .name = "memory_gib", .kind = TM_KEY_F64, .fallback = "0", .lo = 0, .hi = 1e6,
      .help = "memory that a model may use; 0: what is available, of a GPU all, less 512 MiB" },
};

static const tm_column columns[] = {
    { "host", 0 }, { "case", 0 }, { "row", 0 }, { "tag", 0 }, { "layers", 0 }, { "parameters", 0 }, { "batch", 0 },
    { "seq", 0 }, { "threads", 0 }, { "device", 0 }, { "dtype", 0 }, { "tokens_per_second", 5 }, { "tokens_per_second_lo", 5 },
    { "tokens_per_second_hi", 5 }, { "step_ms", 5 }, { "tflops_6n", 4 }, { "tflops_exact_causal", 4 }, { "tflops_executed", 4 },
    { "memory_gb", 4 }, { "loss_first", 5 }, { "loss_last", 5 },
    { "residual_pct", 3 }, { "error_pct", 3 }, { "skipped", 0 },
};
static const char *const brief[] = { "case", "row", "tokens_per_second", "skipped", "batch", "seq", "step_ms", "tflops_6n", "half_width_pct", "dtype", "tag" };
/* clang-format on */

static const char *const table_sizes[] = { "small", "medium", "large", "xl", "1.5b", "3b", "7b", "13b" };
enum { TABLE_SIZES = sizeof table_sizes / sizeof table_sizes[0], MOST_SIZES = 64, LEAST_STEPS = 5, LEAST_ROUNDS = 3 };

typedef struct {
    tm_bench *bench;
    int64_t   layers[TM_LINE_POINTS];
    int       n_layers;
    double    rate; /* executed FLOP/s of the last probe of any size, before that the machine's peak; 0: unknown */
    double    open_seconds_per_byte; /* of the last part that was opened */
} suite;

/* One size. */
typedef struct {
    suite         *of;
    const char    *name;
    bool           listed; /* in the published table */
    tm_config     *config;
    tm_run_options run;
    tm_part        whole, part[TM_LINE_POINTS];
    int            slices;
    int64_t        end_ns; /* of its share of the budget */
} size;

static double seconds_until(int64_t end_ns)
{
    double seconds = (double)(end_ns - tm_now_ns()) * 1e-9;
    return seconds > 0 ? seconds : 0;
}

static size_t memory_limit(const suite *s)
{
    const double          reserve = 512.0 * (1 << 20);
    const tm_device_info *device = tm_device_describe(s->bench->device);
    double                given = tm_config_f64(s->bench->options, "memory_gib") * (1 << 30);
    int64_t               there = device->own_memory ? device->memory_bytes : tm_memory_available_bytes("");
    double                available = (double)there - reserve;
    if (given > 0 && given < available) return (size_t)given;
    return available > 0 ? (size_t)available : 0;
}

static double tokens_of(const tm_part *part)
{
    return (double)(part->step.micro_batch * part->step.accumulation * part->step.seq);
}

/* --- rows ------------------------------------------------------------------------------------ */

static void add_row(const size *z, const char *row, const char *tag, const tm_part *part)
{
    tm_table *t = z->of->bench->table;
    tm_table_row(t);
    tm_table_text(t, "host", z->of->bench->host);
    if (strcmp(row, "slice") == 0)
        tm_table_printf(t, "case", "%s, %lld of %lld layers", z->name, (long long)part->layers,
                        (long long)z->whole.layers);
    else
        tm_table_text(t, "case", z->name);
    tm_table_text(t, "row", row);
    tm_table_text(t, "tag", tag);
    tm_table_i64(t, "layers", part->layers);
    tm_table_i64(t, "parameters", part->parameters);
    tm_table_i64(t, "batch", part->step.micro_batch);
    tm_table_i64(t, "seq", part->step.seq);
    tm_table_i64(t, "threads", z->of->bench->threads);
    tm_table_text(t, "device", tm_config_text(z->of->bench->options, "device"));
    tm_table_text(t, "dtype", part->step.precision->name);
    if (strcmp(tag, "skipped") != 0) tm_table_f64(t, "memory_gb", (double)part->arena_bytes * 1e-9);
}

/* The rate cells of the last row, and the guard: nothing computes faster than the machine. */
static tm_status put_rate(const size *z, const tm_part *part, double rate, double lo, double hi, tm_error *err)
{
    char                  what[128];
    tm_table             *t = z->of->bench->table;
    const tm_model_shape *shape = &part->step.shape;
    int64_t               seq = part->step.seq;
    double                executed = part->flops / tokens_of(part) * rate;
    tm_table_f64(t, "tokens_per_second", rate);
    tm_table_f64(t, "step_ms", 1e3 * tokens_of(part) / rate);
    tm_table_f64(t, "tokens_per_second_lo", lo);
    tm_table_f64(t, "tokens_per_second_hi", hi);
    tm_table_f64(t, "tflops_6n", tm_model_flops_per_token(shape, TM_FLOPS_6N, seq) * rate * 1e-12);
    tm_table_f64(t, "tflops_exact_causal", tm_model_flops_per_token(shape, TM_FLOPS_EXACT_CAUSAL, seq) * rate * 1e-12);
    tm_table_f64(t, "tflops_executed", executed * 1e-12);
    if (!part->judged) return TM_OK; /* nothing is computed there */
    snprintf(what, sizeof what, "%.80s, %lld layers", z->name, (long long)part->layers);
    return tm_bench_guard(z->of->bench, what, part->step.precision->compute, executed, 0, err);
}

/* `row` ("model", "prediction") without numbers, and why. */
static tm_status skip(const size *z, const char *row, const char *reason)
{
    add_row(z, row, "skipped", &z->whole);
    tm_table_text(z->of->bench->table, "skipped", reason);
    tm_note("%s: %s skipped: %s", z->name, row, reason);
    return TM_OK;
}

/* --- the whole model, step after step -------------------------------------------------------- */

static tm_status take_steps(size *z, tm_live_part *live, tm_sampling *sampling, tm_validity_report *report,
                            tm_error *err)
{
    tm_stop stop = TM_STOP_NO;
    double  seconds;
    TM_TRY(tm_part_step(live, &seconds, err)); /* not counted */
    tm_validity *validity = tm_validity_start("");
    tm_status    st = TM_OK;
    while (st == TM_OK && stop == TM_STOP_NO && !(z->of->bench->stop && *z->of->bench->stop)) {
        st = tm_part_step(live, &seconds, err);
        if (st == TM_OK) stop = tm_sampling_add(sampling, seconds, tokens_of(&z->whole));
        tm_validity_sample(validity);
    }
    tm_validity_stop(validity, 0, report);
    tm_validity_destroy(validity);
    return st;
}

static tm_status put_steps(size *z, const tm_live_part *live, const tm_sampling *sampling,
                           const tm_validity_report *report, tm_error *err)
{
    tm_measurement m = { .summary = tm_sampling_summary(sampling), .calls = 1, .loops = 1 };
    if (m.summary.n == 0) return skip(z, "model", "stopped before its first step");
    m.stop = m.summary.stop;
    m.verdict = report->verdict;
    m.reason = report->reason;
    double first, last;
    add_row(z, "model", "measured", &z->whole);
    tm_bench_put(z->of->bench->table, &m);
    tm_part_losses(live, &first, &last);
    if (z->whole.judged) tm_table_f64(z->of->bench->table, "loss_first", first);
    if (z->whole.judged) tm_table_f64(z->of->bench->table, "loss_last", last);
    return put_rate(z, &z->whole, m.summary.rate, m.summary.rate_lo, m.summary.rate_hi, err);
}

static tm_status measure_whole(size *z, tm_error *err)
{
    tm_live_part       *live;
    const tm_timing    *timing = &z->of->bench->timing;
    double              left = seconds_until(z->end_ns);
    double              most = timing->precision > 0 ? left : fmin(left, timing->rep_ms * 1e-3);
    tm_sampling_options limits = { .half_width = timing->precision,
                                   .max_seconds = fmax(most, 1e-3), /* 0 would be no limit */
                                   .min_samples = 10 };
    TM_TRY(tm_part_open(&z->whole, z->of->bench->device, &live, err));
    tm_sampling       *sampling = tm_sampling_create(&limits);
    tm_validity_report report;
    tm_status          st = take_steps(z, live, sampling, &report, err);
    if (st == TM_OK) st = put_steps(z, live, sampling, &report, err);
    tm_sampling_destroy(sampling);
    tm_part_close(live);
    return st;
}

/* --- slices ---------------------------------------------------------------------------------- */

/* Seconds of a step of part k of all turns, as a row's numbers; *median: their middle. */
static tm_status put_turns(const size *z, const tm_slices *s, int k, const tm_part *part, double *median, tm_error *err)
{
    int64_t n = s->rounds;
    double *x = tm_alloc((size_t)n * sizeof *x), tokens = tokens_of(part);
    for (int64_t r = 0; r < n; r++) x[r] = s->seconds[r * s->parts + k];
    tm_interval       interval = tm_stats_median_interval(x, n);
    tm_sample_summary summary = { .n = n,
                                  .median = tm_stats_median(x, n),
                                  .p5 = tm_stats_percentile(x, n, 0.05),
                                  .p95 = tm_stats_percentile(x, n, 0.95),
                                  .variation = tm_stats_variation(x, n) };
    free(x);
    *median = summary.median;
    summary.half_width = (interval.hi - interval.lo) / 2 / summary.median;
    tm_bench_put(
        z->of->bench->table,
        &(tm_measurement){
            .summary = summary, .loops = 1, .stop = s->stop, .verdict = s->verdict[k], .reason = s->reason[k] });
    return put_rate(z, part, tokens / summary.median, tokens / interval.hi, tokens / interval.lo, err);
}

static tm_status withdraw(const size *z, const tm_slices *s)
{
    char reason[200];
    snprintf(reason, sizeof reason,
             "%lld round(s) of slices, too few for this noise: a layer seems to take %.4g ms; raise --budget",
             (long long)s->rounds, 1e3 * s->line.b);
    return skip(z, "prediction", reason);
}

static tm_status put_prediction(const size *z, const tm_slices *s, double measured, tm_error *err)
{
    tm_table         *t = z->of->bench->table;
    const tm_line    *line = &s->line;
    double            tokens = tokens_of(&z->whole), nan = (double)NAN;
    tm_sample_summary summary = { .n = s->rounds, .median = line->value, .p5 = nan, .p95 = nan, .variation = nan };
    summary.half_width = (line->interval.hi - line->interval.lo) / 2 / line->value;
    add_row(z, "prediction", "predicted", &z->whole);
    tm_bench_put(t, &(tm_measurement){ .summary = summary,
                                       .loops = 1,
                                       .stop = s->stop,
                                       .verdict = TM_VERDICT_NOT_JUDGED,
                                       .reason = "a prediction: see its slices" });
    if (measured > 0) tm_table_f64(t, "error_pct", 100 * (line->value / measured - 1));
    tm_bench_note(z->of->bench, "%s: predicted step = %.4g ms + %.4g ms x %lld layers", z->name, 1e3 * line->a,
                  1e3 * line->b, (long long)z->whole.layers);
    if (!(line->b > 0) || !(line->value > 0)) {
        tm_bench_invalid(z->of->bench,
                         "%s: a layer seems to take %.4g ms: the measurements of the slices are too noisy", z->name,
                         1e3 * line->b);
        return TM_OK;
    }
    /* Where the time may be nil the rate has no upper end. */
    double most = line->interval.lo > 0 ? tokens / line->interval.lo : nan;
    return put_rate(z, &z->whole, tokens / line->value, tokens / line->interval.hi, most, err);
}

static tm_status put_slices(const size *z, const tm_slices *s, tm_error *err)
{
    double median, measured = 0;
    for (int k = 0; k < s->slices; k++) {
        add_row(z, "slice", "measured", &z->part[k]);
        TM_TRY(put_turns(z, s, k, &z->part[k], &median, err));
        tm_table_f64(z->of->bench->table, "residual_pct", 100 * s->line.residual[k] / s->line.middle[k]);
    }
    if (s->parts > s->slices) {
        add_row(z, "model", "measured", &z->whole);
        TM_TRY(put_turns(z, s, s->slices, &z->whole, &measured, err));
    }
    if (s->slices == 2)
        tm_bench_note(z->of->bench, "%s: only two slices, and a line fits any two points: no residuals", z->name);
    tm_peaks peaks = { 0 }; /* unknown where nothing is computed */
    if (z->whole.judged) peaks = tm_ceilings_peaks(&z->of->bench->ceilings, z->whole.step.precision->compute);
    return tm_slices_are_noise(s, z->whole.flops, &peaks) ? withdraw(z, s) : put_prediction(z, s, measured, err);
}

static double step_estimate(const size *z, const tm_part *part)
{
    return part->flops / z->of->rate;
}

static double open_estimate(const size *z, const tm_part *part)
{
    return z->of->open_seconds_per_byte * (double)part->arena_bytes;
}

/* The whole model, its few steps. */
static double whole_estimate(const size *z)
{
    return open_estimate(z, &z->whole) + (1 + LEAST_STEPS) * step_estimate(z, &z->whole);
}

static double shortest_turn(const size *z)
{
    return tm_config_f64(z->of->bench->options, "turn_ms") * 1e-3;
}

/* Of the first round, or of any if the parts do not fit together. */
static double round_of_turns(const size *z, bool with_whole, double turn)
{
    double seconds = 0;
    for (int k = 0; k < z->slices + (with_whole ? 1 : 0); k++) {
        const tm_part *part = k < z->slices ? &z->part[k] : &z->whole;
        double         step = step_estimate(z, part);
        seconds += open_estimate(z, part) + step + ceil(turn / step) * step;
    }
    return seconds;
}

/* All turns are equally long, one step of the largest part at least: what comes and goes on the machine then finds its
 * way into the mean of each turn alike, and the line through their medians stays a line. Where there is no time for a
 * single such round, turns are as short as the options allow. */
static double turn_seconds(const size *z, bool with_whole)
{
    const tm_part *largest = with_whole ? &z->whole : &z->part[z->slices - 1];
    double         shortest = shortest_turn(z);
    double         equal = fmax(shortest, step_estimate(z, largest));
    return round_of_turns(z, with_whole, equal) <= seconds_until(z->end_ns) ? equal : shortest;
}

static double round_estimate(const size *z, bool with_whole)
{
    return round_of_turns(z, with_whole, turn_seconds(z, with_whole));
}

static bool fit_together(const size *z, bool with_whole)
{
    size_t bytes = with_whole ? z->whole.arena_bytes : 0;
    for (int k = 0; k < z->slices; k++) bytes += z->part[k].arena_bytes;
    return bytes <= memory_limit(z->of);
}

static tm_status measure_slices(size *z, bool with_whole, tm_error *err)
{
    const tm_bench   *bench = z->of->bench;
    tm_slices_options o = { .device = bench->device,
                            .together = fit_together(z, with_whole),
                            .turn_seconds = turn_seconds(z, with_whole),
                            .half_width = 0.01,
                            .max_rounds = tm_config_i64(bench->options, "max_rounds"),
                            .end_ns = z->end_ns,
                            .stop = bench->stop };
    tm_slices         s;
    tm_status st = tm_slices_measure(&o, z->part, z->slices, with_whole ? &z->whole : NULL, z->whole.layers, &s, err);
    if (s.rounds == 0 && st == TM_OK) st = skip(z, "model", "the time budget ended before the first round of slices");
    tm_status put = s.rounds > 0 ? put_slices(z, &s, err) : TM_OK;
    tm_slices_fini(&s);
    return st != TM_OK ? st : put;
}

/* --- what can be done ------------------------------------------------------------------------ */

/* One or two steps of the smallest slice: a short first one only warms up, the second tells how fast this is. A GPU's
 * first part is opened twice: the first time pays for kernels, which then are there. */
static tm_status probe(size *z, tm_error *err)
{
    tm_live_part *live;
    double        seconds;
    if (tm_bench_on_gpu(z->of->bench) && !(z->of->open_seconds_per_byte > 0)) {
        TM_TRY(tm_part_open(&z->part[0], z->of->bench->device, &live, err));
        tm_part_close(live);
    }
    int64_t begin = tm_now_ns();
    TM_TRY(tm_part_open(&z->part[0], z->of->bench->device, &live, err));
    z->of->open_seconds_per_byte = (double)(tm_now_ns() - begin) * 1e-9 / (double)z->part[0].arena_bytes;
    tm_status st = tm_part_step(live, &seconds, err);
    if (st == TM_OK && seconds < 1) st = tm_part_step(live, &seconds, err);
    tm_part_close(live);
    if (st == TM_OK) z->of->rate = z->part[0].flops / seconds;
    return st;
}

static bool wants_validation(const size *z)
{
    const char *wanted = tm_config_text(z->of->bench->options, "validate");
    if (strcmp(wanted, "auto") != 0) return strcmp(wanted, "always") == 0;
    return z->listed && (strcmp(z->name, "small") == 0 || strcmp(z->name, "medium") == 0);
}

/* Whole and sliced, whole, sliced, or not at all: what memory and time allow. */
static tm_status measure(size *z, tm_error *err)
{
    char   reason[160], want[32], have[32];
    size_t limit = memory_limit(z->of);
    bool   fits = z->whole.arena_bytes <= limit;
    TM_TRY(probe(z, err));
    double left = seconds_until(z->end_ns);
    if (wants_validation(z) && z->slices >= 2 && fits) {
        if (LEAST_ROUNDS * round_estimate(z, true) <= left) return measure_slices(z, true, err);
        tm_bench_note(z->of->bench,
                      "%s: not validated: %d rounds take about %.3g s, its share of the budget has %.3g s", z->name,
                      LEAST_ROUNDS, LEAST_ROUNDS * round_estimate(z, true), left);
    }
    if (fits && (whole_estimate(z) <= left || z->slices < 2)) return measure_whole(z, err);
    if (z->slices >= 2 && round_estimate(z, false) <= left) return measure_slices(z, false, err);
    if (z->slices < 2)
        snprintf(reason, sizeof reason, "needs %s, and two slices do not fit either; %s may be used",
                 tm_format_bytes(want, (double)z->whole.arena_bytes), tm_format_bytes(have, (double)limit));
    else
        snprintf(reason, sizeof reason,
                 "needs about %.3g s per round, but only %.3g s of the budget is left for it; raise --budget",
                 round_estimate(z, false), left);
    return skip(z, "model", reason);
}

/* --- sizes ----------------------------------------------------------------------------------- */

static void choose_batch(size *z)
{
    enum { REDUCTION = 8 };
    const tm_config *o = z->of->bench->options;
    int64_t          given = tm_config_i64(o, "batch"), own = z->run.step.micro_batch;
    z->run.step.accumulation = 1;
    if (given > 0)
        z->run.step.micro_batch = given;
    else if (z->listed && !tm_config_bool(o, "published"))
        z->run.step.micro_batch = own / REDUCTION > 0 ? own / REDUCTION : 1;
}

static bool listed(const char *name)
{
    for (int i = 0; i < TABLE_SIZES; i++)
        if (tm_names_equal(name, table_sizes[i])) return true;
    return false;
}

static tm_status load(size *z, tm_error *err)
{
    char name[280];
    z->listed = listed(z->name);
    snprintf(name, sizeof name, "%s%.255s", z->listed ? "gpt-" : "", z->name);
    TM_TRY(tm_bench_model_config(name, &z->config, err));
    TM_TRY(tm_run_options_read(z->config, &z->run, err));
    choose_batch(z);
    z->run.seed = z->of->bench->seed;
    const char *dtype = tm_config_text(z->of->bench->options, "dtype");
    z->run.step.precision = strcmp(dtype, "float32") == 0    ? &tm_precision_f32
                            : strcmp(dtype, "bfloat16") == 0 ? &tm_precision_bf16
                                                             : &tm_precision_bf16_pure;
    if (tm_device_describe(z->of->bench->device)->float64_only) z->run.step.precision = &tm_precision_f64;
    return TM_OK;
}

/* Slices have fewer layers than the model and fit. */
static tm_status plan(size *z, tm_error *err)
{
    tm_device *device = z->of->bench->device;
    size_t     limit = memory_limit(z->of);
    TM_TRY(tm_part_plan(&z->run, z->run.step.shape.n_layers, device, &z->whole, err));
    for (int k = 0; k < z->of->n_layers && z->of->layers[k] < z->whole.layers; k++) {
        TM_TRY(tm_part_plan(&z->run, z->of->layers[k], device, &z->part[z->slices], err));
        if (z->part[z->slices].arena_bytes <= limit) z->slices++;
    }
    if (z->slices == 0) z->part[0] = z->whole; /* the smallest part that there is */
    return TM_OK;
}

/* The least that says something of a size: a probe and a round of short turns, three of equal turns with the model
 * where it is to be validated, or a few steps of the whole. Sizes that do not fit need nothing. */
static double least_seconds(const size *z)
{
    const tm_part *smallest = &z->part[0];
    if (smallest->arena_bytes > memory_limit(z->of) || !(z->of->rate > 0)) return 0;
    double probe = open_estimate(z, smallest) + 2 * step_estimate(z, smallest);
    if (z->slices >= 2 && wants_validation(z) && z->whole.arena_bytes <= memory_limit(z->of))
        return probe + LEAST_ROUNDS * round_of_turns(z, true, fmax(shortest_turn(z), step_estimate(z, &z->whole)));
    if (z->slices >= 2) return probe + round_of_turns(z, false, shortest_turn(z));
    return probe + whole_estimate(z);
}

static void share_budget(size *z, int n)
{
    double least[MOST_SIZES];
    for (int i = 0; i < n; i++) least[i] = least_seconds(&z[i]);
    z->end_ns = tm_now_ns() + (int64_t)(tm_bench_share(tm_bench_left(z->of->bench), least, n) * 1e9);
}

static tm_status run_size(size *z, tm_error *err)
{
    char   reason[160], want[32], have[32];
    double left = seconds_until(z->end_ns), probe = z->of->rate > 0 ? 2 * step_estimate(z, &z->part[0]) : 0;
    size_t limit = memory_limit(z->of);
    if (z->part[0].arena_bytes > limit) {
        snprintf(reason, sizeof reason, "needs %s, and no slice fits either; %s may be used",
                 tm_format_bytes(want, (double)z->whole.arena_bytes), tm_format_bytes(have, (double)limit));
        return skip(z, "model", reason);
    }
    if (left <= 0 || probe > left) {
        snprintf(reason, sizeof reason,
                 "two steps of its smallest slice take about %.3g s, its share of the budget has %.3g s", probe, left);
        return skip(z, "model", reason);
    }
    tm_note("%s: %lld parameters, batch %lld x %lld, up to %.0f s", z->name, (long long)z->whole.parameters,
            (long long)z->run.step.micro_batch, (long long)z->run.step.seq, left);
    tm_error  own = { 0 };
    tm_status st = measure(z, &own);
    if (st == TM_NOMEM) return skip(z, "model", own.text); /* others have a part of what the device has */
    return st == TM_OK ? TM_OK : tm_fail(err, st, "%s", own.text);
}

/* --- the suite ------------------------------------------------------------------------------- */

static tm_status read_layers(suite *s, tm_error *err)
{
    const char *text = tm_config_text(s->bench->options, "layers"), *p = text;
    for (;;) {
        char     *end;
        long long n = strtoll(p, &end, 10);
        bool      rises = n >= 1 && n <= TM_MAX_LAYERS && (s->n_layers == 0 || n > s->layers[s->n_layers - 1]);
        if (end == p || (*end && *end != ',') || !rises || s->n_layers == TM_LINE_POINTS)
            return tm_fail(err, TM_USAGE,
                           "--layers is '%.100s'; wanted ascending whole numbers separated by commas, "
                           "%d at most: --layers 1,2,3",
                           text, TM_LINE_POINTS);
        s->layers[s->n_layers++] = n;
        if (!*end) return TM_OK;
        p = end + 1;
    }
}

/* Cuts the list of names in place. */
static tm_status read_sizes(char *text, const char *names[MOST_SIZES], int *n, tm_error *err)
{
    char *rest = text;
    for (*n = 0; rest;) {
        char *name = strsep(&rest, ",");
        if (!*name || *n == MOST_SIZES)
            return tm_fail(err, TM_USAGE, "--sizes must be names separated by commas, at most %d: --sizes small,medium",
                           MOST_SIZES);
        names[(*n)++] = name;
    }
    return TM_OK;
}

static bool any_listed(const char *const *names, int n)
{
    int i = 0;
    while (i < n && !listed(names[i])) i++;
    return i < n;
}

static tm_status run_sizes(suite *s, char *list, tm_error *err)
{
    const char *names[MOST_SIZES];
    int         n;
    TM_TRY(read_layers(s, err));
    TM_TRY(read_sizes(list, names, &n, err));
    if (any_listed(names, n) && !tm_config_bool(s->bench->options, "published") &&
        tm_config_i64(s->bench->options, "batch") == 0)
        tm_bench_note(s->bench,
                      "batch: an eighth of the table's, at least one sequence; --published runs the table's own");
    const tm_ceilings *ceilings;
    TM_TRY(tm_bench_ceilings(s->bench, &ceilings, err));
    s->rate = ceilings->flops;
    size     *sizes = tm_alloc((size_t)n * sizeof *sizes);
    tm_status st = TM_OK;
    for (int i = 0; i < n && st == TM_OK; i++) {
        sizes[i] = (size){ .of = s, .name = names[i] };
        st = load(&sizes[i], err);
        if (st == TM_OK) st = plan(&sizes[i], err);
    }
    for (int i = 0; i < n && st == TM_OK; i++) {
        share_budget(&sizes[i], n - i);
        st = run_size(&sizes[i], err);
        if (st == TM_OK && s->bench->stop && *s->bench->stop)
            st = tm_fail(err, TM_INTERRUPTED, "stopped at size %s", names[i]);
    }
    for (int i = 0; i < n; i++) tm_config_destroy(sizes[i].config);
    free(sizes);
    return st == TM_OK && tm_bench_on_gpu(s->bench) ? tm_bench_note_ceilings(s->bench, err) : st;
}

static tm_status run(tm_bench *bench, tm_error *err)
{
    suite s = { .bench = bench };
    if (!tm_config_is_set(bench->options, "budget")) bench->end_ns = tm_now_ns() + 600 * (int64_t)1e9;
    tm_table_columns(bench->table, columns, sizeof columns / sizeof columns[0]);
    tm_bench_columns(bench->table);
    tm_table_brief(bench->table, brief, sizeof brief / sizeof brief[0]);
    tm_text list = { 0 };
    tm_text_add(&list, tm_config_text(bench->options, "sizes"));
    tm_status st = run_sizes(&s, list.data, err);
    tm_text_fini(&list);
    return st;
}

const tm_workload tm_workload_gpt = {
    .name = "gpt",
    .summary = "measure GPT training steps, Small to 13B, whole or by slices; budget 600 s unless given",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .gpus = true,
    .run = run,
};
