/* SPDX-License-Identifier: Apache-2.0 */
/* What the functions of texts, JSON, arenas and files promise: properties, another way to compute,
 * reading back what was written. */
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "support/folder.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* The definition, for short words. */
static int distance(const char *a, const char *b)
{
    if (!*a || !*b) return (int)(strlen(a) + strlen(b));
    if (strncasecmp(a, b, 1) == 0) return distance(a + 1, b + 1);
    int best = distance(a + 1, b), other = distance(a, b + 1), both = distance(a + 1, b + 1);
    if (other < best) best = other;
    return 1 + (both < best ? both : best);
}

TEST(names_are_compared)
{
    static const char *const names[] = { "",    "a",   "abc", "ABD", "kitten", "sitting",
                                         "a-b", "a_b", "A-B", "a.b", "flaw",   "lawn" };
    char                     longest[97], longer[98];
    for (size_t i = 0; i < COUNT(names); i++)
        for (size_t k = 0; k < COUNT(names); k++) {
            assert_int_equal(tm_edit_distance(names[i], names[k]), distance(names[i], names[k]));
            bool dashes = i >= 6 && i <= 8 && k >= 6 && k <= 8; /* in three ways */
            assert_int_equal(tm_names_equal(names[i], names[k]), i == k || dashes);
        }
    memset(longest, 'x', 96), memset(longer, 'x', 97);
    longest[96] = longer[97] = '\0';
    assert_int_equal(tm_edit_distance(longest, "x"), 95);
    assert_int_equal(tm_edit_distance(longer, "x"), 192);
    assert_int_equal(tm_edit_distance("x", longer), 192);
    assert_int_equal(tm_utf8_width("abc") + tm_utf8_width(""), 3);
    assert_int_equal(tm_utf8_width("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z"), 4);
}

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

TEST(json_is_read_back)
{
    for (unsigned code = 1; code < 0x110000; code += code < 0x3000 ? 1 : 0xfd) {
        char    text[8] = "", wanted[8] = "";
        tm_text out = { 0 };
        size_t  n = encode(code, (unsigned char *)text);
        strcpy(wanted, code >= 0xd800 && code < 0xe000 ? "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" : text);
        strcpy(text + n, "z"), strcat(wanted, "z");
        tm_json_quote(&out, text);
        json_t *back = json_loads(out.data, JSON_DECODE_ANY, NULL);
        if (!back || strcmp(json_string_value(back), wanted) != 0) fail_msg("U+%04X: %s", code, out.data);
        if (code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028) assert_non_null(strchr(out.data, '\\'));
        for (const char *c = out.data; *c; c++) assert_true((unsigned char)*c >= 0x20 && *c != 0x7f);
        json_decref(back);
        tm_text_fini(&out);
    }
    json_t *wanted = json_pack("{s:s, s:n, s:[i, f, f, {}, [b]], s:b, s:n}", "a", "b", "none", "list", -5, 0.25, 0.1, 1,
                               "no", 0, "inf");
    for (int indent = 0; indent < 2; indent++) {
        tm_text out = { 0 };
        tm_json json = { .out = &out, .indent = indent };
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "a", "b");
        tm_json_string(&json, "none", NULL);
        tm_json_open(&json, "list", '[');
        tm_json_i64(&json, NULL, -5);
        tm_json_f64(&json, NULL, 0.25);
        tm_json_f64(&json, NULL, 0.1);
        tm_json_open(&json, NULL, '{');
        tm_json_close(&json, '}');
        tm_json_open(&json, NULL, '[');
        tm_json_bool(&json, NULL, true);
        tm_json_close(&json, ']');
        tm_json_close(&json, ']');
        tm_json_bool(&json, "no", false);
        tm_json_f64(&json, "inf", (double)INFINITY);
        tm_json_close(&json, '}');
        json_t *back = json_loads(out.data, 0, NULL);
        assert_true(json_equal(back, wanted));
        json_decref(back);
        if (indent)
            assert_non_null(strstr(out.data, "\n    {},\n    [\n      true\n    ]\n  ],\n  \"no\": false,\n"));
        else
            assert_string_equal(out.data, "{\"a\": \"b\", \"none\": null, \"list\": [-5, 0.25, 0.1, {}, [true]], "
                                          "\"no\": false, \"inf\": null}");
        tm_text_fini(&out);
    }
    json_decref(wanted);
}

/* Memory of an arena is apart, aligned and zero, also behind blocks of its own. */
TEST(arenas_give_what_is_asked_for)
{
    enum { N = 300 };
    tm_arena      *arena = tm_arena_create();
    unsigned char *at[N];
    for (size_t i = 0; i < N; i++) {
        size_t n = i % 50 == 49 ? 70000 + i : i * 3;
        at[i] = tm_arena_take(arena, n);
        assert_int_equal((uintptr_t)at[i] % 16, 0);
        for (size_t k = 0; k < n; k++) assert_int_equal(at[i][k], 0);
        memset(at[i], (int)(i % 255) + 1, n);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0, n = i % 50 == 49 ? 70000 + i : i * 3; k < n; k++) assert_int_equal(at[i][k], i % 255 + 1);
    /* small ones share a block, to its end */
    char *first = tm_arena_take(arena, 70000); /* one of its own, full */
    (void)first;
    char *begin = tm_arena_take(arena, 16);
    for (int i = 1; i < 4096; i++) assert_ptr_equal(tm_arena_take(arena, 16), begin + (ptrdiff_t)16 * i);
    assert_ptr_not_equal(tm_arena_take(arena, 16), begin + 65536);
    assert_string_equal(tm_arena_format(arena, "%s of %d%%", "a part", 100), "a part of 100%");
    assert_string_equal(tm_arena_format(arena, "%s", ""), "");
    assert_string_equal(tm_arena_text(arena, "a text"), "a text");
    memset(tm_arena_take(arena, 16), 'x', 16);
    assert_string_equal(tm_arena_text_n(arena, "0123456789abcdefgh", 16), "0123456789abcdef");
    tm_arena_destroy(arena);
    tm_arena_destroy(NULL);
    size_t             capacity = 0;
    char              *items = NULL;
    unsigned long long before = tm_alloc_count();
    for (size_t n = 0; n < 40; n++) items = tm_grow(items, &capacity, n, 3);
    assert_int_equal(capacity, 64);
    assert_int_equal(tm_alloc_count() - before, 3);
    capacity = 1;
    items = tm_grow(items, &capacity, 5, 3);
    assert_int_equal(capacity, 6);
    free(items);
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
