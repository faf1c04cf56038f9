/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/tcp.h - ranks that were started with addresses in the environment (torchrun and its like): a connection
 * between any two, and what goes over it.
 */
#ifndef TM_COMM_TCP_H
#define TM_COMM_TCP_H

#include "base/status.h"
#include "comm/engine.h"
#include "comm/engine/proof.h"

/* All ranks know each other. */
typedef struct {
    int               rank, size;
    int              *fd;   /* (size) non-blocking connections; -1: this one */
    tm_comm_tcp_card *card; /* (size) */
    tm_comm_key      *key;  /* (size) of each connection: only its two ends know it */
} tm_comm_tcp_mesh;

/* By RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_WORLD_SIZE, GROUP_RANK, TORCHELASTIC_RUN_ID and
 * TORCHELASTIC_USE_AGENT_STORE, with the job's secret (comm/engine/secret.c). TM_IO: ranks that did not come in time
 * are named. TM_INVALID: the environment does not fit, or the secrets differ. */
TM_MUST_USE tm_status tm_comm_tcp_meet(double deadline_seconds, tm_comm_tcp_mesh *out, tm_error *err);
void                  tm_comm_tcp_mesh_free(tm_comm_tcp_mesh *mesh); /* closes no connection */

/* The same, as an engine. */
TM_MUST_USE tm_status tm_comm_tcp_open(double deadline_seconds, tm_comm_ports *out, tm_error *err);

/* A variable of the environment that is a whole number and not negative; else `none`. */
int tm_comm_number(const char *variable, int none);

#endif
