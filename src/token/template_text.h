/* SPDX-License-Identifier: Apache-2.0 */
/* token/template_text.h - what methods and filters of a template do with texts and maps alike (private to token/). */
#ifndef TM_TOKEN_TEMPLATE_TEXT_H
#define TM_TOKEN_TEMPLATE_TEXT_H

#include "token/template_ast.h"

typedef enum { TM_CASE_LOWER, TM_CASE_UPPER, TM_CASE_CAPITAL, TM_CASE_TITLE, TM_CASE_WORDS } tm_v_case;
typedef enum { TM_PARTS_ITEMS, TM_PARTS_KEYS, TM_PARTS_VALUES } tm_v_part;

/* The number of a name in a table of n, or -1. */
int tm_v_number_of(const char *const *names, int n, const char *name);

enum { TM_MOST_BOUND = 6 };
/* Puts arguments in the order of their names, "width,first,blank"; those behind a '/' have none: they are given by
 * position only. The first `least` must be given. bound[i]: NULL where it is not given. False after a failure: one too
 * many, one twice, one that is not known. */
bool tm_v_bind(tm_render *r, const char *what, const char *names, size_t least, const tm_v_arguments *a,
               const tm_v *bound[TM_MOST_BOUND]);
/* An integer that was given, or `other`; fails for anything else, "none" allowed where it means not given. */
int64_t tm_v_integer_or(tm_render *r, const char *what, const tm_v *v, int64_t other);

/* Python's white space, beyond ASCII too: the bytes of the one at p, or before p; 0: there is none. */
size_t tm_space_at(const char *p, const char *end);
size_t tm_space_before(const char *begin, const char *p);

tm_v tm_v_integer(int64_t value);
/* Fails the rendering: "'what' takes wanted". */
tm_v tm_v_wants(tm_render *r, const char *what, const char *wanted);
/* The value as it is printed, for '~' and string. */
tm_v tm_v_as_text(tm_render *r, const tm_v *v);
tm_v tm_v_concatenated(tm_render *r, const tm_v *a, const tm_v *b);
/* Where the n bytes of `in` hold `what` first, or NULL. */
const char *tm_v_find(const char *in, size_t n, const char *what, size_t length);

/* left, right: which ends. `set`: characters that go; NULL or none: white space. */
tm_v tm_v_strip(tm_render *r, const tm_v *v, const tm_v *set, bool left, bool right);
/* As Python's. Letters that become several, or another one at the end of a word, fail: they are not supported. TITLE:
 * as the method; TM_CASE_WORDS: as the filter title. */
tm_v tm_v_letters(tm_render *r, const tm_v *v, tm_v_case how);
/* The first `most` times, -1: all. */
tm_v tm_v_replace(tm_render *r, const tm_v *v, const tm_v *from, const tm_v *to, int64_t most);
/* by: NULL or none: white space; most: -1: all. */
tm_v tm_v_split(tm_render *r, const tm_v *v, const tm_v *by, int64_t most);
/* The same from the end. */
tm_v tm_v_split_back(tm_render *r, const tm_v *v, const tm_v *by, int64_t most);
/* Python's splitlines; ends: they stay at the lines. */
tm_v tm_v_lines(tm_render *r, const tm_v *v, bool ends);
/* The items as they are printed; between: a text or NULL. */
tm_v tm_v_join(tm_render *r, const tm_v *list, const tm_v *between);
/* A map's pairs, keys or values, as its methods give them. */
tm_v tm_v_parts(tm_render *r, tm_v_part which, const tm_v *v);

#endif
