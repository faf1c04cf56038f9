/* SPDX-License-Identifier: Apache-2.0 */
/* comm/p2p/p2p.h - messages between two ranks: through a ring in the shared memory of their host, or by the engine.
 * Small ones are eager, large ones of calls that wait go by rendezvous (private to comm/).
 */
#ifndef TM_COMM_P2P_H
#define TM_COMM_P2P_H

#include "comm/group.h"

/* A call and the messages of it. */
typedef struct {
    tm_comm             *comm;
    const tm_collective *call;
    tm_comm_header       header;
    size_t               element; /* bytes */
    int                  tag;
    tm_error            *err;
} tm_comm_transfer;

/* Neither waits. Ranks are those of the group. label: for tm_comm_transfer_wait; 0: none. */
TM_MUST_USE tm_status tm_comm_transfer_send(tm_comm_transfer *f, int peer, const void *data, size_t bytes, int label);
TM_MUST_USE tm_status tm_comm_transfer_receive(tm_comm_transfer *f, int peer, void *data, size_t bytes, int label);

/* Until all messages with this label (0: all) have ended. The deadline begins anew whenever one does. */
TM_MUST_USE tm_status tm_comm_transfer_wait(tm_comm_transfer *f, int label);
/* The same for headers that ranks tell each other before data moves: what this takes is waiting for them, not transfer
 * (tm_comm_waited_ns). */
TM_MUST_USE tm_status tm_comm_transfer_meet(tm_comm_transfer *f);

/* Gives up the messages of a call that failed. */
void tm_comm_transfer_cancel(tm_comm_transfer *f);
/* Of a call that begins. */
void tm_comm_transfer_begin(tm_comm_transfer *f, tm_comm *comm, const tm_collective *call, int tag, tm_error *err);

/* Messages to one rank, on the same host or another. */
TM_MUST_USE tm_status tm_comm_run_pair(tm_comm *comm, const tm_collective *call, tm_error *err);

/* A message to or from a rank of the same host. */
TM_MUST_USE tm_status tm_comm_ring_run(tm_comm_transfer *f);

/* A copy of the message goes on its way, with its header in front; before a world is closed, what is on its way
 * arrives.
 */
TM_MUST_USE tm_status tm_comm_send_buffered(tm_comm *comm, const tm_comm_header *header, const tm_collective *call,
                                            int tag, tm_error *err);
void                  tm_comm_send_queue_close(tm_comm_world *world);

/* Messages of this rank on their way to that one whose header is not: what follows has to stay behind them. */
bool tm_comm_send_queue_waits(tm_comm_world *world, int to);

/* Within a host: a packet with the header, and the data if it is small. False: there is no room as yet. How the
 * data goes, tm_comm_protocol_of says; of a buffered send TM_COMM_STAGED, where that can be, instead of
 * TM_COMM_BY_ENGINE. *end: tm_comm_ring_taken tells when it was taken. */
typedef enum { TM_COMM_EAGER, TM_COMM_RENDEZVOUS, TM_COMM_BY_ENGINE, TM_COMM_STAGED } tm_comm_protocol;
bool             tm_comm_is_local(const tm_comm_world *world, int rank);
tm_comm_protocol tm_comm_protocol_of(const tm_comm_header *header, size_t bytes, bool buffered);
bool tm_comm_ring_put(tm_comm_world *world, int to, int tag, const tm_comm_header *header, tm_comm_protocol how,
                      const void *data, size_t bytes, uint64_t *end);
bool tm_comm_ring_taken(const tm_comm_world *world, int to, uint64_t end);
void tm_comm_ring_open(tm_comm_world *world);
void tm_comm_ring_close(tm_comm_world *world);

/* A packet whose data, a copy, lies in a staging file of this rank. False: there is no room as yet, or no memory that
 * the other rank is known to reach. */
bool tm_comm_stage_put(tm_comm_world *world, int to, int tag, const tm_comm_header *header, const void *data,
                       size_t bytes);
/* What lies in a staging file of the rank with this process, which stays mapped in the list `seen`. NULL: errno in
 * *why.
 */
const void *tm_comm_stage_map(tm_comm_stage **seen, const tm_comm_file *file, int64_t pid, int *why);
void        tm_comm_stages_unmap(tm_comm_stage *seen);
/* After all that lies in them was taken, if the world has not failed. */
void tm_comm_stages_close(tm_comm_world *world);

#endif
