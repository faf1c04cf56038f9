#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/link_static.sh program OUT COMPILER LIBRARIES OBJECT...   with the archive of every library but those of glibc
# tools/link_static.sh module OUT MPICC SOURCE FLAGS...           a module, with the shared library of its MPI
#
# What they need of glibc is no newer than GLIBC (2.28; environment): zig links, which knows the symbols of every release.
# Objects are compiled by COMPILER and MPICC. glibc stays shared, because programs load further libraries at run time
# (dlopen). ZIG is the command; default: that which tools/kernel_compilers.sh installs.
set -eu
cd "$(dirname "$0")/.."
what=$1 out=$2 compiler=$3
shift 3
zig=${ZIG:-build/venv/bin/python -m ziglang}
target=$(uname -m)-linux-gnu.${GLIBC:-2.28}

fail()
{
    echo "link_static: $*" >&2
    exit 4
}

# shellcheck disable=SC2086
$zig version >/dev/null 2>&1 || fail "no zig to link with for every glibc from ${GLIBC:-2.28} on ('$zig' does not run);" \
    "run tools/kernel_compilers.sh, which installs it in build/venv, or name yours: ZIG='zig'"
work=$(dirname "$out")
mkdir -p "$work"

# archive_of LIBRARY: its path.
archive_of()
{
    path=$($compiler -print-file-name="lib${1#-l}.a")
    [ -f "$path" ] || fail "there is no archive lib${1#-l}.a: its library's development package has it (Debian: lib...-dev)"
    echo "$path"
}

case $what in
program)
    libraries=$1
    shift
    archives=
    for library in $libraries -lgomp -lstdc++ -lgcc; do
        case $library in -lm | -ldl) continue ;; esac
        archive=$(archive_of "$library")
        archives="$archives $archive"
    done
    $compiler -O2 -c -o "$work/older_systems.o" tools/older_systems.c
    # Exceptions of C++ are unwound by zig's library: that of gcc asks glibc 2.35.
    # shellcheck disable=SC2086
    $zig cc -target "$target" -pie -Wl,--gc-sections -s -o "$out" "$@" "$work/older_systems.o" \
        -Wl,--start-group $archives -Wl,--end-group -lunwind -lm -ldl -lpthread
    ;;
module)
    "$compiler" "$@" -fPIC -c -o "$out.o"
    # What it links with, in the words of Open MPI or MPICH: the folder and the name of the library.
    words=$("$compiler" --showme:link 2>/dev/null || "$compiler" -link_info)
    mpi=$(for word in $words; do case $word in -L* | -lmpi | -lmpich) echo "$word" ;; esac; done)
    # shellcheck disable=SC2086
    $zig cc -target "$target" -s -shared -o "$out" "$out.o" $mpi -lpthread
    ;;
*) fail "'$what' is neither program nor module" ;;
esac
