/* SPDX-License-Identifier: Apache-2.0 */
/* The hand-written patterns give the words that pcre2 gives for their regular expressions: every code point alone and
 * in company, and random texts of what the patterns tell apart. */
#include "support/refusal.h"
#include "base/random.h"
#include "token/regex.h"
#include "token/split.h"

#include "support/test.h"

static tm_classes      classes;
static tm_regex_match *match;

static void compare(const tm_splitter *splitter, const tm_regex *regex, const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t from, to, end = tm_split_next(splitter, &classes, (const uint8_t *)text, at, n);
        assert_ok(tm_regex_next(regex, match, text, n, at, &from, &to, err));
        if (from != at || to != end) {
            fprintf(stderr, "%s: words of", splitter->name);
            for (size_t i = 0; i < n && i < 100; i++) fprintf(stderr, " %02x", (uint8_t)text[i]);
            fail_msg("at %zu: to %zu, pcre2 has %zu to %zu", at, end, from, to);
        }
        at = end;
    }
}

static size_t put(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF0 << (4 - n)) | c);
    return n;
}

static tm_regex *compile(const tm_splitter *s)
{
    tm_regex *regex;
    assert_ok(tm_regex_compile(s->pattern, strlen(s->pattern), TM_REGEX_RUST, "test", &regex, err));
    return regex;
}

/* Each between a capital, a small letter, a sign and a blank: 3 of its neighbours decide what becomes of it. */
TEST(every_code_point)
{
    for (int i = 0; tm_splitter_at(i); i++) {
        const tm_splitter *s = tm_splitter_at(i);
        tm_regex          *regex = compile(s);
        char               text[4096];
        size_t             n = 0;
        for (uint32_t c = 1; c < 0x110000; c++) {
            if (c >= 0xD800 && c <= 0xDFFF) continue;
            if (c == 0x20000) c = 0x2A000; /* ideographs */
            if (c == 0x3134B) c = 0xE0000;
            if (c == 0xE0200) c = 0x10FFF0; /* private use */
            text[n++] = "aA! 1'"[c % 6];
            n += put(text + n, c);
            text[n++] = "Aa 1"[c / 6 % 4];
            if (n < sizeof text - 16) continue;
            compare(s, regex, text, n);
            n = 0;
        }
        compare(s, regex, text, n);
        tm_regex_free(regex);
    }
}

TEST(random_texts)
{
    static const uint32_t chars[] = {
        'a',  'Z',    's',    'S',  'l',    'r',    'e',     '\'',    '\'',    ' ',     ' ',    '\n',   '\r',  '\t',
        '1',  '2',    '/',    '!',  0x17F,  0xC0,   0xE9,    0x1C5,   0x2B0,   0x301,   0x4E00, 0x3042, 0x660, 0x2167,
        0xA0, 0x3000, 0x2028, 0x85, 0x180E, 0x200D, 0x1F600, 0x10400, 0x10428, 0x1E900, 0xFFFD, 0x378
    };
    for (int i = 0; tm_splitter_at(i); i++) {
        const tm_splitter *s = tm_splitter_at(i);
        tm_regex          *regex = compile(s);
        for (uint64_t t = 0; t < 6000; t++) {
            char   text[128];
            size_t n = 0, length = 1 + (size_t)tm_random_below(7, t, 0, 24);
            for (size_t k = 0; k < length; k++)
                n += put(text + n, chars[tm_random_below(7, t, k + 1, sizeof chars / sizeof chars[0])]);
            compare(s, regex, text, n);
        }
        tm_regex_free(regex);
    }
}

TEST(refused_constructs_are_named)
{
    static const struct {
        const char      *pattern, *named;
        tm_regex_dialect dialect;
    } bad[] = { { "\\w+", "'\\w'", TM_REGEX_RUBY },
                { "a\\b", "'\\b'", TM_REGEX_RUST },
                { "[a[b]]", "'['", TM_REGEX_RUBY },
                { "[a&&b]", "'&&'", TM_REGEX_RUBY },
                { "\\p{N}{1,3}+", "'{1,3}+'", TM_REGEX_RUBY },
                { "(?<name>x)", "'(?<n'", TM_REGEX_RUBY },
                { "\\h", "'\\h'", TM_REGEX_RUBY },
                { "[\\S]", "'\\S'", TM_REGEX_RUST },
                { "(a", "cannot read", TM_REGEX_RUBY },
                { "a\\", "'\\'", TM_REGEX_RUST } };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tm_regex *regex = NULL;
        tm_error  err = { 0 };
        assert_int_not_equal(
            tm_regex_compile(bad[i].pattern, strlen(bad[i].pattern), bad[i].dialect, "here", &regex, &err), TM_OK);
        refusal_is_sound(&err);
        if (!strstr(err.text, bad[i].named)) fail_msg("'%s': %s", bad[i].pattern, err.text);
    }
}

/* $ ends a line for tokenizer.json, the text for the others. */
TEST(dollar_has_two_meanings)
{
    for (int ruby = 0; ruby < 2; ruby++) {
        tm_regex *regex;
        size_t    from, to;
        assert_ok(tm_regex_compile("a$", 2, ruby ? TM_REGEX_RUBY : TM_REGEX_RUST, "here", &regex, err));
        assert_ok(tm_regex_next(regex, match, "a\nba", 4, 0, &from, &to, err));
        assert_int_equal(from, ruby ? 0 : 3);
        tm_regex_free(regex);
    }
}

static int begin(void **state)
{
    (void)state;
    tm_classes_init(&classes);
    match = tm_regex_match_create();
    return 0;
}

static int end(void **state)
{
    (void)state;
    tm_regex_match_free(match);
    return 0;
}

TESTS_IN_ORDER
TEST_FIXTURE(begin, end)
