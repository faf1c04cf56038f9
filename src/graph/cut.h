/* SPDX-License-Identifier: Apache-2.0 */
/* graph/cut.h - where the elements of a cut parameter (tm_tensor.cut) are in the whole one, run by run; and formats of
 * blocks, whose blocks a cut leaves whole. */
#ifndef TM_GRAPH_CUT_H
#define TM_GRAPH_CUT_H

#include "graph/blocks.h"
#include "graph/graph.h"

/* Elements here, here + 1, ... are elements whole, whole + 1, ... of the whole parameter. */
typedef struct {
    int64_t here, whole, n;
} tm_cut_run;

/* The runs of a parameter in the order in which they lie here: the pieces, or their rows where columns are cut. */
int64_t    tm_cut_runs(const tm_tensor *tensor);
tm_cut_run tm_cut_run_at(const tm_tensor *tensor, int64_t k);

/* The whole parameter, with its pieces (in the memory of `arena`), of which only parts need be here. */
tm_tensor tm_cut_whole(tm_arena *arena, const tm_tensor *tensor);

/* Some of the columns are here, of every row. */
bool tm_cut_by_columns(const tm_tensor *tensor);
/* Whole pieces are here: of experts that ranks divide. */
bool tm_cut_between_pieces(const tm_tensor *tensor);
/* The format of blocks that a part is held in where the whole is in `dtype`: NF4_SCALED for NF4_BLOCKS, unless whole
 * pieces are here, which are quantized by themselves. TM_DTYPE_COUNT: the cut is within blocks, or such pieces are no
 * whole groups. */
tm_dtype tm_cut_blocked(const tm_tensor *tensor, tm_dtype dtype);
/* The other way: of a part that has not whole pieces. */
tm_dtype tm_cut_blocked_whole(tm_dtype dtype);
/* What is here of a whole parameter in `from`, in the format of the part. */
void tm_cut_take_blocks(const tm_tensor *tensor, tm_dtype from, const void *whole, void *out);

#endif
