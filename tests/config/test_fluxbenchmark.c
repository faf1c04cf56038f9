/* SPDX-License-Identifier: Apache-2.0 */
/* Files of FluxBenchmark's launcher: how Hydra puts them together, what their keys become, lists as axes. The files are
 * made here, in the form of theirs. */
#include "config/internal.h"
#include "support/foreign.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

#define DEFAULTS                                                                                                       \
    "defaults:\n  - launcher: defaults\n  - accelerate_config: fsdp_config\n  - train_args: flux-dev\n  - _self_\n"

static const char *const mock[] = { "--training.mock_data", "true" };

/* Without the files of the groups their values are built in; what the file says counts more. */
TEST(a_single_file_has_its_groups)
{
    test_foreign *f = *test_state;
    const char   *path = test_foreign_put(f, "config/one.yaml",
                                          DEFAULTS "train_args:\n  num_iterations: 7\nhydra:\n  run:\n    dir: "
                                                     "${train_args.logging_dir}\n");
    if (test_foreign_load(f, path, false, 2, mock) != TM_OK) fail_msg("%s", f->err.text);
    static const char *const wanted[][2] = {
        { "model.n_single_layers", "38" },
        { "model.image_size", "512" },
        { "training.local_batch_size", "10" },
        { "training.steps", "7" },
        { "training.dtype", "bfloat16" },
        { "training.regime", "pure" },
        { "training.max_norm", "0" },
        { "training.grad_accumulation", "1" },
        { "optimizer.lr", "1e-05" },
        { "optimizer.beta2", "0.999" },
        { "optimizer.weight_decay", "0" },
        { "debug.seed", "42" },
        { "data.flow_protocol", "fluxbenchmark" },
        { "data.source", "gaussians" },
        { "lr_scheduler.warmup_steps", "0" },
        { "lr_scheduler.decay_ratio", "0" },
        { "launch.gpus_per_node", "8" },
        { "parallelism.data_parallel_replicate_degree", "1" },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) test_foreign_has(f, wanted[i][0], wanted[i][1]);
}

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

TEST(values_become_ours)
{
    static const struct {
        const char *words[3], *key, *value;
    } cases[] = {
        { { "train_args.resolution=1024,1024" }, "model.image_size", "1024" },
        { { "+train_args.learning_rate=1e-6" }, "optimizer.lr", "1e-06" },
        { { "train_args.gradient_checkpointing=0" }, "activation_checkpoint.mode", "none" },
        { { "train_args.gradient_checkpointing=0.05" }, "activation_checkpoint.mode", "none" }, /* int(0.95) blocks */
        { { "train_args.gradient_checkpointing=1.0" }, "activation_checkpoint.mode", "full" },
        { { "train_args.gradient_checkpointing=0.5" }, "recompute_num_layers", "9" },
        { { "train_args.use_gradient_checkpointing=true" }, "activation_checkpoint.mode", "full" },
        { { "train_args.lr_scheduler=cosine", "train_args.lr_warmup_steps=5" }, "lr_scheduler.form", "torchtune" },
        { { "train_args.lr_scheduler=cosine", "train_args.lr_warmup_steps=5" }, "lr_scheduler.warmup_steps", "5" },
        { { "train_args.lr_scheduler=cosine" }, "lr_scheduler.warmup_steps", "500" },
        { { "train_args.lr_scheduler=linear", "train_args.lr_warmup_steps=5" }, "lr_scheduler.decay_type", "linear" },
        { { "train_args.lr_scheduler=constant_with_warmup", "train_args.lr_warmup_steps=5" },
          "lr_scheduler.decay_ratio",
          "0" },
        { { "train_args.lr_warmup_steps=5" }, "lr_scheduler.warmup_steps", "0" }, /* constant: without */
        { { "train_args.use_lora=true" }, "lora.rank", "8" },
        { { "train_args.use_lora=true", "train_args.lora_rank=16" }, "lora.alpha", "16" },
        { { "train_args.lora_rank=16" }, "lora.rank", "0" },
        { { "accelerate_config.mixed_precision=no" }, "training.dtype", "float32" },
        { { "accelerate_config.distributed_type=MULTI_GPU" }, "parallelism.data_parallel_shard_degree", "1" },
        { { "accelerate_config.fsdp_config.fsdp_sharding_strategy=NO_SHARD" },
          "parallelism.data_parallel_replicate_degree",
          "-1" },
        { { "accelerate_config.fsdp_config.fsdp_sharding_strategy=2" },
          "parallelism.data_parallel_shard_strategy",
          "optim_grads" },
        { { "accelerate_config.fsdp_config.fsdp_sharding_strategy=HYBRID_SHARD_ZERO2" },
          "parallelism.data_parallel_shard_strategy",
          "optim_grads" },
        { { "accelerate_config.num_processes=4" }, "launch.gpus_per_node", "4" },
        { { "train_args=flux-dev" }, "training.local_batch_size", "10" },
    };
    test_foreign *f = *test_state;
    const char   *path = test_foreign_put(f, "config/one.yaml", DEFAULTS);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *words[5] = { mock[0], mock[1], cases[i].words[0], cases[i].words[1] };
        if (test_foreign_load(f, path, false, cases[i].words[1] ? 4 : 3, words) != TM_OK)
            fail_msg("%s: %s", cases[i].words[0], f->err.text);
        test_foreign_has(f, cases[i].key, cases[i].value);
    }
}

TEST(what_is_not_done_is_refused)
{
    static const char *const cases[][2] = {
        { "train_args.model=mochi-1", "another model than flux-dev" },
        { "train_args.resolution=416,240", "images that are not square" },
        { "train_args.train_data_path=bghira/pseudo-camera-10k", "images of a hub are not encoded here" },
        { "train_args.shift=1", "set it to 3" },
        { "train_args.max_train_samples=5", "a limit of the samples" },
        { "train_args.validation_iteration=10", "images that are drawn in between" },
        { "train_args.lr_scheduler=polynomial", "wanted one of constant, constant_with_warmup, linear, cosine" },
        { "train_args.gradient_checkpointing=2", "a share of the blocks that is not 0 to 1" },
        { "train_args.nothing=2", "unknown key 'train_args.nothing'" },
        { "accelerate_config.mixed_precision=fp16", "wanted one of bf16, no" },
        { "accelerate_config.distributed_type=DEEPSPEED", "this way to divide the work" },
        { "accelerate_config.deepspeed_config.zero_stage=2", "give an accelerate_config with distributed_type FSDP" },
        { "accelerate_config.fsdp_config.fsdp_offload_params=true", "weights in the memory of the host" },
        { "accelerate_config.num_machines=3", "processes that do not divide by num_machines" },
        { "launcher.dry_run=true", "use --dry-run" },
        { "launcher.skip_larger_bs=false", "set it to true" },
    };
    static const char *const files[][2] = {
        { "defaults:\n  - train_args: flux-pro\n", "train_args/flux-pro.yaml'; check the name" },
        { "defaults:\n  - train_args: wan2_1-i2v\n", "another model than flux-dev" },
        { "defaults:\n  - _self_\n  - train_args: flux-dev\n", "_self_ must be the last one" },
        { "defaults:\n  - train_args: flux-dev\n  - override hydra/launcher: slurm\n", "wanted train_args" },
        { "train_args:\n  train_batch_size: ${launcher.x}\n", "references are not read; write the value" },
        { "train_args:\n  train_batch_size: [1, 2]\n", "found '1,2'" }, /* not in a sweep */
    };
    test_foreign *f = *test_state;
    const char   *path = test_foreign_put(f, "config/one.yaml", DEFAULTS);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool        data = strstr(cases[i][0], "data_path") != NULL;
        const char *words[] = { cases[i][0], mock[0], mock[1] };
        if (test_foreign_load(f, path, false, data ? 1 : 3, words) == TM_OK) fail_msg("%s is taken", cases[i][0]);
        if (!strstr(f->err.text, cases[i][1]))
            fail_msg("%s: '%s' does not say '%s'", cases[i][0], f->err.text, cases[i][1]);
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        test_foreign_refuse(f, test_foreign_put(f, "config/bad.yaml", files[i][0]), files[i][1]);
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

/* The form of its first release: cli_args, dotted keys, lists of one value everywhere. */
TEST(files_of_the_first_release)
{
    test_foreign *f = *test_state;
    const char   *path =
        test_foreign_put(f, "config/old.yaml",
                         "accelerate_config:\n  fsdp_config.fsdp_sharding_strategy:\n    - FULL_SHARD\n"
                         "dynamo_config.dynamo_backend:\n  - 'no'\ncli_args:\n  mixed_precision:\n    - bf16\n"
                         "  train_batch_size:\n    - 4\n  num_iterations:\n    - 9\n");
    if (test_foreign_load(f, path, false, 2, mock) != TM_OK) fail_msg("%s", f->err.text);
    test_foreign_has(f, "training.dtype", "bfloat16");
    test_foreign_has(f, "training.regime", "pure");
    test_foreign_has(f, "training.local_batch_size", "4");
    test_foreign_has(f, "training.steps", "9");
    test_foreign_has(f, "model.n_layers", "19");
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
