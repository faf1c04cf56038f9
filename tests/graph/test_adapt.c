/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes that products become where matrices have adapters, written out: of matrices, with lengths of rows, of
 * experts, of the output layer; what other nodes read and the graph notes stays. */
#include "base/text.h"
#include "graph/passes/passes.h"
#include "op/attrs.h"

#include <string.h>

#include "support/test.h"

enum { ROWS = 4, INPUTS = 6, OUTPUTS = 5, RANK = 2, EXPERTS = 3 };

static tm_tensor_id parameter(tm_graph *graph, const char *name, tm_shape shape)
{
    tm_piece piece = { .name = name, .rows = tm_shape_elements(shape) / tm_piece_row(shape) };
    return tm_graph_parameter(graph, name, shape, &piece, 1);
}

static tm_tensor_id activation(tm_graph *graph, const char *name, int64_t rows, int64_t columns)
{
    return tm_graph_tensor(graph, name, TM_ROLE_ACTIVATION, tm_shape_2(rows, columns));
}

/* Number 0 is nobody's: an operand that is missing has another one. */
static tm_graph *graph_new(tm_segment **segment)
{
    tm_graph *graph = tm_graph_create(&tm_precision_f32);
    (void)tm_graph_tensor(graph, "nobody's", TM_ROLE_ACTIVATION, tm_shape_1(7));
    *segment = tm_graph_segment(graph, "training");
    graph->layer = 3;
    graph->module = "m";
    return graph;
}

static tm_tensor_id product(tm_graph *graph, tm_op_id op, const void *attr, size_t bytes, const tm_tensor_id *in,
                            tm_tensor_id y)
{
    tm_tensor_id all[TM_MAX_IN], out[TM_MAX_OUT] = { y, TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE };
    for (int i = 0; i < TM_MAX_IN; i++) all[i] = i < 5 ? in[i] : TM_NONE;
    tm_graph_add(graph, op, attr, bytes, all, out, 0);
    return out[0];
}

static const char *name_of(const tm_graph *graph, tm_tensor_id id)
{
    return id == TM_NONE ? "-" : tm_graph_at(graph, id)->name;
}

static void nodes_are(tm_graph *graph, const tm_segment *segment, tm_tensor_id first_row, const char *wanted)
{
    tm_text text = { 0 };
    graph->layer = 8, graph->module = "outside", graph->phase = TM_PHASE_UPDATE, graph->keep = TM_KEEP_NEVER;
    tm_adapt_pass(graph, first_row);
    assert_true(graph->layer == 8 && graph->phase == TM_PHASE_UPDATE && graph->keep == TM_KEEP_NEVER);
    assert_string_equal(graph->module, "outside");
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        const tm_op   *op = tm_op_get(node->op);
        tm_text_printf(&text, "%s", op->name);
        for (int i = 0; i < op->n_in; i++) tm_text_printf(&text, " %s", name_of(graph, node->in[i]));
        tm_text_printf(&text, " -> %s\n", name_of(graph, node->out[0]));
        for (int i = op->n_in; i < TM_MAX_IN; i++) assert_int_equal(node->in[i], TM_NONE);
        assert_true(node->layer == 3 && node->phase == TM_PHASE_FORWARD);
        assert_string_equal(node->module, "m");
    }
    assert_string_equal(text.data, wanted);
    tm_text_fini(&text);
    tm_graph_destroy(graph);
}

static tm_adapter adapter_new(tm_graph *graph, const char *a, const char *b, int64_t column, int64_t rows)
{
    tm_adapter adapter = { .m = TM_NONE,
                           .attr = { .scale = 0.5, .rank = RANK, .parts = 1, .part = { { column, rows } } } };
    adapter.a = parameter(graph, a, tm_shape_2(RANK, INPUTS));
    adapter.b = parameter(graph, b, tm_shape_2(rows, RANK));
    return adapter;
}

/* y = x w^T + bias + residual, and a node that reads it. */
static void emit_linear(tm_graph *graph, tm_tensor_id x, tm_tensor_id w, const char *y)
{
    tm_tensor_id in[5] = { x, w, parameter(graph, "bias", tm_shape_1(OUTPUTS)),
                           activation(graph, "residual", ROWS, OUTPUTS), TM_NONE };
    tm_tensor_id made = product(graph, TM_OP_linear, NULL, 0, in, activation(graph, y, ROWS, OUTPUTS));
    tm_tensor_id relu[5] = { made, TM_NONE, TM_NONE, TM_NONE, TM_NONE };
    (void)product(graph, TM_OP_relu, NULL, 0, relu, TM_NONE);
}

TEST(beside_a_matrix)
{
    tm_segment  *segment;
    tm_graph    *graph = graph_new(&segment);
    tm_tensor_id x = activation(graph, "x", ROWS, INPUTS), w = parameter(graph, "w", tm_shape_2(OUTPUTS, INPUTS));
    tm_adapter   adapter = adapter_new(graph, "a", "b", 0, OUTPUTS);
    tm_graph_at(graph, w)->adapter = &adapter;
    emit_linear(graph, x, w, "y");
    emit_linear(graph, x, parameter(graph, "plain", tm_shape_2(OUTPUTS, INPUTS)), "z");
    nodes_are(graph, segment, TM_NONE,
              "linear x w bias residual -> y.base\n"
              "linear x a - - -> m.linear\n"
              "low_rank y.base m.linear b -> y\n"
              "relu y -> m.relu\n"
              "linear x plain bias residual -> z\n"
              "relu z -> m.relu\n");
}

/* One after the other; only what is trained with dropout drops. */
TEST(two_of_one_matrix)
{
    for (int trains = 0; trains < 2; trains++) {
        tm_segment  *segment;
        tm_graph    *graph = graph_new(&segment);
        tm_tensor_id x = activation(graph, "x", ROWS, INPUTS), w = parameter(graph, "w", tm_shape_2(OUTPUTS, INPUTS));
        tm_adapter   second = adapter_new(graph, "a2", "b2", 2, 3), first = adapter_new(graph, "a1", "b1", 0, 2);
        tm_tensor_id first_row = tm_graph_tensor(graph, "row", TM_ROLE_SCALAR, (tm_shape){ .rank = 0 });
        (void)test_state;
        first.next = &second;
        first.dropout = (tm_dropout_attr){ .rate = 0.25, .seed = 1 };
        tm_graph_at(graph, w)->adapter = &first;
        emit_linear(graph, x, w, "y");
        nodes_are(graph, segment, trains ? first_row : TM_NONE,
                  trains ? "linear x w bias residual -> y.base\n"
                           "dropout x row -> m.dropout\n"
                           "linear m.dropout a1 - - -> m.linear\n"
                           "low_rank y.base m.linear b1 -> y.part\n"
                           "linear x a2 - - -> m.linear\n"
                           "low_rank y.part m.linear b2 -> y\n"
                           "relu y -> m.relu\n"
                         : "linear x w bias residual -> y.base\n"
                           "linear x a1 - - -> m.linear\n"
                           "low_rank y.base m.linear b1 -> y.part\n"
                           "linear x a2 - - -> m.linear\n"
                           "low_rank y.part m.linear b2 -> y\n"
                           "relu y -> m.relu\n");
    }
}

/* Bias and residual come behind the lengths, which are those of the matrix: made once however often it is used. */
TEST(with_lengths_of_rows)
{
    tm_segment  *segment;
    tm_graph    *graph = graph_new(&segment);
    tm_tensor_id x = activation(graph, "x", ROWS, INPUTS), w = parameter(graph, "w", tm_shape_2(OUTPUTS, INPUTS));
    tm_adapter   adapter = adapter_new(graph, "a", "b", 0, OUTPUTS);
    adapter.m = parameter(graph, "lengths", tm_shape_1(OUTPUTS));
    tm_graph_at(graph, w)->adapter = &adapter;
    emit_linear(graph, x, w, "y");
    tm_tensor_id in[5] = { x, w, TM_NONE, TM_NONE, TM_NONE };
    (void)product(graph, TM_OP_linear, NULL, 0, in, activation(graph, "z", ROWS, OUTPUTS));
    nodes_are(graph, segment, TM_NONE,
              "adapted_norm w a b -> norm\n"
              "linear x w - - -> y.base\n"
              "linear x a - - -> m.linear\n"
              "low_rank y.base m.linear b -> y.sum\n"
              "rescale_add y.sum lengths norm bias residual -> y\n"
              "relu y -> m.relu\n"
              "linear x w - - -> z.base\n"
              "linear x a - - -> m.linear\n"
              "low_rank z.base m.linear b -> z.sum\n"
              "rescale z.sum lengths norm - -> z\n");
}

TEST(of_experts)
{
    for (int extras = 0; extras < 2; extras++) {
        tm_segment  *segment;
        tm_graph    *graph = graph_new(&segment);
        tm_adapter   adapter = { .m = TM_NONE, .attr = { .scale = 0.5, .rank = RANK } };
        tm_tensor_id w = parameter(graph, "w", tm_shape_3(EXPERTS, OUTPUTS, INPUTS));
        tm_tensor_id in[5] = { activation(graph, "x", ROWS, INPUTS), w,
                               tm_graph_tensor(graph, "offsets", TM_ROLE_INDEX, tm_shape_1(EXPERTS + 1)), TM_NONE,
                               TM_NONE };
        (void)test_state;
        adapter.a = parameter(graph, "a", tm_shape_3(EXPERTS, RANK, INPUTS));
        adapter.b = parameter(graph, "b", tm_shape_3(EXPERTS, OUTPUTS, RANK));
        tm_graph_at(graph, w)->adapter = &adapter;
        if (extras) in[3] = parameter(graph, "bias", tm_shape_1(EXPERTS * OUTPUTS));
        if (extras) in[4] = activation(graph, "residual", ROWS, OUTPUTS);
        (void)product(graph, TM_OP_grouped_linear, NULL, 0, in, activation(graph, "y", ROWS, OUTPUTS));
        nodes_are(graph, segment, TM_NONE,
                  extras ? "grouped_linear x w offsets bias residual -> y.base\n"
                           "grouped_linear x a offsets - - -> m.grouped_linear\n"
                           "scale m.grouped_linear -> m.scale\n"
                           "grouped_linear m.scale b offsets - y.base -> y\n"
                         : "grouped_linear x w offsets - - -> y.base\n"
                           "grouped_linear x a offsets - - -> m.grouped_linear\n"
                           "scale m.grouped_linear -> m.scale\n"
                           "grouped_linear m.scale b offsets - y.base -> y\n");
    }
}

TEST(of_the_output_layer)
{
    tm_segment  *segment;
    tm_graph    *graph = graph_new(&segment);
    tm_tensor_id x = activation(graph, "x", ROWS, INPUTS), w = parameter(graph, "w", tm_shape_2(OUTPUTS, INPUTS));
    tm_adapter   adapter = adapter_new(graph, "a", "b", 0, OUTPUTS);
    tm_loss_attr attr = { .chunk = 2 };
    tm_tensor_id in[5] = { x, w, tm_graph_tensor(graph, "targets", TM_ROLE_INPUT, tm_shape_1(ROWS)), TM_NONE, TM_NONE };
    tm_graph_at(graph, w)->adapter = &adapter;
    (void)product(graph, TM_OP_linear_cross_entropy, &attr, sizeof attr, in, TM_NONE);
    nodes_are(graph, segment, TM_NONE,
              "linear x a - - -> m.linear\n"
              "linear_cross_entropy x w targets m.linear b -> m.linear_cross_entropy\n");
}
