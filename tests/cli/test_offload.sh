#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# training.offload on the command line: the same weights, plans that say what lies where, folders that will not do, and
# no file left behind.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/../cli/lib.sh"

deep="$tiny --model.n_layers 4 --training.steps 6 --validation.enable false"
hash_of() { sed -n 's/^ *"weights_hash": "\(.*\)".*/\1/p' "$1/result.json"; }
left() { find "$1" -name 'trainmark-offload*' | wc -l; }

trainmark run $deep --out plain
wanted=$(hash_of plain)
check "a run as it is" [ "$code" -eq 0 ]
for form in optimizer activations all; do
    mkdir -p disk
    trainmark run $deep --training.offload $form --training.offload_path disk --out $form
    check "--training.offload $form has the same weights" [ "$code $(hash_of $form)" = "0 $wanted" ]
    check "and leaves no file" [ "$(left .)" -eq 0 ]
done

mkdir killed
"$TRAINMARK" run $deep --training.steps 1000000 --training.offload all --training.offload_path killed --out long \
    >/dev/null 2>&1 &
pid=$!
tries=0
while [ ! -s long/metrics.jsonl ] && [ $tries -lt 200 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -9 $pid
wait $pid 2>/dev/null
check "a run that is killed in the middle had begun" [ -s long/metrics.jsonl ]
check "and leaves no file either" [ "$(left killed)" -eq 0 ]

finish
