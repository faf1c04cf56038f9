/* SPDX-License-Identifier: Apache-2.0 */
/* Figures that verify recomputes, against the raw times and records of the run. Each member of a result is recomputed
 * or said not to be. */
#include "support/test.h"
#include "results/made_runs.h"
#include "base/hash.h"
#include "results/compare.h"
#include "results/verify.h"

#include <jansson.h>

/* --- verify ------------------------------------------------------------------------------------------------------- */

/* A run under verification, and what verify printed of it. */
typedef struct {
    const char *what;
    tm_result  *run;
    json_t     *tree; /* result.json */
    tm_table   *table;
} verified;

static const char *text_at(const verified *v, size_t row, const char *column)
{
    const tm_cell *cell = tm_table_cell(v->table, row, (size_t)tm_table_find(v->table, column));
    return cell->kind == TM_CELL_TEXT ? cell->text : "";
}

/* As verify prints it; "null": NAN. */
static double number_in(const char *text)
{
    char  *end;
    double value = strtod(text, &end);
    return end > text && *end == '\0' ? value : (double)NAN;
}

/* A row of this figure was recomputed as that: a number, or words that begin so. */
static void expect(const verified *v, const char *figure, const char *value)
{
    const char *found = NULL;
    for (size_t row = 0; row < tm_table_n_rows(v->table); row++) {
        if (strcmp(text_at(v, row, "figure"), figure) != 0) continue;
        found = text_at(v, row, "recomputed");
        if (isnan(number_in(value)) ? strcmp(found, value) == 0 : close_to(number_in(found), number_in(value))) return;
    }
    fail_msg("%s: %s is %s, verify: %s", v->what, figure, value, found ? found : "no row");
}

/* Figures, recomputed: "FIGURE=VALUE; ...". */
static void expect_all(const verified *v, const char *wanted)
{
    char *text = strdup(wanted), *rest = text;
    for (char *one; (one = strsep(&rest, ";"));) {
        char *value = strchr(one += *one == ' ', '=');
        if (!value) fail_msg("%s", one);
        *value++ = '\0';
        expect(v, one, value);
    }
    free(text);
}

/* Rows agree with the file, verdicts with their rows, and the count with the verdicts. */
static void rows_are_consistent(const verified *v, size_t wrong)
{
    size_t differ = 0;
    for (size_t row = 0; row < tm_table_n_rows(v->table); row++) {
        const char *figure = text_at(v, row, "figure"), *written = text_at(v, row, "written"),
                   *again = text_at(v, row, "recomputed"), *verdict = text_at(v, row, "verdict");
        json_t *member = at_path(v->tree, figure);
        bool    ok = strcmp(verdict, "ok") == 0, differs = strcmp(verdict, "differs") == 0, same;
        differ += differs;
        if (!ok && !differs) {
            assert_string_equal(verdict, "not verified");
            if (*written || *again) fail_msg("%s: %s has values: %s, %s", v->what, figure, written, again);
            continue;
        }
        if (member && strcmp(figure, "digest") != 0)
            assert_string_equal(written, json_is_null(member) ? "null" : tm_result_shown(v->run, figure));
        same = strstr(figure, "(metrics.jsonl)")
                   ? strtol(written, NULL, 10) == strtol(again, NULL, 10)
                   : strcmp(written, again) == 0 ||
                         (!isnan(number_in(written)) && close_to(number_in(written), number_in(again)));
        /* phases that exceed the steps are found by the verdict */
        if (strcmp(figure, "phases/mean_seconds (sum)") == 0)
            same = isnan(number_in(again)) || fabs(number_in(written) - number_in(again)) <= 1e-9 * number_in(again) ||
                   number_in(written) > number_in(again);
        if (same != ok) fail_msg("%s: %s, %s and %s: %s", v->what, figure, written, again, verdict);
    }
    if (differ != wrong) fail_msg("%s: %zu rows differ, %zu are counted", v->what, differ, wrong);
}

/* How many rows are of `path` or of a member in it. */
static size_t rows_of(const verified *v, const char *path)
{
    size_t n = strlen(path), count = 0;
    for (size_t row = 0; row < tm_table_n_rows(v->table); row++) {
        const char *figure = text_at(v, row, "figure");
        count += strncmp(figure, path, n) == 0 && (!figure[n] || figure[n] == '/');
    }
    return count;
}

/* Each member of the file is recomputed, or is said not to be: once. */
static void nothing_is_left_out(const verified *v)
{
    /* Part of another row: of one of the certificate, of the verdict. */
    static const char *const read_with[] = { "/measured",  "/band",      "/step_loss",       "/evaluated_loss",
                                             "/loss_band", "/gradients", "steps/interrupted" };
    const char              *key, *name;
    json_t                  *member, *one;
    char                     path[192];
    json_object_foreach(v->tree, key, member)
    {
        bool exempt = strcmp(key, "format") == 0 || strcmp(key, "digest") == 0 || strcmp(key, "metrics_digest") == 0;
        bool whole = !json_is_object(member);
        if (exempt) continue;
        if (rows_of(v, key) == 0 && !json_is_null(member)) fail_msg("%s: no row of %s", v->what, key);
        for (size_t row = 0; row < tm_table_n_rows(v->table); row++)
            if (strcmp(text_at(v, row, "figure"), key) == 0) {
                whole = true;
                if (json_is_null(member)) fail_msg("%s: a row of %s, which is null", v->what, key);
                if (rows_of(v, key) != 1) fail_msg("%s: %zu rows of %s", v->what, rows_of(v, key), key);
            }
        json_object_foreach(whole ? NULL : member, name, one)
        {
            size_t n = 0;
            snprintf(path, sizeof path, "%s/%s", key, name);
            for (size_t i = 0; i < sizeof read_with / sizeof read_with[0]; i++)
                n += strcmp(path, read_with[i]) == 0 ||
                     (strncmp(key, "certificate", 11) == 0 && strcmp(path + strlen(key), read_with[i]) == 0);
            bool loss = n > 0 && (strstr(name, "_loss") || strcmp(name, "loss_band") == 0); /* of loss_agrees */
            if (loss && rows_of(v, path) > 0) fail_msg("%s: a row of %s alone", v->what, path);
            n += rows_of(v, path);
            if (n == 0 && !json_is_null(one)) fail_msg("%s: no row of %s", v->what, path);
        }
    }
    if (rows_of(v, "metrics.jsonl") != 1) fail_msg("%s: metrics.jsonl has the wrong rows", v->what);
}

/* Of a run with the records of all its steps, or without any: these figures are recomputed so, and no other is missing.
 */
static void verify(const char *what, tm_result *run, const char *wanted)
{
    verified v = { .what = what,
                   .run = run,
                   .tree = json_loads(tm_result_document(run, TM_DOCUMENT_RESULT)->data, 0, NULL) };
    size_t   wrong = 0;
    tm_error err = { 0 };
    assert_int_equal(tm_results_verify(run, NULL, &v.table, &wrong, &err), TM_OK);
    rows_are_consistent(&v, wrong);
    expect_all(&v, wanted);
    if (!tm_result_document(run, TM_DOCUMENT_METRICS)) nothing_is_left_out(&v);
    json_decref(v.tree);
    tm_table_destroy(v.table);
    tm_result_destroy(run);
}

/* Sixteen steps: enough for a steady state. */
static const char images[] =
    "[0.5, 1] => [0.5, 0.25, 0.26, 0.25, 0.24, 0.25, 0.27, 0.25, 0.26, 0.25, 0.24, 0.25, 0.25, "
    "0.26, 0.25, 0.75]; 'median': 2, => 'median': 8,";
static const char bare[] = ",\n  'metrics_digest': 'daa13e4f205dc5ba' => ; ,\n  'digest': '################' => ; "
                           "'n': 1234 => 'n': null; 'median': 4096, => ";

TEST(figures_follow_from_times)
{
    static const char none[] = "[0.5, 1, 1.5, 2] => []";
    verify("four steps", run_of("rich", rich, NULL, NULL),
           "tokens_per_second_per_device/median=2730.6666666666665; tokens_per_second_per_device/lo=null; "
           "tokens_per_second_per_device/hi=null; tokens_per_second_per_device/n=3; "
           "tokens_per_second_per_device_overall/value=2730.6666666666665; "
           "tokens_per_second_per_device_overall/lo=null; tokens_per_second_per_device_overall/hi=null; "
           "tokens_per_second_per_device_overall/n=3; tokens_per_second_per_device_overall/effective_n=3; "
           "tokens_per_second_per_device_overall/half_width_percent=null; steps/warmup=1; step_time/median=1.5; "
           "step_time/p5=1.05; step_time/p95=1.95; step_time/variation_percent=33.33333333333333; "
           "step_time/outliers=0; steady_state/drift_percent=null; steady_state/drift_lo=null; "
           "steady_state/drift_hi=null; steady_state/shift_percent=null; steady_state/shift_step=null; "
           "steady_state/reached=false; flops/6 N/per_second_per_device=16384000000000; "
           "flops/6 N/mfu_percent=40.96; flops/all/per_second_per_device=2727936; "
           "flops/all/mfu_percent=6.81984e-06; flops/more/per_second_per_device=1.9114666666666664e+19; "
           "flops/more/mfu_percent=47786666.666666664; steps/done=4; phases/steps=3; phases/step_seconds=1.5; "
           "phases/mean_seconds (sum)=1.5; memory/planned_bytes=49048576; certificate/done=true; "
           "certificate_after/done=true; certificate/loss_agrees=true; certificate/gradients=off by 6.25e-05; "
           "certificate_after/reason=the loss moves otherwise; verdict=invalid");
    verify("two images", run_of("poor", poor, NULL, NULL),
           "tokens_per_second_per_device/median=6144; tokens_per_second_per_device/n=2; "
           "tokens_per_second_per_device_overall/value=5461.333333333333; "
           "tokens_per_second_per_device_overall/n=2; tokens_per_second_per_device_overall/effective_n=2; "
           "images_per_second_per_device/median=2; images_per_second_per_device/n=2; steps/warmup=0; "
           "step_time/median=0.75; step_time/p5=0.525; step_time/p95=0.975; "
           "step_time/variation_percent=47.14045207910317; step_time/outliers=0; steady_state/reached=false; "
           "flops/6 N + 12 L A hd S/per_second_per_device=36864000000; "
           "flops/executed by the program/per_second_per_device=33792000000; steps/done=2; phases/steps=1; "
           "phases/step_seconds=1; phases/mean_seconds (sum)=1; memory/planned_bytes=49048576");
    verify("images of sixteen steps", run_of("images", poor, images, NULL),
           "tokens_per_second_per_device/median=16384; images_per_second_per_device/median=8; "
           "images_per_second_per_device/n=15; steps/warmup=1");
    verify("no steps", run_of("none", rich, none, NULL),
           "tokens_per_second_per_device/median=null; tokens_per_second_per_device/n=0; "
           "tokens_per_second_per_device_overall/value=null; tokens_per_second_per_device_overall/n=0; "
           "tokens_per_second_per_device_overall/effective_n=0; steps/warmup=0; step_time/median=null; "
           "step_time/p5=null; step_time/p95=null; step_time/variation_percent=null; "
           "flops/6 N/per_second_per_device=null; flops/6 N/mfu_percent=null; "
           "flops/all/per_second_per_device=null; flops/all/mfu_percent=null; "
           "flops/more/per_second_per_device=null; flops/more/mfu_percent=null; steps/done=0; phases/steps=0; "
           "phases/step_seconds=null; phases/mean_seconds (sum)=null");
    verify("members are missing", run_of("bare", rich, bare, NULL),
           "step_time/median=1.5; steps/done=4; phases/steps=3");
}

TEST(figures_follow_from_records)
{
    static const char one_time[] = "[0.5, 1, 1.5, 2] => [0.5]; 'data': 0.125 => 'data': 2; 'first': 31 => 'first': 34";
    /* A run that was resumed: its records begin before its own steps. */
    static const char from_one[] =
        "{\"step\": 1, \"loss\": 5, \"seconds\": 0.5, \"phases\": {\"data\": 9}}\n"
        "{\"step\": 2, \"loss\": 6, \"seconds\": 1, \"phases\": {\"data\": 0.25}}\n"
        "{\"event\": \"evaluation\", \"step\": 2, \"loss\": 2.5, \"tokens\": 1, \"seconds\": 1}\n"
        "{\"event\": \"evaluation\", \"step\": 3, \"loss\": 2.75, \"tokens\": 1, \"seconds\": 1}\n"
        "{\"step\": 3, \"loss\": 7, \"seconds\": 1.5, \"phases\": {\"data\": 0.5, \"forward\": 1}}\n"
        "{\"step\": 4, \"loss\": 2, \"seconds\": 2.5, \"phases\": {\"data\": 0.75, \"forward\": 2}}\n";
    static const char first[] = "'first': 31 => 'first': 1";
    static const char late[] = "'first': 31 => 'first': 2; [0.5, 1, 1.5, 2] => [1, 1.5, 2]";
    static const char unevaluated[] = "'first': 31 => 'first': 4; [0.5, 1, 1.5, 2] => [2.5]";
    tm_text           lines = told_text(metrics);
    verify("four steps", run_of("rich", rich, NULL, lines.data),
           "step_seconds (metrics.jsonl)=4 equal; step (metrics.jsonl)=4 in a row; steps/first=31; loss/last=2; "
           "loss/validation=1.11; bits_per_byte=0.96875; memory/planned_bytes=5000000034; "
           "memory/resident_bytes=7000034; phases/mean_seconds/data=0.125; phases/mean_seconds/forward=0.75; "
           "preference/reward=0.5625; preference/margin=null");
    verify("one time", run_of("one", rich, one_time, lines.data),
           "steps/warmup=0; steps/done=1; phases/steps=1; phases/step_seconds=0.5; "
           "phases/mean_seconds (sum)=0.5; step_seconds (metrics.jsonl)=0 equal; "
           "step (metrics.jsonl)=1 in a row; steps/first=34; loss/validation=null; bits_per_byte=null; "
           "phases/mean_seconds/forward=1; preference/reward=0.5; preference/margin=-0.25");
    verify("from the first step", run_of("whole", rich, first, from_one),
           "step_seconds (metrics.jsonl)=3 equal; steps/first=1; loss/validation=2.75; bits_per_byte=null; "
           "loss/first=5; phases/mean_seconds/data=0.5; phases/mean_seconds/forward=1; preference/reward=null; "
           "steps/stopped=not finite");
    verify("from the second step", run_of("late", rich, late, from_one),
           "steps/warmup=0; steps/done=3; phases/steps=2; phases/step_seconds=1.75; "
           "phases/mean_seconds (sum)=1.75; step_seconds (metrics.jsonl)=2 equal; "
           "step (metrics.jsonl)=3 in a row; steps/first=2; loss/validation=2.75; bits_per_byte=null; "
           "loss/first=5; phases/mean_seconds/data=0.625; phases/mean_seconds/forward=1.5; "
           "preference/reward=null; steps/stopped=not finite");
    verify("no evaluation", run_of("alone", rich, unevaluated, from_one),
           "steps/warmup=0; steps/done=1; phases/steps=1; phases/step_seconds=2.5; "
           "phases/mean_seconds (sum)=2.5; step_seconds (metrics.jsonl)=1 equal; "
           "step (metrics.jsonl)=1 in a row; steps/first=4; loss/validation=null; bits_per_byte=null; "
           "loss/first=5; phases/mean_seconds/data=0.75; phases/mean_seconds/forward=2; preference/reward=null; "
           "steps/stopped=not finite");
    tm_text_fini(&lines);
}

/* The verdict of a row; "": there is none. */
static const char *verdict_of(const tm_table *table, const char *figure)
{
    for (size_t row = 0; row < tm_table_n_rows(table); row++)
        if (strcmp(tm_table_cell(table, row, 0)->text, figure) == 0) return tm_table_cell(table, row, 3)->text;
    return "";
}

/* Sealed by its own digests; a changed byte is found by the digest of its file. */
TEST(digests_are_of_the_whole_file)
{
    static const char *const changes[][3] = { { "ok", "ok", NULL },
                                              { "differs", "ok", "\"seed\"" },
                                              { "ok", "differs", "{" } };
    for (int i = 0; i < 3; i++) {
        char    sums[2][60];
        tm_text lines = told_text(metrics);
        snprintf(sums[0], sizeof sums[0], "daa13e4f205dc5ba => %016llx",
                 (unsigned long long)tm_hash(lines.data, lines.length));
        tm_text json = changed(rich, sums[0]);
        char   *mark = strstr(json.data, ",\n  \"digest\""), *value = strstr(json.data, ": \"################\"\n}");
        snprintf(sums[1], sizeof sums[1], "%016llx",
                 (unsigned long long)tm_hash(json.data, (size_t)(mark - json.data)));
        memcpy(value + 3, sums[1], 16);
        if (i == 1) strstr(json.data, "\"seed\"")[1] = 'd';
        if (i == 2) lines.data[lines.length - 1] = ' ';
        tm_result *run = parsed("sealed", &json, &lines);
        tm_table  *table;
        size_t     wrong;
        tm_error   err = { 0 };
        assert_int_equal(tm_results_verify(run, NULL, &table, &wrong, &err), TM_OK);
        assert_string_equal(verdict_of(table, "digest"), changes[i][0]);
        assert_string_equal(verdict_of(table, "metrics_digest"), changes[i][1]);
        tm_table_destroy(table);
        tm_result_destroy(run);
    }
}

TEST(what_has_no_raw_numbers_is_refused)
{
    tm_text          json = { 0 };
    tm_table        *table = NULL;
    size_t           wrong = 0, n;
    tm_error         err = { 0 };
    const tm_metric *all;
    const char      *cells[2];
    tm_text_add(&json, "{\"name\": \"gemm\", \"rows\": [{\"M\": 2}]}");
    tm_result *bench = parsed("bench.json", &json, NULL);
    assert_int_equal(tm_results_verify(bench, NULL, &table, &wrong, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "'bench.json' is a table of a benchmark"));
    err = (tm_error){ 0 };
    assert_int_equal(tm_results_metrics(bench, &all, &n, cells, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "'bench.json' is a benchmark"));
    tm_result_destroy(bench);
    /* fewer records than steps */
    tm_text lines = told_text(metrics);
    *strstr(lines.data, "{\"step\": 33") = '\0';
    tm_result *few = run_of("few", rich, NULL, lines.data);
    assert_int_equal(tm_results_verify(few, NULL, &table, &wrong, &err), TM_OK);
    assert_string_equal(verdict_of(table, "metrics.jsonl"), "differs");
    assert_string_equal(verdict_of(table, "loss"), "not verified");
    tm_table_destroy(table);
    tm_result_destroy(few);
    tm_text_fini(&lines);
}
