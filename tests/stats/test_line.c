/* SPDX-License-Identifier: Apache-2.0 */
/* A line through rounds: exact where the data are exact, intervals that cover as promised, a bent law in the residuals.
 */
#include "support/test.h"

#include "base/random.h"
#include "stats/line.h"

#include <math.h>
#include <stdlib.h>

static const double layers[3] = { 1, 2, 3 };

static void near(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-12 * (1 + fabs(wanted)))) fail_msg("%.17g is not %.17g", value, wanted);
}

TEST(exact_data)
{
    double y[2 * 3];
    for (int r = 0; r < 2; r++)
        for (int k = 0; k < 3; k++) y[r * 3 + k] = 0.25 + 0.5 * layers[k];
    tm_line line = tm_stats_line(layers, 3, y, 2, 12, 1);
    near(line.a, 0.25);
    near(line.b, 0.5);
    near(line.value, 6.25);
    assert_true(isnan(line.interval.lo) && isnan(line.interval.hi)); /* two rounds say nothing about the spread */
    for (int k = 0; k < 3; k++) near(line.residual[k], 0);
}

TEST(hand_values)
{
    /* Medians 2, 3, 5 at 1, 2, 3: b = 3/2, a = 1/3; the outliers of single rounds change nothing. */
    const double y[3][3] = { { 2, 3, 5 }, { 1, 90, 5 }, { 40, 3, 4 } };
    tm_line      line = tm_stats_line(layers, 3, &y[0][0], 3, 10, 1);
    near(line.middle[0], 2), near(line.middle[1], 3), near(line.middle[2], 5);
    near(line.b, 1.5);
    near(line.a, 1.0 / 3);
    near(line.value, 1.0 / 3 + 15);
    near(line.residual[0], 1.0 / 6), near(line.residual[1], -1.0 / 3), near(line.residual[2], 1.0 / 6);
}

/* Planted a, b and noise of 2 %: at least 90 % of the intervals hold the true value, and they are not simply wide: half
 * of the width is of the size that the noise of the medians makes, sqrt(pi / 2) sigma sqrt(1/3 + (at - 2)^2 / 2) /
 * sqrt(n) times Student's t. */
FULL_TEST(coverage)
{
    enum { TRIALS = 400, MOST = 20 };
    const double  a = 0.3, b = 0.1, at = 12, noise = 0.02;
    const int64_t rounds[] = { 4, 6, 10, 20 };
    for (int i = 0; i < 4; i++) {
        int    covered = 0;
        double width = 0;
        for (int t = 0; t < TRIALS; t++) {
            double y[MOST * 3];
            for (int64_t k = 0; k < rounds[i] * 3; k++)
                y[k] = (a + b * layers[k % 3]) *
                       (1 + noise * tm_random_normal(99, (uint64_t)(i * TRIALS + t), (uint64_t)k));
            tm_line line = tm_stats_line(layers, 3, y, rounds[i], at, (uint64_t)t);
            covered += line.interval.lo <= a + b * at && a + b * at <= line.interval.hi;
            width += (line.interval.hi - line.interval.lo) / 2 / TRIALS;
        }
        double sigma =
            noise * (a + 2 * b) * sqrt(M_PI / 2 / (double)rounds[i]) * sqrt(1. / 3 + (at - 2) * (at - 2) / 2);
        print_message("# %d rounds: %.1f %% covered, half width %.2f standard errors\n", (int)rounds[i],
                      100. * covered / TRIALS, width / sigma);
        if (covered < TRIALS * 90 / 100) fail_msg("%d rounds: %d of %d covered", (int)rounds[i], covered, TRIALS);
        if (width > 5 * sigma) fail_msg("%d rounds: half width %g, standard error %g", (int)rounds[i], width, sigma);
    }
}

/* One slice planted 10 % slower: its residual stands out, though every round agrees. */
TEST(bent_law)
{
    const int64_t rounds = 6;
    double        y[6 * 3];
    for (int64_t k = 0; k < rounds * 3; k++)
        y[k] = (0.3 + 0.1 * layers[k % 3]) * (k % 3 == 1 ? 1.1 : 1) * (1 + 0.001 * tm_random_normal(5, 1, (uint64_t)k));
    tm_line line = tm_stats_line(layers, 3, y, rounds, 12, 1);
    assert_true(line.residual[1] / line.middle[1] > 0.05);
    assert_true(line.residual[0] < 0 && line.residual[2] < 0);
    /* Without the plant nothing stands out. */
    for (int64_t r = 0; r < rounds; r++) y[r * 3 + 1] /= 1.1;
    line = tm_stats_line(layers, 3, y, rounds, 12, 1);
    for (int k = 0; k < 3; k++) assert_true(fabs(line.residual[k] / line.middle[k]) < 0.002);
}
