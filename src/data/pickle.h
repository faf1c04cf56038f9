/* SPDX-License-Identifier: Apache-2.0 */
/* data/pickle.h - the pickle behind the header of a file of packed sequences; private to this room. */
#ifndef TM_DATA_PICKLE_H
#define TM_DATA_PICKLE_H

#include "data/packed.h"

/* Reads the pickle from byte `at` of the file to its end into out->row (which has room for `rows`), out->masks and
 * out->width. TM_FORMAT names byte and opcode; *out then holds what was read so far. */
TM_MUST_USE tm_status tm_pickle_rows(const char *name, const uint8_t *bytes, size_t size, size_t at, int64_t rows,
                                     tm_packed *out, tm_error *err);

#endif
