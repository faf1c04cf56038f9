#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/asan_changed.sh [COMMIT] - the unit tests of the rooms that a change touches, under AddressSanitizer and
# UndefinedBehaviorSanitizer, as many as end within ASAN_SECONDS (90, with building); 0: none.
#
# The change is everything since COMMIT. Without one: since this branch left the main one (origin/main, main); on the main
# branch: the commits of the day before the last one, and the last one. Where the history ends before that (a shallow copy),
# or where there is none, every file counts as changed. Tests of changed files come first, then the others of their rooms,
# those changed last before those changed earlier. A change of base/, of tests/support/ or of the Makefile touches every room: the
# others follow, first those that read files of others. Only what the sanitizers say is a failure (tests/run.sh). What is left
# out is named and counted. LIST_ONLY=1 prints the tests, in order.
set -eu
cd "$(dirname "$0")/.."
began=$(date +%s)
seconds=${ASAN_SECONDS:-90}
if [ "$seconds" -eq 0 ]; then
    echo "asan: left out, ASAN_SECONDS is 0"
    exit 0
fi

# The commit before the change; nothing: there is none.
base_of_change()
{
    for main in origin/HEAD origin/main main; do
        left=$(git merge-base HEAD "$main" 2>/dev/null) || continue
        [ "$left" != "$(git rev-parse HEAD)" ] && echo "$left" && return
    done
    yesterday=$(($(git show -s --format=%ct HEAD) - 86400))
    before=$(git rev-list -1 --before="$yesterday" HEAD)
    [ -z "$before" ] || [ "$before" != "$(git rev-parse HEAD)" ] || before=$(git rev-parse -q --verify HEAD~1 || :)
    echo "$before"
}

# Files of the change, those changed last first.
changed_files()
{
    if [ -z "$base" ]; then
        git log --format= --name-only HEAD 2>/dev/null || find src tests -name '*.[ch]' | sort
    else
        git log --format= --name-only "$base..HEAD"
    fi | awk 'NF && !seen[$0]++'
}

if git rev-parse -q --verify HEAD >/dev/null 2>&1; then
    base=${1:-$(base_of_change)}
    [ -z "$base" ] || base=$(git rev-parse --verify "$base^{commit}")
    since=$([ -n "$base" ] && git rev-parse --short "$base" || echo "the beginning")
else
    base='' since="the beginning"
fi
changed=$(changed_files)
rooms=$(echo "$changed" | sed -n 's#^\(src/apps\|src\|tests\)/\([a-z]*\)/.*#\2#p')
if echo "$changed" | grep -qE '^(src/base/|tests/support/|Makefile$)'; then
    rooms="$rooms config data token mlperf $(find src -mindepth 1 -maxdepth 2 -type d | sort | sed 's,.*/,,')"
fi
stems=" $(echo "$changed" | sed -n 's#.*/\(test_\)\{0,1\}\([a-z0-9_]*\)\.[ch]$#\2#p' | tr '\n' ' ')"
first='' others=''
for room in $(echo "$rooms" | tr -s ' ' '\n' | awk 'NF && !seen[$0]++'); do
    for file in tests/"$room"/test_*.c; do
        [ -e "$file" ] || continue
        stem=${file##*/test_}
        case $stems in
        *" ${stem%.c} "*) first="$first build/asan/${file%.c}" ;;
        *) others="$others build/asan/${file%.c}" ;;
        esac
    done
done
tests="$first$others"
if [ -z "$tests" ]; then
    echo "asan: no room with unit tests changed since $since"
    exit 0
fi
if [ -n "${LIST_ONLY:-}" ]; then
    echo "$tests" | tr -s ' ' '\n' | sed '/^$/d'
    exit 0
fi
echo "asan: the tests of what changed since $since: $(echo "$tests" | wc -w) programs"
# Builds a few at a time, for as long as there is time to run them, too.
built='' few='' n=0 unbuilt=0
build_few()
{
    # shellcheck disable=SC2086
    make -s -j"$(nproc)" VARIANT=asan $few build/asan/trainmark
    built="$built $few" few='' n=0
}
for test in $tests; do
    if [ -n "$built" ] && [ "$(date +%s)" -ge $((began + seconds * 2 / 3)) ]; then
        unbuilt=$((unbuilt + 1))
        continue
    fi
    few="$few $test" n=$((n + 1))
    [ "$n" -lt 16 ] || build_few
done
[ -z "$few" ] || build_few
now=$(date +%s)
until=$((began + seconds))
[ "$until" -ge $((now + 60)) ] || until=$((now + 60)) # where building takes all of the time, a minute of tests
echo "asan: built $(echo "$built" | wc -w) programs in $((now - began)) s; left out for time, not built: $unbuilt"
# shellcheck disable=SC2086
TRAINMARK=$PWD/build/asan/trainmark TM_TEST_SECONDS=300 TM_TEST_UNTIL=$until TM_TEST_FINDINGS=1 tests/run.sh $built
