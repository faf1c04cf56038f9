/* SPDX-License-Identifier: Apache-2.0 */
/* train/checkpoint/checkpoint.c - saving. The order of the steps is the whole point:
 *
 *   1  data, then index, each flushed
 *   2  the completeness record, flushed; the temporary folder flushed, and so the names in it
 *   3  rename to the final name, the checkpoint folder flushed
 *   4  only now are old checkpoints removed
 *
 * A crash before 3 leaves a temporary folder, which nobody loads and the next save removes. Of several ranks each does
 * the first half of 1 for itself; when all have, rank 0 does the rest. What each has written comes to rank 0 as an
 * index of its own.
 */
#include "train/checkpoint/checkpoint.h"

#include "base/hash.h"
#include "train/parallel/agree.h"
#include "train/checkpoint/saving.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK_BYTES = TM_CHECKPOINT_CHUNK_BYTES };

/* --- what a rank writes ------------------------------------------------------------------------------------------- */

static bool is_whole(const tm_checkpoint_tensor *t)
{
    return t->part.whole_bytes == 0;
}

static void describe_one(const tm_checkpoint_tensor *t, bool plain, tm_checkpoint_record *r, tm_checkpoint_piece *p)
{
    TM_ASSERT(t->name && t->dtype >= 0 && t->dtype <= 65535 && t->rank >= 0 && t->rank <= TM_CHECKPOINT_MAX_RANK);
    TM_ASSERT(t->memory || t->bytes == 0);
    const tm_checkpoint_part part = tm_checkpoint_part_of(t);
    const size_t             row_bytes = is_whole(t) ? part.whole_bytes : t->part.row_bytes;
    TM_ASSERT(part.rows * part.row_part == t->bytes);
    *r = (tm_checkpoint_record){ .name = t->name,
                                 .dtype = t->dtype,
                                 .rank = t->rank,
                                 .bytes = part.whole_bytes,
                                 .row_bytes = row_bytes,
                                 .n_pieces = 1 };
    memcpy(r->n, t->n, (size_t)t->rank * sizeof *t->n);
    *p = (tm_checkpoint_piece){ .first_row = t->part.first_row,
                                .rows = t->part.rows,
                                .first_byte = t->part.first_byte,
                                .row_part = t->part.row_part };
    if (is_whole(t)) *p = (tm_checkpoint_piece){ .rows = 1, .row_part = t->bytes };
    if (!plain && (t->bytes == 0 || t->elsewhere)) r->n_pieces = 0;
}

/* A rank tells of all tensors that it has, but writes only what is not elsewhere: so one that nobody writes is found.
 */
static void describe(saver *s, const tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors, size_t n,
                     bool plain)
{
    tm_checkpoint_index *index = &s->index;
    *index = (tm_checkpoint_index){ .state = *state, .count = n, .safetensors = true };
    index->records = tm_arena_take(s->arena, (n + 1) * sizeof *index->records);
    index->pieces = tm_arena_take(s->arena, (n + 1) * sizeof *index->pieces);
    index->files = tm_arena_take(s->arena, sizeof *index->files);
    index->files[0].writer = plain ? -1 : s->rank;
    s->tensors = tm_arena_take(s->arena, (n + 1) * sizeof *s->tensors); /* tensor and piece have one number */
    for (size_t i = 0; i < n; i++) {
        describe_one(&tensors[i], plain, &index->records[i], &index->pieces[index->n_pieces]);
        index->records[i].first_piece = index->n_pieces;
        s->tensors[index->n_pieces] = tensors[i];
        index->n_pieces += index->records[i].n_pieces;
    }
    index->n_files = plain || index->n_pieces > 0;
    if (index->n_files > 0)
        s->data = tm_arena_format(s->arena, "%s/%s", s->temporary,
                                  tm_checkpoint_file_name(s->arena, index->files[0].writer, true));
}

/* One rank that writes all tensors whole leaves the files of a single process, if the others have the same tensors. */
static tm_status plan(saver *s, const tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors, size_t n)
{
    int64_t names = 0, said[3] = { 0 };
    for (size_t i = 0; i < n; i++) {
        names ^= (int64_t)(tm_hash(tensors[i].name, strlen(tensors[i].name)) >> 2);
        if (!is_whole(&tensors[i]) || tensors[i].elsewhere != (s->rank > 0)) said[0] = 1;
    }
    said[1] = names;
    said[2] = -names;
    TM_TRY(agree_max(s->target.world, "what ranks save", said, 3, s->err));
    s->in_pieces = said[0] || said[1] != -said[2];
    bool plain = !s->in_pieces;
    describe(s, state, tensors, plain && s->rank > 0 ? 0 : n, plain && s->rank == 0);
    return TM_OK;
}

/* --- copies, written behind the training's back ------------------------------------------------------------------- */

static tm_status copy_read(const tm_checkpoint_memory *memory, tm_address from, void *to, size_t bytes, tm_error *err)
{
    (void)memory;
    (void)err;
    memcpy(to, (const void *)from.at, bytes);
    return TM_OK;
}

static tm_status copy_tensors(saver *s)
{
    static const tm_checkpoint_memory copied = { .read = copy_read };
    size_t                            all = 0;
    for (size_t i = 0; i < s->index.n_pieces; i++) all += s->tensors[i].bytes;
    char *to = s->copies = all > 0 ? malloc(all) : NULL;
    if (all > 0 && !to)
        return tm_fail(s->err, TM_NOMEM,
                       "there is no memory for a copy of %zu bytes to save in the background; set "
                       "checkpoint.async_mode: disabled",
                       all);
    for (size_t i = 0; i < s->index.n_pieces; i++) {
        tm_checkpoint_tensor *t = &s->tensors[i];
        for (size_t done = 0; done < t->bytes;) {
            size_t n = t->bytes - done < CHUNK_BYTES ? t->bytes - done : CHUNK_BYTES;
            TM_TRY(t->memory->read(t->memory, tm_address_add(t->at, done), to + done, n, s->err));
            done += n;
        }
        t->at = (tm_address){ (uintptr_t)to };
        t->memory = &copied;
        to += t->bytes;
    }
    return TM_OK;
}

static void *write_behind(void *argument)
{
    saver *s = argument;
    s->status = saving_write_data(s);
    atomic_store(&s->written, true);
    return NULL;
}

static tm_status start_writing(saver *s)
{
    sigset_t all, before; /* signals are the main thread's business; SIGXFSZ would end the program */
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->threaded = pthread_create(&s->thread, NULL, write_behind, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return s->threaded ? TM_OK : tm_fail(s->err, TM_INTERNAL, "cannot start the thread that writes checkpoints");
}

/* --- the whole of it ---------------------------------------------------------------------------------------------- */

/* A write beyond RLIMIT_FSIZE also sends SIGXFSZ to this thread, which ends programs: we want the error only. */
static void hold_signal(sigset_t *before)
{
    sigset_t limit;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &limit, before);
}

static void drop_signal(const sigset_t *before)
{
    sigset_t limit;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    if (sigismember(before, SIGXFSZ)) return;
    while (sigtimedwait(&limit, NULL, &(struct timespec){ 0 }) == SIGXFSZ) continue;
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* Rank 0: the folder is this run's, and there is a temporary one in it. */
static tm_status make_temporary(saver *s)
{
    TM_TRY(saving_make_folder(s));
    s->lock = tm_checkpoint_lock(s->folder, s->io->lock_wait_ms);
    if (s->lock == -1 && errno == EWOULDBLOCK)
        return tm_fail(s->err, TM_IO, "another process saves to '%s'; give each run its own checkpoint.folder",
                       s->folder);
    if (s->lock == -1) return saving_failed_to(s, "write to directory", s->folder, errno);
    saving_sweep(s, s->lock >= 0);
    s->began = true;
    if (s->io->make_folder(s->io->context, s->temporary) != 0)
        return saving_failed_to(s, "create directory", s->temporary, errno);
    return TM_OK;
}

/* All ranks write into the folder that rank 0 has named. */
static tm_status name_paths(saver *s, int64_t step)
{
    int64_t process = getpid();
    TM_TRY(agree_bytes(s->target.world, "the directory of a checkpoint", &process, sizeof process, s->err));
    s->folder = tm_arena_text(s->arena, s->target.folder);
    s->temporary =
        tm_arena_format(s->arena, "%s.tmp.%lld", tm_checkpoint_path(s->arena, s->folder, step, TM_CHECKPOINT_FINAL),
                        (long long)process);
    s->final = tm_checkpoint_path(s->arena, s->folder, step, TM_CHECKPOINT_FINAL);
    s->old = tm_checkpoint_path(s->arena, s->folder, step, TM_CHECKPOINT_OLD);
    return TM_OK;
}

static tm_status begin(saver *s, const tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors, size_t n)
{
    TM_TRY(name_paths(s, state->step));
    TM_TRY(plan(s, state, tensors, n));
    tm_status st = s->rank == 0 ? make_temporary(s) : TM_OK;
    TM_TRY(agree_status(s->target.world, "beginning a checkpoint", st, s->err));
    st = s->target.behind ? copy_tensors(s) : TM_OK;
    if (st == TM_OK && s->target.behind) st = start_writing(s);
    if (s->target.behind) return agree_status(s->target.world, "copying for a checkpoint", st, s->err);
    s->status = saving_write_data(s); /* commit agrees on it */
    atomic_store(&s->written, true);
    return TM_OK;
}

/* Waits for the thread and gives all back; a checkpoint that did not come to be leaves nothing behind. */
static void release(saver *s, bool done)
{
    if (s->threaded) pthread_join(s->thread, NULL);
    if (!done && s->began) saving_remove(s, s->temporary);
    tm_checkpoint_unlock(s->lock);
    free(s->copies);
    free(s->buffer);
    tm_hasher_destroy(s->hasher);
    tm_arena_destroy(s->arena);
    free(s);
}

static tm_status give_up(saver *s, tm_status st, tm_error *err)
{
    if (st != TM_OK) (void)tm_fail(err, st, "%s", s->own.text);
    release(s, st == TM_OK);
    return st;
}

tm_status tm_checkpoint_begin_with(const tm_checkpoint_io *io, const tm_checkpoint_target *target,
                                   const tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors, size_t n,
                                   tm_checkpoint_saving **out, tm_error *err)
{
    TM_ASSERT(state->step >= 0 && state->samples_consumed >= 0 && target->keep_latest >= 0 && n <= UINT32_MAX);
    saver *s = tm_alloc(sizeof *s);
    *s = (saver){ .io = io,
                  .target = *target,
                  .rank = agree_rank(target->world),
                  .ranks = agree_ranks(target->world),
                  .arena = tm_arena_create(),
                  .hasher = tm_hasher_create(),
                  .buffer = tm_alloc(CHUNK_BYTES),
                  .lock = -2 };
    s->err = &s->own;
    *out = NULL;
    sigset_t before;
    hold_signal(&before);
    tm_status st = begin(s, state, tensors, n);
    if (st != TM_OK) st = give_up(s, st, err);
    drop_signal(&before);
    if (st == TM_OK) *out = s;
    return st;
}

tm_status tm_checkpoint_begin(const tm_checkpoint_target *target, const tm_checkpoint_state *state,
                              const tm_checkpoint_tensor *tensors, size_t n, tm_checkpoint_saving **out, tm_error *err)
{
    return tm_checkpoint_begin_with(&tm_checkpoint_system_io, target, state, tensors, n, out, err);
}

bool tm_checkpoint_written(const tm_checkpoint_saving *saving)
{
    return atomic_load(&saving->written);
}

static tm_status message(const saver *s, tm_comm_kind kind, int peer, void *data, size_t bytes)
{
    const tm_collective call = { .kind = kind,
                                 .format = TM_COMM_BYTES,
                                 .send = data,
                                 .receive = data,
                                 .count = bytes,
                                 .peer = peer,
                                 .what = "the index of a checkpoint",
                                 .step = s->index.state.step };
    return tm_comm_run(s->target.world, &call, s->err);
}

/* What this rank has written goes to rank 0. */
static tm_status send_index(saver *s)
{
    size_t         bytes = tm_checkpoint_index_bytes(&s->index);
    unsigned char *encoded = tm_arena_take(s->arena, bytes);
    int64_t        length = (int64_t)bytes;
    tm_checkpoint_index_encode(&s->index, encoded);
    TM_TRY(message(s, TM_COMM_SEND, 0, &length, sizeof length));
    return message(s, TM_COMM_SEND, 0, encoded, bytes);
}

static tm_status receive_indices(saver *s, tm_checkpoint_index *out)
{
    size_t          ranks = (size_t)s->ranks, *lengths = tm_arena_take(s->arena, ranks * sizeof *lengths);
    unsigned char **parts = tm_arena_take(s->arena, ranks * sizeof *parts);
    for (int r = 0; r < s->ranks; r++) {
        int64_t length = r == 0 ? (int64_t)tm_checkpoint_index_bytes(&s->index) : 0;
        if (r > 0) TM_TRY(message(s, TM_COMM_RECEIVE, r, &length, sizeof length));
        lengths[r] = (size_t)length;
        parts[r] = tm_arena_take(s->arena, lengths[r]);
        if (r > 0) TM_TRY(message(s, TM_COMM_RECEIVE, r, parts[r], lengths[r]));
        if (r == 0) tm_checkpoint_index_encode(&s->index, parts[r]);
    }
    return tm_checkpoint_merge(parts, lengths, s->ranks, s->arena, out, s->err);
}

/* Rank 0: all have written. */
static tm_status seal(saver *s)
{
    tm_checkpoint_index merged, *index = &s->index;
    if (s->in_pieces) {
        TM_TRY(receive_indices(s, &merged));
        index = &merged;
    }
    TM_TRY(saving_write_index(s, index));
    TM_TRY(saving_publish(s, index->state.step));
    saving_prune(s, index->state.step, s->target.keep_latest);
    return TM_OK;
}

static tm_status commit(saver *s)
{
    tm_comm *world = s->target.world;
    TM_TRY(agree_status(world, "writing a checkpoint", s->status, s->err));
    tm_status st = TM_OK;
    if (s->rank == 0)
        st = seal(s);
    else if (s->in_pieces)
        st = send_index(s);
    return agree_status(world, "finishing a checkpoint", st, s->err);
}

tm_status tm_checkpoint_commit(tm_checkpoint_saving *saving, tm_error *err)
{
    sigset_t before;
    if (saving->threaded) pthread_join(saving->thread, NULL);
    saving->threaded = false;
    hold_signal(&before);
    tm_status st = give_up(saving, commit(saving), err);
    drop_signal(&before);
    return st;
}

void tm_checkpoint_abandon(tm_checkpoint_saving *saving)
{
    if (saving) release(saving, false);
}

tm_status tm_checkpoint_save_with(const tm_checkpoint_io *io, const char *folder, const tm_checkpoint_state *state,
                                  const tm_checkpoint_tensor *tensors, size_t n, int keep_latest, tm_error *err)
{
    const tm_checkpoint_target target = { .folder = folder, .keep_latest = keep_latest };
    tm_checkpoint_saving      *saving;
    TM_TRY(tm_checkpoint_begin_with(io, &target, state, tensors, n, &saving, err));
    return tm_checkpoint_commit(saving, err);
}

tm_status tm_checkpoint_save(const char *folder, const tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors,
                             size_t n, int keep_latest, tm_error *err)
{
    return tm_checkpoint_save_with(&tm_checkpoint_system_io, folder, state, tensors, n, keep_latest, err);
}
