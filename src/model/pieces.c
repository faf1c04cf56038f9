/* SPDX-License-Identifier: Apache-2.0 */
/* model/pieces.c - an output layer that stages of a pipeline divide: each has the rows of a run of the vocabulary
 * ("Balancing pipeline parallelism with vocabulary parallelism", Yeung et al. 2024). The stages are a chain, all of
 * which multiply with the same normed hidden state:
 *
 *   piece j    z = h w_j^T;  e, own parts of z (op/vocabulary.c);  on to piece j + 1: h, the parts of pieces 0 .. j
 *   the last   the loss, of the parts of all pieces
 *   backward   from piece j + 1: the parts of all pieces, and its dh;  dz of e and the parts;  dw_j = dz^T h,
 *              dh = dz w_j + that dh, back to piece j - 1
 *
 * The messages and what begins the backward pass of a piece are those of train/step/stages.h.
 */
#include "model/blocks.h"

/* A part of the output layer, or of the table where that is the output layer: then there is another copy of it. */
static tm_tensor_id declare_piece(tm_graph *graph, const tm_model *model, const tm_stage *stage, const char *name)
{
    const tm_model_shape *s = model->shape;
    const int64_t         rows = stage->class_end - stage->class_first;
    tm_piece              piece = tm_init_piece(s, s->tied ? TM_INIT_EMBEDDING : TM_INIT_HEAD, -1, 0, rows);
    /* no axes: stages of a pipeline have a piece each */
    tm_cut cut = { .rank = stage->piece, .ranks = stage->pieces, .whole = tm_shape_2(s->vocab_size, s->dim) };
    piece.name = name;
    piece.begin = piece.first = stage->class_first;
    piece.whole = s->vocab_size;
    graph->layer = -1;
    tm_tensor_id id = tm_graph_parameter(graph, name, tm_shape_2(rows, s->dim), &piece, 1);
    tm_graph_cut(graph, id, &cut);
    return id;
}

tm_tensor_id tm_declare_head(tm_graph *graph, const tm_model *model, const char *table, const char *name)
{
    const tm_model_shape *s = model->shape;
    const tm_stage       *piece = tm_parallel_piece(&model->parallel);
    if (piece) return declare_piece(graph, model, piece, s->tied ? table : name);
    if (!tm_parallel_ends(&model->parallel)) return TM_NONE;
    if (s->tied) return model->embedding;
    return tm_declare_rows(graph, model, TM_INIT_HEAD, -1, tm_shape_2(s->vocab_size, s->dim), "%s", name);
}

/* (3 j, N), (3, N) -> (3 (j + 1), N) */
static tm_tensor_id join_parts(tm_graph *graph, tm_tensor_id before, tm_tensor_id own)
{
    if (before == TM_NONE) return own;
    tm_shape     first = tm_graph_at(graph, before)->shape, second = tm_graph_at(graph, own)->shape;
    tm_join_attr attr = { .samples = 1, .first = first.n[0], .second = second.n[0] };
    tm_tensor_id in[TM_MAX_IN] = { before, own }, out[TM_MAX_OUT];
    out[0] =
        tm_graph_tensor(graph, "output.parts", TM_ROLE_STATISTIC, tm_shape_2(first.n[0] + second.n[0], first.n[1]));
    tm_graph_add(graph, TM_OP_join, &attr, sizeof attr, in, out, 0);
    return out[0];
}

tm_tensor_id tm_piece_loss(tm_graph *graph, const tm_model *model, tm_tensor_id hidden, tm_tensor_id targets,
                           tm_tensor_id loss, bool accumulate)
{
    const tm_stage    *stage = &model->stage;
    tm_piece_link     *link = model->link;
    tm_vocabulary_attr attr = { .first = stage->class_first, .rank = stage->piece, .ranks = stage->pieces };
    tm_tensor_id       made[2];
    graph->layer = -1;
    graph->module = "output";
    tm_graph_at(graph, model->head)->head = true;
    tm_tensor_id z = tm_vocabulary_logits(graph, model, tm_graph_at(graph, hidden)->shape.n[0]);
    tm_vocabulary_parts(graph, model, hidden, targets, &attr, z, made);
    link->e = made[0];
    link->targets = targets;
    link->parts = join_parts(graph, link->before, made[1]);
    if (!stage->ends) return hidden;
    tm_tensor_id in[TM_MAX_IN] = { link->e, targets, link->parts }, out[TM_MAX_OUT] = { loss, model->row_losses };
    tm_graph_add(graph, TM_OP_vocabulary_loss, &attr, sizeof attr, in, out, accumulate ? 1U : 0);
    return TM_NONE;
}
