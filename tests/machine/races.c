/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/races.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 64, PAGE = 4096 };

/* --- global memory ------------------------------------------------------------------------------- */

/* Numbers in the traces: epoch and wave; many waves. 0: nobody. */
enum { WAVE_BITS = 5, MANY = 31 };

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

/* The same for n units; mostly their traces are equal. The first that conflicts; n: none does. */
static inline __attribute__((always_inline)) uint64_t note_units(machine_trace *t, uint64_t n, who me,
                                                                 machine_touch touch)
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

/* A function of its own for what a lane mostly touches. */
static uint64_t note_all(machine_trace *t, uint64_t n, who me, machine_touch touch)
{
    return n == 8 ? note_units(t, 8, me, touch) : n == 2 ? note_units(t, 2, me, touch) : note_units(t, n, me, touch);
}

static bool race(const machine_trace *t, who me, machine_touch touch, uint64_t address, char *why)
{
    bool        writer = conflicts(t->writer, me) || touch == MACHINE_READS_CONSTANT;
    uint32_t    other = writer ? t->writer : t->reader;
    const char *by = other < me.group ? "another block" : "another wave of the block";
    if (other == me.mine) by = "this wave, past the scalar cache,";
    snprintf(why, MACHINE_RACE_ROOM, "race on global memory at %#llx: %s by %s, no barrier between",
             (unsigned long long)address, writer ? "written" : "read", by);
    return false;
}

/* The page whose traces were looked at last. */
typedef struct page {
    uint64_t       number;
    machine_trace *first;
} page;

static bool note_bytes(machine_memory *memory, page *last, who me, machine_touch touch, uint64_t address,
                       uint64_t bytes, char *why)
{
    int shift = machine_memory_shift(memory);
    while (bytes) {
        uint64_t left = PAGE - address % PAGE, n = bytes < left ? bytes : left;
        if (last->number != address / PAGE)
            *last = (page){ address / PAGE, machine_traces(memory, address, n) - (address % PAGE >> shift) };
        machine_trace *t = last->first + (address % PAGE >> shift);
        uint64_t       bad = note_all(t, n >> shift, me, touch);
        if (bad < n >> shift) return race(t + bad, me, touch, address + (bad << shift), why);
        address += n;
        bytes -= n;
    }
    return true;
}

/* Lanes that lie one behind the other are looked at together, and those at one place once. */
bool machine_note_global(machine_memory *memory, machine_actor actor, machine_touch touch, uint64_t mask,
                         const uint64_t address[64], uint64_t bytes, char why[MACHINE_RACE_ROOM])
{
    who  me = { actor.epoch << WAVE_BITS | (actor.wave + 1), actor.epoch << WAVE_BITS, actor.group_epoch << WAVE_BITS };
    page last = { 0, NULL };
    for (int i = 0, end; i < LANES; i = end) {
        end = i + 1;
        if (!(mask >> i & 1)) continue;
        uint64_t at = address[i], behind = at + bytes;
        for (; end < LANES && mask >> end & 1; end++) {
            if (address[end] == behind)
                behind += bytes;
            else if (address[end] != behind - bytes)
                break;
        }
        if (!note_bytes(memory, &last, me, touch, at, behind - at, why)) return false;
    }
    return true;
}

/* By a table of the places that were seen: 1 + the first lane there. */
static bool same_at_each(uint64_t mask, const uint64_t address[64], uint32_t data[][64], int words, char *why)
{
    enum { ROOM = 256 };
    uint8_t seen[ROOM] = { 0 };
    for (; mask; mask &= mask - 1) {
        int      i = __builtin_ctzll(mask), j;
        uint32_t at = (uint32_t)(address[i] * 0x9e3779b97f4a7c15u >> 56);
        while (seen[at % ROOM] && address[seen[at % ROOM] - 1] != address[i]) at++;
        j = seen[at % ROOM] - 1;
        if (j < 0) seen[at % ROOM] = (uint8_t)(i + 1);
        for (int k = 0; j >= 0 && k < words; k++) {
            if (data[k][i] == data[k][j]) continue;
            snprintf(why, MACHINE_RACE_ROOM, "lanes %d and %d write different values at %#llx", j, i,
                     (unsigned long long)address[i]);
            return false;
        }
    }
    return true;
}

bool machine_lanes_agree(uint64_t mask, const uint64_t address[64], uint32_t data[][64], int words,
                         char why[MACHINE_RACE_ROOM])
{
    uint64_t last = 0;
    bool     ascending = true;
    if (mask == ~(uint64_t)0)
        for (int i = 1; i < LANES; i++) ascending &= address[i] > address[i - 1];
    for (int i = 0; mask != ~(uint64_t)0 && i < LANES; i++) {
        if (!(mask >> i & 1)) continue;
        ascending &= address[i] > last;
        last = address[i];
    }
    return ascending || same_at_each(mask, address, data, words, why);
}

/* --- LDS ----------------------------------------------------------------------------------------- */

/* Numbers in its shadows: epoch and thread, that is wave and lane; several waves. */
enum { THREAD_BITS = 11, MANY_THREADS = 2047 };

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
    if (other == MANY_THREADS)
        snprintf(why, MACHINE_RACE_ROOM,
                 "race on LDS byte %u: read by several waves, no barrier before lane %u of wave %u", byte, lane, wave);
    else
        snprintf(why, MACHINE_RACE_ROOM,
                 "race on LDS byte %u: %s by lane %u of wave %u, no barrier before lane %u of wave %u", byte,
                 written ? "written" : "read", other % LANES, other / LANES, lane, wave);
    return false;
}

/* Lanes of n units each. The first that collides; LANES: none does. */
static inline __attribute__((always_inline)) int note_lanes(const machine_shadow *s, uint32_t mine, uint64_t mask,
                                                            const uint32_t *at, int n, bool write)
{
    uint32_t epoch = mine & ~(uint32_t)MANY_THREADS;
    for (int i = 0; i < LANES; i++, mine++) {
        if (!(mask >> i & 1)) continue;
        uint32_t *writer = s->writer + (at[i] >> s->shift), *reader = s->reader + (at[i] >> s->shift);
        for (int u = 0; u < n; u++) {
            if (collides(writer[u], mine) || (write && collides(reader[u], mine))) return i;
            if (write)
                writer[u] = mine;
            else if (reader[u] < epoch)
                reader[u] = mine;
            else if ((reader[u] ^ mine) >= LANES)
                reader[u] = epoch | MANY_THREADS;
        }
    }
    return LANES;
}

bool machine_note_shared(machine_shadow *s, uint32_t wave, uint64_t mask, const uint32_t *at, int bytes, bool write,
                         char why[MACHINE_RACE_ROOM])
{
    uint32_t mine = number_of(s, wave);
    int      n = bytes >> s->shift, bad;
    if (n == 1) /* a function of its own for what lanes mostly touch */
        bad = write ? note_lanes(s, mine, mask, at, 1, true) : note_lanes(s, mine, mask, at, 1, false);
    else
        bad = write ? note_lanes(s, mine, mask, at, n, true) : note_lanes(s, mine, mask, at, n, false);
    return bad == LANES || shared_race(s, at[bad] >> s->shift, mine + (uint32_t)bad, why);
}
