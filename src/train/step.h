/* SPDX-License-Identifier: Apache-2.0 */
/* train/step.h - one training step as programs: the graph of a model, its segments and their plan.
 *
 *   first      forward and backward of the first micro-batch: gradients are overwritten
 *   further    of every further micro-batch: gradients and loss are added to (absent without accumulation)
 *   update     gradient norm, clipping, the optimizer
 *   evaluate   forward and loss only
 *   sample     forward of one sequence up to the head, for generation (only when asked for)
 *
 * A step is: first, (accumulation - 1) x further, update. Nothing here touches memory: `explain` and `--dry-run` use
 * the same steps as a run.
 */
#ifndef TM_TRAIN_STEP_H
#define TM_TRAIN_STEP_H

#include "graph/passes/passes.h"
#include "graph/plan.h"
#include "model/model.h"
#include "op/attrs.h"
#include "train/optimizer.h"

typedef struct {
    tm_model_shape      shape;
    const tm_precision *precision;
    int64_t             micro_batch, seq; /* B, T: rows of a program are N = B T */
    int64_t             accumulation;     /* micro-batches of a step, >= 1 */
    tm_recompute        recompute;
    int64_t             loss_chunk; /* rows; 0: chosen by tm_step_loss_chunk */
    const tm_optimizer *optimizer;
    tm_hyper            hyper;
    bool                sample; /* with the program "sample" */
} tm_step_options;

typedef struct {
    tm_step_options options;
    tm_graph       *graph;
    tm_model        model;
    tm_tensor_id    tokens, targets; /* (N) int32 */
    tm_tensor_id    loss, evaluation_loss; /* () float64, summed over target tokens */
    tm_tensor_id    scalars;  /* (TM_SCALAR_COUNT) float64 */
    tm_tensor_id    clip;     /* (2) float64: gradient norm, coefficient */
    tm_tensor_id    sample_tokens, sample_hidden; /* (T) int32, (T, C): valid right after the program "sample" */
    tm_tensor_id
        lookup_gradient; /* (V, C): the look-up's part of a tied table's gradient, until "update"; or TM_NONE */
    tm_plan        *plan;
    const tm_program *first, *further, *update, *evaluate, *sample; /* further, sample: NULL when absent */
} tm_step;

/* The default chunk: all rows when their logits stay below 32 MiB, else as many multiples of 512 rows as do (512 at
 * least). Chunks that are multiples of 512 give the same bits. */
int64_t tm_step_loss_chunk(int64_t rows, int64_t vocab);

/* Builds, differentiates, rewrites and plans a step; takes no arena. The caller destroys it. TM_UNSUPPORTED: the device
 * lacks a kernel. */
TM_MUST_USE tm_status tm_step_create(const tm_step_options *options, const tm_chooser *chooser, tm_step **out,
                                     tm_error *err);
void                  tm_step_destroy(tm_step *step);

#endif
