/* SPDX-License-Identifier: Apache-2.0 */
#include "token/chat.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json_input.h"
#include "token/gguf.h"
#include "token/specials.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct tm_chat {
    tm_template *tmpl;
    json_t      *tokens; /* name: text */
};

enum { MAX_BYTES = 16 << 20 };

static const char *path_of(const char *folder, const char *name, tm_text *path)
{
    path->length = 0;
    tm_text_printf(path, "%s/%s", folder, name);
    return path->data;
}

/* The text of `chat_template`, or NULL. */
static const json_t *template_of(json_t *config, const char *name)
{
    json_t *given = json_object_get(config, "chat_template"), *one;
    size_t  i;
    if (json_is_string(given)) return given;
    if (json_is_object(given)) return json_object_get(given, name ? name : "default");
    json_array_foreach(given, i, one)
    {
        const char *called = json_string_value(json_object_get(one, "name"));
        if (called && strcmp(called, name ? name : "default") == 0) return json_object_get(one, "template");
    }
    return NULL;
}

static tm_status read_file(tm_chat *chat, const char *path, tm_error *err)
{
    tm_text   text = { 0 };
    tm_status st = tm_file_read(path, MAX_BYTES, &text, err);
    if (st == TM_OK) st = tm_template_parse(path, text.data ? text.data : "", text.length, &chat->tmpl, err);
    tm_text_fini(&text);
    return st;
}

/* The file that has the template, if there is one: that of its name, else the folder's only one. */
static bool file_of(const char *folder, const char *name, tm_text *path)
{
    tm_text_printf(path, "%s/additional_chat_templates/%s.jinja", folder, name ? name : "default");
    if (name && tm_file_exists(path->data)) return true;
    if (tm_file_exists(path_of(folder, "chat_template.jinja", path))) return true;
    return !name && tm_file_exists(path_of(folder, "additional_chat_templates/default.jinja", path));
}

static tm_status read_template(tm_chat *chat, const char *folder, const char *name, json_t *config, tm_error *err)
{
    tm_text       path = { 0 };
    const json_t *given = template_of(config, name);
    tm_status     st = TM_OK;
    if (file_of(folder, name, &path)) {
        st = read_file(chat, path.data, err);
    } else if (json_is_string(given)) {
        path_of(folder, "tokenizer_config.json", &path);
        st = tm_template_parse(path.data, json_string_value(given), json_string_length(given), &chat->tmpl, err);
    } else {
        st = tm_fail(err, TM_INVALID,
                     "'%.300s' has no chat template%s%s: neither chat_template.jinja nor chat_template in "
                     "tokenizer_config.json",
                     folder, name ? " called " : "", name ? name : "");
    }
    tm_text_fini(&path);
    return st;
}

/* The template of a GGUF file, as the tokenizer_config.json of a folder would have it. */
static tm_status read_gguf(const char *path, json_t **out, tm_error *err)
{
    tm_gguf *gguf;
    size_t   n;
    TM_TRY(tm_gguf_open(path, &gguf, err));
    const char *text = tm_gguf_text(gguf, "tokenizer.chat_template", &n);
    *out = json_object();
    if (text) json_object_set_new(*out, "chat_template", json_stringn(text, n));
    tm_gguf_close(gguf);
    return TM_OK;
}

/* tokenizer_config.json, NULL without one. */
static tm_status read_config(const char *folder, json_t **out, tm_error *err)
{
    tm_text      path = { 0 };
    json_error_t problem;
    tm_status    st = TM_OK;
    if (tm_is_gguf(folder)) return read_gguf(folder, out, err);
    if (tm_file_exists(path_of(folder, "tokenizer_config.json", &path))) {
        *out = tm_json_input_file(path.data, JSON_ALLOW_NUL, &problem);
        if (!*out)
            st = tm_fail(err, TM_FORMAT, "'%.300s', line %d: %s", path.data, problem.line, problem.text);
        else if (!json_is_object(*out))
            st = tm_fail(err, TM_FORMAT, "'%.300s' is not an object", path.data);
    }
    tm_text_fini(&path);
    return st;
}

/* `file`: of the template, NULL: the folder's, by name. */
static tm_status open_chat(const char *folder, const char *name, const char *file, tm_chat **out, tm_error *err)
{
    json_t   *config = NULL;
    tm_chat  *chat = tm_alloc(sizeof *chat);
    tm_status st = folder ? read_config(folder, &config, err) : TM_OK;
    *out = NULL;
    *chat = (tm_chat){ .tokens = folder ? NULL : json_object() };
    if (st == TM_OK && folder) st = tm_specials_read(folder, &chat->tokens, NULL, err);
    if (st == TM_OK) st = file ? read_file(chat, file, err) : read_template(chat, folder, name, config, err);
    json_decref(config);
    if (st == TM_OK)
        *out = chat;
    else
        tm_chat_close(chat);
    return st;
}

tm_status tm_chat_open(const char *folder, const char *name, tm_chat **out, tm_error *err)
{
    return open_chat(folder, name, NULL, out, err);
}

tm_status tm_chat_open_file(const char *path, const char *folder, tm_chat **out, tm_error *err)
{
    return open_chat(folder, NULL, path, out, err);
}

bool tm_chat_text(const char *folder, tm_text *out)
{
    json_t       *config = NULL;
    tm_text       path = { 0 };
    tm_error      ignored = { 0 };
    size_t        before = out->length;
    bool          good = read_config(folder, &config, &ignored) == TM_OK;
    const json_t *given = template_of(config, NULL);
    if (good && file_of(folder, NULL, &path))
        good = tm_file_read(path.data, MAX_BYTES, out, &ignored) == TM_OK;
    else if (good && given)
        tm_text_add_n(out, json_string_value(given), json_string_length(given));
    json_decref(config);
    tm_text_fini(&path);
    return good && out->length > before;
}

void tm_chat_close(tm_chat *chat)
{
    if (!chat) return;
    tm_template_free(chat->tmpl);
    json_decref(chat->tokens);
    free(chat);
}

bool tm_chat_marks_generation(const tm_chat *chat)
{
    return tm_template_marks_generation(chat->tmpl);
}

tm_status tm_chat_check_tokenizer(const tm_tokenizer *tokenizer, tm_error *err)
{
    const char *format = tm_tokenizer_describe(tokenizer)->format;
    if (strcmp(format, "tokenizer.json") == 0) return TM_OK;
    return tm_fail(
        err, TM_UNSUPPORTED,
        "a %s file takes the names of special tokens for ordinary text, so a conversation would get other ids "
        "than the model was trained with; take a directory with tokenizer.json",
        format);
}

tm_status tm_chat_render(const tm_chat *chat, const json_t *messages, const json_t *more, bool prompt, tm_text *out,
                         tm_template_spans *spans, tm_error *err)
{
    json_t *variables = json_copy(chat->tokens);
    json_object_set_new(variables, "tools", json_null()); /* as transformers calls a template without them */
    json_object_set_new(variables, "documents", json_null());
    if (more) json_object_update(variables, (json_t *)(uintptr_t)more);
    json_object_set(variables, "messages", (json_t *)(uintptr_t)messages);
    json_object_set_new(variables, "add_generation_prompt", json_boolean(prompt));
    tm_status st = tm_template_render(chat->tmpl, variables, (int64_t)time(NULL), out, spans, err);
    json_decref(variables);
    return st;
}
