/* SPDX-License-Identifier: Apache-2.0 */
/* hf/config.h - config.json of a Hugging Face folder into model.* keys and back, by the forms of the families
 * (model/hf.h). */
#ifndef TM_HF_CONFIG_H
#define TM_HF_CONFIG_H

#include "config/config.h"
#include "model/hf.h"

typedef struct {
    const tm_hf_form *form;
    char              training[200]; /* "attn_pdrop 0.1": what training it would take and is not supported; "" else */
} tm_hf_description;

/* Gives the model.* keys what `path` says, below everything that was given but presets. Every member must be known, and
 * what is not supported must have the value that computes nothing. TM_FORMAT: not such a file; TM_UNSUPPORTED: a model
 * that is not supported, with the member's name. */
TM_MUST_USE tm_status tm_hf_config_read(const char *path, tm_config *config, tm_hf_description *out, tm_error *err);
/* The same of text in memory; `path` is for messages. */
TM_MUST_USE tm_status tm_hf_config_parse(const char *path, const char *text, size_t bytes, tm_config *config,
                                         tm_hf_description *out, tm_error *err);

/* The form of a finished configuration's model. TM_UNSUPPORTED: no Hugging Face class computes this model, and why. */
TM_MUST_USE tm_status tm_hf_form_of(const tm_config *config, const tm_model_shape *shape, const tm_hf_form **out,
                                    tm_error *err);
/* Appends config.json. `dtype`: of the weights, "bfloat16". `ids`: NULL, or the text of another config.json whose
 * bos_token_id, eos_token_id and pad_token_id are taken over. */
void tm_hf_config_write(const tm_config *config, const tm_model_shape *shape, const tm_hf_form *form, const char *dtype,
                        const char *ids, tm_text *out);

#endif
