/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct {
    tm_tensor_id copy;
    int          layer;
    tm_phase     phase;
} cast_copy;

static void append(tm_segment *segment, const tm_node *node)
{
    segment->nodes = tm_grow(segment->nodes, &segment->capacity, segment->n_nodes, sizeof *segment->nodes);
    segment->nodes[segment->n_nodes++] = *node;
}

/* The copy of `parameter` valid in this layer and phase; emits the cast when there is none yet. */
static tm_tensor_id copy_for(tm_graph *graph, tm_segment *result, cast_copy *last, tm_tensor_id parameter,
                             const tm_node *user)
{
    cast_copy *have = &last[parameter];
    if (have->copy != TM_NONE && have->layer == user->layer && have->phase == user->phase) return have->copy;
    tm_tensor was = *tm_graph_at(graph, parameter);
    char      name[200];
    snprintf(name, sizeof name, "%s.%s", was.name, tm_dtype_name(graph->precision->compute));
    tm_tensor_id copy = tm_graph_tensor(graph, name, TM_ROLE_WEIGHT_COPY, was.shape);
    tm_graph_at(graph, copy)->layer = was.layer;
    tm_node cast = { .op = TM_OP_cast, .phase = user->phase, .layer = user->layer, .module = user->module };
    for (int i = 0; i < TM_MAX_IN; i++) cast.in[i] = TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) cast.out[k] = TM_NONE;
    cast.in[0] = parameter;
    cast.out[0] = copy;
    append(result, &cast);
    *have = (cast_copy){ .copy = copy, .layer = user->layer, .phase = user->phase };
    return copy;
}

void tm_precision_pass(tm_graph *graph)
{
    tm_segment *segment = graph->segment, result = { .name = segment->name };
    size_t      n = graph->n_tensors;
    cast_copy  *last = tm_alloc(n * sizeof *last);
    for (size_t i = 0; i < n; i++) last[i].copy = TM_NONE;
    for (size_t x = 0; x < segment->n_nodes; x++) {
        tm_node      node = segment->nodes[x];
        const tm_op *op = tm_op_get(node.op);
        for (int i = 0; i < op->n_in; i++) {
            if (node.in[i] == TM_NONE) continue;
            const tm_tensor *tensor = tm_graph_at(graph, node.in[i]);
            if (tensor->role != TM_ROLE_PARAMETER || tensor->dtype == graph->precision->compute) continue;
            if (((op->any_dtype_in & 1u << i) || tensor->as_stored) && !tm_dtype_small(tensor->dtype)) continue;
            tm_tensor view = *tensor;
            node.in[i] = copy_for(graph, &result, last, tm_graph_base(graph, node.in[i]), &node);
            if (view.base != TM_NONE) node.in[i] = tm_graph_view_like(graph, &view, node.in[i]);
        }
        append(&result, &node);
    }
    free(last);
    free(segment->nodes);
    *segment = result;
}
