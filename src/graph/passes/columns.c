/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/columns.c - fewer passes over the columns of joined matrices, and over what gelu's gradient leaves
 * (tm_columns_pass).
 *
 *   gelu_grad, then bias_grad of its result          one node: gelu_bias_grad
 *   a part of split's by columns                     a view, if all who read it take one
 *   a part of join's by columns                      is made in its place, if its maker can and nobody else reads it
 *
 * Of a join or split of which one part is a view the other one is copied: the same bits.
 */
#include "graph/passes/fusing.h"

#include "op/attrs.h"

static tm_tensor_id columns_of(const fusing *p, tm_tensor_id whole, int64_t first, int64_t columns)
{
    char *name = tm_arena_format(p->graph->arena, "%s.%lld", tm_graph_at(p->graph, whole)->name, (long long)first);
    return tm_graph_view(p->graph, name, whole, first, columns);
}

/* The node in the place of `like` that copies x to y. */
static tm_node copying(const tm_node *like, tm_tensor_id x, tm_tensor_id y)
{
    tm_node node = *like;
    node.op = TM_OP_copy;
    node.attr = NULL;
    node.attr_bytes = 0;
    for (int i = 0; i < TM_MAX_IN; i++) node.in[i] = i == 0 ? x : TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) node.out[k] = k == 0 ? y : TM_NONE;
    return node;
}

/* --- gradients of a bias
 * ------------------------------------------------------------------------------------------------- */

/* Does a node from `begin` on, before `end`, read or write this gradient? */
static bool is_used_between(const fusing *p, size_t begin, size_t end, tm_tensor_id gradient)
{
    for (size_t x = begin; x < end; x++) {
        const tm_node *node = &p->graph->segment->nodes[x];
        for (int i = 0; i < TM_MAX_IN; i++)
            if (node->in[i] != TM_NONE && tm_graph_base(p->graph, node->in[i]) == gradient) return true;
        for (int k = 0; k < TM_MAX_OUT; k++)
            if (node->out[k] != TM_NONE && tm_graph_base(p->graph, node->out[k]) == gradient) return true;
    }
    return false;
}

static void sum_on_the_way(fusing *p, size_t x)
{
    tm_node       *nodes = p->graph->segment->nodes;
    const tm_node *sum = &nodes[x];
    if (sum->op != TM_OP_bias_grad || sum->in[0] == TM_NONE || p->maker[sum->in[0]] < 0) return;
    size_t   at = (size_t)p->maker[sum->in[0]];
    tm_node *grad = &nodes[at], both = *grad;
    if (grad->op != TM_OP_gelu_grad || at > x || tm_graph_base(p->graph, sum->out[0]) != sum->out[0]) return;
    if (tm_graph_at(p->graph, grad->in[1])->shape.rank != 2 || is_used_between(p, at, x, sum->out[0])) return;
    both.op = TM_OP_gelu_bias_grad;
    both.out[1] = sum->out[0];
    both.accumulate = (sum->accumulate & 1U) << 1;
    if (!fusing_takes(p, &both)) return;
    *grad = both;
    p->gone[x] = true;
}

/* --- columns of split and join
 * -------------------------------------------------------------------------------------------- */

/* Does the node, as it is or with `view` in the place of `id`, read it only where it takes views? */
static bool takes_view(const fusing *p, const tm_node *node, tm_tensor_id id, tm_tensor_id view)
{
    tm_node with = *node;
    bool    reads = false;
    for (int i = 0; i < TM_MAX_IN; i++) {
        if (node->in[i] != id) continue;
        if (!(tm_op_get(node->op)->strided_in >> i & 1U)) return false;
        with.in[i] = view;
        reads = true;
    }
    return !reads || fusing_takes(p, &with);
}

/* True: who read the part reads the view now. */
static bool read_in_place(fusing *p, tm_tensor_id part, tm_tensor_id view)
{
    tm_segment *segment = p->graph->segment;
    if (p->views[part] > 0 || p->maker[part] < 0) return false;
    for (size_t x = 0; x < segment->n_nodes; x++)
        if (!p->gone[x] && !takes_view(p, &segment->nodes[x], part, view)) return false;
    for (size_t x = 0; x < segment->n_nodes; x++)
        for (int i = 0; i < TM_MAX_IN; i++)
            if (segment->nodes[x].in[i] == part) segment->nodes[x].in[i] = view;
    return true;
}

/* True: who made the part for a join alone makes it in the view now. */
static bool make_in_place(fusing *p, tm_tensor_id part, tm_tensor_id view)
{
    if (tm_graph_base(p->graph, part) != part || p->maker[part] < 0 || p->reads[part] != 1 || p->views[part] > 0)
        return false;
    tm_node *maker = &p->graph->segment->nodes[p->maker[part]], with = *maker;
    for (int k = 0; k < TM_MAX_OUT; k++) {
        if (maker->out[k] != part) continue;
        with.out[k] = view;
        if (!(tm_op_get(maker->op)->strided_out >> k & 1U) || maker->accumulate >> k & 1U || !fusing_takes(p, &with))
            return false;
    }
    *maker = with;
    return true;
}

/* One who has no part in its place stays; the view of the other part is made anew where it is copied. */
static void take_apart(fusing *p, size_t x)
{
    tm_node             node = p->graph->segment->nodes[x];
    const tm_join_attr *attr = node.attr;
    bool                joins = node.op == TM_OP_join, placed[2];
    if ((!joins && node.op != TM_OP_split) || attr->samples > 0) return;
    tm_tensor_id whole = joins ? node.out[0] : node.in[0], view[2], *part = joins ? node.in : node.out;
    if (part[0] == TM_NONE || part[1] == TM_NONE || part[0] == part[1]) return;
    if (tm_graph_base(p->graph, whole) != whole || p->maker[whole] == FUSING_NOBODY) return;
    view[0] = columns_of(p, whole, 0, attr->first);
    view[1] = columns_of(p, whole, attr->first, attr->second);
    tm_node one = joins ? copying(&node, part[0], view[0]) : copying(&node, view[0], part[0]);
    if (!fusing_takes(p, &one)) return;
    p->gone[x] = true;
    for (int k = 0; k < 2; k++)
        placed[k] = joins ? make_in_place(p, part[k], view[k]) : read_in_place(p, part[k], view[k]);
    if (placed[0] && placed[1]) return;
    p->gone[x] = false;
    if (!placed[0] && !placed[1]) return;
    int k = placed[0] ? 1 : 0;
    p->graph->segment->nodes[x] = joins ? copying(&node, part[k], view[k]) : copying(&node, view[k], part[k]);
}

void tm_columns_pass(tm_graph *graph, const tm_chooser *chooser)
{
    const size_t nodes = graph->segment->n_nodes;
    fusing       p;
    if (!chooser->fuses) return;
    fusing_open(&p, graph, chooser);
    for (size_t x = 0; x < nodes; x++) sum_on_the_way(&p, x);
    for (size_t x = 0; x < nodes; x++) take_apart(&p, x);
    fusing_close(&p);
}
