/* SPDX-License-Identifier: Apache-2.0 */
/* op/quantize_examples.c - calls of `quantize` that every kernel is judged by: values, codes, experts. */
#include "op/describe.h"
#include "op/quantize.h"

#define QUANTIZER(dtype, what, how, size)                                                                              \
    {                                                                                                                  \
        .format = TM_##dtype, .scaled = TM_SCALED_##what, .rule = TM_RULE_##how, .block = size                         \
    }

static const struct {
    int64_t          rows, columns;
    bool             ticks, record;
    tm_quantize_attr attr;
} cases[] = {
    { 3, 7, false, true, { .recipe = { QUANTIZER(E4M3, TENSOR, RATIO, 0) }, .n_parts = 1, .end = { 3 } } },
    { 65,
      40,
      false,
      true,
      { .recipe = { QUANTIZER(E5M2, TENSOR, RATIO, 0) }, .cut_columns = 1, .n_parts = 3, .end = { 8, 24, 40 } } },
    { 40,
      33,
      false,
      false,
      { .recipe = { QUANTIZER(E4M3, LINE, RATIO_POW2, 0) }, .down = 1, .n_parts = 2, .end = { 7, 40 } } },
    { 70, 300, false, true, { .recipe = { QUANTIZER(E4M3, SQUARE, RATIO, 128) }, .n_parts = 1, .end = { 70 } } },
    { 64, 96, false, true, { .recipe = { QUANTIZER(E4M3, BLOCK, UP, 32) }, .n_parts = 1, .end = { 64 } } },
    { 33, 64, false, true, { .recipe = { QUANTIZER(E3M2, BLOCK, FLOOR, 32) }, .n_parts = 1, .end = { 33 } } },
    { 33, 64, false, true, { .recipe = { QUANTIZER(E2M3, BLOCK, FLOOR, 32) }, .n_parts = 1, .end = { 33 } } },
    { 96,
      70,
      false,
      true,
      { .recipe = { QUANTIZER(E5M2, BLOCK, CEIL, 32) }, .down = 1, .n_parts = 2, .end = { 32, 96 } } },
    { 33,
      64,
      false,
      true,
      { .recipe = { { TM_E2M1, TM_SCALED_BLOCK, TM_RULE_EVEN, TM_ROTATE_16, .block = 32 } },
        .n_parts = 1,
        .end = { 33 } } },
    { 64,
      130,
      true,
      true,
      { .recipe = { { TM_E2M1, TM_SCALED_BLOCK, TM_RULE_TWO_LEVEL, TM_ROTATE_16_SIGNED, .stochastic = 1,
                      .block = 16 } },
        .seed = 5,
        .down = 1,
        .switch_step = -1,
        .n_parts = 1,
        .end = { 64 } } },
    { 65,
      64,
      true,
      true,
      { .recipe = { QUANTIZER(E2M1, SQUARE, TWO_LEVEL, 16), QUANTIZER(E4M3FNUZ, DELAYED, RATIO, 0) },
        .switch_step = 100,
        .n_parts = 2,
        .end = { 33, 65 } } },
    { 130,
      192,
      true,
      true,
      { .recipe = { QUANTIZER(E5M2FNUZ, SQUARE, FLOOR, 32), QUANTIZER(E4M3, NOT, RATIO, 0) },
        .switch_step = 100,
        .cut_columns = 1,
        .n_parts = 1,
        .end = { 192 } } },
    { 33, 40, false, true, { .recipe = { QUANTIZER(E4M3, TENSOR, RATIO, 0) }, .n_parts = 2, .end = { 7, 33 } } },
    { 64,
      48,
      true,
      true,
      { .recipe = { QUANTIZER(E4M3, LINE, RATIO_POW2, 0), QUANTIZER(E5M2, TENSOR, RATIO, 0) },
        .switch_step = 100,
        .down = 1,
        .lines = 1,
        .n_parts = 2,
        .end = { 32, 64 } } },
    { 32,
      64,
      true,
      true,
      { .recipe = { { TM_E2M1, TM_SCALED_BLOCK, TM_RULE_TWO_LEVEL, TM_ROTATE_NOT, .stochastic = 1, .block = 16 } },
        .seed = 5,
        .switch_step = -1,
        .cut_columns = 1,
        .n_parts = 2,
        .end = { 32, 64 },
        .whole_columns = 128,
        .shift = { 32, 64 },
        .first_row = 64 } },
    { 20,
      40,
      false,
      true,
      { .recipe = { QUANTIZER(E4M3, TENSOR, RATIO, 0) },
        .n_parts = 1,
        .end = { 20 } } }, /* the first ones have no rows */
    { 100,
      48,
      false,
      true,
      { .recipe = { { TM_E2M1, TM_SCALED_BLOCK, TM_RULE_EVEN, TM_ROTATE_16, .block = 32 } },
        .down = 1,
        .cut_columns = 1,
        .n_parts = 2,
        .end = { 16, 48 } } },
    { 60,
      64,
      true,
      true,
      { .recipe = { { TM_E2M1, TM_SCALED_BLOCK, TM_RULE_TWO_LEVEL, TM_ROTATE_NOT, .stochastic = 1, .block = 16 },
                    QUANTIZER(E5M2, DELAYED, RATIO, 0) },
        .seed = 5,
        .switch_step = 100,
        .cut_columns = 1,
        .n_parts = 2,
        .end = { 32, 64 } } },
    { 60,
      64,
      true,
      true,
      { .recipe = { QUANTIZER(E5M2, LINE, RATIO, 0), QUANTIZER(E4M3, DELAYED, RATIO, 0) },
        .switch_step = 100,
        .down = 1,
        .n_parts = 1,
        .end = { 60 } } },
    { 60,
      64,
      false,
      true,
      { .recipe = { QUANTIZER(E4M3, LINE, RATIO, 0) },
        .cut_columns = 1,
        .lines = 1,
        .n_parts = 2,
        .end = { 32, 64 } } },
    { 33, 64, false, true, { .recipe = { QUANTIZER(E2M1, SQUARE, TWO_LEVEL, 16) }, .n_parts = 2, .end = { 16, 33 } } },
    { 48,
      40,
      false,
      false,
      { .recipe = { QUANTIZER(E4M3, BLOCK, UP, 16) }, .down = 1, .n_parts = 2, .end = { 16, 48 } } },
};
/* Of codes: parts that are lines, and parts that lines run through; of the tensor, of earlier steps and of lines.
 * Behind those of values, whose numbers other ops' examples and records go by. */
static const struct {
    int64_t          rows, columns;
    bool             largest; /* is given */
    tm_quantize_attr attr;
} codes[] = {
    { 33, 48, false, { .recipe = { QUANTIZER(E4M3, TENSOR, RATIO, 0) }, .n_parts = 2, .end = { 16, 33 } } },
    { 64, 40, false, { .recipe = { QUANTIZER(E5M2, TENSOR, RATIO, 0) }, .down = 1, .n_parts = 1, .end = { 64 } } },
    { 96, 70, false, { .recipe = { QUANTIZER(E4M3, DELAYED, RATIO, 0) }, .down = 1, .n_parts = 2, .end = { 32, 96 } } },
    { 34,
      160,
      false,
      { .recipe = { QUANTIZER(E5M2, LINE, RATIO_POW2, 0) }, .cut_columns = 1, .n_parts = 2, .end = { 32, 160 } } },
    { 144,
      33,
      false,
      { .recipe = { QUANTIZER(E4M3, LINE, RATIO, 0) }, .down = 1, .cut_columns = 1, .n_parts = 2, .end = { 7, 33 } } },
    { 40, 300, false, { .recipe = { QUANTIZER(E4M3FNUZ, LINE, RATIO_POW2, 0) }, .n_parts = 1, .end = { 40 } } },
    { 48,
      64,
      true,
      { .recipe = { QUANTIZER(E5M2FNUZ, TENSOR, RATIO, 0) }, .down = 1, .n_parts = 2, .end = { 16, 48 } } },
    { 64,
      48,
      true,
      { .recipe = { QUANTIZER(E4M3, LINE, RATIO_POW2, 0) }, .down = 1, .lines = 1, .n_parts = 2, .end = { 32, 64 } } },
    /* blocks: in parts that they end with, in parts that they do not */
    { 132,
      272,
      false,
      { .recipe = { QUANTIZER(E4M3, BLOCK, RATIO_POW2, 128) },
        .codes = TM_CODES_RUNS,
        .n_parts = 2,
        .end = { 7, 132 } } },
    { 160,
      36,
      false,
      { .recipe = { QUANTIZER(E4M3, BLOCK, RATIO, 128) },
        .down = 1,
        .codes = TM_CODES_RUNS,
        .n_parts = 3,
        .end = { 32, 80, 160 } } },
    { 288,
      16,
      false,
      { .recipe = { QUANTIZER(E4M3, SQUARE, RATIO, 128) },
        .down = 1,
        .codes = TM_CODES_SQUARES,
        .n_parts = 2,
        .end = { 128, 288 } } },
    { 304,
      528,
      false,
      { .recipe = { QUANTIZER(E4M3, SQUARE, RATIO_POW2, 128) },
        .codes = TM_CODES_SQUARES,
        .n_parts = 3,
        .end = { 16, 160, 304 } } },
    { 130,
      160,
      false,
      { .recipe = { QUANTIZER(E4M3, BLOCK, UP, 32) }, .codes = TM_CODES_TILES, .n_parts = 2, .end = { 40, 130 } } },
    { 96,
      70,
      false,
      { .recipe = { QUANTIZER(E5M2, SQUARE, EVEN, 32) },
        .down = 1,
        .codes = TM_CODES_TILES,
        .n_parts = 2,
        .end = { 32, 96 } } },
    { 33,
      128,
      false,
      { .recipe = { QUANTIZER(E4M3, BLOCK, FLOOR, 32) }, .codes = TM_CODES_ROWS, .n_parts = 1, .end = { 33 } } },
    { 128,
      40,
      false,
      { .recipe = { QUANTIZER(E4M3, SQUARE, CEIL, 32) },
        .down = 1,
        .cut_columns = 1,
        .codes = TM_CODES_ROWS,
        .n_parts = 2,
        .end = { 24, 40 } } },
    { 33,
      128,
      false,
      { .recipe = { { TM_E2M1, TM_SCALED_BLOCK, TM_RULE_EVEN, TM_ROTATE_16, .block = 32 } },
        .codes = TM_CODES_ROWS,
        .n_parts = 1,
        .end = { 33 } } },
    { 160,
      36,
      false,
      { .recipe = { QUANTIZER(E2M1, SQUARE, EVEN, 32) },
        .down = 1,
        .codes = TM_CODES_ROWS,
        .n_parts = 2,
        .end = { 64, 160 } } },
};

/* Codes of experts: of rows that they share, the first ones without any where there are few, or of their weights. */
static const struct {
    int64_t          rows, columns, experts;
    bool             weights;
    tm_quantize_attr attr;
} of_experts[] = {
    { 60, 48, 3, false, { .recipe = { QUANTIZER(E4M3, TENSOR, RATIO, 0) }, .n_parts = 1, .end = { 60 } } },
    { 37,
      40,
      3,
      false,
      { .recipe = { QUANTIZER(E4M3, LINE, RATIO_POW2, 0) }, .down = 1, .n_parts = 1, .end = { 37 } } },
    { 112,
      64,
      4,
      false,
      { .recipe = { QUANTIZER(E5M2, DELAYED, RATIO, 0) }, .cut_columns = 1, .n_parts = 2, .end = { 32, 64 } } },
    { 20,
      32,
      6,
      false,
      { .recipe = { QUANTIZER(E4M3, LINE, RATIO, 0) }, .cut_columns = 1, .n_parts = 2, .end = { 16, 32 } } },
    { 144,
      48,
      5,
      false,
      { .recipe = { QUANTIZER(E5M2FNUZ, LINE, RATIO, 0) },
        .down = 1,
        .cut_columns = 1,
        .n_parts = 2,
        .end = { 16, 48 } } },
    { 48, 40, 5, true, { .recipe = { QUANTIZER(E4M3, TENSOR, RATIO, 0) }, .n_parts = 2, .end = { 16, 48 } } },
    { 48,
      32,
      3,
      true,
      { .recipe = { QUANTIZER(E4M3, LINE, RATIO_POW2, 0) }, .down = 1, .n_parts = 2, .end = { 32, 48 } } },
    { 33, 64, 4, true, { .recipe = { QUANTIZER(E4M3FNUZ, LINE, RATIO, 0) }, .n_parts = 1, .end = { 33 } } },
    { 32,
      20,
      3,
      true,
      { .recipe = { QUANTIZER(E5M2FNUZ, DELAYED, RATIO, 0) }, .down = 1, .n_parts = 1, .end = { 32 } } },
    /* blocks: of rows of experts as one matrix, and of lines along them, which begin anew */
    { 50,
      96,
      3,
      false,
      { .recipe = { QUANTIZER(E4M3, BLOCK, UP, 32) },
        .cut_columns = 1,
        .codes = TM_CODES_ROWS,
        .n_parts = 2,
        .end = { 32, 96 } } },
    { 150,
      33,
      4,
      false,
      { .recipe = { QUANTIZER(E5M2, BLOCK, CEIL, 32) },
        .down = 1,
        .codes = TM_CODES_ROWS,
        .n_parts = 1,
        .end = { 150 } } },
    { 95,
      40,
      3,
      false,
      { .recipe = { { TM_E2M1, TM_SCALED_BLOCK, TM_RULE_EVEN, TM_ROTATE_16, .block = 32 } },
        .down = 1,
        .cut_columns = 1,
        .codes = TM_CODES_ROWS,
        .n_parts = 2,
        .end = { 16, 40 } } },
    { 300,
      20,
      3,
      false,
      { .recipe = { QUANTIZER(E4M3FNUZ, BLOCK, RATIO, 128) },
        .down = 1,
        .codes = TM_CODES_RUNS,
        .n_parts = 1,
        .end = { 300 } } },
    { 20,
      272,
      6,
      false,
      { .recipe = { QUANTIZER(E4M3, BLOCK, RATIO_POW2, 128) }, .codes = TM_CODES_RUNS, .n_parts = 1, .end = { 20 } } },
    { 132,
      272,
      3,
      true,
      { .recipe = { QUANTIZER(E4M3, SQUARE, RATIO_POW2, 128) },
        .codes = TM_CODES_SQUARES,
        .n_parts = 1,
        .end = { 132 } } },
    { 144,
      132,
      2,
      true,
      { .recipe = { QUANTIZER(E4M3, SQUARE, RATIO, 128) },
        .down = 1,
        .codes = TM_CODES_SQUARES,
        .n_parts = 2,
        .end = { 128, 144 } } },
    { 64,
      36,
      3,
      true,
      { .recipe = { QUANTIZER(E2M1, SQUARE, EVEN, 32) },
        .down = 1,
        .codes = TM_CODES_ROWS,
        .n_parts = 2,
        .end = { 32, 64 } } },
};

static bool experts_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(of_experts)) return false;
    tm_quantize_attr attr = of_experts[k].attr;
    int64_t          rows = of_experts[k].rows, columns = of_experts[k].columns, experts = of_experts[k].experts;
    bool             weights = of_experts[k].weights;
    tm_shape         x = weights ? tm_shape_3(experts, rows, columns) : tm_shape_2(rows, columns);
    attr.switch_step = -1;
    if (!attr.codes) attr.codes = TM_CODES_PLAIN;
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, x, 0, 1);
    tm_example_in(example, 2, TM_ROLE_STATE, tm_shape_1(experts * attr.n_parts), 8, 1);
    if (!weights) tm_example_offsets(example, TM_QUANTIZE_OFFSETS, experts, rows);
    example->out[1] = tm_shape_2(experts * attr.n_parts, TM_QUANTIZE_RECORD);
    example->out[TM_QUANTIZE_SCALES] = tm_shape_1(tm_quantize_scales(&attr, x, weights ? 0 : experts));
    example->out_dtype[0] = (tm_dtype)attr.recipe[0].format;
    if (tm_codes_scale_of(attr.codes).dtype == TM_E8M0) example->out_dtype[TM_QUANTIZE_SCALES] = TM_E8M0;
    return true;
}

static bool codes_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(codes)) return experts_example(k - TM_COUNT_OF(codes), example);
    tm_quantize_attr attr = codes[k].attr;
    tm_shape         x = tm_shape_2(codes[k].rows, codes[k].columns);
    attr.switch_step = -1;
    if (!attr.codes) attr.codes = TM_CODES_PLAIN;
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, x, 0, 1);
    tm_example_in(example, 2, TM_ROLE_STATE, tm_shape_1(attr.n_parts), 8, 1);
    if (codes[k].largest)
        tm_example_in(example, TM_QUANTIZE_LARGEST, TM_ROLE_STATISTIC,
                      tm_shape_1(attr.n_parts + (attr.lines ? tm_quantize_lines(&attr, x, 1) : 0)), 6, 0.5);
    example->out[1] = tm_shape_2(attr.n_parts, TM_QUANTIZE_RECORD);
    example->out[TM_QUANTIZE_SCALES] = tm_shape_1(tm_quantize_scales(&attr, x, 0));
    example->out_dtype[0] = (tm_dtype)attr.recipe[0].format;
    if (tm_codes_scale_of(attr.codes).dtype == TM_E8M0) example->out_dtype[TM_QUANTIZE_SCALES] = TM_E8M0;
    return true;
}

/* So many in front of those of experts, and those with the largest of lines, are parts of a whole. */
enum { OF_WHOLE = 3 };

/* Of the last cases: how many experts share the rows, or have as many each. Of few rows the first ones have none. */
static const struct {
    int64_t experts;
    bool    weights;
} grouped[] = { { 6, false }, { 4, false }, { 3, false }, { 3, false }, { 3, false }, { 4, true }, { 5, true } };

bool tm_quantize_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return codes_example(k - TM_COUNT_OF(cases), example);
    int              g = k - TM_COUNT_OF(cases) + TM_COUNT_OF(grouped);
    int64_t          experts = g >= 0 ? grouped[g].experts : 0;
    bool             weights = g >= 0 && grouped[g].weights;
    bool             of_whole = g >= -OF_WHOLE && (g < 0 || cases[k].attr.lines);
    tm_quantize_attr attr = cases[k].attr;
    if (!cases[k].ticks) attr.switch_step = -1;
    tm_example_begin(example, &attr, sizeof attr);
    tm_shape shape = tm_shape_2(cases[k].rows, cases[k].columns);
    if (weights) shape = tm_shape_3(experts, cases[k].rows, cases[k].columns);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, shape, 0, 1);
    if (experts > 0 && !weights) tm_example_offsets(example, TM_QUANTIZE_OFFSETS, experts, cases[k].rows);
    int64_t factors = attr.row + attr.n_parts * (experts > 0 ? experts : 1);
    if (cases[k].ticks) tm_example_in(example, 1, TM_ROLE_STATE, tm_shape_1(TM_QUANTIZE_TICKS), k % 2 ? 200 : 20, 1);
    if (cases[k].ticks) tm_example_in(example, 2, TM_ROLE_STATE, tm_shape_1(factors), 8, 1);
    if (cases[k].record) example->out[1] = tm_shape_2(factors, TM_QUANTIZE_RECORD);
    if (of_whole) {
        int64_t cells = attr.n_parts * (experts > 0 ? experts : 1);
        int64_t lines = attr.lines ? tm_quantize_lines(&attr, shape, experts > 0 ? experts : 1) : 0;
        tm_example_in(example, TM_QUANTIZE_LARGEST, TM_ROLE_STATISTIC, tm_shape_1(cells + lines), 6, 0.5);
    }
    return true;
}
