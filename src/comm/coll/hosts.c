/* SPDX-License-Identifier: Apache-2.0 */
/* comm/coll/hosts.c - see comm/coll/hosts.h. */
#include "comm/coll/hosts.h"

#include "base/arena.h"
#include "comm/group.h"

#include <stdlib.h>
#include <string.h>

static int *numbers(int n)
{
    return memset(tm_alloc((size_t)n * sizeof(int)), 0, (size_t)n * sizeof(int));
}

static void find_runs(tm_comm_hosts *h)
{
    for (int r = 0; r < h->size; r++) {
        bool begins = r == 0 || h->host[r] != h->host[r - 1];
        if (begins) h->run_first[h->runs++] = r;
        h->run[r] = h->runs - 1;
        h->last_run[h->host[r]] = h->runs - 1;
    }
    h->run_first[h->runs] = h->size;
    for (int j = 0; j < h->runs; j++) {
        int length = h->run_first[j + 1] - h->run_first[j];
        if (length > h->lanes) h->lanes = length;
    }
}

static void order_hosts(tm_comm_hosts *h)
{
    int n = 0;
    for (int j = h->runs - 1; j >= 0; j--) {
        int host = h->host[h->run_first[j]];
        if (h->last_run[host] != j) continue;
        h->back_at[host] = n;
        h->back[n++] = host;
    }
    for (int host = 0, at = 0; host < h->hosts; host++) {
        h->host_first[host] = at;
        for (int r = 0; r < h->size; r++)
            if (h->host[r] == host) h->members[at++] = r;
        h->host_first[host + 1] = at;
    }
}

tm_comm_hosts *tm_comm_hosts_make(const int *host, int size)
{
    tm_comm_hosts *h = tm_alloc(sizeof *h);
    *h = (tm_comm_hosts){ .size = size };
    h->host = numbers(size), h->run = numbers(size), h->members = numbers(size), h->last_run = numbers(size);
    h->back = numbers(size), h->back_at = numbers(size);
    h->run_first = numbers(size + 1), h->host_first = numbers(size + 1);
    for (int r = 0; r < size; r++) {
        int before = 0;
        while (before < r && host[before] != host[r]) before++;
        h->host[r] = before < r ? h->host[before] : h->hosts++;
    }
    find_runs(h);
    order_hosts(h);
    return h;
}

void tm_comm_hosts_free(tm_comm_hosts *h)
{
    if (!h) return;
    int *all[] = { h->host, h->run, h->members, h->last_run, h->back, h->back_at, h->run_first, h->host_first };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
    free(h);
}

int tm_comm_hosts_owner(const tm_comm_hosts *h, int run, int lane)
{
    int first = h->run_first[run];
    return first + lane % (h->run_first[run + 1] - first);
}

int tm_comm_hosts_keeper(const tm_comm_hosts *h, int host, int lane)
{
    return tm_comm_hosts_owner(h, h->last_run[host], lane);
}

/* The ranks of a host are dealt out among those of every other one. */
int tm_comm_hosts_partner(const tm_comm_hosts *h, int host, int rank)
{
    const int *own = h->members + h->host_first[h->host[rank]], first = h->host_first[host];
    int        at = 0;
    while (own[at] != rank) at++;
    return h->members[first + at % (h->host_first[host + 1] - first)];
}

static double ranks_of(const tm_comm_hosts *h, int host)
{
    return h->host_first[host + 1] - h->host_first[host];
}

/* `one`: bytes of call->count elements. */
static tm_comm_moved from_rank_to_rank(const tm_comm_hosts *h, const tm_collective *call, double one)
{
    double p = h->size, apart = 0, together = 0; /* pairs of ranks */
    for (int host = 0; host < h->hosts; host++) {
        apart += ranks_of(h, host) * (p - ranks_of(h, host));
        together += ranks_of(h, host) * (ranks_of(h, host) - 1);
    }
    if (call->kind == TM_COMM_BROADCAST) {
        double local = ranks_of(h, h->host[call->peer]);
        return (tm_comm_moved){ one * (p - local), one * (local - 1) };
    }
    double times = call->kind == TM_COMM_ALL_REDUCE ? 2 / p : 1;
    return (tm_comm_moved){ times * one * apart, times * one * together };
}

static tm_comm_moved shared_by_hosts(const tm_comm_hosts *h, const tm_collective *call, double one)
{
    double p = h->size, wide = call->format == TM_COMM_BFLOAT16 ? 2 : 1, last = ranks_of(h, h->back[0]);
    double further = h->hosts - 1, runs = h->runs;
    switch ((int)call->kind) {
    case TM_COMM_ALL_REDUCE:
        return (tm_comm_moved){ one * (wide * (runs - 1) + further), one * (p - runs + p - h->hosts) };
    case TM_COMM_REDUCE_SCATTER:
        return (tm_comm_moved){ one * (p * wide * (runs - 1) + p - last), one * (p * (p - runs) + last - 1) };
    case TM_COMM_ALL_GATHER:
        return (tm_comm_moved){ one * p * further, one * p * (p - h->hosts) };
    default:
        return (tm_comm_moved){ one * further, one * (p - h->hosts) };
    }
}

static bool moves_data(tm_comm_kind kind)
{
    return kind == TM_COMM_ALL_REDUCE || kind == TM_COMM_REDUCE_SCATTER || kind == TM_COMM_ALL_GATHER ||
           kind == TM_COMM_BROADCAST || kind == TM_COMM_ALL_TO_ALL;
}

tm_comm_moved tm_comm_hosts_moved(const tm_comm_hosts *h, const tm_collective *call, bool shared)
{
    double one = (double)call->count * (double)tm_comm_bytes_of(call->format);
    if (!moves_data(call->kind)) return (tm_comm_moved){ 0, 0 };
    return shared && call->kind != TM_COMM_ALL_TO_ALL ? shared_by_hosts(h, call, one) : from_rank_to_rank(h, call, one);
}

bool tm_comm_hosts_share(const tm_comm_hosts *h, const tm_collective *call)
{
    bool   parts = call->kind == TM_COMM_REDUCE_SCATTER || call->kind == TM_COMM_ALL_GATHER;
    double whole = (double)call->count * (double)tm_comm_bytes_of(call->format) * (parts ? h->size : 1);
    if (!moves_data(call->kind) || call->kind == TM_COMM_ALL_TO_ALL || whole < TM_COMM_HOSTS_LEAST) return false;
    return tm_comm_hosts_moved(h, call, true).between < tm_comm_hosts_moved(h, call, false).between;
}
