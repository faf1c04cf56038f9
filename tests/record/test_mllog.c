/* SPDX-License-Identifier: Apache-2.0 */
/* The MLPerf-style log of a run: what the events said, nothing else, and what the rules ask for. */
#include "support/folder.h"
#include "support/fake_run.h"

#include "base/log.h"
#include "apps/mlperf/check.h"
#include "record/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

/* As the closed division prescribes llama31_8b. */
static tm_run_started started_8b(void)
{
    tm_run_started run = fake_started().run_started;
    run.seed = 9000000000000000000u;
    run.steps = 1200000;
    run.recipe = (tm_recipe){ .optimizer = "adamw",
                              .schedule = "cosine with linear warmup",
                              .global_batch = 32,
                              .accumulation = 2,
                              .sequence_length = 8192,
                              .eval_samples = 1024,
                              .warmup_steps = 128,
                              .decay_steps = 1199872,
                              .learning_rate = 0.0008,
                              .end_learning_rate = 0.00008,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-5,
                              .weight_decay = 0.1,
                              .max_norm = 1,
                              .micro_batch = 2,
                              .eval_interval = 12288,
                              .precision_linear = "mxfp4",
                              .precision_attention = "bfloat16",
                              .precision_communication = "fp32" };
    return run;
}

static tm_run_started started_lora(void)
{
    tm_run_started run = started_8b();
    run.steps = 1024;
    run.recipe.global_batch = 8;
    run.recipe.eval_samples = 173;
    run.recipe.max_norm = 0.3;
    run.recipe.lora_rank = 16;
    run.recipe.lora_alpha = 32;
    return run;
}

static tm_run_started started_flux(void)
{
    tm_run_started run = started_8b();
    run.recipe.global_batch = 1024;
    run.recipe.eval_samples = 29696;
    run.recipe.eps = 1e-8;
    run.recipe.eval_interval = 262144;
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

static void complies_since(const written *w, tm_ruleset since, const char *missing)
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

static void complies(const written *w, const char *missing)
{
    complies_since(w, TM_RULESET_5_1_0, missing);
}

static void is_f64(const written *w, const char *key, double value)
{
    const tm_json_value *v = find(w, key)->value;
    assert_true(v->kind == TM_JSON_NUMBER && !v->integer);
    assert_memory_equal(&v->number, &value, sizeof value);
}

static void is_i64(const written *w, const char *key, const char *digits)
{
    const tm_json_value *v = find(w, key)->value;
    assert_true(v->kind == TM_JSON_NUMBER && v->integer);
    assert_string_equal(v->text, digits);
}

TEST(a_run_of_llama31_8b_complies)
{
    tm_mllog_options o = options_of("llama31_8b");
    tm_run_started   start = started_8b();
    tm_error         err = { 0 };
    assert_int_equal(run(&o, &start, 3.3, &err), TM_OK);
    written w = read_log(&o);
    complies(&w, NULL);
    intervals_are_paired(&w);
    is_i64(&w, "seed", "9000000000000000000");
    is_i64(&w, "global_batch_size", "32");
    is_i64(&w, "opt_learning_rate_warmup_steps", "128");
    is_f64(&w, "opt_base_learning_rate", 0.0008);
    is_f64(&w, "opt_adamw_beta_2", 0.95);
    is_f64(&w, "eval_accuracy", 3.3);
    assert_true(tm_json_is_text(find(&w, "submission_org")->value, "Org \xc3\xa9"));
    assert_true(tm_json_is_text(find(&w, "submission_poc_name")->value, "A \"B\" C"));
    assert_true(tm_json_is_text(find(&w, "submission_platform")->value, "Platform"));
    assert_true(tm_mllog_mentions(find(&w, "eval_accuracy"), "\"samples_count\": 24576}"));
    assert_true(tm_mllog_mentions(find(&w, "block_start"), "\"samples_count\": 12288}")); /* none behind the last */
    assert_true(tm_mllog_mentions(find(&w, "run_stop"), "\"samples_count\": 24576, \"status\": \"success\"}"));
    assert_true(tm_mllog_mentions(find(&w, "init_start"), "\"event_type\": \"INTERVAL_START\""));
    is_i64(&w, "train_samples", "24576");
    tm_mllog_free(w.log);
    tm_text dropped = fake_read(o.drop_caches);
    assert_string_equal(dropped.data, "3\n");
    tm_text_fini(&dropped);
}

TEST(a_run_of_llama2_70b_lora_complies)
{
    tm_mllog_options o = options_of("llama2_70b_lora");
    tm_run_started   start = started_lora();
    tm_error         err = { 0 };
    assert_int_equal(run(&o, &start, 0.92, &err), TM_OK);
    written w = read_log(&o);
    complies(&w, NULL);
    is_i64(&w, "lora_rank", "16");
    is_f64(&w, "lora_alpha", 32);
    is_i64(&w, "opt_learning_rate_training_steps", "1024");
    tm_mllog_free(w.log);
}

TEST(runs_of_later_benchmarks_comply)
{
    tm_mllog_options o = options_of("flux1");
    tm_run_started   start = started_flux();
    tm_error         err = { 0 };
    assert_int_equal(run(&o, &start, 0.586, &err), TM_OK);
    written w = read_log(&o);
    complies(&w, NULL);
    is_i64(&w, "evaluation_frequency", "262144");
    is_i64(&w, "micro_batch_size", "2");
    assert_true(tm_json_is_text(find(&w, "lowest_numerical_precision_in_linear")->value, "mxfp4"));
    assert_true(tm_json_is_text(find(&w, "lowest_numerical_precision_in_attn")->value, "bfloat16"));
    assert_true(tm_json_is_text(find(&w, "lowest_numerical_precision_in_comm")->value, "fp32"));
    assert_true(tm_json_is_text(find(&w, "config_filename")->value, "a.yaml"));
    tm_mllog_free(w.log);
    o = options_of("gpt_oss_20b");
    start = started_8b();
    assert_int_equal(run(&o, &start, 3.34, &err), TM_OK);
    w = read_log(&o);
    complies_since(&w, TM_RULESET_6_0_0, NULL);
    tm_mllog_free(w.log);
}

/* Whatever differs from the rules is logged as it is, and found by the check. */
TEST(what_ran_is_what_is_logged)
{
    tm_mllog_options o = options_of("llama31_8b");
    tm_error         err = { 0 };
    const struct {
        size_t      at;
        double      value;
        const char *message;
    } cases[] = { { offsetof(tm_recipe, beta1), 0.91, "'opt_adamw_beta_1' failed: wanted value == 0.9; value is 0.91" },
                  { offsetof(tm_recipe, eps), 1e-8,
                    "'opt_adamw_epsilon' failed: wanted value == 1e-05; value is 1e-08" },
                  { offsetof(tm_recipe, weight_decay), 0, "'opt_adamw_weight_decay'" },
                  { offsetof(tm_recipe, max_norm), (double)INFINITY, "value is Infinity" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tm_run_started start = started_8b();
        memcpy((char *)&start.recipe + cases[i].at, &cases[i].value, sizeof(double));
        assert_int_equal(run(&o, &start, 3.2, &err), TM_OK);
        written w = read_log(&o);
        complies(&w, cases[i].message);
        tm_mllog_free(w.log);
    }
    tm_run_started start = started_8b();
    start.recipe.schedule = "linear warmup, stable, cosine decay";
    assert_int_equal(run(&o, &start, 3.2, &err), TM_OK);
    written w = read_log(&o);
    complies(&w, "linear warmup, stable, cosine decay");
    tm_mllog_free(w.log);
}

/* What is wrong with the recipe is said when the run starts. */
TEST(a_run_that_will_not_comply_is_warned_of)
{
    tm_mllog_options o = options_of("llama31_8b");
    tm_run_started   start = started_8b();
    tm_error         err = { 0 };
    for (int i = 0; i < 2; i++) {
        char path[256];
        int  old = dup(2);
        strcpy(path, test_in_folder("warnings"));
        assert_non_null(freopen(path, "w", stderr));
        tm_log_set_level(TM_LOG_WARN);
        tm_status st = run(&o, &start, 3.2, &err);
        tm_log_set_level(TM_LOG_ERROR);
        fflush(stderr);
        assert_true(dup2(old, 2) == 2 && close(old) == 0);
        assert_int_equal(st, TM_OK);
        tm_text said = fake_read(path);
        bool    warned = said.data && strstr(said.data, "this run will not comply: CHECK for 'eval_samples' failed: "
                                                           "wanted value == 1024; value is 1026");
        assert_true(warned == (i == 1) && (said.length > 0) == (i == 1));
        tm_text_fini(&said);
        start.recipe.eval_samples = 1026;
    }
}

TEST(a_missed_target_is_no_success)
{
    tm_mllog_options o = options_of("llama31_8b");
    tm_run_started   start = started_8b();
    tm_error         err = { 0 };
    const double     losses[] = { 3.3000001, (double)NAN, (double)INFINITY };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(run(&o, &start, losses[i], &err), TM_OK);
        written w = read_log(&o);
        assert_true(tm_mllog_mentions(find(&w, "run_stop"), "\"status\": \"aborted\""));
        complies(&w, "Failed checks for eval_accuracy");
        tm_mllog_free(w.log);
    }
}

TEST(caches_that_were_not_dropped_are_not_logged)
{
    tm_mllog_options o = options_of("llama31_8b");
    tm_run_started   start = started_8b();
    tm_error         err = { 0 };
    o.clear_caches = false;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run(&o, &start, 3.2, &err), TM_OK);
        written w = read_log(&o);
        complies(&w, "'cache_clear' but found 0");
        tm_mllog_free(w.log);
        o.clear_caches = true;
        o.drop_caches = "/nowhere/drop_caches";
    }
}

/* An interrupted run: no evaluation at its end. */
TEST(an_interrupted_run_is_aborted)
{
    tm_mllog_options o = options_of("trainmark_tiny");
    tm_run_started   start = started_8b();
    tm_error         err = { 0 };
    tm_sink         *sink;
    assert_int_equal(tm_mllog_sink_open(&o, &sink, &err), TM_OK);
    say(sink, (tm_event){ .kind = TM_EVENT_RUN_STARTED, .run_started = start });
    usleep(5000);
    say(sink, (tm_event){ .kind = TM_EVENT_RUN_ENDED, .run_ended = { .reason = "", .samples = 96 } });
    assert_int_equal(tm_sink_close(sink, &err), TM_OK);
    written w = read_log(&o);
    assert_true(tm_mllog_mentions(find(&w, "block_stop"), "\"samples_count\": 96}"));
    assert_true(tm_mllog_mentions(find(&w, "run_stop"), "\"status\": \"aborted\""));
    const tm_json_value *rate = tm_json_member(find(&w, "tracked_stats")->value, "throughput");
    assert_true(rate->number > 0 && rate->number <= 96 / 0.005);
    tm_mllog_free(w.log);
}

/* A run that is stopped in its second evaluation: that one ends without an accuracy. */
TEST(an_evaluation_cut_short_ends)
{
    tm_mllog_options o = options_of("trainmark_tiny");
    tm_run_started   start = started_8b();
    tm_error         err = { 0 };
    tm_sink         *sink;
    assert_int_equal(tm_mllog_sink_open(&o, &sink, &err), TM_OK);
    say(sink, (tm_event){ .kind = TM_EVENT_RUN_STARTED, .run_started = start });
    evaluate(sink, 1, 32, 3.5, false);
    say(sink, (tm_event){ .kind = TM_EVENT_EVALUATION_STARTED, .evaluation_started = { .step = 2, .samples = 64 } });
    say(sink, (tm_event){ .kind = TM_EVENT_RUN_ENDED, .run_ended = { .reason = "", .samples = 64 } });
    assert_int_equal(tm_sink_close(sink, &err), TM_OK);
    written w = read_log(&o);
    intervals_are_paired(&w);
    assert_true(tm_mllog_mentions(find(&w, "eval_start"), "\"samples_count\": 64}"));
    assert_true(tm_mllog_mentions(find(&w, "eval_stop"), "\"samples_count\": 64}"));
    assert_true(tm_mllog_mentions(find(&w, "eval_accuracy"), "\"samples_count\": 32}"));
    assert_true(tm_mllog_mentions(find(&w, "run_stop"), "\"status\": \"aborted\""));
    tm_mllog_free(w.log);
}

static int64_t wall_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Times are milliseconds of the wall clock, throughput is samples per second of them. */
TEST(times_are_milliseconds)
{
    tm_mllog_options o = options_of("trainmark_tiny");
    tm_run_started   start = started_8b();
    tm_error         err = { 0 };
    tm_sink         *sink;
    int64_t          began = wall_clock_ms();
    assert_int_equal(tm_mllog_sink_open(&o, &sink, &err), TM_OK);
    say(sink, (tm_event){ .kind = TM_EVENT_RUN_STARTED, .run_started = start });
    usleep(50000);
    say(sink, (tm_event){ .kind = TM_EVENT_RUN_ENDED, .run_ended = { .reason = "", .samples = 96 } });
    assert_int_equal(tm_sink_close(sink, &err), TM_OK);
    int64_t ended = wall_clock_ms();
    written w = read_log(&o);
    double  from = find(&w, "block_start")->time_ms, to = find(&w, "block_stop")->time_ms;
    assert_true(from >= (double)began - 1 && to >= from + 49 && to <= (double)ended + 1);
    double stop = find(&w, "tracked_stats")->time_ms;
    double rate = tm_json_member(find(&w, "tracked_stats")->value, "throughput")->number;
    assert_true(fabs(rate * (stop - from) / 1000 / 96 - 1) < 1e-9);
    tm_mllog_free(w.log);
}

TEST(nothing_is_written_before_the_run_starts)
{
    tm_mllog_options o = options_of("trainmark_tiny");
    tm_error         err = { 0 };
    tm_sink         *sink;
    unlink(o.path);
    assert_int_equal(tm_mllog_sink_open(&o, &sink, &err), TM_OK);
    assert_int_equal(tm_sink_close(sink, &err), TM_OK);
    assert_int_not_equal(access(o.path, F_OK), 0);
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
