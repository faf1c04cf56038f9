/* SPDX-License-Identifier: Apache-2.0 */
/* A benchmark's table in the store of results: the whole document, and what is said where it cannot be stored. */
#include "cli/bench_store.h"

#include "base/clock.h"
#include "apps/bench/bench.h"
#include "results/store.h"
#include "support/folder.h"
#include "record/table.h"

#include <jansson.h>
#include <math.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/test.h"

static tm_config *options(const char *store)
{
    tm_error   err = { 0 };
    tm_config *config = tm_bench_configure(tm_workload_find("stream"), "help");
    tm_config_set(config, "threads", "3", "the test");
    if (store) tm_config_set(config, "store", store, "the test");
    assert_int_equal(tm_config_finish(config, &err), TM_OK);
    return config;
}

static tm_table *table(void)
{
    tm_table *t = tm_table_create("stream");
    tm_table_columns(t, (tm_column[]){ { "host", 0 }, { "kernel", 0 }, { "best_mbps", 6 } }, 3);
    for (int i = 0; i < 2; i++) {
        tm_table_row(t);
        tm_table_text(t, "kernel", i ? "mul" : "copy");
        tm_table_f64(t, "best_mbps", 1234.5 + i);
    }
    tm_table_note(t, "a note");
    return t;
}

/* The document has the options as they are configured, the table as it is printed, and where it was measured. */
static void document_is_right(const char *text, const char *verdict, const tm_config *config, const tm_table *t)
{
    json_t *document = json_loads(text, JSON_REJECT_DUPLICATES, NULL), *options = json_object_get(document, "options");
    tm_text printed = { 0 };
    struct tm   when;
    const char *finished = json_string_value(json_object_get(document, "finished"));
    assert_non_null(document);
    assert_string_equal(json_string_value(json_object_get(document, "format")), "trainmark.bench/1");
    assert_string_equal(json_string_value(json_object_get(document, "workload")), "stream");
    assert_string_equal(json_string_value(json_object_get(document, "device")), "cpu");
    json_t *judged = json_object_get(document, "verdict");
    assert_true(verdict ? strcmp(json_string_value(judged), verdict) == 0 : json_is_null(judged));
    assert_true(finished && strptime(finished, "%Y-%m-%dT%H:%M:%SZ", &when) &&
                fabs(difftime(timegm(&when), time(NULL))) < 3600);
    assert_int_equal(json_object_size(options), tm_config_n_keys(config));
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const char *name = tm_config_key_at(config, i)->name, *wanted = tm_config_text(config, name);
        json_t     *value = json_object_get(options, name);
        char       *is = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
        if (!value) fail_msg("no option %s", name);
        if (!wanted) assert_true(json_is_null(value));
        if (wanted && strcmp(is ? is : json_string_value(value), wanted) != 0)
            fail_msg("%s is %s, wanted %s", name, is ? is : json_string_value(value), wanted);
        free(is);
    }
    tm_table_print(t, TM_TABLE_JSON, &printed);
    json_t *table = json_loads(printed.data, 0, NULL);
    assert_true(json_equal(json_object_get(document, "table"), table));
    assert_true(json_object_size(json_object_get(document, "environment")) > 5);
    json_decref(table);
    json_decref(document);
    tm_text_fini(&printed);
}

TEST(documents_are_stored)
{
    tm_table *t = table();
    char      path[512];
    strcpy(path, test_in_folder("results.db"));
    for (int valid = 0; valid < 2; valid++) {
        tm_error   err = { 0 };
        tm_config *config = options(path);
        if (tm_bench_store(config, t, valid, valid ? "a label" : NULL, &err) != TM_OK) fail_msg("%s", err.text);
        tm_config_destroy(config);
    }
    tm_store  *store;
    tm_error   err = { 0 };
    tm_arena  *arena = tm_arena_create();
    tm_stored *rows;
    size_t     n;
    assert_int_equal(tm_store_open(path, false, &store, &err), TM_OK);
    assert_int_equal(tm_store_list(store, &(tm_store_filter){ 0 }, arena, &rows, &n, &err), TM_OK);
    assert_int_equal(n, 2);
    for (int64_t id = 1; id <= 2; id++) {
        tm_text document = { 0 };
        bool    there = false;
        assert_int_equal(tm_store_document(store, id, TM_DOCUMENT_RESULT, &document, &there, &err), TM_OK);
        assert_true(there);
        tm_config *config = options(path);
        document_is_right(document.data, id == 1 ? "invalid" : NULL, config, t);
        assert_string_equal(rows[2 - id].label ? rows[2 - id].label : "", id == 1 ? "" : "a label");
        tm_config_destroy(config);
        tm_text_fini(&document);
    }
    tm_store_close(store);
    tm_arena_destroy(arena);
    tm_table_destroy(t);
}

/* What a secret variable holds is in no document, wherever it has come to. */
TEST(secrets_are_not_stored)
{
    tm_text    document = { 0 };
    tm_error   err = { 0 };
    tm_store  *store;
    bool       there = false;
    char       path[512];
    tm_table  *t = table();
    tm_config *config;
    strcpy(path, test_in_folder("secrets.db"));
    setenv("MY_TEST_TOKEN", "open-sesame-77", 1);
    tm_table_note(t, "fetched with open-sesame-77");
    tm_table_text(t, "host", "at-open-sesame-77");
    config = options(path);
    tm_config_set(config, "output-file", "/x/open-sesame-77.csv", "the test");
    assert_int_equal(tm_bench_store(config, t, true, NULL, &err), TM_OK);
    tm_config_destroy(config);
    tm_table_destroy(t);
    unsetenv("MY_TEST_TOKEN");
    assert_int_equal(tm_store_open(path, false, &store, &err), TM_OK);
    assert_int_equal(tm_store_document(store, 1, TM_DOCUMENT_RESULT, &document, &there, &err), TM_OK);
    tm_store_close(store);
    assert_null(strstr(document.data, "sesame"));
    assert_non_null(strstr(document.data, "\"output-file\": \"/x/***.csv\""));
    assert_non_null(strstr(document.data, "fetched with ***"));
    assert_non_null(strstr(document.data, "at-***"));
    tm_text_fini(&document);
}

/* A store that was asked for is an error where it cannot be written; the usual one is not worth a measurement. */
TEST(what_cannot_be_stored)
{
    char      path[512];
    tm_error  err = { 0 };
    tm_table *t = table();
    strcpy(path, test_in_folder("no/such/folder"));
    FILE *f = fopen(test_in_folder("no"), "w");
    fclose(f);
    tm_config *config = options(path);
    assert_int_not_equal(tm_bench_store(config, t, true, NULL, &err), TM_OK);
    assert_non_null(strstr(err.text, "no/such"));
    tm_config_destroy(config);
    config = options("none");
    assert_int_equal(tm_bench_store(config, t, true, NULL, &err), TM_OK);
    tm_config_destroy(config);
    tm_table_destroy(t);
}

TEST_FIXTURE(NULL, test_folder_teardown)
