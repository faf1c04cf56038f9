/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/links.c - every pair of links both ways: between hosts (their first ranks) and between the ranks of each
 * host.
 *
 * Pairs meet as in a tournament: those of a turn have no rank in common and measure at the same time. Rounds of all
 * turns are counted to four parts by turns. Of each part the best counts: what disturbs only slows down.
 */
#include "apps/node/among.h"
#include "apps/node/checks.h"
#include "apps/node/counters.h"
#include "apps/node/slow_links.h"

#include "base/arena.h"
#include "base/clock.h"
#include "stats/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LARGE, SMALL: bytes of a message; PINGS: of which the quickest counts; SHOWN: ends whose pairs are all figures. */
enum { LARGE = 4 << 20, SMALL = 8, PINGS = 12, SHOWN = 32, LEAST_ROUNDS = TM_LINKS_PARTS, MOST_ROUNDS = 64 };
/* Smallest differences that count, as logarithms: within a host some pairs are farther from each other, as it is built.
 */
static const double BETWEEN = 0.25, WITHIN = 1;
enum { RATE, SPEED, MEASURED }; /* bytes in a second of a large message, small messages in a second */

/* Ends that are compared with each other: ranks of the world. */
typedef struct {
    const char *what;                           /* "between hosts" */
    int         n, me;                          /* place of this rank among them; -1: it is not one of them */
    int        *rank;                           /* (n) */
    int         wide;                           /* the largest n of such sets that measure at the same time */
    double      least;                          /* smallest difference that counts: a logarithm */
    double     *best[MEASURED][TM_LINKS_PARTS]; /* (wide) of each part, to each end */
} ends;

typedef struct {
    const tm_node_task  *task;
    const tm_node_calls *calls;
    tm_comm             *world;
    char                *data;
} session;

static tm_status message(const session *s, bool sends, int peer, size_t bytes, tm_error *err)
{
    const tm_collective call = { .kind = sends ? TM_COMM_SEND : TM_COMM_RECEIVE,
                                 .format = TM_COMM_BYTES,
                                 .send = s->data,
                                 .receive = s->data + LARGE,
                                 .count = bytes,
                                 .peer = peer,
                                 .what = "links",
                                 .step = -1 };
    return tm_node_call_run(s->calls, s->world, &call, err);
}

/* A message and the answer to it. */
static tm_status there_and_back(const session *s, bool begins, int peer, size_t bytes, double *seconds, tm_error *err)
{
    const int64_t begun = tm_node_calls_now(s->calls);
    TM_TRY(message(s, begins, peer, bytes, err));
    TM_TRY(message(s, !begins, peer, SMALL, err));
    *seconds = (double)(tm_node_calls_now(s->calls) - begun) * 1e-9;
    return TM_OK;
}

static void keep(double *best, double value)
{
    if (!(*best >= value)) *best = value;
}

/* Both directions of one pair; each end keeps what it has sent. part < 0: only to warm up. */
static tm_status measure(const session *s, ends *e, int other, int part, tm_error *err)
{
    const int peer = e->rank[other];
    double    seconds, quickest = (double)INFINITY;
    for (int back = 0; back < 2; back++) {
        const bool begins = (e->me < other) == (back == 0);
        TM_TRY(there_and_back(s, begins, peer, LARGE, &seconds, err));
        if (begins && part >= 0 && seconds > 0) keep(&e->best[RATE][part][other], LARGE / seconds);
    }
    for (int i = 0; i < PINGS; i++) {
        TM_TRY(there_and_back(s, e->me < other, peer, SMALL, &seconds, err));
        quickest = fmin(quickest, seconds);
    }
    /* Whoever answers sees the time that the other one takes between, too. */
    if (part >= 0 && e->me < other && quickest > 0) keep(&e->best[SPEED][part][other], 2 / quickest);
    return TM_OK;
}

static tm_status rounds(const session *s, ends *e, double seconds, int *made, tm_error *err)
{
    const int64_t       begun = tm_now_ns();
    const tm_collective barrier = {
        .kind = TM_COMM_BARRIER, .format = TM_COMM_BYTES, .what = "a turn of links", .step = -1
    };
    bool goes_on = true;
    for (int round = -1; goes_on && round < MOST_ROUNDS; round++) {
        for (int turn = 0; turn < tm_node_turns(e->wide); turn++) {
            const bool plays = e->me >= 0 && turn < tm_node_turns(e->n) && e->n > 1;
            const int  other = plays ? tm_node_partner(e->n, turn, e->me) : -1;
            TM_TRY(tm_comm_run(s->world, &barrier, err));
            if (other >= 0) TM_TRY(measure(s, e, other, round < 0 ? -1 : round % TM_LINKS_PARTS, err));
        }
        *made = round + 1;
        if (round < 0 || *made % TM_LINKS_PARTS) continue;
        const double spent = (double)(tm_now_ns() - begun) * 1e-9;
        TM_TRY(tm_node_goes_on(s->world, *made < LEAST_ROUNDS || spent < seconds, &goes_on, err));
    }
    return TM_OK;
}

/* --- what came of it ------------------------------------------------------------------------- */

/* The rates of all ends in matrices of the first of them: out[part][sender * n + receiver]. */
static tm_status gather(const session *s, const ends *e, int what, double *out[TM_LINKS_PARTS], tm_error *err)
{
    const size_t wide = (size_t)e->wide, ranks = (size_t)s->task->ranks, each = TM_LINKS_PARTS * wide;
    double      *own = tm_alloc(each * sizeof *own), *all = tm_alloc(each * ranks * sizeof *all);
    for (int k = 0; k < TM_LINKS_PARTS; k++) memcpy(own + wide * (size_t)k, e->best[what][k], wide * sizeof *own);
    const tm_collective call = { .kind = TM_COMM_ALL_GATHER,
                                 .format = TM_COMM_FLOAT64,
                                 .send = own,
                                 .receive = all,
                                 .count = each,
                                 .what = "rates of links",
                                 .step = -1 };
    tm_status           st = tm_comm_run(s->world, &call, err);
    for (int k = 0; k < TM_LINKS_PARTS; k++)
        for (int a = 0; a < e->n; a++)
            memcpy(out[k] + a * e->n, all + each * (size_t)e->rank[a] + wide * (size_t)k,
                   (size_t)e->n * sizeof(double));
    free(own);
    free(all);
    for (int k = 0; k < TM_LINKS_PARTS && what == SPEED; k++) /* one of a pair has measured it for both */
        for (int a = 0; a < e->n; a++)
            for (int b = 0; b < a; b++) out[k][a * e->n + b] = out[k][b * e->n + a];
    return st;
}

static void name_of(const session *s, const ends *e, int end, char out[TM_NODE_PLACE / 2])
{
    snprintf(out, TM_NODE_PLACE / 2, "rank %d (%.16s)", e->rank[end],
             tm_comm_place_of(s->world, e->rank[end]).host_name);
}

/* Told: the judge of figures knows one rank for each, and a link has two. */
static void add_figure(const ends *e, int what, int from, int to, double *const part[TM_LINKS_PARTS], double floor,
                       tm_node_outcome *out)
{
    tm_node_figure f = { .sense = TM_NODE_TOLD, .floor = floor };
    double         least = (double)INFINITY, most = 0;
    for (int k = 0; k < TM_LINKS_PARTS; k++) {
        const double x = part[k][from * e->n + to];
        if (!(x > 0)) return;
        least = fmin(least, x), most = fmax(most, x);
    }
    snprintf(f.name, sizeof f.name, "%s %s", what == RATE ? "messages" : "latency", e->what);
    snprintf(f.unit, sizeof f.unit, "%s", what == RATE ? "GB/s" : "us");
    snprintf(f.place, sizeof f.place, "rank %d -> %d", e->rank[from], e->rank[to]);
    f.value = what == RATE ? most * 1e-9 : 1e6 / most;
    f.low = what == RATE ? least * 1e-9 : f.value, f.high = what == RATE ? f.value : 1e6 / least;
    tm_node_figure_add(out, &f);
}

static void add_figures(const ends *e, int what, double *const part[TM_LINKS_PARTS], double floor, tm_node_outcome *out)
{
    for (int a = 0; a < e->n && e->n <= SHOWN; a++)
        for (int b = what == SPEED ? a + 1 : 0; b < e->n; b++)
            if (a != b) add_figure(e, what, a, b, part, floor, out);
}

/* What nodes are compared by: between hosts the middle of what this one sends, within one the middle of all its pairs.
 */
static void add_own(const ends *e, double *const part[TM_LINKS_PARTS], double floor, tm_node_outcome *out)
{
    const bool     all = e->least >= WITHIN;
    const int      first = all ? 0 : e->me * e->n, n = all ? e->n * e->n : e->n;
    double        *rates = tm_alloc((size_t)n * sizeof *rates), of[TM_LINKS_PARTS];
    tm_node_figure f = { .sense = TM_NODE_SPEED, .floor = floor, .unit = "GB/s", .low = (double)INFINITY };
    for (int k = 0; k < TM_LINKS_PARTS; k++) {
        int count = 0;
        for (int i = first; i < first + n; i++)
            if (part[k][i] > 0) rates[count++] = part[k][i] * 1e-9;
        of[k] = count > 0 ? tm_stats_median(rates, count) : 0;
        f.low = fmin(f.low, of[k]), f.high = fmax(f.high, of[k]);
    }
    f.value = tm_stats_median(of, TM_LINKS_PARTS);
    snprintf(f.name, sizeof f.name, "rate of messages %s", e->what);
    if (f.low > 0) tm_node_figure_add(out, &f);
    free(rates);
}

static void find(const session *s, const ends *e, int what, const tm_slow_link *slow, tm_node_outcome *out)
{
    char         from[TM_NODE_PLACE / 2] = "", to[TM_NODE_PLACE / 2] = "", place[TM_NODE_PLACE];
    const int    end = slow->who.sender >= 0 ? slow->who.sender : slow->who.receiver;
    const char  *does = what == RATE ? "messages have" : "small messages come at";
    const double usual = what == RATE ? slow->usual * 1e-9 : slow->usual * 1e-3;
    if (slow->who.sender >= 0) name_of(s, e, slow->who.sender, from);
    if (slow->who.receiver >= 0) name_of(s, e, slow->who.receiver, to);
    if (slow->who.kind == TM_BLAME_LINK)
        snprintf(place, sizeof place, "%.29s -> %.29s", from, to);
    else
        snprintf(place, sizeof place, "all links %s %s", *from ? "from" : "to", *from ? from : to);
    tm_node_find(out, e->rank[end], place, "%s %.0f %% of the usual rate %s, %.4g %s", does, 100 * slow->part, e->what,
                 usual, what == RATE ? "GB/s" : "thousand a second");
}

static void judge(const session *s, const ends *e, int what, double *const part[TM_LINKS_PARTS], double floor,
                  tm_node_outcome *out)
{
    const double *const all[TM_LINKS_PARTS] = { part[0], part[1], part[2], part[3] };
    add_figures(e, what, part, exp(floor) - 1, out);
    if (e->n < 3) return;
    const int     room = e->n * e->n;
    tm_slow_link *slow = tm_alloc((size_t)room * sizeof *slow);
    const int     n = tm_links_slow(all, e->n, what == RATE ? e->least : 2 * e->least, slow, room);
    for (int i = 0; i < n; i++) find(s, e, what, &slow[i], out);
    free(slow);
}

static tm_status one_set(const session *s, ends *e, double seconds, tm_node_outcome *out, tm_error *err)
{
    const size_t pairs = (size_t)e->n * (size_t)e->n + 1;
    double      *memory = tm_alloc(TM_LINKS_PARTS * pairs * sizeof *memory), *part[TM_LINKS_PARTS], floor = 0;
    int          made = 0;
    for (int k = 0; k < TM_LINKS_PARTS; k++) part[k] = memory + pairs * (size_t)k;
    tm_status st = rounds(s, e, seconds, &made, err);
    for (int what = 0; what < MEASURED && st == TM_OK; what++) {
        st = gather(s, e, what, part, err);
        if (st != TM_OK) break;
        const double each =
            tm_links_floor((const double *[TM_LINKS_PARTS]){ part[0], part[1], part[2], part[3] }, e->n);
        if (what == RATE) floor = each;
        if (what == RATE && (e->me == 0 || (e->me > 0 && e->least < WITHIN))) add_own(e, part, exp(floor) - 1, out);
        if (e->me == 0) judge(s, e, what, part, each, out); /* the first of them speaks */
    }
    free(memory);
    if (st != TM_OK || e->me != 0) return st;
    const double limit = fmax(e->least, floor);
    if (e->n < 3)
        tm_node_reach(out, "nothing: two ends %s, there are no other ones to compare with", e->what);
    else
        tm_node_reach(out, "a link or a rank %s that has less than %.0f %% of the usual rate, %d rounds", e->what,
                      100 * exp(-limit - floor), made);
    if (e->n >= 3 && floor > fmax(e->least, log(2) / 2))
        tm_node_undecided(out, "%s, two measurements of a link differ by %.0f %%: a slow one does not stand out",
                          e->what, 100 * (exp(floor) - 1));
    return TM_OK;
}

/* --- errors that the system counts ----------------------------------------------------------- */

static void judge_counters(const tm_node_task *task, const tm_counters *before, tm_node_outcome *out)
{
    tm_counters now = { 0 };
    tm_counters_read(task->options->sysroot, &now);
    for (size_t i = 0; i < now.n; i++) {
        const tm_counter *c = &now.counter[i], *was = tm_counters_find(before, c);
        const double      grown = c->value - (was ? was->value : 0);
        if (grown <= 0) continue;
        tm_node_figure f = { .sense = TM_NODE_TOLD, .value = grown, .low = (double)NAN, .high = (double)NAN };
        snprintf(f.name, sizeof f.name, "%.47s", c->name);
        snprintf(f.place, sizeof f.place, "%s", c->device);
        snprintf(f.unit, sizeof f.unit, "more");
        tm_node_figure_add(out, &f);
        if (c->hard)
            tm_node_find(out, -1, c->device, "%s grew by %.0f to %.0f while messages went; expected: no error", c->name,
                         grown, c->value);
    }
    tm_counters_fini(&now);
}

/* --- from beginning to end ------------------------------------------------------------------- */

static ends open_ends(const session *s, bool hosts)
{
    const int ranks = s->task->ranks, me = s->task->rank, host = tm_comm_place_of(s->world, me).host;
    ends      e = { .me = -1, .rank = tm_alloc((size_t)ranks * sizeof(int)) };
    e.what = hosts ? "between hosts" : "within a host", e.least = hosts ? BETWEEN : WITHIN;
    for (int r = 0; r < ranks; r++) {
        const tm_comm_place at = tm_comm_place_of(s->world, r);
        if (!hosts && at.local_size > e.wide) e.wide = at.local_size;
        if (hosts ? at.local_rank != 0 : at.host != host) continue;
        if (r == me) e.me = e.n;
        e.rank[e.n++] = r;
    }
    if (hosts) e.wide = e.n;
    for (int i = 0; i < MEASURED; i++)
        for (int h = 0; h < TM_LINKS_PARTS; h++) {
            e.best[i][h] = tm_alloc((size_t)e.wide * sizeof(double));
            for (int k = 0; k < e.wide; k++) e.best[i][h][k] = (double)NAN;
        }
    return e;
}

static void close_ends(ends *e)
{
    for (int i = 0; i < MEASURED; i++)
        for (int h = 0; h < TM_LINKS_PARTS; h++) free(e->best[i][h]);
    free(e->rank);
}

tm_status tm_node_links(const tm_node_task *task, const tm_node_calls *calls, tm_node_outcome *out, tm_error *err)
{
    tm_counters before = { 0 };
    session     s = { .task = task, .calls = calls, .world = task->options->world };
    tm_status   st = TM_OK;
    if (tm_node_alone(task, 2, out)) return TM_OK;
    const bool several = tm_comm_place_of(s.world, 0).hosts > 1;
    s.data = tm_alloc(2 * LARGE);
    memset(s.data, 1, 2 * LARGE);
    if (task->first) tm_counters_read(task->options->sysroot, &before);
    for (int hosts = 0; hosts < 2 && st == TM_OK; hosts++) {
        ends e = open_ends(&s, hosts);
        if (e.wide > 1) st = one_set(&s, &e, task->seconds * (several ? hosts ? 0.6 : 0.3 : 0.9), out, err);
        close_ends(&e);
    }
    if (task->first && st == TM_OK) judge_counters(task, &before, out);
    tm_counters_fini(&before);
    free(s.data);
    return st;
}

tm_status node_check_links(const tm_node_task *task, tm_node_outcome *out, tm_error *err)
{
    return tm_node_links(task, NULL, out, err);
}
