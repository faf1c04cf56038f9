/* SPDX-License-Identifier: Apache-2.0 */
/* record/metrics.c - metrics.jsonl: one JSON object per line. A line is in the file when its step ends, whatever
 * becomes of the process; on the disk, a second later at most, and at once with a checkpoint, an evaluation and the end
 * of the run. */
#include "base/again.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "record/committer.h"
#include "record/look.h"
#include "record/record.h"
#include "record/sink.h"
#include "record/sink_kind.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    tm_sink     head;
    const char *path;
    int         fd;
    off_t       complete_bytes; /* up to the last whole line */
    int (*sync)(int fd);
    record_committer *committer;
    tm_text           line; /* reused: no allocation in a steady run */
} metrics_sink;

static void fail(metrics_sink *self, const char *what)
{
    (void)tm_fail(&self->head.error, TM_IO, "cannot %s '%s': %s; records after step lines already in it are lost", what,
                  self->path, strerror(errno));
}

/* Records of the steps before `first_step`, without a torn last line. */
static void read_earlier(metrics_sink *self, int64_t first_step, tm_text *kept)
{
    static const size_t limit = (size_t)8 << 30;
    tm_text             old = { 0 };
    if (first_step > 1 && tm_file_read(self->path, limit, &old, &self->head.error) == TM_OK) {
        char *next;
        for (char *line = old.data; *line; line = next) {
            next = strchr(line, '\n');
            if (!next) break;
            next++;
            json_t *record = json_loadb(line, (size_t)(next - line), 0, NULL);
            json_t *step = json_object_get(record, "step");
            if (json_is_integer(step) && json_integer_value(step) < first_step)
                tm_text_add_n(kept, line, (size_t)(next - line));
            json_decref(record);
        }
    }
    tm_text_fini(&old);
}

static void start(metrics_sink *self, int64_t first_step)
{
    tm_text       kept = { 0 };
    tm_file_draft draft = { .fd = -1 };
    tm_error     *err = &self->head.error;
    read_earlier(self, first_step, &kept);
    if (self->fd >= 0) close(self->fd);
    self->fd = -1;
    tm_status st = err->status;
    if (st == TM_OK) st = tm_file_draft_open(self->path, &draft, err);
    if (st == TM_OK) st = tm_file_draft_add(&draft, kept.data, kept.length, err);
    if (st == TM_OK) st = tm_file_draft_publish(&draft, &self->fd, err);
    tm_file_draft_discard(&draft);
    self->complete_bytes = (off_t)kept.length;
    tm_text_fini(&kept);
    if (st != TM_OK) return;
    self->committer = record_committer_start(self->path, self->fd, RECORD_COMMIT_MS, self->sync);
    if (!self->committer) (void)tm_fail(err, TM_INTERNAL, "cannot start the thread that flushes '%s'", self->path);
}

static void print_step(tm_json *json, const tm_step_done *step)
{
    tm_json_i64(json, "step", step->step);
    tm_json_f64(json, "loss", step->loss);
    tm_json_f64(json, "grad_norm", step->grad_norm);
    tm_json_f64(json, "learning_rate", step->learning_rate);
    tm_json_i64(json, "tokens", step->tokens);
    tm_json_i64(json, "target_tokens", step->target_tokens);
    tm_json_f64(json, "seconds", step->seconds);
    for (size_t i = 0; i < step->n_measures; i++) tm_json_f64(json, step->measures[i].name, step->measures[i].value);
    tm_json_open(json, "phases", '{');
    for (size_t i = 0; i < step->n_phases; i++) tm_json_f64(json, step->phases[i].name, step->phases[i].value);
    tm_json_close(json, '}');
    tm_json_i64(json, "used_bytes", step->used_bytes);
    tm_json_i64(json, "resident_bytes", step->resident_bytes);
}

static void print_evaluation(tm_json *json, const tm_evaluation *evaluation)
{
    tm_json_string(json, "event", "evaluation");
    tm_json_i64(json, "step", evaluation->step);
    tm_json_f64(json, "loss", evaluation->loss);
    tm_json_f64(json, "bits_per_byte", evaluation->bits_per_byte);
    for (size_t i = 0; i < evaluation->n_measures; i++)
        tm_json_f64(json, evaluation->measures[i].name, evaluation->measures[i].value);
    tm_json_i64(json, "tokens", evaluation->tokens);
    tm_json_i64(json, "target_tokens", evaluation->target_tokens);
    tm_json_f64(json, "seconds", evaluation->seconds);
}

static void print_picture(tm_json *json, const tm_picture_drawn *picture)
{
    tm_text name = record_picture_name(picture);
    tm_json_string(json, "event", "picture");
    tm_json_i64(json, "step", picture->step);
    tm_json_i64(json, "number", picture->number);
    tm_json_string(json, "file", name.data);
    tm_json_string(json, "caption", picture->caption);
    tm_json_f64(json, "seconds", picture->seconds);
    tm_text_fini(&name);
}

static void print_checkpoint(tm_json *json, const tm_checkpoint_saved *checkpoint)
{
    tm_json_string(json, "event", "checkpoint");
    tm_json_i64(json, "step", checkpoint->step);
    tm_json_string(json, "path", checkpoint->path);
    tm_json_i64(json, "bytes", checkpoint->bytes);
    tm_json_f64(json, "seconds", checkpoint->seconds);
}

static void print_look(tm_json *json, const tm_look *look)
{
    tm_json_string(json, "event", "microscope");
    tm_json_i64(json, "step", look->step);
    tm_look_print_json(look, true, json);
}

static void print_quantized(tm_json *json, const tm_quantized_step *quantized)
{
    tm_json_string(json, "event", "quantized");
    tm_json_i64(json, "step", quantized->step);
    tm_json_open(json, "factors", '[');
    for (size_t i = 0; i < quantized->n_factors; i++) {
        const tm_quantized_factor *factor = &quantized->factors[i];
        tm_json_open(json, NULL, '{');
        tm_json_string(json, "linear", factor->linear);
        tm_json_string(json, "factor", factor->factor);
        tm_json_f64(json, "amax", factor->amax);
        tm_json_f64(json, "scale", factor->scale);
        tm_json_f64(json, "saturated", factor->saturated);
        tm_json_f64(json, "flushed", factor->flushed);
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
}

static void print_replayed(tm_json *json, const tm_replayed *replayed)
{
    tm_json_string(json, "event", "replay");
    tm_json_i64(json, "step", replayed->step);
    tm_json_bool(json, "equal", !replayed->reason);
    tm_json_string(json, "reason", replayed->reason);
    tm_json_i64(json, "bytes", replayed->bytes);
    tm_json_f64(json, "seconds", replayed->seconds);
}

static void print_straggler(tm_json *json, const tm_straggler *straggler)
{
    tm_json_string(json, "event", "straggler");
    tm_json_i64(json, "step", straggler->step);
    record_print_straggler(json, straggler);
}

/* The line of an event; false: it has none. */
static bool print_event(tm_json *json, const tm_event *event)
{
    tm_json_open(json, NULL, '{');
    switch (event->kind) {
    case TM_EVENT_STEP_DONE:
        print_step(json, &event->step_done);
        break;
    case TM_EVENT_EVALUATION:
        print_evaluation(json, &event->evaluation);
        break;
    case TM_EVENT_PICTURE:
        print_picture(json, &event->picture);
        break;
    case TM_EVENT_CHECKPOINT:
        print_checkpoint(json, &event->checkpoint);
        break;
    case TM_EVENT_LOOK:
        print_look(json, &event->look);
        break;
    case TM_EVENT_QUANTIZED:
        print_quantized(json, &event->quantized);
        break;
    case TM_EVENT_REPLAYED:
        print_replayed(json, &event->replayed);
        break;
    case TM_EVENT_STRAGGLER:
        print_straggler(json, &event->straggler);
        break;
    default:
        return false;
    }
    tm_json_close(json, '}');
    return true;
}

static void told(metrics_sink *self, int cause)
{
    if (cause)
        (void)tm_fail(&self->head.error, TM_IO, "cannot keep '%s': %s; its records are lost", self->path,
                      cause == ENOENT ? "it was moved or removed during the run" : strerror(cause));
}

static void handle(tm_sink *sink, const tm_event *event)
{
    metrics_sink *self = (metrics_sink *)sink;
    if (event->kind == TM_EVENT_RUN_STARTED) start(self, event->run_started.first_step);
    self->line.length = 0;
    tm_json json = { .out = &self->line };
    if (!print_event(&json, event)) return;
    tm_text_add_n(&self->line, "\n", 1);
    if (!self->committer) return;
    record_sink_append(&self->head, self->fd, self->path, &self->complete_bytes, &self->line);
    record_committer_note(self->committer);
    bool may_wait = event->kind != TM_EVENT_EVALUATION && event->kind != TM_EVENT_CHECKPOINT;
    told(self, may_wait ? record_committer_cause(self->committer) : record_committer_flush(self->committer));
}

static void finish(tm_sink *head)
{
    metrics_sink *self = (metrics_sink *)head;
    told(self, record_committer_stop(self->committer));
    if (self->fd >= 0 && tm_again_close(self->fd) != 0) fail(self, "close");
    tm_text_fini(&self->line);
}

tm_status tm_metrics_sink_open(const tm_metrics_options *options, tm_sink **out, tm_error *err)
{
    int fd;
    TM_TRY(tm_file_open_append(options->path, &fd, err));
    metrics_sink *self = tm_alloc(sizeof *self);
    *self = (metrics_sink){ .head = { .handle = handle, .close = finish },
                            .path = options->path,
                            .fd = fd,
                            .sync = options->sync ? options->sync : tm_again_sync_data };
    record_text_reserve(&self->line, 16384);
    *out = &self->head;
    return TM_OK;
}

static tm_status open_metrics(const tm_output_options *o, const char *path, tm_arena *arena, tm_sink **out,
                              tm_error *err)
{
    (void)o;
    (void)arena;
    return tm_metrics_sink_open(&(tm_metrics_options){ .path = path }, out, err);
}

const record_sink_kind record_metrics_kind = { .file = "metrics.jsonl", .open = open_metrics };
