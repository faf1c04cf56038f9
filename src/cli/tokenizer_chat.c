/* SPDX-License-Identifier: Apache-2.0 */
/* cli/tokenizer_chat.c - `trainmark tokenizer chat`: a conversation as text and ids, by the folder's chat template. */
#include "cli/tokenizer_chat.h"

#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "token/chat.h"
#include "token/token.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 256 << 20 };

typedef struct {
    const char *messages, *name;
    bool        prompt, ids, json;
} chat_options;

/* An array of messages, or an object whose other members are variables of the template. */
static tm_status read_conversation(const char *path, json_t **root, json_t **messages, tm_error *err)
{
    tm_text      text = { 0 };
    json_error_t problem;
    TM_TRY(tm_file_read(path, MAX_BYTES, &text, err));
    *root = json_loadb(text.data ? text.data : "", text.length, JSON_REJECT_DUPLICATES, &problem);
    tm_text_fini(&text);
    if (!*root) return tm_fail(err, TM_FORMAT, "'%.300s', line %d: %s", path, problem.line, problem.text);
    *messages = json_is_array(*root) ? *root : json_object_get(*root, "messages");
    if (!json_is_array(*messages))
        return tm_fail(err, TM_FORMAT, "'%.300s': wanted a JSON array of messages, or an object with one as 'messages'",
                       path);
    size_t  i;
    json_t *one;
    json_array_foreach(*messages, i, one) if (!json_is_string(json_object_get(one, "role"))) return tm_fail(
        err, TM_FORMAT, "'%.300s': message %zu has no 'role'", path, i + 1);
    return TM_OK;
}

static tm_status encode(const char *folder, const tm_text *text, tm_ids *ids, tm_error *err)
{
    tm_tokenizer *tokenizer = NULL;
    TM_TRY(tm_tokenizer_open(folder, NULL, &tokenizer, err));
    tm_token_encoder *encoder = tm_token_encoder_create(tokenizer);
    tm_status         st = tm_chat_check_tokenizer(tokenizer, err);
    if (st == TM_OK) st = tm_token_encoder_encode(encoder, text->data, text->length, 0, ids, err);
    tm_token_encoder_destroy(encoder);
    tm_tokenizer_close(tokenizer);
    return st;
}

static void print(const chat_options *o, const tm_text *text, const tm_template_spans *spans, const tm_ids *ids,
                  tm_text *out)
{
    tm_json json = { .out = out };
    if (!o->json) {
        tm_text_add_n(out, text->data, text->length);
        for (size_t i = 0; i < ids->count; i++) tm_text_printf(out, "%s%d", i ? " " : "\n", (int)ids->data[i]);
        tm_text_add(out, "\n");
        return;
    }
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "text", text->data);
    tm_json_open(&json, "generated", '[');
    for (size_t i = 0; i < spans->count; i++) {
        tm_json_open(&json, NULL, '[');
        tm_json_i64(&json, NULL, (int64_t)spans->data[i].begin);
        tm_json_i64(&json, NULL, (int64_t)spans->data[i].end);
        tm_json_close(&json, ']');
    }
    tm_json_close(&json, ']');
    if (o->ids) {
        tm_json_open(&json, "ids", '[');
        for (size_t i = 0; i < ids->count; i++) tm_json_i64(&json, NULL, ids->data[i]);
        tm_json_close(&json, ']');
    }
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    const chat_options *o = line->options;
    tm_chat            *chat = NULL;
    json_t             *root = NULL, *messages = NULL;
    tm_text             text = { 0 }, out = { 0 };
    tm_template_spans   spans = { 0 };
    tm_ids              ids = { 0 };
    const char         *folder = line->words[0];
    TM_TRY(tm_cli_find_hub(line, TM_HUB_MODEL, &folder, err));
    tm_status st = tm_chat_open(folder, o->name, &chat, err);
    if (st == TM_OK) st = read_conversation(o->messages, &root, &messages, err);
    if (st == TM_OK) st = tm_chat_render(chat, messages, root == messages ? NULL : root, o->prompt, &text, &spans, err);
    if (st == TM_OK && o->ids) st = encode(folder, &text, &ids, err);
    if (st == TM_OK) print(o, &text, &spans, &ids, &out);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    tm_chat_close(chat);
    json_decref(root);
    tm_text_fini(&text);
    tm_text_fini(&out);
    free(spans.data);
    free(ids.data);
    return st;
}

static const tm_option rows[] = {
    { "messages", 0, TM_OPTION_TEXT, offsetof(chat_options, messages), .value = "FILE", .required = true,
      .help = "JSON: an array of messages, or an object with `messages` and variables" },
    { "template", 0, TM_OPTION_TEXT, offsetof(chat_options, name), .value = "NAME",
      .help = "which of several templates in tokenizer_config.json; default: `default`" },
    { "add-generation-prompt", 0, TM_OPTION_FLAG, offsetof(chat_options, prompt),
      .help = "add the tokens that precede the model's answer" },
    { "ids", 0, TM_OPTION_FLAG, offsetof(chat_options, ids), .help = "also print the token ids" },
    TM_OPTION_JSON(chat_options),
};

const tm_cli_command tm_tokenizer_command_chat = {
    .name = "chat",
    .summary = "render a conversation with the chat template of a model directory",
    .words = "DIR",
    .least = 1,
    .most = 1,
    TM_CLI_OPTIONS(rows, chat_options),
    .run = run,
};
