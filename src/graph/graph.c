/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"

#include "graph/nf4.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tm_graph *tm_graph_create(const tm_precision *precision)
{
    tm_graph *graph = tm_alloc(sizeof *graph);
    graph->arena = tm_arena_create();
    graph->precision = precision;
    graph->layer = -1;
    graph->module = "";
    return graph;
}

void tm_graph_destroy(tm_graph *graph)
{
    if (!graph) return;
    for (size_t i = 0; i < graph->n_segments; i++) free(graph->segments[i]->nodes);
    free(graph->segments);
    free(graph->tensors);
    tm_arena_destroy(graph->arena);
    free(graph);
}

tm_segment *tm_graph_segment(tm_graph *graph, const char *name)
{
    tm_segment *segment = tm_arena_take(graph->arena, sizeof *segment);
    graph->segments = tm_grow(graph->segments, &graph->segments_capacity, graph->n_segments, sizeof *graph->segments);
    graph->segments[graph->n_segments++] = segment;
    segment->name = tm_arena_text(graph->arena, name);
    graph->segment = segment;
    return segment;
}

tm_tensor *tm_graph_at(const tm_graph *graph, tm_tensor_id id)
{
    TM_ASSERT(id >= 0 && (size_t)id < graph->n_tensors);
    return &graph->tensors[id];
}

tm_tensor_id tm_graph_tensor(tm_graph *graph, const char *name, tm_role role, tm_shape shape)
{
    return tm_graph_tensor_as(graph, name, role, shape, tm_precision_of(graph->precision, role));
}

tm_tensor_id tm_graph_tensor_as(tm_graph *graph, const char *name, tm_role role, tm_shape shape, tm_dtype dtype)
{
    TM_ASSERT(tm_shape_elements(shape) > 0);
    graph->tensors = tm_grow(graph->tensors, &graph->tensors_capacity, graph->n_tensors, sizeof *graph->tensors);
    graph->tensors[graph->n_tensors] = (tm_tensor){ .name = tm_arena_text(graph->arena, name),
                                                    .role = role,
                                                    .dtype = dtype,
                                                    .shape = shape,
                                                    .layer = graph->layer,
                                                    .gradient = TM_NONE,
                                                    .lookup_gradient = TM_NONE,
                                                    .adapts = TM_NONE,
                                                    .base = TM_NONE };
    return (tm_tensor_id)graph->n_tensors++;
}

tm_tensor_id tm_graph_view(tm_graph *graph, const char *name, tm_tensor_id base, int64_t column, int64_t columns)
{
    tm_tensor of = *tm_graph_at(graph, base);
    TM_ASSERT(of.shape.rank == 2 && column >= 0 && columns > 0 && column + columns <= of.shape.n[1]);
    TM_ASSERT(tm_dtype_bits(of.dtype) % 8 == 0);
    tm_tensor_id id = tm_graph_tensor_as(graph, name, of.role, tm_shape_2(of.shape.n[0], columns), of.dtype);
    tm_tensor   *view = tm_graph_at(graph, id);
    view->layer = of.layer;
    view->space = of.space;
    view->base = of.base == TM_NONE ? base : of.base;
    view->offset = of.offset + column;
    view->ld = of.ld ? of.ld : of.shape.n[1];
    if (view->ld == columns) view->ld = 0;
    return id;
}

tm_tensor_id tm_graph_view_like(tm_graph *graph, const tm_tensor *view, tm_tensor_id base)
{
    char      name[200];
    tm_tensor of = *tm_graph_at(graph, base);
    TM_ASSERT(of.base == TM_NONE && of.shape.rank <= 2); /* a view's offset in a matrix is its column */
    snprintf(name, sizeof name, "%.190s.%lld", of.name, (long long)view->offset);
    int64_t first = view->offset;
    if (of.shape.rank == 1) return tm_graph_run(graph, name, base, first, view->shape);
    return tm_graph_view(graph, name, base, view->offset, view->shape.n[1]);
}

tm_tensor_id tm_graph_run(tm_graph *graph, const char *name, tm_tensor_id base, int64_t first, tm_shape shape)
{
    tm_tensor of = *tm_graph_at(graph, base);
    TM_ASSERT(of.ld == 0 && first >= 0 && first + tm_shape_elements(shape) <= tm_shape_elements(of.shape));
    tm_tensor_id id = tm_graph_tensor_as(graph, name, of.role, shape, of.dtype);
    tm_tensor   *view = tm_graph_at(graph, id);
    view->layer = of.layer;
    view->space = of.space;
    view->base = of.base == TM_NONE ? base : of.base;
    view->offset = of.offset + first;
    return id;
}

tm_tensor_id tm_graph_row(tm_graph *graph, const char *name, tm_tensor_id base, int64_t row)
{
    tm_tensor of = *tm_graph_at(graph, base);
    TM_ASSERT(of.shape.rank == 2 && row >= 0 && row < of.shape.n[0]);
    return tm_graph_run(graph, name, base, row * of.shape.n[1], tm_shape_1(of.shape.n[1]));
}

bool tm_graph_elsewhere(const tm_tensor *tensor)
{
    return tensor->shared && tensor->shared->flat != TM_NONE;
}

tm_tensor_id tm_graph_base(const tm_graph *graph, tm_tensor_id id)
{
    tm_tensor_id base = tm_graph_at(graph, id)->base;
    return base == TM_NONE ? id : base;
}

tm_tensor_id tm_graph_parameter(tm_graph *graph, const char *name, tm_shape shape, const tm_piece *pieces, int n_pieces)
{
    tm_piece *copy = tm_arena_take(graph->arena, (size_t)n_pieces * sizeof *copy);
    int64_t   rows = 0;
    for (int i = 0; i < n_pieces; i++) {
        copy[i] = pieces[i];
        copy[i].name = tm_arena_text(graph->arena, pieces[i].name);
        TM_ASSERT(pieces[i].row == rows);
        rows += pieces[i].rows;
    }
    TM_ASSERT(shape.rank >= 1 && rows * tm_piece_row(shape) == tm_shape_elements(shape));
    tm_tensor_id id = tm_graph_tensor(graph, name, TM_ROLE_PARAMETER, shape);
    tm_tensor   *tensor = tm_graph_at(graph, id);
    tensor->pieces = copy;
    tensor->n_pieces = n_pieces;
    tensor->trained = true;
    return id;
}

void tm_graph_cut(tm_graph *graph, tm_tensor_id id, const tm_cut *cut)
{
    tm_tensor *tensor = tm_graph_at(graph, id);
    int64_t    columns = tm_piece_row(tensor->shape), all = tm_piece_row(cut->whole);
    int64_t    rows = tm_shape_elements(cut->whole) / all;
    TM_ASSERT(cut->whole.rank == tensor->shape.rank && cut->ranks > 1 && cut->rank >= 0 && cut->rank < cut->ranks);
    TM_ASSERT(cut->column >= 0 && cut->column + columns <= all);
    for (int p = 0; p < tensor->n_pieces; p++) {
        const tm_piece *piece = &tensor->pieces[p];
        TM_ASSERT(piece->begin >= 0 && piece->begin + piece->rows <= rows);
        TM_ASSERT(piece->whole == 0 || (piece->first >= 0 && piece->first + piece->rows <= piece->whole));
    }
    tm_cut *copy = tm_arena_take(graph->arena, sizeof *copy);
    *copy = *cut;
    tensor->cut = copy;
}

tm_tensor_id tm_graph_constant(tm_graph *graph, const char *name, tm_shape shape, tm_constant_fill *fill,
                               const void *context, size_t context_bytes)
{
    void *copy = tm_arena_take(graph->arena, context_bytes);
    if (context_bytes) memcpy(copy, context, context_bytes);
    tm_tensor_id id = tm_graph_tensor(graph, name, TM_ROLE_CONSTANT, shape);
    tm_graph_at(graph, id)->fill = fill;
    tm_graph_at(graph, id)->fill_context = copy;
    return id;
}

int64_t tm_nf4_run_end(const tm_tensor *tensor, int64_t begin)
{
    int64_t row = tm_piece_row(tensor->shape), all = tm_shape_elements(tensor->shape);
    for (int p = 0; p < tensor->n_pieces; p++) {
        int64_t end = (tensor->pieces[p].row + tensor->pieces[p].rows) * row;
        if (end > begin && end % TM_NF4_GROUP == 0) return end;
    }
    return all;
}

static const tm_shape absent = { .rank = -1 };

static tm_shape shape_of(const tm_graph *graph, tm_tensor_id id)
{
    return id == TM_NONE ? absent : tm_graph_at(graph, id)->shape;
}

static void name_output(const tm_graph *graph, const tm_op *op, int k, char out[160])
{
    static const char *const suffix[TM_MAX_OUT] = { "", ".1", ".2", ".3", ".4", ".5" };
    const char              *module = *graph->module ? graph->module : "step";
    snprintf(out, 160, "%s.%s%s", module, op->name, suffix[k]);
}

/* Ops that do not say so never see a view: none may silently assume density. */
static void check_density(const tm_graph *graph, const tm_op *op, const tm_node *node)
{
    for (int i = 0; i < op->n_in; i++)
        TM_ASSERT(node->in[i] == TM_NONE || (op->strided_in & 1u << i) || !tm_graph_at(graph, node->in[i])->ld);
    for (int k = 0; k < op->n_out; k++)
        TM_ASSERT(node->out[k] == TM_NONE || (op->strided_out & 1u << k) || !tm_graph_at(graph, node->out[k])->ld);
}

tm_node *tm_graph_add(tm_graph *graph, tm_op_id id, const void *attr, size_t attr_bytes, const tm_tensor_id *in,
                      tm_tensor_id *out, unsigned accumulate)
{
    const tm_op *op = tm_op_get(id);
    tm_segment  *segment = graph->segment;
    TM_ASSERT(segment);
    tm_node  node = { .op = id,
                      .attr_bytes = attr_bytes,
                      .accumulate = accumulate,
                      .phase = graph->phase,
                      .layer = graph->layer,
                      .keep = graph->keep,
                      .stream = op->stream };
    tm_shape in_shape[TM_MAX_IN], out_shape[TM_MAX_OUT];
    for (int i = 0; i < TM_MAX_IN; i++) {
        node.in[i] = i < op->n_in ? in[i] : TM_NONE;
        in_shape[i] = shape_of(graph, node.in[i]);
        TM_ASSERT(i >= op->n_in || node.in[i] != TM_NONE || (op->optional_in & 1u << i));
    }
    for (int k = 0; k < TM_MAX_OUT; k++) {
        node.out[k] = k < op->n_out ? out[k] : TM_NONE;
        out_shape[k] = shape_of(graph, node.out[k]);
    }
    if (attr_bytes) node.attr = memcpy(tm_arena_take(graph->arena, attr_bytes), attr, attr_bytes);
    const char *refusal = op->infer(in_shape, node.attr, out_shape);
    if (refusal) {
        fprintf(stderr, "trainmark: bug: op %s in module '%s': %s\n", op->name, graph->module, refusal);
        TM_ASSERT(!"shapes fit");
    }
    for (int k = 0; k < op->n_out; k++) {
        if (node.out[k] == TM_NONE && out_shape[k].rank >= 0) {
            char name[160];
            name_output(graph, op, k, name);
            node.out[k] = tm_graph_tensor(graph, name, op->out_role[k], out_shape[k]);
        }
        TM_ASSERT(node.out[k] != TM_NONE || (op->optional_out & 1u << k));
        out[k] = node.out[k];
    }
    check_density(graph, op, &node);
    node.module = tm_arena_text(graph->arena, graph->module);
    segment->nodes = tm_grow(segment->nodes, &segment->capacity, segment->n_nodes, sizeof *segment->nodes);
    segment->nodes[segment->n_nodes] = node;
    return &segment->nodes[segment->n_nodes++];
}

static tm_view view_of(const tm_graph *graph, tm_tensor_id id)
{
    if (id == TM_NONE) return (tm_view){ .shape = absent };
    const tm_tensor *tensor = tm_graph_at(graph, id);
    return (tm_view){ .dtype = tensor->dtype, .shape = tensor->shape, .ld = tensor->ld };
}

void tm_node_call(const tm_graph *graph, const tm_node *node, tm_call *call)
{
    *call = (tm_call){ .op = tm_op_get(node->op),
                       .attr = node->attr,
                       .accumulate = node->accumulate,
                       .rounded = node->rounded,
                       .threads = 1 };
    for (int i = 0; i < TM_MAX_IN; i++) call->in[i] = view_of(graph, node->in[i]);
    for (int k = 0; k < TM_MAX_OUT; k++) call->out[k] = view_of(graph, node->out[k]);
}
