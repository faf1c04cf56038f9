/* SPDX-License-Identifier: Apache-2.0 */
/* What the program writes as JSON parses, and its numbers belong together. The program is started as a user does; its
 * path is in TRAINMARK. */
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

enum { STEPS = 6, LINE = 4096 };

static const char run_arguments[] =
    "run --model.n_layers 1 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64 "
    "--training.seq_len 32 "
    "--training.local_batch_size 2 --training.threads 1 --training.steps 6 --validation.freq 3 --validation.steps 2 "
    "--training.stop_at_target false --checkpoint.enable true --checkpoint.interval 4";

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

static double number(json_t *root, const char *path)
{
    json_t *value = member(root, path);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

TEST(result_belongs_together)
{
    need_program();
    json_t *result = load("output/tiny-llama/result.json");
    assert_string_equal(json_string_value(member(result, "verdict")), "not-judged");
    assert_true(json_is_string(member(result, "reason")));
    assert_int_equal(strlen(json_string_value(member(result, "configuration_hash"))), 16);
    assert_true(number(result, "parameters") > 0);
    double rate = number(result, "tokens_per_second_per_device.median");
    assert_true(rate > 0);
    assert_true(number(result, "tokens_per_second_per_device.n") >= 1);
    member(result, "tokens_per_second_per_device.lo");
    member(result, "tokens_per_second_per_device.hi");
    double floor = number(result, "loss.floor");
    assert_true(number(result, "loss.first") > floor && number(result, "loss.last") > floor);
    assert_true(number(result, "loss.validation") > floor);
    assert_true(number(result, "memory.planned_bytes") > 0);
    assert_true(fabs(number(result, "memory.planned_bytes") - number(result, "memory.used_bytes")) < 0.5);
#ifndef __SANITIZE_ADDRESS__ /* its shadow counts, too */
    assert_true(number(result, "memory.outside_arena_bytes") < 40e6);
#endif
    double      sum = 0, line_value;
    json_t     *line;
    const char *name;
    json_object_foreach(member(result, "memory.planned_by_class"), name, line)
    {
        assert_true(json_is_integer(line));
        line_value = json_number_value(line);
        sum += line_value;
    }
    assert_true(fabs(sum - number(result, "memory.planned_bytes")) < 0.5);
    json_t *seconds = member(result, "step_seconds");
    assert_int_equal(json_array_size(seconds), STEPS);
    for (size_t i = 0; i < STEPS; i++) assert_true(json_number_value(json_array_get(seconds, i)) > 0);
    assert_true(json_is_object(member(result, "environment.cpu")));
    json_decref(result);
}

TEST(metrics_have_a_record_per_step)
{
    need_program();
    char path[LINE], text[LINE];
    snprintf(path, sizeof path, "%s/output/tiny-llama/metrics.jsonl", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    int    steps = 0, evaluations = 0, checkpoints = 0;
    double last_loss = 0;
    while (fgets(text, sizeof text, file)) {
        json_t *record = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(record);
        const char *event = json_string_value(json_object_get(record, "event"));
        if (!event) {
            assert_int_equal(number(record, "step"), ++steps);
            last_loss = number(record, "loss");
            double      sum = 0, seconds = number(record, "seconds");
            json_t     *phase;
            const char *name;
            json_object_foreach(member(record, "phases"), name, phase) sum += json_number_value(phase);
            assert_true(fabs(sum - seconds) <= 1e-9 * seconds + 1e-12); /* the ledger adds up */
            assert_int_equal(number(record, "tokens"), 64);
            assert_true(number(record, "grad_norm") > 0 && number(record, "learning_rate") > 0);
        } else if (strcmp(event, "evaluation") == 0) {
            evaluations++;
        } else {
            assert_string_equal(event, "checkpoint");
            checkpoints++;
        }
        json_decref(record);
    }
    fclose(file);
    assert_int_equal(steps, STEPS);
    assert_int_equal(evaluations, 2);
    assert_int_equal(checkpoints, 2);
    json_t *result = load("output/tiny-llama/result.json");
    assert_true(fabs(number(result, "loss.last") - last_loss) <= 0);
    json_decref(result);
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

TEST(explain_agrees_with_the_run)
{
    need_program();
    char arguments[LINE / 2];
    snprintf(arguments, sizeof arguments, "explain %s --json", run_arguments + 4);
    assert_int_equal(start(arguments, "explain.json"), 0);
    json_t *explain = load("explain.json"), *result = load("output/tiny-llama/result.json");
    assert_true(fabs(number(explain, "parameters") - number(result, "parameters")) <= 0);
    assert_true(fabs(number(explain, "arena_bytes") - number(result, "memory.planned_bytes")) <= 0);
    json_decref(explain);
    json_decref(result);
}

TEST_FIXTURE(open_folder, remove_folder)
