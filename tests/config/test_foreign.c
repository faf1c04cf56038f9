/* SPDX-License-Identifier: Apache-2.0 */
/* Files of other programs: found presets, translated keys, refusals. Real ones: test_foreign_files.c. */
#include "support/folder.h"
#include "support/foreign.h"
#include "support/full_config.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

#define TOP "work_group: ${TEAM:amd}\nuser_name: b\nexp_name: c\nworkspace: ./o\nmodules:\n  pre_trainer:\n"
#define MEGATRON TOP "    framework: megatron\n    config: pre_trainer.yaml\n    model: "
#define TITAN TOP "    framework: torchtitan\n    config: pre_trainer.yaml\n    model: "
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
    static const char *const wanted[][2] = {
        { "model.dim", "64" },
        { "model.ffn_dim", "96" },
        { "model.n_layers", "2" },
        { "model.n_heads", "4" },
        { "model.n_kv_heads", NULL },
        { "model.head_dim", NULL },
        { "model.vocab_size", "256" },
        { "model.norm_eps", "1e-06" },
        { "model.rope_theta", "500000" },
        { "model.tied", "false" },
        { "model.init", "gpt2" },
        { "model.init_std", "0.008" },
        { "model.name", "small" },
        { "training.steps", "50" },
        { "training.seq_len", "64" },
        { "debug.seed", "99" },
        { "training.dtype", "bfloat16" },
        { "training.grad_accumulation", "4" },
        { "optimizer.lr", "2e-05" },
        { "optimizer.beta2", "0.999" },
        { "optimizer.decay", "matrices" },
        { "data.source", "mock" },
        { "validation.enable", "false" },
        { "lr_scheduler.total_steps", "320000" },
        { "work_group", "amd" },
        { "checkpoint.enable", "false" },
        { "lr_scheduler.decay_type", "cosine" },
        { "optimizer.weight_decay", "0" },
        { "model.rope_scaling", "none" },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) test_foreign_has(f, wanted[i][0], wanted[i][1]);
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

/* A file alone has the presets of ours of the same name, and the same values of the trainer. */
TEST(a_single_file_works)
{
    test_foreign *f = *test_state;
    test_foreign_take(f, test_foreign_put(f, "one.yaml", MEGATRON "llama3.1_8B.yaml\n" MOCK));
    test_foreign_has(f, "model.dim", "4096");
    test_foreign_has(f, "model.rope_scaling", "none");
    test_foreign_has(f, "training.steps", "1000");
    test_foreign_has(f, "training.local_batch_size", "2");
    assert_string_equal(tm_config_origin(f->config, "training.steps"), "default of megatron (train_iters)");
    test_foreign_take(f, test_foreign_put(f, "two.yaml", TITAN "llama3.1_8B.yaml\n"));
    test_foreign_has(f, "model.rope_scaling", "llama3");
    test_foreign_has(f, "training.dtype", "bfloat16");
    test_foreign_has(f, "data.source", "mock");
    assert_int_equal(
        test_foreign_load(f, test_foreign_put(f, "three.yaml", TITAN "llama3.1_8B-fp8.yaml\n"), true, 0, NULL), TM_OK);
    test_foreign_has(f, "quantize.recipe", "fp8_tensorwise");
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

TEST(what_changes_the_computation_is_refused_by_name)
{
    static const struct {
        const char *line, *says;
        bool        plans; /* a plan may leave it out */
    } cases[] = {
        { "num_experts: 8\n      moe_router_topk: 2\n      moe_use_rings: true",
          "'moe_use_rings' = 'true' (x.yaml:14): not supported: this form of experts", false },
        { "qk_l2_norm: true", "'qk_l2_norm' = 'true' (x.yaml:12): not supported: norms of query", false },
        { "attention_output_gate: true", "'attention_output_gate' = 'true' (x.yaml:12): not supported: gated attention",
          false },
        { "mamba_state_dim: 16", "state-space layers (Mamba)", false },
        { "spec: [a, b]", "layers by a Python specification", false },
        { "hidden_dropout: 0.1", "not supported: dropout; set it to 0", true },
        { "exp_avg_dtype: fp8", "not supported: moments in another format; set it to fp32", true },
        { "optimizer: dist_lamb", "not supported: another optimizer; wanted one of adam, sgd", false },
        { "lr_decay_style: steps", "not supported: another shape of the decay; wanted one of cosine, linear, constant",
          false },
        { "recompute_layer_ids: [1, 2]", "recomputation of chosen layers", true },
        { "fp8: hybrid\n      fp8_wgrad: false", "float8 without its gradients", true },
        { "fp8: hybrid\n      fp8_interval: 2", "float8 training", true },
        { "lora: {enabled: true, dim: 4}", "LoRA fine-tuning", true },
        { "train_iters: many", "'training.steps' (x.yaml:12 (train_iters)) must be an integer, found 'many'", false },
        { "train_itersz: 5", "unknown key 'train_itersz' (x.yaml:12); did you mean 'train_iters'?", false },
        { "recompute_activations: true\n      recompute_granularity: full", "give one of the two", false },
        { "lora: 5", "'lora' (x.yaml:12) is a section of keys", false },
        { "yaml_cfg: other.yaml", "arguments in a file of their own", true },
        { "perform_initialization: false", "weights without initial values; set it to true", true },
        { "data_parallel_random_init: true", "replicas with different initial weights", true },
        { "trainer_class: WanPretrainTrainer", "a trainer of its own", true },
        { "num_experts: 8\n      moe_router_topk: 2\n      moe_layer_recompute: true", "recomputation of experts alone",
          true },
        { "use_turbo_token_dispatcher_fp8_alltoall: true", "tokens sent in float8", true },
        { "use_turbo_mega_moe: true\n      turbo_mega_moe_precision: mxfp8", "experts in another format", true },
        { "recompute_granularity: selective\n      recompute_modules: [mlp]", "recomputation of chosen modules", true },
        { "sample_rate: 0.5", "a part of the samples", true },
        { "optimizer: muon\n      tensor_model_parallel_size: 2\n      muon_tp_mode: blockwise",
          "Muon on the parts of matrices; wanted one of", false },
        { "save: x\n      non_persistent_save_interval: 5", "checkpoints of a second kind", true },
        { "ckpt_convert_format: torch_dist", "checkpoints that are converted instead of training", true },
        { "num_layers: 2\n      num_layers: 3", "x.yaml:13: duplicate key 'num_layers', first given in line 12",
          false },
    };
    test_foreign *f = *test_state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024], says[256], prefix[600];
        snprintf(text, sizeof text, "%sllama2_7B.yaml\n" MOCK "      %s\n", MEGATRON, cases[i].line);
        const char *path = test_foreign_put(f, "x.yaml", text);
        tm_status   st = test_foreign_load(f, path, false, 0, NULL);
        snprintf(says, sizeof says, "%s", cases[i].says);
        snprintf(prefix, sizeof prefix, "%s/", f->folder);
        for (char *p; (p = strstr(f->err.text, prefix));)
            memmove(p, p + strlen(prefix), strlen(p + strlen(prefix)) + 1);
        if (tm_status_exit_code(st) != 4 || !strstr(f->err.text, says))
            fail_msg("%s: status %d: %s", cases[i].line, (int)st, f->err.text);
        st = test_foreign_load(f, path, true, 0, NULL);
        if ((st == TM_OK) != cases[i].plans) fail_msg("%s: a plan of it: %s", cases[i].line, f->err.text);
        if (cases[i].plans && !*tm_config_unbuilt(f->config)) fail_msg("%s: a plan does not say so", cases[i].line);
    }
}

/* What has no effect beside other keys, or says what is done anyway. */
TEST(what_changes_nothing_is_accepted)
{
    static const char *const lines[] = {
        "perform_initialization: true\n      sample_rate: 1.0\n      yaml_cfg: null",
        "trainer_class: MegatronPretrainTrainer",
        "mamba_state_dim: 128\n      mamba_head_dim: 64\n      mamba_num_groups: 8\n      mamba_num_heads: null\n"
        "      s3_cache_path: null\n      parallel_output: false",
        "moe_layer_recompute: true\n      turbo_mega_moe_precision: mxfp8",
        "recompute_granularity: full\n      recompute_method: uniform\n      recompute_num_layers: 1\n"
        "      recompute_modules: [mlp]",
        "recompute_granularity: selective\n      recompute_modules: [core_attn]",
        "optimizer: muon\n      muon_tp_mode: blockwise",
        "split: \"99,1,0\"\n      async_save: true\n      non_persistent_save_interval: 5",
        "save: x\n      async_save: true",
        "sft_packing_segment_align: 16",
        "save: x\n      async_save: true",
    };
    test_foreign *f = *test_state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, "%sllama2_7B.yaml\n" MOCK "      %s\n", MEGATRON, lines[i]);
        if (test_foreign_load(f, test_foreign_put(f, "x.yaml", text), false, 0, NULL) != TM_OK)
            fail_msg("%s: %s", lines[i], f->err.text);
    }
}

/* Grouped products of Primus-Turbo in TorchTitan are quantized in a recipe that is not known: such a file is refused,
 * one that leaves experts out is not. Megatron-LM's legacy grouped products stay as they are. */
TEST(quantized_experts_are_refused)
{
#define EXPERTS MEGATRON "mixtral_8x7B_v0.1.yaml\n" MOCK "      fp8: hybrid\n"
#define TURBO                                                                                                          \
    TITAN "deepseek_v3_16b.yaml\n    overrides:\n      training: {mock_data: true}\n      primus_turbo: "              \
          "{enable_primus_turbo: true, "
    static const struct {
        const char *text, *says; /* NULL: accepted */
        const char *recipe;      /* of experts, if accepted */
    } cases[] = {
        { EXPERTS, NULL, "fp8_delayed" },
        { EXPERTS "      moe_use_legacy_grouped_gemm: false\n", NULL, "fp8_delayed" },
        { EXPERTS "      moe_use_legacy_grouped_gemm: true\n", NULL, "none" },
        { EXPERTS "      moe_use_legacy_grouped_gemm: true\n      moe_grouped_gemm: false\n", NULL, "fp8_delayed" },
        { EXPERTS "      moe_use_legacy_grouped_gemm: true\n      use_turbo_grouped_gemm: true\n", NULL,
          "fp8_delayed" },
        { EXPERTS "      moe_use_legacy_grouped_gemm: true\n      use_turbo_grouped_mlp: true\n", NULL, "fp8_delayed" },
        { MEGATRON "mixtral_8x7B_v0.1.yaml\n" MOCK "      fp8: null\n", NULL, "none" },
        { MEGATRON "llama3.1_8B.yaml\n" MOCK "      fp8: hybrid\n      moe_use_legacy_grouped_gemm: false\n", NULL,
          "none" },
        { TURBO "use_turbo_grouped_mm: true}\n", "'primus_turbo.use_moe_fp8' = 'true' (default of torchtitan)", NULL },
        { TURBO "use_turbo_grouped_mm: true, use_moe_fp8: true}\n", "'primus_turbo.use_moe_fp8' = 'true' (x.yaml:12)",
          NULL },
        { TURBO "use_turbo_grouped_gemm: true, use_moe_fp8: true}\n", "products of experts", NULL },
        { TURBO "use_turbo_grouped_mm: true, use_moe_fp8: false}\n", NULL, "none" },
        { TURBO "use_moe_fp8: true}\n", NULL, "none" },
    };
    test_foreign *f = *test_state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char        says[256], prefix[600];
        const char *path = test_foreign_put(f, "x.yaml", cases[i].text);
        tm_status   st = test_foreign_load(f, path, false, 0, NULL);
        snprintf(says, sizeof says, "%s", cases[i].says ? cases[i].says : "");
        snprintf(prefix, sizeof prefix, "%s/", f->folder);
        for (char *p; (p = strstr(f->err.text, prefix));)
            memmove(p, p + strlen(prefix), strlen(p + strlen(prefix)) + 1);
        if ((st == TM_OK) != !cases[i].says || !strstr(f->err.text, says)) fail_msg("%zu: %s", i, f->err.text);
        if (!cases[i].says) test_foreign_has(f, "quantize.experts_recipe", cases[i].recipe);
        if (!cases[i].says) continue;
        if (test_foreign_load(f, path, true, 0, NULL) != TM_OK) fail_msg("%zu: a plan: %s", i, f->err.text);
        assert_non_null(strstr(tm_config_unbuilt(f->config), "quantized products of experts"));
    }
}

/* What files of the repository hold and no other test does. */
TEST(real_files_have_such_lines)
{
    test_foreign *f = *test_state;
    /* Primus of v25.10: a converter of experts in a model without any; linears of Primus-Turbo, which a plan leaves out
     */
    test_foreign_take(f, test_foreign_put(f, "x.yaml",
                                          TITAN "llama3.1_8B.yaml\n    overrides:\n      training: {mock_data: true}\n"
                                                "      model: {converters: [quantize.linear.float8, "
                                                "quantize.grouped_mm.float8]}\n"));
    test_foreign_has(f, "quantize.recipe", "fp8_tensorwise");
    test_foreign_has(f, "quantize.experts_recipe", "none");
    const char *turbo = test_foreign_put(f, "x.yaml",
                                         TITAN "deepseek_v3_16b.yaml\n    overrides:\n      training: {mock_data: "
                                               "true}\n      model: {converters: [turbo_fp8_linear]}\n");
    assert_int_equal(test_foreign_load(f, turbo, true, 0, NULL), TM_OK);
    assert_non_null(strstr(tm_config_unbuilt(f->config), "float8 of Primus-Turbo's linears"));
    test_foreign_refuse(f, turbo, "'turbo_fp8_linear', float8 of Primus-Turbo, is not supported; give [] for bfloat16");
    /* a key given again with the same word; no block recomputed; a variable whose default is null; a check */
    test_foreign_take(
        f, test_foreign_put(f, "x.yaml",
                            MEGATRON
                            "llama3.1_8B.yaml\n" MOCK "      manual_gc: true\n      recompute_granularity: full\n"
                            "      recompute_method: block\n      recompute_num_layers: 0\n      manual_gc: true\n"
                            "      lr_decay_iters: ${NO_SUCH_VARIABLE:null}\n      check_for_nan_in_loss: false\n"));
    test_foreign_has(f, "recompute_num_layers", "0");
    test_foreign_refuse(
        f,
        test_foreign_put(f, "x.yaml",
                         MEGATRON
                         "llama3.1_8B.yaml\n    overrides:\n      train_data_path: ${NO_SUCH_VARIABLE:null}\n"),
        "give data.path (training.dataset_path) a file or directory of text, or set training.mock_data: true");
    /* a model of another number is another model */
    test_foreign_refuse(f, test_foreign_put(f, "x.yaml", MEGATRON "deepseek_v3_17B.yaml\n" MOCK),
                        "unknown model 'deepseek_v3_17B'; `trainmark models`");
    test_foreign_refuse(f, test_foreign_put(f, "x.yaml", MEGATRON "lama3.1_8B.yaml\n" MOCK),
                        "unknown model 'lama3.1_8B'; did you mean 'llama3.1_8B'?");
    test_foreign_refuse(f, test_foreign_put(f, "p.yaml", MEGATRON "deepseek_proxy.yaml\n" MOCK),
                        "unknown model 'deepseek_proxy'; `trainmark models`");
}

TEST(families_are_refused_by_their_name)
{
    static const char *const models[][2] = { { "mamba_370M.yaml", "Mamba" },
                                             { "kimi_k2.yaml", "Kimi" },
                                             { "zebra_llama_1B.yaml", "Zebra-Llama" },
                                             { "llama4_17B16E.yaml", "Llama 4" } };
    test_foreign            *f = *test_state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char text[512], says[128];
        snprintf(text, sizeof text, "%s%s\n" MOCK, MEGATRON, models[i][0]);
        snprintf(says, sizeof says, "is of the family %s", models[i][1]);
        test_foreign_refuse(f, test_foreign_put(f, "x.yaml", text), says);
    }
    test_foreign_put(f, "primus/configs/models/megatron/mamba_1B.yaml",
                     "model_type: mamba\nnum_layers: 2\nmamba_state_dim: 16\n");
    test_foreign_refuse(
        f, test_foreign_put(f, "x.yaml", MEGATRON "mamba_1B.yaml\n" MOCK),
        "the model 'mamba_1B' is of the family Mamba (state space), which is not supported (mamba_state_dim)");
}

TEST(everything_wrong_is_told_at_once)
{
    test_foreign *f = *test_state;
    test_foreign_refuse(f,
                        test_foreign_put(f, "x.yaml",
                                         MEGATRON
                                         "llama2_7B.yaml\n" MOCK
                                         "      train_itersz: 5\n      hidden_dropout: 0.5\n      seq_length: 0\n"
                                         "    overides: {a: 1}\n"),
                        "4 problems\n");
    assert_non_null(strstr(f->err.text, "train_itersz"));
    assert_non_null(strstr(f->err.text, "dropout"));
    assert_non_null(strstr(f->err.text, "'training.seq_len'"));
    assert_non_null(strstr(f->err.text, "overides"));
}

/* torchtitan's converters of experts name them; float8 of Megatron is of all linears, so of experts. */
TEST(experts_are_quantized_as_elsewhere)
{
    static const char *const kinds[][2] = { { "mx", "mxfp8" }, { "float8", "fp8_rowwise" } };
    test_foreign            *f = *test_state;
    const char              *mock[] = { "--training.mock_data", "true" };
    for (int i = 0; i < 2; i++) {
        char text[600];
        snprintf(text, sizeof text,
                 "[model]\nname = \"deepseek_v3\"\nflavor = \"16B\"\nconverters = [\"quantize.grouped_mm.%s\"]\n"
                 "[training]\nsteps = 2\n[quantize.grouped_mm.%s]\nfqns = [\"experts\"]\n",
                 kinds[i][0], kinds[i][0]);
        if (test_foreign_load(f, test_foreign_put(f, "j.toml", text), true, 2, mock) != TM_OK)
            fail_msg("%s", f->err.text);
        test_foreign_has(f, "quantize.experts_recipe", kinds[i][1]);
        test_foreign_has(f, "quantize.recipe", "none");
    }
    static const struct {
        const char *model, *line, *recipe, *experts;
    } megatron[] = {
        { "deepseek_v2_lite.yaml", "fp8: hybrid\n      fp8_recipe: blockwise", "fp8_blockwise", "fp8_blockwise" },
        { "deepseek_v2_lite.yaml", "fp4: e2m1\n      fp4_recipe: mxfp4", "mxfp4_turbo", "mxfp4_turbo" },
        { "llama2_7B.yaml", "fp8: hybrid", "fp8_delayed", "none" },
    };
    for (size_t i = 0; i < sizeof megatron / sizeof *megatron; i++) {
        char text[1024];
        snprintf(text, sizeof text, MEGATRON "%s\n" MOCK "      %s\n", megatron[i].model, megatron[i].line);
        if (test_foreign_load(f, test_foreign_put(f, "x.yaml", text), true, 0, NULL) != TM_OK)
            fail_msg("%s", f->err.text);
        test_foreign_has(f, "quantize.recipe", megatron[i].recipe);
        test_foreign_has(f, "quantize.experts_recipe", megatron[i].experts);
    }
}

TEST_FIXTURE(test_foreign_set_up, test_foreign_tear_down)
