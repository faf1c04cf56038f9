/* SPDX-License-Identifier: Apache-2.0 */
/* A result table in every format, to the letter; files of every name, read back. */

#include "support/test.h"

#include "record/table.h"
#include "support/folder.h"

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

static tm_table *one_cell(double value)
{
    tm_table *table = tm_table_create("t");
    tm_table_column(table, "x", 3);
    tm_table_row(table);
    tm_table_f64(table, "x", value);
    return table;
}

TEST(numbers_as_people_read_them)
{
    static const struct {
        double      value;
        const char *text;
    } rows[] = { { 0, "0" },
                 { 1, "1" },
                 { -1, "-1" },
                 { 999.4, "999" },
                 { 999.6, "1000" },
                 { 1234.5, "1234" },
                 { -1235.5, "-1236" },
                 { 999999999999999, "999999999999999" },
                 { 1e15, "1e+15" },
                 { -1e15, "-1e+15" },
                 { -999999999999999, "-999999999999999" },
                 { 0.00012, "0.00012" },
                 { 0.000012345, "1.23e-05" },
                 { -0.000012345, "-1.23e-05" } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_table *table = one_cell(rows[i].value);
        tm_text   text = { 0 };
        char      wanted[64];
        tm_table_print(table, TM_TABLE_MARKDOWN, &text);
        char *last = strrchr(text.data, '|');
        *last = '\0';
        const char *cell = strrchr(text.data, '|') + 1;
        snprintf(wanted, sizeof wanted, " %s ", rows[i].text);
        assert_string_equal(cell, wanted);
        tm_text_fini(&text);
        tm_table_destroy(table);
    }
}

TEST(every_name_of_a_table)
{
    static const struct {
        const char     *name;
        tm_table_format format;
    } rows[] = { { "a.md", TM_TABLE_MARKDOWN }, { "a.csv", TM_TABLE_CSV },      { "a.tsv", TM_TABLE_TSV },
                 { "a.json", TM_TABLE_JSON },   { "a.jsonl", TM_TABLE_JSONL },  { "a.md.gz", TM_TABLE_MARKDOWN },
                 { "a.tsv.gz", TM_TABLE_TSV },  { "a.json.gz", TM_TABLE_JSON }, { "a.jsonl.gz", TM_TABLE_JSONL },
                 { "a.csv.gz", TM_TABLE_CSV } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_table_format format = (tm_table_format)77;
        tm_table       *table = one_cell(1.5);
        tm_text         text = { 0 };
        tm_error        err = { 0 };
        char            found[400] = { 0 };
        const char     *path = test_in_folder(rows[i].name);
        assert_int_equal(tm_table_format_of(path, &format, &err), TM_OK);
        assert_int_equal(format, rows[i].format);
        assert_int_equal(tm_table_write(table, path, &err), TM_OK);
        tm_table_print(table, format, &text);
        gzFile file = gzopen(path, "rb"); /* reads what is not packed, too */
        assert_non_null(file);
        assert_int_equal(gzread(file, found, sizeof found - 1), text.length);
        assert_int_equal(!gzdirect(file), strstr(path, ".gz") != NULL);
        gzclose(file);
        assert_string_equal(found, text.data);
        tm_text_fini(&text);
        tm_table_destroy(table);
    }
    tm_table *table = one_cell(1);
    tm_error  err = { 0 };
    assert_int_equal(tm_table_write(table, "/nowhere/x.csv", &err), TM_INVALID);
    assert_int_equal(tm_table_write(table, "/nowhere/x.pdf", NULL), TM_USAGE);
    tm_table_destroy(table);
    static const char *const none[] = { "x.txt", ".csv", ".gz", "csv", ".csv.gz", "x.csvgz", "x.csv.gz.gz" };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        tm_table_format format;
        char            wanted[200];
        err = (tm_error){ 0 };
        assert_int_equal(tm_table_format_of(none[i], &format, &err), TM_USAGE);
        snprintf(wanted, sizeof wanted,
                 "%s: the extension decides the format; wanted: .md, .csv, .tsv, .json or .jsonl, each also with .gz",
                 none[i]);
        assert_string_equal(err.text, wanted);
    }
}

TEST_FIXTURE(NULL, test_folder_teardown)
