/* SPDX-License-Identifier: Apache-2.0 */
#include "base/again.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int tm_again_open(int folder, const char *name, int flags, mode_t mode)
{
    int fd;
    do fd = openat(folder, name, flags, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

int tm_again_sync(int fd)
{
    int failed;
    do failed = fsync(fd);
    while (failed && errno == EINTR);
    return failed;
}

int tm_again_sync_data(int fd)
{
    int failed;
    do failed = fdatasync(fd);
    while (failed && errno == EINTR);
    return failed;
}

int tm_again_rename(int folder, const char *from, const char *to)
{
    int failed;
    do failed = renameat(folder, from, folder, to);
    while (failed && errno == EINTR);
    return failed;
}

int tm_again_close(int fd)
{
    int failed = close(fd);
    return failed && errno == EINTR ? 0 : failed;
}

bool tm_again_write(int fd, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        ssize_t n = write(fd, from, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) return false;
        from += n;
        bytes -= (size_t)n;
    }
    return true;
}
