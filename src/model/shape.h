/* SPDX-License-Identifier: Apache-2.0 */
/* model/shape.h - the dimensions of a model, read from the configuration and checked; what can be said of a model without
 * building it: parameters, FLOPs per token by convention. */
#ifndef TM_MODEL_SHAPE_H
#define TM_MODEL_SHAPE_H

#include "base/status.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum { TM_FAMILY_GPT, TM_FAMILY_LLAMA } tm_family;
/* gpt: which biases there are. MI350X_TABLE: LayerNorms and the attention output only (models.md 3.7). */
typedef enum { TM_BIAS_NONE, TM_BIAS_ALL, TM_BIAS_MI350X_TABLE } tm_bias;
typedef enum { TM_INIT_HF, TM_INIT_TORCHTITAN, TM_INIT_GPT2 } tm_init;
typedef enum { TM_ROPE_SCALING_NONE, TM_ROPE_SCALING_LLAMA3 } tm_rope_scaling;

typedef struct {
    tm_family family;
    int64_t   vocab_size, dim, n_layers, n_heads, n_kv_heads, head_dim, ffn_dim;
    int64_t   max_seq_len; /* gpt: rows of the position table */
    double    norm_eps;
    double    rope_theta;
    tm_rope_scaling rope_scaling;
    double    rope_scaling_factor, rope_low_freq_factor, rope_high_freq_factor, rope_original_max_seq_len;
    bool      rope_interleaved;
    bool      tied;
    tm_bias   bias;
    tm_init   init;
} tm_model_shape;

/* Reads model.* and cross-checks it (heads divide, head_dim even, ...): TM_INVALID names keys, values and the way out. */
TM_MUST_USE tm_status tm_model_shape_read(const tm_config *config, tm_model_shape *out, tm_error *err);

int64_t tm_model_parameters(const tm_model_shape *shape);
int64_t tm_model_parameters_embedding(const tm_model_shape *shape); /* input embedding table (positions included) */

/* X(id, name, formula): models.md 11.1 */
#define TM_FLOPS_LIST(X)                                                                                               \
    X(TITAN, "titan", "6 (N - N_emb) + 12 L H D T")                                                                    \
    X(CAUSAL, "causal", "6 N_mm + 12 L H D (T + 1) / 2")                                                               \
    X(MEGATRON, "megatron", "6 N_mm + 6 L H D T")                                                                      \
    X(SIX_N, "6n", "6 N")                                                                                              \
    X(PALM, "palm", "6 N + 12 L H D T")
typedef enum {
#define X(id, name, formula) TM_FLOPS_##id,
    TM_FLOPS_LIST(X)
#undef X
        TM_FLOPS_COUNT
} tm_flops_convention;
const char *tm_flops_name(tm_flops_convention convention);
const char *tm_flops_formula(tm_flops_convention convention);
double      tm_model_flops_per_token(const tm_model_shape *shape, tm_flops_convention convention, int64_t seq);

#endif
