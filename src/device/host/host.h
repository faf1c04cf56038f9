/* SPDX-License-Identifier: Apache-2.0 */
/* device/host/host.h - the calls of devices that live in the memory of the host and compute at once: an address is a
 * pointer, everything is done when the call returns. Private to device/.
 *
 * Such a device names what is its own (name, info, choose) and TM_HOST_CALLS. Its device->own begins with a tm_host,
 * taken by tm_host_info.
 */
#ifndef TM_DEVICE_HOST_HOST_H
#define TM_DEVICE_HOST_HOST_H

#include "device/backend.h"

typedef struct {
    char  *fresh; /* the memory given last, while nothing was written to any: it is zero */
    size_t fresh_bytes;
} tm_host;

/* For the backend's `info`: takes device->own, `bytes` zeroed bytes. */
void tm_host_info(tm_device *device, size_t bytes, int threads);
void tm_host_close(tm_device *device);

static inline void *tm_host_pointer(tm_address address)
{
    return (void *)address.at; // NOLINT(performance-no-int-to-ptr): of a device in the host's memory
}

/* Kernels of what several ranks do together, where the device's memory is the host's (collectives.c, messages.c,
 * exchange.c, ring.c); each list ends with .name == NULL. */
extern const tm_kernel tm_host_collectives[], tm_host_messages[], tm_host_exchange[], tm_host_ring[];
bool tm_host_whole_bytes(const tm_view *x); /* so that parts of several ranks can lie one after the other */
/* The group of the device that a collective calls; NULL: of one. TM_INVALID: it has joined none of that size. */
TM_MUST_USE tm_status tm_host_group(const tm_device *device, const char *op, const tm_group_attr *attr, tm_comm **out,
                                    tm_error *err);
/* A call of the group: TM_INVALID where ranks do not fit together, else a failure is the device's (TM_DEVICE). */
TM_MUST_USE tm_status tm_host_call(tm_comm *comm, const tm_collective *what, tm_error *err);

tm_status tm_host_probe(tm_error *err);
tm_status tm_host_open(tm_device *device, tm_error *err);
tm_status tm_host_alloc(tm_device *device, size_t bytes, tm_address *out, tm_error *err);
void      tm_host_free(tm_device *device, tm_address memory, size_t bytes);
int64_t   tm_host_used(tm_device *device, tm_address memory, size_t bytes);
tm_status tm_host_share(tm_device *device, tm_comm *world, const tm_comm_range *ranges, int n, int *share,
                        tm_error *err);
tm_status tm_host_queue_open(tm_device *device, tm_queue **out, tm_error *err);
void      tm_host_queue_close(tm_queue *queue);
tm_status tm_host_write(tm_queue *queue, tm_address to, const void *from, size_t bytes, tm_error *err);
tm_status tm_host_read(tm_queue *queue, void *to, tm_address from, size_t bytes, tm_error *err);
tm_status tm_host_copy(tm_queue *queue, tm_address to, tm_address from, size_t bytes, tm_error *err);
tm_status tm_host_fill(tm_queue *queue, tm_address to, unsigned char value, size_t bytes, tm_error *err);
tm_status tm_host_launch(tm_queue *queue, const tm_kernel *kernel, const tm_call *call, tm_error *err);
tm_status tm_host_wait(tm_queue *queue, tm_error *err);
tm_status tm_host_instant_open(tm_device *device, tm_instant **out, tm_error *err);
void      tm_host_instant_close(tm_instant *instant);
tm_status tm_host_record(tm_queue *queue, tm_instant *instant, tm_error *err);
tm_status tm_host_wait_for(tm_queue *queue, tm_instant *instant, tm_error *err);
tm_status tm_host_time(const tm_instant *a, const tm_instant *b, double *seconds, tm_error *err);

#define TM_HOST_CALLS TM_HOST_CALLS_BUT_OPEN, .open = tm_host_open
#define TM_HOST_CALLS_BUT_OPEN                                                                                         \
    .probe = tm_host_probe, .close = tm_host_close, .alloc = tm_host_alloc, .free = tm_host_free,                      \
    .used = tm_host_used, .share = tm_host_share, .queue_open = tm_host_queue_open,                                    \
    .queue_close = tm_host_queue_close, .write = tm_host_write, .read = tm_host_read, .copy = tm_host_copy,            \
    .fill = tm_host_fill, .launch = tm_host_launch, .wait = tm_host_wait, .instant_open = tm_host_instant_open,        \
    .instant_close = tm_host_instant_close, .record = tm_host_record, .wait_for = tm_host_wait_for,                    \
    .time = tm_host_time

#endif
