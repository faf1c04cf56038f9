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
    tm_device *device;
    prepared  *all;
    size_t     count, room;
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
    void *state = NULL;
    TM_TRY(instruction->kernel->prepare(loaded->device, &instruction->call, &state, err));
    prepared *own = &loaded->all[loaded->count++];
    memcpy(&own->key, &key, sizeof key);
    own->hash = hash;
    own->kernel = instruction->kernel;
    own->state = state;
    instruction->call.state = state;
    return TM_OK;
}

static tm_status load_program(tm_loaded *loaded, const tm_program *program, tm_error *err)
{
    for (size_t x = 0; x < program->count; x++) {
        tm_instruction *instruction = &program->instructions[x];
        instruction->call.queue = loaded->device->queue;
        instruction->line = tm_ledger_line(instruction);
        if (instruction->kernel->prepare) TM_TRY(prepare(loaded, instruction, err));
    }
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
    for (size_t i = loaded->count; i-- > 0;)
        if (loaded->all[i].kernel->release) loaded->all[i].kernel->release(loaded->all[i].state);
    free(loaded->all);
    free(loaded);
}
