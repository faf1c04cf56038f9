#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Rows of data for fine-tuning: `trainmark data preview`, runs on them, and that a stopped run goes on bit by bit.
# shellcheck disable=SC1091,SC2154,SC2086
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

fixtures=$root/tests/data/sft
trainmark data preview "$fixtures/govreport.parquet" --samples 1
check "a prompt stands in brackets" has "$out" "^\[\[.*\]\][a-zéö].*<\|end\|>$"
check "a line says what it is" has "$out" "govreport.parquet', row 1: [0-9]+ tokens, [0-9]+ of them targets$"
check_not "no colour without a terminal" grep -q "$(printf '\033')" "$out"
trainmark data preview "$fixtures/alpaca.jsonl" --first 7 --samples 2 --json
check "as JSON" has "$out" '^\{"samples": \[\{"place": "[^"]*line 7", "tokens": [0-9]+.*"mask": \[0, 0, .*1, 1\]\}\], "format": "instruction"\}$'
trainmark data preview "$fixtures/alpaca.jsonl" --samples 1 --seq-len 40
check "a sample is cut" has "$out" "41 tokens, 0 of them targets; [0-9]+ more are cut off"
trainmark data preview "$fixtures/ultrachat.parquet" --tokenizer "$root/tests/token/chat/qwen3" --samples 2
check "a conversation by the folder's template" has "$out" "^<\|im_start\|>assistant|^\[\[<\|im_start\|>user"
check "its end is learnt" has "$out" "<\|im_end\|>"
trainmark data preview "$fixtures/ultrachat.parquet"
failed_with 4 "no template" "row 1: conversations need a chat template: give data.tokenizer a model's directory"
trainmark data preview "$fixtures/govreport.parquet" --first 13
failed_with 4 "no such row" "has 12 rows, none with a text from row 13 on"

# A terminal of `script`: targets are green, unless NO_COLOR is set.
if command -v script >/dev/null 2>&1; then
    script -qec "'$TRAINMARK' data preview '$fixtures/govreport.parquet' --samples 1" /dev/null >coloured 2>&1 </dev/null
    check "green on a terminal" grep -q "$(printf "\033")\[32m" coloured
    NO_COLOR=1 script -qec "'$TRAINMARK' data preview '$fixtures/govreport.parquet' --samples 1" /dev/null >plain 2>&1 </dev/null
    check "brackets with NO_COLOR" grep -q "^\[\[" plain
fi

sft="$tiny --data.source sft --data.path $fixtures/alpaca.parquet --training.seq_len 512 --training.local_batch_size 1
     --model.vocab_size 257 --debug.seed 5"
trainmark run $sft --training.steps 6 --dry-run
check "a plan says how full rows are" has "$out" "40 rows of instruction; training 38 samples of [0-9,]+ tokens, .* % full"
trainmark run $sft --training.steps 6 --checkpoint.enable true --checkpoint.interval 3 --out whole --json
check "a run on rows, of too few steps for a verdict" [ "$code$(sed -n "s,^  \"verdict\": ,,p" "$out")" = "0\"not-judged\"," ]
trainmark run $sft --training.steps 3 --lr_scheduler.total_steps 6 --checkpoint.enable true --checkpoint.interval 3 --out parts --json
check "its first half" [ "$code" -eq 0 ]
trainmark run $sft --training.steps 6 --checkpoint.enable true --checkpoint.interval 3 --out parts --json
check "its second half" [ "$code" -eq 0 ]
check "goes on" has "$err" "step 3|resum|goes on"
hash_of() { sed -n 's/.*"weights_hash": "\([^"]*\)".*/\1/p' "$1/result.json" | head -n 1; }
check "with the same bits as one that was not stopped" [ "$(hash_of whole)" = "$(hash_of parts)" ]
check "a hash is there" [ -n "$(hash_of whole)" ]
trainmark run $sft --training.steps 6 --checkpoint.enable true --out parts --data.train_on_input true
failed_with 4 "other targets are other data" "is not what the checkpoint"
trainmark run $sft --training.steps 2 --data.packed false --data.overlong drop --dry-run
check "not packed" has "$out" "\(not packed\)"
trainmark run $sft --training.steps 2 --data.separate_documents true
failed_with 4 "samples are apart anyway" "data.separate_documents is for sources that know where documents begin"
finish
