/* SPDX-License-Identifier: Apache-2.0 */
/* train/checkpoint.c - saving. The order of the steps is the whole point:
 *
 *   1  data, then index, each flushed
 *   2  the completeness record, flushed; the temporary folder flushed, and so the three names
 *   3  rename to the final name, the checkpoint folder flushed
 *   4  only now are old checkpoints removed
 *
 * A crash before 3 leaves a temporary folder, which nobody loads and the next save removes.
 */
#include "train/checkpoint.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "train/checkpoint_io.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 20, MAX_FOLDER_LENGTH = 4000 };

typedef struct {
    const tm_checkpoint_io *io;
    tm_arena               *arena;
    tm_hasher              *hasher;
    void                   *buffer; /* CHUNK_BYTES */
    const char             *folder, *temporary, *final, *old;
    tm_error               *err;
} saver;

static tm_status failed_to(saver *s, const char *verb, const char *path, int cause)
{
    const char *cure = "";
    if (cause == ENOSPC || cause == EDQUOT)
        cure = "; free some space there, keep fewer checkpoints (checkpoint.keep_latest_k) or choose another "
               "checkpoint.folder";
    if (cause == EFBIG) cure = "; raise the file-size limit (ulimit -f) or choose another checkpoint.folder";
    if (cause == EACCES || cause == EPERM || cause == EROFS) cure = "; choose a checkpoint.folder that can be written";
    return tm_fail(s->err, TM_IO, "cannot %s '%s': %s%s; earlier checkpoints are unchanged", verb, path,
                   strerror(cause), cure);
}

static tm_status write_bytes(saver *s, int fd, const char *path, const void *data, size_t bytes)
{
    for (const char *from = data; bytes > 0;) {
        ssize_t n = s->io->write(s->io->context, fd, from, bytes < CHUNK_BYTES ? bytes : CHUNK_BYTES);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return failed_to(s, "write", path, n < 0 ? errno : ENOSPC);
        from += n;
        bytes -= (size_t)n;
    }
    return TM_OK;
}

static tm_status finish_file(saver *s, int fd, const char *path, tm_status st)
{
    while (st == TM_OK && s->io->sync(s->io->context, fd) != 0)
        if (errno != EINTR) st = failed_to(s, "flush", path, errno);
    if (s->io->close(s->io->context, fd) != 0 && st == TM_OK) st = failed_to(s, "close", path, errno);
    return st;
}

static tm_status write_file(saver *s, const char *name, const void *data, size_t bytes)
{
    const char *path = tm_arena_format(s->arena, "%s/%s", s->temporary, name);
    int         fd = s->io->create(s->io->context, path);
    if (fd < 0) return failed_to(s, "create", path, errno);
    return finish_file(s, fd, path, write_bytes(s, fd, path, data, bytes));
}

static tm_status write_tensor(saver *s, int fd, const char *path, const tm_checkpoint_tensor *t, uint64_t *hash)
{
    tm_hasher_restart(s->hasher);
    for (size_t done = 0; done < t->bytes;) { /* hashed just before it is written, while it is in cache */
        size_t n = t->bytes - done < CHUNK_BYTES ? t->bytes - done : CHUNK_BYTES;
        TM_TRY(t->memory->read(t->memory, tm_address_add(t->at, done), s->buffer, n, s->err));
        tm_hasher_add(s->hasher, s->buffer, n);
        TM_TRY(write_bytes(s, fd, path, s->buffer, n));
        done += n;
    }
    *hash = tm_hasher_value(s->hasher);
    return TM_OK;
}

/* Fills the records' places and checksums. */
static tm_status write_data(saver *s, const tm_checkpoint_tensor *tensors, tm_checkpoint_index *index)
{
    static const char zeros[TM_CHECKPOINT_ALIGN];
    const char       *path = tm_arena_format(s->arena, "%s/" TM_CHECKPOINT_DATA, s->temporary);
    int               fd = s->io->create(s->io->context, path);
    if (fd < 0) return failed_to(s, "create", path, errno);
    tm_status st = TM_OK;
    for (size_t i = 0; i < index->count && st == TM_OK; i++) {
        tm_checkpoint_record *r = &index->records[i];
        r->offset = tm_checkpoint_aligned(index->data_bytes);
        st = write_bytes(s, fd, path, zeros, (size_t)(r->offset - index->data_bytes));
        if (st == TM_OK) st = write_tensor(s, fd, path, &tensors[i], &r->hash);
        index->data_bytes = r->offset + r->bytes;
    }
    return finish_file(s, fd, path, st);
}

static tm_status sync_folder(saver *s, const char *path)
{
    return s->io->sync_folder(s->io->context, path) == 0 ? TM_OK : failed_to(s, "flush directory", path, errno);
}

static tm_status write_temporary(saver *s, const tm_checkpoint_tensor *tensors, tm_checkpoint_index *index)
{
    if (s->io->make_folder(s->io->context, s->temporary) != 0)
        return failed_to(s, "create directory", s->temporary, errno);
    TM_TRY(write_data(s, tensors, index));
    size_t index_bytes = tm_checkpoint_index_bytes(index);
    TM_ASSERT(index_bytes <= TM_CHECKPOINT_MAX_INDEX_BYTES);
    unsigned char *encoded = tm_arena_take(s->arena, index_bytes);
    tm_checkpoint_index_encode(index, encoded);
    TM_TRY(write_file(s, TM_CHECKPOINT_INDEX, encoded, index_bytes));
    tm_checkpoint_seal seal = { .step = index->state.step,
                                .index_bytes = index_bytes,
                                .index_hash = tm_hash(encoded, index_bytes),
                                .data_bytes = index->data_bytes };
    unsigned char      sealed[TM_CHECKPOINT_SEAL_BYTES];
    tm_checkpoint_seal_encode(&seal, sealed);
    TM_TRY(write_file(s, TM_CHECKPOINT_SEAL, sealed, sizeof sealed));
    return sync_folder(s, s->temporary);
}

/* 0, or why the folder is still there. Files that are not ours stay, and with them the folder. The completeness record
 * goes first, so that a half-removed checkpoint is an incomplete one. */
static int remove_checkpoint(const saver *s, const char *path)
{
    static const char *const names[] = { TM_CHECKPOINT_SEAL, TM_CHECKPOINT_INDEX, TM_CHECKPOINT_DATA };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *file = tm_arena_format(s->arena, "%s/%s", path, names[i]);
        if (s->io->remove_file(s->io->context, file) != 0 && errno != ENOENT) return errno;
    }
    if (s->io->remove_folder(s->io->context, path) != 0 && errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST)
        return errno;
    return 0;
}

static void remove_or_warn(const saver *s, const char *path)
{
    int cause = remove_checkpoint(s, path);
    if (cause) tm_warn("cannot remove '%s': %s", path, strerror(cause));
}

static bool is_sealed(const saver *s, const char *path, int64_t step)
{
    tm_error            ignored = { 0 };
    tm_checkpoint_index index;
    return tm_checkpoint_open(s->io, s->arena, path, step, &index, NULL, &ignored) == TM_OK;
}

/* Step N is there already: keeps it loadable as step-N.old until the new one has its name. */
static tm_status move_aside(saver *s, int64_t step)
{
    if (!tm_file_exists(s->final)) return TM_OK;
    if (tm_file_exists(s->old)) { /* a crash while replacing: one of the two is good */
        const char *worse = is_sealed(s, s->final, step) ? s->old : s->final;
        int         cause = remove_checkpoint(s, worse);
        if (cause) return failed_to(s, "remove", worse, cause);
        if (worse == s->final) return TM_OK;
    }
    if (s->io->rename(s->io->context, s->final, s->old) != 0) return failed_to(s, "rename", s->final, errno);
    return TM_OK;
}

static tm_status publish(saver *s, int64_t step)
{
    TM_TRY(move_aside(s, step));
    if (s->io->rename(s->io->context, s->temporary, s->final) != 0) {
        tm_status st = failed_to(s, "rename", s->temporary, errno);
        if (tm_file_exists(s->old) && !tm_file_exists(s->final)) s->io->rename(s->io->context, s->old, s->final);
        return st;
    }
    return sync_folder(s, s->folder);
}

/* Removes what dead processes left. Without locks only our own leftovers are known to be dead. */
static void sweep(const saver *s, bool locked)
{
    tm_checkpoint_entry *entries;
    size_t               count;
    if (tm_checkpoint_list(s->folder, s->arena, &entries, &count, NULL) != TM_OK) return;
    for (size_t i = 0; i < count; i++) {
        bool ours = entries[i].process == (int64_t)getpid();
        if (entries[i].kind == TM_CHECKPOINT_TEMPORARY && (locked || ours)) remove_or_warn(s, entries[i].path);
    }
}

/* Damaged ones do not count as kept: they go when enough good ones are later. */
static void prune(const saver *s, int64_t step, int keep_latest)
{
    tm_checkpoint_entry *entries;
    size_t               count;
    if (tm_checkpoint_list(s->folder, s->arena, &entries, &count, NULL) != TM_OK) return;
    int     kept = 0;
    int64_t good_step = -1;
    for (size_t i = 0; i < count; i++) {
        const tm_checkpoint_entry *e = &entries[i];
        if (e->step > step || e->kind == TM_CHECKPOINT_TEMPORARY) continue;
        if (e->step == good_step || (keep_latest > 0 && kept >= keep_latest)) {
            remove_or_warn(s, e->path);
        } else if (is_sealed(s, e->path, e->step)) {
            good_step = e->step;
            kept++;
        }
    }
}

static bool prefix_exists(saver *s, size_t length)
{
    return tm_file_exists(tm_arena_text_n(s->arena, s->folder, length));
}

/* mkdir -p whose new entries survive a crash. */
static tm_status make_checkpoint_folder(saver *s)
{
    size_t length = strlen(s->folder), at = length;
    if (length == 0 || length > MAX_FOLDER_LENGTH)
        return tm_fail(s->err, TM_INVALID, "checkpoint.folder '%.100s' has %zu characters, 1 to %d wanted", s->folder,
                       length, MAX_FOLDER_LENGTH);
    while (at > 0 && !prefix_exists(s, at)) {
        at--;
        while (at > 0 && s->folder[at] != '/') at--;
    }
    if (at == length) return TM_OK;
    TM_TRY(tm_folder_make(s->folder, s->err));
    const char *parent = at > 0 ? tm_arena_text_n(s->arena, s->folder, at) : s->folder[0] == '/' ? "/" : ".";
    while (at < length) {
        TM_TRY(sync_folder(s, parent));
        at++;
        while (at < length && s->folder[at] != '/') at++;
        parent = tm_arena_text_n(s->arena, s->folder, at);
    }
    return TM_OK;
}

static tm_checkpoint_index describe(saver *s, const tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors,
                                    size_t n)
{
    tm_checkpoint_index index = { .state = *state, .count = n };
    index.records = tm_arena_take(s->arena, (n + 1) * sizeof *index.records);
    for (size_t i = 0; i < n; i++) {
        const tm_checkpoint_tensor *t = &tensors[i];
        TM_ASSERT(t->name && t->dtype >= 0 && t->dtype <= 65535 && t->rank >= 0 && t->rank <= TM_CHECKPOINT_MAX_RANK);
        TM_ASSERT(t->memory || t->bytes == 0);
        tm_checkpoint_record *r = &index.records[i];
        *r = (tm_checkpoint_record){ .name = t->name, .dtype = t->dtype, .rank = t->rank, .bytes = t->bytes };
        memcpy(r->n, t->n, (size_t)t->rank * sizeof *t->n);
    }
    return index;
}

static tm_status save_locked(saver *s, const tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors, size_t n,
                             int keep_latest, bool locked)
{
    sweep(s, locked);
    tm_checkpoint_index index = describe(s, state, tensors, n);
    tm_status           st = write_temporary(s, tensors, &index);
    if (st == TM_OK) st = publish(s, state->step);
    if (st == TM_OK)
        prune(s, state->step, keep_latest);
    else
        remove_or_warn(s, s->temporary);
    return st;
}

tm_status tm_checkpoint_save_with(const tm_checkpoint_io *io, const char *folder, const tm_checkpoint_state *state,
                                  const tm_checkpoint_tensor *tensors, size_t n, int keep_latest, tm_error *err)
{
    TM_ASSERT(state->step >= 0 && state->samples_consumed >= 0 && keep_latest >= 0 && n <= UINT32_MAX);
    saver s = { .io = io, .arena = tm_arena_create(), .hasher = tm_hasher_create(), .folder = folder, .err = err };
    s.buffer = tm_alloc(CHUNK_BYTES);
    s.temporary = tm_checkpoint_path(s.arena, folder, state->step, TM_CHECKPOINT_TEMPORARY);
    s.final = tm_checkpoint_path(s.arena, folder, state->step, TM_CHECKPOINT_FINAL);
    s.old = tm_checkpoint_path(s.arena, folder, state->step, TM_CHECKPOINT_OLD);
    tm_status st = make_checkpoint_folder(&s);
    if (st == TM_OK) {
        int lock = tm_checkpoint_lock(folder, io->lock_wait_ms);
        if (lock == -1 && errno == EWOULDBLOCK)
            st = tm_fail(err, TM_IO, "another process saves to '%s'; give each run its own checkpoint.folder", folder);
        else if (lock == -1)
            st = failed_to(&s, "write to directory", folder, errno);
        else
            st = save_locked(&s, state, tensors, n, keep_latest, lock >= 0);
        tm_checkpoint_unlock(lock);
    }
    free(s.buffer);
    tm_hasher_destroy(s.hasher);
    tm_arena_destroy(s.arena);
    return st;
}

tm_status tm_checkpoint_save(const char *folder, const tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors,
                             size_t n, int keep_latest, tm_error *err)
{
    /* A write beyond RLIMIT_FSIZE also sends SIGXFSZ to this thread, which ends programs: we want the error only. */
    sigset_t limit, before;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &limit, &before);
    tm_status st = tm_checkpoint_save_with(&tm_checkpoint_system_io, folder, state, tensors, n, keep_latest, err);
    if (!sigismember(&before, SIGXFSZ)) {
        while (sigtimedwait(&limit, NULL, &(struct timespec){ 0 }) == SIGXFSZ) continue;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return st;
}
