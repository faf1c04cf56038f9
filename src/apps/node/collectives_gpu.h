/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/collectives_gpu.h - calls between GPUs by NCCL or RCCL, on data that comes from the host and goes back
 * there; private to the room. */
#ifndef TM_NODE_COLLECTIVES_GPU_H
#define TM_NODE_COLLECTIVES_GPU_H

#include "apps/node/among.h"

typedef struct tm_node_gpus tm_node_gpus;

/* Every rank calls it: *out NULL where no rank has a GPU, the devices of the options name none, or it cannot be; then
 * `why` says so, "" in the first two cases. */
TM_MUST_USE tm_status tm_node_gpus_open(const tm_node_options *options, tm_node_gpus **out, char why[TM_NODE_TEXT],
                                        tm_error *err);
void                  tm_node_gpus_close(tm_node_gpus *gpus); /* NULL is fine */
/* "nccl 2.19.3" */
char *tm_node_gpus_library(const tm_node_gpus *gpus, char out[48]);

/* The host's memory, of which calls send and receive a part each, with `behind` bytes behind what is received. */
TM_MUST_USE tm_status tm_node_gpus_lend(tm_node_gpus *gpus, void *host, size_t bytes, size_t behind, tm_error *err);
/* For tm_node_calls; data: the tm_node_gpus. A call of other memory goes on in the host. */
TM_MUST_USE tm_status tm_node_gpus_run(void *data, tm_comm *comm, const tm_collective *call, tm_error *err);

#endif
