/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizers of an image model's folders, and prompts of a fixed length: the ids that transformers gives
 * (tools/make_prompt_fixtures.py). */
#include "support/folder.h"
#include "support/full_config.h"
#include "token/token.h"

#include "support/test.h"
#include <jansson.h>

#define FIXTURES "tests/token/prompts/"

enum { FOLDERS = 5, LONGEST = 128 };

static struct {
    char              name[32];
    tm_tokenizer     *tokenizer;
    tm_token_encoder *encoder;
    int               texts;
} opened[FOLDERS];

static int open_one(const char *name)
{
    for (int i = 0; i < FOLDERS; i++) {
        char path[128];
        if (strcmp(opened[i].name, name) == 0) return i;
        if (opened[i].name[0]) continue;
        snprintf(opened[i].name, sizeof opened[i].name, "%s", name);
        snprintf(path, sizeof path, FIXTURES "%s", name);
        assert_ok(tm_tokenizer_open(path, NULL, &opened[i].tokenizer, err));
        opened[i].encoder = tm_token_encoder_create(opened[i].tokenizer);
        return i;
    }
    fail_msg("more folders than %d", FOLDERS);
    return 0;
}

/* [folder, length, text, ids up to the padding, padding id] */
static void check_case(size_t number, json_t *c)
{
    const int    at = open_one(json_string_value(json_array_get(c, 0)));
    const size_t n = (size_t)json_integer_value(json_array_get(c, 1));
    json_t      *text = json_array_get(c, 2), *wanted = json_array_get(c, 3);
    const int    pad = (int)json_integer_value(json_array_get(c, 4));
    int32_t      ids[LONGEST + 1];
    size_t       used = 0, dropped = 0;
    tm_error     err = { 0 };
    tm_ids       whole = { 0 };
    assert_true(n <= LONGEST);
    ids[n] = -7;
    opened[at].texts++;
    if (tm_token_encoder_encode_fixed(opened[at].encoder, json_string_value(text), json_string_length(text), n, ids,
                                      &used, &dropped, &err) != TM_OK)
        fail_msg("case %zu: %s", number, err.text);
    for (size_t i = 0; i < n; i++) {
        const int id = i < json_array_size(wanted) ? (int)json_integer_value(json_array_get(wanted, i)) : pad;
        if (ids[i] != id) fail_msg("case %zu, %s: id %zu is %d, wanted %d", number, opened[at].name, i, ids[i], id);
    }
    assert_int_equal(ids[n], -7);
    assert_true(used <= n && used >= json_array_size(wanted));
    /* What was dropped is what the whole text has more. */
    assert_int_equal(tm_token_encoder_encode(opened[at].encoder, json_string_value(text), json_string_length(text),
                                             TM_ENCODE_SPECIAL, &whole, &err),
                     TM_OK);
    assert_int_equal(whole.count, used + dropped);
    assert_true(dropped == 0 || used == n);
    assert_int_equal(whole.data[whole.count - 1], ids[used - 1]);
    free(whole.data);
}

TEST(ids_are_those_of_transformers)
{
    json_error_t error;
    size_t       i;
    json_t      *one, *cases = json_load_file(FIXTURES "cases.json", JSON_ALLOW_NUL, &error);
    assert_non_null(cases);
    json_array_foreach(cases, i, one)
    {
        check_case(i, one);
    }
    for (int f = 0; f < FOLDERS; f++) assert_true(opened[f].texts >= 60);
    json_decref(cases);
}

#define VOCAB "{\"a</w>\": 0, \"!\": 1, \"<|startoftext|>\": 2, \"<|endoftext|>\": 3}"
#define CLASS "\"tokenizer_class\": \"CLIPTokenizer\""

static char *clip_folder(const char *config)
{
    char *folder = test_tree_make();
    test_file_write(folder, "vocab.json", VOCAB);
    test_file_write(folder, "merges.txt", "#version: 0.2\n");
    if (config) test_file_write(folder, "tokenizer_config.json", config);
    return folder;
}

TEST(folders_that_are_refused)
{
    static const struct {
        const char *config, *says;
        tm_status   status;
    } cases[] = {
        { NULL, "no tokenizer_class in tokenizer_config.json", TM_UNSUPPORTED },
        { "{\"tokenizer_class\": \"CLIPTokenizerX\"}", "tokenizer_class 'CLIPTokenizerX'", TM_UNSUPPORTED },
        { "{\"tokenizer_class\": \"GPT2Tokenizer\"}", "save the tokenizer with transformers", TM_UNSUPPORTED },
        { "{" CLASS ", \"bos_token\": \"<s>\"}", "bos_token '<s>' is neither in vocab.json", TM_FORMAT },
        { "{" CLASS ", \"added_tokens_decoder\": {\"x\": {\"content\": \"y\"}}}", "has 'x', which is no id",
          TM_FORMAT },
        { "{" CLASS ", \"added_tokens_decoder\": {\"9\": {\"content\": \"y\"}}}", "numbers it 4", TM_FORMAT },
        { "[]", "is not a JSON object", TM_FORMAT },
        { "{", "tokenizer_config.json', line 1", TM_FORMAT },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char         *folder = clip_folder(cases[i].config);
        tm_tokenizer *t;
        tm_error      err = { 0 };
        assert_int_equal(tm_tokenizer_open(folder, NULL, &t, &err), cases[i].status);
        if (!strstr(err.text, cases[i].says)) fail_msg("%zu: '%s' does not say '%s'", i, err.text, cases[i].says);
        test_tree_remove(folder);
    }
}

static int close_all(void **state)
{
    (void)state;
    for (int i = 0; i < FOLDERS && opened[i].name[0]; i++) {
        tm_token_encoder_destroy(opened[i].encoder);
        tm_tokenizer_close(opened[i].tokenizer);
    }
    return 0;
}

TEST_FIXTURE(NULL, close_all)
