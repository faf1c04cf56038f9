/* SPDX-License-Identifier: Apache-2.0 */
/* data/tokenize.h - text becomes an indexed data set of a tokenizer's ids (docs/tokenizers.md). */
#ifndef TM_DATA_TOKENIZE_H
#define TM_DATA_TOKENIZE_H

#include "base/status.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *const           *paths; /* files, folders, patterns ("*.jsonl.gz") */
    int                          n_paths;
    const char                  *out;          /* PREFIX of PREFIX.bin and PREFIX.idx */
    const char                  *tokenizer;    /* file or folder (token/token.h) */
    const char                  *pattern;      /* of a tiktoken file, or NULL */
    const char                  *input;        /* "text", "jsonl" or "parquet"; NULL: by the names of files */
    const char                  *field;        /* name of the field with the text, of JSON lines and parquet */
    bool                         special;      /* what the tokenizer puts around a text, around each document */
    int32_t                      end;          /* token behind each document; -1: the tokenizer's end, -2: none */
    int                          threads;      /* that encode, >= 1; the result does not depend on it */
    int64_t                      batch_bytes;  /* of bytes of text that are encoded at once; 0: 1 MiB */
    double                       save_seconds; /* between two times that the work is made certain; 0: 5 */
    const volatile sig_atomic_t *stop;         /* not 0: end soon, so that the same call goes on there; or NULL */
} tm_tokenize_options;

typedef struct {
    int64_t files, documents, tokens, bytes;      /* bytes of text */
    int64_t binary, duplicate, unreadable, empty; /* files left out */
    int64_t resumed_tokens;                       /* of an earlier, killed call */
    bool    wide;                                 /* int32, else uint16 */
} tm_tokenize_result;

/* Files in the order of the paths, those of a folder by name; each text file, line of JSON and row of parquet is a
 * document. Compressed ones (.gz, .zst) are unpacked. Files of a folder that cannot be read, are binary or the same as
 * an earlier one are said in the log, counted and left out; named ones are TM_INVALID. The same bytes for any number of
 * threads. Killed at any time, the same call with the same options goes on where it was (PREFIX.tokenize is its state);
 * with others it begins again. TM_INVALID, TM_FORMAT, TM_UNSUPPORTED: input; TM_IO: output; TM_INTERRUPTED by `stop`.
 */
TM_MUST_USE tm_status tm_data_tokenize(const tm_tokenize_options *options, tm_tokenize_result *result, tm_error *err);

#endif
