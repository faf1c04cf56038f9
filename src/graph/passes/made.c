/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/made.c - factors that never are in memory (tm_made_pass): an activation function or its gradient, whose
 * result nothing but `quantize` and `quantize_both` reads, becomes a part of these: `quantize_made`. The same bits.
 */
#include "graph/passes/codes.h"
#include "graph/passes/fusing.h"

#include "op/quantize.h"

static int maker_of(const tm_node *node)
{
    for (int maker = TM_MADE_NOT + 1; maker < TM_MADE_KINDS; maker++)
        if (tm_op_id_of(tm_quantize_maker_op(maker)) == node->op) return maker;
    return TM_MADE_NOT;
}

static bool writes(const tm_graph *graph, const tm_node *node, tm_tensor_id base)
{
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (node->out[k] != TM_NONE && tm_graph_base(graph, node->out[k]) == base) return true;
    return false;
}

/* Are the inputs of node `maker` what they were when node `reader` runs? */
static bool stay(const fusing *p, size_t maker, size_t reader)
{
    const tm_segment *segment = p->graph->segment;
    for (size_t x = maker + 1; x < reader; x++)
        for (int i = 0; i < 2 && !p->gone[x]; i++) {
            tm_tensor_id in = segment->nodes[maker].in[i];
            if (in != TM_NONE && writes(p->graph, &segment->nodes[x], tm_graph_base(p->graph, in))) return false;
        }
    return true;
}

/* The attributes of a node that gives codes of x alone, with scales that are found here or were before. */
static bool takes_attr(const tm_node *node, tm_quantize_both_attr *attr)
{
    bool both = node->op == TM_OP_quantize_both;
    if (both)
        *attr = *(const tm_quantize_both_attr *)node->attr;
    else if (node->op == TM_OP_quantize)
        *attr = (tm_quantize_both_attr){ .along = *(const tm_quantize_attr *)node->attr };
    else
        return false;
    if (!attr->along.codes || attr->along.recipe[0].stochastic || attr->along.lines) return false;
    return node->in[TM_QUANTIZE_OFFSETS] == TM_NONE && node->in[TM_QUANTIZE_LARGEST] == TM_NONE;
}

/* What is to stand in the place of node `reader`. */
static bool made_of(const fusing *p, size_t maker, size_t reader, tm_node *node)
{
    const tm_node         *made = &p->graph->segment->nodes[maker], *read = &p->graph->segment->nodes[reader];
    tm_quantize_both_attr  of;
    tm_quantize_both_attr *attr;
    if (!takes_attr(read, &of) || !stay(p, maker, reader)) return false;
    of.maker = (uint8_t)maker_of(made);
    of.as = (uint8_t)tm_graph_at(p->graph, made->out[0])->dtype;
    attr = tm_arena_take(p->graph->arena, sizeof *attr);
    *attr = of;
    *node = *read;
    node->op = TM_OP_quantize_made;
    node->attr = attr;
    node->attr_bytes = sizeof *attr;
    for (int i = 0; i < TM_MAX_IN; i++) node->in[i] = i < 2 ? made->in[i] : i == 2 ? read->in[2] : TM_NONE;
    return fusing_takes(p, node);
}

/* All who read what node x makes, or none of them. */
static void make_on_the_way(fusing *p, size_t x)
{
    enum { MOST = 4 };
    tm_segment   *segment = p->graph->segment;
    const tm_node maker = segment->nodes[x];
    tm_node       node[MOST];
    size_t        at[MOST];
    int           n = 0;
    tm_tensor_id  made = maker.out[0];
    if (!maker_of(&maker) || p->maker[made] != (int32_t)x || p->views[made] > 0) return;
    if (maker.rounded || maker.accumulate || p->reads[made] == 0 || p->reads[made] > MOST) return;
    for (size_t z = x + 1; z < segment->n_nodes; z++) {
        if (p->gone[z] || segment->nodes[z].in[0] != made) continue;
        if (n == MOST || !made_of(p, x, z, &node[n])) return;
        at[n++] = z;
    }
    if (n < p->reads[made]) return;
    for (int i = 0; i < n; i++) segment->nodes[at[i]] = node[i];
    p->gone[x] = true;
}

void tm_made_pass(tm_graph *graph, const tm_chooser *chooser)
{
    fusing p;
    if (!chooser->fuses) return;
    fusing_open(&p, graph, chooser);
    for (size_t x = 0; x < graph->segment->n_nodes; x++) make_on_the_way(&p, x);
    fusing_close(&p);
}
