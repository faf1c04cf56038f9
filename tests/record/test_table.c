/* SPDX-License-Identifier: Apache-2.0 */
/* A result table in every format, to the letter; compressed files read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "support/test.h"

#include "record/table.h"
#include "support/whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static tm_table *example(void)
{
    tm_table *table = tm_table_create("gemm");
    tm_table_columns(table, (tm_column[]){ { "name", 0 }, { "M", 0 }, { "time_ms", 3 }, { "ok", 0 } }, 4);
    tm_table_row(table);
    tm_table_text(table, "name", "a|b, \"c\"");
    tm_table_i64(table, "M", 4096);
    tm_table_f64(table, "time_ms", 0.1 + 0.2);
    tm_table_bool(table, "ok", true);
    tm_table_row(table);
    tm_table_printf(table, "name", "%s\t%d", "µ", 2);
    tm_table_f64(table, "time_ms", NAN);
    tm_table_note(table, "n = %d", 2);
    return table;
}

static void check(tm_table_format format, const char *wanted)
{
    tm_table *table = example();
    tm_text   text = { 0 };
    tm_table_print(table, format, &text);
    assert_string_equal(text.data, wanted);
    tm_text_fini(&text);
    tm_table_destroy(table);
}

static void every_format_to_the_letter(void **state)
{
    (void)state;
    check(TM_TABLE_MARKDOWN, "| name      |    M | time_ms |   ok |\n"
                             "|-----------|-----:|--------:|-----:|\n"
                             "| a\\|b, \"c\" | 4096 |     0.3 | true |\n"
                             "| µ\t2       |      |         |      |\n"
                             "\nn = 2\n");
    check(TM_TABLE_CSV, "name,M,time_ms,ok\n\"a|b, \"\"c\"\"\",4096,0.30000000000000004,true\nµ\t2,,,\n");
    check(TM_TABLE_TSV, "name\tM\ttime_ms\tok\na|b, \"c\"\t4096\t0.30000000000000004\ttrue\nµ 2\t\t\t\n");
    check(
        TM_TABLE_JSON,
        "{\n  \"name\": \"gemm\",\n  \"rows\": [\n    {\n      \"name\": \"a|b, \\\"c\\\"\",\n      \"M\": 4096,\n"
        "      \"time_ms\": 0.30000000000000004,\n      \"ok\": true\n    },\n    {\n      \"name\": \"µ\\t2\",\n"
        "      \"M\": null,\n      \"time_ms\": null,\n      \"ok\": null\n    }\n  ],\n  \"notes\": [\n    \"n = 2\"\n"
        "  ]\n}\n");
    check(TM_TABLE_JSONL,
          "{\"name\": \"a|b, \\\"c\\\"\", \"M\": 4096, \"time_ms\": 0.30000000000000004, \"ok\": true}\n"
          "{\"name\": \"µ\\t2\", \"M\": null, \"time_ms\": null, \"ok\": null}\n");
}

/* Lines of 120 characters at most; what all rows have in common is told once, and nothing is lost. */
static void wide_tables_fit_a_terminal(void **state)
{
    (void)state;
    tm_table *table = tm_table_create("t");
    tm_text   text = { 0 };
    char      name[40];
    for (int c = 0; c < 12; c++) {
        snprintf(name, sizeof name, "column_number_%d", c);
        tm_table_column(table, name, 4);
    }
    for (int row = 0; row < 3; row++) {
        tm_table_row(table);
        for (int c = 0; c < 12; c++) {
            snprintf(name, sizeof name, "column_number_%d", c);
            if (c != 7) tm_table_i64(table, name, c == 4 ? 77 : 1000 * c + row); /* 4: the same, 7: empty */
        }
    }
    tm_table_print(table, TM_TABLE_TERMINAL, &text);
    for (const char *line = text.data; *line;) {
        size_t n = strcspn(line, "\n");
        assert_true(n <= 120);
        line += n + 1;
    }
    for (int c = 0; c < 12; c++)
        for (int row = 0; row < 3; row++) {
            snprintf(name, sizeof name, " %d |", 1000 * c + row);
            if (c != 4 && c != 7) assert_non_null(strstr(text.data, name));
        }
    assert_non_null(strstr(text.data, "\n\nin all rows: column_number_4 77\n"));
    assert_null(strstr(text.data, "column_number_7"));
    const char *second = strstr(strstr(text.data, "column_number_0") + 1, "column_number_0");
    assert_non_null(second); /* the first column again, beside those that did not fit */
    assert_null(strstr(second + 1, "column_number_0"));
    tm_text_fini(&text);
    tm_table_destroy(table);
    check(TM_TABLE_TERMINAL, "| name      |    M | time_ms |   ok |\n"
                             "|-----------|-----:|--------:|-----:|\n"
                             "| a\\|b, \"c\" | 4096 |     0.3 | true |\n"
                             "| µ\t2       |      |         |      |\n"
                             "\nn = 2\n");
}

/* Tables that just fit into a line of 120 characters, and do not; with and without columns that all rows share, with
 * columns that are wider than a line: tests/golden/whole-tables.txt. */
static void tables_at_the_edge(void **state)
{
    tm_text out = { 0 };
    (void)state;
    for (int width = 117; width <= 123; width++)
        for (int kind = 0; kind < 4; kind++) {
            char      wide[200];
            tm_table *table = tm_table_create("t");
            tm_text   text = { 0 };
            int       rest = width - 2 - (kind == 3 ? 3 : 4) - 3 * (kind == 0 ? 5 : 4);
            memset(wide, 'w', sizeof wide);
            wide[rest / (kind == 2 ? 2 : 1)] = '\0';
            tm_table_column(table, "a", 0);
            tm_table_column(table, wide, 0);
            tm_table_column(table, "b", 3);
            tm_table_column(table, "same", 0);
            if (kind == 0) tm_table_column(table, "c", 0);
            if (kind == 2) tm_table_column(table, "one more of twenty-one", 0);
            for (int row = 0; row < (kind == 3 ? 1 : 3); row++) {
                tm_table_row(table);
                tm_table_i64(table, "a", row % 2);
                tm_table_f64(table, wide, 1.25 * row);
                if (row != 1) tm_table_f64(table, "b", 1e6 / 3 + row);
                tm_table_text(table, "same", "x|y");
                if (kind == 0) tm_table_bool(table, "c", row == 2);
                if (kind == 2) tm_table_text(table, "one more of twenty-one", row ? "z" : "zz");
            }
            if (kind == 1) tm_table_note(table, "a note of %d", width);
            tm_table_print(table, TM_TABLE_TERMINAL, &text);
            tm_text_printf(&out, "== %d, %d: longest line", width, kind);
            size_t most = 0;
            for (const char *line = text.data; *line; line += strcspn(line, "\n") + 1)
                if (strcspn(line, "\n") > most) most = strcspn(line, "\n");
            tm_text_printf(&out, " %zu\n%s", most, text.data);
            tm_text_fini(&text);
            tm_table_destroy(table);
        }
    whole_is("tests/golden/whole-tables.txt", &out);
}

/* Where the first column does not tell the rows apart, their numbers do. */
static void parts_of_a_wide_table_belong_together(void **state)
{
    (void)state;
    tm_table *table = tm_table_create("t");
    tm_text   text = { 0 };
    char      name[40];
    tm_table_column(table, "workload", 4);
    for (int c = 0; c < 12; c++) {
        snprintf(name, sizeof name, "column_number_%d", c);
        tm_table_column(table, name, 4);
    }
    tm_table_note(table, "nothing here");
    tm_table_print(table, TM_TABLE_TERMINAL, &text);
    assert_string_equal(text.data, "nothing here\n");
    text.length = 0;
    for (int row = 0; row < 11; row++) {
        tm_table_row(table);
        tm_table_text(table, "workload", row % 2 ? "gemm" : "gpt");
        for (int c = 0; c < 12; c++) {
            snprintf(name, sizeof name, "column_number_%d", c);
            tm_table_i64(table, name, 1000 * c + row);
        }
    }
    tm_table_print(table, TM_TABLE_TERMINAL, &text);
    int parts = 0, elevens = 0;
    for (const char *line = text.data; *line; line += strcspn(line, "\n") + 1) {
        assert_true(strcspn(line, "\n") <= 120);
        parts += strncmp(line, "|  # |", 6) == 0;
        elevens += strncmp(line, "| 11 |", 6) == 0;
    }
    assert_true(parts > 1);
    assert_int_equal(elevens, parts);
    tm_text_fini(&text);
    tm_table_destroy(table);
}

static void people_see_no_exponents(void **state)
{
    (void)state;
    tm_table *table = tm_table_create("t");
    tm_table_column(table, "x", 4);
    tm_table_row(table);
    tm_table_f64(table, "x", 123456.7);
    tm_table_row(table);
    tm_table_f64(table, "x", 0.00001234);
    tm_text text = { 0 };
    tm_table_print(table, TM_TABLE_MARKDOWN, &text);
    assert_non_null(strstr(text.data, "123457"));
    assert_non_null(strstr(text.data, "1.234e-05"));
    tm_text_fini(&text);
    tm_table_destroy(table);
}

static void the_extension_decides(void **state)
{
    (void)state;
    tm_table_format format;
    tm_error        err = { 0 };
    assert_int_equal(tm_table_format_of("a.b/x.jsonl.gz", &format, &err), TM_OK);
    assert_int_equal(format, TM_TABLE_JSONL);
    assert_int_equal(tm_table_format_of("x.json", &format, &err), TM_OK);
    assert_int_equal(format, TM_TABLE_JSON);
    static const char *const wrong[] = { "x", "x.txt", ".md", "x.md.zip", ".gz", "x.mdx" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tm_error one = { 0 };
        assert_int_equal(tm_table_format_of(wrong[i], &format, &one), TM_USAGE);
    }
}

static void a_compressed_file_reads_back(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "/tmp/tm_table_%d.csv.gz", (int)getpid());
    tm_table *table = example();
    tm_error  err = { 0 };
    assert_int_equal(tm_table_write(table, path, &err), TM_OK);
    char   text[256] = { 0 };
    gzFile file = gzopen(path, "rb");
    assert_false(gzdirect(file));
    assert_true(gzread(file, text, sizeof text - 1) > 0);
    gzclose(file);
    unlink(path);
    assert_memory_equal(text, "name,M,time_ms,ok\n", 18);
    assert_int_equal(tm_table_write(table, "/nowhere/x.csv", &err), TM_INVALID);
    err = (tm_error){ 0 };
    assert_int_equal(tm_table_write(table, "/nowhere/x.pdf", &err), TM_USAGE);
    tm_table_destroy(table);
}

/* Parts of a wide table: the first column stands in each if it tells the rows apart, however long or short its texts
 * are; else the rows are numbered. */
static void parts_name_their_rows(void **state)
{
    (void)state;
    static const char *const texts[2][4] = { { "", "a", "exactly twenty-five bytes",
                                               "exactly forty-one bytes, one after another" },
                                             { "b", "", "exactly twenty-five bytes", "b" } };
    for (int same = 0; same < 2; same++) {
        tm_table *table = tm_table_create("t");
        tm_text   text = { 0 };
        char      name[40];
        tm_table_column(table, "first", 0);
        for (int c = 0; c < 12; c++) {
            snprintf(name, sizeof name, "column_number_%d", c);
            tm_table_column(table, name, 4);
        }
        for (int row = 0; row < 4; row++) {
            tm_table_row(table);
            tm_table_text(table, "first", texts[same][row]);
            for (int c = 0; c < 12; c++) {
                snprintf(name, sizeof name, "column_number_%d", c);
                tm_table_i64(table, name, 10 * c + row);
            }
        }
        tm_table_print(table, TM_TABLE_TERMINAL, &text);
        int parts = 0, named = 0, numbered = 0;
        for (const char *line = text.data; *line; line += strcspn(line, "\n") + 1) {
            bool rule = strncmp(line, "|--", 3) == 0;
            parts += rule;
            named += strncmp(line, "| first ", 8) == 0;
            numbered += strncmp(line, "| # |", 5) == 0;
        }
        assert_true(parts > 1);
        assert_int_equal(named, same ? 0 : parts);
        assert_int_equal(numbered, same ? parts : 0);
        tm_text_fini(&text);
        tm_table_destroy(table);
    }
}

/* A table of one column is not put into parts, however wide; columns that say nothing new leave the first alone. */
static void a_single_wide_column_stays_whole(void **state)
{
    (void)state;
    for (int columns = 1; columns <= 2; columns++)
        for (int rows = 1; rows <= 2; rows++) {
            char      wide[131], rule[131];
            tm_table *table = tm_table_create("t");
            tm_text   text = { 0 }, wanted = { 0 };
            memset(wide, 'w', 130);
            memset(rule, '-', 130);
            wide[130] = rule[130] = '\0';
            tm_table_column(table, wide, 0);
            if (columns > 1) tm_table_column(table, "same", 0);
            for (int row = 0; row < rows; row++) {
                tm_table_row(table);
                tm_table_i64(table, wide, row);
                if (columns > 1 && rows > 1) tm_table_text(table, "same", "x");
            }
            tm_table_print(table, TM_TABLE_TERMINAL, &text);
            tm_text_printf(&wanted, "| %s |\n|-%s:|\n", wide, rule);
            for (int row = 0; row < rows; row++) tm_text_printf(&wanted, "| %130d |\n", row);
            if (columns > 1 && rows > 1) tm_text_add(&wanted, "\nin all rows: same x\n");
            assert_string_equal(text.data, wanted.data);
            tm_text_fini(&text);
            tm_text_fini(&wanted);
            tm_table_destroy(table);
        }
}

/* Two of which the first does not tell the rows apart: each stands beside the rows' numbers. */
static void two_wide_columns_are_numbered(void **state)
{
    (void)state;
    char      wide[101], other[101];
    tm_table *table = tm_table_create("t");
    tm_text   text = { 0 }, wanted = { 0 };
    memset(wide, 'w', 100);
    memset(other, 'o', 100);
    wide[100] = other[100] = '\0';
    tm_table_columns(table, (tm_column[]){ { wide, 0 }, { other, 0 } }, 2);
    for (int row = 0; row < 2; row++) {
        tm_table_row(table);
        tm_table_i64(table, wide, 7);
        tm_table_i64(table, other, row);
    }
    tm_table_print(table, TM_TABLE_TERMINAL, &text);
    for (int part = 0; part < 2; part++) {
        tm_text_printf(&wanted, "%s| # | %s |\n|--:|-", part ? "\n" : "", part ? other : wide);
        for (int i = 0; i < 100; i++) tm_text_add(&wanted, "-");
        tm_text_printf(&wanted, ":|\n| 1 | %100d |\n| 2 | %100d |\n", part ? 0 : 7, part ? 1 : 7);
    }
    assert_string_equal(text.data, wanted.data);
    tm_text_fini(&text);
    tm_text_fini(&wanted);
    tm_table_destroy(table);
}

/* From 1 on, up to a million milliards, and below -1 alike; smaller ones keep their exponents. */
static void exponents_where_no_digits_are_read(void **state)
{
    static const struct {
        double      value;
        const char *text;
    } rows[] = { { 12345.6, "12346" },        { -12345.6, "-12346" },        { 999999999999999, "999999999999999" },
                 { 1e15, "1e+15" },           { -1e15, "-1e+15" },           { -999999999999999, "-999999999999999" },
                 { 0.00001234, "1.234e-05" }, { -0.00001234, "-1.234e-05" }, { 0.5, "0.5" } };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tm_table *table = tm_table_create("t");
        tm_text   text = { 0 };
        char      wanted[64];
        tm_table_column(table, "x", 4);
        tm_table_row(table);
        tm_table_f64(table, "x", rows[i].value);
        tm_table_print(table, TM_TABLE_MARKDOWN, &text);
        snprintf(wanted, sizeof wanted, "| %s |\n", rows[i].text);
        if (!strstr(text.data, wanted)) fail_msg("no '%s' in %s", wanted, text.data);
        tm_text_fini(&text);
        tm_table_destroy(table);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_format_to_the_letter),
    cmocka_unit_test(people_see_no_exponents),
    cmocka_unit_test(wide_tables_fit_a_terminal),
    cmocka_unit_test(tables_at_the_edge),
    cmocka_unit_test(parts_name_their_rows),
    cmocka_unit_test(parts_of_a_wide_table_belong_together),
    cmocka_unit_test(a_single_wide_column_stays_whole),
    cmocka_unit_test(two_wide_columns_are_numbered),
    cmocka_unit_test(exponents_where_no_digits_are_read),
    cmocka_unit_test(the_extension_decides),
    cmocka_unit_test(a_compressed_file_reads_back),
};

TM_TESTS(tests, NULL, NULL)
