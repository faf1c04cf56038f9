/* SPDX-License-Identifier: Apache-2.0 */
/* data/text.c - files as documents, bytes as tokens.
 *
 * Token 0..255 is a byte, 256 ends a document. Each split is a stream of pieces (bytes of one document, then the end
 * token), in the order of the files. Window w of a stream is its tokens w T .. w T + T, so that neighbours share one
 * token and each token but the first is a target exactly once; the rest at the end of the stream is left out.
 *
 * Split: documents owe the validation stream their fraction of bytes. As soon as a window's worth is owed, the current
 * document pays with its last bytes (all of it, if it is shorter). So every part of the folder is represented, pieces
 * are not shredded, and no byte is in both streams.
 *
 * Order: epoch e of training visits the windows in permutation (seed, e); validation goes in stream order.
 */
#include "base/arena.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "data/source_kind.h"
#include "data/text_files.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BYTE_VALUES = 256, END_TOKEN = 256, VOCAB = 257, UNKNOWN = '?' };

/* Longest part of the validation stream whose tokens are counted for the unigram entropy: opening stays under a second.
 */
static const int64_t count_limit_tokens = (int64_t)1 << 27;

typedef struct {
    const uint8_t      *bytes;
    int64_t             size;  /* bytes; the end token follows them */
    int64_t             first; /* place in the stream */
    const tm_text_file *file;
} piece;

typedef struct {
    piece  *pieces;
    size_t  count, capacity;
    int64_t tokens, bytes;
} stream;

typedef struct {
    tm_text_files files;
    stream        splits[2]; /* by tm_split */
} text;

static void stream_add(stream *s, const tm_text_file *file, const uint8_t *bytes, int64_t size)
{
    if (size == 0) return;
    s->pieces = tm_grow(s->pieces, &s->capacity, s->count, sizeof *s->pieces);
    s->pieces[s->count++] = (piece){ bytes, size, s->tokens, file };
    s->tokens += size + 1;
    s->bytes += size;
}

/* The last piece that starts at or before token `first`. */
static const piece *piece_at(const stream *s, int64_t first)
{
    size_t low = 0, high = s->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (s->pieces[middle].first <= first)
            low = middle;
        else
            high = middle;
    }
    return &s->pieces[low];
}

/* Tokens first .. first + n - 1; they must exist. */
static void stream_read(const stream *s, int64_t first, int64_t n, int32_t *out)
{
    TM_ASSERT(first >= 0 && first + n <= s->tokens);
    const piece *p = piece_at(s, first);
    int64_t      at = first - p->first;
    for (int64_t i = 0; i < n;) {
        int64_t part = p->size - at < n - i ? p->size - at : n - i;
        for (int64_t j = 0; j < part; j++) out[i + j] = p->bytes[at + j];
        i += part;
        if (i < n) out[i++] = END_TOKEN;
        p++;
        at = 0;
    }
}

static int64_t windows_of(const stream *s, int64_t seq)
{
    return s->tokens > 0 ? (s->tokens - 1) / seq : 0;
}

static void split_documents(text *t, double fraction, int64_t seq)
{
    double owed = 0;
    for (size_t i = 0; i < t->files.count; i++) {
        const tm_text_file *file = &t->files.files[i];
        int64_t             held = 0;
        owed += fraction * (double)file->size;
        if (owed >= (double)(seq + 1)) held = owed < (double)file->size ? (int64_t)owed : file->size;
        owed -= (double)held;
        stream_add(&t->splits[TM_SPLIT_TRAIN], file, file->bytes, file->size - held);
        stream_add(&t->splits[TM_SPLIT_VALIDATION], file, file->bytes + file->size - held, held);
    }
}

/* Of the tokens that windows cover, as far as the limit. */
static double unigram_entropy(const stream *s, int64_t windows, int64_t seq)
{
    int64_t counts[VOCAB] = { 0 }, total = 0;
    int64_t tokens = windows * seq + 1 < count_limit_tokens ? windows * seq + 1 : count_limit_tokens;
    for (size_t i = 0; i < s->count && total < tokens; i++) {
        int64_t part = s->pieces[i].size < tokens - total ? s->pieces[i].size : tokens - total;
        for (int64_t j = 0; j < part; j++) counts[s->pieces[i].bytes[j]]++;
        total += part;
        if (total < tokens) {
            counts[END_TOKEN]++;
            total++;
        }
    }
    return tm_unigram_entropy(counts, VOCAB);
}

static tm_status judge_splits(const tm_source_options *o, const text *t, tm_error *err)
{
    const stream *train = &t->splits[TM_SPLIT_TRAIN], *held = &t->splits[TM_SPLIT_VALIDATION];
    if (t->files.count == 0)
        return tm_fail(
            err, TM_INVALID,
            "no text in '%s': %lld empty files and %lld hidden names; give data.path a file or directory of text",
            o->path, (long long)t->files.empty, (long long)t->files.hidden);
    if (windows_of(train, o->seq) == 0)
        return tm_fail(
            err, TM_INVALID,
            "'%s' has %lld tokens to train on, wanted at least %lld (training.seq_len + 1); give more text, or lower "
            "training.seq_len or data.validation_fraction",
            o->path, (long long)train->tokens, (long long)o->seq + 1);
    if (o->validation_fraction > 0 && windows_of(held, o->seq) == 0)
        return tm_fail(
            err, TM_INVALID,
            "%g of the %lld bytes in '%s' is too little to validate on, wanted at least %lld tokens (training.seq_len "
            "+ 1); give more text, lower training.seq_len, raise data.validation_fraction, or set it to 0",
            o->validation_fraction, (long long)t->files.bytes, o->path, (long long)o->seq + 1);
    return TM_OK;
}

static void text_free(text *t)
{
    for (int i = 0; i < 2; i++) free(t->splits[i].pieces);
    tm_text_files_close(&t->files);
    free(t);
}

static tm_status text_open(tm_source *source, tm_error *err)
{
    const tm_source_options *o = &source->options;
    if (!o->path || !*o->path)
        return tm_fail(err, TM_INVALID, "data.source text needs a file or directory; set data.path");
    if (!(o->validation_fraction >= 0 && o->validation_fraction <= 0.9))
        return tm_fail(err, TM_INVALID, "data.validation_fraction is %g, wanted 0 to 0.9", o->validation_fraction);
    if (o->vocab > 0 && o->vocab < VOCAB)
        return tm_fail(err, TM_INVALID,
                       "text has %d tokens (256 bytes and the end of a document), found model.vocab_size %lld; set "
                       "model.vocab_size to %d or more",
                       VOCAB, (long long)o->vocab, VOCAB);
    text     *t = tm_alloc(sizeof *t);
    tm_status st = tm_text_files_open(o->path, &t->files, err);
    if (st == TM_OK && o->plain_text) st = tm_text_files_check(&t->files, err);
    if (st == TM_OK) {
        split_documents(t, o->validation_fraction, o->seq);
        st = judge_splits(o, t, err);
    }
    if (st != TM_OK) {
        text_free(t);
        return st;
    }
    if (t->files.hidden + t->files.empty + t->files.repeated > 0)
        tm_note("'%s': left out %lld hidden names, %lld empty files, %lld files or directories reached a second time",
                o->path, (long long)t->files.hidden, (long long)t->files.empty, (long long)t->files.repeated);
    const stream    *held = &t->splits[TM_SPLIT_VALIDATION];
    tm_source_facts *facts = &source->facts;
    facts->train_samples = windows_of(&t->splits[TM_SPLIT_TRAIN], o->seq);
    facts->validation_samples = windows_of(held, o->seq);
    facts->vocab_needed = VOCAB;
    facts->end_token = END_TOKEN;
    facts->content = t->files.content;
    if (facts->validation_samples > 0)
        facts->unigram_entropy = unigram_entropy(held, facts->validation_samples, o->seq);
    const stream *measured = facts->validation_samples > 0 ? held : &t->splits[TM_SPLIT_TRAIN];
    facts->bytes_per_token = (double)measured->bytes / (double)measured->tokens;
    source->state = t;
    return TM_OK;
}

static tm_status text_vocabulary(const tm_source_options *options, int64_t *size, tm_error *err)
{
    (void)options;
    (void)err;
    *size = VOCAB;
    return TM_OK;
}

static void text_close(tm_source *source)
{
    text_free(source->state);
}

/* The window that a sample is. */
static int64_t window_of(const tm_source *source, tm_split split, int64_t index)
{
    if (split != TM_SPLIT_TRAIN) return index;
    uint64_t windows = (uint64_t)source->facts.train_samples, epoch = (uint64_t)index / windows;
    return (int64_t)tm_random_permute(source->options.seed, tm_random_stream("text.order") + epoch,
                                      (uint64_t)index % windows, windows);
}

static void text_sample(const tm_source *source, tm_split split, int64_t index, int32_t *tokens)
{
    const text *t = source->state;
    int64_t     seq = source->options.seq;
    stream_read(&t->splits[split], window_of(source, split, index) * seq, seq + 1, tokens);
}

/* The files that the window touches. */
static tm_status text_check(const tm_source *source, tm_split split, int64_t index, tm_error *err)
{
    const text   *t = source->state;
    const stream *s = &t->splits[split];
    int64_t       seq = source->options.seq, first = window_of(source, split, index) * seq;
    if (t->files.copied == t->files.bytes) return TM_OK;
    for (const piece *p = piece_at(s, first); p < s->pieces + s->count && p->first < first + seq + 1; p++)
        TM_TRY(tm_text_file_check(p->file, err));
    return TM_OK;
}

static void text_places(const tm_source *source, tm_split split, int64_t index, tm_stored_places *out)
{
    const text   *t = source->state;
    const stream *s = &t->splits[split];
    const int64_t seq = source->options.seq;
    int64_t       first = 0, end = s->tokens;
    if (index != TM_WHOLE_SPLIT) first = window_of(source, split, index) * seq, end = first + seq + 1;
    if (s->count == 0) return;
    for (const piece *p = piece_at(s, first); p < s->pieces + s->count && p->first < end; p++) {
        const int64_t from = p->first > first ? p->first : first;
        const int64_t to = p->first + p->size < end ? p->first + p->size : end;
        if (to <= from) continue;
        bool same = index != TM_WHOLE_SPLIT && tm_text_file_unchanged(p->file); /* the whole is not read */
        tm_stored_add(out, (tm_stored_place){ .file = tm_hash(p->file->path, strlen(p->file->path)),
                                              .path = same ? p->file->path : NULL,
                                              .at = p->bytes - p->file->bytes + (from - p->first),
                                              .count = to - from,
                                              .width = 1 });
    }
}

static void text_decode(const tm_source *source, const int32_t *tokens, int64_t n, tm_text *out)
{
    (void)source;
    tm_text_add(out, "");
    for (int64_t i = 0; i < n; i++) {
        bool is_byte = tokens[i] >= 0 && tokens[i] < BYTE_VALUES;
        if (tokens[i] != END_TOKEN) tm_text_add_n(out, &(char){ (char)(is_byte ? tokens[i] : UNKNOWN) }, 1);
    }
}

const tm_source_kind tm_source_text = {
    .traits = { .name = "text", .gate = TM_GATE_HELD_OUT, .needs_path = true, .documents = true, .decodes = true },
    .open = text_open,
    .vocabulary = text_vocabulary,
    .close = text_close,
    .sample = text_sample,
    .check = text_check,
    .unit = window_of,
    .places = text_places,
    .decode = text_decode,
};
