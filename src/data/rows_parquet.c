/* SPDX-License-Identifier: Apache-2.0 */
#include "data/rows_parquet.h"

#include "base/arena.h"
#include "base/text.h"
#include "data/parquet.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A stored column being read, one value ahead of the row. */
typedef struct {
    const tm_parquet_leaf *leaf;
    tm_parquet            *values;
    bool                   begun, more;
    int                    repetition, definition; /* of the value ahead */
    json_t                *ahead;
} reader;

struct tm_parquet_rows {
    char             *name;
    tm_parquet_leaves leaves;
    reader           *readers;
    size_t            count;
    int64_t           row;
};

static bool is_wanted(const char *column, const char *const *wanted, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(column, wanted[i]) == 0) return true;
    return false;
}

static tm_status open_readers(tm_parquet_rows *r, const uint8_t *bytes, int64_t size, const char *const *wanted,
                              size_t n, tm_error *err)
{
    TM_TRY(tm_parquet_read_leaves(r->name, bytes, size, &r->leaves, err));
    r->readers = tm_alloc((r->leaves.count + 1) * sizeof *r->readers);
    for (size_t i = 0; i < r->leaves.count; i++) {
        const tm_parquet_leaf *leaf = &r->leaves.data[i];
        if (!leaf->text || leaf->out_of_form || !is_wanted(leaf->column, wanted, n)) continue;
        reader *next = &r->readers[r->count];
        *next = (reader){ .leaf = leaf };
        TM_TRY(tm_parquet_parse_leaf(r->name, bytes, size, leaf, &next->values, err));
        r->count++;
    }
    if (r->count > 0) return TM_OK;
    return tm_fail(err, TM_INVALID, "'%s': none of its columns (%.300s) is one of texts that is looked for", r->name,
                   r->leaves.names.data ? r->leaves.names.data : "none");
}

tm_status tm_parquet_rows_open(const char *name, const uint8_t *bytes, int64_t size, const char *const *wanted,
                               size_t n, tm_parquet_rows **out, tm_error *err)
{
    tm_parquet_rows *r = tm_alloc(sizeof *r);
    *r = (tm_parquet_rows){ .name = strcpy(tm_alloc(strlen(name) + 1), name) };
    tm_status st = open_readers(r, bytes, size, wanted, n, err);
    if (st == TM_OK)
        *out = r;
    else
        tm_parquet_rows_close(r);
    return st;
}

void tm_parquet_rows_close(tm_parquet_rows *rows)
{
    if (!rows) return;
    for (size_t i = 0; i < rows->count; i++) {
        tm_parquet_close(rows->readers[i].values);
        json_decref(rows->readers[i].ahead);
    }
    free(rows->readers);
    tm_parquet_leaves_fini(&rows->leaves);
    free(rows->name);
    free(rows);
}

static tm_status read_ahead(tm_parquet_rows *r, reader *from, tm_error *err)
{
    tm_parquet_value value;
    json_decref(from->ahead);
    from->ahead = NULL;
    TM_TRY(tm_parquet_next_value(from->values, &value, &from->more, err));
    if (!from->more) return TM_OK;
    from->repetition = value.repetition;
    from->definition = value.definition;
    from->ahead = value.text ? json_stringn(value.text, value.bytes) : json_null();
    if (from->ahead) return TM_OK;
    return tm_fail(err, TM_FORMAT, "'%s', row %lld: column '%s' is not UTF-8", r->name, (long long)r->row,
                   from->leaf->column);
}

static tm_status disagree(const tm_parquet_rows *r, const reader *from, tm_error *err)
{
    return tm_fail(err, TM_FORMAT, "'%s', row %lld: column '%s' and the others are of different length", r->name,
                   (long long)r->row, from->leaf->column);
}

/* The elements of a list of this row, into `list`: texts, or a member of each record. */
static tm_status read_list(tm_parquet_rows *r, reader *from, json_t *list, bool first, tm_error *err)
{
    size_t i = 0;
    do {
        if (from->definition >= from->leaf->list) { /* else the list is empty, or there is none */
            if (!*from->leaf->member) {
                json_array_append(list, from->ahead);
            } else {
                if (first) json_array_append_new(list, json_object());
                if (i >= json_array_size(list)) return disagree(r, from, err);
                json_object_set(json_array_get(list, i), from->leaf->member, from->ahead);
            }
            i++;
        }
        TM_TRY(read_ahead(r, from, err));
    } while (from->more && from->repetition > 0);
    return i == json_array_size(list) ? TM_OK : disagree(r, from, err);
}

/* Of all readers of a column the first makes its value. */
static tm_status read_column(tm_parquet_rows *r, reader *from, json_t *row, tm_error *err)
{
    json_t *there = json_object_get(row, from->leaf->column);
    if (from->leaf->list == 0) {
        json_object_set(row, from->leaf->column, from->ahead);
        return read_ahead(r, from, err);
    }
    bool first = !there;
    if (first) json_object_set_new(row, from->leaf->column, there = json_array());
    return json_is_array(there) ? read_list(r, from, there, first, err) : disagree(r, from, err);
}

tm_status tm_parquet_rows_next(tm_parquet_rows *rows, json_t **row, tm_error *err)
{
    tm_status st = TM_OK;
    rows->row++;
    *row = json_object();
    for (size_t i = 0; i < rows->count && st == TM_OK; i++) {
        reader *from = &rows->readers[i];
        if (!from->begun) st = read_ahead(rows, from, err);
        from->begun = true;
        if (st == TM_OK && from->more && from->repetition > 0) st = disagree(rows, from, err);
        if (st == TM_OK && from->more != rows->readers[0].more && i > 0) st = disagree(rows, from, err);
    }
    bool more = st == TM_OK && rows->readers[0].more;
    for (size_t i = 0; i < rows->count && more && st == TM_OK; i++)
        st = read_column(rows, &rows->readers[i], *row, err);
    if (st == TM_OK && more) return TM_OK;
    json_decref(*row);
    *row = NULL;
    return st;
}
