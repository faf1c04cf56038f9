/* SPDX-License-Identifier: Apache-2.0 */
/* data/parquet_footer.c - the footer (FileMetaData) and its length are the end of the file, "PAR1".
 *
 * FileMetaData   2 schema: list of {1 type, 3 repetition, 4 name, 5 children}, depth first; 4 row groups: {1 columns}
 * ColumnChunk    1 file, 3 {1 type, 4 codec, 5 values, 7 bytes, 9 first data page, 11 dictionary page}
 *
 * A list is a group with a repeated group of one child, its element: `tags.list.element`, `talk.list.element.role`,
 * `talk.list.element.content.list.element.text`. Older writers leave the element out.
 */
#include "data/parquet_footer.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { BYTE_ARRAY = 6, REQUIRED = 0, REPEATED = 2, MAX_DEPTH = 32, MAX_NAME = 1024 };

tm_status tm_parquet_damaged(const char *name, const char *what, tm_error *err)
{
    return tm_fail(err, TM_FORMAT, "'%s' is not a parquet file, or damaged: %s", name, what);
}

tm_status tm_parquet_refuse(const char *name, const char *what, long long which, tm_error *err)
{
    return tm_fail(err, TM_UNSUPPORTED, "'%s': %s %lld of parquet is not supported", name, what, which);
}

tm_status tm_parquet_refuse_codec(const char *name, int64_t codec, tm_error *err)
{
    static const char *const names[] = { [3] = "LZO", [4] = "Brotli", [5] = "LZ4 of Hadoop", [7] = "LZ4_RAW" };
    if (codec < 0 || codec >= (int64_t)(sizeof names / sizeof names[0]) || !names[codec])
        return tm_parquet_refuse(name, "codec", codec, err);
    return tm_fail(err, TM_UNSUPPORTED,
                   "'%s': the column is compressed with %s (codec %lld), which is not read; write it uncompressed or "
                   "with snappy, gzip or zstd (pyarrow: write_table(read_table(...), ..., compression=\"zstd\"))",
                   name, names[codec], (long long)codec);
}

tm_status tm_parquet_refuse_encoding(const char *name, int64_t encoding, tm_error *err)
{
    static const char *const names[] = { [3] = "RLE",
                                         [4] = "BIT_PACKED",
                                         [5] = "DELTA_BINARY_PACKED",
                                         [7] = "DELTA_BYTE_ARRAY",
                                         [9] = "BYTE_STREAM_SPLIT" };
    if (encoding < 0 || encoding >= (int64_t)(sizeof names / sizeof names[0]) || !names[encoding])
        return tm_parquet_refuse(name, "encoding", encoding, err);
    return tm_fail(err, TM_UNSUPPORTED,
                   "'%s': the column is encoded as %s (encoding %lld), which is not read for texts; write it as PLAIN, "
                   "with a dictionary or as DELTA_LENGTH_BYTE_ARRAY (pyarrow: write_table(read_table(...), ...))",
                   name, names[encoding], (long long)encoding);
}

tm_thrift tm_thrift_inner(const tm_thrift *t)
{
    return (tm_thrift){ .at = t->at, .end = t->end, .bad = t->bad };
}

void tm_thrift_leave(tm_thrift *t, const tm_thrift *inner)
{
    t->at = inner->at;
    t->bad = inner->bad;
}

static tm_status find_footer(const char *name, const uint8_t *bytes, int64_t size, tm_thrift *out, tm_error *err)
{
    if (size < 12 || memcmp(bytes, "PAR1", 4) != 0 || memcmp(bytes + size - 4, "PAR1", 4) != 0)
        return tm_parquet_damaged(name, "no PAR1 at both ends", err);
    const uint8_t *tail = bytes + size - 8;
    int64_t        n =
        (int64_t)((uint32_t)tail[0] | (uint32_t)tail[1] << 8 | (uint32_t)tail[2] << 16 | (uint32_t)tail[3] << 24);
    if (n > size - 12) return tm_parquet_damaged(name, "its footer is longer than it", err);
    *out = (tm_thrift){ .at = tail - n, .end = tail };
    return TM_OK;
}

/* --- the schema --------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t     type, repetition, children;
    const char *name;
    size_t      name_bytes;
} element;

static element read_element(tm_thrift *t)
{
    element   e = { .type = -1, .name = "" };
    tm_thrift in = tm_thrift_inner(t);
    while (tm_thrift_next(&in)) {
        if (in.field == 1 && in.kind == TM_THRIFT_I32)
            e.type = tm_thrift_number(&in);
        else if (in.field == 3 && in.kind == TM_THRIFT_I32)
            e.repetition = tm_thrift_number(&in);
        else if (in.field == 4 && in.kind == TM_THRIFT_BINARY)
            e.name = (const char *)tm_thrift_binary(&in, &e.name_bytes);
        else if (in.field == 5 && in.kind == TM_THRIFT_I32)
            e.children = tm_thrift_number(&in);
        else
            tm_thrift_skip(&in);
    }
    tm_thrift_leave(t, &in);
    if (!e.name) e = (element){ .type = -1, .name = "" };
    return e;
}

/* What is known of a group that is being read. */
typedef struct {
    int64_t left; /* children still to come */
    int     definition, repetition, list;
    int     below;    /* groups below the list's repeated one; -1: no list yet */
    bool    siblings; /* the repeated group has several children: it is the record itself */
    element group;    /* its name */
    element member;   /* below a list in a list: what the inner one is called, or without a name */
    int     parts;    /* below a list in a list: definition level of the inner one */
} level;

static char *copy_name(const element *e)
{
    if (!e->name) return strcpy(tm_alloc(1), "");
    char *name = tm_alloc(e->name_bytes + 1);
    memcpy(name, e->name, e->name_bytes);
    name[e->name_bytes] = '\0';
    return name;
}

static void add_leaf(tm_parquet_leaves *out, const element *e, const level *at, int depth, const char *top)
{
    bool          record = at->below > 0 || at->siblings; /* the leaf is a member of the list's element */
    bool          nested = at->repetition == 2 && record && at->member.name;
    const element nothing = { 0 };
    out->data = tm_grow(out->data, &out->capacity, out->count, sizeof *out->data);
    out->data[out->count] = (tm_parquet_leaf){
        .column = strcpy(tm_alloc(strlen(top) + 1), top),
        .member = copy_name(nested   ? &at->member
                            : record ? e
                                     : &nothing),
        .part = copy_name(nested ? e : &nothing),
        .field = copy_name(depth == 2 && at->repetition == 0 ? e : &nothing),
        .index = (int)out->count,
        .flat = depth == 1 && at->repetition == 0,
        .text = e->type == BYTE_ARRAY,
        .definition = at->definition,
        .repetition = at->repetition,
        .list = at->list,
        .parts = at->parts,
        .out_of_form = (at->repetition > 1 && !nested) || at->below > 1 || (depth > 1 && at->repetition == 0),
    };
    out->count++;
}

/* Levels of what lies below `e`, which lies in `in`. */
static level enter(const level *in, const element *e)
{
    level at = *in;
    at.left = e->children;
    at.definition += e->repetition != REQUIRED;
    at.siblings = at.siblings && in->below >= 0;
    at.group = *e;
    if (e->repetition == REPEATED) {
        at.repetition++;
        if (at.repetition == 1) at.list = at.definition;
        if (at.repetition == 2) at.parts = at.definition;
        at.member = at.repetition == 2 && in->below == (in->siblings ? 1 : 2) ? in->group : (element){ 0 };
        at.below = 0;
        at.siblings = e->children > 1;
    } else if (at.below >= 0) {
        at.below++;
    }
    return at;
}

static tm_status read_schema(const char *name, tm_thrift *t, tm_parquet_leaves *out, tm_error *err)
{
    int    kind, depth = 0;
    size_t n = tm_thrift_list(t, &kind);
    level  stack[MAX_DEPTH] = { { .left = 0, .below = -1 } };
    char  *top = NULL;
    if (kind != TM_THRIFT_STRUCT || n == 0) return tm_parquet_damaged(name, "no schema", err);
    stack[0].left = read_element(t).children; /* the root */
    tm_status st = TM_OK;
    for (size_t i = 1; i < n && !t->bad && st == TM_OK; i++) {
        element e = read_element(t);
        while (depth > 0 && stack[depth].left == 0) depth--;
        if (e.name_bytes > MAX_NAME || e.children < 0 || e.children > (int64_t)n || stack[depth].left <= 0 ||
            depth + 2 >= MAX_DEPTH) {
            st = tm_parquet_damaged(name, "a wrong schema", err);
            break;
        }
        stack[depth].left--;
        if (depth == 0) {
            free(top);
            top = copy_name(&e);
            tm_text_printf(&out->names, "%s%.60s", out->names.length ? ", " : "", top);
        }
        level inside = enter(&stack[depth], &e);
        depth++;
        if (e.children > 0) {
            stack[depth] = inside;
        } else {
            if (e.repetition == REPEATED) inside.siblings = false;
            if (e.repetition != REPEATED && inside.below > 0) inside.below--; /* a leaf is no group */
            add_leaf(out, &e, &inside, depth, top);
            depth--;
        }
    }
    free(top);
    return st;
}

tm_status tm_parquet_read_leaves(const char *name, const uint8_t *bytes, int64_t size, tm_parquet_leaves *out,
                                 tm_error *err)
{
    tm_thrift t;
    TM_TRY(find_footer(name, bytes, size, &t, err));
    while (tm_thrift_next(&t)) {
        if (t.field == 2 && t.kind == TM_THRIFT_LIST)
            TM_TRY(read_schema(name, &t, out, err));
        else
            tm_thrift_skip(&t);
    }
    return t.bad ? tm_parquet_damaged(name, "its footer is truncated", err) : TM_OK;
}

void tm_parquet_leaves_fini(tm_parquet_leaves *leaves)
{
    for (size_t i = 0; i < leaves->count; i++) {
        free(leaves->data[i].column);
        free(leaves->data[i].member);
        free(leaves->data[i].part);
        free(leaves->data[i].field);
    }
    free(leaves->data);
    tm_text_fini(&leaves->names);
    *leaves = (tm_parquet_leaves){ 0 };
}

/* --- row groups --------------------------------------------------------------------------------------------------- */

static tm_status read_chunk(const char *name, int64_t size, tm_thrift *t, tm_parquet_chunks *out, tm_error *err)
{
    tm_parquet_chunk c = { .codec = -1 };
    int64_t          first = -1, dictionary = 0;
    tm_thrift        in = tm_thrift_inner(t), meta = { 0 };
    while (tm_thrift_next(&in)) {
        if (in.field == 1 && in.kind == TM_THRIFT_BINARY)
            return tm_parquet_refuse(name, "a column in another file, field", 1, err);
        if (in.field != 3 || in.kind != TM_THRIFT_STRUCT) {
            tm_thrift_skip(&in);
            continue;
        }
        meta = tm_thrift_inner(&in);
        while (tm_thrift_next(&meta)) {
            int64_t *to = meta.field == 4    ? &c.codec
                          : meta.field == 5  ? &c.values
                          : meta.field == 7  ? &c.bytes
                          : meta.field == 9  ? &first
                          : meta.field == 11 ? &dictionary
                                             : NULL;
            if (to && (meta.kind == TM_THRIFT_I64 || meta.kind == TM_THRIFT_I32))
                *to = tm_thrift_number(&meta);
            else
                tm_thrift_skip(&meta);
        }
        tm_thrift_leave(&in, &meta);
    }
    tm_thrift_leave(t, &in);
    c.begin = dictionary > 0 && dictionary < first ? dictionary : first;
    if (t->bad) return tm_parquet_damaged(name, "a column is truncated", err);
    if (c.values == 0) c.begin = 4, c.bytes = 0; /* a row group without rows: it may name no place */
    if (c.begin < 4 || c.bytes < 0 || c.bytes > size - c.begin || c.values < 0)
        return tm_parquet_damaged(name, "a column lies outside of it", err);
    if (c.codec != TM_PARQUET_UNCOMPRESSED && c.codec != TM_PARQUET_SNAPPY && c.codec != TM_PARQUET_GZIP &&
        c.codec != TM_PARQUET_ZSTD)
        return tm_parquet_refuse_codec(name, c.codec, err);
    out->data = tm_grow(out->data, &out->capacity, out->count, sizeof *out->data);
    out->data[out->count++] = c;
    return TM_OK;
}

static tm_status read_groups(const char *name, int64_t size, tm_thrift *t, int64_t column, tm_parquet_chunks *out,
                             tm_error *err)
{
    int    kind;
    size_t n = tm_thrift_list(t, &kind);
    if (kind != TM_THRIFT_STRUCT && n > 0) return tm_parquet_damaged(name, "no row groups", err);
    for (size_t i = 0; i < n && !t->bad; i++) {
        tm_thrift in = tm_thrift_inner(t);
        bool      found = false;
        int64_t   rows = 0;
        while (tm_thrift_next(&in)) {
            if (in.field == 3 && in.kind == TM_THRIFT_I64) {
                rows = tm_thrift_number(&in);
                continue;
            }
            if (in.field != 1 || in.kind != TM_THRIFT_LIST) {
                tm_thrift_skip(&in);
                continue;
            }
            size_t columns = tm_thrift_list(&in, &kind);
            for (size_t k = 0; k < columns && !in.bad; k++) {
                if ((int64_t)k == column && kind == TM_THRIFT_STRUCT)
                    TM_TRY(read_chunk(name, size, &in, out, err));
                else
                    tm_thrift_skip_kind(&in, kind);
            }
            found = column < (int64_t)columns;
        }
        tm_thrift_leave(t, &in);
        if (!found && !t->bad) return tm_parquet_damaged(name, "a row group lacks the column", err);
        if (found && rows != 0 && out->count > 0 && out->data[out->count - 1].values == 0)
            return tm_parquet_damaged(name, "a column has no values of its rows", err);
    }
    return TM_OK;
}

tm_status tm_parquet_read_chunks(const char *name, const uint8_t *bytes, int64_t size, int64_t index,
                                 tm_parquet_chunks *out, tm_error *err)
{
    tm_thrift t;
    bool      groups = false;
    TM_TRY(find_footer(name, bytes, size, &t, err));
    while (tm_thrift_next(&t)) {
        if (t.field == 4 && t.kind == TM_THRIFT_LIST) {
            TM_TRY(read_groups(name, size, &t, index, out, err));
            groups = true;
        } else {
            tm_thrift_skip(&t);
        }
    }
    if (t.bad) return tm_parquet_damaged(name, "its footer is truncated", err);
    return groups ? TM_OK : tm_parquet_damaged(name, "no row groups", err);
}
