/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/head_rope.c - head_norm, a join of two streams' rows, and rope become head_rope (tm_head_rope_pass).
 *
 * Of rows that are not joined only the heads pass through it: what stands behind them (values) is read where the
 * product left it, as far as views read it.
 */
#include "graph/passes/fusing.h"

#include "op/attrs.h"

/* The node of that op that makes a tensor for one reader alone; NULL: there is none. */
static const tm_node *made_by(const fusing *p, tm_tensor_id id, tm_op_id op)
{
    if (tm_graph_base(p->graph, id) != id || p->maker[id] < 0 || p->reads[id] + p->views[id] != 1) return NULL;
    const tm_node *node = &p->graph->segment->nodes[p->maker[id]];
    return node->op == op && node->out[0] == id ? node : NULL;
}

/* What a rope stands behind: one norm of heads, or two of rows that are joined. */
typedef struct {
    const tm_node    *rope, *join, *norm[2];
    tm_head_rope_attr attr;
} chain;

static bool follows(int64_t stride, int64_t head_dim)
{
    return stride == 0 || stride == head_dim;
}

/* Are the heads that a norm norms those that the rope turns, from the first column on? */
static bool fits(const fusing *p, const chain *c, const tm_node *norm)
{
    const tm_rope_attr      *rope = c->rope->attr;
    const tm_head_norm_attr *a = norm->attr;
    bool                     same = a->heads == rope->heads && a->head_dim == rope->head_dim && a->first == 0;
    return same && follows(a->stride, a->head_dim) && p->reads[norm->out[1]] + p->views[norm->out[1]] == 0 &&
           tm_graph_at(p->graph, norm->in[0])->base == TM_NONE;
}

static bool find_chain(const fusing *p, const tm_node *rope, chain *c)
{
    const tm_rope_attr *turns = rope->attr;
    *c = (chain){ .rope = rope, .join = made_by(p, rope->in[0], TM_OP_join) };
    if (turns->first != 0 || !follows(turns->stride, turns->head_dim)) return false;
    const tm_join_attr *rows = c->join ? c->join->attr : NULL;
    for (int k = 0; k < (c->join ? 2 : 1); k++) {
        tm_tensor_id from = c->join ? c->join->in[k] : rope->in[0];
        c->norm[k] = from == TM_NONE ? NULL : made_by(p, from, TM_OP_head_norm);
        if (!c->norm[k] || !fits(p, c, c->norm[k])) return false;
    }
    const tm_head_norm_attr *a = c->norm[0]->attr, *b = c->join ? c->norm[1]->attr : a;
    if (a->eps != b->eps || a->second != b->second) return false;
    if (rows && (rows->samples == 0 || rows->first + rows->second != turns->seq || rope->in[2] != TM_NONE))
        return false;
    c->attr = (tm_head_rope_attr){ .eps = a->eps,
                                   .heads = a->heads,
                                   .head_dim = a->head_dim,
                                   .second = a->second,
                                   .seq = turns->seq,
                                   .layout = turns->layout,
                                   .first_rows = rows ? rows->first : 0 };
    return true;
}

/* Do only views read the result, each of the heads alone or of nothing of them? */
static bool read_apart(const fusing *p, tm_tensor_id y, int64_t heads)
{
    if (p->reads[y] > 0 || tm_graph_at(p->graph, y)->shape.n[1] == heads) return false;
    for (size_t i = 0; i < p->n; i++) {
        const tm_tensor *view = &p->graph->tensors[i];
        if (view->base != y) continue;
        if (view->offset < heads && view->offset + view->shape.n[1] > heads) return false;
    }
    return true;
}

/* The views of y become those of its first columns, `made`, or of `x`, which has the others. */
static void move_views(const fusing *p, tm_tensor_id y, tm_tensor_id made, tm_tensor_id x)
{
    int64_t heads = tm_graph_at(p->graph, made)->shape.n[1], width = tm_graph_at(p->graph, x)->shape.n[1];
    for (size_t i = 0; i < p->n; i++) {
        tm_tensor *view = &p->graph->tensors[i];
        if (view->base != y) continue;
        bool own = view->offset < heads;
        view->base = own ? made : x;
        view->ld = own ? heads : width;
        if (view->ld == view->shape.n[1]) view->ld = 0;
    }
}

/* The node, which is not part of the segment; *apart: only its heads pass through. */
static tm_node fused(fusing *p, const chain *c, bool *apart)
{
    tm_graph    *graph = p->graph;
    tm_segment  *segment = graph->segment;
    tm_node      rope = *c->rope, norm[2] = { *c->norm[0], c->join ? *c->norm[1] : (tm_node){ .op = TM_OP_COUNT } };
    int64_t      heads = c->attr.heads * c->attr.head_dim;
    int          layer = graph->layer;
    const char  *module = graph->module;
    tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT];
    for (int i = 0; i < TM_MAX_IN; i++) in[i] = TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
    graph->layer = rope.layer;
    graph->module = rope.module;
    *apart = !c->join && read_apart(p, rope.out[0], heads);
    in[0] = norm[0].in[0];
    if (*apart) in[0] = tm_graph_view(graph, tm_arena_format(graph->arena, "%s.heads", rope.module), in[0], 0, heads);
    in[1] = norm[0].in[1];
    for (int i = 1; i < 3; i++) in[i + 1] = rope.in[i];
    for (int i = 0; c->join && i < 2; i++) in[i + 4] = norm[1].in[i];
    if (!*apart) out[0] = rope.out[0];
    tm_node made = *tm_graph_add(graph, TM_OP_head_rope, &c->attr, sizeof c->attr, in, out, 0);
    segment->n_nodes--;
    graph->layer = layer;
    graph->module = module;
    made.phase = rope.phase;
    made.keep = rope.keep;
    return made;
}

static void fuse(fusing *p, size_t x)
{
    tm_segment *segment = p->graph->segment;
    size_t      tensors = p->graph->n_tensors;
    chain       c;
    bool        apart;
    if (segment->nodes[x].op != TM_OP_rope || !find_chain(p, &segment->nodes[x], &c)) return;
    int32_t first = p->maker[c.rope->in[0]], norms[2] = { first, first };
    for (int k = 0; c.join && k < 2; k++) norms[k] = p->maker[c.join->in[k]];
    tm_tensor_id y = c.rope->out[0], from = c.norm[0]->in[0];
    tm_node      made = fused(p, &c, &apart); /* what the chain points to may have moved */
    if (!fusing_takes(p, &made)) {
        p->graph->n_tensors = tensors;
        return;
    }
    if (apart) move_views(p, y, made.out[0], from);
    segment->nodes[x] = made;
    p->gone[first] = p->gone[norms[0]] = p->gone[norms[1]] = true;
}

void tm_head_rope_pass(tm_graph *graph, const tm_chooser *chooser)
{
    const size_t nodes = graph->segment->n_nodes;
    fusing       p;
    if (!chooser->fuses) return;
    fusing_open(&p, graph, chooser);
    for (size_t x = 0; x < nodes; x++) fuse(&p, x);
    fusing_close(&p);
}
