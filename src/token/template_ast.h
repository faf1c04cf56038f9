/* SPDX-License-Identifier: Apache-2.0 */
/* token/template_ast.h - a parsed template, and its values while it is rendered (private to token/). */
#ifndef TM_TOKEN_TEMPLATE_AST_H
#define TM_TOKEN_TEMPLATE_AST_H

#include "base/arena.h"
#include "token/template.h"

#include <stdbool.h>

/* --- the tree ----------------------------------------------------------------------------------------------------- */

typedef enum {
    TM_X_STRING, /* text */
    TM_X_INT,    /* integer */
    TM_X_FLOAT,  /* real */
    TM_X_BOOL,   /* integer */
    TM_X_NONE,   /**/
    TM_X_NAME,   /* text */
    TM_X_LIST,   /* item */
    TM_X_TUPLE,  /* item */
    TM_X_DICT,   /* item: key, value, key, value */
    TM_X_MEMBER, /* a.text */
    TM_X_INDEX,  /* a[b] */
    TM_X_SLICE,  /* a[item0:item1:item2], NULL where absent */
    TM_X_CALL,   /* a(item, text = named) */
    TM_X_FILTER, /* a | text(item) */
    TM_X_TEST,   /* a is text(item); negated */
    TM_X_NOT,    /* a */
    TM_X_MINUS,  /* a */
    TM_X_BINARY, /* a operator b; the operator's text */
    TM_X_AND,    /* a b */
    TM_X_OR,     /* a b */
    TM_X_CHOICE  /* a if b else c (NULL) */
} tm_x_kind;

typedef struct tm_x tm_x;
typedef struct {
    const char *name; /* NULL: by position */
    tm_x       *value;
} tm_x_argument;

struct tm_x {
    tm_x_kind      kind;
    int            line, which; /* which: of a filter, test or operator in its table */
    bool           negated;
    const char    *text;
    size_t         length;
    int64_t        integer;
    double         real;
    tm_x          *a, *b, *c;
    tm_x_argument *item;
    size_t         n;
};

typedef enum {
    TM_S_TEXT,       /* text */
    TM_S_OUTPUT,     /* a */
    TM_S_IF,         /* a: condition, body, other */
    TM_S_FOR,        /* names, a: what is gone through, b: condition or NULL, body, other */
    TM_S_SET,        /* names or text.member, a; without a: body */
    TM_S_MACRO,      /* text, item: parameters, body */
    TM_S_GENERATION, /* body */
    TM_S_WITH,       /* item: names and values, body */
    TM_S_BREAK,
    TM_S_CONTINUE
} tm_s_kind;

typedef struct tm_s tm_s;
struct tm_s {
    tm_s_kind      kind;
    int            line;
    const char    *text, *member;
    size_t         length;
    const char   **names;
    size_t         n_names;
    tm_x          *a, *b;
    tm_x_argument *item;
    size_t         n;
    tm_s          *body, *other, *next;
};

struct tm_template {
    tm_arena   *arena;
    const char *name;
    tm_s       *body;
    bool        marks;
};

/* Tables of what there is: the number of a name, or -1. */
int tm_template_filter(const char *name);
int tm_template_test(const char *name);
int tm_template_method(const char *name);
int tm_template_operator(const char *text);

/* --- values ------------------------------------------------------------------------------------------------------- */

typedef enum {
    TM_V_UNDEFINED,
    TM_V_NONE,
    TM_V_BOOL,
    TM_V_INT,
    TM_V_FLOAT,
    TM_V_STRING,
    TM_V_LIST,
    TM_V_DICT,
    TM_V_NAMESPACE,
    TM_V_MACRO,
    TM_V_FUNCTION,
    TM_V_METHOD
} tm_v_kind;

/* What Python has where there is a list here: it is printed, compared and asked otherwise. */
typedef enum {
    TM_L_LIST,
    TM_L_TUPLE,
    TM_L_KEYS,
    TM_L_VALUES,
    TM_L_ITEMS,
    TM_L_RANGE, /* text: how it is shown; NULL: not known */
    TM_L_ONCE   /* an iterator: true, without length and text, empty when it was gone through */
} tm_l_form;

typedef struct tm_v   tm_v;
typedef struct tm_box tm_box; /* of lists and maps: shared */
struct tm_v {
    tm_v_kind   kind;
    tm_l_form   form;    /* of a list */
    int64_t     integer; /* also of a function or method: which; of a text: went through `safe` */
    double      real;
    const char *text; /* also the name of what is undefined */
    size_t      length;
    tm_box     *box; /* a map's keys and values take turns */
    const tm_s *macro;
    const tm_v *self; /* of a method */
};
struct tm_box {
    tm_v  *item;
    size_t n, capacity;
};

/* One rendering. Everything hangs on its arena. */
typedef struct tm_scope tm_scope;
typedef struct {
    const tm_template *tmpl;
    tm_arena          *arena;
    tm_error          *err;
    tm_scope          *scope;
    tm_text           *out;
    tm_template_spans *spans;
    int64_t            now;
    int                line, depth;
    bool               failed;
    bool               breaks, continues;
    int64_t            work;  /* steps so far */
    size_t             taken; /* bytes so far */
} tm_render;

/* Fails the rendering with the line; gives an undefined value. */
tm_v tm_render_fail(tm_render *r, tm_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Counts work. False, and the rendering fails, where it is too much. `over`: that of going over a text or its items. */
bool tm_render_work(tm_render *r, int64_t steps);
bool tm_render_over(tm_render *r, const tm_v *v);

/* From the rendering's arena. More than 512 MiB in all fails the rendering. */
void *tm_render_take(tm_render *r, size_t bytes);

tm_v        tm_v_string(tm_render *r, const char *text, size_t n);
tm_v        tm_v_list(tm_render *r);
tm_v        tm_v_list_as(tm_render *r, tm_l_form form);
tm_v        tm_v_dict(tm_render *r);
void        tm_v_append(tm_render *r, const tm_v *list, tm_v item);
void        tm_v_put(tm_render *r, const tm_v *dict, tm_v key, tm_v value);
const tm_v *tm_v_get(const tm_v *dict, const char *key, size_t n);    /* NULL: not there */
const tm_v *tm_v_at(tm_render *r, const tm_v *dict, const tm_v *key); /* the same by a key of any kind */
bool        tm_v_is(const tm_v *v, tm_l_form form);                   /* a list of that form? */
bool        tm_v_has_places(const tm_v *v);                           /* a list, tuple or range: it has an n-th item */
bool        tm_v_can_be_key(const tm_v *v);
/* Fails the rendering if `what` is done to a text that went through `safe`: Jinja escapes what is put together with it.
 */
bool tm_v_refuse_marked(tm_render *r, const tm_v *v, const char *what);
bool tm_v_true(const tm_v *v);
bool tm_v_equal(tm_render *r, const tm_v *a, const tm_v *b);
/* *order: -1, 0, 1; false: they have none. */
bool tm_v_compare(tm_render *r, const tm_v *a, const tm_v *b, int *order);
/* What a loop goes through: a map's keys, a text's characters. An iterator is empty then. */
tm_v tm_v_items(tm_render *r, const tm_v *v);
/* The first n of an iterator were taken; others keep theirs. */
void tm_v_took(const tm_v *v, size_t n);
tm_v tm_v_from_json(tm_render *r, const json_t *json);
/* As {{ }} shows it, and as Python shows it within a list. What Python shows by its address is refused. */
void tm_v_print(tm_render *r, const tm_v *v, tm_text *out);
void tm_v_show(tm_render *r, const tm_v *v, tm_text *out);
/* How json.dumps writes: ascii: letters beyond it are escaped; indent < 0: on one line; item, key: what is between
 * items, and between a key and its value. */
typedef struct {
    bool        ascii, sorted;
    int64_t     indent;
    const char *item, *key;
} tm_json_format;
void tm_v_json(tm_render *r, const tm_v *v, const tm_json_format *format, tm_text *out);

typedef struct {
    const tm_v *value; /* n by position */
    size_t      n;
    const tm_v *named; /* names and values take turns */
    size_t      n_named;
} tm_v_arguments;
/* By position or name; NULL: not given. */
const tm_v *tm_v_argument(const tm_v_arguments *arguments, size_t at, const char *name);

tm_v tm_render_filter(tm_render *r, int which, const tm_v *v, const tm_v_arguments *arguments);
bool tm_render_test(tm_render *r, int which, const tm_v *v, const tm_v_arguments *arguments);
tm_v tm_render_method(tm_render *r, int which, const tm_v *self, const tm_v_arguments *arguments);
/* v[at], undefined if there is none. */
tm_v tm_render_index(tm_render *r, const tm_v *v, const tm_v *at);
tm_v tm_render_binary(tm_render *r, int which, const tm_v *a, const tm_v *b);
/* a.name or a['name']; undefined if there is none. */
tm_v tm_render_member(tm_render *r, const tm_v *v, const char *name, size_t n);

#endif
