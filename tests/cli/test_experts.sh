#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The families with experts train: the loss falls, weights do not depend on threads, the load is reported.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

sizes="--model.n_layers 2 --model.dim 64 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 96 --model.n_experts 8
    --model.n_experts_per_token 2 --model.moe_ffn_dim 48 --training.seq_len 64 --training.local_batch_size 4"
latent="--model.n_kv_heads 4 --model.kv_lora_rank 24 --model.qk_nope_head_dim 16 --model.qk_rope_head_dim 8
    --model.v_head_dim 16 --model.n_shared_experts 1 --model.n_dense_layers 1 --model.moe_bias_rate 0.01"
steps="--optimizer.lr 1e-2 --training.steps 40 --lr_scheduler.warmup_steps 5 --training.stop_at_target false --validation.freq 0"

# of KEY: the values of a key of metrics.jsonl, step by step.
of() { sed -n "s/\"phases\".*//;s/.*\"$1\": \([-0-9.e+]*\).*/\1/p" one/metrics.jsonl; }

for family in mixtral qwen3_moe gpt_oss deepseek; do
    more=
    [ $family = deepseek ] && more=$latent
    rm -rf one three
    trainmark run tiny-llama --model.family $family $sizes $more $steps --training.threads 1 --out one
    check "$family trains" [ "$code" -eq 0 ]
    trainmark run tiny-llama --model.family $family $sizes $more $steps --training.threads 3 --out three
    check "$family: other threads, the same weights" \
        [ "$(grep weights_hash one/result.json)" = "$(grep weights_hash three/result.json)" ]
    check "$family: the loss falls" \
        awk "BEGIN { exit !($(of loss | tail -1) < $(of loss | head -1) - 0.15) }"
    check "$family: no row is dropped" [ "$(of moe_dropped | sort -u)" = 0 ]
    check "$family: the load is told" awk "BEGIN { l = $(of moe_load_largest | tail -1); exit !(l >= 1 && l <= 4) }"
done

rm -rf one
trainmark run tiny-llama --model.family mixtral $sizes --training.steps 2 --validation.freq 0 \
    --debug.moe_force_load_balance true --out one
check "forced balance: all experts alike" [ "$(of moe_load_largest | sort -u) $(of moe_load_smallest | sort -u)" = "1 1" ]

trainmark run tiny-llama --model.family mixtral $sizes --model.n_experts_per_token 9 --out no
failed_with 4 "more experts than there are" "model.n_experts_per_token" "at most"
trainmark run tiny-llama --model.family deepseek $sizes --out no
failed_with 4 "deepseek without its rank" "model.kv_lora_rank" "deepseek"
trainmark run tiny-llama --model.family deepseek $sizes $latent --model.n_mtp_layers 1 --out no
failed_with 4 "multi-token prediction" "multi-token prediction"
trainmark run tiny-llama --model.family gpt $sizes --out no
failed_with 4 "experts of gpt" "model.n_experts" "gpt family"

finish
