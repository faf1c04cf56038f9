/* SPDX-License-Identifier: Apache-2.0 */
/* train/adapters.h - which matrices have an adapter beside them, and what the frozen rest is held in (LoRA, Hu et al.
 * 2021; QLoRA, Dettmers et al. 2023; docs/fine-tuning.md).
 *
 * An adapted module is a run of rows of a matrix: query, key and value of a fused one have an adapter each, or the
 * whole matrix has one, as its name is given. */
#ifndef TM_TRAIN_ADAPTERS_H
#define TM_TRAIN_ADAPTERS_H

#include "config/config.h"
#include "graph/graph.h"
#include "model/model.h"

enum { TM_MAX_TARGETS_TEXT = 512 };

typedef struct {
    int64_t rank; /* 0: there are none */
    double  alpha, dropout;
    bool    rslora;                    /* alpha / sqrt(rank) instead of alpha / rank */
    bool    dora;                      /* lengths of the adapted rows are trained, too (op/rescale.c) */
    bool    gaussian, xavier;          /* initial values of a: normal with deviation 1 / rank, or with sqrt(2 /
                                        * (inputs + rank)) (Glorot and Bengio 2010); else uniform */
    char targets[TM_MAX_TARGETS_TEXT]; /* "q_proj,v_proj": names of modules, theirs or ours, patterns (* ? [abc]);
                                        * all-linear: every linear layer of a block, but for experts and routers. The
                                        * output layer and all experts' matrices are adapted where they are named in
                                        * full: lm_head, experts.gate_up_proj, experts.down_proj */
    const char *place;                 /* for messages */
    tm_dtype    base; /* of the frozen weights; TM_DTYPE_COUNT: as all weights. TM_NF4_BLOCKS, TM_E4M3_BLOCKS: of the
                       * matrices of blocks, the others are bfloat16 */
    uint64_t seed;    /* of dropout */
} tm_adapters;

/* lora.*; TM_INVALID for what does not fit together. */
TM_MUST_USE tm_status tm_adapters_read(const tm_config *config, uint64_t seed, tm_adapters *out, tm_error *err);

/* Factor of an adapter's product. */
double tm_adapters_scale(const tm_adapters *adapters);

/* Declares the adapters of a model whose parameters are declared, freezes everything else and gives it its format.
 * Nothing happens with rank 0. TM_INVALID, with near names, for a target that no module has; TM_UNSUPPORTED for one
 * that is not a linear: experts. */
TM_MUST_USE tm_status tm_adapters_declare(tm_graph *graph, const tm_model *model, const tm_adapters *adapters,
                                          tm_error *err);

/* Where the parameters of a graph are. Copies of at most a few MiB, done when the call returns; offset in bytes. */
typedef struct {
    tm_status (*read)(void *context, tm_tensor_id id, size_t offset, void *to, size_t bytes, tm_error *err);
    tm_status (*write)(void *context, tm_tensor_id id, size_t offset, const void *from, size_t bytes, tm_error *err);
    void *context;
} tm_adapters_memory;

/* With DoRA: the lengths become those of the rows of the matrices, in the format that products read them in: then
 * adapters whose b is 0 change nothing. Does nothing for other graphs. */
TM_MUST_USE tm_status tm_adapters_measure(const tm_graph *graph, const tm_adapters_memory *memory, tm_error *err);

/* What is trained and what is not. */
typedef struct {
    int64_t modules, trained, frozen; /* adapted; elements */
    size_t  frozen_bytes;
} tm_adapters_facts;
tm_adapters_facts tm_adapters_describe(const tm_graph *graph);

#endif
