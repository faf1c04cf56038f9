/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes of torchtune: keys, components and references between them. */
#include "support/foreign.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

static const char recipe[] =
    "output_dir: /tmp/x\nmodel:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\n"
    "dataset:\n  _component_: torchtune.datasets.alpaca_cleaned_dataset\n  packed: False\nseed: null\n"
    "batch_size: 2\nbatch_size_val: ${batch_size}\nmetric_logger:\n  log_dir: ${output_dir}/logs\n"
    "optimizer:\n  _component_: torch.optim.AdamW\n  fused: True\n  lr: ${rates.peak}\nrates: {peak: 2e-5}\n"
    "epochs: 1\nmax_steps_per_epoch: 20\ngradient_accumulation_steps: 4\nclip_grad_norm: null\n"
    "dtype: bf16\nenable_activation_checkpointing: True\ndevice: cuda\n";

TEST(recipes_of_torchtune_load)
{
    test_foreign *f = *test_state;
    const char   *mock[] = { "--training.mock_data", "true" };
    char          text[2048];
    if (test_foreign_load(f, test_foreign_put(f, "r.yaml", recipe), false, 2, mock) != TM_OK)
        fail_msg("%s", f->err.text);
    test_foreign_has(f, "optimizer.lr", "2e-05"); /* rates.peak, which only others refer to */
    snprintf(text, sizeof text, "%s", recipe);
    memcpy(strstr(text, "${rates.peak}"), "2e-05        ", 13);
    test_foreign_refuse(f, test_foreign_put(f, "r.yaml", text), "unknown key 'rates.peak'");
    snprintf(text, sizeof text, "%s", recipe);
    memmove(strstr(text, "rates: "), strstr(text, "epochs"), strlen(strstr(text, "epochs")) + 1);
    memcpy(strstr(text, "${rates.peak}"), "${batch_size}", strlen("${batch_size}"));
    test_foreign_refuse(f, test_foreign_put(f, "r.yaml", text), "alpaca_cleaned_dataset");
    if (test_foreign_load(f, test_foreign_put(f, "r.yaml", text), false, 2, mock) != TM_OK) fail_msg("%s", f->err.text);
    test_foreign_has(f, "model.dim", "4096");
    test_foreign_has(f, "training.local_batch_size", "2");
    test_foreign_has(f, "training.global_batch_size", "8");
    test_foreign_has(f, "training.steps", "20");
    test_foreign_has(f, "optimizer.lr", "2");
    test_foreign_has(f, "training.max_norm", "0");
    test_foreign_has(f, "activation_checkpoint.mode", "full");
    memcpy(strstr(text, "llama3_1_8b"), "qwen2_7b_rm", 11); /* begins like one that is */
    test_foreign_refuse(f, test_foreign_put(f, "r.yaml", text), "not supported: this model");
    memcpy(strstr(text, "qwen2_7b_rm"), "llama9_1_8b", 11);
    test_foreign_refuse(f, test_foreign_put(f, "r.yaml", text), "not supported: this model");
}

static const char adapters[] =
    "model:\n  _component_: torchtune.models.%s\n  lora_attn_modules: ['q_proj', 'v_proj']\n"
    "  lora_rank: 8\n  lora_alpha: 16\n  apply_lora_to_mlp: %s\n"
    "checkpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\n  checkpoint_dir: /nowhere\n"
    "dataset:\n  _component_: torchtune.datasets.alpaca_dataset\nbatch_size: 2\n"
    "optimizer:\n  _component_: torch.optim.AdamW\n  lr: 3e-4\n%s";

/* Functions of models are presets by a table; what a recipe asks for besides is done or refused. */
TEST(components_of_torchtune_are_mapped)
{
    static const struct {
        const char *component, *mlp, *more, *key, *value;
    } cases[] = {
        { "llama3_1.lora_llama3_1_8b", "True", "", "model.dim", "4096" },
        { "llama3_1.lora_llama3_1_8b", "True", "", "lora.base_format", NULL },
        { "llama3_1.qlora_llama3_1_8b", "True", "", "lora.base_format", "nf4" },
        { "llama3_1.lora_llama3_1_8b", "True\n  quantize_base: True", "dtype: bf16\n", "lora.base_format", "nf4" },
        { "llama3_1.lora_llama3_1_8b", "True\n  quantize_base: False", "dtype: fp32\n", "lora.base_format", NULL },
        { "llama3_1.lora_llama3_1_8b", "True", "dtype: bf16\n", "training.regime", "pure" },
        { "llama3_1.qlora_llama3_1_8b", "True", "", "lora.targets", "q_proj,v_proj,gate_proj,up_proj,down_proj" },
        { "llama3_1.qlora_llama3_1_8b", "False", "", "lora.targets", "q_proj,v_proj" },
        { "llama3_1.lora_llama3_1_8b", "True\n  apply_lora_to_output: True", "", "lora.targets",
          "q_proj,v_proj,gate_proj,up_proj,down_proj,lm_head" },
        { "llama3_1.lora_llama3_1_8b", "True\n  apply_lora_to_output: False", "", "lora.targets",
          "q_proj,v_proj,gate_proj,up_proj,down_proj" },
        { "llama3_1.lora_llama3_1_8b", "True\n  use_dora: True", "", "lora.dora", "true" },
        { "llama3_1.lora_llama3_1_405b", "True", "", "model.n_layers", "126" },
        { "llama3_3.lora_llama3_3_70b", "True", "", "model.n_layers", "80" },
        { "code_llama2.lora_code_llama2_7b", "True", "", "model.vocab_size", "32016" },
        { "qwen2.lora_qwen2_0_5b", "True", "", "model.dim", "896" },
        { "qwen2_5.lora_qwen2_5_14b_instruct", "True", "", "model.n_layers", "48" },
        { "qwen3.lora_qwen3_8b_base", "True", "", "model.n_layers", "36" },
        { "qwen2.lora_qwen2_0_5b_instruct", "True", "", "model.dim", "896" },
        { "qwen2.lora_qwen2_1_5b_base", "True", "", "model.dim", "1536" },
        { "qwen2.lora_qwen2_7b_instruct", "True", "", "model.dim", "3584" },
        { "qwen2_5.lora_qwen2_5_0_5b_base", "True", "", "model.dim", "896" },
        { "qwen2_5.lora_qwen2_5_1_5b_instruct", "True", "", "model.dim", "1536" },
        { "qwen2_5.lora_qwen2_5_3b_base", "True", "", "model.dim", "2048" },
        { "qwen2_5.lora_qwen2_5_7b_instruct", "True", "", "model.dim", "3584" },
        { "qwen2_5.lora_qwen2_5_32b_instruct", "True", "", "model.n_layers", "64" },
        { "qwen2_5.lora_qwen2_5_72b_instruct", "True", "", "model.n_layers", "80" },
        { "qwen3.lora_qwen3_0_6b_instruct", "True", "", "model.dim", "1024" },
        { "qwen3.lora_qwen3_1_7b_base", "True", "", "model.dim", "2048" },
        { "qwen3.lora_qwen3_4b_base", "True", "", "model.dim", "2560" },
        { "qwen3.lora_qwen3_14b_instruct", "True", "", "model.dim", "5120" },
        { "qwen3.lora_qwen3_32b_instruct", "True", "", "model.n_layers", "64" },
        { "llama3_2.lora_llama3_2_1b", "True", "", "model.dim", "2048" },
        { "llama3_2.lora_llama3_2_3b", "True", "", "model.dim", "3072" },
        { "mistral.lora_mistral_7b", "True", "", "model.sliding_window", "4096" },
        { "llama2.lora_llama2_13b", "True", "ac_mode: selective\nac_option: 3\n",
          "activation_checkpoint.selective_ac_option", "3" },
        { "llama2.lora_llama2_13b", "True", "ac_mode: full\nenable_activation_checkpointing: False\n",
          "activation_checkpoint.mode", "full" },
    };
    static const char *const refused[][3] = {
        { "gemma.lora_gemma_2b", "", "not supported: this model" },
        { "llama3_2_vision.lora_llama3_2_vision_11b", "", "not supported: this model" },
        { "llama2.lora_llama2_7b", "loss:\n  _component_: torchtune.rlhf.loss.PPOLoss\n", "another loss" },
        { "llama2.lora_llama2_7b", "teacher_model:\n  _component_: torchtune.models.llama2.llama2_7b\n",
          "distillation" },
        { "llama2.lora_llama2_7b", "quantizer:\n  _component_: torchtune.training.quantization.X\n",
          "quantization-aware training" },
        { "llama2.lora_llama2_7b", "tasks: [truthfulqa]\n", "nothing is trained there" },
        { "llama2.lora_llama2_7b", "prompt:\n  user: hello\n", "a recipe that generates text" },
        { "llama2.qlora_llama2_7b", "dtype: fp32\n", "a base in 4 bits whose other weights are in float32" },
        { "llama2.lora_llama2_7b", "ppo_epochs: 3\n", "not supported: PPO" },
        { "llama2.lora_llama2_7b", "tasks: [a]\nlimit: 3\nenable_kv_cache: True\n", "'tasks' = 'a'" },
        { "llama2.lora_llama2_7b", "top_k: 3\n", "a recipe that generates text" },
    };
    test_foreign *f = *test_state;
    char          text[2048];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, adapters, cases[i].component, cases[i].mlp, cases[i].more);
        if (test_foreign_load(f, test_foreign_put(f, "r.yaml", text), true, 0, NULL) != TM_OK)
            fail_msg("%s: %s", cases[i].component, f->err.text);
        const char *is = tm_config_text(f->config, cases[i].key);
        if (!is != !cases[i].value || (is && strcmp(is, cases[i].value) != 0))
            fail_msg("%s: %s is %s", cases[i].component, cases[i].key, is ? is : "null");
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        snprintf(text, sizeof text, adapters, refused[i][0], "True", refused[i][1]);
        test_foreign_refuse(f, test_foreign_put(f, "r.yaml", text), refused[i][2]);
    }
}

/* Epochs are passes over the data, or each of so many steps. */
TEST(epochs_of_torchtune_recipes)
{
    static const struct {
        const char *lines, *epochs, *steps;
    } cases[] = {
        { "epochs: 3\n", "3", "10000" },
        { "epochs: 3\nmax_steps_per_epoch: null\n", "3", "10000" },
        { "epochs: 1\nmax_steps_per_epoch: 20\n", NULL, "20" },
        { "epochs: 3\nmax_steps_per_epoch: 20\n", NULL, "60" },
        { "max_steps_per_epoch: 20\n", NULL, "20" },
    };
    test_foreign *f = *test_state;
    char          text[2048];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, adapters, "llama2.lora_llama2_7b", "True", cases[i].lines);
        if (test_foreign_load(f, test_foreign_put(f, "r.yaml", text), true, 0, NULL) != TM_OK)
            fail_msg("%s: %s", cases[i].lines, f->err.text);
        test_foreign_has(f, "training.epochs", cases[i].epochs);
        test_foreign_has(f, "training.steps", cases[i].steps);
    }
}

/* What only quantizes a trained model has nothing to plan; training that is aware of it is planned without it. */
TEST(quantizers_of_torchtune_are_refused)
{
    static const char quantizes[] = "model:\n  _component_: torchtune.models.llama2.llama2_7b\n"
                                    "checkpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\n"
                                    "  checkpoint_dir: /nowhere\ndevice: cuda\ndtype: bf16\nseed: 1234\n"
                                    "quantizer:\n  _component_: torchtune.training.quantization.%s\n  groupsize: 256\n";
    test_foreign     *f = *test_state;
    char              text[2048];
    snprintf(text, sizeof text, quantizes, "Int8DynActInt4WeightQuantizer");
    const char *path = test_foreign_put(f, "r.yaml", text);
    for (int plan = 0; plan < 2; plan++) {
        assert_int_equal(test_foreign_load(f, path, plan, 0, NULL), TM_UNSUPPORTED);
        assert_non_null(strstr(f->err.text, "recipes that only quantize a trained model"));
    }
    snprintf(text, sizeof text, adapters, "llama2.lora_llama2_7b", "True",
             "quantizer:\n  _component_: torchtune.training.quantization.Int8DynActInt4WeightQATQuantizer\n");
    path = test_foreign_put(f, "r.yaml", text);
    test_foreign_refuse(f, path, "quantization-aware training");
    if (test_foreign_load(f, path, true, 0, NULL) != TM_OK) fail_msg("%s", f->err.text);
    assert_non_null(strstr(tm_config_unbuilt(f->config), "quantization-aware training"));
}

/* "~key" is a recipe without the key, or without the section. */
TEST(keys_are_removed)
{
    test_foreign *f = *test_state;
    const char   *without[] = { "--training.mock_data", "true", "~clip_grad_norm", "~optimizer.fused", "~dataset" };
    const char   *twice[] = { "--training.mock_data", "true", "~epoch" };
    char          text[2048];
    snprintf(text, sizeof text, "%s", recipe);
    memcpy(strstr(text, "clip_grad_norm: null"), "clip_grad_norm: 0.5 ", 20);
    const char *path = test_foreign_put(f, "r.yaml", text);
    if (test_foreign_load(f, path, false, 2, without) != TM_OK) fail_msg("%s", f->err.text);
    test_foreign_has(f, "training.max_norm", "0.5");
    if (test_foreign_load(f, path, false, 5, without) != TM_OK) fail_msg("%s", f->err.text);
    test_foreign_has(f, "training.max_norm", "0");
    assert_int_equal(tm_status_exit_code(test_foreign_load(f, path, false, 3, twice)), 2);
    assert_non_null(strstr(f->err.text, "'~epoch' removes a key that the recipe does not have"));
}

/* Rows in local files are those of data.source sft; a data set of a hub stays one that has to be named. */
TEST(rows_of_torchtune_recipes)
{
    test_foreign *f = *test_state;
    char          text[2048];
    snprintf(text, sizeof text, "%s", recipe);
    char *begin = strstr(text, "dataset:"), *end = strstr(text, "seed: null");
    char  rest[2048];
    snprintf(rest, sizeof rest, "%s", end);
    memcpy(strstr(rest, "${rates.peak}"), "2e-05        ", 13);
    memmove(strstr(rest, "rates: "), strstr(rest, "epochs"), strlen(strstr(rest, "epochs")) + 1);
    snprintf(begin, sizeof text - (size_t)(begin - text),
             "tokenizer:\n  path: model/tokenizer.json\n  max_seq_len: 512\ndataset:\n"
             "  _component_: torchtune.datasets.instruct_dataset\n  source: json\n  data_files: rows.jsonl\n"
             "  column_map:\n    input: question\n    output: answer\n  train_on_input: True\n%s",
             rest);
    test_foreign_take(f, test_foreign_put(f, "rows.yaml", text));
    static const char *const wanted[][2] = { { "data.source", "sft" },
                                             { "data.path", "rows.jsonl" },
                                             { "data.column_map", "prompt=question,completion=answer" },
                                             { "data.train_on_input", "true" },
                                             { "data.packed", "false" },
                                             { "data.tokenizer", "model/tokenizer.json" },
                                             { "training.seq_len", "512" } };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) test_foreign_has(f, wanted[i][0], wanted[i][1]);
    char *component = strstr(text, "instruct_dataset");
    memcpy(component, "alpaca_dataset  ", 16);
    test_foreign_take(f, test_foreign_put(f, "rows.yaml", text));
    test_foreign_has(f, "data.column_map", "input=question,output=answer");
    memcpy(strstr(text, "source: json"), "source: text", 12);
    test_foreign_take(f, test_foreign_put(f, "rows.yaml", text));
    test_foreign_has(f, "data.source", "text");
}

/* What changes local rows is refused; of a data set of a hub, which is replaced, it says nothing. */
TEST(what_recipes_do_with_rows)
{
    static const char rows[] = "torchtune.datasets.instruct_dataset\n  source: json\n  data_files: rows.jsonl",
                      hub[] = "torchtune.datasets.alpaca_dataset";
    static const struct {
        const char *of_dataset, *more, *says;
    } cases[] = {
        { "\n  new_system_prompt: be kind", "", "this key of a data set" },
        { "\n  split: train[:5%]", "", "a part of the rows" },
        { "", "shuffle: False\n", "samples in the order of the file" },
        { "", "dataloader:\n  shuffle: False\n", "samples in the order of the file" },
        { "", "tokenizer:\n  prompt_template: a.b\n", "prompts of a template of its own" },
        { "\n  split: train\n  new_system_prompt: null", "shuffle: True\ntokenizer:\n  prompt_template: null\n", NULL },
    };
    test_foreign *f = *test_state;
    const char   *mock[] = { "--training.mock_data", "true" };
    char          text[2048];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int k = 0; k < 2; k++) {
            snprintf(text, sizeof text,
                     "model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\ndataset:\n  _component_: %s%s\n%s"
                     "optimizer:\n  _component_: torch.optim.AdamW\n  lr: 2e-5\nmax_steps_per_epoch: 20\n",
                     k ? hub : rows, cases[i].of_dataset, cases[i].more);
            const char *path = test_foreign_put(f, "r.yaml", text);
            if (!k && cases[i].says)
                test_foreign_refuse(f, path, cases[i].says);
            else if (test_foreign_load(f, path, false, k ? 2 : 0, mock) != TM_OK)
                fail_msg("%s", f->err.text);
        }
    snprintf(text, sizeof text, adapters, "llama2.lora_llama2_7b", "True",
             "loss:\n  _component_: torch.nn.CrossEntropyLoss\n  ignore_index: 0\n");
    test_foreign_refuse(f, test_foreign_put(f, "r.yaml", text), "targets with another mark");
}

/* Recipes of DPO: pairs have two sequences of tokenizer.max_seq_len, and the reference is the model itself. */

/* A chat_dataset names its only column, and the style of what is in it. */
TEST(conversations_of_torchtune_recipes)
{
#define TALKS                                                                                                          \
    "model:\n  _component_: torchtune.models.llama3_2.llama3_2_1b\noptimizer:\n  _component_: torch.optim.AdamW\n"     \
    "  lr: 2e-5\nmax_steps_per_epoch: 2\ntokenizer:\n  max_seq_len: 64\ndataset:\n"                                    \
    "  _component_: torchtune.datasets.chat_dataset\n  source: json\n  data_files: rows.jsonl\n"
    static const char *const cases[][3] = { { "openai", "messages", "messages=talk" },
                                            { "sharegpt", "conversations", "conversations=talk" } };
    test_foreign            *f = *test_state;
    char                     text[1024];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, TALKS "  conversation_column: talk\n  conversation_style: %s\n", cases[i][0]);
        test_foreign_take(f, test_foreign_put(f, "talks.yaml", text));
        test_foreign_has(f, "data.source", "sft");
        test_foreign_has(f, "data.format", cases[i][1]);
        test_foreign_has(f, "data.column_map", cases[i][2]);
        test_foreign_has(f, "data.train_on_input", "false");
    }
    test_foreign_refuse(f, test_foreign_put(f, "talks.yaml", TALKS "  conversation_style: alpaca\n"),
                        "another style of conversations");
    test_foreign_refuse(f, test_foreign_put(f, "talks.yaml", TALKS "  conversation_column: talk\n"),
                        "conversations without conversation_style");
#undef TALKS
}

TEST(preferences_of_torchtune_recipes)
{
    static const char preferences[] =
        "model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\n"
        "tokenizer:\n  _component_: torchtune.models.llama3.llama3_tokenizer\n  max_seq_len: 1024\n"
        "checkpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\n  checkpoint_dir: /a\n"
        "ref_checkpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\n  checkpoint_dir: %s\n"
        "dataset:\n  _component_: torchtune.datasets.%s\n"
        "loss:\n  _component_: torchtune.rlhf.loss.%s\nbatch_size: 4\ngradient_accumulation_steps: 8\n"
        "optimizer:\n  _component_: torch.optim.AdamW\n  lr: 2e-5\nepochs: 1\nmax_steps_per_epoch: 1000\ndtype: bf16\n";
    static const char        rows[] = "preference_dataset\n  source: json\n  data_files: pairs.jsonl\n"
                                      "  column_map: {chosen: good, rejected: bad, prompt: asked}";
    static const char *const wanted[][2] = { { "data.source", "preference" },
                                             { "data.path", "pairs.jsonl" },
                                             { "data.column_map", "prompt=asked,chosen=good,rejected=bad" },
                                             { "data.packed", "false" },
                                             { "dpo.beta", "0.05" },
                                             { "dpo.label_smoothing", "0.2" },
                                             { "dpo.loss_type", "sigmoid" },
                                             { "training.local_batch_size", "4" },
                                             { "training.grad_accumulation", "8" },
                                             { "training.seq_len", "2048" } };
    test_foreign            *f = *test_state;
    char                     text[2048];
    snprintf(text, sizeof text, preferences, "/a", rows, "DPOLoss\n  beta: 0.05\n  label_smoothing: 0.2");
    test_foreign_take(f, test_foreign_put(f, "r.yaml", text));
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) test_foreign_has(f, wanted[i][0], wanted[i][1]);
    snprintf(text, sizeof text, preferences, "/a", rows, "RSOLoss\n  gamma: 0.3");
    test_foreign_take(f, test_foreign_put(f, "r.yaml", text));
    test_foreign_has(f, "dpo.loss_type", "hinge");
    test_foreign_has(f, "dpo.beta", "0.3");
    snprintf(text, sizeof text, preferences, "/b", rows, "DPOLoss");
    test_foreign_refuse(f, test_foreign_put(f, "r.yaml", text),
                        "a reference that is not the model that training begins with");
    snprintf(text, sizeof text, preferences, "/a", "stack_exchange_paired_dataset", "DPOLoss");
    test_foreign_refuse(f, test_foreign_put(f, "r.yaml", text), "stack_exchange_paired_dataset");
    const char *path[] = { "--data.path", "pairs.jsonl" }, *mock[] = { "--training.mock_data", "true" };
    if (test_foreign_load(f, test_foreign_put(f, "r.yaml", text), false, 2, path) != TM_OK) fail_msg("%s", f->err.text);
    test_foreign_has(f, "data.source", "preference");
    assert_int_not_equal(test_foreign_load(f, test_foreign_put(f, "r.yaml", text), false, 2, mock), TM_OK);
    assert_non_null(strstr(f->err.text, "compares answers"));
}

TEST_FIXTURE(test_foreign_set_up, test_foreign_tear_down)
