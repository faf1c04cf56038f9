/* SPDX-License-Identifier: Apache-2.0 */
/* data/pack.h - text becomes a token file. */
#ifndef TM_DATA_PACK_H
#define TM_DATA_PACK_H

#include "base/status.h"

#include <stdint.h>

typedef struct {
    const char *path;   /* a text file or a folder of them */
    const char *out;    /* govreport: the .npy file; megatron: PREFIX */
    const char *format; /* "govreport" or "megatron" */
    int64_t     seq;    /* govreport: W, tokens of a row */
    const char *answer; /* govreport: only what follows this text in a file counts, without its end; NULL: all does */
} tm_pack_options;

/* Tokens are bytes (0..255), 256 ends each file. megatron: a document for each file, uint16. govreport: the files one
 * after another cut into rows of W; the rest is left out. *rows: documents or rows written. TM_INVALID: no text, or
 * less than a row of it; TM_IO. */
TM_MUST_USE tm_status tm_data_pack(const tm_pack_options *options, int64_t *rows, tm_error *err);

#endif
