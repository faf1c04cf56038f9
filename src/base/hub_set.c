/* SPDX-License-Identifier: Apache-2.0 */
/* base/hub_set.c - which files of a data set's snapshot are meant by its name alone: those of one directory and one
 * split, if there are no others. Splits are known as the package datasets knows them, by words in the names of files.
 */
#include "base/arena.h"
#include "base/hub.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { MOST_DEPTH = 16, MOST_GROUPS = 8 };

typedef struct {
    char  **files; /* paths in the snapshot */
    size_t  n, room;
    tm_text others; /* files that are not read, some of them */
} listing;

static bool ends_in(const char *name, const char *ending)
{
    size_t n = strlen(name), e = strlen(ending);
    return n > e && strcmp(name + n - e, ending) == 0;
}

static bool is_read(const char *name)
{
    static const char *const endings[] = { ".jsonl", ".json", ".ndjson", ".parquet", ".txt", ".npy" };
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        char packed[2][16];
        snprintf(packed[0], sizeof packed[0], "%s.gz", endings[i]);
        snprintf(packed[1], sizeof packed[1], "%s.zst", endings[i]);
        if (ends_in(name, endings[i]) || ends_in(name, packed[0]) || ends_in(name, packed[1])) return true;
    }
    return false;
}

/* What describes a set and is no part of it. */
static bool is_about(const char *name)
{
    static const char *const names[] = { "dataset_infos.json", "dataset_info.json", "state.json", "LICENSE",
                                         "LICENSE.txt",        "README.md" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return name[0] == '.' || ends_in(name, ".md") || ends_in(name, ".py");
}

static void list(const char *snapshot, const char *below, int depth, listing *out)
{
    tm_text path = { 0 };
    tm_text_printf(&path, "%s/%s", snapshot, below);
    DIR *folder = opendir(path.data);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        struct stat info;
        tm_text     inner = { 0 };
        if (entry->d_name[0] == '.' || is_about(entry->d_name)) continue;
        tm_text_printf(&inner, "%s%s%s", below, *below ? "/" : "", entry->d_name);
        path.length = 0;
        tm_text_printf(&path, "%s/%s", snapshot, inner.data);
        if (stat(path.data, &info) == 0 && S_ISDIR(info.st_mode)) {
            if (depth < MOST_DEPTH) list(snapshot, inner.data, depth + 1, out);
            tm_text_fini(&inner);
        } else if (is_read(entry->d_name)) {
            out->files = tm_grow(out->files, &out->room, out->n, sizeof *out->files);
            out->files[out->n++] = inner.data;
        } else {
            if (out->others.length < 120)
                tm_text_printf(&out->others, "%s%.80s", out->others.length ? ", " : "", inner.data);
            tm_text_fini(&inner);
        }
    }
    if (folder) closedir(folder);
    tm_text_fini(&path);
}

static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = text; *at; at++)
        if (strncasecmp(at, word, n) == 0 && (at == text || !isalnum((unsigned char)at[-1])) &&
            !isalnum((unsigned char)at[n]))
            return true;
    return false;
}

static const char *split_of(const char *file)
{
    static const struct {
        const char *word, *split;
    } words[] = { { "train", "train" },      { "training", "train" }, { "validation", "validation" },
                  { "valid", "validation" }, { "dev", "validation" }, { "val", "validation" },
                  { "test", "test" },        { "testing", "test" },   { "eval", "test" },
                  { "evaluation", "test" } };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (has_word(file, words[i].word)) return words[i].split;
    return "";
}

static size_t folder_length(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash ? (size_t)(slash - file) : 0;
}

static bool belong_together(const char *a, const char *b)
{
    size_t n = folder_length(a);
    return n == folder_length(b) && memcmp(a, b, n) == 0 && strcmp(split_of(a), split_of(b)) == 0;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the first file of each group and how many it has. Returns the number of groups. */
static int add_groups(const listing *all, const char *name, tm_text *out)
{
    int groups = 0;
    for (size_t i = 0; i < all->n; i++) {
        size_t before = 0, count = 0;
        for (size_t k = 0; k < all->n; k++) {
            bool with = belong_together(all->files[i], all->files[k]);
            before += with && k < i;
            count += with;
        }
        if (before || groups++ >= MOST_GROUPS) continue;
        tm_text_printf(out, "%s%s/%s (%zu file%s)", out->length ? ", " : "", name, all->files[i], count,
                       count == 1 ? "" : "s");
    }
    return groups;
}

tm_status tm_hub_choose(const char *name, tm_text *path, tm_error *err)
{
    listing   all = { 0 };
    tm_text   groups = { 0 };
    tm_status st = TM_OK;
    list(path->data, "", 0, &all);
    if (all.n > 1) qsort(all.files, all.n, sizeof *all.files, by_bytes);
    int n = add_groups(&all, name, &groups);
    if (n == 0)
        st = tm_fail(err, TM_UNSUPPORTED,
                     "the data set '%s' has no file that is read in '%s'%s%s: wanted .jsonl, .json, .parquet, .txt or "
                     ".npy, also as .gz or .zst",
                     name, path->data, all.others.length ? ", but " : "", all.others.length ? all.others.data : "");
    else if (n > 1)
        st = tm_fail(err, TM_INVALID,
                     "the data set '%s' has %d parts; name one, or a pattern of it (%s/DIR/train-*): %s", name, n, name,
                     groups.data);
    else if (all.n == 1)
        tm_text_printf(path, "/%s", all.files[0]);
    else if (folder_length(all.files[0]))
        tm_text_printf(path, "/%.*s", (int)folder_length(all.files[0]), all.files[0]);
    for (size_t i = 0; i < all.n; i++) free(all.files[i]);
    free(all.files);
    tm_text_fini(&all.others);
    tm_text_fini(&groups);
    return st;
}
