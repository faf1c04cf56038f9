/* SPDX-License-Identifier: Apache-2.0 */
/* token/read_json.c - tokenizer.json: the model and the added tokens; the rules are in read_rules.c. */
#include "base/log.h"
#include "token/internal.h"
#include "token/read_json.h"

#include <stdlib.h>
#include <string.h>

tm_status tm_json_refuse(const tm_reading *r, const char *where, const char *what)
{
    return tm_fail(r->err, TM_UNSUPPORTED, "'%s': %s '%.100s' is not supported", r->name, where, what);
}

tm_status tm_json_keys(const tm_reading *r, const char *where, json_t *object, const char *known)
{
    const char *key;
    json_t     *value;
    if (!json_is_object(object)) return tm_fail(r->err, TM_FORMAT, "'%s': %s is not an object", r->name, where);
    json_object_foreach(object, key, value)
    {
        char word[80];
        if ((size_t)snprintf(word, sizeof word, " %.60s ", key) < sizeof word && strstr(known, word)) continue;
        if (json_is_null(value)) continue;
        return tm_fail(r->err, TM_UNSUPPORTED, "'%s': key '%.60s' of %s is not known", r->name, key, where);
    }
    return TM_OK;
}

bool tm_rule_flag(json_t *object, const char *key, bool otherwise)
{
    json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

/* --- byte-level letters ------------------------------------------------------------------------------------------- */

/* GPT-2's letters for bytes: those that can be seen are themselves, the others follow from U+0100 on. */
static int byte_of_letter(uint32_t c)
{
    int next = 256;
    if ((c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255)) return (int)c;
    for (int b = 0; b < 256; b++) {
        if ((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255)) continue;
        if ((uint32_t)next++ == c) return b;
    }
    return -1;
}

/* The bytes that a byte-level token stands for, into *out; false if it has other letters. */
static bool bytes_of(const char *text, size_t n, tm_text *out)
{
    static _Thread_local int16_t table[512];
    if (table['a'] == 0)
        for (uint32_t c = 0; c < 512; c++) table[c] = (int16_t)byte_of_letter(c);
    if (out->data) out->length = 0;
    for (size_t at = 0, length; at < n; at += length) {
        uint32_t c = tm_utf8_at((const uint8_t *)text + at, &length);
        if (c >= 512 || table[c] < 0) return false;
        char byte = (char)table[c];
        tm_text_add_n(out, &byte, 1);
    }
    return true;
}

/* --- tokens ------------------------------------------------------------------------------------------------------- */

/* A token of the model; byte-level ones are known to it by their bytes, a <0x0A> stands for its byte. */
static tm_status add_model_token(tm_reading *r, const char *text, size_t n, int64_t id, tm_text *scratch)
{
    tm_tokenizer *t = r->tokenizer;
    const char   *plain = text;
    size_t        plain_n = n;
    bool          mapped = t->model.byte_level && bytes_of(text, n, scratch);
    if (mapped) plain = scratch->data ? scratch->data : "", plain_n = scratch->length;
    int  byte = t->model.byte_fallback ? tm_byte_token(text, n) : -1;
    char one = (char)byte;
    if (byte >= 0) plain = &one, plain_n = 1;
    TM_TRY(tm_reading_token(r, id, text, n, plain, plain_n));
    tm_token *token = &t->tokens[id];
    token->is_byte = byte >= 0;
    if (byte >= 0) t->model.byte[byte] = (int32_t)id;
    if (mapped || !t->model.byte_level)
        tm_strings_put(&t->model.strings, mapped ? token->plain : token->text,
                       mapped ? token->plain_length : token->length, (int32_t)id);
    return TM_OK;
}

static tm_status read_vocab(tm_reading *r, json_t *vocab)
{
    const char *key;
    json_t     *value;
    tm_text     scratch = { 0 };
    tm_status   st = TM_OK;
    if (!json_is_object(vocab)) return tm_fail(r->err, TM_FORMAT, "'%s': model.vocab is not an object", r->name);
    json_object_foreach(vocab, key, value)
    {
        if (!json_is_integer(value)) {
            st = tm_fail(r->err, TM_FORMAT, "'%s': the id of token '%.100s' is not an integer", r->name, key);
            break;
        }
        st = add_model_token(r, key, strlen(key), json_integer_value(value), &scratch);
        if (st != TM_OK) break;
    }
    tm_text_fini(&scratch);
    return st;
}

/* The number that `tokenizers` reads where the file has the shortest decimal of `exact`: its digits, rounded to a
 * double, times or divided by a power of ten, rounded again (serde_json). A unit in the last place away from the
 * nearest double here and there, it decides between pieces whose scores add up to the same. */
static double score_as_read(double exact)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, exact);
        if (strtod(text, NULL) == exact) break;
    }
    char    *mark = strchr(text, 'e');
    int      exponent = (int)strtol(mark + 1, NULL, 10);
    uint64_t digits = 0;
    while (mark[-1] == '0') mark--;
    for (const char *c = text; c < mark; c++)
        if (*c >= '0' && *c <= '9') digits = 10 * digits + (uint64_t)(*c - '0');
    const char *point = strchr(text, '.');
    exponent -= point && point < mark ? (int)(mark - point) - 1 : 0;
    double value = (double)digits;
    if (exponent < -308) {
        value /= 1e308;
        exponent += 308;
    }
    snprintf(text, sizeof text, "1e%d", abs(exponent));
    value = exponent < 0 ? value / strtod(text, NULL) : value * strtod(text, NULL);
    return exact < 0 ? -value : value;
}

static tm_status read_scored_vocab(tm_reading *r, json_t *vocab)
{
    tm_tokenizer *t = r->tokenizer;
    size_t        n = json_array_size(vocab);
    tm_text       scratch = { 0 };
    double        least = 0;
    if (n == 0 || n >= TM_MAX_IDS) return tm_fail(r->err, TM_FORMAT, "'%s': model.vocab has %zu tokens", r->name, n);
    t->model.scores = tm_alloc(n * sizeof *t->model.scores);
    for (size_t i = 0; i < n; i++) {
        json_t *pair = json_array_get(vocab, i), *text = json_array_get(pair, 0), *score = json_array_get(pair, 1);
        if (!json_is_string(text) || !json_is_number(score) || json_array_size(pair) != 2)
            return tm_fail(r->err, TM_FORMAT, "'%s': model.vocab[%zu] is not [\"token\", score]", r->name, i);
        TM_TRY(add_model_token(r, json_string_value(text), json_string_length(text), (int64_t)i, &scratch));
        t->model.scores[i] =
            json_is_real(score) && !r->exact_scores ? score_as_read(json_real_value(score)) : json_number_value(score);
        if (t->model.scores[i] < least || i == 0) least = t->model.scores[i];
    }
    t->model.unk_score = least - 10;
    return TM_OK;
}

/* --- merges ------------------------------------------------------------------------------------------------------- */

static int32_t id_of_text(const tm_tokenizer *t, const char *text, size_t n, tm_text *scratch)
{
    if (!t->model.byte_level) return tm_strings_get(&t->model.strings, text, n);
    if (!bytes_of(text, n, scratch)) return -1;
    return tm_strings_get(&t->model.strings, scratch->data ? scratch->data : "", scratch->length);
}

typedef struct {
    const char *left, *right;
    size_t      left_n, right_n;
} halves;

/* "a b" or ["a", "b"]. */
static bool read_halves(json_t *merge, halves *out)
{
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
        *out = (halves){ json_string_value(a), json_string_value(b), json_string_length(a), json_string_length(b) };
        return json_is_string(a) && json_is_string(b);
    }
    const char *text = json_string_value(merge), *blank = text ? strchr(text, ' ') : NULL;
    if (!blank || strchr(blank + 1, ' ') || json_string_length(merge) != strlen(text)) return false;
    *out = (halves){ text, blank + 1, (size_t)(blank - text), strlen(blank + 1) };
    return true;
}

static tm_status read_merge(tm_reading *r, json_t *merge, size_t rank, tm_text *joined, tm_text *scratch)
{
    tm_tokenizer *t = r->tokenizer;
    halves        h;
    if (!read_halves(merge, &h))
        return tm_fail(r->err, TM_FORMAT, "'%s': model.merges[%zu] is neither \"a b\" nor [\"a\", \"b\"]", r->name,
                       rank);
    size_t prefix = t->model.prefix ? strlen(t->model.prefix) : 0;
    if (h.right_n < prefix || (prefix && memcmp(h.right, t->model.prefix, prefix) != 0)) prefix = 0;
    if (joined->data) joined->length = 0;
    tm_text_add_n(joined, h.left, h.left_n);
    tm_text_add_n(joined, h.right + prefix, h.right_n - prefix);
    int32_t left = id_of_text(t, h.left, h.left_n, scratch), right = id_of_text(t, h.right, h.right_n, scratch);
    int32_t id = id_of_text(t, joined->data, joined->length, scratch);
    if (left >= 0 && right >= 0 && id >= 0) {
        tm_pairs_put(&t->model.pairs, left, right, (uint32_t)rank, id);
        return TM_OK;
    }
    return tm_fail(r->err, TM_FORMAT, "'%s': model.merges[%zu], '%.100s' and '%.100s': %s is not in the vocabulary",
                   r->name, rank, h.left, h.right,
                   left < 0    ? "the first"
                   : right < 0 ? "the second"
                               : "what they join to");
}

static tm_status read_merges(tm_reading *r, json_t *merges)
{
    tm_text   joined = { 0 }, scratch = { 0 };
    tm_status st = TM_OK;
    if (!json_is_array(merges)) return tm_fail(r->err, TM_FORMAT, "'%s': model.merges is not an array", r->name);
    for (size_t i = 0; i < json_array_size(merges) && st == TM_OK; i++) {
        json_t     *merge = json_array_get(merges, i);
        const char *text = json_string_value(merge);
        if (text && strncmp(text, "#version", 8) == 0) continue; /* a line of merges.txt, in files of early releases */
        st = read_merge(r, merge, i, &joined, &scratch);
    }
    tm_text_fini(&joined);
    tm_text_fini(&scratch);
    return st;
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

static const char *text_or_null(const tm_reading *r, json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text && *text ? tm_arena_text(r->tokenizer->arena, text) : NULL;
}

static tm_status read_unk(tm_reading *r, json_t *model)
{
    const char *unk = json_string_value(json_object_get(model, "unk_token"));
    if (!unk) return TM_OK;
    tm_text scratch = { 0 };
    r->tokenizer->model.unk = id_of_text(r->tokenizer, unk, strlen(unk), &scratch);
    tm_text_fini(&scratch);
    if (r->tokenizer->model.unk < 0) r->tokenizer->model.unk = tm_tokenizer_find(r->tokenizer, unk, strlen(unk));
    if (r->tokenizer->model.unk >= 0) return TM_OK;
    return tm_fail(r->err, TM_FORMAT, "'%s': model.unk_token '%.100s' is not in the vocabulary", r->name, unk);
}

/* Byte-level: what each byte begins with. */
static void find_bytes(tm_tokenizer *t)
{
    for (int b = 0; b < 256; b++) {
        char    one = (char)b;
        tm_text last = { 0 };
        t->model.byte[b] = t->model.last_byte[b] = tm_strings_get(&t->model.strings, &one, 1);
        if (!t->model.suffix) continue;
        tm_text_add_n(&last, &one, 1);
        tm_text_add(&last, t->model.suffix);
        t->model.last_byte[b] = tm_strings_get(&t->model.strings, last.data, last.length);
        tm_text_fini(&last);
    }
}

static tm_status read_bpe(tm_reading *r, json_t *model)
{
    tm_model *m = &r->tokenizer->model;
    TM_TRY(tm_json_keys(r, "model", model,
                        " type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback "
                        "ignore_merges vocab merges "));
    if (json_number_value(json_object_get(model, "dropout")) != 0) return tm_json_refuse(r, "model", "dropout");
    m->fuse_unk = tm_rule_flag(model, "fuse_unk", false);
    m->byte_fallback = tm_rule_flag(model, "byte_fallback", false);
    m->whole_words = tm_rule_flag(model, "ignore_merges", false);
    m->prefix = text_or_null(r, model, "continuing_subword_prefix");
    m->suffix = text_or_null(r, model, "end_of_word_suffix");
    if (m->prefix && m->byte_level) return tm_json_refuse(r, "byte-level model with", "continuing_subword_prefix");
    if (m->byte_fallback && !m->byte_level && (m->prefix || m->suffix)) /* the library makes bytes of these, too */
        return tm_json_refuse(r, "model with byte_fallback and",
                              m->suffix ? "end_of_word_suffix" : "continuing_subword_prefix");
    TM_TRY(read_vocab(r, json_object_get(model, "vocab")));
    TM_TRY(read_unk(r, model));
    TM_TRY(read_merges(r, json_object_get(model, "merges")));
    r->tokenizer->facts.model = m->byte_level ? "byte-level BPE" : "BPE";
    r->tokenizer->decode.suffix = m->suffix;
    if (m->byte_level) find_bytes(r->tokenizer);
    tm_model_find_meta(m);
    if (m->prefix || m->suffix) m->cut_at_meta = false;
    return TM_OK;
}

static tm_status read_unigram(tm_reading *r, json_t *model)
{
    tm_model *m = &r->tokenizer->model;
    TM_TRY(tm_json_keys(r, "model", model, " type unk_id vocab byte_fallback "));
    if (m->byte_level) return tm_json_refuse(r, "model Unigram with pre_tokenizer", "ByteLevel");
    m->unigram = true;
    m->byte_fallback = tm_rule_flag(model, "byte_fallback", false);
    TM_TRY(read_scored_vocab(r, json_object_get(model, "vocab")));
    json_t *unk = json_object_get(model, "unk_id");
    if (!json_is_integer(unk)) return tm_json_refuse(r, "model Unigram without", "unk_id");
    if (json_integer_value(unk) < 0 || json_integer_value(unk) >= r->tokenizer->n_ids)
        return tm_fail(r->err, TM_FORMAT, "'%s': model.unk_id %lld is not in the vocabulary", r->name,
                       (long long)json_integer_value(unk));
    m->unk = (int32_t)json_integer_value(unk);
    r->tokenizer->facts.model = "Unigram";
    tm_model_finish_trie(m);
    return TM_OK;
}

/* --- added tokens ------------------------------------------------------------------------------------------------- */

/* The library gives an added token that the vocabulary does not have the next id: behind all that are there, whatever
 * the file says. `next` is that id. */
static tm_status check_number(const tm_reading *r, const char *text, int64_t id, int64_t next)
{
    if (id == next) return TM_OK;
    return tm_fail(
        r->err, TM_FORMAT,
        "'%s': added token '%.100s' has id %lld, but the tokenizers library numbers it %lld (in the order of "
        "the list, without gaps); fill the gap, or sort added_tokens by id",
        r->name, text, (long long)id, (long long)next);
}

static tm_status add_token(tm_reading *r, json_t *token, tm_token_encoder *encoder, int64_t *next)
{
    tm_tokenizer *t = r->tokenizer;
    json_t       *content = json_object_get(token, "content"), *id = json_object_get(token, "id");
    TM_TRY(tm_json_keys(r, "added_tokens", token, " id content single_word lstrip rstrip normalized special "));
    if (!json_is_string(content) || !json_is_integer(id))
        return tm_fail(r->err, TM_FORMAT, "'%s': an added token without id or content", r->name);
    const char *text = json_string_value(content);
    size_t      n = json_string_length(content);
    if (n == 0) return TM_OK;
    int32_t there = tm_tokenizer_find(t, text, n);
    if (there >= 0 && there != json_integer_value(id))
        return tm_fail(r->err, TM_FORMAT, "'%s': token '%.100s' has id %d in the vocabulary and %lld in added_tokens",
                       r->name, text, there, (long long)json_integer_value(id));
    if (there < 0) {
        TM_TRY(check_number(r, text, json_integer_value(id), (*next)++));
        TM_TRY(tm_reading_token(r, json_integer_value(id), text, n, text, n));
    }
    there = (int32_t)json_integer_value(id);
    t->tokens[there].special = tm_rule_flag(token, "special", false);
    t->tokens[there].added = true;
    tm_added added = { .text = t->tokens[there].text, .length = (uint32_t)n, .id = there };
    added.single_word = tm_rule_flag(token, "single_word", false);
    added.lstrip = tm_rule_flag(token, "lstrip", false);
    added.rstrip = tm_rule_flag(token, "rstrip", false);
    if (!tm_rule_flag(token, "normalized", !t->tokens[there].special)) {
        tm_added_put(&t->raw, &added);
        return TM_OK;
    }
    tm_text out = { 0 };
    bool    changed = false;
    tm_token_encoder_begin(encoder, n);
    tm_status st = tm_normalize(encoder, text, n, false, &out, &changed, r->err);
    if (st == TM_OK && changed) {
        added.text = tm_arena_text_n(t->arena, out.data, out.length);
        added.length = (uint32_t)out.length;
    }
    tm_text_fini(&out);
    if (st == TM_OK && added.length > 0) tm_added_put(&t->normalized, &added);
    return st;
}

/* `next`: the number of tokens of the vocabulary. */
static tm_status read_added(tm_reading *r, json_t *tokens, int64_t next)
{
    if (!tokens || json_is_null(tokens)) return TM_OK;
    if (!json_is_array(tokens)) return tm_fail(r->err, TM_FORMAT, "'%s': added_tokens is not an array", r->name);
    tm_token_encoder *encoder = tm_token_encoder_create(r->tokenizer);
    tm_status         st = TM_OK;
    for (size_t i = 0; i < json_array_size(tokens) && st == TM_OK; i++)
        st = add_token(r, json_array_get(tokens, i), encoder, &next);
    tm_token_encoder_destroy(encoder);
    return st;
}

/* Left in the file by a call that asked for them; every call of transformers sets both again. */
static void note_lengths(const tm_reading *r, json_t *root)
{
    static const char *const names[] = { "truncation", "padding" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (json_is_object(json_object_get(root, names[i])))
            tm_note("'%s': its saved %s is passed over, as transformers does; texts have all their tokens", r->name,
                    names[i]);
}

tm_status tm_read_tokenizer_json(tm_reading *r, json_t *root)
{
    json_t     *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    const char *type = json_string_value(json_object_get(model, "type"));
    TM_TRY(tm_json_keys(
        r, "the file", root,
        " version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder model "));
    note_lengths(r, root);
    if (!type) type = json_is_array(vocab) ? "Unigram" : json_is_array(json_object_get(model, "merges")) ? "BPE" : "?";
    r->tokenizer->facts.format = "tokenizer.json";
    TM_TRY(tm_read_json_rules(r, root));
    if (strcmp(type, "BPE") == 0)
        TM_TRY(read_bpe(r, model));
    else if (strcmp(type, "Unigram") == 0)
        TM_TRY(read_unigram(r, model));
    else
        return tm_json_refuse(r, "model", type);
    return read_added(r, json_object_get(root, "added_tokens"),
                      (int64_t)(json_is_array(vocab) ? json_array_size(vocab) : json_object_size(vocab)));
}
