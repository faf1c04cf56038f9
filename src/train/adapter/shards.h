/* SPDX-License-Identifier: Apache-2.0 */
/* train/adapter/shards.h - adapters of matrices that ranks divide (tm_tensor.cut); private to this room.
 *
 * Of a matrix w (M, K) with some rows here a rank has all of a and its rows of b: what it computes are its columns of
 * the result. With some columns here it has these columns of a and all of b: what it computes is one term of the sum
 * over the ranks, as that of w is. What is there whole is updated by all ranks alike, its gradient being a sum over
 * theirs. Experts that ranks divide have theirs beside them. */
#ifndef TM_TRAIN_ADAPTER_SHARDS_H
#define TM_TRAIN_ADAPTER_SHARDS_H

#include "graph/graph.h"
#include "model/model.h"

/* Of the whole matrix: inputs, and the rows of a module that has rows row .. row + rows - 1 of what is here. */
int64_t adapter_inputs(const tm_tensor *matrix);
int64_t adapter_outputs(const tm_tensor *matrix, int64_t row, int64_t rows);

/* Pieces of b for such a module: `like` has the name and the row of b that is the first. `whole`: rows of the whole b
 * in front of the module, then behind it. At most as many as the matrix has; returns how many. */
int adapter_pieces_of_b(const tm_tensor *matrix, int64_t row, int64_t rows, tm_piece like, int64_t *whole,
                        tm_piece *out);
/* Makes a declared a or b (or m, which goes with b), of `whole` rows in all, the part that goes with what is here of
 * its matrix. */
void adapter_make_part(tm_graph *graph, tm_tensor_id id, tm_tensor_id matrix, int64_t whole, bool is_a);
/* Of a matrix of which several runs of columns are here, each a parameter of its own of the same name (FLUX): the
 * adapter of the first one, whose b and m are those of the others, too. NULL: it is the first one. */
const tm_adapter *adapter_of_rest(const tm_graph *graph, tm_tensor_id matrix);
/* The same of all experts, one behind the other, or one that all of a rank share: declares it. `like`: name and first
 * values. */
tm_tensor_id adapter_declare_of_experts(tm_graph *graph, tm_tensor_id matrix, tm_piece like, int64_t rank, bool is_a,
                                        bool shared);

/* Which rows and columns of the whole input are here: what is left out goes by their places. */
void adapter_place_dropout(const tm_model *model, const tm_tensor *matrix, tm_dropout_attr *attr);

#endif
