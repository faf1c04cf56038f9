/* SPDX-License-Identifier: Apache-2.0 */
/* token/unigram.c - the most likely pieces of a text under a unigram model (Kudo 2018): Viterbi over all pieces that
 * begin at each character; a character without a piece of its own may be the unknown token at a price.
 *
 * tokenizer.json's library adds scores in double. SentencePiece adds them in float, and where the sum gets large begins
 * anew, by the difference to the best way so far, before its steps are coarser than those between pieces: so the same
 * text has other pieces here and there, and which ones depends on where the resets are. */
#include "token/internal.h"

#include <math.h>
#include <stdlib.h>

static const double reset_above = 100000;

typedef struct tm_best {
    double  score;
    int64_t from; /* where the last piece begins, -1: not reached */
    int32_t id;
} tm_best;

static void offer(const tm_model *m, tm_best *best, size_t from, size_t to, int32_t id, double score)
{
    score += best[from].score;
    if (m->sentencepiece) score = (double)(float)score;
    if (best[to].from < 0 || score > best[to].score) best[to] = (tm_best){ score, (int64_t)from, id };
}

/* Makes the score of the way to `at` 0, and others up to the farthest place less by as much. */
static void reset(tm_best *best, size_t at, size_t farthest)
{
    double offset = best[at].score;
    for (size_t i = at; i <= farthest; i++)
        if (i == at || best[i].from >= 0) best[i].score = (double)(float)(best[i].score - offset);
}

static void best_ways(const tm_model *m, tm_best *best, const char *text, size_t n)
{
    for (size_t i = 0; i <= n; i++) best[i] = (tm_best){ 0, -1, -1 };
    for (size_t at = 0, length, farthest = 0; at < n; at += length) {
        bool    alone = false;
        int32_t node = 0;
        length = tm_char_bytes(text + at);
        if (m->sentencepiece && fabs(best[at].score) > reset_above) reset(best, at, farthest);
        if (farthest < at + length) farthest = at + length;
        for (size_t to = at; to < n;) {
            const tm_pair *step = tm_pairs_get(&m->trie, node, (uint8_t)text[to]);
            if (!step) break;
            node = step->id;
            to++;
            if (step->rank == TM_NO_RANK) continue;
            if (farthest < to) farthest = to;
            offer(m, best, at, to, (int32_t)step->rank, m->scores[step->rank]);
            if (to - at == length) alone = true;
        }
        if (!alone) offer(m, best, at, at + length, m->unk, m->unk_score);
    }
}

/* An unknown piece: bytes if all of them have a token. */
static void add_piece(const tm_model *m, const char *bytes, size_t n, int32_t id, tm_ids *out)
{
    bool fallback = id == m->unk && m->byte_fallback;
    for (size_t i = 0; i < n && fallback; i++) fallback = m->byte[(uint8_t)bytes[i]] >= 0;
    for (size_t i = 0; i < n && fallback; i++) tm_ids_add(out, m->byte[(uint8_t)bytes[i]]);
    if (!fallback && id >= 0) tm_ids_add(out, id);
}

void tm_encode_unigram(tm_token_encoder *e, const char *word, size_t n, tm_ids *out)
{
    const tm_model *m = &e->tokenizer->model;
    if (n == 0) return;
    if (e->best_room < n + 1) {
        e->best_room = 2 * (n + 1);
        e->best = tm_realloc(e->best, e->best_room * sizeof *e->best);
    }
    tm_best *best = e->best;
    best_ways(m, best, word, n);
    /* Backwards through the pieces, turning the chain round: `score` is no longer needed. */
    size_t to = n, next = n + 1;
    for (;;) {
        size_t from = (size_t)best[to].from;
        best[to].score = (double)next;
        next = to;
        if (to == 0) break;
        if (best[to].from < 0) return;
        to = from;
    }
    for (size_t from = 0, at = (size_t)best[0].score; at <= n; from = at, at = (size_t)best[at].score) {
        int32_t id = best[at].id;
        size_t  until = at;
        while (id == m->unk && until < n && best[(size_t)best[until].score].id == m->unk)
            until = (size_t)best[until].score;
        add_piece(m, word + from, until - from, id, out);
        at = until;
    }
}

void tm_model_finish_trie(tm_model *model)
{
    int32_t nodes = 1;
    tm_pairs_init(&model->trie);
    for (size_t p = 0; p < model->strings.size; p++) {
        const tm_string *s = &model->strings.places[p];
        int32_t          node = 0;
        if (!s->bytes) continue;
        for (uint32_t i = 0; i < s->length; i++) {
            const tm_pair *step = tm_pairs_get(&model->trie, node, (uint8_t)s->bytes[i]);
            bool           end = i + 1 == s->length;
            uint32_t       token = end ? (uint32_t)s->id : step ? step->rank : TM_NO_RANK;
            int32_t        to = step ? step->id : nodes++;
            tm_pairs_put(&model->trie, node, (uint8_t)s->bytes[i], token, to);
            node = to;
        }
    }
}
