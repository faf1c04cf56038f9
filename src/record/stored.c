/* SPDX-License-Identifier: Apache-2.0 */
/* record/stored.c - the run's place in the store of results (results/store.h): what its folder holds when it has ended.
 * It hears of the end after the files are written, and before what other programs' tables get (sinks.def): whatever
 * happens there, the run is stored. A store that somebody named and that cannot be used is an error
 * before the first step; the one in the home, which nobody asked for, is a warning. */
#include "base/log.h"
#include "record/sink.h"
#include "record/sink_kind.h"
#include "results/keep.h"

#include <stdlib.h>

typedef struct {
    tm_sink     head;
    tm_store   *store;
    const char *folder, *label;
    int64_t     id; /* of the run, once it is stored; 0: not yet */
} stored_sink;

static void handle(tm_sink *sink, const tm_event *event)
{
    stored_sink *self = (stored_sink *)sink;
    tm_result   *result = NULL;
    if (event->kind != TM_EVENT_RUN_ENDED) return;
    if (tm_result_load(self->folder, NULL, &result, &self->head.error) == TM_OK &&
        tm_results_keep(self->store, result, self->folder, self->label, &self->id, &self->head.error) != TM_OK)
        self->id = 0;
    tm_result_destroy(result);
}

static void finish(tm_sink *sink)
{
    stored_sink *self = (stored_sink *)sink;
    if (self->id > 0) tm_note("stored as result %lld", (long long)self->id);
    tm_store_close(self->store);
}

static const char *path_of(const tm_output_options *o, tm_arena *arena, bool *chosen)
{
    return tm_store_path(arena, tm_config_text(o->config, "store.path"), chosen);
}

static bool stores(const tm_output_options *o)
{
    bool        chosen;
    tm_arena   *arena = tm_arena_create();
    const char *path = path_of(o, arena, &chosen);
    tm_error    own = { 0 };
    tm_store   *store = NULL;
    bool        wanted = path && (tm_store_open(path, true, &store, &own) == TM_OK || chosen);
    if (path && !wanted) tm_warn("this run will not be stored: %s", own.text);
    tm_store_close(store);
    tm_arena_destroy(arena);
    return wanted;
}

static tm_status open_stored(const tm_output_options *o, const char *path, tm_arena *arena, tm_sink **out,
                             tm_error *err)
{
    bool         chosen;
    stored_sink *self = tm_alloc(sizeof *self);
    (void)path;
    *self = (stored_sink){ .head = { .handle = handle, .close = finish },
                           .folder = o->folder,
                           .label = tm_config_text(o->config, "store.label") };
    tm_status st = tm_store_open(path_of(o, arena, &chosen), true, &self->store, err);
    if (st != TM_OK) {
        free(self);
        return st;
    }
    *out = &self->head;
    return TM_OK;
}

const record_sink_kind record_stored_kind = { .wanted = stores, .open = open_stored };
