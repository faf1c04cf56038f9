/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/lend.h"

#include <string.h>

enum { UNSEEN = -1 };

static bool is_gradient(const tm_plan *plan, tm_tensor_id id)
{
    const tm_tensor *tensor = tm_graph_at(plan->graph, id);
    return tensor->role == TM_ROLE_GRADIENT && tensor->space == TM_SPACE_DEVICE && plan->places[id].bytes > 0;
}

static bool is_whole(const tm_plan *plan, tm_tensor_id id)
{
    const tm_tensor *tensor = tm_graph_at(plan->graph, id);
    return tensor->base == TM_NONE ||
           (tensor->ld == 0 && tm_plan_place(plan, id).bytes == plan->places[tm_graph_base(plan->graph, id)].bytes);
}

static void note(const tm_plan *plan, int32_t *written, tm_tensor_id id, int32_t x)
{
    tm_tensor_id base = tm_graph_base(plan->graph, id);
    if (is_gradient(plan, base) && written[base] == UNSEEN) written[base] = x;
}

void tm_lend_find(tm_plan *plan, int32_t index)
{
    const tm_graph *graph = plan->graph;
    tm_program     *program = &plan->programs[index];
    bool            lends = graph->slots == 0;
    for (size_t x = 0; x < program->count; x++) lends = lends && program->instructions[x].stream != TM_ON_COMMUNICATION;
    if (!lends || plan->spaces[TM_SPACE_DEVICE].gradient_bytes == 0) return;
    int32_t *written = tm_arena_take(plan->arena, (graph->n_tensors + 1) * sizeof *written), any = 0;
    for (size_t i = 0; i < graph->n_tensors; i++) written[i] = UNSEEN;
    for (size_t x = 0; x < program->count; x++) {
        const tm_node *node = program->instructions[x].node;
        for (int i = 0; i < TM_MAX_IN; i++)
            if (node->in[i] != TM_NONE) note(plan, written, node->in[i], 0);
        for (int k = 0; k < TM_MAX_OUT; k++) {
            if (node->out[k] == TM_NONE) continue;
            bool fresh = !(node->accumulate >> k & 1U) && is_whole(plan, node->out[k]);
            note(plan, written, node->out[k], fresh ? (int32_t)x : 0);
        }
    }
    for (size_t i = 0; i < graph->n_tensors; i++) {
        if (written[i] == UNSEEN) written[i] = 0;
        any |= written[i];
    }
    if (any) program->written = written;
}

tm_lenders tm_lend_lenders(const tm_plan *plan, int32_t index, tm_interval *items)
{
    const tm_program    *program = &plan->programs[index];
    const tm_space_plan *space = &plan->spaces[TM_SPACE_DEVICE];
    tm_lenders           lenders = { .items = items };
    size_t               begin = space->persistent_bytes - space->gradient_bytes;
    if (!program->written) return lenders;
    lenders.bytes = space->gradient_bytes;
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        const tm_place *place = &plan->places[i];
        if (!is_gradient(plan, (tm_tensor_id)i) || place->program != TM_PERSISTENT) continue;
        size_t bytes = tm_plan_aligned(plan, place->bytes);
        items[lenders.n++] =
            (tm_interval){ bytes, program->written[i], (int32_t)program->count - 1, place->offset - begin };
    }
    return lenders;
}
