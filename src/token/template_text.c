/* SPDX-License-Identifier: Apache-2.0 */
#include "token/template_text.h"

#include <string.h>
#include <utf8proc.h>

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
    if (length > n) return NULL;
    return length == 0 ? in : memmem(in, n, what, length);
}

/* --- arguments ---------------------------------------------------------------------------------------------------- */

/* The place of a name in "width,first"; -1: it is not there. */
static int place_of(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0;; i++) {
        size_t length = strcspn(names, ",");
        if (length == n && strncmp(names, name, n) == 0) return i;
        if (!names[length]) return -1;
        names += length + 1;
    }
}

bool tm_v_bind(tm_render *r, const char *what, const char *names, size_t least, const tm_v_arguments *a,
               const tm_v *bound[TM_MOST_BOUND])
{
    size_t most = *names != '\0';
    for (const char *p = names; *p; p++) most += *p == ',';
    for (size_t i = 0; i < TM_MOST_BOUND; i++) bound[i] = i < a->n ? &a->value[i] : NULL;
    if (a->n > most)
        tm_render_fail(r, TM_INVALID, "'%s' takes %s%zu argument%s", what, most ? "at most " : "", most,
                       most == 1 ? "" : "s");
    for (size_t i = 0; i < a->n_named; i++) {
        const char *name = a->named[2 * i].text;
        int         at = *names == '/' ? -1 : place_of(names, name);
        if (at < 0)
            tm_render_fail(r, TM_UNSUPPORTED, "'%s' has no argument '%s'", what, name);
        else if (bound[at])
            tm_render_fail(r, TM_INVALID, "'%s' is given '%s' twice", what, name);
        else
            bound[at] = &a->named[2 * i + 1];
    }
    for (size_t i = 0; i < least; i++)
        if (!bound[i])
            tm_render_fail(r, TM_INVALID, "'%s' takes at least %zu argument%s", what, least, least == 1 ? "" : "s");
    return !r->failed;
}

int64_t tm_v_integer_or(tm_render *r, const char *what, const tm_v *v, int64_t other)
{
    if (!v || v->kind == TM_V_NONE) return other;
    if (v->kind != TM_V_INT && v->kind != TM_V_BOOL) tm_v_wants(r, what, "an integer there");
    return v->integer;
}

/* --- characters --------------------------------------------------------------------------------------------------- */

/* The character at p and its bytes; broken ones are one byte each. */
static int32_t letter_at(const char *p, const char *end, size_t *n)
{
    utf8proc_int32_t c;
    utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)p, (utf8proc_ssize_t)(end - p), &c);
    *n = length > 0 ? (size_t)length : 1;
    return length > 0 ? c : (unsigned char)*p;
}

static bool is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t tm_space_at(const char *p, const char *end)
{
    size_t n = 0;
    if (p == end || !is_space(letter_at(p, end, &n))) return 0;
    return n > 1 || (unsigned char)*p < 128 ? n : 0; /* a part of a character is none */
}

static const char *letter_before(const char *begin, const char *p)
{
    const char *at = p - 1;
    while (at > begin && p - at < 4 && ((unsigned char)*at & 0xC0) == 0x80) at--;
    return at;
}

size_t tm_space_before(const char *begin, const char *p)
{
    if (p == begin) return 0;
    const char *at = letter_before(begin, p);
    return tm_space_at(at, p) == (size_t)(p - at) ? (size_t)(p - at) : 0;
}

/* Is the character of n bytes one that goes? */
static bool goes(const char *p, size_t n, const tm_v *set)
{
    if (!set || set->kind != TM_V_STRING) return tm_space_at(p, p + n) == n;
    return tm_v_find(set->text, set->length, p, n) != NULL;
}

tm_v tm_v_strip(tm_render *r, const tm_v *v, const tm_v *set, bool left, bool right)
{
    tm_v   out = *v;
    size_t n;
    while (left && out.length > 0 && ((void)letter_at(out.text, out.text + out.length, &n), goes(out.text, n, set)))
        out.text += n, out.length -= n;
    while (right && out.length > 0) {
        const char *end = out.text + out.length, *at = letter_before(out.text, end);
        if (!goes(at, (size_t)(end - at), set)) break;
        out.length = (size_t)(at - out.text);
    }
    return out.length == v->length ? out : tm_v_string(r, out.text, out.length);
}

/* Letters whose other case is several letters, or depends on what is beside them. */
static bool is_special(int32_t c)
{
    static const int32_t from[][2] = { { 0xDF, 0xDF },     { 0x130, 0x131 },   { 0x149, 0x149 },   { 0x17F, 0x17F },
                                       { 0x1C4, 0x1CC },   { 0x1F0, 0x1F3 },   { 0x345, 0x345 },   { 0x390, 0x390 },
                                       { 0x3A3, 0x3A3 },   { 0x3B0, 0x3B0 },   { 0x3C2, 0x3C2 },   { 0x587, 0x587 },
                                       { 0x10D0, 0x10FF }, { 0x13A0, 0x13FF }, { 0x1C80, 0x1CBF }, { 0x1E96, 0x1E9E },
                                       { 0x1F50, 0x1FFF }, { 0xAB70, 0xABBF }, { 0xFB00, 0xFB17 } };
    for (size_t i = 0; i < sizeof from / sizeof from[0]; i++)
        if (c >= from[i][0] && c <= from[i][1]) return true;
    return c > 0xFFFF; /* younger scripts: not every table knows them */
}

static bool is_cased(int32_t c)
{
    return utf8proc_tolower(c) != c || utf8proc_toupper(c) != c;
}

/* Where the filter title begins a word: behind blanks and -({[<. */
static bool ends_word(int32_t c)
{
    return is_space(c) || (c < 128 && strchr("-({[<", c));
}

tm_v tm_v_letters(tm_render *r, const tm_v *v, tm_v_case how)
{
    tm_text     out = { 0 };
    bool        begins = true;
    const char *end = v->text + v->length;
    size_t      n;
    tm_text_add(&out, "");
    for (const char *p = v->text; p < end; p += n) {
        int32_t          c = letter_at(p, end, &n);
        bool             first = p == v->text, words = how == TM_CASE_TITLE || how == TM_CASE_WORDS;
        bool             up = how == TM_CASE_UPPER || (how == TM_CASE_CAPITAL && first) || (words && begins);
        utf8proc_uint8_t bytes[4];
        if (c >= 128 && is_special(c) && (is_cased(c) || c == 0xDF || utf8proc_category(c) <= UTF8PROC_CATEGORY_LO))
            tm_render_fail(r, TM_UNSUPPORTED, "upper and lower case of '%.*s' is not supported", (int)n, p);
        begins = how == TM_CASE_WORDS ? ends_word(c) : !is_cased(c);
        c = up ? utf8proc_toupper(c) : utf8proc_tolower(c);
        if (n == 1 && c >= 128)
            tm_text_add_n(&out, p, 1); /* a broken byte */
        else
            tm_text_add_n(&out, (const char *)bytes, (size_t)utf8proc_encode_char(c, bytes));
    }
    tm_v made = tm_v_string(r, out.data, out.length);
    tm_text_fini(&out);
    return made;
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

/* What is empty is found before every character and at the end. */
static tm_v put_between(tm_render *r, const tm_v *v, const tm_v *to, int64_t most)
{
    tm_text     out = { 0 };
    const char *end = v->text + v->length;
    tm_text_add(&out, "");
    for (const char *p = v->text; p <= end;) {
        size_t n = 0;
        if (most != 0) tm_text_add_n(&out, to->text, to->length);
        most -= most > 0;
        if (p == end) break;
        (void)letter_at(p, end, &n);
        tm_text_add_n(&out, p, n);
        p += n;
    }
    tm_v made = tm_v_string(r, out.data, out.length);
    tm_text_fini(&out);
    return made;
}

tm_v tm_v_replace(tm_render *r, const tm_v *v, const tm_v *from, const tm_v *to, int64_t most)
{
    tm_text     out = { 0 };
    const char *at = v->text, *end = v->text + v->length, *next;
    if (from->length == 0) return put_between(r, v, to, most);
    while (most != 0 && (next = tm_v_find(at, (size_t)(end - at), from->text, from->length))) {
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

static tm_v split_blanks(tm_render *r, const tm_v *v, int64_t most)
{
    tm_v        all = tm_v_list(r);
    const char *p = v->text, *end = p + v->length;
    size_t      n;
    for (;;) {
        while ((n = tm_space_at(p, end))) p += n;
        if (p == end) return all;
        const char *from = p;
        if (most == 0) break;
        while (p < end && !tm_space_at(p, end)) p++;
        tm_v_append(r, &all, tm_v_string(r, from, (size_t)(p - from)));
        most -= most > 0;
    }
    tm_v_append(r, &all, tm_v_string(r, p, (size_t)(end - p)));
    return all;
}

tm_v tm_v_split(tm_render *r, const tm_v *v, const tm_v *by, int64_t most)
{
    tm_v        all = tm_v_list(r);
    const char *at = v->text, *end = v->text + v->length, *next;
    if (!by || by->kind == TM_V_NONE) return split_blanks(r, v, most);
    if (by->kind != TM_V_STRING || by->length == 0) return tm_v_wants(r, "split", "a non-empty string");
    while (most != 0 && (next = tm_v_find(at, (size_t)(end - at), by->text, by->length))) {
        tm_v_append(r, &all, tm_v_string(r, at, (size_t)(next - at)));
        at = next + by->length;
        most -= most > 0;
    }
    tm_v_append(r, &all, tm_v_string(r, at, (size_t)(end - at)));
    return all;
}

/* Where `by` is found last before `end`, or white space; NULL: nowhere. *to: where it ends. */
static const char *cut_before(const char *begin, const char *end, const tm_v *by, const char **to)
{
    size_t n = by ? by->length : 0;
    for (const char *p = end; by && p - begin >= (ptrdiff_t)n; p--)
        if (memcmp(p - n, by->text, n) == 0) return *to = p, p - n;
    for (const char *p = end; !by && p > begin; p--) {
        size_t space = tm_space_before(begin, p);
        if (!space) continue;
        *to = p;
        while ((space = tm_space_before(begin, p))) p -= space;
        return p;
    }
    return NULL;
}

tm_v tm_v_split_back(tm_render *r, const tm_v *v, const tm_v *by, int64_t most)
{
    if (by && by->kind == TM_V_NONE) by = NULL;
    if (by && (by->kind != TM_V_STRING || by->length == 0)) return tm_v_wants(r, "rsplit", "a non-empty string");
    tm_v        of = by ? *v : tm_v_strip(r, v, NULL, false, true), back = tm_v_list(r), all = tm_v_list(r);
    const char *begin = of.text, *end = of.text + of.length, *at, *to;
    while (most != 0 && (at = cut_before(begin, end, by, &to)) && (by || at > begin)) {
        tm_v_append(r, &back, tm_v_string(r, to, (size_t)(end - to)));
        end = at;
        most -= most > 0;
    }
    tm_v rest = tm_v_string(r, begin, (size_t)(end - begin));
    if (!by && most != 0) rest = tm_v_strip(r, &rest, NULL, true, false);
    if (!by) rest = tm_v_strip(r, &rest, NULL, false, true);
    if (by || rest.length) tm_v_append(r, &back, rest);
    for (size_t i = back.box->n; i-- > 0;) tm_v_append(r, &all, back.box->item[i]);
    return all;
}

static bool ends_line(int32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

tm_v tm_v_lines(tm_render *r, const tm_v *v, bool ends)
{
    tm_v        all = tm_v_list(r);
    const char *from = v->text, *end = v->text + v->length;
    size_t      n;
    for (const char *p = from; p < end; p += n) {
        if (!ends_line(letter_at(p, end, &n))) continue;
        if (*p == '\r' && p + 1 < end && p[1] == '\n') n = 2;
        tm_v_append(r, &all, tm_v_string(r, from, (size_t)(p - from) + (ends ? n : 0)));
        from = p + n;
    }
    if (from < end) tm_v_append(r, &all, tm_v_string(r, from, (size_t)(end - from)));
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
