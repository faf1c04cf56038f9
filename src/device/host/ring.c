/* SPDX-License-Identifier: Apache-2.0 */
/* device/host/ring.c - the kernel of pass_on where the device's memory is the host's: an exchange of all with all in
 * which each rank has something for the next one only. */
#include "device/host/host.h"

#include <stdlib.h>
#include <string.h>

/* What `prepare` found out. */
typedef struct {
    tm_comm *comm;
    size_t   counts[]; /* bytes for each rank, then from each */
} member;

static const char *pass_on_refuse(const tm_call *call)
{
    tm_dtype dtype = call->in[0].dtype;
    if (call->accumulate) return "does not add to what is there";
    if (dtype != call->out[0].dtype) return "what is passed on keeps its format";
    return tm_dtype_bits(dtype) % 8 == 0 ? NULL : "needs a format of whole bytes";
}

static tm_status pass_on_prepare(const void *context, const tm_call *call, void **state, tm_error *err)
{
    tm_comm *comm;
    TM_TRY(tm_host_group(context, call->op->name, call->attr, &comm, err));
    if (!comm) return TM_OK;
    int     ranks = tm_comm_size(comm), rank = tm_comm_rank(comm);
    size_t  bytes = tm_tensor_bytes(call->in[0].shape, call->in[0].dtype);
    member *own = tm_alloc(sizeof *own + 2 * (size_t)ranks * sizeof *own->counts);
    own->comm = comm;
    memset(own->counts, 0, 2 * (size_t)ranks * sizeof *own->counts);
    own->counts[(rank + 1) % ranks] = bytes;
    own->counts[ranks + (rank + ranks - 1) % ranks] = bytes;
    *state = own;
    return TM_OK;
}

static tm_status pass_on_launch(const tm_call *call, tm_error *err)
{
    const tm_group_attr *attr = call->attr;
    member              *own = call->state;
    if (!own) {
        memcpy(call->out[0].data, call->in[0].data, tm_tensor_bytes(call->in[0].shape, call->in[0].dtype));
        return TM_OK;
    }
    tm_collective what = { .kind = TM_COMM_ALL_TO_ALL,
                           .format = TM_COMM_BYTES,
                           .send = call->in[0].data,
                           .receive = call->out[0].data,
                           .send_counts = own->counts,
                           .receive_counts = own->counts + tm_comm_size(own->comm),
                           .what = attr->what,
                           .step = -1 };
    return tm_host_call(own->comm, &what, err);
}

const tm_kernel tm_host_ring[] = {
    { .op = TM_OP_pass_on,
      .name = "pass_on/base",
      .refuse = pass_on_refuse,
      .launch = pass_on_launch,
      .prepare = pass_on_prepare,
      .release = free },
    { .name = NULL },
};
