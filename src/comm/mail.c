/* SPDX-License-Identifier: Apache-2.0 */
/* comm/mail.c - messages between two ranks of a host.
 *
 * Each rank has a ring of letters for each other one in the memory that they have in common. A letter has the notice of
 * the message, and its data one of four ways:
 * - inside: in the letter; the sender is done once it is in the ring;
 * - reached: in the sender's shared memory; the receiver copies it from there, and the sender waits until it has;
 * - laid out: a copy in a tray of the sender (tray.c), which the letter names; the sender goes on;
 * - carried: by the engine, as a message of its own.
 *
 * Letters of all groups and channels (tags) go through one ring, in order. Who finds another one's letter in front of
 * its own puts it aside.
 */
#include "comm/far.h"

#include "base/arena.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 64, INSIDE = 8192, AHEAD = 2048, FEW = 12288, MANY = 32768, PAUSES = 128 };

/* What is said of a message: a notice with what two ranks can differ in, its name and its data behind it. */
typedef struct letter {
    _Atomic uint64_t there; /* where it ends in all that was ever put, once all of it is there; before, 0 */
    uint32_t         bytes; /* of the letter, with its data: whole lines */
    int32_t          tag;   /* -1: the rest of the ring is left out */
    uint64_t         hash, count, send_at;
    int64_t          step;
    int32_t          send_window;
    uint8_t          how, format;
    uint16_t         named; /* bytes of the name, with zeros behind */
    unsigned char    rest[];
} letter;

/* One that was put aside. */
typedef struct kept {
    struct kept *next;
    letter      *letter;
} kept;

_Static_assert(sizeof(letter) + TM_COMM_WHAT + INSIDE + LINE < TM_COMM_MAIL / 2,
               "a letter always finds room in an empty ring");
_Static_assert(TM_COMM_MAIL % LINE == 0, "a ring of whole lines");

/* What this process knows of the letters to and from one rank. */
struct tm_comm_letters {
    _Atomic int   sends, receives; /* locks of what follows; groups may be called by different threads */
    uint64_t      put;             /* to it */
    uint64_t      seen;            /* of those, taken by it when it was looked last */
    uint64_t      taken;           /* from it */
    kept         *aside;           /* put aside, with all of their data */
    tm_comm_tray *trays;           /* of it, as far as they were seen */
    uint64_t      empty;           /* taken, when there was no other one */
    int           pauses;          /* to wait then */
    _Atomic bool  answered;        /* one was put in since */
    int           why;             /* errno: a tray could not be opened */
};

/* Held for as long as a letter is copied. A mutex is given back only when all that was written before has reached the
 * other processors, which takes as long as a small message. In a crowded world who holds it may not run for long. */
static void enter(const tm_comm_world *world, _Atomic int *lock)
{
    enum { YIELDS = 16, NAP_NS = 50000 };
    for (int turn = 0; atomic_exchange_explicit(lock, 1, memory_order_acquire); turn++)
        if (turn < YIELDS || !world->crowded)
            sched_yield();
        else
            nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
}

static void leave(_Atomic int *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release);
}

size_t tm_comm_desk_bytes(int local_size)
{
    return sizeof(tm_comm_desk) + (size_t)local_size * sizeof(tm_comm_mail);
}

void tm_comm_mail_open(tm_comm_world *world)
{
    size_t bytes = (size_t)world->local_size * sizeof *world->letters;
    world->letters = memset(tm_alloc(bytes), 0, bytes);
}

void tm_comm_mail_close(tm_comm_world *world)
{
    for (int r = 0; r < world->local_size; r++) {
        tm_comm_letters *own = &world->letters[r];
        while (own->aside) {
            kept *first = own->aside;
            own->aside = first->next;
            free(first->letter);
            free(first);
        }
        tm_comm_close_seen(own->trays);
    }
    free(world->letters);
    world->letters = NULL;
}

bool tm_comm_is_local(const tm_comm_world *world, int rank)
{
    return world->ports.host[rank] == world->ports.host[world->ports.rank];
}

static tm_comm_mail *mail_to(const tm_comm_world *world, int rank)
{
    return &world->desk[world->local[world->ports.rank]]->mail[world->local[rank]];
}

static tm_comm_mail *mail_from(const tm_comm_world *world, int rank)
{
    return &world->desk[world->local[rank]]->mail[world->local[world->ports.rank]];
}

/* --- to put letters in ----------------------------------------------------------------------- */

tm_comm_mail_how tm_comm_mail_way(const tm_comm_notice *notice, size_t bytes, bool posted)
{
    if (bytes <= INSIDE) return TM_COMM_INSIDE;
    return !posted && notice->send_window >= 0 ? TM_COMM_REACHED : TM_COMM_CARRIED;
}

/* Whether so many bytes can follow what is in the ring and has not been taken, and the line behind them. */
static bool is_free(const tm_comm_mail *mail, tm_comm_letters *own, uint64_t bytes)
{
    if (own->put + bytes + LINE - own->seen > TM_COMM_MAIL)
        own->seen = atomic_load_explicit(&mail->taken, memory_order_acquire);
    return own->put + bytes + LINE - own->seen <= TM_COMM_MAIL;
}

static letter *letter_at(tm_comm_mail *mail, uint64_t place)
{
    return (letter *)(void *)&mail->ring[place % TM_COMM_MAIL];
}

/* The letter is there: all of it can be read. What follows is not. */
static void hand_in(tm_comm_mail *mail, tm_comm_letters *own, letter *l)
{
    own->put += l->bytes;
    atomic_store_explicit(&letter_at(mail, own->put)->there, 0, memory_order_relaxed);
    atomic_store_explicit(&l->there, own->put, memory_order_release);
}

/* Room for so many bytes in one piece behind what is in the ring; the rest of the ring is left out if they do not fit
 * there. */
static bool find_room(tm_comm_mail *mail, tm_comm_letters *own, size_t bytes)
{
    uint64_t rest = TM_COMM_MAIL - own->put % TM_COMM_MAIL;
    if (bytes <= rest) return is_free(mail, own, bytes);
    if (!is_free(mail, own, rest + bytes)) return false;
    letter *end = letter_at(mail, own->put);
    end->bytes = (uint32_t)rest;
    end->tag = -1;
    hand_in(mail, own, end);
    return true;
}

/* Asks for the lines of a letter like this one behind it, as the receiver has them from the round before. Long ones
 * are written so fast that asking takes longer. */
static void fetch_lines(const tm_comm_mail *mail, uint64_t at, size_t bytes)
{
    if (bytes > AHEAD) return;
    for (size_t i = LINE; i < bytes; i += LINE) __builtin_prefetch(&mail->ring[(at + i) % TM_COMM_MAIL], 1);
}

bool tm_comm_mail_put(tm_comm_world *world, int to, int tag, const tm_comm_notice *notice, tm_comm_mail_how how,
                      const void *data, size_t bytes, uint64_t *end)
{
    tm_comm_mail    *mail = mail_to(world, to);
    tm_comm_letters *own = &world->letters[world->local[to]];
    size_t           inside = how == TM_COMM_INSIDE || how == TM_COMM_LAID_OUT ? bytes : 0;
    size_t           named = (strnlen(notice->what, TM_COMM_WHAT - 1) + 7) / 8 * 8;
    size_t           whole = (sizeof(letter) + named + inside + LINE - 1) / LINE * LINE;
    enter(world, &own->sends);
    bool fits = find_room(mail, own, whole);
    if (fits) {
        letter *l = letter_at(mail, own->put);
        if (inside > 0) memcpy(l->rest + named, data, inside);
        memcpy(l->rest, notice->what, named);
        l->bytes = (uint32_t)whole;
        l->tag = tag;
        l->hash = notice->hash;
        l->count = notice->count;
        l->send_at = notice->send_at;
        l->step = notice->step;
        l->send_window = notice->send_window;
        l->how = (uint8_t)how;
        l->format = notice->format;
        l->named = (uint16_t)named;
        hand_in(mail, own, l);
        atomic_store_explicit(&own->answered, true, memory_order_relaxed);
        *end = own->put;
        if (world->crowded) tm_comm_event_tell(&mail->changed);
        fetch_lines(mail, own->put, whole);
    }
    leave(&own->sends);
    return fits;
}

bool tm_comm_mail_taken(const tm_comm_world *world, int to, uint64_t end)
{
    return atomic_load_explicit(&mail_to(world, to)->taken, memory_order_acquire) >= end;
}

/* One turn of waiting for the rank. Messages that the engine has not brought on their way move on. */
static tm_status wait_turn(tm_far_call *f, tm_comm_patience *patience)
{
    const tm_comm_ports *ports = &f->comm->world->ports;
    if (patience->turn % 16 == 15) TM_TRY(tm_comm_failed(f->comm, f->err));
    if (patience->turn % 64 == 63 && ports->engine->move_on) ports->engine->move_on(ports->own);

    return tm_comm_wait_turn(f->comm, patience) ? TM_OK : tm_comm_late(f->comm, &f->notice, &f->call->peer, 1, f->err);
}

static tm_status run_send(tm_far_call *f)
{
    tm_comm_world   *world = f->comm->world;
    int              to = f->comm->member[f->call->peer];
    size_t           bytes = f->call->count * f->element;
    tm_comm_patience patience = { .event = &mail_to(world, to)->changed };
    uint64_t         end;
    if (bytes > INSIDE) tm_comm_locate(world, f->call->send, bytes, &f->notice.send_window, &f->notice.send_at);
    tm_comm_mail_how how = tm_comm_mail_way(&f->notice, bytes, false);
    while (tm_comm_outbox_waits(world, to) ||
           !tm_comm_mail_put(world, to, f->tag, &f->notice, how, f->call->send, bytes, &end))
        TM_TRY(wait_turn(f, &patience));
    if (how == TM_COMM_INSIDE) return TM_OK;
    if (how == TM_COMM_CARRIED) {
        TM_TRY(tm_far_send(f, f->call->peer, f->call->send, bytes, 0));
        return tm_far_wait(f, 0);
    }
    patience = (tm_comm_patience){ .event = patience.event };
    while (!tm_comm_mail_taken(world, to, end)) TM_TRY(wait_turn(f, &patience));
    return TM_OK;
}

/* --- to take them out ------------------------------------------------------------------------ */

/* Where the data of a letter lies, if not with the engine. NULL: out of reach, for a reason. */
static const void *data_of(const tm_far_call *f, tm_comm_letters *own, const letter *l)
{
    const unsigned char *inside = l->rest + l->named;
    if (l->how == TM_COMM_INSIDE) return inside;
    if (l->how == TM_COMM_LAID_OUT) {
        tm_comm_file file;
        memcpy(&file, inside, sizeof file);
        return tm_comm_see_tray(&own->trays, &file, &own->why);
    }
    return tm_comm_reach(f->comm, f->call->peer, l->send_window, l->send_at);
}

/* The message's, if it is what this rank calls. */
static void read_letter(tm_far_call *f, tm_comm_letters *from, const letter *l, tm_comm_notice *theirs,
                        tm_comm_mail_how *how)
{
    size_t bytes = f->call->count * f->element;
    *how = (tm_comm_mail_how)l->how;
    theirs->hash = l->hash;
    if (l->hash != f->notice.hash) {
        *theirs = (tm_comm_notice){
            .hash = l->hash, .count = l->count, .step = l->step, .format = l->format, .kind = TM_COMM_SEND, .peer = -1
        };
        memcpy(theirs->what, l->rest, l->named);
    }
    if (theirs->hash != f->notice.hash || l->how == TM_COMM_CARRIED || bytes == 0) return;
    const void *data = data_of(f, from, l);
    if (data) memcpy(f->call->receive, data, bytes);
}

static void put_aside(const tm_far_call *f, tm_comm_letters *from, const letter *l)
{
    size_t  bytes = l->how == TM_COMM_CARRIED ? 0 : l->count * tm_comm_bytes_of((tm_comm_format)l->format);
    letter *own = tm_alloc(sizeof *own + l->named + bytes);
    memcpy(own, l, sizeof *l + l->named);
    const void *data = bytes > 0 ? data_of(f, from, l) : NULL;
    if (data) memcpy(own->rest + l->named, data, bytes);
    if (own->how != TM_COMM_CARRIED) own->how = TM_COMM_INSIDE;
    kept **list = &from->aside;
    while (*list) list = &(*list)->next;
    *list = tm_alloc(sizeof **list);
    **list = (kept){ NULL, own };
}

/* Takes the next letter with this tag, if it has come. With the lock. */
static bool take(tm_far_call *f, tm_comm_mail *mail, tm_comm_letters *own, tm_comm_notice *theirs,
                 tm_comm_mail_how *how)
{
    for (kept **at = &own->aside; *at; at = &(*at)->next) {
        kept *k = *at;
        if (k->letter->tag != f->tag) continue;
        read_letter(f, own, k->letter, theirs, how);
        *at = k->next;
        free(k->letter);
        free(k);
        return true;
    }
    for (bool found = false; !found;) {
        const letter *l = letter_at(mail, own->taken);
        if (atomic_load_explicit(&l->there, memory_order_acquire) == 0) return false;
        found = l->tag == f->tag;
        if (found)
            read_letter(f, own, l, theirs, how);
        else if (l->tag >= 0)
            put_aside(f, own, l);
        own->taken += l->bytes;
        atomic_store_explicit(&mail->taken, own->taken, memory_order_release);
        if (f->comm->world->crowded) tm_comm_event_tell(&mail->changed);
    }
    return true;
}

/* Letters of a row come sooner if nobody looks for them: each look takes the line where the sender writes. So who has
 * taken all of them waits until some have come, unless the other one waits for an answer. */
static int pauses_of(tm_comm_letters *own)
{
    uint64_t came = own->taken - own->empty;
    own->empty = own->taken;
    if (atomic_exchange_explicit(&own->answered, false, memory_order_relaxed))
        own->pauses = 0;
    else if (came < FEW)
        own->pauses = own->pauses == 0 ? 8 : own->pauses < PAUSES ? 2 * own->pauses : PAUSES;
    else if (came > MANY)
        own->pauses /= 2;
    return own->pauses;
}

static tm_status run_receive(tm_far_call *f)
{
    tm_comm_world   *world = f->comm->world;
    int              peer = f->call->peer, from = f->comm->member[peer];
    tm_comm_mail    *mail = mail_from(world, from);
    tm_comm_letters *own = &world->letters[world->local[from]];
    tm_comm_notice  *theirs = &f->comm->notices[peer];
    tm_comm_mail_how how = TM_COMM_INSIDE;
    for (tm_comm_patience patience = { .event = &mail->changed };;) {
        enter(world, &own->receives);
        bool came = take(f, mail, own, theirs, &how);
        int  why = own->why, pauses = came || patience.turn > 0 ? 0 : pauses_of(own);
        leave(&own->receives);
        if (why)
            return tm_comm_fail(f->comm, TM_IO, f->err, "rank %d cannot open what rank %d has for it: %s",
                                world->ports.rank, from, strerror(why));
        if (came) break;
        if (!world->crowded) tm_comm_pause(pauses);
        TM_TRY(wait_turn(f, &patience));
    }
    if (theirs->hash != f->notice.hash) return tm_comm_mismatch(f->comm, &f->notice, peer, theirs, f->err);
    if (how != TM_COMM_CARRIED) return TM_OK;
    TM_TRY(tm_far_receive(f, peer, f->call->receive, f->call->count * f->element, 0));
    return tm_far_wait(f, 0);
}

tm_status tm_comm_mail_run(tm_far_call *f)
{
    return f->call->kind == TM_COMM_SEND ? run_send(f) : run_receive(f);
}
