#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/with_less.sh [CPU] - the tests of `make test` as on a machine that has less: instructions up to CPU (base, avx2,
# avx512; avx2) and no MPI, neither its programs nor its compiler, of a build with all instruction sets. What is built already
# (BUILD, build/release-all) is used.
set -eu
cd "$(dirname "$0")/.."
cpu=${1:-avx2}
from=${BUILD:-build/release-all}
export ISA=all
to=build/less
farm=$PWD/build/less-bin

# Every program of the path but those of an MPI.
rm -rf "$farm" "$to"
mkdir -p "$farm"
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
if [ -d "$from" ]; then
    cp -a "$from" "$to"
    rm -f "$to"/trainmark-*.so
fi
TM_TEST_CPU=$cpu PATH=$farm make --no-print-directory BUILD="$to" test
