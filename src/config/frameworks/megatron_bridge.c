/* SPDX-License-Identifier: Apache-2.0 */
/* config/frameworks/megatron_bridge.c - post-training by recipes of Megatron-Bridge, as Primus calls them.
 *
 * A recipe is a Python function (recipe, flavor) with arguments and constants of its own: what it does not take, its
 * program drops without a word. Here a row that is `.own` counts where an experiment or a command says it, and not
 * where only the trainer's preset does, whose values no recipe sees. Fallbacks are the recipe's: "a|b", a of the
 * recipes that fine-tune any model (*_finetune_config), b of the one of the benchmark's LoRA (llama2_70b_lora_config).
 */
#include "config/frameworks/megatron_values.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Recipes, and the rank and alpha of their adapters. */
static const struct {
    const char *flavor, *rank, *alpha;
} recipes[] = {
    { "llama2_70b_lora_config", "16", "32" }, /* of the benchmark */
    { "llama2_70b_lora_mxfp4_config", "16", "32" }, { "qwen3_30b_a3b_finetune_config", "8", "16" }, /* of a mixture */
    { "llama32_1b_finetune_config", "32", "32" },   { "llama32_3b_finetune_config", "32", "32" },
    { "llama3_8b_finetune_config", "8", "16" },     { "llama31_8b_finetune_config", "8", "16" },
    { "llama3_70b_finetune_config", "16", "32" },   { "llama31_70b_finetune_config", "16", "32" },
    { "qwen3_4b_finetune_config", "32", "32" },     { "qwen3_8b_finetune_config", "32", "32" },
    { "qwen3_14b_finetune_config", "32", "32" },    { "qwen3_32b_finetune_config", "32", "32" },
};

/* Models by the last part of hf_path. */
static const char *const models[][2] = {
    { "Llama-2-7b-hf", "llama2_7B" },     { "Llama-2-13b-hf", "llama2_13B" },
    { "Llama-2-70b-hf", "llama2_70B" },   { "Meta-Llama-3-8B", "llama3_8B" },
    { "Meta-Llama-3-70B", "llama3_70B" }, { "Meta-Llama-3.1-8B", "llama3.1_8B" },
    { "Llama-3.1-8B", "llama3.1_8B" },    { "Meta-Llama-3.1-70B", "llama3.1_70B" },
    { "Llama-3.1-70B", "llama3.1_70B" },  { "Llama-3.2-1B", "llama3.2_1B" },
    { "Llama-3.2-3B", "llama3.2_3B" },    { "Llama-3.3-70B-Instruct", "llama3.3_70B" },
    { "Qwen3-4B", "qwen3_4B" },           { "Qwen3-8B", "qwen3_8B" },
    { "Qwen3-14B", "qwen3_14B" },         { "Qwen3-32B", "qwen3_32B" },
    { "Qwen3-30B-A3B", "qwen3_30B-A3B" },
};

const char *const *tm_megatron_bridge_model(const char *stem)
{
    static const char *const files[][3] = {
        { "llama2_7b_lora", "llama2_70b_lora_config", "meta-llama/Llama-2-7b-hf" },
        { "llama2_70b_lora", "llama2_70b_lora_config", "meta-llama/Llama-2-70b-hf" },
        { "llama31_70b", "llama31_70b_finetune_config", "meta-llama/Meta-Llama-3.1-70B" },
        { "llama2_70b_lora_mxfp4", "llama2_70b_lora_mxfp4_config", "meta-llama/Llama-2-70b-hf" },
        { "llama3_8b", "llama3_8b_finetune_config", "meta-llama/Meta-Llama-3-8B" },
        { "qwen3_30b_a3b", "qwen3_30b_a3b_finetune_config", "Qwen/Qwen3-30B-A3B" },
        { "qwen3_8b", "qwen3_8b_finetune_config", "Qwen/Qwen3-8B" },
        { "qwen3_32b", "qwen3_32b_finetune_config", "Qwen/Qwen3-32B" },
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (tm_names_equal(files[i][0], stem)) return &files[i][1];
    return NULL;
}

const char *const tm_megatron_bridge_trainer[] = {
    "train_iters",     "5000", "global_batch_size", "64",  "min_lr", "5e-7",
    "lr_warmup_iters", "100",  "eval_interval",     "100", NULL
};

/* The place of the recipe in the table, or -1. */
static int recipe_of(const tm_config *config)
{
    const char *flavor = tm_foreign_given(config, "flavor");
    for (size_t i = 0; flavor && i < sizeof recipes / sizeof recipes[0]; i++)
        if (strcmp(flavor, recipes[i].flavor) == 0) return (int)i;
    return -1;
}

static bool of_benchmark(const tm_config *config)
{
    return recipe_of(config) == 0 || recipe_of(config) == 1;
}

static const char *known_recipe(const tm_config *config, const char *value)
{
    return recipe_of(config) >= 0 ? value : NULL;
}

static const char *model_of(const tm_config *config, const char *value)
{
    const char *slash = strrchr(value, '/'), *name = slash ? slash + 1 : value;
    (void)config;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strcmp(name, models[i][0]) == 0) return models[i][1];
    return NULL;
}

static const char *rank_of(const tm_config *config, const char *value)
{
    int i = recipe_of(config);
    return strcmp(value, "recipe") != 0 ? value : i < 0 ? "" : recipes[i].rank;
}

/* That of DoRA is 64 where the recipe says nothing. */
static const char *alpha_of(const tm_config *config, const char *value)
{
    int         i = recipe_of(config);
    const char *kind = tm_foreign_given(config, "peft");
    if (strcmp(value, "recipe") != 0) return value;
    if (i < 0) return "";
    bool plain = strcmp(recipes[i].rank, "32") == 0;
    return plain && kind && tm_names_equal(kind, "dora") ? "64" : recipes[i].alpha;
}

static bool of_experts(const tm_config *config)
{
    return recipe_of(config) == 2;
}

/* The benchmark's recipe has adapters of its own, whatever peft says; that of a mixture adapts its attention only. */
static const char *adapters_of(const tm_config *config, const char *value)
{
    bool none = tm_names_equal(value, "none") || tm_names_equal(value, "null");
    if (*value == '#') return NULL; /* names of ours */
    if (of_benchmark(config)) return "#benchmark";
    return of_experts(config) && !none ? tm_arena_format(config->arena, "#attention %s", value) : value;
}

/* What a mixture's recipe says of its experts. */
static const char *balance_of(const tm_config *config, const char *value)
{
    return of_experts(config) ? value : "";
}

/* All weights learn slower than adapters. */
static const char *rate_of(const tm_config *config, const char *value)
{
    const char *kind = tm_foreign_given(config, "peft");
    if (strcmp(value, "recipe") != 0) return value;
    if (of_benchmark(config)) return "4e-4";
    return kind && tm_names_equal(kind, "none") ? "5e-6" : "1e-4";
}

static bool is_true(const tm_config *config, const char *name)
{
    const char *value = tm_foreign_given(config, name);
    return value && strcmp(value, "true") == 0;
}

/* Packed sequences are longer or fewer. */
static const char *batch_of(const tm_config *config, const char *value)
{
    if (strcmp(value, "recipe") != 0) return value;
    return of_benchmark(config) ? "8" : is_true(config, "packed_sequence") ? "8" : "128";
}

static const char *length_of(const tm_config *config, const char *value)
{
    const char *flavor = tm_foreign_given(config, "flavor");
    if (strcmp(value, "recipe") != 0) return value;
    bool llama3 = flavor && strncmp(flavor, "llama3", 6) == 0;
    if (of_benchmark(config)) return "8192";
    return llama3 && is_true(config, "packed_sequence") ? "4096" : "2048";
}

/* What rows are trained on: "mock", "packed" (sequences of the benchmark), "hub", or a file or folder. */
static const char *rows_of(const tm_config *config)
{
    const char *type = tm_foreign_given(config, "dataset._target_"), *kind = tm_foreign_given(config, "dataset_type");
    const char *given = tm_foreign_given(config, "dataset_name");
    const char *name = given ? given : tm_foreign_text(config, "dataset.dataset_name");
    if (is_true(config, "mock") || (type && strstr(type, "MockDatasetConfig"))) return "mock";
    bool prepared = is_true(config, "packed_sequence") && (!kind || strcmp(kind, "mlperf_dataset") == 0);
    if (of_benchmark(config) && prepared) return "packed";
    return name && tm_file_exists(name) ? name : "hub";
}

static const char *rows(const tm_config *config, const char *value)
{
    (void)value;
    return rows_of(config);
}

/* The name of a set that is not here. */
static const char *set_name(const tm_config *config, const char *value)
{
    return strcmp(rows_of(config), "hub") == 0 ? value : "";
}

static const char *held_out(const tm_config *config, const char *value)
{
    const char *from = rows_of(config);
    return strcmp(from, "mock") != 0 && strcmp(from, "packed") != 0 && strcmp(from, "hub") != 0 ? value : "";
}

static const char *packed(const tm_config *config, const char *value)
{
    return strcmp(rows_of(config), "packed") == 0 ? "" : value;
}

static const char *if_packed(const tm_config *config, const char *value)
{
    return strcmp(rows_of(config), "packed") == 0 ? value : "elsewhere";
}

/* A length beside that of the training has to be the same. */
static const char *same_length(const tm_config *config, const char *value)
{
    const char *length = length_of(config, tm_foreign_text(config, "seq_length"));
    return strtol(length, NULL, 10) == strtol(value, NULL, 10) ? "" : NULL;
}

#define OWN .own = true
#define IF_ADAPTED .with = "peft=lora/dora"
#define LOG(key) HARMLESS(key, "output and logging")
#define PROFILE(key) HARMLESS(key, "profiling")
#define FILES(key) HARMLESS(key, "how checkpoints are written")
#define COMM(key) SPEED(key, "communication of several devices")
#define KERNEL(key) SPEED(key, "kernels")
#define DROPPED(key) UNBUILT(key, "null|false", "this key of Megatron-LM, which no recipe takes", OWN)

/* clang-format off */
static const tm_foreign_key keys[] = {
    /* the recipe */
    HARMLESS("recipe", "the module of the flavor"), HARMLESS("trainable", "always"),
    MAPPED("flavor", "*:", .convert = known_recipe,
           .words = "this recipe; built are those of Llama and Qwen3 that fine-tune, and llama2_70b_lora_config"
                    " with and without mxfp4"),
    MAPPED("moe_aux_loss_coeff", "model.moe_aux_loss", OWN, .convert = balance_of, .fallback = "1e-3"),
    MAPPED("moe_router_force_load_balancing", "debug.moe_force_load_balance", OWN),
    MAPPED("hf_path", "model.name", .convert = model_of, .words = "this model"),
    MAPPED("stage", "mock:training.mock_data=true|packed:|hub:|*:data.source=sft;data.path=*",
           .convert = rows, .fallback = "sft"),
    MAPPED("pretrained_checkpoint", "model.hf_assets_path"),
    /* adapters */
    /* The frozen base is in params_dtype, bfloat16 in every precision_config below; only what is trained has float32
     * weights, in the optimizer. */
    MAPPED("peft", "none:|lora:lora.targets=wqkv,wo,w13,w2;lora.init=xavier;lora.base_format=bfloat16|"
           "dora:lora.dora=true;lora.targets=wqkv,wo,w13,w2;lora.init=xavier;lora.base_format=bfloat16|"
           "#attention lora:lora.targets=wqkv,wo;lora.init=xavier;lora.base_format=bfloat16|"
           "#attention dora:lora.dora=true;lora.targets=wqkv,wo;lora.init=xavier;lora.base_format=bfloat16|"
           "#benchmark:lora.targets=wqkv,wo;lora.init=xavier;lora.dropout=0.1;lora.base_format=bfloat16|"
           "null:lora.rank=0",
           .convert = adapters_of, .fallback = "lora", .words = "another kind of adapters"),
    MAPPED("peft_dim", "lora.rank", IF_ADAPTED, .convert = rank_of, .fallback = "recipe"),
    MAPPED("peft_alpha", "lora.alpha", IF_ADAPTED, .convert = alpha_of, .fallback = "recipe"),
    /* data */
    MAPPED("dataset.dataset_name", "training.dataset", .convert = set_name, .fallback = "rajpurkar/squad"),
    MAPPED("dataset_name", "training.dataset", .convert = set_name),
    MAPPED("dataset._target_",
           "megatron.bridge.data.builders.hf_dataset.HFDatasetConfig:|"
           "megatron.bridge.data.datasets.mock_dataset.MockDatasetConfig:",
           .words = "this kind of data"),
    MAPPED("dataset.seq_length", "training.seq_len", .convert = same_length, .words = "a length other than seq_length"),
    MAPPED("dataset.val_proportion", "data.validation_fraction", .convert = held_out, .fallback = "0.1"),
    UNBUILT("dataset.do_validation", "true|null", "no evaluation; set eval_iters to 0"),
    HARMLESS("dataset.do_test", "nothing is tested"), HARMLESS("dataset.seed", "the order follows debug.seed"),
    HARMLESS("dataset.dataloader_type", "how samples are fetched"), HARMLESS("dataset.num_workers", "see data.prefetch"),
    HARMLESS("dataset.vocab_size", "that of the model"), HARMLESS("dataset.num_*", "mock data is endless"),
    HARMLESS("mock", "see dataset"),
    MAPPED("dataset_type", "squad:|mlperf_dataset:", .words = "this kind of data"),
    MAPPED("packed_sequence", "data.packed", .convert = packed, .fallback = "false"),
    MAPPED("packed_train_data_path", "elsewhere:|*:data.source=govreport;data.path=*", .convert = if_packed, .fallback = "/data/train.npy"),
    MAPPED("packed_val_data_path", "elsewhere:|*:data.validation_path=*", .convert = if_packed, .fallback = "/data/validation.npy"),
    HARMLESS("packed_metadata_path", "the lengths in packed sequences"),
    DROPPED("data_paths"), DROPPED("data_path"), DROPPED("train_data_path"), DROPPED("valid_data_path"),
    HARMLESS("test_data_path", "nothing is tested"), DROPPED("data_args_path"), DROPPED("per_split_data_args_path"),
    DROPPED("mock_data"), DROPPED("split"), DROPPED("dataloader_type"), DROPPED("sample_rate"), DROPPED("eod_mask_loss"),
    HARMLESS("num_workers", "see data.prefetch"), HARMLESS("mmap_bin_files", "how files are read"),
    HARMLESS("data_sharding", "several devices"), HARMLESS("num_dataset_builder_threads", "how files are read"),
    HARMLESS("create_attention_mask_in_dataloader", "where the causal mask is made"),
    HARMLESS("use_null_tokenizer", "the tokenizer is that of the data"),
    /* steps */
    MAPPED("train_iters", "training.steps", .fallback = "1000"),
    MAPPED("micro_batch_size", "training.local_batch_size", .fallback = "1"),
    MAPPED("global_batch_size", "training.global_batch_size", .convert = batch_of, .fallback = "recipe"),
    MAPPED("seq_length", "training.seq_len", .convert = length_of, .fallback = "recipe"),
    MAPPED("eval_iters", "0:validation.enable=false|*:validation.enable=true;validation.steps=*", OWN, .fallback = "32|22"),
    MAPPED("eval_interval", "validation.freq", .fallback = "30|48"),
    MAPPED("seed", "debug.seed", OWN, .fallback = "5678|1234"),
    HARMLESS("exit_signal_handler", "always on"), DROPPED("exit_interval"),
    MAPPED("exit_duration_in_mins", "*:exit_duration_in_mins", OWN),
    DROPPED("rampup_batch_size"), DROPPED("decrease_batch_size_if_needed"), DROPPED("skip_train"),
    DROPPED("full_validation"), DROPPED("encoder_seq_length"), DROPPED("decoder_seq_length"),
    HARMLESS("deterministic_mode", "runs are always deterministic"),
    /* optimizer */
    MAPPED("optimizer", "adam:optimizer.name=AdamW;optimizer.decay=matrices", OWN, .fallback = "adam",
           .words = "another optimizer"),
    MAPPED("finetune_lr", "optimizer.lr", .convert = rate_of, .fallback = "recipe"), MAPPED("lr", "optimizer.lr", OWN),
    MAPPED("min_lr", "min_lr", .fallback = "0"),
    MAPPED("lr_warmup_iters", "lr_scheduler.warmup_steps", .fallback = "50|0"),
    MAPPED("lr_decay_iters", "lr_scheduler.total_steps"),
    MAPPED("lr_decay_style", TM_MEGATRON_DECAYS, OWN, .fallback = "cosine", .words = "another shape of the decay"),
    MAPPED("lr_wsd_decay_style", TM_MEGATRON_WSD_DECAYS, OWN, .with = "lr_decay_style=wsd", .fallback = "exponential",
           .words = "another shape of the decay"),
    MAPPED("lr_wsd_decay_iters", "*:lr_scheduler.decay_steps=*", OWN, .with = "lr_decay_style=wsd", .fallback = "none",
           .convert = tm_megatron_wsd_steps, .words = "the WSD schedule without lr_wsd_decay_iters"),
    DROPPED("lr_decay_samples"), MAPPED("lr_warmup_fraction", "lr_scheduler.warmup_fraction", OWN),
    UNBUILT("lr_warmup_samples", "0|null", "a warm-up in samples", OWN),
    MAPPED("lr_warmup_init", "lr_scheduler.warmup_lr", OWN, .fallback = "0"),
    /* Its scheduler sets it to 0.033 in every step, whatever the optimizer was made with. */
    MAPPED("weight_decay", "optimizer.weight_decay", OWN, .fallback = "0.033|0.0001"),
    MAPPED("adam_beta1", "optimizer.beta1", OWN, .fallback = "0.9"),
    MAPPED("adam_beta2", "optimizer.beta2", OWN, .fallback = "0.98|0.999"),
    MAPPED("adam_eps", "optimizer.eps", OWN, .fallback = "1e-5|1e-8"),
    MAPPED("clip_grad", "training.max_norm", OWN, .fallback = "1|0.3"),
    HARMLESS("sgd_momentum", "has an effect with sgd"),
    HARMLESS("override_opt_param_scheduler", "which of two schedules counts after loading"),
    DROPPED("use_checkpoint_opt_param_scheduler"),
    /* number formats */
    MAPPED("precision_config",
           "bf16_mixed:bf16=true|bf16_with_fp8_hybrid:bf16=true;fp8=hybrid;fp8_recipe=delayed;fp8_amax_history_len=4;"
           "fp8_amax_compute_algo=most_recent;fp8_param=true;quantize.filter_fqns=lora_A,lora_B|"
           "bf16_with_mxfp4_mixed:bf16=true;fp4=e2m1;fp4_recipe=mxfp4;quantize.filter_fqns=lora_A,lora_B",
           .fallback = "bf16_mixed|bf16_with_mxfp4_mixed", .words = "these number formats"),
    DROPPED("fp16"), UNBUILT("bf16", "true|null", "another number format; give precision_config", OWN),
    UNBUILT("fp8", "null|false", "float8; give precision_config bf16_with_fp8_hybrid", OWN),
    HARMLESS("fp8_*", "has an effect with fp8"), SPEED("no_fp8_weight_transpose_cache", "kernels"),
    DROPPED("grad_reduce_in_bf16"), DROPPED("calculate_per_token_loss"),
    HARMLESS("check_for_nan_in_loss*", "always"), HARMLESS("check_for_spiky_loss", "checks"),
    HARMLESS("check_for_large_grads", "checks"),
    /* devices */
    MAPPED("tensor_model_parallel_size", "parallelism.tensor_parallel_degree"),
    MAPPED("pipeline_model_parallel_size", "parallelism.pipeline_parallel_degree"),
    MAPPED("context_parallel_size", "parallelism.context_parallel_degree"),
    MAPPED("sequence_parallel",
           "true:parallelism.enable_sequence_parallel=true|false:parallelism.enable_sequence_parallel=false",
           .with = "tensor_model_parallel_size", .fallback = "false"),
    UNBUILT("virtual_pipeline_model_parallel_size", "null|1", "stages of a rank that take turns"),
    MAPPED("expert_model_parallel_size", "parallelism.expert_parallel_degree"),
    UNBUILT("use_megatron_fsdp", "false|null", "this layout of several devices; see data_parallel_shard_degree"),
    UNBUILT("use_custom_fsdp", "false|null", "this layout of several devices", OWN),
    UNBUILT("data_parallel_sharding_strategy", "no_shard|null", "this layout of several devices", OWN),
    MAPPED("use_distributed_optimizer", "true:parallelism.data_parallel_shard_strategy=optim|false:", OWN),
    HARMLESS("pipeline_dtype", "the format of messages is that of activations"),
    COMM("comm_overlap_config"), COMM("overlap_*"), COMM("align_grad_reduce"), COMM("gradient_reduce_div_fusion"),
    COMM("scatter_gather_tensors_in_pipeline"), COMM("use_ring_exchange_p2p"), COMM("distributed_*"),
    COMM("data_parallel_random_init"),
    /* recomputation */
    MAPPED("recompute_granularity", "*:recompute_granularity", OWN),
    MAPPED("recompute_method", "*:recompute_method", .with = "recompute_granularity", OWN),
    MAPPED("recompute_num_layers", "*:recompute_num_layers", .with = "recompute_granularity", OWN),
    MAPPED("recompute_activations", "true:recompute_granularity=selective|false:", OWN),
    COMM("distribute_saved_activations"),
    /* checkpoints */
    HARMLESS("save_interval", "see checkpoint.interval"), HARMLESS("skip_save", "see checkpoint.enable"),
    HARMLESS("save", "see checkpoint.folder"), DROPPED("load"), HARMLESS("finetune", "always"),
    HARMLESS("save_retain_interval", "see checkpoint.keep_latest_k"), FILES("no_save_*"),
    HARMLESS("no_load_*", "has an effect with load"), HARMLESS("use_checkpoint_args", "has an effect with load"),
    HARMLESS("use_mp_args_from_checkpoint_args", "has an effect with load"),
    HARMLESS("use_tokenizer_model_from_checkpoint_args", "has an effect with load"),
    HARMLESS("exit_on_missing_checkpoint", "a checkpoint that is missing is always an error"),
    FILES("ckpt_*"), FILES("dist_ckpt_*"), FILES("auto_detect_ckpt_format"), FILES("auto_continue_train"),
    FILES("adlr_*"),
    /* the rest */
    LOG("log_*"), LOG("tensorboard_*"), LOG("wandb_*"), LOG("stderr_sink_level"), LOG("file_sink_level"), LOG("sink_level"),
    PROFILE("profile*"), PROFILE("use_pytorch_profiler"), PROFILE("record_memory_history"),
    PROFILE("memory_snapshot_path"), HARMLESS("env.*", "environment variables of its launcher and libraries"),
    KERNEL("enable_primus_turbo"), KERNEL("use_turbo_*"), KERNEL("turbo_*"), KERNEL("use_flash_attn"),
    KERNEL("flash_decode"), KERNEL("enable_cuda_graph"), KERNEL("cuda_graph_*"), KERNEL("cross_entropy_*"),
    KERNEL("use_transformer_engine_op_fuser"), KERNEL("stable_lora_with_te_op_fuser"), KERNEL("te_fused_lora_*"),
    KERNEL("moe_use_fused_router_with_aux_score"), KERNEL("disable_turbo_grouped_mlp_low_precision"),
    UNBUILT("enable_turbo_attention_float8", "false|null", "attention in float8", .with = "enable_primus_turbo"),
    HARMLESS("manual_gc*", "no garbage is collected"), HARMLESS("empty_unused_memory_level", "memory is planned"),
    HARMLESS("inference_*", "inference"), HARMLESS("bert_*", "masked language models"), HARMLESS("onnx_safe", "inference"),
    HARMLESS("parallel_output", "inference"), HARMLESS("test_mode", "output and logging"),
    HARMLESS("enable_experimental", "what it permits has keys of its own"),
    HARMLESS("init_method_xavier_uniform", "weights are loaded"),
    HARMLESS("make_vocab_size_divisible_by", "the rows of the table are those of the model"),
    HARMLESS("dir", "see --out"), HARMLESS("name", "see --out"),
};
/* clang-format on */

const tm_framework tm_framework_megatron_bridge = { "megatron_bridge",
                                                    "recipes of Megatron-Bridge that Primus post-trains with",
                                                    keys,
                                                    sizeof keys / sizeof keys[0],
                                                    of_benchmark,
                                                    false };
