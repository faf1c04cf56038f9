/* SPDX-License-Identifier: Apache-2.0 */
/* device/near.c - memory of the space host: of the host, where a device's copies reach it. */
#include "base/cpu.h"
#include "base/text.h"
#include "device/backend.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* Where the copies of a device are the processor's own, any memory will do. */
static tm_status alloc_plain(size_t bytes, tm_address *out, tm_error *err)
{
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    char  want[32];
    if (map == MAP_FAILED)
        return tm_fail(err, TM_NOMEM, "cannot reserve %s of the host's memory for offloaded tensors: %s",
                       tm_format_bytes(want, (double)bytes), strerror(errno));
    *out = (tm_address){ (uintptr_t)map };
    return TM_OK;
}

tm_status tm_device_alloc_near(tm_device *device, size_t bytes, tm_address *out, tm_error *err)
{
    tm_error own = { 0 };
    int64_t  available = tm_memory_available_bytes("");
    char     want[32], have[32];
    TM_TRY(tm_device_ready(device, err));
    if (available > 0 && bytes > (size_t)available)
        return tm_fail(err, TM_NOMEM,
                       "offloaded tensors need %s of the host's memory and %s are available; lower "
                       "training.local_batch_size or training.seq_len, or offload less (training.offload)",
                       tm_format_bytes(want, (double)bytes), tm_format_bytes(have, (double)available));
    if (!device->backend->alloc_near) return alloc_plain(bytes, out, err);
    return tm_device_noted(device, device->backend->alloc_near(device, bytes, out, &own), &own, err);
}

void tm_device_release_near(tm_device *device, tm_address memory, size_t bytes)
{
    if (!memory.at) return;
    if (device->backend->free_near)
        device->backend->free_near(device, memory, bytes);
    else
        munmap((void *)memory.at, bytes); // NOLINT(performance-no-int-to-ptr)
}
