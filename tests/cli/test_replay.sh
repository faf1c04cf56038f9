#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark replay`: each step of a run has its bits again, what was changed is seen, values that are not finite are
# named as the run named them, with the data and without it.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

run="$tiny --training.steps 6 --checkpoint.enable true --checkpoint.keep_latest_k 0"
says 0 '' run $run --checkpoint.interval 2 --out r
for step in 1 2 3 6; do
    says 0 "same bits as the run" replay r --step $step --twice
done
trainmark replay r --step 6 --json
cp "$out" with.json
check "its weights are those of the run" [ "$(grep -o '"weights_hash": "[0-9a-f]*"' with.json)" = \
    "$(grep -o '"weights_hash": "[0-9a-f]*"' r/result.json)" ]
mv r/checkpoint elsewhere
trainmark replay r --step 6 --json
check "from the first weights it has the same bits" [ "$code $(sed 's/"from": 0/"from": 4/' "$out")" = "0 $(cat with.json)" ]
mv elsewhere r/checkpoint
says 0 "[0-9a-f]{16}  [0-9a-f]{16}  layers.0.attention.wqkv.weight" replay r --step 3 -v

# A digit of a record, and the hash of the weights, changed by hand.
cp -r r changed
sed -i '/"step": *3,/s/\("loss": *[0-9.]*\)[0-9],/\1,/' changed/metrics.jsonl
check_not "a digit of step 3 is gone" cmp -s r/metrics.jsonl changed/metrics.jsonl
says 5 "step 3 does not have the bits" replay changed --step 3
check "with what was recorded" has "$out" "not the same: it recorded loss"
says 0 '' replay changed --step 4
sed -i 's/"weights_hash": "./"weights_hash": "x/' changed/result.json
says 5 "step 6 does not have the bits" replay changed --step 6

# A run that comes to values that are not finite, of a text that is gone later.
yes 'the quick brown fox jumps over the lazy dog' | head -n 400 >text
blown="$run --data.source text --data.path text --model.vocab_size 320 --training.max_norm 0 --optimizer.name sgd
       --optimizer.lr 100 --training.steps 40 --checkpoint.interval 1"
says 3 "not finite: step [0-9]+, [a-z0-9_.]+ \([a-z_]+, .*micro-batch 0, .*row [0-9]+" run $blown --out n
step=$(sed -n 's/^    "step": \([0-9]*\),$/\1/p' n/result.json | head -n 1)
place=$(sed -n 's/^ *"place": "\(.*\)",$/\1/p' n/result.json)
check "the result is what it follows from" sh -c "'$TRAINMARK' verify n >/dev/null"
says 5 "step $step has values that are not finite" replay n --step "$step"
check "names the same place" has "$out" "$(printf '%s' "$place" | cut -c 1-60 | sed 's/[()+]/\\&/g')"
check "and has the bits of the run" has "$out" "same bits as the run"
rm text
says 4 "text" replay n --step "$step"
says 5 "not finite" replay n --step "$step" --batch n/batches
check "has the same bits" has "$out" "same bits as the run"

cp -r r other
sed -i 's/"sums": "[a-z0-9_]*"/"sums": "otherwise"/' other/result.json
if grep -q '"sums": "otherwise"' other/result.json; then
    says 4 "in the order 'otherwise'.*--isa" replay other --step 2
fi

finish
