/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/package_files.h"

#include "base/status.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool inside(const char *root, const char *path)
{
    size_t n = strlen(root);
    return strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == '\0' || (n > 0 && root[n - 1] == '/'));
}

package_entry package_look(const char *root, const char *path, const char *name, tm_arena *arena)
{
    package_entry e = { .name = name, .path = path, .kind = ENTRY_BROKEN };
    struct stat   info;
    char         *real = realpath(path, NULL);
    if (lstat(path, &info) != 0) {
        free(real);
        return e;
    }
    e.link = S_ISLNK(info.st_mode);
    if (real && !inside(root, real)) {
        e.kind = ENTRY_OUTSIDE;
    } else if (real && stat(real, &info) == 0) {
        e.kind = S_ISREG(info.st_mode) ? ENTRY_FILE : S_ISDIR(info.st_mode) ? ENTRY_FOLDER : ENTRY_OTHER;
        e.bytes = (long long)info.st_size;
        e.path = tm_arena_text(arena, real); /* read this one: nobody can turn it into a link between look and use */
    }
    free(real);
    return e;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const package_entry *)a)->name, ((const package_entry *)b)->name);
}

package_entry *package_list(const char *root, const char *path, tm_arena *arena, size_t *n)
{
    DIR           *dir = opendir(path);
    package_entry *entries = NULL, *out;
    size_t         room = 0;
    struct dirent *d;
    *n = 0;
    if (!dir) return NULL;
    while (*n <= PACKAGE_ENTRIES && (d = readdir(dir)) != NULL) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0) continue;
        entries = tm_grow(entries, &room, *n, sizeof *entries);
        const char *full = tm_arena_format(arena, "%s/%s", path, d->d_name);
        entries[(*n)++] = package_look(root, full, tm_arena_text(arena, d->d_name), arena);
    }
    closedir(dir);
    if (*n > 1) qsort(entries, *n, sizeof *entries, by_name);
    out = *n > PACKAGE_ENTRIES ? NULL : tm_arena_take(arena, (*n + 1) * sizeof *out);
    if (out && *n > 0) memcpy(out, entries, *n * sizeof *out);
    free(entries);
    return out;
}

/* --- repository --------------------------------------------------------------------------------------------------- */

static void check_entry(const package_entry *e, const char *shown, tm_notes *errors, tm_arena *arena)
{
    if (e->name[0] == '.') tm_notes_add(errors, arena, "%s: the name begins with '.'", shown);
    if (strchr(e->name, ' ')) tm_notes_add(errors, arena, "%s: the name has a space", shown);
    if (e->kind == ENTRY_BROKEN) tm_notes_add(errors, arena, "%s: a link that leads nowhere", shown);
    if (e->kind == ENTRY_OUTSIDE) tm_notes_add(errors, arena, "%s: a link that leads out of the package", shown);
    if (e->kind == ENTRY_FILE && e->bytes > PACKAGE_FILE_BYTES)
        tm_notes_add(errors, arena, "%s: %lld bytes, more than 50 MiB", shown, e->bytes);
}

static void walk(const char *root, const char *path, const char *shown, int depth, size_t *left, tm_notes *errors,
                 tm_arena *arena)
{
    size_t               n;
    const package_entry *entries = package_list(root, path, arena, &n);
    if (!entries) {
        tm_notes_add(errors, arena, "%s: cannot be read, or has more than %d entries", *shown ? shown : ".",
                     PACKAGE_ENTRIES);
        return;
    }
    for (size_t i = 0; *left > 0 && i < n; i++) {
        const char *name = tm_arena_format(arena, "%s%s%s", shown, *shown ? "/" : "", entries[i].name);
        if (--*left == 0) {
            tm_notes_add(errors, arena, "too many files: from %s on they were not checked", name);
            return;
        }
        check_entry(&entries[i], name, errors, arena);
        if (entries[i].kind != ENTRY_FOLDER || entries[i].link) continue;
        if (depth == PACKAGE_DEPTH)
            tm_notes_add(errors, arena, "%s: directories more than %d deep", name, PACKAGE_DEPTH);
        else
            walk(root, entries[i].path, name, depth + 1, left, errors, arena);
    }
}

void package_check_repository(const char *root, size_t most, tm_notes *errors, tm_arena *arena)
{
    size_t left = most + 1;
    walk(root, root, "", 0, &left, errors, arena);
}
