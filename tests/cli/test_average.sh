#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Averages of weights on the command line: training.ema_decay, export --ema, generate --ema, what they refuse.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

run="$tiny --training.steps 3 --checkpoint.enable true"
trainmark run $run --training.ema_decay 0.5 --out r
check "a run with averages" [ "$code" -eq 0 ]
check "its memory is as planned" has "$out" 'memory .*as planned'
trainmark export r -o averages --ema
check "its averages are exported" [ "$code" -eq 0 ]
trainmark export r -o weights
check "they are not its weights" sh -c '! cmp -s averages/model.safetensors weights/model.safetensors'
echo '[1, 2, 3]' >ids.json
trainmark generate averages --prompt-ids ids.json --max-tokens 8 --json
cp "$out" wanted
trainmark generate r --ema --prompt-ids ids.json --max-tokens 8 --json
check "the run goes on with its averages as their directory does" \
    [ "$code $(sed 's/"prompt_tokens.*//' "$out")" = "0 $(sed 's/"prompt_tokens.*//' wanted)" ]

# Broken off behind step 2 and gone on with, the averages are those of the run without a break.
rm -rf r
trainmark run $run --training.ema_decay 0.5 --checkpoint.interval 2 --checkpoint.keep_latest_k 0 --out r
cp -r r broken
rm -r broken/result.json broken/checkpoint/step-00000003
trainmark run $run --training.ema_decay 0.5 --checkpoint.interval 2 --checkpoint.keep_latest_k 0 --out broken
check "a run goes on" has "$err" "resumed from step 2"
check "with the averages that it had" cmp r/checkpoint/step-00000003/tensors.safetensors \
    broken/checkpoint/step-00000003/tensors.safetensors

# Weights that stand still are their averages.
trainmark run $run --training.ema_decay 0.5 --optimizer.lr 0 --out still
trainmark export still -o still_averages --ema
trainmark export still -o still_weights
check "weights that stand still are their averages" cmp still_averages/model.safetensors still_weights/model.safetensors

trainmark run $run --out plain
trainmark export plain -o none --ema
failed_with 4 "a run without averages" "plain.*keeps no averages.*training.ema_decay 0.9999.*leave --ema out"
trainmark generate plain --ema --prompt-ids ids.json
failed_with 4 "nor does it go on with them" "plain.*keeps no averages"
trainmark export weights -o none --ema
failed_with 4 "a directory" "weights.*a directory with a model; leave --ema out"
for decay in 1 -0.5 nan; do
    trainmark run $run --training.ema_decay $decay --out never
    failed_with 4 "training.ema_decay $decay" "training.ema_decay.*(wanted|must be a number)"
done
check "nothing was written" [ "$(ls -d none never 2>/dev/null)" = "" ]
trainmark run $run --training.ema_decay 0.5 --training.steps 4 --out plain
failed_with 4 "a checkpoint without averages" "\.ema'.*is missing"

finish
