/* SPDX-License-Identifier: Apache-2.0 */
/* hf/config_write.c - keys into config.json. */
#include "base/json.h"
#include "hf/config.h"
#include "model/keys.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The value of one of our keys: given, or what follows from the others. */
static void value_of(const tm_config *config, const tm_model_shape *s, const char *key, tm_text *out)
{
    static const char *const biases[] = {
        [TM_BIAS_NONE] = "none", [TM_BIAS_ALL] = "all", [TM_BIAS_QKV] = "qkv", [TM_BIAS_MI350X_TABLE] = "mi350x_table"
    };
    const char *text = tm_config_text(config, key);
    out->length = 0;
    tm_text_add(out, "");
    if (text)
        tm_text_add(out, text);
    else if (strcmp(key, "model.n_kv_heads") == 0)
        tm_text_printf(out, "%lld", (long long)s->n_kv_heads);
    else if (strcmp(key, "model.head_dim") == 0)
        tm_text_printf(out, "%lld", (long long)s->head_dim);
    else if (strcmp(key, "model.ffn_dim") == 0)
        tm_text_printf(out, "%lld", (long long)s->ffn_dim);
    else if (strcmp(key, "model.tied") == 0)
        tm_text_add(out, s->tied ? "true" : "false");
    else if (strcmp(key, "model.qk_norm") == 0)
        tm_text_add(out, s->qk_norm ? "true" : "false");
    else if (strcmp(key, "model.bias") == 0)
        tm_text_add(out, biases[s->bias]);
    else if (strcmp(key, "model.sinks") == 0)
        tm_text_add(out, s->sinks ? "true" : "false");
    else if (strcmp(key, "model.activation") == 0)
        tm_text_add(out, s->clamped ? "swiglu_clamped" : "swiglu");
    else if (strcmp(key, "model.moe_normalise") == 0)
        tm_text_add(out, s->moe.normalise ? "true" : "false");
    else if (strcmp(key, "model.moe_bias") == 0)
        tm_text_add(out, s->moe.biased ? "true" : "false");
    else if (strcmp(key, "model.moe_ffn_dim") == 0)
        tm_text_printf(out, "%lld", (long long)s->moe.ffn_dim);
}

/* Has the configuration one of the values of "model.rope_scaling=llama3|yarn"? */
static bool has_pair(const tm_config *config, const tm_model_shape *shape, const char *pair, tm_text *value)
{
    const char *equals = strchr(pair, '=');
    TM_ASSERT(equals);
    tm_text key = { 0 };
    tm_text_add_n(&key, pair, (size_t)(equals - pair));
    value_of(config, shape, key.data, value);
    tm_text_fini(&key);
    for (const char *one = equals + 1; one; one = strchr(one, '|') ? strchr(one, '|') + 1 : NULL)
        if (strcspn(one, "|") == value->length && strncmp(one, value->data, value->length) == 0) return true;
    return false;
}

/* Why the model does not have the form, or NULL. */
static const char *differs(const tm_config *config, const tm_model_shape *shape, const tm_hf_form *form, tm_text *value)
{
    for (const char *const *pair = form->pairs; *pair; pair++)
        if (!has_pair(config, shape, *pair, value)) return *pair;
    return form->lacks ? form->lacks(shape) : NULL;
}

tm_status tm_hf_form_of(const tm_config *config, const tm_model_shape *shape, const tm_hf_form **out, tm_error *err)
{
    tm_text                  value = { 0 }, reasons = { 0 };
    size_t                   n;
    const tm_hf_form *const *forms = tm_hf_forms(&n);
    *out = NULL;
    for (size_t i = 0; i < n && !*out; i++) {
        const char *why = differs(config, shape, forms[i], &value);
        if (why)
            tm_text_printf(&reasons, "%s%s is %s", i ? "; " : "", forms[i]->model_type, why);
        else
            *out = forms[i];
    }
    if (!*out) tm_fail(err, TM_UNSUPPORTED, "no Hugging Face class computes this model: %s", reasons.data);
    tm_text_fini(&value);
    tm_text_fini(&reasons);
    return *out ? TM_OK : TM_UNSUPPORTED;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* "default=none|llama3=llama3": ours to theirs; NULL: has none. */
static json_t *theirs_of(const char *values, const char *ours)
{
    size_t length = strlen(ours);
    for (const char *v = values; v;) {
        size_t n = strcspn(v, "|"), theirs = strcspn(v, "=");
        if (n - theirs - 1 == length && strncmp(v + theirs + 1, ours, length) == 0) return json_stringn(v, theirs);
        v = v[n] ? v + n + 1 : NULL;
    }
    return NULL;
}

/* A value of text: a number, a boolean, else a string. */
static json_t *json_of(const char *text, size_t n)
{
    json_t *value = json_loadb(text, n, JSON_DECODE_ANY, NULL);
    return value ? value : json_stringn(text, n);
}

/* Of one of our keys: whole numbers of keys that take any number, too, are written with a point, which transformers
 * asks for. */
static json_t *json_of_key(const char *key, const tm_text *value)
{
    size_t        n;
    const tm_key *keys = tm_model_keys(&n);
    json_t       *json = json_of(value->data, value->length);
    for (size_t i = 0; i < n && json_is_integer(json); i++) {
        if (keys[i].kind != TM_KEY_F64 || strcmp(keys[i].name, key) != 0) continue;
        json_t *real = json_real((double)json_integer_value(json));
        json_decref(json);
        json = real;
    }
    return json;
}

/* Puts a value under the first of a row's names. */
static void put(json_t *root, const char *names, json_t *value)
{
    char   name[160];
    size_t n = strcspn(names, "|");
    TM_ASSERT(n < sizeof name && value);
    memcpy(name, names, n);
    name[n] = '\0';
    char *dot = strchr(name, '.');
    if (!dot) {
        json_object_set_new(root, name, value);
        return;
    }
    *dot = '\0';
    if (!json_object_get(root, name)) json_object_set_new(root, name, json_object());
    json_object_set_new(json_object_get(root, name), dot + 1, value);
}

/* "16,56,56" as [16, 56, 56]. */
static json_t *list_of(const char *text)
{
    json_t *list = json_array();
    while (*text) {
        size_t n = strcspn(text, ",");
        json_array_append_new(list, json_of(text, n));
        text += n + (text[n] == ',');
    }
    return list;
}

static void write_row(json_t *root, const tm_config *config, const tm_model_shape *shape, const tm_hf_form *form,
                      const tm_hf_key *row, tm_text *value)
{
    if (row->kind == TM_HF_HARMLESS || (row->only && !has_pair(config, shape, row->only, value))) return;
    if (row->kind == TM_HF_VALUE) {
        value_of(config, shape, row->name, value);
        /* null, not absent: the class may have a default of its own */
        put(root, row->key, value->length ? json_of_key(row->name, value) : json_null());
    } else if (row->kind == TM_HF_LIST) {
        value_of(config, shape, row->name, value);
        put(root, row->key, list_of(value->data));
    } else if (row->kind == TM_HF_CHOICE) {
        value_of(config, shape, row->name, value);
        json_t *theirs = theirs_of(row->values, value->data);
        TM_ASSERT(theirs); /* tm_hf_form_of has found the form */
        bool plain = row->absent && strcmp(json_string_value(theirs), row->absent) == 0;
        if (plain && !form->rope) /* else a file without it means something else */
            json_decref(theirs);
        else
            put(root, row->key, theirs);
    } else if ((row->kind == TM_HF_MUST && *row->absent) || row->kind == TM_HF_TRAINING) {
        put(root, row->key, json_of(row->values, strcspn(row->values, "|")));
    }
}

static void take_ids(json_t *root, const char *other)
{
    static const char *const names[] = { "bos_token_id", "eos_token_id", "pad_token_id" };
    json_t                  *from = other ? json_loads(other, 0, NULL) : NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_t *value = json_object_get(from, names[i]);
        json_object_set(root, names[i], value ? value : json_null());
    }
    json_decref(from);
}

/* The caller frees it. With as many digits as it takes to read the same numbers back. */
static char *dump(json_t *root)
{
    char   *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
    json_t *back = text ? json_loads(text, 0, NULL) : NULL;
    bool    same = back && json_equal(root, back);
    json_decref(back);
    if (same) return text;
    free(text);
    text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    TM_ASSERT(text);
    return text;
}

void tm_hf_config_write(const tm_config *config, const tm_model_shape *shape, const tm_hf_form *form, const char *dtype,
                        const char *ids, tm_text *out)
{
    tm_text value = { 0 };
    json_t *root = form->diffusers
                       ? json_pack("{s:s}", "_class_name", form->model_type)
                       : json_pack("{s:s, s:[s]}", "model_type", form->model_type, "architectures", form->architecture);
    TM_ASSERT(root);
    for (const tm_hf_key *row = form->keys; row->key; row++) write_row(root, config, shape, form, row, &value);
    if (!form->diffusers) {
        take_ids(root, ids);
        json_object_set_new(root, "torch_dtype", json_string(dtype));
    }
    char *text = dump(root);
    tm_text_printf(out, "%s\n", text);
    free(text);
    json_decref(root);
    tm_text_fini(&value);
}
