/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/offload.c - memory of the host that a GPU's copies reach (the space host), and these copies: fetch and
 * store, in the queue of copies. Such memory is pinned: a copy goes on beside the processor, and is part of a graph. */
#include "device/gpu/own.h"

#include "base/arena.h"

#include <string.h>

/* --- the memory -----------------------------------------------------------------------------------------------------
 */

tm_status tm_gpu_alloc_near(tm_device *device, size_t bytes, tm_address *out, tm_error *err)
{
    tm_gpu_own *own = device->own;
    void       *memory;
    TM_TRY(tm_gpu_alloc_pinned(own->gpu, bytes, &memory, err));
    memset(memory, 0, bytes);
    own->near = tm_realloc(own->near, (own->n_near + 1) * sizeof *own->near);
    own->near[own->n_near++] = (tm_gpu_near){ memory, bytes };
    *out = (tm_address){ (uintptr_t)memory };
    return TM_OK;
}

void tm_gpu_free_near(tm_device *device, tm_address memory, size_t bytes)
{
    tm_gpu_own *own = device->own;
    size_t      i = 0;
    (void)bytes;
    while (i < own->n_near && (uintptr_t)own->near[i].memory != memory.at) i++;
    TM_ASSERT(i < own->n_near);
    tm_gpu_free_pinned(own->gpu, own->near[i].memory);
    own->near[i] = own->near[--own->n_near];
}

char *tm_gpu_near_at(const tm_gpu_own *own, tm_address address)
{
    for (size_t i = 0; i < own->n_near; i++) {
        uintptr_t from = (uintptr_t)own->near[i].memory;
        if (address.at >= from && address.at - from < own->near[i].bytes)
            return own->near[i].memory + (address.at - from);
    }
    return NULL;
}

/* --- fetch, store ---------------------------------------------------------------------------------------------------
 */

static const char *refuse(const tm_call *call)
{
    const tm_view *x = &call->in[0], *y = &call->out[0];
    if (((const tm_copy_attr *)call->attr)->space != TM_SPACE_HOST)
        return "a GPU's copies reach the host's memory, no file: leave training.offload_path out";
    if (x->dtype != y->dtype) return "a copy keeps the format";
    return tm_view_dense(x) && tm_view_dense(y) ? NULL : "takes operands without gaps between their rows";
}

static tm_status launch(const tm_call *call, tm_error *err)
{
    const tm_view *x = &call->in[0], *y = &call->out[0];
    tm_gpu        *gpu = ((tm_gpu_own *)((const tm_device *)call->device)->own)->gpu;
    void          *stream = tm_gpu_stream_of(call->queue);
    size_t         bytes = tm_tensor_bytes(x->shape, x->dtype);
    if (bytes == 0) return TM_OK;
    return call->op == &tm_op_fetch ? tm_gpu_queue_write(gpu, stream, y->data, x->data, bytes, err)
                                    : tm_gpu_queue_read(gpu, stream, y->data, x->data, bytes, err);
}

const tm_kernel tm_gpu_offload[] = {
    { .op = TM_OP_fetch, .name = "fetch/gpu", .refuse = refuse, .launch = launch },
    { .op = TM_OP_store, .name = "store/gpu", .refuse = refuse, .launch = launch },
    { .name = NULL },
};
