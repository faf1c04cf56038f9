/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of many results, to the letter: fleets with their logs and limits, the store's list.
 * tests/golden/whole-fleets.txt. */
#include "support/test.h"
#include "base/file.h"
#include "results/report_rules.h"
#include "results/fleet.h"
#include "results/keep.h"
#include "support/folder.h"
#include "support/whole.h"

#include <sys/stat.h>
#include <unistd.h>

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
    assert_true(chart_is_drawn(&page, "loss", runs, n) && chart_is_drawn(&page, "speed", runs, n));
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

static void fleet(const char *what, source *runs, size_t n, const tm_fleet_options *options, tm_text *out)
{
    const tm_result *results[5];
    tm_table        *table = NULL;
    size_t           failed = 0;
    tm_error         err = { 0 };
    for (size_t i = 0; i < n; i++) results[i] = runs[i].run;
    tm_status st = tm_results_fleet(results, n, options, &table, &failed, &err);
    tm_text_printf(out, "== fleet: %s\n", what);
    if (st == TM_OK) {
        tm_text_printf(out, "%zu failed\n", failed);
        add_table(table, out);
        page_says(runs, results, n, table);
    } else {
        tm_text_printf(out, "-> %s: %s\n", tm_status_text(st), err.text);
    }
    tm_table_destroy(table);
    for (size_t i = 0; i < n; i++) close_source(&runs[i]);
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
    return open_source(name, name, changed(rich, pairs), text);
}

static void fleets(tm_text *out)
{
    static const char limits_text[] =
        "{\"MBS=2,GBS=6,PRECISION=fp32\": {\"training.tokens_per_sec_per_gpu\": {\"kind\": \"min\", \"value\": "
        "950},"
        " \"training.step_time_seconds\": {\"kind\": \"max\", \"value\": 0.0625},"
        " \"training.loss\": {\"kind\": \"info\", \"value\": 1}},"
        " \"MBS=9,GBS=9,PRECISION=fp32\": {\"training.step_time_seconds\": {\"kind\": \"max\", \"value\": 0.05}}}";
    static const char whole_text[] =
        "{\"NNODES=1,STEPS=40,PRECISION=fp32,BATCH=2,GBS=6,SEQLEN=2048\": {\"training.loss\": {\"kind\": \"max\","
        " \"value\": 3}}}";
    static const char rising[] = "{\"step\": 1, \"loss\": 2, \"grad_norm\": 1}\n{\"step\": 2, \"loss\": 2.5, "
                                 "\"grad_norm\": 1}\n",
                      flat[] = "{\"step\": 1, \"loss\": 2, \"grad_norm\": 1}\n{\"step\": 2, \"loss\": 2, "
                               "\"grad_norm\": 1}\n",
                      broken[] = "{\"step\": 7, \"loss\": 2, \"grad_norm\": null}\n{\"step\": 8, \"loss\": null, "
                                 "\"grad_norm\": 1}\n{\"step\": 9, \"loss\": 1, \"grad_norm\": 1}\n";
    tm_fleet_options options = { .tolerance = 5 };
    tm_error         err = { 0 };
    source           five[] = { host("a", "\"one\"", "1000", "\"valid\"", "false", falling),
                                host("b", "\"two\"", "950", "\"noisy\"", "false", rising),
                                host("c", "\"two\"", "949", "\"valid\"", "true", flat),
                                host("d", "null", "1100", "\"invalid\"", "false", broken),
                                host("<e>", "\"<five>\"", "null", "null", "false", NULL) };
    fleet("five", five, 5, &options, out);
    source even[] = { host("a", "\"a\"", "1000", "\"valid\"", "false", falling),
                      host("b", "\"b\"", "4", "\"valid\"", "false", falling),
                      host("c", "\"c\"", "3000", "\"valid\"", "false", falling),
                      host("d", "\"d\"", "2000", "\"valid\"", "false", falling) };
    options.tolerance = 50;
    fleet("four", even, 4, &options, out);
    source two[] = { host("a", "\"a\"", "1000", "\"valid\"", "false", falling),
                     host("b", "\"b\"", "10", "\"valid\"", "false", falling) };
    assert_int_equal(tm_thresholds_parse(limits_text, strlen(limits_text), "limits", &options.limits, &err), TM_OK);
    fleet("limits", two, 2, &options, out);
    source one[] = { host("a", "\"a\"", "1000", "\"valid\"", "false", falling) };
    options.cell = "MBS=9,GBS=9,PRECISION=fp32";
    fleet("limits of a cell that was named", one, 1, &options, out);
    one[0] = host("a", "\"a\"", "1000", "\"valid\"", "false", falling);
    options.cell = "MBS=8,GBS=9,PRECISION=fp32";
    fleet("limits of a cell that is not there", one, 1, &options, out);
    tm_thresholds_destroy(options.limits);
    options = (tm_fleet_options){ .tolerance = 5 };
    assert_int_equal(tm_thresholds_parse(whole_text, strlen(whole_text), "limits", &options.limits, &err), TM_OK);
    one[0] = host("a", "\"a\"", "1000", "\"valid\"", "false", falling);
    fleet("limits of the whole run", one, 1, &options, out);
    tm_thresholds_destroy(options.limits);
    tm_text bench = { 0 };
    tm_text_add(&bench, "{\"name\": \"gemm\", \"rows\": [{\"M\": 2}]}");
    source mixed[] = { host("a", "\"a\"", "1000", "\"valid\"", "false", falling),
                       open_source("bench.json", "bench.json", bench, (tm_text){ 0 }) };
    fleet("a benchmark", mixed, 2, &(tm_fleet_options){ .tolerance = 5 }, out);
}

static void put(const char *name, const char *text)
{
    tm_error err = { 0 };
    assert_int_equal(tm_file_write(test_in_folder(name), text, strlen(text), &err), TM_OK);
}

/* The last cells of the row "log" of a run in the folder. */
static void judge_log(const char *what, tm_text *out)
{
    tm_fleet_options options = { .tolerance = 5 };
    tm_table        *table;
    tm_result       *run;
    size_t           failed;
    tm_error         err = { 0 };
    assert_int_equal(tm_result_load(test_folder(), NULL, &run, &err), TM_OK);
    assert_int_equal(tm_results_fleet((const tm_result *const[]){ run }, 1, &options, &table, &failed, &err), TM_OK);
    for (size_t r = 0; r < tm_table_n_rows(table); r++) {
        if (strcmp(tm_table_cell(table, r, 1)->text, "log") != 0) continue;
        tm_text_printf(out, "%s: %s %g %s: %s\n", what, tm_table_cell(table, r, 5)->text,
                       tm_table_cell(table, r, 3)->f64, tm_table_cell(table, r, 4)->text,
                       tm_table_cell(table, r, 6)->kind == TM_CELL_TEXT ? tm_table_cell(table, r, 6)->text : "-");
    }
    tm_table_destroy(table);
    tm_result_destroy(run);
}

static void logs(tm_text *out)
{
    static const char *const words[] = { "NCCL ERROR",
                                         "NCCL timeout",
                                         "ncclRemoteError",
                                         "ncclSystemError",
                                         "Watchdog caught collective operation timeout",
                                         "HW Exception by GPU",
                                         "GPU Hang",
                                         "GPU reset",
                                         "Uncorrectable error",
                                         "uncorrectable ECC",
                                         "Memory access fault by GPU",
                                         "torch.distributed.elastic.multiprocessing",
                                         "Out of memory: Killed process",
                                         "CUDA out of memory",
                                         "HIP out of memory",
                                         "Segmentation fault",
                                         "trainmark: error",
                                         "gpu hang" };
    tm_text                  json = fake_read(rich);
    put("result.json", json.data);
    tm_text_fini(&json);
    tm_text_add(out, "== logs\n");
    judge_log("none", out);
    put("result_0.txt", "GPU Hang\n");
    put(".log", "GPU Hang\n");
    put("run.json", "GPU Hang\n");
    judge_log("those of other names", out);
    put("run.log", "");
    judge_log("an empty one", out);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        tm_text text = { 0 };
        tm_text_printf(&text, "all is well\n\nhere: %s!\nSegmentation fault\n", words[i]);
        put("run.log", text.data);
        judge_log(words[i], out);
        tm_text_fini(&text);
    }
    put("run.log", "Segmentation fault");
    judge_log("in the first line", out);
    put("run.log", "fine\n");
    static const char *const names[] = { "a.out", "a.err", "a.txt", "result.txt" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        put(names[i], "x\nGPU reset\n");
        judge_log(names[i], out);
        remove(test_in_folder(names[i]));
    }
    put("run.log", "GPU Hang\n");
    put("a.out", "GPU Hang\n");
    tm_text two = { 0 };
    judge_log("two", &two);
    tm_text_printf(out, "two: %s\n", strstr(two.data, "FAIL 2 logs") && strstr(two.data, "; ") ? "both" : two.data);
    tm_text_fini(&two);
    remove(test_in_folder("a.out"));
    remove(test_in_folder("run.log"));
    assert_int_equal(mkdir(test_in_folder("run.log"), 0777), 0);
    tm_text bad = { 0 };
    judge_log("a folder", &bad);
    char *at = strstr(bad.data, "'");
    if (at) *at = '\0';
    tm_text_printf(out, "%s\n", bad.data);
    tm_text_fini(&bad);
    test_folder_remove();
}

/* --- the store's list --------------------------------------------------------------------------------------------- */

static void add_stored(tm_store *store, const char *what, const tm_store_filter *filter, tm_text *out)
{
    tm_arena  *arena = tm_arena_create();
    tm_stored *rows;
    size_t     n;
    tm_error   err = { 0 };
    tm_text_printf(out, "%s:", what);
    if (tm_store_list(store, filter, arena, &rows, &n, &err) != TM_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++) tm_text_printf(out, " %lld", (long long)rows[i].id);
    tm_text_add(out, "\n");
    tm_arena_destroy(arena);
}

static void print_rows(tm_store *store, tm_text *out)
{
    tm_arena  *arena = tm_arena_create();
    tm_stored *rows;
    size_t     n;
    tm_error   err = { 0 };
    assert_int_equal(tm_store_list(store, &(tm_store_filter){ 0 }, arena, &rows, &n, &err), TM_OK);
    for (size_t i = 0; i < n; i++) /* of this test only */
        if (rows[i].folder) rows[i].folder = strcmp(rows[i].folder, test_folder()) == 0 ? "the folder" : "another one";
    for (int all = 0; all < 2; all++) {
        tm_table *table = tm_results_table(rows, n, all == 1);
        add_table(table, out);
        tm_table_destroy(table);
        table = tm_results_table(rows, n > 1 ? 1 : 0, all == 1);
        add_table(table, out);
        tm_table_destroy(table);
        table = tm_results_table(rows, 0, all == 1);
        add_table(table, out);
        tm_table_destroy(table);
    }
    tm_arena_destroy(arena);
}

/* Rates with what an interval of them is in percent. */
static void widths(tm_text *out)
{
    static const double rates[][3] = { { 0.5, 0.4, 0.7 }, { 1, 1, 1 }, { 0, 0, 1 }, { -2, -3, -1 }, { 2, 1, 5 } };
    enum { RATES = sizeof rates / sizeof rates[0] };
    tm_stored rows[RATES];
    for (int i = 0; i < RATES; i++)
        rows[i] =
            (tm_stored){ .id = i, .rate = rates[i][0], .lo = rates[i][1], .hi = rates[i][2], .loss = i, .steps = 0 };
    tm_table *table = tm_results_table(rows, RATES, false);
    tm_text_add(out, "== widths\n");
    add_table(table, out);
    tm_table_destroy(table);
}

static void stored(tm_text *out)
{
    static const char *const told[] = {
        "\"finished\": \"####################\"", "\"finished\": \"2026-02-03T04:05:06Z\"", "\"environment\": null",
        "\"environment\": {\"os\": {\"host\": \"Box\"}, \"build\": {\"commit\": \"c0ffee\"}, \"process\": "
        "{\"command_line\": \"run it\"}}",
        NULL
    };
    static const char *const others[] = { "\"finished\": \"####################\"",
                                          "\"finished\": \"2026-02-04T00:00:00Z\"",
                                          "\"float32\"",
                                          "\"BFLOAT16\"",
                                          "\"device\": \"cpu\"",
                                          "\"device\": \"null\"",
                                          "\"lo\": 256",
                                          "\"lo\": 1024",
                                          NULL };
    tm_store                *store;
    tm_text                  lines = fake_read(metrics), bench = { 0 }, nameless = { 0 };
    tm_error                 err = { 0 };
    int64_t                  id;
    assert_int_equal(tm_store_open(test_in_folder("store.db"), true, &store, &err), TM_OK);
    tm_text_add(&bench, "{\"format\": \"trainmark.bench/1\", \"finished\": \"2026-02-04T00:00:01Z\", \"workload\": "
                        "\"gemm\", \"device\": \"cpu\", \"verdict\": null, \"table\": {\"name\": \"other\", \"rows\": "
                        "[{\"M\": 2}]}}");
    tm_text_add(&nameless, "{\"format\": \"trainmark.result/1\"}");
    tm_result *all[] = { run_of("a", rich, told, lines.data), run_of("b", poor, others, NULL),
                         parsed("c", &bench, NULL), parsed("d", &nameless, NULL) };
    assert_int_equal(tm_results_keep(store, all[0], test_folder(), "Label-1", &id, &err), TM_OK);
    assert_int_equal(tm_results_keep(store, all[1], NULL, NULL, &id, &err), TM_OK);
    assert_int_equal(tm_results_keep(store, all[2], "/nowhere", "label-2", &id, &err), TM_OK);
    assert_int_equal(tm_results_keep(store, all[3], NULL, NULL, &id, &err), TM_OK);
    assert_int_equal(id, 4);
    tm_text_add(out, "== stored\n");
    print_rows(store, out);
    add_stored(store, "runs", &(tm_store_filter){ .kind = "run" }, out);
    add_stored(store, "host BOX", &(tm_store_filter){ .host = "BOX" }, out);
    add_stored(store, "device CPU", &(tm_store_filter){ .device = "CPU" }, out);
    add_stored(store, "precision bfloat16", &(tm_store_filter){ .precision = "bfloat16" }, out);
    add_stored(store, "verdict NOISY", &(tm_store_filter){ .verdict = "NOISY" }, out);
    add_stored(store, "hash", &(tm_store_filter){ .hash = "00ff00ff00ff00ff" }, out);
    add_stored(store, "label LABEL-?", &(tm_store_filter){ .label = "LABEL-?" }, out);
    add_stored(store, "since, a day", &(tm_store_filter){ .since = "2026-02-04" }, out);
    add_stored(store, "until, a day", &(tm_store_filter){ .until = "2026-02-03" }, out);
    add_stored(store, "until, a time", &(tm_store_filter){ .until = "2026-02-04T00:00:00Z" }, out);
    add_stored(store, "since and until", &(tm_store_filter){ .since = "2026-02-04", .until = "2026-02-04" }, out);
    add_stored(store, "below 3, two", &(tm_store_filter){ .before = 3, .limit = 2 }, out);
    add_stored(store, "all but one", &(tm_store_filter){ .limit = 3 }, out);
    for (int i = 0; i < 3; i++) {
        tm_text back = { 0 };
        bool    there;
        assert_int_equal(tm_store_document(store, 1, (tm_document)i, &back, &there, &err), TM_OK);
        tm_text_printf(out, "%s: %s, %zu bytes\n", tm_document_file((tm_document)i), there ? "there" : "not there",
                       back.length);
        tm_text_fini(&back);
    }
    assert_int_equal(tm_results_export(store, 1, test_in_folder("out"), &err), TM_OK);
    tm_text back = fake_read(test_in_folder("out/metrics.jsonl"));
    assert_string_equal(back.data, lines.data);
    tm_text_fini(&back);
    assert_int_equal(access(test_in_folder("out/config.yaml"), F_OK), -1);
    remove(test_in_folder("out/result.json"));
    assert_int_equal(tm_results_export(store, 1, test_in_folder("out"), &err), TM_INVALID);
    assert_non_null(strstr(err.text, "/out/metrics.jsonl' already exists; name another directory"));
    assert_int_equal(access(test_in_folder("out/result.json"), F_OK), 0);
    /* documents go with their result */
    assert_int_equal(tm_store_delete(store, (int64_t[]){ 1 }, 1, &err), TM_OK);
    bool    there = true;
    tm_text gone = { 0 };
    assert_int_equal(tm_store_document(store, 1, TM_DOCUMENT_RESULT, &gone, &there, &err), TM_OK);
    assert_false(there);
    for (int i = 0; i < 4; i++) tm_result_destroy(all[i]);
    tm_text_fini(&lines);
    tm_store_close(store);
    test_folder_remove();
}

static void fleets_say_all(void **state)
{
    (void)state;
    tm_text out = { 0 };
    fleets(&out);
    logs(&out);
    stored(&out);
    widths(&out);
    whole_is("tests/golden/whole-fleets.txt", &out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(fleets_say_all),
};

TM_TESTS(tests, NULL, test_folder_teardown)
