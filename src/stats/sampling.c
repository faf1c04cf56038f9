/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/sampling.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>

enum { USUAL_SAMPLES = 20 };

const char *tm_stop_text(tm_stop stop)
{
    static const char *const texts[] = {
#define X(id, text) text,
        TM_STOP_LIST(X)
#undef X
    };
    return texts[stop];
}

static int64_t count_outliers(const double *x, int64_t n)
{
    double  median = tm_stats_median(x, n), deviation = fmax(tm_stats_robust_deviation(x, n), 1e-3 * median);
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += fabs(x[i] - median) > 5 * deviation;
    return count;
}

/* Was steady state looked for and not found? Then there is no value of the long run to give an interval of. */
static bool moves(const tm_steady *steady)
{
    return isfinite(steady->drift) && !steady->reached;
}

/* Everything about the n >= 1 samples that count. */
static void summarize_steady(tm_sample_summary *s, const double *seconds, const double *work, double work_each)
{
    double *units = tm_alloc((size_t)s->n * sizeof *units), *single = tm_alloc((size_t)s->n * sizeof *single);
    for (int64_t i = 0; i < s->n; i++) {
        units[i] = work ? work[i] : work_each;
        single[i] = units[i] / seconds[i];
    }
    s->outliers = count_outliers(seconds, s->n);
    s->median = tm_stats_median(seconds, s->n);
    s->p5 = tm_stats_percentile(seconds, s->n, 0.05);
    s->p95 = tm_stats_percentile(seconds, s->n, 0.95);
    s->variation = tm_stats_variation(seconds, s->n);
    s->rate = tm_stats_mean(units, s->n) / tm_stats_mean(seconds, s->n);
    s->median_rate = tm_stats_median(single, s->n);
    tm_interval rate = tm_stats_ratio_interval(units, seconds, s->n, &s->effective_n);
    tm_interval middle = tm_stats_median_interval_serial(single, s->n);
    if (!moves(&s->steady)) {
        s->rate_lo = rate.lo;
        s->rate_hi = rate.hi;
        s->half_width = (rate.hi - rate.lo) / 2 / s->rate;
        s->median_rate_lo = middle.lo;
        s->median_rate_hi = middle.hi;
    }
    free(units);
    free(single);
}

tm_sample_summary tm_stats_summarize(const double *seconds, const double *work, double work_each, int64_t n)
{
    double            none = (double)NAN;
    tm_sample_summary s = { .steady = tm_stats_steady(seconds, n),
                            .effective_n = 0,
                            .median = none,
                            .p5 = none,
                            .p95 = none,
                            .variation = none,
                            .rate = none,
                            .rate_lo = none,
                            .rate_hi = none,
                            .half_width = none,
                            .median_rate = none,
                            .median_rate_lo = none,
                            .median_rate_hi = none };
    s.warmup = s.steady.warmup;
    s.n = n - s.warmup;
    if (s.n > 0) summarize_steady(&s, seconds + s.warmup, work ? work + s.warmup : NULL, work_each);
    return s;
}

struct tm_sampling {
    tm_sampling_options options;
    double             *seconds, *work;
    int64_t             n, room;
    int64_t             look_at; /* samples at which precision is looked at next */
    int64_t             began_ns;
    double              sum; /* of the seconds */
    tm_stop             stop;
};

tm_sampling *tm_sampling_create(const tm_sampling_options *options)
{
    TM_ASSERT(options->half_width > 0 || options->max_seconds > 0 || options->max_samples > 0);
    tm_sampling *s = tm_alloc(sizeof *s);
    *s = (tm_sampling){ .options = *options, .began_ns = tm_now_ns() };
    if (options->min_samples == 0) s->options.min_samples = USUAL_SAMPLES;
    s->look_at = s->options.min_samples;
    return s;
}

void tm_sampling_destroy(tm_sampling *s)
{
    if (!s) return;
    free(s->seconds);
    free(s->work);
    free(s);
}

static void keep(tm_sampling *s, double seconds, double work)
{
    if (s->n == s->room) {
        int64_t room = s->room ? 2 * s->room : 256;
        double *longer = tm_alloc((size_t)room * sizeof *longer), *more = tm_alloc((size_t)room * sizeof *more);
        for (int64_t i = 0; i < s->n; i++) {
            longer[i] = s->seconds[i];
            more[i] = s->work[i];
        }
        free(s->seconds);
        free(s->work);
        s->seconds = longer;
        s->work = more;
        s->room = room;
    }
    s->seconds[s->n] = seconds;
    s->work[s->n++] = work;
    s->sum += seconds;
}

static bool precise(tm_sampling *s)
{
    if (!(s->options.half_width > 0) || s->n < s->look_at) return false;
    s->look_at = s->n + (s->n + 9) / 10;
    tm_sample_summary summary = tm_stats_summarize(s->seconds, s->work, 0, s->n);
    return summary.steady.reached && summary.half_width <= s->options.half_width;
}

tm_stop tm_sampling_add(tm_sampling *s, double seconds, double work)
{
    TM_ASSERT(seconds > 0 && isfinite(seconds) && isfinite(work));
    keep(s, seconds, work);
    double passed = fmax(s->sum, (double)(tm_now_ns() - s->began_ns) * 1e-9);
    if (precise(s))
        s->stop = TM_STOP_PRECISE;
    else if (s->options.max_seconds > 0 && passed >= s->options.max_seconds)
        s->stop = TM_STOP_SECONDS;
    else if (s->options.max_samples > 0 && s->n >= s->options.max_samples)
        s->stop = TM_STOP_SAMPLES;
    else
        s->stop = TM_STOP_NO;
    return s->stop;
}

tm_sample_summary tm_sampling_summary(const tm_sampling *s)
{
    tm_sample_summary summary = tm_stats_summarize(s->seconds, s->work, 0, s->n);
    summary.stop = s->stop;
    return summary;
}

const double *tm_sampling_seconds(const tm_sampling *s, int64_t *n)
{
    *n = s->n;
    return s->seconds;
}
