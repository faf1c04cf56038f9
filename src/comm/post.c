/* SPDX-License-Identifier: Apache-2.0 */
/* comm/post.c - messages that nobody waits for: a copy is on its way while the sender goes on.
 *
 * Engines carry large messages only while both ends are in a call, and the sender may compute for a second. So a thread
 * looks after what is on its way; it is there from the first such message on, and sleeps when there is none.
 */
#include "comm/group.h"

#include "base/arena.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct parcel {
    struct parcel  *next;
    tm_comm_request request[2]; /* notice, data */
    bool            done[2];
    tm_comm_notice  notice;
    int             to; /* rank of the world */
    unsigned char   data[];
} parcel;

struct tm_comm_outbox {
    tm_comm_world  *world;
    pthread_t       carrier;
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    parcel         *first;
    bool            closes;
    char            failure[300]; /* of a message that broke */
};

/* What is still on its way after a look at all of it. */
static void look_after(tm_comm_outbox *box)
{
    const tm_comm_ports *ports = &box->world->ports;
    for (parcel **at = &box->first; *at;) {
        parcel *p = *at;
        for (int k = 0; k < 2 && !box->failure[0]; k++) {
            const char *why = p->done[k] ? NULL : ports->engine->test(ports->own, &p->request[k], &p->done[k]);
            if (why) snprintf(box->failure, sizeof box->failure, "to rank %d: %.250s", p->to, why);
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
    tm_comm_outbox *box = argument;
    pthread_mutex_lock(&box->lock);
    while (!box->closes) {
        look_after(box);
        if (!box->first || box->failure[0]) {
            pthread_cond_wait(&box->changed, &box->lock);
            continue;
        }
        pthread_mutex_unlock(&box->lock);
        nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
        pthread_mutex_lock(&box->lock);
    }
    pthread_mutex_unlock(&box->lock);
    return NULL;
}

static tm_comm_outbox *open_outbox(tm_comm_world *world)
{
    tm_comm_outbox *box = tm_alloc(sizeof *box);
    memset(box, 0, sizeof *box);
    box->world = world;
    pthread_mutex_init(&box->lock, NULL);
    pthread_cond_init(&box->changed, NULL);
    if (pthread_create(&box->carrier, NULL, carry, box) == 0) return box;
    pthread_cond_destroy(&box->changed);
    pthread_mutex_destroy(&box->lock);
    free(box);
    return NULL;
}

tm_status tm_comm_post_message(tm_comm *comm, const tm_comm_notice *notice, const tm_collective *call, int tag,
                               tm_error *err)
{
    tm_comm_world       *world = comm->world;
    const tm_comm_ports *ports = &world->ports;
    size_t               bytes = call->count * tm_comm_bytes_of(call->format);
    if (!world->outbox) world->outbox = open_outbox(world);
    tm_comm_outbox *box = world->outbox;
    if (!box) return tm_comm_fail(comm, TM_NOMEM, err, "the system gives no thread for messages");
    parcel *p = tm_alloc(sizeof *p + bytes), **last = &box->first;
    memset(p, 0, sizeof *p);
    p->notice = *notice;
    p->to = comm->member[call->peer];
    memcpy(p->data, call->send, bytes);
    pthread_mutex_lock(&box->lock);
    const char *why = box->failure[0] ? box->failure : NULL;
    if (!why) why = ports->engine->send(ports->own, p->to, tag, &p->notice, sizeof p->notice, &p->request[0]);
    bool begun = !why;
    if (begun) why = ports->engine->send(ports->own, p->to, tag, p->data, bytes, &p->request[1]);
    char text[300] = "";
    if (why) snprintf(text, sizeof text, "%.290s", why);
    while (*last) last = &(*last)->next;
    if (why && begun) ports->engine->cancel(ports->own, &p->request[0]);
    if (why)
        free(p);
    else
        *last = p;
    if (!why) tm_comm_count(world, p->to, sizeof p->notice + bytes);
    look_after(box);
    if (box->first) pthread_cond_signal(&box->changed);
    pthread_mutex_unlock(&box->lock);
    if (!why) return TM_OK;
    char what[256];
    return tm_comm_fail(comm, TM_IO, err, "the connection failed in %s: %s", tm_comm_notice_text(notice, what), text);
}

/* Waits for what is on its way, unless the world has failed. */
static void settle(tm_comm_outbox *box)
{
    int64_t until = tm_now_ns() + (int64_t)(box->world->deadline_s * 1e9);
    bool    open = true;
    while (open && !box->world->failed && tm_now_ns() < until) {
        pthread_mutex_lock(&box->lock);
        look_after(box);
        open = box->first && !box->failure[0];
        pthread_mutex_unlock(&box->lock);
        if (open) nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
    }
}

void tm_comm_close_outbox(tm_comm_world *world)
{
    tm_comm_outbox      *box = world->outbox;
    const tm_comm_ports *ports = &world->ports;
    if (!box) return;
    settle(box);
    pthread_mutex_lock(&box->lock);
    box->closes = true;
    pthread_cond_signal(&box->changed);
    pthread_mutex_unlock(&box->lock);
    pthread_join(box->carrier, NULL);
    while (box->first) {
        parcel *p = box->first;
        box->first = p->next;
        for (int k = 0; k < 2; k++)
            if (!p->done[k]) ports->engine->cancel(ports->own, &p->request[k]);
        free(p);
    }
    pthread_cond_destroy(&box->changed);
    pthread_mutex_destroy(&box->lock);
    free(box);
    world->outbox = NULL;
}
