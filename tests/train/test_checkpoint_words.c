/* SPDX-License-Identifier: Apache-2.0 */
/* What saving and loading say when any one of their calls to the system fails or ends early, and that the last whole
 * checkpoint loads then; that what is saved late is what was there; and that the signals of the thread that saves are
 * as they were. */
#include "support/test.h"
#include "disk_fixture.h"
#include "support/whole.h"

#include "base/file.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

/* --- what is said, and what is there then --------------------------------------------------------- */

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

/* The way out, as a message has it. */
static const char *cure_of(int error)
{
    switch (error) {
    case 0:
    case ENOSPC:
        return "; free some space there, keep fewer checkpoints (checkpoint.keep_latest_k) or choose another ";
    case EFBIG:
        return "; raise the file-size limit (ulimit -f) or choose another checkpoint.folder";
    case EACCES:
        return "; choose a checkpoint.folder that can be written";
    default:
        return "; earlier checkpoints are unchanged";
    }
}

/* The call number `at` of saving fails: it is said which file and why, and what was there loads; or nothing is said to
 * have failed, and what was saved loads. */
static bool saves(const disk *f, tm_status st, const tm_error *err, const fixture *on)
{
    static const char *const needed[] = { "make_folder", "create", "write", "sync", NULL }, *const again[] = { "write",
                                                                                                               "sync",
                                                                                                               NULL };
    static const char *const removals[] = { "remove_file", "remove_folder", NULL };
    const bool               retried = f->error == EINTR && is_one_of(f->name, again);
    tm_text                  log = { 0 };
    whole_log_take(&log);
    if (st != TM_OK) {
        assert_int_equal(st, TM_IO);
        assert_false(retried);
        assert_int_equal(count_entries(on, TM_CHECKPOINT_TEMPORARY), 0);
        assert_says(err, on->folder);
        assert_says(err, "; earlier checkpoints are unchanged");
        if (f->error) assert_says(err, strerror(f->error));
        if (f->error || strcmp(f->name, "write") == 0) assert_says(err, cure_of(f->error));
    } else if (!retried && (is_one_of(f->name, needed) && (f->error || strcmp(f->name, "write") == 0)))
        fail_msg("call %d, %s, failed with %d, and nobody noticed", f->fail_at, f->name, f->error);
    if (st == TM_OK && is_one_of(f->name, removals) && f->error && !(log.data && strstr(log.data, "cannot remove '")))
        fail_msg("call %d, %s, failed: not in the log", f->fail_at, f->name);
    tm_text_fini(&log);
    return st == TM_OK;
}

/* Step 1 is there, and another one of it is saved; or step 2 beside it, and step 1 goes. */
TEST(each_call_of_saving_fails)
{
    static const struct {
        int64_t step;
        int     error;
    } rows[] = { { 1, EIO }, { 2, ENOSPC }, { 2, EACCES }, { 1, EFBIG }, { 2, 0 }, { 2, EINTR } };
    whole_log_open();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int at = 1, more = 1; more; at++) {
            disk                 f = { .fail_at = at, .error = rows[i].error };
            tm_checkpoint_io     io = table_of(&f);
            tm_checkpoint_report report = { 0 };
            tm_error             err = { 0 };
            fixture              on = new_fixture();
            save(&on, 1, 1, 0);
            fill(&on, rows[i].step, 2);
            tm_status st = tm_checkpoint_save_with(&io, on.folder, &on.state, on.tensors, N_TENSORS, 1, &err);
            more = f.calls >= at;
            bool done = more ? saves(&f, st, &err, &on) : st == TM_OK;
            assert_int_equal(load(&on, -1, &report, &err), TM_OK);
            if (!holds(&on, rows[i].step, 2) && (done || !holds(&on, 1, 1)))
                fail_msg("call %d (%s) fails with %d: step %lld is loaded", at, f.name, f.error,
                         (long long)report.step);
            clear(on.folder);
        }
    whole_log_close();
}

static const char *seal_of(const fixture *on)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/step-00000001/complete", on->folder);
    return path;
}

/* As a crash while a step was replaced leaves it: number 2 beside number 1, and whole or without its record. Number 3
 * replaces them; where that fails, the newest whole one is there. */
TEST(each_call_of_replacing_fails)
{
    whole_log_open();
    for (int whole = 0; whole < 2; whole++)
        for (int at = 0, calls = 1; at <= calls; at++) {
            disk                 f = { .fail_at = at, .error = EIO, .name = "close" };
            tm_checkpoint_io     io = table_of(&f);
            tm_checkpoint_report report = { 0 };
            tm_error             err = { 0 };
            fixture              on = new_fixture();
            char                 final[300], old[304], aside[300];
            snprintf(final, sizeof final, "%s/step-00000001", on.folder);
            snprintf(old, sizeof old, "%s.old", final);
            snprintf(aside, sizeof aside, "%s/aside", on.folder);
            save(&on, 1, 1, 0);
            assert_int_equal(rename(final, aside), 0);
            save(&on, 1, 2, 0);
            assert_int_equal(rename(aside, old), 0);
            if (!whole) assert_int_equal(tm_checkpoint_system_io.remove_file(NULL, seal_of(&on)), 0);
            fill(&on, 1, 3);
            tm_status st = tm_checkpoint_save_with(&io, on.folder, &on.state, on.tensors, N_TENSORS, 1, &err);
            calls = f.calls;
            bool done = saves(&f, st, &err, &on);
            assert_int_equal(load(&on, 1, &report, &err), TM_OK);
            bool kept = holds(&on, 1, 1) || (whole && holds(&on, 1, 2));
            if (!holds(&on, 1, 3) && (done || !kept))
                fail_msg("call %d (%s) fails: none of them is loaded", at, f.name);
            clear(on.folder);
        }
    whole_log_close();
}

/* Of two checkpoints one is loaded whatever fails once, if any will do; one that was asked for by its step is loaded or
 * it is said why not, and nothing is touched. */
TEST(each_call_of_loading_fails)
{
    static const struct {
        int64_t step;
        int     error;
    } rows[] = { { -1, EIO }, { 2, EACCES }, { -1, 0 }, { 2, EINTR }, { 2, 0 } };
    fixture on = new_fixture();
    save(&on, 1, 1, 0);
    save(&on, 2, 1, 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int at = 1;; at++) {
            disk                 f = { .fail_at = at, .error = rows[i].error };
            tm_checkpoint_io     io = table_of(&f);
            tm_checkpoint_report report = { 0 };
            tm_error             err = { 0 };
            memset(on.data, 0xEE, sizeof on.data);
            memset(&on.state, 0xEE, sizeof on.state);
            tm_status st = tm_checkpoint_load_with(&io, NULL, on.folder, rows[i].step, &on.state, on.tensors, N_TENSORS,
                                                   &report, &err);
            if (f.calls < at) break;
            bool counts = strcmp(f.name, "close") != 0 && !(f.error == EINTR && strcmp(f.name, "read_at") == 0);
            if (st == TM_OK) {
                assert_true(holds(&on, report.step, 1));
                assert_int_equal(report.step, counts && rows[i].step < 0 ? 1 : 2);
                assert_int_equal(report.passed_over, report.step == 1);
                assert_int_equal(report.bytes, ROOM_BYTES);
                if (report.step == 1 &&
                    (!strstr(report.text, "'step-00000002'") && !strstr(report.text, "/step-00000002': ")))
                    fail_msg("%s", report.text);
                if (rows[i].step == 2 && counts) fail_msg("call %d, %s, failed, and nobody noticed", at, f.name);
                continue;
            }
            assert_int_equal(rows[i].step, 2);
            assert_true(st == TM_IO || (!f.error && st == TM_FORMAT));
            assert_says(&err, "cannot load checkpoint '");
            assert_says(&err, "/step-00000002': ");
            assert_says(&err, "; name another step or none");
            if (f.error) assert_says(&err, strerror(f.error));
            /* what has been read before the failure may be there; the state is not */
            assert_int_equal(report.passed_over, 0);
        }
    clear(on.folder);
}

/* Which of a folder is loaded when a step is asked for (-1: the newest): its place in the row; or what is said. */
TEST(the_newest_whole_one_is_loaded)
{
    enum { NONE = -1, INCOMPLETE = -2 };
    static const struct {
        const char *folder[3]; /* "!": incomplete; the number of the step is the 13th character */
        int         wanted[4]; /* of -1, 0, 1, 2 */
        size_t      passed_over;
    } rows[] = {
        { { " step-00000001" }, { 0, NONE, 0, NONE }, 0 },
        { { " step-00000000", " step-00000001" }, { 1, 0, 1, NONE }, 0 },
        { { "!step-00000000", " step-00000001" }, { 1, INCOMPLETE, 1, NONE }, 0 },
        { { " step-00000000", "!step-00000001", " step-00000001.old" }, { 2, 0, 2, NONE }, 1 },
        { { "!step-00000001", "!step-00000001.old", " step-00000002" }, { 2, NONE, INCOMPLETE, 2 }, 0 },
        { { " step-00000000.old", "!step-00000001" }, { 0, 0, INCOMPLETE, NONE }, 1 },
        { { "!step-00000001", " step-00000001.tmp.7", " step-00000000" }, { 2, 2, INCOMPLETE, NONE }, 1 },
        { { " step-00000001.tmp.7" }, { NONE, NONE, NONE, NONE }, 0 },
    };
    for (size_t c = 0; c < sizeof rows / sizeof rows[0]; c++)
        for (int step = -1; step < 3; step++) {
            fixture              on = new_fixture(), from = new_fixture();
            tm_checkpoint_report report = { 0 };
            tm_error             err = { 0 };
            char                 path[400], to[400];
            const int            wanted = rows[c].wanted[step + 1];
            for (int k = 0; k < 3 && rows[c].folder[k]; k++) {
                int64_t of = rows[c].folder[k][13] - '0';
                save(&from, of, (uint64_t)k, 0);
                snprintf(path, sizeof path, "%s/step-%08d/complete", from.folder, (int)of);
                if (rows[c].folder[k][0] == '!') assert_int_equal(unlink(path), 0);
                path[strlen(path) - strlen("/complete")] = '\0';
                snprintf(to, sizeof to, "%s/%s", on.folder, rows[c].folder[k] + 1);
                assert_int_equal(rename(path, to), 0);
            }
            tm_status st = load(&on, step, &report, &err);
            if (wanted >= 0) {
                if (st != TM_OK || !holds(&on, report.step, (uint64_t)wanted))
                    fail_msg("row %zu, step %d: %s", c, step, err.text);
                if (step == -1) assert_int_equal(report.passed_over, rows[c].passed_over);
            } else {
                assert_int_equal(st, wanted == NONE ? TM_INVALID : TM_FORMAT);
                assert_says(&err, wanted == NONE ? "there is no checkpoint" : "it is incomplete (no file complete)");
            }
            assert_int_equal(tm_checkpoint_present(on.folder), c != 7);
            clear(on.folder);
            clear(from.folder);
        }
}

/* A read that ends early is gone on with; a checkpoint without tensors has a file without bytes. */
TEST(short_reads_and_no_tensors)
{
    for (size_t n = 0; n <= N_TENSORS; n += N_TENSORS) {
        disk                 f = { .most = 7 };
        tm_checkpoint_io     io = table_of(&f);
        tm_checkpoint_report report = { 0 };
        tm_error             err = { 0 };
        fixture              on = new_fixture();
        (void)test_state;
        set_tensors(&on);
        fill(&on, 3, 1);
        assert_int_equal(tm_checkpoint_save(on.folder, &on.state, on.tensors, n, 1, &err), TM_OK);
        if (n > 0) memset(on.data, 0xEE, sizeof on.data);
        memset(&on.state, 0xEE, sizeof on.state);
        tm_status st = tm_checkpoint_load_with(&io, NULL, on.folder, 3, &on.state, on.tensors, n, &report, &err);
        if (st != TM_OK) fail_msg("%s", err.text);
        assert_true(holds(&on, 3, 1));
        assert_int_equal(report.bytes, n > 0 ? ROOM_BYTES : 0);
        assert_true(f.calls > 30);
        clear(on.folder);
    }
}

/* --- behind the training's back ------------------------------------------------------------------- */

static atomic_bool saving_began, training_went_on;
static sigset_t    mask_behind;

static int late_create(void *context, const char *path)
{
    if (!atomic_load(&saving_began)) pthread_sigmask(SIG_SETMASK, NULL, &mask_behind);
    atomic_store(&saving_began, true);
    while (!atomic_load(&training_went_on)) usleep(100);
    return tm_checkpoint_system_io.create(context, path);
}

/* Memory of a device: bytes are others here than there. */
static tm_status read_device(const tm_checkpoint_memory *memory, tm_address from, void *to, size_t bytes, tm_error *err)
{
    (void)memory, (void)err;
    for (size_t i = 0; i < bytes; i++) ((unsigned char *)to)[i] = ((const unsigned char *)from.at)[i] ^ 0x5A;
    return TM_OK;
}

/* What is saved is what was there when saving began, however late it is written; by a thread that takes no signals. */
TEST(a_copy_is_written)
{
    static const tm_checkpoint_memory device = { .read = read_device };
    fixture                           f = new_fixture();
    tm_checkpoint_io                  io = tm_checkpoint_system_io;
    tm_checkpoint_target              target = { .folder = f.folder, .keep_latest = 1, .behind = true };
    tm_checkpoint_saving             *saving;
    tm_error                          err = { 0 };
    io.create = late_create;
    set_tensors(&f);
    fill(&f, 4, 1);
    for (size_t i = 0; i < sizeof f.data; i++) f.data[i] ^= 0x5A;
    for (int i = 0; i < N_TENSORS; i++)
        if (f.tensors[i].memory) f.tensors[i].memory = &device;
    assert_int_equal(tm_checkpoint_begin_with(&io, &target, &f.state, f.tensors, N_TENSORS, &saving, &err), TM_OK);
    assert_false(tm_checkpoint_written(saving));
    memset(f.data, 0x11, sizeof f.data);
    while (!atomic_load(&saving_began)) usleep(500);
    atomic_store(&training_went_on, true);
    while (!tm_checkpoint_written(saving)) usleep(500);
    assert_true(tm_checkpoint_written(saving));
    for (int i = 1; i < SIGSYS; i++)
        if (i != SIGKILL && i != SIGSTOP) assert_int_equal(sigismember(&mask_behind, i), i != SIGBUS);
    assert_int_equal(tm_checkpoint_commit(saving, &err), TM_OK);
    load_and_expect(&f, 4, 1);
    fill(&f, 5, 1);
    target.behind = false;
    assert_int_equal(tm_checkpoint_begin_with(&io, &target, &f.state, f.tensors, N_TENSORS, &saving, &err), TM_OK);
    assert_true(tm_checkpoint_written(saving));
    tm_checkpoint_abandon(saving);
    load_and_expect(&f, 4, 1);
    /* Of tensors without bytes nothing is copied. */
    static const char *const empty[] = { TM_CHECKPOINT_SEAL, TM_CHECKPOINT_INDEX, TM_CHECKPOINT_DATA };
    static const long        bytes[] = { TM_CHECKPOINT_SEAL_BYTES, 0, 128 };
    target.behind = true;
    fill(&f, 6, 1);
    assert_int_equal(tm_checkpoint_begin_with(&io, &target, &f.state, &f.tensors[2], 1, &saving, &err), TM_OK);
    assert_int_equal(tm_checkpoint_commit(saving, &err), TM_OK);
    for (int i = 0; i < 3; i++) {
        char        path[400];
        struct stat info;
        snprintf(path, sizeof path, "%s/step-00000006/%s", f.folder, empty[i]);
        assert_int_equal(stat(path, &info), 0);
        if (i != 1) assert_int_equal(info.st_size, bytes[i]);
    }
    memset(&f.state, 0xEE, sizeof f.state);
    tm_checkpoint_report report = { 0 };
    if (tm_checkpoint_load_newest(f.folder, 6, &f.state, &f.tensors[2], 1, &report, &err) != TM_OK)
        fail_msg("%s", err.text);
    assert_int_equal(f.state.step, 6);
    assert_int_equal(report.bytes, 0);
    clear(f.folder);
}

/* --- signals ---------------------------------------------------------------------------------------- */

static sigset_t mask_now(void)
{
    sigset_t now;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
    return now;
}

static void expect_mask(const sigset_t *wanted)
{
    sigset_t now = mask_now();
    for (int s = 1; s < 32; s++)
        if (sigismember(&now, s) != sigismember(wanted, s)) fail_msg("signal %d is blocked or not, as before", s);
}

/* Saved at once and behind, well and not, with the limit of files blocked before and not. */
TEST(signals_are_as_they_were)
{
    const sigset_t plain = mask_now();
    for (int blocked = 0; blocked < 2; blocked++)
        for (int behind = 0; behind < 2; behind++)
            for (int fails_at = 0; fails_at < 2; fails_at++) {
                sigset_t         limit, before;
                disk             f = { .fail_at = fails_at, .error = EIO };
                tm_checkpoint_io io = table_of(&f);
                tm_error         err = { 0 };
                fixture          on = new_fixture();
                sigemptyset(&limit);
                sigaddset(&limit, SIGXFSZ);
                if (blocked) assert_int_equal(pthread_sigmask(SIG_BLOCK, &limit, NULL), 0);
                before = mask_now();
                set_tensors(&on);
                fill(&on, 1, 1);
                tm_checkpoint_saving      *saving;
                const tm_checkpoint_target target = { .folder = on.folder, .behind = behind };
                tm_status st = tm_checkpoint_begin_with(&io, &target, &on.state, on.tensors, N_TENSORS, &saving, &err);
                assert_int_equal(st, fails_at ? TM_IO : TM_OK);
                assert_true(!saving == (st != TM_OK));
                expect_mask(&before);
                if (saving) {
                    st = tm_checkpoint_commit(saving, &err);
                    assert_int_equal(st, TM_OK);
                }
                expect_mask(&before);
                pthread_sigmask(SIG_SETMASK, &plain, NULL);
                clear(on.folder);
            }
}
