/* SPDX-License-Identifier: Apache-2.0 */
/* config/frameworks/mlperf_shell.c - config_*.sh of MLPerf Training submissions that train with NeMo: llama2_70b_lora
 * and llama31_8b of round 5.1.
 *
 * Such a file exports what the submitter chose; what the rules fix, and the defaults of the variables that the file
 * does not set, are those of the program that reads them (megatron_gpt_peft_tuning_config.yaml; train.py). */
#include "config/foreign.h"

#include <stdlib.h>

static long long number(const tm_config *config, const char *name)
{
    const char *text = tm_foreign_text(config, name);
    long long   n = text ? strtoll(text, NULL, 10) : 1;
    return n > 0 ? n : 1;
}

static const char *from_environment(const tm_config *config, const char *name, const char *value)
{
    const char *given = tm_foreign_given(config, name) ? NULL : tm_environment_find(config->environment, name);
    return given && *given ? given : value;
}

/* --- llama2_70b_lora ---------------------------------------------------------------------------------------------- */

/* Sequences of a step: MINIBS of each copy of the model. */
static long long lora_batch(const tm_config *config)
{
    long long devices = number(config, "DGXNGPU") * number(config, "DGXNNODES");
    return number(config, "MINIBS") * (devices / (number(config, "TP") * number(config, "PP"))) / number(config, "CP");
}

static const char *minibatch(const tm_config *config, const char *value)
{
    return atoll(value) < 1 ? value : tm_arena_format(config->arena, "%lld", lora_batch(config));
}

/* Evaluations come every VAL_CHECK_INTERVAL sequences, the first after SKIP_EVALS more: "first,every" in steps. */
static const char *evaluations(const tm_config *config, const char *value)
{
    const char *skipped = tm_foreign_text(config, "SKIP_EVALS");
    long long   every = atoll(value), batch = lora_batch(config), skip = skipped ? atoll(skipped) : 0;
    if (every < 1 || batch < 1 || every % batch) return NULL;
    return tm_arena_format(config->arena, "%lld,%lld", (skip + 1) * every / batch, every / batch);
}

/* Its script hands $DATADIR/data and $DATADIR/model on. */
static const char *data_folder(const tm_config *config, const char *value)
{
    return tm_arena_format(config->arena, "%s/data", from_environment(config, "DATADIR", value));
}

static const char *model_folder(const tm_config *config, const char *value)
{
    const char *folder = from_environment(config, "DATADIR", tm_foreign_text(config, "DATADIR"));
    return from_environment(config, "MODEL",
                            tm_foreign_given(config, "MODEL") ? value
                                                              : tm_arena_format(config->arena, "%s/model", folder));
}

const char *tm_mlperf_lora_weights(const tm_config *config)
{
    return model_folder(config, tm_foreign_text(config, "MODEL"));
}

#define OF_THE_MACHINE                                                                                                 \
    HARMLESS("DGXSYSTEM", "the name of the system"), HARMLESS("WALLTIME*", "of the batch system"),                     \
        HARMLESS("NEXP", "trainings: `trainmark mlperf run --runs`"), HARMLESS("LOGDIR", "the directory of the logs"), \
        HARMLESS("CONT", "the container"), HARMLESS("SEED", "given by its variable"),                                  \
        HARMLESS("OMP_NUM_THREADS", "training.threads says it"), HARMLESS("HYDRA_*", "messages"),                      \
        HARMLESS("TOKENIZERS_PARALLELISM", "rows are packed"), HARMLESS("TRANSFORMERS_OFFLINE", "nothing is fetched"), \
        HARMLESS("POSSIBLE_USER_WARNINGS", "messages"), HARMLESS("PROFILE_RPD", "a profiler"),                         \
        HARMLESS("PT_TENSOR_VALIDATION", "checks"), HARMLESS("CK_FUSED_ATTN_LOG_CONFIG", "messages"),                  \
        HARMLESS("NVTE_LOG_*", "messages"), HARMLESS("NVTE_DEBUG*", "messages"),                                       \
        HARMLESS("NVIDIA_PYTORCH_VERSION", "of the container"), SPEED("NCCL_*", "communication"),                      \
        SPEED("NVTE_*", "kernels"), SPEED("CUBLAS_*", "kernels"), SPEED("CUDA_*", "queues"),                           \
        SPEED("CUDNN_*", "kernels"), SPEED("TORCH_*", "kernels"), SPEED("USE_HIPBLASLT", "kernels"),                   \
        SPEED("TP_COMM_OVERLAP", "communication"), SPEED("MC_TP_OVERLAP_*", "communication"),                          \
        SPEED("USE_TE_SWIGLU", "kernels"), SPEED("FUSED_SOFTMAX", "kernels"), SPEED("RMSNORM_CAST", "kernels"),        \
        SPEED("VBOOST_VALUE", "clocks"), SPEED("ENABLE_TRANSPOSE_CACHE", "kernels"),                                   \
        MAPPED("MLPERF_SUBMISSION_ORG", "mlperf.submission_org"),                                                      \
        MAPPED("MLPERF_SUBMISSION_PLATFORM", "mlperf.submission_platform"),                                            \
        MAPPED("TP", "parallelism.tensor_parallel_degree", .fallback = "1"),                                           \
        MAPPED("PP", "parallelism.pipeline_parallel_degree", .fallback = "1"),                                         \
        MAPPED("CP", "parallelism.context_parallel_degree", .fallback = "1"),                                          \
        MAPPED("MBS", "training.local_batch_size", .fallback = "1")

/* clang-format off */
static const tm_foreign_key lora[] = {
    OF_THE_MACHINE,
    MAPPED("DGXNGPU", "launch.gpus_per_node", .fallback = "8"),
    MAPPED("DGXNNODES", "launch.nnodes", .fallback = "1"),
    MAPPED("MODEL", "model.hf_assets_path", .fallback = "/data/model", .convert = model_folder),
    MAPPED("DATADIR", "data.path", .fallback = "/data", .convert = data_folder),
    MAPPED("MINIBS", "training.global_batch_size", .fallback = "1", .convert = minibatch),
    MAPPED("VAL_CHECK_INTERVAL", "*:validation.first=*.0;validation.freq=*.1", .fallback = "384", .convert = evaluations,
           .words = "an interval that is no number of whole steps"),
    HARMLESS("SKIP_EVALS", "counted with VAL_CHECK_INTERVAL"),
    MAPPED("MAX_STEPS", "training.steps"),
    MAPPED("MAX_SEQLEN", "training.seq_len", .fallback = "8192"),
    MAPPED("LR", "optimizer.lr", .fallback = "0.0004"),
    MAPPED("WEIGHT_DECAY", "optimizer.weight_decay", .fallback = "0.0001"),
    MAPPED("GRADIENT_CLIP_VAL", "training.max_norm", .fallback = "0.3"),
    UNBUILT("WARMUP_RATIO", "0", "a warm-up in parts of all steps"),
    UNBUILT("MIN_LR", "0", "a lowest rate; give --min_lr"),
    MAPPED("LORA_DIM", "lora.rank;lora.targets=attention.wqkv,attention.wo;lora.base_format=bfloat16;"
           "model.name=llama2;model.flavor=70B;mlperf.benchmark=llama2_70b_lora;training.target_loss=0.925;"
           "training.mixed_precision_param=bfloat16;optimizer.name=AdamW;optimizer.beta1=0.9;optimizer.beta2=0.999;"
           "optimizer.eps=1e-8;optimizer.decay=matrices;lr_scheduler.form=nemo;lr_scheduler.warmup_steps=0;"
           "lr_scheduler.min_lr_factor=0;validation.average=sequences;validation.steps=173;data.source=govreport;"
           "data.loss_mask=input;data.pad_token=2",
           .fallback = "16"),
    MAPPED("LORA_ALPHA", "lora.alpha", .fallback = "32"),
    MAPPED("LORA_DROPOUT", "lora.dropout", .fallback = "0.1"),
    SPEED("LORA_A2A", "communication"),
    HARMLESS("WARMUP", "steps before the clock starts, which leave no trace"),
    UNBUILT("SP", "False|0", "activations of norms divided among ranks of TP as NeMo does; give "
            "--parallelism.enable_sequence_parallel"),
    MAPPED("FP8", "true:fp8=hybrid;fp8_recipe=delayed;fp8_param=true|false:", .fallback = "false"),
    MAPPED("FP8_AMAX_ALGO", "fp8_amax_compute_algo", .fallback = "most_recent", .with = "FP8"),
    MAPPED("FP8_AMAX_HISTORY", "fp8_amax_history_len", .fallback = "128", .with = "FP8"),
    UNBUILT("FP8_REDUCE_AMAX", "False|0", "scales that ranks agree on"),
    UNBUILT("FP8_DPA", "0|False", "attention in FP8"),
    UNBUILT("FP8_E4M3", "False|0", "one FP8 format for all; give --fp8 e4m3"),
    SPEED("FP8_ACTIVATION", "what is kept for the backward pass"),
    MAPPED("ACG", "recompute_granularity"),
    MAPPED("ACM", "recompute_method"),
    MAPPED("ACL", "recompute_num_layers"),
};

/* --- llama31_8b --------------------------------------------------------------------------------------------------- */

static const char *per_step(const tm_config *config, const char *value)
{
    long long every = atoll(value), batch = number(config, "GBS");
    return every < 1 || every % batch ? NULL : tm_arena_format(config->arena, "%lld", every / batch);
}

/* At least 1024 sequences, in passes of MBS. */
static const char *passes(const tm_config *config, const char *value)
{
    long long all = atoll(value), each = number(config, "MBS");
    return tm_arena_format(config->arena, "%lld", (all + each - 1) / each);
}

static const char *two_sets(const tm_config *config, const char *value)
{
    const char *folder = from_environment(config, "DATADIR", value);
    return tm_arena_format(config->arena, "%s/c4-train.en_6_text_document,%s/c4-validation-91205-samples.en_text_document",
                           folder, folder);
}

static const tm_foreign_key pretraining[] = {
    OF_THE_MACHINE,
    MAPPED("GPUS_PER_NODE", "launch.gpus_per_node"),
    MAPPED("NNODES", "launch.nnodes"),
    MAPPED("DATADIR", "*:data.path=*.0;data.validation_path=*.1", .fallback = "/data", .convert = two_sets),
    HARMLESS("MODEL", "the directory of the tokenizer, which rows of numbers do not need"),
    MAPPED("GBS", "training.global_batch_size"),
    MAPPED("MAX_LR", "optimizer.lr"),
    MAPPED("MAX_STEPS", "training.steps", .fallback = "1200000"),
    MAPPED("WARMUP_STEPS", "lr_scheduler.warmup_steps"),
    MAPPED("EVAL_EVERY", "validation.freq", .convert = per_step,
           .words = "an interval that is no number of whole steps"),
    MAPPED("EVAL_TOKENS", "validation.steps", .fallback = "1024", .convert = passes),
    UNBUILT("START_EVAL_AT", "0", "a later first evaluation; give --validation.first"),
    MAPPED("TARGET", "training.target_loss", .fallback = "3.3"),
    MAPPED("SIZE", "8b:model.name=llama3.1_8B;model.init=gpt2;mlperf.benchmark=llama31_8b;training.seq_len=8192;"
           "training.max_norm=1;training.mixed_precision_param=bfloat16;training.mixed_precision_reduce=bfloat16;"
           "optimizer.name=AdamW;optimizer.beta1=0.9;optimizer.beta2=0.95;optimizer.eps=1e-5;optimizer.weight_decay=0.1;"
           "optimizer.decay=matrices;lr_scheduler.form=nemo;lr_scheduler.min_lr_factor=0.1;data.source=megatron;"
           "fp8=hybrid;fp8_recipe=delayed;fp8_amax_history_len=4;fp8_amax_compute_algo=most_recent",
           .fallback = "8b", .words = "another model"),
    MAPPED("FP8_PARAMS", "1:fp8_param=true|0:", .words = "wanted 1 or 0"),
    UNBUILT("USE_CKPT", "0", "a first checkpoint; give --checkpoint.initial_load_path"),
    UNBUILT("SAVE_CKPT", "0", "a last checkpoint; give --checkpoint.enable true"),
    UNBUILT("START_STEPS", "0", "steps done before"),
    HARMLESS("FROM_HF", "counts with USE_CKPT"),
    HARMLESS("CONTINUAL_CKPT", "counts with SAVE_CKPT"),
    HARMLESS("STEP_TIME_ATOL", "how long a step may take"),
    HARMLESS("CHECK_FOR_NAN_IN_GRAD", "losses and gradients are always looked at"),
    HARMLESS("DEPENDENCIES", "of the batch system"),
    HARMLESS("REMOTE", "of the batch system"),
    HARMLESS("NPAR", "of the batch system"),
    HARMLESS("TAG", "the name of the experiment"),
};
/* clang-format on */

const tm_framework tm_framework_mlperf_lora = { "mlperf-llama2_70b_lora",
                                                "config_*.sh of submissions of llama2_70b_lora with NeMo",
                                                lora,
                                                sizeof lora / sizeof lora[0],
                                                NULL,
                                                false };
const tm_framework tm_framework_mlperf_8b = { "mlperf-llama31_8b",
                                              "config_*.sh of submissions of llama31_8b with NeMo",
                                              pretraining,
                                              sizeof pretraining / sizeof pretraining[0],
                                              NULL,
                                              false };
