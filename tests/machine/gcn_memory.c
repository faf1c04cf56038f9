/* SPDX-License-Identifier: Apache-2.0 */
/* Memory instructions: what they access, when, and who else did.
 *
 * An access is queued. In the lazy order memory is touched when a wait takes it out of the queue, in the eager one at
 * once; registers and bytes that it owes must not be touched before the wait in either. vmcnt counts global memory, and
 * direct loads into LDS, in order. lgkmcnt counts LDS in order, and scalar loads in any.
 *
 * LDS: two waves must not touch a byte between two barriers, one of them writing. Global memory: the same for waves of
 * a block, and for two blocks in a whole launch; atomics may meet atomics.
 */
#include "machine/gcn.h"

/* --- races in global memory -----------------------------------------------------------------------------------------
 */

/* Numbers in the traces: barrier epoch (each block has its own) and wave; many waves; anybody's atomics. */
enum { MANY = 31, WAVE_BITS = 5 };
#define ATOMICS 0xffffffffu

typedef struct who {
    u32 mine, epoch, group; /* this wave; the first number of this epoch, and of this block */
} who;

static who who_is(const wave *w)
{
    const run *r = w->r;
    return (who){ r->epoch << WAVE_BITS | (u32)(w->number + 1), r->epoch << WAVE_BITS, r->group_epoch << WAVE_BITS };
}

/* Does an access by `me` conflict with one of an earlier number? */
static inline bool conflicts(u32 earlier, who me)
{
    return earlier && earlier != me.mine && (earlier < me.group || earlier >= me.epoch);
}

/* Looks at one byte's trace and brings it up to date. */
static inline bool mark(machine_trace *t, who me, int kind)
{
    if (conflicts(t->writer, me) || (kind == SCALAR_LOAD && t->writer)) return false;
    if (kind == STORE || kind == ATOMIC) {
        if (conflicts(t->reader, me)) return false;
        t->writer = me.mine;
    } else if (t->reader == 0 || (t->reader >= me.group && t->reader < me.epoch)) {
        t->reader = me.mine;
    } else if (t->reader >= me.epoch && t->reader != me.mine) {
        t->reader = me.epoch | MANY;
    }
    return true;
}

/* The same for n bytes; mostly their traces are equal. The first that conflicts; n: none does. */
static u64 mark_all(machine_trace *t, u64 n, who me, int kind)
{
    u32           different = 0;
    machine_trace first = t[0];
    for (u64 i = 0; i < n; i++) different |= (t[i].writer ^ first.writer) | (t[i].reader ^ first.reader);
    if (!different) {
        machine_trace now = first;
        if (!mark(&now, me, kind)) return 0;
        if (now.writer != first.writer || now.reader != first.reader)
            for (u64 i = 0; i < n; i++) t[i] = now;
        return n;
    }
    for (u64 i = 0; i < n; i++)
        if (!mark(&t[i], me, kind)) return i;
    return n;
}

static bool race(wave *w, const instruction *x, u64 address, const machine_trace *t, who me)
{
    bool        writer = conflicts(t->writer, me) || x->row->kind == SCALAR_LOAD;
    u32         other = writer ? t->writer : t->reader;
    const char *did = writer ? "written" : "read",
               *by = other < me.group ? "another block" : "another wave of the block";
    if (other == ATOMICS) by = "atomics";
    if (other == me.mine) by = "this wave, past the scalar cache,";
    return gcn_fail(w, x, "race on global memory at %#llx: %s by %s, no barrier between", (unsigned long long)address,
                    did, by);
}

static bool mark_global(wave *w, const instruction *x, u64 address, u64 bytes, int kind)
{
    who me = who_is(w);
    if (kind == ATOMIC) me.mine = ATOMICS;
    while (bytes) {
        u64            page = 4096 - address % 4096, n = bytes < page ? bytes : page;
        machine_trace *t = machine_traces(w->r->memory, address, n);
        for (u64 done = 0, part; t && done < n; done += part) {
            part = n - done;
            u64 bad = mark_all(t + done, part, me, kind);
            if (bad < part) return race(w, x, address + done + bad, t + done + bad, me);
        }
        address += n;
        bytes -= n;
    }
    return true;
}

/* Where `bytes` for lanes of `each` lie; NULL: they do not, and the error says why, unless there are several lanes. */
static u8 *reach(wave *w, const instruction *x, u64 address, u64 bytes, u64 each, int kind)
{
    u64 align = each < 4 ? each : 4;
    if (address % align) {
        gcn_fail(w, x, "misaligned address %#llx for %llu bytes", (unsigned long long)address,
                 (unsigned long long)each);
        return NULL;
    }
    u8 *at = machine_at(w->r->memory, address, bytes);
    if (!at) {
        if (bytes == each)
            gcn_fail(w, x, "out of bounds: %llu bytes at %#llx", (unsigned long long)each, (unsigned long long)address);
        return NULL;
    }
    return w->r->order->blind || mark_global(w, x, address, bytes, kind) ? at : NULL;
}

/* --- global memory --------------------------------------------------------------------------------------------------
 */

/* Between lanes [i, end), which lie one behind the other from `at` on, and registers or what a store has kept. */
static bool move(wave *w, const pending *p, u8 *at, int i, int end)
{
    const instruction *x = p->x;
    int                bytes = x->row->bytes, words = bytes / 4;
    u32(*to)[LANES] = x->row->kind == LOAD ? w->v + x->o[0].at : NULL;
    for (; i < end; i++, at += bytes) {
        u32 value = p->data[0][i];
        switch (x->row->kind) {
        case LOAD:
            if (bytes == 2)
                to[0][i] = at[0] | (u32)at[1] << 8;
            else
                for (int k = 0; k < words; k++) memcpy(&to[k][i], at + 4 * k, 4);
            break;
        case STORE:
            if (bytes == 2)
                memcpy(at, &value, 2);
            else
                for (int k = 0; k < words; k++) memcpy(at + 4 * k, &p->data[k][i], 4);
            break;
        case ATOMIC:
            memcpy(&value, at, 4);
            value = bits_of(float_of(value) + float_of(p->data[0][i]));
            memcpy(at, &value, 4);
            break;
        default:
            memcpy(w->r->lds + p->base + (u64)(bytes * i), at, (size_t)bytes);
            break;
        }
    }
    return true;
}

static void count_global(wave *w, const pending *p)
{
    machine_counts *counts = w->r->counts;
    u64             bytes = p->x->row->bytes, seen[2 * LANES], n = 0;
    for (int i = 0; i < LANES; i++) {
        if (!(p->mask >> i & 1)) continue;
        u64 sector = p->address[i] / 64, k = n;
        while (k && seen[k - 1] != sector) k--;
        if (!k) seen[n++] = sector;
    }
    bool reads = p->x->row->kind == LOAD || p->x->row->kind == TO_LDS || p->x->row->kind == ATOMIC;
    *(reads ? &counts->read_sectors : &counts->written_sectors) += n;
    *(reads ? &counts->read_bytes : &counts->written_bytes) += bytes * (u64)__builtin_popcountll(p->mask);
}

/* Lanes that lie one behind the other are looked at together. */
static bool access_global(wave *w, const pending *p)
{
    const instruction *x = p->x;
    u64                bytes = x->row->bytes;
    if (w->r->counts) count_global(w, p);
    for (int i = 0, end; i < LANES; i = end) {
        end = i + 1;
        if (!(p->mask >> i & 1)) continue;
        while (end < LANES && p->mask >> end & 1 && p->address[end] == p->address[end - 1] + bytes) end++;
        u8 *at = reach(w, x, p->address[i], bytes * (u64)(end - i), bytes, x->row->kind);
        if (w->r->failed) return false;
        if (!at) { /* perhaps two pieces; or the first lane that is wrong is named */
            end = i + 1;
            at = reach(w, x, p->address[i], bytes, bytes, x->row->kind);
            if (!at) return false;
        }
        if (!move(w, p, at, i, end)) return false;
    }
    return true;
}

static bool access_scalar(wave *w, const pending *p)
{
    const run *r = w->r;
    int        bytes = p->x->row->bytes, known = 0;
    u64        offset = p->base - r->arguments;
    const u8  *at = reach(w, p->x, p->base, (u64)bytes, (u64)bytes, SCALAR_LOAD);
    if (!at) return false;
    bool of_arguments = p->base >= r->arguments && offset < (u64)r->k->argument_bytes;
    for (int i = 0; of_arguments && i < bytes; i++) known += r->declared[offset + (u64)i];
    if (of_arguments && !known)
        return gcn_fail(w, p->x, "bytes %d to %d of the arguments: the kernel's metadata has no argument there",
                        (int)offset, (int)offset + bytes - 1);
    memcpy(w->s + p->x->o[0].at, at, (size_t)bytes);
    return true;
}

/* --- LDS ------------------------------------------------------------------------------------------------------------
 */

/* Numbers in its shadows: barrier epoch and thread, that is wave and lane. Waves are in order in themselves. */
enum { THREAD_BITS = 11, MANY_THREADS = 2047 };

static inline bool lds_conflict(u32 earlier, u32 mine)
{
    return earlier >= (mine & ~(u32)MANY_THREADS) && (earlier ^ mine) >= LANES;
}

static inline __attribute__((always_inline)) bool mark_lds_bytes(u32 *writer, u32 *reader, int n, u32 mine, bool write)
{
    u32 bad = 0, epoch = mine & ~(u32)MANY_THREADS;
    for (int b = 0; b < n; b++) bad |= lds_conflict(writer[b], mine);
    if (write) {
        for (int b = 0; b < n; b++) bad |= lds_conflict(reader[b], mine);
        for (int b = 0; b < n; b++) writer[b] = bad ? writer[b] : mine;
    } else {
        for (int b = 0; b < n; b++)
            reader[b] = reader[b] < epoch ? mine : (reader[b] ^ mine) < LANES ? reader[b] : epoch | MANY_THREADS;
    }
    return !bad;
}

static bool mark_lds(run *r, u32 at, int bytes, u32 mine, bool write)
{
    u32 *writer = r->lds_writer + at, *reader = r->lds_reader + at;
    switch (bytes) {
    case 2:
        return mark_lds_bytes(writer, reader, 2, mine, write);
    case 4:
        return mark_lds_bytes(writer, reader, 4, mine, write);
    case 8:
        return mark_lds_bytes(writer, reader, 8, mine, write);
    default:
        return mark_lds_bytes(writer, reader, 16, mine, write);
    }
}

static bool lds_race(wave *w, const instruction *x, u32 at, int bytes, u32 mine)
{
    const run *r = w->r;
    for (u32 b = at; b < at + (u32)bytes; b++) {
        bool written = lds_conflict(r->lds_writer[b], mine);
        u32  other = (written ? r->lds_writer[b] : r->lds_reader[b]) & MANY_THREADS;
        if (!written && !lds_conflict(r->lds_reader[b], mine)) continue;
        if (other == MANY_THREADS)
            return gcn_fail(
                w, x, "race on LDS byte %u: read by several waves, no barrier before lane %u of wave %d writes it", b,
                mine % LANES, w->number);
        return gcn_fail(w, x, "race on LDS byte %u: %s by lane %u of wave %u, no barrier before lane %u of wave %d", b,
                        written ? "written" : "read", other % LANES, other / LANES, mine % LANES, w->number);
    }
    return true;
}

/* Is the access of a lane allowed? */
static bool reach_lds(wave *w, const instruction *x, u64 at, int bytes, int lane, bool write)
{
    run *r = w->r;
    if (at + (u64)bytes > r->lds_bytes)
        return gcn_fail(w, x, "out of bounds: %d bytes at %llu of %u bytes of LDS", bytes, (unsigned long long)at,
                        r->lds_bytes);
    if (at % (u64)bytes && (bytes < 16 || at % 8))
        return gcn_fail(w, x, "misaligned LDS address %llu for %d bytes", (unsigned long long)at, bytes);
    for (int b = 0; r->to_lds && b < bytes; b++)
        if (r->lds_owed[at + (u64)b])
            return gcn_fail(w, x, "LDS byte %llu before the vmcnt wait for its global_load_lds",
                            (unsigned long long)at + (u64)b);
    u32 mine = r->lds_epoch << THREAD_BITS | (u32)(w->number * LANES + lane);
    return r->order->blind || mark_lds(r, (u32)at, bytes, mine, write) || lds_race(w, x, (u32)at, bytes, mine);
}

/* 32 banks of 4 bytes. Lanes go in groups that ask for 128 bytes; each further word of a bank costs them a cycle. */
static void count_lds(wave *w, const u64 *address, u64 mask, int bytes, u64 offset)
{
    int group = bytes <= 4 ? 32 : 128 / bytes, words = bytes < 4 ? 1 : bytes / 4;
    for (int first = 0; first < LANES; first += group) {
        u32 seen[32][32], n[32] = { 0 }, most = 0, any = 0;
        for (int i = first; i < first + group; i++) {
            for (int k = 0; mask >> i & 1 && k < words; k++) {
                u32 word = (u32)((address[i] + offset) / 4) + (u32)k, bank = word % 32, q = 0;
                while (q < n[bank] && seen[bank][q] != word) q++;
                if (q == n[bank]) seen[bank][n[bank]++] = word;
                most = n[bank] > most ? n[bank] : most;
                any = 1;
            }
        }
        w->r->counts->shared_cycles += most;
        w->r->counts->shared_least += any;
    }
}

static u64 offset_of(const instruction *x, int element)
{
    if (x->row->elements == 1) return (u64)x->modifier[AT_OFFSET];
    return (u64)(x->modifier[element ? AT_OFFSET1 : AT_OFFSET0] * x->row->bytes);
}

static bool access_lds(wave *w, const pending *p)
{
    const instruction *x = p->x;
    int                bytes = x->row->bytes, words = (bytes + 3) / 4, high = x->row->high;
    bool               write = x->row->kind == LDS_WRITE;
    for (int e = 0; e < x->row->elements; e++) {
        u64 offset = offset_of(x, e);
        if (w->r->counts) count_lds(w, p->address, p->mask, bytes, offset);
        for (u64 left = p->mask; left; left &= left - 1) {
            int i = __builtin_ctzll(left);
            u64 at = p->address[i] + offset;
            if (!reach_lds(w, x, at, bytes, i, write)) return false;
            u8 *lds = w->r->lds + at;
            if (bytes == 2) { /* only stores: loads of 16 bits are not among the rows */
                u16 half = (u16)(p->data[0][i] >> (16 * high));
                memcpy(lds, &half, 2);
                continue;
            }
            for (int k = 0; k < words; k++) {
                if (write)
                    memcpy(lds + 4 * k, &p->data[e * words + k][i], 4);
                else
                    memcpy(&w->v[x->o[0].at + e * words + k][i], lds + 4 * k, 4);
            }
        }
    }
    return true;
}

/* The bytes that a direct load will write: owed, or no longer, and nobody may have touched them in between. */
static void owe_lds(run *r, const pending *p, int by)
{
    int bytes = p->x->row->bytes;
    r->to_lds += by;
    for (int i = 0; i < LANES; i++)
        for (int b = 0; p->mask >> i & 1 && b < bytes; b++) r->lds_owed[p->base + (u64)(bytes * i + b)] += (u8)by;
}

static bool check_to_lds(wave *w, const pending *p)
{
    int bytes = p->x->row->bytes;
    for (int i = 0; i < LANES; i++)
        if (p->mask >> i & 1 && !reach_lds(w, p->x, p->base + (u64)(bytes * i), bytes, i, true)) return false;
    return true;
}

/* --- queues ---------------------------------------------------------------------------------------------------------
 */

static bool access_memory(wave *w, pending *p)
{
    p->done = true;
    switch (p->x->row->kind) {
    case SCALAR_LOAD:
        return access_scalar(w, p);
    case LDS_READ:
    case LDS_WRITE:
        return access_lds(w, p);
    case LDS_PERMUTE:
        return true;
    default:
        return access_global(w, p);
    }
}

static void set_owed(wave *w, const operand *o, bool owed)
{
    for (int k = 0; k < o->count; k++) {
        int at = o->at + k + (o->kind == SCALAR ? VECTORS : 0);
        u64 bit = (u64)1 << at % 64;
        w->owed.bits[at / 64] = (w->owed.bits[at / 64] & ~bit) | (owed ? bit : 0);
    }
}

static bool brings_registers(const instruction *x)
{
    int kind = x->row->kind;
    return kind == SCALAR_LOAD || kind == LOAD || kind == LDS_READ || kind == LDS_PERMUTE;
}

bool gcn_complete(wave *w, queue *q, int left)
{
    while (q->count > left) {
        pending *p = &q->of[q->first];
        if (p->x->row->kind == TO_LDS) {
            owe_lds(w->r, p, -1);
            if (!check_to_lds(w, p)) return false;
        }
        if (!p->done && !access_memory(w, p)) return false;
        if (brings_registers(p->x)) set_owed(w, &p->x->o[0], false);
        w->scalar_loads -= p->x->row->kind == SCALAR_LOAD;
        q->first = --q->count ? (q->first + 1) % OUTSTANDING : 0;
    }
    return true;
}

static pending *issue(wave *w, const instruction *x, queue *q)
{
    if (q->count == OUTSTANDING && !gcn_complete(w, q, OUTSTANDING - 1)) return NULL;
    pending *p = &q->of[(q->first + q->count++) % OUTSTANDING];
    p->x = x;
    p->mask = scalar_pair(w, EXEC);
    p->done = false;
    return p;
}

static bool issued(wave *w, pending *p)
{
    if (brings_registers(p->x)) set_owed(w, &p->x->o[0], true);
    return !w->r->order->eager || access_memory(w, p);
}

static void keep_data(const wave *w, pending *p, const operand *o, int first)
{
    for (int k = 0; k < o->count; k++) memcpy(p->data[first + k], w->v[o->at + k], sizeof p->data[0]);
}

static bool step_scalar_load(wave *w, const instruction *x)
{
    pending *p = issue(w, x, &w->lgkm);
    if (!p) return false;
    p->base = scalar_pair(w, x->o[1].at) + scalar_value(w, &x->o[2]);
    w->scalar_loads++;
    return issued(w, p);
}

static bool step_global(wave *w, const instruction *x)
{
    int            loads = x->row->kind == LOAD;
    const operand *address = &x->o[loads], *base = &x->o[x->n - 1];
    pending       *p = issue(w, x, &w->vm);
    if (!p) return false;
    u64        from = (u64)(i64)x->modifier[AT_OFFSET] + (base->kind == SCALAR ? scalar_pair(w, base->at) : 0);
    const u32 *low = w->v[address->at], *high = address->count == 2 ? w->v[address->at + 1] : NULL;
    for (int i = 0; i < LANES; i++) p->address[i] = from + (low[i] | (high ? (u64)high[i] << 32 : 0));
    if (x->row->kind == STORE || x->row->kind == ATOMIC) keep_data(w, p, &x->o[1], 0);
    if (x->row->kind != TO_LDS) return issued(w, p);
    p->base = w->s[M0] + (u64)(i64)x->modifier[AT_OFFSET];
    if (!check_to_lds(w, p) || !issued(w, p)) return false;
    owe_lds(w->r, p, 1);
    return true;
}

static bool step_lds(wave *w, const instruction *x)
{
    const operand *address = &x->o[x->row->kind == LDS_READ];
    pending       *p = issue(w, x, &w->lgkm);
    if (!p) return false;
    for (int i = 0; i < LANES; i++) p->address[i] = w->v[address->at][i];
    for (int o = 1, k = 0; x->row->kind == LDS_WRITE && o < x->n; k += x->o[o++].count) keep_data(w, p, &x->o[o], k);
    return issued(w, p);
}

/* Each lane gets what another has, 0 from one that is off; it goes through the LDS' pipe, and is counted there. */
static bool step_permute(wave *w, const instruction *x)
{
    pending *p = issue(w, x, &w->lgkm);
    u32      out[LANES];
    if (!p) return false;
    for (int i = 0; i < LANES; i++) {
        u32 lane = (w->v[x->o[1].at][i] + (u32)x->modifier[AT_OFFSET]) / 4 % LANES;
        out[i] = p->mask >> lane & 1 ? w->v[x->o[2].at][lane] : 0;
    }
    for (int i = 0; i < LANES; i++)
        if (p->mask >> i & 1) w->v[x->o[0].at][i] = out[i];
    return issued(w, p);
}

#define OFFSET BIT(AT_OFFSET)
#define OFFSETS (BIT(AT_OFFSET0) | BIT(AT_OFFSET1))

/* name, operands, step, modifiers, kind, bytes of an element, elements of a lane, upper half? */
#define ROW(name, shape, step, takes, kind, bytes, elements, high)                                                     \
    {                                                                                                                  \
        name, shape, step, takes, kind, bytes, elements, high, 0, NULL, NULL                                           \
    }
const row gcn_memory_rows[] = {
    ROW("s_load_dword", "s s2 z", step_scalar_load, 0, SCALAR_LOAD, 4, 1, false),
    ROW("s_load_dwordx2", "s2 s2 z", step_scalar_load, 0, SCALAR_LOAD, 8, 1, false),
    ROW("s_load_dwordx4", "s4 s2 z", step_scalar_load, 0, SCALAR_LOAD, 16, 1, false),
    ROW("s_load_dwordx8", "s8 s2 z", step_scalar_load, 0, SCALAR_LOAD, 32, 1, false),
    ROW("global_load_ushort", "v p b", step_global, OFFSET, LOAD, 2, 1, false),
    ROW("global_load_dword", "v p b", step_global, OFFSET, LOAD, 4, 1, false),
    ROW("global_load_dwordx2", "v2 p b", step_global, OFFSET, LOAD, 8, 1, false),
    ROW("global_load_dwordx4", "v4 p b", step_global, OFFSET, LOAD, 16, 1, false),
    ROW("global_store_short", "p v b", step_global, OFFSET, STORE, 2, 1, false),
    ROW("global_store_dword", "p v b", step_global, OFFSET, STORE, 4, 1, false),
    ROW("global_store_dwordx2", "p v2 b", step_global, OFFSET, STORE, 8, 1, false),
    ROW("global_atomic_add_f32", "p v b", step_global, OFFSET, ATOMIC, 4, 1, false),
    ROW("global_load_lds_dword", "p b", step_global, OFFSET | READS_M0, TO_LDS, 4, 1, false),
    ROW("global_load_lds_dwordx4", "p b", step_global, OFFSET | READS_M0 | GFX950, TO_LDS, 16, 1, false),
    ROW("ds_read_b32", "v v", step_lds, OFFSET, LDS_READ, 4, 1, false),
    ROW("ds_read_b64", "v2 v", step_lds, OFFSET, LDS_READ, 8, 1, false),
    ROW("ds_read_b128", "v4 v", step_lds, OFFSET, LDS_READ, 16, 1, false),
    ROW("ds_read2_b32", "v2 v", step_lds, OFFSETS, LDS_READ, 4, 2, false),
    ROW("ds_read2_b64", "v4 v", step_lds, OFFSETS, LDS_READ, 8, 2, false),
    ROW("ds_write_b16", "v v", step_lds, OFFSET, LDS_WRITE, 2, 1, false),
    ROW("ds_write_b16_d16_hi", "v v", step_lds, OFFSET, LDS_WRITE, 2, 1, true),
    ROW("ds_write_b32", "v v", step_lds, OFFSET, LDS_WRITE, 4, 1, false),
    ROW("ds_write2_b64", "v v2 v2", step_lds, OFFSETS, LDS_WRITE, 8, 2, false),
    ROW("ds_bpermute_b32", "v v v", step_permute, OFFSET, LDS_PERMUTE, 4, 1, false),
    { 0 },
};
