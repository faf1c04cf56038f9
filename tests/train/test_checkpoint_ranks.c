/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of several ranks: saved in any layout and loaded in any other, on other numbers of ranks; files that are
 * damaged and tensors that do not fit are named. */
#include "checkpoint_ranks_fixture.h"

#include "base/file.h"
#include "base/text.h"

/* --- tests -------------------------------------------------------------------------------------------------------- */

TEST(saved_in_any_layout_and_loaded_in_any_other)
{
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

/* Every rank says the same, rank 0's word for it or "rank 1: ..." */
TEST(a_damaged_file_of_a_rank_is_named)
{
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

TEST(parts_that_are_not_the_whole_are_refused)
{
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
TEST(other_tensors_are_refused_by_all)
{
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
