/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of parquet, byte by byte: runs that repeat and runs that are packed, one behind the other; deltas. Every
 * place to cut them is tried. */
#include "data/parquet_numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void expect_runs(const uint8_t *bytes, size_t size, unsigned width, const uint32_t *wanted, size_t n)
{
    tm_parquet_runs runs = { .at = bytes, .end = bytes + size, .width = width };
    uint32_t        number;
    for (size_t i = 0; i < n; i++) {
        if (!tm_parquet_number(&runs, &number)) fail_msg("%zu of %zu numbers", i, n);
        if (number != wanted[i]) fail_msg("number %zu is %u, wanted %u", i, number, wanted[i]);
    }
    assert_false(tm_parquet_number(&runs, &number));
}

static void runs_one_behind_the_other(void **state)
{
    /* Width 3: three times 5; eight packed: 0 to 7; twice 1; eight packed: 7 to 0. */
    static const uint8_t mixed[] = { 3 << 1, 5, 1 << 1 | 1, 0x88, 0xC6, 0xFA, 2 << 1, 1, 1 << 1 | 1, 0x77, 0x39, 0x05 };
    static const uint32_t numbers[] = { 5, 5, 5, 0, 1, 2, 3, 4, 5, 6, 7, 1, 1, 7, 6, 5, 4, 3, 2, 1, 0 };
    /* Width 17: three bytes for a number; 130 times 0x12345 (the head has two bytes). */
    static const uint8_t wide[] = { 0x84, 0x02, 0x45, 0x23, 0x01 };
    /* Width 0: four zeros without a byte; eight packed ones of width 0. */
    static const uint8_t  none[] = { 4 << 1, 1 << 1 | 1 };
    static const uint32_t zeros[12] = { 0 };
    uint32_t              same[130];
    (void)state;
    expect_runs(mixed, sizeof mixed, 3, numbers, 21);
    static const size_t left[] = { 0, 0, 3, 3, 5, 8, 11, 11, 13, 13, 15, 18 };
    for (size_t cut = 0; cut < sizeof mixed; cut++) expect_runs(mixed, cut, 3, numbers, left[cut]);
    for (int i = 0; i < 130; i++) same[i] = 0x12345;
    expect_runs(wide, sizeof wide, 17, same, 130);
    for (size_t cut = 0; cut < sizeof wide; cut++) expect_runs(wide, cut, 17, same, 0);
    expect_runs(none, sizeof none, 0, zeros, 12);
}

static void deltas(void **state)
{
    /* Blocks of 8 in 2 miniblocks, 7 numbers, the first is 100; least -2; widths 0 and 3. */
    static const uint8_t bytes[] = { 8, 2, 7, 0xC8, 0x01, 3, 0, 3, 0x11, 0x0E, 0xAA };
    static const int64_t wanted[] = { 100, 98, 96, 94, 92, 91, 91 };
    const uint8_t       *at = bytes;
    int64_t              got[8];
    (void)state;
    assert_true(tm_parquet_deltas(&at, bytes + sizeof bytes, 7, got));
    assert_memory_equal(got, wanted, sizeof wanted);
    assert_ptr_equal(at, bytes + 10);
    for (size_t cut = 0; cut < 10; cut++) {
        at = bytes;
        assert_false(tm_parquet_deltas(&at, bytes + cut, 7, got));
        assert_ptr_equal(at, bytes);
    }
    assert_false(tm_parquet_deltas(&at, bytes + sizeof bytes, 6, got));
    assert_false(tm_parquet_deltas(&at, bytes + sizeof bytes, 8, got));
    static const uint8_t refused[][5] = { { 8, 0, 1, 2, 0 }, { 0, 1, 1, 2, 0 }, { 8, 3, 1, 2, 0 } };
    for (size_t i = 0; i < 3; i++) {
        at = refused[i];
        assert_false(tm_parquet_deltas(&at, refused[i] + 5, 1, got));
    }
    static const uint8_t one[] = { 8, 2, 1, 3 };
    at = one;
    assert_true(tm_parquet_deltas(&at, one + 4, 1, got));
    assert_int_equal(got[0], -2);
    static const uint8_t zero[] = { 8, 2, 0, 3 };
    at = zero;
    assert_true(tm_parquet_deltas(&at, zero + 4, 0, got));
    assert_ptr_equal(at, zero + 4);
    static const uint8_t too_wide[] = { 8, 2, 2, 0, 0, 65, 0 };
    at = too_wide;
    assert_false(tm_parquet_deltas(&at, too_wide + sizeof too_wide, 2, got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_one_behind_the_other),
        cmocka_unit_test(deltas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
