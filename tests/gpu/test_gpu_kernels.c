/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel of the devices cuda and hip, compiled as a user's machine would and executed (tests/gpu/trials.c). */
#include "gpu/trials.h"

#include "support/test.h"

static void on_cuda(void **state)
{
    (void)state;
    kernels_are_right("cuda", false);
}

static void on_hip(void **state)
{
    (void)state;
    kernels_are_right("hip", false);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(on_cuda), cmocka_unit_test(on_hip) };

TM_TESTS(tests, NULL, NULL)
