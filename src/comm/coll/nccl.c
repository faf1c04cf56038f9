/* SPDX-License-Identifier: Apache-2.0 */
/* comm/coll/nccl.c - the only file that knows NCCL, and RCCL, which has the same names and numbers. */
#include "comm/coll/nccl.h"

#include "base/arena.h"
#include "base/clock.h"
#include "comm/group.h"
#include "gpu/defaults.h"
#include "gpu/library.h"
#include "comm/engine/tcp.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- what the library's header says ---------------------------------------------------------- */

enum { ID_BYTES = 128, SUCCESS = 0, IN_PROGRESS = 7, HAS_CONFIG = 21400, HAS_BFLOAT16 = 21000 };

typedef struct {
    char bytes[ID_BYTES];
} unique_id;

/* The first of its kind (2.14): later ones have more behind it, and take this as what it says it is. */
typedef struct {
    size_t   size;
    unsigned magic, version;
    int      blocking, unset;
} config;

typedef struct {
    int (*GetVersion)(int *version);
    int (*GetUniqueId)(unique_id *id);
    const char *(*GetErrorString)(int code);
    const char *(*GetLastError)(void *comm);
    int (*CommInitRank)(void **comm, int size, unique_id id, int rank);
    int (*CommInitRankConfig)(void **comm, int size, unique_id id, int rank, config *config);
    int (*CommFinalize)(void *comm);
    int (*CommDestroy)(void *comm);
    int (*CommAbort)(void *comm);
    int (*CommGetAsyncError)(void *comm, int *code);
    int (*AllReduce)(const void *send, void *receive, size_t count, int type, int op, void *comm, void *stream);
    int (*ReduceScatter)(const void *send, void *receive, size_t count, int type, int op, void *comm, void *stream);
    int (*AllGather)(const void *send, void *receive, size_t count, int type, void *comm, void *stream);
    int (*Broadcast)(const void *send, void *receive, size_t count, int type, int root, void *comm, void *stream);
    int (*Send)(const void *send, size_t count, int type, int peer, void *comm, void *stream);
    int (*Recv)(void *receive, size_t count, int type, int peer, void *comm, void *stream);
    int (*GroupStart)(void);
    int (*GroupEnd)(void);
} calls;

/* Without those of later versions there are other ways. */
#define ROW(member, later)                                                                                             \
    {                                                                                                                  \
        "nccl" #member, offsetof(calls, member), later                                                                 \
    }
static const struct {
    const char *name;
    size_t      at;
    bool        later;
} names[] = {
    ROW(GetVersion, false),   ROW(GetUniqueId, false),       ROW(GetErrorString, false), ROW(GetLastError, true),
    ROW(CommInitRank, false), ROW(CommInitRankConfig, true), ROW(CommFinalize, true),    ROW(CommDestroy, false),
    ROW(CommAbort, false),    ROW(CommGetAsyncError, false), ROW(AllReduce, false),      ROW(ReduceScatter, false),
    ROW(AllGather, false),    ROW(Broadcast, false),         ROW(Send, false),           ROW(Recv, false),
    ROW(GroupStart, false),   ROW(GroupEnd, false),
};
enum { NAMES = sizeof names / sizeof names[0] };

static const int types[] = {
    [TM_COMM_BYTES] = 1, [TM_COMM_INT64] = 4, [TM_COMM_FLOAT64] = 8, [TM_COMM_FLOAT32] = 7, [TM_COMM_BFLOAT16] = 9
};
static const int ops[] = { [TM_COMM_SUM] = 0, [TM_COMM_MAX] = 2, [TM_COMM_MIN] = 3 };

struct tm_nccl {
    calls          call;
    tm_library     library;
    tm_nccl_facts  facts;
    int            version;
    tm_comm       *world;
    tm_gpu        *gpu;
    void          *stream;
    void          *comm;
    double         deadline_s;
    bool           failed;
    tm_error       error;
    tm_comm_header last; /* what was called last */

    pthread_t           watcher; /* ends the job when a call of the library does not return */
    bool                watches;
    _Atomic bool        ends;
    _Atomic int64_t     since_ns; /* when the call began that has not returned; 0: there is none */
    const char *_Atomic within;   /* which */
};

/* --- failures -------------------------------------------------------------------------------- */

/* The first failure is the one that stays; the communicator is of no use any more. */
static tm_status cancel_all(tm_nccl *n, tm_status st, const tm_error *why, tm_error *err)
{
    if (!n->failed) {
        n->failed = true;
        n->error = (tm_error){ 0 };
        (void)tm_fail(&n->error, st, "%s", why->text);
        if (n->comm) n->call.CommAbort(n->comm);
        n->comm = NULL;
    }
    return tm_fail(err, n->error.status, "%s", n->error.text);
}

static tm_status call_failed(tm_nccl *n, const char *call, int code, tm_error *err)
{
    char        what[256];
    const char *more = n->call.GetLastError && n->comm ? n->call.GetLastError(n->comm) : NULL;
    tm_error    why = { 0 };
    (void)tm_fail(&why, TM_DEVICE, "rank %d: %s (%s): %s (%d)%s%s", tm_comm_rank(n->world), call,
                  tm_comm_header_text(&n->last, what), n->call.GetErrorString(code), code, more && *more ? "; " : "",
                  more ? more : "");
    return cancel_all(n, TM_DEVICE, &why, err);
}

typedef struct {
    int64_t begin_ns, turn;
} backoff;

/* One turn of waiting; false: the deadline has passed. */
static bool wait_turn(const tm_nccl *n, backoff *p)
{
    enum { YIELDS = 2000, NAP_NS = 20000 };
    if (p->turn++ == 0) p->begin_ns = tm_now_ns();
    if (p->turn < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
    return (double)(tm_now_ns() - p->begin_ns) * 1e-9 < n->deadline_s;
}

/* Nobody can tell by a GPU that waits for which rank it does. Ranks that still are there come to a roll call, and its
 * error names the one that does not. */
static void tell_lateness(const tm_nccl *n, const char *where, tm_error *out)
{
    char                what[256];
    tm_error            missing = { 0 };
    const tm_gpu_facts *gpu = tm_gpu_facts_of(n->gpu);
    tm_collective       roll_call = { .kind = TM_COMM_BARRIER, .what = "roll call after a GPU's deadline", .step = -1 };
    if (tm_comm_run(n->world, &roll_call, &missing) == TM_OK)
        (void)tm_fail(&missing, TM_DEVICE, "all ranks are there: look at what links the GPUs (NCCL_DEBUG=INFO)");
    (void)tm_fail(out, TM_DEVICE, "rank %d has waited %g s %s %s on GPU %d (%s); %s", tm_comm_rank(n->world),
                  n->deadline_s, where, tm_comm_header_text(&n->last, what), gpu->index, gpu->bus, missing.text);
}

static tm_status too_late(tm_nccl *n, const char *where, tm_error *err)
{
    tm_error why = { 0 };
    if (n->comm) n->call.CommAbort(n->comm);
    n->comm = NULL;
    tell_lateness(n, where, &why);
    return cancel_all(n, TM_DEVICE, &why, err);
}

/* What a call has returned; if it goes on behind our back, until it has ended. */
static tm_status wait_all(tm_nccl *n, const char *call, int code, tm_error *err)
{
    backoff p = { 0 };
    n->since_ns = 0;
    while (code == IN_PROGRESS && n->comm) {
        int asked = n->call.CommGetAsyncError(n->comm, &code);
        if (asked != SUCCESS) return call_failed(n, "ncclCommGetAsyncError", asked, err);
        if (code == IN_PROGRESS && !wait_turn(n, &p)) return too_late(n, "for the begin of", err);
    }
    return code == SUCCESS ? TM_OK : call_failed(n, call, code, err);
}

static void enter(tm_nccl *n, const char *call)
{
    n->within = call;
    n->since_ns = tm_now_ns();
}

/* One of the calls, as a statement that ends the function if it fails. */
#define MUST(n, name, ...)                                                                                             \
    do {                                                                                                               \
        enter((n), "nccl" #name);                                                                                      \
        TM_TRY(wait_all((n), "nccl" #name, (n)->call.name(__VA_ARGS__), err));                                         \
    } while (0)

/* The library blocks while it makes connections. It can be told not to, but then it starts a thread for every call,
 * which takes 70 us instead of some 5. So somebody else looks at the clock: what hangs cannot be helped, but it is
 * told, and ends. */
static void *watch(void *of)
{
    enum { LOOK_NS = 20000000 };
    tm_nccl *n = of;
    while (!n->ends) {
        int64_t since = n->since_ns;
        if (since > 0 && (double)(tm_now_ns() - since) * 1e-9 > n->deadline_s) {
            tm_error why = { 0 };
            char     where[64];
            snprintf(where, sizeof where, "within %.50s,", n->within);
            tell_lateness(n, where, &why);
            tm_comm_abort(n->world, tm_status_exit_code(TM_DEVICE), why.text);
            break; /* ranks that are threads stay */
        }
        nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
    }
    return NULL;
}

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
        if (code != SUCCESS) return tm_fail(err, TM_DEVICE, "'%s': ncclGetVersion: error %d", n->library.path, code);
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
    if (st != TM_OK) tm_gpu_defaults_unset(rccl ? TM_GPU_HIP : TM_GPU_CUDA);
    if (st == TM_OK) st = find_calls(n, err);
    if (st == TM_OK) st = tm_gpu_open(rccl ? TM_GPU_HIP : TM_GPU_CUDA, wanted, &n->gpu, err);
    if (st == TM_OK) st = tm_gpu_stream_open(n->gpu, &n->stream, err);
    return st;
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
    int64_t status, version, gpus;
    char    kind[8], bus[32], text[1024];
} card;

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
                    "GPU%s; NCCL takes one rank for a GPU: start at most as many ranks as there are GPUs",
                    k, r, own.host_name, all[r].bus, own.local_size, r, (long long)all[r].gpus,
                    all[r].gpus == 1 ? "" : "s");
    }
    return TM_OK;
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
    int local = tm_comm_place_of(world, tm_comm_rank(world)).local_rank;
    if (strcmp(tm_comm_engine_name(world), "tcp") == 0) local = tm_comm_number("LOCAL_RANK", local);
    own.status = open_here(n, library, local, &why);
    own.version = n->version;
    snprintf(own.text, sizeof own.text, "%.1000s", why.text);
    snprintf(own.kind, sizeof own.kind, "%s", n->facts.name);
    if (own.status == TM_OK) {
        own.gpus = tm_gpu_facts_of(n->gpu)->count;
        snprintf(own.bus, sizeof own.bus, "%s", tm_gpu_facts_of(n->gpu)->bus);
    }
    tm_status st = tm_comm_run(world, &gather, err);
    if (st == TM_OK) st = compare(n, all, err);
    free(all);
    return st;
}

/* The first rank's id goes to all; an id that could not be made, too. */
static tm_status share_id(tm_nccl *n, unique_id *id, tm_error *err)
{
    struct {
        int64_t   code;
        unique_id id;
    } message;
    tm_collective tell = { .kind = TM_COMM_BROADCAST,
                           .format = TM_COMM_BYTES,
                           .send = &message,
                           .receive = &message,
                           .count = sizeof message,
                           .what = "the communicator's id",
                           .step = -1 };
    memset(&message, 0, sizeof message);
    if (tm_comm_rank(n->world) == 0) message.code = n->call.GetUniqueId(&message.id);
    TM_TRY(tm_comm_run(n->world, &tell, err));
    *id = message.id;
    if (message.code == SUCCESS) return TM_OK;
    return tm_fail(err, TM_DEVICE, "rank 0: ncclGetUniqueId: %s (%d)", n->call.GetErrorString((int)message.code),
                   (int)message.code);
}

static tm_status connect_all(tm_nccl *n, tm_error *err)
{
    unique_id   id;
    int         size = tm_comm_size(n->world), rank = tm_comm_rank(n->world);
    config      options = { sizeof options, 0xcafebeef, HAS_CONFIG, 1, -2147483647 - 1 };
    const char *wish = getenv("NCCL_COMM_BLOCKING"); /* the library's own variable */
    TM_TRY(share_id(n, &id, err));
    n->last.step = -1;
    snprintf(n->last.what, sizeof n->last.what, "communicator of %d GPUs", size);
    bool old = !n->call.CommInitRankConfig || n->version < HAS_CONFIG;
    n->facts.blocking = old || !wish || strcmp(wish, "0") != 0;
    options.blocking = n->facts.blocking;
    if (old) MUST(n, CommInitRank, &n->comm, size, id, rank);
    if (!old) MUST(n, CommInitRankConfig, &n->comm, size, id, rank, &options);
    return TM_OK;
}

tm_status tm_nccl_open(tm_comm *world, const char *library, double deadline_seconds, tm_nccl **out, tm_error *err)
{
    tm_nccl *n = memset(tm_alloc(sizeof *n), 0, sizeof *n);
    n->world = world;
    n->deadline_s = deadline_seconds > 0 ? deadline_seconds : 300;
    *out = NULL;
    tm_status st = barrier(n, library, err);
    n->watches = st == TM_OK && pthread_create(&n->watcher, NULL, watch, n) == 0;
    if (st == TM_OK) st = connect_all(n, err);
    if (st == TM_OK)
        *out = n;
    else
        tm_nccl_close(n);
    return st;
}

void tm_nccl_close(tm_nccl *n)
{
    tm_error ignored = { 0 };
    if (!n) return;
    enter(n, "ncclCommFinalize");
    if (n->comm && !n->failed && n->call.CommFinalize)
        (void)wait_all(n, "ncclCommFinalize", n->call.CommFinalize(n->comm), &ignored);
    enter(n, "ncclCommDestroy");
    if (n->comm) n->call.CommDestroy(n->comm);
    n->since_ns = 0;
    n->ends = true;
    if (n->watches) pthread_join(n->watcher, NULL);
    if (n->gpu) tm_gpu_stream_close(n->gpu, n->stream);
    tm_gpu_close(n->gpu);
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

/* --- calls ----------------------------------------------------------------------------------- */

/* As messages to and from every rank, all under way at once. */
static tm_status all_to_all(tm_nccl *n, const tm_collective *call, tm_error *err)
{
    size_t      bytes = tm_comm_bytes_of(call->format), to = 0, from = 0;
    int         type = types[call->format];
    const char *send = call->send;
    char       *receive = call->receive;
    TM_TRY(wait_all(n, "ncclGroupStart", n->call.GroupStart(), err));
    for (int r = 0; r < tm_comm_size(n->world); r++) {
        size_t out = call->send_counts ? call->send_counts[r] : call->count;
        size_t in = call->receive_counts ? call->receive_counts[r] : call->count;
        if (out > 0) MUST(n, Send, send + to, out, type, r, n->comm, n->stream);
        if (in > 0) MUST(n, Recv, receive + from, in, type, r, n->comm, n->stream);
        to += out * bytes;
        from += in * bytes;
    }
    enter(n, "ncclGroupEnd");
    return wait_all(n, "ncclGroupEnd", n->call.GroupEnd(), err);
}

tm_status tm_nccl_run(tm_nccl *n, const tm_collective *c, tm_error *err)
{
    int type = types[c->format], op = ops[c->op];
    if (n->failed) return tm_fail(err, n->error.status, "%s", n->error.text);
    if (c->format == TM_COMM_BFLOAT16 && n->version < HAS_BFLOAT16)
        return tm_fail(err, TM_UNSUPPORTED, "'%s' is version %s: bfloat16 came with 2.10; use float32, or a later one",
                       n->facts.library, n->facts.version);
    tm_comm_header_fill(c, &n->last);
    switch (c->kind) {
    case TM_COMM_ALL_REDUCE:
        MUST(n, AllReduce, c->send, c->receive, c->count, type, op, n->comm, n->stream);
        break;
    case TM_COMM_REDUCE_SCATTER:
        MUST(n, ReduceScatter, c->send, c->receive, c->count, type, op, n->comm, n->stream);
        break;
    case TM_COMM_ALL_GATHER:
        MUST(n, AllGather, c->send, c->receive, c->count, type, n->comm, n->stream);
        break;
    case TM_COMM_BROADCAST:
        MUST(n, Broadcast, c->send, c->receive, c->count, type, c->peer, n->comm, n->stream);
        break;
    case TM_COMM_ALL_TO_ALL:
        return all_to_all(n, c, err);
    case TM_COMM_SEND:
        MUST(n, Send, c->send, c->count, type, c->peer, n->comm, n->stream);
        break;
    case TM_COMM_RECEIVE:
        MUST(n, Recv, c->receive, c->count, type, c->peer, n->comm, n->stream);
        break;
    case TM_COMM_BARRIER:
        TM_ASSERT(!"a barrier is the world's");
    }
    return TM_OK;
}

tm_status tm_nccl_wait(tm_nccl *n, tm_error *err)
{
    enum { LOOK = 16 };
    backoff p = { 0 };
    bool    done = false;
    if (n->failed) return tm_fail(err, n->error.status, "%s", n->error.text);
    for (;;) {
        tm_error  why = { 0 };
        int       code = SUCCESS;
        tm_status st = tm_gpu_stream_done(n->gpu, n->stream, &done, &why);
        if (st != TM_OK) return cancel_all(n, st, &why, err);
        if (!done && p.turn % LOOK == 0 && (st = tm_comm_failed(n->world, &why)) != TM_OK)
            return cancel_all(n, st, &why, err);
        if (done || p.turn % LOOK == 0) {
            int asked = n->call.CommGetAsyncError(n->comm, &code);
            if (asked != SUCCESS) return call_failed(n, "ncclCommGetAsyncError", asked, err);
            if (code != SUCCESS && code != IN_PROGRESS) return call_failed(n, "what was under way", code, err);
        }
        if (done) return TM_OK;
        if (!wait_turn(n, &p)) return too_late(n, "for the end of", err);
    }
}
