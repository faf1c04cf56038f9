/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/step_cases.h - steps that go other ways through the graph: experts, low precision, adapters that drop. */
#ifndef TM_TESTS_STEP_CASES_H
#define TM_TESTS_STEP_CASES_H

#include "support/training.h"

static inline tm_moe_shape four_experts(void)
{
    return (tm_moe_shape){ .experts = 4, .top_k = 2, .ffn_dim = 64, .scale = 1, .aux_loss = 0.01 };
}

static inline tm_step_options experts_options(void)
{
    tm_step_options o = test_llama_options();
    o.shape.moe = four_experts();
    return o;
}

static inline tm_quantize quantize_with(const char *recipe)
{
    tm_quantize q = { .on = true, .switch_step = -1, .history = 4, .seed = 1 };
    q.recipe[0] = *tm_quantize_recipe_find(recipe);
    return q;
}

static inline tm_step_options quantized_options(const char *recipe)
{
    tm_step_options o = test_llama_options();
    o.shape.ffn_dim = 96;
    o.precision = &tm_precision_bf16;
    o.quantize = quantize_with(recipe);
    return o;
}

static inline tm_adapters dropping_adapters(void)
{
    return (tm_adapters){
        .rank = 4, .alpha = 8, .dropout = 0.1, .targets = "all-linear", .place = "", .base = TM_DTYPE_COUNT, .seed = 7
    };
}

#endif
