/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as text: the shortest form that reads back as the same double. */
#include "base/random.h"
#include "base/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void numbers_have_their_shortest_form(void **unused)
{
    static const struct {
        double      value;
        const char *text;
    } cases[] = {
        { 0, "0" }, { 0.1, "0.1" }, { -2.5, "-2.5" }, { 0.1 + 0.2, "0.30000000000000004" }, { 1e-8, "1e-08" }, { 3e-4, "0.0003" },
        { 10000, "10000" }, { -500000, "-500000" }, { 320640, "320640" }, { 1e15, "1000000000000000" }, { 1e16, "1e+16" },
        { 1.5e300, "1.5e+300" }, { (double)NAN, "nan" }, { (double)INFINITY, "inf" }, { -(double)INFINITY, "-inf" },
    };
    (void)unused;
    char out[32];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) assert_string_equal(tm_format_double(out, cases[i].value), cases[i].text);
}

static void numbers_read_back_as_themselves(void **unused)
{
    (void)unused;
    for (uint64_t i = 0; i < 20000; i++) {
        char   out[32];
        double whole = (double)tm_random_below(1, 2, i, UINT64_C(1) << 60), value = ldexp(whole, (int)tm_random_below(1, 3, i, 400) - 200);
        double back = strtod(tm_format_double(out, value), NULL);
        if (back < value || back > value) fail_msg("%s is not %a", out, value);
        assert_true(strlen(out) < 25);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_their_shortest_form),
        cmocka_unit_test(numbers_read_back_as_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
