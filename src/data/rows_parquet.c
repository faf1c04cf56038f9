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
    bool                   refused;                /* a value of it would be lost: there must be none */
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

/* Has this column messages, or (NULL) any? */
static bool has_messages(const tm_parquet_leaves *leaves, const char *column)
{
    for (size_t i = 0; i < leaves->count; i++)
        if ((!column || strcmp(leaves->data[i].column, column) == 0) &&
            (strcmp(leaves->data[i].member, "role") == 0 || strcmp(leaves->data[i].member, "from") == 0))
            return true;
    return false;
}

/* Does this member of a message say whether it is learned? */
static bool says_what_is_learned(const char *member)
{
    static const char *const members[] = { "weight", "loss", "loss_scale", "train" };
    return is_wanted(member, members, sizeof members / sizeof members[0]);
}

/* A text of a message's content that is a list of parts. */
static bool is_of_parts(const tm_parquet_leaf *leaf)
{
    return leaf->text && !leaf->out_of_form && *leaf->part && strcmp(leaf->member, "content") == 0;
}

/* Values that are not read and matter: other lists and records within messages (calls of tools) and of tools, and what
 * a message counts. */
static bool must_be_empty(const tm_parquet_leaves *leaves, const tm_parquet_leaf *leaf)
{
    if (strcmp(leaf->column, "tools") == 0)
        return has_messages(leaves, NULL) && (!leaf->text || leaf->out_of_form || leaf->repetition > 0);
    return has_messages(leaves, leaf->column) && (leaf->out_of_form || (leaf->repetition > 1 && !is_of_parts(leaf)) ||
                                                  (!leaf->text && says_what_is_learned(leaf->member)));
}

static tm_status open_readers(tm_parquet_rows *r, const uint8_t *bytes, int64_t size, const char *const *wanted,
                              size_t n, tm_error *err)
{
    TM_TRY(tm_parquet_read_leaves(r->name, bytes, size, &r->leaves, err));
    size_t texts = 0;
    r->readers = tm_alloc((r->leaves.count + 1) * sizeof *r->readers);
    for (size_t i = 0; i < r->leaves.count; i++) {
        const tm_parquet_leaf *leaf = &r->leaves.data[i];
        bool                   refused = must_be_empty(&r->leaves, leaf);
        bool                   read = leaf->text ? !leaf->out_of_form && (leaf->repetition < 2 || is_of_parts(leaf))
                                                 : leaf->flat; /* that a number is there, too */
        if (!is_wanted(leaf->column, wanted, n) || (!read && !refused)) continue;
        reader *next = &r->readers[r->count];
        *next = (reader){ .leaf = leaf, .refused = refused };
        texts += leaf->text && !refused;
        TM_TRY(tm_parquet_parse_leaf(r->name, bytes, size, leaf, &next->values, err));
        r->count++;
    }
    for (size_t i = 1; i < r->count; i++)
        for (size_t k = 0; k < i; k++)
            if (r->readers[i].leaf->flat && r->readers[k].leaf->flat &&
                strcmp(r->readers[i].leaf->column, r->readers[k].leaf->column) == 0)
                return tm_fail(err, TM_INVALID, "'%s' has two columns '%s'; leave one out", r->name,
                               r->readers[i].leaf->column);
    if (texts > 0) return TM_OK;
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
    from->ahead = !value.text         ? json_null()
                  : !from->leaf->text ? json_integer(0) /* some number: whoever wants a text says so */
                                      : json_stringn(value.text, value.bytes);
    if (from->ahead) return TM_OK;
    return tm_fail(err, TM_FORMAT, "'%s', row %lld: column '%s' is not UTF-8", r->name, (long long)r->row,
                   from->leaf->column);
}

static tm_status disagree(const tm_parquet_rows *r, const reader *from, tm_error *err)
{
    return tm_fail(err, TM_FORMAT, "'%s', row %lld: column '%s' and the others are of different length", r->name,
                   (long long)r->row, from->leaf->column);
}

/* The values of this row, of which there must be none. */
static tm_status pass_over(tm_parquet_rows *r, reader *from, tm_error *err)
{
    do {
        if (from->definition >= from->leaf->definition)
            return tm_fail(
                err, TM_UNSUPPORTED,
                "'%s', row %lld: column '%s' has '%s', which is not read from parquet: of messages only texts "
                "are; leave it out, or give the rows as JSON lines",
                r->name, (long long)r->row, from->leaf->column,
                *from->leaf->part     ? from->leaf->part
                : *from->leaf->member ? from->leaf->member
                                      : "lists in lists");
        TM_TRY(read_ahead(r, from, err));
    } while (from->more && from->repetition > 0);
    return TM_OK;
}

/* The member of a record that is a list of records, one member of each of these: the first stored column of it makes
 * the list, which is null or empty where there is none, or nothing in it. */
static tm_status read_part(tm_parquet_rows *r, const reader *from, json_t *record, size_t *n, bool *made, tm_error *err)
{
    const tm_parquet_leaf *leaf = from->leaf;
    if (from->repetition < 2) {
        *n = 0;
        *made = !json_object_get(record, leaf->member);
        if (*made)
            json_object_set_new(record, leaf->member, from->definition < leaf->parts - 1 ? json_null() : json_array());
    }
    json_t *parts = json_object_get(record, leaf->member);
    if (from->definition < leaf->parts) return TM_OK;
    if (*made && json_array_size(parts) == *n) json_array_append_new(parts, json_object());
    if (!json_is_object(json_array_get(parts, *n))) return disagree(r, from, err);
    json_object_set(json_array_get(parts, (*n)++), leaf->part, from->ahead);
    return TM_OK;
}

/* The elements of a list of this row, into `list`: texts, or a member of each record. */
static tm_status read_list(tm_parquet_rows *r, reader *from, json_t *list, bool first, tm_error *err)
{
    size_t i = 0, n_parts = 0;
    bool   made = false;
    do {
        if (from->definition >= from->leaf->list) { /* else the list is empty, or there is none */
            i += from->repetition < 2;
            if (first && *from->leaf->member && from->repetition < 2) json_array_append_new(list, json_object());
            if (!*from->leaf->member)
                json_array_append(list, from->ahead);
            else if (i == 0 || i > json_array_size(list))
                return disagree(r, from, err);
            else if (*from->leaf->part)
                TM_TRY(read_part(r, from, json_array_get(list, i - 1), &n_parts, &made, err));
            else
                json_object_set(json_array_get(list, i - 1), from->leaf->member, from->ahead);
        }
        TM_TRY(read_ahead(r, from, err));
    } while (from->more && from->repetition > 0);
    return i == json_array_size(list) ? TM_OK : disagree(r, from, err);
}

/* Of all readers of a column the first makes its value. */
static tm_status read_column(tm_parquet_rows *r, reader *from, json_t *row, tm_error *err)
{
    if (from->refused) return pass_over(r, from, err);
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
