/* SPDX-License-Identifier: Apache-2.0 */
/* device/forward.c - a graph that is not trained, on a device. */
#include "device/forward.h"

#include "graph/value.h"

#include <stdlib.h>

static size_t bytes_of(const tm_forward *f, tm_tensor_id id)
{
    const tm_tensor *tensor = tm_graph_at(f->plan->graph, id);
    return tm_tensor_bytes(tensor->shape, tensor->dtype);
}

static tm_address address_of(const tm_forward *f, tm_tensor_id id)
{
    return tm_plan_address(f->plan, &f->memory, id);
}

tm_status tm_forward_open(tm_device *device, const tm_graph *graph, tm_tensor_id result, tm_forward *f, tm_error *err)
{
    tm_chooser  chooser = tm_device_chooser(device);
    tm_address *arena = &f->memory.base[TM_SPACE_DEVICE];
    *f = (tm_forward){ .device = device, .threads = chooser.threads, .result = result };
    TM_TRY(tm_plan_create(graph, &chooser, &f->plan, err));
    TM_TRY(tm_device_alloc(device, f->plan->arena_bytes, arena, err));
    TM_TRY(tm_device_fill(device, *arena, 0, f->plan->persistent_bytes, err));
    f->stored = tm_alloc(bytes_of(f, result));
    return tm_device_load(device, f->plan, &f->memory, &f->loaded, err);
}

void tm_forward_close(const tm_forward *f)
{
    tm_address arena = f->memory.base[TM_SPACE_DEVICE];
    tm_device_unload(f->loaded);
    if (arena.at) tm_device_release(f->device, arena, f->plan->arena_bytes);
    tm_plan_destroy(f->plan);
    free(f->stored);
}

tm_status tm_forward_write(const tm_forward *f, tm_tensor_id id, size_t offset, const void *from, size_t bytes,
                           tm_error *err)
{
    TM_ASSERT(offset + bytes <= tm_plan_place(f->plan, id).bytes);
    TM_TRY(tm_device_write(f->device, tm_address_add(address_of(f, id), offset), from, bytes, err));
    return tm_device_wait(f->device, err);
}

tm_status tm_forward_put(const tm_forward *f, tm_tensor_id id, const void *from, tm_error *err)
{
    return tm_device_write(f->device, address_of(f, id), from, bytes_of(f, id), err);
}

tm_status tm_forward_read(const tm_forward *f, tm_error *err)
{
    TM_TRY(tm_device_read(f->device, f->stored, address_of(f, f->result), bytes_of(f, f->result), err));
    return tm_device_wait(f->device, err);
}

double tm_forward_value(const tm_forward *f, int64_t i)
{
    return tm_value_get(f->stored, tm_graph_at(f->plan->graph, f->result)->dtype, i);
}
