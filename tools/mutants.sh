#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/mutants.sh [LIST...] - tests the tests: breaks one line at a time on purpose and expects red.
#
# LIST (default: every tests/*/mutants.txt) lies beside the tests that must notice: tests/op/test_*.c for
# tests/op/mutants.txt. Its lines:
#   [src/op/add.c]                                the file that the following lines are about, and, where running all
#   [src/x.c test_x.c]                            tests of the folder takes too long, the ones that must notice
#   name ~ where ~ old => new ~ what it breaks [~ equivalent: why no test can notice]
# `old` must occur exactly once between the first line that contains `where` and the next line that starts with "}".
# Each mutant is compiled alone, with the commands that make would use, and linked before the library; nothing in src/ is
# touched. Killed: a test fails, crashes or takes longer than TIME_LIMIT seconds (60). Exit 1 when one survives without a
# note, or dies in spite of one. ONLY=pattern runs some.
set -u

build=build/${VARIANT:-release}
time_limit=${TIME_LIMIT:-60}
total=0 killed=0 equivalent=0 wrong=0

die()
{
    echo "mutants: $*" >&2
    exit 2
}

# The command by which make would make $1.
command_for()
{
    ${MAKE:-make} --no-print-directory -Bn "$1" | tail -n 1
}

# Prints file $1 with $3 replaced by $4 in the block that begins at $2; fails unless $3 is there exactly once.
mutate()
{
    WHERE=$2 OLD=$3 NEW=$4 awk '
        BEGIN { where = ENVIRON["WHERE"]; old = ENVIRON["OLD"]; new = ENVIRON["NEW"] }
        !begun && index($0, where) { begun = inside = 1 }
        inside && /^}/ { inside = 0; last = 1 }
        inside || last {
            last = 0
            rest = $0
            while ((at = index(rest, old)) > 0) {
                found++
                line = $0
                first = index(line, old)
                rest = substr(rest, at + length(old))
                if (found == 1) changed = substr(line, 1, first - 1) new substr(line, first + length(old))
            }
            if (changed != "") { $0 = changed; changed = "" }
        }
        { print }
        END { exit found == 1 ? 0 : 3 }' "$1"
}

# Links the tests "$only" (default: all) in folder $1 with the objects $2 (may be empty) into folder $3 and runs them; prints the red ones.
red_tests()
{
    for source in ${only:-$(cd "$1" && echo test_*.c)}; do
        name=${source%.c}
        link=$(cat "$build/mutants/$1/$name.link")
        rest=${link#* -o "$build/$1/$name"}
        # shellcheck disable=SC2086
        ${link%% -o *} -o "$3/$name" ${rest%%"$build/libtrainmark.a"*} $2 "$build/libtrainmark.a" \
            ${rest#*"$build/libtrainmark.a"} || die "$name does not link"
        timeout "$time_limit" "$3/$name" >"$3/$name.log" 2>&1
        status=$?
        [ $status -eq 124 ] && name="$name(time)"
        if [ $status -ne 0 ]; then printf ' %s' "${name#test_}"; fi
    done
}

# Compiles $3, a mutant of $1, into folder $2; prints the object. Kernels are compiled once per instruction set.
compile()
{
    case $1 in
    */simd/*) suffixes=".base .avx2 .avx512" ;;
    *) suffixes=none ;;
    esac
    for suffix in $suffixes; do
        suffix=${suffix#none}
        line=$(command_for "$build/${1%.c}$suffix.o")
        # shellcheck disable=SC2086
        ${line%% -c -o *} -O1 -w -c -o "$2/mutant$suffix.o" "$3" || die "$3 does not compile"
        printf ' %s' "$2/mutant$suffix.o"
    done
}

run_mutant() # folder of tests, file, name, where, old, new, what, note
{
    work=$build/mutants/$3
    mkdir -p "$work"
    copy=$work/$(basename "$2")
    mutate "$2" "$4" "$5" "$6" >"$copy" || die "$3: '$5' is not there exactly once in $2 from '$4' on"
    objects=$(compile "$2" "$work" "$copy") || exit 2
    red=$(red_tests "$1" "$objects" "$work") || exit 2
    total=$((total + 1))
    if [ -n "$red" ] && [ -z "$8" ]; then
        killed=$((killed + 1)) verdict=killed
    elif [ -z "$red" ] && [ -n "$8" ]; then
        equivalent=$((equivalent + 1)) verdict=equivalent red=" ($8)"
    elif [ -n "$red" ]; then
        wrong=$((wrong + 1)) verdict=NOTE-WRONG
    else
        wrong=$((wrong + 1)) verdict=SURVIVED red=" ($7: $2)"
    fi
    printf '%-11s %-40s%s\n' "$verdict" "$3" "$red"
    rm -rf "$work"
}

[ $# -gt 0 ] || set -- tests/*/mutants.txt
for list in "$@"; do
    folder=$(dirname "$list")
    tests=$(for source in "$folder"/test_*.c; do echo "$build/${source%.c}"; done)
    mkdir -p "$build/mutants/$folder"
    # shellcheck disable=SC2086
    ${MAKE:-make} --no-print-directory -j"$(nproc)" $tests >"$build/mutants/build.log" 2>&1 ||
        die "the tests do not build, see $build/mutants/build.log"
    for test in $tests; do command_for "$test" >"$build/mutants/$folder/$(basename "$test").link"; done
    only=''
    red=$(red_tests "$folder" "" "$build/mutants/$folder") || exit 2
    [ -z "$red" ] || die "the tests are red without any mutant:$red"
    file='' only=''
    while IFS= read -r line; do
        case $line in
        '' | '#'*) continue ;;
        '['*']')
            file=${line#?} file=${file%?} only=${file#"${file%% *}"} file=${file%% *}
            continue
            ;;
        esac
        name=${line%% ~ *} rest=${line#* ~ }
        # shellcheck disable=SC2254
        case $name in ${ONLY:-*}) ;; *) continue ;; esac
        where=${rest%% ~ *} rest=${rest#* ~ }
        change=${rest%% ~ *} rest=${rest#* ~ }
        what=${rest%% ~ *} note=${rest#"$what"}
        old=${change%% =>*} new=${change#*=>}
        new=${new# } note=${note#" ~ equivalent: "}
        if [ ! -f "$file" ] || [ -z "$old" ] || [ "$old" = "$change" ]; then die "cannot read: $line"; fi
        run_mutant "$folder" "$file" "$name" "$where" "$old" "$new" "$what" "$note" || exit 2
    done <"$list"
done
echo "$total mutants: $killed killed, $equivalent equivalent, $wrong wrong"
[ $total -gt 0 ] || die "no mutant matches"
[ $wrong -eq 0 ]
