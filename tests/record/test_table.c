/* SPDX-License-Identifier: Apache-2.0 */
/* A result table in every format, to the letter; compressed files read back. */

#include "support/test.h"

#include "record/table.h"

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

TEST(every_format_to_the_letter)
{
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

TEST(people_see_no_exponents)
{
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

TEST(the_extension_decides)
{
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

TEST(a_compressed_file_reads_back)
{
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

/* From 1 on, up to a million milliards, and below -1 alike; smaller ones keep their exponents. */
TEST(exponents_where_no_digits_are_read)
{
    static const struct {
        double      value;
        const char *text;
    } rows[] = { { 12345.6, "12346" },        { -12345.6, "-12346" },        { 999999999999999, "999999999999999" },
                 { 1e15, "1e+15" },           { -1e15, "-1e+15" },           { -999999999999999, "-999999999999999" },
                 { 0.00001234, "1.234e-05" }, { -0.00001234, "-1.234e-05" }, { 0.5, "0.5" } };
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
