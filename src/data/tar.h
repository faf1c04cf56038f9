/* SPDX-License-Identifier: Apache-2.0 */
/* data/tar.h - the regular files of a tar archive in memory, one after another; private to this room.
 *
 * Read: ustar, the older form without a prefix, long names of GNU tar (L), names and sizes of pax (x). Folders, links
 * and devices are passed over. */
#ifndef TM_DATA_TAR_H
#define TM_DATA_TAR_H

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char    *file; /* for messages */
    const uint8_t *bytes;
    int64_t        size, at;
    tm_text        name; /* of the member that was read last; freed by the caller */
} tm_tar;

/* The next member: its name is in tar->name, its bytes are [*at, *at + *size). *at is 0 behind the last. TM_FORMAT with
 * the byte: damaged or cut short; TM_UNSUPPORTED: packed. */
TM_MUST_USE tm_status tm_tar_next(tm_tar *tar, int64_t *at, int64_t *size, tm_error *err);

#endif
