/* SPDX-License-Identifier: Apache-2.0 */
/* base/md5.h - MD5 (RFC 1321), because published checksums are MD5. Finds damage; is no protection against malice. */
#ifndef TM_BASE_MD5_H
#define TM_BASE_MD5_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { TM_MD5_HEX = 33 }; /* 32 lower-case hexadecimal digits and NUL */

typedef struct {
    uint32_t state[4];
    uint64_t bytes;
    uint8_t  block[64];
} tm_md5;

void tm_md5_begin(tm_md5 *md5);
void tm_md5_add(tm_md5 *md5, const void *data, size_t bytes); /* data may be NULL when bytes is 0 */
/* The value of everything added; begin again before the next use. Returns out. */
char *tm_md5_end(tm_md5 *md5, char out[TM_MD5_HEX]);

/* Of a whole file. TM_INVALID if it is no readable regular file. */
TM_MUST_USE tm_status tm_md5_file(const char *path, char out[TM_MD5_HEX], tm_error *err);

#endif
