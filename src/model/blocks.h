/* SPDX-License-Identifier: Apache-2.0 */
/* model/blocks.h - what builders share (private to model/). */
#ifndef TM_MODEL_BLOCKS_H
#define TM_MODEL_BLOCKS_H

#include "model/family.h"
#include "model/moe.h"
#include "op/attrs.h"

/* Of the families of decoders: their tm_model.own is an array of these (n_layers); TM_NONE: has none. llama: up_w holds
 * gate and up. */
typedef struct tm_block_weights {
    tm_tensor_id norm1_w, norm1_b, qkv_w, qkv_b, qk_norm_w, sinks, out_w, out_b, norm2_w, norm2_b, up_w, up_b, down_w,
        down_b;
    tm_moe_weights moe; /* in the place of up and down */
} tm_block_weights;

/* The fields of a language, and its loss: cross entropy of hidden state x head against the targets. */
extern const char *const tm_language_fields[];
tm_tensor_id tm_language_loss(tm_graph *graph, const tm_model *model, const tm_inputs *inputs, tm_tensor_id loss,
                              int64_t chunk, bool accumulate);

/* Emits an op with up to four inputs (absent ones TM_NONE) and returns its first output. */
tm_tensor_id tm_emit(tm_graph *graph, tm_op_id op, const void *attr, size_t attr_bytes, tm_tensor_id a, tm_tensor_id b,
                     tm_tensor_id c, tm_tensor_id d);

/* Initial values by family and `model.init` (the numbers are in model.c). */
typedef enum {
    TM_INIT_EMBEDDING,
    TM_INIT_POSITION,
    TM_INIT_IN,
    TM_INIT_GATE,
    TM_INIT_UP,
    TM_INIT_OUT,
    TM_INIT_HEAD,
    TM_INIT_ONE,
    TM_INIT_ZERO
} tm_init_place;
tm_piece tm_init_piece(const tm_model_shape *shape, tm_init_place place, int layer, int64_t row, int64_t rows);

/* Causal attention of the model's heads, in the layer's window. qkv (N, (H + 2J) D): the heads of q, k and v;
 * [sinks (H)]. */
tm_tensor_id tm_attend(tm_graph *graph, const tm_model *model, int layer, tm_tensor_id qkv, tm_tensor_id sinks);

/* --- context.c: of a rank that has a part of each sequence --- */

/* The places in their sequences of this rank's rows, (rows) int32: a constant. */
tm_tensor_id tm_context_places(tm_graph *graph, const tm_model *model, int64_t rows);
/* Attention of this rank's queries to the keys of whole sequences. qkv (N, H dim_qk + J (dim_qk + dim_v)): of this
 * rank's rows; [sinks (H)]. attr: its seq_q, seq_k and q_offset do not count. */
tm_tensor_id tm_context_attend(tm_graph *graph, const tm_model *model, const tm_attention_attr *attr, tm_tensor_id qkv,
                               tm_tensor_id sinks);
/* The same with queries, and keys and values, apart. */
tm_tensor_id tm_context_attend_parts(tm_graph *graph, const tm_model *model, const tm_attention_attr *attr,
                                     tm_tensor_id q, tm_tensor_id kv, tm_tensor_id sinks);
/* Every token of a sample sees every other one: a rank has one run of the tokens of each sample, one after the other.
 * attr: seq_q, seq_k are those of this rank. */
tm_tensor_id tm_context_attend_all(tm_graph *graph, const tm_model *model, const tm_attention_attr *attr,
                                   tm_tensor_id qkv, int64_t samples);

/* Elements of a head that are rotated, D. */
int64_t      tm_rope_dim(const tm_model_shape *shape);
tm_tensor_id tm_declare_rope(tm_graph *graph, const char *name, const tm_model_shape *shape,
                             int64_t seq); /* (seq, D) */
/* Of the scores: the size of a key^-0.5, more where yarn asks for it. */
double tm_attention_scale(const tm_model_shape *shape);

/* The products of the FFN, or of one expert and the shared ones; returns how many. */
int tm_ffn_products(const tm_model_shape *shape, tm_model_product *out);

/* up (N, 2F) -> (N, F): SwiGLU, or that of gpt-oss. */
tm_tensor_id tm_activation(tm_graph *graph, const tm_model_shape *shape, tm_tensor_id up);

/* The table of tokens, where this rank has what begins the model, or what ends it and the head is the table, too. */
void tm_declare_table(tm_graph *graph, const char *name, tm_model *out);
/* What the blocks of a stage begin with: the table's rows of the tokens, or what was received. */
tm_tensor_id tm_emit_begin(tm_graph *graph, const tm_model *model, const char *module, tm_tensor_id tokens);
/* Arrays of tensors that a block has, all TM_NONE. */
void *tm_take_none(tm_graph *graph, size_t bytes);

/* Declares a parameter of one piece whose name is the parameter's. */
tm_tensor_id tm_declare(tm_graph *graph, const tm_model_shape *shape, tm_init_place place, int layer, tm_shape of,
                        const char *format, ...) __attribute__((format(printf, 6, 7)));

/* --- tensor parallel (model/tensor.c). Without it all of these do what one rank does. --- */

/* This rank's part of n things: how many, and in *first the number of the first. The last rank may have fewer. */
int64_t tm_divide(tm_division division, int64_t n, int64_t *first);

/* A run of rows of a parameter of several pieces. */
typedef struct {
    const char   *name; /* of the piece */
    int64_t       rows;
    tm_init_place place;
    int64_t first; /* > 0: it goes on where the run before ended: one piece, whose runs are divided by themselves */
} tm_part;
enum { TM_MAX_FUSED = 4 };

/* A parameter of several pieces one after the other: matrices of `columns` inputs, or vectors (0). `divided`: each rank
 * has some rows of each part. */
tm_tensor_id tm_declare_fused(tm_graph *graph, const tm_model *model, int layer, const char *name, int64_t columns,
                              const tm_part *parts, int n, bool divided);
/* As tm_declare, of which each rank has some rows (or elements), or some columns. */
tm_tensor_id tm_declare_rows(tm_graph *graph, const tm_model *model, tm_init_place place, int layer, tm_shape of,
                             const char *format, ...) __attribute__((format(printf, 6, 7)));
tm_tensor_id tm_declare_columns(tm_graph *graph, const tm_model *model, tm_init_place place, int layer, tm_shape of,
                                const char *format, ...) __attribute__((format(printf, 6, 7)));
/* Marks a parameter that all ranks have, and whose gradient is a sum over theirs: one that is used between the divided
 * matrices, on a rank's rows; and one that a rank uses for its heads only. TM_NONE is fine. Returns it. */
tm_tensor_id tm_between(tm_graph *graph, const tm_model *model, tm_tensor_id id);
tm_tensor_id tm_of_heads(tm_graph *graph, const tm_model *model, tm_tensor_id id);
int64_t      tm_local_heads(const tm_model *model);
int64_t      tm_local_kv_heads(const tm_model *model);

/* Collectives of activations: `what` for messages. x itself where nothing is divided.
 *   gather   the rows of all ranks, in their order; backward they are summed, and each rank has its own
 *   scatter  this rank's rows of the sum over the ranks; backward those of all ranks
 *   sum      the sum over the ranks, with which all go on; backward nothing
 *   shared   x, which all ranks have and go on with differently; backward a sum */
tm_tensor_id tm_emit_gather(tm_graph *graph, tm_division division, const char *what, tm_tensor_id x);
tm_tensor_id tm_emit_scatter(tm_graph *graph, tm_division division, const char *what, tm_tensor_id x);
tm_tensor_id tm_emit_sum(tm_graph *graph, tm_division division, const char *what, tm_tensor_id x);
tm_tensor_id tm_emit_shared(tm_graph *graph, tm_division division, const char *what, tm_tensor_id x);

/* In front of products of which a rank has some rows: all tokens. */
tm_tensor_id tm_enter(tm_graph *graph, const tm_model *model, tm_tensor_id x);
/* The product behind them, of which it has some columns: residual + x w^T + bias, this rank's rows of it. */
tm_tensor_id tm_linear_out(tm_graph *graph, const tm_model *model, tm_tensor_id x, tm_tensor_id w, tm_tensor_id bias,
                           tm_tensor_id residual);
/* The same of a term of a sum over the ranks that is there already: residual + the sum + bias. Only where ranks divide
 * matrices. */
tm_tensor_id tm_leave(tm_graph *graph, const tm_model *model, tm_tensor_id term, tm_tensor_id bias,
                      tm_tensor_id residual);
/* The rows of tokens in the model's table, and of their positions, if it has a table of these: this rank's rows. */
tm_tensor_id tm_embed(tm_graph *graph, const tm_model *model, tm_tensor_id tokens);
/* Have the rows of the head lengths of their own (DoRA)? Its logits are rescaled then, so they are nodes. */
bool tm_vocabulary_turned(const tm_graph *graph, const tm_model *model);
/* The cross entropy with a head of which a rank has some rows, or of which logits are nodes, in chunks of rows: hidden
 * (N, C) of all tokens. */
void tm_vocabulary_loss(tm_graph *graph, const tm_model *model, tm_tensor_id hidden, tm_tensor_id targets,
                        tm_tensor_id loss, int64_t chunk, bool accumulate);
/* The same of each row: `losses` (N), of which another loss is made. */
void tm_vocabulary_row_losses(tm_graph *graph, const tm_model *model, tm_tensor_id hidden, tm_tensor_id targets,
                              tm_tensor_id losses, int64_t chunk);

/* Room for the logits z of n rows; these, and what the others who have parts of the vocabulary need of them
 * (op/vocabulary.c): e, parts. */
tm_tensor_id tm_vocabulary_logits(tm_graph *graph, const tm_model *model, int64_t n);
void         tm_vocabulary_parts(tm_graph *graph, const tm_model *model, tm_tensor_id hidden, tm_tensor_id targets,
                                 const tm_vocabulary_attr *attr, tm_tensor_id z, tm_tensor_id out[2]);

/* --- pieces.c: an output layer that stages of a pipeline divide --- */

/* The output layer, as far as this rank has it: the table where it is tied, else `name`; a stage's piece is a part of
 * its own, which has the name of the whole. */
tm_tensor_id tm_declare_head(tm_graph *graph, const tm_model *model, const char *table, const char *name);
/* What the stage with a piece adds: it fills in model->link and returns the hidden state, which goes on to the next
 * one; the last adds the loss, and returns TM_NONE. */
tm_tensor_id tm_piece_loss(tm_graph *graph, const tm_model *model, tm_tensor_id hidden, tm_tensor_id targets,
                           tm_tensor_id loss, bool accumulate);

/* Refuses: what `key` says is not a multiple of the ranks. */
tm_status tm_tensor_does_not_divide(const char *key, int64_t value, int ranks, tm_error *err);

void         tm_llama_declare(tm_graph *graph, const tm_model_shape *shape, int64_t seq, tm_model *out);
tm_tensor_id tm_llama_hidden(tm_graph *graph, const tm_model *model, tm_tensor_id tokens);
void         tm_llama_update(tm_graph *graph, const tm_model *model);
int64_t      tm_llama_ffn_dim(int64_t dim);
tm_status    tm_llama_check(const tm_config *config, const tm_model_shape *shape, tm_error *err);
int          tm_llama_products(const tm_model_shape *shape, tm_model_product out[TM_MAX_PRODUCTS]);
/* For tm_hf_form.lacks of classes without a window. */
const char *tm_llama_lacks_window(const tm_model_shape *shape);
/* What the row of a family holds that is built like Llama. Tied models begin as the public ones do: no token predicts
 * itself. */
#define TM_LLAMA_CALLS                                                                                                 \
    .fields = tm_language_fields, .init = TM_INIT_TORCHTITAN, .init_tied = TM_INIT_HF, .ffn_dim = tm_llama_ffn_dim,    \
    .check = tm_llama_check, .declare = tm_llama_declare, .hidden = tm_llama_hidden, .loss = tm_language_loss,         \
    .update = tm_llama_update, .products = tm_llama_products, .divides = true
void         tm_gpt_declare(tm_graph *graph, const tm_model_shape *shape, int64_t seq, tm_model *out);
tm_tensor_id tm_gpt_hidden(tm_graph *graph, const tm_model *model, tm_tensor_id tokens);

#endif
