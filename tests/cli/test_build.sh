#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Makefile: each compiler and each variant has a folder of its own, and a program that another one left does not stand
# in for it. Nothing is built here (make -n).
# shellcheck disable=SC1091,SC2016,SC2154
. "$(dirname "$0")/lib.sh"

dry() { make -C "$root" -n trainmark "$@" >"$out" 2>"$err"; }

dry CC=other
check "another compiler builds, whatever is there" has "$out" "^other .*-o build/release-other/src/cli/main\.o "
check "and links its own program" has "$out" "-o build/release-other/trainmark "
check "to which ./trainmark then points" has "$out" "ln -sf build/release-other/trainmark trainmark"
dry CC=other VARIANT=asan
check "a variant builds with its own flags" has "$out" "^other .*-fsanitize=address.* -o build/asan-other/src/cli/main\.o "

dry CC=other ISA=base
check "a set of instructions has a folder" has "$out" "-o build/release-base-other/trainmark "
check "with kernels of its own" has "$out" "rows\.base\.o"
check_not "and of no other" has "$out" "rows\.avx2\.o"
dry CC=other ISA=all
check "ISA=all has kernels for every machine" [ "$(uname -m)" != x86_64 -o "$(grep -c 'gemm\.[a-z0-9_]*\.o src/device/cpu/simd/gemm.c$' "$out")" -eq 5 ]
dry ISA=avx3
check "another one is refused" has "$err" "ISA=avx3: not one of native, all, base"
dry CC=other V=1
check_not "V=1 shows commands, not files" has "$out" "^echo '  CC"

stamp() { make -C "$root" BUILD="$work/b" COMMIT="$1" "$work/b/commit" >"$out" 2>"$err"; }
stamp one
touch -d '2001-01-01' b/commit
stamp one
check "the same commit: nothing is new" [ -z "$(find b/commit -newermt '2001-01-02')" ]
stamp two
check "another commit: what knows it is compiled again" [ "$(cat b/commit)" = two ]
check "the program's own record depends on it" grep -q '^$(BUILD)/src/system/software.o: $(BUILD)/commit$' "$root/Makefile"
finish
