#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The configurations of the two MLPerf benchmarks: a dry run and explain plan what can be expressed and name the rest, a run
# refuses, and the numbers are those of the rules.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"

configs=$root/configs/experiments/mlperf
check "there are six platforms" [ "$(find "$configs" -name 'llama*-MI3*.yaml' | wc -l)" -eq 6 ]

# holds FILE LINE...: the dry run of FILE prints each line (extended regular expression).
holds()
{
    holds_file=$1
    shift
    trainmark run "$configs/$holds_file" --dry-run --memory 100TiB
    check "$holds_file: a dry run" [ "$code" -eq 0 ]
    for holds_line; do check "$holds_file: $holds_line" has "$out" "$holds_line"; done
}

for platform in MI350X MI355X; do
    rate=0.0008
    [ $platform = MI350X ] && rate=0.001
    holds "llama31_8b-$platform.yaml" '^  seq_len: 8192 ' '^  steps: 1200000 ' '^  max_norm: 1(\.0)? ' '^  target_loss: 3.3 ' \
        '^  beta2: 0.95 ' '^  eps: 1(\.0)?e-0?5 ' '^  decay: matrices ' '^  form: nemo ' '^  min_lr_factor: 0.1 ' \
        "^  lr: $rate " '^  warmup_steps: 128 ' '^  global_batch_size: 32 ' '^  grad_accumulation: 16 ' '^  freq: 384 ' \
        '^  rope_scaling: llama3 ' '^  vocab_size: 128256 ' '^  init: gpt2 ' \
        '^  recipe: fp8_delayed ' '^# planned without: training with more than one process' \
        '^# planned without: reduction of gradients in bfloat16' '^# data: not read: cannot open .*c4-train'
done
for platform in MI300X MI325X MI350X MI355X; do
    holds "llama2_70b_lora-$platform.yaml" '^  seq_len: 8192 ' '^  steps: 1024 ' '^  max_norm: 0.3 ' '^  target_loss: 0.925 ' \
        '^  lr: 0.0004 ' '^  weight_decay: 0.0001 ' '^  beta2: 0.999 ' '^  warmup_steps: 0 ' '^  global_batch_size: 8 ' \
        '^  average: sequences ' '^  first: 192 ' '^  freq: 48 ' '^  steps: 173 ' \
        "^# planned without: starting from another run's weights" '^  rank: 16 ' '^  recipe: fp8_delayed '
done

trainmark explain "$configs/llama31_8b-MI355X.yaml" --json
check "explain says the same as JSON" has "$out" '"training with more than one process'
check "the model of the rules: 8,030,261,248 parameters" has "$out" '"parameters": 8030261248,'
trainmark explain "$configs/llama2_70b_lora-MI300X.yaml"
check "the model of the rules: 68,976,648,192 parameters" has "$out" "llama2_70B: 68,976,648,192 parameters"
check "explain names what is left out" has "$out" "^without +starting from another run's weights"
kept=$(sed -n 's/^  activations .* \([0-9]*\) B$/\1/p' "$out")
trainmark explain "$configs/llama2_70b_lora-MI325X.yaml"
all=$(sed -n 's/^  activations .* \([0-9]*\) B$/\1/p' "$out")
check "21 blocks computed again keep less" [ "$kept" -lt "$all" ]
for file in llama31_8b-MI350X llama2_70b_lora-MI300X; do
    trainmark run "$configs/$file.yaml" --mlperf.enable true --mlperf.submission_org Example --dry-run --memory 100TiB
    check "$file: a dry run of a logged run" [ "$code" -eq 0 ]
done
trainmark run "$configs/llama31_8b-MI355X.yaml"
failed_with 4 "a run of what is not built" "launch.gpus_per_node" "is not built yet"
check_not "a refused run leaves no folder" [ -e output ]

finish
