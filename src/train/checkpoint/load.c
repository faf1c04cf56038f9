/* SPDX-License-Identifier: Apache-2.0 */
/* train/checkpoint/load.c - loading. Files are read, not mapped: a bad disk block is an error here, not a SIGBUS. */
#include "base/hash.h"
#include "base/progress.h"
#include "base/text.h"
#include "train/parallel/agree.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REASONS = 3 };

typedef struct {
    const tm_checkpoint_io *io;
    tm_comm                *world;
    tm_checkpoint_share     share; /* of what is checked */
    tm_arena               *arena;
    const char             *path; /* of the checkpoint */
    tm_error               *err;
} loader;

static tm_status read_bytes(const loader *l, int fd, const char *name, void *to, size_t bytes, uint64_t offset)
{
    while (bytes > 0) {
        ssize_t n = l->io->read_at(l->io->context, fd, to, bytes, (int64_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tm_fail(l->err, TM_IO, "cannot read its file %s: %s", name, strerror(errno));
        if (n == 0) return tm_fail(l->err, TM_IO, "its file %s ends at byte %llu", name, (unsigned long long)offset);
        to = (char *)to + n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return TM_OK;
}

/* Opens a file of the checkpoint, which must have exactly `wanted` bytes. */
static tm_status open_file(const loader *l, const char *name, uint64_t wanted, int *fd)
{
    *fd = l->io->open(l->io->context, tm_arena_format(l->arena, "%s/%s", l->path, name));
    if (*fd < 0 && errno == ENOENT && strcmp(name, TM_CHECKPOINT_SEAL) == 0)
        return tm_fail(l->err, TM_FORMAT, "it is incomplete (no file " TM_CHECKPOINT_SEAL ")");
    if (*fd < 0) return tm_fail(l->err, TM_IO, "cannot open its file %s: %s", name, strerror(errno));
    int64_t size = l->io->size(l->io->context, *fd);
    int     cause = errno;
    if (size >= 0 && (uint64_t)size == wanted) return TM_OK;
    l->io->close(l->io->context, *fd);
    if (size < 0) return tm_fail(l->err, TM_IO, "cannot measure its file %s: %s", name, strerror(cause));
    return tm_fail(l->err, TM_FORMAT, "its file %s has %lld bytes, %llu wanted", name, (long long)size,
                   (unsigned long long)wanted);
}

static tm_status read_file(const loader *l, const char *name, void *to, size_t bytes)
{
    int fd;
    TM_TRY(open_file(l, name, bytes, &fd));
    tm_status st = read_bytes(l, fd, name, to, bytes, 0);
    l->io->close(l->io->context, fd);
    return st;
}

static tm_status check_file(const loader *l, const tm_checkpoint_index *index, const tm_checkpoint_file *file)
{
    int fd;
    TM_TRY(open_file(l, tm_checkpoint_file_name(l->arena, file->writer, index->safetensors), file->bytes, &fd));
    l->io->close(l->io->context, fd);
    return TM_OK;
}

tm_status tm_checkpoint_open(const tm_checkpoint_io *io, tm_arena *arena, const char *path, int64_t step,
                             tm_checkpoint_share share, tm_checkpoint_index *out, tm_error *err)
{
    loader             l = { .io = io, .arena = arena, .path = path, .err = err };
    unsigned char      sealed[TM_CHECKPOINT_SEAL_BYTES];
    tm_checkpoint_seal seal;
    TM_TRY(read_file(&l, TM_CHECKPOINT_SEAL, sealed, sizeof sealed));
    TM_TRY(tm_checkpoint_seal_decode(sealed, sizeof sealed, &seal, err));
    if (seal.step != step)
        return tm_fail(err, TM_FORMAT, "it holds step %lld, not %lld", (long long)seal.step, (long long)step);
    if (seal.index_bytes > TM_CHECKPOINT_MAX_INDEX_BYTES)
        return tm_fail(err, TM_FORMAT, "its index has %llu bytes, at most %d wanted",
                       (unsigned long long)seal.index_bytes, TM_CHECKPOINT_MAX_INDEX_BYTES);
    int fd; /* the size is checked before memory is taken for it */
    TM_TRY(open_file(&l, TM_CHECKPOINT_INDEX, seal.index_bytes, &fd));
    unsigned char *index = tm_arena_take(arena, (size_t)seal.index_bytes + 1);
    tm_status      st = read_bytes(&l, fd, TM_CHECKPOINT_INDEX, index, (size_t)seal.index_bytes, 0);
    io->close(io->context, fd);
    TM_TRY(st);
    if (tm_hash(index, (size_t)seal.index_bytes) != seal.index_hash)
        return tm_fail(err, TM_FORMAT, "its index does not match its checksum");
    TM_TRY(tm_checkpoint_index_decode(index, (size_t)seal.index_bytes, arena, out, err));
    if (out->state.step != step || out->data_bytes != seal.data_bytes)
        return tm_fail(err, TM_FORMAT, "its index and its completeness record disagree");
    for (size_t i = (size_t)share.rank; i < out->n_files; i += (size_t)share.ranks)
        TM_TRY(check_file(&l, out, &out->files[i]));
    return TM_OK;
}

static const char *shape_text(tm_arena *arena, int rank, const int64_t n[TM_CHECKPOINT_MAX_RANK])
{
    const char *text = "";
    for (int axis = 0; axis < rank; axis++)
        text = tm_arena_format(arena, "%s%s%lld", text, axis ? ", " : "", (long long)n[axis]);
    return tm_arena_format(arena, "(%s)", text);
}

static tm_status compare_tensor(const loader *l, const tm_checkpoint_record *found, const tm_checkpoint_tensor *wanted)
{
    size_t shape_bytes = (size_t)wanted->rank * sizeof *wanted->n, bytes = tm_checkpoint_part_of(wanted).whole_bytes;
    if (found->dtype == wanted->dtype && found->rank == wanted->rank && found->bytes == bytes &&
        memcmp(found->n, wanted->n, shape_bytes) == 0)
        return TM_OK;
    return tm_fail(
        l->err, TM_INVALID, "tensor '%s': found dtype %d, shape %s, %llu bytes; wanted dtype %d, shape %s, %zu bytes",
        wanted->name, found->dtype, shape_text(l->arena, found->rank, found->n), (unsigned long long)found->bytes,
        wanted->dtype, shape_text(l->arena, wanted->rank, wanted->n), bytes);
}

typedef struct {
    const char *name;
    size_t      record; /* of the index */
} found_name;

static int compare_names(const void *a, const void *b)
{
    const found_name *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* records[i] is the number of the record that holds tensors[i]; wanted[record]: 1 if it does. */
static tm_status match_own(const loader *l, const tm_checkpoint_index *index, const tm_checkpoint_tensor *tensors,
                           size_t n, size_t *records, int64_t *wanted)
{
    found_name *names = tm_arena_take(l->arena, (index->count + 1) * sizeof *names);
    for (size_t i = 0; i < index->count; i++) names[i] = (found_name){ .name = index->records[i].name, .record = i };
    qsort(names, index->count, sizeof *names, compare_names);
    for (size_t i = 1; i < index->count; i++)
        if (strcmp(names[i - 1].name, names[i].name) == 0)
            return tm_fail(l->err, TM_FORMAT, "its index names tensor '%s' twice", names[i].name);
    for (size_t i = 0; i < n; i++) {
        const tm_checkpoint_tensor *t = &tensors[i];
        found_name                  key = { .name = t->name };
        found_name                 *at = bsearch(&key, names, index->count, sizeof *names, compare_names);
        if (!at)
            return tm_fail(l->err, TM_INVALID, "tensor '%s', expected with dtype %d and shape %s, is missing", t->name,
                           t->dtype, shape_text(l->arena, t->rank, t->n));
        TM_TRY(compare_tensor(l, &index->records[at->record], t));
        /* names are unique, but for parts of a tensor and copies of rows of a table */
        TM_ASSERT(!wanted[at->record] || t->part.whole_bytes > 0 || t->elsewhere);
        wanted[at->record] = 1;
        records[i] = at->record;
    }
    return TM_OK;
}

/* The same on all ranks, and nothing is there that none of them wants. */
static tm_status match(const loader *l, const tm_checkpoint_index *index, const tm_checkpoint_tensor *tensors, size_t n,
                       size_t *records)
{
    int64_t  *wanted = tm_arena_take(l->arena, (index->count + 1) * sizeof *wanted);
    tm_status st = match_own(l, index, tensors, n, records, wanted);
    TM_TRY(agree_status(l->world, "comparing a checkpoint", st, l->err));
    TM_TRY(agree_max(l->world, "the tensors that are wanted", wanted, index->count, l->err));
    const tm_checkpoint_record *stray = NULL; /* the first by name */
    for (size_t i = 0; i < index->count; i++)
        if (!wanted[i] && (!stray || strcmp(index->records[i].name, stray->name) < 0)) stray = &index->records[i];
    if (!stray) return TM_OK;
    return tm_fail(l->err, TM_INVALID, "it holds tensor '%s' with dtype %d and shape %s, which is not expected",
                   stray->name, stray->dtype, shape_text(l->arena, stray->rank, stray->n));
}

/* The checksums of this rank's share of the pieces. */
static tm_status check_pieces(const loader *l, tm_checkpoint_reader *reader, const tm_checkpoint_index *index)
{
    for (size_t i = 0; i < index->count; i++) {
        const tm_checkpoint_record *record = &index->records[i];
        for (size_t k = 0; k < record->n_pieces; k++) {
            size_t piece = record->first_piece + k;
            if (piece % (size_t)l->share.ranks == (size_t)l->share.rank)
                TM_TRY(tm_checkpoint_read_piece(reader, record, &index->pieces[piece], NULL, l->err));
        }
    }
    return TM_OK;
}

static tm_status read_tensor(const loader *l, tm_checkpoint_reader *reader, const tm_checkpoint_record *record,
                             const tm_checkpoint_tensor *to)
{
    const tm_checkpoint_piece *piece = tm_checkpoint_same_piece(reader->index, record, to);
    if (piece) return tm_checkpoint_read_piece(reader, record, piece, to, l->err);
    return tm_checkpoint_fetch(reader, record, to, l->err);
}

static tm_status read_tensors(const loader *l, const tm_checkpoint_index *index, const tm_checkpoint_tensor *tensors,
                              size_t n, int64_t *bytes)
{
    size_t *records = tm_arena_take(l->arena, (n + 1) * sizeof *records);
    TM_TRY(match(l, index, tensors, n, records));
    tm_checkpoint_reader reader;
    tm_checkpoint_reader_open(&reader, l->io, l->arena, l->path, index);
    tm_status st = check_pieces(l, &reader, index);
    st = agree_status(l->world, "checking a checkpoint", st, l->err);
    if (st == TM_OK) {
        int64_t all = 0;
        for (size_t i = 0; i < n; i++) all += (int64_t)tensors[i].bytes;
        tm_progress progress = tm_progress_begin("reading the checkpoint", all);
        for (size_t i = 0; i < n && st == TM_OK; i++) {
            st = read_tensor(l, &reader, &index->records[records[i]], &tensors[i]);
            *bytes += (int64_t)tensors[i].bytes;
            tm_progress_add(&progress, (int64_t)tensors[i].bytes);
        }
        st = agree_status(l->world, "reading a checkpoint", st, l->err);
    }
    tm_checkpoint_reader_close(&reader);
    return st;
}

tm_status tm_checkpoint_read(const tm_checkpoint_io *io, tm_comm *world, const char *path, int64_t step,
                             tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors, size_t n, int64_t *bytes,
                             tm_error *err)
{
    loader              l = { .io = io,
                              .world = world,
                              .share = { agree_rank(world), agree_ranks(world) },
                              .arena = tm_arena_create(),
                              .path = path,
                              .err = err };
    tm_checkpoint_index index;
    *bytes = 0;
    tm_status st = tm_checkpoint_open(io, l.arena, path, step, l.share, &index, err);
    st = agree_status(world, "opening a checkpoint", st, err);
    if (st == TM_OK) st = read_tensors(&l, &index, tensors, n, bytes);
    if (st == TM_OK) *state = index.state;
    tm_arena_destroy(l.arena);
    return st;
}

static tm_status nothing_usable(const char *folder, int64_t step, const tm_text *reasons, tm_error *err)
{
    if (step >= 0)
        return tm_fail(err, TM_INVALID, "there is no checkpoint of step %lld in '%s'", (long long)step, folder);
    if (reasons->length == 0) return tm_fail(err, TM_INVALID, "there is no checkpoint in '%s'", folder);
    return tm_fail(err, TM_INVALID, "no checkpoint in '%s' is usable: %s; start again with another checkpoint.folder",
                   folder, reasons->data);
}

static void fill_report(tm_checkpoint_report *report, const tm_checkpoint_entry *entry, int64_t bytes,
                        size_t passed_over, const tm_text *reasons)
{
    *report = (tm_checkpoint_report){ .step = entry->step, .bytes = bytes, .passed_over = passed_over };
    if (passed_over == 0) return;
    snprintf(report->text, sizeof report->text,
             "loaded step %lld from '%s' because newer checkpoints are not usable: %s", (long long)entry->step,
             entry->path, reasons->data);
}

/* Tries the entries from the latest on. */
static tm_status load_first_usable(const tm_checkpoint_io *io, tm_comm *world, const char *folder, int64_t step,
                                   const tm_checkpoint_entry *entries, size_t count, tm_checkpoint_state *state,
                                   const tm_checkpoint_tensor *tensors, size_t n, tm_checkpoint_report *report,
                                   tm_text *reasons, tm_error *err)
{
    size_t passed_over = 0;
    for (size_t i = 0; i < count; i++) {
        const tm_checkpoint_entry *e = &entries[i];
        if (e->kind == TM_CHECKPOINT_TEMPORARY || (step >= 0 && e->step != step)) continue;
        tm_error  why = { 0 };
        int64_t   bytes;
        tm_status st = tm_checkpoint_read(io, world, e->path, e->step, state, tensors, n, &bytes, &why);
        if (st == TM_OK) {
            fill_report(report, e, bytes, passed_over, reasons);
            return TM_OK;
        }
        /* Ranks that do not reach each other say nothing about the checkpoint. */
        if (st == TM_DEVICE || st == TM_INTERNAL || (world && tm_comm_broken(world)))
            return tm_fail(err, st, "cannot load checkpoint '%s': %s", e->path, why.text);
        if (st == TM_INVALID)
            return tm_fail(err, st,
                           "checkpoint '%s' does not fit: %s; use the configuration it was made with, or another "
                           "checkpoint.folder",
                           e->path, why.text);
        bool is_last_of_step =
            i + 1 == count || entries[i + 1].step != e->step || entries[i + 1].kind != TM_CHECKPOINT_OLD;
        if (step >= 0 && is_last_of_step)
            return tm_fail(err, st, "cannot load checkpoint '%s': %s; name another step or none", e->path, why.text);
        if (passed_over < MAX_REASONS)
            tm_text_printf(reasons, "%s'%s': %s", passed_over ? "; " : "", e->path, why.text);
        else if (passed_over == MAX_REASONS)
            tm_text_add(reasons, "; and so on");
        passed_over++;
    }
    return nothing_usable(folder, step, reasons, err);
}

/* The list of rank 0: what others see of the folder may be older. */
static tm_status share_list(tm_comm *world, const char *folder, tm_arena *arena, tm_checkpoint_entry **entries,
                            size_t *count, tm_error *err)
{
    tm_status st = agree_rank(world) == 0 ? tm_checkpoint_list(folder, arena, entries, count, err) : TM_OK;
    TM_TRY(agree_status(world, "listing checkpoints", st, err));
    if (agree_ranks(world) == 1) return TM_OK;
    int64_t n = agree_rank(world) == 0 ? (int64_t)*count : 0;
    TM_TRY(agree_bytes(world, "the number of checkpoints", &n, sizeof n, err));
    int64_t *rows = tm_arena_take(arena, (size_t)(2 * n + 1) * sizeof *rows);
    for (int64_t i = 0; i < n && agree_rank(world) == 0; i++) {
        rows[2 * i] = (*entries)[i].step;
        rows[2 * i + 1] = (*entries)[i].kind;
    }
    TM_TRY(agree_bytes(world, "the list of checkpoints", rows, (size_t)(2 * n) * sizeof *rows, err));
    if (agree_rank(world) == 0) return TM_OK;
    *count = (size_t)n;
    *entries = tm_arena_take(arena, (size_t)(n + 1) * sizeof **entries);
    for (int64_t i = 0; i < n; i++) {
        tm_checkpoint_entry *e = &(*entries)[i];
        *e = (tm_checkpoint_entry){ .step = rows[2 * i], .kind = (tm_checkpoint_kind)rows[2 * i + 1] };
        e->path = tm_checkpoint_path(arena, folder, e->step, e->kind);
    }
    return TM_OK;
}

tm_status tm_checkpoint_load_with(const tm_checkpoint_io *io, tm_comm *world, const char *folder, int64_t step,
                                  tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors, size_t n,
                                  tm_checkpoint_report *report, tm_error *err)
{
    tm_arena            *arena = tm_arena_create();
    tm_text              reasons = { 0 };
    tm_checkpoint_entry *entries = NULL;
    size_t               count = 0;
    tm_status            st = share_list(world, folder, arena, &entries, &count, err);
    if (st == TM_OK)
        st = load_first_usable(io, world, folder, step, entries, count, state, tensors, n, report, &reasons, err);
    tm_text_fini(&reasons);
    tm_arena_destroy(arena);
    return st;
}

tm_status tm_checkpoint_load_together(tm_comm *world, const char *folder, int64_t step, tm_checkpoint_state *state,
                                      const tm_checkpoint_tensor *tensors, size_t n, tm_checkpoint_report *report,
                                      tm_error *err)
{
    TM_ASSERT(step >= -1);
    return tm_checkpoint_load_with(&tm_checkpoint_system_io, world, folder, step, state, tensors, n, report, err);
}

tm_status tm_checkpoint_load_newest(const char *folder, int64_t step, tm_checkpoint_state *state,
                                    const tm_checkpoint_tensor *tensors, size_t n, tm_checkpoint_report *report,
                                    tm_error *err)
{
    return tm_checkpoint_load_together(NULL, folder, step, state, tensors, n, report, err);
}

bool tm_checkpoint_present(const char *folder)
{
    tm_arena            *arena = tm_arena_create();
    tm_checkpoint_entry *entries;
    size_t               count, found = 0;
    if (tm_checkpoint_list(folder, arena, &entries, &count, NULL) == TM_OK)
        for (size_t i = 0; i < count; i++) found += entries[i].kind != TM_CHECKPOINT_TEMPORARY;
    tm_arena_destroy(arena);
    return found > 0;
}

tm_status tm_checkpoint_before(const char *folder, int64_t step, int64_t *before, tm_error *err)
{
    tm_arena            *arena = tm_arena_create();
    tm_checkpoint_entry *entries;
    size_t               count;
    tm_status            st = tm_checkpoint_list(folder, arena, &entries, &count, err);
    *before = 0;
    for (size_t i = 0; st == TM_OK && i < count; i++)
        if (entries[i].kind == TM_CHECKPOINT_FINAL && entries[i].step < step && entries[i].step > *before)
            *before = entries[i].step;
    tm_arena_destroy(arena);
    return st;
}
