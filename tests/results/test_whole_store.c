/* SPDX-License-Identifier: Apache-2.0 */
/* A store of results in which no two cells are alike: every row comes back as it was given; which rows each filter and
 * each name of a result means; what cannot be opened. */
#include "support/folder.h"

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
#define NONE (double)NAN

static const tm_stored rows[] = {
    { 0, "run", "llama", "2026-01-30T23:59:59Z", "Box", "cpu", "float32", "valid", "aa", "b1", "/f1", "c1", "l/1", 1, 2,
      3, 4, 5, 6 },
    { 99, "bench", "gemm", "2026-01-31T00:00:00Z", "box2", "CPU", "bfloat16", "noisy", "bb", "b2", "/f2", "c2", "l/2",
      7, 8, 9, 10, 11, 12 },
    { 0, "run", "llama2", "2026-01-31T12:00:00Z", "box", "gpu", "Float32", "invalid", "aa", NULL, NULL, NULL, NULL,
      NONE, 14, 15, 16, 17, 18 },
    { 0, "run", "flux", "2026-02-01T00:00:00Z", NULL, NULL, NULL, NULL, NULL, "b4", "/f4", "c4", "L/22", 19, NONE, 21,
      22, 23, 24 },
    { 0, "run", "x", "2026-02-02", "h", "d", "p", "v", "h", "b", "f", "c", "l", 25, 26, (double)INFINITY, NONE, NONE,
      NONE },
};

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* It is the row that was added as number `id`; what is no number is none. */
static void is_row(const tm_stored *r)
{
    const tm_stored  *w = &rows[r->id - 1];
    const char *const texts[][2] = {
        { r->kind, w->kind },     { r->name, w->name },           { r->finished, w->finished }, { r->host, w->host },
        { r->device, w->device }, { r->precision, w->precision }, { r->verdict, w->verdict },   { r->hash, w->hash },
        { r->build, w->build },   { r->folder, w->folder },       { r->command, w->command },   { r->label, w->label }
    };
    const double numbers[][2] = { { r->rate, w->rate }, { r->lo, w->lo },       { r->hi, w->hi },
                                  { r->loss, w->loss }, { r->steps, w->steps }, { r->seconds, w->seconds } };
    for (size_t i = 0; i < COUNT(texts); i++)
        if (!same_text(texts[i][0], texts[i][1])) fail_msg("result %d, text %zu", (int)r->id, i);
    for (size_t i = 0; i < COUNT(numbers); i++)
        if (isfinite(numbers[i][0]) != isfinite(numbers[i][1]) ||
            (isfinite(numbers[i][0]) && numbers[i][0] != numbers[i][1]))
            fail_msg("result %d, number %zu", (int)r->id, i);
}

/* `ids`: "541", the newest first. */
static void lists(tm_store *store, const char *ids, tm_store_filter filter)
{
    tm_arena  *arena = tm_arena_create();
    tm_stored *found;
    size_t     n;
    char       is[10] = "";
    tm_error   err = { 0 };
    if (tm_store_list(store, &filter, arena, &found, &n, &err) != TM_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < n && i < 9; i++) {
        is_row(&found[i]);
        is[i] = (char)('0' + found[i].id);
    }
    assert_string_equal(is, ids);
    tm_arena_destroy(arena);
}

/* `id` 0: none has that number; below: it is no name of a result. */
static void finds(tm_store *store, const char *reference, int id)
{
    tm_arena *arena = tm_arena_create();
    tm_stored row;
    tm_error  err = { 0 };
    char      wanted[120];
    tm_status st = tm_store_find(store, reference, arena, &row, &err);
    snprintf(wanted, sizeof wanted, id < 0 ? "'%s' is not a stored result" : "there is no result '%s'", reference);
    if (st != (id > 0 ? TM_OK : TM_INVALID) || (st == TM_OK ? row.id != id : !strstr(err.text, wanted)))
        fail_msg("'%s': %d, %s", reference, (int)st, err.text);
    if (st == TM_OK) is_row(&row);
    tm_arena_destroy(arena);
}

static void fill(tm_store *store)
{
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
    lists(store, "54321", (tm_store_filter){ 0 });
    lists(store, "5431", (tm_store_filter){ .kind = "run" });
    lists(store, "1", (tm_store_filter){ .name = "LLAMA" });
    lists(store, "3", (tm_store_filter){ .name = "llama?" });
    lists(store, "431", (tm_store_filter){ .name = "*l*" });
    lists(store, "31", (tm_store_filter){ .host = "BOX" });
    lists(store, "21", (tm_store_filter){ .device = "cpu" });
    lists(store, "31", (tm_store_filter){ .precision = "FLOAT32" });
    lists(store, "2", (tm_store_filter){ .verdict = "Noisy" });
    lists(store, "31", (tm_store_filter){ .hash = "aa" });
    lists(store, "", (tm_store_filter){ .hash = "AA" });
    lists(store, "42", (tm_store_filter){ .label = "L/2*" });
    lists(store, "5432", (tm_store_filter){ .since = "2026-01-31" });
    lists(store, "543", (tm_store_filter){ .since = "2026-01-31T12:00:00Z" });
    lists(store, "321", (tm_store_filter){ .until = "2026-01-31" });
    lists(store, "1", (tm_store_filter){ .until = "2026-01-30" });
    lists(store, "54", (tm_store_filter){ .limit = 2 });
    lists(store, "21", (tm_store_filter){ .before = 3 });
    lists(store, "3", (tm_store_filter){ .before = 4, .limit = 1 });
    lists(store, "3",
          (tm_store_filter){ "run", "l*", "box", "gpu", "float32", "invalid", "aa", NULL, "2026-01-31", "2026-01-31", 9,
                             9 });
    lists(store, "", (tm_store_filter){ .name = "';DROP TABLE results;" });
}

static void names(tm_store *store)
{
    static const struct {
        const char *reference;
        int         id;
    } cases[] = { { "1", 1 },
                  { "#2", 2 },
                  { "5", 5 },
                  { "6", 0 },
                  { "0", 0 },
                  { "#", -1 },
                  { "", -1 },
                  { "last", 5 },
                  { "last~0", 5 },
                  { "last~1", 4 },
                  { "last~4", 1 },
                  { "last~5", 0 },
                  { "last~", -1 },
                  { "last~x", -1 },
                  { "last1", -1 },
                  { "last~1x", -1 },
                  { "last~-1", -1 },
                  { "las", -1 },
                  { "1x", -1 },
                  { "-1", -1 },
                  { "##1", -1 },
                  { "01", 1 },
                  { "999999999999999999", 0 },
                  { "1000000000000000000", -1 },
                  { "last~+1", -1 },
                  { " 1", -1 } };
    for (size_t i = 0; i < COUNT(cases); i++) finds(store, cases[i].reference, cases[i].id);
}

static void deletes(tm_store *store, size_t n, const int64_t *ids, const char *missing)
{
    tm_error  err = { 0 };
    tm_status st = tm_store_delete(store, ids, n, &err);
    assert_int_equal(st, missing ? TM_INVALID : TM_OK);
    if (missing) assert_non_null(strstr(err.text, missing));
}

/* A file that `sql` made, or as it is: opened with these results, or refused. */
static void opens(const char *name, const char *sql, bool make, tm_status wanted, const char *said)
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
    tm_status st = tm_store_open(test_in_folder(name), make, &store, &err);
    if (st != wanted || (st != TM_OK && (!strstr(err.text, said) || !strstr(err.text, test_in_folder(name)))))
        fail_msg("%s: %d, %s", name, (int)st, err.text);
    if (st != TM_OK) return;
    lists(store, said, (tm_store_filter){ 0 });
    tm_store_close(store);
}

TEST(a_store_says_what_it_was_given)
{
    tm_store *store;
    tm_error  err = { 0 };
    tm_text   out = { 0 };
    bool      there = true;
    if (tm_store_open(test_in_folder("one/two.db"), true, &store, &err) != TM_OK) fail_msg("%s", err.text);
    lists(store, "", (tm_store_filter){ 0 });
    finds(store, "last", 0);
    fill(store);
    filters(store);
    names(store);
    deletes(store, 2, (int64_t[]){ 2, 9 }, "there is no result 9 in "); /* none goes */
    deletes(store, 2, (int64_t[]){ 5, 2 }, NULL);
    deletes(store, 1, (int64_t[]){ 2 }, "there is no result 2 in ");
    deletes(store, 0, (int64_t[]){ 1 }, NULL);
    lists(store, "431", (tm_store_filter){ 0 });
    assert_int_equal(tm_store_document(store, 2, TM_DOCUMENT_RESULT, &out, &there, &err), TM_OK);
    assert_false(there || out.length);
    tm_store_close(store);
}

TEST(what_is_no_store_is_not_opened)
{
    static const char ours[] = "PRAGMA application_id = 1953329771; PRAGMA user_version = ";
    char              newer[100];
    snprintf(newer, sizeof newer, "%s3", ours);
    opens("one.db", NULL, true, TM_OK, "");
    opens("none.db", NULL, false, TM_INVALID, "there is no store of results");
    opens("empty.db", "PRAGMA user_version = 0", true, TM_OK, "");
    opens("other.db", "CREATE TABLE x (y)", true, TM_FORMAT, "is a database of another program");
    opens("named.db", "PRAGMA application_id = 7", true, TM_FORMAT, "is a database of another program");
    opens("format.db", "PRAGMA user_version = 1", true, TM_FORMAT, "is a database of another program");
    opens("newer.db", newer, true, TM_FORMAT, "by a newer trainmark (format 3, this one knows up to 2)");
    FILE *file = fopen(test_in_folder("text.db"), "w");
    for (int i = 0; i < 200; i++) fputs("no database ", file);
    fclose(file);
    opens("text.db", NULL, true, TM_FORMAT, "is damaged or not a store of results");
    assert_int_equal(symlink(test_in_folder("one.db"), test_in_folder("link.db")), 0);
    opens("link.db", NULL, true, TM_IO, "cannot open the store of results");
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
