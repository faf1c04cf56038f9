/* SPDX-License-Identifier: Apache-2.0 */
/* encoder/texts.h - captions become what a FLUX.1 transformer reads, by the text encoders of a folder of diffusers:
 * text_encoder (CLIP) with tokenizer, text_encoder_2 (T5) with tokenizer_2. */
#ifndef TM_ENCODER_TEXTS_H
#define TM_ENCODER_TEXTS_H

#include "encoder/encoder.h"

typedef struct tm_texts tm_texts;

/* T5 reads text_len tokens of a caption, CLIP as many as its model has positions. TM_INVALID, TM_FORMAT,
 * TM_UNSUPPORTED: as tm_frozen_open and tm_tokenizer_open say. The device must outlive *out. */
TM_MUST_USE tm_status tm_texts_open(tm_device *device, const char *folder, int64_t text_len, tm_dtype compute,
                                    tm_texts **out, tm_error *err);
void                  tm_texts_close(tm_texts *texts); /* NULL is fine */

int64_t tm_texts_width(const tm_texts *texts);        /* numbers of a token of T5 */
int64_t tm_texts_pooled_width(const tm_texts *texts); /* numbers of the pooled text of CLIP */

size_t tm_texts_bytes(const tm_texts *texts); /* of the device, planned and used */

/* text (text_len, width), pooled (pooled_width). `cut`: the tokens of the caption that T5 did not read, 0: none; may be
 * NULL. TM_INVALID: a tokenizer gives an id that its model does not have. */
TM_MUST_USE tm_status tm_texts_encode(tm_texts *texts, const char *caption, float *text, float *pooled, int64_t *cut,
                                      tm_error *err);

#endif
