/* SPDX-License-Identifier: Apache-2.0 */
/* op/quantize_both.c - codes of a factor that two products sum along its two axes: as it lies and transposed, of one
 * look at it. It stands in the place of two ops `quantize` (graph/passes/both.c) that have the same recipe; what each
 * of them would leave has the same bits. Recipes that round at random draw other numbers in each, and are not taken.
 */
#include "op/describe.h"
#include "op/quantize.h"

#include <string.h>

tm_quantize_attr tm_quantize_turned(const tm_quantize_both_attr *attr)
{
    tm_quantize_attr turned = attr->along;
    turned.down = 1;
    turned.row = attr->turned_row;
    return turned;
}

bool tm_quantize_gives(const tm_call *call, bool turns)
{
    const tm_quantize_both_attr *attr = call->attr;
    return tm_view_present(&call->out[TM_QUANTIZE_TURNED]) || attr->along.down == turns;
}

tm_call tm_quantize_half(const tm_call *call, bool turns, tm_quantize_attr *attr)
{
    const tm_quantize_both_attr *both = call->attr;
    tm_call                      half = *call;
    *attr = both->along;
    attr->down = turns;
    half.op = &tm_op_quantize;
    half.attr = attr;
    if (both->maker) half.in[0] = tm_quantize_making(call).out[0], half.in[1].shape.rank = -1, half.in[1].data = NULL;
    if (turns && tm_view_present(&call->out[TM_QUANTIZE_TURNED])) {
        attr->row = both->turned_row;
        half.out[0] = call->out[TM_QUANTIZE_TURNED];
        half.out[TM_QUANTIZE_SCALES] = call->out[TM_QUANTIZE_TURNED_SCALES];
    }
    if (!tm_quantize_gives(call, turns)) {
        half.out[0].shape = tm_quantize_codes(attr, half.in[0].shape, tm_quantize_experts(&half));
        half.out[0].data = half.out[TM_QUANTIZE_SCALES].data = NULL;
        half.out[TM_QUANTIZE_SCALES].shape.rank = -1;
    }
    half.out[TM_QUANTIZE_TURNED].shape.rank = half.out[TM_QUANTIZE_TURNED_SCALES].shape.rank = -1;
    return half;
}

static const char *attr_check(const tm_quantize_attr *along)
{
    if (!along->codes) return "values are quantized for one product each";
    if (along->down) return "the first codes lie as x does";
    if (along->lines) return "the largest of lines are those of one direction";
    return along->recipe[0].stochastic ? "rounding at random draws numbers for one product each" : NULL;
}

static int64_t experts_of(const tm_shape *in)
{
    return tm_shape_present(in[TM_QUANTIZE_OFFSETS]) ? in[TM_QUANTIZE_OFFSETS].n[0] - 1 : 0;
}

/* What one of the two ops says; scales that nobody gave get their shape. */
static const char *half_infer(const tm_shape *in, const tm_quantize_attr *attr, tm_shape *codes, const tm_shape *record,
                              tm_shape *scales)
{
    tm_shape out[TM_MAX_OUT];
    for (int k = 0; k < TM_MAX_OUT; k++) out[k].rank = -1;
    out[0] = *codes, out[1] = *record, out[TM_QUANTIZE_SCALES] = *scales;
    const char *why = tm_op_quantize.infer(in, attr, out);
    if (why) return why;
    *codes = out[0];
    if (!tm_shape_present(*scales)) *scales = tm_shape_1(tm_quantize_scales(attr, in[0], experts_of(in)));
    return NULL;
}

static const char *both_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_quantize_both_attr *attr = attr_;
    tm_quantize_attr             turned = tm_quantize_turned(attr);
    const char                  *why = attr->maker ? "x is there, and nothing makes it" : NULL;
    if (!why) why = attr_check(&attr->along);
    if (!why) why = half_infer(in, &attr->along, &out[0], &out[1], &out[TM_QUANTIZE_SCALES]);
    return why ? why : half_infer(in, &turned, &out[TM_QUANTIZE_TURNED], &out[1], &out[TM_QUANTIZE_TURNED_SCALES]);
}

static void both_reference(const tm_call *call)
{
    for (int turns = 0; turns < 2; turns++) {
        tm_quantize_attr attr;
        tm_call          half = tm_quantize_half(call, turns, &attr);
        tm_op_quantize.reference(&half);
    }
}

static tm_cost both_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 0);
    cost.bytes -= tm_view_bytes(&call->in[2]) + tm_view_bytes(&call->out[1]); /* of which it touches a row or two */
    return cost;
}

/* --- examples ------------------------------------------------------------------------------------------------------
 */

#define QUANTIZER(dtype, what, how, size)                                                                              \
    {                                                                                                                  \
        .format = TM_##dtype, .scaled = TM_SCALED_##what, .rule = TM_RULE_##how, .block = size                         \
    }

/* Parts that are rows and parts that are columns; experts that share the rows (the first ones have none where there are
 * few), or have as many each. */
static const struct {
    int64_t          rows, columns, experts;
    bool             weights, largest; /* largest: is given */
    tm_quantize_attr attr;
} cases[] = {
    { 33, 48, 0, false, false, { .recipe = { QUANTIZER(E4M3, TENSOR, RATIO, 0) }, .n_parts = 1, .end = { 33 } } },
    { 20,
      72,
      0,
      false,
      false,
      { .recipe = { QUANTIZER(E5M2, TENSOR, RATIO, 0) }, .cut_columns = 1, .n_parts = 3, .end = { 7, 16, 72 } } },
    { 48,
      40,
      0,
      false,
      true,
      { .recipe = { QUANTIZER(E5M2FNUZ, TENSOR, RATIO, 0) }, .n_parts = 2, .end = { 16, 48 } } },
    { 35, 48, 0, false, false, { .recipe = { QUANTIZER(E4M3, DELAYED, RATIO, 0) }, .n_parts = 2, .end = { 3, 35 } } },
    { 37,
      50,
      0,
      false,
      false,
      { .recipe = { QUANTIZER(E4M3, LINE, RATIO_POW2, 0) }, .cut_columns = 1, .n_parts = 2, .end = { 17, 50 } } },
    { 48, 32, 0, false, false, { .recipe = { QUANTIZER(E4M3FNUZ, LINE, RATIO, 0) }, .n_parts = 2, .end = { 32, 48 } } },
    { 40,
      36,
      0,
      false,
      false,
      { .recipe = { QUANTIZER(E4M3, BLOCK, RATIO_POW2, 128) },
        .codes = TM_CODES_RUNS,
        .cut_columns = 1,
        .n_parts = 2,
        .end = { 20, 36 } } },
    { 32,
      48,
      0,
      false,
      false,
      { .recipe = { QUANTIZER(E4M3, SQUARE, RATIO, 128) },
        .codes = TM_CODES_SQUARES,
        .n_parts = 2,
        .end = { 16, 32 } } },
    { 288,
      144,
      0,
      false,
      false,
      { .recipe = { QUANTIZER(E4M3, SQUARE, RATIO_POW2, 128) },
        .codes = TM_CODES_SQUARES,
        .n_parts = 2,
        .end = { 128, 288 } } },
    { 140,
      272,
      0,
      false,
      false,
      { .recipe = { QUANTIZER(E5M2, BLOCK, RATIO, 128) }, .codes = TM_CODES_RUNS, .n_parts = 1, .end = { 140 } } },
    { 32,
      64,
      0,
      false,
      false,
      { .recipe = { QUANTIZER(E4M3, BLOCK, UP, 32) },
        .codes = TM_CODES_TILES,
        .cut_columns = 1,
        .n_parts = 2,
        .end = { 32, 64 } } },
    { 160,
      96,
      0,
      false,
      false,
      { .recipe = { QUANTIZER(E5M2, SQUARE, EVEN, 32) }, .codes = TM_CODES_TILES, .n_parts = 2, .end = { 32, 160 } } },
    { 64,
      32,
      0,
      false,
      false,
      { .recipe = { QUANTIZER(E4M3, BLOCK, FLOOR, 32) }, .codes = TM_CODES_ROWS, .n_parts = 1, .end = { 64 } } },
    { 150, 300, 0, false, false, { .recipe = { QUANTIZER(E5M2, LINE, RATIO, 0) }, .n_parts = 1, .end = { 150 } } },
    { 60, 32, 3, false, false, { .recipe = { QUANTIZER(E4M3, TENSOR, RATIO, 0) }, .n_parts = 1, .end = { 60 } } },
    { 37,
      40,
      3,
      false,
      false,
      { .recipe = { QUANTIZER(E4M3, LINE, RATIO_POW2, 0) }, .cut_columns = 1, .n_parts = 2, .end = { 16, 40 } } },
    { 20,
      32,
      6,
      false,
      true,
      { .recipe = { QUANTIZER(E5M2, TENSOR, RATIO, 0) }, .cut_columns = 1, .n_parts = 2, .end = { 16, 32 } } },
    { 24, 20, 4, true, false, { .recipe = { QUANTIZER(E4M3, DELAYED, RATIO, 0) }, .n_parts = 2, .end = { 8, 24 } } },
    { 33, 19, 3, true, false, { .recipe = { QUANTIZER(E4M3, LINE, RATIO, 0) }, .n_parts = 1, .end = { 33 } } },
};

static bool both_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_quantize_both_attr attr = { .along = cases[k].attr };
    int64_t               rows = cases[k].rows, columns = cases[k].columns, experts = cases[k].experts;
    int64_t               cells = attr.along.n_parts * (experts > 0 ? experts : 1);
    tm_shape              x = cases[k].weights ? tm_shape_3(experts, rows, columns) : tm_shape_2(rows, columns);
    attr.along.switch_step = -1;
    if (!attr.along.codes) attr.along.codes = TM_CODES_PLAIN;
    attr.turned_row = (int32_t)cells;
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, x, 0, 1);
    tm_example_in(example, 2, TM_ROLE_STATE, tm_shape_1(2 * cells), 8, 1);
    if (experts > 0 && !cases[k].weights) tm_example_offsets(example, TM_QUANTIZE_OFFSETS, experts, rows);
    if (cases[k].largest) tm_example_in(example, TM_QUANTIZE_LARGEST, TM_ROLE_STATISTIC, tm_shape_1(cells), 6, 0.5);
    example->out[1] = tm_shape_2(2 * cells, TM_QUANTIZE_RECORD);
    example->out_dtype[0] = example->out_dtype[TM_QUANTIZE_TURNED] = (tm_dtype)attr.along.recipe[0].format;
    if (tm_codes_scale_of(attr.along.codes).dtype == TM_E8M0)
        example->out_dtype[TM_QUANTIZE_SCALES] = example->out_dtype[TM_QUANTIZE_TURNED_SCALES] = TM_E8M0;
    return true;
}

const tm_op tm_op_quantize_both = {
    .name = "quantize_both",
    .formula = "codes and scales as quantize gives them of x along its rows, and down its columns; both records",
    .group = "elementwise",
    .n_in = 5,
    .n_out = 5,
    .optional_in = 1U << 1 | 1U << 2 | 1U << TM_QUANTIZE_OFFSETS | 1U << TM_QUANTIZE_LARGEST,
    .optional_out = 1U << 1,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_STATE, TM_ROLE_STATISTIC, TM_ROLE_ACTIVATION, TM_ROLE_STATISTIC },
    .infer = both_infer,
    .reference = both_reference,
    .cost = both_cost,
    .vector = 16,
    .state = true,
    .strided_in = 1U << 0,
    .example = both_example,
    .no_fast_kernel = "CPUs multiply what codes stand for: no plan of theirs has it",
    .in_name = { "x (...)", "[ticks (2)]", "[scale (R)]", "[offsets (E + 1)]", "[largest (L)]" },
    .out_name = { "codes (...)", "[record (R, 4)]", "scales (S)", "turned (...)", "turned_scales (T)" },
    .attributes = "along, turned_row",
};
