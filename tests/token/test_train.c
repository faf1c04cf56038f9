/* SPDX-License-Identifier: Apache-2.0 */
/* A vocabulary learned from text: which pairs are joined, in what order, and that the file gives back every text. */
#include "token/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tm_tokenizer *learn(const char *text, size_t n, const tm_bpe_goal *goal, tm_bpe_result *result, tm_text *file)
{
    tm_bpe_trainer *trainer;
    tm_tokenizer   *tokenizer;
    tm_error        err = { 0 };
    if (tm_bpe_trainer_create("gpt2", &trainer, &err) != TM_OK) fail_msg("%s", err.text);
    tm_bpe_trainer_add(trainer, text, n);
    if (tm_bpe_trainer_finish(trainer, goal, file, result, &err) != TM_OK) fail_msg("%s", err.text);
    tm_bpe_trainer_destroy(trainer);
    if (tm_tokenizer_parse("learned", file->data, file->length, NULL, &tokenizer, &err) != TM_OK)
        fail_msg("%s", err.text);
    return tokenizer;
}

static void check_token(const tm_tokenizer *tokenizer, int32_t id, const char *wanted)
{
    size_t      n;
    const char *text = tm_tokenizer_text(tokenizer, id, &n);
    if (!text || strcmp(text, wanted) != 0) fail_msg("token %d is %s, wanted %s", id, text ? text : "none", wanted);
}

/* Words: "low" 3, " low" 1, " lower" 2, " wider" 2. Pairs: lo 6, ow 6, then er 4, " l" 3 ... */
static void the_most_frequent_pair_is_first(void **state)
{
    static const char *const special[] = { "<end>" };
    static const char        text[] = "low\nlow\nlow low lower lower wider wider";
    (void)state;
    tm_bpe_goal   goal = { .vocab = 262, .special = special, .n_special = 1, .least = 2 };
    tm_bpe_result result;
    tm_text       file = { 0 };
    tm_tokenizer *t = learn(text, strlen(text), &goal, &result, &file);
    check_token(t, 256, "lo");  /* as often as "ow", and of lower ids */
    check_token(t, 257, "low"); /* 6 */
    check_token(t, 258, "er");  /* 4: comes before \304\240low (3) */
    check_token(t, 259, "\xC4\xA0low");
    check_token(t, 260, "\xC4\xA0w"); /* of the pairs that occur twice that of the lowest ids */
    check_token(t, 261, "<end>");
    assert_true(tm_tokenizer_is_special(t, 261));
    assert_int_equal(result.vocab, 262);
    assert_int_equal(result.words, 10);
    tm_tokenizer_close(t);
    tm_text_fini(&file);
}

/* No pair is frequent enough any more; nothing is lost of any bytes. */
static void every_text_comes_back(void **state)
{
    (void)state;
    char          text[4000];
    tm_bpe_goal   goal = { .vocab = 5000, .least = 3 };
    tm_bpe_result result;
    tm_text       file = { 0 }, back = { 0 };
    tm_ids        ids = { 0 };
    tm_error      err = { 0 };
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)("aab ab\nba"[i * i / 7 % 9] + (i % 97 == 0 ? 100 : 0));
    tm_tokenizer *t = learn(text, sizeof text, &goal, &result, &file);
    assert_in_range(result.vocab, 270, 4999);
    tm_encoder       *e = tm_encoder_create(t);
    static const char other[] = "abba aab \xF0\x9F\x98\x80 \xC3\xA9 zzz\n";
    assert_int_equal(tm_encoder_encode(e, other, strlen(other), 0, &ids, &err), TM_OK);
    tm_tokenizer_decode(t, ids.data, ids.count, false, &back);
    assert_string_equal(back.data, other);
    assert_true(ids.count < strlen(other));
    tm_text again = { 0 };
    tm_tokenizer_close(learn(text, sizeof text, &goal, &result, &again));
    assert_string_equal(file.data, again.data);
    tm_encoder_destroy(e);
    tm_tokenizer_close(t);
    tm_text_fini(&file);
    tm_text_fini(&again);
    tm_text_fini(&back);
    free(ids.data);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    tm_bpe_trainer *trainer;
    tm_bpe_result   result;
    tm_text         file = { 0 };
    tm_error        err = { 0 };
    assert_int_equal(tm_bpe_trainer_create("gpt9", &trainer, &err), TM_INVALID);
    err = (tm_error){ 0 };
    assert_int_equal(tm_bpe_trainer_create("cl100k", &trainer, &err), TM_UNSUPPORTED);
    assert_non_null(strstr(err.text, "llama3"));
    assert_int_equal(tm_bpe_trainer_create("qwen2", &trainer, &err), TM_OK);
    assert_int_equal(tm_bpe_trainer_finish(trainer, &(tm_bpe_goal){ .vocab = 300, .least = 1 }, &file, &result, &err),
                     TM_INVALID);
    tm_bpe_trainer_add(trainer, "text", 4);
    assert_int_equal(tm_bpe_trainer_finish(trainer, &(tm_bpe_goal){ .vocab = 255, .least = 1 }, &file, &result, &err),
                     TM_INVALID);
    tm_bpe_trainer_destroy(trainer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_frequent_pair_is_first),
        cmocka_unit_test(every_text_comes_back),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
