/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/pairing.c - groupings by the bits of codes, and whose code the slow sides spell. */
#include "apps/node/pairing.h"

#include "apps/node/slow_links.h"
#include "stats/summary.h"

#include <math.h>

static int bits_of(int n)
{
    int bits = 0;
    while (1 << bits < n) bits++;
    return bits;
}

static uint32_t code_of(int n, int end)
{
    const uint32_t all = ((uint32_t)1 << bits_of(n)) - 1;
    const int      half = (n + 1) / 2;
    return end < half ? (uint32_t)end : all ^ (uint32_t)(end - half);
}

static int end_of(int n, uint32_t code)
{
    for (int i = 0; i < n; i++)
        if (code_of(n, i) == code) return i;
    return -1;
}

static int parity(uint32_t x)
{
    int odd = 0;
    for (; x; x &= x - 1) odd ^= 1;
    return odd;
}

int tm_pairing_side(const tm_pairing *p, uint32_t mask, int end)
{
    return parity(code_of(p->n, end) & mask);
}

/* --- times ----------------------------------------------------------------------------------- */

static double best(const tm_grouping *g, int side)
{
    double least = (double)INFINITY;
    for (int k = 0; k < TM_PAIRING_PARTS; k++) least = fmin(least, g->seconds[side][k]);
    return least;
}

/* Of an all-reduce among h ranks, each sends 2 (h - 1) / h of the data. */
static double share(int h)
{
    return (double)(h - 1) / h;
}

/* The times of all groups known, each by its share: the lower quartile, as a bad end slows half of them. And the floor.
 */
static double usual_of(const tm_pairing *p, double *floor)
{
    double time[2 * TM_PAIRING_GROUPINGS] = { 0 }, spread[2 * TM_PAIRING_GROUPINGS] = { 0 };
    int    n = 0;
    for (int i = 0; i < p->asked; i++)
        for (int side = 0; side < 2; side++) {
            const tm_grouping *g = &p->grouping[i];
            double             most = 0;
            if (g->size[side] < 2) continue;
            for (int k = 0; k < TM_PAIRING_PARTS; k++) most = fmax(most, g->seconds[side][k]);
            time[n] = best(g, side) / share(g->size[side]);
            spread[n++] = log(most / best(g, side));
        }
    *floor = tm_floor_of(spread, n);
    return n > 0 ? tm_stats_percentile(time, n, 0.25) : 0;
}

/* Which sides are slow, in each of their parts. */
static double look(tm_pairing *p, double *floor)
{
    const double usual = usual_of(p, floor), limit = fmax(p->least, *floor);
    for (int i = 0; i < p->asked; i++)
        for (int side = 0; side < 2; side++) {
            tm_grouping *g = &p->grouping[i];
            g->slow[side] = g->size[side] > 1 && log(best(g, side) / share(g->size[side]) / usual) > limit;
        }
    return usual;
}

/* --- what to ask ----------------------------------------------------------------------------- */

static tm_grouping *ask(tm_pairing *p, uint32_t mask)
{
    tm_grouping *g = &p->grouping[p->asked++];
    *g = (tm_grouping){ .mask = mask };
    for (int i = 0; i < p->n; i++) g->size[tm_pairing_side(p, mask, i)]++;
    return g;
}

/* The bits of which no side is slow. */
static uint32_t differing(const tm_pairing *p, int bits)
{
    uint32_t d = 0;
    for (int b = 0; b < bits; b++)
        if (!p->grouping[b].slow[0] && !p->grouping[b].slow[1]) d |= (uint32_t)1 << b;
    return d;
}

/* Two neighbours among some bits, the i-th such pair; 0: there are not as many. */
static uint32_t neighbours(uint32_t of, int i)
{
    for (; i > 0 && of; i--) of &= of - 1;
    const uint32_t low = of & (~of + 1), next = (of & (of - 1)) & (~(of & (of - 1)) + 1);
    return next ? low | next : 0;
}

tm_grouping *tm_pairing_next(tm_pairing *p)
{
    const int bits = bits_of(p->n);
    double    floor;
    if (p->asked < bits) return ask(p, (uint32_t)1 << p->asked);
    /* The parities are chosen by the bits alone: what comes later does not change them. */
    if (p->asked == bits) look(p, &floor);
    const uint32_t mask = neighbours(differing(p, bits), p->asked - bits);
    return mask ? ask(p, mask) : NULL;
}

/* --- what it says ---------------------------------------------------------------------------- */

/* The value that the slow side spells; -1: none or both. */
static int spelled(const tm_grouping *g)
{
    return g->slow[0] == g->slow[1] ? -1 : g->slow[1];
}

tm_pairing_verdict tm_pairing_judge(tm_pairing *p)
{
    tm_pairing_verdict v = { 0, { -1, -1 }, 1, 0 };
    const int          bits = bits_of(p->n);
    const double       usual = look(p, &v.floor);
    uint32_t           code = 0, d = differing(p, bits);
    bool               any = false, fits = true;
    double             slowest = 0;
    for (int i = 0; i < p->asked; i++)
        for (int side = 0; side < 2; side++)
            if (p->grouping[i].slow[side])
                any = true, slowest = fmax(slowest, best(&p->grouping[i], side) / share(p->grouping[i].size[side]));
    if (!any) return v;
    for (int b = 0; b < bits; b++)
        if (!(d >> b & 1)) {
            fits = fits && spelled(&p->grouping[b]) >= 0;
            if (spelled(&p->grouping[b]) == 1) code |= (uint32_t)1 << b;
        }
    /* From each differing bit to the next one; the first one is 0, that is the end whose code has it so. */
    for (int i = 0; fits && neighbours(d, i); i++) {
        const uint32_t mask = neighbours(d, i), low = mask & (~mask + 1);
        const bool     known = bits + i < p->asked && p->grouping[bits + i].mask == mask;
        const int      odd = known ? spelled(&p->grouping[bits + i]) : -1;
        fits = odd >= 0;
        if ((((code & low) != 0) ^ (odd == 1))) code |= mask ^ low;
    }
    v.part = usual / slowest;
    v.end[0] = fits ? end_of(p->n, code) : -1;
    v.end[1] = fits && d ? end_of(p->n, code ^ d) : -1;
    v.found = v.end[0] < 0 || (d && v.end[1] < 0) ? -1 : d ? 2 : 1;
    return v;
}
