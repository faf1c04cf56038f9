/* SPDX-License-Identifier: Apache-2.0 */
/* Post-training by recipes of Megatron-Bridge: what a preset of the trainer says that no recipe sees, rows, models.
 * Single keys: foreign.txt. */
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

/* What stands beside the modules is read by nobody, and told. */
TEST(keys_beside_the_modules_are_ignored)
{
    test_foreign *f = *test_state;
    TAKE("sft_trainer", "qwen3_30b_a3b", MOCK "peft: {dim: 32}\nmodel: {moe_router_force_load_balancing: true}\n",
         { "lora.rank", "8" }, { "debug.moe_force_load_balance", "false" });
    assert_string_equal(tm_config_preset(f->config), "qwen3_30B-A3B");
    assert_non_null(strstr(tm_config_notes(f->config), "ignored: peft.dim"));
    assert_non_null(strstr(tm_config_notes(f->config), "move it under modules.post_trainer.overrides"));
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

TEST_FIXTURE(test_foreign_set_up, test_foreign_tear_down)
