/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of checkpoints of several ranks share: tensors that ranks hold in several layouts, and jobs that save
 * and load them. */
#ifndef TM_TESTS_CHECKPOINT_RANKS_FIXTURE_H
#define TM_TESTS_CHECKPOINT_RANKS_FIXTURE_H

#include "support/test.h"
#include "checkpoint_fixture.h"

#include "../comm/world.h"
#include "base/arena.h"
#include "train/checkpoint/saving.h"

enum { WHOLE = 6, MAX_RANKS = 4, MAX_PARTS = 64, DEADLINE = 60 };

/* The tensors as they are without ranks: bytes, and those that an index of the first axis steps over. */
static const struct {
    const char *name;
    int         rank;
    int64_t     n[4];
    size_t      bytes, row;
} whole[WHOLE] = {
    { "embedding", 2, { 12, 9 }, 432, 36 },   { "layers.0.norm", 1, { 19 }, 76, 4 },
    { "layers.0.wo", 2, { 7, 24 }, 672, 96 }, { "experts", 3, { 2, 8, 5 }, 320, 160 },
    { "nothing", 2, { 0, 3 }, 0, 0 },         { "step", 0, { 0 }, 8, 8 },
};

static inline unsigned char byte_of(int64_t step, int tensor, size_t i)
{
    return (unsigned char)tm_random_u64((uint64_t)step, (uint64_t)tensor + 100, i);
}

/* How a rank holds them. */
typedef enum { FIRST, SPREAD, FLAT, COLUMNS, BOTH, STAGES, LAYOUTS } layout;

typedef struct {
    size_t               n;
    tm_checkpoint_tensor tensors[MAX_PARTS];
    unsigned char        data[8192];
    size_t               used;
} holding;

static inline tm_checkpoint_tensor *add(holding *h, int t)
{
    assert_true(h->n < MAX_PARTS);
    tm_checkpoint_tensor *row = &h->tensors[h->n++];
    *row = (tm_checkpoint_tensor){ .name = whole[t].name, .dtype = 1, .rank = whole[t].rank, .bytes = whole[t].bytes };
    memcpy(row->n, whole[t].n, sizeof row->n);
    return row;
}

static inline void add_part(holding *h, int t, size_t row_bytes, size_t first_row, size_t rows, size_t first_byte,
                            size_t row_part)
{
    if (rows == 0 || row_part == 0) return;
    tm_checkpoint_tensor *row = add(h, t);
    row->bytes = rows * row_part;
    row->part = (tm_checkpoint_part){ whole[t].bytes, row_bytes, first_row, rows, first_byte, row_part };
}

/* Bytes [from, to) of the block of columns [first, first + width) of a matrix, which may begin and end inside of a row:
 * up to three rectangles. */
static inline void add_flat(holding *h, int t, size_t first, size_t width, size_t from, size_t to)
{
    if (from >= to) return; /* also where there are no columns */
    size_t row = from / width, last = to / width;
    if (row == last) {
        add_part(h, t, whole[t].row, row, 1, first + from % width, to - from);
        return;
    }
    if (from % width) add_part(h, t, whole[t].row, row++, 1, first + from % width, width - from % width);
    add_part(h, t, whole[t].row, row, last - row, first, width);
    add_part(h, t, whole[t].row, last, 1, first, to % width);
}

/* Columns by `tp` ranks, each block of which `shards` ranks cut flat. */
static inline void add_block(holding *h, int t, int tp, int tp_at, int shards, int shard)
{
    size_t width = whole[t].row / 4 / (size_t)tp * 4, first = width * (size_t)tp_at;
    if (tp_at == tp - 1) width = whole[t].row - first;
    size_t all = whole[t].bytes / whole[t].row * width, piece = (all / 4 + (size_t)shards - 1) / (size_t)shards * 4;
    size_t from = piece * (size_t)shard, to = from + piece < all ? from + piece : all;
    add_flat(h, t, first, width, from, to);
}

static inline void hold(holding *h, layout how, int rank, int ranks)
{
    *h = (holding){ 0 };
    for (int t = 0; t < WHOLE; t++) {
        size_t shard = (whole[t].bytes + (size_t)ranks - 1) / (size_t)ranks, from = shard * (size_t)rank;
        size_t to = from + shard < whole[t].bytes ? from + shard : whole[t].bytes;
        if (how == FIRST || how == SPREAD || whole[t].bytes < 10)
            add(h, t)->elsewhere = how == SPREAD ? t % ranks != rank : rank != 0;
        else if (how == FLAT && from < to)
            add_part(h, t, whole[t].bytes, 0, 1, from, to - from);
        else if (how == COLUMNS)
            add_block(h, t, ranks, rank, 1, 0);
        else if (how == BOTH && ranks % 2 == 0)
            add_block(h, t, 2, rank % 2, ranks / 2, rank / 2);
        else if (how == BOTH)
            add_block(h, t, 1, 0, ranks, rank);
        else if (how == STAGES && t % ranks == rank)
            add(h, t);
    }
    for (size_t i = 0; i < h->n; i++) {
        place(&h->tensors[i], h->tensors[i].bytes ? h->data + h->used : NULL);
        h->used += h->tensors[i].bytes;
    }
    assert_true(h->used <= sizeof h->data);
}

/* Sets the bytes of a step, or counts those that are others. */
static inline size_t visit(holding *h, int64_t step, bool set)
{
    size_t wrong = 0;
    for (size_t i = 0; i < h->n; i++) {
        const tm_checkpoint_tensor *row = &h->tensors[i];
        int                         t = 0;
        while (strcmp(whole[t].name, row->name) != 0) t++;
        tm_checkpoint_part p = row->part;
        if (p.whole_bytes == 0) p = (tm_checkpoint_part){ row->bytes, row->bytes, 0, 1, 0, row->bytes };
        unsigned char *at = (unsigned char *)row->at.at;
        for (size_t k = 0; k < row->bytes; k++) {
            size_t        from = (p.first_row + k / p.row_part) * p.row_bytes + p.first_byte + k % p.row_part;
            unsigned char wanted = byte_of(step, t, from);
            wrong += at[k] != wanted;
            if (set) at[k] = wanted;
        }
    }
    return wrong;
}

/* --- worlds ------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char             *folder;
    layout                  how;
    int64_t                 step;
    bool                    behind;
    const tm_checkpoint_io *io[MAX_RANKS]; /* NULL: the system's */
    tm_status               status[MAX_RANKS];
    tm_error                err[MAX_RANKS];
    int64_t                 wanted; /* to load; -1: the newest */
    tm_checkpoint_report    report[MAX_RANKS];
    void (*spoil)(holding *h, int rank);
} job;

static inline tm_checkpoint_state state_of(int64_t step)
{
    tm_checkpoint_state state = { .step = step, .samples_consumed = 8 * step, .seed = 4, .model = "m" };
    tm_checkpoint_add_scalar(&state, "first_loss", 0.5);
    return state;
}

static inline void save_rank(tm_comm *comm, void *context)
{
    job                  *j = context;
    int                   rank = tm_comm_rank(comm);
    holding              *h = tm_alloc(sizeof *h);
    tm_checkpoint_state   state = state_of(j->step);
    tm_checkpoint_target  target = { .world = comm, .folder = j->folder, .keep_latest = 2, .behind = j->behind };
    tm_checkpoint_saving *saving;
    hold(h, j->how, rank, tm_comm_size(comm));
    visit(h, j->step, true);
    if (j->spoil) j->spoil(h, rank);
    j->err[rank] = (tm_error){ 0 };
    const tm_checkpoint_io *io = j->io[rank] ? j->io[rank] : &tm_checkpoint_system_io;
    j->status[rank] = tm_checkpoint_begin_with(io, &target, &state, h->tensors, h->n, &saving, &j->err[rank]);
    if (j->behind) visit(h, 99, true); /* training goes on */
    if (j->status[rank] == TM_OK) j->status[rank] = tm_checkpoint_commit(saving, &j->err[rank]);
    free(h);
}

static inline void load_rank(tm_comm *comm, void *context)
{
    job                *j = context;
    int                 rank = tm_comm_rank(comm);
    holding            *h = tm_alloc(sizeof *h);
    tm_checkpoint_state state = { 0 };
    hold(h, j->how, rank, tm_comm_size(comm));
    memset(h->data, 0xEE, sizeof h->data);
    j->err[rank] = (tm_error){ 0 };
    j->status[rank] = tm_checkpoint_load_together(comm, j->folder, j->wanted, &state, h->tensors, h->n,
                                                  &j->report[rank], &j->err[rank]);
    if (j->status[rank] == TM_OK) {
        j->step = state.step;
        CHECK(state.samples_consumed == 8 * state.step && state.n_scalars == 1);
        CHECK(visit(h, state.step, false) == 0);
    } else {
        for (size_t i = 0; i < sizeof h->data; i++) CHECK(h->data[i] == 0xEE);
    }
    free(h);
}

static inline void save_in(job *j, int ranks)
{
    run_world(ranks, NULL, DEADLINE, false, save_rank, j);
}

static inline void expect_saved(job *j, int ranks)
{
    save_in(j, ranks);
    for (int r = 0; r < ranks; r++)
        if (j->status[r] != TM_OK) fail_msg("layout %d, rank %d of %d: %s", (int)j->how, r, ranks, j->err[r].text);
}

static inline void expect_loaded(const char *folder, layout how, int ranks, int64_t step)
{
    job j = { .folder = folder, .how = how, .wanted = -1 };
    run_world(ranks, NULL, DEADLINE, false, load_rank, &j);
    for (int r = 0; r < ranks; r++)
        if (j.status[r] != TM_OK) fail_msg("layout %d, rank %d of %d: %s", (int)how, r, ranks, j.err[r].text);
    assert_int_equal(j.step, step);
}

static inline void expect_failure(const job *j, int ranks, tm_status status, const char *words)
{
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(j->status[r], status);
        assert_says(&j->err[r], words);
    }
}

#endif
