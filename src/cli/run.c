/* SPDX-License-Identifier: Apache-2.0 */
/* cli/run.c - `trainmark run`: configuration in, the run with its outputs, the exit code. */
#include "train/run/run.h"

#include "base/file.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/plain.h"
#include "cli/cli.h"
#include "cli/ranks.h"
#include "cli/run_job.h"
#include "comm/coll/nccl.h"
#include "hf/adapter.h"
#include "record/outputs.h"
#include "results/result.h"
#include "system/environment.h"
#include "base/secret.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static const tm_option rows[] = {
    { "out", 'o', TM_OPTION_TEXT, offsetof(tm_cli_options, out), .value = "DIR",
      .help = "run directory; default output/MODEL, or the experiment's own" },
    { "dry-run", 0, TM_OPTION_FLAG, offsetof(tm_cli_options, dry_run),
      .help = "print the memory plan and the largest batch that fits, then stop" },
    { "print-config", 0, TM_OPTION_FLAG, offsetof(tm_cli_options, print_config),
      .help = "print the merged configuration, with the origin of each value, then stop" },
    { "evaluate", 0, TM_OPTION_FLAG, offsetof(tm_cli_options, evaluate),
      .help = "print the loss on held-out data of the model that would be trained, then stop" },
    { "memory", 0, TM_OPTION_BYTES, offsetof(tm_cli_options, memory_bytes), .value = "SIZE",
      .help = "memory that a dry run must fit into (192GiB); default: that of this machine" },
    TM_OPTION_PLATFORM(tm_cli_options, "with --dry-run: "),
    { "json", 0, TM_OPTION_FLAG, offsetof(tm_cli_options, json),
      .help = "print the result (result.json), the dry run or the evaluation as JSON" },
    { "compare", 0, TM_OPTION_TEXT, offsetof(tm_cli_options, compare), .value = "FILE",
      .help = "also print published figures: reference (built in), or a CSV file" },
    { "perf-csv", 0, TM_OPTION_TEXT, offsetof(tm_cli_options, perf_csv), .value = "FILE",
      .help = "append the result to this CSV file" },
    { "timeout", 0, TM_OPTION_F64, offsetof(tm_cli_options, timeout_s), .value = "SECONDS", .lo = -1, .hi = 1e8,
      .help = "stop after this time, as if interrupted; 0 or -1: never" },
    TM_OPTION_RANKS(tm_cli_options),
    { "max-restarts", 0, TM_OPTION_I64, offsetof(tm_cli_options, restarts), .value = "N", .lo = 0, .hi = 1000,
      .help = "restart from the last checkpoint up to N times after a rank was lost" },
    { "scaling", 0, TM_OPTION_TEXT, offsetof(tm_cli_options, scaling), .value = "N,N,...",
      .help = "train on each of these numbers of ranks; print speed-up and efficiency" },
    { "scaling-mode", 0, TM_OPTION_CHOICE, offsetof(tm_cli_options, scaling_mode), .value = "MODE", .fallback = "weak",
      .choices = "weak|strong", .help = "of --scaling: keep the batch of a rank (weak) or of a step (strong)" },
    TM_CLI_CONFIGURATION_ROWS,
};

/* Of several ranks the first has the records, the console and the folder. */
static bool is_first(const run_job *j)
{
    return !j->world || tm_comm_rank(j->world) == 0;
}

/* --out, else the experiment's workspace/group/user/name (one without the others is refused), else output/NAME of the
 * experiment or the model. */
void run_name_folder(run_job *j)
{
    const char *workspace = tm_config_text(j->config, "workspace"), *experiment = tm_config_text(j->config, "exp_name");
    const char *group = tm_config_text(j->config, "work_group"), *user = tm_config_text(j->config, "user_name");
    if (j->cli->out)
        tm_text_add(&j->folder, j->cli->out);
    else if (workspace)
        tm_text_printf(&j->folder, "%s/%s/%s/%s", workspace, group, user, experiment);
    else
        tm_text_printf(&j->folder, "output/%s", experiment ? experiment : j->options.model_name);
}

/* A model that names no vocabulary of its own grows to what the data needs; any other is told. Data that is not here
 * does not stop a plan. */
static tm_status fit_vocabulary(run_job *j, tm_error *err)
{
    int64_t   need, have = j->options.step.shape.vocab_size;
    tm_error  absent = { 0 };
    tm_status st = tm_source_vocabulary(&j->options.source, &need, j->cli->dry_run ? &absent : err);
    if (st != TM_OK && !j->cli->dry_run) return st;
    if (need <= have) return TM_OK;
    if (tm_config_is_set(j->config, "model.vocab_size"))
        return tm_fail(
            err, TM_INVALID, "model.vocab_size is %lld (%s), but data.source %s needs %lld; raise it or leave it out",
            (long long)have, tm_config_place(j->config, "model.vocab_size"), j->options.source.name, (long long)need);
    char size[24], origin[80];
    j->options.step.shape.vocab_size = j->options.source.vocab = (need + 63) / 64 * 64;
    snprintf(size, sizeof size, "%lld", (long long)j->options.source.vocab);
    snprintf(origin, sizeof origin, "what data.source %s needs", j->options.source.name);
    tm_config_set(j->config, "model.vocab_size", size, origin); /* config.yaml tells the truth */
    j->options.config_hash = tm_config_hash(j->config);
    return TM_OK;
}

static tm_status open_data(run_job *j, tm_error *err)
{
    int64_t before = j->options.step.shape.vocab_size, now;
    TM_TRY(fit_vocabulary(j, err));
    bool epochs = tm_run_counts_epochs(j->config);
    if (!j->cli->dry_run || epochs || !tm_source_has_outline(j->options.source.name)) /* else print_plan tells it */
        TM_TRY(tm_source_open(&j->options.source, &j->source, err));
    if (j->source && !(j->cli->dry_run && tm_source_describe(j->source)->train_samples == INT64_MAX))
        TM_TRY(tm_run_settle_epochs(j->config, j->source, &j->options, err)); /* a plan may lack the data */
    if ((now = j->options.step.shape.vocab_size) != before)
        tm_note("model.vocab_size raised from %lld to %lld for data.source %s", (long long)before, (long long)now,
                j->options.source.name);
    return TM_OK;
}

/* Of several ranks each takes its own GPU, unless --device says which. */
static tm_status open_device(run_job *j, tm_error *err)
{
    char           name[80];
    tm_cli_options own = *j->cli;
    if (j->world && tm_comm_size(j->world) > 1) {
        tm_device_name_of_rank(name, own.device, tm_nccl_place(j->world));
        own.device = name;
    }
    return tm_cli_open_device(&own, &j->options, j->cli->dry_run, &j->device, err);
}

/* This rank's place among those that train together. */
static tm_status join_ranks(run_job *j, tm_error *err)
{
    const char *tune = getenv("TRAINMARK_PRODUCTS_TUNE");
    bool        gpus = tm_device_describe(j->device)->kind == TM_DEVICE_GPU;
    if (!j->world) return TM_OK;
    if (gpus && tm_comm_size(j->world) > 1 && tm_config_bool(j->config, "parallelism.exact"))
        return tm_fail(err, TM_UNSUPPORTED,
                       "parallelism.exact (%s) asks for sums in the order of the ranks, and the library of GPUs' "
                       "collectives has its own; leave it out, or train on --device cpu",
                       tm_config_place(j->config, "parallelism.exact"));
    if (gpus && tune && *tune)
        return tm_fail(err, TM_INVALID,
                       "TRAINMARK_PRODUCTS_TUNE is set, and several ranks would disturb each other's measurements and "
                       "write one file; measure with one rank of the same batch, then give the ranks that file");
    j->options.step.layout.rank = tm_comm_rank(j->world);
    TM_TRY(tm_ranks_open(&j->options.step.layout.mesh, j->world, &j->ranks, err));
    tm_device_join(j->device, &j->ranks.groups);
    j->options.ranks = &j->ranks;
    return tm_device_connect(j->device, err);
}

tm_status run_prepare(run_job *j, tm_error *err)
{
    if (j->cli->perf_csv && is_first(j)) TM_TRY(tm_file_check_writable(j->cli->perf_csv, "--perf-csv", err));
    TM_TRY(run_join_turns(j, err));
    TM_TRY(tm_run_options_read(j->config, &j->options, err));
    j->options.turn_fd = j->turn_fd;
    TM_TRY(run_open_weights(j, err));
    TM_TRY(run_open_adapter(j, err));
    TM_TRY(open_device(j, err));
    TM_TRY(join_ranks(j, err));
    run_name_folder(j);
    if (!j->cli->dry_run) TM_TRY(run_open_encoders(j, err));
    if (!j->without_data) TM_TRY(open_data(j, err));
    return j->cli->dry_run || j->cli->evaluate ? TM_OK : run_open_pictures(j, err);
}

static tm_status check_host(tm_checks *checks, tm_error *err)
{
    tm_check_options options = tm_check_options_default();
    options.quick = true;
    return tm_checks_run(&options, checks, err);
}

void run_name_checkpoints(run_job *j)
{
    const char *name = tm_config_text(j->config, "checkpoint.folder");
    if (name[0] != '/') tm_text_printf(&j->checkpoints, "%s/", j->folder.data);
    tm_text_add(&j->checkpoints, name);
    j->options.checkpoint_folder = j->checkpoints.data;
}

/* Is there the result of a run that came to its end, not stopped by a signal? One that begins removes the one before.
 */
static bool has_result(const run_job *j)
{
    tm_result *result;
    tm_error   unread = { 0 };
    if (tm_result_load(j->folder.data, NULL, &result, &unread) != TM_OK) return false;
    bool ended = !tm_result_true(result, "steps/interrupted");
    tm_result_destroy(result);
    return ended;
}

/* All ranks begin together, once the first has its folder, and know whether there is anything to do. */
static tm_status agree_to_begin(run_job *j, tm_error *err)
{
    int64_t       concluded = is_first(j) && has_result(j);
    tm_collective tell = { .kind = TM_COMM_BROADCAST,
                           .format = TM_COMM_INT64,
                           .send = &concluded,
                           .receive = &concluded,
                           .count = 1,
                           .peer = 0,
                           .what = "the run begins",
                           .step = -1 };
    if (j->world) TM_TRY(tm_comm_run(j->world, &tell, err));
    j->options.concluded = concluded != 0;
    return TM_OK;
}

/* With its outputs open and closed. *began: did it ever start? */
static tm_status run(run_job *j, bool *began, tm_error *err)
{
    tm_outputs       *outputs;
    tm_output_options wanted = { .folder = j->folder.data,
                                 .config = j->config,
                                 .run = &j->options,
                                 .environment = j->environment,
                                 .checks = &j->checks,
                                 .command = j->command.data,
                                 .perf_csv = j->cli->perf_csv,
                                 .compare = j->cli->compare,
                                 .quiet = j->quiet,
                                 .verbose = j->verbose,
                                 .json = j->cli->json };
    TM_TRY(tm_outputs_open(&wanted, &outputs, err));
    tm_status st = agree_to_begin(j, err);
    if (st == TM_OK) st = tm_run(&j->options, j->device, j->source, tm_outputs_bus(outputs), &tm_cli_stop, err);
    return tm_outputs_close(outputs, st, began, err);
}

static volatile sig_atomic_t timed_out;

static void on_alarm(int signal_number)
{
    (void)signal_number;
    timed_out = tm_cli_stop = 1;
}

/* --timeout: the run stops as if it were interrupted. */
static void set_timeout(double seconds)
{
    struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    struct itimerval timer = { .it_value = { .tv_sec = (time_t)seconds,
                                             .tv_usec = (suseconds_t)((seconds - floor(seconds)) * 1e6) } };
    if (seconds <= 0) return;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* --json: what result.json says. */
static tm_status print_result(const run_job *j, tm_error *err)
{
    enum { LIMIT = 1 << 28 };
    tm_text path = { 0 }, text = { 0 };
    tm_text_printf(&path, "%s/result.json", j->folder.data);
    tm_status st = tm_file_read(path.data, LIMIT, &text, err);
    if (st == TM_OK) st = tm_cli_print(&text, err);
    tm_text_fini(&path);
    tm_text_fini(&text);
    return st;
}

/* Files for the messages of this rank: log.folder, or where experiments have them. */
static tm_status open_logs(const run_job *j, tm_error *err)
{
    const char *name = tm_config_text(j->config, "log.folder"), *module = tm_config_module(j->config);
    int         rank = j->world ? tm_comm_rank(j->world) : 0, ranks = j->world ? tm_comm_size(j->world) : 1;
    tm_text     path = { 0 };
    if (!name && !module) return TM_OK;
    if (!name || name[0] != '/') tm_text_printf(&path, "%s/", j->folder.data);
    tm_text_printf(&path, "%s%s/rank-%d", name ? name : "logs/", name ? "" : module, rank);
    tm_status st = tm_folder_make(path.data, err);
    if (st == TM_OK) st = tm_log_open_folder(path.data, err);
    if (st == TM_OK) {
        path.length = 0;
        tm_text_printf(&path, "rank %d of %d, process %ld: trainmark run %s", rank, ranks, (long)getpid(),
                       j->command.data);
        tm_log_record(TM_LOG_INFO, path.data);
    }
    tm_text_fini(&path);
    return st;
}

/* The last line: how it ended. */
static void close_logs(tm_status st, const tm_error *err)
{
    if (st != TM_OK) tm_log_record(st == TM_INTERRUPTED ? TM_LOG_WARN : TM_LOG_ERROR, err->text);
    tm_log_record(TM_LOG_INFO, st == TM_OK ? "done" : "ended");
    tm_log_close_folder();
}

/* A rank that is not the first: the same training, nothing told. */
static tm_status train_beside(run_job *j, tm_error *err)
{
    tm_event_bus nobody = { 0 };
    run_name_checkpoints(j);
    j->options.folder = j->folder.data;
    if (!j->options.step.offload.folder) j->options.step.offload.folder = j->folder.data;
    TM_TRY(agree_to_begin(j, err));
    TM_TRY(open_logs(j, err));
    return tm_run(&j->options, j->device, j->source, &nobody, &tm_cli_stop, err);
}

/* How much of a path is there: bytes of its longest beginning that exists. */
static size_t length_there(const char *path)
{
    char   part[PATH_MAX];
    size_t n = strlen(path);
    for (; n > 0; n--) {
        if (path[n] && path[n] != '/') continue;
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        if (tm_file_exists(part)) break;
    }
    return n;
}

/* Folders beyond the first `there` bytes, as far as they are empty. */
static void remove_made(const char *path, size_t there)
{
    char part[PATH_MAX];
    for (size_t n = strlen(path); n > there; n--) {
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        if ((!path[n] || path[n] == '/') && rmdir(part) != 0) return;
    }
}

static tm_status train_in_folder(run_job *j, bool *began, tm_error *err)
{
    tm_file_remove_left(j->folder.data); /* by a run that was killed */
    TM_TRY(open_logs(j, err));
    j->environment = tm_environment_read("");
    TM_TRY(check_host(&j->checks, err));
    run_name_checkpoints(j);
    j->options.folder = j->folder.data;
    if (!j->options.step.offload.folder) j->options.step.offload.folder = j->folder.data;
    run_note_changes(j);
    run_note_threads(j);
    TM_TRY(run_predict(j, err));
    set_timeout(j->cli->timeout_s);
    tm_status st = run(j, began, err);
    if (st == TM_INTERRUPTED && timed_out) fprintf(stderr, "stopped by --timeout after %g s\n", j->cli->timeout_s);
    if (st == TM_OK) st = tm_folder_lock_check(&j->lock, err);
    if (j->cli->json && *began && (st == TM_OK || st == TM_NUMBERS || st == TM_INTERRUPTED)) {
        tm_error  own = { 0 };
        tm_status printed = print_result(j, &own);
        if (st == TM_OK && printed != TM_OK) *err = own;
        if (st == TM_OK) st = printed;
    }
    return st;
}

static tm_status train(run_job *j, tm_error *err)
{
    tm_cli_heed_stop();
    if (!is_first(j)) return train_beside(j, err);
    size_t there = length_there(j->folder.data);
    bool   began = false;
    TM_TRY(tm_folder_make(j->folder.data, err));
    tm_status st = tm_folder_lock_take(j->folder.data, &j->lock, err);
    if (st == TM_OK) {
        st = train_in_folder(j, &began, err);
        tm_folder_lock_release(&j->lock);
    }
    if (st != TM_OK && !began) remove_made(j->folder.data, there);
    if ((st == TM_OK || st == TM_NUMBERS || st == TM_INTERRUPTED) && !j->quiet) {
        fputs("results in ", stderr);
        tm_plain_put(stderr, j->folder.data, 0);
        fputs("; -v prints every table, `trainmark report` makes a page of them\n", stderr);
    }
    if (st == TM_INTERRUPTED && !j->options.checkpoint)
        fprintf(stderr, "to resume, rerun the same command with --checkpoint.enable true\n");
    return st;
}

/* --evaluate: no step, no run directory. */
static tm_status evaluate(run_job *j, tm_error *err)
{
    tm_run_evaluation found;
    tm_text           out = { 0 };
    tm_json           json = { .out = &out, .indent = true };
    tm_cli_heed_stop();
    TM_TRY(tm_run_evaluate(&j->options, j->device, j->source, &tm_cli_stop, &found, err));
    if (j->cli->json) {
        tm_json_open(&json, NULL, '{');
        tm_json_f64(&json, "loss", found.loss);
        tm_json_f64(&json, "standard_error", found.error);
        tm_json_f64(&json, "bits_per_byte", found.bits_per_byte);
        tm_json_i64(&json, "target_tokens", found.targets);
        tm_json_close(&json, '}');
        tm_text_add(&out, "\n");
    } else {
        tm_text_printf(&out, "held-out loss   %.4f%s", found.loss,
                       tm_model_images(&j->options.step.shape) ? "" : " nats per token");
        if (!isnan(found.error)) tm_text_printf(&out, ", standard error %.4f", found.error);
        if (!isnan(found.bits_per_byte)) tm_text_printf(&out, "\nbits per byte   %.4f", found.bits_per_byte);
        tm_text_printf(&out, "\ntarget tokens   %lld\n", (long long)found.targets);
    }
    tm_status st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    return st;
}

/* What --evaluate cannot be given with. */
static tm_status check_evaluate(const run_job *j, tm_error *err)
{
    size_t      n_axes;
    const char *other = j->cli->print_config ? "--print-config"
                        : j->cli->dry_run    ? "--dry-run"
                        : j->cli->perf_csv   ? "--perf-csv"
                        : j->cli->compare    ? "--compare"
                                             : NULL;
    if (!j->cli->evaluate) return TM_OK;
    if (other)
        return tm_fail(err, TM_USAGE, "--evaluate trains nothing and cannot be given with %s; leave one out", other);
    (void)tm_config_axes(j->config, &n_axes);
    if (n_axes > 0)
        return tm_fail(err, TM_USAGE, "--evaluate takes one configuration, here are several values of a key");
    if (tm_config_bool(j->config, "checkpoint.enable"))
        return tm_fail(err, TM_USAGE,
                       "--evaluate reads no checkpoints; `trainmark export RUN -o DIR` makes a directory for "
                       "model.hf_assets_path or lora.adapter_path");
    if (!tm_config_bool(j->config, "validation.enable"))
        return tm_fail(err, TM_USAGE, "--evaluate needs validation.enable");
    return TM_OK;
}

static void set_log_level(const tm_config *config)
{
    static const char *const levels[] = { "debug", "info", "warn", "error" };
    for (int i = 0; i < 4; i++)
        if (strcmp(tm_config_text(config, "log.level"), levels[i]) == 0) tm_log_set_level((tm_log_level)i);
}

void run_release(run_job *j)
{
    tm_source_close(j->source);
    tm_safetensors_close(j->weights);
    tm_hf_adapter_close(&j->adapter);
    tm_pixels_close(j->pixels);
    tm_encoders_close(j->encoders);
    if (j->encoders_device) tm_device_close(j->encoders_device);
    if (j->device) tm_device_close(j->device);
    if (j->options.ranks) tm_ranks_close(&j->ranks);
    tm_environment_destroy(j->environment);
    tm_checks_fini(&j->checks);
    tm_config_destroy(j->config);
    tm_folder_lock_release(&j->lock);
    tm_text_fini(&j->folder);
    tm_text_fini(&j->checkpoints);
    tm_text_fini(&j->command);
    tm_text_fini(&j->changes);
}

/* The arguments behind `run`, for the records: secrets masked. */
static void name_command(run_job *j, int argc, char **argv)
{
    tm_text words = { 0 };
    for (int i = 1; i < argc; i++) tm_text_add_n(&words, argv[i], strlen(argv[i]) + 1);
    tm_text_add(&j->command, "");
    if (words.length) tm_secret_command_line(&j->command, words.data, words.length);
    tm_text_fini(&words);
}

/* The world of several ranks: this process starts them (*started: it has, and the status is theirs), or is one. */
static tm_status open_world(run_job *j, const tm_cli_line *line, bool *started, tm_error *err)
{
    int64_t ranks = tm_config_i64(j->config, "parallelism.ranks");
    *started = false;
    if (j->cli->dry_run || (ranks == 1 && tm_comm_launched().ranks == 1)) return TM_OK;
    if (j->cli->evaluate) return tm_fail(err, TM_UNSUPPORTED, "--evaluate takes one rank; leave --ranks out");
    tm_cli_start start = { .ranks = ranks, .mpi = j->cli->mpi, .restarts = j->cli->restarts };
    if (start.restarts > 0 && !tm_config_bool(j->config, "checkpoint.enable"))
        return tm_fail(err, TM_USAGE,
                       "--max-restarts begins again from the last checkpoint and needs checkpoint.enable");
    TM_TRY(tm_cli_start_ranks(&start, line, started, err));
    if (*started) return TM_OK;
    TM_TRY(tm_cli_open_ranks(ranks, j->cli->deadline_s, &j->world, err));
    if (!is_first(j)) {
        j->quiet = true;
        tm_log_set_level(TM_LOG_ERROR);
    }
    return TM_OK;
}

static tm_status run_or_sweep(run_job *j, tm_cli_line *line, tm_error *err)
{
    bool elsewhere;
    TM_TRY(run_sweep(j, line, &elsewhere, err));
    if (!elsewhere) TM_TRY(open_world(j, line, &elsewhere, err));
    if (elsewhere) return TM_OK;
    TM_TRY(run_prepare(j, err));
    if (j->cli->evaluate) return evaluate(j, err);
    if (!j->cli->dry_run) return train(j, err);
    tm_sweep_options search = run_search_of(j, line);
    return run_print_plan(j, &search, err);
}

static tm_status train_or_plan(tm_cli_line *line, tm_error *err)
{
    run_job j = { .cli = line->options };
    j.cli->axes = true;
    tm_status st = tm_cli_configure(line, "tiny-llama", false, &j.config, err);
    name_command(&j, line->argc, line->argv);
    j.quiet = line->quiet;
    j.verbose = line->verbose;
    if (st == TM_OK && j.cli->json && j.cli->compare)
        st = tm_fail(err, TM_USAGE, "--compare prints a table and cannot be given with --json; leave one out");
    if (st == TM_OK) st = check_evaluate(&j, err);
    if (st == TM_OK && !line->quiet && !line->verbose) set_log_level(j.config);
    if (st == TM_OK) st = j.cli->scaling ? run_scale(&j, line, err) : run_or_sweep(&j, line, err);
    close_logs(st, err);
    if (tm_cli_ranks_failed(st)) tm_cli_close_ranks(j.world, st, err); /* before this rank waits for others */
    run_release(&j);
    tm_cli_close_ranks(j.world, st, err);
    return st;
}

const tm_cli_command tm_command_run = {
    .name = "run",
    .summary = "train a model, measure the training, judge the run",
    .words = "[MODEL | FILE]",
    .most = 1,
    .about =
        "Trains a model and prints throughput, memory, loss and a verdict; the results are files in the run "
        "directory. Without MODEL: the built-in tiny model, until it has learned the built-in language (the main "
        "job).\n\n"
        "MODEL is a built-in name (`trainmark models`). FILE is an experiment of Primus (.yaml), a job file of "
        "TorchTitan (.toml), a recipe of torchtune (.yaml), a model of pytorch-training-benchmark (.json, then "
        "llama or mistral), variables of an MLPerf submission (.sh), or a file of keys. A command of these programs "
        "may stand behind `trainmark run` as it is: torchrun, primus-cli, tune run, madengine run with --tags NAME, "
        "and the report script with -t TASK -m MODEL -p FORMAT -s TOKENS -n GPUS -b BATCH -l LAYERS -f fsdp "
        "(docs/coming-from.md).",
    TM_CLI_OPTIONS(rows, tm_cli_options),
    .keys = tm_cli_keys,
    .first_keys = "model.hf_assets_path,data.source,data.path,training.steps,training.local_batch_size,"
                  "training.global_batch_size,training.seq_len,training.dtype,optimizer.lr,checkpoint.enable",
    .keys_help = "`trainmark keys` lists all keys, `trainmark keys --framework NAME` those of other programs' files.",
    .reads = true,
    .run = train_or_plan,
};
