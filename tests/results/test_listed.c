/* SPDX-License-Identifier: Apache-2.0 */
/* The list of stored results: columns are the members of each result, newest first; filters; documents. */
#include "support/test.h"
#include "base/file.h"
#include "results/keep.h"
#include "results/made_runs.h"
#include "results/store.h"
#include "support/folder.h"

/* A row, its cells as text; ' ' begins the name of a column that must not be there. */
typedef struct {
    const char *column, *cells[4]; /* of results 4 to 1; "": empty */
} listed_column;
static const listed_column columns[] = {
    { "id", { "4", "3", "2", "1" } },
    { "finished", { "", "2026-02-04T00:00:01Z", "2026-02-04T00:00:00Z", "2026-02-03T04:05:06Z" } },
    { "kind", { "run", "bench", "run", "run" } },
    { "name", { "unnamed", "gemm", "llama-small", "llama-small" } },
    { "label", { "", "label-2", "", "Label-1" } },
    { "device", { "", "cpu", "null", "cpu" } },
    { "precision", { "", "", "BFLOAT16", "float32" } },
    { "verdict", { "", "", "invalid", "noisy" } },
    { "tokens_per_second", { "", "", "512", "4096" } },
    { "half_width_percent", { "", "", "", "2.392578125" } }, /* 100 (4196 - 4000) / 2 / 4096; 1024 .. 1024 is none */
    { "loss", { "", "", "0.5", "2" } },
    { "steps", { "", "", "2", "4" } },
    { "host", { "", "", "", "Box" } },
    /* of all columns only */
    { "seconds", { "", "", "", "345.6" } },
    { "configuration_hash", { "", "", "", "00ff00ff00ff00ff" } },
    { "build", { "", "", "", "c0ffee" } },
    { "folder", { "", "", "", NULL } },
    { "command", { "", "", "", "run it" } },
};
enum { COLUMNS = sizeof columns / sizeof columns[0], BRIEF = 13 };

static void table_has(const tm_table *table, size_t row, size_t result, size_t column)
{
    const tm_cell *cell = tm_table_cell(table, row, (size_t)tm_table_find(table, columns[column].column));
    const char    *wanted = columns[column].cells[result];
    char           text[300] = "", number[32];
    if (!wanted) wanted = test_folder();
    if (cell->kind == TM_CELL_TEXT) snprintf(text, sizeof text, "%s", cell->text);
    if (cell->kind == TM_CELL_I64) snprintf(text, sizeof text, "%lld", (long long)cell->i64);
    if (cell->kind == TM_CELL_F64) snprintf(text, sizeof text, "%s", tm_format_double(number, cell->f64));
    if (strcmp(text, wanted) != 0)
        fail_msg("result %zu, %s: '%s', wanted '%s'", 4 - result, columns[column].column, text, wanted);
}

/* Tables of the first rows: brief ones leave out the columns that are empty, unless there are no rows. */
static void rows_are_tables(tm_store *store)
{
    tm_arena  *arena = tm_arena_create();
    tm_stored *rows;
    size_t     n;
    tm_error   err = { 0 };
    assert_int_equal(tm_store_list(store, &(tm_store_filter){ 0 }, arena, &rows, &n, &err), TM_OK);
    assert_int_equal(n, 4);
    for (int all = 0; all < 2; all++)
        for (size_t shown = 0; shown <= n; shown++) {
            tm_table *table = tm_results_table(rows, shown, all == 1);
            size_t    at = 0;
            assert_int_equal(tm_table_n_rows(table), shown);
            for (size_t c = 0; c < (all ? COLUMNS : BRIEF); c++) {
                bool empty = shown > 0 && !all && c > 1; /* of no row: all columns */
                for (size_t i = 0; i < shown; i++) empty = empty && columns[c].cells[i] && !*columns[c].cells[i];
                if (empty != (tm_table_find(table, columns[c].column) < 0))
                    fail_msg("column %s of %zu rows", columns[c].column, shown);
                if (empty) continue;
                assert_string_equal(tm_table_column_at(table, at++)->name, columns[c].column);
                for (size_t i = 0; i < shown; i++) table_has(table, i, i, c);
            }
            assert_int_equal(tm_table_n_columns(table), at);
            tm_table_destroy(table);
        }
    tm_arena_destroy(arena);
}

TEST(results_are_listed)
{
    static const char told[] =
        "'finished': '####################' => 'finished': '2026-02-03T04:05:06Z'; 'environment': null => "
        "'environment': "
        "{'os': {'host': 'Box'}, 'build': {'commit': 'c0ffee'}, 'process': {'command_line': 'run it'}}";
    static const char others[] =
        "'finished': '####################' => 'finished': '2026-02-04T00:00:00Z'; "
        "'float32' => 'BFLOAT16'; 'device': 'cpu' => 'device': 'null'; 'lo': 256 => 'lo': 1024";
    tm_store *store;
    tm_text   lines = told_text(metrics), bench = { 0 }, nameless = { 0 };
    tm_error  err = { 0 };
    int64_t   id;
    assert_int_equal(tm_store_open(test_in_folder("store.db"), true, &store, &err), TM_OK);
    tm_text_add(&bench, "{\"format\": \"trainmark.bench/1\", \"finished\": \"2026-02-04T00:00:01Z\", \"workload\": "
                        "\"gemm\", \"device\": \"cpu\", \"verdict\": null, \"table\": {\"name\": \"other\", \"rows\": "
                        "[{\"M\": 2}]}}");
    tm_text_add(&nameless, "{\"format\": \"trainmark.result/1\"}");
    tm_result *all[] = { run_of("a", rich, told, lines.data), run_of("b", poor, others, NULL),
                         parsed("c", &bench, NULL), parsed("d", &nameless, NULL) };
    assert_int_equal(tm_results_keep(store, all[0], test_folder(), "Label-1", &id, &err), TM_OK);
    assert_int_equal(tm_results_keep(store, all[1], NULL, NULL, &id, &err), TM_OK);
    assert_int_equal(tm_results_keep(store, all[2], "/nowhere", "label-2", &id, &err), TM_OK);
    assert_int_equal(tm_results_keep(store, all[3], NULL, NULL, &id, &err), TM_OK);
    assert_int_equal(id, 4);
    rows_are_tables(store);
    const tm_text *documents[] = { tm_result_document(all[0], TM_DOCUMENT_RESULT), &lines };
    for (int i = 0; i < 3; i++) {
        tm_text back = { 0 };
        bool    there;
        assert_int_equal(tm_store_document(store, 1, (tm_document)i, &back, &there, &err), TM_OK);
        assert_int_equal(there, i < 2); /* there is no config.yaml */
        assert_int_equal(back.length, i < 2 ? documents[i]->length : 0);
        if (there) assert_string_equal(back.data, documents[i]->data);
        tm_text_fini(&back);
    }
    assert_int_equal(tm_results_export(store, 1, test_in_folder("out"), &err), TM_OK);
    tm_text back = fake_read(test_in_folder("out/metrics.jsonl"));
    assert_string_equal(back.data, lines.data);
    tm_text_fini(&back);
    assert_int_equal(access(test_in_folder("out/config.yaml"), F_OK), -1);
    remove(test_in_folder("out/result.json"));
    assert_int_equal(tm_results_export(store, 1, test_in_folder("out"), &err), TM_INVALID);
    assert_non_null(strstr(err.text, "/out/metrics.jsonl' already exists; name another directory"));
    assert_int_equal(access(test_in_folder("out/result.json"), F_OK), 0);
    /* documents go with their result */
    assert_int_equal(tm_store_delete(store, (int64_t[]){ 1 }, 1, &err), TM_OK);
    bool    there = true;
    tm_text gone = { 0 };
    assert_int_equal(tm_store_document(store, 1, TM_DOCUMENT_RESULT, &gone, &there, &err), TM_OK);
    assert_false(there);
    for (int i = 0; i < 4; i++) tm_result_destroy(all[i]);
    tm_text_fini(&lines);
    tm_store_close(store);
    test_folder_remove();
}

/* `all told rich` (poor, metrics) prints what is recorded of a run of support/told_runs.h. */
static int tell(int argc, char **argv)
{
    tm_text text = told_text(argc > 2 ? argv[2] : "rich");
    fputs(text.data, stdout);
    tm_text_fini(&text);
    test_folder_remove();
    return 0;
}

TM_TEST_ROLE("told", tell)

TEST_FIXTURE(NULL, test_folder_teardown)
