/* SPDX-License-Identifier: Apache-2.0 */
/* Neighbours that passes make one op of (tm_chooser.fuses): nothing that was to be fused is left, and what must stay
 * apart does. (Numbers: tests/differential, compare.fuses.) */
#include "device/backend.h"
#include "graph/passes/passes.h"
#include "op/attrs.h"
#include "support/golden.h"
#include "support/training.h"

#include "support/test.h"

typedef enum { FLUX, FLUX_AGAIN, QWEN3, QWEN3_AGAIN, LLAMA, GPT, MODELS } model;

static tm_step_options options_of(model m)
{
    const tm_precision *p = &tm_precision_f64;
    tm_step_options     o = m <= FLUX_AGAIN    ? golden_flux_options(p)
                            : m <= QWEN3_AGAIN ? golden_qwen3_options(p)
                            : m == LLAMA       ? golden_llama_options(p)
                                               : golden_gpt2_options(p);
    o.micro_batch = 2;
    o.accumulation = 2;
    o.recompute = (tm_recompute){ .cheap = true, .every_n = m == FLUX_AGAIN || m == QWEN3_AGAIN };
    if (m <= FLUX_AGAIN) o.shape.n_layers = o.shape.flux.n_single = 2;
    return o;
}

typedef struct {
    int    nodes[TM_OP_COUNT]; /* of a step */
    double bytes;
} outcome;

static outcome plan(const char *name, const tm_step_options *o, bool fuses)
{
    tm_device *device = test_device_open(name, 1);
    outcome    out = { .bytes = 0 };
    device->info.fuses = fuses;
    tm_chooser chooser = tm_device_chooser(device);
    tm_step   *step = test_step_plan(o, &chooser);
    out.bytes = step->first->cost.bytes;
    for (size_t x = 0; x < step->first->count; x++) out.nodes[step->first->instructions[x].node->op]++;
    tm_step_destroy(step);
    tm_device_close(device);
    return out;
}

/* Of FLUX there are as many blocks of two streams as of one, whose rows are joined `times` times for attention, which
 * head_rope does. A block of one stream: o is copied to where gelu has made the rest, in the backward pass once more,
 * and its gradient from where attention cannot read it. */
static void check_columns(const outcome *fused, const outcome *apart, int singles, int times)
{
    int both = apart->nodes[TM_OP_gelu_grad];
    assert_int_equal(fused->nodes[TM_OP_copy], 3 * singles);
    assert_int_equal(apart->nodes[TM_OP_join] - fused->nodes[TM_OP_join], singles * (2 + times));
    assert_int_equal(apart->nodes[TM_OP_split] - fused->nodes[TM_OP_split], 2 * singles);
    assert_int_equal(fused->nodes[TM_OP_gelu_bias_grad], both);
    assert_int_equal(fused->nodes[TM_OP_gelu_grad], 0);
    assert_int_equal(apart->nodes[TM_OP_bias_grad] - fused->nodes[TM_OP_bias_grad], both);
    assert_int_equal(apart->nodes[TM_OP_gelu_bias_grad] + apart->nodes[TM_OP_copy], 0);
}

/* Blocks of FLUX: two of two streams, two of one. Qwen3: two layers. */
static void check_nodes(model m, const outcome *fused, const outcome *apart)
{
    bool again = m == FLUX_AGAIN || m == QWEN3_AGAIN;
    int  heads = m <= FLUX_AGAIN ? 4 : m <= QWEN3_AGAIN ? 2 : 0;
    assert_int_equal(apart->nodes[TM_OP_head_rope], 0);
    assert_int_equal(fused->nodes[TM_OP_head_rope], heads * (again ? 2 : 1));
    assert_int_equal(fused->nodes[TM_OP_head_rope_grad], heads);
    assert_int_equal(fused->nodes[TM_OP_head_norm], 0);
    if (heads > 0) assert_int_equal(fused->nodes[TM_OP_rope], 0);
    if (heads == 0) assert_int_equal(fused->nodes[TM_OP_rope], apart->nodes[TM_OP_rope]);
    check_columns(fused, apart, m <= FLUX_AGAIN ? 2 : 0, again ? 2 : 1);
    assert_true(heads == 0 ? fused->bytes <= apart->bytes : fused->bytes < apart->bytes);
}

TEST(what_can_be_is_fused)
{
    for (int m = 0; m < MODELS; m++) {
        tm_step_options o = options_of((model)m);
        outcome         apart = plan("reference", &o, false), fused = plan("reference", &o, true);
        check_nodes((model)m, &fused, &apart);
    }
}

static tm_tensor_id emit(tm_graph *graph, tm_op_id op, const void *attr, size_t bytes, tm_tensor_id a, tm_tensor_id b,
                         tm_tensor_id *second)
{
    tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT];
    for (int i = 0; i < TM_MAX_IN; i++) in[i] = i == 0 ? a : i == 1 ? b : TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
    tm_graph_add(graph, op, attr, bytes, in, out, 0);
    if (second) *second = out[1];
    return out[0];
}

/* The ops of a segment after the pass. */
static void expect_ops(tm_graph *graph, const tm_op_id *wanted, size_t n)
{
    tm_device *device = test_device_open("reference", 1);
    tm_chooser chooser = tm_device_chooser(device);
    chooser.fuses = true;
    tm_columns_pass(graph, &chooser);
    assert_int_equal(graph->segment->n_nodes, n);
    for (size_t x = 0; x < n; x++) assert_int_equal(graph->segment->nodes[x].op, wanted[x]);
    tm_device_close(device);
}

/* y = [a | gelu(x)], and then gelu once more: of y, of what was joined, or of a view of that. */
static void joined(int read, const tm_op_id *wanted, size_t n)
{
    tm_graph    *graph = tm_graph_create(&tm_precision_f64);
    tm_join_attr attr = { .first = 3, .second = 5 };
    tm_graph_segment(graph, "only");
    tm_tensor_id a = tm_graph_tensor(graph, "a", TM_ROLE_ACTIVATION, tm_shape_2(2, 3));
    tm_tensor_id x = tm_graph_tensor(graph, "x", TM_ROLE_ACTIVATION, tm_shape_2(2, 5));
    tm_tensor_id f = emit(graph, TM_OP_gelu, NULL, 0, x, TM_NONE, NULL);
    tm_tensor_id y = emit(graph, TM_OP_join, &attr, sizeof attr, a, f, NULL);
    tm_tensor_id view = tm_graph_view(graph, "f.view", f, 1, 2);
    emit(graph, read == 2 ? TM_OP_copy : TM_OP_gelu, NULL, 0, read == 0 ? y : read == 1 ? f : view, TM_NONE, NULL);
    expect_ops(graph, wanted, n);
    tm_tensor_id made = graph->segment->nodes[0].out[0];
    assert_int_equal(made == f, read > 0);
    if (read == 0) assert_true(tm_graph_at(graph, made)->base == y && tm_graph_at(graph, made)->offset == 3);
    tm_graph_destroy(graph);
}

/* What is split is read by gelu, which takes no views, and by a product, which does; by a view of it, too. */
static void split_up(bool viewed, const tm_op_id *wanted, size_t n)
{
    tm_graph    *graph = tm_graph_create(&tm_precision_f64);
    tm_join_attr attr = { .first = 3, .second = 5 };
    tm_tensor_id b;
    tm_graph_segment(graph, "only");
    tm_tensor_id x = tm_graph_tensor(graph, "x", TM_ROLE_ACTIVATION, tm_shape_2(2, 8));
    tm_tensor_id w = tm_graph_tensor(graph, "w", TM_ROLE_ACTIVATION, tm_shape_2(4, 5));
    tm_tensor_id y = emit(graph, TM_OP_gelu, NULL, 0, x, TM_NONE, NULL);
    tm_tensor_id a = emit(graph, TM_OP_split, &attr, sizeof attr, y, TM_NONE, &b);
    emit(graph, TM_OP_gelu, NULL, 0, a, TM_NONE, NULL);
    emit(graph, TM_OP_linear, NULL, 0, b, w, NULL);
    if (viewed) emit(graph, TM_OP_copy, NULL, 0, tm_graph_view(graph, "b.view", b, 1, 2), TM_NONE, NULL);
    expect_ops(graph, wanted, n);
    tm_graph_destroy(graph);
}

TEST(only_what_nobody_else_reads_is_in_place)
{
    static const tm_op_id in_place[] = { TM_OP_gelu, TM_OP_copy, TM_OP_gelu };
    static const tm_op_id read[] = { TM_OP_gelu, TM_OP_join, TM_OP_gelu };
    static const tm_op_id read_by_view[] = { TM_OP_gelu, TM_OP_join, TM_OP_copy };
    static const tm_op_id views[] = { TM_OP_gelu, TM_OP_copy, TM_OP_gelu, TM_OP_linear };
    static const tm_op_id stays[] = { TM_OP_gelu, TM_OP_split, TM_OP_gelu, TM_OP_linear, TM_OP_copy };
    joined(0, in_place, 3);
    joined(1, read, 3);
    joined(2, read_by_view, 3);
    split_up(false, views, 4);
    split_up(true, stays, 5);
}

/* A device without kernels for them keeps its programs. */
TEST(what_no_kernel_takes_stays_apart)
{
    for (int m = FLUX; m <= QWEN3; m += QWEN3 - FLUX) {
        tm_step_options o = options_of((model)m);
        o.precision = &tm_precision_f32;
        outcome apart = plan("cpu", &o, false), fused = plan("cpu", &o, true);
        assert_memory_equal(fused.nodes, apart.nodes, sizeof fused.nodes);
    }
}
