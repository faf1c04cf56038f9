/* SPDX-License-Identifier: Apache-2.0 */
/* AMD's machine code as a module of machine.h: kernels' arguments, waves, blocks, launches. */
#include "machine/gcn.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const char *file_of(const gcn_module *m, const instruction *x)
{
    return x->source_file < FILES && *m->files[x->source_file] ? m->files[x->source_file] : "no source";
}

bool gcn_fail(wave *w, const instruction *x, const char *format, ...)
{
    run        *r = w->r;
    gcn_module *m = r->module;
    char        told[300];
    va_list     list;
    if (r->failed) return false;
    va_start(list, format);
    vsnprintf(told, sizeof told, format, list);
    va_end(list);
    r->failed = true;
    return gcn_refuse(m, "%s, line %d (%s:%d): %s: %s", r->k->name, x->line, file_of(m, x), x->source_line, x->text,
                      told);
}

/* --- waves --------------------------------------------------------------------------------------- */

/* The first register of x that a load still owes; -1: none. */
static inline int owed_register(const wave *w, const instruction *x)
{
    for (int i = 0; i < (VECTORS + SCALARS) / 64; i++) {
        u64 both = x->touched.bits[i] & w->owed.bits[i];
        if (both) return 64 * i + __builtin_ctzll(both);
    }
    return -1;
}

static bool has_register(const operand *o, int at)
{
    int from = o->at + (o->kind == SCALAR ? VECTORS : 0);
    return (o->kind == VECTOR || o->kind == SCALAR) && at >= from && at < from + o->count;
}

/* Is `at` loaded by what is under way? */
static bool is_loaded(const queue *q, int at)
{
    for (int i = 0; i < q->count; i++) {
        const instruction *x = q->of[(q->first + i) % OUTSTANDING].x;
        if (x->row->kind <= LOAD && has_register(&x->o[0], at)) return true;
    }
    return false;
}

/* Loads of global memory write their registers in the order of their issue: a later one may take the register of one
 * that is under way (LLVM, SIInsertWaitcnts.cpp: a write behind a write needs no wait if both are of one type of VMEM).
 */
static bool loads_in_order(const wave *w, const instruction *x)
{
    if (x->row->kind != LOAD) return false;
    for (int at = 0; at < VECTORS + SCALARS; at++) {
        if (!((x->touched.bits[at / 64] & w->owed.bits[at / 64]) >> at % 64 & 1)) continue;
        bool other = !has_register(&x->o[0], at) || !is_loaded(&w->vm, at);
        for (int i = 1; i < x->n; i++) other = other || has_register(&x->o[i], at);
        if (other) return false;
    }
    return true;
}

static bool fail_owed(wave *w, const instruction *x, int at)
{
    char kind = at >= VECTORS ? 's' : at >= ACCUMULATORS ? 'a' : 'v';
    int  number = at >= VECTORS ? at - VECTORS : at % ACCUMULATORS;
    return gcn_fail(w, x, "%c%d before the wait for what loads it", kind, number);
}

/* Runs a wave until a barrier, its end, an error, or for `most` instructions. */
static void run_wave(wave *w, int most)
{
    run           *r = w->r;
    gcn_module    *m = r->module;
    machine_counts none, *counts = r->counts ? r->counts : &none;
    for (; most; most--) {
        instruction *x = &m->code[w->pc];
        bool         ended = w->pc >= r->k->told.end;
        int          owed = ended || w->vm.count + w->lgkm.count == 0 ? -1 : owed_register(w, x);
        if (ended) gcn_fail(w, &m->code[r->k->told.end - 1], "the wave ran past its end");
        if (w->pc++ == r->order->skip) continue;
        if (owed >= 0 && !loads_in_order(w, x)) fail_owed(w, x, owed);
        if (r->failed) return;
        u64 lanes = (u64)__builtin_popcountll(scalar_pair(w, EXEC));
        x->executed++;
        counts->instructions++;
        counts->lanes += lanes;
        counts->vector_flops += lanes * x->row->flops;
        if (!x->row->step(w, x)) return;
    }
}

static void start_wave(run *r, int number, const u32 *block, const machine_launch *launch)
{
    wave      *w = &r->waves[number];
    const u32 *size = launch->threads, threads = size[0] * size[1] * size[2];
    memset(w->v, 0xff, (size_t)r->k->told.registers * sizeof w->v[0]);
    memset(w->v[ACCUMULATORS], 0xff, (size_t)r->k->told.accumulators * sizeof w->v[0]);
    memset(w->s, 0xff, sizeof w->s);
    memset(&w->owed, 0, sizeof w->owed);
    memset(w->scratch, 0xff, (size_t)r->k->told.spilled_bytes / 4 * sizeof w->scratch[0]);
    w->vm.count = w->lgkm.count = w->vm.first = w->lgkm.first = w->scalar_loads = 0;
    w->at_barrier = w->ended = false;
    w->r = r;
    w->number = number;
    w->pc = r->k->told.first;
    w->scc = 1;
    set_scalar_pair(w, 0, r->arguments);
    for (int d = 0, s = 2; d < 3; d++)
        if (r->k->group_ids[d]) w->s[s++] = block[d];
    u32 left = threads - (u32)(number * LANES);
    w->all = left >= LANES ? ~(u64)0 : ((u64)1 << left) - 1;
    set_scalar_pair(w, EXEC, w->all);
    for (u32 i = 0; i < LANES; i++) {
        u32 t = (u32)(number * LANES) + i;
        w->v[0][i] = t % size[0] | (t / size[0] % size[1]) << 10 | (t / size[0] / size[1]) << 20;
    }
}

/* --- blocks -------------------------------------------------------------------------------------- */

/* All waves that have not ended wait: the barrier is over, unless some have. */
static bool open_barrier(run *r)
{
    wave *waiting = NULL, *ended = NULL;
    for (int i = 0; i < r->n_waves; i++) *(r->waves[i].ended ? &ended : &waiting) = &r->waves[i];
    const instruction *x = &r->module->code[waiting->pc - 1];
    if (ended)
        return gcn_fail(waiting, x, "wave %d ended while wave %d waits at a barrier", ended->number, waiting->number);
    for (int i = 0; i < r->n_waves; i++) r->waves[i].at_barrier = false;
    r->epoch++;
    r->shadow.epoch++;
    return true;
}

static bool run_block(run *r, const u32 *block, const machine_launch *launch, u32 *random)
{
    int order = r->order->waves;
    r->group_epoch = ++r->epoch;
    machine_shadow_clear(&r->shadow, r->lds_bytes);
    memset(r->lds, 0xff, r->lds_bytes);
    for (int i = 0; i < r->n_waves; i++) start_wave(r, i, block, launch);
    for (int left = r->n_waves; left;) {
        int waiting = 0;
        left = 0;
        for (int i = 0; i < r->n_waves; i++) {
            wave *w = &r->waves[order == 1 ? r->n_waves - 1 - i : i];
            *random = *random * 1103515245u + 12345u;
            if (!w->ended && !w->at_barrier) run_wave(w, order > 1 ? 1 + (int)(*random >> 16 & 31) : -1);
            if (r->failed) return false;
            waiting += w->at_barrier;
            left += !w->ended;
        }
        if (left && waiting == left && !open_barrier(r)) return false;
    }
    return true;
}

/* --- arguments ----------------------------------------------------------------------------------- */

/* A hidden argument's value; false: this interpreter has none. */
static bool hidden_value(const machine_launch *l, const char *kind, u64 *value)
{
    static const u32 zero[3];
    const struct {
        const char *prefix;
        const u32  *of;
    } known[] = { { "hidden_block_count_", l->blocks },
                  { "hidden_group_size_", l->threads },
                  { "hidden_remainder_", zero },
                  { "hidden_global_offset_", zero } };
    for (int i = 0; i < 4; i++) {
        size_t n = strlen(known[i].prefix);
        if (strncmp(kind, known[i].prefix, n) || !strchr("xyz", kind[n])) continue;
        *value = known[i].of[kind[n] - 'x'];
        return true;
    }
    *value = l->blocks[2] * l->threads[2] > 1 ? 3 : l->blocks[1] * l->threads[1] > 1 ? 2 : 1;
    return strcmp(kind, "hidden_grid_dims") == 0;
}

/* Places the arguments; what no argument covers stays 0xff. Compilers may read up to the next 16 bytes. */
static bool place_arguments(run *r, const machine_launch *l)
{
    kernel *k = r->k;
    size_t  wanted = 0;
    for (int i = 0; i < k->n_arguments; i++) {
        const argument *a = &k->arguments[i];
        size_t          end = (size_t)(a->offset + a->size);
        if (strncmp(a->kind, "hidden_", 7) && end > wanted) wanted = end;
    }
    if (l->argument_bytes != wanted)
        return gcn_refuse(r->module, "%s: %zu bytes of arguments, it takes %zu", k->name, l->argument_bytes, wanted);
    r->arguments = machine_alloc(r->memory, ((u64)k->argument_bytes + 15) / 16 * 16 + (k->argument_bytes ? 0 : 16));
    r->declared = calloc((size_t)k->argument_bytes + 64, 1);
    u8 *at = machine_at(r->memory, r->arguments, 1);
    for (int i = 0; i < k->n_arguments; i++) {
        const argument *a = &k->arguments[i];
        u64             value;
        if (strncmp(a->kind, "hidden_", 7))
            memcpy(at + a->offset, (const u8 *)l->arguments + a->offset, (size_t)a->size);
        else if (hidden_value(l, a->kind, &value))
            memcpy(at + a->offset, &value, (size_t)a->size);
        else
            continue;
        memset(r->declared + a->offset, 1, (size_t)a->size);
    }
    return true;
}

/* --- launches ------------------------------------------------------------------------------------ */

static bool fits(run *r, const machine_launch *l)
{
    const kernel *k = r->k;
    u64 threads = (u64)l->threads[0] * l->threads[1] * l->threads[2], most = r->module->gfx950 ? 163840 : 65536;
    if (threads == 0 || l->blocks[0] == 0 || l->blocks[1] == 0 || l->blocks[2] == 0)
        return gcn_refuse(r->module, "%s: nothing to run", k->name);
    if (threads > (u64)k->most_threads)
        return gcn_refuse(r->module, "%s: %d threads a block at most, not %d", k->name, k->most_threads, (int)threads);
    if (k->told.spilled_bytes && !getenv("TM_MACHINE_SPILLS"))
        return gcn_refuse(r->module, "%s: %d bytes of scratch (spilled registers, arrays)", k->name,
                          k->told.spilled_bytes);
    if (r->lds_bytes > most)
        return gcn_refuse(r->module, "%s: %u bytes of LDS, there are %d", k->name, r->lds_bytes, (int)most);
    r->n_waves = (int)((threads + LANES - 1) / LANES);
    return true;
}

static bool run_blocks(run *r, const machine_launch *l)
{
    u32 random = (u32)r->order->waves, block[3];
    for (block[2] = 0; block[2] < l->blocks[2]; block[2]++)
        for (block[1] = 0; block[1] < l->blocks[1]; block[1]++)
            for (block[0] = 0; block[0] < l->blocks[0]; block[0]++)
                if (!run_block(r, block, l, &random)) return false;
    return true;
}

/* Memory that is not cleared: most of it will not be touched. */
static void *take(size_t bytes)
{
    void *got = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!got) abort();
    return got;
}

static bool run_launch(machine_module *module, machine_memory *memory, const machine_launch *l,
                       const machine_order *order, machine_counts *counts, char error[MACHINE_ERROR_ROOM])
{
    gcn_module *m = (gcn_module *)module;
    run         r = { m, gcn_kernel_named(m, l->kernel), memory, order, counts, .epoch = 1 };
    m->error = error;
    error[0] = 0;
    if (!r.k) return gcn_refuse(m, "no kernel %s", l->kernel);
    r.lds_bytes = (u32)r.k->told.shared_bytes + l->dynamic_shared;
    if (!fits(&r, l)) return false;
    machine_memory_launch(memory, r.k->global_shift);
    r.lds = take(r.lds_bytes);
    machine_shadow_begin(&r.shadow, r.lds_bytes, r.k->lds_shift);
    r.waves = take((size_t)r.n_waves * sizeof *r.waves);
    pending *room = take((size_t)r.n_waves * 2 * OUTSTANDING * sizeof *room);
    size_t   words = (size_t)r.k->told.spilled_bytes / 4;
    u32(*scratch)[LANES] = take((size_t)r.n_waves * words * sizeof *scratch);
    for (int i = 0; i < r.n_waves; i++) {
        r.waves[i].vm.of = room + (2 * i) * OUTSTANDING;
        r.waves[i].lgkm.of = room + (2 * i + 1) * OUTSTANDING;
        r.waves[i].scratch = scratch + (size_t)i * words;
    }
    bool well = place_arguments(&r, l);
    well = well && run_blocks(&r, l);
    if (r.arguments) machine_release(memory, r.arguments);
    machine_shadow_end(&r.shadow);
    void *const taken[] = { r.lds, r.waves, room, scratch, r.declared };
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) free(taken[i]);
    return well;
}

/* --- modules ------------------------------------------------------------------------------------- */

static void unload(machine_module *module)
{
    gcn_module *m = (gcn_module *)module;
    for (int i = 0; i < m->n_kernels; i++) free(m->kernels[i].arguments);
    free(m->labels);
    free(m->kernels);
    free(m->code);
    free(m->text);
    free(m);
}

static int kernels(const machine_module *module)
{
    return ((const gcn_module *)module)->n_kernels;
}

static const machine_kernel *kernel_at(const machine_module *module, int i)
{
    return &((const gcn_module *)module)->kernels[i].told;
}

static machine_instruction instruction_at(const machine_module *module, int at)
{
    const gcn_module  *m = (const gcn_module *)module;
    const instruction *x = &m->code[at];
    return (machine_instruction){ x->text, x->line, file_of(m, x), x->source_line, x->executed };
}

static int find(const machine_module *module, int from, int end)
{
    const gcn_module *m = (const gcn_module *)module;
    for (; from < end; from++)
        if (m->code[from].row->takes & ORDERS) return from;
    return -1;
}

static bool loosen(machine_module *module, int at, int count, int by)
{
    instruction *x = &((gcn_module *)module)->code[at];
    int         *of = count ? &x->lgkmcnt : &x->vmcnt;
    if (*of < 0) return false;
    *of += by;
    return true;
}

static const machine_interpreter gcn = { unload,         run_launch, kernels, kernel_at,
                                         instruction_at, find,       loosen,  gcn_needless };

machine_module *machine_load_gcn(const char *text, char error[MACHINE_ERROR_ROOM])
{
    gcn_module *m = calloc(1, sizeof *m);
    if (!m) abort();
    m->head.interpreter = &gcn;
    m->text = strdup(text);
    m->error = error;
    error[0] = 0;
    if (gcn_read_text(m)) return &m->head;
    unload(&m->head);
    return NULL;
}
