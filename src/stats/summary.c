/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/summary.h"

#include "base/arena.h"
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

void tm_stats_sort(double *x, int64_t n)
{
    if (n > 1) qsort(x, (size_t)n, sizeof *x, compare);
}

static double *sorted_copy(const double *x, int64_t n)
{
    TM_ASSERT(n >= 1);
    double *copy = tm_alloc((size_t)n * sizeof *copy);
    memcpy(copy, x, (size_t)n * sizeof *copy);
    tm_stats_sort(copy, n);
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

int64_t tm_stats_median_rank(int64_t n)
{
    /* Largest k with sum_{i<k} C(n, i) 2^-n <= 0.025. In logarithms: 2^-n underflows for long runs. */
    double  tail = 0, log_term = -(double)n * log(2.0);
    int64_t k = 0;
    while (k < n / 2 && tail + exp(log_term) <= 0.025) {
        tail += exp(log_term);
        log_term += log((double)(n - k)) - log((double)(k + 1));
        k++;
    }
    return k;
}

tm_interval tm_stats_median_interval(const double *x, int64_t n)
{
    int64_t k = tm_stats_median_rank(n);
    if (k < 1) return (tm_interval){ (double)NAN, (double)NAN };
    double     *sorted = sorted_copy(x, n);
    tm_interval interval = { sorted[k - 1], sorted[n - k] };
    free(sorted);
    return interval;
}
