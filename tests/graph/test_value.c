/* SPDX-License-Identifier: Apache-2.0 */
/* Single numbers of tensors: known bit patterns of bfloat16, rounding, and what each number format keeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/value.h"

#include <math.h>

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
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

static void bf16_keeps_every_bfloat16(void **state)
{
    (void)state;
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

static void values_by_format(void **state)
{
    (void)state;
    static const struct {
        tm_dtype dtype;
        double   kept; /* of 1/3 - 2 */
    } formats[] = { { TM_F64, 1.0 / 3 - 2 }, { TM_F32, -0x1.aaaaaap0 }, { TM_BF16, -0x1.aap0 }, { TM_I32, -1 } };
    for (size_t k = 0; k < sizeof formats / sizeof formats[0]; k++) {
        double data[3] = { 0 };
        tm_value_set(data, formats[k].dtype, 1, 1.0 / 3 - 2);
        assert_true(tm_value_get(data, formats[k].dtype, 1) == formats[k].kept);
        assert_true(tm_value_get(data, formats[k].dtype, 0) == 0 && tm_value_get(data, formats[k].dtype, 2) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(bf16_keeps_every_bfloat16),
        cmocka_unit_test(values_by_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
