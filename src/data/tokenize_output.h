/* SPDX-License-Identifier: Apache-2.0 */
/* data/tokenize_output.h - an indexed data set (data/indexed.h) written bit by bit, so that a killed program's work
 * goes on; private to this room.
 *
 * While it is made: PREFIX.bin.part holds the tokens, PREFIX.lengths.part the length of each document (int32),
 * PREFIX.tokenize what of both is certain (synced to disk). At the end the index is made, the tokens get their name,
 * the rest is removed. */
#ifndef TM_DATA_TOKENIZE_OUTPUT_H
#define TM_DATA_TOKENIZE_OUTPUT_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
    uint64_t key;                               /* of the options and the files: another key begins again */
    int64_t  batches, tokens, documents, bytes; /* done */
    int64_t  open;                              /* tokens of the document under way */
} tm_tokenize_state;

typedef struct {
    char             *prefix;
    FILE             *bin, *lengths;
    bool              wide;
    tm_tokenize_state state;
    int               cause; /* errno of the first failure */
} tm_tokenize_output;

/* Goes on where a killed call with the same key was, else begins anew. */
TM_MUST_USE tm_status tm_tokenize_output_open(const char *prefix, bool wide, uint64_t key, tm_tokenize_output *out,
                                              tm_error *err);
void                  tm_tokenize_output_add(tm_tokenize_output *out, const int32_t *ids, int64_t n);
void                  tm_tokenize_output_end_document(tm_tokenize_output *out);
/* Makes what was written so far certain; TM_IO. */
TM_MUST_USE tm_status tm_tokenize_output_save(tm_tokenize_output *out, tm_error *err);
TM_MUST_USE tm_status tm_tokenize_output_finish(tm_tokenize_output *out, tm_error *err);
void                  tm_tokenize_output_close(tm_tokenize_output *out); /* files stay */

#endif
