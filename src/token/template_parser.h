/* SPDX-License-Identifier: Apache-2.0 */
/* token/template_parser.h - the parts of the parser of templates: what stands where (template_tokens.c), expressions
 * (template_expression.c), statements (template_parse.c). The first thing wrong ends it: all that follows sees the end
 * of its tag. */
#ifndef TM_TOKEN_TEMPLATE_PARSER_H
#define TM_TOKEN_TEMPLATE_PARSER_H

#include "token/template_text.h"

typedef enum { TM_TMPL_END, TM_TMPL_NAME, TM_TMPL_STRING, TM_TMPL_INT, TM_TMPL_FLOAT, TM_TMPL_SIGN } tm_tmpl_token_kind;
typedef struct {
    tm_tmpl_token_kind kind;
    const char        *text; /* in the arena; of a sign and a name its characters */
    size_t             length;
    int64_t            integer;
    double             real;
} tm_tmpl_token;

typedef struct {
    tm_arena     *arena;
    tm_error     *err;
    const char   *name;
    const char   *at, *end; /* of the template */
    int           line, depth, loops;
    bool          failed, marks, line_begins;
    tm_tmpl_token token; /* inside of a tag */
    int           open;  /* brackets */
    char          tag;   /* '%' or '{': what the tag ends with */
    tm_status     status;
} tm_tmpl_parser;

/* Records the first failure with the template's name and line; returns NULL. */
void *tm_tmpl_fail(tm_tmpl_parser *p, tm_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool  tm_tmpl_at(const tm_tmpl_parser *p, const char *text); /* what follows in the template begins with it */
void  tm_tmpl_skip(tm_tmpl_parser *p, size_t n);             /* so many bytes; lines are counted */
bool  tm_tmpl_tag_ends(tm_tmpl_parser *p);
void  tm_tmpl_advance(tm_tmpl_parser *p); /* to the next token of the tag */
bool  tm_tmpl_is(const tm_tmpl_parser *p, const char *text);
bool  tm_tmpl_take(tm_tmpl_parser *p, const char *text); /* goes past it if it is there */
void  tm_tmpl_want(tm_tmpl_parser *p, const char *text); /* fails where it is not */
/* A name, or NULL after a failure. */
const char *tm_tmpl_want_name(tm_tmpl_parser *p);

enum { TM_TMPL_MAX_DEPTH = 100 };
tm_x *tm_tmpl_expression(tm_tmpl_parser *p); /* NULL after a failure, as the next */
tm_x *tm_tmpl_or(tm_tmpl_parser *p);         /* one without "if" of its own */
/* One of those two, or several between commas as a tuple. */
tm_x *tm_tmpl_tuple(tm_tmpl_parser *p, tm_x *one(tm_tmpl_parser *p));

tm_x *tm_tmpl_node(tm_tmpl_parser *p, tm_x_kind kind, tm_x *a, tm_x *b);
/* Appends to a list, a map or arguments; name: NULL where there is none. */
void tm_tmpl_add(tm_tmpl_parser *p, tm_x *x, const char *name, tm_x *value);

#endif
