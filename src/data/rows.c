/* SPDX-License-Identifier: Apache-2.0 */
/* data/rows.c - the list of files, and those of JSON; rows_parquet.c reads the others. */
#include "data/rows.h"

#include "base/arena.h"
#include "base/json_input.h"
#include "base/text.h"
#include "base/map.h"
#include "data/rows_parquet.h"
#include "data/unpack.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef enum { AS_NOTHING, AS_LINES, AS_ARRAY, AS_PARQUET } kind;

enum { PART = 1 << 16, MAX_LINE = 1 << 30 };

struct tm_rows {
    const char *const *wanted;
    size_t             n_wanted;
    glob_t             files;
    size_t             at;   /* the file that is read, or comes next */
    const char        *name; /* of it */
    kind               as;
    tm_unpack         *unpack; /* NULL: all is in `rest` */
    tm_text            rest;   /* read, `used` bytes of it are done with */
    size_t             used;
    bool               ended;
    json_t            *array;
    tm_map             map;
    tm_parquet_rows   *parquet;
    int64_t            number;
    tm_text            place;
};

/* --- files -------------------------------------------------------------------------------------------------------- */

static bool ends_in(const char *name, size_t n, const char *end)
{
    size_t m = strlen(end);
    return n > m && memcmp(name + n - m, end, m) == 0;
}

static bool is_data(const char *name)
{
    static const char *const endings[] = { ".jsonl", ".ndjson", ".json", ".parquet" };
    size_t                   n = strlen(name);
    if (ends_in(name, n, ".gz")) n -= 3;
    if (ends_in(name, n, ".zst")) n -= 4;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (ends_in(name, n, endings[i])) return true;
    return false;
}

/* glob sorts by the locale, which must not decide an order. */
static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static tm_status list_folder(tm_rows *r, const char *path, tm_error *err)
{
    tm_text pattern = { 0 };
    for (const char *p = path; *p; p++) tm_text_printf(&pattern, "%s%c", strchr("*?[\\", *p) ? "\\" : "", *p);
    tm_text_add(&pattern, "/*");
    int failed = glob(pattern.data, 0, NULL, &r->files);
    tm_text_fini(&pattern);
    size_t kept = 0;
    for (size_t i = 0; !failed && i < r->files.gl_pathc; i++) {
        char *file = r->files.gl_pathv[i];
        if (is_data(file)) {
            r->files.gl_pathv[i] = r->files.gl_pathv[kept];
            r->files.gl_pathv[kept++] = file;
        }
    }
    for (size_t i = kept; !failed && i < r->files.gl_pathc; i++) {
        free(r->files.gl_pathv[i]);
        r->files.gl_pathv[i] = NULL;
    }
    if (!failed) r->files.gl_pathc = kept;
    if (kept > 0) return TM_OK;
    return tm_fail(err, TM_INVALID, "no file of rows in '%s': none ends in .jsonl, .ndjson, .json or .parquet", path);
}

static tm_status list_files(tm_rows *r, const char *path, tm_error *err)
{
    struct stat info;
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode)) return list_folder(r, path, err);
        r->files.gl_pathv = tm_alloc(2 * sizeof(char *));
        r->files.gl_pathv[0] = strcpy(tm_alloc(strlen(path) + 1), path);
        r->files.gl_pathv[1] = NULL;
        r->files.gl_pathc = 1;
        return TM_OK;
    }
    int cause = errno;
    if (strpbrk(path, "*?[") && glob(path, 0, NULL, &r->files) == 0) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "cannot reach '%s': %s; wanted a file of rows (.jsonl, .json, .parquet), a directory or a "
                   "pattern of them",
                   path, strerror(cause));
}

static tm_status begin_parquet(tm_rows *r, const uint8_t *bytes, int64_t size, tm_error *err)
{
    r->as = AS_PARQUET;
    return tm_parquet_rows_open(r->name, bytes, size, r->wanted, r->n_wanted, &r->parquet, err);
}

/* Reads until `rest` has `want` bytes that were not used, or the file ends. */
static tm_status fill(tm_rows *r, size_t want, tm_error *err)
{
    char      part[PART];
    tm_status st = TM_OK;
    if (!r->unpack || r->ended || r->rest.length - r->used >= want) return TM_OK;
    if (r->used > 0) {
        memmove(r->rest.data, r->rest.data + r->used, r->rest.length - r->used + 1);
        r->rest.length -= r->used;
        r->used = 0;
    }
    while (st == TM_OK && !r->ended && r->rest.length - r->used < want) {
        size_t got = 0;
        st = tm_unpack_read(r->unpack, part, sizeof part, &got, err);
        r->ended = st == TM_OK && got == 0;
        tm_text_add_n(&r->rest, part, got);
    }
    return st;
}

static tm_status read_array(tm_rows *r, tm_error *err)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    json_error_t problem;
    TM_TRY(fill(r, SIZE_MAX, err));
    r->array = tm_json_input(r->rest.data + r->used, r->rest.length - r->used, flags, &problem);
    r->used = r->rest.length;
    if (r->array) return TM_OK;
    return tm_fail(err, TM_FORMAT, "'%s', line %d: %s", r->name, problem.line, problem.text);
}

/* What the file is, by its first bytes. */
static tm_status begin_text(tm_rows *r, tm_error *err)
{
    TM_TRY(fill(r, 4, err));
    const char *first = r->rest.data + r->used;
    size_t      n = r->rest.length - r->used;
    if (n >= 2 && (memcmp(first, "\xFF\xFE", 2) == 0 || memcmp(first, "\xFE\xFF", 2) == 0))
        return tm_fail(err, TM_FORMAT, "'%s' is in UTF-16; rows are JSON in UTF-8", r->name);
    if (n >= 3 && memcmp(first, "\xEF\xBB\xBF", 3) == 0) r->used += 3;
    r->as = AS_LINES;
    for (;;) {
        TM_TRY(fill(r, 1, err));
        if (r->used == r->rest.length) return TM_OK; /* nothing but blanks */
        char c = r->rest.data[r->used];
        if (c == '[') r->as = AS_ARRAY;
        if (c != ' ' && c != '\t' && c != '\r') break; /* an empty line counts as one */
        r->used++;
    }
    return r->as == AS_ARRAY ? read_array(r, err) : TM_OK;
}

static tm_status begin_file(tm_rows *r, tm_error *err)
{
    r->name = r->files.gl_pathv[r->at];
    r->number = 0;
    r->ended = false;
    r->used = 0;
    if (r->rest.data) r->rest.length = 0;
    tm_text_add_n(&r->rest, "", 0);
    TM_TRY(tm_unpack_open(r->name, &r->unpack, err));
    TM_TRY(fill(r, 4, err));
    if (r->rest.length < 4 || memcmp(r->rest.data, "PAR1", 4) != 0) return begin_text(r, err);
    TM_TRY(tm_map_open(r->name, &r->map, err));
    if (r->map.size < 4 || memcmp(r->map.bytes, "PAR1", 4) != 0)
        return tm_fail(err, TM_UNSUPPORTED, "'%s' is parquet that was packed once more; unpack it", r->name);
    return begin_parquet(r, r->map.bytes, r->map.size, err);
}

static void end_file(tm_rows *r)
{
    tm_unpack_close(r->unpack);
    tm_parquet_rows_close(r->parquet);
    tm_map_close(&r->map);
    json_decref(r->array);
    r->unpack = NULL;
    r->parquet = NULL;
    r->map = (tm_map){ 0 };
    r->array = NULL;
    r->as = AS_NOTHING;
    r->at++;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static bool is_blank(const char *text, size_t n)
{
    while (n > 0 && (*text == ' ' || *text == '\t' || *text == '\r')) text++, n--;
    return n == 0;
}

/* The next line that is not blank; *text is NULL behind the last. */
static tm_status next_line(tm_rows *r, const char **text, size_t *bytes, tm_error *err)
{
    *text = NULL;
    for (size_t want = PART;; want *= 2) {
        TM_TRY(fill(r, want, err));
        size_t      left = r->rest.length - r->used;
        const char *begin = r->rest.data + r->used, *stop = left ? memchr(begin, '\n', left) : NULL;
        bool        last = !stop && (r->ended || !r->unpack);
        if (!stop && !last && want >= MAX_LINE)
            return tm_fail(err, TM_INVALID, "'%s', line %lld: more than %d bytes", r->name, (long long)r->number + 1,
                           MAX_LINE);
        if (!stop && !last) continue;
        if (left == 0) return TM_OK;
        size_t n = stop ? (size_t)(stop - begin) : left;
        r->used += n + (stop != NULL);
        r->number++;
        if (!is_blank(begin, n)) {
            *text = begin;
            *bytes = n;
            return TM_OK;
        }
        want = PART / 2;
    }
}

static tm_status read_line(tm_rows *r, json_t **row, tm_error *err)
{
    json_error_t problem;
    const char  *text;
    size_t       n;
    TM_TRY(next_line(r, &text, &n, err));
    if (!text) return TM_OK;
    *row = tm_json_input(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &problem);
    if (*row) return TM_OK;
    bool   open = json_error_code(&problem) == json_error_premature_end_of_input;
    size_t blanks = 0;
    while (blanks < n && is_blank(text + blanks, 1)) blanks++;
    bool other = blanks < n && text[blanks] != '{'; /* a table, prose */
    return tm_fail(err, TM_FORMAT, "%s: %s%s", tm_rows_place(r), problem.text,
                   open    ? "; wanted a row in each line, or one array of all rows"
                   : other ? "; wanted rows as JSON, an object in each line"
                           : "");
}

/* The next row of the file, or NULL. */
static tm_status read_row(tm_rows *r, json_t **row, tm_error *err)
{
    if (r->as == AS_LINES) return read_line(r, row, err);
    if (r->as == AS_PARQUET) {
        r->number++;
        return tm_parquet_rows_next(r->parquet, row, err);
    }
    *row = json_incref(json_array_get(r->array, (size_t)r->number++));
    return TM_OK;
}

tm_status tm_rows_next(tm_rows *rows, json_t **row, tm_error *err)
{
    static const char *const types[] = { "an object", "an array", "a text", "a number",
                                         "a number",  "true",     "false",  "null" };
    *row = NULL;
    while (rows->at < rows->files.gl_pathc || rows->as != AS_NOTHING) {
        if (rows->as == AS_NOTHING) TM_TRY(begin_file(rows, err));
        TM_TRY(read_row(rows, row, err));
        if (*row) break;
        end_file(rows);
    }
    if (!*row || json_is_object(*row)) return TM_OK;
    json_type type = json_typeof(*row);
    json_decref(*row);
    *row = NULL;
    return tm_fail(err, TM_FORMAT, "%s: a row is an object of columns, found %s", tm_rows_place(rows), types[type]);
}

/* --- the interface ------------------------------------------------------------------------------------------------ */

const char *tm_rows_place(tm_rows *r)
{
    if (r->place.data) r->place.length = 0;
    tm_text_printf(&r->place, "'%s', %s %lld", r->name ? r->name : "", r->as == AS_LINES ? "line" : "row",
                   (long long)r->number);
    return r->place.data;
}

int64_t tm_rows_number(const tm_rows *rows)
{
    return rows->number;
}

tm_status tm_rows_open(const char *path, const char *const *wanted, size_t n, tm_rows **out, tm_error *err)
{
    tm_rows *r = tm_alloc(sizeof *r);
    *r = (tm_rows){ .wanted = wanted, .n_wanted = n };
    tm_status st = list_files(r, path, err);
    if (st == TM_OK && r->files.gl_pathc > 1) qsort(r->files.gl_pathv, r->files.gl_pathc, sizeof(char *), by_bytes);
    if (st == TM_OK)
        *out = r;
    else
        tm_rows_close(r);
    return st;
}

tm_status tm_rows_parse(const char *name, const uint8_t *bytes, size_t size, const char *const *wanted, size_t n,
                        tm_rows **out, tm_error *err)
{
    tm_rows *r = tm_alloc(sizeof *r);
    *r = (tm_rows){ .wanted = wanted, .n_wanted = n, .name = name, .ended = true };
    tm_status st = TM_OK;
    if (size >= 4 && memcmp(bytes, "PAR1", 4) == 0) {
        st = begin_parquet(r, bytes, (int64_t)size, err);
    } else {
        tm_text_add_n(&r->rest, (const char *)bytes, size);
        st = begin_text(r, err);
    }
    if (st == TM_OK)
        *out = r;
    else
        tm_rows_close(r);
    return st;
}

void tm_rows_close(tm_rows *rows)
{
    if (!rows) return;
    end_file(rows);
    globfree(&rows->files);
    tm_text_fini(&rows->rest);
    tm_text_fini(&rows->place);
    free(rows);
}
