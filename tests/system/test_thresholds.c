/* SPDX-License-Identifier: Apache-2.0 */
/* Files of limits: what is judged how, and that nothing unknown ever passes. */
#include "support/test.h"

#include "support/refusal.h"
#include "../support/folder.h"
#include "../support/fake_run.h"
#include "base/file.h"
#include "system/thresholds.h"

#define CELL "MBS=4,GBS=32,PRECISION=bf16"

/* The example of the published format. */
static const char example[] = "{ \"" CELL "\": {\n"
                              "  \"training.tokens_per_sec_per_gpu\": {\"kind\": \"min\", \"value\": 8400},\n"
                              "  \"training.step_time_p95_ms\": {\"kind\": \"max\", \"value\": 1200},\n"
                              "  \"training.loss_decreased\": {\"kind\": \"min\", \"value\": 1},\n"
                              "  \"training.final_loss\": {\"kind\": \"info\", \"value\": 15.0} },\n"
                              "  \"NNODES=2,STEPS=50,PRECISION=bf16,BATCH=4,GBS=64,SEQLEN=8192\":\n"
                              "    {\"training.eval_loss\": {\"kind\": \"max\", \"value\": 4}} }";

static tm_thresholds *parse(const char *text)
{
    tm_thresholds *t;
    tm_error       err = { 0 };
    if (tm_thresholds_parse(text, strlen(text), "limits.json", &t, &err) != TM_OK) fail_msg("%s", err.text);
    return t;
}

TEST(kinds_judge)
{
    static const struct {
        double tokens, p95, decreased;
        bool   passed[3];
    } rows[] = {
        { 8400, 1200, 1, { true, true, true } },
        { 8399.9, 1200.1, 0, { false, false, false } },
        { (double)NAN, (double)NAN, (double)NAN, { false, false, false } },
        { (double)INFINITY, 0, 2, { true, true, true } },
    };
    tm_thresholds *t = parse(example);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const tm_metric metrics[] = { { "training.step_time_p95_ms", rows[i].p95 },
                                      { "training.loss_decreased", rows[i].decreased },
                                      { "training.tokens_per_sec_per_gpu", rows[i].tokens },
                                      { "gemm.gflops_per_sec", 1 } };
        const tm_gate  *gates;
        size_t          n;
        tm_error        err = { 0 };
        if (tm_thresholds_judge(t, CELL, metrics, 4, &gates, &n, &err) != TM_OK) fail_msg("%s", err.text);
        assert_int_equal(n, 4);
        for (int k = 0; k < 3; k++) assert_int_equal(gates[k].passed, rows[i].passed[k]);
        assert_true(gates[3].passed && isnan(gates[3].measured)); /* info */
        assert_string_equal(gates[0].metric, "training.tokens_per_sec_per_gpu");
    }
    tm_thresholds_destroy(t);
}

TEST(unknown_is_an_error)
{
#define ONE(cell, metric, gate) "{\"" cell "\": {\"" metric "\": " gate "}}"
#define GOOD "{\"kind\": \"min\", \"value\": 1}"
    static const char *const rows[][2] = {
        { "", "line" },
        { "[]", "at least one cell" },
        { "{\"" CELL "\": {}}", "at least one metric" },
        { ONE(CELL, "training.tokens_per_second", GOOD), "unknown metric 'training.tokens_per_second'; did you mean" },
        { ONE(CELL, "training.loss", "3"), "expected" },
        { ONE(CELL, "training.loss", "{\"kind\": \"least\", \"value\": 1}"), "kind is 'least'" },
        { ONE(CELL, "training.loss", "{\"value\": 1}"), "kind is" },
        { ONE(CELL, "training.loss", "{\"kind\": \"min\"}"), "not a finite number" },
        { ONE(CELL, "training.loss", "{\"kind\": \"min\", \"value\": \"1\"}"), "not a finite number" },
        { ONE(CELL, "training.loss", "{\"kind\": \"min\", \"value\": 1, \"unit\": \"s\"}"), "unknown member 'unit'" },
        { ONE("GBS=32,MBS=4,PRECISION=bf16", "training.loss", GOOD), "unknown cell" },
        { ONE("MBS=0,GBS=32,PRECISION=bf16", "training.loss", GOOD), "unknown cell" },
        { ONE("MBS=1234567890123456789,GBS=32,PRECISION=bf16", "training.loss", GOOD), "unknown cell" },
        { ONE("NNODES=2,STEPS=50,PRECISION=bf16,BATCH=4,SEQLEN=8,GBS=64", "training.loss", GOOD), "unknown cell" },
        { "{\"" CELL "\": {\"training.loss\": " GOOD ", \"training.loss\": " GOOD "}}", "line" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_thresholds *t;
        tm_error       err = { 0 };
        tm_status      st = tm_thresholds_parse(rows[i][0], strlen(rows[i][0]), "limits.json", &t, &err);
        refusal_is_sound(&err);
        if (tm_status_exit_code(st) != 4 || t || !strstr(err.text, rows[i][1]) || !strstr(err.text, "limits.json"))
            fail_msg("row %zu: %s", i, err.text);
    }
}

TEST(what_was_not_measured_does_not_pass)
{
    tm_thresholds  *t = parse(example);
    const tm_metric one = { "training.loss_decreased", 1 };
    const tm_gate  *gates;
    size_t          n;
    tm_error        err = { 0 }, other = { 0 };
    assert_int_equal(tm_thresholds_judge(t, CELL, &one, 1, &gates, &n, &err), TM_INVALID);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "'training.tokens_per_sec_per_gpu' was not measured"));
    assert_int_equal(tm_thresholds_judge(t, "MBS=1,GBS=1,PRECISION=fp32", &one, 1, &gates, &n, &other), TM_INVALID);
    assert_non_null(strstr(other.text, "has no cell 'MBS=1,GBS=1,PRECISION=fp32'; it has '" CELL "' and others"));
    tm_thresholds_destroy(t);
}

TEST(written_limits_pass_what_they_were_made_from)
{
    static const tm_metric metrics[] = { { "training.tokens_per_sec_per_gpu", 1000 },
                                         { "training.step_time_p50_ms", 200 },
                                         { "training.final_loss", 3.25 },
                                         { "training.loss_decreased", 1 },
                                         { "gemm.gflops_per_sec", (double)NAN } };
    const char            *path = test_in_folder("limits.json");
    tm_thresholds         *t;
    const tm_gate         *gates;
    size_t                 n;
    tm_error               err = { 0 };
    assert_int_equal(tm_thresholds_write(path, CELL, metrics, 5, &err), TM_OK);
    const char *other = test_in_folder("other.json");
    assert_int_equal(tm_thresholds_write(other, "mine", metrics, 5, &err), TM_INVALID);
    assert_non_null(
        strstr(err.text, "other.json': unknown cell 'mine'; a key is MBS=n,GBS=n,PRECISION=word or NNODES=n,"));
    assert_false(tm_file_exists(other));
    err = (tm_error){ 0 };
    if (tm_thresholds_read(path, &t, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(tm_thresholds_judge(t, CELL, metrics, 4, &gates, &n, &err), TM_OK);
    assert_int_equal(n, 4);
    assert_true(gates[0].kind == TM_GATE_MIN && gates[0].limit == 900 && gates[0].passed);
    assert_true(gates[1].kind == TM_GATE_MAX && fabs(gates[1].limit - 220) < 1e-9 && gates[1].passed);
    assert_true(gates[2].kind == TM_GATE_INFO && gates[2].limit == 3.25);
    assert_true(gates[3].kind == TM_GATE_MIN && gates[3].passed);
    const tm_metric slower[] = { { "training.tokens_per_sec_per_gpu", 890 },
                                 { "training.step_time_p50_ms", 225 },
                                 { "training.loss_decreased", 0 } };
    assert_int_equal(tm_thresholds_judge(t, CELL, slower, 3, &gates, &n, &err), TM_OK);
    assert_false(gates[0].passed || gates[1].passed || gates[3].passed);
    tm_thresholds_destroy(t);
    assert_int_equal(tm_thresholds_read(test_in_folder("none.json"), &t, &err), TM_INVALID);
    test_folder_remove();
}

TESTS_IN_ORDER
