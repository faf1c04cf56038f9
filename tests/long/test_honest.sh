#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Honest training is never called anything else: short runs of every family, format and regime, with other initial values and data
# each, none of which may be invalid; the certificate of the gradients, of the loss and of updates must hold in every one. Only experts may change too often for
# it to tell; of products in low precision there is none of gradients.
#
#   RUNS=200 SEED=1 tests/long/test_honest.sh    the configurations of tests/golden/bits.txt, and
#                                                those below, in turn
# shellcheck disable=SC1010,SC1091,SC2046,SC2086,SC2154
first_seed=${SEED:-1} # lib.sh forgets it; a run's seed begins with it, and some orders take at most 2^32 - 1
[ "$first_seed" -le 4000000 ] || { echo "SEED is at most 4000000" >&2; exit 2; }
. "$(dirname "$0")/../cli/lib.sh"

record=$root/tests/golden/bits.txt
runs=${RUNS:-200}

seq 1 20000 >text.txt
mkdir documents rows
for i in 1 2 3 4 5; do seq $i $i 6000 >documents/$i.txt; done
{
    "$TRAINMARK" data pack documents --out rows/train.npy --format govreport --seq-len 32 --answer-after 40 &&
        "$TRAINMARK" data pack documents --out rows/validation.npy --format govreport --seq-len 32 &&
        "$TRAINMARK" data pack documents --out words
} >"$out" 2>"$err"
check "token files" [ $? -eq 0 ]

keys_of() { sed -n "s/^with $1 //p" "$record"; }
{
    sed -n 's/^run //p' "$record"
    echo "llama-f32-adapters llama --lora.rank 4 --lora.targets all-linear --optimizer.lr 2e-2"
    echo "llama-bf16-adapters-dropout llama --training.dtype bfloat16 --lora.rank 4 --lora.targets all-linear --lora.dropout 0.1 --optimizer.lr 2e-2"
    echo "llama-f32-adapters-dropout-accumulate llama --lora.rank 4 --lora.targets all-linear --lora.dropout 0.3 --optimizer.lr 2e-2 --training.grad_accumulation 3"
    echo "gpt-f32-sgd gpt --optimizer.name SGD"
    echo "gpt-bf16-pure-adafactor gpt --training.dtype bfloat16 --training.regime pure --optimizer.name Adafactor"
    echo "llama-f32-offload llama --training.offload all --training.offload_path ."
    echo "mixtral-f32-balance experts --model.family mixtral --model.moe_aux_loss 0.01 --training.grad_accumulation 2"
} >cases
n=$(grep -c . cases)

# member NAME: of the certificate; updated NAME: of what it says of updates.
member() { tr -d '\n' <run/result.json | sed -n "s/.*\"certificate\": *{\([^{]*\)\"update\".*/\1/; s/.*\"$1\": *\([^,}]*\)[,}].*/\1/p" | tr -d ' '; }
updated() { tr -d '\n' <run/result.json | sed -n "s/.*\"update\": *{[^}]*\"$1\": *\([^,}]*\)[,}].*/\1/p" | tr -d ' '; }

i=0 held=0 changed=0 estimates=0
while [ $i -lt "$runs" ]; do
    line=$(sed -n "$((i % n + 1))p" cases)
    name=${line%% *} rest=${line#* }
    set=${rest%% *} own=${rest#"${rest%% *}"}
    seed=$((first_seed * 1000 + i))
    source="--data.source mock"
    [ $set = flux ] && source=
    trainmark run $(keys_of $set) $(keys_of all) $source --training.local_batch_size 8 $own --training.steps 60 \
        --training.threads 1 --debug.seed $seed --out run
    looked=$(member looked_ahead)
    [ "$(member loss_agrees)$(updated agrees)" = truetrue ] || fail "$name, seed $seed: a loss or an update" "$(member reason) $(updated reason)"
    disturbed="the figures do not measure this machine" # nothing that training did
    if [ "$code" -ne 0 ] && ! has "$err" "$disturbed"; then
        fail "$name, seed $seed: an alarm" "exit code $code"
    elif [ "$(member done)$(member gradients)" = truetrue ] && [ "$(member causal)$(member context)" = "$looked$looked" ]; then
        held=$((held + 1))
        echo "$(member expected) $(member measured) $(member band) $name $seed" >>rows.txt
    elif has "$out" "experts of tokens change too often"; then
        changed=$((changed + 1))
    elif has "$out" "factors are quantized: gradients are straight-through estimates"; then
        estimates=$((estimates + 1)) # which have no certificate, but that of the loss and of updates
    else
        fail "$name, seed $seed: there is no certificate" "$(member reason)"
    fi
    rm -rf run
    i=$((i + 1))
done
echo "# $runs runs of $n configurations: $held certified, in $changed experts change too often, $estimates with products in low precision"
awk '{ x = ($2 - $1) / $3; x = x < 0 ? -x : x; if (x > most) { most = x; who = $4 " " $5 } }
    END { printf "# the farthest is at %.2f of its band: %s\n", most, who }' rows.txt
check "no alarm in $runs honest runs" [ "$failures" -eq 0 ]
check "experts alone may change too often, in one run of twenty" [ $((20 * changed)) -le "$runs" ]
finish
