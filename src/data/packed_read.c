/* SPDX-License-Identifier: Apache-2.0 */
/* data/packed_read.c - opens files of packed sequences: the numpy header, then the pickle (data/pickle.c). */
#include "base/arena.h"
#include "data/packed.h"
#include "data/pickle.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 10, ROW_BYTES = 64 /* least bytes of pickle that a row takes */ };

/* *rows and where the pickle begins. */
static tm_status read_header(const char *name, const uint8_t *bytes, size_t size, int64_t *rows, size_t *at,
                             tm_error *err)
{
    static const char before[] = "{'descr': '|O', 'fortran_order': False, 'shape': (", after[] = ",), }";
    if (size < HEADER_BYTES || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return tm_fail(err, TM_FORMAT, "'%s' is not a numpy file: it does not begin with \\x93NUMPY", name);
    const uint8_t *p = bytes + HEADER_BYTES;
    size_t         length = (size_t)bytes[8] | (size_t)bytes[9] << 8, end = strlen(before), digits = 0;
    if (bytes[6] != 1 || bytes[7] != 0 || length > size - HEADER_BYTES)
        return tm_fail(err, TM_FORMAT, "'%s': numpy format %d.%d with a header of %zu bytes, wanted 1.0 with 118", name,
                       bytes[6], bytes[7], length);
    *rows = 0;
    if (length > end && memcmp(p, before, end) == 0)
        for (; end < length && p[end] >= '0' && p[end] <= '9' && digits < 10; end++, digits++)
            *rows = *rows * 10 + (p[end] - '0');
    bool good = digits > 0 && length - end > strlen(after) && memcmp(p + end, after, strlen(after)) == 0;
    for (end += strlen(after); good && end + 1 < length; end++) good = p[end] == ' ';
    if (!good || p[length - 1] != '\n')
        return tm_fail(err, TM_FORMAT, "'%s': the numpy header is '%.*s', wanted %sN%s", name,
                       length < 100 ? (int)length : 100, (const char *)p, before, after);
    if (*rows > TM_PACKED_MAX_ROWS || (uint64_t)*rows * ROW_BYTES > size)
        return tm_fail(err, TM_FORMAT,
                       "'%s': the header says %" PRId64 " rows, too many for %zu bytes (or more than the limit of %d)",
                       name, *rows, size, TM_PACKED_MAX_ROWS);
    *at = HEADER_BYTES + length;
    return TM_OK;
}

tm_status tm_packed_parse(const char *name, const uint8_t *bytes, size_t size, tm_packed *out, tm_error *err)
{
    int64_t rows = 0;
    size_t  at = 0;
    *out = (tm_packed){ 0 };
    TM_TRY(read_header(name, bytes, size, &rows, &at, err));
    out->row = tm_alloc(((size_t)rows + 1) * sizeof *out->row);
    tm_status st = tm_pickle_rows(name, bytes, size, at, rows, out, err);
    if (st != TM_OK) tm_packed_close(out);
    return st;
}

tm_status tm_packed_open(const char *path, tm_packed *out, tm_error *err)
{
    tm_map map;
    *out = (tm_packed){ 0 };
    TM_TRY(tm_map_open(path, &map, err));
    tm_status st = tm_packed_parse(path, map.bytes, (size_t)map.size, out, err);
    if (st != TM_OK)
        tm_map_close(&map);
    else
        out->map = map;
    return st;
}

void tm_packed_close(tm_packed *packed)
{
    free(packed->row);
    free(packed->masks);
    tm_map_close(&packed->map);
    *packed = (tm_packed){ 0 };
}
