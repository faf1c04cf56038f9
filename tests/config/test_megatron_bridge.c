/* SPDX-License-Identifier: Apache-2.0 */
/* Post-training by recipes of Megatron-Bridge: what a recipe takes, what it takes where nothing is given, what a preset
 * of the trainer says that no recipe sees; and what is refused by name. */
#include "model/shape.h"
#include "support/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#define NAMES "work_group: a\nuser_name: b\nexp_name: c\nworkspace: ./o\n"
#define BRIDGE                                                                                                         \
    NAMES "modules:\n  post_trainer:\n    framework: megatron_bridge\n    config: %s.yaml\n    model: %s.yaml\n"       \
          "    overrides:\n      stderr_sink_level: DEBUG\n%s"
#define MOCK                                                                                                           \
    "      dataset: {_target_: megatron.bridge.data.datasets.mock_dataset.MockDatasetConfig, vocab_size: 9, seed: "    \
    "1}\n"

static const char *put(test_foreign *f, const char *trainer, const char *model, const char *overrides)
{
    char text[3000];
    snprintf(text, sizeof text, BRIDGE, trainer, model, overrides);
    return test_foreign_put(f, "x.yaml", text);
}

typedef struct {
    const char *key, *value;
} wanted;

static void take(test_foreign *f, const char *trainer, const char *model, const char *overrides, const wanted *all,
                 size_t n)
{
    test_foreign_take(f, put(f, trainer, model, overrides));
    for (size_t i = 0; i < n; i++) test_foreign_has(f, all[i].key, all[i].value);
}
#define TAKE(trainer, model, overrides, ...)                                                                           \
    take(f, trainer, model, overrides, (const wanted[]){ __VA_ARGS__ },                                                \
         sizeof((const wanted[]){ __VA_ARGS__ }) / sizeof(wanted))

static void refuse(test_foreign *f, const char *trainer, const char *model, const char *overrides, const char *says)
{
    tm_status st = test_foreign_load(f, put(f, trainer, model, overrides), false, 0, NULL);
    if (tm_status_exit_code(st) != 4 || !strstr(f->err.text, says))
        fail_msg("status %d, wanted '%s': %s", (int)st, says, f->err.text);
}

TEST(a_recipe_has_its_own_constants)
{
    test_foreign *f = *test_state;
    TAKE("sft_trainer", "qwen3_8b", MOCK, { "data.source", "mock" }, { "lora.rank", "32" }, { "lora.alpha", "32" },
         { "lora.targets", "wqkv,wo,w13,w2" }, { "lora.init", "xavier" }, { "lora.dora", "false" },
         { "lora.base_format", "bfloat16" }, { "optimizer.lr", "0.0001" }, { "optimizer.weight_decay", "0.033" },
         { "optimizer.beta1", "0.9" }, { "optimizer.beta2", "0.98" }, { "optimizer.eps", "1e-05" },
         { "training.max_norm", "1" }, { "lr_scheduler.warmup_steps", "50" }, { "lr_scheduler.decay_type", "cosine" },
         { "training.steps", "1000" }, { "training.seq_len", "2048" }, { "training.local_batch_size", "1" },
         { "training.global_batch_size", "128" }, { "validation.freq", "30" }, { "validation.steps", "32" },
         { "debug.seed", "5678" }, { "bf16", "true" });
    assert_string_equal(tm_config_preset(f->config), "qwen3_8B");
    TAKE("sft_trainer", "llama31_70b", MOCK "      peft: dora\n      packed_sequence: true\n", { "lora.dora", "true" },
         { "lora.rank", "16" }, { "lora.alpha", "32" }, { "training.global_batch_size", "8" },
         { "training.seq_len", "4096" });
    TAKE("sft_trainer", "qwen3_32b", MOCK "      peft: dora\n", { "lora.dora", "true" }, { "lora.rank", "32" },
         { "lora.alpha", "64" });
    TAKE("sft_trainer", "qwen3_32b", MOCK "      peft: \"none\"\n", { "lora.rank", "0" }, { "optimizer.lr", "5e-06" },
         { "lora.base_format", NULL });
    TAKE("sft_trainer", "qwen3_32b", MOCK "      peft: null\n", { "lora.rank", "0" }, { "lora.targets", "" },
         { "lora.base_format", NULL });
}

/* Every precision_config has params_dtype bfloat16; only what is trained has float32 weights beside. */
TEST(the_frozen_base_is_bfloat16)
{
    static const char *const formats[] = { "", "      precision_config: bf16_mixed\n",
                                           "      precision_config: bf16_with_fp8_hybrid\n" };
    static const char *const kinds[] = { "", "      peft: lora\n", "      peft: dora\n" };
    static const char *const own[] = { "--lora.base_format", "nf4" };
    test_foreign            *f = *test_state;
    for (size_t i = 0; i < 9; i++) {
        char text[600];
        snprintf(text, sizeof text, "%s%s%s", MOCK, formats[i / 3], kinds[i % 3]);
        TAKE("sft_trainer", "llama31_70b", text, { "lora.base_format", "bfloat16" }, { "bf16", "true" },
             { "training.regime", "master" });
    }
    if (test_foreign_load(f, put(f, "sft_trainer", "qwen3_8b", MOCK), false, 2, own) != TM_OK)
        fail_msg("%s", f->err.text);
    test_foreign_has(f, "lora.base_format", "nf4"); /* what is asked for here counts */
}

TEST(what_a_recipe_takes_counts)
{
    test_foreign *f = *test_state;
    TAKE("sft_trainer", "qwen3_8b",
         MOCK "      peft_dim: 8\n      peft_alpha: 24\n      finetune_lr: 2.0e-4\n      min_lr: 1.0e-5\n"
              "      train_iters: 7\n      seq_length: 64\n      global_batch_size: 4\n      micro_batch_size: 2\n"
              "      lr_warmup_iters: 3\n      lr_decay_iters: 6\n      eval_interval: 5\n      eval_iters: 0\n"
              "      recompute_granularity: full\n      recompute_method: uniform\n      recompute_num_layers: 1\n",
         { "lora.rank", "8" }, { "lora.alpha", "24" }, { "optimizer.lr", "0.0002" }, { "min_lr", "1e-05" },
         { "training.steps", "7" }, { "training.seq_len", "64" }, { "training.global_batch_size", "4" },
         { "training.local_batch_size", "2" }, { "lr_scheduler.warmup_steps", "3" },
         { "lr_scheduler.total_steps", "6" }, { "validation.enable", "false" },
         { "activation_checkpoint.mode", "full" });
    /* the experiment's own word counts, whatever the recipe's constant is */
    TAKE("sft_trainer", "qwen3_8b", MOCK "      adam_beta2: 0.95\n      weight_decay: 0.01\n      seed: 3\n",
         { "optimizer.beta2", "0.95" }, { "optimizer.weight_decay", "0.01" }, { "debug.seed", "3" });
}

/* Of post_trainer.yaml recipes take some keys; the others do not count, there. */
TEST(no_recipe_sees_the_rest_of_the_trainer)
{
    test_foreign *f = *test_state;
    TAKE("post_trainer", "qwen3_8b", MOCK, { "training.steps", "5000" }, { "training.global_batch_size", "64" },
         { "min_lr", "5e-07" }, { "lr_scheduler.warmup_steps", "100" }, { "validation.freq", "100" },
         { "optimizer.lr", "0.0001" });
    test_foreign_put(f, "post_trainer.yaml",
                     "train_iters: 900\nglobal_batch_size: 16\nlr: 5.0e-6\nweight_decay: 0.01\nadam_beta2: 0.95\n"
                     "adam_eps: 1.0e-08\nseed: 1234\neval_iters: 10\nsplit: \"95,5,0\"\nbf16: true\nfp16: false\n"
                     "lr_decay_style: cosine\noptimizer: adam\nskip_train: false\nlog_interval: 10\n");
    TAKE("post_trainer", "qwen3_8b", MOCK, { "training.steps", "900" }, { "training.global_batch_size", "16" },
         { "optimizer.lr", "0.0001" }, { "optimizer.weight_decay", "0.033" }, { "optimizer.beta2", "0.98" },
         { "optimizer.eps", "1e-05" }, { "debug.seed", "5678" }, { "validation.steps", "32" },
         { "lr_scheduler.warmup_steps", "50" });
    TAKE("post_trainer", "qwen3_8b", MOCK "      lr: 3.0e-4\n", { "optimizer.lr", "0.0003" });
}

TEST(the_benchmark_has_adapters_of_its_own)
{
    test_foreign *f = *test_state;
    TAKE("sft_trainer", "llama2_70b_lora",
         "      peft: lora\n      dataset_type: mlperf_dataset\n      packed_sequence: true\n"
         "      packed_train_data_path: /nowhere/train.npy\n      packed_val_data_path: /nowhere/validation.npy\n"
         "      seq_length: 8192\n      train_iters: 1000\n      global_batch_size: 8\n      lr: 4.0e-4\n"
         "      adam_beta2: 0.999\n      min_lr: 0.0\n      lr_warmup_iters: 0\n"
         "      precision_config: bf16_with_fp8_hybrid\n",
         { "data.source", "govreport" }, { "data.path", "/nowhere/train.npy" },
         { "data.validation_path", "/nowhere/validation.npy" }, { "lora.rank", "16" }, { "lora.alpha", "32" },
         { "lora.dropout", "0.1" }, { "lora.targets", "wqkv,wo" }, { "lora.init", "xavier" },
         { "lora.base_format", "bfloat16" }, { "optimizer.lr", "0.0004" }, { "optimizer.beta2", "0.999" },
         { "optimizer.eps", "1e-08" }, { "optimizer.weight_decay", "0.0001" }, { "fp8", "hybrid" },
         { "fp8_recipe", "delayed" }, { "fp8_amax_history_len", "4" }, { "debug.seed", "1234" },
         { "validation.freq", "48" }, { "training.max_norm", "0.3" });
    assert_string_equal(tm_config_preset(f->config), "llama2_70B");
    TAKE("sft_trainer", "llama2_7b_lora",
         "      packed_sequence: true\n      packed_train_data_path: /nowhere/train.npy\n      train_iters: 4\n"
         "      lr_warmup_iters: 1\n      precision_config: bf16_mixed\n",
         { "data.source", "govreport" }, { "data.validation_path", "/data/validation.npy" },
         { "optimizer.lr", "0.0004" }, { "min_lr", "0" }, { "training.global_batch_size", "8" },
         { "training.seq_len", "8192" });
    assert_string_equal(tm_config_preset(f->config), "llama2_7B");
}

/* The recipe of a mixture adapts its attention; products of adapters are in no low precision; what stands beside the
 * modules is read by nobody, and told. */
TEST(other_recipes_of_the_table)
{
    test_foreign *f = *test_state;
    TAKE("sft_trainer", "qwen3_30b_a3b",
         MOCK "      expert_model_parallel_size: 1\n      dataset_name: rajpurkar/squad\n"
              "peft: {dim: 32}\nmodel: {moe_router_force_load_balancing: true}\n",
         { "lora.rank", "8" }, { "lora.alpha", "16" }, { "lora.targets", "wqkv,wo" }, { "model.moe_aux_loss", "0.001" },
         { "parallelism.expert_parallel_degree", "1" }, { "debug.moe_force_load_balance", "false" });
    assert_string_equal(tm_config_preset(f->config), "qwen3_30B-A3B");
    assert_non_null(strstr(tm_config_notes(f->config), "ignored: peft.dim"));
    assert_non_null(strstr(tm_config_notes(f->config), "move it under modules.post_trainer.overrides"));
    TAKE("sft_trainer", "qwen3_30b_a3b", MOCK "      peft: none\n", { "lora.rank", "0" }, { "optimizer.lr", "5e-06" });
    TAKE("sft_trainer", "llama2_70b_lora_mxfp4", MOCK, { "lora.rank", "16" }, { "fp4", "e2m1" },
         { "fp4_recipe", "mxfp4" }, { "quantize.filter_fqns", "lora_A,lora_B" }, { "optimizer.lr", "0.0004" });
}

TEST(rows_are_a_file)
{
    char          text[900], path[400];
    test_foreign *f = *test_state;
    snprintf(path, sizeof path, "%s",
             test_foreign_put(f, "rows.jsonl", "{\"instruction\": \"Add.\", \"output\": \"Done.\"}\n"));
    snprintf(text, sizeof text,
             "      dataset:\n        _target_: megatron.bridge.data.builders.hf_dataset.HFDatasetConfig\n"
             "        dataset_name: \"%s\"\n        seq_length: 2048\n        val_proportion: 0.2\n"
             "        do_validation: true\n        do_test: false\n",
             path);
    TAKE("sft_trainer", "qwen3_8b", text, { "data.source", "sft" }, { "data.validation_fraction", "0.2" },
         { "data.packed", "false" });
    test_foreign_has(f, "data.path", path);
    refuse(f, "sft_trainer", "qwen3_8b", "", "'rajpurkar/squad' is not downloaded");
    refuse(f, "sft_trainer", "qwen3_8b",
           "      dataset: {_target_: megatron.bridge.data.builders.hf_dataset.HFDatasetConfig, dataset_name: a/b}\n",
           "'a/b' is not downloaded");
    refuse(f, "sft_trainer", "qwen3_8b", MOCK "      dataset.seq_length: 64\n", "a length other than seq_length");
    refuse(f, "sft_trainer", "qwen3_8b", "      dataset: {_target_: x.FinetuningDatasetConfig}\n", "this kind of data");
}

/* The files of the model say recipe, flavor and hf_path. */
TEST(a_model_is_a_recipe)
{
    test_foreign *f = *test_state;
    test_foreign_put(f, "mine.yaml",
                     "recipe: llama.llama3\nflavor: llama31_8b_finetune_config\n"
                     "hf_path: meta-llama/Meta-Llama-3.1-8B\n");
    TAKE("sft_trainer", "mine", MOCK, { "lora.rank", "8" }, { "lora.alpha", "16" });
    assert_string_equal(tm_config_preset(f->config), "llama3.1_8B");
    refuse(f, "sft_trainer", "gemma4_26b", MOCK, "the model 'gemma4_26b.yaml'");
    static const char *const flavors[] = { "mamba_370m_finetune_config", "llama31_70b_pretrain_config" };
    for (size_t i = 0; i < sizeof flavors / sizeof flavors[0]; i++) {
        char text[200];
        snprintf(text, sizeof text, "recipe: a\nflavor: %s\nhf_path: Qwen/Qwen3-8B\n", flavors[i]);
        test_foreign_put(f, "other.yaml", text);
        refuse(f, "sft_trainer", "other", MOCK, "not supported: this recipe");
    }
    test_foreign_put(f, "other.yaml", "recipe: a\nflavor: qwen3_8b_finetune_config\nhf_path: Qwen/Qwen9\n");
    refuse(f, "sft_trainer", "other", MOCK, "'hf_path' = 'Qwen/Qwen9'");
}

TEST(what_is_not_built_is_refused_by_its_name)
{
    static const struct {
        const char *line, *says;
    } cases[] = {
        { "      peft: canonical_lora\n", "another kind of adapters; wanted one of none, lora, dora" },
        { "      precision_config: bf16_with_mxfp8_mixed\n", "these number formats" },
        { "      fp8: e4m3\n", "give precision_config" },
        { "      optimizer: sgd\n", "another optimizer" },
        { "      lr_decay_style: steps\n", "another shape of the decay" },
        { "      use_megatron_fsdp: true\n", "this layout of several devices" },
        { "      virtual_pipeline_model_parallel_size: 2\n", "stages of a rank that take turns" },
        { "      rampup_batch_size: 4\n", "which no recipe takes" },
        { "      data_paths: /x\n", "which no recipe takes" },
        { "      finetune_lr: 1.0e-4\n      lr: 2.0e-4\n", "give one of the two" },
        { "      train_iter: 3\n", "did you mean 'train_iters'" },
    };
    test_foreign *f = *test_state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[600];
        snprintf(text, sizeof text, "%s%s", MOCK, cases[i].line);
        refuse(f, "sft_trainer", "qwen3_8b", text, cases[i].says);
    }
}

TEST_FIXTURE(test_foreign_set_up, test_foreign_tear_down)
