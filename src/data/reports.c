/* SPDX-License-Identifier: Apache-2.0 */
/* data/reports.c - packed documents with answers, as the GovReport set has them, in a language whose entropy is known:
 * what a base model learns, and a little more that an adapter has to.
 *
 * A document is a report, the token 1, an answer, the token 0. Symbols are the other tokens, n of them. Both parts are
 * chains of symbols: the first is uniform, symbol s goes over to next_k(s) with probability p_k, k = 0 .. 3, where each
 * next_k is a permutation, so that all symbols are equally frequent everywhere. After a symbol of a report 1 follows
 * with probability r = 1/40, after one of an answer 0 with a = 1/16. In answers that are renamed (data.answers) the
 * symbols of n / 16 pairs have changed places: x' = pi(x), with pi its own inverse.
 *
 * A row is one document behind the other, the last one cut; attention is causal over all of it. In training every
 * prediction counts, held out those of answers: what follows token 1 or a symbol of an answer.
 *
 *   h     = mean over s of H(next symbol | s)                       nats; exact, by merging equal successors
 *   after a symbol of a report   H2(r) + (1 - r) h                  after 0 and after 1     ln n
 *   after a symbol of an answer  H2(a) + (1 - a) h                  H2(p) = -p ln p - (1 - p) ln(1 - p)
 *
 * weighted by the expected numbers of such predictions in a row, which follow from it token by token. The language is
 * the same for every seed: a model that was trained with one is fine-tuned with another.
 */
#include "base/arena.h"
#include "base/random.h"
#include "data/source_kind.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_SYMBOLS = 62, MIN_SYMBOLS = 14, SPECIAL = 2, END = 0, ANSWER = 1, NEXT = 4 };
enum { LANGUAGE = 1 /* the seed of its tables */ };

static const double share[NEXT] = { 0.6, 0.2, 0.15, 0.05 }; /* p_k */
static const double report_end = 1.0 / 40, answer_end = 1.0 / 16;

typedef struct {
    int32_t symbols; /* n */
    int32_t next[NEXT][MAX_SYMBOLS];
    int32_t renamed[MAX_SYMBOLS]; /* pi */
} language;

static double binary_entropy(double p)
{
    return -p * log(p) - (1 - p) * log(1 - p);
}

/* Entropy of the symbol behind a symbol. */
static double chain_entropy(const language *l)
{
    double sum = 0;
    for (int32_t s = 0; s < l->symbols; s++)
        for (int k = 0; k < NEXT; k++) {
            double p = 0;
            bool   first = true;
            for (int j = 0; j < NEXT; j++) {
                if (l->next[j][s] != l->next[k][s]) continue;
                p += share[j];
                first = first && j >= k;
            }
            if (first) sum -= p * log(p);
        }
    return sum / l->symbols;
}

/* Floors of rows of `seq` predictions: *all of them, *answers of those that count held out. */
static void set_floors(const language *l, int64_t seq, double *all, double *answers)
{
    double first = log((double)l->symbols), h = chain_entropy(l);
    double of_report = binary_entropy(report_end) + (1 - report_end) * h;
    double of_answer = binary_entropy(answer_end) + (1 - answer_end) * h;
    double report = 1, begun = 0, answer = 0, ended = 0; /* probabilities of the token that is read */
    double sum = 0, counted = 0, weight = 0;
    for (int64_t t = 0; t < seq; t++) {
        sum += report * of_report + answer * of_answer + (begun + ended) * first;
        counted += begun * first + answer * of_answer;
        weight += begun + answer;
        double next_report = report * (1 - report_end) + ended, next_answer = answer * (1 - answer_end) + begun;
        begun = report * report_end;
        ended = answer * answer_end;
        report = next_report;
        answer = next_answer;
    }
    *all = sum / (double)seq;
    *answers = weight > 0 ? counted / weight : (double)NAN;
}

static void make_tables(language *l, bool plain)
{
    uint64_t    n = (uint64_t)l->symbols;
    const char *names[NEXT] = { "reports.next0", "reports.next1", "reports.next2", "reports.next3" };
    int32_t     order[MAX_SYMBOLS];
    for (uint64_t s = 0; s < n; s++) {
        for (int k = 0; k < NEXT; k++)
            l->next[k][s] = (int32_t)tm_random_permute(LANGUAGE, tm_random_stream(names[k]), s, n);
        order[s] = (int32_t)tm_random_permute(LANGUAGE, tm_random_stream("reports.renamed"), s, n);
        l->renamed[s] = (int32_t)s;
    }
    for (int32_t pair = 0; pair < l->symbols / 16 && !plain; pair++) {
        l->renamed[order[2 * pair]] = order[2 * pair + 1];
        l->renamed[order[2 * pair + 1]] = order[2 * pair];
    }
}

static tm_status reports_open(tm_source *source, tm_error *err)
{
    int64_t symbols = source->options.vocab - SPECIAL;
    if (symbols < MIN_SYMBOLS)
        return tm_fail(err, TM_INVALID, "data.source reports needs %d tokens, found model.vocab_size %lld; raise it",
                       MIN_SYMBOLS + SPECIAL, (long long)source->options.vocab);
    language *l = source->state = tm_alloc(sizeof *l);
    l->symbols = (int32_t)(symbols < MAX_SYMBOLS ? symbols : MAX_SYMBOLS);
    make_tables(l, source->options.plain_answers);
    tm_source_facts *facts = &source->facts;
    facts->vocab_needed = l->symbols + SPECIAL;
    facts->unigram_entropy = log((double)l->symbols);
    set_floors(l, source->options.seq, &facts->floor, &facts->validation_floor);
    return TM_OK;
}

static void reports_close(tm_source *source)
{
    free(source->state);
}

/* The symbol behind `s`; u is uniform. */
static int32_t follow(const language *l, int32_t s, double u)
{
    int k = 0;
    for (; k < NEXT - 1 && u >= share[k]; k++) u -= share[k];
    return l->next[k][s];
}

/* `tokens` is the scratch of seq + 1. */
static tm_status reports_row(const tm_source *source, tm_split split, int64_t index, int32_t *tokens,
                             void *const *fields, int64_t *weight, tm_error *err)
{
    const language *l = source->state;
    int32_t        *inputs = fields[0], *targets = fields[1];
    uint64_t        seed = source->options.seed;
    uint64_t        stream = tm_random_stream(split == TM_SPLIT_TRAIN ? "reports.train" : "reports.validation");
    bool            in_answer = false;
    (void)err;
    stream += (uint64_t)index;
    *weight = 0;
    for (int64_t t = 0; t <= source->options.seq; t++) {
        uint64_t at = 2 * (uint64_t)t;
        double   u = tm_random_uniform(seed, stream, at), v = tm_random_uniform(seed, stream, at + 1);
        int32_t  before = t > 0 ? tokens[t - 1] : END, symbol;
        bool     counts = t > 0 && (split == TM_SPLIT_TRAIN || before == ANSWER || (in_answer && before != END));
        if (before == END) in_answer = false;
        if (before == ANSWER) in_answer = true;
        if (before < SPECIAL) {
            symbol = (int32_t)(u * l->symbols);
            tokens[t] = SPECIAL + symbol;
        } else if (u < (in_answer ? answer_end : report_end)) {
            tokens[t] = in_answer ? END : ANSWER;
        } else {
            symbol = before - SPECIAL;
            symbol = in_answer ? l->renamed[follow(l, l->renamed[symbol], v)] : follow(l, symbol, v);
            tokens[t] = SPECIAL + symbol;
        }
        if (t > 0) targets[t - 1] = counts ? tokens[t] : TM_IGNORED_TARGET;
        if (t < source->options.seq) inputs[t] = tokens[t];
        *weight += counts;
    }
    return TM_OK;
}

const tm_source_kind tm_source_reports = {
    .traits = { .name = "reports", .gate = TM_GATE_FLOOR },
    .open = reports_open,
    .close = reports_close,
    .row = reports_row,
};
