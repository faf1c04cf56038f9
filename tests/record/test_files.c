/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.jsonl, result.json and perf.csv: read back with independent readers, and what happens when the disk is full.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../support/fake_run.h"
#include "base/arena.h"
#include "base/csv.h"
#include "base/file.h"
#include "record/record.h"
#include "stats/sampling.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *const header =
    "model,n_gpus,nnodes,gpus_per_node,training_precision,pipeline,args,tags,docker_file,base_docker,docker_sha,docker_"
    "image,"
    "git_commit,machine_name,deployment_type,launcher,gpu_architecture,performance,metric,relative_change,status,"
    "build_duration,test_duration,dataname,data_provider_type,data_size,data_download_duration,build_number,"
    "additional_docker_run_options\n";

static int clean(void **state)
{
    (void)state;
    fake_remove();
    return 0;
}

static void emit(tm_sink *sink, tm_event event)
{
    sink->handle(sink, &event);
}

static void close_well(tm_sink *sink)
{
    tm_error err = { 0 };
    if (tm_sink_close(sink, &err) != TM_OK) fail_msg("%s", err.text);
}

static tm_sink *open_metrics(const char *path)
{
    tm_error           err = { 0 };
    tm_sink           *sink = NULL;
    tm_metrics_options options = { path };
    if (tm_metrics_sink_open(&options, &sink, &err) != TM_OK) fail_msg("%s", err.text);
    return sink;
}

static json_t *line_of(const tm_text *text, int index)
{
    const char *line = text->data;
    for (int i = 0; i < index; i++) {
        line = strchr(line, '\n');
        assert_non_null(line);
        line++;
    }
    json_t *record = json_loadb(line, strcspn(line, "\n"), 0, NULL);
    assert_non_null(record);
    return record;
}

static double real_of(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("\"%s\" is not a number", key);
    return json_number_value(value);
}

static int lines_of(const tm_text *text)
{
    int n = 0;
    for (size_t i = 0; i < text->length; i++) n += text->data[i] == '\n';
    return n;
}

static void metrics_records(void **state)
{
    (void)state;
    const char *path = fake_path("metrics.jsonl");
    tm_sink    *sink = open_metrics(path);
    emit(sink, fake_started());
    emit(sink, fake_step(3));
    tm_text text = fake_read(path); /* there when the event returns */
    assert_int_equal(lines_of(&text), 1);
    tm_text_fini(&text);
    tm_event broken = fake_step(4);
    broken.step_done.loss = (double)NAN;
    emit(sink, broken);
    emit(sink, fake_evaluation(4));
    emit(sink, fake_checkpoint(4));
    close_well(sink);
    text = fake_read(path);
    assert_int_equal(lines_of(&text), 4);
    json_t  *step = line_of(&text, 0);
    tm_event sent = fake_step(3);
    assert_true(real_of(step, "learning_rate") == sent.step_done.learning_rate); /* 1e-3 / 3 to the last bit */
    assert_true(real_of(step, "loss") == sent.step_done.loss);
    assert_true(real_of(step, "seconds") == sent.step_done.seconds);
    assert_int_equal(json_integer_value(json_object_get(step, "step")), 3);
    assert_int_equal(json_integer_value(json_object_get(step, "tokens")), FAKE_TOKENS);
    assert_int_equal(json_integer_value(json_object_get(step, "used_bytes")), 49048576);
    assert_int_equal(json_integer_value(json_object_get(step, "resident_bytes")), 70000000);
    assert_true(real_of(json_object_get(step, "phases"), "optimizer") == sent.step_done.phases[3].value);
    assert_non_null(strstr(text.data, "\"grad_norm\": 1.25,")); /* shortest, not 1.2500000000 */
    json_decref(step);
    step = line_of(&text, 1);
    assert_true(json_is_null(json_object_get(step, "loss")));
    json_decref(step);
    step = line_of(&text, 2);
    assert_string_equal(json_string_value(json_object_get(step, "event")), "evaluation");
    assert_true(real_of(step, "loss") == 1.11);
    json_decref(step);
    step = line_of(&text, 3);
    assert_string_equal(json_string_value(json_object_get(step, "event")), "checkpoint");
    json_decref(step);
    tm_text_fini(&text);
}

/* A run resumed at step 3 keeps the steps before it, once, and drops a torn line; one from step 1 starts anew. */
static void metrics_of_a_resumed_run(void **state)
{
    (void)state;
    const char *path = fake_path("metrics.jsonl");
    tm_sink    *sink = open_metrics(path);
    emit(sink, fake_started());
    for (int step = 1; step <= 5; step++) emit(sink, fake_step(step));
    close_well(sink);
    FILE *f = fopen(path, "a");
    fputs("{\"step\": 2, \"lo", f);
    fclose(f);
    sink = open_metrics(path);
    tm_event resumed = fake_started();
    resumed.run_started.first_step = 3;
    emit(sink, resumed);
    for (int step = 3; step <= 4; step++) emit(sink, fake_step(step));
    close_well(sink);
    tm_text text = fake_read(path);
    assert_int_equal(lines_of(&text), 4);
    for (int i = 0; i < 4; i++) {
        json_t *record = line_of(&text, i);
        assert_int_equal(json_integer_value(json_object_get(record, "step")), i + 1);
        json_decref(record);
    }
    tm_text_fini(&text);
    sink = open_metrics(path);
    emit(sink, fake_started());
    emit(sink, fake_step(1));
    close_well(sink);
    text = fake_read(path);
    assert_int_equal(lines_of(&text), 1);
    tm_text_fini(&text);
}

static void result_read_back(void **state)
{
    (void)state;
    const char       *path = fake_path("result.json");
    tm_error          err = { 0 };
    tm_sink          *sink = NULL;
    tm_environment   *environment = tm_environment_read("");
    tm_checks         checks = { 0 };
    tm_result_options options = {
        .path = path, .configuration_hash = "abc", .environment = environment, .checks = &checks
    };
    tm_checks_add(&checks, &(tm_check_result){ .id = "smt", .status = TM_CHECK_INFO, .observed = "1" });
    tm_checks_add(&checks, &(tm_check_result){ .id = "governor", .status = TM_CHECK_WARN, .observed = "powersave" });
    assert_int_equal(tm_file_write(path, "old", 3, &err), TM_OK);
    assert_int_equal(tm_result_sink_open(&options, &sink, &err), TM_OK);
    emit(sink, fake_started());
    assert_false(tm_file_exists(path)); /* a run that dies leaves no one else's result */
    close_well(sink);
    assert_int_equal(tm_result_sink_open(&options, &sink, &err), TM_OK);
    fake_run(sink, TM_VERDICT_NOISY, "line \"one\"\nline two");
    close_well(sink);
    json_t *result = json_load_file(path, 0, NULL);
    assert_non_null(result);
    assert_string_equal(json_string_value(json_object_get(result, "verdict")), "noisy");
    assert_string_equal(json_string_value(json_object_get(result, "reason")), "line \"one\"\nline two");
    assert_int_equal(json_integer_value(json_object_get(result, "parameters")), 1000000);
    assert_int_equal(json_integer_value(json_object_get(result, "seed")), 42);
    json_t  *rate = json_object_get(result, "tokens_per_second_per_device"), *loss = json_object_get(result, "loss");
    tm_event end = fake_ended(FAKE_STEPS, TM_VERDICT_NOISY, "");
    assert_true(real_of(rate, "median") == end.run_ended.tokens_per_second_median);
    assert_true(real_of(rate, "lo") <= real_of(rate, "median") && real_of(rate, "median") <= real_of(rate, "hi"));
    assert_int_equal(json_integer_value(json_object_get(rate, "n")), 59);
    assert_true(real_of(loss, "first") == 7 && real_of(loss, "last") == 1.1 && real_of(loss, "validation") == 1.11 &&
                real_of(loss, "floor") == 1.08);
    assert_true(json_is_null(json_object_get(result, "bits_per_byte")));
    assert_string_equal(json_string_value(json_object_get(result, "weights_hash")), "00c0ffee87654321");
    tm_sample_summary summary = tm_stats_summarize(end.run_ended.step_seconds, NULL, FAKE_TOKENS, FAKE_STEPS);
    json_t           *overall = json_object_get(result, "tokens_per_second_per_device_overall");
    json_t           *steady = json_object_get(result, "steady_state"), *machine = json_object_get(result, "machine");
    json_t           *step_time = json_object_get(result, "step_time");
    assert_true(real_of(overall, "value") == summary.rate && real_of(overall, "effective_n") == summary.effective_n);
    assert_true(real_of(overall, "half_width_percent") == 100 * summary.half_width);
    assert_true(real_of(step_time, "p5") == summary.p5 && real_of(step_time, "p95") == summary.p95);
    assert_true(real_of(step_time, "outliers") == 0 && real_of(step_time, "median") == summary.median);
    assert_true(json_is_true(json_object_get(steady, "reached")));
    assert_true(real_of(steady, "drift_percent") == summary.steady.drift);
    assert_true(json_is_null(json_object_get(steady, "shift_step")));
    assert_string_equal(json_string_value(json_object_get(machine, "verdict")), "valid");
    assert_true(real_of(machine, "steal_percent") == 0.25 && real_of(machine, "samples") == 55);
    assert_true(json_is_null(json_object_get(machine, "throttled_percent"))); /* unknown is not 0 */
    assert_string_equal(json_string_value(json_object_get(json_object_get(result, "steps"), "stopped")), "all steps done");
    json_t *memory = json_object_get(result, "memory"), *times = json_object_get(result, "step_seconds");
    assert_true(real_of(memory, "planned_bytes") == 49048576 && real_of(memory, "used_bytes") == 49048576 &&
                real_of(memory, "outside_arena_bytes") == 3000000);
    assert_int_equal(json_array_size(times), FAKE_STEPS);
    for (size_t i = 0; i < FAKE_STEPS; i++)
        assert_true(json_number_value(json_array_get(times, i)) == end.run_ended.step_seconds[i]);
    json_t *flops = json_array_get(json_object_get(result, "flops"), 0);
    assert_true(real_of(flops, "per_second_per_device") == 6e6 * end.run_ended.tokens_per_second_median);
    json_t     *phases = json_object_get(json_object_get(result, "phases"), "mean_seconds"), *phase;
    double      sum = 0;
    const char *name;
    json_object_foreach(phases, name, phase) sum += json_number_value(phase);
    assert_true(fabs(sum - real_of(json_object_get(result, "phases"), "step_seconds")) < 1e-12);
    assert_true(json_is_object(json_object_get(json_object_get(result, "environment"), "cpu")));
    json_t *host = json_object_get(result, "checks"), *bad = json_object_get(host, "not_passed");
    assert_true(real_of(host, "warn") == 1 && real_of(host, "info") == 1 && real_of(host, "fail") == 0);
    assert_int_equal(json_array_size(bad), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(bad, 0), "id")), "governor");
    json_decref(result);
    tm_environment_destroy(environment);
    tm_checks_fini(&checks);
}

/* Ctrl-C before the first step ended: every sink copes with an empty run. */
static void a_run_without_steps(void **state)
{
    (void)state;
    tm_error           err = { 0 };
    tm_sink           *sinks[4] = { NULL };
    char              *data = NULL;
    size_t             bytes = 0;
    tm_metrics_options metrics = { fake_path("metrics.jsonl") };
    tm_result_options  result = { .path = fake_path("result.json") };
    tm_perf_options    perf = { .path = fake_path("perf.csv") };
    tm_console_options console = { .out = open_memstream(&data, &bytes), .log_freq = 1 };
    assert_int_equal(tm_metrics_sink_open(&metrics, &sinks[0], &err), TM_OK);
    assert_int_equal(tm_result_sink_open(&result, &sinks[1], &err), TM_OK);
    assert_int_equal(tm_perf_sink_open(&perf, &sinks[2], &err), TM_OK);
    assert_int_equal(tm_console_sink_open(&console, &sinks[3], &err), TM_OK);
    tm_event end = fake_ended(0, TM_VERDICT_NOT_JUDGED, "interrupted");
    end.run_ended.step_seconds = NULL;
    for (int i = 0; i < 4; i++) {
        emit(sinks[i], fake_started());
        emit(sinks[i], end);
        close_well(sinks[i]);
    }
    fclose(console.out);
    assert_non_null(strstr(data, "not-judged"));
    assert_null(strstr(data, "performance:"));
    free(data);
    json_t *object = json_load_file(result.path, 0, NULL);
    assert_true(json_is_null(json_object_get(json_object_get(object, "tokens_per_second_per_device"), "median")));
    assert_int_equal(json_array_size(json_object_get(object, "step_seconds")), 0);
    json_decref(object);
    tm_text text = fake_read(perf.path);
    assert_non_null(strstr(text.data, ",FAILURE,"));
    tm_text_fini(&text);
}

/* Once a run is under way, recording it takes no more memory. */
static void steady_recording_allocates_nothing(void **state)
{
    (void)state;
    tm_error           err = { 0 };
    tm_sink           *sinks[2] = { NULL };
    char              *data = NULL;
    size_t             bytes = 0;
    tm_metrics_options metrics = { fake_path("metrics.jsonl") };
    tm_console_options console = { .out = open_memstream(&data, &bytes), .log_freq = 1 };
    assert_int_equal(tm_metrics_sink_open(&metrics, &sinks[0], &err), TM_OK);
    assert_int_equal(tm_console_sink_open(&console, &sinks[1], &err), TM_OK);
    for (int i = 0; i < 2; i++) emit(sinks[i], fake_started());
    unsigned long long before = tm_alloc_count();
    for (int step = 1; step <= FAKE_STEPS; step++)
        for (int i = 0; i < 2; i++) emit(sinks[i], fake_step(step));
    assert_int_equal(tm_alloc_count(), before);
    for (int i = 0; i < 2; i++) close_well(sinks[i]);
    fclose(console.out);
    free(data);
}

/* docs/result-json.md names every member, so that nobody has to guess. */
static void every_member_is_documented(void **state)
{
    (void)state;
    tm_error          err = { 0 };
    tm_sink          *sink = NULL;
    tm_checks         checks = { 0 };
    tm_result_options options = { .path = fake_path("result.json"), .checks = &checks };
    assert_int_equal(tm_result_sink_open(&options, &sink, &err), TM_OK);
    fake_run(sink, TM_VERDICT_VALID, "");
    close_well(sink);
    tm_text     page = fake_read("docs/result-json.md"), facts = fake_read("docs/statistics.md");
    tm_text_add(&page, facts.data); /* the facts of the machine */
    tm_text_fini(&facts);
    json_t     *result = json_load_file(options.path, 0, NULL), *member, *part;
    const char *name, *inner;
    assert_true(json_object_size(result) > 20);
    json_object_foreach(result, name, member)
    {
        char quoted[128];
        snprintf(quoted, sizeof quoted, "`%s`", name);
        if (!strstr(page.data, quoted)) fail_msg("%s is not in docs/result-json.md", quoted);
        json_object_foreach(member, inner, part)
        {
            snprintf(quoted, sizeof quoted, "`%s`", inner);
            if (!strstr(page.data, quoted)) fail_msg("%s.%s is not in docs/result-json.md", name, quoted);
        }
    }
    json_decref(result);
    tm_text_fini(&page);
}

static void run_perf(tm_perf_options options, tm_verdict verdict, int64_t slower)
{
    tm_error err = { 0 };
    tm_sink *sink = NULL;
    if (tm_perf_sink_open(&options, &sink, &err) != TM_OK) fail_msg("%s", err.text);
    emit(sink, fake_started());
    tm_event end = fake_ended(FAKE_STEPS, verdict, "");
    end.run_ended.tokens_per_second_median = 1000.0 - (double)slower;
    emit(sink, end);
    close_well(sink);
}

/* Cell `column` of line `index`, 0 being the header; the caller frees it. */
static char *cell_of(const tm_text *text, int index, size_t column)
{
    tm_text     storage = { 0 };
    size_t      offsets[29], n = 0;
    const char *cursor = text->data;
    for (int i = 0; i <= index; i++) n = tm_csv_read(&cursor, &storage, offsets, 29);
    assert_int_equal(n, 29);
    char *cell = strdup(storage.data + offsets[column]);
    tm_text_fini(&storage);
    return cell;
}

static void expect_cell(const tm_text *text, int index, size_t column, const char *wanted)
{
    char *cell = cell_of(text, index, column);
    assert_string_equal(cell, wanted);
    free(cell);
}

enum {
    MODEL = 0,
    N_GPUS = 1,
    PRECISION = 4,
    ARGS = 6,
    PERFORMANCE = 17,
    METRIC = 18,
    CHANGE = 19,
    STATUS = 20,
    DATANAME = 23
};

/* Conformance item 7. */
static void perf_header_and_quoting(void **state)
{
    (void)state;
    const char     *args = "--a \"x, y\", 'z'\r\n--b \"\"";
    tm_perf_options options = { .path = fake_path("perf.csv"), .entry = "trainmark_train", .args = args };
    run_perf(options, TM_VERDICT_VALID, 0);
    run_perf(options, TM_VERDICT_VALID, 0); /* replaced, not appended */
    tm_text text = fake_read(options.path);
    assert_memory_equal(text.data, header, strlen(header));
    assert_non_null(strstr(text.data, ",\"--a \"\"x, y\"\", 'z'\r\n--b \"\"\"\"\","));
    expect_cell(&text, 1, MODEL, "trainmark_train_llama-small");
    expect_cell(&text, 1, N_GPUS, "0");
    expect_cell(&text, 1, PRECISION, "float32");
    expect_cell(&text, 1, ARGS, args);
    expect_cell(&text, 1, PERFORMANCE, "1000");
    expect_cell(&text, 1, METRIC, "tokens_per_second");
    expect_cell(&text, 1, CHANGE, "");
    expect_cell(&text, 1, STATUS, "SUCCESS");
    expect_cell(&text, 1, DATANAME, "synthetic");
    tm_text     storage = { 0 };
    size_t      offsets[29];
    const char *cursor = text.data;
    assert_int_equal(tm_csv_read(&cursor, &storage, offsets, 29), 29);
    assert_int_equal(tm_csv_read(&cursor, &storage, offsets, 29), 29);
    assert_int_equal(tm_csv_read(&cursor, &storage, offsets, 29), 0);
    tm_text_fini(&storage);
    tm_text_fini(&text);
}

/* GPUs are counted as the run tells them: no name of a device means one. */
static void perf_counts_gpus(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        int         gpus;
        const char *row;
    } runs[] = { { "cpu", 0, "\nllama-small,0,2,0,float32," },
                 { "another host device", 0, "\nllama-small,0,2,0,float32," },
                 { "another accelerator", 8, "\nllama-small,8,2,4,float32," } };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        tm_error        err = { 0 };
        tm_sink        *sink = NULL;
        tm_perf_options options = { .path = fake_path("perf.csv"), .nodes = 2 };
        assert_int_equal(tm_perf_sink_open(&options, &sink, &err), TM_OK);
        tm_event start = fake_started();
        start.run_started.device = runs[i].device;
        start.run_started.devices = 8;
        start.run_started.gpus = runs[i].gpus;
        emit(sink, start);
        emit(sink, fake_ended(FAKE_STEPS, TM_VERDICT_VALID, ""));
        close_well(sink);
        tm_text text = fake_read(options.path);
        assert_non_null(strstr(text.data, runs[i].row));
        tm_text_fini(&text);
    }
}

static void perf_appends_with_relative_change(void **state)
{
    (void)state;
    tm_perf_options options = { .path = fake_path("all.csv"), .append = true, .args = "a", .architecture = "x" };
    run_perf(options, TM_VERDICT_INVALID, 0); /* no baseline: it has no result */
    run_perf(options, TM_VERDICT_VALID, 0);
    run_perf(options, TM_VERDICT_NOISY, 125);
    options.args = "b";
    run_perf(options, TM_VERDICT_VALID, 500);
    options.args = "a";
    options.architecture = "y";
    run_perf(options, TM_VERDICT_VALID, 500);
    options.architecture = "x";
    run_perf(options, TM_VERDICT_NOT_JUDGED, -50);
    tm_text text = fake_read(options.path);
    assert_int_equal(lines_of(&text), 7);
    expect_cell(&text, 1, STATUS, "FAILURE");
    expect_cell(&text, 1, PERFORMANCE, "");
    expect_cell(&text, 2, CHANGE, "");
    expect_cell(&text, 3, CHANGE, "-12.50");
    expect_cell(&text, 4, CHANGE, "");
    expect_cell(&text, 5, CHANGE, "");
    expect_cell(&text, 6, CHANGE, "5.00");
    expect_cell(&text, 6, STATUS, "SUCCESS");
    tm_text_fini(&text);
}

/* Rows of other tools that only look like a baseline: another metric, and a number in a row that did not succeed. */
static void perf_baseline_is_chosen_well(void **state)
{
    (void)state;
    tm_error        err = { 0 };
    tm_text         file = { 0 };
    tm_perf_options options = { .path = fake_path("all.csv"), .append = true };
    tm_text_add(&file, header);
    const char *const rows[][3] = { { "400", "tflops", "SUCCESS" },
                                    { "500", "tokens_per_second", "FAILURE" },
                                    { "800", "tokens_per_second", "SUCCESS" },
                                    { "900", "tokens_per_second", "SUCCESS" } };
    for (int i = 0; i < 4; i++)
        tm_text_printf(&file, "llama-small,0,1,0,float32,,,,,,,,,,,,,%s,%s,,%s,,,,,,,,\n", rows[i][0], rows[i][1],
                       rows[i][2]);
    assert_int_equal(tm_file_write(options.path, file.data, file.length, &err), TM_OK);
    tm_text_fini(&file);
    run_perf(options, TM_VERDICT_VALID, 0);
    tm_text text = fake_read(options.path);
    expect_cell(&text, 5, CHANGE, "25.00"); /* 1000 against 800, the first that counts */
    tm_text_fini(&text);
}

static void perf_of_a_run_that_dies(void **state)
{
    (void)state;
    tm_perf_options options = { .path = fake_path("perf.csv") };
    tm_error        err = { 0 };
    tm_sink        *sink = NULL;
    assert_int_equal(tm_perf_sink_open(&options, &sink, &err), TM_OK);
    close_well(sink);
    assert_false(tm_file_exists(options.path)); /* never started: no row */
    assert_int_equal(tm_perf_sink_open(&options, &sink, &err), TM_OK);
    emit(sink, fake_started());
    close_well(sink);
    tm_text text = fake_read(options.path);
    expect_cell(&text, 1, STATUS, "FAILURE");
    tm_text_fini(&text);
}

static void perf_refuses_another_header(void **state)
{
    (void)state;
    tm_perf_options options = { .path = fake_path("other.csv"), .append = true };
    tm_error        err = { 0 };
    tm_sink        *sink = NULL;
    assert_int_equal(tm_file_write(options.path, "model,speed\na,1\n", 16, &err), TM_OK);
    assert_int_equal(tm_perf_sink_open(&options, &sink, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "\"model,speed\""));
    assert_non_null(strstr(err.text, "other.csv"));
    assert_non_null(strstr(err.text, "model,n_gpus,nnodes"));
    tm_text text = fake_read(options.path);
    assert_string_equal(text.data, "model,speed\na,1\n");
    tm_text_fini(&text);
    /* The right header with a carriage return and without a last line feed is fine. */
    tm_text good = { 0 };
    tm_text_add_n(&good, header, strlen(header) - 1);
    tm_text_add(&good, "\r");
    assert_int_equal(tm_file_write(options.path, good.data, good.length, &err), TM_OK);
    tm_text_fini(&good);
    run_perf(options, TM_VERDICT_VALID, 0);
    text = fake_read(options.path);
    expect_cell(&text, 1, STATUS, "SUCCESS");
    tm_text_fini(&text);
}

/* --- faults ---------------------------------------------------------------------------------- */

typedef tm_status (*opener)(const char *path, tm_sink **out, tm_error *err);

static tm_status metrics_opener(const char *path, tm_sink **out, tm_error *err)
{
    tm_metrics_options options = { path };
    return tm_metrics_sink_open(&options, out, err);
}

static tm_status result_opener(const char *path, tm_sink **out, tm_error *err)
{
    tm_result_options options = { .path = path };
    return tm_result_sink_open(&options, out, err);
}

static tm_status perf_opener(const char *path, tm_sink **out, tm_error *err)
{
    tm_perf_options options = { .path = path };
    return tm_perf_sink_open(&options, out, err);
}

static tm_status append_opener(const char *path, tm_sink **out, tm_error *err)
{
    static char     kept[256];
    tm_perf_options options = { .path = strcpy(kept, path), .append = true };
    return tm_perf_sink_open(&options, out, err);
}

/* A file-size limit of 300 bytes: the failure is told, and no torn record stays. */
static void file_size_limit(void **state)
{
    (void)state;
    static const opener openers[] = { metrics_opener, result_opener, perf_opener, append_opener };
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < 4; i++) {
        struct rlimit was, small;
        char          path[256];
        strcpy(path, fake_path("limited"));
        unlink(path);
        getrlimit(RLIMIT_FSIZE, &was);
        small = (struct rlimit){ .rlim_cur = 300, .rlim_max = was.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        tm_sink  *sink = NULL;
        tm_error  err = { 0 };
        tm_status opened = openers[i](path, &sink, &err), closed = TM_OK;
        if (opened == TM_OK) {
            fake_run(sink, TM_VERDICT_VALID, "");
            closed = tm_sink_close(sink, &err);
        }
        setrlimit(RLIMIT_FSIZE, &was);
        assert_int_equal(opened, TM_OK);
        assert_int_equal(closed, TM_IO);
        assert_int_equal(tm_status_exit_code(closed), 1);
        assert_non_null(strstr(err.text, "limited"));
        if (i == 0) {
            tm_text text = fake_read(path);
            assert_true(text.length > 0 && text.data[text.length - 1] == '\n');
            json_decref(line_of(&text, lines_of(&text) - 1));
            tm_text_fini(&text);
        } else if (i == 3) {
            tm_text text = fake_read(path);
            assert_int_equal(text.length, 0);
            tm_text_fini(&text);
        } else {
            assert_false(tm_file_exists(path));
        }
    }
}

static void unusable_paths(void **state)
{
    (void)state;
    tm_error err = { 0 };
    tm_sink *sink = NULL;
    assert_int_equal(metrics_opener(fake_path("no/such/folder"), &sink, &err), TM_IO);
    assert_int_equal(result_opener(fake_path("no/such/folder"), &sink, &err), TM_OK);
    fake_run(sink, TM_VERDICT_VALID, "");
    err = (tm_error){ 0 };
    assert_int_equal(tm_sink_close(sink, &err), TM_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(metrics_records, clean),
        cmocka_unit_test_teardown(metrics_of_a_resumed_run, clean),
        cmocka_unit_test_teardown(result_read_back, clean),
        cmocka_unit_test_teardown(a_run_without_steps, clean),
        cmocka_unit_test_teardown(steady_recording_allocates_nothing, clean),
        cmocka_unit_test_teardown(every_member_is_documented, clean),
        cmocka_unit_test_teardown(perf_header_and_quoting, clean),
        cmocka_unit_test_teardown(perf_counts_gpus, clean),
        cmocka_unit_test_teardown(perf_appends_with_relative_change, clean),
        cmocka_unit_test_teardown(perf_baseline_is_chosen_well, clean),
        cmocka_unit_test_teardown(perf_of_a_run_that_dies, clean),
        cmocka_unit_test_teardown(perf_refuses_another_header, clean),
        cmocka_unit_test_teardown(file_size_limit, clean),
        cmocka_unit_test_teardown(unusable_paths, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
