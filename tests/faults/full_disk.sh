#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command for whose files below FOLDER (an absolute path) the disk has room for BYTES, then none (ENOSPC): of what it
# writes by write() and pwrite(), as checkpoints are written (tests/standins/bad_disk.c). Not for programs with a sanitizer.
#
#   tests/faults/full_disk.sh BYTES FOLDER COMMAND...
set -eu
[ $# -ge 3 ] || { sed -n '3,6s/^#  *//p' "$0" >&2; exit 2; }
bytes=$1 folder=$2
shift 2
library=$(mktemp -d)
trap 'rm -rf "$library"' EXIT
cc -std=gnu11 -O1 -shared -fPIC -o "$library/bad_disk.so" "$(dirname "$0")/../standins/bad_disk.c" -ldl
BAD_DISK_HOW=full BAD_DISK_AT=$bytes BAD_DISK_BELOW=$folder LD_PRELOAD=$library/bad_disk.so "$@"
