/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libnccl.so.2 and librccl.so.1: collective calls of processes of one machine on the memory of the
 * stand-in of gpu.c, through a file in /dev/shm. For tests.
 *
 * CODE: the version (22809). OLD: one without configurations, messages of errors and a finalization; ANCIENT: without
 * messages between ranks, too. In the environment, RANK@N for the N-th call of data of a rank (the first is 1):
 * STANDIN_RETURN=R@N=CODE: the call returns CODE. STANDIN_ASYNC=R@N=CODE: it never ends, and CODE is the asynchronous
 * error. STANDIN_HANG=R@N: it never ends. STANDIN_STUCK=R@N: it does not even return. STANDIN_KILL=R@N: the process is
 * killed. STANDIN_WRONG=R@N: from then on an element of each result is wrong. STANDIN_VERSION_OF=R=CODE: of one rank.
 * STANDIN_INIT=R=CODE: of making the communicator.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef CODE
#define CODE 22809
#endif
#define API __attribute__((visibility("default"))) int

enum {
    OK,
    DEVICE,
    SYSTEM,
    INTERNAL,
    ARGUMENT,
    USAGE,
    REMOTE,
    BUSY,
    SLOT = 1 << 16,
    MOST = 64,
    RANKS = 16,
    MAGIC = 0xcafe
};

typedef struct {
    char bytes[128];
} unique_id;

typedef struct {
    size_t   size;
    unsigned magic, version;
    int      blocking, rest;
} config;

typedef struct {
    _Atomic uint64_t full; /* bytes in it + 1; 0: empty */
    char             data[SLOT];
} box;

typedef struct {
    _Atomic int arrived, generation;
    char        slot[RANKS][SLOT];
    box         box[RANKS][RANKS]; /* from, to */
} shared;

typedef struct {
    int         magic, rank, size;
    _Atomic int async; /* the asynchronous error */
    atomic_bool aborted;
    int         calls, turns;
    bool        blocking, finalized;
    shared     *all;
    char        path[128];
    pthread_t   beginner;
} communicator;

/* Of the calls between GroupStart and GroupEnd: messages. */
typedef struct {
    char  *data;
    size_t bytes, at;
    int    peer;
    bool   out;
} message;

typedef struct {
    communicator *comm;
    int           kind, type, op, root;
    const char   *send;
    char         *receive;
    size_t        count;
    message       message[MOST];
    int           messages;
    bool          hangs, wrong;
} task;

enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, MESSAGES };

static _Thread_local int   depth;
static _Thread_local task *group;
static _Thread_local void *group_stream;

static void *(*real_address)(const void *, size_t);
static void (*enqueue)(void *, void (*)(void *), void (*)(void *), void *);

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

static bool meant_rank(const char *name, int rank, int *code)
{
    const char *text = getenv(name);
    int         r = -1;
    return text && sscanf(text, "%d=%d", &r, code) == 2 && r == rank;
}

/* --- work of a queue ------------------------------------------------------------------------- */

static bool turn(const communicator *c)
{
    sched_yield();
    return !c->aborted;
}

static bool meet(communicator *c)
{
    int generation = c->all->generation;
    if (atomic_fetch_add(&c->all->arrived, 1) + 1 == c->size) {
        c->all->arrived = 0;
        c->all->generation++;
    }
    while (c->all->generation == generation)
        if (!turn(c)) return false;
    return true;
}

static size_t bytes_of(int type)
{
    static const size_t bytes[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2 };
    return bytes[type];
}

static double get(const char *at, int type)
{
    float    f;
    double   d;
    int64_t  i;
    uint16_t h;
    uint32_t w;
    switch (type) {
    case 4:
        memcpy(&i, at, 8);
        return (double)i;
    case 7:
        memcpy(&f, at, 4);
        return (double)f;
    case 8:
        memcpy(&d, at, 8);
        return d;
    case 9:
        memcpy(&h, at, 2);
        w = (uint32_t)h << 16;
        memcpy(&f, &w, 4);
        return (double)f;
    default:
        return *(const unsigned char *)at;
    }
}

static void put(char *at, int type, double value)
{
    float    f = (float)value;
    int64_t  i = (int64_t)value;
    uint32_t w;
    uint16_t h;
    switch (type) {
    case 4:
        memcpy(at, &i, 8);
        break;
    case 7:
        memcpy(at, &f, 4);
        break;
    case 8:
        memcpy(at, &value, 8);
        break;
    case 9:
        memcpy(&w, &f, 4);
        h = (uint16_t)((w + 0x7fff + (w >> 16 & 1)) >> 16);
        memcpy(at, &h, 2);
        break;
    default:
        *at = (char)value;
    }
}

static void reduce(const task *t, char *out, size_t n)
{
    size_t e = bytes_of(t->type);
    for (size_t i = 0; i < n; i += e) {
        double sum = get(t->comm->all->slot[0] + i, t->type);
        for (int r = 1; r < t->comm->size; r++) {
            double x = get(t->comm->all->slot[r] + i, t->type);
            sum = t->op == 0 ? sum + x : (t->op == 2) == (x > sum) ? x : sum;
        }
        put(out + i, t->type, sum);
    }
}

/* A part of what every rank sends, of `from`'s for broadcasts; `out` of those who take it. */
static bool pass(const task *t, const char *part, size_t n, char *out, size_t stride)
{
    communicator *c = t->comm;
    bool          sends = t->kind != BROADCAST || c->rank == t->root;
    if (sends) memcpy(c->all->slot[c->rank], part, n);
    if (!meet(c)) return false;
    if (t->kind == ALL_GATHER)
        for (int r = 0; r < c->size; r++) memcpy(out + (size_t)r * stride, c->all->slot[r], n);
    else if (t->kind == BROADCAST)
        memcpy(out, c->all->slot[t->root], n);
    else if (out)
        reduce(t, out, n);
    return meet(c);
}

static void run_slots(const task *t)
{
    communicator *c = t->comm;
    size_t        bytes = t->count * bytes_of(t->type);
    int           parts = t->kind == REDUCE_SCATTER ? c->size : 1;
    for (int d = 0; d < parts; d++)
        for (size_t at = 0; at < bytes; at += SLOT) {
            size_t n = bytes - at < SLOT ? bytes - at : SLOT;
            bool   mine = parts == 1 || d == c->rank;
            if (!pass(t, t->send ? t->send + (size_t)d * bytes + at : NULL, n, mine ? t->receive + at : NULL, bytes))
                return;
        }
}

static bool step(const task *t, message *m)
{
    communicator *c = t->comm;
    box          *b = m->out ? &c->all->box[c->rank][m->peer] : &c->all->box[m->peer][c->rank];
    if ((b->full == 0) != m->out) return false;
    size_t left = m->bytes - m->at, n = m->out ? left < SLOT ? left : SLOT : b->full - 1;
    if (n > left) abort(); /* ranks disagree */
    if (m->out)
        memcpy(b->data, m->data + m->at, n);
    else
        memcpy(m->data + m->at, b->data, n);
    b->full = m->out ? n + 1 : 0;
    m->at += n;
    return true;
}

static void run_messages(task *t)
{
    for (int left = 1; left > 0;) {
        left = 0;
        for (int i = 0; i < t->messages; i++) {
            message *m = &t->message[i];
            bool     first = true; /* of a pair's messages in one direction, one after the other */
            for (int k = 0; k < i; k++)
                first = first && !(t->message[k].peer == m->peer && t->message[k].out == m->out &&
                                   t->message[k].at < t->message[k].bytes);
            if (first && m->at < m->bytes) (void)step(t, m);
            left += m->at < m->bytes;
        }
        if (!turn(t->comm)) return;
    }
}

static void run(void *of)
{
    task *t = of;
    for (int i = 0; i < t->messages; i++) t->message[i].at = 0; /* it may be played again */
    while (t->hangs && turn(t->comm)) nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    if (!t->comm->aborted && t->kind == MESSAGES)
        run_messages(t);
    else if (!t->comm->aborted)
        run_slots(t);
    if (t->wrong && t->receive && t->count > 0) put(t->receive, t->type, get(t->receive, t->type) + 1);
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
    while (meant("STANDIN_STUCK", c->rank, call, &code)) pause();
    t->comm = c;
    t->wrong = meant_since("STANDIN_WRONG", c->rank, call);
    t->hangs = meant("STANDIN_HANG", c->rank, call, &code);
    if (meant("STANDIN_ASYNC", c->rank, call, &code)) {
        t->hangs = true;
        c->async = code;
    }
    enqueue(stream, run, free, t);
    return answer(c);
}

/* NCCL User Guide, In-place Operations: where sends and results overlap, rank r's part lies at its place in the whole.
 */
static bool overlaps_wrongly(const char *whole, size_t whole_bytes, const char *part, size_t part_bytes, int rank)
{
    bool apart = !whole || part + part_bytes <= whole || whole + whole_bytes <= part;
    return !apart && part != whole + (size_t)rank * part_bytes;
}

static int collective(communicator *c, int kind, const void *send, size_t send_count, void *receive,
                      size_t receive_count, size_t count, int type, int op, int root, void *stream)
{
    task  *t = calloc(1, sizeof *t);
    size_t e = bytes_of(type);
    bool   sends = kind != BROADCAST || c->rank == root;
    *t = (task){ .kind = kind, .type = type, .op = op, .root = root, .count = count };
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

API ncclAllReduce(const void *send, void *receive, size_t count, int type, int op, communicator *c, void *stream);
API ncclAllReduce(const void *send, void *receive, size_t count, int type, int op, communicator *c, void *stream)
{
    return collective(c, ALL_REDUCE, send, count, receive, count, count, type, op, 0, stream);
}

API ncclReduceScatter(const void *send, void *receive, size_t count, int type, int op, communicator *c, void *stream);
API ncclReduceScatter(const void *send, void *receive, size_t count, int type, int op, communicator *c, void *stream)
{
    return collective(c, REDUCE_SCATTER, send, count * (size_t)c->size, receive, count, count, type, op, 0, stream);
}

API ncclAllGather(const void *send, void *receive, size_t count, int type, communicator *c, void *stream);
API ncclAllGather(const void *send, void *receive, size_t count, int type, communicator *c, void *stream)
{
    return collective(c, ALL_GATHER, send, count, receive, count * (size_t)c->size, count, type, 0, 0, stream);
}

API ncclBroadcast(const void *send, void *receive, size_t count, int type, int root, communicator *c, void *stream);
API ncclBroadcast(const void *send, void *receive, size_t count, int type, int root, communicator *c, void *stream)
{
    return collective(c, BROADCAST, send, count, receive, count, count, type, 0, root, stream);
}

API ncclGroupStart(void);
API ncclGroupStart(void)
{
    if (depth++ == 0) group = calloc(1, sizeof *group);
    return OK;
}

API ncclGroupEnd(void);
API ncclGroupEnd(void)
{
    task *t = group;
    if (depth == 0) return USAGE;
    if (--depth > 0) return OK;
    group = NULL;
    if (t->messages > 0) return submit(t->comm, t, group_stream);
    free(t);
    return OK;
}

#ifndef ANCIENT
static int add(communicator *c, const void *data, size_t count, int type, int peer, bool out, void *stream)
{
    size_t bytes = count * bytes_of(type);
    char  *real = real_address(data, bytes);
    if (!real || peer < 0 || peer >= c->size) return ARGUMENT;
    if (depth == 0 && peer == c->rank) return USAGE;
    (void)ncclGroupStart();
    group->kind = MESSAGES;
    group->comm = c;
    group->type = type;
    if (!out && group->count == 0) group->receive = real, group->count = count; /* of STANDIN_WRONG */
    group->message[group->messages++] = (message){ .data = real, .bytes = bytes, .peer = peer, .out = out };
    group_stream = stream;
    return ncclGroupEnd();
}

API ncclSend(const void *send, size_t count, int type, int peer, communicator *c, void *stream);
API ncclSend(const void *send, size_t count, int type, int peer, communicator *c, void *stream)
{
    return add(c, send, count, type, peer, true, stream);
}

API ncclRecv(void *receive, size_t count, int type, int peer, communicator *c, void *stream);
API ncclRecv(void *receive, size_t count, int type, int peer, communicator *c, void *stream)
{
    return add(c, receive, count, type, peer, false, stream);
}
#endif

/* --- communicators --------------------------------------------------------------------------- */

API ncclGetVersion(int *version);
API ncclGetVersion(int *version)
{
    int own = getenv("RANK") ? atoi(getenv("RANK")) : 0, other;
    *version = meant_rank("STANDIN_VERSION_OF", own, &other) ? other : CODE;
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

API ncclGetUniqueId(unique_id *id);
API ncclGetUniqueId(unique_id *id)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    memset(id, 0x55, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "/dev/shm/trainmark-standin-%ld-%ld", (long)getpid(), t.tv_nsec);
    return OK;
}

static bool find_gpu(void)
{
    void *gpu = dlopen(getenv("TRAINMARK_GPU_RUNTIME"), RTLD_NOW | RTLD_NOLOAD);
    void *real = gpu ? dlsym(gpu, "standin_real") : NULL, *put_in = gpu ? dlsym(gpu, "standin_enqueue") : NULL;
    memcpy(&real_address, &real, sizeof real);
    memcpy(&enqueue, &put_in, sizeof put_in);
    return real && put_in;
}

static void *begin(void *of)
{
    communicator *c = of;
    int           code = BUSY;
    if (!meet(c)) return NULL;
    if (c->rank == 0) unlink(c->path); /* all have it */
    atomic_compare_exchange_strong(&c->async, &code, OK);
    return NULL;
}

static int make(communicator **out, int size, unique_id id, int rank, bool blocking)
{
    communicator *c = calloc(1, sizeof *c);
    int           code;
    if (size > RANKS || rank < 0 || rank >= size || id.bytes[127] != 0x55 || !find_gpu()) return ARGUMENT;
    *c = (communicator){ .magic = MAGIC, .rank = rank, .size = size, .blocking = blocking, .async = BUSY };
    snprintf(c->path, sizeof c->path, "%s", id.bytes);
    int fd = open(c->path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(shared)) != 0) return SYSTEM;
    c->all = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    *out = c;
    if (meant_rank("STANDIN_INIT", rank, &code)) {
        unlink(c->path);
        return code;
    }
    if (pthread_create(&c->beginner, NULL, begin, c) != 0) return SYSTEM;
    if (!blocking) return BUSY;
    pthread_join(c->beginner, NULL);
    return OK;
}

API ncclCommInitRank(communicator **out, int size, unique_id id, int rank);
API ncclCommInitRank(communicator **out, int size, unique_id id, int rank)
{
    return make(out, size, id, rank, true);
}

#ifndef OLD
API ncclCommInitRankConfig(communicator **out, int size, unique_id id, int rank, const config *wanted);
API ncclCommInitRankConfig(communicator **out, int size, unique_id id, int rank, const config *wanted)
{
    bool known =
        wanted->size == 24 && wanted->magic == 0xcafebeef && wanted->version == 21400 && wanted->rest == INT_MIN;
    return known ? make(out, size, id, rank, wanted->blocking != 0) : ARGUMENT;
}

API ncclCommFinalize(communicator *c);
API ncclCommFinalize(communicator *c)
{
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

API ncclCommGetAsyncError(communicator *c, int *code);
API ncclCommGetAsyncError(communicator *c, int *code)
{
    if (c->magic != MAGIC) abort();
    *code = c->async;
    if (*code == OK && c->turns > 0) {
        c->turns--;
        *code = BUSY;
    }
    return OK;
}

API ncclCommDestroy(communicator *c);
API ncclCommDestroy(communicator *c)
{
    if (c->magic != MAGIC || c->aborted) abort();
    if (!c->blocking && (!c->finalized || c->turns > 0)) abort(); /* destroyed before its end was through */
    if (!c->blocking) pthread_join(c->beginner, NULL);
    munmap(c->all, sizeof(shared));
    memset(c, 0, sizeof *c);
    free(c);
    return OK;
}

/* What is under way stops; some of it may still look at the communicator, so it stays. */
API ncclCommAbort(communicator *c);
API ncclCommAbort(communicator *c)
{
    if (c->magic != MAGIC || c->aborted) abort();
    c->aborted = true;
    unlink(c->path);
    return OK;
}
