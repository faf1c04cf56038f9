/* SPDX-License-Identifier: Apache-2.0 */
/* encoder/encoders.h - all that stands in front of a FLUX.1 transformer when it is trained: the encoder of pictures
 * (vae) and those of captions (encoder/texts.h), of a folder of diffusers. */
#ifndef TM_ENCODER_ENCODERS_H
#define TM_ENCODER_ENCODERS_H

#include "encoder/texts.h"

typedef struct tm_encoders tm_encoders;

/* What they take and give. */
typedef struct {
    int64_t  height, width, text_len; /* pixels; tokens of T5 */
    tm_dtype compute;                 /* TM_F32, TM_BF16 */
} tm_encoders_form;

typedef struct {
    int64_t channels, rows, columns; /* of latents, as the encoder has them: (channels, rows, columns) */
    int64_t text_dim, vector_dim;    /* numbers of a token of the text; of the pooled text */
    double  scaling_factor, shift_factor;
    char    model[17]; /* hash of all files that count, in hexadecimal */
} tm_encoders_facts;

/* TM_INVALID: a size that the autoencoder does not take; else as tm_frozen_open and tm_texts_open. The device must
 * outlive *out. */
TM_MUST_USE tm_status tm_encoders_open(tm_device *device, const char *folder, const tm_encoders_form *form,
                                       tm_encoders **out, tm_error *err);
void                  tm_encoders_close(tm_encoders *encoders); /* NULL is fine */

const tm_encoders_facts *tm_encoders_describe(const tm_encoders *encoders);
size_t                   tm_encoders_bytes(const tm_encoders *encoders); /* of the device, planned and used */

/* pixels (height, width, 3) in [-1, 1] -> mean, logvar (channels, rows, columns). */
TM_MUST_USE tm_status tm_encoders_picture(tm_encoders *encoders, const float *pixels, float *mean, float *logvar,
                                          tm_error *err);
/* text (text_len, text_dim), pooled (vector_dim); *cut as tm_texts_encode. */
TM_MUST_USE tm_status tm_encoders_text(tm_encoders *encoders, const char *caption, float *text, float *pooled,
                                       int64_t *cut, tm_error *err);

#endif
