/* SPDX-License-Identifier: Apache-2.0 */
/* What outputs say of time, to the letter, by a clock of the test's own: frames of the panel, the log for MLPerf. */
#include "support/fake_clock.h"
#include "support/fake_run.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/whole.h"

#include "base/log.h"
#include "record/panel.h"
#include "record/record.h"
#include "record/sink_kind.h"
#include "stats/sampling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static const int64_t MS = 1000000;

/* --- frames of the panel ------------------------------------------------------------------------------------------ */

/* A frame comes a quarter of a second after the last one, not before, whatever steps do meanwhile; or when it must. */
TEST(frames_wait_a_quarter_of_a_second)
{
    static const struct {
        int64_t passes_ms;
        bool    now, drawn;
    } steps[] = { { 0, false, true },    { 249, false, false }, { 1, false, true },       { 250, false, true },
                  { 100, false, false }, { 149, false, false }, { 0, true, true },        { 249, false, false },
                  { 2, false, true },    { 1, true, true },     { 86400000, false, true } };
    char            *data = NULL;
    size_t           bytes = 0, before = 0;
    tm_terminal_size size = { 100, 40 };
    tm_event         event = fake_started();
    FILE            *file = open_memstream(&data, &bytes);
    fake_clock_start(0, 0);
    tm_panel *panel = tm_panel_create(&(tm_panel_options){ .to = file, .size = &size });
    tm_panel_take(panel, &event);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        fake_clock_pass(steps[i].passes_ms * MS);
        event = fake_step((int64_t)i + 1);
        tm_panel_take(panel, &event);
        tm_panel_above(panel, "line\n");
        tm_panel_draw(panel, steps[i].now);
        if ((bytes > before) != steps[i].drawn) fail_msg("step %zu: %zu bytes", i, bytes - before);
        if (steps[i].drawn) assert_non_null(strstr(data + before, "ETA"));
        before = bytes;
    }
    tm_panel_destroy(panel);
    fake_clock_stop();
    fclose(file);
    size_t lines = 0; /* all that was to stand above */
    for (const char *at = data; (at = strstr(at, "line\n")); at++) lines++;
    assert_int_equal(lines, sizeof steps / sizeof *steps);
    free(data);
}

/* --- the log for MLPerf ------------------------------------------------------------------------------------------- */

static void say(tm_sink *sink, tm_event event)
{
    sink->handle(sink, &event);
}

static void evaluate(tm_sink *sink, int64_t samples, double loss, bool last)
{
    say(sink,
        (tm_event){ .kind = TM_EVENT_EVALUATION_STARTED, .evaluation_started = { .step = 1, .samples = samples } });
    fake_clock_pass(125 * MS);
    say(sink, (tm_event){ .kind = TM_EVENT_EVALUATION,
                          .evaluation = { .step = 1,
                                          .samples = samples,
                                          .loss = loss,
                                          .bits_per_byte = 9,
                                          .tokens = 9,
                                          .seconds = 9,
                                          .last = last } });
}

/* No two figures of the recipe are alike. */
static tm_run_started started(void)
{
    tm_run_started run = fake_started().run_started;
    run.seed = 123;
    run.steps = 4000;
    run.first_step = 3;
    run.first_sample = 64;
    run.recipe = (tm_recipe){ .optimizer = "adamw",
                              .schedule = "cosine with linear warmup",
                              .global_batch = 32,
                              .accumulation = 5,
                              .sequence_length = 8192,
                              .eval_samples = 1024,
                              .warmup_steps = 128,
                              .decay_steps = 3872,
                              .learning_rate = 0.0008,
                              .end_learning_rate = 0.00008,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-5,
                              .weight_decay = 0.1,
                              .max_norm = 0.75,
                              .lora_rank = 16,
                              .lora_alpha = 24,
                              .micro_batch = 2,
                              .eval_interval = 12288,
                              .precision_linear = "mxfp4",
                              .precision_attention = "bfloat16",
                              .precision_communication = "fp32",
                              .tensor_ranks = 2,
                              .pipeline_ranks = 3,
                              .context_ranks = 4,
                              .expert_ranks = 5 };
    return run;
}

/* The lines with `word`. The times of the first lines are those of the process; the lines of the source are left out.
 */
static void add_log(tm_text *out, const char *path, const char *word)
{
    tm_text text = fake_read(path);
    for (char *line = text.data, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = '\0';
        if (!strstr(line, word)) continue;
        char *time = strstr(line, "\"time_ms\": "), *number = strstr(line, "\"lineno\": ");
        assert_true(time && number);
        if (strstr(line, "init_start")) memset(time + 11, '#', strspn(time + 11, "0123456789"));
        number += strlen("\"lineno\": ");
        size_t digits = strspn(number, "0123456789");
        assert_true(digits > 0);
        tm_text_printf(out, "%.*sN%s\n", (int)(number - line), line, number + digits);
    }
    tm_text_fini(&text);
}

TEST(the_log_to_the_letter)
{
    tm_text          out = { 0 };
    tm_error         err = { 0 };
    tm_sink         *sink;
    tm_run_started   run = started();
    FILE            *caches = fopen(test_in_folder("caches"), "w");
    tm_mllog_options o = { .path = test_in_folder("mllog.txt"),
                           .benchmark = tm_mlperf_benchmark_find("llama31_8b"),
                           .org = "Org",
                           .platform = "Platform",
                           .division = "closed",
                           .status = "onprem",
                           .poc_name = "Name",
                           .poc_email = "Mail",
                           .config_filename = "a.yaml",
                           .clear_caches = true,
                           .drop_caches = test_in_folder("caches") };
    assert_true(caches && fclose(caches) == 0);
    whole_log_open();
    fake_clock_start(0, 0);
    assert_int_equal(tm_mllog_sink_open(&o, &sink, &err), TM_OK);
    fake_clock_pass(1500 * MS + 999999);
    say(sink, (tm_event){ .kind = TM_EVENT_RUN_STARTED, .run_started = run });
    fake_clock_pass(12500 * MS);
    evaluate(sink, 1264, 3.25, false); /* the target is met once, which counts */
    evaluate(sink, 1264, 3.5, false);  /* no time between them: no throughput */
    fake_clock_pass(2000 * MS);
    evaluate(sink, 1364, 3.75, true);
    fake_clock_pass(1000 * MS);
    say(sink, (tm_event){ .kind = TM_EVENT_RUN_ENDED, .run_ended = { .reason = "", .samples = 1364 } });
    assert_int_equal(tm_sink_close(sink, &err), TM_OK);
    add_log(&out, o.path, "");
    /* Of another optimizer, without adapters, evaluations, names, formats and ranks; the caches cannot be dropped. */
    run.recipe.optimizer = "sgd";
    run.recipe.lora_rank = run.recipe.eval_interval = 0;
    run.recipe.precision_linear = run.recipe.precision_attention = run.recipe.precision_communication = NULL;
    run.recipe.tensor_ranks = run.recipe.pipeline_ranks = run.recipe.context_ranks = run.recipe.expert_ranks = 0;
    o.poc_name = o.poc_email = o.config_filename = NULL;
    o.benchmark = tm_mlperf_benchmark_find("trainmark_tiny");
    o.drop_caches = "/nowhere/drop";
    assert_int_equal(tm_mllog_sink_open(&o, &sink, &err), TM_OK);
    say(sink, (tm_event){ .kind = TM_EVENT_RUN_STARTED, .run_started = run });
    fake_clock_pass(250 * MS);
    say(sink, (tm_event){ .kind = TM_EVENT_RUN_ENDED, .run_ended = { .reason = "", .samples = 96 } });
    assert_int_equal(tm_sink_close(sink, &err), TM_OK);
    fake_clock_stop();
    tm_text_add(&out, "== another\n");
    add_log(&out, o.path, "");
    tm_text_add(&out, "== what is said meanwhile\n");
    whole_log_take(&out);
    whole_log_close();
    whole_is("tests/golden/whole-mllog.txt", &out);
}

/* What the log is told by a configuration: of a file the last part of its name. */
static void add_told(tm_text *out, const char *file, const char *words)
{
    tm_config        *config = test_full_config();
    tm_environment   *environment = tm_environment_read("");
    tm_arena         *arena = tm_arena_create();
    tm_output_options o = { .folder = test_folder(), .config = config, .environment = environment };
    tm_sink          *sink;
    tm_error          err = { 0 };
    assert_false(record_mllog_kind.wanted(&o));
    if (file && tm_config_load_file(config, file, &err) != TM_OK) fail_msg("%s", err.text);
    test_apply_words(config, words);
    assert_true(record_mllog_kind.wanted(&o));
    fake_clock_start(0, 0);
    if (record_mllog_kind.open(&o, NULL, arena, &sink, &err) != TM_OK) fail_msg("%s", err.text);
    say(sink, (tm_event){ .kind = TM_EVENT_RUN_STARTED, .run_started = started() });
    say(sink, (tm_event){ .kind = TM_EVENT_RUN_ENDED, .run_ended = { .reason = "", .samples = 96 } });
    assert_int_equal(tm_sink_close(sink, &err), TM_OK);
    fake_clock_stop();
    tm_text_printf(out, "== %s\n", words);
    add_log(out, test_in_folder("told.txt"), "\"submission_");
    add_log(out, test_in_folder("told.txt"), "\"config_");
    add_log(out, test_in_folder("told.txt"), "\"cache_");
    tm_config_destroy(config);
    tm_environment_destroy(environment);
    tm_arena_destroy(arena);
}

TEST(a_configuration_tells_the_log)
{
    tm_text     out = { 0 };
    const char *file = test_file_write(test_folder(), "told.yaml", "training:\n  steps: 4\n");
    whole_log_open();
    add_told(&out, file,
             "--mlperf.enable true --mlperf.benchmark trainmark_tiny --mlperf.submission_org Org "
             "--mlperf.submission_platform Box --mlperf.clear_caches false --mlperf.submission_division open "
             "--mlperf.submission_status research "
             "--mlperf.submission_poc_name Name --mlperf.submission_poc_email Mail --mlperf.log told.txt");
    add_told(&out, NULL,
             "--mlperf.enable true --mlperf.benchmark llama31_8b --mlperf.submission_org Other "
             "--mlperf.submission_platform Machine --mlperf.clear_caches false --mlperf.log told.txt");
    char *here = getcwd(NULL, 0);
    assert_true(here && chdir(test_folder()) == 0); /* of a file beside, the name alone */
    add_told(&out, "told.yaml",
             "--mlperf.enable true --mlperf.benchmark llama31_8b --mlperf.submission_org Other "
             "--mlperf.submission_platform Machine --mlperf.clear_caches false --mlperf.log told.txt");
    assert_int_equal(chdir(here), 0);
    free(here);
    tm_text_add(&out, "== what is said meanwhile\n");
    whole_log_take(&out);
    whole_log_close();
    whole_is("tests/record/whole-told.txt", &out);
}

/* Where the log cannot be written that is said before the run, with its key. */
TEST(a_log_that_cannot_be_written)
{
    tm_config        *config = test_full_config();
    tm_environment   *environment = tm_environment_read("");
    tm_arena         *arena = tm_arena_create();
    tm_output_options o = { .folder = test_folder(), .config = config, .environment = environment };
    tm_sink          *sink = NULL;
    tm_error          err = { 0 };
    test_apply_words(config, "--mlperf.enable true --mlperf.benchmark trainmark_tiny --mlperf.submission_org Org "
                             "--mlperf.submission_platform Box --mlperf.clear_caches false --mlperf.log no/such/log");
    assert_int_equal(record_mllog_kind.open(&o, NULL, arena, &sink, &err), TM_INVALID);
    assert_null(sink);
    assert_non_null(strstr(err.text, "mlperf.log"));
    assert_non_null(strstr(err.text, "no/such/log"));
    tm_config_destroy(config);
    tm_environment_destroy(environment);
    tm_arena_destroy(arena);
}

/* Without a name the platform is the processor; where that is not known either, a name is asked for. */
TEST(a_platform_without_a_name)
{
    for (int known = 0; known < 2; known++) {
        tm_config        *config = test_full_config();
        tm_environment   *environment = tm_environment_read(known ? "" : test_in_folder("no machine"));
        tm_arena         *arena = tm_arena_create();
        tm_output_options o = { .folder = test_folder(), .config = config, .environment = environment };
        const char       *name = tm_environment_text(environment, "cpu", NULL, "model");
        tm_sink          *sink = NULL;
        tm_error          err = { 0 };
        test_apply_words(config, "--mlperf.enable true --mlperf.benchmark trainmark_tiny --mlperf.submission_org Org "
                                 "--mlperf.clear_caches false --mlperf.log named.txt");
        tm_status st = record_mllog_kind.open(&o, NULL, arena, &sink, &err);
        if (name && *name) {
            char wanted[300];
            assert_int_equal(st, TM_OK);
            say(sink, (tm_event){ .kind = TM_EVENT_RUN_STARTED, .run_started = started() });
            assert_int_equal(tm_sink_close(sink, &err), TM_OK);
            tm_text text = fake_read(test_in_folder("named.txt"));
            snprintf(wanted, sizeof wanted, "\"submission_platform\", \"value\": \"%.200s", name);
            assert_non_null(strstr(text.data, wanted));
            tm_text_fini(&text);
        } else {
            assert_int_equal(st, TM_INVALID);
            assert_string_equal(err.text, "the name of the processor is not known; set mlperf.submission_platform");
        }
        assert_true(known || !name || !*name);
        tm_config_destroy(config);
        tm_environment_destroy(environment);
        tm_arena_destroy(arena);
    }
}

/* log.file, as a configuration asks for it: how often, in which style, never with colours. */
TEST(logs_in_files)
{
    static const char *const words[] = { "--metrics.log_freq 7", "--metrics.log_freq 25 --metrics.log_style megatron",
                                         "--metrics.log_freq 30 --log.color false" };
    tm_text                  out = { 0 };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        tm_config        *config = test_full_config();
        tm_run_options    run = { 0 };
        tm_output_options o = { .folder = test_folder(), .config = config, .run = &run };
        tm_sink          *sink;
        tm_error          err = { 0 };
        char              file[600];
        run.step.micro_batch = 2;
        run.step.accumulation = 3;
        assert_false(record_log_kind.wanted(&o));
        snprintf(file, sizeof file, "--log.file %s %s", test_in_folder("run.log"), words[i]);
        test_apply_words(config, file);
        assert_true(record_log_kind.wanted(&o));
        unlink(test_in_folder("run.log"));
        fake_clock_start(0, 0);
        if (record_log_kind.open(&o, NULL, NULL, &sink, &err) != TM_OK) fail_msg("%s", err.text);
        fake_emit(sink, fake_started());
        for (int step = 1; step <= FAKE_STEPS; step++) {
            fake_clock_pass(200 * MS);
            fake_emit(sink, fake_step(step));
        }
        fake_close(sink);
        fake_clock_stop();
        tm_text text = fake_read(test_in_folder("run.log"));
        assert_null(strchr(text.data, '\033'));
        for (char *date = text.data; (date = strstr(date, "\n [")); date += 3)
            memset(date + 3, '#', strspn(date + 3, "0123456789-: "));
        tm_text_printf(&out, "== %s\n%s", words[i], text.data);
        tm_text_fini(&text);
        tm_config_destroy(config);
    }
    whole_is("tests/record/whole-log-files.txt", &out);
}

TESTS_ALONE
TEST_FIXTURE(NULL, test_folder_teardown)
