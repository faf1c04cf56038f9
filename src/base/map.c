/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t changed_ns(const struct stat *info)
{
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

static tm_status map_bytes(tm_map *map, const char *path, tm_error *err)
{
    struct stat info;
    if (fstat(map->fd, &info) != 0) return tm_fail(err, TM_INVALID, "cannot read '%s': %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return tm_fail(err, TM_INVALID, "'%s' is %s, wanted a regular file", path,
                       S_ISDIR(info.st_mode) ? "a directory" : "a fifo, socket or device");
    map->size = info.st_size;
    if (map->size == 0) return TM_OK;
    void *bytes = mmap(NULL, (size_t)map->size, PROT_READ, MAP_PRIVATE, map->fd, 0);
    if (bytes == MAP_FAILED)
        return tm_fail(err, TM_INVALID, "cannot map '%s' (%lld bytes) into memory: %s", path, (long long)map->size,
                       strerror(errno));
    map->bytes = bytes;
    map->changed_ns = changed_ns(&info);
    tm_mapped_add(bytes, (size_t)map->size, map->path);
    return tm_file_check_fetched(path, bytes, (size_t)map->size, err);
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
    if (info.st_size == map->size && (map->size == 0 || changed_ns(&info) == map->changed_ns)) return TM_OK;
    if (info.st_size >= map->size)
        return tm_fail(err, TM_INVALID, "'%s' was changed during the run; keep data unchanged", map->path);
    return tm_fail(err, TM_INVALID, "'%s' was shortened from %lld to %lld bytes during the run; keep data unchanged",
                   map->path, (long long)map->size, (long long)info.st_size);
}

void tm_map_close(tm_map *map)
{
    if (map->bytes) {
        tm_mapped_remove(map->bytes);
        munmap((void *)map->bytes, (size_t)map->size);
    }
    if (map->path) close(map->fd);
    free(map->path);
    *map = (tm_map){ 0 };
}

uint64_t tm_fingerprint(uint64_t before, const uint8_t *bytes, int64_t size)
{
    const int64_t whole = 64 << 20, piece = 64 << 10, pieces = 64;
    uint64_t      both[3] = { before, (uint64_t)size, 0 };
    if (size <= whole) {
        both[2] = tm_hash(bytes, (size_t)size);
    } else {
        for (int64_t i = 0; i < pieces; i++) {
            const uint64_t next[2] = { both[2], tm_hash(bytes + (size - piece) / (pieces - 1) * i, (size_t)piece) };
            both[2] = tm_hash(next, sizeof next);
        }
        both[2] ^= tm_hash(bytes + size - piece, (size_t)piece);
    }
    uint64_t all = tm_hash(both, sizeof both);
    return all ? all : 1;
}
