/* SPDX-License-Identifier: Apache-2.0 */
#include "train/checkpoint/view.h"

#include "train/checkpoint/io.h"

#include <stdlib.h>
#include <string.h>

struct tm_checkpoint_view {
    tm_arena            *arena;
    const char          *path;
    tm_checkpoint_index  index;
    tm_checkpoint_reader reader;
    const char          *state; /* of tm_checkpoint_view_take; NULL: none */
};

/* Is it "NAME.state"? */
static bool is_state(const char *record, const char *name, size_t length, const char *state)
{
    return strncmp(record, name, length) == 0 && record[length] == '.' && strcmp(record + length + 1, state) == 0;
}

static const tm_checkpoint_record *record_of(const tm_checkpoint_view *view, const char *name)
{
    const size_t length = strlen(name);
    for (size_t i = 0; view->state && i < view->index.count; i++)
        if (is_state(view->index.records[i].name, name, length, view->state)) return &view->index.records[i];
    for (size_t i = 0; i < view->index.count; i++)
        if (strcmp(view->index.records[i].name, name) == 0) return &view->index.records[i];
    return NULL;
}

static tm_status write_host(const tm_checkpoint_memory *memory, tm_address to, const void *from, size_t bytes,
                            tm_error *err)
{
    (void)memory;
    (void)err;
    memcpy((void *)to.at, from, bytes);
    return TM_OK;
}

static tm_status open_newest(tm_checkpoint_view *view, const char *folder, int64_t step, tm_error *err)
{
    tm_checkpoint_entry *entries;
    size_t               count;
    tm_error             first = { 0 };
    TM_TRY(tm_checkpoint_list(folder, view->arena, &entries, &count, err));
    for (size_t i = 0; i < count; i++) {
        tm_error why = { 0 };
        if (entries[i].kind == TM_CHECKPOINT_TEMPORARY || (step >= 0 && entries[i].step != step)) continue;
        view->path = entries[i].path;
        if (tm_checkpoint_open(&tm_checkpoint_system_io, view->arena, view->path, entries[i].step,
                               (tm_checkpoint_share){ .ranks = 1 }, &view->index, &why) == TM_OK)
            return TM_OK;
        tm_fail(&first, why.status, "'%s': %s", view->path, why.text);
    }
    if (first.text[0]) return tm_fail(err, TM_FORMAT, "no checkpoint in '%s' is usable: %s", folder, first.text);
    if (step >= 0)
        return tm_fail(err, TM_INVALID, "there is no checkpoint of step %lld in '%s'", (long long)step, folder);
    return tm_fail(err, TM_INVALID, "there is no checkpoint in '%s'", folder);
}

tm_status tm_checkpoint_view_open(const char *folder, int64_t step, tm_checkpoint_view **out, tm_error *err)
{
    tm_checkpoint_view *view = tm_alloc(sizeof *view);
    *view = (tm_checkpoint_view){ .arena = tm_arena_create() };
    tm_status st = open_newest(view, folder, step, err);
    tm_checkpoint_reader_open(&view->reader, &tm_checkpoint_system_io, view->arena, view->path, &view->index);
    if (st != TM_OK) {
        tm_checkpoint_view_close(view);
        return st;
    }
    *out = view;
    return TM_OK;
}

void tm_checkpoint_view_close(tm_checkpoint_view *view)
{
    if (!view) return;
    tm_checkpoint_reader_close(&view->reader);
    tm_arena_destroy(view->arena);
    free(view);
}

tm_status tm_checkpoint_view_take(tm_checkpoint_view *view, const char *state, tm_error *err)
{
    for (size_t i = 0; i < view->index.count; i++) {
        const char  *name = view->index.records[i].name;
        const size_t length = strlen(name), end = strlen(state) + 1;
        if (length <= end || !is_state(name, name, length - end, state)) continue;
        view->state = state;
        return TM_OK;
    }
    return tm_fail(err, TM_INVALID, "checkpoint '%s' holds no tensor NAME.%s", view->path, state);
}

tm_status tm_checkpoint_view_find(tm_checkpoint_view *view, const char *name, int *dtype, size_t *bytes, tm_error *err)
{
    const tm_checkpoint_record *r = record_of(view, name);
    tm_error                    own = { 0 };
    tm_status                   st = TM_OK;
    if (!r) return tm_fail(err, TM_INVALID, "checkpoint '%s' holds no tensor '%s'", view->path, name);
    for (size_t i = 0; i < r->n_pieces && st == TM_OK; i++)
        st = tm_checkpoint_read_piece(&view->reader, r, &view->index.pieces[r->first_piece + i], NULL, &own);
    *dtype = r->dtype;
    *bytes = (size_t)r->bytes;
    return st == TM_OK ? st : tm_fail(err, st, "checkpoint '%s': %s", view->path, own.text);
}

tm_status tm_checkpoint_view_read(tm_checkpoint_view *view, const char *name, size_t offset, void *to, size_t bytes,
                                  tm_error *err)
{
    static const tm_checkpoint_memory host = { .write = write_host };
    const tm_checkpoint_record       *r = record_of(view, name);
    tm_error                          own = { 0 };
    TM_ASSERT(r && offset <= r->bytes && bytes <= r->bytes - offset);
    const tm_checkpoint_tensor wanted = { .name = name,
                                          .bytes = bytes,
                                          .at = { (uintptr_t)to },
                                          .memory = &host,
                                          .part = { .whole_bytes = (size_t)r->bytes,
                                                    .row_bytes = (size_t)r->bytes,
                                                    .rows = 1,
                                                    .first_byte = offset,
                                                    .row_part = bytes } };
    tm_status                  st = tm_checkpoint_fetch(&view->reader, r, &wanted, &own);
    return st == TM_OK ? st : tm_fail(err, st, "checkpoint '%s': %s", view->path, own.text);
}
