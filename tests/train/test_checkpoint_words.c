/* SPDX-License-Identifier: Apache-2.0 */
/* What saving and loading say, to the letter, when any one of their calls to the system fails, ends early or finds
 * other bytes; that what is saved late is what was there; and that the signals of the thread that saves are as they
 * were. After a change that is meant:
 *     TM_RECORD=1 build/release/tests/train/test_checkpoint_words; git diff tests/train/checkpoint-words.txt
 */
#include "support/test.h"
#include "checkpoint_fixture.h"
#include "support/whole.h"

#include "base/file.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

/* --- a system that fails at one call --------------------------------------------------------------- */

typedef struct {
    int         calls, fail_at, error; /* error 0: it ends early */
    size_t      most;                  /* bytes of one read; 0: any */
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
    size_t most = ((faults *)context)->most;
    return SYSTEM.read_at(NULL, fd, data, most && most < bytes ? most : bytes, offset);
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

static const char *seal_of(const fixture *on)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/step-00000001/complete", on->folder);
    return path;
}

/* As a crash while a step was replaced leaves it: number 2 beside number 1, and `whole` or without its record. Number 3
 * replaces them. */
static void add_replacements(tm_text *out, bool whole)
{
    tm_text_printf(out, "replacing one that is there twice, the new one %s\n", whole ? "whole" : "incomplete");
    for (int at = 0, calls = 1; at <= calls; at++) {
        faults               f = { .fail_at = at, .error = EIO };
        tm_checkpoint_io     io = failing(&f);
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
        if (at == 0) f.name = "nothing";
        add_outcome(out, &f, st, &err, &on);
        assert_int_equal(load(&on, 1, &report, &err), TM_OK);
        tm_text_printf(out, "    number %d is loaded, of %zu\n",
                       holds(&on, 1, 1)   ? 1
                       : holds(&on, 1, 2) ? 2
                       : holds(&on, 1, 3) ? 3
                                          : 0,
                       count_entries(&on, TM_CHECKPOINT_FINAL) + count_entries(&on, TM_CHECKPOINT_OLD));
        clear(on.folder);
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

/* What is loaded of a folder when a step is asked for, and -1: the newest. */
static void add_choices(tm_text *out)
{
    static const char *const folders[][4] = { /* "!": incomplete; the number of the step is the 13th character */
                                              { " step-00000001" },
                                              { " step-00000000", " step-00000001" },
                                              { "!step-00000000", " step-00000001" },
                                              { " step-00000000", "!step-00000001", " step-00000001.old" },
                                              { "!step-00000001", "!step-00000001.old", " step-00000002" },
                                              { " step-00000000.old", "!step-00000001" },
                                              { "!step-00000001", " step-00000001.tmp.7", " step-00000000" },
                                              { " step-00000001.tmp.7" }
    };
    for (size_t c = 0; c < sizeof folders / sizeof folders[0]; c++)
        for (int64_t step = -1; step < 3; step++) {
            fixture              on = new_fixture(), from = new_fixture();
            tm_checkpoint_report report = { 0 };
            tm_error             err = { 0 };
            char                 path[400], to[400];
            int                  loaded = 0;
            for (int k = 0; k < 4 && folders[c][k]; k++) {
                int64_t of = folders[c][k][13] - '0';
                save(&from, of, (uint64_t)k, 0);
                snprintf(path, sizeof path, "%s/step-%08d/complete", from.folder, (int)of);
                if (folders[c][k][0] == '!') assert_int_equal(unlink(path), 0);
                path[strlen(path) - strlen("/complete")] = '\0';
                snprintf(to, sizeof to, "%s/%s", on.folder, folders[c][k] + 1);
                assert_int_equal(rename(path, to), 0);
            }
            tm_status st = load(&on, step, &report, &err);
            while (st == TM_OK && loaded < 4 && !holds(&on, report.step, (uint64_t)loaded)) loaded++;
            tm_text_printf(out, "folder %zu, step %d: %d ", c, (int)step, st);
            if (st == TM_OK)
                tm_text_printf(out, "%s, %zu passed over", folders[c][loaded] + 1, report.passed_over);
            else
                add_words(out, err.text, on.folder);
            tm_text_printf(out, "%s\n", tm_checkpoint_present(on.folder) ? "" : "; none is there");
            clear(on.folder);
            clear(from.folder);
        }
}

/* So many incomplete ones, and one before them, or none. */
static void add_reasons(tm_text *out)
{
    for (int64_t n = 1; n <= 6; n++)
        for (int64_t good = 0; good < 2; good++) {
            tm_checkpoint_report report = { 0 };
            tm_error             err = { 0 };
            char                 path[400];
            fixture              on = new_fixture();
            if (good) save(&on, 0, 1, 0);
            for (int64_t step = 1; step <= n; step++) {
                save(&on, step, 1, 0);
                snprintf(path, sizeof path, "%s/step-%08d/complete", on.folder, (int)step);
                assert_int_equal(unlink(path), 0);
            }
            tm_status st = load(&on, -1, &report, &err);
            tm_text_printf(out, "%d incomplete: %d ", (int)n, st);
            add_words(out, good ? report.text : err.text, on.folder);
            tm_text_add(out, "\n");
            clear(on.folder);
        }
}

/* Records whose checksum is right. */
static void add_records(tm_text *out)
{
    static const tm_checkpoint_seal changes[] = {
        { .step = 1 },       { .index_bytes = 1 }, { .index_bytes = 1 << 30 }, { .index_bytes = (1 << 30) + 1 },
        { .index_hash = 1 }, { .data_bytes = 1 },  { .in_pieces = true }
    };
    fixture on = new_fixture();
    char    path[400];
    save(&on, 2, 1, 0);
    snprintf(path, sizeof path, "%s/step-00000002/complete", on.folder);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const tm_checkpoint_seal *change = &changes[i];
        tm_checkpoint_report      report = { 0 };
        tm_checkpoint_seal        seal;
        tm_error                  err = { 0 };
        tm_text                   was = { 0 };
        unsigned char             bytes[TM_CHECKPOINT_SEAL_BYTES];
        assert_int_equal(tm_file_read(path, 100, &was, &err), TM_OK);
        assert_int_equal(tm_checkpoint_seal_decode((unsigned char *)was.data, was.length, &seal, &err), TM_OK);
        if (change->step) seal.step = change->step;
        if (change->index_bytes) seal.index_bytes = change->index_bytes;
        if (change->index_hash) seal.index_hash = change->index_hash;
        if (change->data_bytes) seal.data_bytes = change->data_bytes;
        seal.in_pieces = change->in_pieces;
        tm_checkpoint_seal_encode(&seal, bytes);
        assert_int_equal(tm_file_write(path, bytes, sizeof bytes, &err), TM_OK);
        tm_status st = load(&on, 2, &report, &err);
        tm_text_printf(out, "record %zu: %d ", i, st);
        add_words(out, err.text, on.folder);
        tm_text_add(out, "\n");
        assert_int_equal(tm_file_write(path, was.data, was.length, &err), TM_OK);
        tm_text_fini(&was);
    }
    clear(on.folder);
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
    add_saves(&out, 2, EINTR);
    add_replacements(&out, true);
    add_replacements(&out, false);
    add_loads(&out, -1, EIO);
    add_loads(&out, 2, EACCES);
    add_loads(&out, -1, 0);
    add_loads(&out, 2, EINTR);
    add_damages(&out);
    add_choices(&out);
    add_reasons(&out);
    add_records(&out);
    whole_log_close();
    whole_is("tests/train/checkpoint-words.txt", &out);
}

/* A read that ends early is gone on with; a checkpoint without tensors has a file without bytes. */
static void short_reads_and_no_tensors(void **state)
{
    for (size_t n = 0; n <= N_TENSORS; n += N_TENSORS) {
        faults               f = { .most = 7 };
        tm_checkpoint_io     io = failing(&f);
        tm_checkpoint_report report = { 0 };
        tm_error             err = { 0 };
        fixture              on = new_fixture();
        (void)state;
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
static void a_copy_is_written(void **unused)
{
    static const tm_checkpoint_memory device = { .read = read_device };
    fixture                           f = new_fixture();
    tm_checkpoint_io                  io = tm_checkpoint_system_io;
    tm_checkpoint_target              target = { .folder = f.folder, .keep_latest = 1, .behind = true };
    tm_checkpoint_saving             *saving;
    tm_error                          err = { 0 };
    (void)unused;
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
    static const long        bytes[] = { TM_CHECKPOINT_SEAL_BYTES, 0, 0 };
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(words_are_as_recorded),
    cmocka_unit_test(short_reads_and_no_tensors),
    cmocka_unit_test(a_copy_is_written),
    cmocka_unit_test(signals_are_as_they_were),
};

TM_TESTS(tests, NULL, NULL)
