/* SPDX-License-Identifier: Apache-2.0 */
/* data/output.h - a file that is written in pieces and replaces its path when it is complete; private to this room.
 * Failures are remembered: write everything, then ask tm_output_close. */
#ifndef TM_DATA_OUTPUT_H
#define TM_DATA_OUTPUT_H

#include "base/file.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
    FILE         *file; /* of a copy of the draft's descriptor */
    tm_file_draft draft;
    int           cause; /* errno of the first failure */
} tm_output;

TM_MUST_USE tm_status tm_output_open(const char *path, tm_output *out, tm_error *err);
void                  tm_output_bytes(tm_output *out, const void *bytes, size_t n);
void                  tm_output_number(tm_output *out, uint64_t value, int bytes); /* little-endian */
/* Flushes to disk and renames; TM_IO (nothing is left behind then). */
TM_MUST_USE tm_status tm_output_close(tm_output *out, tm_error *err);
/* Removes what was written. */
void tm_output_abandon(tm_output *out);

#endif
