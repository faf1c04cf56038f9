/* SPDX-License-Identifier: Apache-2.0 */
/* A small run whose verdict is looked at. Behind cmocka.h. */
#ifndef TM_TESTS_TRAIN_PROOF_FIXTURE_H
#define TM_TESTS_TRAIN_PROOF_FIXTURE_H

#include "support/training.h"
#include "train/run/run.h"

static inline tm_run_options proof_options(const char *source, int64_t steps)
{
    tm_run_options o = { .model_name = "small",
                         .steps = steps,
                         .learning_rate = 1e-2,
                         .max_norm = 1,
                         .seed = 77,
                         .target_gap = 0.05,
                         .step = test_llama_options() };
    tm_error       err = { 0 };
    o.step.shape.vocab_size = 64;
    o.schedule =
        (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY, .steps = steps, .warmup_steps = 3, .decay_ratio = -1 };
    o.source = (tm_source_options){ .name = source, .vocab = 64, .seq = o.step.seq, .seed = o.seed };
    assert_int_equal(tm_source_fields(&o.source, o.step.fields, &o.step.n_fields, &err), TM_OK);
    return o;
}

#endif
