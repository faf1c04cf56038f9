/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/cut.h"
#include "graph/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    tm_graph         *graph;
    const tm_segment *was; /* without adapters */
    tm_tensor_id      first_row;
    tm_tensor_id     *made; /* (tensors): of the lengths m of rows their norms n; of rows that the output layer
                             * multiplies their product with a; TM_NONE: not yet */
} pass;

static const tm_adapter *adapter_of(const tm_graph *graph, const tm_node *node)
{
    bool product =
        node->op == TM_OP_linear || node->op == TM_OP_linear_cross_entropy || node->op == TM_OP_grouped_linear;
    if (!product || node->in[1] == TM_NONE) return NULL;
    return tm_graph_at(graph, node->in[1])->adapter;
}

static const tm_tensor_id absent[TM_MAX_IN] = { TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE,
                                                TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE };

/* The result goes to `out`, or to a new tensor (TM_NONE). */
static tm_tensor_id emit(tm_graph *graph, tm_op_id op, const void *attr, size_t attr_bytes,
                         const tm_tensor_id in[TM_MAX_IN], tm_tensor_id out)
{
    tm_tensor_id results[TM_MAX_OUT] = { out, TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE };
    tm_graph_add(graph, op, attr, attr_bytes, in, results, 0);
    return results[0];
}

static tm_tensor_id like(tm_graph *graph, const tm_tensor *y, const char *suffix)
{
    char name[200];
    snprintf(name, sizeof name, "%.180s.%s", y->name, suffix);
    return tm_graph_tensor_as(graph, name, y->role, y->shape, y->dtype);
}

/* u = drop(x) a^T */
static tm_tensor_id narrow(tm_graph *graph, const tm_adapter *adapter, tm_tensor_id x, tm_tensor_id first_row)
{
    tm_tensor_id in[TM_MAX_IN];
    memcpy(in, absent, sizeof in);
    if (adapter->dropout.rate > 0 && first_row != TM_NONE) {
        in[0] = x, in[1] = first_row;
        x = emit(graph, TM_OP_dropout, &adapter->dropout, sizeof adapter->dropout, in, TM_NONE);
    }
    in[0] = x, in[1] = adapter->a;
    return emit(graph, TM_OP_linear, NULL, 0, in, TM_NONE);
}

/* The node that splits rows, of which x are some; NULL: there is none. */
static const tm_node *splitter_of(const pass *p, tm_tensor_id x)
{
    for (size_t i = 0; i < p->was->n_nodes; i++) {
        const tm_node *node = &p->was->nodes[i];
        if (node->op == TM_OP_split && (node->out[0] == x || node->out[1] == x)) return node;
    }
    return NULL;
}

/* u of rows for the output layer. Where its logits are made in chunks of rows (model/tensor.c), u is made of all rows,
 * which is what dropout goes by, and split as they are. */
static tm_tensor_id narrow_rows(pass *p, const tm_adapter *adapter, tm_tensor_id x)
{
    const tm_node *splits = splitter_of(p, x);
    if (p->made[x] != TM_NONE) return p->made[x];
    if (!splits) return p->made[x] = narrow(p->graph, adapter, x, p->first_row);
    tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT] = { TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE };
    memcpy(in, absent, sizeof in);
    in[0] = narrow_rows(p, adapter, splits->in[0]);
    tm_graph_add(p->graph, TM_OP_split, splits->attr, splits->attr_bytes, in, out, 0);
    p->made[splits->out[0]] = out[0];
    p->made[splits->out[1]] = out[1];
    return p->made[x];
}

/* result = base + scale u b^T */
static tm_tensor_id add_product(tm_graph *graph, const tm_adapter *adapter, tm_tensor_id u, tm_tensor_id base,
                                tm_tensor_id result)
{
    tm_tensor_id in[TM_MAX_IN];
    memcpy(in, absent, sizeof in);
    in[0] = base, in[1] = u, in[2] = adapter->b;
    return emit(graph, TM_OP_low_rank, &adapter->attr, sizeof adapter->attr, in, result);
}

/* The output layer, which is one with the loss, adds the product itself. */
static void adapt_loss(pass *p, const tm_node *node, const tm_adapter *adapter)
{
    tm_loss_attr attr = *(const tm_loss_attr *)node->attr;
    tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT];
    TM_ASSERT(adapter->m == TM_NONE && adapter->attr.parts == 1 && !adapter->next); /* else: tm_vocabulary_turned */
    attr.scale = adapter->attr.scale;
    memcpy(in, node->in, sizeof in);
    memcpy(out, node->out, sizeof out);
    in[3] = narrow(p->graph, adapter, node->in[0], p->first_row);
    in[4] = adapter->b;
    tm_graph_add(p->graph, node->op, &attr, sizeof attr, in, out, node->accumulate);
}

/* Of experts, each with an a and a b of its own, or with those that all of them share: base = x w^T + bias, y = base +
 * (scale u) b^T by the rows of each, or of all. */
static void adapt_experts(pass *p, const tm_node *node, const tm_adapter *adapter)
{
    tm_graph    *graph = p->graph;
    tm_tensor    y = *tm_graph_at(graph, node->out[0]);
    tm_fill_attr factor = { .value = adapter->attr.scale };
    tm_tensor_id base = like(graph, &y, "base"), in[TM_MAX_IN];
    TM_ASSERT(adapter->m == TM_NONE && !adapter->next && !(adapter->dropout.rate > 0));
    emit(graph, node->op, node->attr, node->attr_bytes, node->in, base);
    memcpy(in, absent, sizeof in);
    tm_tensor_id offsets = in[0] = node->in[2];
    if (tm_graph_at(graph, adapter->a)->shape.n[0] != tm_graph_at(graph, node->in[1])->shape.n[0])
        offsets = emit(graph, TM_OP_expert_span, NULL, 0, in, TM_NONE);
    in[0] = node->in[0], in[1] = adapter->a, in[2] = offsets;
    in[0] = emit(graph, TM_OP_grouped_linear, node->attr, node->attr_bytes, in, TM_NONE);
    in[1] = in[2] = TM_NONE;
    in[0] = emit(graph, TM_OP_scale, &factor, sizeof factor, in, TM_NONE);
    in[1] = adapter->b, in[2] = offsets, in[4] = base;
    emit(graph, TM_OP_grouped_linear, node->attr, node->attr_bytes, in, node->out[0]);
}

/* base + the products of all adapters of a matrix; the last one goes to `result`. */
static tm_tensor_id add_products(pass *p, const tm_node *node, const tm_adapter *adapter, tm_tensor_id base,
                                 tm_tensor_id result)
{
    tm_tensor like_it = *tm_graph_at(p->graph, result);
    bool      head = tm_graph_at(p->graph, node->in[1])->head;
    for (; adapter; adapter = adapter->next) {
        p->graph->keep = head ? TM_KEEP_BY_POLICY : node->keep; /* logits may be made again, u is not */
        tm_tensor_id u =
            head ? narrow_rows(p, adapter, node->in[0]) : narrow(p->graph, adapter, node->in[0], p->first_row);
        p->graph->keep = node->keep;
        tm_tensor_id to = adapter->next ? like(p->graph, &like_it, "part") : result;
        base = add_product(p->graph, adapter, u, base, to);
    }
    return base;
}

/* The lengths of the adapted rows of w, as far as they are here, with the product of an adapter added. */
static tm_tensor_id norms_here(pass *p, tm_tensor_id w, const tm_adapter *one, tm_dtype dtype)
{
    tm_tensor_id in[TM_MAX_IN], norm;
    memcpy(in, absent, sizeof in);
    in[0] = w, in[1] = one->a, in[2] = one->b;
    norm = tm_graph_tensor_as(p->graph, "norm", TM_ROLE_STATISTIC, tm_graph_at(p->graph, one->m)->shape, dtype);
    return emit(p->graph, TM_OP_adapted_norm, &one->attr, sizeof one->attr, in, norm);
}

/* Those of all ranks of the group that divides the columns, one behind the other. */
static tm_tensor_id gathered_norms(pass *p, tm_tensor_id w, const tm_adapter *one)
{
    const tm_cut *cut = tm_graph_at(p->graph, w)->cut;
    tm_group_attr attr;
    tm_tensor_id  in[TM_MAX_IN];
    memset(&attr, 0, sizeof attr);
    attr.axes = cut->axes;
    attr.ranks = cut->ranks;
    snprintf(attr.what, sizeof attr.what, "lengths of rows of %.40s", p->graph->module);
    memcpy(in, absent, sizeof in);
    in[0] = norms_here(p, w, one, p->graph->precision->wide);
    tm_tensor    part = *tm_graph_at(p->graph, in[0]);
    tm_tensor_id all =
        tm_graph_tensor_as(p->graph, "norms", TM_ROLE_STATISTIC, tm_shape_1(part.shape.n[0] * cut->ranks), part.dtype);
    return emit(p->graph, TM_OP_all_gather, &attr, sizeof attr, in, all);
}

/* Another parameter with columns of the same rows (single blocks of FLUX have two), and its adapter; or TM_NONE. */
static tm_tensor_id rest_of(const tm_graph *graph, tm_tensor_id w, tm_tensor_id m, const tm_adapter **its)
{
    for (size_t i = 0; i < graph->n_tensors; i++) {
        *its = graph->tensors[i].adapter;
        if (*its && (tm_tensor_id)i != w && (*its)->m == m) return (tm_tensor_id)i;
    }
    return TM_NONE;
}

/* n of one adapter of the matrix w (op/rescale.c). */
static tm_tensor_id norm_of(pass *p, tm_tensor_id w, const tm_adapter *one)
{
    const tm_tensor   m = *tm_graph_at(p->graph, one->m), matrix = *tm_graph_at(p->graph, w);
    const tm_adapter *other;
    if (p->made[one->m] != TM_NONE) return p->made[one->m];
    if (!tm_cut_by_columns(&matrix)) return p->made[one->m] = norms_here(p, w, one, m.dtype); /* equal at first: 1 */
    tm_joined_attr attr = { .parts = matrix.cut->ranks };
    tm_tensor_id   in[TM_MAX_IN], rest = rest_of(p->graph, w, one->m, &other);
    memcpy(in, absent, sizeof in);
    in[0] = gathered_norms(p, w, one);
    if (rest != TM_NONE) in[1] = gathered_norms(p, rest, other);
    tm_tensor_id norm = tm_graph_tensor_as(p->graph, "norm", TM_ROLE_STATISTIC, m.shape, m.dtype);
    return p->made[one->m] = emit(p->graph, TM_OP_joined_norm, &attr, sizeof attr, in, norm);
}

/* The adapted rows of all adapters of a matrix get their lengths; the last one adds bias and residual, too. */
static void rescale(pass *p, const tm_node *node, const tm_adapter *adapter, const tm_tensor_id *norm, tm_tensor_id z)
{
    tm_tensor y = *tm_graph_at(p->graph, node->out[0]);
    bool      adds = node->in[3] != TM_NONE;
    for (int k = 0; adapter; adapter = adapter->next, k++) {
        tm_tensor_id in[TM_MAX_IN];
        bool         last = !adapter->next;
        memcpy(in, absent, sizeof in);
        in[0] = z, in[1] = adapter->m, in[2] = norm[k];
        if (last) in[3] = node->in[2], in[4] = node->in[3];
        z = last ? node->out[0] : like(p->graph, &y, "turned");
        emit(p->graph, last && adds ? TM_OP_rescale_add : TM_OP_rescale, &adapter->attr, sizeof adapter->attr, in, z);
    }
}

/* The result keeps its tensor, so that whoever reads it, views too, stays as it is. */
static void adapt(pass *p, const tm_node *node, const tm_adapter *adapter)
{
    tm_tensor    y = *tm_graph_at(p->graph, node->out[0]);
    tm_tensor_id base = like(p->graph, &y, "base"), in[TM_MAX_IN], norm[TM_MAX_ADAPTED];
    int          n = 0;
    if (adapter->m == TM_NONE) {
        tm_graph_add(p->graph, node->op, node->attr, node->attr_bytes, node->in, &base, 0);
        add_products(p, node, adapter, base, node->out[0]);
        return;
    }
    p->graph->keep = TM_KEEP_BY_POLICY; /* few numbers that cost a pass over the weights */
    for (const tm_adapter *one = adapter; one; one = one->next) norm[n++] = norm_of(p, node->in[1], one);
    p->graph->keep = node->keep;
    memcpy(in, absent, sizeof in);
    in[0] = node->in[0], in[1] = node->in[1];
    emit(p->graph, node->op, node->attr, node->attr_bytes, in, base);
    tm_tensor_id z = add_products(p, node, adapter, base, like(p->graph, &y, "sum"));
    rescale(p, node, adapter, norm, z);
}

static void adapt_node(pass *p, const tm_node *node, const tm_adapter *adapter)
{
    tm_graph *graph = p->graph;
    graph->phase = node->phase;
    graph->layer = node->layer;
    graph->module = node->module;
    graph->keep = node->keep;
    if (node->op == TM_OP_grouped_linear)
        adapt_experts(p, node, adapter);
    else
        (node->op == TM_OP_linear ? adapt : adapt_loss)(p, node, adapter);
}

void tm_adapt_pass(tm_graph *graph, tm_tensor_id first_row)
{
    tm_segment *segment = graph->segment, was = *segment;
    bool        any = false;
    for (size_t x = 0; x < was.n_nodes; x++) any = any || adapter_of(graph, &was.nodes[x]);
    if (!any) return;
    tm_phase    phase = graph->phase;
    int         layer = graph->layer;
    const char *module = graph->module;
    tm_keep     keep = graph->keep;
    pass        p = { .graph = graph, .was = &was, .first_row = first_row };
    p.made = tm_alloc(graph->n_tensors * sizeof *p.made);
    for (size_t i = 0; i < graph->n_tensors; i++) p.made[i] = TM_NONE;
    *segment = (tm_segment){ .name = was.name };
    for (size_t x = 0; x < was.n_nodes; x++) {
        const tm_adapter *adapter = adapter_of(graph, &was.nodes[x]);
        if (adapter) {
            adapt_node(&p, &was.nodes[x], adapter);
            continue;
        }
        segment->nodes = tm_grow(segment->nodes, &segment->capacity, segment->n_nodes, sizeof *segment->nodes);
        segment->nodes[segment->n_nodes++] = was.nodes[x];
    }
    graph->phase = phase;
    graph->layer = layer;
    graph->module = module;
    graph->keep = keep;
    free(p.made);
    free(was.nodes);
}
