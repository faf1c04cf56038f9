/* SPDX-License-Identifier: Apache-2.0 */
/* PTX: copies that go on by themselves, mbarriers, and the fences between ordinary and asynchronous accesses. */
#include "machine/counts.h"
#include "machine/ptx.h"
#include "machine/tensor_map.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 16 };

/* --- tensor maps */

typedef struct tensor_map {
    uint64_t address, strides[4];
    uint32_t last[5]; /* of each dimension, its size less 1 */
    uint16_t box[5];
    uint8_t  rank, element, swizzle, magic;
} tensor_map;

static const uint8_t element_bytes[] = { 1, 2, 4, 4, 8, 8, 2, 4, 8, 2 };

const char *machine_tensor_map(uint8_t map[MACHINE_TENSOR_MAP_BYTES], const machine_tensor *t)
{
    tensor_map m = { .address = t->address, .rank = (uint8_t)t->rank, .swizzle = (uint8_t)t->swizzle, .magic = 'T' };
    if (t->type < 0 || t->type >= (int)sizeof element_bytes) return "the type is not modelled";
    if (t->rank < 1 || t->rank > 5) return "the rank is not 1 to 5";
    if (t->address % 16) return "the address is not a multiple of 16";
    if (t->swizzle < 0 || t->swizzle > 3 || t->fill) return "the swizzle or the filling is not modelled";
    m.element = element_bytes[t->type];
    for (int i = 0; i < t->rank; i++) {
        if (t->dims[i] == 0 || t->dims[i] > (uint64_t)1 << 31) return "a dimension is not 1 to 2^31";
        if (t->box[i] == 0 || t->box[i] > 256) return "a side of the box is not 1 to 256";
        if (t->element_strides[i] != 1) return "strides of elements are not modelled";
        if (i > 0 && (t->strides[i - 1] % 16 || t->strides[i - 1] >= (uint64_t)1 << 40))
            return "a stride is not a multiple of 16 below 2^40";
        m.last[i] = (uint32_t)(t->dims[i] - 1);
        m.box[i] = (uint16_t)t->box[i];
        if (i > 0) m.strides[i - 1] = t->strides[i - 1];
    }
    uint32_t inner = m.element * t->box[0];
    if (inner % 16) return "rows of the box are not a multiple of 16 bytes";
    if (t->swizzle && inner != 16u << t->swizzle) return "rows of the box are not as long as the swizzle";
    for (int i = t->rank; i < 5; i++) m.box[i] = 1;
    memset(map, 0, MACHINE_TENSOR_MAP_BYTES);
    memcpy(map, &m, sizeof m);
    return NULL;
}

/* --- mbarriers */

static ptx_barrier *barrier_at(ptx_block *b, ptx_warp *w, const ptx_instruction *x, int lane, uint32_t at)
{
    for (int i = 0; i < b->n_barriers; i++) {
        ptx_barrier *bar = &b->barriers[i];
        if (bar->at != at) continue;
        if (machine_clocks_knows(&b->time, (uint32_t)(w->number * LANES + lane), bar->thread, bar->clock)) return bar;
        ptx_fail(b, w, x, "nothing is between this and the mbarrier's init by thread %u", bar->thread);
        return NULL;
    }
    ptx_fail(b, w, x, "there is no mbarrier at %d of shared memory", (int)at - SHARED_FIRST);
    return NULL;
}

/* Is the phase complete? */
static void settle(ptx_block *b, ptx_barrier *bar)
{
    if (bar->pending || bar->bytes) return;
    memcpy(bar->done, bar->arriving, b->time.agents * sizeof *bar->done);
    bar->phase++;
    bar->pending = bar->expected;
    b->events++;
}

PTX_HANDLER(mbarrier_init)
{
    u64 at[LANES];
    ptx_addresses(w, &x->o[0], at);
    for (u32 left = on; left; left &= left - 1) {
        int      i = ptx_first(left), k = 0;
        uint32_t a = (uint32_t)at[i];
        if (!ptx_shared(b, w, x, i, a, 8, MACHINE_WRITE)) return;
        while (k < b->n_barriers && b->barriers[k].at != a) k++;
        if (k == MOST_BARRIERS) {
            ptx_fail(b, w, x, "too many mbarriers");
            return;
        }
        ptx_barrier *bar = &b->barriers[k];
        if (k == b->n_barriers) b->n_barriers++;
        if (!bar->arriving) bar->arriving = calloc(2 * b->time.agents, sizeof *bar->arriving);
        if (!bar->arriving) abort();
        uint32_t *arriving = bar->arriving, count = w->file[x->o[1].at + i], t = (uint32_t)(w->number * LANES + i);
        memset(arriving, 0, 2 * b->time.agents * sizeof *arriving);
        *bar = (ptx_barrier){ .at = a,
                              .expected = count,
                              .pending = count,
                              .thread = t,
                              .clock = b->time.own[t],
                              .arriving = arriving,
                              .done = arriving + b->time.agents };
        b->time.own[t] = ++b->time.now;
        memset(b->owed + (a >> b->kernel->unit), 0xff, (size_t)(8 >> b->kernel->unit));
        b->n_owed++;
    }
}

/* With a third operand: more bytes are expected. */
PTX_HANDLER(arrive)
{
    u64 at[LANES];
    ptx_addresses(w, &x->o[1], at);
    for (u32 left = on; left; left &= left - 1) {
        int          i = ptx_first(left);
        ptx_barrier *bar = barrier_at(b, w, x, i, (uint32_t)at[i]);
        if (!bar) return;
        if (!bar->pending) {
            ptx_fail(b, w, x, "more arrivals than the %u that the mbarrier expects", bar->expected);
            return;
        }
        if (x->n > 2) bar->bytes += w->file[x->o[2].at + i];
        machine_clocks_publish(&b->time, (uint32_t)(w->number * LANES + i), bar->arriving);
        bar->pending--;
        b->events++;
        settle(b, bar);
    }
}

/* --- bulk copies: into shared memory, told to an mbarrier */

/* Puts a chunk of the copy where it belongs: at its issue `data` is NULL, and its bytes are owed from then on. */
static bool put_chunk(ptx_block *b, const ptx_bulk *c, uint32_t at, const uint8_t *data)
{
    ptx_warp *w = &b->warps[c->thread / LANES];
    uint32_t  unit = b->kernel->unit, n = CHUNK >> unit;
    if (data) {
        memset(b->owed + (at >> unit), 0, n);
        memcpy(b->shared + at, data, CHUNK);
        b->n_owed--;
        return true;
    }
    if (!ptx_shared_async(b, w, c->x, c->thread % LANES, at, CHUNK, b->time.agents - 1, c->clock, MACHINE_ASYNC_WRITE))
        return false;
    memset(b->owed + (at >> unit), 1, n);
    b->n_owed++;
    return true;
}

/* Reads `bytes` of global memory as the copy's agent does. */
static bool fetch(ptx_block *b, const ptx_bulk *c, uint64_t at, uint8_t *to, uint32_t bytes)
{
    const uint8_t *p = ptx_global_async(b, &b->warps[c->thread / LANES], c->x, c->thread % LANES, at, bytes);
    if (p) memcpy(to, p, bytes);
    return p != NULL;
}

/* The chunk of a tensor's box that begins with an element of the innermost dimension: zeros outside of the tensor. */
static bool fetch_elements(ptx_block *b, const ptx_bulk *c, const tensor_map *m, const int64_t at[5], uint8_t *to)
{
    uint64_t from = m->address + (uint64_t)(at[0] * m->element);
    uint32_t each = CHUNK / m->element;
    memset(to, 0, CHUNK);
    for (int i = 1; i < m->rank; i++) {
        if (at[i] < 0 || at[i] > m->last[i]) return true;
        from += (uint64_t)at[i] * m->strides[i - 1];
    }
    if (at[0] >= 0 && at[0] + each - 1 <= m->last[0] && from % CHUNK == 0) return fetch(b, c, from, to, CHUNK);
    for (uint32_t e = 0; e < each; e++)
        if (at[0] + e >= 0 && at[0] + e <= m->last[0] &&
            !fetch(b, c, from + e * m->element, to + e * m->element, m->element))
            return false;
    return true;
}

static uint32_t swizzled(const tensor_map *m, uint32_t at)
{
    static const uint32_t masks[] = { 0, 1, 3, 7 };
    return at ^ (at >> 7 & masks[m->swizzle]) << 4;
}

/* All chunks of a copy: at its issue (`land` false), or when it lands. */
static bool each_chunk(ptx_block *b, const ptx_bulk *c, bool land)
{
    uint8_t    data[CHUNK];
    tensor_map m;
    memcpy(&m, c->map, sizeof m);
    for (uint32_t done = 0; done < c->bytes; done += CHUNK) {
        uint32_t to = c->to + done;
        if (c->tensor) {
            int64_t  at[5] = { 0 };
            uint32_t left = done / m.element;
            for (int i = 0; i < m.rank; left /= m.box[i++]) at[i] = c->coordinates[i] + (int64_t)(left % m.box[i]);
            to = swizzled(&m, to);
            if (land && !fetch_elements(b, c, &m, at, data)) return false;
        } else if (land && !fetch(b, c, c->from + done, data, CHUNK))
            return false;
        if (!put_chunk(b, c, to, land ? data : NULL)) return false;
    }
    return true;
}

static void land(ptx_block *b, int i)
{
    ptx_bulk     c = b->bulk[i];
    ptx_warp    *w = &b->warps[c.thread / LANES];
    ptx_barrier *bar = b->barriers;
    if (!each_chunk(b, &c, true)) return;
    b->bulk[i] = b->bulk[--b->n_bulk];
    while (bar->at != c.barrier) bar++;
    bar->bytes -= c.bytes;
    if (bar->arriving[b->time.agents - 1] < c.clock) bar->arriving[b->time.agents - 1] = c.clock;
    b->events++;
    if (b->counted) b->counts->read_bytes += c.bytes, b->counts->read_sectors += c.bytes / 32;
    if (bar->bytes < 0)
        ptx_fail(b, w, c.x, "%lld bytes more arrive than the mbarrier expects", -(long long)bar->bytes);
    else
        settle(b, bar);
}

static void begin_bulk(ptx_block *b, ptx_warp *w, ptx_bulk c, uint32_t align)
{
    int          lane = c.thread % LANES;
    ptx_barrier *bar = barrier_at(b, w, c.x, lane, c.barrier);
    if (!bar) return;
    if (!bar->fenced)
        ptx_fail(b, w, c.x, "no fence is between the mbarrier's init and this");
    else if (b->n_bulk == MOST_BULK)
        ptx_fail(b, w, c.x, "too many bulk copies are in flight");
    else if (c.to % align || c.bytes % CHUNK || c.bytes == 0 || c.from % CHUNK)
        ptx_fail(b, w, c.x, "%u bytes from 0x%llx to %u of shared memory: not aligned to %u", c.bytes,
                 (unsigned long long)c.from, c.to - SHARED_FIRST, align);
    if (b->failed) return;
    c.clock = ++b->time.now;
    if (!each_chunk(b, &c, false)) return;
    b->bulk[b->n_bulk++] = c;
    if (b->order->eager) land(b, b->n_bulk - 1);
}

static bool read_map(ptx_block *b, ptx_warp *w, const ptx_instruction *x, uint64_t at, uint8_t map[128])
{
    uint64_t offset = at - PARAM_BASE;
    bool     parameter = offset < 65536;
    if (at % 64) return ptx_fail(b, w, x, "the tensor map's address is not a multiple of 64");
    const uint8_t *p = parameter ? NULL : machine_at(b->memory, at, 128);
    if (parameter && offset + 128 <= (uint64_t)b->kernel->parameter_bytes) p = b->parameters + offset;
    tensor_map m = { 0 };
    if (p) memcpy(map, p, 128), memcpy(&m, p, sizeof m);
    return (p && m.magic == 'T') || ptx_fail(b, w, x, "there is no tensor map at 0x%llx", (unsigned long long)at);
}

PTX_HANDLER(bulk_tensor)
{
    u64 to[LANES], map[LANES], bar[LANES];
    ptx_addresses(w, &x->o[0], to);
    ptx_addresses(w, &x->o[1], map);
    ptx_addresses(w, &x->o[2], bar);
    for (u32 left = on; left && !b->failed; left &= left - 1) {
        int        i = ptx_first(left), rank = x->o[1].count;
        tensor_map m;
        ptx_bulk   c = {
              .to = (uint32_t)to[i], .barrier = (uint32_t)bar[i], .thread = w->number * LANES + i, .x = x, .tensor = true
        };
        if (!read_map(b, w, x, map[i], c.map)) return;
        memcpy(&m, c.map, sizeof m);
        if (rank != m.rank || rank != x->picks[0] + 2) {
            ptx_fail(b, w, x, "%d coordinates in a tensor of %d dimensions", rank, m.rank);
            return;
        }
        c.bytes = m.element;
        for (int k = 0; k < rank; k++) {
            c.coordinates[k] = (int32_t)w->file[b->module->list[x->o[1].first + k] + i];
            c.bytes *= c.bytes > SHARED_MOST ? 1 : m.box[k];
        }
        begin_bulk(b, w, c, 128u << m.swizzle);
    }
}

PTX_HANDLER(bulk_plain)
{
    u64 to[LANES], from[LANES], bar[LANES];
    ptx_addresses(w, &x->o[0], to);
    ptx_addresses(w, &x->o[1], from);
    ptx_addresses(w, &x->o[3], bar);
    for (u32 left = on; left && !b->failed; left &= left - 1) {
        int i = ptx_first(left);
        begin_bulk(b, w,
                   (ptx_bulk){ .to = (uint32_t)to[i],
                               .barrier = (uint32_t)bar[i],
                               .thread = w->number * LANES + i,
                               .x = x,
                               .from = from[i],
                               .bytes = w->file[x->o[2].at + i] },
                   CHUNK);
    }
}

/* Somebody looks: what this phase waits for lands now. */
PTX_HANDLER(try_wait)
{
    u64 at[LANES];
    u32 done = 0;
    ptx_addresses(w, &x->o[1], at);
    for (u32 left = on; left; left &= left - 1) {
        int          i = ptx_first(left);
        ptx_barrier *bar = barrier_at(b, w, x, i, (uint32_t)at[i]);
        if (!bar) return;
        uint32_t parity = w->file[x->o[2].at + i] & 1;
        for (int k = b->n_bulk - 1; k >= 0 && bar->phase % 2 == parity; k--) {
            if (k >= b->n_bulk || b->bulk[k].barrier != bar->at) continue;
            land(b, k);
            if (b->failed) return;
        }
        w->looked_at = (int)(bar - b->barriers);
        if (bar->phase % 2 == parity) continue;
        done |= (u32)1 << i;
        w->learned = true;
        machine_clocks_learn(&b->time, (uint32_t)(w->number * LANES + i), bar->done);
    }
    u32 *d = &w->file[x->o[0].at];
    *d = (*d & ~on) | done;
    if (done != on) w->spun = true;
}

/* --- cp.async: a lane's own copies, in groups */

PTX_HANDLER(async_copy)
{
    u64      to[LANES], from[LANES];
    u32      copied = 0;
    uint32_t bytes = (uint32_t)x->o[2].offset, unit = b->kernel->unit;
    ptx_addresses(w, &x->o[0], to);
    ptx_addresses(w, &x->o[1], from);
    for (u32 left = on; left; left &= left - 1) {
        int      i = ptx_first(left);
        ptx_copy c = { from[i], (uint32_t)to[i], bytes, bytes, w->copy_group[i], i };
        if (x->n > 3) c.some = w->file[x->o[3].at + i];
        if (bytes != CHUNK || (c.some != 0 && c.some != bytes)) {
            ptx_fail(b, w, x, "a copy of %u of %u bytes is not modelled", c.some, bytes);
            return;
        }
        uint8_t *p = ptx_shared(b, w, x, i, c.to, bytes, MACHINE_WRITE);
        if (!p || (c.some && !ptx_global(b, w, x, i, c.from, bytes, MACHINE_READ))) return;
        if (b->order->eager) memcpy(p, c.some ? machine_at(b->memory, c.from, bytes) : (uint8_t[CHUNK]){ 0 }, bytes);
        memset(b->owed + (c.to >> unit), 1, bytes >> unit);
        b->n_owed++;
        if (w->n_copies == w->copy_room) {
            w->copy_room = w->copy_room ? 2 * w->copy_room : 256;
            w->copies = realloc(w->copies, (size_t)w->copy_room * sizeof *w->copies);
            if (!w->copies) abort();
        }
        w->copies[w->n_copies++] = c;
        copied |= (u32)(c.some != 0) << i;
    }
    if (b->counted) machine_count_access(b->counts, b->memory, from, copied, bytes, 32, false);
}

PTX_HANDLER(async_commit)
{
    for (u32 left = on; left; left &= left - 1) w->copy_group[ptx_first(left)]++;
}

PTX_HANDLER(async_wait)
{
    int kept = 0, unit = b->kernel->unit;
    for (int k = 0; k < w->n_copies && !b->failed; k++) {
        ptx_copy c = w->copies[k];
        if (!(on >> c.lane & 1) || c.group + (uint64_t)x->o[0].offset >= w->copy_group[c.lane]) {
            w->copies[kept++] = c;
            continue;
        }
        memset(b->owed + (c.to >> unit), 0, c.bytes >> unit);
        b->n_owed--;
        uint8_t *p = ptx_shared(b, w, x, c.lane, c.to, c.bytes, MACHINE_WRITE);
        if (p && !b->order->eager)
            memcpy(p, c.some ? machine_at(b->memory, c.from, c.bytes) : (uint8_t[CHUNK]){ 0 }, c.bytes);
    }
    w->n_copies = kept;
}

/* --- fences */

static void fence_barriers(ptx_block *b, ptx_warp *w, u32 on)
{
    for (int k = 0; k < b->n_barriers; k++)
        for (u32 left = on; left; left &= left - 1)
            b->barriers[k].fenced |= machine_clocks_knows(&b->time, (uint32_t)(w->number * LANES + ptx_first(left)),
                                                          b->barriers[k].thread, b->barriers[k].clock);
}

PTX_HANDLER(fence_proxy)
{
    fence_barriers(b, w, on);
    for (u32 left = on; left; left &= left - 1)
        machine_clocks_fence(&b->time, (uint32_t)(w->number * LANES + ptx_first(left)));
}

PTX_HANDLER(fence_init)
{
    fence_barriers(b, w, on);
}

PTX_HANDLER(set_registers)
{
    int64_t n = x->o[0].offset;
    if (n % 8 || n < 24 || n > 256)
        ptx_fail(b, w, x, "%lld registers: not a multiple of 8 from 24 to 256", (long long)n);
}

/* --- a block's begin and end */

void ptx_async_end(ptx_block *b)
{
    for (int i = 0; i < b->n_warps && !b->failed; i++) {
        ptx_warp *w = &b->warps[i], *first = &b->warps[i / 4 * 4];
        if (b->n_bulk) ptx_fail(b, w, w->at, "the block ends while bulk copies are in flight");
        if (w->n_copies) ptx_fail(b, w, w->at, "the block ends before copies of cp.async have been waited for");
        if (w->n_products) ptx_fail(b, w, w->at, "the block ends while wgmma are in flight");
        if (w->done_products != first->done_products)
            ptx_fail(b, w, w->at, "warps of a warpgroup do not run the same wgmma");
    }
}

#define ASYNC(...) { __VA_ARGS__ },
const ptx_row ptx_async_rows[] = {
#include "machine/ptx.def"
    { 0 }
};
