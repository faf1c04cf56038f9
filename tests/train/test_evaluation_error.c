/* SPDX-License-Identifier: Apache-2.0 */
/* How well an evaluation knows its loss: the standard error of a mean, worked out by hand. */
#include "train/run_state.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* 1 2 3 4 5: mean 3, sum of squares 55, squared deviations 10; the deviation is sqrt(10 / 4), its error that / sqrt(5).
 */
static void the_error_of_a_mean(void **state)
{
    (void)state;
    assert_true(fabs(run_mean_error(3, 55, 5) - sqrt(0.5)) < 1e-12);
    assert_true(fabs(run_mean_error(3, 2 * 55, 10) - sqrt(2. / 9)) < 1e-12); /* each twice: 20 / 9 / 10 */
}

static void of_too_few_values_nothing_is_known(void **state)
{
    (void)state;
    assert_true(isnan(run_mean_error(3, 9, 1)));
    assert_true(isnan(run_mean_error(3, 27, 3)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_error_of_a_mean),
        cmocka_unit_test(of_too_few_values_nothing_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
