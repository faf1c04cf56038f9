/* SPDX-License-Identifier: Apache-2.0 */
/* What a power cut takes from metrics.jsonl: at most the lines of the last second, none from before a checkpoint. The
 * disk here keeps what was in the file when it was last flushed, and nothing else. */

#include "support/test.h"

#include "base/clock.h"
#include "base/file.h"
#include "record/committer.h"
#include "record/record.h"
#include "support/fake_run.h"
#include "support/folder.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

static _Atomic(int64_t) kept_bytes;
static atomic_int       flushes, broken; /* by which error */

static int flush_to_disk(int fd)
{
    struct stat info;
    flushes++;
    if (broken) return errno = broken, -1;
    if (fstat(fd, &info) != 0) return -1;
    kept_bytes = (int64_t)info.st_size;
    return 0;
}

static int reset(void **state)
{
    (void)state;
    kept_bytes = 0;
    flushes = broken = 0;
    return 0;
}

static void wait_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* Lines of the file that the power cut left. */
static int64_t lines_after_power_cut(const char *path)
{
    assert_int_equal(truncate(path, (off_t)kept_bytes), 0);
    tm_text text = fake_read(path);
    int64_t n = 0;
    for (size_t i = 0; i < text.length; i++) n += text.data[i] == '\n';
    assert_true(text.length == 0 || text.data[text.length - 1] == '\n');
    tm_text_fini(&text);
    return n;
}

/* Lines come for a while: those older than the interval are there by themselves, if the power goes. */
TEST(old_lines_survive)
{
    enum { INTERVAL_MS = 100, ENOUGH = 20 };
    const char *path = test_in_folder("lines");
    int         fd;
    tm_error    err = { 0 };
    assert_int_equal(tm_file_open_append(path, &fd, &err), TM_OK);
    record_committer *c = record_committer_start(path, fd, INTERVAL_MS, flush_to_disk);
    int64_t           begin = tm_now_ns(), lines = 0;
    while (kept_bytes < 5 * ENOUGH) { /* also while lines keep coming */
        assert_int_equal(write(fd, "line\n", 5), 5);
        lines++;
        record_committer_note(c);
        wait_ms(15);
    }
    while (kept_bytes < 5 * lines) wait_ms(1); /* nobody has to ask for the last ones, either */
    int so_far = flushes;
    assert_in_range(so_far, 1, (tm_now_ns() - begin) / (INTERVAL_MS * 1000000) + 1); /* in groups, not for each line */
    wait_ms(3 * INTERVAL_MS);                                                        /* nothing new: one more at most */
    assert_in_range(flushes, so_far, so_far + 1);
    assert_int_equal(record_committer_stop(c), 0);
    assert_int_equal(kept_bytes, 5 * lines);
    close(fd);
}

/* A file that cannot be flushed at all, as a pipe, is no failure; a disk that fails is. */
TEST(what_cannot_be_flushed_is_let_pass)
{
    static const struct {
        int cause, told;
    } rows[] = { { EINVAL, 0 }, { EROFS, 0 }, { EIO, EIO }, { ENOSPC, ENOSPC } };
    for (size_t i = 0; i < 4; i++) {
        int      fd;
        tm_error err = { 0 };
        broken = rows[i].cause;
        assert_int_equal(tm_file_open_append(test_in_folder("refused"), &fd, &err), TM_OK);
        char             *path = strdup(test_in_folder("refused"));
        record_committer *c = record_committer_start(path, fd, 60000, flush_to_disk);
        record_committer_note(c);
        assert_int_equal(record_committer_flush(c), rows[i].told);
        record_committer_note(c);
        assert_int_equal(record_committer_stop(c), rows[i].told);
        close(fd);
        free(path);
    }
}

TEST(nothing_from_before_a_checkpoint_is_lost)
{
    const char        *path = test_in_folder("metrics.jsonl");
    tm_error           err = { 0 };
    tm_sink           *sink;
    tm_metrics_options options = { path, flush_to_disk };
    assert_int_equal(tm_metrics_sink_open(&options, &sink, &err), TM_OK);
    fake_emit(sink, fake_started());
    for (int step = 1; step <= 5; step++) fake_emit(sink, fake_step(step));
    fake_emit(sink, fake_checkpoint(5));
    int64_t at_checkpoint = kept_bytes;
    fake_emit(sink, fake_step(6));
    assert_true(kept_bytes == at_checkpoint); /* a step waits for no disk */
    fake_emit(sink, fake_evaluation(6));
    assert_true(kept_bytes > at_checkpoint);
    kept_bytes = at_checkpoint;
    assert_int_equal(lines_after_power_cut(path), 6);
    fake_close(sink);
}

/* The name goes while the run still writes: the next step behind a flush knows. */
TEST(a_removed_file_is_told)
{
    for (int moved = 0; moved < 3; moved++) { /* 2: and another file has its name */
        tm_error           err = { 0 };
        tm_sink           *sink;
        tm_metrics_options options = { test_in_folder("metrics.jsonl"), NULL };
        assert_int_equal(tm_metrics_sink_open(&options, &sink, &err), TM_OK);
        fake_emit(sink, fake_started());
        fake_emit(sink, fake_step(1));
        if (moved)
            assert_int_equal(rename(options.path, test_in_folder("elsewhere")), 0);
        else
            unlink(options.path);
        if (moved == 2) assert_int_equal(tm_file_write(options.path, "other\n", 6, &err), TM_OK);
        for (int64_t step = 2; step < 500 && !tm_sink_error(sink); step++) {
            fake_emit(sink, fake_step(step));
            wait_ms(10);
        }
        assert_non_null(tm_sink_error(sink));
        assert_int_equal(tm_sink_close(sink, &err), TM_IO);
        assert_non_null(strstr(err.text, "it was moved or removed during the run"));
    }
}

TEST_FIXTURE(reset, test_folder_teardown)
