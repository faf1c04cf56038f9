/* SPDX-License-Identifier: Apache-2.0 */
#include "train/step/owner_update.h"

#include "base/arena.h"

#include <stdlib.h>

bool owner_update_wanted(const tm_step_options *options)
{
    return !options->optimizer->elementwise;
}

bool owner_update_is(const tm_unit *unit)
{
    return tm_units_trained(unit) && unit->members[0].owner >= 0;
}

/* --- who updates what --------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const tm_unit_member *x = *(tm_unit_member *const *)a, *y = *(tm_unit_member *const *)b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return x->parameter < y->parameter ? -1 : 1;
}

/* Those of units that the same ranks share. */
static void deal_group(tm_units *units, const tm_unit_group *group)
{
    size_t           n = 0, most = 0;
    int64_t         *load = tm_alloc((size_t)group->ranks * sizeof *load);
    tm_unit_member **all;
    for (size_t u = 0; u < units->n_units; u++) most += units->units[u].n_members;
    all = tm_alloc((most + 1) * sizeof *all);
    for (size_t u = 0; u < units->n_units; u++) {
        tm_unit *unit = &units->units[u];
        if (!tm_units_trained(unit) || unit->group.axes != group->axes) continue;
        for (size_t m = 0; m < unit->n_members; m++) all[n++] = &unit->members[m];
    }
    qsort(all, n, sizeof *all, by_size);
    for (size_t i = 0; i < n; i++) {
        int least = 0;
        for (int r = 1; r < group->ranks; r++)
            if (load[r] < load[least]) least = r;
        all[i]->owner = least;
        load[least] += all[i]->count;
    }
    free(load);
    free(all);
}

void owner_update_assign(tm_units *units)
{
    if (units->sharing == TM_SHARE_COPIES) return;
    if (units->group.ranks > 1) deal_group(units, &units->group);
    if (units->experts.ranks > 1 && units->experts.axes != units->group.axes) deal_group(units, &units->experts);
}

/* --- the update --------------------------------------------------------------------------------------------------- */

static tm_tensor_id gathered(tm_graph *graph, const tm_unit *unit, tm_tensor_id share, tm_role role)
{
    const tm_tensor of = *tm_graph_at(graph, share);
    tm_tensor_id    whole = tm_graph_tensor_as(graph, of.name, role, tm_shape_1(unit->elements), of.dtype);
    return tm_units_call(graph, TM_OP_all_gather, unit->group.axes, unit->group.ranks, of.name, share, whole, false);
}

/* A member in a whole unit. */
static tm_tensor_id member_in(tm_graph *graph, tm_tensor_id whole, const tm_unit_member *member, tm_tensor_id like)
{
    const tm_tensor of = *tm_graph_at(graph, like);
    tm_tensor_id    id = tm_graph_run(graph, of.name, whole, member->first, of.shape);
    tm_tensor      *view = tm_graph_at(graph, id);
    view->layer = of.layer;
    view->pieces = of.pieces;
    view->n_pieces = of.n_pieces;
    view->cut = of.cut;
    return id;
}

/* Moments of a tensor that this rank has alone. */
static void mark_states(tm_graph *graph, size_t from, const tm_unit *unit, const tm_unit_member *member)
{
    for (size_t i = from; i < graph->n_tensors; i++) {
        tm_tensor *tensor = &graph->tensors[i];
        if (tensor->role != TM_ROLE_MOMENT) continue;
        bool       alike = tm_shape_equal(tensor->shape, tm_graph_at(graph, member->parameter)->shape);
        tm_shared *shared = tm_arena_take(graph->arena, sizeof *shared);
        *shared = (tm_shared){ .flat = TM_NONE,
                               .like = alike ? member->parameter : (tm_tensor_id)i,
                               .axes = unit->group.axes };
        tensor->shared = shared;
        tensor->twin = tm_graph_at(graph, member->parameter)->twin;
    }
}

static void update_member(tm_step *step, const tm_unit *unit, const tm_unit_member *member, tm_tensor_id weights,
                          tm_tensor_id gradients)
{
    tm_graph *graph = step->graph;
    int       group = step->group_of[member->parameter];
    if (member->owner != unit->group.rank) {
        tm_units_clear(graph, weights, member->first, member->first + member->count);
        return;
    }
    tm_update update = { .parameter = member_in(graph, weights, member, member->parameter),
                         .gradient = member_in(graph, gradients, member, member->gradient),
                         .scalars = step->group_scalars[group],
                         .clip = step->clip };
    size_t    n = graph->n_tensors;
    tm_optimizer_add(graph, step->options.optimizer, &step->options.groups[group].hyper, update);
    mark_states(graph, n, unit, member);
}

void owner_update_emit(tm_step *step, const tm_unit *unit)
{
    tm_graph    *graph = step->graph;
    const int    layer = unit->layer < INT32_MAX ? unit->layer : -1;
    bool         all = unit->sharing == TM_SHARE_ALL;
    tm_tensor_id gradients = unit->gradients, weights = unit->weights;
    graph->layer = layer;
    if (unit->sharing >= TM_SHARE_GRADIENTS) gradients = gathered(graph, unit, gradients, TM_ROLE_PARTIAL);
    if (all) weights = gathered(graph, unit, weights, TM_ROLE_WEIGHT_COPY);
    for (size_t m = 0; m < unit->n_members; m++) update_member(step, unit, &unit->members[m], weights, gradients);
    graph->layer = layer;
    tm_units_call(graph, all ? TM_OP_reduce_scatter : TM_OP_all_reduce, unit->group.axes, unit->group.ranks,
                  tm_graph_at(graph, unit->weights)->name, weights, unit->weights, false);
}
