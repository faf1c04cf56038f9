/* SPDX-License-Identifier: Apache-2.0 */
/* Files in memory: what is opened, what is noticed later, and the number that a file is known by. */
#include "base/map.h"

#include "base/hash.h"
#include "support/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

static const char *file_of(const char *content)
{
    const char *path = test_in_folder("file");
    FILE       *f = fopen(path, "w");
    assert_true(f && fputs(content, f) >= 0 && fclose(f) == 0);
    return path;
}

TEST(changes_are_noticed)
{
    char     path[700], wanted[900];
    tm_map   map;
    tm_error err = { 0 };
    strcpy(path, file_of("twelve bytes"));
    assert_int_equal(tm_map_open(path, &map, &err), TM_OK);
    assert_int_equal(map.size, 12);
    assert_memory_equal(map.bytes, "twelve bytes", 12);
    assert_int_equal(tm_map_check(&map, &err), TM_OK);
    const struct timespec later[] = { { 0, UTIME_OMIT }, { 1700000000, 5 } };
    assert_int_equal(utimensat(AT_FDCWD, path, later, 0), 0);
    assert_int_equal(tm_map_check(&map, &err), TM_INVALID);
    snprintf(wanted, sizeof wanted, "'%s' was changed during the run; keep data unchanged", path);
    assert_string_equal(err.text, wanted);
    tm_map_close(&map);
    for (int size = 11; size <= 13; size += 2) {
        err = (tm_error){ 0 };
        assert_int_equal(tm_map_open(file_of("twelve bytes"), &map, &err), TM_OK);
        assert_int_equal(truncate(path, size), 0);
        assert_int_equal(tm_map_check(&map, &err), TM_INVALID);
        if (size == 11)
            snprintf(wanted, sizeof wanted,
                     "'%s' was shortened from 12 to 11 bytes during the run; keep data unchanged", path);
        assert_string_equal(err.text, wanted);
        tm_map_close(&map);
        if (size == 11) snprintf(wanted, sizeof wanted, "'%s' was changed during the run; keep data unchanged", path);
    }
    /* an empty one may be touched, and not filled */
    err = (tm_error){ 0 };
    assert_int_equal(tm_map_open(file_of(""), &map, &err), TM_OK);
    assert_true(map.size == 0 && !map.bytes);
    assert_int_equal(utimensat(AT_FDCWD, path, later, 0), 0);
    assert_int_equal(tm_map_check(&map, &err), TM_OK);
    assert_int_equal(truncate(path, 1), 0);
    assert_int_equal(tm_map_check(&map, &err), TM_INVALID);
    tm_map_close(&map);
    assert_true(!map.path && map.size == 0);
}

static void refused(const char *before, const char *path, const char *behind)
{
    tm_map   map = { .size = 7 };
    tm_error err = { 0 };
    char     wanted[900];
    assert_int_equal(tm_map_open(path, &map, &err), TM_INVALID);
    snprintf(wanted, sizeof wanted, "%s'%s'%s", before, path, behind);
    assert_string_equal(err.text, wanted);
    assert_true(!map.path && !map.bytes && map.size == 0 && map.fd == 0);
}

TEST(other_things_are_no_files)
{
    refused("cannot open ", test_in_folder("none"), ": No such file or directory");
    refused("", test_folder(), " is a directory, wanted a regular file");
    assert_int_equal(mkfifo(test_in_folder("pipe"), 0600), 0);
    refused("", test_in_folder("pipe"), " is a fifo, socket or device, wanted a regular file");
    refused("", "/dev/null", " is a fifo, socket or device, wanted a regular file");
}

/* As map.h says it. */
static uint64_t number_of(uint64_t before, const uint8_t *bytes, int64_t size)
{
    uint64_t all[3] = { before, (uint64_t)size, 0 };
    if (size <= 67108864) {
        all[2] = tm_hash(bytes, (size_t)size);
    } else {
        for (int64_t i = 0; i < 64; i++) {
            const uint64_t next[2] = { all[2], tm_hash(bytes + (size - 65536) / 63 * i, 65536) };
            all[2] = tm_hash(next, 16);
        }
        all[2] ^= tm_hash(bytes + size - 65536, 65536);
    }
    return tm_hash(all, 24);
}

TEST(large_files_are_known_by_their_pieces)
{
    static const int64_t sizes[] = { 0, 1, 67108863, 67108864, 67108865, 67108864 + 63 * 4096 + 62 };
    uint8_t             *bytes = calloc(1, 67108864 + 64 * 4096);
    assert_non_null(bytes);
    for (int64_t i = 0; i < 67108864 + 64 * 4096; i += 997) bytes[i] = (uint8_t)(i / 997);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (uint64_t before = 0; before < 2; before++)
            assert_true(tm_fingerprint(before, bytes, sizes[i]) == number_of(before, bytes, sizes[i]));
    free(bytes);
}

TEST_FIXTURE(NULL, test_folder_teardown)
