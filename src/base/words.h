/* SPDX-License-Identifier: Apache-2.0 */
/* base/words.h - a command line cut into words without a shell. */
#ifndef TM_BASE_WORDS_H
#define TM_BASE_WORDS_H

#include "base/arena.h"
#include "base/status.h"

/* White space separates; 'single quotes' keep everything, "double quotes" keep all but \" and \\, a backslash outside
 * of quotes keeps the next character; quoted parts join what they touch, and '' is an empty word. Nothing is expanded:
 * $, *,
 * ~, |, > and ; are ordinary characters. *argv ends with NULL and is the arena's, as its words are; *argc may be 0.
 * TM_INVALID for a quote that does not end and a backslash at the end; `what` names the text in the message ("--a"). */
TM_MUST_USE tm_status tm_words_split(const char *text, const char *what, tm_arena *arena, char ***argv, int *argc,
                                     tm_error *err);

#endif
