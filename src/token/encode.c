/* SPDX-License-Identifier: Apache-2.0 */
/* token/encode.c - from a text to ids: added tokens, normalization, words, and what is put around them. */
#include "token/internal.h"

#include <stdlib.h>
#include <string.h>

tm_token_encoder *tm_token_encoder_create(const tm_tokenizer *tokenizer)
{
    tm_token_encoder *e = tm_alloc(sizeof *e);
    e->tokenizer = tokenizer;
    e->match = tm_regex_match_create();
    e->cache = tm_alloc(TM_CACHE_WORDS * sizeof *e->cache);
    return e;
}

void tm_token_encoder_destroy(tm_token_encoder *encoder)
{
    if (!encoder) return;
    tm_regex_match_free(encoder->match);
    tm_text_fini(&encoder->valid);
    for (int i = 0; i < 3; i++) tm_text_fini(&encoder->text[i]);
    for (int i = 0; i < 2; i++) free(encoder->words[i].words);
    free(encoder->cache);
    free(encoder->symbols);
    free(encoder->heap);
    free(encoder->best);
    free(encoder);
}

/* The first byte from `at` on that begins no valid UTF-8 sequence, n if all do. */
static size_t invalid_at(const char *text, size_t n, size_t at)
{
    uint64_t part;
    for (;;) {
        while (at + 8 <= n && (memcpy(&part, text + at, 8), !(part & 0x8080808080808080u))) at += 8;
        if (at >= n) return n;
        if ((uint8_t)text[at] < 0x80) {
            at++;
            continue;
        }
        unsigned char four[5] = { 0 };
        memcpy(four, text + at, n - at < 4 ? n - at : 4);
        size_t length = tm_utf8_length(four);
        if (length == 0) return at;
        at += length;
    }
}

/* How many bytes at `at`, which begin no valid sequence, could have begun one: they are replaced together (Unicode
 * 15, 3.9, "substitution of maximal subparts"). */
static size_t broken_bytes(const char *text, size_t n, size_t at)
{
    const uint8_t *s = (const uint8_t *)text + at;
    size_t         left = n - at, want = s[0] >= 0xC2 && s[0] < 0xE0   ? 2
                                         : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
                                         : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                                                       : 1;
    if (want == 1 || left < 2 || (s[1] & 0xC0) != 0x80) return 1;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF0 && s[1] < 0x90) ||
        (s[0] == 0xF4 && s[1] > 0x8F))
        return 1;
    size_t i = 2;
    while (i < want && i < left && (s[i] & 0xC0) == 0x80) i++;
    return i;
}

const char *tm_as_utf8(tm_token_encoder *e, const char *text, size_t *n)
{
    size_t bad = invalid_at(text, *n, 0), kept = 0;
    if (bad == *n) return text;
    e->valid.length = 0;
    while (bad < *n) {
        tm_text_add_n(&e->valid, text + kept, bad - kept);
        tm_text_add(&e->valid, "\xEF\xBF\xBD");
        kept = bad + broken_bytes(text, *n, bad);
        bad = invalid_at(text, *n, kept);
    }
    tm_text_add_n(&e->valid, text + kept, *n - kept);
    *n = e->valid.length;
    return e->valid.data;
}

typedef struct {
    tm_token_encoder *e;
    tm_ids           *out;
    tm_error         *err;
} encoding;

static tm_status encode_normalized(encoding *c, const char *text, size_t n, bool first, bool continued)
{
    const tm_added_set *set = &c->e->tokenizer->normalized;
    for (size_t at = 0, from, to; at < n; at = to) {
        int32_t id = tm_added_next(set, text, n, at, &from, &to);
        if (from > at) TM_TRY(tm_encode_words(c->e, text + at, from - at, first && at == 0, continued, c->out, c->err));
        if (id >= 0) tm_ids_add(c->out, id);
    }
    return TM_OK;
}

static tm_status encode_plain(encoding *c, const char *text, size_t n, bool first, bool continued)
{
    bool changed = false;
    if (c->e->tokenizer->n_normal > 0)
        TM_TRY(tm_normalize(c->e, text, n, first && continued, &c->e->text[0], &changed, c->err));
    if (changed) {
        text = c->e->text[0].data;
        n = c->e->text[0].length;
    }
    return encode_normalized(c, text, n, first, continued);
}

/* 16 steps, and a compatible form that makes 11 bytes of one; a short text may have a long prefix. */
enum { GROWTH = 256, GROWTH_LEAST = 1 << 16 };

void tm_token_encoder_begin(tm_token_encoder *e, size_t n)
{
    e->made = 0;
    e->most = GROWTH_LEAST + GROWTH * n;
}

tm_status tm_token_encoder_made(tm_token_encoder *e, const tm_text *text, tm_error *err)
{
    if (!tm_fits(e, text))
        return tm_fail(err, TM_INVALID,
                       "a normalizer or pre_tokenizer of the tokenizer's file multiplies the text: it makes more than "
                       "%zu bytes of %zu; take another tokenizer",
                       e->most, (e->most - GROWTH_LEAST) / GROWTH);
    e->made += text->length;
    return TM_OK;
}

tm_status tm_token_encoder_encode(tm_token_encoder *encoder, const char *text, size_t bytes, unsigned flags,
                                  tm_ids *out, tm_error *err)
{
    const tm_tokenizer *t = encoder->tokenizer;
    encoding            c = { encoder, out, err };
    const bool          special = flags & TM_ENCODE_SPECIAL, continued = flags & TM_ENCODE_CONTINUED;
    if (bytes > INT32_MAX / 2)
        return tm_fail(err, TM_INVALID, "a text of %zu bytes is too long to be encoded at once; the limit is %d", bytes,
                       INT32_MAX / 2);
    tm_token_encoder_begin(encoder, bytes);
    if (!t->model.sentencepiece) text = tm_as_utf8(encoder, text, &bytes); /* else its normalization does it */
    for (int i = 0; special && !continued && i < t->n_before; i++) tm_ids_add(out, t->before[i]);
    for (size_t at = 0, from, to; at < bytes; at = to) {
        int32_t id = tm_added_next(&t->raw, text, bytes, at, &from, &to);
        if (from > at) TM_TRY(encode_plain(&c, text + at, from - at, at == 0, continued));
        if (id >= 0) tm_ids_add(out, id);
    }
    for (int i = 0; special && !(flags & TM_ENCODE_UNFINISHED) && i < t->n_after; i++) tm_ids_add(out, t->after[i]);
    return TM_OK;
}

static tm_status check_fixed(const tm_tokenizer *t, size_t n, tm_error *err)
{
    const tm_tokenizer_facts *f = &t->facts;
    const size_t              around = (size_t)t->n_before + (size_t)t->n_after;
    if (f->left_sided)
        return tm_fail(err, TM_UNSUPPORTED,
                       "%s 'left' of the tokenizer's folder is not supported for texts of a fixed length; expected "
                       "'right'",
                       f->left_sided);
    if (f->pad < 0)
        return tm_fail(err, TM_INVALID,
                       "the tokenizer has no padding token, so texts cannot have the same length; name one of its "
                       "tokens as pad_token in tokenizer_config.json");
    if (n < around)
        return tm_fail(err, TM_INVALID, "%zu ids have no room for the %zu special tokens around a text; take more", n,
                       around);
    return TM_OK;
}

tm_status tm_token_encoder_encode_fixed(tm_token_encoder *encoder, const char *text, size_t bytes, size_t n,
                                        int32_t *ids, size_t *used, size_t *dropped, tm_error *err)
{
    const tm_tokenizer *t = encoder->tokenizer;
    tm_ids              all = { 0 };
    TM_TRY(check_fixed(t, n, err));
    tm_status st = tm_token_encoder_encode(encoder, text, bytes, 0, &all, err);
    if (st == TM_OK) {
        const size_t room = n - (size_t)t->n_before - (size_t)t->n_after, kept = all.count < room ? all.count : room;
        size_t       at = 0;
        for (int i = 0; i < t->n_before; i++) ids[at++] = t->before[i];
        if (kept > 0) memcpy(ids + at, all.data, kept * sizeof *ids);
        at += kept;
        for (int i = 0; i < t->n_after; i++) ids[at++] = t->after[i];
        if (used) *used = at;
        if (dropped) *dropped = all.count - kept;
        while (at < n) ids[at++] = t->facts.pad;
    }
    free(all.data);
    return st;
}

/* --- cutting long texts ------------------------------------------------------------------------------------------- */

static bool is_ascii_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Nothing that an added token can take, white space beside it included, goes over an end of a line and a letter. */
static bool added_allow(const tm_added_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        const tm_added *a = &set->tokens[i];
        if (a->lstrip && is_ascii_letter(a->text[0])) return false;
        if (a->single_word && a->text[a->length - 1] == '\n') return false;
        for (uint32_t k = 1; k < a->length; k++)
            if (a->text[k - 1] == '\n' && is_ascii_letter(a->text[k])) return false;
    }
    return true;
}

/* Known patterns end a word with the end of a line that a letter follows. Where words begin with U+2581, a blank
 * between ASCII letters begins one: no white space falls out there, no character changes. */
size_t tm_tokenizer_cut(const tm_tokenizer *t, const char *text, size_t bytes)
{
    bool lines = t->splitter && t->n_normal <= 1 && (t->n_normal == 0 || t->normal[0].kind == TM_NORMAL_NFC);
    bool blanks = t->n_words == 0 && t->model.cut_at_meta && t->model.sentencepiece && !t->model.unigram;
    if ((!lines && !blanks) || !added_allow(&t->raw) || !added_allow(&t->normalized)) return 0;
    for (size_t i = 0; i < t->model.user.count; i++)
        if (memchr(t->model.user.tokens[i].text, ' ', t->model.user.tokens[i].length)) return 0;
    for (size_t i = bytes; i-- > 2;) {
        if (lines && text[i - 1] == '\n' && is_ascii_letter(text[i]) && text[i - 2] > ' ' && text[i - 2] < 0x7F)
            return i;
        if (blanks && text[i] == ' ' && is_ascii_letter(text[i - 1]) && i + 1 < bytes && is_ascii_letter(text[i + 1]))
            return i;
    }
    return 0;
}
