/* SPDX-License-Identifier: Apache-2.0 */
/* A store of results in which no two cells are alike: every column, filter, name of a result and refusal, to the
 * letter. tests/results/whole-store.txt. */
#include "support/folder.h"
#include "support/whole.h"

#include "base/file.h"
#include "results/store.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static tm_text said;

static void refused(tm_status st, const tm_error *err)
{
    const char *folder = test_folder();
    tm_text_printf(&said, "  -> %s: ", tm_status_text(st));
    for (const char *text = err->text; *text;) {
        bool here = strncmp(text, folder, strlen(folder)) == 0;
        tm_text_add_n(&said, here ? "TMP" : text, here ? 3 : 1);
        text += here ? strlen(folder) : 1;
    }
    tm_text_add(&said, "\n");
}

static const char *text(const char *cell)
{
    return cell ? cell : "-";
}

static void add_row(const tm_stored *r)
{
    tm_text_printf(&said, "  %lld %s %s %s %s %s %s %s %s %s %s %s %s %.9g %.9g %.9g %.9g %.9g %.9g\n",
                   (long long)r->id, text(r->kind), text(r->name), text(r->finished), text(r->host), text(r->device),
                   text(r->precision), text(r->verdict), text(r->hash), text(r->build), text(r->folder),
                   text(r->command), text(r->label), r->rate, r->lo, r->hi, r->loss, r->steps, r->seconds);
}

static void list(tm_store *store, const char *what, tm_store_filter filter)
{
    tm_arena  *arena = tm_arena_create();
    tm_stored *rows;
    size_t     n;
    tm_error   err = { 0 };
    tm_status  st = tm_store_list(store, &filter, arena, &rows, &n, &err);
    tm_text_printf(&said, "== %s: %zu\n", what, n);
    for (size_t i = 0; st == TM_OK && i < n; i++) add_row(&rows[i]);
    if (st != TM_OK) refused(st, &err);
    tm_arena_destroy(arena);
}

static void find(tm_store *store, const char *reference)
{
    tm_arena *arena = tm_arena_create();
    tm_stored row;
    tm_error  err = { 0 };
    tm_status st = tm_store_find(store, reference, arena, &row, &err);
    tm_text_printf(&said, "find '%s'\n", reference);
    if (st == TM_OK)
        add_row(&row);
    else
        refused(st, &err);
    tm_arena_destroy(arena);
}

static const double none = (double)NAN;

static void fill(tm_store *store)
{
    const tm_stored rows[] = {
        { 0, "run", "llama", "2026-01-30T23:59:59Z", "Box", "cpu", "float32", "valid", "aa", "b1", "/f1", "c1", "l/1",
          1, 2, 3, 4, 5, 6 },
        { 99, "bench", "gemm", "2026-01-31T00:00:00Z", "box2", "CPU", "bfloat16", "noisy", "bb", "b2", "/f2", "c2",
          "l/2", 7, 8, 9, 10, 11, 12 },
        { 0, "run", "llama2", "2026-01-31T12:00:00Z", "box", "gpu", "Float32", "invalid", "aa", NULL, NULL, NULL, NULL,
          none, 14, 15, 16, 17, 18 },
        { 0, "run", "flux", "2026-02-01T00:00:00Z", NULL, NULL, NULL, NULL, NULL, "b4", "/f4", "c4", "L/22", 19, none,
          21, 22, 23, 24 },
        { 0, "run", "x", "2026-02-02", "h", "d", "p", "v", "h", "b", "f", "c", "l", 25, 26, (double)INFINITY, none,
          none, none },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t        id = 0;
        tm_error       err = { 0 };
        tm_text        documents[3] = { { 0 } };
        const tm_text *given[3] = { NULL };
        for (size_t k = 0; k < 3; k++)
            if (i >> k & 1) {
                for (size_t n = 0; n < 100 * k * k; n++) tm_text_printf(&documents[k], "%zu %zu,", i, k);
                tm_text_printf(&documents[k], "%zu of %zu", k, i);
                given[k] = &documents[k];
            }
        if (tm_store_add(store, &rows[i], i ? given : NULL, &id, &err) != TM_OK) fail_msg("%s", err.text);
        assert_int_equal(id, i + 1);
        for (size_t k = 0; k < 3; k++) {
            tm_text back = { 0 };
            bool    there = !given[k];
            assert_int_equal(tm_store_document(store, id, (tm_document)k, &back, &there, &err), TM_OK);
            assert_int_equal(there, given[k] != NULL);
            if (there) assert_string_equal(back.data, documents[k].data);
            tm_text_fini(&back);
            tm_text_fini(&documents[k]);
        }
    }
}

static void filters(tm_store *store)
{
    list(store, "all", (tm_store_filter){ 0 });
    list(store, "runs", (tm_store_filter){ .kind = "run" });
    list(store, "name", (tm_store_filter){ .name = "LLAMA" });
    list(store, "names", (tm_store_filter){ .name = "llama?" });
    list(store, "names", (tm_store_filter){ .name = "*l*" });
    list(store, "host", (tm_store_filter){ .host = "BOX" });
    list(store, "device", (tm_store_filter){ .device = "cpu" });
    list(store, "precision", (tm_store_filter){ .precision = "FLOAT32" });
    list(store, "verdict", (tm_store_filter){ .verdict = "Noisy" });
    list(store, "hash", (tm_store_filter){ .hash = "aa" });
    list(store, "hash", (tm_store_filter){ .hash = "AA" });
    list(store, "label", (tm_store_filter){ .label = "L/2*" });
    list(store, "since", (tm_store_filter){ .since = "2026-01-31" });
    list(store, "since", (tm_store_filter){ .since = "2026-01-31T12:00:00Z" });
    list(store, "until", (tm_store_filter){ .until = "2026-01-31" });
    list(store, "until", (tm_store_filter){ .until = "2026-01-30" });
    list(store, "limit", (tm_store_filter){ .limit = 2 });
    list(store, "before", (tm_store_filter){ .before = 3 });
    list(store, "both", (tm_store_filter){ .before = 4, .limit = 1 });
    list(store, "much",
         (tm_store_filter){ "run", "l*", "box", "gpu", "float32", "invalid", "aa", NULL, "2026-01-31", "2026-01-31", 9,
                            9 });
    list(store, "nothing", (tm_store_filter){ .name = "';DROP TABLE results;" });
}

static void names(tm_store *store)
{
    static const char *const references[] = {
        "1",
        "#2",
        "5",
        "6",
        "0",
        "#",
        "",
        "last",
        "last~0",
        "last~1",
        "last~4",
        "last~5",
        "last~",
        "last~x",
        "last1",
        "last~1x",
        "last~-1",
        "las",
        "1x",
        "-1",
        "##1",
        "01",
        "999999999999999999",
        "1000000000000000000",
        "last~+1",
        " 1",
    };
    for (size_t i = 0; i < COUNT(references); i++) find(store, references[i]);
}

static void deleted(tm_store *store, size_t n, const int64_t *ids)
{
    tm_error  err = { 0 };
    tm_status st = tm_store_delete(store, ids, n, &err);
    tm_text_printf(&said, "delete %zu\n", n);
    if (st != TM_OK) refused(st, &err);
}

static void open_other(const char *name, const char *sql, bool make)
{
    tm_store *store;
    tm_error  err = { 0 };
    sqlite3  *db;
    if (sql) {
        unlink(test_in_folder(name));
        assert_int_equal(sqlite3_open(test_in_folder(name), &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(db);
    }
    tm_text_printf(&said, "open %s %s\n", name, sql ? sql : "as it is");
    tm_status st = tm_store_open(test_in_folder(name), make, &store, &err);
    if (st != TM_OK) {
        refused(st, &err);
        return;
    }
    list(store, "opened", (tm_store_filter){ 0 });
    tm_store_close(store);
}

TEST(a_store_to_the_letter)
{
    tm_store *store;
    tm_error  err = { 0 };
    tm_text   out = { 0 };
    bool      there = true;
    if (tm_store_open(test_in_folder("one/two.db"), true, &store, &err) != TM_OK) fail_msg("%s", err.text);
    list(store, "empty", (tm_store_filter){ 0 });
    find(store, "last");
    fill(store);
    filters(store);
    names(store);
    deleted(store, 2, (int64_t[]){ 2, 9 }); /* one is not there: none goes */
    deleted(store, 2, (int64_t[]){ 5, 2 });
    deleted(store, 1, (int64_t[]){ 2 });
    deleted(store, 0, (int64_t[]){ 1 });
    list(store, "left", (tm_store_filter){ 0 });
    assert_int_equal(tm_store_document(store, 2, TM_DOCUMENT_RESULT, &out, &there, &err), TM_OK);
    assert_false(there || out.length);
    tm_store_close(store);
    open_other("one/two.db", NULL, false);
    open_other("none.db", NULL, false);
    open_other("empty.db", "PRAGMA user_version = 0", true);
    open_other("other.db", "CREATE TABLE x (y)", true);
    open_other("named.db", "PRAGMA application_id = 7", true);
    open_other("format.db", "PRAGMA user_version = 1", true);
    open_other("newer.db", "PRAGMA application_id = 1953329771; PRAGMA user_version = 3", true);
    open_other("broken.db", "PRAGMA application_id = 1953329771; PRAGMA user_version = 2", true);
    FILE *file = fopen(test_in_folder("text.db"), "w");
    for (int i = 0; i < 200; i++) fputs("no database ", file);
    fclose(file);
    open_other("text.db", NULL, true);
    assert_int_equal(symlink(test_in_folder("one/two.db"), test_in_folder("link.db")), 0);
    open_other("link.db", NULL, true);
    whole_is("tests/results/whole-store.txt", &said);
}

/* A document that does not unpack, or says another length. */
TEST(damaged_documents_are_named)
{
    static const char *const damages[] = { "bytes = bytes + 1", "bytes = bytes - 1", "bytes = -1",
                                           "bytes = 268435457", "data = x'00'",      "data = x''" };
    for (size_t i = 0; i < COUNT(damages); i++) {
        tm_store      *store;
        tm_error       err = { 0 };
        tm_text        document = { 0 }, out = { 0 };
        const tm_text *documents[TM_DOCUMENT_COUNT] = { &document };
        tm_stored      row = { .kind = "run", .name = "n", .finished = "f" };
        int64_t        id;
        bool           there;
        char           sql[80];
        sqlite3       *db;
        tm_text_add(&document, "some words that are some words");
        if (tm_store_open(test_in_folder("d.db"), true, &store, &err) != TM_OK) fail_msg("%s", err.text);
        assert_int_equal(tm_store_add(store, &row, documents, &id, &err), TM_OK);
        assert_int_equal(sqlite3_open(test_in_folder("d.db"), &db), SQLITE_OK);
        snprintf(sql, sizeof sql, "UPDATE documents SET %s WHERE id = %lld", damages[i], (long long)id);
        assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(db);
        assert_int_equal(tm_store_document(store, id, TM_DOCUMENT_RESULT, &out, &there, &err), TM_FORMAT);
        assert_non_null(strstr(err.text, "d.db' is damaged: a document in it does not unpack"));
        tm_store_close(store);
        tm_text_fini(&document);
        tm_text_fini(&out);
    }
}

TEST_FIXTURE(NULL, test_folder_teardown)
