/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing is accepted and ignored: every key that is marked as used, set to another value, changes what the run plans,
 * computes or tells. A key that no row of the tables names fails the test. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include "support/test.h"

#include "base/file.h"
#include "base/log.h"
#include "graph/plan.h"
#include "stats/sampling.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/training.h"
#include "train/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    { "model.rope_low_freq_factor", LLAMA "--model.rope_scaling llama3", "0.5" },
    { "model.rope_high_freq_factor", LLAMA "--model.rope_scaling llama3", "8000" },
    { "model.rope_original_max_seq_len", YARN, "512" },
    { "model.rope_beta_fast", YARN, "2" },
    { "model.rope_beta_slow", YARN, "0.01" },
    { "model.rope_truncate", YARN, "false" },
    { "model.rope_mscale", YARN "--model.rope_mscale_all_dim 0.5", "2" },
    { "model.rope_mscale_all_dim", YARN, "1" },
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

/* Keys whose effect is outside of a run in one process: they are shown by the file that names them. */
static const row elsewhere[] = {
    { "training.epochs", "tests/train/test_epochs.c", "--training.epochs 3 --training.local_batch_size 4" },
    { "model.flavor", "tests/config/test_config.c", "model.flavor" },
    { "model.hf_assets_path", "tests/cli/test_hugging_face.sh", "hf_assets_path" },
    { "data.prefetch", "tests/data/test_loader.c", "without_a_thread" },
    { "mlperf.base", "tests/cli/test_mlperf_run.sh", "mlperf.base" },
    { "mlperf.clear_caches", "tests/record/test_mllog.c", "clear_caches" },
    { "checkpoint.allow_changed_data", "tests/cli/test_attacks.sh", "allow_changed_data" },
    { "checkpoint.async_mode", "tests/train/test_run_ranks.c", "checkpoint.async_mode" },
    { "metrics.target_half_width", "tests/cli/test_measurement.sh", "metrics.target_half_width" },
    { "training.dataset", "tests/config/test_errors.c", "training.dataset" },
    { "training.separate_sums", "tests/train/test_layout.c", "training.separate_sums" },
    { "parallelism.ranks", "tests/train/test_layout.c", "parallelism.ranks" },
    { "parallelism.data_parallel_shard_degree", "tests/train/test_layout.c", "parallelism.data_parallel_shard_degree" },
    { "parallelism.data_parallel_replicate_degree", "tests/train/test_layout.c",
      "parallelism.data_parallel_replicate_degree" },
    { "parallelism.data_parallel_shard_strategy", "tests/train/test_layout.c",
      "parallelism.data_parallel_shard_strategy" },
    { "parallelism.expert_parallel_degree", "tests/train/test_layout.c", "parallelism.expert_parallel_degree" },
    { "parallelism.expert_parallel_capacity", "tests/train/test_layout.c", "parallelism.expert_parallel_capacity" },
    { "training.mixed_precision_reduce", "tests/train/test_layout.c", "training.mixed_precision_reduce" },
    { "parallelism.exact", "tests/train/test_layout.c", "parallelism.exact" },
    { "parallelism.context_parallel_degree", "tests/train/test_layout.c", "parallelism.context_parallel_degree" },
    { "parallelism.context_parallel_rotate_method", "tests/train/test_layout.c",
      "parallelism.context_parallel_rotate_method" },
    { "parallelism.tensor_parallel_degree", "tests/train/test_layout.c", "parallelism.tensor_parallel_degree" },
    { "parallelism.enable_sequence_parallel", "tests/train/test_tensor_ranks.c",
      "parallelism.enable_sequence_parallel" },
    { "parallelism.pipeline_parallel_degree", "tests/train/test_layout.c", "parallelism.pipeline_parallel_degree" },
    { "parallelism.pipeline_parallel_schedule", "tests/train/test_layout.c", "parallelism.pipeline_parallel_schedule" },
    { "parallelism.pipeline_parallel_divide_head", "tests/train/test_stage_pieces.c", "o.layout.divide_head = true;" },
    { "parallelism.pipeline_parallel_schedule_csv", "tests/train/test_pipeline_file.c", "schedule_csv" },
    { "parallelism.module_fqns_per_model_part", "tests/train/test_stage_names.c",
      "parallelism.module_fqns_per_model_part" },
    { "parallelism.pipeline_parallel_microbatch_size", "tests/train/test_layout.c",
      "parallelism.pipeline_parallel_microbatch_size" },
    { "parallelism.pipeline_parallel_layers_per_stage", "tests/train/test_layout.c",
      "parallelism.pipeline_parallel_layers_per_stage" },
    { "parallelism.pipeline_parallel_first_stage_less_layers", "tests/train/test_layout.c",
      "parallelism.pipeline_parallel_first_stage_less_layers" },
    { "parallelism.pipeline_parallel_last_stage_less_layers", "tests/train/test_layout.c",
      "parallelism.pipeline_parallel_last_stage_less_layers" },
    { "parallelism.fsdp_reshard_after_forward", "tests/train/test_layout.c", "parallelism.fsdp_reshard_after_forward" },
    { "use_distributed_optimizer", "tests/train/test_layout.c", "use_distributed_optimizer" },
};

/* --- what a run says ---------------------------------------------------------------------------------------------- */

typedef struct {
    tm_sink head;
    tm_text text;
} listener;

static void say_start(tm_text *out, const tm_run_started *s)
{
    const tm_recipe *r = &s->recipe;
    tm_text_printf(out, "%s %s %s %lld parameters %lld steps of %lld tokens, %d threads, seed %llu, floor %.17g\n",
                   s->model, s->precision, s->data_source, (long long)s->parameters, (long long)s->steps,
                   (long long)s->batch_tokens, s->threads, (unsigned long long)s->seed, s->loss_floor);
    tm_text_printf(out, "%s %s %lld %lld %lld warm %lld decay %lld\n", r->optimizer, r->schedule,
                   (long long)r->accumulation, (long long)r->sequence_length, (long long)r->eval_samples,
                   (long long)r->warmup_steps, (long long)r->decay_steps);
}

static void say_end(tm_text *out, const tm_run_ended *e)
{
    tm_text_printf(out, "%s: %lld steps, weights %016llx, validation %.17g, certificate %d %d\n%s\n", e->stopped,
                   (long long)e->steps, (unsigned long long)e->weights_hash, e->loss_validation, e->certificate.done,
                   e->certificate_after.done, e->sample ? e->sample : "");
    if (e->verdict == TM_VERDICT_NOT_JUDGED) tm_text_printf(out, "%s\n", e->reason);
}

static void listen(tm_sink *sink, const tm_event *event)
{
    tm_text *out = &((listener *)sink)->text;
    switch (event->kind) {
    case TM_EVENT_RUN_STARTED:
        say_start(out, &event->run_started);
        return;
    case TM_EVENT_STEP_DONE:
        tm_text_printf(out, "step %lld %.17g %.17g %.17g %lld\n", (long long)event->step_done.step,
                       event->step_done.loss, event->step_done.grad_norm, event->step_done.learning_rate,
                       (long long)event->step_done.tokens);
        for (size_t i = 0; i < event->step_done.n_phases; i++)
            if (strstr(event->step_done.phases[i].name, "slowdown")) tm_text_add(out, "slowed down\n");
        return;
    case TM_EVENT_EVALUATION:
        tm_text_printf(out, "evaluation %lld %.17g %lld\n", (long long)event->evaluation.step, event->evaluation.loss,
                       (long long)event->evaluation.tokens);
        return;
    case TM_EVENT_CHECKPOINT:
        tm_text_printf(out, "checkpoint %lld %lld\n", (long long)event->checkpoint.step,
                       (long long)event->checkpoint.bytes);
        return;
    case TM_EVENT_LOOK:
        tm_text_printf(out, "look %lld %zu, first %s\n", (long long)event->look.step, event->look.n_tensors,
                       event->look.first ? event->look.first->name : "none");
        return;
    case TM_EVENT_QUANTIZED:
        tm_text_printf(out, "factors %lld %zu %.17g\n", (long long)event->quantized.step, event->quantized.n_factors,
                       event->quantized.factors[0].amax);
        return;
    case TM_EVENT_RUN_ENDED:
        say_end(out, &event->run_ended);
        return;
    case TM_EVENT_EVALUATION_STARTED:
        return;
    }
}

/* What packed files are opened with: none are here. */
static void say_source(tm_text *out, const tm_source_options *s)
{
    tm_text_printf(out, "%s %s %s %d %d\n", s->name, s->path, s->validation_path ? s->validation_path : "", s->mask,
                   s->pad_token);
}

static tm_status say_run(tm_run_options *options, tm_device *device, tm_text *out, tm_error *err)
{
    listener     ears = { .head = { .handle = listen } };
    tm_event_bus bus = { 0 };
    tm_source   *source;
    tm_step     *step;
    sig_atomic_t stop = 0;
    tm_chooser   chooser = tm_device_chooser(device);
    TM_TRY(tm_source_open(&options->source, &source, err));
    tm_status st = tm_step_create(&options->step, &chooser, &step, err);
    if (st != TM_OK) {
        tm_source_close(source);
        return st;
    }
    tm_plan_print(step->plan, &chooser, out);
    tm_step_destroy(step);
    tm_event_bus_add(&bus, &ears.head);
    st = tm_run(options, device, source, &bus, &stop, err);
    if (st == TM_NUMBERS) st = TM_OK; /* three steps are no training */
    tm_text_add(out, ears.text.data ? ears.text.data : "");
    tm_text_fini(&ears.text);
    tm_event_bus_fini(&bus);
    tm_source_close(source);
    return st;
}

/* A change may be an error that this key makes, but not, unless `may_be_idle`, that it has no effect itself; what it is
 * added to has none. */
static char *refusal(const char *base, const char *key, const tm_error *err, bool may_be_idle)
{
    char    own[128];
    tm_text text = { 0 };
    snprintf(own, sizeof own, "'%s' = ", key ? key : "");
    bool idle = strncmp(err->text, own, strlen(own)) == 0 && strstr(err->text, "has no effect");
    if (!key || (idle && !may_be_idle)) fail_msg("%s %s: %s", base, key ? key : "", err->text);
    tm_text_printf(&text, "refused: %s", err->text);
    return text.data;
}

/* All that can be known of a run of these keys; the caller's to free. */
static char *look_at(const char *base, const char *key, const char *value, bool may_be_idle)
{
    tm_config     *config = test_full_config();
    tm_run_options options;
    tm_error       err = { 0 };
    tm_text        out = { 0 };
    char           word[256];
    char          *given[] = { word };
    tm_device     *device = NULL;
    test_apply_words(config, base);
    snprintf(word, sizeof word, "--%s=%s", key ? key : "", value);
    if (key && tm_config_apply_arguments(config, 1, given, &err) != TM_OK) fail_msg("%s", err.text);
    tm_status st = tm_config_finish(config, &err);
    if (st == TM_OK) st = tm_run_options_read(config, &options, &err);
    if (st != TM_OK) {
        tm_config_destroy(config);
        return refusal(base, key, &err, may_be_idle);
    }
    tm_text_printf(&out, "%s\n", options.model_name);
    if (strcmp(options.source.name, "govreport") == 0) {
        say_source(&out, &options.source);
    } else {
        device = test_device_open("cpu", options.threads);
        options.checkpoint_folder = "checkpoint";
        options.step.offload.folder = ".";
        tm_device_allow_reference(device, options.reference_kernels);
        if (say_run(&options, device, &out, &err) != TM_OK) {
            char *text = refusal(base, key, &err, may_be_idle);
            tm_text_add(&out, text);
            free(text);
        }
        tm_device_close(device);
        assert_int_equal(system("rm -rf checkpoint"), 0);
    }
    tm_config_destroy(config);
    return out.data;
}

static char *fingerprint(const char *base, const char *key, const char *value)
{
    return look_at(base, key, value, false);
}

static char start_folder[1024];

static void each_key_changes_the_run(void **state)
{
    const char *last_base = "";
    char       *base = NULL;
    int         silent = 0;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].base, last_base) != 0) {
            free(base);
            base = fingerprint(rows[i].base, NULL, "");
            last_base = rows[i].base;
        }
        char *other = fingerprint(rows[i].base, rows[i].key, rows[i].value);
        if (strcmp(base, other) == 0) {
            print_message("%s = %s changes nothing\n", rows[i].key, rows[i].value);
            silent++;
        }
        free(other);
    }
    free(base);
    assert_int_equal(silent, 0);
}

/* Alone on the plain model there is nothing to say: a run that short has no certificate, rotary positions go on beyond
 * the length that a model was made for, and its data are mock data. */
static const char *const at_home[] = { "debug.certificate", "model.max_seq_len", "training.mock_data" };

static bool is_default(tm_config *config, const row *r)
{
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        if (strcmp(key->name, r->key) == 0) return key->fallback && strcmp(key->fallback, r->value) == 0;
    }
    return false;
}

/* What needs other keys says so, or does something, without them, too. */
static void each_key_alone_is_told(void **state)
{
    char      *base = fingerprint(LLAMA, NULL, "");
    tm_config *config = test_full_config();
    int        silent = 0;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool exempt = strcmp(rows[i].base, LLAMA) == 0 || is_default(config, &rows[i]);
        for (size_t k = 0; k < sizeof at_home / sizeof at_home[0]; k++) exempt |= strcmp(rows[i].key, at_home[k]) == 0;
        if (exempt) continue;
        char *other = look_at(LLAMA, rows[i].key, rows[i].value, true);
        if (strcmp(base, other) == 0) {
            print_message("%s = %s alone changes nothing\n", rows[i].key, rows[i].value);
            silent++;
        }
        free(other);
    }
    free(base);
    tm_config_destroy(config);
    assert_int_equal(silent, 0);
}

/* The first held-out loss of a run that does not learn. */
static double held_out_loss(const char *words)
{
    char  *said = fingerprint(words, NULL, "");
    char  *at = strstr(said, "evaluation ");
    double loss = 0;
    assert_non_null(at);
    assert_int_equal(sscanf(at, "evaluation %*d %lf", &loss), 1);
    free(said);
    return loss;
}

/* Other batches hold the same samples; samples of another length are those that training of that length holds out. */
static void held_out_samples_of_another_size(void **state)
{
#define STILL LLAMA "--optimizer.lr 0 --model.rope_scaling yarn --model.rope_original_max_seq_len 8 "
    (void)state;
    double twos = held_out_loss(STILL "--validation.steps 2");
    double four = held_out_loss(STILL "--validation.local_batch_size 4");
    assert_float_equal(twos, four, 1e-6);
    double shorter = held_out_loss(STILL "--validation.seq_len 8");
    assert_float_equal(shorter, held_out_loss(STILL "--training.seq_len 8"), 1e-12);
    assert_true(shorter < four - 1e-6 || shorter > four + 1e-6);
    double longer = held_out_loss(STILL "--validation.seq_len 24 --validation.local_batch_size 1 --validation.steps 2");
    assert_float_equal(longer, held_out_loss(STILL "--training.seq_len 24"), 1e-6);
    held_out_loss(MLA "--validation.seq_len 24");
    held_out_loss(GPT "--validation.seq_len 8");
    held_out_loss(TEXT "--data.separate_documents true --validation.seq_len 8 --validation.local_batch_size 3");
    held_out_loss(FLUX "--validation.local_batch_size 3");
}

/* What is the same twice is the same: else any key would seem to change it. */
static void a_run_is_the_same_twice(void **state)
{
    static const char *const bases[] = { LLAMA, MOE, FLUX, TEXT, SYNTHETIC, SAVING };
    (void)state;
    for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++) {
        char *a = fingerprint(bases[i], NULL, ""), *b = fingerprint(bases[i], NULL, "");
        assert_string_equal(a, b);
        free(a);
        free(b);
    }
}

static bool is_row(const row *table, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(table[i].key, key) == 0) return true;
    return false;
}

static bool file_says(const char *file, const char *word)
{
    tm_text  path = { 0 }, text = { 0 };
    tm_error err = { 0 };
    tm_text_printf(&path, "%s/%s", start_folder, file);
    bool says = tm_file_read(path.data, 1 << 20, &text, &err) == TM_OK && strstr(text.data, word);
    tm_text_fini(&path);
    tm_text_fini(&text);
    return says;
}

/* "shows KEY" in the script of keys that only the whole program can show. */
static bool script_shows(const char *key)
{
    char word[128];
    snprintf(word, sizeof word, "shows %s\n", key);
    return file_says("tests/cli/test_key_effects.sh", word);
}

static void no_used_key_is_forgotten(void **state)
{
    tm_config *config = test_full_config();
    int        forgotten = 0;
    (void)state;
    if (!file_says("tests/cli/test_key_effects.sh", "#!")) {
        print_message("the tests are not below the working folder\n");
        skip();
    }
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        if (key->state != TM_KEY_USED || is_row(rows, sizeof rows / sizeof rows[0], key->name) ||
            is_row(elsewhere, sizeof elsewhere / sizeof elsewhere[0], key->name) || script_shows(key->name))
            continue;
        print_message("%s: no test shows what it changes\n", key->name);
        forgotten++;
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++)
        if (!file_says(elsewhere[i].base, elsewhere[i].value))
            fail_msg("%s lacks %s", elsewhere[i].base, elsewhere[i].value);
    tm_config_destroy(config);
    assert_int_equal(forgotten, 0);
}

/* Rows for fine-tuning, and what is needed to read them. */
static void write_rows(void)
{
    tm_text lines = { 0 }, talk = { 0 }, pairs = { 0 }, tokenizer = { 0 };
    char    path[4200];
    for (int i = 0; i < 60; i++) {
        tm_text_printf(&lines, "{\"prompt\": \"question %.*s %d\", \"completion\": \"is %d\", \"text\": \"said %d\"}\n",
                       i % 13, "of these days", i, i * i % 31, i);
        tm_text_printf(&pairs, "{\"prompt\": \"a %d\", \"chosen\": \"is %d\", \"rejected\": \"no %d\"}\n", i, i,
                       i * 7 % 31);
        tm_text_printf(&talk,
                       "{\"messages\": [{\"role\": \"user\", \"content\": \"a %d\"}, {\"role\": \"assistant\", "
                       "\"content\": \"b %d\"}]}\n",
                       i, i * 7 % 31);
    }
    snprintf(path, sizeof path, "%s/tests/token/fixtures/gpt2.json", start_folder);
    if (tm_file_read(path, 1 << 20, &tokenizer, NULL) != TM_OK) fail_msg("no %s", path);
    test_file_write(".", "gpt2.json", tokenizer.data);
    test_file_write(".", "rows.jsonl", lines.data);
    test_file_write(".", "talk.jsonl", talk.data);
    test_file_write(".", "pairs.jsonl", pairs.data);
    test_file_write(".", "one.jinja", "{% for m in messages %}<{{ m.content }}>{% endfor %}");
    test_file_write(".", "two.jinja", "{% for m in messages %}({{ m.content }}){% endfor %}");
    tm_text_fini(&lines);
    tm_text_fini(&talk);
    tm_text_fini(&pairs);
    tm_text_fini(&tokenizer);
}

static int open_folder(void **state)
{
    (void)state;
    if (!getcwd(start_folder, sizeof start_folder)) return -1;
    tm_log_set_level(TM_LOG_ERROR);
    if (chdir(test_folder()) != 0) return -1;
    tm_text text = { 0 };
    for (int i = 0; i < 400; i++) tm_text_printf(&text, "line %d of a text, %d\n\n", i, i * i % 97);
    test_file_write(".", "other.txt", text.data);
    if (mkdir("texts", 0700) != 0) return -1;
    for (int i = 0; i < 60; i++) { /* documents of many lengths */
        char name[32], words[80];
        snprintf(name, sizeof name, "%d.txt", i);
        snprintf(words, sizeof words, "%.*s", 5 + i * 7 % 40, text.data + 31 * i);
        test_file_write("texts", name, words);
    }
    tm_text_fini(&text);
    write_rows();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    if (chdir(start_folder) != 0) return -1;
    test_folder_remove();
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_used_key_is_forgotten),         cmocka_unit_test(a_run_is_the_same_twice),
    cmocka_unit_test(held_out_samples_of_another_size), full_test(each_key_changes_the_run),
    cmocka_unit_test(each_key_alone_is_told),
};

TM_TESTS(tests, open_folder, remove_folder)
