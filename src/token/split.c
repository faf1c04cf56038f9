/* SPDX-License-Identifier: Apache-2.0 */
/* token/split.c - what the regular expressions below match, without backtracking. */
#include "token/split.h"

#include "base/text.h"

#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"

/* The first row of a name is the pattern that the name stands for. */
static const tm_splitter splitters[] = {
    { "gpt2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", TM_SPLIT_GPT2, 0,
      true, false, false },
    { "gpt2", "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", TM_SPLIT_GPT2, 0, true,
      false, false },
    { "llama3", CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES, TM_SPLIT_LETTERS,
      3, true, false, false },
    { "qwen2", CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES, TM_SPLIT_LETTERS, 1,
      true, false, false },
    { "cl100k",
      "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|"
      "\\s*[\\r\\n]|\\s+(?!\\S)|\\s",
      TM_SPLIT_LETTERS, 3, true, false, true },
    { "o200k",
      BEFORE UPPER "*" LOWER "+" CONTRACTIONS "?|" BEFORE UPPER "+" LOWER "*" CONTRACTIONS
                   "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES,
      TM_SPLIT_CASES, 3, true, true, false },
    { "tekken", BEFORE UPPER "*" LOWER "+|" BEFORE UPPER "+" LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES,
      TM_SPLIT_CASES, 1, false, true, false },
};
enum { SPLITTERS = sizeof splitters / sizeof splitters[0] };

const tm_splitter *tm_splitter_at(int i)
{
    return i >= 0 && i < SPLITTERS ? &splitters[i] : NULL;
}

const tm_splitter *tm_splitter_of_pattern(const char *pattern, size_t bytes)
{
    for (int i = 0; i < SPLITTERS; i++)
        if (strlen(splitters[i].pattern) == bytes && memcmp(splitters[i].pattern, pattern, bytes) == 0)
            return &splitters[i];
    return NULL;
}

const tm_splitter *tm_splitter_of_name(const char *name)
{
    for (int i = 0; i < SPLITTERS; i++)
        if (tm_names_equal(splitters[i].name, name)) return &splitters[i];
    return NULL;
}

bool tm_is_white_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

enum {
    GROUP_U = TM_CLASS_LETTER | TM_CLASS_UPPER,
    GROUP_L = TM_CLASS_LETTER | TM_CLASS_LOWER,
    GROUP_O = TM_CLASS_LETTER | TM_CLASS_UPPER | TM_CLASS_LOWER,
    GROUP_M = TM_CLASS_MARK | TM_CLASS_UPPER | TM_CLASS_LOWER,
    GROUP_N = TM_CLASS_NUMBER,
    GROUP_P = 0,
    GROUP_S = 0,
};

/* Ascending. Of Unicode 16, as the reference libraries have it, whatever version a library of this machine has. */
static const struct {
    uint32_t first, last;
    uint8_t class;
} runs[] = {
#define TM_RUN(first, last, group) { first, last, GROUP_##group },
#include "token/unicode.def"
#undef TM_RUN
};

uint8_t tm_class_of(uint32_t c)
{
    size_t low = 0, high = sizeof runs / sizeof runs[0];
    if (c == '\r' || c == '\n') return TM_CLASS_SPACE | TM_CLASS_NEWLINE;
    if (tm_is_white_space(c)) return TM_CLASS_SPACE;
    while (low < high) { /* the first run that does not end before c */
        size_t mid = (low + high) / 2;
        if (runs[mid].last < c)
            low = mid + 1;
        else
            high = mid;
    }
    return low < sizeof runs / sizeof runs[0] && runs[low].first <= c ? runs[low].class : 0;
}

void tm_classes_init(tm_classes *classes)
{
    memset(classes->of, 0, sizeof classes->of);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0] && runs[i].first < TM_CLASS_TABLE; i++)
        for (uint32_t c = runs[i].first; c <= runs[i].last && c < TM_CLASS_TABLE; c++) classes->of[c] = runs[i].class;
    for (uint32_t c = 0; c <= 0x3000; c++)
        if (tm_is_white_space(c)) classes->of[c] = TM_CLASS_SPACE;
    classes->of['\r'] = classes->of['\n'] = TM_CLASS_SPACE | TM_CLASS_NEWLINE;
}

typedef struct {
    const uint8_t *table, *text;
    size_t         n;
} scan;

/* The class of the character at `at` < n, and where the next one begins. */
static inline uint8_t class_at(const scan *s, size_t at, size_t *next)
{
    size_t   length;
    uint32_t c = s->text[at];
    if (c < 0x80) {
        *next = at + 1;
        return s->table[c];
    }
    c = tm_utf8_at(s->text + at, &length);
    *next = at + length;
    return c < TM_CLASS_TABLE ? s->table[c] : tm_class_of(c);
}

/* The end of the run of characters of any of these classes; `limit` characters at most, 0: any number. */
static inline size_t run_of(const scan *s, size_t at, uint8_t classes, int limit)
{
    size_t next;
    for (int i = 0; at < s->n && (limit == 0 || i < limit) && class_at(s, at, &next) & classes; i++) at = next;
    return at;
}

static inline size_t run_of_others(const scan *s, size_t at)
{
    size_t next;
    while (at < s->n && !(class_at(s, at, &next) & (TM_CLASS_LETTER | TM_CLASS_NUMBER | TM_CLASS_SPACE))) at = next;
    return at;
}

/* The end of 's, 't, 're, 've, 'm, 'll, 'd at `at`, or 0; U+017F is an s when letter case does not count. */
static size_t contraction(const scan *s, size_t at, bool any_case)
{
    const uint8_t *t = s->text + at;
    size_t         left = s->n - at;
    if (left < 2 || t[0] != '\'') return 0;
    uint8_t a = t[1], b = left > 2 ? t[2] : 0;
    if (any_case) {
        if (a == 0xC5 && b == 0xBF) return at + 3;
        if (a >= 'A' && a <= 'Z') a |= 32;
        if (b >= 'A' && b <= 'Z') b |= 32;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? at + 3 : 0;
}

/* \s+(?!\S)|\s+ at white space: the run, without its last character if something follows that is not white space. */
static size_t spaces(const scan *s, size_t at)
{
    size_t next, last = at, end = at;
    while (end < s->n && class_at(s, end, &next) & TM_CLASS_SPACE) {
        last = end;
        end = next;
    }
    return end == s->n || last == at ? end : last;
}

/* The same behind |\s*[\r\n]+, which ends with the last end of a line in the run; `whole`: behind |\s++$. */
static size_t spaces_and_lines(const scan *s, size_t at, bool whole)
{
    size_t next, line = 0, last = at, end = at;
    while (end < s->n) {
        uint8_t class = class_at(s, end, &next);
        if (!(class & TM_CLASS_SPACE)) break;
        last = end;
        end = next;
        if (class & TM_CLASS_NEWLINE) line = end;
    }
    if (whole && end == s->n) return end;
    if (line) return line;
    return end == s->n || last == at ? end : last;
}

static size_t next_gpt2(const scan *s, size_t at)
{
    size_t next, end = contraction(s, at, false);
    uint8_t class = class_at(s, at, &next);
    if (end) return end;
    if (s->text[at] == ' ' && next < s->n) {
        at = next;
        class = class_at(s, at, &next);
        if (class & TM_CLASS_SPACE) return spaces(s, at - 1);
    }
    if (class & TM_CLASS_LETTER) return run_of(s, next, TM_CLASS_LETTER, 0);
    if (class & TM_CLASS_NUMBER) return run_of(s, next, TM_CLASS_NUMBER, 0);
    if (class & TM_CLASS_SPACE) return spaces(s, at);
    return run_of_others(s, next);
}

/* What both newer kinds end with: numbers, punctuation, white space. */
static size_t next_other(const tm_splitter *splitter, const scan *s, size_t at)
{
    size_t next, after;
    uint8_t class = class_at(s, at, &next);
    if (class & TM_CLASS_NUMBER)
        return run_of(s, next, TM_CLASS_NUMBER, splitter->digits - 1 ? splitter->digits - 1 : -1);
    if (class & TM_CLASS_SPACE) {
        uint8_t second = next < s->n ? class_at(s, next, &after) : TM_CLASS_SPACE;
        if (s->text[at] != ' ' || second & (TM_CLASS_LETTER | TM_CLASS_NUMBER | TM_CLASS_SPACE))
            return spaces_and_lines(s, at, splitter->last_space);
    }
    size_t end = run_of_others(s, next);
    while (end < s->n && (s->text[end] == '\r' || s->text[end] == '\n' || (splitter->slash && s->text[end] == '/')))
        end++;
    return end;
}

static size_t next_letters(const tm_splitter *splitter, const scan *s, size_t at)
{
    size_t next, end = splitter->contractions ? contraction(s, at, true) : 0, after;
    uint8_t class = class_at(s, at, &next);
    if (end) return end;
    if (class & TM_CLASS_LETTER) return run_of(s, next, TM_CLASS_LETTER, 0);
    if (!(class & (TM_CLASS_NUMBER | TM_CLASS_NEWLINE)) && next < s->n && class_at(s, next, &after) & TM_CLASS_LETTER)
        return run_of(s, after, TM_CLASS_LETTER, 0);
    return next_other(splitter, s, at);
}

/* UPPER*LOWER+ from `at`, 0 if it does not match; *upper is the end of the longest UPPER*. What takes most of UPPER and
 * still leaves a LOWER ends with the last character that is both. */
static size_t cased(const scan *s, size_t at, size_t *upper)
{
    size_t next, both = 0;
    uint8_t class = 0;
    while (at < s->n && (class = class_at(s, at, &next)) & TM_CLASS_UPPER) {
        at = next;
        if (class & TM_CLASS_LOWER) both = at;
    }
    *upper = at;
    return at < s->n && class & TM_CLASS_LOWER && !(class & TM_CLASS_UPPER) ? run_of(s, next, TM_CLASS_LOWER, 0) : both;
}

static size_t next_cases(const tm_splitter *splitter, const scan *s, size_t at)
{
    size_t next, upper = 0, end = 0, from = at;
    uint8_t class = class_at(s, at, &next);
    if (!(class & (TM_CLASS_LETTER | TM_CLASS_NUMBER | TM_CLASS_NEWLINE))) {
        end = cased(s, next, &upper);
        from = next;
        if (!end && class & TM_CLASS_MARK) end = cased(s, at, &upper);
    } else if (class & TM_CLASS_LETTER) {
        end = cased(s, at, &upper);
    }
    if (!end && upper > from) end = upper;
    if (!end) return next_other(splitter, s, at);
    size_t longer = splitter->contractions ? contraction(s, end, true) : 0;
    return longer ? longer : end;
}

size_t tm_split_next(const tm_splitter *splitter, const tm_classes *classes, const uint8_t *text, size_t at, size_t n)
{
    const scan s = { classes->of, text, n };
    if (splitter->kind == TM_SPLIT_GPT2) return next_gpt2(&s, at);
    if (splitter->kind == TM_SPLIT_LETTERS) return next_letters(splitter, &s, at);
    return next_cases(splitter, &s, at);
}
