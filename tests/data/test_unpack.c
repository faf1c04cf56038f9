/* SPDX-License-Identifier: Apache-2.0 */
/* Packed files: gzip and zstd, streams one after another, read in small pieces, cut at every byte. */
#include "support/folder.h"

#include <errno.h>

#include "support/test.h"

#include "base/file.h"
#include "data/unpack.h"

#include <zlib.h>
#include <zstd.h>

static const char first[] = "{\"a\": 1}\n{\"a\": 2}\n", second[] = "\n{\"a\": 4}";

static size_t pack(bool zstd, const char *text, uint8_t *out, size_t room)
{
    if (zstd) return ZSTD_compress(out, room, text, strlen(text), 3);
    z_stream z = { 0 };
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)text;
    z.avail_in = (uInt)strlen(text);
    z.next_out = out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

/* Two streams in one file; its path. */
static const char *packed(bool zstd, uint8_t *bytes, size_t *n, size_t *of_first)
{
    const char *path = test_in_folder(zstd ? "rows.jsonl.zst" : "rows.jsonl.gz");
    *of_first = pack(zstd, first, bytes, 512);
    *n = *of_first + pack(zstd, second, bytes + *of_first, 512);
    assert_ok(tm_file_write(path, bytes, *n, err));
    return path;
}

/* Reads all in pieces of `piece`; the text so far is in `out`. */
static tm_status read_all(const char *path, size_t piece, char *out, int64_t *place, tm_error *err)
{
    tm_unpack *u = NULL;
    size_t     n = 0, got = 1;
    tm_status  st = tm_unpack_open(path, &u, err);
    while (st == TM_OK && got > 0) {
        st = tm_unpack_read(u, out + n, piece, &got, err);
        if (st == TM_OK) n += got;
        assert_true(n < 400 && got <= piece);
    }
    out[n] = '\0';
    *place = u ? tm_unpack_place(u) : -1;
    tm_unpack_close(u);
    return st;
}

TEST(streams_one_after_another_are_one_text)
{
    static const size_t pieces[] = { 1, 3, 7, 100, 2000000000 };
    uint8_t             bytes[1024];
    char                text[500], whole[100];
    int64_t             place;
    size_t              n, of_first;
    snprintf(whole, sizeof whole, "%s%s", first, second);
    for (int zstd = 0; zstd < 2; zstd++) {
        const char *path = packed(zstd, bytes, &n, &of_first);
        for (size_t i = 0; i < 5; i++) {
            assert_ok(read_all(path, pieces[i], text, &place, err));
            assert_string_equal(text, whole);
            assert_int_equal(place, n);
        }
    }
    const char *plain = test_in_folder("plain");
    assert_ok(tm_file_write(plain, whole, strlen(whole), err));
    assert_ok(read_all(plain, 5, text, &place, err));
    assert_string_equal(text, whole);
    assert_int_equal(place, strlen(whole));
    tm_unpack *u = NULL; /* the end is the end, whatever errno is left from something else */
    assert_ok(tm_unpack_open(plain, &u, err));
    assert_ok(tm_unpack_read(u, text, sizeof text, &n, err));
    errno = EINTR;
    assert_ok(tm_unpack_read(u, text, sizeof text, &n, err));
    assert_int_equal(n, 0);
    tm_unpack_close(u);
}

TEST(what_is_cut_or_damaged_is_seen)
{
    uint8_t bytes[1024];
    char    text[500], wanted[400];
    int64_t place;
    size_t  n, of_first;
    for (int zstd = 0; zstd < 2; zstd++) {
        const char *path = packed(zstd, bytes, &n, &of_first);
        for (size_t cut = 1; cut < n; cut++) {
            tm_error err = { 0 };
            assert_int_equal(tm_file_write(path, bytes, cut, &err), TM_OK);
            tm_status st = read_all(path, 5, text, &place, &err);
            if (cut == of_first) { /* a whole stream */
                assert_int_equal(st, TM_OK);
                assert_string_equal(text, first);
                continue;
            }
            snprintf(wanted, sizeof wanted, "'%s', near byte %zu: it ends in the middle; it is damaged or truncated",
                     path, cut);
            assert_int_equal(st, TM_FORMAT);
            assert_string_equal(err.text, wanted);
        }
        tm_error err = { 0 };
        assert_int_equal(tm_file_write(path, "plain text", 10, &err), TM_OK);
        snprintf(wanted, sizeof wanted, "'%s', near byte 10: %s; it is damaged or truncated", path,
                 zstd ? "Unknown frame descriptor" : "incorrect header check");
        assert_int_equal(read_all(path, 5, text, &place, &err), TM_FORMAT);
        assert_string_equal(err.text, wanted);
    }
    tm_error err = { 0 };
    snprintf(wanted, sizeof wanted, "'%s' is not a regular file", test_folder());
    assert_int_equal(read_all(test_folder(), 5, text, &place, &err), TM_INVALID);
    assert_string_equal(err.text, wanted);
    err = (tm_error){ 0 };
    const char *none = test_in_folder("none");
    snprintf(wanted, sizeof wanted, "cannot open '%s': No such file or directory", none);
    assert_int_equal(read_all(none, 5, text, &place, &err), TM_INVALID);
    assert_string_equal(err.text, wanted);
}

TEST_FIXTURE(NULL, test_folder_teardown)
