/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>

static const tm_adapter *adapter_of(const tm_graph *graph, const tm_node *node)
{
    if (node->op != TM_OP_linear || node->in[1] == TM_NONE) return NULL;
    return tm_graph_at(graph, node->in[1])->adapter;
}

static tm_tensor_id emit(tm_graph *graph, tm_op_id op, const void *attr, size_t attr_bytes, tm_tensor_id a,
                         tm_tensor_id b)
{
    tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT];
    for (int i = 0; i < TM_MAX_IN; i++) in[i] = TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
    in[0] = a;
    in[1] = b;
    tm_graph_add(graph, op, attr, attr_bytes, in, out, 0);
    return out[0];
}

/* The result keeps its tensor, so that whoever reads it, views too, stays as it is. */
static void adapt(tm_graph *graph, const tm_node *node, const tm_adapter *adapter, tm_tensor_id first_row)
{
    tm_tensor    y = *tm_graph_at(graph, node->out[0]);
    tm_tensor_id x = node->in[0], in[TM_MAX_IN], out[TM_MAX_OUT];
    char         name[200];
    snprintf(name, sizeof name, "%.190s.base", y.name);
    tm_tensor_id base = tm_graph_tensor_as(graph, name, y.role, y.shape, y.dtype);
    tm_graph_add(graph, node->op, node->attr, node->attr_bytes, node->in, &base, 0);
    if (adapter->dropout.rate > 0 && first_row != TM_NONE)
        x = emit(graph, TM_OP_dropout, &adapter->dropout, sizeof adapter->dropout, x, first_row);
    tm_tensor_id u = emit(graph, TM_OP_linear, NULL, 0, x, adapter->a);
    for (int i = 0; i < TM_MAX_IN; i++) in[i] = TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
    in[0] = base, in[1] = u, in[2] = adapter->b;
    out[0] = node->out[0];
    tm_graph_add(graph, TM_OP_low_rank, &adapter->attr, sizeof adapter->attr, in, out, 0);
}

void tm_adapt_pass(tm_graph *graph, tm_tensor_id first_row)
{
    tm_segment *segment = graph->segment, was = *segment;
    bool        any = false;
    for (size_t x = 0; x < was.n_nodes; x++) any = any || adapter_of(graph, &was.nodes[x]);
    if (!any) return;
    tm_phase    phase = graph->phase;
    int         layer = graph->layer;
    const char *module = graph->module;
    *segment = (tm_segment){ .name = was.name };
    for (size_t x = 0; x < was.n_nodes; x++) {
        const tm_node    *node = &was.nodes[x];
        const tm_adapter *adapter = adapter_of(graph, node);
        if (!adapter) {
            segment->nodes = tm_grow(segment->nodes, &segment->capacity, segment->n_nodes, sizeof *segment->nodes);
            segment->nodes[segment->n_nodes++] = *node;
            continue;
        }
        graph->phase = node->phase;
        graph->layer = node->layer;
        graph->module = node->module;
        adapt(graph, node, adapter, first_row);
    }
    graph->phase = phase;
    graph->layer = layer;
    graph->module = module;
    free(was.nodes);
}
