/* SPDX-License-Identifier: Apache-2.0 */
/* data/corpus.h - files, folders and patterns as one stream of documents, in batches of about the same size; private to
 * this room. The batches depend on the files and the size only. */
#ifndef TM_DATA_CORPUS_H
#define TM_DATA_CORPUS_H

#include "base/text.h"
#include "data/tokenize.h"
#include "token/token.h"

/* A part of a document, or lines of JSON. */
typedef struct {
    size_t      at, length;   /* in the text of the batch */
    bool        begins, ends; /* a document */
    bool        lines;        /* of JSON, a document each */
    int64_t     line;         /* the number of the first */
    const char *file;
} tm_part;

typedef struct {
    tm_text  text;
    tm_part *parts;
    size_t   count, capacity;
    int64_t  place; /* bytes of all files read when it was complete */
} tm_text_batch;

void tm_text_batch_clear(tm_text_batch *batch);
void tm_text_batch_fini(tm_text_batch *batch);

/* The documents of a part, or the piece of one that it is; of lines of JSON the texts in `field`. TM_FORMAT,
 * TM_INVALID: a line, with its number. */
typedef tm_status (*tm_document_sink)(void *context, const char *text, size_t bytes, bool begins, bool ends,
                                      tm_error *err);
TM_MUST_USE tm_status tm_part_documents(const tm_text_batch *batch, const tm_part *part, const char *field,
                                        tm_document_sink sink, void *context, tm_error *err);

typedef struct tm_corpus tm_corpus;

/* Lists and looks at all files (log: what is left out). `result` gets the counts of files. */
TM_MUST_USE tm_status tm_corpus_open(const tm_tokenize_options *options, const tm_tokenizer *tokenizer,
                                     tm_tokenize_result *result, tm_corpus **out, tm_error *err);
void                  tm_corpus_close(tm_corpus *corpus);       /* NULL is fine */
int64_t               tm_corpus_bytes(const tm_corpus *corpus); /* of all files, packed as they are */
/* Of names, sizes and times of change: another value is another corpus. */
uint64_t tm_corpus_hash(const tm_corpus *corpus);

/* Fills a batch that was cleared; no parts: the end. One thread. */
TM_MUST_USE tm_status tm_corpus_next(tm_corpus *corpus, tm_text_batch *batch, tm_error *err);

#endif
