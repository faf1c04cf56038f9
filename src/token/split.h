/* SPDX-License-Identifier: Apache-2.0 */
/* token/split.h - the patterns that cut text into words before BPE, written out by hand; private to this room.
 *
 * A pattern is known by its text, letter for letter; any other one goes to pcre2 (token/regex.h), which the
 * hand-written code is tested against. */
#ifndef TM_TOKEN_SPLIT_H
#define TM_TOKEN_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a code point is to the patterns. */
enum {
    TM_CLASS_LETTER = 1,   /* \p{L} */
    TM_CLASS_NUMBER = 2,   /* \p{N} */
    TM_CLASS_SPACE = 4,    /* \s: White_Space */
    TM_CLASS_UPPER = 8,    /* Lu, Lt, Lm, Lo, M */
    TM_CLASS_LOWER = 16,   /* Ll, Lm, Lo, M */
    TM_CLASS_NEWLINE = 32, /* \r and \n */
    TM_CLASS_MARK = 64,    /* \p{M} */
};

enum { TM_CLASS_TABLE = 0x20000 };

typedef struct {
    uint8_t of[TM_CLASS_TABLE]; /* code points beyond are asked for one by one */
} tm_classes;

void    tm_classes_init(tm_classes *classes);
uint8_t tm_class_of(uint32_t code_point); /* of any */

typedef struct {
    const char *name, *pattern;
    enum { TM_SPLIT_GPT2, TM_SPLIT_LETTERS, TM_SPLIT_CASES } kind;
    int  digits;       /* of one number; 0: any number */
    bool contractions; /* 's, 't, 're, ... are words (LETTERS), or end words (CASES) */
    bool slash;        /* punctuation takes slashes after it, besides the ends of lines */
    bool last_space;   /* white space up to the end of the text is one word */
} tm_splitter;

/* NULL: not known. */
const tm_splitter *tm_splitter_of_pattern(const char *pattern, size_t bytes);
const tm_splitter *tm_splitter_of_name(const char *name);
const tm_splitter *tm_splitter_at(int i); /* NULL behind the last */

/* The end of the word that begins at `at` < n; text is valid UTF-8. */
size_t tm_split_next(const tm_splitter *splitter, const tm_classes *classes, const uint8_t *text, size_t at, size_t n);

/* The code point at s (valid UTF-8) and its length. */
static inline uint32_t tm_utf8_at(const uint8_t *s, size_t *length)
{
    if (s[0] < 0x80) {
        *length = 1;
        return s[0];
    }
    if (s[0] < 0xE0) {
        *length = 2;
        return (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu);
    }
    if (s[0] < 0xF0) {
        *length = 3;
        return (s[0] & 0x0Fu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
    }
    *length = 4;
    return (s[0] & 0x07u) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
}

bool tm_is_white_space(uint32_t code_point); /* the Unicode property White_Space */

#endif
