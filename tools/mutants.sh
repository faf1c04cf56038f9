#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/mutants.sh [--check] [LIST...] - tests the tests: breaks one line at a time on purpose and expects red (docs/testing.md).
#
# LIST (default: every tests/*/mutants.txt) lies beside the tests that must notice. --check: only whether every row can be
# applied. RANDOM_MUTANTS=N SEED=S: N random changes of all sources (or of the folders given) instead, judged by every test
# that reaches them (make mutants RANDOM=N SEED=S).
# ONLY=pattern runs some rows, JOBS=n at once (default: the processors). MAP=new maps first which tests reach which lines, as
# random changes do (MAP=none: not even they; without a map the tests of the room count).
# Exit 1 when a mutant of a list survives without a note or dies in spite of one.
set -u

# Whatever this was called from: the variants are those of the system's cc (gcov reads its counters).
unset CC VARIANT MAKEFLAGS MFLAGS MAKELEVEL
build=build/mutants
jobs=${JOBS:-$(nproc)}
export LC_ALL=C

die()
{
    echo "mutants: $*" >&2
    exit 2
}

cd "$(dirname "$0")/.." || exit 2
check=
if [ "${1:-}" = --check ]; then check=yes; shift; fi
if [ $# -eq 0 ]; then set -- tests/*/mutants.txt; fi
if [ -n "$check" ]; then
    awk -f tools/mutants/rows.awk "$@" >/dev/null || exit 1
    # Notes on random mutants that speak of lines which are gone.
    awk -f tools/mutants/notes.awk tests/equivalent.txt
    exit
fi

mkdir -p "$build/work" "$build/green" || exit 2
records=$build/records.$$
if [ -n "${RANDOM_MUTANTS:-}" ]; then
    case $1 in *.txt) set -- src ;; esac
    # shellcheck disable=SC2046
    awk -v count="$RANDOM_MUTANTS" -v seed="${SEED:-1}" -f tools/mutants/random.awk $(find "$@" -name '*.c' | sort) >"$records" ||
        die "there are not so many different mutants"
else
    awk -v only="${ONLY:-}" -f tools/mutants/rows.awk "$@" >"$records" || die "these rows cannot be applied"
fi
[ -s "$records" ] || die "no mutant matches"

# A list is judged by the tests beside it, and without a map a room by its own.
case ${RANDOM_MUTANTS:+random}${MAP:-} in
random | randomnew) folders=tests ;;
random*) folders=$(for folder; do echo "$folder" | sed 's,^src/*,tests/,'; done) ;;
*) folders=$(for list; do dirname "$list"; done) ;;
esac
# shellcheck disable=SC2086
tests=$(find $folders -name 'test_*.c' | sort | sed "s,^,$build/,; s,\.c\$,,")
# shellcheck disable=SC2086
${MAKE:-make} --no-print-directory -j"$jobs" VARIANT=mutants "$build/trainmark" $tests >"$build/build.log" 2>&1 ||
    die "the tests do not build, see $build/build.log"
# The commands of make, the objects in front.
${MAKE:-make} --no-print-directory -Bn VARIANT=mutants "$build/libtrainmark.so" |
    sed -n 's/^\(.* -c -o \([^ ]*\.o\) .*\)$/\2\t\1/p' >"$build/commands"
if [ "${MAP:-}" = new ] || { [ -n "${RANDOM_MUTANTS:-}" ] && [ "${MAP:-}" != none ]; }; then tools/mutants/map.sh "$jobs" || exit 2; fi
mkdir -p build/coverage
touch "$build/kills" build/coverage/red build/coverage/seconds
# Seconds of every test, as far as they are known; else 4.
for green in "$build"/green/*; do
    [ ! -f "$green" ] || echo "$(basename "$green" | tr % /) $(cat "$green") ms"
done >"$build/green.all"
find tests -name 'test_*.[cs]*' ! -path 'tests/house/*' ! -path 'tests/tools/*' ! -path 'tests/long/*' | sort | sed 's/\.[a-z]*$//' |
    awk 'FILENAME != "-" { seconds[$1] = $3 ? $2 / 1000 : $2; next } { print $1, ($1 in seconds) ? seconds[$1] : 4 }' \
        build/coverage/seconds "$build/green.all" - >"$build/seconds"

: >"$records.results"
# Of random ones, those that tests of TOGETHER seconds did not notice are judged many at once; none: each alone.
TOGETHER=${TOGETHER:-20}
export TOGETHER
[ "$TOGETHER" != none ] || unset TOGETHER
rm -rf "$build/open"
seq "$(wc -l <"$records")" | xargs -P "$jobs" -I '{}' tools/mutants/judge.sh "$records" '{}' || die "a mutant could not be judged"
tools/mutants/together.sh "$records" "$jobs" || die "what was laid aside could not be judged"
cp "$records.results" "$build/results"
awk -f tools/mutants/report.awk "$build/results"
status=$?
rm -f "$records" "$records.results"
[ -n "${RANDOM_MUTANTS:-}" ] || exit $status
