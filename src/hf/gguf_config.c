/* SPDX-License-Identifier: Apache-2.0 */
/* hf/gguf_config.c - the values of a GGUF file as the config.json of a folder that means the same. */
#include "hf/gguf.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const tm_gguf       *gguf;
    const tm_gguf_model *model;
    json_t              *root;
    tm_error            *err;
} reader;

static const char *key_of(const reader *r, const char *suffix, char key[160])
{
    snprintf(key, 160, "%s.%s", r->model->arch, suffix);
    return key;
}

/* The shortest decimal that is the same float32, as a double: what the model was made with. */
static double shortest(double value)
{
    char text[40];
    if (!isfinite(value)) return value;
    for (int digits = 1; digits < 10; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, value);
        if (strtof(text, NULL) == (float)value) break;
    }
    return strtod(text, NULL);
}

/* A finite number that is given; false: it is not there. TM_FORMAT: it is something else. */
static tm_status real_of(const reader *r, const char *key, bool *there, double *out)
{
    const tm_gguf_value *v = tm_gguf_find(r->gguf, key);
    *there = v != NULL;
    if (!v) return TM_OK;
    if (v->array || (v->type != TM_GGUF_F32 && v->type != TM_GGUF_F64) || !isfinite(tm_gguf_number(v, 0)))
        return tm_fail(r->err, TM_FORMAT, "'%s': '%s' is no finite number", tm_gguf_name(r->gguf), key);
    *out = v->type == TM_GGUF_F32 ? shortest(tm_gguf_number(v, 0)) : tm_gguf_number(v, 0);
    return TM_OK;
}

static tm_status whole_of(const reader *r, const char *key, bool *there, int64_t *out)
{
    const tm_gguf_value *v = tm_gguf_find(r->gguf, key);
    *there = v != NULL;
    if (!v) return TM_OK;
    if (v->array)
        return tm_fail(r->err, TM_UNSUPPORTED,
                       "'%s': '%s' differs from layer to layer (an array), which is not supported",
                       tm_gguf_name(r->gguf), key);
    if (!tm_gguf_whole(r->gguf, key, out) || *out < 1)
        return tm_fail(r->err, TM_FORMAT, "'%s': '%s' is no whole number from 1 on", tm_gguf_name(r->gguf), key);
    return TM_OK;
}

static tm_status read_key(reader *r, const tm_gguf_key *row)
{
    char    key[160];
    bool    there;
    int64_t whole = 0;
    double  real = 0;
    key_of(r, row->theirs, key);
    if (row->real)
        TM_TRY(real_of(r, key, &there, &real));
    else
        TM_TRY(whole_of(r, key, &there, &whole));
    if (!there && row->optional) return TM_OK;
    if (!there)
        return tm_fail(r->err, TM_FORMAT, "'%s' has no '%s', which a file of a %s model needs", tm_gguf_name(r->gguf),
                       key, r->model->arch);
    json_object_set_new(r->root, row->member, row->real ? json_real(real) : json_integer((json_int_t)whole));
    return TM_OK;
}

/* What a file leaves out is what llama.cpp takes then, whatever the class of Hugging Face does. */
static void fill_in(reader *r)
{
    json_t    *root = r->root, *heads = json_object_get(root, "num_attention_heads");
    json_int_t n = json_integer_value(heads), dim = json_integer_value(json_object_get(root, "hidden_size"));
    if (!r->model->rotary) return;
    if (!json_object_get(root, "num_key_value_heads")) json_object_set(root, "num_key_value_heads", heads);
    if (!json_object_get(root, "head_dim") && n > 0) json_object_set_new(root, "head_dim", json_integer(dim / n));
    if (!json_object_get(root, "rope_theta")) json_object_set_new(root, "rope_theta", json_real(10000));
}

/* --- keys that must say what is built ----------------------------------------------------------------------------- */

/* Values that follow from others. */
static tm_status check_width(const reader *r, const char *suffix)
{
    char    key[160];
    bool    there;
    int64_t value = 0;
    TM_TRY(whole_of(r, key_of(r, suffix, key), &there, &value));
    json_int_t wanted = json_integer_value(json_object_get(r->root, "head_dim"));
    if (there && r->model->rotary && wanted > 0 && value != wanted)
        return tm_fail(r->err, TM_UNSUPPORTED,
                       "'%s': '%s' is %lld, but heads have %lld elements; that is not supported", tm_gguf_name(r->gguf),
                       key, (long long)value, (long long)wanted);
    return TM_OK;
}

static const char *const known_keys[] = { "vocab_size",
                                          "rope.dimension_count",
                                          "attention.value_length",
                                          "rope.scaling.type",
                                          "rope.scaling.factor",
                                          "rope.scaling.original_context_length",
                                          "rope.scaling.finetuned",
                                          "tensor_data_layout",
                                          NULL };

/* Every value of the architecture is known, as every member of config.json is. */
static tm_status check_names(const reader *r)
{
    size_t               n, prefix = strlen(r->model->arch);
    const tm_gguf_value *values = tm_gguf_values(r->gguf, &n);
    for (size_t i = 0; i < n; i++) {
        const char *name = values[i].key + prefix + 1;
        bool        known = false;
        if (strncmp(values[i].key, r->model->arch, prefix) != 0 || values[i].key[prefix] != '.') continue;
        for (const tm_gguf_key *row = r->model->keys; row->theirs; row++) known |= strcmp(row->theirs, name) == 0;
        for (const char *const *other = known_keys; *other; other++) known |= strcmp(*other, name) == 0;
        if (!known)
            return tm_fail(r->err, TM_UNSUPPORTED, "'%s': '%.150s' is not known here and might change what is computed",
                           tm_gguf_name(r->gguf), values[i].key);
    }
    return TM_OK;
}

static tm_status check_parts(const reader *r)
{
    int64_t parts = 1;
    if (!tm_gguf_whole(r->gguf, "split.count", &parts) || parts <= 1) return TM_OK;
    return tm_fail(r->err, TM_UNSUPPORTED,
                   "'%s' is one of %lld files of a model (split.count); join them with `llama-gguf-split --merge`",
                   tm_gguf_name(r->gguf), (long long)parts);
}

/* --- rotary positions --------------------------------------------------------------------------------------------- */

/* Files have the divisors of llama3 scaling and not what they come from; ours have that, too. */
static tm_status read_divisors(reader *r, const tm_gguf_tensor *t)
{
    json_t      *section = json_object();
    int64_t      head = json_integer_value(json_object_get(r->root, "head_dim")), original = 8192;
    tm_gguf_rope rope = { .theta = json_number_value(json_object_get(r->root, "rope_theta")), .low = 1, .high = 4 };
    bool         there, good = t->format == TM_GGUF_FORMAT_F32 && t->rank == 1 && t->n[0] == head / 2;
    json_object_set_new(r->root, "rope_scaling", section);
    for (int64_t i = 0; good && i < head / 2; i++) {
        float value;
        memcpy(&value, t->data + 4 * i, sizeof value);
        if (!(value >= 1 && value < INFINITY)) good = false;
        if ((double)value > rope.factor) rope.factor = (double)value;
    }
    TM_TRY(real_of(r, "trainmark.rope.factor", &there, &rope.factor));
    TM_TRY(real_of(r, "trainmark.rope.low_freq_factor", &there, &rope.low));
    TM_TRY(real_of(r, "trainmark.rope.high_freq_factor", &there, &rope.high));
    TM_TRY(whole_of(r, "trainmark.rope.original_context_length", &there, &original));
    rope.original = (double)original;
    float *own = tm_alloc(good ? t->bytes : 1);
    if (good) tm_gguf_rope_divisors(&rope, head, own);
    for (int64_t i = 0; good && i < head / 2; i++) {
        float value;
        memcpy(&value, t->data + 4 * i, sizeof value);
        good = fabsf(value - own[i]) <= 1e-5f * value;
    }
    free(own);
    if (!good)
        return tm_fail(r->err, TM_UNSUPPORTED,
                       "'%s': rope_freqs.weight is not that of llama3 scaling (factors 1 and 4, 8192 positions); take "
                       "the model's Hugging Face directory",
                       tm_gguf_name(r->gguf));
    json_object_set_new(section, "rope_type", json_string("llama3"));
    json_object_set_new(section, "factor", json_real(rope.factor));
    json_object_set_new(section, "low_freq_factor", json_real(rope.low));
    json_object_set_new(section, "high_freq_factor", json_real(rope.high));
    json_object_set_new(section, "original_max_position_embeddings", json_integer((json_int_t)original));
    return TM_OK;
}

static tm_status read_scaling(reader *r)
{
    char                  key[160];
    size_t                n = 0;
    bool                  there;
    double                factor = 0;
    int64_t               original = 0;
    const tm_gguf_tensor *divisors = tm_gguf_find_tensor(r->gguf, "rope_freqs.weight");
    const char           *type = tm_gguf_text(r->gguf, key_of(r, "rope.scaling.type", key), &n);
    bool                  none = !type || (n == 4 && memcmp(type, "none", 4) == 0);
    bool                  linear = !none && n == 6 && memcmp(type, "linear", 6) == 0;
    if (divisors && none) return read_divisors(r, divisors);
    if (none) return TM_OK;
    if (divisors || (!linear && !(n == 4 && memcmp(type, "yarn", 4) == 0)))
        return tm_fail(r->err, TM_UNSUPPORTED, "'%s': '%s' %.*s%s is not supported", tm_gguf_name(r->gguf), key,
                       (int)(n < 80 ? n : 80), type, divisors ? " with rope_freqs.weight" : "");
    json_t *section = json_pack("{s:s}", "rope_type", linear ? "linear" : "yarn");
    json_object_set_new(r->root, "rope_scaling", section);
    TM_TRY(real_of(r, key_of(r, "rope.scaling.factor", key), &there, &factor));
    if (!there) return tm_fail(r->err, TM_FORMAT, "'%s' has no '%s'", tm_gguf_name(r->gguf), key);
    json_object_set_new(section, "factor", json_real(factor));
    TM_TRY(whole_of(r, key_of(r, "rope.scaling.original_context_length", key), &there, &original));
    if (there && !linear)
        json_object_set_new(section, "original_max_position_embeddings", json_integer((json_int_t)original));
    return TM_OK;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static tm_status read_sizes(reader *r)
{
    const tm_gguf_tensor *table = tm_gguf_find_tensor(r->gguf, "token_embd.weight");
    if (!table || table->rank != 2)
        return tm_fail(r->err, TM_FORMAT, "'%s' has no matrix token_embd.weight, which gives the number of tokens",
                       tm_gguf_name(r->gguf));
    json_object_set_new(r->root, "vocab_size", json_integer((json_int_t)table->n[0]));
    json_object_set_new(r->root, "tie_word_embeddings", json_boolean(!tm_gguf_find_tensor(r->gguf, "output.weight")));
    for (const tm_gguf_key *row = r->model->keys; row->theirs; row++) TM_TRY(read_key(r, row));
    fill_in(r);
    TM_TRY(check_width(r, "rope.dimension_count"));
    return check_width(r, "attention.value_length");
}

static void put_rest(reader *r)
{
    static const char *const ids[][2] = { { "bos_token_id", "tokenizer.ggml.bos_token_id" },
                                          { "eos_token_id", "tokenizer.ggml.eos_token_id" },
                                          { "pad_token_id", "tokenizer.ggml.padding_token_id" } };
    static const char *const dropout[] = { "resid_pdrop", "embd_pdrop", "attn_pdrop" };
    int64_t                  id;
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (tm_gguf_whole(r->gguf, ids[i][1], &id))
            json_object_set_new(r->root, ids[i][0], json_integer((json_int_t)id));
    for (size_t i = 0; i < 3 && strcmp(r->model->model_type, "gpt2") == 0; i++)
        json_object_set_new(r->root, dropout[i], json_real(0)); /* files do not say, and nothing else is meant */
    if (strcmp(r->model->model_type, "qwen3_moe") == 0) json_object_set_new(r->root, "norm_topk_prob", json_true());
}

static tm_status read_config(reader *r)
{
    TM_TRY(check_parts(r));
    TM_TRY(tm_gguf_model_of(r->gguf, &r->model, r->err));
    json_object_set_new(r->root, "model_type", json_string(r->model->model_type));
    TM_TRY(check_names(r));
    TM_TRY(read_sizes(r));
    if (r->model->rotary) TM_TRY(read_scaling(r));
    put_rest(r);
    return TM_OK;
}

tm_status tm_gguf_config(const char *path, tm_text *out, tm_error *err)
{
    tm_gguf *gguf;
    TM_TRY(tm_gguf_open(path, &gguf, err));
    reader    r = { .gguf = gguf, .root = json_object(), .err = err };
    tm_status st = read_config(&r);
    if (st == TM_OK) {
        char *text = json_dumps(r.root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
        TM_ASSERT(text);
        tm_text_printf(out, "%s\n", text);
        free(text);
    }
    json_decref(r.root);
    tm_gguf_close(gguf);
    return st;
}
