/* SPDX-License-Identifier: Apache-2.0 */
/* `trainmark plan --accuracy`: every stored run that was predicted is a test of the predictions. */
#include "cli/cli.h"
#include "cli/plan_rows.h"
#include "record/table.h"
#include "results/result.h"
#include "results/store.h"
#include "stats/summary.h"

#include <math.h>

typedef struct {
    tm_store *store;
    tm_table *table;
    double   *error; /* (n) */
    size_t    n;
} work;

static tm_status add(work *w, const tm_stored *row, tm_error *err)
{
    tm_text    text = { 0 };
    tm_result *result = NULL;
    bool       there;
    TM_TRY(tm_store_document(w->store, row->id, TM_DOCUMENT_RESULT, &text, &there, err));
    tm_error own = { 0 }; /* results of other versions are passed over */
    if (there && tm_result_parse("result", &text, NULL, NULL, &result, &own) == TM_OK) {
        double predicted = tm_result_number(result, "predicted/tokens_per_second");
        if (predicted > 0 && row->rate > 0) {
            double error = row->rate / predicted - 1;
            tm_table_row(w->table);
            tm_table_i64(w->table, "result", row->id);
            tm_table_text(w->table, "model", row->name);
            tm_table_text(w->table, "device", row->device);
            tm_table_text(w->table, "precision", row->precision);
            tm_table_text(w->table, "hardware", tm_result_string(result, "predicted/hardware"));
            tm_table_f64(w->table, "predicted", predicted);
            tm_table_f64(w->table, "measured", row->rate);
            tm_table_f64(w->table, "error_percent", 100 * error);
            w->error[w->n++] = fabs(error);
        }
        tm_result_destroy(result);
    }
    tm_text_fini(&text);
    return TM_OK;
}

static tm_status collect(work *w, tm_arena *arena, tm_error *err)
{
    static const tm_column columns[] = { { "result", 0 },    { "model", 0 },        { "device", 0 },
                                         { "precision", 0 }, { "hardware", 0 },     { "predicted", 5 },
                                         { "measured", 5 },  { "error_percent", 3 } };
    tm_store_filter        filter = { .kind = "run" };
    tm_stored             *rows;
    size_t                 n;
    tm_table_columns(w->table, columns, sizeof columns / sizeof columns[0]);
    TM_TRY(tm_store_list(w->store, &filter, arena, &rows, &n, err));
    w->error = tm_arena_take(arena, (n + 1) * sizeof *w->error);
    for (size_t i = 0; i < n; i++) TM_TRY(add(w, &rows[i], err));
    if (w->n == 0) {
        tm_table_note(w->table, "no stored run was predicted; prediction.hardware FILE predicts a run");
        return TM_OK;
    }
    tm_stats_sort(w->error, (int64_t)w->n);
    tm_table_note(w->table, "%zu runs, tokens/s of a device; |error|: median %.1f %%, largest %.1f %%", w->n,
                  100 * tm_stats_percentile(w->error, (int64_t)w->n, 0.5), 100 * w->error[w->n - 1]);
    return TM_OK;
}

tm_status tm_cli_plan_accuracy(const char *given, bool json, bool verbose, tm_error *err)
{
    tm_arena   *arena = tm_arena_create();
    work        w = { .table = tm_table_create("accuracy") };
    bool        chosen;
    tm_text     text = { 0 };
    const char *path = tm_store_path(arena, given, &chosen);
    tm_status   st = path ? tm_store_open(path, false, &w.store, err)
                          : tm_fail(err, TM_INVALID, "there is no store; name a file with --store or TRAINMARK_STORE");
    if (st == TM_OK) st = collect(&w, arena, err);
    if (st == TM_OK) {
        tm_cli_add_table(w.table, json, verbose, &text);
        st = tm_cli_print(&text, err);
    }
    tm_text_fini(&text);
    tm_store_close(w.store);
    tm_table_destroy(w.table);
    tm_arena_destroy(arena);
    return st;
}
