/* SPDX-License-Identifier: Apache-2.0 */
/* record/mllog.c - an MLPerf-style log of a run. Every figure comes from an event; nothing is assumed to be as a
 * benchmark prescribes it: that is for the compliance check to say. */
#include "base/again.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/root.h"
#include "apps/mlperf/check.h"
#include "apps/mlperf/keys.h"
#include "apps/mlperf/writer.h"
#include "record/record.h"
#include "record/sink.h"
#include "base/file.h"
#include "record/sink_kind.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    tm_sink          head;
    tm_mllog_options options;
    int              fd;
    off_t            complete_bytes;
    tm_text          line;       /* reused: no allocation in a steady run */
    tm_text          head_lines; /* up to init_stop */
    int64_t          init_ms;    /* start of the process */
    int64_t          cleared_ms; /* 0: the caches were not dropped */
    bool             running, in_block, in_evaluation, met;
    int64_t          block_ms, block_samples; /* begin of the block */
    int64_t          opened_ms, opened_ns;    /* wall clock and steady clock when the sink was opened */
} mllog_sink;

/* Wall clock since the opening, but steady: setting the clock moves no time within the log. */
static int64_t now_ms(const mllog_sink *self)
{
    return self->opened_ms + (tm_now_ns() - self->opened_ns) / 1000000;
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static void put_event(mllog_sink *self, tm_mllog_event event)
{
    if (self->fd < 0 || self->head.error.status != TM_OK) return;
    self->line.length = 0;
    tm_mllog_print(&event, &self->line);
    record_sink_append(&self->head, self->fd, self->options.path, &self->complete_bytes, &self->line);
    if (!self->running) tm_text_add_n(&self->head_lines, self->line.data, self->line.length);
}

#define PUT_AT(self, when, name, what, fields, n)                                                                      \
    put_event((self), (tm_mllog_event){ .time_ms = (when),                                                             \
                                        .key = (name),                                                                 \
                                        .value = (what),                                                               \
                                        .file = __FILE__,                                                              \
                                        .lineno = __LINE__,                                                            \
                                        .metadata = (fields),                                                          \
                                        .n_metadata = (n) })
#define PUT(self, name, what) PUT_AT((self), now_ms(self), (name), (what), NULL, 0)
#define PUT_SAMPLES(self, name, what, samples)                                                                         \
    PUT_AT((self), now_ms(self), (name), (what), (&(tm_mllog_field){ "samples_count", tm_mllog_i64(samples) }), 1)

/* --- the start ---------------------------------------------------------------------------------------------------- */

/* Everything the training is known by. */
static const struct {
    const char   *key;
    tm_mllog_kind kind;
    size_t        at; /* in tm_run_started */
    enum {
        ALWAYS,
        ADAPTERS,
        ADAMW,
        EVALUATED
    } only; /* where there are adapters; that is the optimizer; it is evaluated
             * on the way */
} rows[] = {
#define ROW(key, kind, member)                                                                                         \
    {                                                                                                                  \
        key, kind, offsetof(tm_run_started, member), ALWAYS                                                            \
    }
#define ADAPTER_ROW(key, kind, member)                                                                                 \
    {                                                                                                                  \
        key, kind, offsetof(tm_run_started, member), ADAPTERS                                                          \
    }
#define ADAMW_ROW(key, kind, member)                                                                                   \
    {                                                                                                                  \
        key, kind, offsetof(tm_run_started, member), ADAMW                                                             \
    }
#define EVALUATED_ROW(key, kind, member)                                                                               \
    {                                                                                                                  \
        key, kind, offsetof(tm_run_started, member), EVALUATED                                                         \
    }
    ROW("seed", TM_MLLOG_I64, seed),
    ROW("global_batch_size", TM_MLLOG_I64, recipe.global_batch),
    ROW("gradient_accumulation_steps", TM_MLLOG_I64, recipe.accumulation),
    ROW("micro_batch_size", TM_MLLOG_I64, recipe.micro_batch),
    ROW("max_sequence_length", TM_MLLOG_I64, recipe.sequence_length),
    ROW("eval_samples", TM_MLLOG_I64, recipe.eval_samples),
    EVALUATED_ROW("evaluation_frequency", TM_MLLOG_I64, recipe.eval_interval),
    ROW("max_steps", TM_MLLOG_I64, steps),
    ROW("opt_name", TM_MLLOG_TEXT, recipe.optimizer),
    ROW("opt_base_learning_rate", TM_MLLOG_F64, recipe.learning_rate),
    ROW("opt_end_learning_rate", TM_MLLOG_F64, recipe.end_learning_rate),
    ADAMW_ROW("opt_adamw_beta_1", TM_MLLOG_F64, recipe.beta1),
    ADAMW_ROW("opt_adamw_beta_2", TM_MLLOG_F64, recipe.beta2),
    ADAMW_ROW("opt_adamw_epsilon", TM_MLLOG_F64, recipe.eps),
    ADAMW_ROW("opt_adamw_weight_decay", TM_MLLOG_F64, recipe.weight_decay),
    ROW("opt_gradient_clip_norm", TM_MLLOG_F64, recipe.max_norm),
    ROW("opt_learning_rate_warmup_steps", TM_MLLOG_I64, recipe.warmup_steps),
    ROW("opt_learning_rate_decay_steps", TM_MLLOG_I64, recipe.decay_steps),
    ROW("opt_learning_rate_training_steps", TM_MLLOG_I64, steps),
    ROW("opt_learning_rate_decay_schedule", TM_MLLOG_TEXT, recipe.schedule),
    ADAPTER_ROW("lora_rank", TM_MLLOG_I64, recipe.lora_rank),
    ADAPTER_ROW("lora_alpha", TM_MLLOG_F64, recipe.lora_alpha),
    ROW("lowest_numerical_precision_in_linear", TM_MLLOG_TEXT, recipe.precision_linear),
    ROW("lowest_numerical_precision_in_attn", TM_MLLOG_TEXT, recipe.precision_attention),
    ROW("lowest_numerical_precision_in_comm", TM_MLLOG_TEXT, recipe.precision_communication),
#undef EVALUATED_ROW
#undef ROW
#undef ADAPTER_ROW
#undef ADAMW_ROW
};

static tm_mllog_value value_at(tm_mllog_kind kind, const void *address)
{
    if (kind == TM_MLLOG_I64) return tm_mllog_i64(*(const int64_t *)address);
    if (kind == TM_MLLOG_F64) return tm_mllog_f64(*(const double *)address);
    return tm_mllog_text(*(const char *const *)address);
}

static bool is_logged(int row, const tm_run_started *run)
{
    const void *at = (const char *)run + rows[row].at;
    if (rows[row].kind == TM_MLLOG_TEXT && !*(const char *const *)at) return false; /* not known */
    switch (rows[row].only) {
    case ADAPTERS:
        return run->recipe.lora_rank > 0;
    case ADAMW:
        return strcmp(run->recipe.optimizer, "adamw") == 0;
    case EVALUATED:
        return run->recipe.eval_interval > 0;
    case ALWAYS:
        break;
    }
    return true;
}

static int64_t one_at_least(int64_t ranks)
{
    return ranks > 1 ? ranks : 1;
}

static void put_parallelism(mllog_sink *self, const tm_recipe *recipe)
{
    PUT(self, "tensor_parallelism", tm_mllog_i64(one_at_least(recipe->tensor_ranks)));
    PUT(self, "pipeline_parallelism", tm_mllog_i64(one_at_least(recipe->pipeline_ranks)));
    PUT(self, "context_parallelism", tm_mllog_i64(one_at_least(recipe->context_ranks)));
    PUT(self, "expert_parallelism", tm_mllog_i64(one_at_least(recipe->expert_ranks)));
    if (self->options.config_filename) PUT(self, "config_filename", tm_mllog_text(self->options.config_filename));
}

static void put_submission(mllog_sink *self)
{
    const tm_mllog_options *o = &self->options;
    PUT(self, "submission_benchmark", tm_mllog_text(o->benchmark->name));
    PUT(self, "submission_org", tm_mllog_text(o->org));
    PUT(self, "submission_division", tm_mllog_text(o->division));
    PUT(self, "submission_status", tm_mllog_text(o->status));
    PUT(self, "submission_platform", tm_mllog_text(o->platform));
    if (o->poc_name) PUT(self, "submission_poc_name", tm_mllog_text(o->poc_name));
    if (o->poc_email) PUT(self, "submission_poc_email", tm_mllog_text(o->poc_email));
}

static void start_block(mllog_sink *self, int64_t samples)
{
    self->block_ms = now_ms(self);
    PUT_AT(self, self->block_ms, "block_start", tm_mllog_null(),
           (&(tm_mllog_field){ "samples_count", tm_mllog_i64(samples) }), 1);
    self->in_block = true;
    self->block_samples = samples;
}

/* What the rules will say of the lines up to here, before hours are spent. Lines still to come are not missed. */
static void foresee(mllog_sink *self)
{
    tm_mllog       *log;
    tm_check_report report;
    if (tm_mllog_parse(self->options.path, self->head_lines.data, self->head_lines.length, &log, NULL) != TM_OK) return;
    tm_check_log(log, self->options.benchmark->since, false, &report);
    for (size_t i = 0; i < report.messages.n; i++)
        if (report.messages.messages[i].line) tm_warn("this run will not comply: %s", report.messages.messages[i].text);
    tm_check_report_fini(&report);
    tm_mllog_free(log);
}

static void on_start(mllog_sink *self, const tm_run_started *run)
{
    tm_file_draft draft;
    tm_status     st = tm_file_draft_open(self->options.path, &draft, &self->head.error);
    if (st == TM_OK) st = tm_file_draft_publish(&draft, &self->fd, &self->head.error);
    TM_ASSERT(st == TM_OK || self->fd < 0);
    PUT_AT(self, self->init_ms, "init_start", tm_mllog_null(), NULL, 0);
    if (self->cleared_ms) PUT_AT(self, self->cleared_ms, "cache_clear", tm_mllog_bool(true), NULL, 0);
    put_submission(self);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is_logged((int)i, run)) PUT(self, rows[i].key, value_at(rows[i].kind, (const char *)run + rows[i].at));
    put_parallelism(self, &run->recipe);
    if (self->fd >= 0) foresee(self);
    PUT(self, "init_stop", tm_mllog_null());
    PUT(self, "run_start", tm_mllog_null());
    self->running = true;
    start_block(self, run->first_sample);
}

/* --- blocks and evaluations --------------------------------------------------------------------------------------- */

static void stop_block(mllog_sink *self, int64_t samples)
{
    int64_t now = now_ms(self);
    double  seconds = (double)(now - self->block_ms) * 1e-3;
    if (!self->in_block) return;
    if (seconds > 0) {
        tm_mllog_field throughput = { "throughput", tm_mllog_f64((double)(samples - self->block_samples) / seconds) };
        tm_mllog_field step = { "step", tm_mllog_i64(samples) };
        PUT_AT(self, now, "tracked_stats", tm_mllog_fields(&throughput, 1), &step, 1);
    }
    PUT_SAMPLES(self, "block_stop", tm_mllog_null(), samples);
    self->in_block = false;
}

static void start_evaluation(mllog_sink *self, int64_t samples)
{
    stop_block(self, samples);
    PUT_SAMPLES(self, "eval_start", tm_mllog_null(), samples);
    self->in_evaluation = true;
}

static void stop_evaluation(mllog_sink *self, int64_t samples)
{
    if (self->in_evaluation) PUT_SAMPLES(self, "eval_stop", tm_mllog_null(), samples);
    self->in_evaluation = false;
}

static void on_evaluation(mllog_sink *self, const tm_evaluation *evaluation)
{
    self->met = self->met || evaluation->loss <= self->options.benchmark->target;
    PUT_SAMPLES(self, "eval_accuracy", tm_mllog_f64(evaluation->loss), evaluation->samples);
    stop_evaluation(self, evaluation->samples);
    if (!evaluation->last) start_block(self, evaluation->samples);
}

static void on_end(mllog_sink *self, const tm_run_ended *run)
{
    stop_block(self, run->samples);
    stop_evaluation(self, run->samples); /* one that was cut short: it has no accuracy */
    tm_mllog_field end[] = { { "samples_count", tm_mllog_i64(run->samples) },
                             { "status", tm_mllog_text(self->met ? "success" : "aborted") } };
    PUT_AT(self, now_ms(self), "run_stop", tm_mllog_null(), end, 2);
    PUT(self, "train_samples", tm_mllog_i64(run->samples));
}

static void handle(tm_sink *sink, const tm_event *event)
{
    mllog_sink *self = (mllog_sink *)sink;
    switch (event->kind) {
    case TM_EVENT_RUN_STARTED:
        on_start(self, &event->run_started);
        break;
    case TM_EVENT_EVALUATION_STARTED:
        start_evaluation(self, event->evaluation_started.samples);
        break;
    case TM_EVENT_EVALUATION:
        on_evaluation(self, &event->evaluation);
        break;
    case TM_EVENT_RUN_ENDED:
        on_end(self, &event->run_ended);
        break;
    case TM_EVENT_STEP_DONE:
    case TM_EVENT_PICTURE:
    case TM_EVENT_CHECKPOINT:
    case TM_EVENT_LOOK:
    case TM_EVENT_BETWEEN_STEPS:
    case TM_EVENT_QUANTIZED:
    case TM_EVENT_REPLAYED:
    case TM_EVENT_STRAGGLER:
        break;
    }
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

/* Writes back what is dirty, then drops page cache, directory entries and inodes. */
static bool drop_caches(const char *path)
{
    sync();
    return tm_root_write("", path, "3\n");
}

static void finish(tm_sink *head)
{
    mllog_sink *self = (mllog_sink *)head;
    if (self->fd >= 0 && tm_again_sync(self->fd) != 0)
        (void)tm_fail(&self->head.error, TM_IO, "cannot flush '%s' to disk: %s", self->options.path, strerror(errno));
    if (self->fd >= 0 && tm_again_close(self->fd) != 0)
        (void)tm_fail(&self->head.error, TM_IO, "cannot close '%s': %s", self->options.path, strerror(errno));
    tm_text_fini(&self->line);
    tm_text_fini(&self->head_lines);
}

tm_status tm_mllog_sink_open(const tm_mllog_options *options, tm_sink **out, tm_error *err)
{
    (void)err;
    mllog_sink *self = tm_alloc(sizeof *self);
    *self = (mllog_sink){ .head = { .handle = handle, .close = finish }, .options = *options, .fd = -1 };
    record_text_reserve(&self->line, 4096);
    int64_t age_ns = tm_process_age_ns();
    self->opened_ms = tm_wall_ms();
    self->opened_ns = tm_now_ns();
    self->init_ms = self->opened_ms - (age_ns > 0 ? age_ns / 1000000 : 0);
    const char *path = options->drop_caches ? options->drop_caches : "/proc/sys/vm/drop_caches";
    if (options->clear_caches && drop_caches(path))
        self->cleared_ms = now_ms(self);
    else if (options->clear_caches)
        tm_warn(
            "the caches of the file system were not dropped (cannot write '%s': %s): the log has no cache_clear and "
            "does not comply; only root may do that, or set mlperf.clear_caches false",
            path, strerror(errno));
    *out = &self->head;
    return TM_OK;
}

/* The last part of the path of a configuration. */
static const char *name_of(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "command line";
}

static bool benchmarked(const tm_output_options *o)
{
    return tm_mlperf_benchmark_of(o->config);
}

static tm_status open_mllog(const tm_output_options *o, const char *path, tm_arena *arena, tm_sink **out, tm_error *err)
{
    (void)path;
    const tm_config *c = o->config;
    tm_mllog_options log = { .path = record_path(o, arena, tm_config_text(c, "mlperf.log")),
                             .benchmark = tm_mlperf_benchmark_of(c),
                             .org = tm_config_text(c, "mlperf.submission_org"),
                             .platform = tm_config_text(c, "mlperf.submission_platform"),
                             .division = tm_config_text(c, "mlperf.submission_division"),
                             .status = tm_config_text(c, "mlperf.submission_status"),
                             .poc_name = tm_config_text(c, "mlperf.submission_poc_name"),
                             .poc_email = tm_config_text(c, "mlperf.submission_poc_email"),
                             .config_filename = name_of(tm_config_file(c)),
                             .clear_caches = tm_config_bool(c, "mlperf.clear_caches") };
    if (!log.platform) log.platform = tm_environment_text(o->environment, "cpu", NULL, "model");
    TM_TRY(tm_file_check_writable(log.path, "mlperf.log", err));
    if (!log.platform || !*log.platform)
        return tm_fail(err, TM_INVALID, "the name of the processor is not known; set mlperf.submission_platform");
    return tm_mllog_sink_open(&log, out, err);
}

const record_sink_kind record_mllog_kind = { .wanted = benchmarked, .open = open_mllog };
