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

TEST(families_are_refused_by_their_name)
{
    test_foreign *f = *test_state;
    test_foreign_put(f, "primus/configs/models/megatron/mamba_1B.yaml",
                     "model_type: mamba\nnum_layers: 2\nmamba_state_dim: 16\n");
    test_foreign_refuse(
        f, test_foreign_put(f, "x.yaml", MEGATRON "mamba_1B.yaml\n" MOCK),
        "the model 'mamba_1B' is of the family Mamba (state space), which is not supported (mamba_state_dim)");
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

/* torchtitan's converters of experts name them. */
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
}

/* --- job files of TorchTitan, model files of pytorch-training-benchmark
 * -------------------------------------------------- */

static const char job[] =
    "# a job\n[job]\ndump_folder = \"./outputs\"\ndescription = 'of \\ a \"kind\"'\n\n[model]\nname = \"llama3\"\n"
    "flavor = \"8B\"\nconverters = [\n  \"primus_turbo\", # kernels\n]\n[optimizer]\nname = \"AdamW\"\n"
    "lr = 3e-4\n[training]\nlocal_batch_size=2\nsteps = 1_000\ndataset = \"c4\"\n"
    "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = '2'\n[compile]\nenable=true\n"
    "components = [\"model\", \"loss\"]\n[quantize.linear.float8]\nfilter_fqns = [\"output\"]\n";

TEST(job_files_of_torchtitan_load)
{
    test_foreign *f = *test_state;
    const char   *mock[] = { "--training.mock_data", "true" };
    test_foreign_refuse(f, test_foreign_put(f, "j.toml", job), "the data set 'c4' is not downloaded: give data.path");
    if (test_foreign_load(f, test_foreign_put(f, "j.toml", job), false, 2, mock) != TM_OK) fail_msg("%s", f->err.text);
    test_foreign_has(f, "training.steps", "1000");
    test_foreign_has(f, "model.dim", "4096");
    test_foreign_has(f, "optimizer.lr", "0.0003");
    test_foreign_has(f, "training.dtype", "bfloat16");
    test_foreign_has(f, "job.description", "of \\ a \"kind\"");
    test_foreign_has(f, "activation_checkpoint.mode", "selective");
    assert_non_null(strstr(tm_config_origin(f->config, "training.steps"), "j.toml:17"));
    static const char staged[] =
        "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nmock_data = true\n[parallelism]\n"
        "pipeline_parallel_degree = 2\nmodule_fqns_per_model_part = [\n  [\"tok_embeddings\", \"layers.0\"], # first\n"
        "  [\"layers.1\", \"norm\", \"output\"]\n]\n";
    const char *layers[] = { "--model.n_layers=2" };
    if (test_foreign_load(f, test_foreign_put(f, "j.toml", staged), true, 1, layers) != TM_OK)
        fail_msg("%s", f->err.text);
    test_foreign_has(f, "parallelism.module_fqns_per_model_part", "tok_embeddings|layers.0,layers.1|norm|output");
    test_foreign_refuse(f, test_foreign_put(f, "config_registry.py", "def llama3_8b():\n    pass\n"),
                        "is a Python program");
}

static const char shape[] = "{\n  \"num_layers\": 2, \"num_heads\": 4, \"num_kv_heads\": 2, \"embedding_dim\": 64,\n"
                            "  \"max_seq_len\": 32, \"vocab_size\": 128, \"eps\": 1e-05, \"hidden_dim\": 96\n}\n";

TEST(models_of_pytorch_training_benchmark_load)
{
    test_foreign *f = *test_state;
    const char   *flags[] = { "--batch_size", "3", "--num_iteration=16", "--grad_accumlate_pre_steps=4" };
    if (test_foreign_load(f, test_foreign_put(f, "m.json", shape), false, 4, flags) != TM_OK)
        fail_msg("%s", f->err.text);
    static const char *const wanted[][2] = {
        { "model.dim", "64" },       { "training.seq_len", "32" },          { "training.local_batch_size", "3" },
        { "training.steps", "4" },   { "training.grad_accumulation", "4" }, { "data.source", "mock" },
        { "optimizer.lr", "0.001" }, { "model.rope_theta", "500000" },      { "model.rope_layout", "interleaved" },
        { "debug.seed", "1024" },    { "training.dtype", "bfloat16" },      { "model.norm_eps", "1e-05" },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) test_foreign_has(f, wanted[i][0], wanted[i][1]);
    const char *few[] = { "--num_iteration", "2" }, *other[] = { "--model_name", "bert" },
               *fp8[] = { "--enable_fp8", "True" };
    assert_int_equal(test_foreign_load(f, test_foreign_put(f, "m.json", shape), false, 2, few), TM_UNSUPPORTED);
    assert_non_null(strstr(f->err.text, "fewer iterations than"));
    assert_int_equal(test_foreign_load(f, test_foreign_put(f, "m.json", shape), false, 2, other), TM_UNSUPPORTED);
    assert_non_null(strstr(f->err.text, "wanted one of llama, mistral"));
    assert_int_equal(test_foreign_load(f, test_foreign_put(f, "m.json", shape), false, 2, fp8), TM_OK);
    test_foreign_has(f, "quantize.recipe", "fp8_delayed");
}

TEST_FIXTURE(test_foreign_set_up, test_foreign_tear_down)
