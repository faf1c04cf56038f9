/* SPDX-License-Identifier: Apache-2.0 */
/* data/pictures_parquet.c - parquet files with the pictures inside, as hubs of data sets ship them: a column `image`,
 * records of `bytes` and `path`, or plain bytes; and a column of captions. */
#include "base/map.h"
#include "data/captions.h"
#include "data/parquet.h"
#include "data/pictures_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A stored column, and where it is. */
typedef struct {
    tm_parquet *values; /* NULL: there is no such column */
    int64_t     next;   /* the row whose value comes next */
    size_t      group;  /* of rows, that was looked at last */
    int64_t     first;  /* row of it */
} cursor;

struct tm_picture_rows {
    const char       *path;
    tm_map            map;
    tm_parquet_leaves leaves;
    tm_parquet_chunks groups; /* of the pictures: `values` are rows */
    int64_t           rows;
    cursor            pictures, paths, captions;
};

void tm_picture_rows_close(tm_picture_rows *rows)
{
    if (!rows) return;
    tm_parquet_close(rows->pictures.values);
    tm_parquet_close(rows->paths.values);
    tm_parquet_close(rows->captions.values);
    tm_parquet_leaves_fini(&rows->leaves);
    free(rows->groups.data);
    tm_map_close(&rows->map);
    free(rows);
}

/* --- columns ---------------------------------------------------------------------------------------------------------
 */

/* Its groups must have as many rows as those of the pictures. */
static tm_status open_cursor(const tm_picture_rows *r, const tm_parquet_leaf *leaf, cursor *out, tm_error *err)
{
    tm_parquet_leaf   plain = *leaf;
    tm_parquet_chunks groups = { 0 };
    plain.out_of_form = false; /* one value a row: a record of texts is read as its members */
    tm_status st = tm_parquet_read_chunks(r->path, r->map.bytes, r->map.size, leaf->index, &groups, err);
    bool      same = st == TM_OK && groups.count == r->groups.count;
    for (size_t i = 0; same && i < groups.count; i++) same = groups.data[i].values == r->groups.data[i].values;
    free(groups.data);
    if (st == TM_OK && !same) return tm_parquet_damaged(r->path, "its columns are of different length", err);
    TM_TRY(st);
    return tm_parquet_parse_leaf(r->path, r->map.bytes, r->map.size, &plain, &out->values, err);
}

/* `image` as bytes, or as image.bytes and image.path. */
static tm_status find_pictures(tm_picture_rows *r, const char *column, tm_error *err)
{
    const tm_parquet_leaf *bytes = NULL, *path = NULL;
    for (size_t i = 0; i < r->leaves.count; i++) {
        const tm_parquet_leaf *leaf = &r->leaves.data[i];
        if (strcmp(leaf->column, column) != 0 || !leaf->text) continue;
        if (leaf->flat || strcmp(leaf->field, "bytes") == 0) bytes = leaf;
        if (strcmp(leaf->field, "path") == 0) path = leaf;
    }
    if (!bytes)
        return tm_fail(err, TM_UNSUPPORTED,
                       "'%s': column %s holds no pictures; wanted bytes, or records with a member bytes", r->path,
                       column);
    TM_TRY(tm_parquet_read_chunks(r->path, r->map.bytes, r->map.size, bytes->index, &r->groups, err));
    for (size_t i = 0; i < r->groups.count; i++) {
        if (r->groups.data[i].values > r->map.size - r->rows)
            return tm_parquet_damaged(r->path, "it has more rows than bytes", err);
        r->rows += r->groups.data[i].values;
    }
    if (path) TM_TRY(open_cursor(r, path, &r->paths, err));
    return open_cursor(r, bytes, &r->pictures, err);
}

static tm_status find_captions(tm_picture_rows *r, const char *column, tm_error *err)
{
    for (size_t i = 0; i < r->leaves.count; i++)
        if (strcmp(r->leaves.data[i].column, column) == 0 && r->leaves.data[i].flat && r->leaves.data[i].text)
            return open_cursor(r, &r->leaves.data[i], &r->captions, err);
    return tm_fail(err, TM_INVALID, "'%s': column %s holds no texts; say which one has the captions", r->path, column);
}

static tm_status find_columns(tm_picture_rows *r, const tm_picture_options *o, tm_error *err)
{
    TM_TRY(tm_parquet_read_leaves(r->path, r->map.bytes, r->map.size, &r->leaves, err));
    const char **names = tm_alloc((r->leaves.count + 1) * sizeof *names);
    size_t       n = 0, image = 0, caption = 0;
    for (size_t i = 0; i < r->leaves.count; i++)
        if (n == 0 || strcmp(names[n - 1], r->leaves.data[i].column) != 0) names[n++] = r->leaves.data[i].column;
    tm_error  none = { 0 };
    tm_status st = tm_named_column(r->path, names, n, o->file ? o->file : "image", "pictures", &image, err);
    if (st == TM_OK) st = find_pictures(r, names[image], err);
    /* Captions of all that have none: then there need be no column. */
    bool needed = o->caption || !o->otherwise;
    if (st == TM_OK) {
        tm_status found = tm_caption_column(r->path, names, n, o->caption, &caption, needed ? err : &none);
        if (found == TM_OK)
            st = find_captions(r, names[caption], err);
        else if (needed)
            st = found;
    }
    free(names);
    return st;
}

static tm_status open_rows(const char *path, const tm_picture_options *o, tm_picture_rows **out, tm_error *err)
{
    tm_picture_rows *r = *out = tm_alloc(sizeof *r);
    *r = (tm_picture_rows){ .path = path };
    TM_TRY(tm_map_open(path, &r->map, err));
    return find_columns(r, o, err);
}

/* --- values ----------------------------------------------------------------------------------------------------------
 */

/* The value of a row; what it points to is valid until the next. */
static tm_status value_at(const tm_picture_rows *r, cursor *c, int64_t row, tm_parquet_value *out, tm_error *err)
{
    const tm_parquet_chunk *groups = r->groups.data;
    bool                    more = true;
    if (row < c->first) c->group = 0, c->first = 0;
    while (row >= c->first + groups[c->group].values) c->first += groups[c->group++].values;
    if (row < c->next || c->first > c->next) {
        tm_parquet_seek(c->values, c->group);
        c->next = c->first;
    }
    int64_t next = c->next;
    c->next = INT64_MAX; /* after a failure: begin with the group again */
    do {
        TM_TRY(tm_parquet_next_value(c->values, out, &more, err));
        if (!more) return tm_parquet_damaged(r->path, "its columns are of different length", err);
    } while (next++ < row);
    c->next = next;
    return TM_OK;
}

/* Is the text UTF-8, and without a zero? */
static bool is_utf8(const tm_text *text)
{
    size_t n;
    for (size_t i = 0; i < text->length; i += n) {
        n = text->data[i] ? tm_utf8_length((const unsigned char *)text->data + i) : 0;
        if (n == 0) return false;
    }
    return true;
}

/* A row with its caption; the picture is looked at when it is read. */
static tm_status add_row(tm_pictures *p, tm_picture_rows *r, const char *path, const char *name, int64_t row,
                         tm_text *caption, tm_error *err)
{
    tm_parquet_value value = { 0 };
    char             where[512];
    snprintf(where, sizeof where, "'%.400s', row %lld,", path, (long long)row + 1);
    if (r->captions.values) TM_TRY(value_at(r, &r->captions, row, &value, err));
    caption->length = 0;
    tm_text_add_n(caption, value.text, value.text ? value.bytes : 0);
    if (!is_utf8(caption)) return tm_fail(err, TM_FORMAT, "%s has a caption that is not UTF-8", where);
    if (tm_pictures_lack(p, caption->data)) return tm_pictures_refuse(where, err);
    const tm_picture_item item = { .name = tm_arena_format(p->arena, "%s, row %lld", name, (long long)row + 1),
                                   .path = path,
                                   .bytes = -1,
                                   .row = row };
    tm_pictures_add(p, item, caption->data);
    return TM_OK;
}

tm_status tm_pictures_add_parquet(tm_pictures *p, const char *path, const char *name, tm_error *err)
{
    tm_picture_rows *r = NULL;
    tm_text          caption = { 0 };
    const char      *kept = tm_arena_text(p->arena, path);
    tm_status        st = open_rows(kept, &p->options, &r, err);
    for (int64_t row = 0; st == TM_OK && row < r->rows; row++) st = add_row(p, r, kept, name, row, &caption, err);
    if (st == TM_OK) p->content = tm_fingerprint(p->content, r->map.bytes, r->map.size);
    tm_text_fini(&caption);
    tm_picture_rows_close(r);
    return st;
}

tm_status tm_pictures_read_row(tm_pictures *p, const tm_picture_item *item, tm_text *out, tm_error *err)
{
    tm_parquet_value value = { 0 }, path = { 0 };
    if (!p->rows || strcmp(p->rows->path, item->path) != 0) {
        tm_picture_rows_close(p->rows);
        tm_status st = open_rows(item->path, &p->options, &p->rows, err);
        if (st != TM_OK) {
            tm_picture_rows_close(p->rows);
            p->rows = NULL;
            return st;
        }
    }
    tm_picture_rows *r = p->rows;
    TM_TRY(tm_map_check(&r->map, err));
    if (item->row >= r->rows)
        return tm_fail(err, TM_INVALID, "'%s' has fewer rows than it had; keep data unchanged", item->path);
    TM_TRY(value_at(r, &r->pictures, item->row, &value, err));
    tm_text_add_n(out, value.text, value.text ? value.bytes : 0);
    if (value.text) return TM_OK;
    if (r->paths.values) TM_TRY(value_at(r, &r->paths, item->row, &path, err));
    if (!path.text)
        return tm_fail(err, TM_FORMAT, "'%s', row %lld has no picture", item->path, (long long)item->row + 1);
    return tm_fail(err, TM_UNSUPPORTED,
                   "'%s', row %lld has no picture inside, only the path '%.*s'; write the file with the pictures "
                   "embedded (datasets: map(embed_table_storage), or push_to_hub)",
                   item->path, (long long)item->row + 1, (int)(path.bytes < 200 ? path.bytes : 200), path.text);
}
