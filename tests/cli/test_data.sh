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

# --- pack and inspect -----------------------------------------------------------------------------------------------------

trainmark data pack docs --out set
check "text becomes an indexed data set" [ "$code" -eq 0 ]
check "an index of one sequence a document has 42 + 20 S bytes" [ "$(wc -c <set.idx)" -eq 842 ]
trainmark data inspect set.bin
check "an indexed data set is looked at" has "$out" "\| set.bin +\| megatron +\| uint16 +\| +40 \| +40 \| +2373 \|"
mkdir gov
trainmark data pack docs --out gov/train.npy --format govreport --seq-len 32
check "text becomes packed rows" has "$out" "gov/train.npy: 74 rows"
trainmark data pack docs --out gov/validation.npy --format govreport --seq-len 32 --answer-after 'Answer: '
check "only answers count" [ "$code" -eq 0 ]
trainmark data inspect gov
check "a folder of packed rows is looked at" has "$out" "gov/train.npy +\| +1 \|"
check "what all files have in common" has "$out" "all rows: format govreport, type int32, rows 74"
check "the share of what counts is told" has "$out" "gov/validation.npy .*\| +0.3965 "
trainmark data inspect docs --json
check "text is looked at, as JSON" has "$out" '"tokens": 2373'
trainmark data inspect nothing
failed_with 4 "looking at nothing" "cannot reach 'nothing'"
head -c 300 gov/train.npy >cut.npy
trainmark data inspect cut.npy
failed_with 4 "a packed file that was cut" "cut.npy.*byte|cut.npy.*rows"
head -c 100 set.idx >cut.idx
cp set.bin cut.bin
trainmark data inspect cut
failed_with 4 "an index that was cut" "cut.idx' has 100 bytes.*it is truncated or damaged"
trainmark data pack nothing --out x
failed_with 4 "packing nothing" "cannot reach 'nothing'"
trainmark data pack docs --out x --format zip
failed_with 2 "packing as something else" "must be one of megatron, govreport; found .zip."
trainmark data pack docs --out x.npy --format govreport --seq-len 3000
failed_with 4 "less text than a row" "2373 tokens, that are 0 rows of 3000"
trainmark data pack docs --out no/such/folder
failed_with 4 "no such folder" "cannot create 'no/such/folder.bin"
trainmark data
check "alone it lists its commands: exit code 0" [ "$code" -eq 0 ]
check "alone it lists its commands" has "$out" "^  verify +compare files with published sizes"
trainmark data inspect
failed_with 2 "no path" "missing PATH"

# --- verify ---------------------------------------------------------------------------------------------------------------

printf '900150983cd24fb0d6963f7d28e17f72  abc\nd41d8cd98f00b204e9800998ecf8427e *empty\n' >list.md5
printf abc >abc
: >empty
mkdir both
mv abc empty both
trainmark data verify list.md5
failed_with 5 "files that are missing" "differs from what was published"
check "what is missing is named" has "$out" "\| abc .*\| missing +\| FAILED"
trainmark data verify both --expect 2c69a13837f9865084354f29aea77b1a
check "the hash of a folder" [ "$code" -eq 0 ]
trainmark data verify both --expect 2c69a13837f9865084354f29aea77b1b
failed_with 5 "another hash of a folder" "'both' differs from what was published"
cp list.md5 both
printf abd >both/abc
trainmark data verify both --json
failed_with 5 "a damaged file" "'both' differs from what was published"
check "the damaged file is named, as JSON" has "$out" '"found": "4911e516e5aa21d327512e0c8b197616"'
trainmark data verify gov
failed_with 5 "names of the benchmark, other sizes" "'gov' differs from what was published"
check "the published size is told" has "$out" "train.npy +\| bytes +\| 192,151,239"
trainmark data verify nothing
failed_with 4 "a file that is not there" "cannot open 'nothing'"
echo "no list" >bad.md5
trainmark data verify bad.md5
failed_with 4 "no list" "'bad.md5': line 1 is not"
trainmark data verify docs --expect 12
failed_with 2 "no hash" "32 hexadecimal digits"

# --- train ----------------------------------------------------------------------------------------------------------------

trainmark run $tiny --training.steps 4 --training.local_batch_size 1 --model.vocab_size 257 --data.source govreport --data.path gov --out a \
    --validation.steps -1 --validation.average sequences
check "training on packed rows" [ "$code" -eq 0 ]
check "each step has 31 targets of 32" [ "$(grep -c '"target_tokens": 31,' a/metrics.jsonl)" -eq 4 ]
trainmark run $tiny --training.steps 4 --training.local_batch_size 2 --model.vocab_size 257 --data.source govreport --data.path gov --out b \
    --validation.average sequences
failed_with 4 "the mean of sequences in batches of two" "validation.average sequences .*set validation.local_batch_size to 1"
trainmark run $tiny --training.steps 4 --model.vocab_size 257 --data.source govreport --data.path gov --out b --training.seq_len 64
failed_with 4 "rows of another length" "training.seq_len 64; set it to 32"
trainmark run $tiny --training.steps 4 --data.source megatron --data.path set --data.validation_path set --out c \
    --model.vocab_size 257
check "training on an indexed data set" [ "$code" -eq 0 ]
check "what the order takes is said before" has "$err" "8 samples take 1 epochs of 40 documents; their order takes"
mv set.vocabulary.json aside.json
trainmark run $tiny --training.steps 4 --data.source megatron --data.path set --out d --model.vocab_size 256
failed_with 4 "a token outside of the vocabulary" "set.bin': token [0-9]+ is not in the vocabulary, 0 to 255"
mv aside.json set.vocabulary.json
trainmark run $tiny --data.source megatron --out d
failed_with 4 "no path" "data.source is megatron .*, but data.path names no file or directory"
trainmark run $tiny --data.path docs --data.validation_path set --out d
failed_with 4 "held-out data of its own for text" "data.validation_path .* is for data.source govreport and latents and megatron"
trainmark run $tiny --training.steps 100 --data.source megatron --data.path set --out d --model.vocab_size 257 --dry-run
check "a dry run" [ "$code" -eq 0 ]
check "a dry run tells what the order would take" has "$out" "^data: 'set': 200 samples take 3 epochs of 40 documents"

# --- what is written trains as it is -----------------------------------------------------------------------------------------

seq 1 3000 >numbers.txt
trainmark data pack numbers.txt --out packed
for path in packed packed.idx; do
    trainmark run $tiny --training.steps 2 --data.path $path --out of_packed --json
    check "--data.path $path is a data set of tokens" [ "$code$(grep -c '"data_source": "megatron"' "$out")" = 01 ]
    check "which decides the vocabulary" has "$err" "model.vocab_size raised from 64 to 320 for data.source megatron"
done
trainmark data pack numbers.txt --out packed.npy --format govreport --seq-len 32
trainmark run $tiny --training.steps 2 --data.path packed.npy --out of_npy --json
trainmark run $tiny --training.steps 2 --data.path packed --model.vocab_size 64 --out of_packed
failed_with 4 "a vocabulary too small for the set" "model.vocab_size is 64 \(command line\), but data.source megatron needs 257"
trainmark run $tiny --data.path packed --dry-run --json
check "a plan has the vocabulary of the set" has "$out" 'vocab_size": 320'
echo '{' >packed.vocabulary.json
trainmark run $tiny --training.steps 2 --data.path packed --out of_packed
failed_with 4 "a damaged file of the vocabulary" "'packed.vocabulary.json', line 2: .*; remove it"
trainmark run $tiny --training.steps 2 --data.path packed.npy --out of_npy --json
check "--data.path packed.npy is a packed file" [ "$code$(grep -c '"data_source": "govreport"' "$out")" = 01 ]
trainmark run $tiny --training.steps 2 --training.local_batch_size 1 --data.path gov/train.npy --out of_gov
check "of a packed file the largest token decides" has "$err" "model.vocab_size raised from 64 to 320 for data.source govreport"
md5sum packed.idx packed.bin >packed.bin.md5
trainmark data verify packed
check "verify takes the PREFIX that inspect takes" [ "$code$(grep -c '| ok ' "$out")" = 02 ]
echo >>packed.bin
trainmark data verify packed
failed_with 5 "verify: one of the two is damaged" "'packed' differs from what was published"

finish
