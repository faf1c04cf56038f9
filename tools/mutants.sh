#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/mutants.sh BUILD LIST... - tests the tests: breaks one line at a time on purpose and expects red.
#
# LIST lies beside the tests that must notice (tests/op/mutants.txt: tests/op/test_*.c). Its lines:
#   [src/op/add.c]                                the file that the following lines are about
#   name ~ where ~ old => new ~ what it breaks [~ equivalent: why no test can notice]
# `old` must occur exactly once between the first line that contains `where` and the next line that starts with "}".
# Each mutant is compiled alone and linked before the library, which must be built, as must the tests; nothing in src/
# is touched. Killed: a test fails, crashes or takes longer than TIME_LIMIT. Exit 1 when one survives without a note, or
# dies in spite of one. ONLY=pattern runs some. CC, CFLAGS, LDFLAGS and LDLIBS come from the Makefile: make mutants.
set -u

build=$1
shift
time_limit=${TIME_LIMIT:-60}
total=0 killed=0 equivalent=0 wrong=0

die()
{
    echo "mutants: $*" >&2
    exit 2
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

# Links the tests in folder $1 with object $2 (may be empty) into folder $3 and runs them; prints the red ones.
red_tests()
{
    for source in "$1"/test_*.c; do
        name=$(basename "$source" .c)
        # shellcheck disable=SC2086
        $CC $LDFLAGS -o "$3/$name" "$build/$1/$name.o" $support $2 "$build/libtrainmark.a" -lcmocka $LDLIBS ||
            die "$name does not link"
        timeout "$time_limit" "$3/$name" >"$3/$name.log" 2>&1
        status=$?
        [ $status -eq 124 ] && name="$name(time)"
        if [ $status -ne 0 ]; then printf ' %s' "${name#test_}"; fi
    done
}

run_mutant() # folder of tests, file, name, where, old, new, what, note
{
    work=$build/mutants/$3
    mkdir -p "$work"
    copy=$work/$(basename "$2")
    mutate "$2" "$4" "$5" "$6" >"$copy" || die "$3: '$5' is not there exactly once in $2 from '$4' on"
    # shellcheck disable=SC2086
    $CC $CFLAGS -O1 -w -c -o "$work/mutant.o" "$copy" || die "$3 does not compile"
    red=$(red_tests "$1" "$work/mutant.o" "$work") || exit 2
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

support=$(ls "$build"/tests/support/*.o 2>/dev/null)
for list in "$@"; do
    folder=$(dirname "$list")
    mkdir -p "$build/mutants/none"
    red=$(red_tests "$folder" "" "$build/mutants/none") || exit 2
    [ -z "$red" ] || die "the tests are red without any mutant:$red"
    file=
    while IFS= read -r line; do
        case $line in
        '' | '#'*) continue ;;
        '['*']') file=${line#?} file=${file%?} && continue ;;
        esac
        name=${line%% ~ *} rest=${line#* ~ }
        case $name in ${ONLY:-*}) ;; *) continue ;; esac
        where=${rest%% ~ *} rest=${rest#* ~ }
        change=${rest%% ~ *} rest=${rest#* ~ }
        what=${rest%% ~ *} note=${rest#"$what"}
        old=${change%% =>*} new=${change#*=>}
        new=${new# } note=${note#" ~ equivalent: "}
        [ -f "$file" ] && [ -n "$old" ] && [ "$old" != "$change" ] || die "cannot read: $line"
        run_mutant "$folder" "$file" "$name" "$where" "$old" "$new" "$what" "$note" || exit 2
    done <"$list"
done
echo "$total mutants: $killed killed, $equivalent equivalent, $wrong wrong"
[ $total -gt 0 ] || die "no mutant matches"
[ $wrong -eq 0 ]
