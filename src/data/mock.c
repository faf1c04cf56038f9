/* SPDX-License-Identifier: Apache-2.0 */
/* data/mock.c - uniform random tokens, as published throughput runs use: nothing to learn, loss tends to ln V. */
#include "base/random.h"
#include "data/source_kind.h"

#include <math.h>

static tm_status mock_open(tm_source *source, tm_error *err)
{
    if (source->options.vocab < 1)
        return tm_fail(err, TM_INVALID,
                       "data.source mock needs a vocabulary, found model.vocab_size %lld, wanted at least 1",
                       (long long)source->options.vocab);
    source->facts.vocab_needed = source->options.vocab;
    source->facts.floor = source->facts.unigram_entropy = log((double)source->options.vocab);
    return TM_OK;
}

static void mock_sample(const tm_source *source, tm_split split, int64_t index, int32_t *tokens)
{
    uint64_t stream = tm_random_stream(split == TM_SPLIT_TRAIN ? "mock.train" : "mock.validation") + (uint64_t)index;
    for (int64_t t = 0; t <= source->options.seq; t++)
        tokens[t] =
            (int32_t)tm_random_below(source->options.seed, stream, (uint64_t)t, (uint64_t)source->options.vocab);
}

static double mock_nats(const tm_source *source, const int32_t *tokens)
{
    for (int64_t t = 1; t <= source->options.seq; t++)
        if (tokens[t] < 0 || tokens[t] >= source->options.vocab) return (double)INFINITY;
    return (double)source->options.seq * source->facts.floor;
}

const tm_source_kind tm_source_mock = {
    .traits = { .name = "mock", .gate = TM_GATE_UNIFORM },
    .open = mock_open,
    .sample = mock_sample,
    .nats = mock_nats,
};
