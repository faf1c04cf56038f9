#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The configurations of the MLPerf benchmarks: a dry run and explain plan what can be expressed and name the rest, a run
# refuses, and the numbers are those of the rules.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

configs=$root/configs/experiments/mlperf
check "there are six platforms of v5.1" [ "$(find "$configs" -name 'llama*-MI3???.yaml' | wc -l)" -eq 6 ]

# holds FILE LINE...: the dry run of FILE prints each line (extended regular expression).
holds()
{
    holds_file=$1
    shift
    trainmark run "$configs/$holds_file" --print-config
    cp "$out" config
    says 0 '' run "$configs/$holds_file" --dry-run --memory 100TiB
    cat config >>"$out"
    for holds_line; do check "$holds_file: $holds_line" has "$out" "$holds_line"; done
}

for platform in MI350X MI355X; do
    rate=0.0008
    [ $platform = MI350X ] && rate=0.001
    holds "llama31_8b-$platform.yaml" '^  seq_len: 8192 ' '^  steps: 1200000 ' '^  max_norm: 1(\.0)? ' '^  target_loss: 3.3 ' \
        '^  beta2: 0.95 ' '^  eps: 1(\.0)?e-0?5 ' '^  decay: matrices ' '^  form: nemo ' '^  min_lr_factor: 0.1 ' \
        "^  lr: $rate " '^  warmup_steps: 128 ' '^  global_batch_size: 32 ' '^  grad_accumulation: 2 ' '^  freq: 384 ' \
        '^  rope_scaling: llama3 ' '^  vocab_size: 128256 ' '^  init: gpt2 ' \
        '^  recipe: fp8_delayed ' ', 8 ranks .dp_shard 8.$' \
        '^  mixed_precision_reduce: bfloat16 ' '^data: not read: cannot open .*c4-train'
done
for platform in MI300X MI325X MI350X MI355X; do
    holds "llama2_70b_lora-$platform.yaml" '^  seq_len: 8192 ' '^  steps: 1024 ' '^  max_norm: 0.3 ' '^  target_loss: 0.925 ' \
        '^  lr: 0.0004 ' '^  weight_decay: 0.0001 ' '^  beta2: 0.999 ' '^  warmup_steps: 0 ' '^  global_batch_size: 8 ' \
        '^  average: sequences ' '^  first: 192 ' '^  freq: 48 ' '^  steps: 173 ' \
        "^not included in this plan: the weights of '/data/model' .model.hf_assets_path, .*: there is no such folder" '^  rank: 16 ' '^  recipe: fp8_delayed '
done

# Round 6.0.
for platform in MI350X MI355X; do
    rate=0.0008
    [ $platform = MI350X ] && rate=0.001
    holds "llama31_8b-$platform-6.0.yaml" "^  lr: $rate " '^  warmup_steps: 64 ' '^  global_batch_size: 32 ' '^  recipe: mxfp4 ' \
        '^  eps: 1(\.0)?e-0?5 '
    holds "llama2_70b_lora-$platform-6.0.yaml" '^  lr: 0.0006 ' '^  steps: 550 ' '^  recipe: mxfp4 ' '^  switch_step: 340 ' \
        '^  switch_recipe: fp8_delayed ' '^  first: 192 ' '^  freq: 48 ' '^  rank: 16 '
done
flux="'^  target_loss: 0.586 ' '^  eps: 1(\.0)?e-0?8 ' '^  beta2: 0.95 ' '^  weight_decay: 0.1 ' '^  max_norm: 1(\.0)? ' '^  flow_protocol: mlperf ' '^  source: latents ' '^data: not read|^# planned without'"
eval "holds flux1-MI325X.yaml $flux '^  global_batch_size: 2048 ' '^  lr: 0.00025 ' '^  warmup_steps: 0 ' '^  freq: 128 ' '^  steps: 928 ' '^  recipe: fp8_delayed '"
eval "holds flux1-MI300X.yaml $flux '^  global_batch_size: 4096 ' '^  lr: 0.0004 ' '^  warmup_steps: 400 ' '^  freq: 64 ' '^  steps: 3712 ' '^  fnuz: true '"
eval "holds flux1-MI355X.yaml $flux '^  global_batch_size: 512 ' '^  lr: 0.0002 ' '^  warmup_steps: 1600 ' '^  freq: 512 ' '^  steps: 464 ' '^  recipe: fp8_tensorwise '"
for file in "reference 16 0.0004 768" "MI355X 32 0.0008 384"; do
    set -- $file
    holds "gpt_oss_20b-$1.yaml" '^  target_loss: 3.34 ' "^  global_batch_size: $2 " "^  lr: $3 " '^  warmup_steps: 128 ' "^  freq: $4 " \
        '^  init_std: 0.008 ' '^  vocab_size: 128256 ' '^  sliding_window: 129 ' '^not included in this plan: excluding ends of documents'
done
for file in gpt_oss_20b-MI355X trainmark_tiny trainmark_tiny_lora trainmark_tiny_flux; do
    trainmark mlperf run "$configs/$file.yaml" --mlperf.submission_org Example --dry-run # whether it fits here or not
    check "mlperf run $file --dry-run" has "$out" "benchmark: ${file%%-*} "
done

says 0 "llama2_70B: 68,976,648,192 parameters" explain "$configs/llama2_70b_lora-MI300X.yaml"
kept=$(sed -n 's/^  activations .* \([0-9]*\) B$/\1/p' "$out")
trainmark explain "$configs/llama2_70b_lora-MI325X.yaml"
all=$(sed -n 's/^  activations .* \([0-9]*\) B$/\1/p' "$out")
check "21 blocks computed again keep less" [ "$kept" -lt "$all" ]
for file in llama31_8b-MI350X llama2_70b_lora-MI300X; do
    says 0 '' run "$configs/$file.yaml" --mlperf.enable true --mlperf.submission_org Example --dry-run --memory 100TiB
done
trainmark run "$configs/flux1-MI325X.yaml"
failed_with 4 "a run of eight nodes on one" "'launch.nnodes' = '8'" "ranks are started with"

finish
