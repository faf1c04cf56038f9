/* SPDX-License-Identifier: Apache-2.0 */
/* PTX: runs launches: blocks one after the other, a block's warps in turns.
 *
 * Lanes of a warp that are at the same place are a group; the group with the lowest place goes first. An instruction
 * that needs lanes which are elsewhere waits for them; if they can never come, that is an error.
 */
#include "machine/ptx.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_EXECUTED 20000000u /* of warps, in a block */

bool ptx_fail(ptx_block *b, const ptx_warp *w, const ptx_instruction *x, const char *format, ...)
{
    if (b->failed) return false;
    b->failed = true;
    int n = snprintf(b->error, MACHINE_ERROR_ROOM, "%s: ", b->kernel->name);
    if (w)
        n += snprintf(b->error + n, (size_t)(MACHINE_ERROR_ROOM - n), "block %u,%u,%u warp %d: ", b->at[0], b->at[1],
                      b->at[2], w->number);
    if (x)
        n +=
            snprintf(b->error + n, (size_t)(MACHINE_ERROR_ROOM - n), "line %d of the text (%s:%d), '%.120s': ", x->line,
                     b->module->files[x->source_file % FILES], x->source, x->text);
    va_list more;
    va_start(more, format);
    vsnprintf(b->error + n, (size_t)(MACHINE_ERROR_ROOM - n), format, more);
    va_end(more);
    return false;
}

/* --- groups of lanes */

/* The group that goes on; NULL: all look at mbarriers in vain, or the launch has failed. */
static ptx_group *pick(ptx_block *b, ptx_warp *w)
{
    ptx_group *best = NULL;
    bool       spun = false;
    for (int i = 0; i < w->n_groups; i++) {
        ptx_group *g = &w->groups[i];
        spun |= g->spun;
        if (!g->held && !g->spun && (!best || g->pc < best->pc)) best = g;
    }
    if (best) return best;
    for (int i = 0; i < w->n_groups; i++) w->groups[i].spun = false;
    if (!spun) {
        const ptx_instruction *x = &b->module->code[w->groups[0].pc];
        ptx_fail(b, w, x, "lanes that it needs are elsewhere");
    }
    return NULL;
}

/* Groups at the same place become one; empty ones vanish. */
static void merge(ptx_warp *w)
{
    for (int i = 0; i < w->n_groups; i++) {
        ptx_group *g = &w->groups[i];
        for (int j = i + 1; j < w->n_groups; j++) {
            if (w->groups[j].pc != g->pc && w->groups[j].lanes) continue;
            g->lanes |= w->groups[j].lanes;
            if (w->groups[j].lanes) g->held = g->spun = false;
            w->groups[j--] = w->groups[--w->n_groups];
        }
        if (!g->lanes) *g = w->groups[--w->n_groups], i--;
    }
}

/* Are lanes missing that must execute this together? */
static bool incomplete(ptx_block *b, ptx_warp *w, const ptx_instruction *x, u32 on)
{
    if (x->row->flags & SYNC) return (w->alive & ~on) != 0;
    if (!(x->row->flags & MASKED)) return false;
    u32 mask = w->file[x->o[x->n - 1].at + ptx_first(on)];
    if (on & ~mask) ptx_fail(b, w, x, "a lane executes this that its mask 0x%x does not name", (unsigned)mask);
    return (mask & w->alive & ~on) != 0;
}

/* Registers of a wgmma in flight must be left alone. */
static bool check_registers(ptx_block *b, ptx_warp *w, const ptx_instruction *x)
{
    const int *of = b->module->list + x->touched;
    for (int e = 0; e < x->n_touched; e++) {
        if (w->owed[of[e]]) return ptx_fail(b, w, x, "it touches an accumulator of a wgmma that is not waited for");
        if (e >= x->n_written) continue;
        if (w->lent[of[e]]) return ptx_fail(b, w, x, "it overwrites an operand of a wgmma that is not waited for");
        w->dirty[of[e]] = 1;
    }
    return true;
}

/* One instruction of a group. */
static void step(ptx_block *b, ptx_warp *w, ptx_group *g)
{
    if (g->pc >= b->kernel->info.end) {
        ptx_fail(b, w, w->at, "the kernel ends without ret");
        return;
    }
    ptx_instruction *x = &b->module->code[g->pc];
    u32              on = g->lanes;
    if (x->guard >= 0) on &= x->unless ? ~w->file[x->guard] : w->file[x->guard];
    w->at = x;
    if (!on || g->pc == b->skip) {
        g->pc++;
        return;
    }
    if (x->row->flags & (SYNC | MASKED) && incomplete(b, w, x, on)) {
        g->held = true;
        return;
    }
    if (x->n_touched && !(x->row->flags & MATRIX) && !check_registers(b, w, x)) return;
    x->executed++;
    if (b->executed++ > MOST_EXECUTED) ptx_fail(b, w, x, "this does not end");
    if (b->counted) {
        uint64_t lanes = (uint64_t)__builtin_popcount(on);
        b->counts->instructions++;
        b->counts->lanes += lanes;
        b->counts->vector_flops += lanes * (uint64_t)x->row->flops;
    }
    b->group = g;
    if (!(x->row->flags & BRANCH)) g->pc++;
    x->row->run(b, w, x, on);
}

/* Runs a warp for a while; `budget` instructions at most. */
static void run_warp(ptx_block *b, ptx_warp *w, int budget)
{
    while (w->alive && !w->waits && budget-- > 0 && !b->failed) {
        ptx_group *g = w->n_groups == 1 && !w->groups[0].held ? &w->groups[0] : pick(b, w);
        if (g) step(b, w, g);
        if (!g || (w->spun && w->n_groups == 1)) { /* others shall go on */
            w->spins = w->events == b->events ? w->spins + 1 : 1;
            w->events = b->events;
            w->spun = false;
            return;
        }
        g->spun = w->spun;
        w->spun = false;
        if (w->n_groups > 1) merge(w);
    }
}

/* --- control */

PTX_HANDLER(branch)
{
    ptx_group *g = b->group;
    int        to = (int)x->o[0].offset;
    if (on == g->lanes) {
        g->pc = to;
        return;
    }
    g->lanes &= ~on;
    g->pc++;
    w->groups[w->n_groups++] = (ptx_group){ .pc = to, .lanes = on };
}

PTX_HANDLER(leave)
{
    b->group->lanes &= ~on;
    w->alive &= ~on;
    b->events++;
    merge(w);
    for (int i = 0; i < w->n_groups; i++) w->groups[i].held = false;
}

PTX_HANDLER(barrier)
{
    w->waits = true;
    w->barrier = (int)x->o[0].offset;
    w->expected = x->n > 1 ? (uint32_t)x->o[1].offset : 0;
    if (w->barrier < 0 || w->barrier > 15 || w->expected % LANES) ptx_fail(b, w, x, "a barrier that is not modelled");
}

PTX_HANDLER(warp_barrier)
{
    machine_clocks_meet(&b->time, (uint32_t)(w->number * LANES), on, w->learned);
}

#define CONTROL(...) { __VA_ARGS__ },
const ptx_row ptx_control_rows[] = {
#include "machine/ptx.def"
    { 0 }
};

/* --- a block */

/* Everyone has come: what anyone did before is known to all. */
static void pass_barrier(ptx_block *b, int number)
{
    bool all = true;
    for (int i = 0; i < b->n_warps; i++) all &= b->warps[i].waits && b->warps[i].barrier == number;
    uint32_t *clocks = b->scratch;
    memset(clocks, 0, b->time.agents * sizeof *clocks);
    for (int i = 0; i < b->n_warps * LANES && !all; i++)
        if (b->warps[i / LANES].waits && b->warps[i / LANES].barrier == number)
            machine_clocks_publish(&b->time, (uint32_t)i, clocks);
    for (int i = 0; i < b->n_warps; i++) {
        ptx_warp *w = &b->warps[i];
        if (!w->waits || w->barrier != number) continue;
        w->waits = false;
        for (int lane = 0; lane < LANES && !all; lane++)
            machine_clocks_learn(&b->time, (uint32_t)(i * LANES + lane), clocks);
        w->learned = !all;
    }
    b->events++;
    if (all) machine_clocks_barrier(&b->time);
}

/* Lets warps pass whose barrier is complete. */
static bool pass_barriers(ptx_block *b)
{
    bool passed = false;
    for (int i = 0; i < b->n_warps; i++) {
        const ptx_warp *w = &b->warps[i];
        uint32_t        here = 0;
        if (!w->waits) continue;
        for (int k = 0; k < b->n_warps; k++) {
            const ptx_warp *other = &b->warps[k];
            if (!other->waits || other->barrier != w->barrier) continue;
            if (other->expected != w->expected)
                ptx_fail(b, w, w->at, "warps %d and %d expect different numbers of threads", i, k);
            here += k == b->n_warps - 1 && !w->expected ? (uint32_t)(b->threads - k * LANES) : LANES;
        }
        if (here != (w->expected ? w->expected : (uint32_t)b->threads)) continue;
        pass_barrier(b, w->barrier);
        passed = true;
    }
    return passed;
}

/* Nobody can go on: says for what each waits. */
static void name_deadlock(ptx_block *b)
{
    for (int i = 0; i < b->n_warps && !b->failed; i++) {
        const ptx_warp *w = &b->warps[i];
        if (!w->alive) continue;
        if (w->waits) {
            ptx_fail(b, w, w->at, "it waits for warps that end, or wait elsewhere");
            return;
        }
        const ptx_barrier *bar = &b->barriers[w->looked_at];
        ptx_fail(b, w, w->at,
                 "nobody can go on: the mbarrier at %u of shared memory lacks %u of %u arrivals and %lld bytes",
                 bar->at - SHARED_FIRST, bar->pending, bar->expected, (long long)bar->bytes);
    }
}

static bool stuck(const ptx_block *b)
{
    for (int i = 0; i < b->n_warps; i++) {
        const ptx_warp *w = &b->warps[i];
        if (w->alive && !w->waits && (w->spins < 3 || w->events != b->events)) return false;
    }
    return true;
}

static void run_block(ptx_block *b)
{
    int order = b->order->waves;
    for (bool alive = true; alive && !b->failed;) {
        alive = false;
        for (int q = 0; q < b->n_warps && !b->failed; q++) {
            ptx_warp *w = &b->warps[order == 1 ? b->n_warps - 1 - q : q];
            int       budget = 1 << 30;
            if (order > 1) {
                b->seed = b->seed * 1103515245u + 12345u;
                budget = 1 + (int)(b->seed >> 16 & 31);
            }
            run_warp(b, w, budget);
            alive |= w->alive != 0;
        }
        if (b->time.now > MACHINE_LAST_TIME)
            ptx_fail(b, NULL, NULL, "too many events to search for races: run it blind");
        if (alive && !b->failed && !pass_barriers(b) && stuck(b)) name_deadlock(b);
    }
    if (!b->failed) ptx_async_end(b);
}

/* Special registers, in the order of their names (ptx_resolve.c): those that are not the same in every block. */
enum { CTAID_X = 6, CTAID_Z = 8 };

static bool is_of_block(const ptx_constant *of)
{
    return of->special > CTAID_X && of->special <= CTAID_Z + 1;
}

/* A special register of a thread. */
static uint64_t special(const ptx_block *b, int which, uint32_t t)
{
    const uint32_t *n = b->launch->threads, *blocks = b->launch->blocks;
    const uint32_t  all[] = { t % n[0], t / n[0] % n[1], t / n[0] / n[1], n[0],      n[1],      n[2],     b->at[0],
                              b->at[1], b->at[2],        blocks[0],       blocks[1], blocks[2], t % LANES };
    return all[which];
}

/* A constant's or special register's value in all lanes. */
static void set_constant(const ptx_block *b, ptx_warp *w, const ptx_constant *of)
{
    u64     *wide = ptx_place(w, of->at);
    uint64_t v = of->value;
    if (of->predicate) v = v ? ~(uint64_t)0 : 0;
    for (int i = 0; i < LANES; i++) {
        if (of->special) v = special(b, of->special - 1, (uint32_t)(w->number * LANES + i));
        if (of->wide)
            wide[i] = v;
        else
            w->file[of->at + i] = (u32)v;
    }
}

/* Nothing writes a constant behind the registers: it is set once, but where it is of the block. */
static void begin_warp(ptx_block *b, ptx_warp *w)
{
    const ptx_kernel *k = b->kernel;
    int               left = b->threads - w->number * LANES;
    memset(w->file, 0xff, (size_t)k->registers * sizeof *w->file);
    for (int c = 0; c < k->n_constants; c++) {
        const ptx_constant *of = &k->constants[c];
        if (!w->begun || of->at < k->registers || is_of_block(of)) set_constant(b, w, of);
    }
    w->begun = true;
    w->alive = left >= LANES ? ~(u32)0 : ((u32)1 << left) - 1;
    w->n_groups = 1;
    w->groups[0] = (ptx_group){ .pc = k->info.first, .lanes = w->alive };
    w->waits = w->learned = w->fenced = w->spun = false;
    w->n_copies = w->n_products = w->product_group = w->spins = 0;
    w->done_products = 0;
    w->at = NULL;
    memset(w->copy_group, 0, sizeof w->copy_group);
    memset(w->owed, 0, 3 * ((size_t)k->words / LANES));
}

static void begin_block(ptx_block *b)
{
    size_t units = (b->shared_end >> b->kernel->unit) + 16;
    memset(b->shared, 0xff, b->shared_end);
    memset(b->traces, 0, units * sizeof *b->traces);
    memset(b->owed, 0, units);
    memset(b->lent, 0, units);
    b->n_owed = b->n_lent = b->shared_readers.n = b->shared_readers.free = 0;
    b->n_barriers = b->n_bulk = 0;
    b->executed = 0;
    if (machine_clocks_block(&b->time)) {
        machine_memory_launch(b->memory, b->kernel->global_unit);
        b->global_readers.n = b->global_readers.free = 0;
    }
    for (int i = 0; i < b->n_warps; i++) begin_warp(b, &b->warps[i]);
}

/* --- a launch */

static void *room(size_t n, size_t size)
{
    void *got = calloc(n + 1, size);
    if (!got) abort();
    return got;
}

static bool check_launch(ptx_block *b)
{
    const ptx_kernel     *k = b->kernel;
    const machine_launch *l = b->launch;
    uint64_t              threads = (uint64_t)l->threads[0] * l->threads[1] * l->threads[2];
    int64_t               end = SHARED_FIRST + k->info.shared_bytes;
    if (k->info.spilled_bytes)
        return ptx_fail(b, NULL, NULL, "keeps %d bytes of each thread in local memory", k->info.spilled_bytes);
    if (!threads || threads > 1024 || (k->max_threads && threads > (uint64_t)k->max_threads))
        return ptx_fail(b, NULL, NULL, "%llu threads in a block", (unsigned long long)threads);
    if (!l->blocks[0] || !l->blocks[1] || !l->blocks[2]) return ptx_fail(b, NULL, NULL, "no blocks");
    if (l->argument_bytes != (size_t)k->parameter_bytes)
        return ptx_fail(b, NULL, NULL, "%zu bytes of arguments: its parameters have %d", l->argument_bytes,
                        k->parameter_bytes);
    if (k->dynamic_at >= 0) end = k->dynamic_at;
    end += l->dynamic_shared;
    if (end - SHARED_FIRST > SHARED_MOST)
        return ptx_fail(b, NULL, NULL, "%lld bytes of shared memory", (long long)end - SHARED_FIRST);
    b->shared_end = (uint32_t)end;
    b->threads = (int)threads;
    b->n_warps = (b->threads + LANES - 1) / LANES;
    return true;
}

static void make(ptx_block *b)
{
    size_t   words = (size_t)b->kernel->words, units = (b->shared_end >> b->kernel->unit) + 16;
    uint32_t rows = (uint32_t)(b->n_warps * LANES), agents = (uint32_t)(b->threads + b->n_warps + 1);
    machine_clocks_make(&b->time, rows, agents > rows ? agents : rows + 1);
    b->warps = room((size_t)b->n_warps, sizeof *b->warps);
    for (int i = 0; i < b->n_warps; i++) {
        ptx_warp *w = &b->warps[i];
        w->number = i;
        w->file = aligned_alloc(64, (words + 2 * LANES) * sizeof *w->file);
        if (!w->file) abort();
        w->owed = room(3 * (words / LANES), 1);
        w->lent = w->owed + words / LANES;
        w->dirty = w->lent + words / LANES;
    }
    b->parameters = room((size_t)b->kernel->parameter_bytes + 16, 1);
    if (b->launch->argument_bytes) memcpy(b->parameters, b->launch->arguments, b->launch->argument_bytes);
    b->shared = room(b->shared_end + 64, 1);
    b->traces = room(units, sizeof *b->traces);
    b->owed = room(units, 1);
    b->lent = room(units, 1);
    b->scratch = room(b->time.agents, sizeof *b->scratch);
}

static void unmake(ptx_block *b)
{
    for (int i = 0; i < b->n_warps && b->warps; i++) {
        free(b->warps[i].file);
        free(b->warps[i].owed);
        free(b->warps[i].copies);
    }
    for (int i = 0; i < MOST_BARRIERS; i++) free(b->barriers[i].arriving);
    void *all[] = { b->warps,   b->parameters,        b->shared,           b->traces, b->owed, b->lent,
                    b->scratch, b->shared_readers.of, b->global_readers.of };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    machine_clocks_end(&b->time);
}

static bool run(machine_module *module, machine_memory *memory, const machine_launch *launch,
                const machine_order *order, machine_counts *counts, char error[MACHINE_ERROR_ROOM])
{
    ptx_module *m = (ptx_module *)module;
    ptx_block  *b = room(1, sizeof *b);
    *b = (ptx_block){ .module = m,
                      .memory = memory,
                      .launch = launch,
                      .order = order,
                      .counts = counts,
                      .error = error,
                      .counted = counts != NULL,
                      .time = { .on = !order->blind },
                      .seed = (uint32_t)order->waves,
                      .skip = order->skip };
    for (int i = 0; i < m->n_kernels; i++)
        if (!strcmp(m->kernels[i].name, launch->kernel)) b->kernel = &m->kernels[i];
    error[0] = 0;
    if (!b->kernel) {
        snprintf(error, MACHINE_ERROR_ROOM, "there is no kernel %s", launch->kernel);
        b->failed = true;
    } else if (check_launch(b)) {
        make(b);
        machine_memory_launch(memory, b->kernel->global_unit);
        const uint32_t *n = launch->blocks;
        for (uint64_t i = 0; i < (uint64_t)n[0] * n[1] * n[2] && !b->failed; i++) {
            b->at[0] = (uint32_t)(i % n[0]);
            b->at[1] = (uint32_t)(i / n[0] % n[1]);
            b->at[2] = (uint32_t)(i / n[0] / n[1]);
            begin_block(b);
            run_block(b);
        }
    }
    bool fine = !b->failed;
    unmake(b);
    free(b);
    return fine;
}

/* --- what else machine.h asks */

static void unload(machine_module *module)
{
    ptx_module *m = (ptx_module *)module;
    for (int i = 0; i < m->n; i++) free(m->code[i].text);
    for (int i = 0; i < m->n_kernels; i++) {
        free(m->kernels[i].name);
        free(m->kernels[i].constants);
    }
    free(m->kernels);
    free(m->code);
    free(m->list);
    free(m);
}

static int kernels(const machine_module *module)
{
    return ((const ptx_module *)module)->n_kernels;
}

static const machine_kernel *kernel_at(const machine_module *module, int i)
{
    return &((const ptx_module *)module)->kernels[i].info;
}

static machine_instruction instruction_at(const machine_module *module, int at)
{
    const ptx_module      *m = (const ptx_module *)module;
    const ptx_instruction *x = &m->code[at];
    return (machine_instruction){ x->text, x->line, m->files[x->source_file % FILES], x->source, x->executed };
}

static int find(const machine_module *module, int from, int end)
{
    const ptx_module *m = (const ptx_module *)module;
    for (int at = from; at < end && at < m->n; at++)
        if (m->code[at].row->flags & ORDERS) return at;
    return -1;
}

static bool loosen(machine_module *module, int at, int count, int by)
{
    ptx_instruction *x = &((ptx_module *)module)->code[at];
    if (count || !strstr(x->row->pattern, "wait_group")) return false;
    x->o[0].offset += by;
    return true;
}

const machine_interpreter ptx_interpreter = { unload, run, kernels, kernel_at, instruction_at, find, loosen, NULL };
