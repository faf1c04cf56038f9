/* SPDX-License-Identifier: Apache-2.0 */
/* config/frameworks/torchtitan.c - the keys of TorchTitan and of Primus experiments with framework torchtitan.
 *
 * Most of our own keys are called like them; the fallbacks are what they take where neither file nor preset says
 * anything, wherever ours is another. Keys that only tune several devices count with their degree. */
#include "config/foreign.h"

#include <string.h>

#define SAME(key) MAPPED(key, key)
#define PIPELINE .with = "parallelism.pipeline_parallel_degree"
#define STAGES(key) MAPPED(key, key, PIPELINE)
#define STAGES_OR_1(key) MAPPED(key, key, PIPELINE, .fallback = "1")
#define FLOAT8 .with = "model.converters=quantize.linear.float8"
#define WIDTH "a width from which its program computes that of the FFN; give model.ffn_dim, too"
#define MX .with = "model.converters=quantize.linear.mx"
#define EXPERTS(kind) .with = "model.converters=quantize.grouped_mm." kind

/* Among the converters "primus_turbo" chooses kernels, "lora" stands for the keys of lora; what else is there changes
 * the products. */
static const char *converters(const tm_config *config, const char *value)
{
    static const char *const none[] = { "primus_turbo", "lora" };
    char                    *out = tm_arena_take(config->arena, strlen(value) + 1), *end = out;
    while (*value) {
        size_t n = strcspn(value, ",");
        bool   dropped = false;
        for (int i = 0; i < 2; i++) dropped |= strlen(none[i]) == n && strncmp(value, none[i], n) == 0;
        if (n == 4 && dropped && !tm_foreign_given(config, "lora.rank")) return NULL;
        if (!dropped) {
            if (end != out) *end++ = ',';
            memcpy(end, value, n);
            end += n;
        }
        value += n + (value[n] == ',');
    }
    return out;
}

/* The FFN's width follows from this one in the models of TorchTitan: it must be given. */
static const char *width(const tm_config *config, const char *value)
{
    const tm_entry *ffn = tm_entry_find(config, "model.ffn_dim");
    return ffn && tm_entry_decider(ffn) > LAYER_TRAINER ? value : NULL;
}

/* Where training has data of its own, samples held out are a part of them, or of a file: not of a public data set;
 * NULL. Beside mock data its name says nothing. */
static const char *held_out(const tm_config *config, const char *value)
{
    const char *mock = tm_foreign_text(config, "training.mock_data");
    bool        is_mock = mock && strcmp(mock, "false") != 0;
    bool        local = tm_foreign_given(config, "training.dataset_path") || tm_config_text(config, "data.path");
    bool named = tm_foreign_given(config, "validation.dataset_path") || tm_config_text(config, "data.validation_path");
    return local && !is_mock && !named ? NULL : value;
}

/* Images have no tokens to count. */
static const char *evaluated_tokens(const tm_config *config, const char *value)
{
    const char *model = tm_foreign_given(config, "model.name");
    return model && strcmp(model, "flux") == 0 && !tm_foreign_given(config, "validation.seq_len") ? "" : value;
}

/* clang-format off */
static const tm_foreign_key keys[] = {
    HARMLESS("trainable", "which module is trained"),
    HARMLESS("sink_level", "log level"),
    HARMLESS("file_sink_level", "log level"),
    HARMLESS("stderr_sink_level", "log level"),
    HARMLESS("env.*", "environment variables of its launcher and libraries"),
    HARMLESS("job.config_file", "name of the file"),
    HARMLESS("job.dump_folder", "use --out for the run directory"),
    SAME("job.description"),
    HARMLESS("job.print_config", "see --dry-run"),
    HARMLESS("job.print_args", "see --dry-run"),
    HARMLESS("job.save_config_file", "config.yaml is always written"),
    HARMLESS("job.use_for_integration_test", "torchtitan's own tests"),
    HARMLESS("job.custom_config_module", "Python classes of further keys, which have rows or are unknown"),
    /* model */
    SAME("model.name"),
    MAPPED("model.flavor", "flux-schnell:model.flavor=schnell|flux-dev:model.flavor=dev|*:model.flavor"),
    SAME("model.n_layers"),
    SAME("model.rope_theta"),
    SAME("model.norm_eps"),
    SAME("model.max_seq_len"),
    SAME("model.vocab_size"),
    SAME("model.n_heads"),
    SAME("model.n_kv_heads"),
    MAPPED("model.dim", "model.dim", .convert = width, .words = WIDTH),
    MODEL("model.ffn_dim_multiplier", "", WIDTH),
    MODEL("model.multiple_of", "", WIDTH),
    EQUAL("model.norm_type", "rmsnorm|fused_rmsnorm|compiled_rmsnorm|null", "norms of another kind"),
    HARMLESS("model.hf_assets_path", "tokenizer; see data.tokenizer"),
    HARMLESS("model.tokenizer_path", "tokenizer; see data.tokenizer"),
    MAPPED("model.converters", "model.converters", .convert = converters, .words = "adapters without lora.rank"),
    HARMLESS("model.print_after_conversion", "see trainmark explain"),
    MODEL("hf_transformers.*", "", "a model of the package transformers; model.hf_assets_path names a directory of one"),
    /* profiling, metrics */
    HARMLESS("profiling.enable_profiling", "traces; the ledger of a step is always on"),
    HARMLESS("profiling.save_traces_folder", "has an effect with profiling.enable_profiling"),
    HARMLESS("profiling.profile_freq", "has an effect with profiling.enable_profiling"),
    HARMLESS("profiling.profiler_active", "length of a trace"),
    HARMLESS("profiling.profiler_warmup", "length of a trace"),
    HARMLESS("profiling.enable_memory_snapshot", "memory by buffer; see trainmark explain"),
    HARMLESS("profiling.save_memory_snapshot_folder", "has an effect with profiling.enable_memory_snapshot"),
    SAME("metrics.log_freq"),
    SAME("metrics.disable_color_printing"),
    SAME("metrics.enable_tensorboard"),
    SAME("metrics.save_tb_folder"),
    HARMLESS("metrics.enable_wandb", "not used: nothing is sent anywhere"),
    HARMLESS("metrics.save_for_all_ranks", "metrics.jsonl holds every step"),
    /* optimizer, schedule */
    SAME("optimizer.name"),
    MAPPED("optimizer.lr", "optimizer.lr", .fallback = "8e-4"),
    MAPPED("optimizer.beta1", "optimizer.beta1", .with = "!optimizer.name=SGD"),
    MAPPED("optimizer.beta2", "optimizer.beta2", .with = "!optimizer.name=SGD"),
    MAPPED("optimizer.eps", "optimizer.eps", .with = "!optimizer.name=SGD"),
    SAME("optimizer.weight_decay"),
    SAME("optimizer.implementation"),
    UNBUILT("optimizer.state_dtype", "float32|null", "moments in another format; see optimizer.implementation"),
    SAME("optimizer.early_step_in_backward"),
    MAPPED("lr_scheduler.warmup_steps", "lr_scheduler.warmup_steps", .fallback = "200"),
    SAME("lr_scheduler.decay_ratio"),
    SAME("lr_scheduler.decay_type"),
    SAME("lr_scheduler.min_lr_factor"),
    MAPPED("lr_scheduler.lr_min", "lr_scheduler.min_lr_factor"),
    MAPPED("lr_scheduler.total_steps", "lr_scheduler.total_steps"),
    /* training */
    MAPPED("training.mock_data", "training.mock_data", .fallback = "true"),
    MAPPED("training.dataset", "training.dataset", .fallback = "c4"),
    SAME("training.dataset_path"),
    MAPPED("training.local_batch_size", "training.local_batch_size", .fallback = "8"),
    MAPPED("training.batch_size", "training.local_batch_size"),
    SAME("training.global_batch_size"),
    MAPPED("training.seq_len", "training.seq_len", .with = "!model.name=flux", .fallback = "2048"),
    MAPPED("training.steps", "training.steps", .fallback = "10000"),
    SAME("training.max_norm"),
    MAPPED("training.mixed_precision_param", "training.mixed_precision_param", .fallback = "bfloat16"),
    SAME("training.mixed_precision_reduce"),
    MAPPED("training.dtype", "float32:|bfloat16:training.regime=pure;training.dtype=bfloat16",
           .words = "type of weights and moments"),
    SAME("training.enable_cpu_offload"),
    HARMLESS("training.enable_detailed_memory_tracking", "memory by buffer; see trainmark explain"),
    HARMLESS("training.clear_cache_between_steps", "there is no allocator with a cache"),
    HARMLESS("training.aggressive_memory_*", "there is no allocator with a cache"),
    HARMLESS("training.gc_freq", "there is no garbage collector"),
    HARMLESS("training.gc_debug", "there is no garbage collector"),
    SPEED("training.compile", "steps are always compiled into programs"),
    HARMLESS("training.dataloader.*", "how files are read"),
    MAPPED("training.debug_moe_force_load_balance", "debug.moe_force_load_balance"),
    MAPPED("training.warmup_steps", "lr_scheduler.warmup_steps"),
    MAPPED("training.data_parallel_degree", "parallelism.data_parallel_shard_degree"),
    MAPPED("training.data_parallel_shard_degree", "parallelism.data_parallel_shard_degree"),
    MAPPED("training.data_parallel_replicate_degree", "parallelism.data_parallel_replicate_degree"),
    MAPPED("training.tensor_parallel_degree", "parallelism.tensor_parallel_degree"),
    UNBUILT("training.enable_float8_linear", "false|null", "float8 training; give model.converters"),
    MAPPED("training.seed", "debug.seed"),
    HARMLESS("training.deterministic", "runs are always deterministic"),
    MAPPED("training.classifier_free_guidance_prob", "data.text_dropout"),
    MAPPED("training.classifer_free_guidance_prob", "data.text_dropout"),
    MAPPED("training.img_size", "model.image_size"),
    HARMLESS("training.test_mode", "which encoders are loaded"),
    SAME("debug.seed"),
    HARMLESS("debug.deterministic", "runs are always deterministic"),
    HARMLESS("debug.deterministic_warn_only", "runs are always deterministic"),
    SAME("debug.moe_force_load_balance"),
    HARMLESS("debug.enable_nan_tracker", "steps without numbers are always reported"),
    HARMLESS("debug.nan_tracker_*", "steps without numbers are always reported"),
    HARMLESS("debug.print_config", "see --dry-run"),
    HARMLESS("debug.save_config_file", "config.yaml is always written"),
    MAPPED("encoder.max_t5_encoding_len", "model.text_len"),
    HARMLESS("encoder.*", "encoders; images and texts come encoded"),
    UNBUILT("inference.*", "", "generation of images"),
    UNBUILT("eval.*", "false|null", "generation of images"),
    UNBUILT("dataset.*", "false|null", "another loader of data"),
    /* parallelism */
    SAME("parallelism.data_parallel_shard_degree"),
    SAME("parallelism.data_parallel_replicate_degree"),
    SAME("parallelism.tensor_parallel_degree"),
    SAME("parallelism.pipeline_parallel_degree"),
    SAME("parallelism.context_parallel_degree"),
    SAME("parallelism.expert_tensor_parallel_degree"),
    MAPPED("parallelism.expert_parallel_degree", "parallelism.expert_parallel_degree"),
    SAME("parallelism.fsdp_reshard_after_forward"),
    SPEED("parallelism.enable_async_tensor_parallel", "communication of several devices"),
    SAME("parallelism.enable_sequence_parallel"),
    SPEED("parallelism.enable_compiled_autograd", "how the backward pass is computed"),
    SPEED("parallelism.disable_loss_parallel", "communication of several devices"),
    SAME("parallelism.context_parallel_rotate_method"),
    SPEED("parallelism.context_parallel_load_balancer", "communication of several devices"),
    SPEED("parallelism.expert_parallel_comm_backend", "communication of several devices"),
    STAGES("parallelism.pipeline_parallel_schedule"),
    STAGES("parallelism.pipeline_parallel_layers_per_stage"),
    STAGES_OR_1("parallelism.pipeline_parallel_microbatch_size"),
    STAGES_OR_1("parallelism.pipeline_parallel_first_stage_less_layers"),
    STAGES_OR_1("parallelism.pipeline_parallel_last_stage_less_layers"),
    STAGES("parallelism.pipeline_parallel_schedule_csv"),
    UNBUILT("parallelism.pipeline_parallel_*", "", "pipeline parallelism", PIPELINE),
    STAGES("parallelism.module_fqns_per_model_part"),
    /* checkpoint */
    SAME("checkpoint.enable"),
    MAPPED("checkpoint.enable_checkpoint", "checkpoint.enable"),
    SAME("checkpoint.folder"),
    SAME("checkpoint.interval"),
    SAME("checkpoint.keep_latest_k"),
    SAME("checkpoint.load_step"),
    MAPPED("checkpoint.async_mode", "checkpoint.async_mode", .with = "checkpoint.enable"),
    MAPPED("checkpoint.initial_load_path", "checkpoint.initial_load_path"),
    HARMLESS("checkpoint.initial_load_model_only", "has an effect with checkpoint.initial_load_path"),
    MAPPED("checkpoint.initial_load_in_hf", "checkpoint.initial_load_in_hf"),
    UNBUILT("checkpoint.initial_load_in_hf_quantized", "false|null", "loading model directories"),
    UNBUILT("checkpoint.initial_load_dequantize", "false|null", "loading model directories"),
    HARMLESS("checkpoint.last_save_model_only", "checkpoints are always complete"),
    HARMLESS("checkpoint.last_save_model_weights_only", "checkpoints are always complete"),
    HARMLESS("checkpoint.model_weights_only", "checkpoints are always complete"),
    UNBUILT("checkpoint.interval_type", "steps|null", "checkpoints by the clock",
            .with = "checkpoint.enable_checkpoint"),
    MAPPED("checkpoint.last_save_in_hf", "checkpoint.last_save_in_hf", .with = "checkpoint.enable"),
    HARMLESS("checkpoint.export_dtype", "has an effect with checkpoint.last_save_in_hf"),
    MAPPED("checkpoint.exclude_from_loading", ":|*:checkpoint.exclude_from_loading", .with = "checkpoint.enable"),
    MAPPED("checkpoint.enable_first_step_checkpoint", "checkpoint.enable_first_step_checkpoint",
           .with = "checkpoint.enable"),
    MAPPED("checkpoint.create_seed_checkpoint", "checkpoint.create_seed_checkpoint"),
    UNBUILT("checkpoint.load_only", "false|null", "loading without saving", .with = "checkpoint.enable"),
    /* recomputation */
    SAME("activation_checkpoint.mode"),
    SAME("activation_checkpoint.selective_ac_option"),
    SPEED("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", "what is recomputed"),
    SPEED("activation_checkpoint.early_stop", "what is recomputed"),
    SPEED("activation_checkpoint.memory_budget", "has an effect with activation_checkpoint.mode memory_budget"),
    HARMLESS("activation_checkpoint.visualize_memory_budget_pareto", "drawings"),
    HARMLESS("activation_checkpoint.preserve_rng_state", "recomputed values are the same"),
    HARMLESS("activation_checkpoint.determinism_check", "recomputed values are the same"),
    HARMLESS("activation_checkpoint.debug", "drawings"),
    SPEED("compile.*", "steps are always compiled into programs"),
    /* quantized products: on by a converter */
    MAPPED("quantize.linear.float8.recipe_name", "*:quantize.linear.float8.recipe_name", FLOAT8),
    MAPPED("quantize.linear.float8.filter_fqns", "quantize.linear.float8.filter_fqns", FLOAT8),
    SPEED("quantize.linear.float8.emulate", "emulated where the device does not multiply codes"),
    SPEED("quantize.linear.float8.enable_fsdp_float8_all_gather", "communication of several devices"),
    SPEED("quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp", "communication of several devices"),
    UNBUILT("quantize.linear.float8.*", "null||false", "float8 training", FLOAT8),
    MAPPED("quantize.linear.mx.recipe_name", "*:quantize.linear.mx.recipe_name", MX, .fallback = "mxfp8_cublas"),
    MAPPED("quantize.linear.mx.filter_fqns", "quantize.linear.mx.filter_fqns", MX, .fallback = "output"),
    MAPPED("quantize.linear.mx.fqns", "quantize.linear.mx.fqns", MX),
    SPEED("quantize.linear.mx.mxfp8_dim1_cast_kernel_choice", "kernels"),
    UNBUILT("quantize.linear.mx.*", "", "MX training", MX),
    MAPPED("quantize.grouped_mm.float8.fqns", "quantize.grouped_mm.float8.fqns", EXPERTS("float8")),
    MAPPED("quantize.grouped_mm.mx.fqns", "quantize.grouped_mm.mx.fqns", EXPERTS("mx")),
    MAPPED("quantize.grouped_mm.mx.recipe_name", "*:quantize.grouped_mm.mx.recipe_name", EXPERTS("mx")),
    UNBUILT("quantize.grouped_mm.*", "", "quantized experts",
           .with = "model.converters=quantize.grouped_mm.float8/quantize.grouped_mm.mx"),
    SPEED("float8.enable_fsdp_float8_all_gather", "communication of several devices"),
    SPEED("float8.precompute_float8_dynamic_scale_for_fsdp", "communication of several devices"),
    SPEED("float8.force_recompute_fp8_weight_in_bwd", "what is recomputed"),
    MAPPED("float8.recipe_name", "*:quantize.linear.float8.recipe_name", FLOAT8),
    MAPPED("float8.filter_fqns", "quantize.linear.float8.filter_fqns", FLOAT8),
    UNBUILT("float8.*", "null||false", "float8 training", FLOAT8),
    UNBUILT("quantize.dense.*", "", "float8 training by this name; give quantize.linear.float8",
            .with = "model.converters=quantize.dense.float8/quantize.dense.mx"),
    UNBUILT("quantize.moe.*", "", "quantized experts",
            .with = "model.converters=quantize.moe.float8/quantize.moe.mx"),
    UNBUILT("quantize.linear.fp8.*", "", "float8 training by this name; give quantize.linear.float8",
            FLOAT8),
    UNBUILT("mx.*", "false", "MX training", MX),
    MAPPED("lora.rank", "lora.rank"),
    MAPPED("lora.alpha", "lora.alpha"),
    MAPPED("lora.dropout", "lora.dropout"),
    MAPPED("lora.apply_to_all_linears", "true:lora.targets=all-linear|false:", .words = "adapters of some linears"),
    /* several devices, other services */
    UNBUILT("comm.mode", "default|null", "a run that only imitates devices; see --dry-run"),
    HARMLESS("comm.*", "deadlines of communication"),
    UNBUILT("memory_estimation.enable*", "false|null", "an estimate instead of training; see --dry-run"),
    HARMLESS("memory_estimation.*", "memory is always planned"),
    UNBUILT("sft_config.*", "", "fine-tuning by this experiment; give data.source sft and data.path"),
    UNBUILT("fault_tolerance.enable", "false|null", "groups of replicas"),
    UNBUILT("fault_tolerance.*", "", "groups of replicas", .with = "fault_tolerance.enable"),
    HARMLESS("experimental.custom_args_module", "Python classes of further keys, which have rows or are unknown"),
    MAPPED("experimental.pipeline_parallel_degree", "parallelism.pipeline_parallel_degree"),
    UNBUILT("experimental.pipeline_parallel_*", "", "pipeline parallelism",
            .with = "experimental.pipeline_parallel_degree"),
    UNBUILT("experimental.custom_import", "null|", "a Python module that changes the program"),
    UNBUILT("experimental.custom_model_path", "null|", "a Python module that changes the program"),
    /* validation */
    MAPPED("validation.enable", "validation.enable", .fallback = "false"),
    MAPPED("validation.dataset", "*:", .with = "validation.enable", .convert = held_out, .plans = true,
           .words = "a data set that is not downloaded; leave it out to hold out a part of the training's"),
    MAPPED("validation.dataset_path", "data.validation_path", .with = "validation.enable"),
    MAPPED("validation.local_batch_size", "validation.local_batch_size", .with = "validation.enable", .fallback = "8"),
    MAPPED("validation.seq_len", "validation.seq_len", .with = "validation.enable", .convert = evaluated_tokens,
           .fallback = "2048"),
    MAPPED("validation.freq", "validation.freq", .with = "validation.enable", .fallback = "10"),
    MAPPED("validation.steps", "validation.steps", .with = "validation.enable"),
    UNBUILT("validation.*", "", "evaluation of images", .with = "validation.enable"),
    /* kernels of another program */
    SPEED("primus_turbo.enable_primus_turbo", "kernels"),
    SPEED("primus_turbo.use_turbo_attention", "kernels"),
    SPEED("primus_turbo.use_classic_attention", "kernels"),
    SPEED("primus_turbo.use_turbo_async_tp", "communication of several devices"),
    SPEED("primus_turbo.use_turbo_grouped_mm", "kernels"),
    SPEED("primus_turbo.use_turbo_float8_linear", "kernels; float8 is on by model.converters"),
    SPEED("primus_turbo.use_turbo_mx_linear", "kernels; MX is on by model.converters"),
    HARMLESS("primus_turbo.use_moe_fp8", "has an effect with use_turbo_grouped_mm and experts, where it is not supported"),
    SPEED("primus_turbo.use_turbo_fp8_gemm", "kernels; float8 is on by model.converters"),
    SPEED("primus_turbo.use_turbo_*", "kernels"),
    SPEED("primus_turbo.enable_embedding_autocast", "the embedding's rows are cast once"),
    UNBUILT("primus_turbo.enable_attention_float8", "false|null", "attention in float8"),
};
/* clang-format on */

const tm_framework tm_framework_torchtitan = { "torchtitan", "TorchTitan, and Primus with framework torchtitan",
                                               keys,         sizeof keys / sizeof keys[0],
                                               NULL,         false };
