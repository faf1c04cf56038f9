/* SPDX-License-Identifier: Apache-2.0 */
/* data/verify.h - are files on disk what was published? (docs/data-mlperf.md) */
#ifndef TM_DATA_VERIFY_H
#define TM_DATA_VERIFY_H

#include "base/status.h"
#include "base/table.h"

#include <stdbool.h>

/* A table for tm_data_verify: file, check, wanted, found, verdict ("ok" or "FAILED"). */
tm_table *tm_data_verify_table(void);

/* Compares a file or everything below a folder with what is known of it, a row per comparison:
 *   lists of md5sum (NAME.md5 beside a file, or all *.md5 of a folder);
 *   published sizes of the benchmarks' files, by name;
 *   the published hash of a folder that holds just the files of a data set, or `expected` (32 digits; NULL: none): the
 *   MD5 of a file, or of a folder the MD5 of the sorted MD5s of all its files.
 * *passed: no row failed. TM_INVALID when something cannot be read or nothing is known; TM_FORMAT for a bad list. */
TM_MUST_USE tm_status tm_data_verify(const char *path, const char *expected, tm_table *out, bool *passed,
                                     tm_error *err);

#endif
