/* SPDX-License-Identifier: Apache-2.0 */
#include "token/regex.h"

#include "base/arena.h"
#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct tm_regex {
    pcre2_code *code;
    char       *pattern; /* as the file has it, for messages */
};

struct tm_regex_match {
    pcre2_match_data    *data;
    pcre2_match_context *context;
    pcre2_jit_stack     *stack;
};

typedef struct {
    const char      *pattern, *where;
    size_t           n, at;
    tm_regex_dialect dialect;
    bool             in_class, after_interval;
    tm_text          out;
    tm_error        *err;
} translation;

static tm_status refuse(translation *t, const char *what, size_t bytes)
{
    return tm_fail(t->err, TM_UNSUPPORTED, "%s: '%.*s' in the regular expression '%.*s' is not supported", t->where,
                   (int)bytes, what, t->n > 200 ? 200 : (int)t->n, t->pattern);
}

/* White_Space; pcre2's own \s has U+180E besides. */
static void add_space(translation *t, bool negated)
{
    static const char set[] = "\\x{9}-\\x{d}\\x{85}\\p{Z}";
    tm_text_printf(&t->out, t->in_class ? "%s%s" : negated ? "[^%s%s]" : "[%s%s]", set, "");
}

/* Assigned after Unicode 14: pcre2 of this machine may not know them, and the reference libraries do. */
static const struct {
    uint32_t first, last;
    char     category[3];
} newer[] = {
#define TM_NEW(first, last, category) { first, last, #category },
#include "token/unicode.def"
#undef TM_NEW
};

/* \p{L}, \p{Lu}, \P{L}: with the newer code points. */
static tm_status translate_property(translation *t, const char *name, size_t n, bool negated)
{
    bool category = (n == 1 || (n == 2 && strchr("acdefiklmnopstu", name[1]))) && strchr("LMNPSZC", name[0]);
    if (negated && t->in_class) return refuse(t, name, n);
    if (!category) {
        tm_text_printf(&t->out, "\\%c{%.*s}", negated ? 'P' : 'p', (int)n, name);
        return TM_OK;
    }
    tm_text_printf(&t->out, "%s\\p{%.*s}", t->in_class ? "" : negated ? "[^" : "[", (int)n, name);
    for (size_t i = 0; i < sizeof newer / sizeof newer[0]; i++)
        if (memcmp(newer[i].category, name, n) == 0)
            tm_text_printf(&t->out, "\\x{%x}-\\x{%x}", newer[i].first, newer[i].last);
    if (!t->in_class) tm_text_add(&t->out, "]");
    return TM_OK;
}

static tm_status translate_escape(translation *t)
{
    const char *p = t->pattern + t->at;
    size_t      left = t->n - t->at;
    if (left < 2) return refuse(t, p, left);
    if (p[1] == 's' || (p[1] == 'S' && !t->in_class)) {
        add_space(t, p[1] == 'S');
        t->at += 2;
        return TM_OK;
    }
    if (p[1] == 'u' && left >= 6) {
        tm_text_printf(&t->out, "\\x{%.4s}", p + 2);
        t->at += 6;
        return TM_OK;
    }
    bool plain = strchr("dDrntf", p[1]) || (ispunct((unsigned char)p[1]) && (unsigned char)p[1] < 0x80);
    bool braced = (p[1] == 'p' || p[1] == 'P' || p[1] == 'x') && left > 2 && p[2] == '{' && memchr(p, '}', left);
    if (p[1] == 0 || (!plain && !braced)) return refuse(t, p, 2);
    size_t n = braced ? (size_t)((const char *)memchr(p, '}', left) - p) + 1 : 2;
    t->at += n;
    if (p[1] == 'p' || p[1] == 'P') return translate_property(t, p + 3, n - 4, p[1] == 'P');
    tm_text_add_n(&t->out, p, n);
    return TM_OK;
}

static tm_status translate_group(translation *t)
{
    static const char *const known[] = { "(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i)" };
    const char              *p = t->pattern + t->at;
    size_t                   left = t->n - t->at;
    if (left < 2 || (p[1] != '?' && p[1] != '*')) {
        tm_text_add_n(&t->out, p, 1);
        t->at++;
        return TM_OK;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t n = strlen(known[i]);
        if (left < n || memcmp(p, known[i], n) != 0) continue;
        tm_text_add_n(&t->out, p, n);
        t->at += n;
        return TM_OK;
    }
    return refuse(t, p, left < 4 ? left : 4);
}

/* {1,3}: Ruby's {1,3}+ repeats what pcre2 would not give back. */
static tm_status translate_brace(translation *t)
{
    const char *p = t->pattern + t->at, *end = memchr(p, '}', t->n - t->at);
    if (!end) return refuse(t, p, 1);
    size_t n = (size_t)(end - p) + 1;
    if (t->dialect == TM_REGEX_RUBY && t->at + n < t->n && end[1] == '+') return refuse(t, p, n + 1);
    tm_text_add_n(&t->out, p, n);
    t->at += n;
    return TM_OK;
}

static tm_status translate_one(translation *t)
{
    const char *p = t->pattern + t->at;
    if (*p == 0) return refuse(t, "NUL", 3);
    if (*p == '\\') return translate_escape(t);
    if (!t->in_class && *p == '(') return translate_group(t);
    if (!t->in_class && *p == '{') return translate_brace(t);
    if (t->in_class && *p == '[') return refuse(t, p, 1);
    if (t->in_class && *p == '&' && t->at + 1 < t->n && p[1] == '&') return refuse(t, p, 2);
    size_t n = 1;
    if (!t->in_class && *p == '[') {
        t->in_class = true;
        if (t->at + 1 < t->n && p[1] == '^') n = 2;
        if (t->at + n < t->n && p[n] == ']') return refuse(t, p, n + 1);
    } else if (t->in_class && *p == ']') {
        t->in_class = false;
    }
    tm_text_add_n(&t->out, p, n);
    t->at += n;
    return TM_OK;
}

static tm_status translate(translation *t)
{
    while (t->at < t->n) TM_TRY(translate_one(t));
    tm_text_add(&t->out, "");
    return TM_OK;
}

static tm_status compile(translation *t, tm_regex *regex)
{
    uint32_t flags = PCRE2_UTF | PCRE2_NO_UTF_CHECK;
    if (t->dialect == TM_REGEX_LITERAL) {
        tm_text_add_n(&t->out, t->pattern, t->n);
        flags |= PCRE2_LITERAL;
    } else {
        TM_TRY(translate(t));
        flags |= PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C |
                 (t->dialect == TM_REGEX_RUBY ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY);
    }
    int        code;
    PCRE2_SIZE at;
    regex->code = pcre2_compile((PCRE2_SPTR)t->out.data, t->out.length, flags, &code, &at, NULL);
    if (!regex->code) {
        PCRE2_UCHAR reason[160];
        pcre2_get_error_message(code, reason, sizeof reason);
        return tm_fail(t->err, TM_FORMAT, "%s: cannot read the regular expression '%.*s': %s", t->where,
                       t->n > 200 ? 200 : (int)t->n, t->pattern, (const char *)reason);
    }
    uint32_t empty = 0;
    pcre2_pattern_info(regex->code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty) {
        pcre2_code_free(regex->code);
        return tm_fail(t->err, TM_UNSUPPORTED, "%s: the regular expression '%.*s' matches an empty text", t->where,
                       t->n > 200 ? 200 : (int)t->n, t->pattern);
    }
    pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE); /* without it the interpreter gives the same matches */
    return TM_OK;
}

tm_status tm_regex_compile(const char *pattern, size_t bytes, tm_regex_dialect dialect, const char *where,
                           tm_regex **out, tm_error *err)
{
    translation t = { .pattern = pattern, .where = where, .n = bytes, .dialect = dialect, .err = err };
    tm_regex   *regex = tm_alloc(sizeof *regex);
    for (size_t i = 0; i < bytes;) { /* pcre2 is not asked to check */
        char four[5] = { 0 };
        memcpy(four, pattern + i, bytes - i < 4 ? bytes - i : 4);
        size_t n = tm_utf8_length((const unsigned char *)four);
        if (n == 0 || i + n > bytes) {
            free(regex);
            return tm_fail(err, TM_FORMAT, "%s: the regular expression is not UTF-8", where);
        }
        i += n;
    }
    tm_status st = compile(&t, regex);
    tm_text_fini(&t.out);
    if (st != TM_OK) {
        free(regex);
        return st;
    }
    regex->pattern = tm_alloc(bytes + 1);
    memcpy(regex->pattern, pattern, bytes);
    *out = regex;
    return TM_OK;
}

void tm_regex_free(tm_regex *regex)
{
    if (!regex) return;
    pcre2_code_free(regex->code);
    free(regex->pattern);
    free(regex);
}

tm_regex_match *tm_regex_match_create(void)
{
    tm_regex_match *match = tm_alloc(sizeof *match);
    match->data = pcre2_match_data_create(64, NULL);
    match->context = pcre2_match_context_create(NULL);
    match->stack = pcre2_jit_stack_create(32 * 1024, 4 << 20, NULL);
    TM_ASSERT(match->data && match->context && match->stack);
    pcre2_jit_stack_assign(match->context, NULL, match->stack);
    return match;
}

void tm_regex_match_free(tm_regex_match *match)
{
    if (!match) return;
    pcre2_jit_stack_free(match->stack);
    pcre2_match_context_free(match->context);
    pcre2_match_data_free(match->data);
    free(match);
}

tm_status tm_regex_next(const tm_regex *regex, tm_regex_match *match, const char *text, size_t n, size_t at,
                        size_t *from, size_t *to, tm_error *err)
{
    int found = at < n
                    ? pcre2_match(regex->code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, match->data, match->context)
                    : PCRE2_ERROR_NOMATCH;
    *from = *to = n;
    if (found == PCRE2_ERROR_NOMATCH) return TM_OK;
    if (found < 0) {
        PCRE2_UCHAR reason[160];
        pcre2_get_error_message(found, reason, sizeof reason);
        return tm_fail(err, TM_INVALID,
                       "the tokenizer's regular expression '%.200s' gave up on a text of %zu bytes: %s", regex->pattern,
                       n, (const char *)reason);
    }
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(match->data);
    *from = span[0];
    *to = span[1];
    TM_ASSERT(*to > *from); /* else it would not have been compiled */
    return TM_OK;
}
