/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens are drawn as train/generate/sample.h says: the most likely one, by weight, among the first k, among those that
 * have a part of the weight together. */
#include "support/test.h"
#include "base/random.h"
#include "train/generate/sample.h"

#include <math.h>
#include <string.h>

enum { VOCAB = 7, DRAWS = 4000 };

static int32_t draw(double temperature, int64_t top_k, double top_p, uint64_t seed, const double *logits,
                    int64_t position)
{
    tm_sampler sampler = { .temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = seed };
    double     own[VOCAB];
    memcpy(own, logits, sizeof own);
    return tm_sample(&sampler, own, VOCAB, position);
}

/* Of equals the first; wherever it is; a seed, k and p change nothing. */
TEST(the_most_likely_token_is_taken)
{
    for (int best = 0; best < VOCAB; best++) {
        double logits[VOCAB];
        for (int v = 0; v < VOCAB; v++) logits[v] = v < best ? -1 - v : -3;
        logits[best] = -0.5;
        for (int more = best; more < VOCAB; more += 2) logits[more] = -0.5;
        assert_int_equal(draw(0, 0, 1, 3, logits, 5), best);
        assert_int_equal(draw(-1, 3, 0.5, 4, logits, 6), best);
        assert_int_equal(draw(0.7, 1, 1, 3, logits, 5), best); /* of one there is no choice */
        assert_int_equal(draw(0.7, 0, 0, 3, logits, 5), best);
        assert_int_equal(draw(1e-6, 0, 0.1, 3, logits, 5), best);
    }
}

/* By another way round: each token has a part of [0, 1), the most likely first, of equals the first. */
static int32_t wanted(const double *logits, double temperature, int64_t n, double top_p, double uniform)
{
    double weight[VOCAB], sum = 0, kept = 0;
    int    order[VOCAB];
    for (int v = 0; v < VOCAB; v++) {
        int at = v;
        for (; at > 0 && logits[v] > logits[order[at - 1]]; at--) order[at] = order[at - 1];
        order[at] = v;
    }
    for (int i = 0; i < n; i++) sum += weight[i] = exp(logits[order[i]] / temperature);
    int end = 0;
    for (; end < n && (end == 0 || kept < top_p * sum); end++) kept += weight[end];
    double upto = 0;
    for (int i = 0; i < end; i++)
        if (uniform * kept < (upto += weight[i])) return order[i];
    return order[end - 1];
}

TEST(draws_follow_the_weights)
{
    static const double  logits[][VOCAB] = { { 0.3, -1.2, 2, 2, -0.4, 1.1, 0.3 },
                                             { 5, 1, 0.5, 0.25, 0, -1, -2 },
                                             { -2, -1, 0, 1, 1.5, 1.75, 2 },
                                             { 0, 0, 0, 0, 0, 0, 0 } }; /* exactly half of them with p 0.5 */
    static const double  temperature[] = { 0.5, 1, 3 }, top_p[] = { 1, 0.9, 0.55, 0.5, 0.2 };
    static const int64_t top_k[] = { 0, VOCAB, VOCAB + 1, 4, 2, 1 };
    for (size_t l = 0; l < 4; l++)
        for (size_t t = 0; t < 3; t++)
            for (size_t p = 0; p < 5; p++)
                for (size_t k = 0; k < 6; k++)
                    for (int64_t position = 0; position < 40; position++) {
                        int64_t n = top_k[k] == 0 || top_k[k] > VOCAB ? VOCAB : top_k[k];
                        double  uniform = tm_random_uniform(11 + t, tm_random_stream("generate"), (uint64_t)position);
                        int32_t found = draw(temperature[t], top_k[k], top_p[p], 11 + t, logits[l], position);
                        if (found != wanted(logits[l], temperature[t], n, top_p[p], uniform))
                            fail_msg("logits %zu, temperature %g, k %d, p %g, position %d: %d", l, temperature[t],
                                     (int)top_k[k], top_p[p], (int)position, found);
                    }
}
