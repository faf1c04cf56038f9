/* SPDX-License-Identifier: Apache-2.0 */
/* config/frameworks/megatron.c - the arguments of Megatron-LM, and what Primus adds to them.
 *
 * The fallbacks are what a Primus experiment takes where neither file nor preset says anything. A model is described by
 * its arguments: a preset of ours of the same name only fills what they leave open where theirs is not found. */
#include "config/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Embedding rows of published models, by the end of their tokenizer's name. */
static const struct {
    const char *name, *rows;
} vocabularies[] = {
    { "Llama-2-", "32000" },
    { "Llama-3", "128256" },
    { "Llama-4", "202048" },
    { "Mixtral-8x", "32000" },
    { "Mistral-7B", "32000" },
    { "Qwen2.5-0.5B", "151936" },
    { "Qwen2.5-1.5B", "151936" },
    { "Qwen2.5-3B", "151936" },
    { "Qwen2.5-", "152064" },
    { "Qwen3-", "151936" },
    { "DeepSeek-R1-Distill-Qwen-1.5B", "151936" },
    { "DeepSeek-V2", "102400" },
    { "DeepSeek-V3", "129280" },
    { "gpt-oss-", "201088" },
    { "gpt-neox-20b", "50432" },
};

static const char *rows_of_tokenizer(const tm_config *config, const char *value)
{
    const char *best = "";
    size_t      longest = 0;
    (void)config;
    for (size_t i = 0; i < sizeof vocabularies / sizeof vocabularies[0]; i++) {
        size_t n = strlen(vocabularies[i].name);
        if (!strstr(value, vocabularies[i].name) || n <= longest) continue;
        longest = n;
        best = vocabularies[i].rows;
    }
    return best;
}

static int64_t number_of(const tm_config *config, const char *name, int64_t fallback)
{
    const char *text = tm_foreign_text(config, name);
    int64_t     n = text ? strtoll(text, NULL, 10) : fallback;
    return n > 0 ? n : fallback;
}

/* Rows are added until several devices can share them. */
static const char *padded(const tm_config *config, const char *value)
{
    char   *end;
    int64_t rows = strtoll(value, &end, 10), step;
    if (*end || rows < 1 || rows > 1 << 24) return value; /* refused as a vocabulary */
    if (__builtin_mul_overflow(number_of(config, "make_vocab_size_divisible_by", 128),
                               number_of(config, "tensor_model_parallel_size", 1), &step))
        return NULL;
    if (step > 1 << 24) return NULL;
    return tm_arena_format(config->arena, "%lld", (long long)((rows + step - 1) / step * step));
}

/* Shared experts are one FFN: so many times as wide as an expert. */
static const char *shared_experts(const tm_config *config, const char *value)
{
    const char *of_one = tm_foreign_text(config, "moe_ffn_hidden_size"),
               *dense = tm_foreign_text(config, "ffn_hidden_size");
    int64_t width = of_one  ? number_of(config, "moe_ffn_hidden_size", 1)
                    : dense ? number_of(config, "ffn_hidden_size", 1)
                            : 0;
    char   *end;
    int64_t all = strtoll(value, &end, 10);
    if (*end) return value; /* refused as a number */
    if (width < 1 || all < 0 || all % width) return NULL;
    return tm_arena_format(config->arena, "%lld", (long long)(all / width));
}

/* 1, or "([0]*3+[1]*58)": the first three have no experts. */
static const char *dense_layers(const tm_config *config, const char *value)
{
    long long dense, rest;
    int       used = 0;
    if (strcmp(value, "1") == 0) return "0";
    if (sscanf(value, "([0]*%9lld+[1]*%9lld)%n", &dense, &rest, &used) != 2 || value[used] || dense < 0 || rest < 1)
        return NULL;
    return tm_arena_format(config->arena, "%lld", dense);
}

/* A group is judged by so many of its best. */
static const char *group_best(const tm_config *config, const char *value)
{
    int64_t groups = strtoll(value, NULL, 10), best = groups > 0 ? number_of(config, "moe_router_topk", 2) / groups : 0;
    return best < 1 ? NULL : tm_arena_format(config->arena, "%lld", (long long)best);
}

/* Positions, attention and loss by document: all three or none. */
static const char *documents(const tm_config *config, const char *value)
{
    static const char *const keys[] = { "reset_position_ids", "reset_attention_mask", "eod_mask_loss" };
    int                      on = 0;
    for (int i = 0; i < 3; i++) {
        const char *given = tm_foreign_given(config, keys[i]);
        on += given && strcmp(given, "true") == 0;
    }
    return on == 0 || on == 3 ? value : NULL;
}

static bool family_is_latent(const tm_config *config)
{
    const char *family = tm_config_text(config, "model.family");
    return family && strcmp(family, "deepseek") == 0;
}

/* Said by the file; else a preset of ours has it or not. */
static bool latent_attention(const tm_config *config)
{
    const char *given = tm_foreign_given(config, "multi_latent_attention");
    return given ? strcmp(given, "true") == 0 : family_is_latent(config);
}

/* A preset of ours with latent attention loses it. */
static const char *latent(const tm_config *config, const char *value)
{
    const char *given = tm_foreign_given(config, "multi_latent_attention");
    return given && strcmp(given, "false") == 0 && family_is_latent(config) ? "lost" : value;
}

/* GPT-OSS, a preset of ours that these arguments cannot describe, has all biases unless the file says something. */
static const char *biases(const tm_config *config, const char *value)
{
    const char *family = tm_config_text(config, "model.family");
    bool        own = family && strcmp(family, "gpt_oss") == 0;
    return own && !tm_foreign_given(config, "add_qkv_bias") ? "own" : value;
}

/* What counts with latent attention only, or without it only: cases "plain" and "latent". */
static const char *if_latent(const tm_config *config, const char *value)
{
    return latent_attention(config) ? value : "plain";
}

static const char *unless_latent(const tm_config *config, const char *value)
{
    return latent_attention(config) ? "latent" : value;
}

/* Norms of query and key: of heads; or of what both are computed from, which our latent attention always has. */
static const char *norms(const tm_config *config, const char *value)
{
    const char *given = tm_foreign_given(config, "qk_layernorm");
    if (!latent_attention(config)) return value;
    return !given || strcmp(given, "true") == 0 ? "latent" : NULL;
}

/* Latent attention has YaRN's positions, others the plain ones. */
static const char *positions(const tm_config *config, const char *value)
{
    return strcmp(value, latent_attention(config) ? "yarn" : "rope") == 0 ? value : NULL;
}

#define DOCUMENTS(key)                                                                                                 \
    MAPPED(key, "true:data.separate_documents=true|false:", .with = "!mock_data", .convert = documents,                \
           .words = "documents apart in some ways only: reset_position_ids, reset_attention_mask and eod_mask_loss "   \
                    "are one")
#define LOG(key) HARMLESS(key, "output and logging")
#define PROFILE(key) HARMLESS(key, "profiling")
#define FILES(key) HARMLESS(key, "how checkpoints are written")
#define COMM(key) SPEED(key, "communication of several devices")
#define KERNEL(key) SPEED(key, "kernels")
#define MOE(key) MODEL(key, "", "this form of experts", .with = "num_experts")
#define MOE_SPEED(key) SPEED(key, "kernels of experts")
#define MLA(key, ours) MAPPED(key, "plain:|*:" ours, .convert = if_latent)
#define STATE_SPACE(key) MODEL(key, "", "state-space layers (Mamba)", .with = "is_hybrid_model")
#define MUON(key) UNBUILT(key, "", "the Muon optimizer", .with = "optimizer=muon/dist_muon")
#define FP8(key) UNBUILT(key, "", "float8 training", .with = "fp8")
#define LOADS(key, words) UNBUILT(key, "null|false", words, .with = "load")
#define TENSOR .with = "tensor_model_parallel_size"
#define PIPELINE .with = "pipeline_model_parallel_size"
#define DIFFUSION .with = "model_type=diffusion_model"
#define NOT_DIFFUSION .with = "!model_type=diffusion_model"

/* clang-format off */
static const tm_foreign_key keys[] = {
    /* the module */
    HARMLESS("trainable", "which module is trained"),
    LOG("sink_level"), LOG("file_sink_level"), LOG("stderr_sink_level"),
    HARMLESS("yaml_cfg", "another way to give arguments"),
    UNBUILT("stage", "null|pretrain", "post-training"),
    HARMLESS("trainer_class", "Python class of the trainer"),
    MODEL("spec", "null|", "layers by a Python specification"),
    MAPPED("model_type", "gpt:|diffusion_model:model.family=flux;data.source=gaussians",
           .words = "a model of this type"),
    MODEL("use_legacy_models", "null|false", "legacy models"),
    HARMLESS("deprecated_use_mcore_models", "the only ones there are"),
    HARMLESS("enable_experimental", "what it permits has keys of its own"),
    UNBUILT("test_mode", "null|false", "test mode"),

    /* shape */
    MAPPED("num_layers", "model.n_layers", NOT_DIFFUSION),
    MODEL("encoder_num_layers", "null", "encoders"),
    MODEL("decoder_num_layers", "null", "encoders"),
    MAPPED("hidden_size", "model.dim"),
    MAPPED("ffn_hidden_size", "model.ffn_dim"),
    MAPPED("num_attention_heads", "model.n_heads"),
    MAPPED("group_query_attention", "true:|false:model.n_kv_heads=null"),
    MAPPED("num_query_groups", "model.n_kv_heads", .with = "group_query_attention"),
    MAPPED("kv_channels", "null:model.head_dim=null|latent:|*:model.head_dim", .convert = unless_latent),
    MAPPED("qk_layernorm", "true:model.qk_norm=true|false:model.qk_norm=false|latent:", NOT_DIFFUSION,
           .convert = norms, .fallback = "false", .words = "latent attention without its norms"),
    MODEL("qk_l2_norm", "null|false", "norms of query and key"),
    MODEL("position_embedding_type", "rope|null", "positions other than rotary ones",
           .with = "!multi_latent_attention"),
    MODEL("add_position_embedding", "false|null", "a table of positions"),
    HARMLESS("use_rotary_position_embeddings", "see position_embedding_type"),
    MAPPED("max_position_embeddings", "model.max_seq_len"),
    MAPPED("rotary_base", "model.rope_theta"),
    MODEL("rotary_percent", "1|null", "rotary positions of part of a head"),
    MAPPED("rotary_interleaved", "true:model.rope_layout=interleaved|false:model.rope_layout=half"),
    MODEL("rotary_seq_len_interpolation_factor", "null|1", "interpolated positions"),
    MAPPED("use_rope_scaling", "true:model.rope_scaling=llama3|false:model.rope_scaling=none|latent:", NOT_DIFFUSION,
           .convert = unless_latent, .fallback = "false"),
    MAPPED("rope_scaling_factor", "model.rope_scaling_factor", .with = "use_rope_scaling"),
    MAPPED("rope_type", "rope:|yarn:", .convert = positions, .words = "YaRN without latent attention, or latent without"),
    MLA("rotary_scaling_factor", "model.rope_scaling_factor"),
    MLA("original_max_position_embeddings", "model.rope_original_max_seq_len"),
    MLA("mscale", "model.rope_mscale"), MLA("mscale_all_dim", "model.rope_mscale_all_dim"),
    MAPPED("untie_embeddings_and_output_weights", "true:model.tied=false|false:model.tied=true", NOT_DIFFUSION,
           .fallback = "true"),
    MODEL("swiglu", "true|null", "a feed-forward part without gate"),
    MODEL("quick_geglu", "false|null", "quick GEGLU"),
    MODEL("openai_gelu", "false|null", "GELU in a gated model"),
    MODEL("squared_relu", "false|null", "squared ReLU"),
    MODEL("swiglu_limit", "null", "clamped SwiGLU"),
    MODEL("activation_func_clamp_value", "null", "clamped SwiGLU"),
    MODEL("activation_situ_*", "null", "clamped SwiGLU"),
    MODEL("add_bias_linear", "false|null", "biases of linears"),
    MAPPED("add_qkv_bias", "true:model.bias=qkv|false:model.bias=none|own:", NOT_DIFFUSION, .convert = biases,
           .fallback = "false"),
    MODEL("normalization", "RMSNorm|null", "LayerNorm in a gated model"),
    MODEL("apply_layernorm_1p", "false|null", "norm weights around 0"),
    MAPPED("norm_epsilon", "model.norm_eps"),
    MAPPED("layernorm_epsilon", "model.norm_eps"),
    MODEL("apply_residual_connection_post_layernorm", "false|null", "residuals behind the norm"),
    UNBUILT("fp32_residual_connection", "false|null", "a residual stream in float32"),
    UNBUILT("hidden_dropout", "0|null", "dropout"),
    UNBUILT("attention_dropout", "0|null", "dropout"),
    UNBUILT("apply_query_key_layer_scaling", "false|null", "scaling of scores by layer"),
    HARMLESS("attention_softmax_in_fp32", "always"),
    MODEL("final_logit_softcapping", "null", "soft capping"),
    MODEL("attn_logit_softcapping", "null", "soft capping"),
    MODEL("router_logit_softcapping", "null", "soft capping"),
    MODEL("attn_sliding_window", "null|0", "sliding windows"),
    MODEL("window_size", "null", "sliding windows"),
    MODEL("attn_sink", "false|null", "attention sinks"),
    MODEL("attention_output_gate", "false|null", "gated attention"),
    MODEL("experimental_attention_variant", "null", "another attention"),
    MODEL("hybrid_attention_enabled", "false|null", "another attention"),
    MODEL("mtp_num_layers", "null|0", "prediction of several tokens"),
    MODEL("mtp_*", "", "prediction of several tokens", .with = "mtp_num_layers"),
    MODEL("num_nextn_predict_layers", "null|0", "prediction of several tokens"),
    MAPPED("init_method_std", "model.init_std;model.init=gpt2", NOT_DIFFUSION, .fallback = "0.02"),
    UNBUILT("init_method_xavier_uniform", "false|null", "Xavier's initial weights"),
    HARMLESS("perform_initialization", "always"),
    HARMLESS("use_cpu_initialization", "where initial weights are made"),
    HARMLESS("data_parallel_random_init", "one copy of the weights"),
    HARMLESS("init_model_with_meta_device", "where initial weights are made"),

    /* latent attention; state space, which is not built */
    MAPPED("multi_latent_attention",
           "true:model.family=deepseek;model.rope_scaling=yarn|false:|"
           "lost:model.family=llama;model.kv_lora_rank=null;model.q_lora_rank=null",
           .convert = latent),
    MAPPED("q_lora_rank", "null:model.q_lora_rank=null|plain:|*:model.q_lora_rank", .convert = if_latent),
    MLA("kv_lora_rank", "model.kv_lora_rank"), MLA("qk_head_dim", "model.qk_nope_head_dim"),
    MLA("qk_pos_emb_head_dim", "model.qk_rope_head_dim"), MLA("v_head_dim", "model.v_head_dim"),
    MODEL("mla_*", "", "another form of latent attention"),
    SPEED("fused_padded_mla_attention", "kernels"),
    /* experts: a router that works in float32, on all tokens */
    MAPPED("num_experts", "0:|*:model.n_experts"),
    MAPPED("moe_router_topk", "model.n_experts_per_token", .with = "num_experts"),
    MAPPED("moe_ffn_hidden_size", "model.moe_ffn_dim", .with = "num_experts"),
    MAPPED("moe_shared_expert_intermediate_size", "model.n_shared_experts", .with = "num_experts",
           .convert = shared_experts,
           .words = "shared experts that are not a multiple of an expert"),
    MAPPED("moe_layer_freq", "model.n_dense_layers", .with = "num_experts", .convert = dense_layers,
           .words = "layers with and without experts in another order than [0]*dense+[1]*rest"),
    MAPPED("moe_router_score_function",
           "softmax:model.moe_score=softmax|sigmoid:model.moe_score=sigmoid;model.moe_normalise=true",
           .with = "num_experts", .fallback = "softmax", .words = "another score"),
    MAPPED("moe_router_pre_softmax", "true:model.moe_normalise=false|false:model.moe_normalise=true",
           .with = "moe_router_score_function=softmax", .fallback = "false"),
    MAPPED("moe_router_topk_scaling_factor", "model.moe_scale", .with = "num_experts"),
    MAPPED("moe_router_num_groups", "model.n_expert_groups", .with = "num_experts"),
    MAPPED("moe_router_group_topk", "model.n_limited_groups=*;model.expert_group_best", .with = "num_experts",
           .convert = group_best,
           .words = "more groups than experts of a token"),
    MAPPED("moe_router_load_balancing_type",
           "aux_loss:model.moe_aux_loss_per_sequence=false|seq_aux_loss:model.moe_aux_loss_per_sequence=true|"
           "none:model.moe_aux_loss=0",
           .with = "num_experts", .fallback = "aux_loss", .words = "another way to balance experts"),
    MAPPED("moe_aux_loss_coeff", "model.moe_aux_loss",
           .with = "moe_router_load_balancing_type=aux_loss/seq_aux_loss"),
    MAPPED("moe_router_enable_expert_bias", "model.moe_bias", .with = "num_experts"),
    MAPPED("moe_router_bias_update_rate", "model.moe_bias_rate", .with = "moe_router_enable_expert_bias"),
    MAPPED("moe_router_force_load_balancing", "debug.moe_force_load_balance", .with = "num_experts"),
    UNBUILT("moe_router_force_load_balancing_type", "even", "random routing",
           .with = "moe_router_force_load_balancing"),
    UNBUILT("moe_router_dtype", "fp32", "a router in another format than float32", .with = "num_experts"),
    UNBUILT("moe_z_loss_coeff", "0", "the z-loss of the router", .with = "num_experts"),
    UNBUILT("moe_expert_capacity_factor", "", "experts that drop tokens", .with = "num_experts"),
    UNBUILT("moe_pad_expert_input_to_capacity", "false", "experts that drop tokens", .with = "num_experts"),
    UNBUILT("moe_token_drop_policy", "", "experts that drop tokens", .with = "moe_expert_capacity_factor"),
    UNBUILT("moe_input_jitter_eps", "", "noise on the router's input", .with = "num_experts"),
    UNBUILT("moe_use_upcycling", "false", "experts made of a dense model", .with = "num_experts"),
    UNBUILT("moe_router_bias_update_rule", "sign", "another rule of the routing bias",
           .with = "moe_router_enable_expert_bias"),
    MODEL("moe_*", "false|0", "this form of experts", .with = "num_experts"),
    MOE_SPEED("moe_shared_expert_overlap"), MOE_SPEED("moe_grouped_gemm"), MOE_SPEED("moe_use_legacy_grouped_gemm"),
    MOE_SPEED("moe_permute_fusion"), MOE_SPEED("moe_enable_deepep"), MOE_SPEED("moe_token_dispatcher_type"),
    MOE_SPEED("moe_use_fused_router_with_aux_score"), MOE_SPEED("moe_layer_recompute"), MOE_SPEED("moe_extended_tp"),
    LOG("moe_per_layer_logging"), MOE_SPEED("disable_primus_topk_router"),
    MOE_SPEED("use_deprecated_20241209_moe_layer"),
    MOE("routed_expert_hidden_size"), MOE("latent_moe_use_norm"), MOE("quantile_balancing_*"), MOE("num_hash_layers"),
    COMM("patch_moe_overlap"), COMM("overlap_moe_expert_parallel_comm"),
    MODEL("is_hybrid_model", "false|null", "state-space layers (Mamba)"),
    MODEL("hybrid_*", "0|null", "state-space layers (Mamba)"),
    MODEL("mamba_*", "", "state-space layers (Mamba)"),
    HARMLESS("disable_mamba_mem_eff_path", "counts with mamba_state_dim"),
    STATE_SPACE("use_short_conv"),
    MODEL("linear_attention_freq", "null", "linear attention"),
    MODEL("linear_*", "", "linear attention"),
    MODEL("kda_*", "", "linear attention"),
    MODEL("attn_res_block_size", "null", "attention over blocks"),
    MODEL("lfm_layer_types", "null", "convolutions between layers"),
    MODEL("conv_*", "", "convolutions between layers", .with = "lfm_layer_types"),
    MODEL("hc_*", "null", "hyper-connections"),
    MODEL("compress_*", "null", "compressed attention"),
    MODEL("index_*", "null", "indexed attention"),
    MODEL("o_groups", "null", "grouped output projections"),
    MODEL("o_lora_rank", "null", "grouped output projections"),
    MODEL("use_v4_*", "", "DeepSeek-V4", .with = "model_type=deepseek_v4"),
    MODEL("v4_*", "", "DeepSeek-V4", .with = "model_type=deepseek_v4"),
    KERNEL("use_fla_fused_*"), KERNEL("use_fla_short_conv"), HARMLESS("use_fla_data", "caching"),
    HARMLESS("fla_cache_dir", "caching"), KERNEL("fused_ce_mode"), KERNEL("fused_ce_chunks"), KERNEL("fla_mla_attn"),
    MODEL("apply_wd_to_qk_layernorm", "false|null", "norms of query and key", .with = "qk_layernorm"),

    /* vocabulary */
    HARMLESS("tokenizer_type", "see tokenizer_model"),
    MAPPED("tokenizer_model", ":|*:model.vocab_size", .convert = rows_of_tokenizer, .with = "!vocab_size"),
    MAPPED("vocab_size", "model.vocab_size", NOT_DIFFUSION, .convert = padded, .words = "too large"),
    MAPPED("make_vocab_size_divisible_by", "", .words = "vocab_size is a multiple of it"),
    UNBUILT("vocab_extra_ids", "0|null", "further tokens"),
    HARMLESS("vocab_file", "tokenizer"), HARMLESS("merge_file", "tokenizer"), HARMLESS("tiktoken_*", "tokenizer"),
    HARMLESS("legacy_tokenizer", "tokenizer"), HARMLESS("trust_remote_code", "tokenizer"),

    /* batch, length, steps */
    MAPPED("train_iters", "training.steps", .fallback = "1000"),
    UNBUILT("train_samples", "null", "a length of the training in samples; give train_iters"),
    MAPPED("micro_batch_size", "training.local_batch_size", .fallback = "2"),
    UNBUILT("batch_size", "null", "batch_size (deprecated by its program); give micro_batch_size"),
    MAPPED("global_batch_size", "training.global_batch_size", .fallback = "16"),
    UNBUILT("rampup_batch_size", "null", "a batch that grows"),
    UNBUILT("decrease_batch_size_if_needed", "false|null", "a batch that shrinks"),
    MAPPED("seq_length", "training.seq_len", NOT_DIFFUSION, .fallback = "1024"),
    MODEL("encoder_seq_length", "null", "encoders"),
    MODEL("decoder_seq_length", "null", "encoders"),
    HARMLESS("create_attention_mask_in_dataloader", "where the causal mask is made"),
    UNBUILT("skip_train", "false|null", "evaluation without training"),
    UNBUILT("iterations_to_skip", "null|", "steps left out"),
    UNBUILT("exit_interval", "null", "stopping early; give train_iters"),
    MAPPED("exit_duration_in_mins", "*:exit_duration_in_mins"),
    HARMLESS("exit_signal_handler", "always on"),
    MAPPED("seed", "debug.seed", .fallback = "1234"),
    HARMLESS("deterministic_mode", "runs are always deterministic"),

    /* optimizer */
    MAPPED("optimizer",
           "adam:optimizer.name=AdamW;optimizer.decay=matrices|sgd:optimizer.name=SGD|muon:optimizer.name=Muon|"
           "dist_muon:optimizer.name=Muon",
           .fallback = "adam", .words = "another optimizer"),
    MAPPED("lr", "optimizer.lr", .fallback = "2e-5"),
    MAPPED("min_lr", "min_lr", .fallback = "0"),
    MAPPED("lr_warmup_iters", "lr_scheduler.warmup_steps", .fallback = "40"),
    UNBUILT("lr_warmup_fraction", "null", "a warm-up by its part; give lr_warmup_iters"),
    UNBUILT("lr_warmup_samples", "0|null", "a warm-up in samples; give lr_warmup_iters"),
    UNBUILT("lr_warmup_init", "0|null", "a warm-up that does not begin at 0"),
    UNBUILT("warmup", "null", "warmup (deprecated by its program); give lr_warmup_iters"),
    MAPPED("lr_decay_style",
           "cosine:lr_scheduler.decay_type=cosine|linear:lr_scheduler.decay_type=linear|"
           "constant:lr_scheduler.decay_ratio=0",
           .fallback = "cosine", .words = "another form of the decay"),
    MAPPED("lr_decay_iters", "lr_scheduler.total_steps"),
    UNBUILT("lr_decay_samples", "null", "a decay in samples; give lr_decay_iters"),
    UNBUILT("lr_wsd_*", "", "the WSD schedule", .with = "lr_decay_style=wsd"),
    MAPPED("weight_decay", "optimizer.weight_decay", .fallback = "0"),
    UNBUILT("start_weight_decay", "null", "a weight decay that changes"),
    UNBUILT("end_weight_decay", "null", "a weight decay that changes"),
    EQUAL("weight_decay_incr_style", "constant|null", "a weight decay that changes"),
    UNBUILT("head_lr_mult", "1|null", "another learning rate of the head"),
    UNBUILT("decoupled_lr", "null", "another learning rate of embedding and head"),
    UNBUILT("decoupled_min_lr", "null", "another learning rate of embedding and head"),
    MAPPED("clip_grad", "training.max_norm", .fallback = "1"),
    MAPPED("adam_beta1", "optimizer.beta1", .with = "optimizer=adam", .fallback = "0.9"),
    MAPPED("adam_beta2", "optimizer.beta2", .with = "optimizer=adam", .fallback = "0.999"),
    MAPPED("adam_eps", "optimizer.eps", .with = "optimizer=adam", .fallback = "1e-8"),
    MAPPED("sgd_momentum", "optimizer.momentum", .with = "optimizer=sgd", .fallback = "0.9"),
    MUON("muon_*"),
    HARMLESS("override_opt_param_scheduler", "which of two schedules counts after loading"),
    LOADS("use_checkpoint_opt_param_scheduler", "the schedule of a checkpoint"),
    MAPPED("optimizer_cpu_offload", "training.enable_cpu_offload"),
    UNBUILT("optimizer_offload_fraction", "", "offload to host memory", .with = "optimizer_cpu_offload"),
    UNBUILT("use_torch_optimizer_for_cpu_offload", "", "offload to host memory", .with = "optimizer_cpu_offload"),
    SPEED("overlap_cpu_optimizer_d2h_h2d", "offload to host memory"), SPEED("pin_cpu_*", "offload to host memory"),
    UNBUILT("cpu_offload", "false|null", "offload to host memory"),
    UNBUILT("weight_deosc", "false|null", "weights that are kept from oscillating"),
    UNBUILT("weight_deosc_*", "", "weights that are kept from oscillating", .with = "weight_deosc"),
    UNBUILT("use_precision_aware_optimizer", "false|null", "moments in other formats; see optimizer.groups"),
    EQUAL("main_grads_dtype", "fp32|null", "gradients in another format"),
    EQUAL("main_params_dtype", "fp32|null", "weights in another format"),
    EQUAL("exp_avg_dtype", "fp32|null", "moments in another format"),
    EQUAL("exp_avg_sq_dtype", "fp32|null", "moments in another format"),

    /* number formats */
    MAPPED("bf16", "bf16", .fallback = "true"),
    MAPPED("fp16", "fp16"),
    MAPPED("grad_reduce_in_bf16",
           "true:training.mixed_precision_reduce=bfloat16|false:training.mixed_precision_reduce=float32"),
    HARMLESS("accumulate_allreduce_grads_in_fp32", "always"),
    UNBUILT("calculate_per_token_loss", "false|null", "a loss by tokens over micro-batches of different lengths",
           .with = "!mock_data"),
    HARMLESS("loss_scale", "counts with fp16"), HARMLESS("initial_loss_scale", "counts with fp16"),
    HARMLESS("min_loss_scale", "counts with fp16"), HARMLESS("loss_scale_window", "counts with fp16"),
    HARMLESS("hysteresis", "counts with fp16"), HARMLESS("fp16_lm_cross_entropy", "counts with fp16"),
    HARMLESS("check_for_nan_in_loss_and_grad", "always"), HARMLESS("check_for_spiky_loss", "checks"),
    HARMLESS("check_for_large_grads", "checks"), HARMLESS("check_weight_hash_across_dp_replicas_interval", "checks"),
    UNBUILT("sft_sanitize_nan_grads", "false|null", "gradients with NaN taken for 0"),
    MAPPED("fp8", "*:fp8"),
    UNBUILT("fp8_interval", "null|1", "float8 training", .with = "fp8"),
    FP8("fp8_*"),
    SPEED("no_fp8_weight_transpose_cache", "kernels"),
    UNBUILT("fp4", "null|false", "training in 4 bits"),
    UNBUILT("fp4_*", "", "training in 4 bits", .with = "fp4"),
    UNBUILT("mxfp4_gradient_stochastic_rounding", "false|null", "training in 4 bits"),
    UNBUILT("first_last_layers_bf16", "", "float8 training", .with = "fp8"),
    UNBUILT("num_layers_at_*", "", "float8 training", .with = "first_last_layers_bf16"),
    HARMLESS("te_rng_tracker", "random numbers of another program"),
    HARMLESS("inference_rng_tracker", "random numbers of another program"),

    /* recomputation */
    MAPPED("recompute_granularity", "*:recompute_granularity"),
    MAPPED("recompute_method", "*:recompute_method", .with = "recompute_granularity"),
    MAPPED("recompute_num_layers", "*:recompute_num_layers", .with = "recompute_granularity"),
    MAPPED("recompute_activations", "true:recompute_granularity=selective|false:"),
    UNBUILT("recompute_layer_ids", "null|", "recomputation of chosen layers"),
    HARMLESS("recompute_modules", "counts with recompute_granularity", .with = "!recompute_granularity=selective"),
    COMM("distribute_saved_activations"),
    UNBUILT("checkpoint_activations", "false|null",
           "checkpoint_activations (deprecated by its program); give recompute_granularity"),

    /* data */
    MAPPED("mock_data", "training.mock_data", .fallback = "false"),
    MAPPED("mock_dataset.params.image_size", "model.image_size", DIFFUSION),
    HARMLESS("mock_dataset.*", "mock images are those of data.source gaussians"),
    MAPPED("data_path", "*:data.path;data.source=megatron", .with = "!mock_data"),
    MAPPED("train_data_path", "*:data.path;data.source=megatron", .with = "!mock_data"),
    MAPPED("valid_data_path", "*:data.validation_path", .with = "!mock_data"),
    HARMLESS("test_data_path", "nothing is tested"),
    UNBUILT("data_args_path", "null", "data named in a file", .with = "!mock_data"),
    UNBUILT("per_split_data_args_path", "null", "data named in a file", .with = "!mock_data"),
    HARMLESS("split", "counts with data_path"),
    HARMLESS("data_cache_path", "caching"), HARMLESS("mmap_bin_files", "how files are read"),
    HARMLESS("num_workers", "see data.prefetch"), HARMLESS("dataloader_mp_context", "how files are read"),
    HARMLESS("num_dataset_builder_threads", "how files are read"), HARMLESS("data_sharding", "several devices"),
    UNBUILT("dataloader_type", "null|single|cyclic|external", "another order of the samples", .with = "!mock_data"),
    DOCUMENTS("reset_position_ids"), DOCUMENTS("reset_attention_mask"), DOCUMENTS("eod_mask_loss"),
    HARMLESS("sample_rate", "counts with retro_project_dir"), HARMLESS("mask_prob", "models of masked words"),
    HARMLESS("short_seq_prob", "models of masked words"), HARMLESS("retriever_seq_length", "retrieval"),

    /* evaluation */
    MAPPED("eval_iters", "0:validation.enable=false|*:validation.enable=true;validation.steps=*", .fallback = "0"),
    MAPPED("eval_interval", "validation.freq", .with = "eval_iters", .fallback = "1000"),
    UNBUILT("full_validation", "false|null", "evaluation over everything", .with = "eval_iters"),
    UNBUILT("multiple_validation_sets", "false|null", "several validation sets", .with = "eval_iters"),

    /* checkpoints */
    MAPPED("save", "*:checkpoint.enable=true;checkpoint.folder=*"),
    MAPPED("save_interval", "checkpoint.interval", .with = "save"),
    UNBUILT("save_retain_interval", "null", "checkpoints that are kept", .with = "save"),
    FILES("no_save_optim"), FILES("no_save_rng"),
    MAPPED("load", "*:checkpoint.initial_load_path"),
    UNBUILT("pretrained_checkpoint", "null", "starting from another run's weights"),
    LOADS("no_load_optim", "partial loading"), LOADS("no_load_rng", "partial loading"),
    LOADS("load_main_params_from_ckpt", "partial loading"), LOADS("finetune", "fine-tuning"),
    LOADS("use_checkpoint_args", "arguments of a checkpoint"),
    LOADS("use_mp_args_from_checkpoint_args", "arguments of a checkpoint"),
    FILES("use_tokenizer_model_from_checkpoint_args"), FILES("exit_on_missing_checkpoint"),
    FILES("non_persistent_*"), FILES("dist_ckpt_*"), FILES("ckpt_*"), FILES("use_dist_ckpt_deprecated"),
    FILES("use_persistent_ckpt_worker"), FILES("auto_detect_ckpt_format"), FILES("async_save"),
    FILES("fully_parallel_save"), LOADS("ckpt_step", "a named step"),
    FILES("disable_last_saving"), HARMLESS("auto_continue_train", "checkpoint.enable goes on where the run stopped"),

    /* several devices */
    MAPPED("tensor_model_parallel_size", "parallelism.tensor_parallel_degree"),
    MAPPED("pipeline_model_parallel_size", "parallelism.pipeline_parallel_degree"),
    MAPPED("context_parallel_size", "parallelism.context_parallel_degree"),
    MAPPED("expert_model_parallel_size", "parallelism.expert_parallel_degree", .with = "num_experts"),
    MAPPED("expert_tensor_parallel_size", "*:parallelism.expert_tensor_parallel_degree", .with = "num_experts"),
    UNBUILT("model_parallel_size", "null",
           "model_parallel_size (deprecated by its program); give tensor_model_parallel_size"),
    UNBUILT("encoder_tensor_model_parallel_size", "0|null", "encoders"),
    UNBUILT("encoder_pipeline_model_parallel_size", "0|null", "encoders"),
    UNBUILT("pipeline_model_parallel_split_rank", "null", "encoders"),
    UNBUILT("pipeline_model_parallel_layout", "null", "pipeline parallelism", PIPELINE),
    COMM("pipeline_model_parallel_comm_backend"), COMM("hierarchical_context_parallel_sizes"), COMM("cp_comm_type"),
    UNBUILT("decoder_first_pipeline_num_layers", "null", "pipeline parallelism", PIPELINE),
    UNBUILT("decoder_last_pipeline_num_layers", "null", "pipeline parallelism", PIPELINE),
    UNBUILT("decoder_pipeline_manual_split_list", "null", "pipeline parallelism", PIPELINE),
    UNBUILT("virtual_pipeline_model_parallel_size", "null", "pipeline parallelism", PIPELINE),
    UNBUILT("num_layers_per_virtual_pipeline_stage", "null", "pipeline parallelism", PIPELINE),
    UNBUILT("num_virtual_stages_per_pipeline_rank", "null", "pipeline parallelism", PIPELINE),
    UNBUILT("microbatch_group_size_per_vp_stage", "null", "pipeline parallelism", PIPELINE),
    UNBUILT("account_for_*", "false|null", "pipeline parallelism", PIPELINE),
    UNBUILT("standalone_embedding_stage", "false|null", "pipeline parallelism", PIPELINE),
    COMM("sequence_parallel"), COMM("overlap_*"), COMM("align_grad_reduce"), COMM("align_param_gather"),
    COMM("ddp_*"),
    COMM("distributed_backend"), HARMLESS("distributed_timeout_minutes", "deadlines of communication"),
    COMM("defer_embedding_wgrad_compute"), COMM("wgrad_deferral_limit"), COMM("delay_wgrad_compute"),
    COMM("scatter_gather_tensors_in_pipeline"), COMM("use_ring_exchange_p2p"), COMM("tp_comm_*"), COMM("use_sharp"),
    COMM("sharp_enabled_group"), COMM("nccl_communicator_config_path"), COMM("use_tp_pp_dp_mapping"),
    COMM("use_distributed_optimizer"), COMM("use_custom_fsdp"), COMM("use_megatron_fsdp"), COMM("use_torch_fsdp2"),
    COMM("data_parallel_sharding_strategy"), COMM("gradient_reduce_div_fusion"),
    COMM("suggested_communication_unit_size"),
    COMM("keep_fp8_transpose_cache_when_using_custom_fsdp"), COMM("num_distributed_optimizer_instances"),
    MAPPED("data_parallel_replicate_degree", "parallelism.data_parallel_replicate_degree"),
    COMM("async_tensor_model_parallel_allreduce"), COMM("high_priority_stream_groups"),
    COMM("enable_gloo_process_groups"),
    COMM("empty_unused_memory_level"), COMM("train_sync_interval"), COMM("replication*"), COMM("pp_warmup"),
    HARMLESS("local_rank", "set by the launcher"), HARMLESS("lazy_mpu_init", "set by the launcher"),
    UNBUILT("enable_odc", "false|null", "communication on demand"),
    UNBUILT("odc_*", "", "communication on demand", .with = "enable_odc"),
    UNBUILT("enable_odc_lb_mini", "false|null", "communication on demand"),
    UNBUILT("lb_mini_*", "", "communication on demand", .with = "enable_odc_lb_mini"),
    /* schedules of a pipeline */
    UNBUILT("patch_zero_bubble", "false|null", "pipeline parallelism", PIPELINE),
    UNBUILT("patch_primus_pipeline", "false|null", "pipeline parallelism", PIPELINE),
    COMM("pp_algorithm"), COMM("communication_method"), LOG("debug_scheduler_table"), COMM("enable_zb_runtime"),
    COMM("pre_communication_optimization"), COMM("zero_bubble_*"), COMM("enable_zero_bubble"), COMM("enable_1f1b_v"),
    COMM("enable_optimizer_post_validation"), COMM("enable_exactly_numeric_match"),
    COMM("interleave_group_size"), COMM("pp_max_mem"), COMM("pp_cost_*"),
    UNBUILT("allow_padding_num_layers", "", "pipeline parallelism", .with = "patch_zero_bubble"),
    PROFILE("profile_memory_iter"),
    UNBUILT("num_seq_splits", "1|null", "sequences in parts"),
    UNBUILT("offload", "false|null", "offload of activations; see training.offload"),
    UNBUILT("offload_ops", "|null", "offload of activations; see training.offload"),
    UNBUILT("offload_chunk_num", "0|null", "offload of activations; see training.offload"),
    COMM("offload_time"), COMM("auto_offload_time"), COMM("offload_overlap_sr"),

    /* kernels */
    KERNEL("transformer_impl"), KERNEL("attention_backend"), KERNEL("use_flash_attn"),
    KERNEL("use_te_activation_func"),
    KERNEL("bias_gelu_fusion"), KERNEL("bias_swiglu_fusion"), KERNEL("bias_dropout_fusion"),
    KERNEL("masked_softmax_fusion"),
    KERNEL("apply_rope_fusion"), KERNEL("no_persist_layer_norm"), KERNEL("gradient_accumulation_fusion"),
    KERNEL("cross_entropy_loss_fusion"), KERNEL("cross_entropy_fusion_impl"), KERNEL("enable_fused_linear_ce"),
    KERNEL("clone_scatter_output_in_embedding"), KERNEL("barrier_with_L1_time"), KERNEL("torch_compile.*"),
    KERNEL("disable_compile_dependencies"), KERNEL("enable_cuda_graph"), KERNEL("cuda_graph_*"),
    KERNEL("external_cuda_graph"),
    KERNEL("enable_primus_turbo"), KERNEL("use_turbo_*"), KERNEL("turbo_gemm_backend"),
    KERNEL("turbo_grouped_gemm_*"),
    KERNEL("turbo_deepep_*"), KERNEL("turbo_sync_free_moe_stage"), KERNEL("turbo_mega_moe_precision"),
    MODEL("use_sink_attention", "false|null", "attention sinks"),
    MODEL("sink_*", "", "attention sinks", .with = "use_sink_attention"),
    UNBUILT("enable_turbo_attention_float8", "false|null", "attention in float8", .with = "enable_primus_turbo"),
    HARMLESS("manual_gc*", "there is no garbage collector"), HARMLESS("onnx_safe", "export"),
    KERNEL("flash_decode"),

    /* logging, profiling, services */
    MAPPED("log_interval", "metrics.log_freq", .fallback = "1"),
    LOG("log_avg_skip_iterations"), LOG("log_avg_reset_interval"), LOG("log_params_norm"),
    LOG("log_num_zeros_in_grad"), LOG("log_throughput"), LOG("log_progress"), LOG("log_timers_to_tensorboard"),
    LOG("log_batch_size_to_tensorboard"), LOG("log_learning_rate_to_tensorboard"),
    LOG("log_validation_ppl_to_tensorboard"), LOG("log_memory_to_tensorboard"), LOG("log_world_size_to_tensorboard"),
    LOG("log_loss_scale_to_tensorboard"), LOG("log_straggler"), LOG("log_energy"), LOG("log_device_memory_used"),
    LOG("log_max_attention_logit"), LOG("log_overflow"),
    LOG("tensorboard_*"), LOG("wandb_*"), LOG("mlflow_*"), LOG("disable_tensorboard"), LOG("disable_wandb"),
    LOG("disable_mlflow"), LOG("generate_tracelens_report"), LOG("enable_one_logger"), LOG("one_logger_*"),
    LOG("app_tag_run_*"), LOG("timing_log_*"), LOG("wall_clock_step_timer"), LOG("logging_level"),
    LOG("config_logger_dir"),
    LOG("use_rocm_mem_info"), LOG("use_rocm_mem_info_iters"), LOG("dump_pp_data"),
    LOG("result_rejected_tracker_filename"),
    PROFILE("profile"), PROFILE("use_pytorch_profiler"), PROFILE("profile_ranks"),
    PROFILE("profile_step_start"), PROFILE("profile_step_end"), PROFILE("torch_profiler_*"),
    PROFILE("disable_profiler_activity_cpu"), PROFILE("record_memory_history"), PROFILE("memory_snapshot_path"),
    HARMLESS("adlr_autoresume*", "the cluster's restarts"), HARMLESS("disable_straggler_on_startup", "checks"),
    HARMLESS("straggler_*", "checks"), HARMLESS("rerun_mode", "checks"), HARMLESS("error_injection_type", "checks"),
    UNBUILT("error_injection_rate", "0|null", "errors on purpose"),
    HARMLESS("enable_ft_package", "the cluster's restarts"), HARMLESS("calc_ft_timeouts", "the cluster's restarts"),
    HARMLESS("run_workload_inspector_server", "the cluster's restarts"),
    HARMLESS("inprocess_restart", "the cluster's restarts"),

    /* other kinds of training */
    UNBUILT("lora.enabled", "false|null", "LoRA fine-tuning"),
    UNBUILT("lora.*", "", "LoRA fine-tuning", .with = "lora.enabled"),
    HARMLESS("sft_*", "counts with stage", .with = "!stage=sft"),
    UNBUILT("enable_packed_sequences", "false|null", "packed samples"),
    UNBUILT("use_packed_attention", "false|null", "packed samples"),
    UNBUILT("perform_rl_step", "false|null", "reinforcement learning"),
    HARMLESS("rl_*", "counts with perform_rl_step"), HARMLESS("grpo_*", "counts with perform_rl_step"),
    HARMLESS("langrl_*", "counts with perform_rl_step"),
    MODEL("vision_pretraining", "false|null", "training on images"),
    HARMLESS("vision_*", "counts with vision_pretraining"),
    HARMLESS("swin_backbone_type", "counts with vision_pretraining"),
    HARMLESS("num_classes", "counts with vision_pretraining"), HARMLESS("img_h", "counts with vision_pretraining"),
    HARMLESS("img_w", "counts with vision_pretraining"), HARMLESS("num_channels", "counts with vision_pretraining"),
    HARMLESS("patch_dim", "counts with vision_pretraining"),
    HARMLESS("classes_fraction", "counts with vision_pretraining"),
    HARMLESS("data_per_class_fraction", "counts with vision_pretraining"),
    HARMLESS("dino_*", "counts with vision_pretraining"),
    HARMLESS("mask_type", "counts with vision_pretraining"),
    HARMLESS("mask_factor", "counts with vision_pretraining"),
    HARMLESS("iter_per_epoch", "counts with vision_pretraining"),
    MODEL("retro_project_dir", "null", "retrieval"), MODEL("retro_add_retriever", "false|null", "retrieval"),
    HARMLESS("retro_*", "counts with retro_add_retriever"),
    HARMLESS("retriever_*", "counts with retro_add_retriever"),
    HARMLESS("bert_*", "counts for models of masked words"),
    HARMLESS("output_bert_embeddings", "counts for models of masked words"),
    HARMLESS("ict_*", "retrieval by two encoders"), HARMLESS("biencoder_*", "retrieval by two encoders"),
    HARMLESS("titles_data_path", "retrieval by two encoders"),
    HARMLESS("query_in_block_prob", "retrieval by two encoders"),
    HARMLESS("use_one_sent_docs", "retrieval by two encoders"),
    HARMLESS("evidence_data_path", "retrieval by two encoders"),
    HARMLESS("block_data_path", "retrieval by two encoders"), HARMLESS("embedding_path", "retrieval by two encoders"),
    HARMLESS("indexer_*", "retrieval by two encoders"),
    HARMLESS("inference_*", "inference"), HARMLESS("max_tokens_to_oom", "inference"),
    MODEL("heterogeneous_layers_config_*", "null", "layers of different kinds"),
    /* diffusion */
    MAPPED("num_joint_layers", "model.n_layers"), MAPPED("num_single_layers", "model.n_single_layers"),
    MAPPED("context_dim", "model.text_dim"), MAPPED("vec_in_dim", "model.vector_dim"),
    MAPPED("model_channels", "model.time_dim"),
    MAPPED("in_channels", "model.channels"), EQUAL("out_channels", "64", "as many numbers out as in"),
    MODEL("patch_size", "1", "patches of several image tokens"), MAPPED("theta", "model.rope_theta"),
    MAPPED("axes_dim", "model.rope_axes"), MAPPED("guidance_embed", "model.guidance_embed"),
    UNBUILT("vae.*", "", "encoders of images and texts"), UNBUILT("t5.*", "", "encoders of images and texts"),
    UNBUILT("clip.*", "", "encoders of images and texts"),
};
/* clang-format on */

const tm_framework tm_framework_megatron = { "megatron", "Megatron-LM, and Primus with framework megatron", keys,
                                             sizeof keys / sizeof keys[0] };
