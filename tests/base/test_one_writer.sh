#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files are opened for writing in one place, base/file.c, which does not follow links and makes no name that can be guessed.
# Whatever else in src/ opens a file for writing is in the list below, with its reason.
set -u
cd "$(dirname "$0")/../.." || exit 1

# file: why
allowed="
src/base/file.c: the place
src/base/root.c: files of the kernel (/proc/sys, /sys), which are there, and are never made
src/base/process.c: /dev/null
src/apps/bench/startup.c: /dev/null
src/cli/ranks.c: /dev/null
src/cli/check_measure.c: fdopen of a pipe
src/comm/memory.c: /proc/PID/fd of another rank: its nameless memory, which is there
src/data/tokenize_output.c: fdopen of what base/file.c opened
src/data/output.c: fdopen of a draft of base/file.c
src/record/console.c: fdopen of what base/file.c opened
src/results/store.c: SQLite opens and writes its database itself; links are refused, its journal makes a write whole
"
pattern='O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND|O_TMPFILE|[^a-z_]creat\(|mkstemp|mkostemp|tmpfile|freopen|fopen(at)?\([^;]*, *"[rwa]?[be]*[wa+]|fdopen\([^;]*, *"[rwa]?[be]*[wa+]|json_dump_file|gzopen|sqlite3_open'

found=$(grep -rlE --include='*.c' "$pattern" src | sort)
tests=0 failures=0
for file in $found; do
    tests=$((tests + 1))
    if echo "$allowed" | grep -q "^$file: "; then
        echo "ok $tests - $file"
    else
        failures=$((failures + 1))
        echo "not ok $tests - $file opens a file for writing; base/file.h has functions for it"
        grep -nE "$pattern" "$file" | sed 's/^/# /'
    fi
done
for file in $(echo "$allowed" | sed -n 's/: .*//p'); do
    tests=$((tests + 1))
    if echo "$found" | grep -qx "$file"; then
        echo "ok $tests - $file is still needed in the list"
    else
        failures=$((failures + 1))
        echo "not ok $tests - $file writes no more: take it off the list"
    fi
done
# A signal may cut these short: base/again.c makes the calls again. (Tables of calls have members of such names.)
tests=$((tests + 1))
if grep -rnE --include='*.c' '(^|[^_a-z>.])(fsync|fdatasync|rename|renameat2?)\(' src | grep -v '^src/base/again.c:' | sed 's/^/# /' | grep .; then
    failures=$((failures + 1))
    echo "not ok $tests - the files above flush or rename without base/again.h"
else
    echo "ok $tests - who flushes or renames makes the call again after a signal"
fi
echo "1..$tests"
[ "$failures" -eq 0 ] && [ "$tests" -gt 4 ]
