/* SPDX-License-Identifier: Apache-2.0 */
/* Memory instructions: what they access, when, and who else did.
 *
 * An access is queued. In the lazy order memory is touched when a wait takes it out of the queue, in the eager one at
 * once; registers and bytes that it owes must not be touched before the wait in either. vmcnt counts global memory, and
 * direct loads into LDS, in order. lgkmcnt counts LDS in order, and scalar loads in any.
 *
 * Races are those of races.h.
 */
#include "machine/gcn.h"

/* --- global memory ------------------------------------------------------------------------------- */

static bool note_global(wave *w, const instruction *x, u64 mask, const u64 *address)
{
    const run          *r = w->r;
    machine_actor       actor = { (u32)w->number, r->epoch, r->group_epoch };
    const machine_touch touches[] = {
        [SCALAR_LOAD] = MACHINE_READS_CONSTANT, [LOAD] = MACHINE_READS, [STORE] = MACHINE_WRITES
    };
    char why[MACHINE_RACE_ROOM];
    return r->order->blind ||
           machine_note_global(r->memory, actor, touches[x->row->kind], mask, address, x->row->bytes, why) ||
           gcn_fail(w, x, "%s", why);
}

/* Where a lane's bytes lie; NULL: they do not, and the error says why. */
static u8 *reach(wave *w, const instruction *x, u64 address)
{
    int bytes = x->row->bytes;
    u8 *at = machine_at(w->r->memory, address, (u64)bytes);
    if (bytes > 1 && address % 2) /* by halves unaligned access is on (HSA), and compilers count on it */
        gcn_fail(w, x, "misaligned address %#llx for %d bytes", (unsigned long long)address, bytes);
    if (!at) gcn_fail(w, x, "out of bounds: %d bytes at %#llx", bytes, (unsigned long long)address);
    return w->r->failed ? NULL : at;
}

#define EACH_ON                                                                                                        \
    for (int i = 0; i < LANES; i++)                                                                                    \
        if (mask >> i & 1)

/* A register of lanes between memory, which has it at from + place, and `value`. */
static inline __attribute__((always_inline)) void move_words(u8 *from, const u32 *place, u32 *value, u64 mask,
                                                             bool store)
{
    EACH_ON memcpy(store ? from + place[i] : (u8 *)&value[i], store ? (u8 *)&value[i] : from + place[i], 4);
}

static inline __attribute__((always_inline)) void move_halves(u8 *from, const u32 *place, u32 *value, u64 mask,
                                                              bool store)
{
    EACH_ON
    {
        u16 half = (u16)value[i];
        memcpy(store ? from + place[i] : (u8 *)&half, store ? (u8 *)&half : from + place[i], 2);
        if (!store) value[i] = half;
    }
}

static void move_bytes(u8 *from, const u32 *place, u32 *value, u64 mask, bool store)
{
    EACH_ON
    {
        if (store)
            from[place[i]] = (u8)value[i];
        else
            value[i] = from[place[i]];
    }
}

/* `count` registers of lanes, or parts of one; with functions of their own for all lanes. */
static void move(u8 *memory, const u32 *place, u32 (*value)[LANES], int bytes, u64 mask, bool store)
{
    const u64 all = ~(u64)0;
    if (bytes == 1) {
        move_bytes(memory, place, *value, mask, store);
        return;
    }
    if (bytes == 2) {
        if (mask == all)
            store ? move_halves(memory, place, *value, all, true) : move_halves(memory, place, *value, all, false);
        else
            move_halves(memory, place, *value, mask, store);
        return;
    }
    for (int k = 0; k < bytes / 4; k++, memory += 4) {
        if (mask == all)
            store ? move_words(memory, place, value[k], all, true) : move_words(memory, place, value[k], all, false);
        else
            move_words(memory, place, value[k], mask, store);
    }
}

/* What an access does with memory, which has lane i's bytes at memory + place[i]. */
static void exchange(wave *w, pending *p, u8 *memory, const u32 *place, u64 mask)
{
    int  bytes = p->x->row->bytes;
    bool load = p->x->row->kind == LOAD;
    move(memory, place, load ? w->v + p->x->o[0].at : p->data, bytes, mask, !load);
}

/* All that lanes may touch at once, if it is allowed: where its first byte lies; place[i]: lane i's from there. */
static u8 *reach_all(wave *w, const pending *p, u32 *place)
{
    u64 low = ~(u64)0, high = 0, bits = 0, address[LANES];
    for (int i = 0; i < LANES; i++) {
        u64 on = (u64)0 - (p->mask >> i & 1);
        address[i] = p->address[i];
        low = (address[i] | ~on) < low ? address[i] | ~on : low;
        high = (address[i] & on) > high ? address[i] & on : high;
        bits |= address[i] & on;
    }
    for (int i = 0; i < LANES; i++) place[i] = (u32)(address[i] - low);
    if (bits & (p->x->row->bytes > 1) || high - low > ~(u32)0) return NULL;
    return machine_at(w->r->memory, low, high - low + p->x->row->bytes);
}

static bool access_global(wave *w, pending *p)
{
    const instruction *x = p->x;
    u32                place[LANES];
    for (u64 left = p->outside; left; left &= left - 1)
        for (int k = 0; k < x->o[0].count; k++) w->v[x->o[0].at + k][__builtin_ctzll(left)] = 0;
    if (w->r->counts)
        machine_count_access(w->r->counts, w->r->memory, p->address, p->mask, x->row->bytes, SECTOR,
                             x->row->kind == STORE);
    if (!p->mask) return true;
    u8 *all = reach_all(w, p, place);
    if (all) {
        if (!note_global(w, x, p->mask, p->address)) return false;
        exchange(w, p, all, place, p->mask);
        return true;
    }
    for (u64 left = p->mask; left; left &= left - 1) {
        int i = __builtin_ctzll(left);
        u8 *at = reach(w, x, p->address[i]);
        if (!at || !note_global(w, x, left & -left, p->address)) return false;
        place[i] = 0;
        exchange(w, p, at, place, left & -left);
    }
    return true;
}

static bool access_scalar(wave *w, const pending *p)
{
    const run *r = w->r;
    int        bytes = p->x->row->bytes, known = 0;
    u64        offset = p->base - r->arguments;
    const u8  *at = reach(w, p->x, p->base);
    if (!at || !note_global(w, p->x, 1, &p->base)) return false;
    bool of_arguments = p->base >= r->arguments && offset < (u64)r->k->argument_bytes;
    for (int i = 0; of_arguments && i < bytes; i++) known += r->declared[offset + (u64)i];
    if (of_arguments && !known)
        return gcn_fail(w, p->x, "bytes %d to %d of the arguments: the kernel's metadata has no argument there",
                        (int)offset, (int)offset + bytes - 1);
    memcpy(w->s + p->x->o[0].at, at, (size_t)bytes);
    if (r->counts && !of_arguments) machine_use_note(r->memory, &p->base, 1, (u64)bytes, false);
    return true;
}

/* --- LDS ----------------------------------------------------------------------------------------- */

/* Are the accesses of all lanes allowed? */
static bool reach_lds(wave *w, const pending *p, const u32 *at, bool write)
{
    run *r = w->r;
    u32  bytes = p->x->row->bytes, odd = bytes == 12 ? 15 : bytes < 16 ? bytes - 1 : 7, bad = 0;
    u32  none = r->lds_bytes < bytes, last = none ? 0 : r->lds_bytes - bytes;
    bool full = p->mask == ~(u64)0;
    for (int i = 0; full && i < LANES; i++) bad |= none | (at[i] > last) | (at[i] & odd);
    for (int i = 0; !full && i < LANES; i++)
        bad |= (u32)(p->mask >> i & 1) & (none | (at[i] > last) | ((at[i] & odd) != 0));
    for (int i = 0; bad && i < LANES; i++) {
        if (!(p->mask >> i & 1)) continue;
        if (none || at[i] > last)
            return gcn_fail(w, p->x, "out of bounds: %u bytes at %u of %u bytes of LDS", bytes, at[i], r->lds_bytes);
        if (at[i] & odd) return gcn_fail(w, p->x, "misaligned LDS address %u for %u bytes", at[i], bytes);
    }
    char why[MACHINE_RACE_ROOM];
    return r->order->blind || machine_note_shared(&r->shadow, (u32)w->number, p->mask, at, (int)bytes, write, why) ||
           gcn_fail(w, p->x, "%s", why);
}

/* Where lanes access the LDS: the e-th of their elements. */
static void lds_places(const pending *p, int e, u32 *at)
{
    const i32 *m = p->x->modifier;
    u32        bytes = p->x->row->bytes;
    u32        offset = p->x->row->elements == 1 ? (u32)m[AT_OFFSET] : (u32)m[e ? AT_OFFSET1 : AT_OFFSET0] * bytes;
    if (p->x->row->takes & STRIDE64) offset *= 64;
    for (int i = 0; i < LANES; i++) at[i] = (u32)p->address[i] + offset;
}

static bool access_lds(wave *w, pending *p)
{
    const instruction *x = p->x;
    int                bytes = x->row->bytes, words = (bytes + 3) / 4;
    bool               write = x->row->kind == LDS_WRITE;
    u32(*registers_of)[LANES] = write ? p->data : w->v + x->o[0].at, at[LANES];
    for (int e = 0; e < x->row->elements; e++, registers_of += words) {
        lds_places(p, e, at);
        if (w->r->counts) machine_count_banks(w->r->counts, at, p->mask, bytes);
        if (!reach_lds(w, p, at, write)) return false;
        move(w->r->lds, at, registers_of, bytes, p->mask, write);
    }
    return true;
}

/* --- queues -------------------------------------------------------------------------------------- */

static bool access_memory(wave *w, pending *p)
{
    p->done = true;
    if (p->x->row->kind == SCALAR_LOAD) return access_scalar(w, p);
    if (p->x->row->kind == LDS_READ || p->x->row->kind == LDS_WRITE) return access_lds(w, p);
    return p->x->row->kind == LDS_PERMUTE || access_global(w, p);
}

static void set_owed(wave *w, const operand *o, bool owed)
{
    for (int k = 0; k < o->count; k++) {
        int at = o->at + k + (o->kind == SCALAR ? VECTORS : 0);
        u64 bit = (u64)1 << at % 64;
        w->owed.bits[at / 64] = (w->owed.bits[at / 64] & ~bit) | (owed ? bit : 0);
    }
}

/* What a load that has come leaves owed: a later one may have the same register. */
static void owe_rest(wave *w, const queue *q)
{
    for (int i = 1; i < q->count; i++) {
        const instruction *x = q->of[(q->first + i) % OUTSTANDING].x;
        if (x->row->kind == LOAD || x->row->kind == SCRATCH_LOAD) set_owed(w, &x->o[0], true);
    }
}

bool gcn_complete(wave *w, queue *q, int left)
{
    while (q->count > left) {
        pending *p = &q->of[q->first];
        if (!p->done && !access_memory(w, p)) return false;
        if (p->x->row->kind <= LOAD) set_owed(w, &p->x->o[0], false);
        if (p->x->row->kind == LOAD || p->x->row->kind == SCRATCH_LOAD) owe_rest(w, q);
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
    p->outside = 0;
    p->done = false;
    return p;
}

/* Each lane gets what another has, 0 from one that is off. It goes through the LDS' pipe: it is owed like a read. */
static void permute(wave *w, const pending *p)
{
    u32 out[LANES];
    for (int i = 0; i < LANES; i++) {
        u32 lane = (u32)(p->address[i] + (u64)p->x->modifier[AT_OFFSET]) / 4 % LANES;
        out[i] = p->mask >> lane & 1 ? w->v[p->x->o[2].at][lane] : 0;
    }
    for (int i = 0; i < LANES; i++)
        if (p->mask >> i & 1) w->v[p->x->o[0].at][i] = out[i];
}

/* A lane's own memory, at a place that the text names. Nobody else sees it: it is accessed at once, in any order. */
static bool step_scratch(wave *w, const instruction *x)
{
    bool     load = x->row->kind == SCRATCH_LOAD;
    int      at = x->modifier[AT_OFFSET];
    pending *p = issue(w, x, &w->vm);
    if (!p) return false;
    if (at < 0 || at % 4 || at + x->row->bytes > w->r->k->told.spilled_bytes)
        return gcn_fail(w, x, "%d bytes at %d of %d bytes of scratch", x->row->bytes, at, w->r->k->told.spilled_bytes);
    for (int k = 0; k < x->row->bytes / 4; k++) {
        u32 *kept = w->scratch[at / 4 + k], *value = w->v[x->o[load ? 0 : 1].at + k];
        for (int i = 0; i < LANES; i++)
            if (p->mask >> i & 1) *(load ? &value[i] : &kept[i]) = load ? kept[i] : value[i];
    }
    p->done = true;
    if (load) set_owed(w, &x->o[0], true);
    return true;
}

static bool step_access(wave *w, const instruction *x)
{
    int      kind = x->row->kind, first = kind <= LOAD, stored = first + 1, n = 0;
    bool     global = kind == LOAD || kind == STORE;
    pending *p = issue(w, x, global ? &w->vm : &w->lgkm);
    if (!p) return false;
    const operand *address = &x->o[first], *base = &x->o[x->n - 1];
    u64 from = global ? (u64)(i64)x->modifier[AT_OFFSET] + (base->kind == SCALAR ? scalar_pair(w, base->at) : 0) : 0;
    if (kind == SCALAR_LOAD) {
        p->base = scalar_pair(w, x->o[1].at) + scalar_value(w, &x->o[2]);
        w->scalar_loads++;
    } else {
        const u32 *low = w->v[address->at], *high = w->v[address->at + 1];
        for (int i = 0; i < LANES; i++)
            p->address[i] = from + (low[i] | (address->count == 2 ? (u64)high[i] << 32 : 0));
    }
    for (; kind > LOAD && stored < x->n - global; n += x->o[stored++].count)
        memcpy(p->data[n], w->v[x->o[stored].at], x->o[stored].count * sizeof p->data[0]);
    for (int i = 0; x->row->takes & HIGH && i < LANES; i++) p->data[0][i] >>= 16;
    if (kind == LDS_PERMUTE) permute(w, p);
    char why[MACHINE_RACE_ROOM];
    if (kind == STORE && !machine_lanes_agree(p->mask, p->address, p->data, n, why)) return gcn_fail(w, x, "%s", why);
    if (first) set_owed(w, &x->o[0], true);
    return !w->r->order->eager || access_memory(w, p);
}

/* A load from a buffer, whose descriptor has address and bytes, without a stride: each lane says how far from its
 * beginning. From a word on that is not inside, zeros come, and no memory is read (MI300 ISA, "Range checking"). */
static bool step_buffer(wave *w, const instruction *x)
{
    const u32 *buffer = &w->s[x->o[2].at], *offset = w->v[x->o[1].at], bytes = x->row->bytes;
    pending   *p = issue(w, x, &w->vm);
    if (!p) return false;
    if (buffer[1] >> 16 || buffer[3] != 0x20000 || scalar_value(w, &x->o[3]))
        return gcn_fail(w, x, "a buffer with a stride, of another format, or with an offset for all lanes");
    u64 from = buffer[0] | (u64)buffer[1] << 32, mask = p->mask;
    EACH_ON
    {
        u64 at = (u64)offset[i] + (u64)x->modifier[AT_OFFSET];
        p->address[i] = from + at;
        if (at < buffer[2] && at + bytes > buffer[2])
            return gcn_fail(w, x, "lane %d: %u bytes at %llu, partly outside of the buffer's %u", i, bytes,
                            (unsigned long long)at, buffer[2]);
        if (at >= buffer[2]) p->outside |= (u64)1 << i;
    }
    p->mask &= ~p->outside;
    set_owed(w, &x->o[0], true);
    return !w->r->order->eager || access_memory(w, p);
}

#define OFFSET BIT(AT_OFFSET)
#define BUFFER (BIT(AT_OFFSET) | BIT(AT_OFFEN))
#define OFFSETS (BIT(AT_OFFSET0) | BIT(AT_OFFSET1))

const row gcn_memory_rows[] = {
#define ACCESS(name, shape, of, size, n, flags)                                                                        \
    { #name,                                                                                                           \
      shape,                                                                                                           \
      (of) == SCRATCH_LOAD || (of) == SCRATCH_STORE ? step_scratch                                                     \
      : ((flags)&BIT(AT_OFFEN))                     ? step_buffer                                                      \
                                                    : step_access,                                                                         \
      .takes = flags,                                                                                                  \
      .kind = of,                                                                                                      \
      .bytes = size,                                                                                                   \
      .elements = n },
#include "machine/gcn.def"
    { 0 },
};
