#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Rows of data for fine-tuning: `trainmark data preview`, runs on them, and that a stopped run goes on bit by bit.
# shellcheck disable=SC1091,SC2154,SC2086
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

fixtures=$root/tests/data/sft
# A terminal of `script`: targets are green, unless NO_COLOR is set.
if command -v script >/dev/null 2>&1; then
    script -qec "'$TRAINMARK' data preview '$fixtures/govreport.parquet' --samples 1" /dev/null >coloured 2>&1 </dev/null
    check "green on a terminal" grep -q "$(printf "\033")\[32m" coloured
    NO_COLOR=1 script -qec "'$TRAINMARK' data preview '$fixtures/govreport.parquet' --samples 1" /dev/null >plain 2>&1 </dev/null
    check "brackets with NO_COLOR" grep -q "^\[\[" plain
fi

sft="$tiny --data.source sft --data.path $fixtures/alpaca.parquet --training.seq_len 512 --training.local_batch_size 1
     --model.vocab_size 257 --debug.seed 5"
says 0 "40 rows of instruction; training 38 samples of [0-9,]+ tokens, .* % full" run $sft --training.steps 6 --dry-run
says 0 "\(not packed\)" run $sft --training.steps 2 --data.packed false --data.overlong drop --dry-run
finish
