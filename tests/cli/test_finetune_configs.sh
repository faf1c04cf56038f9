#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The experiments of fine-tuning: each plans, with the adapters and the bytes of weights that its recipe has; a run without
# weights or without data refuses by name.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"

configs=$root/configs/experiments/finetune

# plans FILE TRAINED LINE...: the dry run says what is left out, explain how many parameters are trained.
plans()
{
    plans_file=$1 plans_trained=$2
    shift 2
    trainmark run "$configs/$plans_file.yaml" --dry-run --memory 100TiB
    check "$plans_file: a dry run" [ "$code" -eq 0 ]
    check "$plans_file: the weights are named" has "$out" "^not included in this plan: the weights of '/data/model'"
    check "$plans_file: the data is named" has "$out" '^not included in this plan: the data set'
    trainmark run "$configs/$plans_file.yaml" --print-config
    for plans_line; do check "$plans_file: $plans_line" has "$out" "$plans_line"; done
    [ "$plans_trained" = all ] && return
    trainmark explain "$configs/$plans_file.yaml"
    check "$plans_file: $plans_trained parameters are trained" has "$out" "$plans_trained"
}

for size in 3.1_8B 3.1_70B 3.3_70B; do
    plans llama$size-full all '^  lr: (0.00002|2(\.0)?e-0?5) ' '^  regime: pure ' '^  mode: full '
    for kind in lora qlora; do
        format=null
        [ $kind = qlora ] && format=nf4
        trained=195,297,280
        [ $size = 3.1_8B ] && trained=19,660,800
        plans llama$size-$kind $trained '^  lr: 0.0003 ' '^  warmup_steps: 100 ' '^  decay_type: cosine ' "^  base_format: $format "
    done
done
plans llama2_70B-lora 195,297,280 '^  rank: 16 ' '^  alpha: 32'
plans llama2_70B-qlora 195,297,280 '^  base_format: nf4 '
plans llama2_70B-peft 103,546,880 '^  rank: 8 ' '^  grad_accumulation: 4 ' '^  seq_len: 3072 ' '^  dropout: 0.1 '
plans qwen3_8B-full all '^  local_batch_size: 14 ' '^  seq_len: 8192 '
plans qwen3_8B-full-fp8 all '^  recipe: fp8_tensorwise '
plans qwen3_8B-lora 20,348,928 '^  rank: 8 '
plans qwen3_8B-qlora 20,348,928 '^  base_format: nf4 '
plans llama3.1_8B-dpo all '^  lr: 2(\.0)?e-0?5 ' '^  beta: 0.05 ' '^  regime: pure '
plans llama3.1_8B-dpo-lora 19,660,800 '^  lr: 0.0005 ' '^  beta: 0.1 '
check "no file without a row here" [ "$(find "$configs" -name '*_*.yaml' | wc -l)" -eq 18 ]

trainmark run "$configs/qwen3_8B-lora.yaml" --launch.gpus_per_node 1
failed_with 4 "a run without weights" "there is no directory '/data/model'"

finish
