/* SPDX-License-Identifier: Apache-2.0 */
#include "encoder/config.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json_input.h"
#include "base/text.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONFIG = 1 << 20 };

/* What any file may have and nothing here computes with: a class's name is checked apart. */
static const char *const idle[] = { "architectures",
                                    "model_type",
                                    "_class_name",
                                    "_diffusers_version",
                                    "_name_or_path",
                                    "name_or_path",
                                    "_commit_hash",
                                    "transformers_version",
                                    "torch_dtype",
                                    "dtype",
                                    "torchscript",
                                    "use_bfloat16",
                                    "use_cache",
                                    "return_dict",
                                    "output_attentions",
                                    "output_hidden_states",
                                    "output_past",
                                    "attn_implementation",
                                    "_attn_implementation_autoset",
                                    "initializer_factor",
                                    "initializer_range",
                                    "bos_token_id",
                                    "pad_token_id",
                                    "tokenizer_class",
                                    "gradient_checkpointing",
                                    "task_specific_params",
                                    "id2label",
                                    "label2id",
                                    "tie_word_embeddings",
                                    "chunk_size_feed_forward" };

/* --- values ------------------------------------------------------------------------------------------------------- */

/* The number of `value` among "a|b"; -1: it is none of them. */
static int64_t number_of(const char *values, const char *value)
{
    size_t length = strlen(value);
    for (int64_t i = 0;; i++) {
        size_t n = strcspn(values, "|");
        if (n == length && strncmp(values, value, n) == 0) return i;
        if (!values[n]) return -1;
        values += n + 1;
    }
}

typedef struct {
    const char *path, *class_name;
    json_t     *root;
    tm_arena   *arena;
    char       *config;
} reader;

static tm_status refuse(const reader *r, const tm_frozen_key *row, const char *value, tm_error *err)
{
    char names[200];
    snprintf(names, sizeof names, "%s", row->values);
    for (char *p = names; (p = strchr(p, '|'));) *p = ',';
    return tm_fail(err, TM_UNSUPPORTED,
                   "'%s': '%s' is %.80s, and of %s only %s is computed; take a folder whose model has that", r->path,
                   row->key, value, r->class_name, names);
}

static tm_status whole(const reader *r, const tm_frozen_key *row, const json_t *value, int64_t *out, tm_error *err)
{
    int64_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 1 || number > row->most)
        return tm_fail(err, TM_FORMAT, "'%s': '%s' is %.80s, wanted a whole number from 1 to %lld", r->path, row->key,
                       tm_json_value_text(r->arena, value), (long long)row->most);
    *out = number;
    return TM_OK;
}

static tm_status list(const reader *r, const tm_frozen_key *row, const json_t *value, tm_error *err)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value) || n < 1 || n > TM_KEY_ITEMS)
        return tm_fail(err, TM_FORMAT, "'%s': '%s' is no list of 1 to %d items", r->path, row->key, TM_KEY_ITEMS);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(value, i);
        if (row->kind == TM_KEY_EACH && strcmp(tm_json_value_text(r->arena, item), row->values) != 0)
            return refuse(r, row, tm_json_value_text(r->arena, item), err);
        if (row->kind == TM_KEY_LIST)
            TM_TRY(whole(r, row, item, &((tm_key_list *)(void *)(r->config + row->offset))->item[i], err));
    }
    if (row->kind == TM_KEY_LIST) ((tm_key_list *)(void *)(r->config + row->offset))->n = (int64_t)n;
    return TM_OK;
}

static tm_status apply(const reader *r, const tm_frozen_key *row, const json_t *value, tm_error *err)
{
    void       *to = r->config + row->offset;
    const char *text = tm_json_value_text(r->arena, value);
    int64_t     choice = row->values ? number_of(row->values, text) : 0;
    switch (row->kind) {
    case TM_KEY_WHOLE:
        return whole(r, row, value, to, err);
    case TM_KEY_NUMBER:
        if (!json_is_number(value) || !isfinite(json_number_value(value)))
            return tm_fail(err, TM_FORMAT, "'%s': '%s' is %.80s, wanted a number", r->path, row->key, text);
        *(double *)to = json_number_value(value);
        return TM_OK;
    case TM_KEY_FLAG:
        if (!json_is_boolean(value))
            return tm_fail(err, TM_FORMAT, "'%s': '%s' is %.80s, wanted true or false", r->path, row->key, text);
        *(int64_t *)to = json_is_true(value);
        return TM_OK;
    case TM_KEY_LIST:
    case TM_KEY_EACH:
        return list(r, row, value, err);
    case TM_KEY_CHOICE:
        if (choice >= 0) *(int64_t *)to = choice;
        return choice < 0 ? refuse(r, row, text, err) : TM_OK;
    case TM_KEY_MUST:
        return choice < 0 ? refuse(r, row, text, err) : TM_OK;
    case TM_KEY_IDLE:
        break;
    }
    return TM_OK;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

/* A null is as if it were absent, unless null is what is wanted. */
static tm_status apply_row(const reader *r, const tm_frozen_key *row, tm_error *err)
{
    json_t *value = json_object_get(r->root, row->key);
    if (row->kind == TM_KEY_IDLE) return TM_OK;
    if (value && !json_is_null(value)) return apply(r, row, value, err);
    if (!row->absent)
        return tm_fail(err, TM_FORMAT, "'%s' has no '%s', which the config.json of a %s needs", r->path, row->key,
                       r->class_name);
    if (!*row->absent) return TM_OK; /* stays 0 */
    json_t *meant = json_loads(row->absent, JSON_DECODE_ANY, NULL);
    if (!meant) meant = json_string(row->absent);
    tm_status st = apply(r, row, meant, err);
    json_decref(meant);
    return st;
}

static bool known(const tm_frozen_key *keys, const char *name)
{
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++)
        if (strcmp(idle[i], name) == 0) return true;
    for (const tm_frozen_key *row = keys; row->key; row++)
        if (strcmp(row->key, name) == 0) return true;
    return false;
}

static tm_status check_class(const reader *r, tm_error *err)
{
    const json_t *classes = json_object_get(r->root, "architectures");
    const char   *name = json_string_value(json_array_get(classes, 0));
    if (!name) name = json_string_value(json_object_get(r->root, "_class_name"));
    if (!name)
        return tm_fail(err, TM_FORMAT,
                       "'%s' names no class ('architectures' or '_class_name'), wanted %s; is it "
                       "the config.json of this encoder?",
                       r->path, r->class_name);
    if (strcmp(name, r->class_name) != 0)
        return tm_fail(err, TM_UNSUPPORTED, "'%s' is of a %.80s, wanted %s; give the folder of that encoder", r->path,
                       name, r->class_name);
    return TM_OK;
}

static tm_status read_root(const reader *r, const tm_frozen_key *keys, tm_error *err)
{
    const char *key;
    json_t     *value;
    TM_TRY(check_class(r, err));
    for (const tm_frozen_key *row = keys; row->key; row++) TM_TRY(apply_row(r, row, err));
    json_object_foreach(r->root, key, value)
    {
        if (known(keys, key) || json_is_null(value)) continue;
        return tm_fail(err, TM_UNSUPPORTED,
                       "'%s': '%.150s' (%.80s) is not known for %s and might change what is computed; remove it if it "
                       "does not",
                       r->path, key, tm_json_value_text(r->arena, value), r->class_name);
    }
    return TM_OK;
}

tm_status tm_frozen_config_read(const char *path, const char *class_name, const tm_frozen_key *keys, void *config,
                                tm_error *err)
{
    tm_text      text = { 0 };
    json_error_t problem;
    reader       r = { .path = path, .class_name = class_name, .config = config };
    TM_TRY(tm_file_read(path, MAX_CONFIG, &text, err));
    r.root = tm_json_input(text.data ? text.data : "", text.length, JSON_REJECT_DUPLICATES, &problem);
    r.arena = tm_arena_create();
    tm_status st;
    if (!r.root)
        st = tm_fail(err, TM_FORMAT, "'%s':%d: not JSON: %s", path, problem.line, problem.text);
    else if (!json_is_object(r.root))
        st = tm_fail(err, TM_FORMAT, "'%s' is not a JSON object", path);
    else
        st = read_root(&r, keys, err);
    json_decref(r.root);
    tm_arena_destroy(r.arena);
    tm_text_fini(&text);
    return st;
}
