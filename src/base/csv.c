/* SPDX-License-Identifier: Apache-2.0 */
#include "base/csv.h"

#include <string.h>

void tm_csv_add(tm_text *out, const char *cell, bool first)
{
    if (!first) tm_text_add_n(out, ",", 1);
    if (!strpbrk(cell, ",\"\r\n")) {
        tm_text_add(out, cell);
        return;
    }
    tm_text_add_n(out, "\"", 1);
    for (const char *c = cell; *c; c++) tm_text_add_n(out, *c == '"' ? "\"\"" : c, *c == '"' ? 2 : 1);
    tm_text_add_n(out, "\"", 1);
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
        c = read_cell(c, storage);
        tm_text_add_n(storage, "", 1);
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
