/* SPDX-License-Identifier: Apache-2.0 */
#include "results/keep.h"

#include "base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

tm_status tm_results_keep(tm_store *store, const tm_result *result, const char *folder, const char *label, int64_t *id,
                          tm_error *err)
{
    tm_stored      row;
    char          *absolute = folder ? realpath(folder, NULL) : NULL;
    const tm_text *documents[TM_DOCUMENT_COUNT];
    tm_result_describe(result, &row);
    row.folder = absolute;
    row.label = label;
    for (int i = 0; i < TM_DOCUMENT_COUNT; i++) documents[i] = tm_result_document(result, (tm_document)i);
    tm_status st = tm_store_add(store, &row, documents, id, err);
    free(absolute);
    return st;
}

static tm_status export_one(tm_store *store, int64_t id, tm_document document, const char *folder, tm_error *err)
{
    tm_text   text = { 0 }, path = { 0 };
    bool      there;
    tm_status st = tm_store_document(store, id, document, &text, &there, err);
    tm_text_printf(&path, "%s/%s", folder, tm_document_file(document));
    if (st == TM_OK && there && tm_file_exists(path.data))
        st = tm_fail(err, TM_INVALID, "'%s' already exists; name another directory", path.data);
    if (st == TM_OK && there) st = tm_file_write(path.data, text.data, text.length, err);
    tm_text_fini(&text);
    tm_text_fini(&path);
    return st;
}

tm_status tm_results_export(tm_store *store, int64_t id, const char *folder, tm_error *err)
{
    TM_TRY(tm_folder_make(folder, err));
    for (int i = 0; i < TM_DOCUMENT_COUNT; i++) TM_TRY(export_one(store, id, (tm_document)i, folder, err));
    return TM_OK;
}

static void fill(tm_table *table, const tm_stored *row, bool all)
{
    tm_table_row(table);
    tm_table_i64(table, "id", row->id);
    tm_table_text(table, "finished", row->finished);
    tm_table_text(table, "kind", row->kind);
    tm_table_text(table, "name", row->name);
    tm_table_text(table, "label", row->label);
    tm_table_text(table, "device", row->device);
    tm_table_text(table, "precision", row->precision);
    tm_table_text(table, "verdict", row->verdict);
    tm_table_f64(table, "tokens_per_second", row->rate);
    if (row->hi > row->lo && row->rate > 0)
        tm_table_f64(table, "half_width_percent", 50 * (row->hi - row->lo) / row->rate);
    tm_table_f64(table, "loss", row->loss);
    if (isfinite(row->steps)) tm_table_i64(table, "steps", (int64_t)row->steps);
    tm_table_text(table, "host", row->host);
    if (!all) return;
    tm_table_f64(table, "seconds", row->seconds);
    tm_table_text(table, "configuration_hash", row->hash);
    tm_table_text(table, "build", row->build);
    tm_table_text(table, "folder", row->folder);
    tm_table_text(table, "command", row->command);
}

/* A copy without the columns that no row fills. */
static tm_table *without_empty(tm_table *all)
{
    tm_table *table = tm_table_create(tm_table_name(all));
    bool     *filled = tm_alloc((tm_table_n_columns(all) + 1) * sizeof *filled);
    for (size_t c = 0; c < tm_table_n_columns(all); c++) {
        filled[c] = tm_table_n_rows(all) == 0;
        for (size_t r = 0; r < tm_table_n_rows(all) && !filled[c]; r++)
            filled[c] = tm_table_cell(all, r, c)->kind != TM_CELL_EMPTY;
        if (filled[c]) tm_table_columns(table, tm_table_column_at(all, c), 1);
    }
    for (size_t r = 0; r < tm_table_n_rows(all); r++) {
        tm_table_row(table);
        for (size_t c = 0; c < tm_table_n_columns(all); c++) {
            const tm_cell *cell = tm_table_cell(all, r, c);
            const char    *name = tm_table_column_at(all, c)->name;
            if (cell->kind == TM_CELL_TEXT) tm_table_text(table, name, cell->text);
            if (cell->kind == TM_CELL_I64) tm_table_i64(table, name, cell->i64);
            if (cell->kind == TM_CELL_F64) tm_table_f64(table, name, cell->f64);
        }
    }
    free(filled);
    tm_table_destroy(all);
    return table;
}

/* What people see of it, of the columns that are left. */
static tm_table *choose_main(tm_table *table)
{
    static const char *const brief[] = { "id",   "name",  "tokens_per_second",  "verdict", "loss", "precision",
                                         "kind", "label", "half_width_percent", "finished" };
    const char              *there[sizeof brief / sizeof brief[0]];
    size_t                   n = 0;
    for (size_t i = 0; i < sizeof brief / sizeof brief[0]; i++)
        if (tm_table_find(table, brief[i]) >= 0) there[n++] = brief[i];
    tm_table_brief(table, there, n);
    return table;
}

tm_table *tm_results_table(const tm_stored *rows, size_t n, bool all)
{
    static const tm_column columns[] = { { "id", 0 },
                                         { "finished", 0 },
                                         { "kind", 0 },
                                         { "name", 0 },
                                         { "label", 0 },
                                         { "device", 0 },
                                         { "precision", 0 },
                                         { "verdict", 0 },
                                         { "tokens_per_second", 5 },
                                         { "half_width_percent", 2 },
                                         { "loss", 5 },
                                         { "steps", 0 },
                                         { "host", 0 } },
                           more[] = { { "seconds", 0 },
                                      { "configuration_hash", 0 },
                                      { "build", 0 },
                                      { "folder", 0 },
                                      { "command", 0 } };
    tm_table *table = tm_table_create("results");
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    if (all) tm_table_columns(table, more, sizeof more / sizeof more[0]);
    for (size_t i = 0; i < n; i++) fill(table, &rows[i], all);
    return all ? table : choose_main(without_empty(table));
}
