#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Debian package, which lintian accepts, and the tarball with libraries inside, both unpacked and run.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/../cli/lib.sh"
root=$(cd "$here/../.." && pwd)

if command -v dpkg-shlibdeps >/dev/null; then
    "$root/tools/make_deb.sh" "$TRAINMARK" 0.0.1 "$work/deb" >"$out" 2>"$err"
    check "a Debian package, without complaints of lintian" [ $? -eq 0 ]
    command -v lintian >/dev/null || skip "lintian" "SKIPPED, it is not installed"
    dpkg-deb -x "$work"/deb/trainmark_0.0.1_*.deb unpacked
    check "its program runs" unpacked/usr/bin/trainmark ops add
    dpkg-deb -f "$work"/deb/trainmark_0.0.1_*.deb Depends >depends
    check "it depends on the libraries of the program" has depends "libyaml-0-2.*"
else
    skip "a Debian package" "dpkg-dev is not installed"
fi

make -s -C "$root" dist-bin >"$out" 2>"$err"
check "a tarball" [ $? -eq 0 ]
mkdir tar
tar -C tar -xzf "$root"/build/trainmark-*-linux-*.tar.gz
for folder in tar/*; do
    check "its program runs" "$folder/bin/trainmark" ops add
    check "its man pages are there" [ -s "$folder/share/man/man1/trainmark.1" ]
    ldd "$folder/bin/trainmark" >needs
    check_not "libraries are inside" has needs "yaml|jansson|pcre|zstd|snappy|stdc|gomp"
done

finish
