/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of files: every form that a text of rows can have, lines that end where a part that is read ends, names of
 * files and folders; and what is taken for a text. */
#include "data/rows.h"

#include "base/file.h"
#include "data/pack.h"
#include "data/text_files.h"
#include "support/folder.h"
#include "support/full_config.h"

#include <jansson.h>

#include "support/test.h"

static const char *const wanted[] = { "a", "text" };

/* What a text or a file holds: "2a1 4b2" is {"a": 1} in line (or row) 2, {"b": 2} in line 4, the name of a file before
 * its first row; and what it is refused with at its end. */
typedef struct {
    const char *input, *rows, *refused;
} a_case;

static void has_rows(const a_case *c, bool named, tm_status st, tm_rows *rows, tm_error *err)
{
    tm_text found = { 0 };
    char    file[100] = "", last[100] = "";
    json_t *row = NULL;
    tm_text_add(&found, "");
    while (st == TM_OK && (st = tm_rows_next(rows, &row, err)) == TM_OK && row) {
        const char *key = json_object_iter_key(json_object_iter(row));
        int         number = 0;
        if (sscanf(tm_rows_place(rows), "'%99[^']', %*s %d", file, &number) != 2) fail_msg("%s", tm_rows_place(rows));
        assert_int_equal(number, tm_rows_number(rows));
        tm_text_add(&found, found.length ? " " : "");
        if (named && strcmp(file, last) != 0) tm_text_printf(&found, "%s ", strcpy(last, file));
        tm_text_printf(&found, "%d%s%d", number, key, (int)json_integer_value(json_object_get(row, key)));
        json_decref(row);
    }
    if (strcmp(found.data, c->rows) != 0) fail_msg("%s: '%s', wanted '%s'", c->input, found.data, c->rows);
    if (!c->refused != (st == TM_OK) || (c->refused && !strstr(err->text, c->refused)))
        fail_msg("%s: '%s', wanted '%s'", c->input, err->text, c->refused);
    assert_int_equal(tm_status_exit_code(st), c->refused ? 4 : 0);
    tm_text_fini(&found);
    tm_rows_close(rows);
}

TEST(every_form_of_rows)
{
    static const a_case texts[] = {
        { "", "", NULL },
        { " \t\r", "", NULL },
        { "\n\n", "", NULL },
        { "{\"a\": 1}", "1a1", NULL },
        { "{\"a\": 1}\n", "1a1", NULL },
        { "\n {\"a\": 1} \r\n\t\r\n{\"b\": 2}\n\n", "2a1 4b2", NULL },
        { "\xEF\xBB\xBF{\"a\": 1}\n{\"a\": 2}", "1a1 2a2", NULL },
        { "\xEF\xBB\xBF", "", NULL },
        { "\xEF\xBB{\"a\": 1}", "", "line 1: unable to decode byte 0xef" },
        { "\xFF\xFE{\0", "", "is in UTF-16" },
        { "\xFE\xFF", "", "is in UTF-16" },
        { "\xFF", "", "line 1: unable to decode byte 0xff" },
        { "[{\"a\": 1}, {\"a\": 2}]", "1a1 2a2", NULL },
        { " \t\r[{\"a\": 1},\n{\"a\": 2}]\n", "1a1 2a2", NULL },
        { "\n[{\"a\": 1}]", "", "line 2: a row is an object of columns, found an array" },
        { "[]", "", NULL },
        { "[1]", "", "row 1: a row is an object of columns, found a number" },
        { "[{\"a\": 1}\n,,]", "", "line 2: unexpected token near ','" },
        { "[{\"a\": 1}", "", "line 1: ']' expected near end of file" },
        { "[{\"a\": 1, \"a\": 2}]", "", "line 1: duplicate object key near '\"a\"'" },
        { "{\"a\": 1}\n[2]\n", "1a1", "line 2: a row is an object of columns, found an array" },
        { "{\"a\": 1}\n\"text\"\n", "1a1", "line 2: a row is an object of columns, found a text" },
        { "{\"a\": 1}\n2\n", "1a1", "line 2: a row is an object of columns, found a number" },
        { "{\"a\": 1}\nnull\n", "1a1", "line 2: a row is an object of columns, found null" },
        { "{\"a\": 1}\n{\"a\": 1, \"a\": 2}\n", "1a1", "line 2: duplicate object key near '\"a\"'" },
        { "{\"a\": 1}\n{\n\"a\": 2}\n", "1a1",
          "line 2: string or '}' expected near end of file; wanted a row in each line, or one array of all rows" },
        { "{\n", "",
          "line 1: string or '}' expected near end of file; wanted a row in each line, or one array of all rows" },
        { "{\"a\": 1} x\n", "", "line 1: end of file expected near 'x'" },
        { "  prose\n", "", "line 1: invalid token near 'prose'" },
        { "a,b\n1,2\n", "", "line 1: invalid token near 'a'" },
        { "  {\"a\" 1}\n", "", "line 1: ':' expected near '1'" },
        { "PAR", "", "line 1: invalid token near 'PAR'" },
        { "PAR1", "", "is not a parquet file, or damaged: no PAR1 at both ends" },
    };
    static const a_case paths[] = {
        { "rows", "rows/Z.ndjson 1a4 rows/a.json 1a3 rows/b.jsonl 1a1 2a2 rows/c.jsonl.gz 1a10", NULL },
        { "rows/b.jsonl", "rows/b.jsonl 1a1 2a2", NULL },
        { "rows/*.json", "rows/a.json 1a3", NULL },
        { "rows/n*", "", "'rows/notes.txt', line 1: invalid token near 'no'" },
        { "empty", "", "no file of rows in 'empty': none ends in .jsonl, .ndjson, .json or .parquet" },
        { "none", "", "cannot reach 'none': No such file or directory" },
        { "no*", "", "cannot reach 'no*': No such file or directory" },
        { "od?[d*\\", "od?[d*\\/x.jsonl 1a9", NULL },
        { "od?[d*\\/x.jsonl", "od?[d*\\/x.jsonl 1a9", NULL },
        { "again.parquet.gz", "", "'again.parquet.gz' is parquet that was packed once more; unpack it" },
        { "rows/z", "rows/z 1a5",
          "'rows/z', line 2: '}' expected near end of file; wanted a row in each line, or one array of all rows" },
        { ".", "", "'./again.parquet.gz' is parquet that was packed once more; unpack it" },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        tm_rows    *rows = NULL;
        tm_error    err = { 0 };
        const char *text = texts[i].input;
        tm_status   st = tm_rows_parse("memory", (const uint8_t *)text, strlen(text), wanted, 2, &rows, &err);
        has_rows(&texts[i], false, st, rows, &err);
    }
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        tm_rows  *rows = NULL;
        tm_error  err = { 0 };
        tm_status st = tm_rows_open(paths[i].input, wanted, 2, &rows, &err);
        has_rows(&paths[i], true, st, rows, &err);
    }
}

/* Files are read in parts of 64 KiB: a line may end just before, at and behind such an end, and fill many parts. */
TEST(lines_of_every_length)
{
    static const size_t lengths[] = { 20, 65534, 65535, 65536, 65537, 131071, 131072, 131073, 300000, 20 };
    enum { N = sizeof lengths / sizeof lengths[0] };
    tm_text  text = { 0 };
    tm_rows *rows = NULL;
    json_t  *row = NULL;
    for (int blank = 0; blank < 2; blank++) {
        text.length = 0;
        for (int i = 0; i < N; i++) { /* with the line feed so many bytes */
            tm_text_printf(&text, "{\"a\": \"");
            for (size_t k = 0; k + 10 < lengths[i]; k++)
                tm_text_add_n(&text, &(char){ (char)('a' + (k + (size_t)i) % 26) }, 1);
            tm_text_add(&text, "\"}\n");
            if (blank) tm_text_add(&text, i % 2 ? "\n" : " \t\n");
        }
        if (blank) text.length -= 2; /* without an end */
        assert_ok(tm_file_write("long.jsonl", text.data, text.length, err));
        assert_ok(tm_rows_open("long.jsonl", wanted, 1, &rows, err));
        for (int i = 0; i < N; i++) {
            assert_ok(tm_rows_next(rows, &row, err));
            const char *value = json_string_value(json_object_get(row, "a"));
            assert_int_equal(strlen(value), lengths[i] - 10);
            assert_int_equal(value[0], 'a' + i % 26);
            assert_int_equal(value[lengths[i] - 11], 'a' + (int)((lengths[i] - 11 + (size_t)i) % 26));
            assert_int_equal(tm_rows_number(rows), blank ? 2 * i + 1 : i + 1);
            json_decref(row);
        }
        assert_ok(tm_rows_next(rows, &row, err));
        assert_null(row);
        tm_rows_close(rows);
    }
    tm_text_fini(&text);
}

TEST(what_is_taken_for_text)
{
    char bytes[200];
    assert_false(tm_is_binary("", 0));
    assert_false(tm_is_binary("text", 4));
    assert_true(tm_is_binary("te\0t", 4));
    assert_true(tm_is_binary("tex\0", 4));
    assert_false(tm_is_binary("text\0", 4));
    /* A tenth of the bytes may be wrong; the last four are not looked at, they may be cut. */
    for (int bad = 9; bad <= 12; bad++) {
        memset(bytes, 'a', sizeof bytes);
        memset(bytes + 20, 0xff, (size_t)bad);
        assert_int_equal(tm_is_binary(bytes, 100), bad > 10);
        assert_int_equal(tm_is_binary(bytes, 109), bad > 10);
        assert_int_equal(tm_is_binary(bytes, 110), bad > 11);
    }
    memset(bytes, 'a', sizeof bytes);
    memset(bytes + 6, 0xff, 4);
    assert_false(tm_is_binary(bytes, 10));
    memset(bytes + 4, 0xff, 2);
    assert_true(tm_is_binary(bytes, 10));
    bytes[4] = 'a'; /* one is a tenth */
    assert_false(tm_is_binary(bytes, 10));
    /* Whole characters count as such. */
    for (int i = 0; i < 99; i += 3) memcpy(bytes + i, "\xe2\x82\xac", 3);
    assert_false(tm_is_binary(bytes, 99));
}

TEST(packed_files_are_no_text)
{
    static const char *const names[] = { "x.jsonl", "x.gz", "x.zst", "x.parquet", "y.jsonl.txt", ".gz" };
    for (size_t i = 0; i < 6; i++) {
        tm_text_files files;
        tm_error      err = { 0 };
        test_file_write(".", names[i], "x");
        assert_int_equal(tm_text_files_open(names[i], &files, &err), TM_OK);
        assert_int_equal(tm_text_files_check(&files, &err), i < 4 ? TM_INVALID : TM_OK);
        tm_text_files_close(&files);
    }
}

static int write_all(void **state)
{
    (void)state;
    test_folder_enter();
    for (size_t i = 0; i < 3; i++)
        if (mkdir((const char *[]){ "rows", "empty", "od?[d*\\" }[i], 0700) != 0) return -1;
    test_file_write("rows", "b.jsonl", "{\"a\": 1}\n{\"a\": 2}\n");
    test_file_write("rows", "a.json", "[{\"a\": 3}]");
    test_file_write("rows", "Z.ndjson", "{\"a\": 4}");
    test_file_write("rows", "z", "{\"a\": 5}\n{\"a\": 6");
    test_file_write("rows", "notes.txt", "no rows");
    test_file_write("rows", "nothing.json", "");
    test_file_write("rows", ".json", "{\"a\": 7}");
    test_file_write("rows", "x.jsonl.zip", "{\"a\": 8}");
    test_file_write("empty", "readme", "no rows");
    test_file_write("od?[d*\\", "x.jsonl", "{\"a\": 9}");
    test_file_pack("rows/c.jsonl.gz", "{\"a\": 10}\n");
    test_file_pack("again.parquet.gz", "PAR1 and more");
    return 0;
}

TEST_FIXTURE(write_all, test_folder_teardown)
