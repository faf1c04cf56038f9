/* SPDX-License-Identifier: Apache-2.0 */
/* token/read_folder.c - the tokenizers that are published in parts: CLIP's vocab.json with merges.txt, T5's
 * spiece.model. Their rules are in no file: they are those that transformers has for the class. Each becomes the
 * tokenizer.json that transformers would save, and is read as one. */
#include "base/file.h"
#include "base/json_input.h"
#include "token/read_folder.h"
#include "token/read_json.h"

#include <stdlib.h>
#include <string.h>

/* The original pattern of CLIP; case does not matter, because the text is in lower case by then. */
#define CLIP_PATTERN                                                                                                   \
    "<\\\\|startoftext\\\\|>|<\\\\|endoftext\\\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\\\p{L}]+|[\\\\p{N}]|"                    \
    "[^\\\\s\\\\p{L}\\\\p{N}]+"

static const char clip_rules[] =
    "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Replace\", "
    "\"pattern\": {\"Regex\": \"\\\\s+\"}, \"content\": \" \"}, {\"type\": \"Lowercase\"}]}, "
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": "
    "\"" CLIP_PATTERN "\"}, \"behavior\": \"Removed\", \"invert\": true}, {\"type\": \"ByteLevel\", "
    "\"add_prefix_space\": false}]}, \"decoder\": {\"type\": \"ByteLevel\"}}";

static const char t5_rules[] =
    "{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"WhitespaceSplit\"}, "
    "{\"type\": \"Metaspace\", \"replacement\": \"" TM_META "\", \"prepend_scheme\": \"always\", \"split\": true}]}, "
    "\"decoder\": {\"type\": \"Metaspace\", \"replacement\": \"" TM_META "\", \"prepend_scheme\": \"always\", "
    "\"split\": true}}";

static bool has(const char *folder, const char *name)
{
    tm_text path = { 0 };
    tm_text_printf(&path, "%s/%s", folder, name);
    bool there = tm_file_exists(path.data);
    tm_text_fini(&path);
    return there;
}

bool tm_folder_has_parts(const char *folder)
{
    return (has(folder, "vocab.json") && has(folder, "merges.txt")) || has(folder, "spiece.model");
}

static tm_status read_file(const tm_reading *r, const char *name, tm_text *out)
{
    tm_text path = { 0 };
    tm_text_printf(&path, "%s/%s", r->name, name);
    tm_status st = tm_file_read(path.data, TM_TOKENIZER_MAX_BYTES, out, r->err);
    tm_text_fini(&path);
    return st;
}

/* A JSON object of the folder; an empty one where the file is optional and missing. */
static tm_status read_object(const tm_reading *r, const char *name, bool optional, json_t **out)
{
    tm_text      bytes = { 0 };
    json_error_t error;
    *out = NULL;
    if (optional && !has(r->name, name)) {
        *out = json_object();
        return TM_OK;
    }
    tm_status st = read_file(r, name, &bytes);
    if (st == TM_OK) {
        *out = tm_json_input(bytes.data, bytes.length, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
        if (!*out)
            st = tm_fail(r->err, TM_FORMAT, "'%s/%s', line %d: %s", r->name, name, error.line, error.text);
        else if (!json_is_object(*out))
            st = tm_fail(r->err, TM_FORMAT, "'%s/%s' is not a JSON object", r->name, name);
    }
    tm_text_fini(&bytes);
    return st;
}

/* --- added tokens ------------------------------------------------------------------------------------------------- */

static json_t *with_content(json_t *list, const char *text)
{
    size_t  i;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        const char *content = json_string_value(json_object_get(one, "content"));
        if (content && strcmp(content, text) == 0) return one;
    }
    return NULL;
}

/* Puts a token into added_tokens, at its place by id: the library numbers them in this order. */
static void put_added(json_t *list, const char *text, json_int_t id, json_t *flags)
{
    static const char *const names[] = { "single_word", "lstrip", "rstrip", "normalized", "special" };
    json_t                  *token = json_pack("{s:I, s:s}", "id", id, "content", text);
    size_t                   at = 0;
    if (with_content(list, text)) {
        json_decref(token);
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_t *flag = json_object_get(flags, names[i]);
        bool    on = json_is_boolean(flag) ? json_is_true(flag) : i == 4;
        json_object_set_new(token, names[i], json_boolean(on));
    }
    while (at < json_array_size(list) && json_integer_value(json_object_get(json_array_get(list, at), "id")) < id) at++;
    json_array_insert_new(list, at, token);
}

/* added_tokens_decoder of tokenizer_config.json: {"49406": {"content": ..., flags}}. */
static tm_status add_decoder(const tm_reading *r, json_t *config, json_t *list)
{
    const char *key;
    json_t     *token;
    json_object_foreach(json_object_get(config, "added_tokens_decoder"), key, token)
    {
        const char *text = json_string_value(json_object_get(token, "content"));
        char       *end;
        long long   id = strtoll(key, &end, 10);
        if (!text || *end || end == key || id < 0 || id >= TM_MAX_IDS)
            return tm_fail(r->err, TM_FORMAT,
                           "'%s/tokenizer_config.json': added_tokens_decoder has '%.60s', which is no id with a token",
                           r->name, key);
        put_added(list, text, id, token);
    }
    return TM_OK;
}

/* The id of a special token that the folder names, else of `otherwise`; *text, if asked for, is what it is called. */
static tm_status special_of(const tm_reading *r, json_t *config, json_t *vocab, const char *name, const char *otherwise,
                            json_t *list, json_t *out)
{
    json_t     *value = json_object_get(config, name);
    const char *text = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    if (!text) text = otherwise;
    json_t *added = with_content(list, text), *id = json_object_get(vocab, text);
    if (added) id = json_object_get(added, "id");
    if (!json_is_integer(id))
        return tm_fail(r->err, TM_FORMAT,
                       "'%s': %s '%.100s' is neither in vocab.json nor in added_tokens_decoder; correct %s of "
                       "tokenizer_config.json",
                       r->name, name, text, name);
    put_added(list, text, json_integer_value(id), json_is_object(value) ? value : NULL);
    json_object_set_new(out, name, json_pack("[s, O]", text, id));
    return TM_OK;
}

/* --- CLIP --------------------------------------------------------------------------------------------------------- */

/* Lines "a b" into a list; the first may be "#version: 0.2". */
static tm_status read_pairs(const tm_reading *r, json_t *list)
{
    static const char name[] = "merges.txt";
    tm_text           text = { 0 };
    tm_status         st = read_file(r, name, &text);
    int               line = 0;
    for (size_t at = 0, next; st == TM_OK && at < text.length; at = next) {
        const char *from = text.data + at, *end = memchr(from, '\n', text.length - at);
        size_t      n = end ? (size_t)(end - from) : text.length - at;
        next = at + n + 1;
        line++;
        if (n > 0 && from[n - 1] == '\r') n--;
        if (n == 0 || strncmp(from, "#version", 8) == 0) continue;
        json_t *pair = json_stringn(from, n);
        if (!pair) st = tm_fail(r->err, TM_FORMAT, "'%s/%s', line %d: not UTF-8", r->name, name, line);
        if (pair) json_array_append_new(list, pair);
    }
    tm_text_fini(&text);
    return st;
}

static tm_status clip_root(const tm_reading *r, json_t *config, json_t *vocab, json_t **out)
{
    json_t *merges = json_array(), *added = json_array(), *named = json_object(),
           *root = json_loads(clip_rules, 0, NULL);
    tm_status st = add_decoder(r, config, added);
    if (st == TM_OK) st = special_of(r, config, vocab, "bos_token", "<|startoftext|>", added, named);
    if (st == TM_OK) st = special_of(r, config, vocab, "eos_token", "<|endoftext|>", added, named);
    if (st == TM_OK) st = special_of(r, config, vocab, "unk_token", "<|endoftext|>", added, named);
    if (st == TM_OK) st = special_of(r, config, vocab, "pad_token", "<|endoftext|>", added, named);
    if (st == TM_OK) st = read_pairs(r, merges);
    if (st == TM_OK) {
        json_t *unk = json_array_get(json_object_get(named, "unk_token"), 0);
        json_object_set_new(root, "post_processor",
                            json_pack("{s:s, s:O, s:O, s:b, s:b}", "type", "RobertaProcessing", "sep",
                                      json_object_get(named, "eos_token"), "cls", json_object_get(named, "bos_token"),
                                      "trim_offsets", 0, "add_prefix_space", 0));
        json_object_set_new(root, "model",
                            json_pack("{s:s, s:O, s:s, s:s, s:O, s:O}", "type", "BPE", "unk_token", unk,
                                      "continuing_subword_prefix", "", "end_of_word_suffix", "</w>", "vocab", vocab,
                                      "merges", merges));
        json_object_set(root, "added_tokens", added);
        r->tokenizer->facts.pad = (int32_t)json_integer_value(json_array_get(json_object_get(named, "pad_token"), 1));
        *out = json_incref(root);
    }
    json_decref(merges);
    json_decref(added);
    json_decref(named);
    json_decref(root);
    return st;
}

static tm_status read_clip(tm_reading *r, json_t *config)
{
    json_t   *vocab = NULL, *root = NULL;
    tm_status st = read_object(r, "vocab.json", false, &vocab);
    if (st == TM_OK) st = clip_root(r, config, vocab, &root);
    if (st == TM_OK) st = tm_read_tokenizer_json(r, root);
    r->tokenizer->facts.format = "vocab.json and merges.txt";
    json_decref(vocab);
    json_decref(root);
    return st;
}

/* --- T5 ----------------------------------------------------------------------------------------------------------- */

enum { EXTRA_IDS = 100, MOST_EXTRA_IDS = 10000 };

/* The sentinels <extra_id_99> to <extra_id_0> follow the pieces. */
static tm_status add_sentinels(const tm_reading *r, json_t *config, json_t *pieces, json_t *added)
{
    json_t    *given = json_object_get(config, "extra_ids");
    json_int_t n = json_is_integer(given) ? json_integer_value(given) : EXTRA_IDS;
    if (n < 0 || n > MOST_EXTRA_IDS)
        return tm_fail(r->err, TM_FORMAT, "'%s/tokenizer_config.json': extra_ids is %lld, wanted 0 to %d", r->name,
                       (long long)n, MOST_EXTRA_IDS);
    while (n-- > 0) {
        char name[40];
        snprintf(name, sizeof name, "<extra_id_%lld>", (long long)n);
        put_added(added, name, (json_int_t)json_array_size(pieces), NULL);
        json_array_append_new(pieces, json_pack("[s, f]", name, 0.0));
    }
    return TM_OK;
}

/* Special tokens have to be pieces: this model's vocabulary is not added to but by its sentinels. */
static tm_status t5_specials(const tm_reading *r, json_t *config, json_t *pieces, json_t *added, json_t *named)
{
    json_t *vocab = json_object(), *pair;
    size_t  i;
    json_array_foreach(pieces, i, pair)
    {
        json_object_set_new(vocab, json_string_value(json_array_get(pair, 0)), json_integer((json_int_t)i));
    }
    tm_status st = special_of(r, config, vocab, "pad_token", "<pad>", added, named);
    if (st == TM_OK) st = special_of(r, config, vocab, "eos_token", "</s>", added, named);
    if (st == TM_OK) st = special_of(r, config, vocab, "unk_token", "<unk>", added, named);
    json_decref(vocab);
    return st;
}

static tm_status t5_root(const tm_reading *r, json_t *config, const tm_text *bytes, json_t **out)
{
    json_t   *pieces = json_array(), *added = json_array(), *named = json_object();
    json_t   *root = json_loads(t5_rules, 0, NULL), *normalizer = NULL;
    tm_status st = tm_sentencepiece_parts(r, (const uint8_t *)bytes->data, bytes->length, pieces, added, &normalizer);
    if (st == TM_OK) st = add_decoder(r, config, added);
    if (st == TM_OK) st = add_sentinels(r, config, pieces, added);
    if (st == TM_OK) st = t5_specials(r, config, pieces, added, named);
    if (st == TM_OK) {
        json_t *end = json_object_get(named, "eos_token"), *text = json_array_get(end, 0);
        json_t *template = json_pack("{s:s, s:[{s:{s:s}}, {s:{s:O}}], s:{}}", "type", "TemplateProcessing", "single",
                                     "Sequence", "id", "A", "SpecialToken", "id", text, "special_tokens");
        json_object_set_new(json_object_get(template, "special_tokens"), json_string_value(text),
                            json_pack("{s:[O]}", "ids", json_array_get(end, 1)));
        json_object_set_new(root, "post_processor", template);
        if (normalizer) json_object_set(root, "normalizer", normalizer);
        json_object_set_new(root, "model",
                            json_pack("{s:s, s:O, s:O}", "type", "Unigram", "unk_id",
                                      json_array_get(json_object_get(named, "unk_token"), 1), "vocab", pieces));
        json_object_set(root, "added_tokens", added);
        *out = json_incref(root);
    }
    json_decref(pieces);
    json_decref(added);
    json_decref(named);
    json_decref(normalizer);
    json_decref(root);
    return st;
}

static tm_status read_t5(tm_reading *r, json_t *config)
{
    tm_text   bytes = { 0 };
    json_t   *root = NULL;
    tm_status st = read_file(r, "spiece.model", &bytes);
    if (st == TM_OK) st = t5_root(r, config, &bytes, &root);
    r->exact_scores = true;
    if (st == TM_OK) st = tm_read_tokenizer_json(r, root);
    r->tokenizer->facts.format = "spiece.model";
    tm_text_fini(&bytes);
    json_decref(root);
    return st;
}

/* --- the class ---------------------------------------------------------------------------------------------------- */

/* special_tokens_map.json counts more than tokenizer_config.json. */
static tm_status read_config(const tm_reading *r, json_t **out)
{
    json_t   *map = NULL;
    tm_status st = read_object(r, "tokenizer_config.json", true, out);
    if (st == TM_OK) st = read_object(r, "special_tokens_map.json", true, &map);
    if (st == TM_OK) json_object_update(*out, map);
    json_decref(map);
    return st;
}

static bool is_class(const char *class, const char *name)
{
    size_t n = strlen(name);
    return class && strncmp(class, name, n) == 0 && (class[n] == '\0' || strcmp(class + n, "Fast") == 0);
}

tm_status tm_read_folder(tm_reading *r)
{
    json_t   *config = NULL;
    bool      clip = has(r->name, "vocab.json"), t5 = has(r->name, "spiece.model");
    tm_status st = read_config(r, &config);
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    if (st == TM_OK && clip && is_class(class, "CLIPTokenizer"))
        st = read_clip(r, config);
    else if (st == TM_OK && t5 && is_class(class, "T5Tokenizer"))
        st = read_t5(r, config);
    else if (st == TM_OK)
        st =
            tm_fail(r->err, TM_UNSUPPORTED,
                    "'%s' has %s and %s%.60s%s; read are CLIPTokenizer with vocab.json and merges.txt, and T5Tokenizer "
                    "with spiece.model; save the tokenizer with transformers, which writes a tokenizer.json",
                    r->name, t5 ? "spiece.model" : "vocab.json with merges.txt",
                    class ? "the tokenizer_class '" : "no tokenizer_class in tokenizer_config.json", class ? class : "",
                    class ? "'" : "");
    json_decref(config);
    return st;
}
