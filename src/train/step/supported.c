/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/supported.c - the table. A row's order is that of the messages. */
#include "train/step/supported.h"

#define SPLIT_HEAD "an output layer divided among stages (parallelism.pipeline_parallel_divide_head)"
#define TENSOR "tensor parallelism (parallelism.tensor_parallel_degree)"
#define EXPERTS "expert parallelism (parallelism.expert_parallel_degree)"
#define PAIRS "the loss of pairs (data.source preference)"
#define WHOLE "updates by Muon, Adafactor or AdamW8bit (optimizer.name)"
#define WHOLE_TENSOR "they read whole tensors"
#define UNDIVIDED "leave parallelism.pipeline_parallel_divide_head out"
#define EARLY "updates inside the backward pass (optimizer.early_step_in_backward)"
#define TINY "tiny-llama --training.seq_len 32 --training.local_batch_size 2 "
#define MIXTURE TINY "--model.n_experts 8 --model.n_experts_per_token 2 "
#define TWO "--parallelism.ranks 2 "
#define STAGES TINY TWO "--parallelism.pipeline_parallel_degree 2 --training.grad_accumulation 2 "
#define SPLIT " --parallelism.pipeline_parallel_divide_head true"
#define UPDATED_EARLY " --optimizer.early_step_in_backward true --training.max_norm 0"
#define TP " --parallelism.tensor_parallel_degree 2"

static int size(const tm_step *s, int axis)
{
    return tm_layout_size(&s->options.layout, 1U << axis);
}

static bool images(const tm_step *s)
{
    return tm_model_images(&s->options.shape);
}

static bool pairs(const tm_step *s)
{
    return s->options.preference.beta > 0;
}

static bool split_head(const tm_step *s)
{
    return size(s, TM_AXIS_PP) > 1 && s->options.layout.divide_head;
}

static bool image_dropout(const tm_step *s)
{
    return size(s, TM_AXIS_CP) > 1 && images(s) && s->options.adapters.rank > 0 && s->options.adapters.dropout > 0;
}

static bool image_ring(const tm_step *s)
{
    return size(s, TM_AXIS_CP) > 1 && images(s) && s->options.layout.ring;
}

static bool tensor_whole_updates(const tm_step *s)
{
    return size(s, TM_AXIS_TP) > 1 && !s->options.optimizer->elementwise;
}

static bool tensor_stochastic(const tm_step *s)
{
    return size(s, TM_AXIS_TP) > 1 && s->options.hyper.stochastic;
}

static bool tensor_balance(const tm_step *s)
{
    const tm_step_options *o = &s->options;
    const tm_parallel      parallel = tm_layout_parallel(&o->layout);
    const bool per_sequence = o->shape.moe.aux_loss > 0 && o->shape.moe.aux_per_sequence && o->micro_batch > 1;
    return size(s, TM_AXIS_TP) > 1 && tm_moe_own_rows(&parallel) && per_sequence &&
           (size(s, TM_AXIS_CP) > 1 || o->micro_batch % size(s, TM_AXIS_TP));
}

static bool split_images(const tm_step *s)
{
    return split_head(s) && images(s);
}

static bool split_tensor(const tm_step *s)
{
    return split_head(s) && size(s, TM_AXIS_TP) > 1;
}

static bool split_adapters(const tm_step *s)
{
    return split_head(s) && s->options.adapters.rank > 0;
}

static bool split_frozen(const tm_step *s)
{
    bool frozen = false;
    for (int g = 0; g < s->options.n_groups; g++) frozen = frozen || s->options.groups[g].frozen;
    return split_head(s) && frozen;
}

static bool split_quantized(const tm_step *s)
{
    return split_head(s) && s->options.quantize.on;
}

static bool split_pairs(const tm_step *s)
{
    return split_head(s) && pairs(s);
}

static bool split_whole_updates(const tm_step *s)
{
    return split_head(s) && !s->options.optimizer->elementwise;
}

static bool split_stochastic(const tm_step *s)
{
    return split_head(s) && s->options.hyper.stochastic;
}

static bool split_microscope(const tm_step *s)
{
    return split_head(s) && s->options.compared;
}

static bool split_sums(const tm_step *s)
{
    return split_head(s) && s->options.layout.parts > 1;
}

static bool split_names(const tm_step *s)
{
    return split_head(s) && s->options.layout.first_blocks;
}

static bool pairs_balance(const tm_step *s)
{
    return pairs(s) && s->model.balance_loss != TM_NONE;
}

static bool pairs_quantized(const tm_step *s)
{
    return pairs(s) && s->options.quantize.on;
}

static bool adapted_head(const tm_step *s)
{
    return s->model.head != TM_NONE && tm_graph_at(s->graph, s->model.head)->adapter;
}

static bool head_quantized(const tm_step *s)
{
    return adapted_head(s) && s->model.whole_logits;
}

static bool head_pairs(const tm_step *s)
{
    return adapted_head(s) && s->model.preferred != TM_NONE;
}

static bool experts_quantized(const tm_step *s)
{
    for (size_t i = 0; s->options.quantize.experts.name && i < s->graph->n_tensors; i++) {
        const tm_tensor *tensor = tm_graph_at(s->graph, (tm_tensor_id)i);
        if (tensor->adapter && tensor->shape.rank == 3) return true;
    }
    return false;
}

/* Of stages weights stay gathered, and gradients are reduced once, unless they are to be let go. */
static bool tied_shards(const tm_step *s)
{
    const tm_layout *layout = &s->options.layout;
    bool stays = layout->sharing == TM_SHARE_OPTIMIZER || (layout->sharing == TM_SHARE_ALL && !layout->let_go);
    return size(s, TM_AXIS_PP) > 1 && s->options.shape.tied && tm_layout_size(layout, TM_AXES_FSDP) > 1 &&
           layout->sharing != TM_SHARE_COPIES && !stays;
}

static bool experts_whole_updates(const tm_step *s)
{
    return size(s, TM_AXIS_EP) > 1 && !s->options.optimizer->elementwise;
}

static bool sums_narrow(const tm_step *s)
{
    return s->options.layout.parts > 1 && s->options.precision->gradient == TM_BF16;
}

static bool early_ranks(const tm_step *s)
{
    return s->options.early_updates && tm_layout_size(&s->options.layout, TM_AXES_WORLD) > 1;
}

static bool early_microscope(const tm_step *s)
{
    return s->options.early_updates && s->options.compared;
}

static bool early_micro_batches(const tm_step *s)
{
    return s->options.early_updates && s->options.accumulation > 1;
}

const tm_not_together tm_not_together_rows[] = {
    { "lora.dropout", "images with context parallelism (parallelism.context_parallel_degree)",
      "random numbers go by the row of a whole sample", "set lora.dropout to 0", image_dropout, false,
      "tiny-flux --training.local_batch_size 2 --lora.rank 2 --lora.dropout 0.1",
      TWO "--parallelism.context_parallel_degree 2" },
    { "ring attention (parallelism.context_parallel_rotate_method alltoall)", "images (model.family)",
      "their tokens all see each other", "set the method to allgather", image_ring, false,
      "tiny-flux --training.local_batch_size 2 " TWO "--parallelism.context_parallel_degree 2",
      "--parallelism.context_parallel_rotate_method alltoall" },
    { WHOLE, TENSOR, WHOLE_TENSOR, "take AdamW or SGD", tensor_whole_updates, false,
      TINY TWO "--optimizer.name Adafactor", TP },
    { "stochastic rounding (optimizer.bf16_stochastic_round)", TENSOR, "random bits go by place in a whole tensor",
      "set optimizer.bf16_stochastic_round to false", tensor_stochastic, false,
      TINY TWO "--training.dtype bfloat16 --training.regime pure --optimizer.bf16_stochastic_round true", TP },
    { "a balance of experts per sequence (model.moe_aux_loss_per_sequence)", TENSOR " and " EXPERTS,
      "a rank would have parts of several sequences",
      "set training.local_batch_size to 1, or model.moe_aux_loss_per_sequence to false", tensor_balance, false,
      MIXTURE TP
      " --parallelism.ranks 4 --parallelism.context_parallel_degree 2 --parallelism.expert_parallel_degree 4 "
      "--model.moe_aux_loss 0.1 --model.moe_aux_loss_per_sequence false",
      "--model.moe_aux_loss_per_sequence true" },
    { SPLIT_HEAD, "images (model.family)", "they have no vocabulary", UNDIVIDED, split_images, false,
      "tiny-flux " TWO "--training.local_batch_size 2 --parallelism.pipeline_parallel_degree 2 "
      "--training.grad_accumulation 2",
      SPLIT },
    { SPLIT_HEAD, TENSOR, "these divide the output layer, too", UNDIVIDED, split_tensor, false,
      STAGES TP " --parallelism.ranks 4", SPLIT },
    { SPLIT_HEAD, "adapters (lora.rank)", NULL, UNDIVIDED, split_adapters, false, STAGES "--lora.rank 2", SPLIT },
    { SPLIT_HEAD, "frozen parameters (optimizer.groups)", NULL, UNDIVIDED, split_frozen, false,
      STAGES "--optimizer.groups [{\"params\":\"layers.1.*\",\"trained\":\"false\"}]", SPLIT },
    { SPLIT_HEAD, "products in low precision (quantize.recipe)", NULL, "set quantize.recipe to none", split_quantized,
      false, STAGES "--quantize.recipe fp8_rowwise", SPLIT },
    { SPLIT_HEAD, PAIRS, NULL, UNDIVIDED, split_pairs, false, STAGES "--data.source preference --data.path pairs.jsonl",
      SPLIT },
    { SPLIT_HEAD, WHOLE, WHOLE_TENSOR, "take AdamW or SGD", split_whole_updates, false, STAGES "--optimizer.name Muon",
      SPLIT },
    { SPLIT_HEAD, "stochastic rounding (optimizer.bf16_stochastic_round)", NULL,
      "set optimizer.bf16_stochastic_round to false", split_stochastic, false,
      STAGES "--training.dtype bfloat16 --training.regime pure --optimizer.bf16_stochastic_round true", SPLIT },
    { SPLIT_HEAD, "the microscope (debug.microscope)", NULL, "set debug.microscope to 0", split_microscope, false,
      STAGES "--training.dtype bfloat16 --debug.microscope 2", SPLIT },
    { SPLIT_HEAD, "sums of parts (training.separate_sums)", NULL, "set training.separate_sums to 1", split_sums, false,
      STAGES "--training.separate_sums 2", SPLIT },
    { SPLIT_HEAD, "stages by names (parallelism.module_fqns_per_model_part)", NULL, UNDIVIDED, split_names, false,
      STAGES "--parallelism.module_fqns_per_model_part "
             "[[tok_embeddings,layers.0,layers.1],[layers.2,layers.3,norm,output]]",
      SPLIT },
    { "sums of parts (training.separate_sums)", "gradients in bfloat16 (training.regime pure)",
      "ranks add them in float32 and round once", "set training.separate_sums to 1", sums_narrow, false,
      TINY "--training.grad_accumulation 2 --training.dtype bfloat16 --training.regime pure",
      "--training.separate_sums 2" },
    { "a tied table in two stages (model.tied)",
      "shards of gradients (parallelism.data_parallel_shard_degree beside "
      "parallelism.data_parallel_shard_strategy)",
      "the gradients of the whole table are summed",
      "set the strategy to optim, or take copies (parallelism.data_parallel_replicate_degree)", tied_shards, false,
      STAGES "--parallelism.ranks 4 --model.tied true --parallelism.data_parallel_shard_strategy optim",
      "--parallelism.data_parallel_shard_strategy optim_grads" },
    { WHOLE, EXPERTS, WHOLE_TENSOR, "take AdamW or SGD, or set parallelism.expert_parallel_degree to 1",
      experts_whole_updates, false, MIXTURE TWO "--optimizer.name Adafactor",
      "--parallelism.expert_parallel_degree 2" },
    { EARLY, "several ranks (parallelism.ranks)", "they add gradients first",
      "set optimizer.early_step_in_backward to false", early_ranks, false, TINY TWO, UPDATED_EARLY },
    { EARLY, "several micro-batches of a step (training.grad_accumulation)", "gradients are known behind the last one",
      "set optimizer.early_step_in_backward to false", early_micro_batches, false,
      TINY "--training.grad_accumulation 2", UPDATED_EARLY },
    { EARLY, "the microscope (debug.microscope)", "it looks at gradients of its own in the same memory",
      "set debug.microscope to 0", early_microscope, false, TINY "--training.dtype bfloat16 --debug.microscope 2",
      UPDATED_EARLY },
    { PAIRS, "a loss that balances experts (model.moe_aux_loss)", NULL, "set model.moe_aux_loss to 0", pairs_balance,
      true, MIXTURE "--data.source preference --data.path pairs.jsonl", "--model.moe_aux_loss 0.1" },
    { PAIRS, "products in low precision (quantize.recipe)",
      "the reference would be another model than the one that begins", "set quantize.recipe to none", pairs_quantized,
      true, TINY "--data.source preference --data.path pairs.jsonl", "--quantize.recipe fp8_rowwise" },
    { "an adapter of the output layer (lora.targets lm_head)", "a quantized output layer (quantize.output_recipe)",
      NULL, "leave lm_head out", head_quantized, true, TINY "--lora.rank 2 --lora.targets q_proj,lm_head",
      "--quantize.output_recipe fp8_rowwise" },
    { "an adapter of the output layer (lora.targets lm_head)", PAIRS, NULL, "leave lm_head out", head_pairs, true,
      TINY "--lora.rank 2 --lora.targets q_proj,lm_head", "--data.source preference --data.path pairs.jsonl" },
    { "adapters of experts (lora.targets)", "experts in low precision (quantize.experts_recipe)", NULL,
      "leave experts out of lora.targets, or set quantize.experts_recipe to none", experts_quantized, true,
      MIXTURE "--lora.rank 2 --lora.targets experts.down_proj", "--quantize.experts_recipe mxfp8" },
};
const size_t tm_n_not_together = sizeof tm_not_together_rows / sizeof tm_not_together_rows[0];

tm_status tm_supported(const tm_step *step, bool declared, tm_error *err)
{
    for (size_t i = 0; i < tm_n_not_together; i++) {
        const tm_not_together *row = &tm_not_together_rows[i];
        if (row->declared != declared || !row->asked(step)) continue;
        return tm_fail(err, TM_UNSUPPORTED, "%s cannot be combined with %s%s%s; %s", row->what, row->with,
                       row->why ? ": " : "", row->why ? row->why : "", row->way);
    }
    return TM_OK;
}
