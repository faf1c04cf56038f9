/* SPDX-License-Identifier: Apache-2.0 */
/* data/inspect.h - what is in files of training data? (docs/data-mlperf.md) */
#ifndef TM_DATA_INSPECT_H
#define TM_DATA_INSPECT_H

#include "base/status.h"
#include "base/table.h"

/* A table for tm_data_inspect: file, format, type, rows, documents, tokens, length_min, length_max, id_min, id_max,
 * counted (share of tokens with mask 1), first (the first tokens). */
tm_table *tm_data_inspect_table(void);

/* Appends a row for each file of packed sequences (.npy, or those of a folder), for an indexed data set (PREFIX, or
 * PREFIX.idx, PREFIX.bin), or one for text, whatever else it is. The whole of a packed file is read; of an indexed set
 * the whole index, but ids of its first 2^28 tokens only (a note says so). TM_INVALID: unreadable; TM_FORMAT: damaged.
 */
TM_MUST_USE tm_status tm_data_inspect(const char *path, tm_table *out, tm_error *err);

#endif
