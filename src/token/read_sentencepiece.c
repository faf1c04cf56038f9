/* SPDX-License-Identifier: Apache-2.0 */
/* token/read_sentencepiece.c - SentencePiece's .model, a protocol buffer (ModelProto): fields are a varint (number << 3
 * | kind) and a varint, 4 or 8 bytes, or a length and as many bytes.
 *
 *   1 pieces           1 piece, 2 score (float), 3 type: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6
 * byte 2 trainer_spec     3 model_type: 1 unigram, 2 BPE; 24 treat_whitespace_as_suffix, 35 byte_fallback 3
 * normalizer_spec  2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces 5
 * denormalizer_spec
 */
#include "token/charsmap.h"
#include "token/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, EIGHT = 1, BYTES = 2, FOUR = 5 };
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

typedef struct {
    const uint8_t *at, *end;
    uint32_t       number; /* of the field read last */
    int            kind;
    uint64_t       value; /* of a number */
    const uint8_t *bytes; /* of BYTES, value bytes long */
} message;

static bool read_varint(message *m, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        uint8_t byte = *m->at++;
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

static bool read_fixed(message *m, size_t n)
{
    m->value = 0;
    if ((size_t)(m->end - m->at) < n) return false;
    for (size_t i = 0; i < n; i++) m->value |= (uint64_t)m->at[i] << 8 * i;
    m->at += n;
    return true;
}

/* The next field; false at the end (at == end) and where the message is damaged. */
static bool next_field(message *m)
{
    const uint8_t *begin = m->at;
    uint64_t       tag;
    if (m->at == m->end) return false;
    bool good = read_varint(m, &tag) && tag >> 3 > 0 && tag >> 3 < 1u << 29;
    m->number = (uint32_t)(tag >> 3);
    m->kind = (int)(tag & 7);
    if (good && m->kind == BYTES) {
        good = read_varint(m, &m->value) && m->value <= (uint64_t)(m->end - m->at);
        m->bytes = m->at;
        if (good) m->at += m->value;
    } else if (good) {
        good = m->kind == VARINT ? read_varint(m, &m->value)
                                 : (m->kind == EIGHT || m->kind == FOUR) && read_fixed(m, m->kind == EIGHT ? 8 : 4);
    }
    if (!good) m->at = begin; /* not the end: damaged */
    return good;
}

static message inner(const message *m)
{
    return (message){ .at = m->bytes, .end = m->bytes + m->value };
}

typedef struct {
    float   score;
    uint8_t type;
} piece;

typedef struct {
    tm_reading    *r;
    piece         *pieces; /* by id */
    size_t         count, room;
    int            model; /* 1 unigram, 2 BPE */
    bool           suffix, byte_fallback, dummy_prefix, remove_extra, escape, denormalizes;
    const uint8_t *charsmap;
    size_t         charsmap_bytes;
} reading;

static tm_status damaged(const reading *s, const char *what)
{
    return tm_fail(s->r->err, TM_FORMAT,
                   "'%s' is not a SentencePiece model: %s; tokenizer files are tokenizer.json, "
                   "SentencePiece .model, tiktoken and tekken",
                   s->r->name, what);
}

static tm_status read_piece(reading *s, message m)
{
    piece       p = { .type = NORMAL };
    const char *text = NULL;
    size_t      n = 0;
    while (next_field(&m)) {
        uint32_t bits = (uint32_t)m.value;
        if (m.number == 1 && m.kind == BYTES) text = (const char *)m.bytes, n = (size_t)m.value;
        if (m.number == 2 && m.kind == FOUR) memcpy(&p.score, &bits, 4);
        if (m.number == 3 && m.kind == VARINT) p.type = m.value <= BYTE ? (uint8_t)m.value : 0;
    }
    if (m.at != m.end || !text) return damaged(s, "a piece is truncated");
    if (p.type == 0 || !isfinite(p.score)) return damaged(s, "a piece has an unknown type or no score");
    if (n == 0) return damaged(s, "a piece is empty");
    if (p.type == UNUSED)
        return tm_fail(s->r->err, TM_UNSUPPORTED, "'%s': pieces of type UNUSED are not supported", s->r->name);
    for (size_t i = 0; i < n;) {
        unsigned char four[5] = { 0 };
        memcpy(four, text + i, n - i < 4 ? n - i : 4);
        size_t length = tm_utf8_length(four);
        if (length == 0) return damaged(s, "a piece is not UTF-8");
        i += length;
    }
    int  byte = p.type == BYTE ? tm_byte_token(text, n) : -1;
    char one = (char)byte;
    if (p.type == BYTE && byte < 0) return damaged(s, "a byte piece is not <0x00> to <0xFF>");
    const char *plain = byte >= 0 ? &one : p.type == UNKNOWN ? " \xE2\x81\x87 " : text;
    TM_TRY(tm_reading_token(s->r, (int64_t)s->count, text, n, plain, byte >= 0 ? 1 : p.type == UNKNOWN ? 5 : n));
    tm_tokenizer *t = s->r->tokenizer;
    tm_token     *token = &t->tokens[s->count];
    token->special = p.type == CONTROL;
    token->is_byte = byte >= 0;
    if (byte >= 0) t->model.byte[byte] = (int32_t)s->count;
    if (p.type == UNKNOWN) t->model.unk = (int32_t)s->count;
    if ((p.type == NORMAL || p.type == USER_DEFINED) &&
        tm_strings_put(&t->model.strings, token->text, n, (int32_t)s->count) >= 0)
        return damaged(s, "a piece occurs twice");
    s->pieces = tm_grow(s->pieces, &s->room, s->count, sizeof *s->pieces);
    s->pieces[s->count++] = p;
    return TM_OK;
}

static tm_status read_specs(reading *s, const message *field)
{
    message m = inner(field);
    while (next_field(&m)) {
        if (field->number == 2 && m.kind == VARINT) {
            if (m.number == 3) s->model = (int)(m.value < 5 ? m.value : 0);
            if (m.number == 24) s->suffix = m.value != 0;
            if (m.number == 35) s->byte_fallback = m.value != 0;
        } else if (field->number == 3) {
            if (m.number == 2 && m.kind == BYTES) s->charsmap = m.bytes, s->charsmap_bytes = (size_t)m.value;
            if (m.number == 3 && m.kind == VARINT) s->dummy_prefix = m.value != 0;
            if (m.number == 4 && m.kind == VARINT) s->remove_extra = m.value != 0;
            if (m.number == 5 && m.kind == VARINT) s->escape = m.value != 0;
        } else if (field->number == 5) {
            if (m.number == 2 && m.kind == BYTES) s->denormalizes = m.value > 0;
        }
    }
    return m.at == m.end ? TM_OK : damaged(s, "its settings are truncated");
}

static tm_status read_model(reading *s, const uint8_t *bytes, size_t size)
{
    message m = { .at = bytes, .end = bytes + size };
    while (next_field(&m)) {
        if (m.number <= 5 && m.kind != BYTES) return damaged(s, "a field has the wrong kind");
        if (m.number == 1) TM_TRY(read_piece(s, inner(&m)));
        if (m.number == 2 || m.number == 3 || m.number == 5) TM_TRY(read_specs(s, &m));
    }
    if (m.at != m.end) return damaged(s, "it is truncated, or another kind of file");
    return s->count > 0 ? TM_OK : damaged(s, "it has no pieces");
}

/* --- what follows ------------------------------------------------------------------------------------------------- */

typedef struct {
    float   score;
    int32_t id;
} scored;

static int by_score(const void *a, const void *b)
{
    float x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return x > y ? -1 : x < y;
}

/* The higher its score, the earlier two pieces join to one; among equals the leftmost. */
static void finish_bpe(reading *s)
{
    tm_tokenizer *t = s->r->tokenizer;
    scored       *order = tm_alloc(s->count * sizeof *order);
    uint32_t     *ranks = tm_alloc(s->count * sizeof *ranks), rank = 0;
    for (size_t i = 0; i < s->count; i++) order[i] = (scored){ s->pieces[i].score, (int32_t)i };
    qsort(order, s->count, sizeof *order, by_score);
    for (size_t i = 0; i < s->count; i++) {
        if (i > 0 && order[i].score < order[i - 1].score) rank++;
        ranks[order[i].id] = rank;
    }
    tm_model_pairs_by_rank(&t->model, t->tokens, t->n_ids, ranks);
    for (size_t i = 0; i < s->count; i++) { /* user-defined ones join nothing */
        const tm_token *token = &t->tokens[i];
        if (s->pieces[i].type != USER_DEFINED) continue;
        tm_added symbol = { .text = token->text, .length = token->length, .id = (int32_t)i };
        tm_added_put(&t->model.user, &symbol);
        for (size_t p = 0; p < t->model.pairs.size; p++) {
            tm_pair *pair = &t->model.pairs.places[p];
            if (pair->key == TM_NO_PAIR || (pair->key >> 32 != i && (pair->key & UINT32_MAX) != i)) continue;
            pair->rank = TM_NO_RANK;
        }
    }
    tm_model_find_meta(&t->model);
    t->facts.model = "BPE";
    free(order);
    free(ranks);
}

static void finish_unigram(reading *s)
{
    tm_tokenizer *t = s->r->tokenizer;
    float         least = INFINITY;
    t->model.unigram = true;
    t->model.scores = tm_alloc(s->count * sizeof *t->model.scores);
    for (size_t i = 0; i < s->count; i++)
        if (s->pieces[i].type == NORMAL && s->pieces[i].score < least) least = s->pieces[i].score;
    for (size_t i = 0; i < s->count; i++) {
        const tm_token *token = &t->tokens[i];
        t->model.scores[i] = (double)s->pieces[i].score;
        if (s->pieces[i].type != USER_DEFINED) continue;
        t->model.scores[i] = (double)(float)(0.1 * ((double)token->length - 1)); /* above all others */
        tm_added symbol = { .text = token->text, .length = token->length, .id = (int32_t)i };
        tm_added_put(&t->model.user, &symbol);
    }
    t->model.unk_score = (double)(least - 10);
    tm_model_finish_trie(&t->model);
    t->facts.model = "Unigram";
}

static tm_status finish(reading *s)
{
    tm_tokenizer *t = s->r->tokenizer;
    if (s->model != 1 && s->model != 2)
        return tm_fail(s->r->err, TM_UNSUPPORTED, "'%s': model_type %s is not supported", s->r->name,
                       s->model == 3   ? "WORD"
                       : s->model == 4 ? "CHAR"
                                       : "?");
    if (s->suffix || s->denormalizes)
        return tm_fail(s->r->err, TM_UNSUPPORTED, "'%s': %s is not supported", s->r->name,
                       s->suffix ? "treat_whitespace_as_suffix" : "denormalizer_spec");
    if (t->model.unk < 0) return damaged(s, "it has no unknown piece");
    tm_normal *step = &t->normal[t->n_normal++];
    *step = (tm_normal){ .kind = TM_NORMAL_SENTENCEPIECE,
                         .dummy_prefix = s->dummy_prefix,
                         .remove_extra = s->remove_extra,
                         .escape = s->escape };
    if (s->charsmap_bytes > 0)
        TM_TRY(tm_charsmap_read(t->arena, s->charsmap, s->charsmap_bytes, s->r->name, &step->charsmap, s->r->err));
    t->model.sentencepiece = true;
    t->model.byte_fallback = s->byte_fallback;
    t->facts.format = "sentencepiece";
    t->decode.meta = s->escape;
    t->decode.strip_token = s->dummy_prefix || s->remove_extra;
    t->decode.strip_all = s->remove_extra;
    if (s->model == 2)
        finish_bpe(s);
    else
        finish_unigram(s);
    t->before[0] = tm_tokenizer_find(t, "<s>", 3);
    t->after[0] = tm_tokenizer_find(t, "</s>", 4);
    t->n_before = t->before[0] >= 0 && t->tokens[t->before[0]].special;
    t->n_after = !t->n_before && t->after[0] >= 0 && t->tokens[t->after[0]].special;
    return TM_OK;
}

tm_status tm_read_sentencepiece(tm_reading *r, const uint8_t *bytes, size_t size)
{
    reading   s = { .r = r, .model = 1, .dummy_prefix = true, .remove_extra = true, .escape = true };
    tm_status st = read_model(&s, bytes, size);
    if (st == TM_OK) st = finish(&s);
    free(s.pieces);
    return st;
}

/* --- as a tokenizer.json ------------------------------------------------------------------------------------------ */

static void piece_part(message m, json_t *pieces, json_t *added)
{
    const char *text = "";
    size_t      n = 0;
    float       score = 0;
    uint64_t    type = NORMAL;
    while (next_field(&m)) {
        uint32_t bits = (uint32_t)m.value;
        if (m.number == 1 && m.kind == BYTES) text = (const char *)m.bytes, n = (size_t)m.value;
        if (m.number == 2 && m.kind == FOUR) memcpy(&score, &bits, 4);
        if (m.number == 3 && m.kind == VARINT) type = m.value;
    }
    json_t *pair = json_array(), *name = json_stringn(text, n);
    json_array_append(pair, name);
    json_array_append_new(pair, json_real((double)score));
    if (type == USER_DEFINED)
        json_array_append_new(added, json_pack("{s:I, s:O, s:b}", "id", (json_int_t)json_array_size(pieces), "content",
                                               name, "normalized", 0));
    json_array_append_new(pieces, pair);
    json_decref(name);
}

tm_status tm_sentencepiece_parts(const tm_reading *r, const uint8_t *bytes, size_t size, json_t *pieces, json_t *added,
                                 json_t **normalizer)
{
    tm_tokenizer *whole = NULL;
    tm_text       text = { 0 };
    TM_TRY(tm_tokenizer_parse(r->name, bytes, size, NULL, &whole, r->err)); /* says what is wrong with it */
    bool unigram = whole->model.unigram && whole->model.sentencepiece && !whole->model.byte_fallback;
    tm_tokenizer_close(whole);
    if (!unigram)
        return tm_fail(
            r->err, TM_UNSUPPORTED,
            "'%s': spiece.model is not a Unigram model without byte_fallback, as T5 has; give the file itself",
            r->name);
    message m = { .at = bytes, .end = bytes + size };
    while (next_field(&m)) {
        if (m.number == 1) piece_part(inner(&m), pieces, added);
        message spec = m.number == 3 ? inner(&m) : (message){ 0 };
        while (next_field(&spec)) {
            if (spec.number != 2 || spec.kind != BYTES) continue;
            text.length = 0;
            tm_add_base64(spec.bytes, (size_t)spec.value, &text);
        }
    }
    *normalizer =
        text.length > 0 ? json_pack("{s:s, s:s}", "type", "Precompiled", "precompiled_charsmap", text.data) : NULL;
    tm_text_fini(&text);
    return TM_OK;
}
