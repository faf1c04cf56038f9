/* SPDX-License-Identifier: Apache-2.0 */
/* comm/comm.c - worlds and their groups; which algorithm a call takes. */
#include "comm/coll/coll.h"

#include "base/arena.h"
#include "base/cpu.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORLD_SLOT = 0 };

_Static_assert(sizeof(size_t) == sizeof(int64_t), "counts travel as int64");

static void *take(size_t bytes)
{
    return memset(tm_alloc(bytes), 0, bytes);
}

/* --- groups ---------------------------------------------------------------------------------- */

/* Bare: calls within a host can be made, nothing is kept for the world. */
static tm_comm *make_local(tm_comm_world *world, int *member, int size, int slot, uint32_t step, const char *name)
{
    tm_comm *comm = take(sizeof *comm);
    *comm = (tm_comm){ .world = world, .size = size, .rank = -1, .member = member, .slot = slot, .step = step };
    snprintf(comm->name, sizeof comm->name, "%s", name);
    comm->way = "";
    comm->one_host = true;
    for (int r = 0; r < size; r++) {
        if (member[r] == world->ports.rank) comm->rank = r;
        comm->one_host = comm->one_host && world->ports.host[member[r]] == world->ports.host[world->ports.rank];
    }
    TM_ASSERT(comm->rank >= 0);
    comm->slots = take((size_t)size * sizeof(tm_comm_slot *));
    for (int r = 0; r < size && comm->one_host; r++)
        comm->slots[r] = &world->segment[world->local[member[r]]]->slot[slot];
    return comm;
}

/* Of a group on several hosts: which of its ranks share one, and those that share this one. */
static void find_hosts(tm_comm *comm)
{
    const tm_comm_ports *ports = &comm->world->ports;
    int                 *host = take((size_t)comm->size * sizeof *host), *own, n = 0;
    for (int r = 0; r < comm->size; r++) host[r] = ports->host[comm->member[r]];
    comm->hosts = tm_comm_hosts_make(host, comm->size);
    free(host);
    if (comm->hosts->hosts == comm->size) {
        tm_comm_hosts_free(comm->hosts);
        comm->hosts = NULL;
        return;
    }
    own = take((size_t)comm->size * sizeof *own);
    for (int r = 0; r < comm->size; r++)
        if (comm->hosts->host[r] == comm->hosts->host[comm->rank]) own[n++] = comm->member[r];
    comm->inner = make_local(comm->world, own, n, comm->slot, comm->step, comm->name);
    comm->inner->inside = true;
}

/* `member` becomes the group's. */
static tm_comm *make_group(tm_comm_world *world, int *member, int size, int slot, uint32_t step, const char *name)
{
    tm_comm *comm = make_local(world, member, size, slot, step, name);
    if (!comm->one_host) find_hosts(comm);
    comm->matrix = take((size_t)size * (size_t)size * sizeof *comm->matrix);
    comm->first = take(((size_t)size + 1) * sizeof *comm->first);
    comm->parts = take((size_t)size * sizeof *comm->parts);
    comm->headers = take((size_t)size * sizeof *comm->headers);
    if (!comm->one_host) comm->scratch = take(TM_COMM_SCRATCH);
    pthread_mutex_lock(&world->lock);
    world->used |= (uint64_t)1 << slot;
    world->groups++;
    pthread_mutex_unlock(&world->lock);
    return comm;
}

/* That the ranks of this host have together: not the affinity of this one, which may be its share. */
static int processors(void)
{
    double quota = tm_cgroup_limits_read("").cpus;
    int    online = tm_cpu_online("");
    return quota < online ? (int)quota : online;
}

tm_comm *tm_comm_world_open(const tm_comm_ports *ports, void *const *segment, double deadline_seconds)
{
    tm_comm_world *world = take(sizeof *world);
    int            size = ports->size, *member = take((size_t)size * sizeof *member);
    world->ports = *ports;
    world->local = take((size_t)size * sizeof *world->local);
    world->deadline_s = deadline_seconds > 0 ? deadline_seconds : TM_COMM_DEADLINE_S;
    int *seen = take((size_t)size * sizeof *seen);
    for (int r = 0; r < size; r++) {
        member[r] = r;
        world->local[r] = seen[ports->host[r]]++;
        if (ports->host[r] >= world->hosts) world->hosts = ports->host[r] + 1;
    }
    world->local_size = seen[ports->host[ports->rank]];
    free(seen);
    TM_ASSERT(world->local_size <= TM_COMM_LOCAL);
    for (int l = 0; l < world->local_size; l++) world->segment[l] = segment[l];
    world->segment[world->local[ports->rank]]->pid = getpid();
    world->oversubscribed = world->local_size > processors();
    pthread_mutex_init(&world->lock, NULL);
    tm_comm_ring_open(world);
    return make_group(world, member, size, WORLD_SLOT, 0, "world");
}

/* What ranks tell each other when they split. */
typedef struct {
    int64_t  color, key;
    uint64_t slots;
    uint32_t step[TM_COMM_GROUPS];
} offer;

typedef struct {
    int64_t key;
    int     rank; /* in the group that is split */
} candidate;

static int by_key(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->rank - y->rank;
}

static tm_status choose(tm_comm *comm, const offer *all, const char *name, tm_comm **out, tm_error *err)
{
    const offer *own = &all[comm->rank];
    uint64_t     used = 0;
    candidate   *found = take((size_t)comm->size * sizeof *found);
    int          n = 0, slot = 0;
    uint32_t     step = 0;
    for (int r = 0; r < comm->size; r++) {
        used |= all[r].slots;
        if (own->color >= 0 && all[r].color == own->color) found[n++] = (candidate){ all[r].key, r };
    }
    if (used == UINT64_MAX) {
        free(found);
        return tm_comm_fail(comm, TM_INVALID, err, "'%s' would be group number %d of a rank; there may be %d", name,
                            TM_COMM_GROUPS + 1, TM_COMM_GROUPS);
    }
    while (used >> slot & 1) slot++;
    if (n > 0) {
        qsort(found, (size_t)n, sizeof *found, by_key);
        int *member = take((size_t)n * sizeof *member);
        for (int i = 0; i < n; i++) {
            uint32_t theirs = all[found[i].rank].step[slot];
            member[i] = comm->member[found[i].rank];
            if (i == 0 || (int32_t)(theirs - step) > 0) step = theirs;
        }
        *out = make_group(comm->world, member, n, slot, step, name);
    }
    free(found);
    return TM_OK;
}

tm_status tm_comm_split(tm_comm *comm, int color, int key, const char *name, tm_comm **out, tm_error *err)
{
    tm_comm_world *world = comm->world;
    offer         *all = take((size_t)comm->size * sizeof *all), *own = &all[comm->rank];
    char           what[TM_COMM_WHAT];
    *out = NULL;
    pthread_mutex_lock(&world->lock);
    *own = (offer){ .color = color, .key = key, .slots = world->used };
    memcpy(own->step, world->step, sizeof own->step);
    pthread_mutex_unlock(&world->lock);
    snprintf(what, sizeof what, "split into %s", name);
    tm_collective gather = { .kind = TM_COMM_ALL_GATHER,
                             .format = TM_COMM_BYTES,
                             .send = own,
                             .receive = all,
                             .count = sizeof *own,
                             .what = what,
                             .step = -1 };
    tm_status     st = tm_comm_run(comm, &gather, err);
    if (st == TM_OK) st = choose(comm, all, name, out, err);
    free(all);
    return st;
}

static void free_world(tm_comm_world *world)
{
    tm_comm_send_queue_close(world);
    tm_comm_stages_close(world);
    tm_comm_ring_close(world);
    for (int i = 0; i < world->n_windows; i++) tm_comm_window_close(world->window[i]);
    const tm_comm_engine *engine = world->ports.engine;
    bool                  waits = engine->end_s > 0 && !world->failed;
    tm_comm_watchdog     *guard =
        waits ? tm_comm_watchdog_begin(world->ports.rank, world->deadline_s + engine->end_s, "the end of all ranks")
                  : NULL;
    engine->close(world->ports.own, world->failed);
    tm_comm_watchdog_end(guard);
    pthread_mutex_destroy(&world->lock);
    free(world->local);
    free(world);
}

static void free_group(tm_comm *comm)
{
    if (!comm) return;
    tm_comm_hosts_free(comm->hosts);
    free(comm->member);
    free(comm->slots);
    free(comm->scratch);
    free(comm->matrix);
    free(comm->first);
    free(comm->parts);
    free(comm->headers);
    free(comm->message);
    free(comm);
}

bool tm_comm_broken(const tm_comm *comm)
{
    return comm->world->failed;
}

void tm_comm_close(tm_comm *comm)
{
    if (!comm) return;
    tm_comm_world *world = comm->world;
    tm_error       ignored = { 0 };
    /* A rank that goes while others call something is a mismatch, which they report. */
    tm_collective leave = {
        .kind = (tm_comm_kind)TM_COMM_CLOSE, .format = TM_COMM_BYTES, .what = comm->name, .step = -1
    };
    tm_status st = tm_comm_failed(comm, &ignored);
    if (st == TM_OK)
        st = comm->one_host ? tm_comm_run_intra(comm, &leave, &ignored) : tm_comm_run_inter(comm, &leave, &ignored);
    pthread_mutex_lock(&world->lock);
    world->step[comm->slot] = comm->inner ? comm->inner->step : comm->step;
    world->used &= ~((uint64_t)1 << comm->slot);
    int left = --world->groups;
    pthread_mutex_unlock(&world->lock);
    bool is_world = comm->slot == WORLD_SLOT;
    TM_ASSERT(!is_world || left == 0);
    free_group(comm->inner);
    free_group(comm);
    if (is_world) free_world(world);
}

/* --- facts ----------------------------------------------------------------------------------- */

int tm_comm_rank(const tm_comm *comm)
{
    return comm->rank;
}

int tm_comm_size(const tm_comm *comm)
{
    return comm->size;
}

const char *tm_comm_name(const tm_comm *comm)
{
    return comm->name;
}

const char *tm_comm_engine_name(const tm_comm *comm)
{
    return comm->world->ports.engine->name;
}

const char *tm_comm_way(const tm_comm *comm)
{
    return comm->way;
}

uint64_t tm_comm_sent_between_hosts(const tm_comm *comm)
{
    return atomic_load_explicit(&comm->world->between, memory_order_relaxed);
}

int64_t tm_comm_waited_ns(const tm_comm *comm)
{
    return atomic_load_explicit(&comm->world->waited_ns, memory_order_relaxed);
}

void tm_comm_set_direct(tm_comm *comm, bool direct)
{
    comm->direct = direct;
}

tm_comm_place tm_comm_place_of(const tm_comm *comm, int rank)
{
    const tm_comm_world *world = comm->world;
    TM_ASSERT(rank >= 0 && rank < comm->size);
    int           of = comm->member[rank], host = world->ports.host[of];
    tm_comm_place place = { host, world->hosts, world->local[of], 0, world->ports.host_name[host] };
    for (int r = 0; r < world->ports.size; r++) place.local_size += world->ports.host[r] == host;
    return place;
}

size_t tm_comm_bytes_of(tm_comm_format format)
{
    static const size_t bytes[] = {
        [TM_COMM_BYTES] = 1, [TM_COMM_INT64] = 8, [TM_COMM_FLOAT64] = 8, [TM_COMM_FLOAT32] = 4, [TM_COMM_BFLOAT16] = 2
    };
    TM_ASSERT((size_t)format < sizeof bytes / sizeof bytes[0]);
    return bytes[format];
}

void tm_comm_count(tm_comm_world *world, int to, size_t bytes)
{
    if (world->ports.host[to] != world->ports.host[world->ports.rank])
        atomic_fetch_add_explicit(&world->between, bytes, memory_order_relaxed);
}

/* --- calls ----------------------------------------------------------------------------------- */

static void check(const tm_comm *comm, const tm_collective *call)
{
    size_t bytes = tm_comm_bytes_of(call->format);
    bool   reduces = call->kind == TM_COMM_ALL_REDUCE || call->kind == TM_COMM_REDUCE_SCATTER;
    bool   pair = call->kind == TM_COMM_SEND || call->kind == TM_COMM_RECEIVE;
    TM_ASSERT((int)call->kind >= 0 && (int)call->kind <= TM_COMM_RECEIVE);
    TM_ASSERT(!reduces || (call->format != TM_COMM_BYTES && (int)call->op >= 0 && call->op <= TM_COMM_MIN));
    TM_ASSERT(call->count <= (size_t)INT64_MAX / bytes / (size_t)comm->size);
    if (pair || call->kind == TM_COMM_BROADCAST) TM_ASSERT(call->peer >= 0 && call->peer < comm->size);
    if (pair) TM_ASSERT(call->peer != comm->rank && (call->channel == 0 || call->channel == 1));
    if (call->kind == TM_COMM_ALL_TO_ALL)
        TM_ASSERT(!call->send_counts == !call->receive_counts);
    else
        TM_ASSERT(!call->send_counts && !call->receive_counts);
}

tm_status tm_comm_run(tm_comm *comm, const tm_collective *call, tm_error *err)
{
    check(comm, call);
    TM_TRY(tm_comm_failed(comm, err));
    if (call->kind == TM_COMM_SEND || call->kind == TM_COMM_RECEIVE) return tm_comm_run_pair(comm, call, err);
    return comm->one_host ? tm_comm_run_intra(comm, call, err) : tm_comm_run_inter(comm, call, err);
}
