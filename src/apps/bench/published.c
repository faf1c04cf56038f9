/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/bench/published.h"

#include "base/arena.h"
#include "base/csv.h"
#include "base/file.h"
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* X(column), in the order of the file. */
/* clang-format off */
#define REFERENCE_COLUMNS(X)                                                                                           \
    X(workload) X(row) X(device) X(devices) X(scope) X(dtype) X(batch) X(seq) X(column) X(value) X(unit) X(convention) \
    X(source) X(date) X(note)
/* clang-format on */

enum {
#define X(name) COLUMN_##name,
    REFERENCE_COLUMNS(X)
#undef X
        COLUMNS
};

static const char *const names[COLUMNS] = {
#define X(name) #name,
    REFERENCE_COLUMNS(X)
#undef X
};
static const char *const brief[] = { "row",   "dtype", "value",  "unit",    "device", "workload",
                                     "batch", "seq",   "column", "devices", "note" };

typedef struct {
    const char *text[COLUMNS];
    double      value;
    int64_t     devices;
} figure;

struct tm_published {
    tm_arena *arena;
    figure   *rows;
    size_t    count, capacity;
};

enum { FILE_LIMIT = 16 << 20 };

/* The lines of configs/reference/, made by the Makefile; NULL ends them. */
extern const char *const tm_published_lines[];

static bool is_header(const char *storage, const size_t *offsets, size_t n)
{
    if (n != COLUMNS) return false;
    for (size_t i = 0; i < n; i++)
        if (strcmp(storage + offsets[i], names[i]) != 0) return false;
    return true;
}

static bool read_devices(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *out = value;
    return *text && *end == '\0' && errno == 0 && value >= 1;
}

static bool read_value(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return *text && *end == '\0' && isfinite(*out);
}

static tm_status add_row(tm_published *reference, const char *storage, const size_t *offsets, const char *place,
                         size_t line, tm_error *err)
{
    figure row;
    for (int i = 0; i < COLUMNS; i++) row.text[i] = tm_arena_text(reference->arena, storage + offsets[i]);
    if (!read_value(row.text[COLUMN_value], &row.value))
        return tm_fail(err, TM_FORMAT, "%s: record %zu: value '%.60s' is not a number", place, line,
                       row.text[COLUMN_value]);
    if (!read_devices(row.text[COLUMN_devices], &row.devices))
        return tm_fail(err, TM_FORMAT, "%s: record %zu: devices '%.60s' is not a count from 1", place, line,
                       row.text[COLUMN_devices]);
    const char *scope = row.text[COLUMN_scope];
    if (strcmp(scope, "device") != 0 && strcmp(scope, "all") != 0)
        return tm_fail(err, TM_FORMAT, "%s: record %zu: scope '%.60s'; wanted: device or all", place, line, scope);
    reference->rows = tm_grow(reference->rows, &reference->capacity, reference->count, sizeof *reference->rows);
    reference->rows[reference->count++] = row;
    return TM_OK;
}

/* `text` begins with a header line; compiled-in files follow each other, each with its own. */
static tm_status parse(tm_published *reference, const char *text, const char *place, tm_error *err)
{
    tm_text     storage = { 0 };
    size_t      offsets[COLUMNS], n;
    const char *cursor = text;
    tm_status   st = TM_OK;
    for (size_t line = 1; st == TM_OK && (n = tm_csv_read(&cursor, &storage, offsets, COLUMNS)) > 0; line++) {
        bool header = is_header(storage.data, offsets, n);
        if (line == 1 && !header)
            st = tm_fail(err, TM_FORMAT, "%s: the first line is not the header of published figures (workload,row,...)",
                         place);
        else if (n != COLUMNS)
            st = tm_fail(err, TM_FORMAT, "%s: record %zu has %zu cells, wanted %d", place, line, n, COLUMNS);
        else if (!header)
            st = add_row(reference, storage.data, offsets, place, line, err);
    }
    tm_text_fini(&storage);
    return st;
}

tm_status tm_published_read(const char *path, tm_published **out, tm_error *err)
{
    bool    built_in = !path || strcmp(path, "reference") == 0;
    tm_text text = { 0 };
    if (built_in)
        for (const char *const *line = tm_published_lines; *line; line++) tm_text_printf(&text, "%s\n", *line);
    else
        TM_TRY(tm_file_read(path, FILE_LIMIT, &text, err));
    tm_published *reference = tm_alloc(sizeof *reference);
    *reference = (tm_published){ .arena = tm_arena_create() };
    tm_status st = parse(reference, text.data ? text.data : "", built_in ? "compiled-in figures" : path, err);
    tm_text_fini(&text);
    if (st == TM_OK && reference->count == 0) st = tm_fail(err, TM_FORMAT, "%s: no published figure in it", path);
    if (st != TM_OK) {
        tm_published_destroy(reference);
        return st;
    }
    *out = reference;
    return TM_OK;
}

void tm_published_destroy(tm_published *reference)
{
    if (!reference) return;
    tm_arena_destroy(reference->arena);
    free(reference->rows);
    free(reference);
}

bool tm_published_at(const tm_published *reference, size_t i, tm_figure *out)
{
    if (i >= reference->count) return false;
    const figure *row = &reference->rows[i];
    *out = (tm_figure){ .value = row->value, .devices = row->devices };
    const struct {
        int          column;
        const char **to;
    } texts[] = { { COLUMN_workload, &out->workload }, { COLUMN_row, &out->row },
                  { COLUMN_device, &out->device },     { COLUMN_scope, &out->scope },
                  { COLUMN_dtype, &out->dtype },       { COLUMN_batch, &out->batch },
                  { COLUMN_seq, &out->seq },           { COLUMN_column, &out->column },
                  { COLUMN_unit, &out->unit },         { COLUMN_convention, &out->convention },
                  { COLUMN_source, &out->source },     { COLUMN_date, &out->date },
                  { COLUMN_note, &out->note } };
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) *texts[k].to = row->text[texts[k].column];
    return true;
}

tm_table *tm_published_list(const tm_published *reference, const char *workload)
{
    tm_table *table = tm_table_create("reference");
    for (int i = 0; i < COLUMNS; i++) tm_table_column(table, names[i], 7);
    tm_table_brief(table, brief, sizeof brief / sizeof brief[0]);
    for (size_t r = 0; r < reference->count; r++) {
        const figure *row = &reference->rows[r];
        if (workload && strcmp(workload, row->text[COLUMN_workload]) != 0) continue;
        tm_table_row(table);
        for (int i = 0; i < COLUMNS; i++)
            if (i != COLUMN_value && i != COLUMN_devices && *row->text[i]) tm_table_text(table, names[i], row->text[i]);
        tm_table_f64(table, "value", row->value);
        tm_table_i64(table, "devices", row->devices);
    }
    return table;
}

/* The measured number that belongs to a published value; false if there is none. */
static bool measured_value(const tm_table *measured, size_t row, const figure *p, double *out)
{
    int at = tm_table_find(measured, "case");
    if (at < 0) return false;
    const tm_cell *name = tm_table_cell(measured, row, (size_t)at);
    if (name->kind != TM_CELL_TEXT || !tm_names_equal(name->text, p->text[COLUMN_row])) return false;
    at = tm_table_find(measured, p->text[COLUMN_column]);
    if (at < 0) return false;
    const tm_cell *cell = tm_table_cell(measured, row, (size_t)at);
    if (cell->kind != TM_CELL_F64 && cell->kind != TM_CELL_I64) return false;
    *out = cell->kind == TM_CELL_F64 ? cell->f64 : (double)cell->i64;
    return true;
}

/* A number that was not measured says so. */
static const char *tag_of(const tm_table *measured, size_t row)
{
    int at = tm_table_find(measured, "tag");
    return at < 0 ? "measured" : tm_table_cell(measured, row, (size_t)at)->text;
}

static void add_comparison(tm_table *table, const figure *p, double measured, const char *tag)
{
    bool   all = strcmp(p->text[COLUMN_scope], "all") == 0 && p->devices > 1;
    double value = all ? p->value / (double)p->devices : p->value;
    tm_table_row(table);
    tm_table_text(table, "case", p->text[COLUMN_row]);
    tm_table_text(table, "column", p->text[COLUMN_column]);
    tm_table_f64(table, "measured", measured);
    tm_table_text(table, "tag", tag);
    tm_table_f64(table, "published", value);
    tm_table_f64(table, "ratio", measured / value);
    static const int copied[] = { COLUMN_unit, COLUMN_device, COLUMN_dtype, COLUMN_batch,
                                  COLUMN_seq,  COLUMN_source, COLUMN_date,  COLUMN_note };
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
        if (*p->text[copied[i]]) tm_table_text(table, names[copied[i]], p->text[copied[i]]);
    const char *convention = p->text[COLUMN_convention];
    tm_table_printf(table, "conversion", "%s%s%s", *convention ? convention : "none", all ? ", published value / " : "",
                    all ? p->text[COLUMN_devices] : "");
}

tm_table *tm_published_compare(const tm_published *reference, const tm_table *measured)
{
    tm_table *table = tm_table_create("comparison");
    tm_table_columns(table,
                     (tm_column[]){ { "case", 0 },
                                    { "column", 0 },
                                    { "measured", 5 },
                                    { "tag", 0 },
                                    { "published", 7 },
                                    { "ratio", 4 },
                                    { "unit", 0 },
                                    { "conversion", 0 },
                                    { "device", 0 },
                                    { "dtype", 0 },
                                    { "batch", 0 },
                                    { "seq", 0 },
                                    { "source", 0 },
                                    { "date", 0 },
                                    { "note", 0 } },
                     15);
    tm_table_brief(table,
                   (const char *const[]){ "case", "measured", "published", "ratio", "unit", "device", "dtype", "column",
                                          "batch", "seq" },
                   10);
    for (size_t row = 0; row < tm_table_n_rows(measured); row++)
        for (size_t i = 0; i < reference->count; i++) {
            const figure *p = &reference->rows[i];
            double        value;
            if (strcmp(p->text[COLUMN_workload], tm_table_name(measured)) == 0 &&
                measured_value(measured, row, p, &value))
                add_comparison(table, p, value, tag_of(measured, row));
        }
    tm_table_note(table,
                  "measured: here, per device; published: on the device named, as its source says it; device, dtype, "
                  "batch and seq are those of the published row. Same column, same convention. Some published figures "
                  "are gates, not measurements: "
                  "`trainmark reference --verbose` has sources and notes.");
    return table;
}
