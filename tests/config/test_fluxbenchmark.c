/* SPDX-License-Identifier: Apache-2.0 */
/* Files of FluxBenchmark's launcher: how Hydra puts them together, lists as axes. Single keys: foreign.txt. The files
 * are made here, in the form of theirs. */
#include "config/internal.h"
#include "support/foreign.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

#define DEFAULTS                                                                                                       \
    "defaults:\n  - launcher: defaults\n  - accelerate_config: fsdp_config\n  - train_args: flux-dev\n  - _self_\n"

static const char *const mock[] = { "--training.mock_data", "true" };

/* Files of groups, and those that they name themselves. */
TEST(files_of_groups_come_first)
{
    test_foreign *f = *test_state;
    const char   *path = test_foreign_put(f, "config/two.yaml", DEFAULTS "train_args: {train_batch_size: 3}\n");
    test_foreign_put(f, "config/train_args/flux-dev.yaml",
                     "defaults: [base, _self_]\nmodel: flux-dev\nresolution: 256\n");
    test_foreign_put(f, "config/train_args/base.yaml",
                     "num_iterations: 11\nresolution: 1024\ntrain_batch_size: 2\n"
                     "logging_dir: out\nprofiling_logging_dir: ${.logging_dir}/p\n");
    test_foreign_put(f, "config/accelerate_config/fsdp_config.yaml",
                     "distributed_type: FSDP\nnum_machines: 2\nnum_processes: 16\nmixed_precision: 'no'\n"
                     "fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_offload_params: false}\n");
    test_foreign_put(f, "config/accelerate_config/other.yaml",
                     "distributed_type: FSDP\nmixed_precision: bf16\n"
                     "num_processes: 2\n");
    if (test_foreign_load(f, path, true, 2, mock) != TM_OK) fail_msg("%s", f->err.text);
    test_foreign_has(f, "training.steps", "11");
    test_foreign_has(f, "model.image_size", "256");
    test_foreign_has(f, "training.local_batch_size", "3");
    test_foreign_has(f, "training.dtype", "float32");
    test_foreign_has(f, "launch.nnodes", "2");
    test_foreign_has(f, "launch.gpus_per_node", "8");
    char *words[] = { "accelerate_config=other" };
    test_foreign_renew(f);
    tm_config_choose_groups(f->config, 1, words);
    assert_int_equal(tm_config_load_file(f->config, path, &f->err), TM_OK);
    assert_int_equal(tm_config_apply_arguments(f->config, 1, words, &f->err), TM_OK);
    assert_int_equal(tm_config_finish(f->config, &f->err), TM_UNSUPPORTED); /* the images */
    test_foreign_has(f, "training.dtype", "bfloat16");
    test_foreign_has(f, "launch.gpus_per_node", "2");
}

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
