/* SPDX-License-Identifier: Apache-2.0 */
/* Reading MLPerf-style logs: lines, tokens, Python's JSON, folders, limits. */
#include "apps/mlperf/log.h"
#include "support/folder.h"
#include "support/refusal.h"

#include "base/file.h"

#include <zlib.h>

#include "support/test.h"

#define LINE(key, value) ":::MLLOG {\"time_ms\": 7, \"key\": \"" key "\", \"value\": " value ", \"metadata\": {}}"

/* --- values ------------------------------------------------------------------------------------------------------- */

static const tm_json_value *json(tm_arena *arena, const char *text)
{
    const char          *problem = NULL;
    size_t               where = 0;
    const tm_json_value *v = tm_json_parse(arena, text, strlen(text), &problem, &where);
    assert_true((v == NULL) == (problem != NULL));
    return v;
}

TEST(numbers_are_the_nearest_doubles)
{
    const struct {
        const char *text;
        double      number;
        bool        integer;
    } cases[] = {
        { "0", 0, true },
        { "-0", -0.0, true },
        { "1e-05", 1e-05, false },
        { "8e-05", 8e-05, false },
        { "3.287374973297119", 0x1.a4c8b4p+1, false },
        { "0.1", 0.1, false },
        { "9007199254740993", 9007199254740992.0, true },
        { "123456789012345678901234567890", 123456789012345678901234567890.0, true },
        { "5e-324", 5e-324, false },
        { "1e999", (double)INFINITY, false },
        { "-Infinity", -(double)INFINITY, false },
        { " \t1\r\n", 1, true },
    };
    tm_arena *arena = tm_arena_create();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tm_json_value *v = json(arena, cases[i].text);
        assert_non_null(v);
        assert_int_equal(v->kind, TM_JSON_NUMBER);
        assert_int_equal(v->integer, cases[i].integer);
        assert_memory_equal(&v->number, &cases[i].number, sizeof(double));
    }
    assert_true(isnan(json(arena, "NaN")->number));
    tm_arena_destroy(arena);
}

TEST(wrong_json_is_refused)
{
    static const char cases[] = /* "|" between them */
        "|{|}|[1,]|{\"a\":1,}|{a:1}|{\"a\" 1}|01|1.|-|+1|.5|0x10|1e|1e+|nan|inf|Infinit|-NaN|tru|'a'|"
        "\"a|\"a\\|\"\\x\"|\"\\u12g4\"|1 2|[1 2]|\"a\tb\"|{\"a\":}|{\"a\":1]|[1}|{\"a\":1\"b\"|\"\\u12|"
        "\x80|null,|{,}";
    tm_arena *arena = tm_arena_create();
    for (const char *at = cases, *end; at; at = end ? end + 1 : NULL) {
        end = strchr(at, '|');
        const char *text = tm_arena_format(arena, "%.*s", (int)(end ? end - at : (ptrdiff_t)strlen(at)), at);
        if (json(arena, text)) fail_msg("'%s' was read", text);
    }
    assert_null(tm_json_parse(arena, "\"a\0b\"", 5, &(const char *){ NULL }, &(size_t){ 0 }));
    tm_arena_destroy(arena);
}

TEST(depth_and_length_have_limits)
{
    tm_arena *arena = tm_arena_create();
    char     *text = malloc(10002);
    for (int depth = 200; depth <= 5000; depth += 4800) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = '\0';
        assert_true((json(arena, text) != NULL) == (depth == 200));
        assert_true(json(arena, "[[1]]") != NULL);
    }
    memset(text, '7', 4301);
    text[4301] = '\0';
    assert_null(json(arena, text));
    text[4300] = '\0';
    assert_non_null(json(arena, text));
    free(text);
    tm_arena_destroy(arena);
}

TEST(text_is_latin_1_and_escapes)
{
    const struct {
        const char *text, *utf8, *printed;
    } cases[] = {
        { "\"a\\\"\\\\\\/\\b\\f\\n\\r\\tz\"", "a\"\\/\b\f\n\r\tz", "\"a\\\"\\\\/\\b\\f\\n\\r\\tz\"" },
        { "\"\xe9\"", "\xc3\xa9", "\"\\u00e9\"" },
        { "\"\\u00e9\"", "\xc3\xa9", "\"\\u00e9\"" },
        { "\"\xc3\xa9\"", "\xc3\x83\xc2\xa9", "\"\\u00c3\\u00a9\"" }, /* UTF-8 is taken for two characters */
        { "\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80", "\"\\ud83d\\ude00\"" },
        { "\"\\uffff\\ud800\\udc00\"", "\xef\xbf\xbf\xf0\x90\x80\x80", "\"\\uffff\\ud800\\udc00\"" },
        { "\"\\udbff\\udfff\"", "\xf4\x8f\xbf\xbf", "\"\\udbff\\udfff\"" },
        { "\"\\ud83dx\"", "\xed\xa0\xbdx", "\"\\ud83dx\"" },
        { "\"\\u0000b\"",
          "\xc0\x80"
          "b",
          "\"\\u0000b\"" },
        { "\"\x7f\"", "\x7f", "\"\x7f\"" },
        { "\"\\u001f\"", "\x1f", "\"\\u001f\"" },
    };
    tm_arena *arena = tm_arena_create();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tm_json_value *v = json(arena, cases[i].text);
        tm_text              printed = { 0 };
        assert_non_null(v);
        assert_string_equal(v->text, cases[i].utf8);
        tm_json_print(v, &printed);
        assert_string_equal(printed.data, cases[i].printed);
        tm_text_fini(&printed);
    }
    tm_arena_destroy(arena);
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static const tm_mllog_record *parse(const char *bytes, size_t n, tm_mllog **log, size_t *records)
{
    tm_error err = { 0 };
    assert_int_equal(tm_mllog_parse("x", bytes, n, log, &err), TM_OK);
    return tm_mllog_records(*log, records);
}

TEST(lines_end_in_three_ways)
{
    const char text[] = "first\n" LINE("a", "1") "\r\n50%\r70%\r" LINE("b", "2") "\r\r\n\n"
                                                                                 "rank 3: :::MLLOG {\"no\r" LINE(
                                                                                     "c", "3") "\n" LINE("d", "4");
    const struct {
        const char *key;
        int64_t     line;
    } wanted[] = { { "a", 2 }, { "b", 5 }, { "", 8 }, { "c", 9 }, { "d", 10 } };
    tm_mllog              *log;
    size_t                 n;
    const tm_mllog_record *r = parse(text, sizeof text - 1, &log, &n);
    assert_int_equal(n, 5);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(r[i].key, wanted[i].key);
        assert_int_equal(r[i].line, wanted[i].line);
        assert_int_equal(r[i].index, i);
        assert_int_equal(r[i].state, i == 2 ? TM_MLLOG_BROKEN : TM_MLLOG_GOOD);
    }
    tm_mllog_free(log);
}

TEST(the_last_token_counts)
{
    const char text[] = "0: :::MLLOG {\"broken :::MLLOG  \x85 {\"key\": \"k\", \"time_ms\": \" 1_0.5 \", \"value\": "
                        "null, \"metadata\": null} \xa0\t\n:::MLLOG\n::MLLOG {}\n";
    tm_mllog  *log;
    size_t     n;
    const tm_mllog_record *r = parse(text, sizeof text - 1, &log, &n);
    assert_int_equal(n, 1);
    assert_int_equal(r->state, TM_MLLOG_GOOD);
    assert_true(r->time_ms > 10.4 && r->time_ms < 10.6);
    assert_int_equal(r->text[0], '{');
    assert_int_equal(r->text[r->text_bytes - 1], '}');
    assert_true(tm_mllog_mentions(r, "\"metadata\": null"));
    assert_false(tm_mllog_mentions(r, "broken"));
    tm_mllog_free(log);
}

TEST(faults_are_told_apart)
{
    const struct {
        const char    *json;
        tm_mllog_state state;
        const char    *word;
    } cases[] = {
        { "{\"time_ms\": 1, \"key\": \"k\", \"value\": 1, \"metadata\": {}", TM_MLLOG_BROKEN, "expected ',' or '}'" },
        { "{\"time_ms\": \"1.2.3\", \"key\": \"k\", \"value\": 1, \"metadata\": {}}", TM_MLLOG_BROKEN, "time_ms" },
        { "{\"time_ms\": \"0x10\", \"key\": \"k\", \"value\": 1, \"metadata\": {}}", TM_MLLOG_BROKEN, "time_ms" },
        { "{\"time_ms\": \"\", \"key\": \"k\", \"value\": 1, \"metadata\": {}}", TM_MLLOG_BROKEN, "time_ms" },
        { "{\"time_ms\": null, \"key\": \"k\", \"value\": 1, \"metadata\": {}}", TM_MLLOG_INCOMPLETE, "time_ms" },
        { "{\"key\": \"k\", \"value\": 1, \"metadata\": {}}", TM_MLLOG_INCOMPLETE, "\"time_ms\"" },
        { "{\"time_ms\": 1, \"value\": 1, \"metadata\": {}}", TM_MLLOG_INCOMPLETE, "\"key\"" },
        { "{\"time_ms\": 1, \"key\": \"k\", \"metadata\": {}}", TM_MLLOG_INCOMPLETE, "\"value\"" },
        { "{\"time_ms\": 1, \"key\": \"k\", \"value\": 1}", TM_MLLOG_INCOMPLETE, "\"metadata\"" },
        { "{\"time_ms\": 1, \"key\": 3, \"value\": 1, \"metadata\": {}}", TM_MLLOG_INCOMPLETE, "key" },
        { "[1]", TM_MLLOG_INCOMPLETE, "object" },
        { "", TM_MLLOG_BROKEN, "expected a value" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tm_text   text = { 0 };
        tm_mllog *log;
        size_t    n;
        tm_text_printf(&text, ":::MLLOG %s\n", cases[i].json);
        const tm_mllog_record *r = parse(text.data, text.length, &log, &n);
        assert_int_equal(n, 1);
        assert_int_equal(r->state, cases[i].state);
        if (!strstr(r->problem, cases[i].word)) fail_msg("'%s' lacks '%s'", r->problem, cases[i].word);
        tm_mllog_free(log);
        tm_text_fini(&text);
    }
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static void put(const char *name, const void *bytes, size_t n)
{
    tm_error err = { 0 };
    assert_int_equal(tm_file_write(test_in_folder(name), bytes, n, &err), TM_OK);
}

static void put_packed(const char *name, const char *text, const char *mode)
{
    gzFile z = gzopen(test_in_folder(name), mode);
    assert_non_null(z);
    assert_int_equal(gzwrite(z, text, (unsigned)strlen(text)), strlen(text));
    assert_int_equal(gzclose(z), Z_OK);
}

TEST(packed_files)
{
    tm_mllog *log;
    tm_error  err = { 0 };
    size_t    n;
    put_packed("a.gz", LINE("a", "1") "\n", "wb");
    put_packed("a.gz", LINE("b", "2") "\n", "ab"); /* a second member */
    assert_int_equal(tm_mllog_read(test_in_folder("a.gz"), &log, &err), TM_OK);
    assert_string_equal(tm_mllog_records(log, &n)[1].key, "b");
    assert_int_equal(n, 2);
    tm_mllog_free(log);

    tm_text whole = { 0 };
    assert_int_equal(tm_file_read(test_in_folder("a.gz"), 1 << 20, &whole, &err), TM_OK);
    for (size_t cut = 0; cut < whole.length; cut++) {
        put("cut.gz", whole.data, cut);
        err = (tm_error){ 0 };
        tm_status st = tm_mllog_read(test_in_folder("cut.gz"), &log, &err);
        if (st == TM_OK) { /* between the members */
            tm_mllog_records(log, &n);
            assert_int_equal(n, 1);
            tm_mllog_free(log);
        } else {
            assert_int_equal(st, TM_FORMAT);
            assert_null(log);
        }
    }
    tm_text_fini(&whole);
    put("plain.gz", "hello", 5);
    assert_int_equal(tm_mllog_read(test_in_folder("plain.gz"), &log, &err), TM_FORMAT);
}

TEST(limits)
{
    tm_mllog *log;
    tm_error  err = { 0 };
    char     *zeros = calloc(1, 1 << 20);
    tm_text   member = { 0 }, bomb = { 0 };
    gzFile    z = gzopen(test_in_folder("member.gz"), "wb1");
    assert_int_equal(gzwrite(z, zeros, 1 << 20), 1 << 20);
    assert_int_equal(gzclose(z), Z_OK);
    assert_int_equal(tm_file_read(test_in_folder("member.gz"), 1 << 20, &member, &err), TM_OK);
    for (int i = 0; i < 257; i++) tm_text_add_n(&bomb, member.data, member.length);
    put("bomb.gz", bomb.data, bomb.length);
    tm_text_fini(&member);
    tm_text_fini(&bomb);
    assert_int_equal(tm_mllog_read(test_in_folder("bomb.gz"), &log, &err), TM_INVALID);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "268435456"));
    memset(zeros, ' ', 1 << 20);
    memcpy(zeros, TM_MLLOG_TOKEN, sizeof TM_MLLOG_TOKEN - 1);
    put("long.txt", zeros, 1 << 20);
    assert_int_equal(tm_mllog_read(test_in_folder("long.txt"), &log, &err), TM_OK);
    tm_mllog_free(log);
    FILE *file = fopen(test_in_folder("long.txt"), "a");
    fputs(" \n", file);
    fclose(file);
    err = (tm_error){ 0 };
    assert_int_equal(tm_mllog_read(test_in_folder("long.txt"), &log, &err), TM_INVALID);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "line 1 of"));
    err = (tm_error){ 0 };
    assert_int_equal(tm_mllog_read(test_folder(), &log, &err), TM_INVALID);
    assert_int_equal(tm_mllog_read(test_in_folder("none"), &log, &err), TM_INVALID);
    free(zeros);
}

TEST(folders_are_listed_by_number)
{
    static const char *const names[] = { "result_10.txt", "result_2.txt.gz",  "result_0.txt",
                                         "result_x.txt",  "result_3.txt.bz2", "result_4",
                                         "xresult_5.txt", "result_.txt",      NULL };
    static const char *const wanted[] = { "result_0.txt", "result_2.txt", "result_10.txt", "result_.txt",
                                          "result_x.txt" };
    tm_mllog_folder          list;
    tm_error                 err = { 0 };
    assert_int_equal(tm_mllog_folder_list(test_folder(), &list, &err), TM_OK);
    assert_int_equal(list.n, 0);
    for (size_t i = 0; names[i]; i++) put(names[i], "", 0);
    assert_int_equal(tm_mllog_folder_list(test_folder(), &list, &err), TM_OK);
    assert_int_equal(list.n, 5);
    for (size_t i = 0; i < 5; i++) assert_string_equal(list.files[i].name, wanted[i]);
    assert_string_equal(list.files[1].path, test_in_folder("result_2.txt.gz"));
    assert_int_equal(list.files[2].number, 10);
    assert_int_equal(list.files[3].number, -1);
    assert_int_equal(list.files[4].number, -1);
    tm_mllog_folder_fini(&list);
    put("result_2.txt", "", 0);
    assert_int_equal(tm_mllog_folder_list(test_folder(), &list, &err), TM_INVALID);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "both result_2.txt and result_2.txt.gz"));
    tm_mllog_folder_fini(&list);
    err = (tm_error){ 0 };
    assert_int_equal(tm_mllog_folder_list(test_in_folder("nowhere"), &list, &err), TM_INVALID);
    tm_mllog_folder_fini(&list);
}

TEST_FIXTURE(NULL, test_folder_teardown)
