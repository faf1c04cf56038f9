/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/stragglers.h"

#include "base/arena.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* KEPT: blocks that estimates are made of; SKIPPED: blocks at the begin; a bet that lost begins anew at multiples of
 * ANEW; numbers of a rank that was named are looked at each AGAIN blocks. */
enum { KEPT = 256, SKIPPED = 1, ANEW = 32, AGAIN = 64, BETS = 2 };
static const double tolerance = 0.01, least_told = 0.02, least_sure = 6, level = 1e-3, first_share = 0.9;
static const double stake[BETS] = { 0.97, 0.4 }, weight[BETS] = { 0.9, 0.1 };
/* Where processors of the ranks were elsewhere for more than this share, evidence has to last so many seconds. */
static const double quiet_share = 0.005, lasting_seconds = 10;

/* Of a rank, by one kind of its time. */
typedef struct {
    double  log_wealth[BETS];
    double  x[KEPT]; /* of the last blocks since `since`, in a ring */
    int64_t n, since;
    double  seconds, delayed, busy, waited; /* since then: of the run; of all ranks of the role; of another rank */
    bool    named;
    double  told; /* as it was told last */
    int64_t step; /* when it was named */
} track;

enum { OWN, WALL, TRACKS }; /* without and with what other programs took */

struct tm_stragglers {
    int     ranks, starts; /* starts: of bets so far */
    int    *role;
    int64_t blocks;
    track (*tracks)[TRACKS];
    double (*busy)[2][TM_RANK_PHASES]; /* sums of the last KEPT / 2 to KEPT blocks, in two parts */
    int64_t part_blocks[2];
    int     part;
    double *value, *sorted; /* (ranks) */
    int    *index;          /* (ranks) */
};

tm_stragglers *tm_stragglers_open(int ranks, const int *role)
{
    const size_t   n = (size_t)ranks;
    tm_stragglers *s = tm_alloc(sizeof *s);
    *s = (tm_stragglers){ .ranks = ranks, .starts = 1 };
    s->role = memcpy(tm_alloc(n * sizeof *role), role, n * sizeof *role);
    s->tracks = memset(tm_alloc(n * sizeof *s->tracks), 0, n * sizeof *s->tracks);
    s->busy = memset(tm_alloc(n * sizeof *s->busy), 0, n * sizeof *s->busy);
    s->value = tm_alloc(n * sizeof *s->value);
    s->sorted = tm_alloc((n > KEPT ? n : KEPT) * sizeof *s->sorted);
    s->index = tm_alloc(n * sizeof *s->index);
    return s;
}

void tm_stragglers_close(tm_stragglers *s)
{
    if (!s) return;
    free(s->role);
    free(s->tracks);
    free(s->busy);
    free(s->value);
    free(s->sorted);
    free(s->index);
    free(s);
}

/* --- peers -------------------------------------------------------------------------------------------------------- */

static int compare_f64(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Ranks of the role in s->index, their values sorted; returns how many. */
static int sort_role(tm_stragglers *s, int role)
{
    int n = 0;
    for (int r = 0; r < s->ranks; r++)
        if (s->role[r] == role) s->index[n++] = r;
    for (int i = 0; i < n; i++) s->sorted[i] = s->value[s->index[i]];
    qsort(s->sorted, (size_t)n, sizeof *s->sorted, compare_f64);
    return n;
}

/* Of n >= 2 sorted values without one that equals `own`. */
static double median_of_others(const double *sorted, int n, double own)
{
    int at = 0, m = n - 1;
    while (at < n - 1 && sorted[at] < own) at++;
    double high = sorted[m / 2 + (m / 2 >= at)];
    return m % 2 ? high : 0.5 * (sorted[m / 2 - 1 + (m / 2 - 1 >= at)] + high);
}

static double sum_of(const double *values)
{
    double sum = 0;
    for (int w = 0; w < TM_RANK_PHASES; w++) sum += values[w];
    return sum;
}

/* Of a rank's delay, what cannot lie in its waits. */
static double sure_delay(const tm_rank_times *t)
{
    return fmax(0, t->delayed - t->waited);
}

/* The own work of a rank that is to be named is what is left if all of its delay lies there; that of the others what is
 * left if as much as possible lies in their waits. */
static double time_of(const tm_rank_times *t, int kind, bool peer)
{
    double busy = sum_of(t->busy);
    return kind == WALL ? busy : busy - fmin(peer ? sure_delay(t) : fmax(t->delayed, 0), busy);
}

/* --- bets --------------------------------------------------------------------------------------------------------- */

static double log_wealth(const track *t)
{
    double most = fmax(t->log_wealth[0], t->log_wealth[1]), sum = 0;
    for (int b = 0; b < BETS; b++) sum += weight[b] * exp(t->log_wealth[b] - most);
    return most + log(sum);
}

static void begin(track *t, int64_t step)
{
    memset(t->log_wealth, 0, sizeof t->log_wealth);
    t->n = 0;
    t->since = step;
    t->seconds = t->delayed = t->busy = t->waited = 0;
}

static void bet(track *t, double x)
{
    double y = fmax(-1, fmin(1, (x - tolerance) / tolerance));
    for (int b = 0; b < BETS; b++) t->log_wealth[b] += log1p(stake[b] * y);
    t->x[t->n++ % KEPT] = x;
}

/* What the wealth has to be: that no rank's reaches it by chance, by any of the bets that began so far. */
static double log_needed(const tm_stragglers *s)
{
    double k = s->starts, share = k > 1 ? (1 - first_share) / ((k - 1) * k) : first_share;
    return log((double)s->ranks / (level * share));
}

typedef struct {
    double middle, low, high; /* median, and the interval that holds it in 95 of 100 cases */
    double sure;              /* the median by its standard error */
} estimate;

/* By order statistics; the standard error by the median absolute deviation, as of a normal distribution. `last`: of so
 * many values at most. */
static estimate estimate_of(tm_stragglers *s, const track *t, int64_t last)
{
    int64_t n = t->n < last ? t->n : last;
    double *v = s->sorted;
    for (int64_t i = 0; i < n; i++) v[i] = t->x[(t->n - 1 - i) % KEPT];
    qsort(v, (size_t)n, sizeof *v, compare_f64);
    int64_t  low = (int64_t)floor(0.5 * (double)n - 0.98 * sqrt((double)n));
    estimate e = { .middle = n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]) };
    if (low < 0) low = 0;
    e.low = v[low], e.high = v[n - 1 - low];
    for (int64_t i = 0; i < n; i++) v[i] = fabs(v[i] - e.middle);
    qsort(v, (size_t)n, sizeof *v, compare_f64);
    double error = 1.2533 * 1.4826 * v[n / 2] / sqrt((double)n);
    e.sure = error > 0 ? e.middle / error : e.middle > 0 ? (double)INFINITY : 0;
    return e;
}

static bool is_proven(tm_stragglers *s, const track *t)
{
    if (log_wealth(t) < log_needed(s)) return false;
    if (t->delayed > quiet_share * t->busy && t->seconds < lasting_seconds) return false;
    estimate e = estimate_of(s, t, KEPT);
    return e.low >= least_told && e.sure >= least_sure;
}

/* --- findings ----------------------------------------------------------------------------------------------------- */

/* The part of a step that the rank is longest behind in. */
static const char *find_phase(tm_stragglers *s, int rank)
{
    static const char *const names[TM_RANK_PHASES] = {
#define X(id, name) [TM_RANK_##id] = (name),
        TM_RANK_PHASE_LIST(X)
#undef X
    };
    int    longest = 0;
    double most = -(double)INFINITY;
    for (int w = 0; w < TM_RANK_PHASES; w++) {
        for (int r = 0; r < s->ranks; r++) s->value[r] = s->busy[r][0][w] + s->busy[r][1][w];
        int    n = sort_role(s, s->role[rank]);
        double behind = s->value[rank] - median_of_others(s->sorted, n, s->value[rank]);
        if (behind > most) most = behind, longest = w;
    }
    return names[longest];
}

/* By the last `last` blocks. It is disturbed if more than half of what it is behind was taken by other programs. */
static tm_straggler found(tm_stragglers *s, int rank, int kind, int64_t last)
{
    const track *t = &s->tracks[rank][kind];
    double       wall = s->tracks[rank][WALL].n ? estimate_of(s, &s->tracks[rank][WALL], last).middle : 0;
    estimate     e = estimate_of(s, t, last);
    return (tm_straggler){ .rank = rank,
                           .host = "",
                           .disturbed = kind == WALL || wall > 2 * e.middle,
                           .since = t->since,
                           .step = t->step,
                           .behind = expm1(e.middle),
                           .low = expm1(e.low),
                           .high = expm1(e.high),
                           .phase = find_phase(s, rank),
                           .waited_seconds = t->waited };
}

/* Is there something to tell of the rank? By its own work first. */
static bool judge(tm_stragglers *s, int rank, int64_t step, tm_straggler *out)
{
    for (int kind = 0; kind < TRACKS; kind++) {
        track *t = &s->tracks[rank][kind];
        bool   told_before = t->named;
        if (kind == WALL && s->tracks[rank][OWN].named) continue;
        if (told_before && s->blocks % AGAIN != 0) continue;
        if (!told_before && !is_proven(s, t)) continue;
        double now = estimate_of(s, t, told_before ? AGAIN : KEPT).middle;
        if (told_before && !(fabs(now - t->told) > fmax(0.5 * t->told, least_told))) continue;
        if (!told_before) t->step = step;
        t->named = true;
        t->told = now;
        *out = found(s, rank, kind, told_before ? AGAIN : KEPT);
        out->again = told_before;
        return true;
    }
    return false;
}

static void take_block(tm_stragglers *s, int64_t step, const tm_rank_times *times)
{
    double waited = 0, all_delayed = 0, all_busy = 0;
    for (int r = 0; r < s->ranks; r++) waited += times[r].waited;
    for (int kind = 0; kind < TRACKS; kind++) {
        for (int r = 0; r < s->ranks; r++) s->value[r] = time_of(&times[r], kind, true);
        for (int r = 0; r < s->ranks; r++) {
            bool seen = false; /* by roles, each once */
            for (int k = 0; k < r && !seen; k++) seen = s->role[k] == s->role[r];
            if (seen) continue;
            int n = sort_role(s, s->role[r]);
            all_delayed = all_busy = 0;
            for (int i = 0; i < n; i++)
                all_delayed += sure_delay(&times[s->index[i]]), all_busy += sum_of(times[s->index[i]].busy);
            for (int i = 0; i < n && n > 1; i++) {
                track *t = &s->tracks[s->index[i]][kind];
                double others = median_of_others(s->sorted, n, s->value[s->index[i]]);
                double own = time_of(&times[s->index[i]], kind, false);
                if (!t->named && s->blocks % ANEW == 0 && log_wealth(t) <= 0) begin(t, step - 1);
                t->seconds += times[s->index[i]].seconds;
                t->delayed += all_delayed;
                t->busy += all_busy;
                t->waited += (waited - times[s->index[i]].waited) / (s->ranks - 1);
                bet(t, own > 0 && others > 0 ? log(own / others) : 0);
            }
        }
    }
}

static void add_phases(tm_stragglers *s, const tm_rank_times *times)
{
    if (s->part_blocks[s->part] == KEPT / 2) {
        s->part ^= 1;
        s->part_blocks[s->part] = 0;
        for (int r = 0; r < s->ranks; r++) memset(s->busy[r][s->part], 0, sizeof s->busy[r][s->part]);
    }
    s->part_blocks[s->part]++;
    for (int r = 0; r < s->ranks; r++)
        for (int w = 0; w < TM_RANK_PHASES; w++) s->busy[r][s->part][w] += times[r].busy[w];
}

int tm_stragglers_feed(tm_stragglers *s, int64_t step, const tm_rank_times *times, tm_straggler *named)
{
    int n = 0;
    s->blocks++;
    if (s->blocks <= SKIPPED || s->ranks < 2) {
        for (int r = 0; r < s->ranks; r++)
            for (int kind = 0; kind < TRACKS; kind++) begin(&s->tracks[r][kind], step);
        return 0;
    }
    if (s->blocks % ANEW == 0) s->starts++;
    take_block(s, step, times);
    add_phases(s, times);
    for (int r = 0; r < s->ranks; r++)
        if (s->tracks[r][OWN].n > 0) n += judge(s, r, step, &named[n]);
    return n;
}

int tm_stragglers_found(tm_stragglers *s, tm_straggler *out)
{
    int n = 0;
    for (int r = 0; r < s->ranks; r++)
        for (int kind = 0; kind < TRACKS; kind++) {
            if (!s->tracks[r][kind].named) continue;
            out[n++] = found(s, r, kind, KEPT);
            break;
        }
    return n;
}

char *tm_straggler_text(const tm_straggler *s, char out[TM_STRAGGLER_TEXT])
{
    const char *why = s->disturbed ? "shares its processor with other programs" : "is slow";
    snprintf(out, TM_STRAGGLER_TEXT,
             "rank %d on %.64s %s: %.1f %% (%.1f .. %.1f) behind the others, most in %s; each waited %.3g s since "
             "step %lld",
             s->rank, s->host, why, 100 * s->behind, 100 * s->low, 100 * s->high, s->phase, s->waited_seconds,
             (long long)s->since);
    return out;
}
