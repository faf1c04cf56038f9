#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/mutants.sh N [FOLDER...] - tests the tests: N random changes of src (or of the folders), one line each; the tests that
# reach the line should turn red (docs/testing.md). make mutants RANDOM=N SEED=S
#
# SEED (1) decides which. JOBS=n at once (default: the processors). MAP=none: without a map of which tests reach which lines, a
# room is judged by its own tests, and by those that compare whole trainings. Exit 1 when a mutant survives.
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
[ "${1:-}" -gt 0 ] 2>/dev/null || die "how many? make mutants RANDOM=N SEED=S"
count=$1
shift
[ $# -gt 0 ] || set -- src

mkdir -p "$build/work" "$build/green" || exit 2
records=$build/records.$$
# shellcheck disable=SC2046
awk -v count="$count" -v seed="${SEED:-1}" -f tools/mutants/random.awk $(find "$@" -name '*.c' | sort) >"$records" ||
    die "there are not so many different mutants"
folders=tests
[ "${MAP:-}" != none ] || folders="tests/differential tests/oracle $(for folder; do
    echo "$folder" | sed 's,^src/device/gpu,src/gpu,; s,^src/*\(apps/\)*\([^/]*\).*,tests/\2,'
done)"
# shellcheck disable=SC2086
tests=$(find $folders -name 'test_*.c' ! -path 'tests/faults/*' | sort -u | sed "s,^,$build/,; s,\.c\$,,")
# shellcheck disable=SC2086
${MAKE:-make} --no-print-directory -j"$jobs" VARIANT=mutants "$build/trainmark" $tests >"$build/build.log" 2>&1 ||
    die "the tests do not build, see $build/build.log"
# The commands of make, the objects in front.
${MAKE:-make} --no-print-directory -Bn VARIANT=mutants "$build/libtrainmark.so" |
    sed -n 's/^\(.* -c -o \([^ ]*\.o\) .*\)$/\2\t\1/p' >"$build/commands"
if [ "${MAP:-}" != none ]; then tools/mutants/map.sh "$jobs" || exit 2; fi
mkdir -p build/coverage
touch "$build/kills" build/coverage/red build/coverage/seconds
# Seconds of every test, as far as they are known; else 4.
for green in "$build"/green/*; do
    [ ! -f "$green" ] || echo "$(basename "$green" | tr % /) $(cat "$green") ms"
done >"$build/green.all"
find tests -name 'test_*.[cs]*' ! -path 'tests/house/*' ! -path 'tests/tools/*' ! -path 'tests/long/*' ! -path 'tests/faults/*' | sort | sed 's/\.[a-z]*$//' |
    awk 'FILENAME != "-" { seconds[$1] = $3 ? $2 / 1000 : $2; next } { print $1, ($1 in seconds) ? seconds[$1] : 4 }' \
        build/coverage/seconds "$build/green.all" - >"$build/seconds"

: >"$records.results"
# Those that tests of TOGETHER seconds did not notice are judged many at once; none: each alone.
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
exit $status
