/* SPDX-License-Identifier: Apache-2.0 */
/* train/parallel/ranks.h - what a rank knows about those that it trains with: its place in the mesh and the groups to
 * call.
 *
 * A run alone has none of this: tm_run_options.ranks is NULL, and everything below takes NULL for "one rank".
 *
 * A step of W data ranks: each has `accumulation` micro-batches of its own, the global batch is W times as many. Rank r
 * of the data takes micro-batches r x accumulation .. (r + 1) x accumulation - 1 of the global batch, so that one rank
 * with all of them sees the same samples in the same order.
 */
#ifndef TM_TRAIN_PARALLEL_RANKS_H
#define TM_TRAIN_PARALLEL_RANKS_H

#include "comm/mesh/mesh.h"

typedef struct {
    tm_mesh        mesh;
    int            rank, ranks;           /* in the world */
    int            data_rank, data_ranks; /* among those that read different samples (dp_replicate x dp_shard) */
    tm_mesh_groups groups;                /* of a running world */
    tm_comm       *world;                 /* not owned; NULL: this is a plan */
    tm_comm       *batch;                 /* the group of data_ranks; NULL: this is a plan, or the only one */
} tm_ranks;

/* Finds this rank's place and splits the groups off. Every rank of the world calls it. */
TM_MUST_USE tm_status tm_ranks_open(const tm_mesh *mesh, tm_comm *world, tm_ranks *out, tm_error *err);
void                  tm_ranks_close(tm_ranks *ranks); /* not the world */

#endif
