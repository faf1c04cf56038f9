#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/mutants/together.sh RECORDS JOBS - judges the mutants that judge.sh has laid aside (build/mutants/open), many at once.
#
# What survives many tests mostly survives them all, and then every test that reaches the line has to run. So the mutants of
# different files go into one library: a test that stays green with all of them stays green with each. Where it is red, halves
# are tried until it is known which one it was; those go on no further. What two hide from each other counts as survived.
#
#   together.sh --one RECORDS GROUP TEST
set -u

build=build/mutants
open=$build/open

# test_with TEST LIMIT NUMBER...: its exit status with these.
test_with()
{
    test=$1 limit=$2
    shift 2
    objects=''
    for number; do objects="$objects $(echo "$open/$number"/*.o)"; done
    rm -f "$work/libmutant.so"
    # shellcheck disable=SC2086
    ${CC:-cc} -shared -fopenmp -o "$work/libmutant.so" $objects || exit 2
    run "$PWD/$work" "$test" "$limit"
}

# find_killed TEST LIMIT NUMBER...: one that this test notices, with many all of them; writes how.
find_killed()
{
    test_with "$@" && return
    status=$?
    if [ $# -eq 3 ]; then
        if fault_of_test "$1" "$2" $status; then return; fi
        case $status in
        124 | 137) echo time ;;
        *) echo killed ;;
        esac >"$open/$3/dead"
        echo "${1#tests/}" >"$open/$3/by"
        return
    fi
    test_=$1 limit_=$2
    shift 2
    half=$(($# / 2)) left='' right=''
    for number; do
        if [ $half -gt 0 ]; then left="$left $number"; else right="$right $number"; fi
        half=$((half - 1))
    done
    # shellcheck disable=SC2086
    (find_killed "$test_" "$limit_" $left)
    # shellcheck disable=SC2086
    (find_killed "$test_" "$limit_" $right)
}

if [ "$1" = --one ]; then
    group=$3 test=$4
    work=$build/work/$(basename "$2").$group.$(echo "$test" | tr / %)
    rm -rf "$work"
    mkdir -p "$work"
    tmp=''
    trap 'rm -rf "$work" "${tmp:-$work}"' EXIT
    . tools/mutants/tests.sh
    alive=''
    for number in $(cat "$open/group.$group"); do
        if [ ! -f "$open/$number/dead" ] && grep -q "^$test " "$open/$number/tests"; then alive="$alive $number"; fi
    done
    [ -n "$alive" ] || exit 0
    limit=$(limit_of "$test") || { echo "mutants: $test fails without a mutant, too" >&2; exit 0; }
    # shellcheck disable=SC2086
    find_killed "$test" "$limit" $alive
    for number in $alive; do
        if [ -f "$open/$number/dead" ]; then continue; fi
        echo 1 >>"$open/$number/looked"
    done
    exit 0
fi

records=$1 jobs=$2
[ -d "$open" ] || exit 0
rm -f "$open"/group.*
# No two of a group have a source in common.
for folder in "$open"/[0-9]*; do
    file=$(cut -f 1 "$folder/row") k=1
    while [ -f "$open/group.$k" ] && grep -qxF "$file" "$open/files.$k"; do k=$((k + 1)); done
    echo "${folder##*/}" >>"$open/group.$k"
    echo "$file" >>"$open/files.$k"
done
echo "together: $(find "$open" -name row | wc -l) mutants in $(find "$open" -name 'group.*' | wc -l) groups"
for group in "$open"/group.*; do
    # Quick ones first: a long one that notices some runs once for each halving.
    for number in $(cat "$group"); do cut -d ' ' -f 1,2 "$open/$number/tests"; done | sort | uniq -c | sort -k3,3n -k1,1nr |
        awk -v group="${group##*.}" '{ print group, $2 }'
done >"$open/turns"
xargs -P "$jobs" -L 1 "$0" --one "$records" <"$open/turns" || exit 2
for folder in "$open"/[0-9]*; do
    tried=$(($(cat "$folder/tried") + $(wc -l <"$folder/looked" 2>/dev/null || echo 0)))
    verdict=survived by="$tried tests"
    [ ! -f "$folder/dead" ] || { verdict=$(cat "$folder/dead") by=$(cat "$folder/by"); }
    awk -F '\t' -v verdict="$verdict" -v by="$by" '{
        room = $1
        sub(/\/.*/, "", room)
        print verdict "\t" room "\t" $2 "\t" by "\t" $3 "\t" $4 "\t" $5
    }' "$folder/row" >>"$records.results"
    [ "$verdict" != survived ] || verdict=SURVIVED
    printf '%-12s %-44s %s\n' "$verdict" "$(cut -f 2 "$folder/row")" "$by"
done
