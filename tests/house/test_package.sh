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
check "a tarball" [ $? -eq 0 ]
mkdir tar
tar -C tar -xzf "$root"/build/trainmark-*-linux-*.tar.gz
for folder in tar/*; do
    check "its program runs" "$folder/bin/trainmark" ops add
    check "its man pages are there" [ -s "$folder/share/man/man1/trainmark.1" ]
    ldd "$folder/bin/trainmark" >needs
    check_not "libraries are inside" has needs "yaml|jansson|pcre|zstd|snappy|sodium|stdc|gomp"
done

finish
