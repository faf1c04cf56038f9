/* SPDX-License-Identifier: Apache-2.0 */
#include "data/verify.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/md5.h"
#include "base/text.h"
#include "base/file_list.h"
#include "data/md5_list.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIST_BYTES = 64 << 20 };

/* Published sizes, by file name. */
static const struct {
    const char *name;
    int64_t     bytes;
} sizes[] = {
    { "train.npy", 192151239 },
    { "validation.npy", 8521136 },
    { "c4-train.en_6_text_document.bin", 83976774280 },
    { "c4-train.en_6_text_document.idx", 912172262 },
    { "c4-validation-91205-samples.en_text_document.bin", 166568364 },
    { "c4-validation-91205-samples.en_text_document.idx", 1824142 },
};

/* Published hashes of folders that hold these two files and nothing else. */
static const struct {
    const char *first, *second, *hash;
} folders[] = {
    { "train.npy", "validation.npy", "02e1f87d26ece4943a47bedcad0da5d4" },
    { "train-00000-of-00001.parquet", "validation-00000-of-00001.parquet", "682a5f40b790a56751bf8303554efc08" },
};

typedef struct {
    tm_table *out;
    bool      passed;
    size_t    rows;
    tm_error *err;
} verification;

static void compare(verification *v, const char *file, const char *check, const char *wanted, const char *found)
{
    bool same = strcmp(wanted, found) == 0;
    tm_table_row(v->out);
    tm_table_text(v->out, "file", file);
    tm_table_text(v->out, "check", check);
    tm_table_text(v->out, "wanted", wanted);
    tm_table_text(v->out, "found", found);
    tm_table_text(v->out, "verdict", same ? "ok" : "FAILED");
    v->passed = v->passed && same;
    v->rows++;
}

static tm_status verify_size(verification *v, const char *path)
{
    const char *name = tm_file_name(path);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct stat info;
        char        wanted[40], found[40];
        if (strcmp(name, sizes[i].name) != 0) continue;
        if (stat(path, &info) != 0) return tm_fail(v->err, TM_INVALID, "cannot reach '%s': %s", path, strerror(errno));
        compare(v, path, "bytes", tm_format_grouped(wanted, sizes[i].bytes), tm_format_grouped(found, info.st_size));
    }
    return TM_OK;
}

/* One line of a list; names are relative to the folder of the list. */
static tm_status verify_line(verification *v, const char *list, const tm_md5_line *line)
{
    tm_text   path = { 0 };
    char      found[TM_MD5_HEX];
    tm_status st = TM_OK;
    if (line->name[0] != '/') tm_text_add_n(&path, list, (size_t)(tm_file_name(list) - list));
    tm_text_add(&path, line->name);
    if (!tm_file_exists(path.data)) {
        compare(v, path.data, "md5", line->md5, "missing");
    } else {
        st = tm_md5_file(path.data, found, v->err);
        if (st == TM_OK) compare(v, path.data, "md5", line->md5, found);
    }
    tm_text_fini(&path);
    return st;
}

static tm_status verify_list(verification *v, const char *path)
{
    tm_text     text = { 0 };
    tm_md5_list list = { 0 };
    tm_status   st = tm_file_read(path, LIST_BYTES, &text, v->err);
    if (st == TM_OK) st = tm_md5_list_parse(path, text.data, text.length, &list, v->err);
    for (size_t i = 0; i < list.count && st == TM_OK; i++) st = verify_line(v, path, &list.lines[i]);
    tm_md5_list_free(&list);
    tm_text_fini(&text);
    return st;
}

static bool is_list(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".md5") == 0;
}

static tm_status verify_file(verification *v, const char *path, const char *expected)
{
    tm_text beside = { 0 };
    char    found[TM_MD5_HEX];
    if (is_list(path)) return verify_list(v, path);
    tm_text_printf(&beside, "%s.md5", path);
    tm_status st = access(path, R_OK) == 0 ? verify_size(v, path)
                                           : tm_fail(v->err, TM_INVALID, "cannot open '%s': %s", path, strerror(errno));
    if (st == TM_OK && tm_file_exists(beside.data)) st = verify_list(v, beside.data);
    if (st == TM_OK && expected) {
        st = tm_md5_file(path, found, v->err);
        if (st == TM_OK) compare(v, path, "md5", expected, found);
    }
    tm_text_fini(&beside);
    return st;
}

static int by_text(const void *a, const void *b)
{
    return memcmp(a, b, TM_MD5_HEX);
}

/* MD5 of the sorted MD5s; names and places do not enter. */
static tm_status folder_hash(const tm_file_list *files, char out[TM_MD5_HEX], tm_error *err)
{
    char(*sums)[TM_MD5_HEX] = tm_alloc((files->count + 1) * sizeof *sums);
    tm_status st = TM_OK;
    for (size_t i = 0; i < files->count && st == TM_OK; i++) st = tm_md5_file(files->paths[i], sums[i], err);
    if (st == TM_OK) {
        tm_md5 md5;
        qsort(sums, files->count, sizeof *sums, by_text);
        tm_md5_begin(&md5);
        for (size_t i = 0; i < files->count; i++) tm_md5_add(&md5, sums[i], TM_MD5_HEX - 1);
        tm_md5_end(&md5, out);
    }
    free(sums);
    return st;
}

/* The published hash of a folder of just these files, or NULL. */
static const char *published_hash(const tm_file_list *files)
{
    if (files->count != 2) return NULL;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        if (strcmp(tm_file_name(files->paths[0]), folders[i].first) == 0 &&
            strcmp(tm_file_name(files->paths[1]), folders[i].second) == 0)
            return folders[i].hash;
    return NULL;
}

static tm_status verify_folder(verification *v, const char *path, const char *expected)
{
    tm_file_list files;
    TM_TRY(tm_file_list_read(path, &files, v->err));
    const char *wanted = expected ? expected : published_hash(&files);
    tm_status   st = TM_OK;
    for (size_t i = 0; i < files.count && st == TM_OK; i++)
        st = is_list(files.paths[i]) ? verify_list(v, files.paths[i]) : verify_size(v, files.paths[i]);
    if (st == TM_OK && wanted) {
        char found[TM_MD5_HEX];
        st = folder_hash(&files, found, v->err);
        if (st == TM_OK) compare(v, path, "directory md5", wanted, found);
    }
    tm_file_list_free(&files);
    return st;
}

tm_table *tm_data_verify_table(void)
{
    static const tm_column columns[] = {
        { "file", 0 }, { "check", 0 }, { "wanted", 0 }, { "found", 0 }, { "verdict", 0 }
    };
    tm_table *table = tm_table_create("verify");
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    return table;
}

/* PREFIX of PREFIX.idx and PREFIX.bin, an indexed data set. */
static tm_status verify_pair(verification *v, const char *prefix, const char *expected)
{
    static const char *const endings[] = { ".idx", ".bin" };
    if (expected)
        return tm_fail(v->err, TM_USAGE, "--expect is for one file or a directory; '%s' is two: name %s.bin", prefix,
                       prefix);
    for (int i = 0; i < 2; i++) {
        tm_text path = { 0 };
        tm_text_printf(&path, "%s%s", prefix, endings[i]);
        tm_status st = verify_file(v, path.data, NULL);
        tm_text_fini(&path);
        TM_TRY(st);
    }
    return TM_OK;
}

static bool is_prefix(const char *path)
{
    tm_text idx = { 0 };
    tm_text_printf(&idx, "%s.idx", path);
    bool found = !tm_file_exists(path) && tm_file_exists(idx.data);
    tm_text_fini(&idx);
    return found;
}

static tm_status verify_any(verification *v, const char *path, const char *expected)
{
    if (tm_is_folder(path)) return verify_folder(v, path, expected);
    return is_prefix(path) ? verify_pair(v, path, expected) : verify_file(v, path, expected);
}

tm_status tm_data_verify(const char *path, const char *expected, tm_table *out, bool *passed, tm_error *err)
{
    verification v = { .out = out, .passed = true, .err = err };
    TM_TRY(verify_any(&v, path, expected));
    *passed = v.passed;
    if (v.rows > 0) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "nothing is known of '%s' to compare with: no published size has its name and there is no list "
                   "*.md5; give --expect MD5",
                   path);
}
