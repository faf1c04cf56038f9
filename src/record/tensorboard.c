/* SPDX-License-Identifier: Apache-2.0 */
/* record/tensorboard.c - an event file for TensorBoard: loss, gradient norm, learning rate and speed by step, as
 * scalars with the names that torchtitan gives them.
 *
 * The file is a list of TFRecords: length (uint64), masked CRC of the length, bytes, masked CRC of the bytes; all
 * little endian, the CRC is CRC-32C (Castagnoli), masked as ((c >> 15) | (c << 17)) + 0xa282ead8. The bytes are an
 * Event in the wire format of protocol buffers: 1 wall_time (double), 2 step (varint), 3 file_version (text) or 5
 * summary, which holds 1 value with 1 tag (text) and 2 simple_value (float).
 */
#include "base/clock.h"
#include "base/file.h"
#include "record/sink.h"
#include "record/sink_kind.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    tm_sink     head;
    const char *folder, *path;
    int         fd; /* -1: the run has not begun */
    off_t       complete_bytes;
    tm_text     bytes; /* records on their way; reused */
    double      flops_per_token;
} tensorboard_sink;

static uint32_t crc32c(const char *data, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned char)data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void add_little(tm_text *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) tm_text_add_n(out, &(char){ (char)(value >> 8 * i & 0xff) }, 1);
}

static void add_crc(tm_text *out, const char *data, size_t n)
{
    uint32_t crc = crc32c(data, n);
    add_little(out, (crc >> 15 | crc << 17) + 0xa282ead8u, 4);
}

static void add_varint(tm_text *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) add_little(out, (value & 0x7f) | 0x80, 1);
    add_little(out, value, 1);
}

/* A field with a length: text or a message. */
static void add_bytes(tm_text *out, int field, const char *data, size_t n)
{
    add_varint(out, (uint64_t)field << 3 | 2);
    add_varint(out, n);
    tm_text_add_n(out, data, n);
}

static void begin_event(tm_text *event, int64_t step)
{
    double   now = (double)tm_wall_ms() * 1e-3;
    uint64_t bits;
    memcpy(&bits, &now, sizeof bits);
    event->length = 0;
    add_varint(event, 1 << 3 | 1);
    add_little(event, bits, 8);
    add_varint(event, 2 << 3 | 0);
    add_varint(event, (uint64_t)step);
}

static void add_record(tm_text *out, const tm_text *event)
{
    size_t at = out->length;
    add_little(out, event->length, 8);
    add_crc(out, out->data + at, 8);
    tm_text_add_n(out, event->data, event->length);
    add_crc(out, event->data, event->length);
}

static void add_scalar(tensorboard_sink *self, int64_t step, const char *tag, double number)
{
    tm_text  value = { 0 }, summary = { 0 }, event = { 0 };
    float    single = (float)number;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    add_bytes(&value, 1, tag, strlen(tag));
    add_varint(&value, 2 << 3 | 5);
    add_little(&value, bits, 4);
    add_bytes(&summary, 1, value.data, value.length);
    begin_event(&event, step);
    add_bytes(&event, 5, summary.data, summary.length);
    add_record(&self->bytes, &event);
    tm_text_fini(&value);
    tm_text_fini(&summary);
    tm_text_fini(&event);
}

static void write_out(tensorboard_sink *self)
{
    record_sink_append(&self->head, self->fd, self->path, &self->complete_bytes, &self->bytes);
    self->bytes.length = 0;
}

/* A file of its own for every start: TensorBoard reads all of a folder. */
static void start(tensorboard_sink *self, const tm_run_started *run)
{
    static const char version[] = "brain.Event:2";
    tm_text           event = { 0 };
    self->flops_per_token = run->n_flops_per_token ? run->flops_per_token[0].value : (double)NAN;
    if (tm_folder_make(self->folder, &self->head.error) != TM_OK) return;
    self->fd = tm_file_open_new(self->path);
    if (self->fd < 0) {
        (void)tm_fail(&self->head.error, TM_IO, "cannot make '%s'", self->path);
        return;
    }
    begin_event(&event, 0);
    add_bytes(&event, 3, version, sizeof version - 1);
    add_record(&self->bytes, &event);
    write_out(self);
    tm_text_fini(&event);
}

static void add_step(tensorboard_sink *self, const tm_step_done *step)
{
    double rate = (double)step->tokens / step->seconds;
    add_scalar(self, step->step, "loss_metrics/global_avg_loss", step->loss);
    add_scalar(self, step->step, "grad_norm", step->grad_norm);
    add_scalar(self, step->step, "lr", step->learning_rate);
    add_scalar(self, step->step, "throughput(tps)", rate);
    if (isfinite(self->flops_per_token)) add_scalar(self, step->step, "tflops", rate * self->flops_per_token / 1e12);
    add_scalar(self, step->step, "time_metrics/end_to_end(s)", step->seconds);
}

static void handle(tm_sink *sink, const tm_event *event)
{
    tensorboard_sink *self = (tensorboard_sink *)sink;
    if (event->kind == TM_EVENT_RUN_STARTED) start(self, &event->run_started);
    if (self->fd < 0) return;
    if (event->kind == TM_EVENT_STEP_DONE) add_step(self, &event->step_done);
    if (event->kind == TM_EVENT_EVALUATION)
        add_scalar(self, event->evaluation.step, "validation_metrics/loss", event->evaluation.loss);
    if (self->bytes.length) write_out(self);
}

static void finish(tm_sink *sink)
{
    tensorboard_sink *self = (tensorboard_sink *)sink;
    if (self->fd >= 0) close(self->fd);
    tm_text_fini(&self->bytes);
}

static bool wanted(const tm_output_options *o)
{
    return tm_config_bool(o->config, "metrics.enable_tensorboard");
}

static tm_status open_tensorboard(const tm_output_options *o, const char *path, tm_arena *arena, tm_sink **out,
                                  tm_error *err)
{
    char host[72] = "host";
    (void)path;
    (void)err;
    if (gethostname(host, sizeof host - 1) != 0) strcpy(host, "host");
    tensorboard_sink *self = tm_alloc(sizeof *self);
    *self = (tensorboard_sink){ .head = { .handle = handle, .close = finish }, .fd = -1 };
    self->folder = record_path(o, arena, tm_config_text(o->config, "metrics.save_tb_folder"));
    self->path = tm_arena_format(arena, "%s/events.out.tfevents.%lld.%s.%ld", self->folder,
                                 (long long)(tm_wall_ms() / 1000), host, (long)getpid());
    record_text_reserve(&self->bytes, 4096);
    *out = &self->head;
    return TM_OK;
}

const record_sink_kind record_tensorboard_kind = { .wanted = wanted, .open = open_tensorboard };
