/* SPDX-License-Identifier: Apache-2.0 */
/* Every figure of made-up series of every length, to nine digits. After a change that is meant:
 *     TM_RECORD=1 build/release/tests/stats/test_whole; git diff tests/stats/whole.txt
 */
#include "base/random.h"
#include "stats/guard.h"
#include "stats/line.h"
#include "stats/paired.h"
#include "stats/sampling.h"
#include "stats/series.h"
#include "support/whole.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { MOST = 130, KINDS = 7 };

/* Even; scattered; leaning on its neighbours; drifting; slow at first; with a step; with outliers. */
static void make(int kind, int64_t n, double *x)
{
    double before = 0;
    for (int64_t i = 0; i < n; i++) {
        double noise = tm_random_normal(11, (uint64_t)kind, (uint64_t)i);
        before = 0.8 * before + 0.6 * noise;
        x[i] = 2;
        if (kind == 1) x[i] += 0.05 * noise;
        if (kind == 2) x[i] += 0.05 * before;
        if (kind == 3) x[i] += 0.002 * (double)i + 0.01 * noise;
        if (kind == 4) x[i] += (i < 7 ? 1 : 0) + 0.01 * noise;
        if (kind == 5) x[i] += (i > n / 2 ? 0.3 : 0) + 0.01 * noise;
        if (kind == 6) x[i] += 0.01 * noise + (i % 13 == 5 ? 1 : 0);
    }
}

static void add_series(tm_text *out, const double *x, int64_t n)
{
    double sorted[MOST], work[MOST];
    for (int64_t i = 0; i < n; i++) sorted[i] = x[i], work[i] = 3 + (double)(i % 4);
    tm_stats_sort(sorted, n);
    tm_sample_summary s = tm_stats_summarize(x, n % 2 ? work : NULL, 5, n);
    tm_text_printf(out,
                   "  n %lld warm %lld out %lld worth %.9g, %.9g %.9g %.9g, var %.9g, rate %.9g %.9g %.9g %.9g, median "
                   "%.9g %.9g %.9g, %d\n",
                   (long long)s.n, (long long)s.warmup, (long long)s.outliers, s.effective_n, s.median, s.p5, s.p95,
                   s.variation, s.rate, s.rate_lo, s.rate_hi, s.half_width, s.median_rate, s.median_rate_lo,
                   s.median_rate_hi, s.stop);
    tm_steady t = s.steady;
    tm_text_printf(out, "  steady %lld %d, drift %.9g %.9g %.9g, shift %.9g %lld\n", (long long)t.warmup, t.reached,
                   t.drift, t.drift_lo, t.drift_hi, t.shift, (long long)t.shift_at);
    if (n < 1) return;
    tm_serial   r = tm_stats_serial(x, n);
    double      effective = 0;
    tm_interval median = tm_stats_median_interval(x, n), serial = tm_stats_median_interval_serial(x, n);
    tm_interval ratio = tm_stats_ratio_interval(work, x, n, &effective);
    tm_text_printf(
        out, "  serial %.9g %.9g %lld %.9g %.9g %d, median %.9g %.9g rank %lld, %.9g %.9g, ratio %.9g %.9g %.9g\n",
        r.time, r.effective_n, (long long)r.batch, r.error, r.half_width, r.too_alike, median.lo, median.hi,
        (long long)tm_stats_median_rank(n), serial.lo, serial.hi, ratio.lo, ratio.hi, effective);
    tm_text_printf(out,
                   "  mean %.9g dev %.9g var %.9g, %.9g %.9g %.9g, robust %.9g, first %.9g last %.9g, student %.9g\n",
                   tm_stats_mean(x, n), tm_stats_deviation(x, n), tm_stats_variation(x, n),
                   tm_stats_percentile(x, n, 0), tm_stats_percentile(x, n, 0.37), tm_stats_percentile(x, n, 1),
                   tm_stats_robust_deviation(x, n), sorted[0], sorted[n - 1], tm_stats_student((double)n));
}

static void add_sampling(tm_text *out, const double *x, int64_t n)
{
    static const tm_sampling_options options[] = { { .half_width = 0.02 },
                                                   { .half_width = 0.02, .min_samples = 5 },
                                                   { .max_samples = 9 },
                                                   { .max_seconds = 50 },
                                                   { .half_width = 1e-9, .max_samples = 40 } };
    for (size_t o = 0; o < sizeof options / sizeof options[0]; o++) {
        tm_sampling *sampling = tm_sampling_create(&options[o]);
        int64_t      at = 0, kept;
        while (at < n && tm_sampling_add(sampling, x[at], 3) == TM_STOP_NO) at++;
        tm_sample_summary s = tm_sampling_summary(sampling);
        const double     *seconds = tm_sampling_seconds(sampling, &kept);
        tm_text_printf(out, "  sampling %zu: %lld, stop %d '%s', %lld kept, last %.9g, rate %.9g\n", o, (long long)at,
                       s.stop, tm_stop_text(s.stop), (long long)kept, seconds[kept - 1], s.rate);
        tm_sampling_destroy(sampling);
    }
}

static void add_paired(tm_text *out)
{
    for (int rounds = 0; rounds < 30; rounds += rounds < 8 ? 1 : 7)
        for (int each = 1; each < 4; each++)
            for (int kind = 0; kind < 3; kind++) {
                tm_pair pairs[128];
                int     n = 0;
                for (int r = 0; r < rounds; r++)
                    for (int k = 0; k < each; k++, n++) {
                        double t[6];
                        for (int i = 0; i < 6; i++)
                            t[i] = 1 + 0.01 * tm_random_normal(12, (uint64_t)kind, (uint64_t)(n * 6 + i));
                        if (kind > 0) t[2] *= kind == 1 ? 1.05 : 0.97, t[3] *= kind == 1 ? 1.05 : 0.97;
                        pairs[n] = tm_pair_of(t, t + 2, t + 4, r);
                    }
                tm_paired_result p = tm_paired_judge(pairs, n, 0.002);
                tm_text_printf(out,
                               "paired %d x %d, %d: %lld %lld, %.9g %.9g %.9g, control %.9g %.9g %.9g, %.9g %.9g %.9g, "
                               "%s, enough %d %d %d\n",
                               rounds, each, kind, (long long)p.pairs, (long long)p.rounds, p.b.ratio, p.b.lo, p.b.hi,
                               p.control.ratio, p.control.lo, p.control.hi, p.half_width, p.floor, p.detectable,
                               tm_paired_verdict_name(p.verdict), tm_paired_enough(&p, 0, 4),
                               tm_paired_enough(&p, 0.01, 4), tm_paired_enough(&p, 0.004, 8));
            }
}

static void add_lines(tm_text *out)
{
    static const double x[] = { 1, 2, 4, 8, 16, 24, 32, 48 };
    for (int points = 2; points <= 8; points++)
        for (int64_t rounds = 1; rounds < 7; rounds++) {
            double y[8 * 8];
            for (int64_t i = 0; i < rounds * points; i++)
                y[i] = 1 + 0.5 * x[i % points] + 0.1 * tm_random_normal(13, 1, (uint64_t)i);
            tm_line l = tm_stats_line(x, points, y, rounds, 64, 3);
            tm_text_printf(out, "line %d %lld: %.9g %.9g, %.9g, %.9g %.9g, residual %.9g %.9g, middle %.9g\n", points,
                           (long long)rounds, l.a, l.b, l.value, l.interval.lo, l.interval.hi, l.residual[0],
                           l.residual[points - 1], l.middle[points - 1]);
        }
}

static void add_guards(tm_text *out)
{
    static const double spreads[] = { 0, 0.01, 0.1, 0.3, 1 }, rates[] = { 0.9, 1, 1.02, 1.05, 1.0500001, 1.1, 1.3, 2 };
    for (size_t s = 0; s < sizeof spreads / sizeof spreads[0]; s++)
        for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
            tm_peaks peaks = { .flops = 1e12,
                               .bytes = 2e11,
                               .flops_spread = spreads[s],
                               .bytes_spread = spreads[s] / 2 },
                     none = { 0 };
            tm_error a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
            tm_text_printf(out, "guard %.9g:", tm_guard_tolerance(spreads[s]));
            tm_text_printf(out, " %d %d %d %d; %.9g %.9g; %s; %s; %s\n",
                           tm_guard_flops(&peaks, rates[r] * 1e12, "x", &a),
                           tm_guard_bytes(&peaks, rates[r] * 2e11, "x", &b),
                           tm_guard_seconds(&peaks, 1e12, 1e9, 1 / rates[r], "y", &c),
                           tm_guard_seconds(&none, 1e12, 1e9, 1e-9, "y", &d), tm_guard_least_seconds(&peaks, 1e12, 1e9),
                           tm_guard_least_seconds(&peaks, 1e9, 1e12), a.text, b.text, c.text);
        }
}

static void figures_are_as_recorded(void **state)
{
    static const int64_t lengths[] = { 0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 20, 21, 33, 60, 129 };
    tm_text              out = { 0 };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            double x[MOST];
            make(kind, lengths[i], x);
            tm_text_printf(&out, "series %d of %lld\n", kind, (long long)lengths[i]);
            add_series(&out, x, lengths[i]);
            if (lengths[i] == 129) add_sampling(&out, x, lengths[i]);
        }
    add_paired(&out);
    add_lines(&out);
    add_guards(&out);
    whole_is("tests/stats/whole.txt", &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(figures_are_as_recorded) };

TM_TESTS(tests, NULL, NULL)
