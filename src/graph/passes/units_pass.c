/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/units_pass.c - segments rewritten for units: gathers in front of uses, reductions behind the last
 * gradient. */
#include "graph/passes/units.h"

#include "op/attrs.h"

#include <stdlib.h>
#include <string.h>

/* --- segments ----------------------------------------------------------------------------------------------------- */

/* Where a tensor lies in a unit. */
typedef struct {
    int32_t unit, member; /* -1: in none */
} spot;

/* A time during which the weights of a unit are there. */
typedef struct {
    int32_t      unit;
    size_t       turn;        /* the units of a layer have their turn together */
    size_t       first, last; /* nodes that use them */
    tm_tensor_id whole;
} stay;

/* Turns of layers that were seen. */
typedef struct {
    int    layer; /* of the unit used last */
    bool   any;
    size_t now;
} turns;

/* The gradients of a unit in the segment. */
typedef struct {
    size_t       first, last; /* nodes that write or read them */
    bool         any;
    tm_tensor_id whole;
    bool        *written; /* (members) */
} sums;

/* Elements of a gradient that a node has begun to sum. */
typedef struct {
    spot    at;
    int64_t begin, end;
} begun_run;

typedef struct {
    tm_graph       *graph;
    const tm_units *units;
    spot           *weights, *gradients; /* (n_tensors at the beginning); weights: and what is cast from them */
    size_t          n;
    bool           *dropped; /* (nodes) casts of what travels in the format that they cast to */
    stay           *stays;
    size_t          n_stays, stays_capacity;
    int32_t        *current; /* (units) the stay that holds its weights now */
    sums           *sums;    /* (units) */
    begun_run      *begun;
    size_t          n_begun, begun_capacity;
    bool            add;
    bool           *summed; /* NULL, or (units): others put a sum there before */
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
            if (member->gradient != TM_NONE) r->gradients[member->gradient] = at;
        }
}

/* A unit that was used before goes on if no other layer was used meanwhile; without resharding in any case. */
static void note_use(rewriter *r, int32_t unit, size_t x, turns *seen)
{
    int32_t at = r->current[unit];
    int     layer = r->units->units[unit].layer;
    if (!seen->any || seen->layer != layer) seen->now++;
    seen->any = true;
    seen->layer = layer;
    bool goes_on = at >= 0 && (!r->units->reshard || r->stays[at].turn == seen->now);
    if (!goes_on) {
        r->stays = tm_grow(r->stays, &r->stays_capacity, r->n_stays, sizeof *r->stays);
        r->current[unit] = at = (int32_t)r->n_stays;
        r->stays[r->n_stays++] = (stay){ .unit = unit, .turn = seen->now, .first = x, .whole = TM_NONE };
    }
    r->stays[at].last = x;
}

static void note_sum(rewriter *r, spot at, size_t x, bool writes)
{
    sums *s = &r->sums[at.unit];
    if (!s->any) s->first = x;
    s->any = true;
    s->last = x;
    if (writes) s->written[at.member] = true;
}

/* Does another program read it? (Of stages: gradients of inputs and of weights may share a cast.) */
static bool crosses(const rewriter *r, tm_tensor_id id)
{
    for (size_t s = 0; r->summed && s < r->graph->n_segments; s++) {
        const tm_segment *segment = r->graph->segments[s];
        for (size_t x = 0; segment != r->graph->segment && x < segment->n_nodes; x++)
            for (int i = 0; i < TM_MAX_IN; i++) {
                tm_tensor_id in = segment->nodes[x].in[i];
                if (in != TM_NONE && tm_graph_base(r->graph, in) == id) return true;
            }
    }
    return false;
}

/* A cast to the format in which its operand travels: what it makes stands for the operand. */
static bool drops_cast(rewriter *r, const tm_node *node, spot w)
{
    const tm_unit *unit = &r->units->units[w.unit];
    if (unit->gathered == unit->dtype) return false;
    if (node->op != TM_OP_cast || tm_units_rounds(r->graph, node, 0) != unit->gathered) return false;
    if (crosses(r, node->out[0])) return false;
    TM_ASSERT(tm_graph_at(r->graph, node->in[0])->base == TM_NONE);
    r->weights[node->out[0]] = w;
    return true;
}

static void look_through(rewriter *r, const tm_segment *segment)
{
    turns seen = { .any = false };
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        for (int i = 0; i < TM_MAX_IN; i++) {
            spot w = spot_of(r, r->weights, node->in[i]), g = spot_of(r, r->gradients, node->in[i]);
            if (w.unit >= 0 && i == 0) r->dropped[x] = drops_cast(r, node, w);
            if (w.unit >= 0 && !r->dropped[x]) note_use(r, w.unit, x, &seen);
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
    tm_tensor_id made = tm_graph_tensor_as(graph, of.name, base.role, of.shape, base.dtype);
    tm_tensor   *view = tm_graph_at(graph, made);
    view->layer = of.layer;
    view->base = flat;
    view->offset = first;
    view->ld = of.ld;
    return made;
}

/* This rank's share of the weights of a unit as it travels: cast into its place in the whole, so that nothing else
 * waits for room. */
static tm_tensor_id sent_of(tm_graph *graph, const tm_unit *unit, tm_tensor_id whole)
{
    if (unit->gathered == unit->dtype) return unit->weights;
    tm_tensor_id in[TM_MAX_IN] = { unit->weights }, out[TM_MAX_OUT];
    for (int i = 1; i < TM_MAX_IN; i++) in[i] = TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
    out[0] = tm_graph_run(graph, tm_arena_format(graph->arena, "share of %s", graph->module), whole,
                          unit->group.rank * unit->share, tm_shape_1(unit->share));
    tm_graph_add(graph, TM_OP_cast, NULL, 0, in, out, 0);
    return out[0];
}

static void gather(rewriter *r, stay *s, const tm_node *user)
{
    tm_graph      *graph = r->graph;
    const tm_unit *unit = &r->units->units[s->unit];
    graph->phase = user->phase;
    graph->layer = user->layer;
    graph->module = tm_arena_format(graph->arena, "weights of %s", unit->name);
    s->whole =
        tm_graph_tensor_as(graph, graph->module, TM_ROLE_WEIGHT_COPY, tm_shape_1(unit->elements), unit->gathered);
    tm_tensor_id sent = sent_of(graph, unit, s->whole);
    tm_units_call(graph, TM_OP_all_gather, unit->group.axes, unit->group.ranks, graph->module, sent, s->whole, false);
}

void tm_units_clear(tm_graph *graph, tm_tensor_id whole, int64_t from, int64_t to)
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
            tm_units_clear(graph, s->whole, unit->members[m].first, unit->members[m].first + unit->members[m].count);
    tm_units_clear(graph, s->whole, unit->used, unit->elements);
    tm_units_sum(graph, r->units, unit, s->whole, 0);
    tm_units_call(graph, TM_OP_reduce_scatter, unit->group.axes, unit->group.ranks, graph->module, s->whole,
                  unit->gradients, r->add || (r->summed && r->summed[unit - r->units->units]));
    if (r->summed) r->summed[unit - r->units->units] = true;
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

/* What travels in another format than it is held in is rounded already. */
static void take_gathered(const rewriter *r, tm_node *node, int i, spot w)
{
    const tm_unit *unit = &r->units->units[w.unit];
    if (unit->gathered == unit->dtype) return;
    bool copy = tm_graph_base(r->graph, node->in[i]) != unit->members[w.member].parameter;
    TM_ASSERT(copy || tm_units_rounds(r->graph, node, i) == unit->gathered);
    node->rounded &= ~(1U << i);
}

/* Is this the first writer of what it writes of a gradient? Parts of a fused weight have writers of their own. */
static bool begins(rewriter *r, spot g, tm_tensor_id out)
{
    const tm_tensor *written = tm_graph_at(r->graph, out);
    const tm_tensor *whole = tm_graph_at(r->graph, tm_graph_base(r->graph, out));
    bool             run = written->base != TM_NONE && written->ld == 0;
    begun_run        own = { g, run ? written->offset : 0, tm_shape_elements(run ? written->shape : whole->shape) };
    own.end += own.begin;
    for (size_t i = 0; i < r->n_begun; i++) {
        const begun_run *b = &r->begun[i];
        if (b->at.unit == g.unit && b->at.member == g.member && b->begin < own.end && own.begin < b->end) return false;
    }
    r->begun = tm_grow(r->begun, &r->begun_capacity, r->n_begun, sizeof *r->begun);
    r->begun[r->n_begun++] = own;
    return true;
}

static tm_node rewritten(rewriter *r, tm_node node)
{
    for (int k = 0; k < TM_MAX_OUT; k++) {
        spot g = spot_of(r, r->gradients, node.out[k]);
        if (g.unit < 0 || !begins(r, g, node.out[k])) continue;
        begin_sum(r->graph, &node, k, r->units->units[g.unit].members[g.member].gradient);
    }
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        tm_tensor_id *id = i < TM_MAX_IN ? &node.in[i] : &node.out[i - TM_MAX_IN];
        spot          w = spot_of(r, r->weights, *id), g = spot_of(r, r->gradients, *id);
        if (w.unit >= 0) {
            if (i < TM_MAX_IN) take_gathered(r, &node, i, w);
            *id =
                stand_in(r->graph, *id, &r->units->units[w.unit].members[w.member], r->stays[r->current[w.unit]].whole);
        } else if (g.unit >= 0)
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

/* The number of stays that are gathered once number `entered` begins: those of its turn, and of as many turns behind it
 * as are to be gathered ahead. */
static size_t last_ahead(const rewriter *r, size_t entered)
{
    size_t until = entered + 1;
    for (int ahead = r->units->prefetch; until < r->n_stays; until++)
        if (r->stays[until].turn != r->stays[until - 1].turn && ahead-- == 0) break;
    return until;
}

/* The nodes of `old` into the current segment, with collectives between them. */
static void write_anew(rewriter *r, const tm_segment *old)
{
    tm_graph *graph = r->graph;
    size_t    gathered = 0, entered = 0;
    for (size_t x = 0; x < old->n_nodes; x++) {
        while (entered < r->n_stays && r->stays[entered].first <= x) { /* those ahead of the ones in use */
            size_t until = last_ahead(r, entered);
            for (; gathered < until; gathered++) gather(r, &r->stays[gathered], &old->nodes[r->stays[gathered].first]);
            r->current[r->stays[entered].unit] = (int32_t)entered;
            entered++;
        }
        if (r->dropped[x]) continue;
        begin_sums(r, old, x);
        tm_node node = rewritten(r, old->nodes[x]);
        append(graph->segment, &node);
        for (size_t u = 0; u < r->units->n_units; u++)
            if (r->sums[u].any && r->sums[u].last == x) reduce(r, &r->units->units[u], &r->sums[u], &old->nodes[x]);
    }
}

void tm_units_pass(tm_graph *graph, const tm_units *units, bool add, bool *summed)
{
    if (units->sharing < TM_SHARE_GRADIENTS) return;
    size_t     n = graph->n_tensors;
    tm_arena  *scratch = tm_arena_create();
    tm_segment old = *graph->segment;
    rewriter   r = { .graph = graph, .units = units, .n = n, .add = add, .summed = summed };
    r.weights = tm_arena_take(scratch, n * sizeof *r.weights);
    r.gradients = tm_arena_take(scratch, n * sizeof *r.gradients);
    r.dropped = tm_arena_take(scratch, (old.n_nodes + 1) * sizeof *r.dropped);
    r.current = tm_arena_take(scratch, units->n_units * sizeof *r.current);
    r.sums = tm_arena_take(scratch, units->n_units * sizeof *r.sums);
    for (size_t u = 0; u < units->n_units; u++) {
        r.current[u] = -1;
        r.sums[u].written = tm_arena_take(scratch, units->units[u].n_members * sizeof(bool));
    }
    note_spots(&r);
    look_through(&r, &old);
    graph->segment->nodes = NULL;
    graph->segment->n_nodes = graph->segment->capacity = 0;
    tm_phase    phase = graph->phase;
    int         layer = graph->layer;
    const char *module = graph->module;
    write_anew(&r, &old);
    graph->phase = phase;
    graph->layer = layer;
    graph->module = module;
    free(old.nodes);
    free(r.stays);
    free(r.begun);
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
