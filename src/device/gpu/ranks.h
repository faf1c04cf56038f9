/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/ranks.h - what the files that talk to other ranks share (collectives.c, messages.c, exchange.c). */
#ifndef TM_DEVICE_GPU_RANKS_H
#define TM_DEVICE_GPU_RANKS_H

#include "device/gpu/own.h"

/* A call that was prepared. */
typedef struct {
    tm_comm       *ranks;
    tm_nccl_group *group; /* NULL: not yet opened */
    int            number;
    tm_collective  what; /* without addresses */
    char           name[64];
    size_t        *counts; /* of pass_on, bytes for each rank, then from each; NULL: of another */
    int            lane;   /* of a message: number of its lane; -1: of another */
} tm_gpu_collective;

/* Messages of a channel from one rank to another, of which this is one: a communicator of the two, in which data goes
 * one way only. What is sent waits in slots, in a stream of the lane's own, so that nothing waits behind it. */
typedef struct {
    void *memory, *sent; /* sent: an event */
    bool  used;
} tm_gpu_slot;
typedef struct {
    tm_comm       *ranks;
    tm_nccl_lane   lane;
    bool           sends;
    size_t         bytes; /* of the largest message */
    tm_nccl_group *group; /* NULL: not yet opened */
    void          *stream, *filled;
    tm_gpu_slot   *slots;
    size_t         room;      /* bytes of a slot */
    int            n, wanted; /* slots: that are there; of the plan */
    int            next;
} tm_gpu_lane;

struct tm_gpu_ranks {
    tm_nccl           *nccl;
    tm_gpu_collective *all;
    int                n, room;
    int                known; /* of these: their groups are open */
    struct {
        tm_comm       *ranks;
        tm_nccl_group *group;
    } open[TM_MESH_GROUPS];
    int              n_open;
    tm_gpu_lane     *lanes;
    int              n_lanes;
    tm_nccl_message *messages; /* of the exchange at hand */
    size_t           n_messages, messages_room;
    const char      *alone[2]; /* tm_device_info.sums of one GPU */
    char             sums[2][112];
};

/* Notes a call of the group of these axes; its number + 1 goes with what was noted of kernels. */
TM_MUST_USE tm_status tm_gpu_note_call(const void *device, const tm_call *call, const tm_group_attr *attr,
                                       const tm_collective *what, void **state, tm_error *err);

static inline tm_gpu_collective *tm_gpu_noted_call(const tm_call *call)
{
    const tm_gpu_noted *p = call->state;
    return &p->own->ranks->all[p->collective - 1];
}

/* messages.c. What was noted of lanes is opened, on both ranks of each. */
TM_MUST_USE tm_status tm_gpu_lanes_open(tm_gpu_own *own, tm_error *err);
/* Until all that was sent has left, or the deadline has passed; before communicators end. */
void tm_gpu_lanes_settle(tm_gpu_ranks *ranks);
void tm_gpu_lanes_close(tm_gpu_own *own);

#endif
