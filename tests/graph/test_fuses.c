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

/* Two blocks of FLUX of two streams and two of one, two layers of Qwen3. Rows of two streams are joined for attention,
 * which head_rope does. A block of one stream: o is copied to where gelu has made the rest, in the backward pass once
 * more, and its gradient from where attention cannot read it. `again`: blocks are computed twice. */
static void check_nodes(model m, const outcome *fused, const outcome *apart)
{
    const int again = m == FLUX_AGAIN || m == QWEN3_AGAIN, singles = m <= FLUX_AGAIN ? 2 : 0;
    const int heads = m <= FLUX_AGAIN ? 4 : m <= QWEN3_AGAIN ? 2 : 0, gelus = apart->nodes[TM_OP_gelu_grad];
    const struct {
        tm_op_id op;
        int      fused, apart;
    } wanted[] = {
        { TM_OP_head_rope, heads * (1 + again), 0 },
        { TM_OP_head_rope_grad, heads, 0 },
        { TM_OP_head_norm, 0, apart->nodes[TM_OP_head_norm] },
        { TM_OP_rope, heads ? 0 : apart->nodes[TM_OP_rope], apart->nodes[TM_OP_rope] },
        { TM_OP_copy, 3 * singles, 0 },
        { TM_OP_join, apart->nodes[TM_OP_join] - singles * (3 + again), apart->nodes[TM_OP_join] },
        { TM_OP_split, apart->nodes[TM_OP_split] - 2 * singles, apart->nodes[TM_OP_split] },
        { TM_OP_gelu_bias_grad, gelus, 0 },
        { TM_OP_gelu_grad, 0, gelus },
        { TM_OP_bias_grad, apart->nodes[TM_OP_bias_grad] - gelus, apart->nodes[TM_OP_bias_grad] },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        assert_int_equal(fused->nodes[wanted[i].op], wanted[i].fused);
        assert_int_equal(apart->nodes[wanted[i].op], wanted[i].apart);
    }
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

/* An op whose kernels take no views, and no copies of them (NULL: none). */
static const tm_op *picky;
static tm_chooser   any;

static const tm_kernel *choose(const void *context, const tm_call *call, tm_text *refusals)
{
    bool refused = call->op == &tm_op_copy || call->out[0].ld > 0;
    for (int i = 0; i < call->op->n_in; i++) refused = refused || call->in[i].ld > 0;
    return call->op == picky && refused ? NULL : any.choose(context, call, refusals);
}

/* The ops of a segment after the pass. */
static void expect_ops(tm_graph *graph, const tm_op_id *wanted, size_t n)
{
    tm_device *device = test_device_open("reference", 1);
    tm_chooser chooser = tm_device_chooser(device);
    any = chooser;
    chooser.choose = choose;
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
    assert_int_equal(made == f, read > 0 || picky);
    if (made != f) assert_true(tm_graph_at(graph, made)->base == y && tm_graph_at(graph, made)->offset == 3);
    tm_graph_destroy(graph);
}

/* What is split is read by gelu, which takes no views (0), or a copy (2), and by a product, which takes them; by a view
 * of it, too (1). */
static void split_up(int how, const tm_op_id *wanted, size_t n)
{
    tm_graph    *graph = tm_graph_create(&tm_precision_f64);
    tm_join_attr attr = { .first = 3, .second = 5 };
    tm_tensor_id b;
    tm_graph_segment(graph, "only");
    tm_tensor_id x = tm_graph_tensor(graph, "x", TM_ROLE_ACTIVATION, tm_shape_2(2, 8));
    tm_tensor_id w = tm_graph_tensor(graph, "w", TM_ROLE_ACTIVATION, tm_shape_2(4, 5));
    tm_tensor_id y = emit(graph, TM_OP_gelu, NULL, 0, x, TM_NONE, NULL);
    tm_tensor_id a = emit(graph, TM_OP_split, &attr, sizeof attr, y, TM_NONE, &b);
    emit(graph, how == 2 ? TM_OP_copy : TM_OP_gelu, NULL, 0, a, TM_NONE, NULL);
    emit(graph, TM_OP_linear, NULL, 0, b, w, NULL);
    if (how == 1) emit(graph, TM_OP_copy, NULL, 0, tm_graph_view(graph, "b.view", b, 1, 2), TM_NONE, NULL);
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
    split_up(0, views, 4);
    split_up(1, stays, 5);
    static const tm_op_id both_views[] = { TM_OP_gelu, TM_OP_copy, TM_OP_linear };
    split_up(2, both_views, 3);
    /* Where a kernel does not take views, or copies them. */
    static const tm_op_id joins[] = { TM_OP_gelu, TM_OP_join, TM_OP_gelu };
    for (int copies = 0; copies < 2; copies++) {
        picky = copies ? &tm_op_copy : &tm_op_gelu;
        joined(0, joins, 3);
        picky = copies ? &tm_op_copy : &tm_op_linear;
        split_up(0, stays, 4);
    }
}

/* --- codes of a factor */

/* What lies between a maker and its codes, or is otherwise than one op makes it. */
enum {
    TURNED = 1,       /* for the other direction, too */
    FIRST_TURNED = 2, /* which comes first */
    BY_VIEWS = 4,     /* both read a part */
    WRITTEN = 8,      /* x, in between */
    LATER = 16,       /* in the backward pass */
    OTHER_FORMAT = 32,
    OTHER_PARTS = 64,
    BY_CHANCE = 128,
    SAME_WAY = 256,
    VALUES = 512,   /* no codes */
    LARGEST = 1024, /* numbers are given */
    OF_EXPERTS = 2048,
    ALSO_READ = 4096,     /* x, by another op */
    ALSO_BY_PART = 8192,  /* by a view */
    INPUT_CHANGES = 16384 /* behind the maker */
};

static const struct {
    tm_op_id maker;
    unsigned how;
    tm_op_id wanted[5];
} factors[] = {
    { TM_OP_silu, TURNED, { TM_OP_silu, TM_OP_quantize_both } },
    { TM_OP_silu, TURNED | FIRST_TURNED, { TM_OP_silu, TM_OP_quantize_both } },
    { TM_OP_silu, TURNED | BY_VIEWS, { TM_OP_silu, TM_OP_quantize_both } },
    { TM_OP_silu, TURNED | WRITTEN, { TM_OP_silu, TM_OP_quantize, TM_OP_gelu, TM_OP_quantize } },
    { TM_OP_silu, TURNED | LATER, { TM_OP_silu, TM_OP_quantize, TM_OP_quantize } },
    { TM_OP_silu, TURNED | OTHER_FORMAT, { TM_OP_silu, TM_OP_quantize, TM_OP_quantize } },
    { TM_OP_silu, TURNED | OTHER_PARTS, { TM_OP_silu, TM_OP_quantize, TM_OP_quantize } },
    { TM_OP_silu, TURNED | BY_CHANCE, { TM_OP_silu, TM_OP_quantize, TM_OP_quantize } },
    { TM_OP_silu, TURNED | SAME_WAY, { TM_OP_silu, TM_OP_quantize, TM_OP_quantize } },
    { TM_OP_silu, TURNED | VALUES, { TM_OP_silu, TM_OP_quantize, TM_OP_quantize } },
    { TM_OP_silu, TURNED | LARGEST, { TM_OP_silu, TM_OP_quantize, TM_OP_quantize } },
    { TM_OP_silu, 0, { TM_OP_silu, TM_OP_quantize } },
    { TM_OP_swiglu, 0, { TM_OP_quantize_made } },
    { TM_OP_swiglu, TURNED, { TM_OP_quantize_made } },
    { TM_OP_swiglu, TURNED | OTHER_FORMAT, { TM_OP_quantize_made, TM_OP_quantize_made } },
    { TM_OP_swiglu, ALSO_READ, { TM_OP_swiglu, TM_OP_quantize, TM_OP_gelu } },
    { TM_OP_swiglu, ALSO_BY_PART, { TM_OP_swiglu, TM_OP_quantize, TM_OP_copy } },
    { TM_OP_swiglu, VALUES, { TM_OP_swiglu, TM_OP_quantize } },
    { TM_OP_swiglu, LARGEST, { TM_OP_swiglu, TM_OP_quantize } },
    { TM_OP_swiglu, OF_EXPERTS, { TM_OP_swiglu, TM_OP_quantize } },
    { TM_OP_swiglu, BY_CHANCE, { TM_OP_swiglu, TM_OP_quantize } },
    { TM_OP_swiglu, INPUT_CHANGES, { TM_OP_swiglu, TM_OP_gelu, TM_OP_quantize } },
};

static tm_tensor_id quantized(tm_graph *graph, tm_tensor_id x, tm_quantize_attr attr, int row)
{
    tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT];
    tm_shape     shape = tm_graph_at(graph, x)->shape;
    for (int i = 0; i < TM_MAX_IN; i++) in[i] = i == 0 ? x : TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
    attr.row = row;
    out[0] = tm_graph_tensor_as(graph, "codes", TM_ROLE_ACTIVATION,
                                attr.codes ? tm_quantize_codes(&attr, shape, 0) : shape, attr.codes ? TM_E4M3 : TM_F64);
    if (attr.codes)
        out[TM_QUANTIZE_SCALES] = tm_graph_tensor_as(graph, "scales", TM_ROLE_STATISTIC,
                                                     tm_shape_1(tm_quantize_scales(&attr, shape, 0)), TM_F32);
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

/* x is made of a and becomes codes of rows 3 and, if at all, 5 of the record. Returns a. */
static tm_tensor_id build_factor(tm_graph *graph, tm_op_id maker, unsigned how, tm_tensor_id codes[2])
{
    tm_quantize_attr attr[2] = { { .recipe = { { .format = TM_E4M3, .scaled = TM_SCALED_TENSOR } },
                                   .switch_step = -1,
                                   .codes = TM_CODES_PLAIN,
                                   .n_parts = 1,
                                   .end = { 32 } } };
    tm_graph_segment(graph, "only");
    tm_tensor_id a = tm_graph_tensor(graph, "a", TM_ROLE_ACTIVATION, tm_shape_2(32, maker == TM_OP_swiglu ? 96 : 48));
    tm_tensor_id x = emit(graph, maker, NULL, 0, a, TM_NONE, NULL), made = x;
    const int    last = how & TURNED ? 1 : 0;
    attr[1] = attr[0];
    attr[how & FIRST_TURNED ? 0 : 1].down = 1;
    if (how & SAME_WAY) attr[1].down = attr[0].down;
    if (how & OTHER_FORMAT) attr[1].recipe[0].format = TM_E5M2;
    if (how & OTHER_PARTS) attr[1].n_parts = 2, attr[1].end[0] = 16, attr[1].end[1] = 32;
    if (how & BY_CHANCE) attr[0].recipe[0].stochastic = attr[1].recipe[0].stochastic = 1;
    if (how & VALUES) attr[last].codes = 0;
    if (how & INPUT_CHANGES) write_again(graph, a, a);
    for (int k = 0; k <= last; k++) {
        if (how & BY_VIEWS) x = tm_graph_view(graph, "x.view", made, 0, 16);
        if (k && how & WRITTEN) write_again(graph, a, made);
        codes[k] = quantized(graph, x, attr[k], k ? 5 : 3);
    }
    tm_node *node = &graph->segment->nodes[graph->segment->n_nodes - 1];
    if (how & LATER) node->phase = TM_PHASE_BACKWARD;
    if (how & LARGEST) node->in[TM_QUANTIZE_LARGEST] = a;
    if (how & OF_EXPERTS) node->in[TM_QUANTIZE_OFFSETS] = a;
    if (how & ALSO_READ) emit(graph, TM_OP_gelu, NULL, 0, x, TM_NONE, NULL);
    if (how & ALSO_BY_PART) emit(graph, TM_OP_copy, NULL, 0, tm_graph_view(graph, "part", x, 0, 16), TM_NONE, NULL);
    return a;
}

/* Looked at once for both directions, and made on the way where nobody else reads it. */
TEST(codes_are_made_where_nobody_else_looks)
{
    tm_device *device = test_device_open("reference", 1);
    tm_chooser chooser = tm_device_chooser(device);
    chooser.fuses = true;
    for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++) {
        tm_graph    *graph = tm_graph_create(&tm_precision_f64);
        tm_tensor_id codes[2], a = build_factor(graph, factors[f].maker, factors[f].how, codes);
        const int    turned = factors[f].how & FIRST_TURNED ? 1 : 0;
        tm_both_pass(graph, &chooser);
        tm_made_pass(graph, &chooser);
        for (size_t n = 0; n < graph->segment->n_nodes || factors[f].wanted[n]; n++) {
            const tm_node *node = &graph->segment->nodes[n];
            if (n >= graph->segment->n_nodes || node->op != factors[f].wanted[n]) fail_msg("row %zu: node %zu", f, n);
            const tm_quantize_both_attr *made = node->attr;
            if (node->op != TM_OP_quantize_made && node->op != TM_OP_quantize_both) continue;
            const bool both =
                factors[f].wanted[n + 1] == 0 && factors[f].how & TURNED && n == (node->op == TM_OP_quantize_both);
            if (node->op == TM_OP_quantize_made) assert_true(node->in[0] == a && made->maker == TM_MADE_SWIGLU);
            assert_int_equal(node->out[0], codes[both ? turned : (int)n]);
            assert_int_equal(made->along.row, both ? (turned ? 5 : 3) : n ? 5 : 3);
            assert_int_equal(node->out[TM_QUANTIZE_TURNED], both ? codes[!turned] : TM_NONE);
            assert_int_equal(node->out[TM_QUANTIZE_SCALES], node->out[0] + 1); /* each declared behind its codes */
            assert_int_equal(node->out[TM_QUANTIZE_TURNED_SCALES], both ? codes[!turned] + 1 : TM_NONE);
            if (both) assert_int_equal(made->turned_row, turned ? 3 : 5);
        }
        tm_graph_destroy(graph);
    }
    tm_device_close(device);
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
