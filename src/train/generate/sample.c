/* SPDX-License-Identifier: Apache-2.0 */
#include "train/generate/sample.h"

#include "base/arena.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    double  weight;
    int32_t token;
} candidate;

/* The most likely first, of equals the first token. */
static int by_weight(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    int              heavier = (y->weight > x->weight) - (y->weight < x->weight);
    return heavier ? heavier : x->token - y->token;
}

static int64_t largest(const double *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t v = 1; v < n; v++)
        if (logits[v] > logits[best]) best = v;
    return best;
}

int32_t tm_sample(const tm_sampler *sampler, double *logits, int64_t vocab, int64_t position)
{
    int64_t best = largest(logits, vocab), n = vocab;
    double  sum = 0, kept = 0;
    if (sampler->temperature <= 0) return (int32_t)best;
    candidate *all = tm_alloc((size_t)vocab * sizeof *all);
    double     most = logits[best];
    for (int64_t v = 0; v < vocab; v++)
        all[v] = (candidate){ exp((logits[v] - most) / sampler->temperature), (int32_t)v };
    qsort(all, (size_t)vocab, sizeof *all, by_weight);
    if (sampler->top_k > 0 && sampler->top_k < n) n = sampler->top_k;
    for (int64_t i = 0; i < n; i++) sum += all[i].weight;
    int64_t end = 0;
    while (end < n && (end == 0 || kept < sampler->top_p * sum)) kept += all[end++].weight;
    double  at = kept * (double)tm_random_uniform(sampler->seed, tm_random_stream("generate"), (uint64_t)position);
    int64_t i = 0;
    while (i + 1 < end && (at -= all[i].weight) >= 0) i++;
    int32_t token = all[i].token;
    free(all);
    return token;
}
