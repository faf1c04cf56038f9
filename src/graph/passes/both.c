/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/both.c - one look at a factor of two products (tm_both_pass): `quantize` that gives codes of it as it
 * lies, and `quantize` that gives them transposed, become `quantize_both` where the first of them stood. The same bits.
 */
#include "graph/passes/codes.h"
#include "graph/passes/fusing.h"

#include "op/quantize.h"

#include <string.h>

static const tm_quantize_attr *codes_attr(const tm_node *node)
{
    const tm_quantize_attr *attr = node->op == TM_OP_quantize ? node->attr : NULL;
    return attr && attr->codes ? attr : NULL;
}

/* The same elements of the same memory: views have a tensor each. */
static bool is_same_tensor(const tm_graph *graph, tm_tensor_id a, tm_tensor_id b)
{
    if (a == b) return true;
    if (a == TM_NONE || b == TM_NONE) return false;
    const tm_tensor *x = tm_graph_at(graph, a), *y = tm_graph_at(graph, b);
    return x->base != TM_NONE && x->base == y->base && x->offset == y->offset && x->ld == y->ld &&
           tm_shape_equal(x->shape, y->shape);
}

/* One recipe, one kind of scales, the same parts; one lies, the other one is transposed. Of what each rounds at random
 * by itself no numbers are drawn here. */
static bool is_same_recipe(const tm_quantize_attr *a, const tm_quantize_attr *b)
{
    bool parts = a->n_parts == b->n_parts && a->cut_columns == b->cut_columns &&
                 memcmp(a->end, b->end, (size_t)a->n_parts * sizeof a->end[0]) == 0;
    return parts && a->down != b->down && a->codes == b->codes && !a->lines && !b->lines && !a->recipe[0].stochastic &&
           memcmp(&a->recipe[0], &b->recipe[0], sizeof a->recipe[0]) == 0;
}

static bool writes(const tm_graph *graph, const tm_node *node, tm_tensor_id base)
{
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (node->out[k] != TM_NONE && tm_graph_base(graph, node->out[k]) == base) return true;
    return false;
}

static bool is_pair(const tm_graph *graph, const tm_node *a, const tm_node *b)
{
    const tm_quantize_attr *x = codes_attr(a), *y = codes_attr(b);
    if (!y || a->phase != b->phase || !is_same_recipe(x, y) || !is_same_tensor(graph, a->in[0], b->in[0])) return false;
    for (int i = 2; i <= TM_QUANTIZE_LARGEST; i++) /* counters matter to what is random alone */
        if (a->in[i] != b->in[i]) return false;
    return a->out[1] == b->out[1] && a->accumulate == b->accumulate;
}

/* The node behind x that looks at the same factor for the other direction, before that is written anew; or n. */
static size_t partner_of(const fusing *p, size_t x)
{
    const tm_segment *segment = p->graph->segment;
    const tm_node    *node = &segment->nodes[x];
    tm_tensor_id      base = tm_graph_base(p->graph, node->in[0]);
    for (size_t z = x + 1; z < segment->n_nodes; z++) {
        if (!p->gone[z] && is_pair(p->graph, node, &segment->nodes[z])) return z;
        if (!p->gone[z] && writes(p->graph, &segment->nodes[z], base)) break;
    }
    return segment->n_nodes;
}

static tm_node joined(const tm_graph *graph, const tm_node *a, const tm_node *b)
{
    bool                   turns = codes_attr(a)->down;
    const tm_node         *along = turns ? b : a, *down = turns ? a : b;
    tm_quantize_both_attr *attr = tm_arena_take(graph->arena, sizeof *attr);
    tm_node                node = *a;
    *attr = (tm_quantize_both_attr){ .along = *codes_attr(along), .turned_row = codes_attr(down)->row };
    node.op = TM_OP_quantize_both;
    node.attr = attr;
    node.attr_bytes = sizeof *attr;
    node.in[1] = TM_NONE;
    node.out[0] = along->out[0];
    node.out[TM_QUANTIZE_SCALES] = along->out[TM_QUANTIZE_SCALES];
    node.out[TM_QUANTIZE_TURNED] = down->out[0];
    node.out[TM_QUANTIZE_TURNED_SCALES] = down->out[TM_QUANTIZE_SCALES];
    return node;
}

void tm_both_pass(tm_graph *graph, const tm_chooser *chooser)
{
    tm_segment *segment = graph->segment;
    fusing      p;
    if (!chooser->fuses) return;
    fusing_open(&p, graph, chooser);
    for (size_t x = 0; x < segment->n_nodes; x++) {
        if (p.gone[x] || !codes_attr(&segment->nodes[x])) continue;
        size_t z = partner_of(&p, x);
        if (z == segment->n_nodes) continue;
        tm_node both = joined(graph, &segment->nodes[x], &segment->nodes[z]);
        if (!fusing_takes(&p, &both)) continue;
        segment->nodes[x] = both;
        p.gone[z] = true;
    }
    fusing_close(&p);
}
