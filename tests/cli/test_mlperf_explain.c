/* SPDX-License-Identifier: Apache-2.0 */
/* What `trainmark mlperf explain` prints of two results: means in its JSON are those of the JSON's runs, every cell and
 * ratio of the text is a member of it in its unit, to its last digit. Figures: tests/mlperf/test_breakdown.c. */
#include "support/test.h"
#include "asked.h"
#include "base/file.h"
#include "support/mllogs.h"

enum { RATE = -1, CELL_AT = 38, CELL = 23 };

/* Member `name` times `factor`. A spread has its deviation beside it, a share only its mean. */
static const struct {
    const char *label, *name;
    double      factor;
    int         decimals; /* RATE: four digits */
    const char *unit;
    bool        is_signed, mean_only;
} rows[] = {
    { "score, scaled minutes", "scaled_minutes", 1, 2, "", false, false },
    { "  factor of the convergence test", "rcp_scaling_factor", 1, 5, "", false, false },
    { "time to train, minutes", "seconds", 1. / 60, 2, "", false, false },
    { "  samples to the target", "samples", 1, 0, "", false, false },
    { "  samples/s of training", "samples_per_s", 1, RATE, "", false, false },
    { "  time in training", "training_share", 100, 2, "%", false, true },
    { "  time in evaluation", "evaluation_share", 100, 2, "%", false, true },
    { "initialization (not included), s", "initialisation_s", 1, 1, "", false, false },
    { "one evaluation, s", "one_evaluation_s", 1, 2, "", false, false },
    { "samples/s of the first block", "first_block_samples_per_s", 1, RATE, "", false, true },
    { "spread of blocks within a run", "block_rate_variation", 100, 2, "%", false, false },
    { "throughput that the runs logged", "tracked_throughput", 1, RATE, "", false, false },
    { "evaluation interval, samples", "interval_samples", 1, 0, "", false, false },
    { "  samples at the target itself", "samples_at_target", 1, 0, "", false, false },
    { "  samples beyond the target", "samples_beyond_target", 1, 0, "", false, true },
    { "  rounding in the variance of samples", "rounding_share_of_variance", 100, 0, "%", false, false },
    { "  interval of least expected time", "best_interval_samples", 1, 0, "", false, false },
    { "  time change with half the interval", "finer_intervals/0/net_s", 1, 1, " s", true, false },
    { "    the same in scaled time", "finer_intervals/0/scaled_net_s", 1, 1, " s", true, false },
    { "  time change with a quarter of it", "finer_intervals/1/net_s", 1, 1, " s", true, false },
};

static double number_or_nan(const json_t *json, const char *path)
{
    const json_t *value = member(json, path);
    if (!value) fail_msg("no '%s'", path);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static void format(char out[40], double value, int decimals, const char *unit, bool is_signed)
{
    if (decimals == RATE)
        for (decimals = 3; decimals > 0 && value >= pow(10, 4 - decimals); decimals--) {
        }
    if (isfinite(value))
        snprintf(out, 40, is_signed ? "%+.*f%s" : "%.*f%s", decimals, value, unit);
    else
        strcpy(out, "-");
}

/* The first line with that label has this in the result's column. */
static void cell_is(const char *text, const char *label, size_t column, const char *wanted)
{
    char begin[80], cell[40];
    snprintf(begin, sizeof begin, "\n%-38s ", label);
    const char *line = strstr(text, begin);
    if (!line) fail_msg("no line '%s' in\n%s", label, text);
    const char *at = line + 1 + CELL_AT + CELL * column;
    snprintf(cell, sizeof cell, "%22s", wanted);
    if (strncmp(at + 1, cell, strlen(cell)) != 0 || !strchr(" \n", at[1 + strlen(cell)]))
        fail_msg("'%s', column %zu: '%.24s', wanted '%s'", label, column, at, wanted);
}

static void cells_are(const json_t *result, const char *text, size_t column)
{
    char wanted[80];
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        const json_t *spread = member(result, rows[k].name);
        if (!json_is_object(spread)) spread = NULL;
        double number = spread ? number_or_nan(spread, "mean") : number_or_nan(result, rows[k].name);
        format(wanted, number * rows[k].factor, rows[k].decimals, rows[k].unit, rows[k].is_signed);
        if (spread && !rows[k].mean_only && number_or_nan(spread, "n") > 1)
            snprintf(wanted + strlen(wanted), 40, " +- %.2f%%", 100 * number_or_nan(spread, "deviation") / number);
        cell_is(text, rows[k].label, column, wanted);
    }
    double rest = 1 - number(result, "training_share/mean") - number(result, "evaluation_share/mean");
    format(wanted, 100 * fmax(rest, 0), 2, "%", false);
    cell_is(text, "  time in neither", column, wanted);
    double seconds = number(result, "samples_beyond_target/mean") / number(result, "samples_per_s/mean");
    format(wanted, seconds / 60, 2, "", false);
    cell_is(text, "  minutes beyond the target", column, wanted);
    snprintf(wanted, sizeof wanted, "%g of %zu", number(result, "runs_that_count"),
             json_array_size(member(result, "runs")));
    cell_is(text, "runs that count", column, wanted);
    cell_is(text, "benchmark", column, string(result, "benchmark"));
    cell_is(text, "global batch size", column, "8");
}

/* Means are those of the runs that count. */
static void runs_make_means(const json_t *result)
{
    static const char *const of_run[] = { "seconds",          "samples",           "samples_per_s",
                                          "initialisation_s", "samples_at_target", "first_block_samples_per_s" };
    for (size_t k = 0; k < sizeof of_run / sizeof of_run[0]; k++) {
        double  sum = 0, n = 0;
        char    path[64];
        size_t  i;
        json_t *run;
        json_array_foreach((json_t *)member(result, "runs"), i, run)
        {
            if (json_is_true(member(run, "counts"))) sum += number(run, of_run[k]), n++;
        }
        snprintf(path, sizeof path, "%s/mean", of_run[k]);
        is(path, number(result, path), sum / n);
        is("runs that count", number(result, "runs_that_count"), n);
    }
    for (int k = 0; k < 2; k++) { /* shares of the time */
        double  share = 0;
        size_t  i;
        json_t *run;
        json_array_foreach((json_t *)member(result, "runs"), i, run)
        {
            if (!json_is_true(member(run, "counts"))) continue;
            share += number(run, k ? "evaluation_s" : "training_s") / number(run, "seconds");
        }
        is("share", number(result, k ? "evaluation_share/mean" : "training_share/mean"),
           share / number(result, "runs_that_count"));
    }
}

/* Runs of llama2_70b_lora, of which one does not converge. */
static void make_result(const char *folder, int64_t samples, int64_t ms_per_sample)
{
    for (int i = 0; i < 10; i++) {
        test_mllog log = test_mllog_good("llama2_70b_lora", 8, samples + 384 * (i % 3), i);
        log.first = 1536, log.interval = 384, log.eval_ms = 30000 + 10 * i, log.init_ms = 20000 + 1000 * i;
        log.run_ms = log.samples * (ms_per_sample + i) + 40 * log.eval_ms;
        log.loss = i == 9 ? 0.95 : 0.92, log.slope = 0.01;
        if (i == 9) log.status = "aborted";
        test_mllog_write(&log, folder, i);
    }
}

TEST(the_text_is_the_json)
{
    static const char *const factors[] = { "scaled_minutes",           "samples",  "time_per_sample",
                                           "time_outside_of_training", "trimming", "factor" };
    double                   x[6];
    tm_text                  line = { 0 };
    char                     folders[2][300];
    for (int i = 0; i < 2; i++) {
        snprintf(folders[i], sizeof folders[i], "%s", test_in_folder(i ? "b" : "a"));
        assert_int_equal(tm_folder_make(folders[i], NULL), TM_OK);
        make_result(folders[i], i ? 2688 : 3072, i ? 150 : 180);
    }
    tm_text_printf(&line, "mlperf explain %s %s", folders[0], folders[1]);
    json_t *root = asked_json(line.data, TM_OK);
    tm_text text = asked(line.data, TM_OK);
    assert_true(json_is_false(member(root, "verified_by_mlcommons")));
    assert_non_null(strstr(text.data, "\nNot verified by MLCommons Association.\n"));
    for (size_t i = 0; i < 2; i++) {
        const json_t *result = json_array_get(member(root, "results"), i);
        assert_string_equal(string(result, "folder"), folders[i]);
        assert_true(json_is_true(member(result, "valid")));
        cells_are(result, text.data, i);
        runs_make_means(result);
    }
    const char *ratio = strstr(text.data, "\nB / A: scaled");
    assert_non_null(ratio);
    assert_int_equal(sscanf(ratio + 7,
                            " scaled minutes x %lf = samples x %lf, time per sample x %lf, time outside of training "
                            "x %lf, trimming x %lf, factor x %lf",
                            &x[0], &x[1], &x[2], &x[3], &x[4], &x[5]),
                     6);
    for (size_t k = 0; k < 6; k++) assert_true(fabs(x[k] - number(member(root, "ratios/0"), factors[k])) <= 0.5001e-4);
    assert_true(number(root, "ratios/0/of") == 1 && number(root, "ratios/0/to") < 1);
    assert_true(fabs(x[0] - x[1] * x[2] * x[3] * x[4] * x[5]) < 1e-3);
    json_decref(root);
    tm_text_fini(&text), tm_text_fini(&line);
}
TEST_FIXTURE(NULL, test_folder_teardown)
