#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Averages of weights on the command line: training.ema_decay, export --ema, generate --ema, what they refuse.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

run="$tiny --training.steps 3 --checkpoint.enable true"
says 0 'memory .*as planned' run $run --training.ema_decay 0.5 --out r
says 0 '' export r -o averages --ema
trainmark export r -o weights
check "they are not its weights" sh -c '! cmp -s averages/model.safetensors weights/model.safetensors'
echo '[1, 2, 3]' >ids.json
trainmark generate averages --prompt-ids ids.json --max-tokens 8 --json
cp "$out" wanted
trainmark generate r --ema --prompt-ids ids.json --max-tokens 8 --json
check "the run goes on with its averages as their directory does" \
    [ "$code $(sed 's/"prompt_tokens.*//' "$out")" = "0 $(sed 's/"prompt_tokens.*//' wanted)" ]

trainmark run $run --out plain
says 4 "plain.*keeps no averages.*training.ema_decay 0.9999.*leave --ema out" export plain -o none --ema
says 4 "plain.*keeps no averages" generate plain --ema --prompt-ids ids.json

finish
