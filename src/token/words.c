/* SPDX-License-Identifier: Apache-2.0 */
/* token/words.c - a normalized text is cut into words, each of which becomes ids. */
#include "token/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    tm_token_encoder *e;
    const char       *text; /* words are places in it */
    size_t            n;
    int               at;     /* e->words[at] are the words */
    int               buffer; /* of e->text that the next step may write into */
    bool              first, continued;
    tm_error         *err;
} cutting;

static void put_word(tm_words *words, size_t at, size_t length)
{
    if (length == 0) return;
    if (words->count == words->capacity)
        words->words = tm_grow(words->words, &words->capacity, words->count, sizeof *words->words);
    words->words[words->count++] = (tm_word){ at, length };
}

/* --- by matches --------------------------------------------------------------------------------------------------- */

typedef struct {
    const tm_word_step *step;
    tm_words           *out;
    size_t              from; /* words of this text begin here in *out */
    bool                was_match, pending;
    tm_word             last; /* not yet in *out: it may grow */
} gathering;

/* MergedWithNext looks ahead: a match waits for what follows; the other behaviours look back. */
static void gather(gathering *g, size_t from, size_t to, bool is_match)
{
    if (from == to) return;
    is_match = is_match != g->step->invert;
    bool join = false;
    switch (g->step->behavior) {
    case TM_REMOVED:
        if (is_match) return;
        break;
    case TM_CONTIGUOUS:
        join = g->pending && is_match == g->was_match;
        break;
    case TM_PREVIOUS:
        join = g->pending && is_match && !g->was_match;
        break;
    case TM_NEXT:
        join = g->pending && g->was_match && !is_match;
        break;
    case TM_ISOLATED:
        break;
    }
    g->was_match = is_match;
    if (join) {
        g->last.length = to - g->last.at;
        return;
    }
    if (g->pending) put_word(g->out, g->last.at, g->last.length);
    g->last = (tm_word){ from, to - from };
    g->pending = true;
}

static void gather_end(gathering *g)
{
    if (g->pending) put_word(g->out, g->last.at, g->last.length);
}

static tm_status cut_by_regex(cutting *c, const tm_word_step *step, const tm_word *word, tm_words *out)
{
    gathering   g = { .step = step, .out = out };
    const char *text = c->text + word->at;
    for (size_t at = 0, from, to; at < word->length; at = to) {
        TM_TRY(tm_regex_next(step->regex, c->e->match, text, word->length, at, &from, &to, c->err));
        gather(&g, word->at + at, word->at + from, false);
        gather(&g, word->at + from, word->at + to, true);
    }
    gather_end(&g);
    return TM_OK;
}

/* A known pattern matches everything: words one after another. */
static void cut_by_splitter(cutting *c, const tm_word_step *step, const tm_word *word, tm_words *out)
{
    const uint8_t *text = (const uint8_t *)c->text + word->at;
    for (size_t at = 0, to; at < word->length; at = to) {
        to = tm_split_next(step->splitter, c->e->tokenizer->classes, text, at, word->length);
        put_word(out, word->at + at, to - at);
    }
}

static void cut_by_chars(cutting *c, const tm_word_step *step, const tm_word *word, tm_words *out)
{
    tm_word_step how = { .behavior = step->kind == TM_WORD_WHITESPACE ? TM_REMOVED
                                     : step->each                     ? TM_ISOLATED
                                                                      : TM_CONTIGUOUS };
    gathering    g = { .step = &how, .out = out };
    size_t       plain = word->at; /* since then nothing matched */
    for (size_t at = word->at, length; at < word->at + word->length; at += length) {
        uint32_t code = tm_utf8_at((const uint8_t *)c->text + at, &length);
        if (!(step->kind == TM_WORD_WHITESPACE ? tm_is_white_space(code) : tm_class_of(code) & TM_CLASS_NUMBER))
            continue;
        gather(&g, plain, at, false);
        gather(&g, at, at + length, true);
        plain = at + length;
    }
    gather(&g, plain, word->at + word->length, false);
    gather_end(&g);
}

/* --- with other text ---------------------------------------------------------------------------------------------- */

static void cut_metaspace(cutting *c, const tm_word_step *step, const tm_word *word, tm_text *text, tm_words *out)
{
    const char *from = c->text + word->at, *end = from + word->length;
    size_t      begin = text->length, at;
    bool        has = *from == ' ' || (word->length >= step->length && memcmp(from, step->text, step->length) == 0);
    bool        at_start = c->first && word->at == 0;
    if (!has && !(at_start && c->continued) && (step->prepend == TM_ALWAYS || (step->prepend == TM_FIRST && at_start)))
        tm_text_add_n(text, step->text, step->length);
    for (const char *p = from; p < end && tm_fits(c->e, text);) {
        const char *blank = memchr(p, ' ', (size_t)(end - p));
        tm_text_add_n(text, p, (size_t)((blank ? blank : end) - p));
        if (blank) tm_text_add_n(text, step->text, step->length);
        p = blank ? blank + 1 : end;
    }
    if (!step->split) {
        put_word(out, begin, text->length - begin);
        return;
    }
    tm_word_step how = { .behavior = TM_NEXT };
    gathering    g = { .step = &how, .out = out };
    for (at = begin; at < text->length;) {
        const char *mark = memmem(text->data + at, text->length - at, step->text, step->length);
        size_t      to = mark ? (size_t)(mark - text->data) : text->length;
        gather(&g, at, to, false);
        if (mark) gather(&g, to, to + step->length, true);
        at = to + (mark ? step->length : 0);
    }
    gather_end(&g);
}

static void put_prefix(cutting *c, const tm_word *word, tm_text *text, tm_words *out)
{
    size_t begin = text->length;
    if (c->text[word->at] != ' ' && !(c->first && c->continued && word->at == 0)) tm_text_add(text, " ");
    tm_text_add_n(text, c->text + word->at, word->length);
    put_word(out, begin, text->length - begin);
}

static tm_status apply(cutting *c, const tm_word_step *step)
{
    const tm_words *in = &c->e->words[c->at];
    tm_words       *out = &c->e->words[!c->at];
    bool            other = step->kind == TM_WORD_METASPACE || step->kind == TM_WORD_PREFIX;
    tm_text        *text = &c->e->text[c->buffer];
    out->count = 0;
    if (other) {
        if (text->data) text->length = 0;
        tm_text_add_n(text, "", 0);
    }
    for (size_t i = 0; i < in->count; i++) {
        const tm_word *word = &in->words[i];
        if (other && !tm_fits(c->e, text)) break;
        if (step->kind == TM_WORD_METASPACE)
            cut_metaspace(c, step, word, text, out);
        else if (step->kind == TM_WORD_PREFIX)
            put_prefix(c, word, text, out);
        else if (step->kind != TM_WORD_SPLIT)
            cut_by_chars(c, step, word, out);
        else if (step->splitter)
            cut_by_splitter(c, step, word, out);
        else
            TM_TRY(cut_by_regex(c, step, word, out));
    }
    c->at = !c->at;
    if (other) {
        TM_TRY(tm_token_encoder_made(c->e, text, c->err));
        c->text = text->data;
        c->n = text->length;
        c->buffer = c->buffer == 1 ? 2 : 1;
        c->first =
            c->first && in->count == 1; /* places no longer tell the beginning; nothing looks for it after these */
    }
    return TM_OK;
}

/* Without word steps a model works on the whole text; where no token goes over the beginning of a word, it need not. */
static void encode_by_meta(tm_token_encoder *e, const char *text, size_t n, tm_ids *out)
{
    const size_t mark = strlen(TM_META);
    bool         last_is_mark = true;
    size_t       begin = 0;
    for (size_t at = 0; at < n;) {
        bool is_mark = n - at >= mark && memcmp(text + at, TM_META, mark) == 0;
        if (is_mark && !last_is_mark) {
            tm_encode_word(e, text + begin, at - begin, out);
            begin = at;
        }
        last_is_mark = is_mark;
        at += is_mark ? mark : 1;
    }
    if (n > begin) tm_encode_word(e, text + begin, n - begin, out);
}

tm_status tm_encode_words(tm_token_encoder *e, const char *text, size_t n, bool first, bool continued, tm_ids *out,
                          tm_error *err)
{
    const tm_tokenizer *t = e->tokenizer;
    if (n == 0) return TM_OK;
    if (t->splitter) {
        for (size_t at = 0, to; at < n; at = to) {
            to = tm_split_next(t->splitter, t->classes, (const uint8_t *)text, at, n);
            tm_encode_word(e, text + at, to - at, out);
        }
        return TM_OK;
    }
    if (t->n_words == 0 && t->model.cut_at_meta) {
        encode_by_meta(e, text, n, out);
        return TM_OK;
    }
    cutting c = { .e = e, .text = text, .n = n, .buffer = 1, .first = first, .continued = continued, .err = err };
    e->words[0].count = 0;
    put_word(&e->words[0], 0, n);
    for (int i = 0; i < t->n_words; i++) TM_TRY(apply(&c, &t->words[i]));
    const tm_words *words = &e->words[c.at];
    for (size_t i = 0; i < words->count; i++)
        tm_encode_word(e, c.text + words->words[i].at, words->words[i].length, out);
    return TM_OK;
}
