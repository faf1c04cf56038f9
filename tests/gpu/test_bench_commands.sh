#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench attention, mlp and startup with --device cuda and hip, over stand-ins that execute the kernels' machine code: right
# results, by the device's clock, and what is wrong is found.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/standins.sh"

value() { sed -n "s/^ *\"$1\": \"*\([^\",]*\)\"*,*$/\1/p" "$out" | head -n 1; }
once="--rep-ms 1 --warmup-ms 0 --precision 0 --store none --json"

for device in cuda hip; do
    TRAINMARK_GPU_RUNTIME="$standins/$device.so"
    export TRAINMARK_GPU_RUNTIME
    trainmark bench attention --device $device --dtype bfloat16 --seq 40 --heads 4 --kv-heads 2 --cache warm $once
    ! has_no_compiler "$device" || continue
    check "attention on $device" [ "$code/$(value correct)" = 0/true ]
    case $device in cuda) by=wgmma ;; *) by=matrix ;; esac
    check "by matrix units, timed both ways" [ "$(value backend)/$(value fwd_time | grep -c '[0-9]')$(value bwd_time | grep -c '[0-9]')" = attention/$by/11 ]
    trainmark bench mlp --device $device --dims 16-32-16 --batch 4 --iterations 3 --store none --json
    check "a perceptron on $device" [ "$code/$(value correct)" = 0/true ]
done
trainmark bench attention --device hip --seq 24 --heads 1 $once
check "operands that rotate through the GPU's cache" [ "$code/$(value correct)/$(value cache)" = 0/true/cold ]
STANDIN_BLAS_WRONG=1 trainmark bench mlp --device hip --dims 16-32-16 --batch 4 --iterations 1 --store none
failed_with 3 "a wrong product is found" "wrong"
trainmark bench startup --device hip --model tiny-llama --runs 1 --cache warm --store none --json \
    "--arguments=model.n_layers=1 model.dim=32 model.n_heads=2 model.n_kv_heads=1 model.ffn_dim=32 model.vocab_size=64 training.seq_len=16"
check "a start" [ "$code" -eq 0 -a -n "$(value first_step_s)" ]
trainmark bench stream --device hip --elements 5003 --repetitions 2 $once
check "the memory of a GPU, by its driver and by kernels" [ "$code/$(grep -c '"correct": true' "$out")" = 0/4 ]
check "whose they are" [ "$(sed -n 's/^ *"by": "\(.*\)",*$/\1/p' "$out" | tr '\n' ' ')" = "driver scale/gpu add/gpu square_sum/gpu " ]
check "small arrays are not taken for memory" has "$out" "smaller than four times the last cache"
trainmark bench collectives --device hip
failed_with 2 "a bench that is for CPUs" "on GPUs run: .*attention"
finish
