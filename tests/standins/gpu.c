/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libcuda.so.1 and, with HIP defined, for libamdhip64.so: GPUs in memory of the process that cannot be
 * touched at the addresses that callers get, with queues that threads of their own work off, late; launches execute the
 * kernels' machine code (tests/machine). For tests. This file: streams, events, graphs.
 *
 * STANDIN_GPUS: how many (4). STANDIN_GPU_VERSION: of the runtime (12040). STANDIN_GPU_FAIL=NAME@N=CODE: from its N-th
 * call on, NAME (of CUDA) returns CODE. STANDIN_GPU_HASTE: but for the first time events tell
 * so many times less than what passed.
 */
#define _GNU_SOURCE
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;

/* --- faults ----------------------------------------------------------------------------------------------------------
 */

static int _Atomic broken;

void standin_broken(int code)
{
    broken = code;
}

int standin_fault(const char *name)
{
    static int  calls;
    const char *text = getenv("STANDIN_GPU_FAIL");
    int         n = 1, code = 0;
    size_t      length = strlen(name);
    if (broken) return broken;
    if (!text || strncmp(text, name, length) != 0 || text[length] != '@') return 0;
    if (sscanf(text + length, "@%d=%d", &n, &code) != 2) return 0;
    return ++calls >= n ? code : 0;
}

/* --- streams ---------------------------------------------------------------------------------------------------------
 */

typedef struct item {
    struct item *next;
    standin_work work;
} item;

typedef struct event event;

/* What a captured stream was given, in the order of the calls. */
typedef struct {
    enum { RUN, RECORD, WAIT } kind;
    int          stream; /* number in the graph */
    standin_work work;   /* RUN */
    event       *event;
} node;

enum { MOST_STREAMS = 8 };

typedef struct graph {
    node         *nodes;
    int           n, room, streams;
    struct queue *member[MOST_STREAMS];
} graph;

typedef struct queue {
    pthread_mutex_t lock;
    pthread_cond_t  more, done; /* all of it */
    pthread_t       thread;
    item           *first;
    bool            busy, ends;
    graph          *captures; /* NULL: it works */
    int             number;   /* in that graph */
} queue;

struct event {
    int64_t  ns;
    uint64_t recorded, passed; /* calls of record; of these, those whose turn has come */
    graph   *in;               /* recorded last in a stream that is captured into this graph */
};

static pthread_mutex_t event_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  event_passed = PTHREAD_COND_INITIALIZER;

static void do_work(const standin_work *work)
{
    if (!work->unlocked) pthread_mutex_lock(&standin_lock);
    work->run(work->with);
    if (!work->unlocked) pthread_mutex_unlock(&standin_lock);
}

static void *work_off(void *of)
{
    queue *q = of;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!q->first && !q->ends) pthread_cond_wait(&q->more, &q->lock);
        item *i = q->first;
        if (!i) break;
        q->busy = true;
        pthread_mutex_unlock(&q->lock);
        nanosleep(&(struct timespec){ .tv_nsec = LATE_NS }, NULL);
        do_work(&i->work);
        if (i->work.drop) i->work.drop(i->work.with);
        pthread_mutex_lock(&q->lock);
        q->first = i->next;
        q->busy = false;
        free(i);
        if (!q->first) pthread_cond_broadcast(&q->done);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static void add_node(graph *g, node n)
{
    if (g->n == g->room) {
        g->room = g->room ? 2 * g->room : 64;
        g->nodes = realloc(g->nodes, (size_t)g->room * sizeof *g->nodes);
        if (!g->nodes) abort();
    }
    g->nodes[g->n++] = n;
}

static bool     noting;
static uint64_t noted;

bool standin_notes(void)
{
    return noting;
}

void standin_note(const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) noted = (noted ^ ((const unsigned char *)data)[i]) * 0x100000001b3;
}

/* A hash of what was noted since the last call. on: from now on all is noted. */
SHOWN uint64_t standin_noted(bool on)
{
    uint64_t before = noted;
    noting = on, noted = 0;
    return before;
}

void standin_put(void *stream, standin_work work)
{
    queue *q = stream;
    if (noting && (!work.unlocked || work.tag)) {
        standin_note(&work.tag, sizeof work.tag);
        if (work.drop) work.drop(work.with);
        return;
    }
    if (q->captures) {
        add_node(q->captures, (node){ .kind = RUN, .stream = q->number, .work = work });
        return;
    }
    item *i = malloc(sizeof *i), **at = &q->first;
    *i = (item){ .work = work };
    pthread_mutex_lock(&q->lock);
    while (*at) at = &(*at)->next;
    *at = i;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->lock);
}

void standin_enqueue(void *stream, void (*run)(void *), void (*drop)(void *), void *with)
{
    standin_put(stream, (standin_work){ .run = run, .drop = drop, .with = with, .unlocked = true });
}

enum { MOST_QUEUES = 256 };
static queue          *queues[MOST_QUEUES]; /* that are open */
static pthread_mutex_t queues_lock = PTHREAD_MUTEX_INITIALIZER;

static void note_queue(queue *from, queue *to)
{
    int i = 0;
    pthread_mutex_lock(&queues_lock);
    while (i < MOST_QUEUES && queues[i] != from) i++;
    if (i == MOST_QUEUES) abort();
    queues[i] = to;
    pthread_mutex_unlock(&queues_lock);
}

API NAME(cuStreamCreate, hipStreamCreateWithFlags)(void **stream, unsigned flags)
{
    int    code = standin_fault("cuStreamCreate");
    queue *q = calloc(1, sizeof *q);
    if (code || flags != 1) {
        free(q);
        return code ? code : INVALID;
    }
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->more, NULL);
    pthread_cond_init(&q->done, NULL);
    pthread_create(&q->thread, NULL, work_off, q);
    note_queue(NULL, q);
    *stream = q;
    return OK;
}

API NAME(cuStreamDestroy_v2, hipStreamDestroy)(void *stream)
{
    queue *q = stream;
    pthread_mutex_lock(&q->lock);
    q->ends = true;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    note_queue(q, NULL);
    free(q);
    return OK;
}

static bool idle(queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool is = !q->first && !q->busy;
    pthread_mutex_unlock(&q->lock);
    return is;
}

static void await(queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->first || q->busy) pthread_cond_wait(&q->done, &q->lock);
    pthread_mutex_unlock(&q->lock);
}

void standin_settle(void)
{
    pthread_mutex_lock(&queues_lock);
    for (int i = 0; i < MOST_QUEUES; i++)
        if (queues[i]) await(queues[i]);
    pthread_mutex_unlock(&queues_lock);
}

/* cuda.h, cuStreamQuery: "CUDA_ERROR_NOT_READY if not" all operations have completed. */
API NAME(cuStreamQuery, hipStreamQuery)(void *stream)
{
    int  code = standin_fault("cuStreamQuery");
    bool done = !code && idle(stream);
    if (!code) code = standin_fault(""); /* what the work has met */
    return code ? code : done ? OK : NOT_READY;
}

API NAME(cuStreamSynchronize, hipStreamSynchronize)(void *stream)
{
    int code = standin_fault("cuStreamSynchronize");
    if (code || (!stream && !standin_default_stream())) return code;
    await(stream ? stream : standin_default_stream());
    return standin_fault("");
}

/* --- events ----------------------------------------------------------------------------------------------------------
 */

static void pass_event(event *e)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    pthread_mutex_lock(&event_lock);
    e->ns = t.tv_sec * 1000000000LL + t.tv_nsec;
    e->passed++;
    pthread_cond_broadcast(&event_passed);
    pthread_mutex_unlock(&event_lock);
}

static void stamp(void *of)
{
    pass_event(of);
}

typedef struct {
    event   *event;
    uint64_t number; /* of the recording that is waited for */
} awaited;

static void wait_event(void *with)
{
    const awaited *a = with;
    pthread_mutex_lock(&event_lock);
    while (a->event->passed < a->number) pthread_cond_wait(&event_passed, &event_lock);
    pthread_mutex_unlock(&event_lock);
}

API NAME(cuEventCreate, hipEventCreateWithFlags)(void **out, unsigned flags)
{
    int code = standin_fault("cuEventCreate");
    *out = code ? NULL : calloc(1, sizeof(event));
    return code ? code : flags == 0 ? OK : INVALID;
}

API NAME(cuEventDestroy_v2, hipEventDestroy)(void *e)
{
    (void)e; /* its turn in a queue may still come */
    return OK;
}

API NAME(cuEventRecord, hipEventRecord)(void *e, void *stream)
{
    int    code = standin_fault("cuEventRecord");
    event *of = e;
    queue *q = stream;
    if (code) return code;
    of->in = q->captures;
    if (q->captures) {
        add_node(q->captures, (node){ .kind = RECORD, .stream = q->number, .event = of });
        return OK;
    }
    pthread_mutex_lock(&event_lock);
    of->recorded++;
    pthread_mutex_unlock(&event_lock);
    standin_put(stream, (standin_work){ .run = stamp, .with = e, .unlocked = true });
    return OK;
}

static void join_graph(queue *q, graph *g)
{
    if (g->streams == MOST_STREAMS) abort();
    q->captures = g;
    q->number = g->streams;
    g->member[g->streams++] = q;
}

/* A stream that waits for an event of a captured one is captured as well. */
API NAME(cuStreamWaitEvent, hipStreamWaitEvent)(void *stream, void *e, unsigned flags)
{
    int    code = standin_fault("cuStreamWaitEvent");
    event *of = e;
    queue *q = stream;
    if (code || flags) return code ? code : INVALID;
    if (of->in) {
        if (!q->captures) join_graph(q, of->in);
        add_node(q->captures, (node){ .kind = WAIT, .stream = q->number, .event = of });
        return OK;
    }
    awaited *a = malloc(sizeof *a);
    *a = (awaited){ of, of->recorded };
    standin_put(stream, (standin_work){ .run = wait_event, .drop = free, .with = a, .unlocked = true });
    return OK;
}

API NAME(cuEventSynchronize, hipEventSynchronize)(void *e)
{
    int     code = standin_fault("cuEventSynchronize");
    awaited a = { e, ((event *)e)->recorded };
    if (!code) wait_event(&a);
    return code ? code : standin_fault("");
}

static float haste(void)
{
    static int  readings;
    const char *text = getenv("STANDIN_GPU_HASTE");
    return text && readings++ > 0 ? (float)atof(text) : 1;
}

/* cuda.h, cuEventElapsedTime: CUDA_ERROR_NOT_READY if one or both "has not yet been completed". */
API NAME(cuEventElapsedTime, hipEventElapsedTime)(float *ms, void *from, void *to)
{
    int    code = standin_fault("cuEventElapsedTime");
    event *a = from, *b = to;
    if (code) return code;
    if (a->passed < a->recorded || b->passed < b->recorded) return NOT_READY;
    *ms = (float)(b->ns - a->ns) * 1e-6f / haste();
    return OK;
}

/* --- graphs ----------------------------------------------------------------------------------------------------------
 */

static _Thread_local queue *capturing; /* the stream that a capture of this thread began with: one at a time */

API NAME(cuStreamBeginCapture_v2, hipStreamBeginCapture)(void *stream, int mode)
{
    int code = standin_fault("cuStreamBeginCapture_v2");
    if (code || capturing || mode != 2) return code ? code : INVALID;
    capturing = stream;
    join_graph(capturing, calloc(1, sizeof(graph)));
    return OK;
}

bool standin_captures(const void *stream)
{
    return stream ? ((const queue *)stream)->captures != NULL : capturing != NULL;
}

/* Does every other stream end with an event that another one waits for? */
static bool joined(const graph *g)
{
    for (int s = 1; s < g->streams; s++) {
        int last = -1;
        for (int i = 0; i < g->n; i++)
            if (g->nodes[i].stream == s) last = i;
        bool ends = last >= 0 && g->nodes[last].kind == RECORD, waited = false;
        for (int i = last + 1; ends && i < g->n; i++)
            waited = waited || (g->nodes[i].kind == WAIT && g->nodes[i].event == g->nodes[last].event);
        if (!waited) return false;
    }
    return true;
}

API NAME(cuGraphDestroy, hipGraphDestroy)(void *graph);
API NAME(cuStreamEndCapture, hipStreamEndCapture)(void *stream, void **out)
{
    int    code = standin_fault("cuStreamEndCapture");
    graph *g = ((queue *)stream)->captures;
    *out = NULL;
    if (!g) return INVALID;
    capturing = NULL;
    for (int s = 0; s < g->streams; s++) g->member[s]->captures = NULL;
    for (int i = 0; i < g->n; i++)
        if (g->nodes[i].event) g->nodes[i].event->in = NULL;
    if (!code && !joined(g)) code = CAPTURE_UNJOINED;
    if (code)
        (void)NAME(cuGraphDestroy, hipGraphDestroy)(g);
    else
        *out = g;
    return code;
}

/* As late as it may: a stream that another one waits for goes no further than it must. */
static void run_stream(const graph *g, int stream, int end, int *next, bool *recorded)
{
    for (int i = next[stream]; i < end; i = next[stream]) {
        next[stream] = i + 1;
        const node *n = &g->nodes[i];
        if (n->stream != stream) continue;
        if (n->kind == RUN) do_work(&n->work);
        if (n->kind == RECORD) recorded[i] = true; /* streams that are not in the graph see nothing of it */
        if (n->kind != WAIT) continue;
        int at = i - 1; /* the last recording before the wait */
        while (at >= 0 && (g->nodes[at].kind != RECORD || g->nodes[at].event != n->event)) at--;
        if (at >= 0 && !recorded[at]) run_stream(g, g->nodes[at].stream, at + 1, next, recorded);
    }
}

static void play(void *with)
{
    const graph *g = with;
    int          next[MOST_STREAMS] = { 0 };
    bool        *recorded = calloc((size_t)g->n + 1, sizeof *recorded);
    for (int s = 0; s < g->streams; s++) run_stream(g, s, g->n, next, recorded);
    free(recorded);
}

/* The graph that is played is the one that was made, which its maker may give back at once: counted. */
API NAME(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)(void **out, void *of, unsigned long long flags)
{
    int code = standin_fault("cuGraphInstantiateWithFlags");
    *out = NULL;
    if (code || flags) return code ? code : INVALID;
    graph *from = of, *g = calloc(1, sizeof *g);
    *g = *from;
    *from = (graph){ .nodes = NULL }; /* its nodes are the other's now */
    *out = g;
    return OK;
}

API NAME(cuGraphDestroy, hipGraphDestroy)(void *of)
{
    graph *g = of;
    for (int i = 0; i < g->n; i++)
        if (g->nodes[i].work.drop) g->nodes[i].work.drop(g->nodes[i].work.with);
    free(g->nodes);
    free(g);
    return OK;
}

API NAME(cuGraphExecDestroy, hipGraphExecDestroy)(void *of)
{
    (void)of; /* its turn in a stream may still come */
    return OK;
}

API NAME(cuGraphLaunch, hipGraphLaunch)(void *of, void *stream)
{
    int code = standin_fault("cuGraphLaunch");
    if (code) return code;
    standin_put(stream, (standin_work){ .run = play, .with = of, .unlocked = true });
    return OK;
}
