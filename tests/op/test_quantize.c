/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of narrow formats with scales (op/quantize.h) against the formats themselves, over every class of
 * float32, and against published numbers: scales by every rule, blocks of MXFP8, MXFP4 and NVFP4, the rotation. */
#include "op/quantize.h"

#include "../support/execute.h"
#include "../support/golden.h"
#include "base/random.h"
#include "graph/value.h"

#include <stdlib.h>

#include "support/test.h"

static const tm_dtype narrow[] = { TM_E4M3, TM_E5M2, TM_E4M3FNUZ, TM_E5M2FNUZ, TM_E2M1, TM_E3M2, TM_E2M3 };
enum { NARROW = sizeof narrow / sizeof narrow[0] };

/* Pattern i of 2^21 that stand for all of float32 (tests/graph/test_value.c). */
static float pattern(uint32_t i)
{
    return tm_float_of((i >> 1) << 12 | (i & 1));
}

TEST(rounding_is_that_of_the_formats)
{
    for (int f = 0; f < NARROW; f++) {
        tm_narrow format = tm_narrow_of(narrow[f]);
        for (uint32_t i = 0; i < 1u << 21; i++) {
            float x = pattern(i), y = tm_narrow_nearest(x, format);
            if (isnan(x)) {
                assert_true(isnan(y));
                continue;
            }
            unsigned code = tm_value_encode(narrow[f], (double)x, TM_ROUND_EVEN, true, 0);
            if ((double)y != tm_value_decode(narrow[f], code))
                fail_msg("%s: %a becomes %g, not %g", tm_dtype_name(narrow[f]), (double)x, (double)y,
                         tm_value_decode(narrow[f], code));
        }
    }
}

TEST(stochastic_rounding_is_that_of_the_formats)
{
    for (int f = 0; f < NARROW; f++) {
        tm_narrow format = tm_narrow_of(narrow[f]);
        for (uint32_t i = 0; i < 20000; i++) {
            float    x = (float)tm_random_normal(1, 2, i) * (float)exp2(12 * tm_random_normal(1, 3, i) / 3);
            float    chance = (float)(tm_random_u64(1, 4, i) >> 40) * 0x1p-24f;
            unsigned code = tm_value_encode(narrow[f], (double)x, TM_ROUND_STOCHASTIC, true, (double)chance);
            assert_true((double)tm_narrow_stochastic(x, format, chance) == tm_value_decode(narrow[f], code));
        }
        double sum = 0; /* its mean is the number itself */
        for (uint32_t i = 0; i < 40000; i++)
            sum += (double)tm_narrow_stochastic(1.15f, format, (float)(tm_random_u64(1, 5, i) >> 40) * 0x1p-24f);
        assert_true(fabs(sum / 40000 - 1.15) < 0.006);
        assert_true(tm_narrow_stochastic(1e9f, format, 0) == format.largest);
    }
}

/* e of amax by FLOOR, UP, EVEN, CEIL: the table of the published MXFP4 recipe. */
TEST(exponents_by_rule)
{
    static const struct {
        float amax;
        int   floor, up, even, ceil;
    } known[] = { { 1.6f, -2, -1, -2, -1 }, { 1.75f, -2, -1, -1, -1 }, { 5, 0, 0, 0, 1 }, { 7, 0, 1, 1, 1 } };
    static const struct {
        float amax;
        int   byte;
    } even[] = { { 0.875f, 125 }, { 1, 125 }, { 1.5f, 125 }, { 1.7499f, 125 }, { 1.75f, 126 },
                 { 3, 126 },      { 5, 127 }, { 6, 127 },    { 7, 128 },       { 448, 134 } };
    tm_narrow e2m1 = tm_narrow_of(TM_E2M1), e4m3 = tm_narrow_of(TM_E4M3), e5m2 = tm_narrow_of(TM_E5M2);
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        assert_int_equal(tm_scale_exponent(known[k].amax, TM_RULE_FLOOR, e2m1, false), known[k].floor);
        assert_int_equal(tm_scale_exponent(known[k].amax, TM_RULE_UP, e2m1, false), known[k].up);
        assert_int_equal(tm_scale_exponent(known[k].amax, TM_RULE_EVEN, e2m1, false), known[k].even);
        assert_int_equal(tm_scale_exponent(known[k].amax, TM_RULE_CEIL, e2m1, false), known[k].ceil);
    }
    for (size_t k = 0; k < sizeof even / sizeof even[0]; k++)
        assert_int_equal(tm_scale_exponent(even[k].amax, TM_RULE_EVEN, e2m1, false) + 127, even[k].byte);
    assert_int_equal(tm_scale_exponent(5, TM_RULE_FLOOR, e4m3, false), -6);
    assert_int_equal(tm_scale_exponent(5, TM_RULE_UP, e4m3, false), -6);
    assert_int_equal(tm_scale_exponent(500, TM_RULE_FLOOR, e4m3, false), 0);
    assert_int_equal(tm_scale_exponent(500, TM_RULE_UP, e4m3, false), 1);
    assert_int_equal(tm_scale_exponent(448, TM_RULE_UP, e4m3, false), 0);
    assert_int_equal(tm_scale_exponent(57344, TM_RULE_FLOOR, e5m2, false), 0);
    assert_int_equal(tm_scale_exponent(0, TM_RULE_EVEN, e2m1, false), -127); /* Primus-Turbo: byte 0 */
    assert_int_equal(tm_scale_exponent(0, TM_RULE_EVEN, e2m1, true), 0);     /* MLPerf: byte 127 */
    assert_int_equal(tm_scale_exponent(1e-38f, TM_RULE_FLOOR, e4m3, false), -127);
    assert_int_equal(tm_scale_exponent(FLT_MAX, TM_RULE_CEIL, e2m1, false), 126);
}

/* torchao 0.18: the largest of the format over amax, in float64, then float32; the power of two at or below it. */
TEST(ratios)
{
    static const struct {
        float    amax;
        tm_dtype format;
        float    ratio, pow2;
    } known[] = { { 5, TM_E4M3, 89.6f, 64 },         { 5, TM_E5M2, 11468.8f, 8192 },        { 5, TM_E4M3FNUZ, 48, 32 },
                  { 3, TM_E4M3, 149.33333f, 128 },   { 3, TM_E5M2, 19114.666f, 16384 },     { 3, TM_E4M3FNUZ, 80, 64 },
                  { 0, TM_E4M3, 4.48e14f, 0x1p48f }, { 1e-20f, TM_E4M3, 4.48e14f, 0x1p48f } };
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        tm_narrow f = tm_narrow_of(known[k].format);
        assert_true(tm_scale_ratio(known[k].amax, TM_RULE_RATIO, f, 1e-12f) == known[k].ratio);
        assert_true(tm_scale_ratio(known[k].amax, TM_RULE_RATIO_POW2, f, 1e-12f) == known[k].pow2);
    }
    tm_narrow e4m3 = tm_narrow_of(TM_E4M3);
    assert_true(tm_scale_ratio(0, TM_RULE_RATIO, e4m3, 0) == 1); /* TransformerEngine */
    assert_true(tm_scale_ratio(INFINITY, TM_RULE_RATIO, e4m3, 0) == 1);
    assert_true(tm_scale_ratio(1e-38f, TM_RULE_RATIO, e4m3, 0) == FLT_MAX);
}

/* One block through its scale; the codes that it then stands for. */
static void codes_of(const float *x, int n, const tm_quantizer *z, float whole, unsigned *codes, double *values)
{
    tm_narrow f = tm_narrow_of(z->format);
    float     amax = 0;
    for (int i = 0; i < n; i++) amax = fmaxf(amax, fabsf(x[i]));
    tm_scale scale = tm_scale_of(amax, whole, z, f);
    for (int i = 0; i < n; i++) {
        float q = tm_narrow_nearest(x[i] * scale.encode, f);
        codes[i] = tm_value_encode((tm_dtype)z->format, (double)q, TM_ROUND_EVEN, true, 0);
        values[i] = (double)tm_scale_decode(q, scale);
    }
}

TEST(published_block_of_mxfp8)
{
    static const unsigned char wanted[2][32] = {
        { 0xF9, 0xE2, 0xFD, 0x7D, 0x7A, 0xF8, 0xED, 0xFB, 0xFE, 0x7E, 0xF3, 0xFE, 0xDC, 0x66, 0x72, 0x78,
          0xDC, 0x79, 0xE9, 0x7D, 0x7A, 0xF4, 0xFE, 0xE6, 0xEE, 0x7C, 0x7D, 0x7B, 0x6B, 0xF3, 0x79, 0xFD },
        { 0xF1, 0xDA, 0xF5, 0x75, 0x72, 0xF0, 0xE5, 0xF3, 0xF6, 0x76, 0xEB, 0xF6, 0xD4, 0x5E, 0x6A, 0x70,
          0xD4, 0x71, 0xE1, 0x75, 0x72, 0xEC, 0xF6, 0xDE, 0xE6, 0x74, 0x75, 0x73, 0x63, 0xEB, 0x71, 0xF5 },
    };
    static const tm_rule rules[2] = { TM_RULE_FLOOR, TM_RULE_UP };
    float                x[32];
    for (uint32_t i = 0; i < 32; i++) x[i] = (float)(7.5 * golden_unit("mx", i));
    for (int r = 0; r < 2; r++) {
        tm_quantizer z = { .format = TM_E4M3, .rule = (uint8_t)rules[r], .block = 32 };
        unsigned     codes[32];
        double       values[32];
        codes_of(x, 32, &z, 0, codes, values);
        for (int i = 0; i < 32; i++) assert_int_equal(codes[i], wanted[r][i]);
    }
}

static const float eight[32] = { 0.1f, -0.3f, 0.9f, -1.6f, 0.05f, 0.7f, -0.25f, 1.2f };

TEST(published_block_of_mxfp4)
{
    static const unsigned wanted[2][8] = { { 1, 10, 6, 15, 0, 5, 10, 6 }, { 0, 9, 4, 13, 0, 3, 9, 4 } };
    static const double   dequantized[8] = { 0.125, -0.25, 1, -1.5, 0, 0.75, -0.25, 1 };
    static const tm_rule  rules[4] = { TM_RULE_EVEN, TM_RULE_FLOOR, TM_RULE_UP, TM_RULE_CEIL };
    for (int r = 0; r < 4; r++) {
        tm_quantizer z = { .format = TM_E2M1, .rule = (uint8_t)rules[r], .block = 32 };
        unsigned     codes[32];
        double       values[32];
        codes_of(eight, 32, &z, 0, codes, values);
        for (int i = 0; i < 8; i++) assert_int_equal(codes[i], wanted[r / 2][i]);
        for (int i = 0; i < 8 && r < 2; i++) assert_true(values[i] == dequantized[i]);
    }
}

TEST(published_block_of_nvfp4)
{
    static const float second[16] = { 10, -3, 5, 0.6f };
    tm_quantizer       z = { .format = TM_E2M1, .rule = TM_RULE_TWO_LEVEL, .block = 16 };
    unsigned           codes[16];
    double             values[16];
    codes_of(eight, 16, &z, 10, codes, values);
    static const double first_values[8] = { .133929, -.267857, .803571, -1.607143, 0, .803571, -.267857, 1.071429 };
    static const double second_values[4] = { 10, -3.333333, 5, .833333 };
    for (int i = 0; i < 8; i++) assert_true(fabs(values[i] - first_values[i]) < 1e-6);
    static const unsigned first_codes[8] = { 1, 10, 5, 15, 0, 5, 10, 6 };
    for (int i = 0; i < 8; i++) assert_int_equal(codes[i], first_codes[i]);
    codes_of(second, 16, &z, 10, codes, values);
    for (int i = 0; i < 4; i++) assert_true(fabs(values[i] - second_values[i]) < 1e-6);
    float zeros[16] = { 0 };
    codes_of(zeros, 16, &z, 0, codes, values);
    for (int i = 0; i < 16; i++) assert_true(values[i] == 0);
}

TEST(rotation)
{
    float x[16] = { 16 }, y[16] = { 0 }, z[16];
    y[3] = 16;
    tm_rotate_16(x, TM_ROTATE_16);
    tm_rotate_16(y, TM_ROTATE_16);
    for (int i = 0; i < 16; i++) assert_true(x[i] == 4 && y[i] == ((i & 1) ^ (i >> 1 & 1) ? -4 : 4));
    for (int i = 0; i < 16; i++) x[i] = z[i] = (float)(i * i % 7) - 3;
    tm_rotate_16(x, TM_ROTATE_16);
    tm_rotate_16(x, TM_ROTATE_16);
    for (int i = 0; i < 16; i++) assert_true(x[i] == z[i]);
    double before = 0, after = 0; /* x and y rotated alike keep their product */
    for (int i = 0; i < 16; i++) x[i] = (float)(i % 5), y[i] = (float)(i * 3 % 7), before += (double)(x[i] * y[i]);
    tm_rotate_16(x, TM_ROTATE_16_SIGNED);
    tm_rotate_16(y, TM_ROTATE_16_SIGNED);
    for (int i = 0; i < 16; i++) after += (double)(x[i] * y[i]);
    assert_true(before == after);
}

/* Where the scale of a block is: in a matrix, where parts end with blocks; else in that of the part. */
static int64_t place_of_block(const tm_quantize_attr *attr, tm_shape x, int part, int64_t line, int64_t k)
{
    bool           through = attr->down != attr->cut_columns, whole = true;
    tm_codes_scale of = tm_codes_scale_of(attr->codes);
    int64_t        lines = x.n[attr->down], length = x.n[!attr->down], first = 0;
    for (int p = 0; p + 1 < attr->n_parts; p++) whole = whole && attr->end[p] % (through ? of.block : of.lines) == 0;
    if (whole) return tm_codes_place(attr->codes, lines, length, line, k);
    for (int p = 0;; p++) {
        int64_t begin = p ? attr->end[p - 1] : 0, n = attr->end[p] - begin;
        if (p == part && through) return first + tm_codes_place(attr->codes, lines, n, line, k - begin);
        if (p == part) return first + tm_codes_place(attr->codes, n, length, line - begin, k);
        first += through ? tm_codes_scales(attr->codes, lines, n) : tm_codes_scales(attr->codes, n, length);
    }
}

/* Of an element: its expert, that expert's first row and rows; its row in there. */
typedef struct {
    int64_t expert, first, rows, row;
} owner;

static owner owner_of(const tm_call *call, int64_t row)
{
    tm_shape       x = call->in[0].shape;
    const int32_t *offsets = call->in[TM_QUANTIZE_OFFSETS].data;
    owner          o = { .rows = x.n[x.rank - 2] };
    if (x.rank == 3) o.expert = row / o.rows;
    while (offsets && row >= offsets[o.expert + 1]) o.expert++;
    o.first = offsets ? offsets[o.expert] : o.expert * o.rows;
    if (offsets) o.rows = offsets[o.expert + 1] - o.first;
    o.row = row - o.first;
    return o;
}

/* Where the scale of an element is. */
static int64_t place_of_scale(const tm_call *call, owner o, int64_t column)
{
    const tm_quantize_attr *attr = call->attr;
    tm_shape                x = call->in[0].shape;
    int64_t                 columns = x.n[x.rank - 1], part = 0, at = attr->cut_columns ? column : o.row;
    int64_t                 line = attr->down ? column : o.row, lines = attr->down ? columns : o.rows;
    int64_t                 first = attr->down ? o.expert * columns : o.first;
    while (at >= attr->end[part]) part++;
    if (attr->codes > TM_CODES_PLAIN) return place_of_block(attr, x, (int)part, line, attr->down ? o.row : column);
    if (attr->recipe[0].scaled != TM_SCALED_LINE) return o.expert * attr->n_parts + part;
    return attr->down != attr->cut_columns ? first * attr->n_parts + part * lines + line : first + line;
}

/* Codes times their scales are what the same call without `codes` leaves, but for the rounding of 1 / s: of any parts
 * and experts, along rows and along columns, where y is transposed. */
static void compare_codes(const tm_call *codes, const tm_call *values, int k)
{
    const tm_quantize_attr *attr = codes->attr;
    tm_shape                x = codes->in[0].shape;
    const double           *q = codes->out[0].data, *scales = codes->out[TM_QUANTIZE_SCALES].data;
    const double           *y = values->out[0].data;
    int64_t                 columns = x.n[x.rank - 1], high = x.n[x.rank - 2], rows = tm_shape_elements(x) / columns;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            owner   o = owner_of(codes, r);
            double  scale = scales[place_of_scale(codes, o, c)];
            int64_t at = attr->down ? (r / high * columns + c) * high + r % high : r * columns + c;
            double  code = q[at], wanted = y[r * columns + c];
            uint8_t byte = (uint8_t)tm_value_encode((tm_dtype)attr->recipe[0].format, code, TM_ROUND_EVEN, true, 0);
            assert_true(tm_value_decode((tm_dtype)attr->recipe[0].format, byte) == code);
            if (!(fabs(code * scale - wanted) <= 0x1p-22 * fabs(wanted)))
                fail_msg("example %d, (%d, %d): %g times %g, and not %g", k, (int)r, (int)c, code, scale, wanted);
        }
}

TEST(codes_times_scales_are_the_values)
{
    int        tried = 0, of_experts = 0;
    tm_example example;
    for (int k = 0; tm_op_quantize.example(k, &example); k++) {
        tm_quantize_attr *attr = (tm_quantize_attr *)(void *)example.attr;
        if (!attr->codes) continue;
        tm_call codes, values;
        tm_call_make(&codes, &tm_op_quantize, &example, 11);
        codes.op->reference(&codes);
        tm_quantize_attr plain = *attr;
        tm_example       same = example;
        plain.codes = 0;
        memcpy(same.attr, &plain, sizeof plain);
        same.out[TM_QUANTIZE_SCALES].rank = -1, same.out_dtype[0] = TM_F64;
        tm_call_make(&values, &tm_op_quantize, &same, 11);
        values.op->reference(&values);
        compare_codes(&codes, &values, k);
        of_experts += example.in[0].rank == 3 || example.in[TM_QUANTIZE_OFFSETS].rank > 0;
        tm_call_free(&codes);
        tm_call_free(&values);
        tried++;
    }
    assert_true(tried >= 16 && of_experts >= 9);
}
