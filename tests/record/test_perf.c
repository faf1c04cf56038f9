/* SPDX-License-Identifier: Apache-2.0 */
/* perf.csv: the header byte for byte, quoting, the baseline of relative_change, and runs that fail. */
#include "support/test.h"

#include "../support/folder.h"
#include "../support/fake_run.h"
#include "base/csv.h"
#include "base/file.h"
#include "record/record.h"
#include "stats/sampling.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
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
    test_folder_remove();
    return 0;
}

static int lines_of(const tm_text *text)
{
    int n = 0;
    for (size_t i = 0; i < text->length; i++) n += text->data[i] == '\n';
    return n;
}

static void run_perf(tm_perf_options options, tm_verdict verdict, int64_t slower)
{
    tm_error err = { 0 };
    tm_sink *sink = NULL;
    if (tm_perf_sink_open(&options, &sink, &err) != TM_OK) fail_msg("%s", err.text);
    fake_emit(sink, fake_started());
    tm_event          end = fake_ended(FAKE_STEPS, verdict, "");
    tm_sample_summary speed = *end.run_ended.speed;
    speed.median_rate = 1000.0 - (double)slower;
    end.run_ended.speed = &speed;
    fake_emit(sink, end);
    fake_close(sink);
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
TEST(perf_header_and_quoting)
{
    const char     *args = "--a \"x, y\", 'z'\n--b \"\"";
    tm_perf_options options = { .path = test_in_folder("perf.csv"), .entry = "trainmark_train", .args = args };
    run_perf(options, TM_VERDICT_VALID, 0);
    run_perf(options, TM_VERDICT_VALID, 0); /* replaced, not appended */
    tm_text text = fake_read(options.path);
    assert_memory_equal(text.data, header, strlen(header));
    assert_non_null(strstr(text.data, ",\"'--a \"\"x, y\"\", 'z'\n--b \"\"\"\"\","));
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
TEST(perf_counts_gpus)
{
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
        tm_perf_options options = { .path = test_in_folder("perf.csv"), .nodes = 2 };
        assert_int_equal(tm_perf_sink_open(&options, &sink, &err), TM_OK);
        tm_event start = fake_started();
        start.run_started.device = runs[i].device;
        start.run_started.devices = 8;
        start.run_started.gpus = runs[i].gpus;
        fake_emit(sink, start);
        fake_emit(sink, fake_ended(FAKE_STEPS, TM_VERDICT_VALID, ""));
        fake_close(sink);
        tm_text text = fake_read(options.path);
        assert_non_null(strstr(text.data, runs[i].row));
        tm_text_fini(&text);
    }
}

TEST(perf_appends_with_relative_change)
{
    tm_perf_options options = { .path = test_in_folder("all.csv"), .append = true, .args = "a", .architecture = "x" };
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
TEST(perf_baseline_is_chosen_well)
{
    tm_error        err = { 0 };
    tm_text         file = { 0 };
    tm_perf_options options = { .path = test_in_folder("all.csv"), .append = true };
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
    expect_cell(&text, 1, STATUS, "FAILURE");
    tm_text_fini(&text);
    tm_event ended = fake_ended(FAKE_STEPS, TM_VERDICT_NOT_JUDGED, "few");
    ended.run_ended.interrupted = true;
    assert_int_equal(tm_perf_sink_open(&options, &sink, &err), TM_OK);
    fake_emit(sink, fake_started());
    fake_emit(sink, ended);
    fake_close(sink);
    text = fake_read(options.path);
    expect_cell(&text, 1, STATUS, "FAILURE");
    expect_cell(&text, 1, PERFORMANCE, "");
    tm_text_fini(&text);
}

TEST(perf_refuses_another_header)
{
    tm_perf_options options = { .path = test_in_folder("other.csv"), .append = true };
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

static void *append_perf(void *path)
{
    run_perf((tm_perf_options){ .path = path, .append = true }, TM_VERDICT_VALID, 0);
    return NULL;
}

/* Who appends waits until another program that has the file locked is done with it. */
TEST(perf_waits_for_its_turn)
{
    char     *path = strdup(test_in_folder("perf.csv"));
    pthread_t appends;
    int       other;
    append_perf(path);
    tm_text before = fake_read(path);
    other = open(path, O_RDONLY);
    assert_int_equal(flock(other, LOCK_EX), 0);
    assert_int_equal(pthread_create(&appends, NULL, append_perf, path), 0);
    usleep(100000); /* enough for one that does not wait, as a rule */
    tm_text locked = fake_read(path);
    assert_int_equal(close(other), 0);
    assert_int_equal(pthread_join(appends, NULL), 0);
    tm_text after = fake_read(path);
    assert_string_equal(locked.data, before.data);
    assert_int_equal(lines_of(&after), lines_of(&before) + 1);
    tm_text_fini(&before);
    tm_text_fini(&locked);
    tm_text_fini(&after);
    free(path);
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
    run_perf(options, TM_VERDICT_VALID, 0);
    tm_text one = fake_read(options.path);
    run_perf(options, TM_VERDICT_VALID, 10);
    tm_text two = fake_read(options.path);
    assert_int_equal(strlen(header), strcspn(one.data, "\n") + 1);
    for (size_t n = 1; n <= two.length; n++) {
        tm_error err = { 0 };
        size_t   whole = n < strlen(header) - 1 ? 0 : n < one.length - 1 ? 1 : n < two.length - 1 ? 2 : 3;
        assert_int_equal(tm_file_write(options.path, two.data, n, &err), TM_OK);
        run_perf(options, TM_VERDICT_VALID, 20);
        tm_text now = fake_read(options.path);
        size_t  kept = whole == 0 ? 0 : whole == 1 ? strlen(header) : whole == 2 ? one.length : two.length;
        assert_memory_equal(now.data, two.data, kept);
        expect_whole_rows(options.path, (int)(whole > 1 ? whole : 1));
        tm_text_fini(&now);
    }
    tm_text_fini(&one);
    tm_text_fini(&two);
}

TEST_FIXTURE(NULL, clean)
