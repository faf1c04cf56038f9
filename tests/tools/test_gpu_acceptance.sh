#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/gpu_acceptance.sh over libraries that stand in for a GPU's: what travels is enough, every stage is told, and a stage that
# fails neither stops the next one nor is forgotten.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/../cli/lib.sh"

built=$(dirname "$TRAINMARK")
if ! [ -e "$built/tests/gpu/all" ]; then
    skip "the acceptance run" "$built/tests/gpu/all is not supported"
    finish
fi
lines() { grep -c "\"result\": \"$2\"" "$1/results.jsonl"; }
accept() { code=0; bundle/tools/gpu_acceptance.sh "$@" >"$out" 2>"$err" || code=$?; }

ACCEPT_BUILT=$built "$root/tools/gpu_acceptance.sh" bundle "$work/bundle" >"$out"
check "what travels is small" [ "$(du -sm bundle | cut -f 1)" -lt 60 ]
accept
check "no command: exit 2" [ "$code" -eq 2 ]
check "and the usage" has "$err" "gpu_acceptance.sh correctness OUT"
TRAINMARK_GPU_RUNTIME=/nowhere/libcuda.so.1 accept speed none
check "no GPU: exit 4" [ "$code" -eq 4 ]
check "and what is missing" has "$err" "^cuda .*install NVIDIA's driver"

export ACCEPT_STANDINS="$built/tests/standins" ACCEPT_DEVICE=hip
TRAINMARK_KERNELS=$built/tests/kernels
mkdir -p "$TRAINMARK_KERNELS" && chmod 700 "$TRAINMARK_KERNELS"
export TRAINMARK_KERNELS
accept speed speed
if [ "$code" -eq 5 ] && zcat speed/log.txt.gz | grep -q "cannot compile" && [ "${TM_TEST_COMPILERS:-}" != required ]; then
    skip "stages" "no compiler of kernels (tools/kernel_compilers.sh)"
    finish
fi
check "speed" [ "$code" -eq 0 ]
check "a training's result comes back" has speed/runs.jsonl '^."run": "step", "result": .*"tokens_per_second_per_device"'
check "products have a rate by library" has speed/products.jsonl '"format": "bfloat16", "kernel": "linear_wgrad/library", .*"tflops": '
check "and those of bench stream" [ "$(grep -c '"correct": true' speed/memory.json)" -eq 4 ]
accept fine-tuning low
check "low precision and adapters" [ "$code" -eq 0 -a "$(lines low ok)" -eq 5 ]
accept correctness right
check "correctness" [ "$code" -eq 0 ]
check "ten stages" [ "$(lines right ok)" -eq 10 ]
check "an operation, products and a training on the GPU" [ "$(zcat right/log.txt.gz | grep -c '^ok 1 - .*on_hip')" -eq 3 ]
STANDIN_GPU_FAIL=cuGraphLaunch@1=719 accept speed broken
check "a call that fails: exit 5" [ "$code" -eq 5 ]
check "of the stage" has broken/results.jsonl '"stage": "step", "result": "failed", "exit": 1, .*hipGraphLaunch'
finish
