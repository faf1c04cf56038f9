/* SPDX-License-Identifier: Apache-2.0 */
/* token/train.h - a byte-level BPE tokenizer from text (Sennrich et al. 2016; bytes: Radford et al. 2019).
 *
 * Begins with the 256 bytes; the pair of neighbours that is most frequent within words becomes a token, again and
 * again. Of equally frequent pairs the one of the lower ids is first, so the result depends on the text only. */
#ifndef TM_TOKEN_TRAIN_H
#define TM_TOKEN_TRAIN_H

#include "token/token.h"

typedef struct tm_bpe_trainer tm_bpe_trainer;

/* `pattern` cuts words (tm_tokenizer_pattern). TM_INVALID: unknown; TM_UNSUPPORTED: means another thing to the library
 * that reads tokenizer.json. */
TM_MUST_USE tm_status tm_bpe_trainer_create(const char *pattern, tm_bpe_trainer **out, tm_error *err);
void                  tm_bpe_trainer_destroy(tm_bpe_trainer *trainer); /* NULL is fine */
/* A tokenizer of bytes alone with that pattern; lives as long as the trainer. */
const tm_tokenizer *tm_bpe_trainer_tokenizer(const tm_bpe_trainer *trainer);

/* Counts the words of a text, or of a part that tm_tokenizer_cut has cut off. Words of more than TM_BPE_LONGEST bytes
 * count for nothing. */
enum { TM_BPE_LONGEST = 256 };
void tm_bpe_trainer_add(tm_bpe_trainer *trainer, const char *text, size_t bytes);

typedef struct {
    int64_t            vocab;   /* number of tokens: 256 bytes, the special ones, and what is joined */
    const char *const *special; /* behind all others */
    int                n_special;
    int64_t            least; /* a pair that occurs less often is not joined; >= 1 */
} tm_bpe_goal;

typedef struct {
    int64_t bytes, words, different; /* of text; words; different ones */
    int64_t vocab;                   /* less than was wanted if no pair is frequent enough */
} tm_bpe_result;

/* Joins pairs and appends a tokenizer.json. Once. TM_INVALID: no text, or a vocabulary without room for bytes and
 * special tokens. */
TM_MUST_USE tm_status tm_bpe_trainer_finish(tm_bpe_trainer *trainer, const tm_bpe_goal *goal, tm_text *out,
                                            tm_bpe_result *result, tm_error *err);
/* The end of a text in the tokenizer of bytes. */
#define TM_BYTES_END "<|endoftext|>"
enum { TM_BYTES_END_ID = 256 };

/* Appends the tokenizer.json of bytes: token 0 to 255 is that byte, 256 is TM_BYTES_END, no two are ever joined. */
void tm_bytes_tokenizer(tm_text *out);

#endif
