#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Which tests a change gets under the sanitizers, and that what no time is left for is named.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/../cli/lib.sh"
unset ASAN_SECONDS LIST_ONLY

if ! command -v git >/dev/null; then
    skip "the tests of a change" "git is not installed"
    finish
fi

commit() { git -c user.name=t -c user.email=t@example.org commit -qm "$1" --date "$2"; }
# change DATE FILE...: one commit.
change()
{
    date=$1
    shift
    for file; do
        mkdir -p "$(dirname "$file")"
        date +%N >>"$file"
    done
    git add .
    GIT_COMMITTER_DATE=$date commit "change" "$date"
}
# listed WORDS...: the tests, without their folder, in one line.
listed() { (cd "${tree:-.}" && LIST_ONLY=1 tools/asan_changed.sh "$@" 2>&1) | sed 's,.*/tests/,,' | tr '\n' ' '; }
is() { check "$1" [ "$2" = "$3" ]; }

mkdir -p tools tests
cp "$root/tools/asan_changed.sh" tools
cp "$root/tests/run.sh" tests
git init -q -b main .
change 2026-01-01T00:00:00Z src/a/one.c src/b/two.c src/c/x.c src/base/x.h tests/a/test_one.c tests/a/test_all.c tests/b/test_two.c
is "one commit: everything" "$(listed | wc -w)" 3
change 2026-01-02T01:00:00Z src/b/two.c
is "a day later: the last commit" "$(listed)" "b/test_two "
change 2026-01-02T02:00:00Z src/a/one.c docs/x.md
is "commits of a day, the last first, the tests of changed files before others" "$(listed)" "a/test_one b/test_two a/test_all "
change 2026-01-03T03:00:00Z src/c/x.c
change 2026-01-03T03:30:00Z src/apps/b/x.c
is "a room of apps" "$(listed HEAD~1)" "b/test_two "
git checkout -q -b side
change 2026-01-03T04:00:00Z src/b/two.c
change 2026-01-05T04:00:00Z src/c/x.c
is "a branch: since it left the main one" "$(listed)" "b/test_two "
change 2026-01-05T05:00:00Z src/base/x.h
is "what all include: every room, the changed ones first" "$(listed)" "b/test_two a/test_all a/test_one "
git clone -q --depth 1 "file://$work" shallow
is "a shallow copy: everything" "$(tree=shallow && cd shallow && LIST_ONLY=1 tools/asan_changed.sh | wc -l)" 3
cp -r shallow plain
rm -rf plain/.git
is "no history: everything" "$(cd plain && GIT_CEILING_DIRECTORIES=$work LIST_ONLY=1 tools/asan_changed.sh | wc -l)" 3
is "no time: it says so" "$(ASAN_SECONDS=0 tools/asan_changed.sh)" "asan: left out, ASAN_SECONDS is 0"
check_not "no such commit" sh -c 'tools/asan_changed.sh nothing 2>/dev/null'

for name in good bad; do
    printf '#!/bin/sh\necho "1..1"\necho "ok 1"\n' >"$name"
done
sed -i 's/ok 1/not ok 1/' bad
chmod +x good bad
TM_TEST_UNTIL=$(($(date +%s) - 1)) tests/run.sh ./good ./bad >late.txt
is "nothing executed is a failure" $? 1
check "programs left out are named" [ "$(grep -c '^left out: ' late.txt)" -eq 2 ]
check "and counted" has late.txt "^2 of 2 test programs were left out"
printf '#!/bin/sh\nsleep 20\n' >slow
chmod +x slow
TM_TEST_UNTIL=$(($(date +%s) + 2)) tests/run.sh ./good ./slow >late.txt
is "what does not end in time is no failure" $? 0
check "but named" has late.txt "^left out: ./slow, no time to end"
check "and counted, too" has late.txt "^1 of 2 test programs were left out"
TM_TEST_UNTIL=$(($(date +%s) + 60)) tests/run.sh ./good >soon.txt
is "what has time is run" "$? $(tail -n 1 soon.txt)" "0 1 passed, 0 failed, 0 skipped"

printf '#!/bin/sh\necho "1..1"\necho "a.c:1:2: runtime error: division by zero"\nexit 1\n' >found
printf '#!/bin/sh\necho "1..1"\necho "not ok 1"\necho "ERROR: LeakSanitizer: detected memory leaks"\nexit 1\n' >failed
printf '#!/bin/sh\necho "1..1"\necho "ok 1"\necho "ERROR: LeakSanitizer: detected memory leaks"\nexit 1\n' >leaks
chmod +x found failed leaks
TM_TEST_FINDINGS=1 tests/run.sh ./good ./found >under.txt
is "a finding is a failure" "$? $(tail -n 1 under.txt)" "1 1 passed, 1 failed, 0 skipped"
TM_TEST_FINDINGS=1 tests/run.sh ./good ./leaks >under.txt
is "a leak is, too" "$? $(tail -n 1 under.txt)" "1 2 passed, 1 failed, 0 skipped"
TM_TEST_FINDINGS=1 tests/run.sh ./good ./failed ./bad >under.txt
is "what failed otherwise is none" "$? $(tail -n 1 under.txt)" "0 1 passed, 0 failed, 0 skipped"
check "but named" has under.txt "^left out: ./failed, failed without a finding"
tests/run.sh ./good ./failed >under.txt
is "a failed test is a failure elsewhere" $? 1

finish
