/* SPDX-License-Identifier: Apache-2.0 */
/* comm/mesh/mesh.h - ranks in a grid with named axes: who shares what with whom.
 *
 * The axes, slowest first: pp (stages of a pipeline), dp_replicate (copies of the weights), dp_shard (shards of them),
 * cp (parts of a sequence), tp (parts of a matrix). The number of a rank is
 *     (((pp R + dp_replicate) S + dp_shard) C + cp) T + tp
 * so the ranks of one tp group are neighbours. Experts divide the same ranks otherwise: ep, the parts of the set of
 * experts, multiplies nothing but takes neighbours out of dp_shard x cp x tp; what is left of those is efsdp (order and
 * rules: torchtitan's ParallelDims).
 *
 * Pure arithmetic. tm_mesh_split makes the groups of a running world.
 */
#ifndef TM_COMM_MESH_H
#define TM_COMM_MESH_H

#include "comm/comm.h"

#include <stdbool.h>

/* X(id, name, key that sets its degree) */
#define TM_AXIS_LIST(X)                                                                                                \
    X(PP, "pp", "parallelism.pipeline_parallel_degree")                                                                \
    X(REPLICATE, "dp_replicate", "parallelism.data_parallel_replicate_degree")                                         \
    X(SHARD, "dp_shard", "parallelism.data_parallel_shard_degree")                                                     \
    X(CP, "cp", "parallelism.context_parallel_degree")                                                                 \
    X(TP, "tp", "parallelism.tensor_parallel_degree")                                                                  \
    X(EFSDP, "efsdp", "")                                                                                              \
    X(EP, "ep", "parallelism.expert_parallel_degree")
typedef enum {
#define X(id, name, key) TM_AXIS_##id,
    TM_AXIS_LIST(X)
#undef X
        TM_AXES
} tm_axis;

/* Sets of axes: bit (1 << axis). Groups of EFSDP or EP have none of SHARD, CP, TP in them. */
enum {
    TM_AXES_BATCH = 1 << TM_AXIS_REPLICATE | 1 << TM_AXIS_SHARD, /* ranks that read different samples */
    TM_AXES_LOSS = TM_AXES_BATCH | 1 << TM_AXIS_CP,              /* ranks that sum their losses */
    TM_AXES_FSDP = 1 << TM_AXIS_SHARD | 1 << TM_AXIS_CP,         /* ranks that share the weights */
    TM_AXES_WORLD = 1 << TM_AXIS_PP | TM_AXES_LOSS | 1 << TM_AXIS_TP,
};

typedef struct {
    int degree[TM_AXES]; /* >= 1; of a mesh of one rank all 1 */
} tm_mesh;

const char *tm_axis_name(tm_axis axis);

/* A mesh of one rank. */
tm_mesh tm_mesh_one(void);
/* From wanted degrees (EFSDP is not looked at) to the mesh of so many ranks; one of the degrees but ep's may be -1:
 * what is left. TM_INVALID: the product is another, or ep does not divide dp_shard x cp x tp; the message names the
 * keys and the nearest degrees and numbers of ranks that are valid. */
TM_MUST_USE tm_status tm_mesh_fill(tm_mesh *mesh, int64_t ranks, tm_error *err);

int tm_mesh_ranks(const tm_mesh *mesh);
/* Place of a rank on an axis, 0 .. degree - 1. */
int tm_mesh_at(const tm_mesh *mesh, int rank, tm_axis axis);
/* The rank with these places on the axes; `at[EFSDP]` and `at[EP]` are not looked at. */
int tm_mesh_rank(const tm_mesh *mesh, const int at[TM_AXES]);
/* The group of a rank along a set of axes: those that differ from it in these axes only. Its size; the rank's own
 * number in it, counted as in the mesh; and a number that is common to the group and to no other. */
int tm_mesh_group_size(const tm_mesh *mesh, unsigned axes);
int tm_mesh_group_rank(const tm_mesh *mesh, int rank, unsigned axes);
int tm_mesh_group_color(const tm_mesh *mesh, int rank, unsigned axes);
/* "pp 2 x dp_shard 4 x tp 2": axes of more than one rank; "one rank". Returns `out`. */
char *tm_mesh_text(char out[160], const tm_mesh *mesh);

/* --- groups of a running world ------------------------------------------------------------------------------------ */

/* Which sets of axes programs and the run call. */
enum { TM_MESH_GROUPS = 11 };
typedef struct {
    tm_comm *world; /* not owned */
    unsigned axes[TM_MESH_GROUPS];
    tm_comm *comm[TM_MESH_GROUPS]; /* split off, or the world itself where the group is the world */
    int      n;
} tm_mesh_groups;

/* Splits the groups of the axes that have more than one rank. Every rank of the world calls it; TM_INVALID: the world
 * has another size than the mesh. */
TM_MUST_USE tm_status tm_mesh_split(const tm_mesh *mesh, tm_comm *world, tm_mesh_groups *out, tm_error *err);
void                  tm_mesh_join(tm_mesh_groups *groups); /* closes them; not the world */
/* The group of a set of axes, NULL: none of these axes has more than one rank. */
tm_comm *tm_mesh_find(const tm_mesh_groups *groups, unsigned axes);

#endif
