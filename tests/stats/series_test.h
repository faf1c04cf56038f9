/* SPDX-License-Identifier: Apache-2.0 */
/* tests/stats/series_test.h - made-up step times whose truth is known. */
#ifndef TM_TESTS_STATS_SERIES_TEST_H
#define TM_TESTS_STATS_SERIES_TEST_H

#include "support/test.h"

#include "base/random.h"

static inline void near(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-12 * (1 + fabs(wanted)))) fail_msg("%.17g is not %.17g", value, wanted);
}

/* x[i] = 1 + sd v_i with v an AR(1) process of variance 1, in its steady state from the start: v' = rho v + noise. */
static inline void autoregressive(double *x, int n, double rho, double sd, int series)
{
    uint64_t stream = (uint64_t)series;
    double   v = tm_random_normal(5, stream, UINT32_MAX);
    for (int i = 0; i < n; i++) {
        x[i] = 1 + sd * v;
        v = rho * v + sqrt(1 - rho * rho) * tm_random_normal(5, stream, (uint64_t)i);
    }
}

#endif
