/* SPDX-License-Identifier: Apache-2.0 */
/* results/store.c - the store of results, on SQLite.
 *
 * SQLite opens and writes the file itself: its journal gives what base/file.h gives other files (all or nothing, on the
 * disk when the call returns), and for several writers. Links are refused here, too: the folder is resolved first, and
 * the file in it must not be one (SQLITE_OPEN_NOFOLLOW).
 *
 * Two tables: what is listed stands in `results`, a few hundred bytes a row; the documents lie apart, compressed, so
 * that a list of ten thousand results reads some megabytes and not their files.
 */
#include "results/store.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/lock.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

struct tm_store {
    sqlite3    *db;
    const char *path;
    bool        busy; /* the last failure was another process's lock */
    bool        cut;  /* a signal cut a call short */
};

enum {
    APPLICATION = 0x746d726b, /* "tmrk", in the head of the file */
    BUSY_MS = 20000,          /* another writer may take so long */
};

/* A document lies in parts of so many bytes, compressed each by itself: SQLite takes a billion in one piece. The part p
 * of kind k is the row of kind k + p KINDS. The first row has the bytes of all (a version that knows no parts then
 * refuses it), the others have their own. */
static const size_t part_bytes = (size_t)256 << 20, document_limit = (size_t)8 << 30;
enum { KINDS = 16 };
_Static_assert((int)TM_DOCUMENT_COUNT <= (int)KINDS, "kinds and parts in one number");

/* The steps from each format to the next; the format of a file is the number of steps done in it (user_version). Steps
 * that were published once are never changed. */
static const char *const migrations[] = {
    "CREATE TABLE results (id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, name TEXT NOT NULL,"
    " finished TEXT NOT NULL, host TEXT, device TEXT, precision TEXT, verdict TEXT, hash TEXT, build TEXT, folder TEXT,"
    " command TEXT, rate REAL, lo REAL, hi REAL, loss REAL, steps REAL, seconds REAL);"
    "CREATE TABLE documents (id INTEGER NOT NULL, kind INTEGER NOT NULL, bytes INTEGER NOT NULL, data BLOB NOT NULL,"
    " PRIMARY KEY (id, kind)) WITHOUT ROWID;",
    "ALTER TABLE results ADD COLUMN label TEXT;"
    "CREATE INDEX results_by_hash ON results (hash, host, id);",
};
enum { FORMAT = sizeof migrations / sizeof migrations[0] };

const char *tm_document_file(tm_document document)
{
    static const char *const names[] = { "result.json", "metrics.jsonl", "config.yaml" };
    return names[document];
}

const char *tm_store_path(tm_arena *arena, const char *given, bool *chosen)
{
    const char *variable = getenv("TRAINMARK_STORE"), *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    const char *path = given && *given ? given : variable && *variable ? variable : NULL;
    *chosen = path != NULL;
    if (path) return strcmp(path, "none") == 0 ? NULL : tm_arena_text(arena, path);
    if (data && data[0] == '/') return tm_arena_format(arena, "%s/trainmark/results.db", data);
    if (home && home[0] == '/') return tm_arena_format(arena, "%s/.local/share/trainmark/results.db", home);
    return NULL;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* What SQLite says, as one of ours. */
static tm_status failed(tm_store *s, const char *what, tm_error *err)
{
    int         code = s->db ? sqlite3_extended_errcode(s->db) : SQLITE_CANTOPEN;
    const char *cause = s->db ? sqlite3_errmsg(s->db) : "out of memory";
    s->busy = (code & 0xff) == SQLITE_BUSY;
    s->cut = (code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_DIR_FSYNC) && errno == EINTR; /* SQLite keeps none */
    switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return tm_fail(err, TM_FORMAT,
                       "'%s' is damaged or not a store of results (%s); move it away, or name another one with "
                       "TRAINMARK_STORE",
                       s->path, cause);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return tm_fail(err, TM_IO, "cannot %s '%s': another process has kept it locked for %d s; try again", what,
                       s->path, BUSY_MS / 1000);
    default:
        return tm_fail(err, TM_IO, "cannot %s the store of results '%s': %s; name another one with TRAINMARK_STORE",
                       what, s->path, cause);
    }
}

static tm_status execute(tm_store *s, const char *sql, const char *what, tm_error *err)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? TM_OK : failed(s, what, err);
}

static tm_status read_number(tm_store *s, const char *sql, int64_t *out, tm_error *err)
{
    sqlite3_stmt *statement = NULL;
    bool          done =
        sqlite3_prepare_v2(s->db, sql, -1, &statement, NULL) == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW;
    if (done) *out = sqlite3_column_int64(statement, 0);
    tm_status st = done ? TM_OK : failed(s, "read", err);
    sqlite3_finalize(statement);
    return st;
}

/* Within a transaction: two processes may have found the old format. */
static tm_status migrate(tm_store *s, tm_error *err)
{
    int64_t format = 0, tables = 0;
    char    sql[80];
    TM_TRY(read_number(s, "PRAGMA user_version", &format, err));
    TM_TRY(read_number(s, "SELECT count(*) FROM sqlite_schema", &tables, err));
    if (format == 0 && tables > 0)
        return tm_fail(err, TM_FORMAT, "'%s' is a database of another program; name another file", s->path);
    for (; format < FORMAT; format++) TM_TRY(execute(s, migrations[format], "bring to this format", err));
    snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION, FORMAT);
    return execute(s, sql, "bring to this format", err);
}

/* A view or a trigger, or a column that is computed, would be a program of a stranger, which may never end. */
static tm_status check_schema(tm_store *s, tm_error *err)
{
    static const char sql[] =
        "SELECT type, name FROM sqlite_schema WHERE type NOT IN ('table', 'index') OR (type = 'table' AND name NOT IN"
        " ('results', 'documents') AND name NOT GLOB 'sqlite_*') OR sql LIKE 'CREATE VIRTUAL%' UNION ALL"
        " SELECT 'computed column', m.name || '.' || x.name FROM sqlite_schema AS m, pragma_table_xinfo(m.name) AS x"
        " WHERE m.type = 'table' AND x.hidden IN (2, 3) LIMIT 1";
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(s->db, sql, -1, &statement, NULL) != SQLITE_OK) return failed(s, "read", err);
    int       code = sqlite3_step(statement);
    tm_status st = TM_OK;
    if (code == SQLITE_ROW)
        st = tm_fail(err, TM_FORMAT,
                     "'%s' has a %s '%.60s', which trainmark did not make; move it away, or name another one with "
                     "TRAINMARK_STORE",
                     s->path, (const char *)sqlite3_column_text(statement, 0),
                     (const char *)sqlite3_column_text(statement, 1));
    else if (code != SQLITE_DONE)
        st = failed(s, "read", err);
    sqlite3_finalize(statement);
    return st;
}

static tm_status check_format(tm_store *s, tm_error *err)
{
    int64_t application = 0, format = 0;
    /* Another process may be making it. It writes both at once: who sees the format sees the application, too. */
    TM_TRY(read_number(s, "PRAGMA user_version", &format, err));
    TM_TRY(read_number(s, "PRAGMA application_id", &application, err));
    if (application != APPLICATION && (application != 0 || format != 0))
        return tm_fail(err, TM_FORMAT, "'%s' is a database of another program; name another file", s->path);
    if (format > FORMAT)
        return tm_fail(err, TM_FORMAT,
                       "'%s' was written by a newer trainmark (format %lld, this one knows up to %d); use that one, or "
                       "name another file with TRAINMARK_STORE",
                       s->path, (long long)format, FORMAT);
    if (format > 0) TM_TRY(check_schema(s, err));
    if (format == FORMAT) return TM_OK;
    TM_TRY(execute(s, "BEGIN IMMEDIATE", "lock", err));
    tm_status st = migrate(s, err);
    if (st != TM_OK) {
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
        return st;
    }
    return execute(s, "COMMIT", "write", err);
}

/* FULL: a commit is on the disk when it returns. A journal of another kind where write-ahead needs memory that the
 * processes share and cannot (network file systems): SQLite then keeps the one it has. */
static tm_status set_journal(tm_store *s, bool network, tm_error *err)
{
    TM_TRY(check_format(s, err));
    return execute(s,
                   network ? "PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL"
                           : "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL",
                   "open", err);
}

/* While one process makes the file or changes its journal, SQLite sends others away without waiting. */
static tm_status set_up(tm_store *s, bool network, tm_error *err)
{
    const struct timespec pause = { .tv_nsec = 10000000 };
    int64_t               end_ns = tm_now_ns() + BUSY_MS * (int64_t)1000000;
    sqlite3_busy_timeout(s->db, BUSY_MS);
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    for (;;) {
        tm_error  own = { 0 };
        tm_status st = set_journal(s, network, &own);
        bool      busy = st == TM_IO && s->busy && tm_now_ns() < end_ns;
        if (!busy) return st == TM_OK ? st : tm_fail(err, st, "%s", own.text);
        nanosleep(&pause, NULL);
    }
}

/* The folder with all links followed, the name in it: a link there is refused. NULL: there is no such folder. */
static char *resolve(const char *path, char **folder)
{
    const char *slash = strrchr(path, '/');
    tm_text     head = { 0 }, whole = { 0 };
    tm_text_add_n(&head, slash ? path : ".", slash > path ? (size_t)(slash - path) : 1);
    *folder = realpath(head.data, NULL);
    if (*folder) tm_text_printf(&whole, "%s/%s", strcmp(*folder, "/") == 0 ? "" : *folder, slash ? slash + 1 : path);
    tm_text_fini(&head);
    return whole.data;
}

static tm_status make_folder(const char *path, tm_error *err)
{
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return TM_OK;
    tm_text folder = { 0 };
    tm_text_add_n(&folder, path, (size_t)(slash - path));
    tm_status st = tm_folder_make(folder.data, err);
    tm_text_fini(&folder);
    return st;
}

tm_status tm_store_open(const char *path, bool make, tm_store **out, tm_error *err)
{
    if (make) TM_TRY(make_folder(path, err));
    if (!make && !tm_file_exists(path))
        return tm_fail(err, TM_INVALID,
                       "there is no store of results '%s' yet; a run or `trainmark results import` makes it", path);
    char     *folder, *whole = resolve(path, &folder);
    tm_store *s = tm_alloc(sizeof *s);
    *s = (tm_store){ .path = path };
    int       flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW | (make ? SQLITE_OPEN_CREATE : 0);
    tm_status st = TM_OK;
    if (!whole)
        st = tm_fail(err, TM_IO, "cannot find the directory of '%s': %s", path, strerror(errno));
    else if (sqlite3_open_v2(whole, &s->db, flags, NULL) != SQLITE_OK)
        st = failed(s, "open", err);
    s->path = tm_alloc(strlen(path) + 1);
    strcpy((char *)s->path, path);
    if (st == TM_OK) st = set_up(s, tm_folder_on_network(folder), err);
    free(folder);
    free(whole);
    if (st != TM_OK) {
        tm_store_close(s);
        return st;
    }
    *out = s;
    return TM_OK;
}

void tm_store_close(tm_store *s)
{
    if (!s) return;
    (void)sqlite3_close_v2(s->db);
    free((char *)s->path);
    free(s);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* X(column): texts, then numbers, in the order of the statements below. */
#define TEXT_COLUMNS(X)                                                                                                \
    X(kind) X(name) X(finished) X(host) X(device) X(precision) X(verdict) X(hash) X(build) X(folder) X(command) X(label)
#define NUMBER_COLUMNS(X) X(rate) X(lo) X(hi) X(loss) X(steps) X(seconds)
#define NAME_(column) #column ","
#define MARK_(column) "?,"
#define COLUMNS TEXT_COLUMNS(NAME_) NUMBER_COLUMNS(NAME_)

static void bind_row(sqlite3_stmt *statement, const tm_stored *row)
{
    int at = 1;
#define X(column) sqlite3_bind_text(statement, at++, row->column, -1, SQLITE_STATIC);
    TEXT_COLUMNS(X)
#undef X
#define X(column)                                                                                                      \
    if (isfinite(row->column)) sqlite3_bind_double(statement, at, row->column);                                        \
    at++;
    NUMBER_COLUMNS(X)
#undef X
}

static tm_status add_row(tm_store *s, const tm_stored *row, int64_t *id, tm_error *err)
{
    static const char sql[] =
        "INSERT INTO results (" COLUMNS "id) VALUES (" TEXT_COLUMNS(MARK_) NUMBER_COLUMNS(MARK_) "NULL)";
    sqlite3_stmt *statement = NULL;
    tm_status     st = TM_OK;
    if (sqlite3_prepare_v2(s->db, sql, -1, &statement, NULL) != SQLITE_OK) return failed(s, "write", err);
    bind_row(statement, row);
    if (sqlite3_step(statement) != SQLITE_DONE) st = failed(s, "write", err);
    sqlite3_finalize(statement);
    *id = sqlite3_last_insert_rowid(s->db);
    return st;
}

/* Row `kind` with n bytes of text, said to be `bytes`. */
static tm_status add_part(tm_store *s, int64_t id, int kind, const char *text, size_t n, size_t bytes, tm_error *err)
{
    sqlite3_stmt  *statement = NULL;
    tm_status      st = TM_OK;
    uLongf         packed = compressBound(n);
    unsigned char *data = tm_alloc(packed + 1);
    if (compress2(data, &packed, (const unsigned char *)text, n, 6) != Z_OK)
        st = tm_fail(err, TM_INTERNAL, "cannot compress %zu bytes of a document", n);
    else if (sqlite3_prepare_v2(s->db, "INSERT INTO documents (id, kind, bytes, data) VALUES (?,?,?,?)", -1, &statement,
                                NULL) != SQLITE_OK)
        st = failed(s, "write", err);
    if (st == TM_OK) {
        sqlite3_bind_int64(statement, 1, id);
        sqlite3_bind_int(statement, 2, kind);
        sqlite3_bind_int64(statement, 3, (sqlite3_int64)bytes);
        sqlite3_bind_blob64(statement, 4, data, packed, SQLITE_STATIC);
        if (sqlite3_step(statement) != SQLITE_DONE) st = failed(s, "write", err);
    }
    sqlite3_finalize(statement);
    free(data);
    return st;
}

static tm_status add_document(tm_store *s, int64_t id, int kind, const tm_text *text, tm_error *err)
{
    if (text->length > document_limit)
        return tm_fail(err, TM_INVALID, "a document of %zu bytes is too long for the store (%zu GiB)", text->length,
                       document_limit >> 30);
    size_t at = 0;
    do {
        size_t n = text->length - at < part_bytes ? text->length - at : part_bytes;
        TM_TRY(add_part(s, id, kind, text->data ? text->data + at : "", n, at == 0 ? text->length : n, err));
        at += n;
        kind += KINDS;
    } while (at < text->length);
    return TM_OK;
}

/* Ends the transaction as `st` says. */
static tm_status finish(tm_store *s, tm_status st, tm_error *err)
{
    if (st == TM_OK) st = execute(s, "COMMIT", "write", err);
    if (st != TM_OK) (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return st;
}

/* All of it or nothing. */
static tm_status add_all(tm_store *s, const tm_stored *row, const tm_text *const documents[TM_DOCUMENT_COUNT],
                         int64_t *id, tm_error *err)
{
    TM_TRY(execute(s, "BEGIN IMMEDIATE", "write", err));
    tm_status st = add_row(s, row, id, err);
    for (int i = 0; st == TM_OK && i < TM_DOCUMENT_COUNT; i++)
        if (documents && documents[i]) st = add_document(s, *id, i, documents[i], err);
    return finish(s, st, err);
}

/* SQLite flushes by itself, and takes a signal for a broken disk: then all of it is made again. */
tm_status tm_store_add(tm_store *s, const tm_stored *row, const tm_text *const documents[TM_DOCUMENT_COUNT],
                       int64_t *id, tm_error *err)
{
    enum { TRIES = 100 };
    TM_ASSERT(row->kind && row->name && row->finished);
    for (int i = 0;; i++) {
        tm_error own = { 0 };
        s->cut = false;
        errno = 0;
        tm_status st = add_all(s, row, documents, id, &own);
        if (st == TM_OK) return st;
        if (!s->cut || i == TRIES) return tm_fail(err, st, "%s", own.text);
    }
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static const char *text_of(tm_arena *arena, sqlite3_stmt *statement, int column)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    return text ? tm_arena_text(arena, text) : NULL;
}

static double number_of(sqlite3_stmt *statement, int column)
{
    bool none = sqlite3_column_type(statement, column) == SQLITE_NULL;
    return none ? (double)NAN : sqlite3_column_double(statement, column);
}

static void take_row(tm_arena *arena, sqlite3_stmt *statement, tm_stored *row)
{
    int at = 0;
#define X(column) row->column = text_of(arena, statement, at++);
    TEXT_COLUMNS(X)
#undef X
#define X(column) row->column = number_of(statement, at++);
    NUMBER_COLUMNS(X)
#undef X
    row->id = sqlite3_column_int64(statement, at);
}

/* One condition per member of the filter that is set; the values are bound in the same order. */
static void add_conditions(const tm_store_filter *f, tm_text *sql, const char *values[16], int *n)
{
    const struct {
        const char *condition, *value;
    } all[] = { { "kind = ?", f->kind },
                { "lower(name) GLOB lower(?)", f->name },
                { "lower(host) = lower(?)", f->host },
                { "lower(device) = lower(?)", f->device },
                { "lower(precision) = lower(?)", f->precision },
                { "lower(verdict) = lower(?)", f->verdict },
                { "hash = ?", f->hash },
                { "lower(label) GLOB lower(?)", f->label },
                { "finished >= ?", f->since },
                { "finished <= ? || 'T99'", f->until } };
    *n = 0;
    tm_text_add(sql, " WHERE 1");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!all[i].value) continue;
        tm_text_printf(sql, " AND %s", all[i].condition);
        values[(*n)++] = all[i].value;
    }
    if (f->before > 0) tm_text_printf(sql, " AND id < %lld", (long long)f->before);
    tm_text_add(sql, " ORDER BY id DESC");
    if (f->limit > 0) tm_text_printf(sql, " LIMIT %lld", (long long)f->limit);
}

tm_status tm_store_list(tm_store *s, const tm_store_filter *filter, tm_arena *arena, tm_stored **rows, size_t *n,
                        tm_error *err)
{
    sqlite3_stmt *statement = NULL;
    tm_text       sql = { 0 };
    tm_stored    *all = NULL;
    size_t        capacity = 0;
    const char   *values[16];
    int           n_values, code = SQLITE_DONE;
    *n = 0;
    tm_text_add(&sql, "SELECT " COLUMNS "id FROM results");
    add_conditions(filter, &sql, values, &n_values);
    tm_status st = TM_OK;
    if (sqlite3_prepare_v2(s->db, sql.data, -1, &statement, NULL) != SQLITE_OK) st = failed(s, "read", err);
    for (int i = 0; st == TM_OK && i < n_values; i++) sqlite3_bind_text(statement, i + 1, values[i], -1, SQLITE_STATIC);
    while (st == TM_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        all = tm_grow(all, &capacity, *n, sizeof *all);
        take_row(arena, statement, &all[(*n)++]);
    }
    if (st == TM_OK && code != SQLITE_DONE) st = failed(s, "read", err);
    sqlite3_finalize(statement);
    tm_text_fini(&sql);
    *rows = tm_arena_take(arena, (*n + 1) * sizeof **rows);
    if (*n) memcpy(*rows, all, *n * sizeof **rows);
    free(all);
    return st;
}

/* "last~2": how many to pass over; -1: it is no such word. */
static int64_t steps_back(const char *reference)
{
    if (strncmp(reference, "last", 4) != 0) return -1;
    if (!reference[4]) return 0;
    char     *end;
    long long back = reference[4] == '~' ? strtoll(reference + 5, &end, 10) : -1;
    return back >= 0 && isdigit((unsigned char)reference[5]) && !*end ? back : -1;
}

tm_status tm_store_find(tm_store *s, const char *reference, tm_arena *arena, tm_stored *row, tm_error *err)
{
    const char *digits = reference + (reference[0] == '#');
    int64_t     back = steps_back(reference);
    size_t      n;
    tm_stored  *rows;
    if (back < 0 && (!*digits || strspn(digits, "0123456789") != strlen(digits) || strlen(digits) > 18))
        return tm_fail(err, TM_INVALID, "'%.200s' is not a stored result: give its number, last, or last~N", reference);
    tm_store_filter filter = { .limit = back < 0 ? 1 : back + 1 };
    if (back < 0) filter.before = strtoll(digits, NULL, 10) + 1;
    TM_TRY(tm_store_list(s, &filter, arena, &rows, &n, err));
    int64_t wanted = back < 0 ? filter.before - 1 : 0;
    if (n == 0 || (back >= 0 && (int64_t)n <= back) || (back < 0 && rows[0].id != wanted))
        return tm_fail(err, TM_INVALID, "there is no result '%.60s' in '%s'; `trainmark results` lists them", reference,
                       s->path);
    *row = rows[n - 1];
    return TM_OK;
}

/* The part in this row, which is to have n bytes, behind *out. */
static bool unpack(sqlite3_stmt *statement, size_t n, tm_text *out)
{
    uLong  packed = (uLong)sqlite3_column_bytes(statement, 1);
    uLongf got = (uLongf)n;
    char  *data = tm_alloc(n > 0 ? n : 1);
    bool   whole =
        uncompress((unsigned char *)data, &got, sqlite3_column_blob(statement, 1), packed) == Z_OK && got == (uLongf)n;
    if (whole) tm_text_add_n(out, data, n);
    free(data);
    return whole;
}

/* Part by part; *there: is there a first one? */
static tm_status read_parts(tm_store *s, sqlite3_stmt *statement, int64_t id, int kind, tm_text *out, bool *there,
                            tm_error *err)
{
    size_t before = out->length, bytes = 0;
    *there = false;
    for (int part = 0; part == 0 || out->length - before < bytes; part++) {
        sqlite3_reset(statement);
        sqlite3_bind_int64(statement, 1, id);
        sqlite3_bind_int(statement, 2, kind + part * KINDS);
        int code = sqlite3_step(statement);
        if (code != SQLITE_ROW && code != SQLITE_DONE) return failed(s, "read", err);
        if (code == SQLITE_DONE && part == 0) return TM_OK;
        int64_t said = code == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : -1;
        if (part == 0 && said >= 0 && said <= (int64_t)document_limit) bytes = (size_t)said;
        size_t left = bytes - (out->length - before), n = left < part_bytes ? left : part_bytes;
        if (said < 0 || said > (int64_t)document_limit || !unpack(statement, n, out))
            return tm_fail(err, TM_FORMAT, "'%s' is damaged: a document in it does not unpack", s->path);
    }
    tm_text_add(out, "");
    *there = true;
    return TM_OK;
}

tm_status tm_store_document(tm_store *s, int64_t id, tm_document document, tm_text *out, bool *there, tm_error *err)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(s->db, "SELECT bytes, data FROM documents WHERE id = ? AND kind = ?", -1, &statement,
                           NULL) != SQLITE_OK)
        return failed(s, "read", err);
    tm_status st = read_parts(s, statement, id, (int)document, out, there, err);
    sqlite3_finalize(statement);
    return st;
}

static tm_status delete_one(tm_store *s, int64_t id, tm_error *err)
{
    char sql[160];
    snprintf(sql, sizeof sql, "DELETE FROM results WHERE id = %lld", (long long)id);
    TM_TRY(execute(s, sql, "delete from", err));
    if (sqlite3_changes(s->db) == 0)
        return tm_fail(err, TM_INVALID, "there is no result %lld in '%s'; nothing was deleted", (long long)id, s->path);
    snprintf(sql, sizeof sql, "DELETE FROM documents WHERE id = %lld", (long long)id);
    return execute(s, sql, "delete from", err);
}

tm_status tm_store_delete(tm_store *s, const int64_t *ids, size_t n, tm_error *err)
{
    TM_TRY(execute(s, "BEGIN IMMEDIATE", "lock", err));
    tm_status st = TM_OK;
    for (size_t i = 0; st == TM_OK && i < n; i++) st = delete_one(s, ids[i], err);
    return finish(s, st, err);
}
