/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are written in pieces: to the byte, at once or not at all, and what is said where the system gives no room
 * or no descriptor. */
#include "base/file.h"
#include "data/output.h"
#include "data/safetensors.h"
#include "support/folder.h"
#include "support/full_config.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support/test.h"

static const char *path_of(void)
{
    return test_in_folder("out");
}

static void expect_file(const void *bytes, size_t n)
{
    tm_text  found = { 0 };
    tm_error err = { 0 };
    if (tm_file_read(path_of(), 1 << 20, &found, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(found.length, n);
    assert_memory_equal(found.data, bytes, n);
    tm_text_fini(&found);
}

/* Files of the folder, drafts as well. */
static void expect_files(int wanted)
{
    int  n = 0;
    DIR *all = opendir(test_folder());
    assert_non_null(all);
    for (const struct dirent *e; (e = readdir(all));) n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(all);
    assert_int_equal(n, wanted);
}

TEST(pieces_become_a_file)
{
    static const uint8_t wanted[] = { 'a', 'b', 0xef, 0xcd, 0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01, 0x07, 0 };
    tm_output            out;
    tm_error             err = { 0 };
    test_file_write(test_folder(), "out", "before");
    for (int keep = 0; keep < 2; keep++) {
        assert_int_equal(tm_output_open(path_of(), &out, &err), TM_OK);
        tm_output_bytes(&out, "ab", 2);
        tm_output_bytes(&out, NULL, 0);
        tm_output_number(&out, 0x0123456789abcdef, 2);
        tm_output_number(&out, 0x0123456789abcdef, 8);
        tm_output_number(&out, 7, 1);
        tm_output_number(&out, 0x100, 1); /* no more than it is asked for */
        assert_int_equal(out.cause, 0);
        expect_file("before", 6);
        if (keep)
            assert_int_equal(tm_output_close(&out, &err), TM_OK);
        else
            tm_output_abandon(&out);
        assert_null(out.file);
        expect_files(1);
    }
    expect_file(wanted, sizeof wanted);
}

static const tm_tensor_heading headings[] = {
    { .name = "a \"b\"", .dtype = TM_F32, .rank = 2, .n = { 2, 1 } },
    { .name = "none", .dtype = TM_BF16, .rank = 1, .n = { 0 } },
    { .name = "one", .dtype = TM_I64, .rank = 0 },
};

/* Length, header, blanks up to a multiple of 64 bytes, then the tensors. */
TEST(tensors_to_the_byte)
{
    static const char *const metadata[][2] = { { "format", "pt" }, { "made", "\n" }, { NULL, NULL } };
    static const char        header[] = "{\"__metadata__\": {\"format\": \"pt\", \"made\": \"\\n\"}, "
                                        "\"a \\\"b\\\"\": {\"dtype\": \"F32\", \"shape\": [2, 1], \"data_offsets\": [0, 8]}, "
                                        "\"none\": {\"dtype\": \"BF16\", \"shape\": [0], \"data_offsets\": [8, 8]}, "
                                        "\"one\": {\"dtype\": \"I64\", \"shape\": [], \"data_offsets\": [8, 16]}}";
    char                     wanted[512] = "";
    size_t                   n = (8 + sizeof header - 1 + 63) / 64 * 64;
    tm_safetensors_writer   *writer;
    tm_error                 err = { 0 };
    wanted[0] = (char)(n - 8), wanted[1] = (char)((n - 8) >> 8);
    memset(wanted + 8, ' ', n - 8);
    memcpy(wanted + 8, header, sizeof header - 1);
    memcpy(wanted + n, "0123456789abcdef", 16);
    if (tm_safetensors_create(path_of(), headings, 3, metadata, &writer, &err) != TM_OK) fail_msg("%s", err.text);
    tm_safetensors_write(writer, "0123456789", 10);
    tm_safetensors_write(writer, "abcdef", 6);
    if (tm_safetensors_finish(writer, &err) != TM_OK) fail_msg("%s", err.text);
    expect_file(wanted, n + 16);
    /* One that is given up leaves what was there. */
    if (tm_safetensors_create(path_of(), headings, 3, NULL, &writer, &err) != TM_OK) fail_msg("%s", err.text);
    tm_safetensors_write(writer, "xxxx", 4);
    tm_safetensors_abandon(writer);
    tm_safetensors_abandon(NULL);
    expect_file(wanted, n + 16);
    expect_files(1);
    /* There is no such folder. */
    char said[400];
    snprintf(said, sizeof said, "cannot create '%s': directory '%s': No such file or directory",
             test_in_folder("none/x"), test_in_folder("none"));
    assert_int_equal(tm_safetensors_create(test_in_folder("none/x"), headings, 3, NULL, &writer, &err), TM_INVALID);
    assert_string_equal(err.text, said);
}

TEST_FIXTURE(NULL, test_folder_teardown)
