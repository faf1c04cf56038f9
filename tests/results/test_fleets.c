/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of fleets: the gates of every run follow from its members, its records and the speeds of all; logs. */
#include "support/test.h"
#include "base/file.h"
#include "results/chart_rules.h"
#include "results/made_runs.h"
#include "results/fleet.h"
#include "support/folder.h"

#include <sys/stat.h>

/* --- fleets ------------------------------------------------------------------------------------------------------- */

/* The page: what passes, both charts of all runs, the gates as the table has them. */
static void page_says(const source *runs, const tm_result *const *results, size_t n, const tm_table *table)
{
    tm_text  html = { 0 };
    tm_error err = { 0 };
    assert_int_equal(tm_results_fleet_page(results, n, table, &html, &err), TM_OK);
    svg_page page = svg_read(html.data);
    size_t   gates = svg_find(&page, 0, page.n, "h2", NULL), at = gates, cells = 0;
    assert_string_equal(svg_text(&page, svg_find(&page, 0, page.n, "h1", NULL)), "Fleet report");
    assert_string_equal(svg_text(&page, svg_find(&page, 0, page.n, "b", NULL)), tm_table_note_at(table, 0));
    tm_text told = { 0 };
    chart_tells(&page, "loss", false, false, &told);
    chart_tells(&page, "speed", false, false, &told);
    for (size_t k = 0; k < n; k++) { /* a line for every run */
        char key[64];
        snprintf(key, sizeof key, "| %s\n", runs[k].name);
        assert_non_null(strstr(told.data, key));
    }
    tm_text_fini(&told);
    for (size_t row = 0; row <= tm_table_n_rows(table); row++)
        for (size_t c = 0; c < tm_table_n_columns(table); c++, cells++) {
            const tm_cell *cell = row ? tm_table_cell(table, row - 1, c) : NULL;
            const char    *name = tm_table_column_at(table, c)->name, *text, *class_name = NULL;
            while (at < page.n && strcmp(page.nodes[at].tag, row ? "td" : "th") != 0) at++;
            assert_true(at < page.n);
            text = svg_text(&page, at);
            if (!row)
                assert_string_equal(text, name);
            else if (cell->kind == TM_CELL_F64)
                assert_near(strtod(text, NULL), cell->f64, 5e-6 * fabs(cell->f64), name);
            else
                assert_string_equal(text, cell->kind == TM_CELL_TEXT ? cell->text : "");
            if (row && strcmp(name, "status") == 0)
                class_name = strcmp(text, "PASS") == 0 ? "valid" : strcmp(text, "FAIL") == 0 ? "invalid" : "noisy";
            assert_true(svg_is(&page.nodes[at++], row ? "td" : "th", class_name));
        }
    for (; at < page.n; at++) assert_string_not_equal(page.nodes[at].tag, "td");
    assert_int_equal(cells, (tm_table_n_rows(table) + 1) * tm_table_n_columns(table));
    svg_close(&page);
    tm_text_fini(&html);
}

static const char falling[] = "{\"step\": 1, \"loss\": 3, \"grad_norm\": 1, \"tokens\": 64, \"seconds\": 0.5}\n"
                              "{\"step\": 2, \"loss\": 2, \"grad_norm\": 1, \"tokens\": 64, \"seconds\": 0.5}\n";

static source host(const char *name, const char *host_name, const char *rate, const char *verdict,
                   const char *interrupted, const char *lines)
{
    tm_text     text = { 0 };
    char        environment[96], median[64], judged[64], ended[64];
    const char *pairs[] = { "\"environment\": null",
                            environment,
                            "\"median\": 4096,",
                            median,
                            "\"verdict\": \"noisy\"",
                            judged,
                            "\"interrupted\": false",
                            ended,
                            "\"configuration\": null",
                            "\"configuration\": {\"training.local_batch_size\": 2, \"training.seq_len\": 2048}",
                            NULL };
    snprintf(environment, sizeof environment, "\"environment\": {\"os\": {\"host\": %s}}", host_name);
    snprintf(median, sizeof median, "\"median\": %s,", rate);
    snprintf(judged, sizeof judged, "\"verdict\": %s", verdict);
    snprintf(ended, sizeof ended, "\"interrupted\": %s", interrupted);
    if (lines) tm_text_add(&text, lines);
    return open_source(name, changed(rich, pairs), text);
}

/* A run and what must be said of it. */
typedef struct {
    const char *name, *host, *rate, *verdict, *interrupted, *lines; /* as JSON, lines of metrics.jsonl */
    const char *shown;                                              /* the host in the table */
    double      trend;                                              /* nats per step; NAN: too few steps */
    int         broken, first_broken;                               /* steps that are not finite */
    const char *limits; /* rows behind the gates: "METRIC EXPECTED STATUS", separated by "|" */
} fleet_run;

static const tm_cell *cell_at(const tm_table *table, size_t row, const char *column)
{
    assert_true(row < tm_table_n_rows(table));
    return tm_table_cell(table, row, (size_t)tm_table_find(table, column));
}

static const char *text_at(const tm_table *table, size_t row, const char *column)
{
    const tm_cell *cell = cell_at(table, row, column);
    return cell->kind == TM_CELL_TEXT ? cell->text : "";
}

/* A row: `actual` NAN is an empty cell; the detail begins with the words. */
static void row_is(const tm_table *table, size_t row, const fleet_run *run, const char *gate, const char *expected,
                   double actual, const char *status, const char *detail)
{
    const tm_cell *cell = cell_at(table, row, "actual");
    assert_string_equal(text_at(table, row, "host"), run->shown);
    assert_string_equal(text_at(table, row, "gate"), gate);
    assert_string_equal(text_at(table, row, "expected"), expected);
    if (isnan(actual) ? cell->kind != TM_CELL_EMPTY : !(cell->kind == TM_CELL_F64 && fabs(cell->f64 - actual) < 1e-12))
        fail_msg("%s, %s: %g, wanted %g", run->shown, gate, cell->f64, actual);
    if (strcmp(text_at(table, row, "status"), status) != 0)
        fail_msg("%s, %s: %s", run->shown, gate, text_at(table, row, "status"));
    const char *is = text_at(table, row, "detail");
    if (strncmp(is, detail, strlen(detail)) != 0 || !*detail != !*is)
        fail_msg("%s, %s: '%s', wanted '%s'", run->shown, gate, is, detail);
}

/* The median of the speeds that are known; NAN: of fewer than three. */
static double median_of(const fleet_run *runs, size_t n)
{
    double known[8], swap;
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (strcmp(runs[i].rate, "null") != 0) known[count++] = strtod(runs[i].rate, NULL);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k + 1 < count; k++)
            if (known[k] > known[k + 1]) swap = known[k], known[k] = known[k + 1], known[k + 1] = swap;
    return count < 3 ? (double)NAN : count % 2 ? known[count / 2] : (known[count / 2 - 1] + known[count / 2]) / 2;
}

static size_t gates_of(const tm_table *table, size_t row, const fleet_run *run, double median, double tolerance)
{
    const bool   judged = strstr(run->verdict, "valid\"") == run->verdict + 1 || strstr(run->verdict, "noisy");
    const double speed = strcmp(run->rate, "null") == 0 ? (double)NAN : strtod(run->rate, NULL);
    const double least = median * (1 - tolerance / 100);
    const bool   stopped = strcmp(run->interrupted, "true") == 0;
    char         detail[128], expected[64] = "";
    snprintf(detail, sizeof detail, "%.*s%s: the speed is known to 9 %% only",
             strcmp(run->verdict, "null") == 0 ? 10 : (int)strlen(run->verdict) - 2,
             strcmp(run->verdict, "null") == 0 ? "no verdict" : run->verdict + 1, stopped ? ", interrupted" : "");
    row_is(table, row, run, "run", "not invalid", (double)NAN, judged && !stopped ? "PASS" : "FAIL", detail);
    snprintf(detail, sizeof detail, "first at step %d", run->first_broken);
    row_is(table, row + 1, run, "numbers", "0", run->broken,
           !run->lines   ? "RECORD"
           : run->broken ? "FAIL"
                         : "PASS",
           !run->lines   ? "no metrics.jsonl"
           : run->broken ? detail
                         : "");
    row_is(table, row + 2, run, "loss trend", "<= 0", run->trend,
           isnan(run->trend) ? "RECORD"
           : run->trend > 0  ? "FAIL"
                             : "PASS",
           isnan(run->trend) ? "too few steps" : "");
    if (!isnan(median)) snprintf(expected, sizeof expected, ">= %.6g", least);
    snprintf(detail, sizeof detail, "%+.1f %% of the median of all", 100 * (speed - median) / median);
    row_is(table, row + 3, run, "speed", expected, speed,
           isnan(median)    ? "RECORD"
           : speed >= least ? "PASS"
                            : "FAIL",
           isnan(median)  ? "fewer than three runs: no median to compare with"
           : isnan(speed) ? ""
                          : detail);
    row_is(table, row + 4, run, "log", "0", 0, "RECORD", "no log in the run directory");
    row += 5;
    char limits[300], *rest = limits;
    snprintf(limits, sizeof limits, "%s", run->limits ? run->limits : "");
    for (char *one; run->limits && (one = strsep(&rest, "|")); row++) {
        char is[200];
        snprintf(is, sizeof is, "%s %s %s %s", text_at(table, row, "gate"), text_at(table, row, "expected"),
                 text_at(table, row, "status"), text_at(table, row, "detail"));
        assert_string_equal(is, one);
        double measured = cell_at(table, row, "actual")->f64;
        assert_near(measured, strstr(is, "tokens") ? speed : strstr(is, "loss") ? 2 : 0.0625, 1e-12, is);
    }
    return row;
}

/* Every gate of every run, and how many runs pass; the page has the same. */
static void fleet_is(const fleet_run *wanted, size_t n, const tm_fleet_options *options)
{
    const tm_result *results[5] = { NULL };
    source           runs[5];
    tm_table        *table = NULL;
    size_t           failed = 0, row = 0, bad = 0;
    tm_error         err = { 0 };
    char             note[64];
    for (size_t i = 0; i < n; i++) {
        const fleet_run *w = &wanted[i];
        runs[i] = host(w->name, w->host, w->rate, w->verdict, w->interrupted, w->lines);
        results[i] = runs[i].run;
    }
    if (tm_results_fleet(results, n, options, &table, &failed, &err) != TM_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++) {
        size_t begin = row;
        bool   fails = false;
        row = gates_of(table, row, &wanted[i], median_of(wanted, n), options->tolerance);
        for (size_t k = begin; k < row; k++) fails = fails || strcmp(text_at(table, k, "status"), "FAIL") == 0;
        bad += fails;
    }
    assert_int_equal(tm_table_n_rows(table), row);
    assert_int_equal(failed, bad);
    snprintf(note, sizeof note, "%zu of %zu runs pass", n - bad, n);
    assert_string_equal(tm_table_note_at(table, 0), note);
    assert_int_equal(tm_table_n_notes(table), 1);
    page_says(runs, results, n, table);
    tm_table_destroy(table);
    for (size_t i = 0; i < n; i++) close_source(&runs[i]);
}

TEST(runs_are_judged_beside_each_other)
{
    static const char rising[] = "{\"step\": 1, \"loss\": 2, \"grad_norm\": 1}\n{\"step\": 2, \"loss\": 2.5, "
                                 "\"grad_norm\": 1}\n",
                      flat[] = "{\"step\": 1, \"loss\": 2, \"grad_norm\": 1}\n{\"step\": 2, \"loss\": 2, "
                               "\"grad_norm\": 1}\n",
                      broken[] = "{\"step\": 7, \"loss\": 2, \"grad_norm\": null}\n{\"step\": 8, \"loss\": null, "
                                 "\"grad_norm\": 1}\n{\"step\": 9, \"loss\": 1, \"grad_norm\": 1}\n";
    static const fleet_run five[] = {
        { "a", "\"one\"", "1000", "\"valid\"", "false", falling, "one", -1, 0, 0, NULL },
        { "b", "\"two\"", "950", "\"noisy\"", "false", rising, "two (b)", 0.5, 0, 0, NULL },
        { "c", "\"two\"", "949", "\"valid\"", "true", flat, "two (c)", 0, 0, 0, NULL },
        { "d", "null", "1100", "\"invalid\"", "false", broken, "d", -0.5, 2, 7, NULL },
        { "<e>", "\"<five>\"", "null", "null", "false", NULL, "<five>", NAN, 0, 0, NULL },
    };
    static const fleet_run four[] = { { "a", "\"a\"", "1000", "\"valid\"", "false", falling, "a", -1, 0, 0, NULL },
                                      { "b", "\"b\"", "4", "\"valid\"", "false", falling, "b", -1, 0, 0, NULL },
                                      { "c", "\"c\"", "3000", "\"valid\"", "false", falling, "c", -1, 0, 0, NULL },
                                      { "d", "\"d\"", "2000", "\"valid\"", "false", falling, "d", -1, 0, 0, NULL } };
    fleet_is(five, 5, &(tm_fleet_options){ .tolerance = 5 });
    fleet_is(four, 4, &(tm_fleet_options){ .tolerance = 50 });
    fleet_is(four, 3, &(tm_fleet_options){ .tolerance = 1e-9 });
    fleet_is(four, 2, &(tm_fleet_options){ .tolerance = 5 });
}

#define SHORT "MBS=2,GBS=6,PRECISION=fp32"
#define NAMED "MBS=9,GBS=9,PRECISION=fp32"
#define LONG "NNODES=1,STEPS=40,PRECISION=fp32,BATCH=2,GBS=6,SEQLEN=2048"

/* Limits of the cell that is named, else of the whole run's, else of its batch. */
TEST(limits_are_of_a_cell)
{
    static const char limits[] =
        "{\"" SHORT "\": {\"training.tokens_per_sec_per_gpu\": {\"kind\": \"min\", \"value\": 950},"
        " \"training.step_time_seconds\": {\"kind\": \"max\", \"value\": 0.0625},"
        " \"training.loss\": {\"kind\": \"info\", \"value\": 1}},"
        " \"" NAMED "\": {\"training.step_time_seconds\": {\"kind\": \"max\", \"value\": 0.05}}}";
    static const char whole[] = "{\"" SHORT "\": {\"training.loss\": {\"kind\": \"max\", \"value\": 1}}, \"" LONG
                                "\": {\"training.loss\": {\"kind\": \"max\", \"value\": 3}}}";
    fleet_run        two[] = { { "a", "\"a\"", "1000", "\"valid\"", "false", falling, "a", -1, 0, 0,
                                 "training.tokens_per_sec_per_gpu >= 950 PASS " SHORT
                                 "|training.step_time_seconds <= 0.0625 PASS " SHORT "|training.loss info 1 RECORD " SHORT },
                               { "b", "\"b\"", "10", "\"valid\"", "false", falling, "b", -1, 0, 0,
                                 "training.tokens_per_sec_per_gpu >= 950 FAIL " SHORT
                                 "|training.step_time_seconds <= 0.0625 PASS " SHORT "|training.loss info 1 RECORD " SHORT } };
    tm_fleet_options options = { .tolerance = 5 };
    tm_error         err = { 0 };
    tm_table        *table = NULL;
    size_t           failed;
    assert_int_equal(tm_thresholds_parse(limits, strlen(limits), "limits", &options.limits, &err), TM_OK);
    fleet_is(two, 2, &options);
    options.cell = NAMED;
    two[0].limits = "training.step_time_seconds <= 0.05 FAIL " NAMED;
    fleet_is(two, 1, &options);
    options.cell = "MBS=8,GBS=9,PRECISION=fp32";
    source one = host("a", "\"a\"", "1000", "\"valid\"", "false", falling);
    assert_int_equal(tm_results_fleet((const tm_result *const[]){ one.run }, 1, &options, &table, &failed, &err),
                     TM_INVALID);
    assert_string_equal(err.text, "'limits' has no cell 'MBS=8,GBS=9,PRECISION=fp32'; it has '" SHORT "' and others");
    tm_table_destroy(table);
    tm_thresholds_destroy(options.limits);
    options = (tm_fleet_options){ .tolerance = 5 };
    assert_int_equal(tm_thresholds_parse(whole, strlen(whole), "limits", &options.limits, &err), TM_OK);
    two[0].limits = "training.loss <= 3 PASS " LONG;
    fleet_is(two, 1, &options);
    tm_thresholds_destroy(options.limits);
    tm_text json = { 0 };
    tm_text_add(&json, "{\"name\": \"gemm\", \"rows\": [{\"M\": 2}]}");
    source bench = open_source("bench.json", json, (tm_text){ 0 });
    err = (tm_error){ 0 };
    const tm_result *const mixed[] = { one.run, bench.run };
    assert_int_equal(tm_results_fleet(mixed, 2, &(tm_fleet_options){ .tolerance = 5 }, &table, &failed, &err),
                     TM_INVALID);
    assert_string_equal(err.text, "'bench.json' is a benchmark; a fleet report takes runs");
    tm_table_destroy(table);
    close_source(&one);
    close_source(&bench);
}

/* --- logs --------------------------------------------------------------------------------------------------------- */

static void put(const char *name, const char *text)
{
    tm_error err = { 0 };
    assert_int_equal(tm_file_write(test_in_folder(name), text, strlen(text), &err), TM_OK);
}

/* The row "log" of a run in the folder: status, logs with a failure, and what of the detail must be there. */
static void log_is(const char *what, const char *status, int bad, const char *detail)
{
    tm_fleet_options options = { .tolerance = 5 };
    tm_table        *table;
    tm_result       *run;
    size_t           failed, row = 0;
    tm_error         err = { 0 };
    assert_int_equal(tm_result_load(test_folder(), NULL, &run, &err), TM_OK);
    assert_int_equal(tm_results_fleet((const tm_result *const[]){ run }, 1, &options, &table, &failed, &err), TM_OK);
    while (strcmp(text_at(table, row, "gate"), "log") != 0) row++;
    const char *is = text_at(table, row, "detail");
    if (strcmp(text_at(table, row, "status"), status) != 0 || !strstr(is, detail) || (!*detail && *is))
        fail_msg("%s: %s '%s', wanted %s '%s'", what, text_at(table, row, "status"), is, status, detail);
    assert_string_equal(text_at(table, row, "unit"), "logs with a failure");
    assert_true(cell_at(table, row, "actual")->f64 == bad);
    assert_int_equal(failed, bad > 0); /* the run itself is only noisy */
    tm_table_destroy(table);
    tm_result_destroy(run);
}

TEST(logs_are_searched)
{
    static const char *const words[][2] = { { "NCCL ERROR", "a collective failed" },
                                            { "NCCL timeout", "a collective timed out" },
                                            { "ncclRemoteError", "another rank failed" },
                                            { "ncclSystemError", "a collective failed" },
                                            { "Watchdog caught collective operation timeout",
                                              "a collective timed out" },
                                            { "HW Exception by GPU", "a fault of the device" },
                                            { "GPU Hang", "the device hung" },
                                            { "GPU reset", "the device was reset" },
                                            { "Uncorrectable error", "memory that cannot be corrected" },
                                            { "uncorrectable ECC", "memory that cannot be corrected" },
                                            { "Memory access fault by GPU", "a fault of the device" },
                                            { "torch.distributed.elastic.multiprocessing", "a worker failed" },
                                            { "Out of memory: Killed process", "killed for memory" },
                                            { "CUDA out of memory", "out of memory" },
                                            { "HIP out of memory", "out of memory" },
                                            { "Segmentation fault", "a crash" },
                                            { "trainmark: error", "the run ended with an error" } };
    static const char *const names[] = { "a.out", "a.err", "a.txt", "result.txt" };
    tm_text                  json = told_text(rich);
    char                     detail[96];
    put("result.json", json.data);
    tm_text_fini(&json);
    log_is("none", "RECORD", 0, "no log in the run directory");
    put("result_0.txt", "GPU Hang\n");
    put(".log", "GPU Hang\n");
    put("run.json", "GPU Hang\n");
    log_is("other names", "RECORD", 0, "no log in the run directory");
    put("run.log", "");
    log_is("an empty one", "PASS", 0, "");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        tm_text text = { 0 };
        tm_text_printf(&text, "all is well\n\nhere: %s!\nSegmentation fault\n", words[i][0]);
        put("run.log", text.data);
        snprintf(detail, sizeof detail, "run.log:3: %s", words[i][1]);
        log_is(words[i][0], "FAIL", 1, detail);
        tm_text_fini(&text);
    }
    put("run.log", "all is well\n\ngpu hang\nSegmentation fault\n");
    log_is("other letters", "FAIL", 1, "run.log:4: a crash");
    put("run.log", "Segmentation fault");
    log_is("in the first line", "FAIL", 1, "run.log:1: a crash");
    put("run.log", "fine\n");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        put(names[i], "x\nGPU reset\n");
        snprintf(detail, sizeof detail, "%s:2: the device was reset", names[i]);
        log_is(names[i], "FAIL", 1, detail);
        remove(test_in_folder(names[i]));
    }
    put("run.log", "GPU Hang\n");
    put("a.out", "GPU Hang\n");
    log_is("two", "FAIL", 2, "; ");
    remove(test_in_folder("a.out"));
    remove(test_in_folder("run.log"));
    assert_int_equal(mkdir(test_in_folder("run.log"), 0777), 0);
    log_is("a folder", "FAIL", 1, "run.log");
    test_folder_remove();
}

TEST_FIXTURE(NULL, test_folder_teardown)
