/* SPDX-License-Identifier: Apache-2.0 */
/* device/collectives.c - kernels of collective ops where the device's memory is the host's: the group does the work.
 *
 * A kernel's `run` returns nothing, so a failure is kept in the device until a call that can tell it. After the first
 * one the group refuses everything: what is computed meanwhile is not looked at.
 */
#include "device/backend.h"
#include "graph/value.h"
#include "op/attrs.h"

#include <stdlib.h>
#include <string.h>

/* What `prepare` found out. */
typedef struct {
    tm_device *device;
    tm_comm   *comm; /* NULL: a group of one */
} member;

static int64_t ranks_of(const tm_call *call)
{
    return ((const tm_group_attr *)call->attr)->ranks;
}

static const char *collective_refuse(const tm_call *call)
{
    tm_dtype dtype = call->in[0].dtype;
    if (dtype != call->out[0].dtype) return "a collective keeps the format";
    if (call->op == &tm_op_all_gather)
        return tm_dtype_bits(dtype) % 8 == 0 && !call->accumulate ? NULL : "needs a format of whole bytes";
    if (dtype != TM_F32 && dtype != TM_BF16 && dtype != TM_F64) return "sums float32, bfloat16 and float64";
    if (call->accumulate && call->op == &tm_op_all_reduce) return "does not add to what is there";
    return NULL;
}

/* Sums that are added to what is there are received apart. */
static size_t collective_workspace(const tm_call *call)
{
    return call->accumulate && ranks_of(call) > 1 ? tm_tensor_bytes(call->out[0].shape, call->out[0].dtype) : 0;
}

static tm_status collective_prepare(const void *context, const tm_call *call, void **state, tm_error *err)
{
    const tm_group_attr *attr = call->attr;
    if (attr->ranks == 1) return TM_OK;
    tm_device *device = (tm_device *)context;
    tm_comm   *comm = tm_device_group(device, (unsigned)attr->axes);
    if (!comm || tm_comm_size(comm) != attr->ranks)
        return tm_fail(err, TM_INVALID, "%s '%.64s' is planned for %lld ranks, and the device has joined a group of %d",
                       call->op->name, attr->what, (long long)attr->ranks, comm ? tm_comm_size(comm) : 1);
    member *own = tm_alloc(sizeof *own);
    *own = (member){ device, comm };
    *state = own;
    return TM_OK;
}

static void add_to(const tm_view *y, const void *x)
{
    int64_t n = tm_shape_elements(y->shape);
    if (y->dtype == TM_F32)
        for (int64_t i = 0; i < n; i++) ((float *)y->data)[i] += ((const float *)x)[i];
    else if (y->dtype == TM_F64)
        for (int64_t i = 0; i < n; i++) ((double *)y->data)[i] += ((const double *)x)[i];
    else
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)y->data)[i] =
                tm_bf16_round(tm_bf16_value(((const uint16_t *)y->data)[i]) + tm_bf16_value(((const uint16_t *)x)[i]));
}

static tm_comm_format format_of(const tm_call *call)
{
    if (call->op == &tm_op_all_gather) return TM_COMM_BYTES;
    return call->in[0].dtype == TM_F32   ? TM_COMM_FLOAT32
           : call->in[0].dtype == TM_F64 ? TM_COMM_FLOAT64
                                         : TM_COMM_BFLOAT16;
}

/* Elements as the group counts them: of what is sent, or of the part that a rank gets. */
static size_t count_of(const tm_call *call)
{
    const tm_view *x = &call->in[0];
    if (call->op == &tm_op_all_gather) return tm_tensor_bytes(x->shape, x->dtype);
    return (size_t)tm_shape_elements(call->op == &tm_op_reduce_scatter ? call->out[0].shape : x->shape);
}

static void collective_run(const tm_call *call)
{
    const tm_group_attr *attr = call->attr;
    member              *own = call->state;
    const tm_view       *x = &call->in[0], *y = &call->out[0];
    const void          *result = x->data;
    if (own) {
        void         *target = call->accumulate ? call->workspace : y->data;
        tm_collective what = { .kind = call->op == &tm_op_all_reduce       ? TM_COMM_ALL_REDUCE
                                       : call->op == &tm_op_reduce_scatter ? TM_COMM_REDUCE_SCATTER
                                                                           : TM_COMM_ALL_GATHER,
                               .op = TM_COMM_SUM,
                               .format = format_of(call),
                               .send = x->data,
                               .receive = target,
                               .count = count_of(call),
                               .what = attr->what,
                               .step = -1 };
        tm_error      err = { 0 };
        if (own->device->collective.status != TM_OK) return;
        if (tm_comm_run(own->comm, &what, &err) != TM_OK) {
            own->device->collective = err;
            return;
        }
        result = target;
    }
    if (call->accumulate)
        add_to(y, result);
    else if (result != y->data)
        memcpy(y->data, result, tm_tensor_bytes(y->shape, y->dtype));
}

static const char *share_refuse(const tm_call *call)
{
    return call->in[0].dtype != call->out[0].dtype || call->accumulate ? "it keeps format and values" : NULL;
}

static void share_run(const tm_call *call)
{
    if (call->in[0].data != call->out[0].data)
        memcpy(call->out[0].data, call->in[0].data, tm_tensor_bytes(call->out[0].shape, call->out[0].dtype));
}

#define COLLECTIVE(id)                                                                                                 \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/base", .refuse = collective_refuse, .workspace = collective_workspace,         \
        .run = collective_run, .prepare = collective_prepare, .release = free                                          \
    }
const tm_kernel tm_host_collectives[] = {
    COLLECTIVE(all_reduce), COLLECTIVE(reduce_scatter),
    COLLECTIVE(all_gather), { .op = TM_OP_share, .name = "share/base", .refuse = share_refuse, .run = share_run },
    { .run = NULL },
};
