#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the test programs given as arguments and adds up what they say (TAP).
#
#   tests/run.sh PROGRAM... [-- PROGRAM...]     those after -- one at a time: they measure, and want the machine for themselves
#
# The others run JOBS (the processors and one more, as some sleep) at a time. One line per program; the output of those
# that failed; the reason of each skipped test; lines "# note: ..." of those that passed. A crash, a script that runs longer
# than TM_TEST_SECONDS (240), a plan that was not kept and a run in which no test was executed are failures. A program of C
# tests gives each of them TM_TEST_SECONDS itself (tests/support/runner.c), and is ended after an hour. Last line:
# "N passed, N failed, N skipped". Exit status 1 if something failed.
#
# With TM_TEST_UNTIL (seconds since 1970) no program runs after that time: those that did not start or end are named and
# counted, and are no failures.
#
# With TM_TEST_FINDINGS=1 (under sanitizers) only what a sanitizer says is a failure, also where the test passed and of what a
# script starts: times, sizes and results are judged where the program is as it is used. What failed otherwise is named and
# counted as left out.
set -u

seconds=${TM_TEST_SECONDS:-240}
asan=${ASAN_OPTIONS:-} ubsan=${UBSAN_OPTIONS:-}
# Threads that wait sleep: on a busy machine spinning ones make the tests several times slower. No result depends on it.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
# What measures memory takes arrays of four times the last-level cache: on servers a gigabyte, for nothing here.
export TM_TEST_CACHE_MIB="${TM_TEST_CACHE_MIB:-8}"

# What a user has set decides nothing: words of commands are apart by blanks here, terminals have colours, and other users may
# look into folders.
case ${TMPDIR:-} in *[[:space:]]*) unset TMPDIR ;; esac
unset CDPATH NO_COLOR POSIXLY_CORRECT
umask 022

# What a sanitizer says; that of leaks last.
findings="ERROR: (Address|Thread)Sanitizer:|WARNING: ThreadSanitizer|: runtime error: |ERROR: LeakSanitizer"

now_ms() { date +%s%3N; }

# leave_out FOLDER NAME
leave_out()
{
    echo "left out: $2"
    echo "$2" >>"$1/left"
}

# run FOLDER PROGRAM: its lines at once when it has ended, and "passed failed skipped" behind FOLDER/counts.
run()
{
    program=$2
    name=${program#*/tests/}
    rest=$((${TM_TEST_UNTIL:-9999999999} - $(date +%s)))
    if [ "$rest" -le 0 ]; then
        leave_out "$1" "$name"
        return
    fi
    mine=$(mktemp -d "$1/XXXXXX") || exit 1
    allowed=3600
    [ "$program" = "${program%.sh}" ] || allowed=$seconds
    from=$(now_ms)
    told=
    if [ -n "${TM_TEST_FINDINGS:-}" ]; then
        leaks=1
        [ "$program" = "${program%.sh}" ] || leaks=0 # a command that gives up leaves what it has to the system
        ASAN_OPTIONS="${asan:+$asan:}detect_leaks=$leaks:log_path=$mine/finding"
        UBSAN_OPTIONS="${ubsan:+$ubsan:}print_stacktrace=1:log_path=$mine/finding"
        export ASAN_OPTIONS UBSAN_OPTIONS
    fi
    CMOCKA_MESSAGE_OUTPUT=TAP timeout -k 5 "$((rest < allowed ? rest : allowed))" "$program" >"$mine/out" 2>&1 </dev/null
    status=$?
    for finding in "$mine"/finding.*; do
        [ -f "$finding" ] || continue
        cat "$finding" >>"$mine/out"
        ! grep -qE "$findings" "$finding" || told=yes
    done
    if [ "$rest" -lt "$allowed" ] && { [ $status -eq 124 ] || [ $status -eq 137 ]; }; then
        leave_out "$1" "$name, no time to end"
        return
    fi
    took=$(($(now_ms) - from))
    # "ok 1 - name", "not ok 2 - name", "ok 3 # SKIP name" ("not ok" in some versions of cmocka); "1..3" is the plan
    # (cmocka prints one per group).
    # shellcheck disable=SC2046
    set -- "$1" $(awk '
        /^(not )?ok [0-9]+ .*# *SKIP/ { skip++; next }
        /^ok [0-9]+/                  { pass++; next }
        /^not ok [0-9]+/              { fail++; next }
        /^1\.\.[0-9]+$/               { plan += substr($0, 4) }
        /^1\.\.0 # for make test-full/ { full = 1 }
        END { print pass + 0, fail + 0, skip + 0, plan + 0, full + 0 }' "$mine/out")
    pass=$2 fail=$3 skip=$4 plan=$5 full=$6
    why=
    if [ $status -eq 124 ] || [ $status -eq 137 ]; then
        why="ran longer than $allowed s"
    elif [ $status -eq 255 ]; then
        why="exit status 255: an assertion outside of a test, or in a thread of its own"
    elif [ $status -gt 128 ]; then
        why="ended by signal $((status - 128))"
    elif [ $((pass + fail + skip + full)) -eq 0 ]; then
        why="executed no test"
    elif [ $((pass + fail + skip)) -ne "$plan" ]; then
        why="planned $plan tests, executed $((pass + fail + skip))"
    elif [ -n "$told" ] && [ "$fail" -eq 0 ]; then
        why="a sanitizer has found something"
    elif [ $status -ne 0 ] && [ "$fail" -eq 0 ]; then
        why="exit status $status"
    fi
    # What killed the program counts as one failed test, also when others failed before.
    [ -n "$why" ] && fail=$((fail + 1))
    verdict=ok
    if [ "$fail" -gt 0 ] && [ -n "${TM_TEST_FINDINGS:-}" ]; then
        # A test that has failed leaves behind what it had.
        counts=$findings
        ! grep -q '^not ok' "$mine/out" || counts=${findings%%|ERROR: LeakSanitizer}
        if ! grep -qE "$counts" "$mine/out"; then
            leave_out "$1" "$name, failed without a finding${why:+: $why}"
            return
        fi
    fi
    [ "$fail" -gt 0 ] && verdict=FAILED
    {
        printf '%-6s %-44s %3d passed, %d failed, %d skipped, %d.%02d s%s\n' "$verdict" "$name" "$pass" "$fail" "$skip" \
            $((took / 1000)) $((took % 1000 / 10)) "${why:+: $why}"
        if [ "$fail" -gt 0 ]; then
            sed 's/^/    /' "$mine/out"
        else
            # The reason is what the test printed before it; cmocka itself gives the name only.
            [ "$skip" -eq 0 ] || grep -iE 'skip' "$mine/out" | sed 's/^/    /'
            grep '^# note: ' "$mine/out" | sed 's/^/    /'
        fi
    } >"$mine/said"
    cat "$mine/said"
    echo "$pass $fail $skip" >>"$1/counts"
    rm -rf "$mine"
}

if [ "${1:-}" = --one ]; then
    run "$2" "$3"
    exit 0
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
export TRAINMARK_STORE="$work/results.db" # never the user's
: >"$work/counts"
: >"$work/left"
all=0 alone=
for program; do
    if [ "$program" = -- ]; then alone=yes; continue; fi
    all=$((all + 1))
    if [ -z "$alone" ]; then
        echo "$program" >>"$work/together"
    else
        echo "$program" >>"$work/alone"
    fi
done
[ -s "$work/together" ] && xargs -n 1 -P "${JOBS:-$(($(nproc) + 1))}" "$0" --one "$work" <"$work/together"
[ -s "$work/alone" ] && xargs -n 1 "$0" --one "$work" <"$work/alone"

# shellcheck disable=SC2046
set -- $(awk '{ p += $1; f += $2; s += $3; n++ } END { print p + 0, f + 0, s + 0, n + 0 }' "$work/counts")
passed=$1 failed=$2 skipped=$3
left=$(wc -l <"$work/left")
if [ $(($4 + left)) -ne "$all" ]; then
    echo "$((all - $4 - left)) of $all test programs did not say how they ended"
    failed=$((failed + all - $4 - left))
fi
[ "$left" -eq 0 ] || echo "$left of $all test programs were left out"
if [ $((passed + failed)) -eq 0 ]; then
    echo "no test was executed"
    failed=1
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
