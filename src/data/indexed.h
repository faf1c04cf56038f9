/* SPDX-License-Identifier: Apache-2.0 */
/* data/indexed.h - the indexed data set of Megatron-LM: PREFIX.bin holds the tokens of all sequences one after another,
 * PREFIX.idx says where they are; private to this room. All numbers are little-endian, arrays are not aligned.
 *
 *   .idx  0       9     "MMIDIDX" and two zero bytes
 *         9       8     version 1
 *         17      1     type of the tokens: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 6 float64, 7 float32 (of older
 *                       writers: float64), 8 uint16
 *         18      8     S, number of sequences
 *         26      8     D, documents + 1
 *         34      4 S   lengths in tokens (int32)
 *         +       8 S   byte offsets in .bin (int64)
 *         +       8 D   first sequence of each document, then S (int64)
 *         +       S     modes (int8), multimodal sets only
 */
#ifndef TM_DATA_INDEXED_H
#define TM_DATA_INDEXED_H

#include "base/status.h"
#include "base/map.h"
#include "data/output.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    tm_map         idx, bin;
    int64_t        sequences, documents, tokens;
    int            code, token_bytes;
    bool           modes;
    const uint8_t *lengths, *offsets, *first; /* arrays of the index; first: of each document */
} tm_indexed;

/* Opens and checks the whole index against the length of the tokens. `prefix` may end in .idx or .bin. TM_INVALID:
 * unreadable; TM_FORMAT: not such an index, or one of another .bin. */
TM_MUST_USE tm_status tm_indexed_open(const char *prefix, tm_indexed *out, tm_error *err);
/* Of the header only, S and D and the number of tokens (0 if the type has no size); for an outline. */
TM_MUST_USE tm_status tm_indexed_peek(const char *prefix, int64_t *sequences, int64_t *tokens, tm_error *err);
void                  tm_indexed_close(tm_indexed *set); /* a zeroed one is fine */

/* The same from memory that outlives *out; names are for messages. */
TM_MUST_USE tm_status tm_indexed_parse(const char *idx_name, const uint8_t *idx, int64_t idx_bytes,
                                       const char *bin_name, const uint8_t *bin, int64_t bin_bytes, tm_indexed *out,
                                       tm_error *err);

/* PREFIX.vocabulary.json, which is written beside sets made here: {"vocabulary_size": ids of the tokenizer,
 * "tokenizer": its file, or "bytes"}. *size: 0 without such a file. TM_IO; TM_FORMAT naming file and member. */
TM_MUST_USE tm_status tm_indexed_vocabulary_write(const char *prefix, int64_t size, const char *tokenizer,
                                                  tm_error *err);
TM_MUST_USE tm_status tm_indexed_vocabulary_read(const char *prefix, int64_t *size, tm_error *err);

int64_t     tm_indexed_length(const tm_indexed *set, int64_t sequence);      /* tokens */
int64_t     tm_indexed_first_token(const tm_indexed *set, int64_t sequence); /* in the order of the file */
int64_t     tm_indexed_document(const tm_indexed *set, int64_t document);    /* its first sequence */
const char *tm_indexed_type(const tm_indexed *set);                          /* "uint16" */
/* Token `at` of the file as an integer; false if it is none, or not one of 32 bits. */
bool tm_indexed_token(const tm_indexed *set, int64_t at, int32_t *out);

/* Writes a set: begin, then tokens and ends of documents, then finish. Ids below 65500 want uint16 (`wide` false), else
 * int32. Documents without tokens give no sequence. Nothing is left behind but by a finish that returns TM_OK. */
typedef struct {
    tm_output bin, idx;
    bool      wide;
    int32_t  *lengths;
    size_t    count, room;
    int64_t   length; /* of the document under way */
} tm_indexed_writer;

TM_MUST_USE tm_status tm_indexed_begin(const char *prefix, bool wide, tm_indexed_writer *out, tm_error *err);
void                  tm_indexed_add(tm_indexed_writer *writer, const int32_t *tokens, int64_t n);
void                  tm_indexed_end_document(tm_indexed_writer *writer);
TM_MUST_USE tm_status tm_indexed_finish(tm_indexed_writer *writer, tm_error *err);
void                  tm_indexed_abandon(tm_indexed_writer *writer);

#endif
