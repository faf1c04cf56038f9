/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/run_fixture.h - small runs: a Llama of two layers that learns the synthetic language. */
#ifndef TM_TESTS_TRAIN_RUN_FIXTURE_H
#define TM_TESTS_TRAIN_RUN_FIXTURE_H

#include "support/test.h"
#include "support/training.h"
#include "train/run/run.h"

static inline tm_run_options small_run(const char *source, int64_t steps)
{
    tm_run_options o = { .model_name = "small",
                         .steps = steps,
                         .learning_rate = 1e-2,
                         .max_norm = 1,
                         .seed = 77,
                         .prefetch = 2,
                         .target_gap = 0.05,
                         .checkpoint_interval = 1000,
                         .checkpoint_load_step = -1,
                         .step = test_llama_options() };
    o.step.shape.vocab_size = 64;
    o.schedule =
        (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY, .steps = steps, .warmup_steps = 3, .decay_ratio = -1 };
    o.source = (tm_source_options){ .name = source, .vocab = 64, .seq = o.step.seq, .seed = o.seed };
    assert_ok(tm_source_fields(&o.source, o.step.fields, &o.step.n_fields, err));
    return o;
}

/* On a device of its own, with one listener; `stop`: NULL, nobody stops it. */
static inline tm_status run_small(const tm_run_options *options, const char *device_name, int threads, tm_sink *sink,
                                  volatile sig_atomic_t *stop, tm_error *err)
{
    tm_device            *device = test_device_open(device_name, threads);
    tm_source            *source;
    volatile sig_atomic_t never = 0;
    tm_event_bus          bus = { .sinks = (tm_sink *[]){ sink }, .count = 1 };
    *err = (tm_error){ 0 };
    if (tm_source_open(&options->source, &source, err) != TM_OK) fail_msg("%s", err->text);
    tm_status st = tm_run(options, device, source, &bus, stop ? stop : &never, err);
    tm_source_close(source);
    tm_device_close(device);
    return st;
}

#endif
