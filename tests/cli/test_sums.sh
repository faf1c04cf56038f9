#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Which kernels a run took and in which order their products are summed: in result.json, and in checkpoints, which say
# so when a run goes on with another order.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

shape="tiny-llama --model.n_layers 1 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 2 --model.ffn_dim 64
    --training.seq_len 32 --training.local_batch_size 2 --training.stop_at_target false --validation.enable false
    --training.threads 1 --checkpoint.enable true --checkpoint.interval 2 --out runs"
member() { sed -n "s/^ *\"$1\": \"\(.*\)\",\$/\1/p" runs/result.json | head -n 1; }

says 0 '' run $shape --training.steps 2 --isa base
check "names them" [ "$(member kernels)" = base ]
check "and their order" [ "$(member sums)" = rounded-twice ]

trainmark run $shape --training.steps 3 --checkpoint.load_step 2
if [ "$(member kernels)" = base ]; then
    skip "another order" "this machine has base kernels only"
else
    check "goes on with others" [ "$code" -eq 0 ]
    check "and says so" has "$err" "summed in the order 'rounded-twice'"
    check "their order" [ "$(member sums)" = fused ]
fi

rm -rf runs
trainmark run $shape --training.steps 2 --training.dtype bfloat16 --isa amx
if [ "$code" -ne 0 ] && has "$err" "this machine runs"; then
    skip "tile registers" "this machine has none"
else
    check "tile registers have an order of their own" [ "$(member sums)" = groups-of-32 ]
    says 0 "summed in the order 'groups-of-32'" run $shape --training.steps 3 --training.dtype bfloat16 --isa avx512 --checkpoint.load_step 2
fi
finish
