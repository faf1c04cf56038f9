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

check "result.json tells what was on the disk" has all/result.json '"disk_bytes": [1-9]'
check "and that nothing was, without" has plain/result.json '"disk_bytes": 0,'

trainmark run $deep --training.offload all --checkpoint.enable true --checkpoint.interval 3 --out again
trainmark run $deep --checkpoint.enable true --checkpoint.interval 3 --checkpoint.load_step 3 --out again
check "a checkpoint of an offloaded run goes on without" [ "$code $(hash_of again)" = "0 $wanted" ]

trainmark run $deep --training.offload all --dry-run
check "a dry run tells what will be on the disk" has "$out" "disk  .* planned"
trainmark explain $deep --training.offload optimizer
check "explain, too" has "$out" "^disk  .* planned"
check "with streams and waits" has "$out" "stream copy, waits for compute"
trainmark explain $deep --training.offload optimizer --json
check "the same as JSON" has "$out" '"disk_bytes": [1-9]'

trainmark run $deep --training.offload all --training.offload_path missing --out never
check "a folder that is not there is refused" [ "$code" -eq 4 ]
check "with its key" has "$err" "training.offload_path"
check "before anything is made" [ ! -e never ]
trainmark run $deep --training.offload most
check "so is an unknown form" [ "$code" -eq 4 ]

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
