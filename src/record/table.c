/* SPDX-License-Identifier: Apache-2.0 */
#include "record/table.h"

#include "base/arena.h"
#include "base/csv.h"
#include "base/file.h"
#include "base/json.h"
#include "base/terminal.h"
#include "record/table_cell.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static const struct {
    const char     *extension;
    tm_table_format format;
} formats[] = { { ".md", TM_TABLE_MARKDOWN },
                { ".csv", TM_TABLE_CSV },
                { ".tsv", TM_TABLE_TSV },
                { ".json", TM_TABLE_JSON },
                { ".jsonl", TM_TABLE_JSONL } };

static bool is_compressed(const char *path, size_t *length)
{
    size_t n = strlen(path);
    bool   gz = n > 3 && strcmp(path + n - 3, ".gz") == 0;
    *length = gz ? n - 3 : n;
    return gz;
}

tm_status tm_table_format_of(const char *path, tm_table_format *format, tm_error *err)
{
    size_t length;
    is_compressed(path, &length);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        size_t n = strlen(formats[i].extension);
        if (length > n && strncmp(path + length - n, formats[i].extension, n) == 0) {
            *format = formats[i].format;
            return TM_OK;
        }
    }
    return tm_fail(err, TM_USAGE,
                   "%s: the extension decides the format; wanted: .md, .csv, .tsv, .json or .jsonl, "
                   "each also with .gz",
                   path);
}

const char *table_cell_text(const tm_cell *cell, int digits, char buffer[64])
{
    switch (cell->kind) {
    case TM_CELL_EMPTY:
        return "";
    case TM_CELL_TEXT:
        return cell->text;
    case TM_CELL_BOOL:
        return cell->truth ? "true" : "false";
    case TM_CELL_I64:
        snprintf(buffer, 64, "%lld", (long long)cell->i64);
        return buffer;
    case TM_CELL_F64:
        break;
    }
    if (digits < 0) return tm_format_double(buffer, cell->f64);
    snprintf(buffer, 64, "%.*g", digits, cell->f64);
    /* No exponents for what people compare by eye: 12345.6 at 4 digits is 12346, not 1.235e+04. */
    if (strchr(buffer, 'e') && cell->f64 < 1e15 && cell->f64 > -1e15 && (cell->f64 >= 1 || cell->f64 <= -1))
        snprintf(buffer, 64, "%.0f", cell->f64);
    return buffer;
}

size_t table_cell_width(const char *text)
{
    size_t n = tm_terminal_cells(text);
    for (; *text; text++) n += *text == '|';
    return n;
}

static size_t width_of(const tm_table *table, size_t column)
{
    char   buffer[64];
    size_t width = strlen(tm_table_column_at(table, column)->name);
    for (size_t row = 0; row < tm_table_n_rows(table); row++) {
        const char *text =
            table_cell_text(tm_table_cell(table, row, column), tm_table_column_at(table, column)->digits, buffer);
        size_t n = table_cell_width(text);
        if (n > width) width = n;
    }
    return width;
}

void table_add_padded(tm_text *out, const char *text, size_t width, bool right)
{
    size_t n = table_cell_width(text);
    int    pad = n < width ? (int)(width - n) : 0;
    if (right)
        tm_text_printf(out, " %*s", pad, "");
    else
        tm_text_add(out, " ");
    for (; *text; text++) {
        if (*text == '|') tm_text_add(out, "\\");
        tm_text_add_n(out, *text == '\n' ? " " : text, 1);
    }
    if (!right) tm_text_printf(out, "%*s", pad, "");
    tm_text_add(out, " |");
}

static bool is_numeric(const tm_table *table, size_t column)
{
    for (size_t row = 0; row < tm_table_n_rows(table); row++)
        if (tm_table_cell(table, row, column)->kind == TM_CELL_TEXT) return false;
    return true;
}

static const char *people_text(const tm_table *table, size_t row, size_t column, char buffer[64])
{
    return table_cell_text(tm_table_cell(table, row, column), tm_table_column_at(table, column)->digits, buffer);
}

/* How a column is printed. */
typedef struct {
    size_t index, width; /* index: of the table */
    bool   right;
} print_as;

/* These n columns. */
static void print_columns(const tm_table *table, const print_as *columns, size_t n, tm_text *out)
{
    tm_text_add(out, "|");
    for (size_t i = 0; i < n; i++)
        table_add_padded(out, tm_table_column_at(table, columns[i].index)->name, columns[i].width, columns[i].right);
    tm_text_add(out, "\n|");
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < columns[i].width + (columns[i].right ? 1 : 2); k++) tm_text_add(out, "-");
        tm_text_add(out, columns[i].right ? ":|" : "|");
    }
    tm_text_add(out, "\n");
    for (size_t row = 0; row < tm_table_n_rows(table); row++) {
        tm_text_add(out, "|");
        for (size_t i = 0; i < n; i++) {
            char buffer[64];
            table_add_padded(out, people_text(table, row, columns[i].index, buffer), columns[i].width,
                             columns[i].right);
        }
        tm_text_add(out, "\n");
    }
}

static void print_notes(const tm_table *table, tm_text *out)
{
    if (tm_table_n_notes(table)) tm_text_add(out, "\n");
    for (size_t i = 0; i < tm_table_n_notes(table); i++) tm_text_printf(out, "%s\n", tm_table_note_at(table, i));
}

/* All columns of a table; the caller frees. */
static print_as *measure(const tm_table *table)
{
    size_t    n = tm_table_n_columns(table);
    print_as *columns = tm_alloc((n + 1) * sizeof *columns);
    for (size_t c = 0; c < n; c++)
        columns[c] = (print_as){ .index = c, .width = width_of(table, c), .right = is_numeric(table, c) };
    return columns;
}

static void print_markdown(const tm_table *table, tm_text *out)
{
    print_as *columns = measure(table);
    print_columns(table, columns, tm_table_n_columns(table), out);
    free(columns);
    print_notes(table, out);
}

static void print_separated(const tm_table *table, bool tabs, tm_text *out)
{
    for (size_t row = 0; row <= tm_table_n_rows(table); row++) {
        for (size_t c = 0; c < tm_table_n_columns(table); c++) {
            char        buffer[64];
            const char *text = row == 0 ? tm_table_column_at(table, c)->name
                                        : table_cell_text(tm_table_cell(table, row - 1, c), -1, buffer);
            if (!tabs) {
                tm_csv_add(out, text, c == 0);
                continue;
            }
            if (c) tm_text_add(out, "\t");
            for (; *text; text++) tm_text_add_n(out, *text == '\t' || *text == '\n' || *text == '\r' ? " " : text, 1);
        }
        tm_text_add(out, "\n");
    }
}

static void print_row(const tm_table *table, size_t row, tm_json *json)
{
    tm_json_open(json, NULL, '{');
    for (size_t c = 0; c < tm_table_n_columns(table); c++) {
        const char    *key = tm_table_column_at(table, c)->name;
        const tm_cell *cell = tm_table_cell(table, row, c);
        switch (cell->kind) {
        case TM_CELL_EMPTY:
            tm_json_string(json, key, NULL);
            break;
        case TM_CELL_TEXT:
            tm_json_string(json, key, cell->text);
            break;
        case TM_CELL_I64:
            tm_json_i64(json, key, cell->i64);
            break;
        case TM_CELL_F64:
            tm_json_f64(json, key, cell->f64);
            break;
        case TM_CELL_BOOL:
            tm_json_bool(json, key, cell->truth);
            break;
        }
    }
    tm_json_close(json, '}');
}

static void print_json(const tm_table *table, tm_text *out)
{
    tm_json json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "name", tm_table_name(table));
    tm_json_open(&json, "rows", '[');
    for (size_t row = 0; row < tm_table_n_rows(table); row++) print_row(table, row, &json);
    tm_json_close(&json, ']');
    tm_json_open(&json, "notes", '[');
    for (size_t i = 0; i < tm_table_n_notes(table); i++) tm_json_string(&json, NULL, tm_table_note_at(table, i));
    tm_json_close(&json, ']');
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

static void print_jsonl(const tm_table *table, tm_text *out)
{
    for (size_t row = 0; row < tm_table_n_rows(table); row++) {
        tm_json json = { .out = out };
        print_row(table, row, &json);
        tm_text_add(out, "\n");
    }
}

void tm_table_print(const tm_table *table, tm_table_format format, tm_text *out)
{
    switch (format) {
    case TM_TABLE_MARKDOWN:
        print_markdown(table, out);
        break;
    case TM_TABLE_CSV:
        print_separated(table, false, out);
        break;
    case TM_TABLE_TSV:
        print_separated(table, true, out);
        break;
    case TM_TABLE_JSON:
        print_json(table, out);
        break;
    case TM_TABLE_JSONL:
        print_jsonl(table, out);
        break;
    }
}

/* The text as a gzip member (RFC 1952), without name and time: the same table gives the same file. */
static tm_status compress_text(const tm_text *text, tm_text *out, tm_error *err)
{
    enum { GZIP_WINDOW = 15 + 16 };
    z_stream stream = { 0 };
    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return tm_fail(err, TM_INTERNAL, "zlib does not start: %s", stream.msg ? stream.msg : "no reason given");
    size_t bound = deflateBound(&stream, text->length);
    char  *packed = tm_alloc(bound + 1);
    stream.next_in = (unsigned char *)text->data;
    stream.avail_in = (unsigned)text->length;
    stream.next_out = (unsigned char *)packed;
    stream.avail_out = (unsigned)bound;
    int end = deflate(&stream, Z_FINISH);
    if (end == Z_STREAM_END) tm_text_add_n(out, packed, stream.total_out);
    deflateEnd(&stream);
    free(packed);
    return end == Z_STREAM_END ? TM_OK : tm_fail(err, TM_INTERNAL, "zlib does not finish: status %d", end);
}

tm_status tm_table_write(const tm_table *table, const char *path, tm_error *err)
{
    tm_table_format format;
    TM_TRY(tm_table_format_of(path, &format, err));
    tm_text   text = { 0 }, packed = { 0 };
    size_t    length;
    bool      gz = is_compressed(path, &length);
    tm_status st = TM_OK;
    tm_table_print(table, format, &text);
    if (gz) st = compress_text(&text, &packed, err);
    if (st == TM_OK) st = tm_file_write(path, gz ? packed.data : text.data, gz ? packed.length : text.length, err);
    tm_text_fini(&text);
    tm_text_fini(&packed);
    return st;
}
