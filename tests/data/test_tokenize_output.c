/* SPDX-License-Identifier: Apache-2.0 */
/* An indexed data set written bit by bit: its bytes, what goes on after a kill and what begins anew. */
#include "support/folder.h"

#include "base/file.h"
#include "base/text.h"
#include "data/tokenize_output.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

static const int32_t ids[] = { 1, 258, 65535, 65536, 70000, 7, 8 };

static const char *at(const char *end)
{
    static char path[4][300];
    static int  turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s%s", test_in_folder("set"), end);
    return path[turn];
}

static tm_tokenize_output begin(bool wide, uint64_t key)
{
    tm_tokenize_output out;
    tm_error           err = { 0 };
    if (tm_tokenize_output_open(at(""), wide, key, &out, &err) != TM_OK) fail_msg("%s", err.text);
    return out;
}

static void expect_file(const char *end, const uint8_t *bytes, size_t n)
{
    tm_text  text = { 0 };
    tm_error err = { 0 };
    if (tm_file_read(at(end), 1 << 20, &text, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(text.length, n);
    if (n > 0) assert_memory_equal(text.data, bytes, n);
    tm_text_fini(&text);
}

/* Documents of 2, 0 and 5 tokens; the second is none. */
static void write_documents(tm_tokenize_output *out)
{
    tm_tokenize_output_add(out, ids, 1);
    tm_tokenize_output_add(out, ids + 1, 1);
    tm_tokenize_output_end_document(out);
    tm_tokenize_output_end_document(out);
    tm_tokenize_output_add(out, ids + 2, 5);
    tm_tokenize_output_end_document(out);
}

TEST_WITH(the_bytes_are_those_of_the_format, NULL, test_folder_teardown)
{
    static const uint8_t narrow[] = { 1, 0, 2, 1, 0xff, 0xff, 0, 0, 0x70, 0x11, 7, 0, 8, 0 };
    static const uint8_t four[] = { 1, 0, 0,    0,    2, 1, 0, 0, 0xff, 0xff, 0, 0, 0, 0,
                                    1, 0, 0x70, 0x11, 1, 0, 7, 0, 0,    0,    8, 0, 0, 0 };
    uint8_t index[] = { 'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4, /* version, format */
                        2,   0,   0,   0,   0,   0,   0,   0, 3, 0, 0, 0, 0, 0, 0, 0,       /* documents */
                        2,   0,   0,   0,   5,   0,   0,   0,                               /* lengths */
                        0,   0,   0,   0,   0,   0,   0,   0, 8, 0, 0, 0, 0, 0, 0, 0,       /* where they begin */
                        0,   0,   0,   0,   0,   0,   0,   0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0 };
    static const char *const gone[] = { ".bin.part", ".lengths.part", ".tokenize", ".tokenize.new" };
    for (int wide = 1; wide >= 0; wide--) {
        tm_error           err = { 0 };
        tm_tokenize_output out = begin(wide, 5);
        write_documents(&out);
        assert_int_equal(out.state.tokens, 7);
        assert_int_equal(out.state.documents, 2);
        assert_int_equal(out.state.open, 0);
        assert_int_equal(tm_tokenize_output_save(&out, &err), TM_OK);
        if (tm_tokenize_output_finish(&out, &err) != TM_OK) fail_msg("%s", err.text);
        tm_tokenize_output_close(&out);
        index[17] = wide ? 4 : 8;
        index[50] = wide ? 8 : 4; /* bytes before the second document */
        expect_file(".bin", wide ? four : narrow, wide ? sizeof four : sizeof narrow);
        expect_file(".idx", index, sizeof index);
        for (int i = 0; i < 4; i++) assert_false(tm_file_exists(at(gone[i])));
    }
}

/* What was saved counts; what came after it is cut off. */
TEST_WITH(a_killed_call_goes_on, NULL, test_folder_teardown)
{
    static const uint8_t tokens[] = { 1, 0, 2, 1, 9, 0 }, lengths[] = { 2, 0, 0, 0, 1, 0, 0, 0 };
    tm_error             err = { 0 };
    tm_tokenize_output   out = begin(false, 5);
    tm_tokenize_output_add(&out, ids, 2);
    tm_tokenize_output_end_document(&out);
    out.state.batches = 3, out.state.bytes = 44;
    assert_int_equal(tm_tokenize_output_save(&out, &err), TM_OK);
    tm_tokenize_output_add(&out, ids + 2, 4);
    tm_tokenize_output_end_document(&out);
    tm_tokenize_output_close(&out); /* killed */
    out = begin(false, 5);
    assert_int_equal(out.state.tokens, 2);
    assert_int_equal(out.state.documents, 1);
    assert_int_equal(out.state.batches, 3);
    assert_int_equal(out.state.bytes, 44);
    tm_tokenize_output_add(&out, &(int32_t){ 9 }, 1);
    tm_tokenize_output_end_document(&out);
    assert_int_equal(tm_tokenize_output_save(&out, &err), TM_OK);
    tm_tokenize_output_close(&out);
    out = begin(false, 5); /* nothing came after it */
    assert_int_equal(out.state.tokens, 3);
    tm_tokenize_output_close(&out);
    expect_file(".bin.part", tokens, sizeof tokens);
    expect_file(".lengths.part", lengths, sizeof lengths);
}

/* Saves two documents, damages something, and expects a new beginning: nothing of the old one is in the files. */
static void expect_new_beginning(const char *end, int64_t size, size_t flipped, uint64_t key)
{
    tm_error           err = { 0 };
    tm_tokenize_output out = begin(false, 5);
    write_documents(&out);
    assert_int_equal(tm_tokenize_output_save(&out, &err), TM_OK);
    tm_tokenize_output_close(&out);
    if (end && size < 0) assert_int_equal(unlink(at(end)), 0);
    if (end && size >= 0) assert_int_equal(truncate(at(end), size), 0);
    if (flipped > 0) {
        FILE *f = fopen(at(".tokenize"), "r+b");
        assert_non_null(f);
        fseek(f, (long)flipped - 1, SEEK_SET);
        int c = fgetc(f);
        fseek(f, (long)flipped - 1, SEEK_SET);
        fputc(c ^ 1, f);
        fclose(f);
    }
    out = begin(false, key);
    if (out.state.tokens != 0) fail_msg("%s of %lld bytes, %zu: goes on", end ? end : "", (long long)size, flipped);
    assert_int_equal(out.state.documents, 0);
    assert_int_equal(out.state.batches, 0);
    assert_int_equal(out.state.key, key);
    assert_false(tm_file_exists(at(".tokenize")));
    tm_tokenize_output_close(&out);
    expect_file(".bin.part", NULL, 0);
    expect_file(".lengths.part", NULL, 0);
}

TEST_WITH(what_is_damaged_begins_anew, NULL, test_folder_teardown)
{
    expect_new_beginning(NULL, 0, 0, 6); /* other options */
    expect_new_beginning(".tokenize", -1, 0, 5);
    expect_new_beginning(".tokenize", 10, 0, 5);
    expect_new_beginning(".bin.part", -1, 0, 5);
    expect_new_beginning(".lengths.part", -1, 0, 5);
    expect_new_beginning(".bin.part", 13, 0, 5);
    expect_new_beginning(".lengths.part", 7, 0, 5);
    for (size_t i = 1; i <= 8 + 6 * 8 + 8; i += 8) expect_new_beginning(NULL, 0, i, 5);
}

/* A hash that fits does not make numbers of a saved state possible: member k becomes `value`. */
TEST_WITH(numbers_that_nobody_saved_begin_anew, NULL, test_folder_teardown)
{
    const int64_t huge[] = { -1, INT64_C(1) << 61, INT64_C(1) << 62, INT64_MAX, INT64_MIN };
    for (size_t k = 1; k < sizeof(tm_tokenize_state) / 8; k++)
        for (size_t v = 0; v < sizeof huge / sizeof huge[0]; v++) {
            tm_error           err = { 0 };
            tm_tokenize_output out = begin(false, 5);
            int64_t           *member = (int64_t *)&out.state + k;
            bool               counts = k == 1 && huge[v] > 0; /* of batches there may be any number */
            write_documents(&out);
            *member = huge[v];
            assert_int_equal(tm_tokenize_output_save(&out, &err), TM_OK);
            tm_tokenize_output_close(&out);
            out = begin(false, 5);
            if ((out.state.tokens == 7) != counts) fail_msg("member %zu, %lld: goes on", k, (long long)huge[v]);
            tm_tokenize_output_close(&out);
            tm_error none = { 0 };
            assert_int_equal(tm_tokenize_output_open(at(""), false, 6, &out, &none), TM_OK);
            tm_tokenize_output_close(&out);
        }
}

TEST_WITH(two_calls_do_not_write_the_same_files, NULL, test_folder_teardown)
{
    tm_error           err = { 0 };
    tm_tokenize_output first = begin(false, 5), second;
    char               wanted[500];
    write_documents(&first);
    assert_int_equal(tm_tokenize_output_save(&first, &err), TM_OK);
    snprintf(wanted, sizeof wanted, "another process is writing '%s'; wait until it has ended, or name another --out",
             at(".bin"));
    for (uint64_t key = 5; key < 7; key++) {
        err = (tm_error){ 0 };
        assert_int_equal(tm_tokenize_output_open(at(""), false, key, &second, &err), TM_INVALID);
        assert_string_equal(err.text, wanted);
        assert_null(second.prefix);
    }
    assert_true(tm_file_exists(at(".tokenize")));
    write_documents(&first);
    assert_int_equal(tm_tokenize_output_finish(&first, &err), TM_OK);
    second = begin(false, 5); /* what is finished is not in the way, nor written to */
    assert_int_equal(second.state.tokens, 0);
    tm_tokenize_output_add(&second, ids, 7);
    tm_tokenize_output_close(&second);
    tm_tokenize_output_close(&first);
    struct stat info;
    assert_int_equal(stat(at(".bin"), &info), 0);
    assert_int_equal(info.st_size, 28);
}

TESTS_IN_ORDER
