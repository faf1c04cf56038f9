/* SPDX-License-Identifier: Apache-2.0 */
/* cli/run.c - `trainmark run`: configuration in, sinks connected, the run, the exit code. */
#include "train/run.h"

#include "base/clock.h"
#include "bench/bench.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"
#include "mlperf/keys.h"
#include "record/record.h"
#include "train/turn.h"
#include "system/environment.h"
#include "base/secret.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "usage: trainmark run [MODEL | FILE.yaml] [--key value ...]\n\n"
    "Without MODEL: trains the built-in tiny model until it has learnt the built-in language (the main job).\n"
    "MODEL is a built-in name (`trainmark models`); FILE.yaml an experiment file. Any key (`trainmark keys`) can be "
    "set.\n\n"
    "  --data.path DIR    train on real text, any file or folder\n"
    "  --out DIR          run directory (default output/MODEL, or the experiment's own)\n"
    "  --perf-csv F       append the result to F as well\n"
    "  --compare F.csv    print the published figures of F beside the result; `--compare reference`: the built-in "
    "ones\n"
    "  --dry-run          print the merged configuration, the memory plan and what is not built yet, then stop\n"
    "  --device NAME      cpu (default), reference (float64, slow), null (computes nothing)\n"
    "  --isa NAME         base, avx2 or avx512 kernels\n"
    "  --allow-unknown-keys\n";

typedef struct job job;

/* Writes what was run, and on what, when the run has really begun: a run that cannot begin leaves no trace. */
typedef struct {
    tm_sink  base;
    job     *of;
    bool     started;
    tm_error error;
} settings_sink;

/* Everything of one `run` that has to be given back. */
struct job {
    tm_cli_options  cli;
    tm_config      *config;
    tm_run_options  options;
    tm_device      *device;
    tm_source      *source;
    tm_environment *environment;
    tm_checks       checks; /* of the host, some milliseconds' worth */
    tm_event_bus    bus;
    tm_sink        *opened;
    tm_text         folder, path[7], command, hash;
    size_t          n_paths;
    settings_sink   settings;
    FILE           *log; /* log.file, or NULL */
    int             turn_fd; /* 0: takes no turns */
};

static const char *path_in(job *j, const char *name)
{
    TM_ASSERT(j->n_paths < sizeof j->path / sizeof j->path[0]);
    tm_text *path = &j->path[j->n_paths++];
    if (name[0] == '/')
        tm_text_add(path, name);
    else
        tm_text_printf(path, "%s/%s", j->folder.data, name);
    return path->data;
}

/* --out, else the experiment's workspace/group/user/name, else output/MODEL. */
static void name_folder(job *j)
{
    const char *workspace = tm_config_text(j->config, "workspace"), *experiment = tm_config_text(j->config, "exp_name");
    const char *group = tm_config_text(j->config, "work_group"), *user = tm_config_text(j->config, "user_name");
    if (j->cli.out)
        tm_text_add(&j->folder, j->cli.out);
    else if (workspace && experiment && group && user)
        tm_text_printf(&j->folder, "%s/%s/%s/%s", workspace, group, user, experiment);
    else
        tm_text_printf(&j->folder, "output/%s", j->options.model_name);
}

/* A model that names no vocabulary of its own grows to what the data needs; any other is told. */
static tm_status fit_vocabulary(job *j, tm_error *err)
{
    int64_t need = tm_source_describe(j->source)->vocab_needed, have = j->options.step.shape.vocab_size;
    if (need <= have) return TM_OK;
    if (tm_config_is_set(j->config, "model.vocab_size"))
        return tm_fail(
            err, TM_INVALID, "model.vocab_size is %lld (%s), but data.source %s needs %lld; raise it or leave it out",
            (long long)have, tm_config_place(j->config, "model.vocab_size"), j->options.source.name, (long long)need);
    char size[24];
    j->options.step.shape.vocab_size = j->options.source.vocab = (need + 63) / 64 * 64;
    snprintf(size, sizeof size, "%lld", (long long)j->options.source.vocab);
    tm_config_set(j->config, "model.vocab_size", size, "what data.source text needs"); /* config.yaml tells the truth */
    j->options.config_hash = tm_config_hash(j->config);
    tm_note("model.vocab_size raised from %lld to %lld for data.source %s", (long long)have,
            (long long)j->options.source.vocab, j->options.source.name);
    return TM_OK;
}

static tm_status open_data(job *j, tm_error *err)
{
    bool              text = strcmp(j->options.source.name, "text") == 0;
    tm_source_options options = j->options.source;
    if (text) options.vocab = 0; /* not decided yet */
    if (j->cli.dry_run && tm_source_has_outline(options.name)) return TM_OK; /* print_plan tells it */
    TM_TRY(tm_source_open(&options, &j->source, err));
    return text ? fit_vocabulary(j, err) : TM_OK;
}

/* What opening the data would take; data that is not here does not stop a plan. */
static void print_data(const job *j, tm_text *out)
{
    tm_text  text = { 0 };
    tm_error own = { 0 };
    if (tm_source_outline(&j->options.source, &text, &own) != TM_OK)
        tm_text_printf(out, "# data: not read: %s\n", own.text);
    else if (text.length)
        tm_text_printf(out, "# data: %s", text.data);
    tm_text_fini(&text);
}

static tm_status print_plan(job *j, tm_error *err)
{
    tm_text    out = { 0 };
    char       bytes[32];
    tm_chooser chooser = tm_device_chooser(j->device);
    tm_step   *step;
    TM_TRY(tm_step_create(&j->options.step, &chooser, &step, err));
    tm_config_print_yaml(j->config, &out, true);
    tm_text_printf(&out, "\n# memory plan: %s\n", tm_format_bytes(bytes, (double)step->plan->arena_bytes));
    for (size_t i = 0; i < step->plan->n_classes; i++)
        tm_text_printf(&out, "#   %-12s %12s\n", step->plan->by_class[i].name,
                       tm_format_bytes(bytes, (double)step->plan->by_class[i].value));
    print_data(j, &out);
    tm_cli_add_lines(&out, "# planned without: ", tm_config_unbuilt(j->config));
    tm_text_printf(&out, "# run directory: %s\n# nothing was trained: --dry-run\n", j->folder.data);
    tm_step_destroy(step);
    tm_secret_mask(&out);
    tm_status st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    return st;
}

static tm_status write_settings(job *j, tm_error *err)
{
    tm_text yaml = { 0 };
    tm_config_print_yaml(j->config, &yaml, true);
    tm_secret_mask(&yaml);
    tm_status st = tm_file_write(path_in(j, "config.yaml"), yaml.data, yaml.length, err);
    tm_text_fini(&yaml);
    if (st != TM_OK) return st;
    tm_text csv = { 0 };
    tm_environment_print_csv(j->environment, &csv);
    st = tm_file_write(path_in(j, "environment.csv"), csv.data, csv.length, err);
    tm_text_fini(&csv);
    return st;
}

/* Without its settings a run's numbers mean nothing: it ends after its first step. */
static void on_settings_event(tm_sink *sink, const tm_event *event)
{
    settings_sink *self = (settings_sink *)sink;
    if (event->kind != TM_EVENT_RUN_STARTED) return;
    self->started = true;
    if (write_settings(self->of, &self->error) != TM_OK) tm_cli_stop = 1;
}

/* Puts the sink that was just opened into j->opened on the bus. */
static tm_status attach(job *j, tm_status status)
{
    if (status == TM_OK) j->bus.sinks[j->bus.count++] = j->opened;
    return status;
}

/* The lines on stdout, and the same in log.file. */
static tm_status open_console(job *j, tm_error *err)
{
    const char        *path = tm_config_text(j->config, "log.file");
    tm_console_options console = tm_console_options_default();
    console.log_freq = tm_config_i64(j->config, "metrics.log_freq");
    console.sequences_per_step = j->options.step.micro_batch * j->options.step.accumulation;
    if (strcmp(tm_config_text(j->config, "metrics.log_style"), "megatron") == 0) console.style = TM_LOG_STYLE_MEGATRON;
    if (!tm_config_bool(j->config, "log.color") || tm_config_bool(j->config, "metrics.disable_color_printing"))
        console.colour = false;
    TM_TRY(attach(j, tm_console_sink_open(&console, &j->opened, err)));
    if (!path || !*path) return TM_OK;
    j->log = fopen(path, "ae");
    if (!j->log)
        return tm_fail(err, TM_IO, "cannot append to '%s' (log.file, %s): %s; name another file", path,
                       tm_config_place(j->config, "log.file"), strerror(errno));
    console.out = j->log;
    console.progress = NULL;
    console.colour = false;
    return attach(j, tm_console_sink_open(&console, &j->opened, err));
}

/* The model's name if it has the dimensions that the name stands for, else NULL: a published figure is of no other. */
static const char *published_model(const job *j)
{
    tm_model_shape        shape;
    const tm_model_shape *own = &j->options.step.shape;
    int64_t               seq;
    const char           *preset = tm_config_preset(j->config);
    if (!preset || tm_bench_model(preset, &shape, &seq, NULL) != TM_OK) return NULL;
    seq = j->options.step.seq;
    bool same = tm_model_parameters(&shape) == tm_model_parameters(own) && shape.n_layers == own->n_layers;
    for (int i = 0; i < TM_FLOPS_COUNT; i++)
        same = same && tm_model_flops_per_token(&shape, (tm_flops_convention)i, seq) ==
                           tm_model_flops_per_token(own, (tm_flops_convention)i, seq);
    return same ? preset : NULL;
}

static tm_status open_compare(job *j, tm_error *err)
{
    if (!j->cli.compare) return TM_OK;
    return attach(j, tm_compare_sink_open(&(tm_compare_options){ .path = j->cli.compare, .model = published_model(j) },
                                          &j->opened, err));
}

/* Better now than after hours: can a file be made, or added to, at `path`? */
static tm_status check_writable(const char *path, const char *key, tm_error *err)
{
    tm_text     folder = { 0 };
    const char *slash = strrchr(path, '/');
    tm_text_add_n(&folder, slash ? path : ".", slash > path ? (size_t)(slash - path) : 1);
    const char *place = tm_file_exists(path) ? path : folder.data;
    tm_status   st = TM_OK;
    if (access(place, W_OK) != 0)
        st = tm_fail(err, TM_IO, "cannot write to '%s' (%s %s): %s; name another file", place, key, path,
                     strerror(errno));
    tm_text_fini(&folder);
    return st;
}

static tm_status open_mllog(job *j, tm_error *err)
{
    tm_mllog_options log = { .path = path_in(j, tm_config_text(j->config, "mlperf.log")),
                             .benchmark = tm_mlperf_benchmark_of(j->config),
                             .org = tm_config_text(j->config, "mlperf.submission_org"),
                             .platform = tm_config_text(j->config, "mlperf.submission_platform"),
                             .division = tm_config_text(j->config, "mlperf.submission_division"),
                             .status = tm_config_text(j->config, "mlperf.submission_status"),
                             .poc_name = tm_config_text(j->config, "mlperf.submission_poc_name"),
                             .poc_email = tm_config_text(j->config, "mlperf.submission_poc_email"),
                             .clear_caches = tm_config_bool(j->config, "mlperf.clear_caches") };
    if (!log.platform) log.platform = tm_environment_text(j->environment, "cpu", NULL, "model");
    TM_TRY(check_writable(log.path, "mlperf.log", err));
    if (!log.platform || !*log.platform)
        return tm_fail(err, TM_INVALID, "the name of the processor is not known; set mlperf.submission_platform");
    return attach(j, tm_mllog_sink_open(&log, &j->opened, err));
}

static tm_status open_sinks(job *j, tm_error *err)
{
    j->settings = (settings_sink){ .base = { on_settings_event }, .of = j };
    TM_TRY(open_console(j, err));
    TM_TRY(
        attach(j, tm_metrics_sink_open(&(tm_metrics_options){ .path = path_in(j, "metrics.jsonl") }, &j->opened, err)));
    tm_text_printf(&j->hash, "%016llx", (unsigned long long)j->options.config_hash);
    tm_result_options result = { .path = path_in(j, "result.json"),
                                 .configuration_hash = j->hash.data,
                                 .environment = j->environment,
                                 .checks = &j->checks };
    TM_TRY(attach(j, tm_result_sink_open(&result, &j->opened, err)));
    tm_perf_options perf = { .path = path_in(j, "perf.csv"),
                             .args = j->command.data,
                             .launcher = "trainmark",
                             .deployment_type = "local",
                             .machine_name = tm_environment_text(j->environment, "os", NULL, "host"),
                             .git_commit = tm_environment_text(j->environment, "build", NULL, "commit"),
                             .architecture = tm_environment_text(j->environment, "cpu", NULL, "model"),
                             .pipeline = getenv("pipeline"),
                             .build_number = getenv("BUILD_NUMBER") };
    TM_TRY(attach(j, tm_perf_sink_open(&perf, &j->opened, err)));
    TM_TRY(open_compare(j, err));
    if (tm_mlperf_benchmark_of(j->config)) TM_TRY(open_mllog(j, err));
    if (!j->cli.perf_csv) return TM_OK;
    perf.path = j->cli.perf_csv;
    perf.append = true;
    return attach(j, tm_perf_sink_open(&perf, &j->opened, err));
}

/* Closes what is open; the first failure of a sink matters only if nothing failed before. */
static tm_status close_sinks(job *j, tm_status st, tm_error *err)
{
    for (size_t i = 0; i < j->bus.count; i++) {
        tm_error  own = { 0 };
        tm_status closed = tm_sink_close(j->bus.sinks[i], &own);
        if (closed != TM_OK && st != TM_OK) tm_warn("%s", own.text);
        if (closed != TM_OK && st == TM_OK) st = tm_fail(err, closed, "%s", own.text);
    }
    j->bus.count = 0;
    if (j->log && fclose(j->log) != 0 && st == TM_OK)
        st = tm_fail(err, TM_IO, "cannot write log.file: %s", strerror(errno));
    j->log = NULL;
    return st;
}

/* Another program gives this one its turns (train/turn.h). */
static tm_status join_turns(job *j, tm_error *err)
{
    static const char *const endless[][2] = { { "training.steps", "1000000" }, { "training.stop_at_target", "false" },
                                              { "validation.enable", "false" }, { "checkpoint.enable", "false" } };
    const char *text = getenv(TM_TURN_VARIABLE);
    char       *end;
    if (!text || !*text) return TM_OK;
    long fd = strtol(text, &end, 10);
    if (*end || fd < 3 || fd > 1 << 20)
        return tm_fail(err, TM_INVALID, TM_TURN_VARIABLE " must be the number of an open socket, found '%.100s'; unset it", text);
    j->turn_fd = (int)fd;
    for (size_t i = 0; getenv(TM_TURN_ENDLESS) && i < sizeof endless / sizeof endless[0]; i++)
        tm_config_set(j->config, endless[i][0], endless[i][1], TM_TURN_ENDLESS);
    return TM_OK;
}

static tm_status prepare(job *j, tm_error *err)
{
    if (j->cli.perf_csv) TM_TRY(check_writable(j->cli.perf_csv, "--perf-csv", err));
    TM_TRY(join_turns(j, err));
    TM_TRY(tm_run_options_read(j->config, &j->options, err));
    j->options.turn_fd = j->turn_fd;
    TM_TRY(tm_cli_open_device(&j->cli, &j->options, j->cli.dry_run, &j->device, err));
    name_folder(j);
    return open_data(j, err);
}

/* Takes back what was made for a run that never began. */
static void clean_up(const job *j, bool folder_was_there)
{
    struct stat info;
    tm_text     metrics = { 0 };
    tm_text_printf(&metrics, "%s/metrics.jsonl", j->folder.data);
    if (stat(metrics.data, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0) unlink(metrics.data);
    tm_text_fini(&metrics);
    if (!folder_was_there) rmdir(j->folder.data);
}

static tm_status check_host(tm_checks *checks, tm_error *err)
{
    tm_check_options options = tm_check_options_default();
    options.quick = true;
    return tm_checks_run(&options, checks, err);
}

static tm_status train(job *j, tm_error *err)
{
    bool folder_was_there = tm_file_exists(j->folder.data);
    TM_TRY(tm_folder_make(j->folder.data, err));
    j->environment = tm_environment_read("");
    TM_TRY(check_host(&j->checks, err));
    j->options.checkpoint_folder = path_in(j, tm_config_text(j->config, "checkpoint.folder"));
    tm_status st = open_sinks(j, err);
    if (st == TM_OK) {
        tm_event_bus bus = j->bus; /* the settings first; close_sinks knows only those of record */
        bus.sinks[bus.count++] = bus.sinks[0];
        bus.sinks[0] = &j->settings.base;
        st = tm_run(&j->options, j->device, j->source, &bus, &tm_cli_stop, err);
    }
    if (j->settings.error.status != TM_OK) {
        *err = j->settings.error;
        st = err->status;
    }
    st = close_sinks(j, st, err);
    if (st != TM_OK && !j->settings.started) clean_up(j, folder_was_there);
    if (st == TM_OK || st == TM_NUMBERS || st == TM_INTERRUPTED) fprintf(stderr, "results in %s\n", j->folder.data);
    if (st == TM_INTERRUPTED && !j->options.checkpoint)
        fprintf(stderr, "the same command with --checkpoint.enable true goes on from here\n");
    return st;
}

static void set_log_level(const tm_config *config)
{
    static const char *const levels[] = { "debug", "info", "warn", "error" };
    for (int i = 0; i < 4; i++)
        if (strcmp(tm_config_text(config, "log.level"), levels[i]) == 0) tm_log_set_level((tm_log_level)i);
}

static void release(job *j)
{
    tm_source_close(j->source);
    if (j->device) tm_device_close(j->device);
    tm_environment_destroy(j->environment);
    tm_checks_fini(&j->checks);
    tm_config_destroy(j->config);
    for (size_t i = 0; i < j->n_paths; i++) tm_text_fini(&j->path[i]);
    tm_text_fini(&j->folder);
    tm_text_fini(&j->command);
    tm_text_fini(&j->hash);
}

/* The arguments behind `run`, for the records: secrets masked. */
static void name_command(job *j, int argc, char **argv)
{
    tm_text words = { 0 };
    for (int i = 1; i < argc; i++) tm_text_add_n(&words, argv[i], strlen(argv[i]) + 1);
    tm_text_add(&j->command, "");
    if (words.length) tm_secret_command_line(&j->command, words.data, words.length);
    tm_text_fini(&words);
}

tm_status tm_command_run(int argc, char **argv, tm_error *err)
{
    job       j = { 0 };
    unsigned  takes = TM_CLI_OUT | TM_CLI_PERF_CSV | TM_CLI_DEVICE | TM_CLI_ISA | TM_CLI_DRY_RUN | TM_CLI_COMPARE;
    tm_status st = tm_cli_configure(argc, argv, "tiny-llama", takes, &j.cli, &j.config, err);
    if (st == TM_OK && j.cli.help) {
        st = tm_cli_print_help(help, err);
        release(&j);
        return st;
    }
    name_command(&j, argc, argv);
    if (st == TM_OK) {
        set_log_level(j.config);
        st = prepare(&j, err);
    }
    if (st == TM_OK) st = j.cli.dry_run ? print_plan(&j, err) : train(&j, err);
    release(&j);
    return st;
}
