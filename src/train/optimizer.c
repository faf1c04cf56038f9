/* SPDX-License-Identifier: Apache-2.0 */
#include "train/optimizer.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

static const tm_optimizer *const rows[] = {
#define TM_OPTIMIZER(id, name) &tm_optimizer_##id,
#include "train/optimizers.def"
#undef TM_OPTIMIZER
};
enum { ROWS = sizeof rows / sizeof rows[0] };

const tm_optimizer *tm_optimizer_at(int i)
{
    return i >= 0 && i < ROWS ? rows[i] : NULL;
}

const tm_optimizer *tm_optimizer_find(const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (tm_names_equal(rows[i]->name, name)) return rows[i];
    return NULL;
}

bool tm_optimizer_reads(const tm_optimizer *optimizer, const char *key)
{
    size_t length = strlen(key);
    for (const char *p = optimizer->keys; *p;) {
        size_t n = strcspn(p, ",");
        if (n == length && strncmp(p, key, n) == 0) return true;
        p += n + (p[n] == ',');
    }
    return false;
}

double tm_hyper_decay(const tm_hyper *hyper, tm_shape parameter)
{
    return hyper->decay_matrices_only && parameter.rank < 2 ? 0 : hyper->weight_decay;
}

void tm_optimizer_add(tm_graph *graph, const tm_optimizer *optimizer, const tm_hyper *hyper, tm_update update)
{
    tm_tensor          of = *tm_graph_at(graph, update.parameter);
    tm_hyper           own = *hyper;
    tm_optimizer_state states[TM_MAX_STATES];
    int                n = optimizer->states(hyper, of.shape, states);
    char               name[200];
    graph->layer = of.layer;
    for (int k = 0; k < TM_MAX_STATES; k++) update.states[k] = TM_NONE;
    for (int k = 0; k < n; k++) {
        tm_dtype dtype = states[k].wide ? graph->precision->wide : graph->precision->moment;
        snprintf(name, sizeof name, "%s.%s", of.name, states[k].name);
        update.states[k] = tm_graph_tensor_as(graph, name, TM_ROLE_MOMENT, states[k].shape, dtype);
    }
    own.weight_decay = tm_hyper_decay(hyper, of.shape);
    optimizer->emit(graph, &own, &update);
}

tm_tensor_id tm_optimizer_state_of(const tm_graph *graph, tm_tensor_id parameter, const char *name)
{
    const char *owner = tm_graph_at(graph, parameter)->name;
    size_t      n = strlen(owner);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *tensor = &graph->tensors[i];
        if (tensor->role == TM_ROLE_MOMENT && strncmp(tensor->name, owner, n) == 0 && tensor->name[n] == '.' &&
            strcmp(tensor->name + n + 1, name) == 0)
            return (tm_tensor_id)i;
    }
    return TM_NONE;
}
