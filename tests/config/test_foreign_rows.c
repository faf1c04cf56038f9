/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of other programs' keys: every row is sound; layouts of ranks become ours. */
#include "config/foreign.h"
#include "support/foreign.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

/* A key of ours that a row names must be one, and a value that it gives must fit. */
static void check_target(test_foreign *f, const tm_foreign_key *row, const char *what, size_t n)
{
    while (n > 0) {
        size_t length = 0, name;
        while (length < n && what[length] != ';') length++;
        char word[200];
        snprintf(word, sizeof word, "%.*s", (int)length, what);
        name = strcspn(word, "=");
        bool gives = word[name] == '=' && word[name + 1] != '*' && strcmp(word + name + 1, "null") != 0;
        word[name] = '\0';
        const tm_entry *entry = tm_entry_find(f->config, word);
        if (*word && !entry && strcmp(word, "model") != 0) fail_msg("%s: '%s' is no key of ours", row->name, word);
        if (gives) {
            const char *text;
            tm_given    given = { .text = word + name + 1, .origin = "row" };
            if (tm_value_coerce(f->config->arena, &entry->key, &given, &text, &f->err) != TM_OK)
                fail_msg("%s: %s", row->name, f->err.text);
        }
        what += length + (length < n);
        n -= length + (length < n);
    }
}

TEST(every_row_is_sound)
{
    test_foreign *f = *test_state;
    for (size_t k = 0; tm_framework_at(k); k++) {
        const tm_framework *framework = tm_framework_at(k);
        for (size_t i = 0; i < framework->n; i++) {
            const tm_foreign_key *row = &framework->keys[i];
            if (tm_foreign_row(framework, row->name) != row)
                fail_msg("%s: %s has two rows", framework->name, row->name);
            if (row->with) {
                char name[160];
                snprintf(name, sizeof name, "%s", row->with + (*row->with == '!'));
                name[strcspn(name, "=")] = '\0';
                if (!tm_foreign_row(framework, name))
                    fail_msg("%s counts with '%s', which has no row", row->name, name);
            }
            if (row->kind != TM_FOREIGN_MAPPED) {
                if (!row->words || !*row->words) fail_msg("%s: no reason", row->name);
                if (row->kind >= TM_FOREIGN_EQUAL) assert_non_null(row->values);
                continue;
            }
            if (!strchr(row->values, ':')) check_target(f, row, row->values, strlen(row->values));
            for (const char *p = row->values; strchr(row->values, ':') && *p;) {
                size_t n = strcspn(p, "|"), colon = strcspn(p, ":");
                if (colon >= n) fail_msg("%s: a case without ':'", row->name);
                check_target(f, row, p + colon + 1, n - colon - 1);
                p += n + (p[n] == '|');
            }
            if (strchr(row->values, ':') && !strchr(row->values, '*') && !row->words && !strstr(row->values, "true:"))
                fail_msg("%s: other values are refused without words", row->name);
        }
    }
}

#define MEGATRON                                                                                                       \
    "work_group: a\nuser_name: b\nexp_name: c\nworkspace: ./o\nmodules:\n  pre_trainer:\n    framework: megatron\n"    \
    "    config: pre_trainer.yaml\n    model: llama2_7B.yaml\n    overrides:\n      mock_data: true\n"

/* Copies of the model, or one that all ranks share: what each of Megatron's keys means, and who of them decides. */
TEST(data_parallel_layouts_of_megatron)
{
    static const struct {
        const char *lines, *shards, *copies, *strategy;
    } cases[] = {
        { "", "-1", "1", "optim" },
        { "      use_distributed_optimizer: false\n", "1", "-1", "optim" },
        { "      use_distributed_optimizer: true\n", "-1", "1", "optim" },
        { "      use_torch_fsdp2: true\n", "-1", "1", "optim_grads_params" },
        { "      use_torch_fsdp2: true\n      use_distributed_optimizer: false\n", "-1", "1", "optim_grads_params" },
        { "      use_torch_fsdp2: true\n      data_parallel_replicate_degree: 2\n", "-1", "2", "optim_grads_params" },
        { "      data_parallel_replicate_degree: 2\n", "-1", "1", "optim" },
        { "      use_megatron_fsdp: true\n", "1", "-1", "optim" },
        { "      use_megatron_fsdp: true\n      data_parallel_sharding_strategy: optim_grads\n", "-1", "1",
          "optim_grads" },
        { "      use_custom_fsdp: true\n      data_parallel_sharding_strategy: optim_grads_params\n"
          "      use_distributed_optimizer: true\n",
          "-1", "1", "optim_grads_params" },
        { "      data_parallel_sharding_strategy: optim_grads\n", "-1", "1", "optim" },
        { "      use_distributed_optimizer: false\n      expert_model_parallel_size: 4\n", "-1", "1",
          "optim" }, /* ranks of one copy divide experts */
        { "      expert_model_parallel_size: 4\n      use_megatron_fsdp: true\n", "-1", "1", "optim" },
        { "      use_distributed_optimizer: false\n      expert_model_parallel_size: 1\n", "1", "-1", "optim" },
        { "      num_distributed_optimizer_instances: 1\n      use_distributed_optimizer: true\n", "-1", "1", "optim" },
    };
    static const char *const refused[][2] = {
        { "      use_torch_fsdp2: true\n      use_distributed_optimizer: true\n",
          "not supported: use_torch_fsdp2 with use_distributed_optimizer; leave one out" },
        { "      use_megatron_fsdp: true\n      data_parallel_sharding_strategy: half\n",
          "must be one of optim, optim_grads, optim_grads_params; found 'half'" },
        { "      use_distributed_optimizer: true\n      num_distributed_optimizer_instances: 2\n",
          "parts of the optimizer in several copies; set it to 1" },
    };
    test_foreign *f = *test_state;
    char          text[2048];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, MEGATRON "%s", cases[i].lines);
        if (test_foreign_load(f, test_foreign_put(f, "x.yaml", text), true, 0, NULL) != TM_OK)
            fail_msg("%s", f->err.text);
        test_foreign_has(f, "parallelism.data_parallel_shard_degree", cases[i].shards);
        test_foreign_has(f, "parallelism.data_parallel_replicate_degree", cases[i].copies);
        test_foreign_has(f, "parallelism.data_parallel_shard_strategy", cases[i].strategy);
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        snprintf(text, sizeof text, MEGATRON "%s", refused[i][0]);
        test_foreign_refuse(f, test_foreign_put(f, "x.yaml", text), refused[i][1]);
    }
}

/* Tokens are divided between the matrices unless the file says otherwise. */
TEST(sequence_parallel_of_megatron)
{
    static const char *const cases[][2] = { { "", "true" },
                                            { "      sequence_parallel: 1\n", "true" },
                                            { "      sequence_parallel: false\n", "false" } };
    test_foreign            *f = *test_state;
    char                     text[1024];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, MEGATRON "      tensor_model_parallel_size: 2\n%s", cases[i][0]);
        if (test_foreign_load(f, test_foreign_put(f, "x.yaml", text), true, 0, NULL) != TM_OK)
            fail_msg("%s", f->err.text);
        test_foreign_has(f, "parallelism.tensor_parallel_degree", "2");
        test_foreign_has(f, "parallelism.enable_sequence_parallel", cases[i][1]);
    }
}

/* Several stages of a rank take turns: by the blocks of a stage, or by the number of stages. */
TEST(pipelines_of_megatron)
{
    static const struct {
        const char *lines, *blocks, *schedule, *first, *last;
    } cases[] = {
        { "", NULL, "1F1B", "0", "0" },
        { "      num_layers_per_virtual_pipeline_stage: 4\n", "4", "Interleaved1F1B", "0", "0" },
        { "      num_virtual_stages_per_pipeline_rank: 2\n", "8", "Interleaved1F1B", "0", "0" },
        { "      num_virtual_stages_per_pipeline_rank: 1\n", NULL, "1F1B", "0", "0" },
        { "      account_for_embedding_in_pipeline_split: true\n      account_for_loss_in_pipeline_split: true\n", NULL,
          "1F1B", "1", "1" },
    };
    test_foreign *f = *test_state;
    char          text[1024];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text,
                 MEGATRON "      micro_batch_size: 1\n      global_batch_size: 8\n"
                          "      pipeline_model_parallel_size: 2\n%s",
                 cases[i].lines);
        if (test_foreign_load(f, test_foreign_put(f, "x.yaml", text), true, 0, NULL) != TM_OK)
            fail_msg("%s", f->err.text);
        test_foreign_has(f, "parallelism.pipeline_parallel_layers_per_stage", cases[i].blocks);
        test_foreign_has(f, "parallelism.pipeline_parallel_schedule", cases[i].schedule);
        test_foreign_has(f, "parallelism.pipeline_parallel_first_stage_less_layers", cases[i].first);
        test_foreign_has(f, "parallelism.pipeline_parallel_last_stage_less_layers", cases[i].last);
    }
    static const char uneven[] = MEGATRON "      pipeline_model_parallel_size: 2\n"
                                          "      num_virtual_stages_per_pipeline_rank: 3\n";
    test_foreign_refuse(f, test_foreign_put(f, "x.yaml", uneven), "stages that differ in the number of their blocks");
}

/* Megatron-LM multiplies positions by 1 / factor, which is linear scaling; beside Llama 3's, both would count. */
TEST(positions_of_megatron_are_interpolated)
{
#define FACTOR "      rotary_seq_len_interpolation_factor: "
    static const struct {
        const char *lines, *scaling, *factor;
    } cases[] = {
        { "", "none", NULL },
        { FACTOR "null\n", "none", NULL },
        { FACTOR "1\n", "none", NULL },
        { FACTOR "1.0\n      use_rope_scaling: true\n", "llama3", "8" },
        { FACTOR "4\n", "linear", "4" },
        { FACTOR "2.5\n      use_rope_scaling: false\n", "linear", "2.5" },
        { FACTOR "1\n      multi_latent_attention: true\n      kv_lora_rank: 16\n", "yarn", NULL },
    };
    static const char *const refused[][2] = {
        { FACTOR "2\n      use_rope_scaling: true\n",
          "interpolated positions with use_rope_scaling or latent attention" },
        { FACTOR "2\n      multi_latent_attention: true\n",
          "interpolated positions with use_rope_scaling or latent attention" },
        { FACTOR "0.5\n", "model.rope_scaling_factor" },
    };
#undef FACTOR
    test_foreign *f = *test_state;
    char          text[1024];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, MEGATRON "%s", cases[i].lines);
        if (test_foreign_load(f, test_foreign_put(f, "x.yaml", text), true, 0, NULL) != TM_OK)
            fail_msg("%s", f->err.text);
        test_foreign_has(f, "model.rope_scaling", cases[i].scaling);
        if (cases[i].factor) test_foreign_has(f, "model.rope_scaling_factor", cases[i].factor);
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        snprintf(text, sizeof text, MEGATRON "%s", refused[i][0]);
        test_foreign_refuse(f, test_foreign_put(f, "x.yaml", text), refused[i][1]);
    }
}

TEST(weights_are_let_go_as_in_torchtune)
{
    test_foreign *f = *test_state;
    for (int on = 0; on < 2; on++) {
        char text[512];
        snprintf(text, sizeof text,
                 "model:\n  _component_: torchtune.models.llama2.llama2_7b\noptimizer:\n"
                 "  _component_: torch.optim.AdamW\n  lr: 2e-5\nmax_steps_per_epoch: 2\n"
                 "fsdp_reshard_after_forward: %s\n",
                 on ? "True" : "False");
        test_foreign_take(f, test_foreign_put(f, "r.yaml", text));
        test_foreign_has(f, "parallelism.fsdp_reshard_after_forward", on ? "always" : "never");
    }
}

TEST_FIXTURE(test_foreign_set_up, test_foreign_tear_down)
