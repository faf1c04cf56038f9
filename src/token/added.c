/* SPDX-License-Identifier: Apache-2.0 */
/* token/added.c - added tokens in a text: the leftmost, of those the longest. A token that wants to be a word of its
 * own and is not is passed over together with its text; white space beside a token is taken where it asks for it. */
#include "token/internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void tm_added_put(tm_added_set *set, const tm_added *token)
{
    set->tokens = tm_grow(set->tokens, &set->capacity, set->count, sizeof *set->tokens);
    set->tokens[set->count++] = *token;
}

static int by_bytes(const void *a, const void *b)
{
    const tm_added *x = a, *y = b;
    uint32_t        n = x->length < y->length ? x->length : y->length;
    int             order = memcmp(x->text, y->text, n);
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

void tm_added_finish(tm_added_set *set)
{
    if (set->count > 0) qsort(set->tokens, set->count, sizeof *set->tokens, by_bytes);
    uint32_t t = 0;
    set->only_byte = set->count > 0 ? (uint8_t)set->tokens[0].text[0] : 0;
    for (int b = 0; b <= 256; b++) {
        while (t < set->count && (uint8_t)set->tokens[t].text[0] < b) t++;
        set->first[b] = t;
    }
    if (set->count > 0 && (uint8_t)set->tokens[set->count - 1].text[0] != set->only_byte) set->only_byte = -1;
}

/* The longest token that the text begins with, or NULL: the range of those that agree so far gets smaller byte by byte.
 */
static const tm_added *longest(const tm_added_set *set, const char *text, size_t n)
{
    const tm_added *found = NULL;
    size_t          from = set->first[(uint8_t)text[0]], to = set->first[(uint8_t)text[0] + 1];
    for (size_t at = 1; from < to; at++) {
        while (from < to && set->tokens[from].length == at) found = &set->tokens[from++];
        if (at >= n) break;
        uint8_t byte = (uint8_t)text[at];
        size_t  low = from, high = to;
        while (low < high) { /* the first whose byte is not below */
            size_t mid = (low + high) / 2;
            if ((uint8_t)set->tokens[mid].text[at] < byte)
                low = mid + 1;
            else
                high = mid;
        }
        from = low;
        for (high = to; low < high;) { /* the first whose byte is above */
            size_t mid = (low + high) / 2;
            if ((uint8_t)set->tokens[mid].text[at] <= byte)
                low = mid + 1;
            else
                high = mid;
        }
        to = low;
    }
    return found;
}

static size_t previous_char(const char *text, size_t at)
{
    do at--;
    while (at > 0 && ((uint8_t)text[at] & 0xC0) == 0x80);
    return at;
}

/* \w: letters, marks, decimal digits, connecting punctuation, joiners. */
static bool is_word_char(const char *text, size_t at)
{
    size_t   length;
    uint32_t c = tm_utf8_at((const uint8_t *)text + at, &length);
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9); /* circled letters are alphabetic */
    }
}

static bool is_space_at(const char *text, size_t at)
{
    size_t length;
    return tm_is_white_space(tm_utf8_at((const uint8_t *)text + at, &length));
}

int32_t tm_added_next(const tm_added_set *set, const char *text, size_t n, size_t at, size_t *from, size_t *to)
{
    size_t begin = at;
    while (at < n && set->count > 0) {
        if (set->only_byte >= 0) {
            const char *next = memchr(text + at, set->only_byte, n - at);
            at = next ? (size_t)(next - text) : n;
        } else {
            while (at < n && set->first[(uint8_t)text[at]] == set->first[(uint8_t)text[at] + 1]) at++;
        }
        if (at >= n) break;
        const tm_added *token = longest(set, text + at, n - at);
        if (!token) {
            at++;
            continue;
        }
        size_t start = at, stop = at + token->length;
        at = stop;
        if (token->single_word &&
            ((start > 0 && is_word_char(text, previous_char(text, start))) || (stop < n && is_word_char(text, stop))))
            continue;
        while (token->lstrip && start > begin && is_space_at(text, previous_char(text, start)))
            start = previous_char(text, start);
        while (token->rstrip && stop < n && is_space_at(text, stop)) stop += tm_char_bytes(text + stop);
        *from = start;
        *to = stop;
        return token->id;
    }
    *from = *to = n;
    return -1;
}
