/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of checkpoints share: tensors that ranks hold in several layouts, whose bytes follow from a key, and
 * saving and loading them, alone and together. */
#ifndef TM_TESTS_CHECKPOINT_FIXTURE_H
#define TM_TESTS_CHECKPOINT_FIXTURE_H

#include "support/test.h"

#include "../comm/world.h"
#include "base/file.h"
#include "base/random.h"
#include "support/folder.h"
#include "train/checkpoint/saving.h"

enum { WHOLE = 6, WHOLE_BYTES = 1508, MAX_RANKS = 4, MAX_PARTS = 64, DEADLINE = 60 };

/* The tensors as they are without ranks: bytes, and those that an index of the first axis steps over. */
static const struct {
    const char *name;
    int         dtype, rank;
    int64_t     n[4];
    size_t      bytes, row;
} whole[WHOLE] = {
    { "embedding", TM_F32, 2, { 12, 9 }, 432, 36 },
    { "layers.0.norm", TM_F32, 1, { 19 }, 76, 4 },
    { "layers.0.wo.weight", TM_F32, 2, { 7, 24 }, 672, 96 },
    { "experts", TM_BF16, 3, { 2, 8, 10 }, 320, 160 },
    { "nothing", TM_BF16, 2, { 0, 3 }, 0, 0 },
    { "scale", 60000, 0, { 0 }, 8, 8 },
};

/* How a rank holds them. */
typedef enum { FIRST, SPREAD, FLAT, COLUMNS, BOTH, STAGES, LAYOUTS } layout;

typedef struct {
    size_t               n;
    tm_checkpoint_tensor tensors[MAX_PARTS];
    unsigned char        data[2048];
} holding;

/* --- what a rank holds -------------------------------------------------------------------------------------------- */

static inline tm_status host_read(const tm_checkpoint_memory *memory, tm_address from, void *to, size_t bytes,
                                  tm_error *err)
{
    (void)memory, (void)err;
    memcpy(to, (const void *)from.at, bytes);
    return TM_OK;
}

static inline tm_status host_write(const tm_checkpoint_memory *memory, tm_address to, const void *from, size_t bytes,
                                   tm_error *err)
{
    (void)memory, (void)err;
    memcpy((void *)to.at, from, bytes);
    return TM_OK;
}

static inline void place(tm_checkpoint_tensor *tensor, void *data)
{
    static const tm_checkpoint_memory host = { host_read, host_write, NULL };
    tensor->memory = data ? &host : NULL;
    tensor->at = (tm_address){ (uintptr_t)data };
}

static inline tm_checkpoint_tensor *add(holding *h, int t)
{
    assert_true(h->n < MAX_PARTS);
    tm_checkpoint_tensor *row = &h->tensors[h->n++];
    *row = (tm_checkpoint_tensor){
        .name = whole[t].name, .dtype = whole[t].dtype, .rank = whole[t].rank, .bytes = whole[t].bytes
    };
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
    if (from >= to) return;
    size_t row = from / width, last = to / width;
    if (row == last) {
        add_part(h, t, whole[t].row, row, 1, first + from % width, to - from);
        return;
    }
    if (from % width) add_part(h, t, whole[t].row, row++, 1, first + from % width, width - from % width);
    add_part(h, t, whole[t].row, row, last - row, first, width);
    add_part(h, t, whole[t].row, last, 1, first, to % width);
}

/* Columns by `tp` ranks, each block of which the others cut flat. */
static inline void add_block(holding *h, int t, int tp, int rank, int ranks)
{
    size_t width = whole[t].row / 4 / (size_t)tp * 4, first = width * (size_t)(rank % tp),
           shards = (size_t)(ranks / tp);
    if (rank % tp == tp - 1) width = whole[t].row - first;
    size_t all = whole[t].bytes / whole[t].row * width, piece = (all / 4 + shards - 1) / shards * 4;
    size_t from = piece * (size_t)(rank / tp), to = from + piece < all ? from + piece : all;
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
        else if (how == COLUMNS || how == BOTH)
            add_block(h, t, how == COLUMNS ? ranks : 2 - ranks % 2, rank, ranks);
        else if (how == STAGES && t % ranks == rank)
            add(h, t);
    }
    size_t used = 0;
    for (size_t i = 0; i < h->n; used += h->tensors[i++].bytes)
        place(&h->tensors[i], h->tensors[i].bytes ? h->data + used : NULL);
    assert_true(used <= sizeof h->data);
}

/* Sets the bytes that belong to a key, or counts those that are others. */
static inline size_t visit(holding *h, uint64_t key, bool set)
{
    size_t wrong = 0;
    for (size_t i = 0; i < h->n; i++) {
        const tm_checkpoint_tensor *row = &h->tensors[i];
        const tm_checkpoint_part    p =
            row->part.whole_bytes ? row->part : (tm_checkpoint_part){ row->bytes, row->bytes, 0, 1, 0, row->bytes };
        uint64_t t = 0;
        while (strcmp(whole[t].name, row->name) != 0) t++;
        for (size_t k = 0; k < row->bytes; k++) {
            size_t         from = (p.first_row + k / p.row_part) * p.row_bytes + p.first_byte + k % p.row_part;
            unsigned char *at = (unsigned char *)row->at.at + k, wanted = (unsigned char)tm_random_u64(key, t, from);
            wrong += *at != wanted;
            if (set) *at = wanted;
        }
    }
    return wrong;
}

/* `variant` tells two savings of one step apart. */
static inline uint64_t key_of(int64_t step, uint64_t variant)
{
    return (uint64_t)step * 100 + variant;
}

static inline tm_checkpoint_state state_of(int64_t step, uint64_t variant)
{
    tm_checkpoint_state s = { .step = step,
                              .samples_consumed = 8 * step,
                              .seed = UINT64_MAX - variant,
                              .config_hash = 0x0123456789ABCDEFu,
                              .content = 7,
                              .model = "llama3.2_1B",
                              .description = "dim 8\n" };
    tm_checkpoint_add_scalar(&s, "first_loss", 0.1 * (double)step);
    tm_checkpoint_add_scalar(&s, "zero", -0.0);
    tm_checkpoint_add_scalar(&s, "tiny", 5e-324);
    tm_checkpoint_add_scalar(&s, "a_name_as_long_as_names_of_scalars_get", 1e308);
    return s;
}

/* --- folders ------------------------------------------------------------------------------------------------------ */

/* In memory where possible: the tests flush thousands of times. */
static inline char *new_folder(void)
{
    if (access("/dev/shm", W_OK | X_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    return test_tree_make();
}

static inline const char *path_in(const char *folder, const char *name)
{
    static char     path[8][512];
    static unsigned turn;
    snprintf(path[++turn % 8], sizeof path[0], "%s/%s", folder, name);
    return path[turn % 8];
}

static inline bool exists(const char *folder, const char *name)
{
    return tm_file_exists(path_in(folder, name));
}

static inline size_t count_entries(const char *folder, tm_checkpoint_kind kind)
{
    tm_arena            *arena = tm_arena_create();
    tm_checkpoint_entry *entries;
    size_t               count, found = 0;
    assert_ok(tm_checkpoint_list(folder, arena, &entries, &count, err));
    for (size_t i = 0; i < count; i++) found += entries[i].kind == kind;
    tm_arena_destroy(arena);
    return found;
}

static inline void assert_says(const tm_error *err, const char *words)
{
    if (!strstr(err->text, words)) fail_msg("'%s' lacks '%s'", err->text, words);
}

/* --- one process -------------------------------------------------------------------------------------------------- */

static inline tm_status save_with(const tm_checkpoint_io *io, const char *folder, int64_t step, uint64_t variant,
                                  int keep, tm_error *err)
{
    static holding      h;
    tm_checkpoint_state state = state_of(step, variant);
    hold(&h, FIRST, 0, 1);
    visit(&h, key_of(step, variant), true);
    return tm_checkpoint_save_with(io, folder, &state, h.tensors, h.n, keep, err);
}

static inline void save(const char *folder, int64_t step, uint64_t variant, int keep)
{
    tm_error err = { 0 };
    if (save_with(&tm_checkpoint_system_io, folder, step, variant, keep, &err) != TM_OK)
        fail_msg("saving step %lld: %s", (long long)step, err.text);
}

typedef struct {
    holding              held;
    tm_checkpoint_state  state;
    tm_checkpoint_report report;
    tm_error             err;
} loaded;

/* Bytes and state are 0xEE. */
static inline void prepare(loaded *l)
{
    memset(l, 0, sizeof *l);
    hold(&l->held, FIRST, 0, 1);
    memset(l->held.data, 0xEE, sizeof l->held.data);
    memset(&l->state, 0xEE, sizeof l->state);
}

static inline bool untouched(const loaded *l)
{
    for (size_t i = 0; i < sizeof l->held.data; i++)
        if (l->held.data[i] != 0xEE) return false;
    for (size_t i = 0; i < sizeof l->state; i++)
        if (((const unsigned char *)&l->state)[i] != 0xEE) return false;
    return true;
}

/* step -1: the newest */
static inline tm_status load_with(const tm_checkpoint_io *io, const char *folder, int64_t step, loaded *l)
{
    prepare(l);
    return tm_checkpoint_load_with(io, NULL, folder, step, &l->state, l->held.tensors, l->held.n, &l->report, &l->err);
}

static inline tm_status load(const char *folder, int64_t step, loaded *l)
{
    prepare(l);
    return tm_checkpoint_load_newest(folder, step, &l->state, l->held.tensors, l->held.n, &l->report, &l->err);
}

static inline bool holds(loaded *l, int64_t step, uint64_t variant)
{
    tm_checkpoint_state wanted = state_of(step, variant);
    return visit(&l->held, key_of(step, variant), false) == 0 && memcmp(&l->state, &wanted, sizeof wanted) == 0;
}

static inline void load_and_expect(const char *folder, int64_t step, uint64_t variant)
{
    static loaded l;
    if (load(folder, -1, &l) != TM_OK) fail_msg("loading: %s", l.err.text);
    assert_int_equal(l.report.step, step);
    assert_true(holds(&l, step, variant));
}

/* --- several ranks ------------------------------------------------------------------------------------------------ */

typedef struct {
    const char             *folder;
    layout                  how;
    int64_t                 step;
    bool                    behind;
    const tm_checkpoint_io *io[MAX_RANKS]; /* NULL: the system's */
    tm_status               status[MAX_RANKS];
    tm_error                err[MAX_RANKS];
    int64_t                 wanted; /* to load; -1: the newest */
    void (*spoil)(holding *h, int rank);
} job;

static inline void save_rank(tm_comm *comm, void *context)
{
    job                    *j = context;
    int                     rank = tm_comm_rank(comm);
    holding                *h = tm_alloc(sizeof *h);
    tm_checkpoint_state     state = state_of(j->step, 0);
    tm_checkpoint_target    target = { .world = comm, .folder = j->folder, .keep_latest = 2, .behind = j->behind };
    tm_checkpoint_saving   *saving;
    const tm_checkpoint_io *io = j->io[rank] ? j->io[rank] : &tm_checkpoint_system_io;
    hold(h, j->how, rank, tm_comm_size(comm));
    visit(h, key_of(j->step, 0), true);
    if (j->spoil) j->spoil(h, rank);
    j->err[rank] = (tm_error){ 0 };
    j->status[rank] = tm_checkpoint_begin_with(io, &target, &state, h->tensors, h->n, &saving, &j->err[rank]);
    if (j->behind) visit(h, 99, true); /* training goes on */
    if (j->status[rank] == TM_OK) j->status[rank] = tm_checkpoint_commit(saving, &j->err[rank]);
    free(h);
}

static inline void load_rank(tm_comm *comm, void *context)
{
    job                    *j = context;
    int                     rank = tm_comm_rank(comm);
    loaded                 *l = tm_alloc(sizeof *l);
    const tm_checkpoint_io *io = j->io[rank] ? j->io[rank] : &tm_checkpoint_system_io;
    prepare(l);
    hold(&l->held, j->how, rank, tm_comm_size(comm));
    memset(l->held.data, 0xEE, sizeof l->held.data);
    j->err[rank] = (tm_error){ 0 };
    j->status[rank] = tm_checkpoint_load_with(io, comm, j->folder, j->wanted, &l->state, l->held.tensors, l->held.n,
                                              &l->report, &j->err[rank]);
    if (j->status[rank] == TM_OK) {
        j->step = l->state.step;
        CHECK(holds(l, l->state.step, 0));
    } else {
        CHECK(untouched(l));
    }
    free(l);
}

static inline void run_ranks(job *j, int ranks, void (*body)(tm_comm *comm, void *context), bool well)
{
    run_world(ranks, NULL, DEADLINE, false, body, j);
    for (int r = 0; r < ranks && well; r++)
        if (j->status[r] != TM_OK) fail_msg("layout %d, rank %d of %d: %s", (int)j->how, r, ranks, j->err[r].text);
}

static inline void expect_loaded(const char *folder, layout how, int ranks, int64_t step)
{
    job j = { .folder = folder, .how = how, .wanted = -1 };
    run_ranks(&j, ranks, load_rank, true);
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
