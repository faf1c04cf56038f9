/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/starts.h"

#include "base/arena.h"
#include "base/status.h"
#include "stats/series.h"

#include <math.h>
#include <stdlib.h>

static const double z99 = 2.5758293035489004;

/* A start, in the order of time. */
typedef struct {
    double when, log_speed, rank; /* rank: in time; the mean of theirs for those of the same second */
    bool   of_a;
} one_start;

/* --- turns -------------------------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    double x = ((const one_start *)a)->when, y = ((const one_start *)b)->when;
    return (x > y) - (x < y);
}

/* Sorts and ranks by time; false, and all ranks 0, if a time is not known. */
static bool put_in_order(one_start *all, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(all[i].when)) return false;
    qsort(all, (size_t)n, sizeof *all, by_time);
    for (int64_t i = 0, next; i < n; i = next) {
        for (next = i; next < n && !(all[next].when > all[i].when);) next++;
        for (int64_t k = i; k < next; k++) all[k].rank = (double)(i + next - 1) / 2;
    }
    return true;
}

/* Stretches of one side when those of the same second are put into the order that has the most. */
static int64_t stretches(const one_start *all, int64_t n)
{
    int64_t found = 0;
    int     last = -1; /* side of the start before: 1 is A's */
    for (int64_t i = 0, next; i < n; i = next) {
        int64_t count[2] = { 0, 0 };
        for (next = i; next < n && !(all[next].when > all[i].when); next++) count[all[next].of_a]++;
        while (count[0] + count[1] > 0) {
            int side = last < 0 ? count[1] > count[0] : 1 - last;
            if (count[side] == 0) side = 1 - side;
            found += side != last;
            count[side]--;
            last = side;
        }
    }
    return found;
}

/* --- the fit ------------------------------------------------------------------------------------------------------ */

/* Of log speed = constant + change (of A) + slope rank. */
typedef struct {
    double change, slope;
    double leverage; /* variance of the change / variance of one start */
    double freedom, deviation;
} fit;

static fit fit_of(const one_start *all, int64_t n, double n_a, bool with_time)
{
    double count = (double)n, share = n_a / count, rank = 0, log_speed = 0;
    double ss = 0, tt = 0, st = 0, sy = 0, ty = 0, left = 0; /* sums of products: side, time, value */
    for (int64_t i = 0; i < n; i++) {
        rank += all[i].rank / count;
        log_speed += all[i].log_speed / count;
    }
    for (int64_t i = 0; i < n; i++) {
        double s = all[i].of_a - share, t = all[i].rank - rank, y = all[i].log_speed - log_speed;
        ss += s * s;
        tt += t * t;
        st += s * t;
        sy += s * y;
        ty += t * y;
    }
    double whole = ss * tt - st * st;
    bool   line = with_time && whole > 1e-9 * ss * tt;
    fit    f = { .change = line ? (sy * tt - ty * st) / whole : sy / ss,
                 .slope = line ? (ty * ss - sy * st) / whole : 0,
                 .leverage = line ? tt / whole : 1 / ss,
                 .freedom = count - (line ? 3 : 2) };
    for (int64_t i = 0; i < n; i++) {
        double s = all[i].of_a - share, t = all[i].rank - rank;
        left += pow(all[i].log_speed - log_speed - f.change * s - f.slope * t, 2);
    }
    f.deviation = f.freedom > 0 ? sqrt(left / f.freedom) : (double)NAN;
    return f;
}

static int64_t needed(const fit *f, double accepted)
{
    for (int64_t k = TM_STARTS_LEAST; k < TM_STARTS_MOST_NEEDED; k++) {
        double each = (double)k;
        if (!(tm_stats_student_of(z99, 2 * each - 3) * f->deviation * sqrt(2 / each) > accepted)) return k;
    }
    return TM_STARTS_MOST_NEEDED;
}

static double spread_of(const one_start *all, int64_t n, bool of_a)
{
    double *logs = tm_alloc((size_t)(n + 1) * sizeof *logs), spread = (double)NAN;
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++)
        if (all[i].of_a == of_a) logs[found++] = all[i].log_speed;
    if (found > 1) spread = tm_stats_deviation(logs, found);
    free(logs);
    return spread;
}

static tm_starts_result judge(const one_start *all, int64_t n, int64_t n_a, bool timed, double accepted)
{
    int64_t          least = n_a < n - n_a ? n_a : n - n_a;
    bool             few = least < TM_STARTS_LEAST;
    fit              f = fit_of(all, n, (double)n_a, timed);
    double           half = few ? (double)NAN : tm_stats_student_of(z99, f.freedom) * f.deviation * sqrt(f.leverage);
    tm_starts_result r = { .slowdown = least > 0 ? 1 - exp(f.change) : (double)NAN,
                           .lo = 1 - exp(f.change + half),
                           .hi = 1 - exp(f.change - half),
                           .spread = { spread_of(all, n, true), spread_of(all, n, false) },
                           .needed = needed(&f, accepted),
                           .in_turns = timed && least > 0 && stretches(all, n) >= least };
    bool             slower = r.slowdown > accepted && r.lo > 0;
    r.verdict = few                ? TM_STARTS_FEW
                : slower           ? (r.in_turns ? TM_STARTS_SLOWER : TM_STARTS_APART)
                : half <= accepted ? TM_STARTS_KEPT
                                   : TM_STARTS_IMPRECISE;
    return r;
}

tm_starts_result tm_starts_judge(const tm_start *a, int64_t n_a, const tm_start *base, int64_t n_base, double accepted)
{
    TM_ASSERT(accepted > 0);
    int64_t    n = n_a + n_base;
    one_start *all = tm_alloc((size_t)(n + 1) * sizeof *all);
    for (int64_t i = 0; i < n; i++) {
        const tm_start *start = i < n_a ? &a[i] : &base[i - n_a];
        TM_ASSERT(start->speed > 0);
        all[i] = (one_start){ .when = start->when, .log_speed = log(start->speed), .of_a = i < n_a };
    }
    bool             timed = put_in_order(all, n);
    tm_starts_result r = judge(all, n, n_a, timed, accepted);
    free(all);
    return r;
}
