/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/clocks.h"

#include <stdlib.h>
#include <string.h>

/* A stamp is a time (20 bits) and an agent (11 bits). A trace's writer is a stamp (top bit: asynchronous), its reader a
 * stamp, or (top bit) the first of a list. */
enum { AGENT_BITS = 11, AGENT = (1 << AGENT_BITS) - 1, TIME = (1 << 20) - 1, LANES = 32 };

#define TOP 0x80000000u

static uint32_t time_of(uint32_t stamp)
{
    return stamp >> AGENT_BITS & TIME;
}

static uint32_t *row_of(const machine_clocks *c, uint32_t thread)
{
    return c->known + (size_t)thread * c->agents;
}

static uint32_t first_of(uint32_t lanes)
{
    return (uint32_t)__builtin_ctz(lanes);
}

static uint32_t *zeros(size_t n)
{
    uint32_t *got = calloc(n + 1, sizeof *got);
    if (!got) abort();
    return got;
}

void machine_clocks_make(machine_clocks *c, uint32_t threads, uint32_t agents)
{
    c->threads = threads;
    c->agents = agents;
    c->own = zeros(agents);
    c->proxy = zeros(agents);
    c->known = zeros((size_t)threads * agents);
}

void machine_clocks_end(machine_clocks *c)
{
    free(c->own);
    free(c->proxy);
    free(c->known);
}

void machine_clocks_barrier(machine_clocks *c)
{
    c->floor = ++c->now;
    for (uint32_t i = 0; i < c->agents; i++) c->own[i] = c->now;
}

bool machine_clocks_block(machine_clocks *c)
{
    bool anew = c->now > MACHINE_LAST_TIME / 2;
    if (anew) {
        memset(c->known, 0, (size_t)c->threads * c->agents * sizeof *c->known);
        memset(c->proxy, 0, c->agents * sizeof *c->proxy);
        c->now = 0;
    }
    machine_clocks_barrier(c);
    c->begin = c->now;
    return anew;
}

static void learn(uint32_t *to, const uint32_t *from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) to[i] = to[i] > from[i] ? to[i] : from[i];
}

void machine_clocks_meet(machine_clocks *c, uint32_t base, uint32_t lanes, bool far)
{
    if (!c->on) return;
    /* What bar.sync has told need not be looked at. */
    uint32_t from = far ? 0 : base, n = far ? c->agents : LANES;
    uint32_t first = base + first_of(lanes), *row = row_of(c, first);
    for (uint32_t left = lanes; left; left &= left - 1) {
        uint32_t t = base + first_of(left);
        learn(row + from, row_of(c, t) + from, n);
        row[t] = c->now;
    }
    c->now++;
    for (uint32_t left = lanes; left; left &= left - 1) {
        uint32_t t = base + first_of(left);
        c->own[t] = c->now;
        if (t != first) memcpy(row_of(c, t) + from, row + from, n * sizeof *row);
    }
}

void machine_clocks_publish(machine_clocks *c, uint32_t thread, uint32_t *row)
{
    if (!c->on) return;
    row_of(c, thread)[thread] = c->now;
    learn(row, row_of(c, thread), c->agents);
    c->own[thread] = ++c->now;
}

void machine_clocks_learn(machine_clocks *c, uint32_t thread, const uint32_t *row)
{
    if (c->on) learn(row_of(c, thread), row, c->agents);
}

void machine_clocks_fence(machine_clocks *c, uint32_t thread)
{
    if (!c->on) return;
    learn(c->proxy, row_of(c, thread), c->agents);
    for (uint32_t i = 0; i < c->agents; i++) c->proxy[i] = c->proxy[i] >= c->floor ? c->proxy[i] : c->floor - 1;
    c->proxy[thread] = c->now;
    c->own[thread] = ++c->now;
}

static bool ordered(const machine_clocks *c, uint32_t thread, uint32_t me, uint32_t agent, uint32_t time)
{
    return time < c->floor || agent == me || row_of(c, thread)[agent] >= time;
}

bool machine_clocks_knows(const machine_clocks *c, uint32_t thread, uint32_t agent, uint32_t time)
{
    return !c->on || ordered(c, thread, thread, agent, time);
}

/* Is a deed known to all who act? */
static bool known(const machine_clocks *c, const machine_doer *a, uint32_t agent, uint32_t time)
{
    if (time < c->floor) return true;
    for (uint32_t left = a->lanes; left; left &= left - 1)
        if (!ordered(c, a->knows + first_of(left), a->first + first_of(left), agent, time)) return false;
    return true;
}

/* --- traces */

static void drop(machine_reader_lists *s, machine_trace *t)
{
    if (t->reader & TOP) {
        uint32_t last = t->reader & ~TOP;
        while (s->of[last].next) last = s->of[last].next;
        s->of[last].next = s->free;
        s->free = t->reader & ~TOP;
    }
    t->reader = 0;
}

static void push(machine_reader_lists *s, machine_trace *t, uint32_t first, uint32_t lanes, uint32_t time)
{
    uint32_t at = s->free;
    if (at)
        s->free = s->of[at].next;
    else {
        if (s->n + 1 >= s->room) {
            s->room = s->room ? 2 * s->room : 4096;
            s->of = realloc(s->of, s->room * sizeof *s->of);
            if (!s->of) abort();
        }
        at = ++s->n;
    }
    s->of[at] = (machine_readers){ time, first, lanes, t->reader & TOP ? t->reader & ~TOP : 0 };
    t->reader = TOP | at;
}

static void set_reader(machine_reader_lists *s, machine_trace *t, const machine_doer *a)
{
    drop(s, t);
    if (a->lanes & (a->lanes - 1))
        push(s, t, a->first, a->lanes, a->time);
    else
        t->reader = a->time << AGENT_BITS | (a->first + first_of(a->lanes));
}

static void add_reader(const machine_clocks *c, machine_reader_lists *s, machine_trace *t, const machine_doer *a)
{
    uint32_t r = t->reader;
    if (r == 0) {
        set_reader(s, t, a);
        return;
    }
    if (!(r & TOP)) {
        if (time_of(r) < c->begin)
            return; /* whoever writes it now is in the wrong: this reader must not be forgotten */
        if (known(c, a, r & AGENT, time_of(r))) {
            set_reader(s, t, a);
            return;
        }
        t->reader = 0;
        push(s, t, r & AGENT, 1, time_of(r));
    } else {
        machine_readers *head = &s->of[r & ~TOP];
        if (head->time < c->begin) return;
        if (head->time < c->floor) {
            set_reader(s, t, a);
            return;
        }
        for (machine_readers *p = head;; p = &s->of[p->next]) {
            if (p->first == a->first && (p->time == a->time || !(p->lanes & ~a->lanes))) {
                p->lanes |= a->lanes;
                p->time = a->time;
                return;
            }
            if (!p->next) break;
        }
    }
    push(s, t, a->first, a->lanes, a->time);
}

/* The agent whose reading a writer does not know of; -1: none. */
static int64_t unknown_reader(const machine_clocks *c, const machine_reader_lists *s, uint32_t r, const machine_doer *a)
{
    if (!r) return -1;
    if (!(r & TOP)) {
        uint32_t time = time_of(r);
        return time < c->begin || !known(c, a, r & AGENT, time) ? (int64_t)(r & AGENT) : -1;
    }
    for (uint32_t at = r & ~TOP; at; at = s->of[at].next) {
        const machine_readers *p = &s->of[at];
        if (p->time < c->begin) return p->first;
        for (uint32_t left = p->time < c->floor ? 0 : p->lanes; left; left &= left - 1)
            if (!known(c, a, p->first + first_of(left), p->time)) return p->first + first_of(left);
    }
    return -1;
}

const char *machine_clocks_touch(const machine_clocks *c, machine_reader_lists *s, machine_trace *t, uint32_t n,
                                 const machine_doer *a, machine_deed deed, int64_t *who)
{
    uint32_t mark = deed == MACHINE_ASYNC_WRITE ? TOP : 0;
    uint32_t stamp = mark | a->time << AGENT_BITS | (a->first + first_of(a->lanes));
    for (uint32_t i = 0; i < n; i++, t++) {
        uint32_t time = time_of(t->writer);
        if (t->writer && (time < c->begin || time >= c->floor)) {
            *who = t->writer & AGENT;
            if (time < c->begin) return "another block has written this";
            if (!known(c, a, t->writer & AGENT, time)) return "another thread has written this, and nothing is between";
        }
        if (deed == MACHINE_READ) {
            if (t->reader != stamp) add_reader(c, s, t, a);
            continue;
        }
        *who = unknown_reader(c, s, t->reader, a);
        if (*who >= 0) return "another thread may still read this";
        drop(s, t);
        t->writer = stamp;
    }
    return NULL;
}

/* Was a deed thread `me`'s own in this block, or one before the last barrier? 0: there was none. */
static inline bool is_past(const machine_clocks *c, uint32_t stamp, uint32_t me)
{
    uint32_t time = time_of(stamp);
    return !stamp || (time >= c->begin && (time < c->floor || (stamp & AGENT) == me));
}

/* A deed of one thread on traces without anything to look up, as nearly all are. False: it is not such a one. */
static inline bool touch_quietly(const machine_clocks *c, machine_trace *t, uint32_t n, uint32_t me, machine_deed deed)
{
    uint32_t stamp = c->own[me] << AGENT_BITS | me;
    bool     quiet = true;
    for (uint32_t i = 0; i < n; i++)
        quiet &= is_past(c, t[i].writer & ~TOP, me) && !(t[i].reader & TOP) && is_past(c, t[i].reader, me);
    for (uint32_t i = 0; quiet && i < n; i++) t[i] = (machine_trace){ t[i].writer, stamp };
    if (deed == MACHINE_WRITE)
        for (uint32_t i = 0; quiet && i < n; i++) t[i] = (machine_trace){ stamp, 0 };
    return quiet;
}

const char *machine_clocks_touch_warp(const machine_clocks *c, machine_reader_lists *lists, machine_trace *t,
                                      const uint32_t place[32], uint32_t n, uint32_t first, uint32_t on,
                                      machine_deed deed, int64_t *other, int *lane)
{
    const uint32_t *own = c->own + first;
    for (uint32_t left = on, lanes; left; left &= ~lanes) {
        uint32_t i = first_of(left);
        lanes = (uint32_t)1 << i;
        for (uint32_t j = i + 1; deed == MACHINE_READ && j < LANES; j++) {
            if (!(on >> j & 1) || place[j] != place[i] || own[j] != own[i]) break;
            lanes |= (uint32_t)1 << j;
        }
        if (!(lanes & (lanes - 1)) && deed <= MACHINE_WRITE && touch_quietly(c, t + place[i], n, first + i, deed))
            continue;
        machine_doer doer = { first, lanes, own[i], first };
        const char  *why = machine_clocks_touch(c, lists, t + place[i], n, &doer, deed, other);
        *lane = (int)i;
        if (why) return why;
    }
    return NULL;
}

int64_t machine_clocks_unfenced(const machine_clocks *c, const machine_trace *t, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t writer = t[i].writer, time = time_of(writer);
        if (writer && !(writer & TOP) && time >= c->begin && c->proxy[writer & AGENT] < time) return writer & AGENT;
    }
    return -1;
}
