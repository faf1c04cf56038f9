/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers against the published vectors of Philox 4x32-10 (Salmon et al. 2011, kat_vectors of Random123), and
 * what is made of their bits. */
#include "base/random.h"

#include "support/test.h"

/* Seeds that give the keys of the vectors: counter and key of zeros, of ones, of the digits of pi. */
static const struct {
    uint64_t seed, stream, index;
    uint32_t r[4];
} vectors[] = {
    { 0x61c8864680b583eb, 0, 0, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
    { 0x31628af67b2131ab, UINT64_MAX, UINT64_MAX, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
    { 0xa35312e0f807cffc, 0x0370734413198a2e, 0x85a308d3243f6a88, { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
};

TEST(bits_are_those_of_philox)
{
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        uint64_t        seed = vectors[i].seed, stream = vectors[i].stream, index = vectors[i].index;
        const uint32_t *r = vectors[i].r;
        uint64_t        low = (uint64_t)r[1] << 32 | r[0], high = (uint64_t)r[3] << 32 | r[2];
        double          u = ldexp((double)(low >> 11) + 1, -53), v = ldexp((double)(high >> 11), -53);
        float           four[4];
        assert_true(tm_random_u64(seed, stream, index) == low);
        assert_true(tm_random_uniform(seed, stream, index) == ldexp((double)(low >> 11), -53));
        assert_true(tm_random_below(seed, stream, index, (uint64_t)1 << 40) == low >> 24);
        assert_true(fabs(tm_random_normal(seed, stream, index) - sqrt(-2 * log(u)) * cos(8 * atan(1) * v)) < 1e-14);
        tm_random_normal4(seed, stream, index, four);
        for (int k = 0; k < 4; k++) { /* Box and Muller, of 24 bits */
            double radius = sqrt(-2 * log(ldexp((double)(r[k & 2] >> 8) + 0.5, -24)));
            double angle = 8 * atan(1) * ldexp((double)(r[(k & 2) + 1] >> 8), -24);
            assert_true(fabs((double)four[k] - radius * (k % 2 ? sin(angle) : cos(angle))) < 3e-6);
        }
    }
}

/* FNV-1a of 64 bits, as published. */
TEST(streams_are_hashes_of_names)
{
    assert_true(tm_random_stream("") == 0xcbf29ce484222325);
    assert_true(tm_random_stream("a") == 0xaf63dc4c8601ec8c);
    assert_true(tm_random_stream("foobar") == 0x85944171f73967e8);
}

TEST(permutations_have_each_number_once)
{
    static unsigned char seen[1030];
    uint64_t             moved = 0;
    for (uint64_t n = 1; n <= sizeof seen; n += n < 70 ? 1 : 240) {
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t to = tm_random_permute(3, 4, i, n);
            assert_true(to < n && !seen[to]);
            seen[to] = 1;
            moved += to != i;
        }
    }
    assert_true(moved > 2000);
    assert_true(tm_random_permute(3, 4, 5, ((uint64_t)1 << 40) + 1) <= (uint64_t)1 << 40);
    assert_true(tm_random_permute(3, 4, 5, 1000) != tm_random_permute(4, 4, 5, 1000) ||
                tm_random_permute(3, 4, 6, 1000) != tm_random_permute(4, 4, 6, 1000));
}
