/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/bench/bench.h"

#include "base/arena.h"
#include "base/clock.h"
#include "apps/bench/hardware.h"
#include "comm/comm.h"
#include "data/keys.h"
#include "model/keys.h"
#include "system/validity.h"
#include "train/settings/keys.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TM_WORKLOAD(name) extern const tm_workload tm_workload_##name;
#include "apps/bench/workloads.def"
#undef TM_WORKLOAD

static const tm_workload *const workloads[] = {
#define TM_WORKLOAD(name) &tm_workload_##name,
#include "apps/bench/workloads.def"
#undef TM_WORKLOAD
};
enum { WORKLOADS = sizeof workloads / sizeof workloads[0] };

const tm_workload *const *tm_workloads(size_t *n)
{
    *n = WORKLOADS;
    return workloads;
}

const tm_workload *tm_workload_find(const char *name)
{
    for (int i = 0; i < WORKLOADS; i++)
        if (tm_names_equal(workloads[i]->name, name)) return workloads[i];
    return NULL;
}

/* "|auto|cpu|cuda|hip|reference|null" */
#define TM_BACKEND(id) "|" #id
#define TM_TEST_BACKEND(id)
static const char devices[] = "|auto"
#include "device/backends.def"
    ;
#undef TM_BACKEND

/* clang-format off */
/* Options of every workload. */
static const tm_key options[] = {
    { .name = "device", .kind = TM_KEY_CHOICE, .fallback = "cpu", .choices = devices + 1, .numbered = true,
      .help = "what is measured (hip:1 is the second GPU)" },
    { .name = "isa", .kind = TM_KEY_TEXT,
      .help = "instruction set of our kernels; null: the best; a wrong name lists all" },
    { .name = "threads", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 4096,
      .help = "number of threads; 0: as many as cpuset and control group allow" },
    { .name = "budget", .kind = TM_KEY_F64, .fallback = "60", .lo = 0.01, .hi = 1e6,
      .help = "seconds for all rows together; rows that would not fit are skipped" },
    { .name = "warmup-ms", .kind = TM_KEY_F64, .fallback = "25", .lo = 0, .hi = 1e7,
      .help = "milliseconds of calls before the samples" },
    { .name = "rep-ms", .kind = TM_KEY_F64, .fallback = "100", .lo = 0, .hi = 1e7,
      .help = "milliseconds of samples (at least three are taken)" },
    { .name = "precision", .kind = TM_KEY_F64, .fallback = "1", .lo = 0, .hi = 100,
      .help = "percent: go on until half of the 95 % interval is below; 0: end with rep-ms" },
    { .name = "duration", .kind = TM_KEY_F64, .fallback = "0", .lo = 0, .hi = 1e6,
      .help = "seconds of samples per row, instead of rep-ms and precision; 0: use those" },
    { .name = "seed", .kind = TM_KEY_I64, .fallback = "1", .lo = 0, .hi = 9e15, .help = "seed of random inputs" },
    { .name = "output-file", .kind = TM_KEY_TEXT,
      .help = "write the table to this file: md, csv, tsv, json, jsonl, or these with .gz" },
    { .name = "write-hardware", .kind = TM_KEY_TEXT,
      .help = "gemm, stream, attention, collectives, ops: put what was measured into this hardware file" },
    { .name = "compare", .kind = TM_KEY_TEXT,
      .help = "also print published figures: reference (built in), or a CSV file" },
    { .name = "store", .kind = TM_KEY_TEXT, .quiet = true,
      .help = "database for the table; none: not stored; null: the user's store" },
    { .name = "json", .kind = TM_KEY_BOOL, .fallback = "false", .help = "print the table as JSON" },
};
/* clang-format on */

tm_config *tm_bench_configure(const tm_workload *workload, const char *help)
{
    tm_config *config = tm_config_create_options(help);
    tm_config_add_keys(config, options, sizeof options / sizeof options[0]);
    tm_config_add_keys(config, workload->options, workload->n_options);
    return config;
}

/* --- notes ----------------------------------------------------------------------------------- */

void tm_bench_note(tm_bench *bench, const char *format, ...)
{
    char    line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tm_table_note(bench->table, "%s", line);
}

void tm_bench_invalid(tm_bench *bench, const char *format, ...)
{
    char    line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tm_table_note(bench->table, "invalid: %s", line);
    (void)tm_fail(&bench->invalid, TM_NUMBERS, "%s", line);
}

double tm_bench_left(const tm_bench *bench)
{
    if (bench->stop && *bench->stop) return 0;
    double left = (double)(bench->end_ns - tm_now_ns()) * 1e-9;
    return left > 0 ? left : 0;
}

/* --- running --------------------------------------------------------------------------------- */

/* ", cpu, reference, null" */
#define TM_BACKEND(id) ", " #id
#define TM_TEST_BACKEND(id)
#define TM_GPU_BACKEND(id)
static const char hosts[] =
#include "device/backends.def"
    ;
#undef TM_BACKEND

/* Before a GPU is begun. */
static tm_status check_device(const tm_workload *workload, const char *name, tm_error *err)
{
    tm_device *device;
    tm_text    others = { 0 };
    TM_TRY(tm_device_open_planning(name, 1, &device, err));
    bool gpu = tm_device_describe(device)->kind == TM_DEVICE_GPU;
    tm_device_close(device);
    if (!gpu || workload->gpus) return TM_OK;
    for (int i = 0; i < WORKLOADS; i++)
        if (workloads[i]->gpus) tm_text_printf(&others, "%s%s", others.length ? ", " : "", workloads[i]->name);
    tm_status st = tm_fail(err, TM_USAGE, "bench %s runs on the devices %s, found --device %.40s; on GPUs run: %s",
                           workload->name, hosts + 2, name, others.data ? others.data : "none");
    tm_text_fini(&others);
    return st;
}

static tm_status open_device(const tm_workload *workload, tm_bench *bench, tm_error *err)
{
    const char *isa = tm_config_text(bench->options, "isa"), *name = tm_config_text(bench->options, "device");
    int         threads = (int)tm_config_i64(bench->options, "threads");
    TM_TRY(check_device(workload, name, err));
    TM_TRY(tm_device_open(name, threads, &bench->device, err));
    tm_status st = isa ? tm_device_limit_isa(bench->device, isa, err) : TM_OK;
    if (st != TM_OK) {
        tm_device_close(bench->device);
        return st;
    }
    bench->threads = tm_device_describe(bench->device)->threads;
    return TM_OK;
}

/* The whole time's verdict: rows of less than a second have none of their own. */
static void note_validity(tm_bench *bench, tm_validity *validity)
{
    tm_validity_report report;
    tm_validity_stop(validity, 0, &report);
    tm_validity_destroy(validity);
    if (report.n_facts > TM_MACHINE_GPU)
        tm_bench_note(bench,
                      "GPU: up to %.0f degrees Celsius; power held the clock down %.3g %% of the time, heat %.3g %%",
                      report.facts[TM_MACHINE_GPU_TEMPERATURE].value, report.facts[TM_MACHINE_GPU_CAPPED].value,
                      report.facts[TM_MACHINE_GPU_HEAT].value);
    const char *reason = *report.reason ? report.reason : "nothing disturbed it";
    if (report.verdict == TM_VERDICT_INVALID)
        tm_bench_invalid(bench, "the machine was disturbed: %s", reason);
    else
        tm_bench_note(bench, "machine: %s (%s)", tm_verdict_name(report.verdict), reason);
}

/* A table without a single number is no result. */
static void check_rows(tm_bench *bench)
{
    int    column = tm_table_find(bench->table, "skipped");
    size_t n = tm_table_n_rows(bench->table);
    if (column < 0 || n == 0) return;
    for (size_t row = 0; row < n; row++)
        if (tm_table_cell(bench->table, row, (size_t)column)->kind == TM_CELL_EMPTY) return;
    int         named = tm_table_find(bench->table, "case");
    const char *name = named >= 0 ? tm_table_cell(bench->table, 0, (size_t)named)->text : NULL;
    tm_bench_invalid(bench, "nothing was measured: %.100s%s%.300s", name ? name : "", name ? ": " : "",
                     tm_table_cell(bench->table, 0, (size_t)column)->text);
}

tm_status tm_bench_run(const tm_workload *workload, const tm_config *config, struct tm_comm *world,
                       const volatile sig_atomic_t *stop, tm_table *table, tm_error *err)
{
    enum { LEAST_SAMPLES = 3 };
    tm_bench bench = { .options = config, .table = table, .world = world, .stop = stop };
    bench.seed = (uint64_t)tm_config_i64(config, "seed");
    TM_TRY(open_device(workload, &bench, err));
    bench.end_ns = tm_now_ns() + (int64_t)(tm_config_f64(config, "budget") * 1e9);
    bench.timing = (tm_timing){
        .warmup_ms = tm_config_f64(config, "warmup-ms"),
        .rep_ms = tm_config_f64(config, "rep-ms"),
        .precision = tm_config_f64(config, "precision") / 100,
        .duration_s = tm_config_f64(config, "duration"),
        .min_samples = LEAST_SAMPLES,
        .end_ns = bench.end_ns,
        .threads = bench.threads,
        .stop = stop,
    };
    if (gethostname(bench.host, sizeof bench.host - 1) != 0) strcpy(bench.host, "unknown");
    bool known;
    (void)tm_last_level_bytes(&known);
    if (!known && !tm_bench_on_gpu(&bench))
        tm_bench_note(&bench, "size of the last-level cache unknown, 64 MiB assumed");
    const char *hardware = tm_config_text(config, "write-hardware");
    tm_status   st = hardware ? tm_bench_check_hardware(&bench, workload->name, hardware, err) : TM_OK;
    if (st != TM_OK) {
        tm_device_close(bench.device);
        return st;
    }
    tm_text         why = { 0 };
    tm_validity    *validity = tm_validity_start("");
    tm_gpu_sensors *sensors = tm_device_sensors(bench.device, &why);
    if (sensors) tm_validity_watch(validity, sensors);
    if (why.length) tm_bench_note(&bench, "GPU: power and heat are unknown: %s", why.data);
    tm_text_fini(&why);
    st = workload->run(&bench, err);
    if (st == TM_OK) check_rows(&bench);
    note_validity(&bench, validity);
    tm_gpu_sensors_close(sensors);
    if (st == TM_OK && bench.invalid.status != TM_OK) st = tm_fail(err, TM_NUMBERS, "%s", bench.invalid.text);
    if (st == TM_OK && hardware && (!world || tm_comm_rank(world) == 0))
        st = tm_bench_write_hardware(&bench, workload->name, hardware, err);
    tm_device_close(bench.device);
    return st;
}

/* --- models ---------------------------------------------------------------------------------- */

/* A file of keys, or a preset by name. */
static tm_status load_model(tm_config *config, const char *name, tm_error *err)
{
    const char *dot = strrchr(name, '.');
    bool        file = dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
    if (file && !tm_config_find_preset(config, name)) return tm_config_load_file(config, name, err);
    return tm_config_apply_preset(config, name, err);
}

/* The words of a line, overrides behind the model's name. */
static tm_status load_line(tm_config *config, const char *line, tm_error *err)
{
    enum { MOST_WORDS = 64 };
    char     *words[MOST_WORDS], *save = NULL;
    int       n = 0;
    tm_arena *arena = tm_arena_create();
    for (char *word = strtok_r(tm_arena_text(arena, line), " ", &save); word && n < MOST_WORDS;
         word = strtok_r(NULL, " ", &save))
        words[n++] = word;
    tm_status st = load_model(config, n ? words[0] : line, err);
    if (st == TM_OK && n > 1) st = tm_config_apply_arguments(config, n - 1, words + 1, err);
    if (st == TM_OK) st = tm_config_finish(config, err);
    tm_arena_destroy(arena);
    return st;
}

tm_status tm_bench_model_config(const char *name, tm_config **out, tm_error *err)
{
    tm_config *config = *out = tm_config_create();
    tm_train_configure(config);
    tm_data_configure(config);
    tm_model_configure(config);
    return load_line(config, name, err);
}

tm_status tm_bench_model(const char *name, tm_model_shape *shape, int64_t *seq, tm_error *err)
{
    tm_config *config;
    tm_status  st = tm_bench_model_config(name, &config, err);
    if (st == TM_OK) st = tm_model_shape_read(config, shape, err);
    if (st == TM_OK) *seq = tm_config_i64(config, "training.seq_len");
    tm_config_destroy(config);
    return st;
}
