/* SPDX-License-Identifier: Apache-2.0 */
/* cli/verify.c - `trainmark verify`: is a result what its raw samples say? */
#include "cli/cli.h"
#include "record/table.h"
#include "results/verify.h"

#include <string.h>

typedef struct {
    const char *store;
    bool        all, json;
} verify_options;

/* The rows that do not agree. */
static tm_table *wrong_rows(const tm_table *all)
{
    tm_table *table = tm_table_create("verify");
    for (size_t c = 0; c < tm_table_n_columns(all); c++) tm_table_columns(table, tm_table_column_at(all, c), 1);
    size_t verdict = (size_t)tm_table_find(all, "verdict");
    for (size_t r = 0; r < tm_table_n_rows(all); r++) {
        if (strcmp(tm_table_cell(all, r, verdict)->text, "ok") == 0) continue;
        tm_table_row(table);
        for (size_t c = 0; c < tm_table_n_columns(all); c++)
            tm_table_text(table, tm_table_column_at(all, c)->name, tm_table_cell(all, r, c)->text);
    }
    return table;
}

static tm_status verify_one(const char *reference, const char *store, bool every, bool json, size_t *wrong,
                            tm_error *err)
{
    tm_result *result;
    tm_table  *table;
    size_t     differ;
    TM_TRY(tm_result_load(reference, store, &result, err));
    tm_status st = tm_results_verify(result, &table, &differ, err);
    tm_result_destroy(result);
    TM_TRY(st);
    tm_text   text = { 0 };
    size_t    rows = tm_table_n_rows(table);
    tm_table *shown = every ? table : wrong_rows(table);
    tm_table_note(shown, "%s: %zu of %zu figures agree with the raw samples%s", reference, rows - differ, rows,
                  differ ? "" : ", and the digest with the file");
    if (json || every || differ)
        tm_table_print(shown, json ? TM_TABLE_JSON : TM_TABLE_TERMINAL, &text);
    else
        tm_text_printf(&text, "%s\n", tm_table_note_at(shown, 0));
    st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    if (!every) tm_table_destroy(shown);
    tm_table_destroy(table);
    *wrong += differ;
    return st;
}

static tm_status verify(tm_cli_line *line, tm_error *err)
{
    const verify_options *o = line->options;
    bool                  chosen;
    size_t                wrong = 0;
    const char           *path = tm_store_path(line->arena, o->store, &chosen);
    for (int i = 0; i < line->n_words; i++) TM_TRY(verify_one(line->words[i], path, o->all, o->json, &wrong, err));
    if (wrong == 0) return TM_OK;
    return tm_fail(err, TM_NEGATIVE, "%zu figure%s not what the raw samples say", wrong, wrong == 1 ? " is" : "s are");
}

static const tm_option rows[] = {
    { "all", 0, TM_OPTION_FLAG, offsetof(verify_options, all), .help = "also list the figures that agree" },
    { "store", 0, TM_OPTION_TEXT, offsetof(verify_options, store), .value = "FILE",
      .help = "another store of results" },
    TM_OPTION_JSON(verify_options),
};

const tm_cli_command tm_command_verify = {
    .name = "verify",
    .summary = "recompute every derived figure of a result from its raw samples",
    .words = "RUN...",
    .least = 1,
    .most = -1,
    .about =
        "Recomputes every derived figure of a run from its raw step times (and from metrics.jsonl beside it), and the "
        "digest over the file. RUN is a run directory, a result.json, or a stored result (a number, last, last~N). "
        "Exit code 5 if anything differs.",
    TM_CLI_OPTIONS(rows, verify_options),
    .run = verify,
};
