/* SPDX-License-Identifier: Apache-2.0 */
/* data/synthetic.c - the built-in language: its entropy is known exactly and only attention can reach it.
 *
 * A symbol is a pair (payload b, marker a), b in 0..M-1, a in 0..C-1; a seeded table gives each pair its token id. In a
 * sample x_0 .. x_T, with K the longest lag:
 *
 *   a_t uniform, always
 *   b_t uniform                                       for t < K
 *   b_t = sigma(b_{t - lag(a_{t-1})})                 for t >= K with probability 1 - e, else uniform
 *
 *   first = ln(C M)
 *   h     = ln C - q ln q - (M - 1) (e/M) ln(e/M),    q = 1 - e + e/M
 *   floor = [min(K-1, T) first + max(T-K+1, 0) h] / T
 *
 * All lags are multiples of 4, so sources of four neighbours never meet, and the best order-3 predictor knows nothing:
 * ln(C M). The derivations are in docs/synthetic-language.md.
 */
#include "base/arena.h"
#include "base/random.h"
#include "data/source_kind.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_SYMBOLS = 64, MIN_SYMBOLS = 8, MAX_MARKERS = 4 };

static const double noise = 0.1; /* e */

typedef struct {
    int64_t markers, payloads;   /* C, M */
    int64_t longest;             /* K */
    int64_t lag[MAX_MARKERS];    /* of a marker */
    int32_t id[MAX_SYMBOLS];     /* symbol b C + a -> token */
    int32_t symbol[MAX_SYMBOLS]; /* token -> b C + a */
    int32_t sigma[MAX_SYMBOLS];  /* payload -> payload */
    double  nats_copied, nats_other, nats_first;
} language;

static tm_status synthetic_open(tm_source *source, tm_error *err)
{
    static const int64_t lags[MAX_MARKERS] = { 4, 8, 12, 16 };
    int64_t              usable = source->options.vocab < MAX_SYMBOLS ? source->options.vocab : MAX_SYMBOLS;
    if (usable < MIN_SYMBOLS)
        return tm_fail(
            err, TM_INVALID,
            "the synthetic language needs %d symbols, found model.vocab_size %lld; set model.vocab_size to %d or more",
            MIN_SYMBOLS, (long long)source->options.vocab, MIN_SYMBOLS);
    language *l = tm_alloc(sizeof *l);
    l->markers = usable < 32 ? 2 : 4; /* few symbols: fewer markers, or too little would be left to predict */
    l->payloads = usable / l->markers;
    uint64_t seed = source->options.seed, symbols = (uint64_t)(l->markers * l->payloads);
    for (int64_t a = 0; a < l->markers; a++) l->lag[a] = lags[a];
    l->longest = lags[l->markers - 1];
    for (uint64_t s = 0; s < symbols; s++) {
        l->id[s] = (int32_t)tm_random_permute(seed, tm_random_stream("synthetic.id"), s, symbols);
        l->symbol[l->id[s]] = (int32_t)s;
    }
    for (uint64_t b = 0; b < (uint64_t)l->payloads; b++)
        l->sigma[b] = (int32_t)tm_random_permute(seed, tm_random_stream("synthetic.sigma"), b, (uint64_t)l->payloads);

    double C = (double)l->markers, M = (double)l->payloads, T = (double)source->options.seq;
    double q = 1 - noise + noise / M;
    l->nats_first = log(C * M);
    l->nats_copied = log(C) - log(q);
    l->nats_other = log(C) - log(noise / M);
    double h = q * l->nats_copied + (1 - q) * l->nats_other;
    double uniform = fmin((double)(l->longest - 1), T);
    source->facts.vocab_needed = (int64_t)symbols;
    source->facts.floor = (uniform * l->nats_first + (T - uniform) * h) / T;
    source->facts.unigram_entropy = source->facts.ngram3_entropy = l->nats_first;
    source->state = l;
    return TM_OK;
}

static void synthetic_close(tm_source *source)
{
    free(source->state);
}

/* What b_t copies, if it copies; t >= K. */
static int32_t copied_payload(const language *l, const int32_t *tokens, int64_t t)
{
    int64_t lag = l->lag[l->symbol[tokens[t - 1]] % l->markers];
    return l->sigma[l->symbol[tokens[t - lag]] / l->markers];
}

static void synthetic_sample(const tm_source *source, tm_split split, int64_t index, int32_t *tokens)
{
    const language *l = source->state;
    uint64_t        seed = source->options.seed;
    uint64_t        stream = tm_random_stream(split == TM_SPLIT_TRAIN ? "synthetic.train" : "synthetic.validation");
    stream += (uint64_t)index;
    for (int64_t t = 0; t <= source->options.seq; t++) {
        uint64_t at = 3 * (uint64_t)t;
        int32_t  a = (int32_t)tm_random_below(seed, stream, at, (uint64_t)l->markers), b;
        if (t >= l->longest && tm_random_uniform(seed, stream, at + 1) >= noise)
            b = copied_payload(l, tokens, t);
        else
            b = (int32_t)tm_random_below(seed, stream, at + 2, (uint64_t)l->payloads);
        tokens[t] = l->id[b * (int32_t)l->markers + a];
    }
}

static double synthetic_nats(const tm_source *source, const int32_t *tokens)
{
    const language *l = source->state;
    double          sum = 0;
    for (int64_t t = 0; t <= source->options.seq; t++)
        if (tokens[t] < 0 || tokens[t] >= source->facts.vocab_needed) return (double)INFINITY;
    for (int64_t t = 1; t <= source->options.seq; t++) {
        if (t < l->longest)
            sum += l->nats_first;
        else
            sum += l->symbol[tokens[t]] / l->markers == copied_payload(l, tokens, t) ? l->nats_copied : l->nats_other;
    }
    return sum;
}

const tm_source_kind tm_source_synthetic = {
    .traits = { .name = "synthetic", .gate = TM_GATE_FLOOR },
    .open = synthetic_open,
    .close = synthetic_close,
    .sample = synthetic_sample,
    .nats = synthetic_nats,
};
