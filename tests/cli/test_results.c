/* SPDX-License-Identifier: Apache-2.0 */
/* Ten times as many stored runs, ten thousand, are listed, filtered and compared in ten times the time at most: what
 * grows with their square and takes a tenth of a second then shows, a hundred times as long. */
#include "asked.h"

#include <sqlite3.h>
#include <time.h>

#define RUN                                                                                                            \
    "run --model.n_layers 1 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64 "                 \
    "--training.seq_len 32 --training.local_batch_size 2 --training.threads 1 --training.steps 6 --validation.steps "  \
    "2 "                                                                                                               \
    "--training.stop_at_target false --out "

/* Processor seconds, which other programs do not stretch: the least of three. */
static double seconds_of(const char *line)
{
    double least = 1e9;
    for (int i = 0; i < 3; i++) {
        double  before = (double)clock() / CLOCKS_PER_SEC;
        tm_text out = asked(line, TM_OK);
        least = fmin(least, (double)clock() / CLOCKS_PER_SEC - before);
        tm_text_fini(&out);
    }
    return least;
}

/* So many copies of a run. */
static void store_more(int copies)
{
    char     sql[600];
    sqlite3 *store;
    snprintf(sql, sizeof sql,
             "INSERT INTO results (kind, name, finished, host, device, precision, verdict, hash, rate, lo, hi, loss)"
             " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
             " SELECT 'run', 'model-' || (i %% 50), '2026-01-31T12:00:00Z', 'box', 'cpu', 'float32', 'valid',"
             " printf('%%016x', i %% 100), i, i, i, 2.5 FROM n",
             copies);
    assert_int_equal(sqlite3_open(getenv("TRAINMARK_STORE"), &store), SQLITE_OK);
    assert_int_equal(sqlite3_exec(store, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(store);
}

TEST(ten_thousand_stored_runs)
{
    static const char *const commands[] = { "results", "results --last 0", "results --name MODEL-7 --json",
                                            "results --verdict valid --last 20", "compare 1 2 --json" };
    enum { COMMANDS = sizeof commands / sizeof commands[0] };
    double few[COMMANDS];
    setenv("TRAINMARK_STORE", test_in_folder("store.db"), 1); /* never the user's */
    for (int i = 0; i < 2; i++) {
        tm_text line = { 0 };
        tm_text_printf(&line, RUN "%s", test_in_folder(i ? "b" : "a"));
        tm_text out = asked(line.data, TM_OK);
        tm_text_fini(&out), tm_text_fini(&line);
    }
    store_more(998);
    for (size_t i = 0; i < COMMANDS; i++) few[i] = seconds_of(commands[i]);
    store_more(9000);
    for (size_t i = 0; i < COMMANDS; i++) {
        double many = seconds_of(commands[i]);
        if (!(many < 20 * few[i])) fail_msg("%s: %.3f s, of a tenth of the runs %.3f s", commands[i], many, few[i]);
    }
    json_t *all = asked_json("results", TM_OK);
    assert_int_equal(json_array_size(member(all, "rows")), 10000);
    json_decref(all);
}
TEST_FIXTURE(NULL, test_folder_teardown)
