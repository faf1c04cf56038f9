/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/frames.c - messages over one connection: who may send what, and when. */
#include "comm/engine/frames.h"

#include "base/arena.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* PULL: bytes that are taken from one rank before the others have their turn. JOINED: up to so many bytes go out in one
 * call with their head; the system copies more of them faster by themselves. */
enum { PULL = 4 << 20, JOINED = 65536, HEAD = sizeof(tm_comm_frame) };

_Static_assert(sizeof(tm_comm_parcel) + 64 < TM_COMM_EACH, "what is kept of a message is within its share of the room");

static void *take(size_t bytes)
{
    return memset(tm_alloc(bytes > 0 ? bytes : 1), 0, bytes);
}

/* What an early message takes of the room. */
static size_t cost_of(size_t bytes)
{
    return bytes + TM_COMM_EACH;
}

void tm_comm_peer_lose(tm_comm_peer *p)
{
    if (p->fd >= 0) close(p->fd);
    p->fd = -1;
}

static void __attribute__((format(printf, 2, 3))) break_off(tm_comm_peer *p, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(p->fault, sizeof p->fault, format, arguments);
    va_end(arguments);
    tm_comm_peer_lose(p);
}

/* --- out ------------------------------------------------------------------------------------- */

static void append_out(tm_comm_outgoing **list, tm_comm_outgoing *o)
{
    while (*list) list = &(*list)->next;
    o->next = NULL;
    *list = o;
}

/* Ahead of all messages but one that is half out, and behind other answers. */
static void answer(tm_comm_peer *p, tm_comm_frame_kind kind, uint32_t tag, uint64_t bytes)
{
    tm_comm_outgoing *o = take(sizeof *o), **at = &p->out;
    *o = (tm_comm_outgoing){ .head = { kind, tag, bytes }, .answers = true };
    while (*at && ((*at)->at > 0 || (*at)->answers)) at = &(*at)->next;
    o->next = *at;
    *at = o;
}

/* The first one is out. */
static void end_out(tm_comm_peer *p)
{
    tm_comm_outgoing *o = p->out;
    p->out = o->next;
    if (o->answers)
        free(o);
    else if (o->head.kind == TM_COMM_FRAME_OFFER)
        append_out(&p->offered, o);
    else
        o->done = true;
}

void tm_comm_peer_push(tm_comm_peer *p)
{
    while (p->fd >= 0 && p->out && !p->ends) {
        tm_comm_outgoing *o = p->out;
        size_t            head = o->at < HEAD ? HEAD - o->at : 0, at = o->at < HEAD ? 0 : o->at - HEAD;
        bool              joined = head > 0 && o->size > 0 && o->size <= JOINED;
        struct iovec      parts[2] = { { (char *)&o->head + HEAD - head, head },
                                       { (char *)(uintptr_t)o->data + at, o->size - at } };
        struct msghdr     message = { .msg_iov = head > 0 ? parts : parts + 1, .msg_iovlen = joined ? 2 : 1 };
        ssize_t n = sendmsg(p->fd, &message, MSG_NOSIGNAL | (head > 0 && o->size > 0 && !joined ? MSG_MORE : 0));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n < 0) {
            tm_comm_peer_lose(p);
            return;
        }
        o->at += (size_t)n;
        if (o->at == HEAD + o->size) end_out(p);
    }
}

tm_comm_outgoing *tm_comm_peer_send(tm_comm_peer *p, int tag, const void *data, size_t bytes)
{
    tm_comm_outgoing *o = take(sizeof *o);
    /* The other end may have said that there is room again. */
    if (bytes <= TM_COMM_EARLY && p->owed + cost_of(bytes) > TM_COMM_ROOM) tm_comm_peer_pull(p);
    bool early = bytes <= TM_COMM_EARLY && p->owed + cost_of(bytes) <= TM_COMM_ROOM;
    *o = (tm_comm_outgoing){ .head = { early ? TM_COMM_FRAME_EARLY : TM_COMM_FRAME_OFFER, (uint32_t)tag, bytes },
                             .data = data,
                             .size = early ? bytes : 0 };
    if (early) p->owed += cost_of(bytes);
    append_out(&p->out, o);
    tm_comm_peer_push(p);
    return o;
}

/* The other end has asked for what was offered first, or does not want it. */
static void go_on(tm_comm_peer *p, bool comes)
{
    tm_comm_outgoing **at = &p->offered;
    while (*at && (*at)->head.tag != p->head.tag) at = &(*at)->next;
    tm_comm_outgoing *o = *at;
    if (!o) {
        break_off(p, "an answer to an offer that nobody has made");
        return;
    }
    *at = o->next;
    if (!comes) {
        o->done = true;
        return;
    }
    o->head.kind = TM_COMM_FRAME_ASKED;
    o->size = (size_t)o->head.bytes;
    o->at = 0;
    append_out(&p->out, o);
}

/* --- in -------------------------------------------------------------------------------------- */

static tm_comm_wanted *remove_wanted(tm_comm_wanted **list, uint32_t tag)
{
    while (*list && (*list)->tag != tag) list = &(*list)->next;
    tm_comm_wanted *w = *list;
    if (w) *list = w->next;
    return w;
}

static void append_wanted(tm_comm_wanted **list, tm_comm_wanted *w)
{
    while (*list) list = &(*list)->next;
    w->next = NULL;
    *list = w;
}

static void remove_parcel(tm_comm_peer *p, tm_comm_parcel *old)
{
    tm_comm_parcel *before = NULL;
    for (tm_comm_parcel *at = p->parcels; at != old; at = at->next) before = at;
    *(before ? &before->next : &p->parcels) = old->next;
    if (p->last == old) p->last = before;
    free(old->data);
    free(old);
}

/* An early message has left its room; that is said now and then. */
static void make_room(tm_comm_peer *p, size_t bytes)
{
    p->taken += cost_of(bytes);
    if (p->taken < TM_COMM_ROOM / 4) return;
    answer(p, TM_COMM_FRAME_TAKEN, 0, p->taken);
    p->held -= p->taken;
    p->taken = 0;
}

static void deliver(tm_comm_peer *p, tm_comm_parcel *from, tm_comm_wanted *to)
{
    size_t bytes = (size_t)from->head.bytes;
    to->other_size = bytes != to->bytes;
    if (!to->other_size && bytes > 0) memcpy(to->data, from->data, bytes);
    to->done = true;
    remove_parcel(p, from);
    make_room(p, bytes);
}

static void ask_for(tm_comm_peer *p, uint64_t bytes, tm_comm_wanted *w)
{
    bool fits = bytes == w->bytes;
    answer(p, fits ? TM_COMM_FRAME_ASK : TM_COMM_FRAME_REFUSE, w->tag, 0);
    if (fits)
        append_wanted(&p->asked, w);
    else
        w->other_size = w->done = true;
}

static tm_comm_parcel *add_parcel(tm_comm_peer *p, tm_comm_wanted *goes_to, size_t bytes)
{
    tm_comm_parcel *new = take(sizeof *new);
    *new = (tm_comm_parcel){ .head = p->head, .data = bytes > 0 ? tm_alloc(bytes) : NULL, .goes_to = goes_to };
    *(p->last ? &p->last->next : &p->parcels) = new;
    return p->last = new;
}

static void begin_early(tm_comm_peer *p)
{
    if (p->head.bytes > TM_COMM_EARLY) {
        break_off(p, "a message of %llu bytes that nobody has asked for", (unsigned long long)p->head.bytes);
        return;
    }
    size_t bytes = (size_t)p->head.bytes;
    p->held += cost_of(bytes);
    if (p->held > TM_COMM_ROOM) {
        break_off(p, "more messages than there is room for (%d bytes)", TM_COMM_ROOM);
        return;
    }
    tm_comm_wanted *w = remove_wanted(&p->wanted, p->head.tag);
    if (w && w->bytes == bytes)
        p->into = w;
    else
        p->coming = add_parcel(p, w, bytes);
}

static void begin_asked(tm_comm_peer *p)
{
    tm_comm_wanted *w = remove_wanted(&p->asked, p->head.tag);
    if (w && w->bytes == p->head.bytes) {
        p->into = w;
        return;
    }
    if (w) append_wanted(&p->asked, w);
    break_off(p, "a message of %llu bytes that nobody has asked for", (unsigned long long)p->head.bytes);
}

static void hear_offer(tm_comm_peer *p)
{
    tm_comm_wanted *w = remove_wanted(&p->wanted, p->head.tag);
    if (w)
        ask_for(p, p->head.bytes, w);
    else if (p->offers == TM_COMM_OFFERS)
        break_off(p, "more than %d offers of messages", TM_COMM_OFFERS);
    else
        p->offers++, (void)add_parcel(p, NULL, 0);
}

/* The head is complete: what is it of? */
static void begin_frame(tm_comm_peer *p)
{
    p->into = NULL;
    p->coming = NULL;
    p->at = 0;
    if (p->head.tag >= TM_COMM_FRAME_TAGS) {
        break_off(p, "a message of kind %u", p->head.tag);
        return;
    }
    switch ((tm_comm_frame_kind)p->head.kind) {
    case TM_COMM_FRAME_EARLY:
        begin_early(p);
        break;
    case TM_COMM_FRAME_ASKED:
        begin_asked(p);
        break;
    case TM_COMM_FRAME_OFFER:
        hear_offer(p);
        break;
    case TM_COMM_FRAME_ASK:
    case TM_COMM_FRAME_REFUSE:
        go_on(p, p->head.kind == TM_COMM_FRAME_ASK);
        break;
    case TM_COMM_FRAME_TAKEN:
        if (p->head.bytes == 0 || p->head.bytes > p->owed)
            break_off(p, "word of %llu bytes that were never sent to it", (unsigned long long)p->head.bytes);
        else
            p->owed -= (size_t)p->head.bytes;
        break;
    default:
        break_off(p, "something that is no message");
    }
    p->inside = p->into || p->coming;
}

static void end_frame(tm_comm_peer *p)
{
    if (p->into) {
        p->into->done = true;
        if (p->head.kind == TM_COMM_FRAME_EARLY) make_room(p, (size_t)p->head.bytes);
    } else if (p->coming && p->coming->goes_to) {
        deliver(p, p->coming, p->coming->goes_to);
    }
    p->into = NULL;
    p->coming = NULL;
    p->inside = false;
    p->at = 0;
}

static char *place_of(tm_comm_peer *p)
{
    if (!p->inside) return (char *)&p->head + p->at;
    return (p->into ? (char *)p->into->data : p->coming->data) + p->at;
}

void tm_comm_peer_pull(tm_comm_peer *p)
{
    for (size_t pulled = 0; p->fd >= 0 && pulled < PULL;) {
        size_t  all = p->inside ? (size_t)p->head.bytes : HEAD, rest = all - p->at;
        ssize_t n = recv(p->fd, place_of(p), rest < PULL - pulled ? rest : PULL - pulled, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (n <= 0) {
            tm_comm_peer_lose(p);
            return;
        }
        p->at += (size_t)n;
        pulled += (size_t)n;
        if (p->at < all) continue;
        if (!p->inside) begin_frame(p);
        if (p->inside && p->at == p->head.bytes) end_frame(p);
    }
    tm_comm_peer_push(p);
}

tm_comm_wanted *tm_comm_peer_receive(tm_comm_peer *p, int tag, void *data, size_t bytes)
{
    tm_comm_wanted *w = take(sizeof *w);
    tm_comm_parcel *there = p->parcels;
    *w = (tm_comm_wanted){ .tag = (uint32_t)tag, .bytes = bytes, .data = data };
    while (there && (there->head.tag != w->tag || there->goes_to)) there = there->next;
    if (!there) {
        append_wanted(&p->wanted, w);
    } else if (there->head.kind == TM_COMM_FRAME_OFFER) {
        ask_for(p, there->head.bytes, w);
        remove_parcel(p, there);
        p->offers--;
    } else if (there == p->coming) {
        there->goes_to = w;
    } else {
        deliver(p, there, w);
    }
    tm_comm_peer_push(p);
    return w;
}

/* --- the end --------------------------------------------------------------------------------- */

static void forget_out(tm_comm_outgoing **list, const void *message)
{
    while (*list && *list != message) list = &(*list)->next;
    if (*list) *list = (*list)->next;
}

static void forget_wanted(tm_comm_wanted **list, const void *message)
{
    while (*list && *list != message) list = &(*list)->next;
    if (*list) *list = (*list)->next;
}

void tm_comm_peer_cancel(tm_comm_peer *p, const void *message)
{
    tm_comm_peer_lose(p);
    forget_out(&p->out, message);
    forget_out(&p->offered, message);
    forget_wanted(&p->wanted, message);
    forget_wanted(&p->asked, message);
}

void tm_comm_peer_free(tm_comm_peer *p)
{
    tm_comm_peer_lose(p);
    while (p->parcels) remove_parcel(p, p->parcels);
    for (tm_comm_outgoing *o = p->out, *next; o; o = next) {
        next = o->next;
        if (o->answers) free(o);
    }
    p->out = NULL;
}
