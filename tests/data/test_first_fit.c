/* SPDX-License-Identifier: Apache-2.0 */
/* Packing of samples into rows: first fit, the longest first, beside a plain search. */
#include "data/first_fit.h"

#include "base/random.h"

#include "support/test.h"

TEST(first_fit_is_first_fit)
{
    enum { N = 300, WIDTH = 64 };
    int32_t lengths[N];
    int64_t room[N], order[N], in_row[N];
    for (int i = 0; i < N; i++) {
        lengths[i] = 1 + (int32_t)tm_random_below(5, 1, (uint64_t)i, i % 3 ? WIDTH : 9);
        room[i] = WIDTH;
        order[i] = i;
    }
    for (int i = 1; i < N; i++) /* stable, the longest first */
        for (int k = i; k > 0 && lengths[order[k - 1]] < lengths[order[k]]; k--) {
            int64_t swap = order[k];
            order[k] = order[k - 1];
            order[k - 1] = swap;
        }
    int64_t rows = 0;
    for (int i = 0; i < N; i++) {
        int64_t r = 0;
        while (room[r] < lengths[order[i]]) r++;
        room[r] -= lengths[order[i]];
        in_row[order[i]] = r;
        if (r >= rows) rows = r + 1;
    }
    tm_first_fit got = tm_first_fit_make(lengths, N, WIDTH);
    assert_int_equal(got.rows, rows);
    assert_int_equal(got.first[0], 0);
    assert_int_equal(got.first[rows], N);
    bool seen[N] = { false };
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = got.first[r]; k < got.first[r + 1]; k++) {
            assert_int_equal(in_row[got.samples[k]], r);
            assert_false(seen[got.samples[k]]);
            seen[got.samples[k]] = true;
        }
    tm_first_fit_free(&got);
    got = tm_first_fit_make(lengths, 0, WIDTH);
    assert_int_equal(got.rows, 0);
    tm_first_fit_free(&got);
}
