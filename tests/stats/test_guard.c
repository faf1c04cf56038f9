/* SPDX-License-Identifier: Apache-2.0 */
/* Physics: figures that no machine can reach are errors, those that it can are not. */
#include "support/test.h"

#include "stats/guard.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const tm_peaks peaks = { .flops = 200e9, .bytes = 20e9, .flops_spread = 0.02, .bytes_spread = 0.07 };
static const tm_peaks unknown = { 0 };

static void near(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-12 * fabs(wanted))) fail_msg("%.17g is not %.17g", value, wanted);
}

TEST(least_seconds)
{
    near(tm_guard_least_seconds(&peaks, 100e9, 1e9), 0.5); /* arithmetic takes longer */
    near(tm_guard_least_seconds(&peaks, 100e9, 40e9), 2);  /* memory does */
    near(tm_guard_least_seconds(&peaks, 0, 10e9), 0.5);
    assert_true(tm_guard_least_seconds(&unknown, 1e30, 1e30) == 0);
    near(tm_guard_tolerance(0), 0.03);
    near(tm_guard_tolerance(0.05), 0.08);
    near(tm_guard_tolerance((double)NAN), 0.03);
}

TEST(rates)
{
    tm_error err = { 0 };
    assert_int_equal(tm_guard_flops(&peaks, 199e9, "gemm", &err), TM_OK);
    assert_int_equal(tm_guard_flops(&peaks, 200e9 * 1.0499, "gemm", &err), TM_OK); /* 3 % + the spread */
    assert_int_equal(tm_guard_bytes(&peaks, 20e9 * 1.0999, "stream", &err), TM_OK);
    assert_int_equal(tm_guard_flops(&unknown, 1e30, "gemm", &err), TM_OK);
    assert_int_equal(tm_guard_flops(&peaks, (double)NAN, "gemm", &err), TM_OK);
    assert_int_equal(err.status, TM_OK);
    assert_int_equal(tm_guard_flops(&peaks, 200e9 * 1.0501, "gemm 8 x 8 x 8", &err), TM_NUMBERS);
    assert_non_null(strstr(err.text, "gemm 8 x 8 x 8: 2.1e+11 FLOP/s is more than the 2e+11"));
    err = (tm_error){ 0 };
    assert_int_equal(tm_guard_bytes(&peaks, 20e9 * 1.1001, "triad", &err), TM_NUMBERS);
    assert_non_null(strstr(err.text, "triad: 2.2e+10 bytes/s is more than the 2e+10"));
    assert_int_equal(tm_status_exit_code(err.status), 3);
}

TEST(times)
{
    tm_error err = { 0 };
    assert_int_equal(tm_guard_seconds(&peaks, 100e9, 1e9, 0.5 / 1.0499, "a step", &err), TM_OK);
    assert_int_equal(tm_guard_seconds(&peaks, 100e9, 40e9, 2 / 1.0999, "a step", &err), TM_OK);
    assert_int_equal(tm_guard_seconds(&unknown, 100e9, 40e9, 1e-9, "a step", &err), TM_OK);
    assert_int_equal(tm_guard_seconds(&peaks, 100e9, 40e9, (double)NAN, "a step", &err), TM_OK);
    assert_int_equal(tm_guard_seconds(&peaks, 100e9, 1e9, 0.5 / 1.0501, "a step", &err), TM_NUMBERS);
    assert_non_null(strstr(err.text, "a step took 0.4761 s, but 1e+11 FLOP cannot be done in less than 0.5 s at the "
                                     "measured 2e+11 FLOP/s"));
    err = (tm_error){ 0 };
    assert_int_equal(tm_guard_seconds(&peaks, 100e9, 40e9, 2 / 1.1001, "a step", &err), TM_NUMBERS);
    assert_non_null(strstr(err.text, "a step took 1.818 s, but 4e+10 bytes cannot be done in less than 2 s at the "
                                     "measured 2e+10 bytes/s"));
}
