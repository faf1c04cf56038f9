/* SPDX-License-Identifier: Apache-2.0 */
/* Texts, numbers, JSON, tables of commas, messages of several failures and what is said of files, to
 * the letter. After a change that is meant: TM_RECORD=1 build/release/tests/base/test_whole; git diff
 * tests/base/whole.txt
 */
#include "base/arena.h"
#include "base/cpu.h"
#include "base/csv.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/secret.h"
#include "base/status.h"
#include "support/folder.h"
#include "support/whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

static void add_texts(tm_text *out)
{
    static const char *const words[] = { "one two three",
                                         "  several   blanks  ",
                                         "",
                                         "   ",
                                         "averyveryverylongword",
                                         "a bb ccc dddd eeeee ffffff ggggggg",
                                         "twelveletter x",
                                         "a averyveryverylongword b" };
    static const size_t      places[][3] = { { 0, 0, 20 },  { 0, 2, 12 },  { 10, 4, 12 },
                                             { 12, 8, 12 }, { 30, 2, 12 }, { 3, 3, 9 } };
    for (size_t p = 0; p < sizeof places / sizeof places[0]; p++)
        for (size_t w = 0; w < sizeof words / sizeof words[0]; w++) {
            tm_text_printf(out, "fill %zu %zu %zu:", places[p][0], places[p][1], places[p][2]);
            tm_text_fill(out, words[w], places[p][0], places[p][1], places[p][2]);
        }
    static const char *const names[] = { "",    "a",   "abc", "ABD", "kitten", "sitting",
                                         "a-b", "a_b", "A-B", "a.b", "flaw",   "lawn" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            tm_text_printf(out, "%d%s ", tm_edit_distance(names[i], names[k]),
                           tm_names_equal(names[i], names[k]) ? "=" : "");
    char longest[100], longer[100];
    memset(longest, 'x', sizeof longest), memset(longer, 'y', sizeof longer);
    longest[96] = longer[97] = '\0';
    tm_text_printf(out, "%d %d %d\n", tm_edit_distance(longest, "x"), tm_edit_distance(longer, "x"),
                   tm_edit_distance("x", longer));
    tm_text_printf(out, "widths %zu %zu %zu\n", tm_utf8_width(""), tm_utf8_width("abc"),
                   tm_utf8_width("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z"));
    tm_text grown = { 0 };
    for (int i = 0; i < 400; i++) {
        if (i % 3 == 0) tm_text_add_n(&grown, "abcdefghij", (size_t)(i % 11));
        if (i % 3 == 1) tm_text_printf(&grown, "%0*d", i % 130 + 1, i);
        if (i % 3 == 2) tm_text_add(&grown, "z");
    }
    tm_text_printf(out, "grown %zu %016llx\n", grown.length, (unsigned long long)tm_hash(grown.data, grown.length + 1));
    tm_text_fini(&grown);
}

/* Lengths of all sequences of four bytes from a set with every limit of UTF-8, counted. */
static void add_utf8(tm_text *out)
{
    static const unsigned char edges[] = { 0,    1,    0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf,
                                           0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff };
    enum { EDGES = sizeof edges };
    for (int a = 0; a < EDGES; a++) {
        int lengths[5] = { 0 };
        for (int i = 0; i < EDGES * EDGES * EDGES; i++) {
            const unsigned char s[5] = { edges[a], edges[i % EDGES], edges[i / EDGES % EDGES], edges[i / EDGES / EDGES],
                                         0 };
            lengths[tm_utf8_length(s)]++;
        }
        tm_text_printf(out, "utf8 %02x: %d %d %d %d %d\n", edges[a], lengths[0], lengths[1], lengths[2], lengths[3],
                       lengths[4]);
    }
}

static void add_numbers(tm_text *out)
{
    static const double numbers[] = { 0,
                                      -0.0,
                                      1,
                                      -1,
                                      9.5,
                                      0.5,
                                      1e-4,
                                      9.99e-5,
                                      0.00012345,
                                      123456.789,
                                      1e14,
                                      1e15,
                                      999999999999999,
                                      1e15 + 0.5,
                                      12345678901234567,
                                      1e16,
                                      1e17,
                                      2e17,
                                      1e-300,
                                      3.5e22,
                                      0.1 + 0.2,
                                      1.0 / 3,
                                      100,
                                      1024,
                                      1048576,
                                      1.5e12 };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char a[32], b[32], c[40];
        tm_text_printf(out, "%s %s %s %s\n", tm_format_double(a, numbers[i]), tm_format_bytes(b, numbers[i]),
                       tm_format_grouped(c, (int64_t)(numbers[i] < 1e18 ? numbers[i] : 1)), numbers[i] < 0 ? "-" : "+");
    }
    for (int64_t n = 1; n < 10000000000; n *= 10) {
        char a[40], b[40], c[32];
        tm_text_printf(out, "%s %s %s\n", tm_format_grouped(a, n), tm_format_grouped(b, 1 - n),
                       tm_format_bytes(c, (double)-n));
    }
}

static void add_json(tm_text *out)
{
    char all[3] = "";
    for (int c = 1; c < 256; c++) {
        all[0] = (char)c;
        tm_json_quote(out, all);
    }
    tm_json_quote(out, "a\"b\\c\n\t\r\xc2\x80\xc2\x9f\xc2\xa0\xc3\xa4\xe2\x82\xac\xed\xa0\x80z");
    tm_text_add(out, "\n");
    for (int indent = 0; indent < 2; indent++) {
        tm_json json = { .out = out, .indent = indent };
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "a", "b");
        tm_json_string(&json, "none", NULL);
        tm_json_open(&json, "list", '[');
        tm_json_i64(&json, NULL, -5);
        tm_json_f64(&json, NULL, 0.25);
        tm_json_f64(&json, NULL, 0.0 / 1);
        tm_json_open(&json, NULL, '{');
        tm_json_close(&json, '}');
        tm_json_open(&json, NULL, '[');
        tm_json_bool(&json, NULL, true);
        tm_json_close(&json, ']');
        tm_json_close(&json, ']');
        tm_json_bool(&json, "no", false);
        tm_json_f64(&json, "inf", (double)(1e300 * 1e300));
        tm_json_close(&json, '}');
        tm_text_add(out, "\n");
    }
}

static void add_csv(tm_text *out)
{
    static const char *const cells[] = { "",   "a",  "a,b", "a\"b", "a\nb", "=1+2", "+1",  "-1.5",
                                         "-x", "@x", "'=x", "-",    "=",    "a\rb", "\tx", " x " };
    static const char *const read[] = { "a,b,c\nd\n",
                                        "\"a,\"\"b\"\"\",c\r\n1,2",
                                        "a,\n",
                                        ",\n",
                                        ",",
                                        "",
                                        "\n",
                                        "'=x,'a,''\n",
                                        "\"open",
                                        "\"a\"b,c\n",
                                        "a,b,c,d,e,f\n",
                                        "\"\"\"\",\"\"\n" };
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) tm_csv_add(out, cells[i], i == 0);
    tm_text_add(out, "\n");
    for (size_t i = 0; i < sizeof read / sizeof read[0]; i++)
        for (const char *at = read[i], *end = at + strlen(at); at < end;) {
            tm_text storage = { 0 };
            size_t  offsets[4];
            tm_text_add(&storage, "");
            size_t n = tm_csv_read(&at, &storage, offsets, 4);
            tm_text_printf(out, "read %zu of %zu, %zu:", n, i, (size_t)(end - at));
            for (size_t k = 0; k < n && k < 4; k++) tm_text_printf(out, " [%s]", storage.data + offsets[k]);
            tm_text_add(out, "\n");
            tm_text_fini(&storage);
        }
}

static void add_failures(tm_text *out)
{
    for (int n = 0; n < 5; n++) {
        tm_error err = { 0 }, own = { 0 };
        char     story[1200];
        memset(story, 'a' + n, sizeof story);
        story[n == 4 ? sizeof story - 1 : 20] = '\0';
        for (int i = 0; i < n; i++) (void)tm_also(&err, TM_INVALID, "%d\n%s", i, story);
        (void)tm_also(&err, TM_FORMAT, "0\n%s", story); /* the same as the first */
        if (n > 1) (void)tm_also(&own, TM_IO, "of another\ncall");
        if (n > 2) (void)tm_also(&own, TM_IO, "twice");
        (void)tm_also_of(&err, n > 1 ? TM_IO : TM_OK, &own);
        for (int i = 0; n == 4 && i < 6; i++) (void)tm_also(&err, TM_INVALID, "more %d %s", i, story);
        tm_text_printf(out, "%d: status %d, n %d, %s\n", n, err.status, err.n, err.text);
        size_t length;
        for (const char *line = NULL; (line = tm_error_next(&err, line, &length));) tm_text_printf(out, " %zu", length);
        tm_text_add(out, "\n");
    }
    for (int s = 0; s < TM_STATUS_COUNT; s++)
        tm_text_printf(out, "%d: %s, exit %d\n", s, tm_status_text((tm_status)s), tm_status_exit_code((tm_status)s));
}

/* What is said, with the folder of the test taken out. */
static void say(tm_text *out, const char *what, tm_status st, const tm_error *err)
{
    tm_text_printf(out, "%s: %d ", what, st);
    for (const char *p = err->text, *found; *p; p = found + strlen(test_folder())) {
        found = strstr(p, test_folder());
        if (!found) {
            tm_text_add(out, p);
            break;
        }
        tm_text_printf(out, "%.*s.", (int)(found - p), p);
    }
    tm_text_add(out, "\n");
}

static void add_files(tm_text *out)
{
    static const char *const paths[] = {
        "a", "no/such/file", "a/b", "folder", "fifo", "link", "dangling", "loop", "new"
    };
    tm_error err;
    err = (tm_error){ 0 };
    assert_int_equal(tm_file_write(test_in_folder("a"), "12345", 5, &err), TM_OK);
    assert_int_equal(tm_folder_make(test_in_folder("folder/deep"), &err), TM_OK);
    assert_int_equal(mkfifo(test_in_folder("fifo"), 0600), 0);
    assert_int_equal(symlink("a", test_in_folder("link")) + symlink("gone", test_in_folder("dangling")) +
                         symlink("loop", test_in_folder("loop")),
                     0);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        const char *path = test_in_folder(paths[i]);
        char        line[4];
        tm_text     text = { 0 };
        int         fd = -1;
        tm_text_printf(out, "%s exists %d, line %d '%s'\n", paths[i], tm_file_exists(path),
                       strcmp(paths[i], "fifo") ? tm_file_read_line(path, line, sizeof line) : -1,
                       strcmp(paths[i], "fifo") ? line : "");
        for (size_t limit = 4; limit < 6; limit++) {
            err = (tm_error){ 0 };
            say(out, "read", tm_file_read(path, limit, &text, &err), &err);
        }
        tm_text_printf(out, "%s\n", text.data ? text.data : "-");
        tm_text_fini(&text);
        err = (tm_error){ 0 };
        say(out, "make a folder", tm_folder_make(path, &err), &err);
        err = (tm_error){ 0 };
        if (strcmp(paths[i], "fifo")) say(out, "append", tm_file_open_append(path, &fd, &err), &err);
        if (fd >= 0) close(fd);
        err = (tm_error){ 0 };
        say(out, "writable", tm_file_check_writable(path, "key.of_it", &err), &err);
        err = (tm_error){ 0 };
        say(out, "write", tm_file_write(path, "xyz", 3, &err), &err);
        fd = tm_file_open_new(path);
        tm_text_printf(out, "open new %d\n", fd >= 0);
        if (fd >= 0) close(fd);
    }
    char longest[5000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    for (int k = 0; k < 2; k++) {
        longest[k ? 4096 : 4095] = '/';
        err = (tm_error){ 0 };
        tm_status st = tm_file_write(longest, "x", 1, &err);
        tm_text_printf(out, "long %d: %d %.60s\n", k, st, err.text);
        err = (tm_error){ 0 };
        longest[k ? 4096 : 4095] = '\0';
        st = tm_folder_make(longest, &err);
        tm_text_printf(out, "folder %d: %d %.60s\n", k, st, err.text);
        longest[k ? 4096 : 4095] = 'x';
    }
    err = (tm_error){ 0 };
    say(out, "no name", tm_folder_make("", &err), &err);
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

TEST(outputs_are_as_recorded)
{
    tm_text out = { 0 };
    add_texts(&out);
    add_utf8(&out);
    add_numbers(&out);
    add_json(&out);
    add_csv(&out);
    add_failures(&out);
    add_files(&out);
    tm_text none = { 0 };
    tm_secret_mask(&none);
    assert_null(none.data);
    whole_is("tests/base/whole.txt", &out);
}

TEST_FIXTURE(NULL, test_folder_teardown)
