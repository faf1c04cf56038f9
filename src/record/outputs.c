/* SPDX-License-Identifier: Apache-2.0 */
#include "record/outputs.h"

#include "base/log.h"
#include "record/record.h"
#include "record/sink_kind.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const record_sink_kind *const kinds[] = {
#define TM_SINK(name) &record_##name##_kind,
#include "record/sinks.def"
#undef TM_SINK
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };
_Static_assert(KINDS < 64, "a bit of `told` for each");

struct tm_outputs {
    tm_sink           watch; /* first on the bus: knows whether the run began */
    bool              began;
    uint64_t          told; /* bit i: that sink i of the bus has failed */
    tm_output_options options;
    tm_arena         *arena;
    tm_event_bus      bus;
};

const char *record_path(const tm_output_options *options, tm_arena *arena, const char *name)
{
    return name[0] == '/' ? tm_arena_text(arena, name) : tm_arena_format(arena, "%s/%s", options->folder, name);
}

/* Whoever waits for a run of days is told at once that its records are lost; vital sinks end it by themselves. */
static void tell_failures(tm_outputs *outputs)
{
    for (size_t i = 1; i < outputs->bus.count; i++) {
        const tm_sink *sink = outputs->bus.sinks[i];
        if (sink->error.status == TM_OK || sink->vital || outputs->told >> i & 1) continue;
        outputs->told |= UINT64_C(1) << i;
        tm_warn("%s; the run goes on without it", sink->error.text);
    }
}

static void watch(tm_sink *sink, const tm_event *event)
{
    tm_outputs *outputs = (tm_outputs *)sink;
    if (event->kind == TM_EVENT_RUN_STARTED) outputs->began = true;
    if (event->kind == TM_EVENT_STEP_DONE) tell_failures(outputs);
}

static tm_status open_all(tm_outputs *outputs, tm_error *err)
{
    const tm_output_options *o = &outputs->options;
    for (int i = 0; i < KINDS; i++) {
        tm_sink *sink;
        if (kinds[i]->wanted && !kinds[i]->wanted(o)) continue;
        const char *path = kinds[i]->file ? record_path(o, outputs->arena, kinds[i]->file) : NULL;
        TM_TRY(kinds[i]->open(o, path, outputs->arena, &sink, err));
        tm_event_bus_add(&outputs->bus, sink);
    }
    return TM_OK;
}

/* Outputs may make their file when they are opened, so that a run does not train for hours to find that it cannot. */
static void remove_empty_files(const tm_outputs *outputs)
{
    for (int i = 0; i < KINDS; i++) {
        struct stat info;
        if (!kinds[i]->file) continue;
        const char *path = record_path(&outputs->options, outputs->arena, kinds[i]->file);
        if (stat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0) unlink(path);
    }
}

tm_status tm_outputs_open(const tm_output_options *options, tm_outputs **out, tm_error *err)
{
    tm_outputs *outputs = tm_alloc(sizeof *outputs);
    *outputs = (tm_outputs){ .watch = { .handle = watch }, .options = *options, .arena = tm_arena_create() };
    tm_event_bus_add(&outputs->bus, &outputs->watch);
    tm_status st = open_all(outputs, err);
    bool      began;
    if (st != TM_OK) return tm_outputs_close(outputs, st, &began, err);
    *out = outputs;
    return TM_OK;
}

const tm_event_bus *tm_outputs_bus(const tm_outputs *outputs)
{
    return &outputs->bus;
}

tm_status tm_outputs_close(tm_outputs *outputs, tm_status st, bool *began, tm_error *err)
{
    for (size_t i = 1; i < outputs->bus.count; i++) {
        tm_error  own = { 0 };
        tm_status closed = tm_sink_close(outputs->bus.sinks[i], &own);
        if (closed == TM_OK) continue;
        if (st == TM_OK)
            st = tm_fail(err, closed, "%s", own.text);
        else if (!(outputs->told >> i & 1) && (!err || strcmp(own.text, err->text) != 0)) /* not by a vital one */
            tm_warn("%s", own.text);
    }
    *began = outputs->began;
    if (!outputs->began) remove_empty_files(outputs);
    tm_event_bus_fini(&outputs->bus);
    tm_arena_destroy(outputs->arena);
    free(outputs);
    return st;
}
