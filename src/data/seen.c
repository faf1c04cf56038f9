/* SPDX-License-Identifier: Apache-2.0 */
/* data/seen.c - what was fed against what the source defines: by hash; which samples, by their numbers; which tokens,
 * by files that are read here by themselves. */
#include "data/seen.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/random.h"
#include "data/source_kind.h"
#include "graph/value.h"

#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEAST = 2, CHECKED_EPOCH = 1 << 16, CHECKED_ROWS = 4096 };

uint64_t tm_seen_hash(const tm_source *source, void *const *fields, int64_t rows)
{
    uint64_t hash = (uint64_t)rows;
    for (int f = 0; f < source->n_fields; f++) {
        const size_t   bytes = tm_tensor_bytes(source->fields[f].shape, source->fields[f].dtype);
        const uint64_t both[2] = { hash, tm_hash(fields[f], (size_t)rows * bytes) };
        hash = tm_hash(both, sizeof both);
    }
    return hash;
}

void tm_stored_add(tm_stored_places *places, tm_stored_place place)
{
    places->items = tm_grow(places->items, &places->capacity, places->n, sizeof *places->items);
    places->items[places->n++] = place;
}

uint64_t tm_stored_file(const char *path)
{
    struct stat is;
    if (stat(path, &is) != 0) return 0;
    const uint64_t both[2] = { (uint64_t)is.st_dev, (uint64_t)is.st_ino };
    return tm_hash(both, sizeof both);
}

typedef struct {
    tm_data_certificate *out;
    uint64_t             seed;
    int64_t              deadline_ns;
    tm_stored_places     whole[2]; /* by split, sorted; none of what is made */
    int                  file;     /* that was read last, of `path`; -1: none */
    const char          *path;
    uint64_t             rows[CHECKED_ROWS]; /* of training: what their tokens are, as numbers, where none are stored */
    size_t               n_rows;
    double               nats, squares; /* of rows of a language whose entropy is known: by target */
    int64_t              n_nats;
} look;

static bool late(const look *l)
{
    return tm_now_ns() > l->deadline_ns;
}

/* The first thing that does not hold is told. */
__attribute__((format(printf, 3, 4))) static void blame(look *l, bool *flag, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (l->out->reason[0] == '\0') vsnprintf(l->out->reason, sizeof l->out->reason, format, list);
    va_end(list);
    *flag = false;
}

static const char *name_of(tm_split split)
{
    return split == TM_SPLIT_TRAIN ? "training" : "held-out";
}

/* --- where samples lie -------------------------------------------------------------------------------------------- */

static int by_file(const void *a, const void *b)
{
    const tm_stored_place *p = a, *q = b;
    if (p->file != q->file) return p->file < q->file ? -1 : 1;
    return (p->at > q->at) - (p->at < q->at);
}

static int64_t end_of(const tm_stored_place *place)
{
    return place->at + place->count * place->width;
}

/* Sorted, and what touches is one: `end` is at + count then. */
static void merge(tm_stored_places *places)
{
    size_t kept = 0;
    if (places->n > 1) qsort(places->items, places->n, sizeof *places->items, by_file);
    for (size_t i = 0; i < places->n; i++) {
        tm_stored_place *last = kept > 0 ? &places->items[kept - 1] : NULL, p = places->items[i];
        p.count *= p.width;
        p.width = 1;
        if (last && last->file == p.file && p.at <= end_of(last))
            last->count = (end_of(&p) > end_of(last) ? end_of(&p) : end_of(last)) - last->at;
        else
            places->items[kept++] = p;
    }
    places->n = kept;
}

/* The place of a sorted list that begins last at or before one; NULL: none does. */
static const tm_stored_place *before(const tm_stored_places *places, const tm_stored_place *place)
{
    size_t low = 0, high = places->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (by_file(&places->items[middle], place) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && places->items[low - 1].file == place->file ? &places->items[low - 1] : NULL;
}

/* No byte of the held-out part is one of the training part, unless data.validation_path names what is trained on. */
static void check_apart(look *l, const tm_source *held_out)
{
    const tm_stored_places *train = &l->whole[TM_SPLIT_TRAIN], *held = &l->whole[TM_SPLIT_VALIDATION];
    for (size_t i = 0; i < held->n && l->out->apart; i++) {
        const tm_stored_place  last = { .file = held->items[i].file, .at = end_of(&held->items[i]) - 1 };
        const tm_stored_place *near = before(train, &last);
        if (!near || end_of(near) <= held->items[i].at) continue;
        if (held_out->held_out_given)
            l->out->apart = false;
        else
            blame(l, &l->out->apart, "held-out data is also trained on, so its loss does not tell of unknown data");
    }
}

static void find_whole(look *l, const tm_seen *seen)
{
    tm_stored_places *whole = &l->whole[seen->split];
    if (seen->source->kind->places) seen->source->kind->places(seen->source, seen->split, TM_WHOLE_SPLIT, whole);
    merge(whole);
}

/* --- one row ------------------------------------------------------------------------------------------------------ */

/* `count` numbers of a place, read by themselves; false: the file is not there any more. */
static bool read_place(look *l, const tm_stored_place *place, int32_t *out)
{
    const size_t bytes = (size_t)place->count * (size_t)place->width;
    uint8_t     *raw = tm_alloc(bytes);
    if (l->path != place->path) {
        if (l->file >= 0) close(l->file);
        l->file = open(place->path, O_RDONLY | O_CLOEXEC);
        l->path = place->path;
    }
    bool complete = l->file >= 0 && pread(l->file, raw, bytes, place->at) == (ssize_t)bytes;
    for (int64_t i = 0; complete && i < place->count; i++) {
        uint64_t value = 0;
        for (int b = place->width - 1; b >= 0; b--) value = value << 8 | raw[i * place->width + b];
        out[i] = (int32_t)value;
    }
    free(raw);
    return complete;
}

/* Tokens (T), and the last target behind them, are the numbers stored; between two places, and behind the last, others
 * stand for ends of documents and for nothing. */
static bool is_stored(const tm_source *source, const int32_t *stored, int64_t n, const int32_t *tokens,
                      const int32_t *targets)
{
    const int64_t seq = source->options.seq;
    int64_t       at = 0;
    for (int64_t t = 0; t <= seq; t++) {
        const int32_t token = t < seq ? tokens[t] : targets[seq - 1];
        if (at < n && (token == stored[at] || (t == seq && token == TM_IGNORED_TARGET)))
            at++;
        else if (token != source->facts.end_token && !(at == n && t >= seq - 1))
            return false;
    }
    return at == n;
}

static void check_stored(look *l, const tm_seen *seen, int64_t sample, void *const *fields)
{
    const tm_source *source = seen->source;
    tm_stored_places places = { 0 };
    int64_t          n = 0;
    bool             readable = true;
    source->kind->places(source, seen->split, sample, &places);
    for (size_t i = 0; i < places.n; i++) {
        const tm_stored_place *near = before(&l->whole[seen->split], &places.items[i]);
        if (!near || end_of(near) < end_of(&places.items[i]))
            blame(l, &l->out->apart, "the %s sample %lld lies outside of that part of the data", name_of(seen->split),
                  (long long)sample);
        n += places.items[i].count;
        readable = readable && places.items[i].path;
    }
    int32_t *stored = tm_alloc((size_t)(n + 1) * sizeof *stored);
    int64_t  at = 0;
    for (size_t i = 0; i < places.n && readable; at += places.items[i++].count)
        readable = read_place(l, &places.items[i], stored + at);
    if (readable && n > 0) {
        l->out->compared += n;
        if (!is_stored(source, stored, n, fields[0], fields[1]))
            blame(l, &l->out->stored, "the tokens of the %s sample %lld are not those of its file",
                  name_of(seen->split), (long long)sample);
    }
    free(stored);
    free(places.items);
}

/* A target is the token that follows, in its document. */
static void check_targets(look *l, const tm_seen *seen, int64_t sample, void *const *fields)
{
    const tm_source *source = seen->source;
    const int32_t   *tokens = fields[0], *targets = fields[1], *positions = NULL;
    for (int f = 0; f < source->n_fields; f++)
        if (strcmp(source->fields[f].name, "positions") == 0) positions = fields[f];
    for (int64_t t = 0; t + 1 < source->options.seq; t++) {
        const bool follows = targets[t] >= 0 && targets[t + 1] >= 0 && !(positions && positions[t + 1] == 0);
        if (!follows || tokens[t + 1] == targets[t]) continue;
        blame(l, &l->out->stored, "a target of the %s sample %lld is not the token that follows", name_of(seen->split),
              (long long)sample);
        return;
    }
}

static void add_nats(look *l, const tm_source *source, void *const *fields)
{
    const int64_t seq = source->options.seq;
    int32_t      *tokens = tm_alloc((size_t)(seq + 1) * sizeof *tokens);
    memcpy(tokens, fields[0], (size_t)seq * sizeof *tokens);
    tokens[seq] = ((const int32_t *)fields[1])[seq - 1];
    const double nats = tm_source_nats(source, tokens) / (double)seq;
    l->nats += nats;
    l->squares += nats * nats;
    l->n_nats++;
    free(tokens);
}

/* What is made and not stored: equal rows of both parts would be one sample. Short rows may be equal by chance. */
static void check_made(look *l, const tm_seen *seen, int64_t sample, void *const *fields)
{
    enum { LEAST_TOKENS = 16 };
    const tm_source *source = seen->source;
    const bool       images = source->kind->traits.images;
    if (!images && (source->options.seq < LEAST_TOKENS || source->options.vocab < LEAST_TOKENS)) return;
    const uint64_t hash = tm_hash(fields[0], tm_tensor_bytes(source->fields[0].shape, source->fields[0].dtype));
    if (seen->split == TM_SPLIT_TRAIN && l->n_rows < CHECKED_ROWS) l->rows[l->n_rows++] = hash;
    for (size_t i = 0; seen->split == TM_SPLIT_VALIDATION && i < l->n_rows; i++)
        if (l->rows[i] == hash)
            blame(l, &l->out->apart, "the %s sample %lld is one of training", name_of(seen->split), (long long)sample);
}

static void check_row(look *l, const tm_seen *seen, int64_t sample, void *const *fields)
{
    const tm_source *source = seen->source;
    if (source->kind->places)
        check_stored(l, seen, sample, fields);
    else
        check_made(l, seen, sample, fields);
    if (source->kind->traits.images) return;
    check_targets(l, seen, sample, fields);
    if (source->kind->nats && seen->split == TM_SPLIT_TRAIN) add_nats(l, source, fields);
}

/* --- batches ------------------------------------------------------------------------------------------------------ */

static void fill_empty(const tm_source *source, void *const *at)
{
    for (int f = 0; f < source->n_fields; f++)
        for (int64_t i = 0, n = tm_shape_elements(source->fields[f].shape); i < n; i++)
            tm_value_set(at[f], source->fields[f].dtype, i, source->fields[f].empty);
}

/* The rows of a batch, from the source. */
static tm_status read_rows(look *l, const tm_seen *seen, int64_t first, void *const *fields, int32_t *scratch,
                           tm_error *err)
{
    const tm_source *source = seen->source;
    const int64_t    samples = seen->split == TM_SPLIT_TRAIN ? INT64_MAX : source->facts.validation_samples;
    for (int64_t row = 0; row < seen->rows; row++) {
        void   *at[TM_MAX_FIELDS];
        int64_t weight;
        for (int f = 0; f < source->n_fields; f++)
            at[f] = (char *)fields[f] + (size_t)row * tm_tensor_bytes(source->fields[f].shape, source->fields[f].dtype);
        if (first + row >= samples) {
            fill_empty(source, at);
            continue;
        }
        TM_TRY(tm_source_row(source, seen->split, first + row, scratch, at, &weight, err));
        check_row(l, seen, first + row, at);
    }
    return TM_OK;
}

/* Batch `i` was fed the samples that it is said to be of. */
static tm_status check_batch(look *l, const tm_seen *seen, int64_t i, tm_error *err)
{
    const tm_source *source = seen->source;
    const int64_t    first = seen->first + i * seen->stride;
    void            *fields[TM_MAX_FIELDS] = { 0 };
    int32_t         *scratch = tm_alloc((size_t)(source->options.seq + 1) * sizeof *scratch);
    for (int f = 0; f < source->n_fields; f++)
        fields[f] = tm_alloc((size_t)seen->rows * tm_tensor_bytes(source->fields[f].shape, source->fields[f].dtype));
    tm_status st = read_rows(l, seen, first, fields, scratch, err);
    if (st == TM_OK && tm_seen_hash(source, fields, seen->rows) != seen->hashes[i])
        blame(l, &l->out->fed, "what was fed as the %s samples from %lld on is not what the source has there",
              name_of(seen->split), (long long)first);
    for (int f = 0; f < source->n_fields; f++) free(fields[f]);
    free(scratch);
    return st;
}

/* The first ones, and others in an order by chance until it is late. */
static tm_status check_batches(look *l, const tm_seen *seen, int64_t *checked, tm_error *err)
{
    const uint64_t stream = tm_random_stream("certificate of the data");
    for (int64_t i = 0; i < seen->n && (i < LEAST || !late(l)); i++, (*checked)++) {
        const int64_t others = seen->n - LEAST;
        const int64_t at =
            i < LEAST ? i
                      : LEAST + (int64_t)tm_random_permute(l->seed, stream, (uint64_t)(i - LEAST), (uint64_t)others);
        TM_TRY(check_batch(l, seen, at, err));
    }
    return TM_OK;
}

/* --- which samples ------------------------------------------------------------------------------------------------ */

/* Samples from .. from + n - 1 lie in one epoch, in which each is to come once. */
static void check_epoch(look *l, const tm_source *source, int64_t from, int64_t n)
{
    const size_t slots = 4 * CHECKED_EPOCH;
    int64_t     *seen = tm_alloc(slots * sizeof *seen);
    memset(seen, 0, slots * sizeof *seen);
    for (int64_t i = from; i < from + n && l->out->once && (i < from + 64 || !late(l)); i++) {
        const int64_t unit = source->kind->unit(source, TM_SPLIT_TRAIN, i);
        size_t        at = (size_t)((uint64_t)unit * UINT64_C(0x9E3779B97F4A7C15) >> 40) % slots;
        while (seen[at] && seen[at] != unit + 1) at = (at + 1) % slots;
        if (seen[at] || unit < 0 || unit >= source->facts.train_samples)
            blame(l, &l->out->once, "the training sample %lld is one that the epoch had before, so others never come",
                  (long long)i);
        seen[at] = unit + 1;
    }
    free(seen);
}

/* The first epoch that the run saw of, and the last. */
static void check_once(look *l, const tm_seen *trained)
{
    const tm_source *source = trained->source;
    const int64_t    samples = source->facts.train_samples, from = trained->first;
    const int64_t    end = from + (trained->n - 1) * trained->stride + trained->rows;
    if (!source->kind->unit || trained->n == 0) return;
    const int64_t last = (end - 1) / samples * samples;
    int64_t       n = (from / samples + 1) * samples - from;
    if (n > end - from) n = end - from;
    check_epoch(l, source, from, n < CHECKED_EPOCH ? n : CHECKED_EPOCH);
    if (last <= from) return;
    n = end - last;
    check_epoch(l, source, last, n < CHECKED_EPOCH ? n : CHECKED_EPOCH);
}

/* The text of a language of known entropy costs on the average what it says: 8 standard errors of it are never seen. */
static void check_nats(look *l, const tm_source *source)
{
    enum { LEAST_ROWS = 32 };
    if (l->n_nats < LEAST_ROWS || !isfinite(source->facts.floor)) {
        if (l->n_nats > 0 && isinf(l->nats))
            blame(l, &l->out->stored, "tokens of the training samples are none of the language");
        return;
    }
    const double n = (double)l->n_nats, mean = l->nats / n, spread = fmax(l->squares / n - mean * mean, 0);
    if (fabs(mean - source->facts.floor) <= 8 * sqrt(spread / (n - 1)) + 1e-6 * source->facts.floor) return;
    blame(l, &l->out->stored,
          "the entropy of %lld training samples is %.6g nats per token, not that of their language, %.6g",
          (long long)l->n_nats, mean, source->facts.floor);
}

void tm_certify_data(const tm_seen *trained, const tm_seen *evaluated, double seconds, uint64_t seed,
                     tm_data_certificate *out)
{
    const int64_t begin = tm_now_ns(), budget = (int64_t)(seconds * 1e9);
    tm_error      err;
    *out = (tm_data_certificate){ .done = true, .fed = true, .once = true, .apart = true, .stored = true };
    look *l = tm_alloc(sizeof *l);
    *l = (look){ .out = out, .seed = seed, .file = -1, .deadline_ns = begin + budget / 4 };
    find_whole(l, trained);
    if (evaluated->n > 0) find_whole(l, evaluated);
    check_apart(l, evaluated->source);
    check_once(l, trained);
    l->deadline_ns = begin + budget * 3 / 4;
    tm_status st = check_batches(l, trained, &out->batches, &err);
    check_nats(l, trained->source);
    l->deadline_ns = begin + budget;
    if (st == TM_OK) st = check_batches(l, evaluated, &out->held_out, &err);
    if (st != TM_OK) {
        out->done = false;
        snprintf(out->reason, sizeof out->reason, "%.900s", err.text);
    }
    for (int i = 0; i < 2; i++) free(l->whole[i].items);
    if (l->file >= 0) close(l->file);
    free(l);
    out->seconds = (double)(tm_now_ns() - begin) * 1e-9;
}
