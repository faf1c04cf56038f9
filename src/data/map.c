/* SPDX-License-Identifier: Apache-2.0 */
#include "data/map.h"

#include "base/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static tm_status map_bytes(tm_map *map, const char *path, tm_error *err)
{
    struct stat info;
    if (fstat(map->fd, &info) != 0) return tm_fail(err, TM_INVALID, "cannot read '%s': %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return tm_fail(err, TM_INVALID, "'%s' is %s, wanted a regular file", path,
                       S_ISDIR(info.st_mode) ? "a folder" : "a fifo, socket or device");
    map->size = info.st_size;
    if (map->size == 0) return TM_OK;
    void *bytes = mmap(NULL, (size_t)map->size, PROT_READ, MAP_PRIVATE, map->fd, 0);
    if (bytes == MAP_FAILED)
        return tm_fail(err, TM_INVALID, "cannot map '%s' (%lld bytes) into memory: %s", path, (long long)map->size,
                       strerror(errno));
    map->bytes = bytes;
    return TM_OK;
}

tm_status tm_map_open(const char *path, tm_map *out, tm_error *err)
{
    *out = (tm_map){ .fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) };
    if (out->fd < 0) {
        *out = (tm_map){ 0 };
        return tm_fail(err, TM_INVALID, "cannot open '%s': %s", path, strerror(errno));
    }
    out->path = tm_alloc(strlen(path) + 1);
    strcpy(out->path, path);
    tm_status st = map_bytes(out, path, err);
    if (st != TM_OK) tm_map_close(out);
    return st;
}

tm_status tm_map_check(const tm_map *map, tm_error *err)
{
    struct stat info;
    if (fstat(map->fd, &info) != 0)
        return tm_fail(err, TM_INVALID, "cannot read '%s' any longer: %s", map->path, strerror(errno));
    if (info.st_size >= map->size) return TM_OK;
    return tm_fail(err, TM_INVALID, "'%s' was shortened from %lld to %lld bytes during the run; keep data unchanged",
                   map->path, (long long)map->size, (long long)info.st_size);
}

void tm_map_close(tm_map *map)
{
    if (map->bytes) munmap((void *)map->bytes, (size_t)map->size);
    if (map->path) close(map->fd);
    free(map->path);
    *map = (tm_map){ 0 };
}
