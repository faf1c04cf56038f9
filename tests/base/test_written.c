/* SPDX-License-Identifier: Apache-2.0 */
/* What is written as JSON reads back by jansson, on one line and on many; cells of a table are where they were put. */
#include "base/json.h"
#include "base/table.h"

#include <jansson.h>

#include "support/test.h"

static const char *const texts[] = { "",
                                     "plain",
                                     "a\"b\\c/\b\f\n\r\t\x01\x1f\x7f",
                                     "\xc3\xa9 \xe2\x82\xac",
                                     "\"",
                                     "\xe2\x80\xa8\xe2\x80\xa9\xef\xbf\xbex\xef\xbf\xbf\xef\xbf\xbd\xef\xbc\xbe" };
enum { TEXTS = sizeof texts / sizeof texts[0] };

static void write_members(tm_json *j, const char *key, char open, char close)
{
    bool named = open == '{';
    tm_json_open(j, key, open);
    for (int i = 0; i < TEXTS; i++)
        tm_json_string(j, named ? (const char *[]){ "a", "b", "c", "d", "e", "f" }[i] : NULL, texts[i]);
    tm_json_string(j, named ? "none" : NULL, NULL);
    tm_json_i64(j, named ? "least" : NULL, INT64_MIN);
    tm_json_f64(j, named ? "tenth" : NULL, 0.1);
    tm_json_f64(j, named ? "nan" : NULL, (double)NAN);
    tm_json_bool(j, named ? "yes" : NULL, true);
    tm_json_bool(j, named ? "no" : NULL, false);
    tm_json_close(j, close);
}

TEST(json_reads_back)
{
    for (int indent = 0; indent < 2; indent++) {
        tm_text      text = { 0 };
        tm_json      j = { .out = &text, .indent = indent };
        json_error_t why;
        tm_json_open(&j, NULL, '[');
        write_members(&j, NULL, '{', '}');
        write_members(&j, NULL, '[', ']');
        tm_json_open(&j, NULL, '{');
        tm_json_close(&j, '}');
        tm_json_close(&j, ']');
        json_t *read = json_loads(text.data, JSON_REJECT_DUPLICATES, &why), *want = json_array(), *all = json_array();
        if (!read) fail_msg("%s: %s", why.text, text.data);
        for (int i = 0; i < TEXTS; i++) json_array_append_new(want, json_string(texts[i]));
        json_t *more = json_pack("[n, I, f, n, b, b]", (json_int_t)INT64_MIN, 0.1, 1, 0), *object = json_object();
        json_array_extend(want, more);
        for (size_t i = 0; i < json_array_size(want); i++)
            json_object_set(
                object,
                (const char *[]){ "a", "b", "c", "d", "e", "f", "none", "least", "tenth", "nan", "yes", "no" }[i],
                json_array_get(want, i));
        json_array_append_new(all, object), json_array_append_new(all, want), json_array_append_new(all, json_object());
        assert_true(json_equal(read, all));
        assert_true(!strstr(text.data, "\xe2\x80\xa8") &&
                    !strstr(text.data, "\xef\xbf\xbe")); /* breaks lines of YAML */
        int lines = 1;
        for (const char *at = text.data; (at = strchr(at, '\n')); at++) lines++;
        assert_true(indent ? lines >= 2 * (TEXTS + 6) : lines == 1);
        json_decref(read), json_decref(all), json_decref(more);
        tm_text_fini(&text);
    }
}

TEST(bytes_that_are_no_text_are_replaced)
{
    tm_text text = { 0 };
    tm_json_quote(&text, "a\xff\xc3(\xe2\x82z");
    json_t *read = json_loads(text.data, JSON_DECODE_ANY, NULL);
    assert_true(json_is_string(read) && strstr(json_string_value(read), "a\xef\xbf\xbd"));
    assert_true(strchr(json_string_value(read), '(') && strchr(json_string_value(read), 'z'));
    json_decref(read);
    tm_text_fini(&text);
}

TEST(cells_are_where_they_were_put)
{
    static const char *const names[] = { "a", "b", "c", "d", "e" }, *const brief[] = { "d", "b" };
    static const size_t rank[] = { 5, 1, 7, 0, 9 };
    tm_table           *t = tm_table_create("some");
    for (int i = 0; i < 5; i++) tm_table_column(t, names[i], i);
    assert_true(tm_table_is_brief(t, 0));
    for (size_t i = 0; i < 5; i++) assert_true(tm_table_rank(t, i) == i);
    tm_table_brief(t, brief, 2);
    for (size_t i = 0; i < 5; i++)
        assert_true(tm_table_rank(t, i) == rank[i] && tm_table_is_brief(t, i) == (rank[i] < 2));
    for (int row = 0; row < 40; row++) { /* more than it has room for at first */
        tm_table_row(t);
        tm_table_i64(t, "c", row);
        tm_table_f64(t, "a", row % 2 ? row / 2.0 : (double)NAN);
        tm_table_text(t, "b", row % 3 ? "word" : NULL);
        tm_table_bool(t, "e", row == 7);
        if (row > 20) tm_table_printf(t, "d", "row %d", row);
        tm_table_note(t, "note %d", row);
    }
    assert_true(tm_table_n_columns(t) == 5 && tm_table_n_rows(t) == 40 && tm_table_n_notes(t) == 40);
    assert_string_equal(tm_table_name(t), "some");
    for (size_t row = 0; row < 40; row++) {
        const tm_cell *of[5];
        char           words[24];
        for (size_t i = 0; i < 5; i++) of[i] = tm_table_cell(t, row, i);
        assert_true(of[2]->kind == TM_CELL_I64 && of[2]->i64 == (int64_t)row);
        assert_true(row % 2 ? of[0]->kind == TM_CELL_F64 && of[0]->f64 == (double)row / 2
                            : of[0]->kind == TM_CELL_EMPTY);
        assert_true(of[1]->kind == (row % 3 ? TM_CELL_TEXT : TM_CELL_EMPTY));
        assert_true(of[4]->kind == TM_CELL_BOOL && of[4]->truth == (row == 7));
        snprintf(words, sizeof words, "row %zu", row);
        assert_true(row > 20 ? strcmp(of[3]->text, words) == 0 : of[3]->kind == TM_CELL_EMPTY);
        snprintf(words, sizeof words, "note %zu", row);
        assert_string_equal(tm_table_note_at(t, row), words);
    }
    assert_int_equal(tm_table_find(t, "e"), 4);
    assert_int_equal(tm_table_find(t, "f"), -1);
    assert_int_equal(tm_table_column_at(t, 3)->digits, 3);
    tm_table_destroy(t);
}
