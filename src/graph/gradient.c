/* SPDX-License-Identifier: Apache-2.0 */
/* graph/gradient.c - see gradient.h.
 *
 * One forward sweep marks which tensors need a gradient (trained parameters, asked-for inputs, and whatever is computed
 * from them); one backward sweep calls the rules. Contributions to an activation are summed with `add` unless a rule
 * takes the pending one as its addend. Views have no gradient of their own: what they get goes into their columns of a
 * tensor like their base, which is contributed to the base when its producer is reached.
 */
#include "graph/gradient.h"

#include "op/attrs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tm_gradient {
    tm_graph     *graph;
    bool          accumulate;
    size_t        n;       /* tensors known when the pass began */
    bool         *wanted;  /* (n) */
    tm_tensor_id *pending; /* (n) sum of the contributions so far */
    tm_tensor_id *whole;   /* (n) of the base of views: what they contributed so far, or TM_NONE */
    bool        **columns; /* (n) which of its columns are written */
    bool         *written; /* (n) parameters: the gradient holds something in this segment */
    tm_arena     *scratch;
    bool          drop;                /* the forward node under differentiation is replaced */
    tm_tensor_id  owed[TM_MAX_OUT][2]; /* computed weights and their new gradients, until the next node is emitted */
    int           n_owed;
};

static bool known(const tm_gradient *gradient, tm_tensor_id id)
{
    return id != TM_NONE && (size_t)id < gradient->n;
}

static void settle(tm_gradient *gradient, tm_tensor_id base);

tm_tensor_id tm_gradient_of(tm_gradient *gradient, tm_tensor_id output)
{
    if (!known(gradient, output)) return TM_NONE;
    tm_tensor    of = *tm_graph_at(gradient->graph, output);
    tm_tensor_id base = of.base == TM_NONE ? output : of.base;
    settle(gradient, base);
    if (of.base == TM_NONE || gradient->pending[base] == TM_NONE) return gradient->pending[base];
    return tm_graph_view_like(gradient->graph, &of, gradient->pending[base]);
}

bool tm_gradient_wanted(const tm_gradient *gradient, tm_tensor_id input)
{
    return known(gradient, input) && gradient->wanted[tm_graph_base(gradient->graph, input)];
}

void tm_gradient_emit(tm_gradient *gradient, tm_op_id op, const void *attr, size_t attr_bytes, const tm_tensor_id *in,
                      tm_tensor_id *out, unsigned accumulate)
{
    int n = gradient->n_owed;
    tm_graph_add(gradient->graph, op, attr, attr_bytes, in, out, accumulate);
    gradient->n_owed = 0; /* contributing may emit */
    for (int i = 0; i < n; i++) tm_gradient_add(gradient, gradient->owed[i][0], gradient->owed[i][1]);
}

static tm_tensor_id emit_one(tm_gradient *gradient, tm_op_id op, tm_tensor_id a, tm_tensor_id b, tm_tensor_id result)
{
    tm_tensor_id in[TM_MAX_IN] = { a, b }, out[TM_MAX_OUT] = { result };
    tm_gradient_emit(gradient, op, NULL, 0, in, out, 0);
    return out[0];
}

/* A parameter that an op reads like an activation (a weight computed from others): the value is added to what the
 * persistent gradient holds, or becomes it. */
static void add_to_parameter(tm_gradient *gradient, tm_tensor_id parameter, tm_tensor_id value)
{
    unsigned     holds = 0;
    tm_tensor_id sum = tm_gradient_parameter(gradient, parameter, 0, &holds);
    tm_tensor    is = *tm_graph_at(gradient->graph, value), wanted = *tm_graph_at(gradient->graph, sum);
    if (holds && is.dtype != wanted.dtype) {
        tm_tensor_id same = tm_graph_tensor_as(gradient->graph, is.name, TM_ROLE_PARTIAL, is.shape, wanted.dtype);
        value = emit_one(gradient, TM_OP_cast, value, TM_NONE, same);
    }
    if (holds)
        emit_one(gradient, TM_OP_add, sum, value, sum);
    else
        emit_one(gradient, TM_OP_cast, value, TM_NONE, sum);
}

/* Zeros in those of the columns begin .. end - 1 of the base's gradient that hold nothing yet. */
static void fill_columns(tm_gradient *gradient, tm_tensor_id base, int64_t begin, int64_t end)
{
    tm_fill_attr zero = { .value = 0 };
    bool        *written = gradient->columns[base];
    for (int64_t c = begin; c < end; c++) {
        if (written[c]) continue;
        int64_t from = c;
        for (; c < end && !written[c]; c++) written[c] = true;
        tm_tensor    gap = { .offset = from, .shape = tm_shape_2(0, c - from) };
        tm_tensor_id in[TM_MAX_IN] = { TM_NONE };
        tm_tensor_id out[TM_MAX_OUT] = { tm_graph_view_like(gradient->graph, &gap, gradient->whole[base]) };
        tm_gradient_emit(gradient, TM_OP_fill, &zero, sizeof zero, in, out, 0);
    }
}

/* The view's columns of its base's gradient. */
static tm_tensor_id columns_of(tm_gradient *gradient, tm_tensor_id view)
{
    tm_tensor of = *tm_graph_at(gradient->graph, view);
    if (gradient->whole[of.base] == TM_NONE) {
        char      name[200];
        tm_tensor base = *tm_graph_at(gradient->graph, of.base);
        bool      weight = base.role == TM_ROLE_PARAMETER;
        snprintf(name, sizeof name, "%.190s.grad", base.name);
        gradient->whole[of.base] =
            tm_graph_tensor_as(gradient->graph, name, weight ? TM_ROLE_ACTIVATION : base.role, base.shape,
                               weight ? gradient->graph->precision->compute : base.dtype);
        gradient->columns[of.base] = tm_arena_take(gradient->scratch, (size_t)base.shape.n[1] * sizeof(bool));
    }
    return tm_graph_view_like(gradient->graph, &of, gradient->whole[of.base]);
}

tm_tensor_id tm_gradient_out(tm_gradient *gradient, tm_tensor_id input)
{
    if (!tm_gradient_wanted(gradient, input)) return TM_NONE;
    tm_tensor of = *tm_graph_at(gradient->graph, input);
    if (of.base == TM_NONE) return TM_NONE;
    tm_tensor_id out = columns_of(gradient, input);
    bool        *written = gradient->columns[of.base] + of.offset;
    for (int64_t c = 0; c < of.shape.n[1]; c++)
        if (written[c]) return TM_NONE;
    for (int64_t c = 0; c < of.shape.n[1]; c++) written[c] = true;
    return out;
}

/* Adds `value` to the columns of a view, unless it lies there. */
static void add_to_view(tm_gradient *gradient, tm_tensor_id view, tm_tensor_id value)
{
    tm_tensor    of = *tm_graph_at(gradient->graph, view), is = *tm_graph_at(gradient->graph, value);
    tm_tensor_id sum = columns_of(gradient, view);
    if (is.base == gradient->whole[of.base] && is.offset == of.offset) return;
    fill_columns(gradient, of.base, of.offset, of.offset + of.shape.n[1]);
    emit_one(gradient, TM_OP_add, sum, value, sum);
}

/* The contributions of its views become one of the base. */
static void settle(tm_gradient *gradient, tm_tensor_id base)
{
    tm_tensor_id whole = gradient->whole[base];
    if (whole == TM_NONE) return;
    fill_columns(gradient, base, 0, tm_graph_at(gradient->graph, base)->shape.n[1]);
    gradient->whole[base] = TM_NONE;
    tm_gradient_add(gradient, base, whole);
}

void tm_gradient_add(tm_gradient *gradient, tm_tensor_id input, tm_tensor_id value)
{
    if (!tm_gradient_wanted(gradient, input)) return;
    if (tm_graph_at(gradient->graph, input)->base != TM_NONE) {
        add_to_view(gradient, input, value);
        return;
    }
    if (tm_graph_at(gradient->graph, input)->role == TM_ROLE_PARAMETER) {
        add_to_parameter(gradient, input, value);
        return;
    }
    tm_tensor_id before = gradient->pending[input];
    if (before != TM_NONE) value = emit_one(gradient, TM_OP_add, before, value, TM_NONE);
    gradient->pending[input] = value;
}

tm_tensor_id tm_gradient_take(tm_gradient *gradient, tm_tensor_id input)
{
    if (!tm_gradient_wanted(gradient, input)) return TM_NONE;
    if (tm_graph_at(gradient->graph, input)->base != TM_NONE) return TM_NONE; /* nothing that is the view's alone */
    tm_tensor_id before = gradient->pending[input];
    gradient->pending[input] = TM_NONE;
    return before;
}

tm_tensor_id tm_gradient_like(tm_gradient *gradient, tm_tensor_id input)
{
    char      name[200];
    tm_tensor of = *tm_graph_at(gradient->graph, input);
    snprintf(name, sizeof name, "%.190s.grad", of.name);
    tm_role role = of.role == TM_ROLE_PARAMETER ? TM_ROLE_PARTIAL : of.role;
    return tm_graph_tensor_as(gradient->graph, name, role, of.shape, of.dtype);
}

/* Of a weight that is computed. */
static tm_tensor_id gradient_of_computed(tm_gradient *gradient, tm_tensor_id weight)
{
    tm_tensor_id made = tm_gradient_like(gradient, weight);
    TM_ASSERT(gradient->n_owed < TM_MAX_OUT);
    gradient->owed[gradient->n_owed][0] = weight;
    gradient->owed[gradient->n_owed++][1] = made;
    return made;
}

tm_tensor_id tm_gradient_parameter(tm_gradient *gradient, tm_tensor_id weight, int k, unsigned *accumulate)
{
    if (!tm_gradient_wanted(gradient, weight)) return TM_NONE;
    tm_graph *graph = gradient->graph;
    tm_tensor before = *tm_graph_at(graph, weight);
    if (before.role != TM_ROLE_PARAMETER || before.base != TM_NONE) return gradient_of_computed(gradient, weight);
    if (before.gradient == TM_NONE) {
        char name[200];
        int  layer = graph->layer;
        snprintf(name, sizeof name, "%s.grad", before.name);
        graph->layer = before.layer;
        tm_tensor_id made = tm_graph_tensor(graph, name, TM_ROLE_GRADIENT, before.shape);
        graph->layer = layer;
        tm_graph_at(graph, made)->cut = before.cut;
        tm_graph_at(graph, weight)->gradient = made;
    }
    if (gradient->written[weight] || gradient->accumulate) *accumulate |= 1u << k;
    gradient->written[weight] = true;
    return tm_graph_at(graph, weight)->gradient;
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
    for (size_t i = 0; i < n_inputs; i++) gradient->wanted[tm_graph_base(gradient->graph, inputs[i])] = true;
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        bool           needed = false;
        for (int i = 0; i < TM_MAX_IN; i++) needed |= tm_gradient_wanted(gradient, node->in[i]);
        for (int k = 0; needed && k < TM_MAX_OUT; k++) {
            if (node->out[k] == TM_NONE || tm_graph_at(gradient->graph, node->out[k])->fixed) continue;
            gradient->wanted[tm_graph_base(gradient->graph, node->out[k])] = true;
        }
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
        graph->layer = node.layer;
        graph->module = node.module;
        if (!reached(gradient, &node)) continue;
        const tm_op *op = tm_op_get(node.op);
        if (!op->gradient) {
            char what[96];
            snprintf(what, sizeof what, "a gradient of '%s' is asked for; this op is forward only", op->name);
            tm_assert_failed(what, __FILE__, __LINE__);
        }
        gradient->drop = false;
        op->gradient(gradient, &node);
        TM_ASSERT(gradient->n_owed == 0);
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
    tm_gradient gradient = { .graph = graph, .accumulate = accumulate, .n = n, .scratch = scratch };
    gradient.wanted = tm_arena_take(scratch, n * sizeof(bool));
    gradient.written = tm_arena_take(scratch, n * sizeof(bool));
    gradient.pending = tm_arena_take(scratch, n * sizeof(tm_tensor_id));
    bool *dropped = tm_arena_take(scratch, n_forward * sizeof(bool));
    gradient.whole = tm_arena_take(scratch, n * sizeof(tm_tensor_id));
    gradient.columns = tm_arena_take(scratch, n * sizeof(bool *));
    for (size_t i = 0; i < n; i++) gradient.pending[i] = gradient.whole[i] = TM_NONE;
    mark_wanted(&gradient, segment, inputs, n_inputs);
    for (size_t i = 0; i < n_seeds; i++) gradient.pending[seeds[i].result] = seeds[i].cotangent;

    tm_phase    phase = graph->phase;
    int         layer = graph->layer;
    const char *module = graph->module;
    graph->phase = TM_PHASE_BACKWARD;
    run_rules(&gradient, segment, n_forward, dropped);
    for (size_t i = 0; i < n; i++) settle(&gradient, (tm_tensor_id)i); /* of what no node of the segment makes */
    for (size_t i = 0; i < n_inputs; i++) input_gradients[i] = tm_gradient_of(&gradient, inputs[i]);
    graph->phase = phase;
    graph->layer = layer;
    graph->module = module;

    remove_dropped(segment, dropped, n_forward);
    tm_arena_destroy(scratch);
}
