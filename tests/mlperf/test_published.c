/* SPDX-License-Identifier: Apache-2.0 */
/* Logs and what the public tools say of them (expected.json beside the logs): everything has to agree to the last
 * digit. Those of example/ were made for this repository (tools/make_mllog_expected.py asked the public tools); two
 * published submissions are not part of it: TRAINMARK_MLPERF_LOGS names their folder. */
#include "support/test.h"

#include "apps/mlperf/score.h"
#include "apps/mlperf/seeds.h"

#include <jansson.h>

/* NULL: absent. */
static json_t *read_expected(const char *root)
{
    char path[600];
    snprintf(path, sizeof path, "%s/expected.json", root);
    return json_load_file(path, 0, NULL);
}

static void same(double value, const json_t *wanted, const char *what)
{
    double number = json_number_value(wanted);
    if (!json_is_number(wanted)) fail_msg("%s is not in expected.json", what);
    if (!(value >= number && value <= number)) fail_msg("%s: %.17g is not %.17g", what, value, number);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text) fail_msg("'%s' is not in expected.json", key);
    return text;
}

/* Line by line; the public checker's lines begin with their level. */
static void same_lines(const tm_rcp_verdict *v, const json_t *wanted)
{
    tm_text text = { 0 };
    tm_rcp_print(v, &text);
    char *line = text.data;
    for (size_t i = 0; i < json_array_size(wanted); i++) {
        char       *end = strchr(line, '\n');
        const char *theirs = json_string_value(json_array_get(wanted, i));
        assert_non_null(end);
        *end = '\0';
        assert_memory_equal(theirs, "INFO -  ", 8);
        assert_string_equal(line, theirs + 8);
        line = end + 1;
    }
    assert_true(json_array_size(wanted) == 4);
    tm_text_fini(&text);
}

static void same_verdict(const tm_submission *s, const json_t *wanted, bool full)
{
    tm_rcp_verdict v;
    tm_error       err = { 0 };
    assert_int_equal(tm_submission_judge(s, NULL, full, &v, &err), TM_OK);
    assert_string_equal(v.passed ? "PASSED" : "FAILED", text_of(wanted, "verdict"));
    assert_string_equal(v.message, text_of(wanted, "message"));
    same(v.factor, json_object_get(wanted, "norm_factor"), "factor");
    same_lines(&v, json_object_get(wanted, "log"));
}

static void same_runs(const tm_submission *s, const tm_score *score, const json_t *runs)
{
    assert_int_equal(s->n, json_array_size(runs));
    for (size_t i = 0; i < s->n; i++) {
        const json_t *run = json_array_get(runs, i);
        assert_string_equal(s->runs[i].name, text_of(run, "file"));
        assert_string_equal(s->runs[i].report.passed ? "SUCCESS" : "FAILED", text_of(run, "compliance_5.1.0"));
        assert_int_equal(s->runs[i].rcp.converged, json_is_true(json_object_get(run, "rcp_converged")));
        same(s->runs[i].rcp.batch, json_object_get(run, "global_batch_size"), "batch");
        if (!json_is_true(json_object_get(run, "rcp_converged"))) continue; /* no time counts */
        same(s->runs[i].rcp.samples, json_object_get(run, "rcp_samples"), "samples");
        same(score->runs[i].start_ms, json_object_get(run, "run_start_ms"), "start");
        same(score->runs[i].stop_ms, json_object_get(run, "run_stop_ms"), "stop");
        same(score->runs[i].minutes, json_object_get(run, "minutes"), "minutes");
    }
}

/* All that expected.json holds of the logs below `root`. */
static void same_results(const char *root, const json_t *expected)
{
    for (size_t i = 0; i < json_array_size(expected); i++) {
        const json_t  *wanted = json_array_get(expected, i), *summary = json_object_get(wanted, "summarizer_5.1.0");
        char           path[1200];
        tm_submission *s;
        tm_score       score;
        tm_error       err = { 0 };
        snprintf(path, sizeof path, "%s/%s", root, text_of(wanted, "case"));
        if (tm_submission_open(path, TM_RULESET_5_1_0, &s, &err) != TM_OK) fail_msg("%s", err.text);
        if (tm_score_compute(s, NULL, &score, &err) != TM_OK) fail_msg("%s", err.text);
        assert_string_equal(s->benchmark, text_of(wanted, "benchmark"));
        same_runs(s, &score, json_object_get(wanted, "runs"));
        same_verdict(s, json_object_get(wanted, "rcp_pruned_rcps"), false);
        same_verdict(s, json_object_get(wanted, "rcp_full_rcps"), true);
        tm_seeds_report seeds = tm_seeds_check(s);
        assert_string_equal(seeds.passed ? "PASSED" : "FAILED", text_of(wanted, "seed_checker"));
        assert_int_equal(seeds.errors.n + seeds.warnings.n,
                         json_array_size(json_object_get(wanted, "seed_checker_log")));
        assert_true(score.valid && score.closed);
        same(score.minutes, json_object_get(wanted, "olympic_mean_minutes_unscaled"), "minutes");
        same(score.factor, json_object_get(wanted, "scaling_factor_written_by_package_checker"), "factor");
        same(score.scaled, json_object_get(summary, "time_to_train"), "scaled minutes");
        same(score.rcp.samples, json_object_get(summary, "samples_to_converge"), "samples to converge");
        same((double)score.rcp.batch, json_object_get(summary, "GBS"), "batch");
        assert_string_equal(score.rcp_word, text_of(summary, "RCP"));
        char          official[32], ours[32]; /* the published score has two decimals */
        const json_t *published = json_object_get(wanted, "official_score_minutes");
        snprintf(official, sizeof official, "%.2f", json_number_value(published));
        snprintf(ours, sizeof ours, "%.2f", score.scaled);
        if (published && strcmp(ours, official) != 0)
            print_message("# %s: %s scaled minutes, published %s\n", path, ours, official);
        tm_submission_close(s);
    }
}

TEST(results_of_our_own)
{
    json_t *expected = read_expected("tests/mlperf/example");
    assert_int_equal(json_array_size(expected), 1);
    same_results("tests/mlperf/example", expected);
    json_decref(expected);
}

TEST(published_results)
{
    const char *given = getenv("TRAINMARK_MLPERF_LOGS"), *root = given ? given : "../shared/data/mlperf";
    json_t     *expected = read_expected(root);
    if (!expected) {
        print_message("# %s has no expected.json; TRAINMARK_MLPERF_LOGS names the folder of the published logs\n",
                      root);
        skip();
    }
    assert_true(json_array_size(expected) >= 2);
    same_results(root, expected);
    json_decref(expected);
}
