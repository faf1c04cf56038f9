/* SPDX-License-Identifier: Apache-2.0 */
/* op/attrs.h - attributes of ops, shared by their descriptions and by every device's kernels. Compared and hashed as
 * bytes: zero-initialise before filling. */
#ifndef TM_OP_ATTRS_H
#define TM_OP_ATTRS_H

#include <stdint.h>

typedef struct {
    double eps;
} tm_norm_attr; /* rmsnorm, layernorm and their gradients */

/* A product with a matrix of low rank beside one of full rank: the adapters of a fused matrix, each with `rank` columns
 * of u and the rows of b of its own, one behind the other. */
enum { TM_MAX_ADAPTED = 6 };
typedef struct {
    double  scale;
    int64_t rank, parts;
    struct {
        int64_t column, rows; /* of y: columns column .. column + rows - 1; parts ascend and share none */
    } part[TM_MAX_ADAPTED];
} tm_low_rank_attr; /* and its gradients */

typedef struct {
    double   rate; /* share of the elements that become 0, in [0, 1) */
    uint64_t seed, stream;
    /* Where ranks have parts of sequences of `seq` tokens: runs of `chunk` rows, of all sequences the one that begins
     * with token `first`, then of all the one that begins with token `second`. chunk 0: rows follow one another. */
    int64_t chunk, seq, first, second;
    /* Where ranks divide matrices: rows are run `part` of `parts` equal runs (0: all are here), columns are those from
     * `column` on of `width` (0: all are here). */
    int64_t part, parts, column, width;
} tm_dropout_attr;

typedef struct {
    double  eps;
    int64_t seq; /* rows of a sample */
} tm_modulate_attr;

typedef struct {
    int64_t seq; /* rows of a sample */
} tm_gated_add_attr;

typedef struct {
    double  eps;
    int64_t heads, head_dim; /* that are normalised, D elements each */
    int64_t first, stride;   /* column of the first; columns from head to head, 0: D */
    int64_t second;          /* > 0: heads from here on have the second D weights (keys behind queries) */
} tm_head_norm_attr;

/* Pictures are matrices: a row for each position, sample by sample, line by line; channels are the columns. */
typedef struct {
    int64_t samples, height, width; /* of x: B, H, W */
    int64_t kernel, stride;         /* the same for lines and columns */
    int64_t pad_before, pad_after;  /* lines and columns of zeros: above and left; below and right */
    int64_t upsample;               /* 2: each value of x counts as 2 x 2 of them, before the padding; 1: as itself */
} tm_convolution_attr;

/* Lines (or columns) of the result, of `n` lines of x; below 1: the kernel is larger than the picture. */
static inline int64_t tm_convolution_extent(const tm_convolution_attr *attr, int64_t n)
{
    int64_t room = n * attr->upsample + attr->pad_before + attr->pad_after - attr->kernel;
    return room < 0 ? 0 : room / attr->stride + 1;
}

typedef struct {
    double  eps;
    int64_t samples, groups; /* groups: runs of channels of equal length, normalised together over a sample's rows */
    int64_t silu;            /* 1: y s(y) is stored instead of y, s(y) = 1 / (1 + e^-y) */
} tm_group_norm_attr;

typedef struct {
    double value;
} tm_fill_attr;

typedef struct {
    int64_t seq_q, seq_k; /* rows of a sequence: of queries; of keys and values, which stand at positions 0, 1, ... */
    int64_t q_offset;     /* the first query's position: > 0 behind keys of earlier calls, < 0 before them */
    int64_t heads, kv_heads; /* H, J; query head h reads key/value head h / (H / J) */
    int64_t dim_qk, dim_v;   /* elements of a head: of queries and keys; of values and results */
    double  scale;           /* of the scores; dim_qk^-0.5 */
    int64_t causal;          /* 1: a query at position p sees key j when j <= p; 0: all */
    int64_t window;          /* > 0, causal only: and when p - window < j; 0: no such limit */
    int64_t key0;            /* the number of the first key here, as first_key counts: keys may be part of a sequence */
} tm_attention_attr;

typedef struct {
    int64_t seq, heads, dim; /* T, H, D */
    int64_t max_distance;    /* from here on distances are one class */
    double  scale;           /* of the scores */
} tm_relative_attr;

typedef enum { TM_ROPE_HALF, TM_ROPE_INTERLEAVED } tm_rope_layout; /* pairs (i, i + D/2) or (2i, 2i + 1) */
typedef struct {
    int64_t seq;      /* T: without positions, row r stands at position r % T */
    int64_t heads;    /* that are rotated: H + J of a fused qkv row */
    int64_t head_dim; /* D: elements of a head that are rotated */
    int64_t layout;   /* tm_rope_layout */
    int64_t first;    /* column of the first of them */
    int64_t stride;   /* columns from head to head; 0: D. 192 with D = 64, first = 128: the last 64 of 192 */
} tm_rope_attr;

/* The heads of a row, from its first column on, are normalised (tm_head_norm_attr), then rotated (tm_rope_attr). */
typedef struct {
    double  eps;
    int64_t heads, head_dim, second;
    int64_t seq, layout;
    int64_t first_rows; /* > 0: a sample has so many rows of a, then seq - first_rows of b; 0: there is no b */
} tm_head_rope_attr;

typedef struct {
    int64_t seq;   /* T: without places, row r has position r % T */
    int64_t apart; /* embedding_grad, a dtable that is added to: 1: the rows are summed first, then added to what is
                    * there; 0: they are added to it one after the other */
    int64_t part, first; /* part 1: the table is that of tokens first, first + 1, ...; others have zeros */
    int64_t from, rows;  /* rows > 0: positions are added to rows from .. from + rows - 1 only */
} tm_embedding_attr;

typedef struct {
    int64_t chunk; /* rows whose logits exist at a time */
    int64_t no_dx; /* gradients: 1: nothing below is trained, there is no dx */
    double  scale; /* linear_cross_entropy: of the product u b^T of an adapter; without one 0 */
} tm_loss_attr;

/* What makes a loss of how much likelier than before the chosen answer became, against the rejected one. */
typedef enum { TM_PREFERENCE_SIGMOID, TM_PREFERENCE_HINGE, TM_PREFERENCE_IPO } tm_preference_kind;
typedef struct {
    int64_t seq;  /* T: rows of a sample, which holds whole pairs */
    int64_t kind; /* tm_preference_kind */
    double  beta, label_smoothing;
    /* ranks > 1: so many ranks with parts of sequences compute the same loss, of which each counts its share; rows are
     * those of all ranks one after the other, of each two runs of chunks (model/parallel.h) of `chunk` rows. */
    int64_t ranks, chunk;
} tm_preference_attr; /* preference_loss and its gradient */

/* What preference_loss tells beside the loss: sums over pairs. A reward is beta times what a sequence's log-probability
 * is above the reference's. */
typedef enum {
    TM_PREFERRED_CHOSEN,   /* rewards of the chosen */
    TM_PREFERRED_REJECTED, /* and of the rejected sequences */
    TM_PREFERRED_RIGHT,    /* 1 where the chosen one has more */
    TM_PREFERRED_LOGPS_CHOSEN,
    TM_PREFERRED_LOGPS_REJECTED,
    TM_PREFERRED_PAIRS, /* 1: how many there are */
    TM_PREFERRED_COUNT
} tm_preferred;

/* How updates are stored in bfloat16. 0: to nearest, ties to even. Else stochastically: a number between two neighbours
 * becomes one of them, the nearer the likelier, by random bits that are a function of this stream (of the tensor), of
 * TM_SCALAR_ROUNDING (of seed and step) and of the element's index. */
typedef int64_t tm_rounding_stream;

typedef struct {
    double             beta1, beta2, eps, weight_decay;
    tm_rounding_stream rounding;
    int64_t            first; /* of a part of a tensor: the element that is the first one here */
} tm_adamw_attr;

enum { TM_DYNAMIC_BLOCK = 256 };                                                 /* elements under one scale */
typedef enum { TM_ADAMW8_TORCHAO, TM_ADAMW8_BITSANDBYTES } tm_adamw8_definition; /* op/adamw8.c */
typedef struct {
    double             beta1, beta2, eps, weight_decay;
    tm_rounding_stream rounding;
    int64_t            definition; /* tm_adamw8_definition */
} tm_adamw8_attr;

typedef struct {
    double             momentum, weight_decay; /* momentum 0: no buffer */
    int64_t            nesterov;
    tm_rounding_stream rounding;
    int64_t            first; /* as above */
} tm_sgd_attr;

typedef struct {
    double decay; /* in [0, 1); 0: a copy */
} tm_ema_attr;

typedef struct {
    double             eps1, eps2, clip_threshold, weight_decay;
    tm_rounding_stream rounding;
} tm_adafactor_attr;

/* Which polynomial the iterations of Newton and Schulz apply: a x + b x^3 + c x^5 to every singular value. */
typedef enum {
    TM_MUON_SIMPLE, /* (3.4445, -4.775, 2.0315) each time: Jordan 2024 */
    TM_MUON_QUINTIC /* five triples, the first ones steeper, the last ones flatter */
} tm_muon_coefficients;
/* What the learning rate of an R x C matrix is multiplied with. X(id, name, factor) */
#define TM_MUON_SCALES(X)                                                                                              \
    X(ORIGINAL, "original", sqrt(fmax(1, R / C)))                                                                      \
    X(MATCH_RMS, "match_rms_adamw", 0.2 * sqrt(fmax(R, C)))                                                            \
    X(SPECTRAL, "spectral", sqrt(fmax(R, C)))                                                                          \
    X(SHAPE, "shape_scaling", sqrt(fmax(1, R / C)))                                                                    \
    X(UNIT_RMS, "unit_rms_norm", sqrt(R / C))
typedef enum {
#define X(id, name, factor) TM_MUON_##id,
    TM_MUON_SCALES(X)
#undef X
        TM_MUON_SCALE_COUNT
} tm_muon_scale;
enum { TM_MUON_PARTS = 4, TM_MUON_STEPS = 5 };
typedef struct {
    double             momentum, weight_decay, eps;
    tm_rounding_stream rounding;
    int64_t            nesterov;
    int64_t            coefficients; /* tm_muon_coefficients */
    int64_t            scale;        /* tm_muon_scale */
    int64_t rows[TM_MUON_PARTS];     /* matrices one below the other, of so many rows, again and again; 0: no more */
} tm_muon_attr;

typedef struct {
    double limit, alpha;
} tm_clamp_attr; /* swiglu_clamped and its gradient */

typedef struct {
    int64_t samples;       /* B: rows are joined sample by sample; 0: columns row by row */
    int64_t first, second; /* rows of a sample, or columns, of the two parts */
} tm_join_attr;            /* and split */

typedef struct {
    int64_t samples; /* B */
    int64_t ranks;   /* R */
    int64_t chunks;  /* of a sequence that a rank has: 1, chunk r; 2, also chunk 2R - 1 - r */
    int64_t inverse; /* 0: from the order of ranks to that of tokens; 1: back */
} tm_sequence_attr;  /* sequence_order */

typedef struct {
    int64_t dim; /* D */
} tm_time_attr;

typedef struct {
    int64_t heads;
    int64_t dim_nope, dim_rope; /* elements of a key: of its own; shared by all heads */
    int64_t dim_v;
} tm_latent_attr;

enum { TM_MAX_EXPERTS = 1024 };

typedef enum { TM_SCORE_SOFTMAX, TM_SCORE_SIGMOID } tm_route_score;
typedef struct {
    int64_t top_k;      /* experts of a row */
    int64_t score;      /* tm_route_score */
    int64_t normalise;  /* 1: the weights of a row add up to `scale` */
    double  scale;      /* of the weights */
    int64_t groups;     /* > 1: runs of experts of equal length, of which */
    int64_t top_groups; /* so many are left to choose from */
    int64_t group_best; /* members whose scores are added to that of the group */
    int64_t uniform;    /* 1: row t, slot j goes to expert (t k + j) mod E */
} tm_route_attr;

typedef struct {
    int64_t experts;
} tm_dispatch_attr;

typedef struct {
    int64_t top_k;
} tm_slots_attr; /* gather_rows, combine, combine_weights_grad */

typedef struct {
    int64_t even;  /* rows that are expected, for costs: x may have room for more */
} tm_grouped_attr; /* grouped_linear and its gradients; absent: as many as x has */

/* Products of codes of experts. lines: scales of a (of b) are those of lines, else one for each part. What has parts
 * with scales of their own, each ending at `end`: rows of a, rows of b's matrices, or what is summed over, in both.
 * scales: tm_codes_kind of a's and of b's (op/codes.h); those of blocks know no parts. */
enum { TM_CUT_ROWS, TM_CUT_COLUMNS, TM_CUT_DEPTH, TM_GROUPED_PARTS = 8 };
typedef struct {
    int64_t even; /* as above */
    int32_t lines[2], cut, n_parts;
    int32_t end[TM_GROUPED_PARTS];
    uint8_t scales[2];
} tm_grouped_scaled_attr;

typedef struct {
    double rate;
} tm_expert_bias_attr;

typedef struct {
    int64_t seq; /* T: rows that are balanced together; 0: all */
    int64_t top_k;
    double  alpha;
    int64_t chunk; /* > 0: so many rows of a sequence lie together, then as many of the next one, and so on, again and
                    * again; 0: the T rows of a sequence do */
} tm_balance_attr;

/* Where the rows of sequence b lie in a tensor: `runs` times `rows` rows, the first of run r is (r B + b) rows. */
typedef struct {
    int64_t sequences, rows, runs; /* B */
} tm_balance_rows;
/* Of a tensor of n rows; `counted`: rows of all sequences. */
static inline tm_balance_rows tm_balance_rows_of(const tm_balance_attr *attr, int64_t n, int64_t counted)
{
    int64_t sequences = attr->seq > 0 ? counted / attr->seq : 1;
    int64_t rows = attr->chunk > 0 ? attr->chunk : n / sequences;
    return (tm_balance_rows){ sequences, rows, n / (sequences * rows) };
}

typedef struct {
    int64_t space; /* tm_space: where x of `fetch`, y of `store` lies */
} tm_copy_attr;

typedef struct {
    int64_t axes;     /* of the mesh (comm/mesh/mesh.h), a set: the group */
    int64_t ranks;    /* R, its size; 1: nothing is sent */
    char    what[64]; /* for messages: "gradients of layer 3" */
    int32_t narrow;   /* sums of float32: 1: every rank's part is rounded to bfloat16, and so is the sum of these */
    int32_t largest;  /* all_reduce: 1: the largest value of the ranks, not their sum */
} tm_group_attr;      /* all_reduce, reduce_scatter, all_gather, share */

typedef struct {
    int64_t first;       /* class that is the first one here */
    int64_t rank, ranks; /* of the group that divides the vocabulary */
} tm_vocabulary_attr;    /* vocabulary_parts, vocabulary_loss and its gradient */

typedef struct {
    int64_t axes, ranks; /* as above */
    int64_t peer;        /* rank of the group that gets it, or that it comes from */
    int64_t channel; /* 0, 1: messages of one channel between two ranks arrive in the order in which they are sent */
    int64_t rows, columns; /* of what is received; a send: 0 */
    int64_t waiting;       /* of a send: so many of its channel wait for their receiver at least, and it does not */
    int64_t times;         /* so many times in a step: for messages */
    char    what[64];      /* for messages: "activations of stage 1" */
} tm_message_attr;         /* send, receive */

typedef struct {
    int64_t parts; /* P: ranks that have some elements of each row */
} tm_joined_attr;  /* joined_norm */

enum { TM_MAX_EXCHANGE = 1024 }; /* ranks of a group */
typedef struct {
    tm_group_attr group;
    int64_t       rank;          /* this one's number in the group; it has experts rank E / R .. (rank + 1) E / R - 1 */
    int64_t       rounds, round; /* how many there are; which one this is */
    int64_t       rows;          /* M: that a rank receives in a round at most */
    int64_t       pairs;         /* P: of each rank's own */
} tm_exchange_attr;              /* exchange_counts, send_rows, return_rows */

typedef struct {
    int64_t           axes, ranks; /* as above */
    int64_t           rank;        /* this one's number in the group */
    tm_attention_attr attention;   /* of a chunk's queries and a chunk's keys; q_offset and key0 do not count */
} tm_ring_attr;                    /* ring_attention and its gradient */

/* Targets with this value do not count. */
enum { TM_IGNORED_TARGET = -100 };

/* Places in the tensor of changing scalars (float64, one per step, written by the host before a program runs). */
typedef enum {
    TM_SCALAR_LOSS_SCALE, /* 1 / target tokens of the global batch: the cotangent of the summed loss */
    TM_SCALAR_LEARNING_RATE,
    TM_SCALAR_CORRECTION1, /* AdamW: 1 - beta1^t */
    TM_SCALAR_CORRECTION2, /* AdamW: 1 - beta2^t */
    TM_SCALAR_MAX_NORM,    /* <= 0: no clipping */
    TM_SCALAR_ROUNDING,    /* a whole number below 2^53, another one in every step: key of stochastic rounding */
    TM_SCALAR_COUNT = 8,
    TM_SCALAR_SHARE = TM_SCALAR_CORRECTION1,        /* Adafactor: t^beta2_decay */
    TM_SCALAR_RELATIVE_STEP = TM_SCALAR_CORRECTION2 /* Adafactor: min(learning rate, 1 / sqrt(t)) */
} tm_scalar;

#endif
