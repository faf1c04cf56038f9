#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/link_static.sh OUT COMPILER LIBRARIES OBJECT... - links OUT with the archive of every library that has one, and with
# the shared one of every other; those of glibc stay shared, because programs load further libraries at run time (dlopen).
# Prints what OUT still needs.
set -eu
out=$1 compiler=$2 libraries=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo 'int main(void) { return 0; }' >"$work/try.c"
static= shared=
for library in $libraries -lstdc++ -lgomp; do
    case $library in -lm | -ldl | -lpthread | -lc) shared="$shared $library"; continue ;; esac
    # shellcheck disable=SC2086
    if ${compiler%% *} -o "$work/try" "$work/try.c" -Wl,--whole-archive -Wl,-Bstatic "$library" -Wl,-Bdynamic \
        -Wl,--no-whole-archive -Wl,--unresolved-symbols=ignore-all >/dev/null 2>&1; then
        static="$static $library"
    else
        shared="$shared $library"
    fi
done
# Archives need libraries of their own; what they lack is looked for among the shared ones.
needs=$(pkg-config --static --libs-only-l hwloc 2>/dev/null | tr ' ' '\n' | grep -v -e hwloc -e '^-lm$' | tr '\n' ' ' || :)
# shellcheck disable=SC2086
if ! $compiler -static-libgcc -Wl,--as-needed -o "$out" "$@" -Wl,-Bstatic $static -Wl,-Bdynamic $needs $shared 2>"$work/log"; then
    # An archive that needs what is not installed stays shared: hwloc's is the usual one.
    static=$(echo "$static" | sed 's/-lhwloc//')
    $compiler -static-libgcc -Wl,--as-needed -o "$out" "$@" -Wl,-Bstatic $static -Wl,-Bdynamic -lhwloc $shared
fi
ldd "$out" | sed 's/^[[:space:]]*/needs /; s/ =>.*//; s/ (0x.*//'
