#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Debian package, which lintian accepts, and the tarball with libraries inside, both unpacked and run.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/../cli/lib.sh"
root=$(cd "$here/../.." && pwd)

# Packages have judged kernels inside, or are not supported; where nothing was judged the other parts are tried without.
kernels=embedded
if ! "$root/tools/embed_kernels.py" judged 2>/dev/null; then
    kernels=none
    make -s -C "$root" dist-bin >"$out" 2>"$err"
    check "no package with kernels that were not judged" [ $? -ne 0 ]
    check "says how they are" has "$err" "make judge-kernels|tools/kernel_compilers.sh"
fi

if command -v dpkg-shlibdeps >/dev/null; then
    make -s -C "$root" deb KERNELS=$kernels >"$out" 2>"$err"
    check "make deb: a Debian package, without complaints of lintian" [ $? -eq 0 ]
    package=$root/$(grep -o 'build/trainmark_.*\.deb$' "$out" | head -n 1)
    command -v lintian >/dev/null || skip "lintian" "SKIPPED, it is not installed"
    dpkg-deb -x "$package" unpacked
    check "its program runs" unpacked/usr/bin/trainmark ops add
    dpkg-deb -f "$package" Depends >depends
    check "it depends on the libraries of the program" has depends "libyaml-0-2.*"
    check "it has the version of the program" [ "trainmark $(dpkg-deb -f "$package" Version)" = \
        "$(unpacked/usr/bin/trainmark version | head -n 1 | cut -d ' ' -f 1,2)" ]
else
    skip "make deb: a Debian package" "dpkg-dev is not installed"
fi

make -s -C "$root" dist-bin KERNELS=$kernels >"$out" 2>"$err"
code=$?
if has "$err" "no zig to link with"; then
    check "without zig there is no archive; says how to get it" has "$err" "tools/kernel_compilers.sh"
    skip "make dist-bin: an archive for every Linux" "zig is not installed"
    finish
fi
check "an archive that keeps its promises (tools/check_dist.sh)" [ $code -eq 0 ]
check "says so" has "$out" "tar.xz: [0-9]+ bytes; runs with glibc 2.28 and newer, and nothing else"
mkdir tar
tar -C tar -xf "$root/$(grep -o '^build/trainmark-.*tar.xz' "$out")"
for folder in tar/*; do
    "$folder/install.sh" "$work/prefix" >"$out" 2>"$err"
    check "it installs" [ $? -eq 0 ]
    check "its program runs" prefix/bin/trainmark ops add
    check "its man pages are there" [ -s prefix/share/man/man1/trainmark.1 ]
    prefix/bin/trainmark run tiny-llama --training.steps 3 --isa base --out linked >"$out" 2>"$err"
    "$TRAINMARK" run tiny-llama --training.steps 3 --isa base --out built >"$out" 2>"$err"
    check "it leaves the same weights" [ "$(grep -o '"weights_hash": "[0-9a-f]*"' linked/result.json)" = \
        "$(grep -o '"weights_hash": "[0-9a-f]*"' built/result.json)" ]
done

finish
