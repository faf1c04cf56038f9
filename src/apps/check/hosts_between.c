/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/hosts_between.c - what only two hosts together can measure: how far their clocks are apart, how fast the
 * link between them is. */
#include "base/arena.h"
#include "base/clock.h"
#include "apps/check/hosts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static tm_status message(tm_comm *world, bool sends, int peer, void *data, size_t bytes, const char *what,
                         tm_error *err)
{
    tm_collective call = { .kind = sends ? TM_COMM_SEND : TM_COMM_RECEIVE,
                           .format = TM_COMM_BYTES,
                           .send = sends ? data : NULL,
                           .receive = sends ? NULL : data,
                           .count = bytes,
                           .peer = peer,
                           .what = what,
                           .step = -1 };
    return tm_comm_run(world, &call, err);
}

/* The first rank of a host. */
static int first_of(const tm_comm *world, int host)
{
    int r = 0;
    while (tm_comm_place_of(world, r).host != host) r++;
    return r;
}

/* --- clocks ------------------------------------------------------------------------------------ */

enum { QUESTIONS = 16 };

static int64_t system_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The first rank asks; it tells what it has found. */
static tm_status ask(tm_comm *world, int whom, int64_t (*now)(void), tm_error *err)
{
    int64_t ahead = 0, quickest = INT64_MAX;
    for (int i = 0; i < QUESTIONS; i++) {
        int64_t begin = now(), its = begin;
        TM_TRY(message(world, true, whom, &its, sizeof its, "what time is it", err));
        TM_TRY(message(world, false, whom, &its, sizeof its, "it is", err));
        int64_t end = now();
        if (end - begin >= quickest) continue;
        quickest = end - begin;
        ahead = its - (begin + quickest / 2);
    }
    return message(world, true, whom, &ahead, sizeof ahead, "your clock is ahead by", err);
}

static tm_status answer(tm_comm *world, int64_t (*now)(void), int64_t *ahead, tm_error *err)
{
    for (int i = 0; i < QUESTIONS; i++) {
        int64_t time;
        TM_TRY(message(world, false, 0, &time, sizeof time, "what time is it", err));
        time = now();
        TM_TRY(message(world, true, 0, &time, sizeof time, "it is", err));
    }
    return message(world, false, 0, ahead, sizeof *ahead, "your clock is ahead by", err);
}

tm_status tm_hosts_clock(tm_comm *world, int64_t (*now)(void), double *ms, tm_error *err)
{
    int     rank = tm_comm_rank(world), hosts = tm_comm_place_of(world, rank).hosts;
    int64_t ahead = 0;
    if (!now) now = system_now;
    *ms = (double)NAN;
    for (int h = 1; h < hosts && rank == 0; h++) TM_TRY(ask(world, first_of(world, h), now, err));
    if (first_of(world, tm_comm_place_of(world, rank).host) != rank) return TM_OK;
    if (rank > 0) TM_TRY(answer(world, now, &ahead, err));
    *ms = (double)ahead * 1e-6;
    return TM_OK;
}

/* --- links ------------------------------------------------------------------------------------- */

typedef struct {
    tm_comm *world;
    char    *data;
    size_t   bytes;
    double   seconds;
} wire;

/* So many times to and fro; the seconds of the one that begins. */
static tm_status to_and_fro(const wire *w, int peer, bool begins, int64_t times, double *seconds, tm_error *err)
{
    int64_t begin = tm_now_ns();
    for (int64_t i = 0; i < 2 * times; i++)
        TM_TRY(message(w->world, (i % 2 == 0) == begins, peer, w->data, w->bytes, "link between hosts", err));
    *seconds = (double)(tm_now_ns() - begin) * 1e-9;
    return TM_OK;
}

static tm_status measure_pair(const wire *w, int peer, bool begins, double *gbps, tm_error *err)
{
    enum { MOST = 1000 };
    double  once, all;
    int64_t times = 1;
    TM_TRY(to_and_fro(w, peer, begins, 1, &once, err)); /* connections are made */
    TM_TRY(to_and_fro(w, peer, begins, 1, &once, err));
    if (begins) times = (int64_t)fmin(fmax(w->seconds / fmax(once, 1e-9), 1), MOST);
    TM_TRY(message(w->world, begins, peer, &times, sizeof times, "how often", err));
    TM_TRY(to_and_fro(w, peer, begins, times, &all, err));
    *gbps = 2 * (double)w->bytes * (double)times / fmax(all, 1e-9) * 1e-9;
    return message(w->world, begins, peer, gbps, sizeof *gbps, "how fast", err);
}

/* Link e is between hosts e and e + 1, around. Those of a turn have no host in common. */
static int turn_of(int link, int hosts)
{
    return hosts % 2 == 1 && link == hosts - 1 ? 2 : link % 2;
}

tm_status tm_hosts_link(tm_comm *world, size_t bytes, double seconds, double *gbps, tm_error *err)
{
    int       rank = tm_comm_rank(world), own = tm_comm_place_of(world, rank).host;
    int       hosts = tm_comm_place_of(world, rank).hosts, links = hosts == 2 ? 1 : hosts;
    wire      w = { world, tm_alloc(bytes), bytes, seconds };
    tm_status st = TM_OK;
    *gbps = (double)NAN;
    memset(w.data, 0x5a, bytes);
    bool first = first_of(world, own) == rank && hosts > 1;
    for (int turn = 0; turn < 3 && first; turn++)
        for (int e = 0; e < links && st == TM_OK; e++) {
            int    other = (e + 1) % hosts;
            double found = 0;
            if (turn_of(e, hosts) != turn || (own != e && own != other)) continue;
            st = measure_pair(&w, first_of(world, own == e ? other : e), own == e, &found, err);
            if (st == TM_OK && !(found <= *gbps)) *gbps = found;
        }
    free(w.data);
    return st;
}
