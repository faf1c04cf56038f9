#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/with_less.sh [CPU] - the tests of `make test` as on a machine that has less: instructions up to CPU (base, avx2,
# avx512; avx2), no MPI, neither its programs nor its compiler, and no library for pictures, of a build with all instruction
# sets. What is built already (BUILD, build/release-all) is used.
set -eu
cd "$(dirname "$0")/.."
cpu=${1:-avx2}
from=${BUILD:-build/release-all}
export ISA=all
to=build/less
farm=$PWD/build/less-bin
gone=$PWD/build/less-lib

# Every program of the path but those of an MPI.
rm -rf "$farm" "$gone" "$to"
mkdir -p "$farm" "$gone"
(
    IFS=:
    for folder in $PATH; do
        for program in "$folder"/*; do
            case ${program##*/} in
            *mpi* | orte* | orted | prte* | hydra* | oshmem* | shmem* | opal*) continue ;;
            esac
            [ ! -x "$program" ] || [ -e "$farm/${program##*/}" ] || ln -s "$program" "$farm/"
        done
    done
)
# Empty files stand before the libraries: they are found first, and none can be loaded.
for library in libpng16.so.16 libturbojpeg.so.0 libwebp.so.7 librsvg-2.so.2 libcairo.so.2; do
    : >"$gone/$library"
done
if [ -d "$from" ]; then
    cp -a "$from" "$to"
    rm -f "$to"/trainmark-*.so
fi
TM_TEST_CPU=$cpu PATH=$farm LD_LIBRARY_PATH=$gone make --no-print-directory BUILD="$to" test
