/* SPDX-License-Identifier: Apache-2.0 */
/* config/frameworks/fluxbenchmark.c - files of FluxBenchmark's launcher: train_args (train.py), accelerate_config
 * (accelerate launch), launcher and hydra.
 *
 * The values that train.py takes where a file says nothing are the fallbacks. Its model is cast to the type of
 * mixed_precision as a whole, moments follow it: training.regime pure. The schedule is stepped once for each process,
 * and its warm-up is counted so: lr_warmup_steps are steps. A list is an axis of a sweep. */
#include "config/foreign.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

/* Files of the groups on a command line, where no file of the launcher was read (config/hydra.c reads them else). */
static const char *chosen_group(const tm_config *config, const char *value)
{
    static const char *const known[] = { "flux-dev", "fsdp_config", "defaults" };
    if (config->framework) return "";
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(value, known[i]) == 0) return "";
    return NULL;
}

static const char *preset_of(const tm_config *config, const char *value)
{
    (void)config;
    return strcmp(value, "flux-dev") == 0 ? "flux.1_dev" : NULL;
}

/* "512", "512,512": squares. */
static const char *side_of(const tm_config *config, const char *value)
{
    const char *comma = strchr(value, ',');
    if (!comma) return value;
    const char *width = tm_arena_text_n(config->arena, value, (size_t)(comma - value));
    return strtol(width, NULL, 10) == strtol(comma + 1, NULL, 10) ? width : NULL;
}

/* The first int(share * 19) of the double blocks; 1: all blocks. As the number of blocks, "all" or "none". */
static const char *checkpointed(const tm_config *config, const char *value)
{
    enum { DOUBLE_BLOCKS = 19 };
    char  *end;
    double share = strtod(value, &end);
    if (*end || end == value || !(share >= 0 && share <= 1)) return NULL;
    if (share >= 1) return "all";
    int blocks = (int)(DOUBLE_BLOCKS * share);
    return blocks == 0 ? "none" : tm_arena_format(config->arena, "%d", blocks);
}

static bool is_on_here(const tm_config *config, const char *key)
{
    return tm_config_text(config, key) && strcmp(tm_config_text(config, key), "true") == 0;
}

/* Encoded images in a folder; nothing to give where our own keys say what the data is. */
static const char *images_of(const tm_config *config, const char *value)
{
    if (is_on_here(config, "training.mock_data") || tm_config_is_set(config, "data.path") ||
        tm_config_is_set(config, "data.source"))
        return "#given";
    return value[0] != '~' && tm_file_exists(value) ? value : NULL;
}

/* HYBRID_SHARD: the processes of a machine share the model, each machine has a copy. */
static const char *copies_of(const tm_config *config, const char *value)
{
    static const char *const names[] = { "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                         "HYBRID_SHARD_ZERO2" };
    const char              *machines = tm_foreign_text(config, "accelerate_config.num_machines");
    long                     n = machines ? strtol(machines, NULL, 10) : 1;
    if (value[0] >= '1' && value[0] <= '5' && !value[1]) value = names[value[0] - '1'];
    if (n <= 1 && strcmp(value, "HYBRID_SHARD") == 0) return "FULL_SHARD";
    if (n <= 1 && strcmp(value, "HYBRID_SHARD_ZERO2") == 0) return "SHARD_GRAD_OP";
    return value;
}

/* num_processes counts those of all machines. */
static const char *processes_of(const tm_config *config, const char *value)
{
    const char *machines = tm_foreign_text(config, "accelerate_config.num_machines");
    char       *end;
    long        all = strtol(value, &end, 10), n = machines ? strtol(machines, NULL, 10) : 1;
    if (*end || end == value || n < 1 || all < 1 || all % n != 0) return NULL;
    return tm_arena_format(config->arena, "%ld", all / n);
}

const char *tm_fluxbenchmark_weights(const tm_config *config)
{
    return tm_foreign_given(config, "train_args.model_path");
}

#define TRAIN(kind, key, ...) kind("train_args." key, __VA_ARGS__)
#define ACCELERATE(kind, key, ...) kind("accelerate_config." key, __VA_ARGS__)
#define PRECISIONS "bf16:training.dtype=bfloat16;training.regime=pure|no:training.dtype=float32"
#define ALL_BLOCKS "activation_checkpoint.mode=full"
#define RATE_WITH(forms) .with = "train_args.lr_scheduler=" forms
#define LORA .with = "train_args.use_lora"
#define FSDP .with = "accelerate_config.distributed_type=FSDP"
#define LAUNCHES(key) ACCELERATE(HARMLESS, key, "how processes are started and found")
#define PICTURES(key) TRAIN(HARMLESS, key, "see train_args.validation_iteration")

/* clang-format off */
static const tm_foreign_key keys[] = {
    MAPPED("train_args", "model", .convert = chosen_group, .words = "this file of config/train_args, without a file of "
           "the launcher; name that file: trainmark run config/FILE.yaml train_args=NAME"),
    MAPPED("accelerate_config", "model", .convert = chosen_group, .words = "this file of config/accelerate_config, "
           "without a file of the launcher; name that file: trainmark run config/FILE.yaml accelerate_config=NAME"),
    MAPPED("launcher", "model", .convert = chosen_group, .words = "this file of config/launcher"),
    TRAIN(MAPPED, "model", "model", .convert = preset_of, .fallback = "flux-dev",
          .words = "another model than flux-dev, which is FLUX.1-dev"),
    TRAIN(HARMLESS, "model_path", "the directory of the weights, as model.hf_assets_path"),
    TRAIN(MAPPED, "train_data_path", "#given:|*:data.source=latents;data.path=*", .convert = images_of, .plans = true,
          .fallback = "bghira/pseudo-camera-10k",
          .words = "images of a hub are not encoded here; give --training.mock_data true, or encoded ones (docs/flux.md) "
                   "as --data.source latents --data.path DIR"),
    TRAIN(UNBUILT, "max_train_samples", "-1|0|null", "a limit of the samples"),
    TRAIN(MAPPED, "train_batch_size", "training.local_batch_size", .fallback = "1"),
    TRAIN(MAPPED, "gradient_accumulation_steps", "training.grad_accumulation", .fallback = "1"),
    TRAIN(MAPPED, "num_iterations",
          "training.steps=*;data.flow_protocol=fluxbenchmark;metrics.log_freq=1;optimizer.name=AdamW;"
          "validation.enable=false", .fallback = "100"),
    TRAIN(MAPPED, "seed", "debug.seed", .fallback = "42"),
    TRAIN(MAPPED, "resolution", "model.image_size", .convert = side_of, .fallback = "512",
          .words = "images that are not square"),
    TRAIN(MAPPED, "learning_rate", "optimizer.lr", .fallback = "1e-5"),
    TRAIN(MAPPED, "lr_scheduler",
          "constant:lr_scheduler.warmup_steps=0;lr_scheduler.decay_ratio=0|"
          "constant_with_warmup:lr_scheduler.form=megatron;lr_scheduler.decay_ratio=0|"
          "linear:lr_scheduler.form=megatron;lr_scheduler.decay_type=linear|"
          "cosine:lr_scheduler.form=torchtune", .fallback = "constant", .words = "this schedule"),
    TRAIN(MAPPED, "lr_warmup_steps", "lr_scheduler.warmup_steps", .fallback = "500",
          RATE_WITH("constant_with_warmup/linear/cosine")),
    TRAIN(HARMLESS, "scale_lr", "train.py does not read it"),
    TRAIN(EQUAL, "shift", "3", "data.flow_protocol fluxbenchmark has shift 3"),
    TRAIN(MAPPED, "adam_beta1", "optimizer.beta1", .fallback = "0.9"),
    TRAIN(MAPPED, "adam_beta2", "optimizer.beta2", .fallback = "0.999"),
    TRAIN(MAPPED, "adam_weight_decay", "optimizer.weight_decay", .fallback = "0"),
    TRAIN(MAPPED, "adam_epsilon", "optimizer.eps", .fallback = "1e-8"),
    TRAIN(MAPPED, "max_grad_norm", "training.max_norm", .fallback = "0"),
    TRAIN(MAPPED, "mixed_precision", PRECISIONS, .words = "this type"),
    TRAIN(HARMLESS, "use_lora", "see train_args.lora_rank"),
    TRAIN(MAPPED, "lora_rank",
          "lora.rank=*;lora.alpha=*;lora.init=gaussian;lora.targets=attn.to_k,attn.to_q,attn.to_v,attn.to_out.0,"
          "attn.add_k_proj,attn.add_q_proj,attn.add_v_proj,attn.to_add_out,ff.net.0.proj,ff.net.2,ff_context.net.0.proj,"
          "ff_context.net.2", .fallback = "8", LORA),
    TRAIN(MAPPED, "gradient_checkpointing",
          "none:|all:" ALL_BLOCKS "|*:" ALL_BLOCKS ";recompute_method=block;recompute_num_layers=*",
          .convert = checkpointed, .words = "a share of the blocks that is not 0 to 1"),
    TRAIN(MAPPED, "use_gradient_checkpointing", "true:" ALL_BLOCKS "|false:", .words = "this value"),
    TRAIN(HARMLESS, "num_frames", "of models of videos"),
    TRAIN(UNBUILT, "validation_iteration", "-1|null", "images that are drawn in between"),
    PICTURES("validation_prompts"), PICTURES("validation_guidance_scale"), PICTURES("validation_inference_steps"),
    TRAIN(HARMLESS, "output_dir", "use --out for the run directory"),
    TRAIN(HARMLESS, "logging_dir", "use --out for the run directory"),
    TRAIN(HARMLESS, "cache_dir", "encoded images are read from data.path"),
    TRAIN(HARMLESS, "use_cache", "encoded images are read from data.path"),
    TRAIN(HARMLESS, "center_crop", "images are encoded beforehand"),
    TRAIN(HARMLESS, "dataloader_num_workers", "of the loader"),
    TRAIN(HARMLESS, "local_rank", "set by launchers"),
    TRAIN(HARMLESS, "report_to", "logging"),
    TRAIN(HARMLESS, "show_progress_bar", "logging"),
    TRAIN(HARMLESS, "profiling_step", "profiling"),
    TRAIN(HARMLESS, "profiling_logging_dir", "profiling"),
    TRAIN(SPEED, "substitute_sdpa_with_flash_attn", "attention has one kernel for a device"),

    ACCELERATE(MAPPED, "mixed_precision", PRECISIONS, .fallback = "no", .words = "this type"),
    ACCELERATE(MAPPED, "distributed_type",
               "FSDP:|NO:|MULTI_GPU:parallelism.data_parallel_replicate_degree=-1;parallelism.data_parallel_shard_degree=1",
               .words = "this way to divide the work"),
    ACCELERATE(MAPPED, "fsdp_config.fsdp_sharding_strategy",
               "FULL_SHARD:parallelism.data_parallel_replicate_degree=1|"
               "SHARD_GRAD_OP:parallelism.data_parallel_shard_strategy=optim_grads|"
               "NO_SHARD:parallelism.data_parallel_replicate_degree=-1;parallelism.data_parallel_shard_degree=1",
               .convert = copies_of, .words = "on several machines this strategy; give "
               "--parallelism.data_parallel_replicate_degree MACHINES and fsdp_sharding_strategy FULL_SHARD", FSDP),
    ACCELERATE(MAPPED, "fsdp_config.fsdp_activation_checkpointing", "true:" ALL_BLOCKS "|false:", .words = "this value",
               FSDP),
    ACCELERATE(UNBUILT, "fsdp_config.fsdp_offload_params", "false", "weights in the memory of the host", FSDP),
    ACCELERATE(SPEED, "fsdp_config.*", "how FSDP gathers weights"),
    ACCELERATE(SPEED, "dynamo_config.*", "steps are always compiled into programs"),
    ACCELERATE(MAPPED, "num_machines", "launch.nnodes"),
    ACCELERATE(MAPPED, "num_processes", "launch.gpus_per_node", .convert = processes_of,
               .words = "processes that do not divide by num_machines"),
    ACCELERATE(MAPPED, "machine_rank", "launch.node_rank"),
    ACCELERATE(MAPPED, "main_process_ip", "launch.master_addr"),
    ACCELERATE(MAPPED, "main_process_port", "launch.master_port"),
    ACCELERATE(EQUAL, "use_cpu", "false", "--device says what computes"),
    ACCELERATE(UNBUILT, "fp8_config.*", "", "float8 of Transformer Engine; see --fp8"),
    ACCELERATE(UNBUILT, "deepspeed_config.*", "", "DeepSpeed; give an accelerate_config with distributed_type FSDP"),
    ACCELERATE(UNBUILT, "megatron_lm_config.*", "", "Megatron-LM below accelerate"),
    ACCELERATE(HARMLESS, "debug", "logging"),
    LAUNCHES("compute_environment"), LAUNCHES("enable_cpu_affinity"), LAUNCHES("gpu_ids"), LAUNCHES("rdzv_backend"),
    LAUNCHES("same_network"), LAUNCHES("main_training_function"), LAUNCHES("downcast_bf16"), LAUNCHES("tpu_*"),

    EQUAL("launcher.dry_run", "false", "use --dry-run"),
    EQUAL("launcher.show_config", "false", "use --print-config"),
    EQUAL("launcher.warmup_steps", "5", "the summary of a sweep leaves out the first 5 steps"),
    HARMLESS("launcher.resume", "the same command resumes a sweep where it stopped"),
    EQUAL("launcher.skip_larger_bs", "true", "a sweep does not try what is larger than what did not fit"),
    HARMLESS("hydra.*", "use --out for the run directory"),
    HARMLESS("dynamo_config.*", "stands beside accelerate_config, where its program reads no key"),
};
/* clang-format on */

const tm_framework tm_framework_fluxbenchmark = {
    .name = "fluxbenchmark",
    .what = "files of FluxBenchmark's launcher",
    .keys = keys,
    .n = sizeof keys / sizeof keys[0],
    .sweeps = true,
};
