/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints whose process dies, whose disk loses power or fails once, at every single call; what is saved late is
 * what was there; and the signals of the thread that saves are as they were. */
#include "disk_fixture.h"
#include "support/whole.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

/* --- saving ------------------------------------------------------------------------------------------------------- */

/* Saved before, being saved when the fault strikes, how many are kept. */
typedef struct {
    int64_t before[2];
    size_t  n_before;
    int64_t step;
    int     keep;
    int     beside; /* a crash while a step was replaced left the first as N.old: 1; and the second incomplete: 2 */
} scenario;

static const scenario scenarios[] = {
    { { 1, 2 }, 2, 3, 2, 0 }, /* one is removed at the end */
    { { 1 }, 1, 2, 1, 0 },    /* the only one is replaced by a later one */
    { { 1, 2 }, 2, 2, 0, 0 }, /* the newest is replaced by one of the same step */
    { { 2 }, 1, 2, 1, 0 },    /* so is the only one */
    { { 1, 1 }, 2, 1, 1, 1 }, { { 1, 1 }, 2, 1, 1, 2 },
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0], NEW = 8, AGAIN = 9 };

static void save_before(const char *folder, const scenario *s)
{
    for (size_t i = 0; i < s->n_before; i++) {
        save(folder, s->before[i], i, 0);
        if (s->beside && i == 0)
            assert_int_equal(rename(path_in(folder, "step-00000001"), path_in(folder, "aside")), 0);
    }
    if (s->beside) assert_int_equal(rename(path_in(folder, "aside"), path_in(folder, "step-00000001.old")), 0);
    if (s->beside == 2) assert_int_equal(unlink(path_in(folder, "step-00000001/complete")), 0);
}

/* The new one, or the newest whole one from before, and nothing else; then a healthy save puts all right. */
static void check_what_is_left(const char *folder, const scenario *s, bool saved, const char *what)
{
    static loaded l;
    if (load(folder, -1, &l) != TM_OK) fail_msg("%s: %s", what, l.err.text);
    bool is_new = holds(&l, s->step, NEW), is_before = false;
    for (size_t i = s->beside ? 0 : s->n_before - 1; i < s->n_before; i++)
        is_before = is_before || (holds(&l, s->before[i], i) && !(s->beside == 2 && i == 1));
    if (!is_new && (saved || !is_before)) fail_msg("%s: step %lld is loaded", what, (long long)l.report.step);
    save(folder, s->step, AGAIN, s->keep);
    load_and_expect(folder, s->step, AGAIN);
    if (count_entries(folder, TM_CHECKPOINT_TEMPORARY) != 0 || count_entries(folder, TM_CHECKPOINT_OLD) != 0)
        fail_msg("%s: leftovers after the next save", what);
    if (s->keep > 0 && count_entries(folder, TM_CHECKPOINT_FINAL) > (size_t)s->keep)
        fail_msg("%s: too many kept", what);
}

/* The way out, as a message has it. */
static const char *cure_of(int error)
{
    if (error == 0 || error == ENOSPC)
        return "; free some space there, keep fewer checkpoints (checkpoint.keep_latest_k) or choose another ";
    if (error == EFBIG) return "; raise the file-size limit (ulimit -f) or choose another checkpoint.folder";
    return error == EACCES ? "; choose a checkpoint.folder that can be written" : "; earlier checkpoints are unchanged";
}

/* A call failed once: it is said which file and why; or it was no harm. What cannot be removed is in the log. */
static void check_what_is_said(const disk *d, const char *folder, tm_status st, const tm_error *err, const tm_text *log)
{
    const bool short_write = strcmp(d->name, "write") == 0;
    const bool retried = d->error == EINTR && strstr("write sync", d->name);
    if (st == TM_OK) {
        if (!retried && strstr("make_folder create write sync", d->name) && (d->error || short_write))
            fail_msg("call %d, %s, failed with %d, and nobody noticed", d->fail_at, d->name, d->error);
        if (strncmp(d->name, "remove_", 7) == 0 && d->error && !(log->data && strstr(log->data, "cannot remove '")))
            fail_msg("call %d, %s, failed: not in the log", d->fail_at, d->name);
        return;
    }
    assert_false(retried);
    assert_int_equal(count_entries(folder, TM_CHECKPOINT_TEMPORARY), 0);
    assert_says(err, folder);
    assert_says(err, "; earlier checkpoints are unchanged");
    if (d->error) assert_says(err, strerror(d->error));
    if (d->error || short_write) assert_says(err, cure_of(d->error));
}

/* Did the fault strike? */
static bool save_with_fault(const scenario *s, bool crashes, int error, int fail_at)
{
    char            *folder = new_folder(), what[100];
    disk            *d = tm_alloc(sizeof *d);
    tm_checkpoint_io io = table_of(d);
    tm_error         err = { 0 };
    tm_text          log = { 0 };
    snprintf(what, sizeof what, "scenario %d, error %d at call %d", (int)(s - scenarios), error, fail_at);
    d->crashes = crashes, d->fail_at = fail_at, d->error = error;
    save_before(folder, s);
    whole_log_open();
    tm_status st = save_with(&io, folder, s->step, NEW, s->keep, &err);
    whole_log_take(&log);
    whole_log_close();
    bool struck = d->calls >= fail_at;
    if (st != TM_OK && (st != TM_IO || !struck)) fail_msg("%s: %s", what, err.text);
    if (struck && !crashes) check_what_is_said(d, folder, st, &err, &log);
    check_what_is_left(folder, s, st == TM_OK, what);
    assert_true(struck || fail_at > 20);
    tm_text_fini(&log);
    free(d);
    test_tree_remove(folder);
    return struck;
}

static void sweep(const scenario *s, bool crashes, int error)
{
    int at = 1;
    while (save_with_fault(s, crashes, error, at)) at++;
}

TEST(a_crash_at_any_call)
{
    for (int i = 0; i < SCENARIOS; i++) sweep(&scenarios[i], true, 0);
}

/* error 0: the call ends early */
TEST(each_call_of_saving_fails)
{
    static const int errors[SCENARIOS] = { ENOSPC, EACCES, EIO, EFBIG, EIO, EIO };
    for (int i = 0; i < SCENARIOS; i++) sweep(&scenarios[i], false, errors[i]);
    sweep(&scenarios[1], false, EINTR);
    sweep(&scenarios[0], false, 0);
}

/* A power cut takes what is not flushed. A checkpoint gets its name when its files, and their names, are on the disk;
 * another one is removed when that name is. */
TEST(what_a_power_cut_could_take_is_flushed_before)
{
    for (int s = 0; s < SCENARIOS; s++) {
        char            *folder = new_folder();
        disk            *d = tm_alloc(sizeof *d);
        tm_checkpoint_io io = table_of(d);
        bool             written[1024] = { 0 }, made = false, named = false, seen = false;
        int              removed = 0;
        save_before(folder, &scenarios[s]);
        assert_ok(save_with(&io, folder, scenarios[s].step, NEW, scenarios[s].keep, err));
        assert_true(d->n_notes < MOST_NOTES);
        for (const note *n = d->notes; n < d->notes + d->n_notes; n++) {
            const bool temporary = strstr(n->path, ".tmp.") != NULL;
            if (strcmp(n->name, "write") == 0) written[n->fd] = true;
            if (strcmp(n->name, "sync") == 0) written[n->fd] = false;
            if (strcmp(n->name, "close") == 0) assert_false(written[n->fd]);
            if (strcmp(n->name, "create") == 0) made = true;
            if (strcmp(n->name, "sync_folder") == 0) *(temporary ? &made : &named) = false;
            if (strcmp(n->name, "rename") == 0 && temporary) {
                assert_false(made);
                named = seen = true;
            }
            if (strncmp(n->name, "remove_", 7) != 0 || temporary || !seen) continue;
            removed++;
            assert_false(named);
        }
        assert_true(seen && !named);
        assert_int_equal(removed > 0, scenarios[s].n_before == 2 || scenarios[s].keep == 1);
        free(d);
        test_tree_remove(folder);
    }
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

/* Of two checkpoints one is loaded whatever fails once, if any will do; one that was asked for by its step is loaded or
 * it is said why not. Reads that end early (error -1) are gone on with. */
TEST(each_call_of_loading_fails)
{
    static const struct {
        int64_t step;
        int     error;
    } rows[] = { { -1, EIO }, { 2, EACCES }, { -1, 0 }, { 2, EINTR }, { 2, 0 }, { 2, -1 } };
    static loaded l;
    char         *folder = new_folder();
    save(folder, 1, 0, 0);
    save(folder, 2, 0, 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int at = 1;; at++) {
            disk d = { .fail_at = at, .error = rows[i].error };
            if (rows[i].error < 0) d = (disk){ .most = 7 };
            tm_checkpoint_io io = table_of(&d);
            tm_status        st = load_with(&io, folder, rows[i].step, &l);
            if (d.calls < at) break;
            bool counts =
                d.name && strcmp(d.name, "close") != 0 && !(d.error == EINTR && strcmp(d.name, "read_at") == 0);
            if (st == TM_OK) {
                const int64_t wanted = counts && rows[i].step < 0 ? 1 : 2;
                assert_true(holds(&l, wanted, 0));
                assert_true(l.report.step == wanted && l.report.bytes == WHOLE_BYTES);
                assert_int_equal(l.report.passed_over, wanted == 1);
                if (wanted == 1 && !strstr(l.report.text, "/step-00000002': ")) fail_msg("%s", l.report.text);
                if (rows[i].step == 2 && counts) fail_msg("call %d, %s, failed, and nobody noticed", at, d.name);
                if (!d.most) continue;
                assert_true(d.calls > WHOLE_BYTES / 7);
                break;
            }
            assert_int_equal(rows[i].step, 2);
            assert_true(st == TM_IO || (!d.error && st == TM_FORMAT));
            assert_says(&l.err, "cannot load checkpoint '");
            assert_says(&l.err, "/step-00000002': ");
            assert_says(&l.err, "; name another step or none");
            if (d.error) assert_says(&l.err, strerror(d.error));
        }
    test_tree_remove(folder);
}

/* --- behind the training's back ----------------------------------------------------------------------------------- */

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

/* What is saved is what was there when saving began, however late it is written, by a thread that takes no signals;
 * what is abandoned leaves nothing, and the one before. */
TEST(a_copy_is_written)
{
    static const tm_checkpoint_memory device = { .read = read_device };
    static holding                    h;
    char                             *folder = new_folder();
    tm_checkpoint_io                  io = tm_checkpoint_system_io;
    tm_checkpoint_target              target = { .folder = folder, .keep_latest = 1, .behind = true };
    tm_checkpoint_state               state = state_of(4, 1);
    tm_checkpoint_saving             *saving;
    io.create = late_create;
    hold(&h, FIRST, 0, 1);
    visit(&h, key_of(4, 1), true);
    for (size_t i = 0; i < WHOLE_BYTES; i++) h.data[i] ^= 0x5A;
    for (size_t i = 0; i < h.n; i++)
        if (h.tensors[i].memory) h.tensors[i].memory = &device;
    assert_ok(tm_checkpoint_begin_with(&io, &target, &state, h.tensors, h.n, &saving, err));
    assert_false(tm_checkpoint_written(saving));
    memset(h.data, 0x11, sizeof h.data);
    while (!atomic_load(&saving_began)) usleep(500);
    atomic_store(&training_went_on, true);
    while (!tm_checkpoint_written(saving)) usleep(500);
    for (int i = 1; i < SIGSYS; i++)
        if (i != SIGKILL && i != SIGSTOP) assert_int_equal(sigismember(&mask_behind, i), i != SIGBUS);
    assert_ok(tm_checkpoint_commit(saving, err));
    load_and_expect(folder, 4, 1);
    for (int behind = 0; behind < 2; behind++) {
        state = state_of(5, 1);
        target.behind = behind;
        assert_ok(tm_checkpoint_begin_with(&io, &target, &state, h.tensors, h.n, &saving, err));
        while (!tm_checkpoint_written(saving)) usleep(500);
        load_and_expect(folder, 4, 1); /* written, but not there yet */
        assert_int_equal(count_entries(folder, TM_CHECKPOINT_TEMPORARY), 1);
        tm_checkpoint_abandon(saving);
        assert_int_equal(count_entries(folder, TM_CHECKPOINT_TEMPORARY), 0);
        load_and_expect(folder, 4, 1);
    }
    state = state_of(6, 1); /* of a tensor without bytes nothing is copied */
    assert_ok(tm_checkpoint_begin_with(&io, &target, &state, &h.tensors[4], 1, &saving, err));
    assert_ok(tm_checkpoint_commit(saving, err));
    assert_true(exists(folder, "step-00000006/complete") && !exists(folder, "step-00000004"));
    test_tree_remove(folder);
}

/* --- signals ------------------------------------------------------------------------------------------------------ */

static void expect_mask(const sigset_t *wanted)
{
    sigset_t now;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
    for (int s = 1; s < 32; s++)
        if (sigismember(&now, s) != sigismember(wanted, s)) fail_msg("signal %d is blocked or not, as before", s);
}

/* Saved at once and behind, well and not, with the limit of files blocked before and not. */
TEST(signals_are_as_they_were)
{
    static holding h;
    for (int way = 0; way < 8; way++) {
        const int                  blocked = way & 1, fails = way >> 2;
        char                      *folder = new_folder();
        const tm_checkpoint_target target = { .folder = folder, .behind = way >> 1 & 1 };
        disk                       d = { .fail_at = fails, .error = EIO };
        tm_checkpoint_io           io = table_of(&d);
        tm_checkpoint_state        state = state_of(1, 1);
        tm_checkpoint_saving      *saving;
        sigset_t                   mask;
        tm_error                   err = { 0 };
        sigemptyset(&mask);
        sigaddset(&mask, SIGUSR1);
        if (blocked) sigaddset(&mask, SIGXFSZ);
        assert_int_equal(pthread_sigmask(SIG_SETMASK, &mask, NULL), 0);
        hold(&h, FIRST, 0, 1);
        tm_status st = tm_checkpoint_begin_with(&io, &target, &state, h.tensors, h.n, &saving, &err);
        assert_int_equal(st, fails ? TM_IO : TM_OK);
        assert_true(!saving == (st != TM_OK));
        expect_mask(&mask);
        if (saving) assert_int_equal(tm_checkpoint_commit(saving, &err), TM_OK);
        expect_mask(&mask);
        test_tree_remove(folder);
    }
}
