/* SPDX-License-Identifier: Apache-2.0 */
#include "base/csv.h"

#include "base/plain.h"

#include <stdlib.h>
#include <string.h>

static const char formula_starts[] = "=+-@\t\r";

/* Would a spreadsheet compute it? Numbers may have a sign. */
static bool is_formula(const char *cell)
{
    char *end;
    if (!*cell || !strchr(formula_starts, *cell) || !cell[1]) return false;
    (void)strtod(cell, &end);
    return *end != '\0';
}

static void add_quoted(tm_text *out, const char *cell)
{
    if (!strpbrk(cell, ",\"\r\n")) {
        tm_text_add(out, cell);
        return;
    }
    tm_text_add_n(out, "\"", 1);
    for (const char *c = cell; *c; c++) tm_text_add_n(out, *c == '"' ? "\"\"" : c, *c == '"' ? 2 : 1);
    tm_text_add_n(out, "\"", 1);
}

void tm_csv_add(tm_text *out, const char *cell, bool first)
{
    tm_text plain = { 0 };
    if (!first) tm_text_add_n(out, ",", 1);
    if (is_formula(cell)) tm_text_add_n(&plain, "'", 1);
    tm_plain_add(&plain, cell, TM_PLAIN_LINES);
    add_quoted(out, plain.data);
    tm_text_fini(&plain);
}

/* Takes back what tm_csv_add puts in front of a formula. */
static void strip_mark(tm_text *storage, size_t from)
{
    char *cell = storage->data + from;
    if (cell[0] != '\'' || !cell[1] || !strchr(formula_starts, cell[1])) return;
    memmove(cell, cell + 1, storage->length - from);
    storage->length--;
}

/* Appends one cell; returns the separator or end behind it. */
static const char *read_cell(const char *c, tm_text *storage)
{
    if (*c != '"') {
        size_t n = strcspn(c, ",\r\n");
        tm_text_add_n(storage, c, n);
        return c + n;
    }
    for (c++; *c; c++) {
        if (*c == '"' && *++c != '"') return c; /* the closing quote; "" inside stands for one */
        tm_text_add_n(storage, c, 1);
    }
    return c;
}

size_t tm_csv_read(const char **cursor, tm_text *storage, size_t *offsets, size_t max)
{
    const char *c = *cursor;
    size_t      count = 0;
    storage->length = 0;
    while (*c) {
        if (count < max) offsets[count] = storage->length;
        count++;
        size_t from = storage->length;
        c = read_cell(c, storage);
        tm_text_add_n(storage, "", 1);
        strip_mark(storage, from);
        if (*c != ',') break;
        c++;
        if (!*c) { /* a comma ends the text: one more, empty cell */
            if (count < max) offsets[count] = storage->length;
            tm_text_add_n(storage, "", 1);
            count++;
        }
    }
    while (*c && *c != '\n') c++;
    *cursor = c + (*c == '\n');
    return count;
}
