/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of a divided vocabulary (op/vocabulary.c) is built in chunks of rows: logits, perhaps with the product of an
 * adapter added, parts, their gathering, loss. */
#include "graph/passes/passes.h"

#include <stdlib.h>
#include <string.h>

/* The node of the segment that makes a tensor; -1: none. */
static ptrdiff_t maker_of(const tm_segment *segment, tm_tensor_id id)
{
    for (size_t x = 0; x < segment->n_nodes; x++)
        for (int k = 0; k < TM_MAX_OUT; k++)
            if (id != TM_NONE && segment->nodes[x].out[k] == id) return (ptrdiff_t)x;
    return -1;
}

static ptrdiff_t loss_of(const tm_segment *segment, tm_tensor_id e)
{
    for (size_t x = 0; x < segment->n_nodes; x++)
        if (segment->nodes[x].op == TM_OP_vocabulary_loss && segment->nodes[x].in[0] == e) return (ptrdiff_t)x;
    return -1;
}

static void append(tm_segment *segment, const tm_node *node)
{
    segment->nodes = tm_grow(segment->nodes, &segment->capacity, segment->n_nodes, sizeof *segment->nodes);
    segment->nodes[segment->n_nodes++] = *node;
}

/* (Where another loss is made of those of all rows, chunks are made again for it: model/tensor.c.)
 * Moves what chunk `x`, the number of its gradient's node, is made of. The first chunk in the new order replaces the
 * loss if the segment does, all others add to it. */
static void take_chunk(const tm_segment *old, size_t x, bool adds, bool *moved, tm_segment *to)
{
    enum { BASE, LOGITS, PARTS, GATHER, LOSS, CHAIN };
    ptrdiff_t chain[CHAIN];
    chain[PARTS] = maker_of(old, old->nodes[x].in[0]);
    chain[LOGITS] = maker_of(old, old->nodes[chain[PARTS]].in[0]);
    TM_ASSERT(chain[PARTS] >= 0 && chain[LOGITS] >= 0);
    bool adapted = old->nodes[chain[LOGITS]].op == TM_OP_low_rank;
    chain[BASE] = adapted ? maker_of(old, old->nodes[chain[LOGITS]].in[0]) : -1;
    chain[GATHER] = maker_of(old, old->nodes[x].in[2]);
    chain[LOSS] = loss_of(old, old->nodes[x].in[0]);
    for (int i = adapted ? BASE : LOGITS; i < CHAIN; i++) {
        TM_ASSERT(chain[i] >= 0);
        tm_node node = old->nodes[chain[i]];
        node.phase = TM_PHASE_BACKWARD;
        if (i == LOSS) node.accumulate = (node.accumulate & ~1U) | (adds ? 1U : 0);
        moved[chain[i]] = true;
        append(to, &node);
    }
}

void tm_chunks_pass(tm_graph *graph, bool accumulate)
{
    tm_segment *segment = graph->segment, old = *segment, result = { .name = old.name };
    bool       *moved = tm_alloc((old.n_nodes + 1) * sizeof *moved), adds = accumulate;
    memset(moved, 0, (old.n_nodes + 1) * sizeof *moved);
    tm_segment *chunks = tm_alloc((old.n_nodes + 1) * sizeof *chunks);
    memset(chunks, 0, (old.n_nodes + 1) * sizeof *chunks);
    for (size_t x = 0; x < old.n_nodes; x++) {
        if (old.nodes[x].op != TM_OP_vocabulary_loss_grad || old.nodes[x].in[4] != TM_NONE) continue;
        take_chunk(&old, x, adds, moved, &chunks[x]);
        adds = true;
    }
    for (size_t x = 0; x < old.n_nodes; x++) {
        for (size_t i = 0; i < chunks[x].n_nodes; i++) append(&result, &chunks[x].nodes[i]);
        free(chunks[x].nodes);
        if (!moved[x]) append(&result, &old.nodes[x]);
    }
    *segment = result;
    free(old.nodes);
    free(chunks);
    free(moved);
}
