/* SPDX-License-Identifier: Apache-2.0 */
/* Files of other programs: found presets, translated keys, refusals. Real ones: test_foreign_files.c, single keys:
 * foreign.txt. */
#include "support/folder.h"
#include "support/foreign.h"
#include "support/full_config.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

#define TOP "work_group: ${TEAM:amd}\nuser_name: b\nexp_name: c\nworkspace: ./o\nmodules:\n  pre_trainer:\n"
#define MEGATRON TOP "    framework: megatron\n    config: pre_trainer.yaml\n    model: "
#define MOCK "    overrides:\n      mock_data: true\n"

/* A tree of presets as its own program has it. */
static const char *plant_tree(test_foreign *f)
{
    test_foreign_put(f, "primus/configs/modules/module_base.yaml",
                     "trainable: false\nsink_level: null\nstderr_sink_level: INFO\n");
    test_foreign_put(
        f, "primus/configs/modules/megatron/base.yaml",
        "extends:\n  - ../module_base.yaml\nmicro_batch_size: 2\nseed: 99\nclip_grad: 1.0\nload: null\nfinetune: true\n"
        "sequence_parallel: true\nlr_wsd_decay_style: exponential\nadam_eps: 1.0e-08\n");
    test_foreign_put(
        f, "primus/configs/modules/megatron/pre_trainer.yaml",
        "extends:\n  - base.yaml\ntrain_iters: 1000\nlr: 2.0e-05\nadam_beta2: 0.999\neval_iters: 0\nglobal_batch_size: "
        "16\n");
    test_foreign_put(
        f, "primus/configs/models/megatron/language.yaml",
        "hidden_dropout: 0.1\nnormalization: LayerNorm\nposition_embedding_type: learned_absolute\nswiglu: true\n"
        "untie_embeddings_and_output_weights: true\ngroup_query_attention: false\nnum_query_groups: 2\nnum_experts: "
        "null\n"
        "moe_router_topk: 2\nkv_channels: null\nvocab_size: null\nmake_vocab_size_divisible_by: 128\n");
    test_foreign_put(
        f, "primus/configs/models/megatron/small.yaml",
        "bases:\n  - language.yaml\nhidden_dropout: &zero 0.0\nattention_dropout: *zero\nnormalization: RMSNorm\n"
        "position_embedding_type: rope\nnum_layers: 2\nhidden_size: 64\nffn_hidden_size: 96\nnum_attention_heads: 4\n"
        "vocab_size: 130\nnorm_epsilon: 1.0e-6\nrotary_base: 500000\nmax_position_embeddings: 128\n");
    return test_foreign_put(
        f, "examples/megatron/configs/X/small.yaml",
        MEGATRON "${PRIMUS_MODEL:small}.yaml\n    overrides:\n      train_iters: 50\n      seq_length: ${LEN:64}\n"
                 "      global_batch_size: 8\n      mock_data: true\n      train_data_path: null\n      load: null\n"
                 "      lr_decay_iters: 320000\n      lr_warmup_iters: 2\n      init_method_std: 0.008\n"
                 "      save: null\n      auto_continue_train: ${CONTI:0}\n      sequence_parallel: 1\n"
                 "      overlap_grad_reduce: true\n      wandb_project: x\n      eod_mask_loss: true\n");
}

TEST(presets_are_found_above_the_file)
{
    test_foreign *f = *test_state;
    test_foreign_take(f, plant_tree(f));
    char wanted[] = /* "KEY=VALUE; ...", "-": null */
        "model.dim=64; model.ffn_dim=96; model.n_layers=2; model.n_heads=4; model.n_kv_heads=-; "
        "model.head_dim=-; model.vocab_size=256; model.norm_eps=1e-06; model.rope_theta=500000; "
        "model.tied=false; model.init=gpt2; model.init_std=0.008; model.name=small; training.steps=50; "
        "training.seq_len=64; debug.seed=99; training.dtype=bfloat16; training.grad_accumulation=4; "
        "optimizer.lr=2e-05; optimizer.beta2=0.999; optimizer.decay=matrices; data.source=mock; "
        "validation.enable=false; lr_scheduler.total_steps=320000; work_group=amd; checkpoint.enable=false; "
        "lr_scheduler.decay_type=cosine; optimizer.weight_decay=0; model.rope_scaling=none";
    char *rest = wanted;
    for (char *key; (key = strsep(&rest, ";"));) {
        char *value = strchr(key += *key == ' ', '=');
        *value++ = '\0';
        test_foreign_has(f, key, strcmp(value, "-") == 0 ? NULL : value);
    }
    assert_non_null(strstr(tm_config_origin(f->config, "training.steps"), "small.yaml:11 (train_iters)"));
    assert_non_null(strstr(tm_config_accepted(f->config), "affects speed only: overlap_grad_reduce = true"));
    assert_non_null(strstr(tm_config_accepted(f->config), "has no effect: wandb_project = x"));
    assert_null(strstr(tm_config_accepted(f->config), "moe_router_topk")); /* counts with num_experts only */
    assert_non_null(strstr(tm_config_notes(f->config), "affect speed only"));
}

TEST(the_command_line_speaks_their_language)
{
    test_foreign *f = *test_state;
    const char   *words[] = { "--train_iters", "7", "--group_query_attention", "true", "--model.init_std", "0.5" };
    assert_int_equal(test_foreign_load(f, plant_tree(f), false, 4, words), TM_OK);
    test_foreign_has(f, "training.steps", "7");
    assert_string_equal(tm_config_origin(f->config, "training.steps"), "command line (train_iters)");
    test_foreign_has(f, "model.n_kv_heads", "2");
    const char *wrong[] = { "--mamba_state_dim", "8", "--allow-unknown-keys" };
    assert_int_equal(test_foreign_load(f, plant_tree(f), true, 3, wrong), TM_UNSUPPORTED);
    assert_non_null(strstr(f->err.text, "'mamba_state_dim' = '8' (command line): not supported: state-space layers"));
}

TEST(a_path_of_presets_can_be_given)
{
    test_foreign *f = *test_state;
    char          path[1024];
    plant_tree(f);
    char *elsewhere = test_tree_make();
    snprintf(path, sizeof path, "%s", test_file_write(elsewhere, "x.yaml", MEGATRON "small.yaml\n" MOCK));
    test_foreign_refuse(f, path, "unknown model 'small'");
    static const char *const forms[] = { "", "/primus", "/primus/configs" };
    for (size_t i = 0; i < 3; i++) {
        char top[1024];
        snprintf(top, sizeof top, "%s%s", f->folder, forms[i]);
        tm_config *config = test_full_config();
        tm_config_add_path(config, top);
        tm_error err = { 0 };
        if (tm_config_load_file(config, path, &err) != TM_OK || tm_config_finish(config, &err) != TM_OK)
            fail_msg("%s: %s", top, err.text);
        assert_int_equal(tm_config_i64(config, "model.dim"), 64);
        tm_config_destroy(config);
    }
    test_tree_remove(elsewhere);
}

/* Of the presets that an earlier file names nothing is left. */
TEST(a_second_experiment_has_presets_of_its_own)
{
    test_foreign *f = *test_state;
    test_foreign_renew(f);
    (void)test_foreign_put(f, "a.yaml", "extends: gpt-small\nmodel: {n_layers: 3, sliding_window: 7}\n");
    (void)test_foreign_put(f, "b.yaml", "extends: gpt-small\nmodel: {n_layers: 2}\n");
    (void)test_foreign_put(f, "a_trainer.yaml", "training: {max_norm: 9, seq_len: 32}\n");
    (void)test_foreign_put(f, "b_trainer.yaml", "training: {seq_len: 64}\n");
    for (int c = 'a'; c <= 'b'; c++) {
        char text[400];
        snprintf(text, sizeof text,
                 "work_group: a\nuser_name: b\nexp_name: c\nworkspace: ./o\nmodules: {pre_trainer: {model: %c.yaml, "
                 "config: %c_trainer.yaml, overrides: {training: "
                 "{mock_data: true}}}}\n",
                 c, c);
        assert_int_equal(tm_config_load_file(f->config, test_foreign_put(f, "x.yaml", text), &f->err), TM_OK);
    }
    if (tm_config_finish(f->config, &f->err) != TM_OK) fail_msg("%s", f->err.text);
    test_foreign_has(f, "model.n_layers", "2");
    test_foreign_has(f, "training.seq_len", "64");
    test_foreign_has(f, "model.sliding_window", NULL);
    assert_string_equal(tm_config_origin(f->config, "training.max_norm"), "default");
}

TEST(a_program_is_no_job_file)
{
    test_foreign *f = *test_state;
    test_foreign_refuse(f, test_foreign_put(f, "config_registry.py", "def llama3_8b():\n    pass\n"),
                        "is a Python program");
}

TEST_FIXTURE(test_foreign_set_up, test_foreign_tear_down)
