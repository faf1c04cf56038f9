/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/passes/fusing.h"

#include <stdlib.h>

static void note_uses(fusing *f)
{
    const tm_segment *segment = f->graph->segment;
    for (size_t i = 0; i < f->n; i++) f->maker[i] = FUSING_NOBODY;
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        for (int k = 0; k < TM_MAX_OUT; k++) {
            if (node->out[k] == TM_NONE) continue;
            tm_tensor_id base = tm_graph_base(f->graph, node->out[k]);
            bool         alone = f->maker[base] == FUSING_NOBODY && base == node->out[k];
            f->maker[base] = alone ? (int32_t)x : FUSING_SEVERAL;
        }
        for (int i = 0; i < TM_MAX_IN; i++) {
            if (node->in[i] == TM_NONE) continue;
            tm_tensor_id base = tm_graph_base(f->graph, node->in[i]);
            f->reads[node->in[i]]++;
            f->views[base] += base != node->in[i];
        }
    }
}

void fusing_open(fusing *f, tm_graph *graph, const tm_chooser *chooser)
{
    const size_t n = graph->n_tensors + 1;
    *f = (fusing){ .graph = graph,
                   .chooser = chooser,
                   .n = graph->n_tensors,
                   .maker = tm_alloc(n * sizeof(int32_t)),
                   .reads = tm_alloc(n * sizeof(int32_t)),
                   .views = tm_alloc(n * sizeof(int32_t)),
                   .gone = tm_alloc((graph->segment->n_nodes + 1) * sizeof(bool)) };
    note_uses(f);
}

void fusing_close(fusing *f)
{
    tm_segment *segment = f->graph->segment;
    size_t      kept = 0;
    for (size_t x = 0; x < segment->n_nodes; x++)
        if (!f->gone[x]) segment->nodes[kept++] = segment->nodes[x];
    segment->n_nodes = kept;
    free(f->maker);
    free(f->reads);
    free(f->views);
    free(f->gone);
}

bool fusing_takes(const fusing *f, const tm_node *node)
{
    tm_call call;
    tm_node_call(f->graph, node, &call);
    call.threads = f->chooser->threads;
    call.device = f->chooser->context;
    return f->chooser->choose(f->chooser->context, &call, NULL) != NULL;
}
