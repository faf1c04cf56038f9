/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/resident.c - casts of weights become copies that outlive programs (tm_resident_pass).
 *
 * A step of m micro-batches casts a weight 2 m times, a copy that the optimizer writes beside the weight is cast in
 * none: of AdamW the update moves 30 bytes an element in the place of 28, and every cast that is gone 6.
 */
#include "graph/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>

/* The weight that a node casts for the computation; TM_NONE: it is no such cast. */
static tm_tensor_id cast_weight(const tm_graph *graph, const tm_node *node)
{
    if (node->op != TM_OP_cast) return TM_NONE;
    const tm_tensor *from = tm_graph_at(graph, node->in[0]), *to = tm_graph_at(graph, node->out[0]);
    bool             cast = to->role == TM_ROLE_WEIGHT_COPY && to->base == TM_NONE && from->dtype == TM_F32 &&
                to->dtype == graph->precision->compute;
    return cast && from->role == TM_ROLE_PARAMETER && !tm_graph_elsewhere(from) ? node->in[0] : TM_NONE;
}

/* copies[]: of a weight its copy; of what a cast makes the copy that takes its place. */
static size_t make_copies(tm_graph *graph, tm_tensor_id *copies, size_t n)
{
    size_t made = 0;
    char   name[200];
    for (size_t i = 0; i < n; i++) copies[i] = TM_NONE;
    for (size_t s = 0; s < graph->n_segments; s++)
        for (size_t x = 0; x < graph->segments[s]->n_nodes; x++) {
            const tm_node *node = &graph->segments[s]->nodes[x];
            tm_tensor_id   weight = cast_weight(graph, node);
            if (weight == TM_NONE) continue;
            if (copies[weight] == TM_NONE) {
                const tm_tensor of = *tm_graph_at(graph, weight);
                snprintf(name, sizeof name, "%s.%s", of.name, tm_dtype_name(graph->precision->compute));
                copies[weight] = tm_graph_tensor(graph, name, TM_ROLE_COPY, of.shape);
                tm_graph_at(graph, copies[weight])->layer = of.layer;
                made++;
            }
            copies[node->out[0]] = copies[weight];
        }
    return made;
}

/* Takes the casts out; whoever read what they made reads the copies. */
static void take_casts_out(tm_graph *graph, const tm_tensor_id *copies, size_t n)
{
    for (size_t s = 0; s < graph->n_segments; s++) {
        tm_segment *segment = graph->segments[s];
        size_t      kept = 0;
        for (size_t x = 0; x < segment->n_nodes; x++) {
            tm_node node = segment->nodes[x];
            if (cast_weight(graph, &node) != TM_NONE) continue;
            for (int i = 0; i < TM_MAX_IN; i++) {
                tm_tensor_id in = node.in[i];
                bool made = in != TM_NONE && (size_t)in < n && tm_graph_at(graph, in)->role == TM_ROLE_WEIGHT_COPY;
                if (made && copies[in] != TM_NONE) node.in[i] = copies[in];
            }
            segment->nodes[kept++] = node;
        }
        segment->n_nodes = kept;
    }
    for (size_t i = 0; i < n; i++) {
        tm_tensor_id base = graph->tensors[i].base;
        bool         made = base != TM_NONE && (size_t)base < n && graph->tensors[base].role == TM_ROLE_WEIGHT_COPY;
        if (!made || copies[base] == TM_NONE) continue;
        graph->tensors[i].base = copies[base];
        graph->tensors[i].role = TM_ROLE_COPY;
    }
}

/* Appends the cast of a weight into its copy to the current segment. */
static void add_cast(tm_graph *graph, tm_tensor_id weight, tm_tensor_id copy)
{
    tm_tensor_id in[TM_MAX_IN] = { weight }, out[TM_MAX_OUT] = { copy };
    graph->layer = tm_graph_at(graph, weight)->layer;
    tm_graph_add(graph, TM_OP_cast, NULL, 0, in, out, 0);
}

/* Has the op of the optimizer write the copy of the weight that it updates, if the device has a kernel for that. */
static bool writes_copy(const tm_graph *graph, const tm_chooser *chooser, tm_node *node, tm_tensor_id copy)
{
    tm_node with = *node;
    tm_call call;
    int     k = tm_op_get(node->op)->copy;
    if (k == 0) return false;
    with.out[k] = copy;
    tm_node_call(graph, &with, &call);
    call.threads = chooser->threads;
    call.device = chooser->context;
    if (!chooser->choose(chooser->context, &call, NULL)) return false;
    *node = with;
    return true;
}

/* Who writes a tensor, or views of it, in a segment. */
typedef struct {
    size_t       times, at; /* the node that did last */
    int          output;
    tm_tensor_id as; /* itself, or a view */
} writer;

/* writers[]: by tensor with memory of its own. (Of weights in units all that is written into the unit counts.) */
static void find_writers(const tm_graph *graph, const tm_segment *segment, writer *writers)
{
    for (size_t i = 0; i < graph->n_tensors; i++) writers[i] = (writer){ .times = 0 };
    for (size_t x = 0; x < segment->n_nodes; x++)
        for (int k = 0; k < TM_MAX_OUT; k++) {
            tm_tensor_id out = segment->nodes[x].out[k];
            if (out == TM_NONE) continue;
            writer *w = &writers[tm_graph_base(graph, out)];
            *w = (writer){ .times = w->times + 1, .at = x, .output = k, .as = out };
        }
}

/* A segment that writes weights leaves their copies right. writers: room for all tensors. */
static void keep_copies(tm_graph *graph, const tm_chooser *chooser, tm_segment *segment, const tm_tensor_id *copies,
                        size_t n, writer *writers)
{
    find_writers(graph, segment, writers);
    graph->segment = segment;
    for (size_t w = 0; w < n; w++) {
        if (copies[w] == TM_NONE || graph->tensors[w].role != TM_ROLE_PARAMETER) continue;
        const writer *by = &writers[tm_graph_base(graph, (tm_tensor_id)w)];
        if (by->times == 0) continue;
        bool whole = by->times == 1 && by->output == 0 && by->as == (tm_tensor_id)w;
        if (!whole || !writes_copy(graph, chooser, &segment->nodes[by->at], copies[w]))
            add_cast(graph, (tm_tensor_id)w, copies[w]);
    }
}

void tm_resident_pass(tm_graph *graph, const tm_chooser *chooser)
{
    if (!chooser->weight_copies) return;
    const size_t  n = graph->n_tensors;
    tm_tensor_id *copies = tm_alloc((n + 1) * sizeof *copies);
    tm_segment   *segment = graph->segment;
    if (make_copies(graph, copies, n) > 0) {
        take_casts_out(graph, copies, n);
        graph->phase = TM_PHASE_UPDATE;
        graph->module = "copies";
        writer *writers = tm_alloc((graph->n_tensors + 1) * sizeof *writers);
        for (size_t s = 0; s < graph->n_segments; s++)
            keep_copies(graph, chooser, graph->segments[s], copies, n, writers);
        free(writers);
        tm_graph_segment(graph, "copies");
        for (size_t w = 0; w < n; w++)
            if (copies[w] != TM_NONE && graph->tensors[w].role == TM_ROLE_PARAMETER)
                add_cast(graph, (tm_tensor_id)w, copies[w]);
        graph->segment = segment;
        graph->layer = -1;
        graph->module = "";
    }
    free(copies);
}
