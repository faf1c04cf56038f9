/* SPDX-License-Identifier: Apache-2.0 */
/* config/frameworks/torchtune.c - recipes of torchtune.
 *
 * A component (model._component_, ...) is a Python function; those of models are our presets, by name. */
#include "config/foreign.h"

#include <stdlib.h>
#include <string.h>

/* Functions that make a model, without lora_, qlora_, _instruct and _base, and our presets. */
static const char *const models[][2] = {
    { "llama2_7b", "llama2_7B" },           { "llama2_13b", "llama2_13B" },     { "llama2_70b", "llama2_70B" },
    { "code_llama2_7b", "code_llama2_7B" }, { "llama3_8b", "llama3_8B" },       { "llama3_70b", "llama3_70B" },
    { "llama3_1_8b", "llama3.1_8B" },       { "llama3_1_70b", "llama3.1_70B" }, { "llama3_1_405b", "llama3.1_405B" },
    { "llama3_2_1b", "llama3.2_1B" },       { "llama3_2_3b", "llama3.2_3B" },   { "llama3_3_70b", "llama3.3_70B" },
    { "mistral_7b", "mistral_7B" },         { "qwen2_0_5b", "qwen2.5_0.5B" },   { "qwen2_1_5b", "qwen2.5_1.5B" },
    { "qwen2_7b", "qwen2.5_7B" },           { "qwen2_5_0_5b", "qwen2.5_0.5B" }, { "qwen2_5_1_5b", "qwen2.5_1.5B" },
    { "qwen2_5_3b", "qwen2.5_3B" },         { "qwen2_5_7b", "qwen2.5_7B" },     { "qwen2_5_14b", "qwen2.5_14B" },
    { "qwen2_5_32b", "qwen2.5_32B" },       { "qwen2_5_72b", "qwen2.5_72B" },   { "qwen3_0_6b", "qwen3_0.6B" },
    { "qwen3_1_7b", "qwen3_1.7B" },         { "qwen3_4b", "qwen3_4B" },         { "qwen3_8b", "qwen3_8B" },
    { "qwen3_14b", "qwen3_14B" },           { "qwen3_32b", "qwen3_32B" },
};

static const char *last_part(const char *component)
{
    const char *dot = strrchr(component, '.');
    return dot ? dot + 1 : component;
}

static bool is_end(const char *rest)
{
    return !*rest || strcmp(rest, "_instruct") == 0 || strcmp(rest, "_base") == 0;
}

/* "torchtune.models.llama3_1.lora_llama3_1_70b" -> "llama3.1_70B"; NULL: none of ours. */
static const char *preset_of(const tm_config *config, const char *value)
{
    const char *name = last_part(value);
    (void)config;
    if (strncmp(name, "qlora_", 6) == 0) name += 6;
    if (strncmp(name, "lora_", 5) == 0) name += 5;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strncmp(name, models[i][0], strlen(models[i][0])) == 0 && is_end(name + strlen(models[i][0])))
            return models[i][1];
    return NULL;
}

static bool asks_for(const tm_config *config, const char *key)
{
    const char *value = tm_foreign_given(config, key);
    return value && strcmp(value, "true") == 0;
}

/* qlora_* is lora_* with quantize_base. What is not in 4 bits is in bfloat16 here: with dtype fp32 there is no such
 * base (NULL). */
static const char *quantized_base(const tm_config *config, const char *value)
{
    const char *component = tm_foreign_given(config, "model._component_"), *dtype = tm_foreign_given(config, "dtype");
    bool        qlora = component && strncmp(last_part(component), "qlora_", 6) == 0;
    if (!qlora && !asks_for(config, "model.quantize_base")) return value;
    return dtype && strcmp(dtype, "fp32") == 0 ? NULL : "true";
}

/* The modules of the attention, those of the FFN with model.apply_lora_to_mlp, and the output layer. */
static const char *targets_of(const tm_config *config, const char *value)
{
    bool mlp = asks_for(config, "model.apply_lora_to_mlp"), head = asks_for(config, "model.apply_lora_to_output");
    return tm_arena_format(config->arena, "%s%s%s", value, mlp ? ",gate_proj,up_proj,down_proj" : "",
                           head ? ",lm_head" : "");
}

/* lora_* and qlora_* functions take what adapters are, with defaults of their own; the others do not take it. */
static const char *of_adapters(const tm_config *config, const char *key, const char *value)
{
    const char *component = tm_foreign_given(config, "model._component_"),
               *name = component ? last_part(component) : "";
    if (!component || strncmp(name, "lora_", 5) == 0 || strncmp(name, "qlora_", 6) == 0) return value;
    return tm_foreign_given(config, key) ? NULL : "";
}

static const char *rank_of(const tm_config *config, const char *value)
{
    return of_adapters(config, "model.lora_rank", value);
}

static const char *alpha_of(const tm_config *config, const char *value)
{
    return of_adapters(config, "model.lora_alpha", value);
}

/* AdamW's unless given; SGD has none, whoever made it. */
static const char *weight_decay_of(const tm_config *config, const char *value)
{
    const char *component = tm_foreign_given(config, "optimizer._component_");
    bool        sgd = component && strcmp(last_part(component), "SGD") == 0;
    return strcmp(value, "optimizer") != 0 ? value : sgd ? "0" : "0.01";
}

/* alpaca_dataset and alpaca_cleaned_dataset also train on prompts unless told otherwise. */
static const char *trains_on_input(const tm_config *config, const char *value)
{
    const char *component = tm_foreign_given(config, "dataset._component_"),
               *name = component ? last_part(component) : "";
    if (strcmp(value, "dataset") != 0) return value;
    return strcmp(name, "alpaca_dataset") == 0 || strcmp(name, "alpaca_cleaned_dataset") == 0 ? "true" : "false";
}

/* A warm-up has no default, and none without a schedule. */
static const char *warmup_of(const tm_config *config, const char *value)
{
    bool given = tm_foreign_given(config, "lr_scheduler.num_warmup_steps") != NULL;
    return tm_foreign_given(config, "lr_scheduler._component_") ? (given ? value : NULL) : given ? NULL : "";
}

/* "input: question, output: answer" as data.column_map. Of an instruct_dataset the input is the prompt. */
static const char *columns_of(const tm_config *config, const char *value)
{
    static const char *const names[] = { "conversations", "messages", "instruction", "input",
                                         "output",        "prompt",   "chosen",      "rejected" };
    const char              *component = tm_foreign_given(config, "dataset._component_"), *out = "";
    bool                     prompts = component && strstr(component, "instruct_dataset");
    (void)value;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *key = tm_arena_format(config->arena, "dataset.column_map.%s", names[i]);
        const char *column = tm_foreign_given(config, key);
        const char *name = !prompts                          ? names[i]
                           : strcmp(names[i], "input") == 0  ? "prompt"
                           : strcmp(names[i], "output") == 0 ? "completion"
                                                             : names[i];
        if (column) out = tm_arena_format(config->arena, "%s%s%s=%s", out, *out ? "," : "", name, column);
    }
    return out;
}

/* The column of a chat_dataset, which is called after its style. */
static const char *conversation_column(const tm_config *config, const char *value)
{
    const char *style = tm_foreign_given(config, "dataset.conversation_style");
    if (!style) return NULL;
    return tm_arena_format(config->arena, "%s=%s", strcmp(style, "openai") == 0 ? "messages" : "conversations", value);
}

/* Is the loss one of pairs? */
static bool prefers(const tm_config *config)
{
    const char *loss = tm_foreign_given(config, "loss._component_");
    return loss && (strcmp(last_part(loss), "DPOLoss") == 0 || strcmp(last_part(loss), "RSOLoss") == 0);
}

/* Of local rows what the loss takes. */
static const char *source_of(const tm_config *config, const char *value)
{
    bool rows = strcmp(value, "json") == 0 || strcmp(value, "parquet") == 0;
    return rows && prefers(config) ? "pairs" : value;
}

/* Are they rows in local files? */
static bool has_rows(const tm_config *config)
{
    const char *source = tm_foreign_given(config, "dataset.source");
    return source && (strcmp(source, "json") == 0 || strcmp(source, "parquet") == 0);
}

/* Tokens of a sequence; of a pair there are two. Without a limit ("none") no row is cut, and none can be packed. */
static const char *length_of(const tm_config *config, const char *value)
{
    char *end;
    long  n = strtol(value, &end, 10);
    if (strcmp(value, "none") == 0) return !has_rows(config) ? "" : asks_for(config, "dataset.packed") ? NULL : "whole";
    return prefers(config) && *value && !*end && n > 0 && n < 1 << 24 ? tm_arena_format(config->arena, "%ld", 2 * n)
                                                                      : value;
}

/* Each of so many epochs ends after so many steps. */
static const char *steps_of(const tm_config *config, const char *value)
{
    const char *epochs = tm_foreign_given(config, "epochs");
    char       *end, *rest;
    long        n = strtol(value, &end, 10), times = epochs ? strtol(epochs, &rest, 10) : 1;
    bool        product = epochs && *value && !*end && !*rest && n > 0 && times > 0 && n < 1 << 30 && times < 1 << 30;
    return product ? tm_arena_format(config->arena, "%lld", (long long)n * times) : value;
}

/* The reference is the model that training begins with: nothing to give; NULL: it is another one. */
static const char *own_reference(const tm_config *config, const char *value)
{
    const char *model = tm_foreign_given(config, "checkpointer.checkpoint_dir");
    return model && strcmp(model, value) == 0 ? "" : NULL;
}

/* The column of text_completion_dataset. */
static const char *text_column(const tm_config *config, const char *value)
{
    const char *component = tm_foreign_given(config, "dataset._component_");
    bool        text = component && strcmp(last_part(component), "text_completion_dataset") == 0;
    if (!text && !tm_foreign_given(config, "dataset.column")) return "";
    return tm_arena_format(config->arena, "text=%s", value);
}

/* Evaluations need rows of their own. */
static const char *evaluations_of(const tm_config *config, const char *value)
{
    bool named =
        tm_foreign_given(config, "dataset_val._component_") || tm_foreign_given(config, "dataset_val.data_files");
    return strcmp(value, "never") == 0 || named || tm_config_text(config, "data.validation_path") ? value : NULL;
}

/* A recipe without an optimizer trains nothing: there is nothing to plan. */
static const char *trained(const tm_config *config, const char *value)
{
    return tm_foreign_given(config, "optimizer._component_") ? value : NULL;
}

/* Rows in local files, not a data set of a hub. */
#define LOCAL_ROWS .with = "dataset.source=json/parquet/text"
#define ROWS(key, ...) MAPPED(key, __VA_ARGS__, .with = "dataset.source=json/parquet")
/* With a loss of pairs. */
#define PAIRS                                                                                                          \
    .with = "loss._component_=torchtune.rlhf.loss.DPOLoss/torchtune.modules.rlhf.loss.DPOLoss/"                        \
            "torchtune.rlhf.loss.RSOLoss/torchtune.modules.rlhf.loss.RSOLoss"
#define PROFILE(key) HARMLESS(key, "profiling")
#define SGD .with = "optimizer._component_=torch.optim.SGD"
#define NOT_SGD .with = "!optimizer._component_=torch.optim.SGD"

/* clang-format off */
static const tm_foreign_key keys[] = {
    HARMLESS("output_dir", "use --out for the run directory"),
    MAPPED("model._component_", "model", .convert = preset_of, .words = "this model"),
    MAPPED("model.lora_rank", "lora.rank", .convert = rank_of, .fallback = "8",
           .words = "adapters of a model function without lora_"),
    MAPPED("model.lora_alpha", "lora.alpha", .convert = alpha_of, .fallback = "16",
           .words = "adapters of a model function without lora_"),
    MAPPED("model.lora_dropout", "lora.dropout"),
    MAPPED("model.lora_attn_modules", "lora.targets", .convert = targets_of),
    HARMLESS("model.apply_lora_to_mlp", "see model.lora_attn_modules"),
    HARMLESS("model.apply_lora_to_output", "see model.lora_attn_modules"),
    MAPPED("model.quantize_base", "true:lora.base_format=nf4|false:", .fallback = "false", .convert = quantized_base,
           .words = "a base in 4 bits whose other weights are in float32; set dtype to bf16"),
    MAPPED("model.use_dora", "lora.dora"),
    MODEL("model.decoder_trainable", "", "a model of images and text"),
    MODEL("model.encoder_trainable", "", "a model of images and text"),
    MODEL("model.fusion_trainable", "", "a model of images and text"),
    HARMLESS("tokenizer._component_", "see data.tokenizer"),
    ROWS("tokenizer.path", "data.tokenizer"),
    HARMLESS("tokenizer.merges_file", "see data.tokenizer"),
    HARMLESS("tokenizer.vocab_path", "see data.tokenizer"),
    HARMLESS("tokenizer.merges_path", "see data.tokenizer"),
    MODEL("tokenizer.image_size", "", "a model of images and text"),
    UNBUILT("tokenizer.prompt_template", "null", "prompts of a template of its own; see data.chat_template",
            LOCAL_ROWS),
    MAPPED("tokenizer.max_seq_len", ":|whole:data.overlong=error|*:training.seq_len", .convert = length_of,
           .fallback = "none", .words = "packed rows without tokenizer.max_seq_len, which they are packed to"),
    HARMLESS("checkpointer.checkpoint_dir", "the directory of the weights, as model.hf_assets_path"),
    UNBUILT("checkpointer._component_", "torchtune.training.FullModelHFCheckpointer",
            "weights that are no Hugging Face directory"),
    UNBUILT("checkpointer.adapter_checkpoint", "null", "starting from adapters; see lora.adapter_path"),
    HARMLESS("checkpointer.*", "files of weights"),
    UNBUILT("resume_from_checkpoint", "false", "resuming from a checkpoint of another program"),
    HARMLESS("save_adapter_weights_only", "how checkpoints are written"),
    HARMLESS("keep_last_n_checkpoints", "how checkpoints are written"),
    MAPPED("dataset._component_", "training.dataset"),
    MAPPED("dataset.data_files", "data.path"),
    MAPPED("dataset.source",
           "json:data.source=sft|parquet:data.source=sft|pairs:data.source=preference|text:data.source=text|*:",
           .convert = source_of),
    ROWS("dataset.train_on_input", "data.train_on_input", .convert = trains_on_input, .fallback = "dataset"),
    ROWS("dataset.packed", "data.packed", .fallback = "false"),
    ROWS("dataset.column", "data.column_map", .convert = text_column, .fallback = "text"),
    ROWS("dataset.conversation_style", "openai:data.format=messages|sharegpt:data.format=conversations",
         .words = "another style of conversations"),
    ROWS("dataset.conversation_column", "data.column_map", .convert = conversation_column,
         .words = "conversations without conversation_style"),
    ROWS("dataset.column_map.conversations", "data.column_map", .convert = columns_of),
    ROWS("dataset.column_map.messages", "data.column_map", .convert = columns_of),
    ROWS("dataset.column_map.instruction", "data.column_map", .convert = columns_of),
    ROWS("dataset.column_map.input", "data.column_map", .convert = columns_of),
    ROWS("dataset.column_map.output", "data.column_map", .convert = columns_of),
    ROWS("dataset.column_map.prompt", "data.column_map", .convert = columns_of),
    ROWS("dataset.column_map.chosen", "data.column_map", .convert = columns_of),
    ROWS("dataset.column_map.rejected", "data.column_map", .convert = columns_of),
    UNBUILT("dataset.split", "train|null", "a part of the rows", LOCAL_ROWS),
    UNBUILT("dataset.*", "null|false", "this key of a data set", LOCAL_ROWS),
    ROWS("dataset_val.data_files", "data.validation_path"),
    HARMLESS("dataset_val.*", "has an effect with run_val_every_n_steps"),
    MAPPED("run_val_every_n_steps",
           "never:validation.enable=false;data.validation_fraction=0|*:validation.enable=true;validation.freq=*",
           .convert = evaluations_of, .fallback = "never",
           .words = "evaluations without dataset_val, which says of what"),
    MAPPED("batch_size_val", "validation.local_batch_size", .with = "run_val_every_n_steps"),
    MAPPED("seed", "debug.seed"),
    UNBUILT("shuffle", "true|null", "samples in the order of the file", LOCAL_ROWS),
    MAPPED("epochs", "training.epochs", .with = "!max_steps_per_epoch"),
    MAPPED("max_steps_per_epoch", "training.steps", .convert = steps_of),
    MAPPED("batch_size", "training.local_batch_size"),
    MAPPED("gradient_accumulation_steps", "training.grad_accumulation"),
    MAPPED("optimizer._component_",
           "torch.optim.AdamW:optimizer.name=AdamW|torch.optim.SGD:optimizer.name=SGD|"
           "torchao.optim.AdamW8bit:optimizer.name=AdamW8bit|"
           "bitsandbytes.optim.AdamW8bit:optimizer.name=AdamW8bit;optimizer.definition=bitsandbytes|"
           "bitsandbytes.optim.PagedAdamW:optimizer.name=AdamW|"
           "bitsandbytes.optim.PagedAdamW8bit:optimizer.name=AdamW8bit;optimizer.definition=bitsandbytes",
           .words = "another optimizer"),
    SPEED("optimizer.fused", "how the update is computed"),
    SPEED("optimizer.foreach", "how the update is computed"),
    MAPPED("optimizer.bf16_stochastic_round", "optimizer.bf16_stochastic_round"),
    MAPPED("optimizer.weight_decay", "optimizer.weight_decay", .convert = weight_decay_of, .fallback = "optimizer"),
    MAPPED("optimizer.lr", "optimizer.lr", .fallback = "1e-3"),
    MAPPED("optimizer.betas", "*:optimizer.beta1=*.0;optimizer.beta2=*.1", NOT_SGD, .fallback = "0.9,0.999"),
    MAPPED("optimizer.eps", "optimizer.eps", NOT_SGD, .fallback = "1e-8"),
    MAPPED("optimizer.momentum", "optimizer.momentum", SGD, .fallback = "0"),
    MAPPED("optimizer.nesterov", "optimizer.nesterov", SGD, .fallback = "false"),
    UNBUILT("optimizer.dampening", "0|null", "a damped momentum", SGD),
    UNBUILT("optimizer.amsgrad", "false|null", "AMSGrad"),
    UNBUILT("optimizer.maximize", "false|null", "a loss that is made larger"),
    MAPPED("lr_scheduler._component_",
           "none:lr_scheduler.warmup_steps=0;lr_scheduler.decay_ratio=0|"
           "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup:lr_scheduler.form=torchtune|"
           "torchtune.training.get_cosine_schedule_with_warmup:lr_scheduler.form=torchtune",
           .fallback = "none", .words = "another schedule"),
    MAPPED("lr_scheduler.num_warmup_steps", "lr_scheduler.warmup_steps", .convert = warmup_of, .fallback = "none",
           .words = "a schedule needs both lr_scheduler._component_ and num_warmup_steps"),
    MAPPED("lr_scheduler.num_cycles", "lr_scheduler.cycles", .with = "lr_scheduler._component_", .fallback = "0.5"),
    MAPPED("loss._component_",
           "torchtune.modules.loss.LinearCrossEntropyLoss:|torchtune.modules.loss.CEWithChunkedOutputLoss:|"
           "torch.nn.CrossEntropyLoss:|torchtune.rlhf.loss.DPOLoss:data.source=preference|"
           "torchtune.modules.rlhf.loss.DPOLoss:data.source=preference|"
           "torchtune.rlhf.loss.RSOLoss:data.source=preference;dpo.loss_type=hinge|"
           "torchtune.modules.rlhf.loss.RSOLoss:data.source=preference;dpo.loss_type=hinge",
           .words = "another loss"),
    MAPPED("loss.beta", "dpo.beta", PAIRS),
    MAPPED("loss.gamma", "dpo.beta", PAIRS),
    MAPPED("loss.label_smoothing", "dpo.label_smoothing", PAIRS),
    HARMLESS("loss.num_output_chunks", "see loss.chunk_tokens"),
    MAPPED("clip_grad_norm", "training.max_norm", .fallback = "0"),
    SPEED("compile", "steps are always compiled into programs"),
    MAPPED("optimizer_in_bwd", "optimizer.early_step_in_backward"),
    HARMLESS("metric_logger.*", "output and logging"),
    MAPPED("log_every_n_steps", "metrics.log_freq", .fallback = "1"),
    HARMLESS("log_peak_memory_stats", "always"),
    HARMLESS("log_level", "output and logging"),
    HARMLESS("device", "see --device"),
    MAPPED("dtype", "bf16:training.dtype=bfloat16;training.regime=pure|fp32:training.dtype=float32",
           .fallback = "fp32", .words = "this number format"),
    MAPPED("enable_activation_checkpointing",
           "true:activation_checkpoint.mode=full|false:activation_checkpoint.mode=none", .with = "!ac_mode"),
    MAPPED("enable_activation_offloading", "true:training.offload=activations|false:"),
    MAPPED("tensor_parallel_dim", "parallelism.tensor_parallel_degree"),
    HARMLESS("tensor_parallel_plan.*", "has an effect with tensor_parallel_dim"),
    MAPPED("context_parallel_dim", "parallelism.context_parallel_degree"),
    MAPPED("data_parallel_shard_dim", "parallelism.data_parallel_shard_degree"),
    MAPPED("data_parallel_replicate_dim", "parallelism.data_parallel_replicate_degree"),
    SPEED("custom_sharded_layers", "communication of several devices"),
    MAPPED("fsdp_reshard_after_forward",
           "true:parallelism.fsdp_reshard_after_forward=always|false:parallelism.fsdp_reshard_after_forward=never",
           .fallback = "true"),
    MAPPED("fsdp_cpu_offload", "training.enable_cpu_offload"),
    SPEED("low_cpu_ram", "how weights are loaded"),
    UNBUILT("enable_fp8_training", "false", "float8 training"),
    UNBUILT("fp8_recipe_name", "", "float8 training", .with = "enable_fp8_training"),
    PROFILE("profiler.*"),
    MAPPED("fsdp.cpu_offload", "training.enable_cpu_offload"),
    SPEED("memory_efficient_fsdp_wrap", "communication of several devices"),
    MAPPED("ac_mode", "activation_checkpoint.mode"),
    MAPPED("ac_option", "activation_checkpoint.selective_ac_option", .with = "ac_mode=selective"),
    /* other kinds of training, and what is none */
    UNBUILT("quantizer._component_", "", "quantization-aware training, and recipes that only quantize a trained model",
            .convert = trained),
    HARMLESS("quantizer.*", "counts with quantizer._component_"),
    HARMLESS("quantizer", "none"),
    UNBUILT("fake_quant_after_n_steps", "null", "quantization-aware training"),
    UNBUILT("teacher_model._component_", "", "distillation"),
    HARMLESS("teacher_*", "counts with teacher_model"), HARMLESS("kd_*", "counts with teacher_model"),
    MAPPED("ref_checkpointer.checkpoint_dir", "model.hf_assets_path", .convert = own_reference,
           .words = "a reference that is not the model that training begins with (checkpointer.checkpoint_dir)"),
    HARMLESS("ref_checkpointer.*", "the reference is the model that training begins with"),
    UNBUILT("loss.ignore_index", "-100|null", "targets with another mark"),
    HARMLESS("loss.*", "counts with PPOLoss"),
    UNBUILT("reward_and_value_model._component_", "", "PPO"),
    HARMLESS("reward_*", "counts with PPO"), HARMLESS("value_checkpointer.*", "counts with PPO"),
    HARMLESS("policy_model.*", "counts with PPO"), HARMLESS("ref_policy_checkpointer.*", "counts with PPO"),
    UNBUILT("ppo_*", "", "PPO"), UNBUILT("whiten_rewards", "", "PPO"), UNBUILT("penalise_no_eos", "", "PPO"),
    UNBUILT("num_steps", "", "PPO"), UNBUILT("min_response_length", "", "PPO"), UNBUILT("kl_coeff", "", "PPO"),
    UNBUILT("max_generated_tokens", "", "PPO"), UNBUILT("stop_token_ids", "", "PPO"), UNBUILT("lmbda", "", "PPO"),
    UNBUILT("gamma", "", "PPO"), UNBUILT("forward_batch_size", "", "PPO"),
    /* nothing is trained there: refused by plans, too */
    MODEL("tasks", "", "an evaluation by a harness; nothing is trained there"),
    MODEL("prompt", "", "a recipe that generates text; see `trainmark generate`"),
    MODEL("prompt.*", "", "a recipe that generates text; see `trainmark generate`"),
    MODEL("limit", "", "a part of an evaluation by a harness", .with = "!tasks"),
    MODEL("max_seq_length", "", "an evaluation by a harness", .with = "!tasks"),
    MODEL("enable_kv_cache", "", "an evaluation, or a recipe that generates text", .with = "!tasks"),
    MODEL("max_new_tokens", "", "a recipe that generates text; see `trainmark generate`"),
    MODEL("temperature", "", "a recipe that generates text; see `trainmark generate`"),
    MODEL("top_k", "", "a recipe that generates text; see `trainmark generate`"),
    UNBUILT("dataloader.shuffle", "true|null", "samples in the order of the file", LOCAL_ROWS),
    HARMLESS("dataloader.*", "how samples are fetched"), HARMLESS("collate_fn", "how samples are fetched"),
};
/* clang-format on */

const tm_framework tm_framework_torchtune = { "torchtune", "recipes of torchtune",
                                              keys,        sizeof keys / sizeof keys[0],
                                              NULL,        false };
