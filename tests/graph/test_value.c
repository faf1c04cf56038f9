/* SPDX-License-Identifier: Apache-2.0 */
/* Single numbers of tensors: known bit patterns of bfloat16, rounding, and what each number format keeps. */

#include "support/test.h"

#include "graph/graph.h"
#include "graph/value.h"

#include <math.h>
#include <stdio.h>

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

/* Bit patterns from the formats' own documents (OFP8 tables 1 and 2; MX table 5) and from numpy's float16. */
TEST(small_formats_have_their_bit_patterns)
{
    static const struct {
        tm_dtype dtype;
        double   value;
        unsigned bits;
    } known[] = {
        { TM_F16, 1, 0x3c00 },           { TM_F16, -65504, 0xfbff },  { TM_F16, 65520, 0x7c00 },
        { TM_F16, 0x1p-24, 0x0001 },     { TM_F16, 0x1p-25, 0x0000 }, { TM_F16, 0x1.8p-24, 0x0002 },
        { TM_F16, 0x1.ff8p-15, 0x03ff }, { TM_F16, 0x1p-14, 0x0400 }, { TM_F16, -0.0, 0x8000 },
        { TM_E4M3, 448, 0x7e },          { TM_E4M3, 1000, 0x7e },     { TM_E4M3, -INFINITY, 0xfe },
        { TM_E4M3, 0x1p-6, 0x08 },       { TM_E4M3, 0x1p-9, 0x01 },   { TM_E4M3, 0x1.cp-7, 0x07 },
        { TM_E4M3, 1.0625, 0x38 },       { TM_E4M3, 1.1875, 0x3a },   { TM_E5M2, 57344, 0x7b },
        { TM_E5M2, 61440, 0x7c },        { TM_E5M2, 0x1p-16, 0x01 },  { TM_E5M2, -INFINITY, 0xfc },
        { TM_E4M3FNUZ, 240, 0x7f },      { TM_E4M3FNUZ, 1, 0x40 },    { TM_E4M3FNUZ, -0.0, 0x00 },
        { TM_E5M2FNUZ, 1, 0x40 },        { TM_E8M0, 1, 127 },         { TM_E8M0, 0x1p-127, 0 },
        { TM_E8M0, 0x1p127, 254 },       { TM_U8, 200, 200 },         { TM_E3M2, 28, 0x1f },
        { TM_E3M2, 1000, 0x1f },         { TM_E3M2, 0x1p-4, 0x01 },   { TM_E3M2, -0.25, 0x24 },
        { TM_E2M3, 7.5, 0x1f },          { TM_E2M3, 0.125, 0x01 },    { TM_E2M3, -1, 0x28 },
    };
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        uint16_t data[8] = { 0xffff };
        if (tm_dtype_bits(known[k].dtype) == 8) data[0] = 0;
        tm_value_set(data, known[k].dtype, 0, known[k].value);
        if (data[0] != known[k].bits)
            fail_msg("%s %g: 0x%x, wanted 0x%x", tm_dtype_name(known[k].dtype), known[k].value, data[0], known[k].bits);
    }
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

/* Saturating to nearest even: a published table. */
TEST(codes_of_a_table)
{
    static const struct {
        double   value;
        unsigned e4m3, e5m2, e4m3fnuz, e5m2fnuz;
    } known[] = { { 0.0, 0x00, 0x00, 0x00, 0x00 },          { 1.0, 0x38, 0x3C, 0x40, 0x40 },
                  { 0.1, 0x1D, 0x2E, 0x25, 0x32 },          { -0.3, 0xAA, 0xB5, 0xB2, 0xB9 },
                  { 448.0, 0x7E, 0x5F, 0x7F, 0x63 },        { 464.0, 0x7E, 0x5F, 0x7F, 0x63 },
                  { 480.0, 0x7E, 0x60, 0x7F, 0x64 },        { 1000.0, 0x7E, 0x64, 0x7F, 0x68 },
                  { 0.015625, 0x08, 0x24, 0x10, 0x28 },     { 0.001953125, 0x01, 0x18, 0x02, 0x1C },
                  { 0.0009765625, 0x00, 0x14, 0x01, 0x18 }, { 0.00146484375, 0x01, 0x16, 0x02, 0x1A },
                  { 17.0, 0x58, 0x4C, 0x60, 0x50 },         { 19.0, 0x5A, 0x4D, 0x62, 0x51 },
                  { 240.0, 0x77, 0x5C, 0x7F, 0x60 },        { 250.0, 0x78, 0x5C, 0x7F, 0x60 },
                  { 57344.0, 0x7E, 0x7B, 0x7F, 0x7F },      { 3.1415926, 0x45, 0x42, 0x4D, 0x46 } };
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        double x = known[k].value;
        assert_int_equal(tm_value_encode(TM_E4M3, x, TM_ROUND_EVEN, true, 0), known[k].e4m3);
        assert_int_equal(tm_value_encode(TM_E5M2, x, TM_ROUND_EVEN, true, 0), known[k].e5m2);
        assert_int_equal(tm_value_encode(TM_E4M3FNUZ, x, TM_ROUND_EVEN, true, 0), known[k].e4m3fnuz);
        assert_int_equal(tm_value_encode(TM_E5M2FNUZ, x, TM_ROUND_EVEN, true, 0), known[k].e5m2fnuz);
    }
    assert_int_equal(tm_value_encode(TM_E4M3, 1000, TM_ROUND_EVEN, false, 0), 0x7f);
    assert_int_equal(tm_value_encode(TM_E4M3, -1000, TM_ROUND_EVEN, false, 0), 0xff);
    assert_int_equal(tm_value_encode(TM_E5M2, -1e6, TM_ROUND_EVEN, false, 0), 0xfc);
    assert_int_equal(tm_value_encode(TM_E4M3FNUZ, -1000, TM_ROUND_EVEN, false, 0), 0x80);
    assert_int_equal(tm_value_encode(TM_E2M1, 1.2, TM_ROUND_STOCHASTIC, true, 0.39), 3);
    assert_int_equal(tm_value_encode(TM_E2M1, 1.2, TM_ROUND_STOCHASTIC, true, 0.41), 2);
}

/* Scales are powers of two: the nearest in the exponent, cut at both ends; what is no positive number has the code of
 * NaN. */
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
                 { 0, 0xff },
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
FULL_TEST(every_float32_becomes_what_others_make_of_it)
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
