/* SPDX-License-Identifier: Apache-2.0 */
/* What the intervals of a run claim, counted: they hold the long-run value of the process that made the samples. Step
 * times as machines make them (neighbours that are alike, spikes, two speeds, slow waves), whose truth is that of a
 * series of a million. Seeds are fixed. What no steady state is seen in has no interval. */
#include "support/test.h"

#include "base/random.h"
#include "stats/sampling.h"

#include <math.h>
#include <stdlib.h>

/* Deviations are parts of a step. */
typedef struct {
    const char *name;
    double      white;
    double      wave, keeps; /* first-order autoregression: deviation, and what stays from one step to the next */
    double      spike, size; /* probability of a spike in a step; up to so much */
    double      other, turn; /* a second speed, so much slower, and the probability to change to it or back */
} process;

static const process processes[] = {
    { "independent", .03, 0, 0, 0, 0, 0, 0 },          { "neighbours 0.5", 0, .03, .5, 0, 0, 0, 0 },
    { "neighbours 0.85", 0, .03, .85, 0, 0, 0, 0 },    { "spikes in 1 of 10", .01, 0, 0, .1, .5, 0, 0 },
    { "spikes in 1 of 50", .01, 0, 0, .02, .5, 0, 0 }, { "two speeds", .005, 0, 0, 0, 0, .05, .2 },
    { "slow waves", .01, .004, .95, 0, 0, 0, 0 },
};

static void make(const process *p, uint64_t seed, double *x, int n)
{
    double wave = tm_random_normal(seed, 2, UINT32_MAX);
    bool   slow = tm_random_uniform(seed, 5, UINT32_MAX) < 0.5;
    for (int i = 0; i < n; i++) {
        uint64_t at = (uint64_t)i;
        if (p->turn > 0 && tm_random_uniform(seed, 5, at) < p->turn) slow = !slow;
        x[i] = 1 + p->white * tm_random_normal(seed, 1, at) + p->wave * wave + (slow ? p->other : 0);
        if (p->spike > 0 && tm_random_uniform(seed, 3, at) < p->spike) x[i] += p->size * tm_random_uniform(seed, 4, at);
        wave = p->keeps * wave + sqrt(1 - p->keeps * p->keeps) * tm_random_normal(seed, 2, at);
    }
}

/* 95 % is what they are made for. */
static bool holds_often_enough(int held, int told)
{
    return 1000 * held >= 900 * told && 1000 * held <= 985 * told;
}

TEST(intervals_hold_the_long_run)
{
    enum { LONG = 400000, STEPS = 250, SERIES = 250 };
    double *all = malloc(LONG * sizeof *all), x[STEPS];
    bool    kept = true;
    for (size_t k = 0; k < sizeof processes / sizeof processes[0]; k++) {
        const process *p = &processes[k];
        int            told = 0, rate = 0, median = 0;
        make(p, 77, all, LONG);
        double true_rate = 1 / tm_stats_mean(all, LONG), true_median = 1 / tm_stats_median(all, LONG);
        for (uint64_t s = 0; s < SERIES; s++) {
            make(p, 1000 + s, x, STEPS);
            tm_sample_summary sum = tm_stats_summarize(x, NULL, 1, STEPS);
            if (isnan(sum.rate_lo) || isnan(sum.median_rate_lo)) continue;
            told++;
            rate += sum.rate_lo <= true_rate && true_rate <= sum.rate_hi;
            median += sum.median_rate_lo <= true_median && true_median <= sum.median_rate_hi;
        }
        print_message("# %-18s %4d of %d have intervals; of 100, %.1f hold the rate, %.1f the median\n", p->name, told,
                      SERIES, 100.0 * rate / told, 100.0 * median / told);
        kept &= told >= SERIES * 9 / 10 && holds_often_enough(rate, told) && holds_often_enough(median, told);
    }
    free(all);
    assert_true(kept);
}
