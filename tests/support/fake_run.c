/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_run.h"

#include "support/test.h"

#include "base/file.h"
#include "record/record.h"
#include "stats/sampling.h"
#include "stats/silent.h"

static const tm_named_f64 flops_per_token[] = { { "6 N + 12 L A hd S", 6e6 }, { "executed by the program", 5.5e6 } };
static const tm_named_i64 memory_classes[] = { { "weights", 4000000 },   { "gradients", 4000000 },
                                               { "optimizer", 8000000 }, { "activations", 30000000 },
                                               { "logits", 2000000 },    { "workspace", 1048576 } };

static double step_time(int64_t step)
{
    return step == 1 ? 1.0 : 0.2 + 0.0005 * (double)(step % 4);
}

tm_event fake_started(void)
{
    return (tm_event){ .kind = TM_EVENT_RUN_STARTED,
                       .run_started = { .model = "llama-small",
                                        .precision = "float32",
                                        .device = "cpu",
                                        .data_source = "synthetic",
                                        .parameters = 1000000,
                                        .steps = FAKE_STEPS,
                                        .first_step = 1,
                                        .batch_tokens = FAKE_TOKENS,
                                        .devices = 1,
                                        .threads = 2,
                                        .seed = 42,
                                        .recipe.global_batch = 6,
                                        .loss_floor = 1.08,
                                        .peak_flops = 250e9,
                                        .flops_per_token = flops_per_token,
                                        .n_flops_per_token = 2,
                                        .memory = memory_classes,
                                        .n_memory = 6,
                                        .planned_bytes = 49048576,
                                        .memory_limit_bytes = 8ll << 30 } };
}

tm_event fake_step(int64_t step)
{
    static tm_named_f64 phases[4];
    double              seconds = step_time(step);
    phases[0] = (tm_named_f64){ "data", 0.001 * seconds };
    phases[1] = (tm_named_f64){ "forward linear", 0.3 * seconds };
    phases[2] = (tm_named_f64){ "backward linear", 0.6 * seconds };
    phases[3] = (tm_named_f64){ "optimizer", 0.095 * seconds };
    return (tm_event){ .kind = TM_EVENT_STEP_DONE,
                       .step_done = { .step = step,
                                      .loss = 6.0 / (double)step + 1.0,
                                      .grad_norm = 1.25,
                                      .learning_rate = 1e-3 / 3,
                                      .tokens = FAKE_TOKENS,
                                      .target_tokens = FAKE_TOKENS,
                                      .seconds = seconds,
                                      .phases = phases,
                                      .n_phases = 4,
                                      .used_bytes = 49048576,
                                      .resident_bytes = 70000000 } };
}

tm_event fake_evaluation(int64_t step)
{
    return (tm_event){ .kind = TM_EVENT_EVALUATION,
                       .evaluation = { .step = step,
                                       .loss = 1.11,
                                       .bits_per_byte = (double)NAN,
                                       .tokens = 8192,
                                       .target_tokens = 8000,
                                       .seconds = 0.25 } };
}

tm_event fake_checkpoint(int64_t step)
{
    return (tm_event){ .kind = TM_EVENT_CHECKPOINT,
                       .checkpoint = {
                           .step = step, .path = "out/checkpoint/step-60", .bytes = 12000000, .seconds = 0.03 } };
}

tm_event fake_look(int64_t step)
{
    static const double   none[4], bins[4] = { 0, 3, 5, 0 };
    static tm_look_tensor tensors[2];
    tensors[0] = (tm_look_tensor){ .name = "layers.0.norm.rmsnorm",
                                   .kind = "forward",
                                   .format = "bfloat16",
                                   .elements = 8,
                                   .error = 0.002,
                                   .cosine = 0.999998,
                                   .amax = 3.5,
                                   .reference_amax = 3.4921875,
                                   .exponents = bins,
                                   .reference_exponents = bins };
    tensors[1] = (tm_look_tensor){ .name = "layers.0.w1.weight.grad",
                                   .kind = "gradient",
                                   .format = "float32",
                                   .elements = 8,
                                   .error = (double)INFINITY,
                                   .underflow = 0.25,
                                   .amax = 1,
                                   .reference_zeros = 1,
                                   .exponents = bins,
                                   .reference_exponents = none,
                                   .diverges = true };
    return (tm_event){ .kind = TM_EVENT_LOOK,
                       .look = { .step = step,
                                 .format = "bfloat16",
                                 .reference = "float32",
                                 .loss = 7.001,
                                 .reference_loss = 7,
                                 .bound = 0.1,
                                 .seconds = 0.25,
                                 .tensors = tensors,
                                 .n_tensors = 2,
                                 .first_exponent = -2,
                                 .n_exponents = 4,
                                 .first = &tensors[1],
                                 .worst = &tensors[1] } };
}

tm_event fake_quantized(int64_t step)
{
    static const tm_quantized_factor factors[2] = { { "layers.0.w1", "x", 3.5, 128, 0, 0.125 },
                                                    { "layers.0.w1", "w.dx", 0.25, 1792, 0.5, 0 } };
    return (tm_event){ .kind = TM_EVENT_QUANTIZED, .quantized = { .step = step, .factors = factors, .n_factors = 2 } };
}

tm_event fake_straggler(int64_t step)
{
    return (tm_event){ .kind = TM_EVENT_STRAGGLER,
                       .straggler = { .rank = 1,
                                      .host = "b",
                                      .since = 1,
                                      .step = step,
                                      .behind = 0.5,
                                      .low = 0.25,
                                      .high = 0.75,
                                      .phase = "forward",
                                      .waited_seconds = 2.5 } };
}

tm_event fake_replayed(int64_t step, const char *reason)
{
    return (tm_event){ .kind = TM_EVENT_REPLAYED,
                       .replayed = { .step = step, .bytes = 8192, .seconds = 0.25, .reason = reason } };
}

tm_event fake_ended(int64_t steps, tm_verdict verdict, const char *reason)
{
    static double       times[FAKE_STEPS];
    static tm_named_f64 facts[3];
    facts[0] = (tm_named_f64){ "steal_percent", 0.25 };
    facts[1] = (tm_named_f64){ "throttled_percent", (double)NAN };
    facts[2] = (tm_named_f64){ "other_load_percent", 0.5 };
    double seconds = 0;
    for (int64_t i = 0; i < steps; i++) seconds += times[i] = step_time(i + 1);
    static tm_sample_summary speed;
    speed = tm_stats_summarize(times, NULL, FAKE_TOKENS, steps);
    return (tm_event){ .kind = TM_EVENT_RUN_ENDED,
                       .run_ended = { .verdict = verdict,
                                      .reason = reason,
                                      .stopped = "all steps done",
                                      .replay = { .every = 200,
                                                  .steps = 2,
                                                  .bytes = 16384,
                                                  .seconds = 0.5,
                                                  .cost_percent = 0.75,
                                                  .device_seconds = 0.75,
                                                  .excluded_per_hour = tm_silent_excluded(0.75, 0.95) },
                                      .machine = { .verdict = TM_VERDICT_VALID,
                                                   .reason = "nothing disturbed the machine",
                                                   .seconds = 11.75,
                                                   .samples = 55,
                                                   .processors = 2,
                                                   .facts = facts,
                                                   .n_facts = 3 },
                                      .steps = steps,
                                      .speed = &speed,
                                      .loss_first = 7,
                                      .loss_last = 6.0 / (double)steps + 1.0,
                                      .loss_validation = 1.11,
                                      .loss_floor = 1.08,
                                      .bits_per_byte = (double)NAN,
                                      .planned_bytes = 49048576,
                                      .used_bytes = 49048576,
                                      .outside_arena_bytes = 3000000,
                                      .weights_hash = 0x00c0ffee87654321,
                                      .step_seconds = times,
                                      .first_step_seconds = 1.5,
                                      .seconds = seconds + 0.5 } };
}

void fake_run(tm_sink *sink, tm_verdict verdict, const char *reason)
{
    tm_event event = fake_started();
    sink->handle(sink, &event);
    for (int64_t step = 1; step <= FAKE_STEPS; step++) {
        event = fake_step(step);
        sink->handle(sink, &event);
    }
    event = fake_evaluation(FAKE_STEPS);
    sink->handle(sink, &event);
    event = fake_checkpoint(FAKE_STEPS);
    sink->handle(sink, &event);
    event = fake_ended(FAKE_STEPS, verdict, reason);
    sink->handle(sink, &event);
}

void fake_emit(tm_sink *sink, tm_event event)
{
    sink->handle(sink, &event);
}

void fake_close(tm_sink *sink)
{
    assert_ok(tm_sink_close(sink, err));
}

tm_text fake_read(const char *path)
{
    tm_text text = { 0 };
    assert_ok(tm_file_read(path, 1 << 26, &text, err));
    return text;
}
