/* SPDX-License-Identifier: Apache-2.0 */
/* Every figure of a run with known step times, read from its files and worked out again: result.json, metrics.jsonl,
 * perf.csv and the MLPerf log, units included. The formulas below and the reader (support/members.h) are the test's
 * own.
 *
 * It takes the place of base/clock.c and system/validity.c in its program: time passes only between two steps, as much
 * as `seconds_of` says, and the machine is left alone.
 */
#include "support/test.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/members.h"
#include "support/training.h"

#include "base/clock.h"
#include "apps/mlperf/check.h"
#include "record/outputs.h"
#include "record/record.h"
#include "system/validity.h"
#include "train/run/run.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

enum {
    STEPS = 60,
    SEQ = 32,
    ROWS = 2,
    PASSES = 3,
    VOCAB = 64,
    DIM = 64,
    LAYERS = 2,
    HEADS = 2,
    KV = 1,
    HEAD = 32,
    FFN = 96
};
static const double wall_begin = 1.7e9, age_at_begin = 5, evaluation_seconds = 0.75, rate = 3e-3;
static const int    warmup_steps = 4;

/* A slow start, then two levels in turn, and one step far out. */
static double seconds_of(int step)
{
    if (step <= 3) return 1.5 - 0.25 * step;
    if (step == 40) return 0.375;
    return step % 2 ? 0.125 : 0.1328125;
}

/* --- the clock and the machine ------------------------------------------------------------------------------------ */

/* A look at the clock takes a millisecond in the first step, 0.75 s in the evaluation (which looks twice), else
 * nothing. */
static atomic_llong shown = 1000000000, each_call = 1000000;

static void pass(double seconds)
{
    atomic_fetch_add(&shown, llround(seconds * 1e9));
}

int64_t tm_now_ns(void)
{
    return atomic_fetch_add(&shown, atomic_load(&each_call));
}
int64_t tm_thread_delayed_ns(void)
{
    return 0;
}

int64_t tm_wall_ms(void)
{
    return llround(wall_begin * 1e3) + (atomic_load(&shown) - 1000000000) / 1000000;
}
int64_t tm_process_age_ns(void)
{
    return llround(age_at_begin * 1e9) + atomic_load(&shown) - 1000000000;
}
char *tm_wall_text(char out[32])
{
    return strcpy(out, "2026-01-31T12:00:00Z");
}

tm_validity *tm_validity_start(const char *sysroot)
{
    return (tm_validity *)(uintptr_t)sysroot;
}
void tm_validity_watch(tm_validity *v, tm_gpu_sensors *gpu)
{
    (void)v, (void)gpu;
}
void tm_validity_sample(tm_validity *v)
{
    (void)v;
}
void tm_validity_gpu(const tm_validity *v, double *clock_mhz, double *temperature_c)
{
    (void)v;
    *clock_mhz = *temperature_c = 0;
}
void tm_validity_stop(tm_validity *v, int64_t from_ns, tm_validity_report *out)
{
    static const char *const names[] = {
#define X(id, name, noisy, invalid, text) name,
        TM_MACHINE_LIST(X)
#undef X
    };
    (void)v;
    *out = (tm_validity_report){ .verdict = TM_VERDICT_VALID,
                                 .reason = "left alone",
                                 .seconds = (double)(atomic_load(&shown) - from_ns) * 1e-9,
                                 .samples = 17,
                                 .processors = 3,
                                 .n_facts = TM_MACHINE_COUNT };
    for (int i = 0; i < TM_MACHINE_COUNT; i++) out->facts[i] = (tm_named_f64){ names[i], i / 8. };
}
void tm_validity_destroy(tm_validity *v)
{
    (void)v;
}

/* --- the run ------------------------------------------------------------------------------------------------------ */

static double losses[STEPS + 1], norms[STEPS + 1], validation;
static double first_seconds; /* of step 1: as long as it looks at the clock */

/* Told first. */
static void let_time_stand_still(tm_sink *sink, const tm_event *event)
{
    (void)sink;
    if (event->kind == TM_EVENT_STEP_DONE || event->kind == TM_EVENT_EVALUATION) atomic_store(&each_call, 0);
}

/* Told last. */
static void let_time_pass(tm_sink *sink, const tm_event *event)
{
    (void)sink;
    if (event->kind == TM_EVENT_EVALUATION_STARTED) atomic_store(&each_call, llround(evaluation_seconds * 1e9));
    if (event->kind == TM_EVENT_STEP_DONE) {
        int step = (int)event->step_done.step;
        losses[step] = event->step_done.loss;
        norms[step] = event->step_done.grad_norm;
        if (step == 1) first_seconds = event->step_done.seconds;
        if (step < STEPS) pass(seconds_of(step + 1));
    }
    if (event->kind == TM_EVENT_EVALUATION) validation = event->evaluation.loss;
}

static char folder[256];

static tm_sink *open_log(void)
{
    tm_sink         *sink;
    tm_error         err = { 0 };
    tm_mllog_options options = { .path = test_in_folder("log.txt"),
                                 .benchmark = tm_mlperf_benchmark_find("llama31_8b"),
                                 .org = "Org",
                                 .platform = "Platform",
                                 .division = "closed",
                                 .status = "onprem" };
    if (tm_mllog_sink_open(&options, &sink, &err) != TM_OK) fail_msg("%s", err.text);
    return sink;
}

static tm_config *configure(tm_run_options *options)
{
    tm_config *config = test_full_config();
    tm_error   err = { 0 };
    if (test_read_run(config,
                      "tiny-llama --training.steps 60 --training.seq_len 32 --training.local_batch_size 2 "
                      "--training.grad_accumulation 3 --model.vocab_size 64 --model.dim 64 --model.n_layers 2 "
                      "--model.n_heads 2 --model.n_kv_heads 1 --model.head_dim 32 --model.ffn_dim 96 "
                      "--optimizer.lr 0.003 --lr_scheduler.warmup_steps 4 --training.stop_at_target false "
                      "--validation.freq 0 --validation.steps 5 --debug.certificate false --training.threads 1 "
                      "--store.path none",
                      options, &err) != TM_OK)
        fail_msg("%s", err.text);
    options->peaks.flops = 1e15; /* nothing here is faster */
    return config;
}

static int run_once(void **state)
{
    (void)state;
    tm_run_options        options;
    tm_config            *config = configure(&options);
    tm_environment       *environment = tm_environment_read("");
    tm_checks             checks = { 0 };
    tm_outputs           *outputs;
    tm_source            *source;
    tm_error              err = { 0 };
    volatile sig_atomic_t stop = 0;
    bool                  began;
    tm_sink               before = { .handle = let_time_stand_still }, after = { .handle = let_time_pass };
    const char           *inside = test_in_folder("x");
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(inside, '/') - inside), inside);
    tm_output_options wanted = { .folder = folder,
                                 .config = config,
                                 .run = &options,
                                 .environment = environment,
                                 .checks = &checks,
                                 .command = "",
                                 .json = true };
    tm_device        *device = test_device_open("cpu", 1);
    if (tm_source_open(&options.source, &source, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_outputs_open(&wanted, &outputs, &err) != TM_OK) fail_msg("%s", err.text);
    const tm_event_bus *files = tm_outputs_bus(outputs);
    tm_event_bus        bus = { 0 };
    tm_sink            *log = open_log();
    tm_event_bus_add(&bus, &before);
    for (size_t i = 0; i < files->count; i++) tm_event_bus_add(&bus, files->sinks[i]);
    tm_event_bus_add(&bus, log);
    tm_event_bus_add(&bus, &after);
    tm_status st = tm_run(&options, device, source, &bus, &stop, &err);
    if (st != TM_OK) fail_msg("%s", err.text);
    if (tm_sink_close(log, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_outputs_close(outputs, st, &began, &err) != TM_OK) fail_msg("%s", err.text);
    tm_event_bus_fini(&bus);
    tm_source_close(source);
    tm_device_close(device);
    tm_environment_destroy(environment);
    tm_config_destroy(config);
    return 0;
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

static double step_seconds(int step)
{
    /* the look that ended the first step took its millisecond from the second one */
    return step == 1 ? first_seconds : seconds_of(step) + (step == 2) * 0.001;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times of the steps behind the warm-up, sorted. */
static int sorted(int warmup, double out[STEPS])
{
    int n = STEPS - warmup;
    for (int i = 0; i < n; i++) out[i] = step_seconds(warmup + 1 + i);
    qsort(out, (size_t)n, sizeof *out, ascending);
    return n;
}

static double quantile(const double *x, int n, double q)
{
    double at = q * (n - 1);
    int    i = (int)at;
    return i + 1 < n ? x[i] + (at - i) * (x[i + 1] - x[i]) : x[n - 1];
}

/* The largest k with P(Binomial(n, 1/2) < k) <= 2.5 %. */
static int rank_of(int n)
{
    double p = pow(0.5, n), below = 0;
    int    k = 0;
    while (below + p <= 0.025) {
        below += p;
        p *= (double)(n - k) / (k + 1);
        k++;
    }
    return k;
}

/* Factor of step `step`, from 1: rises over the warm-up, then falls in a line, one more step than there are to 0. */
static double factor(int step)
{
    if (step <= warmup_steps) return (double)step / warmup_steps;
    int decay = STEPS - warmup_steps, flat = 1 + STEPS - warmup_steps - decay; /* one step at the peak */
    if (step <= warmup_steps + flat) return 1;
    return 1 - (double)(step - warmup_steps - flat) / decay;
}

enum {
    TOKENS = ROWS * PASSES * SEQ,
    LAYER = (HEADS + 2 * KV) * HEAD * DIM + HEADS * HEAD * DIM + 3 * FFN * DIM,
    MATMUL = LAYERS * LAYER + VOCAB * DIM,
    PARAMETERS = MATMUL + VOCAB * DIM + LAYERS * 2 * DIM + DIM
};

/* --- the files ---------------------------------------------------------------------------------------------------- */

TEST(metrics_has_every_step)
{
    char *text = test_folder_text("metrics.jsonl"), *next = text;
    for (int step = 1; step <= STEPS; step++) {
        char *line = next;
        next = strchr(line, '\n');
        assert_non_null(next);
        *next++ = '\0';
        test_is(line, "step", step);
        test_is(line, "loss", losses[step]);
        test_is(line, "grad_norm", norms[step]);
        test_is(line, "learning_rate", rate * factor(step));
        test_is(line, "tokens", TOKENS);
        test_is(line, "seconds", step_seconds(step));
        if (step > 1) test_is(line, "phases/logging", step_seconds(step)); /* time passes between two steps only */
        double sum = 0;
        for (const char *at = test_blank(test_value_at(line, "phases") + 1); *at != '}';
             at = test_blank(at + (*at == ','))) {
            at = test_blank(test_behind(at));
            sum += strtod(at + 1, NULL);
            at = test_blank(test_behind(at + 1));
        }
        assert_true(fabs(sum - step_seconds(step)) < 1e-9);
    }
    test_is_text(next, "event", "\"evaluation\"");
    test_is(next, "step", STEPS);
    test_is(next, "loss", validation);
    test_is(next, "tokens", 5 * ROWS * SEQ);
    test_is(next, "seconds", evaluation_seconds);
    free(text);
}

TEST(speed_and_times)
{
    char  *text = test_folder_text("result.json");
    double x[STEPS], sum = 0, mean, spread = 0, far[STEPS], all = 0;
    int    warmup = (int)test_number_at(text, "steps/warmup"), n = sorted(warmup, x), outliers = 0, k = rank_of(n);
    assert_in_range(warmup, 3, 20); /* the slow start, and not much more */
    for (int i = 0; i < n; i++) sum += x[i];
    mean = sum / n;
    for (int i = 0; i < n; i++) spread += (x[i] - mean) * (x[i] - mean);
    double median = quantile(x, n, 0.5);
    for (int i = 0; i < n; i++) far[i] = fabs(x[i] - median);
    qsort(far, (size_t)n, sizeof *far, ascending);
    double limit = 5 * fmax(1.4826 * quantile(far, n, 0.5), 0.001 * median);
    for (int i = 0; i < n; i++) outliers += far[i] > limit;
    test_is(text, "step_time/median", median);
    test_is(text, "step_time/p5", quantile(x, n, 0.05));
    test_is(text, "step_time/p95", quantile(x, n, 0.95));
    test_is(text, "step_time/variation_percent", 100 * sqrt(spread / (n - 1)) / mean);
    test_is(text, "step_time/outliers", outliers);
    test_is(text, "tokens_per_second_per_device/median", TOKENS / median);
    test_is(text, "tokens_per_second_per_device/n", n);
    /* levels in turn: neighbours are no more alike than others, all steps count */
    test_is(text, "tokens_per_second_per_device/lo", TOKENS / x[n - k]);
    test_is(text, "tokens_per_second_per_device/hi", TOKENS / x[k - 1]);
    test_is(text, "tokens_per_second_per_device_overall/value", n * TOKENS / sum);
    test_is(text, "tokens_per_second_per_device_overall/n", n);
    test_is(text, "tokens_per_second_per_device_overall/effective_n", n);
    double lo = test_number_at(text, "tokens_per_second_per_device_overall/lo"),
           hi = test_number_at(text, "tokens_per_second_per_device_overall/hi");
    test_is(text, "tokens_per_second_per_device_overall/half_width_percent", 100 * (hi - lo) / 2 / (n * TOKENS / sum));
    assert_true(lo < n * TOKENS / sum && hi > n * TOKENS / sum);
    assert_int_equal(test_elements(text, "step_seconds"), STEPS);
    for (int step = 1; step <= STEPS; step++) {
        char path[40];
        snprintf(path, sizeof path, "step_seconds/%d", step - 1);
        test_is(text, path, step_seconds(step));
        all += step_seconds(step);
    }
    test_is(text, "phases/steps", STEPS - 1);
    test_is(text, "phases/step_seconds", (all - first_seconds) / (STEPS - 1));
    test_is(text, "phases/mean_seconds/logging", (all - first_seconds) / (STEPS - 1));
    test_is(text, "phases/mean_seconds/unaccounted", 0);
    test_is(text, "machine/seconds", sum);
    test_is(text, "machine/samples", 17);
    test_is(text, "machine/processors", 3);
    test_is(text, "machine/throttled_percent", 1 / 8.);
    /* from exec: 5 s, what was looked at before the first step, the step */
    double first = test_number_at(text, "first_step_seconds"); /* a look later than the end of the step */
    assert_true(first >= age_at_begin + first_seconds && first < age_at_begin + first_seconds + 0.2);
    test_is(text, "seconds", first - 0.001 + all - first_seconds + 2 * evaluation_seconds);
    free(text);
}

TEST(counts_and_losses)
{
    char  *text = test_folder_text("result.json");
    double matmul = MATMUL, n = PARAMETERS, t = SEQ, attention = 6. * LAYERS * HEADS * 2 * HEAD;
    double median = test_number_at(text, "step_time/median"), padded = 128 - VOCAB, bytes = 0, flops = 0;
    const struct {
        const char *name;
        double      per_token;
    } rows[] = {
        { "titan", 6 * (n - VOCAB * DIM) + attention * t },
        { "matmul", 6 * matmul + attention * t },
        { "megatron", 6 * (matmul + padded * DIM) + attention * t / 2 },
        { "6n", 6 * n },
        { "llm.c", 6 * n + 6 * LAYERS * DIM * t },
        { "nanogpt", 6 * n + 12 * LAYERS * DIM * t },
        { "exact-causal", 6 * matmul + attention * (t + 1) / 2 },
    };
    assert_int_equal(test_elements(text, "flops"), sizeof rows / sizeof rows[0]);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char at[60], quoted[40];
        snprintf(quoted, sizeof quoted, "\"%s\"", rows[i].name);
        snprintf(at, sizeof at, "flops/%zu/convention", i);
        test_is_text(text, at, quoted);
        snprintf(at, sizeof at, "flops/%zu/per_token", i);
        test_is(text, at, rows[i].per_token);
        snprintf(at, sizeof at, "flops/%zu/per_second_per_device", i);
        test_is(text, at, rows[i].per_token * TOKENS / median);
        snprintf(at, sizeof at, "flops/%zu/mfu_percent", i);
        test_is_text(text, at, "null"); /* nobody knows this processor's peak */
    }
    test_is_text(text, "peak_flops_per_second", "null");
    test_is(text, "parameters", PARAMETERS);
    test_is(text, "batch_tokens", TOKENS);
    test_is(text, "steps/planned", STEPS);
    test_is(text, "steps/first", 1);
    test_is(text, "steps/done", STEPS);
    test_is_text(text, "steps/stopped", "\"all steps done\"");
    test_is_text(text, "steps/interrupted", "false");
    test_is(text, "devices", 1);
    test_is(text, "threads", 1);
    test_is(text, "seed", 1);
    test_is(text, "loss/first", losses[1]);
    test_is(text, "loss/last", losses[STEPS]);
    test_is(text, "loss/validation", validation);
    test_is_text(text, "bits_per_byte", "null");
    test_is_text(text, "precision", "\"float32\"");
    test_is_text(text, "data_source", "\"synthetic\"");
    /* classes make the arena; weights, gradients and two moments are float32 */
    static const char *const classes[] = { "inputs",      "scalars",   "weights",   "constants",
                                           "activations", "gradients", "optimizer", "workspace" };
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        char at[60];
        snprintf(at, sizeof at, "memory/planned_by_class/%s", classes[i]);
        bytes += test_number_at(text, at);
    }
    test_is(text, "memory/planned_bytes", bytes);
    assert_in_range(test_number_at(text, "memory/planned_by_class/weights"), 4 * PARAMETERS, 4 * PARAMETERS + 64 * 20);
    assert_in_range(test_number_at(text, "memory/planned_by_class/optimizer"), 8 * PARAMETERS,
                    8 * PARAMETERS + 64 * 40);
    for (size_t i = 0; i < test_elements(text, "work"); i++) {
        char at[60];
        snprintf(at, sizeof at, "work/%zu/flops", i);
        flops += test_number_at(text, at);
    }
    /* products: three times the forward ones; attention: two forward, five backward, half of the square */
    double executed = TOKENS * (6 * matmul + 7. / 6 * attention * (t + 1) / 2);
    if (fabs(flops / executed - 1) > 1e-9) fail_msg("%.10g FLOPs a step, not %.10g", flops, executed);
    free(text);
}

TEST(the_records_belong_together)
{
    char *text = test_folder_text("result.json"), *metrics = test_folder_text("metrics.jsonl"), wanted[40];
    snprintf(wanted, sizeof wanted, "\"%016llx\"", (unsigned long long)XXH3_64bits(metrics, strlen(metrics)));
    test_is_text(text, "metrics_digest", wanted);
    const char *at = strstr(text, ",\n  \"digest\"");
    assert_non_null(at);
    snprintf(wanted, sizeof wanted, "\"%016llx\"", (unsigned long long)XXH3_64bits(text, (size_t)(at - text)));
    test_is_text(text, "digest", wanted);
    free(metrics);
    free(text);
}

TEST(the_table_of_runners)
{
    char *text = test_folder_text("perf.csv"), *result = test_folder_text("result.json"), *row = strchr(text, '\n') + 1,
         cell[40][200];
    int         n = 0;
    const char *header[40];
    row[-1] = '\0';
    for (char *at = strtok(text, ","); at; at = strtok(NULL, ",")) header[n++] = at;
    assert_int_equal(n, 29);
    for (int i = 0; i < n; i++) { /* RFC 4180 */
        char *to = cell[i];
        if (*row == '"')
            for (row++; *row != '"' || *++row == '"'; row++) *to++ = *row;
        else
            while (*row != ',' && *row != '\n') *to++ = *row++;
        *to = '\0';
        row++;
    }
    for (int i = 0; i < n; i++) {
        if (strcmp(header[i], "performance") == 0)
            assert_true(fabs(strtod(cell[i], NULL) / (TOKENS / test_number_at(result, "step_time/median")) - 1) < 1e-9);
        if (strcmp(header[i], "test_duration") == 0)
            assert_true(fabs(strtod(cell[i], NULL) - test_number_at(result, "seconds")) < 1e-9);
        if (strcmp(header[i], "metric") == 0) assert_string_equal(cell[i], "tokens_per_second");
        if (strcmp(header[i], "status") == 0) assert_string_equal(cell[i], "SUCCESS");
        if (strcmp(header[i], "n_gpus") == 0) assert_string_equal(cell[i], "0");
        if (strcmp(header[i], "nnodes") == 0) assert_string_equal(cell[i], "1");
        if (strcmp(header[i], "training_precision") == 0) assert_string_equal(cell[i], "float32");
        if (strcmp(header[i], "dataname") == 0) assert_string_equal(cell[i], "synthetic");
    }
    free(result);
    free(text);
}

/* ":::MLLOG {...}" */
static const char *line_with(const char *log, const char *key)
{
    static char line[4096];
    char        quoted[80];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    for (; *log; log = strchr(log, '\n') + 1) {
        const char *json = strchr(log, '{');
        size_t      n = strcspn(json, "\n");
        assert_true(strncmp(log, ":::MLLOG ", 9) == 0 && n < sizeof line);
        snprintf(line, sizeof line, "%.*s", (int)n, json);
        if (strncmp(test_value_at(line, "key"), quoted, strlen(quoted)) == 0) return line;
    }
    fail_msg("no %s", key);
    return NULL;
}

TEST(the_log_of_mlperf)
{
    char  *log = test_folder_text("log.txt");
    double all = first_seconds, begin = test_number_at(line_with(log, "block_start"), "time_ms"),
           samples = STEPS * ROWS * PASSES;
    for (int step = 2; step <= STEPS; step++) all += step_seconds(step);
    static const struct {
        const char *key;
        double      value;
    } rows[] = { { "global_batch_size", ROWS * PASSES },
                 { "gradient_accumulation_steps", PASSES },
                 { "max_sequence_length", SEQ },
                 { "max_steps", STEPS },
                 { "eval_samples", 5 * ROWS },
                 { "seed", 1 },
                 { "opt_base_learning_rate", 3e-3 },
                 { "opt_end_learning_rate", 0 },
                 { "opt_learning_rate_warmup_steps", 4 },
                 { "opt_learning_rate_training_steps", STEPS },
                 { "train_samples", STEPS * ROWS * PASSES } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        test_is(line_with(log, rows[i].key), "value", rows[i].value);
    test_is(line_with(log, "init_start"), "time_ms", wall_begin * 1e3 - age_at_begin * 1e3);
    test_is(line_with(log, "block_start"), "metadata/samples_count", 0);
    test_is(line_with(log, "block_stop"), "metadata/samples_count", samples);
    double took = test_number_at(line_with(log, "block_stop"), "time_ms") - begin;
    assert_true(took >= floor(all * 1e3) && took < all * 1e3 + 20); /* milliseconds */
    test_is(line_with(log, "tracked_stats"), "value/throughput", samples / (took * 1e-3));
    test_is(line_with(log, "eval_accuracy"), "value", validation);
    test_is(line_with(log, "eval_accuracy"), "metadata/samples_count", samples);
    assert_true(fabs(test_number_at(line_with(log, "eval_stop"), "time_ms") -
                     test_number_at(line_with(log, "eval_start"), "time_ms") - 2e3 * evaluation_seconds) < 1.5);
    test_is(line_with(log, "run_stop"), "metadata/samples_count", samples);
    free(log);
}

static int clean(void **state)
{
    (void)state;
    test_folder_remove();
    return 0;
}

TESTS_ALONE
TEST_FIXTURE(run_once, clean)
