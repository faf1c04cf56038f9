/* SPDX-License-Identifier: Apache-2.0 */
/* token/chat.h - conversations as a model reads them: the chat template of its folder and the special tokens that the
 * template may name. */
#ifndef TM_TOKEN_CHAT_H
#define TM_TOKEN_CHAT_H

#include "token/template.h"
#include "token/token.h"

typedef struct tm_chat tm_chat;

/* Of a folder: chat_template.jinja, else `chat_template` of tokenizer_config.json, which may be a list of named ones:
 * `name` (NULL: "default"), or a map of them, or files in additional_chat_templates. Special tokens (bos_token, ...)
 * are the folder's (token/specials.h). TM_INVALID: there is none; TM_FORMAT; TM_UNSUPPORTED as tm_template_parse. */
TM_MUST_USE tm_status tm_chat_open(const char *folder, const char *name, tm_chat **out, tm_error *err);
/* The template is the file `path`; special tokens are those of the folder, or there are none (NULL). */
TM_MUST_USE tm_status tm_chat_open_file(const char *path, const char *folder, tm_chat **out, tm_error *err);
void                  tm_chat_close(tm_chat *chat); /* NULL is fine */

/* Appends the text of a conversation: `messages` is a list of maps with role and content; `more` are further variables
 * (tools, ...), NULL: none. `prompt`: with what precedes an answer. See tm_template_render. */
TM_MUST_USE tm_status tm_chat_render(const tm_chat *chat, const json_t *messages, const json_t *more, bool prompt,
                                     tm_text *out, tm_template_spans *spans, tm_error *err);

/* As tm_chat_render (which cannot be asked for what precedes an answer here), and where in *out, which is empty, the
 * answers are: what the template itself says ({% generation %}), else for each message of the role assistant
 *
 *   begin   the text of the messages before it, with what precedes an answer, where the whole text begins with that
 *   end     the text up to the message and with it, where the whole text begins with that
 *
 * and where it does not (templates that show earlier turns otherwise once later ones follow): the message's own text in
 * the whole, found by putting a mark in its place, and behind it what a template puts behind a last answer. A message
 * with a `weight` of 0 is no answer. TM_INVALID: an answer cannot be found. */
TM_MUST_USE tm_status tm_chat_render_answers(const tm_chat *chat, const json_t *messages, const json_t *more,
                                             tm_text *out, tm_template_spans *spans, tm_error *err);
/* Appends the text of a folder's default template; false: it has none that can be read. */
bool tm_chat_text(const char *folder, tm_text *out);
bool tm_chat_marks_generation(const tm_chat *chat);

/* Ids of a conversation's text are those of the reference library only where special tokens are found in texts.
 * TM_UNSUPPORTED: this file (SentencePiece, tiktoken, tekken) takes their names for ordinary text. */
TM_MUST_USE tm_status tm_chat_check_tokenizer(const tm_tokenizer *tokenizer, tm_error *err);

#endif
