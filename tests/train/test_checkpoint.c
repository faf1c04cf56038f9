/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that arrive whole, damaged ones, ones that belong to another model, folders in every state, and single
 * tensors of them. */
#include "checkpoint_fixture.h"

#include "support/whole.h"
#include "train/checkpoint/view.h"

#include <errno.h>
#include <fcntl.h>

TEST(what_was_saved_is_loaded_in_any_order)
{
    static loaded l;
    char         *folder = new_folder();
    save(folder, 42, 0, 0);
    prepare(&l);
    for (size_t i = 0; i < WHOLE / 2; i++) {
        tm_checkpoint_tensor first = l.held.tensors[i];
        l.held.tensors[i] = l.held.tensors[WHOLE - 1 - i];
        l.held.tensors[WHOLE - 1 - i] = first;
    }
    assert_int_equal(tm_checkpoint_load_newest(folder, -1, &l.state, l.held.tensors, WHOLE, &l.report, &l.err), TM_OK);
    assert_true(holds(&l, 42, 0));
    assert_true(l.report.step == 42 && l.report.bytes == WHOLE_BYTES && l.report.passed_over == 0 && !l.report.text[0]);
    assert_true(exists(folder, "step-00000042/complete"));
    assert_int_equal(count_entries(folder, TM_CHECKPOINT_TEMPORARY), 0);
    test_tree_remove(folder);
}

/* Whole and in parts, of which both have chunks; and a checkpoint without tensors. */
TEST(large_tensors_cross_chunks)
{
    const size_t         bytes = (3u << 20) + 77, cut = (1u << 20) + 301;
    char                *folder = new_folder();
    unsigned char       *a = tm_alloc(bytes), *b = tm_alloc(bytes);
    tm_checkpoint_tensor tensor = { .name = "big", .rank = 1, .n = { (int64_t)bytes }, .bytes = bytes };
    tm_checkpoint_state  state = state_of(1, 0);
    tm_checkpoint_report report;
    for (size_t i = 0; i < bytes; i++) a[i] = (unsigned char)(tm_random_u64(1, 1, i / 8) >> i % 8 * 8);
    place(&tensor, a);
    unsigned long long allocations = tm_alloc_count();
    assert_ok(tm_checkpoint_save(folder, &state, &tensor, 1, 0, err));
    assert_true(tm_alloc_count() - allocations < 20);
    tm_checkpoint_tensor parts[] = { tensor, tensor, tensor };
    parts[1].part = (tm_checkpoint_part){ bytes, bytes, 0, 1, 0, parts[1].bytes = cut };
    parts[2].part = (tm_checkpoint_part){ bytes, bytes, 0, 1, cut, parts[2].bytes = bytes - cut };
    for (int n = 1; n < 3; n++) {
        memset(b, 0, bytes);
        for (int i = 0; i < n; i++) place(&parts[n - 1 + i], b + (size_t)i * cut);
        assert_ok(tm_checkpoint_load_newest(folder, 1, &state, &parts[n - 1], (size_t)n, &report, err));
        assert_memory_equal(a, b, bytes);
    }
    state.step = 2;
    assert_ok(tm_checkpoint_save(folder, &state, NULL, 0, 0, err));
    assert_ok(tm_checkpoint_load_newest(folder, -1, &state, NULL, 0, &report, err));
    assert_true(state.step == 2 && report.bytes == 0);
    free(a), free(b);
    test_tree_remove(folder);
}

/* --- folders ------------------------------------------------------------------------------------------------------ */

TEST(the_latest_are_kept)
{
    char *folder = new_folder();
    for (int64_t step = 10; step <= 50; step += 10) save(folder, step, 0, 2);
    assert_int_equal(count_entries(folder, TM_CHECKPOINT_FINAL), 2);
    assert_true(exists(folder, "step-00000040") && exists(folder, "step-00000050"));
    for (int64_t step = 60; step <= 80; step += 10) save(folder, step, 0, 0);
    assert_int_equal(count_entries(folder, TM_CHECKPOINT_FINAL), 5);
    save(folder, 65, 0, 1); /* later steps stay */
    assert_int_equal(count_entries(folder, TM_CHECKPOINT_FINAL), 3);
    assert_true(exists(folder, "step-00000065") && exists(folder, "step-00000070") && exists(folder, "step-00000080"));
    test_tree_remove(folder);
}

TEST(other_files_are_left_alone)
{
    static const char *const folders[] = { "step-42",      "step-000000042",    "step-00000001x",
                                           "notes",        "step-00000001.tmp", "step-99999999999999999999",
                                           "step--0000001" };
    static const char *const kept[] = { "my notes",           "tensors--0001.bin",  "tensors-1.bin",
                                        "tensors-00001.bin2", "tensors-000001.bin", "tensors-4294967297.bin",
                                        "tensors-",           "tensor1-00001.bin",  "tensors-1.safetensors" };
    char                    *folder = new_folder();
    tm_text                  said = { 0 };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_int_equal(mkdir(path_in(folder, folders[i]), 0777), 0);
    assert_false(tm_checkpoint_present(folder));
    save(folder, 7, 0, 1);
    assert_true(tm_checkpoint_present(folder));
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) test_put(path_in(folder, "step-00000007"), kept[i], "x");
    whole_log_open();
    save(folder, 8, 0, 1);
    whole_log_take(&said);
    whole_log_close();
    assert_true(!said.data ||
                !strstr(said.data, "cannot remove")); /* what others have put there stays, and its folder */
    tm_text_fini(&said);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        assert_true(tm_file_exists(path_in(path_in(folder, "step-00000007"), kept[i])));
    assert_false(exists(folder, "step-00000007/tensors.safetensors"));
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) assert_true(exists(folder, folders[i]));
    load_and_expect(folder, 8, 0);
    test_tree_remove(folder);
}

TEST(leftovers_go_and_one_process_saves_at_a_time)
{
    char            *folder = new_folder();
    tm_checkpoint_io impatient = tm_checkpoint_system_io;
    impatient.lock_wait_ms = 0;
    save(folder, 1, 0, 0);
    test_put(folder, "step-00000002.tmp.12345/tensors.bin", "half");
    load_and_expect(folder, 1, 0);
    int lock = tm_checkpoint_lock(folder, 0);
    assert_true(lock >= 0);
    assert_int_equal(tm_checkpoint_lock(folder, 30), -1);
    assert_int_equal(errno, EWOULDBLOCK);
    assert_refused(save_with(&impatient, folder, 2, 0, 0, err), TM_IO, "another process saves");
    assert_int_equal(count_entries(folder, TM_CHECKPOINT_TEMPORARY), 1); /* it may be that of the other */
    tm_checkpoint_unlock(lock);
    save(folder, 2, 0, 0);
    assert_int_equal(count_entries(folder, TM_CHECKPOINT_TEMPORARY), 0);
    load_and_expect(folder, 2, 0);
    test_tree_remove(folder);
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
    static loaded l;
    for (size_t c = 0; c < sizeof rows / sizeof rows[0]; c++) {
        char *folder = new_folder(), *from = new_folder(), name[40];
        for (int k = 0; k < 3 && rows[c].folder[k]; k++) {
            snprintf(name, sizeof name, "step-0000000%c", rows[c].folder[k][13]);
            save(from, rows[c].folder[k][13] - '0', (uint64_t)k, 0);
            if (rows[c].folder[k][0] == '!') assert_int_equal(unlink(path_in(path_in(from, name), "complete")), 0);
            assert_int_equal(rename(path_in(from, name), path_in(folder, rows[c].folder[k] + 1)), 0);
        }
        for (int step = -1; step < 3; step++) {
            const int wanted = rows[c].wanted[step + 1];
            tm_status st = load(folder, step, &l);
            if (wanted >= 0 && (st != TM_OK || !holds(&l, l.report.step, (uint64_t)wanted)))
                fail_msg("row %zu, step %d: %s", c, step, l.err.text);
            if (wanted >= 0 && step == -1) assert_int_equal(l.report.passed_over, rows[c].passed_over);
            if (wanted >= 0) continue;
            assert_int_equal(st, wanted == NONE ? TM_INVALID : TM_FORMAT);
            assert_says(&l.err, wanted == NONE ? "there is no checkpoint" : "it is incomplete (no file complete)");
        }
        assert_int_equal(tm_checkpoint_present(folder), c != 7);
        test_tree_remove(folder);
        test_tree_remove(from);
    }
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

static const char *const files[] = { "step-00000002/complete", "step-00000002/index.bin",
                                     "step-00000002/tensors.safetensors" };

/* Step 2 is damaged: step 1 is loaded and the report says so; step 2 by name fails and touches nothing. */
static void expect_fallback(const char *folder, const char *what, long at)
{
    static loaded l;
    if (load(folder, -1, &l) != TM_OK) fail_msg("%s, %ld: %s", what, at, l.err.text);
    if (l.report.step != 1 || l.report.passed_over != 1 || !holds(&l, 1, 0)) fail_msg("%s, %ld: not step 1", what, at);
    if (!strstr(l.report.text, "step-00000002")) fail_msg("%s, %ld: report '%s'", what, at, l.report.text);
    tm_status st = load(folder, 2, &l);
    if (st != TM_FORMAT && st != TM_IO) fail_msg("%s, %ld: status %d", what, at, (int)st);
    if (!untouched(&l)) fail_msg("%s, %ld: memory was touched", what, at);
    assert_says(&l.err, "step-00000002");
}

TEST(every_flipped_byte_is_found)
{
    char    *folder = new_folder();
    uint64_t header;
    save(folder, 1, 0, 0);
    save(folder, 2, 0, 0);
    for (size_t i = 0; i < 3; i++) {
        struct stat info;
        int         fd = open(path_in(folder, files[i]), O_RDWR);
        assert_true(fd >= 0 && fstat(fd, &info) == 0 && pread(fd, &header, 8, 0) == 8);
        for (off_t at = 0; at < info.st_size; at++) {
            unsigned char byte, flipped;
            bool          unread = i == 2 && at < 8 + (off_t)header; /* the header, which is for others */
            if (unread && at >= 8 && at % 16) continue;
            assert_int_equal(pread(fd, &byte, 1, at), 1);
            flipped = byte ^ (unsigned char)(1u << (at * 5 + 3) % 8);
            assert_int_equal(pwrite(fd, &flipped, 1, at), 1);
            if (unread)
                load_and_expect(folder, 2, 0);
            else
                expect_fallback(folder, files[i], (long)at);
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        }
        close(fd);
    }
    load_and_expect(folder, 2, 0);
    test_tree_remove(folder);
}

TEST(every_truncation_and_extension_is_found)
{
    char *folder = new_folder();
    save(folder, 1, 0, 0);
    for (size_t i = 0; i < 3; i++) {
        struct stat info;
        save(folder, 2, 0, 0);
        const char *path = path_in(folder, files[i]);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(truncate(path, info.st_size + 1), 0);
        expect_fallback(folder, "longer by a byte", 0);
        for (off_t size = info.st_size - 1; size >= 0; size -= 1 + size % 5) {
            assert_int_equal(truncate(path, size), 0);
            expect_fallback(folder, "truncated", (long)size);
        }
        assert_int_equal(unlink(path), 0);
        expect_fallback(folder, "missing", 0);
        assert_int_equal(mkfifo(path, 0666), 0); /* must not hang */
        expect_fallback(folder, "a fifo", 0);
    }
    test_tree_remove(folder);
}

TEST(other_tensors_than_wanted_are_named)
{
    static const char *const words[] = {
        "tensor 'renamed', expected with dtype 1 and shape (12, 9), is missing",
        "tensor 'embedding': found dtype 1, shape (12, 9), 432 bytes; wanted dtype 3, shape (12, 9), 432 bytes",
        "found dtype 1, shape (12, 9), 432 bytes; wanted dtype 1, shape (12), 432 bytes",
        "found dtype 1, shape (12, 9), 432 bytes; wanted dtype 1, shape (9, 12), 432 bytes",
        "found dtype 1, shape (12, 9), 432 bytes; wanted dtype 1, shape (12, 9), 436 bytes",
        "it holds tensor 'scale' with dtype 60000 and shape (), which is not expected",
        "tensor 'more', expected with dtype 0 and shape (), is missing",
        "it holds tensor 'experts' with dtype ", /* the first of four by name */
    };
    static loaded l;
    char         *folder = new_folder();
    assert_int_equal(TM_F32, 1);
    save(folder, 1, 0, 0);
    save(folder, 2, 0, 0);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        prepare(&l);
        tm_checkpoint_tensor *t = l.held.tensors;
        if (i == 0) t[0].name = "renamed";
        if (i == 1) t[0].dtype = 3;
        if (i == 2) t[0].rank = 1;
        if (i == 3) t[0].n[0] = 9, t[0].n[1] = 12;
        if (i == 4) t[0].bytes = 436;
        if (i == 6) t[WHOLE] = (tm_checkpoint_tensor){ .name = "more" };
        size_t n = i == 5 ? WHOLE - 1 : i == 6 ? WHOLE + 1 : i == 7 ? 2 : WHOLE;
        assert_int_equal(tm_checkpoint_load_newest(folder, -1, &l.state, t, n, &l.report, &l.err), TM_INVALID);
        assert_says(&l.err, words[i]);
        assert_says(&l.err, "step-00000002"); /* not step 1: that would be the wrong model, too */
        assert_true(untouched(&l));
    }
    test_tree_remove(folder);
}

/* --- single tensors ----------------------------------------------------------------------------------------------- */

/* Flips a bit of the index, or of the first tensor. */
static void change(const char *folder, const char *file)
{
    unsigned char byte;
    int           fd = open(path_in(folder, file), O_RDWR);
    off_t         at = strstr(file, "index") ? 40 : lseek(fd, 0, SEEK_END) - WHOLE_BYTES + 5;
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 0x10;
    assert_true(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
}

/* NULL: it says these words, and the folder. */
static tm_checkpoint_view *view_of(const char *folder, int64_t step, tm_status wanted, const char *words)
{
    tm_checkpoint_view *view = NULL;
    tm_error            err = { 0 };
    tm_status           st = tm_checkpoint_view_open(folder, step, &view, &err);
    if (st != wanted) fail_msg("status %d, %s", (int)st, err.text);
    if (st == TM_OK) return view;
    assert_says(&err, words);
    assert_says(&err, folder);
    assert_null(view);
    return NULL;
}

static void finds(tm_checkpoint_view *view, const char *name, tm_status wanted, size_t bytes, const char *words)
{
    int      dtype;
    size_t   found = 0;
    tm_error err = { 0 };
    assert_int_equal(tm_checkpoint_view_find(view, name, &dtype, &found, &err), wanted);
    if (wanted == TM_OK) assert_int_equal(found, bytes);
    assert_says(&err, words);
}

/* Any run of bytes; of the newest whole checkpoint, or of a step; a state by the name of what it is of. */
TEST(tensors_are_viewed_one_at_a_time)
{
    static holding      h;
    unsigned char       part[700];
    char               *folder = new_folder();
    tm_checkpoint_view *view = view_of(folder, -1, TM_INVALID, "there is no checkpoint in");
    save(folder, 5, 1, 0);
    save(folder, 12, 2, 0);
    for (int64_t step = 0; step < 5; step += 4) view_of(folder, step, TM_INVALID, "there is no checkpoint of step ");
    for (int newest = 0; newest < 2; newest++) {
        view = view_of(folder, newest ? -1 : 5, TM_OK, "");
        hold(&h, FIRST, 0, 1);
        visit(&h, newest ? key_of(12, 2) : key_of(5, 1), true);
        for (const tm_checkpoint_tensor *t = h.tensors; t < h.tensors + h.n; t++) {
            finds(view, t->name, TM_OK, t->bytes, "");
            for (size_t from = 0, n = 1; from + n <= t->bytes; from += 1 + t->bytes / 7, n = 1 + n * 3 % 80) {
                memset(part, 0xEE, sizeof part);
                assert_ok(tm_checkpoint_view_read(view, t->name, from, part, n, err));
                assert_memory_equal(part, (const char *)t->at.at + from, n);
                assert_int_equal(part[n], 0xEE);
            }
        }
        finds(view, "other", TM_INVALID, 0, "holds no tensor 'other'");
        assert_refused(tm_checkpoint_view_take(view, "eight", err), TM_INVALID, "");
        assert_ok(tm_checkpoint_view_take(view, "weight", err));
        finds(view, "layers.0.wo", TM_OK, 672, "");
        finds(view, "layers.0.norm", TM_OK, 76, ""); /* it has no such state */
        tm_checkpoint_view_close(view);
    }
    change(folder, "step-00000005/" TM_CHECKPOINT_DATA);
    change(folder, "step-00000012/" TM_CHECKPOINT_INDEX);
    view = view_of(folder, -1, TM_OK, ""); /* the older one */
    finds(view, "embedding", TM_FORMAT, 0, "step-00000005': tensor 'embedding' does not match its checksum");
    finds(view, "experts", TM_OK, 320, "");
    tm_checkpoint_view_close(view);
    change(folder, "step-00000005/" TM_CHECKPOINT_INDEX);
    view_of(folder, 5, TM_FORMAT, "/step-00000005': ");
    view_of(folder, -1, TM_FORMAT, "/step-00000012': "); /* of the newest it is said why */
    test_tree_remove(folder);
}
