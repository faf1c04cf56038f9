/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in for NCCL and RCCL: what a queue does for a call, through memory that the ranks share. */
#define _GNU_SOURCE
#include "nccl.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Noreturn void nccl_wrong(const communicator *c, const char *format, ...)
{
    va_list more;
    char    text[512];
    va_start(more, format);
    vsnprintf(text, sizeof text, format, more);
    va_end(more);
    fprintf(stderr, "stand-in for nccl: rank %d of %d: %s\n", c ? c->rank : -1, c ? c->size : 0, text);
    abort();
}

/* --- work of a queue ------------------------------------------------------------------------- */

static bool turn(const communicator *c)
{
    sched_yield();
    return !c->aborted;
}

bool nccl_meet(communicator *c)
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

size_t nccl_bytes_of(int type)
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
    size_t e = nccl_bytes_of(t->what.type);
    for (size_t i = 0; i < n; i += e) {
        double sum = get(t->comm->all->slot[0] + i, t->what.type);
        for (int r = 1; r < t->comm->size; r++) {
            double x = get(t->comm->all->slot[r] + i, t->what.type);
            sum = t->what.op == 0 ? sum + x : (t->what.op == 2) == (x > sum) ? x : sum;
        }
        put(out + i, t->what.type, sum);
    }
}

/* A part of what every rank sends, of `from`'s for broadcasts; `out` of those who take it. */
static bool pass(const task *t, const char *part, size_t n, char *out, size_t stride)
{
    communicator *c = t->comm;
    bool          sends = t->what.kind != BROADCAST || c->rank == t->what.root;
    if (sends) memcpy(c->all->slot[c->rank], part, n);
    if (!nccl_meet(c)) return false;
    if (t->what.kind == ALL_GATHER)
        for (int r = 0; r < c->size; r++) memcpy(out + (size_t)r * stride, c->all->slot[r], n);
    else if (t->what.kind == BROADCAST)
        memcpy(out, c->all->slot[t->what.root], n);
    else if (out)
        reduce(t, out, n);
    return nccl_meet(c);
}

/* User Guide, Collective Operations: all ranks call the same with the same count and data type, "failure to do so will
 * result in undefined behavior". */
static bool agree(const task *t)
{
    static const char *const kinds[] = { "all-reduce", "reduce-scatter", "all-gather", "broadcast", "messages" };
    communicator            *c = t->comm;
    c->all->calls[c->rank] = t->what;
    if (!nccl_meet(c)) return false;
    for (int r = 0; r < c->size; r++) {
        const header *other = &c->all->calls[r];
        if (memcmp(other, &t->what, sizeof *other) != 0)
            nccl_wrong(c, "%s of %zu elements of type %d, and rank %d calls %s of %zu of type %d", kinds[t->what.kind],
                       t->what.count, t->what.type, r, kinds[other->kind], other->count, other->type);
    }
    return nccl_meet(c);
}

static void run_slots(const task *t)
{
    communicator *c = t->comm;
    size_t        bytes = t->what.count * nccl_bytes_of(t->what.type);
    int           parts = t->what.kind == REDUCE_SCATTER ? c->size : 1;
    if (!agree(t)) return;
    for (int d = 0; d < parts; d++)
        for (size_t at = 0; at < bytes; at += SLOT) {
            size_t n = bytes - at < SLOT ? bytes - at : SLOT;
            bool   mine = parts == 1 || d == c->rank;
            if (!pass(t, t->send ? t->send + (size_t)d * bytes + at : NULL, n, mine ? t->receive + at : NULL, bytes))
                return;
        }
}

/* User Guide, Point-to-point communication: a send has its receive "with the same count and data type". */
static void check_same(const communicator *c, const message *m, const box *b)
{
    if (b->total != m->bytes || b->type != m->type)
        nccl_wrong(c, "receives %zu bytes of type %d from rank %d, which sends %llu of type %d", m->bytes, m->type,
                   m->peer, (unsigned long long)b->total, b->type);
}

static void step(const task *t, message *m)
{
    communicator *c = t->comm;
    box          *b = m->out ? &c->all->box[c->rank][m->peer] : &c->all->box[m->peer][c->rank];
    if ((b->full == 0) != m->out) return;
    if (!m->out) check_same(c, m, b);
    size_t left = m->bytes - m->at, n = m->out ? left < SLOT ? left : SLOT : b->full - 1;
    if (n > left) nccl_wrong(c, "gets %zu bytes of a message of rank %d that has %zu left", n, m->peer, left);
    if (m->out) {
        memcpy(b->data, m->data + m->at, n);
        b->total = m->bytes;
        b->type = m->type;
    } else {
        memcpy(m->data + m->at, b->data, n);
    }
    m->at += n;
    b->full = m->out ? n + 1 : 0;
}

/* The same: calls of a group go on independently; those "targeting the same peer ... are executed in order". A message
 * has ended for its sender when all of it was taken. */
static void run_messages(task *t)
{
    for (int left = 1; left > 0;) {
        left = 0;
        for (int i = 0; i < t->messages; i++) {
            message *m = &t->message[i];
            bool     first = true;
            for (int k = 0; k < i; k++)
                first = first && !(t->message[k].peer == m->peer && t->message[k].out == m->out &&
                                   t->message[k].at < t->message[k].bytes);
            if (first && m->at < m->bytes) step(t, m);
            left += m->at < m->bytes || (m->out && t->comm->all->box[t->comm->rank][m->peer].full != 0);
        }
        if (!turn(t->comm)) return;
    }
}

/* User Guide, Thread Safety and CUDA Stream Semantics: calls of a communicator run one after the other, in the order in
 * which they were made; streams that do not heed it wait for one another, or for ever. */
static void begin(task *t)
{
    communicator *c = t->comm;
    bool          idle = false;
    if (!atomic_compare_exchange_strong(&c->busy, &idle, true))
        nccl_wrong(c, "two streams are in calls of one communicator at once");
    if (t->number == 0) return;
    if (t->number != c->begun + 1)
        nccl_wrong(c, "call %d begins behind call %d: two streams, and no order between them", t->number, c->begun);
    c->begun++;
}

void nccl_run(void *of)
{
    task         *t = of;
    communicator *c = t->comm;
    begin(t);
    for (int i = 0; i < t->messages; i++) t->message[i].at = 0; /* it may be played again */
    while (t->hangs && turn(c)) nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    if (!c->aborted && t->what.kind == MESSAGES)
        run_messages(t);
    else if (!c->aborted)
        run_slots(t);
    if (t->wrong && t->receive && t->what.count > 0) put(t->receive, t->what.type, get(t->receive, t->what.type) + 1);
    c->busy = false;
    if (t->number > 0) c->under_way--;
}

void nccl_drop(void *of)
{
    task *t = of;
    free(t->message);
    free(t);
}
