#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/asan_changed.sh [COMMIT] - the unit tests of the rooms that changed since COMMIT (default: where this branch left
# origin/main, else the commit before), under AddressSanitizer and UndefinedBehaviorSanitizer. A change of base/, of
# tests/support/ or of the Makefile touches every room: then the rooms that read files of others are tested, and `make asan`
# tests all. LIST_ONLY=1 prints the tests instead.
set -eu
cd "$(dirname "$0")/.."
base=${1:-$(git merge-base HEAD origin/main 2>/dev/null || :)}
[ -n "$base" ] && [ "$base" != "$(git rev-parse HEAD)" ] || base=$(git rev-parse HEAD~1)
changed=$(git diff --name-only "$base" HEAD)
rooms=$(echo "$changed" | sed -n 's,^\(src\|tests\)/\([a-z]*\)/.*,\2,p' | sort -u)
for room in $rooms; do
    case $room in base | support) rooms="$rooms config data token mlperf" ;; esac
done
echo "$changed" | grep -qx Makefile && rooms="$rooms config data token mlperf"
tests=
for room in $(echo "$rooms" | tr ' ' '\n' | sort -u); do
    for file in tests/"$room"/test_*.c; do [ -e "$file" ] && tests="$tests build/asan/${file%.c}"; done
done
if [ -z "$tests" ]; then
    echo "asan: no room with unit tests changed since $(git rev-parse --short "$base")"
    exit 0
fi
[ -n "${LIST_ONLY:-}" ] && echo "$tests" && exit 0
# shellcheck disable=SC2086
make -s -j"$(nproc)" VARIANT=asan $tests
# shellcheck disable=SC2086
TM_TEST_SECONDS=600 tests/run.sh $tests
