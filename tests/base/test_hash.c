/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3-64: published values, and the same value however the bytes are cut. */
#include "base/hash.h"

#include "base/file.h"
#include "base/program.h"
#include "base/random.h"

#include "support/test.h"

TEST(the_empty_value_is_the_published_one)
{
    assert_true(tm_hash(NULL, 0) == 0x2D06800538D394C2u);
    assert_true(tm_hash("", 0) == 0x2D06800538D394C2u);
    tm_hasher *hasher = tm_hasher_create();
    tm_hasher_add(hasher, NULL, 0);
    assert_true(tm_hasher_value(hasher) == 0x2D06800538D394C2u);
    tm_hasher_destroy(hasher);
    tm_hasher_destroy(NULL);
}

TEST(pieces_give_the_value_of_the_whole)
{
    static unsigned char data[5000];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)tm_random_u64(1, 2, i);
    tm_hasher *hasher = tm_hasher_create();
    for (uint64_t trial = 0; trial < 300; trial++) {
        size_t total = (size_t)tm_random_below(3, 0, trial, sizeof data + 1), done = 0;
        tm_hasher_restart(hasher);
        for (uint64_t cut = 0; done < total; cut++) {
            size_t n = 1 + (size_t)tm_random_below(3, trial + 1, cut, 700);
            if (n > total - done) n = total - done;
            tm_hasher_add(hasher, data + done, n);
            done += n;
            if (cut == 0) assert_true(tm_hasher_value(hasher) == tm_hash(data, done)); /* looking changes nothing */
        }
        assert_true(tm_hasher_value(hasher) == tm_hash(data, total));
    }
    tm_hasher_destroy(hasher);
}

/* By which ranks tell that they run the same one. */
TEST(the_program_has_the_value_of_its_file)
{
    static volatile char large[150000] = { 1 }; /* of the file: more than is read at once */
    tm_text              whole = { 0 };
    assert_int_equal(tm_file_read("/proc/self/exe", 1 << 30, &whole, NULL), TM_OK);
    assert_true(whole.length > sizeof large && large[0] == 1 && tm_program_hash() == tm_hash(whole.data, whole.length));
    tm_text_fini(&whole);
}
