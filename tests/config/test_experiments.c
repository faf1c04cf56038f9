/* SPDX-License-Identifier: Apache-2.0 */
/* Experiments of every kind that Primus has: modules, programs, environment, windows, images, adapters. What is not
 * built is refused by its name, once. Other files of other programs: test_foreign.c. */
#include "model/shape.h"
#include "support/foreign.h"
#include "support/full_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#define NAMES "work_group: a\nuser_name: b\nexp_name: c\nworkspace: ./o\n"
#define MODULE(module, framework) NAMES "modules:\n  " module ":\n    framework: " framework "\n"
#define MEGATRON MODULE("pre_trainer", "megatron") "    config: pre_trainer.yaml\n    model: "
#define TITAN MODULE("pre_trainer", "torchtitan") "    config: pre_trainer.yaml\n    model: "
#define MOCK "    overrides:\n      mock_data: true\n"
#define OVERRIDES "    overrides:\n"

static void plan(test_foreign *f, const char *path)
{
    if (test_foreign_load(f, path, true, 0, NULL) != TM_OK) fail_msg("%s", f->err.text);
}

/* As a run and as a plan, in one message that says `says` and nothing of `never`. */
static void refuse_always(test_foreign *f, const char *text, const char *says, const char *never)
{
    for (int plans = 0; plans < 2; plans++) {
        tm_status st = test_foreign_load(f, test_foreign_put(f, "x.yaml", text), plans, 0, NULL);
        if (tm_status_exit_code(st) != 4 || !strstr(f->err.text, says))
            fail_msg("status %d, wanted '%s': %s", (int)st, says, f->err.text);
        if (never && strstr(f->err.text, never)) fail_msg("'%s' is in: %s", never, f->err.text);
    }
}

/* A run is refused, a plan goes on and says without what. */
static void refuse_run(test_foreign *f, const char *text, const char *says, const char *without)
{
    tm_status st = test_foreign_load(f, test_foreign_put(f, "x.yaml", text), false, 0, NULL);
    if (tm_status_exit_code(st) != 4 || !strstr(f->err.text, says))
        fail_msg("status %d, wanted '%s': %s", (int)st, says, f->err.text);
    plan(f, test_foreign_put(f, "x.yaml", text));
    if (!strstr(tm_config_unbuilt(f->config), without))
        fail_msg("'%s' is not in: %s", without, tm_config_unbuilt(f->config));
}

TEST(other_programs_are_refused_by_their_name)
{
    static const char *const names[] = { "maxtext",        "maxdiffusion",  "hummingbirdxt",   "diffusion",
                                         "nemo_automodel", "hybrid_models", "megatron_bridge", "worldmirror",
                                         "specforge",      "megatron_sft" };
    static const char *const modules[] = { "pre_trainer", "post_trainer", "sft_trainer" };
    test_foreign            *f = *test_state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[600], says[160];
        snprintf(text, sizeof text,
                 NAMES "env:\n  XLA_FLAGS: \"--a=b\"\nplatform:\n  config: p.yaml\nmodules:\n  %s:\n"
                       "    framework: %s\n    config: some.yaml\n    model: some.yaml\n    entrypoint: x\n"
                       "    overrides:\n      runtime:\n        anything: [1, 2]\n",
                 modules[i % 3], names[i]);
        snprintf(says, sizeof says, "framework '%s' ", names[i]);
        refuse_always(f, text, says, "unknown key");
        assert_non_null(strstr(f->err.text, "x.yaml:11) is not supported"));
        assert_non_null(strstr(f->err.text, "trainmark models"));
    }
    refuse_always(f, "framework: megatron_bridge\ntask: x\ntraining:\n  lr: 1\n", "framework 'megatron_bridge'",
                  "unknown key");
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
                 NAMES "modules: {pre_trainer: {model: %c.yaml, config: %c_trainer.yaml, overrides: {training: "
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

TEST(post_training_reads_rows)
{
    static const char *const adapted =
        "    overrides:\n      mock_data: true\n      pretrained_checkpoint: /x\n      lora:\n        enabled: true\n"
        "        dim: 16\n        alpha: 32\n        dropout: 0.0\n        dropout_position: pre\n"
        "        lora_B_init_method: zero\n        target_modules:\n          - linear_qkv\n          - linear_fc2\n";
    char          text[1200];
    test_foreign *f = *test_state;
    snprintf(text, sizeof text, "%s    config: sft_trainer.yaml\n    model: llama2_7B.yaml\n%s",
             MODULE("post_trainer", "megatron"), adapted);
    refuse_run(f, text, "'tatsu-lab/alpaca' is not downloaded", "the data set tatsu-lab/alpaca");
    assert_null(strstr(f->err.text, "modules.post_trainer."));
    test_foreign_has(f, "model.hf_assets_path", "/x");
    test_foreign_has(f, "lora.rank", "16");
    test_foreign_has(f, "lora.alpha", "32");
    test_foreign_has(f, "lora.targets", "wqkv,w2");
    test_foreign_has(f, "lora.init", "xavier");
    test_foreign_has(f, "lora.base_format", "bfloat16"); /* only what is trained has float32 weights */
    /* the same trainer in the module of pretraining; tokens at random only where they are asked for */
    snprintf(text, sizeof text, "%s    config: sft_trainer.yaml\n    model: llama2_7B.yaml\n%s      load: null\n",
             MODULE("pre_trainer", "megatron"), adapted);
    char *checkpoint = strstr(text, "pretrained_checkpoint: /x");
    memcpy(checkpoint, "pretrained_checkpoint:   ", strlen("pretrained_checkpoint: /x"));
    refuse_run(f, text, "'tatsu-lab/alpaca' is not downloaded", "the data set tatsu-lab/alpaca");
    const char *mock[] = { "--training.mock_data", "true" };
    if (test_foreign_load(f, test_foreign_put(f, "x.yaml", text), false, 2, mock) != TM_OK) fail_msg("%s", f->err.text);
    test_foreign_has(f, "data.source", "mock");
    const char *single[] = { "--training.mock_data", "true", "--bf16", "false" };
    if (test_foreign_load(f, test_foreign_put(f, "x.yaml", text), false, 4, single) != TM_OK)
        fail_msg("%s", f->err.text);
    test_foreign_has(f, "lora.base_format", NULL);
    refuse_always(f, MODULE("post_trainer", "torchtitan") "    model: llama3_8B.yaml\n",
                  "post-training is not supported", "unknown");
}

#define SFT                                                                                                            \
    MODULE("post_trainer", "megatron")                                                                                 \
    "    config: sft_trainer.yaml\n    model: llama2_7B.yaml\n" MOCK "      sft_dataset_name: %s\n%s"

TEST(rows_of_post_training_are_a_file)
{
    char          text[1200], path[400];
    test_foreign *f = *test_state;
    snprintf(path, sizeof path, "%s",
             test_foreign_put(f, "rows.jsonl", "{\"instruction\": \"Add.\", \"output\": \"Done.\"}\n"));
    snprintf(text, sizeof text, SFT, path, "      tokenizer_model: /tok\n");
    test_foreign_take(f, test_foreign_put(f, "x.yaml", text));
    static const char *const wanted[][2] = { { "data.source", "sft" },
                                             { "data.format", "instruction" },
                                             { "data.packed", "false" },
                                             { "data.tokenizer", "/tok" } };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) test_foreign_has(f, wanted[i][0], wanted[i][1]);
    test_foreign_has(f, "data.path", path);
    snprintf(text, sizeof text, SFT, path,
             "      sft_conversation_format: openai\n      enable_packed_sequences: true\n"
             "      use_packed_attention: true\n");
    test_foreign_take(f, test_foreign_put(f, "x.yaml", text));
    test_foreign_has(f, "data.format", "messages");
    test_foreign_has(f, "data.packed", "true");
    snprintf(text, sizeof text, SFT, path, "      enable_packed_sequences: true\n");
    refuse_run(f, text, "'use_packed_attention'", "samples that see each other");
    snprintf(text, sizeof text, SFT, path, "      sft_conversation_format: squad\n");
    refuse_run(f, text, "rows of this form", "rows of this form");
}

TEST(the_environment_of_a_launcher_changes_nothing)
{
    test_foreign *f = *test_state;
    test_foreign_take(
        f, test_foreign_put(f, "x.yaml", "env:\n  GPU_MAX_HW_QUEUES: \"4\"\n" MEGATRON "llama2_7B.yaml\n" MOCK));
    assert_non_null(strstr(tm_config_accepted(f->config), "has no effect: env.GPU_MAX_HW_QUEUES = 4"));
    test_foreign_take(f, test_foreign_put(f, "x.yaml",
                                          "env: null\n" TITAN "llama3_8B.yaml\n" OVERRIDES
                                          "      training: {mock_data: true}\n"));
    refuse_always(f, "enf:\n  A: 1\n" MEGATRON "llama2_7B.yaml\n" MOCK, "unknown key 'enf.A'", NULL);
}

TEST(what_is_no_experiment_is_told_so)
{
    test_foreign *f = *test_state;
    refuse_always(f, "configs:\n  a:\n    kind: x\n    more: {}\nmatchers:\n  b:\n    c: 1\n    d: 2\n",
                  "holds no key that is known (configs.a.kind, matchers.b.c, ...)", "did you mean");
    refuse_always(f, "name: x\nmodules:\n  - name: pre_trainer\n    params: {a: {b: 1}}\n", "'modules' (",
                  "unknown key");
    assert_non_null(strstr(f->err.text, "x.yaml:2) is a list; wanted a map"));
    test_foreign_put(f, "base.yaml", NAMES);
    test_foreign_take(f,
                      test_foreign_put(f, "x.yaml",
                                       "includes:\n  - base.yaml\nmodules:\n  pre_trainer:\n    framework: megatron\n"
                                       "    model: llama2_7B.yaml\n" MOCK));
}

TEST(images_are_planned_by_any_of_their_names)
{
    static const char *const lines =
        "      timestep_sampling_strategy: direct_uniform\n      cfg_dropout_prob: 0.1\n      vae_scale: 0.3611\n"
        "      activation_func: openai_gelu\n      warmup_train_steps: 2\n      ddp_bucket_size: 1\n"
        "      max_samples_per_sequence: null\n      params_dtype: bfloat16\n      per_step_rng_reseed: true\n"
        "      torch_compile:\n        enable: true\n        strategy: per_block\n";
    static const char *const types[] = { "diffusion_model", "flux", "flux_schnell" };
    test_foreign            *f = *test_state;
    tm_model_shape           shape;
    char                     text[1600];
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        snprintf(text, sizeof text,
                 "%sdiffusion/flux_12b.yaml\n    trainer_class: FluxPretrainTrainer\n%s"
                 "      model_type: %s\n%s",
                 MEGATRON, MOCK, types[i], lines);
        test_foreign_take(f, test_foreign_put(f, "x.yaml", text));
        if (tm_model_shape_read(f->config, &shape, &f->err) != TM_OK) fail_msg("%s", f->err.text);
        assert_int_equal(tm_model_parameters(&shape), 11891178560);
        test_foreign_has(f, "data.source", "gaussians");
        test_foreign_has(f, "data.text_dropout", "0.1");
        test_foreign_has(f, "data.flow_protocol", "mlperf");
    }
    /* without a word the times are those of its program */
    test_foreign_take(f, test_foreign_put(f, "x.yaml",
                                          MEGATRON "diffusion/flux_535m.yaml\n" MOCK
                                                   "      model_type: diffusion_model\n"));
    test_foreign_has(f, "data.flow_times", "logit_normal");
    refuse_run(f,
               MEGATRON "diffusion/flux_535m.yaml\n" MOCK "      model_type: diffusion_model\n"
                        "      timestep_sampling_strategy: mode\n",
               "'timestep_sampling_strategy' = 'mode'", "times of another distribution");
    refuse_run(f,
               MEGATRON "diffusion/flux_12b.yaml\n" MOCK "      model_type: flux_schnell\n      fp6: mxfp6\n"
                        "      timestep_sampling_strategy: direct_uniform\n      mxfp6_fused_mlp: \"on\"\n",
               "'fp6' = 'mxfp6'", "training in 6 bits");
    refuse_always(f,
                  MEGATRON "diffusion/wan2.1_t2v_1.3b.yaml\n" MOCK "      model_type: diffusion_model\n"
                           "      scheduler_shift: 3.0\n      whatever: 1\n",
                  "is of the family Wan (video)", "unknown key");
    test_foreign_put(f, "wan2.1_x.yaml",
                     "num_dit_layers: 30\npatch_size_3d: [1, 2, 2]\nhidden_size: 64\nout_channels: 16\n");
    refuse_always(f, MEGATRON "wan2.1_x.yaml\n" MOCK "      model_type: diffusion_model\n",
                  "is of the family Wan (video), which is not supported (num_dit_layers, patch_size_3d, out_channels)",
                  "problems");
}

TEST(job_files_of_other_families_and_with_adapters)
{
    test_foreign     *f = *test_state;
    static const char vl[] = "[model]\nname = \"qwen3_vl\"\nflavor = \"debugmodel\"\n[data]\npatch_size = 14\n";
    tm_status         st = test_foreign_load(f, test_foreign_put(f, "x.toml", vl), true, 0, NULL);
    assert_int_equal(tm_status_exit_code(st), 4);
    assert_non_null(strstr(f->err.text, "'qwen3_vl' (x.toml") ? f->err.text
                                                              : strstr(f->err.text, "x.toml:2) is of the"));
    assert_null(strstr(f->err.text, "unknown key"));
    static const char lora[] = "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\nconverters = [\"lora\"]\n"
                               "[training]\ndataset = \"c4_test\"\n%s";
    char              job[400];
    snprintf(job, sizeof job, lora, "[lora]\nrank = 8\nalpha = 16.0\napply_to_all_linears = true\n");
    plan(f, test_foreign_put(f, "x.toml", job));
    test_foreign_has(f, "lora.rank", "8");
    test_foreign_has(f, "lora.targets", "all-linear");
    snprintf(job, sizeof job, lora, "");
    assert_int_not_equal(test_foreign_load(f, test_foreign_put(f, "x.toml", job), true, 0, NULL), TM_OK);
    assert_non_null(strstr(f->err.text, "adapters without lora.rank"));
}

/* What a file does not say of its experts, a preset of ours does; what it says counts with them. */
TEST(a_single_file_changes_a_preset_of_ours)
{
    static const struct {
        const char *model, *lines;
        int64_t     published;
    } whole[] = { { "deepseek_v2", "      multi_latent_attention: true\n", 235741434880 },
                  { "qwen3_30B_A3B", "", 30532122624 },
                  { "qwen3_4B", "", 4022468096 },
                  { "qwen2.5_7B", "", 7615616512 },
                  { "llama3.2_1B", "", 1235814400 } };
    test_foreign  *f = *test_state;
    tm_model_shape shape;
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        char text[600];
        snprintf(text, sizeof text, "%s%s.yaml\n%s%s", MEGATRON, whole[i].model, MOCK, whole[i].lines);
        plan(f, test_foreign_put(f, "x.yaml", text));
        if (tm_model_shape_read(f->config, &shape, &f->err) != TM_OK) fail_msg("%s", f->err.text);
        assert_int_equal(tm_model_parameters(&shape), whole[i].published);
    }
}

/* A preset that was found says what the model is, also where the experiment changes all of its sizes. */
TEST(a_preset_of_theirs_is_not_mixed_with_ours)
{
    test_foreign *f = *test_state;
    test_foreign_put(f, "gpt_oss_20B.yaml",
                     "num_layers: 2\nhidden_size: 64\nffn_hidden_size: 96\nnum_attention_heads: 4\nvocab_size: 256\n"
                     "normalization: RMSNorm\nposition_embedding_type: rope\nswiglu: true\n");
    test_foreign_take(f, test_foreign_put(f, "x.yaml",
                                          MEGATRON "gpt_oss_20B.yaml\n" MOCK
                                                   "      num_layers: 3\n      hidden_size: 128\n"));
    test_foreign_has(f, "model.n_layers", "3");
    test_foreign_has(f, "model.family", "llama");
    test_foreign_has(f, "model.n_experts", NULL);
    test_foreign_has(f, "model.rope_scaling", "none");
}

TEST(real_data_is_planned_without)
{
    test_foreign *f = *test_state;
    refuse_run(f,
               MEGATRON "llama2_7B.yaml\n" OVERRIDES "      mock_data: false\n      eod_mask_loss: true\n"
                        "      train_data_path: \"0.5 /a 0.5 /b\"\n",
               "several sets with weights", "several sets with weights");
    assert_non_null(strstr(tm_config_unbuilt(f->config), "documents separated in some ways only"));
    assert_null(strstr(tm_config_unbuilt(f->config), "reset_position_ids ="));
    plan(f, test_foreign_put(f, "x.yaml",
                             MEGATRON "llama2_7B.yaml\n" OVERRIDES
                                      "      mock_data: false\n      train_data_path: \"10 /a/text\"\n"));
    test_foreign_has(f, "data.path", "/a/text");
    test_foreign_has(f, "data.source", "megatron");
    refuse_run(f,
               MEGATRON "diffusion/flux_12b.yaml\n" OVERRIDES "      mock_data: false\n      model_type: flux_schnell\n"
                        "      data_path: /energon\n      timestep_sampling_strategy: direct_uniform\n",
               "an Energon set of images", "an Energon set of images");
    test_foreign_has(f, "data.source", "gaussians");
}

TEST(data_source_goes_before_mock_data)
{
    static const struct {
        const char *yaml, *source;
        bool        noted;
    } cases[] = {
        { "training: {mock_data: true}\ndata: {source: mock}\n", "mock", false },
        { "training: {mock_data: true}\ndata: {source: synthetic}\n", "synthetic", true },
        { "training: {mock_data: false}\ndata: {source: synthetic}\n", "synthetic", false },
        { "training: {mock_data: true}\n", "mock", false },
    };
    test_foreign *f = *test_state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[200];
        snprintf(text, sizeof text, "model: llama3_debugmodel\n%s", cases[i].yaml);
        test_foreign_take(f, test_foreign_put(f, "x.yaml", text));
        test_foreign_has(f, "data.source", cases[i].source);
        if ((strstr(tm_config_notes(f->config), "but data.source counts, which is synthetic") != NULL) !=
            cases[i].noted)
            fail_msg("%s: %s", cases[i].yaml, tm_config_notes(f->config));
    }
    /* a higher layer decides without a word */
    const char *higher[] = { "--training.mock_data", "true" };
    const char *path = test_foreign_put(f, "x.yaml", "model: llama3_debugmodel\ndata: {source: synthetic}\n");
    if (test_foreign_load(f, path, false, 2, higher) != TM_OK) fail_msg("%s", f->err.text);
    test_foreign_has(f, "data.source", "mock");
}

/* Overrides as the programs take them: of a module by its full name, of a component by its section. */
TEST(overrides_are_those_of_the_program)
{
    static const char *const modules[] = { "--modules.pre_trainer.lr=3e-5", "--modules.pre_trainer.overrides.lr=3e-5",
                                           "--lr=3e-5" };
    static const char        recipe[] = "model:\n  _component_: torchtune.models.llama2.llama2_7b\noptimizer:\n"
                                        "  _component_: torch.optim.AdamW\n  lr: 2e-5\nmax_steps_per_epoch: 2\n";
    char                     text[1200];
    test_foreign            *f = *test_state;
    snprintf(text, sizeof text, "%sllama2_7B.yaml\n%s", MEGATRON, MOCK);
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        if (test_foreign_load(f, test_foreign_put(f, "x.yaml", text), true, 1, &modules[i]) != TM_OK)
            fail_msg("%s: %s", modules[i], f->err.text);
        test_foreign_has(f, "optimizer.lr", "3e-05");
    }
    const char *other[] = { "--modules.post_trainer.lr=3e-5" };
    assert_int_not_equal(test_foreign_load(f, test_foreign_put(f, "x.yaml", text), true, 1, other), TM_OK);
    const char *component[] = { "optimizer=torch.optim.SGD" };
    if (test_foreign_load(f, test_foreign_put(f, "r.yaml", recipe), true, 1, component) != TM_OK)
        fail_msg("%s", f->err.text);
    test_foreign_has(f, "optimizer.name", "SGD");
    test_foreign_has(f, "optimizer.lr", "2e-05");
}

TEST_FIXTURE(test_foreign_set_up, test_foreign_tear_down)
