/* SPDX-License-Identifier: Apache-2.0 */
/* What the outputs say of two made-up runs: one in which no two figures are alike and nothing is left out, and one of
 * which little is known (support/told_runs.h). */
#include "support/folder.h"
#include "support/fake_run.h"
#include "support/told_runs.h"

#include "record/record.h"
#include "stats/sampling.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

typedef void (*a_run)(tm_sink *sink);

static tm_text console_of(a_run run, tm_console_options options)
{
    tm_sink *sink = NULL;
    tm_error err = { 0 };
    tm_text  text = { 0 };
    char    *data = NULL;
    size_t   bytes = 0;
    options.out = open_memstream(&data, &bytes);
    assert_int_equal(tm_console_sink_open(&options, &sink, &err), TM_OK);
    run(sink);
    fake_close(sink);
    fclose(options.out);
    tm_text_add(&text, data);
    free(data);
    return text;
}

/* Figures of all steps since the last line, and of all from the third on; a loss that is no number is counted. */
TEST(megatron_lines_add_up)
{
    tm_text     text = console_of(told_rich, (tm_console_options){ .log_freq = 34, .style = TM_LOG_STYLE_MEGATRON });
    const char *line = text.data;
    static const char *const wanted[] = {
        " iteration       31/      40 | consumed samples:          246 | elapsed time per iteration (ms): 500.0/500.0 "
        "| "
        "throughput per GPU (TFLOP/s/GPU): 18.0/18.0 | tokens per GPU (tokens/s/GPU): 3000.0/3000.0 | "
        "learning rate: 3.000000E-04 | global batch size:     6 | lm loss: 8.000000E+00 | loss scale: 1.0 | "
        "grad norm: 0.750 | number of skipped iterations: 0 | number of nan iterations: 0 |\n",
        " iteration       34/      40 | consumed samples:          264 | elapsed time per iteration (ms): "
        "1500.0/1750.0 | throughput per GPU (TFLOP/s/GPU): 10.0/9.43 | tokens per GPU (tokens/s/GPU): 1666.7/1571.4 | "
        "learning rate: 3.000000E-04 | global batch size:     6 | lm loss: 2.000000E+00 | loss scale: 1.0 | "
        "grad norm: 0.750 | number of skipped iterations: 0 | number of nan iterations: 1 |\n",
    };
    for (int i = 0; i < 2; i++) {
        line = strchr(strstr(line, "\n ["), ']') + 1; /* behind the time of day */
        if (strncmp(line, wanted[i], strlen(wanted[i])) != 0) fail_msg("wanted '%s' in '%.600s'", wanted[i], line);
    }
    assert_null(strstr(line, "\n ["));
    tm_text_fini(&text);
}

/* "flops/0/per_token"; absent: NULL. */
static json_t *member_at(json_t *at, const char *path)
{
    char name[100], *rest = name;
    snprintf(name, sizeof name, "%s", path);
    for (char *part; (part = strsep(&rest, "/"));)
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(part)) : json_object_get(at, part);
    return at;
}

/* Absent: no number. */
static double number_at(json_t *at, const char *path)
{
    json_t *member = member_at(at, path);
    return json_is_number(member) ? json_number_value(member) : (double)NAN;
}

typedef struct {
    const char *path;
    double      value;
} figure;

static void stand_there(json_t *json, const figure *wanted, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double is = number_at(json, wanted[i].path);
        if (!(fabs(is - wanted[i].value) <= 1e-12 * fabs(wanted[i].value)))
            fail_msg("%s is %.17g, wanted %.17g", wanted[i].path, is, wanted[i].value);
    }
}

static void speeds_stand_there(json_t *json, const tm_run_started *s, const tm_run_ended *e)
{
    const tm_sample_summary *v = e->speed;
    const figure             wanted[] = {
                    { "devices", s->devices },
                    { "threads", s->threads },
                    { "parameters", (double)s->parameters },
                    { "batch_tokens", (double)s->batch_tokens },
                    { "target_tokens_per_step", 200 + 100 * 2.5 },
                    { "steps/planned", (double)s->steps },
                    { "steps/first", (double)s->first_step },
                    { "steps/done", (double)e->steps },
                    { "steps/warmup", (double)v->warmup },
                    { "tokens_per_second_per_device/median", v->median_rate },
                    { "tokens_per_second_per_device/lo", v->median_rate_lo },
                    { "tokens_per_second_per_device/hi", v->median_rate_hi },
                    { "tokens_per_second_per_device/n", (double)v->n },
                    { "tokens_per_second_per_device_overall/value", v->rate },
                    { "tokens_per_second_per_device_overall/lo", v->rate_lo },
                    { "tokens_per_second_per_device_overall/hi", v->rate_hi },
                    { "tokens_per_second_per_device_overall/effective_n", v->effective_n },
                    { "tokens_per_second_per_device_overall/half_width_percent", 100 * v->half_width },
                    { "step_time/median", v->median },
                    { "step_time/p5", v->p5 },
                    { "step_time/p95", v->p95 },
                    { "step_time/variation_percent", 100 * v->variation },
                    { "step_time/outliers", (double)v->outliers },
                    { "steady_state/drift_percent", v->steady.drift },
                    { "steady_state/drift_lo", v->steady.drift_lo },
                    { "steady_state/drift_hi", v->steady.drift_hi },
                    { "steady_state/shift_percent", v->steady.shift },
                    { "steady_state/shift_step", (double)(s->first_step + v->steady.shift_at) },
                    { "first_step_seconds", e->first_step_seconds },
                    { "seconds", e->seconds },
                    { "step_seconds/3", e->step_seconds[3] },
    };
    stand_there(json, wanted, sizeof wanted / sizeof wanted[0]);
}

static void judgements_stand_there(json_t *json, const tm_run_ended *e)
{
    const tm_certificate *c = &e->certificate;
    const figure          wanted[] = {
                 { "machine/seconds", e->machine.seconds },
                 { "machine/samples", (double)e->machine.samples },
                 { "machine/processors", e->machine.processors },
                 { "machine/steal_percent", e->machine.facts[0].value },
                 { "loss/first", e->loss_first },
                 { "loss/last", e->loss_last },
                 { "loss/validation", e->loss_validation },
                 { "loss/floor", e->loss_floor },
                 { "bits_per_byte", e->bits_per_byte },
                 { "preference/margin", e->measures[1].value },
                 { "certificate/groups", c->groups },
                 { "certificate/expected", c->expected },
                 { "certificate/measured", c->measured },
                 { "certificate/band", c->band },
                 { "certificate/step_loss", c->step_loss },
                 { "certificate/evaluated_loss", c->evaluated_loss },
                 { "certificate/loss_band", c->loss_band },
                 { "certificate/seconds", c->seconds },
                 { "certificate/update/steps/1", (double)e->update.steps[1] },
                 { "certificate/update/elements", (double)e->update.elements },
                 { "certificate/update/largest", e->update.largest },
                 { "certificate/update/seconds", e->update.seconds },
                 { "certificate_after/groups", e->certificate_after.groups },
                 { "microscope/looks", 2 },
                 { "microscope/first_divergent_step", 32 },
    };
    stand_there(json, wanted, sizeof wanted / sizeof wanted[0]);
}

static void costs_stand_there(json_t *json, const tm_run_started *s, const tm_run_ended *e)
{
    const tm_rank_told *rank = &e->ranks[1];
    const tm_straggler *slow = &e->stragglers[1];
    const double        flops = s->flops_per_token[2].value * e->speed->median_rate;
    const figure        wanted[] = {
               { "peak_flops_per_second", s->peak_flops },
               { "flops/2/per_token", s->flops_per_token[2].value },
               { "flops/2/per_second_per_device", flops },
               { "flops/2/mfu_percent", 100 * flops / s->peak_flops },
               { "memory/planned_bytes", (double)e->planned_bytes },
               { "memory/used_bytes", (double)e->used_bytes },
               { "memory/outside_arena_bytes", (double)e->outside_arena_bytes },
               { "memory/disk_bytes", (double)e->disk_bytes },
               { "memory/limit_bytes", (double)s->memory_limit_bytes },
               { "memory/resident_bytes", 7000000 + 34 },
               { "work/1/flops", s->work[1].flops },
               { "work/1/bytes", s->work[1].bytes },
               { "memory_along_step/activations/2", (double)s->memory_along[1].bytes[2] },
               { "phases/steps", 3 },
               { "phases/mean_seconds/data", 0.125 },
               { "phases/mean_seconds/unaccounted", 1.5 - 0.125 - 0.75 },
               { "phases/step_seconds", 1.5 },
               { "ranks/1/data_rank", rank->data_rank },
               { "ranks/1/step_seconds", rank->step_seconds },
               { "ranks/1/busy_seconds", rank->busy_seconds },
               { "ranks/1/wait_seconds", rank->wait_seconds },
               { "ranks/1/behind_percent", 100 * rank->behind },
               { "ranks/1/target_tokens", (double)rank->target_tokens },
               { "ranks/1/used_bytes", (double)rank->used_bytes },
               { "ranks/0/numa_node", e->ranks[0].numa_node },
               { "stragglers/1/step", (double)slow->step },
               { "stragglers/1/since", (double)slow->since },
               { "stragglers/1/low_percent", 6.25 },
    };
    stand_there(json, wanted, sizeof wanted / sizeof wanted[0]);
}

static void words_stand_there(json_t *json)
{
    static const char *const words[][2] = { { "verdict", "noisy" },
                                            { "model", "llama-small" },
                                            { "precision", "float32" },
                                            { "device", "cpu" },
                                            { "kernels", "avx9" },
                                            { "sums", "by fives" },
                                            { "data_source", "synthetic" },
                                            { "configuration_hash", "00ff00ff00ff00ff" },
                                            { "seed", "18446744073709551614" },
                                            { "weights_hash", "0123456789abcdef" },
                                            { "sample", "once upon a time\nthere was" },
                                            { "steps/stopped", "--timeout" },
                                            { "machine/verdict", "invalid" },
                                            { "machine/reason", "others computed, too" },
                                            { "certificate/losses", "float32" },
                                            { "certificate_after/reason", "the loss moves otherwise" },
                                            { "certificate_after/losses", "bfloat16" },
                                            { "certificate_after/losses_reason", "too large" },
                                            { "certificate/update/partly", "2 of 9 tensors are too large" },
                                            { "flops/1/convention", "all" },
                                            { "work/1/line", "backward" },
                                            { "ranks/0/host", "first" },
                                            { "ranks/0/gpu", "0000:3b:00.0" },
                                            { "ranks/0/nic", "mlx5_0" },
                                            { "stragglers/0/cause", "slow" },
                                            { "stragglers/1/cause", "other programs" },
                                            { "stragglers/1/phase", "data" } };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *is = json_string_value(member_at(json, words[i][0]));
        if (!is || strcmp(is, words[i][1]) != 0) fail_msg("%s is '%s'", words[i][0], is ? is : "no text");
    }
}

/* No two figures of the run are alike: each stands where it belongs. Names and types: tests/results/test_schema.c. */
TEST(result_json_has_every_figure)
{
    const tm_event begin = told_rich_start(), ended = told_rich_end();
    tm_text        text = told_text("rich"), poor = told_text("poor");
    json_t        *json = json_loads(text.data, 0, NULL), *other = json_loads(poor.data, 0, NULL);
    speeds_stand_there(json, &begin.run_started, &ended.run_ended);
    judgements_stand_there(json, &ended.run_ended);
    costs_stand_there(json, &begin.run_started, &ended.run_ended);
    words_stand_there(json);
    /* What the other run does not know is nothing; its rate is of images, too. */
    static const char *const unknown[] = { "tokens_per_second_per_device_overall/lo",
                                           "steady_state/shift_percent",
                                           "steady_state/shift_step",
                                           "machine/processors",
                                           "loss/first",
                                           "loss/validation",
                                           "certificate/expected",
                                           "certificate/update/largest",
                                           "peak_flops_per_second",
                                           "flops/0/mfu_percent",
                                           "first_step_seconds",
                                           "seconds",
                                           "ranks/0/rank",
                                           "microscope/looks" };
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) assert_true(isnan(number_at(other, unknown[i])));
    for (int i = 0; i < 3; i++) {
        static const char *const of[] = { "images_per_second_per_device/lo", "images_per_second_per_device/median",
                                          "images_per_second_per_device/hi" };
        assert_true(fabs(number_at(other, of[i]) - (1 << i)) < 1e-12);
    }
    json_decref(json), json_decref(other);
    tm_text_fini(&text), tm_text_fini(&poor);
}

/* Every cell has its own word; what a run does not know is empty. */
TEST(perf_csv_says_all)
{
    static const char *const wanted[] = {
        "entry_llama-small,5,2,2,float32,pipe,args,tags,,,,,commit,machine,deployed,launched,arch,12288,"
        "tokens_per_second,,SUCCESS,,345.6,synthetic,kind,,,build,\n",
        "entry_llama-small,0,2,0,float32,pipe,args,tags,,,,,commit,machine,deployed,launched,arch,,"
        "tokens_per_second,,FAILURE,,,synthetic,kind,,,build,\n"
    };
    for (int i = 0; i < 2; i++) {
        tm_error        err = { 0 };
        tm_sink        *sink = NULL;
        tm_event        start = told_rich_start();
        tm_perf_options options = { .path = test_in_folder("perf.csv"),
                                    .entry = "entry",
                                    .pipeline = "pipe",
                                    .args = "args",
                                    .tags = "tags",
                                    .git_commit = "commit",
                                    .machine_name = "machine",
                                    .deployment_type = "deployed",
                                    .launcher = "launched",
                                    .architecture = "arch",
                                    .data_provider_type = "kind",
                                    .build_number = "build",
                                    .nodes = 2 };
        assert_int_equal(tm_perf_sink_open(&options, &sink, &err), TM_OK);
        if (i) {
            told_poor(sink);
        } else {
            start.run_started.gpus = 5;
            fake_emit(sink, start);
            fake_emit(sink, told_rich_end());
        }
        fake_close(sink);
        tm_text text = fake_read(options.path);
        assert_string_equal(strchr(text.data, '\n') + 1, wanted[i]);
        tm_text_fini(&text);
    }
}

TEST_FIXTURE(NULL, test_folder_teardown)
