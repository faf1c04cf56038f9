/* SPDX-License-Identifier: Apache-2.0 */
#include "train/parallel/ranks.h"

tm_status tm_ranks_open(const tm_mesh *mesh, tm_comm *world, tm_ranks *out, tm_error *err)
{
    int rank = tm_comm_rank(world);
    *out = (tm_ranks){ .mesh = *mesh, .rank = rank, .ranks = tm_comm_size(world), .world = world };
    TM_TRY(tm_mesh_split(mesh, world, &out->groups, err));
    out->data_rank = tm_mesh_group_rank(mesh, rank, TM_AXES_BATCH);
    out->data_ranks = tm_mesh_group_size(mesh, TM_AXES_BATCH);
    out->batch = tm_mesh_find(&out->groups, TM_AXES_BATCH);
    return TM_OK;
}

void tm_ranks_close(tm_ranks *ranks)
{
    tm_mesh_join(&ranks->groups);
    *ranks = (tm_ranks){ 0 };
}
