/* SPDX-License-Identifier: Apache-2.0 */
/* token/token.h - text becomes token ids and ids become text, by the rules of a tokenizer file.
 *
 * Formats: tokenizer.json (byte-level BPE, BPE with byte fallback, Unigram), SentencePiece .model (BPE, Unigram),
 * tiktoken
 * ("base64 rank" lines) and Mistral's tekken JSON. What a file asks for and this room does not do is TM_UNSUPPORTED, by
 * its name in the file: ids are either those of the reference library or there are none. docs/tokenizers.md
 *
 * A tokenizer is constant after it was opened, any number of threads may use it; an encoder has scratch memory and a
 * cache of words: one per thread.
 */
#ifndef TM_TOKEN_TOKEN_H
#define TM_TOKEN_TOKEN_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tm_tokenizer     tm_tokenizer;
typedef struct tm_token_encoder tm_token_encoder;

/* `path` is a tokenizer file, "byte" (tm_bytes_tokenizer, where no file is called so), or a model's folder: then its
 * tokenizer.json, else its tokenizer.model, else its tekken.json, else CLIP's vocab.json with merges.txt or T5's
 * spiece.model; and the folder says which tokens begin and end a text (token/specials.h). `pattern` names how a
 * tiktoken file, which does not say it, cuts text into words (tm_tokenizer_pattern); NULL: known by the number of its
 * tokens. TM_INVALID: unreadable or no pattern known; TM_FORMAT: damaged; TM_UNSUPPORTED: a rule or a model that this
 * room lacks. */
TM_MUST_USE tm_status tm_tokenizer_open(const char *path, const char *pattern, tm_tokenizer **out, tm_error *err);
/* The same from memory, which need not outlive the call; `name` is for messages. */
TM_MUST_USE tm_status tm_tokenizer_parse(const char *name, const void *bytes, size_t size, const char *pattern,
                                         tm_tokenizer **out, tm_error *err);
void                  tm_tokenizer_close(tm_tokenizer *tokenizer); /* NULL is fine */

/* The i-th known pattern's name ("gpt2", "llama3", "qwen2", "o200k", ...), NULL behind the last. */
const char *tm_tokenizer_pattern(int i);

typedef struct {
    const char *format; /* "tokenizer.json", "sentencepiece", "tiktoken", "tekken", ...: what was read */
    const char *model;  /* "byte-level BPE", "BPE", "Unigram" */
    const char
           *pattern; /* name of the pattern that cuts words by hand-written code; NULL: regular expressions, or none */
    int64_t vocab;   /* 1 + the highest id: a model's vocabulary must not be smaller */
    int64_t merges;  /* BPE: pairs that may be joined */
    int64_t added;   /* tokens found in the text before anything else is done with it */
    int32_t bos, eos, unk, pad; /* ids, -1: none is known */
    const char *left_sided;     /* "padding_side" or "truncation_side": the folder says "left" there; NULL: neither */
    const char *eos_from; /* what says so: a file of the folder, "post_processor", or "name": it is called like one */
    const char *eos_missing; /* the text that the folder calls eos_token and that is no token here; NULL: none */
} tm_tokenizer_facts;

const tm_tokenizer_facts *tm_tokenizer_describe(const tm_tokenizer *tokenizer);
/* The id of the token that a file writes like this ("<s>", "Ġthe"), or -1. */
int32_t tm_tokenizer_find(const tm_tokenizer *tokenizer, const char *text, size_t bytes);
/* How the file writes token `id`, *bytes long and NUL-terminated; NULL if there is none. */
const char *tm_tokenizer_text(const tm_tokenizer *tokenizer, int32_t id, size_t *bytes);
bool        tm_tokenizer_is_special(const tm_tokenizer *tokenizer, int32_t id);

/* Ids that grow; zero-initialise, free(data). */
typedef struct {
    int32_t *data;
    size_t   count, capacity;
} tm_ids;

enum {
    TM_ENCODE_SPECIAL = 1,    /* what the file adds to a text: <s> in front, </s> behind, ... */
    TM_ENCODE_CONTINUED = 2,  /* not the beginning of a text: no blank, no token is put in front of it */
    TM_ENCODE_UNFINISHED = 4, /* not its end: no token is put behind it */
};

tm_token_encoder      *
tm_token_encoder_create(const tm_tokenizer *tokenizer); /* never NULL; the tokenizer must outlive it */
void tm_token_encoder_destroy(tm_token_encoder *encoder);    /* NULL is fine */

/* Appends the ids of a text. Bytes that are not UTF-8 count as U+FFFD: one for each broken sequence (as Unicode
 * recommends), with SentencePiece one for each byte. TM_INVALID: a regular expression of the file gave up on this text.
 */
TM_MUST_USE tm_status tm_token_encoder_encode(tm_token_encoder *encoder, const char *text, size_t bytes, unsigned flags,
                                              tm_ids *out, tm_error *err);

/* What a text encoder reads: exactly `n` ids of a text, with its special tokens. A longer text loses the ids at its
 * end, what the file puts behind a text stays; behind a shorter one comes the padding token (facts.pad). The rule of
 * transformers' `padding="max_length", truncation=True, max_length=n`. *used: ids that are no padding; *dropped: ids of
 * the text that had no room; either may be NULL. TM_INVALID: no padding token is known, or n has no room for the
 * special tokens; TM_UNSUPPORTED: the folder pads or truncates on the left. */
TM_MUST_USE tm_status tm_token_encoder_encode_fixed(tm_token_encoder *encoder, const char *text, size_t bytes, size_t n,
                                                    int32_t *ids, size_t *used, size_t *dropped, tm_error *err);

/* Where a long text can be cut without a change of its ids: the largest such place in (0, bytes], if the rest begins a
 * text with TM_ENCODE_CONTINUED; text[bytes] need not exist. 0: none was found (then all of it has to be encoded at
 * once). */
size_t tm_tokenizer_cut(const tm_tokenizer *tokenizer, const char *text, size_t bytes);

/* Appends the text of ids, as bytes: an id may be a part of a character. Special tokens only with `special`. Ids
 * without a token (a model's vocabulary can be larger) give nothing. */
void tm_tokenizer_decode(const tm_tokenizer *tokenizer, const int32_t *ids, size_t n, bool special, tm_text *out);

#endif
