/* SPDX-License-Identifier: Apache-2.0 */
/* Commands over ten thousand stored runs. The program is started as a user does; its path is in TRAINMARK. */
#include "support/test.h"

#include <jansson.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE = 4096 };

static const char run_arguments[] =
    "run --model.n_layers 1 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64 "
    "--training.seq_len 32 "
    "--training.local_batch_size 2 --training.threads 1 --training.steps 6 --validation.steps 2 "
    "--training.stop_at_target false";

static char folder[] = "/tmp/trainmark-results-XXXXXX";

/* Runs `TRAINMARK arguments` in the folder, standard output to a file there; the exit code. */
static int start(const char *arguments, const char *output)
{
    char command[2 * LINE];
    snprintf(command, sizeof command, "cd %s && \"$TRAINMARK\" %s >%s 2>stderr.txt </dev/null", folder, arguments,
             output);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int open_folder(void **state)
{
    char store[LINE];
    (void)state;
    if (!getenv("TRAINMARK")) return 0;
    if (!mkdtemp(folder)) return -1;
    snprintf(store, sizeof store, "%s/store.db", folder);
    setenv("TRAINMARK_STORE", store, 1); /* never the user's */
    return start(run_arguments, "stdout.txt") == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[LINE];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return getenv("TRAINMARK") ? system(command) : 0;
}

static void need_program(void)
{
    if (getenv("TRAINMARK")) return;
    print_message("skipped: TRAINMARK does not name the program\n");
    skip();
}

static json_t *load(const char *name)
{
    char         path[LINE];
    json_error_t error;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root) print_error("%s:%d: %s\n", path, error.line, error.text);
    assert_non_null(root);
    return root;
}

/* The member at "a.b.c"; it must exist. */
static json_t *member(json_t *root, const char *path)
{
    char part[64];
    while (root && *path) {
        size_t n = strcspn(path, ".");
        assert_true(n < sizeof part);
        memcpy(part, path, n);
        part[n] = '\0';
        root = json_object_get(root, part);
        path += n + (path[n] == '.');
    }
    if (!root) print_error("no member '%s'\n", part);
    assert_non_null(root);
    return root;
}

static double children_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_CHILDREN, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Processor seconds of the whole process, which other programs do not stretch: the least of three. */
static double seconds_of(const char *arguments, const char *output)
{
    double least = 1e9;
    for (int i = 0; i < 3; i++) {
        double before = children_seconds();
        assert_int_equal(start(arguments, output), 0);
        least = fmin(least, children_seconds() - before);
    }
    return least;
}

/* So many copies of a run, and a run. */
static void store_more(int copies)
{
    char     sql[LINE];
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
    assert_int_equal(start("results import output/tiny-llama", "import.txt"), 0);
}

/* Ten times as many stored runs, ten thousand, are listed, filtered and compared in ten times the time at most. What
 * grows with their square and takes a tenth of a second then shows: a hundred times as long. */
TEST(ten_thousand_stored_runs)
{
    static const char *const commands[] = { "results",
                                            "results --last 0",
                                            "results --json",
                                            "results --name MODEL-7 --json",
                                            "results --verdict valid --last 20",
                                            "compare 1 last --json",
                                            "results show 1" };
    enum { COMMANDS = sizeof commands / sizeof commands[0] };
    const double most = 20; /* times as long */
    double       few[COMMANDS];
    need_program();
    store_more(999);
    for (size_t i = 0; i < COMMANDS; i++) few[i] = seconds_of(commands[i], "many.json");
    store_more(8999);
    for (size_t i = 0; i < COMMANDS; i++) {
        double many = seconds_of(commands[i], "many.json");
        if (!(many < most * few[i]))
            fail_msg("trainmark %s: %.3f s, of a tenth of the runs %.3f s", commands[i], many, few[i]);
    }
    assert_int_equal(start("results --json", "many.json"), 0);
    json_t *all = load("many.json");
    assert_int_equal(json_array_size(member(all, "rows")), 10001);
    json_decref(all);
}

TEST_FIXTURE(open_folder, remove_folder)
