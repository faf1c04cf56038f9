/* SPDX-License-Identifier: Apache-2.0 */
/* Neighbours that passes make one op of (tm_chooser.fuses): nothing that was to be fused is left, and what must stay
 * apart does. (Numbers: tests/differential, compare.fuses.) */
#include "device/backend.h"
#include "graph/passes/codes.h"
#include "graph/passes/passes.h"
#include "op/attrs.h"
#include "op/quantize.h"
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

/* --- codes of both directions */

/* What differs from a pair that one op makes. */
typedef enum { NOTHING, WRITTEN, VIEWED, PHASE, RECIPE, PARTS, CHANCE, SAME_WAY, VALUES, LARGEST, CASES } difference;

static tm_tensor_id quantized(tm_graph *graph, tm_tensor_id x, tm_quantize_attr attr, int row)
{
    tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT];
    tm_shape     shape = tm_graph_at(graph, x)->shape;
    for (int i = 0; i < TM_MAX_IN; i++) in[i] = i == 0 ? x : TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
    attr.row = row;
    out[0] = tm_graph_tensor_as(graph, "codes", TM_ROLE_ACTIVATION,
                                attr.codes ? tm_quantize_codes(&attr, shape) : shape, attr.codes ? TM_E4M3 : TM_F64);
    if (attr.codes)
        out[TM_QUANTIZE_SCALES] = tm_graph_tensor_as(graph, "scales", TM_ROLE_STATISTIC,
                                                     tm_shape_1(tm_quantize_scales(&attr, shape, 1)), TM_F32);
    tm_graph_add(graph, TM_OP_quantize, &attr, sizeof attr, in, out, 0);
    return out[0];
}

static void write_again(tm_graph *graph, tm_tensor_id a, tm_tensor_id x)
{
    tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT];
    for (int i = 0; i < TM_MAX_IN; i++) in[i] = i == 0 ? a : TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = k == 0 ? x : TM_NONE;
    tm_graph_add(graph, TM_OP_gelu, NULL, 0, in, out, 0);
}

/* x is made, quantized for one direction, and for the other. Returns the ops of the segment after the pass. */
static size_t both_ways(difference d, bool turned_first, tm_node nodes[8], tm_tensor_id codes[2])
{
    tm_graph        *graph = tm_graph_create(&tm_precision_f64);
    tm_device       *device = test_device_open("reference", 1);
    tm_chooser       chooser = tm_device_chooser(device);
    tm_quantize_attr attr[2] = { { .recipe = { { .format = TM_E4M3, .scaled = TM_SCALED_TENSOR } },
                                   .switch_step = -1,
                                   .codes = TM_CODES_PLAIN,
                                   .n_parts = 1,
                                   .end = { 32 } } };
    tm_graph_segment(graph, "only");
    tm_tensor_id a = tm_graph_tensor(graph, "a", TM_ROLE_ACTIVATION, tm_shape_2(32, 48)), x[2];
    x[0] = x[1] = emit(graph, TM_OP_gelu, NULL, 0, a, TM_NONE, NULL);
    if (d == VIEWED)
        for (int k = 0; k < 2; k++) x[k] = tm_graph_view(graph, "x.view", x[0], 0, 16);
    attr[1] = attr[0];
    attr[turned_first ? 0 : 1].down = 1;
    if (d == SAME_WAY) attr[1].down = attr[0].down;
    if (d == RECIPE) attr[1].recipe[0].format = TM_E5M2;
    if (d == PARTS) attr[1].n_parts = 2, attr[1].end[0] = 16, attr[1].end[1] = 32;
    if (d == CHANCE) attr[0].recipe[0].stochastic = attr[1].recipe[0].stochastic = 1;
    if (d == VALUES) attr[1].codes = 0;
    codes[0] = quantized(graph, x[0], attr[0], 3);
    if (d == WRITTEN) write_again(graph, a, x[0]);
    codes[1] = quantized(graph, x[1], attr[1], 5);
    tm_node *last = &graph->segment->nodes[graph->segment->n_nodes - 1];
    if (d == PHASE) last->phase = TM_PHASE_BACKWARD;
    if (d == LARGEST) last->in[TM_QUANTIZE_LARGEST] = a;
    chooser.fuses = true;
    tm_both_pass(graph, &chooser);
    size_t n = graph->segment->n_nodes;
    assert_true(n <= 8);
    memcpy(nodes, graph->segment->nodes, n * sizeof *nodes);
    static tm_quantize_both_attr kept;
    if (nodes[1].op == TM_OP_quantize_both) kept = *(const tm_quantize_both_attr *)nodes[1].attr, nodes[1].attr = &kept;
    tm_device_close(device);
    tm_graph_destroy(graph);
    return n;
}

TEST(a_factor_is_looked_at_once)
{
    for (int d = NOTHING; d < CASES; d++)
        for (int turned = 0; turned < 2; turned++) {
            tm_node      nodes[8];
            tm_tensor_id codes[2];
            size_t       n = both_ways((difference)d, turned, nodes, codes);
            bool         one = d == NOTHING || d == VIEWED;
            if (n != (one ? 2U : d == WRITTEN ? 4U : 3U)) fail_msg("difference %d: %zu nodes", d, n);
            if (!one) continue;
            const tm_quantize_both_attr *attr = nodes[1].attr;
            assert_int_equal(nodes[1].op, TM_OP_quantize_both);
            assert_int_equal(nodes[1].out[0], codes[turned]);
            assert_int_equal(nodes[1].out[TM_QUANTIZE_TURNED], codes[!turned]);
            assert_int_equal(attr->along.row, turned ? 5 : 3);
            assert_int_equal(attr->turned_row, turned ? 3 : 5);
        }
}

/* --- factors that are made on the way */

/* What differs from factors that never are in memory. */
typedef enum {
    MADE,
    READ_TWICE,   /* by products of both passes, in two ways */
    READ_BY_BOTH, /* one op gives both codes */
    READ_APART,   /* by another op, too */
    READ_BY_PART, /* by a view */
    NOT_CODES,
    OF_A_WHOLE, /* whose largest numbers are given */
    OF_EXPERTS,
    BY_CHANCE,
    INPUT_CHANGES,
    OTHER_MAKER,
    KINDS
} circumstance;

static const tm_op_id circumstances[KINDS][6] = {
    [MADE] = { TM_OP_quantize_made },
    [READ_TWICE] = { TM_OP_quantize_made, TM_OP_quantize_made },
    [READ_BY_BOTH] = { TM_OP_quantize_made },
    [READ_APART] = { TM_OP_swiglu, TM_OP_quantize, TM_OP_gelu },
    [READ_BY_PART] = { TM_OP_swiglu, TM_OP_quantize, TM_OP_copy },
    [NOT_CODES] = { TM_OP_swiglu, TM_OP_quantize },
    [OF_A_WHOLE] = { TM_OP_swiglu, TM_OP_quantize },
    [OF_EXPERTS] = { TM_OP_swiglu, TM_OP_quantize },
    [BY_CHANCE] = { TM_OP_swiglu, TM_OP_quantize },
    [INPUT_CHANGES] = { TM_OP_swiglu, TM_OP_gelu, TM_OP_quantize },
    [OTHER_MAKER] = { TM_OP_silu, TM_OP_quantize },
};

static void make_factor(circumstance of)
{
    tm_graph        *graph = tm_graph_create(&tm_precision_f64);
    tm_device       *device = test_device_open("reference", 1);
    tm_chooser       chooser = tm_device_chooser(device);
    tm_quantize_attr attr = { .recipe = { { .format = TM_E4M3, .scaled = TM_SCALED_TENSOR } },
                              .switch_step = -1,
                              .codes = of == NOT_CODES ? 0 : TM_CODES_PLAIN,
                              .n_parts = 1,
                              .end = { 32 } };
    tm_quantize_attr turned = attr;
    bool             gate = of != OTHER_MAKER;
    attr.recipe[0].stochastic = of == BY_CHANCE;
    turned.down = 1;
    tm_graph_segment(graph, "only");
    tm_tensor_id a = tm_graph_tensor(graph, "a", TM_ROLE_ACTIVATION, tm_shape_2(32, gate ? 96 : 48));
    tm_tensor_id x = emit(graph, gate ? TM_OP_swiglu : TM_OP_silu, NULL, 0, a, TM_NONE, NULL);
    if (of == INPUT_CHANGES) write_again(graph, a, a);
    quantized(graph, x, attr, 3);
    tm_node *first = &graph->segment->nodes[graph->segment->n_nodes - 1];
    if (of == OF_A_WHOLE) first->in[TM_QUANTIZE_LARGEST] = a;
    if (of == OF_EXPERTS) first->in[TM_QUANTIZE_OFFSETS] = a;
    if (of == READ_TWICE || of == READ_BY_BOTH) quantized(graph, x, turned, 5);
    if (of == READ_APART) emit(graph, TM_OP_gelu, NULL, 0, x, TM_NONE, NULL);
    if (of == READ_BY_PART) emit(graph, TM_OP_copy, NULL, 0, tm_graph_view(graph, "x.part", x, 0, 16), TM_NONE, NULL);
    chooser.fuses = true;
    if (of == READ_BY_BOTH) tm_both_pass(graph, &chooser);
    tm_made_pass(graph, &chooser);
    for (size_t n = 0; n < graph->segment->n_nodes || circumstances[of][n]; n++) {
        const tm_node *node = &graph->segment->nodes[n];
        if (n >= graph->segment->n_nodes || node->op != circumstances[of][n]) fail_msg("kind %d: node %zu", of, n);
        if (node->op != TM_OP_quantize_made) continue;
        const tm_quantize_both_attr *made = node->attr;
        assert_int_equal(node->in[0], a);
        assert_int_equal(made->maker, TM_MADE_SWIGLU);
        assert_int_equal(made->along.row, n ? 5 : 3);
        assert_int_equal(made->along.down, n);
        if (of == READ_BY_BOTH) assert_int_equal(made->turned_row, 5);
        assert_int_equal(node->out[TM_QUANTIZE_TURNED] != TM_NONE, of == READ_BY_BOTH);
    }
    tm_device_close(device);
    tm_graph_destroy(graph);
}

TEST(factors_are_made_where_nobody_else_reads_them)
{
    for (int of = MADE; of < KINDS; of++) make_factor((circumstance)of);
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
