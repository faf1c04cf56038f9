/* SPDX-License-Identifier: Apache-2.0 */
/* PTX: who knows what others did, traces of memory, loads, stores, atomics.
 *
 * A stamp is a time (20 bits) and an agent (11 bits). What happened before `floor`, the last barrier of the whole
 * block, everyone knows; later deeds are known if the agent's entry in one's row of `known` is as late. Times go on
 * from block to block; what is older than `begin` was done by another block, which nothing but atomics orders. A trace
 * holds the last writer's stamp (top bit: by an atomic; in shared memory: by an asynchronous copy) and its readers
 * since then: a stamp, or (top bit) the first of a list.
 */
#include "machine/counts.h"
#include "machine/ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AGENT_BITS = 11, AGENT = (1 << AGENT_BITS) - 1, CLOCK = (1 << 20) - 1 };

#define TOP 0x80000000u

/* Who acts: lanes of a warp from thread `first` on, or one agent. Lane i knows rows[i * agents]. */
typedef struct actor {
    uint32_t        first, lanes, clock;
    const uint32_t *rows;
} actor;

static uint32_t clock_of(uint32_t stamp)
{
    return stamp >> AGENT_BITS & CLOCK;
}

static uint32_t *row_of(const ptx_block *b, uint32_t thread)
{
    return b->known + (size_t)thread * b->agents;
}

/* --- time */

static void learn(uint32_t *to, const uint32_t *from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) to[i] = to[i] > from[i] ? to[i] : from[i];
}

void ptx_meet(ptx_block *b, ptx_warp *w, u32 lanes)
{
    if (!b->traced) return;
    /* What they know of other warps only bar.sync has told, if nobody has learned more: then it need not be looked at.
     */
    uint32_t base = (uint32_t)w->number * LANES, from = w->learned ? 0 : base, n = w->learned ? b->agents : LANES;
    uint32_t first = base + (uint32_t)ptx_first(lanes), *row = row_of(b, first);
    for (u32 left = lanes; left; left &= left - 1) {
        uint32_t t = base + (uint32_t)ptx_first(left);
        learn(row + from, row_of(b, t) + from, n);
        row[t] = b->now;
    }
    b->now++;
    for (u32 left = lanes; left; left &= left - 1) {
        uint32_t t = base + (uint32_t)ptx_first(left);
        b->own[t] = b->now;
        if (t != first) memcpy(row_of(b, t) + from, row + from, n * sizeof *row);
    }
}

void ptx_publish(ptx_block *b, ptx_warp *w, int lane, uint32_t *clocks)
{
    if (!b->traced) return;
    uint32_t t = (uint32_t)(w->number * LANES + lane);
    row_of(b, t)[t] = b->now;
    learn(clocks, row_of(b, t), b->agents);
    b->own[t] = ++b->now;
}

void ptx_learn(ptx_block *b, ptx_warp *w, int lane, const uint32_t *clocks)
{
    if (!b->traced) return;
    w->learned = true;
    learn(row_of(b, (uint32_t)(w->number * LANES + lane)), clocks, b->agents);
}

void ptx_proxy_fence(ptx_block *b, ptx_warp *w, u32 on)
{
    for (int i = 0; i < LANES && b->traced; i++) {
        if (!(on >> i & 1)) continue;
        uint32_t t = (uint32_t)(w->number * LANES + i);
        learn(b->proxy, row_of(b, t), b->agents);
        for (uint32_t k = 0; k < b->agents; k++) b->proxy[k] = b->proxy[k] >= b->floor ? b->proxy[k] : b->floor - 1;
        b->proxy[t] = b->now;
        b->own[t] = ++b->now;
    }
}

static bool ordered(const ptx_block *b, const uint32_t *row, uint32_t me, uint32_t agent, uint32_t clock)
{
    return clock < b->floor || agent == me || row[agent] >= clock;
}

bool ptx_knows(const ptx_block *b, const ptx_warp *w, int lane, uint32_t agent, uint32_t clock)
{
    uint32_t t = (uint32_t)(w->number * LANES + lane);
    return !b->traced || ordered(b, row_of(b, t), t, agent, clock);
}

/* Is a deed known to all lanes of an actor? */
static bool known(const ptx_block *b, const actor *a, uint32_t agent, uint32_t clock)
{
    if (clock < b->floor) return true;
    for (u32 left = a->lanes; left; left &= left - 1) {
        uint32_t i = (uint32_t)ptx_first(left);
        if (!ordered(b, a->rows + (size_t)i * b->agents, a->first + i, agent, clock)) return false;
    }
    return true;
}

/* --- traces */

static void drop(ptx_shadow *s, machine_trace *t)
{
    if (t->reader & TOP) {
        uint32_t last = t->reader & ~TOP;
        while (s->of[last].next) last = s->of[last].next;
        s->of[last].next = s->free;
        s->free = t->reader & ~TOP;
    }
    t->reader = 0;
}

static void push(ptx_shadow *s, machine_trace *t, uint32_t first, uint32_t lanes, uint32_t clock)
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
    s->of[at] = (ptx_readers){ clock, first, lanes, t->reader & TOP ? t->reader & ~TOP : 0 };
    t->reader = TOP | at;
}

static void set_reader(ptx_shadow *s, machine_trace *t, const actor *a)
{
    drop(s, t);
    if (a->lanes & (a->lanes - 1))
        push(s, t, a->first, a->lanes, a->clock);
    else
        t->reader = a->clock << AGENT_BITS | (a->first + (uint32_t)ptx_first(a->lanes));
}

static void add_reader(ptx_block *b, ptx_shadow *s, machine_trace *t, const actor *a)
{
    uint32_t r = t->reader;
    if (r == 0) {
        set_reader(s, t, a);
        return;
    }
    if (!(r & TOP)) {
        if (clock_of(r) < b->begin)
            return; /* whoever writes it now is in the wrong: this reader must not be forgotten */
        if (known(b, a, r & AGENT, clock_of(r))) {
            set_reader(s, t, a);
            return;
        }
        t->reader = 0;
        push(s, t, r & AGENT, 1, clock_of(r));
    } else {
        ptx_readers *head = &s->of[r & ~TOP];
        if (head->clock < b->begin) return;
        if (head->clock < b->floor) {
            set_reader(s, t, a);
            return;
        }
        for (ptx_readers *p = head;; p = &s->of[p->next]) {
            if (p->thread == a->first && (p->clock == a->clock || !(p->lanes & ~a->lanes))) {
                p->lanes |= a->lanes;
                p->clock = a->clock;
                return;
            }
            if (!p->next) break;
        }
    }
    push(s, t, a->first, a->lanes, a->clock);
}

/* The agent whose reading a writer does not know of; -1: none. */
static int64_t unknown_reader(const ptx_block *b, const ptx_shadow *s, uint32_t r, const actor *a)
{
    if (!r) return -1;
    if (!(r & TOP)) {
        uint32_t clock = clock_of(r);
        return clock < b->begin || !known(b, a, r & AGENT, clock) ? (int64_t)(r & AGENT) : -1;
    }
    for (uint32_t at = r & ~TOP; at; at = s->of[at].next) {
        const ptx_readers *p = &s->of[at];
        if (p->clock < b->begin) return p->thread;
        for (u32 left = p->clock < b->floor ? 0 : p->lanes; left; left &= left - 1)
            if (!known(b, a, p->thread + (uint32_t)ptx_first(left), p->clock))
                return p->thread + (uint32_t)ptx_first(left);
    }
    return -1;
}

/* The reason, as words, why an actor must not touch this; NULL: it may, and has. `who`: the other one. */
static const char *touch(ptx_block *b, ptx_shadow *s, machine_trace *t, uint32_t n, const actor *a, enum ptx_access how,
                         uint32_t mark, int64_t *who)
{
    uint32_t stamp = mark | a->clock << AGENT_BITS | (a->first + (uint32_t)ptx_first(a->lanes));
    for (uint32_t i = 0; i < n; i++, t++) {
        uint32_t clock = clock_of(t->writer);
        if (t->writer && (clock < b->begin || clock >= b->floor) && !(how == ATOMIC && t->writer & TOP)) {
            *who = t->writer & AGENT;
            if (clock < b->begin) return "another block has written this";
            if (!known(b, a, t->writer & AGENT, clock))
                return "another thread has written this, and nothing is between";
        }
        if (how == READ) {
            if (t->reader != stamp) add_reader(b, s, t, a);
            continue;
        }
        *who = unknown_reader(b, s, t->reader, a);
        if (*who >= 0) return "another thread may still read this";
        drop(s, t);
        t->writer = stamp;
    }
    return NULL;
}

static void name_agent(const ptx_block *b, int64_t who, char *text, size_t room)
{
    if (who < b->threads)
        snprintf(text, room, "thread %lld", (long long)who);
    else if (who < b->threads + b->n_warps)
        snprintf(text, room, "a wgmma of warp %lld", (long long)who - b->threads);
    else
        snprintf(text, room, "a bulk copy");
}

static actor lanes_of(const ptx_block *b, const ptx_warp *w, u32 lanes)
{
    uint32_t first = (uint32_t)w->number * LANES;
    return (actor){ first, lanes, b->own[first + (uint32_t)ptx_first(lanes)], row_of(b, first) };
}

/* --- accesses */

/* What the lanes of an access have in common: one allocation, one page of traces. */
typedef struct reach {
    uint64_t       low;
    uint8_t       *host;
    machine_trace *traces;
} reach;

static uint8_t *global_of(ptx_block *b, ptx_warp *w, const ptx_instruction *x, const actor *a, uint64_t at,
                          uint32_t bytes, enum ptx_access how, const reach *near)
{
    uint8_t    *host = near && near->host ? near->host + (at - near->low) : NULL;
    const char *why = NULL;
    char        other[64];
    int64_t     who = 0;
    if (at % bytes) {
        ptx_fail(b, w, x, "the address 0x%llx is not a multiple of %u", (unsigned long long)at, bytes);
        return NULL;
    }
    if (!host) host = machine_at(b->memory, at, bytes);
    if (!host) {
        ptx_fail(b, w, x, "%u bytes at 0x%llx (lane %d) are not inside one allocation or piece", bytes,
                 (unsigned long long)at, ptx_first(a->lanes));
        return NULL;
    }
    if (!b->traced) return host;
    machine_trace *t = near && near->traces ? near->traces + (at - near->low) : machine_traces(b->memory, at, bytes);
    why = touch(b, &b->global_shadow, t, bytes, a, how, how == ATOMIC ? TOP : 0, &who);
    if (!why) return host;
    name_agent(b, who, other, sizeof other);
    ptx_fail(b, w, x, "global memory at 0x%llx, thread %u: %s (%s)", (unsigned long long)at,
             a->first + (uint32_t)ptx_first(a->lanes), why, other);
    return NULL;
}

static bool is_shared(const ptx_block *b, uint32_t at, uint32_t bytes)
{
    return at >= SHARED_FIRST && at <= b->shared_end && bytes <= b->shared_end - at;
}

/* Addresses that are no shared ones are outside. */
static uint32_t shared_address(uint64_t at)
{
    return at >> 32 ? 0xfffffff0u : (uint32_t)at;
}

static uint8_t *shared_of(ptx_block *b, ptx_warp *w, const ptx_instruction *x, const actor *a, uint32_t at,
                          uint32_t bytes, enum ptx_access how, uint32_t mark)
{
    const char *why = NULL;
    char        other[64];
    int64_t     who = -1;
    if (at % bytes) {
        ptx_fail(b, w, x, "the shared address %u is not a multiple of %u", at, bytes);
        return NULL;
    }
    if (!is_shared(b, at, bytes)) {
        ptx_fail(b, w, x, "%u bytes at %d of shared memory, lane %d: the block has %u bytes", bytes,
                 (int)at - SHARED_FIRST, ptx_first(a->lanes), b->shared_end - SHARED_FIRST);
        return NULL;
    }
    uint32_t from = at >> b->kernel->unit, units = bytes >> b->kernel->unit;
    for (uint32_t u = from; u < from + units && (b->n_owed || b->n_lent); u++) {
        if (b->owed[u]) why = b->owed[u] == 0xff ? "it is an mbarrier" : "a copy that nobody has waited for owes it";
        if (b->lent[u] && how != READ) why = "a wgmma that nobody has waited for still reads it";
    }
    if (!why && b->traced) why = touch(b, &b->shared_shadow, b->traces + from, units, a, how, mark, &who);
    if (!why) return b->shared + at;
    name_agent(b, who, other, sizeof other);
    ptx_fail(b, w, x, "shared memory at %u, thread %u: %s%s%s", at - SHARED_FIRST,
             a->first + (uint32_t)ptx_first(a->lanes), why, who < 0 ? "" : ": ", who < 0 ? "" : other);
    return NULL;
}

uint8_t *ptx_global(ptx_block *b, ptx_warp *w, const ptx_instruction *x, int lane, uint64_t at, uint32_t bytes,
                    enum ptx_access how)
{
    actor a = lanes_of(b, w, (u32)1 << lane);
    return global_of(b, w, x, &a, at, bytes, how, NULL);
}

uint8_t *ptx_shared(ptx_block *b, ptx_warp *w, const ptx_instruction *x, int lane, uint32_t at, uint32_t bytes,
                    enum ptx_access how)
{
    actor a = lanes_of(b, w, (u32)1 << lane);
    return shared_of(b, w, x, &a, at, bytes, how, 0);
}

/* Were the ordinary writes of this block to `n` traced bytes or units fenced, so that asynchronous agents see them? */
static bool fenced(ptx_block *b, ptx_warp *w, const ptx_instruction *x, const machine_trace *t, uint32_t n,
                   uint32_t mark)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t writer = t[i].writer, clock = clock_of(writer);
        if (!writer || writer & mark || clock < b->begin || b->proxy[writer & AGENT] >= clock) continue;
        return ptx_fail(b, w, x, "thread %u has written what this reads or writes, without fence.proxy.async between",
                        writer & AGENT);
    }
    return true;
}

uint8_t *ptx_global_async(ptx_block *b, ptx_warp *w, const ptx_instruction *x, int lane, uint64_t at, uint32_t bytes)
{
    actor    a = { b->agents - 1, 1, b->now, row_of(b, (uint32_t)(w->number * LANES + lane)) };
    uint8_t *p = global_of(b, w, x, &a, at, bytes, READ, NULL);
    return p && (!b->traced || fenced(b, w, x, machine_traces(b->memory, at, bytes), bytes, 0)) ? p : NULL;
}

uint8_t *ptx_shared_async(ptx_block *b, ptx_warp *w, const ptx_instruction *x, int lane, uint32_t at, uint32_t bytes,
                          uint32_t agent, uint32_t clock, enum ptx_access how)
{
    actor a = { agent, 1, clock, row_of(b, (uint32_t)(w->number * LANES + lane)) };
    int   unit = b->kernel->unit;
    if (b->traced && is_shared(b, at, bytes) && !fenced(b, w, x, b->traces + (at >> unit), bytes >> unit, TOP))
        return NULL;
    return shared_of(b, w, x, &a, at, bytes, how, how == READ ? 0 : TOP);
}

void ptx_addresses(const ptx_warp *w, const ptx_operand *o, u64 at[LANES])
{
    const u32 *narrow = ptx_place(w, o->at < 0 ? 0 : o->at);
    const u64 *wide = ptx_place(w, o->at < 0 ? 0 : o->at);
    for (int i = 0; i < LANES; i++)
        at[i] = o->at < 0 ? (u64)o->offset : o->wide ? wide[i] + (u64)o->offset : (u32)(narrow[i] + (u32)o->offset);
}

void ptx_count_shared(ptx_block *b, const u64 *at, u32 on, int bytes)
{
    uint32_t address[LANES];
    for (int i = 0; i < LANES; i++) address[i] = (uint32_t)at[i];
    machine_count_banks(b->counts, address, on, bytes);
}

/* --- loads and stores */

static const uint32_t type_bytes[] = { 1, 1, 2, 2, 4, 4, 4, 4, 8, 8, 8 };

static reach reach_of(const ptx_block *b, const u64 *at, u32 on, uint32_t bytes)
{
    uint64_t low = UINT64_MAX, high = 0;
    for (u32 left = on; left; left &= left - 1) {
        uint64_t a = at[ptx_first(left)];
        low = a < low ? a : low;
        high = a > high ? a : high;
    }
    reach r = { .low = low };
    if (high - low > 65536) return r;
    r.host = machine_at(b->memory, low, high - low + bytes);
    if (r.host && b->traced) r.traces = machine_traces(b->memory, low, high - low + bytes);
    return r;
}

/* Lanes from the lowest on that have its address, and acted last when it did: they read as one. */
static u32 alike(const ptx_block *b, const ptx_warp *w, const u64 *at, u32 on)
{
    int             i = ptx_first(on);
    const uint32_t *own = b->own + w->number * LANES;
    u32             lanes = (u32)1 << i;
    for (int j = i + 1; j < LANES && (on >> j & 1) && at[j] == at[i] && own[j] == own[i]; j++) lanes |= (u32)1 << j;
    return lanes;
}

static void put_loaded(ptx_block *b, ptx_warp *w, const ptx_instruction *x, u32 on, uint8_t (*data)[16], uint32_t bytes)
{
    for (int e = 0; e < x->o[0].count; e++) {
        u64 wide[LANES];
        u32 narrow[LANES];
        for (int i = 0; i < LANES; i++) {
            uint64_t v = 0;
            memcpy(&v, data[i] + (uint32_t)e * bytes, bytes);
            wide[i] = v;
            narrow[i] = (u32)v;
        }
        int place = b->module->list[x->o[0].first + e];
        if (x->o[0].wide)
            ptx_put64(w, place, on, wide);
        else
            ptx_put32(w, place, on, narrow);
    }
}

PTX_HANDLER(load)
{
    u64      at[LANES];
    bool     global = x->picks[0] == 0;
    uint32_t size = type_bytes[x->picks[3]], bytes = size * (uint32_t)x->o[0].count;
    uint8_t  data[LANES][16] = { { 0 } };
    ptx_addresses(w, &x->o[1], at);
    reach near = global ? reach_of(b, at, on, bytes) : (reach){ 0 };
    for (u32 left = on, lanes; left; left &= ~lanes) {
        int i = ptx_first(left);
        lanes = alike(b, w, at, left);
        actor    a = lanes_of(b, w, lanes);
        uint8_t *p = global ? global_of(b, w, x, &a, at[i], bytes, READ, &near)
                            : shared_of(b, w, x, &a, shared_address(at[i]), bytes, READ, 0);
        if (!p) return;
        for (int j = i; j < LANES && (lanes >> j & 1); j++) memcpy(data[j], p, bytes);
    }
    put_loaded(b, w, x, on, data, size);
    if (b->counted && global) machine_count_access(b->counts, at, on, bytes, 32, false);
    if (b->counted && !global) ptx_count_shared(b, at, on, (int)bytes);
}

PTX_HANDLER(load_parameter)
{
    u64      at[LANES];
    uint32_t size = type_bytes[x->picks[1]], bytes = size * (uint32_t)x->o[0].count;
    uint8_t  data[LANES][16] = { { 0 } };
    uint64_t room = (uint64_t)b->kernel->parameter_bytes;
    ptx_addresses(w, &x->o[1], at);
    for (u32 left = on; left; left &= left - 1) {
        int i = ptx_first(left);
        if (at[i] % bytes || at[i] > room || bytes > room - at[i]) {
            ptx_fail(b, w, x, "%u bytes at %llu of the parameters, which have %d", bytes, (unsigned long long)at[i],
                     b->kernel->parameter_bytes);
            return;
        }
        memcpy(data[i], b->parameters + at[i], bytes);
    }
    put_loaded(b, w, x, on, data, size);
}

PTX_HANDLER(store)
{
    u64      at[LANES];
    bool     global = x->picks[0] == 0;
    uint32_t size = type_bytes[x->picks[2]], bytes = size * (uint32_t)x->o[1].count;
    uint8_t  data[LANES][16];
    ptx_addresses(w, &x->o[0], at);
    for (int e = 0; e < x->o[1].count; e++) {
        const u32 *narrow = ptx_place(w, b->module->list[x->o[1].first + e]);
        const u64 *wide = (const u64 *)narrow;
        for (int i = 0; i < LANES; i++) {
            uint64_t v = x->o[1].wide ? wide[i] : narrow[i];
            memcpy(data[i] + (uint32_t)e * size, &v, size);
        }
    }
    reach near = global ? reach_of(b, at, on, bytes) : (reach){ 0 };
    for (u32 left = on; left; left &= left - 1) {
        int      i = ptx_first(left);
        actor    a = lanes_of(b, w, (u32)1 << i);
        uint8_t *p = global ? global_of(b, w, x, &a, at[i], bytes, WRITE, &near)
                            : shared_of(b, w, x, &a, shared_address(at[i]), bytes, WRITE, 0);
        if (!p) return;
        memcpy(p, data[i], bytes);
    }
    b->events++;
    if (b->counted && global) machine_count_access(b->counts, at, on, bytes, 32, true);
    if (b->counted && !global) ptx_count_shared(b, at, on, (int)bytes);
}

/* add or cas of 32 bits. */
PTX_HANDLER(atomic)
{
    const u32 *v = ptx_place(w, x->o[2].at), *swap = ptx_place(w, x->o[x->n - 1].at);
    u64        at[LANES];
    u32        d[LANES] = { 0 };
    bool       floats = x->n == 3 && x->picks[2] == 0;
    ptx_addresses(w, &x->o[1], at);
    for (u32 left = on; left; left &= left - 1) {
        int      i = ptx_first(left);
        uint8_t *p = ptx_global(b, w, x, i, at[i], 4, ATOMIC);
        if (!p) return;
        d[i] = *(u32 *)p;
        *(u32 *)p = x->n > 3 ? (d[i] == v[i] ? swap[i] : d[i]) : d[i] + v[i];
        if (floats) *(f32 *)p = *(f32 *)&d[i] + *(const f32 *)&v[i];
    }
    ptx_put32(w, x->o[0].at, on, d);
    b->events++;
    if (b->counted) machine_count_access(b->counts, at, on, 4, 32, true);
}

#define MEMORY(...) { __VA_ARGS__ },
const ptx_row ptx_memory_rows[] = {
#include "machine/ptx.def"
    { 0 }
};
