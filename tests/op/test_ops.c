/* SPDX-License-Identifier: Apache-2.0 */
/* What every op owes: a complete row, examples that fit, refusals with a reason, costs, outputs written whole, in-place
 * and accumulation as declared. Values are in test_values.c, gradients in test_gradients.c. */
#include "../support/execute.h"
#include "base/random.h"
#include "op/attrs.h"

#include <ctype.h>

#include "support/test.h"

enum { SEED = 20240608 };

static const void *attr_of(const tm_example *example)
{
    return example->attr_bytes ? example->attr : NULL;
}

TEST(table_is_complete_and_sorted)
{
    static const char *const groups[] = { "linear",    "attention", "norm",   "elementwise",   "embedding", "loss",
                                          "optimizer", "clip",      "copies", "communication", "experts" };
    for (int id = 0; id < TM_OP_COUNT; id++) {
        const tm_op *op = tm_op_get((tm_op_id)id);
        bool         known = false;
        assert_non_null(op);
        assert_int_equal(tm_op_id_of(op), id);
        if (id > 0) assert_true(strcmp(tm_op_get((tm_op_id)(id - 1))->name, op->name) < 0);
        assert_true(op->formula && *op->formula && op->infer && op->reference && op->cost && op->example);
        for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) known |= strcmp(groups[g], op->group) == 0;
        assert_true(known);
        assert_in_range(op->n_in, 0, TM_MAX_IN);
        assert_in_range(op->n_out, 1, TM_MAX_OUT);
        unsigned past_in = ~0U << op->n_in, past_out = ~0U << op->n_out;
        assert_false((op->optional_in & past_in) || (op->inplace & past_in) || (op->any_dtype_in & past_in));
        assert_false(op->optional_out & past_out);
        if (strstr(op->name, "grad")) assert_null(op->gradient);
    }
    assert_string_equal(tm_op_get(TM_OP_linear_cross_entropy_grad)->name, "linear_cross_entropy_grad");
    assert_string_equal(tm_op_get(TM_OP_bias_grad)->name, "bias_grad");
}

/* Runs `function` for every op and example. */
typedef void example_function(const tm_op *op, const tm_example *example, int number);
static void  for_all(example_function *function)
{
    for (int id = 0; id < TM_OP_COUNT; id++) {
        const tm_op *op = tm_op_get((tm_op_id)id);
        tm_example   example;
        int          k = 0;
        for (; op->example(k, &example); k++)
            if (!tm_example_is_for_kernels(&example)) function(op, &example, k);
        if (k < 3) fail_msg("%s has %d examples only", op->name, k);
    }
}

/* ---- shapes ---- */

static void expect_reason(const tm_op *op, int number, const char *reason, const char *what, int k)
{
    if (!reason) fail_msg("%s, example %d: a wrong shape of %s %d is not refused", op->name, number, what, k);
    assert_true(islower((unsigned char)reason[0]));
    assert_true(strlen(reason) > 15 && reason[strlen(reason) - 1] != '.');
}

static void infer_all(const tm_op *op, const tm_example *example, tm_shape *out)
{
    memcpy(out, example->out, sizeof example->out);
    const char *reason = op->infer(example->in, attr_of(example), out);
    if (reason) fail_msg("%s refuses its own example: %s", op->name, reason);
    bool any = op == &tm_op_send; /* what they send is all that they do */
    for (int k = 0; k < op->n_out; k++) any = any || out[k].rank >= 0;
    if (!any) fail_msg("%s has an example without an output, which nothing judges", op->name);
}

/* The only lengths that are free: tables may have more rows than are used, any rows can be added up, any tensor has a
 * norm. */
static bool is_free(const tm_op *op, bool output, int k, int axis, bool positions)
{
    if (op == &tm_op_square_sum) return !output;
    if (op == &tm_op_expert_span) return !output && axis == 0; /* of any number of experts */
    if (op == &tm_op_fill) return axis < 2;
    if (op == &tm_op_time_embedding) return !output && axis >= 1; /* (N) or (N, 1) */
    if (op == &tm_op_balance_loss) return !output && k == 0 && axis == 1;
    if (op == &tm_op_send_rows || op == &tm_op_return_rows) return !output && k == 1 && axis == 1; /* of one rank */
    if (op == &tm_op_grouped_bias_grad) return !output && k == 0 && axis == 0;
    if (op == &tm_op_quantize) return k >= (output ? 1 : 2) && k < 4 && axis == 0; /* tables of all factors */
    if (op == &tm_op_quantize_both) return axis == 0 && (output ? k == 1 : k == 2 || k == 3);
    if (op == &tm_op_quantize_made) return axis == 0 && k == (output ? 1 : 2);
    if (op == &tm_op_quantize_largest) return !output && k != 1;
    if (op == &tm_op_bias_grad) return !output && axis == 0;
    if (op == &tm_op_cross_entropy || op == &tm_op_vocabulary_loss) return !output && k == 0 && axis == 1;
    if (op == &tm_op_low_rank_dgrad || op == &tm_op_low_rank_wgrad)
        return !output && k == 0 && axis == 1; /* columns behind the last part */
    if (op == &tm_op_adapted_norm) return !output && k == 0 && axis == 0;
    if (op == &tm_op_embedding) return !output && k >= 1 && axis == 0;
    if (op == &tm_op_embedding_grad) return output && axis == 0;
    if (op == &tm_op_rope || op == &tm_op_rope_grad) return !output && k == 1 && axis == 0 && positions;
    if (op == &tm_op_head_rope) return !output && k == 2 && axis == 0 && positions;
    if (op == &tm_op_head_rope_grad) return !output && k == 4 && axis == 0 && positions;
    return false;
}

/* All outputs given: one more along any axis, or one more axis, of any tensor is a misfit. */
static void wrong_shapes_are_refused(const tm_op *op, const tm_example *example, int number)
{
    tm_shape fitting[TM_MAX_OUT];
    int      positions = op == &tm_op_head_rope ? 3 : op == &tm_op_head_rope_grad ? 5 : 2;
    infer_all(op, example, fitting);
    for (int t = 0; t < op->n_in + op->n_out; t++) {
        bool     output = t >= op->n_in;
        int      k = output ? t - op->n_in : t;
        tm_shape original = output ? fitting[k] : example->in[k];
        for (int axis = 0; axis <= original.rank; axis++) {
            tm_shape in[TM_MAX_IN], out[TM_MAX_OUT];
            memcpy(in, example->in, sizeof in);
            memcpy(out, fitting, sizeof out);
            tm_shape *shape = output ? &out[k] : &in[k];
            if (axis < original.rank) shape->n[axis]++;
            if (axis == original.rank) shape->n[shape->rank++] = 1;
            if (is_free(op, output, k, axis, example->in[positions].rank >= 0)) continue;
            expect_reason(op, number, op->infer(in, attr_of(example), out), output ? "output" : "input", k);
        }
    }
}

TEST(infer_refuses_wrong_shapes)
{
    for_all(wrong_shapes_are_refused);
}

static void optional_stays_absent(const tm_op *op, const tm_example *example, int number)
{
    tm_shape out[TM_MAX_OUT];
    (void)number;
    infer_all(op, example, out);
    for (int k = 0; k < TM_MAX_OUT; k++) {
        if (k >= op->n_out) assert_int_equal(out[k].rank, -1);
        if (op->optional_out >> k & 1U) assert_int_equal(out[k].rank, example->out[k].rank);
        if (k < op->n_out && !(op->optional_out >> k & 1U)) assert_true(out[k].rank >= 0);
    }
}

TEST(outputs_not_given_are_inferred_or_absent)
{
    for_all(optional_stays_absent);
}

/* ---- names ---- */

/* Extents of an example by the word that stands for them: "N", "chunk". */
typedef struct {
    char    word[16][16];
    int64_t extent[16];
    int     n;
} extents;

/* One axis of a shape text: a number is that extent, a word the same one everywhere; a product of words is left. */
static bool axis_fits(extents *known, const char *text, size_t length, int64_t extent)
{
    char word[16] = "";
    if (length >= sizeof word) return true;
    memcpy(word, text, length);
    if (isdigit((unsigned char)word[0]) && strspn(word, "0123456789") == length) return atoll(word) == extent;
    for (size_t i = 0; i < length; i++)
        if (!isalpha((unsigned char)word[i])) return true;
    for (int i = 0; i < known->n; i++)
        if (strcmp(known->word[i], word) == 0) return known->extent[i] == extent;
    memcpy(known->word[known->n], word, sizeof word);
    known->extent[known->n++] = extent;
    return true;
}

/* "x (N, C)" or "[x (N, C)]" against a shape; (...): any. */
static bool name_fits(extents *known, const char *name, bool optional, tm_shape shape)
{
    const char *at = name ? strchr(name, '(') : NULL;
    int         axis = 0, depth = 0;
    if (!at || (name[0] == '[') != optional || (name[strlen(name) - 1] == ']') != optional) return false;
    if (strncmp(at, "(...)", 5) == 0 || shape.rank < 0) return true;
    int         rank = 1;
    const char *other = strstr(at, " or (");
    for (const char *c = at; *c && *c != ')'; c++) rank += *c == ',';
    if (other && rank != shape.rank) at = other + 4; /* "w (D) or (2, D)" */
    if (strncmp(at, "()", 2) == 0) return shape.rank == 0;
    for (const char *begin = ++at; *at; at++) {
        depth += *at == '(' ? 1 : *at == ')' ? -1 : 0;
        if (depth < 0 || (depth == 0 && *at == ',')) {
            if (axis >= shape.rank || !axis_fits(known, begin, (size_t)(at - begin), shape.n[axis])) return false;
            axis++;
            begin = at + 2;
        }
        if (depth < 0) break;
    }
    return axis == shape.rank;
}

static void names_are_true(const tm_op *op, const tm_example *example, int number)
{
    extents  known = { .n = 0 };
    tm_shape out[TM_MAX_OUT];
    infer_all(op, example, out);
    for (int k = 0; k < TM_MAX_IN; k++)
        if (k < op->n_in ? !name_fits(&known, op->in_name[k], op->optional_in >> k & 1U, example->in[k])
                         : op->in_name[k] != NULL)
            fail_msg("%s, example %d: the name of input %d does not fit", op->name, number, k);
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (k < op->n_out ? !name_fits(&known, op->out_name[k], op->optional_out >> k & 1U, out[k])
                          : op->out_name[k] != NULL)
            fail_msg("%s, example %d: the name of output %d does not fit", op->name, number, k);
    if (!op->attributes != !example->attr_bytes) fail_msg("%s: attributes without names, or names of none", op->name);
    if (strchr(op->formula, '|')) fail_msg("%s: a bar breaks the table of the page", op->name);
}

TEST(names_say_shapes)
{
    for_all(names_are_true);
}

/* ---- costs ---- */

static void view_as(tm_view *view, tm_dtype dtype, tm_shape shape)
{
    *view = (tm_view){ .dtype = dtype, .shape = shape };
}

static tm_call empty_call(const tm_op *op, const void *attr)
{
    tm_call call = { .op = op, .attr = attr };
    for (int k = 0; k < TM_MAX_IN; k++) call.in[k] = tm_view_absent();
    for (int k = 0; k < TM_MAX_OUT; k++) call.out[k] = tm_view_absent();
    return call;
}

/* Of tables the rows that are used count, of logits a chunk. */
static bool reads_parts(const char *name)
{
    static const char *const prefixes[] = {
        "linear_token_losses", "linear_cross_entropy", "embedding", "put_rows", "quantize", "vocabulary_loss"
    };
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

static double bytes_of(const tm_view *view)
{
    return tm_view_present(view) ? (double)tm_tensor_bytes(view->shape, view->dtype) : 0;
}

/* Every input and output is moved once, outputs that are added to twice. */
static void bytes_are_those_of_operands(const tm_op *op, const tm_example *example, int number)
{
    for (int form = 0; form < 4; form++) {
        tm_call call = tm_example_call(op, example, form & 1 ? &tm_precision_bf16 : &tm_precision_f32);
        double  moved = 0;
        call.accumulate = form & 2 ? (1U << op->n_out) - 1 : 0;
        for (int k = 0; k < op->n_in; k++) moved += bytes_of(&call.in[k]);
        for (int k = 0; k < op->n_out; k++) moved += bytes_of(&call.out[k]) * (call.accumulate >> k & 1U ? 2 : 1);
        tm_cost cost = op->cost(&call);
        if (reads_parts(op->name) ? cost.bytes <= 0 || cost.bytes > moved : cost.bytes != moved)
            fail_msg("%s, example %d: %g bytes, %g are moved", op->name, number, cost.bytes, moved);
        assert_true(cost.flops >= 0 && cost.vector >= 0 && cost.wire >= 0);
        if (op->vector > 0 && tm_view_present(&call.in[0])) assert_true(cost.vector > 0 || cost.flops > 0);
    }
}

TEST(costs_count_what_is_moved)
{
    for_all(bytes_are_those_of_operands);
}

/* A product of (N, K) and (M, K): 2 N K M; the loss is one, its gradient three. */
TEST(costs_of_products)
{
    tm_loss_attr attr = { .chunk = 2 };
    tm_call      call = empty_call(&tm_op_linear, NULL);
    view_as(&call.in[0], TM_BF16, tm_shape_2(4, 3));
    view_as(&call.in[1], TM_BF16, tm_shape_2(5, 3));
    view_as(&call.out[0], TM_BF16, tm_shape_2(4, 5));
    assert_true(call.op->cost(&call).flops == 2 * 4 * 3 * 5);
    call = empty_call(&tm_op_linear_cross_entropy, &attr);
    view_as(&call.in[0], TM_F32, tm_shape_2(6, 3));
    view_as(&call.in[1], TM_F32, tm_shape_2(7, 3));
    view_as(&call.in[2], TM_I32, tm_shape_1(6));
    assert_true(call.op->cost(&call).flops == 2 * 6 * 3 * 7);
    call.op = &tm_op_linear_cross_entropy_grad;
    view_as(&call.out[1], TM_F32, tm_shape_2(6, 3));
    view_as(&call.out[2], TM_F32, tm_shape_2(7, 3));
    assert_true(call.op->cost(&call).flops == 3 * 2 * 6 * 3 * 7);
}

/* Causal attention executes T (T + 1) / 2 pairs per head, its gradient five products where it has two. */
TEST(costs_of_attention)
{
    tm_attention_attr attr = tm_self_attention(10, 4, 2, 8, 1);
    tm_call           call = empty_call(&tm_op_attention, &attr), grad = empty_call(&tm_op_attention_grad, &attr);
    view_as(&call.in[0], TM_F32, tm_shape_2(30, 32));
    view_as(&call.in[1], TM_F32, tm_shape_2(30, 16));
    view_as(&call.in[2], TM_F32, tm_shape_2(30, 16));
    view_as(&call.out[0], TM_F32, tm_shape_2(30, 32));
    view_as(&call.out[1], TM_F32, tm_shape_3(3, 4, 10));
    view_as(&grad.in[1], TM_F32, tm_shape_2(30, 32));
    assert_true(call.op->cost(&call).flops == 2 * 2 * 3 * 4 * 55 * 8);
    assert_true(call.op->cost(&call).bytes == 4 * (30 * 64 + 30 * 32 + 120));
    assert_true(grad.op->cost(&grad).flops == 2.5 * call.op->cost(&call).flops);
    attr.window = 4; /* 1 + 2 + 3 + 7 x 4 pairs */
    assert_true(call.op->cost(&call).flops == 2 * 2 * 3 * 4 * 34 * 8);
    attr.window = 20;
    assert_true(call.op->cost(&call).flops == 2 * 2 * 3 * 4 * 55 * 8);
    attr.q_offset = -2; /* eight queries with 1 + .. + 8 */
    assert_true(call.op->cost(&call).flops == 2 * 2 * 3 * 4 * 36 * 8);
    attr.q_offset = 5, attr.window = 4; /* positions 5 .. 14 of ten keys: 5 x 4, then 3 + 2 + 1 */
    assert_true(call.op->cost(&call).flops == 2 * 2 * 3 * 4 * 26 * 8);
    attr.q_offset = attr.causal = attr.window = 0;
    assert_true(call.op->cost(&call).flops == 2 * 2 * 3 * 4 * 100 * 8);
    attr.dim_qk = 3, attr.dim_v = 5; /* scores, dq, dk: dim_qk; results, dp, dv: dim_v */
    assert_true(call.op->cost(&call).flops == 2 * 3 * 4 * 100 * (3 + 5));
    assert_true(grad.op->cost(&grad).flops == 2 * 3 * 4 * 100 * (3 * 3 + 2 * 5));
}

/* ---- what a reference kernel owes, on every example ---- */

static void expect_same(const tm_call *a, const tm_call *b, int number, const char *what)
{
    for (int k = 0; k < a->op->n_out; k++) {
        if (!tm_view_present(&a->out[k]) || !tm_view_present(&b->out[k]) || a->op->out_role[k] == TM_ROLE_LOGITS)
            continue;
        size_t bytes = (size_t)tm_shape_elements(a->out[k].shape) * tm_dtype_bytes(a->out[k].dtype);
        if (memcmp(a->out[k].data, b->out[k].data, bytes) != 0)
            fail_msg("%s, example %d, output %d differs: %s", a->op->name, number, k, what);
    }
}

static void outputs_are_written(const tm_op *op, const tm_example *example, int number)
{
    tm_call call;
    tm_call_make(&call, op, example, SEED);
    op->reference(&call);
    for (int k = 0; k < op->n_out; k++) {
        if (!tm_view_present(&call.out[k]) || op->out_role[k] == TM_ROLE_LOGITS) continue;
        const double  *values = call.out[k].data;
        const int32_t *whole = call.out[k].data;
        for (int64_t i = 0; i < tm_shape_elements(call.out[k].shape); i++)
            if (call.out[k].dtype == TM_I32 ? whole[i] == INT32_MIN : !isfinite(values[i]))
                fail_msg("%s, example %d, output %d, element %lld is not written", op->name, number, k, (long long)i);
    }
    tm_call_free(&call);
}

TEST(references_write_whole_outputs)
{
    for_all(outputs_are_written);
}

static void inplace_is_the_same(const tm_op *op, const tm_example *example, int number)
{
    for (int k = 0; k < op->n_in; k++) {
        tm_call apart, shared;
        if (!(op->inplace >> k & 1U) || example->in[k].rank < 0) continue;
        tm_call_make(&apart, op, example, SEED);
        tm_call_make(&shared, op, example, SEED);
        assert_true(tm_shape_equal(shared.in[k].shape, shared.out[0].shape));
        free(shared.out[0].data);
        shared.out[0].data = shared.in[k].data;
        op->reference(&apart);
        op->reference(&shared);
        expect_same(&apart, &shared, number, "in place");
        shared.in[k].data = NULL;
        tm_call_free(&apart);
        tm_call_free(&shared);
    }
}

TEST(inplace_changes_nothing)
{
    for_all(inplace_is_the_same);
}

static bool can_accumulate(const tm_op *op, int k)
{
    return op->out_role[k] == TM_ROLE_GRADIENT ||
           (op->out_role[k] == TM_ROLE_SCALAR && op != &tm_op_clip && op != &tm_op_compare);
}

/* What was there plus the fresh result, for one output at a time; the other outputs stay fresh. */
static void accumulation_adds(const tm_op *op, const tm_example *example, int number)
{
    for (int k = 0; k < op->n_out; k++) {
        tm_call fresh, adding;
        if (!can_accumulate(op, k)) continue;
        tm_call_make(&fresh, op, example, SEED);
        tm_call_make(&adding, op, example, SEED);
        adding.accumulate = 1U << k;
        double *values = adding.out[k].data, *sum = fresh.out[k].data;
        int64_t count = tm_view_present(&adding.out[k]) ? tm_shape_elements(adding.out[k].shape) : 0;
        for (int64_t i = 0; i < count; i++) values[i] = 100 + (double)(i % 7);
        op->reference(&fresh);
        op->reference(&adding);
        for (int64_t i = 0; i < count; i++) {
            sum[i] += 100 + (double)(i % 7);
            if (!(fabs(values[i] - sum[i]) <= 1e-12 * fabs(sum[i]) + 1e-10))
                fail_msg("%s, example %d, output %d, element %lld: %.17g, wanted %.17g", op->name, number, k,
                         (long long)i, values[i], sum[i]);
            values[i] = sum[i]; /* the same bits again, so that expect_same sees the other outputs only */
        }
        expect_same(&fresh, &adding, number, "beside an output that is added to");
        tm_call_free(&fresh);
        tm_call_free(&adding);
    }
}

TEST(accumulate_adds_to_what_is_there)
{
    for_all(accumulation_adds);
}
