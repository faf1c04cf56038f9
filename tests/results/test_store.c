/* SPDX-License-Identifier: Apache-2.0 */
/* The store of results: many writers, killed writers, old and strange files. */
#include "support/folder.h"

#include "support/test.h"

#include "base/clock.h"
#include "base/file.h"
#include "results/store.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>

static tm_stored row_named(const char *name)
{
    return (tm_stored){ .kind = "run",
                        .name = name,
                        .finished = "2026-01-31T12:00:00Z",
                        .host = "box",
                        .device = "cpu",
                        .precision = "float32",
                        .verdict = "valid",
                        .hash = "00000000000000ff",
                        .rate = 1000,
                        .lo = 990,
                        .hi = 1010,
                        .loss = 2.5,
                        .steps = 60,
                        .seconds = (double)NAN };
}

static tm_store *open_store(const char *name)
{
    tm_store *store;
    tm_error  err = { 0 };
    tm_status st = tm_store_open(test_in_folder(name), true, &store, &err);
    if (st != TM_OK) fail_msg("%s", err.text);
    return store;
}

static int64_t add(tm_store *store, const tm_stored *row)
{
    int64_t  id = 0;
    tm_error err = { 0 };
    if (tm_store_add(store, row, NULL, &id, &err) != TM_OK) fail_msg("%s", err.text);
    return id;
}

static size_t count(tm_store *store, const tm_store_filter *filter)
{
    tm_arena  *arena = tm_arena_create();
    tm_stored *rows;
    size_t     n;
    assert_int_equal(tm_store_list(store, filter, arena, &rows, &n, NULL), TM_OK);
    tm_arena_destroy(arena);
    return n;
}

static void change(const char *name, const char *sql);

TEST(filters_and_words_find)
{
    tm_store *store = open_store("filter.db");
    tm_arena *arena = tm_arena_create();
    tm_stored rows[4] = { row_named("llama3.1_8B"), row_named("gpt-small"), row_named("gemm"), row_named("LLAMA-70b") };
    tm_stored found;
    tm_error  err = { 0 };
    rows[2].kind = "bench";
    rows[1].finished = "2026-02-01T00:00:00Z";
    rows[3].verdict = "invalid";
    for (int i = 0; i < 4; i++) assert_int_equal(add(store, &rows[i]), i + 1);
    assert_int_equal(count(store, &(tm_store_filter){ 0 }), 4);
    assert_int_equal(count(store, &(tm_store_filter){ .name = "Llama*" }), 2);
    assert_int_equal(count(store, &(tm_store_filter){ .name = "llama" }), 0);
    assert_int_equal(count(store, &(tm_store_filter){ .kind = "bench" }), 1);
    assert_int_equal(count(store, &(tm_store_filter){ .verdict = "valid", .name = "l*" }), 1);
    assert_int_equal(count(store, &(tm_store_filter){ .since = "2026-02-01" }), 1);
    assert_int_equal(count(store, &(tm_store_filter){ .until = "2026-01-31" }), 3);
    assert_int_equal(count(store, &(tm_store_filter){ .limit = 2 }), 2);
    assert_int_equal(count(store, &(tm_store_filter){ .before = 3 }), 2);
    assert_int_equal(tm_store_find(store, "last", arena, &found, NULL), TM_OK);
    assert_int_equal(found.id, 4);
    assert_int_equal(tm_store_find(store, "last~2", arena, &found, NULL), TM_OK);
    assert_int_equal(found.id, 2);
    const char *const wrong[] = { "last~4", "5", "0", "last~", "last~x", "2x", "-1", "", "#" };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(tm_store_find(store, wrong[i], arena, &found, NULL), TM_INVALID);
    assert_int_equal(tm_store_delete(store, (int64_t[]){ 4, 9 }, 2, &err), TM_INVALID);
    assert_int_equal(count(store, &(tm_store_filter){ 0 }), 4); /* all or none */
    assert_int_equal(tm_store_delete(store, (int64_t[]){ 4, 2 }, 2, NULL), TM_OK);
    assert_int_equal(count(store, &(tm_store_filter){ 0 }), 2);
    assert_int_equal(add(store, &rows[0]), 5); /* a number is never used twice */
    tm_arena_destroy(arena);
    tm_store_close(store);
}

/* --- writers ------------------------------------------------------------------------------------------------------ */

enum { WRITES = 200 };

/* Adds results, each with a document that says which, and tells the number of each that is done. */
static pid_t start_writer(const char *path, int pipe_end, int writes)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) return child;
    tm_store *store;
    tm_text   document = { 0 };
    if (tm_store_open(path, true, &store, NULL) != TM_OK) _exit(1);
    for (int i = 0; i < writes; i++) {
        tm_stored      row = row_named("killed");
        const tm_text *documents[TM_DOCUMENT_COUNT] = { &document };
        int64_t        id;
        document.length = 0;
        for (int k = 0; k < 2000; k++) tm_text_printf(&document, "%d ", i * k);
        if (tm_store_add(store, &row, documents, &id, NULL) != TM_OK) _exit(2);
        if (write(pipe_end, &id, sizeof id) != (ssize_t)sizeof id) _exit(3);
    }
    tm_store_close(store);
    _exit(0);
}

TEST(a_killed_writer_loses_nothing_that_was_done)
{
    int     channel[2];
    char    path[512];
    int64_t ids[WRITES];
    size_t  n = 0;
    bool    there;
    tm_text out = { 0 };
    snprintf(path, sizeof path, "%s", test_in_folder("killed.db"));
    assert_int_equal(pipe(channel), 0);
    pid_t child = start_writer(path, channel[1], WRITES);
    close(channel[1]);
    while (n < WRITES && read(channel[0], &ids[n], sizeof ids[n]) == (ssize_t)sizeof ids[n])
        if (++n == WRITES / 2) kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    close(channel[0]);
    assert_true(WIFSIGNALED(status) && n >= WRITES / 2 && n < WRITES);
    tm_store *store = open_store("killed.db");
    size_t    kept = count(store, &(tm_store_filter){ 0 });
    assert_true(kept == n || kept == n + 1); /* one may be done and not told */
    for (size_t i = 0; i < kept; i++) {      /* whole ones only */
        assert_int_equal(tm_store_document(store, (int64_t)i + 1, TM_DOCUMENT_RESULT, &out, &there, NULL), TM_OK);
        assert_true(there);
        if (i < n) assert_int_equal(ids[i], (int64_t)i + 1);
    }
    tm_text_fini(&out);
    tm_store_close(store);
}

/* Who makes the file, and who comes meanwhile; and several that write for a while. */
TEST(several_write_at_a_time)
{
    enum { MOST = 8 };
    static const struct {
        int files, writers, each;
    } rows[] = { { 12, MOST, 1 }, { 1, 4, 25 } };
    int channel[2], status, made = 0;
    assert_int_equal(pipe(channel), 0);
    for (size_t r = 0; r < 2; r++)
        for (int k = 0; k < rows[r].files; k++) {
            char  name[32], path[512];
            pid_t children[MOST];
            snprintf(name, sizeof name, "new-%d.db", made++);
            snprintf(path, sizeof path, "%s", test_in_folder(name));
            for (int i = 0; i < rows[r].writers; i++) children[i] = start_writer(path, channel[1], rows[r].each);
            for (int i = 0; i < rows[r].writers; i++) {
                waitpid(children[i], &status, 0);
                assert_true(WIFEXITED(status));
                assert_int_equal(WEXITSTATUS(status), 0);
            }
            tm_store *store = open_store(name);
            assert_int_equal(count(store, &(tm_store_filter){ 0 }), rows[r].writers * rows[r].each);
            tm_store_close(store);
        }
    close(channel[0]);
    close(channel[1]);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static void change(const char *name, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(test_in_folder(name), &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

static void expect_refused(const char *name, tm_status wanted, const char *words)
{
    tm_store *store;
    tm_error  err = { 0 };
    assert_int_equal(tm_store_open(test_in_folder(name), true, &store, &err), wanted);
    if (!strstr(err.text, words)) fail_msg("'%s' lacks '%s'", err.text, words);
}

TEST(an_old_format_is_brought_up)
{
    tm_stored row = row_named("old");
    tm_store *store = open_store("old.db");
    add(store, &row);
    tm_store_close(store);
    change("old.db", "DROP INDEX results_by_hash; ALTER TABLE results DROP COLUMN label; PRAGMA user_version = 1");
    store = open_store("old.db");
    row.label = "new";
    assert_int_equal(add(store, &row), 2);
    assert_int_equal(count(store, &(tm_store_filter){ .label = "n?w" }), 1);
    assert_int_equal(count(store, &(tm_store_filter){ .name = "old" }), 2);
    tm_store_close(store);
}

TEST(strange_files_are_refused)
{
    tm_store *store = open_store("newer.db");
    tm_stored row = row_named("x");
    tm_arena *arena = tm_arena_create();
    tm_error  err = { 0 };
    tm_store_close(store);
    tm_store_close(NULL);
    change("newer.db", "PRAGMA user_version = 99");
    expect_refused("newer.db", TM_FORMAT, "newer trainmark (format 99");
    change("foreign.db", "CREATE TABLE t (x)");
    expect_refused("foreign.db", TM_FORMAT, "of another program");
    change("foreign2.db", "PRAGMA application_id = 77; CREATE TABLE t (x)");
    expect_refused("foreign2.db", TM_FORMAT, "of another program");
    assert_int_equal(tm_file_write(test_in_folder("text.db"), "no database, only words in a file\n", 34, &err), TM_OK);
    expect_refused("text.db", TM_FORMAT, "is damaged or not a store");
    assert_int_equal(symlink("newer.db", test_in_folder("link.db")), 0);
    expect_refused("link.db", TM_IO, "cannot open");
    assert_int_equal(mkdir(test_in_folder("folder.db"), 0777), 0);
    expect_refused("folder.db", TM_IO, "cannot open");
    assert_int_equal(tm_store_open(test_in_folder("none.db"), false, &store, &err), TM_INVALID);
    assert_false(tm_file_exists(test_in_folder("none.db")));
    /* damage in the middle: found when it is met */
    store = open_store("damaged.db");
    for (int i = 0; i < 300; i++) add(store, &row);
    tm_store_close(store);
    FILE *file = fopen(test_in_folder("damaged.db"), "r+b");
    assert_non_null(file);
    for (long at = 8192; at < 40000 && fseek(file, at, SEEK_SET) == 0; at += 512) fputs("damage", file);
    fclose(file);
    tm_stored *rows;
    size_t     n;
    err = (tm_error){ 0 };
    tm_status st = tm_store_open(test_in_folder("damaged.db"), true, &store, &err);
    if (st == TM_OK) {
        st = tm_store_list(store, &(tm_store_filter){ 0 }, arena, &rows, &n, &err);
        tm_store_close(store);
    }
    assert_int_equal(st, TM_FORMAT);
    assert_non_null(strstr(err.text, "is damaged"));
    tm_arena_destroy(arena);
}

/* What somebody has put into the file is not run: it might never end. */
TEST(programs_in_the_file_are_refused)
{
    static const struct {
        const char *sql, *words;
    } made[] = {
        { "CREATE TRIGGER t AFTER INSERT ON results BEGIN UPDATE results SET label = 'x'; END", "has a trigger 't'" },
        { "DROP TABLE documents; CREATE VIEW documents AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM "
          "c)"
          " SELECT 1 id, 0 kind, 10 bytes, x data FROM c WHERE x < 0",
          "has a view 'documents'" },
        { "CREATE TABLE more (x)", "has a table 'more'" },
        { "ALTER TABLE results ADD COLUMN y AS (length(hex(zeroblob(100000000))))",
          "has a computed column 'results.y'" },
        { "CREATE VIRTUAL TABLE f USING fts5(x)", "has a table 'f" },
    };
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "made-%zu.db", i);
        tm_store_close(open_store(name));
        sqlite3 *db;
        assert_int_equal(sqlite3_open(test_in_folder(name), &db), SQLITE_OK);
        int code = sqlite3_exec(db, made[i].sql, NULL, NULL, NULL);
        sqlite3_close(db);
        if (code == SQLITE_OK) expect_refused(name, TM_FORMAT, made[i].words); /* not every SQLite has fts5 */
        assert_true(code == SQLITE_OK || i == 4);
    }
}

TEST(the_path_is_where_people_look)
{
    tm_arena *arena = tm_arena_create();
    bool      chosen;
    setenv("HOME", "/home/a", 1);
    unsetenv("XDG_DATA_HOME");
    unsetenv("TRAINMARK_STORE");
    assert_string_equal(tm_store_path(arena, NULL, &chosen), "/home/a/.local/share/trainmark/results.db");
    assert_false(chosen);
    setenv("XDG_DATA_HOME", "relative", 1); /* the standard: to be ignored */
    assert_string_equal(tm_store_path(arena, NULL, &chosen), "/home/a/.local/share/trainmark/results.db");
    setenv("XDG_DATA_HOME", "/data", 1);
    assert_string_equal(tm_store_path(arena, "", &chosen), "/data/trainmark/results.db");
    setenv("TRAINMARK_STORE", "/other.db", 1);
    assert_string_equal(tm_store_path(arena, NULL, &chosen), "/other.db");
    assert_true(chosen);
    assert_string_equal(tm_store_path(arena, "third.db", &chosen), "third.db");
    assert_null(tm_store_path(arena, "none", &chosen));
    unsetenv("HOME");
    unsetenv("XDG_DATA_HOME");
    unsetenv("TRAINMARK_STORE");
    assert_null(tm_store_path(arena, NULL, &chosen));
    tm_arena_destroy(arena);
}

/* A document that does not unpack, or says another length. */
TEST(damaged_documents_are_named)
{
    static const char *const damages[] = { "bytes = bytes + 1", "bytes = bytes - 1", "bytes = -1",
                                           "bytes = 268435457", "data = x'00'",      "data = x''" };
    tm_text                  document = { 0 };
    const tm_text           *documents[TM_DOCUMENT_COUNT] = { &document };
    tm_text_add(&document, "some words that are some words");
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        tm_store *store = open_store("d.db");
        tm_stored row = row_named("n");
        tm_error  err = { 0 };
        tm_text   out = { 0 };
        int64_t   id;
        bool      there;
        char      sql[80];
        assert_int_equal(tm_store_add(store, &row, documents, &id, &err), TM_OK);
        snprintf(sql, sizeof sql, "UPDATE documents SET %s WHERE id = %lld", damages[i], (long long)id);
        change("d.db", sql);
        assert_int_equal(tm_store_document(store, id, TM_DOCUMENT_RESULT, &out, &there, &err), TM_FORMAT);
        assert_non_null(strstr(err.text, "d.db' is damaged: a document in it does not unpack"));
        tm_store_close(store);
        tm_text_fini(&out);
    }
    tm_text_fini(&document);
}

TEST_FIXTURE(NULL, test_folder_teardown)
