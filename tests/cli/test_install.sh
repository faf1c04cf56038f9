#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make install` puts where, and `make uninstall` takes away; man pages without complaints.
# shellcheck disable=SC1091,SC2016,SC2154
. "$(dirname "$0")/lib.sh"

# --- install and uninstall ------------------------------------------------------------------------------------------------

mkdir -p root/usr/share/man/man1 root/usr/bin
echo theirs >root/usr/share/man/man1/other.1
"$root/tools/install.sh" install "$TRAINMARK" "$work/root" /usr >"$out" 2>"$err"
check "it installs" [ "$?$(wc -c <"$err")" = 00 ]
"$work/root/usr/bin/trainmark" models >"$out"
check "the program runs from there" has "$out" "^llama3.1_8B "
for file in share/man/man1/trainmark.1 share/man/man1/trainmark-mlperf-check.1 share/man/man1/trainmark-bench-gemm.1 \
    share/bash-completion/completions/trainmark share/zsh/site-functions/_trainmark share/doc/trainmark/LICENSE \
    share/doc/trainmark/docs/architecture.md share/trainmark/configs/experiments/llama3.1_8B-mock.yaml; do
    check "$file" [ -s "root/usr/$file" ]
done
"$root/tools/install.sh" install "$TRAINMARK" "$work/root" /usr
"$root/tools/install.sh" uninstall "$work/root" /usr
check "uninstalled, nothing of it is left" [ "$(find root -type f)" = root/usr/share/man/man1/other.1 ]
check "nor folders of its own" [ -z "$(find root -name '*trainmark*')" ]
"$root/tools/install.sh" uninstall "$work/root" /usr >"$out" 2>"$err"
check "twice is an error" [ $? -eq 4 ]

# --- from an archive of make dist-bin -------------------------------------------------------------------------------------

"$root/tools/install.sh" install "$TRAINMARK" "$work/unpacked" ""
cp "$root/tools/install.sh" unpacked/install.sh
find unpacked -type f -exec cksum {} + >before
(cd / && "$work/unpacked/install.sh" "$work/prefix") >"$out" 2>"$err"
check "an unpacked archive installs itself" [ "$?$(wc -c <"$err")" = 00 ]
check "says where" has "$out" "^installed: $work/prefix/bin/trainmark$"
check "all of it" [ "$(diff -r unpacked prefix)" = "Only in unpacked: install.sh" ]
prefix/bin/trainmark models >"$out"
check "its program runs" has "$out" "^llama3.1_8B "
unpacked/install.sh "$work/unpacked" >"$out" 2>"$err"
check "not where it was unpacked" [ $? -eq 4 ]
find unpacked -type f -exec cksum {} + >after
check "what was unpacked is as it was" diff before after
unpacked/install.sh uninstall "$work/prefix"
check "uninstalled, nothing of it is left" [ -z "$(find prefix -type f)" ]

# --- man pages ------------------------------------------------------------------------------------------------------------

trainmark manual man
if command -v mandoc >/dev/null; then
    check "mandoc has no complaint" mandoc -T lint -W warning man/*.1
else
    skip "mandoc has no complaint" "mandoc is not installed"
fi

finish
