/* SPDX-License-Identifier: Apache-2.0 */
/* What is worked out of results, to the letter: recomputed figures, limits, slopes, what differs.
 * tests/golden/whole-figures.txt. */
#include "support/test.h"
#include "results/made_runs.h"
#include "results/compare.h"
#include "results/trend.h"
#include "results/verify.h"
#include "support/whole.h"

#include <jansson.h>

static const char metrics[] = "tests/golden/whole-metrics.txt";

/* --- verify ------------------------------------------------------------------------------------------------------- */

static void verify(const char *what, tm_result *run, tm_text *out)
{
    tm_table *table;
    size_t    wrong = 0;
    tm_error  err = { 0 };
    tm_status st = tm_results_verify(run, NULL, &table, &wrong, &err);
    tm_text_printf(out, "== verify: %s\n", what);
    if (st == TM_OK) {
        add_table(table, out);
        tm_text_printf(out, "%zu wrong\n", wrong);
        tm_table_destroy(table);
    } else {
        tm_text_printf(out, "-> %s: %s\n", tm_status_text(st), err.text);
    }
    tm_result_destroy(run);
}

/* Sixteen steps: enough for intervals and a steady state. */
static const char *const long_run[] = {
    "[0.5, 1, 1.5, 2]",
    "[0.5, 0.25, 0.26, 0.25, 0.24, 0.25, 0.27, 0.25, 0.26, 0.25, 0.24, 0.25, 0.25, 0.26, 0.25, 0.75]",
    "\"first\": 31",
    "\"first\": 1",
    "\"batch_tokens\": 4096",
    "\"batch_tokens\": 512",
    NULL
};
static const char *const no_times[] = { "[0.5, 1, 1.5, 2]", "[]", NULL };
static const char *const one_time[] = { "[0.5, 1, 1.5, 2]", "[0.5]", "\"data\": 0.125", "\"data\": 2", NULL };
static const char *const no_digests[] = { ",\n  \"metrics_digest\": \"daa13e4f205dc5ba\"",
                                          "",
                                          ",\n  \"digest\": \"################\"",
                                          "",
                                          "\"n\": 1234",
                                          "\"n\": null",
                                          "\"median\": 4096,",
                                          "",
                                          NULL };

static void verified(tm_text *out)
{
    tm_text lines = fake_read(metrics), few = { 0 }, more = { 0 };
    char   *end = strstr(lines.data, "{\"step\": 33");
    verify("four steps", run_of("rich", rich, NULL, lines.data), out);
    verify("two images", run_of("poor", poor, NULL, NULL), out);
    verify("sixteen steps", run_of("long", rich, long_run, NULL), out);
    static const char *const many_images[] = {
        "[0.5, 1]", "[0.5, 0.25, 0.26, 0.25, 0.24, 0.25, 0.27, 0.25, 0.26, 0.25, 0.24, 0.25, 0.25, 0.26, 0.25, 0.75]",
        "\"median\": 2,", "\"median\": 8,", NULL
    };
    verify("images of sixteen steps", run_of("images", poor, many_images, NULL), out);
    verify("no time", run_of("none", rich, no_times, lines.data), out);
    verify("one time", run_of("one", rich, one_time, lines.data), out);
    verify("nothing to compare with", run_of("bare", rich, no_digests, NULL), out);
    tm_text_add_n(&few, lines.data, (size_t)(end - lines.data));
    verify("fewer steps than times", run_of("few", rich, NULL, few.data), out);
    /* of a run that went on: steps before it, its first one is 1 */
    tm_text_add(&more, "{\"step\": 1, \"loss\": 5, \"seconds\": 0.5, \"phases\": {\"data\": 9}}\n"
                       "{\"step\": 2, \"loss\": 6, \"seconds\": 1, \"phases\": {\"data\": 0.25}}\n"
                       "{\"event\": \"evaluation\", \"step\": 2, \"loss\": 2.5, \"tokens\": 1, \"seconds\": 1}\n"
                       "{\"event\": \"evaluation\", \"step\": 3, \"loss\": 2.75, \"tokens\": 1, \"seconds\": 1}\n"
                       "{\"step\": 3, \"loss\": 7, \"seconds\": 1.5, \"phases\": {\"data\": 0.5, \"forward\": 1}}\n"
                       "{\"step\": 4, \"loss\": 2, \"seconds\": 2.5, \"phases\": {\"data\": 0.75, \"forward\": 2}}\n");
    static const char *const from_one[] = { "\"first\": 31", "\"first\": 1", NULL };
    verify("from the first step", run_of("whole", rich, from_one, more.data), out);
    static const char *const late[] = { "\"first\": 31", "\"first\": 2", "[0.5, 1, 1.5, 2]", "[1, 1.5, 2]", NULL };
    verify("from the second step", run_of("late", rich, late, more.data), out);
    tm_text bench = { 0 };
    tm_text_add(&bench, "{\"name\": \"gemm\", \"rows\": [{\"M\": 2}]}");
    verify("a benchmark", parsed("bench.json", &bench, NULL), out);
    tm_text_fini(&lines);
    tm_text_fini(&few);
    tm_text_fini(&more);
}

/* --- limits ------------------------------------------------------------------------------------------------------- */

static void add_metrics(const char *what, tm_result *run, tm_text *out)
{
    const tm_metric *all;
    const char      *cells[2];
    size_t           n = 0;
    tm_error         err = { 0 };
    tm_status        st = tm_results_metrics(run, &all, &n, cells, &err);
    tm_text_printf(out, "== limits: %s\n", what);
    for (size_t i = 0; st == TM_OK && i < n; i++) tm_text_printf(out, "%s %.9g\n", all[i].name, all[i].value);
    if (st == TM_OK)
        tm_text_printf(out, "%s\n%s\n", cells[0], cells[1]);
    else
        tm_text_printf(out, "-> %s: %s\n", tm_status_text(st), err.text);
    tm_result_destroy(run);
}

static void limits(tm_text *out)
{
    static const char *const written[] = { "\"configuration\": null",
                                           "\"configuration\": {\"training.local_batch_size\": 6, "
                                           "\"training.seq_len\": \"256\"}",
                                           "\"convention\": \"all\"",
                                           "\"convention\": \"titan\"",
                                           "\"warmup\": 3",
                                           "\"warmup\": 1",
                                           NULL };
    static const char *const bf16[] = { "\"precision\": \"float32\"",
                                        "\"precision\": \"bfloat16\"",
                                        "\"warmup\": 3",
                                        "\"warmup\": 4",
                                        "\"devices\": 3",
                                        "\"devices\": 8",
                                        NULL };
    static const char *const f16[] = { "\"precision\": \"float32\"", "\"precision\": \"float16\"", "\"warmup\": 3",
                                       "\"warmup\": -1", NULL };
    static const char *const f64[] = { "\"precision\": \"float32\"", "\"precision\": \"float64\"", NULL };
    static const char *const none[] = { "\"precision\": \"float32\"", "\"precision\": null", NULL };
    tm_text                  lines = fake_read(metrics);
    add_metrics("all", run_of("r", rich, written, lines.data), out);
    add_metrics("bfloat16", run_of("r", rich, bf16, "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": 3}\n"), out);
    add_metrics("float16", run_of("r", rich, f16, "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": 2}\n"), out);
    add_metrics("float64", run_of("r", rich, f64, NULL), out);
    add_metrics("no format", run_of("r", rich, none, NULL), out);
    add_metrics("little", run_of("r", poor, NULL, NULL), out);
    tm_text bench = { 0 };
    tm_text_add(&bench, "{\"name\": \"gemm\", \"rows\": [{\"M\": 2}]}");
    add_metrics("a benchmark", parsed("bench.json", &bench, NULL), out);
    tm_text_fini(&lines);
}

/* Losses that are 1 but at one step in turn, of runs of so many steps: which step counts, and how much. */
static void slopes(tm_text *out)
{
    static const int64_t lengths[] = { 1, 2, 19, 20, 40, 5001 };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        int64_t at[] = { 1, 2, 10, 15, 19, 20, 35, 40, 100, 105, 500, 1000, 4999, 5000 };
        tm_text_printf(out, "== slope of %lld steps:", (long long)lengths[i]);
        for (size_t k = 0; k < sizeof at / sizeof at[0] && at[k] <= lengths[i]; k++) {
            tm_text lines = { 0 };
            for (int64_t s = 1; s <= lengths[i]; s++)
                tm_text_printf(&lines, "{\"step\": %lld, \"loss\": %s}\n", (long long)s,
                               s == at[k]     ? "3"
                               : s % 977 == 5 ? "null"
                                              : "1");
            tm_result *run = run_of("r", poor, NULL, lines.data);
            tm_text_printf(out, " %lld:%.6g", (long long)at[k], tm_results_loss_slope(run));
            tm_result_destroy(run);
            tm_text_fini(&lines);
        }
        tm_text_add(out, "\n");
    }
}

/* --- what differs ------------------------------------------------------------------------------------------------- */

/* Every member that has a weight of its own, in the order of the alphabet, and neighbours of them. */
static void differences(tm_text *out)
{
    static const char *const members[] = {
        "batch_tokens",
        "configuration/activation_checkpoint.mode",
        "configuration/checkpoint.enable",
        "configuration/data.path",
        "configuration/debug.seed",
        "configuration/log.level",
        "configuration/loss.chunk",
        "configuration/lr_scheduler.decay",
        "configuration/metrics.log_freq",
        "configuration/model.dim",
        "configuration/models.dim",
        "configuration/optimizer.lr",
        "configuration/parallelism.ranks",
        "configuration/store.path",
        "configuration/training.steps",
        "configuration/validation.steps",
        "data_source",
        "device",
        "devices",
        "environment/board/vendor",
        "environment/build/commit",
        "environment/build/flags",
        "environment/control_group/cpus",
        "environment/cpu/cores",
        "environment/cpu/mhz",
        "environment/cpu/model",
        "environment/cpu/model2",
        "environment/disks/sda",
        "environment/drivers/amdgpu",
        "environment/libraries/libc",
        "environment/libraries_total",
        "environment/memory/available_bytes",
        "environment/memory/free_bytes",
        "environment/memory/total_bytes",
        "environment/memory_modules/speed",
        "environment/os/host",
        "environment/os/kernel",
        "environment/other",
        "environment/process/pid",
        "environment/settings/governor",
        "environment/unknown/x",
        "environment/variables/OMP",
        "environment/variables/TRAINMARK_STORE",
        "environment/variables_left_out",
        "kernels",
        "model",
        "options/M",
        "options/compare",
        "options/json",
        "options/output-file",
        "options/store",
        "parameters",
        "precision",
        "seed",
        "sums",
        "threads",
        "workload",
    };
    for (int backwards = 0; backwards < 2; backwards++) {
        json_t *trees[2];
        for (int side = 0; side < 2; side++) {
            trees[side] = json_object();
            json_object_set_new(trees[side], "format", json_string("trainmark.result/1"));
            size_t n = sizeof members / sizeof members[0];
            for (size_t i = 0; i < n; i++) {
                const char *path = members[backwards ? n - 1 - i : i];
                char        name[96];
                json_t     *at = trees[side];
                for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
                    snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
                    if (!json_object_get(at, name)) json_object_set_new(at, name, json_object());
                    at = json_object_get(at, name);
                }
                json_object_set_new(at, path,
                                    i % 5 == 0   ? json_integer((json_int_t)i + side)
                                    : i % 5 == 1 ? json_real((double)i + 0.5 * side)
                                    : i % 5 == 2 ? json_boolean(side)
                                    : i % 5 == 3 ? json_string(side ? "b" : "a")
                                    : side       ? json_null()
                                                 : json_pack("[i]", 1));
            }
        }
        tm_result *runs[2];
        for (int side = 0; side < 2; side++) {
            char   *words = json_dumps(trees[side], 0);
            tm_text text = { 0 };
            tm_text_add(&text, words);
            free(words);
            json_decref(trees[side]);
            runs[side] = parsed("r", &text, NULL);
        }
        tm_table *table = tm_results_differences(runs[0], runs[1]);
        tm_text_printf(out, "== differences%s\n", backwards ? ", from behind" : "");
        add_table(table, out);
        tm_table_destroy(table);
        for (int side = 0; side < 2; side++) tm_result_destroy(runs[side]);
    }
}

/* --- side by side ------------------------------------------------------------------------------------------------- */

/* A row of all that a case is called by, and of every unit; `n` times as fast. */
static tm_result *bench_of(const char *name, int n)
{
    static const char *const more[] = {
        "tflops", "a_tflops_peak", "tokens_per_second", "copy_gbps", "mb_s", "gb_s_max"
    };
    static const char *const less[] = { "avg_time_ms", "all_seconds", "time_us", "x_s", "warmup_ms" };
    tm_text                  text = { 0 };
    tm_text_add(&text,
                "{\"name\":\"gemm\",\"rows\":[{\"M\":64,\"N\":1.5,\"dtype\":\"float32\",\"kernel\":\"k\",\"size\":7,"
                "\"op\":\"add\",\"note\":null,\"words\":\"x\",\"count\":3,\"half_width_pct\":2");
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) tm_text_printf(&text, ",\"%s\":%d", more[i], 8 * n);
    for (size_t i = 0; i < sizeof less / sizeof less[0]; i++) tm_text_printf(&text, ",\"%s\":%d", less[i], 8 / n);
    tm_text_printf(&text, "},{\"M\":64,\"op\":5,\"kernel\":1,\"dtype\":2,\"size\":\"big\",\"tflops\":%d},", n);
    tm_text_printf(&text, "{\"case\":\"c\",\"M\":%d,\"tflops\":%d},{\"M\":%d,\"tflops\":1}]}", n, n, n);
    return parsed(name, &text, NULL);
}

/* As people see them: an exponential has another last digit elsewhere. */
static void add_and_destroy(tm_table *table, tm_text *out)
{
    tm_table_print(table, TM_TABLE_MARKDOWN, out);
    tm_table_destroy(table);
}

static void side_by_side(tm_text *out)
{
    tm_result *runs[] = { run_of("rich", rich, NULL, NULL), run_of("poor", poor, NULL, NULL) };
    tm_result *benches[] = { bench_of("bench", 1), bench_of("other", 2) };
    tm_text_add(out, "== side by side\n");
    for (int i = 0; i < 2; i++) {
        add_and_destroy(tm_results_measured(runs[i]), out);
        add_and_destroy(tm_results_compare(runs[i], runs[1 - i]), out);
    }
    add_and_destroy(tm_results_measured(benches[0]), out);
    add_and_destroy(tm_results_compare(benches[0], benches[1]), out);
    add_and_destroy(tm_results_compare(benches[0], runs[0]), out);
    for (int i = 0; i < 2; i++) tm_result_destroy(runs[i]);
    for (int i = 0; i < 2; i++) tm_result_destroy(benches[i]);
}

static void figures_say_all(void **state)
{
    (void)state;
    tm_text out = { 0 };
    verified(&out);
    limits(&out);
    slopes(&out);
    differences(&out);
    side_by_side(&out);
    whole_is("tests/golden/whole-figures.txt", &out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(figures_say_all),
};

TM_TESTS(tests, NULL, NULL)
