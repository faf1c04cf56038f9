/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libnccl.so.2 and librccl.so.1: collective calls of processes of one machine on the memory of the
 * stand-in of gpu.c, through a file in /dev/shm. For tests.
 *
 * CODE: the version (22809). OLD: one without configurations, messages of errors and a finalization; ANCIENT: without
 * messages between ranks, too. In the environment, RANK@N for the N-th call of data of a rank (the first is 1):
 * STANDIN_RETURN=R@N=CODE: the call returns CODE. STANDIN_ASYNC=R@N=CODE: it never ends, and CODE is the asynchronous
 * error. STANDIN_HANG=R@N: it never ends. STANDIN_KILL=R@N: the process is killed. STANDIN_WRONG=R@N: from then on an
 * element of each result is wrong. STANDIN_NCCL_FAIL=R:NAME@N=CODE: the N-th call of NAME in the process with RANK=R
 * returns CODE. STANDIN_SHARED=FOLDER: the file is there.
 */
#define _GNU_SOURCE
#include "nccl.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef CODE
#define CODE 22809
#endif
#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* those of the makers' headers */
#define API __attribute__((visibility("default"))) int

enum { OK, DEVICE, SYSTEM, INTERNAL, ARGUMENT, USAGE, REMOTE, BUSY };

typedef struct {
    char bytes[128];
} unique_id;

/* nccl.h of 2.14, and of 2.17. */
typedef struct {
    size_t      size;
    unsigned    magic, version;
    int         blocking, cluster, least_blocks, most_blocks;
    const char *net;
} config;

static _Thread_local int   depth;
static _Thread_local task *group;
static _Thread_local void *group_stream;

static void *(*real_address)(const void *, size_t);
static void (*enqueue)(void *, void (*)(void *), void (*)(void *), void *);
static bool (*captures)(const void *);

/* --- faults ---------------------------------------------------------------------------------- */

static bool meant(const char *name, int rank, int call, int *code)
{
    const char *text = getenv(name);
    int         r = -1, n = -1;
    return text && sscanf(text, "%d@%d=%d", &r, &n, code) >= 2 && r == rank && n == call;
}

static bool meant_since(const char *name, int rank, int call)
{
    const char *text = getenv(name);
    int         r = -1, n = -1;
    return text && sscanf(text, "%d@%d", &r, &n) == 2 && r == rank && call >= n;
}

/* Of any function, by its name. */
static int fault(const char *name)
{
    static _Atomic int calls;
    const char        *text = getenv("STANDIN_NCCL_FAIL"), *own = getenv("RANK");
    char               wanted[64];
    int                r = -1, n = 1, code = 0;
    if (!text || sscanf(text, "%d:%63[^@]@%d=%d", &r, wanted, &n, &code) != 4) return OK;
    if (strcmp(wanted, name) != 0 || (own ? atoi(own) : 0) != r) return OK;
    return ++calls == n ? code : OK;
}

/* --- calls ----------------------------------------------------------------------------------- */

/* Some calls of a communicator that does not block are not through at once. */
static int answer(communicator *c)
{
    enum { OFTEN = 3 };
    return !c->blocking && c->calls % OFTEN == 0 ? (c->turns = 2, BUSY) : OK;
}

static int submit(communicator *c, task *t, void *stream)
{
    int code = 0, call = ++c->calls;
    if (c->magic != MAGIC || c->aborted) abort(); /* used after its end */
    if (meant("STANDIN_KILL", c->rank, call, &code)) raise(SIGKILL);
    if (meant("STANDIN_RETURN", c->rank, call, &code)) return code;
    t->comm = c;
    if (!captures(stream)) t->number = ++c->queued, c->under_way++;
    t->wrong = meant_since("STANDIN_WRONG", c->rank, call);
    t->hangs = meant("STANDIN_HANG", c->rank, call, &code);
    if (meant("STANDIN_ASYNC", c->rank, call, &code)) {
        t->hangs = true;
        c->async = code;
    }
    enqueue(stream, nccl_run, nccl_drop, t);
    return answer(c);
}

/* NCCL User Guide, In-place Operations: where sends and results overlap, rank r's part lies at its place in the whole.
 */
static bool overlaps_wrongly(const char *whole, size_t whole_bytes, const char *part, size_t part_bytes, int rank)
{
    bool apart = !whole || part + part_bytes <= whole || whole + whole_bytes <= part;
    return !apart && part != whole + (size_t)rank * part_bytes;
}

static int collective(const char *name, communicator *c, int kind, const void *send, size_t send_count, void *receive,
                      size_t receive_count, size_t count, int type, int op, int root, void *stream)
{
    int code = fault(name);
    if (code) return code;
    task  *t = calloc(1, sizeof *t);
    size_t e = nccl_bytes_of(type);
    bool   sends = kind != BROADCAST || c->rank == root;
    t->what = (header){ .kind = kind, .type = type, .op = op, .root = root, .count = count };
    if (depth > 0) nccl_wrong(c, "a collective call in a group: only messages are here");
    t->send = sends ? real_address(send, send_count * e) : NULL;
    t->receive = real_address(receive, receive_count * e);
    if ((sends && !t->send) || !t->receive) return ARGUMENT; /* not the GPU's */
    if (CODE < 21000 && type == 9) return ARGUMENT;
    bool gathers = kind == ALL_GATHER, whole = send_count == receive_count;
    if (overlaps_wrongly(gathers ? t->receive : t->send, (gathers ? receive_count : send_count) * e,
                         gathers ? t->send : t->receive, (gathers ? send_count : receive_count) * e,
                         whole ? 0 : c->rank))
        return ARGUMENT;
    return submit(c, t, stream);
}

API ncclAllReduce(const void *send, void *receive, size_t count, int type, int op, communicator *c, void *stream)
{
    return collective("ncclAllReduce", c, ALL_REDUCE, send, count, receive, count, count, type, op, 0, stream);
}

API ncclReduceScatter(const void *send, void *receive, size_t count, int type, int op, communicator *c, void *stream)
{
    return collective("ncclReduceScatter", c, REDUCE_SCATTER, send, count * (size_t)c->size, receive, count, count,
                      type, op, 0, stream);
}

API ncclAllGather(const void *send, void *receive, size_t count, int type, communicator *c, void *stream)
{
    return collective("ncclAllGather", c, ALL_GATHER, send, count, receive, count * (size_t)c->size, count, type, 0, 0,
                      stream);
}

API ncclBroadcast(const void *send, void *receive, size_t count, int type, int root, communicator *c, void *stream)
{
    return collective("ncclBroadcast", c, BROADCAST, send, count, receive, count, count, type, 0, root, stream);
}

API ncclGroupStart(void)
{
    int code = depth == 0 ? fault("ncclGroupStart") : OK;
    if (code) return code;
    if (depth++ == 0) group = calloc(1, sizeof *group);
    return OK;
}

API ncclGroupEnd(void)
{
    task *t = group;
    if (depth == 0) return USAGE;
    if (--depth > 0) return OK;
    group = NULL;
    int code = fault("ncclGroupEnd");
    if (code) return code;
    if (t->messages > 0) return submit(t->comm, t, group_stream);
    free(t);
    return OK;
}

#ifndef ANCIENT
/* User Guide, Group Calls: calls of a group are of one communicator and one stream here. */
static void check_group(const communicator *c, const void *stream)
{
    if (group->comm && group->comm != c) nccl_wrong(c, "a group with calls of two communicators");
    if (group->comm && group_stream != stream) nccl_wrong(c, "a group with calls in two streams");
}

static int add(communicator *c, const void *data, size_t count, int type, int peer, bool out, void *stream)
{
    int code = fault(out ? "ncclSend" : "ncclRecv");
    if (code) return code;
    size_t bytes = count * nccl_bytes_of(type);
    char  *real = real_address(data, bytes);
    if (!real || peer < 0 || peer >= c->size) return ARGUMENT;
    if (depth == 0 && peer == c->rank) return USAGE;
    bool alone = depth == 0;
    if (alone) depth = 1, group = calloc(1, sizeof *group);
    check_group(c, stream);
    group->what.kind = MESSAGES;
    group->comm = c;
    group->what.type = type;
    if (!out && group->what.count == 0) group->receive = real, group->what.count = count; /* of STANDIN_WRONG */
    if (group->messages == group->room) {
        group->room = group->room ? 2 * group->room : 16;
        group->message = realloc(group->message, (size_t)group->room * sizeof *group->message);
    }
    group->message[group->messages++] =
        (message){ .data = real, .bytes = bytes, .peer = peer, .type = type, .out = out };
    group_stream = stream;
    if (!alone) return OK;
    task *t = group;
    depth = 0;
    group = NULL;
    return submit(c, t, stream);
}

API ncclSend(const void *send, size_t count, int type, int peer, communicator *c, void *stream)
{
    return add(c, send, count, type, peer, true, stream);
}

API ncclRecv(void *receive, size_t count, int type, int peer, communicator *c, void *stream)
{
    return add(c, receive, count, type, peer, false, stream);
}
#endif

/* --- communicators --------------------------------------------------------------------------- */

API ncclGetVersion(int *version)
{
    *version = CODE;
    return OK;
}

__attribute__((visibility("default"))) const char *ncclGetErrorString(int code);
const char                                        *ncclGetErrorString(int code)
{
    static const char *const text[] = { "no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress" };
    return code >= 0 && code < 8 ? text[code] : "unknown result code";
}

API ncclGetUniqueId(unique_id *id)
{
    struct timespec t;
    int             code = fault("ncclGetUniqueId");
    if (code) return code;
    clock_gettime(CLOCK_REALTIME, &t);
    memset(id, 0x55, sizeof *id);
    const char *folder = getenv("STANDIN_SHARED");
    snprintf(id->bytes, sizeof id->bytes, "%.60s/trainmark-standin-%ld-%ld", folder ? folder : "/dev/shm",
             (long)getpid(), t.tv_nsec);
    return OK;
}

static bool find_gpu(void)
{
    void *gpu = dlopen(getenv("TRAINMARK_GPU_RUNTIME"), RTLD_NOW | RTLD_NOLOAD);
    void *real = gpu ? dlsym(gpu, "standin_real") : NULL, *put_in = gpu ? dlsym(gpu, "standin_enqueue") : NULL;
    memcpy(&real_address, &real, sizeof real);
    void *captured = gpu ? dlsym(gpu, "standin_captures") : NULL;
    memcpy(&enqueue, &put_in, sizeof put_in);
    memcpy(&captures, &captured, sizeof captured);
    return real && put_in && captured;
}

static void *begin(void *of)
{
    communicator *c = of;
    int           code = BUSY;
    if (!nccl_meet(c)) return NULL;
    if (c->rank == 0) unlink(c->path); /* all have it */
    atomic_compare_exchange_strong(&c->async, &code, OK);
    return NULL;
}

static int make(communicator **out, int size, unique_id id, int rank, bool blocking)
{
    communicator *c = calloc(1, sizeof *c);
    if (size > RANKS || rank < 0 || rank >= size || id.bytes[127] != 0x55 || !find_gpu()) return ARGUMENT;
    if (captures(NULL)) nccl_wrong(c, "a communicator is made while a graph is captured");
    *c = (communicator){ .magic = MAGIC, .rank = rank, .size = size, .blocking = blocking, .async = BUSY };
    snprintf(c->path, sizeof c->path, "%s", id.bytes);
    int fd = open(c->path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(shared)) != 0) return SYSTEM;
    c->all = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    *out = c;
    if (pthread_create(&c->beginner, NULL, begin, c) != 0) return SYSTEM;
    if (!blocking) return BUSY;
    pthread_join(c->beginner, NULL);
    return OK;
}

API ncclCommInitRank(communicator **out, int size, unique_id id, int rank)
{
    return make(out, size, id, rank, true);
}

#ifndef OLD
API ncclCommInitRankConfig(communicator **out, int size, unique_id id, int rank, const config *wanted)
{
    bool first = wanted->size == 24 && wanted->version == 21400 && wanted->cluster == INT_MIN;
    bool later = wanted->size == 40 && wanted->version == 21700 && wanted->cluster == INT_MIN && !wanted->net &&
                 wanted->least_blocks == 1 && wanted->most_blocks >= 1;
    bool known = wanted->magic == 0xcafebeef && (first || later);
    int  code = fault("ncclCommInitRankConfig");
    if (code) return code;
    return known ? make(out, size, id, rank, wanted->blocking != 0) : ARGUMENT;
}

API ncclCommFinalize(communicator *c)
{
    int code = fault("ncclCommFinalize");
    if (code) return code;
    c->turns = 3;
    c->finalized = true;
    return c->blocking ? OK : BUSY;
}

__attribute__((visibility("default"))) const char *ncclGetLastError(communicator *c);
const char                                        *ncclGetLastError(communicator *c)
{
    return c && c->magic == MAGIC ? "the stand-in was told to" : "no communicator";
}
#endif

API ncclCommGetAsyncError(communicator *c, int *code)
{
    if (c->magic != MAGIC) abort();
    int failed = fault("ncclCommGetAsyncError");
    if (failed) return failed;
    *code = c->async;
    if (*code == OK && c->turns > 0) {
        c->turns--;
        *code = BUSY;
    }
    return OK;
}

API ncclCommDestroy(communicator *c)
{
    if (c->magic != MAGIC || c->aborted) abort();
    if (!c->blocking && (!c->finalized || c->turns > 0)) abort(); /* destroyed before its end was through */
    if (c->under_way > 0) nccl_wrong(c, "destroyed while %d of its calls are under way", c->under_way);
    if (captures(NULL)) nccl_wrong(c, "destroyed while a graph is captured");
    if (!c->blocking) pthread_join(c->beginner, NULL);
    munmap(c->all, sizeof(shared));
    memset(c, 0, sizeof *c);
    free(c);
    return OK;
}

/* What is under way stops; some of it may still look at the communicator, so it stays. */
API ncclCommAbort(communicator *c)
{
    if (c->magic != MAGIC || c->aborted) abort();
    c->aborted = true;
    unlink(c->path);
    return OK;
}
