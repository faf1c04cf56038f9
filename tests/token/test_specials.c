/* SPDX-License-Identifier: Apache-2.0 */
/* Which token ends a text: what a folder says of it, in the order in which transformers asks; a name is the last way.
 */
#include "support/folder.h"
#include "support/full_config.h"
#include "token/chat.h"

#include "support/test.h"

static const char tokenizer[] =
    "{\"added_tokens\": [{\"id\": 3, \"content\": \"</s>\", \"special\": true}, {\"id\": 4, \"content\": "
    "\"<|im_end|>\", "
    "\"special\": true}, {\"id\": 5, \"content\": \"<pad>\", \"special\": true}, {\"id\": 6, \"content\": \"<mine>\", "
    "\"special\": true}], \"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": %s, \"decoder\": null, "
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"], \"unk_token\": "
    "null, "
    "\"fuse_unk\": false, \"byte_fallback\": false, \"dropout\": null, \"continuing_subword_prefix\": null, "
    "\"end_of_word_suffix\": null}}";
#define APPENDS                                                                                                        \
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "                \
    "{\"SpecialToken\": "                                                                                              \
    "{\"id\": \"<pad>\", \"type_id\": 0}}], \"pair\": [], \"special_tokens\": {\"<pad>\": {\"id\": \"<pad>\", "        \
    "\"ids\": [5], "                                                                                                   \
    "\"tokens\": [\"<pad>\"]}}}"

static char *folder_of(const char *const files[][2], size_t n, const char *processor)
{
    char *folder = test_tree_make(), text[3000];
    snprintf(text, sizeof text, tokenizer, processor);
    test_file_write(folder, "tokenizer.json", text);
    for (size_t i = 0; i < n && files[i][0]; i++) test_file_write(folder, files[i][0], files[i][1]);
    return folder;
}

TEST(a_folder_says_what_ends_a_text)
{
    static const struct {
        const char *files[4][2];
        const char *processor, *from, *missing;
        int         eos;
    } cases[] = {
        { { { NULL } }, "null", "name", NULL, 3 },
        { { { NULL } }, APPENDS, "post_processor", NULL, 5 },
        { { { "config.json", "{\"eos_token_id\": 4}" } }, APPENDS, "config.json", NULL, 4 },
        { { { "config.json", "{\"eos_token_id\": [6, 4]}" } }, "null", "config.json", NULL, 6 },
        { { { "config.json", "{\"eos_token_id\": 4}" }, { "generation_config.json", "{\"eos_token_id\": [6, 3]}" } },
          "null",
          "generation_config.json",
          NULL,
          6 },
        { { { "generation_config.json", "{\"eos_token_id\": 6}" },
            { "tokenizer_config.json",
              "{\"eos_token\": \"<|im_end|>\", \"model_max_length\": 1000000000000000019884624838656}" } },
          "null",
          "tokenizer_config.json",
          NULL,
          4 },
        { { { "tokenizer_config.json", "{\"eos_token\": {\"content\": \"<|im_end|>\", \"lstrip\": false}}" } },
          "null",
          "tokenizer_config.json",
          NULL,
          4 },
        { { { "tokenizer_config.json", "{\"eos_token\": null}" },
            { "special_tokens_map.json", "{\"eos_token\": \"<mine>\"}" } },
          "null",
          "special_tokens_map.json",
          NULL,
          6 },
        { { { "tokenizer_config.json", "{\"eos_token\": \"</s>\"}" },
            { "special_tokens_map.json", "{\"eos_token\": {\"content\": \"<|im_end|>\"}}" },
            { "config.json", "{\"eos_token_id\": 3}" } },
          APPENDS,
          "special_tokens_map.json",
          NULL,
          4 },
        { { { "tokenizer_config.json", "{\"eos_token\": \"<not there>\"}" } },
          "null",
          "tokenizer_config.json",
          "<not there>",
          -1 },
        { { { "config.json", "{\"eos_token_id\": 77}" } }, "null", "config.json", NULL, 3 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char         *folder = folder_of(cases[i].files, 4, cases[i].processor);
        tm_tokenizer *t;
        tm_error      err = { 0 };
        if (tm_tokenizer_open(folder, NULL, &t, &err) != TM_OK) fail_msg("%zu: %s", i, err.text);
        const tm_tokenizer_facts *f = tm_tokenizer_describe(t);
        if (f->eos != cases[i].eos || !f->eos_from || strcmp(f->eos_from, cases[i].from) != 0)
            fail_msg("%zu: eos %d by %s, wanted %d by %s", i, (int)f->eos, f->eos_from ? f->eos_from : "nothing",
                     cases[i].eos, cases[i].from);
        if (!f->eos_missing != !cases[i].missing || (f->eos_missing && strcmp(f->eos_missing, cases[i].missing) != 0))
            fail_msg("%zu: missing %s", i, f->eos_missing ? f->eos_missing : "nothing");
        tm_tokenizer_close(t);
        test_tree_remove(folder);
    }
}

/* Templates see every token that the folder names. */
TEST(templates_see_the_tokens_of_both_files)
{
    static const struct {
        const char *name, *files[4][2], *wanted;
    } cases[] = {
        { NULL,
          { { "tokenizer_config.json",
              "{\"bos_token\": \"<s>\", \"extra_special_tokens\": {\"image\": \"<img>\"}, \"big\": 1e999, "
              "\"chat_template\": \"{{ bos_token }}{{ image }}{{ eos_token }}\"}" },
            { "special_tokens_map.json", "{\"eos_token\": \"<end>\"}" } },
          "<s><img><end>" },
        { "tool_use",
          { { "tokenizer_config.json", "{\"chat_template\": {\"default\": \"d\", \"tool_use\": \"t\"}}" } },
          "t" },
        { NULL,
          { { "tokenizer_config.json", "{\"chat_template\": {\"default\": \"d\", \"tool_use\": \"t\"}}" } },
          "d" },
        { NULL,
          { { "tokenizer_config.json", "{\"chat_template\": \"c\"}" }, { "chat_template.jinja", "file" } },
          "file" },
        { "rag",
          { { "tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"}]}" } },
          "r" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char    *folder = folder_of(cases[i].files, 4, "null");
        tm_chat *chat;
        tm_error err = { 0 };
        tm_text  out = { 0 };
        json_t  *messages = json_array();
        if (tm_chat_open(folder, cases[i].name, &chat, &err) != TM_OK) fail_msg("%zu: %s", i, err.text);
        if (tm_chat_render(chat, messages, NULL, false, &out, NULL, &err) != TM_OK) fail_msg("%zu: %s", i, err.text);
        if (strcmp(out.data, cases[i].wanted) != 0) fail_msg("%zu: %s", i, out.data);
        tm_text_fini(&out);
        json_decref(messages);
        tm_chat_close(chat);
        test_tree_remove(folder);
    }
}
