/* SPDX-License-Identifier: Apache-2.0 */
/* Token ids in a file: JSON and numpy, every version and width. Damage: test_damage.c. */
#include "data/token_list.h"

#include "support/folder.h"

#include "support/test.h"

/* A numpy file of a version, with this header and these values in `width` bytes each. */
static size_t numpy(uint8_t *out, int version, const char *header, int width, const int64_t *values, size_t n)
{
    size_t length = strlen(header), at = 0;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (uint8_t)version;
    out[7] = 0;
    out[8] = (uint8_t)length;
    out[9] = (uint8_t)(length >> 8);
    out[10] = out[11] = 0;
    at = version == 1 ? 10 : 12;
    memcpy(out + at, header, length);
    at += length;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < width; k++) out[at++] = (uint8_t)((uint64_t)values[i] >> 8 * k);
    return at;
}

static void expect_ids(const uint8_t *bytes, size_t size, const int64_t *wanted, int64_t n)
{
    int32_t *ids = NULL;
    int64_t  got = -1;
    assert_ok(tm_token_list_parse("x", bytes, size, 70000, &ids, &got, err));
    assert_int_equal(got, n);
    for (int64_t i = 0; i < n; i++) assert_int_equal(ids[i], wanted[i]);
    free(ids);
}

static const int64_t values[] = { 0, 255, 256, 65536, 69999, 7 };

TEST(lists_are_read)
{
    static const char one[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (6,), }       \n";
    static const char row[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (1, 6), }     \n";
    uint8_t           file[512];
    for (int version = 1; version <= 3; version++) {
        expect_ids(file, numpy(file, version, one, 4, values, 6), values, 6);
        expect_ids(file, numpy(file, version, row, 8, values, 6), values, 6);
    }
    expect_ids(file, numpy(file, 1, "{'descr': '<i4', 'shape': (0,)}", 4, values, 0), values, 0);
    expect_ids((const uint8_t *)" [0, 255, 256, 65536, 69999,\n7] ", 32, values, 6);
    expect_ids((const uint8_t *)"[]", 2, values, 0);
}

TEST_FIXTURE(NULL, test_folder_teardown)
