/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of several ranks: saved in any layout, loaded in any other and read by programs that know safetensors;
 * what does not fit together, is damaged, full, not seen by others, or late. */
#include "disk_fixture.h"

#include "base/text.h"
#include "data/safetensors.h"

#include <dirent.h>
#include <stdatomic.h>

/* --- any layout --------------------------------------------------------------------------------------------------- */

/* Where a tensor of a file lies in one of `whole`: NAME, or NAME[rows,columns] of the matrix in the metadata, as
 * docs/checkpoints.md says. Of numbers that safetensors does not know, and of parts of numbers, there are bytes. */
static void take_tensor(const tm_safetensors *set, const tm_stored_tensor *s, unsigned char found[WHOLE][700],
                        size_t bytes[WHOLE])
{
    const size_t length = strcspn(s->name, "[");
    char         name[64], shape[192];
    size_t       from[2] = { 0 }, to[2] = { 0, s->bytes }, columns = s->bytes, unit = 1;
    int          t = 0;
    snprintf(name, sizeof name, "%.*s", (int)length, s->name);
    while (t < WHOLE && strcmp(whole[t].name, name) != 0) t++;
    assert_in_range(t, 0, WHOLE - 1);
    const char *own = whole[t].dtype == TM_F32 ? "F32" : whole[t].dtype == TM_BF16 ? "BF16" : "U8";
    if (!s->name[length]) {
        assert_string_equal(s->dtype_name, own);
        assert_int_equal(s->rank, whole[t].dtype == 60000 ? 1 : whole[t].rank);
        for (int k = 0; k < whole[t].rank; k++) assert_int_equal(s->n[k], whole[t].n[k]);
        assert_null(tm_safetensors_metadata(set, name));
    } else {
        const char *about = tm_safetensors_metadata(set, name), *view = about ? strstr(about, "\"view\": [") : NULL;
        assert_non_null(view);
        int axes = sscanf(s->name + length, "[%zu:%zu,%zu:%zu]", &from[0], &to[0], &from[1], &to[1]) / 2;
        assert_true(axes == 1 || axes == 2);
        if (axes == 1) from[1] = from[0], to[1] = to[0], from[0] = 0;
        columns = strtoul(strrchr(about, axes == 1 ? '[' : ',') + 1, NULL, 10);
        to[0] = axes == 1 ? 1 : to[0];
        unit = s->bytes / ((to[0] - from[0]) * (to[1] - from[1]));
        if (strcmp(s->dtype_name, "U8") != 0) assert_string_equal(s->dtype_name, own);
        assert_true(s->rank == axes && s->n[axes - 1] == (int64_t)(to[1] - from[1]));
        snprintf(shape, sizeof shape,
                 whole[t].rank == 1   ? "[%d]"
                 : whole[t].rank == 2 ? "[%d, %d]"
                                      : "[%d, %d, %d]",
                 (int)whole[t].n[0], (int)whole[t].n[1], (int)whole[t].n[2]);
        if (unit > 1 && !strstr(about, shape)) fail_msg("%s of %s: %s", s->name, shape, about);
    }
    size_t width = (to[1] - from[1]) * unit;
    if (!s->name[length]) to[0] = 1;
    for (size_t r = from[0]; r < to[0] && width > 0; r++)
        memcpy(found[t] + r * columns * unit + from[1] * unit, s->data + (r - from[0]) * width, width);
    bytes[t] += s->bytes;
}

static void check_files(const char *folder, int64_t step)
{
    static unsigned char found[WHOLE][700];
    size_t               bytes[WHOLE] = { 0 }, n;
    char                 name[40], wanted[24];
    snprintf(name, sizeof name, "step-%08d", (int)step);
    snprintf(wanted, sizeof wanted, "%d", (int)step);
    const char *path = path_in(folder, name);
    DIR        *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *d; (d = readdir(dir));) {
        tm_safetensors *set;
        if (!strstr(d->d_name, ".safetensors")) continue;
        assert_ok(tm_safetensors_open(path_in(path, d->d_name), &set, err));
        const tm_stored_tensor *all = tm_safetensors_list(set, &n);
        assert_string_equal(tm_safetensors_metadata(set, "step"), wanted);
        for (size_t i = 0; i < n; i++) take_tensor(set, &all[i], found, bytes);
        tm_safetensors_close(set);
    }
    closedir(dir);
    for (uint64_t t = 0; t < WHOLE; t++) {
        assert_int_equal(bytes[t], whole[t].bytes);
        for (size_t i = 0; i < bytes[t]; i++)
            assert_int_equal(found[t][i], (unsigned char)tm_random_u64(key_of(step, 0), t, i));
    }
}

TEST(saved_in_any_layout_and_loaded_in_any_other)
{
    char   *folder = new_folder();
    int64_t step = 0;
    for (layout how = FIRST; how < LAYOUTS; how++)
        for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
            job j = { .folder = folder, .how = how, .step = ++step, .behind = step % 2 };
            run_ranks(&j, ranks, save_rank, true);
            check_files(folder, step);
            for (layout other = FIRST; other < LAYOUTS; other++)
                expect_loaded(folder, other, 1 + (int)(step + other) % MAX_RANKS, step);
        }
    test_tree_remove(folder);
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

/* Every rank says the same, rank 0's word for it or "rank 1: ..." */
TEST(a_damaged_file_of_a_rank_is_named)
{
    static const char *const names[] = { "tensors-00000.safetensors", "tensors-00002.safetensors", "index.bin",
                                         "complete" };
    for (int i = 0; i < 4; i++)
        for (int damage = 0; damage < 3; damage++) {
            char    *folder = new_folder();
            tm_text  bytes = { 0 };
            tm_error err = { 0 };
            job      j = { .folder = folder, .how = FLAT, .wanted = 2 };
            for (j.step = 1; j.step <= 2; j.step++) run_ranks(&j, 3, save_rank, true);
            const char *path = path_in(path_in(folder, "step-00000002"), names[i]);
            assert_int_equal(tm_file_read(path, 1 << 20, &bytes, &err), TM_OK);
            bytes.data[i < 2 ? bytes.length - 1 : bytes.length / 2] ^= 4; /* behind the header */
            if (damage == 0)
                assert_int_equal(unlink(path), 0);
            else
                assert_int_equal(tm_file_write(path, bytes.data, bytes.length - (damage == 1), &err), TM_OK);
            tm_text_fini(&bytes);
            expect_loaded(folder, COLUMNS, 2, 1); /* the older one */
            j.how = SPREAD;
            run_ranks(&j, 2, load_rank, false);
            for (int r = 0; r < 2; r++) {
                if (j.status[r] != TM_FORMAT && j.status[r] != TM_IO) fail_msg("status %d", (int)j.status[r]);
                assert_says(&j.err[r], i == 2 ? "index" : i == 3 ? "complete" : names[i]);
            }
            test_tree_remove(folder);
        }
}

/* --- what does not fit -------------------------------------------------------------------------------------------- */

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

static void add_stray(holding *h, int rank)
{
    *add(h, 5) = h->tensors[1];
    h->tensors[h->n - 1].name = rank < 0 ? NULL : "stray";
}

TEST(what_does_not_fit_is_refused_by_all)
{
    static const struct {
        layout how;
        void (*spoil)(holding *h, int rank);
        const char *words;
    } saved[] = {
        { FLAT, drop_one, "'embedding', which are not its 432 bytes once each" },
        { FLAT, drop_on_all, "the ranks save 0 bytes in 0 parts of tensor 'scale'" },
        { FIRST, drop_on_all, "the ranks save 0 bytes in 0 parts of tensor 'scale'" },
        { FIRST, drop_on_first, "the ranks save 0 bytes in 0 parts of tensor 'scale'" }, /* rank 0's own is whole */
        { FLAT, save_twice, "tensor 'scale'" },
        { FLAT, change_shape, "ranks 0 and 1 save tensor 'embedding', but with other formats or shapes" },
    };
    char *folder = new_folder();
    job   j = { .folder = folder, .how = FLAT, .step = 1, .wanted = -1 };
    run_ranks(&j, 3, save_rank, true);
    for (size_t i = 0; i < sizeof saved / sizeof saved[0]; i++) {
        j.how = saved[i].how, j.step = 2, j.spoil = saved[i].spoil;
        run_ranks(&j, 3, save_rank, false);
        expect_failure(&j, 3, TM_INTERNAL, saved[i].words);
    }
    assert_int_equal(count_entries(folder, TM_CHECKPOINT_TEMPORARY), 0);
    expect_loaded(folder, FLAT, 3, 1);
    for (int more = 0; more < 2; more++) { /* one tensor too few, or too many, is there */
        j.how = FIRST, j.step++, j.spoil = more ? add_stray : drop_on_first;
        run_ranks(&j, 1, save_rank, true);
        j.how = STAGES;
        run_ranks(&j, 3, load_rank, false);
        expect_failure(&j, 3, TM_INVALID,
                       more ? "it holds tensor 'stray'" : "tensor 'scale', expected with dtype 60000 and shape ()");
    }
    test_tree_remove(folder);
}

/* --- disks -------------------------------------------------------------------------------------------------------- */

TEST(a_full_disk_on_one_rank_fails_all)
{
    char   *folder = new_folder(), who[24];
    int64_t newest = 1;
    job     first = { .folder = folder, .how = BOTH, .step = 1 };
    run_ranks(&first, 3, save_rank, true);
    for (int way = 0; way < 4; way++)
        for (int k = 1, struck = 1, rank = way & 2; struck; k++) {
            disk             at = { .fail_at = k, .error = ENOSPC, .needed = true };
            tm_checkpoint_io io = table_of(&at);
            job              j = { .folder = folder, .how = BOTH, .step = newest + 1, .behind = way & 1 };
            j.io[rank] = &io;
            run_ranks(&j, 3, save_rank, false);
            struck = at.calls >= k;
            assert_true(k < 200 && (struck || k > 3));
            if (struck) expect_failure(&j, 3, TM_IO, "free some space");
            snprintf(who, sizeof who, "rank %d: ", rank);
            for (int r = 0; r < 3 && struck; r++) assert_true((strstr(j.err[r].text, who) != NULL) == (r != rank));
            if (struck) assert_int_equal(count_entries(folder, TM_CHECKPOINT_TEMPORARY), 0);
            job l = { .folder = folder, .how = FLAT, .wanted = -1 };
            run_ranks(&l, 2, load_rank, true);
            assert_true((l.step == newest && struck) || l.step == newest + 1); /* a failed flush leaves the new one */
            newest = l.step;
        }
    test_tree_remove(folder);
}

static int no_folder(void *context, const char *path)
{
    (void)context, (void)path;
    errno = ENOENT;
    return -1;
}

/* Rank 0 has made the directory, and others that do not see it say what is wrong; with rank 0 something else is. */
TEST(a_directory_that_others_do_not_see_is_said)
{
    static const char *const cures[] = { "No such file or directory; earlier checkpoints are unchanged",
                                         "the directory that rank 0 has made is not there; all hosts" };
    tm_checkpoint_io         io = tm_checkpoint_system_io;
    io.create = no_folder;
    for (int rank = 0; rank < 2; rank++) {
        char *folder = new_folder(), wanted[500];
        job   j = { .folder = folder, .how = FLAT, .step = 1 };
        j.io[rank] = &io;
        run_ranks(&j, 2, save_rank, false);
        snprintf(wanted, sizeof wanted, "cannot create '%s/step-00000001.tmp.%ld/tensors-%05d.safetensors': %s", folder,
                 (long)getpid(), rank, cures[rank]);
        expect_failure(&j, 2, TM_IO, wanted);
        test_tree_remove(folder);
    }
}

/* --- late --------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *slow; /* the file at which rank 1 stops, until rank 0 has given up */
    atomic_bool given_up;
    int         opened; /* checkpoints that rank 1 has looked at */
} late_disk;

static int slow_open(void *context, const char *path)
{
    late_disk *d = context;
    d->opened += strstr(path, "/complete") != NULL;
    while (strstr(path, d->slow) && !atomic_load(&d->given_up)) usleep(1000);
    return tm_checkpoint_system_io.open(NULL, path);
}

static void load_late(tm_comm *comm, void *context)
{
    job *j = context;
    load_rank(comm, context);
    if (tm_comm_rank(comm) == 0) atomic_store(&((late_disk *)j->io[1]->context)->given_up, true);
}

/* A rank that stops is no damage of the checkpoint: it is named, and no older one is looked at. */
TEST(a_rank_that_stops_is_named)
{
    static const char *const names[] = { "/complete", "/index.bin", "/tensors" };
    for (int i = 0; i < 3; i++) {
        char            *folder = new_folder();
        late_disk        d = { .slow = names[i] };
        tm_checkpoint_io io = tm_checkpoint_system_io;
        job              j = { .folder = folder, .how = FIRST, .wanted = -1 };
        for (int64_t step = 1; step <= 2; step++) save(folder, step, 0, 2);
        io.context = &d, io.open = slow_open, j.io[1] = &io;
        run_world(2, NULL, 1, false, load_late, &j);
        expect_failure(&j, 2, TM_IO, "cannot load checkpoint '");
        expect_failure(&j, 2, TM_IO, "step-00000002': rank 1 of group world is late");
        assert_int_equal(d.opened, 1);
        test_tree_remove(folder);
    }
}
