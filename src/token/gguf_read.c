/* SPDX-License-Identifier: Apache-2.0 */
/* token/gguf_read.c - the tokenizer of a GGUF file as a tokenizer.json or a SentencePiece model, which are read then.
 */
#include "base/arena.h"
#include "token/gguf.h"
#include "token/internal.h"
#include "token/specials.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

static const char KEY_TOKENS[] = "tokenizer.ggml.tokens", KEY_TYPES[] = "tokenizer.ggml.token_type",
                  KEY_SCORES[] = "tokenizer.ggml.scores", KEY_MERGES[] = "tokenizer.ggml.merges";

typedef struct {
    const tm_gguf       *gguf;
    const tm_gguf_value *tokens, *types; /* types: NULL where all are normal */
    int64_t              n, bos, eos;    /* of tokens; ids, -1: none */
    bool                 add_bos, add_eos;
    tm_error            *err;
} source;

static int64_t id_of(const source *s, const char *key)
{
    int64_t id;
    return tm_gguf_whole(s->gguf, key, &id) && id >= 0 && id < s->n ? id : -1;
}

static bool flag(const tm_gguf *g, const char *key, bool otherwise)
{
    const tm_gguf_value *v = tm_gguf_find(g, key);
    return v && !v->array && v->type == TM_GGUF_BOOL ? v->bytes[0] != 0 : otherwise;
}

static int type_of(const source *s, int64_t id)
{
    double type = s->types ? tm_gguf_number(s->types, (uint64_t)id) : NORMAL;
    return type >= NORMAL && type <= BYTE ? (int)type : 0;
}

static tm_status wrong(const source *s, const char *key, const char *what)
{
    return tm_fail(s->err, TM_FORMAT, "'%s': %s %s", tm_gguf_name(s->gguf), key, what);
}

static tm_status open_source(const tm_gguf *gguf, source *s, tm_error *err)
{
    *s = (source){ .gguf = gguf, .err = err };
    s->tokens = tm_gguf_array(gguf, KEY_TOKENS, TM_GGUF_TEXT);
    if (!s->tokens || s->tokens->count == 0) return wrong(s, KEY_TOKENS, "is no list of texts");
    if (s->tokens->count > TM_MAX_IDS) return wrong(s, KEY_TOKENS, "has more tokens than are read");
    s->n = (int64_t)s->tokens->count;
    s->types = tm_gguf_array(gguf, KEY_TYPES, TM_GGUF_I32);
    if (tm_gguf_find(gguf, KEY_TYPES) && (!s->types || s->types->count != s->tokens->count))
        return wrong(s, KEY_TYPES, "is no list of int32, one for each token");
    for (int64_t i = 0; i < s->n; i++)
        if (type_of(s, i) == 0) return wrong(s, KEY_TYPES, "has a type that is not 1 to 6");
    s->bos = id_of(s, "tokenizer.ggml.bos_token_id");
    s->eos = id_of(s, "tokenizer.ggml.eos_token_id");
    return TM_OK;
}

/* --- byte-level BPE ----------------------------------------------------------------------------------------------- */

/* Names of llama.cpp for what cuts words, and whether whole words are looked up before merges. */
static const struct {
    const char *pre, *splitter;
    bool        whole_words, bos; /* bos: texts begin with it unless the file says otherwise */
} pre_names[] = {
    { "gpt-2", "gpt2", false, false },     { "phi-2", "gpt2", false, false },
    { "llama-bpe", "llama3", true, true }, { "llama3", "llama3", true, true },
    { "llama-v3", "llama3", true, true },  { "falcon3", "llama3", true, true },
    { "pixtral", "llama3", true, true },   { "smaug-bpe", "llama3", false, false },
    { "dbrx", "llama3", false, false },    { "qwen2", "qwen2", false, false },
    { "gpt-4o", "o200k", false, false },   { "deepseek-r1-qwen", "qwen2", false, false },
    { "tekken", "tekken", true, true },
};
enum { PRE_NAMES = sizeof pre_names / sizeof pre_names[0] };

static int find_pre(const tm_gguf *g, const char **name, size_t *n)
{
    *name = tm_gguf_text(g, "tokenizer.ggml.pre", n);
    for (int i = 0; *name && i < PRE_NAMES; i++)
        if (strlen(pre_names[i].pre) == *n && memcmp(pre_names[i].pre, *name, *n) == 0) return i;
    return -1;
}

static json_t *pre_tokenizer(const char *name)
{
    const tm_splitter *splitter = tm_splitter_of_name(name);
    if (strcmp(name, "gpt2") == 0)
        return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
                         "use_regex", 1);
    return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b, s:b}]}", "type", "Sequence", "pretokenizers",
                     "type", "Split", "pattern", "Regex", splitter->pattern, "behavior", "Isolated", "invert", 0,
                     "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 0);
}

/* All tokens but unused ones; those of control and of users are added ones, too. */
static tm_status put_vocabulary(const source *s, json_t *vocab, json_t *added)
{
    const uint8_t *at = s->tokens->bytes;
    for (int64_t i = 0; i < s->n; i++) {
        size_t      n;
        const char *text = tm_gguf_next_text(&at, &n);
        int         type = type_of(s, i);
        if (type == UNUSED) continue;
        json_t *checked = json_stringn(text, n);
        if (!checked || n == 0 || memchr(text, 0, n)) {
            json_decref(checked);
            return tm_fail(s->err, TM_FORMAT, "'%s': token %lld of %s is empty, has a NUL in it, or is not UTF-8",
                           tm_gguf_name(s->gguf), (long long)i, KEY_TOKENS);
        }
        bool twice = json_object_get(vocab, json_string_value(checked)) != NULL;
        if (!twice) json_object_set_new(vocab, json_string_value(checked), json_integer((json_int_t)i));
        if (!twice && (type == CONTROL || type == USER_DEFINED))
            json_array_append_new(added, json_pack("{s:I, s:O, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)i,
                                                   "content", checked, "single_word", 0, "lstrip", 0, "rstrip", 0,
                                                   "normalized", 0, "special", type == CONTROL));
        json_decref(checked);
        if (twice)
            return tm_fail(s->err, TM_FORMAT, "'%s': token %lld of %s is there twice", tm_gguf_name(s->gguf),
                           (long long)i, KEY_TOKENS);
    }
    return TM_OK;
}

static tm_status put_merges(const source *s, json_t *merges)
{
    const tm_gguf_value *list = tm_gguf_array(s->gguf, KEY_MERGES, TM_GGUF_TEXT);
    if (!list) return wrong(s, KEY_MERGES, "is no list of texts");
    const uint8_t *at = list->bytes;
    for (uint64_t i = 0; i < list->count; i++) {
        size_t      n;
        const char *text = tm_gguf_next_text(&at, &n);
        json_t     *merge = json_stringn(text, n);
        if (!merge) return wrong(s, KEY_MERGES, "has a text that is not UTF-8");
        json_array_append_new(merges, merge);
    }
    return TM_OK;
}

/* The text of token `id` as JSON. */
static json_t *token_of(const source *s, int64_t id)
{
    const uint8_t *at = s->tokens->bytes;
    const char    *text = "";
    size_t         n = 0;
    for (int64_t i = 0; i <= id; i++) text = tm_gguf_next_text(&at, &n);
    json_t *out = json_stringn(text, n);
    return out ? out : json_string("");
}

static void put_around(const source *s, json_t *root)
{
    json_t *single = json_array(), *special = json_object();
    for (int k = 0; k < 3; k++) {
        int64_t id = k == 0 ? (s->add_bos ? s->bos : -1) : k == 2 ? (s->add_eos ? s->eos : -1) : -1;
        if (k == 1) json_array_append_new(single, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0));
        if (id < 0) continue;
        json_t *text = token_of(s, id);
        json_array_append_new(single, json_pack("{s:{s:O, s:i}}", "SpecialToken", "id", text, "type_id", 0));
        json_object_set_new(special, json_string_value(text),
                            json_pack("{s:O, s:[I], s:[O]}", "id", text, "ids", (json_int_t)id, "tokens", text));
        json_decref(text);
    }
    if (json_object_size(special) == 0) {
        json_decref(single);
        json_decref(special);
        return;
    }
    json_object_set_new(root, "post_processor",
                        json_pack("{s:s, s:o, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:o}", "type", "TemplateProcessing",
                                  "single", single, "pair", "Sequence", "id", "A", "type_id", 0, "Sequence", "id", "B",
                                  "type_id", 1, "special_tokens", special));
}

static tm_status put_bpe(source *s, tm_text *out)
{
    const char *name;
    size_t      n = 0;
    int         pre = find_pre(s->gguf, &name, &n);
    if (pre < 0)
        return tm_fail(s->err, TM_UNSUPPORTED,
                       "'%s': tokenizer.ggml.pre '%.*s' is not known here; give the model's own tokenizer.json",
                       tm_gguf_name(s->gguf), name ? (int)(n < 80 ? n : 80) : 6, name ? name : "absent");
    s->add_bos = flag(s->gguf, "tokenizer.ggml.add_bos_token", pre_names[pre].bos);
    json_t *vocab = json_object(), *merges = json_array(), *added = json_array(), *root = json_object();
    json_object_set_new(root, "version", json_string("1.0"));
    json_object_set_new(root, "added_tokens", added);
    json_object_set_new(root, "pre_tokenizer", pre_tokenizer(pre_names[pre].splitter));
    json_object_set_new(root, "decoder", json_pack("{s:s}", "type", "ByteLevel"));
    json_object_set_new(root, "model",
                        json_pack("{s:s, s:b, s:o, s:o}", "type", "BPE", "ignore_merges", pre_names[pre].whole_words,
                                  "vocab", vocab, "merges", merges));
    tm_status st = put_vocabulary(s, vocab, added);
    if (st == TM_OK) st = put_merges(s, merges);
    if (st == TM_OK) {
        put_around(s, root);
        char *text = json_dumps(root, JSON_INDENT(1));
        TM_ASSERT(text);
        tm_text_printf(out, "%s\n", text);
        free(text);
    }
    json_decref(root);
    return st;
}

/* --- SentencePiece ------------------------------------------------------------------------------------------------ */

static void add_varint(tm_text *out, uint64_t value)
{
    for (; value > 127; value >>= 7) tm_text_add_n(out, (const char[]){ (char)(value | 128) }, 1);
    tm_text_add_n(out, (const char[]){ (char)value }, 1);
}

static void add_field(tm_text *out, int number, const tm_text *message)
{
    add_varint(out, (uint64_t)number << 3 | 2);
    add_varint(out, message->length);
    if (message->length) tm_text_add_n(out, message->data, message->length);
}

static void add_whole(tm_text *out, int number, uint64_t value)
{
    add_varint(out, (uint64_t)number << 3);
    add_varint(out, value);
}

/* Unused ones at the end only fill the model's table; others must keep their ids. */
static tm_status put_pieces(const source *s, tm_text *out, bool *bytes)
{
    const tm_gguf_value *scores = tm_gguf_array(s->gguf, KEY_SCORES, TM_GGUF_F32);
    const uint8_t       *at = s->tokens->bytes;
    int64_t              n = s->n;
    tm_text              piece = { 0 };
    if (!scores || scores->count != s->tokens->count)
        return wrong(s, KEY_SCORES, "is no list of float32, one for each token");
    while (n > 0 && type_of(s, n - 1) == UNUSED) n--;
    for (int64_t i = 0; i < n; i++) {
        size_t      length;
        const char *text = tm_gguf_next_text(&at, &length);
        int         type = type_of(s, i);
        piece.length = 0;
        add_varint(&piece, 1 << 3 | 2);
        add_varint(&piece, length);
        tm_text_add_n(&piece, text, length);
        add_varint(&piece, 2 << 3 | 5);
        tm_text_add_n(&piece, (const char *)scores->bytes + 4 * i, 4);
        add_whole(&piece, 3, type == UNUSED ? CONTROL : (uint64_t)type);
        add_field(out, 1, &piece);
        *bytes |= type == BYTE;
    }
    tm_text_fini(&piece);
    return TM_OK;
}

static tm_status put_sentencepiece(source *s, tm_text *out)
{
    tm_text settings = { 0 };
    bool    bytes = false;
    TM_TRY(put_pieces(s, out, &bytes));
    add_whole(&settings, 3, 2);
    add_whole(&settings, 35, bytes);
    add_field(out, 2, &settings);
    settings.length = 0;
    add_whole(&settings, 3, flag(s->gguf, "tokenizer.ggml.add_space_prefix", true));
    add_whole(&settings, 4, flag(s->gguf, "tokenizer.ggml.remove_extra_whitespaces", false));
    add_whole(&settings, 5, 1);
    add_field(out, 3, &settings);
    tm_text_fini(&settings);
    return TM_OK;
}

/* --- either ------------------------------------------------------------------------------------------------------- */

tm_status tm_gguf_tokenizer_text(const tm_gguf *gguf, tm_text *out, const char **file, tm_error *err)
{
    size_t      n = 0;
    source      s;
    const char *model = tm_gguf_text(gguf, "tokenizer.ggml.model", &n);
    if (!model || (n == 4 && memcmp(model, "none", 4) == 0) || (n == 8 && memcmp(model, "no_vocab", 8) == 0))
        return tm_fail(err, TM_INVALID, "'%s' holds no tokenizer (tokenizer.ggml.model); give one with --tokenizer",
                       tm_gguf_name(gguf));
    bool bpe = n == 4 && memcmp(model, "gpt2", 4) == 0;
    if (!bpe && !(n == 5 && memcmp(model, "llama", 5) == 0))
        return tm_fail(
            err, TM_UNSUPPORTED,
            "'%s': tokenizer.ggml.model '%.*s' is not read; gpt2 and llama are; give the model's own tokenizer",
            tm_gguf_name(gguf), (int)(n < 80 ? n : 80), model);
    *file = bpe ? "tokenizer.json" : "tokenizer.model";
    TM_TRY(open_source(gguf, &s, err));
    s.add_eos = flag(gguf, "tokenizer.ggml.add_eos_token", false);
    return bpe ? put_bpe(&s, out) : put_sentencepiece(&s, out);
}

/* Ids that the file names rule over what tokens are called. */
static void take_ids(tm_tokenizer *t, const tm_gguf *g)
{
    const struct {
        const char *key;
        int32_t    *id;
    } named[] = { { "tokenizer.ggml.bos_token_id", &t->facts.bos },
                  { "tokenizer.ggml.eos_token_id", &t->facts.eos },
                  { "tokenizer.ggml.unknown_token_id", &t->facts.unk },
                  { "tokenizer.ggml.padding_token_id", &t->facts.pad } };
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        int64_t id;
        if (!tm_gguf_whole(g, named[i].key, &id) || id < 0 || id >= t->n_ids || !t->tokens[id].text) continue;
        *named[i].id = (int32_t)id;
        if (i == 1) t->facts.eos_from = "tokenizer.ggml.eos_token_id";
    }
    if (!t->model.sentencepiece) return;
    t->n_before = flag(g, "tokenizer.ggml.add_bos_token", true) && t->facts.bos >= 0;
    t->n_after = flag(g, "tokenizer.ggml.add_eos_token", false) && t->facts.eos >= 0;
    t->before[0] = t->facts.bos;
    t->after[0] = t->facts.eos;
}

tm_status tm_gguf_tokenizer_open(const char *path, tm_tokenizer **out, tm_error *err)
{
    tm_gguf    *gguf;
    tm_text     text = { 0 };
    const char *file;
    TM_TRY(tm_gguf_open(path, &gguf, err));
    tm_status st = tm_gguf_tokenizer_text(gguf, &text, &file, err);
    if (st == TM_OK) st = tm_tokenizer_parse(path, text.data, text.length, NULL, out, err);
    if (st == TM_OK) take_ids(*out, gguf);
    tm_text_fini(&text);
    tm_gguf_close(gguf);
    return st;
}

json_t *tm_gguf_specials(const tm_gguf *gguf)
{
    static const char *const keys[][2] = { { "bos_token", "tokenizer.ggml.bos_token_id" },
                                           { "eos_token", "tokenizer.ggml.eos_token_id" },
                                           { "unk_token", "tokenizer.ggml.unknown_token_id" },
                                           { "pad_token", "tokenizer.ggml.padding_token_id" } };
    json_t                  *out = json_object();
    tm_error                 none = { 0 };
    source                   s;
    if (open_source(gguf, &s, &none) != TM_OK) return out;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (id_of(&s, keys[i][1]) >= 0) json_object_set_new(out, keys[i][0], token_of(&s, id_of(&s, keys[i][1])));
    return out;
}
