/* SPDX-License-Identifier: Apache-2.0 */
/* cli/bench_store.c - a benchmark's table on its way into the store of results. */
#include "cli/bench_store.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/secret.h"
#include "record/table.h"
#include "results/keep.h"
#include "system/environment.h"

static void print_document(const tm_config *config, const tm_table *table, bool valid, tm_text *out)
{
    tm_text         rows = { 0 };
    char            now[32];
    tm_environment *environment = tm_environment_read("");
    tm_json         json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "format", "trainmark.bench/1");
    tm_json_string(&json, "finished", tm_wall_text(now));
    tm_json_string(&json, "workload", tm_table_name(table));
    tm_json_string(&json, "device", tm_config_text(config, "device"));
    tm_json_string(&json, "verdict", valid ? NULL : "invalid");
    tm_json_open(&json, "options", '{');
    tm_config_print_json(config, &json);
    tm_json_close(&json, '}');
    tm_environment_print_json(environment, &json, "environment");
    tm_environment_destroy(environment);
    tm_table_print(table, TM_TABLE_JSON, &rows);
    tm_text_add(out, ",\n  \"table\": ");
    tm_text_add_n(out, rows.data, rows.length - 1);
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
    tm_secret_mask(out);
    tm_text_fini(&rows);
}

static tm_status keep(const char *path, const tm_config *config, const tm_table *table, bool valid, const char *label,
                      int64_t *id, tm_error *err)
{
    tm_store  *store;
    tm_result *result = NULL;
    tm_text    document = { 0 };
    TM_TRY(tm_store_open(path, true, &store, err));
    print_document(config, table, valid, &document);
    tm_status st = tm_result_parse("this benchmark", &document, NULL, NULL, &result, err);
    if (st == TM_OK) st = tm_results_keep(store, result, NULL, label, id, err);
    tm_result_destroy(result);
    tm_text_fini(&document);
    tm_store_close(store);
    return st;
}

tm_status tm_bench_store(const tm_config *config, const tm_table *table, bool valid, const char *label, tm_error *err)
{
    bool        chosen;
    int64_t     id;
    tm_error    own = { 0 };
    tm_arena   *arena = tm_arena_create();
    const char *path = tm_store_path(arena, tm_config_text(config, "store"), &chosen);
    tm_status   st = path ? keep(path, config, table, valid, label, &id, &own) : TM_OK;
    if (path && st == TM_OK) tm_note("stored as result %lld", (long long)id);
    tm_arena_destroy(arena);
    if (st == TM_OK) return st;
    if (chosen) return tm_fail(err, st, "%s", own.text);
    tm_warn("this benchmark is not stored: %s", own.text);
    return TM_OK;
}
