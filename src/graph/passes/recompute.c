/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    tm_graph           *graph;
    const tm_recompute *policy;
    tm_node            *source;   /* the segment's nodes before the pass */
    int32_t            *producer; /* (tensors) index of the forward node that makes it, or -1 */
    bool               *saved;    /* (nodes) by the save list */
    tm_tensor_id       *copy;     /* (tensors) its recomputed twin, or TM_NONE */
    tm_tensor_id       *passing;  /* those of TM_KEEP_NEVER that have a twin now */
    size_t              n_passing, passing_capacity;
    size_t              n_tensors;
    tm_segment          result;
} pass;

static bool layer_is_recomputed(const tm_recompute *policy, int layer)
{
    if (policy->layers > 0 && layer >= policy->layers) return false;
    return layer >= 0 && policy->every_n > 0 && layer % policy->every_n == 0;
}

/* Should a backward node of `layer` use a recomputed copy of this tensor? */
static bool replaced(const pass *p, tm_tensor_id id, int layer)
{
    if (id == TM_NONE || (size_t)id >= p->n_tensors || p->producer[id] < 0) return false;
    const tm_node *node = &p->source[p->producer[id]];
    if (node->keep != TM_KEEP_BY_POLICY) return node->layer == layer;
    if (layer_is_recomputed(p->policy, node->layer) && !p->saved[p->producer[id]]) return node->layer == layer;
    return p->policy->cheap && tm_op_get(node->op)->cheap && tm_graph_at(p->graph, id)->role == TM_ROLE_ACTIVATION;
}

static void append(tm_segment *segment, const tm_node *node)
{
    segment->nodes = tm_grow(segment->nodes, &segment->capacity, segment->n_nodes, sizeof *segment->nodes);
    segment->nodes[segment->n_nodes++] = *node;
}

static tm_tensor_id recomputed(pass *p, tm_tensor_id id, int layer);

static tm_tensor_id input_for(pass *p, tm_tensor_id id, int layer)
{
    if (id == TM_NONE || !replaced(p, tm_graph_base(p->graph, id), layer)) return id;
    tm_tensor    was = *tm_graph_at(p->graph, id);
    tm_tensor_id twin = recomputed(p, was.base == TM_NONE ? id : was.base, layer);
    return was.base == TM_NONE ? twin : tm_graph_view_like(p->graph, &was, twin);
}

static bool is_passing(const pass *p, tm_tensor_id id)
{
    if (id == TM_NONE) return false;
    id = tm_graph_base(p->graph, id);
    return (size_t)id < p->n_tensors && p->producer[id] >= 0 && p->source[p->producer[id]].keep == TM_KEEP_NEVER;
}

/* What comes later makes them anew. */
static void forget_passing(pass *p)
{
    for (size_t i = 0; i < p->n_passing; i++) p->copy[p->passing[i]] = TM_NONE;
    p->n_passing = 0;
}

/* Inputs that are not held come last: they are not there while the others are made. */
static void take_inputs(pass *p, tm_node *node, int layer)
{
    for (int last = 0; last < 2; last++)
        for (int i = 0; i < TM_MAX_IN; i++)
            if (is_passing(p, node->in[i]) == (last == 1)) node->in[i] = input_for(p, node->in[i], layer);
}

/* Emits the copy of the node that makes `id` (and of what that needs), unless it exists. */
static tm_tensor_id recomputed(pass *p, tm_tensor_id id, int layer)
{
    if (p->copy[id] != TM_NONE) return p->copy[id];
    tm_node node = p->source[p->producer[id]];
    node.phase = TM_PHASE_BACKWARD;
    node.recomputed = true;
    take_inputs(p, &node, layer);
    for (int k = 0; k < TM_MAX_OUT; k++) {
        if (node.out[k] == TM_NONE) continue;
        tm_tensor was = *tm_graph_at(p->graph, node.out[k]);
        char      name[200];
        snprintf(name, sizeof name, "%s.again", was.name);
        tm_tensor_id twin = tm_graph_tensor_as(p->graph, name, was.role, was.shape, was.dtype);
        tm_graph_at(p->graph, twin)->layer = was.layer;
        p->copy[node.out[k]] = twin;
        if (node.keep == TM_KEEP_NEVER) {
            p->passing = tm_grow(p->passing, &p->passing_capacity, p->n_passing, sizeof *p->passing);
            p->passing[p->n_passing++] = node.out[k];
        }
        node.out[k] = twin;
    }
    append(&p->result, &node);
    tm_tensor_id made = p->copy[id];
    if (node.keep != TM_KEEP_NEVER) forget_passing(p);
    return made;
}

static void note_producers(pass *p, const tm_segment *segment)
{
    for (size_t i = 0; i < p->n_tensors; i++) {
        p->producer[i] = -1;
        p->copy[i] = TM_NONE;
    }
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        if (node->phase != TM_PHASE_FORWARD || tm_op_get(node->op)->state) continue;
        for (int k = 0; k < TM_MAX_OUT; k++) {
            if (node->out[k] == TM_NONE) continue;
            tm_role role = tm_graph_at(p->graph, node->out[k])->role;
            if (role != TM_ROLE_ACTIVATION && role != TM_ROLE_STATISTIC) continue; /* counts may be parts of one */
            TM_ASSERT(tm_graph_at(p->graph, node->out[k])->base == TM_NONE);       /* they write whole tensors */
            p->producer[node->out[k]] = (int32_t)x;
        }
    }
}

/* Of one expert, where there are several. */
static int pieces_of(const tm_tensor *tensor)
{
    return tensor->shape.rank == 3 ? tensor->n_pieces / (int)tensor->shape.n[0] : tensor->n_pieces;
}

/* As how many products a node counts: fused weights are several. */
static int parts_of(const tm_graph *graph, const tm_node *node)
{
    int parts = 1;
    for (int i = 0; i < TM_MAX_IN; i++)
        if (node->in[i] != TM_NONE && pieces_of(tm_graph_at(graph, node->in[i])) > parts)
            parts = pieces_of(tm_graph_at(graph, node->in[i]));
    return parts;
}

static const tm_tensor *weight_of(const tm_graph *graph, const tm_node *node)
{
    bool product = node->op == TM_OP_linear || node->op == TM_OP_grouped_linear;
    return product ? tm_graph_at(graph, node->in[1]) : NULL;
}

/* Does it add the product of an adapter to that which it stands beside? */
static bool sums(const tm_node *node)
{
    return node->op == TM_OP_low_rank || (node->op == TM_OP_grouped_linear && node->in[4] != TM_NONE);
}

/* Counts each op's nodes through a layer. Of a product with an adapter beside it the sum of both is its result, which
 * is kept or not; the adapter's own narrow product is kept, and counts for nothing. Norms of adapted rows are always
 * kept: few numbers that cost a pass over the weights. */
static void apply_save_list(pass *p, const tm_segment *segment)
{
    int  seen[TM_OP_COUNT] = { 0 }, layer = -1;
    bool adapted = false;
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        if (node->phase != TM_PHASE_FORWARD) break;
        if (node->keep != TM_KEEP_BY_POLICY) continue;
        if (node->layer != layer) memset(seen, 0, sizeof seen);
        layer = node->layer;
        int              every = p->policy->save[node->op];
        const tm_tensor *weight = weight_of(p->graph, node);
        if (weight && weight->adapts != TM_NONE) p->saved[x] = every > 0;
        if (sums(node)) p->saved[x] = adapted;
        if (sums(node) || (weight && weight->adapts != TM_NONE)) continue;
        bool norms = node->op == TM_OP_adapted_norm || node->op == TM_OP_joined_norm;
        p->saved[x] = norms || (every > 0 && seen[node->op] % every == 0);
        seen[node->op] += parts_of(p->graph, node);
        if (!weight || !weight->adapter) continue;
        adapted = p->saved[x];
        p->saved[x] = false;
    }
}

void tm_recompute_pass(tm_graph *graph, const tm_recompute *policy)
{
    tm_segment *segment = graph->segment;
    tm_arena   *scratch = tm_arena_create();
    pass        p = { .graph = graph, .policy = policy, .source = segment->nodes, .n_tensors = graph->n_tensors };
    p.producer = tm_arena_take(scratch, p.n_tensors * sizeof *p.producer);
    p.copy = tm_arena_take(scratch, p.n_tensors * sizeof *p.copy);
    p.saved = tm_arena_take(scratch, segment->n_nodes * sizeof *p.saved);
    note_producers(&p, segment);
    apply_save_list(&p, segment);
    p.result = (tm_segment){ .name = segment->name };
    for (size_t x = 0; x < segment->n_nodes; x++) {
        tm_node node = p.source[x];
        if (node.phase == TM_PHASE_BACKWARD)
            for (int i = 0; i < TM_MAX_IN; i++) node.in[i] = input_for(&p, node.in[i], node.layer);
        append(&p.result, &node);
    }
    free(segment->nodes);
    free(p.passing);
    *segment = p.result;
    tm_arena_destroy(scratch);
}
