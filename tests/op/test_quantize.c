/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of narrow formats with scales (op/quantize.h) against the formats themselves, over every class of
 * float32, and against published numbers: scales by every rule, the rotation. Blocks: tests/golden/quantize.txt. */
#include "op/codes.h"
#include "op/quantize.h"

#include "base/random.h"
#include "graph/value.h"

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

/* --- layouts of scales beside codes (op/codes.h) ---------------------------------------------------------------------
 */

/* No two blocks share a scale, and those of one block do; what is left over fills up. */
TEST(every_block_has_a_scale_of_its_own)
{
    static const int64_t lines[] = { 1, 31, 128, 130, 260 }, lengths[] = { 16, 128, 144, 672 };
    for (int kind = TM_CODES_RUNS; kind < TM_CODES_KINDS; kind++)
        for (int x = 0; x < 5 * 4; x++) {
            int64_t        n = lines[x / 4], k = lengths[x % 4], room = tm_codes_scales(kind, n, k);
            tm_codes_scale of = tm_codes_scale_of(kind);
            int64_t       *owner = malloc((size_t)room * sizeof *owner), used = 0;
            for (int64_t i = 0; i < room; i++) owner[i] = -1;
            for (int64_t i = 0; i < n * k; i++) {
                int64_t line = i / k, at = i % k, place = tm_codes_place(kind, n, k, line, at);
                int64_t block = line / of.lines * k + at / of.block;
                assert_in_range(place, 0, room - 1);
                if (owner[place] < 0) owner[place] = block, used++;
                assert_int_equal(owner[place], block);
            }
            int64_t blocks = tm_codes_cut(k, of.block) * tm_codes_cut(n, of.lines);
            assert_int_equal(used, blocks);
            if (kind == TM_CODES_RUNS || kind == TM_CODES_ROWS) assert_int_equal(room, blocks);
            free(owner);
        }
}

/* The other way round, as the library's document has it: which line and which block an offset in a tile is of. */
TEST(tiles_lie_as_the_document_says)
{
    enum { LINES = 300, LENGTH = 352, BLOCKS = 12, TILE = 512 };
    assert_int_equal(tm_codes_scales(TM_CODES_TILES, LINES, LENGTH), 3 * 3 * TILE);
    for (int at = 0; at < 3 * 3 * TILE; at++) {
        int offset = at % TILE, row = at / TILE / 3, column = at / TILE % 3;
        int line = row * 128 + offset % 16 / 4 * 32 + offset / 16, block = column * 4 + offset % 4;
        if (line >= LINES || block * 32 >= LENGTH) continue;
        assert_int_equal(tm_codes_place(TM_CODES_TILES, LINES, LENGTH, line, block * 32 + 31), at);
    }
    /* Squares along the depth, a multiple of 4 of them; runs line after line. */
    assert_int_equal(tm_codes_scales(TM_CODES_SQUARES, 300, 640), 3 * 8);
    assert_int_equal(tm_codes_place(TM_CODES_SQUARES, 300, 640, 299, 639), 2 * 8 + 4);
    assert_int_equal(tm_codes_place(TM_CODES_RUNS, 300, 640, 299, 639), 4 * 300 + 299);
    assert_int_equal(tm_codes_place(TM_CODES_ROWS, 300, 640, 299, 639), 299 * 20 + 19);
}
