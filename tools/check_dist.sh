#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/check_dist.sh ARCHIVE [GLIBC [BYTES]] - is the archive of `make dist-bin` what it promises?
#
# No more than BYTES (12000000). Its program and modules take no symbol of a glibc newer than GLIBC (2.28), and need no
# library but glibc's; a module needs that of its MPI, too. Exit status 5, with a line for each fault, if it is not.
set -eu
archive=$1 newest=${2:-2.28} most=${3:-12000000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/faults"
fault() { echo "check_dist: $*" | tee -a "$work/faults" >&2; }

tar -C "$work" -xf "$archive"
bytes=$(($(wc -c <"$archive")))
[ "$bytes" -le "$most" ] || fault "$archive has $bytes bytes; at most $most are promised"
find "$work" -name trainmark -path '*/bin/*' >"$work/files"
[ -s "$work/files" ] || fault "$archive has no bin/trainmark"
find "$work" -name '*.so*' -path '*/lib/*' >>"$work/files"
while IFS= read -r file; do
    name=${file#"$work"/*/}
    case $name in *-openmpi.so) mpi='libmpi\.so\..*' ;; *-mpich.so) mpi='libmpich\.so\..*' ;; *) mpi=none ;; esac
    objdump -p "$file" >"$work/needs" || fault "$name is no program"
    objdump -T "$file" >"$work/symbols"
    awk '$1 == "NEEDED" { print $2 }' "$work/needs" >"$work/libraries"
    while IFS= read -r library; do
        echo "$library" | grep -qxE "(libc|libm|libdl|libpthread|librt|ld-linux.*)\.so\.[0-9]|$mpi" || fault "$name needs $library"
    done <"$work/libraries"
    # "... (GLIBC_2.34) name" of a symbol; of the file itself "0x... 0x00 05 GLIBC_2.34". Packed relocations are of 2.36.
    {
        sed -n 's/.*GLIBC_\([A-Z0-9._]*\)[) ]*\([^ ]*\)$/\1 \2/p' "$work/symbols"
        awk '$4 ~ /^GLIBC_/ { sub("GLIBC_", "", $4); print $4, "symbols" }' "$work/needs"
    } | sed 's/^ABI_DT_RELR .*/2.36 relocations/' | sort -u >"$work/versions"
    [ -s "$work/versions" ] || fault "$name takes no symbol of glibc: it was not understood"
    while read -r version symbol; do
        [ "$(printf '%s\n' "$version" "$newest" | sort -V | tail -n 1)" = "$newest" ] ||
            fault "$name takes $symbol of glibc $version; $newest is promised"
    done <"$work/versions"
    # Data of glibc under one name of several: what it sets under another is not seen (tools/older_systems.c).
    readelf -rW "$file" | sed -n 's/.*_COPY .* \([^ ]*\)@.*/\1/p' >"$work/copies"
    while IFS= read -r symbol; do
        case $symbol in
        stdin | stdout | stderr | in6addr_any | in6addr_loopback) ;;
        *) fault "$name has a copy of $symbol of its own" ;;
        esac
    done <"$work/copies"
done <"$work/files"
[ ! -s "$work/faults" ] || exit 5
echo "$archive: $bytes bytes; runs with glibc $newest and newer, and nothing else"
