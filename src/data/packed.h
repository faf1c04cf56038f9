/* SPDX-License-Identifier: Apache-2.0 */
/* data/packed.h - packed sequences as the GovReport benchmark has them: a numpy file of Python objects, that is, a
 * pickle of dictionaries. Private to this room.
 *
 *   bytes 0-9     "\x93NUMPY", 1, 0, header length (uint16, little-endian)
 *   header        {'descr': '|O', 'fortran_order': False, 'shape': (N,), }   spaces, newline: 128 bytes in all
 *   pickle        an object array of N dictionaries:
 *                 input_ids     int32 array of W token ids
 *                 loss_mask     list of W integers 0 or 1: does the token count?
 *                 seq_start_id  [0]
 *
 * Nothing is executed: the reader is a machine of the 27 opcodes that such a file needs (pickle protocol 3), whose
 * three "globals" are names and whose objects are the rows of a table. Any other opcode, name or shape is an error that
 * names the byte and the opcode.
 */
#ifndef TM_DATA_PACKED_H
#define TM_DATA_PACKED_H

#include "base/status.h"
#include "base/map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const uint8_t *ids;  /* W little-endian int32 in the file, at any address */
    size_t         mask; /* its first byte in tm_packed.masks */
} tm_packed_row;

typedef struct {
    int64_t        rows, width; /* N, W; W is 0 when N is */
    tm_packed_row *row;
    uint8_t       *masks; /* (N, W) 0 or 1, rows where `mask` says */
    tm_map         map;   /* of the file */
} tm_packed;

enum { TM_PACKED_MAX_ROWS = 1 << 22 };

/* Opens and checks the whole file; memory besides the mapping: about W + 500 bytes a row. TM_INVALID: unreadable;
 * TM_FORMAT: not such a file. */
TM_MUST_USE tm_status tm_packed_open(const char *path, tm_packed *out, tm_error *err);
void                  tm_packed_close(tm_packed *packed); /* a zeroed one is fine */

/* The same from memory that outlives *out; `name` is for messages. */
TM_MUST_USE tm_status tm_packed_parse(const char *name, const uint8_t *bytes, size_t size, tm_packed *out,
                                      tm_error *err);

/* Token t of a row. */
static inline int32_t tm_packed_id(const tm_packed_row *row, int64_t t)
{
    const uint8_t *p = row->ids + 4 * t;
    return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

/* Writes ids (N, W) and masks (N, W) of 0 and 1 byte for byte as numpy 1.x does; 1 <= N <= TM_PACKED_MAX_ROWS, 1 <= W.
 * Replaces `path` when all is written. TM_IO. */
TM_MUST_USE tm_status tm_packed_write(const char *path, int64_t rows, int64_t width, const int32_t *ids,
                                      const uint8_t *masks, tm_error *err);

#endif
