/* SPDX-License-Identifier: Apache-2.0 */
/* device/disk.c - memory of the space disk: a file without a name, mapped. */
#include "base/file.h"
#include "device/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

tm_status tm_device_map_file(tm_device *device, const char *folder, size_t bytes, tm_address *out, tm_error *err)
{
    TM_TRY(tm_device_ready(device, err));
    int fd = tm_file_open_nameless(folder);
    if (fd < 0)
        return tm_fail(
            err, TM_INVALID,
            "cannot make the file for offloaded tensors in '%s': %s; name a directory that can be written with "
            "training.offload_path",
            folder, strerror(errno));
    char want[32];
    tm_format_bytes(want, (double)bytes);
    int problem = posix_fallocate(fd, 0, (off_t)bytes); /* now, not in the middle of a step */
    if (problem != 0) {
        close(fd);
        return tm_fail(err, TM_IO,
                       "cannot reserve %s for offloaded tensors in '%s': %s; make room, or name another directory with "
                       "training.offload_path",
                       want, folder, strerror(problem));
    }
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    problem = errno;
    close(fd); /* the mapping keeps the file */
    if (map == MAP_FAILED)
        return tm_fail(err, TM_NOMEM, "cannot map %s for offloaded tensors: %s", want, strerror(problem));
    *out = (tm_address){ (uintptr_t)map };
    return TM_OK;
}

void tm_device_unmap_file(tm_device *device, tm_address memory, size_t bytes)
{
    (void)device;
    if (memory.at) munmap((void *)memory.at, bytes); // NOLINT(performance-no-int-to-ptr)
}
