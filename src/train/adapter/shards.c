/* SPDX-License-Identifier: Apache-2.0 */
#include "train/adapter/shards.h"

#include "graph/cut.h"

#include <string.h>

/* Does this rank have some of the rows of each piece? */
static bool cut_by_rows(const tm_tensor *matrix)
{
    return matrix->cut && matrix->cut->whole.n[0] != matrix->shape.n[0];
}

int64_t adapter_inputs(const tm_tensor *matrix)
{
    int last = matrix->shape.rank - 1;
    return matrix->cut ? matrix->cut->whole.n[last] : matrix->shape.n[last];
}

/* The piece that begins at, or before, a row. */
static const tm_piece *piece_at(const tm_tensor *matrix, int64_t row)
{
    const tm_piece *piece = matrix->pieces;
    while (row >= piece->row + piece->rows) piece++;
    return piece;
}

/* Pieces of a module follow one another in the whole matrix, too. */
static int64_t begin_of(const tm_tensor *matrix, int64_t row)
{
    const tm_piece *piece = piece_at(matrix, row);
    return piece->begin - piece->first;
}

int64_t adapter_outputs(const tm_tensor *matrix, int64_t row, int64_t rows)
{
    const tm_piece *last = piece_at(matrix, row + rows - 1);
    if (!cut_by_rows(matrix)) return rows;
    return last->begin - last->first + last->whole - begin_of(matrix, row);
}

int adapter_pieces_of_b(const tm_tensor *matrix, int64_t row, int64_t rows, tm_piece like, int64_t *whole,
                        tm_piece *out)
{
    int     n = 0;
    int64_t all = adapter_outputs(matrix, row, rows), begin = *whole;
    *whole += all;
    if (!cut_by_rows(matrix)) {
        out[0] = like;
        out[0].rows = rows;
        return 1;
    }
    for (int64_t at = row; at < row + rows; n++) {
        const tm_piece *of = piece_at(matrix, at);
        out[n] = like;
        out[n].row = like.row + at - row;
        out[n].rows = of->rows;
        out[n].first = of->begin - begin_of(matrix, row);
        out[n].begin = begin + out[n].first;
        out[n].whole = all;
        at += of->rows;
    }
    return n;
}

void adapter_make_part(tm_graph *graph, tm_tensor_id id, tm_tensor_id of, int64_t whole, bool is_a)
{
    const tm_tensor matrix = *tm_graph_at(graph, of);
    tm_tensor      *part = tm_graph_at(graph, id);
    part->sums = matrix.cut ? matrix.cut->axes : matrix.sums;
    if (!(is_a ? tm_cut_by_columns(&matrix) : cut_by_rows(&matrix))) return;
    tm_cut cut = *matrix.cut;
    cut.whole = part->shape.rank == 1 ? tm_shape_1(whole)
                                      : tm_shape_2(whole, is_a ? adapter_inputs(&matrix) : part->shape.n[1]);
    part->sums = 0;
    tm_graph_cut(graph, id, &cut);
}

const tm_adapter *adapter_of_rest(const tm_graph *graph, tm_tensor_id of)
{
    const tm_tensor *matrix = tm_graph_at(graph, of);
    for (tm_tensor_id i = 0; matrix->cut && i < of; i++) {
        const tm_tensor *other = tm_graph_at(graph, i);
        if (other->role == TM_ROLE_PARAMETER && other->adapter && strcmp(other->name, matrix->name) == 0)
            return other->adapter;
    }
    return NULL;
}

/* --- experts ------------------------------------------------------------------------------------------------------ */

/* One that all experts here share: of ranks that divide experts each has one, in their order. */
static tm_tensor_id declare_shared(tm_graph *graph, const tm_tensor *matrix, tm_piece like, tm_shape shape)
{
    tm_piece *piece = tm_arena_take(graph->arena, sizeof *piece);
    int64_t   here = matrix->shape.n[0], whole = matrix->cut ? matrix->cut->whole.n[0] : here;
    *piece = like;
    piece->rows = shape.n[1];
    if (whole != here) {
        piece->begin = piece->first = matrix->pieces[0].begin / matrix->cut->whole.n[1] / here * shape.n[1];
        piece->whole = whole / here * shape.n[1];
    }
    tm_tensor_id id = tm_graph_parameter(graph, like.name, shape, piece, 1);
    if (whole == here) return id;
    tm_cut cut = *matrix->cut;
    cut.whole = tm_shape_3(whole / here, shape.n[1], shape.n[2]);
    tm_graph_cut(graph, id, &cut);
    return id;
}

/* All of them, in the order of their numbers, are one piece of a or b, `rows` rows each; of these the ones here. */
static int pieces_of_experts(const tm_tensor *matrix, tm_piece like, int64_t rows, bool is_a, tm_piece *out)
{
    const tm_shape here = matrix->shape, whole = matrix->cut ? matrix->cut->whole : here;
    out[0] = like;
    out[0].rows = here.n[0] * rows;
    if (whole.n[0] != here.n[0]) { /* some of the experts */
        out[0].begin = out[0].first = matrix->pieces[0].begin / whole.n[1] * rows;
        out[0].whole = whole.n[0] * rows;
    }
    if (is_a || whole.n[1] == here.n[1]) return 1;
    for (int p = 0; p < matrix->n_pieces; p++) { /* some rows of each piece of each */
        out[p] = like;
        out[p].row = matrix->pieces[p].row;
        out[p].rows = matrix->pieces[p].rows;
        out[p].begin = out[p].first = matrix->pieces[p].begin;
        out[p].whole = whole.n[0] * whole.n[1];
    }
    return matrix->n_pieces;
}

tm_tensor_id adapter_declare_of_experts(tm_graph *graph, tm_tensor_id of, tm_piece like, int64_t rank, bool is_a,
                                        bool shared)
{
    const tm_tensor matrix = *tm_graph_at(graph, of);
    const tm_shape  here = matrix.shape, whole = matrix.cut ? matrix.cut->whole : here;
    if (shared)
        return declare_shared(graph, &matrix, like,
                              is_a ? tm_shape_3(1, rank, here.n[2]) : tm_shape_3(1, here.n[1], rank));
    const bool   own = is_a ? whole.n[2] != here.n[2] : whole.n[1] != here.n[1];
    tm_piece    *pieces = tm_arena_take(graph->arena, (size_t)(matrix.n_pieces + 1) * sizeof *pieces);
    int          n = pieces_of_experts(&matrix, like, is_a ? rank : here.n[1], is_a, pieces);
    tm_shape     shape = is_a ? tm_shape_3(here.n[0], rank, here.n[2]) : tm_shape_3(here.n[0], here.n[1], rank);
    tm_tensor_id id = tm_graph_parameter(graph, like.name, shape, pieces, n);
    if (!matrix.cut) return id;
    if (whole.n[0] == here.n[0] && !own) {
        tm_graph_at(graph, id)->sums = matrix.cut->axes;
        return id;
    }
    tm_cut cut = *matrix.cut;
    cut.whole = is_a ? tm_shape_3(whole.n[0], rank, whole.n[2]) : tm_shape_3(whole.n[0], whole.n[1], rank);
    tm_graph_cut(graph, id, &cut);
    return id;
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

void adapter_place_dropout(const tm_model *model, const tm_tensor *matrix, tm_dropout_attr *attr)
{
    const tm_division context = model->parallel.context, tensor = model->parallel.tensor;
    if (tm_divided(context)) {
        attr->seq = model->seq;
        attr->chunk = tm_chunk_length(context, attr->seq);
        attr->first = tm_chunk_of(context, 0) * attr->chunk;
        attr->second = tm_chunk_of(context, 1) * attr->chunk;
    }
    if (tm_cut_by_columns(matrix)) {
        attr->column = matrix->cut->column;
        attr->width = adapter_inputs(matrix);
    }
    if (tm_divided(tensor) && !matrix->cut && matrix->sums & tensor.axes) { /* between the divided matrices */
        attr->part = tensor.rank;
        attr->parts = tensor.ranks;
    }
}
