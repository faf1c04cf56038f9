/* SPDX-License-Identifier: Apache-2.0 */
/* op/quantize_made.c - codes of a factor that another op of single elements makes, which is nowhere in memory. It
 * stands in the place of that op and of `quantize` or `quantize_both` behind it (graph/passes/made.c). x is rounded to
 * the format that it would have been stored in, so what it leaves has the same bits. It may leave the codes of one
 * direction alone.
 */
#include "base/arena.h"
#include "graph/value.h"
#include "op/describe.h"
#include "op/quantize.h"

#include <stdlib.h>
#include <string.h>

enum { SECOND = 1 }; /* place of the maker's second input */

const tm_op *tm_quantize_maker_op(int maker)
{
    static const tm_op *const ops[TM_MADE_KINDS] = {
        [TM_MADE_SWIGLU] = &tm_op_swiglu, [TM_MADE_SWIGLU_GRAD] = &tm_op_swiglu_grad,
        [TM_MADE_GELU] = &tm_op_gelu,     [TM_MADE_GELU_GRAD] = &tm_op_gelu_grad,
        [TM_MADE_GEGLU] = &tm_op_geglu,
    };
    return maker > TM_MADE_NOT && maker < TM_MADE_KINDS ? ops[maker] : NULL;
}

/* The shape of what it makes, or why its inputs do not fit. */
static const char *made_shape(const tm_op *maker, const tm_shape *in, tm_shape *x)
{
    tm_shape out[TM_MAX_OUT];
    for (int k = 0; k < TM_MAX_OUT; k++) out[k].rank = -1;
    if (!maker) return "nothing makes the factor";
    if (tm_shape_present(in[SECOND]) != (maker->n_in == 2))
        return "gradients have two inputs, activation functions one";
    if (in[0].rank != 2) return "the inputs must have two axes (rows, columns)";
    const char *why = maker->infer(in, NULL, out);
    *x = out[0];
    return why;
}

tm_call tm_quantize_making(const tm_call *call)
{
    const tm_quantize_both_attr *attr = call->attr;
    tm_call                      making = *call;
    tm_shape                     in[TM_MAX_IN], x = { .rank = -1 };
    making.op = tm_quantize_maker_op(attr->maker);
    making.attr = NULL;
    making.accumulate = 0;
    for (int i = 0; i < TM_MAX_IN; i++) {
        if (i >= making.op->n_in) making.in[i].shape.rank = -1, making.in[i].data = NULL;
        in[i] = making.in[i].shape;
    }
    for (int k = 0; k < TM_MAX_OUT; k++) making.out[k] = (tm_view){ .shape.rank = -1 };
    made_shape(making.op, in, &x);
    making.out[0] = (tm_view){ .dtype = call->in[0].dtype, .shape = x };
    return making;
}

/* Of the codes of one direction. */
static const char *codes_infer(const tm_shape *in, const tm_quantize_attr *attr, tm_shape *codes,
                               const tm_shape *record, tm_shape *scales)
{
    tm_shape out[TM_MAX_OUT];
    for (int k = 0; k < TM_MAX_OUT; k++) out[k].rank = -1;
    out[0] = *codes, out[1] = *record, out[TM_QUANTIZE_SCALES] = *scales;
    const char *why = tm_op_quantize.infer(in, attr, out);
    if (why) return why;
    *codes = out[0];
    if (!tm_shape_present(*scales)) *scales = tm_shape_1(tm_quantize_scales(attr, in[0], 0));
    return NULL;
}

static const char *attr_check(const tm_quantize_both_attr *attr)
{
    if (attr->as != TM_F32 && attr->as != TM_BF16) return "a factor is made in float32 or bfloat16";
    if (attr->along.lines) return "the largest of lines are those of one direction";
    if (attr->along.recipe[0].stochastic) return "rounding at random draws numbers for one product each";
    return NULL;
}

static const char *quantize_made_infer(const tm_shape *in_, const void *attr_, tm_shape *out)
{
    const tm_quantize_both_attr *attr = attr_;
    tm_quantize_attr             turned = tm_quantize_turned(attr);
    tm_shape                     in[TM_MAX_IN];
    for (int i = 0; i < TM_MAX_IN; i++) in[i].rank = -1;
    in[2] = in_[2];
    if (!attr->along.codes) return "values are quantized from memory";
    const char *why = attr_check(attr);
    if (!why) why = made_shape(tm_quantize_maker_op(attr->maker), in_, &in[0]);
    if (!why) why = codes_infer(in, &attr->along, &out[0], &out[1], &out[TM_QUANTIZE_SCALES]);
    if (why || !tm_shape_present(out[TM_QUANTIZE_TURNED]))
        return !why && tm_shape_present(out[TM_QUANTIZE_TURNED_SCALES]) ? "only codes have scales beside them" : why;
    if (attr->along.down) return "the first of both codes lie as x does";
    return codes_infer(in, &turned, &out[TM_QUANTIZE_TURNED], &out[1], &out[TM_QUANTIZE_TURNED_SCALES]);
}

static void quantize_made_reference(const tm_call *call)
{
    const tm_quantize_both_attr *attr = call->attr;
    tm_call                      making = tm_quantize_making(call);
    int64_t                      n = tm_shape_elements(making.out[0].shape);
    double                      *x = making.out[0].data = tm_alloc((size_t)(n + 1) * sizeof *x);
    making.op->reference(&making);
    for (int64_t i = 0; i < n; i++)
        x[i] = attr->as == TM_BF16 ? (double)tm_bf16_value(tm_bf16_round((float)x[i])) : (double)(float)x[i];
    for (int turns = 0; turns < 2; turns++) {
        tm_quantize_attr of;
        tm_call          half = tm_quantize_half(call, turns, &of);
        half.in[0].data = x;
        if (tm_quantize_gives(call, turns)) tm_op_quantize.reference(&half);
    }
    free(x);
}

static tm_cost quantize_made_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 0);
    tm_call making = tm_quantize_making(call);
    double  both = tm_view_present(&call->out[TM_QUANTIZE_TURNED]) ? 16 : 8;
    cost.vector = both * (double)tm_shape_elements(making.out[0].shape) +
                  making.op->vector * (double)tm_shape_elements(call->in[0].shape);
    cost.bytes -= tm_view_bytes(&call->in[2]) + tm_view_bytes(&call->out[1]); /* of which it touches a row or two */
    return cost;
}

/* --- examples ------------------------------------------------------------------------------------------------------
 */

#define QUANTIZER(dtype, what, how, size)                                                                              \
    {                                                                                                                  \
        .format = TM_##dtype, .scaled = TM_SCALED_##what, .rule = TM_RULE_##how, .block = size                         \
    }

typedef enum { BOTH, ALONG, DOWN } directions;

/* Rows, columns of what is made; columns of a gate's gradient have two parts, others one. */
static const struct {
    int64_t      rows, columns;
    uint8_t      maker, as, ways, codes;
    tm_quantizer recipe;
} cases[] = {
    { 33, 96, TM_MADE_SWIGLU_GRAD, TM_BF16, BOTH, TM_CODES_PLAIN, QUANTIZER(E5M2, DELAYED, RATIO, 0) },
    { 20, 40, TM_MADE_SWIGLU, TM_BF16, ALONG, TM_CODES_PLAIN, QUANTIZER(E4M3, DELAYED, RATIO, 0) },
    { 35, 48, TM_MADE_SWIGLU, TM_F32, DOWN, TM_CODES_PLAIN, QUANTIZER(E4M3, DELAYED, RATIO, 0) },
    { 37, 50, TM_MADE_GELU, TM_BF16, BOTH, TM_CODES_PLAIN, QUANTIZER(E4M3FNUZ, LINE, RATIO_POW2, 0) },
    { 130, 272, TM_MADE_SWIGLU_GRAD, TM_BF16, BOTH, TM_CODES_RUNS, QUANTIZER(E4M3, BLOCK, RATIO_POW2, 128) },
    { 64, 32, TM_MADE_SWIGLU, TM_BF16, DOWN, TM_CODES_TILES, QUANTIZER(E4M3, BLOCK, UP, 32) },
    { 160, 144, TM_MADE_SWIGLU, TM_BF16, ALONG, TM_CODES_RUNS, QUANTIZER(E4M3, BLOCK, RATIO_POW2, 128) },
    { 64, 192, TM_MADE_SWIGLU_GRAD, TM_BF16, BOTH, TM_CODES_ROWS, QUANTIZER(E5M2, BLOCK, FLOOR, 32) },
    { 37, 74, TM_MADE_SWIGLU_GRAD, TM_F32, BOTH, TM_CODES_PLAIN, QUANTIZER(E5M2FNUZ, LINE, RATIO, 0) },
    { 24, 20, TM_MADE_SWIGLU, TM_BF16, DOWN, TM_CODES_PLAIN, QUANTIZER(E4M3, TENSOR, RATIO, 0) },
    { 40, 64, TM_MADE_SWIGLU_GRAD, TM_BF16, BOTH, TM_CODES_PLAIN, QUANTIZER(E5M2, TENSOR, RATIO, 0) },
    { 33, 40, TM_MADE_GELU_GRAD, TM_BF16, BOTH, TM_CODES_PLAIN, QUANTIZER(E5M2, DELAYED, RATIO, 0) },
    { 150, 96, TM_MADE_SWIGLU_GRAD, TM_BF16, ALONG, TM_CODES_PLAIN, QUANTIZER(E4M3, LINE, RATIO_POW2, 0) },
    { 20, 24, TM_MADE_GEGLU, TM_BF16, ALONG, TM_CODES_PLAIN, QUANTIZER(E4M3, LINE, RATIO, 0) },
    { 32, 160, TM_MADE_SWIGLU_GRAD, TM_BF16, DOWN, TM_CODES_SQUARES, QUANTIZER(E4M3, SQUARE, RATIO_POW2, 128) },
    { 32, 64, TM_MADE_GELU, TM_F32, DOWN, TM_CODES_TILES, QUANTIZER(E4M3, BLOCK, EVEN, 32) },
};

static tm_quantize_both_attr case_attr(int k)
{
    int parts = cases[k].maker == TM_MADE_SWIGLU_GRAD ? 2 : 1, columns = (int)cases[k].columns;
    return (tm_quantize_both_attr){ .along = { .recipe = { cases[k].recipe },
                                               .switch_step = -1,
                                               .codes = cases[k].codes,
                                               .down = cases[k].ways == DOWN,
                                               .cut_columns = parts == 2,
                                               .n_parts = parts,
                                               .end = { parts == 2 ? columns / 2 : (int)cases[k].rows, columns } },
                                    .turned_row = parts,
                                    .maker = cases[k].maker,
                                    .as = cases[k].as };
}

/* The record counts what becomes 0: even numbers have one, whose values are not too small for float32. */
static bool quantize_made_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_quantize_both_attr attr = case_attr(k);
    tm_quantize_attr      turned = tm_quantize_turned(&attr);
    bool                  gate = attr.maker == TM_MADE_SWIGLU || attr.maker == TM_MADE_GEGLU;
    bool                  half = attr.maker == TM_MADE_SWIGLU_GRAD, both = cases[k].ways == BOTH;
    int64_t               rows = cases[k].rows, columns = cases[k].columns;
    int64_t               cells = (both ? 2 : 1) * attr.along.n_parts;
    tm_shape              x = tm_shape_2(rows, columns);
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(rows, gate ? 2 * columns : columns / (half ? 2 : 1)), 0,
                  2);
    if (half || attr.maker == TM_MADE_GELU_GRAD) tm_example_in(example, SECOND, TM_ROLE_ACTIVATION, x, 0, 2);
    tm_example_in(example, 2, TM_ROLE_STATE, tm_shape_1(cells), 8, 1);
    if (k % 2 == 0) example->out[1] = tm_shape_2(cells, TM_QUANTIZE_RECORD);
    if (both) {
        example->out[TM_QUANTIZE_TURNED] = tm_quantize_codes(&turned, x, 0);
        example->out[TM_QUANTIZE_TURNED_SCALES] = tm_shape_1(tm_quantize_scales(&turned, x, 0));
    }
    example->out_dtype[0] = example->out_dtype[TM_QUANTIZE_TURNED] = (tm_dtype)attr.along.recipe[0].format;
    if (tm_codes_scale_of(cases[k].codes).dtype == TM_E8M0)
        example->out_dtype[TM_QUANTIZE_SCALES] = example->out_dtype[TM_QUANTIZE_TURNED_SCALES] = TM_E8M0;
    return true;
}

const tm_op tm_op_quantize_made = {
    .name = "quantize_made",
    .formula = "codes, scales and records as quantize gives them of x = maker(first, second), along its rows, down its "
               "columns, or both",
    .group = "elementwise",
    .n_in = 3,
    .n_out = 5,
    .optional_in = 1U << SECOND | 1U << 2,
    .optional_out = 1U << 1 | 1U << TM_QUANTIZE_TURNED | 1U << TM_QUANTIZE_TURNED_SCALES,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_STATE, TM_ROLE_STATISTIC, TM_ROLE_ACTIVATION, TM_ROLE_STATISTIC },
    .infer = quantize_made_infer,
    .reference = quantize_made_reference,
    .cost = quantize_made_cost,
    .vector = 16,
    .state = true,
    .example = quantize_made_example,
    .no_fast_kernel = "CPUs multiply what codes stand for: no plan of theirs has it",
    .in_name = { "first (...)", "[second (...)]", "[scale (R)]" },
    .out_name = { "codes (...)", "[record (R, 4)]", "scales (S)", "[turned (...)]", "[turned_scales (T)]" },
    .attributes = "along, turned_row, maker, as",
};
