/* SPDX-License-Identifier: Apache-2.0 */
/* data/unpack.h - the bytes of a file one after another, unpacked if its name ends in .gz or .zst; private to this
 * room. */
#ifndef TM_DATA_UNPACK_H
#define TM_DATA_UNPACK_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct tm_unpack tm_unpack;

/* TM_INVALID if it cannot be read. */
TM_MUST_USE tm_status tm_unpack_open(const char *path, tm_unpack **out, tm_error *err);
/* Up to n bytes; *got is 0 at the end only. TM_FORMAT: damaged. */
TM_MUST_USE tm_status tm_unpack_read(tm_unpack *unpack, void *out, size_t n, size_t *got, tm_error *err);
int64_t               tm_unpack_place(const tm_unpack *unpack); /* bytes of the file read so far */
void                  tm_unpack_close(tm_unpack *unpack);       /* NULL is fine */

#endif
