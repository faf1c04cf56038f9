/* SPDX-License-Identifier: Apache-2.0 */
#include "train/step/early.h"

#include <stdlib.h>

static double unclipped(const void *context, int64_t i)
{
    (void)context;
    return (double)i;
}

tm_tensor_id early_clip(tm_graph *graph)
{
    tm_tensor_id id = tm_graph_constant(graph, "unclipped", tm_shape_1(2), unclipped, NULL, 0);
    tm_graph_at(graph, id)->dtype = TM_F64;
    return id;
}

/* The parameter that a tensor is, is a cast of, or is the gradient of, by tensor with memory of its own; TM_NONE: of
 * none. */
static tm_tensor_id *find_owners(const tm_graph *graph, const tm_segment *backward, const early_update *updates,
                                 size_t n)
{
    tm_tensor_id *owner = tm_alloc((graph->n_tensors + 1) * sizeof *owner);
    for (size_t i = 0; i < graph->n_tensors; i++) owner[i] = TM_NONE;
    for (size_t u = 0; u < n; u++) {
        const tm_tensor *parameter = tm_graph_at(graph, updates[u].parameter);
        owner[tm_graph_base(graph, updates[u].parameter)] = updates[u].parameter;
        owner[tm_graph_base(graph, parameter->gradient)] = updates[u].parameter;
    }
    for (size_t x = 0; x < backward->n_nodes; x++) {
        const tm_node *node = &backward->nodes[x];
        if (node->op == TM_OP_cast)
            owner[tm_graph_base(graph, node->out[0])] = owner[tm_graph_base(graph, node->in[0])];
    }
    return owner;
}

/* last[p]: the last node of the segment that uses parameter p. */
static size_t *find_last(const tm_graph *graph, const tm_segment *backward, const tm_tensor_id *owner)
{
    size_t *last = tm_alloc((graph->n_tensors + 1) * sizeof *last);
    for (size_t x = 0; x < backward->n_nodes; x++) {
        const tm_node *node = &backward->nodes[x];
        for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
            tm_tensor_id id = i < TM_MAX_IN ? node->in[i] : node->out[i - TM_MAX_IN];
            if (id != TM_NONE && owner[tm_graph_base(graph, id)] != TM_NONE) last[owner[tm_graph_base(graph, id)]] = x;
        }
    }
    return last;
}

/* --- taking out of "update", putting into the backward pass */

typedef struct {
    tm_node *nodes;
    size_t   n;
} list;

/* The node that adds the squares of a parameter's gradient to the norm's; NULL: none does. */
static tm_node *find_squares(const tm_graph *graph, const tm_segment *update, tm_tensor_id gradient)
{
    for (size_t x = 0; x < update->n_nodes; x++) {
        tm_node *node = &update->nodes[x];
        if (node->op == TM_OP_square_sum && tm_graph_base(graph, node->in[0]) == tm_graph_base(graph, gradient))
            return node;
    }
    return NULL;
}

/* Appends what updates a parameter: squares first, as updates may overwrite gradients. */
static void take(const tm_graph *graph, const tm_segment *update, const early_update *of, bool *squared, bool *moved,
                 list *to)
{
    tm_node *squares = find_squares(graph, update, tm_graph_at(graph, of->parameter)->gradient);
    if (squares) {
        to->nodes[to->n] = *squares;
        to->nodes[to->n++].accumulate = *squared; /* the first one overwrites the sum */
        *squared = true;
        moved[squares - update->nodes] = true;
    }
    for (size_t x = of->from; x < of->end; x++) {
        to->nodes[to->n++] = update->nodes[x];
        moved[x] = true;
    }
}

static void keep_rest(tm_segment *update, const bool *moved)
{
    size_t kept = 0;
    for (size_t x = 0; x < update->n_nodes; x++)
        if (!moved[x]) update->nodes[kept++] = update->nodes[x];
    update->n_nodes = kept;
}

static void let_go(tm_graph *graph, const early_update *updates, size_t n)
{
    bool *gradient = tm_alloc((graph->n_tensors + 1) * sizeof *gradient);
    for (size_t u = 0; u < n; u++)
        gradient[tm_graph_base(graph, tm_graph_at(graph, updates[u].parameter)->gradient)] = true;
    for (size_t i = 0; i < graph->n_tensors; i++)
        if (gradient[tm_graph_base(graph, (tm_tensor_id)i)]) graph->tensors[i].role = TM_ROLE_PARTIAL;
    free(gradient);
}

void early_move(tm_step *step, tm_segment *backward, const early_update *updates, size_t n)
{
    tm_graph     *graph = step->graph;
    tm_segment   *update = graph->segment;
    tm_tensor_id *owner = find_owners(graph, backward, updates, n);
    size_t       *last = find_last(graph, backward, owner), all = backward->n_nodes + update->n_nodes;
    bool         *moved = tm_alloc((update->n_nodes + 1) * sizeof *moved), squared = false;
    list          made = { tm_alloc((all + 1) * sizeof *made.nodes), 0 };
    for (size_t x = 0; x < backward->n_nodes; x++) {
        made.nodes[made.n++] = backward->nodes[x];
        for (size_t u = 0; u < n; u++)
            if (last[updates[u].parameter] == x) take(graph, update, &updates[u], &squared, moved, &made);
    }
    keep_rest(update, moved);
    let_go(graph, updates, n);
    free(backward->nodes);
    backward->nodes = made.nodes;
    backward->n_nodes = backward->capacity = made.n;
    free(moved);
    free(last);
    free(owner);
    tm_offload moments = step->options.offload;
    moments.activations = false; /* those are away already */
    graph->segment = backward;
    tm_offload_pass(graph, &moments);
    graph->segment = update;
}
