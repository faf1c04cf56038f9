/* SPDX-License-Identifier: Apache-2.0 */
/* ring_attention and its gradient (op/ring_attention.c) become attention of chunks and messages.
 *
 *   forward   step s = 0 .. R - 1: the keys and values of the rank s before; pairs of chunks that see each other are
 *             attended to, and merged into o and lse
 *   backward  the same steps; what a pair's gradient gives to keys and values is added to a sum that goes round with
 *             them, and on to their owner behind the last step
 *
 * What is passed on in the next step goes on its way before this one's is computed with. All ranks have the same
 * messages in the same order, whichever pairs they compute. All sums have one order.
 */
#include "graph/passes/passes.h"
#include "op/ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNKS = 2 };

typedef struct {
    tm_graph           *graph;
    const tm_node      *node;
    const tm_ring_attr *ring;
    int64_t             rows, k, v; /* of a chunk of all sequences; columns of keys, of values */
} ring;

static ring begin(tm_graph *graph, const tm_node *node, tm_tensor_id q)
{
    const tm_ring_attr      *attr = node->attr;
    const tm_attention_attr *of = &attr->attention;
    graph->phase = node->phase;
    graph->layer = node->layer;
    graph->module = node->module;
    return (ring){ .graph = graph,
                   .node = node,
                   .ring = attr,
                   .rows = tm_graph_at(graph, q)->shape.n[0] / CHUNKS,
                   .k = of->kv_heads * of->dim_qk,
                   .v = of->kv_heads * of->dim_v };
}

/* Chunk h of a tensor whose first axis is that of rows, or of sequences. TM_NONE stays. */
static tm_tensor_id chunk_of(const ring *r, tm_tensor_id id, int h)
{
    if (id == TM_NONE) return id;
    tm_tensor of = *tm_graph_at(r->graph, id);
    of.shape.n[0] /= CHUNKS;
    return tm_graph_run(r->graph, tm_arena_format(r->graph->arena, "%s.%d", of.name, h), id,
                        h * tm_shape_elements(of.shape), of.shape);
}

/* Keys or values of a chunk. */
static tm_tensor_id columns(const ring *r, tm_tensor_id chunk, bool values)
{
    const char *name = tm_arena_format(r->graph->arena, "%s.%s", r->graph->module, values ? "v" : "k");
    return tm_graph_view(r->graph, name, chunk, values ? r->k : 0, values ? r->v : r->k);
}

static tm_tensor_id pass_on(const ring *r, const char *what, tm_tensor_id x, tm_tensor_id to)
{
    tm_group_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axes = r->ring->axes;
    attr.ranks = r->ring->ranks;
    snprintf(attr.what, sizeof attr.what, "%s of %s", what, r->graph->module);
    tm_tensor_id in[TM_MAX_IN] = { x }, out[TM_MAX_OUT] = { to };
    tm_tensor    like = *tm_graph_at(r->graph, x);
    if (to == TM_NONE)
        out[0] = tm_graph_tensor_as(r->graph, tm_arena_format(r->graph->arena, "%s.passed", r->graph->module),
                                    like.role, like.shape, like.dtype);
    tm_graph_add(r->graph, TM_OP_pass_on, &attr, sizeof attr, in, out, 0);
    return out[0];
}

/* The one for the next step. */
static tm_tensor_id next_keys(const ring *r, int64_t step, tm_tensor_id kv)
{
    return step + 1 < r->ring->ranks ? pass_on(r, "keys and values", kv, TM_NONE) : TM_NONE;
}

static void add_to(const ring *r, tm_tensor_id sum, tm_tensor_id value)
{
    tm_tensor_id in[TM_MAX_IN] = { sum, value }, out[TM_MAX_OUT] = { sum };
    tm_graph_add(r->graph, TM_OP_add, NULL, 0, in, out, 0);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static void attend(const ring *r, const tm_attention_attr *attr, int h, tm_tensor_id keys, bool sinks, bool begun)
{
    const tm_tensor_id *in = r->node->in, *out = r->node->out;
    tm_tensor_id        whole[TM_MAX_OUT] = { chunk_of(r, out[0], h), chunk_of(r, out[1], h) };
    tm_tensor_id        made[TM_MAX_OUT] = { TM_NONE, TM_NONE };
    tm_tensor_id        from[TM_MAX_IN] = { chunk_of(r, in[0], h), columns(r, keys, false), columns(r, keys, true),
                                            chunk_of(r, in[2], h), sinks ? in[3] : TM_NONE };
    tm_graph_add(r->graph, TM_OP_attention, attr, sizeof *attr, from, begun ? made : whole, 0);
    if (!begun) return;
    tm_tensor_id both[TM_MAX_IN] = { whole[0], whole[1], made[0], made[1] };
    tm_graph_add(r->graph, TM_OP_merge_attention, attr, sizeof *attr, both, whole, 0);
}

static void expand(tm_graph *graph, const tm_node *node)
{
    ring              r = begin(graph, node, node->in[0]);
    tm_attention_attr attr;
    bool              begun[CHUNKS] = { false };
    tm_tensor_id      kv = node->in[1], next;
    for (int64_t step = 0; step < r.ring->ranks; step++, kv = next) {
        next = next_keys(&r, step, kv);
        for (int h = 0; h < CHUNKS; h++)
            for (int of = 0; of < CHUNKS; of++) {
                if (!tm_ring_sees(r.ring, step, h, of, &attr)) continue;
                attend(&r, &attr, h, chunk_of(&r, kv, of), step == 0 && of == h, begun[h]);
                begun[h] = true;
            }
    }
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

enum { D_O, Q, KV, O, LSE, FIRST_KEY, SINKS };

/* The sums of the backward pass, which have begun or not. */
typedef struct {
    tm_tensor_id dkv; /* goes round */
    bool         dq_begun[CHUNKS], dkv_begun[CHUNKS], dsinks_begun;
} gradients;

static void attend_grad(const ring *r, const tm_attention_attr *attr, int h, int of, tm_tensor_id kv, bool sinks,
                        gradients *g)
{
    const tm_tensor_id *in = r->node->in, *out = r->node->out;
    tm_graph           *graph = r->graph;
    tm_tensor_id        keys = chunk_of(r, kv, of), dq = chunk_of(r, out[0], h), dkv = chunk_of(r, g->dkv, of);
    tm_tensor           like = *tm_graph_at(graph, dkv);
    tm_tensor_id        own = dkv, made[TM_MAX_OUT] = { dq, TM_NONE, TM_NONE, TM_NONE };
    unsigned            accumulate = 0;
    if (g->dkv_begun[of])
        own = tm_graph_tensor_as(graph, tm_arena_format(graph->arena, "%s.term", like.name), like.role, like.shape,
                                 like.dtype);
    if (g->dq_begun[h]) made[0] = TM_NONE;
    made[1] = columns(r, own, false);
    made[2] = columns(r, own, true);
    tm_tensor_id from[TM_MAX_IN] = { chunk_of(r, in[D_O], h),       chunk_of(r, in[Q], h),
                                     columns(r, keys, false),       columns(r, keys, true),
                                     chunk_of(r, in[O], h),         chunk_of(r, in[LSE], h),
                                     chunk_of(r, in[FIRST_KEY], h), TM_NONE };
    if (sinks && out[2] != TM_NONE) {
        from[7] = in[SINKS];
        made[3] = out[2];
        if (g->dsinks_begun || (r->node->accumulate >> 2 & 1U)) accumulate = 1U << 3;
        g->dsinks_begun = true;
    }
    tm_graph_add(graph, TM_OP_attention_grad, attr, sizeof *attr, from, made, accumulate);
    if (g->dq_begun[h]) add_to(r, dq, made[0]);
    if (g->dkv_begun[of]) add_to(r, dkv, own);
    g->dq_begun[h] = g->dkv_begun[of] = true;
}

static void expand_grad(tm_graph *graph, const tm_node *node)
{
    ring              r = begin(graph, node, node->in[Q]);
    tm_attention_attr attr;
    gradients         g = { .dkv = node->out[1] };
    tm_tensor_id      kv = node->in[KV], next;
    tm_tensor         like = *tm_graph_at(graph, kv);
    if (r.ring->ranks > 1)
        g.dkv = tm_graph_tensor_as(graph, tm_arena_format(graph->arena, "%s.sum", graph->module), like.role, like.shape,
                                   like.dtype);
    for (int64_t step = 0; step < r.ring->ranks; step++, kv = next) {
        next = next_keys(&r, step, kv);
        if (step > 0) g.dkv = pass_on(&r, "gradients of keys and values", g.dkv, TM_NONE);
        for (int h = 0; h < CHUNKS; h++)
            for (int of = 0; of < CHUNKS; of++)
                if (tm_ring_sees(r.ring, step, h, of, &attr))
                    attend_grad(&r, &attr, h, of, kv, step == 0 && of == h, &g);
    }
    if (r.ring->ranks > 1) pass_on(&r, "gradients of keys and values", g.dkv, node->out[1]);
}

void tm_ring_pass(tm_graph *graph)
{
    tm_segment *segment = graph->segment, old = *segment;
    tm_phase    phase = graph->phase;
    int         layer = graph->layer;
    const char *module = graph->module;
    segment->nodes = NULL;
    segment->n_nodes = segment->capacity = 0;
    for (size_t x = 0; x < old.n_nodes; x++) {
        const tm_node *node = &old.nodes[x];
        if (node->op == TM_OP_ring_attention) {
            expand(graph, node);
        } else if (node->op == TM_OP_ring_attention_grad) {
            expand_grad(graph, node);
        } else {
            segment->nodes = tm_grow(segment->nodes, &segment->capacity, segment->n_nodes, sizeof *segment->nodes);
            segment->nodes[segment->n_nodes++] = *node;
        }
    }
    graph->phase = phase;
    graph->layer = layer;
    graph->module = module;
    free(old.nodes);
}
