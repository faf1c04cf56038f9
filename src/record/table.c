/* SPDX-License-Identifier: Apache-2.0 */
#include "record/table.h"

#include "base/arena.h"
#include "base/csv.h"
#include "base/file.h"
#include "base/json.h"

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
                   "%s: the extension says the format; wanted: .md, .csv, .tsv, .json or .jsonl, "
                   "each also with .gz",
                   path);
}

/* A cell as text; digits < 0: all of them. `buffer` holds numbers. */
static const char *cell_text(const tm_cell *cell, int digits, char buffer[64])
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

/* As markdown prints it: a bar is escaped. */
static size_t shown_width(const char *text)
{
    size_t n = tm_utf8_width(text);
    for (; *text; text++) n += *text == '|';
    return n;
}

static size_t width_of(const tm_table *table, size_t column)
{
    char   buffer[64];
    size_t width = strlen(tm_table_column_at(table, column)->name);
    for (size_t row = 0; row < tm_table_n_rows(table); row++) {
        const char *text =
            cell_text(tm_table_cell(table, row, column), tm_table_column_at(table, column)->digits, buffer);
        size_t n = shown_width(text);
        if (n > width) width = n;
    }
    return width;
}

static void add_padded(tm_text *out, const char *text, size_t width, bool right)
{
    size_t n = shown_width(text);
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

static void print_markdown(const tm_table *table, tm_text *out)
{
    size_t  columns = tm_table_n_columns(table);
    size_t *widths = tm_alloc((columns + 1) * sizeof *widths);
    for (size_t c = 0; c < columns; c++) widths[c] = width_of(table, c);
    tm_text_add(out, "|");
    for (size_t c = 0; c < columns; c++)
        add_padded(out, tm_table_column_at(table, c)->name, widths[c], is_numeric(table, c));
    tm_text_add(out, "\n|");
    for (size_t c = 0; c < columns; c++) {
        bool right = is_numeric(table, c);
        for (size_t i = 0; i < widths[c] + (right ? 1 : 2); i++) tm_text_add(out, "-");
        tm_text_add(out, right ? ":|" : "|");
    }
    tm_text_add(out, "\n");
    for (size_t row = 0; row < tm_table_n_rows(table); row++) {
        tm_text_add(out, "|");
        for (size_t c = 0; c < columns; c++) {
            char        buffer[64];
            const char *text = cell_text(tm_table_cell(table, row, c), tm_table_column_at(table, c)->digits, buffer);
            add_padded(out, text, widths[c], is_numeric(table, c));
        }
        tm_text_add(out, "\n");
    }
    free(widths);
    if (tm_table_n_notes(table)) tm_text_add(out, "\n");
    for (size_t i = 0; i < tm_table_n_notes(table); i++) tm_text_printf(out, "%s\n", tm_table_note_at(table, i));
}

static void print_separated(const tm_table *table, bool tabs, tm_text *out)
{
    for (size_t row = 0; row <= tm_table_n_rows(table); row++) {
        for (size_t c = 0; c < tm_table_n_columns(table); c++) {
            char        buffer[64];
            const char *text =
                row == 0 ? tm_table_column_at(table, c)->name : cell_text(tm_table_cell(table, row - 1, c), -1, buffer);
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
    if (out->length && out->data[out->length - 1] != '\n') tm_text_add(out, "\n");
}

static void print_jsonl(const tm_table *table, tm_text *out)
{
    for (size_t row = 0; row < tm_table_n_rows(table); row++) {
        tm_json json = { .out = out };
        print_row(table, row, &json);
        if (out->data[out->length - 1] != '\n') tm_text_add(out, "\n");
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
