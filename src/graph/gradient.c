/* SPDX-License-Identifier: Apache-2.0 */
/* graph/gradient.c - see gradient.h.
 *
 * One forward sweep marks which tensors need a gradient (trained parameters, asked-for inputs, and whatever is computed
 * from them); one backward sweep calls the rules. Contributions to an activation are summed with `add` unless a rule
 * takes the pending one as its addend.
 */
#include "graph/gradient.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tm_gradient {
    tm_graph     *graph;
    bool          accumulate;
    size_t        n;         /* tensors known when the pass began */
    bool         *wanted;    /* (n) */
    tm_tensor_id *pending;   /* (n) sum of the contributions so far */
    bool         *written;   /* (n) parameters: the gradient holds something in this segment */
    bool          drop;      /* the forward node under differentiation is replaced */
};

static bool known(const tm_gradient *gradient, tm_tensor_id id)
{
    return id != TM_NONE && (size_t)id < gradient->n;
}

tm_tensor_id tm_gradient_of(tm_gradient *gradient, tm_tensor_id output)
{
    return known(gradient, output) ? gradient->pending[output] : TM_NONE;
}

bool tm_gradient_wanted(const tm_gradient *gradient, tm_tensor_id input)
{
    return known(gradient, input) && gradient->wanted[input];
}

tm_node *tm_gradient_emit(tm_gradient *gradient, tm_op_id op, const void *attr, size_t attr_bytes,
                          const tm_tensor_id *in, tm_tensor_id *out, unsigned accumulate)
{
    return tm_graph_add(gradient->graph, op, attr, attr_bytes, in, out, accumulate);
}

void tm_gradient_add(tm_gradient *gradient, tm_tensor_id input, tm_tensor_id value)
{
    if (!tm_gradient_wanted(gradient, input)) return;
    TM_ASSERT(tm_graph_at(gradient->graph, input)->role != TM_ROLE_PARAMETER);
    tm_tensor_id before = gradient->pending[input];
    if (before != TM_NONE) {
        tm_tensor_id in[TM_MAX_IN] = { before, value }, sum[TM_MAX_OUT] = { TM_NONE };
        tm_gradient_emit(gradient, TM_OP_add, NULL, 0, in, sum, 0);
        value = sum[0];
    }
    gradient->pending[input] = value;
}

tm_tensor_id tm_gradient_take(tm_gradient *gradient, tm_tensor_id input)
{
    if (!tm_gradient_wanted(gradient, input)) return TM_NONE;
    tm_tensor_id before = gradient->pending[input];
    gradient->pending[input] = TM_NONE;
    return before;
}

tm_tensor_id tm_gradient_parameter(tm_gradient *gradient, tm_tensor_id parameter, int k, unsigned *accumulate)
{
    if (!tm_gradient_wanted(gradient, parameter)) return TM_NONE;
    tm_graph *graph = gradient->graph;
    tm_tensor before = *tm_graph_at(graph, parameter);
    if (before.role != TM_ROLE_PARAMETER) return TM_NONE;
    if (before.gradient == TM_NONE) {
        char name[200];
        int  layer = graph->layer;
        snprintf(name, sizeof name, "%s.grad", before.name);
        graph->layer = before.layer;
        tm_tensor_id made = tm_graph_tensor(graph, name, TM_ROLE_GRADIENT, before.shape);
        graph->layer = layer;
        tm_graph_at(graph, parameter)->gradient = made;
    }
    if (gradient->written[parameter] || gradient->accumulate) *accumulate |= 1u << k;
    gradient->written[parameter] = true;
    return tm_graph_at(graph, parameter)->gradient;
}

void tm_gradient_replaces_forward(tm_gradient *gradient)
{
    gradient->drop = true;
}

static void mark_wanted(tm_gradient *gradient, const tm_segment *segment, const tm_tensor_id *inputs, size_t n_inputs)
{
    for (size_t i = 0; i < gradient->n; i++) {
        const tm_tensor *tensor = &gradient->graph->tensors[i];
        gradient->wanted[i] = tensor->role == TM_ROLE_PARAMETER && tensor->trained;
    }
    for (size_t i = 0; i < n_inputs; i++) gradient->wanted[inputs[i]] = true;
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        bool           needed = false;
        for (int i = 0; i < TM_MAX_IN; i++) needed |= node->in[i] != TM_NONE && gradient->wanted[node->in[i]];
        for (int k = 0; needed && k < TM_MAX_OUT; k++)
            if (node->out[k] != TM_NONE) gradient->wanted[node->out[k]] = true;
    }
}

static bool reached(tm_gradient *gradient, const tm_node *node)
{
    bool flows = false, wanted = false;
    for (int k = 0; k < TM_MAX_OUT; k++) flows |= tm_gradient_of(gradient, node->out[k]) != TM_NONE;
    for (int i = 0; i < TM_MAX_IN; i++) wanted |= tm_gradient_wanted(gradient, node->in[i]);
    return flows && wanted;
}

/* Walks the forward nodes backwards; marks the ones that a rule replaced. */
static void run_rules(tm_gradient *gradient, tm_segment *segment, size_t n_forward, bool *dropped)
{
    tm_graph *graph = gradient->graph;
    for (size_t x = n_forward; x-- > 0;) {
        tm_node node = segment->nodes[x]; /* a copy: rules append to the list */
        if (!reached(gradient, &node)) continue;
        const tm_op *op = tm_op_get(node.op);
        TM_ASSERT(op->gradient);
        graph->layer = node.layer;
        graph->module = node.module;
        gradient->drop = false;
        op->gradient(gradient, &node);
        dropped[x] = gradient->drop;
    }
}

static void remove_dropped(tm_segment *segment, const bool *dropped, size_t n_forward)
{
    size_t kept = 0;
    for (size_t x = 0; x < segment->n_nodes; x++)
        if (x >= n_forward || !dropped[x]) segment->nodes[kept++] = segment->nodes[x];
    segment->n_nodes = kept;
}

void tm_gradient_pass(tm_graph *graph, bool accumulate, const tm_seed *seeds, size_t n_seeds,
                      const tm_tensor_id *inputs, tm_tensor_id *input_gradients, size_t n_inputs)
{
    tm_segment *segment = graph->segment;
    size_t      n = graph->n_tensors, n_forward = segment->n_nodes;
    tm_arena   *scratch = tm_arena_create();
    tm_gradient gradient = { .graph = graph, .accumulate = accumulate, .n = n };
    gradient.wanted = tm_arena_take(scratch, n * sizeof(bool));
    gradient.written = tm_arena_take(scratch, n * sizeof(bool));
    gradient.pending = tm_arena_take(scratch, n * sizeof(tm_tensor_id));
    bool *dropped = tm_arena_take(scratch, n_forward * sizeof(bool));
    for (size_t i = 0; i < n; i++) gradient.pending[i] = TM_NONE;
    mark_wanted(&gradient, segment, inputs, n_inputs);
    for (size_t i = 0; i < n_seeds; i++) gradient.pending[seeds[i].result] = seeds[i].cotangent;

    tm_phase    phase = graph->phase;
    int         layer = graph->layer;
    const char *module = graph->module;
    graph->phase = TM_PHASE_BACKWARD;
    run_rules(&gradient, segment, n_forward, dropped);
    graph->phase = phase;
    graph->layer = layer;
    graph->module = module;

    remove_dropped(segment, dropped, n_forward);
    for (size_t i = 0; i < n_inputs; i++) input_gradients[i] = gradient.pending[inputs[i]];
    tm_arena_destroy(scratch);
}
