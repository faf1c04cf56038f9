/* SPDX-License-Identifier: Apache-2.0 */
/* train/parallel/layout.h - how a step is divided among ranks: plain values, for plans as well as for runs. */
#ifndef TM_TRAIN_PARALLEL_LAYOUT_H
#define TM_TRAIN_PARALLEL_LAYOUT_H

#include "comm/mesh/mesh.h"
#include "config/config.h"
#include "graph/passes/units.h"
#include "model/parallel.h"
#include "model/shape.h"
#include "train/pipeline/pipeline.h"

typedef struct {
    tm_mesh    mesh; /* all 0: one rank */
    int        rank;
    tm_sharing sharing;    /* what the ranks of dp_shard x cp share */
    bool       whole_rows; /* tensor parallel: what lies between the matrices is whole on every rank of a group */
    bool       reshard;    /* TM_SHARE_ALL: weights are let go after the forward pass of a unit */
    bool       let_go;     /* TM_SHARE_ALL of stages: behind every program of a micro-batch; else weights stay gathered
                            * for the whole step, and gradients are reduced at its end, as with TM_SHARE_OPTIMIZER */
    int  prefetch;
    bool narrow; /* float32 gradients are added to those of other ranks as bfloat16 */
    /* Of a pipeline: the order of a step, stages of each rank (0: one), and as how many blocks what lies before and
     * behind them counts. */
    tm_pipeline_order       order;
    int                     chunks;
    int64_t                 first_less, last_less;
    const tm_pipeline_list *list;         /* of TM_PIPELINE_LISTED, as long as the configuration */
    const int              *first_blocks; /* of each stage, by names, as long as the configuration; NULL: cut evenly */
    bool                    divide_head;  /* every rank has a piece of the output layer, in its last stage */
    double                  head_blocks;  /* as how many blocks all of it counts then */
    /* One rank that sums as `parts` data ranks do: the gradients of so many equal runs of micro-batches are summed
     * apart, then added in order. 0, 1: all micro-batches are one sum. */
    int64_t parts;
    double  expert_capacity; /* tm_parallel.expert_capacity */
    bool    ring;            /* tm_parallel.ring */
} tm_layout;

/* As parallelism.* say, of rank 0. TM_INVALID, TM_UNSUPPORTED: with the keys and the way out. */
TM_MUST_USE tm_status tm_layout_read(const tm_config *config, tm_layout *out, tm_error *err);

/* What they say of a pipeline of that model, for sequences of `seq` tokens. */
TM_MUST_USE tm_status tm_layout_read_pipeline(const tm_config *config, const tm_model_shape *shape, int64_t seq,
                                              tm_layout *out, tm_error *err);

static inline int tm_layout_size(const tm_layout *layout, unsigned axes)
{
    return layout->mesh.degree[0] == 0 ? 1 : tm_mesh_group_size(&layout->mesh, axes);
}
/* The pipeline of a step of so many micro-batches: of each part of them, one after the other. */
static inline tm_pipeline tm_layout_pipeline(const tm_layout *layout, int64_t micro_batches)
{
    return (tm_pipeline){ .order = layout->order,
                          .ranks = tm_layout_size(layout, 1U << TM_AXIS_PP),
                          .chunks = layout->chunks > 0 ? layout->chunks : 1,
                          .micro_batches = micro_batches / (layout->parts > 1 ? layout->parts : 1),
                          .list = layout->list };
}
/* What builders need to know of it. */
tm_parallel tm_layout_parallel(const tm_layout *layout);
/* This rank's number among those that read different samples, and how many they are. */
static inline int tm_layout_data_ranks(const tm_layout *layout)
{
    return tm_layout_size(layout, TM_AXES_BATCH);
}
/* Ranks whose gradients, losses and counts are summed: those that read different samples, or parts of samples. */
static inline int tm_layout_sum_ranks(const tm_layout *layout)
{
    return tm_layout_size(layout, TM_AXES_LOSS);
}
static inline int tm_layout_data_rank(const tm_layout *layout)
{
    return layout->mesh.degree[0] == 0 ? 0 : tm_mesh_group_rank(&layout->mesh, layout->rank, TM_AXES_BATCH);
}
/* Does this rank's copy of what several ranks have count (in checkpoints), or is it that of another? */
static inline bool tm_layout_first_copy(const tm_layout *layout, unsigned axes)
{
    return layout->mesh.degree[0] == 0 || tm_mesh_group_rank(&layout->mesh, layout->rank, axes) == 0;
}

#endif
