/* SPDX-License-Identifier: Apache-2.0 */
/* cli/explain_hosts.h - private to the room: what of a plan's traffic goes from host to host, by the formulas of
 * comm/coll/hosts.h. */
#ifndef TM_CLI_EXPLAIN_HOSTS_H
#define TM_CLI_EXPLAIN_HOSTS_H

#include "comm/coll/hosts.h"
#include "comm/mesh/mesh.h"
#include "graph/plan.h"

/* Ranks 0 .. K - 1 of a mesh on the first host, K .. 2 K - 1 on the second, ...: its groups, as they are asked for. */
typedef struct {
    const tm_mesh *mesh;
    int            rank, each; /* each: K; 0: unknown, nothing is said */
    unsigned       axes[TM_MESH_GROUPS];
    tm_comm_hosts *groups[TM_MESH_GROUPS]; /* that of `rank` along these axes */
    int            n;
} explain_hosts;

/* Bytes of an instruction for each rank of its group, on average: between hosts as they go, and as they would if no
 * host shared a call out; within hosts. */
typedef struct {
    double between, direct, within;
} explain_moved;

explain_moved explain_hosts_moved(explain_hosts *hosts, const tm_instruction *i);
void          explain_hosts_fini(explain_hosts *hosts);

#endif
