/* SPDX-License-Identifier: Apache-2.0 */
/* Files of other programs: found presets, translated keys, refusals. Where the trees of those programs lie beside the
 * repository (../shared/data, or TRAINMARK_FOREIGN_FILES), they are loaded, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "config/foreign.h"
#include "config/toml.h"
#include "config/yaml.h"
#include "base/file.h"
#include "base/log.h"
#include "model/shape.h"
#include "../support/folder.h"
#include "../support/full_config.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    tm_config *config;
    char      *folder;
    tm_error   err;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->config = test_full_config();
    f->folder = test_tree_make();
    tm_log_set_level(TM_LOG_ERROR);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    tm_config_destroy(f->config);
    test_tree_remove(f->folder);
    free(f);
    return 0;
}

/* A file below the fixture's folder, with the folders on its way. Returns its path. */
static const char *put(fixture *f, const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    if (tm_folder_make(path, &f->err) != TM_OK) fail_msg("%s", f->err.text);
    return test_file_write(f->folder, name, text);
}

static tm_status try(fixture *f, const char *path, bool plan, int argc, const char *const *argv)
{
    f->err = (tm_error){ 0 };
    tm_config_destroy(f->config);
    f->config = test_full_config();
    tm_config_allow_unbuilt(f->config, plan);
    tm_status st = tm_config_load_file(f->config, path, &f->err);
    if (st == TM_OK) st = tm_config_apply_arguments(f->config, argc, (char **)argv, &f->err);
    if (st == TM_OK) st = tm_config_finish(f->config, &f->err);
    return st;
}

static void take(fixture *f, const char *path)
{
    if (try(f, path, false, 0, NULL) != TM_OK) fail_msg("%s", f->err.text);
}

static void refuse(fixture *f, const char *path, const char *says)
{
    tm_status st = try(f, path, false, 0, NULL);
    if (st == TM_OK || tm_status_exit_code(st) != 4) fail_msg("status %d, wanted: %s", (int)st, says);
    if (!strstr(f->err.text, says)) fail_msg("'%s' is not in: %s", says, f->err.text);
}

static void assert_text(fixture *f, const char *key, const char *wanted)
{
    const char *text = tm_config_text(f->config, key);
    if ((text == NULL) != (wanted == NULL) || (text && strcmp(text, wanted) != 0))
        fail_msg("%s is %s, wanted %s", key, text ? text : "null", wanted ? wanted : "null");
}

#define TOP "work_group: ${TEAM:amd}\nuser_name: b\nexp_name: c\nworkspace: ./o\nmodules:\n  pre_trainer:\n"
#define MEGATRON TOP "    framework: megatron\n    config: pre_trainer.yaml\n    model: "
#define TITAN TOP "    framework: torchtitan\n    config: pre_trainer.yaml\n    model: "
#define MOCK "    overrides:\n      mock_data: true\n"

/* A tree of presets as its own program has it. */
static const char *plant_tree(fixture *f)
{
    put(f, "primus/configs/modules/module_base.yaml", "trainable: false\nsink_level: null\nstderr_sink_level: INFO\n");
    put(f, "primus/configs/modules/megatron/base.yaml",
        "extends:\n  - ../module_base.yaml\nmicro_batch_size: 2\nseed: 99\nclip_grad: 1.0\nload: null\nfinetune: true\n"
        "sequence_parallel: true\nlr_wsd_decay_style: exponential\nadam_eps: 1.0e-08\n");
    put(f, "primus/configs/modules/megatron/pre_trainer.yaml",
        "extends:\n  - base.yaml\ntrain_iters: 1000\nlr: 2.0e-05\nadam_beta2: 0.999\neval_iters: 0\nglobal_batch_size: "
        "16\n");
    put(f, "primus/configs/models/megatron/language.yaml",
        "hidden_dropout: 0.1\nnormalization: LayerNorm\nposition_embedding_type: learned_absolute\nswiglu: true\n"
        "untie_embeddings_and_output_weights: true\ngroup_query_attention: false\nnum_query_groups: 2\nnum_experts: "
        "null\n"
        "moe_router_topk: 2\nkv_channels: null\nvocab_size: null\nmake_vocab_size_divisible_by: 128\n");
    put(f, "primus/configs/models/megatron/small.yaml",
        "bases:\n  - language.yaml\nhidden_dropout: &zero 0.0\nattention_dropout: *zero\nnormalization: RMSNorm\n"
        "position_embedding_type: rope\nnum_layers: 2\nhidden_size: 64\nffn_hidden_size: 96\nnum_attention_heads: 4\n"
        "vocab_size: 130\nnorm_epsilon: 1.0e-6\nrotary_base: 500000\nmax_position_embeddings: 128\n");
    return put(f, "examples/megatron/configs/X/small.yaml",
               MEGATRON
               "${PRIMUS_MODEL:small}.yaml\n    overrides:\n      train_iters: 50\n      seq_length: ${LEN:64}\n"
               "      global_batch_size: 8\n      mock_data: true\n      train_data_path: null\n      load: null\n"
               "      lr_decay_iters: 320000\n      lr_warmup_iters: 2\n      init_method_std: 0.008\n"
               "      save: null\n      auto_continue_train: ${CONTI:0}\n      sequence_parallel: 1\n"
               "      overlap_grad_reduce: true\n      wandb_project: x\n      eod_mask_loss: true\n");
}

static void presets_are_found_above_the_file(void **state)
{
    fixture *f = *state;
    take(f, plant_tree(f));
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
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) assert_text(f, wanted[i][0], wanted[i][1]);
    assert_non_null(strstr(tm_config_origin(f->config, "training.steps"), "small.yaml:11 (train_iters)"));
    assert_non_null(strstr(tm_config_accepted(f->config), "tunes speed only: overlap_grad_reduce = true"));
    assert_non_null(strstr(tm_config_accepted(f->config), "changes nothing: wandb_project = x"));
    assert_null(strstr(tm_config_accepted(f->config), "moe_router_topk")); /* counts with num_experts only */
    assert_non_null(strstr(tm_config_notes(f->config), "tune speed only"));
}

static void the_command_line_speaks_their_language(void **state)
{
    fixture    *f = *state;
    const char *words[] = { "--train_iters", "7", "--group_query_attention", "true", "--model.init_std", "0.5" };
    assert_int_equal(try(f, plant_tree(f), false, 4, words), TM_OK);
    assert_text(f, "training.steps", "7");
    assert_string_equal(tm_config_origin(f->config, "training.steps"), "command line (train_iters)");
    assert_text(f, "model.n_kv_heads", "2");
    const char *wrong[] = { "--mamba_state_dim", "8", "--allow-unknown-keys" };
    assert_int_equal(try(f, plant_tree(f), true, 3, wrong), TM_UNSUPPORTED);
    assert_non_null(strstr(f->err.text, "'mamba_state_dim' = '8' (command line): not built yet: state-space layers"));
}

/* A file alone has the presets of ours of the same name, and the same values of the trainer. */
static void a_single_file_works(void **state)
{
    fixture *f = *state;
    take(f, put(f, "one.yaml", MEGATRON "llama3.1_8B.yaml\n" MOCK));
    assert_text(f, "model.dim", "4096");
    assert_text(f, "model.rope_scaling", "none");
    assert_text(f, "training.steps", "1000");
    assert_text(f, "training.local_batch_size", "2");
    assert_string_equal(tm_config_origin(f->config, "training.steps"), "default of megatron (train_iters)");
    take(f, put(f, "two.yaml", TITAN "llama3.1_8B.yaml\n"));
    assert_text(f, "model.rope_scaling", "llama3");
    assert_text(f, "training.dtype", "bfloat16");
    assert_text(f, "data.source", "mock");
    assert_int_equal(try(f, put(f, "three.yaml", TITAN "llama3.1_8B-fp8.yaml\n"), true, 0, NULL), TM_OK);
    assert_non_null(strstr(tm_config_unbuilt(f->config), "quantize.linear.float8"));
    refuse(f, put(f, "three.yaml", TITAN "llama3.1_8B-fp8.yaml\n"), "'model.converters' = 'quantize.linear.float8'");
}

static void a_path_of_presets_can_be_given(void **state)
{
    fixture *f = *state;
    char     path[1024];
    plant_tree(f);
    char *elsewhere = test_tree_make();
    snprintf(path, sizeof path, "%s", test_file_write(elsewhere, "x.yaml", MEGATRON "small.yaml\n" MOCK));
    refuse(f, path, "unknown model 'small'");
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

static void what_changes_the_computation_is_refused_by_name(void **state)
{
    static const struct {
        const char *line, *says;
        bool        plans; /* a plan may leave it out */
    } cases[] = {
        { "num_experts: 8\n      moe_router_topk: 2\n      moe_use_rings: true",
          "'moe_use_rings' = 'true' (x.yaml:14): not built yet: this form of experts", false },
        { "qk_l2_norm: true", "'qk_l2_norm' = 'true' (x.yaml:12): not built yet: norms of query", false },
        { "attention_output_gate: true", "'attention_output_gate' = 'true' (x.yaml:12): not built yet: gated attention",
          false },
        { "mamba_state_dim: 16", "state-space layers (Mamba)", false },
        { "spec: [a, b]", "layers by a Python specification", false },
        { "hidden_dropout: 0.1", "not built yet: dropout; set it to 0", true },
        { "exp_avg_dtype: fp8", "not built yet: moments in another format; set it to fp32", true },
        { "optimizer: dist_lamb", "not built: another optimizer; wanted one of adam, sgd", false },
        { "optimizer: muon", "'Muon'", false },
        { "lr_decay_style: wsd", "not built: another form of the decay; wanted one of cosine, linear, constant",
          false },
        { "recompute_layer_ids: [1, 2]", "recomputation of chosen layers", true },
        { "fp8: hybrid", "float8 training", true },
        { "lora: {enabled: true, dim: 4}", "LoRA fine-tuning", true },
        { "train_iters: many", "'training.steps' (x.yaml:12 (train_iters)) must be an integer, found 'many'", false },
        { "train_itersz: 5", "unknown key 'train_itersz' (x.yaml:12); did you mean 'train_iters'?", false },
        { "layernorm_epsilon: 1.0e-5\n      norm_epsilon: 1.0e-6", "give one of the two", false },
        { "tensor_model_parallel_size: 8", "tensor parallelism is not built yet", true },
        { "lora: 5", "'lora' (x.yaml:12) is a section of keys", false },
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024], says[256], prefix[600];
        snprintf(text, sizeof text, "%sllama2_7B.yaml\n" MOCK "      %s\n", MEGATRON, cases[i].line);
        const char *path = put(f, "x.yaml", text);
        tm_status   st = try(f, path, false, 0, NULL);
        snprintf(says, sizeof says, "%s", cases[i].says);
        snprintf(prefix, sizeof prefix, "%s/", f->folder);
        for (char *p; (p = strstr(f->err.text, prefix));)
            memmove(p, p + strlen(prefix), strlen(p + strlen(prefix)) + 1);
        if (tm_status_exit_code(st) != 4 || !strstr(f->err.text, says))
            fail_msg("%s: status %d: %s", cases[i].line, (int)st, f->err.text);
        st = try(f, path, true, 0, NULL);
        if ((st == TM_OK) != cases[i].plans) fail_msg("%s: a plan of it: %s", cases[i].line, f->err.text);
        if (cases[i].plans && !*tm_config_unbuilt(f->config)) fail_msg("%s: a plan does not say so", cases[i].line);
    }
}

static void families_are_refused_by_their_name(void **state)
{
    static const char *const models[][2] = { { "mamba_370M.yaml", "Mamba" },
                                             { "kimi_k2.yaml", "Kimi" },
                                             { "zebra_llama_1B.yaml", "Zebra-Llama" },
                                             { "llama4_17B16E.yaml", "Llama 4" } };
    fixture                 *f = *state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char text[512], says[128];
        snprintf(text, sizeof text, "%s%s\n" MOCK, MEGATRON, models[i][0]);
        snprintf(says, sizeof says, "is of the family %s", models[i][1]);
        refuse(f, put(f, "x.yaml", text), says);
    }
    put(f, "primus/configs/models/megatron/mamba_1B.yaml", "model_type: mamba\nnum_layers: 2\nmamba_state_dim: 16\n");
    refuse(f, put(f, "x.yaml", MEGATRON "mamba_1B.yaml\n" MOCK),
           "the model 'mamba_1B' is of the family Mamba (state space), which is not built yet (mamba_state_dim)");
}

static void everything_wrong_is_told_at_once(void **state)
{
    fixture *f = *state;
    refuse(f,
           put(f, "x.yaml",
               MEGATRON "llama2_7B.yaml\n" MOCK
                        "      train_itersz: 5\n      hidden_dropout: 0.5\n      seq_length: 0\n"
                        "    overides: {a: 1}\n"),
           "4 problems\n");
    assert_non_null(strstr(f->err.text, "train_itersz"));
    assert_non_null(strstr(f->err.text, "dropout"));
    assert_non_null(strstr(f->err.text, "'training.seq_len'"));
    assert_non_null(strstr(f->err.text, "overides"));
}

static const char job[] =
    "# a job\n[job]\ndump_folder = \"./outputs\"\ndescription = 'of \\ a \"kind\"'\n\n[model]\nname = \"llama3\"\n"
    "flavor = \"8B\"\nconverters = [\n  \"primus_turbo\", # kernels\n]\n[optimizer]\nname = \"AdamW\"\n"
    "lr = 3e-4\n[training]\nlocal_batch_size=2\nsteps = 1_000\ndataset = \"c4\"\n"
    "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = '2'\n[compile]\nenable=true\n"
    "components = [\"model\", \"loss\"]\n[quantize.linear.float8]\nfilter_fqns = [\"output\"]\n";

static void job_files_of_torchtitan_load(void **state)
{
    fixture    *f = *state;
    const char *mock[] = { "--training.mock_data", "true" };
    refuse(f, put(f, "j.toml", job), "the data set 'c4' is not downloaded: give data.path");
    if (try(f, put(f, "j.toml", job), false, 2, mock) != TM_OK) fail_msg("%s", f->err.text);
    assert_text(f, "training.steps", "1000");
    assert_text(f, "model.dim", "4096");
    assert_text(f, "optimizer.lr", "0.0003");
    assert_text(f, "training.dtype", "bfloat16");
    assert_text(f, "job.description", "of \\ a \"kind\"");
    assert_text(f, "activation_checkpoint.mode", "selective");
    assert_non_null(strstr(tm_config_origin(f->config, "training.steps"), "j.toml:17"));
    refuse(f, put(f, "config_registry.py", "def llama3_8b():\n    pass\n"), "is a Python program");
    refuse(f, put(f, "j.toml", "[training]\nstepz = 4\n"), "j.toml:2); did you mean 'training.steps'?");
    refuse(f, put(f, "j.toml", "[primus_turbo]\nenable_attention_float8 = true\n"), "attention in float8");
}

static void wrong_toml_is_refused_with_its_line(void **state)
{
    static const char *const cases[][2] = {
        { "a = 1\na = 2\n", "x.toml:2: duplicate key 'a', first given in line 1" },
        { "[a]\n[b]\n[a]\n", "x.toml:3: duplicate key 'a'" },
        { "a = {b = 1}\n[a.c]\n", "x.toml:2: duplicate key 'a'" },
        { "a = hello\n", "x.toml:1: not valid TOML: a value is expected; texts stand in quotes" },
        { "a = \"b\n", "no closing quote" },
        { "a = \"\\q\"\n", "unknown escape" },
        { "a = \"\\ud800\"\n", "unknown character" },
        { "\n\na 1\n", "x.toml:3: not valid TOML: '=' is expected" },
        { "a = 1 2\n", "something stands behind the value" },
        { "[a\n", "']' is expected" },
        { "a = [1, 2\n", "',' or ']' is expected" },
        { "a = {b = 1\n", "',' or '}' is expected" },
        { "= 1\n", "a key is expected" },
        { "a =\n", "x.toml:1: not valid TOML" },
        { "a = \xff\n", "wanted: UTF-8" },
        { "# only this\n", "is empty" },
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) refuse(f, put(f, "x.toml", cases[i][0]), cases[i][1]);
    tm_text deep = { 0 };
    tm_text_add(&deep, "a = ");
    for (int i = 0; i < 2000; i++) tm_text_add(&deep, "[");
    refuse(f, put(f, "x.toml", deep.data), "nested deeper than");
    tm_text_fini(&deep);
}

static void every_form_of_toml_is_read(void **state)
{
    static const char text[] =
        "a.b = 0x1F\n'q u' = 1\n[[t]]\nx = -1_0\n[[t]]\nx = \"\"\"\nl1\\\n   l2\"\"\"\n[t.u]\nz = '''it's'''\n"
        "[e]\nm = { p = [1, 2.5e-3, true], q.r = \"\\u00e9\\t\" }\nd = 2026-01-02\nn = []\n";
    const tm_yaml *root = NULL;
    tm_error       err = { 0 };
    tm_arena      *arena = tm_arena_create();
    (void)state;
    if (tm_toml_parse(arena, text, strlen(text), "x", &root, &err) != TM_OK) fail_msg("%s", err.text);
    assert_string_equal(tm_yaml_get(tm_yaml_get(root, "a"), "b")->text, "31");
    const tm_yaml *t = tm_yaml_get(root, "t"), *second = t->first->next->value;
    assert_int_equal(t->count, 2);
    assert_string_equal(tm_yaml_get(t->first->value, "x")->text, "-10");
    assert_string_equal(tm_yaml_get(second, "x")->text, "l1l2");
    assert_string_equal(tm_yaml_get(tm_yaml_get(second, "u"), "z")->text, "it's");
    const tm_yaml *m = tm_yaml_get(tm_yaml_get(root, "e"), "m");
    assert_string_equal(tm_yaml_get(m, "p")->first->next->value->text, "2.5e-3");
    assert_string_equal(tm_yaml_get(tm_yaml_get(m, "q"), "r")->text, "\xc3\xa9\t");
    assert_int_equal(tm_yaml_get(tm_yaml_get(root, "e"), "n")->kind, TM_YAML_LIST);
    assert_int_equal(tm_yaml_get(root, "q u")->line, 2);
    tm_arena_destroy(arena);
}

static const char recipe[] =
    "output_dir: /tmp/x\nmodel:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\n"
    "dataset:\n  _component_: torchtune.datasets.alpaca_cleaned_dataset\n  packed: False\nseed: null\n"
    "batch_size: 2\nbatch_size_val: ${batch_size}\nmetric_logger:\n  log_dir: ${output_dir}/logs\n"
    "optimizer:\n  _component_: torch.optim.AdamW\n  fused: True\n  lr: ${rates.peak}\nrates: {peak: 2e-5}\n"
    "epochs: 1\nmax_steps_per_epoch: 20\ngradient_accumulation_steps: 4\nclip_grad_norm: null\n"
    "dtype: bf16\nenable_activation_checkpointing: True\ndevice: cuda\n";

static void recipes_of_torchtune_load(void **state)
{
    fixture    *f = *state;
    const char *mock[] = { "--training.mock_data", "true" };
    refuse(f, put(f, "r.yaml", recipe), "unknown key 'rates.peak'");
    char text[2048];
    snprintf(text, sizeof text, "%s", recipe);
    memmove(strstr(text, "rates: "), strstr(text, "epochs"), strlen(strstr(text, "epochs")) + 1);
    memcpy(strstr(text, "${rates.peak}"), "${batch_size}", strlen("${batch_size}"));
    refuse(f, put(f, "r.yaml", text), "alpaca_cleaned_dataset");
    if (try(f, put(f, "r.yaml", text), false, 2, mock) != TM_OK) fail_msg("%s", f->err.text);
    assert_text(f, "model.dim", "4096");
    assert_text(f, "training.local_batch_size", "2");
    assert_text(f, "training.global_batch_size", "8");
    assert_text(f, "training.steps", "20");
    assert_text(f, "optimizer.lr", "2");
    assert_text(f, "training.max_norm", "0");
    assert_text(f, "activation_checkpoint.mode", "full");
    memcpy(strstr(text, "llama3_1_8b"), "llama9_1_8b", 11);
    refuse(f, put(f, "r.yaml", text), "not built: this model");
}

static const char shape[] = "{\n  \"num_layers\": 2, \"num_heads\": 4, \"num_kv_heads\": 2, \"embedding_dim\": 64,\n"
                            "  \"max_seq_len\": 32, \"vocab_size\": 128, \"eps\": 1e-05, \"hidden_dim\": 96\n}\n";

static void models_of_pytorch_training_benchmark_load(void **state)
{
    fixture    *f = *state;
    const char *flags[] = { "--batch_size", "3", "--num_iteration=16", "--grad_accumlate_pre_steps=4" };
    if (try(f, put(f, "m.json", shape), false, 4, flags) != TM_OK) fail_msg("%s", f->err.text);
    static const char *const wanted[][2] = {
        { "model.dim", "64" },       { "training.seq_len", "32" },          { "training.local_batch_size", "3" },
        { "training.steps", "4" },   { "training.grad_accumulation", "4" }, { "data.source", "mock" },
        { "optimizer.lr", "0.001" }, { "model.rope_theta", "500000" },      { "model.rope_layout", "interleaved" },
        { "debug.seed", "1024" },    { "training.dtype", "bfloat16" },      { "model.norm_eps", "1e-05" },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) assert_text(f, wanted[i][0], wanted[i][1]);
    const char *few[] = { "--num_iteration", "2" }, *other[] = { "--model_name", "bert" },
               *fp8[] = { "--enable_fp8", "True" };
    assert_int_equal(try(f, put(f, "m.json", shape), false, 2, few), TM_UNSUPPORTED);
    assert_non_null(strstr(f->err.text, "fewer iterations than"));
    assert_int_equal(try(f, put(f, "m.json", shape), false, 2, other), TM_UNSUPPORTED);
    assert_non_null(strstr(f->err.text, "wanted one of llama, mistral"));
    assert_int_equal(try(f, put(f, "m.json", shape), false, 2, fp8), TM_UNSUPPORTED);
    assert_non_null(strstr(f->err.text, "float8 training"));
}

/* A key of ours that a row names must be one, and a value that it gives must fit. */
static void check_target(fixture *f, const tm_foreign_key *row, const char *what, size_t n)
{
    while (n > 0) {
        size_t length = 0, name;
        while (length < n && what[length] != ';') length++;
        char word[200];
        snprintf(word, sizeof word, "%.*s", (int)length, what);
        name = strcspn(word, "=");
        bool gives = word[name] == '=' && strcmp(word + name + 1, "*") != 0 && strcmp(word + name + 1, "null") != 0;
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

static void every_row_is_sound(void **state)
{
    fixture *f = *state;
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

/* --- files of other programs, where they are
 * ------------------------------------------------------------------------------- */

static const char *outside(const char *name)
{
    static char path[1024];
    const char *given = getenv("TRAINMARK_FOREIGN_FILES");
    snprintf(path, sizeof path, "%s/%s", given ? given : "../shared/data", name);
    if (access(path, R_OK) == 0) return path;
    print_message("# %s is not there; TRAINMARK_FOREIGN_FILES names the folder of such files\n", path);
    return NULL;
}

typedef struct {
    const tm_framework *framework;
    int                 files, keys, unknown;
} census;

static void count_keys(census *c, const tm_yaml *map, const char *above, const char *file)
{
    for (const tm_yaml_item *i = map->first; i; i = i->next) {
        char path[512];
        snprintf(path, sizeof path, "%s%s%s", above, *above ? "." : "", i->key);
        if (!*above && (strcmp(i->key, "extends") == 0 || strcmp(i->key, "bases") == 0)) continue;
        if (i->value->kind == TM_YAML_MAP) {
            count_keys(c, i->value, path, file);
            continue;
        }
        c->keys++;
        if (tm_foreign_row(c->framework, path)) continue;
        c->unknown++;
        print_message("%s has no row for '%s' (%s)\n", c->framework->name, path, file);
    }
}

static void count_file(census *c, const char *path)
{
    tm_text        bytes = { 0 };
    const tm_yaml *root = NULL;
    tm_error       err = { 0 };
    tm_arena      *arena = tm_arena_create();
    if (tm_file_read(path, 1 << 20, &bytes, &err) != TM_OK ||
        tm_yaml_parse(arena, bytes.data, bytes.length, path, &root, &err) != TM_OK)
        fail_msg("%s", err.text);
    if (root) count_keys(c, root, "", path);
    c->files++;
    tm_text_fini(&bytes);
    tm_arena_destroy(arena);
}

static void count_folder(census *c, const char *folder)
{
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char        path[1400];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        if (d->d_name[0] == '.' || stat(path, &info) != 0) continue;
        if (S_ISDIR(info.st_mode))
            count_folder(c, path);
        else if (strstr(d->d_name, ".yaml"))
            count_file(c, path);
    }
    if (dir) closedir(dir);
}

static void every_key_of_their_presets_has_a_row(void **state)
{
    int models = 0;
    (void)state;
    if (!outside("primus/primus/configs")) skip();
    for (int k = 0; k < 2; k++) {
        census c = { .framework = k ? &tm_framework_torchtitan : &tm_framework_megatron };
        char   folder[1200];
        for (int m = 0; m < 2; m++) {
            snprintf(folder, sizeof folder, "%s/%s/%s", outside("primus/primus/configs"), m ? "models" : "modules",
                     c.framework->name);
            count_folder(&c, folder);
            if (m == 0)
                count_file(&c, strcat(strcpy(folder, outside("primus/primus/configs")), "/modules/module_base.yaml"));
        }
        print_message("%s: %d keys in %d files\n", c.framework->name, c.keys, c.files);
        models += c.files;
        assert_int_equal(c.unknown, 0);
        assert_true(c.keys > (k ? 200 : 1000));
    }
    assert_true(models >= 112);
}

/* What each example plans to, alone and in its tree; 0: refused by the name of its family. */
static const struct {
    const char *file, *family;
    int64_t     parameters;
} examples[] = {
    { "megatron/configs/MI300X/deepseek_v2_lite-BF16-pretrain.yaml", "deepseek", 0 },
    { "megatron/configs/MI300X/gpt_oss_20B-BF16-pretrain.yaml", "GPT-OSS", 0 },
    { "megatron/configs/MI300X/llama3.1_70B-FP8-pretrain.yaml", NULL, 70553706496 },
    { "megatron/configs/MI300X/llama3.1_8B-BF16-pretrain.yaml", NULL, 8030261248 },
    { "megatron/configs/MI300X/mamba_370M-pretrain.yaml", "Mamba", 0 },
    { "megatron/configs/MI300X/mixtral_8x7B_v0.1-BF16-pretrain.yaml", "Mixtral", 46702792704 },
    { "megatron/configs/MI300X/qwen2.5_7B-BF16-pretrain.yaml", NULL, 7615487488 }, /* it has no biases there */
    { "megatron/configs/MI300X/qwen3_8B-BF16-pretrain.yaml", NULL, 8190726144 },   /* nor norms of query and key */
    { "megatron/configs/MI355X/diffusion/flux_535m_pretrain.yaml", NULL, 535318336 },
    { "megatron/configs/MI355X/llama2_70B-FP8-pretrain.yaml", NULL, 68976648192 },
    { "torchtitan/configs/MI300X/deepseek_v3_16b-BF16-pretrain.yaml", "DeepSeek-V3", 0 },
    { "torchtitan/configs/MI300X/gpt_oss_20B-BF16-pretrain.yaml", "GPT-OSS", 0 },
    { "torchtitan/configs/MI300X/llama3.1_8B-BF16-pretrain.yaml", NULL, 8030261248 },
    { "torchtitan/configs/MI300X/llama3.1_8B-FP8-pretrain.yaml", NULL, 8030261248 },
    { "torchtitan/configs/MI300X/qwen3_0.6B-pretrain.yaml", NULL, 596049920 },
    { "torchtitan/configs/MI355X/llama3.1_70B-FP8-pretrain.yaml", NULL, 70553706496 },
};

static void copy_file(const char *from, const char *to)
{
    tm_text  bytes = { 0 };
    tm_error err = { 0 };
    if (tm_file_read(from, 1 << 20, &bytes, &err) != TM_OK ||
        tm_file_write(to, bytes.data, bytes.length, &err) != TM_OK)
        fail_msg("%s", err.text);
    tm_text_fini(&bytes);
}

static void their_examples_plan_or_name_their_family(void **state)
{
    fixture *f = *state;
    if (!outside("primus/examples")) skip();
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        char in_tree[1400], alone[1400];
        snprintf(in_tree, sizeof in_tree, "%s/%s", outside("primus/examples"), examples[i].file);
        snprintf(alone, sizeof alone, "%s/%s", f->folder, strrchr(examples[i].file, '/') + 1);
        copy_file(in_tree, alone);
        for (int single = 0; single < 2; single++) {
            tm_status st = try(f, single ? alone : in_tree, true, 0, NULL);
            /* "family X" is not built; a key "is not built for the X family" */
            char      family[80], other[80];
            snprintf(family, sizeof family, "family %s", examples[i].family ? examples[i].family : "-");
            snprintf(other, sizeof other, "is not built for the %s family", examples[i].family ? examples[i].family : "-");
            if (st != TM_OK && !(examples[i].family && (strstr(f->err.text, family) || strstr(f->err.text, other))))
                fail_msg("%s: %s", examples[i].file, f->err.text);
            if (st != TM_OK || !examples[i].parameters) continue;
            tm_model_shape planned;
            if (tm_model_shape_read(f->config, &planned, &f->err) != TM_OK)
                fail_msg("%s: %s", examples[i].file, f->err.text);
            if (tm_model_parameters(&planned) != examples[i].parameters)
                fail_msg("%s: %lld parameters", single ? alone : in_tree, (long long)tm_model_parameters(&planned));
            assert_text(f, "training.dtype", "bfloat16");
        }
    }
}

static void their_job_files_recipes_and_models_load(void **state)
{
    static const struct {
        const char *file, *family; /* NULL: plans */
    } files[] = {
        { "torchtitan/llama3_llama3_8b.toml", NULL },
        { "torchtitan/llama3_debug_model.toml", NULL },
        { "torchtitan/deepseek_v3_deepseek_v3_16b.toml", "DeepSeek-V3" },
        { "torchtitan/flux_flux_schnell_model.toml", NULL },
        { "torchtune/llama2_70B_lora.yaml", NULL },
        { "torchtune/llama2_7B_qlora_single_device.yaml", NULL },
        { "torchtune/llama3_1_70B_full.yaml", NULL },
        { "torchtune/llama3_1_8B_lora_single_device.yaml", NULL },
        { "pytorch-training-benchmark/llama-3.1-8b-4k.json", NULL },
        { "pytorch-training-benchmark/mistral-7b-v0.1.json", NULL },
        { "pytorch-training-benchmark/llama_3_1_70b_lora_finetune_recipe.yaml", NULL },
    };
    fixture *f = *state;
    if (!outside("torchtitan") || !outside("torchtune") || !outside("pytorch-training-benchmark")) skip();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        tm_status st = try(f, outside(files[i].file), true, 0, NULL);
        if (st != TM_OK && !(files[i].family && strstr(f->err.text, files[i].family)))
            fail_msg("%s: %s", files[i].file, f->err.text);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(presets_are_found_above_the_file),
        TEST(the_command_line_speaks_their_language),
        TEST(a_single_file_works),
        TEST(a_path_of_presets_can_be_given),
        TEST(what_changes_the_computation_is_refused_by_name),
        TEST(families_are_refused_by_their_name),
        TEST(everything_wrong_is_told_at_once),
        TEST(job_files_of_torchtitan_load),
        TEST(wrong_toml_is_refused_with_its_line),
        TEST(every_form_of_toml_is_read),
        TEST(recipes_of_torchtune_load),
        TEST(models_of_pytorch_training_benchmark_load),
        TEST(every_row_is_sound),
        TEST(every_key_of_their_presets_has_a_row),
        TEST(their_examples_plan_or_name_their_family),
        TEST(their_job_files_recipes_and_models_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
