/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens are drawn as train/generate/sample.h says: the most likely one, by weight, among the first k, among those that
 * have a part of the weight together. */
#include "support/test.h"
#include "base/random.h"
#include "train/generate/sample.h"

enum { VOCAB = 7 };

/* By another way round: each token has a part of [0, 1), the most likely first, of equals the first. */
static int32_t wanted(const double *logits, double temperature, int64_t n, double top_p, double uniform)
{
    double weight[VOCAB], sum = 0, kept = 0, upto = 0;
    int    order[VOCAB], end = 0;
    for (int v = 0; v < VOCAB; v++) {
        int at = v;
        for (; at > 0 && logits[v] > logits[order[at - 1]]; at--) order[at] = order[at - 1];
        order[at] = v;
    }
    if (!(temperature > 0)) return order[0];
    for (int i = 0; i < n; i++) sum += weight[i] = exp((logits[order[i]] - logits[order[0]]) / temperature);
    for (; end < n && (end == 0 || kept < top_p * sum); end++) kept += weight[end];
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
    static const double  temperature[] = { 0.5, 1, 3, 1e-6, 0, -1 }, top_p[] = { 1, 0.9, 0.55, 0.5, 0.2, 0 };
    static const int64_t top_k[] = { 0, VOCAB, VOCAB + 1, 4, 2, 1 };
    for (int way = 0; way < 4 * 6 * 6 * 6; way++)
        for (int64_t position = 0; position < 40; position++) {
            const double  *z = logits[way % 4], t = temperature[way / 4 % 6], p = top_p[way / 24 % 6];
            const int64_t  k = top_k[way / 144], n = k == 0 || k > VOCAB ? VOCAB : k;
            const uint64_t seed = (uint64_t)way;
            double     own[VOCAB], uniform = tm_random_uniform(seed, tm_random_stream("generate"), (uint64_t)position);
            tm_sampler sampler = { .temperature = t, .top_k = k, .top_p = p, .seed = seed };
            memcpy(own, z, sizeof own);
            int32_t found = tm_sample(&sampler, own, VOCAB, position);
            if (found != wanted(z, t, n, p, uniform))
                fail_msg("way %d, temperature %g, k %d, p %g, position %d: %d", way, t, (int)k, p, (int)position,
                         found);
        }
}
