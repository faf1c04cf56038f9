/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_list.h"

#include "base/arena.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *tm_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool tm_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static tm_status add_all(const char *folder, int depth, tm_file_list *out, tm_error *err);

static tm_status add(const char *path, int depth, tm_file_list *out, tm_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0) return tm_fail(err, TM_INVALID, "cannot reach '%s': %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) return add_all(path, depth + 1, out, err);
    if (!S_ISREG(info.st_mode))
        return tm_fail(err, TM_INVALID, "'%s' is neither a regular file nor a directory; remove it", path);
    if (out->count == TM_FILE_LIST_MAX)
        return tm_fail(err, TM_INVALID, "more than %d files, the last of them '%s'", TM_FILE_LIST_MAX, path);
    out->paths = tm_grow(out->paths, &out->room, out->count, sizeof *out->paths);
    out->paths[out->count] = tm_alloc(strlen(path) + 1);
    strcpy(out->paths[out->count++], path);
    return TM_OK;
}

static tm_status add_all(const char *folder, int depth, tm_file_list *out, tm_error *err)
{
    if (depth > TM_FILE_LIST_DEPTH)
        return tm_fail(err, TM_INVALID, "directory '%s' is more than %d levels deep, or a loop of links", folder,
                       TM_FILE_LIST_DEPTH);
    DIR *dir = opendir(folder);
    if (!dir) return tm_fail(err, TM_INVALID, "cannot read directory '%s': %s", folder, strerror(errno));
    tm_status st = TM_OK;
    for (const struct dirent *entry; st == TM_OK && (entry = readdir(dir));) {
        tm_text path = { 0 };
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        tm_text_printf(&path, "%s/%s", folder, entry->d_name);
        st = add(path.data, depth, out, err);
        tm_text_fini(&path);
    }
    closedir(dir);
    return st;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

tm_status tm_file_list_read(const char *folder, tm_file_list *out, tm_error *err)
{
    tm_text root = { 0 };
    *out = (tm_file_list){ 0 };
    tm_text_add(&root, folder);
    while (root.length > 1 && root.data[root.length - 1] == '/') root.data[--root.length] = '\0';
    tm_status st = add_all(root.data, 0, out, err);
    tm_text_fini(&root);
    if (st != TM_OK)
        tm_file_list_free(out);
    else if (out->count > 0)
        qsort(out->paths, out->count, sizeof *out->paths, by_bytes);
    return st;
}

void tm_file_list_free(tm_file_list *list)
{
    for (size_t i = 0; i < list->count; i++) free(list->paths[i]);
    free(list->paths);
    *list = (tm_file_list){ 0 };
}
