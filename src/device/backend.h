/* SPDX-License-Identifier: Apache-2.0 */
/* device/backend.h - what a kind of device implements (private to device/): one struct in its own folder, one line in
 * device.c. */
#ifndef TM_DEVICE_BACKEND_H
#define TM_DEVICE_BACKEND_H

#include "device/device.h"

typedef struct {
    const char *name;
    /* Fills device->info (computes nothing, in the host's memory, until it says otherwise). */
    tm_status (*open)(tm_device *device, int threads, tm_error *err);
    /* The kernel for a call; NULL: there is none. */
    const tm_kernel *(*choose)(const tm_device *device, const tm_call *call, tm_text *refusals);
} tm_backend;

struct tm_device {
    const tm_backend *backend;
    tm_device_info    info;
    int               isa; /* cpu: index of the best kernel table */
    bool              reference_allowed;
};

extern const tm_backend tm_backend_cpu, tm_backend_reference, tm_backend_null;

/* The kernel that runs an op's double reference. `converted`: views may be float32 or bfloat16; values go through
 * float64 copies in the workspace. */
const tm_kernel *tm_reference_kernel(tm_op_id op, bool converted);

#endif
