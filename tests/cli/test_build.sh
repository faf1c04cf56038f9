#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Makefile: each compiler and each variant has a folder of its own, and a program that another one left does not stand
# in for it. Nothing is built here (make -n), but a small program: what the archive of `make dist-bin` promises is looked at.
# shellcheck disable=SC1091,SC2016,SC2154
. "$(dirname "$0")/lib.sh"

dry() { make -C "$root" -n trainmark "$@" >"$out" 2>"$err"; }

dry CC=other
check "another compiler builds, whatever is there" has "$out" "^other .*-o build/release-other/src/cli/main\.o "
dry CC=other VARIANT=asan
check "a variant builds with its own flags" has "$out" "^other .*-fsanitize=address.* -o build/asan-other/src/cli/main\.o "

dry CC=other ISA=base
check "a set of instructions has a folder" has "$out" "-o build/release-base-other/trainmark "
dry ISA=avx3
check "another one is refused" has "$err" "ISA=avx3: not one of native, all, base"

stamp() { make -C "$root" BUILD="$work/b" COMMIT="$1" "$work/b/commit" >"$out" 2>"$err"; }
stamp one
touch -d '2001-01-01' b/commit
stamp one
check "the same commit: nothing is new" [ -z "$(find b/commit -newermt '2001-01-02')" ]
stamp two
check "another commit: what knows it is compiled again" [ "$(cat b/commit)" = two ]
check "the program's own record depends on it" grep -q '^$(BUILD)/src/system/software.o: $(BUILD)/commit$' "$root/Makefile"

# --- what make dist-bin promises (tools/check_dist.sh, tools/link_static.sh) ------------------------------------------------

# archive FLAG...: one with a small program that is linked so.
archive()
{
    mkdir -p archive/trainmark/bin
    ${CC:-cc} -o archive/trainmark/bin/trainmark small.c -Wl,--no-as-needed "$@" && tar -C archive -cf small.tar trainmark
}
# judge GLIBC BYTES: $code, $out and $err of tools/check_dist.sh.
judge()
{
    "$root/tools/check_dist.sh" small.tar "$@" >"$out" 2>"$err"
    code=$?
}
echo '#include <stdio.h>
int main(void) { return puts("small") == 0; }' >small.c
archive -lm
judge 99 1000000
check "an archive that keeps its promises" [ $code -eq 0 ]
judge 2.1 1000000
check "not one that takes what is newer than promised" [ $code -eq 5 ]
judge 99 1000
check "nor a large one" [ "$code$(grep -c 'has [0-9]* bytes; at most 1000 ' "$err")" = 51 ]
archive -lz
judge 99 1000000
check "nor one that needs a library" [ "$code$(cat "$err")" = "5check_dist: bin/trainmark needs libz.so.1" ]
mkdir archive/trainmark/lib
cp archive/trainmark/bin/trainmark archive/trainmark/lib/trainmark-mpich.so
archive -lm
judge 99 1000000
check "nor a module that needs another than its MPI's" [ "$code$(cat "$err")" = "5check_dist: lib/trainmark-mpich.so needs libz.so.1" ]
ZIG=/nonexistent "$root/tools/link_static.sh" program "$work/linked" cc "" >"$out" 2>"$err"
check "without zig nothing is linked" [ "$?$(find . -name linked)" = 4 ]
finish
