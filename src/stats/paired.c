/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/paired.h"

#include "base/arena.h"
#include "base/status.h"
#include "stats/summary.h"

#include <math.h>
#include <stdlib.h>

enum { EXACT_UNITS = 100 };
/* Part of the sessions whose interval may miss the truth. Not 0.05: a session ends when its interval has become narrow,
 * which happens somewhat more often where it is narrow by chance (docs/ab.md has the counts). */
#define OUTSIDE 0.033
static const double z_outside = 2.1320832908065004, z95 = 1.959963984540054, z80 = 0.8416212335729143;

tm_pair tm_pair_of(const double a[2], const double b[2], const double again[2], int64_t round)
{
    for (int i = 0; i < 2; i++) TM_ASSERT(a[i] > 0 && b[i] > 0 && again[i] > 0);
    double la = (log(a[0]) + log(a[1])) / 2, lb = (log(b[0]) + log(b[1])) / 2;
    double lc = (log(again[0]) + log(again[1])) / 2;
    return (tm_pair){ .ratio = exp(lb - (la + lc) / 2), .control = exp(lc - la), .round = round };
}

const char *tm_paired_verdict_name(tm_paired_verdict verdict)
{
    static const char *const names[] = { "faster", "slower", "no difference seen", "inconclusive" };
    return names[verdict];
}

/* The median of each round's values, in place of the values; how many rounds there are. */
static int64_t centres_of_rounds(const tm_pair *pairs, double *logs, int64_t n)
{
    int64_t rounds = 0;
    for (int64_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && pairs[next].round == pairs[i].round;) next++;
        double centre = tm_stats_median(&logs[i], next - i);
        logs[rounds++] = centre;
    }
    return rounds;
}

/* The largest k for which less than `outside` of the probability lies at signed-rank sums below k, of u values whose
 * signs are a fair coin's; 0 where no k >= 1 does. Exact: how many of the 2^u sets of ranks have which sum. */
static int64_t signed_rank(int64_t u, double outside)
{
    int64_t sums = u * (u + 1) / 2;
    double *share = tm_alloc((size_t)(sums + 1) * sizeof *share), below = 0;
    for (int64_t s = 0; s <= sums; s++) share[s] = s == 0;
    for (int64_t rank = 1; rank <= u; rank++)
        for (int64_t s = rank * (rank + 1) / 2; s >= 0; s--)
            share[s] = (share[s] + (s >= rank ? share[s - rank] : 0)) / 2;
    int64_t k = 0;
    while ((below += share[k]) <= outside) k++; /* the last one alone is at most half */
    free(share);
    return k;
}

/* From EXACT_UNITS on the normal approximation, two or three of some 2,000 ranks wider there. */
static int64_t walsh_rank(int64_t u)
{
    double n = (double)u;
    if (u <= EXACT_UNITS) return signed_rank(u, OUTSIDE / 2);
    return (int64_t)floor(n * (n + 1) / 4 - z_outside * sqrt(n * (n + 1) * (2 * n + 1) / 24));
}

/* Everything on the logarithms: a ratio and its inverse are treated alike. */
static tm_paired_estimate estimate(const double *centre, int64_t u)
{
    int64_t            n = u * (u + 1) / 2, found = 0, k = u >= TM_PAIRED_UNITS ? walsh_rank(u) : 0;
    double            *mean = tm_alloc((size_t)n * sizeof *mean);
    tm_paired_estimate e = { .lo = (double)NAN, .hi = (double)NAN };
    for (int64_t i = 0; i < u; i++)
        for (int64_t j = i; j < u; j++) mean[found++] = (centre[i] + centre[j]) / 2;
    tm_stats_sort(mean, n);
    e.ratio = exp((mean[(n - 1) / 2] + mean[n / 2]) / 2);
    if (k >= 1) {
        e.lo = exp(mean[k - 1]);
        e.hi = exp(mean[n - k]);
    }
    free(mean);
    return e;
}

static tm_paired_verdict verdict_of(const tm_paired_result *r)
{
    if (isnan(r->b.lo)) return TM_PAIRED_TOO_SHORT;
    if (r->b.lo > 1 && r->b.ratio - 1 > r->floor) return TM_PAIRED_SLOWER;
    if (r->b.hi < 1 && 1 - r->b.ratio > r->floor) return TM_PAIRED_FASTER;
    return TM_PAIRED_NO_DIFFERENCE;
}

tm_paired_result tm_paired_judge(const tm_pair *pairs, int64_t n, double least)
{
    double             none = (double)NAN;
    tm_paired_estimate nothing = { none, none, none };
    tm_paired_result   result = { .pairs = n,
                                  .b = nothing,
                                  .control = nothing,
                                  .half_width = none,
                                  .floor = none,
                                  .detectable = none,
                                  .verdict = TM_PAIRED_TOO_SHORT };
    if (n == 0) return result;
    double *logs = tm_alloc((size_t)n * sizeof *logs);
    for (int64_t i = 0; i < n; i++) logs[i] = log(pairs[i].ratio);
    result.rounds = centres_of_rounds(pairs, logs, n);
    result.b = estimate(logs, result.rounds);
    for (int64_t i = 0; i < n; i++) logs[i] = log(pairs[i].control);
    centres_of_rounds(pairs, logs, n);
    result.control = estimate(logs, result.rounds);
    free(logs);
    result.half_width = (result.b.hi - result.b.lo) / 2 / result.b.ratio;
    result.floor = fmax(least, fmax(fabs(result.control.lo - 1), fabs(result.control.hi - 1)));
    if (isnan(result.control.lo)) result.floor = none; /* fmax would hide it */
    /* Of the estimate and the floor, both of which scatter: 1.5 standard errors of the ratio together. */
    result.detectable = fmax(result.half_width, result.floor) + 1.5 * z80 / z95 * result.half_width;
    result.verdict = verdict_of(&result);
    return result;
}

bool tm_paired_enough(const tm_paired_result *result, double target, int64_t least)
{
    return target > 0 && result->pairs >= least && result->half_width <= target; /* false without an interval */
}
