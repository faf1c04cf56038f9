/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/races.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 64, PAGE = 4096 };

/* --- global memory ------------------------------------------------------------------------------- */

/* Numbers in the traces: epoch and wave; many waves; anybody's atomics. 0: nobody. */
enum { WAVE_BITS = 5, MANY = 31 };
#define ATOMICS 0xffffffffu

typedef struct who {
    uint32_t mine, epoch, group; /* this wave; the first number of this epoch, and of this block */
} who;

/* Does an access by `me` conflict with one of an earlier number? */
static inline bool conflicts(uint32_t earlier, who me)
{
    return earlier && earlier != me.mine && (earlier < me.group || earlier >= me.epoch);
}

/* Looks at one byte's trace and brings it up to date. */
static inline bool note(machine_trace *t, who me, machine_touch touch)
{
    if (conflicts(t->writer, me) || (touch == MACHINE_READS_CONSTANT && t->writer)) return false;
    if (touch >= MACHINE_WRITES) {
        if (conflicts(t->reader, me)) return false;
        t->writer = me.mine;
    } else if (t->reader == 0 || (t->reader >= me.group && t->reader < me.epoch)) {
        t->reader = me.mine;
    } else if (t->reader >= me.epoch && t->reader != me.mine) {
        t->reader = me.epoch | MANY;
    }
    return true;
}

static inline uint64_t both_of(const machine_trace *t)
{
    uint64_t both;
    memcpy(&both, t, sizeof both);
    return both;
}

/* The same for n bytes; mostly their traces are equal. The first that conflicts; n: none does. */
static uint64_t note_all(machine_trace *t, uint64_t n, who me, machine_touch touch)
{
    uint64_t      different = 0, before = both_of(t);
    machine_trace now = t[0];
    for (uint64_t i = 1; i < n; i++) different |= both_of(&t[i]) ^ before;
    if (!different) {
        if (!note(&now, me, touch)) return 0;
        for (uint64_t i = 0; both_of(&now) != before && i < n; i++) t[i] = now;
        return n;
    }
    for (uint64_t i = 0; i < n; i++)
        if (!note(&t[i], me, touch)) return i;
    return n;
}

static bool race(const machine_trace *t, who me, machine_touch touch, uint64_t address, char *why)
{
    bool        writer = conflicts(t->writer, me) || touch == MACHINE_READS_CONSTANT;
    uint32_t    other = writer ? t->writer : t->reader;
    const char *by = other < me.group ? "another block" : "another wave of the block";
    if (other == ATOMICS) by = "atomics";
    if (other == me.mine) by = "this wave, past the scalar cache,";
    snprintf(why, MACHINE_RACE_ROOM, "race on global memory at %#llx: %s by %s, no barrier between",
             (unsigned long long)address, writer ? "written" : "read", by);
    return false;
}

bool machine_note_global(machine_memory *memory, machine_page *last, machine_actor actor, machine_touch touch,
                         uint64_t address, uint64_t bytes, char why[MACHINE_RACE_ROOM])
{
    who me = { actor.epoch << WAVE_BITS | (actor.wave + 1), actor.epoch << WAVE_BITS, actor.group_epoch << WAVE_BITS };
    if (touch == MACHINE_ADDS) me.mine = ATOMICS;
    while (bytes) {
        uint64_t left = PAGE - address % PAGE, n = bytes < left ? bytes : left;
        if (last->number != address / PAGE) {
            *last = (machine_page){ address / PAGE, machine_traces(memory, address, n) };
            last->first -= address % PAGE;
        }
        machine_trace *t = last->first + address % PAGE;
        uint64_t       bad = note_all(t, n, me, touch);
        if (bad < n) return race(t + bad, me, touch, address + bad, why);
        address += n;
        bytes -= n;
    }
    return true;
}

bool machine_lanes_agree(uint64_t mask, const uint64_t address[64], uint32_t data[][64], int words,
                         char why[MACHINE_RACE_ROOM])
{
    uint64_t last = 0;
    bool     ascending = true;
    for (int i = 0; i < LANES; i++) {
        if (!(mask >> i & 1)) continue;
        ascending &= address[i] > last;
        last = address[i];
    }
    for (int i = 0; !ascending && i < LANES; i++) {
        for (int j = 0; mask >> i & 1 && j < i; j++) {
            bool same = true;
            for (int k = 0; k < words; k++) same &= data[k][i] == data[k][j];
            if (!(mask >> j & 1) || address[i] != address[j] || same) continue;
            snprintf(why, MACHINE_RACE_ROOM, "lanes %d and %d write different values at %#llx", j, i,
                     (unsigned long long)address[i]);
            return false;
        }
    }
    return true;
}

/* --- LDS ----------------------------------------------------------------------------------------- */

/* Numbers in its shadows: epoch and thread, that is wave and lane; several waves; a load that has not landed. */
enum { THREAD_BITS = 11, MANY_THREADS = 2047 };
#define OWED 0xffffffffu

static uint32_t *zeros(uint32_t bytes)
{
    uint32_t *got = calloc((size_t)bytes + 16, sizeof *got);
    if (!got) abort();
    return got;
}

void machine_shadow_begin(machine_shadow *s, uint32_t bytes, int shift)
{
    *s = (machine_shadow){ zeros(bytes >> shift), zeros(bytes >> shift), 1, shift };
}

void machine_shadow_end(machine_shadow *s)
{
    free(s->writer);
    free(s->reader);
}

/* Epochs have 21 bits: a block may use half of them. */
void machine_shadow_clear(machine_shadow *s, uint32_t bytes)
{
    if (++s->epoch < (uint32_t)1 << 20) return;
    memset(s->writer, 0, (bytes >> s->shift) * sizeof *s->writer);
    memset(s->reader, 0, (bytes >> s->shift) * sizeof *s->reader);
    s->epoch = 1;
}

static inline uint32_t number_of(const machine_shadow *s, uint32_t wave)
{
    return s->epoch << THREAD_BITS | wave * LANES;
}

static inline bool collides(uint32_t earlier, uint32_t mine)
{
    return earlier >= (mine & ~(uint32_t)MANY_THREADS) && (earlier ^ mine) >= LANES;
}

static bool shared_race(const machine_shadow *s, uint32_t unit, uint32_t mine, char *why)
{
    while (!collides(s->writer[unit], mine) && !collides(s->reader[unit], mine)) unit++;
    bool     written = collides(s->writer[unit], mine);
    uint32_t other = (written ? s->writer[unit] : s->reader[unit]) & MANY_THREADS, byte = unit << s->shift;
    uint32_t lane = mine % LANES, wave = (mine & MANY_THREADS) / LANES;
    if (s->writer[unit] == OWED)
        snprintf(why, MACHINE_RACE_ROOM, "LDS byte %u before the vmcnt wait for its global_load_lds", byte);
    else if (other == MANY_THREADS)
        snprintf(why, MACHINE_RACE_ROOM,
                 "race on LDS byte %u: read by several waves, no barrier before lane %u of wave %u", byte, lane, wave);
    else
        snprintf(why, MACHINE_RACE_ROOM,
                 "race on LDS byte %u: %s by lane %u of wave %u, no barrier before lane %u of wave %u", byte,
                 written ? "written" : "read", other % LANES, other / LANES, lane, wave);
    return false;
}

/* n units of one lane. */
static inline bool note_lane(uint32_t *restrict writer, uint32_t *restrict reader, int n, uint32_t mine, bool write)
{
    uint32_t epoch = mine & ~(uint32_t)MANY_THREADS;
    for (int u = 0; u < n; u++) {
        if (collides(writer[u], mine) || (write && collides(reader[u], mine))) return false;
        if (write)
            writer[u] = mine;
        else if (reader[u] < epoch)
            reader[u] = mine;
        else if ((reader[u] ^ mine) >= LANES)
            reader[u] = epoch | MANY_THREADS;
    }
    return true;
}

bool machine_note_shared(machine_shadow *s, uint32_t wave, uint64_t mask, const uint32_t *at, int bytes, bool write,
                         char why[MACHINE_RACE_ROOM])
{
    uint32_t mine = number_of(s, wave), *writer = s->writer, *reader = s->reader;
    int      shift = s->shift, n = bytes >> shift;
    for (uint32_t i = 0; i < LANES; i++) {
        uint32_t unit = at[i] >> shift;
        if (mask >> i & 1 && !note_lane(writer + unit, reader + unit, n, mine + i, write))
            return shared_race(s, unit, mine + i, why);
    }
    return true;
}

void machine_owe_shared(machine_shadow *s, uint32_t wave, uint64_t mask, const uint32_t *at, int bytes, bool landed)
{
    for (; mask; mask &= mask - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(mask), unit = at[i] >> s->shift;
        for (int u = 0; u < bytes >> s->shift; u++)
            s->writer[unit + (uint32_t)u] = landed ? number_of(s, wave) + i : OWED;
    }
}

bool machine_none_owed(const machine_shadow *s, uint64_t mask, const uint32_t *at, int bytes,
                       char why[MACHINE_RACE_ROOM])
{
    for (; mask; mask &= mask - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(mask), unit = at[i] >> s->shift;
        for (int u = 0; u < bytes >> s->shift; u++)
            if (s->writer[unit + (uint32_t)u] == OWED) return shared_race(s, unit, number_of(s, 0) + i, why);
    }
    return true;
}
