/* SPDX-License-Identifier: Apache-2.0 */
/* comm/p2p/send_queue.c - buffered sends: a copy is on its way while the sender goes on. Within a host a small message
 * is an eager packet (ring.c), a large one is staged where ranks reach each other's memory (stage.c). Otherwise, and
 * where the ring is full, it waits in this queue.
 *
 * Engines carry large messages only while both ends are in a call, and the sender may compute for a second. So a thread
 * looks after what is on its way; it is there from the first such message on, and sleeps when there is none.
 */
#include "comm/p2p/p2p.h"

#include "base/arena.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct queued {
    struct queued  *next;
    tm_comm_request request[2]; /* header, data */
    bool            done[2];
    tm_comm_header  header;
    bool            local; /* the header is a packet, or the whole message (eager) */
    bool            eager;
    int             to, tag; /* rank of the world */
    size_t          bytes;
    unsigned char   data[];
} queued;

struct tm_comm_send_queue {
    tm_comm_world  *world;
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    queued         *first;
    bool            closes;
    char            failure[300]; /* of a message that broke */
};

/* A packet that had no room; those to the same rank stay in order. */
static void try_packet(tm_comm_send_queue *queue, queued *p)
{
    for (const queued *before = queue->first; before != p; before = before->next)
        if (before->local && before->to == p->to && !before->done[0]) return;
    tm_comm_protocol how = p->eager ? TM_COMM_EAGER : TM_COMM_BY_ENGINE;
    uint64_t         end;
    p->done[0] = tm_comm_ring_put(queue->world, p->to, p->tag, &p->header, how, p->data, p->bytes, &end);
}

/* What is still on its way after a look at all of it. */
static void look_after(tm_comm_send_queue *queue)
{
    const tm_comm_ports *ports = &queue->world->ports;
    for (queued **at = &queue->first; *at;) {
        queued *p = *at;
        if (p->local && !p->done[0]) try_packet(queue, p);
        for (int k = p->local ? 1 : 0; k < 2 && !queue->failure[0]; k++) {
            const char *why = p->done[k] ? NULL : ports->engine->test(ports->own, &p->request[k], &p->done[k]);
            if (why) snprintf(queue->failure, sizeof queue->failure, "to rank %d: %.250s", p->to, why);
        }
        if (!p->done[0] || !p->done[1]) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        free(p);
    }
}

static void *carry(void *argument)
{
    enum { NAP_NS = 50000 };
    tm_comm_send_queue *queue = argument;
    pthread_mutex_lock(&queue->lock);
    while (!queue->closes) {
        look_after(queue);
        if (!queue->first || queue->failure[0]) {
            pthread_cond_wait(&queue->changed, &queue->lock);
            continue;
        }
        pthread_mutex_unlock(&queue->lock);
        nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
        pthread_mutex_lock(&queue->lock);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

static tm_comm_send_queue *open_queue(tm_comm_world *world)
{
    tm_comm_send_queue *queue = tm_alloc(sizeof *queue);
    memset(queue, 0, sizeof *queue);
    queue->world = world;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
    if (pthread_create(&queue->thread, NULL, carry, queue) == 0) return queue;
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
    free(queue);
    return NULL;
}

bool tm_comm_send_queue_waits(tm_comm_world *world, int to)
{
    tm_comm_send_queue *queue = world->send_queue;
    bool                waits = false;
    if (!queue) return false;
    pthread_mutex_lock(&queue->lock);
    for (const queued *p = queue->first; p; p = p->next) waits = waits || (p->local && p->to == to && !p->done[0]);
    pthread_mutex_unlock(&queue->lock);
    return waits;
}

static queued *make_queued(const tm_comm_world *world, const tm_comm_header *header, const void *data, size_t bytes,
                           int to, int tag)
{
    queued *p = tm_alloc(sizeof *p + bytes);
    memset(p, 0, sizeof *p);
    p->header = *header;
    p->to = to;
    p->tag = tag;
    p->bytes = bytes;
    p->local = tm_comm_is_local(world, to);
    p->eager = p->local && tm_comm_protocol_of(header, bytes, true) == TM_COMM_EAGER;
    p->done[1] = p->eager;
    if (bytes > 0) memcpy(p->data, data, bytes);
    return p;
}

/* Returns why it cannot be sent, or NULL: it is. With the lock. */
static const char *hand_over(tm_comm_send_queue *queue, queued *p)
{
    const tm_comm_ports *ports = &queue->world->ports;
    const char          *why = queue->failure[0] ? queue->failure : NULL;
    if (!why && !p->local)
        why = ports->engine->send(ports->own, p->to, p->tag, &p->header, sizeof p->header, &p->request[0]);
    if (why || p->eager) return why;
    why = ports->engine->send(ports->own, p->to, p->tag, p->data, p->bytes, &p->request[1]);
    if (why && !p->local) ports->engine->cancel(ports->own, &p->request[0]);
    return why;
}

/* Eager or staged. */
static bool put_packet(tm_comm_world *world, int to, int tag, const tm_comm_header *header, const void *data,
                       size_t bytes)
{
    uint64_t end;
    if (tm_comm_protocol_of(header, bytes, true) != TM_COMM_EAGER)
        return tm_comm_stage_put(world, to, tag, header, data, bytes);
    return tm_comm_ring_put(world, to, tag, header, TM_COMM_EAGER, data, bytes, &end);
}

tm_status tm_comm_send_buffered(tm_comm *comm, const tm_comm_header *header, const tm_collective *call, int tag,
                                tm_error *err)
{
    tm_comm_world *world = comm->world;
    size_t         bytes = call->count * tm_comm_bytes_of(call->format);
    int            to = comm->member[call->peer];
    if (tm_comm_is_local(world, to) && !tm_comm_send_queue_waits(world, to) &&
        put_packet(world, to, tag, header, call->send, bytes))
        return TM_OK;
    if (!world->send_queue) world->send_queue = open_queue(world);
    tm_comm_send_queue *queue = world->send_queue;
    if (!queue) return tm_comm_fail(comm, TM_NOMEM, err, "the system gives no thread for messages");
    queued *p = make_queued(world, header, call->send, bytes, to, tag), **last = &queue->first;
    char    text[300] = "";
    pthread_mutex_lock(&queue->lock);
    const char *why = hand_over(queue, p);
    if (why) snprintf(text, sizeof text, "%.290s", why);
    while (*last) last = &(*last)->next;
    if (why)
        free(p);
    else
        *last = p;
    if (!why) tm_comm_count(world, to, sizeof *header + bytes);
    look_after(queue);
    if (queue->first) pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    if (!why) return TM_OK;
    char what[256];
    return tm_comm_fail(comm, TM_IO, err, "the connection failed in %s: %s", tm_comm_header_text(header, what), text);
}

/* Waits for what is on its way, unless the world has failed. */
static void wait_all(tm_comm_send_queue *queue)
{
    int64_t until = tm_now_ns() + (int64_t)(queue->world->deadline_s * 1e9);
    bool    open = true;
    while (open && !queue->world->failed && tm_now_ns() < until) {
        pthread_mutex_lock(&queue->lock);
        look_after(queue);
        open = queue->first && !queue->failure[0];
        pthread_mutex_unlock(&queue->lock);
        if (open) nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
    }
}

void tm_comm_send_queue_close(tm_comm_world *world)
{
    tm_comm_send_queue  *queue = world->send_queue;
    const tm_comm_ports *ports = &world->ports;
    if (!queue) return;
    wait_all(queue);
    pthread_mutex_lock(&queue->lock);
    queue->closes = true;
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
    while (queue->first) {
        queued *p = queue->first;
        queue->first = p->next;
        for (int k = p->local ? 1 : 0; k < 2; k++)
            if (!p->done[k]) ports->engine->cancel(ports->own, &p->request[k]);
        free(p);
    }
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
    free(queue);
    world->send_queue = NULL;
}
