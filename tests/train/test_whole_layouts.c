/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of steps of every family, optimizer, recipe, adapter and division among ranks, as the keys of a run make
 * them: of each program a checksum of all that tests/support/whole_steps.h writes, or what is refused. After a change
 * that is meant (what has changed, test_whole_steps shows to the letter):
 *     TM_RECORD=1 build/release/tests/train/test_whole_layouts; git diff tests/train/whole-layouts.txt
 */
#include "support/whole_steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "support/test.h"

#define SHORT "--training.seq_len 16 --training.local_batch_size 2 --training.threads 1 --validation.enable false "
#define TINY                                                                                                           \
    "tiny-llama --model.n_layers 2 --model.dim 32 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 64 " SHORT
#define EXPERTS "--model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 32 "
#define MIXTRAL TINY "--model.family mixtral " EXPERTS
#define MLA                                                                                                            \
    TINY "--model.family deepseek --model.n_kv_heads null --model.kv_lora_rank 16 --model.q_lora_rank 24 "             \
         "--model.qk_nope_head_dim 8 --model.qk_rope_head_dim 8 --model.v_head_dim 8 "
#define DEEPSEEK                                                                                                       \
    MLA EXPERTS "--model.n_shared_experts 1 --model.n_dense_layers 1 --model.moe_score sigmoid --model.moe_bias_rate " \
                "0.01 "
#define OSS TINY "--model.family gpt_oss " EXPERTS "--model.sliding_window 8 "
#define GPT "gpt-small --model.n_layers 2 --model.dim 32 --model.n_heads 4 " SHORT
#define FLUX                                                                                                           \
    "tiny-flux --training.local_batch_size 2 --training.threads 1 --validation.enable false --model.dim 64 "           \
    "--model.n_heads 2 "
#define BF16 "--training.dtype bfloat16 "
#define PURE BF16 "--training.regime pure "
#define RANKS2 "--parallelism.ranks 2 "
#define RANKS4 "--parallelism.ranks 4 "
#define SHARDS RANKS2
#define COPIES RANKS2 "--parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 1 "
#define TP RANKS2 "--parallelism.tensor_parallel_degree 2 "
#define WHOLE TP "--parallelism.enable_sequence_parallel false "
#define CP RANKS2 "--parallelism.context_parallel_degree 2 "
#define RING CP "--parallelism.context_parallel_rotate_method alltoall "
#define EP RANKS2 "--parallelism.expert_parallel_degree 2 "
#define STRATEGY "--parallelism.data_parallel_shard_strategy "
#define PP RANKS2 "--parallelism.pipeline_parallel_degree 2 --training.grad_accumulation 4 --model.n_layers 4 "
#define PP3                                                                                                            \
    "--parallelism.ranks 3 --parallelism.pipeline_parallel_degree 3 --training.grad_accumulation 6 "                   \
    "--model.n_layers 6 "
#define PP4 RANKS4 "--parallelism.pipeline_parallel_degree 2 --training.grad_accumulation 4 --model.n_layers 4 "
#define ORDER "--parallelism.pipeline_parallel_schedule "
#define DIVIDED "--parallelism.pipeline_parallel_divide_head true "
#define HELD "--validation.enable true --validation.steps 1 "
#define TEXT "--data.source text --data.path text.txt --model.vocab_size 257 --data.sample_tokens 4 "
#define LORA "--lora.rank 2 --lora.alpha 6 --lora.dropout 0.25 "
#define NF4 LORA "--lora.base_format nf4 "
#define EXPERTS_LORA "--lora.rank 2 --lora.targets experts.gate_up_proj,experts.down_proj "
#define ALL LORA "--lora.targets all-linear "

/* clang-format off */
static const char *const steps[] = {
    /* families, alone */
    GPT "--model.bias none --model.tied false",
    GPT "--model.bias qkv " BF16,
    GPT "--activation_checkpoint.mode full --loss.chunk_tokens 5",
    TINY "--model.bias all --model.sliding_window 5 --model.sliding_window_every 2 --model.rope_layout interleaved",
    TINY "--model.sinks true --model.head_dim 16 --model.activation swiglu_clamped",
    TINY "--model.rope_scaling yarn --model.rope_scaling_factor 4 --model.rope_original_max_seq_len 8 " BF16,
    TINY "--model.family qwen2 --model.tied true " BF16,
    TINY "--model.family qwen3 " PURE,
    TINY "--model.family qwen3_moe " EXPERTS "--model.moe_aux_loss 0.1 --model.moe_aux_loss_per_sequence false",
    OSS,
    OSS BF16 "--activation_checkpoint.mode full",
    MLA,
    DEEPSEEK "--model.n_expert_groups 2 --model.n_limited_groups 1 --model.moe_aux_loss 0.01",
    DEEPSEEK BF16 "--debug.moe_force_load_balance true --activation_checkpoint.mode selective "
                  "--activation_checkpoint.selective_ac_option 1",
    FLUX,
    FLUX BF16 "--model.guidance_embed true --activation_checkpoint.mode full",
    /* what is kept, where */
    TINY "--activation_checkpoint.cheap false",
    TINY "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op",
    TINY "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op "
         "--activation_checkpoint.save_ops attention,linear:3",
    TINY "--activation_checkpoint.mode full --recompute_method block --recompute_num_layers 1",
    TINY "--training.offload all",
    TINY "--training.offload optimizer " BF16,
    TINY "--training.offload activations --training.grad_accumulation 2",
    GPT "--training.grad_accumulation 2",
    GPT "--training.grad_accumulation 2 --training.separate_sums 2",
    GPT "--training.grad_accumulation 4 --training.separate_sums 2",
    TINY "--debug.microscope 2 " BF16,
    TINY "--validation.enable true --validation.local_batch_size 3 --validation.seq_len 8 --validation.steps 1",
    /* optimizers */
    TINY "--optimizer.name SGD --optimizer.momentum 0.5 --optimizer.nesterov true " PURE "--optimizer.bf16_stochastic_round true",
    TINY "--optimizer.kahan_sum true " PURE,
    TINY "--optimizer.implementation fused_opt_states_bf16",
    TINY "--optimizer.name Adafactor " BF16,
    TINY "--optimizer.name Muon --optimizer.adjust_lr_fn match_rms_adamw " BF16,
    TINY "--optimizer.name Muon --optimizer.definition megatron --optimizer.decay matrices",
    TINY "--optimizer.name AdamW8bit --optimizer.definition bitsandbytes",
    TINY "--optimizer.decay matrices --training.max_norm 0",
    TINY "--training.grad_accumulation 3 --training.separate_sums 3 " BF16,
    /* products in low precision */
    TINY "--quantize.recipe fp8_rowwise " BF16,
    TINY "--quantize.recipe fp8_rowwise_with_gw_hp",
    TINY "--quantize.recipe fp8_delayed " BF16,
    TINY "--quantize.recipe fp8_blockwise --model.dim 128 --model.ffn_dim 256",
    TINY "--quantize.recipe mxfp8 --model.dim 64 --training.seq_len 32 --quantize.output_recipe mxfp8",
    TINY "--quantize.recipe mxfp4 --model.dim 64 --training.seq_len 32",
    TINY "--quantize.recipe nvfp4 --quantize.switch_recipe mxfp8 --quantize.switch_step 4 --model.dim 64 "
         "--training.seq_len 32",
    TINY "--quantize.recipe fp8_tensorwise --quantize.filter_fqns wqkv",
    MIXTRAL "--quantize.recipe fp8_rowwise --quantize.experts_recipe fp8_rowwise " BF16,
    GPT "--quantize.recipe fp8_current --activation_checkpoint.mode full",
    TINY "--quantize.recipe fp8_delayed " SHARDS,
    TINY "--quantize.recipe fp8_rowwise " TP,
    /* adapters */
    TINY                                        ALL,
    TINY NF4                                    BF16 "--model.dim 64 --model.ffn_dim 128",
    TINY "--lora.base_format float8_e4m3 " LORA BF16,
    TINY                                        LORA "--lora.dora true --lora.targets wq,w2",
    TINY                                        LORA "--lora.targets lm_head,wo",
    TINY     LORA "--lora.rank_pattern wq=4 --lora.alpha_pattern wv=1 --lora.layers 1 --lora.exclude w2",
    TINY     LORA "--lora.dora true --activation_checkpoint.mode full --lora.rslora true",
    TINY     LORA "--lora.rank_pattern wq=1 --lora.alpha_pattern wq=2.5,wk=0 --lora.layers 9,0-0,8-9,10-11 --model.n_layers 13",
    GPT      ALL,
    MIXTRAL  LORA "--lora.targets experts.gate_up_proj,experts.down_proj",
    MLA      ALL,
    FLUX     LORA,
    TINY LORA "--lora.targets wqkv,w13 " TP,
    MLA ALL TP,
    MLA ALL WHOLE,
    MIXTRAL EXPERTS_LORA TP,
    MIXTRAL EXPERTS_LORA EP,
    MIXTRAL EXPERTS_LORA RANKS4 "--parallelism.expert_parallel_degree 4 --parallelism.tensor_parallel_degree 2",
    TINY ALL SHARDS,
    TINY ALL TP,
    TINY NF4 "--model.dim 128 --model.ffn_dim 256 " BF16 SHARDS,
    MIXTRAL                                              LORA "--lora.targets experts.gate_up_proj " EP,
    /* copies and shards */
    TINY        COPIES "--training.grad_accumulation 2",
    TINY        COPIES "--parallelism.exact true " BF16,
    TINY COPIES BF16 "--training.mixed_precision_reduce bfloat16",
    TINY        SHARDS "--parallelism.fsdp_reshard_after_forward never",
    TINY SHARDS STRATEGY "optim --optimizer.groups=[{\"params\":\"layers.1.*\",\"trained\":\"false\"}]",
    TINY        SHARDS "--parallelism.fsdp_reshard_after_forward always --training.grad_accumulation 2 " BF16,
    /* a rank without a share */
    TINY RANKS4 STRATEGY "optim --model.family qwen2 --model.tied true",
    TINY SHARDS STRATEGY "optim",
    TINY SHARDS STRATEGY "optim_grads --training.grad_accumulation 3",
    TINY        SHARDS "--model.tied true --optimizer.name Muon",
    TINY        SHARDS "--optimizer.name Adafactor",
    TINY        SHARDS "--optimizer.name AdamW8bit",
    TINY        SHARDS "--optimizer.name SGD --optimizer.momentum 0.9",
    TINY SHARDS PURE "--optimizer.bf16_stochastic_round true",
    TINY        SHARDS "--training.offload optimizer",
    TINY        SHARDS "--activation_checkpoint.mode full --model.vocab_size 301",
    TINY        RANKS4 "--parallelism.data_parallel_replicate_degree 2",
    TINY        RANKS4 "--parallelism.tensor_parallel_degree 2 --optimizer.name Muon",
    TINY        RANKS4 "--parallelism.tensor_parallel_degree 2 --optimizer.name Muon " STRATEGY "optim " BF16,
    TINY        RANKS4 "--parallelism.context_parallel_degree 2 --optimizer.name Muon " STRATEGY "optim_grads",
    MIXTRAL     RANKS4 "--parallelism.expert_parallel_degree 2 --optimizer.name Muon",
    GPT         SHARDS,
    MIXTRAL     SHARDS,
    DEEPSEEK    SHARDS,
    FLUX        SHARDS,
    /* matrices */
    TINY       TP "--model.qk_norm true --model.bias all",
    TINY WHOLE BF16,
    TINY       TP "--model.tied true --loss.chunk_tokens 3",
    TINY       TP "--parallelism.disable_loss_parallel true",
    TINY       TP "--optimizer.name Muon",
    TINY       TP "--activation_checkpoint.mode full",
    GPT        TP,
    GPT        WHOLE,
    GPT        TP "--model.bias none --model.tied false " BF16,
    OSS        TP,
    MIXTRAL    TP,
    MIXTRAL    WHOLE "--model.moe_aux_loss 0.1",
    MLA        TP,
    DEEPSEEK   WHOLE,
    DEEPSEEK   TP "--parallelism.expert_parallel_degree 2",
    DEEPSEEK   TP "--parallelism.expert_parallel_degree 2 --model.n_dense_layers 2",
    TINY       TP "--parallelism.expert_parallel_degree 2",
    FLUX       TP,
    TINY       RANKS4 "--parallelism.tensor_parallel_degree 2",
    /* sequences */
    TINY    RING,
    TINY CP BF16 "--model.sliding_window 6",
    TINY    RING "--model.sinks true --activation_checkpoint.mode full",
    GPT     CP,
    MLA     CP,
    MIXTRAL RING "--model.moe_aux_loss 0.1",
    TINY    RANKS4 "--parallelism.context_parallel_degree 2 --parallelism.tensor_parallel_degree 2",
    FLUX    CP,
    TINY    CP TEXT,
    TINY    RING TEXT BF16,
    TINY    TP TEXT,
    TINY    SHARDS TEXT,
    /* experts */
    MIXTRAL     EP,
    MIXTRAL     EP "--parallelism.expert_parallel_capacity 0 " BF16,
    MIXTRAL     EP "--parallelism.expert_parallel_capacity 1 --activation_checkpoint.mode full",
    OSS         EP,
    DEEPSEEK EP STRATEGY "optim",
    MIXTRAL     RANKS4 "--parallelism.expert_parallel_degree 2",
    MIXTRAL     RANKS4 "--parallelism.expert_parallel_degree 2 --parallelism.context_parallel_degree 2",
    MIXTRAL     EP "--optimizer.name Muon",
    /* what is not built, or does not fit */
    TINY "--lora.rank 40 --lora.targets wq",
    TINY "--lora.rank 32 --lora.targets wq",
    TINY "--lora.rank 33 --lora.targets w2",
    TINY LORA "--lora.targets lm_head --lora.dora true",
    TINY LORA "--lora.targets lm_head --model.tied true",
    TINY LORA "--lora.targets output " TP,
    TINY LORA "--lora.targets wq,nothing",
    TINY LORA "--lora.target_pattern nothing",
    TINY LORA "--lora.target_pattern .*wq|output",
    TINY LORA "--lora.targets output_layer,linear_proj",
    TINY LORA "--lora.targets output_layer,layers.?.attention.w[kv]",
    TINY LORA "--lora.targets lm_head --lora.exclude lm_head",
    TINY LORA "--lora.targets all-linear,lm_head",
    TINY LORA "--lora.layers 0,2-1",
    TINY LORA "--lora.layers 1-",
    TINY LORA "--lora.layers 0-1,x",
    TINY LORA "--lora.layers 2147483648",
    TINY LORA "--lora.layers 2147483647",
    TINY LORA "--lora.layers 0-11",
    TINY LORA "--lora.layers 7",
    TINY LORA "--lora.rank_pattern wq",
    TINY LORA "--lora.rank_pattern =3",
    TINY LORA "--lora.rank_pattern wq=0",
    TINY LORA "--lora.rank_pattern wq=2.5",
    TINY LORA "--lora.rank_pattern wq=1000001",
    TINY LORA "--lora.rank_pattern wq=33",
    TINY LORA "--lora.rank_pattern wq=1000000",
    TINY LORA "--lora.alpha_pattern wq=-1",
    TINY LORA "--lora.alpha_pattern wq=",
    TINY LORA "--lora.alpha_pattern wq=0,wk=3x",
    TINY LORA "--lora.exclude nothing",
    TINY LORA "--lora.dora true " TP,
    MIXTRAL "--lora.rank 32 --lora.targets experts.down_proj",
    MIXTRAL "--lora.rank 33 --lora.targets experts.down_proj",
    MIXTRAL "--lora.rank 2 --lora.targets experts.down_proj --lora.dora true",
    MIXTRAL LORA "--lora.targets experts.down_proj",
    MIXTRAL "--lora.rank 2 --lora.targets experts.down_proj --lora.layers 1",
    MIXTRAL "--lora.rank 2 --lora.targets experts.down_proj --lora.alpha_pattern wq=3",
    MIXTRAL "--lora.rank 2 --lora.targets layers.0.moe.experts.0.w1",
    MIXTRAL "--lora.rank 2 --lora.targets experts.0.w2",
    MIXTRAL "--lora.rank 2 --lora.targets router,wq",
    MIXTRAL "--lora.rank 2 --lora.targets model.layers.*.mlp.experts.down_proj",
    MIXTRAL "--lora.rank 2 --lora.targets mlp.experts.gate_up_proj,wq",
    MIXTRAL "--lora.rank 2 --lora.targets xexperts.down_proj",
    MIXTRAL "--lora.rank 2 --lora.targets down_proj",
    OSS "--lora.rank 2 --lora.targets experts.gate_up_proj",
    TINY NF4 TP,
    TINY "--lora.base_format float8_e4m3 --lora.rank 2 " TP,
    MIXTRAL NF4 EP,
    FLUX LORA CP,
    FLUX LORA TP,
    FLUX RING,
    FLUX "--model.image_size 48 " CP,
    FLUX "--model.text_len 6 " CP,
    TINY CP "--training.seq_len 18",
    TINY CP "--training.seq_len 3",
    TINY CP "--validation.enable true --validation.seq_len 10",
    TINY TP "--training.seq_len 15 --training.local_batch_size 1",
    TINY TP "--validation.enable true --validation.seq_len 15 --validation.local_batch_size 1",
    TINY TP HELD "--validation.seq_len 12 --validation.local_batch_size 3",
    TINY WHOLE "--training.seq_len 15 --training.local_batch_size 1",
    TINY TP TEXT "--training.seq_len 15",
    TINY TP "--training.seq_len 15",
    MIXTRAL TP "--parallelism.expert_parallel_degree 2 --model.moe_aux_loss 0.1 --training.local_batch_size 3",
    MIXTRAL TP "--parallelism.expert_parallel_degree 2 --model.moe_aux_loss 0.1",
    MIXTRAL TP "--parallelism.expert_parallel_degree 2 --training.local_batch_size 3",
    TINY TP "--optimizer.name Adafactor",
    TINY TP PURE "--optimizer.bf16_stochastic_round true",
    TINY TP "--model.n_heads 3 --model.n_kv_heads 1 --model.head_dim 8",
    TINY TP "--model.vocab_size 301",
    TINY "--parallelism.ranks 3 --parallelism.tensor_parallel_degree 3",
    MIXTRAL TP "--model.moe_ffn_dim 33",
    MIXTRAL "--parallelism.ranks 3 --parallelism.expert_parallel_degree 3",
    MIXTRAL "--parallelism.ranks 5 --parallelism.expert_parallel_degree 5",
    TINY EP,
    MIXTRAL WHOLE "--parallelism.expert_parallel_degree 2",
    MIXTRAL RANKS4 "--parallelism.context_parallel_degree 2 --parallelism.tensor_parallel_degree 2 "
                   "--parallelism.expert_parallel_degree 2 --model.moe_aux_loss 0.1",
    MIXTRAL EP "--optimizer.name Adafactor",
    TINY COPIES "--parallelism.exact true --training.mixed_precision_reduce bfloat16 " BF16,
    TINY SHARDS "--parallelism.exact true",
    TINY SHARDS "--training.separate_sums 2 --training.grad_accumulation 2",
    TINY "--training.separate_sums 2 --training.grad_accumulation 3",
    TINY "--training.separate_sums 2 --training.grad_accumulation 2 " PURE,
    TINY "--training.separate_sums 2 --training.grad_accumulation 2 --quantize.recipe fp8_delayed",
    TINY "--quantize.experts_recipe fp8_rowwise",
    TINY "--quantize.recipe fp8_rowwise --quantize.fqns nothing",
    TINY "--quantize.recipe fp8_rowwise --quantize.fqns wq",
    TINY "--quantize.recipe fp8_rowwise --quantize.filter_fqns wk",
    MIXTRAL EP "--quantize.experts_recipe fp8_rowwise --parallelism.expert_parallel_capacity 0.5",
    MIXTRAL EP "--quantize.experts_recipe fp8_rowwise --parallelism.expert_parallel_capacity 0",
    TINY CP LORA "--lora.targets wq,w2",
    TINY "--quantize.recipe mxfp4 --model.dim 36 --model.n_heads 2 --model.n_kv_heads 2 --model.head_dim 18",
    MIXTRAL "--quantize.experts_recipe mxfp8 --model.moe_ffn_dim 20",
    FLUX "--quantize.recipe fp8_rowwise --quantize.output_recipe fp8_rowwise",
    TINY "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op "
         "--activation_checkpoint.save_ops linear:256",
    TINY "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op "
         "--activation_checkpoint.save_ops attention,adamw",
    TINY "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option 0",
    TINY "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option 12345",
    TINY "--training.offload optimizer --optimizer.name Muon",
    TINY "--model.converters [quantize.linear.float8,other]",
    /* what goes together, and the same with one thing that does not */
    MIXTRAL "--quantize.experts_recipe fp8_rowwise --lora.rank 2 --lora.targets wq",
    MIXTRAL "--quantize.experts_recipe fp8_rowwise " EXPERTS_LORA,
    TINY "--optimizer.groups=[{\"params\":\"*norm*\",\"trained\":\"false\"}]",
    TINY "--optimizer.groups=[{\"params\":\"*\",\"trained\":\"false\"}]",
    TINY "--optimizer.groups=[{\"params\":\"*norm*|\",\"lr_scale\":\"2\"}]",
    TINY "--data.source preference --data.path pairs.jsonl --model.vocab_size 258 --dpo.beta 0.3 " HELD,
    TINY "--data.source preference --data.path pairs.jsonl --model.vocab_size 258 " TP HELD,
    TINY "--data.source preference --data.path pairs.jsonl --model.vocab_size 258 " WHOLE,
    TINY "--data.source preference --data.path pairs.jsonl --model.vocab_size 258 " CP HELD,
    TINY LORA "--lora.targets lm_head --data.source preference --data.path pairs.jsonl --model.vocab_size 258",
    TINY "--model.vocab_size 16384 --training.seq_len 128 --training.local_batch_size 8",
    TINY "--model.vocab_size 16384 --training.seq_len 128 --training.local_batch_size 9",
    TINY COPIES "--training.grad_accumulation 2",
    TINY COPIES "--training.grad_accumulation 3",
    TINY SHARDS "--training.grad_accumulation 3",
    TINY COPIES "--debug.certificate true --training.grad_accumulation 2 " BF16,
    MIXTRAL "--debug.certificate true " BF16,
    FLUX LORA "--lora.dropout 0 " CP,
    TINY LORA "--lora.targets wqkv,wo --lora.exclude wqkv",
    TINY LORA "--lora.targets wqkv,wq,wo --lora.exclude wqkv",
    TINY LORA "--lora.targets wqkv,w1 --lora.exclude w1",
    TINY LORA "--lora.targets wq,wv --lora.exclude wv",
    TINY LORA "--lora.targets wq --lora.exclude wq",
    TINY LORA "--lora.targets wq --lora.exclude wq --lora.layers 0",
    TINY LORA "--lora.target_pattern .*wq --lora.exclude wq",
    TINY LORA "--lora.target_pattern .*wq --lora.exclude wq --lora.layers 0",
    DEEPSEEK LORA "--lora.targets layers.0.feed_forward.w2 --lora.layers 1",
    DEEPSEEK LORA "--lora.target_pattern layers.0.feed_forward.w2 --lora.layers 1",
    DEEPSEEK LORA "--lora.targets layers.0.feed_forward.w2 --lora.layers 0",
    MIXTRAL LORA "--lora.target_pattern .*experts.*",
    MIXTRAL LORA "--lora.target_pattern .*experts.*|.*wq",
    MIXTRAL ALL,
    GPT LORA "--lora.targets attn.c_attn",
    GPT LORA "--lora.targets c_attn,c_fc --lora.exclude h.1.*",
    GPT LORA "--lora.targets lm_head,c_fc --model.tied false",
    TINY LORA "--lora.targets wq --optimizer.groups=[{\"params\":\"*lora_B*\",\"trained\":\"false\"}]",
    TINY LORA "--lora.targets wq --optimizer.groups=[{\"params\":\"*lora_A*\",\"trained\":\"false\"}]",
    TINY LORA "--lora.targets wq --optimizer.groups=[{\"params\":\"*lora_*\",\"trained\":\"false\"}]",
    TINY LORA "--lora.targets wq --lora.dora true --optimizer.groups=[{\"params\":\"*magnitude*\",\"lr_scale\":\"2\"}]",
    MLA LORA "--lora.targets kv_b_proj,kv_a_proj_with_mqa",
    DEEPSEEK LORA "--lora.targets router,w2",
};

/* Stages: in every order, beside every recipe, with each other division. */
static const char *const staged[] = {
    TINY    PP ORDER "GPipe",
    TINY    PP ORDER "1F1B " HELD,
    TINY    PP ORDER "Interleaved1F1B " HELD "--validation.seq_len 8 --validation.local_batch_size 3",
    TINY    PP ORDER "InterleavedZeroBubble --model.tied true",
    TINY    PP ORDER "InterleavedZeroBubble --parallelism.pipeline_parallel_layers_per_stage 1 --model.n_layers 6 " BF16,
    TINY    PP ORDER "ZBVZeroBubble " HELD "--debug.certificate true " BF16,
    TINY    PP ORDER "ZBVZeroBubble --model.tied true --optimizer.name Muon",
    TINY    PP ORDER "DualPipeV --training.local_batch_size 4 --parallelism.pipeline_parallel_microbatch_size 2",
    TINY    PP "--parallelism.pipeline_parallel_first_stage_less_layers 1 --parallelism.pipeline_parallel_last_stage_less_layers 1",
    TINY    PP "--parallelism.module_fqns_per_model_part tok_embeddings|layers.0|layers.1|layers.2|layers.3,norm|output",
    TINY    PP "--loss.chunk_tokens 7 --activation_checkpoint.mode full --training.max_norm 0",
    TINY    PP "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option 2 --training.offload optimizer",
    TINY    PP "--debug.microscope 2 " BF16,
    TINY    PP ORDER "Interleaved1F1B --debug.microscope 2 --training.grad_accumulation 2 " BF16,
    TINY    PP "--training.separate_sums 2 --optimizer.decay matrices",
    TINY    PP "--quantize.recipe fp8_delayed " BF16,
    TINY    PP ORDER "ZBVZeroBubble --quantize.recipe fp8_rowwise --quantize.log_freq 2",
    TINY    PP ORDER "Interleaved1F1B " ALL,
    TINY    PP ORDER "ZBVZeroBubble --lora.rank 2 --lora.layers 0 --lora.targets wq",
    TINY    PP "--lora.rank 2 --lora.layers 3 --lora.targets wq,lm_head " HELD,
    TINY    PP "--optimizer.groups=[{\"params\":\"tok*|layers.0.*|layers.1.*\",\"trained\":\"false\"}]",
    TINY    PP "--data.source preference --data.path pairs.jsonl --model.vocab_size 257 --dpo.beta 0.3 " HELD,
    TINY    PP "--data.source text --data.path text.txt --data.validation_fraction 0.2 --model.vocab_size 257 --data.sample_tokens 4",
    TINY    PP TEXT ORDER "ZBVZeroBubble",
    TINY    PP TEXT DIVIDED,
    TINY    PP4 "--parallelism.context_parallel_degree 2 " TEXT,
    TINY    PP DIVIDED,
    TINY    PP DIVIDED "--model.tied true " HELD,
    TINY    PP DIVIDED ORDER "Interleaved1F1B --training.dtype bfloat16 " HELD "--validation.seq_len 8",
    TINY    PP DIVIDED ORDER "InterleavedZeroBubble --loss.chunk_tokens 5 --model.tied true " BF16,
    TINY    PP DIVIDED ORDER "ZBVZeroBubble --debug.certificate true " BF16,
    TINY    PP DIVIDED ORDER "DualPipeV",
    TINY    PP DIVIDED ALL,
    TINY    PP DIVIDED "--lora.rank 2 --lora.targets lm_head",
    TINY    PP DIVIDED "--data.source preference --data.path pairs.jsonl --model.vocab_size 257",
    TINY    PP DIVIDED "--quantize.recipe fp8_rowwise --quantize.output_recipe fp8_rowwise",
    TINY    PP DIVIDED "--model.vocab_size 16",
    TINY    PP "--training.grad_accumulation 1 " ORDER "DualPipeV",
    TINY    PP "--model.n_layers 1",
    TINY    PP "--parallelism.data_parallel_replicate_degree 2",
    TINY    PP4 "--parallelism.data_parallel_replicate_degree 2 --model.tied true",
    TINY    PP4 "--parallelism.data_parallel_replicate_degree 2 --parallelism.exact true",
    TINY    PP4 STRATEGY "optim --model.tied true " BF16,
    TINY    PP4 STRATEGY "optim_grads " ORDER "ZBVZeroBubble",
    TINY    PP4 STRATEGY "optim_grads --model.tied true",
    TINY    PP4 ORDER "Interleaved1F1B --parallelism.fsdp_reshard_after_forward always " BF16,
    MIXTRAL PP "--parallelism.ranks 8 --parallelism.tensor_parallel_degree 4 --parallelism.expert_parallel_degree 2 "
               "--model.n_kv_heads 4 --model.tied true " STRATEGY "optim_grads",
    TINY    PP "--training.offload all",
    TINY    PP "--training.offload activations " ORDER "ZBVZeroBubble " BF16,
    TINY    PP4 DIVIDED "--optimizer.name Muon --optimizer.adjust_lr_fn match_rms_adamw",
    TINY    PP4 "--optimizer.name AdamW8bit --training.mixed_precision_reduce bfloat16 " BF16,
    TINY    PP4 "--parallelism.tensor_parallel_degree 2 " HELD,
    TINY    PP4 "--parallelism.tensor_parallel_degree 2 --parallelism.enable_sequence_parallel false --model.tied true",
    TINY    PP4 "--parallelism.tensor_parallel_degree 2 " DIVIDED,
    TINY    PP4 "--parallelism.tensor_parallel_degree 2 " ALL,
    TINY    PP4 "--parallelism.context_parallel_degree 2 " HELD,
    TINY    PP4 "--parallelism.context_parallel_degree 2 --parallelism.context_parallel_rotate_method alltoall " DIVIDED,
    GPT     PP ORDER "ZBVZeroBubble " HELD,
    GPT     PP "--model.tied false " DIVIDED,
    MIXTRAL PP "--model.moe_aux_loss 0.1 " ORDER "InterleavedZeroBubble",
    MIXTRAL PP4 "--parallelism.expert_parallel_degree 2 --model.moe_aux_loss 0.1 --model.moe_aux_loss_per_sequence false",
    MIXTRAL PP4 "--parallelism.expert_parallel_degree 2 --parallelism.tensor_parallel_degree 2",
    DEEPSEEK PP HELD,
    FLUX    PP "--model.n_single_layers 2 " ORDER "ZBVZeroBubble",
    FLUX    PP "--model.n_single_layers 2 " DIVIDED,
    FLUX    PP "--model.n_single_layers 2 " HELD LORA,
    TINY    PP3 "--model.tied true",
    TINY    PP3 ORDER "ZBVZeroBubble --model.tied true " HELD,
    TINY    PP ORDER "DualPipeV --model.tied true --training.grad_accumulation 6",
    TINY    PP DIVIDED ORDER "ZBVZeroBubble --model.tied true",
    TINY    PP3 DIVIDED "--model.tied true",
    TINY    PP DIVIDED "--optimizer.groups=[{\"params\":\"*norm*\",\"trained\":\"false\"}]",
    TINY    PP DIVIDED "--optimizer.groups=[{\"params\":\"*norm*\",\"lr_scale\":\"2\"}]",
    TINY    PP "--optimizer.groups=[{\"params\":\"*norm*\",\"lr_scale\":\"2\"}]",
    TINY    PP ORDER "ZBVZeroBubble --data.source preference --data.path pairs.jsonl --model.vocab_size 258 " HELD,
    TINY    PP4 "--parallelism.tensor_parallel_degree 2 --data.source preference --data.path pairs.jsonl "
                "--model.vocab_size 258 " HELD,
    TINY    PP4 STRATEGY "grads --model.tied true",
    TINY    PP4 STRATEGY "optim --training.grad_accumulation 1 --parallelism.data_parallel_replicate_degree 1",
    TINY    PP "--training.separate_sums 2 --training.grad_accumulation 2",
    TINY    PP "--training.grad_accumulation 1",
};
/* clang-format on */

static void layouts_are_as_recorded(void **state)
{
    (void)state;
    whole_layouts_are("tests/train/whole-layouts.txt", steps, sizeof steps / sizeof steps[0]);
}

static void stages_are_as_recorded(void **state)
{
    (void)state;
    whole_layouts_are("tests/train/whole-stages.txt", staged, sizeof staged / sizeof staged[0]);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(layouts_are_as_recorded),
                                           cmocka_unit_test(stages_are_as_recorded) };

TM_TESTS(tests, NULL, NULL)
