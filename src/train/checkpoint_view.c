/* SPDX-License-Identifier: Apache-2.0 */
#include "train/checkpoint_view.h"

#include "base/hash.h"
#include "train/checkpoint_io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 20 };

struct tm_checkpoint_view {
    tm_arena           *arena;
    const char         *path;
    tm_checkpoint_index index;
    int                 fd;
};

static const tm_checkpoint_record *record_of(const tm_checkpoint_view *view, const char *name)
{
    for (size_t i = 0; i < view->index.count; i++)
        if (strcmp(view->index.records[i].name, name) == 0) return &view->index.records[i];
    return NULL;
}

static tm_status read_at(const tm_checkpoint_view *view, uint64_t offset, void *to, size_t bytes, tm_error *err)
{
    const tm_checkpoint_io *io = &tm_checkpoint_system_io;
    while (bytes > 0) {
        ssize_t n = io->read_at(io->context, view->fd, to, bytes, (int64_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return tm_fail(err, TM_IO, "cannot read checkpoint '%s': %s", view->path,
                           n < 0 ? strerror(errno) : "it has become shorter");
        to = (char *)to + n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
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
        if (tm_checkpoint_open(&tm_checkpoint_system_io, view->arena, view->path, entries[i].step, &view->index,
                               &view->fd, &why) == TM_OK)
            return TM_OK;
        tm_fail(&first, why.status, "'%s': %s", view->path, why.text);
        view->fd = -1;
    }
    if (first.text[0]) return tm_fail(err, TM_FORMAT, "no checkpoint in '%s' is usable: %s", folder, first.text);
    if (step >= 0)
        return tm_fail(err, TM_INVALID, "there is no checkpoint of step %lld in '%s'", (long long)step, folder);
    return tm_fail(err, TM_INVALID, "there is no checkpoint in '%s'", folder);
}

tm_status tm_checkpoint_view_open(const char *folder, int64_t step, tm_checkpoint_view **out, tm_error *err)
{
    tm_checkpoint_view *view = tm_alloc(sizeof *view);
    *view = (tm_checkpoint_view){ .arena = tm_arena_create(), .fd = -1 };
    tm_status st = open_newest(view, folder, step, err);
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
    if (view->fd >= 0) tm_checkpoint_system_io.close(tm_checkpoint_system_io.context, view->fd);
    tm_arena_destroy(view->arena);
    free(view);
}

int64_t tm_checkpoint_view_step(const tm_checkpoint_view *view)
{
    return view->index.state.step;
}

tm_status tm_checkpoint_view_find(const tm_checkpoint_view *view, const char *name, int *dtype, size_t *bytes,
                                  tm_error *err)
{
    const tm_checkpoint_record *r = record_of(view, name);
    if (!r) return tm_fail(err, TM_INVALID, "checkpoint '%s' holds no tensor '%s'", view->path, name);
    void      *buffer = tm_alloc(CHUNK_BYTES);
    tm_hasher *hasher = tm_hasher_create();
    tm_status  st = TM_OK;
    for (uint64_t done = 0; done < r->bytes && st == TM_OK;) {
        size_t n = r->bytes - done < CHUNK_BYTES ? (size_t)(r->bytes - done) : CHUNK_BYTES;
        st = read_at(view, r->offset + done, buffer, n, err);
        tm_hasher_add(hasher, buffer, n);
        done += n;
    }
    if (st == TM_OK && tm_hasher_value(hasher) != r->hash)
        st = tm_fail(err, TM_FORMAT, "checkpoint '%s': tensor '%s' does not match its checksum", view->path, name);
    tm_hasher_destroy(hasher);
    free(buffer);
    *dtype = r->dtype;
    *bytes = (size_t)r->bytes;
    return st;
}

tm_status tm_checkpoint_view_read(const tm_checkpoint_view *view, const char *name, size_t offset, void *to,
                                  size_t bytes, tm_error *err)
{
    const tm_checkpoint_record *r = record_of(view, name);
    TM_ASSERT(r && offset <= r->bytes && bytes <= r->bytes - offset);
    return read_at(view, r->offset + offset, to, bytes, err);
}
