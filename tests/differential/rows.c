/* SPDX-License-Identifier: Apache-2.0 */
/* The dimensions of the cases, a row each: a new option of a run is a new row. Combinations that a run refuses are
 * drawn again, so a condition only saves draws; `trainmark` decides what is valid. */
#include "cases.h"

#define SHORT                                                                                                          \
    "--training.local_batch_size 2 --training.steps 3 --training.threads 1 --training.stop_at_target false "           \
    "--validation.enable false --debug.certificate false --lr_scheduler.warmup_steps 0 --optimizer.lr 0.01"
#define TINY                                                                                                           \
    "tiny-llama --model.n_layers 2 --model.dim 32 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 64 "          \
    "--model.vocab_size 64 --training.seq_len 16 " SHORT
#define OF(family) family ": " TINY " --model.family " family
#define EXPERTS " --model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 32"

#define IMAGES "family=flux"
#define LANGUAGE "!family=flux"
#define MIXTURES "family=mixtral,qwen3_moe,gpt_oss,deepseek"
#define GROUPED "!family=flux,gpt,deepseek" /* grouped heads with rotary positions */
#define PIPELINE "parallelism.pipeline_parallel_degree"
#define SHARDS "parallelism.data_parallel_shard_degree"
#define ORDER_OF(name) name ": --parallelism.pipeline_parallel_schedule " name
#define QUANTIZED "quantize.recipe"

const dimension dimensions[] = {
    { "family",
      MODEL,
      1,
      NULL,
      { "llama: " TINY, OF("mistral") " --model.sliding_window 8", OF("qwen2"), OF("qwen3"),
        "gpt: gpt-small --model.n_layers 2 --model.dim 32 --model.n_heads 4 --model.vocab_size 64 --model.max_seq_len "
        "64 --training.seq_len 16 " SHORT,
        OF("mixtral") EXPERTS, OF("qwen3_moe") EXPERTS, OF("gpt_oss") EXPERTS " --model.sliding_window 8",
        OF("deepseek") EXPERTS " --model.n_kv_heads null --model.kv_lora_rank 16 --model.qk_nope_head_dim 8 "
                               "--model.qk_rope_head_dim 8 --model.v_head_dim 8 --model.n_shared_experts 1 "
                               "--model.n_dense_layers 1",
        "flux: tiny-flux --model.dim 32 --model.n_heads 2 --model.head_dim 16 --model.rope_axes 4,6,6 --model.n_layers "
        "1 "
        "--model.n_single_layers 1 --model.image_size 64 --model.text_len 8 " SHORT } },

    /* sizes */
    { "model.n_layers", MODEL, 2, NULL, { "1", "3", "4" } },
    { "model.n_heads", MODEL, 6, GROUPED, { "2", "8" } },
    { "model.n_kv_heads", MODEL, 4, GROUPED " !model.n_heads", { "1", "4" } },
    { "model.dim", MODEL, 5, LANGUAGE, { "48", "64" } },
    { "model.ffn_dim", MODEL, 6, LANGUAGE " !family=gpt", { "32", "48", "96", "128" } },
    { "model.vocab_size", MODEL, 5, LANGUAGE, { "34", "67", "96" } },
    { "training.seq_len", MODEL, 4, LANGUAGE, { "4", "8", "12", "15", "32" } },
    /* rows enough for kernels to divide them among threads; not for the references */
    { "size",
      MODEL,
      12,
      LANGUAGE " !training.seq_len",
      { "long: --training.seq_len 256 --model.max_seq_len 256 --model.dim 64" } },
    { "training.local_batch_size", MODEL, 3, NULL, { "1", "3", "4" } },
    { "training.grad_accumulation", MODEL, 2, NULL, { "2", "3", "4" } },
    { "training.steps", MODEL, 4, NULL, { "2", "4" } },

    /* models */
    { "model.tied", MODEL, 3, LANGUAGE, { "true", "false" } },
    { "model.qk_norm", MODEL, 6, GROUPED, { "true", "false" } },
    { "model.bias", MODEL, 5, LANGUAGE, { "none", "qkv", "all" } },
    { "model.sliding_window", MODEL, 6, GROUPED, { "1", "3", "7" } },
    { "model.sliding_window_every", MODEL, 3, "model.sliding_window", { "2" } },
    { "model.sinks", MODEL, 8, GROUPED, { "true" } },
    { "model.head_dim", MODEL, 8, GROUPED, { "4", "16" } },
    { "model.activation", MODEL, 8, LANGUAGE " !family=gpt", { "swiglu_clamped" } },
    { "model.rope_layout", MODEL, 8, GROUPED, { "interleaved" } },
    { "model.rope_scaling",
      MODEL,
      8,
      GROUPED,
      { "yarn: --model.rope_scaling yarn --model.rope_scaling_factor 4 --model.rope_original_max_seq_len 8",
        "llama3" } },
    { "model.guidance_embed", MODEL, 2, IMAGES, { "true" } },
    { "model.n_experts_per_token", MODEL, 4, MIXTURES, { "1", "3" } },
    { "model.moe_aux_loss", MODEL, 2, MIXTURES, { "0.1" } },
    { "model.moe_aux_loss_per_sequence", MODEL, 2, "model.moe_aux_loss", { "false" } },
    { "model.moe_bias_rate", MODEL, 4, MIXTURES, { "0.01" } },
    { "model.moe_score", MODEL, 5, MIXTURES, { "sigmoid" } },
    { "model.n_shared_experts", MODEL, 5, MIXTURES, { "1" } },
    { "model.n_dense_layers", MODEL, 6, MIXTURES, { "0", "1" } },
    { "model.q_lora_rank", MODEL, 3, "family=deepseek", { "24" } },
    { "model.n_expert_groups",
      MODEL,
      4,
      "family=deepseek",
      { "2: --model.n_expert_groups 2 --model.n_limited_groups 1" } },

    /* data */
    { "data.source",
      MODEL,
      3,
      LANGUAGE,
      { "mock", "reports",
        "text: --data.source text --data.path text.txt --data.validation_fraction 0.2 --model.vocab_size 258 "
        "--data.sample_tokens 6",
        "documents: --data.source megatron --data.path set --data.separate_documents true",
        "packed: --data.source sft --data.path rows.jsonl --model.vocab_size 258 --training.seq_len 32",
        "rows: --data.source sft --data.path rows.jsonl --data.packed false --model.vocab_size 258 --training.seq_len "
        "24",
        "pairs: --data.source preference --data.path pairs.jsonl --data.validation_fraction 0.3 --model.vocab_size 258 "
        "--training.seq_len 32" } },
    { "dpo.loss_type", MODEL, 2, "data.source=pairs", { "hinge", "ipo", "apo_zero" } },
    { "validation.enable", MODEL, 3, NULL, { "true: --validation.enable true --validation.steps 2" } },
    { "validation.freq", MODEL, 2, "validation.enable", { "1", "2" } },
    { "validation.seq_len", MODEL, 4, "validation.enable " LANGUAGE, { "8", "24" } },
    { "debug.seed", MODEL, 2, NULL, { "2", "3", "4" } },

    /* numbers */
    { "training.dtype", MODEL, 5, NULL, { "bfloat16" } },
    { "training.regime", MODEL, 3, "training.dtype", { "pure" } },
    { "optimizer.kahan_sum", MODEL, 4, "training.regime", { "true" } },
    { "quantize.recipe",
      MODEL,
      6,
      NULL,
      { "fp8_tensorwise", "fp8_rowwise", "fp8_rowwise_with_gw_hp", "fp8_delayed", "fp8_current",
        "mxfp8: --quantize.recipe mxfp8 --model.dim 32 --training.seq_len 32",
        "mxfp4: --quantize.recipe mxfp4 --model.dim 64 --model.ffn_dim 128 --training.seq_len 32",
        "nvfp4: --quantize.recipe nvfp4 --model.dim 64 --model.ffn_dim 128 --training.seq_len 32" } },
    { "quantize.output_recipe", MODEL, 4, QUANTIZED "=fp8_tensorwise,fp8_rowwise,fp8_delayed", { "fp8_rowwise" } },
    { "quantize.experts_recipe", MODEL, 8, MIXTURES, { "fp8_rowwise", "fp8_tensorwise" } },
    { "quantize.switch_step",
      MODEL,
      4,
      QUANTIZED "=fp8_tensorwise,fp8_rowwise",
      { "1: --quantize.switch_step 1 --quantize.switch_recipe fp8_delayed" } },

    /* updates */
    { "optimizer.name",
      MODEL,
      3,
      NULL,
      { "SGD", "momentum: --optimizer.name SGD --optimizer.momentum 0.5 --optimizer.nesterov true",
        "Adafactor: --optimizer.name Adafactor --optimizer.eps1 1e-7" /* else that of the format */, "Muon",
        "AdamW8bit" } },
    { "optimizer.decay", MODEL, 6, NULL, { "matrices: --optimizer.decay matrices --optimizer.weight_decay 0.5" } },
    { "optimizer.groups",
      MODEL,
      5,
      NULL,
      { "lr: --optimizer.groups=[{\"params\":\"*norm*\",\"lr_scale\":\"2\"}]",
        "frozen: --optimizer.groups=[{\"params\":\"layers.0.*\",\"trained\":\"false\"}]",
        "late: --optimizer.groups=[{\"params\":\"norm*\"},{\"params\":\"*\",\"trained\":\"false\"}]",
        "held: --optimizer.groups=[{\"params\":\"layers.0.*\",\"trained\":\"false\",\"format\":\"bfloat16\"}]" } },
    { "training.max_norm", MODEL, 2, NULL, { "0", "0.05" } },
    { "training.ema_decay", MODEL, 6, NULL, { "0.9", "0.5" } },
    { "optimizer.bf16_stochastic_round", MODEL, 3, "training.regime !optimizer.kahan_sum", { "true" } },
    { "optimizer.implementation", MODEL, 8, "!optimizer.name", { "fused_opt_states_bf16" } },
    { "optimizer.definition", MODEL, 3, "optimizer.name=AdamW8bit", { "bitsandbytes" } },
    { "optimizer.adjust_lr_fn",
      MODEL,
      3,
      "optimizer.name=Muon",
      { "spectral: --optimizer.definition megatron", "match_rms_adamw" } },

    /* adapters */
    { "lora.rank", MODEL, 4, NULL, { "2", "4" } },
    { "lora.alpha", MODEL, 2, "lora.rank", { "6" } },
    { "lora.rslora", MODEL, 6, "lora.rank", { "true" } },
    { "lora.dropout", MODEL, 2, "lora.rank", { "0.25" } },
    { "lora.dora", MODEL, 3, "lora.rank", { "true" } },
    { "lora.targets",
      MODEL,
      2,
      "lora.rank",
      { "wq", "wq,w2", "wqkv", "all-linear,lm_head", "experts.gate_up_proj,experts.down_proj" } },
    { "lora.layers", MODEL, 4, "lora.rank", { "0" } },
    { "lora.rank_pattern",
      MODEL,
      6,
      "lora.rank",
      { "k: --lora.rank_pattern k_proj=1,down_proj=3 --lora.alpha_pattern k_proj=5 --lora.targets all-linear" } },
    { "lora.experts",
      MODEL,
      4,
      "lora.rank " MIXTURES " !parallelism.expert_parallel_degree",
      { "shared: --lora.experts shared --lora.targets w13,w2" } },
    { "lora.base_format",
      MODEL,
      4,
      "lora.rank",
      { "bfloat16", "float8_e4m3", "nf4: --lora.base_format nf4 --model.dim 64 --model.ffn_dim 128" } },

    /* layouts */
    { "parallelism.data_parallel_replicate_degree", LAYOUT, 4, NULL, { "2", "3", "4" } },
    { "parallelism.data_parallel_shard_degree", LAYOUT, 3, NULL, { "2", "3", "4" } },
    { "parallelism.tensor_parallel_degree", LAYOUT, 4, NULL, { "2", "4" } },
    { "parallelism.context_parallel_degree", LAYOUT, 4, NULL, { "2", "4" } },
    { "parallelism.pipeline_parallel_degree",
      UNCLIPPED,
      1,
      "model.n_layers=3,4",
      { "2: --parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_last_stage_less_layers 0",
        "3: --parallelism.pipeline_parallel_degree 3 --parallelism.pipeline_parallel_last_stage_less_layers 0" } },
    { "parallelism.expert_parallel_degree", LAYOUT, 2, MIXTURES " shared>1", { "2", "4" } },
    { "parallelism.data_parallel_shard_strategy", LAYOUT, 2, SHARDS, { "optim", "optim_grads" } },
    { "parallelism.fsdp_reshard_after_forward", NEUTRAL, 3, SHARDS " !" PIPELINE, { "always", "never" } },
    { "training.mixed_precision_reduce", LAYOUT, 5, "ranks>1", { "bfloat16" } },
    { "stages.fsdp_reshard_after_forward",
      LAYOUT,
      3,
      SHARDS " " PIPELINE,
      { "always: --parallelism.fsdp_reshard_after_forward always" } },
    { "parallelism.enable_sequence_parallel", LAYOUT, 2, "parallelism.tensor_parallel_degree", { "false" } },
    { "parallelism.context_parallel_rotate_method", LAYOUT, 2, "parallelism.context_parallel_degree", { "alltoall" } },
    { "parallelism.expert_parallel_capacity", LAYOUT, 2, "parallelism.expert_parallel_degree", { "0", "1" } },
    { "parallelism.pipeline_parallel_schedule", UNCLIPPED, 1, PIPELINE, { "1F1B", "GPipe", "InterleavedZeroBubble" } },
    { "schedule.two_stages",
      UNCLIPPED,
      2,
      PIPELINE "=2 model.n_layers=4",
      { ORDER_OF("Interleaved1F1B"), ORDER_OF("InterleavedZeroBubble"), ORDER_OF("ZBVZeroBubble") } },
    { "schedule.two_ways",
      UNCLIPPED,
      2,
      PIPELINE "=2 model.n_layers=4 training.grad_accumulation=4",
      { ORDER_OF("DualPipeV") } },
    { "schedule.file",
      UNCLIPPED,
      3,
      PIPELINE "=2 model.n_layers=4 training.grad_accumulation=3 !schedule.two_stages !schedule.two_ways",
      { "loop: --parallelism.pipeline_parallel_schedule_csv loop.csv",
        "v: --parallelism.pipeline_parallel_schedule_csv v.csv" } },
    { "parallelism.pipeline_parallel_divide_head",
      LAYOUT,
      3,
      PIPELINE " model.vocab_size=96",
      { "true: --parallelism.pipeline_parallel_divide_head true "
        "--parallelism.pipeline_parallel_last_stage_less_layers null" } },
    { "stages.cut",
      UNCLIPPED,
      4,
      PIPELINE "=2 model.n_layers=3 !schedule.two_stages !parallelism.pipeline_parallel_divide_head",
      { "first: --parallelism.pipeline_parallel_first_stage_less_layers 2",
        "last: --parallelism.pipeline_parallel_last_stage_less_layers 2" } },
    { "parallelism.pipeline_parallel_microbatch_size", LAYOUT, 5, PIPELINE, { "1" } },
    { "training.separate_sums",
      LAYOUT,
      4,
      PIPELINE " training.grad_accumulation=2,4 !parallelism.data_parallel_replicate_degree !" SHARDS,
      { "2" } },
    { "loss.chunk_tokens", ORDER, 5, LANGUAGE, { "5", "16" } },

    /* tokens go in turn by their row on a rank */
    { "debug.moe_force_load_balance",
      MODEL,
      8,
      MIXTURES " !parallelism.context_parallel_degree !parallelism.expert_parallel_degree",
      { "true" } },

    /* what changes no bit */
    { "activation_checkpoint.mode",
      NEUTRAL,
      3,
      NULL,
      { "full", "selective: --activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option 1",
        "op: --activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op" } },
    { "activation_checkpoint.cheap", NEUTRAL, 5, NULL, { "false" } },
    { "training.offload", NEUTRAL, 4, NULL, { "optimizer", "activations", "all" } },
    { "data.prefetch", NEUTRAL, 6, NULL, { "0" } },
    { "debug.microscope", NEUTRAL, 12, "training.dtype", { "2" } },
    { "debug.replay", NEUTRAL, 2, NULL, { "1", "2" } },
    { "debug.certificate", NEUTRAL, 12, NULL, { "true" } },
    { "quantize.log_freq", NEUTRAL, 3, QUANTIZED, { "1" } },
    { "checkpoint.async_mode",
      NEUTRAL,
      8,
      NULL,
      { "async: --checkpoint.enable --checkpoint.interval 1 --checkpoint.async_mode async" } },

    /* comparisons; where none of these is drawn, and a layout is, the first one is made */
    { "compare.float64", COMPARED, 2, "ranks>1 !size", { "one" } },
    { "compare.float32", COMPARED, 8, "ranks>1", { "one" } },
    { "compare.exact", COMPARED, 2, "ranks>1 parallelism.data_parallel_replicate_degree", { "one" } },
    { "compare.unclipped",
      COMPARED,
      1,
      PIPELINE " !parallelism.context_parallel_degree !" SHARDS, /* these add up behind each micro-batch */
      { "bits" } },
    { "compare.moved", COMPARED, 6, "ranks>1 !size", { "1", "2" } },
    { "compare.neutral", COMPARED, 2, NULL, { "bits" } },
    { "compare.reference", COMPARED, 8, "!size", { "one" } },
    { "compare.threads", COMPARED, 4, NULL, { "2", "3", "5" } },
    { "compare.late", COMPARED, 4, NULL, { "bits" } },
    { "compare.resume", COMPARED, 4, NULL, { "1", "2" } },
    { "compare.copies", COMPARED, 1, "training.dtype !training.regime", { "1", "2" } },
    /* 2: also with copies of weights */
    { "compare.early", COMPARED, 1, "!training.grad_accumulation !debug.replay !debug.microscope", { "1", "2" } },
    { "compare.fuses", COMPARED, 2, "family=flux,qwen3 !size", { "one" } },
};
const size_t n_dimensions = sizeof dimensions / sizeof dimensions[0];
