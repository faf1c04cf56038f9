/* SPDX-License-Identifier: Apache-2.0 */
/* tiktoken files of the sizes that are known by their number of tokens: pattern and special tokens follow from it. */
#include "base/text.h"
#include "token/token.h"

#include "support/test.h"

static void add_line(tm_text *out, const unsigned char *bytes, int n, int rank)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char              text[5] = "====";
    uint32_t          bits = (uint32_t)bytes[0] << 16 | (n > 1 ? (uint32_t)bytes[1] << 8 : 0) | (n > 2 ? bytes[2] : 0);
    for (int i = 0; i <= n; i++) text[i] = digits[bits >> (18 - 6 * i) & 63];
    tm_text_printf(out, "%s %d\n", text, rank);
}

/* All single bytes, then all pairs, then what begins with the first pairs. */
static void make(tm_text *out, int tokens)
{
    for (int i = 0; i < tokens; i++) {
        int           pair = i - 256, triple = i - 256 - 65536;
        unsigned char bytes[3] = { (unsigned char)i };
        if (triple >= 0)
            bytes[0] = (unsigned char)(triple >> 16), bytes[1] = (unsigned char)(triple >> 8),
            bytes[2] = (unsigned char)triple;
        else if (pair >= 0)
            bytes[0] = (unsigned char)(pair >> 8), bytes[1] = (unsigned char)pair;
        add_line(out, bytes, triple >= 0 ? 3 : pair >= 0 ? 2 : 1, i);
    }
}

static int32_t find(const tm_tokenizer *tokenizer, const char *name)
{
    return tm_tokenizer_find(tokenizer, name, strlen(name));
}

TEST(specials_follow_from_the_number)
{
    static const struct {
        int         tokens;
        const char *name;
        int         id;
        const char *last;
        int         last_id;
    } known[] = { { 50256, "<|endoftext|>", 50256, "<|endoftext|>", 50256 },
                  { 100256, "<|endoftext|>", 100257, "<|fim_suffix|>", 100260 },
                  { 128000, "<|begin_of_text|>", 128000, "<|image|>", 128011 } };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        for (int more = 0; more < 2; more++) {
            tm_text       text = { 0 };
            tm_error      err = { 0 };
            tm_tokenizer *tokenizer = NULL;
            make(&text, known[i].tokens + more);
            tm_status st = tm_tokenizer_parse("x", text.data, text.length, more ? "gpt2" : NULL, &tokenizer, &err);
            if (st != TM_OK) fail_msg("%s", err.text);
            assert_int_equal(find(tokenizer, known[i].name), more ? -1 : known[i].id);
            assert_int_equal(find(tokenizer, known[i].last), more ? -1 : known[i].last_id);
            assert_int_equal(find(tokenizer, "-"), '-');
            tm_tokenizer_close(tokenizer);
            if (more)
                assert_int_equal(tm_tokenizer_parse("x", text.data, text.length, NULL, &tokenizer, NULL), TM_INVALID);
            tm_text_fini(&text);
        }
}

/* Lines may end as those of Windows, and be empty; what is none is told by its number. */
TEST(lines_of_a_tiktoken_file)
{
    static const char *const bad[] = {
        "YQ==", "YQ== ", "YQ== 1x", "*Q== 1", "YQ== 1 2", "YQ== 000000000000000000000001"
    };
    tm_text       plain = { 0 }, lines = { 0 };
    tm_tokenizer *tokenizer = NULL;
    make(&plain, 256);
    for (const char *c = plain.data; *c; c++) tm_text_add_n(&lines, *c == '\n' ? "\r\n\n" : c, *c == '\n' ? 3 : 1);
    lines.length -= 2; /* the last line has no end */
    assert_ok(tm_tokenizer_parse("x", lines.data, lines.length - 1, "gpt2", &tokenizer, err));
    for (int i = 0; i < 256; i++) assert_int_equal(tm_tokenizer_find(tokenizer, &(char){ (char)i }, 1), i);
    tm_tokenizer_close(tokenizer);
    assert_refused(tm_tokenizer_parse("x", lines.data, lines.length, NULL, &tokenizer, err), TM_INVALID,
                   "none with 256 tokens is known");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lines.length = 0;
        tm_text_printf(&lines, "IQ== 0\r\n\n%s\n", bad[i]);
        assert_refused(tm_tokenizer_parse("x", lines.data, lines.length, "gpt2", &tokenizer, err), TM_FORMAT,
                       "'x', line 3: not 'base64 rank'");
    }
    tm_text_fini(&plain), tm_text_fini(&lines);
}
