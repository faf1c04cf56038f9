/* SPDX-License-Identifier: Apache-2.0 */
/* PTX: accesses to memory, loads, stores. */
#include "machine/counts.h"
#include "machine/ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void name_agent(const ptx_block *b, int64_t who, char *text, size_t room)
{
    if (who < b->threads)
        snprintf(text, room, "thread %lld", (long long)who);
    else if (who < b->threads + b->n_warps)
        snprintf(text, room, "a wgmma of warp %lld", (long long)who - b->threads);
    else
        snprintf(text, room, "a bulk copy");
}

static void name_race(ptx_block *b, const ptx_warp *w, const ptx_instruction *x, bool global, uint64_t at,
                      uint32_t thread, const char *why, int64_t who)
{
    char other[64] = "";
    if (who >= 0) name_agent(b, who, other, sizeof other);
    if (global)
        ptx_fail(b, w, x, "global memory at 0x%llx, thread %u: %s (%s)", (unsigned long long)at, thread, why, other);
    else
        ptx_fail(b, w, x, "shared memory at %u, thread %u: %s%s%s", (uint32_t)at - SHARED_FIRST, thread, why,
                 *other ? ": " : "", other);
}

static machine_doer lanes_of(const ptx_block *b, const ptx_warp *w, u32 lanes)
{
    uint32_t first = (uint32_t)w->number * LANES;
    return (machine_doer){ first, lanes, b->time.own[first + (uint32_t)ptx_first(lanes)], first };
}

/* --- accesses */

static uint8_t *global_of(ptx_block *b, ptx_warp *w, const ptx_instruction *x, const machine_doer *a, uint64_t at,
                          uint32_t bytes, machine_deed how)
{
    const char *why = NULL;
    int64_t     who = 0;
    uint8_t    *host = machine_at(b->memory, at, bytes);
    if (at % bytes) {
        ptx_fail(b, w, x, "the address 0x%llx is not a multiple of %u", (unsigned long long)at, bytes);
        return NULL;
    }
    if (!host) {
        ptx_fail(b, w, x, "%u bytes at 0x%llx (lane %d) are not inside one allocation or piece", bytes,
                 (unsigned long long)at, ptx_first(a->lanes));
        return NULL;
    }
    if (!b->time.on) return host;
    machine_trace *t = machine_traces(b->memory, at, bytes);
    why = machine_clocks_touch(&b->time, &b->global_readers, t, bytes >> b->kernel->global_unit, a, how, &who);
    if (!why) return host;
    name_race(b, w, x, true, at, a->first + (uint32_t)ptx_first(a->lanes), why, who);
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

static uint8_t *shared_of(ptx_block *b, ptx_warp *w, const ptx_instruction *x, const machine_doer *a, uint32_t at,
                          uint32_t bytes, machine_deed how)
{
    const char *why = NULL;
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
        if (b->lent[u] && how != MACHINE_READ) why = "a wgmma that nobody has waited for still reads it";
    }
    if (!why && b->time.on)
        why = machine_clocks_touch(&b->time, &b->shared_readers, b->traces + from, units, a, how, &who);
    if (!why) return b->shared + at;
    name_race(b, w, x, false, at, a->first + (uint32_t)ptx_first(a->lanes), why, who);
    return NULL;
}

uint8_t *ptx_global(ptx_block *b, ptx_warp *w, const ptx_instruction *x, int lane, uint64_t at, uint32_t bytes,
                    machine_deed how)
{
    machine_doer a = lanes_of(b, w, (u32)1 << lane);
    return global_of(b, w, x, &a, at, bytes, how);
}

uint8_t *ptx_shared(ptx_block *b, ptx_warp *w, const ptx_instruction *x, int lane, uint32_t at, uint32_t bytes,
                    machine_deed how)
{
    machine_doer a = lanes_of(b, w, (u32)1 << lane);
    return shared_of(b, w, x, &a, at, bytes, how);
}

/* Were the ordinary writes of this block to traced bytes or units fenced, so that asynchronous agents see them? */
static bool fenced(ptx_block *b, ptx_warp *w, const ptx_instruction *x, const machine_trace *t, uint32_t n)
{
    int64_t thread = machine_clocks_unfenced(&b->time, t, n);
    return thread < 0 ||
           ptx_fail(b, w, x, "thread %lld has written what this reads or writes, without fence.proxy.async between",
                    (long long)thread);
}

uint8_t *ptx_global_async(ptx_block *b, ptx_warp *w, const ptx_instruction *x, int lane, uint64_t at, uint32_t bytes)
{
    machine_doer a = { b->time.agents - 1, 1, b->time.now, (uint32_t)(w->number * LANES + lane) };
    uint8_t     *p = global_of(b, w, x, &a, at, bytes, MACHINE_READ);
    return p && (!b->time.on || fenced(b, w, x, machine_traces(b->memory, at, bytes), bytes >> b->kernel->global_unit))
               ? p
               : NULL;
}

uint8_t *ptx_shared_async(ptx_block *b, ptx_warp *w, const ptx_instruction *x, int lane, uint32_t at, uint32_t bytes,
                          uint32_t agent, uint32_t clock, machine_deed how)
{
    machine_doer a = { agent, 1, clock, (uint32_t)(w->number * LANES + lane) };
    int          unit = b->kernel->unit;
    if (b->time.on && is_shared(b, at, bytes) && !fenced(b, w, x, b->traces + (at >> unit), bytes >> unit)) return NULL;
    return shared_of(b, w, x, &a, at, bytes, how);
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

/* What the lanes of an access have in common: one allocation, one page of traces. */
typedef struct reach {
    uint64_t       low;
    uint8_t       *host;
    machine_trace *traces;
} reach;

/* If all lanes may access what they want at once: where the first of them finds it, and each its own from there on. */
static reach reach_of(const ptx_block *b, const u64 *at, u32 on, uint32_t bytes, bool global, uint32_t place[LANES])
{
    uint64_t low = UINT64_MAX, high = 0, odd = 0;
    for (int i = 0; i < LANES; i++) {
        uint64_t mask = (uint64_t)0 - (on >> i & 1);
        low = (at[i] | ~mask) < low ? at[i] | ~mask : low;
        high = (at[i] & mask) > high ? at[i] & mask : high;
        odd |= at[i] & mask;
    }
    reach r = { .low = low };
    if (odd % bytes || high - low > 65536) return r;
    for (int i = 0; i < LANES; i++) place[i] = (uint32_t)(at[i] - low);
    if (!global) {
        if (low < SHARED_FIRST || high + bytes > b->shared_end || b->n_owed || b->n_lent) return r;
        return (reach){ low, b->shared + low, b->traces + (low >> b->kernel->unit) };
    }
    r.host = machine_at(b->memory, low, high - low + bytes);
    if (r.host && b->time.on) r.traces = machine_traces(b->memory, low, high - low + bytes);
    return r;
}

/* All lanes' accesses at once. False: they are to be looked at one by one, or the launch has failed. */
static bool touch_all(ptx_block *b, ptx_warp *w, const ptx_instruction *x, u32 on, uint32_t bytes, machine_deed how,
                      bool global, const reach *near, const uint32_t *place)
{
    int      unit = global ? b->kernel->global_unit : b->kernel->unit, lane = 0;
    int64_t  who = 0;
    uint32_t from[LANES];
    if (!near->host || (b->time.on && !near->traces)) return false;
    if (!b->time.on) return true;
    for (int i = 0; i < LANES; i++) from[i] = place[i] >> unit;
    const char *why =
        machine_clocks_touch_warp(&b->time, global ? &b->global_readers : &b->shared_readers, near->traces, from,
                                  bytes >> unit, (uint32_t)w->number * LANES, on, how, &who, &lane);
    if (why) name_race(b, w, x, global, near->low + place[lane], (uint32_t)(w->number * LANES + lane), why, who);
    return !why;
}

static uint8_t *touch_one(ptx_block *b, ptx_warp *w, const ptx_instruction *x, int lane, uint64_t at, uint32_t bytes,
                          machine_deed how, bool global)
{
    return global ? ptx_global(b, w, x, lane, at, bytes, how)
                  : ptx_shared(b, w, x, lane, shared_address(at), bytes, how);
}

static inline void copy(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
    switch (bytes) {
    case 16:
        memcpy(to, from, 16);
        break;
    case 8:
        memcpy(to, from, 8);
        break;
    case 4:
        memcpy(to, from, 4);
        break;
    case 2:
        memcpy(to, from, 2);
        break;
    default:
        memcpy(to, from, 1);
    }
}

/* Element e of what each lane has loaded, elements having so many bytes. */
static inline __attribute__((always_inline)) void element(uint8_t (*data)[16], uint32_t e, uint32_t bytes, bool wide,
                                                          u64 *to, u32 *narrow)
{
    for (int i = 0; i < LANES; i++) {
        uint64_t v = 0;
        memcpy(&v, data[i] + e * bytes, bytes);
        if (wide)
            to[i] = v;
        else
            narrow[i] = (u32)v;
    }
}

static void put_loaded(ptx_block *b, ptx_warp *w, const ptx_instruction *x, u32 on, uint8_t (*data)[16], uint32_t bytes)
{
    for (uint32_t e = 0; e < (uint32_t)x->o[0].count; e++) {
        u64  wide[LANES];
        u32  narrow[LANES];
        bool is_wide = x->o[0].wide;
        if (bytes == 4)
            element(data, e, 4, is_wide, wide, narrow);
        else if (bytes == 2)
            element(data, e, 2, is_wide, wide, narrow);
        else if (bytes == 8)
            element(data, e, 8, is_wide, wide, narrow);
        else
            element(data, e, 1, is_wide, wide, narrow);
        int place = b->module->list[x->o[0].first + (int)e];
        if (is_wide)
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
    uint32_t place[LANES];
    ptx_addresses(w, &x->o[1], at);
    reach near = reach_of(b, at, on, bytes, global, place);
    bool  all = touch_all(b, w, x, on, bytes, MACHINE_READ, global, &near, place);
    for (u32 left = on; left && !b->failed; left &= left - 1) {
        int            i = ptx_first(left);
        const uint8_t *p = all ? near.host + place[i] : touch_one(b, w, x, i, at[i], bytes, MACHINE_READ, global);
        if (p) copy(data[i], p, bytes);
    }
    if (b->failed) return;
    put_loaded(b, w, x, on, data, size);
    if (b->counted && global) machine_count_access(b->counts, b->memory, at, on, bytes, 32, false);
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
        if (x->o[1].at < 0 && left != on) { /* all have one address */
            copy(data[i], data[ptx_first(on)], bytes);
            continue;
        }
        if (at[i] % bytes || at[i] > room || bytes > room - at[i]) {
            ptx_fail(b, w, x, "%u bytes at %llu of the parameters, which have %d", bytes, (unsigned long long)at[i],
                     b->kernel->parameter_bytes);
            return;
        }
        copy(data[i], b->parameters + at[i], bytes);
    }
    put_loaded(b, w, x, on, data, size);
}

PTX_HANDLER(store)
{
    u64      at[LANES];
    bool     global = x->picks[0] == 0;
    uint32_t size = type_bytes[x->picks[2]], bytes = size * (uint32_t)x->o[1].count;
    uint8_t  data[LANES][16];
    uint32_t place[LANES];
    ptx_addresses(w, &x->o[0], at);
    for (int e = 0; e < x->o[1].count; e++) {
        const u32 *narrow = ptx_place(w, b->module->list[x->o[1].first + e]);
        const u64 *wide = (const u64 *)narrow;
        for (int i = 0; i < LANES; i++) {
            uint64_t v[2] = { x->o[1].wide ? wide[i] : narrow[i] };
            copy(data[i] + (uint32_t)e * size, (const uint8_t *)v, size);
        }
    }
    reach near = reach_of(b, at, on, bytes, global, place);
    bool  all = touch_all(b, w, x, on, bytes, MACHINE_WRITE, global, &near, place);
    for (u32 left = on; left && !b->failed; left &= left - 1) {
        int      i = ptx_first(left);
        uint8_t *p = all ? near.host + place[i] : touch_one(b, w, x, i, at[i], bytes, MACHINE_WRITE, global);
        if (p) copy(p, data[i], bytes);
    }
    if (b->failed) return;
    b->events++;
    if (b->counted && global) machine_count_access(b->counts, b->memory, at, on, bytes, 32, true);
    if (b->counted && !global) ptx_count_shared(b, at, on, (int)bytes);
}

#define MEMORY(...) { __VA_ARGS__ },
const ptx_row ptx_memory_rows[] = {
#include "machine/ptx.def"
    { 0 }
};
