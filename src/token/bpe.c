/* SPDX-License-Identifier: Apache-2.0 */
/* token/bpe.c - byte pair encoding (Sennrich et al. 2016): of all neighbours that may join, those of the lowest rank
 * do, the leftmost first, until none may.
 *
 * Short words search all pairs for the lowest each time, long ones keep a heap; both give the same. Ids below -1 stand
 * for characters that have none (SentencePiece): they join nothing. */
#include "token/internal.h"

#include <stdio.h>
#include <stdlib.h>

enum { FEW = 48 };

static void add_unknown(const tm_model *m, const char *bytes, size_t n, tm_ids *out)
{
    bool fallback = m->byte_fallback;
    for (size_t i = 0; i < n && fallback; i++) fallback = m->byte[(uint8_t)bytes[i]] >= 0;
    for (size_t i = 0; i < n && fallback; i++) tm_ids_add(out, m->byte[(uint8_t)bytes[i]]);
    if (!fallback && m->unk >= 0) tm_ids_add(out, m->unk);
}

/* Joined symbols to ids; SentencePiece makes one unknown token of neighbours that are unknown. */
static void add_symbol(const tm_model *m, const char *word, int32_t id, bool *was_unknown, tm_ids *out)
{
    if (id >= 0) {
        tm_ids_add(out, id);
        *was_unknown = false;
        return;
    }
    const char *c = word + (-2 - id);
    size_t      before = out->count;
    if (*was_unknown && !m->byte_fallback) return;
    add_unknown(m, c, tm_char_bytes(c), out);
    *was_unknown = out->count == before + 1 && out->data[before] == m->unk;
}

static void join_few(const tm_model *m, const char *word, int32_t *id, size_t n, tm_ids *out)
{
    uint32_t rank[FEW + 1];
    int32_t  joined[FEW + 1];
    for (size_t i = 0; i + 1 < n; i++) {
        const tm_pair *pair = tm_pairs_get(&m->pairs, id[i], id[i + 1]);
        rank[i] = pair ? pair->rank : TM_NO_RANK;
        joined[i] = pair ? pair->id : -1;
    }
    for (;;) {
        uint32_t best = TM_NO_RANK;
        size_t   at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            if (rank[i] < best) {
                best = rank[i];
                at = i;
            }
        if (best == TM_NO_RANK) break;
        id[at] = joined[at];
        n--;
        for (size_t i = at + 1; i < n; i++) {
            id[i] = id[i + 1];
            rank[i] = rank[i + 1];
            joined[i] = joined[i + 1];
        }
        for (size_t i = at ? at - 1 : 0; i <= at && i + 1 < n; i++) {
            const tm_pair *pair = tm_pairs_get(&m->pairs, id[i], id[i + 1]);
            rank[i] = pair ? pair->rank : TM_NO_RANK;
            joined[i] = pair ? pair->id : -1;
        }
    }
    bool unknown = false;
    for (size_t i = 0; i < n; i++) add_symbol(m, word, id[i], &unknown, out);
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t value)
{
    size_t i = (*n)++;
    while (i > 0 && heap[(i - 1) / 2] > value) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = value;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t top = heap[0], last = heap[--*n];
    size_t   i = 0;
    for (size_t child; (child = 2 * i + 1) < *n; i = child) {
        if (child + 1 < *n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= last) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

/* Looks at symbol i and the next one; into the heap with it, if they join. */
static void look_at(tm_token_encoder *e, size_t i, size_t *heaped)
{
    tm_symbol     *s = &e->symbols[i];
    const tm_pair *pair = s->next < 0 ? NULL : tm_pairs_get(&e->tokenizer->model.pairs, s->id, e->symbols[s->next].id);
    s->rank = pair ? pair->rank : TM_NO_RANK;
    s->joined = pair ? pair->id : -1;
    if (s->rank != TM_NO_RANK) heap_push(e->heap, heaped, (uint64_t)pair->rank << 32 | i);
}

/* e->symbols[0..n) have their ids. A pair is pushed when it comes to be: n - 1 at first, two for each that joins. */
static void join_many(tm_token_encoder *e, const char *word, size_t n, tm_ids *out)
{
    size_t heaped = 0;
    if (e->heap_room < 3 * n) {
        e->heap_room = 4 * n;
        e->heap = tm_realloc(e->heap, e->heap_room * sizeof *e->heap);
    }
    for (size_t i = 0; i < n; i++) {
        e->symbols[i].before = (int32_t)i - 1;
        e->symbols[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i < n; i++) look_at(e, i, &heaped);
    while (heaped > 0) {
        uint64_t   top = heap_pop(e->heap, &heaped);
        size_t     i = (size_t)(top & UINT32_MAX);
        tm_symbol *s = &e->symbols[i];
        if (s->rank != top >> 32) continue; /* joined meanwhile */
        tm_symbol *gone = &e->symbols[s->next];
        s->id = s->joined;
        s->next = gone->next;
        gone->rank = TM_NO_RANK;
        if (s->next >= 0) e->symbols[s->next].before = (int32_t)i;
        look_at(e, i, &heaped);
        if (s->before >= 0) look_at(e, (size_t)s->before, &heaped);
    }
    bool unknown = false;
    for (int32_t i = 0; i >= 0; i = e->symbols[i].next)
        add_symbol(&e->tokenizer->model, word, e->symbols[i].id, &unknown, out);
}

/* --- first symbols ------------------------------------------------------------------------------------------------ */

static void add_first(tm_token_encoder *e, size_t *n, int32_t id)
{
    if (*n == e->symbols_room) e->symbols = tm_grow(e->symbols, &e->symbols_room, *n, sizeof *e->symbols);
    e->symbols[(*n)++].id = id;
}

static int32_t id_of_part(const tm_model *m, const char *word, size_t n, size_t at, size_t length)
{
    bool prefix = m->prefix && at > 0, suffix = m->suffix && at + length == n;
    if (!prefix && !suffix) return tm_strings_get(&m->strings, word + at, length);
    tm_text text = { 0 };
    if (prefix) tm_text_add(&text, m->prefix);
    tm_text_add_n(&text, word + at, length);
    if (suffix) tm_text_add(&text, m->suffix);
    int32_t id = tm_strings_get(&m->strings, text.data, text.length);
    tm_text_fini(&text);
    return id;
}

/* As tokenizer.json's BPE begins: bytes for what has no id, if all of them have one; else the unknown token, which
 * waits for what follows so that several become one (fuse_unk). */
static size_t first_symbols(tm_token_encoder *e, const char *word, size_t n)
{
    const tm_model *m = &e->tokenizer->model;
    size_t          count = 0;
    bool            waiting = false;
    for (size_t at = 0, length; at < n; at += length) {
        length = m->byte_level ? 1 : tm_char_bytes(word + at);
        bool    last = at + length == n;
        uint8_t byte = (uint8_t)word[at];
        int32_t id = !m->byte_level ? id_of_part(m, word, n, at, length) : last ? m->last_byte[byte] : m->byte[byte];
        if (id >= 0) {
            if (waiting) add_first(e, &count, m->unk);
            waiting = false;
            add_first(e, &count, id);
            continue;
        }
        bool fallback = m->byte_fallback && !m->byte_level;
        for (size_t i = 0; i < length && fallback; i++) fallback = m->byte[(uint8_t)word[at + i]] >= 0;
        for (size_t i = 0; i < length && fallback; i++) add_first(e, &count, m->byte[(uint8_t)word[at + i]]);
        if (fallback || m->unk < 0) continue;
        if (waiting && !m->fuse_unk) add_first(e, &count, m->unk);
        waiting = true;
    }
    if (waiting) add_first(e, &count, m->unk);
    return count;
}

/* SentencePiece: user-defined symbols as they are, else characters; what has no id stays what it is. */
static size_t first_pieces(tm_token_encoder *e, const char *word, size_t n)
{
    const tm_model *m = &e->tokenizer->model;
    size_t          count = 0, from = 0, to = 0;
    int32_t         user = -1;
    bool            looked = false;
    for (size_t at = 0; at < n;) {
        if (m->user.count > 0 && (!looked || from < at)) {
            user = tm_added_next(&m->user, word, n, at, &from, &to);
            looked = true;
        }
        if (user >= 0 && from == at) {
            add_first(e, &count, user);
            at = to;
            continue;
        }
        size_t  length = tm_char_bytes(word + at);
        int32_t id = tm_strings_get(&m->strings, word + at, length);
        add_first(e, &count, id >= 0 ? id : -2 - (int32_t)at);
        at += length;
    }
    return count;
}

void tm_encode_bpe(tm_token_encoder *e, const char *word, size_t n, tm_ids *out)
{
    const tm_model *m = &e->tokenizer->model;
    int32_t         ids[FEW + 1];
    size_t          count = n;
    if (m->byte_level && n <= FEW && !m->suffix && m->unk < 0) { /* nearly always */
        count = 0;
        for (size_t i = 0; i < n; i++)
            if (m->byte[(uint8_t)word[i]] >= 0) ids[count++] = m->byte[(uint8_t)word[i]];
    } else {
        count = m->sentencepiece ? first_pieces(e, word, n) : first_symbols(e, word, n);
        if (count > FEW) {
            join_many(e, word, count, out);
            return;
        }
        for (size_t i = 0; i < count; i++) ids[i] = e->symbols[i].id;
    }
    join_few(m, word, ids, count, out);
}

/* --- words -------------------------------------------------------------------------------------------------------- */

static void encode_new(tm_token_encoder *e, const char *word, size_t n, tm_ids *out)
{
    const tm_model *m = &e->tokenizer->model;
    int32_t         id = m->whole_words ? tm_strings_get(&m->strings, word, n) : -1;
    if (id >= 0)
        tm_ids_add(out, id);
    else if (m->unigram)
        tm_encode_unigram(e, word, n, out);
    else
        tm_encode_bpe(e, word, n, out);
}

void tm_encode_word(tm_token_encoder *e, const char *word, size_t n, tm_ids *out)
{
    if (n > sizeof e->cache->word) {
        encode_new(e, word, n, out);
        return;
    }
    tm_cached *c = &e->cache[tm_short_hash(word, n) & (TM_CACHE_WORDS - 1)];
    size_t     before = out->count;
    if (c->length == n && memcmp(c->word, word, n) == 0) {
        if (before + 8 > out->capacity) out->data = tm_grow(out->data, &out->capacity, before + 8, sizeof *out->data);
        memcpy(out->data + before, c->ids, sizeof c->ids);
        out->count += c->n;
        return;
    }
    encode_new(e, word, n, out);
    if (n == 0 || out->count - before > 8) return;
    c->length = (uint8_t)n;
    c->n = (uint8_t)(out->count - before);
    memcpy(c->word, word, n);
    memcpy(c->ids, out->data + before, c->n * sizeof *out->data);
}
