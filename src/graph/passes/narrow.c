/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/narrow.c - gradients are summed over ranks in fewer bits than they have. */
#include "graph/passes/passes.h"

#include "comm/mesh/mesh.h"
#include "op/attrs.h"

static bool sums_gradients(const tm_graph *graph, const tm_node *node)
{
    if (node->op != TM_OP_all_reduce && node->op != TM_OP_reduce_scatter) return false;
    const tm_tensor     *what = tm_graph_at(graph, tm_graph_base(graph, node->in[0]));
    const tm_group_attr *attr = node->attr;
    bool                 gradient = what->role == TM_ROLE_GRADIENT || what->role == TM_ROLE_PARTIAL;
    /* Ranks that divide a matrix add parts of one gradient, not those of different samples. */
    return gradient && what->dtype == TM_F32 && attr->ranks > 1 && !(attr->axes & 1 << TM_AXIS_TP);
}

void tm_narrow_pass(tm_graph *graph)
{
    for (size_t s = 0; s < graph->n_segments; s++)
        for (size_t x = 0; x < graph->segments[s]->n_nodes; x++) {
            tm_node *node = &graph->segments[s]->nodes[x];
            if (!sums_gradients(graph, node)) continue;
            tm_group_attr *attr = tm_arena_take(graph->arena, sizeof *attr);
            *attr = *(const tm_group_attr *)node->attr;
            attr->narrow = 1;
            node->attr = attr;
        }
}
