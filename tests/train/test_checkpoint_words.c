/* SPDX-License-Identifier: Apache-2.0 */
/* What saving and loading say, to the letter, when any one of their calls to the system fails, ends early or finds
 * other bytes; and that the signals of the thread that saves are as they were. After a change that is meant:
 *     TM_RECORD=1 build/release/tests/train/test_checkpoint_words; git diff tests/train/checkpoint-words.txt
 */
#include "checkpoint_fixture.h"
#include "support/whole.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

/* --- a system that fails at one call --------------------------------------------------------------- */

typedef struct {
    int         calls, fail_at, error; /* error 0: it ends early */
    const char *name;                  /* of the call that failed */
} faults;

static bool fails(void *context, const char *name)
{
    faults *f = context;
    if (++f->calls != f->fail_at) return false;
    f->name = name;
    errno = f->error;
    return true;
}

#define SYSTEM tm_checkpoint_system_io

static int create_file(void *context, const char *path)
{
    return fails(context, "create") ? -1 : SYSTEM.create(NULL, path);
}

static ssize_t write_some(void *context, int fd, const void *data, size_t bytes)
{
    if (fails(context, "write")) return ((faults *)context)->error ? -1 : 0;
    return SYSTEM.write(NULL, fd, data, bytes);
}

static int sync_file(void *context, int fd)
{
    return fails(context, "sync") ? -1 : SYSTEM.sync(NULL, fd);
}

static int close_file(void *context, int fd)
{
    bool now = fails(context, "close");
    int  cause = errno, result = SYSTEM.close(NULL, fd);
    errno = cause;
    return now ? -1 : result;
}

static int make_folder(void *context, const char *path)
{
    return fails(context, "make_folder") ? -1 : SYSTEM.make_folder(NULL, path);
}

static int sync_folder(void *context, const char *path)
{
    return fails(context, "sync_folder") ? -1 : SYSTEM.sync_folder(NULL, path);
}

static int rename_it(void *context, const char *from, const char *to)
{
    return fails(context, "rename") ? -1 : SYSTEM.rename(NULL, from, to);
}

static int remove_file(void *context, const char *path)
{
    return fails(context, "remove_file") ? -1 : SYSTEM.remove_file(NULL, path);
}

static int remove_folder(void *context, const char *path)
{
    return fails(context, "remove_folder") ? -1 : SYSTEM.remove_folder(NULL, path);
}

static int open_file(void *context, const char *path)
{
    return fails(context, "open") ? -1 : SYSTEM.open(NULL, path);
}

static int64_t size_of(void *context, int fd)
{
    if (fails(context, "size")) return ((faults *)context)->error ? -1 : SYSTEM.size(NULL, fd) - 1;
    return SYSTEM.size(NULL, fd);
}

static ssize_t read_at(void *context, int fd, void *data, size_t bytes, int64_t offset)
{
    if (fails(context, "read_at")) return ((faults *)context)->error ? -1 : 0;
    return SYSTEM.read_at(NULL, fd, data, bytes, offset);
}

static tm_checkpoint_io failing(faults *f)
{
    return (tm_checkpoint_io){ .context = f,
                               .create = create_file,
                               .write = write_some,
                               .sync = sync_file,
                               .close = close_file,
                               .make_folder = make_folder,
                               .sync_folder = sync_folder,
                               .rename = rename_it,
                               .remove_file = remove_file,
                               .remove_folder = remove_folder,
                               .open = open_file,
                               .size = size_of,
                               .read_at = read_at };
}

/* --- words ------------------------------------------------------------------------------------------ */

/* With DIR and PID in the place of this folder and this process. */
static void add_words(tm_text *out, const char *text, const char *folder)
{
    char pid[32];
    snprintf(pid, sizeof pid, ".tmp.%ld", (long)getpid());
    for (const char *at = text; *at;) {
        if (strncmp(at, folder, strlen(folder)) == 0) {
            tm_text_add(out, "DIR");
            at += strlen(folder);
        } else if (strncmp(at, pid, strlen(pid)) == 0) {
            tm_text_add(out, ".tmp.PID");
            at += strlen(pid);
        } else
            tm_text_add_n(out, at++, 1);
    }
}

static void add_outcome(tm_text *out, const faults *f, tm_status st, const tm_error *err, const fixture *on)
{
    tm_text log = { 0 };
    tm_text_printf(out, "  %d %s %d: %d ", f->fail_at, f->name, f->error, st);
    add_words(out, err->text, on->folder);
    tm_text_add(out, "\n");
    whole_log_take(&log);
    if (log.data) add_words(out, log.data, on->folder);
    tm_text_fini(&log);
}

/* Step 1 is there, and another one of it is saved; or step 2 beside it, and step 1 goes. */
static void add_saves(tm_text *out, int64_t step, int error)
{
    tm_text_printf(out, "saving step %lld, error %d\n", (long long)step, error);
    for (int at = 1;; at++) {
        faults           f = { .fail_at = at, .error = error };
        tm_checkpoint_io io = failing(&f);
        tm_error         err = { 0 };
        fixture          on = new_fixture();
        save(&on, 1, 1, 0);
        fill(&on, step, 2);
        tm_status st = tm_checkpoint_save_with(&io, on.folder, &on.state, on.tensors, N_TENSORS, 1, &err);
        if (f.calls >= at) add_outcome(out, &f, st, &err, &on);
        bool done = f.calls < at;
        clear(on.folder);
        if (done) break;
    }
}

static void add_loads(tm_text *out, int64_t step, int error)
{
    fixture on = new_fixture();
    save(&on, 1, 1, 0);
    save(&on, 2, 1, 0);
    tm_text_printf(out, "loading step %lld, error %d\n", (long long)step, error);
    for (int at = 1;; at++) {
        faults               f = { .fail_at = at, .error = error };
        tm_checkpoint_io     io = failing(&f);
        tm_checkpoint_report report = { 0 };
        tm_error             err = { 0 };
        tm_status            st =
            tm_checkpoint_load_with(&io, NULL, on.folder, step, &on.state, on.tensors, N_TENSORS, &report, &err);
        if (f.calls < at) break;
        add_outcome(out, &f, st, &err, &on);
        tm_text_printf(out, "    step %lld, %lld bytes, %zu passed over: ", (long long)report.step,
                       (long long)report.bytes, report.passed_over);
        add_words(out, report.text, on.folder);
        tm_text_add(out, "\n");
    }
    clear(on.folder);
}

/* One file of the newest is not there, empty, too long, or has another byte. */
static void add_damages(tm_text *out)
{
    static const char *const names[] = { TM_CHECKPOINT_SEAL, TM_CHECKPOINT_INDEX, TM_CHECKPOINT_DATA };
    for (int file = 0; file < 3; file++)
        for (int how = 0; how < 5; how++)
            for (int64_t step = -1; step < 3; step += 3) {
                tm_checkpoint_report report = { 0 };
                tm_error             err = { 0 };
                char                 path[400];
                fixture              on = new_fixture();
                save(&on, 1, 1, 0);
                save(&on, 2, 1, 0);
                snprintf(path, sizeof path, "%s/step-00000002/%s", on.folder, names[file]);
                FILE *f = how == 0 ? NULL : fopen(path, how == 1 ? "w" : "r+");
                if (how == 0) assert_int_equal(remove(path), 0);
                if (how == 2) fseek(f, 0, SEEK_END), fputs("more", f);
                if (how == 3) fseek(f, 40, SEEK_SET), fputc('#', f);
                if (how == 4) fseek(f, -1, SEEK_END), fputc('#', f);
                if (f) fclose(f);
                tm_status st = load(&on, step, &report, &err);
                tm_text_printf(out, "%s, damage %d, step %lld: %d ", names[file], how, (long long)step, st);
                add_words(out, err.text, on.folder);
                tm_text_printf(out, "; step %lld, %zu passed over: ", (long long)report.step, report.passed_over);
                add_words(out, report.text, on.folder);
                tm_text_add(out, "\n");
                clear(on.folder);
            }
}

static void words_are_as_recorded(void **state)
{
    tm_text out = { 0 };
    (void)state;
    whole_log_open();
    add_saves(&out, 1, EIO);
    add_saves(&out, 2, ENOSPC);
    add_saves(&out, 2, EACCES);
    add_saves(&out, 1, EFBIG);
    add_saves(&out, 2, 0);
    add_loads(&out, -1, EIO);
    add_loads(&out, 2, EACCES);
    add_loads(&out, -1, 0);
    add_damages(&out);
    whole_log_close();
    whole_is("tests/train/checkpoint-words.txt", &out);
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
static void signals_are_as_they_were(void **state)
{
    const sigset_t plain = mask_now();
    (void)state;
    for (int blocked = 0; blocked < 2; blocked++)
        for (int behind = 0; behind < 2; behind++)
            for (int fails_at = 0; fails_at < 2; fails_at++) {
                sigset_t         limit, before;
                faults           f = { .fail_at = fails_at, .error = EIO };
                tm_checkpoint_io io = failing(&f);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_as_recorded),
        cmocka_unit_test(signals_are_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
