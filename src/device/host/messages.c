/* SPDX-License-Identifier: Apache-2.0 */
/* device/messages.c - kernels of send and receive where the device's memory is the host's. Failures are kept in the
 * device, as those of collectives are (device/collectives.c). */
#include "device/backend.h"
#include "op/attrs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What `prepare` found out. */
typedef struct {
    tm_device *device;
    tm_comm   *comm;
    int64_t    count; /* messages so far: a step has attr->times, of its micro-batches in their order */
} member;

static const char *message_refuse(const tm_call *call)
{
    const tm_view *x = &call->in[0], *y = &call->out[0];
    bool           sends = call->op == &tm_op_send;
    if (call->accumulate) return "does not add to what is there";
    if (sends && tm_view_present(y) && x->dtype != y->dtype) return "a message keeps the format";
    tm_dtype dtype = (sends ? x : y)->dtype;
    return dtype == TM_F32 || dtype == TM_BF16 || dtype == TM_F64 ? NULL : "sends float32, bfloat16 and float64";
}

static tm_status message_prepare(const void *context, const tm_call *call, void **state, tm_error *err)
{
    const tm_message_attr *attr = call->attr;
    tm_device             *device = (tm_device *)context;
    if (attr->ranks == 1) return TM_OK;
    tm_comm *comm = tm_device_group(device, (unsigned)attr->axes);
    if (!comm || tm_comm_size(comm) != attr->ranks)
        return tm_fail(err, TM_INVALID, "%s '%.64s' is planned for %lld ranks, and the device has joined a group of %d",
                       call->op->name, attr->what, (long long)attr->ranks, comm ? tm_comm_size(comm) : 1);
    member *own = tm_alloc(sizeof *own);
    *own = (member){ device, comm, 0 };
    *state = own;
    return TM_OK;
}

static void run_message(const tm_call *call, tm_comm_kind kind, const tm_view *view)
{
    const tm_message_attr *attr = call->attr;
    member                *own = call->state;
    char                   what[96];
    tm_error               err = { 0 };
    if (attr->times > 1)
        snprintf(what, sizeof what, "%.40s, micro-batch %lld", attr->what, (long long)(own->count % attr->times) + 1);
    else
        snprintf(what, sizeof what, "%.64s", attr->what);
    own->count++;
    tm_collective message = { .kind = kind,
                              .format = TM_COMM_BYTES,
                              .send = kind == TM_COMM_SEND ? view->data : NULL,
                              .receive = kind == TM_COMM_RECEIVE ? view->data : NULL,
                              .count = tm_tensor_bytes(view->shape, view->dtype),
                              .peer = (int)attr->peer,
                              .channel = (int)attr->channel,
                              .posted = true,
                              .what = what,
                              .step = -1 };
    if (own->device->collective.status != TM_OK) return;
    if (tm_comm_run(own->comm, &message, &err) != TM_OK) own->device->collective = err;
}

static void send_run(const tm_call *call)
{
    const tm_view *x = &call->in[0], *y = &call->out[0];
    if (call->state) run_message(call, TM_COMM_SEND, x);
    if (tm_view_present(y)) memcpy(y->data, x->data, tm_tensor_bytes(x->shape, x->dtype));
}

static void receive_run(const tm_call *call)
{
    const tm_view *y = &call->out[0];
    if (call->state)
        run_message(call, TM_COMM_RECEIVE, y);
    else
        memset(y->data, 0, tm_tensor_bytes(y->shape, y->dtype));
}

const tm_kernel tm_host_messages[] = {
    { .op = TM_OP_send,
      .name = "send/base",
      .refuse = message_refuse,
      .run = send_run,
      .prepare = message_prepare,
      .release = free },
    { .op = TM_OP_receive,
      .name = "receive/base",
      .refuse = message_refuse,
      .run = receive_run,
      .prepare = message_prepare,
      .release = free },
    { .run = NULL },
};
