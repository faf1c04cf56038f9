/* SPDX-License-Identifier: Apache-2.0 */
/* data/sft_tokens.h - rows of data for fine-tuning as tokens, each of which is a target or not; private to this room.
 */
#ifndef TM_DATA_SFT_TOKENS_H
#define TM_DATA_SFT_TOKENS_H

#include "data/sft_form.h"
#include "token/token.h"

typedef struct tm_sft_coder tm_sft_coder;

/* Opens the tokenizer; the chat template when the first conversation comes. TM_INVALID, TM_FORMAT, TM_UNSUPPORTED. */
TM_MUST_USE tm_status tm_sft_coder_open(const tm_sft_options *options, tm_sft_coder **out, tm_error *err);
/* Another one for another thread, which must not outlive the first: tokenizer and template are the same. To be made
 * after the first conversation. */
tm_sft_coder *tm_sft_coder_share(const tm_sft_coder *coder);
void          tm_sft_coder_close(tm_sft_coder *coder); /* NULL is fine */

/* 1 + the highest id of the tokenizer (and of bytes the end of a text). */
TM_MUST_USE tm_status tm_sft_vocabulary(const tm_sft_options *options, int64_t *size, tm_error *err);

/* Replaces out[0] by the tokens of a row; one that is no target is -1 - id. Of a pair those are the chosen answer's,
 * out[1] the rejected one's, each with the prompt; else out[1] is empty. Errors begin with `place`. */
TM_MUST_USE tm_status tm_sft_encode(tm_sft_coder *coder, const tm_sft_row *row, const char *place, tm_ids out[2],
                                    tm_error *err);

static inline int32_t tm_sft_id(int32_t token)
{
    return token < 0 ? -1 - token : token;
}

/* Appends the text of tokens (their ids, as they are stored); `special`: with the names of special ones. */
void tm_sft_decode(const tm_sft_coder *coder, const int32_t *tokens, size_t n, bool special, tm_text *out);

#endif
