/* SPDX-License-Identifier: Apache-2.0 */
/* The MLPerf-style log of a run: what the events said, nothing else, and what the rules ask for. */
#include "support/folder.h"
#include "recipe.h"

#include "base/log.h"
#include "apps/mlperf/check.h"
#include "record/record.h"

#include <time.h>

#include "support/test.h"

/* --- made-up runs ------------------------------------------------------------------------------------------------- */

static tm_mllog_options options_of(const char *benchmark)
{
    FILE *f = fopen(test_in_folder("drop_caches"), "w");
    assert_true(f && fclose(f) == 0);
    return (tm_mllog_options){ .path = test_in_folder("result_0.txt"),
                               .benchmark = tm_mlperf_benchmark_find(benchmark),
                               .org = "Org \xc3\xa9",
                               .platform = "Platform",
                               .division = "closed",
                               .status = "onprem",
                               .poc_name = "A \"B\" C",
                               .config_filename = "a.yaml",
                               .clear_caches = true,
                               .drop_caches = test_in_folder("drop_caches") };
}

/* As the closed division prescribes that benchmark. */
static tm_run_started started(const char *benchmark)
{
    tm_run_started run = started_8b();
    if (strcmp(benchmark, "llama2_70b_lora") == 0) {
        run.steps = 1024;
        run.recipe.global_batch = 8;
        run.recipe.eval_samples = 173;
        run.recipe.max_norm = 0.3;
        run.recipe.lora_rank = 16;
        run.recipe.lora_alpha = 32;
    }
    if (strcmp(benchmark, "flux1") == 0) {
        run.recipe.global_batch = 1024;
        run.recipe.eval_samples = 29696;
        run.recipe.eps = 1e-8;
        run.recipe.eval_interval = 262144;
    }
    return run;
}

static void say(tm_sink *sink, tm_event event)
{
    sink->handle(sink, &event);
}

static void evaluate(tm_sink *sink, int64_t step, int64_t batch, double loss, bool last)
{
    say(sink, (tm_event){ .kind = TM_EVENT_EVALUATION_STARTED,
                          .evaluation_started = { .step = step, .samples = step * batch } });
    say(sink, (tm_event){ .kind = TM_EVENT_EVALUATION,
                          .evaluation = { .step = step, .samples = step * batch, .loss = loss, .last = last } });
}

/* A run with two evaluations; the second has `loss`. */
static tm_status run(const tm_mllog_options *options, const tm_run_started *start, double loss, tm_error *err)
{
    tm_sink *sink;
    int64_t  batch = start->recipe.global_batch;
    TM_TRY(tm_mllog_sink_open(options, &sink, err));
    say(sink, (tm_event){ .kind = TM_EVENT_RUN_STARTED, .run_started = *start });
    for (int64_t step = 1; step <= 2; step++) {
        say(sink, fake_step(step));
        evaluate(sink, step * 384, batch, step == 1 ? (double)NAN : loss, step == 2);
    }
    say(sink, fake_checkpoint(2));
    say(sink,
        (tm_event){ .kind = TM_EVENT_RUN_ENDED, .run_ended = { .reason = "", .steps = 768, .samples = 768 * batch } });
    return tm_sink_close(sink, err);
}

/* --- what became of it -------------------------------------------------------------------------------------------- */

typedef struct {
    tm_mllog              *log;
    const tm_mllog_record *records;
    size_t                 n;
} written;

static written read_log(const tm_mllog_options *options)
{
    written  w;
    tm_error err = { 0 };
    assert_int_equal(tm_mllog_read(options->path, &w.log, &err), TM_OK);
    w.records = tm_mllog_records(w.log, &w.n);
    for (size_t i = 0; i < w.n; i++) {
        assert_int_equal(w.records[i].state, TM_MLLOG_GOOD);
        assert_int_equal(w.records[i].line, i + 1);
        assert_true(i == 0 || w.records[i].time_ms >= w.records[i - 1].time_ms);
    }
    return w;
}

/* The only line of that key, or the last of several. */
static const tm_mllog_record *find(const written *w, const char *key)
{
    const tm_mllog_record *found = NULL;
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->records[i].key, key) == 0) found = &w->records[i];
    if (!found) fail_msg("no line '%s'", key);
    return found;
}

/* Every interval that begins ends, in order, before the run does. */
static void intervals_are_paired(const written *w)
{
    const char *open = NULL;
    for (size_t i = 0; i < w->n; i++) {
        const char *key = w->records[i].key;
        if (strcmp(key, "block_start") == 0 || strcmp(key, "eval_start") == 0) {
            assert_null(open);
            open = *key == 'b' ? "block_stop" : "eval_stop";
        } else if (strcmp(key, "block_stop") == 0 || strcmp(key, "eval_stop") == 0) {
            assert_true(open && strcmp(open, key) == 0);
            open = NULL;
        } else if (strcmp(key, "run_stop") == 0) {
            assert_null(open);
        }
    }
    assert_null(open);
}

static void complies(const written *w, tm_ruleset since, const char *missing)
{
    for (int r = since; r < TM_RULESET_COUNT; r++) {
        tm_check_report report;
        tm_text         text = { 0 };
        tm_check_log(w->log, (tm_ruleset)r, true, &report);
        tm_check_print(&report, "log", &text);
        if (report.passed != !missing || (missing && (report.messages.n != 1 || !strstr(text.data, missing))))
            fail_msg("wanted '%s':\n%s", missing ? missing : "SUCCESS", text.data);
        tm_text_fini(&text);
        tm_check_report_fini(&report);
    }
}

/* Whatever differs from the rules is logged as it is, and found by the check: one figure of the recipe, the loss, the
 * caches. Which figures stand there: test_timed_whole.c. */
TEST(what_ran_is_what_is_logged)
{
    static const struct {
        const char *benchmark;
        double      loss;
        const char *missing;
        size_t      at; /* of the figure that differs; 0: none */
        double      value;
        int         caches; /* 1: not wanted; 2: cannot be dropped */
    } cases[] = {
        { "llama31_8b", 3.3, NULL, 0, 0, 0 },
        { "llama2_70b_lora", 0.92, NULL, 0, 0, 0 },
        { "flux1", 0.586, NULL, 0, 0, 0 },
        { "gpt_oss_20b", 3.34, NULL, 0, 0, 0 },
        { "llama31_8b", 3.2, "value is 0.91", offsetof(tm_recipe, beta1), 0.91, 0 },
        { "llama31_8b", 3.2, "value is 1e-08", offsetof(tm_recipe, eps), 1e-8, 0 },
        { "llama31_8b", 3.2, "'opt_adamw_weight_decay'", offsetof(tm_recipe, weight_decay), 0, 0 },
        { "llama31_8b", 3.2, "value is Infinity", offsetof(tm_recipe, max_norm), (double)INFINITY, 0 },
        { "llama31_8b", 3.3000001, "Failed checks for eval_accuracy", 0, 0, 0 },
        { "llama31_8b", (double)NAN, "Failed checks for eval_accuracy", 0, 0, 0 },
        { "llama31_8b", (double)INFINITY, "Failed checks for eval_accuracy", 0, 0, 0 },
        { "llama31_8b", 3.2, "'cache_clear' but found 0", 0, 0, 1 },
        { "llama31_8b", 3.2, "'cache_clear' but found 0", 0, 0, 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tm_mllog_options o = options_of(cases[i].benchmark);
        tm_run_started   start = started(cases[i].benchmark);
        tm_error         err = { 0 };
        const bool       late = strcmp(cases[i].benchmark, "gpt_oss_20b") == 0;
        const bool       missed = cases[i].missing && strstr(cases[i].missing, "accuracy");
        if (cases[i].at) memcpy((char *)&start.recipe + cases[i].at, &cases[i].value, sizeof(double));
        o.clear_caches = cases[i].caches != 1;
        if (cases[i].caches == 2) o.drop_caches = "/nowhere/drop_caches";
        assert_int_equal(run(&o, &start, cases[i].loss, &err), TM_OK);
        written w = read_log(&o);
        complies(&w, late ? TM_RULESET_6_0_0 : TM_RULESET_5_1_0, cases[i].missing);
        intervals_are_paired(&w);
        assert_true(tm_mllog_mentions(find(&w, "run_stop"), missed ? "\"aborted\"" : "\"success\""));
        tm_mllog_free(w.log);
    }
}

/* Samples of what was read; texts as they are given. */
TEST(a_line_has_its_samples)
{
    tm_mllog_options o = options_of("llama31_8b");
    tm_run_started   start = started_8b();
    tm_error         err = { 0 };
    assert_int_equal(run(&o, &start, 3.3, &err), TM_OK);
    written w = read_log(&o);
    assert_string_equal(find(&w, "seed")->value->text, "9000000000000000000");
    assert_true(fabs(find(&w, "eval_accuracy")->value->number - 3.3) < 1e-15);
    assert_true(tm_json_is_text(find(&w, "submission_org")->value, "Org \xc3\xa9"));
    assert_true(tm_json_is_text(find(&w, "submission_poc_name")->value, "A \"B\" C"));
    assert_true(tm_mllog_mentions(find(&w, "eval_accuracy"), "\"samples_count\": 24576}"));
    assert_true(tm_mllog_mentions(find(&w, "block_start"), "\"samples_count\": 12288}")); /* none behind the last */
    assert_true(tm_mllog_mentions(find(&w, "run_stop"), "\"samples_count\": 24576, \"status\": \"success\"}"));
    assert_true(tm_mllog_mentions(find(&w, "init_start"), "\"event_type\": \"INTERVAL_START\""));
    assert_string_equal(find(&w, "train_samples")->value->text, "24576");
    tm_mllog_free(w.log);
    tm_text dropped = fake_read(o.drop_caches);
    assert_string_equal(dropped.data, "3\n");
    tm_text_fini(&dropped);
}

static int64_t wall_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Stopped before an evaluation, and within the second one, which ends without an accuracy. Times are milliseconds of
 * the wall clock, throughput is samples per second of them. Before a run starts there is nothing. */
TEST(a_run_that_is_stopped_is_aborted)
{
    for (int evaluates = 0; evaluates < 2; evaluates++) {
        tm_mllog_options o = options_of("trainmark_tiny");
        tm_run_started   start = started_8b();
        tm_error         err = { 0 };
        tm_sink         *sink;
        const int64_t    began = wall_clock_ms();
        unlink(o.path);
        assert_int_equal(tm_mllog_sink_open(&o, &sink, &err), TM_OK);
        assert_int_not_equal(access(o.path, F_OK), 0);
        say(sink, (tm_event){ .kind = TM_EVENT_RUN_STARTED, .run_started = start });
        if (evaluates) evaluate(sink, 1, 32, 3.5, false);
        usleep(20000);
        if (evaluates)
            say(sink,
                (tm_event){ .kind = TM_EVENT_EVALUATION_STARTED, .evaluation_started = { .step = 2, .samples = 96 } });
        say(sink, (tm_event){ .kind = TM_EVENT_RUN_ENDED, .run_ended = { .reason = "", .samples = 96 } });
        assert_int_equal(tm_sink_close(sink, &err), TM_OK);
        const int64_t ended = wall_clock_ms();
        written       w = read_log(&o);
        intervals_are_paired(&w);
        assert_true(tm_mllog_mentions(find(&w, "block_stop"), "\"samples_count\": 96}"));
        assert_true(tm_mllog_mentions(find(&w, "run_stop"), "\"status\": \"aborted\""));
        if (evaluates) assert_true(tm_mllog_mentions(find(&w, "eval_stop"), "\"samples_count\": 96}"));
        if (evaluates) assert_true(tm_mllog_mentions(find(&w, "eval_accuracy"), "\"samples_count\": 32}"));
        double from = find(&w, "block_start")->time_ms, to = find(&w, "block_stop")->time_ms;
        double stop = find(&w, "tracked_stats")->time_ms, samples = evaluates ? 64 : 96;
        double rate = tm_json_member(find(&w, "tracked_stats")->value, "throughput")->number;
        assert_true(from >= (double)began - 1 && to >= from + 19 && to <= (double)ended + 1);
        assert_true(fabs(rate * (stop - from) / 1000 / samples - 1) < 1e-9);
        tm_mllog_free(w.log);
    }
}

TEST(failures_are_kept)
{
    static const char *const paths[] = { "/nowhere/x.txt", "/dev/full" };
    for (size_t i = 0; i < 2; i++) {
        tm_mllog_options o = options_of("llama31_8b");
        tm_run_started   start = started_8b();
        tm_error         err = { 0 };
        o.path = paths[i];
        assert_int_equal(run(&o, &start, 3.2, &err), TM_INVALID);
        assert_non_null(strstr(err.text, paths[i]));
    }
}

static int clean(void **unused)
{
    (void)unused;
    test_folder_remove();
    return 0;
}

TEST_FIXTURE(NULL, clean)
