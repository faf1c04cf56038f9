/* SPDX-License-Identifier: Apache-2.0 */
/* base/map.h - a file of fixed length in memory, read only.
 *
 * Reading a page behind the end of a file that was shortened after it was mapped ends the process with a message
 * (base/mapped.h); whoever reads a map for hours asks tm_map_check before, which also notices other changes.
 */
#ifndef TM_BASE_MAP_H
#define TM_BASE_MAP_H

#include "base/status.h"

#include <stdint.h>

typedef struct {
    const uint8_t *bytes; /* NULL when the file is empty */
    int64_t        size;
    int            fd;
    int64_t        changed_ns; /* time of the last change, since 1970 */
    char          *path;
} tm_map;

/* TM_INVALID if `path` is not a readable regular file; nothing waits for a fifo. On failure *out is closed. */
TM_MUST_USE tm_status tm_map_open(const char *path, tm_map *out, tm_error *err);
/* TM_INVALID if the file has another length or time of change than it had. One system call. Any thread. */
TM_MUST_USE tm_status tm_map_check(const tm_map *map, tm_error *err);
void                  tm_map_close(tm_map *map); /* a zeroed one is fine */

/* What was read so far (0: nothing) and these bytes as one number: all of them up to 64 MiB; of more, the length and 64
 * pieces of 64 KiB, evenly spread, first and last among them. Never 0. */
uint64_t tm_fingerprint(uint64_t before, const uint8_t *bytes, int64_t size);

#endif
