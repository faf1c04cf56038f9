/* SPDX-License-Identifier: Apache-2.0 */
/* record/losses.c - losses.csv: step and loss, for a plot; written when the run ends. */
#include "record/sink.h"
#include "record/sink_kind.h"

typedef struct {
    tm_sink     head;
    const char *path;
    tm_text     lines;
} losses_sink;

static void handle(tm_sink *sink, const tm_event *event)
{
    losses_sink *self = (losses_sink *)sink;
    char         loss[32];
    if (event->kind == TM_EVENT_STEP_DONE)
        tm_text_printf(&self->lines, "%lld,%s\n", (long long)event->step_done.step,
                       tm_format_double(loss, event->step_done.loss));
    if (event->kind == TM_EVENT_RUN_ENDED) record_sink_write(sink, self->path, &self->lines);
}

static void finish(tm_sink *sink)
{
    tm_text_fini(&((losses_sink *)sink)->lines);
}

static tm_status open_losses(const tm_output_options *o, const char *path, tm_arena *arena, tm_sink **out,
                             tm_error *err)
{
    (void)o, (void)arena, (void)err;
    losses_sink *self = tm_alloc(sizeof *self);
    *self = (losses_sink){ .head = { .handle = handle, .close = finish }, .path = path };
    tm_text_printf(&self->lines, "step,loss\n");
    *out = &self->head;
    return TM_OK;
}

const record_sink_kind record_losses_kind = { .file = "losses.csv", .open = open_losses };
