/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/passes/passes.h"

#include "op/attrs.h"

#include <stdio.h>

/* The parameter whose gradient node `x` of the segment adds a look-up's part to, if another node writes it, too. */
static tm_tensor_id shared_table(const tm_graph *graph, size_t x)
{
    const tm_segment *segment = graph->segment;
    tm_tensor_id      gradient = segment->nodes[x].out[0];
    bool              shared = false;
    if (segment->nodes[x].op != TM_OP_embedding_grad || gradient == TM_NONE) return TM_NONE;
    for (size_t y = 0; y < segment->n_nodes; y++)
        for (int k = 0; k < TM_MAX_OUT; k++) shared = shared || (y != x && segment->nodes[y].out[k] == gradient);
    for (size_t i = 0; shared && i < graph->n_tensors; i++)
        if (graph->tensors[i].gradient == gradient) return (tm_tensor_id)i;
    return TM_NONE;
}

/* The node's sum becomes that of the table's look-ups alone. */
static void put_apart(tm_graph *graph, size_t x, tm_tensor_id table, bool accumulate)
{
    tm_node  *node = &graph->segment->nodes[x];
    tm_tensor of = *tm_graph_at(graph, table);
    if (of.lookup_gradient == TM_NONE) {
        char name[200];
        snprintf(name, sizeof name, "%.180s.lookup.grad", of.name);
        of.lookup_gradient = tm_graph_tensor(graph, name, TM_ROLE_GRADIENT, of.shape);
        tm_graph_at(graph, table)->lookup_gradient = of.lookup_gradient;
    }
    node->out[0] = of.lookup_gradient;
    if (!accumulate) node->accumulate &= ~1u;
}

void tm_lookup_pass(tm_graph *graph, bool several, bool accumulate)
{
    for (size_t x = 0; x < graph->segment->n_nodes; x++) {
        tm_tensor_id table = shared_table(graph, x);
        tm_node     *node = &graph->segment->nodes[x];
        if (table == TM_NONE) continue;
        if (!several) {
            tm_embedding_attr *attr = tm_arena_take(graph->arena, sizeof *attr);
            *attr = *(const tm_embedding_attr *)node->attr;
            attr->apart = 1;
            node->attr = attr;
            continue;
        }
        put_apart(graph, x, table, accumulate);
    }
}

void tm_lookup_apart(tm_graph *graph, tm_tensor_id table, bool accumulate)
{
    for (size_t x = 0; x < graph->segment->n_nodes; x++) {
        const tm_node *node = &graph->segment->nodes[x];
        if (node->op == TM_OP_embedding_grad && node->out[0] == tm_graph_at(graph, table)->gradient)
            put_apart(graph, x, table, accumulate);
    }
}

void tm_lookup_join(tm_graph *graph)
{
    graph->phase = TM_PHASE_BACKWARD;
    graph->module = "lookup";
    for (size_t i = 0, n = graph->n_tensors; i < n; i++) {
        const tm_tensor *table = &graph->tensors[i];
        if (table->lookup_gradient == TM_NONE) continue;
        tm_tensor_id in[TM_MAX_IN] = { table->gradient, table->lookup_gradient }, out[TM_MAX_OUT] = { table->gradient };
        tm_graph_add(graph, TM_OP_add, NULL, 0, in, out, 0);
    }
}
