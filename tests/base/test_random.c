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
        assert_true(tm_random_u64(seed, stream, index) == low);
        assert_true(tm_random_uniform(seed, stream, index) == ldexp((double)(low >> 11), -53));
        assert_true(tm_random_below(seed, stream, index, (uint64_t)1 << 40) == low >> 24);
        assert_true(fabs(tm_random_normal(seed, stream, index) - sqrt(-2 * log(u)) * cos(8 * atan(1) * v)) < 1e-14);
    }
}

/* Box and Muller on 24 bits of each word: nothing is rounded but what goes under the root, the root, sine or cosine,
 * and their product. */
TEST(normals_are_those_of_box_and_muller)
{
    enum { N = 40000 };
    static float values[N];
    double       sum = 0, squares = 0;
    for (int v = 0; v < (int)(sizeof vectors / sizeof vectors[0]); v++) {
        float four[4];
        tm_random_normals(vectors[v].seed, vectors[v].stream, 4 * vectors[v].index, 4, four);
        for (int k = 0; k < 4 && vectors[v].index < UINT64_MAX / 4; k++) {
            double radius = sqrt(-2 * log(ldexp((double)(vectors[v].r[k & 2] >> 8) + 0.5, -24)));
            double angle = 8 * atan(1) * ldexp((double)(vectors[v].r[(k & 2) + 1] >> 8), -24);
            assert_true(fabs((double)four[k] - radius * (k % 2 ? sin(angle) : cos(angle))) < 3e-7);
        }
    }
    tm_random_normals(1, 2, 0, N, values);
    for (uint64_t i = 0; i < N; i++) {
        uint64_t low = tm_random_u64(1, 2, i / 4), pair[2] = { low, 0 };
        sum += (double)values[i], squares += (double)values[i] * (double)values[i];
        if (i % 4 > 1) continue; /* their words are not told */
        double radius = sqrt(-2 * log(ldexp((double)((uint32_t)pair[0] >> 8) + 0.5, -24)));
        double angle = 8 * atan(1) * ldexp((double)(pair[0] >> 40), -24);
        double wanted = radius * (i % 2 ? sin(angle) : cos(angle));
        if (fabs((double)values[i] - wanted) > 0x1.8p-23 * fabs(wanted) + 1e-14)
            fail_msg("number %d: %.9g, wanted %.9g", (int)i, (double)values[i], wanted);
    }
    assert_true(fabs(sum / N) < 4 / sqrt(N) && fabs(squares / N - 1) < 4 * sqrt(2.0 / N));
}

static const tm_random_rows rows = {
    .seed = 7, .stream = 9, .mean = 0.5, .std = 0.02, .first = 13, .columns = 37, .ld = 101
};

/* A number is what it is, whatever else is made with it, and wherever a row begins. */
TEST(rows_have_their_numbers_of_the_stream)
{
    enum { N = 37 * 40 };
    static float all[N], some[N], stream[13 + 101 * 40];
    tm_random_normals(rows.seed, rows.stream, 0, sizeof stream / sizeof stream[0], stream);
    tm_random_make(&rows, 0, N, all);
    for (int i = 0; i < N; i++)
        assert_true(all[i] == (float)(rows.mean + rows.std * (double)stream[13 + i / 37 * 101 + i % 37]));
    for (int from = 0; from < 300; from += 7) {
        tm_random_make(&rows, from, N - 300, some);
        assert_true(memcmp(some, all + from, (N - 300) * sizeof *some) == 0);
        tm_random_normals(rows.seed, rows.stream, (uint64_t)from, N - 300, some);
        assert_true(memcmp(some, stream + from, (N - 300) * sizeof *some) == 0);
    }
}

TEST(cut_numbers_are_drawn_again_and_uniform_ones_are_even)
{
    enum { N = 37 * 400 };
    static float   all[N], kept[N], even[N];
    tm_random_rows cut = rows, uniform = rows, none = rows;
    int            again = 0, low = 0;
    double         squares = 0;
    cut.cut = 0.03, uniform.uniform = true, none.std = 0;
    tm_random_make(&rows, 0, N, all);
    tm_random_make(&cut, 0, N, kept);
    tm_random_make(&uniform, 0, N, even);
    for (int i = 0; i < N; i++) {
        bool within = fabs((double)all[i] - 0.5) <= 0.03;
        assert_true(fabs((double)kept[i] - 0.5) < 0.03 + 1e-7);
        assert_true(within == (kept[i] == all[i]));
        again += !within;
        double u = tm_random_uniform(7, 9, (uint64_t)(13 + i / 37 * 101 + i % 37));
        assert_true(fabs((double)even[i] - (0.5 + 0.02 * sqrt(3) * (2 * u - 1))) < 1e-7);
        low += even[i] < 0.5F;
        squares += pow((double)even[i] - 0.5, 2);
    }
    assert_true(abs(again - (int)(0.1336 * N)) < 4 * sqrt(0.1336 * N)); /* beyond 1.5 deviations */
    assert_true(abs(low - N / 2) < 2 * sqrt(N) && fabs(sqrt(squares / N) / 0.02 - 1) < 0.03);
    tm_random_make(&none, 0, 5, all);
    for (int i = 0; i < 5; i++) assert_true(all[i] == 0.5F);
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
