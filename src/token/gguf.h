/* SPDX-License-Identifier: Apache-2.0 */
/* token/gguf.h - the tokenizer that a GGUF file holds: read as the file of a folder that means the same, and written.
 *
 * tokenizer.ggml.model is "gpt2" (byte-level BPE; tokenizer.ggml.pre names what cuts words) or "llama" (SentencePiece
 * BPE); "none": the file has ids only. Types of tokens are those of SentencePiece: 1 normal, 2 unknown, 3 control, 4
 * user-defined, 5 unused, 6 byte. */
#ifndef TM_TOKEN_GGUF_H
#define TM_TOKEN_GGUF_H

#include "base/gguf.h"
#include "token/token.h"

#include <jansson.h>

/* Appends what a folder would hold, *file ("tokenizer.json" or "tokenizer.model"). TM_INVALID: the file holds none;
 * TM_FORMAT: damaged; TM_UNSUPPORTED: of a kind that is not read. */
TM_MUST_USE tm_status tm_gguf_tokenizer_text(const tm_gguf *gguf, tm_text *out, const char **file, tm_error *err);
/* As tm_tokenizer_open. */
TM_MUST_USE tm_status tm_gguf_tokenizer_open(const char *path, tm_tokenizer **out, tm_error *err);
/* The special tokens that the file names: {"bos_token": "<s>", ...}; never NULL, the caller releases it. */
json_t *tm_gguf_specials(const tm_gguf *gguf);

/* Puts the tokenizer of a model with `vocab` ids, filled with unused tokens; NULL: of the bytes 0 to 255. NULL when it
 * was put, else why llama.cpp has no such tokenizer, and nothing is put. */
const char *tm_gguf_put_tokenizer(tm_gguf_head *head, const tm_tokenizer *tokenizer, int64_t vocab);
/* The file has ids only. */
void tm_gguf_put_no_tokenizer(tm_gguf_head *head);

#endif
