/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers in GGUF files: what is written and read again gives the same ids; what llama.cpp lacks is not written. */
#include "support/folder.h"
#include "token/gguf.h"

#include "support/test.h"

static const char *const texts[] = { "Hello world",
                                     " Hello  world ",
                                     "don't we'll I'm 's",
                                     "a\nb\n\nc\r\n d\n",
                                     "1 12 123 12345",
                                     "x=1;//y </s> <s>",
                                     "\xC3\x9C"
                                     "ber \xE4\xBD\xA0\xF0\x9F\x98\x80\xFF",
                                     "" };

static tm_tokenizer *fixture(const char *name)
{
    char          path[120];
    tm_tokenizer *t;
    snprintf(path, sizeof path, "tests/token/fixtures/%s", name);
    assert_ok(tm_tokenizer_open(path, NULL, &t, err));
    return t;
}

static void write_file(tm_gguf_head *head, const char *path)
{
    tm_gguf_writer *writer;
    tm_error        err = { 0 };
    if (tm_gguf_create(path, head, NULL, 0, &writer, &err) != TM_OK || tm_gguf_finish(writer, &err) != TM_OK)
        fail_msg("%s", err.text);
    tm_text_fini(&head->bytes);
}

static void encode(const tm_tokenizer *t, const char *text, tm_ids *ids)
{
    tm_token_encoder *e = tm_token_encoder_create(t);
    assert_ok(tm_token_encoder_encode(e, text, strlen(text), TM_ENCODE_SPECIAL, ids, err));
    tm_token_encoder_destroy(e);
}

static void same_ids(const char *name)
{
    tm_gguf_head  head = { .count = 0 };
    tm_tokenizer *t = fixture(name), *again;
    tm_error      err = { 0 };
    const char   *path = test_in_folder("t.gguf");
    const char   *why = tm_gguf_put_tokenizer(&head, t, tm_tokenizer_describe(t)->vocab + 5);
    if (why) fail_msg("%s: %s", name, why);
    write_file(&head, path);
    if (tm_tokenizer_open(path, NULL, &again, &err) != TM_OK) fail_msg("%s: %s", name, err.text);
    const tm_tokenizer_facts *a = tm_tokenizer_describe(t), *b = tm_tokenizer_describe(again);
    assert_true(a->bos == b->bos && a->eos == b->eos && a->unk == b->unk && a->pad == b->pad);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        /* a SentencePiece model takes names of special tokens for text, a tokenizer.json does not */
        tm_ids x = { 0 }, y = { 0 };
        if (strcmp(a->format, b->format) != 0 && strchr(texts[i], '<')) continue;
        encode(t, texts[i], &x);
        encode(again, texts[i], &y);
        if (x.count != y.count || (x.count && memcmp(x.data, y.data, x.count * sizeof *x.data) != 0))
            fail_msg("%s: other ids of '%s'", name, texts[i]);
        free(x.data);
        free(y.data);
    }
    tm_tokenizer_close(t);
    tm_tokenizer_close(again);
    test_folder_remove();
}

TEST(ids_are_the_same)
{
    same_ids("gpt2.json");
    same_ids("llama3.json");
    same_ids("qwen2.json");
    same_ids("o200k.json");
    same_ids("llama2.json");
    same_ids("llama2.model");
}

static void lacking(const char *name, const char *part)
{
    tm_gguf_head  head = { .count = 0 };
    tm_tokenizer *t = fixture(name);
    const char   *why = tm_gguf_put_tokenizer(&head, t, tm_tokenizer_describe(t)->vocab);
    if (!why || !strstr(why, part)) fail_msg("%s: %s", name, why ? why : "was put");
    assert_int_equal(head.count, 0);
    tm_tokenizer_close(t);
}

TEST(what_llama_cpp_lacks_is_not_put)
{
    tm_gguf_head  head = { .count = 0 };
    tm_tokenizer *t = fixture("gpt2.json");
    lacking("deepseek.json", "no name for the pattern");
    lacking("clip.json", "no name for the pattern");
    lacking("tekken.json", "its merges are in no order");
    lacking("t5.json", "neither byte-level BPE nor");
    lacking("t5.model", "neither byte-level BPE nor");
    lacking("fused.json", "neither byte-level BPE nor");
    assert_non_null(strstr(tm_gguf_put_tokenizer(&head, t, 100), "more ids than the model"));
    assert_non_null(strstr(tm_gguf_put_tokenizer(&head, NULL, 255), "fewer ids than there are bytes"));
    assert_int_equal(head.count, 0);
    tm_tokenizer_close(t);
}
