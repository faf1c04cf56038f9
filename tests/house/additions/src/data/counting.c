/* SPDX-License-Identifier: Apache-2.0 */
/* data/counting.c - every token is the one before it plus 1 (modulo the vocabulary): nothing is left to chance but the
 * first token of a sample. */
#include "base/random.h"
#include "data/source_kind.h"

#include <math.h>

static tm_status counting_open(tm_source *source, tm_error *err)
{
    if (source->options.vocab < 1)
        return tm_fail(err, TM_INVALID,
                       "data.source counting needs a vocabulary, found model.vocab_size %lld, wanted at least 1",
                       (long long)source->options.vocab);
    source->facts.vocab_needed = source->options.vocab;
    source->facts.floor = 0;
    source->facts.unigram_entropy = log((double)source->options.vocab);
    return TM_OK;
}

static void counting_sample(const tm_source *source, tm_split split, int64_t index, int32_t *tokens)
{
    uint64_t stream = tm_random_stream(split == TM_SPLIT_TRAIN ? "counting.train" : "counting.validation");
    uint64_t vocab = (uint64_t)source->options.vocab;
    uint64_t first = tm_random_below(source->options.seed, stream, (uint64_t)index, vocab);
    for (int64_t t = 0; t <= source->options.seq; t++) tokens[t] = (int32_t)((first + (uint64_t)t) % vocab);
}

const tm_source_kind tm_source_counting = {
    .traits = { .name = "counting", .gate = TM_GATE_FLOOR },
    .open = counting_open,
    .sample = counting_sample,
};
