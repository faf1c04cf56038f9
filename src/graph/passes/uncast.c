/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/blocks.h"
#include "graph/passes/passes.h"

#include <stdlib.h>

/* Whether the kernel that the device would take rounds input i, a weight as it is held, on the way: same bits as a
 * cast. */
static bool rounds(const tm_graph *graph, const tm_chooser *chooser, const tm_node *node, int i, tm_dtype stored)
{
    tm_call call;
    tm_node_call(graph, node, &call);
    call.in[i].dtype = stored;
    call.rounded |= 1u << i;
    call.threads = chooser->threads;
    call.device = chooser->context;
    const tm_kernel *kernel = chooser->choose(chooser->context, &call, NULL);
    return kernel && (kernel->rounds >> i & 1u);
}

/* Of a copy that a cast makes. */
typedef struct {
    tm_tensor_id from;
    bool         needed; /* by somebody who reads nothing else */
} copy;

static void ask_users(tm_graph *graph, const tm_chooser *chooser, copy *copies)
{
    const tm_segment *segment = graph->segment;
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        for (int i = 0; i < TM_MAX_IN; i++) {
            if (node->in[i] == TM_NONE) continue;
            copy *c = &copies[tm_graph_base(graph, node->in[i])];
            if (c->from == TM_NONE || c->needed) continue;
            bool view = tm_graph_at(graph, node->in[i])->base != TM_NONE;
            c->needed = view || !rounds(graph, chooser, node, i, tm_graph_at(graph, c->from)->dtype);
        }
    }
}

void tm_uncast_pass(tm_graph *graph, const tm_chooser *chooser)
{
    tm_segment *segment = graph->segment;
    copy       *copies = tm_alloc(graph->n_tensors * sizeof *copies);
    size_t      kept = 0;
    for (size_t i = 0; i < graph->n_tensors; i++) copies[i].from = TM_NONE;
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        if (node->op != TM_OP_cast || tm_graph_at(graph, node->out[0])->role != TM_ROLE_WEIGHT_COPY) continue;
        tm_dtype held = tm_graph_at(graph, node->in[0])->dtype;
        bool     needed = held == TM_F32 ? chooser->weight_copies : !tm_dtype_blocked(held);
        copies[node->out[0]] = (copy){ node->in[0], needed };
    }
    ask_users(graph, chooser, copies);
    for (size_t x = 0; x < segment->n_nodes; x++) {
        tm_node node = segment->nodes[x];
        if (node.op == TM_OP_cast && copies[node.out[0]].from != TM_NONE && !copies[node.out[0]].needed) continue;
        for (int i = 0; i < TM_MAX_IN; i++) {
            if (node.in[i] == TM_NONE || copies[node.in[i]].from == TM_NONE || copies[node.in[i]].needed) continue;
            node.in[i] = copies[node.in[i]].from;
            node.rounded |= 1u << i;
        }
        segment->nodes[kept++] = node;
    }
    segment->n_nodes = kept;
    free(copies);
}
