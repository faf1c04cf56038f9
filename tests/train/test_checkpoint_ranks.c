/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of several ranks: saved in any layout and loaded in any other, on other numbers of ranks; files that are
 * damaged, full disks and kills on the way; saving behind the training's back. */
#include "support/test.h"
#include "checkpoint_fixture.h"

#include "../comm/world.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "train/checkpoint/saving.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

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

static unsigned char byte_of(int64_t step, int tensor, size_t i)
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

static tm_checkpoint_tensor *add(holding *h, int t)
{
    assert_true(h->n < MAX_PARTS);
    tm_checkpoint_tensor *row = &h->tensors[h->n++];
    *row = (tm_checkpoint_tensor){ .name = whole[t].name, .dtype = 1, .rank = whole[t].rank, .bytes = whole[t].bytes };
    memcpy(row->n, whole[t].n, sizeof row->n);
    return row;
}

static void add_part(holding *h, int t, size_t row_bytes, size_t first_row, size_t rows, size_t first_byte,
                     size_t row_part)
{
    if (rows == 0 || row_part == 0) return;
    tm_checkpoint_tensor *row = add(h, t);
    row->bytes = rows * row_part;
    row->part = (tm_checkpoint_part){ whole[t].bytes, row_bytes, first_row, rows, first_byte, row_part };
}

/* Bytes [from, to) of the block of columns [first, first + width) of a matrix, which may begin and end inside of a row:
 * up to three rectangles. */
static void add_flat(holding *h, int t, size_t first, size_t width, size_t from, size_t to)
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
static void add_block(holding *h, int t, int tp, int tp_at, int shards, int shard)
{
    size_t width = whole[t].row / 4 / (size_t)tp * 4, first = width * (size_t)tp_at;
    if (tp_at == tp - 1) width = whole[t].row - first;
    size_t all = whole[t].bytes / whole[t].row * width, piece = (all / 4 + (size_t)shards - 1) / (size_t)shards * 4;
    size_t from = piece * (size_t)shard, to = from + piece < all ? from + piece : all;
    add_flat(h, t, first, width, from, to);
}

static void hold(holding *h, layout how, int rank, int ranks)
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
static size_t visit(holding *h, int64_t step, bool set)
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

static tm_checkpoint_state state_of(int64_t step)
{
    tm_checkpoint_state state = { .step = step, .samples_consumed = 8 * step, .seed = 4, .model = "m" };
    tm_checkpoint_add_scalar(&state, "first_loss", 0.5);
    return state;
}

static void save_rank(tm_comm *comm, void *context)
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

static void load_rank(tm_comm *comm, void *context)
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

static void save_in(job *j, int ranks)
{
    run_world(ranks, NULL, DEADLINE, false, save_rank, j);
}

static void expect_saved(job *j, int ranks)
{
    save_in(j, ranks);
    for (int r = 0; r < ranks; r++)
        if (j->status[r] != TM_OK) fail_msg("layout %d, rank %d of %d: %s", (int)j->how, r, ranks, j->err[r].text);
}

static void expect_loaded(const char *folder, layout how, int ranks, int64_t step)
{
    job j = { .folder = folder, .how = how, .wanted = -1 };
    run_world(ranks, NULL, DEADLINE, false, load_rank, &j);
    for (int r = 0; r < ranks; r++)
        if (j.status[r] != TM_OK) fail_msg("layout %d, rank %d of %d: %s", (int)how, r, ranks, j.err[r].text);
    assert_int_equal(j.step, step);
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

static void saved_in_any_layout_and_loaded_in_any_other(void **unused)
{
    (void)unused;
    fixture f = new_fixture();
    int64_t step = 0;
    for (layout how = FIRST; how < LAYOUTS; how++)
        for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
            job j = { .folder = f.folder, .how = how, .step = ++step, .behind = step % 2 };
            expect_saved(&j, ranks);
            for (layout other = FIRST; other < LAYOUTS; other++)
                expect_loaded(f.folder, other, 1 + (int)(step + other) % MAX_RANKS, step);
        }
    clear(f.folder);
}

static void read_all(const char *folder, const char *name, tm_text *out)
{
    char     path[512];
    tm_error err = { 0 };
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (tm_file_read(path, 1 << 20, out, &err) != TM_OK) fail_msg("%s", err.text);
}

/* Ranks of which one holds all leave what a single process does: those of before can read it. */
static void one_that_holds_all_writes_the_files_of_one(void **unused)
{
    (void)unused;
    static const char *const names[] = { "tensors.safetensors", "index.bin", "complete" };
    fixture                  f = new_fixture(), g = new_fixture();
    holding                 *h = tm_alloc(sizeof *h);
    tm_checkpoint_state      state = state_of(3);
    tm_error                 err = { 0 };
    job                      j = { .folder = f.folder, .how = FIRST, .step = 3 };
    expect_saved(&j, 3);
    hold(h, FIRST, 0, 1);
    visit(h, 3, true);
    assert_int_equal(tm_checkpoint_save(g.folder, &state, h->tensors, h->n, 2, &err), TM_OK);
    for (int i = 0; i < 3; i++) {
        char    name[64];
        tm_text a = { 0 }, b = { 0 };
        snprintf(name, sizeof name, "step-00000003/%s", names[i]);
        read_all(f.folder, name, &a);
        read_all(g.folder, name, &b);
        assert_true(a.length == b.length && memcmp(a.data, b.data, a.length) == 0);
        tm_text_fini(&a);
        tm_text_fini(&b);
    }
    expect_loaded(g.folder, BOTH, 4, 3);
    j = (job){ .folder = f.folder, .how = FLAT, .step = 4 }; /* files of ranks: the record says so */
    tm_text            record = { 0 };
    tm_checkpoint_seal seal;
    expect_saved(&j, 2), read_all(f.folder, "step-00000004/complete", &record);
    assert_true(!tm_checkpoint_seal_decode((unsigned char *)record.data, 56, &seal, &err) && seal.in_pieces);
    tm_text_fini(&record);
    free(h);
    clear(f.folder);
    clear(g.folder);
}

/* Every rank says the same, rank 0's word for it or "rank 1: ..." */
static void expect_failure(const job *j, int ranks, tm_status status, const char *words)
{
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(j->status[r], status);
        assert_says(&j->err[r], words);
    }
}

static void a_damaged_file_of_a_rank_is_named(void **unused)
{
    (void)unused;
    static const char *const names[] = { "tensors-00000.safetensors", "tensors-00002.safetensors", "index.bin",
                                         "complete" };
    fixture                  f = new_fixture();
    char                     path[512];
    for (int i = 0; i < 4; i++)
        for (int damage = 0; damage < 3; damage++) {
            job j = { .folder = f.folder, .how = FLAT, .step = 1 };
            expect_saved(&j, 3);
            j.step = 2;
            expect_saved(&j, 3);
            snprintf(path, sizeof path, "%s/step-00000002/%s", f.folder, names[i]);
            tm_text  bytes = { 0 };
            tm_error err = { 0 };
            assert_int_equal(tm_file_read(path, 1 << 20, &bytes, &err), TM_OK);
            bytes.data[i < 2 ? bytes.length - 1 : bytes.length / 2] ^= 4; /* behind the header */
            if (damage == 0)
                assert_int_equal(unlink(path), 0);
            else if (damage == 1)
                assert_int_equal(truncate(path, (off_t)bytes.length - 1), 0);
            else
                assert_int_equal(tm_file_write(path, bytes.data, bytes.length, &err), TM_OK);
            tm_text_fini(&bytes);
            expect_loaded(f.folder, COLUMNS, 2, 1); /* the older one */
            j = (job){ .folder = f.folder, .how = SPREAD, .wanted = 2 };
            run_world(2, NULL, DEADLINE, false, load_rank, &j);
            for (int r = 0; r < 2; r++) {
                if (j.status[r] != TM_FORMAT && j.status[r] != TM_IO) fail_msg("status %d", (int)j.status[r]);
                assert_says(&j.err[r], i == 2 ? "index" : i == 3 ? "complete" : names[i]);
            }
            clear(f.folder);
            assert_int_equal(mkdir(f.folder, 0700), 0);
        }
    clear(f.folder);
}

static void drop_one(holding *h, int rank)
{
    if (rank == 1) h->tensors[0].elsewhere = true;
}

static void drop_on_all(holding *h, int rank)
{
    (void)rank;
    h->tensors[h->n - 1].elsewhere = true;
}

static void drop_on_first(holding *h, int rank)
{
    if (rank == 0) h->n--;
}

static void save_twice(holding *h, int rank)
{
    if (rank == 1) h->tensors[h->n - 1].elsewhere = false;
}

static void change_shape(holding *h, int rank)
{
    if (rank == 1) h->tensors[0].n[0]++;
}

static void parts_that_are_not_the_whole_are_refused(void **unused)
{
    (void)unused;
    fixture f = new_fixture();
    job     j = { .folder = f.folder, .how = FLAT, .step = 1 };
    expect_saved(&j, 3);
    j.step = 2, j.spoil = drop_one, save_in(&j, 3);
    expect_failure(&j, 3, TM_INTERNAL, "'embedding', which are not its 432 bytes once each");
    j.spoil = drop_on_all, save_in(&j, 3);
    expect_failure(&j, 3, TM_INTERNAL, "the ranks save 0 bytes in 0 parts of tensor 'step'");
    j.how = FIRST, save_in(&j, 3);
    expect_failure(&j, 3, TM_INTERNAL, "the ranks save 0 bytes in 0 parts of tensor 'step'");
    j.spoil = drop_on_first, save_in(&j, 3); /* what rank 0 has is whole, but it is not all */
    expect_failure(&j, 3, TM_INTERNAL, "the ranks save 0 bytes in 0 parts of tensor 'step'");
    j.how = FLAT, j.spoil = save_twice, save_in(&j, 3);
    expect_failure(&j, 3, TM_INTERNAL, "tensor 'step'");
    j.spoil = change_shape, save_in(&j, 3);
    expect_failure(&j, 3, TM_INTERNAL, "ranks 0 and 1 save tensor 'embedding', but with other formats or shapes");
    assert_int_equal(count_entries(&f, TM_CHECKPOINT_TEMPORARY), 0);
    expect_loaded(f.folder, FLAT, 3, 1);
    clear(f.folder);
}

/* A tensor that nobody of the world wants, and one that is missing. */
static void other_tensors_are_refused_by_all(void **unused)
{
    (void)unused;
    fixture             f = new_fixture();
    holding            *h = tm_alloc(sizeof *h);
    tm_checkpoint_state state = state_of(1);
    tm_error            err = { 0 };
    job                 j = { .folder = f.folder, .how = STAGES, .wanted = -1 };
    hold(h, FIRST, 0, 1);
    assert_int_equal(tm_checkpoint_save(f.folder, &state, h->tensors, h->n - 1, 0, &err), TM_OK);
    run_world(3, NULL, DEADLINE, false, load_rank, &j);
    expect_failure(&j, 3, TM_INVALID, "tensor 'step', expected with dtype 1 and shape (), is missing");
    tm_checkpoint_tensor *more = add(h, 1);
    more->name = "stray";
    more->at = h->tensors[1].at;
    more->memory = h->tensors[1].memory;
    assert_int_equal(tm_checkpoint_save(f.folder, &state, h->tensors, h->n, 0, &err), TM_OK);
    run_world(3, NULL, DEADLINE, false, load_rank, &j);
    expect_failure(&j, 3, TM_INVALID, "it holds tensor 'stray'");
    free(h);
    clear(f.folder);
}

/* --- a disk that fails on one of the ranks ------------------------------------------------------------------------ */

typedef struct {
    int calls, fail_at;
} faults;

static bool fails(void *context)
{
    faults *f = context;
    errno = ENOSPC;
    return ++f->calls == f->fail_at;
}

static int bad_create(void *context, const char *path)
{
    return fails(context) ? -1 : tm_checkpoint_system_io.create(NULL, path);
}
static ssize_t bad_write(void *context, int fd, const void *data, size_t bytes)
{
    return fails(context) ? -1 : tm_checkpoint_system_io.write(NULL, fd, data, bytes);
}
static int bad_sync(void *context, int fd)
{
    return fails(context) ? -1 : tm_checkpoint_system_io.sync(NULL, fd);
}
static int bad_sync_folder(void *context, const char *path)
{
    return fails(context) ? -1 : tm_checkpoint_system_io.sync_folder(NULL, path);
}
static int bad_rename(void *context, const char *from, const char *to)
{
    return fails(context) ? -1 : tm_checkpoint_system_io.rename(NULL, from, to);
}
static int bad_make_folder(void *context, const char *path)
{
    return fails(context) ? -1 : tm_checkpoint_system_io.make_folder(NULL, path);
}

static void a_full_disk_on_one_rank_fails_all(void **unused)
{
    (void)unused;
    fixture f = new_fixture();
    job     j = { .folder = f.folder, .how = BOTH, .step = 1 };
    int64_t newest = 1;
    expect_saved(&j, 3);
    for (int rank = 0; rank < 3; rank += 2)
        for (int behind = 0; behind < 2; behind++)
            for (int k = 1, struck = 1; struck; k++) {
                faults           at = { .fail_at = k };
                tm_checkpoint_io io = tm_checkpoint_system_io;
                io.context = &at;
                io.create = bad_create;
                io.write = bad_write;
                io.sync = bad_sync;
                io.sync_folder = bad_sync_folder;
                io.rename = bad_rename;
                io.make_folder = bad_make_folder;
                j = (job){ .folder = f.folder, .how = BOTH, .step = newest + 1, .behind = behind };
                j.io[rank] = &io;
                save_in(&j, 3);
                struck = at.calls >= k;
                assert_true(k < 200 && (struck || k > 3));
                for (int r = 0; r < 3 && struck; r++) {
                    assert_int_equal(j.status[r], TM_IO);
                    assert_says(&j.err[r], "free some space");
                    char who[24];
                    snprintf(who, sizeof who, "rank %d: ", rank);
                    assert_true((strstr(j.err[r].text, who) != NULL) == (r != rank));
                }
                if (struck) assert_int_equal(count_entries(&f, TM_CHECKPOINT_TEMPORARY), 0);
                job l = { .folder = f.folder, .how = FLAT, .wanted = -1 };
                run_world(2, NULL, DEADLINE, false, load_rank, &l);
                assert_int_equal(l.status[0], TM_OK); /* a failed flush of the folder leaves the new one */
                assert_true(l.step == newest || l.step == newest + 1);
                assert_true(struck || l.step == newest + 1);
                newest = l.step;
            }
    clear(f.folder);
}

static int no_folder(void *context, const char *path)
{
    (void)context, (void)path;
    errno = ENOENT;
    return -1;
}

/* Rank 0 has made the directory, and others that do not see it say what is wrong; with rank 0 something else is. */
static void a_directory_that_others_do_not_see_is_said(void **unused)
{
    (void)unused;
    static const char *const cures[] = { "No such file or directory; earlier checkpoints are unchanged",
                                         "the directory that rank 0 has made is not there; all hosts" };
    tm_checkpoint_io         io = tm_checkpoint_system_io;
    io.create = no_folder;
    for (int rank = 0; rank < 2; rank++) {
        fixture f = new_fixture();
        job     j = { .folder = f.folder, .how = FLAT, .step = 1 };
        char    wanted[500];
        j.io[rank] = &io, save_in(&j, 2);
        snprintf(wanted, sizeof wanted, "cannot create '%s/step-00000001.tmp.%ld/tensors-%05d.safetensors': %s",
                 f.folder, (long)getpid(), rank, cures[rank]);
        expect_failure(&j, 2, TM_IO, wanted);
        clear(f.folder);
    }
}

/* --- behind ------------------------------------------------------------------------------------------------------- */

static void an_abandoned_one_leaves_the_one_before(void **unused)
{
    (void)unused;
    fixture               f = new_fixture();
    holding              *h = tm_alloc(sizeof *h);
    tm_checkpoint_state   state = state_of(2);
    tm_checkpoint_target  target = { .folder = f.folder, .keep_latest = 1, .behind = true };
    tm_checkpoint_saving *saving;
    tm_error              err = { 0 };
    job                   j = { .folder = f.folder, .how = FIRST, .step = 1 };
    expect_saved(&j, 1);
    hold(h, FIRST, 0, 1);
    visit(h, 2, true);
    assert_int_equal(tm_checkpoint_begin(&target, &state, h->tensors, h->n, &saving, &err), TM_OK);
    while (!tm_checkpoint_written(saving)) nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    expect_loaded(f.folder, SPREAD, 2, 1); /* written, but not there yet */
    assert_int_equal(count_entries(&f, TM_CHECKPOINT_TEMPORARY), 1);
    tm_checkpoint_abandon(saving);
    assert_int_equal(count_entries(&f, TM_CHECKPOINT_TEMPORARY), 0);
    expect_loaded(f.folder, SPREAD, 2, 1);
    assert_int_equal(tm_checkpoint_begin(&target, &state, h->tensors, h->n, &saving, &err), TM_OK);
    visit(h, 3, true);
    assert_int_equal(tm_checkpoint_commit(saving, &err), TM_OK);
    expect_loaded(f.folder, SPREAD, 2, 2);
    assert_int_equal(count_entries(&f, TM_CHECKPOINT_FINAL), 1);
    free(h);
    clear(f.folder);
}

/* --- replacing ---------------------------------------------------------------------------------------------------- */

static int rename_but_not_into_place(void *context, const char *from, const char *to)
{
    if (strstr(from, ".tmp") && !strstr(to, ".old")) {
        errno = EIO;
        return -1;
    }
    return tm_checkpoint_system_io.rename(context, from, to);
}

/* A crash has left a step twice, and the new one lacks the file of a rank: when it is replaced, and that fails too, the
 * whole one is still there. */
static void of_two_the_whole_one_is_kept(void **unused)
{
    (void)unused;
    static const char *const lost[] = { "tensors-00000.safetensors", "tensors-00001.safetensors",
                                        "tensors-00002.safetensors" };
    tm_checkpoint_io         io = tm_checkpoint_system_io;
    io.rename = rename_but_not_into_place;
    for (int i = 0; i < 3; i++) {
        fixture f = new_fixture();
        char    final[300], old[304], path[340];
        job     j = { .folder = f.folder, .how = FLAT, .step = 1 };
        snprintf(final, sizeof final, "%s/step-00000001", f.folder);
        snprintf(old, sizeof old, "%s.old", final);
        snprintf(path, sizeof path, "%s/%s", final, lost[i]);
        expect_saved(&j, 3);
        assert_int_equal(rename(final, old), 0);
        /* the program that saved it was killed before it had removed the old one */
        char *const copy[] = { "cp", "-r", old, final, NULL };
        pid_t       child = fork();
        if (child == 0) {
            execvp(copy[0], copy);
            _exit(1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(unlink(path), 0);
        for (int r = 0; r < 3; r++) j.io[r] = &io;
        save_in(&j, 3);
        assert_int_equal(j.status[0], TM_IO);
        expect_loaded(f.folder, COLUMNS, 2, 1);
        clear(f.folder);
    }
}

/* --- kills -------------------------------------------------------------------------------------------------------- */

static void save_for_ever(tm_comm *comm, void *context)
{
    job *j = context; /* one for each rank would be cleaner, but only the folder and the first step are read */
    for (int64_t step = j->step + 1;; step++) {
        job own = { .folder = j->folder, .how = (layout)(step % LAYOUTS), .step = step, .behind = step % 3 == 0 };
        save_rank(comm, &own);
        if (own.status[tm_comm_rank(comm)] != TM_OK) _exit(1);
    }
}

static void killed_at_random_moments(void **unused)
{
    (void)unused;
    fixture f = new_fixture();
    job     j = { .folder = f.folder, .how = FLAT, .step = 1 };
    int64_t last = 1;
    expect_saved(&j, 3);
    for (int round = 0; round < 25; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            j = (job){ .folder = f.folder, .step = last };
            run_world(1 + round % 3, NULL, DEADLINE, false, save_for_ever, &j);
            _exit(1);
        }
        nanosleep(&(struct timespec){ .tv_nsec = 8000000 + round * 900000 }, NULL);
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        job l = { .folder = f.folder, .how = COLUMNS, .wanted = -1 };
        run_world(2, NULL, DEADLINE, false, load_rank, &l);
        if (l.status[0] != TM_OK) fail_msg("round %d: %s", round, l.err[0].text);
        assert_true(l.step >= last);
        assert_int_equal(l.report[1].passed_over, 0); /* a kill never leaves a broken one under a final name */
        last = l.step;
    }
    assert_true(last > 1);
    j = (job){ .folder = f.folder, .how = BOTH, .step = last + 1 };
    expect_saved(&j, 4);
    assert_int_equal(count_entries(&f, TM_CHECKPOINT_TEMPORARY), 0);
    assert_int_equal(count_entries(&f, TM_CHECKPOINT_FINAL), 2);
    clear(f.folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(saved_in_any_layout_and_loaded_in_any_other),
    cmocka_unit_test(one_that_holds_all_writes_the_files_of_one),
    cmocka_unit_test(a_damaged_file_of_a_rank_is_named),
    cmocka_unit_test(parts_that_are_not_the_whole_are_refused),
    cmocka_unit_test(other_tensors_are_refused_by_all),
    cmocka_unit_test(a_full_disk_on_one_rank_fails_all),
    cmocka_unit_test(a_directory_that_others_do_not_see_is_said),
    cmocka_unit_test(an_abandoned_one_leaves_the_one_before),
    cmocka_unit_test(of_two_the_whole_one_is_kept),
    cmocka_unit_test(killed_at_random_moments),
};

TM_TESTS(tests, NULL, NULL)
