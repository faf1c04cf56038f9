/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/cut.h"

#include <string.h>

static bool whole_rows(const tm_tensor *tensor)
{
    return tm_piece_row(tensor->shape) == tm_piece_row(tensor->cut->whole);
}

int64_t tm_cut_runs(const tm_tensor *tensor)
{
    return whole_rows(tensor) ? tensor->n_pieces : tm_shape_elements(tensor->shape) / tm_piece_row(tensor->shape);
}

tm_cut_run tm_cut_run_at(const tm_tensor *tensor, int64_t k)
{
    int64_t         columns = tm_piece_row(tensor->shape), all = tm_piece_row(tensor->cut->whole);
    const tm_piece *piece = tensor->pieces;
    if (whole_rows(tensor))
        return (tm_cut_run){ piece[k].row * columns, piece[k].begin * all, piece[k].rows * columns };
    while (k >= piece->row + piece->rows) piece++;
    return (tm_cut_run){ k * columns, (piece->begin + k - piece->row) * all + tensor->cut->column, columns };
}

tm_tensor tm_cut_whole(tm_arena *arena, const tm_tensor *tensor)
{
    tm_tensor whole = *tensor;
    tm_piece *pieces = tm_arena_take(arena, (size_t)tensor->n_pieces * sizeof *pieces);
    int       n = 0;
    for (int p = 0; p < tensor->n_pieces; p++) {
        tm_piece piece = tensor->pieces[p];
        if (n > 0 && strcmp(pieces[n - 1].name, piece.name) == 0) continue; /* another run of it */
        piece.row = piece.begin - piece.first;
        piece.rows = piece.whole > 0 ? piece.whole : piece.rows;
        piece.begin = piece.first = piece.whole = 0;
        pieces[n++] = piece;
    }
    whole.shape = tensor->cut->whole;
    whole.pieces = pieces;
    whole.n_pieces = n;
    whole.cut = NULL;
    whole.dtype = tm_dtype_blocked(tensor->dtype) ? tm_cut_blocked_whole(tensor->dtype) : tensor->dtype;
    return whole;
}

bool tm_cut_by_columns(const tm_tensor *tensor)
{
    return tensor->cut && !whole_rows(tensor);
}

bool tm_cut_between_pieces(const tm_tensor *tensor)
{
    if (!tensor->cut || tm_cut_by_columns(tensor)) return false;
    for (int p = 0; p < tensor->n_pieces; p++)
        if (tensor->pieces[p].whole > 0) return false;
    return true;
}

tm_dtype tm_cut_blocked(const tm_tensor *tensor, tm_dtype dtype)
{
    bool    between = tm_cut_between_pieces(tensor);
    int64_t step = between && dtype == TM_NF4_BLOCKS ? TM_NF4_GROUP : TM_NF4_BLOCK;
    if (!tensor->cut) return dtype;
    for (int64_t k = 0; k < tm_cut_runs(tensor); k++) {
        tm_cut_run run = tm_cut_run_at(tensor, k);
        if (run.here % step || run.whole % step || run.n % step) return TM_DTYPE_COUNT;
    }
    return dtype == TM_NF4_BLOCKS && !between ? TM_NF4_SCALED : dtype;
}

tm_dtype tm_cut_blocked_whole(tm_dtype dtype)
{
    return dtype == TM_NF4_SCALED ? TM_NF4_BLOCKS : dtype;
}

void tm_cut_take_blocks(const tm_tensor *tensor, tm_dtype from, const void *whole, void *out)
{
    memset(out, 0, tm_blocked_bytes(tensor->dtype, tm_shape_elements(tensor->shape)));
    for (int64_t k = 0; k < tm_cut_runs(tensor); k++) {
        tm_cut_run run = tm_cut_run_at(tensor, k);
        tm_blocked_copy(from, whole, run.whole, tensor->dtype, out, run.here, run.n);
    }
}
