/* SPDX-License-Identifier: Apache-2.0 */
/* data/sft_message.h - a message of a conversation, as rows have it. Private to sft_form.c. */
#ifndef TM_DATA_SFT_MESSAGE_H
#define TM_DATA_SFT_MESSAGE_H

#include "data/sft_form.h"

const char *tm_sft_type_of(const json_t *value); /* "an array" */
bool        tm_sft_is_blank(const json_t *text);

/* Is a text, or one of those in a message, what no text here can be? `name` is its column or member. */
TM_MUST_USE tm_status tm_sft_check_text(const json_t *value, const char *place, const char *name, tm_error *err);
/* Appends a message to a list, with role and content; turns count from 1. */
TM_MUST_USE tm_status tm_sft_read_message(tm_sft_format format, const json_t *given, size_t turn, const char *place,
                                          json_t *list, tm_error *err);

#endif
