/* SPDX-License-Identifier: Apache-2.0 */
/* plan/theirs.h - how long a step takes, and how much memory, in trainers based on PyTorch. Not our program: that is
 * walked instruction by instruction (plan/simulate.h). Theirs are described: which products a layer has, what is
 * streamed through memory between them, what ranks send, what is kept for the backward pass. docs/plan-theirs.md has
 * the formulas. Every constant is a row of plan/parameters.def.
 */
#ifndef TM_PLAN_THEIRS_H
#define TM_PLAN_THEIRS_H

#include "model/shape.h"
#include "plan/rates.h"

/* --- constants ------------------------------------------------------------------------------------------------------
 */

typedef enum {
#define TM_PARAMETER(id, name, unit, prior, doubt, fitted, help) TM_PARAMETER_##id,
#include "plan/parameters.def"
#undef TM_PARAMETER
    TM_PARAMETER_COUNT
} tm_parameter;

typedef struct {
    const char *name, *unit;
    double      prior;  /* what is known without the rows, or supposed */
    double      doubt;  /* standard deviation of its logarithm, before the rows */
    double      fitted; /* to the calibration rows; what predictions use */
    const char *help;   /* what it is, and where the prior is from */
} tm_parameter_row;

const tm_parameter_row *tm_parameter_rows(void); /* (TM_PARAMETER_COUNT), static */

typedef struct {
    double of[TM_PARAMETER_COUNT];
} tm_parameters;

tm_parameters tm_parameters_fitted(void);

/* What a step gets out of hardware whose file has the rates of single products and collectives: with the constants for
 * products, attention and collectives. A CPU as it is. */
tm_hardware tm_hardware_reached(const tm_hardware *hardware, const tm_parameters *p);

/* --- programs -------------------------------------------------------------------------------------------------------
 */

/* Who has what of weights, gradients and optimizer's state among data-parallel ranks. */
typedef enum {
    TM_THEY_SHARE_NOTHING,   /* copies, gradients are all-reduced: DDP */
    TM_THEY_SHARE_OPTIMIZER, /* distributed optimizer: ZeRO-1 */
    TM_THEY_SHARE_ALL,       /* FSDP: ZeRO-3 */
} tm_their_sharing;

/* What becomes of operations between products. */
typedef enum { TM_THEY_EAGER, TM_THEY_COMPILE, TM_THEY_FUSE } tm_their_fusion;

typedef enum {
    TM_AGAIN_UNKNOWN, /* the least that fits */
    TM_AGAIN_NONE,
    TM_AGAIN_CHEAP,     /* norms and activations, not products */
    TM_AGAIN_ATTENTION, /* "selective" of Korthikanti et al. 2022 */
    TM_AGAIN_PER_OP,    /* every second product: torchtitan's selective */
    TM_AGAIN_FULL,
} tm_again;

/* A trainer, and what of it changes the time. */
typedef struct {
    const char      *name;    /* of --as; of rows */
    const char      *sources; /* of rows of published figures, "MB,PAP": its figures */
    tm_their_sharing sharing;
    tm_their_fusion  fusion;
    bool             flash_2;         /* attention on NVIDIA GPUs from Hopper on by FlashAttention 2, else by cuDNN */
    bool             wide;            /* gradients are reduced in float32, else bfloat16 */
    bool             unbalanced_ring; /* ranks of a divided sequence wait for the last one's pairs */
    bool             sends_once; /* a token is sent once to each node, whatever number of experts it goes to there */
    bool overlaps_experts;       /* exchanges among experts run beside products in pipelines with several stages */
    bool permutes_apart;         /* rows are put in the order of experts by kernels of their own */
    bool te_casts;               /* to FP8 by Transformer Engine, whatever the rest is */
    bool foreach;                /* optimizer by lists of operations, unfused */
    bool         bare;           /* all in bfloat16: weights, gradients and moments, 8 bytes a parameter */
    bool         wide_norms;     /* norms keep float32 copies of their inputs */
    bool         reserved;       /* its memory is what PyTorch reserves */
    bool         keeps_all;      /* nothing of what layers keep is left out by fused kernels */
    tm_again     again;          /* its default; TM_AGAIN_UNKNOWN: the least that fits */
    bool         early;          /* of before FlashAttention and sequence parallel */
    tm_parameter factor;         /* of all its times */
    tm_parameter logits;         /* bytes kept for each logit */
    const char  *what;
} tm_trainer_row;

/* NULL behind the last. */
const tm_trainer_row *tm_trainer_row_at(size_t i);
const tm_trainer_row *tm_trainer_row_find(const char *name); /* NULL: none has that name */
const tm_trainer_row *tm_trainer_row_of(const char *source); /* NULL: none has that source */

/* --- a training -----------------------------------------------------------------------------------------------------
 */

typedef struct {
    const tm_trainer_row *trainer;
    const tm_hardware    *device;
    tm_model_shape        shape;
    tm_their_sharing      sharing;
    tm_their_fusion       fusion;
    tm_rate_format        format;         /* of products but the output layer's */
    bool                  rows;           /* FP8 with a scale for each row */
    bool                  adapter;        /* LoRA: matrices are frozen */
    bool                  early;          /* software of before 2023 */
    bool                  permutes_apart; /* as the trainer's, or it is older */
    bool                  fused_loss;
    bool                  sequence_parallel; /* rows between matrices are divided by tp, too */
    bool                  plain_tensor;      /* communication of tp is beside nothing */
    bool                  layout_known;
    int                   devices, dp, tp, pp, vp, cp, ep; /* vp: stages of a rank */
    double                bubble;                          /* times that of 1F1B; 1 */
    double                imbalance;        /* rows of the fullest rank's experts, of even ones; below 1: even */
    double                loader;           /* tokens/s that a rank's loader reads, ahead; 0: no step waits for it */
    int                   predicted_tokens; /* heads that predict further tokens */
    double                micro_batch, accumulation, seq;
    double                sequences; /* of a step, of all ranks; 0: what the layout gives */
    tm_again              again;
} tm_their_job;

/* X(id, name): what a step's time is made of. */
#define TM_THEIR_TIME_LIST(X)                                                                                          \
    X(FORWARD, "forward products")                                                                                     \
    X(BACKWARD, "backward products")                                                                                   \
    X(ATTENTION, "attention")                                                                                          \
    X(STREAMS, "elementwise and norms")                                                                                \
    X(CASTS, "casts to low precision")                                                                                 \
    X(AGAIN, "recomputation")                                                                                          \
    X(HEAD, "output layer and loss")                                                                                   \
    X(GAPS, "between kernels")                                                                                         \
    X(HOST, "waiting for the host")                                                                                    \
    X(TENSOR, "tensor parallel communication")                                                                         \
    X(CONTEXT, "context parallel communication")                                                                       \
    X(EXPERTS, "exchange among experts")                                                                               \
    X(DATA, "weights and gradients communication")                                                                     \
    X(STAGES, "messages between stages")                                                                               \
    X(BUBBLE, "idle stages")                                                                                           \
    X(OPTIMIZER, "optimizer")                                                                                          \
    X(FIXED, "fixed time of a step")                                                                                   \
    X(IMBALANCE, "fullest experts")                                                                                    \
    X(STRAGGLERS, "waiting for the slowest")                                                                           \
    X(LOADER, "waiting for data")
typedef enum {
#define X(id, name) TM_THEIR_##id,
    TM_THEIR_TIME_LIST(X)
#undef X
        TM_THEIR_TIMES
} tm_their_line;
const char *tm_their_line_name(tm_their_line line);

typedef struct {
    double   seconds[TM_THEIR_TIMES]; /* of a step; they add up to `step` */
    double   step;
    double   tokens_per_second; /* of one device */
    tm_again again;             /* what was taken where it was unknown */
} tm_their_time;

/* Bytes of the rank that has the most. */
#define TM_THEIR_MEMORY_LIST(X)                                                                                        \
    X(WEIGHTS, "weights")                                                                                              \
    X(GRADIENTS, "gradients")                                                                                          \
    X(OPTIMIZER, "optimizer")                                                                                          \
    X(ACTIVATIONS, "activations")                                                                                      \
    X(LOGITS, "logits")                                                                                                \
    X(GATHERED, "gathered weights")                                                                                    \
    X(RUNTIME, "runtime and communication")
typedef enum {
#define X(id, name) TM_THEIRS_##id,
    TM_THEIR_MEMORY_LIST(X)
#undef X
        TM_THEIRS_CLASSES
} tm_their_class;
const char *tm_their_class_name(tm_their_class which);

typedef struct {
    double bytes[TM_THEIRS_CLASSES];
    double total;
    double needed; /* to fit: without what PyTorch reserves and gives back when memory ends, with the context */
} tm_their_memory;

/* Fills in a layout that is not known (layout_known): the fewest parts of matrices, then the fewest stages, with which
 * the job fits. */
void            tm_their_layout(tm_their_job *job, const tm_parameters *p);
tm_their_time   tm_their_time_of(const tm_their_job *job, const tm_parameters *p);
tm_their_memory tm_their_memory_of(const tm_their_job *job, tm_again again, const tm_parameters *p);
/* Bytes that the device has for them. */
double tm_their_room(const tm_hardware *device, const tm_parameters *p);
/* The least recomputation with which it fits; TM_AGAIN_FULL also where it does not even then. */
tm_again tm_their_again(const tm_their_job *job, const tm_parameters *p);

#endif
