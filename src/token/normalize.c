/* SPDX-License-Identifier: Apache-2.0 */
/* token/normalize.c - the steps that change a text before it is cut into words. */
#include "token/charsmap.h"
#include "token/internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* --- Unicode's normal forms --------------------------------------------------------------------------------------- */

/* Is this character its own normal form in any neighbourhood, and does it join nothing before it? A sure "yes" only. */
static bool is_stable(uint32_t c, bool composed)
{
    if (c < 0x80) return true;
    if (!composed) return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3041 && c <= 0x304A);
    return c < 0x300 || (c >= 0x410 && c <= 0x418) || (c >= 0x41A && c <= 0x481) || (c >= 0x4E00 && c <= 0x9FFF) ||
           (c >= 0x3041 && c <= 0x3096) || (c >= 0x30A1 && c <= 0x30FA);
}

static tm_status normal_form(const char *text, size_t n, int options, tm_text *out, tm_error *err)
{
    utf8proc_uint8_t *result = NULL;
    utf8proc_ssize_t  bytes =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &result, (utf8proc_option_t)options);
    if (bytes < 0) {
        free(result);
        return tm_fail(err, TM_INTERNAL, "normalizing %zu bytes failed: %s", n, utf8proc_errmsg(bytes));
    }
    tm_text_add_n(out, (const char *)result, (size_t)bytes);
    free(result);
    return TM_OK;
}

/* Younger than the normal forms of the reference library, for which it is a character like any other; and U+11A7, which
 * joins nothing, but which utf8proc 2.8 drops behind a Hangul syllable. */
static bool is_late(uint32_t c)
{
    if (c == 0x11A7) return true;
    static const struct {
        uint32_t first, last;
    } late[] = {
#define TM_LATE(first, last, group) { first, last },
#include "token/unicode.def"
#undef TM_LATE
    };
    size_t low = 0, high = sizeof late / sizeof late[0];
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (late[mid].last < c)
            low = mid + 1;
        else
            high = mid;
    }
    return low < sizeof late / sizeof late[0] && late[low].first <= c;
}

/* Only what is between stable characters goes through the library, the stable one before it included. */
static tm_status normalize_form(const char *text, size_t n, int options, bool composed, tm_text *out, tm_error *err)
{
    size_t kept = 0, last = 0; /* up to `kept` it is in *out; what is normalized next may begin at `last` */
    for (size_t at = 0; at < n;) {
        size_t   length;
        uint32_t c = tm_utf8_at((const uint8_t *)text + at, &length);
        bool     late = c > 0x7F0 && is_late(c);
        if (late || is_stable(c, composed)) {
            last = late ? at + length : at;
            at += length;
            continue;
        }
        for (at += length; at < n; at += length) {
            c = tm_utf8_at((const uint8_t *)text + at, &length);
            if (is_stable(c, composed) || (c > 0x7F0 && is_late(c))) break;
        }
        tm_text_add_n(out, text + kept, last - kept);
        TM_TRY(normal_form(text + last, at - last, options, out, err));
        kept = last = at;
    }
    tm_text_add_n(out, text + kept, n - kept);
    return TM_OK;
}

static bool is_ascii(const char *text, size_t n)
{
    uint64_t seen = 0, part;
    size_t   i = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(&part, text + i, 8);
        seen |= part;
    }
    for (; i < n; i++) seen |= (uint64_t)(uint8_t)text[i];
    return !(seen & 0x8080808080808080u);
}

/* --- the others --------------------------------------------------------------------------------------------------- */

static void add_char(tm_text *out, uint32_t c)
{
    utf8proc_uint8_t bytes[4];
    utf8proc_ssize_t n = utf8proc_encode_char((utf8proc_int32_t)c, bytes);
    tm_text_add_n(out, (const char *)bytes, (size_t)n);
}

/* utf8proc's, and those of letters that it may be too old for. */
static uint32_t small_letter(uint32_t c)
{
#define TM_LOWER(first, last, distance)                                                                                \
    if (c >= (first) && c <= (last)) return (uint32_t)((int32_t)c + (distance));
#include "token/unicode.def"
#undef TM_LOWER
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
}

static void lower(const char *text, size_t n, tm_text *out)
{
    for (size_t at = 0, length; at < n; at += length) {
        uint32_t c = tm_utf8_at((const uint8_t *)text + at, &length);
        if (c == 0x130) /* the only letter that becomes two: i and a dot */
            tm_text_add(out, "i\xCC\x87");
        else if (c < 0x80)
            add_char(out, c >= 'A' && c <= 'Z' ? c + 32 : c);
        else
            add_char(out, small_letter(c));
    }
}

static tm_status replace(tm_token_encoder *e, const tm_normal *step, const char *text, size_t n, tm_text *out,
                         tm_error *err)
{
    size_t at = 0;
    while (at < n && tm_fits(e, out)) {
        size_t from = n, to = n;
        if (step->regex) {
            TM_TRY(tm_regex_next(step->regex, e->match, text, n, at, &from, &to, err));
        } else {
            const char *found = memmem(text + at, n - at, step->find, step->find_length);
            if (found) from = (size_t)(found - text);
            if (found) to = from + step->find_length;
        }
        tm_text_add_n(out, text + at, from - at);
        if (from < to) tm_text_add_n(out, step->text, step->length);
        at = to;
    }
    return TM_OK;
}

static void strip(const tm_normal *step, const char *text, size_t n, tm_text *out)
{
    size_t from = 0, to = n, length;
    while (step->left && from < to && tm_is_white_space(tm_utf8_at((const uint8_t *)text + from, &length)))
        from += length;
    while (step->right && to > from) {
        size_t last = to;
        do last--;
        while (last > from && ((uint8_t)text[last] & 0xC0) == 0x80);
        if (!tm_is_white_space(tm_utf8_at((const uint8_t *)text + last, &length))) break;
        to = last;
    }
    tm_text_add_n(out, text + from, to - from);
}

/* As the `tokenizers` library reads a charsmap: grapheme clusters below six bytes are looked up as one, else, or if
 * they are not there, their characters; a string counts as found if any beginning of it is, the shortest one. */
static void map_graphemes(const tm_token_encoder *e, const tm_charsmap *map, const char *text, size_t n, tm_text *out)
{
    for (size_t at = 0; at < n && tm_fits(e, out);) {
        utf8proc_int32_t state = 0;
        size_t           length, end = at, used, bytes;
        uint32_t         c = tm_utf8_at((const uint8_t *)text + at, &length);
        for (end = at + length; end < n; end += length) {
            uint32_t next = tm_utf8_at((const uint8_t *)text + end, &length);
            if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next, &state)) break;
            c = next;
        }
        const char *found = end - at < 6 ? tm_charsmap_find(map, text + at, end - at, true, &used, &bytes) : NULL;
        if (found) {
            tm_text_add_n(out, found, bytes);
            at = end;
            continue;
        }
        for (; at < end; at += length) {
            length = tm_char_bytes(text + at);
            found = tm_charsmap_find(map, text + at, length, true, &used, &bytes);
            tm_text_add_n(out, found ? found : text + at, found ? bytes : length);
        }
    }
}

/* The length of the character at s, 0 if it is not UTF-8. */
static size_t valid_char(const char *s, size_t n)
{
    unsigned char four[5] = { 0 };
    if ((uint8_t)*s < 0x80) return 1;
    memcpy(four, s, n < 4 ? n : 4);
    return tm_utf8_length(four);
}

/* SentencePiece's own: the longest replacement at each place; blanks at both ends and repeated ones fall out, a blank
 * is put in front, and blanks are written as U+2581. User-defined symbols stay as they are. The text need not be UTF-8,
 * unlike everywhere else. */
static void sentencepiece(tm_token_encoder *e, const tm_normal *step, const char *text, size_t n, bool continued,
                          tm_text *out)
{
    const tm_added_set *user = &e->tokenizer->model.user;
    const char         *blank = step->escape ? TM_META : " ";
    const size_t        blank_bytes = strlen(blank), start = out->length;
    bool                after_blank = step->remove_extra, begun = false;
    size_t              user_from = 0, user_to = 0;
    int32_t             symbol = user->count > 0 ? tm_added_next(user, text, n, 0, &user_from, &user_to) : -1;
    for (size_t at = 0, used; at < n && tm_fits(e, out); at += used) {
        size_t      bytes;
        const char *part = NULL;
        if (symbol >= 0 && user_from < at) symbol = tm_added_next(user, text, n, at, &user_from, &user_to);
        if (symbol >= 0 && user_from == at) {
            part = text + at;
            used = bytes = user_to - at;
        } else if (step->charsmap) {
            part = tm_charsmap_find(step->charsmap, text + at, n - at, false, &used, &bytes);
        }
        if (!part) {
            part = text + at;
            used = bytes = valid_char(part, n - at);
            if (bytes == 0) { /* a byte that begins no character; charsmaps do not see it */
                part = "\xEF\xBF\xBD";
                used = 1;
                bytes = 3;
            }
        }
        if (after_blank)
            while (bytes > 0 && *part == ' ') part++, bytes--;
        if (bytes == 0) continue;
        if (!begun && step->dummy_prefix && !continued) tm_text_add_n(out, blank, blank_bytes);
        begun = true;
        for (size_t i = 0; i < bytes; i++)
            tm_text_add_n(out, part[i] == ' ' ? blank : part + i, part[i] == ' ' ? blank_bytes : 1);
        after_blank = step->remove_extra && part[bytes - 1] == ' ';
    }
    while (step->remove_extra && out->length >= start + blank_bytes &&
           memcmp(out->data + out->length - blank_bytes, blank, blank_bytes) == 0)
        out->length -= blank_bytes;
}

static tm_status apply(tm_token_encoder *e, const tm_normal *step, const char *text, size_t n, bool continued,
                       tm_text *out, tm_error *err)
{
    const int composed = UTF8PROC_STABLE | UTF8PROC_COMPOSE, decomposed = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    switch (step->kind) {
    case TM_NORMAL_NFC:
        return normalize_form(text, n, composed, true, out, err);
    case TM_NORMAL_NFD:
        return normalize_form(text, n, decomposed, false, out, err);
    case TM_NORMAL_NFKC:
        return normal_form(text, n, composed | UTF8PROC_COMPAT, out, err);
    case TM_NORMAL_NFKD:
        return normal_form(text, n, decomposed | UTF8PROC_COMPAT, out, err);
    case TM_NORMAL_LOWER:
        lower(text, n, out);
        return TM_OK;
    case TM_NORMAL_REPLACE:
        return replace(e, step, text, n, out, err);
    case TM_NORMAL_PREPEND:
        if (n > 0 && !continued) tm_text_add_n(out, step->text, step->length);
        tm_text_add_n(out, text, n);
        return TM_OK;
    case TM_NORMAL_STRIP:
        strip(step, text, n, out);
        return TM_OK;
    case TM_NORMAL_CHARSMAP:
        map_graphemes(e, step->charsmap, text, n, out);
        return TM_OK;
    case TM_NORMAL_SENTENCEPIECE:
        sentencepiece(e, step, text, n, continued, out);
        return TM_OK;
    }
    return TM_OK;
}

/* Steps write to and fro between *out and a text of the encoder's. */
tm_status tm_normalize(tm_token_encoder *e, const char *text, size_t n, bool continued, tm_text *out, bool *changed,
                       tm_error *err)
{
    const tm_tokenizer *t = e->tokenizer;
    tm_text             other = { 0 };
    tm_status           st = TM_OK;
    bool                ascii = is_ascii(text, n);
    *changed = false;
    for (int i = 0; i < t->n_normal && st == TM_OK; i++) {
        const tm_normal *step = &t->normal[i];
        if (ascii && step->kind <= TM_NORMAL_NFKD) continue;
        tm_text from = *out;
        *out = other;
        other = from;
        if (out->data) out->length = 0;
        tm_text_add_n(out, "", 0);
        st = apply(e, step, *changed ? other.data : text, *changed ? other.length : n, continued, out, err);
        if (st == TM_OK) st = tm_token_encoder_made(e, out, err);
        ascii = is_ascii(out->data, out->length);
        *changed = true;
    }
    tm_text_fini(&other);
    return st;
}
