/* SPDX-License-Identifier: Apache-2.0 */
/* Runs in which something odd happens, and what the outputs make of it: steps that take no time, losses that are no
 * numbers, looks without an end, files whose place another took. */
#include "support/fake_clock.h"
#include "support/fake_run.h"
#include "support/folder.h"
#include "support/full_config.h"

#include "base/file.h"
#include "record/record.h"
#include "record/sink.h"
#include "record/sink_kind.h"
#include "stats/sampling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

static void has(const char *text, const char *wanted)
{
    if (!strstr(text, wanted)) fail_msg("no '%s' in: %s", wanted, text);
}

/* --- what is kept ------------------------------------------------------------------------------------------------- */

/* A run in which nothing diverged has no step at which it did, and no worst tensor. */
TEST(a_result_of_looks_that_agree)
{
    for (int diverges = 0; diverges < 2; diverges++) {
        tm_result_options options = { .path = test_in_folder("looks.json") };
        tm_event          look = fake_look(7);
        tm_sink          *sink;
        tm_error          err = { 0 };
        if (!diverges) look.look.first = look.look.worst = NULL;
        assert_int_equal(tm_result_sink_open(&options, &sink, &err), TM_OK);
        fake_emit(sink, fake_started());
        fake_emit(sink, look);
        fake_emit(sink, fake_ended(1, TM_VERDICT_VALID, ""));
        fake_close(sink);
        tm_text text = fake_read(options.path);
        has(text.data, diverges ? "\"first_divergent_step\": 7," : "\"first_divergent_step\": null,");
        has(text.data, diverges ? "\"worst\": \"layers.0.w1.weight.grad\"" : "\"worst\": null");
        tm_text_fini(&text);
    }
}

/* --- metrics ------------------------------------------------------------------------------------------------------ */

/* --- perf.csv ----------------------------------------------------------------------------------------------------- */

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

/* Variables of a runner: the pipeline and the number of the build; secrets are masked. */
TEST(variables_of_a_runner_are_told)
{
    tm_config        *config = test_full_config();
    tm_environment   *environment = tm_environment_read("");
    tm_arena         *arena = tm_arena_create();
    tm_output_options o = { .folder = test_folder(), .config = config, .environment = environment, .command = "cmd" };
    tm_sink          *sink;
    tm_error          err = { 0 };
    char              path[600];
    strcpy(path, test_in_folder("told.csv"));
    for (int set = 0; set < 2; set++) {
        unsetenv("pipeline");
        unsetenv("BUILD_NUMBER");
        if (set) assert_int_equal(setenv("pipeline", "nightly", 1) + setenv("BUILD_NUMBER", "4711", 1), 0);
        assert_int_equal(record_perf_kind.open(&o, path, arena, &sink, &err), TM_OK);
        fake_emit(sink, fake_started());
        fake_emit(sink, fake_ended(1, TM_VERDICT_VALID, ""));
        fake_close(sink);
        tm_text text = fake_read(path);
        has(text.data, set ? ",float32,nightly,cmd," : ",float32,,cmd,");
        has(text.data, set ? ",synthetic,,,,4711,\n" : ",synthetic,,,,,\n");
        tm_text_fini(&text);
    }
    unsetenv("pipeline");
    unsetenv("BUILD_NUMBER");
    tm_config_destroy(config);
    tm_environment_destroy(environment);
    tm_arena_destroy(arena);
}

TESTS_ALONE
TEST_FIXTURE(NULL, test_folder_teardown)
