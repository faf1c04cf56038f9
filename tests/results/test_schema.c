/* SPDX-License-Identifier: Apache-2.0 */
/* result.json and metrics.jsonl are what docs/schemas/ says of them. */
#include "support/fake_run.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/schema.h"
#include "support/told_runs.h"

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

/* As a run writes it: with its environment, checks and configuration. */
static json_t *written_result(void)
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
    tm_event          end = fake_ended(FAKE_STEPS, TM_VERDICT_VALID, "");
    assert_int_equal(tm_config_apply_preset(config, "tiny-llama", &err), TM_OK);
    assert_int_equal(tm_config_finish(config, &err), TM_OK);
    assert_int_equal(tm_result_sink_open(&options, &sink, &err), TM_OK);
    tm_event start = fake_started();
    start.run_started.judged_modules = 3; /* of a GPU */
    fake_emit(sink, start);
    end.run_ended.replay.mismatches[0] = (tm_replay_mismatch){ .step = 3,
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
    end.run_ended.replay.n_mismatches = 1;
    end.run_ended.replay.excluded_per_hour = (double)NAN;
    end.run_ended.data = (tm_data_certificate){ .done = true, .fed = true, .apart = true, .batches = 3 };
    fake_emit(sink, end);
    fake_close(sink);
    json_t *result = json_load_file(options.path, 0, NULL);
    assert_non_null(result);
    tm_config_destroy(config);
    tm_environment_destroy(environment);
    return result;
}

TEST(results_follow_their_schema)
{
    json_t *schema = schema_of("docs/schemas/result.schema.json"), *result = written_result();
    json_t *replay = json_object_get(result, "replay");
    expect(schema, result);
    assert_true(json_is_null(json_object_get(replay, "excluded_per_hour")));
    json_t *data = json_object_get(result, "certificate_data");
    assert_true(json_is_true(json_object_get(data, "fed")) && json_is_false(json_object_get(data, "once")));
    assert_true(json_is_true(json_object_get(data, "apart")) && json_is_false(json_object_get(data, "stored")));
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(json_object_get(replay, "mismatches"), 0), "wrong")), "first");
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

/* Of looks and ranks: figures are those of tests/record/test_whole.c. */
TEST(a_told_run_follows_it_too)
{
    static const char *const lacks[][2] = { { "microscope/last/worst", "lacks worst" },
                                            { "ranks/1/wait_seconds", "/ranks: lacks wait_seconds" } };
    json_t                  *schema = schema_of("docs/schemas/result.schema.json");
    tm_text                  text = told_text("rich");
    for (int i = 0; i < 2; i++) {
        json_t *result = json_loads(text.data, 0, NULL), *in = result;
        char    path[40], *rest = strcpy(path, lacks[i][0]), *name;
        expect(schema, result);
        while ((name = strsep(&rest, "/")) && rest)
            in = json_is_array(in) ? json_array_get(in, 1) : json_object_get(in, name);
        assert_int_equal(json_object_del(in, name), 0);
        expect_not(schema, result, lacks[i][1]);
        json_decref(result);
    }
    tm_text_fini(&text);
    json_decref(schema);
}

TEST(records_of_steps_follow_theirs)
{
    tm_sink           *sink;
    tm_metrics_options options = { .path = test_in_folder("metrics.jsonl") };
    json_t            *schema = schema_of("docs/schemas/metrics.schema.json");
    size_t             lines = 0;
    assert_int_equal(tm_metrics_sink_open(&options, &sink, NULL), TM_OK);
    told_rich(sink);
    fake_emit(sink, fake_replayed(2, NULL));
    fake_emit(sink, fake_replayed(2, "step 2 differs"));
    fake_close(sink);
    tm_text text = fake_read(options.path);
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        json_t *record = json_loads(line, 0, NULL);
        expect(schema, record);
        json_t *exponents = json_object_get(json_array_get(json_object_get(record, "tensors"), 0), "exponents");
        if (exponents) assert_int_equal(json_integer_value(json_object_get(exponents, "first")), -1);
        if (exponents) assert_int_equal(json_integer_value(json_array_get(json_object_get(exponents, "counts"), 1)), 5);
        json_object_del(record, "step");
        expect_not(schema, record, "lacks step");
        json_decref(record);
    }
    assert_int_equal(lines, 12);
    json_decref(schema);
    tm_text_fini(&text);
}

TEST_FIXTURE(NULL, test_folder_teardown)
