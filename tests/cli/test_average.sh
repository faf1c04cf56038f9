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

trainmark run $run --out plain
trainmark export plain -o none --ema
failed_with 4 "a run without averages" "plain.*keeps no averages.*training.ema_decay 0.9999.*leave --ema out"
trainmark generate plain --ema --prompt-ids ids.json
failed_with 4 "nor does it go on with them" "plain.*keeps no averages"

finish
