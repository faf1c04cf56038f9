/* SPDX-License-Identifier: Apache-2.0 */
/* record/sink_kind.h - what an output of a run is made of; private to this room. One file per output, one row in
 * sinks.def. */
#ifndef TM_RECORD_SINK_KIND_H
#define TM_RECORD_SINK_KIND_H

#include "base/arena.h"
#include "record/outputs.h"

typedef struct {
    const char *file; /* that it writes in the folder of the run; NULL: none, or one that the options name */
    bool (*wanted)(const tm_output_options *options); /* NULL: by every run */
    /* `path`: of `file`, NULL without one. Texts made for the sink are taken from the arena, which outlives it. */
    tm_status (*open)(const tm_output_options *options, const char *path, tm_arena *arena, tm_sink **out,
                      tm_error *err);
} record_sink_kind;

/* A file of the run: in its folder, unless the name is a whole path. */
const char *record_path(const tm_output_options *options, tm_arena *arena, const char *name);

#define TM_SINK(name) extern const record_sink_kind record_##name##_kind;
#include "record/sinks.def"
#undef TM_SINK

#endif
