/* SPDX-License-Identifier: Apache-2.0 */
#include "base/words.h"

#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Appends one word and returns what is behind it; NULL for a quote or a backslash without its end. */
static const char *take_word(const char *s, tm_text *word)
{
    while (*s && !isspace((unsigned char)*s)) {
        if (*s == '\'') {
            const char *end = strchr(s + 1, '\'');
            if (!end) return NULL;
            tm_text_add_n(word, s + 1, (size_t)(end - s - 1));
            s = end + 1;
        } else if (*s == '"') {
            for (s++; *s != '"'; s++) {
                if (*s == '\\' && (s[1] == '"' || s[1] == '\\')) s++;
                if (!*s) return NULL;
                tm_text_add_n(word, s, 1);
            }
            s++;
        } else {
            if (*s == '\\' && !*++s) return NULL;
            tm_text_add_n(word, s++, 1);
        }
    }
    return s;
}

tm_status tm_words_split(const char *text, const char *what, tm_arena *arena, char ***argv, int *argc, tm_error *err)
{
    tm_text     word = { 0 };
    size_t      most = strlen(text) / 2 + 2, n = 0; /* a word and its separator take two characters */
    char      **words = tm_arena_take(arena, most * sizeof *words);
    const char *s = text;
    for (;;) {
        while (isspace((unsigned char)*s)) s++;
        if (!*s) break;
        word.length = 0;
        tm_text_add(&word, "");
        const char *next = take_word(s, &word);
        if (!next) {
            tm_text_fini(&word);
            return tm_fail(err, TM_INVALID, "%s: a quote is not closed, or a backslash ends the text: '%.200s'", what,
                           s);
        }
        TM_ASSERT(n + 1 < most);
        words[n++] = tm_arena_text_n(arena, word.data, word.length);
        s = next;
    }
    tm_text_fini(&word);
    words[n] = NULL;
    *argv = words;
    *argc = (int)n;
    return TM_OK;
}
