/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/threads.c - worlds whose ranks are threads of this process: memory is shared anyway, messages are copied.
 */
#include "comm/group.h"

#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A message that nobody waits for yet, or a rank that waits for one. */
typedef struct queued {
    struct queued *next;
    int            from, tag;
    size_t         bytes;
    void          *data; /* a copy of what was sent; where it is to go */
    _Atomic int    done; /* of one waited for: 1 came, 2 of another size */
} queued;

typedef struct {
    pthread_mutex_t lock;
    queued         *sent, *awaited; /* in the order of their coming */
} mailbox;

typedef struct {
    void  *memory;
    size_t bytes;
} mapping;

/* All ranks have this. */
typedef struct {
    int  ranks, open;
    int *host, *local;
    char (*host_name)[TM_COMM_HOST_NAME];
    mailbox        *box; /* (ranks) */
    pthread_mutex_t lock;
    pthread_cond_t  met;
    int             arrived; /* ranks at the meeting of `share` */
    int64_t         meeting;
    mapping        *mapped; /* (ranks) what they brought to it */
    mapping        *all;    /* to be given back */
    int             n_all;
} team;

typedef struct {
    team *team;
    int   rank;
} endpoint;

/* --- messages -------------------------------------------------------------------------------- */

/* Takes the first with this sender and tag out of the list. */
static queued *find(queued **list, int from, int tag)
{
    for (queued **at = list; *at; at = &(*at)->next) {
        queued *p = *at;
        if (p->from != from || p->tag != tag) continue;
        *at = p->next;
        return p;
    }
    return NULL;
}

static void append(queued **list, queued *p)
{
    while (*list) list = &(*list)->next;
    *list = p;
}

static void deliver(queued *to, const void *data, size_t bytes)
{
    if (to->bytes == bytes) memcpy(to->data, data, bytes);
    atomic_store_explicit(&to->done, to->bytes == bytes ? 1 : 2, memory_order_release);
}

static const char *threads_send(void *own, int to, int tag, const void *data, size_t bytes, tm_comm_request *request)
{
    endpoint *me = own;
    mailbox  *box = &me->team->box[to];
    pthread_mutex_lock(&box->lock);
    queued *waiting = find(&box->awaited, me->rank, tag);
    if (waiting) {
        deliver(waiting, data, bytes);
    } else {
        queued *p = tm_alloc(sizeof *p);
        *p = (queued){ .from = me->rank, .tag = tag, .bytes = bytes, .data = tm_alloc(bytes) };
        memcpy(p->data, data, bytes);
        append(&box->sent, p);
    }
    pthread_mutex_unlock(&box->lock);
    request->word[0] = 0; /* nothing is left to do */
    return NULL;
}

static const char *threads_receive(void *own, int from, int tag, void *data, size_t bytes, tm_comm_request *request)
{
    endpoint *me = own;
    mailbox  *box = &me->team->box[me->rank];
    queued   *p = tm_alloc(sizeof *p);
    *p = (queued){ .from = from, .tag = tag, .bytes = bytes, .data = data };
    pthread_mutex_lock(&box->lock);
    queued *there = find(&box->sent, from, tag);
    if (there) {
        deliver(p, there->data, there->bytes);
        free(there->data);
        free(there);
    } else {
        append(&box->awaited, p);
    }
    pthread_mutex_unlock(&box->lock);
    request->word[0] = (uint64_t)(uintptr_t)p;
    return NULL;
}

static const char *threads_test(void *own, tm_comm_request *request, bool *done)
{
    queued *p = (queued *)(uintptr_t)request->word[0];
    (void)own;
    int state = p ? atomic_load_explicit(&p->done, memory_order_acquire) : 1;
    *done = state != 0;
    if (state) free(p);
    return state == 2 ? "a message has another size than its receiver expects" : NULL;
}

static void threads_cancel(void *own, tm_comm_request *request)
{
    endpoint *me = own;
    mailbox  *box = &me->team->box[me->rank];
    queued   *p = (queued *)(uintptr_t)request->word[0];
    if (!p) return;
    pthread_mutex_lock(&box->lock);
    for (queued **at = &box->awaited; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    pthread_mutex_unlock(&box->lock);
    free(p);
}

/* --- memory ---------------------------------------------------------------------------------- */

static mapping map(team *h, size_t bytes)
{
    mapping made = { mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
                     bytes };
    if (made.memory == MAP_FAILED) return (mapping){ 0 };
    h->all = tm_realloc(h->all, (size_t)(h->n_all + 1) * sizeof *h->all);
    h->all[h->n_all++] = made;
    return made;
}

/* Nobody leaves before all have come: the caller has seen to it that they do. */
static const char *threads_share(void *own, size_t bytes, void **where)
{
    endpoint *me = own;
    team     *h = me->team;
    pthread_mutex_lock(&h->lock);
    h->mapped[me->rank] = map(h, bytes);
    int64_t meeting = h->meeting;
    if (++h->arrived == h->ranks) {
        h->arrived = 0;
        h->meeting++;
        pthread_cond_broadcast(&h->met);
    }
    while (h->meeting == meeting) pthread_cond_wait(&h->met, &h->lock);
    bool complete = true;
    for (int r = 0; r < h->ranks; r++) {
        if (h->host[r] != h->host[me->rank]) continue;
        where[h->local[r]] = h->mapped[r].memory;
        complete = complete && h->mapped[r].memory;
    }
    pthread_mutex_unlock(&h->lock);
    return complete ? NULL : "the system has no more memory";
}

/* --- from beginning to end ------------------------------------------------------------------- */

static void threads_abort(void *own, int code, const char *message)
{
    (void)own, (void)code, (void)message;
}

static void free_messages(queued *list, bool with_data)
{
    while (list) {
        queued *p = list;
        list = p->next;
        if (with_data) free(p->data);
        free(p);
    }
}

static void free_team(team *h)
{
    for (int r = 0; r < h->ranks; r++) {
        free_messages(h->box[r].sent, true);
        free_messages(h->box[r].awaited, false);
        pthread_mutex_destroy(&h->box[r].lock);
    }
    for (int i = 0; i < h->n_all; i++) munmap(h->all[i].memory, h->all[i].bytes);
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->met);
    free(h->all);
    free(h->mapped);
    free(h->box);
    free(h->host);
    free(h->local);
    free(h->host_name);
    free(h);
}

static void threads_close(void *own, bool failed)
{
    endpoint *me = own;
    team     *h = me->team;
    (void)failed;
    pthread_mutex_lock(&h->lock);
    int left = --h->open;
    pthread_mutex_unlock(&h->lock);
    if (left == 0) free_team(h);
    free(me);
}

static const tm_comm_engine threads = {
    .name = "threads",
    .share = threads_share,
    .send = threads_send,
    .receive = threads_receive,
    .test = threads_test,
    .cancel = threads_cancel,
    .abort = threads_abort,
    .close = threads_close,
};

static team *make_team(int ranks, const int *host)
{
    team  *h = tm_alloc(sizeof *h);
    size_t n = (size_t)ranks;
    *h = (team){ .ranks = ranks, .open = ranks };
    h->host = tm_alloc(n * sizeof *h->host);
    h->local = tm_alloc(n * sizeof *h->local);
    h->host_name = tm_alloc(n * sizeof *h->host_name);
    h->box = tm_alloc(n * sizeof *h->box);
    h->mapped = tm_alloc(n * sizeof *h->mapped);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->met, NULL);
    char name[TM_COMM_HOST_NAME - 16] = "";
    if (gethostname(name, sizeof name - 1) != 0) snprintf(name, sizeof name, "localhost");
    for (int r = 0; r < ranks; r++) {
        pthread_mutex_init(&h->box[r].lock, NULL);
        h->host[r] = host ? host[r] : 0;
        for (int k = 0; k < r; k++) h->local[r] += h->host[k] == h->host[r];
        if (h->host[r] == 0)
            snprintf(h->host_name[0], TM_COMM_HOST_NAME, "%s", name);
        else
            snprintf(h->host_name[h->host[r]], TM_COMM_HOST_NAME, "%s-%d", name, h->host[r]);
    }
    return h;
}

tm_status tm_comm_open_threads_on(int ranks, const int *host, double deadline_seconds, tm_comm **out, tm_error *err)
{
    if (ranks < 1 || ranks > TM_COMM_LOCAL)
        return tm_fail(err, TM_INVALID, "a world of %d ranks was asked for; there may be 1 to %d on a host", ranks,
                       TM_COMM_LOCAL);
    team  *h = make_team(ranks, host);
    void **segment = tm_alloc((size_t)ranks * sizeof *segment), **here = tm_alloc((size_t)ranks * sizeof *here);
    size_t bytes = tm_comm_segment_bytes(ranks);
    bool   complete = true;
    for (int r = 0; r < ranks; r++) complete = (segment[r] = map(h, bytes).memory) && complete;
    for (int r = 0; r < ranks && complete; r++) {
        endpoint *me = tm_alloc(sizeof *me);
        *me = (endpoint){ h, r };
        for (int k = 0; k < ranks; k++)
            if (h->host[k] == h->host[r]) here[h->local[k]] = segment[k];
        tm_comm_ports ports = { &threads, me, r, ranks, h->host, (const char(*)[TM_COMM_HOST_NAME])h->host_name };
        out[r] = tm_comm_world_open(&ports, here, deadline_seconds);
    }
    free(segment);
    free(here);
    if (complete) return TM_OK;
    free_team(h);
    return tm_fail(err, TM_NOMEM, "no memory for a world of %d ranks (%zu bytes each)", ranks, bytes);
}

tm_status tm_comm_open_threads(int ranks, double deadline_seconds, tm_comm **out, tm_error *err)
{
    return tm_comm_open_threads_on(ranks, NULL, deadline_seconds, out, err);
}
