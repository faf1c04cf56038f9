/* SPDX-License-Identifier: Apache-2.0 */
/* cli/check_measure.c - the short measurement of `trainmark check --perf`, in a process of its own: a device that hangs
 * cannot stop the report. */
#include "cli/check.h"

#include "base/clock.h"
#include "base/log.h"
#include "apps/bench/bench.h"
#include "cli/cli.h"
#include "stats/sampling.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The child tells one line per figure, "M <name> <value>"; at the end of each part "D" or "E <what went
 * wrong>". */

static void tell(FILE *to, const char *name, double value)
{
    fprintf(to, "M %s %.17g\n", name, value);
    fflush(to);
}

/* --- parts: matrix product, memory ------------------------------------------------------------ */

/* Of the time, for each of the two; the rest is for preparing them and for the training. */
#define PART 0.35

static tm_status run_workload(const char *name, char **arguments, int n, tm_table *table, tm_error *err)
{
    const tm_workload *workload = tm_workload_find(name);
    TM_ASSERT(workload);
    tm_config *config = tm_bench_configure(workload, "trainmark check --help");
    tm_status  st = tm_config_apply_arguments(config, n, arguments, err);
    if (st == TM_OK) st = tm_config_finish(config, err);
    if (st == TM_OK) st = tm_bench_run(workload, config, NULL, NULL, table, err);
    tm_config_destroy(config);
    return st;
}

static double cell_f64(const tm_table *table, size_t row, const char *column)
{
    int place = tm_table_find(table, column);
    TM_ASSERT(place >= 0);
    const tm_cell *cell = tm_table_cell(table, row, (size_t)place);
    return cell->kind == TM_CELL_F64 ? cell->f64 : (double)NAN;
}

/* Why: what the workload says of its first row, or its first note. */
static tm_status no_figure(const tm_table *table, const char *what, tm_error *err)
{
    int         place = tm_table_find(table, "skipped");
    const char *why = tm_table_n_notes(table) > 0 ? tm_table_note_at(table, 0) : "no time was left";
    if (place >= 0 && tm_table_n_rows(table) > 0 && tm_table_cell(table, 0, (size_t)place)->kind == TM_CELL_TEXT)
        why = tm_table_cell(table, 0, (size_t)place)->text;
    return tm_fail(err, TM_NUMBERS, "no figure for %s: %s", what, why);
}

tm_status check_gemm(double seconds, double *gflops, tm_error *err)
{
    char  budget[32];
    char *arguments[] = { "--M=1024",     "--N=1024",       "--K=1024",     "--dtype=float32",
                          "--cache=warm", "--warmup-ms=20", "--rep-ms=200", budget };
    snprintf(budget, sizeof budget, "--budget=%g", seconds);
    tm_table *table = tm_table_create("gemm");
    tm_status st = run_workload("gemm", arguments, sizeof arguments / sizeof arguments[0], table, err);
    double    best = 0;
    for (size_t row = 0; st == TM_OK && row < tm_table_n_rows(table); row++)
        best = fmax(best, cell_f64(table, row, "tflops"));
    if (st == TM_OK && !(best > 0)) st = no_figure(table, "gemm", err);
    *gflops = best * 1000;
    tm_table_destroy(table);
    return st;
}

static tm_status measure_gemm(FILE *to, double seconds, tm_error *err)
{
    double gflops;
    TM_TRY(check_gemm(PART * seconds, &gflops, err));
    tell(to, "gemm.gflops_per_sec", gflops);
    return TM_OK;
}

/* Three arrays of four times the last-level cache, but 32 to 128 MiB each: it must not take long. Ordinary and
 * streaming stores are both measured; the better one counts. */
static tm_status measure_stream(FILE *to, double seconds, tm_error *err)
{
    static const char *const kernels[] = { "copy", "mul", "add", "triad", "dot" };
    static const double      least = 32 << 20, most = 128 << 20;
    bool                     known;
    char                     elements[48], name[48], budget[32];
    snprintf(elements, sizeof elements, "--elements=%.0f",
             fmin(fmax(4 * (double)tm_last_level_bytes(&known), least), most) / sizeof(double));
    char *arguments[] = { elements, "--warmup-ms=0", "--rep-ms=40", budget };
    snprintf(budget, sizeof budget, "--budget=%g", PART * seconds);
    tm_table *table = tm_table_create("stream");
    tm_status st = run_workload("stream", arguments, sizeof arguments / sizeof arguments[0], table, err);
    for (size_t k = 0; st == TM_OK && k < sizeof kernels / sizeof kernels[0]; k++) {
        double best = 0;
        for (size_t row = 0; row < tm_table_n_rows(table); row++) {
            const char *kernel = tm_table_cell(table, row, (size_t)tm_table_find(table, "kernel"))->text;
            if (strcmp(kernel, kernels[k]) == 0) best = fmax(best, cell_f64(table, row, "median_mbps"));
        }
        if (!(best > 0)) st = no_figure(table, kernels[k], err);
        snprintf(name, sizeof name, "stream.%s_gb_per_sec", kernels[k]);
        if (st == TM_OK) tell(to, name, best * 1e-3);
    }
    tm_table_destroy(table);
    return st;
}

/* --- the whole: training ---------------------------------------------------------------------- */

enum { STEPS = 60 };

typedef struct {
    tm_sink base;
    FILE   *to;
    double  loss[STEPS];
    int64_t n, tokens, memory_limit;
} listener;

/* Slope of the least-squares line over the steps, nats per step. */
static double slope(const double *y, int64_t n)
{
    double x_mean = (double)(n - 1) / 2, y_mean = tm_stats_mean(y, n), up = 0, down = 0;
    for (int64_t i = 0; i < n; i++) {
        up += ((double)i - x_mean) * (y[i] - y_mean);
        down += ((double)i - x_mean) * ((double)i - x_mean);
    }
    return up / down;
}

static void tell_run(const listener *self, const tm_run_ended *end)
{
    const double *seconds = end->step_seconds;
    bool          finite = true;
    for (int64_t i = 0; i < self->n; i++) finite = finite && isfinite(self->loss[i]);
    tell(self->to, "training.tokens_per_sec_per_gpu", end->speed->median_rate);
    tell(self->to, "training.tokens_per_sec_total", end->speed->median_rate);
    tell(self->to, "training.step_time_mean_ms", 1e3 * tm_stats_mean(seconds, end->steps));
    tell(self->to, "training.step_time_p50_ms", 1e3 * tm_stats_percentile(seconds, end->steps, 0.5));
    tell(self->to, "training.step_time_p95_ms", 1e3 * tm_stats_percentile(seconds, end->steps, 0.95));
    tell(self->to, "training.mem_usage", (double)end->used_bytes / (double)self->memory_limit);
    tell(self->to, "training.loss_decreased", finite && slope(self->loss, self->n) < 0);
    tell(self->to, "training.final_loss", end->loss_last);
}

static void handle(tm_sink *sink, const tm_event *event)
{
    listener *self = (listener *)sink;
    if (event->kind == TM_EVENT_RUN_STARTED) self->memory_limit = event->run_started.memory_limit_bytes;
    if (event->kind == TM_EVENT_STEP_DONE && self->n < STEPS) self->loss[self->n++] = event->step_done.loss;
    if (event->kind == TM_EVENT_RUN_ENDED && self->n >= 2) tell_run(self, &event->run_ended);
}

/* 60 steps of a model that trains one in milliseconds, on the built-in language. */
static tm_status train(tm_config *config, FILE *to, tm_error *err)
{
    char          *arguments[] = { "--model.n_layers=2",
                                   "--model.dim=64",
                                   "--model.n_heads=2",
                                   "--model.n_kv_heads=1",
                                   "--model.ffn_dim=192",
                                   "--training.seq_len=64",
                                   "--training.steps=60",
                                   "--training.local_batch_size=8",
                                   "--validation.enable=false",
                                   "--training.stop_at_target=false",
                                   "--lr_scheduler.warmup_steps=5",
                                   "--optimizer.lr=1.5e-2" };
    tm_run_options options;
    tm_device     *device;
    tm_source     *source;
    TM_TRY(tm_config_apply_preset(config, "tiny-llama", err));
    TM_TRY(tm_config_apply_arguments(config, sizeof arguments / sizeof arguments[0], arguments, err));
    TM_TRY(tm_config_finish(config, err));
    TM_TRY(tm_run_options_read(config, &options, err));
    options.checkpoint_folder = NULL;
    TM_ASSERT(options.step.micro_batch == 8 && options.step.accumulation == 1 &&
              strcmp(options.step.precision->name, "float32") == 0); /* CHECK_CELL says so */
    TM_TRY(tm_device_open("cpu", options.threads, &device, err));
    tm_status st = tm_source_open(&options.source, &source, err);
    if (st == TM_OK) {
        listener     self = { .base = { .handle = handle }, .to = to };
        tm_event_bus bus = { .sinks = (tm_sink *[]){ &self.base }, .count = 1 };
        st = tm_run(&options, device, source, &bus, &tm_cli_stop, err);
        if (st == TM_NUMBERS && self.n == STEPS) st = TM_OK; /* too few steps for a verdict; the figures decide */
        tm_source_close(source);
    }
    tm_device_close(device);
    return st;
}

static tm_status measure_training(FILE *to, double seconds, tm_error *err)
{
    (void)seconds; /* 60 steps are 60 steps */
    tm_config *config = tm_cli_config();
    tm_status  st = train(config, to, err);
    tm_config_destroy(config);
    return st;
}

/* --- the child -------------------------------------------------------------------------------- */

static _Noreturn void child_main(int fd, double seconds)
{
    static tm_status (*const parts[TM_PERF_PARTS])(FILE * to, double seconds, tm_error *err) = {
        [TM_PERF_TRAINING] = measure_training, [TM_PERF_GEMM] = measure_gemm, [TM_PERF_STREAM] = measure_stream
    };
    FILE *to = fdopen(fd, "w");
    if (!to) _exit(1);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    tm_log_set_level(TM_LOG_ERROR);
    for (int i = 0; i < TM_PERF_PARTS; i++) {
        tm_error err = { 0 };
        if (parts[i](to, seconds, &err) == TM_OK)
            fputs("D\n", to);
        else
            fprintf(to, "E %s\n", err.text);
        fflush(to);
    }
    _exit(fclose(to) == 0 ? 0 : 1);
}

/* Everything that the child says until it ends or the time is over; false if it is over. */
static bool listen_to(int fd, double seconds, tm_text *out)
{
    int64_t until = tm_now_ns() + (int64_t)(seconds * 1e9);
    for (;;) {
        char          part[4096];
        int64_t       left_ms = (until - tm_now_ns()) / 1000000;
        struct pollfd row = { .fd = fd, .events = POLLIN };
        if (left_ms <= 0 || tm_cli_stop) return false;
        if (poll(&row, 1, left_ms < 1000 ? (int)left_ms : 1000) <= 0) continue;
        ssize_t n = read(fd, part, sizeof part);
        if (n == 0) return true;
        if (n > 0) tm_text_add_n(out, part, (size_t)n);
    }
}

/* Returns how many parts have ended, well or not. */
static int parse(char *text, tm_arena *arena, check_measurement *out)
{
    int parts = 0;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (!next) break; /* cut short */
        *next++ = '\0';
        char *value = strrchr(line, ' ');
        if (line[0] == 'M' && value > line + 1 && out->n < CHECK_METRICS) {
            *value = '\0';
            out->metrics[out->n++] = (tm_metric){ tm_arena_text(arena, line + 2), strtod(value + 1, NULL) };
        }
        if (line[0] == 'E' && parts < TM_PERF_PARTS) out->problem[parts] = tm_arena_text(arena, line + 2);
        parts += line[0] == 'D' || line[0] == 'E';
    }
    return parts;
}

const char *check_measurement_problem(const check_measurement *measurement)
{
    for (int i = 0; i < TM_PERF_PARTS; i++)
        if (measurement->problem[i]) return measurement->problem[i];
    return NULL;
}

/* Lets the child run; why it did not reach its end, or NULL. */
static const char *attend(double seconds, tm_arena *arena, tm_text *text)
{
    int ends[2], status = 0;
    fflush(NULL);
    pid_t child = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    if (child < 0) return tm_arena_format(arena, "cannot start a process: %s", strerror(errno));
    if (child == 0) {
        close(ends[0]);
        child_main(ends[1], seconds);
    }
    close(ends[1]);
    bool ended = listen_to(ends[0], seconds, text);
    if (!ended) kill(child, SIGKILL);
    close(ends[0]);
    if (waitpid(child, &status, ended ? 0 : WNOHANG) < 0) status = 0;
    if (!ended && tm_cli_stop) return "stopped by a signal";
    if (!ended) return tm_arena_format(arena, "killed after %g s (--per-gpu-timeout-sec)", seconds);
    return WIFSIGNALED(status) ? tm_arena_format(arena, "the measurement ended with signal %d", WTERMSIG(status))
                               : "the measurement ended early";
}

void check_measure(double seconds, tm_arena *arena, check_measurement *out)
{
    tm_text text = { 0 };
    *out = (check_measurement){ 0 };
    const char *cause = attend(seconds, arena, &text);
    int         parts = text.data ? parse(text.data, arena, out) : 0;
    for (int i = parts; i < TM_PERF_PARTS; i++) out->problem[i] = cause;
    tm_text_fini(&text);
}
