/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of parquet, byte by byte: runs that repeat and runs that are packed, one behind the other; deltas. Every
 * place to cut them is tried. Fields of headers of every kind, read and skipped. */
#include "data/parquet_numbers.h"
#include "data/parquet_thrift.h"

#include <string.h>

#include "support/test.h"

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

TEST(runs_one_behind_the_other)
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
    expect_runs(mixed, sizeof mixed, 3, numbers, 21);
    static const size_t left[] = { 0, 0, 3, 3, 5, 8, 11, 11, 13, 13, 15, 18 };
    for (size_t cut = 0; cut < sizeof mixed; cut++) expect_runs(mixed, cut, 3, numbers, left[cut]);
    for (int i = 0; i < 130; i++) same[i] = 0x12345;
    expect_runs(wide, sizeof wide, 17, same, 130);
    for (size_t cut = 0; cut < sizeof wide; cut++) expect_runs(wide, cut, 17, same, 0);
    expect_runs(none, sizeof none, 0, zeros, 12);
}

TEST(deltas)
{
    /* Blocks of 8 in 2 miniblocks, 7 numbers, the first is 100; least -2; widths 0 and 3. */
    static const uint8_t bytes[] = { 8, 2, 7, 0xC8, 0x01, 3, 0, 3, 0x11, 0x0E, 0xAA };
    static const int64_t wanted[] = { 100, 98, 96, 94, 92, 91, 91 };
    const uint8_t       *at = bytes;
    int64_t              got[8];
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

/* A struct with fields of every kind. */
static const uint8_t fields[] = {
    0x11,                                        /* 1: true */
    0x13, 0x7f,                                  /* 2: a byte */
    0x14, 0x03,                                  /* 3: -2 */
    0x15, 0x96, 0x01,                            /* 4: 75 */
    0x16, 0x80, 0x80, 0x80, 0x80, 0x20,          /* 5: 2^32 */
    0x17, 1,    2,    3,    4,    5,    6, 7, 8, /* 6: a double */
    0x18, 3,    'a',  'b',  'c',                 /* 7 */
    0x19, 0x25, 2,    4,                         /* 8: 1, 2 */
    0x19, 0x31, 1,    2,    1,                   /* 9: truths */
    0x1a, 0x2c, 0x15, 2,    0,    0,             /* 10: two structs, one of them empty */
    0x1c, 0x53, 9,    0x11, 0,                   /* 11: a struct */
    0x19, 0xf3, 16,   1,    2,    3,    4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, /* 12: 16 bytes */
    0x05, 0xd8, 0x04, 10,                                                             /* 300: 5 */
    0,
};

TEST(fields_of_every_kind)
{
    static const int kinds[] = { 1, 3, 4, 5, 6, 7, 8, 9, 9, 10, 12, 9, 5 };
    enum { N = sizeof kinds / sizeof kinds[0] };
    for (int which = -1; which < N; which++) { /* this one is read, the others are skipped */
        tm_thrift      t = { .at = fields, .end = fields + sizeof fields };
        int            kind;
        size_t         bytes;
        const uint8_t *text;
        for (int i = 0; i < N; i++) {
            assert_true(tm_thrift_next(&t));
            assert_int_equal(t.kind, kinds[i]);
            assert_int_equal(t.field, i == N - 1 ? 300 : i + 1);
            if (i != which) {
                tm_thrift_skip(&t);
            } else if (kinds[i] == TM_THRIFT_I16 || kinds[i] == TM_THRIFT_I32 || kinds[i] == TM_THRIFT_I64) {
                assert_true(tm_thrift_number(&t) == (i == 2 ? -2 : i == 3 ? 75 : i == 4 ? (int64_t)1 << 32 : 5));
            } else if (kinds[i] == TM_THRIFT_BINARY) {
                text = tm_thrift_binary(&t, &bytes);
                assert_int_equal(bytes, 3);
                assert_memory_equal(text, "abc", 3);
            } else if (kinds[i] == TM_THRIFT_LIST) {
                size_t n = tm_thrift_list(&t, &kind);
                assert_int_equal(n, i == 7 ? 2 : i == 8 ? 3 : 16);
                assert_int_equal(kind, i == 7 ? 5 : i == 8 ? 1 : 3);
                if (i == 8) /* a truth in a list takes a byte, one of a field none */
                    t.at += 3;
                for (size_t k = 0; i != 8 && k < n; k++) tm_thrift_skip_kind(&t, kind);
            } else {
                tm_thrift_skip(&t);
            }
        }
        assert_false(tm_thrift_next(&t));
        assert_false(t.bad);
        assert_ptr_equal(t.at, t.end);
    }
    for (size_t n = 0; n < sizeof fields - 1; n++) { /* cut anywhere */
        tm_thrift t = { .at = fields, .end = fields + n };
        while (tm_thrift_next(&t)) tm_thrift_skip(&t);
        assert_true(t.bad);
    }
}

static bool is_bad(const uint8_t *bytes, size_t n)
{
    tm_thrift t = { .at = bytes, .end = bytes + n };
    while (tm_thrift_next(&t)) tm_thrift_skip(&t);
    return t.bad;
}

TEST(fields_that_cannot_be)
{
    uint8_t bytes[100];
    assert_true(is_bad((const uint8_t[]){ 0x1b, 0, 0 }, 3)); /* a map */
    assert_true(is_bad((const uint8_t[]){ 0x1d, 0, 0 }, 3));
    assert_true(is_bad((const uint8_t[]){ 0x10, 0, 0 }, 3));
    assert_true(is_bad((const uint8_t[]){ 0x18, 2, 'a', 0 }, 3));
    assert_false(is_bad((const uint8_t[]){ 0x18, 1, 'a', 0 }, 4));
    assert_true(is_bad((const uint8_t[]){ 0x19, 0x33, 1, 2 }, 4)); /* three of them do not fit */
    assert_false(is_bad((const uint8_t[]){ 0x19, 0x23, 1, 2, 0 }, 5));
    for (int depth = 30; depth < 36; depth++) { /* 32 structs in one another below the first */
        memset(bytes, 0x1c, sizeof bytes);
        memset(bytes + depth, 0, sizeof bytes - (size_t)depth);
        assert_int_equal(is_bad(bytes, sizeof bytes), depth > 33);
    }
    for (int length = 9; length < 12; length++) { /* a number of 64 bits has ten bytes */
        memset(bytes, 0x80, sizeof bytes);
        bytes[0] = 0x16;
        bytes[length] = 0;
        bytes[length + 1] = 0;
        assert_int_equal(is_bad(bytes, sizeof bytes), length > 10);
    }
    /* After that all is 0. */
    tm_thrift t = { .at = bytes, .end = bytes };
    size_t    n = 7;
    int       kind = 7;
    assert_int_equal(tm_thrift_number(&t), 0);
    assert_true(t.bad);
    (void)tm_thrift_binary(&t, &n);
    assert_int_equal(n, 0);
    assert_int_equal(tm_thrift_list(&t, &kind), 0);
    assert_int_equal(kind, 0);
}
