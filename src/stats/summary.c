/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/summary.h"

#include "base/arena.h"
#include "base/random.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double tm_stats_mean(const double *x, int64_t n)
{
    TM_ASSERT(n >= 1);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum / (double)n;
}

double tm_stats_deviation(const double *x, int64_t n)
{
    double mean = tm_stats_mean(x, n), sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
    return n > 1 ? sqrt(sum / (double)(n - 1)) : 0;
}

double tm_stats_variation(const double *x, int64_t n)
{
    double mean = tm_stats_mean(x, n);
    return fabs(mean) > 0 ? tm_stats_deviation(x, n) / mean : (double)NAN;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double *sorted_copy(const double *x, int64_t n)
{
    TM_ASSERT(n >= 1);
    double *copy = tm_alloc((size_t)n * sizeof *copy);
    memcpy(copy, x, (size_t)n * sizeof *copy);
    qsort(copy, (size_t)n, sizeof *copy, compare);
    return copy;
}

static double percentile_of_sorted(const double *sorted, int64_t n, double q)
{
    double  position = q * (double)(n - 1);
    int64_t below = (int64_t)floor(position);
    if (below >= n - 1) return sorted[n - 1];
    return sorted[below] + (position - (double)below) * (sorted[below + 1] - sorted[below]);
}

double tm_stats_percentile(const double *x, int64_t n, double q)
{
    TM_ASSERT(q >= 0 && q <= 1);
    double *sorted = sorted_copy(x, n), value = percentile_of_sorted(sorted, n, q);
    free(sorted);
    return value;
}

double tm_stats_median(const double *x, int64_t n)
{
    return tm_stats_percentile(x, n, 0.5);
}

double tm_stats_robust_deviation(const double *x, int64_t n)
{
    double  median = tm_stats_median(x, n);
    double *distance = tm_alloc((size_t)n * sizeof *distance);
    for (int64_t i = 0; i < n; i++) distance[i] = fabs(x[i] - median);
    double deviation = 1.4826 * tm_stats_median(distance, n);
    free(distance);
    return deviation;
}

tm_interval tm_stats_median_interval(const double *x, int64_t n)
{
    tm_interval interval = { (double)NAN, (double)NAN };
    /* Largest k with sum_{i<k} C(n, i) 2^-n <= 0.025. In logarithms: 2^-n underflows for long runs. */
    double  tail = 0, log_term = -(double)n * log(2.0);
    int64_t k = 0;
    while (k < n / 2 && tail + exp(log_term) <= 0.025) {
        tail += exp(log_term);
        log_term += log((double)(n - k)) - log((double)(k + 1));
        k++;
    }
    if (k < 1) return interval;
    double *sorted = sorted_copy(x, n);
    interval = (tm_interval){ sorted[k - 1], sorted[n - k] };
    free(sorted);
    return interval;
}

tm_interval tm_stats_ratio_interval(const double *y, const double *x, int64_t n, uint64_t seed)
{
    enum { RESAMPLES = 1000, SHORTEST = 6 };
    if (n < SHORTEST) return (tm_interval){ (double)NAN, (double)NAN };
    int64_t  block = (int64_t)llround(cbrt((double)n));
    int64_t  blocks = (n + block - 1) / block;
    uint64_t stream = tm_random_stream("stats.bootstrap");
    double  *ratio = tm_alloc(RESAMPLES * sizeof *ratio);
    /* Prefix sums: a block costs two differences whatever its length. */
    double *sum_y = tm_alloc((size_t)(n + 1) * sizeof *sum_y), *sum_x = tm_alloc((size_t)(n + 1) * sizeof *sum_x);
    sum_y[0] = sum_x[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        sum_y[i + 1] = sum_y[i] + y[i];
        sum_x[i + 1] = sum_x[i] + x[i];
    }
    for (int64_t r = 0; r < RESAMPLES; r++) {
        double above = 0, below = 0;
        for (int64_t b = 0; b < blocks; b++) {
            uint64_t index = (uint64_t)(r * blocks + b);
            int64_t  start = (int64_t)tm_random_below(seed, stream, index, (uint64_t)(n - block + 1));
            above += sum_y[start + block] - sum_y[start];
            below += sum_x[start + block] - sum_x[start];
        }
        ratio[r] = above / below;
    }
    qsort(ratio, RESAMPLES, sizeof *ratio, compare);
    tm_interval interval = { percentile_of_sorted(ratio, RESAMPLES, 0.025),
                             percentile_of_sorted(ratio, RESAMPLES, 0.975) };
    free(ratio);
    free(sum_y);
    free(sum_x);
    return interval;
}

int64_t tm_stats_warmup(const double *step_seconds, int64_t n)
{
    if (n <= 3) return 0;
    const double *later = step_seconds + n / 2;
    double        median = tm_stats_median(later, n - n / 2);
    double        deviation = fmax(tm_stats_robust_deviation(later, n - n / 2), 1e-3 * median);
    int64_t       warmup = 0;
    while (warmup < n / 2 && step_seconds[warmup] > median + 3 * deviation) warmup++;
    return warmup < 1 ? 1 : warmup;
}

tm_rate_summary tm_stats_rate(const double *step_seconds, int64_t n, double tokens_per_step)
{
    double          none = (double)NAN;
    tm_rate_summary rate = { .median = none,
                             .lo = none,
                             .hi = none,
                             .overall = none,
                             .overall_lo = none,
                             .overall_hi = none,
                             .variation = none };
    rate.warmup = tm_stats_warmup(step_seconds, n);
    rate.n = n - rate.warmup;
    if (rate.n < 1) return rate;
    const double *steady = step_seconds + rate.warmup;
    double *tokens = tm_alloc((size_t)rate.n * sizeof *tokens), *single = tm_alloc((size_t)rate.n * sizeof *single);
    double  seconds = 0;
    for (int64_t i = 0; i < rate.n; i++) {
        tokens[i] = tokens_per_step;
        single[i] = tokens_per_step / steady[i];
        seconds += steady[i];
    }
    rate.median = tm_stats_median(single, rate.n);
    tm_interval interval = tm_stats_median_interval(single, rate.n);
    rate.lo = interval.lo;
    rate.hi = interval.hi;
    rate.overall = tokens_per_step * (double)rate.n / seconds;
    interval = tm_stats_ratio_interval(tokens, steady, rate.n, 0);
    rate.overall_lo = interval.lo;
    rate.overall_hi = interval.hi;
    rate.variation = tm_stats_variation(steady, rate.n);
    free(tokens);
    free(single);
    return rate;
}
