/* SPDX-License-Identifier: Apache-2.0 */
/* device/plain - the ops' references in whatever formats a model has, through float64 copies: slow, one thread. */
#include "device/host/host.h"

#include <stdio.h>

static void info(tm_device *device, int threads)
{
    (void)threads;
    tm_host_info(device, sizeof(tm_host), 1);
    snprintf(device->info.text, sizeof device->info.text, "plain: references through float64, one thread");
}

static const tm_kernel *choose(const tm_device *device, const tm_call *call, tm_text *refusals)
{
    (void)device, (void)refusals;
    return tm_reference_kernel(tm_op_id_of(call->op), true);
}

const tm_backend tm_backend_plain = { .name = "plain", .info = info, .choose = choose, TM_HOST_CALLS };
