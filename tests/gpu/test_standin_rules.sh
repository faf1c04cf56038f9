#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every rule of the stand-ins for GPU libraries cites a header, a document or what a library was seen to do, or it is in the
# list of those that do not (tests/standins/uncited.txt).
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/../cli/lib.sh"
standins=$here/../standins

# UNCITED of the list against those of the sources; FILES.
compare()
{
    awk -f "$standins/rules.awk" "$@" | awk '$3 == "uncited" { print $1, $2 }' | sort >found
    grep -v '^#' "$standins/uncited.txt" | sed 's/: .*//' | sort >listed
    diff listed found >"$out"
}

check "rules without a source are those of the list" compare "$standins"/gpu*.c "$standins"/blaslt.c "$standins"/cudnn*.c "$standins"/compilers.c
check "there are rules with one" [ "$(awk -f "$standins/rules.awk" "$standins"/gpu*.c "$standins"/blaslt.c | grep -c ' cited$')" -gt 10 ]
grep -v 'CUDA_ERROR_NOT_FOUND' "$standins/gpu_program.c" >gpu_program.c
check_not "a rule that loses its source is noticed" compare "$standins"/gpu.c "$standins"/gpu_device.c gpu_program.c "$standins"/blaslt.c
check "with its name" has "$out" "> gpu_program.c cuModuleGetFunction"
finish
