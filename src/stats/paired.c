/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/paired.h"

#include "base/arena.h"
#include "base/random.h"
#include "base/status.h"
#include "stats/series.h"
#include "stats/summary.h"

#include <math.h>
#include <stdlib.h>

enum { RESAMPLES = 1000 };
static const double z95 = 1.959963984540054, z80 = 0.8416212335729143;

tm_pair tm_pair_of(const double a[2], const double b[2], const double again[2], int64_t round)
{
    for (int i = 0; i < 2; i++) TM_ASSERT(a[i] > 0 && b[i] > 0 && again[i] > 0);
    double la = (log(a[0]) + log(a[1])) / 2, lb = (log(b[0]) + log(b[1])) / 2;
    double lc = (log(again[0]) + log(again[1])) / 2;
    return (tm_pair){ .ratio = exp(lb - (la + lc) / 2), .control = exp(lc - la), .round = round };
}

const char *tm_paired_verdict_name(tm_paired_verdict verdict)
{
    static const char *const names[] = { "faster", "slower", "no difference seen", "not-judged" };
    return names[verdict];
}

/* A value and the pair that it came from. */
typedef struct {
    double  value;
    int64_t pair;
} ranked;

static int compare_ranked(const void *a, const void *b)
{
    double x = ((const ranked *)a)->value, y = ((const ranked *)b)->value;
    return (x > y) - (x < y);
}

/* The pairs cut into what is drawn at random: unit u starts at pair first[u] and has size[u] pairs. */
typedef struct {
    int64_t *first, *size;
    int64_t  count;     /* units to choose from */
    int64_t  drawn;     /* units of one resample */
    int64_t  effective; /* independent units */
} cut;

static cut cut_rounds(const tm_pair *pairs, int64_t n, int64_t rounds)
{
    cut c = { .first = tm_alloc((size_t)rounds * sizeof *c.first), .size = tm_alloc((size_t)rounds * sizeof *c.size) };
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || pairs[i].round != pairs[i - 1].round) {
            c.first[c.count] = i;
            c.size[c.count++] = 0;
        }
        c.size[c.count - 1]++;
    }
    c.drawn = c.effective = c.count;
    return c;
}

/* Overlapping stretches of neighbours (Kuensch 1989); single pairs where stretches would be too few. */
static cut cut_stretches(int64_t n)
{
    int64_t length = (int64_t)llround(cbrt((double)n));
    if (n / length < TM_PAIRED_UNITS) length = 1;
    cut c = { .count = n - length + 1, .drawn = (n + length - 1) / length, .effective = n / length };
    c.first = tm_alloc((size_t)c.count * sizeof *c.first);
    c.size = tm_alloc((size_t)c.count * sizeof *c.size);
    for (int64_t i = 0; i < c.count; i++) {
        c.first[i] = i;
        c.size[i] = length;
    }
    return c;
}

/* Median of values of which number i counts times[i]; `sorted` by value, total = sum of times > 0. */
static double weighted_median(const ranked *sorted, const int32_t *times, int64_t n, int64_t total)
{
    int64_t below = 0, lower = (total - 1) / 2, upper = total / 2;
    double  low = 0;
    bool    found = false;
    for (int64_t i = 0; i < n; i++) {
        below += times[sorted[i].pair];
        if (!found && below > lower) {
            low = sorted[i].value;
            found = true;
        }
        if (below > upper) return (low + sorted[i].value) / 2;
    }
    return low;
}

static double median_of_resample(const cut *c, const ranked *sorted, int32_t *times, int64_t n, uint64_t seed,
                                 int64_t r)
{
    static const char stream[] = "stats.paired";
    uint64_t          number = tm_random_stream(stream);
    int64_t           total = 0;
    for (int64_t i = 0; i < n; i++) times[i] = 0;
    for (int64_t k = 0; k < c->drawn; k++) {
        uint64_t unit = tm_random_below(seed, number, (uint64_t)(r * c->drawn + k), (uint64_t)c->count);
        for (int64_t i = 0; i < c->size[unit]; i++) times[c->first[unit] + i]++;
        total += c->size[unit];
    }
    return weighted_median(sorted, times, n, total);
}

/* Everything on the logarithms: a ratio and its inverse are treated alike. */
static tm_paired_estimate estimate(const cut *c, const double *logs, int64_t n, uint64_t seed)
{
    ranked  *sorted = tm_alloc((size_t)n * sizeof *sorted);
    int32_t *times = tm_alloc((size_t)n * sizeof *times);
    double  *medians = tm_alloc(RESAMPLES * sizeof *medians);
    for (int64_t i = 0; i < n; i++) {
        sorted[i] = (ranked){ logs[i], i };
        times[i] = 1;
    }
    qsort(sorted, (size_t)n, sizeof *sorted, compare_ranked);
    double             middle = weighted_median(sorted, times, n, n), none = (double)NAN;
    tm_paired_estimate e = { .ratio = exp(middle), .lo = none, .hi = none };
    if (c->effective >= TM_PAIRED_UNITS) {
        for (int64_t r = 0; r < RESAMPLES; r++) medians[r] = median_of_resample(c, sorted, times, n, seed, r);
        tm_stats_sort(medians, RESAMPLES);
        double u = (double)c->effective, widened = sqrt(u / (u - 1)) * tm_stats_student(u - 1) / z95;
        double lo = (medians[RESAMPLES / 40 - 1] + medians[RESAMPLES / 40]) / 2;
        double hi = (medians[RESAMPLES - RESAMPLES / 40 - 1] + medians[RESAMPLES - RESAMPLES / 40]) / 2;
        e.lo = exp(middle - widened * (middle - lo));
        e.hi = exp(middle + widened * (hi - middle));
    }
    free(sorted);
    free(times);
    free(medians);
    return e;
}

static tm_paired_verdict verdict_of(const tm_paired_result *r)
{
    if (isnan(r->b.lo)) return TM_PAIRED_NOT_JUDGED;
    if (r->b.lo > 1 && r->b.ratio - 1 > r->floor) return TM_PAIRED_SLOWER;
    if (r->b.hi < 1 && 1 - r->b.ratio > r->floor) return TM_PAIRED_FASTER;
    return TM_PAIRED_NO_DIFFERENCE;
}

tm_paired_result tm_paired_judge(const tm_pair *pairs, int64_t n, double least, uint64_t seed)
{
    double             none = (double)NAN;
    tm_paired_estimate nothing = { none, none, none };
    tm_paired_result   result = { .pairs = n,
                                  .b = nothing,
                                  .control = nothing,
                                  .half_width = none,
                                  .floor = none,
                                  .detectable = none,
                                  .verdict = TM_PAIRED_NOT_JUDGED };
    if (n == 0) return result;
    for (int64_t i = 0; i < n; i++) result.rounds += i == 0 || pairs[i].round != pairs[i - 1].round;
    result.rounds_are_units = result.rounds >= TM_PAIRED_UNITS;
    cut     c = result.rounds_are_units ? cut_rounds(pairs, n, result.rounds) : cut_stretches(n);
    double *logs = tm_alloc((size_t)n * sizeof *logs);
    result.units = c.effective;
    for (int64_t i = 0; i < n; i++) logs[i] = log(pairs[i].ratio);
    result.b = estimate(&c, logs, n, seed);
    for (int64_t i = 0; i < n; i++) logs[i] = log(pairs[i].control);
    result.control = estimate(&c, logs, n, seed);
    free(logs);
    free(c.first);
    free(c.size);
    result.half_width = (result.b.hi - result.b.lo) / 2 / result.b.ratio;
    result.floor = fmax(least, fmax(fabs(result.control.lo - 1), fabs(result.control.hi - 1)));
    if (isnan(result.control.lo)) result.floor = none; /* fmax would hide it */
    /* Of the estimate and the floor, both of which scatter: 1.5 standard errors of the ratio together. */
    result.detectable = fmax(result.half_width, result.floor) + 1.5 * z80 / z95 * result.half_width;
    result.verdict = verdict_of(&result);
    return result;
}

bool tm_paired_enough(const tm_paired_result *result, double target, int64_t least, bool one_round)
{
    if (!(target > 0) || result->pairs < least || (!one_round && !result->rounds_are_units)) return false;
    return result->half_width <= target; /* false without an interval */
}
