/* SPDX-License-Identifier: Apache-2.0 */
/* What equal runs say of the intervals and of `trainmark compare --baseline`, counted.
 *
 *     starts_count RUN...     run directories of one configuration, in the order in which they ran
 *
 * Intervals: of each run that has one, the counted steps are cut into halves. The halves are of one start: were the
 * intervals what they claim, the two values would differ by more than both allow in 5 of 100 runs. Verdicts: every
 * window of 2 k runs that are not noisy, two apart, as two sides that took turns (x y y x), as they are and with A's
 * speed divided by 1.05; and as two series, one after the other.
 */
#include "base/arena.h"
#include "base/random.h"
#include "results/result.h"
#include "stats/sampling.h"
#include "stats/starts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 10 };

typedef struct {
    double *speed; /* of the runs that count */
    int     n, noisy, unsteady, mean, means, median, medians;
} counts;

/* Do two values differ by no more than half of their intervals allow? */
static bool agree(double a, tm_interval of_a, double b, tm_interval of_b)
{
    double allowed = a < b ? hypot(of_a.hi - a, b - of_b.lo) : hypot(a - of_a.lo, of_b.hi - b);
    return fabs(a - b) <= allowed;
}

static void cut(counts *c, const double *seconds, int64_t n)
{
    int64_t     half = n / 2, rest = n - half;
    double     *rate = tm_alloc((size_t)n * sizeof *rate), *one = tm_alloc((size_t)n * sizeof *one);
    tm_interval a, b;
    for (int64_t i = 0; i < n; i++) {
        rate[i] = 1 / seconds[i];
        one[i] = 1;
    }
    a = tm_stats_ratio_interval(one, seconds, half, NULL);
    b = tm_stats_ratio_interval(one, seconds + half, rest, NULL);
    if (!isnan(a.lo) && !isnan(b.lo)) {
        c->means++;
        c->mean += agree(1 / tm_stats_mean(seconds, half), a, 1 / tm_stats_mean(seconds + half, rest), b);
    }
    a = tm_stats_median_interval_serial(rate, half);
    b = tm_stats_median_interval_serial(rate + half, rest);
    if (!isnan(a.lo) && !isnan(b.lo)) {
        c->medians++;
        c->median += agree(tm_stats_median(rate, half), a, tm_stats_median(rate + half, rest), b);
    }
    free(rate);
    free(one);
}

static tm_status take(counts *c, const char *path, tm_error *err)
{
    tm_result *run;
    TM_TRY(tm_result_load(path, NULL, &run, err));
    size_t        n;
    const double *seconds = tm_result_numbers(run, "step_seconds", &n);
    const char   *verdict = tm_result_string(run, "verdict");
    double        speed = tm_result_number(run, "tokens_per_second_per_device/median");
    if (n < 20 || !verdict || !(speed > 0)) {
        tm_result_destroy(run);
        return tm_fail(err, TM_INVALID, "'%s' has fewer than 20 steps, or no verdict", path);
    }
    tm_sample_summary s = tm_stats_summarize(seconds, NULL, 1, (int64_t)n);
    if (isnan(s.rate_lo))
        c->unsteady++;
    else
        cut(c, seconds + s.warmup, s.n);
    if (strcmp(verdict, "valid") == 0 || strcmp(verdict, "not-judged") == 0)
        c->speed[c->n++] = speed;
    else
        c->noisy++;
    tm_result_destroy(run);
    return TM_OK;
}

static tm_starts_verdict compare(const double *speed, int k, bool turns, bool a_first, double factor)
{
    tm_start side[2][MOST];
    for (int i = 0; i < k; i++) {
        int x = turns ? 2 * i + i % 2 : i, y = turns ? 2 * i + 1 - i % 2 : k + i;
        side[!a_first][i] = (tm_start){ speed[x] * (a_first ? factor : 1), x };
        side[a_first][i] = (tm_start){ speed[y] * (a_first ? 1 : factor), y };
    }
    return tm_starts_judge(side[0], k, side[1], k, 0.025).verdict;
}

static void print_windows(const counts *c, int k)
{
    int trials = 0, alarms = 0, kept = 0, seen = 0, missed = 0, apart = 0;
    for (int from = 0; from + 2 * k <= c->n; from += 2, trials++) {
        bool              first = tm_random_below(1, tm_random_stream("bench.starts_count"), (uint64_t)from, 2);
        tm_starts_verdict none = compare(c->speed + from, k, true, first, 1);
        tm_starts_verdict slow = compare(c->speed + from, k, true, first, 1 / 1.05);
        alarms += none == TM_STARTS_SLOWER;
        kept += none == TM_STARTS_KEPT;
        seen += slow == TM_STARTS_SLOWER;
        missed += slow == TM_STARTS_KEPT;
        apart += compare(c->speed + from, k, false, first, 1) == TM_STARTS_APART;
    }
    printf(
        "%2d starts of each side, %d windows: equal: %d slower, %d not slower, %d no verdict; 5 %% slower: %d slower, "
        "%d not slower, %d no verdict; one after the other: %d look slower\n",
        k, trials, alarms, kept, trials - alarms - kept, seen, missed, trials - seen - missed, apart);
}

int main(int argc, char **argv)
{
    tm_error  err = { 0 };
    tm_status st = TM_OK;
    counts    c = { .speed = tm_alloc((size_t)(argc + 1) * sizeof *c.speed) };
    if (argc < 2) st = tm_fail(&err, TM_USAGE, "usage: starts_count RUN...");
    for (int i = 1; i < argc && st == TM_OK; i++) st = take(&c, argv[i], &err);
    if (st == TM_OK) {
        printf("%d runs, %d noisy or invalid, %d without an interval\n", argc - 1, c.noisy, c.unsteady);
        printf("halves agree: rate %d of %d (%.1f %%), median %d of %d (%.1f %%)\n", c.mean, c.means,
               100.0 * c.mean / c.means, c.median, c.medians, 100.0 * c.median / c.medians);
        for (int k = TM_STARTS_LEAST; k <= MOST; k++) print_windows(&c, k);
    } else {
        fprintf(stderr, "starts_count: %s\n", err.text);
    }
    free(c.speed);
    return tm_status_exit_code(st);
}
