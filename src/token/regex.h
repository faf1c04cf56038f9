/* SPDX-License-Identifier: Apache-2.0 */
/* token/regex.h - the regular expressions of tokenizer files, matched by pcre2 with their own meaning; private to this
 * room.
 *
 * tokenizer.json is written for Oniguruma in its Ruby dialect ($ ends a line, x{1,3}+ repeats x{1,3}), tekken and
 * tiktoken for Rust's dialect ($ ends the text, x{1,3}+ does not give back). What pcre2 would read differently is said
 * in its words where that can be done, and refused by name elsewhere. */
#ifndef TM_TOKEN_REGEX_H
#define TM_TOKEN_REGEX_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum { TM_REGEX_RUBY, TM_REGEX_RUST, TM_REGEX_LITERAL } tm_regex_dialect;

typedef struct tm_regex       tm_regex;       /* constant */
typedef struct tm_regex_match tm_regex_match; /* room for matching, one per thread */

/* `where` says in messages where the pattern is. TM_UNSUPPORTED: a construct that is refused; TM_FORMAT: no pattern. */
TM_MUST_USE tm_status tm_regex_compile(const char *pattern, size_t bytes, tm_regex_dialect dialect, const char *where,
                                       tm_regex **out, tm_error *err);
void                  tm_regex_free(tm_regex *regex); /* NULL is fine */

tm_regex_match *tm_regex_match_create(void);
void            tm_regex_match_free(tm_regex_match *match); /* NULL is fine */

/* The first match in text (valid UTF-8, n bytes) from `at` on that is not empty: *from < *to; *from = n if there is
 * none. TM_INVALID: the matcher gave up. */
TM_MUST_USE tm_status tm_regex_next(const tm_regex *regex, tm_regex_match *match, const char *text, size_t n, size_t at,
                                    size_t *from, size_t *to, tm_error *err);

#endif
