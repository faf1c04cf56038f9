#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs that look like training and are none.
# shellcheck disable=SC1091,SC2016,SC2059,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

train() { trainmark run $tiny --training.steps 60 --out run -v "$@"; }
invalid() { check "$1: exit code 3" [ "$code" -eq 3 ]; check "$1: $2" has "$err" "$2"; }

train
check "honest training is not invalid" [ "$code" -eq 0 ]
check "the report has a line" has "$out" '^  gradients +passed +[0-9]+ parameter groups: predicted loss change '
check "causal mask, row isolation" sh -c "tr -d '\n' <'$out' | grep -qE 'causal +mask, +row +isolation'"
check "the result has a member" sh -c "tr -d '\n ' <run/result.json | grep -q '\"certificate\":{\"done\":true,\"reason\":null,'"
check "what it was fed was read again" has "$out" '^  data +passed +[0-9]+ training batches and [0-9]+ validation batches read'
trainmark run $tiny --training.steps 60 --training.local_batch_size 1 --out run --debug.certificate false -v
check_not "it can be left out" has "$out" '^  gradients'
train --optimizer.lr 0
invalid "learning rate 0" "no weight has moved in the 60 steps of this run"
rm -rf run
train --checkpoint.enable true
trainmark run $tiny --training.steps 120 --out run --checkpoint.enable true --optimizer.lr 0 --training.target_loss_gap 3
invalid "going on with learning rate 0" "no weight has moved in the 60 steps of this run"

finish
