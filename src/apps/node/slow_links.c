/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/slow_links.c - slow ranks and slow links among the rates of all pairs. */
#include "apps/node/slow_links.h"

#include "base/arena.h"
#include "stats/summary.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* What the ranks can, as logarithms. */
typedef struct {
    double *end[2];   /* (n) as a sender, as a receiver */
    double  usual[2]; /* the median of each */
} ends;

static double at(const double *rate, int n, int sender, int receiver)
{
    return rate[sender * n + receiver];
}

/* Of an even number, the upper one of the two in the middle. NAN: there is none. */
static double upper_median(double *x, int count)
{
    tm_stats_sort(x, count);
    return count > 0 ? x[count / 2] : (double)NAN;
}

static void find_ends(const double *rate, int n, ends *e, double *spare)
{
    for (int side = 0; side < 2; side++) {
        for (int r = 0; r < n; r++) {
            int count = 0;
            for (int o = 0; o < n; o++) {
                const double x = side ? at(rate, n, o, r) : at(rate, n, r, o);
                if (o != r && x > 0) spare[count++] = log(x);
            }
            e->end[side][r] = upper_median(spare, count);
        }
        int count = 0;
        for (int r = 0; r < n; r++)
            if (!isnan(e->end[side][r])) spare[count++] = e->end[side][r];
        e->usual[side] = upper_median(spare, count);
    }
}

/* How far a link is below what its ends can; NAN: not measured. */
static double below(const double *rate, int n, const ends *e, int sender, int receiver)
{
    const double x = at(rate, n, sender, receiver);
    return x > 0 ? fmin(e->end[0][sender], e->end[1][receiver]) - log(x) : (double)NAN;
}

/* Largest over smallest, as a logarithm; NAN: not measured. */
static double spread_of(const double *const part[TM_LINKS_PARTS], int n, int sender, int receiver)
{
    double low = (double)INFINITY, high = 0;
    for (int k = 0; k < TM_LINKS_PARTS; k++) {
        const double x = at(part[k], n, sender, receiver);
        if (!(x > 0)) return (double)NAN;
        low = fmin(low, x), high = fmax(high, x);
    }
    return log(high / low);
}

double tm_floor_of(const double *spread, int count)
{
    return count > 0 ? (1 + 6.0 / count) * tm_stats_percentile(spread, count, 0.9) : 0;
}

double tm_links_floor(const double *const part[TM_LINKS_PARTS], int n)
{
    double *all = tm_alloc((size_t)n * (size_t)n * sizeof *all), floor;
    int     count = 0;
    for (int s = 0; s < n; s++)
        for (int r = 0; r < n; r++)
            if (s != r && !isnan(spread_of(part, n, s, r))) all[count++] = spread_of(part, n, s, r);
    floor = tm_floor_of(all, count);
    free(all);
    return floor;
}

/* Of all parts, the one that speaks least for it. */
static double end_below(const ends e[TM_LINKS_PARTS + 1], int side, int rank)
{
    double least = (double)INFINITY;
    for (int k = 0; k < TM_LINKS_PARTS; k++) {
        const double d = e[TM_LINKS_PARTS].usual[side] - e[k].end[side][rank];
        if (isnan(d)) return d;
        least = fmin(least, d);
    }
    return least;
}

static double link_below(const double *const part[TM_LINKS_PARTS], int n, const ends *all, int sender, int receiver)
{
    double least = (double)INFINITY;
    for (int k = 0; k < TM_LINKS_PARTS; k++) {
        const double d = below(part[k], n, all, sender, receiver);
        if (isnan(d)) return d;
        least = fmin(least, d);
    }
    return least;
}

int tm_links_slow(const double *const part[TM_LINKS_PARTS], int n, double least, tm_slow_link *out, int room)
{
    const double limit = fmax(least, tm_links_floor(part, n));
    double      *memory = tm_alloc((size_t)n * (2 * TM_LINKS_PARTS + 3) * sizeof *memory);
    double      *best = tm_alloc((size_t)n * (size_t)n * sizeof *best);
    ends         e[TM_LINKS_PARTS + 1]; /* the last one: of the best of all parts */
    int          found = 0;
    for (int i = 0; i < n * n; i++) {
        best[i] = part[0][i];
        for (int k = 1; k < TM_LINKS_PARTS; k++) best[i] = fmax(best[i], part[k][i]);
    }
    for (int k = 0; k <= TM_LINKS_PARTS; k++) {
        for (int side = 0; side < 2; side++) e[k].end[side] = memory + n * (2 * k + side);
        find_ends(k < TM_LINKS_PARTS ? part[k] : best, n, &e[k], memory + n * 2 * (TM_LINKS_PARTS + 1));
    }
    free(best);
    const ends *all = &e[TM_LINKS_PARTS];
    for (int side = 0; side < 2; side++)
        for (int r = 0; r < n && found < room; r++) {
            const double d = end_below(e, side, r);
            if (d > limit)
                out[found++] =
                    (tm_slow_link){ { side ? TM_BLAME_RECEIVER : TM_BLAME_SENDER, side ? -1 : r, side ? r : -1, n - 1 },
                                    exp(-d),
                                    exp(all->usual[side]) };
        }
    for (int s = 0; s < n; s++)
        for (int r = 0; r < n && found < room; r++) {
            const double d = s == r ? (double)NAN : link_below(part, n, all, s, r);
            if (d > limit)
                out[found++] =
                    (tm_slow_link){ { TM_BLAME_LINK, s, r, 1 }, exp(-d), exp(fmin(all->end[0][s], all->end[1][r])) };
        }
    free(memory);
    return found;
}
