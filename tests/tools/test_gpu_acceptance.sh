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
check "and by own kernels" has speed/products.jsonl '"kernel": "linear_wgrad/matrix"'
check "and those of bench stream" [ "$(grep -c '"correct": true' speed/memory.json)" -eq 4 ]
check "and in the table of bench gemm" [ "$(grep -c '"correct": true' speed/gemm.json)" -eq 2 ]
check "and all of the log" [ "$(zcat speed/log.txt.gz | grep -c "^== step:.*bin/trainmark run tiny-llama")" -eq 1 ]
accept fine-tuning low
check "low precision and adapters" [ "$code" -eq 0 -a "$(lines low ok)" -eq 3 ]
check "are trained" [ "$(grep -c '"tokens_per_second_per_device"' low/runs.jsonl)" -eq 2 ]
accept families many
check "experts" [ "$code" -eq 0 -a "$(lines many ok)" -eq 2 ]
accept correctness right
check "correctness" [ "$code" -eq 0 ]
check "nine stages" [ "$(lines right ok)" -eq 9 ]
check "one says why it was left out" has right/results.jsonl '"memcheck", "result": "skipped".*compute-sanitizer is not there'
check "an operation and products on the GPU" [ "$(zcat right/log.txt.gz | grep -c '^ok 1 - full: on_hip')" -eq 2 ]
check "the devices" has right/devices.json '"arch": "gfx942"'
STANDIN_GPU_FAIL=cuGraphLaunch@1=719 accept speed broken
check "a call that fails: exit 5" [ "$code" -eq 5 ]
check "of the stage" has broken/results.jsonl '"stage": "step", "result": "failed", "exit": 1, .*hipGraphLaunch'
finish
