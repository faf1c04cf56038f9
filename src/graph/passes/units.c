/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/passes/units.h"

#include "base/text.h"
#include "op/attrs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNED = 16 }; /* elements that a share is a multiple of */

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

static tm_unit *unit_for(tm_graph *graph, tm_units *units, const tm_tensor *parameter, bool early)
{
    const tm_unit_group *group = tm_units_experts(cut_axes(parameter)) ? &units->experts : &units->group;
    tm_dtype             gradient = tm_graph_at(graph, parameter->gradient)->dtype;
    int                  layer = parameter->layer >= 0 ? parameter->layer : early ? -1 : INT32_MAX;
    size_t               at = 0;
    for (size_t u = 0; u < units->n_units; u++) {
        tm_unit *unit = &units->units[u];
        if (unit->layer == layer && unit->dtype == parameter->dtype && unit->gradient_dtype == gradient &&
            unit->group.axes == group->axes && unit->group.data == group->data)
            return unit;
        if (unit->layer <= layer) at = u + 1;
    }
    units->units = tm_grow(units->units, &units->capacity, units->n_units, sizeof *units->units);
    memmove(units->units + at + 1, units->units + at, (units->n_units - at) * sizeof *units->units);
    units->n_units++;
    tm_unit *unit = &units->units[at];
    *unit = (tm_unit){
        .layer = layer, .dtype = parameter->dtype, .gradient_dtype = gradient, .weights = TM_NONE, .gradients = TM_NONE
    };
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
            first += ordered[n++].count;
        }
        run->count = first - run->first;
    }
    memcpy(unit->members, ordered, n * sizeof *ordered);
    free(ordered);
    free(taken);
}

void tm_units_find(tm_graph *graph, const tm_segment *of, tm_units *units)
{
    bool *early = find_early(graph, of);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *tensor = &graph->tensors[i];
        if (tensor->role != TM_ROLE_PARAMETER || tensor->gradient == TM_NONE) continue;
        tm_unit *unit = unit_for(graph, units, tensor, early[i]);
        int64_t  count = tm_shape_elements(tensor->shape);
        unit->members = tm_grow(unit->members, &unit->capacity, unit->n_members, sizeof *unit->members);
        unit->members[unit->n_members++] = (tm_unit_member){ (tm_tensor_id)i, tensor->gradient, unit->used, count };
        unit->used += count;
    }
    for (size_t u = 0; u < units->n_units; u++) {
        tm_unit *unit = &units->units[u];
        int64_t  ranks = unit->group.ranks, each = (unit->used + ranks - 1) / ranks;
        order_members(graph, unit);
        unit->share = (each + ALIGNED - 1) / ALIGNED * ALIGNED;
        unit->elements = unit->share * ranks;
        tm_unit_run *last = &unit->runs[unit->n_runs - 1];
        last->count = unit->elements - last->first;
    }
    free(early);
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
        if (unit->sharing >= TM_SHARE_GRADIENTS) {
            unit->gradients = share_unit(graph, unit, true);
            unit->gradients_first = own;
        } else {
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

/* --- segments ----------------------------------------------------------------------------------------------------- */

/* Where a tensor lies in a unit. */
typedef struct {
    int32_t unit, member; /* -1: in none */
} spot;

/* A time during which the weights of a unit are there. */
typedef struct {
    int32_t      unit;
    size_t       first, last; /* nodes that use them */
    tm_tensor_id whole;
} stay;

/* The gradients of a unit in the segment. */
typedef struct {
    size_t       first, last; /* nodes that write or read them */
    bool         any;
    tm_tensor_id whole;
    bool        *written; /* (members) */
} sums;

typedef struct {
    tm_graph       *graph;
    const tm_units *units;
    spot           *weights, *gradients; /* (n_tensors at the beginning) */
    size_t          n;
    stay           *stays;
    size_t          n_stays, stays_capacity;
    int32_t        *current; /* (units) the stay that holds its weights now */
    sums           *sums;    /* (units) */
    bool            add;
} rewriter;

static spot spot_of(const rewriter *r, const spot *spots, tm_tensor_id id)
{
    if (id == TM_NONE) return (spot){ -1, -1 };
    id = tm_graph_base(r->graph, id);
    return (size_t)id < r->n ? spots[id] : (spot){ -1, -1 };
}

static void note_spots(rewriter *r)
{
    for (size_t i = 0; i < r->n; i++) r->weights[i] = r->gradients[i] = (spot){ -1, -1 };
    for (size_t u = 0; u < r->units->n_units; u++)
        for (size_t m = 0; m < r->units->units[u].n_members; m++) {
            const tm_unit_member *member = &r->units->units[u].members[m];
            spot                  at = { (int32_t)u, (int32_t)m };
            if (r->units->units[u].sharing < TM_SHARE_GRADIENTS) continue;
            if (r->units->units[u].sharing == TM_SHARE_ALL) r->weights[member->parameter] = at;
            r->gradients[member->gradient] = at;
        }
}

/* A unit that was used before goes on if no other was used meanwhile; without resharding in any case. */
static void note_use(rewriter *r, int32_t unit, size_t x, int32_t *latest)
{
    int32_t at = r->current[unit];
    bool    goes_on = at >= 0 && (!r->units->reshard || *latest == unit);
    if (!goes_on) {
        r->stays = tm_grow(r->stays, &r->stays_capacity, r->n_stays, sizeof *r->stays);
        r->current[unit] = at = (int32_t)r->n_stays;
        r->stays[r->n_stays++] = (stay){ .unit = unit, .first = x, .whole = TM_NONE };
    }
    r->stays[at].last = x;
    *latest = unit;
}

static void note_sum(rewriter *r, spot at, size_t x, bool writes)
{
    sums *s = &r->sums[at.unit];
    if (!s->any) s->first = x;
    s->any = true;
    s->last = x;
    if (writes) s->written[at.member] = true;
}

static void look_through(rewriter *r, const tm_segment *segment)
{
    int32_t latest = -1;
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        for (int i = 0; i < TM_MAX_IN; i++) {
            spot w = spot_of(r, r->weights, node->in[i]), g = spot_of(r, r->gradients, node->in[i]);
            if (w.unit >= 0) note_use(r, w.unit, x, &latest);
            if (g.unit >= 0) note_sum(r, g, x, false);
        }
        for (int k = 0; k < TM_MAX_OUT; k++) {
            spot g = spot_of(r, r->gradients, node->out[k]);
            if (g.unit >= 0) note_sum(r, g, x, true);
        }
    }
}

/* What stands for a tensor of a unit in the whole unit `flat`. */
static tm_tensor_id stand_in(tm_graph *graph, tm_tensor_id id, const tm_unit_member *member, tm_tensor_id flat)
{
    tm_tensor    of = *tm_graph_at(graph, id);
    int64_t      first = member->first + (of.base == TM_NONE ? 0 : of.offset);
    tm_tensor    base = *tm_graph_at(graph, flat);
    tm_tensor_id made = tm_graph_tensor_as(graph, of.name, base.role, of.shape, of.dtype);
    tm_tensor   *view = tm_graph_at(graph, made);
    view->layer = of.layer;
    view->base = flat;
    view->offset = first;
    view->ld = of.ld;
    return made;
}

static void gather(rewriter *r, stay *s, const tm_node *user)
{
    tm_graph      *graph = r->graph;
    const tm_unit *unit = &r->units->units[s->unit];
    graph->phase = user->phase;
    graph->layer = user->layer;
    graph->module = tm_arena_format(graph->arena, "weights of %s", unit->name);
    s->whole = tm_graph_tensor_as(graph, graph->module, TM_ROLE_WEIGHT_COPY, tm_shape_1(unit->elements), unit->dtype);
    tm_units_call(graph, TM_OP_all_gather, unit->group.axes, unit->group.ranks, graph->module, unit->weights, s->whole,
                  false);
}

/* Zeros in elements [from, to) of the sums of a unit. */
static void clear(tm_graph *graph, tm_tensor_id whole, int64_t from, int64_t to)
{
    tm_fill_attr zero = { .value = 0 };
    if (from >= to) return;
    tm_tensor_id in[TM_MAX_IN] = { TM_NONE };
    tm_tensor_id out[TM_MAX_OUT] = { tm_graph_run(graph, "rest", whole, from, tm_shape_2(1, to - from)) };
    tm_graph_add(graph, TM_OP_fill, &zero, sizeof zero, in, out, 0);
}

static void reduce(rewriter *r, const tm_unit *unit, const sums *s, const tm_node *user)
{
    tm_graph *graph = r->graph;
    graph->phase = user->phase;
    graph->layer = user->layer;
    graph->module = tm_arena_format(graph->arena, "gradients of %s", unit->name);
    for (size_t m = 0; m < unit->n_members; m++)
        if (!s->written[m])
            clear(graph, s->whole, unit->members[m].first, unit->members[m].first + unit->members[m].count);
    clear(graph, s->whole, unit->used, unit->elements);
    tm_units_sum(graph, r->units, unit, s->whole, 0);
    tm_units_call(graph, TM_OP_reduce_scatter, unit->group.axes, unit->group.ranks, graph->module, s->whole,
                  unit->gradients, r->add);
}

/* The first thing that a program does with a gradient replaces what is there: it is a sum of this program alone. */
static void begin_sum(tm_graph *graph, tm_node *node, int k, tm_tensor_id gradient)
{
    if (node->op == TM_OP_add && node->in[0] == gradient) { /* sum = sum + value */
        node->op = TM_OP_cast;
        node->in[0] = node->in[1];
        node->in[1] = TM_NONE;
    }
    for (int i = 0; i < TM_MAX_IN; i++)
        TM_ASSERT(node->in[i] == TM_NONE || tm_graph_base(graph, node->in[i]) != gradient);
    node->accumulate &= ~(1U << k);
}

static tm_node rewritten(rewriter *r, tm_node node, bool **begun)
{
    for (int k = 0; k < TM_MAX_OUT; k++) {
        spot g = spot_of(r, r->gradients, node.out[k]);
        if (g.unit < 0 || begun[g.unit][g.member]) continue;
        begun[g.unit][g.member] = true;
        begin_sum(r->graph, &node, k, r->units->units[g.unit].members[g.member].gradient);
    }
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        tm_tensor_id *id = i < TM_MAX_IN ? &node.in[i] : &node.out[i - TM_MAX_IN];
        spot          w = spot_of(r, r->weights, *id), g = spot_of(r, r->gradients, *id);
        if (w.unit >= 0)
            *id =
                stand_in(r->graph, *id, &r->units->units[w.unit].members[w.member], r->stays[r->current[w.unit]].whole);
        else if (g.unit >= 0)
            *id = stand_in(r->graph, *id, &r->units->units[g.unit].members[g.member], r->sums[g.unit].whole);
    }
    return node;
}

static void begin_sums(rewriter *r, const tm_segment *old, size_t x)
{
    for (size_t u = 0; u < r->units->n_units; u++) {
        const tm_unit *unit = &r->units->units[u];
        if (!r->sums[u].any || r->sums[u].first != x) continue;
        r->graph->layer = old->nodes[x].layer;
        r->sums[u].whole = tm_graph_tensor_as(r->graph, tm_arena_format(r->graph->arena, "gradients of %s", unit->name),
                                              TM_ROLE_PARTIAL, tm_shape_1(unit->elements), unit->gradient_dtype);
    }
}

static void append(tm_segment *segment, const tm_node *node)
{
    segment->nodes = tm_grow(segment->nodes, &segment->capacity, segment->n_nodes, sizeof *segment->nodes);
    segment->nodes[segment->n_nodes++] = *node;
}

/* The nodes of `old` into the current segment, with collectives between them. */
static void write_anew(rewriter *r, const tm_segment *old, bool **begun)
{
    tm_graph *graph = r->graph;
    size_t    gathered = 0, entered = 0;
    for (size_t x = 0; x < old->n_nodes; x++) {
        while (entered < r->n_stays && r->stays[entered].first <= x) { /* those ahead of the ones in use */
            size_t until = entered + 1 + (size_t)r->units->prefetch;
            for (; gathered < until && gathered < r->n_stays; gathered++)
                gather(r, &r->stays[gathered], &old->nodes[r->stays[gathered].first]);
            r->current[r->stays[entered].unit] = (int32_t)entered;
            entered++;
        }
        begin_sums(r, old, x);
        tm_node node = rewritten(r, old->nodes[x], begun);
        append(graph->segment, &node);
        for (size_t u = 0; u < r->units->n_units; u++)
            if (r->sums[u].any && r->sums[u].last == x) reduce(r, &r->units->units[u], &r->sums[u], &old->nodes[x]);
    }
}

void tm_units_pass(tm_graph *graph, const tm_units *units, bool add)
{
    if (units->sharing < TM_SHARE_GRADIENTS) return;
    size_t     n = graph->n_tensors;
    tm_arena  *scratch = tm_arena_create();
    tm_segment old = *graph->segment;
    rewriter   r = { .graph = graph, .units = units, .n = n, .add = add };
    r.weights = tm_arena_take(scratch, n * sizeof *r.weights);
    r.gradients = tm_arena_take(scratch, n * sizeof *r.gradients);
    r.current = tm_arena_take(scratch, units->n_units * sizeof *r.current);
    r.sums = tm_arena_take(scratch, units->n_units * sizeof *r.sums);
    bool **begun = tm_arena_take(scratch, units->n_units * sizeof *begun);
    for (size_t u = 0; u < units->n_units; u++) {
        r.current[u] = -1;
        r.sums[u].written = tm_arena_take(scratch, units->units[u].n_members * sizeof(bool));
        begun[u] = tm_arena_take(scratch, units->units[u].n_members * sizeof(bool));
    }
    note_spots(&r);
    look_through(&r, &old);
    graph->segment->nodes = NULL;
    graph->segment->n_nodes = graph->segment->capacity = 0;
    tm_phase    phase = graph->phase;
    int         layer = graph->layer;
    const char *module = graph->module;
    write_anew(&r, &old, begun);
    graph->phase = phase;
    graph->layer = layer;
    graph->module = module;
    free(old.nodes);
    free(r.stays);
    tm_arena_destroy(scratch);
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

/* The last node of the segment that writes a gradient of the unit; -1: it is not to be reduced there. */
static ptrdiff_t last_write(const tm_graph *graph, const tm_segment *segment, const tm_unit *unit)
{
    ptrdiff_t last = -1;
    for (size_t m = 0; m < unit->n_members; m++) {
        if (tm_graph_at(graph, unit->members[m].parameter)->lookup_gradient != TM_NONE) return -1;
        for (size_t x = 0; x < segment->n_nodes; x++)
            for (int k = 0; k < TM_MAX_OUT; k++) {
                tm_tensor_id out = segment->nodes[x].out[k];
                bool         own = out != TM_NONE && tm_graph_base(graph, out) == unit->members[m].gradient;
                if (own && (ptrdiff_t)x > last) last = (ptrdiff_t)x;
            }
    }
    return last;
}

void tm_units_reduce(tm_graph *graph, tm_units *units)
{
    tm_segment old = *graph->segment;
    ptrdiff_t *last = tm_alloc((units->n_units + 1) * sizeof *last);
    for (size_t u = 0; u < units->n_units; u++) {
        last[u] = tm_units_size(units, units->units[u].group.data) > 1 ? last_write(graph, &old, &units->units[u]) : -1;
        units->units[u].reduced = last[u] >= 0;
    }
    graph->segment->nodes = NULL;
    graph->segment->n_nodes = graph->segment->capacity = 0;
    for (size_t x = 0; x < old.n_nodes; x++) {
        append(graph->segment, &old.nodes[x]);
        for (size_t u = 0; u < units->n_units; u++) {
            if (last[u] != (ptrdiff_t)x) continue;
            const char *what = tm_arena_format(graph->arena, "gradients of %s", units->units[u].name);
            tm_phase    phase = graph->phase;
            graph->phase = old.nodes[x].phase;
            graph->layer = old.nodes[x].layer;
            graph->module = what;
            tm_units_sum(graph, units, &units->units[u], units->units[u].gradients, 0);
            tm_units_call(graph, TM_OP_all_reduce, units->units[u].group.data,
                          tm_units_size(units, units->units[u].group.data), what, units->units[u].gradients,
                          units->units[u].gradients, false);
            graph->phase = phase;
            graph->layer = -1;
            graph->module = "";
        }
    }
    free(old.nodes);
    free(last);
}
