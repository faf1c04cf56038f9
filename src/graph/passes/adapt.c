/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* result = base + scale u b^T */
static tm_tensor_id add_product(tm_graph *graph, const tm_adapter *adapter, tm_tensor_id x, tm_tensor_id base,
                                tm_tensor_id first_row, tm_tensor_id result)
{
    tm_tensor_id in[TM_MAX_IN];
    memcpy(in, absent, sizeof in);
    in[0] = base, in[1] = narrow(graph, adapter, x, first_row), in[2] = adapter->b;
    return emit(graph, TM_OP_low_rank, &adapter->attr, sizeof adapter->attr, in, result);
}

/* The output layer, which is one with the loss, adds the product itself. */
static void adapt_loss(tm_graph *graph, const tm_node *node, const tm_adapter *adapter, tm_tensor_id first_row)
{
    tm_loss_attr attr = *(const tm_loss_attr *)node->attr;
    tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT];
    TM_ASSERT(adapter->m == TM_NONE && adapter->attr.parts == 1 && !adapter->next);
    attr.scale = adapter->attr.scale;
    memcpy(in, node->in, sizeof in);
    memcpy(out, node->out, sizeof out);
    in[3] = narrow(graph, adapter, node->in[0], first_row);
    in[4] = adapter->b;
    tm_graph_add(graph, node->op, &attr, sizeof attr, in, out, node->accumulate);
}

/* Of experts, each with an a and a b of its own: base = x w^T + bias, y = base + (scale u) b^T by the rows of each. */
static void adapt_experts(tm_graph *graph, const tm_node *node, const tm_adapter *adapter)
{
    tm_tensor    y = *tm_graph_at(graph, node->out[0]);
    tm_fill_attr factor = { .value = adapter->attr.scale };
    tm_tensor_id base = like(graph, &y, "base"), in[TM_MAX_IN];
    TM_ASSERT(adapter->m == TM_NONE && !adapter->next && !(adapter->dropout.rate > 0));
    emit(graph, node->op, node->attr, node->attr_bytes, node->in, base);
    memcpy(in, absent, sizeof in);
    in[0] = node->in[0], in[1] = adapter->a, in[2] = node->in[2];
    in[0] = emit(graph, TM_OP_grouped_linear, node->attr, node->attr_bytes, in, TM_NONE);
    in[1] = in[2] = TM_NONE;
    in[0] = emit(graph, TM_OP_scale, &factor, sizeof factor, in, TM_NONE);
    in[1] = adapter->b, in[2] = node->in[2], in[4] = base;
    emit(graph, TM_OP_grouped_linear, node->attr, node->attr_bytes, in, node->out[0]);
}

/* base + the products of all adapters of a matrix; the last one goes to `result`. */
static tm_tensor_id add_products(tm_graph *graph, const tm_adapter *adapter, tm_tensor_id x, tm_tensor_id base,
                                 tm_tensor_id first_row, tm_tensor_id result)
{
    tm_tensor like_it = *tm_graph_at(graph, result);
    for (; adapter; adapter = adapter->next)
        base = add_product(graph, adapter, x, base, first_row, adapter->next ? like(graph, &like_it, "part") : result);
    return base;
}

/* The adapted rows of all adapters of a matrix get their lengths; the last one adds bias and residual, too. */
static void rescale(tm_graph *graph, const tm_node *node, const tm_adapter *adapter, const tm_tensor_id *norm,
                    tm_tensor_id z)
{
    tm_tensor y = *tm_graph_at(graph, node->out[0]);
    bool      adds = node->in[3] != TM_NONE;
    for (int k = 0; adapter; adapter = adapter->next, k++) {
        tm_tensor_id in[TM_MAX_IN];
        bool         last = !adapter->next;
        memcpy(in, absent, sizeof in);
        in[0] = z, in[1] = adapter->m, in[2] = norm[k];
        if (last) in[3] = node->in[2], in[4] = node->in[3];
        z = last ? node->out[0] : like(graph, &y, "turned");
        emit(graph, last && adds ? TM_OP_rescale_add : TM_OP_rescale, &adapter->attr, sizeof adapter->attr, in, z);
    }
}

/* The result keeps its tensor, so that whoever reads it, views too, stays as it is. */
static void adapt(tm_graph *graph, const tm_node *node, const tm_adapter *adapter, tm_tensor_id first_row)
{
    tm_tensor    y = *tm_graph_at(graph, node->out[0]);
    tm_tensor_id base = like(graph, &y, "base"), in[TM_MAX_IN], norm[TM_MAX_ADAPTED];
    int          n = 0;
    if (adapter->m == TM_NONE) {
        tm_graph_add(graph, node->op, node->attr, node->attr_bytes, node->in, &base, 0);
        add_products(graph, adapter, node->in[0], base, first_row, node->out[0]);
        return;
    }
    for (const tm_adapter *one = adapter; one; one = one->next) {
        memcpy(in, absent, sizeof in);
        in[0] = node->in[1], in[1] = one->a, in[2] = one->b;
        tm_tensor m = *tm_graph_at(graph, one->m);
        norm[n] = tm_graph_tensor_as(graph, "norm", TM_ROLE_STATISTIC, m.shape, m.dtype); /* equal at first: 1 */
        emit(graph, TM_OP_adapted_norm, &one->attr, sizeof one->attr, in, norm[n++]);
    }
    memcpy(in, absent, sizeof in);
    in[0] = node->in[0], in[1] = node->in[1];
    emit(graph, node->op, node->attr, node->attr_bytes, in, base);
    tm_tensor_id z = add_products(graph, adapter, node->in[0], base, first_row, like(graph, &y, "sum"));
    rescale(graph, node, adapter, norm, z);
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
    *segment = (tm_segment){ .name = was.name };
    for (size_t x = 0; x < was.n_nodes; x++) {
        const tm_node    *node = &was.nodes[x];
        const tm_adapter *adapter = adapter_of(graph, node);
        if (!adapter) {
            segment->nodes = tm_grow(segment->nodes, &segment->capacity, segment->n_nodes, sizeof *segment->nodes);
            segment->nodes[segment->n_nodes++] = *node;
            continue;
        }
        graph->phase = node->phase;
        graph->layer = node->layer;
        graph->module = node->module;
        graph->keep = node->keep;
        if (node->op == TM_OP_grouped_linear)
            adapt_experts(graph, node, adapter);
        else
            (node->op == TM_OP_linear ? adapt : adapt_loss)(graph, node, adapter, first_row);
    }
    graph->phase = phase;
    graph->layer = layer;
    graph->module = module;
    graph->keep = keep;
    free(was.nodes);
}
