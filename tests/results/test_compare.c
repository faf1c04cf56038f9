/* SPDX-License-Identifier: Apache-2.0 */
/* Two results side by side: every figure of a run and of a benchmark, what differs of them, as whole tables. */
#include "results/compare.h"

#include "support/test.h"

static tm_result *result_of(const char *text)
{
    tm_text    source = { 0 };
    tm_result *r = NULL;
    tm_error   err = { 0 };
    tm_text_add(&source, text);
    if (tm_result_parse("r.json", &source, NULL, NULL, &r, &err) != TM_OK) fail_msg("%s", err.text);
    tm_text_fini(&source);
    return r;
}

/* Cells between '|', numbers in six digits, a line for each row. */
static void expect_table(tm_table *table, const char *wanted)
{
    tm_text out = { 0 };
    tm_text_add(&out, "");
    for (size_t c = 0; c < tm_table_n_columns(table); c++)
        tm_text_printf(&out, "%s%s", c ? "|" : "", tm_table_column_at(table, c)->name);
    for (size_t i = 0; i < tm_table_n_rows(table); i++)
        for (size_t c = 0; c < tm_table_n_columns(table); c++) {
            const tm_cell *cell = tm_table_cell(table, i, c);
            tm_text_add(&out, c ? "|" : "\n");
            if (cell->kind == TM_CELL_TEXT) tm_text_add(&out, cell->text);
            if (cell->kind == TM_CELL_F64) tm_text_printf(&out, "%.6g", cell->f64);
            if (cell->kind == TM_CELL_I64) tm_text_printf(&out, "%lld", (long long)cell->i64);
        }
    if (strcmp(out.data, wanted) != 0) fail_msg("\n%s\n--- wanted\n%s", out.data, wanted);
    tm_text_fini(&out);
    tm_table_destroy(table);
}

#define HEAD "figure|unit|a|b|relative_change_percent|change_lo|change_hi"

static const char run_a[] =
    "{\"format\":\"trainmark.result/1\",\"model\":\"m\","
    "\"tokens_per_second_per_device\":{\"median\":1000,\"lo\":990,\"hi\":1010},"
    "\"tokens_per_second_per_device_overall\":{\"value\":900,\"lo\":880,\"hi\":920},"
    "\"step_time\":{\"median\":2,\"p95\":3,\"variation_percent\":0},\"first_step_seconds\":5,"
    "\"loss\":{\"first\":9,\"last\":4,\"validation\":-1},"
    "\"memory\":{\"planned_bytes\":100,\"used_bytes\":200},"
    "\"flops\":[{\"convention\":\"6n "
    "x\",\"per_second_per_device\":2e12},{\"convention\":\"titan\",\"per_second_per_device\":3e12}],"
    "\"seed\":1,\"devices\":2,\"options\":{\"op\":[1,2],\"json\":true},"
    "\"configuration\":{\"model.dim\":64,\"data.path\":\"x\",\"store.path\":\"q\"}}";
static const char run_b[] = "{\"format\":\"trainmark.result/1\",\"model\":\"m\","
                            "\"tokens_per_second_per_device\":{\"median\":1100,\"lo\":1080,\"hi\":1120},"
                            "\"tokens_per_second_per_device_overall\":{\"value\":905,\"lo\":885,\"hi\":925},"
                            "\"step_time\":{\"median\":1,\"p95\":6,\"variation_percent\":2},\"first_step_seconds\":5,"
                            "\"loss\":{\"first\":8,\"last\":5,\"validation\":-2},"
                            "\"memory\":{\"planned_bytes\":150,\"outside_arena_bytes\":7},"
                            "\"seed\":2,\"devices\":2,\"threads\":4,\"options\":{\"op\":[1,3],\"more\":[]},"
                            "\"configuration\":{\"model.dim\":128,\"data.path\":\"y\",\"store.path\":\"z\"}}";

TEST(runs_side_by_side)
{
    tm_result *a = result_of(run_a), *b = result_of(run_b);
    expect_table(tm_results_compare(a, b),
                 "figure|unit|a|b|relative_change_percent|change_lo|change_hi\n"
                 "tokens_per_second_per_device|tokens/s|1000|1100|10|7.74098|12.3064\n"
                 "tokens_per_second_per_device_overall|tokens/s|900|905|0.555556|-2.54701|3.7569\n"
                 "step_time median|s|2|1|-50||\n"
                 "step_time p95|s|3|6|100||\n"
                 "step_time variation|%|0|2|||\n"
                 "first_step_seconds|s|5|5|0||\n"
                 "loss first|nats|9|8|-11.1111||\n"
                 "loss last|nats|4|5|25||\n"
                 "loss validation|nats|-1|-2|100||\n"
                 "memory planned|bytes|100|150|50||");
    tm_result_destroy(a);
    tm_result_destroy(b);
}

TEST(what_differs_of_runs)
{
    tm_result *a = result_of(run_a), *b = result_of(run_b);
    expect_table(tm_results_differences(a, b), "rank|member|a|b\n"
                                               "1|configuration/model.dim|64|128\n"
                                               "2|threads||4\n"
                                               "3|options/op|[1,2]|[1,3]\n"
                                               "4|options/more||[]\n"
                                               "5|configuration/data.path|x|y\n"
                                               "6|seed|1|2");
    expect_table(tm_results_differences(b, a), "rank|member|a|b\n"
                                               "1|configuration/model.dim|128|64\n"
                                               "2|threads|4|\n"
                                               "3|options/op|[1,3]|[1,2]\n"
                                               "4|options/more|[]|\n"
                                               "5|configuration/data.path|y|x\n"
                                               "6|seed|2|1");
    expect_table(tm_results_differences(a, a), "rank|member|a|b");
    tm_result_destroy(a);
    tm_result_destroy(b);
}

static const char bench_a[] =
    "{\"name\":\"gemm\",\"rows\":["
    "{\"M\":64,\"dtype\":\"float32\",\"kernel\":\"avx2\",\"tflops\":2.5,\"avg_time_ms\":4,\"warmup_ms\":9,\"half_width_"
    "pct\":2,\"note\":\"x\"},"
    "{\"M\":128,\"dtype\":\"float32\",\"kernel\":\"avx2\",\"tflops\":3,\"avg_time_ms\":5,\"half_width_pct\":1},"
    "{\"M\":256,\"dtype\":\"float32\",\"tflops\":7}]}";
static const char bench_b[] =
    "{\"format\":\"trainmark.bench/1\",\"table\":{\"name\":\"gemm\",\"rows\":["
    "{\"M\":128,\"dtype\":\"float32\",\"kernel\":\"avx2\",\"tflops\":3.01,\"avg_time_ms\":5,\"half_width_pct\":1},"
    "{\"M\":64,\"dtype\":\"float32\",\"kernel\":\"avx2\",\"tflops\":2,\"avg_time_ms\":5,\"warmup_ms\":1,\"half_width_"
    "pct\":2,\"extra_s\":3}]}}";
static const char cases_a[] =
    "{\"name\":\"io\",\"rows\":[{\"case\":\"read\",\"mb_s\":100,\"time_us\":3,\"bytes\":7,\"gb_s\":0},"
    "{\"case\":\"write\",\"copy_gbps\":4,\"steps_per_second\":5,\"x_seconds\":6,\"y_s\":1}]}";
static const char cases_b[] =
    "{\"name\":\"io\",\"rows\":[{\"case\":\"write\",\"copy_gbps\":5,\"steps_per_second\":4,\"x_seconds\":3,\"y_s\":2},"
    "{\"case\":\"read\",\"mb_s\":110,\"time_us\":2,\"bytes\":8,\"gb_s\":1}]}";

TEST(benchmarks_side_by_side)
{
    tm_result *a = result_of(bench_a), *b = result_of(bench_b), *c = result_of(cases_a), *d = result_of(cases_b),
              *run = result_of(run_a);
    assert_int_equal(tm_result_kind_of(a), TM_RESULT_BENCH);
    expect_table(tm_results_compare(a, b), "figure|unit|a|b|relative_change_percent|change_lo|change_hi\n"
                                           "M=64 float32 avx2: tflops||2.5|2|-20|-22.231|-17.705\n"
                                           "M=64 float32 avx2: avg_time_ms||4|5|25|21.514|28.586\n"
                                           "M=128 float32 avx2: tflops||3|3.01|0.333333|-1.07561|1.76234\n"
                                           "M=128 float32 avx2: avg_time_ms||5|5|0|-1.40426|1.42426");
    expect_table(tm_results_compare(c, d), "figure|unit|a|b|relative_change_percent|change_lo|change_hi\n"
                                           "read: mb_s||100|110|10||\n"
                                           "read: time_us||3|2|-33.3333||\n"
                                           "read: gb_s||0|1|||\n"
                                           "write: copy_gbps||4|5|25||\n"
                                           "write: steps_per_second||5|4|-20||\n"
                                           "write: x_seconds||6|3|-50||\n"
                                           "write: y_s||1|2|100||");
    expect_table(tm_results_compare(a, run), HEAD);
    expect_table(tm_results_measured(a), "M|dtype|kernel|tflops|avg_time_ms|warmup_ms|half_width_pct|note\n"
                                         "64|float32|avx2|2.5|4|9|2|x\n"
                                         "128|float32|avx2|3|5||1|\n"
                                         "256|float32||7||||");
    expect_table(tm_results_measured(run), "case|tokens_per_second|tflops_6n_x|tflops_titan\nm|1000|2|3");
    tm_result_destroy(a);
    tm_result_destroy(b);
    tm_result_destroy(c);
    tm_result_destroy(d);
    tm_result_destroy(run);
}

TEST(what_is_no_result_is_refused)
{
    static const char *const all[][2] = {
        { "{", "'r.json' is not JSON: line 1: string or '}' expected near end of file" },
        { "{\"format\":\"x\"}",
          "'r.json' is not a result: member \"format\" is 'x'; wanted trainmark.result/1 (result.json of a run), "
          "trainmark.bench/1, trainmark.certificate/1, or a table of `trainmark bench --output-file F.json`" },
        { "{\"name\":\"x\"}",
          "'r.json' is not a result: member \"format\" is ''; wanted trainmark.result/1 (result.json of a run), "
          "trainmark.bench/1, trainmark.certificate/1, or a table of `trainmark bench --output-file F.json`" },
        { "{\"rows\":[]}", "'r.json' is not a result: member \"format\" is ''; wanted trainmark.result/1 (result.json "
                           "of a run), trainmark.bench/1, trainmark.certificate/1, or a table of `trainmark bench "
                           "--output-file F.json`" },
        { "{\"a\":1,\"a\":2}", "'r.json' is not JSON: line 1: duplicate object key near '\"a\"'" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tm_text    source = { 0 };
        tm_result *r = NULL;
        tm_error   err = { 0 };
        tm_text_add(&source, all[i][0]);
        assert_int_equal(tm_result_parse("r.json", &source, NULL, NULL, &r, &err), TM_FORMAT);
        assert_null(r);
        if (strcmp(err.text, all[i][1]) != 0) fail_msg("%s: %s", all[i][0], err.text);
        tm_text_fini(&source);
    }
    tm_text  source = { 0 }, metrics = { 0 };
    tm_error err = { 0 };
    tm_text_add(&source, run_a);
    tm_text_add(&metrics, "{\"step\":1}\n[2]\n");
    tm_result *r = NULL;
    assert_int_equal(tm_result_parse("r.json", &source, &metrics, NULL, &r, &err), TM_FORMAT);
    assert_string_equal(err.text, "'r.json': line 2 of metrics.jsonl is not a JSON object: ");
    tm_text_fini(&source);
    tm_text_fini(&metrics);
}
