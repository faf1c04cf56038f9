#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make` alone builds the program: a rule above `all` would take its place, and then little is built, without a word.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/../cli/lib.sh"

(make -C "$root" --no-print-directory -nB >"$out" 2>"$err") || true
check "make alone builds the program" grep -q -- "-o build/[a-z-]*/trainmark " "$out"
finish
