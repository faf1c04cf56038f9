/* SPDX-License-Identifier: Apache-2.0 */
/* comm/far.h - the messages of a call between hosts: far.c sends them from rank to rank, between.c from host to host.
 */
#ifndef TM_COMM_FAR_H
#define TM_COMM_FAR_H

#include "comm/group.h"

typedef struct {
    tm_comm             *comm;
    const tm_collective *call;
    tm_comm_notice       notice;
    size_t               element; /* bytes */
    int                  tag;
    tm_error            *err;
} tm_far_call;

/* Neither waits. Ranks are those of the group. label: for tm_far_wait; 0: none. */
TM_MUST_USE tm_status tm_far_send(tm_far_call *f, int peer, const void *data, size_t bytes, int label);
TM_MUST_USE tm_status tm_far_receive(tm_far_call *f, int peer, void *data, size_t bytes, int label);

/* Until all messages with this label (0: all) have ended. The deadline begins anew whenever one does. */
TM_MUST_USE tm_status tm_far_wait(tm_far_call *f, int label);

/* A message to or from a rank of the same host. */
TM_MUST_USE tm_status tm_comm_mail_run(tm_far_call *f);

/* A call whose hosts share it out: a share of every host between hosts, not one of every rank. After the notices of all
 * ranks have come. Does it fit: is it large enough, is it less, and is the memory of the ranks of a host in reach? The
 * same answer on all ranks. */
bool                  tm_far_shared_fits(const tm_far_call *f);
TM_MUST_USE tm_status tm_far_shared_run(tm_far_call *f);

#endif
