/* SPDX-License-Identifier: Apache-2.0 */
/* device/load.c - a plan is loaded: addresses are bound, kernels prepared, equal calls sharing what was prepared. */
#include "base/arena.h"
#include "base/hash.h"
#include "device/backend.h"

#include <stdlib.h>
#include <string.h>

/* All that preparing may depend on. */
typedef struct {
    const tm_kernel *kernel;
    const tm_op     *op;
    int              threads;
    struct {
        tm_dtype dtype;
        tm_shape shape;
        int64_t  ld;
    } views[TM_MAX_IN + TM_MAX_OUT];
    char attr[TM_MAX_ATTR];
} identity;

typedef struct {
    identity         key;
    uint64_t         hash;
    const tm_kernel *kernel;
    void            *state;
} prepared;

struct tm_loaded {
    tm_device   *device;
    prepared    *all;
    size_t       count, room;
    tm_played   *bound;
    size_t       n_bound;
    tm_instant **instants; /* behind instructions that other streams wait for */
    size_t       n_instants, instants_room;
};

static void identify(const tm_instruction *instruction, identity *key)
{
    const tm_call *call = &instruction->call;
    memset(key, 0, sizeof *key); /* the gaps too: it is hashed and compared as bytes */
    key->kernel = instruction->kernel;
    key->op = call->op;
    key->threads = call->threads;
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        const tm_view *view = i < TM_MAX_IN ? &call->in[i] : &call->out[i - TM_MAX_IN];
        key->views[i].shape.rank = view->shape.rank;
        if (!tm_view_present(view)) continue;
        key->views[i].dtype = view->dtype;
        key->views[i].ld = tm_view_ld(view);
        for (int k = 0; k < view->shape.rank; k++) key->views[i].shape.n[k] = view->shape.n[k];
    }
    TM_ASSERT(instruction->node->attr_bytes <= sizeof key->attr);
    if (instruction->node->attr_bytes) memcpy(key->attr, call->attr, instruction->node->attr_bytes);
}

static tm_status prepare(tm_loaded *loaded, tm_instruction *instruction, tm_error *err)
{
    identity key;
    identify(instruction, &key);
    uint64_t hash = tm_hash(&key, sizeof key);
    for (size_t i = 0; i < loaded->count; i++)
        if (loaded->all[i].hash == hash && memcmp(&loaded->all[i].key, &key, sizeof key) == 0) {
            instruction->call.state = loaded->all[i].state;
            return TM_OK;
        }
    if (loaded->count == loaded->room) {
        loaded->room = loaded->room ? 2 * loaded->room : 64;
        loaded->all = tm_realloc(loaded->all, loaded->room * sizeof *loaded->all);
    }
    void     *state = NULL;
    tm_status st = instruction->kernel->prepare(loaded->device, &instruction->call, &state, err);
    if (st != TM_OK) {
        if (state && instruction->kernel->release) instruction->kernel->release(state);
        return st;
    }
    prepared *own = &loaded->all[loaded->count++];
    memcpy(&own->key, &key, sizeof key);
    own->hash = hash;
    own->kernel = instruction->kernel;
    own->state = state;
    instruction->call.state = state;
    return TM_OK;
}

static tm_status take_instant(tm_loaded *loaded, tm_instruction *instruction, tm_error *err)
{
    tm_instant *instant;
    TM_TRY(loaded->device->backend->instant_open(loaded->device, &instant, err));
    if (loaded->n_instants == loaded->instants_room) {
        loaded->instants_room = loaded->instants_room ? 2 * loaded->instants_room : 64;
        loaded->instants = tm_realloc(loaded->instants, loaded->instants_room * sizeof(tm_instant *));
    }
    loaded->instants[loaded->n_instants++] = instant;
    instruction->done = instant;
    return TM_OK;
}

static tm_status load_program(tm_loaded *loaded, const tm_program *program, tm_error *err)
{
    for (size_t x = 0; x < program->count; x++) {
        tm_instruction *instruction = &program->instructions[x];
        instruction->call.queue = loaded->device->queues[instruction->stream];
        if (instruction->awaited) TM_TRY(take_instant(loaded, instruction, err));
        instruction->line = tm_ledger_line(instruction);
        if (instruction->kernel->prepare) TM_TRY(prepare(loaded, instruction, err));
    }
    return TM_OK;
}

static tm_status bind_part(tm_device *device, const tm_program *program, tm_part *part, tm_error *err)
{
    TM_TRY(device->backend->bind(device, err));
    tm_status st = tm_device_queue(device, program, part->from, part->to, NULL, err);
    tm_error  ignored = { 0 }; /* what failed first counts */
    tm_status ended = device->backend->bound(device, &part->work, st == TM_OK ? err : &ignored);
    return st == TM_OK ? ended : st;
}

/* What follows one another and needs the host, or does not, is a part. */
static tm_status bind_program(tm_loaded *loaded, tm_program *program, tm_error *err)
{
    tm_played *played = &loaded->bound[loaded->n_bound];
    size_t     n = program->count;
    program->bound = NULL;
    if (n == 0) return TM_OK;
    *played = (tm_played){ .parts = tm_alloc(n * sizeof(tm_part)) };
    loaded->n_bound++;
    for (size_t from = 0, to; from < n; from = to) {
        bool host = program->instructions[from].kernel->host;
        for (to = from + 1; to < n && program->instructions[to].kernel->host == host;) to++;
        tm_part *part = &played->parts[played->n++];
        *part = (tm_part){ .from = from, .to = to };
        if (!host) TM_TRY(bind_part(loaded->device, program, part, err));
    }
    program->bound = played;
    return TM_OK;
}

static void unbind_program(const tm_device *device, tm_played *played)
{
    for (size_t k = 0; k < played->n; k++)
        if (played->parts[k].work) device->backend->unbind(played->parts[k].work);
    free(played->parts);
}

/* Compiles what kernels have noted, then binds the programs of every slot. */
static tm_status complete(tm_loaded *loaded, const tm_plan *plan, tm_error *err)
{
    const tm_backend *backend = loaded->device->backend;
    size_t            n = plan->n_programs, slots = plan->in_slot ? (size_t)plan->graph->slots : 0;
    if (backend->prepared) TM_TRY(backend->prepared(loaded->device, err));
    if (!backend->bind) return TM_OK;
    loaded->bound = tm_alloc((1 + slots) * n * sizeof(tm_played));
    for (size_t p = 0; p < n; p++) TM_TRY(bind_program(loaded, &plan->programs[p], err));
    for (size_t k = 0; k < slots * n; k++) TM_TRY(bind_program(loaded, &plan->in_slot[k], err));
    return TM_OK;
}

tm_status tm_device_load(tm_device *device, tm_plan *plan, const tm_arenas *memory, tm_loaded **out, tm_error *err)
{
    TM_TRY(tm_device_ready(device, err));
    tm_loaded *loaded = tm_alloc(sizeof *loaded);
    tm_status  st = TM_OK;
    tm_error   own = { 0 };
    loaded->device = device;
    tm_plan_bind(plan, memory);
    for (size_t p = 0; p < plan->n_programs && st == TM_OK; p++) st = load_program(loaded, &plan->programs[p], &own);
    for (size_t k = 0; plan->in_slot && k < (size_t)plan->graph->slots * plan->n_programs && st == TM_OK; k++)
        st = load_program(loaded, &plan->in_slot[k], &own);
    if (st == TM_OK) st = complete(loaded, plan, &own);
    if (st != TM_OK) {
        tm_device_unload(loaded);
        return tm_device_noted(device, st, &own, err);
    }
    *out = loaded;
    return TM_OK;
}

void tm_device_unload(tm_loaded *loaded)
{
    if (!loaded) return;
    for (size_t i = 0; i < loaded->n_bound; i++) unbind_program(loaded->device, &loaded->bound[i]);
    free(loaded->bound);
    for (size_t i = loaded->count; i-- > 0;)
        if (loaded->all[i].kernel->release) loaded->all[i].kernel->release(loaded->all[i].state);
    for (size_t i = 0; i < loaded->n_instants; i++) loaded->device->backend->instant_close(loaded->instants[i]);
    free(loaded->instants);
    free(loaded->all);
    free(loaded);
}
