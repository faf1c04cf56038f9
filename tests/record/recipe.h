/* SPDX-License-Identifier: Apache-2.0 */
/* A run as MLPerf prescribes it. */
#ifndef TM_TESTS_RECORD_RECIPE_H
#define TM_TESTS_RECORD_RECIPE_H

#include "support/fake_run.h"

/* As the closed division prescribes llama31_8b. */
static inline tm_run_started started_8b(void)
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

#endif
