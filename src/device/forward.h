/* SPDX-License-Identifier: Apache-2.0 */
/* device/forward.h - a graph that is not trained, on a device: planned, loaded, run, its result read. */
#ifndef TM_DEVICE_FORWARD_H
#define TM_DEVICE_FORWARD_H

#include "device/device.h"

/* In use from tm_forward_open to tm_forward_close; its members may be read. */
typedef struct {
    tm_device   *device;
    tm_plan     *plan;
    tm_arenas    memory; /* persistent tensors begin as zeros */
    tm_loaded   *loaded;
    int          threads;
    tm_tensor_id result;
    void        *stored; /* the result as the last tm_forward_read left it */
} tm_forward;

/* *f is closed by the caller, also after a failure. The graph and the device outlive it. TM_NOMEM; TM_UNSUPPORTED: the
 * device lacks a kernel. */
TM_MUST_USE tm_status tm_forward_open(tm_device *device, const tm_graph *graph, tm_tensor_id result, tm_forward *f,
                                      tm_error *err);
void                  tm_forward_close(const tm_forward *f); /* {0} is fine */

/* `bytes` bytes of a tensor from byte `offset` on; done when it returns. */
TM_MUST_USE tm_status tm_forward_write(const tm_forward *f, tm_tensor_id id, size_t offset, const void *from,
                                       size_t bytes, tm_error *err);
/* Queues the values of a whole tensor, in its format: `from` stays until tm_device_wait. */
TM_MUST_USE tm_status tm_forward_put(const tm_forward *f, tm_tensor_id id, const void *from, tm_error *err);
/* Reads the result of the programs that were queued; done when it returns. */
TM_MUST_USE tm_status tm_forward_read(const tm_forward *f, tm_error *err);
/* Element i of the result that was read. */
double tm_forward_value(const tm_forward *f, int64_t i);

#endif
