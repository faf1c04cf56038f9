/* SPDX-License-Identifier: Apache-2.0 */
/* token/specials.h - the special tokens that a model's folder names, and by which it ends a text.
 *
 * transformers reads tokenizer_config.json and special_tokens_map.json; where both name a token, the second counts.
 * What generation ends at is in generation_config.json, else in config.json. A GGUF file in the place of a folder names
 * them itself.
 */
#ifndef TM_TOKEN_SPECIALS_H
#define TM_TOKEN_SPECIALS_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Names of tokens ("eos_token", "image_token") and their texts; an empty object without such files. The caller releases
 * *out. *from, unless NULL: the file that names eos_token, a constant, or NULL. TM_FORMAT: a file is no JSON object. */
TM_MUST_USE tm_status tm_specials_read(const char *folder, json_t **out, const char **from, tm_error *err);

/* "padding_side" or "truncation_side", where tokenizer_config.json has "left" there; else NULL. */
const char *tm_specials_left_side(const char *folder);

enum { TM_MAX_ENDS = 16 };

/* Fills ids[] with eos_token_id, a number or a list, of generation_config.json, else of config.json. Returns their
 * number; *from as above. A file that cannot be read says nothing. */
int tm_specials_ends(const char *folder, int64_t ids[TM_MAX_ENDS], const char **from);

#endif
