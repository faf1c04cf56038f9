#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/mutants/judge.sh RECORDS NUMBER - builds one mutant (line NUMBER of RECORDS, form: random.awk), runs the tests that can
# notice it until one does, appends the verdict to RECORDS.results (verdict, room, name, tests, place, the line as it is, the
# new one) and prints it.
#
# Nothing is linked again: test programs load libmutant.so before libtrainmark.so. The one that lies beside them is empty; the
# mutant's own is found by LD_LIBRARY_PATH and stands before the library for every name that it has.
# dash and bash know -nt.
# shellcheck disable=SC2154,SC3013
set -u

build=build/mutants
map=build/coverage
records=$1
tab=$(printf '\t')
record=$(sed -n "$2p" "$records")

field() { printf '%s\n' "$record" | cut -f "$1"; }
name=$(field 1) file=$(field 2) number=$(field 3) kind=$(field 4) old=$(field 5) new=$(field 6)
[ "$(sed -n "${number}p" "$file")" = "$old" ] || { echo "mutants: $file has changed since" >&2; exit 2; }
work=$build/work/$(basename "$records").$2
rm -rf "$work"
mkdir -p "$work"
tmp=''
trap 'rm -rf "$work" "${tmp:-$work}"' EXIT

verdict() # what, tests
{
    room=${file#src/}
    room=${room#apps/}
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "${room%%/*}" "$name" "$2" "$file:$number" "$old" "$new" >>"$records.results"
    case $1 in
    survived) printf '%-12s %-44s %s (%s: %s)\n' SURVIVED "$name" "$2" "$kind" "$file:$number" ;;
    unjudged) printf '%-12s %-44s %s\n' UNJUDGED "$name" "$2" ;;
    *) printf '%-12s %-44s %s\n' "$1" "$name" "$2" ;;
    esac
    exit 0
}

# compile OBJECT OUTPUT: by the command of make, without debug information, the source from standard input.
compile()
{
    line=$(sed -n "s,^$1$tab,,p" "$build/commands")
    [ -n "$line" ] || { echo "mutants: make has no command for $1" >&2; exit 2; }
    eval "${line%% -c -o *} -g0 -Werror=int-conversion -Werror=incompatible-pointer-types -Werror=implicit-function-declaration" \
        "-c -o $2 -x c -" 2>>"$work/errors"
}

{
    printf '#line 1 "%s"\n' "$file"
    L=$number NEW=$new awk 'NR == ENVIRON["L"] { print ENVIRON["NEW"]; next } { print }' "$file"
} >"$work/mutant.c"

same=yes mutated='' k=0
for object in $(cut -f 1 "$build/commands" | grep -E "^$build/${file%.c}(\.[a-z0-9_]+)?\.o\$"); do # kernels: one per instruction set
    k=$((k + 1))
    original=$build/same/$object
    if [ ! -f "$original" ] || [ "$file" -nt "$original" ]; then
        mkdir -p "$(dirname "$original")"
        { printf '#line 1 "%s"\n' "$file"; cat "$file"; } | compile "$object" "$work/original.o" && mv "$work/original.o" "$original"
    fi
    compile "$object" "$work/$k.o" <"$work/mutant.c" || verdict uncompiled "$(grep -m 1 error "$work/errors" | cut -c 1-90)"
    cmp -s "$work/$k.o" "$original" || same=
    mutated="$mutated $work/$k.o"
done
# The compiler makes the same of both: nothing could notice.
[ -z "$same" ] || verdict same "same code"
# shellcheck disable=SC2086
${CC:-cc} -shared -fopenmp -o "$work/libmutant.so" $mutated || exit 2

. tools/mutants/tests.sh

sum=$(cksum "$file" | cut -d ' ' -f 1)
rows=$map/by-source/$(echo "$file" | tr / %)
[ -f "$rows" ] || rows=
# shellcheck disable=SC2086
awk -v file="$file" -v line="$number" -v sum="$sum" -f tools/mutants/select.awk \
    "$map/red" "$build/kills" "$build/seconds" $rows >"$work/tests"
tried=0 known=0 unreached='' spent=0
while read -r test seconds; do
    if [ "$test" = none ]; then unreached=", no test reaches the line"; continue; fi
    known=$((known + 1))
    spent=$((spent + ${seconds%.*} + 1))
    if [ -n "${TOGETHER:-}" ] && [ "$spent" -gt "$TOGETHER" ]; then
        open=$build/open/$2
        mkdir -p "$open"
        # shellcheck disable=SC2086
        cp $mutated "$open/"
        awk -v test="$test" '$1 == test { on = 1 } on' "$work/tests" >"$open/tests"
        printf '%s\t%s\t%s\t%s\t%s\n' "${file#src/}" "$name" "$file:$number" "$old" "$new" >"$open/row"
        echo "$tried" >"$open/tried"
        printf '%-12s %-44s %s\n' "not yet" "$name" "$tried tests, $(wc -l <"$open/tests") left"
        exit 0
    fi
    limit=$(limit_of "$test") || { echo "mutants: $test fails without a mutant, too" >&2; continue; }
    tried=$((tried + 1))
    run "$PWD/$work" "$test" "$limit" && continue
    status=$?
    if fault_of_test "$test" "$limit" $status; then echo "mutants: $test fails without a mutant, too" >&2; continue; fi
    echo "$file $test" >>"$build/kills"
    case $status in
    124 | 137) verdict time "${test#tests/}" ;;
    *) verdict killed "${test#tests/}" ;;
    esac
done <"$work/tests"
# Nobody has looked at it: that is no survivor, and nothing that counts.
[ "$tried" -gt 0 ] || [ "$known" -eq 0 ] || verdict unjudged "no test is green without it"
verdict survived "$tried tests$unreached"
