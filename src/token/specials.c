/* SPDX-License-Identifier: Apache-2.0 */
#include "token/specials.h"

#include "base/file.h"
#include "base/json_input.h"
#include "base/text.h"
#include "token/gguf.h"

#include <string.h>

/* In the order in which they count, the last one most. */
static const char *const token_files[] = { "tokenizer_config.json", "special_tokens_map.json" };

/* An object, NULL without the file. */
static tm_status read_object(const char *folder, const char *name, json_t **out, tm_error *err)
{
    tm_text      path = { 0 };
    json_error_t problem;
    tm_status    st = TM_OK;
    *out = NULL;
    tm_text_printf(&path, "%s/%s", folder, name);
    if (tm_file_exists(path.data)) {
        *out = tm_json_input_file(path.data, JSON_ALLOW_NUL, &problem);
        if (!*out)
            st = tm_fail(err, TM_FORMAT, "'%.300s', line %d: %s", path.data, problem.line, problem.text);
        else if (!json_is_object(*out))
            st = tm_fail(err, TM_FORMAT, "'%.300s' is not an object", path.data);
    }
    tm_text_fini(&path);
    return st;
}

/* A text, or a map that has it as content. */
static json_t *text_of(json_t *value)
{
    json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
    return json_is_string(text) ? text : NULL;
}

/* Every member whose name ends in "_token", and those of extra_special_tokens, whatever they are called. */
static void take_tokens(json_t *config, json_t *to)
{
    json_t     *value;
    const char *key;
    json_object_foreach(config, key, value)
    {
        size_t n = strlen(key);
        if (n > 6 && strcmp(key + n - 6, "_token") == 0 && text_of(value)) json_object_set(to, key, text_of(value));
    }
    json_object_foreach(json_object_get(config, "extra_special_tokens"), key, value)
    {
        if (text_of(value)) json_object_set(to, key, text_of(value));
    }
}

static tm_status of_gguf(const char *path, json_t **out, tm_error *err)
{
    tm_gguf  *gguf = NULL;
    tm_status st = tm_gguf_open(path, &gguf, err);
    *out = st == TM_OK ? tm_gguf_specials(gguf) : json_object();
    tm_gguf_close(gguf);
    return st;
}

/* What a GGUF file says that texts end with: its end of text, and its end of a turn. */
static int ends_of_gguf(const char *path, int64_t ids[TM_MAX_ENDS], const char **from)
{
    static const char *const keys[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id" };
    tm_gguf                 *gguf;
    tm_error                 ignored = { 0 };
    int                      n = 0;
    if (tm_gguf_open(path, &gguf, &ignored) != TM_OK) return 0;
    for (int i = 0; i < 2; i++) n += tm_gguf_whole(gguf, keys[i], &ids[n]);
    if (n > 0) *from = keys[0];
    tm_gguf_close(gguf);
    return n;
}

tm_status tm_specials_read(const char *folder, json_t **out, const char **from, tm_error *err)
{
    tm_status st = TM_OK;
    if (from) *from = NULL;
    if (tm_is_gguf(folder)) return of_gguf(folder, out, err);
    *out = json_object();
    for (size_t i = 0; i < sizeof token_files / sizeof token_files[0] && st == TM_OK; i++) {
        json_t *config;
        st = read_object(folder, token_files[i], &config, err);
        take_tokens(config, *out);
        if (from && text_of(json_object_get(config, "eos_token"))) *from = token_files[i];
        json_decref(config);
    }
    return st;
}

const char *tm_specials_left_side(const char *folder)
{
    static const char *const keys[] = { "padding_side", "truncation_side" };
    const char              *found = NULL;
    json_t                  *config = NULL;
    tm_error                 ignored = { 0 };
    if (tm_is_gguf(folder) || read_object(folder, token_files[0], &config, &ignored) != TM_OK) return NULL;
    for (size_t i = 0; i < 2 && !found; i++) {
        const char *side = json_string_value(json_object_get(config, keys[i]));
        if (side && strcmp(side, "left") == 0) found = keys[i];
    }
    json_decref(config);
    return found;
}

int tm_specials_ends(const char *folder, int64_t ids[TM_MAX_ENDS], const char **from)
{
    static const char *const files[] = { "generation_config.json", "config.json" };
    int                      n = 0;
    *from = NULL;
    if (tm_is_gguf(folder)) return ends_of_gguf(folder, ids, from);
    for (size_t i = 0; i < 2 && n == 0; i++) {
        json_t  *root;
        tm_error ignored = { 0 };
        if (read_object(folder, files[i], &root, &ignored) != TM_OK) root = NULL;
        json_t *ends = json_object_get(root, "eos_token_id");
        if (json_is_integer(ends)) ids[n++] = json_integer_value(ends);
        for (size_t k = 0; k < json_array_size(ends) && n < TM_MAX_ENDS; k++)
            if (json_is_integer(json_array_get(ends, k))) ids[n++] = json_integer_value(json_array_get(ends, k));
        if (n > 0) *from = files[i];
        json_decref(root);
    }
    return n;
}
