#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# selftest: stages in processes of their own, one file. What fails or is late is told and stops nothing. And ops --check.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
unset TRAINMARK_GPU_RUNTIME TRAINMARK_KERNELS
# of FILE STAGE KEY: a value of a stage.
of() { sed -n "/\"stage\": \"$2\"/,/\"stage\":/s/^ *\"$3\": \"*\([^\",]*\)\"*,*$/\1/p" "$1" | head -n 1; }

trainmark selftest --list
check "the stages" [ "$(grep -c ' s  ' "$out")" -ge 10 ]
says 0 "^experts +ok .* tokens/s, loss [0-9.]+ to [0-9.]+$" selftest --device cpu --only devices,experts,gemm --minutes 60 -o all.json
check "and stand in the file" [ "$(of all.json experts result)/$(of all.json devices exit)" = ok/0 ]
check "a stage for GPUs is left out, and it is said" [ "$(of all.json gemm result) $(of all.json gemm said)" = "skipped for GPUs" ]
says 5 "^experts +late .*longer than 0.04 s$" selftest --device cpu --only experts,devices --minutes 0.01 -o late.json

standins=$(dirname "$TRAINMARK")/tests/standins
if [ -e "$standins/hip.so" ]; then
    TRAINMARK_GPU_RUNTIME="$standins/hip.so" STANDIN_GPU_FAIL=cuModuleLoadData@1=719 TRAINMARK_HIPRTC="$standins/hiprtc.so" \
        trainmark selftest --only devices,experts,llama-8b-width --minutes 60 -o gpu.json
    check "a stage that fails: exit 5" [ "$code" -eq 5 ]
    check "one that wants more memory is left out" has "$out" "^llama-8b-width +skipped .*the device has 4 GB, wanted 75$"
    export TRAINMARK_GPU_RUNTIME="$standins/cuda.so" TRAINMARK_CUBLASLT="$standins/cublaslt.so" TRAINMARK_NVRTC="$standins/nvrtc.so"
    STANDIN_BLAS_WRONG=1 says 5 '' ops --check linear_wgrad --device cuda
    check "is named, with the number" has "$out" "^linear_wgrad +[0-9]+ calls  [0-9]+ WRONG: linear_wgrad/library, example [0-9]+, .*: .* at element .* wanted .* within"
    unset TRAINMARK_GPU_RUNTIME TRAINMARK_CUBLASLT TRAINMARK_NVRTC
fi

says 0 '"wrong": 0' ops --check add --json
says 0 "^initial_values +8 calls  at most 0\.000 of the bound: normal, float32$" ops --check initial_values
says 0 "^square_sum +[0-9]+ calls  at most 0\.[0-9]+ of the bound: square_sum/" ops --check square_sum
finish
