# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# Scripts whose GPUs are stand-ins that execute the kernels' machine code (tests/standins): they source this in the place of
# tests/cli/lib.sh. `on cuda` or `on hip` says which; compiled kernels are kept in a folder of the test.
. "$(dirname "$0")/../cli/lib.sh"

standins=$(dirname "$TRAINMARK")/tests/standins
unset TRAINMARK_GPU_RUNTIME TRAINMARK_KERNELS TRAINMARK_NVML
if ! [ -e "$standins/hip.so" ]; then
    skip "GPUs" "$standins/hip.so is not supported"
    finish
fi
export TRAINMARK_NVRTC="$standins/nvrtc.so" TRAINMARK_HIPRTC="$standins/hiprtc.so"
export TRAINMARK_CUBLASLT="$standins/cublaslt.so" TRAINMARK_HIPBLASLT="$standins/hipblaslt.so"
mkdir kernels && chmod 700 kernels
export TRAINMARK_KERNELS="$work/kernels"
on() { TRAINMARK_GPU_RUNTIME="$standins/$1.so"; export TRAINMARK_GPU_RUNTIME; }
# Of FOLDER's result a member; of its step N the loss.
value_of() { sed -n "s/^ *\"$2\": \"*\([^\",]*\).*/\1/p" "$1/result.json" | head -n 1; }
loss_of() { sed -n "s/^{\"step\": $2, \"loss\": \([^,]*\),.*/\1/p" "$1/metrics.jsonl"; }

# NAME: skipped, as the last command found no compiler of kernels.
has_no_compiler()
{
    [ "$code" -eq 1 ] && grep -q "cannot compile" "$err" && [ "${TM_TEST_COMPILERS:-}" != required ] || return 1
    skip "$1" "no compiler of kernels (tools/kernel_compilers.sh)"
}
