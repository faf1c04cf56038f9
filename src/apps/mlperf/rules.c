/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/rules.c - the rule sets of MLPerf Training 5.1.0, 6.0.0 and 6.1.0, as far as they are known here, and
 * those of our own benchmarks. Sources: the public rules and rule files of these rounds, as of logging 4.1.68. */
#include "apps/mlperf/rules.h"

#include "apps/mlperf/benchmark.h"

#include <string.h>

enum { R510 = 1 << TM_RULESET_5_1_0, R600 = 1 << TM_RULESET_6_0_0, R610 = 1 << TM_RULESET_6_1_0, R6 = R600 | R610 };

/* clang-format off */
#define NOT_EMPTY         { .kind = TEST_NOT_EMPTY }
#define TEXT(text)        { .kind = TEST_TEXT, .a = (text) }
#define NUMBER(number)    { .kind = TEST_NUMBER, .lo = (number) }
#define ONE_OF(texts)     { .kind = TEST_ONE_OF, .list = (texts) }
#define ABOVE(number)     { .kind = TEST_ABOVE, .lo = (number) }
#define NOT_BELOW(number) { .kind = TEST_NOT_BELOW, .lo = (number) }
#define BELOW(number)     { .kind = TEST_BELOW, .hi = (number) }
#define WITHIN(from, to)  { .kind = TEST_WITHIN, .lo = (from), .hi = (to) }
#define HAS(name)         { .kind = TEST_HAS, .a = (name) }
#define HAS_OR(one, two)  { .kind = TEST_HAS, .a = (one), .b = (two) }
#define IS(flag)          { .kind = TEST_IS, .state = STATE_##flag }
#define IS_NOT(flag)      { .kind = TEST_IS_NOT, .state = STATE_##flag }
#define IF_HAS(one, two)  { .kind = TEST_IF_HAS, .a = (one), .b = (two) }
#define IF_ABOVE(name, number)     { .kind = TEST_IF_ABOVE, .a = (name), .lo = (number) }
#define IF_NOT_BELOW(name, number) { .kind = TEST_IF_NOT_BELOW, .a = (name), .lo = (number) }
#define INIT_TIME         { .kind = TEST_INIT_TIME }
#define REST(number)      { .kind = TEST_REST, .lo = (number) }
#define ROUNDED_UP(number) { .kind = TEST_ROUNDED_UP, .lo = (number) }
#define WHOLE             { .kind = TEST_WHOLE }

#define ONE(name)         .key = (name), .required = RULE_EXACTLY_ONE
#define SOME(name)        .key = (name), .required = RULE_AT_LEAST_ONE
#define OR(name, second)  .key = (name), .required = RULE_AT_LEAST_ONE_OR, .other = (second)
#define FREE(name)        .key = (name), .required = RULE_OPTIONAL

static const char *const divisions[] = { "closed", "open", NULL };
static const char *const formats_600[] = { "fp64", "fp32", "tf32", "fp16", "fp8", "nvfp4", "mxfp4", "bfloat16",
                                           "Graphcore FLOAT 16.16", "int8", "uint8", "int4", "uint4", NULL };
static const char *const formats_610[] = { "fp64", "fp32", "tf32", "fp16", "fp8", "mxfp6", "nvfp4", "mxfp4", "bfloat16",
                                           "Graphcore FLOAT 16.16", "int8", "uint8", "int4", "uint4", NULL };
#define OURS "trainmark_tiny", "trainmark_tiny_lora", "trainmark_tiny_flux", NULL
static const char *const benchmarks_510[] = { "retinanet", "flux1", "dlrm_dcnv2", "llama31_8b", "rgat",
                                              "llama2_70b_lora", "llama31_405b", OURS };
static const char *const benchmarks_600[] = { "flux1", "dlrm_dcnv2", "llama31_8b", "llama2_70b_lora", "llama31_405b",
                                              "gpt_oss_20b", "deepseekv3_671b", OURS };
static const char *const benchmarks_610[] = { "flux1", "llama31_8b", "llama2_70b_lora", "gpt_oss_20b",
                                              "deepseekv3_671b", "qwen35_397b_grpo", "dlrmv4", OURS };

/* What ran in which format and over how many devices: may be said in 6.0.0, must be in 6.1.0. */
#define FORMAT(name)                                                                                                  \
    { FREE(name), .checks = { ONE_OF(formats_600) }, .only = R600 },                                                   \
    { ONE(name),  .checks = { ONE_OF(formats_610) }, .only = R610 }
#define COUNT(name)                                                                                                   \
    { FREE(name), .checks = { WHOLE }, .only = R600 },                                                                 \
    { ONE(name),  .checks = { WHOLE, NOT_BELOW(1) }, .only = R610 }

static const rule common[] = {
    { ONE("submission_org"),      .checks = { NOT_EMPTY } },
    { ONE("submission_platform"), .checks = { NOT_EMPTY } },
    { ONE("submission_division"), .checks = { ONE_OF(divisions) }, .then = THEN_DIVISION },
    { SOME("cache_clear") },
    { SOME("init_start"), .checks = { IS_NOT(INIT_STOPPED), IS_NOT(RUN_STARTED) }, .then = THEN_INIT_START },
    { ONE("init_stop"),   .checks = { IS(INIT_STARTED), IS_NOT(RUN_STARTED), INIT_TIME }, .then = THEN_INIT_STOP },
    { ONE("run_start"),   .checks = { IS(INIT_STOPPED) }, .then = THEN_RUN_START },
    { ONE("run_stop"),    .checks = { IS(RUN_STARTED), HAS("status") }, .then = THEN_RUN_STOP },
    { OR("block_start", "epoch_start"),
      .checks = { IS(RUN_STARTED), HAS_OR("epoch_count", "samples_count"), IF_HAS("epoch_count", "first_epoch_num"),
                  IF_ABOVE("epoch_count", 0), IF_NOT_BELOW("samples_count", 0) } },
    { OR("block_stop", "epoch_stop"),  .checks = { HAS_OR("first_epoch_num", "samples_count") } },
    { OR("epoch_start", "block_start"), .checks = { HAS_OR("epoch_num", "samples_count") } },
    { OR("epoch_stop", "block_stop"),  .checks = { HAS_OR("epoch_num", "samples_count") } },
    { OR("eval_start", "block_start"), .checks = { HAS_OR("epoch_num", "samples_count") } },
    { OR("eval_stop", "block_stop"),   .checks = { HAS_OR("epoch_num", "samples_count") } },
    { SOME("eval_accuracy"),           .checks = { HAS_OR("epoch_num", "samples_count") } },
    { ONE("train_samples"),            .checks = { NOT_EMPTY } },
    { ONE("eval_samples"),             .checks = { NOT_EMPTY } },
    FORMAT("lowest_numerical_precision_in_linear"),
    FORMAT("lowest_numerical_precision_in_attn"),
    FORMAT("lowest_numerical_precision_in_comm"),
    COUNT("tensor_parallelism"),
    COUNT("pipeline_parallelism"),
    COUNT("context_parallelism"),
    COUNT("expert_parallelism"),
    COUNT("micro_batch_size"),
    { FREE("config_filename"), .only = R600 },
    { ONE("config_filename"),  .checks = { NOT_EMPTY }, .only = R610 },
};

#define BENCHMARK_ROWS                                                                                                \
    { ONE("submission_benchmark"), .checks = { ONE_OF(benchmarks_510) }, .then = THEN_BENCHMARK, .only = R510 },       \
    { ONE("submission_benchmark"), .checks = { ONE_OF(benchmarks_600) }, .then = THEN_BENCHMARK, .only = R600 },       \
    { ONE("submission_benchmark"), .checks = { ONE_OF(benchmarks_610) }, .then = THEN_BENCHMARK, .only = R610 }

static const rule closed_common[] = {
    BENCHMARK_ROWS,
    { ONE("gradient_accumulation_steps"), .checks = { ABOVE(0) } },
};

static const rule open_common[] = { BENCHMARK_ROWS };

/* What both language models are trained with in the closed division. */
#define LANGUAGE_ROWS                                                                                                  \
    { ONE("global_batch_size") },                                                                                      \
    { ONE("max_sequence_length"),    .checks = { NUMBER(8192) } },                                                     \
    { ONE("opt_name"),               .checks = { TEXT("adamw") } },                                                    \
    { ONE("opt_base_learning_rate") },                                                                                 \
    { ONE("opt_end_learning_rate") },                                                                                  \
    { ONE("opt_learning_rate_warmup_steps"), .then = THEN_WARMUP },                                                    \
    { ONE("opt_learning_rate_decay_steps"),    .checks = { REST(1200000) } },                                          \
    { ONE("opt_learning_rate_decay_schedule"), .checks = { TEXT("cosine with linear warmup") } },                      \
    { ONE("opt_adamw_beta_1"),       .checks = { NUMBER(0.9) } },                                                      \
    { ONE("opt_adamw_beta_2"),       .checks = { NUMBER(0.95) } },                                                     \
    { ONE("opt_adamw_epsilon"),      .checks = { NUMBER(1e-05) } },                                                    \
    { ONE("opt_adamw_weight_decay"), .checks = { NUMBER(0.1) } },                                                      \
    { ONE("opt_gradient_clip_norm"), .checks = { NUMBER(1.0) } },                                                      \
    { ONE("gradient_accumulation_steps"), .checks = { ABOVE(0) } },                                                    \
    { ONE("eval_samples"),           .checks = { NUMBER(1024) } }

static const rule closed_llama31_8b[] = {
    LANGUAGE_ROWS,
    { ONE("max_steps"),              .checks = { NUMBER(1200000) } },
    { SOME("eval_accuracy"),         .checks = { HAS("samples_count") }, .once = WITHIN(0.0, 3.3) },
};

static const rule closed_llama2_70b_lora[] = {
    { ONE("global_batch_size") },
    { ONE("opt_base_learning_rate") },
    { ONE("opt_learning_rate_training_steps") },
    { ONE("opt_gradient_clip_norm") },
    { ONE("opt_adamw_weight_decay") },
    { ONE("gradient_accumulation_steps"), .checks = { ABOVE(0) } },
    { ONE("lora_alpha") },
    { ONE("lora_rank"), .checks = { NUMBER(16) } },
    { SOME("eval_accuracy"), .checks = { HAS("samples_count") }, .once = WITHIN(0.0, 0.925) },
};

static const rule closed_flux1[] = {
    { SOME("global_batch_size"),      .checks = { NOT_BELOW(0) }, .then = THEN_BATCH },
    { ONE("evaluation_frequency"),   .checks = { NUMBER(262144) }, .only = R510 | R600 },
    { ONE("evaluation_frequency"),   .checks = { ROUNDED_UP(262144) }, .only = R610 },
    { ONE("opt_name"),               .checks = { TEXT("adamw") } },
    { ONE("opt_adamw_beta_1"),       .checks = { NUMBER(0.9) } },
    { ONE("opt_adamw_beta_2"),       .checks = { NUMBER(0.95) } },
    { ONE("opt_adamw_epsilon"),      .checks = { NUMBER(1e-08) } },
    { ONE("opt_adamw_weight_decay"), .checks = { NUMBER(0.1) } },
    { ONE("opt_base_learning_rate"), .checks = { NOT_BELOW(0) } },
    { ONE("opt_learning_rate_warmup_steps"), .checks = { NOT_BELOW(0) } },
    { ONE("opt_gradient_clip_norm"), .checks = { NUMBER(1.0) } },
    { SOME("eval_accuracy"),         .checks = { HAS("samples_count") }, .once = WITHIN(0.0, 0.586) },
};

static const rule open_flux1[] = {
    { SOME("averaged_validation_loss"), .checks = { HAS("samples_count") }, .once = WITHIN(0.0, 0.586) },
};

static const rule closed_gpt_oss_20b[] = {
    LANGUAGE_ROWS,
    { SOME("eval_accuracy"),         .checks = { HAS("samples_count") }, .once = WITHIN(0.0, 3.34) },
    { ONE("max_steps"),              .checks = { NUMBER(1200000) } },
};

static const rule open_gpt_oss_20b[] = {
    { SOME("eval_accuracy"),         .checks = { HAS("samples_count") }, .once = WITHIN(0.0, 3.34) },
    { ONE("max_sequence_length"),    .checks = { NUMBER(8192) } },
    { ONE("opt_name"),               .checks = { TEXT("adamw") } },
    { ONE("opt_base_learning_rate") },
    { ONE("opt_end_learning_rate") },
    { ONE("opt_learning_rate_warmup_steps") },
    { ONE("opt_learning_rate_decay_steps") },
    { ONE("opt_learning_rate_decay_schedule") },
    { ONE("opt_adamw_beta_1") },
    { ONE("opt_adamw_beta_2") },
    { ONE("opt_adamw_epsilon") },
    { ONE("opt_adamw_weight_decay") },
    { ONE("opt_gradient_clip_norm") },
    { ONE("gradient_accumulation_steps") },
    { ONE("eval_samples") },
    { ONE("max_steps") },
};

/* The keys of llama31_8b, with the values free: what ran has to be said, not to be one certain thing. */
static const rule closed_trainmark_tiny[] = {
    { ONE("global_batch_size"),      .checks = { ABOVE(0) } },
    { ONE("max_sequence_length"),    .checks = { ABOVE(0) } },
    { ONE("opt_name"),               .checks = { TEXT("adamw") } },
    { ONE("opt_base_learning_rate"), .checks = { ABOVE(0) } },
    { ONE("opt_end_learning_rate") },
    { ONE("opt_learning_rate_warmup_steps") },
    { ONE("opt_learning_rate_decay_steps") },
    { ONE("opt_learning_rate_decay_schedule"), .checks = { NOT_EMPTY } },
    { ONE("opt_adamw_beta_1") },
    { ONE("opt_adamw_beta_2") },
    { ONE("opt_adamw_epsilon") },
    { ONE("opt_adamw_weight_decay") },
    { ONE("opt_gradient_clip_norm") },
    { ONE("gradient_accumulation_steps"), .checks = { ABOVE(0) } },
    { ONE("eval_samples"),           .checks = { ABOVE(0) } },
    { ONE("max_steps"),              .checks = { ABOVE(0) } },
    { SOME("eval_accuracy"), .checks = { HAS("samples_count") }, .once = WITHIN(0.0, TM_MLPERF_TINY_TARGET) },
};

/* Those of llama2_70b_lora and of flux1 in the same way. */
static const rule closed_trainmark_tiny_lora[] = {
    { ONE("global_batch_size"),      .checks = { ABOVE(0) } },
    { ONE("opt_base_learning_rate"), .checks = { ABOVE(0) } },
    { ONE("opt_learning_rate_training_steps"), .checks = { ABOVE(0) } },
    { ONE("opt_gradient_clip_norm") },
    { ONE("opt_adamw_weight_decay") },
    { ONE("gradient_accumulation_steps"), .checks = { ABOVE(0) } },
    { ONE("eval_samples"),           .checks = { ABOVE(0) } },
    { ONE("lora_alpha"),             .checks = { ABOVE(0) } },
    { ONE("lora_rank"),              .checks = { ABOVE(0) } },
    { SOME("eval_accuracy"), .checks = { HAS("samples_count") }, .once = WITHIN(0.0, TM_MLPERF_TINY_LORA_TARGET) },
};

static const rule closed_trainmark_tiny_flux[] = {
    { SOME("global_batch_size"),     .checks = { NOT_BELOW(0) } },
    { ONE("evaluation_frequency"),   .checks = { ABOVE(0) } },
    { ONE("opt_name"),               .checks = { TEXT("adamw") } },
    { ONE("opt_adamw_beta_1") },
    { ONE("opt_adamw_beta_2") },
    { ONE("opt_adamw_epsilon") },
    { ONE("opt_adamw_weight_decay") },
    { ONE("opt_base_learning_rate"), .checks = { NOT_BELOW(0) } },
    { ONE("opt_learning_rate_warmup_steps"), .checks = { NOT_BELOW(0) } },
    { ONE("opt_gradient_clip_norm") },
    { SOME("eval_accuracy"), .checks = { HAS("samples_count") }, .once = WITHIN(0.0, TM_MLPERF_TINY_FLUX_TARGET) },
};

static const rule open_any[] = {
    { SOME("eval_accuracy"), .checks = { HAS("epoch_num") }, .once = BELOW(1.0), .only = R510 },
    { SOME("eval_accuracy"), .checks = { HAS("samples_count") }, .once = BELOW(1.0), .only = R6 },
};

#define ROWS(rules) (rules), sizeof(rules) / sizeof *(rules)
static const rule_set sets[] = {
    { "common", NULL, ROWS(common) },
    { "closed_common", "closed", ROWS(closed_common) },
    { "open_common", "open", ROWS(open_common) },
    { "closed_llama31_8b", NULL, ROWS(closed_llama31_8b) },
    { "closed_llama2_70b_lora", NULL, ROWS(closed_llama2_70b_lora) },
    { "closed_flux1", NULL, ROWS(closed_flux1) },
    { "closed_gpt_oss_20b", NULL, ROWS(closed_gpt_oss_20b) },
    { "closed_trainmark_tiny", NULL, ROWS(closed_trainmark_tiny) },
    { "closed_trainmark_tiny_lora", NULL, ROWS(closed_trainmark_tiny_lora) },
    { "closed_trainmark_tiny_flux", NULL, ROWS(closed_trainmark_tiny_flux) },
    { "open_llama31_8b", NULL, ROWS(open_any) },
    { "open_llama2_70b_lora", NULL, ROWS(open_any) },
    { "open_flux1", NULL, ROWS(open_flux1) },
    { "open_gpt_oss_20b", NULL, ROWS(open_gpt_oss_20b) },
};
/* clang-format on */

const rule_set *rule_set_find(const char *name)
{
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (strcmp(sets[i].name, name) == 0) return &sets[i];
    return NULL;
}

const rule *rule_set_row(const rule_set *set, tm_ruleset ruleset, const char *key)
{
    for (size_t i = 0; i < set->n; i++) {
        const rule *r = &set->rules[i];
        if ((!r->only || r->only >> ruleset & 1) && strcmp(r->key, key) == 0) return r;
    }
    return NULL;
}
