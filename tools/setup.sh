#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sees whether this machine can build trainmark, and offers to install what is missing.
#
#   tools/setup.sh [bench|test]      what is wanted; test also needs the test library. Default: bench
#
# Each library is looked for by compiling one line with $CC $EXTRA_CFLAGS $EXTRA_LDFLAGS, so one in another prefix counts.
# Missing ones are named, with the command that installs their Debian or Ubuntu packages. That command is run only by root,
# and after a "y" at the terminal or with ASSUME_YES=1; otherwise it is printed and the exit status is 4. A finding of
# Nobody is asked for an MPI: whoever trains with several ranks is told then what to install (docs/ranks.md).
# "nothing missing" is remembered in build/.setup-*, until the compiler or its flags change.
set -u

want=${1:-bench}
case $want in
bench | test) ;;
*)
    echo "setup: '$want' is not known; wanted: bench or test" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/.." || exit 1
self=tools/setup.sh

compiler=${CC:-cc}
flags="${EXTRA_CFLAGS:-} ${EXTRA_LDFLAGS:-}"
stamp=build/.setup-$want
command_path=$(command -v "${compiler%% *}" 2>/dev/null) || command_path=
state="$compiler $command_path $flags"
if [ -n "$command_path" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$state" ] &&
    [ -z "$(find -H "$self" "$command_path" -newer "$stamp" 2>/dev/null)" ]; then
    exit 0
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# links HEADERS EXPRESSION LIBRARIES: does a program with this expression link? CC and flags may be several words.
links() {
    {
        for header in $1; do echo "#include <$header>"; done
        echo "int main(void) { return ($2) == 0; }"
    } >"$work/try.c"
    # shellcheck disable=SC2086
    $compiler -D_GNU_SOURCE ${EXTRA_CFLAGS:-} -o "$work/try" "$work/try.c" ${EXTRA_LDFLAGS:-} $3 >"$work/log" 2>&1
}

missing=
packages=
lack() { # lack WHAT PACKAGE
    missing="$missing
  $1 (package $2)"
    case " $packages " in *" $2 "*) ;; *) packages="${packages:+$packages }$2" ;; esac
}
# need WHAT PACKAGE HEADERS EXPRESSION LIBRARIES
need() {
    links "$3" "$4" "$5" || lack "$1" "$2"
}

look() {
    missing=
    packages=
    command -v make >/dev/null 2>&1 || lack "make" make
    if ! links stdio.h 'puts("")' ""; then
        lack "a C compiler ('$compiler' does not compile a program)" "$compiler_package"
        lack "the C library's headers" libc6-dev
        compiler_works=no
        # Without a compiler the libraries cannot be tried: their packages are named all together.
        for package in libyaml-dev libjansson-dev libhwloc-dev libxxhash-dev zlib1g-dev libpcre2-dev libutf8proc-dev libzstd-dev \
            libsnappy-dev libsqlite3-dev libsodium-dev; do lack "$package" "$package"; done
        [ "$want" = test ] && lack "libcmocka-dev" libcmocka-dev
        return
    fi
    compiler_works=yes
    need "OpenMP for '$compiler'" "$openmp_package" omp.h 'omp_get_max_threads()' -fopenmp
    # All at once first, one by one only to name the missing: nearly always nothing is.
    cmocka_headers=
    cmocka_library=
    if [ "$want" = test ]; then
        cmocka_headers='stdarg.h stddef.h stdint.h setjmp.h cmocka.h'
        cmocka_library=-lcmocka
    fi
    if links "yaml.h jansson.h hwloc.h xxhash.h zlib.h utf8proc.h zstd.h snappy-c.h sqlite3.h sodium.h pcre2posix.h $cmocka_headers" \
        "!yaml_get_version_string() + !json_null() + hwloc_get_api_version() + XXH3_64bits(\"\", 0) + !zlibVersion() + !utf8proc_version() + ZSTD_versionNumber() + snappy_max_compressed_length(1) + sqlite3_libversion_number() + sodium_library_version_major()" \
        "-lyaml -ljansson -lhwloc -lxxhash -lz -lpcre2-8 -lutf8proc -lzstd -lsnappy -lsqlite3 -lsodium $cmocka_library"; then
        return
    fi
    need "libyaml" libyaml-dev yaml.h '!yaml_get_version_string()' -lyaml
    need "jansson" libjansson-dev jansson.h '!json_null()' -ljansson
    need "hwloc" libhwloc-dev hwloc.h 'hwloc_get_api_version()' -lhwloc
    need "xxHash 0.8 or later" libxxhash-dev xxhash.h 'XXH3_64bits("", 0)' -lxxhash
    need "zlib" zlib1g-dev zlib.h '!zlibVersion()' -lz
    need "PCRE2" libpcre2-dev pcre2posix.h 'REG_NOMATCH' -lpcre2-8
    need "utf8proc" libutf8proc-dev utf8proc.h '!utf8proc_version()' -lutf8proc
    need "zstd" libzstd-dev zstd.h 'ZSTD_versionNumber()' -lzstd
    need "snappy" libsnappy-dev snappy-c.h 'snappy_max_compressed_length(1)' -lsnappy
    need "SQLite" libsqlite3-dev sqlite3.h 'sqlite3_libversion_number()' -lsqlite3
    need "libsodium" libsodium-dev sodium.h 'sodium_library_version_major()' -lsodium
    if [ "$want" = test ]; then
        need "cmocka" libcmocka-dev "$cmocka_headers" '_cmocka_run_group_tests("", 0, 0, 0, 0)' -lcmocka
    fi
}

case $compiler in
*clang*) compiler_package=clang openmp_package=libomp-dev ;;
*) compiler_package=gcc openmp_package=gcc ;;
esac

done_or_continue() {
    [ -z "$missing" ] || return 0
    mkdir -p build && printf '%s\n' "$state" >"$stamp"
    exit 0
}

look
done_or_continue

install="apt-get update && apt-get install -y --no-install-recommends $packages"
echo "setup: missing for 'make $want':$missing" >&2
if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: there is no apt-get here; install them with this system's own tools, then try again" >&2
    exit 4
fi
if [ "$(id -u)" != 0 ]; then
    echo "setup: install them as root (trainmark never calls sudo itself), then try again:" >&2
    echo "  $install" >&2
    exit 4
fi
if [ "${ASSUME_YES:-}" != 1 ]; then
    echo "setup: this command installs them:" >&2
    echo "  $install" >&2
    if [ ! -t 0 ]; then
        echo "setup: no terminal to ask at; run that command, or set ASSUME_YES=1" >&2
        exit 4
    fi
    printf 'setup: run it now? [y/N] ' >&2
    read -r answer || answer=
    case $answer in y | Y | yes | Yes | YES) ;; *) exit 4 ;; esac
fi
# shellcheck disable=SC2086
if ! { DEBIAN_FRONTEND=noninteractive apt-get update && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends $packages; } >&2; then
    echo "setup: apt-get failed; see above" >&2
    exit 4
fi
look
done_or_continue
echo "setup: still missing after the installation:$missing" >&2
[ "$compiler_works" = yes ] && cat "$work/log" >&2
exit 4
