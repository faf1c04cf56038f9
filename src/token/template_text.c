/* SPDX-License-Identifier: Apache-2.0 */
#include "token/template_text.h"

#include <ctype.h>
#include <string.h>

int tm_v_number_of(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

tm_v tm_v_integer(int64_t value)
{
    return (tm_v){ .kind = TM_V_INT, .integer = value };
}

tm_v tm_v_wants(tm_render *r, const char *what, const char *wanted)
{
    return tm_render_fail(r, TM_INVALID, "'%s' takes %s", what, wanted);
}

/* The value as it is printed, for '~' and string. */
tm_v tm_v_as_text(tm_render *r, const tm_v *v)
{
    tm_text text = { 0 };
    tm_v_print(r, v, &text);
    tm_v made = tm_v_string(r, text.data, text.length);
    tm_text_fini(&text);
    return made;
}

tm_v tm_v_concatenated(tm_render *r, const tm_v *a, const tm_v *b)
{
    char *text = tm_render_take(r, a->length + b->length + 1);
    if (a->length) memcpy(text, a->text, a->length);
    if (b->length) memcpy(text + a->length, b->text, b->length);
    return (tm_v){ .kind = TM_V_STRING, .text = text, .length = a->length + b->length };
}

const char *tm_v_find(const char *in, size_t n, const char *what, size_t length)
{
    for (size_t i = 0; length <= n && i + length <= n; i++)
        if (memcmp(in + i, what, length) == 0) return in + i;
    return NULL;
}

static bool in_set(char c, const tm_v *set)
{
    if (!set || set->kind != TM_V_STRING) return isspace((unsigned char)c) || (c >= 28 && c <= 31);
    return set->length > 0 && memchr(set->text, c, set->length) != NULL;
}

/* left, right: which ends. `set`: bytes that go, NULL or none: blanks. */
tm_v tm_v_strip(const tm_v *v, const tm_v *set, bool left, bool right)
{
    tm_v out = *v;
    while (left && out.length > 0 && in_set(out.text[0], set)) out.text++, out.length--;
    while (right && out.length > 0 && in_set(out.text[out.length - 1], set)) out.length--;
    return out;
}

/* Of ASCII texts: the cases of other letters are not known here, and not guessed. */
tm_v tm_v_letters(tm_render *r, const tm_v *v, tm_v_case how)
{
    for (size_t i = 0; i < v->length; i++)
        if ((unsigned char)v->text[i] >= 128)
            return tm_render_fail(r, TM_UNSUPPORTED,
                                  "upper and lower case of '%.60s' is not built: letters beyond ASCII", v->text);
    char *text = tm_arena_text_n(r->arena, v->text, v->length);
    bool  begins = true;
    for (size_t i = 0; i < v->length; i++) {
        unsigned char c = (unsigned char)text[i];
        bool up = how == TM_CASE_UPPER || (how == TM_CASE_CAPITAL && i == 0) || (how == TM_CASE_TITLE && begins);
        if (c < 128) text[i] = (char)(up ? toupper(c) : tolower(c));
        begins = c < 128 && !isalpha(c);
    }
    return (tm_v){ .kind = TM_V_STRING, .text = text, .length = v->length };
}

tm_v tm_v_replace(tm_render *r, const tm_v *v, const tm_v *from, const tm_v *to, int64_t most)
{
    tm_text     out = { 0 };
    const char *at = v->text, *end = v->text + v->length, *next;
    while (most != 0 && from->length > 0 && (next = tm_v_find(at, (size_t)(end - at), from->text, from->length))) {
        tm_text_add_n(&out, at, (size_t)(next - at));
        tm_text_add_n(&out, to->text, to->length);
        at = next + from->length;
        most -= most > 0;
    }
    tm_text_add_n(&out, at, (size_t)(end - at));
    tm_v made = tm_v_string(r, out.data, out.length);
    tm_text_fini(&out);
    return made;
}

static tm_v split_blanks(tm_render *r, const tm_v *v)
{
    tm_v   all = tm_v_list(r);
    size_t i = 0;
    while (i < v->length) {
        while (i < v->length && isspace((unsigned char)v->text[i])) i++;
        size_t from = i;
        while (i < v->length && !isspace((unsigned char)v->text[i])) i++;
        if (i > from) tm_v_append(r, &all, tm_v_string(r, v->text + from, i - from));
    }
    return all;
}

tm_v tm_v_split(tm_render *r, const tm_v *v, const tm_v *by, int64_t most)
{
    tm_v        all = tm_v_list(r);
    const char *at = v->text, *end = v->text + v->length, *next;
    if (!by || by->kind == TM_V_NONE) return split_blanks(r, v);
    if (by->kind != TM_V_STRING || by->length == 0) return tm_v_wants(r, "split", "a non-empty string");
    while (most != 0 && (next = tm_v_find(at, (size_t)(end - at), by->text, by->length))) {
        tm_v_append(r, &all, tm_v_string(r, at, (size_t)(next - at)));
        at = next + by->length;
        most -= most > 0;
    }
    tm_v_append(r, &all, tm_v_string(r, at, (size_t)(end - at)));
    return all;
}

tm_v tm_v_join(tm_render *r, const tm_v *list, const tm_v *between)
{
    tm_text out = { 0 };
    tm_v    all = tm_v_items(r, list);
    if (r->failed) return all;
    tm_text_add(&out, "");
    for (size_t i = 0; i < all.box->n; i++) {
        if (i && between) tm_text_add_n(&out, between->text, between->length);
        tm_v_print(r, &all.box->item[i], &out);
    }
    tm_v made = tm_v_string(r, out.data, out.length);
    tm_text_fini(&out);
    return made;
}

/* Pairs, keys or values of a map, as its methods give them. */
tm_v tm_v_parts(tm_render *r, tm_v_part which, const tm_v *v)
{
    tm_v all = tm_v_list_as(r, which == TM_PARTS_ITEMS ? TM_L_ITEMS : which == TM_PARTS_KEYS ? TM_L_KEYS : TM_L_VALUES);
    for (size_t i = 0; i < v->box->n; i += 2) {
        tm_v pair = tm_v_list_as(r, TM_L_TUPLE);
        if (which == TM_PARTS_ITEMS) {
            tm_v_append(r, &pair, v->box->item[i]);
            tm_v_append(r, &pair, v->box->item[i + 1]);
        }
        tm_v_append(r, &all, which == TM_PARTS_ITEMS ? pair : v->box->item[which == TM_PARTS_KEYS ? i : i + 1]);
    }
    return all;
}
