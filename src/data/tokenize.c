/* SPDX-License-Identifier: Apache-2.0 */
/* data/tokenize.c - one thread reads batches of text, several encode them, the caller's writes them in their order.
 *
 * A ring of batches: each is empty, full (of text), being encoded, or encoded. What a batch holds depends on the files
 * only, and they are written in order: so are the tokens. A call that goes on after a killed one reads from the
 * beginning, but encodes only what was not yet certain. */
#include "data/tokenize.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/corpus.h"
#include "data/indexed.h"
#include "data/tokenize_output.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SAY_SECONDS = 5, END_OF_DOCUMENT = -1 };

typedef struct {
    enum { EMPTY, FULL, ENCODING, ENCODED } state;
    bool          last, skip; /* nothing comes behind it; it was written by an earlier call */
    tm_text_batch text;
    tm_ids        ids; /* with END_OF_DOCUMENT behind each document */
    tm_status     status;
    tm_error      error;
} slot;

typedef struct {
    const tm_tokenize_options *options;
    const tm_tokenizer        *tokenizer;
    tm_corpus                 *corpus;
    int32_t                    end;
    pthread_mutex_t            lock;
    pthread_cond_t             changed;
    slot                      *slots;
    int                        n_slots;
    int64_t                    read, taken, written; /* batches so far; slot i % n_slots */
    int64_t                    first;                /* the first that has to be encoded */
    bool                       finished;             /* all threads shall end */
} line;

/* --- encoding ----------------------------------------------------------------------------------------------------- */

typedef struct {
    line             *l;
    tm_token_encoder *encoder;
    slot             *slot;
} encoding;

static tm_status encode_document(void *context, const char *text, size_t n, bool begins, bool ends, tm_error *err)
{
    encoding *c = context;
    line     *l = c->l;
    slot     *s = c->slot;
    unsigned  flags = (begins ? 0 : TM_ENCODE_CONTINUED) | (ends ? 0 : TM_ENCODE_UNFINISHED);
    if (l->options->special) flags |= TM_ENCODE_SPECIAL;
    TM_TRY(tm_token_encoder_encode(c->encoder, text, n, flags, &s->ids, err));
    if (!ends) return TM_OK;
    const int32_t after[] = { l->end, END_OF_DOCUMENT };
    for (int i = l->end < 0; i < 2; i++) {
        if (s->ids.count == s->ids.capacity)
            s->ids.data = tm_grow(s->ids.data, &s->ids.capacity, s->ids.count, sizeof *s->ids.data);
        s->ids.data[s->ids.count++] = after[i];
    }
    return TM_OK;
}

static void *encode_batches(void *arg)
{
    line             *l = arg;
    tm_token_encoder *e = tm_token_encoder_create(l->tokenizer);
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->finished && l->taken == l->read) pthread_cond_wait(&l->changed, &l->lock);
        if (l->finished) break;
        slot *s = &l->slots[l->taken++ % l->n_slots];
        s->state = ENCODING;
        pthread_mutex_unlock(&l->lock);
        s->ids.count = 0;
        for (size_t i = 0; i < s->text.count && s->status == TM_OK && !s->skip; i++)
            s->status = tm_part_documents(&s->text, &s->text.parts[i], l->options->field, encode_document,
                                          &(encoding){ l, e, s }, &s->error);
        pthread_mutex_lock(&l->lock);
        s->state = ENCODED;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    tm_token_encoder_destroy(e);
    return NULL;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static void *read_batches(void *arg)
{
    line *l = arg;
    bool  last = false;
    while (!last) {
        pthread_mutex_lock(&l->lock);
        slot *s = &l->slots[l->read % l->n_slots];
        while (!l->finished && s->state != EMPTY) pthread_cond_wait(&l->changed, &l->lock);
        bool finished = l->finished;
        pthread_mutex_unlock(&l->lock);
        if (finished) break;
        tm_text_batch_clear(&s->text);
        s->error = (tm_error){ 0 };
        s->status = tm_corpus_next(l->corpus, &s->text, &s->error);
        last = s->last = s->status != TM_OK || s->text.count == 0;
        s->skip = l->read < l->first;
        pthread_mutex_lock(&l->lock);
        s->state = FULL;
        l->read++;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
    }
    return NULL;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void write_slot(const slot *s, tm_tokenize_output *out)
{
    const tm_ids *ids = &s->ids;
    for (size_t at = 0, end; at < ids->count; at = end) {
        for (end = at; end < ids->count && ids->data[end] != END_OF_DOCUMENT;) end++;
        tm_tokenize_output_add(out, ids->data + at, (int64_t)(end - at));
        if (end == ids->count) break;
        tm_tokenize_output_end_document(out);
        end++;
    }
    out->state.batches++;
    out->state.bytes += (int64_t)s->text.text.length;
}

static void say(const line *l, const tm_tokenize_output *out, int64_t place, double seconds, int64_t first_place)
{
    char   size[32], grouped[40], left[32] = "?";
    double done = (double)(place - first_place), all = (double)tm_corpus_bytes(l->corpus);
    if (done > 0 && seconds > 0) {
        long long eta = (long long)((all - (double)place) / done * seconds);
        snprintf(left, sizeof left, "%lld:%02lld:%02lld", eta / 3600, eta / 60 % 60, eta % 60);
    }
    tm_note("tokenize: %.1f %% of %s, %.1f MB/s, %s tokens, %s left", 100 * (double)place / all,
            tm_format_bytes(size, all), seconds > 0 ? done / seconds / 1e6 : 0.0,
            tm_format_grouped(grouped, out->state.tokens), left);
}

static slot *next_encoded(line *l)
{
    slot *s = &l->slots[l->written % l->n_slots];
    pthread_mutex_lock(&l->lock);
    while (s->state != ENCODED) pthread_cond_wait(&l->changed, &l->lock);
    pthread_mutex_unlock(&l->lock);
    return s;
}

static tm_status write_batches(line *l, tm_tokenize_output *out, tm_error *err)
{
    int64_t   start = tm_now_ns(), saved = start, said = start, first_place = 0, skipped = 0;
    int64_t   before = out->state.bytes; /* what a killed call says that it has written */
    double    save = l->options->save_seconds > 0 ? l->options->save_seconds : 5;
    tm_status st = TM_OK;
    while (st == TM_OK) {
        slot *s = next_encoded(l);
        bool  last = s->last, skip = s->skip;
        st = s->status;
        if (st != TM_OK) st = tm_fail(err, st, "%s", s->error.text);
        if (s->skip) skipped += (int64_t)s->text.text.length;
        if (st == TM_OK && (last || !skip) && skipped != before)
            st = tm_fail(err, TM_FORMAT, "'%s.tokenize' is not of this text; remove it to begin anew", l->options->out);
        if (st == TM_OK && !s->skip && !last) write_slot(s, out);
        if (s->skip) first_place = s->text.place, start = tm_now_ns();
        int64_t now = tm_now_ns(), place = s->text.place;
        pthread_mutex_lock(&l->lock);
        s->state = EMPTY;
        l->written++;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
        if (last) break;
        bool stop = l->options->stop && *l->options->stop;
        if (st == TM_OK && (stop || (!skip && (double)(now - saved) * 1e-9 >= save))) {
            st = tm_tokenize_output_save(out, err);
            saved = tm_now_ns();
        }
        if (st == TM_OK && stop)
            st = tm_fail(err, TM_INTERRUPTED, "the same command continues after %lld tokens",
                         (long long)out->state.tokens);
        if (now - said > SAY_SECONDS * 1000000000LL) {
            say(l, out, place, (double)(now - start) * 1e-9, first_place);
            said = now;
        }
    }
    return st;
}

/* --- all together ------------------------------------------------------------------------------------------------- */

static tm_status run_line(line *l, tm_tokenize_output *out, tm_error *err)
{
    int       threads = l->options->threads, started = 0;
    pthread_t reader, *workers = tm_alloc((size_t)threads * sizeof *workers);
    tm_status st = TM_OK;
    l->n_slots = 2 * threads + 2;
    l->slots = tm_alloc((size_t)l->n_slots * sizeof *l->slots);
    l->first = out->state.batches;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    bool reads = pthread_create(&reader, NULL, read_batches, l) == 0;
    while (reads && started < threads && pthread_create(&workers[started], NULL, encode_batches, l) == 0) started++;
    if (started > 0)
        st = write_batches(l, out, err);
    else
        st = tm_fail(err, TM_INTERNAL, "cannot start a thread");
    pthread_mutex_lock(&l->lock);
    l->finished = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < started; i++) pthread_join(workers[i], NULL);
    if (reads) pthread_join(reader, NULL);
    for (int i = 0; i < l->n_slots; i++) {
        tm_text_batch_fini(&l->slots[i].text);
        free(l->slots[i].ids.data);
    }
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l->slots);
    free(workers);
    return st;
}

/* Whatever changes the result. */
static uint64_t key_of(const tm_tokenize_options *o, const tm_tokenizer *tokenizer, const tm_corpus *corpus,
                       int32_t end)
{
    const tm_tokenizer_facts *f = tm_tokenizer_describe(tokenizer);
    tm_text                   text = { 0 };
    tm_text_printf(&text, "%s|%s|%s|%s|%d|%d|%lld|%llx|%lld|%lld|%lld", o->tokenizer, o->pattern ? o->pattern : "",
                   o->input ? o->input : "", o->field ? o->field : "", o->special, end, (long long)o->batch_bytes,
                   (unsigned long long)tm_corpus_hash(corpus), (long long)f->vocab, (long long)f->merges,
                   (long long)f->added);
    uint64_t key = tm_hash(text.data, text.length);
    tm_text_fini(&text);
    return key;
}

static tm_status tokenize(line *l, tm_tokenize_result *result, tm_error *err)
{
    const tm_tokenizer_facts *facts = tm_tokenizer_describe(l->tokenizer);
    tm_tokenize_output        out;
    l->end = l->options->end == -1 ? facts->eos : l->options->end;
    if (l->options->end == -1 && facts->eos_missing)
        return tm_fail(
            err, TM_INVALID,
            "'%s' calls '%.100s' its eos_token, and its tokenizer has no such token; name the token after each "
            "document: --end ID, or --end none",
            l->options->tokenizer, facts->eos_missing);
    if (l->options->end == -1 && facts->eos < 0)
        return tm_fail(
            err, TM_INVALID,
            "the end-of-text token of '%s' is not known; name the token after each document: --end ID, or --end none",
            l->options->tokenizer);
    if (l->end >= facts->vocab)
        return tm_fail(err, TM_INVALID, "--end is %d, but '%s' has ids below %lld", l->end, l->options->tokenizer,
                       (long long)facts->vocab);
    TM_TRY(tm_corpus_open(l->options, l->tokenizer, result, &l->corpus, err));
    result->wide = facts->vocab > 65500;
    TM_TRY(tm_tokenize_output_open(l->options->out, result->wide, key_of(l->options, l->tokenizer, l->corpus, l->end),
                                   &out, err));
    result->resumed_tokens = out.state.tokens;
    tm_status st = run_line(l, &out, err);
    if (st == TM_OK && out.state.documents == 0) st = tm_fail(err, TM_INVALID, "no text in '%s'", l->options->paths[0]);
    result->documents = out.state.documents;
    result->tokens = out.state.tokens;
    result->bytes = out.state.bytes;
    if (st == TM_OK) st = tm_tokenize_output_finish(&out, err);
    if (st == TM_OK) st = tm_indexed_vocabulary_write(l->options->out, facts->vocab, l->options->tokenizer, err);
    tm_tokenize_output_close(&out);
    return st;
}

tm_status tm_data_tokenize(const tm_tokenize_options *options, tm_tokenize_result *result, tm_error *err)
{
    tm_tokenizer *tokenizer;
    *result = (tm_tokenize_result){ 0 };
    TM_TRY(tm_tokenizer_open(options->tokenizer, options->pattern, &tokenizer, err));
    line      l = { .options = options, .tokenizer = tokenizer };
    tm_status st = tokenize(&l, result, err);
    tm_corpus_close(l.corpus);
    tm_tokenizer_close(tokenizer);
    return st;
}
