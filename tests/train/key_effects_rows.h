/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/key_effects_rows.h - keys, and values that change a run (test_key_effects.c). */
#ifndef TM_TESTS_KEY_EFFECTS_ROWS_H
#define TM_TESTS_KEY_EFFECTS_ROWS_H

#define SHORT                                                                                                          \
    "--training.seq_len 16 --training.local_batch_size 2 --training.steps 3 --lr_scheduler.warmup_steps 1 "            \
    "--validation.freq 2 --validation.steps 1 --training.threads 1 "
#define SMALL "--model.n_layers 2 --model.dim 32 --model.n_heads 4 --model.ffn_dim 64 --model.vocab_size 64 "
#define LLAMA SHORT SMALL "--data.source mock "
#define PURE LLAMA "--training.dtype bfloat16 --training.regime pure "
#define YARN LLAMA "--model.rope_scaling yarn --model.rope_scaling_factor 4 --model.rope_original_max_seq_len 1024 "
#define GPT LLAMA "--model.family gpt --model.max_seq_len 16 "
#define MOE LLAMA "--model.n_experts 4 --model.n_experts_per_token 2 --model.moe_aux_loss 0.01 "
#define GROUPS MOE "--model.n_expert_groups 2 --model.n_limited_groups 1 "
#define MLA                                                                                                            \
    LLAMA "--model.family deepseek --model.kv_lora_rank 16 --model.qk_nope_head_dim 8 --model.qk_rope_head_dim 4 "     \
          "--model.v_head_dim 8 "
#define FLUX                                                                                                           \
    "--training.local_batch_size 2 --training.steps 5 --lr_scheduler.warmup_steps 1 --validation.freq 2 "              \
    "--validation.steps 1 --training.threads 1 --model.family flux --model.n_layers 1 --model.n_single_layers 1 "      \
    "--model.dim 32 --model.n_heads 2 --model.rope_axes 4,6,6 --model.image_size 32 --model.text_len 4 "               \
    "--model.text_dim 8 --model.vector_dim 8 --model.channels 4 --model.time_dim 8 --data.source gaussians "
#define SYNTHETIC SHORT SMALL "--data.source synthetic "
#define REPORTS SHORT SMALL "--data.source reports "
#define TEXT SHORT SMALL "--model.vocab_size 320 --data.path texts "
#define PACKED SHORT SMALL "--data.path train.npy "
#define SFT SHORT SMALL "--model.vocab_size 512 --training.seq_len 48 --data.source sft --data.path rows.jsonl "
#define PAIRS SFT "--data.source preference --data.path pairs.jsonl "
#define TALK SFT "--data.path talk.jsonl --data.chat_template one.jinja "
#define MUON LLAMA "--optimizer.name Muon "
#define LORA LLAMA "--lora.rank 4 "
#define FP8 LLAMA "--quantize.recipe fp8_rowwise "
#define DELAYED LLAMA "--fp8 hybrid --training.steps 5 "
#define ENDS DELAYED "--model.n_layers 4 --first_last_layers_bf16 true "
#define MXFP8 LLAMA "--quantize.recipe mxfp8 "
#define SWITCH LLAMA "--quantize.recipe mxfp4 --quantize.switch_recipe fp8_rowwise --quantize.switch_step 1 "
#define FLOAT8 LLAMA "--model.converters [quantize.linear.float8] "
#define MX LLAMA "--model.converters [quantize.linear.mx] "
#define EXPERTS LLAMA "--model.family mixtral --model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 32 "
#define GROUPED_FLOAT8                                                                                                 \
    EXPERTS "--model.converters [quantize.grouped_mm.float8] --quantize.grouped_mm.float8.fqns [experts] "
#define GROUPED_MX EXPERTS "--model.converters [quantize.grouped_mm.mx] --quantize.grouped_mm.mx.fqns [experts] "
#define BLOCKS LLAMA "--activation_checkpoint.mode full --recompute_method block --recompute_num_layers 1 "
#define SAVING LLAMA "--checkpoint.enable true "
#define DECAYING LLAMA "--lr_scheduler.decay_ratio 0.7 "

/* `key` set to `value` on top of `base`. */
typedef struct {
    const char *key, *base, *value;
} row;

/* clang-format off */
static const row rows[] = {
    { "training.steps", LLAMA, "4" },
    { "training.seq_len", LLAMA, "8" },
    { "training.local_batch_size", LLAMA, "3" },
    { "training.global_batch_size", LLAMA, "4" },
    { "training.grad_accumulation", LLAMA, "2" },
    { "training.max_norm", LLAMA, "0.01" },
    { "training.ema_decay", LLAMA, "0.9" },
    { "training.dtype", LLAMA, "bfloat16" },
    { "training.regime", LLAMA "--training.dtype bfloat16", "pure" },
    { "training.mixed_precision_param", LLAMA, "bfloat16" },
    { "bf16", LLAMA, "true" },
    { "training.threads", LLAMA, "2" },
    { "training.target_loss_gap", SYNTHETIC "--training.stop_at_target true", "50" },
    { "training.stop_at_target", SYNTHETIC "--training.target_loss_gap 50", "true" },
    { "training.target_loss", LLAMA, "100" },
    { "training.offload", LLAMA, "optimizer" },
    { "loss.chunk_tokens", LLAMA, "8" },
    { "debug.seed", LLAMA, "2" },
    { "debug.allow_reference_kernels", LLAMA "--model.head_dim 260 --debug.allow_reference_kernels true ", "false" },
    { "debug.certificate", LLAMA "--training.steps 60", "false" },
    { "debug.slowdown_pct", LLAMA, "1" },
    { "debug.replay", LLAMA, "1" },
    { "debug.microscope", LLAMA, "2" },
    { "debug.microscope_bound", LLAMA "--training.dtype bfloat16 --debug.microscope 2 ", "1e-6" },
    { "optimizer.name", LLAMA, "SGD" },
    { "optimizer.lr", LLAMA, "0.01" },
    { "optimizer.beta1", LLAMA, "0.5" },
    { "optimizer.beta2", LLAMA, "0.5" },
    { "optimizer.eps", LLAMA, "0.1" },
    { "optimizer.momentum", LLAMA "--optimizer.name SGD", "0.5" },
    { "optimizer.nesterov", LLAMA "--optimizer.name SGD --optimizer.momentum 0.5", "true" },
    { "optimizer.beta2_decay", LLAMA "--optimizer.name Adafactor", "-0.5" },
    { "optimizer.eps1", LLAMA "--optimizer.name Adafactor", "0.5" },
    { "optimizer.eps2", LLAMA "--optimizer.name Adafactor", "1" },
    { "optimizer.clip_threshold", LLAMA "--optimizer.name Adafactor", "0.1" },
    { "optimizer.weight_decay", LLAMA, "1" },
    { "optimizer.decay", LLAMA, "matrices" },
    { "optimizer.implementation", LLAMA, "fused_opt_states_bf16" },
    { "optimizer.definition", MUON, "megatron" },
    { "optimizer.adjust_lr_fn", MUON, "match_rms_adamw" },
    { "optimizer.bf16_stochastic_round", PURE, "true" },
    { "optimizer.kahan_sum", PURE, "true" },
    { "lora.rank", LORA, "2" },
    { "lora.alpha", LORA, "8" },
    { "lora.dropout", LORA, "0.5" },
    { "lora.targets", LORA, "q_proj" },
    { "lora.target_pattern", LORA, ".*q_proj" },
    { "lora.exclude", LORA, "q_proj" },
    { "lora.layers", LORA, "0" },
    { "lora.rank_pattern", LORA, "q_proj=2" },
    { "lora.alpha_pattern", LORA, "q_proj=2" },
    { "lora.rslora", LORA "--lora.alpha 8", "true" },
    { "lora.dora", LORA, "true" },
    { "lora.init", LORA, "gaussian" },
    { "lora.experts", MOE "--lora.rank 4 --lora.targets wo,w13,w2 --lora.experts shared ", "each" },
    { "lora.base_format", LORA, "bfloat16" },
    { "optimizer.groups", LLAMA, "params=norm* lr_scale=0.5" },
    { "optimizer.definition", PURE "--optimizer.name AdamW8bit", "bitsandbytes" },
    { "lr_scheduler.warmup_steps", LLAMA, "2" },
    { "lr_scheduler.form", LLAMA, "nemo" },
    { "lr_scheduler.decay_ratio", LLAMA, "0.3" },
    { "lr_scheduler.decay_steps", LLAMA, "1" },
    { "lr_scheduler.warmup_fraction", LLAMA "--lr_scheduler.form megatron --lr_scheduler.warmup_steps 0 ", "0.5" },
    { "lr_scheduler.warmup_lr", LLAMA "--lr_scheduler.form megatron ", "1e-4" },
    { "lr_scheduler.cycles", LLAMA "--lr_scheduler.form torchtune ", "1" },
    { "lr_scheduler.decay_type", DECAYING, "sqrt" },
    { "lr_scheduler.min_lr_factor", DECAYING, "0.5" },
    { "lr_scheduler.total_steps", LLAMA, "9" },
    { "min_lr", DECAYING, "1e-4" },
    { "validation.enable", LLAMA, "false" },
    { "validation.freq", LLAMA, "1" },
    { "validation.first", LLAMA, "3" },
    { "validation.steps", LLAMA, "2" },
    { "validation.local_batch_size", LLAMA, "3" },
    { "validation.seq_len", LLAMA, "8" },
    { "validation.average", TEXT "--data.separate_documents true --validation.local_batch_size 1 --validation.steps 8", "sequences" },
    { "checkpoint.enable", LLAMA, "true" },
    { "checkpoint.interval", SAVING, "1" },
    { "disable_last_saving", SAVING, "true" },
    { "activation_checkpoint.mode", LLAMA, "full" },
    { "activation_checkpoint.cheap", LLAMA, "false" },
    { "activation_checkpoint.selective_ac_option", LLAMA "--activation_checkpoint.mode selective", "1" },
    { "activation_checkpoint.save_ops",
      LLAMA "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op", "linear" },
    { "recompute_granularity", LLAMA, "full" },
    { "recompute_method", BLOCKS, "uniform" },
    { "recompute_num_layers", BLOCKS, "2" },
    { "model.family", LLAMA, "qwen2" },
    { "model.name", LLAMA, "another" },
    { "model.vocab_size", LLAMA, "65" },
    { "model.dim", LLAMA, "64" },
    { "model.n_layers", LLAMA, "1" },
    { "model.n_heads", LLAMA, "2" },
    { "model.n_kv_heads", LLAMA, "2" },
    { "model.head_dim", LLAMA, "4" },
    { "model.ffn_dim", LLAMA, "32" },
    { "model.max_seq_len", GPT, "17" },
    { "model.norm_eps", LLAMA, "0.1" },
    { "model.rope_theta", LLAMA, "100" },
    { "model.rope_scaling", LLAMA, "yarn" },
    { "model.rope_scaling_factor", YARN, "8" },
    { "model.rope_attention_factor", YARN, "2" },
    { "model.rope_low_freq_factor", LLAMA "--model.rope_scaling llama3", "0.5" },
    { "model.rope_high_freq_factor", LLAMA "--model.rope_scaling llama3", "8000" },
    { "model.rope_original_max_seq_len", YARN, "512" },
    { "model.rope_beta_fast", YARN, "2" },
    { "model.rope_beta_slow", YARN, "0.01" },
    { "model.rope_truncate", YARN, "false" },
    { "model.rope_mscale", YARN "--model.rope_mscale_all_dim 0.5", "2" },
    { "model.rope_mscale_all_dim", YARN "--model.rope_mscale 0.5", "1" },
    { "model.kv_lora_rank", MLA, "8" },
    { "model.q_lora_rank", MLA, "8" },
    { "model.qk_nope_head_dim", MLA, "4" },
    { "model.qk_rope_head_dim", MLA, "2" },
    { "model.v_head_dim", MLA, "4" },
    { "model.rope_layout", LLAMA, "interleaved" },
    { "model.sliding_window", LLAMA, "4" },
    { "model.sliding_window_every", LLAMA "--model.sliding_window 4", "2" },
    { "model.sinks", LLAMA, "true" },
    { "model.activation", LLAMA, "swiglu_clamped" },
    { "model.qk_norm", LLAMA, "true" },
    { "model.n_experts", MOE, "8" },
    { "model.n_experts_per_token", MOE, "1" },
    { "model.moe_ffn_dim", MOE, "32" },
    { "model.n_shared_experts", MOE, "1" },
    { "model.n_dense_layers", MOE, "1" },
    { "model.moe_pattern", MOE, "10" },
    { "model.moe_score", MOE, "sigmoid" },
    { "model.moe_normalise", MOE, "true" },
    { "model.moe_scale", MOE, "2" },
    { "model.n_expert_groups", MOE, "2" },
    { "model.n_limited_groups", GROUPS, "2" },
    { "model.expert_group_best", GROUPS "--model.n_experts 8", "4" },
    { "model.moe_aux_loss", MOE, "0.1" },
    { "model.moe_aux_loss_per_sequence", MOE, "false" },
    { "model.moe_bias", MOE, "true" },
    { "model.moe_bias_rate", MOE, "0.1" },
    { "debug.moe_force_load_balance", MOE, "true" },
    { "model.n_single_layers", FLUX, "2" },
    { "model.image_size", FLUX, "48" },
    { "model.text_len", FLUX, "5" },
    { "model.text_dim", FLUX, "16" },
    { "model.vector_dim", FLUX, "16" },
    { "model.channels", FLUX, "8" },
    { "model.time_dim", FLUX, "16" },
    { "model.rope_axes", FLUX, "8,4,4" },
    { "model.guidance_embed", FLUX, "true" },
    { "model.guidance", FLUX "--model.guidance_embed true", "3" },
    { "model.tied", LLAMA, "true" },
    { "model.bias", LLAMA, "all" },
    { "model.init", LLAMA, "hf" },
    { "model.init_std", LLAMA "--model.init hf", "0.1" },
    { "data.source", LLAMA, "synthetic" },
    { "data.path", TEXT, "other.txt" },
    { "data.validation_path", PACKED, "other.npy" },
    { "data.loss_mask", PACKED, "target" },
    { "data.pad_token", PACKED, "3" },
    { "data.separate_documents", TEXT, "true" },
    { "data.tokenizer", SFT, "gpt2.json" },
    { "data.format", SFT, "text" },
    { "data.column_map", SFT, "completion=text" },
    { "data.chat_template", TALK, "two.jinja" },
    { "data.train_on_input", SFT, "true" },
    { "data.packed", SFT, "false" },
    { "data.overlong", SFT "--training.seq_len 24 ", "drop" },
    { "data.validation_fraction", TEXT, "0.4" },
    { "dpo.beta", PAIRS, "0.5" },
    { "dpo.loss_type", PAIRS, "hinge" },
    { "dpo.label_smoothing", PAIRS, "0.2" },
    { "dpo.reference_free", PAIRS, "true" },
    { "data.flow_protocol", FLUX, "mlperf" },
    { "data.text_dropout", FLUX, "1" },
    { "data.flow_times", FLUX, "logit_normal" },
    { "data.flow_logit_mean", FLUX "--data.flow_times logit_normal ", "0.5" },
    { "data.flow_logit_std", FLUX "--data.flow_times logit_normal ", "0.5" },
    { "data.flow_shift", FLUX, "2" },
    { "data.spread", FLUX, "2" },
    { "data.answers", REPORTS, "plain" },
    { "data.sample_tokens", TEXT, "3" },
    { "training.mock_data", SHORT SMALL, "true" },
    { "model.converters", LLAMA, "[quantize.linear.float8]" },
    { "fp8", LLAMA, "hybrid" },
    { "fp8_recipe", DELAYED, "tensorwise" },
    { "fp8_margin", DELAYED, "1" },
    { "fp8_amax_history_len", DELAYED, "2" },
    { "fp8_amax_compute_algo", DELAYED, "most_recent" },
    { "fp4", LLAMA, "nvfp4" },
    { "fp4_recipe", LLAMA "--fp4 e2m1 ", "mxfp4" },
    { "first_last_layers_bf16", DELAYED "--model.n_layers 4 ", "true" },
    { "num_layers_at_start_in_bf16", ENDS, "2" },
    { "num_layers_at_end_in_bf16", ENDS, "2" },
    { "debug.quantize_defect", DELAYED, "swapped_formats" },
    { "quantize.recipe", LLAMA, "fp8_tensorwise" },
    { "quantize.experts_recipe", EXPERTS, "mxfp8" },
    { "quantize.output_recipe", LLAMA, "mxfp8" },
    { "quantize.grouped_mm.float8.fqns", GROUPED_FLOAT8, "[layers.1]" },
    { "quantize.grouped_mm.mx.fqns", GROUPED_MX, "[layers.1]" },
    { "quantize.filter_fqns", FP8, "[w2]" },
    { "quantize.log_freq", FP8, "2" },
    { "quantize.fqns", FP8, "[w2]" },
    { "quantize.fnuz", FP8, "true" },
    { "quantize.scale_rule", MXFP8, "ceil" },
    { "quantize.stochastic_gradients", MXFP8, "true" },
    { "quantize.rotation", LLAMA "--quantize.recipe mxfp4 ", "false" },
    { "quantize.switch_step", SWITCH, "2" },
    { "quantize.switch_recipe", SWITCH, "fp8_tensorwise" },
    { "quantize.linear.float8.recipe_name", FLOAT8, "rowwise" },
    { "quantize.linear.float8.filter_fqns", FLOAT8, "[w2]" },
    { "quantize.linear.mx.filter_fqns", MX, "[w2]" },
    { "quantize.linear.mx.fqns", MX, "[w2]" },
    { "debug.certificate_after", LLAMA "--training.steps 60 ", "true" },
};
/* clang-format on */

/* Keys whose effect is outside of a run in one process, by the file that shows it. */
static const struct {
    const char *file, *keys;
} elsewhere[] = {
    { "tests/train/test_options.c", "training.epochs use_distributed_optimizer" },
    { "tests/train/test_whole_runs.c", "metrics.target_half_width" },
    { "tests/train/test_layout.c",
      "parallelism.ranks parallelism.data_parallel_shard_degree parallelism.data_parallel_replicate_degree "
      "parallelism.data_parallel_shard_strategy parallelism.expert_parallel_degree "
      "parallelism.expert_parallel_capacity parallelism.context_parallel_degree parallelism.tensor_parallel_degree "
      "parallelism.pipeline_parallel_degree parallelism.pipeline_parallel_schedule "
      "parallelism.module_fqns_per_model_part parallelism.pipeline_parallel_microbatch_size "
      "parallelism.pipeline_parallel_layers_per_stage parallelism.pipeline_parallel_first_stage_less_layers "
      "parallelism.pipeline_parallel_last_stage_less_layers parallelism.fsdp_reshard_after_forward" },
    { "tests/differential/rows.c",
      "data.prefetch checkpoint.async_mode training.separate_sums training.mixed_precision_reduce "
      "parallelism.context_parallel_rotate_method parallelism.enable_sequence_parallel "
      "parallelism.pipeline_parallel_divide_head parallelism.pipeline_parallel_schedule_csv" },
    { "tests/differential/judge.c", "optimizer.early_step_in_backward parallelism.exact" },
    { "tests/gpu/test_device_runs.sh", "training.tf32" },
    { "tests/config/files.txt", "model.flavor" },
    { "tests/config/refused.txt", "training.dataset" },
    { "tests/cli/test_hugging_face.sh", "model.hf_assets_path" },
    { "tests/cli/test_pictures.sh", "data.encoders data.sample_pictures data.sample_steps" },
    { "tests/cli/test_mlperf_run.sh", "mlperf.base" },
    { "tests/cli/test_attacks.sh", "checkpoint.allow_changed_data" },
    { "tests/record/test_mllog.c", "mlperf.clear_caches" },
};

#endif
