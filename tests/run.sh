#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the test programs given as arguments and adds up what they say (TAP).
#
# One line per program; the output of those that failed; the reason of each skipped test. A crash, a program that runs
# longer than TM_TEST_SECONDS (120), a plan that was not kept and a run in which no test was executed are failures.
# Last line: "N passed, N failed, N skipped". Exit status 1 if something failed.
set -u

seconds=${TM_TEST_SECONDS:-120}
# Threads that wait sleep: on a busy machine spinning ones make the tests several times slower. No result depends on it.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
passed=0
failed=0
skipped=0

now_ms() { date +%s%3N; }

for program; do
    name=${program#*/tests/}
    from=$(now_ms)
    CMOCKA_MESSAGE_OUTPUT=TAP timeout -k 5 "$seconds" "$program" >"$work/out" 2>&1 </dev/null
    status=$?
    took=$(($(now_ms) - from))
    # "ok 1 - name", "not ok 2 - name", "ok 3 # SKIP name" ("not ok" in some versions of cmocka); "1..3" is the plan
    # (cmocka prints one per group).
    # shellcheck disable=SC2046
    set -- $(awk '
        /^(not )?ok [0-9]+ .*# *SKIP/ { skip++; next }
        /^ok [0-9]+/                  { pass++; next }
        /^not ok [0-9]+/              { fail++; next }
        /^1\.\.[0-9]+$/               { plan += substr($0, 4) }
        END { print pass + 0, fail + 0, skip + 0, plan + 0 }' "$work/out")
    pass=$1 fail=$2 skip=$3 plan=$4
    why=
    if [ $status -eq 124 ] || [ $status -eq 137 ]; then
        why="ran longer than $seconds s"
    elif [ $status -gt 128 ]; then
        why="ended by signal $((status - 128))"
    elif [ $((pass + fail + skip)) -eq 0 ]; then
        why="executed no test"
    elif [ $((pass + fail + skip)) -ne "$plan" ]; then
        why="planned $plan tests, executed $((pass + fail + skip))"
    elif [ $status -ne 0 ] && [ "$fail" -eq 0 ]; then
        why="exit status $status"
    fi
    # What killed the program counts as one failed test, also when others failed before.
    [ -n "$why" ] && fail=$((fail + 1))
    passed=$((passed + pass))
    failed=$((failed + fail))
    skipped=$((skipped + skip))
    verdict=ok
    [ "$fail" -gt 0 ] && verdict=FAILED
    printf '%-6s %-44s %3d passed, %d failed, %d skipped, %d.%02d s%s\n' "$verdict" "$name" "$pass" "$fail" "$skip" \
        $((took / 1000)) $((took % 1000 / 10)) "${why:+: $why}"
    if [ "$fail" -gt 0 ]; then
        sed 's/^/    /' "$work/out"
    elif [ "$skip" -gt 0 ]; then
        # The reason is what the test printed before it; cmocka itself gives the name only.
        grep -iE 'skip' "$work/out" | sed 's/^/    /'
    fi
done

if [ $((passed + failed)) -eq 0 ]; then
    echo "no test was executed"
    failed=1
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
