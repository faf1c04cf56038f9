/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/told_runs.h - two made-up runs: one in which no two figures are alike and nothing is left out, and one
 * of which little is known; and what is recorded of them. */
#ifndef TM_TESTS_TOLD_RUNS_H
#define TM_TESTS_TOLD_RUNS_H

#include "support/test.h"

#include "record/record.h"
#include "stats/sampling.h"
#include "support/fake_run.h"
#include "support/folder.h"

static const char *const certificate_reason = "the loss moves otherwise", *const certificate_inexact = "too large";

static const tm_sample_summary rich_speed = {
    .n = 1234,
    .warmup = 3,
    .outliers = 5,
    .steady = { .reached = true, .drift = 1.25, .drift_lo = -0.75, .drift_hi = 2.5, .shift = 3.5, .shift_at = 6 },
    .effective_n = 77,
    .median = 0.0625,
    .p5 = 1.5,
    .p95 = 123.4,
    .variation = 0.034,
    .rate = 2048,
    .rate_lo = 999.5,
    .rate_hi = 2222,
    .half_width = 0.011,
    .median_rate = 4096,
    .median_rate_lo = 4000,
    .median_rate_hi = 4196,
};

static inline tm_event told_rich_start(void)
{
    static const tm_line_work   work[] = { { "forward", 1e9, 2e6 }, { "backward", 3e9, 5e6 } };
    static const int64_t        points[2][3] = { { 11, 12, 13 }, { 21, 22, 23 } };
    static const tm_class_bytes along[] = { { "weights", points[0] }, { "activations", points[1] } };
    static const tm_named_f64   flops[] = { { "6 N", 6e9 }, { "all", 999 }, { "more", 7e15 } };
    tm_event                    event = fake_started();
    tm_run_started             *start = &event.run_started;
    start->kernels = "avx9";
    start->sums = "by fives";
    start->devices = 3;
    start->threads = 1;
    start->seed = UINT64_MAX - 1;
    start->steps = 40;
    start->first_step = 31;
    start->first_sample = 240; /* of steps with another batch */
    start->flops_per_token = flops;
    start->n_flops_per_token = 3;
    start->peak_flops = 4e13;
    start->work = work;
    start->n_work = 2;
    start->memory_along = along;
    start->n_memory_along = 2;
    start->n_points = 3;
    return event;
}

static inline tm_event rich_step(int64_t step)
{
    static tm_named_f64 phases[2], measures[2];
    phases[0] = (tm_named_f64){ "data", 0.125 };
    phases[1] = (tm_named_f64){ "forward", 0.25 * (double)(step - 30) };
    measures[0] = (tm_named_f64){ "reward", 0.5 };
    measures[1] = (tm_named_f64){ "margin", -0.25 };
    return (tm_event){ .kind = TM_EVENT_STEP_DONE,
                       .step_done = { .step = step,
                                      .loss = step == 33 ? (double)NAN : 8.0 / (double)(step - 30),
                                      .grad_norm = 0.75,
                                      .learning_rate = 3e-4,
                                      .tokens = 1000 + 500 * (step - 30),
                                      .target_tokens = 200 + 100 * (step - 30),
                                      .seconds = 0.5 * (double)(step - 30),
                                      .phases = phases,
                                      .n_phases = 2,
                                      .measures = measures,
                                      .n_measures = 2,
                                      .used_bytes = 5000000000 + step,
                                      .resident_bytes = 7000000 + step } };
}

static inline tm_event told_rich_end(void)
{
    static const double       seconds[] = { 0.5, 1, 1.5, 2 };
    static const tm_named_f64 measures[] = { { "reward", 0.625 }, { "margin", -0.375 } };
    static const tm_named_f64 facts[] = { { "steal_percent", 0.25 }, { "throttled_percent", (double)NAN } };
    static const tm_rank_told ranks[] = {
        { 0, 0, "first", 1.5, 1.25, 0.25, (double)NAN, 100, 200, "0000:3b:00.0", "mlx5_0", 1 },
        { 1, 0, "second", 1.75, 1.375, 0.375, 0.375, 101, 201, "0000:86:00.0", "", -1 },
        { 2, 1, "third", 1.625, 0.5, 1.125, 0.125, 102, 202, "", "", -1 },
    };
    static const tm_straggler stragglers[] = {
        { 1, "second", false, true, 30, 32, 0.375, 0.25, 0.5, "backward", 1.5 },
        { 2, "third", true, false, 31, 34, 0.125, 0.0625, 0.1875, "data", 0.75 },
    };
    tm_event      event = { .kind = TM_EVENT_RUN_ENDED };
    tm_run_ended *end = &event.run_ended;
    *end =
        (tm_run_ended){ .verdict = TM_VERDICT_NOISY,
                        .reason = "the speed is known to 9 % only; run longer, or on a machine that does nothing else",
                        .stopped = "--timeout",
                        .steps = 4,
                        .speed = &rich_speed,
                        .loss_first = 8,
                        .loss_last = 2,
                        .loss_validation = 2.5,
                        .loss_floor = 1.75,
                        .bits_per_byte = 0.875,
                        .measures = measures,
                        .n_measures = 2,
                        .planned_bytes = 6000,
                        .used_bytes = 5034,
                        .outside_arena_bytes = 300,
                        .disk_bytes = 40,
                        .weights_hash = 0x0123456789abcdef,
                        .step_seconds = seconds,
                        .first_step_seconds = 12.5,
                        .seconds = 345.6,
                        .sample = "once upon a time\nthere was",
                        .ranks = ranks,
                        .n_ranks = 3,
                        .stragglers = stragglers,
                        .n_stragglers = 2,
                        .machine = { TM_VERDICT_INVALID, "others computed, too", 11.5, 23, 4, facts, 2 },
                        .curve = { 4, true } };
    end->certificate = (tm_certificate){ .done = true,
                                         .groups = 5,
                                         .expected = 0.015625,
                                         .measured = 0.0156875,
                                         .band = 2e-5,
                                         .losses = "float32",
                                         .gradients = true,
                                         .looked_ahead = true,
                                         .rows = true,
                                         .causal = true,
                                         .context = true,
                                         .evaluated = true,
                                         .step_loss = 5.015625,
                                         .evaluated_loss = 5.0156875,
                                         .loss_band = 7e-3,
                                         .loss_agrees = true,
                                         .seconds = 0.75 };
    end->update = (tm_update_certificate){
        .n_steps = 2, .steps = { 31, 33 }, .elements = 4096, .largest = 0.3125, .agrees = true, .seconds = 0.0625
    };
    strcpy(end->update.partly, "2 of 9 tensors are too large");
    end->certificate_after = (tm_certificate){ .done = true, .groups = 6, .seconds = 0.375 };
    strcpy(end->certificate_after.reason, certificate_reason);
    end->certificate_after.losses = "bfloat16";
    strcpy(end->certificate_after.inexact, certificate_inexact);
    return event;
}

/* Steps 31 to 34 of language, with all that can happen between them. */
static inline void told_rich(tm_sink *sink)
{
    fake_emit(sink, told_rich_start());
    for (int64_t step = 31; step <= 34; step++) {
        fake_emit(sink, rich_step(step));
        if (step == 32) {
            tm_event     look = fake_look(32), evaluation = fake_evaluation(32);
            tm_named_f64 measures[] = { { "reward", 0.5625 } };
            evaluation.evaluation.bits_per_byte = 0.96875;
            evaluation.evaluation.measures = measures;
            evaluation.evaluation.n_measures = 1;
            fake_emit(sink, look);
            look.look.step = 33;
            look.look.first = NULL;
            fake_emit(sink, look);
            fake_emit(sink, fake_quantized(32));
            fake_emit(sink, fake_straggler(32));
            fake_emit(sink, (tm_event){ .kind = TM_EVENT_EVALUATION_STARTED, .evaluation_started = { 32, 64 } });
            fake_emit(sink, evaluation);
            fake_emit(sink, fake_checkpoint(32));
        }
    }
    fake_emit(sink, told_rich_end());
}

/* Images, one rank, no peak, nothing summed up; invalid. */
static inline void told_poor(tm_sink *sink)
{
    static const double seconds[] = { 0.5, 1 };
    tm_event            start = fake_started(), end = { .kind = TM_EVENT_RUN_ENDED };
    double              none = (double)NAN;
    tm_sample_summary   speed = { .n = 2,
                                  .warmup = 0,
                                  .median = 0.75,
                                  .p5 = 1,
                                  .p95 = 100,
                                  .variation = 0.5,
                                  .rate = 10,
                                  .rate_lo = none,
                                  .rate_hi = none,
                                  .half_width = none,
                                  .effective_n = 2,
                                  .median_rate = 512,
                                  .median_rate_lo = 256,
                                  .median_rate_hi = 1024,
                                  .steady = { .drift = none, .drift_lo = none, .drift_hi = none, .shift = 9 } };
    start.run_started.peak_flops = 0;
    start.run_started.threads = 1;
    fake_emit(sink, start);
    fake_emit(sink, rich_step(31));
    end.run_ended = (tm_run_ended){ .verdict = TM_VERDICT_INVALID,
                                    .reason = "nothing was learned",
                                    .stopped = "a signal",
                                    .interrupted = true,
                                    .steps = 2,
                                    .speed = &speed,
                                    .image_tokens = 256,
                                    .loss_first = none,
                                    .loss_last = 0.5,
                                    .loss_validation = none,
                                    .loss_floor = 0.25,
                                    .bits_per_byte = none,
                                    .planned_bytes = 1 << 20,
                                    .used_bytes = 1 << 20,
                                    .step_seconds = seconds,
                                    .first_step_seconds = none,
                                    .seconds = none,
                                    .machine = { .processors = 0 },
                                    .curve = { 7, false } };
    strcpy(end.run_ended.certificate.reason, "nothing is trained");
    fake_emit(sink, end);
}

static inline void mask(tm_text *text, const char *before)
{
    char *at = strstr(text->data, before);
    if (at) at += strlen(before), memset(at, '#', strcspn(at, "\""));
}

/* "rich" or "poor": result.json of that run, the time of day and the digest as ####; "metrics": metrics.jsonl of the
 * rich one. Free with tm_text_fini. */
static inline tm_text told_text(const char *name)
{
    tm_error           err = { 0 };
    tm_sink           *sink = NULL;
    bool               rich = strcmp(name, "rich") == 0, lines = strcmp(name, "metrics") == 0;
    FILE              *file = fopen(test_in_folder("told-lines"), "w"); /* records that have a digest */
    tm_result_options  options = { .path = test_in_folder("told-result"),
                                   .configuration_hash = rich ? "00ff00ff00ff00ff" : NULL,
                                   .metrics = rich ? test_in_folder("told-lines") : NULL };
    tm_metrics_options of_lines = { test_in_folder("told-metrics"), NULL };
    fputs("{}\n", file);
    fclose(file);
    assert_int_equal(lines ? tm_metrics_sink_open(&of_lines, &sink, &err) : tm_result_sink_open(&options, &sink, &err),
                     TM_OK);
    if (rich || lines)
        told_rich(sink);
    else
        told_poor(sink);
    fake_close(sink);
    tm_text text = fake_read(lines ? of_lines.path : options.path);
    remove(lines ? of_lines.path : options.path);
    mask(&text, "\"finished\": \"");
    mask(&text, "\n  \"digest\": \"");
    return text;
}

#endif
