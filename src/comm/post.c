/* SPDX-License-Identifier: Apache-2.0 */
/* comm/post.c - messages that nobody waits for: a copy is on its way while the sender goes on. Within a host a small
 * one is a letter and needs no more (mail.c), a large one lies in a tray where ranks reach each other's memory
 * (tray.c); else, and where there is no room, the notice is a letter.
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
    bool            local; /* the notice is a letter, or the whole message (inside) */
    bool            inside;
    int             to, tag; /* rank of the world */
    size_t          bytes;
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

/* A letter that had no room; those to the same rank stay in order. */
static void try_letter(tm_comm_outbox *box, parcel *p)
{
    for (const parcel *before = box->first; before != p; before = before->next)
        if (before->local && before->to == p->to && !before->done[0]) return;
    tm_comm_mail_how how = p->inside ? TM_COMM_INSIDE : TM_COMM_CARRIED;
    uint64_t         end;
    p->done[0] = tm_comm_mail_put(box->world, p->to, p->tag, &p->notice, how, p->data, p->bytes, &end);
}

/* What is still on its way after a look at all of it. */
static void look_after(tm_comm_outbox *box)
{
    const tm_comm_ports *ports = &box->world->ports;
    for (parcel **at = &box->first; *at;) {
        parcel *p = *at;
        if (p->local && !p->done[0]) try_letter(box, p);
        for (int k = p->local ? 1 : 0; k < 2 && !box->failure[0]; k++) {
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

bool tm_comm_outbox_waits(tm_comm_world *world, int to)
{
    tm_comm_outbox *box = world->outbox;
    bool            waits = false;
    if (!box) return false;
    pthread_mutex_lock(&box->lock);
    for (const parcel *p = box->first; p; p = p->next) waits = waits || (p->local && p->to == to && !p->done[0]);
    pthread_mutex_unlock(&box->lock);
    return waits;
}

static parcel *make_parcel(const tm_comm_world *world, const tm_comm_notice *notice, const void *data, size_t bytes,
                           int to, int tag)
{
    parcel *p = tm_alloc(sizeof *p + bytes);
    memset(p, 0, sizeof *p);
    p->notice = *notice;
    p->to = to;
    p->tag = tag;
    p->bytes = bytes;
    p->local = tm_comm_is_local(world, to);
    p->inside = p->local && tm_comm_mail_way(notice, bytes, true) == TM_COMM_INSIDE;
    p->done[1] = p->inside;
    if (bytes > 0) memcpy(p->data, data, bytes);
    return p;
}

/* Returns why it cannot be sent, or NULL: it is. With the lock. */
static const char *hand_over(tm_comm_outbox *box, parcel *p)
{
    const tm_comm_ports *ports = &box->world->ports;
    const char          *why = box->failure[0] ? box->failure : NULL;
    if (!why && !p->local)
        why = ports->engine->send(ports->own, p->to, p->tag, &p->notice, sizeof p->notice, &p->request[0]);
    if (why || p->inside) return why;
    why = ports->engine->send(ports->own, p->to, p->tag, p->data, p->bytes, &p->request[1]);
    if (why && !p->local) ports->engine->cancel(ports->own, &p->request[0]);
    return why;
}

/* With the data in it, or in a tray. */
static bool put_letter(tm_comm_world *world, int to, int tag, const tm_comm_notice *notice, const void *data,
                       size_t bytes)
{
    uint64_t end;
    if (tm_comm_mail_way(notice, bytes, true) != TM_COMM_INSIDE)
        return tm_comm_lay_out(world, to, tag, notice, data, bytes);
    return tm_comm_mail_put(world, to, tag, notice, TM_COMM_INSIDE, data, bytes, &end);
}

tm_status tm_comm_post_message(tm_comm *comm, const tm_comm_notice *notice, const tm_collective *call, int tag,
                               tm_error *err)
{
    tm_comm_world *world = comm->world;
    size_t         bytes = call->count * tm_comm_bytes_of(call->format);
    int            to = comm->member[call->peer];
    if (tm_comm_is_local(world, to) && !tm_comm_outbox_waits(world, to) &&
        put_letter(world, to, tag, notice, call->send, bytes))
        return TM_OK;
    if (!world->outbox) world->outbox = open_outbox(world);
    tm_comm_outbox *box = world->outbox;
    if (!box) return tm_comm_fail(comm, TM_NOMEM, err, "the system gives no thread for messages");
    parcel *p = make_parcel(world, notice, call->send, bytes, to, tag), **last = &box->first;
    char    text[300] = "";
    pthread_mutex_lock(&box->lock);
    const char *why = hand_over(box, p);
    if (why) snprintf(text, sizeof text, "%.290s", why);
    while (*last) last = &(*last)->next;
    if (why)
        free(p);
    else
        *last = p;
    if (!why) tm_comm_count(world, to, sizeof *notice + bytes);
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
        for (int k = p->local ? 1 : 0; k < 2; k++)
            if (!p->done[k]) ports->engine->cancel(ports->own, &p->request[k]);
        free(p);
    }
    pthread_cond_destroy(&box->changed);
    pthread_mutex_destroy(&box->lock);
    free(box);
    world->outbox = NULL;
}
