#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What every test runs with: it fails where files stay open or mapped (tests/support/leftovers.c).
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/../cli/lib.sh"

# program STATEMENTS: builds and runs them; sets $code.
program()
{
    printf '%s\n' '#include <fcntl.h>' '#include <stdlib.h>' '#include <sys/mman.h>' '#include <sys/wait.h>' '#include <unistd.h>' \
        'void test_leftovers_begin(void);' 'int main(void)' '{' '    test_leftovers_begin();' "    int fd = open(\"held\", O_RDWR);" "    $1" '    return 0;' '}' >program.c
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -I"$root/tests" -I"$root/src" -o program program.c "$root/tests/support/leftovers.c" || return 1
    code=0
    ./program >"$out" 2>"$err" || code=$?
}
echo text >held
program 'close(fd);'
check "what is closed is fine" [ "$code" -eq 0 -a ! -s "$err" ]
program ''
failed_with 1 "an open file fails" "left open: .*/held"
program 'int ends[2]; close(fd); if (pipe(ends)) return 2;'
failed_with 1 "so does a pipe" "left open: pipe:"
program 'void *p = mmap(NULL, 5, PROT_READ, MAP_PRIVATE, fd, 0); close(fd); if (p == MAP_FAILED) return 2;'
failed_with 1 "and a mapped file" "left mapped: .*/held"
program 'void *p = mmap(NULL, 5, PROT_READ, MAP_PRIVATE, fd, 0); close(fd); munmap(p, 5);'
check "not one that was unmapped" [ "$code" -eq 0 ]
program 'return 7;'
check "a program that failed keeps its status" [ "$code" -eq 7 -a ! -s "$err" ]
program 'int status; if (fork() == 0) exit(0); wait(&status); close(fd); return status != 0;'
check "children are not judged" [ "$code" -eq 0 ]
exec 7<held
program 'close(fd);'
check "nor what was open before" [ "$code" -eq 0 ]
finish
