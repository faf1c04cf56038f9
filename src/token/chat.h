/* SPDX-License-Identifier: Apache-2.0 */
/* token/chat.h - conversations as a model reads them: the chat template of its folder and the special tokens that the
 * template may name. */
#ifndef TM_TOKEN_CHAT_H
#define TM_TOKEN_CHAT_H

#include "token/template.h"

typedef struct tm_chat tm_chat;

/* Of a folder: chat_template.jinja, else `chat_template` of tokenizer_config.json, which may be a list of named ones:
 * `name` (NULL: "default"). Special tokens (bos_token, eos_token, ...) come from tokenizer_config.json. TM_INVALID:
 * there is none; TM_FORMAT; TM_UNSUPPORTED as tm_template_parse. */
TM_MUST_USE tm_status tm_chat_open(const char *folder, const char *name, tm_chat **out, tm_error *err);
void                  tm_chat_close(tm_chat *chat); /* NULL is fine */

/* Appends the text of a conversation: `messages` is a list of maps with role and content; `more` are further variables
 * (tools, ...), NULL: none. `prompt`: with what precedes an answer. See tm_template_render. */
TM_MUST_USE tm_status tm_chat_render(const tm_chat *chat, const json_t *messages, const json_t *more, bool prompt,
                                     tm_text *out, tm_template_spans *spans, tm_error *err);

#endif
