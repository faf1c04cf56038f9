/* SPDX-License-Identifier: Apache-2.0 */
/* cli/check.c - `trainmark check`: is this machine fit to be measured? */
#include "cli/check.h"

#include "base/clock.h"
#include "base/plain.h"
#include "base/root.h"
#include "base/terminal.h"
#include "cli/cli.h"
#include "record/table.h"
#include "apps/check/report.h"
#include "apps/check/tune.h"
#include "system/thresholds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const tm_key keys[] = {
    { .name = "list", .kind = TM_KEY_BOOL, .fallback = "false", .help = "list the checks and stop" },
    { .name = "only",
      .kind = TM_KEY_TEXT,
      .synonyms = "tests",
      .help = "checks or groups, comma-separated; with '-' in front: all but these" },
    { .name = "sysroot",
      .kind = TM_KEY_TEXT,
      .fallback = "",
      .help = "a directory with copies of /proc, /sys and /etc instead of this system" },
    { .name = "json", .kind = TM_KEY_BOOL, .fallback = "false", .help = "print the report as JSON" },
    { .name = "report-file-name",
      .kind = TM_KEY_TEXT,
      .help = "write the report to this file: md, csv, tsv, json, jsonl, or these with .gz" },
    { .name = "dump-path",
      .kind = TM_KEY_TEXT,
      .help = "directory for smoke/HOST.json and the lists of nodes; output/preflight is usual" },
    { .name = "aggregate",
      .kind = TM_KEY_TEXT,
      .help = "aggregate the reports of the nodes in this directory and stop" },
    { .name = "expected-nodes",
      .kind = TM_KEY_TEXT,
      .help = "with --aggregate: file of host names; a node without a report fails" },
    { .name = "skip-dmesg", .kind = TM_KEY_BOOL, .fallback = "false", .help = "do not read the kernel log" },
    { .name = "dmesg-minutes",
      .kind = TM_KEY_F64,
      .fallback = "15",
      .lo = 0,
      .hi = 1e7,
      .help = "minutes of the kernel log that are read" },
    { .name = "ulimit-l-min-gb",
      .kind = TM_KEY_F64,
      .fallback = "32",
      .lo = 0,
      .hi = 1e6,
      .help = "locked memory that must be allowed, GiB" },
    { .name = "shm-min-gb",
      .kind = TM_KEY_F64,
      .fallback = "8",
      .lo = 0,
      .hi = 1e6,
      .help = "least size of /dev/shm, GiB" },
    { .name = "expected-gpus",
      .kind = TM_KEY_I64,
      .lo = 0,
      .hi = 4096,
      .help = "number of GPUs expected; null: 8 if one is an AMD Instinct" },
    { .name = "expected-rdma-nics", .kind = TM_KEY_I64, .lo = 0, .hi = 4096, .help = "number of RDMA cards expected" },
    { .name = "gpu-activity-warn-pct",
      .kind = TM_KEY_F64,
      .fallback = "20",
      .lo = 0,
      .hi = 100,
      .help = "activity of a GPU up to which there is no warning, percent" },
    { .name = "hbm-busy-threshold-gib",
      .kind = TM_KEY_F64,
      .fallback = "2",
      .lo = 0,
      .hi = 1e6,
      .help = "used memory of a GPU from which the check fails, GiB" },
    { .name = "allow-foreign-procs",
      .kind = TM_KEY_BOOL,
      .fallback = "false",
      .help = "accept processes of others on the GPUs" },
    { .name = "allowed-procs", .kind = TM_KEY_TEXT, .help = "programs that may use the GPUs, comma-separated" },
    { .name = "perf",
      .kind = TM_KEY_BOOL,
      .fallback = "false",
      .synonyms = "tier2-perf",
      .help = "also measure: matrix product, memory, training of a tiny model" },
    { .name = "per-gpu-timeout-sec",
      .kind = TM_KEY_F64,
      .fallback = "15",
      .lo = 0.01,
      .hi = 3600,
      .help = "seconds after which a measurement is killed, per device" },
    { .name = "thresholds", .kind = TM_KEY_TEXT, .help = "with --perf: file of limits for the figures" },
    { .name = "write-thresholds",
      .kind = TM_KEY_TEXT,
      .help = "with --perf: write such a file from the figures (x 0.90 for min, x 1.10 for max)" },
    { .name = "gemm-tflops-min",
      .kind = TM_KEY_F64,
      .lo = 0,
      .hi = 1e9,
      .help = "with --perf: TFLOP/s that the matrix product must reach" },
    { .name = "hbm-gbs-min",
      .kind = TM_KEY_F64,
      .lo = 0,
      .hi = 1e9,
      .help = "with --perf: GB/s that a copy in memory must reach" },
    { .name = "all-ranks",
      .kind = TM_KEY_BOOL,
      .fallback = "false",
      .help = "check, measure and compare every host of the ranks" },
    { .name = "ranks",
      .kind = TM_KEY_I64,
      .fallback = "0",
      .lo = 0,
      .hi = 256,
      .help = "with --all-ranks: processes, started on this machine under MPI" },
    { .name = "mpi", .kind = TM_KEY_CHOICE, .choices = "openmpi|mpich", .help = "MPI that --ranks uses; null: any" },
    { .name = "deadline",
      .kind = TM_KEY_F64,
      .fallback = "0",
      .lo = 0,
      .hi = 1e6,
      .help = "with --all-ranks: seconds to wait for a rank (0 means 300)" },
    { .name = "measure-sec",
      .kind = TM_KEY_F64,
      .fallback = "5",
      .lo = 0,
      .hi = 600,
      .help = "with --all-ranks: seconds for each measurement; 0: none" },
    { .name = "disk-path",
      .kind = TM_KEY_TEXT,
      .fallback = ".",
      .help = "with --all-ranks: directory of the disk that is measured; none: no disk" },
    { .name = "outside-pct",
      .kind = TM_KEY_F64,
      .fallback = "10",
      .lo = 0,
      .hi = 100,
      .help = "with --all-ranks: percent below the other hosts' median that fail" },
    { .name = "clock-limit-ms",
      .kind = TM_KEY_F64,
      .fallback = "1000",
      .lo = 0,
      .hi = 1e9,
      .help = "with --all-ranks: milliseconds that clocks may be apart" },
    { .name = "tune-host",
      .kind = TM_KEY_BOOL,
      .fallback = "false",
      .help = "as root: apply settings for record runs during the checks or COMMAND" },
    { .name = "restore-host",
      .kind = TM_KEY_BOOL,
      .fallback = "false",
      .help = "as root: restore the settings that a killed --tune-host left, and stop" },
};

/* --- printing -------------------------------------------------------------------------------- */

static tm_table *list_table(void)
{
    static const tm_column columns[] = { { "id", 0 },     { "group", 0 },    { "outcomes", 0 },
                                         { "source", 0 }, { "expected", 0 }, { "remedy", 0 } };
    size_t                 n;
    char                   outcomes[TM_CHECK_OUTCOMES_BYTES];
    const tm_check_row    *rows = tm_check_rows(&n);
    tm_table              *table = tm_table_create("checks");
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < n; i++) {
        tm_table_row(table);
        tm_table_text(table, "id", rows[i].id);
        tm_table_text(table, "group", tm_check_group_name(rows[i].group));
        tm_table_text(table, "outcomes", tm_check_outcomes(rows[i].outcomes, outcomes));
        tm_table_text(table, "source", rows[i].source);
        tm_table_text(table, "expected", rows[i].expected);
        if (*rows[i].remedy) tm_table_text(table, "remedy", rows[i].remedy);
    }
    return table;
}

static void add_line(const char *name, const char *words, tm_text *out)
{
    enum { WIDTH = 120, INDENT = 14 };
    if (!*words) return;
    tm_text_printf(out, "    %-9s ", name);
    tm_text_fill(out, words, INDENT, INDENT, WIDTH);
}

/* For people: the table has lines of 400 characters. */
static void print_checks(tm_text *out)
{
    size_t              n;
    char                outcomes[TM_CHECK_OUTCOMES_BYTES];
    const tm_check_row *rows = tm_check_rows(&n);
    for (size_t i = 0; i < n; i++) {
        tm_text_printf(out, "%s%s (%s): %s\n", i ? "\n" : "", rows[i].id, tm_check_group_name(rows[i].group),
                       tm_check_outcomes(rows[i].outcomes, outcomes));
        add_line("source", rows[i].source, out);
        add_line("expected", rows[i].expected, out);
        add_line("remedy", rows[i].remedy, out);
    }
}

static tm_status print_list(const tm_config *config, tm_error *err)
{
    const char *file = tm_config_text(config, "report-file-name");
    tm_text     text = { 0 };
    tm_table   *table = list_table();
    if (tm_config_bool(config, "json"))
        tm_table_print(table, TM_TABLE_JSON, &text);
    else
        print_checks(&text);
    tm_status st = tm_cli_print(&text, err);
    if (st == TM_OK && file) st = tm_table_write(table, file, err);
    tm_text_fini(&text);
    tm_table_destroy(table);
    return st;
}

/* Notes of the tuning are no results: standard error. */
static void print_notes(tm_text *notes)
{
    if (notes->length) tm_plain_put(stderr, notes->data, TM_PLAIN_LINES);
    tm_text_fini(notes);
}

static tm_status print_report(const tm_config *config, const tm_checks *checks, bool verbose, tm_error *err)
{
    tm_text       text = { 0 };
    bool          json = tm_config_bool(config, "json");
    tm_check_view view = { .width = tm_terminal_width(STDOUT_FILENO, 0),
                           .colour = tm_terminal_colour(STDOUT_FILENO),
                           .verbose = verbose };
    if (json)
        tm_checks_print_json(checks, &text);
    else
        tm_checks_print(checks, &view, &text);
    tm_status st = !json && view.colour ? tm_cli_print_coloured(&text, err) : tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

static tm_status give_out(const tm_config *config, const tm_checks *checks, bool verbose, tm_error *err)
{
    const char *file = tm_config_text(config, "report-file-name"), *folder = tm_config_text(config, "dump-path");
    tm_status   st = print_report(config, checks, verbose, err);
    if (st == TM_OK && file) {
        tm_table *table = tm_checks_table(checks);
        st = tm_table_write(table, file, err);
        tm_table_destroy(table);
    }
    if (st == TM_OK && folder) st = tm_checks_dump(checks, folder, err);
    return st;
}

/* --- several nodes --------------------------------------------------------------------------- */

static tm_status aggregate(const char *folder, const char *expected, tm_error *err)
{
    size_t  passing, failing;
    tm_text text = { 0 };
    TM_TRY(tm_checks_aggregate(folder, expected, &passing, &failing, err));
    tm_text_printf(&text, "%zu nodes pass, %zu fail: %s/smoke_report.md\n", passing, failing, folder);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    if (st == TM_OK && failing > 0)
        st = tm_fail(err, TM_NEGATIVE, "%zu of %zu nodes fail; '%s/failing_nodes.txt' names them", failing,
                     passing + failing, folder);
    return st;
}

/* The lists of a single machine; of several, --aggregate makes them when all have reported. */
static tm_status list_nodes(const char *folder, tm_error *err)
{
    static const char *const launchers[] = { "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK" };
    size_t                   passing, failing;
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++)
        if (getenv(launchers[i])) return TM_OK;
    return tm_checks_aggregate(folder, NULL, &passing, &failing, err);
}

/* --- checking -------------------------------------------------------------------------------- */

/* Figures, and the gates that they are held against. */
typedef struct {
    check_measurement measured;
    tm_thresholds    *thresholds;
    tm_gate           gates[CHECK_METRICS + 2];
    tm_check_perf     perf;
    bool              verbose; /* -v: of the report */
} performance;

static void add_minimum(const tm_config *config, const char *key, double scale, const char *metric, performance *p)
{
    if (!tm_config_text(config, key)) return;
    tm_gate *gate = &p->gates[p->perf.n_gates];
    *gate = (tm_gate){
        .metric = metric, .kind = TM_GATE_MIN, .limit = tm_config_f64(config, key) * scale, .measured = (double)NAN
    };
    for (size_t i = 0; i < p->measured.n; i++)
        if (strcmp(p->measured.metrics[i].name, metric) == 0) gate->measured = p->measured.metrics[i].value;
    gate->passed = gate->measured >= gate->limit;
    p->perf.n_gates++;
}

static tm_status judge(const tm_config *config, performance *p, tm_error *err)
{
    const tm_gate *gates;
    size_t         n = 0;
    if (p->thresholds && !check_measurement_problem(&p->measured)) {
        TM_TRY(tm_thresholds_judge(p->thresholds, CHECK_CELL, p->measured.metrics, p->measured.n, &gates, &n, err));
        TM_ASSERT(n <= CHECK_METRICS); /* there are fewer metrics, and none stands twice */
        memcpy(p->gates, gates, n * sizeof *gates);
    }
    p->perf = (tm_check_perf){ .metrics = p->measured.metrics, .n = p->measured.n, .gates = p->gates, .n_gates = n };
    memcpy(p->perf.problem, p->measured.problem, sizeof p->perf.problem);
    add_minimum(config, "gemm-tflops-min", 1000, "gemm.gflops_per_sec", p);
    add_minimum(config, "hbm-gbs-min", 1, "stream.copy_gb_per_sec", p);
    return TM_OK;
}

static tm_status write_thresholds(const char *path, const performance *p, tm_error *err)
{
    const char *problem = check_measurement_problem(&p->measured);
    if (!path) return TM_OK;
    if (problem) return tm_fail(err, TM_NEGATIVE, "no thresholds are written to '%s': %s", path, problem);
    return tm_thresholds_write(path, CHECK_CELL, p->measured.metrics, p->measured.n, err);
}

static tm_check_options read_options(const tm_config *config)
{
    static const double hang_seconds = 10; /* for reading files; with 15 s of measuring it stays below 30 s */
    tm_check_options    o = tm_check_options_default();
    double              timeout = tm_config_f64(config, "per-gpu-timeout-sec");
    o.sysroot = tm_config_text(config, "sysroot");
    o.only = tm_config_text(config, "only");
    o.isolate = true;
    o.timeout_seconds = fmin(timeout, hang_seconds);
    o.skip_klog = tm_config_bool(config, "skip-dmesg");
    o.klog_minutes = tm_config_f64(config, "dmesg-minutes");
    o.memlock_min_gib = tm_config_f64(config, "ulimit-l-min-gb");
    o.shm_min_gib = tm_config_f64(config, "shm-min-gb");
    if (tm_config_text(config, "expected-gpus")) o.expected_gpus = (int)tm_config_i64(config, "expected-gpus");
    if (tm_config_text(config, "expected-rdma-nics"))
        o.expected_nics = (int)tm_config_i64(config, "expected-rdma-nics");
    o.gpu_activity_warn_pct = tm_config_f64(config, "gpu-activity-warn-pct");
    o.hbm_busy_threshold_gib = tm_config_f64(config, "hbm-busy-threshold-gib");
    o.allow_foreign = tm_config_bool(config, "allow-foreign-procs");
    o.allowed_procs = tm_config_text(config, "allowed-procs");
    return o;
}

static tm_status verdict(const tm_checks *checks, tm_error *err)
{
    tm_text failed = { 0 };
    if (!tm_checks_failed(checks)) return TM_OK;
    for (size_t i = 0; i < checks->n; i++)
        if (checks->results[i].status == TM_CHECK_FAIL)
            tm_text_printf(&failed, "%s%s", failed.length ? ", " : "", checks->results[i].id);
    tm_status st = tm_fail(err, TM_NEGATIVE, "%zu of %zu checks failed: %s", checks->counts[TM_CHECK_FAIL], checks->n,
                           failed.data);
    tm_text_fini(&failed);
    return st;
}

/* Measures (unless told not to), checks, prints. */
static tm_status check_once(const tm_config *config, performance *p, tm_arena *arena, tm_error *err)
{
    bool             perf = tm_config_bool(config, "perf");
    const char      *sysroot = tm_config_text(config, "sysroot"), *folder = tm_config_text(config, "dump-path");
    tm_check_options options = read_options(config);
    tm_checks        checks = { 0 };
    int64_t          begin = tm_now_ns();
    if (perf) {
        check_measure(tm_config_f64(config, "per-gpu-timeout-sec"), arena, &p->measured);
        TM_TRY(judge(config, p, err));
    }
    tm_check_host host = tm_check_host_read(sysroot, !options.skip_klog, arena);
    if (perf) host.perf = &p->perf;
    options.host = &host;
    tm_status st = tm_checks_run(&options, &checks, err);
    checks.seconds = (double)(tm_now_ns() - begin) * 1e-9; /* measuring included */
    if (st == TM_OK) st = give_out(config, &checks, p->verbose, err);
    if (st == TM_OK && folder) st = list_nodes(folder, err);
    if (st == TM_OK && perf) st = write_thresholds(tm_config_text(config, "write-thresholds"), p, err);
    if (st == TM_OK && tm_cli_stop) st = tm_fail(err, TM_INTERRUPTED, "stopped by a signal");
    if (st == TM_OK) st = verdict(&checks, err);
    tm_checks_fini(&checks);
    return st;
}

/* Of one host among several: no printing, no measuring. */
static tm_status check_this_host(const tm_config *config, tm_arena *arena, tm_checks *checks, tm_error *err)
{
    tm_check_options options = read_options(config);
    tm_check_host    host = tm_check_host_read(options.sysroot, !options.skip_klog, arena);
    const char      *folder = tm_config_text(config, "dump-path");
    options.host = &host;
    TM_TRY(tm_checks_run(&options, checks, err));
    return folder ? tm_checks_dump(checks, folder, err) : TM_OK;
}

static tm_status check_tuned(const tm_config *config, performance *p, tm_arena *arena, tm_error *err)
{
    tm_tuning      *tuning;
    tm_text         notes = { 0 };
    tm_tune_options options = { .sysroot = tm_config_text(config, "sysroot") };
    tm_status       st = tm_tune_begin(&options, &tuning, &notes, err);
    print_notes(&notes);
    if (st != TM_OK) return st;
    st = check_once(config, p, arena, err);
    tm_error own = { 0 };
    if (tm_tune_end(tuning, &notes, &own) != TM_OK) {
        *err = own; /* worse than any verdict */
        st = own.status;
    }
    print_notes(&notes);
    return st;
}

/* Before anything is measured: a file that cannot be used should not cost 15 s. */
static tm_status read_limits(const char *path, tm_thresholds **out, tm_error *err)
{
    TM_TRY(tm_thresholds_read(path, out, err));
    return tm_thresholds_has(*out, CHECK_CELL, err);
}

static tm_status check_host(const tm_config *config, bool verbose, tm_error *err)
{
    performance p = { .verbose = verbose };
    tm_arena   *arena = tm_arena_create();
    const char *limits = tm_config_text(config, "thresholds");
    tm_status   st = limits ? read_limits(limits, &p.thresholds, err) : TM_OK;
    if (st == TM_OK)
        st = tm_config_bool(config, "tune-host") ? check_tuned(config, &p, arena, err)
                                                 : check_once(config, &p, arena, err);
    tm_thresholds_destroy(p.thresholds);
    tm_arena_destroy(arena);
    return st;
}

/* --- the command ----------------------------------------------------------------------------- */

static bool is_asked(const tm_config *config, const char *key)
{
    const char *value = tm_config_text(config, key);
    return value && strcmp(value, "false") != 0;
}

/* One of these is all that is done; what else was asked for would be left out without a word. */
static tm_status check_one_job(const tm_config *config, tm_error *err)
{
    static const char *const jobs[] = { "all-ranks", "list", "aggregate", "restore-host" };
    static const char *const others[] = { "perf", "aggregate", "tune-host", "restore-host", "list" };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
        for (size_t k = 0; k < sizeof others / sizeof others[0] && is_asked(config, jobs[i]); k++)
            if (is_asked(config, others[k]) && strcmp(jobs[i], others[k]) != 0)
                return tm_fail(err, TM_USAGE, "--%s cannot be given with --%s; leave one out", jobs[i], others[k]);
    return TM_OK;
}

/* Options that mean nothing without another one are refused: they would look as if they had done something. */
static tm_status check_options(const tm_config *config, bool has_command, tm_error *err)
{
    static const char *const needs[][2] = { { "thresholds", "perf" },
                                            { "write-thresholds", "perf" },
                                            { "gemm-tflops-min", "perf" },
                                            { "hbm-gbs-min", "perf" },
                                            { "expected-nodes", "aggregate" } };
    static const char *const several[] = { "ranks",     "mpi",         "deadline",      "measure-sec",
                                           "disk-path", "outside-pct", "clock-limit-ms" };
    tm_table_format          format;
    TM_TRY(check_one_job(config, err));
    for (size_t i = 0; i < sizeof several / sizeof several[0] && !tm_config_bool(config, "all-ranks"); i++)
        if (tm_config_is_changed(config, several[i]))
            return tm_fail(err, TM_USAGE, "--%s needs --all-ranks", several[i]);
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
        if (tm_config_text(config, needs[i][0]) && !is_asked(config, needs[i][1]))
            return tm_fail(err, TM_USAGE, "--%s needs --%s", needs[i][0], needs[i][1]);
    }
    if (has_command && !tm_config_bool(config, "tune-host"))
        return tm_fail(err, TM_USAGE, "a command is only run with --tune-host: trainmark check --tune-host -- COMMAND");
    const char *sysroot = tm_config_text(config, "sysroot"), *file = tm_config_text(config, "report-file-name");
    if (*sysroot && tm_config_bool(config, "perf"))
        return tm_fail(err, TM_USAGE,
                       "--perf measures this machine, not the one below --sysroot; leave one of them out");
    return file ? tm_table_format_of(file, &format, err) : TM_OK;
}

static tm_status restore(const char *sysroot, tm_error *err)
{
    tm_text   notes = { 0 };
    tm_status st = tm_tune_restore(sysroot, &notes, err);
    print_notes(&notes);
    return st;
}

static tm_status run(tm_config *config, const tm_cli_line *line, tm_error *err)
{
    int    words = 0, argc = line->n_words;
    char **argv = line->words;
    while (words < argc && strcmp(argv[words], "--") != 0) words++;
    char **command = words + 1 < argc ? argv + words + 1 : NULL;
    if (words < argc && !command) return tm_fail(err, TM_USAGE, "no command after '--'");
    TM_TRY(tm_config_apply_arguments(config, words, argv, err));
    TM_TRY(tm_config_finish(config, err));
    TM_TRY(check_options(config, command != NULL, err));
    const char *folder = tm_config_text(config, "aggregate"), *sysroot = tm_config_text(config, "sysroot");
    if (tm_config_bool(config, "list")) return print_list(config, err);
    if (folder) return aggregate(folder, tm_config_text(config, "expected-nodes"), err);
    if (tm_config_bool(config, "all-ranks"))
        return check_hosts(&(check_hosts_options){ config, line, check_this_host }, err);
    if (*sysroot && !tm_root_exists(sysroot, "/"))
        return tm_fail(err, TM_INVALID,
                       "--sysroot '%s' is not a directory that can be read; wanted: a copy of /proc, /sys and /etc",
                       sysroot);
    if (tm_config_bool(config, "restore-host")) return restore(sysroot, err);
    return command ? check_run_tuned(sysroot, command, err) : check_host(config, line->verbose, err);
}

static tm_config *keys_of(const tm_cli_command *command)
{
    (void)command;
    tm_config *config = tm_config_create_options("trainmark check --help");
    tm_config_add_keys(config, keys, sizeof keys / sizeof keys[0]);
    return config;
}

static tm_status check_command(tm_cli_line *line, tm_error *err)
{
    tm_cli_heed_stop();
    tm_config *config = keys_of(line->command);
    tm_status  st = tm_cli_take_common(line, err);
    if (st == TM_OK) st = run(config, line, err);
    tm_config_destroy(config);
    return st;
}

const tm_cli_command tm_command_check = {
    .name = "check",
    .summary = "check what makes this machine slow or its measurements noisy",
    .words = "[-- COMMAND ...]",
    .about =
        "Checks what makes this machine slow or its measurements noisy: kernel settings, processors, memory, bus, "
        "kernel log, GPUs, network. Prints PASS, WARN, FAIL, INFO or SKIP, what was found and expected, where, and "
        "the remedy. The checks: docs/check.md.\n\n"
        "  trainmark check --tune-host -- COMMAND ...    runs COMMAND with the host tuned, then restores it\n"
        "  mpirun -N 1 trainmark check --all-ranks       checks, measures and compares all hosts\n\n"
        "Exit code 5 if a check fails, or a host is not like the others. Nothing is changed without --tune-host.",
    .keys = keys_of,
    .reads = true,
    .run = check_command,
};
