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

/* What only quantizes a trained model has nothing to plan. */
TEST(quantizers_of_torchtune_are_refused)
{
    static const char quantizes[] = "model:\n  _component_: torchtune.models.llama2.llama2_7b\n"
                                    "checkpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\n"
                                    "  checkpoint_dir: /nowhere\ndevice: cuda\ndtype: bf16\nseed: 1234\nquantizer:\n"
                                    "  _component_: torchtune.training.quantization.Int8DynActInt4WeightQuantizer\n";
    test_foreign     *f = *test_state;
    const char       *path = test_foreign_put(f, "r.yaml", quantizes);
    for (int plan = 0; plan < 2; plan++) {
        assert_int_equal(test_foreign_load(f, path, plan, 0, NULL), TM_UNSUPPORTED);
        assert_non_null(strstr(f->err.text, "recipes that only quantize a trained model"));
    }
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
}

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

/* Recipes of DPO: pairs have two sequences of tokenizer.max_seq_len, and the reference is the model itself. */
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
