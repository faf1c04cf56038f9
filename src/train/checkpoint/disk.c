/* SPDX-License-Identifier: Apache-2.0 */
#include "train/checkpoint/saving.h"

#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK_BYTES = TM_CHECKPOINT_CHUNK_BYTES, MAX_FOLDER_LENGTH = 4000 };

tm_status saving_failed_to(saver *s, const char *verb, const char *path, int cause)
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
        if (n <= 0) return saving_failed_to(s, "write", path, n < 0 ? errno : ENOSPC);
        from += n;
        bytes -= (size_t)n;
    }
    return TM_OK;
}

static tm_status finish_file(saver *s, int fd, const char *path, tm_status st)
{
    while (st == TM_OK && s->io->sync(s->io->context, fd) != 0)
        if (errno != EINTR) st = saving_failed_to(s, "flush", path, errno);
    if (s->io->close(s->io->context, fd) != 0 && st == TM_OK) st = saving_failed_to(s, "close", path, errno);
    return st;
}

static tm_status write_file(saver *s, const char *name, const void *data, size_t bytes)
{
    const char *path = tm_arena_format(s->arena, "%s/%s", s->temporary, name);
    int         fd = s->io->create(s->io->context, path);
    if (fd < 0) return saving_failed_to(s, "create", path, errno);
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

static tm_status write_header(saver *s, int fd)
{
    tm_text       header = { 0 };
    unsigned char length[8];
    saving_header(s, &header);
    for (size_t i = 0; i < sizeof length; i++) length[i] = (unsigned char)((uint64_t)header.length >> 8 * i);
    s->index.data_bytes = sizeof length + header.length;
    tm_status st = write_bytes(s, fd, s->data, length, sizeof length);
    if (st == TM_OK) st = write_bytes(s, fd, s->data, header.data, header.length);
    tm_text_fini(&header);
    return st;
}

tm_status saving_write_data(saver *s)
{
    tm_checkpoint_index *index = &s->index;
    if (!s->data) return TM_OK;
    int fd = s->io->create(s->io->context, s->data);
    if (fd < 0 && errno == ENOENT && s->rank > 0)
        return tm_fail(s->err, TM_IO,
                       "cannot create '%s': the directory that rank 0 has made is not there; all hosts must see the "
                       "same checkpoint.folder",
                       s->data);
    if (fd < 0) return saving_failed_to(s, "create", s->data, errno);
    tm_status st = write_header(s, fd);
    for (size_t i = 0; i < index->n_pieces && st == TM_OK; i++) {
        tm_checkpoint_piece *p = &index->pieces[i];
        p->offset = index->data_bytes;
        st = write_tensor(s, fd, s->data, &s->tensors[i], &p->hash);
        index->data_bytes += tm_checkpoint_piece_bytes(p);
    }
    index->files[0].bytes = index->data_bytes;
    return finish_file(s, fd, s->data, st);
}

static tm_status sync_folder(saver *s, const char *path)
{
    return s->io->sync_folder(s->io->context, path) == 0 ? TM_OK : saving_failed_to(s, "flush directory", path, errno);
}

tm_status saving_write_index(saver *s, const tm_checkpoint_index *index)
{
    size_t index_bytes = tm_checkpoint_index_bytes(index);
    if (index_bytes > TM_CHECKPOINT_MAX_INDEX_BYTES)
        return tm_fail(s->err, TM_INTERNAL, "the index of the checkpoint would have %zu bytes, at most %d are possible",
                       index_bytes, TM_CHECKPOINT_MAX_INDEX_BYTES);
    unsigned char *encoded = tm_arena_take(s->arena, index_bytes);
    tm_checkpoint_index_encode(index, encoded);
    TM_TRY(write_file(s, TM_CHECKPOINT_INDEX, encoded, index_bytes));
    tm_checkpoint_seal seal = { .step = index->state.step,
                                .index_bytes = index_bytes,
                                .index_hash = tm_hash(encoded, index_bytes),
                                .data_bytes = index->data_bytes,
                                .in_pieces = index->files[0].writer >= 0,
                                .safetensors = true };
    unsigned char      sealed[TM_CHECKPOINT_SEAL_BYTES];
    tm_checkpoint_seal_encode(&seal, sealed);
    TM_TRY(write_file(s, TM_CHECKPOINT_SEAL, sealed, sizeof sealed));
    return sync_folder(s, s->temporary);
}

/* The files of ranks in a checkpoint; 0 or why not. */
static int remove_parts(const saver *s, const char *path)
{
    DIR *dir = opendir(path);
    int  cause = 0;
    for (struct dirent *d; dir && cause == 0 && (d = readdir(dir));) {
        if (strncmp(d->d_name, "tensors-", 8) != 0) continue;
        long rank = strtol(d->d_name + 8, NULL, 10);
        if (rank < 0 || rank > INT32_MAX) continue;
        if (strcmp(tm_checkpoint_file_name(s->arena, rank, true), d->d_name) != 0 &&
            strcmp(tm_checkpoint_file_name(s->arena, rank, false), d->d_name) != 0)
            continue;
        const char *file = tm_arena_format(s->arena, "%s/%s", path, d->d_name);
        if (s->io->remove_file(s->io->context, file) != 0 && errno != ENOENT) cause = errno;
    }
    if (dir) closedir(dir);
    return cause;
}

/* 0, or why the folder is still there. Files that are not ours stay, and with them the folder. The completeness record
 * goes first, so that a half-removed checkpoint is an incomplete one. */
static int remove_checkpoint(const saver *s, const char *path)
{
    static const char *const names[] = { TM_CHECKPOINT_SEAL, TM_CHECKPOINT_INDEX, TM_CHECKPOINT_DATA,
                                         TM_CHECKPOINT_OLD_DATA };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *file = tm_arena_format(s->arena, "%s/%s", path, names[i]);
        if (s->io->remove_file(s->io->context, file) != 0 && errno != ENOENT) return errno;
    }
    int cause = remove_parts(s, path);
    if (cause) return cause;
    if (s->io->remove_folder(s->io->context, path) != 0 && errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST)
        return errno;
    return 0;
}

void saving_remove(const saver *s, const char *path)
{
    int cause = remove_checkpoint(s, path);
    if (cause) tm_warn("cannot remove '%s': %s", path, strerror(cause));
}

static bool is_sealed(const saver *s, const char *path, int64_t step)
{
    tm_error            ignored = { 0 };
    tm_checkpoint_index index;
    return tm_checkpoint_open(s->io, s->arena, path, step, (tm_checkpoint_share){ .ranks = 1 }, &index, &ignored) ==
           TM_OK;
}

/* Step N is there already: keeps it loadable as step-N.old until the new one has its name. */
static tm_status move_aside(saver *s, int64_t step)
{
    if (!tm_file_exists(s->final)) return TM_OK;
    if (tm_file_exists(s->old)) { /* a crash while replacing: one of the two is good */
        const char *worse = is_sealed(s, s->final, step) ? s->old : s->final;
        int         cause = remove_checkpoint(s, worse);
        if (cause) return saving_failed_to(s, "remove", worse, cause);
        if (worse == s->final) return TM_OK;
    }
    if (s->io->rename(s->io->context, s->final, s->old) != 0) return saving_failed_to(s, "rename", s->final, errno);
    return TM_OK;
}

tm_status saving_publish(saver *s, int64_t step)
{
    TM_TRY(move_aside(s, step));
    if (s->io->rename(s->io->context, s->temporary, s->final) != 0) {
        tm_status st = saving_failed_to(s, "rename", s->temporary, errno);
        if (tm_file_exists(s->old) && !tm_file_exists(s->final)) s->io->rename(s->io->context, s->old, s->final);
        return st;
    }
    return sync_folder(s, s->folder);
}

void saving_sweep(const saver *s, bool locked)
{
    tm_checkpoint_entry *entries;
    size_t               count;
    if (tm_checkpoint_list(s->folder, s->arena, &entries, &count, NULL) != TM_OK) return;
    for (size_t i = 0; i < count; i++) {
        bool ours = entries[i].process == (int64_t)getpid();
        if (entries[i].kind == TM_CHECKPOINT_TEMPORARY && (locked || ours)) saving_remove(s, entries[i].path);
    }
}

void saving_prune(const saver *s, int64_t step, int keep_latest)
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
            saving_remove(s, e->path);
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

tm_status saving_make_folder(saver *s)
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
