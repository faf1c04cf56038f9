/* SPDX-License-Identifier: Apache-2.0 */
/* cli/verify.c - `trainmark verify`: is a result what its raw samples say? */
#include "cli/words.h"
#include "record/table.h"
#include "results/verify.h"

#include <string.h>

static const char help[] =
    "usage: trainmark verify RUN... [--all] [--json] [--store FILE]\n\n"
    "Recomputes every derived figure of a run from its raw step times (and from metrics.jsonl beside it), and the digest\n"
    "over the file. RUN is a run directory, a result.json, or a stored result. Exit code 5 if anything differs.\n\n"
    "  --all    list the figures that agree, too\n";

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
        tm_table_print(shown, json ? TM_TABLE_JSON : TM_TABLE_MARKDOWN, &text);
    else
        tm_text_printf(&text, "%s\n", tm_table_note_at(shown, 0));
    st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    if (!every) tm_table_destroy(shown);
    tm_table_destroy(table);
    *wrong += differ;
    return st;
}

tm_status tm_command_verify(int argc, char **argv, tm_error *err)
{
    const char         *store = NULL;
    bool                every = false, json = false, chosen;
    const tm_cli_option options[] = { { "--store", &store, NULL },
                                      { "--all", NULL, &every },
                                      { "--json", NULL, &json },
                                      { NULL, NULL, NULL } };
    if (tm_cli_wants_help(argc, argv)) return tm_cli_print_help(help, err);
    tm_arena *arena = tm_arena_create();
    char    **words = tm_arena_take(arena, (size_t)argc * sizeof *words);
    int       n = 0;
    size_t    wrong = 0;
    tm_status st = tm_cli_words(argc, argv, "verify", options, words, &n, 1, -1, err);
    const char *path = tm_store_path(arena, store, &chosen);
    for (int i = 0; st == TM_OK && i < n; i++) st = verify_one(words[i], path, every, json, &wrong, err);
    tm_arena_destroy(arena);
    if (st == TM_OK && wrong > 0)
        st = tm_fail(err, TM_NEGATIVE, "%zu figure%s not what the raw samples say", wrong, wrong == 1 ? " is" : "s are");
    return st;
}
