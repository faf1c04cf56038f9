/* SPDX-License-Identifier: Apache-2.0 */
/* device/host/collectives.c - kernels of collective ops where the device's memory is the host's: the group does the
 * work. After its first failure it refuses everything. */
#include "device/host/host.h"
#include "graph/blocks.h"
#include "graph/value.h"
#include "op/attrs.h"

#include <stdlib.h>
#include <string.h>

static int64_t ranks_of(const tm_call *call)
{
    return ((const tm_group_attr *)call->attr)->ranks;
}

/* So that the bytes of several ranks, one after the other, are those of their elements. */
bool tm_host_whole_bytes(const tm_view *x)
{
    int64_t n = tm_shape_elements(x->shape);
    return tm_dtype_blocked(x->dtype) ? n % TM_NF4_GROUP == 0 : n * tm_dtype_bits(x->dtype) % 8 == 0;
}

static const char *collective_refuse(const tm_call *call)
{
    tm_dtype dtype = call->in[0].dtype;
    if (dtype != call->out[0].dtype) return "a collective keeps the format";
    if (call->op == &tm_op_all_gather)
        return tm_host_whole_bytes(&call->in[0]) && !call->accumulate ? NULL : "needs whole bytes of each rank";
    if (dtype != TM_F32 && dtype != TM_BF16 && dtype != TM_F64) return "sums float32, bfloat16 and float64";
    if (call->accumulate && call->op == &tm_op_all_reduce) return "does not add to what is there";
    return NULL;
}

/* Sums of float32 that travel as bfloat16. */
static bool narrows(const tm_call *call)
{
    const tm_group_attr *attr = call->attr;
    return attr->narrow && attr->ranks > 1 && call->in[0].dtype == TM_F32 && call->op != &tm_op_all_gather;
}

/* Sums that are added to what is there are received apart; what is rounded lies apart as well. */
static size_t collective_workspace(const tm_call *call)
{
    if (narrows(call)) return tm_tensor_bytes(call->in[0].shape, TM_BF16);
    return call->accumulate && ranks_of(call) > 1 ? tm_tensor_bytes(call->out[0].shape, call->out[0].dtype) : 0;
}

tm_status tm_host_group(const tm_device *device, const char *op, const tm_group_attr *attr, tm_comm **out,
                        tm_error *err)
{
    *out = NULL;
    if (attr->ranks == 1) return TM_OK;
    tm_comm *comm = tm_device_group(device, (unsigned)attr->axes);
    if (!comm || tm_comm_size(comm) != attr->ranks)
        return tm_fail(err, TM_INVALID, "%s '%.64s' is planned for %lld ranks, and the device has joined a group of %d",
                       op, attr->what, (long long)attr->ranks, comm ? tm_comm_size(comm) : 1);
    *out = comm;
    return TM_OK;
}

tm_status tm_host_call(tm_comm *comm, const tm_collective *what, tm_error *err)
{
    tm_error  met = { 0 };
    tm_status st = tm_comm_run(comm, what, &met);
    if (st == TM_OK) return TM_OK;
    return tm_fail(err, st == TM_INVALID ? TM_INVALID : TM_DEVICE, "%s", met.text);
}

static tm_status collective_prepare(const void *context, const tm_call *call, void **state, tm_error *err)
{
    tm_comm *comm;
    TM_TRY(tm_host_group(context, call->op->name, call->attr, &comm, err));
    *state = comm; /* NULL: a group of one */
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

/* The workspace has x in bfloat16; the sum comes into its place. */
static void round_operand(const tm_call *call)
{
    const float *x = call->in[0].data;
    uint16_t    *half = call->workspace;
    int64_t      n = tm_shape_elements(call->in[0].shape);
#pragma omp parallel for schedule(static) num_threads(call->threads)
    for (int64_t i = 0; i < n; i++) half[i] = tm_bf16_round(x[i]);
}

static void widen_result(const tm_call *call, const uint16_t *half)
{
    float  *y = call->out[0].data;
    int64_t n = tm_shape_elements(call->out[0].shape);
#pragma omp parallel for schedule(static) num_threads(call->threads)
    for (int64_t i = 0; i < n; i++) y[i] = tm_bf16_value(half[i]) + (call->accumulate ? y[i] : 0);
}

/* What is sent, and where this rank's result is to come. */
static void place_operands(const tm_call *call, tm_collective *what)
{
    what->send = call->in[0].data;
    what->receive = call->accumulate ? call->workspace : call->out[0].data;
    if (!narrows(call)) return;
    uint16_t *half = call->workspace;
    round_operand(call);
    what->format = TM_COMM_BFLOAT16;
    what->send = half;
    what->receive = half + (call->op == &tm_op_reduce_scatter ? (size_t)tm_comm_rank(call->state) * what->count : 0);
}

static tm_status collective_launch(const tm_call *call, tm_error *err)
{
    const tm_group_attr *attr = call->attr;
    tm_comm             *comm = call->state;
    const tm_view       *x = &call->in[0], *y = &call->out[0];
    const void          *result = x->data;
    if (comm) {
        tm_collective what = { .kind = call->op == &tm_op_all_reduce       ? TM_COMM_ALL_REDUCE
                                       : call->op == &tm_op_reduce_scatter ? TM_COMM_REDUCE_SCATTER
                                                                           : TM_COMM_ALL_GATHER,
                               .op = attr->largest ? TM_COMM_MAX : TM_COMM_SUM,
                               .format = format_of(call),
                               .count = count_of(call),
                               .what = attr->what,
                               .step = -1 };
        place_operands(call, &what);
        TM_TRY(tm_host_call(comm, &what, err));
        result = what.receive;
        if (narrows(call)) {
            widen_result(call, result);
            return TM_OK;
        }
    }
    if (call->accumulate)
        add_to(y, result);
    else if (result != y->data)
        memcpy(y->data, result, tm_tensor_bytes(y->shape, y->dtype));
    return TM_OK;
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
        .launch = collective_launch, .prepare = collective_prepare                                                     \
    }
const tm_kernel tm_host_collectives[] = {
    COLLECTIVE(all_reduce), COLLECTIVE(reduce_scatter),
    COLLECTIVE(all_gather), { .op = TM_OP_share, .name = "share/base", .refuse = share_refuse, .run = share_run },
    { .name = NULL },
};
