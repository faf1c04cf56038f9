#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark run --evaluate`: the held-out loss that a run ended with is the one with which what it exported begins.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

seq 1 20000 >counting.txt
seq 2 7 20000 >sevens.txt
model="--model.n_layers 2 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64 --model.vocab_size 257"
data="--data.source text --data.path counting.txt --training.seq_len 64 --training.local_batch_size 4 --training.threads 1"

says 0 '' run $model $data --training.steps 6 --checkpoint.enable true --out base
learned=$(value base/result.json validation)
trainmark export base -o folder --dtype float32
trainmark run --model.hf_assets_path folder $data --evaluate --json
check "what a run ended with" [ "$(value "$out" loss)" = "$learned" ]
check "with a standard error" awk -v error="$(value "$out" standard_error)" 'BEGIN { exit !(error > 0 && error < 1) }'
says 0 "^held-out loss +[0-9.]+ nats per token, standard error 0\.[0-9]+$" run --model.hf_assets_path folder $data --evaluate
trainmark run $model $data --evaluate --json
check "without a directory: the initial weights" awk -v loss="$(value "$out" loss)" 'BEGIN { exit !(loss > 5 && loss < 6) }'

lora="--model.hf_assets_path folder --lora.rank 4 --lora.alpha 8"
other="--data.source text --data.path sevens.txt --training.seq_len 64 --training.local_batch_size 4 --training.threads 1"
trainmark run $lora $other --training.steps 6 --checkpoint.enable true --out adapted
learned=$(value adapted/result.json validation)
trainmark export adapted -o adapter
trainmark run $lora --lora.adapter_path adapter $other --evaluate --json
check "with an adapter: what its run ended with" [ "$(value "$out" loss)" = "$learned" ]

"$TRAINMARK" run $model --data.source mock --validation.steps 1000000000 --evaluate >"$out" 2>"$err" </dev/null &
session=$!
sleep 1
kill -INT $session
for _ in $(seq 100); do kill -0 $session 2>/dev/null || break; sleep 0.1; done
kill -KILL $session 2>/dev/null # whoever does not heed the first one
wait $session
code=$?
failed_with 130 "a signal ends it" "stopped by a signal"

finish
