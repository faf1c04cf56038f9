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

/* clang-format off */
/* Keys and the values that they are set to, "KEY=VALUE; KEY=VALUE", each alone on top of `base`. */
static const struct {
    const char *base, *keys;
} effects[] = {
    { LLAMA,
      "training.steps=4; training.seq_len=8; training.local_batch_size=3; training.global_batch_size=4; "
      "training.grad_accumulation=2; training.max_norm=0.01; training.ema_decay=0.9; training.dtype=bfloat16; "
      "training.mixed_precision_param=bfloat16; bf16=true; training.threads=2; training.target_loss=100; "
      "training.offload=optimizer; loss.chunk_tokens=8; debug.seed=2; debug.slowdown_pct=1; debug.replay=1; "
      "debug.microscope=2; optimizer.name=SGD; optimizer.lr=0.01; optimizer.beta1=0.5; optimizer.beta2=0.5; "
      "optimizer.eps=0.1; optimizer.weight_decay=1; optimizer.decay=matrices; "
      "optimizer.implementation=fused_opt_states_bf16; optimizer.groups=params=norm* lr_scale=0.5; "
      "lr_scheduler.warmup_steps=2; lr_scheduler.form=nemo; lr_scheduler.decay_ratio=0.3; "
      "lr_scheduler.decay_steps=1; lr_scheduler.total_steps=9; validation.enable=false; validation.freq=1; "
      "validation.first=3; validation.steps=2; validation.local_batch_size=3; validation.seq_len=8; "
      "checkpoint.enable=true; activation_checkpoint.mode=full; activation_checkpoint.cheap=false; "
      "recompute_granularity=full; model.family=qwen2; model.name=another; model.vocab_size=65; model.dim=64; "
      "model.n_layers=1; model.n_heads=2; model.n_kv_heads=2; model.head_dim=4; model.ffn_dim=32; "
      "model.norm_eps=0.1; model.rope_theta=100; model.rope_scaling=yarn; model.rope_layout=interleaved; "
      "model.sliding_window=4; model.sinks=true; model.activation=swiglu_clamped; model.qk_norm=true; "
      "model.tied=true; model.bias=all; model.init=hf; data.source=synthetic; "
      "model.converters=[quantize.linear.float8]; fp8=hybrid; fp4=nvfp4; quantize.recipe=fp8_tensorwise; "
      "quantize.output_recipe=mxfp8" },
    { LLAMA "--training.dtype bfloat16", "training.regime=pure" },
    { SYNTHETIC "--training.stop_at_target true", "training.target_loss_gap=50" },
    { SYNTHETIC "--training.target_loss_gap 50", "training.stop_at_target=true" },
    { LLAMA "--model.head_dim 260 --debug.allow_reference_kernels true ", "debug.allow_reference_kernels=false" },
    { LLAMA "--training.steps 60", "debug.certificate=false" },
    { LLAMA "--training.dtype bfloat16 --debug.microscope 2 ", "debug.microscope_bound=1e-6" },
    { LLAMA "--optimizer.name SGD", "optimizer.momentum=0.5" },
    { LLAMA "--optimizer.name SGD --optimizer.momentum 0.5", "optimizer.nesterov=true" },
    { LLAMA "--optimizer.name Adafactor",
      "optimizer.beta2_decay=-0.5; optimizer.eps1=0.5; optimizer.eps2=1; optimizer.clip_threshold=0.1" },
    { MUON, "optimizer.definition=megatron; optimizer.adjust_lr_fn=match_rms_adamw" },
    { PURE, "optimizer.bf16_stochastic_round=true; optimizer.kahan_sum=true" },
    { LORA,
      "lora.rank=2; lora.alpha=8; lora.dropout=0.5; lora.targets=q_proj; lora.target_pattern=.*q_proj; "
      "lora.exclude=q_proj; lora.layers=0; lora.rank_pattern=q_proj=2; lora.alpha_pattern=q_proj=2; lora.dora=true; "
      "lora.init=gaussian; lora.base_format=bfloat16" },
    { LORA "--lora.alpha 8", "lora.rslora=true" },
    { MOE "--lora.rank 4 --lora.targets wo,w13,w2 --lora.experts shared ", "lora.experts=each" },
    { PURE "--optimizer.name AdamW8bit", "optimizer.definition=bitsandbytes" },
    { LLAMA "--lr_scheduler.form megatron --lr_scheduler.warmup_steps 0 ", "lr_scheduler.warmup_fraction=0.5" },
    { LLAMA "--lr_scheduler.form megatron ", "lr_scheduler.warmup_lr=1e-4" },
    { LLAMA "--lr_scheduler.form torchtune ", "lr_scheduler.cycles=1" },
    { DECAYING, "lr_scheduler.decay_type=sqrt; lr_scheduler.min_lr_factor=0.5; min_lr=1e-4" },
    { TEXT "--data.separate_documents true --validation.local_batch_size 1 --validation.steps 8",
      "validation.average=sequences" },
    { SAVING, "checkpoint.interval=1; disable_last_saving=true" },
    { LLAMA "--activation_checkpoint.mode selective", "activation_checkpoint.selective_ac_option=1" },
    { LLAMA "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op",
      "activation_checkpoint.save_ops=linear" },
    { BLOCKS, "recompute_method=uniform; recompute_num_layers=2" },
    { GPT, "model.max_seq_len=17" },
    { YARN,
      "model.rope_scaling_factor=8; model.rope_attention_factor=2; model.rope_original_max_seq_len=512; "
      "model.rope_beta_fast=2; model.rope_beta_slow=0.01; model.rope_truncate=false" },
    { LLAMA "--model.rope_scaling llama3", "model.rope_low_freq_factor=0.5; model.rope_high_freq_factor=8000" },
    { YARN "--model.rope_mscale_all_dim 0.5", "model.rope_mscale=2" },
    { YARN "--model.rope_mscale 0.5", "model.rope_mscale_all_dim=1" },
    { MLA,
      "model.kv_lora_rank=8; model.q_lora_rank=8; model.qk_nope_head_dim=4; model.qk_rope_head_dim=2; "
      "model.v_head_dim=4" },
    { LLAMA "--model.sliding_window 4", "model.sliding_window_every=2" },
    { MOE,
      "model.n_experts=8; model.n_experts_per_token=1; model.moe_ffn_dim=32; model.n_shared_experts=1; "
      "model.n_dense_layers=1; model.moe_pattern=10; model.moe_score=sigmoid; model.moe_normalise=true; "
      "model.moe_scale=2; model.n_expert_groups=2; model.moe_aux_loss=0.1; model.moe_aux_loss_per_sequence=false; "
      "model.moe_bias=true; model.moe_bias_rate=0.1; debug.moe_force_load_balance=true" },
    { GROUPS, "model.n_limited_groups=2" },
    { GROUPS "--model.n_experts 8", "model.expert_group_best=4" },
    { FLUX,
      "model.n_single_layers=2; model.image_size=48; model.text_len=5; model.text_dim=16; model.vector_dim=16; "
      "model.channels=8; model.time_dim=16; model.rope_axes=8,4,4; model.guidance_embed=true; "
      "data.flow_protocol=mlperf; data.text_dropout=1; data.flow_times=logit_normal; data.flow_shift=2; "
      "data.spread=2" },
    { FLUX "--model.guidance_embed true", "model.guidance=3" },
    { LLAMA "--model.init hf", "model.init_std=0.1" },
    { TEXT, "data.path=other.txt; data.separate_documents=true; data.validation_fraction=0.4; data.sample_tokens=3" },
    { PACKED, "data.validation_path=other.npy; data.loss_mask=target; data.pad_token=3" },
    { SFT,
      "data.tokenizer=gpt2.json; data.format=text; data.column_map=completion=text; data.train_on_input=true; "
      "data.packed=false" },
    { TALK, "data.chat_template=two.jinja" },
    { SFT "--training.seq_len 24 ", "data.overlong=drop" },
    { PAIRS, "dpo.beta=0.5; dpo.loss_type=hinge; dpo.label_smoothing=0.2; dpo.reference_free=true" },
    { FLUX "--data.flow_times logit_normal ", "data.flow_logit_mean=0.5; data.flow_logit_std=0.5" },
    { REPORTS, "data.answers=plain" },
    { DELAYED,
      "fp8_recipe=tensorwise; fp8_margin=1; fp8_amax_history_len=2; fp8_amax_compute_algo=most_recent; "
      "debug.quantize_defect=swapped_formats" },
    { LLAMA "--fp4 e2m1 ", "fp4_recipe=mxfp4" },
    { DELAYED "--model.n_layers 4 ", "first_last_layers_bf16=true" },
    { ENDS, "num_layers_at_start_in_bf16=2; num_layers_at_end_in_bf16=2" },
    { EXPERTS, "quantize.experts_recipe=mxfp8" },
    { GROUPED_FLOAT8, "quantize.grouped_mm.float8.fqns=[layers.1]" },
    { GROUPED_MX, "quantize.grouped_mm.mx.fqns=[layers.1]" },
    { FP8, "quantize.filter_fqns=[w2]; quantize.log_freq=2; quantize.fqns=[w2]; quantize.fnuz=true" },
    { MXFP8, "quantize.scale_rule=ceil; quantize.stochastic_gradients=true" },
    { LLAMA "--quantize.recipe mxfp4 ", "quantize.rotation=false" },
    { SWITCH, "quantize.switch_step=2; quantize.switch_recipe=fp8_tensorwise" },
    { FLOAT8, "quantize.linear.float8.recipe_name=rowwise; quantize.linear.float8.filter_fqns=[w2]" },
    { MX, "quantize.linear.mx.filter_fqns=[w2]; quantize.linear.mx.fqns=[w2]" },
    { LLAMA "--training.steps 60 ", "debug.certificate_after=true" },
    { SHORT SMALL, "training.mock_data=true" },
};
/* clang-format on */

/* Keys whose effect is outside of a run in one process, by the file that shows it. */
static const struct {
    const char *file, *keys;
} elsewhere[] = {
    { "tests/train/test_options.c", "training.epochs use_distributed_optimizer" },
    { "tests/train/test_whole_runs.c", "metrics.target_half_width checkpoint.allow_changed_data" },
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
    { "tests/record/test_mllog.c", "mlperf.clear_caches" },
};

#endif
