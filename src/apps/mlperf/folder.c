/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/folder.c - the logs of a folder: result_N.txt and result_N.txt.gz. */
#include "apps/mlperf/log.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* N of result_N.txt; -1 where that is no number of at most 9 digits. */
static int64_t number_of(const char *name)
{
    const char *digits = name + strlen("result_");
    size_t      n = strspn(digits, "0123456789");
    return n > 0 && n < 10 && strcmp(digits + n, ".txt") == 0 ? strtoll(digits, NULL, 10) : -1;
}

/* "result_*.txt" with or without ".gz"; *stem is the length without it. */
static bool is_log(const char *name, size_t *stem)
{
    size_t n = strlen(name);
    if (n > 3 && strcmp(name + n - 3, ".gz") == 0) n -= 3;
    *stem = n;
    return n >= strlen("result_.txt") && strncmp(name, "result_", 7) == 0 && strncmp(name + n - 4, ".txt", 4) == 0;
}

static int compare(const void *a, const void *b)
{
    const tm_mllog_file *x = a, *y = b;
    if ((x->number < 0) != (y->number < 0)) return x->number < 0 ? 1 : -1;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return strcmp(x->name, y->name);
}

static tm_status collect(DIR *dir, const char *path, tm_mllog_folder *out, tm_error *err)
{
    size_t         room = 0, stem;
    struct dirent *entry;
    for (errno = 0; (entry = readdir(dir)) != NULL; errno = 0) {
        if (!is_log(entry->d_name, &stem)) continue;
        if (out->n == TM_MLLOG_MAX_FILES)
            return tm_fail(err, TM_INVALID, "'%s' has more than %d logs; a result has 10", path, TM_MLLOG_MAX_FILES);
        out->files = tm_grow(out->files, &room, out->n, sizeof *out->files);
        tm_text full = { 0 }, name = { 0 };
        tm_text_printf(&full, "%s/%s", path, entry->d_name);
        tm_text_add_n(&name, entry->d_name, stem);
        out->files[out->n++] = (tm_mllog_file){ .path = full.data, .name = name.data, .number = number_of(name.data) };
    }
    return errno ? tm_fail(err, TM_INVALID, "cannot read the directory '%s': %s", path, strerror(errno)) : TM_OK;
}

tm_status tm_mllog_folder_list(const char *path, tm_mllog_folder *out, tm_error *err)
{
    *out = (tm_mllog_folder){ 0 };
    DIR *dir = opendir(path);
    if (!dir) return tm_fail(err, TM_INVALID, "cannot open the directory '%s': %s", path, strerror(errno));
    tm_status st = collect(dir, path, out, err);
    closedir(dir);
    if (st != TM_OK) return st;
    if (out->n > 1) qsort(out->files, out->n, sizeof *out->files, compare);
    for (size_t i = 1; i < out->n; i++)
        if (strcmp(out->files[i - 1].name, out->files[i].name) == 0)
            return tm_fail(err, TM_INVALID, "'%s' has both %s and %s.gz: which one counts? Move one away", path,
                           out->files[i].name, out->files[i].name);
    return TM_OK;
}

void tm_mllog_folder_fini(tm_mllog_folder *folder)
{
    for (size_t i = 0; i < folder->n; i++) {
        free(folder->files[i].path);
        free(folder->files[i].name);
    }
    free(folder->files);
    *folder = (tm_mllog_folder){ 0 };
}
