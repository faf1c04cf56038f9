/* SPDX-License-Identifier: Apache-2.0 */
/* stats/nonnegative.c: planted coefficients are found; where the best would be negative, no point nearby is better. */
#include "stats/nonnegative.h"
#include "base/random.h"

#include <math.h>

#include "support/test.h"

enum { ROWS = 40, TERMS = 3 };

static double draw(uint64_t stream, uint64_t i)
{
    float four[4];
    tm_random_normal4(7, stream, i, four);
    return fabs((double)four[0]) + 0.01;
}

TEST(planted_are_found)
{
    static const double planted[][TERMS] = {
        { 1e-6, 3e-13, 5e-11 }, { 0, 3e-13, 5e-11 }, { 1e-6, 0, 0 }, { 0, 0, 4e-11 }
    };
    for (size_t p = 0; p < sizeof planted / sizeof planted[0]; p++) {
        double rows[ROWS * TERMS], values[ROWS], weights[ROWS], out[TERMS];
        for (int i = 0; i < ROWS; i++) {
            double *row = rows + (ptrdiff_t)i * TERMS;
            row[0] = 1;
            row[1] = 1e8 * draw(1, (uint64_t)i);
            row[2] = 1e6 * draw(2, (uint64_t)i);
            values[i] = planted[p][0] + planted[p][1] * row[1] + planted[p][2] * row[2];
            weights[i] = 1 / values[i];
        }
        tm_stats_nonnegative(rows, values, weights, ROWS, TERMS, out);
        for (int t = 0; t < TERMS; t++) assert_true(fabs(out[t] - planted[p][t]) <= 1e-6 * planted[0][t] + 1e-20);
    }
}

static double error_of(const double *rows, const double *values, const double *x)
{
    double error = 0;
    for (int i = 0; i < ROWS; i++) {
        double left = values[i];
        for (int t = 0; t < TERMS; t++) left -= rows[i * TERMS + t] * x[t];
        error += left * left;
    }
    return error;
}

/* Random values, so that some of the unbounded coefficients are negative. */
TEST(no_neighbour_is_better)
{
    double weights[ROWS];
    int    at_zero = 0;
    for (int i = 0; i < ROWS; i++) weights[i] = 1;
    for (uint64_t trial = 0; trial < 50; trial++) {
        double rows[ROWS * TERMS], values[ROWS], out[TERMS];
        for (uint64_t i = 0; i < ROWS * TERMS; i++) rows[i] = draw(10 + trial, i);
        for (uint64_t i = 0; i < ROWS; i++) values[i] = draw(100 + trial, i) - 2 * rows[i * TERMS + trial % TERMS] + 3;
        tm_stats_nonnegative(rows, values, weights, ROWS, TERMS, out);
        double best = error_of(rows, values, out);
        for (int t = 0; t < TERMS; t++) {
            double x[TERMS] = { out[0], out[1], out[2] };
            assert_true(out[t] >= 0);
            at_zero += out[t] <= 0;
            x[t] = out[t] + 1e-3;
            assert_true(error_of(rows, values, x) >= best);
            x[t] = fmax(0, out[t] - 1e-3);
            assert_true(error_of(rows, values, x) >= best);
        }
    }
    assert_true(at_zero > 0);
}

/* Terms that cannot be told apart, or that are nowhere: no infinities. */
TEST(terms_without_effect)
{
    double rows[] = { 1, 0, 1, 1, 0, 1, 1, 0, 1 }, values[] = { 2, 2, 2 }, weights[] = { 1, 1, 1 }, out[TERMS];
    tm_stats_nonnegative(rows, values, weights, 3, TERMS, out);
    assert_true(fabs(out[0] + out[2] - 2) < 1e-9 && out[1] <= 0);
    double none[] = { 0, 0, 0 };
    tm_stats_nonnegative(rows, none, weights, 3, TERMS, out);
    assert_true(out[0] + out[1] + out[2] < 1e-12);
}
