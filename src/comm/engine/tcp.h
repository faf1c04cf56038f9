/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/tcp.h - ranks that were started with addresses in the environment (torchrun and its like): a connection
 * between any two, and what goes over it.
 */
#ifndef TM_COMM_TCP_H
#define TM_COMM_TCP_H

#include "comm/engine.h"

/* What a rank tells of itself. */
typedef struct {
    uint32_t magic, port; /* port: where it listens for ranks above it */
    int32_t  rank, size;
    uint64_t job, host; /* host: the same for ranks that share memory */
    char     host_name[TM_COMM_HOST_NAME];
} tm_comm_tcp_card;

/* All ranks know each other. */
typedef struct {
    int               rank, size;
    int              *fd;   /* (size) non-blocking connections; -1: this one */
    tm_comm_tcp_card *card; /* (size) */
} tm_comm_tcp_mesh;

/* By RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_WORLD_SIZE, GROUP_RANK, TORCHELASTIC_RUN_ID and
 * TORCHELASTIC_USE_AGENT_STORE. NULL, or why not: ranks that did not come in time are named. */
const char *tm_comm_tcp_meet(double deadline_seconds, tm_comm_tcp_mesh *out);

/* The same, as an engine. */
const char *tm_comm_tcp_open(double deadline_seconds, tm_comm_ports *out);

/* A variable of the environment that is a whole number and not negative; else `none`. */
int tm_comm_number(const char *variable, int none);

#endif
