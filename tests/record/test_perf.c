/* SPDX-License-Identifier: Apache-2.0 */
/* perf.csv: the header byte for byte, quoting, the baseline of relative_change, runs that fail, what is already in the
 * file. */
#include "support/test.h"

#include "../support/folder.h"
#include "../support/fake_run.h"
#include "base/csv.h"
#include "base/file.h"
#include "record/record.h"
#include "record/sink_kind.h"
#include "support/full_config.h"
#include "stats/sampling.h"

static const char *const header =
    "model,n_gpus,nnodes,gpus_per_node,training_precision,pipeline,args,tags,docker_file,base_docker,docker_sha,docker_"
    "image,"
    "git_commit,machine_name,deployment_type,launcher,gpu_architecture,performance,metric,relative_change,status,"
    "build_duration,test_duration,dataname,data_provider_type,data_size,data_download_duration,build_number,"
    "additional_docker_run_options\n";

/* At 1000 tokens/s of each device, in 12.5 s. */
static void run_perf(tm_perf_options options, tm_verdict verdict)
{
    tm_error err = { 0 };
    tm_sink *sink = NULL;
    if (tm_perf_sink_open(&options, &sink, &err) != TM_OK) fail_msg("%s", err.text);
    fake_emit(sink, fake_started());
    tm_event          end = fake_ended(FAKE_STEPS, verdict, "");
    tm_sample_summary speed = *end.run_ended.speed;
    speed.median_rate = 1000;
    end.run_ended.speed = &speed;
    end.run_ended.seconds = 12.5;
    fake_emit(sink, end);
    fake_close(sink);
}

/* The row of a run: its arguments as CSV, what follows from its speed, its seconds. */
#define OWN(args, performance, change, status)                                                                         \
    "llama-small,0,1,0,float32,," args ",,,,,,,,,,," performance ",tokens_per_second," change "," status               \
    ",,12.5,synthetic,,,,,\n"

/* Conformance item 7. A file of one row is replaced. */
TEST(perf_header_and_quoting)
{
    static const struct {
        tm_verdict  verdict;
        const char *row;
    } rows[] = {
#define ARGS "\"'--a \"\"x, y\"\", 'z'\n--b \"\"\"\"\""
        { TM_VERDICT_VALID, OWN(ARGS, "1000", "", "SUCCESS") },
        { TM_VERDICT_NOISY, OWN(ARGS, "1000", "", "SUCCESS") },
        { TM_VERDICT_NOT_JUDGED, OWN(ARGS, "1000", "", "SUCCESS") },
        { TM_VERDICT_INVALID, OWN(ARGS, "", "", "FAILURE") },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run_perf((tm_perf_options){ .path = test_in_folder("perf.csv"), .args = "--a \"x, y\", 'z'\n--b \"\"" },
                 rows[i].verdict);
        tm_text text = fake_read(test_in_folder("perf.csv"));
        assert_memory_equal(text.data, header, strlen(header));
        assert_string_equal(text.data + strlen(header), rows[i].row);
        tm_text_fini(&text);
    }
}

TEST(perf_of_a_run_that_dies)
{
    tm_perf_options options = { .path = test_in_folder("perf.csv") };
    tm_error        err = { 0 };
    tm_sink        *sink = NULL;
    assert_int_equal(tm_perf_sink_open(&options, &sink, &err), TM_OK);
    fake_close(sink);
    assert_false(tm_file_exists(options.path)); /* never started: no row */
    assert_int_equal(tm_perf_sink_open(&options, &sink, &err), TM_OK);
    fake_emit(sink, fake_started());
    fake_close(sink);
    tm_text text = fake_read(options.path);
    assert_non_null(strstr(text.data, ",tokens_per_second,,FAILURE,,"));
    tm_text_fini(&text);
    tm_event ended = fake_ended(FAKE_STEPS, TM_VERDICT_NOT_JUDGED, "few");
    ended.run_ended.interrupted = true;
    assert_int_equal(tm_perf_sink_open(&options, &sink, &err), TM_OK);
    fake_emit(sink, fake_started());
    fake_emit(sink, ended);
    fake_close(sink);
    text = fake_read(options.path);
    assert_non_null(strstr(text.data, ",,tokens_per_second,,FAILURE,,"));
    tm_text_fini(&text);
}

/* What a run appends to a file of these lines: its row, without what is before. */
static char *appended(const char *lines)
{
    tm_text         file = { 0 };
    tm_error        err = { 0 };
    tm_perf_options options = { .path = test_in_folder("all.csv"), .append = true };
    tm_text_printf(&file, "%s%s", header, lines);
    assert_int_equal(tm_file_write(options.path, file.data, file.length, &err), TM_OK);
    run_perf(options, TM_VERDICT_VALID);
    tm_text text = fake_read(options.path);
    assert_memory_equal(text.data, file.data, file.length);
    char *own = strdup(text.data + file.length);
    tm_text_fini(&text);
    tm_text_fini(&file);
    return own;
}

#define ROW(model, gpus, precision, args, architecture, performance, status)                                           \
    model "," gpus ",9,9," precision ",p," args ",t,,,,,,,,," architecture "," performance                             \
          ",tokens_per_second,," status ",,,,,,,,\n"

TEST(a_baseline_is_of_the_same_run)
{
    static const struct {
        const char *lines, *change;
    } rows[] = {
        { "", "" },
        { ROW("llama-small", "0", "float32", "", "", "800", "SUCCESS"), "25.00" },
        { ROW("llama-smal", "0", "float32", "", "", "800", "SUCCESS"), "" },
        { ROW("llama-small", "1", "float32", "", "", "800", "SUCCESS"), "" },
        { ROW("llama-small", "0", "float16", "", "", "800", "SUCCESS"), "" },
        { ROW("llama-small", "0", "float32", "a", "", "800", "SUCCESS"), "" },
        { ROW("llama-small", "0", "float32", "", "x", "800", "SUCCESS"), "" },
        { ROW("llama-small", "0", "float32", "", "", "800", "FAILURE"), "" },
        { ROW("llama-small", "0", "float32", "", "", "0", "SUCCESS")
              ROW("llama-small", "0", "float32", "", "", "-5", "SUCCESS")
                  ROW("llama-small", "0", "float32", "", "", "1600", "SUCCESS")
                      ROW("llama-small", "0", "float32", "", "", "800", "SUCCESS"),
          "-37.50" },
        { "llama-small,0,9,9,float32,p,,t,,,,,,,,,,1600,tflops,,SUCCESS,,,,,,,,\n", "" },
        { "llama-small,0,9,9,float32,SUCCESS\n" ROW("llama-small", "0", "float32", "", "", "2000", "SUCCESS"),
          "-50.00" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *own = appended(rows[i].lines), wanted[300];
        snprintf(wanted, sizeof wanted, OWN("", "1000", "%s", "SUCCESS"), rows[i].change);
        assert_string_equal(own, wanted);
        free(own);
    }
    char whole[] = ROW("llama-small", "0", "float16", "", "", "800", "SUCCESS");
    whole[strlen(whole) - 1] = '\0';
    char *own = appended(whole); /* a row without its line end is ended first */
    assert_memory_equal(own, "\nllama-small,0,1,", 17);
    free(own);
}

/* Cells of every record of the file: of whole rows as many as the header has. */
static void expect_whole_rows(const char *path, int rows)
{
    tm_text     text = fake_read(path), storage = { 0 };
    size_t      offsets[64], n, records = 0;
    const char *cursor = text.data;
    while ((n = tm_csv_read(&cursor, &storage, offsets, 64)) > 0) {
        assert_int_equal(n, 29);
        records++;
    }
    assert_int_equal(records, rows + 1);
    assert_int_equal(text.data[text.length - 1], '\n');
    tm_text_fini(&text);
    tm_text_fini(&storage);
}

/* Killed at any byte of an append, of the first row with its header or of another: the next run cuts the half row off.
 * A row that lacks its line end alone stays. */
TEST(perf_cuts_off_what_a_kill_left)
{
    tm_perf_options options = { .path = test_in_folder("killed.csv"), .append = true, .args = "a \"b\",\nc" };
    run_perf(options, TM_VERDICT_VALID);
    tm_text one = fake_read(options.path);
    run_perf(options, TM_VERDICT_NOISY);
    tm_text two = fake_read(options.path);
    assert_int_equal(strlen(header), strcspn(one.data, "\n") + 1);
    for (size_t n = 1; n <= two.length; n++) {
        tm_error err = { 0 };
        size_t   whole = n < strlen(header) - 1 ? 0 : n < one.length - 1 ? 1 : n < two.length - 1 ? 2 : 3;
        assert_int_equal(tm_file_write(options.path, two.data, n, &err), TM_OK);
        run_perf(options, TM_VERDICT_VALID);
        tm_text now = fake_read(options.path);
        size_t  kept = whole == 0 ? 0 : whole == 1 ? strlen(header) : whole == 2 ? one.length : two.length;
        assert_memory_equal(now.data, two.data, kept);
        expect_whole_rows(options.path, (int)(whole > 1 ? whole : 1));
        tm_text_fini(&now);
    }
    tm_text_fini(&one);
    tm_text_fini(&two);
}

static void has(const char *text, const char *wanted)
{
    if (!strstr(text, wanted)) fail_msg("no '%s' in: %s", wanted, text);
}

static tm_sink *begun(const tm_perf_options *options)
{
    tm_sink *sink;
    tm_error err = { 0 };
    if (tm_perf_sink_open(options, &sink, &err) != TM_OK) fail_msg("%s", err.text);
    fake_emit(sink, fake_started());
    return sink;
}

/* What became another file during the run is left alone; where the folder went, that is told. */
TEST(a_collection_that_changes_during_the_run)
{
    char            folder[600], path[700];
    tm_perf_options options = { .path = path, .append = true };
    tm_sink        *sink;
    tm_error        err = { 0 };
    snprintf(folder, sizeof folder, "%s", test_in_folder("collection"));
    snprintf(path, sizeof path, "%s/all.csv", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    fake_emit(sink = begun(&options), fake_ended(1, TM_VERDICT_VALID, ""));
    fake_close(sink);
    tm_text text = fake_read(path);
    text.data[3] ^= 1; /* a header of the same length */
    sink = begun(&options);
    assert_int_equal(tm_file_write(path, text.data, text.length, &err), TM_OK);
    fake_emit(sink, fake_ended(1, TM_VERDICT_VALID, ""));
    assert_int_equal(tm_sink_close(sink, &err), TM_INVALID);
    has(err.text, "cannot append to '");
    has(err.text, "header is \"moddl,n_gpus,");
    has(err.text, ",data_size,data_\", wanted \"model,n_gpus,"); /* 300 characters of it */
    tm_text after = fake_read(path);
    assert_string_equal(after.data, text.data);
    tm_text_fini(&after);
    tm_text_fini(&text);
    assert_int_equal(unlink(path), 0);
    sink = begun(&options);
    assert_int_equal(rmdir(folder), 0);
    err = (tm_error){ 0 };
    fake_emit(sink, fake_ended(1, TM_VERDICT_VALID, ""));
    assert_int_not_equal(tm_sink_close(sink, &err), TM_OK);
    has(err.text, path);
}

/* Variables of a runner: the pipeline and the number of the build, those of GPUs as options of a container; secrets are
 * masked. */
TEST(variables_of_a_runner_are_told)
{
    tm_config        *config = test_full_config();
    tm_arena         *arena = tm_arena_create();
    tm_output_options o = { .folder = test_folder(), .config = config, .command = "cmd" };
    tm_sink          *sink;
    tm_error          err = { 0 };
    char              path[600];
    strcpy(path, test_in_folder("told.csv"));
    for (int set = 0; set < 2; set++) {
        static const char *const variables[][2] = { { "pipeline", "https://ci:hunter2secret@host/x" },
                                                    { "BUILD_NUMBER", "4711" },
                                                    { "NCCL_DEBUG", "INFO" } };
        for (int i = 0; i < 3; i++) unsetenv(variables[i][0]);
        for (int i = 0; i < 3 && set; i++) setenv(variables[i][0], variables[i][1], 1);
        tm_environment *environment = tm_environment_read("");
        o.environment = environment;
        assert_int_equal(record_perf_kind.open(&o, path, arena, &sink, &err), TM_OK);
        tm_event start = fake_started();
        start.run_started.gpus = set;
        fake_emit(sink, start);
        fake_emit(sink, fake_ended(1, TM_VERDICT_VALID, ""));
        fake_close(sink);
        tm_text text = fake_read(path);
        has(text.data, set ? "@host/x,cmd," : ",float32,,cmd,");
        has(text.data, set ? ",synthetic,,,,4711," : ",synthetic,,,,,");
        assert_int_equal(strstr(text.data, "-e NCCL_DEBUG=INFO") != NULL, set);
        assert_null(strstr(text.data, "hunter2secret"));
        tm_text_fini(&text);
        tm_environment_destroy(environment);
    }
    tm_config_destroy(config);
    tm_arena_destroy(arena);
}

TEST_FIXTURE(NULL, test_folder_teardown)
