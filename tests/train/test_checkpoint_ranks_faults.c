/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of several ranks when something goes wrong: full disks, directories that others do not see; saving
 * behind the training's back. */
#include "checkpoint_ranks_fixture.h"
#include "disk_fixture.h"

#include <sys/wait.h>
#include <time.h>

/* --- a disk that fails on one of the ranks ------------------------------------------------------------------------ */

TEST(a_full_disk_on_one_rank_fails_all)
{
    fixture f = new_fixture();
    job     j = { .folder = f.folder, .how = BOTH, .step = 1 };
    int64_t newest = 1;
    expect_saved(&j, 3);
    for (int rank = 0; rank < 3; rank += 2)
        for (int behind = 0; behind < 2; behind++)
            for (int k = 1, struck = 1; struck; k++) {
                disk             at = { .fail_at = k, .error = ENOSPC, .needed = true };
                tm_checkpoint_io io = table_of(&at);
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
TEST(a_directory_that_others_do_not_see_is_said)
{
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

TEST(an_abandoned_one_leaves_the_one_before)
{
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
