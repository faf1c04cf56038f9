/* SPDX-License-Identifier: Apache-2.0 */
/* result.json and metrics.jsonl are what docs/schemas/ says of them. */
#include "support/fake_run.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/schema.h"

#include "support/test.h"

#include "record/record.h"
#include "system/environment.h"

static json_t *schema_of(const char *path)
{
    json_error_t cause;
    json_t      *schema = json_load_file(path, 0, &cause);
    if (!schema) fail_msg("%s:%d: %s", path, cause.line, cause.text);
    return schema;
}

static void expect(const json_t *schema, const json_t *value)
{
    tm_text why = { 0 };
    if (!schema_check(schema, value, "", &why)) fail_msg("%s", why.data);
    tm_text_fini(&why);
}

static void expect_not(const json_t *schema, const json_t *value, const char *words)
{
    tm_text why = { 0 };
    assert_false(schema_check(schema, value, "", &why));
    if (!strstr(why.data, words)) fail_msg("'%s' lacks '%s'", why.data, words);
    tm_text_fini(&why);
}

/* With all that a run hands to it. */
static json_t *written_result(bool looked, bool ranks)
{
    tm_sink          *sink;
    tm_error          err = { 0 };
    tm_checks         checks = { 0 };
    tm_environment   *environment = tm_environment_read("");
    tm_config        *config = test_full_config();
    tm_result_options options = { .path = test_in_folder("result.json"),
                                  .configuration_hash = "0123456789abcdef",
                                  .checks = &checks,
                                  .environment = environment,
                                  .config = config };
    assert_int_equal(tm_config_apply_preset(config, "tiny-llama", &err), TM_OK);
    assert_int_equal(tm_config_finish(config, &err), TM_OK);
    assert_int_equal(tm_result_sink_open(&options, &sink, &err), TM_OK);
    if (looked) fake_emit(sink, fake_look(2));
    if (looked) fake_emit(sink, fake_look(4));
    fake_run(sink, TM_VERDICT_VALID, "");
    if (ranks) { /* the same run on two ranks: written once more */
        const tm_rank_told told[2] = {
            { .host = "a", .step_seconds = 2, .busy_seconds = 1, .wait_seconds = 1, .behind = -0.5, .used_bytes = 7 },
            { .rank = 1, .data_rank = 1, .host = "b", .step_seconds = 2, .busy_seconds = 2, .behind = 1 }
        };
        tm_event event = fake_ended(FAKE_STEPS, TM_VERDICT_VALID, ""), straggler = fake_straggler(2);
        event.run_ended.ranks = told;
        event.run_ended.n_ranks = 2;
        event.run_ended.stragglers = &straggler.straggler;
        event.run_ended.n_stragglers = 1;
        event.run_ended.replay.mismatches[0] = (tm_replay_mismatch){ .step = 3,
                                                                     .ranks = 1,
                                                                     .host = "a",
                                                                     .device = "cpu",
                                                                     .tensor = "layers.0.w1.weight.grad",
                                                                     .op = "linear_wgrad",
                                                                     .end = 1024,
                                                                     .bits = 1,
                                                                     .tensors = 1,
                                                                     .parts = 1,
                                                                     .sure = true,
                                                                     .wrong = "first" };
        event.run_ended.replay.n_mismatches = 1;
        event.run_ended.replay.excluded_per_hour = (double)NAN;
        fake_emit(sink, event);
    }
    fake_close(sink);
    json_t *result = json_load_file(options.path, 0, NULL);
    assert_non_null(result);
    tm_config_destroy(config);
    tm_environment_destroy(environment);
    return result;
}

TEST(results_follow_their_schema)
{
    json_t *schema = schema_of("docs/schemas/result.schema.json"), *result = written_result(false, false);
    expect(schema, result);
    /* and the schema holds: each of these is wrong */
    json_object_set_new(result, "verdict", json_string("good"));
    expect_not(schema, result, "/verdict: is none of the words");
    json_object_set_new(result, "verdict", json_string("valid"));
    json_object_set_new(result, "more", json_true());
    expect_not(schema, result, "has the unknown member more");
    json_object_del(result, "more");
    json_object_del(json_object_get(result, "memory"), "used_bytes");
    expect_not(schema, result, "/memory: lacks used_bytes");
    json_object_set_new(json_object_get(result, "memory"), "used_bytes", json_string("1"));
    expect_not(schema, result, "/memory/used_bytes: is of another type");
    json_decref(result);
    json_decref(schema);
}

TEST(what_a_microscope_saw_follows_it_too)
{
    json_t *schema = schema_of("docs/schemas/result.schema.json"), *result = written_result(true, false);
    json_t *seen = json_object_get(result, "microscope"), *last = json_object_get(seen, "last");
    expect(schema, result);
    assert_int_equal(json_integer_value(json_object_get(seen, "looks")), 2);
    assert_int_equal(json_integer_value(json_object_get(seen, "first_divergent_step")), 2);
    assert_string_equal(json_string_value(json_object_get(seen, "first_divergent_tensor")), "layers.0.w1.weight.grad");
    assert_int_equal(json_integer_value(json_object_get(last, "step")), 4);
    assert_int_equal(json_array_size(json_object_get(last, "tensors")), 2);
    assert_string_equal(json_string_value(json_object_get(last, "first_divergent")), "layers.0.w1.weight.grad");
    json_object_del(last, "worst");
    expect_not(schema, result, "lacks worst");
    json_decref(result);
    json_decref(schema);
}

TEST(records_of_steps_follow_theirs)
{
    tm_sink           *sink;
    tm_metrics_options options = { .path = test_in_folder("metrics.jsonl") };
    json_t            *schema = schema_of("docs/schemas/metrics.schema.json");
    size_t             lines = 0;
    assert_int_equal(tm_metrics_sink_open(&options, &sink, NULL), TM_OK);
    fake_emit(sink, fake_started());
    fake_emit(sink, fake_step(1));
    fake_emit(sink, fake_evaluation(1));
    fake_emit(sink, fake_checkpoint(1));
    fake_emit(sink, fake_look(2));
    fake_emit(sink, fake_step(2));
    fake_emit(sink, fake_quantized(2));
    fake_emit(sink, fake_straggler(2));
    fake_emit(sink, fake_replayed(2, NULL));
    fake_emit(sink, fake_replayed(2, "step 2 differs"));
    fake_close(sink);
    tm_text text = fake_read(options.path);
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        json_t *record = json_loads(line, 0, NULL);
        expect(schema, record);
        json_t *tensor = json_array_get(json_object_get(record, "tensors"), 0);
        json_t *exponents = json_object_get(tensor, "exponents"), *counts = json_object_get(exponents, "counts");
        if (tensor) assert_int_equal(json_integer_value(json_object_get(exponents, "first")), -1);
        if (tensor) assert_int_equal(json_integer_value(json_array_get(counts, 1)), 5);
        json_object_del(record, "step");
        expect_not(schema, record, "lacks step");
        json_decref(record);
    }
    assert_int_equal(lines, 9);
    json_decref(schema);
    tm_text_fini(&text);
}

TEST(ranks_follow_their_schema)
{
    json_t *schema = schema_of("docs/schemas/result.schema.json"), *result = written_result(false, true);
    json_t *second = json_array_get(json_object_get(result, "ranks"), 1);
    expect(schema, result);
    assert_int_equal(json_array_size(json_object_get(result, "ranks")), 2);
    assert_true(json_number_value(json_object_get(second, "behind_percent")) > 99);
    assert_string_equal(json_string_value(json_object_get(second, "host")), "b");
    json_t *straggler = json_array_get(json_object_get(result, "stragglers"), 0);
    assert_string_equal(json_string_value(json_object_get(straggler, "cause")), "slow");
    assert_true(json_number_value(json_object_get(straggler, "low_percent")) == 25);
    json_t *replay = json_object_get(result, "replay"),
           *differs = json_array_get(json_object_get(replay, "mismatches"), 0);
    assert_true(json_is_null(json_object_get(replay, "excluded_per_hour")));
    assert_string_equal(json_string_value(json_object_get(differs, "wrong")), "first");
    assert_string_equal(json_string_value(json_object_get(result, "waited_for")),
                        "rank 1 on b is slow: 50.0 % (25.0 .. 75.0) behind the others, most in forward; each waited "
                        "2.5 s since step 1");
    json_object_del(second, "wait_seconds");
    expect_not(schema, result, "/ranks: lacks wait_seconds");
    json_decref(result);
    json_decref(schema);
}

TEST_FIXTURE(NULL, test_folder_teardown)
