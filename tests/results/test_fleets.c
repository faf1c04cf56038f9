/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of fleets: the gates of every run, what a median and limits of cells make of them; logs. */
#include "support/test.h"
#include "base/file.h"
#include "results/chart_rules.h"
#include "results/made_runs.h"
#include "results/fleet.h"
#include "support/folder.h"

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
    tm_text text = { 0 };
    char    changes[600];
    snprintf(changes, sizeof changes,
             "'environment': null => 'environment': {'os': {'host': %s}}; 'median': 4096, => 'median': %s,; "
             "'verdict': 'noisy' => 'verdict': %s; 'interrupted': false => 'interrupted': %s; 'configuration': null => "
             "'configuration': {'training.local_batch_size': 2, 'training.seq_len': 2048}",
             host_name, rate, verdict, interrupted);
    if (lines) tm_text_add(&text, lines);
    return open_source(name, changed(rich, changes), text);
}

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

/* The runs of one report. */
typedef struct {
    const char *name, *host, *rate, *verdict, *interrupted, *lines; /* as JSON, lines of metrics.jsonl */
} fleet_run;

/* The gates whose name has `gate` in it, "HOST|GATE|EXPECTED|ACTUAL|STATUS|DETAIL", the host once; what passes; the
 * page has the same. */
static void fleet_is(const fleet_run *of, size_t n, const tm_fleet_options *options, const char *gate,
                     const char *wanted)
{
    const tm_result *results[5] = { NULL };
    source           runs[5];
    tm_table        *table = NULL;
    size_t           failed = 0, last = 0, bad = 0;
    tm_error         err = { 0 };
    tm_text          told = { 0 };
    for (size_t i = 0; i < n; i++) {
        runs[i] = host(of[i].name, of[i].host, of[i].rate, of[i].verdict, of[i].interrupted, of[i].lines);
        results[i] = runs[i].run;
    }
    if (tm_results_fleet(results, n, options, &table, &failed, &err) != TM_OK) fail_msg("%s", err.text);
    for (size_t row = 0; row < tm_table_n_rows(table); row++) {
        const tm_cell *actual = cell_at(table, row, "actual");
        const char    *host_name = text_at(table, row, "host"), *status = text_at(table, row, "status");
        bool           first = row == 0 || strcmp(text_at(table, row - 1, "host"), host_name) != 0;
        if (first) last = row;
        if (strstr(text_at(table, row, "gate"), gate)) {
            const char *detail = text_at(table, row, "detail");
            tm_text_printf(&told, "%s|%s|%s|", first ? host_name : "", text_at(table, row, "gate"),
                           text_at(table, row, "expected"));
            if (actual->kind == TM_CELL_F64) tm_text_printf(&told, "%.12g", actual->f64);
            tm_text_printf(&told, "|%s|%.*s\n", status, (int)strcspn(detail, ";"), detail);
        }
        bool fails = false; /* for the first time */
        for (size_t k = last; k < row; k++) fails = fails || strcmp(text_at(table, k, "status"), "FAIL") == 0;
        bad += !fails && strcmp(status, "FAIL") == 0;
    }
    tm_text_printf(&told, "%s\n", tm_table_note_at(table, 0));
    assert_string_equal(told.data, wanted);
    assert_int_equal(failed, bad);
    assert_int_equal(tm_table_n_notes(table), 1);
    page_says(runs, results, n, table);
    tm_table_destroy(table);
    tm_text_fini(&told);
    for (size_t i = 0; i < n; i++) close_source(&runs[i]);
}

#define KNOWN ": the speed is known to 9 % only\n"
#define LOG "|log|0|0|RECORD|no log in the run directory\n"

TEST(runs_are_judged_beside_each_other)
{
    static const char rising[] = "{\"step\": 1, \"loss\": 2, \"grad_norm\": 1}\n{\"step\": 2, \"loss\": 2.5, "
                                 "\"grad_norm\": 1}\n",
                      flat[] = "{\"step\": 1, \"loss\": 2, \"grad_norm\": 1}\n{\"step\": 2, \"loss\": 2, "
                               "\"grad_norm\": 1}\n",
                      broken[] = "{\"step\": 7, \"loss\": 2, \"grad_norm\": null}\n{\"step\": 8, \"loss\": null, "
                                 "\"grad_norm\": 1}\n{\"step\": 9, \"loss\": 1, \"grad_norm\": 1}\n";
    static const fleet_run five[] = { { "a", "\"one\"", "1000", "\"valid\"", "false", falling },
                                      { "b", "\"two\"", "950", "\"noisy\"", "false", rising },
                                      { "c", "\"two\"", "949", "\"valid\"", "true", flat },
                                      { "d", "null", "1100", "\"invalid\"", "false", broken },
                                      { "<e>", "\"<five>\"", "null", "null", "false", NULL } };
    static const fleet_run four[] = { { "a", "\"a\"", "1000", "\"valid\"", "false", falling },
                                      { "b", "\"b\"", "4", "\"valid\"", "false", falling },
                                      { "c", "\"c\"", "3000", "\"valid\"", "false", falling },
                                      { "d", "\"d\"", "2000", "\"valid\"", "false", falling } };
    fleet_is(five, 5, &(tm_fleet_options){ .tolerance = 5 }, "",
             "one|run|not invalid||PASS|valid" KNOWN "|numbers|0|0|PASS|\n"
             "|loss trend|<= 0|-1|PASS|\n"
             "|speed|>= 926.25|1000|PASS|+2.6 % of the median of all\n" LOG "two (b)|run|not invalid||PASS|noisy" KNOWN
             "|numbers|0|0|PASS|\n"
             "|loss trend|<= 0|0.5|FAIL|\n"
             "|speed|>= 926.25|950|PASS|-2.6 % of the median of all\n" LOG
             "two (c)|run|not invalid||FAIL|valid, interrupted" KNOWN "|numbers|0|0|PASS|\n"
             "|loss trend|<= 0|0|PASS|\n"
             "|speed|>= 926.25|949|PASS|-2.7 % of the median of all\n" LOG "d|run|not invalid||FAIL|invalid" KNOWN
             "|numbers|0|2|FAIL|first at step 7\n"
             "|loss trend|<= 0|-0.5|PASS|\n"
             "|speed|>= 926.25|1100|PASS|+12.8 % of the median of all\n" LOG
             "<five>|run|not invalid||FAIL|no verdict" KNOWN "|numbers|0|0|RECORD|no metrics.jsonl\n"
             "|loss trend|<= 0||RECORD|too few steps\n"
             "|speed|>= 926.25||FAIL|\n" LOG "1 of 5 runs pass\n");
    fleet_is(four, 4, &(tm_fleet_options){ .tolerance = 50 }, "speed",
             "|speed|>= 750|1000|PASS|-33.3 % of the median of all\n"
             "|speed|>= 750|4|FAIL|-99.7 % of the median of all\n"
             "|speed|>= 750|3000|PASS|+100.0 % of the median of all\n"
             "|speed|>= 750|2000|PASS|+33.3 % of the median of all\n"
             "3 of 4 runs pass\n");
    fleet_is(four, 3, &(tm_fleet_options){ .tolerance = 1e-9 }, "speed",
             "|speed|>= 1000|1000|PASS|+0.0 % of the median of all\n"
             "|speed|>= 1000|4|FAIL|-99.6 % of the median of all\n"
             "|speed|>= 1000|3000|PASS|+200.0 % of the median of all\n"
             "2 of 3 runs pass\n");
    fleet_is(four, 2, &(tm_fleet_options){ .tolerance = 5 }, "speed",
             "|speed||1000|RECORD|fewer than three runs: no median to compare with\n"
             "|speed||4|RECORD|fewer than three runs: no median to compare with\n"
             "2 of 2 runs pass\n");
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
    static const fleet_run two[] = { { "a", "\"a\"", "1000", "\"valid\"", "false", falling },
                                     { "b", "\"b\"", "10", "\"valid\"", "false", falling } };
    tm_fleet_options       options = { .tolerance = 5 };
    tm_error               err = { 0 };
    tm_table              *table = NULL;
    size_t                 failed;
    assert_int_equal(tm_thresholds_parse(limits, strlen(limits), "limits", &options.limits, &err), TM_OK);
    fleet_is(two, 2, &options, "training.",
             "|training.tokens_per_sec_per_gpu|>= 950|1000|PASS|" SHORT "\n"
             "|training.step_time_seconds|<= 0.0625|0.0625|PASS|" SHORT "\n"
             "|training.loss|info 1|2|RECORD|" SHORT "\n"
             "|training.tokens_per_sec_per_gpu|>= 950|10|FAIL|" SHORT "\n"
             "|training.step_time_seconds|<= 0.0625|0.0625|PASS|" SHORT "\n"
             "|training.loss|info 1|2|RECORD|" SHORT "\n"
             "1 of 2 runs pass\n");
    options.cell = NAMED;
    fleet_is(two, 1, &options, "training.",
             "|training.step_time_seconds|<= 0.05|0.0625|FAIL|" NAMED "\n"
             "0 of 1 runs pass\n");
    options.cell = "MBS=8,GBS=9,PRECISION=fp32";
    source one = host("a", "\"a\"", "1000", "\"valid\"", "false", falling);
    assert_int_equal(tm_results_fleet((const tm_result *const[]){ one.run }, 1, &options, &table, &failed, &err),
                     TM_INVALID);
    assert_string_equal(err.text, "'limits' has no cell 'MBS=8,GBS=9,PRECISION=fp32'; it has '" SHORT "' and others");
    tm_table_destroy(table);
    tm_thresholds_destroy(options.limits);
    options = (tm_fleet_options){ .tolerance = 5 };
    assert_int_equal(tm_thresholds_parse(whole, strlen(whole), "limits", &options.limits, &err), TM_OK);
    fleet_is(two, 1, &options, "training.",
             "|training.loss|<= 3|2|PASS|" LONG "\n"
             "1 of 1 runs pass\n");
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
    static const char *const words[][2] = { { "NCCL timeout", "a collective timed out" },
                                            { "Uncorrectable error", "memory that cannot be corrected" },
                                            { "Out of memory: Killed process", "killed for memory" },
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
