/* SPDX-License-Identifier: Apache-2.0 */
/* What values of other programs' keys become in ours, to the letter. After a change that is meant:
 *     TM_RECORD=1 build/release/tests/config/test_whole_values; git diff tests/config/whole-values.txt
 */
#include "config/foreign.h"
#include "support/foreign.h"
#include "support/whole.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "support/test.h"

/* Further keys of the same file, as conversions look at them. */
static const char *const surroundings[][8] = {
    { NULL },
    { "multi_latent_attention=true", "moe_ffn_hidden_size=4", "tensor_model_parallel_size=2",
      "use_turbo_attention=true", "use_sink_attention=true", "use_torch_fsdp2=true", "reset_position_ids=true",
      "num_layers=12" },
    { "multi_latent_attention=false", "ffn_hidden_size=2", "use_megatron_fsdp=true", "expert_model_parallel_size=2",
      "qk_layernorm=true", "reset_position_ids=true", "reset_attention_mask=true", "eod_mask_loss=true" },
    { "sft_dataset_name=a/rows.jsonl", "tokenizer_model=/t", "data_parallel_replicate_degree=2", "use_torch_fsdp2=true",
      "add_qkv_bias=true", "moe_router_topk=6", "pipeline_model_parallel_size=2", "num_layers=8" },
    { "model_type=bert", "sft_dataset_name=.json", "use_distributed_optimizer=true", "use_torch_fsdp2=true",
      "make_vocab_size_divisible_by=100", "qk_layernorm=false", "use_turbo_attention=true", "num_layers=7" },
    { "model._component_=torchtune.models.llama2.qlora_llama2_7b", "loss._component_=torchtune.rlhf.loss.DPOLoss",
      "dataset._component_=torchtune.datasets.instruct_dataset", "dataset.column_map.input=q",
      "dataset.column_map.output=a", "checkpointer.checkpoint_dir=/m", "model.apply_lora_to_mlp=true", "lora.rank=4" },
    { "model.apply_lora_to_output=true", "optimizer._component_=torch.optim.AdamW", "dataset.column_map.input=q",
      "training.dataset_path=/d", "training.mock_data=false", "grad_accumlate_pre_steps=4",
      "loss._component_=x.RSOLoss", "validation.dataset_path=/v" },
    { "training.dataset_path=/d", "training.mock_data=true" },
};
static const char *const values[] = {
    "0",
    "1",
    "2",
    "3",
    "4",
    "7",
    "8",
    "12",
    "-1",
    "100",
    "101",
    "128",
    "1000",
    "16777217",
    "x",
    "true",
    "false",
    "False",
    "1,0",
    "1,0,1,0",
    "1,0,0,1,0,0",
    "0,1",
    "1,1",
    "1,0,1,1",
    "1,2",
    "1,",
    "1,x",
    "10,01",
    "128,0",
    "-1,0",
    "128,1",
    "128,",
    "all",
    "none",
    "no_shard",
    "optim",
    "rope",
    "yarn",
    "([0]*3+[1]*58)",
    "([0]*3+[1]*0)",
    "([0]*3+[1]*58)x",
    "([0]*3+[2]*58)",
    "linear_qkv",
    "linear_qkv,linear_fc2",
    "linear_proj,linear_fc1",
    "linear_q",
    "pretrain",
    "sft",
    "NullTokenizer",
    "/d/text",
    "0.5 /d/text",
    " /d/text",
    "0.5 /d/a 0.5 /d/b",
    "0.5",
    "/m",
    "json",
    "parquet",
    "lora",
    "lora,primus_turbo,x",
    "primus_turbo",
    "meta-llama/Llama-2-7b-hf",
    "Qwen/Qwen2.5-3B",
    "Qwen/Qwen2.5-7B",
    "deepseek-ai/DeepSeek-V2-Lite",
    "q_proj,v_proj",
    "torchtune.models.llama3_1.lora_llama3_1_70b",
    "torchtune.models.qwen2_5.qwen2_5_7b_instruct",
    "llama2_7b_base",
    "llama2_7bx",
    "qlora_lora_llama2_7b",
    "mistral_7b_rm",
};

static void give_surroundings(tm_config *config, const tm_framework *framework, const char *const *pairs, size_t most)
{
    config->framework = framework;
    for (size_t i = 0; i < most && pairs[i]; i++) {
        char        name[128];
        const char *equals = strchr(pairs[i], '=');
        snprintf(name, sizeof name, "%.*s", (int)(equals - pairs[i]), pairs[i]);
        const tm_foreign_key *row = tm_foreign_row(framework, name);
        if (row)
            tm_foreign_give(config, LAYER_FILE, framework, row, name,
                            &(tm_given){ .text = equals + 1, .origin = "file x" });
    }
}

/* Values of a key that lead to the same, one after the other. */
static void conversions_are_as_recorded(void **state)
{
    tm_text out = { 0 };
    (void)state;
    for (size_t s = 0; s < sizeof surroundings / sizeof surroundings[0]; s++)
        for (size_t f = 0; tm_framework_at(f); f++) {
            const tm_framework *framework = tm_framework_at(f);
            void               *state_of;
            assert_int_equal(test_foreign_set_up(&state_of), 0);
            test_foreign *fresh = state_of;
            tm_config    *config = fresh->config;
            give_surroundings(config, framework, surroundings[s], 8);
            for (size_t i = 0; i < framework->n; i++) {
                const tm_foreign_key *row = &framework->keys[i];
                if (!row->convert) continue;
                tm_text_printf(&out, "%zu %s %s:", s, framework->name, row->name);
                for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
                    const char *converted = row->convert(config, values[v]);
                    if (converted && strcmp(converted, values[v]) == 0)
                        tm_text_add(&out, " =");
                    else
                        tm_text_printf(&out, " %s", converted ? converted : "-");
                }
                tm_text_add(&out, "\n");
            }
            assert_int_equal(test_foreign_tear_down(&state_of), 0);
        }
    static const char *const models[] = { "mamba2-1b", "Mixtral_8x7B", "llama4-scout", "t5",         "",
                                          "gpt",       "bert_large",   "llama",        "qwen3-next", "jamba",
                                          "rwkv",      "zamba",        "gemma3_4B" };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        const char *family = tm_foreign_family(models[i]);
        tm_text_printf(&out, "'%s' is of %s\n", models[i], family ? family : "-");
    }
    whole_is("tests/config/whole-values.txt", &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(conversions_are_as_recorded) };

TM_TESTS(tests, NULL, NULL)
