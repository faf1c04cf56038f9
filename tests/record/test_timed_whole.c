/* SPDX-License-Identifier: Apache-2.0 */
/* What outputs say of time, by a clock of the test's own: frames of the panel, the log for MLPerf, logs in files. */
#include "support/fake_clock.h"
#include "recipe.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/whole.h"

#include "base/log.h"
#include "record/panel.h"
#include "record/record.h"
#include "record/sink_kind.h"
#include "stats/sampling.h"

#include <jansson.h>

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

/* No two figures of the recipe are alike. */
static tm_run_started started(void)
{
    tm_run_started run = started_8b();
    run.seed = 123;
    run.steps = 4000;
    run.first_step = 3;
    run.first_sample = 64;
    run.recipe.accumulation = 5;
    run.recipe.decay_steps = 3872;
    run.recipe.max_norm = 0.75;
    run.recipe.lora_rank = 16;
    run.recipe.lora_alpha = 24;
    run.recipe.tensor_ranks = 2;
    run.recipe.pipeline_ranks = 3;
    run.recipe.context_ranks = 4;
    run.recipe.expert_ranks = 5;
    return run;
}

/* Figures of the recipe by the names of MLPerf; those that stand there are counted. */
static void recipe_is_told(const char *key, const json_t *value, int *met)
{
    static const char figures[] =
        " seed=123; global_batch_size=32; gradient_accumulation_steps=5; micro_batch_size=2;"
        " max_sequence_length=8192; eval_samples=1024; evaluation_frequency=12288; max_steps=4000;"
        " opt_base_learning_rate=0.0008; opt_end_learning_rate=0.00008; opt_adamw_beta_1=0.9;"
        " opt_adamw_beta_2=0.95; opt_adamw_epsilon=1e-5; opt_adamw_weight_decay=0.1;"
        " opt_gradient_clip_norm=0.75; opt_learning_rate_warmup_steps=128;"
        " opt_learning_rate_decay_steps=3872; opt_learning_rate_training_steps=4000; lora_rank=16;"
        " lora_alpha=24; tensor_parallelism=2; pipeline_parallelism=3; context_parallelism=4;"
        " expert_parallelism=5";
    char name[64];
    snprintf(name, sizeof name, " %s=", key);
    const char *at = strstr(figures, name);
    if (!at) return;
    if (!(fabs(json_number_value(value) - strtod(at + strlen(name), NULL)) < 1e-12)) fail_msg("%s", key);
    ++*met;
}

/* What the log is told by a configuration, "key=value" in its order; of a file the last part of its name. */
static void is_told(const char *file, const char *words, const char *const *wanted)
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
    tm_text     text = fake_read(test_in_folder("told.txt"));
    const char *line = text.data;
    int         met = 0;
    for (; (line = strstr(line, ":::MLLOG ")); line += strlen(":::MLLOG ")) {
        char    pair[100];
        int     n = (int)strcspn(line + 9, "\n");
        json_t *record = json_loadb(line + 9, (size_t)n, 0, NULL);
        snprintf(pair, sizeof pair, "%s=%s", json_string_value(json_object_get(record, "key")),
                 json_string_value(json_object_get(record, "value")));
        recipe_is_told(json_string_value(json_object_get(record, "key")), json_object_get(record, "value"), &met);
        json_decref(record);
        if (strncmp(pair, "submission_", 11) && strncmp(pair, "config_", 7) && strncmp(pair, "cache_", 6)) continue;
        if (!*wanted || strcmp(pair, *wanted) != 0) fail_msg("'%s', wanted '%s'", pair, *wanted ? *wanted : "nothing");
        wanted++;
    }
    assert_null(*wanted);
    assert_int_equal(met, 24); /* each once */
    tm_text_fini(&text);
    tm_config_destroy(config);
    tm_environment_destroy(environment);
    tm_arena_destroy(arena);
}

TEST(a_configuration_tells_the_log)
{
    static const char own[] = "--mlperf.enable true --mlperf.benchmark trainmark_tiny --mlperf.submission_org Org "
                              "--mlperf.submission_platform Box --mlperf.clear_caches false "
                              "--mlperf.submission_division open --mlperf.submission_status research "
                              "--mlperf.submission_poc_name Name --mlperf.submission_poc_email Mail "
                              "--mlperf.log told.txt",
                      other[] = "--mlperf.enable true --mlperf.benchmark llama31_8b --mlperf.submission_org Other "
                                "--mlperf.submission_platform Machine --mlperf.clear_caches false "
                                "--mlperf.log told.txt";
    static const char *const of_own[] = {
        "submission_benchmark=trainmark_tiny", "submission_org=Org",        "submission_division=open",
        "submission_status=research",          "submission_platform=Box",   "submission_poc_name=Name",
        "submission_poc_email=Mail",           "config_filename=told.yaml", NULL
    };
    const char *of_other[] = { "submission_benchmark=llama31_8b",
                               "submission_org=Other",
                               "submission_division=closed",
                               "submission_status=onprem",
                               "submission_platform=Machine",
                               "config_filename=command line",
                               NULL };
    tm_text     said = { 0 };
    const char *file = test_file_write(test_folder(), "told.yaml", "training:\n  steps: 4\n");
    whole_log_open();
    is_told(file, own, of_own);
    is_told(NULL, other, of_other);
    test_folder_enter(); /* of a file beside, the name alone */
    of_other[5] = "config_filename=told.yaml";
    is_told("told.yaml", other, of_other);
    test_folder_leave();
    whole_log_take(&said); /* what will not comply, of each */
    assert_non_null(strstr(said.data, "no rule set here for submission_benchmark \"trainmark_tiny\""));
    int n = 0;
    for (const char *at = said.data; (at = strstr(at, "this run will not comply: ")); at++) n++;
    assert_int_equal(n, 1 + 2 * 3);
    assert_non_null(strstr(said.data, "CHECK for 'max_steps' failed: wanted value == 1200000; value is 4000"));
    tm_text_fini(&said);
    whole_log_close();
}

TESTS_ALONE
TEST_FIXTURE(NULL, test_folder_teardown)
