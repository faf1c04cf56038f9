/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/passes/units.h"

#include "base/text.h"
#include "graph/blocks.h"
#include "op/attrs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements that a share is a multiple of; that a parameter begins at. */
static int64_t share_step(tm_dtype dtype)
{
    return tm_dtype_blocked(dtype) ? TM_NF4_GROUP : 16;
}

static int64_t round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

/* Elements of a unit that a parameter takes. */
static int64_t room_of(const tm_unit *unit, int64_t count)
{
    bool parts = tm_dtype_bits(unit->dtype) % 8 != 0 || tm_dtype_blocked(unit->dtype); /* of bytes, of groups */
    return parts ? round_up(count, share_step(unit->dtype)) : count;
}

/* --- which parameters make a unit --------------------------------------------------------------------------------- */

/* Parameters outside of the blocks that are used in front of them. */
static bool *find_early(const tm_graph *graph, const tm_segment *of)
{
    bool *early = tm_alloc(graph->n_tensors * sizeof *early);
    memset(early, 0, graph->n_tensors * sizeof *early);
    for (size_t x = 0; x < of->n_nodes && of->nodes[x].layer < 0; x++)
        for (int i = 0; i < TM_MAX_IN; i++)
            if (of->nodes[x].in[i] != TM_NONE) early[tm_graph_base(graph, of->nodes[x].in[i])] = true;
    return early;
}

static unsigned cut_axes(const tm_tensor *parameter)
{
    return parameter->cut ? parameter->cut->axes : 0;
}

static const tm_unit_group *group_for(const tm_units *units, const tm_tensor *parameter)
{
    return tm_units_experts(cut_axes(parameter)) ? &units->experts : &units->group;
}

static bool belongs(const tm_units *units, const tm_tensor *tensor)
{
    if (tensor->role != TM_ROLE_PARAMETER) return false;
    bool shared = units->sharing == TM_SHARE_ALL && group_for(units, tensor)->ranks > 1;
    return tensor->gradient != TM_NONE || (shared && !tensor->trained);
}

tm_dtype tm_units_rounds(const tm_graph *graph, const tm_node *node, int i)
{
    const tm_tensor *y = node->out[0] == TM_NONE ? NULL : tm_graph_at(graph, node->out[0]);
    if (node->rounded >> i & 1U) return graph->precision->compute;
    if (node->op == TM_OP_cast && y->role == TM_ROLE_WEIGHT_COPY) return y->dtype;
    if (node->op == TM_OP_embedding && i == 1 && node->in[2] == TM_NONE) return y->dtype; /* rows as they are */
    return TM_DTYPE_COUNT;
}

/* The formats in which the weights of units travel, by parameter: that of the computation where all that is there of
 * them begins with a rounding to it. */
static tm_dtype *find_gathered(const tm_graph *graph, const tm_units *units)
{
    tm_dtype  compute = graph->precision->compute;
    tm_dtype *gathered = tm_alloc(graph->n_tensors * sizeof *gathered);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        tm_dtype held = graph->tensors[i].dtype;
        bool     less = units->sharing == TM_SHARE_ALL && !units->as_held && held == TM_F32 && compute == TM_BF16;
        gathered[i] = less ? compute : held;
    }
    for (size_t s = 0; s < graph->n_segments; s++)
        for (size_t x = 0; x < graph->segments[s]->n_nodes; x++)
            for (int i = 0; i < TM_MAX_IN; i++) {
                const tm_node *node = &graph->segments[s]->nodes[x];
                if (node->in[i] == TM_NONE || tm_units_rounds(graph, node, i) == compute) continue;
                tm_tensor_id id = tm_graph_base(graph, node->in[i]);
                gathered[id] = graph->tensors[id].dtype;
            }
    return gathered;
}

static tm_unit *unit_for(tm_graph *graph, tm_units *units, const tm_tensor *parameter, bool early, tm_dtype gathered)
{
    const tm_unit_group *group = group_for(units, parameter);
    bool                 trained = parameter->gradient != TM_NONE;
    tm_dtype             gradient = trained ? tm_graph_at(graph, parameter->gradient)->dtype : TM_DTYPE_COUNT;
    int                  layer = parameter->layer >= 0 ? parameter->layer : early ? -1 : INT32_MAX;
    size_t               at = 0;
    for (size_t u = 0; u < units->n_units; u++) {
        tm_unit *unit = &units->units[u];
        if (unit->layer == layer && unit->dtype == parameter->dtype && unit->gradient_dtype == gradient &&
            unit->gathered == gathered && unit->group.axes == group->axes && unit->group.data == group->data)
            return unit;
        if (unit->layer <= layer) at = u + 1;
    }
    units->units = tm_grow(units->units, &units->capacity, units->n_units, sizeof *units->units);
    memmove(units->units + at + 1, units->units + at, (units->n_units - at) * sizeof *units->units);
    units->n_units++;
    tm_unit *unit = &units->units[at];
    *unit = (tm_unit){ .layer = layer,
                       .dtype = parameter->dtype,
                       .gradient_dtype = gradient,
                       .gathered = gathered,
                       .weights = TM_NONE,
                       .gradients = TM_NONE };
    unit->group = *group;
    unit->sharing = group->ranks > 1 ? units->sharing : TM_SHARE_COPIES;
    unit->name = layer < 0            ? "the embedding"
                 : layer == INT32_MAX ? "the head"
                                      : tm_arena_format(graph->arena, "layer %d", layer);
    if (group == &units->experts) unit->name = tm_arena_format(graph->arena, "experts of %s", unit->name);
    return unit;
}

static bool same_run(const tm_tensor *a, const tm_tensor *b)
{
    return a->sums == b->sums && cut_axes(a) == cut_axes(b) && a->twin == b->twin;
}

/* Members in runs: a member goes behind the last of its kind. Most units are one run. */
static void order_members(tm_graph *graph, tm_unit *unit)
{
    tm_unit_member *ordered = tm_alloc(unit->n_members * sizeof *ordered);
    bool           *taken = tm_alloc(unit->n_members * sizeof *taken);
    size_t          n = 0;
    int64_t         first = 0;
    memset(taken, 0, unit->n_members * sizeof *taken);
    unit->runs = tm_arena_take(graph->arena, unit->n_members * sizeof *unit->runs);
    for (size_t m = 0; m < unit->n_members; m++) {
        const tm_tensor *kind = tm_graph_at(graph, unit->members[m].parameter);
        if (taken[m]) continue;
        tm_unit_run *run = &unit->runs[unit->n_runs++];
        *run = (tm_unit_run){ .sums = kind->sums, .cut = cut_axes(kind), .first = first, .twin = kind->twin };
        for (size_t k = m; k < unit->n_members; k++) {
            if (taken[k] || !same_run(kind, tm_graph_at(graph, unit->members[k].parameter))) continue;
            taken[k] = true;
            ordered[n] = unit->members[k];
            ordered[n].first = first;
            first += room_of(unit, ordered[n++].count);
        }
        run->count = first - run->first;
    }
    memcpy(unit->members, ordered, n * sizeof *ordered);
    free(ordered);
    free(taken);
}

static void measure_unit(tm_graph *graph, tm_unit *unit)
{
    int64_t ranks = unit->group.ranks;
    order_members(graph, unit);
    unit->share = round_up((unit->used + ranks - 1) / ranks, share_step(unit->dtype));
    unit->elements = unit->share * ranks;
    tm_unit_run *last = &unit->runs[unit->n_runs - 1];
    last->count = unit->elements - last->first;
}

void tm_units_find(tm_graph *graph, const tm_segment *of, tm_units *units)
{
    bool     *early = find_early(graph, of);
    tm_dtype *gathered = find_gathered(graph, units);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *tensor = &graph->tensors[i];
        if (!belongs(units, tensor)) continue;
        tm_unit *unit = unit_for(graph, units, tensor, early[i], gathered[i]);
        int64_t  count = tm_shape_elements(tensor->shape);
        unit->members = tm_grow(unit->members, &unit->capacity, unit->n_members, sizeof *unit->members);
        unit->members[unit->n_members++] = (tm_unit_member){ (tm_tensor_id)i, tensor->gradient, unit->used, count, -1 };
        unit->used += room_of(unit, count);
    }
    for (size_t u = 0; u < units->n_units; u++) measure_unit(graph, &units->units[u]);
    free(early);
    free(gathered);
}

void tm_units_fini(tm_units *units)
{
    for (size_t u = 0; u < units->n_units; u++) free(units->units[u].members);
    free(units->units);
    units->units = NULL;
    units->n_units = units->capacity = 0;
}

bool tm_units_own(const tm_unit *unit, const tm_unit_member *member, int64_t *begin, int64_t *end)
{
    int64_t from = unit->group.rank * unit->share - member->first, to = from + unit->share;
    *begin = from > 0 ? from : 0;
    *end = to < member->count ? to : member->count;
    return *begin < *end;
}

/* --- places ------------------------------------------------------------------------------------------------------- */

void tm_units_pack(tm_graph *graph, tm_tensor_id flat, const tm_tensor_id *ids, size_t n)
{
    int64_t first = 0;
    for (size_t i = 0; i < n; i++) {
        tm_tensor *member = tm_graph_at(graph, ids[i]);
        TM_ASSERT(member->base == TM_NONE && member->dtype == tm_graph_at(graph, flat)->dtype);
        TM_ASSERT(tm_role_persistent(member->role));
        for (size_t v = 0; v < graph->n_tensors; v++) {
            if (graph->tensors[v].base != ids[i]) continue;
            graph->tensors[v].base = flat;
            graph->tensors[v].offset += first;
        }
        member->base = flat;
        member->offset = first;
        first += tm_shape_elements(member->shape);
    }
    TM_ASSERT(first <= tm_shape_elements(tm_graph_at(graph, flat)->shape));
}

static void pack_unit(tm_graph *graph, const tm_unit *unit, bool gradients)
{
    tm_tensor_id *ids = tm_alloc(unit->n_members * sizeof *ids);
    for (size_t m = 0; m < unit->n_members; m++)
        ids[m] = gradients ? unit->members[m].gradient : unit->members[m].parameter;
    tm_units_pack(graph, gradients ? unit->gradients : unit->weights, ids, unit->n_members);
    free(ids);
}

void tm_units_settle(tm_graph *graph, const tm_units *units)
{
    for (size_t u = 0; u < units->n_units; u++) {
        const tm_unit *unit = &units->units[u];
        if (unit->sharing < TM_SHARE_GRADIENTS) pack_unit(graph, unit, true);
        if (unit->sharing == TM_SHARE_OPTIMIZER || unit->sharing == TM_SHARE_GRADIENTS) pack_unit(graph, unit, false);
    }
}

/* A flat tensor for the weights or gradients of a unit, all of them or this rank's share. */
static tm_tensor_id flat_of(tm_graph *graph, const tm_unit *unit, bool gradients, bool share)
{
    const char *name = tm_arena_format(graph->arena, "%s%s of %s", share ? "share of " : "",
                                       gradients ? "gradients" : "weights", unit->name);
    int         layer = graph->layer;
    graph->layer = tm_graph_at(graph, unit->members[0].parameter)->layer;
    tm_tensor_id flat = tm_graph_tensor_as(graph, name, gradients ? TM_ROLE_GRADIENT : TM_ROLE_UNIT,
                                           tm_shape_1(share ? unit->share : unit->elements),
                                           gradients ? unit->gradient_dtype : unit->dtype);
    graph->layer = layer;
    return flat;
}

/* This rank's part; the members have no memory of their own any more. */
static tm_tensor_id share_unit(tm_graph *graph, const tm_unit *unit, bool gradients)
{
    tm_tensor_id flat = flat_of(graph, unit, gradients, true);
    for (size_t m = 0; m < unit->n_members; m++) {
        tm_tensor_id id = gradients ? unit->members[m].gradient : unit->members[m].parameter;
        tm_shared   *shared = tm_arena_take(graph->arena, sizeof *shared);
        *shared = (tm_shared){ .flat = flat,
                               .like = id,
                               .first = unit->members[m].first,
                               .share = unit->share,
                               .axes = unit->group.axes,
                               .rank = unit->group.rank,
                               .ranks = unit->group.ranks };
        tm_graph_at(graph, id)->shared = shared;
    }
    return flat;
}

void tm_units_place(tm_graph *graph, tm_units *units)
{
    for (size_t u = 0; u < units->n_units; u++) {
        tm_unit *unit = &units->units[u];
        int64_t  own = unit->group.rank * unit->share;
        if (tm_units_trained(unit) && unit->sharing >= TM_SHARE_GRADIENTS) {
            unit->gradients = share_unit(graph, unit, true);
            unit->gradients_first = own;
        } else if (tm_units_trained(unit)) {
            unit->gradients = flat_of(graph, unit, true, false);
        }
        if (unit->sharing == TM_SHARE_ALL) {
            unit->weights = share_unit(graph, unit, false);
            unit->weights_first = own;
        } else if (unit->sharing != TM_SHARE_COPIES) {
            unit->weights = flat_of(graph, unit, false, false);
        }
    }
}

/* --- collectives -------------------------------------------------------------------------------------------------- */

tm_tensor_id tm_units_call(tm_graph *graph, tm_op_id op, unsigned axes, int ranks, const char *what, tm_tensor_id from,
                           tm_tensor_id to, bool add)
{
    tm_group_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axes = axes;
    attr.ranks = ranks;
    snprintf(attr.what, sizeof attr.what, "%s", what);
    tm_tensor_id in[TM_MAX_IN] = { from }, out[TM_MAX_OUT] = { to };
    tm_graph_add(graph, op, &attr, sizeof attr, in, out, add ? 1 : 0);
    return out[0];
}

void tm_units_sum(tm_graph *graph, const tm_units *units, const tm_unit *unit, tm_tensor_id whole, int64_t first)
{
    for (size_t i = 0; i < unit->n_runs; i++) {
        const tm_unit_run *run = &unit->runs[i];
        int                ranks = tm_units_size(units, run->sums);
        if (run->sums == 0 || ranks == 1) continue;
        const char  *name = tm_graph_at(graph, whole)->name;
        tm_tensor_id part = tm_graph_run(graph, name, whole, run->first - first, tm_shape_1(run->count));
        tm_units_call(graph, TM_OP_all_reduce, run->sums, ranks, name, part, part, false);
    }
}
