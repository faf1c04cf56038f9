#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/mutants/map.sh [JOBS] - which tests reach which lines: build/coverage/by-source/.
#
# Runs every test once, built with --coverage (kernels in simd/ are not measured: they would take minutes). A test is run
# again when its own source changed. Per file of src/ (with % for /) there is a line for each test that reached it:
#   test seconds sum-of-the-file-then + reached lines - lines with code that were not reached
# build/coverage/red lists the tests that fail without any mutant: nothing can be learnt from them.
set -u

map=build/coverage

# name_of TEST: tests/op/test_add
name_of() { name=${1#"$map/"} && echo "${name%.sh}"; }

run_one()
{
    name=$(name_of "$1")
    flat=$(echo "$name" | tr / %)
    case $1 in
    *.sh) source=$1 ;;
    *) source=$name.c ;;
    esac
    key=$(cksum <"$source")
    if [ -f "$map/lines/$flat" ] && [ "$(head -n 1 "$map/lines/$flat")" = "K $key" ]; then return; fi
    work=$map/runs/$flat
    rm -rf "$work"
    mkdir -p "$work/tmp" "$work$PWD/$map"
    cp -al "$map/src" "$work$PWD/$map/"
    from=$(date +%s%3N)
    TMPDIR=$PWD/$work/tmp GCOV_PREFIX=$PWD/$work GCOV_ERROR_FILE=/dev/null OMP_WAIT_POLICY=passive \
        TRAINMARK=$PWD/$map/trainmark timeout -k 5 900 "$1" >"$work/log" 2>&1 </dev/null
    status=$?
    seconds=$(($(date +%s%3N) - from))
    [ $status -eq 0 ] || echo "$name (exit status $status)" >>"$map/red"
    find "$work$PWD" -name '*.gcda' -print0 | xargs -0 -r gcov -t 2>/dev/null | awk -v key="$key" -v ms="$seconds" -v sums="$map/sums" '
        BEGIN {
            FS = ":"
            while ((getline line < sums) > 0) { split(line, part, " "); sum[part[3]] = part[1] }
            print "K " key
            print "S " ms / 1000
        }
        / *-: *0:Source:/ { file = $4 ~ /^src\// ? $4 : ""; next }
        file == "" || $2 + 0 == 0 || $1 ~ /- *$/ { next }
        {
            if (!((file, $2 + 0) in seen)) { seen[file, $2 + 0] = 0; lines[file] = lines[file] " " ($2 + 0) }
            if ($1 !~ /[#=%$]/) { seen[file, $2 + 0] = 1; hit[file] = 1 }
        }
        END {
            for (file in hit) {
                n = split(lines[file], all, " ")
                yes = no = ""
                for (i = 1; i <= n; i++) if (seen[file, all[i]]) yes = yes " " all[i]; else no = no " " all[i]
                print "F " file " " sum[file] " +" yes " -" no
            }
        }' >"$work/lines"
    mv "$work/lines" "$map/lines/$flat"
    echo "mapped $name: $((seconds / 1000)) s"
    rm -rf "$work"
}

if [ "${1:-}" = --one ]; then
    run_one "$2"
    exit
fi
mkdir -p "$map/lines" "$map/by-source"
: >"$map/red"
tests=$(find tests -name 'test_*.c' ! -path 'tests/faults/*' | sort | sed "s,^,$map/,; s,\.c\$,,")
scripts=$(find tests -name 'test_*.sh' ! -path 'tests/house/*' ! -path 'tests/tools/*' ! -path 'tests/long/*' ! -path 'tests/faults/*' | sort)
# shellcheck disable=SC2086
${MAKE:-make} --no-print-directory -j"${1:-$(nproc)}" VARIANT=coverage "$map/trainmark" $tests >"$map/build.log" 2>&1 || {
    echo "mutants: the tests do not build, see $map/build.log" >&2
    exit 2
}
find src -type f -exec cksum {} + >"$map/sums"
# shellcheck disable=SC2086
printf '%s\n' $tests $scripts | xargs -n 1 -P "${1:-$(nproc)}" "$0" --one
# The other way round: per source.
rm -rf "$map/by-source" && mkdir "$map/by-source"
awk -v out="$map/by-source/" '
    FNR == 1 { test = FILENAME; sub(/.*\//, "", test); gsub(/%/, "/", test) }
    $1 == "S" { seconds = $2 }
    $1 == "F" {
        file = $2
        gsub(/\//, "%", file)
        line = $0
        sub(/^F [^ ]* /, "", line)
        rows[file] = rows[file] test " " seconds " " line "\n"
    }
    END { for (file in rows) { printf "%s", rows[file] >(out file); close(out file) } }' "$map"/lines/*
for test in "$map"/lines/*; do
    echo "$(basename "$test" | tr % /) $(sed -n 's/^S //p' "$test")"
done >"$map/seconds"
[ ! -s "$map/red" ] || { echo "red without any mutant, left out:"; cat "$map/red"; }
