/* SPDX-License-Identifier: Apache-2.0 */
/* model/model.h - builders: from a shape to the forward nodes of a graph. One file per family.
 *
 * A builder names axes, module paths and layers and knows no pass: no gradient, recomputation, precision or sharding.
 */
#ifndef TM_MODEL_MODEL_H
#define TM_MODEL_MODEL_H

#include "graph/graph.h"
#include "model/parallel.h"
#include "model/shape.h"

enum { TM_MAX_LAYERS = 1024 };

/* What is counted about experts while the blocks are built: nothing; afresh; on top of the step's micro-batches before.
 */
typedef enum { TM_ACCOUNT_NONE, TM_ACCOUNT_FRESH, TM_ACCOUNT_ADD } tm_account;

/* Of an output layer that stages divide: what goes from piece to piece beside the hidden state (op/vocabulary.c). */
typedef struct {
    tm_tensor_id
        before;         /* (3 piece, N): the parts of the pieces before; TM_NONE: the first. Set before tm_model_loss */
    tm_tensor_id parts; /* (3 (piece + 1), N): with this one's */
    tm_tensor_id e, targets; /* (N, V') exponentials of this piece's logits; (N) what they are compared with */
} tm_piece_link;

/* The parameters and constants of a model inside a graph; made once, used by every segment. */
typedef struct {
    const tm_model_shape *shape; /* of the whole model */
    int64_t               seq;
    tm_parallel           parallel;
    tm_tensor_id embedding, positions, norm_w, norm_b, head; /* head == embedding when tied; TM_NONE: has none */
    tm_tensor_id rope_table;                                 /* llama */
    tm_tensor_id expert_counts; /* (mixtures, E) SCALAR: rows that each expert had in the step; TM_NONE: no experts */
    tm_tensor_id balance_loss;  /* () SCALAR: scaled like the loss, with gradients of its own; TM_NONE: has none */
    tm_account   account;       /* set before tm_model_loss */
    tm_stage     stage; /* which blocks tm_model_hidden and tm_model_loss append, with what lies around them: set before
                         * them; all, unless this rank has parts of a pipeline */
    tm_tensor_id
         received; /* (tm_model_passed_rows, C): what the stage before passed on; TM_NONE: the stage begins the model */
    bool fixed_front;  /* nothing is trained of what lies in front of the blocks, in any stage: set before
                        * tm_model_loss */
    bool whole_logits; /* the output layer's products are nodes of their own, with the logits of all rows: set before
                        * tm_model_loss; else the loss makes them, a chunk of rows at a time */
    tm_tensor_id row_losses; /* (N) float64: the loss of each row of a language is written there; TM_NONE: nowhere. Set
                              * before tm_model_loss */
    /* The loss is that of pairs of sequences, of which one is preferred (op/preference_loss.c); it adds to this record
     * (TM_PREFERRED_COUNT) SCALAR. TM_NONE: the cross entropy. Set before tm_model_loss. */
    tm_tensor_id       preferred;
    tm_preference_attr preference; /* seq does not count */
    /* (N) of the micro-batch at hand: each token's place in its document, and the first token of its sample that it
     * sees. TM_NONE: a sample is one document. Set by tm_model_loss from the inputs "positions" and "first_key". */
    tm_tensor_id   places, first_key;
    tm_piece_link *link; /* of a stage with a piece of the output layer: set before tm_model_loss, which fills it in */
    void          *own;  /* what else the family knows of its tensors, in the graph's arena */
} tm_model;

/* Declares the parameters with their initial values, and the constants, for sequences of `seq` tokens: of this rank's
 * part (NULL: all). */
void tm_model_declare(tm_graph *graph, const tm_model_shape *shape, int64_t seq, const tm_parallel *parallel,
                      tm_model *out);

/* Does the model divide like this? TM_INVALID: with the keys and the way out. */
TM_MUST_USE tm_status tm_moe_divides(const tm_model_shape *shape, const tm_parallel *parallel, tm_error *err);
/* What is planned for the rows that ranks send to each other's experts, `rows` of each rank. */
tm_exchange_attr tm_moe_exchange(const tm_model_shape *shape, const tm_parallel *parallel, int64_t rows);
/* Can the matrices of the model be divided among parallel->tensor? TM_INVALID, TM_UNSUPPORTED: with the keys. */
TM_MUST_USE tm_status tm_model_check_tensor(const tm_model_shape *shape, const tm_parallel *parallel, tm_error *err);
/* Do ranks that divide matrices have rows of their own in mixtures? Then what these count is summed over them. Else all
 * have the same balance loss, whose gradient one of them takes: does this one? */
bool tm_moe_own_rows(const tm_parallel *parallel);
bool tm_moe_takes_balance(const tm_parallel *parallel);

/* From now on for sequences of `seq` tokens, in segments to come. Not for a model whose shape decides the length. */
void tm_model_resize(tm_graph *graph, tm_model *model, int64_t seq);

/* Appends the blocks of model->stage: tokens (N), or what was received, -> final normed hidden state (N, C), or what
 * the stage passes on. */
tm_tensor_id tm_model_hidden(tm_graph *graph, const tm_model *model, tm_tensor_id tokens);

/* Rows of what a stage passes on, (rows, C), of a micro-batch of `rows` tokens here. Images: behind the tokens of each
 * sample one more row, what all its blocks are conditioned by. */
int64_t tm_model_passed_rows(const tm_model *model, int64_t rows);

/* The inputs of a program by the names of their fields. */
typedef struct {
    const char  *name[TM_MAX_FIELDS];
    tm_tensor_id tensor[TM_MAX_FIELDS];
    int          n;
} tm_inputs;
tm_tensor_id tm_inputs_find(const tm_inputs *inputs, const char *name); /* TM_NONE: not there */

/* The fields of a sample that the model's loss reads; ended by NULL. */
const char *const *tm_model_fields(const tm_model_shape *shape);
/* Those that it reads besides where a sample has them: positions and first_key, of samples of several documents; the
 * losses of a reference, of preferences. */
const char *const *tm_model_optional_fields(const tm_model_shape *shape);

/* Appends hidden state and loss: adds the loss, summed over what counts in the fields, to `loss` (); of a language the
 * cross entropy over targets (N), or the loss of pairs, logits in chunks of `chunk` rows. `accumulate`: loss +=
 * (further micro-batches). Returns what a stage that is not the last passes on, in the loss's place; else TM_NONE. */
tm_tensor_id tm_model_loss(tm_graph *graph, const tm_model *model, const tm_inputs *inputs, tm_tensor_id loss,
                           int64_t chunk, bool accumulate);

/* Of a model of images, all of it: appends the forward pass from the fields noisy, time, text and pooled; returns the
 * velocity that it predicts, (rows of noisy, channels). */
tm_tensor_id tm_model_velocity(tm_graph *graph, const tm_model *model, const tm_inputs *inputs);

/* The i-th module of the model, from its input to its loss, by the name that TorchTitan gives it (images: the first
 * release); false behind the last. */
typedef struct {
    char    name[48];
    int64_t block; /* its number of all kinds; -1: in front of all blocks; tm_model_blocks: behind them */
} tm_model_module;
bool tm_model_module_at(const tm_model_shape *shape, int64_t i, tm_model_module *out);

/* Appends what a step changes beside its trained parameters, before they are: the bias that balances experts. */
void tm_model_update(tm_graph *graph, const tm_model *model);

/* The matrix products of one block's and the head's linears: y (N, out) = x (N, in) w^T. */
enum { TM_MAX_PRODUCTS = 16 };
typedef struct {
    const char *name; /* "qkv" */
    int64_t     out, in;
} tm_model_product;
int tm_model_products(const tm_model_shape *shape, tm_model_product out[TM_MAX_PRODUCTS]);

/* Rotary frequencies after scaling, in radians per position; i in 0 .. head_dim / 2 - 1. Of a sequence of `length`
 * tokens: counts where model.rope_scaling is dynamic. */
double tm_model_rope_frequency(const tm_model_shape *shape, int64_t i, int64_t length);
/* After tm_model_declare: sequences do not come whole but grow, from `at_once` tokens on by one at a time. Where
 * frequencies depend on the length (dynamic), a token is rotated as the sequence that it ended asked for, and stays so.
 */
void tm_model_grow(tm_graph *graph, const tm_model *model, int64_t at_once);

#endif
