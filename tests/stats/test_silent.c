/* SPDX-License-Identifier: Apache-2.0 */
/* The rate of silent errors that a comparison excludes, beside a simulation: of many machines with errors at exactly
 * that rate, 5 % show none in that time. */
#include "support/test.h"

#include "base/random.h"
#include "stats/silent.h"

#include <math.h>

/* The next error of a machine comes after an exponential time. Errors come one by one: no Poisson law is assumed. */
static double share_without_error(double per_hour, double seconds, int machines)
{
    int none = 0;
    for (int i = 0; i < machines; i++) {
        double first = -log(1 - tm_random_uniform(11, (uint64_t)per_hour, (uint64_t)i)) * 3600 / per_hour;
        none += first > seconds;
    }
    return (double)none / machines;
}

TEST(rates_that_are_excluded_would_have_shown)
{
    enum { MACHINES = 40000 };
    const double deviation = sqrt(0.05 * 0.95 / MACHINES);
    for (double seconds = 1; seconds < 1e5; seconds *= 17) {
        double x = tm_silent_excluded(seconds, 0.95);
        assert_true(fabs(x * seconds / 3600 - 2.995732273553991) < 1e-12);
        assert_true(fabs(tm_silent_confidence(x, seconds) - 0.95) < 1e-12);
        double share = share_without_error(x, seconds, MACHINES);
        if (!(fabs(share - 0.05) < 4 * deviation)) fail_msg("%g s: %g of the machines show no error", seconds, share);
    }
}

TEST(more_time_excludes_less)
{
    assert_true(isinf(tm_silent_excluded(0, 0.95)));
    assert_true(tm_silent_excluded(7200, 0.95) < tm_silent_excluded(3600, 0.95));
    assert_true(tm_silent_excluded(3600, 0.99) > tm_silent_excluded(3600, 0.95));
    assert_true(tm_silent_confidence(0, 3600) <= 0 && tm_silent_confidence(1e-12, 3600) > 0.9e-12);
    assert_true(fabs(tm_silent_excluded(6400, 0.95) - 1.685) < 0.001); /* docs/silent-errors.md */
}
