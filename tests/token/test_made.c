/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers of a few tokens, whose ids can be told by hand: parts with a prefix or a suffix, merges
 * in both forms, ids of added tokens; what is wrong is refused. */
#include "support/full_config.h"
#include "support/refusal.h"
#include "token/token.h"

#include <jansson.h>

#include "support/test.h"

#define BLANKS "\"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, "
#define BYTES(more) "\"pre_tokenizer\": {\"type\": \"ByteLevel\"" more "}, "
#define BPE "\"model\": {\"type\": \"BPE\", "

static void expect_ids(const char *file, const char *text, unsigned flags, const int32_t *wanted, size_t n)
{
    tm_tokenizer *t;
    tm_ids        ids = { 0 };
    tm_error      err = { 0 };
    if (tm_tokenizer_parse("t", file, strlen(file), NULL, &t, &err) != TM_OK) fail_msg("%s\n%s", file, err.text);
    tm_token_encoder *encoder = tm_token_encoder_create(t);
    if (tm_token_encoder_encode(encoder, text, strlen(text), flags, &ids, &err) != TM_OK) fail_msg("%s", err.text);
    bool same = ids.count == n && (n == 0 || memcmp(ids.data, wanted, n * sizeof *wanted) == 0);
    for (size_t i = 0; i < ids.count && !same; i++) print_error(" %d", ids.data[i]);
    if (!same) fail_msg("are the ids of '%s' by %s", text, file);
    free(ids.data);
    tm_token_encoder_destroy(encoder);
    tm_tokenizer_close(t);
}

#define IDS(...) (const int32_t[]){ __VA_ARGS__ }, sizeof(const int32_t[]){ __VA_ARGS__ } / sizeof(int32_t)

TEST(parts_have_a_prefix_or_a_suffix)
{
    static const char suffix[] =
        "{" BLANKS    BPE "\"end_of_word_suffix\": \"</w>\", \"unk_token\": \"?\", \"vocab\": {\"?\": 0, "
           "\"a\": 1, \"a</w>\": 2, \"b\": 3, \"b</w>\": 4, \"ab</w>\": 5}, \"merges\": [\"a b</w>\"]}}";
    static const char prefix[] =
        "{" BLANKS BPE "\"continuing_subword_prefix\": \"##\", \"unk_token\": \"?\", \"vocab\": {\"?\": 0, \"a\": 1, "
        "\"##a\": 2, \"b\": 3, \"##b\": 4, \"ab\": 5}, \"merges\": [[\"a\", \"##b\"]]}}";
    static const char both[] =
        "{" BLANKS    BPE "\"continuing_subword_prefix\": \"##\", \"end_of_word_suffix\": \"</w>\", "
           "\"unk_token\": \"?\", \"vocab\": {\"?\": 0, \"a\": 1, \"##a\": 2, \"a</w>\": 3, "
           "\"##a</w>\": 4}, \"merges\": []}}";
    expect_ids(suffix, "ab a aab b ca", 0, IDS(5, 2, 1, 5, 4, 0, 2));
    expect_ids(prefix, "ab ba aab b", 0, IDS(5, 3, 2, 1, 2, 4, 3));
    expect_ids(both, "aaa a aa", 0, IDS(1, 2, 4, 3, 1, 4));
}

/* One that tries every way of cutting a run of letters ends all the same. */
TEST(an_expression_that_gives_up)
{
    static const char file[] =
        "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?:a+)+[cd]\"}, "
        "\"behavior\": \"Isolated\"}, " BPE "\"unk_token\": \"b\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}}";
    static const char text[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab";
    tm_tokenizer     *t;
    tm_ids            ids = { 0 };
    tm_error          err = { 0 };
    expect_ids(file, "aacb", 0, IDS(0, 0, 1, 1));
    assert_int_equal(tm_tokenizer_parse("t", file, strlen(file), NULL, &t, &err), TM_OK);
    tm_token_encoder *encoder = tm_token_encoder_create(t);
    assert_int_equal(tm_token_encoder_encode(encoder, text, strlen(text), 0, &ids, &err), TM_INVALID);
    assert_string_equal(err.text,
                        "the tokenizer's regular expression '(?:a+)+[cd]' gave up on a text of 35 bytes: match "
                        "limit exceeded");
    tm_token_encoder_destroy(encoder);
    tm_tokenizer_close(t);
    free(ids.data);
}

/* A file of the vocabulary and the added tokens of a case. */
static char *file_of(const json_t *tried)
{
    json_t *list = json_array(), *pair;
    size_t  i;
    json_array_foreach(json_object_get(tried, "added"), i, pair)
        json_array_append_new(list, json_pack("{s:O, s:O, s:b}", "content", json_array_get(pair, 0), "id",
                                              json_array_get(pair, 1), "special", 1));
    json_t *root = json_pack("{s:o, s:{s:s, s:O, s:[s]}}", "added_tokens", list, "model", "type", "BPE", "vocab",
                             json_object_get(tried, "vocab"), "merges", "a b");
    char   *text = json_dumps(root, 0);
    json_decref(root);
    return text;
}

/* Ids of added tokens are those of the library (tests/token/added.json), or the file is refused with both. */
TEST(added_tokens_are_numbered_as_the_library_does)
{
    json_t *all = json_load_file("tests/token/added.json", 0, NULL), *tried, *pair;
    size_t  i, k;
    int     refused = 0;
    assert_non_null(all);
    json_array_foreach(json_object_get(all, "files"), i, tried)
    {
        char         *file = file_of(tried), part[100] = "";
        tm_tokenizer *t = NULL;
        tm_error      err = { 0 };
        json_array_foreach(json_object_get(tried, "added"), k, pair)
        {
            const char *text = json_string_value(json_array_get(pair, 0));
            long long   id = json_integer_value(json_array_get(pair, 1));
            long long   theirs = json_integer_value(json_object_get(json_object_get(tried, "ids"), text));
            if (id == theirs || part[0]) continue;
            snprintf(part, sizeof part, "'%s' has id %lld, but the tokenizers library numbers it %lld", text, id,
                     theirs);
        }
        tm_status st = tm_tokenizer_parse("t", file, strlen(file), NULL, &t, &err);
        if (part[0] ? st != TM_FORMAT || !strstr(err.text, part) : st != TM_OK) fail_msg("%s: %s", file, err.text);
        refused += st != TM_OK;
        json_array_foreach(json_object_get(tried, "added"), k, pair)
        {
            const char *text = json_string_value(json_array_get(pair, 0));
            if (t)
                assert_int_equal(tm_tokenizer_find(t, text, strlen(text)),
                                 json_integer_value(json_object_get(json_object_get(tried, "ids"), text)));
        }
        tm_tokenizer_close(t);
        free(file);
    }
    json_decref(all);
    assert_int_equal(refused, 36);
}

static const char *const damaged[] = {
    "{" BPE "\"vocab\": {\"a\": \"0\"}, \"merges\": []}}",
    "{" BPE "\"vocab\": {\"a\": 16777216}, \"merges\": []}}",
    "{" BPE "\"vocab\": {}, \"merges\": []}}",
    "{" BPE "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b c\"]}}",
    "{" BPE "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [[\"a\", 1]]}}",
    "{" BPE "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [[\"a\", \"b\", \"c\"]]}}",
    "{\"more\": 1, " BPE "\"vocab\": {\"a\": 0}, \"merges\": []}}",
    "{\"model\": {\"vocab\": {\"a\": 0}}}",
    "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": []}}",
    "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"a\", 0], [\"b\", \"0\"]]}}",
    "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"a\", 0, 0]]}}",
    "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 1, \"vocab\": [[\"a\", 0]]}}",
    "{" BYTES("") "\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"a\", 0]]}}",
};

TEST(what_is_damaged_is_refused)
{
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        tm_tokenizer *t = NULL;
        tm_error      err = { 0 };
        if (tm_tokenizer_parse("t.json", damaged[i], strlen(damaged[i]), NULL, &t, &err) == TM_OK)
            fail_msg("is read: %s", damaged[i]);
        refusal_is_sound(&err);
    }
}

#define TEKKEN(size, vocab, more)                                                                                      \
    "{\"config\": {\"pattern\": \"a\", \"default_vocab_size\": " size                                                  \
    ", \"default_num_special_tokens\": 3}, \"vocab\": [" vocab "]" more "}"
#define A "\"token_bytes\": \"YQ==\"}"

TEST(a_damaged_tekken_file_is_refused)
{
    static const char *const rows[][2] = {
        { "{\"config\": {\"pattern\": 1, \"default_vocab_size\": 9, \"default_num_special_tokens\": 3}, \"vocab\": []}",
          "config needs pattern" },
        { TEKKEN("9", "", ""), "0 tokens, but default_vocab_size 9 less 3 special ones are wanted" },
        { TEKKEN("4", "{\"rank\": 0, " A, ", \"special_tokens\": [{\"rank\": 3, \"token_str\": \"<s>\"}]"),
          "special_tokens[0] needs a rank below 3" },
        { TEKKEN("4", "{\"rank\": 0, " A,
                 ", \"special_tokens\": [{\"rank\": 0, \"token_str\": \"<s>\"}, {\"rank\": 1}]"),
          "special_tokens[1] needs a rank" },
        { TEKKEN("4", "{" A, ""), "vocab[0] needs the rank 0 and token_bytes in base64" },
        { TEKKEN("4", "{\"rank\": 1, " A, ""), "vocab[0] needs the rank 0" },
        { TEKKEN("4", "{\"rank\": 0, \"token_bytes\": \"*\"}", ""), "vocab[0] needs the rank 0" },
        { TEKKEN("5", "{\"rank\": 0, " A ", {\"rank\": 0, \"token_bytes\": \"Yg==\"}", ""),
          "vocab[1] needs the rank 1" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_tokenizer *t = NULL;
        tm_error      err = { 0 };
        assert_int_equal(tm_tokenizer_parse("tekken.json", rows[i][0], strlen(rows[i][0]), NULL, &t, &err), TM_FORMAT);
        if (!strstr(err.text, rows[i][1])) fail_msg("wanted '%s' in: %s", rows[i][1], err.text);
        refusal_is_sound(&err);
    }
}

/* --- chat templates ------------------------------------------------------------------------------- */

TESTS_IN_ORDER
