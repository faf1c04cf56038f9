/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/messages.c - send and receive between stages of a pipeline, by NCCL or RCCL.
 *
 * A send of the plan does not wait until it is received, and one of the library does. So the plan's copies what it
 * sends into a slot, and the library sends from there in a stream that has nothing else to do. The library matches
 * messages of two ranks in the order of their calls, and runs the calls of a communicator one by one. So the messages
 * of each direction and channel have a communicator of their own: their order is the same on both sides, and no call of
 * a rank waits behind another one. What remains is a send that waits for a slot: there are as many as the order of
 * stages needs (tm_pipeline_waiting), and two at least, so that one is filled while another one is sent.
 */
#include "device/gpu/ranks.h"

#include "base/arena.h"
#include "device/host/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- lanes -------------------------------------------------------------------------------------------------------- */

static bool same(const tm_gpu_lane *a, tm_comm *ranks, const tm_nccl_lane *lane)
{
    return a->ranks == ranks && a->lane.from == lane->from && a->lane.to == lane->to &&
           a->lane.channel == lane->channel;
}

/* Number of the lane, which is noted if it is new. */
static int lane_of(tm_gpu_ranks *r, tm_comm *ranks, const tm_nccl_lane *lane)
{
    for (int i = 0; i < r->n_lanes; i++)
        if (same(&r->lanes[i], ranks, lane)) return i;
    r->lanes = tm_realloc(r->lanes, (size_t)(r->n_lanes + 1) * sizeof *r->lanes);
    r->lanes[r->n_lanes] = (tm_gpu_lane){ .ranks = ranks, .lane = *lane, .sends = tm_comm_rank(ranks) == lane->from };
    return r->n_lanes++;
}

/* A lane that is opened before another one by both ranks of each: numbers of ranks are those of the one group. */
static int64_t turn_of(const tm_gpu_lane *l)
{
    return ((int64_t)l->lane.channel << 48) + ((int64_t)l->lane.from << 24) + l->lane.to;
}

static void drop_slots(tm_gpu *gpu, tm_gpu_lane *l)
{
    for (int k = 0; k < l->n; k++) {
        tm_gpu_event_close(gpu, l->slots[k].sent);
        tm_gpu_free(gpu, l->slots[k].memory);
    }
    free(l->slots);
    l->slots = NULL;
    l->n = l->next = 0;
}

/* Slots for messages as large as this plan's. */
static tm_status make_room(tm_gpu_own *own, tm_gpu_lane *l, tm_error *err)
{
    if (!l->sends || (l->room >= l->bytes && l->n >= l->wanted)) return TM_OK;
    if (!l->stream) TM_TRY(tm_gpu_stream_open(own->gpu, &l->stream, err));
    if (!l->filled) TM_TRY(tm_gpu_event_open(own->gpu, &l->filled, err));
    TM_TRY(tm_nccl_wait_for(own->ranks->nccl, l->stream, err)); /* of plans before */
    drop_slots(own->gpu, l);
    l->slots = tm_alloc((size_t)l->wanted * sizeof *l->slots);
    for (l->n = 0; l->n < l->wanted; l->n++) {
        TM_TRY(tm_gpu_alloc(own->gpu, l->bytes, &l->slots[l->n].memory, err));
        TM_TRY(tm_gpu_event_open(own->gpu, &l->slots[l->n].sent, err));
    }
    l->room = l->bytes;
    return TM_OK;
}

tm_status tm_gpu_lanes_open(tm_gpu_own *own, tm_error *err)
{
    tm_gpu_ranks *r = own->ranks;
    for (int i = 0; i < r->n_lanes; i++) TM_TRY(make_room(own, &r->lanes[i], err));
    for (;;) {
        tm_gpu_lane *first = NULL;
        for (int i = 0; i < r->n_lanes; i++) {
            tm_gpu_lane *l = &r->lanes[i];
            if (!l->group && (!first || turn_of(l) < turn_of(first))) first = l;
        }
        if (!first) return TM_OK;
        TM_TRY(tm_nccl_lane_open(r->nccl, first->ranks, &first->lane, &first->group, err));
    }
}

void tm_gpu_lanes_settle(tm_gpu_ranks *r)
{
    tm_error  ignored = { 0 }; /* what has failed before was told, and nothing follows */
    tm_status st = TM_OK;
    for (int i = 0; i < r->n_lanes && st == TM_OK; i++)
        if (r->lanes[i].stream) st = tm_nccl_wait_for(r->nccl, r->lanes[i].stream, &ignored);
}

void tm_gpu_lanes_close(tm_gpu_own *own)
{
    tm_gpu_ranks *r = own->ranks;
    for (int i = 0; i < r->n_lanes; i++) {
        tm_gpu_lane *l = &r->lanes[i];
        if (l->stream) tm_gpu_stream_close(own->gpu, l->stream);
        tm_gpu_event_close(own->gpu, l->filled);
        drop_slots(own->gpu, l);
    }
    free(r->lanes);
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static const tm_message_attr *attr_of(const tm_call *call)
{
    return call->attr;
}

static const tm_view *message_of(const tm_call *call)
{
    return call->op == &tm_op_send ? &call->in[0] : &call->out[0];
}

static const char *refuse(const tm_call *call)
{
    const tm_view *x = message_of(call), *y = &call->out[0];
    if (call->accumulate) return "does not add to what is there";
    if (tm_view_present(y) && x->dtype != y->dtype) return "a message keeps the format";
    if (tm_dtype_bits(x->dtype) % 8 != 0) return "needs a format of whole bytes";
    return tm_view_dense(x) ? NULL : "sends rows without gaps between them";
}

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    const tm_message_attr *attr = attr_of(call);
    bool                   sends = call->op == &tm_op_send;
    const tm_view         *x = message_of(call);
    tm_group_attr          group;
    tm_collective          what = { .kind = sends ? TM_COMM_SEND : TM_COMM_RECEIVE,
                                    .format = TM_COMM_BYTES,
                                    .count = tm_tensor_bytes(x->shape, x->dtype),
                                    .peer = (int)attr->peer,
                                    .step = -1 };
    tm_gpu_note_none(device, state);
    if (attr->ranks == 1) return TM_OK;
    memset(&group, 0, sizeof group);
    group.axes = attr->axes;
    group.ranks = attr->ranks;
    memcpy(group.what, attr->what, sizeof group.what < sizeof attr->what ? sizeof group.what : sizeof attr->what);
    TM_TRY(tm_gpu_note_call(device, call, &group, &what, state, err));
    tm_gpu_ranks      *r = ((const tm_gpu_noted *)*state)->own->ranks;
    tm_gpu_collective *c = &r->all[((const tm_gpu_noted *)*state)->collective - 1];
    int                self = tm_comm_rank(c->ranks), peer = (int)attr->peer;
    tm_nccl_lane       lane = { sends ? self : peer, sends ? peer : self, (int)attr->channel };
    c->lane = lane_of(r, c->ranks, &lane);
    tm_gpu_lane *l = &r->lanes[c->lane];
    if (l->bytes < what.count) l->bytes = what.count;
    if (l->wanted < attr->waiting) l->wanted = (int)attr->waiting;
    if (l->wanted < 2) l->wanted = 2;
    snprintf(c->name, sizeof c->name, "%.34s, %s rank %d", attr->what, sends ? "to" : "from", peer);
    return TM_OK;
}

/* The next slot is free when what it had has left; then the lane's stream sends it. */
static tm_status send_message(const tm_call *call, const tm_view *x, tm_error *err)
{
    const tm_gpu_noted      *p = call->state;
    const tm_gpu_collective *c = tm_gpu_noted_call(call);
    tm_gpu_lane             *l = &p->own->ranks->lanes[c->lane];
    tm_gpu                  *gpu = p->own->gpu;
    tm_gpu_slot             *slot = &l->slots[l->next];
    void                    *stream = tm_gpu_stream_of(call->queue);
    tm_collective            what = c->what;
    what.what = c->name;
    what.send = slot->memory;
    TM_TRY(tm_nccl_begin(p->own->ranks->nccl, c->number, stream, err));
    if (slot->used) TM_TRY(tm_gpu_event_order(gpu, slot->sent, stream, err));
    TM_TRY(tm_gpu_queue_copy(gpu, stream, slot->memory, x->data, what.count, err));
    TM_TRY(tm_nccl_end(p->own->ranks->nccl, stream, err));
    TM_TRY(tm_gpu_event_record(gpu, l->filled, stream, err));
    TM_TRY(tm_gpu_event_order(gpu, l->filled, l->stream, err));
    TM_TRY(tm_nccl_post(c->group, &what, l->stream, err));
    TM_TRY(tm_gpu_event_record(gpu, slot->sent, l->stream, err));
    slot->used = true;
    l->next = (l->next + 1) % l->n;
    return TM_OK;
}

static tm_status launch_send(const tm_call *call, tm_error *err)
{
    const tm_view *x = &call->in[0], *y = &call->out[0];
    size_t         bytes = tm_tensor_bytes(x->shape, x->dtype);
    if (attr_of(call)->ranks > 1) TM_TRY(send_message(call, x, err));
    if (!tm_view_present(y) || y->data == x->data || bytes == 0) return TM_OK;
    return tm_gpu_copy_of(call, y->data, x->data, bytes, err);
}

static tm_status launch_receive(const tm_call *call, tm_error *err)
{
    const tm_view      *y = &call->out[0];
    const tm_gpu_noted *p = call->state;
    void               *stream = tm_gpu_stream_of(call->queue);
    size_t              bytes = tm_tensor_bytes(y->shape, y->dtype);
    if (attr_of(call)->ranks == 1)
        return bytes ? tm_gpu_queue_fill(p->own->gpu, stream, y->data, 0, bytes, err) : TM_OK;
    const tm_gpu_collective *c = tm_gpu_noted_call(call);
    tm_collective            what = c->what;
    what.what = c->name;
    what.receive = y->data;
    return tm_nccl_queue(c->group, c->number, &what, stream, err);
}

#define MESSAGE(id)                                                                                                    \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/gpu", .refuse = refuse, .launch = launch_##id, .prepare = prepare,             \
        .release = tm_gpu_forget, .host = true                                                                         \
    }
const tm_kernel tm_gpu_messages[] = { MESSAGE(send), MESSAGE(receive), { .name = NULL } };
