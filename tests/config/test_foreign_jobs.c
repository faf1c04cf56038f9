/* SPDX-License-Identifier: Apache-2.0 */
/* Job files of TorchTitan, the TOML that they are written in, and model files of pytorch-training-benchmark. */
#include "config/toml.h"
#include "config/yaml.h"
#include "support/foreign.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

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
    test_foreign_refuse(f, test_foreign_put(f, "j.toml", "[training]\nstepz = 4\n"),
                        "j.toml:2); did you mean 'training.steps'?");
    test_foreign_refuse(f, test_foreign_put(f, "j.toml", "[primus_turbo]\nenable_attention_float8 = true\n"),
                        "attention in float8");
    test_foreign_refuse(f, test_foreign_put(f, "j.toml", "[hf_transformers]\nmodel = \"a/b\"\n"),
                        "a model of the package transformers");
    test_foreign_refuse(f, test_foreign_put(f, "j.toml", "[checkpoint]\ninitial_load_dequantize = true\n"),
                        "loading model directories");
    /* a key of another section is meant only where the section is wrong, not where it is another thing */
    test_foreign_refuse(f, test_foreign_put(f, "j.toml", "[trainig]\nsteps = 4\n"),
                        "j.toml:2); did you mean 'training.steps'?");
    test_foreign_refuse(f, test_foreign_put(f, "j.toml", "[lr_scheduler]\nlr = 4\n"), "did you mean 'optimizer.lr'?");
    test_foreign_refuse(f, test_foreign_put(f, "j.toml", "[rlhf_config]\npad_token = 4\n"),
                        "j.toml:2); `trainmark keys");
    test_foreign_refuse(f, test_foreign_put(f, "j.toml", "[hf_models]\nmodel = 4\n"), "j.toml:2); `trainmark keys");
}

TEST(job_files_ask_for_what_is_not_built)
{
#define HELD_OUT "[validation]\nenable = true\ndataset = \"c4_validation\"\n"
    static const struct {
        const char *lines, *says; /* NULL: accepted */
    } cases[] = {
        { "[optimizer]\nstate_dtype = \"bfloat16\"\n", "moments in another format" },
        { "[optimizer]\nstate_dtype = \"float32\"\n", NULL },
        { "[sft_config]\npad_token_id = 4\n", "fine-tuning by this experiment" },
        { "[memory_estimation]\nenabled = true\n", "an estimate instead of training" },
        { "[memory_estimation]\nenabled = false\ndisable_fake_mode = true\n", NULL },
        { "[comm]\nmode = \"fake_backend\"\n", "a run that only imitates devices" },
        { "[comm]\ninit_timeout_seconds = 9\n", NULL },
        { "[checkpoint]\nenable = true\nload_only = true\n", "loading without saving" },
        { "[checkpoint]\nload_only = true\n", NULL },
        { "[debug]\nenable_nan_tracker = true\nnan_tracker_verbose = false\n", NULL },
        { HELD_OUT, NULL },
        { HELD_OUT "[data]\npath = \"x\"\n", "a data set that is not downloaded; leave it out" },
        { HELD_OUT "[data]\npath = \"x\"\nsource = \"megatron\"\nvalidation_path = \"y\"\n", NULL },
        { HELD_OUT "dataset_path = \"y\"\n[data]\npath = \"x\"\nsource = \"megatron\"\n", NULL },
    };
    test_foreign *f = *test_state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n%s", cases[i].lines);
        const char *mock[] = { "--training.mock_data", strstr(text, "[data]") ? "false" : "true" };
        tm_status   st = test_foreign_load(f, test_foreign_put(f, "j.toml", text), false, 2, mock);
        bool        right = cases[i].says ? st == TM_UNSUPPORTED && strstr(f->err.text, cases[i].says) : st == TM_OK;
        if (!right) fail_msg("%s: status %d: %s", cases[i].lines, (int)st, f->err.text);
    }
}

TEST(wrong_toml_is_refused_with_its_line)
{
    static const char *const cases[][2] = {
        { "a = 1\na = 2\n", "x.toml:2: duplicate key 'a', first given in line 1" },
        { "[a]\n[b]\n[a]\n", "x.toml:3: duplicate key 'a'" },
        { "a = {b = 1}\n[a.c]\n", "x.toml:2: duplicate key 'a'" },
        { "a = hello\n", "x.toml:1: not valid TOML: a value is expected; strings need quotes" },
        { "a = \"b\n", "no closing quote" },
        { "a = \"\\q\"\n", "unknown escape" },
        { "a = \"\\ud800\"\n", "unknown character" },
        { "\n\na 1\n", "x.toml:3: not valid TOML: '=' is expected" },
        { "a = 1 2\n", "there is more text after the value" },
        { "[a\n", "']' is expected" },
        { "a = [1, 2\n", "',' or ']' is expected" },
        { "a = {b = 1\n", "',' or '}' is expected" },
        { "= 1\n", "a key is expected" },
        { "a =\n", "x.toml:1: not valid TOML" },
        { "a = \xff\n", "wanted: UTF-8" },
        { "# only this\n", "is empty" },
    };
    test_foreign *f = *test_state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        test_foreign_refuse(f, test_foreign_put(f, "x.toml", cases[i][0]), cases[i][1]);
    tm_text deep = { 0 };
    tm_text_add(&deep, "a = ");
    for (int i = 0; i < 2000; i++) tm_text_add(&deep, "[");
    test_foreign_refuse(f, test_foreign_put(f, "x.toml", deep.data), "nested deeper than");
    tm_text_fini(&deep);
}

TEST(every_form_of_toml_is_read)
{
    static const char text[] =
        "a.b = 0x1F\n'q u' = 1\n[[t]]\nx = -1_0\n[[t]]\nx = \"\"\"\nl1\\\n   l2\"\"\"\n[t.u]\nz = '''it's'''\n"
        "[e]\nm = { p = [1, 2.5e-3, true], q.r = \"\\u00e9\\t\" }\nd = 2026-01-02\nn = []\n";
    const tm_yaml *root = NULL;
    tm_error       err = { 0 };
    tm_arena      *arena = tm_arena_create();
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
