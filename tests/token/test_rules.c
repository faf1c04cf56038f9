/* SPDX-License-Identifier: Apache-2.0 */
/* Every normalizer, pre-tokenizer, post-processor, decoder and kind of added token with one small vocabulary, whose
 * merges go over every cut: ids and texts are those of the tokenizers library (tests/token/rules.json, made by
 * tools/make_token_rules.py). What is not read is refused with its whole message. */
#include "token/token.h"

#include "support/test.h"
#include <jansson.h>

static json_t *rules;

static int set_up(void **state)
{
    json_error_t problem;
    (void)state;
    rules = json_load_file("tests/token/rules.json", 0, &problem);
    if (!rules) print_error("%s\n", problem.text);
    return rules ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    json_decref(rules);
    return 0;
}

/* The tokenizer with these members in place of its own; those of "model" are put into the model. */
static tm_status changed(json_t *change, tm_tokenizer **out, tm_error *err)
{
    json_t     *whole = json_deep_copy(json_object_get(rules, "tokenizer")), *value;
    const char *key;
    json_object_foreach(change, key, value)
    {
        if (strcmp(key, "model") == 0)
            assert_int_equal(json_object_update(json_object_get(whole, "model"), value), 0);
        else
            assert_int_equal(json_object_set(whole, key, value), 0);
    }
    char     *text = json_dumps(whole, JSON_COMPACT);
    tm_status st = tm_tokenizer_parse("t.json", text, strlen(text), NULL, out, err);
    free(text);
    json_decref(whole);
    return st;
}

static bool same_ids(const char *name, const char *text, const tm_ids *ids, json_t *wanted)
{
    bool same = ids->count == json_array_size(wanted);
    for (size_t i = 0; same && i < ids->count; i++)
        same = ids->data[i] == json_integer_value(json_array_get(wanted, i));
    if (same) return true;
    char *all = json_dumps(wanted, JSON_COMPACT);
    print_error("%s: '%s':", name, text);
    for (size_t i = 0; i < ids->count; i++) print_error(" %d", ids->data[i]);
    print_error(", wanted %s\n", all);
    free(all);
    return false;
}

static size_t check_text(const char *name, const tm_tokenizer *t, tm_token_encoder *encoder, json_t *one)
{
    const char *text = json_string_value(json_array_get(one, 0)), *back = json_string_value(json_array_get(one, 3));
    size_t      n = json_string_length(json_array_get(one, 0)), wrong = 0;
    tm_ids      ids = { 0 };
    tm_text     out = { 0 };
    assert_ok_of(name, tm_token_encoder_encode(encoder, text, n, 0, &ids, err));
    wrong += !same_ids(name, text, &ids, json_array_get(one, 2));
    ids.count = 0;
    assert_ok_of(name, tm_token_encoder_encode(encoder, text, n, TM_ENCODE_SPECIAL, &ids, err));
    wrong += !same_ids(name, text, &ids, json_array_get(one, 1));
    tm_tokenizer_decode(t, ids.data, ids.count, false, &out);
    if (back && strcmp(out.data, back) != 0) {
        print_error("%s: '%s' decoded to '%s', wanted '%s'\n", name, text, out.data, back);
        wrong++;
    }
    tm_text_fini(&out);
    free(ids.data);
    return wrong;
}

TEST(ids_are_those_of_the_library)
{
    json_t *one, *text;
    size_t  i, k, wrong = 0;
    json_array_foreach(json_object_get(rules, "variants"), i, one)
    {
        const char   *name = json_string_value(json_array_get(one, 0));
        tm_tokenizer *t = NULL;
        tm_error      err = { 0 };
        if (changed(json_array_get(one, 1), &t, &err) != TM_OK) {
            print_error("%s: %s\n", name, err.text);
            wrong++;
            continue;
        }
        tm_token_encoder *encoder = tm_token_encoder_create(t);
        json_array_foreach(json_array_get(one, 2), k, text) wrong += check_text(name, t, encoder, text);
        tm_token_encoder_destroy(encoder);
        tm_tokenizer_close(t);
    }
    assert_true(i >= 60);
    assert_int_equal(wrong, 0);
}

/* tests/token/refused.txt: the members of a tokenizer, and the message. */
TEST(what_is_not_read_is_refused)
{
    FILE *file = fopen("tests/token/refused.txt", "r");
    char  line[400];
    int   n = 0, wrong = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        char         *message = strstr(line, " => ");
        json_error_t  problem;
        tm_tokenizer *t = NULL;
        tm_error      err = { 0 };
        line[strcspn(line, "\n")] = '\0';
        if (*line == '#') continue;
        assert_non_null(message);
        *message = '\0';
        json_t *change = json_loads(line, 0, &problem);
        if (!change) fail_msg("%s: %s", line, problem.text);
        tm_status st = changed(change, &t, &err);
        if ((st != TM_FORMAT && st != TM_UNSUPPORTED) || strcmp(err.text, message + 4) != 0) {
            wrong++;
            print_error("%s\n  %s\n", line, st == TM_OK ? "is read" : err.text);
        }
        tm_tokenizer_close(t);
        json_decref(change);
        n++;
    }
    fclose(file);
    assert_int_equal(wrong, 0);
    assert_int_equal(n, 38);
}

/* Each step is one that files have; what they make together must stay in a measure of the text. */
TEST(steps_that_multiply_a_text_are_refused)
{
#define TEN_A "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaa\"}"
#define ANY_A "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[ab]\"},\"content\":\"aaaaaaaaaaaaaaaaaaaa\"}"
#define BLANKS "{\"type\":\"Metaspace\",\"replacement\":\"          \",\"split\":false}"
    static const char *const bombs[] = {
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" TEN_A "," TEN_A "," TEN_A "," TEN_A "," TEN_A
        "," TEN_A "," TEN_A "," TEN_A "," TEN_A "," TEN_A "," TEN_A "," TEN_A "]}}",
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" ANY_A "," ANY_A "," ANY_A "," ANY_A "," ANY_A
        "," ANY_A "]}}",
        "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" BLANKS "," BLANKS "," BLANKS "," BLANKS
        "," BLANKS "," BLANKS "]}}",
    };
    for (size_t i = 0; i < sizeof bombs / sizeof bombs[0]; i++) {
        json_error_t  problem;
        json_t       *change = json_loads(bombs[i], 0, &problem);
        tm_tokenizer *t = NULL;
        tm_error      err = { 0 };
        tm_ids        ids = { 0 };
        if (!change || changed(change, &t, &err) != TM_OK) fail_msg("%s%s", problem.text, err.text);
        tm_token_encoder *encoder = tm_token_encoder_create(t);
        for (int again = 0; again < 2; again++)
            assert_int_equal(tm_token_encoder_encode(encoder, "a a b a a", 9, 0, &ids, &err), TM_INVALID);
        assert_non_null(strstr(err.text, "multiplies the text: it makes more than 67840 bytes of 9"));
        free(ids.data);
        tm_token_encoder_destroy(encoder);
        tm_tokenizer_close(t);
        json_decref(change);
    }
}

TEST_FIXTURE(set_up, tear_down)
