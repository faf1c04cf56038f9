/* SPDX-License-Identifier: Apache-2.0 */
/* cli/generate_picture.h - private to the room: `trainmark generate` with a model of images. */
#ifndef TM_CLI_GENERATE_PICTURE_H
#define TM_CLI_GENERATE_PICTURE_H

#include "cli/speak.h"

typedef struct {
    const char *prompt, *negative, *out, *encoders, *latents, *size;
    int64_t     steps, count, text_tokens; /* text_tokens 0: as trained */
    double      guidance, true_cfg;
} picture_options;

/* Draws what `s` (its source is open) shows for the prompt, writes PNG files and appends what was done to *out. */
TM_MUST_USE tm_status generate_pictures(speaker *s, const picture_options *o, bool json, tm_text *out, tm_error *err);

#endif
