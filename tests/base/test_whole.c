/* SPDX-License-Identifier: Apache-2.0 */
/* What the functions of texts, JSON, arenas and files promise: properties, another way to compute,
 * reading back what was written. */
#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "support/folder.h"

#include "support/test.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static size_t encode(unsigned code, unsigned char out[5])
{
    static const unsigned leads[] = { 0, 0xc0, 0xe0, 0xf0 };
    size_t                n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 0; code >>= 6) out[i] = (unsigned char)(i ? 0x80 | (code & 0x3f) : leads[n - 1] | code);
    return n;
}

/* Every code point has the length of its bytes; and what has a length is a code point as it is encoded. */
TEST(utf8_is_what_code_points_are)
{
    static const unsigned char edges[] = { 0,    1,    0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf,
                                           0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff };
    enum { EDGES = sizeof edges };
    unsigned char s[5] = { 0 }, again[5];
    for (unsigned code = 0; code < 0x110000; code++) {
        size_t n = encode(code, s);
        if (tm_utf8_length(s) != (code >= 0xd800 && code < 0xe000 ? 0 : n)) fail_msg("U+%04X", code);
    }
    for (int i = 0; i < EDGES * EDGES * EDGES * EDGES; i++) {
        for (int k = 0, rest = i; k < 4; k++, rest /= EDGES) s[k] = edges[rest % EDGES];
        size_t   n = tm_utf8_length(s);
        unsigned code = n > 1 ? s[0] & (0x7fU >> n) : s[0];
        for (size_t k = 1; k < n; k++) code = code << 6 | (s[k] & 0x3f);
        if (n && (encode(code, again) != n || memcmp(again, s, n) != 0 || code > 0x10ffff))
            fail_msg("%02x %02x %02x %02x", s[0], s[1], s[2], s[3]);
    }
}

TEST(sizes_are_near)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    for (double bytes = 0.5; bytes < 1e22; bytes *= 1.37)
        for (int sign = -1; sign < 2; sign += 2) {
            char   text[32], *end;
            double value = strtod(tm_format_bytes(text, sign * bytes), &end) * sign, unit = 1;
            size_t k = 0;
            while (k < COUNT(units) && strcmp(end + 1, units[k]) != 0) k++, unit *= 1024;
            assert_true(k < COUNT(units) && *end == ' ' && (value >= 1 || k == 0) && (value < 1024 || k == 5));
            assert_true(fabs(value * unit - bytes) <= unit * (k ? 0.00501 : 0.501));
            if (k) assert_int_equal(strcspn(text, " ") - strcspn(text, "."), 3);
        }
    char smallest[40];
    assert_string_equal(tm_format_grouped(smallest, INT64_MIN), "-9,223,372,036,854,775,808");
    assert_string_equal(tm_format_grouped(smallest, 0), "0");
    for (int64_t n = 1; n < 1000000000000000000; n = n * 7 + 1)
        for (int sign = -1; sign < 2; sign += 2) {
            char   text[40], plain[40];
            size_t k = 0, length = strlen(tm_format_grouped(text, sign * n));
            for (size_t i = 0; i < length; i++)
                if ((length - i) % 4 == 0 && i > (sign < 0))
                    assert_int_equal(text[i], ',');
                else
                    plain[k++] = text[i];
            plain[k] = '\0';
            assert_true(strspn(plain, "-0123456789") == k && atoll(plain) == sign * n);
        }
}

/* Names of 96 letters are compared, longer ones are as far as both are long. */
TEST(long_names_are_compared)
{
    char longest[97], longer[98];
    memset(longest, 'x', 96), memset(longer, 'x', 97);
    longest[96] = longer[97] = '\0';
    assert_int_equal(tm_edit_distance(longest, "x"), 95);
    assert_int_equal(tm_edit_distance("y", longest), 96);
    assert_int_equal(tm_edit_distance(longer, "x") + tm_edit_distance("x", longer), 2 * 192);
}

/* What there is under a name, and what each function makes of it: how it is refused, or NULL. */
TEST(files_say_why_not)
{
    static const struct {
        const char *name, *read, *folder, *append, *write;
        bool        exists, is_new;
    } rows[] = {
        { "file", NULL, "exists and is not a directory", NULL, NULL, true, false },
        { "no/such", "No such file", NULL, "No such file", "/no': No such file", false, false },
        { "file/b", "Not a directory", "Not a directory", "Not a directory", "/file': Not a directory", false, false },
        { "folder", "is not a regular file", NULL, "Is a directory", "it is not a regular file", true, false },
        { "fifo", "is not a regular file", "exists and is not a directory", "a pipe that nobody reads",
          "it is not a regular file", true, false },
        { "link", NULL, "exists and is not a directory", "it is a symbolic link", NULL, true, false },
        { "dangling", "No such file", "exists and is not a directory", "it is a symbolic link", NULL, false, false },
        { "loop", "symbolic links", "exists and is not a directory", "it is a symbolic link", NULL, false, false },
        { "new", "No such file", NULL, NULL, NULL, false, true },
    };
    for (size_t i = 0; i < COUNT(rows) * 5; i++) {
        tm_error    err = { 0 };
        char        path[400], line[4];
        tm_text     text = { 0 };
        int         fd = -1;
        size_t      r = i / 5;
        const char *refusals[] = { rows[r].read, rows[r].folder, rows[r].append, rows[r].write, NULL };
        test_folder_remove();
        assert_int_equal(tm_file_write(strcpy(path, test_in_folder("file")), "12345 \n", 7, &err), TM_OK);
        assert_int_equal(tm_folder_make(test_in_folder("folder/deep"), &err), TM_OK);
        assert_int_equal(mkfifo(test_in_folder("fifo"), 0600), 0);
        assert_int_equal(symlink("file", test_in_folder("link")) + symlink("gone", test_in_folder("dangling")) +
                             symlink("loop", test_in_folder("loop")),
                         0);
        strcpy(path, test_in_folder(rows[r].name));
        assert_int_equal(tm_file_exists(path), rows[r].exists);
        tm_status st = i % 5 == 0   ? tm_file_read(path, 7, &text, &err)
                       : i % 5 == 1 ? tm_folder_make(path, &err)
                       : i % 5 == 2 ? tm_file_open_append(path, &fd, &err)
                       : i % 5 == 3 ? tm_file_write(path, "xyz", 3, &err)
                                    : TM_OK;
        if (i % 5 == 4) fd = tm_file_open_new(path), assert_int_equal(fd >= 0, rows[r].is_new);
        if (fd >= 0) close(fd);
        assert_int_equal(st, refusals[i % 5] ? TM_INVALID : TM_OK);
        const char *wanted = refusals[i % 5] ? refusals[i % 5] : "";
        if (!strstr(err.text, wanted) || (st != TM_OK && !strstr(err.text, path)))
            fail_msg("%s: '%s', wanted '%s'", path, err.text, wanted);
        if (st == TM_OK && i % 5 == 0) {
            assert_string_equal(text.data, "12345 \n");
            assert_int_equal(tm_file_read(path, 6, &text, &err), TM_INVALID);
            assert_non_null(strstr(err.text, "has 7 bytes, more than the limit of 6"));
            assert_true(tm_file_read_line(path, line, sizeof line));
            assert_string_equal(line, "123");
        }
        if (st == TM_OK && i % 5 == 3) {
            assert_int_equal(tm_file_read(path, 3, &text, &err), TM_OK);
            assert_string_equal(text.data, "xyz");
        }
        tm_text_fini(&text);
    }
    test_folder_remove();
}

TEST_FIXTURE(NULL, test_folder_teardown)
