/* SPDX-License-Identifier: Apache-2.0 */
/* Files in memory: what is opened, what is noticed later, and the number that a file is known by. */
#include "base/map.h"

#include "base/hash.h"
#include "support/folder.h"

#include "support/test.h"

/* As map.h says it. */
static uint64_t number_of(uint64_t before, const uint8_t *bytes, int64_t size)
{
    uint64_t all[3] = { before, (uint64_t)size, 0 };
    if (size <= 67108864) {
        all[2] = tm_hash(bytes, (size_t)size);
    } else {
        for (int64_t i = 0; i < 64; i++) {
            const uint64_t next[2] = { all[2], tm_hash(bytes + (size - 65536) / 63 * i, 65536) };
            all[2] = tm_hash(next, 16);
        }
        all[2] ^= tm_hash(bytes + size - 65536, 65536);
    }
    return tm_hash(all, 24);
}

TEST(large_files_are_known_by_their_pieces)
{
    static const int64_t sizes[] = { 0, 1, 67108863, 67108864, 67108865, 67108864 + 63 * 4096 + 62 };
    uint8_t             *bytes = calloc(1, 67108864 + 64 * 4096);
    assert_non_null(bytes);
    for (int64_t i = 0; i < 67108864 + 64 * 4096; i += 997) bytes[i] = (uint8_t)(i / 997);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (uint64_t before = 0; before < 2; before++)
            assert_true(tm_fingerprint(before, bytes, sizes[i]) == number_of(before, bytes, sizes[i]));
    free(bytes);
}

TEST_FIXTURE(NULL, test_folder_teardown)
