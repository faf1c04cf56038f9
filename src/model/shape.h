/* SPDX-License-Identifier: Apache-2.0 */
/* model/shape.h - every dimension of a decoder model, what follows from them: parameters and FLOPs by formula.
 *
 * Letters: d width, L layers, H query heads, J key/value heads, hd head width, ff FFN width, V vocabulary, P positions,
 * T sequence length. A linear stores W[out][in].
 */
#ifndef TM_MODEL_SHAPE_H
#define TM_MODEL_SHAPE_H

#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
#define TM_FAMILY(id, name, what) TM_FAMILY_##id,
#include "model/families.def"
#undef TM_FAMILY
    TM_FAMILY_COUNT
} tm_model_family;
typedef enum {
    TM_BIAS_NONE,
    TM_BIAS_ALL,
    TM_BIAS_QKV, /* of query, key and value only (Qwen2) */
    TM_BIAS_MI350X_TABLE
} tm_model_bias; /* LayerNorms have weight and bias always */
typedef enum { TM_INIT_TORCHTITAN, TM_INIT_HF, TM_INIT_GPT2 } tm_model_init;

/* A mixture of experts in the place of the FFN (model/moe.h). */
typedef struct {
    int64_t experts, top_k;  /* experts 0: no mixture */
    int64_t ffn_dim, shared; /* width of an expert; experts that every token goes to */
    int64_t dense_layers;    /* so many first layers have the FFN */
    char    pattern[256];    /* "10": every second block has experts, the first of two; "": as dense_layers says */
    bool    sigmoid, normalise, uniform;
    double  scale;
    int64_t groups, top_groups, group_best;
    double  aux_loss; /* its coefficient */
    bool    aux_per_sequence, biased;
    double  bias_rate;
} tm_moe_shape;

/* Latent attention (DeepSeek): keys and values are computed from kv_rank numbers per token. */
typedef struct {
    int64_t q_rank, kv_rank; /* q_rank 0: queries straight from the residual stream; kv_rank 0: plain attention */
    int64_t nope, rope, v;   /* elements of a head: of queries and keys without position, rotated; of values */
} tm_mla_shape;

/* Scaling of the rotary frequencies that the factor and original length below belong to. */
typedef struct {
    bool   on, truncate; /* truncate: the ends of the ramp are whole pairs */
    double beta_fast, beta_slow, mscale, mscale_all_dim;
    double attention_factor; /* of cosines and sines; 0: follows from the factor and mscale */
} tm_yarn_shape;

/* Images (flux): the tokens of a sample are those of its text, then those of its image, row by row. */
typedef struct {
    int64_t n_single;                       /* single blocks behind the n_layers double ones */
    int64_t text_len, rows, columns;        /* tokens of the text, of the image; text_len + rows x columns together */
    int64_t text_dim, vector_dim, channels; /* numbers of a token of the text, of the pooled text, of an image token */
    int64_t time_dim;                       /* sinusoids of a time */
    int64_t axes[3];                        /* shares of a head that stand for axis 0, row, column */
    bool    guidance;                       /* with an embedder of the guidance, which is trained with one scale */
    double  guidance_scale;
} tm_flux_shape;

typedef struct {
    tm_model_family family;
    int64_t         vocab_size, dim, n_layers, n_heads, n_kv_heads, head_dim, ffn_dim;
    int64_t         max_seq_len; /* positions; rows of the learned table of the gpt family */
    double          norm_eps, rope_theta;
    bool            rope_scaled; /* "llama3"; else the fields below count as the scaling asks for them */
    double          rope_scaling_factor, rope_low_freq_factor, rope_high_freq_factor;
    int64_t         rope_original_max_seq_len;
    bool            rope_linear;
    int64_t         rope_dynamic_from; /* > 0: "dynamic", for sequences longer than this */
    bool            rope_interleaved;  /* else half-split */
    int64_t         window;  /* > 0: a token sees itself and the window - 1 tokens before it; 0: all before it */
    bool            qk_norm; /* RMSNorm of each query and key head by itself, before the rotation (Qwen3) */
    bool            tied;
    tm_model_bias   bias;
    tm_model_init   init;
    double          init_std; /* of the initial weights; 0: 0.02. Counts for hf and gpt2 */
    tm_moe_shape    moe;
    tm_mla_shape    mla;
    tm_yarn_shape   yarn;
    int64_t         window_every; /* layers 0, n, 2 n, ... have the window, the others none */
    bool            sinks;        /* every query head has a logit without a value */
    bool            clamped;      /* the FFN's gated unit is that of gpt-oss */
    tm_flux_shape   flux;
} tm_model_shape;

/* Reads the model.* keys (finished configuration) and checks them against each other. TM_INVALID names key and cure. */
TM_MUST_USE tm_status tm_model_shape_read(const tm_config *config, tm_model_shape *shape, tm_error *err);

const char *tm_model_family_name(const tm_model_shape *shape); /* "llama" */
/* Of a sequence: rows of a learned table of positions; INT64_MAX where positions go on. */
int64_t tm_model_max_length(const tm_model_shape *shape);

/* Are samples images? */
bool tm_model_images(const tm_model_shape *shape);
/* Tokens of a sample where the shape decides them (images), else 0: any length. */
int64_t tm_model_length(const tm_model_shape *shape);
/* Of all kinds. */
int64_t tm_model_blocks(const tm_model_shape *shape);

/* Counted on the tensors that the family declares. All values; a tied head counts once. */
int64_t tm_model_parameters(const tm_model_shape *shape);
/* That a token uses: of experts' weights the share of those that it goes to. */
int64_t tm_model_parameters_active(const tm_model_shape *shape);
/* Of the first block. */
int64_t tm_model_parameters_layer(const tm_model_shape *shape);
/* Of the input side only: positions, and the token table unless it serves as the head, too. */
int64_t tm_model_parameters_embedding(const tm_model_shape *shape);
/* Elements of the weights that a token's matrix products use: all linears with the head; no norms, biases, look-ups. */
int64_t tm_model_parameters_matmul(const tm_model_shape *shape);

/* X(id, name): training FLOPs per token, 3 x forward, recomputation not counted. N parameters that a token uses, N_mm
 * of them in the linears, A = L H (d_qk + d_v), widths of a head's keys and values: 2 L H hd where they are equal. */
#define TM_FLOPS_LIST(X)                                                                                               \
    X(TITAN, "titan")               /* F1: 6 (N - N_embedding) + 6 A T */                                              \
    X(MATMUL, "matmul")             /* F2: 6 N_mm + 6 A min(T, window) */                                              \
    X(MEGATRON, "megatron")         /* F3: 6 N_mm (V padded to 128, no routers) + 3 A T */                             \
    X(6N, "6n")                     /* F4: 6 N, no attention */                                                        \
    X(LLMC, "llm.c")                /* F5: 6 N + 6 L d T */                                                            \
    X(NANOGPT, "nanogpt")           /* F5: 6 N + 12 L d T */                                                           \
    X(EXACT_CAUSAL, "exact-causal") /* F8: 6 N_mm + 6 A K, K visible keys on average: (T + 1) / 2, window: less */

typedef enum {
#define X(id, name) TM_FLOPS_##id,
    TM_FLOPS_LIST(X)
#undef X
        TM_FLOPS_COUNT
} tm_flops_convention;

const char *tm_flops_convention_name(tm_flops_convention convention); /* the name in the list; static text */
/* FLOPs of one trained token, forward and backward, in sequences of `seq` tokens (docs/flops.md). */
double tm_model_flops_per_token(const tm_model_shape *shape, tm_flops_convention convention, int64_t seq);

#endif
