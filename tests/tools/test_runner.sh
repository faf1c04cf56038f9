#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What runs the tests of every room (tests/support/runner.c): a test that fails, crashes, hangs or leaves a file open is red
# alone, and tests of the full suite are left out.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/../cli/lib.sh"
unset TM_TEST_FULL # it may be that of a draw

cat >test_small.c <<'END'
#include "support/test.h"
#include <stdlib.h>
#include <fcntl.h>
#include <unistd.h>
static int  n;
TEST(passes) { assert_int_equal(n++, 0); print_message("# note: a word\n# another\n"); }
TEST(alone) { assert_int_equal(n++, 0); }
TEST(fails) { assert_true(n > 0); }
TEST(crashes) { _exit(7); }
TEST(hangs) { for (;;) pause(); }
TEST(leaves) { assert_true(open("held", O_RDONLY) >= 0); }
TEST(skips) { skip(); }
static const struct CMUnitTest rows[] = { full_test(passes) };
TEST_TABLE(rows)
END
echo text >held
cat >test_order.c <<'END'
#include "support/test.h"
static int n;
static int begins(void **s) { (void)s; n = 5; return 0; }
TEST(first) { assert_int_equal(n++, 5); }
TEST(second) { assert_int_equal(n, 6); }
TEST_FIXTURE(begins, NULL)
TESTS_IN_ORDER
END
build()
{
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -I"$root/tests" -I"$root/src" -ffunction-sections -Wl,--gc-sections -o "$1" "$1.c" "$root/tests/support/runner.c" \
        "$root/tests/support/leftovers.c" "$root/src/base/hash.c" -lcmocka -lxxhash >"$out" 2>"$err"
}
build test_small
check "a program of tests" [ $? -eq 0 ]
TM_TEST_SECONDS=2 ./test_small >"$out" 2>"$err"
check "failures are its status" [ $? -eq 1 ]
check "each test has a process of its own" [ "$(grep -cE '^ok [12] - (passes|alone)$' "$out")" -eq 2 ]
check "a failure" has "$out" "^not ok 3 - fails$"
check "a process that ends" has "$out" "^not ok 4 - crashes$"
check "a test that hangs" has "$out" "^not ok 5 - hangs$"
check "a file that is left open" has "$out" "^# left open: .*/held$"
check "a note of a test that passes" has "$out" "^# note: a word$"
check "what is skipped" has "$out" "# SKIP$"
check_not "the full suite is left out" has "$out" "ok .*full: "
TM_TEST_FULL=1 TM_TEST_SECONDS=2 ./test_small "full: passes" >"$out" 2>"$err"
check "and run when it is named" has "$out" "^ok 1 - full: passes$"
build test_order
./test_order >"$out" 2>"$err"
check "a file in order has one process, which its fixture begins" [ $? -eq 0 ]
# A script has a limit as a whole, a program one for each of its tests.
cat >test_slow.c <<'END'
#include "support/test.h"
#include <unistd.h>
TEST(first) { usleep(700000); }
TEST(second) { usleep(700000); }
END
build test_slow
printf 'sleep 5\n' >slow.sh
chmod +x slow.sh
TM_TEST_SECONDS=1 "$root/tests/run.sh" ./test_slow ./slow.sh >"$out" 2>"$err"
check "tests that have the time, one after the other" has "$out" "^ok .*test_slow .* 2 passed"
check "a script that has not" has "$out" "^FAILED ./slow.sh .*ran longer than 1 s"
finish
