/* SPDX-License-Identifier: Apache-2.0 */
/* data/pictures_files.c - pictures as files, and their captions: rows of metadata files, or texts beside them. */
#include "base/file.h"
#include "data/captions.h"
#include "data/pictures_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_METADATA = 1 << 30, MAX_CAPTION = 1 << 20 };

/* What is known of a file. */
typedef struct {
    const char *caption; /* of a row; NULL: none names it */
    const char *place;   /* the row that does */
    const char *user;    /* of a text: the picture whose caption it is */
} fact;

typedef struct {
    tm_pictures *list;
    const char  *root;
    char *const *files; /* in the order of their bytes */
    size_t       n;
    fact        *facts;    /* a fact for each file */
    bool         metadata; /* is there any? */
} folder;

/* The number of a file, or n. */
static size_t find(const folder *f, const char *path)
{
    size_t low = 0, high = f->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int    order = strcmp(f->files[middle], path);
        if (order == 0) return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return f->n;
}

/* "cats/1.png" of "photos/metadata.csv" is "photos/cats/1.png"; NULL: it leads out of the folder. */
static const char *path_of_row(const folder *f, const char *metadata, const char *file)
{
    while (strncmp(file, "./", 2) == 0) file += 2;
    if (*file == '/') return NULL;
    for (const char *part = file; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || !part[2])) return NULL;
    }
    return tm_arena_format(f->list->arena, "%.*s%s", (int)(tm_file_name(metadata) - metadata), metadata, file);
}

static tm_status take_row(folder *f, const char *metadata, const tm_caption *row, tm_error *err)
{
    const char *place = tm_arena_format(f->list->arena, "'%s', line %lld", metadata, (long long)row->line);
    const char *path = path_of_row(f, metadata, row->file);
    if (!path)
        return tm_fail(err, TM_INVALID, "%s: '%s' leads out of the folder of the metadata file; move the picture there",
                       place, row->file);
    size_t at = find(f, path);
    if (at == f->n)
        return tm_fail(err, TM_INVALID, "%s: there is no file '%s'; remove the row, or bring the picture", place, path);
    fact *known = &f->facts[at];
    if (known->place)
        return tm_fail(err, TM_INVALID, "%s: '%s' has a caption already, of %s; remove one of both", place, row->file,
                       known->place);
    *known = (fact){ .caption = row->caption, .place = place };
    return TM_OK;
}

static tm_status read_metadata(folder *f, const char *path, tm_error *err)
{
    const bool  csv = strcmp(tm_file_name(path), "metadata.csv") == 0;
    const char *sibling = tm_arena_format(f->list->arena, "%.*smetadata.jsonl", (int)(tm_file_name(path) - path), path);
    tm_text     bytes = { 0 };
    tm_captions rows = { 0 };
    if (csv && find(f, sibling) < f->n)
        return tm_fail(err, TM_INVALID, "there are '%s' and '%s'; remove one of both", path, sibling);
    f->metadata = true;
    tm_status st = tm_file_read(path, MAX_METADATA, &bytes, err);
    if (st == TM_OK)
        st = tm_captions_parse(path, bytes.data, bytes.length, csv, f->list->options.file, f->list->options.caption,
                               f->list->arena, &rows, err);
    for (size_t i = 0; i < rows.count && st == TM_OK; i++) st = take_row(f, path, &rows.rows[i], err);
    free(rows.rows);
    tm_text_fini(&bytes);
    return st;
}

static tm_status read_text(const char *path, tm_text *out, tm_error *err)
{
    TM_TRY(tm_file_read(path, MAX_CAPTION, out, err));
    if (out->length >= 3 && memcmp(out->data, "\xEF\xBB\xBF", 3) == 0) {
        memmove(out->data, out->data + 3, out->length - 2);
        out->length -= 3;
    }
    for (size_t i = 0, n; i < out->length; i += n) {
        n = out->data[i] ? tm_utf8_length((const unsigned char *)out->data + i) : 0;
        if (!n) return tm_fail(err, TM_FORMAT, "'%s' is not UTF-8 (byte %zu); save it as UTF-8", path, i);
    }
    return TM_OK;
}

static tm_status no_caption(const folder *f, const char *path, const fact *known, bool beside, const char *text,
                            tm_error *err)
{
    tm_text where = { 0 };
    tm_text_printf(&where, "'%s' (", path);
    if (known->place)
        tm_text_printf(&where, "%s)", known->place);
    else if (beside)
        tm_text_printf(&where, "'%s' is empty)", text);
    else if (f->metadata)
        tm_text_printf(&where, "no metadata file names it)");
    else
        tm_text_printf(&where, "there is no '%s')", text);
    tm_status st = tm_pictures_refuse(where.data, err);
    tm_text_fini(&where);
    return st;
}

/* `text` is the file beside it whose name has another ending: name.txt of name.png. */
static tm_status add_picture(folder *f, const char *path, const fact *known, const char *text, tm_text *caption,
                             tm_error *err)
{
    const size_t beside = find(f, text);
    struct stat  info;
    if (stat(path, &info) != 0) return tm_fail(err, TM_INVALID, "cannot reach '%s': %s", path, strerror(errno));
    if (beside < f->n && known->place)
        return tm_fail(err, TM_INVALID, "'%s' has two captions, of %s and of '%s'; remove one of both", path,
                       known->place, text);
    if (beside < f->n && f->facts[beside].user)
        return tm_fail(err, TM_INVALID, "'%s' and '%s' would have the same caption, '%s'; rename one of both",
                       f->facts[beside].user, path, text);
    if (beside < f->n) {
        f->facts[beside].user = path;
        TM_TRY(read_text(text, caption, err));
    }
    const char *words = known->place ? known->caption : caption->data;
    if (tm_pictures_lack(f->list, words)) return no_caption(f, path, known, beside < f->n, text, err);
    const char           *kept = tm_arena_text(f->list->arena, path);
    const tm_picture_item item = { .name = kept + strlen(f->root) + 1, .path = kept, .bytes = (int64_t)info.st_size };
    tm_pictures_add(f->list, item, words);
    return TM_OK;
}

static tm_status add_file(folder *f, size_t at, tm_error *err)
{
    tm_text     text = { 0 }, caption = { 0 };
    const char *path = f->files[at], *dot = strrchr(tm_file_name(path), '.');
    tm_text_printf(&text, "%.*s.txt", (int)(dot ? dot - path : (ptrdiff_t)strlen(path)), path);
    tm_status st = add_picture(f, path, &f->facts[at], text.data, &caption, err);
    tm_text_fini(&text);
    tm_text_fini(&caption);
    return st;
}

tm_status tm_pictures_add_files(tm_pictures *p, const char *root, char *const *files, size_t n, tm_error *err)
{
    folder f = { .list = p, .root = root, .files = files, .n = n };
    f.facts = tm_arena_take(p->arena, (n + 1) * sizeof *f.facts);
    for (size_t i = 0; i < n; i++)
        if (tm_is_metadata_name(files[i])) TM_TRY(read_metadata(&f, files[i], err));
    for (size_t i = 0; i < n; i++)
        if (tm_is_picture_name(files[i]) || f.facts[i].place) TM_TRY(add_file(&f, i, err));
    for (size_t i = 0; i < n; i++)
        p->ignored +=
            !tm_is_picture_name(files[i]) && !f.facts[i].place && !f.facts[i].user && !tm_is_metadata_name(files[i]);
    return TM_OK;
}
