/* SPDX-License-Identifier: Apache-2.0 */
/* token/gguf_write.c - a tokenizer as llama.cpp has it, where it has one that gives the same ids. */
#include "base/arena.h"
#include "token/gguf.h"
#include "token/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

static void put_name(tm_gguf_head *head, const char *key, const char *text)
{
    tm_gguf_put_text(head, key, text, strlen(text));
}

static int type_of(const tm_tokenizer *t, int64_t id, bool pieces)
{
    if (id >= t->n_ids || !t->tokens[id].text) return UNUSED;
    if (pieces && id == t->model.unk) return UNKNOWN;
    if (t->tokens[id].is_byte) return BYTE;
    for (size_t i = 0; i < t->model.user.count; i++)
        if (t->model.user.tokens[i].id == id) return USER_DEFINED;
    if (t->tokens[id].special) return CONTROL;
    return t->tokens[id].added ? USER_DEFINED : NORMAL;
}

static void put_tokens(tm_gguf_head *head, const tm_tokenizer *t, int64_t vocab, bool pieces)
{
    tm_gguf_put_array(head, "tokenizer.ggml.tokens", TM_GGUF_TEXT, (uint64_t)vocab);
    for (int64_t i = 0; i < vocab; i++) {
        char unused[32];
        bool there = type_of(t, i, pieces) != UNUSED;
        snprintf(unused, sizeof unused, "[PAD%lld]", (long long)i);
        tm_gguf_add_text(head, there ? t->tokens[i].text : unused, there ? t->tokens[i].length : strlen(unused));
    }
    tm_gguf_put_array(head, "tokenizer.ggml.token_type", TM_GGUF_I32, (uint64_t)vocab);
    for (int64_t i = 0; i < vocab; i++) tm_gguf_add_number(head, TM_GGUF_I32, type_of(t, i, pieces));
}

static void put_ids(tm_gguf_head *head, const tm_tokenizer *t)
{
    const tm_tokenizer_facts *f = &t->facts;
    if (f->bos >= 0) tm_gguf_put_u32(head, "tokenizer.ggml.bos_token_id", (uint32_t)f->bos);
    if (f->eos >= 0) tm_gguf_put_u32(head, "tokenizer.ggml.eos_token_id", (uint32_t)f->eos);
    if (f->unk >= 0) tm_gguf_put_u32(head, "tokenizer.ggml.unknown_token_id", (uint32_t)f->unk);
    if (f->pad >= 0) tm_gguf_put_u32(head, "tokenizer.ggml.padding_token_id", (uint32_t)f->pad);
    tm_gguf_put_bool(head, "tokenizer.ggml.add_bos_token", t->n_before > 0);
    tm_gguf_put_bool(head, "tokenizer.ggml.add_eos_token", t->n_after > 0);
}

static int by_rank(const void *a, const void *b)
{
    const tm_pair *x = *(const tm_pair *const *)a, *y = *(const tm_pair *const *)b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* The pairs that join, in the order of their ranks; *n of them. free() it. */
static const tm_pair **pairs_of(const tm_model *model, size_t *n)
{
    const tm_pair **out = tm_alloc((model->pairs.count + 1) * sizeof *out);
    *n = 0;
    for (size_t p = 0; p < model->pairs.size; p++)
        if (model->pairs.places[p].key != TM_NO_PAIR && model->pairs.places[p].rank != TM_NO_RANK)
            out[(*n)++] = &model->pairs.places[p];
    qsort(out, *n, sizeof *out, by_rank);
    return out;
}

/* --- byte-level BPE ----------------------------------------------------------------------------------------------- */

static const char *pre_of(const tm_tokenizer *t)
{
    static const struct {
        const char *splitter, *pre;
        bool        whole_words;
    } rows[] = { { "gpt2", "gpt-2", false },  { "llama3", "llama-bpe", true }, { "llama3", "smaug-bpe", false },
                 { "qwen2", "qwen2", false }, { "o200k", "gpt-4o", false },    { "tekken", "tekken", true } };
    for (size_t i = 0; t->splitter && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].splitter, t->splitter->name) == 0 && rows[i].whole_words == t->model.whole_words)
            return rows[i].pre;
    return NULL;
}

static const char *put_bpe(tm_gguf_head *head, const tm_tokenizer *t, int64_t vocab)
{
    const char *pre = pre_of(t);
    bool        composed = t->n_normal == 1 && t->normal[0].kind == TM_NORMAL_NFC && pre && strcmp(pre, "qwen2") == 0;
    size_t      n;
    if (!pre) return "llama.cpp has no name for the pattern that cuts words";
    if (t->n_normal > 0 && !composed) return "llama.cpp does not normalize texts as it does";
    if (t->model.suffix || strcmp(t->facts.format, "tokenizer.json") != 0)
        return t->model.suffix ? "llama.cpp has no end_of_word_suffix"
                               : "its merges are in no order; take a "
                                 "tokenizer.json";
    put_name(head, "tokenizer.ggml.model", "gpt2");
    put_name(head, "tokenizer.ggml.pre", pre);
    put_tokens(head, t, vocab, false);
    const tm_pair **pairs = pairs_of(&t->model, &n);
    tm_text         merge = { 0 };
    tm_gguf_put_array(head, "tokenizer.ggml.merges", TM_GGUF_TEXT, n);
    for (size_t i = 0; i < n; i++) {
        merge.length = 0;
        tm_text_printf(&merge, "%s %s", t->tokens[pairs[i]->key >> 32].text,
                       t->tokens[pairs[i]->key & UINT32_MAX].text);
        tm_gguf_add_text(head, merge.data, merge.length);
    }
    tm_text_fini(&merge);
    free(pairs);
    put_ids(head, t);
    return NULL;
}

/* --- SentencePiece's BPE ------------------------------------------------------------------------------------------ */

/* Ranks of the tokens that pairs join to, 0 the first; false: pairs of one token do not follow each other, or pairs
 * that SentencePiece would join are missing. ranks[] is filled with TM_NO_RANK. */
static bool ranks_of(const tm_tokenizer *t, uint32_t *ranks)
{
    size_t          n;
    const tm_pair **pairs = pairs_of(&t->model, &n);
    tm_model        model = { .unk = -1 };
    bool            good = true;
    uint32_t        rank = 0;
    for (size_t i = 0; i < n && good; i++) {
        bool again = i > 0 && pairs[i]->id == pairs[i - 1]->id, tie = i > 0 && pairs[i]->rank == pairs[i - 1]->rank;
        good = again || ranks[pairs[i]->id] == TM_NO_RANK || ranks[pairs[i]->id] == rank;
        if (i > 0 && !again && !tie) rank++;
        ranks[pairs[i]->id] = rank;
    }
    free(pairs);
    if (!good || t->model.sentencepiece) return good;
    tm_pairs_init(&model.pairs);
    for (int32_t id = 0; id < t->n_ids; id++) {
        const tm_token *token = &t->tokens[id];
        if (token->text && !token->added && !token->is_byte && id != t->model.unk)
            tm_strings_put(&model.strings, token->text, token->length, id);
    }
    tm_model_pairs_by_rank(&model, t->tokens, t->n_ids, NULL);
    good = model.pairs.count == n;
    tm_strings_fini(&model.strings);
    tm_pairs_fini(&model.pairs);
    return good;
}

static bool is_meta(const char *text, size_t n)
{
    return n == strlen(TM_META) && memcmp(text, TM_META, n) == 0;
}

/* Do the rules do what SentencePiece does: blanks become U+2581, with one in front (*prefix) or not? */
static bool is_plain(const tm_tokenizer *t, bool *prefix)
{
    const tm_normal *last = t->n_normal ? &t->normal[t->n_normal - 1] : NULL;
    *prefix = false;
    if (t->model.sentencepiece) {
        *prefix = last && last->dummy_prefix;
        return last && last->escape && !last->charsmap;
    }
    if (t->n_words == 1 && t->n_normal == 0) {
        *prefix = t->words[0].prepend != TM_NEVER;
        return t->words[0].kind == TM_WORD_METASPACE && !t->words[0].split &&
               is_meta(t->words[0].text, t->words[0].length);
    }
    if (t->n_words || t->n_normal < 1 || t->n_normal > 2) return false;
    *prefix = t->n_normal == 2;
    bool prepends =
        !*prefix || (t->normal[0].kind == TM_NORMAL_PREPEND && is_meta(t->normal[0].text, t->normal[0].length));
    return prepends && last->kind == TM_NORMAL_REPLACE && !last->regex && last->find_length == 1 &&
           last->find[0] == ' ' && is_meta(last->text, last->length);
}

static const char *put_pieces(tm_gguf_head *head, const tm_tokenizer *t, int64_t vocab)
{
    bool      prefix, extra = t->model.sentencepiece && t->n_normal > 0 && t->normal[t->n_normal - 1].remove_extra;
    uint32_t *ranks = tm_alloc((size_t)t->n_ids * sizeof *ranks);
    memset(ranks, 0xff, (size_t)t->n_ids * sizeof *ranks);
    bool good = !t->model.unigram && !t->model.prefix && !t->model.suffix && is_plain(t, &prefix) && ranks_of(t, ranks);
    if (good) {
        put_name(head, "tokenizer.ggml.model", "llama");
        put_name(head, "tokenizer.ggml.pre", "default");
        put_tokens(head, t, vocab, true);
        tm_gguf_put_array(head, "tokenizer.ggml.scores", TM_GGUF_F32, (uint64_t)vocab);
        for (int64_t i = 0; i < vocab; i++)
            tm_gguf_add_number(head, TM_GGUF_F32,
                               i < t->n_ids && ranks[i] != TM_NO_RANK ? -(double)ranks[i] : -(double)TM_MAX_IDS);
        tm_gguf_put_bool(head, "tokenizer.ggml.add_space_prefix", prefix);
        if (extra) tm_gguf_put_bool(head, "tokenizer.ggml.remove_extra_whitespaces", true);
        put_ids(head, t);
    }
    free(ranks);
    return good ? NULL : "it is neither byte-level BPE nor a BPE of SentencePiece";
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

/* Ids are bytes, 256 ends a document: a byte-level vocabulary without merges. llama.cpp ends texts at 11 where a file
 * does not say at which id; without 256 it is 0. */
static void put_bytes(tm_gguf_head *head, int64_t vocab)
{
    tm_text text = { 0 };
    put_name(head, "tokenizer.ggml.model", "gpt2");
    put_name(head, "tokenizer.ggml.pre", "gpt-2");
    tm_gguf_put_array(head, "tokenizer.ggml.tokens", TM_GGUF_TEXT, (uint64_t)vocab);
    for (int64_t i = 0; i < vocab; i++) {
        text.length = 0;
        if (i < 256)
            tm_add_letter((uint8_t)i, &text);
        else if (i == 256)
            tm_text_add(&text, "<|endoftext|>");
        else
            tm_text_printf(&text, "[PAD%lld]", (long long)i);
        tm_gguf_add_text(head, text.data, text.length);
    }
    tm_text_fini(&text);
    tm_gguf_put_array(head, "tokenizer.ggml.token_type", TM_GGUF_I32, (uint64_t)vocab);
    for (int64_t i = 0; i < vocab; i++)
        tm_gguf_add_number(head, TM_GGUF_I32, i < 256 ? NORMAL : i == 256 ? CONTROL : UNUSED);
    tm_gguf_put_array(head, "tokenizer.ggml.merges", TM_GGUF_TEXT, 0);
    tm_gguf_put_u32(head, "tokenizer.ggml.eos_token_id", vocab > 256 ? 256 : 0);
    tm_gguf_put_u32(head, "tokenizer.ggml.bos_token_id", vocab > 256 ? 256 : 0);
    tm_gguf_put_bool(head, "tokenizer.ggml.add_bos_token", false);
    tm_gguf_put_bool(head, "tokenizer.ggml.add_eos_token", false);
}

const char *tm_gguf_put_tokenizer(tm_gguf_head *head, const tm_tokenizer *tokenizer, int64_t vocab)
{
    if (!tokenizer && vocab < 256) return "the model has fewer ids than there are bytes";
    if (!tokenizer) {
        put_bytes(head, vocab);
        return NULL;
    }
    if (tokenizer->n_ids > vocab) return "it has more ids than the model";
    return tokenizer->model.byte_level ? put_bpe(head, tokenizer, vocab) : put_pieces(head, tokenizer, vocab);
}

void tm_gguf_put_no_tokenizer(tm_gguf_head *head)
{
    put_name(head, "tokenizer.ggml.model", "none");
}
