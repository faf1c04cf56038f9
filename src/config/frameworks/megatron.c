/* SPDX-License-Identifier: Apache-2.0 */
/* config/frameworks/megatron.c - the arguments of Megatron-LM, and what Primus adds to them.
 *
 * The fallbacks are what a Primus experiment takes where neither file nor preset says anything: "a|b", a of
 * pre_trainer.yaml, b of sft_trainer.yaml (stage: sft). A model is described by
 * its arguments: a preset of ours of the same name only fills what they leave open where theirs is not found. */
#include "config/frameworks/megatron_values.h"

#include <string.h>

#define DOCUMENTS(key)                                                                                                 \
    MAPPED(key, "true:data.separate_documents=true|false:", .with = "!mock_data", .plans = true,                       \
           .convert = tm_megatron_documents,                                                                           \
           .words =                                                                                                    \
               "documents separated in some ways only: reset_position_ids, reset_attention_mask and eod_mask_loss "    \
               "are one")
#define DATA(key, ours)                                                                                                \
    MAPPED(key, ours, .with = "!mock_data", .plans = true, .convert = tm_megatron_data,                                \
           .words = "an Energon set of images, or several sets with weights; give one to --data.path")
#define LOG(key) HARMLESS(key, "output and logging")
#define PROFILE(key) HARMLESS(key, "profiling")
#define FILES(key) HARMLESS(key, "how checkpoints are written")
#define COMM(key) SPEED(key, "communication of several devices")
#define KERNEL(key) SPEED(key, "kernels")
#define MOE(key) MODEL(key, "", "this form of experts", .with = "num_experts")
#define MOE_SPEED(key) SPEED(key, "kernels of experts")
#define MLA(key, ...) MAPPED(key, "plain:|*:" __VA_ARGS__, .convert = tm_megatron_if_latent, .shape = true)
#define STATE_SPACE(key) MODEL(key, "", "state-space layers (Mamba)", .with = "is_hybrid_model")
#define MUON .with = "optimizer=muon/dist_muon"
#define FP8(key) UNBUILT(key, "false|null", "float8 training", .with = "fp8")
#define BESIDE_ADAPTERS(key, format) format " beside adapters:" key "=" format ";quantize.filter_fqns=lora_A,lora_B|"
#define LOADS(key, words) UNBUILT(key, "null|false", words, .with = "load")
#define TENSOR .with = "tensor_model_parallel_size"
#define PIPELINE .with = "pipeline_model_parallel_size"
/* Stages of a pipeline: several of a rank take turns; the first and the last may have a block less. */
#define INTERLEAVED "parallelism.pipeline_parallel_schedule=Interleaved1F1B"
#define STAGES_OF_A_RANK(key)                                                                                          \
    MAPPED(key, "1 stage:|*:parallelism.pipeline_parallel_layers_per_stage=*;" INTERLEAVED, PIPELINE,                  \
           .convert = tm_megatron_stage_blocks, .words = "stages that differ in the number of their blocks")
#define LESS(key, which)                                                                                               \
    MAPPED(key,                                                                                                        \
           "true:parallelism.pipeline_parallel_" which "_stage_less_layers=1|"                                         \
           "false:parallelism.pipeline_parallel_" which "_stage_less_layers=0",                                        \
           PIPELINE, .fallback = "false")
/* Data parallel layouts: the model in copies, or one copy that all ranks share, by strategy. Copies whose sequences are
 * divided share the optimizer's state only. */
#define STRATEGY "parallelism.data_parallel_shard_strategy="
#define COPIES                                                                                                         \
    "parallelism.data_parallel_shard_degree=1;parallelism.data_parallel_replicate_degree=-1;" STRATEGY "optim"
#define SHARES "parallelism.data_parallel_shard_degree=-1;parallelism.data_parallel_replicate_degree=1;" STRATEGY
#define FLUX_MODEL "model.family=flux;data.source=gaussians;data.flow_protocol=mlperf"
#define DIFFUSION .with = "model_type=diffusion_model/flux/flux_schnell/flux_dev"
#define NOT_DIFFUSION .with = "!model_type=diffusion_model/flux/flux_schnell/flux_dev"

/* clang-format off */
static const tm_foreign_key keys[] = {
#include "config/frameworks/megatron_model.def"
#include "config/frameworks/megatron_training.def"
#include "config/frameworks/megatron_machine.def"
};
/* clang-format on */

static bool fine_tunes(const tm_config *config)
{
    const char *stage = tm_foreign_given(config, "stage");
    return stage && strcmp(stage, "sft") == 0;
}

const tm_framework tm_framework_megatron = { "megatron", "Megatron-LM, and Primus with framework megatron",
                                             keys,       sizeof keys / sizeof keys[0],
                                             fine_tunes, false };
