/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/passes/microscope.h"

#include "op/quantize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tm_look_kind_name(tm_look_kind kind)
{
    static const char *const names[] = { "forward", "backward", "factor", "gradient" };
    return names[kind];
}

/* A comparison to come: behind which node, of what. */
typedef struct {
    tm_look_row row;
    size_t      at;
    tm_phase    phase;
    const char *module;
} planned;

typedef struct {
    tm_graph     *graph;
    tm_node      *nodes; /* of both, in turn */
    size_t        n, capacity;
    size_t        n_tensors; /* when the pass began */
    tm_tensor_id *partner;   /* (n_tensors) what the other format has in its place, or TM_NONE */
    tm_tensor_id *source;    /* (n_tensors) what a cast was made from, or TM_NONE */
    size_t       *written;   /* (n_tensors) number of the node that writes it last */
    bool         *sent;      /* (n_tensors) rows that ranks have sent: as many as came, and what was there before */
    planned      *list;
    size_t        n_list, list_capacity;
    int          *part; /* (n) of each of `nodes` */
    size_t        part_capacity;
    int           now;
} pass;

/* --- both in turn ------------------------------------------------------------------------------------------------- */

/* What one format needs and the other may not: also the largest magnitudes of ranks that divide a factor. */
static bool unpaired(const tm_node *node)
{
    const tm_group_attr *group = node->op == TM_OP_all_reduce ? node->attr : NULL;
    return node->op == TM_OP_cast || node->op == TM_OP_quantize || node->op == TM_OP_quantize_largest ||
           node->op == TM_OP_tick || (group && group->largest);
}

static void append(pass *p, const tm_node *node)
{
    p->nodes = tm_grow(p->nodes, &p->capacity, p->n, sizeof *p->nodes);
    p->part = tm_grow(p->part, &p->part_capacity, p->n, sizeof *p->part);
    p->nodes[p->n] = *node;
    p->part[p->n] = p->now;
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (node->out[k] != TM_NONE) p->written[tm_graph_base(p->graph, node->out[k])] = p->n;
    if (node->op == TM_OP_cast) p->source[node->out[0]] = node->in[0];
    p->n++;
}

static void pair_outputs(pass *p, const tm_node *own, const tm_node *reference)
{
    for (int k = 0; k < TM_MAX_OUT; k++) {
        if (own->out[k] == TM_NONE || reference->out[k] == TM_NONE) continue;
        tm_tensor_id a = tm_graph_base(p->graph, own->out[k]), b = tm_graph_base(p->graph, reference->out[k]);
        if (tm_shape_equal(tm_graph_at(p->graph, a)->shape, tm_graph_at(p->graph, b)->shape)) p->partner[a] = b;
    }
}

static tm_status differ(const pass *p, const tm_node *own, const tm_node *reference, tm_error *err)
{
    return tm_fail(err, TM_UNSUPPORTED,
                   "the microscope compares formats that compute alike; in module '%s' %s has the op %s and the other "
                   "format %s",
                   own ? own->module : reference->module, p->graph->precision->name,
                   own ? tm_op_get(own->op)->name : "no more", reference ? tm_op_get(reference->op)->name : "no more");
}

static tm_status merge(pass *p, const tm_segment *own, const tm_segment *reference, const tm_microscope *parts,
                       tm_error *err)
{
    size_t i = 0, j = 0;
    for (;;) {
        while (i < own->n_nodes && unpaired(&own->nodes[i])) append(p, &own->nodes[i++]);
        while (j < reference->n_nodes && unpaired(&reference->nodes[j])) append(p, &reference->nodes[j++]);
        const tm_node *a = i < own->n_nodes ? &own->nodes[i++] : NULL;
        const tm_node *b = j < reference->n_nodes ? &reference->nodes[j++] : NULL;
        if (!a && !b) return TM_OK;
        if (!a || !b || a->op != b->op) return differ(p, a, b, err);
        while ((size_t)p->now < parts->n_ends && i > parts->ends[p->now]) p->now++;
        append(p, a);
        append(p, b);
        pair_outputs(p, a, b);
    }
}

/* Rows of divided experts, from where they arrive to where they leave again. How many there are, and whose, is the
 * routers' affair, which may differ between the formats. */
static void mark_sent(pass *p)
{
    for (size_t x = 0; x < p->n; x++) {
        const tm_node *node = &p->nodes[x];
        bool           sent = node->op == TM_OP_send_rows;
        for (int i = 0; i < TM_MAX_IN && node->op != TM_OP_return_rows; i++)
            sent = sent || (node->in[i] != TM_NONE && p->sent[tm_graph_base(p->graph, node->in[i])]);
        for (int k = 0; k < TM_MAX_OUT && sent; k++) {
            tm_tensor_id out = node->out[k] == TM_NONE ? TM_NONE : tm_graph_base(p->graph, node->out[k]);
            if (out == TM_NONE) continue;
            tm_role role = tm_graph_at(p->graph, out)->role;
            if (role == TM_ROLE_ACTIVATION || role == TM_ROLE_STATISTIC) p->sent[out] = true;
        }
    }
}

/* --- what is compared --------------------------------------------------------------------------------------------- */

/* The other format's tensor for an input of this one's: of a view the same columns, of a cast weight the weight. */
static tm_tensor_id reference_of(const pass *p, tm_tensor_id own)
{
    tm_tensor    of = *tm_graph_at(p->graph, own);
    tm_tensor_id base = tm_graph_base(p->graph, own);
    tm_tensor_id other = p->partner[base];
    if (other == TM_NONE && p->source[base] != TM_NONE) base = p->source[base], other = p->partner[base];
    if (other == TM_NONE && tm_graph_at(p->graph, base)->role == TM_ROLE_PARAMETER) other = base;
    if (other == TM_NONE || of.base == TM_NONE) return other;
    return tm_graph_view_like(p->graph, &of, other);
}

static bool readable(const tm_tensor *tensor)
{
    return tensor->dtype == TM_F32 || tensor->dtype == TM_BF16 || tensor->dtype == TM_F64;
}

static void plan_row(pass *p, tm_look_kind kind, tm_tensor_id own, tm_tensor_id reference, size_t x)
{
    const tm_node *node = &p->nodes[x];
    tm_graph      *graph = p->graph;
    tm_tensor     *a = tm_graph_at(graph, own), *b = tm_graph_at(graph, reference);
    if (!readable(a) || !readable(b) || a->shape.rank < 1 || !tm_shape_equal(a->shape, b->shape)) return;
    size_t last = p->written[tm_graph_base(graph, own)], other = p->written[tm_graph_base(graph, reference)];
    p->list = tm_grow(p->list, &p->list_capacity, p->n_list, sizeof *p->list);
    p->list[p->n_list++] = (planned){ .row = { a->name, kind, own, reference, node->layer, p->part[x] },
                                      .at = last > other ? last : other,
                                      .phase = node->phase,
                                      .module = node->module };
}

/* Rotated numbers are no longer those of the tensor. */
static bool rotated(const tm_node *node)
{
    const tm_quantize_attr *attr = node->attr;
    return attr->recipe[0].rotation != TM_ROTATE_NOT || attr->recipe[1].rotation != TM_ROTATE_NOT;
}

/* What another stage has compared; a term that only one of the ranks has that divide matrices (route_grad, which adds
 * to it, is compared). */
static bool left_to_others(tm_op_id op)
{
    return op == TM_OP_receive || op == TM_OP_balance_loss_grad;
}

/* Rows of the tensors that node x writes for the last time. */
static void plan_node(pass *p, size_t x, const tm_look_pair *gradients, size_t n_gradients)
{
    const tm_node node = p->nodes[x];
    if (node.recomputed || left_to_others(node.op)) return;
    if (node.op == TM_OP_quantize) {
        bool         apart = rotated(&node) || p->sent[tm_graph_base(p->graph, node.in[0])];
        tm_tensor_id reference = apart ? TM_NONE : reference_of(p, node.in[0]);
        if (reference != TM_NONE) plan_row(p, TM_LOOK_FACTOR, node.out[0], reference, x);
        return;
    }
    for (int k = 0; k < TM_MAX_OUT; k++) {
        tm_tensor_id own = node.out[k] == TM_NONE ? TM_NONE : tm_graph_base(p->graph, node.out[k]);
        if (own == TM_NONE || p->written[own] != x || p->sent[own]) continue;
        tm_role role = tm_graph_at(p->graph, own)->role;
        for (size_t g = 0; g < n_gradients; g++)
            if (gradients[g].own == own) plan_row(p, TM_LOOK_GRADIENT, own, gradients[g].reference, x);
        if (p->partner[own] == TM_NONE || (role != TM_ROLE_ACTIVATION && role != TM_ROLE_STATISTIC)) continue;
        plan_row(p, node.phase == TM_PHASE_FORWARD ? TM_LOOK_FORWARD : TM_LOOK_BACKWARD, own, p->partner[own], x);
    }
}

static int by_place(const void *a, const void *b)
{
    const planned *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->row.own < y->row.own ? -1 : x->row.own > y->row.own;
}

/* --- the program -------------------------------------------------------------------------------------------------- */

static void emit_compare(tm_graph *graph, const planned *what, tm_tensor_id record, int64_t row)
{
    tm_compare_attr attr = { .row = row, .rows = tm_graph_at(graph, record)->shape.n[0] };
    tm_tensor_id    in[TM_MAX_IN] = { what->row.own, what->row.reference }, out[TM_MAX_OUT] = { record };
    graph->phase = what->phase;
    graph->layer = what->row.layer;
    graph->module = what->module;
    tm_graph_add(graph, TM_OP_compare, &attr, sizeof attr, in, out, 0);
}

static void emit(pass *p, tm_microscope *out)
{
    tm_graph   *graph = p->graph;
    tm_segment *segment = graph->segment;
    tm_phase    phase = graph->phase;
    int         layer = graph->layer;
    const char *module = graph->module;
    size_t      next = 0;
    out->rows = tm_alloc((p->n_list + 1) * sizeof *out->rows);
    out->n_rows = p->n_list;
    graph->layer = -1;
    out->record = tm_graph_tensor(graph, "microscope.record", TM_ROLE_SCALAR,
                                  tm_shape_2(p->n_list > 0 ? (int64_t)p->n_list : 1, TM_COMPARED));
    segment->n_nodes = 0;
    for (size_t x = 0; x < p->n; x++) {
        segment->nodes = tm_grow(segment->nodes, &segment->capacity, segment->n_nodes, sizeof *segment->nodes);
        segment->nodes[segment->n_nodes++] = p->nodes[x];
        for (; next < p->n_list && p->list[next].at == x; next++) {
            out->rows[next] = p->list[next].row;
            emit_compare(graph, &p->list[next], out->record, (int64_t)next);
        }
    }
    TM_ASSERT(next == p->n_list);
    graph->phase = phase, graph->layer = layer, graph->module = module;
}

tm_status tm_microscope_pass(tm_graph *graph, const tm_segment *reference, const tm_look_pair *gradients,
                             size_t n_gradients, tm_microscope *out, tm_error *err)
{
    size_t n = graph->n_tensors;
    pass   p = { .graph = graph, .n_tensors = n };
    p.partner = tm_alloc(n * sizeof *p.partner);
    p.source = tm_alloc(n * sizeof *p.source);
    p.written = tm_alloc(n * sizeof *p.written);
    p.sent = tm_alloc(n * sizeof *p.sent);
    for (size_t i = 0; i < n; i++) p.partner[i] = p.source[i] = TM_NONE;
    tm_status st = merge(&p, graph->segment, reference, out, err);
    mark_sent(&p);
    for (size_t x = 0; st == TM_OK && x < p.n; x++) plan_node(&p, x, gradients, n_gradients);
    if (st == TM_OK) {
        if (p.n_list > 0) qsort(p.list, p.n_list, sizeof *p.list, by_place);
        emit(&p, out);
    }
    free(p.partner), free(p.source), free(p.written), free(p.sent), free(p.nodes), free(p.part), free(p.list);
    return st;
}

void tm_microscope_fini(tm_microscope *microscope)
{
    free(microscope->rows);
    *microscope = (tm_microscope){ .record = TM_NONE };
}
