#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark data`: packing text, looking at it, checking files against lists, sizes and hashes, and training on both formats.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

mkdir docs
i=0
while [ $i -lt 40 ]; do
    printf 'Question %d: what follows?\nAnswer: %d follows, and then %d.' $i $((i + 1)) $((i + 2)) >docs/$i
    i=$((i + 1))
done

# --- packed, and verified ---------------------------------------------------------------------------------------------------

trainmark data pack docs --out set
mkdir gov
says 0 "gov/train.npy: 74 rows" data pack docs --out gov/train.npy --format govreport --seq-len 32
trainmark data pack docs --out gov/validation.npy --format govreport --seq-len 32 --answer-after 'Answer: '
says 5 "'gov' differs from what was published" data verify gov
check "the published size is told" has "$out" "train.npy +\| bytes +\| 192,151,239"

# --- train ----------------------------------------------------------------------------------------------------------------

says 0 '' run $tiny --training.steps 4 --training.local_batch_size 1 --model.vocab_size 257 --data.source govreport --data.path gov --out a \
    --validation.steps -1 --validation.average sequences
check "each step has 31 targets of 32" [ "$(grep -c '"target_tokens": 31,' a/metrics.jsonl)" -eq 4 ]
trainmark run $tiny --training.steps 4 --data.source megatron --data.path set --data.validation_path set --out c \
    --model.vocab_size 257
check "training on an indexed data set" [ "$code" -eq 0 ]
check "what the order takes is said before" has "$err" "8 samples take 1 epochs of 40 documents; their order takes"

# --- what is written trains as it is -----------------------------------------------------------------------------------------

seq 1 3000 >numbers.txt
trainmark data pack numbers.txt --out packed
for path in packed packed.idx; do
    trainmark run $tiny --training.steps 2 --data.path $path --out of_packed --json
    check "--data.path $path is a data set of tokens" [ "$code$(grep -c '"data_source": "megatron"' "$out")" = 01 ]
    check "which decides the vocabulary" has "$err" "model.vocab_size raised from 64 to 320 for data.source megatron"
done
md5sum packed.idx packed.bin >packed.bin.md5
echo >>packed.bin
says 5 "'packed' differs from what was published" data verify packed

# --- rows for fine-tuning: targets are green on a terminal of script(1), unless NO_COLOR is set ------------------------------------

fixtures=$root/tests/data/sft
if command -v script >/dev/null 2>&1; then
    preview="'$TRAINMARK' data preview '$fixtures/govreport.parquet' --samples 1"
    script -qec "$preview" /dev/null >coloured 2>&1 </dev/null
    check "green on a terminal" grep -q "$(printf "\033")\[32m" coloured
    NO_COLOR=1 script -qec "$preview" /dev/null >plain 2>&1 </dev/null
    check "brackets with NO_COLOR" grep -q "^\[\[" plain
fi
sft="$tiny --data.source sft --data.path $fixtures/alpaca.parquet --training.seq_len 512 --model.vocab_size 257"
says 0 "40 rows of instruction; training 38 samples of [0-9,]+ tokens, .* % full" run $sft --training.steps 6 --dry-run
says 0 "\(not packed\)" run $sft --training.steps 2 --data.packed false --data.overlong drop --dry-run

finish
