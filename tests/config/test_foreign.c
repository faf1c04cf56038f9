/* SPDX-License-Identifier: Apache-2.0 */
/* Files of other programs: presets that are found, command lines, axes. Real ones: test_foreign_files.c, rows:
 * foreign.txt, files.txt. */
#include "support/folder.h"
#include "support/foreign.h"
#include "support/full_config.h"

#include "support/test.h"

#define TOP "work_group: ${TEAM:amd}\nuser_name: b\nexp_name: c\nworkspace: ./o\nmodules:\n  pre_trainer:\n"
#define MEGATRON TOP "    framework: megatron\n    config: pre_trainer.yaml\n    model: "
#define MOCK "    overrides:\n      mock_data: true\n"

/* A model in a tree of presets, and an experiment below it. */
static const char *plant_tree(test_foreign *f)
{
    test_foreign_put(f, "primus/configs/models/megatron/small.yaml",
                     "hidden_dropout: 0.0\nattention_dropout: 0.0\nnormalization: RMSNorm\nnum_query_groups: 2\n"
                     "position_embedding_type: rope\nnum_layers: 2\nhidden_size: 64\nffn_hidden_size: 96\n"
                     "num_attention_heads: 4\nvocab_size: 130\nmax_position_embeddings: 128\n");
    return test_foreign_put(f, "examples/megatron/configs/X/small.yaml",
                            MEGATRON "small.yaml\n" MOCK
                                     "      seq_length: 64\n      eval_iters: 0\n      lr_warmup_iters: 2\n");
}

TEST(the_command_line_speaks_their_language)
{
    test_foreign *f = *test_state;
    const char   *words[] = { "--train_iters", "7", "--group_query_attention", "true", "--model.init_std", "0.5" };
    if (test_foreign_load(f, plant_tree(f), false, 4, words) != TM_OK) fail_msg("%s", f->err.text);
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
    snprintf(path, sizeof path, "%s",
             test_file_write(elsewhere, "x.yaml",
                             MEGATRON "small.yaml\n" MOCK
                                      "      seq_length: 64\n      eval_iters: 0\n      lr_warmup_iters: 2\n"));
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

/* --- FluxBenchmark's launcher: how Hydra puts files together, lists as axes -------------------------------------- */

#define DEFAULTS                                                                                                       \
    "defaults:\n  - launcher: defaults\n  - accelerate_config: fsdp_config\n  - train_args: flux-dev\n  - _self_\n"

static const char *const mock[] = { "--training.mock_data", "true" };

/* As generate_combinations of the launcher has it: every list, whatever its key; a list of one value is no axis. */
TEST(lists_are_axes)
{
    test_foreign *f = *test_state;
    size_t        n;
    const char   *path =
        test_foreign_put(f, "config/sweep.yaml",
                         DEFAULTS "accelerate_config:\n  mixed_precision: [bf16, 'no']\n  dynamo_config:\n"
                                  "    dynamo_backend: ['no', inductor]\ntrain_args:\n"
                                  "  train_batch_size:\n    - 1\n    - 10\n  num_iterations: [100]\n");
    test_foreign_renew(f);
    tm_config_allow_axes(f->config, true);
    assert_int_equal(tm_config_load_file(f->config, path, &f->err), TM_OK);
    const tm_config_axis *axes = tm_config_axes(f->config, &n);
    assert_int_equal(n, 2);
    assert_string_equal(axes[0].key, "accelerate_config.mixed_precision");
    assert_string_equal(axes[0].values[0], "bf16");
    assert_string_equal(axes[0].values[1], "no");
    assert_string_equal(axes[1].key, "train_args.train_batch_size");
    assert_string_equal(axes[1].row, "training.local_batch_size");
    assert_int_equal(axes[1].n, 2);
}

/* Its own files, by names that are no paths; files in the place of groups do not count. */
TEST(files_that_are_built_in)
{
    test_foreign *f = *test_state;
    size_t        n;
    if (test_foreign_load(f, "fluxbenchmark:single_run.yaml", false, 2, mock) != TM_OK) fail_msg("%s", f->err.text);
    test_foreign_has(f, "training.local_batch_size", "10");
    test_foreign_has(f, "launch.gpus_per_node", "8");
    test_foreign_renew(f);
    tm_config_allow_axes(f->config, true);
    assert_int_equal(tm_config_load_file(f->config, "fluxbenchmark:flux_benchmark.yaml", &f->err), TM_OK);
    const tm_config_axis *axes = tm_config_axes(f->config, &n);
    assert_int_equal(n, 1);
    assert_int_equal(axes[0].n, 3);
    assert_int_equal(test_foreign_load(f, "fluxbenchmark:other.yaml", false, 2, mock), TM_INVALID);
}

/* The command line alone, without a file. */
TEST(groups_without_a_file)
{
    test_foreign *f = *test_state;
    char         *good[] = { "train_args=flux-dev" }, *bad[] = { "train_args=mochi-1" };
    test_foreign_renew(f);
    assert_int_equal(tm_config_apply_arguments(f->config, 1, bad, &f->err), TM_OK);
    assert_int_equal(tm_config_finish(f->config, &f->err), TM_UNSUPPORTED);
    assert_non_null(strstr(f->err.text, "name that file: trainmark run config/FILE.yaml"));
    test_foreign_renew(f);
    assert_int_equal(tm_config_apply_arguments(f->config, 1, good, &f->err), TM_OK);
    if (tm_config_finish(f->config, &f->err) != TM_OK && strstr(f->err.text, "train_args")) fail_msg("%s", f->err.text);
}

TEST_FIXTURE(test_foreign_set_up, test_foreign_tear_down)
