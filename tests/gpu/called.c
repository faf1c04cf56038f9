/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/called.h"
#include "device/backend.h"
#include "graph/blocks.h"

#include "support/test.h"

enum { GUARD = 64, GUARD_BYTE = 0x5a };

size_t called_bytes(const tm_view *view)
{
    if (!tm_view_present(view)) return 0;
    if (view->ld == 0) return tm_tensor_bytes(view->shape, view->dtype);
    int64_t rows = tm_shape_elements(view->shape) / view->shape.n[view->shape.rank - 1];
    return (size_t)(rows * view->ld) * tm_dtype_bytes(view->dtype);
}

/* `before` bytes, the operand, and GUARD bytes. */
static void *placed(tm_device *device, const char *image, size_t before, size_t bytes)
{
    tm_address at;
    tm_error   err = { 0 };
    char      *room = memset(malloc(before + bytes + GUARD), GUARD_BYTE, before + bytes + GUARD);
    if (image) memcpy(room + before, image, bytes);
    tm_status st = tm_device_alloc(device, before + bytes + GUARD, &at, &err);
    if (st == TM_OK) st = tm_device_write(device, at, room, before + bytes + GUARD, &err);
    if (st == TM_OK) st = tm_device_wait(device, &err);
    if (st != TM_OK) fail_msg("%s", err.text);
    free(room);
    return (void *)(at.at + before); // NOLINT(performance-no-int-to-ptr)
}

static char *fetched(tm_device *device, const tm_view *view, size_t before, const char *kernel)
{
    size_t     bytes = called_bytes(view);
    char      *room = malloc(before + bytes + GUARD);
    tm_address at = { (uintptr_t)view->data - before };
    tm_error   err = { 0 };
    tm_status  st = tm_device_read(device, room, at, before + bytes + GUARD, &err);
    if (st == TM_OK) st = tm_device_wait(device, &err);
    if (st != TM_OK) fail_msg("%s on %s: %s", kernel, device->info.name, err.text);
    for (size_t i = 0; i < before + bytes + GUARD; i++)
        if ((i < before || i >= before + bytes) && room[i] != GUARD_BYTE)
            fail_msg("%s on %s wrote beside its result", kernel, device->info.name);
    memmove(room, room + before, bytes);
    return room;
}

void call_on(tm_device *device, const tm_call *what, char *const image[TM_MAX_IN + TM_MAX_OUT], int skew,
             char *out[TM_MAX_OUT])
{
    tm_call          call = *what;
    tm_view         *views[TM_MAX_IN + TM_MAX_OUT];
    size_t           before[TM_MAX_IN + TM_MAX_OUT];
    tm_error         err = { 0 };
    const tm_kernel *kernel;
    call.device = device;
    call.threads = 2;
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        views[i] = i < TM_MAX_IN ? &call.in[i] : &call.out[i - TM_MAX_IN];
        before[i] = tm_dtype_blocked(views[i]->dtype) ? 0 : (size_t)skew * (size_t)tm_dtype_bits(views[i]->dtype) / 8;
        if (tm_view_present(views[i])) views[i]->data = placed(device, image[i], before[i], called_bytes(views[i]));
    }
    kernel = device->backend->choose(device, &call, NULL);
    if (!kernel) fail_msg("%s has no kernel for %s", device->info.name, call.op->name);
    call.workspace_bytes = kernel->workspace ? kernel->workspace(&call) : 0;
    call.workspace = placed(device, NULL, 0, call.workspace_bytes);
    call.queue = device->queues[TM_ON_COMPUTE];
    tm_status st = kernel->prepare ? kernel->prepare(device, &call, &call.state, &err) : TM_OK;
    if (st == TM_OK && device->backend->prepared) st = device->backend->prepared(device, &err);
    if (st == TM_OK) st = device->backend->launch(call.queue, kernel, &call, &err);
    if (st != TM_OK) fail_msg("%s on %s: %s", kernel->name, device->info.name, err.text);
    for (int k = 0; k < TM_MAX_OUT; k++)
        out[k] =
            tm_view_present(&call.out[k]) ? fetched(device, &call.out[k], before[TM_MAX_IN + k], kernel->name) : NULL;
    if (kernel->release) kernel->release(call.state);
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++)
        if (tm_view_present(views[i]))
            tm_device_release(device, (tm_address){ (uintptr_t)views[i]->data - before[i] },
                              before[i] + called_bytes(views[i]) + GUARD);
    tm_device_release(device, (tm_address){ (uintptr_t)call.workspace }, call.workspace_bytes + GUARD);
}
