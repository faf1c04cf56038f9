/* SPDX-License-Identifier: Apache-2.0 */
/* token/template_parse.c - a chat template into a tree. The text is cut into what stands outside and inside of tags
 * with Jinja's rules for blanks (trim_blocks, lstrip_blocks, '-' and '+' at the ends of tags). */
#include "token/template_parser.h"

#include <stdlib.h>
#include <string.h>

static tm_s *block(tm_tmpl_parser *p, const char *const *ends, const char **ended);

static tm_s *statement(tm_tmpl_parser *p, tm_s_kind kind)
{
    tm_s *s = tm_arena_take(p->arena, sizeof *s);
    *s = (tm_s){ .kind = kind, .line = p->line };
    return s;
}

static void end_of_tag(tm_tmpl_parser *p)
{
    if (p->token.kind != TM_TMPL_END)
        tm_tmpl_fail(p, TM_FORMAT, "the end of the tag is expected, found '%.40s'", p->token.text);
}

static tm_s *if_statement(tm_tmpl_parser *p)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL }, *const last[] = { "endif", NULL };
    const char *ended = NULL;
    tm_s       *s = statement(p, TM_S_IF);
    s->a = tm_tmpl_tuple(p, tm_tmpl_expression);
    end_of_tag(p);
    s->body = block(p, ends, &ended);
    if (p->failed || !ended) return s;
    if (strcmp(ended, "elif") == 0) {
        s->other = if_statement(p);
    } else {
        end_of_tag(p);
        if (strcmp(ended, "else") == 0) {
            s->other = block(p, last, &ended);
            end_of_tag(p);
        }
    }
    return s;
}

static void add_name(tm_tmpl_parser *p, tm_s *s, const char *name)
{
    const char **more = tm_arena_take(p->arena, (s->n_names + 1) * sizeof *more);
    if (s->n_names) memcpy(more, s->names, s->n_names * sizeof *more);
    more[s->n_names++] = name;
    s->names = more;
}

static void names(tm_tmpl_parser *p, tm_s *s)
{
    bool open = tm_tmpl_take(p, "(");
    do add_name(p, s, tm_tmpl_want_name(p));
    while (!p->failed && tm_tmpl_take(p, ","));
    if (open) tm_tmpl_want(p, ")");
}

static tm_s *for_statement(tm_tmpl_parser *p)
{
    static const char *const ends[] = { "else", "endfor", NULL }, *const last[] = { "endfor", NULL };
    const char *ended = NULL;
    tm_s       *s = statement(p, TM_S_FOR);
    names(p, s);
    tm_tmpl_want(p, "in");
    s->a = tm_tmpl_tuple(p, tm_tmpl_or); /* "if" behind it is the loop's own */
    if (tm_tmpl_take(p, "if")) s->b = tm_tmpl_expression(p);
    if (tm_tmpl_is(p, "recursive")) return tm_tmpl_fail(p, TM_UNSUPPORTED, "recursive loops are not supported");
    end_of_tag(p);
    p->loops++;
    s->body = block(p, ends, &ended);
    p->loops--;
    end_of_tag(p);
    if (ended && strcmp(ended, "else") == 0) {
        s->other = block(p, last, &ended);
        end_of_tag(p);
    }
    return s;
}

static tm_s *set_statement(tm_tmpl_parser *p)
{
    static const char *const ends[] = { "endset", NULL };
    const char              *ended;
    tm_s                    *s = statement(p, TM_S_SET);
    names(p, s);
    if (s->n_names == 1 && tm_tmpl_take(p, ".")) s->member = tm_tmpl_want_name(p);
    if (tm_tmpl_take(p, "=")) {
        s->a = tm_tmpl_tuple(p, tm_tmpl_expression);
        end_of_tag(p);
        return s;
    }
    if (s->n_names != 1 || s->member)
        return tm_tmpl_fail(p, TM_FORMAT, "'=' is expected, found '%.40s'", p->token.text);
    end_of_tag(p);
    s->body = block(p, ends, &ended);
    end_of_tag(p);
    return s;
}

static tm_s *macro_statement(tm_tmpl_parser *p)
{
    static const char *const ends[] = { "endmacro", NULL };
    const char              *ended;
    tm_s                    *s = statement(p, TM_S_MACRO);
    tm_x                    *parameters = tm_tmpl_node(p, TM_X_LIST, NULL, NULL);
    s->text = tm_tmpl_want_name(p);
    tm_tmpl_want(p, "(");
    while (!p->failed && !tm_tmpl_is(p, ")")) {
        const char *name = tm_tmpl_want_name(p);
        tm_tmpl_add(p, parameters, name, tm_tmpl_take(p, "=") ? tm_tmpl_expression(p) : NULL);
        if (!tm_tmpl_take(p, ",")) break;
    }
    tm_tmpl_want(p, ")");
    end_of_tag(p);
    s->item = parameters->item;
    s->n = parameters->n;
    int loops = p->loops;
    p->loops = 0;
    s->body = block(p, ends, &ended);
    p->loops = loops;
    end_of_tag(p);
    return s;
}

static tm_s *generation_statement(tm_tmpl_parser *p)
{
    static const char *const ends[] = { "endgeneration", NULL };
    const char              *ended;
    tm_s                    *s = statement(p, TM_S_GENERATION);
    end_of_tag(p);
    s->body = block(p, ends, &ended);
    end_of_tag(p);
    p->marks = true;
    return s;
}

static tm_s *with_statement(tm_tmpl_parser *p)
{
    static const char *const ends[] = { "endwith", NULL };
    const char              *ended;
    tm_s                    *s = statement(p, TM_S_WITH);
    tm_x                    *values = tm_tmpl_node(p, TM_X_LIST, NULL, NULL);
    while (!p->failed && p->token.kind != TM_TMPL_END) {
        const char *name = tm_tmpl_want_name(p);
        tm_tmpl_want(p, "=");
        tm_tmpl_add(p, values, name, tm_tmpl_expression(p));
        if (!tm_tmpl_take(p, ",")) break;
    }
    end_of_tag(p);
    s->item = values->item;
    s->n = values->n;
    s->body = block(p, ends, &ended);
    end_of_tag(p);
    return s;
}

static tm_s *leave_statement(tm_tmpl_parser *p, tm_s_kind kind, const char *word)
{
    if (p->loops == 0) return tm_tmpl_fail(p, TM_FORMAT, "'%s' stands outside of a loop", word);
    end_of_tag(p);
    return statement(p, kind);
}

/* Behind "{%": a statement, or NULL at one of the ends, which *ended then is. */
static tm_s *tag(tm_tmpl_parser *p, const char *const *ends, const char **ended)
{
    const char *word = tm_tmpl_want_name(p);
    tm_s       *s = NULL;
    if (!word) return NULL;
    for (; *ends; ends++)
        if (strcmp(word, *ends) == 0) {
            *ended = *ends;
            return NULL;
        }
    if (++p->depth > TM_TMPL_MAX_DEPTH)
        return tm_tmpl_fail(p, TM_UNSUPPORTED, "blocks are nested more than %d deep", TM_TMPL_MAX_DEPTH);
    if (strcmp(word, "if") == 0)
        s = if_statement(p);
    else if (strcmp(word, "for") == 0)
        s = for_statement(p);
    else if (strcmp(word, "set") == 0)
        s = set_statement(p);
    else if (strcmp(word, "macro") == 0)
        s = macro_statement(p);
    else if (strcmp(word, "generation") == 0)
        s = generation_statement(p);
    else if (strcmp(word, "with") == 0)
        s = with_statement(p);
    else if (strcmp(word, "break") == 0 || strcmp(word, "continue") == 0)
        s = leave_statement(p, *word == 'b' ? TM_S_BREAK : TM_S_CONTINUE, word);
    else if (strncmp(word, "end", 3) == 0 || strcmp(word, "else") == 0 || strcmp(word, "elif") == 0)
        tm_tmpl_fail(p, TM_FORMAT, "'%s' has no beginning", word);
    else
        tm_tmpl_fail(p, TM_UNSUPPORTED, "the tag '%s' is not supported", word);
    p->depth--;
    return s;
}

/* The text up to the next tag. NULL: there is none. */
static tm_s *text_statement(tm_tmpl_parser *p)
{
    const char *from = p->at, *to = from;
    bool        begins = p->line_begins;
    while (to < p->end && !(to[0] == '{' && to + 1 < p->end && strchr("{%#", to[1]))) to++;
    tm_tmpl_skip(p, (size_t)(to - from));
    if (to < p->end) {
        char kind = to[1], sign = to + 2 < p->end ? to[2] : ' ';
        if (sign == '-') {
            for (size_t n; (n = tm_space_before(from, to));) to -= n;
        } else if (kind != '{' && sign != '+') {
            const char *blank = to;
            for (size_t n; (n = tm_space_before(from, blank)) && blank[-1] != '\n';) blank -= n;
            if (blank == from ? begins : blank[-1] == '\n') to = blank;
        }
    }
    if (to == from) return NULL;
    tm_s *s = statement(p, TM_S_TEXT);
    s->text = tm_arena_text_n(p->arena, from, (size_t)(to - from));
    s->length = (size_t)(to - from);
    return s;
}

static void comment(tm_tmpl_parser *p)
{
    while (p->at < p->end && !tm_tmpl_at(p, "#}")) tm_tmpl_skip(p, 1);
    if (p->at == p->end) {
        tm_tmpl_fail(p, TM_FORMAT, "a comment has no end");
        return;
    }
    p->at -= p->at[-1] == '-' || p->at[-1] == '+';
    p->tag = '#';
    p->open = 0;
    tm_tmpl_tag_ends(p);
}

/* Statements up to a tag of one of the names, whose rest is left; *ended: which. Of the whole template: to its end. */
static tm_s *block(tm_tmpl_parser *p, const char *const *ends, const char **ended)
{
    tm_s *first = NULL, **last = &first;
    *ended = NULL;
    while (!p->failed) {
        tm_s *s = text_statement(p);
        if (s) *last = s, last = &s->next;
        if (p->at == p->end) {
            if (*ends) tm_tmpl_fail(p, TM_FORMAT, "'%s' is missing", ends[0]);
            break;
        }
        char kind = p->at[1];
        tm_tmpl_skip(p, 2);
        if (kind == '#') {
            comment(p);
            continue;
        }
        p->tag = kind == '{' ? '{' : '%';
        p->open = 0;
        if (p->at < p->end && (*p->at == '-' || *p->at == '+')) tm_tmpl_skip(p, 1);
        tm_tmpl_advance(p);
        if (kind == '{') {
            s = statement(p, TM_S_OUTPUT);
            s->a = tm_tmpl_tuple(p, tm_tmpl_expression);
            end_of_tag(p);
        } else {
            s = tag(p, ends, ended);
            if (*ended) break;
        }
        if (s) *last = s, last = &s->next;
    }
    return first;
}

tm_status tm_template_parse(const char *name, const char *text, size_t bytes, tm_template **out, tm_error *err)
{
    static const char *const no_end[] = { NULL };
    const char              *ended;
    tm_template             *t = tm_alloc(sizeof *t);
    *out = NULL;
    *t = (tm_template){ .arena = tm_arena_create() };
    t->name = tm_arena_text(t->arena, name);
    char  *copy = tm_arena_text_n(t->arena, text, bytes);
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) { /* \r\n and \r are \n */
        if (copy[i] == '\r' && i + 1 < bytes && copy[i + 1] == '\n') continue;
        copy[n++] = copy[i] == '\r' ? '\n' : copy[i];
    }
    if (n > 0 && copy[n - 1] == '\n') n--;
    copy[n] = '\0';
    tm_tmpl_parser p = {
        .arena = t->arena, .err = err, .name = t->name, .at = copy, .end = copy + n, .line = 1, .line_begins = true
    };
    t->body = block(&p, no_end, &ended);
    t->marks = p.marks;
    if (p.failed) {
        tm_template_free(t);
        return p.status;
    }
    *out = t;
    return TM_OK;
}

void tm_template_free(tm_template *tmpl)
{
    if (!tmpl) return;
    tm_arena_destroy(tmpl->arena);
    free(tmpl);
}

bool tm_template_marks_generation(const tm_template *tmpl)
{
    return tmpl->marks;
}
