/* SPDX-License-Identifier: Apache-2.0 */
/* comm/coll/nccl.c - NCCL or RCCL is loaded, and ranks find out whether they have the same one and a GPU each. */
#include "comm/coll/nccl_own.h"

#include "base/arena.h"
#include "comm/engine/tcp.h"
#include "gpu/defaults.h"
#include "gpu/neighbours.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Without those of later versions there are other ways. */
static const struct {
    const char *name;
    size_t      at;
    bool        later;
} names[] = {
#define X(member, result, arguments, later) { "nccl" #member, offsetof(nccl_calls, member), later },
    NCCL_CALLS(X)
#undef X
};
enum { NAMES = sizeof names / sizeof names[0] };

/* --- the library ----------------------------------------------------------------------------- */

static void write_version(int code, char out[24])
{
    int thousand = code < 10000 ? 1000 : 10000;
    snprintf(out, 24, "%d.%d.%d", code / thousand, code % thousand / 100, code % 100);
}

static tm_status find_calls(tm_nccl *n, tm_error *err)
{
    memset(&n->call, 0, sizeof n->call);
    for (int i = 0; i < NAMES; i++) {
        void *symbol = tm_library_symbol(&n->library, names[i].name);
        if (!symbol && !names[i].later)
            return tm_fail(err, TM_UNSUPPORTED, "'%s' (version %s) has no %s; 2.7 of NCCL is the first that will do",
                           n->library.path, *n->facts.version ? n->facts.version : "unknown", names[i].name);
        memcpy((char *)&n->call + names[i].at, &symbol, sizeof symbol);
        if (i > 0) continue;
        int code = n->call.GetVersion(&n->version);
        if (code != NCCL_SUCCESS)
            return tm_fail(err, TM_DEVICE, "'%s': ncclGetVersion: error %d", n->library.path, code);
        write_version(n->version, n->facts.version);
    }
    return TM_OK;
}

enum { MOST_PLACES = 8 };

/* Where pip and conda put it in an environment that is in use, where the loader finds it, and elsewhere. */
static void list_places(char (*path)[PATH_MAX], const char **places)
{
    static const struct {
        const char *variable, *below; /* NULL: what the loader finds */
    } rows[] = { { "VIRTUAL_ENV", "lib/python3*/site-packages/nvidia/nccl/lib" },
                 { "CONDA_PREFIX", "lib/python3*/site-packages/nvidia/nccl/lib" },
                 { "CONDA_PREFIX", "lib" },
                 { NULL, "libnccl.so.2" },
                 { "HOME", ".local/lib/python3*/site-packages/nvidia/nccl/lib" } };
    int n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *folder = rows[i].variable ? getenv(rows[i].variable) : NULL;
        if (rows[i].variable && (!folder || *folder != '/')) continue;
        snprintf(path[n], PATH_MAX, "%.2000s/%s/libnccl.so.2", folder ? folder : "", rows[i].below);
        places[n] = folder ? path[n] : rows[i].below;
        n++;
    }
    places[n++] = "/usr/local/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2";
    places[n] = NULL;
}

/* One of the two, and the GPU whose runtime it works with. */
static tm_status open_kind(tm_nccl *n, bool rccl, const char *given, int wanted, tm_error *err)
{
    static const char *const librccl[] = { "librccl.so.1", "librccl.so", NULL };
    char                     path[MOST_PLACES][PATH_MAX];
    const char              *places[MOST_PLACES + 1], *one[] = { given, NULL };
    tm_text                  tried = { 0 };
    tm_status                st = TM_OK;
    n->facts = (tm_nccl_facts){ .name = rccl ? "rccl" : "nccl", .library = n->library.path };
    list_places(path, places);
    tm_gpu_defaults_set(rccl ? TM_GPU_HIP : TM_GPU_CUDA);
    if (!(rccl && !given ? tm_library_open_of(TM_GPU_HIP, librccl, &n->library, &tried)
                         : tm_library_open(given ? one : places, &n->library, &tried)))
        st = tm_fail(err, TM_INVALID, "%s cannot be loaded (%s)", rccl ? "RCCL" : "NCCL", tried.data ? tried.data : "");
    tm_text_fini(&tried);
    if (st != TM_OK && n->owns_gpu) tm_gpu_defaults_unset(rccl ? TM_GPU_HIP : TM_GPU_CUDA);
    if (st == TM_OK) st = find_calls(n, err);
    if (!n->owns_gpu) return st;
    if (st == TM_OK) st = tm_gpu_open(rccl ? TM_GPU_HIP : TM_GPU_CUDA, wanted, &n->gpu, err);
    if (st == TM_OK) st = tm_gpu_stream_open(n->gpu, &n->stream, err);
    return st;
}

/* The library of the maker of a GPU that is there; one whose calls can be part of graphs, in every format. */
static tm_status open_for_gpu(tm_nccl *n, tm_error *err)
{
    const char *given = getenv("TRAINMARK_NCCL");
    bool        rccl = tm_gpu_is_hip(n->gpu);
    tm_error    why = { 0 };
    tm_status   st = open_kind(n, rccl, given && *given ? given : NULL, 0, &why);
    if (st == TM_OK && n->version < NCCL_HAS_BFLOAT16)
        return tm_fail(err, TM_UNSUPPORTED, "'%s' is version %s; trainings take 2.10 or a later one", n->facts.library,
                       n->facts.version);
    if (st == TM_OK || n->library.handle) return st == TM_OK ? st : tm_fail(err, st, "%s", why.text);
    return tm_fail(
        err, st, "several GPUs train with %s, and %s; install it (%s), or name the file: TRAINMARK_NCCL=FILE",
        rccl ? "RCCL" : "NCCL", why.text,
        rccl ? "`apt-get install rccl`" : "`apt-get install libnccl2`, or `pip install nvidia-nccl-cu12` or -cu13");
}

static tm_status open_here(tm_nccl *n, const char *given, int wanted, tm_error *err)
{
    tm_error why[2] = { { 0 }, { 0 } };
    bool     loaded[2];
    if (!given || !*given) given = getenv("TRAINMARK_NCCL");
    if (given && *given) {
        const char *slash = strrchr(given, '/');
        return open_kind(n, strstr(slash ? slash : given, "rccl") != NULL, given, wanted, err);
    }
    tm_status st[2];
    for (int rccl = 0; rccl < 2; rccl++) {
        n->library.handle = NULL;
        st[rccl] = open_kind(n, rccl, NULL, wanted, &why[rccl]);
        if (st[rccl] == TM_OK) return TM_OK;
        loaded[rccl] = n->library.handle != NULL;
    }
    for (int rccl = 0; rccl < 2; rccl++) /* that is there; what else is missing */
        if (loaded[rccl]) return tm_fail(err, st[rccl], "%s", why[rccl].text);
    return tm_fail(
        err, TM_INVALID,
        "%s; %s; install NCCL (`apt-get install libnccl2`, or `pip install nvidia-nccl-cu12` or -cu13) or RCCL "
        "(`apt-get install rccl`), or name the file: --library FILE",
        why[0].text, why[1].text);
}

/* --- all ranks together ---------------------------------------------------------------------- */

/* What ranks tell each other before they begin. */
typedef struct {
    int64_t status, version, gpus, index;
    char    kind[8], bus[32], text[1024];

    tm_gpu_neighbours near;
} card;

/* " 0-3 5": a run of numbers at a time. */
static void add_number(tm_text *out, int64_t number, int64_t *from, int64_t *to)
{
    if (*from >= 0 && number == *to + 1) {
        *to = number;
        return;
    }
    if (*from >= 0) tm_text_printf(out, " %lld", (long long)*from);
    if (*from >= 0 && *to > *from) tm_text_printf(out, "-%lld", (long long)*to);
    *from = *to = number;
}

/* Which ranks of each host have which GPUs; of the first hosts. */
static void write_places(tm_nccl *n, const card *all)
{
    enum { MOST_HOSTS = 8, NONE = -2 };
    int size = tm_comm_size(n->world), hosts = tm_comm_place_of(n->world, 0).hosts;
    for (int h = 0; h < hosts && h < MOST_HOSTS; h++) {
        tm_text gpus = { 0 };
        int64_t from[2] = { NONE, NONE }, to[2] = { NONE, NONE };
        tm_text_add(&n->places, h ? "; ranks" : "ranks");
        const char *host = NULL;
        for (int r = 0; r < size; r++) {
            tm_comm_place place = tm_comm_place_of(n->world, r);
            if (place.host != h) continue;
            host = place.host_name;
            add_number(&n->places, r, &from[0], &to[0]);
            add_number(&gpus, all[r].index, &from[1], &to[1]);
        }
        add_number(&n->places, NONE, &from[0], &to[0]);
        add_number(&gpus, NONE, &from[1], &to[1]);
        tm_text_printf(&n->places, " on %.64s: GPUs%s", host, gpus.data);
        tm_text_fini(&gpus);
    }
    if (hosts > MOST_HOSTS) tm_text_printf(&n->places, "; and %d more hosts", hosts - MOST_HOSTS);
}

/* Where the GPUs of the first host are. */
static void write_near(tm_nccl *n, const card *all)
{
    for (int r = 0; r < tm_comm_size(n->world); r++) {
        tm_comm_place            place = tm_comm_place_of(n->world, r);
        const tm_gpu_neighbours *near = &all[r].near;
        if (place.host != 0) continue;
        tm_text_printf(&n->near, "%srank %d: GPU %lld at %s", n->near.length ? "; " : "", r, (long long)all[r].index,
                       near->bus);
        if (near->numa_node >= 0) tm_text_printf(&n->near, ", NUMA node %d", near->numa_node);
        if (near->nics > 0) tm_text_printf(&n->near, ", %s", near->nic);
        if (near->nics > 1) tm_text_printf(&n->near, " of %d as near", near->nics);
    }
}

static tm_status compare(const tm_nccl *n, const card *all, tm_error *err)
{
    int size = tm_comm_size(n->world);
    for (int r = 0; r < size; r++)
        if (all[r].status != TM_OK)
            return tm_fail(err, (tm_status)all[r].status, "rank %d on %s: %s", r,
                           tm_comm_place_of(n->world, r).host_name, all[r].text);
    for (int r = 0; r < size; r++) {
        char          first[24], other[24];
        tm_comm_place own = tm_comm_place_of(n->world, r);
        write_version((int)all[0].version, first);
        write_version((int)all[r].version, other);
        if (all[r].version != all[0].version || strcmp(all[r].kind, all[0].kind) != 0)
            return tm_fail(err, TM_INVALID, "rank 0 has %s %s, rank %d on %s has %s %s; all need the same", all[0].kind,
                           first, r, own.host_name, all[r].kind, other);
        for (int k = 0; k < r; k++)
            if (tm_comm_place_of(n->world, k).host == own.host && strcmp(all[k].bus, all[r].bus) == 0)
                return tm_fail(
                    err, TM_INVALID,
                    "ranks %d and %d on %s would use the same GPU (%s): %d ranks there, and rank %d sees %lld "
                    "GPU%s; NCCL takes one rank for a GPU: %s",
                    k, r, own.host_name, all[r].bus, own.local_size, r, (long long)all[r].gpus,
                    all[r].gpus == 1 ? "" : "s",
                    all[r].gpus < own.local_size ? "start at most as many ranks as there are GPUs"
                                                 : "name none (--device without a number), and each takes its own");
    }
    return TM_OK;
}

int tm_nccl_place(const tm_comm *world)
{
    int local = tm_comm_place_of(world, tm_comm_rank(world)).local_rank;
    return strcmp(tm_comm_engine_name(world), "tcp") == 0 ? tm_comm_number("LOCAL_RANK", local) : local;
}

/* Opens library and GPU on every rank; if one cannot, none goes on. */
static tm_status barrier(tm_nccl *n, const char *library, tm_error *err)
{
    tm_comm      *world = n->world;
    card         *all = tm_alloc((size_t)tm_comm_size(world) * sizeof *all), own;
    tm_error      why = { 0 };
    tm_collective gather = { .kind = TM_COMM_ALL_GATHER,
                             .format = TM_COMM_BYTES,
                             .send = &own,
                             .receive = all,
                             .count = sizeof own,
                             .what = "GPUs and libraries",
                             .step = -1 };
    memset(&own, 0, sizeof own);
    own.status = n->owns_gpu ? open_here(n, library, tm_nccl_place(world), &why) : open_for_gpu(n, &why);
    own.version = n->version;
    snprintf(own.text, sizeof own.text, "%.1000s", why.text);
    snprintf(own.kind, sizeof own.kind, "%s", n->facts.name);
    if (own.status == TM_OK) {
        own.gpus = tm_gpu_facts_of(n->gpu)->count;
        own.index = tm_gpu_facts_of(n->gpu)->index;
        snprintf(own.bus, sizeof own.bus, "%s", tm_gpu_facts_of(n->gpu)->bus);
        tm_gpu_neighbours_find(own.bus, "", &own.near);
    }
    tm_status st = tm_comm_run(world, &gather, err);
    if (st == TM_OK) st = compare(n, all, err);
    if (st == TM_OK) write_places(n, all);
    if (st == TM_OK) write_near(n, all);
    free(all);
    return st;
}

/* The id of the group's first rank (a lane's: of who sends) goes to all; an id that could not be made, too. */
static tm_status share_id(const tm_nccl_group *g, const tm_nccl_lane *lane, nccl_unique_id *id, tm_error *err)
{
    struct {
        int64_t        code;
        nccl_unique_id id;
    } message;
    const tm_nccl *n = g->of;
    tm_collective  tell = { .kind = TM_COMM_BROADCAST,
                            .format = TM_COMM_BYTES,
                            .send = &message,
                            .receive = &message,
                            .count = sizeof message,
                            .what = "the communicator's id",
                            .step = -1 };
    memset(&message, 0, sizeof message);
    int root = lane ? lane->from : 0;
    if (tm_comm_rank(g->ranks) == root) message.code = n->call.GetUniqueId(&message.id);
    if (lane && g->rank == 0) tell.kind = TM_COMM_SEND, tell.peer = lane->to, tell.buffered = true;
    if (lane && g->rank == 1) tell.kind = TM_COMM_RECEIVE, tell.peer = root;
    TM_TRY(tm_comm_run(g->ranks, &tell, err));
    *id = message.id;
    if (message.code == NCCL_SUCCESS) return TM_OK;
    return tm_fail(err, TM_DEVICE, "rank %d of group %s: ncclGetUniqueId: %s (%d)", root, tm_comm_name(g->ranks),
                   n->call.GetErrorString((int)message.code), (int)message.code);
}

static tm_status connect_all(tm_nccl_group *g, const nccl_unique_id *id, tm_error *err)
{
    tm_nccl           *n = g->of;
    nccl_config        plain = { sizeof plain, NCCL_MAGIC, NCCL_HAS_CONFIG, 1, NCCL_UNSET };
    nccl_blocks_config narrow = {
        sizeof narrow, NCCL_MAGIC, NCCL_HAS_BLOCKS, 1, NCCL_UNSET, 1, NCCL_LANE_BLOCKS, NULL
    };
    const char *wish = getenv("NCCL_COMM_BLOCKING"); /* the library's own variable */
    n->last.step = -1;
    snprintf(n->last.what, sizeof n->last.what, "communicator of %d GPUs", g->size);
    bool  old = !n->call.CommInitRankConfig || n->version < NCCL_HAS_CONFIG;
    bool  bounded = g->lane && n->version >= NCCL_HAS_BLOCKS;
    void *options = bounded ? (void *)&narrow : &plain;
    n->facts.blocking = old || !wish || strcmp(wish, "0") != 0;
    plain.blocking = narrow.blocking = n->facts.blocking;
    if (old) NCCL_MUST(g, CommInitRank, &g->comm, g->size, *id, g->rank);
    if (!old) NCCL_MUST(g, CommInitRankConfig, &g->comm, g->size, *id, g->rank, options);
    return TM_OK;
}

static tm_status open_communicator(tm_nccl *n, const tm_nccl_group *like, const tm_nccl_lane *lane, tm_nccl_group **out,
                                   tm_error *err)
{
    nccl_unique_id id;
    if (n->failed) return tm_fail(err, n->error.status, "%s", n->error.text);
    tm_nccl_group *g = tm_alloc(sizeof *g);
    *g = *like;
    g->of = n;
    n->group = tm_realloc(n->group, (size_t)(n->groups + 1) * sizeof(tm_nccl_group *));
    n->group[n->groups++] = g;
    TM_TRY(share_id(g, lane, &id, err));
    TM_TRY(connect_all(g, &id, err));
    *out = g;
    return TM_OK;
}

tm_status tm_nccl_group_open(tm_nccl *n, tm_comm *ranks, tm_nccl_group **out, tm_error *err)
{
    tm_nccl_group like = { .ranks = ranks, .size = tm_comm_size(ranks), .rank = tm_comm_rank(ranks) };
    return open_communicator(n, &like, NULL, out, err);
}

tm_status tm_nccl_lane_open(tm_nccl *n, tm_comm *ranks, const tm_nccl_lane *lane, tm_nccl_group **out, tm_error *err)
{
    int           rank = tm_comm_rank(ranks);
    tm_nccl_group like = { .ranks = ranks, .size = 2, .rank = rank == lane->to, .lane = true };
    TM_ASSERT(lane->from != lane->to && (rank == lane->from || rank == lane->to));
    return open_communicator(n, &like, lane, out, err);
}

/* What calls that are noted take. */
static tm_status open_marks(tm_nccl *n, tm_error *err)
{
    enum { COUNT = NCCL_NUMBERS + 1 };
    void    *pinned, *table;
    int32_t *numbers = tm_alloc(COUNT * sizeof *numbers);
    for (int i = 0; i < COUNT; i++) numbers[i] = i - 1;
    tm_status st = tm_gpu_alloc_pinned(n->gpu, sizeof(int32_t), &pinned, err);
    if (st == TM_OK) {
        n->under_way = pinned;
        *n->under_way = -1;
        st = tm_gpu_alloc(n->gpu, COUNT * sizeof *numbers, &table, err);
    }
    if (st == TM_OK) {
        n->numbers = table;
        st = tm_gpu_write(n->gpu, table, numbers, COUNT * sizeof *numbers, err);
    }
    free(numbers);
    return st;
}

static tm_nccl *new_nccl(tm_comm *world, double deadline_s)
{
    tm_nccl *n = memset(tm_alloc(sizeof *n), 0, sizeof *n);
    n->world = world;
    n->deadline_s = deadline_s > 0 ? deadline_s : TM_COMM_DEADLINE_S;
    return n;
}

static void begin_watch(tm_nccl *n)
{
    n->watches = pthread_create(&n->watcher, NULL, nccl_watch, n) == 0;
}

tm_status tm_nccl_open(tm_comm *world, const char *library, double deadline_seconds, tm_nccl **out, tm_error *err)
{
    tm_nccl       *n = new_nccl(world, deadline_seconds);
    tm_nccl_group *all;
    n->owns_gpu = true;
    *out = NULL;
    tm_status st = barrier(n, library, err);
    if (st == TM_OK) begin_watch(n);
    if (st == TM_OK) st = tm_nccl_group_open(n, world, &all, err);
    if (st == TM_OK)
        *out = n;
    else
        tm_nccl_close(n);
    return st;
}

tm_status tm_nccl_open_on(tm_comm *world, tm_gpu *gpu, tm_nccl **out, tm_error *err)
{
    tm_nccl *n = new_nccl(world, world->world->deadline_s);
    n->gpu = gpu;
    *out = NULL;
    tm_status st = barrier(n, NULL, err);
    if (st == TM_OK) begin_watch(n);
    if (st == TM_OK) st = open_marks(n, err);
    if (st == TM_OK)
        *out = n;
    else
        tm_nccl_close(n);
    return st;
}

static void close_groups(tm_nccl *n)
{
    tm_error ignored = { 0 };
    for (int i = 0; i < n->groups; i++) {
        tm_nccl_group *g = n->group[i];
        nccl_enter(n, "ncclCommFinalize");
        if (g->comm && !n->failed && n->call.CommFinalize &&
            nccl_through(g, "ncclCommFinalize", n->call.CommFinalize(g->comm), &ignored) != TM_OK)
            return; /* all of them were given up */
        nccl_enter(n, "ncclCommDestroy");
        if (g->comm) n->call.CommDestroy(g->comm);
        g->comm = NULL;
    }
}

void tm_nccl_close(tm_nccl *n)
{
    if (!n) return;
    close_groups(n);
    n->since_ns = 0;
    n->ends = true;
    if (n->watches) pthread_join(n->watcher, NULL);
    if (n->numbers) tm_gpu_free(n->gpu, n->numbers);
    if (n->under_way) tm_gpu_free_pinned(n->gpu, (void *)n->under_way);
    if (n->gpu && n->stream) tm_gpu_stream_close(n->gpu, n->stream);
    if (n->owns_gpu) tm_gpu_close(n->gpu);
    tm_text_fini(&n->places);
    tm_text_fini(&n->near);
    for (int i = 0; i < n->groups; i++) free(n->group[i]);
    free(n->group);
    free(n->noted);
    free(n);
}

const tm_nccl_facts *tm_nccl_facts_of(const tm_nccl *n)
{
    return &n->facts;
}

tm_gpu *tm_nccl_gpu(tm_nccl *n)
{
    return n->gpu;
}

void *tm_nccl_stream(tm_nccl *n)
{
    return n->stream;
}

const char *tm_nccl_places(const tm_nccl *n)
{
    return n->places.data;
}

const char *tm_nccl_near(const tm_nccl *n)
{
    return n->near.data;
}
