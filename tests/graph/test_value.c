/* SPDX-License-Identifier: Apache-2.0 */
/* Single numbers of tensors: known bit patterns of bfloat16, rounding, and what each number format keeps. */

#include "support/test.h"

#include "graph/graph.h"
#include "graph/value.h"

TEST(bf16_rounds_to_nearest_even)
{
    static const struct {
        float    value;
        uint16_t bits;
    } known[] = {
        { 0.0f, 0x0000 },          { -0.0f, 0x8000 },           { 1.0f, 0x3f80 },
        { -2.5f, 0xc020 },         { 0x1.01p0f, 0x3f80 },       { 0x1.03p0f, 0x3f82 },
        { 0x1.010002p0f, 0x3f81 }, { 0x1.00fffep0f, 0x3f80 },   { 0x1.ffp0f, 0x4000 },
        { 0x1.fep127f, 0x7f7f },   { 0x1.fffffep127f, 0x7f80 }, { 0x1p-133f, 0x0001 },
        { 0x1p-134f, 0x0000 },     { 0x1.8p-133f, 0x0002 },     { INFINITY, 0x7f80 },
        { -INFINITY, 0xff80 },
    };
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        assert_int_equal(tm_bf16_round(known[k].value), known[k].bits);
    assert_true(tm_bf16_value(0x0001) == 0x1p-133f && tm_bf16_value(0xc020) == -2.5f);
}

TEST(bf16_keeps_every_bfloat16)
{
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        float value = tm_bf16_value((uint16_t)bits);
        if (isnan(value))
            assert_true(isnan(tm_bf16_value(tm_bf16_round(value))));
        else
            assert_int_equal(tm_bf16_round(value), bits);
    }
    uint32_t low_nan = 0x7f800001; /* all of its fraction is in the half that goes */
    float    nan;
    memcpy(&nan, &low_nan, sizeof nan);
    assert_true(isnan(tm_bf16_value(tm_bf16_round(nan))));
}

/* What lies at a code, halfway to the next one, and the doubles beside these: as the definition has it, in one
 * rounding.
 */
TEST(float16_is_quick_and_as_defined)
{
    for (unsigned code = 0; code <= 0xffff; code++) {
        double value = (double)tm_f16_value((uint16_t)code), wanted = tm_value_decode(TM_F16, code);
        if (isnan(wanted) ? !isnan(value) : value != wanted || signbit(value) != signbit(wanted))
            fail_msg("code 0x%x is %g, wanted %g", code, value, wanted);
        double next = tm_value_decode(TM_F16, (code + 1) & 0xffff), half = (value + next) / 2;
        double places[] = { value,
                            half,
                            nextafter(value, 0),
                            nextafter(half, 0),
                            nextafter(value, 1e6),
                            nextafter(half, -1e6),
                            nextafter(half, 1e6) };
        for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
            unsigned found = tm_f16_round(places[k]),
                     right = tm_value_encode(TM_F16, places[k], TM_ROUND_EVEN, false, 0);
            if (found != right) fail_msg("%a becomes 0x%x, wanted 0x%x", places[k], found, right);
        }
    }
    static const double ends[] = { 65519.999, 65520, 65536, 1e30, 1e308, 0x1p-1074, 0x1p-26 };
    for (size_t k = 0; k < sizeof ends / sizeof ends[0]; k++)
        for (int sign = -1; sign < 2; sign += 2)
            assert_int_equal(tm_f16_round(sign * ends[k]),
                             tm_value_encode(TM_F16, sign * ends[k], TM_ROUND_EVEN, false, 0));
}

/* 4-bit elements: two in a byte, NF4's first in the high half; the number nearest wins. */
TEST(four_bits_share_a_byte)
{
    unsigned char byte[8] = { 0 };
    tm_value_set(byte, TM_NF4, 0, 1);
    tm_value_set(byte, TM_NF4, 1, -0.9);
    assert_int_equal(byte[0], 0xf0);
    tm_value_set(byte, TM_NF4, 3, 0.04); /* nearer to 0.0796 than to 0 */
    assert_int_equal(byte[1], 0x08);
    tm_value_set(byte, TM_E2M1, 0, 2.5); /* a tie: to even, 2 */
    tm_value_set(byte, TM_E2M1, 1, -100);
    assert_int_equal(byte[0], 0xf4);
    assert_int_equal(tm_tensor_bytes(tm_shape_2(3, 3), TM_NF4), 5);
    assert_int_equal(tm_tensor_bytes(tm_shape_2(3, 3), TM_BF16), 18);
}

TEST(what_is_out_of_range_or_left_to_chance)
{
    assert_int_equal(tm_value_encode(TM_E4M3, 1000, TM_ROUND_EVEN, false, 0), 0x7f);
    assert_int_equal(tm_value_encode(TM_E4M3, -1000, TM_ROUND_EVEN, false, 0), 0xff);
    assert_int_equal(tm_value_encode(TM_E5M2, -1e6, TM_ROUND_EVEN, false, 0), 0xfc);
    assert_int_equal(tm_value_encode(TM_E4M3FNUZ, -1000, TM_ROUND_EVEN, false, 0), 0x80);
    assert_int_equal(tm_value_encode(TM_E2M1, 1.2, TM_ROUND_STOCHASTIC, true, 0.39), 3);
    assert_int_equal(tm_value_encode(TM_E2M1, 1.2, TM_ROUND_STOCHASTIC, true, 0.41), 2);
}

/* What a code stands for has this code. */
TEST(codes_are_read_as_they_are_written)
{
    static const tm_dtype formats[] = { TM_F16, TM_E4M3, TM_E5M2, TM_E4M3FNUZ, TM_E5M2FNUZ, TM_E2M1, TM_E3M2, TM_E2M3 };
    static const int      bits[] = { 16, 8, 8, 8, 8, 4, 6, 6 };
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++)
        for (unsigned code = 0; code < 1u << bits[f]; code++) {
            double value = tm_value_decode(formats[f], code);
            if (!isnan(value) && tm_value_encode(formats[f], value, TM_ROUND_EVEN, false, 0) != code)
                fail_msg("%s: code 0x%x is %g", tm_dtype_name(formats[f]), code, value);
        }
}

/* Scales are powers of two: the nearest in the exponent, cut at both ends, so that what flushes denormals to zero has
 * the code of the least; what is below zero, or no finite number, has that of NaN. */
TEST(scales_are_powers_of_two)
{
    static const struct {
        double   value;
        unsigned code;
    } rows[] = { { 1, 127 },
                 { 1.4, 127 },
                 { 1.5, 128 },
                 { 0x1p-127, 0 },
                 { 0x1p-128, 0 },
                 { 0x1p-1000, 0 },
                 { 0x1.8p-127, 1 },
                 { 0x1p-126, 1 },
                 { 0x1p127, 254 },
                 { 0x1.8p127, 254 },
                 { 0x1p128, 254 },
                 { 0x1p1000, 254 },
                 { 0x1p126, 253 },
                 { 0, 0 },
                 { -1, 0xff },
                 { (double)NAN, 0xff },
                 { (double)INFINITY, 0xff },
                 { -(double)INFINITY, 0xff } };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        unsigned char byte = 7;
        tm_value_set(&byte, TM_E8M0, 0, rows[k].value);
        if (byte != rows[k].code) fail_msg("%g: %u is not %u", rows[k].value, byte, rows[k].code);
    }
}

static tm_dtype format_named(const char *name)
{
    for (int d = 0; d < TM_DTYPE_COUNT; d++)
        if (strcmp(tm_dtype_name((tm_dtype)d), name) == 0) return (tm_dtype)d;
    fail_msg("no format '%s'", name);
    return TM_F64;
}

/* Sums of the codes of 2^21 patterns that stand for every float32, as ml_dtypes, torch and numpy have them
 * (tools/make_format_fixtures.py): to nearest with ties to even, saturating or not; toward zero; ties away from zero.
 */
TEST(every_float32_becomes_what_others_make_of_it)
{
    FILE *file = fopen("tests/graph/formats.txt", "r");
    char  name[32], rounding[16];
    int   saturate, lines = 0;
    assert_non_null(file);
    for (unsigned long long wanted; fscanf(file, "%31s %d %15s %llx", name, &saturate, rounding, &wanted) == 4;
         lines++) {
        tm_dtype format = format_named(name);
        tm_round how = rounding[0] == 'e' ? TM_ROUND_EVEN : rounding[0] == 'z' ? TM_ROUND_ZERO : TM_ROUND_AWAY;
        uint64_t sum = 0;
#pragma omp parallel for reduction(+ : sum)
        for (uint64_t i = 0; i < 1u << 21; i++) {
            uint32_t bits = (uint32_t)((i >> 1) << 12 | (i & 1));
            float    x;
            memcpy(&x, &bits, sizeof x);
            uint64_t weight = (i * 0x9E3779B97F4A7C15u) | 1;
            if (!isnan(x)) sum += weight * tm_value_encode(format, (double)x, how, saturate != 0, 0);
        }
        if (sum != wanted) fail_msg("%s, saturating %d, %s: other codes", name, saturate, rounding);
    }
    fclose(file);
    assert_int_equal(lines, 32);
}
