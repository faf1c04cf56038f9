/* SPDX-License-Identifier: Apache-2.0 */
/* device/host/messages.c - kernels of send and receive where the device's memory is the host's. */
#include "device/host/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What `prepare` found out. */
typedef struct {
    tm_comm *comm;
    int64_t  count; /* messages so far: a step has attr->times, of its micro-batches in their order */
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
    if (attr->ranks == 1) return TM_OK;
    tm_comm *comm = tm_device_group(context, (unsigned)attr->axes);
    if (!comm || tm_comm_size(comm) != attr->ranks)
        return tm_fail(err, TM_INVALID, "%s '%.64s' is planned for %lld ranks, and the device has joined a group of %d",
                       call->op->name, attr->what, (long long)attr->ranks, comm ? tm_comm_size(comm) : 1);
    member *own = tm_alloc(sizeof *own);
    *own = (member){ comm, 0 };
    *state = own;
    return TM_OK;
}

static tm_status run_message(const tm_call *call, tm_comm_kind kind, const tm_view *view, tm_error *err)
{
    const tm_message_attr *attr = call->attr;
    member                *own = call->state;
    char                   what[96];
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
                              .buffered = true,
                              .what = what,
                              .step = -1 };
    return tm_host_call(own->comm, &message, err);
}

static tm_status send_launch(const tm_call *call, tm_error *err)
{
    const tm_view *x = &call->in[0], *y = &call->out[0];
    if (call->state) TM_TRY(run_message(call, TM_COMM_SEND, x, err));
    if (tm_view_present(y)) memcpy(y->data, x->data, tm_tensor_bytes(x->shape, x->dtype));
    return TM_OK;
}

static tm_status receive_launch(const tm_call *call, tm_error *err)
{
    const tm_view *y = &call->out[0];
    if (call->state) return run_message(call, TM_COMM_RECEIVE, y, err);
    memset(y->data, 0, tm_tensor_bytes(y->shape, y->dtype));
    return TM_OK;
}

const tm_kernel tm_host_messages[] = {
    { .op = TM_OP_send,
      .name = "send/base",
      .refuse = message_refuse,
      .launch = send_launch,
      .prepare = message_prepare,
      .release = free,
      .host = true },
    { .op = TM_OP_receive,
      .name = "receive/base",
      .refuse = message_refuse,
      .launch = receive_launch,
      .prepare = message_prepare,
      .release = free,
      .host = true },
    { .name = NULL },
};
