/* SPDX-License-Identifier: Apache-2.0 */
/* What result.json and the report say of a run with known step times, worked out anew, units included: parts are
 * percent, short times milliseconds. */
#include "support/folder.h"
#include "support/fake_run.h"

#include "record/record.h"
#include "stats/sampling.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

/* A summary in which no two figures are alike. */
static tm_event end_of_run(void)
{
    static tm_sample_summary speed;
    tm_event                 end = fake_ended(FAKE_STEPS, TM_VERDICT_VALID, "");
    speed = *end.run_ended.speed;
    speed.median = 0.123;
    speed.p5 = 0.0456;
    speed.p95 = 7.89;
    speed.variation = 0.0321;
    speed.half_width = 0.0654;
    speed.rate = 50000;
    speed.median_rate = 25000;
    speed.median_rate_lo = 24000;
    speed.median_rate_hi = 27000;
    end.run_ended.speed = &speed;
    return end;
}

static void run_into(tm_sink *sink)
{
    fake_emit(sink, fake_started());
    for (int64_t step = 1; step <= FAKE_STEPS; step++) fake_emit(sink, fake_step(step));
    fake_emit(sink, end_of_run());
    fake_close(sink);
}

static void is(const json_t *object, const char *group, const char *member, double wanted)
{
    const json_t *of = group ? json_object_get(object, group) : object;
    double        value = json_number_value(json_object_get(of, member));
    if (!(fabs(value - wanted) <= 1e-9 * fabs(wanted)))
        fail_msg("%s.%s is %.17g, wanted %.17g", group ? group : "", member, value, wanted);
}

TEST(result_has_percents_and_seconds)
{
    tm_error          err = { 0 };
    tm_sink          *sink = NULL;
    tm_result_options options = { .path = test_in_folder("result.json") };
    assert_int_equal(tm_result_sink_open(&options, &sink, &err), TM_OK);
    run_into(sink);
    json_t *result = json_load_file(options.path, 0, NULL);
    assert_non_null(result);
    is(result, "step_time", "median", 0.123);
    is(result, "step_time", "p5", 0.0456);
    is(result, "step_time", "p95", 7.89);
    is(result, "step_time", "variation_percent", 3.21);
    is(result, "tokens_per_second_per_device", "median", 25000);
    is(result, "tokens_per_second_per_device", "lo", 24000);
    is(result, "tokens_per_second_per_device", "hi", 27000);
    is(result, "tokens_per_second_per_device_overall", "half_width_percent", 6.54);
    const json_t *flops = json_array_get(json_object_get(result, "flops"), 0);
    is(flops, NULL, "per_token", 6e6);
    is(flops, NULL, "per_second_per_device", 6e6 * 25000);
    is(flops, NULL, "mfu_percent", 60); /* 150e9 of 250e9 */
    json_decref(result);
}

/* The line with `label`, from there on. */
static void line_has(const char *text, const char *label, const char *wanted)
{
    const char *line = strstr(text, label);
    if (!line) fail_msg("no line '%s' in:\n%s", label, text);
    char   words[200] = "";
    size_t n = strcspn(line, "\n");
    snprintf(words, sizeof words, "%.*s", (int)n, line);
    if (!strstr(words, wanted)) fail_msg("wanted '%s' in '%s'", wanted, words);
}

TEST(the_report_has_percents_and_milliseconds)
{
    tm_error           err = { 0 };
    tm_sink           *sink = NULL;
    char              *text = NULL;
    size_t             bytes = 0;
    tm_console_options console = { .out = open_memstream(&text, &bytes), .log_freq = 100, .verbose = true };
    assert_int_equal(tm_console_sink_open(&console, &sink, &err), TM_OK);
    run_into(sink);
    fclose(console.out);
    line_has(text, "step time, median", " 123 ms");
    line_has(text, "step time, 5 and 95 %", " 45.6 ms");
    line_has(text, "step time, 5 and 95 %", " 7.89 s");
    line_has(text, "step time, variation", " 3.2 %");
    line_has(text, "6 N + 12 L A hd S", " 60.00 %");
    /* All steps but the first: 0.2 s and 0, 0.5, 1 or 1.5 ms in turn; 0.3 of each is the line of the products. */
    double whole = 0;
    for (int64_t step = 2; step <= FAKE_STEPS; step++) whole += fake_step(step).step_done.seconds / (FAKE_STEPS - 1);
    char wanted[40];
    snprintf(wanted, sizeof wanted, " %.3f", 300 * whole);
    line_has(text, "forward linear", wanted);
    line_has(text, "forward linear", " 30.0 %");
    snprintf(wanted, sizeof wanted, " %.3f", 1000 * whole);
    line_has(text, "whole step", wanted);
    free(text);
}

/* Megatron's line tells two times: of the steps since the last line, and of all steps from the third on. */
TEST(step_lines_have_two_times)
{
    tm_error           err = { 0 };
    tm_sink           *sink = NULL;
    char              *text = NULL;
    size_t             bytes = 0;
    tm_console_options console = { .out = open_memstream(&text, &bytes),
                                   .log_freq = 4,
                                   .style = TM_LOG_STYLE_MEGATRON };
    assert_int_equal(tm_console_sink_open(&console, &sink, &err), TM_OK);
    fake_emit(sink, fake_started());
    for (int64_t step = 1; step <= 4; step++) {
        tm_event event = fake_step(step);
        event.step_done.seconds = (double)step;
        fake_emit(sink, event);
    }
    fake_emit(sink, fake_ended(4, TM_VERDICT_VALID, ""));
    fake_close(sink);
    fclose(console.out);
    line_has(text, "iteration        4/", "per iteration (ms): 3000.0/3500.0 |");
    free(text);
}

TEST_FIXTURE(NULL, test_folder_teardown)
