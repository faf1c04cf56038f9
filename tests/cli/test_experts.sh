#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A mixture of experts trains: the loss falls, weights do not depend on threads, the load is reported. The families: tests/oracle.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

sizes="--model.n_layers 2 --model.dim 64 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 96 --model.n_experts 8
    --model.n_experts_per_token 2 --model.moe_ffn_dim 48 --training.seq_len 64 --training.local_batch_size 4"
steps="--optimizer.lr 1e-2 --training.steps 40 --lr_scheduler.warmup_steps 5 --training.stop_at_target false --validation.freq 0"

# of KEY: the values of a key of metrics.jsonl, step by step.
of() { sed -n "s/\"phases\".*//;s/.*\"$1\": \([-0-9.e+]*\).*/\1/p" one/metrics.jsonl; }

says 0 '' run tiny-llama --model.family mixtral $sizes $steps --training.threads 1 --out one
trainmark run tiny-llama --model.family mixtral $sizes $steps --training.threads 3 --out three
check "other threads, the same weights" \
    [ "$(grep weights_hash one/result.json)" = "$(grep weights_hash three/result.json)" ]
check "the loss falls" \
    awk "BEGIN { exit !($(of loss | tail -1) < $(of loss | head -1) - 0.15) }"
check "no row is dropped" [ "$(of moe_dropped | sort -u)" = 0 ]
check "the load is told" awk "BEGIN { l = $(of moe_load_largest | tail -1); exit !(l >= 1 && l <= 4) }"

rm -rf one
trainmark run tiny-llama --model.family mixtral $sizes --training.steps 2 --validation.freq 0 \
    --debug.moe_force_load_balance true --out one
check "forced balance: all experts alike" [ "$(of moe_load_largest | sort -u) $(of moe_load_smallest | sort -u)" = "1 1" ]

finish
