/* SPDX-License-Identifier: Apache-2.0 */
/* data/pictures.c - what lies at a path, its parts, and the list of one of them. */
#include "data/pictures.h"

#include "base/file.h"
#include "base/hash.h"
#include "data/pictures_list.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { MAX_PICTURE = 1 << 30 };

static bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(tm_file_name(path)), m = strlen(end);
    return n > m && strcasecmp(path + strlen(path) - m, end) == 0;
}

bool tm_is_picture_name(const char *path)
{
    return ends_in(path, ".png") || ends_in(path, ".jpg") || ends_in(path, ".jpeg") || ends_in(path, ".webp");
}

bool tm_is_parquet_name(const char *path)
{
    return ends_in(path, ".parquet");
}

bool tm_is_tar_name(const char *path)
{
    return ends_in(path, ".tar");
}

/* Files with many pictures inside. */
static bool is_packed(const char *path)
{
    return tm_is_parquet_name(path) || tm_is_tar_name(path);
}

bool tm_is_metadata_name(const char *path)
{
    const char *name = tm_file_name(path);
    return strcmp(name, "metadata.csv") == 0 || strcmp(name, "metadata.jsonl") == 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool tm_pictures_lack(const tm_pictures *p, const char *caption)
{
    while (caption && is_blank(*caption)) caption++;
    return (!caption || !*caption) && !p->options.otherwise;
}

tm_status tm_pictures_refuse(const char *where, tm_error *err)
{
    return tm_fail(err, TM_INVALID,
                   "%s has no caption; write one, remove the picture, or give a caption for all that have none", where);
}

void tm_pictures_add(tm_pictures *p, tm_picture_item item, const char *caption)
{
    const char *text = caption ? caption : "";
    while (is_blank(*text)) text++;
    size_t n = strlen(text);
    while (n > 0 && is_blank(text[n - 1])) n--;
    TM_ASSERT(n > 0 || p->options.otherwise);
    item.caption = n > 0 ? tm_arena_text_n(p->arena, text, n) : p->options.otherwise;
    p->items = tm_grow(p->items, &p->capacity, p->count, sizeof *p->items);
    p->items[p->count++] = item;
}

/* --- parts -----------------------------------------------------------------------------------------------------------
 */

/* The files that count, of one part. */
typedef struct {
    char **paths;
    size_t n;
    bool   pictures, parquet, tar; /* what is in them */
} selection;

/* Below the root: is a folder or file hidden? */
static bool is_hidden(const char *below)
{
    return *below == '.' || strstr(below, "/.") != NULL;
}

static bool is_data(const char *path)
{
    return tm_is_picture_name(path) || is_packed(path) || tm_is_metadata_name(path);
}

/* "train/1.png", "data/train-00000-of-00001.parquet": is it of the part `name`? */
static bool is_of(const char *below, const char *name)
{
    size_t n = strlen(name);
    if (strncmp(below, name, n) == 0 && below[n] == '/') return true;
    const char *file = tm_file_name(below);
    return is_packed(below) && strncmp(file, name, n) == 0 && strchr("-._", file[n]);
}

/* A file of this part that counts, or NULL. */
static const char *file_of(const tm_file_list *files, size_t root, const char *part)
{
    for (size_t i = 0; i < files->count; i++)
        if (is_of(files->paths[i] + root, part) && is_data(files->paths[i]) && !is_hidden(files->paths[i] + root))
            return files->paths[i];
    return NULL;
}

/* The files below a folder whose path has `root` - 1 bytes: of the part `wanted`, NULL: all. */
static tm_status choose(tm_pictures *p, const tm_file_list *files, size_t root, const char *wanted, selection *out,
                        tm_error *err)
{
    out->paths = tm_arena_take(p->arena, (files->count + 1) * sizeof *out->paths);
    for (size_t i = 0; i < files->count; i++) {
        char       *path = files->paths[i];
        const char *below = path + root;
        bool        of_part = is_of(below, "train") || is_of(below, "validation");
        if (wanted && !of_part && !is_hidden(below) && is_data(path) && !is_of(below, "test"))
            return tm_fail(err, TM_INVALID, "'%s' is not in train/, validation/ or test/; move it into one of these",
                           path);
        if (is_hidden(below) || (wanted && !of_part)) {
            p->ignored++;
            continue;
        }
        if (wanted && !is_of(below, wanted)) continue;
        out->pictures = out->pictures || tm_is_picture_name(path) || tm_is_metadata_name(path);
        out->parquet = out->parquet || tm_is_parquet_name(path);
        out->tar = out->tar || tm_is_tar_name(path);
        out->paths[out->n++] = path;
    }
    return TM_OK;
}

static tm_status add_packed(tm_pictures *p, const char *path, const char *name, tm_error *err)
{
    return (tm_is_tar_name(path) ? tm_pictures_add_tar : tm_pictures_add_parquet)(p, path, name, err);
}

static tm_status add_packed_files(tm_pictures *p, const selection *s, size_t root, tm_error *err)
{
    for (size_t i = 0; i < s->n; i++)
        if (is_packed(s->paths[i]))
            TM_TRY(add_packed(p, s->paths[i], s->paths[i] + root, err));
        else
            p->ignored++;
    return TM_OK;
}

static tm_status add_folder(tm_pictures *p, const char *path, const tm_file_list *files, bool *chosen, tm_error *err)
{
    const size_t root = strlen(path) + 1;
    const char  *train = file_of(files, root, "train"), *validation = file_of(files, root, "validation");
    selection    s = { 0 };
    if (validation && !train)
        return tm_fail(err, TM_INVALID, "'%s' is for validation, but there is no train/ beside it", validation);
    if (validation && p->options.held_out > 0)
        return tm_fail(err, TM_INVALID,
                       "'%s' is for validation, and %lld pictures are to be held out; leave one of both out",
                       validation, (long long)p->options.held_out);
    *chosen = validation && p->options.split == TM_SPLIT_VALIDATION;
    TM_TRY(choose(p, files, root, *chosen ? "validation" : train ? "train" : NULL, &s, err));
    if (s.pictures + s.parquet + s.tar > 1)
        return tm_fail(err, TM_INVALID, "'%s' has pictures%s%s%s; leave one of these there", path,
                       s.pictures ? " as files" : "", s.parquet ? s.pictures ? " and in parquet" : " in parquet" : "",
                       s.tar ? " and in tar archives" : "");
    if (s.parquet || s.tar) return add_packed_files(p, &s, root, err);
    if (s.pictures) return tm_pictures_add_files(p, path, s.paths, s.n, err);
    p->ignored += (int64_t)s.n;
    return TM_OK;
}

/* Keeps one part of a list that is not in parts: picture floor((k + 1/2) n / held_out) is the k-th that is held out. */
static tm_status hold_out(tm_pictures *p, const char *path, tm_error *err)
{
    const int64_t n = (int64_t)p->count, k = p->options.held_out;
    const bool    validation = p->options.split == TM_SPLIT_VALIDATION;
    if (k >= n)
        return tm_fail(err, TM_INVALID, "'%s' has %lld pictures, and %lld are to be held out; at most %lld can be",
                       path, (long long)n, (long long)k, (long long)n - 1);
    size_t kept = 0;
    for (int64_t i = 0, next = 0; i < n; i++) {
        bool held = next < k && i == (2 * next + 1) * n / (2 * k);
        next += held;
        if (held == validation) p->items[kept++] = p->items[i];
    }
    p->count = kept;
    return TM_OK;
}

/* --- opening ---------------------------------------------------------------------------------------------------------
 */

static int by_name(const void *a, const void *b)
{
    const tm_picture_item *x = a, *y = b;
    int                    order = strcmp(x->path, y->path);
    if (order) return order;
    return x->row != y->row ? (x->row > y->row) - (x->row < y->row) : (x->at > y->at) - (x->at < y->at);
}

/* *chosen: what was added is the part that is wanted; else it is all that is there. */
static tm_status open_path(tm_pictures *p, const char *path, bool *chosen, tm_error *err)
{
    tm_file_list files = { 0 };
    struct stat  info;
    *chosen = false;
    if (stat(path, &info) != 0)
        return tm_fail(err, TM_INVALID, "cannot reach '%s'; wanted a folder of pictures, or .parquet or .tar", path);
    if (!S_ISDIR(info.st_mode)) {
        if (is_packed(path)) return add_packed(p, path, tm_file_name(path), err);
        return tm_fail(err, TM_INVALID,
                       "'%s' is neither a folder of pictures nor a parquet file (.parquet) or tar archive (.tar)",
                       path);
    }
    TM_TRY(tm_file_list_read(path, &files, err));
    tm_status st = add_folder(p, path, &files, chosen, err);
    tm_file_list_free(&files);
    return st;
}

static tm_status fill(tm_pictures *p, const char *path, tm_error *err)
{
    bool chosen;
    TM_TRY(open_path(p, path, &chosen, err));
    if (p->count > 1) qsort(p->items, p->count, sizeof *p->items, by_name);
    if (p->count == 0)
        return tm_fail(
            err, TM_INVALID,
            "'%s' has no pictures; wanted .png, .jpg, .jpeg or .webp with captions, or .parquet or .tar files", path);
    if (p->options.held_out > 0) return hold_out(p, path, err);
    if (p->options.split == TM_SPLIT_VALIDATION && !chosen) p->count = 0;
    return TM_OK;
}

static const char *copied(tm_arena *arena, const char *text)
{
    return text ? tm_arena_text(arena, text) : NULL;
}

tm_status tm_pictures_open(const char *path, const tm_picture_options *options, tm_pictures **out, tm_error *err)
{
    tm_pictures *p = tm_alloc(sizeof *p);
    *p = (tm_pictures){ .arena = tm_arena_create(), .options = *options };
    p->options.file = copied(p->arena, options->file);
    p->options.caption = copied(p->arena, options->caption);
    p->options.otherwise = copied(p->arena, options->otherwise);
    char *plain = tm_arena_text(p->arena, path);
    for (size_t n = strlen(plain); n > 1 && plain[n - 1] == '/'; n--) plain[n - 1] = '\0';
    tm_status st = fill(p, plain, err);
    if (st == TM_OK)
        *out = p;
    else
        tm_pictures_close(p);
    return st;
}

void tm_pictures_close(tm_pictures *pictures)
{
    if (!pictures) return;
    tm_picture_rows_close(pictures->rows);
    tm_map_close(&pictures->tar);
    free(pictures->items);
    tm_arena_destroy(pictures->arena);
    free(pictures);
}

/* --- the list --------------------------------------------------------------------------------------------------------
 */

int64_t tm_pictures_count(const tm_pictures *pictures)
{
    return (int64_t)pictures->count;
}

tm_picture tm_pictures_at(const tm_pictures *pictures, int64_t i)
{
    TM_ASSERT(i >= 0 && i < (int64_t)pictures->count);
    return (tm_picture){ pictures->items[i].name, pictures->items[i].caption };
}

int64_t tm_pictures_ignored(const tm_pictures *pictures)
{
    return pictures->ignored;
}

uint64_t tm_pictures_hash(const tm_pictures *pictures)
{
    tm_hasher *hasher = tm_hasher_create();
    for (size_t i = 0; i < pictures->count; i++) {
        const tm_picture_item *item = &pictures->items[i];
        uint8_t                bytes[8];
        for (int k = 0; k < 8; k++) bytes[k] = (uint8_t)((uint64_t)item->bytes >> 8 * k);
        tm_hasher_add(hasher, item->name, strlen(item->name) + 1);
        tm_hasher_add(hasher, item->caption, strlen(item->caption) + 1);
        tm_hasher_add(hasher, bytes, sizeof bytes);
    }
    for (int k = 0; k < 8; k++) tm_hasher_add(hasher, (uint8_t[]){ (uint8_t)(pictures->content >> 8 * k) }, 1);
    uint64_t value = tm_hasher_value(hasher);
    tm_hasher_destroy(hasher);
    return value;
}

tm_status tm_pictures_read(tm_pictures *pictures, int64_t i, tm_text *out, tm_error *err)
{
    TM_ASSERT(i >= 0 && i < (int64_t)pictures->count);
    const tm_picture_item *item = &pictures->items[i];
    out->length = 0;
    if (item->bytes < 0) return tm_pictures_read_row(pictures, item, out, err);
    if (item->at > 0) return tm_pictures_read_member(pictures, item, out, err);
    TM_TRY(tm_file_read(item->path, MAX_PICTURE, out, err));
    if ((int64_t)out->length == item->bytes) return TM_OK;
    return tm_fail(err, TM_INVALID, "'%s' had %lld bytes and now has %zu; keep data unchanged", item->path,
                   (long long)item->bytes, out->length);
}

tm_status tm_pictures_values(tm_pictures *pictures, int64_t i, const tm_image_fit *fit, tm_text *scratch, float *out,
                             tm_error *err)
{
    const char      *name = tm_pictures_at(pictures, i).name;
    tm_image         picture = { 0 }, fitted = { 0 };
    tm_image_placing placing;
    TM_TRY(tm_pictures_read(pictures, i, scratch, err));
    TM_TRY(tm_image_decode(name, scratch->data, scratch->length, &picture, err));
    tm_status st = tm_image_place(name, fit, (tm_image_size){ picture.width, picture.height }, 0, &placing, err);
    if (st == TM_OK) tm_image_apply(&picture, fit, &placing, &fitted);
    if (st == TM_OK) tm_image_to_values(&fitted, out);
    tm_image_fini(&picture);
    tm_image_fini(&fitted);
    return st;
}
