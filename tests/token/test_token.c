/* SPDX-License-Identifier: Apache-2.0 */
/* Small tokenizers of every form against the ids that the reference libraries give (tools/make_token_fixtures.py): hard
 * strings, ten scripts, broken UTF-8; encoders used again, texts cut in two. */
#include "base/arena.h"
#include "token/token.h"

#include "support/test.h"
#include <jansson.h>

#define FIXTURES "tests/token/fixtures/"

typedef struct {
    const char       *file, *pattern;
    tm_tokenizer     *tokenizer;
    tm_token_encoder *encoder;
} opened;

static opened all[32];

static opened *open_one(const char *file, const char *pattern)
{
    for (int i = 0;; i++) {
        opened *o = &all[i];
        if (o->file && strcmp(o->file, file) == 0 &&
            (o->pattern == pattern || (pattern && o->pattern && strcmp(o->pattern, pattern) == 0)))
            return o;
        if (o->file) continue;
        char path[256];
        snprintf(path, sizeof path, FIXTURES "%s", file);
        assert_ok(tm_tokenizer_open(path, pattern, &o->tokenizer, err));
        o->encoder = tm_token_encoder_create(o->tokenizer);
        o->file = file;
        o->pattern = pattern;
        return o;
    }
}

static char *unhex(const char *hex, size_t *n)
{
    *n = strlen(hex) / 2;
    char *bytes = tm_alloc(*n + 1);
    for (size_t i = 0; i < *n; i++) {
        char two[3] = { hex[2 * i], hex[2 * i + 1], 0 };
        bytes[i] = (char)strtol(two, NULL, 16);
    }
    return bytes;
}

static void check_ids(const char *what, const tm_ids *ids, json_t *wanted)
{
    for (size_t i = 0; i < ids->count && i < json_array_size(wanted); i++)
        if (ids->data[i] != json_integer_value(json_array_get(wanted, i)))
            fail_msg("%s: id %zu is %d, wanted %lld", what, i, ids->data[i],
                     (long long)json_integer_value(json_array_get(wanted, i)));
    if (ids->count != json_array_size(wanted))
        fail_msg("%s: %zu ids, wanted %zu", what, ids->count, json_array_size(wanted));
}

/* Bytes that are no character are U+FFFD in what the libraries decode: compared where ours is UTF-8 as it is. */
static bool is_utf8(const tm_text *text)
{
    for (size_t i = 0, n; i < text->length; i += n)
        if ((n = tm_utf8_length((const unsigned char *)text->data + i)) == 0) return false;
    return true;
}

static void check_case(json_t *c)
{
    const char *file = json_string_value(json_array_get(c, 0)), *hex = json_string_value(json_array_get(c, 3));
    const char *decoded = json_string_value(json_array_get(c, 5));
    opened     *o = open_one(file, json_string_value(json_array_get(c, 1)));
    unsigned    flags = json_is_true(json_array_get(c, 2)) ? TM_ENCODE_SPECIAL : 0;
    char        what[160];
    size_t      n;
    char       *text = unhex(hex, &n);
    tm_ids      ids = { 0 };
    tm_error    err = { 0 };
    snprintf(what, sizeof what, "%s, text %.100s", file, hex);
    for (int turn = 0; turn < 2; turn++) { /* the second time words come from the cache */
        ids.count = 0;
        if (tm_token_encoder_encode(o->encoder, text, n, flags, &ids, &err) != TM_OK)
            fail_msg("%s: %s", what, err.text);
        check_ids(what, &ids, json_array_get(c, 4));
    }
    tm_text back = { 0 };
    tm_tokenizer_decode(o->tokenizer, ids.data, ids.count, false, &back);
    if (decoded && is_utf8(&back) &&
        (back.length != json_string_length(json_array_get(c, 5)) || memcmp(back.data, decoded, back.length) != 0))
        fail_msg("%s: decoded to '%s', wanted '%s'", what, back.data, decoded);
    tm_text_fini(&back);
    free(ids.data);
    free(text);
}

static json_t *cases;

TEST(ids_are_those_of_the_reference_libraries)
{
    assert_true(json_array_size(cases) > 400);
    for (size_t i = 0; i < json_array_size(cases); i++) check_case(json_array_get(cases, i));
}

/* In front of every text, where special tokens are wanted. */
TEST(a_tekken_text_begins)
{
    opened *o = open_one("tekken.json", NULL);
    tm_ids  ids = { 0 };
    assert_ok(tm_token_encoder_encode(o->encoder, "a", 1, TM_ENCODE_SPECIAL, &ids, err));
    assert_true(ids.count == 2 && ids.data[0] == tm_tokenizer_find(o->tokenizer, "<s>", 3) && ids.data[0] >= 0);
    free(ids.data);
}

/* Where tm_tokenizer_cut allows it, two halves have the ids of the whole. */
TEST(cut_texts_have_the_same_ids)
{
    static const char text[] =
        "First line, x=1.\nsecond line: don't stop\nThird\n  indented\nlast words are here and go on";
    static const char *const files[] = { "gpt2.json",  "llama3.json",  "qwen2.json",
                                         "o200k.json", "llama2.model", "tekken.json" };
    int                      cuts[6] = { 0 };
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        opened *o = open_one(files[f], NULL);
        for (size_t limit = 1; limit < sizeof text; limit++) {
            size_t cut = tm_tokenizer_cut(o->tokenizer, text, limit);
            tm_ids whole = { 0 }, parts = { 0 };
            assert_true(cut <= limit);
            if (cut == 0) continue;
            cuts[f]++;
            assert_ok(tm_token_encoder_encode(o->encoder, text, strlen(text), 0, &whole, err));
            assert_ok(tm_token_encoder_encode(o->encoder, text, cut, 0, &parts, err));
            assert_ok(
                tm_token_encoder_encode(o->encoder, text + cut, strlen(text) - cut, TM_ENCODE_CONTINUED, &parts, err));
            assert_int_equal(whole.count, parts.count);
            assert_memory_equal(whole.data, parts.data, whole.count * sizeof *whole.data);
            free(whole.data);
            free(parts.data);
        }
    }
    for (int f = 0; f < 6; f++)
        if (cuts[f] < 40) fail_msg("%s: %d cuts", files[f], cuts[f]);
}

TEST(facts_and_questions)
{
    const tm_tokenizer       *t = open_one("llama2.model", NULL)->tokenizer;
    const tm_tokenizer_facts *f = tm_tokenizer_describe(t);
    tm_text                   out = { 0 };
    assert_true(strcmp(f->format, "sentencepiece") == 0 && strcmp(f->model, "BPE") == 0 && f->bos == 1 && f->eos == 2);
    assert_true(tm_tokenizer_find(t, "<s>", 3) == 1 && tm_tokenizer_find(t, "no such token", 13) == -1);
    assert_true(tm_tokenizer_is_special(t, 1) && !tm_tokenizer_is_special(t, 300));
    assert_string_equal(tm_tokenizer_describe(open_one("o200k.json", NULL)->tokenizer)->pattern, "o200k");
    assert_null(tm_tokenizer_describe(open_one("deepseek.json", NULL)->tokenizer)->pattern);
    tm_tokenizer_decode(t, (int32_t[]){ 1, 2, 1 << 20, -1 }, 4, true, &out); /* shown only when asked for */
    assert_string_equal(out.data, "<s></s>");
    tm_text_fini(&out);
}

static int load_cases(void **state)
{
    json_error_t error;
    (void)state;
    cases = json_load_file(FIXTURES "cases.json", JSON_ALLOW_NUL, &error);
    return cases ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    for (int i = 0; all[i].file; i++) {
        tm_token_encoder_destroy(all[i].encoder);
        tm_tokenizer_close(all[i].tokenizer);
    }
    json_decref(cases);
    return 0;
}

/* --- long texts under a SentencePiece Unigram model --- */

static void add_piece(tm_text *model, const char *text, float score, char type)
{
    char head[] = { 0x0A, (char)(strlen(text) + 9), 0x0A, (char)strlen(text) }, four[5] = { 0x15 },
         last[] = { 0x18, type };
    memcpy(four + 1, &score, 4);
    tm_text_add_n(model, head, sizeof head);
    tm_text_add(model, text);
    tm_text_add_n(model, four, sizeof four);
    tm_text_add_n(model, last, sizeof last);
}

static void expect_ids(const char *model, size_t bytes, const char *text, const int32_t *wanted, size_t n)
{
    tm_tokenizer *tokenizer;
    tm_ids        ids = { 0 };
    assert_ok(tm_tokenizer_parse("model", model, bytes, NULL, &tokenizer, err));
    tm_token_encoder *encoder = tm_token_encoder_create(tokenizer);
    assert_ok(tm_token_encoder_encode(encoder, text, strlen(text), 0, &ids, err));
    assert_int_equal(ids.count, n);
    assert_memory_equal(ids.data, wanted, n * sizeof *wanted);
    free(ids.data);
    tm_token_encoder_destroy(encoder);
    tm_tokenizer_close(tokenizer);
}

/* A way of -90,000 ends in steps of 1/128: "ab" is as good as "a", "b", and comes first. Beyond -100,000 scores begin
 * anew, and the small difference counts. What SentencePiece 0.2.3 gives. */
TEST(long_ways_begin_anew)
{
    tm_text model = { 0 };
    add_piece(&model, "<unk>", 0, 2);
    add_piece(&model, "x", -30000, 1);
    add_piece(&model, "a", -1, 1);
    add_piece(&model, "b", -1, 1);
    add_piece(&model, "ab", -2.001f, 1);
    tm_text_add_n(&model, "\x12\2\x18\1\x1A\6\x18\0 \0(\0", 12); /* unigram; no prefix, blanks as they are */
    static const struct {
        const char *text;
        size_t      n;
        int32_t     ids[8];
    } texts[] = { { "xxxab", 4, { 1, 1, 1, 4 } },
                  { "xxxxab", 6, { 1, 1, 1, 1, 2, 3 } },
                  { "ab", 2, { 2, 3 } },
                  { "yyyab", 2, { 0, 4 } }, /* of characters that no piece has: 10 less than x, as one */
                  { "yyyyab", 3, { 0, 2, 3 } } };
    for (size_t c = 0; c < sizeof texts / sizeof texts[0]; c++)
        expect_ids(model.data, model.length, texts[c].text, texts[c].ids, texts[c].n);
    tm_text_fini(&model);
}

/* Scores of tokenizer.json as `tokenizers` reads them, not the nearest doubles, with which 2, 1, 2, 1 is as good and
 * comes first. What tokenizers 0.23.3 gives. */
TEST(scores_are_read_as_the_library_reads_them)
{
    static const char model[] = "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0.0],"
                                "[\"aaa\",-11.048141491632435],[\"aa\",-9.823083098816193]]}}";
    expect_ids(model, sizeof model - 1, "aaaaaaaaaa", (int32_t[]){ 2, 2, 1, 1 }, 4);
}

TEST_FIXTURE(load_cases, close_all)
