/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/units_round.c - weights that travel rounded, in segments of another format. */
#include "graph/passes/units.h"

#include <stdlib.h>

/* What stands for a parameter in a layer: rounded, and in the format of the segment. */
typedef struct {
    tm_dtype     travels; /* TM_DTYPE_COUNT: as it is held */
    int          layer;
    tm_tensor_id rounded, wide;
} stand_ins;

static stand_ins *find_rounded(const tm_graph *graph, const tm_units *units)
{
    stand_ins *all = tm_alloc((graph->n_tensors + 1) * sizeof *all);
    for (size_t i = 0; i < graph->n_tensors; i++)
        all[i] = (stand_ins){ .travels = TM_DTYPE_COUNT, .rounded = TM_NONE, .wide = TM_NONE };
    for (size_t u = 0; u < units->n_units; u++) {
        const tm_unit *unit = &units->units[u];
        if (unit->sharing != TM_SHARE_ALL || unit->gathered == unit->dtype) continue;
        for (size_t m = 0; m < unit->n_members; m++) all[unit->members[m].parameter].travels = unit->gathered;
    }
    return all;
}

static void append(tm_segment *segment, const tm_node *node)
{
    segment->nodes = tm_grow(segment->nodes, &segment->capacity, segment->n_nodes, sizeof *segment->nodes);
    segment->nodes[segment->n_nodes++] = *node;
}

static tm_tensor_id cast_to(tm_graph *graph, tm_segment *to, tm_tensor_id from, tm_dtype dtype, const tm_node *user)
{
    tm_tensor    was = *tm_graph_at(graph, from);
    const char  *name = tm_arena_format(graph->arena, "%s.%s", was.name, tm_dtype_name(dtype));
    tm_tensor_id made = tm_graph_tensor_as(graph, name, TM_ROLE_WEIGHT_COPY, was.shape, dtype);
    tm_node      node = { .op = TM_OP_cast, .phase = user->phase, .layer = user->layer, .module = user->module };
    for (int i = 0; i < TM_MAX_IN; i++) node.in[i] = TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) node.out[k] = TM_NONE;
    node.in[0] = from;
    node.out[0] = made;
    tm_graph_at(graph, made)->layer = was.layer;
    append(to, &node);
    return made;
}

/* What stands for parameter `id` where `user` reads it, in any format (`any`) or in the segment's. */
static tm_tensor_id stand_in(tm_graph *graph, tm_segment *to, stand_ins *s, tm_tensor_id id, const tm_node *user,
                             bool any)
{
    if (s->layer != user->layer) s->rounded = s->wide = TM_NONE;
    s->layer = user->layer;
    if (s->rounded == TM_NONE) s->rounded = cast_to(graph, to, id, s->travels, user);
    if (any) return s->rounded;
    if (s->wide == TM_NONE) s->wide = cast_to(graph, to, s->rounded, graph->precision->compute, user);
    return s->wide;
}

void tm_units_round(tm_graph *graph, const tm_units *units)
{
    tm_segment *segment = graph->segment, result = { .name = segment->name };
    size_t      n = graph->n_tensors;
    stand_ins  *all = find_rounded(graph, units);
    for (size_t x = 0; x < segment->n_nodes; x++) {
        tm_node node = segment->nodes[x];
        for (int i = 0; i < TM_MAX_IN; i++) {
            tm_tensor_id id = node.in[i] == TM_NONE ? TM_NONE : tm_graph_base(graph, node.in[i]);
            if (id == TM_NONE || (size_t)id >= n || all[id].travels == TM_DTYPE_COUNT) continue;
            tm_tensor read = *tm_graph_at(graph, node.in[i]);
            bool      any = tm_op_get(node.op)->any_dtype_in >> i & 1u;
            node.in[i] = stand_in(graph, &result, &all[id], id, &node, any);
            if (read.base != TM_NONE) node.in[i] = tm_graph_view_like(graph, &read, node.in[i]);
        }
        append(&result, &node);
    }
    free(all);
    free(segment->nodes);
    *segment = result;
}
