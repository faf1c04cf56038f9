/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that arrive whole, damaged ones, ones that belong to another model, and folders in every state. */
#include "support/test.h"
#include "checkpoint_fixture.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>

TEST(what_was_saved_is_loaded_in_any_order)
{
    fixture              f = new_fixture();
    tm_checkpoint_report report;
    tm_error             err = { 0 };
    save(&f, 42, 0, 0);
    memset(f.data, 0, sizeof f.data);
    tm_checkpoint_tensor turned[N_TENSORS];
    for (size_t i = 0; i < N_TENSORS; i++) turned[i] = f.tensors[N_TENSORS - 1 - i];
    assert_int_equal(tm_checkpoint_load_newest(f.folder, -1, &f.state, turned, N_TENSORS, &report, &err), TM_OK);
    assert_true(holds(&f, 42, 0));
    assert_int_equal(report.step, 42);
    assert_int_equal(report.bytes, ROOM_BYTES);
    assert_int_equal(report.passed_over, 0);
    assert_string_equal(report.text, "");
    assert_true(exists(&f, "step-00000042/complete"));
    assert_int_equal(count_entries(&f, TM_CHECKPOINT_TEMPORARY), 0);
    clear(f.folder);
}

TEST(large_tensors_cross_chunks)
{
    fixture        f = new_fixture();
    const size_t   bytes = (3u << 20) + 77;
    unsigned char *a = tm_alloc(bytes), *b = tm_alloc(bytes);
    for (size_t i = 0; i < bytes; i++) a[i] = (unsigned char)(tm_random_u64(1, 1, i / 8) >> i % 8 * 8);
    tm_checkpoint_tensor tensor = { .name = "big", .rank = 1, .n = { (int64_t)bytes }, .bytes = bytes };
    place(&tensor, a);
    tm_checkpoint_report report;
    tm_error             err = { 0 };
    fill(&f, 1, 0);
    unsigned long long allocations = tm_alloc_count();
    assert_int_equal(tm_checkpoint_save(f.folder, &f.state, &tensor, 1, 0, &err), TM_OK);
    assert_true(tm_alloc_count() - allocations < 20);
    place(&tensor, b);
    assert_int_equal(tm_checkpoint_load_newest(f.folder, 1, &f.state, &tensor, 1, &report, &err), TM_OK);
    assert_memory_equal(a, b, bytes);
    const size_t         cut = (1u << 20) + 301; /* in parts: the second one has chunks, too */
    tm_checkpoint_tensor parts[2] = { tensor, tensor };
    memset(b, 0, bytes);
    parts[0].part = (tm_checkpoint_part){ bytes, bytes, 0, 1, 0, parts[0].bytes = cut };
    parts[1].part = (tm_checkpoint_part){ bytes, bytes, 0, 1, cut, parts[1].bytes = bytes - cut };
    place(&parts[1], b + cut);
    assert_int_equal(tm_checkpoint_load_newest(f.folder, 1, &f.state, parts, 2, &report, &err), TM_OK);
    assert_memory_equal(a, b, bytes);
    free(a);
    free(b);
    clear(f.folder);
}

TEST(the_latest_are_kept)
{
    fixture f = new_fixture();
    for (int64_t step = 10; step <= 50; step += 10) save(&f, step, 0, 2);
    assert_int_equal(count_entries(&f, TM_CHECKPOINT_FINAL), 2);
    assert_true(exists(&f, "step-00000040") && exists(&f, "step-00000050"));
    for (int64_t step = 60; step <= 80; step += 10) save(&f, step, 0, 0);
    assert_int_equal(count_entries(&f, TM_CHECKPOINT_FINAL), 5);
    save(&f, 65, 0, 1); /* later steps stay */
    assert_int_equal(count_entries(&f, TM_CHECKPOINT_FINAL), 3);
    assert_true(exists(&f, "step-00000065") && exists(&f, "step-00000070") && exists(&f, "step-00000080"));
    clear(f.folder);
}

TEST(other_files_are_left_alone)
{
    static const char *const names[] = { "step-42",      "step-000000042",    "step-00000001x",
                                         "notes",        "step-00000001.tmp", "step-99999999999999999999",
                                         "step--0000001" };
    fixture                  f = new_fixture();
    char                     path[512];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", f.folder, names[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    assert_false(tm_checkpoint_present(f.folder));
    save(&f, 7, 0, 1);
    assert_true(tm_checkpoint_present(f.folder));
    static const char *const kept[] = { "my notes",           "tensors--0001.bin",  "tensors-1.bin",
                                        "tensors-00001.bin2", "tensors-000001.bin", "tensors-4294967297.bin",
                                        "tensors-",           "tensor1-00001.bin",  "tensors-1.safetensors" };
    tm_error                 err = { 0 };
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        snprintf(path, sizeof path, "%s/step-00000007/%s", f.folder, kept[i]);
        assert_int_equal(tm_file_write(path, "x", 1, &err), TM_OK);
    }
    save(&f, 8, 0, 1);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        char name[64];
        snprintf(name, sizeof name, "step-00000007/%s", kept[i]);
        assert_true(exists(&f, name));
    }
    assert_false(exists(&f, "step-00000007/tensors.safetensors"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_true(exists(&f, names[i]));
    load_and_expect(&f, 8, 0);
    clear(f.folder);
}

static const char *const files[] = { "step-00000002/complete", "step-00000002/index.bin",
                                     "step-00000002/tensors.safetensors" };

/* Step 2 is damaged: the newest usable one is step 1 and the report says so; step 2 by name fails and touches nothing.
 */
static void expect_fallback(fixture *f, const char *what)
{
    tm_checkpoint_report report;
    tm_error             err;
    if (load(f, -1, &report, &err) != TM_OK) fail_msg("%s: %s", what, err.text);
    if (report.step != 1 || report.passed_over != 1 || !holds(f, 1, 0)) fail_msg("%s: not step 1", what);
    if (!strstr(report.text, "step-00000002")) fail_msg("%s: report '%s'", what, report.text);
    tm_status st = load(f, 2, &report, &err);
    if (st != TM_FORMAT && st != TM_IO) fail_msg("%s: status %d", what, (int)st);
    if (!untouched(f)) fail_msg("%s: memory was touched", what);
    assert_says(&err, "step-00000002");
}

TEST(every_flipped_byte_is_found)
{
    fixture f = new_fixture();
    save(&f, 1, 0, 0);
    save(&f, 2, 0, 0);
    for (size_t i = 0; i < 3; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", f.folder, files[i]);
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        int fd = open(path, O_RDWR);
        assert_true(fd >= 0);
        for (off_t at = 0; at < info.st_size; at++) {
            unsigned char byte, flipped;
            char          what[600];
            assert_int_equal(pread(fd, &byte, 1, at), 1);
            flipped = byte ^ (unsigned char)(1u << (at * 5 + 3) % 8);
            assert_int_equal(pwrite(fd, &flipped, 1, at), 1);
            snprintf(what, sizeof what, "%s byte %ld", files[i], (long)at);
            bool unread = i == 2 && at < data_begins(path); /* the header, which is for others */
            if (unread && at >= 8 && at % 16) continue;
            if (unread)
                load_and_expect(&f, 2, 0);
            else
                expect_fallback(&f, what);
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        }
        close(fd);
    }
    load_and_expect(&f, 2, 0);
    clear(f.folder);
}

TEST(every_truncation_and_extension_is_found)
{
    fixture f = new_fixture();
    save(&f, 1, 0, 0);
    for (size_t i = 0; i < 3; i++) {
        char        path[512];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", f.folder, files[i]);
        save(&f, 2, 0, 0);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(truncate(path, info.st_size + 1), 0);
        expect_fallback(&f, "longer by a byte");
        for (off_t size = info.st_size - 1; size >= 0; size--) {
            assert_int_equal(truncate(path, size), 0);
            expect_fallback(&f, "truncated");
        }
        assert_int_equal(unlink(path), 0);
        expect_fallback(&f, "missing");
        assert_int_equal(mkfifo(path, 0666), 0); /* must not hang */
        expect_fallback(&f, "a fifo");
    }
    clear(f.folder);
}

TEST(other_tensors_than_wanted_are_named)
{
    fixture              f = new_fixture();
    tm_checkpoint_report report;
    save(&f, 1, 0, 0);
    save(&f, 2, 0, 0);
    static unsigned char room[256];
    const char *const    words[] = {
           "tensor 'renamed', expected with dtype 1 and shape (3, 5), is missing",
           "tensor 'layers.0.wq.weight': found dtype 1, shape (3, 5), 60 bytes; wanted dtype 3, shape (3, 5), 60 bytes",
           "found dtype 1, shape (3, 5), 60 bytes; wanted dtype 1, shape (3), 60 bytes",
           "found dtype 1, shape (3, 5), 60 bytes; wanted dtype 1, shape (5, 3), 60 bytes",
           "found dtype 1, shape (3, 5), 60 bytes; wanted dtype 1, shape (3, 5), 64 bytes",
           "it holds tensor 'loss_scale' with dtype 1 and shape (), which is not expected",
           "tensor 'more', expected with dtype 0 and shape (), is missing",
           "it holds tensor 'bytes' with dtype ", /* of 'loss_scale', 'nothing' and this */
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        tm_error             err = { 0 };
        tm_checkpoint_tensor t[N_TENSORS + 1] = { 0 };
        size_t               n = i == 5 ? N_TENSORS - 1 : i == 6 ? N_TENSORS + 1 : N_TENSORS;
        memset(f.data, 0xEE, sizeof f.data);
        memset(&f.state, 0xEE, sizeof f.state);
        memcpy(t, f.tensors, sizeof f.tensors);
        if (i == 0) t[0].name = "renamed";
        if (i == 1) t[0].dtype = 3;
        if (i == 2) t[0].rank = 1;
        if (i == 3) t[0].n[0] = 5, t[0].n[1] = 3;
        if (i == 4) t[0].bytes = 64, place(&t[0], room);
        if (i == 5) memmove(t + 1, t + 2, 2 * sizeof *t);
        if (i == 7) n = 1;
        if (i == 6) t[N_TENSORS] = (tm_checkpoint_tensor){ .name = "more" };
        assert_int_equal(tm_checkpoint_load_newest(f.folder, -1, &f.state, t, n, &report, &err), TM_INVALID);
        assert_says(&err, words[i]);
        assert_says(&err, "step-00000002"); /* not step 1: that would be the wrong model, too */
        assert_true(untouched(&f));
    }
    clear(f.folder);
}

/* A part of one of the seeds of the fuzzer, which are checkpoints of version 1 in one piece. */
static void write_part(const fixture *f, const char *name, const tm_text *seed, size_t from, size_t bytes)
{
    char     path[512];
    tm_error err = { 0 };
    snprintf(path, sizeof path, "%s/step-00000002", f->folder);
    (void)mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/step-00000002/%s", f->folder, name);
    assert_true(from + bytes <= seed->length);
    assert_int_equal(tm_file_write(path, seed->data + from, bytes, &err), TM_OK);
}

/* Checkpoints of before scalars had names: what stood at a place gets the name that belongs to it. */
TEST(version_1_is_read)
{
    static const char *const names[] = { "head_loss_count", "first_loss", "head_loss_mean", "head_loss_deviation" };
    fixture                  f = new_fixture();
    tm_text                  seed = { 0 };
    uint32_t                 index_bytes, version;
    FILE                    *file = fopen("tests/fuzz/corpus/checkpoint/usual", "rb");
    char                     bytes[4096];
    assert_non_null(file);
    tm_text_add_n(&seed, bytes, fread(bytes, 1, sizeof bytes, file));
    fclose(file);
    memcpy(&version, seed.data + 1 + 8, 4);
    memcpy(&index_bytes, seed.data + 57, 4);
    assert_int_equal(version, 1);
    write_part(&f, TM_CHECKPOINT_SEAL, &seed, 1, 56);
    write_part(&f, TM_CHECKPOINT_INDEX, &seed, 61, index_bytes);
    write_part(&f, TM_CHECKPOINT_OLD_DATA, &seed, 61 + index_bytes, seed.length - 61 - index_bytes);
    tm_checkpoint_tensor tensors[] = {
        { .name = "bytes", .dtype = 9, .rank = 4, .n = { 1, 13, 2, 5 }, .bytes = 130 },
        { .name = "layers.0.wq.weight", .dtype = 1, .rank = 2, .n = { 3, 5 }, .bytes = 60 },
        { .name = "nothing", .dtype = 2, .rank = 2, .n = { 0, 7 } },
    };
    place(&tensors[0], f.data);
    place(&tensors[1], f.data + 130);
    tm_checkpoint_report report;
    tm_error             err = { 0 };
    double               values[4];
    if (tm_checkpoint_load_newest(f.folder, -1, &f.state, tensors, 3, &report, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(f.state.n_scalars, 4);
    assert_int_equal(tm_checkpoint_scalars(&f.state, names, values, 4, &err), TM_OK);
    assert_true(values[0] == 4 && values[1] == 1 && values[2] == 2 && values[3] == 3);
    tm_text_fini(&seed);
    clear(f.folder);
}

TEST(leftovers_go_and_one_process_saves_at_a_time)
{
    fixture f = new_fixture();
    char    path[512];
    save(&f, 1, 0, 0);
    snprintf(path, sizeof path, "%s/step-00000002.tmp.12345", f.folder);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/step-00000002.tmp.12345/tensors.bin", f.folder);
    tm_error err = { 0 };
    assert_int_equal(tm_file_write(path, "half", 4, &err), TM_OK);
    load_and_expect(&f, 1, 0);
    int lock = tm_checkpoint_lock(f.folder, 0);
    assert_true(lock >= 0);
    assert_int_equal(tm_checkpoint_lock(f.folder, 30), -1);
    assert_int_equal(errno, EWOULDBLOCK);
    tm_checkpoint_io impatient = tm_checkpoint_system_io;
    impatient.lock_wait_ms = 0;
    fill(&f, 2, 0);
    assert_int_equal(tm_checkpoint_save_with(&impatient, f.folder, &f.state, f.tensors, N_TENSORS, 0, &err), TM_IO);
    assert_says(&err, "another process saves");
    assert_int_equal(count_entries(&f, TM_CHECKPOINT_TEMPORARY), 1); /* it may be that of the other */
    tm_checkpoint_unlock(lock);
    save(&f, 2, 0, 0);
    assert_int_equal(count_entries(&f, TM_CHECKPOINT_TEMPORARY), 0);
    load_and_expect(&f, 2, 0);
    clear(f.folder);
}
