/* SPDX-License-Identifier: Apache-2.0 */
/* train/adapter/adapters.h - which matrices have an adapter beside them, and what the frozen rest is held in (LoRA, Hu
 * et al. 2021; QLoRA, Dettmers et al. 2023; docs/fine-tuning.md).
 *
 * An adapted module is a run of rows of a matrix: query, key and value of a fused one have an adapter each, or the
 * whole matrix has one, as its name is given. Those of a matrix that have one rank and factor are one tm_adapter, the
 * others follow it (tm_adapter.next). */
#ifndef TM_TRAIN_ADAPTER_ADAPTERS_H
#define TM_TRAIN_ADAPTER_ADAPTERS_H

#include "base/pattern.h"
#include "config/config.h"
#include "graph/graph.h"
#include "model/model.h"

enum { TM_MAX_TARGETS_TEXT = 512 };

/* A module by its name in files: "model.layers.0.self_attn.q_proj". */
typedef struct {
    const char *name;
    int64_t     rank;
    double      alpha;
} tm_adapted_module;

/* What the pointers point to lives as long as the configuration, or as the adapter's folder is open. */
typedef struct {
    int64_t rank; /* 0: there are none */
    double  alpha, dropout;
    bool    rslora;                    /* alpha / sqrt(rank) instead of alpha / rank */
    bool    dora;                      /* lengths of the adapted rows are trained, too (op/rescale.c) */
    bool    shared;                    /* the experts of a rank have one adapter together */
    bool    by_matrix, no_experts;     /* names of the matrices of an FFN are those of all experts', too; or never */
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
    /* Of modules whose names, in files or here, end with a regular expression: their own rank or alpha, the first one
     * that fits, as PEFT's rank_pattern and alpha_pattern. */
    const tm_pattern_value *ranks, *alphas;
    size_t                  n_ranks, n_alphas;
    const char *pattern;        /* regular expression: modules whose whole name it is have an adapter; NULL: none */
    const char *exclude;        /* names as `targets`, of modules that have none; NULL: none */
    const int64_t (*layers)[2]; /* blocks first .. last that have adapters; n_layers 0: all */
    size_t                   n_layers;
    const tm_adapted_module *modules; /* of a folder: exactly these, but for experts; NULL: as all the above says */
    size_t                   n_modules;
} tm_adapters;

/* lora.*; TM_INVALID for what does not fit together. */
TM_MUST_USE tm_status tm_adapters_read(const tm_config *config, uint64_t seed, tm_adapters *out, tm_error *err);

/* Factor of an adapter's product: of `rank` and `alpha`, and of another rank and alpha. */
double tm_adapters_scale(const tm_adapters *adapters);
double tm_adapters_scale_of(const tm_adapters *adapters, int64_t rank, double alpha);
/* Do some modules have other ranks or factors than the rest? */
static inline bool tm_adapters_vary(const tm_adapters *adapters)
{
    return adapters->n_ranks > 0 || adapters->n_alphas > 0;
}
/* What a checkpoint's adapters are known by: appends one line for each member that is given. */
void tm_adapters_print(const tm_adapters *adapters, tm_text *out);

/* Declares the adapters of a model whose parameters are declared, freezes everything else and gives it its format.
 * Nothing happens with rank 0. TM_INVALID, with near names, for a target that no module has; TM_UNSUPPORTED for one
 * that is not a linear: experts. */
TM_MUST_USE tm_status tm_adapters_declare(tm_graph *graph, const tm_model *model, const tm_adapters *adapters,
                                          tm_error *err);

/* Where the parameters of a graph are. Copies of at most a few MiB, done when the call returns; offset in bytes. */
typedef struct {
    tm_status (*read)(void *context, tm_tensor_id id, size_t offset, void *to, size_t bytes, tm_error *err);
    tm_status (*write)(void *context, tm_tensor_id id, size_t offset, const void *from, size_t bytes, tm_error *err);
    /* Sums of the ranks of a group, in their order, into all of them. */
    tm_status (*sum)(void *context, unsigned axes, double *values, size_t n, tm_error *err);
    void *context;
} tm_adapters_memory;

/* Is it a matrix that a block multiplies with, and of no expert: no router, no norm? */
bool tm_adapters_may_adapt(const tm_tensor *tensor);

/* With DoRA: the lengths become those of the rows of the matrices, in the format that products read them in: then
 * adapters whose b is 0 change nothing. Does nothing for other graphs. */
TM_MUST_USE tm_status tm_adapters_measure(const tm_graph *graph, const tm_adapters_memory *memory, tm_error *err);

/* What is trained and what is not. */
typedef struct {
    int64_t modules, trained, frozen; /* adapted; elements */
    int64_t least, most;              /* ranks */
    size_t  frozen_bytes;
} tm_adapters_facts;
tm_adapters_facts tm_adapters_describe(const tm_graph *graph);

#endif
