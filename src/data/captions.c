/* SPDX-License-Identifier: Apache-2.0 */
#include "data/captions.h"

#include "base/json_input.h"
#include "base/text.h"
#include "data/rows.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 256, NONE = -1 };

/* --- columns ---------------------------------------------------------------------------------------------------------
 */

static int find(const char *const *columns, size_t n, const char *wanted)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(columns[i], wanted) == 0) return (int)i;
    return NONE;
}

static tm_status no_column(const char *name, const char *const *columns, size_t n, const char *wanted, const char *what,
                           tm_error *err)
{
    tm_text there = { 0 };
    for (size_t i = 0; i < n && there.length < 300; i++) tm_text_printf(&there, "%s%.60s", i ? ", " : "", columns[i]);
    tm_status st = tm_fail(err, TM_INVALID, "'%s' has no column %s of %s; it has %s", name, wanted, what,
                           there.length ? there.data : "none");
    tm_text_fini(&there);
    return st;
}

tm_status tm_named_column(const char *name, const char *const *columns, size_t n, const char *wanted, const char *what,
                          size_t *out, tm_error *err)
{
    int at = find(columns, n, wanted);
    if (at == NONE) return no_column(name, columns, n, wanted, what, err);
    *out = (size_t)at;
    return TM_OK;
}

tm_status tm_caption_column(const char *name, const char *const *columns, size_t n, const char *wanted, size_t *out,
                            tm_error *err)
{
    if (wanted) return tm_named_column(name, columns, n, wanted, "captions", out, err);
    int text = find(columns, n, "text"), caption = find(columns, n, "caption");
    if (text == NONE && caption == NONE) return no_column(name, columns, n, "text or caption", "captions", err);
    if (text != NONE && caption != NONE)
        return tm_fail(err, TM_INVALID, "'%s' has a column text and a column caption; say which one has the captions",
                       name);
    *out = (size_t)(text != NONE ? text : caption);
    return TM_OK;
}

static tm_status add(tm_captions *out, tm_arena *arena, const char *name, int64_t line, const char *file,
                     const char *caption, tm_error *err)
{
    if (!*file) return tm_fail(err, TM_FORMAT, "'%s', line %lld: a row without a file name", name, (long long)line);
    out->rows = tm_grow(out->rows, &out->capacity, out->count, sizeof *out->rows);
    out->rows[out->count++] = (tm_caption){ tm_arena_text(arena, file), tm_arena_text(arena, caption), line };
    return TM_OK;
}

/* --- CSV -------------------------------------------------------------------------------------------------------------
 */

/* A record: its cells, one behind the other in `room`, and where it begins. */
typedef struct {
    const char *name, *at, *end;
    int64_t     line, next_line;
    tm_text     room;
    size_t      offsets[MAX_COLUMNS], n;
} table;

static tm_status wrong(const table *c, const char *what, tm_error *err)
{
    return tm_fail(err, TM_FORMAT, "'%s', line %lld: %s", c->name, (long long)c->next_line, what);
}

static bool at_line_end(const table *c)
{
    return c->at == c->end || *c->at == '\n' || (*c->at == '\r' && (c->at + 1 == c->end || c->at[1] == '\n'));
}

static tm_status read_quoted(table *c, tm_error *err)
{
    for (c->at++;; c->at++) {
        if (c->at == c->end)
            return tm_fail(err, TM_FORMAT, "'%s', line %lld: a quoted cell of this row does not end", c->name,
                           (long long)c->line);
        if (*c->at == '"') {
            c->at++;
            if (c->at == c->end || *c->at != '"') break; /* else two of them stand for one */
        }
        c->next_line += *c->at == '\n';
        tm_text_add_n(&c->room, c->at, 1);
    }
    if (at_line_end(c) || *c->at == ',') return TM_OK;
    return wrong(c, "text behind the closing quote of a cell; a quote inside is written twice", err);
}

static tm_status read_cell(table *c, tm_error *err)
{
    if (c->n == MAX_COLUMNS) return wrong(c, "more than 256 cells", err);
    c->offsets[c->n++] = c->room.length;
    if (c->at < c->end && *c->at == '"') {
        TM_TRY(read_quoted(c, err));
    } else {
        const char *from = c->at;
        while (!at_line_end(c) && *c->at != ',') c->at++;
        tm_text_add_n(&c->room, from, (size_t)(c->at - from));
    }
    tm_text_add_n(&c->room, "", 1);
    return TM_OK;
}

/* The next record that is no empty line; n is 0 behind the last. */
static tm_status read_record(table *c, tm_error *err)
{
    c->n = 0;
    c->room.length = 0;
    while (c->at < c->end && at_line_end(c)) {
        c->next_line += *c->at == '\n';
        c->at++;
    }
    c->line = c->next_line;
    if (c->at == c->end) return TM_OK;
    for (;;) {
        TM_TRY(read_cell(c, err));
        if (at_line_end(c)) break;
        c->at++; /* the comma */
    }
    for (size_t i = 0, length; i + 1 < c->room.length; i += length) {
        length = c->room.data[i] ? tm_utf8_length((const unsigned char *)c->room.data + i) : 1;
        if (!length) return tm_fail(err, TM_FORMAT, "'%s', line %lld: not UTF-8", c->name, (long long)c->line);
    }
    return TM_OK;
}

static tm_status read_csv(table *c, const char *file, const char *caption, tm_arena *arena, tm_captions *out,
                          tm_error *err)
{
    const char *names[MAX_COLUMNS];
    size_t      of_file = 0, of_caption = 0;
    TM_TRY(read_record(c, err));
    const size_t n = c->n;
    for (size_t i = 0; i < n; i++) names[i] = tm_arena_text(arena, c->room.data + c->offsets[i]);
    TM_TRY(tm_named_column(c->name, names, n, file, "file names", &of_file, err));
    TM_TRY(tm_caption_column(c->name, names, n, caption, &of_caption, err));
    for (;;) {
        TM_TRY(read_record(c, err));
        if (c->n == 0) return TM_OK;
        if (c->n != n)
            return tm_fail(err, TM_FORMAT,
                           "'%s', line %lld: %zu cells, the first line has %zu; a cell with a comma is put in quotes",
                           c->name, (long long)c->line, c->n, n);
        TM_TRY(add(out, arena, c->name, c->line, c->room.data + c->offsets[of_file],
                   c->room.data + c->offsets[of_caption], err));
    }
}

static tm_status parse_csv(const char *name, const char *bytes, size_t size, const char *file, const char *caption,
                           tm_arena *arena, tm_captions *out, tm_error *err)
{
    table c = { .name = name, .at = bytes, .end = bytes + size, .next_line = 1 };
    if (memchr(bytes, '\0', size))
        return tm_fail(err, TM_FORMAT, "'%s' has a zero byte in it; wanted comma-separated text in UTF-8", name);
    if (size >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0) c.at += 3;
    tm_status st = read_csv(&c, file, caption, arena, out, err);
    tm_text_fini(&c.room);
    return st;
}

/* --- JSON lines ------------------------------------------------------------------------------------------------------
 */

/* The text of a member; "" where it is null or not there. */
static tm_status read_text(const char *place, const json_t *row, const char *member, const char **out, tm_error *err)
{
    const json_t *value = json_object_get(row, member);
    *out = "";
    if (!value || json_is_null(value)) return TM_OK;
    if (!json_is_string(value)) return tm_fail(err, TM_FORMAT, "%s: %s is no text", place, member);
    const char *problem = tm_json_text_problem(value, false);
    if (problem) return tm_fail(err, TM_FORMAT, "%s: %s %s", place, member, problem);
    *out = json_string_value(value);
    return TM_OK;
}

/* The columns are those of the first row; of others a member may be left out. */
static tm_status find_members(const char *name, json_t *row, const char *file, const char *caption,
                              const char **of_caption, tm_arena *arena, tm_error *err)
{
    const char *names[MAX_COLUMNS], *key;
    json_t     *value;
    size_t      n = 0, at = 0;
    json_object_foreach(row, key, value)
    {
        if (n < MAX_COLUMNS) names[n++] = key;
    }
    TM_TRY(tm_named_column(name, names, n, file, "file names", &at, err));
    TM_TRY(tm_caption_column(name, names, n, caption, &at, err));
    *of_caption = tm_arena_text(arena, names[at]);
    return TM_OK;
}

static tm_status parse_lines(const char *name, const char *bytes, size_t size, const char *file, const char *caption,
                             tm_arena *arena, tm_captions *out, tm_error *err)
{
    tm_rows    *rows = NULL;
    json_t     *row = NULL;
    const char *of_caption = NULL;
    tm_status   st = tm_rows_parse(name, (const uint8_t *)bytes, size, NULL, 0, &rows, err);
    while (st == TM_OK && (st = tm_rows_next(rows, &row, err)) == TM_OK && row) {
        const char *place = tm_rows_place(rows), *named = "", *text = "";
        if (!of_caption) st = find_members(name, row, file, caption, &of_caption, arena, err);
        if (st == TM_OK) st = read_text(place, row, file, &named, err);
        if (st == TM_OK) st = read_text(place, row, of_caption, &text, err);
        if (st == TM_OK) st = add(out, arena, name, tm_rows_number(rows), named, text, err);
        json_decref(row);
    }
    tm_rows_close(rows);
    return st;
}

tm_status tm_captions_parse(const char *name, const char *bytes, size_t size, bool csv, const char *file,
                            const char *caption, tm_arena *arena, tm_captions *out, tm_error *err)
{
    const char *of_file = file ? file : "file_name";
    size_t      before = out->count;
    TM_TRY((csv ? parse_csv : parse_lines)(name, bytes, size, of_file, caption, arena, out, err));
    if (out->count > before) return TM_OK;
    return tm_fail(err, TM_INVALID, "'%s' has no rows; wanted a file name and a caption for each picture", name);
}
